/* Finds the amplifiers of a raw exposure, from keywords and a text file (products/raw.h). */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/lines.h"
#include "base/mem.h"
#include "base/parse.h"
#include "products/raw.h"

/* Largest coordinate of a section: sums and products of a few stay within a long. */
enum { FAR = 1000000 };

void spx_layout_free(spx_layout *l)
{
    spx_free(l->amp);
    spx_free(l->crosstalk);
    memset(l, 0, sizeof *l);
}

/* ---- sections ---- */

/* A number that is one end of a range; NULL: there is none. */
static const char *number(const char *p, long *v)
{
    char *end;
    while (*p == ' ')
        p++;
    if (!isdigit((unsigned char)*p))
        return NULL;
    *v = strtol(p, &end, 10);
    while (*end == ' ')
        end++;
    return *v >= 1 && *v <= FAR ? end : NULL;
}

spx_status spx_section_parse(const char *text, spx_section *s, int flip[2], spx_err *e)
{
    long v[4];
    const char *p = text + strspn(text, " ");
    p = *p == '[' ? p + 1 : NULL;
    for (int i = 0; i < 4 && p != NULL; i++) {
        p = number(p, &v[i]);
        if (p != NULL)
            p = *p == ":,:]"[i] ? p + 1 : NULL;
    }
    if (p == NULL || p[strspn(p, " ")] != '\0')
        return spx_fail(e, SPX_EINPUT, "'%.60s' is no section [x1:x2,y1:y2] of pixels counted from 1", text);
    for (int i = 0; i < 2; i++) {
        flip[i] = v[2 * i] > v[2 * i + 1];
        const long lo = v[2 * i + flip[i]], hi = v[2 * i + !flip[i]];
        *(i == 0 ? &s->x0 : &s->y0) = lo - 1;
        *(i == 0 ? &s->x1 : &s->y1) = hi;
    }
    return SPX_OK;
}

void spx_section_print(const spx_section *s, char text[SPX_SECTION_TEXT])
{
    (void)snprintf(text, SPX_SECTION_TEXT, "[%ld:%ld,%ld:%ld]", s->x0 + 1, s->x1, s->y0 + 1, s->y1);
}

static long width(const spx_section *s)
{
    return s->x1 - s->x0;
}

static long height(const spx_section *s)
{
    return s->y1 - s->y0;
}

static int overlap(const spx_section *a, const spx_section *b)
{
    return a->x0 < b->x1 && b->x0 < a->x1 && a->y0 < b->y1 && b->y0 < a->y1;
}

/* ---- layout file ---- */

void spx_layout_file_free(spx_layout_file *f)
{
    spx_free(f->amp);
    spx_free(f->cross);
    memset(f, 0, sizeof *f);
}

/* Copies a word into a field; SPX_EINPUT: it is too long. */
static spx_status word(const char *text, const char *what, char *out, size_t size, spx_err *e)
{
    if (text[0] == '\0' || strlen(text) >= size)
        return spx_fail(e, SPX_EINPUT, "%s '%.60s' should have 1 to %zu characters", what, text, size - 1);
    (void)snprintf(out, size, "%s", text);
    return SPX_OK;
}

static spx_status set_value(spx_layout_entry *a, const char *key, const char *value, spx_err *e)
{
    static const char *const corners[] = {"ll", "lr", "ul", "ur"};
    int plain[2];
    spx_status st = SPX_OK;
    if (strcmp(key, "image") == 0)
        return word(value, key, a->image, sizeof a->image, e);
    if (strcmp(key, "gain") == 0)
        return word(value, key, a->gain, sizeof a->gain, e);
    if (strcmp(key, "readnoise") == 0)
        return word(value, key, a->readnoise, sizeof a->readnoise, e);
    if (strcmp(key, "saturation") == 0)
        return word(value, key, a->saturation, sizeof a->saturation, e);
    if (strcmp(key, "linearity") == 0) {
        st = spx_parse_doubles(value, ',', key, "C1,C2...", SPX_RAW_NLINEAR, a->linear, &a->nlinear, e);
        return st == SPX_EUSAGE ? e->code = SPX_EINPUT : st;
    }
    if (strcmp(key, "corner") == 0) {
        for (int i = 0; i < 4; i++)
            if (strcmp(value, corners[i]) == 0) {
                a->has_corner = 1;
                a->top = i / 2;
                a->right = i % 2;
                return SPX_OK;
            }
        return spx_fail(e, SPX_EINPUT, "corner=%.40s should be ll, lr, ul or ur", value);
    }
    if (strcmp(key, "ccd") == 0) {
        a->has_ccd = 1;
        return spx_section_parse(value, &a->ccd, a->flip, e);
    }
    if (strcmp(key, "data") == 0) {
        a->has_data = 1;
        st = spx_section_parse(value, &a->data, plain, e);
    } else if (strcmp(key, "bias") == 0 && a->nbias == SPX_RAW_NBIAS) {
        return spx_fail(e, SPX_EINPUT, "more than %d sections bias=", SPX_RAW_NBIAS);
    } else if (strcmp(key, "bias") == 0) {
        st = spx_section_parse(value, &a->bias[a->nbias++], plain, e);
    } else {
        return spx_fail(e, SPX_EINPUT,
                        "'%.40s=' should be image=, data=, bias=, ccd=, gain=, readnoise=, saturation=, linearity= or "
                        "corner=",
                        key);
    }
    if (st == SPX_OK && (plain[0] || plain[1]))
        st = spx_fail(e, SPX_EINPUT, "%s=%.40s runs backwards: only ccd= may", key, value);
    return st;
}

