/* Checks the layout of amplifiers: sections, keywords of several conventions, layout files, places on the CCD, and what
 * is refused (products/raw.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "check_on.h"
#include "products/raw.h"

/* Checks a section's text against numbers counted from 0, the ends excluded. */
static void section(const char *text, long x0, long x1, long y0, long y1, int fx, int fy)
{
    spx_section s;
    spx_err e = {0};
    int flip[2];
    char back[SPX_SECTION_TEXT];
    CHECK(spx_section_parse(text, &s, flip, &e) == SPX_OK);
    CHECK(s.x0 == x0 && s.x1 == x1 && s.y0 == y0 && s.y1 == y1 && flip[0] == fx && flip[1] == fy);
    spx_section_print(&s, back);
    CHECK(fx || fy || strchr(text, ' ') != NULL || strcmp(back, text) == 0);
}

static void no_section(const char *text)
{
    spx_section s;
    spx_err e = {0};
    int flip[2];
    if (spx_section_parse(text, &s, flip, &e) != SPX_EINPUT || strstr(spx_err_text(&e), "is no section") == NULL) {
        printf("'%s' should be refused\n", text);
        bad = 1;
    }
}

/* Exposure of n images of nx x ny pixels without any. */
static spx_raw exposure(size_t n, size_t nx, size_t ny)
{
    spx_err e = {0};
    spx_raw r = {.n = n, .image = spx_alloc(n, sizeof *r.image, &e)};
    if (r.image == NULL)
        exit(1);
    for (size_t k = 0; k < n; k++) {
        r.image[k].nx = nx;
        r.image[k].ny = ny;
        r.image[k].largest = 65535;
    }
    return r;
}

static void set(spx_cards *h, const char *key, const char *value)
{
    spx_err e = {0};
    char *end;
    const double v = strtod(value, &end);
    CHECK((*end == '\0' ? spx_cards_set_double(h, key, v, NULL, &e) : spx_cards_set_string(h, key, value, NULL, &e)) ==
          SPX_OK);
}

static int is(const spx_section *s, long x0, long x1, long y0, long y1)
{
    return s->x0 == x0 && s->x1 == x1 && s->y0 == y0 && s->y1 == y1;
}

/* Layout that has to be refused with these words. */
static void refused(const spx_raw *r, const spx_layout_file *f, const char *words)
{
    spx_err e = {0};
    spx_layout l;
    if (spx_layout_make(r, f, 1, &l, &e) != SPX_EINPUT || strstr(spx_err_text(&e), words) == NULL) {
        printf("'%s' instead of '%s'\n", spx_err_text(&e), words);
        bad = 1;
    }
    spx_layout_free(&l);
}

static spx_layout made(const spx_raw *r, const spx_layout_file *f)
{
    spx_err e = {0};
    spx_layout l;
    if (spx_layout_make(r, f, 1, &l, &e) != SPX_OK) {
        printf("%s\n", spx_err_text(&e));
        exit(1);
    }
    return l;
}

static spx_layout_file file_of(const char *text, spx_status want, const char *words)
{
    char name[] = "/tmp/test_layout_XXXXXX";
    const int fd = mkstemp(name);
    spx_layout_file f;
    spx_err e = {0};
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    const spx_status st = spx_layout_file_read(name, &f, &e);
    if (st != want || (words != NULL && strstr(spx_err_text(&e), words) == NULL)) {
        printf("'%s' instead of '%s'\n", spx_err_text(&e), words != NULL ? words : "success");
        bad = 1;
    }
    f.name = "layout";
    close(fd);
    unlink(name);
    return f;
}

/* One image, two amplifiers A and B, 50 columns each with 10 of overscan between them. */
static spx_raw two(void)
{
    spx_raw r = exposure(1, 120, 40);
    spx_cards *h = &r.image[0].header;
    set(h, "DATASECA", "[1:50,1:40]");
    set(h, "BIASSECA", "[51:60,1:40]");
    set(h, "DATASECB", "[71:120,1:40]");
    set(h, "BIASSECB", "[61:70,1:40]");
    set(h, "GAINA", "1.5");
    set(h, "GAINB", "1.6");
    set(h, "RDNOISEA", "3.2");
    return r;
}

