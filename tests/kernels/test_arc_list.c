/* Checks the reader of line lists (common/arc_list.h): values, media, and messages with the number of the line. */
#include "common/arc_list.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "check.h"
#include "num/wave.h"

static const char *list_of(const char *text)
{
    static char name[40];
    strcpy(name, "/tmp/test_arc_list_XXXXXX");
    const int fd = mkstemp(name);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && close(fd) == 0, "%s", name);
    return name;
}

static spx_status read_text(const char *text, spx_medium medium, spx_arc_line **line, size_t *n, spx_err *e)
{
    const char *name = list_of(text);
    const spx_status st = spx_arc_list_read(name, medium, line, n, e);
    unlink(name);
    return st;
}

static void test_good(void)
{
    spx_err e = {0};
    spx_arc_line *l = NULL;
    size_t n = 0;
    CHECK(read_text("# a list\nNeI 6404.018 2 20000\n\tTh 5001.25 # no more\r\nFeXIV 5304 3\nOH 7000\n", SPX_VACUUM, &l,
                    &n, &e) == SPX_OK &&
              n == 4,
          "%zu lines: %s", n, spx_err_text(&e));
    if (n == 4) {
        CHECK(strcmp(l[0].element, "Th") == 0 && l[0].ion == 0 && l[0].wavelength == 5001.25 && l[0].quality == 1 &&
                  l[0].intensity == 0,
              "%s %d %g", l[0].element, l[0].ion, l[0].wavelength);
        CHECK(strcmp(l[1].element, "FeXIV") == 0 && l[1].quality == 3, "%s", l[1].element);
        CHECK(strcmp(l[2].element, "Ne") == 0 && l[2].ion == 1 && l[2].quality == 2 && l[2].intensity == 20000, "%s %d",
              l[2].element, l[2].ion);
        CHECK(strcmp(l[3].element, "OH") == 0 && l[3].ion == 0, "%s %d", l[3].element, l[3].ion);
    }
    spx_free(l);
    CHECK(read_text("Th 5001.25\n", SPX_AIR, &l, &n, &e) == SPX_OK && n == 1 &&
              l[0].wavelength == spx_air_to_vacuum(5001.25),
          "in air: %s", spx_err_text(&e));
    spx_free(l);
}

static void test_bad(void)
{
    static const struct {
        const char *text, *want;
        spx_medium medium;
    } bad[] = {
        {"Ne 6404.018\nNe\n", "*:2: should be 'ELEMENT*", SPX_VACUUM},
        {"Ne 6404.018\n\n# x\nNe 6x 1\n", "*:4: should be*", SPX_VACUUM},
        {"Ne 6404 1 2 3\n", "*:1: should be*", SPX_VACUUM},
        {"6404 Ne\n", "*:1: should be*", SPX_VACUUM},
        {"Neonlamp 6404\n", "*:1: should be*", SPX_VACUUM},
        {"Ne nan\n", "*:1: should be*", SPX_VACUUM},
        {"Ne 0.64\n", "*:1: 0.64 is no wavelength*", SPX_VACUUM},
        {"Ne -6404\n", "*:1: -6404 is no*", SPX_VACUUM},
        {"Ne 6404 0\n", "*:1: quality 0: should be 1*", SPX_VACUUM},
        {"Ne 6404 1.5\n", "*:1: quality 1.5*", SPX_VACUUM},
        {"Ne 6404 1 -2\n", "*:1: intensity -2 is negative*", SPX_VACUUM},
        {"Ne 6404\nAr 7000\nNe 6404.0 2\n", "*:3: Ne 6404.0000 is in line 1*", SPX_VACUUM},
        {"# nothing\n\n", "*has no lines*", SPX_VACUUM},
        {"Ne 5852.488\nNe 6143.063\nNe 6402.248\nNe 6506.528\nHg 5460.75\n",
         "*5 of 5 lines are at known wavelengths in air, 0 in vacuum: give --medium air*", SPX_VACUUM},
        {"Ne 5854.110\nNe 6144.763\nNe 6404.018\nNe 6508.326\n", "*4 of 4*in vacuum, 0 in air: give --medium vacuum*",
         SPX_AIR},
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        spx_err e = {0};
        spx_arc_line *l = NULL;
        size_t n = 1;
        CHECK(read_text(bad[k].text, bad[k].medium, &l, &n, &e) == SPX_EINPUT && l == NULL && n == 0 &&
                  fnmatch(bad[k].want, spx_err_text(&e), 0) == 0,
              "%zu: '%s', should be '%s'", k, spx_err_text(&e), bad[k].want);
    }
    spx_err e = {0};
    spx_arc_line *l = NULL;
    size_t n = 1;
    CHECK(spx_arc_list_read("/no/such/list", SPX_VACUUM, &l, &n, &e) == SPX_EINPUT && l == NULL, "%s",
          spx_err_text(&e));
}

int main(void)
{
    test_good();
    test_bad();
    return failures != 0;
}