static spx_status amplifier_line(spx_layout_file *f, char *rest, spx_err *e)
{
    char *save = NULL, *name = strtok_r(rest, " \t", &save);
    if (name == NULL)
        return spx_fail(e, SPX_EINPUT, "should be: amplifier NAME KEY=VALUE...");
    spx_layout_entry *all = spx_grow(f->amp, f->namp, 1, &f->capacity, sizeof *all, e);
    if (all == NULL)
        return SPX_EIO;
    f->amp = all;
    spx_layout_entry *a = &all[f->namp];
    memset(a, 0, sizeof *a);
    spx_status st = word(name, "amplifier", a->name, sizeof a->name, e);
    for (size_t i = 0; i < f->namp && st == SPX_OK; i++)
        if (strcmp(all[i].name, a->name) == 0)
            st = spx_fail(e, SPX_EINPUT, "amplifier %s is there twice", a->name);
    if (st == SPX_OK && f->namp == SPX_RAW_MOST_AMPLIFIERS)
        st = spx_fail(e, SPX_EINPUT, "more than %d amplifiers", SPX_RAW_MOST_AMPLIFIERS);
    for (char *one = strtok_r(NULL, " \t", &save); one != NULL && st == SPX_OK; one = strtok_r(NULL, " \t", &save)) {
        char *eq = strchr(one, '=');
        if (eq == NULL)
            return spx_fail(e, SPX_EINPUT, "'%.60s' should be KEY=VALUE", one);
        *eq = '\0';
        st = set_value(a, one, eq + 1, e);
    }
    f->namp += st == SPX_OK;
    return st;
}

static spx_status crosstalk_line(spx_layout_file *f, char *rest, spx_err *e)
{
    char *save = NULL, *part[4];
    for (int i = 0; i < 4; i++)
        part[i] = strtok_r(i == 0 ? rest : NULL, " \t", &save);
    if (part[2] == NULL || part[3] != NULL)
        return spx_fail(e, SPX_EINPUT, "should be: crosstalk VICTIM SOURCE FACTOR");
    spx_layout_crosstalk *all = spx_grow(f->cross, f->ncross, 1, &f->cross_capacity, sizeof *all, e);
    if (all == NULL)
        return SPX_EIO;
    f->cross = all;
    spx_layout_crosstalk *c = &all[f->ncross];
    spx_status st = word(part[0], "amplifier", c->victim, sizeof c->victim, e);
    if (st == SPX_OK)
        st = word(part[1], "amplifier", c->source, sizeof c->source, e);
    if (st == SPX_OK && spx_parse_double(part[2], "crosstalk", &c->factor, e) != SPX_OK)
        st = e->code = SPX_EINPUT;
    if (st == SPX_OK && (strcmp(c->victim, c->source) == 0 || !(c->factor > -0.5 && c->factor < 0.5)))
        st = spx_fail(e, SPX_EINPUT, "crosstalk is between two amplifiers, with a factor between -0.5 and 0.5");
    f->ncross += st == SPX_OK;
    return st;
}