static void keywords(void)
{
    spx_raw r = two();
    spx_layout l = made(&r, NULL);
    CHECK(l.namp == 2 && l.nx == 100 && l.ny == 40 && strcmp(l.amp[1].name, "B") == 0);
    CHECK(is(&l.amp[0].ccd, 0, 50, 0, 40) && is(&l.amp[1].ccd, 50, 100, 0, 40));
    CHECK(is(&l.amp[1].data, 70, 120, 0, 40) && is(&l.amp[1].bias[0], 60, 70, 0, 40));
    CHECK(l.amp[0].gain == 1.5 && l.amp[1].gain == 1.6 && l.amp[0].readnoise == 3.2 && l.amp[1].readnoise == 0);
    CHECK(l.amp[0].saturation == 65535 && !l.amp[0].right && l.amp[1].right && !l.amp[0].top);
    spx_layout_free(&l);
    /* places by the detector, binned by 2 x 1, B on the left and read from its right */
    set(&r.image[0].header, "DETSECA", "[301:400,1:40]");
    set(&r.image[0].header, "DETSECB", "[300:201,1:40]");
    set(&r.image[0].header, "SATURATE", "50000");
    l = made(&r, NULL);
    CHECK(is(&l.amp[0].ccd, 50, 100, 0, 40) && is(&l.amp[1].ccd, 0, 50, 0, 40) && l.amp[1].flip_x && !l.amp[0].flip_x);
    CHECK(l.amp[0].saturation == 50000);
    spx_layout_free(&l);
    /* TRIMSEC takes columns off, where they belong too */
    set(&r.image[0].header, "TRIMSECB", "[73:120,3:40]");
    l = made(&r, NULL);
    CHECK(is(&l.amp[1].data, 72, 120, 2, 40) && is(&l.amp[1].ccd, 0, 48, 2, 40));
    spx_layout_free(&l);
    spx_raw_free(&r);

    /* images of their own, and keywords of another convention */
    r = exposure(2, 60, 40);
    for (int k = 0; k < 2; k++) {
        set(&r.image[k].header, "DATASEC", "[1:50,1:40]");
        set(&r.image[k].header, "BIASSEC", "[51:60,1:40]");
        set(&r.image[k].header, "CCDSEC", k == 0 ? "[1:50,1:40]" : "[1:50,80:41]");
    }
    set(&r.header, "GAIN", "2");
    l = made(&r, NULL);
    CHECK(l.namp == 2 && l.nx == 50 && l.ny == 80 && l.amp[1].image == 1 && l.amp[1].flip_y && l.amp[1].gain == 2);
    spx_layout_free(&l);
    set(&r.image[1].header, "CCDSEC", "[1:50,21:60]");
    refused(&r, NULL, "overlap");
    set(&r.image[1].header, "CCDSEC", "[1:50,100021:100060]");
    refused(&r, NULL, "far apart");
    spx_cards_drop(&r.image[1].header, "CCDSEC");
    refused(&r, NULL, "no DETSEC or CCDSEC");
    spx_raw_free(&r);
    r = exposure(1, 60, 40);
    set(&r.image[0].header, "DSEC11", "[1:50,1:40]");
    set(&r.image[0].header, "BSEC11", "[51:60,1:40]");
    set(&r.image[0].header, "GTGAIN11", "2.5");
    set(&r.image[0].header, "GTRON11", "4");
    l = made(&r, NULL);
    CHECK(l.namp == 1 && strcmp(l.amp[0].name, "11") == 0 && l.amp[0].gain == 2.5 && l.amp[0].readnoise == 4);
    spx_layout_free(&l);
    spx_raw_free(&r);
}

static void refusals(void)
{
    spx_raw r = exposure(1, 120, 40);
    spx_cards *h = &r.image[0].header;
    refused(&r, NULL, "no keyword (DATASEC, TRIMSEC)");
    set(h, "DATASEC", "[1:50,1:40]");
    refused(&r, NULL, "has no GAIN");
    set(h, "GAIN", "1");
    refused(&r, NULL, "no overscan");
    set(h, "BIASSEC", "[51:60,1:41]");
    refused(&r, NULL, "outside the image of 120 x 40");
    set(h, "BIASSEC", "[50:60,1:40]");
    refused(&r, NULL, "overlap");
    set(h, "BIASSEC", "[51:60");
    refused(&r, NULL, "BIASSEC: '[51:60' is no section");
    set(h, "BIASSEC", "[51:60,1:40]");
    set(h, "DATASEC", "[50:1,1:40]");
    refused(&r, NULL, "runs backwards");
    set(h, "DATASEC", "[1:50,1:40]");
    set(h, "DETSEC", "[1:75,1:40]");
    refused(&r, NULL, "another size");
    set(h, "DETSEC", "[1:50,1:40]");
    set(h, "GAIN", "-1");
    refused(&r, NULL, "is none");
    spx_raw_free(&r);
    r = two();
    set(&r.image[0].header, "DATASECB", "[50:99,1:40]");
    refused(&r, NULL, "overlap");
    spx_raw_free(&r);
}