spx_status spx_layout_file_read(const char *name, spx_layout_file *f, spx_err *e)
{
    spx_lines l;
    char *line, place[32];
    memset(f, 0, sizeof *f);
    f->name = name;
    spx_status st = spx_lines_open(&l, name, e);
    if (st != SPX_OK)
        return st;
    while (st == SPX_OK && (line = spx_lines_next(&l)) != NULL) {
        const char *first = line + strspn(line, " \t");
        const size_t n = strcspn(first, " \t");
        char *rest = line + (size_t)(first - line) + n;
        if (n == 9 && strncmp(first, "amplifier", n) == 0)
            st = amplifier_line(f, rest, e);
        else if (n == 9 && strncmp(first, "crosstalk", n) == 0)
            st = crosstalk_line(f, rest, e);
        else
            st = spx_fail(e, SPX_EINPUT, "'%.40s': a line begins with amplifier or crosstalk", first);
        if (st != SPX_OK) {
            (void)snprintf(place, sizeof place, "line %zu", l.number);
            (void)spx_err_at(e, name, place);
        }
    }
    st = spx_lines_close(&l, st, e);
    return st == SPX_OK && f->namp + f->ncross == 0 ? spx_fail_at(e, SPX_EINPUT, name, NULL, NULL, "names no amplifier")
                                                    : st;
}

/* ---- keywords ---- */

/* Names that one meaning has in headers. */
typedef const char *const names[4];
static names data_names = {"DATASEC", "DSEC"}, trim_names = {"TRIMSEC", "TSEC"}, bias_names = {"BIASSEC", "BSEC"},
             row_names = {"ORSEC"}, detector_names = {"DETSEC"}, ccd_names = {"CCDSEC", "CSEC"},
             gain_names = {"GAIN", "GTGAIN"}, noise_names = {"RDNOISE", "READNOIS", "GTRON"},
             full_names = {"SATURATE", "SATURAT"};

/* An amplifier that is being made. */
typedef struct {
    const spx_raw *raw;
    spx_amplifier *a;
    char suffix[8];
    int has_place, has_detector, has_ccd;
    spx_section place, detector, ccd, whole; /* where it belongs; whole: DATASEC before TRIMSEC */
    int flip_detector[2], flip_ccd[2], flip[2];
} draft;

static int header_text(const draft *d, const char *key, char *out, size_t size)
{
    return spx_cards_string(&d->raw->image[d->a->image].header, key, out, size) ||
           spx_cards_string(&d->raw->header, key, out, size);
}

static int header_number(const draft *d, const char *key, double *out)
{
    return spx_cards_double(&d->raw->image[d->a->image].header, key, out) ||
           spx_cards_double(&d->raw->header, key, out);
}

/* Section of the first of these keywords that is there. *found: one is. */
static spx_status find_section(const draft *d, names name, spx_section *s, int flip[2], int *found, spx_err *e)
{
    char key[24], text[80];
    *found = 0;
    for (int i = 0; i < 4 && name[i] != NULL && !*found; i++) {
        (void)snprintf(key, sizeof key, "%s%s", name[i], d->suffix);
        if (strlen(key) > 8 || !header_text(d, key, text, sizeof text) || text[0] == '\0')
            continue;
        *found = 1;
        if (spx_section_parse(text, s, flip, e) != SPX_OK)
            return spx_err_at(e, NULL, key);
    }
    return SPX_OK;
}

static int find_number(const draft *d, names name, double *v)
{
    char key[24];
    /* of one amplifier an image has no suffix, and of several a keyword may stand for all */
    for (int bare = 0; bare < 2; bare++)
        for (int i = 0; i < 4 && name[i] != NULL; i++) {
            (void)snprintf(key, sizeof key, "%s%s", name[i], bare ? "" : d->suffix);
            if (strlen(key) <= 8 && header_number(d, key, v))
                return 1;
        }
    return 0;
}

static spx_status backwards(const draft *d, const char *what, spx_err *e)
{
    return spx_fail(e, SPX_EINPUT, "%s%s runs backwards: only DETSEC and CCDSEC may", what, d->suffix);
}

/* Takes what keywords say of an amplifier. */
static spx_status from_keywords(draft *d, spx_err *e)
{
    spx_amplifier *a = d->a;
    spx_section trim;
    int flip[2] = {0, 0}, data, cut, found;
    spx_status st = find_section(d, data_names, &a->data, flip, &data, e);
    if (st == SPX_OK && data && (flip[0] || flip[1]))
        st = backwards(d, "DATASEC", e);
    if (st == SPX_OK)
        st = find_section(d, trim_names, &trim, flip, &cut, e);
    if (st == SPX_OK && cut && (flip[0] || flip[1]))
        st = backwards(d, "TRIMSEC", e);
    if (st != SPX_OK)
        return st;
    d->whole = data ? a->data : trim;
    if (data && cut) {
        a->data.x0 = trim.x0 > a->data.x0 ? trim.x0 : a->data.x0;
        a->data.x1 = trim.x1 < a->data.x1 ? trim.x1 : a->data.x1;
        a->data.y0 = trim.y0 > a->data.y0 ? trim.y0 : a->data.y0;
        a->data.y1 = trim.y1 < a->data.y1 ? trim.y1 : a->data.y1;
        if (width(&a->data) <= 0 || height(&a->data) <= 0)
            return spx_fail(e, SPX_EINPUT, "TRIMSEC%s leaves nothing of DATASEC%s", d->suffix, d->suffix);
    } else if (cut) {
        a->data = trim;
    }
    for (int rows = 0; rows < 2 && st == SPX_OK; rows++) {
        st = find_section(d, rows ? row_names : bias_names, &a->bias[a->nbias], flip, &found, e);
        a->nbias += st == SPX_OK && found;
    }
    if (st == SPX_OK)
        st = find_section(d, detector_names, &d->detector, d->flip_detector, &d->has_detector, e);
    return st == SPX_OK ? find_section(d, ccd_names, &d->ccd, d->flip_ccd, &d->has_ccd, e) : st;
}

/* ---- amplifiers of an exposure ---- */

typedef struct {
    const spx_raw *raw;
    spx_layout *out;
    draft *d;
} maker;

static spx_status add(maker *m, size_t image, const char *suffix, const char *name, spx_err *e)
{
    spx_layout *l = m->out;
    if (l->namp == SPX_RAW_MOST_AMPLIFIERS)
        return spx_fail(e, SPX_EINPUT, "more than %d amplifiers", SPX_RAW_MOST_AMPLIFIERS);
    const int n = (int)strlen(name);
    spx_amplifier *a = &l->amp[l->namp];
    draft *d = &m->d[l->namp++];
    *a = (spx_amplifier){.image = image};
    *d = (draft){.raw = m->raw, .a = a};
    (void)snprintf(a->name, sizeof a->name, "%.*s", n < SPX_RAW_NAME ? n : SPX_RAW_NAME - 1, name);
    (void)snprintf(d->suffix, sizeof d->suffix, "%s", suffix);
    return SPX_OK;
}

/* Amplifiers that the keywords `stem`SUFFIX of an image tell of. Where some have suffixes, the one without is that of
 * the whole image. */
static spx_status scan(maker *m, size_t image, const char *stem, spx_err *e)
{
    const spx_raw_image *im = &m->raw->image[image];
    const size_t first = m->out->namp, n = strlen(stem);
    int bare = 0;
    spx_status st = SPX_OK;
    for (int primary = 0; primary < 2 && st == SPX_OK; primary++) {
        const spx_cards *h = primary ? &m->raw->header : &im->header;
        if (primary && m->raw->n > 1)
            break;
        for (size_t i = 0; i < h->n && st == SPX_OK; i++) {
            const char *card = h->cards + 80 * i;
            char suffix[8] = "";
            size_t k = n;
            if (strncmp(card, stem, n) != 0 || card[8] != '=')
                continue;
            while (k < 8 && isalnum((unsigned char)card[k]))
                k++;
            if (k < 8 && card[k] != ' ')
                continue;
            memcpy(suffix, card + n, k - n);
            bare |= k == n;
            int known = k == n;
            for (size_t q = first; q < m->out->namp; q++)
                known |= strcmp(m->d[q].suffix, suffix) == 0;
            if (!known)
                st = add(m, image, suffix, suffix, e);
        }
    }
    if (st == SPX_OK && m->out->namp == first && bare) {
        char name[32];
        (void)snprintf(name, sizeof name, "%zu", image + 1);
        st = add(m, image, "", im->extname[0] != '\0' ? im->extname : name, e);
    }
    return st;
}

static spx_status from_headers(maker *m, spx_err *e)
{
    static const char *const stem[] = {"DATASEC", "DSEC", "TRIMSEC", "TSEC"};
    spx_status st = SPX_OK;
    for (size_t k = 0; k < m->raw->n && st == SPX_OK; k++) {
        const size_t before = m->out->namp;
        for (size_t i = 0; i < 4 && st == SPX_OK && m->out->namp == before; i++)
            st = scan(m, k, stem[i], e);
        for (size_t i = before; i < m->out->namp && st == SPX_OK; i++)
            st = from_keywords(&m->d[i], e);
    }
    return st;
}