static void files(void)
{
    spx_raw r = two();
    spx_layout_file f = file_of("# of the manual\namplifier a gain=2 linearity=1e-6,2e-12 corner=ur # better\n"
                                "crosstalk A B 1e-4\n",
                                SPX_OK, NULL);
    spx_layout l = made(&r, &f);
    CHECK(l.namp == 2 && l.amp[0].gain == 2 && l.amp[1].gain == 1.6 && l.amp[0].nlinear == 2 && l.amp[0].right &&
          l.amp[0].top);
    CHECK(l.crosstalk != NULL && l.crosstalk[1] == 1e-4 && l.crosstalk[0] == 0 && l.crosstalk[2] == 0);
    spx_layout_free(&l);
    spx_layout_file_free(&f);
    f = file_of("amplifier all data=[1:50,1:40] bias=[51:60,1:40] bias=[61:70,1:40] gain=GAINB readnoise=3\n", SPX_OK,
                NULL);
    l = made(&r, &f);
    CHECK(l.namp == 1 && l.nx == 50 && l.amp[0].nbias == 2 && l.amp[0].gain == 1.6 && l.amp[0].readnoise == 3);
    spx_layout_free(&l);
    spx_layout_file_free(&f);
    f = file_of("amplifier C gain=1\n", SPX_OK, NULL);
    refused(&r, &f, "amplifier C: no keyword tells of it");
    spx_layout_file_free(&f);
    f = file_of("amplifier A gain=NONE\n", SPX_OK, NULL);
    refused(&r, &f, "neither a number nor a keyword");
    spx_layout_file_free(&f);
    f = file_of("crosstalk A D 0.1\n", SPX_OK, NULL);
    refused(&r, &f, "there is no amplifier D");
    spx_layout_file_free(&f);
    static const char *const wrong[][2] = {{"amplifier\n", "should be: amplifier"},
                                           {"\namplifier A data=[1:2]\n", "line 2"},
                                           {"amplifier A what=1\n", "'what='"},
                                           {"amplifier A data\n", "KEY=VALUE"},
                                           {"amplifier A data=[2:1,1:1]\n", "backwards"},
                                           {"amplifier A linearity=x\n", "linearity"},
                                           {"amplifier A corner=xx\n", "ll, lr, ul or ur"},
                                           {"amplifier A\namplifier A\n", "twice"},
                                           {"amplifier ABCDEFGHIJKLMNOPQRSTUVW\n", "1 to 15 characters"},
                                           {"crosstalk A A 1e-4\n", "two amplifiers"},
                                           {"crosstalk A B\n", "should be: crosstalk"},
                                           {"crosstalk A B 0.9\n", "between -0.5"},
                                           {"nonsense\n", "begins with"},
                                           {"# nothing\n", "names no amplifier"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        f = file_of(wrong[i][0], SPX_EINPUT, wrong[i][1]);
        spx_layout_file_free(&f);
    }
    spx_raw_free(&r);
}

int main(void)
{
    section("[1:2048,1:350]", 0, 2048, 0, 350, 0, 0);
    section("[2048:1,350:1]", 0, 2048, 0, 350, 1, 1);
    section(" [ 3 : 3 , 7 : 9 ] ", 2, 3, 6, 9, 0, 0);
    static const char *const no[] = {"",
                                     "1:2,1:2",
                                     "[1:2,1:2",
                                     "[1:2]",
                                     "[1:2,1:2]x",
                                     "[0:2,1:2]",
                                     "[1:2;1:2]",
                                     "[-1:2,1:2]",
                                     "[1:2,:]",
                                     "[1:99999999999999999999,1:2]",
                                     "[1:2000000,1:2]",
                                     "[1.5:2,1:2]",
                                     "[*,*]",
                                     "[1:2,1:2]]"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        no_section(no[i]);
    keywords();
    refusals();
    files();
    return bad;
}