/* Index of the image that a layout file names; raw->n: there is none. */
static size_t find_image(const spx_raw *raw, const char *name)
{
    char *end;
    if (name[0] == '\0')
        return raw->n == 1 ? 0 : raw->n;
    const unsigned long k = strtoul(name, &end, 10);
    if (*end == '\0' && isdigit((unsigned char)name[0]))
        return k < raw->n ? (size_t)k : raw->n;
    for (size_t i = 0; i < raw->n; i++)
        if (strcasecmp(raw->image[i].extname, name) == 0)
            return i;
    return raw->n;
}

/* A number, or the value of a keyword of that name. */
static spx_status number_or_keyword(const draft *d, const char *what, const char *text, double *v, spx_err *e)
{
    char *end;
    const double x = strtod(text, &end);
    if (*end == '\0' && end != text && x - x == 0) {
        *v = x;
        return SPX_OK;
    }
    return header_number(d, text, v)
               ? SPX_OK
               : spx_fail(e, SPX_EINPUT, "amplifier %s: %s=%s is neither a number nor a keyword of the header with one",
                          d->a->name, what, text);
}

static spx_status apply_entry(draft *d, const spx_layout_entry *f, spx_err *e)
{
    spx_amplifier *a = d->a;
    if (f->has_data)
        a->data = d->whole = f->data;
    if (f->nbias > 0) {
        a->nbias = f->nbias;
        memcpy(a->bias, f->bias, sizeof a->bias);
    }
    if (f->has_ccd) {
        d->has_place = 1;
        d->place = f->ccd;
        memcpy(d->flip, f->flip, sizeof d->flip);
    }
    a->nlinear = f->nlinear;
    memcpy(a->linear, f->linear, sizeof a->linear);
    spx_status st = SPX_OK;
    if (f->gain[0] != '\0')
        st = number_or_keyword(d, "gain", f->gain, &a->gain, e);
    if (st == SPX_OK && f->readnoise[0] != '\0')
        st = number_or_keyword(d, "readnoise", f->readnoise, &a->readnoise, e);
    if (st == SPX_OK && f->saturation[0] != '\0')
        st = number_or_keyword(d, "saturation", f->saturation, &a->saturation, e);
    return st;
}

static spx_status from_file(maker *m, const spx_layout_file *f, spx_err *e)
{
    spx_status st = SPX_OK;
    int defines = 0;
    for (size_t i = 0; i < f->namp; i++)
        defines |= f->amp[i].has_data;
    if (defines)
        m->out->namp = 0;
    for (size_t i = 0; i < f->namp && st == SPX_OK; i++) {
        const spx_layout_entry *x = &f->amp[i];
        size_t k = 0;
        while (k < m->out->namp && strcasecmp(m->out->amp[k].name, x->name) != 0)
            k++;
        if (k == m->out->namp) {
            const size_t image = find_image(m->raw, x->image);
            if (!x->has_data)
                return spx_fail(e, SPX_EINPUT, "amplifier %s: no keyword tells of it: give data=", x->name);
            if (image == m->raw->n)
                return spx_fail(e, SPX_EINPUT, "amplifier %s: image=%s: the exposure has %zu images, give one of them",
                                x->name, x->image, m->raw->n);
            st = add(m, image, "", x->name, e);
        }
        if (st == SPX_OK)
            st = apply_entry(&m->d[k], x, e);
    }
    return st == SPX_OK ? SPX_OK : spx_err_at(e, f->name, NULL);
}

/* Gain, read noise and saturation, where the file has not said them. */
static spx_status find_numbers(const draft *d, spx_err *e)
{
    spx_amplifier *a = d->a;
    if (a->gain == 0 && !find_number(d, gain_names, &a->gain))
        return spx_fail_remedy(e, SPX_EINPUT, "give {layout} a file with the line 'amplifier NAME gain=NUMBER'",
                               "amplifier %s: the header has no GAIN%s", a->name, d->suffix);
    if (!(a->gain > 1e-6 && a->gain < 1e6))
        return spx_fail(e, SPX_EINPUT, "amplifier %s: a gain of %g electron/adu is none", a->name, a->gain);
    if (a->readnoise == 0 && !(find_number(d, noise_names, &a->readnoise) && a->readnoise > 0 && a->readnoise < 1e6))
        a->readnoise = 0;
    if (!(a->readnoise >= 0 && a->readnoise < 1e6))
        return spx_fail(e, SPX_EINPUT, "amplifier %s: a read noise of %g electrons is none", a->name, a->readnoise);
    if (a->saturation == 0 && !(find_number(d, full_names, &a->saturation) && a->saturation > 0))
        a->saturation = 0;
    const double largest = d->raw->image[a->image].largest;
    if (largest > 0 && (a->saturation == 0 || a->saturation > largest))
        a->saturation = largest;
    return SPX_OK;
}

/* ---- place on the CCD ---- */

/* Number of CCD pixels to one of the image along x (axis 0) or y; 0: sizes do not fit. */
static long binning(const spx_section *data, const spx_section *place, int axis)
{
    const long n = axis ? height(data) : width(data), m = axis ? height(place) : width(place);
    const long b = m / n;
    return b >= 1 && b <= 64 && m / b == n ? b : 0;
}

/* Place of `data`, a part of the section `whole` whose place is `place`. */
static void cut_place(const draft *d, const spx_section *place, const int flip[2], const long b[2], spx_section *out)
{
    const spx_section *w = &d->whole, *s = &d->a->data;
    const long x = flip[0] ? w->x1 - s->x1 : s->x0 - w->x0, y = flip[1] ? w->y1 - s->y1 : s->y0 - w->y0;
    out->x0 = place->x0 / b[0] + x;
    out->x1 = out->x0 + width(s);
    out->y0 = place->y0 / b[1] + y;
    out->y1 = out->y0 + height(s);
}

/* Places of all amplifiers from sections of one kind, which all of them have. */
static spx_status place_by(maker *m, int kind, spx_err *e)
{
    static const char *const what[] = {"ccd=", "DETSEC", "CCDSEC"};
    long b[2] = {0, 0};
    for (size_t i = 0; i < m->out->namp; i++) {
        draft *d = &m->d[i];
        const spx_section *p = kind == 0 ? &d->place : kind == 1 ? &d->detector : &d->ccd;
        char place[SPX_SECTION_TEXT], data[SPX_SECTION_TEXT];
        spx_section_print(p, place);
        spx_section_print(&d->whole, data);
        /* a detector's section may be that of the pixels which TRIMSEC leaves */
        if (binning(&d->whole, p, 0) == 0 || binning(&d->whole, p, 1) == 0)
            d->whole = d->a->data;
        for (int axis = 0; axis < 2; axis++) {
            const long one = binning(&d->whole, p, axis);
            if (one == 0)
                return spx_fail(e, SPX_EINPUT, "amplifier %s: %s %s has another size than its pixels %s", d->a->name,
                                what[kind], place, data);
            if (b[axis] != 0 && b[axis] != one)
                return spx_fail(e, SPX_EINPUT, "amplifier %s: %s %s says another binning than that of amplifier %s",
                                d->a->name, what[kind], place, m->out->amp[0].name);
            b[axis] = one;
        }
    }
    for (size_t i = 0; i < m->out->namp; i++) {
        draft *d = &m->d[i];
        const spx_section *p = kind == 0 ? &d->place : kind == 1 ? &d->detector : &d->ccd;
        const int *flip = kind == 0 ? d->flip : kind == 1 ? d->flip_detector : d->flip_ccd;
        cut_place(d, p, flip, b, &d->a->ccd);
        d->a->flip_x = flip[0];
        d->a->flip_y = flip[1];
    }
    return SPX_OK;
}

/* Place of amplifier k along an axis: sum of the lengths of all different ranges before its own. */
static long joined(const spx_layout *l, size_t k, int y)
{
    long at = 0;
    for (size_t i = 0; i < l->namp; i++) {
        const long begin = y ? l->amp[i].data.y0 : l->amp[i].data.x0, end = y ? l->amp[i].data.y1 : l->amp[i].data.x1;
        int first = begin < (y ? l->amp[k].data.y0 : l->amp[k].data.x0);
        for (size_t q = 0; q < i; q++)
            first &= (y ? l->amp[q].data.y0 : l->amp[q].data.x0) != begin;
        at += first ? end - begin : 0;
    }
    return at;
}

static spx_status place_all(maker *m, spx_err *e)
{
    spx_layout *l = m->out;
    size_t have[3] = {0, 0, 0}, images = 0;
    for (size_t i = 0; i < l->namp; i++) {
        have[0] += (size_t)m->d[i].has_place;
        have[1] += (size_t)m->d[i].has_detector;
        have[2] += (size_t)m->d[i].has_ccd;
        images += l->amp[i].image != l->amp[0].image;
    }
    if (have[0] > 0 && have[0] < l->namp)
        return spx_fail(e, SPX_EINPUT, "%zu of %zu amplifiers have ccd=: give it for all or none", have[0], l->namp);
    for (int kind = 0; kind < 3; kind++)
        if (have[kind] == l->namp)
            return place_by(m, kind, e);
    if (images > 0)
        return spx_fail_remedy(e, SPX_EINPUT, "give {layout} a file with ccd= for each amplifier",
                               "no DETSEC or CCDSEC says where the %zu amplifiers belong", l->namp);
    for (size_t i = 0; i < l->namp; i++) {
        spx_amplifier *a = &l->amp[i];
        a->ccd.x0 = joined(l, i, 0);
        a->ccd.y0 = joined(l, i, 1);
        a->ccd.x1 = a->ccd.x0 + width(&a->data);
        a->ccd.y1 = a->ccd.y0 + height(&a->data);
    }
    return SPX_OK;
}

/* Moves all places to the corner (0,0), and finds the size of the image. */
static spx_status find_size(spx_layout *l, spx_err *e)
{
    spx_section box = l->amp[0].ccd;
    size_t pixels = 0;
    for (size_t i = 0; i < l->namp; i++) {
        const spx_section *c = &l->amp[i].ccd;
        box.x0 = c->x0 < box.x0 ? c->x0 : box.x0;
        box.x1 = c->x1 > box.x1 ? c->x1 : box.x1;
        box.y0 = c->y0 < box.y0 ? c->y0 : box.y0;
        box.y1 = c->y1 > box.y1 ? c->y1 : box.y1;
        pixels += (size_t)(width(c) * height(c));
    }
    for (size_t i = 0; i < l->namp; i++) {
        spx_section *c = &l->amp[i].ccd;
        c->x0 -= box.x0;
        c->x1 -= box.x0;
        c->y0 -= box.y0;
        c->y1 -= box.y0;
    }
    l->nx = (size_t)width(&box);
    l->ny = (size_t)height(&box);
    return l->nx * l->ny / 16 <= pixels
               ? SPX_OK
               : spx_fail(e, SPX_EINPUT, "the amplifiers cover %zu of %zu x %zu pixels: their places are far apart",
                          pixels, l->nx, l->ny);
}

/* ---- checks ---- */

static spx_status within(const spx_raw *raw, const spx_amplifier *a, const spx_section *s, const char *what, spx_err *e)
{
    const spx_raw_image *im = &raw->image[a->image];
    char text[SPX_SECTION_TEXT];
    spx_section_print(s, text);
    return s->x1 <= (long)im->nx && s->y1 <= (long)im->ny
               ? SPX_OK
               : spx_fail(e, SPX_EINPUT, "amplifier %s: its %s %s lie outside the image of %zu x %zu pixels", a->name,
                          what, text, im->nx, im->ny);
}

static spx_status both(const spx_amplifier *a, const spx_section *s, const char *what, const spx_amplifier *b,
                       const spx_section *t, const char *other, spx_err *e)
{
    char one[SPX_SECTION_TEXT], two[SPX_SECTION_TEXT];
    spx_section_print(s, one);
    spx_section_print(t, two);
    return spx_fail(e, SPX_EINPUT, "the %s %s of amplifier %s overlap with the %s %s of amplifier %s", what, one,
                    a->name, other, two, b->name);
}

static spx_status check_pair(const spx_amplifier *a, const spx_amplifier *b, spx_err *e)
{
    static const char pixels[] = "pixels", over[] = "overscan", place[] = "places";
    if (a != b && overlap(&a->ccd, &b->ccd))
        return both(a, &a->ccd, place, b, &b->ccd, place, e);
    if (a->image != b->image)
        return SPX_OK;
    if (a != b && overlap(&a->data, &b->data))
        return both(a, &a->data, pixels, b, &b->data, pixels, e);
    for (size_t i = 0; i < b->nbias; i++) {
        if (overlap(&a->data, &b->bias[i]))
            return both(a, &a->data, pixels, b, &b->bias[i], over, e);
        for (size_t k = 0; k < a->nbias && a != b; k++)
            if (overlap(&a->bias[k], &b->bias[i]))
                return both(a, &a->bias[k], over, b, &b->bias[i], over, e);
    }
    return SPX_OK;
}

static spx_status check_all(const spx_raw *raw, const spx_layout *l, int need_bias, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < l->namp && st == SPX_OK; i++) {
        const spx_amplifier *a = &l->amp[i];
        st = within(raw, a, &a->data, "pixels", e);
        for (size_t k = 0; k < a->nbias && st == SPX_OK; k++)
            st = within(raw, a, &a->bias[k], "overscan", e);
        if (st == SPX_OK && need_bias && a->nbias == 0)
            st = spx_fail_remedy(e, SPX_EINPUT, "give {layout} a file with bias= for each amplifier",
                                 "amplifier %s has no overscan: no BIASSEC", a->name);
        for (size_t k = 0; k < l->namp && st == SPX_OK; k++)
            st = check_pair(a, &l->amp[k], e);
    }
    return st;
}

/* Corner that an amplifier reads first: away from the overscan, which comes last; of rows at the near end of the CCD.
 */
static void find_corner(const spx_layout *l, spx_amplifier *a)
{
    const long x = a->data.x0 + a->data.x1, y = a->ccd.y0 + a->ccd.y1;
    a->right = a->nbias > 0 && a->bias[0].x0 + a->bias[0].x1 < x;
    a->top = height(&a->ccd) < (long)l->ny && y > (long)l->ny;
    if (a->flip_y) /* stored in the order of reading */
        a->top = 0;
}

static spx_status find_crosstalk(const spx_layout_file *f, spx_layout *l, spx_err *e)
{
    if (f == NULL || f->ncross == 0)
        return SPX_OK;
    if ((l->crosstalk = spx_alloc2(l->namp, l->namp, sizeof *l->crosstalk, e)) == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < f->ncross; i++) {
        size_t at[2];
        for (int k = 0; k < 2; k++) {
            const char *name = k ? f->cross[i].source : f->cross[i].victim;
            at[k] = 0;
            while (at[k] < l->namp && strcasecmp(l->amp[at[k]].name, name) != 0)
                at[k]++;
            if (at[k] == l->namp)
                return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "crosstalk: there is no amplifier %s", name);
        }
        l->crosstalk[at[0] * l->namp + at[1]] = f->cross[i].factor;
    }
    return SPX_OK;
}

static void find_corners(const spx_layout_file *f, spx_layout *l)
{
    for (size_t i = 0; i < l->namp; i++) {
        spx_amplifier *a = &l->amp[i];
        find_corner(l, a);
        for (size_t k = 0; f != NULL && k < f->namp; k++)
            if (f->amp[k].has_corner && strcasecmp(f->amp[k].name, a->name) == 0) {
                a->right = f->amp[k].right;
                a->top = f->amp[k].top;
            }
    }
}

spx_status spx_layout_make(const spx_raw *raw, const spx_layout_file *file, int need_bias, spx_layout *out, spx_err *e)
{
    maker m = {.raw = raw, .out = out};
    memset(out, 0, sizeof *out);
    out->amp = spx_alloc(SPX_RAW_MOST_AMPLIFIERS, sizeof *out->amp, e);
    m.d = spx_alloc(SPX_RAW_MOST_AMPLIFIERS, sizeof *m.d, e);
    spx_status st = out->amp == NULL || m.d == NULL ? SPX_EIO : from_headers(&m, e);
    if (st == SPX_OK && file != NULL)
        st = from_file(&m, file, e);
    if (st == SPX_OK && out->namp == 0)
        st = spx_fail_remedy(e, SPX_EINPUT, "describe them in a file for {layout}",
                             "no keyword (DATASEC, TRIMSEC) tells of amplifiers and overscan");
    for (size_t i = 0; i < out->namp && st == SPX_OK; i++)
        st = find_numbers(&m.d[i], e);
    if (st == SPX_OK)
        st = place_all(&m, e);
    if (st == SPX_OK)
        st = find_size(out, e);
    if (st == SPX_OK)
        st = check_all(raw, out, need_bias, e);
    if (st == SPX_OK)
        find_corners(file, out);
    if (st == SPX_OK)
        st = find_crosstalk(file, out, e);
    spx_free(m.d);
    return st;
}
