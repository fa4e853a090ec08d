/* Where the spectra of a FITS file are. Each way in which files are laid out has a finder; the first that finds
 * something is right. */
#include "convert/spectrum/spectrum.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/parse.h"
#include "fits/values.h"

enum { LEAST = 16 /* pixels of a spectrum */, MOST_ROWS = 6 /* of an image whose rows are flux, error, mask */ };

/* ---- what is known of surveys and instruments ---- */

/* Bits of SDSS's SPPIXMASK that count in files whose only mask is that of any exposure: FULLREJECT, NODATA. */
#define SDSS_OLD_BAD (1u << 18 | 1u << 24)
/* APOGEE_PIXMASK: BADPIX, CRPIX, SATPIX, UNFIXABLE, BADDARK, BADFLAT, BADERR, NOSKY, SIG_SKYLINE, NOT_ENOUGH_PSF. */
#define APOGEE_BAD (0xffu | 1u << 12 | 1u << 14)

typedef struct {
    const char *name, *key, *value; /* keyword whose text contains the value, both as they are */
    const char *arm;
    uint32_t bad;
    int medium, barycentric; /* where the header does not say; -1: not known */
} family;

static const family families[] = {
    {"LAMOST", "TELESCOP", "LAMOST", "lamost", UINT32_MAX, SPX_VACUUM, 1},
    {"LAMOST", "ORIGIN", "LAMOST", "lamost", UINT32_MAX, SPX_VACUUM, 1},
    {"APOGEE", "SURVEY", "apogee", "apogee", APOGEE_BAD, SPX_VACUUM, 1},
    {"APOGEE", "TELESCOP", "apo25m", "apogee", APOGEE_BAD, SPX_VACUUM, 1},
    {"APOGEE", "TELESCOP", "lco25m", "apogee", APOGEE_BAD, SPX_VACUUM, 1},
    {"SDSS", "TELESCOP", "SDSS", "sdss", SPX_SDSS_BAD, SPX_VACUUM, 1},
    {"GALAH", "ORIGIN", "GALAH", "galah", UINT32_MAX, SPX_AIR, -1},
    {"GALAH", "INSTRUME", "HERMES-2dF", "galah", UINT32_MAX, SPX_AIR, -1},
};

static const family sdss = {"SDSS", NULL, NULL, "sdss", SPX_SDSS_BAD, SPX_VACUUM, 1};

/* The file's survey; NULL: none that is known. */
static const family *family_of(const spx_fits *f)
{
    char text[72];
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        for (size_t h = 0; h < f->nhdu && h < 2; h++)
            if (spx_cards_string(&f->hdu[h].header, families[i].key, text, sizeof text) &&
                strstr(text, families[i].value))
                return &families[i];
    return NULL;
}

/* ---- names of columns and HDUs ---- */

typedef enum { WAVE, FLUX, IVAR, SIGMA, VARIANCE, MASK, ROLES } role;

/* Letters and digits of names that say what they hold, first come first; log10, air and vacuum wavelengths. */
static const struct {
    role role;
    const char *name;
    int log10, medium;
} names[] = {{WAVE, "wave", 0, -1},
             {WAVE, "wavelength", 0, -1},
             {WAVE, "wavelengths", 0, -1},
             {WAVE, "lambda", 0, -1},
             {WAVE, "lam", 0, -1},
             {WAVE, "loglam", 1, -1},
             {WAVE, "loglambda", 1, -1},
             {WAVE, "logwave", 1, -1},
             {WAVE, "wavevac", 0, SPX_VACUUM},
             {WAVE, "wavelengthvac", 0, SPX_VACUUM},
             {WAVE, "wavedatavacbary", 0, SPX_VACUUM},
             {WAVE, "waveair", 0, SPX_AIR},
             {WAVE, "wavelengthair", 0, SPX_AIR},
             {WAVE, "wavedataairbary", 0, SPX_AIR},
             {WAVE, "awav", 0, SPX_AIR},
             {WAVE, "sciwave", 0, -1},
             {WAVE, "sciwavl", 0, -1},
             {WAVE, "wl", 0, -1},
             {WAVE, "wav", 0, -1},
             {WAVE, "waveobs", 0, -1},
             {WAVE, "obswave", 0, -1},
             {FLUX, "flux", 0, -1},
             {FLUX, "fluxes", 0, -1},
             {FLUX, "fluxreduced", 0, -1},
             {FLUX, "fluxcal", 0, -1},
             {FLUX, "spectrum", 0, -1},
             {FLUX, "spec", 0, -1},
             {FLUX, "scidata", 0, -1},
             {FLUX, "sciflux", 0, -1},
             {FLUX, "flam", 0, -1},
             {FLUX, "fluxdensity", 0, -1},
             {FLUX, "counts", 0, -1},
             {FLUX, "intensity", 0, -1},
             {FLUX, "data", 0, -1},
             {IVAR, "ivar", 0, -1},
             {IVAR, "invvar", 0, -1},
             {IVAR, "fluxivar", 0, -1},
             {SIGMA, "err", 0, -1},
             {SIGMA, "error", 0, -1},
             {SIGMA, "errors", 0, -1},
             {SIGMA, "errs", 0, -1},
             {SIGMA, "errreduced", 0, -1},
             {SIGMA, "fluxerr", 0, -1},
             {SIGMA, "fluxerror", 0, -1},
             {SIGMA, "errdata", 0, -1},
             {SIGMA, "scierr", 0, -1},
             {SIGMA, "errflux", 0, -1},
             {SIGMA, "eflux", 0, -1},
             {SIGMA, "fluxsigma", 0, -1},
             {SIGMA, "fluxunc", 0, -1},
             {SIGMA, "sigma", 0, -1},
             {SIGMA, "sig", 0, -1},
             {SIGMA, "unc", 0, -1},
             {SIGMA, "uncert", 0, -1},
             {SIGMA, "uncertainty", 0, -1},
             {SIGMA, "noise", 0, -1},
             {SIGMA, "stdev", 0, -1},
             {VARIANCE, "var", 0, -1},
             {VARIANCE, "variance", 0, -1},
             {VARIANCE, "fluxvar", 0, -1},
             {VARIANCE, "stat", 0, -1},
             {VARIANCE, "scivar", 0, -1},
             {VARIANCE, "scivariance", 0, -1},
             {MASK, "andmask", 0, -1},
             {MASK, "mask", 0, -1},
             {MASK, "pixmask", 0, -1},
             {MASK, "qual", 0, -1},
             {MASK, "quality", 0, -1},
             {MASK, "qualdata", 0, -1},
             {MASK, "dq", 0, -1},
             {MASK, "flags", 0, -1},
             {MASK, "ormask", 0, -1}};

enum { NNAMES = sizeof names / sizeof *names };

/* Entry of names[] that this is, or -1. */
static int name_of(const char *text)
{
    char plain[24];
    size_t n = 0;
    for (const char *c = text; *c; c++)
        if (isalnum((unsigned char)*c)) {
            if (n + 1 == sizeof plain)
                return -1;
            plain[n++] = (char)tolower((unsigned char)*c);
        }
    plain[n] = 0;
    for (int i = 0; i < NNAMES; i++)
        if (strcmp(plain, names[i].name) == 0)
            return i;
    return -1;
}

/* What holds each role: columns of a table, or HDUs. name[] are entries of names[]. */
typedef struct {
    int at[ROLES], name[ROLES];
} cast;

static const cast nobody = {{-1, -1, -1, -1, -1, -1}, {NNAMES, NNAMES, NNAMES, NNAMES, NNAMES, NNAMES}};

static void audition(cast *c, int at, const char *text)
{
    int i = name_of(text);
    if (i < 0 || i >= c->name[names[i].role])
        return;
    c->at[names[i].role] = at;
    c->name[names[i].role] = i;
}

static const struct {
    role role;
    spx_fits_noise kind;
} noises[] = {{IVAR, SPX_NOISE_IVAR}, {SIGMA, SPX_NOISE_SIGMA}, {VARIANCE, SPX_NOISE_VARIANCE}};

/* ---- the list ---- */

static const spx_fits_values nowhere = {-1, -1, 0};

static spx_fits_values image_row(int hdu, size_t row)
{
    return hdu < 0 ? nowhere : (spx_fits_values){hdu, -1, row};
}

/* A name of an arm from any text: letters and digits in lower case, none at the end of what a number may follow. */
static void arm_name(char arm[16], const char *text, const char *otherwise)
{
    size_t n = 0;
    for (const char *c = text; *c && n < 10; c++)
        if (isalnum((unsigned char)*c))
            arm[n++] = (char)tolower((unsigned char)*c);
    while (n > 1 && isdigit((unsigned char)arm[n - 1]))
        n--;
    arm[n] = 0;
    if (n == 0 || isdigit((unsigned char)arm[0]))
        snprintf(arm, 16, "%s", otherwise);
}

/* What an arm of this file is called where nothing else says: by its survey or instrument. */
static void default_arm(const spx_fits *f, const family *fam, char arm[16])
{
    char text[72] = "";
    for (size_t h = 0; h < f->nhdu && h < 2 && !text[0]; h++)
        (void)spx_cards_string(&f->hdu[h].header, "INSTRUME", text, sizeof text);
    if (fam)
        snprintf(arm, 16, "%s", fam->arm);
    else
        arm_name(arm, text, "spectrum");
}

/* Medium and frame: a header's keywords, else the survey. */
static void axis_of(const spx_fits *f, int hdu, const family *fam, spx_fits_spectrum *s)
{
    char text[72];
    int vacuum;
    const int at[] = {hdu, 0};
    for (size_t i = 0; i < 2; i++) {
        const spx_cards *h = &f->hdu[at[i]].header;
        if (s->medium < 0 && spx_cards_string(h, "AIRORVAC", text, sizeof text))
            s->medium = strncasecmp(text, "air", 3) == 0 ? SPX_AIR : SPX_VACUUM;
        if (s->medium < 0 && spx_cards_bool(h, "VACUUM", &vacuum))
            s->medium = vacuum ? SPX_VACUUM : SPX_AIR;
        if (s->medium < 0 && spx_cards_string(h, "CTYPE1", text, sizeof text)) {
            if (strncmp(text, "AWAV", 4) == 0)
                s->medium = SPX_AIR;
            else if (strcmp(text, "WAVE") == 0 || strncmp(text, "WAVE-", 5) == 0)
                s->medium = SPX_VACUUM;
        }
        if (s->barycentric < 0 && spx_cards_string(h, "SPECSYS", text, sizeof text))
            s->barycentric = strncasecmp(text, "TOPO", 4) != 0;
    }
    if (s->medium < 0 && fam)
        s->medium = fam->medium;
    if (s->barycentric < 0 && fam)
        s->barycentric = fam->barycentric;
}

/* One more spectrum; NULL: no memory. */
static spx_fits_spectrum *add(spx_fits_spectra *l, spx_err *e)
{
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 8;
        spx_fits_spectrum *more = spx_alloc(room, sizeof *more, e);
        if (!more)
            return NULL;
        if (l->n)
            memcpy(more, l->s, l->n * sizeof *more);
        spx_free(l->s);
        l->s = more;
        l->room = room;
    }
    spx_fits_spectrum *s = &l->s[l->n++];
    *s = (spx_fits_spectrum){
        .flux = nowhere, .noise = nowhere, .mask = nowhere, .wave = nowhere, .medium = -1, .barycentric = -1};
    return s;
}

/* None of them, after all. */
static void forget(spx_fits_spectra *l)
{
    for (size_t i = 0; i < l->n; i++)
        for (int k = 0; k < 3; k++)
            spx_free(l->s[i].given[k]);
    l->n = 0;
}

void spx_fits_spectra_free(spx_fits_spectra *l)
{
    forget(l);
    spx_free(l->s);
    *l = (spx_fits_spectra){0};
}

/* ---- wavelength scales of headers ---- */

static double unit_of(const char *text)
{
    static const struct {
        const char *name;
        double angstrom;
    } units[] = {{"ang", 1}, {"nm", 10}, {"nanom", 10}, {"um", 1e4}, {"mic", 1e4}, {"m", 1e10}};
    while (isspace((unsigned char)*text))
        text++;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strncasecmp(text, units[i].name, strlen(units[i].name)) == 0 && (units[i].angstrom < 1e10 || !text[1]))
            return units[i].angstrom;
    return 0;
}

/* A scale of CRVAL1, CDELT1 (or CD1_1), CRPIX1: linear, WAVE-LOG, or logarithms as IRAF and SDSS keep them. 0: none. */
static int header_scale(const spx_cards *h, spx_fits_spectrum *s)
{
    double value, step, pixel = 1;
    long flag = 0;
    char type[72] = "", unit[72] = "";
    if (!spx_cards_double(h, "CRVAL1", &value) ||
        (!spx_cards_double(h, "CD1_1", &step) && !spx_cards_double(h, "CDELT1", &step)) || !isfinite(value) ||
        !isfinite(step) || step == 0 || !(value > 0))
        return 0;
    (void)spx_cards_double(h, "CRPIX1", &pixel);
    (void)spx_cards_int(h, "DC-FLAG", &flag);
    (void)spx_cards_string(h, "CTYPE1", type, sizeof type);
    (void)spx_cards_string(h, "CUNIT1", unit, sizeof unit);
    if (strncmp(type, "RA--", 4) == 0 || strncmp(type, "DEC-", 4) == 0 || strncmp(type, "FREQ", 4) == 0 ||
        strncmp(type, "VELO", 4) == 0 || strncmp(type, "VRAD", 4) == 0 || strncmp(type, "ENER", 4) == 0)
        return 0;
    s->unit = unit_of(unit);
    if (strncmp(type + (strlen(type) > 4 ? 4 : 0), "-LOG", 4) == 0) { /* value exp(step (i - pixel) / value) */
        s->scale = SPX_WAVE_LN;
        s->start = log(value) + (1 - pixel) * step / value;
        s->step = step / value;
        return 1;
    }
    s->scale = flag == 1 && value < 6 ? SPX_WAVE_LOG10 : SPX_WAVE_LINEAR;
    if (flag == 0 && value < 11 && fabs(step) < 0.01) /* no wavelength, but for one in micron with such steps */
        s->scale = value < 3 || s->unit > 1 ? SPX_WAVE_LINEAR : value < 6 ? SPX_WAVE_LOG10 : SPX_WAVE_LN;
    s->start = value + (1 - pixel) * step;
    s->step = step;
    return 1;
}

/* COEFF0 and COEFF1 of SDSS and LAMOST: log10 of the first wavelength, and its step. */
static int coefficient_scale(const spx_cards *h, spx_fits_spectrum *s)
{
    if (!spx_cards_double(h, "COEFF0", &s->start) || !spx_cards_double(h, "COEFF1", &s->step) || !(s->start > 2) ||
        !(s->start < 6) || !(s->step > 0) || !(s->step < 0.1))
        return 0;
    s->scale = SPX_WAVE_LOG10;
    s->unit = 1;
    return 1;
}

/* ---- rows of one image: SDSS-I (spSpec), LAMOST ---- */

static int is_float(const spx_fits_hdu *h, int ndim)
{
    return spx_fits_is_image(h, ndim) && h->bitpix < 0;
}

static spx_status find_image_rows(spx_fits *f, const family *fam, const spx_fits_spectrum_options *o,
                                  spx_fits_spectra *out, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[0];
    (void)o;
    if (!fam || !is_float(h, 2) || h->dims[0] < 3 || h->dims[0] > MOST_ROWS || h->dims[1] < LEAST ||
        (strcmp(fam->arm, "lamost") != 0 && strcmp(fam->arm, "sdss") != 0))
        return SPX_OK;
    const int lamost = strcmp(fam->arm, "lamost") == 0;
    const size_t n = h->dims[1];
    spx_fits_spectrum *s = add(out, e);
    if (!s)
        return SPX_EIO;
    snprintf(s->arm, sizeof s->arm, "%s", fam->arm);
    s->n = n;
    s->flux = image_row(0, 0);
    s->noise = image_row(0, lamost ? 1 : 2);
    s->kind = lamost ? SPX_NOISE_IVAR : SPX_NOISE_SIGMA;
    s->mask = h->dims[0] > 3 ? image_row(0, 3) : nowhere;
    s->bad = lamost ? fam->bad : SDSS_OLD_BAD;
    /* LAMOST's third row is the wavelength; it was the flux without continuum in the pilot survey */
    double *v = NULL;
    spx_status st = lamost ? spx_fits_f64(f, 0, &v, e) : SPX_OK;
    int wave = v != NULL;
    for (size_t i = 1; wave && i < n; i++)
        wave = v[2 * n + i] > v[2 * n + i - 1];
    if (wave && v[2 * n] > 1000) {
        s->wave = image_row(0, 2);
        s->unit = 1;
    } else if (st == SPX_OK && !coefficient_scale(&h->header, s) && !header_scale(&h->header, s)) {
        out->n = 0;
    }
    spx_free(v);
    axis_of(f, 0, fam, s);
    out->format = fam->name;
    return st;
}

/* ---- tables ---- */

/* Wavelength column c of a table: unit, medium, logarithm. */
static void table_scale(const spx_fits_hdu *h, int c, int name, spx_fits_spectrum *s)
{
    char key[16], text[72] = "";
    s->scale = names[name].log10 ? SPX_WAVE_LOG10 : SPX_WAVE_LINEAR;
    s->medium = names[name].medium;
    s->unit = unit_of(h->col[c].unit);
    snprintf(key, sizeof key, "TUCD%d", c + 1); /* IVOA: observed in air or not */
    if (s->medium < 0 && spx_cards_string(&h->header, key, text, sizeof text) && strstr(text, "em.wl"))
        s->medium = strstr(text, "obs.atmos") ? SPX_AIR : SPX_VACUUM;
    if (s->scale == SPX_WAVE_LINEAR && (strncasecmp(h->col[c].unit, "log", 3) == 0))
        s->scale = SPX_WAVE_LOG10;
    if (s->scale == SPX_WAVE_LOG10)
        s->unit = 1;
}

static size_t elements(const spx_fits_column *c)
{
    size_t n = 1;
    for (int i = 0; i < c->ndim; i++)
        n *= c->dims[i];
    return n;
}

static int is_numeric(const spx_fits_column *c)
{
    return c->element == 0 && strchr("BIJKED", c->code) != NULL;
}

static void cast_table(const spx_fits_hdu *h, cast *c)
{
    *c = nobody;
    for (size_t i = 0; i < h->ncol; i++)
        if (is_numeric(&h->col[i]))
            audition(c, (int)i, h->col[i].name);
    /* flux and error after the instrument's response was taken out go together */
    for (size_t i = 0; i < h->ncol; i++)
        if (c->at[FLUX] >= 0 && strcmp(names[c->name[FLUX]].name, "fluxreduced") == 0 && is_numeric(&h->col[i]) &&
            strcasecmp(h->col[i].name, "ERR_REDUCED") == 0)
            c->at[SIGMA] = (int)i;
}

/* Do all rows hold the wavelengths of row 0? *same. */
static spx_status same_wavelengths(spx_fits *f, const spx_fits_values *wave, size_t n, int *same, spx_err *e)
{
    double *v = NULL;
    const spx_fits_hdu *h = &f->hdu[wave->hdu];
    const size_t nrow = wave->column < 0 ? h->nelem / n : h->nrow;
    size_t m = n;
    spx_status st = wave->column < 0 ? spx_fits_f64(f, (size_t)wave->hdu, &v, e)
                                     : spx_fits_column_f64(f, (size_t)wave->hdu, h->col[wave->column].name, &m, &v, e);
    *same = st == SPX_OK && m == n;
    for (size_t r = 1; *same && r < nrow; r++) /* the first orders of an echelle spectrograph may be blank */
        *same = memcmp(v, v + r * n, n * sizeof *v) == 0;
    spx_free(v);
    return st;
}

/* Orders of an echelle spectrograph are arms, those which --orders takes; other rows are spectra of their own. */
static spx_status orders_of(const spx_fits_spectrum_options *o, size_t n, size_t *first, size_t *count, spx_err *e)
{
    *first = 0;
    *count = n;
    return o->orders ? spx_parse_slice(o->orders, "--orders", n, first, count, e) : SPX_OK;
}

/* Spectra of table i, which are called `arm`. */
static spx_status add_table(spx_fits *f, int i, const cast *c, const family *fam, const char *arm, int exposure,
                            const spx_fits_spectrum_options *o, spx_fits_spectra *out, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[i];
    const size_t m = elements(&h->col[c->at[FLUX]]), nrow = m == 1 ? 1 : h->nrow, n = m == 1 ? h->nrow : m;
    size_t first = 0, count = nrow;
    int same = 0;
    if (nrow > 1) {
        const spx_fits_values wave = {i, c->at[WAVE], 0};
        spx_status st = same_wavelengths(f, &wave, n, &same, e);
        if (st == SPX_OK && !same)
            st = orders_of(o, nrow, &first, &count, e);
        if (st != SPX_OK)
            return st;
    }
    for (size_t r = first; r < first + count; r++) {
        spx_fits_spectrum *s = add(out, e);
        if (!s)
            return SPX_EIO;
        const size_t row = m == 1 ? SPX_FITS_ROWS : r;
        snprintf(s->arm, sizeof s->arm, "%s", arm);
        s->n = n;
        s->exposure = exposure;
        s->row = same ? r : 0;
        s->flux = (spx_fits_values){i, c->at[FLUX], row};
        s->wave = (spx_fits_values){i, c->at[WAVE], row};
        for (size_t k = sizeof noises / sizeof *noises; k-- > 0;)
            if (c->at[noises[k].role] >= 0 && elements(&h->col[c->at[noises[k].role]]) == m) {
                s->noise = (spx_fits_values){i, c->at[noises[k].role], row};
                s->kind = noises[k].kind;
            }
        if (c->at[MASK] >= 0 && elements(&h->col[c->at[MASK]]) == m)
            s->mask = (spx_fits_values){i, c->at[MASK], row};
        s->bad = fam ? fam->bad : UINT32_MAX;
        table_scale(h, c->at[WAVE], c->name[WAVE], s);
        axis_of(f, i, fam, s);
    }
    return SPX_OK;
}

static int is_spectrum_table(const spx_fits_hdu *h, cast *c)
{
    if (h->kind != SPX_FITS_BINTABLE || h->nrow == 0)
        return 0;
    cast_table(h, c);
    if (c->at[WAVE] < 0 || c->at[FLUX] < 0)
        return 0;
    size_t m = elements(&h->col[c->at[FLUX]]);
    return m == elements(&h->col[c->at[WAVE]]) && m > 0 && (m == 1 ? h->nrow : m) >= LEAST;
}

/* The letter of the camera that an HDU is called by (B1-00123456); x where it begins with none. */
static char camera_letter(const char *extname)
{
    const int c = (unsigned char)extname[0];
    return isalpha(c) ? (char)tolower(c) : 'x';
}

static spx_status find_tables(spx_fits *f, const family *fam, const spx_fits_spectrum_options *o, spx_fits_spectra *out,
                              spx_err *e)
{
    size_t ntable = 0, k = 0;
    cast c;
    int loglam = 0;
    for (size_t i = 0; i < f->nhdu; i++)
        if (is_spectrum_table(&f->hdu[i], &c)) {
            if (ntable++ == 0)
                loglam = spx_fits_find_column(&f->hdu[i], "loglam") && spx_fits_find_column(&f->hdu[i], "ivar");
        }
    if (ntable == 0)
        return SPX_OK;
    if (!fam && loglam)
        fam = &sdss;
    out->format = fam ? fam->name : "table";
    const int is_sdss = fam && strcmp(fam->arm, "sdss") == 0, lamost = fam && strcmp(fam->arm, "lamost") == 0;
    for (size_t i = 0; i < f->nhdu; i++) {
        if (!is_spectrum_table(&f->hdu[i], &c))
            continue;
        char arm[16];
        const char *name = f->hdu[i].extname;
        int exposure = 0;
        default_arm(f, fam, arm);
        if (is_sdss && k > 0) { /* the first is the sum */
            exposure = 1;
            snprintf(arm, sizeof arm, "%c", camera_letter(name));
        } else if (lamost && strncasecmp(name, "COADD_", 6) == 0 && isalpha((unsigned char)name[6])) {
            snprintf(arm, sizeof arm, "%c", camera_letter(name + 6));
        } else if (lamost && isalpha((unsigned char)name[0]) && name[1] == '-') {
            exposure = 1;
            snprintf(arm, sizeof arm, "%c", camera_letter(name));
        } else if (!fam && ntable > 1) {
            char other[16];
            memcpy(other, arm, sizeof other);
            arm_name(arm, name, other);
        }
        k++;
        spx_status st = add_table(f, (int)i, &c, fam, arm, exposure, o, out, e);
        if (st != SPX_OK)
            return st;
    }
    return SPX_OK;
}

/* ---- HDUs side by side ---- */

/* Noise and mask of the same shape as HDU `flux`, into spectra which are its rows. */
static void beside(const spx_fits *f, const cast *c, int flux, size_t row, spx_fits_spectrum *s)
{
    const spx_fits_hdu *h = &f->hdu[flux];
    for (size_t k = sizeof noises / sizeof *noises; k-- > 0;) {
        int i = c->at[noises[k].role];
        if (i >= 0 && f->hdu[i].nelem == h->nelem) {
            s->noise = image_row(i, row);
            s->kind = noises[k].kind;
        }
    }
    if (c->at[MASK] >= 0 && f->hdu[c->at[MASK]].nelem == h->nelem)
        s->mask = image_row(c->at[MASK], row);
}

static int is_array(const spx_fits_hdu *h)
{
    return (spx_fits_is_image(h, 1) || spx_fits_is_image(h, 2)) && h->dims[h->ndim - 1] >= LEAST;
}

static void cast_images(const spx_fits *f, cast *c)
{
    *c = nobody;
    for (size_t i = 0; i < f->nhdu; i++)
        if (is_array(&f->hdu[i]))
            audition(c, (int)i, f->hdu[i].extname);
    if (c->at[FLUX] < 0 && is_array(&f->hdu[0]) && !f->hdu[0].extname[0])
        c->at[FLUX] = 0; /* the primary array needs no name */
}

static spx_status find_images(spx_fits *f, const family *fam, const spx_fits_spectrum_options *o, spx_fits_spectra *out,
                              spx_err *e)
{
    cast c;
    char arm[16];
    cast_images(f, &c);
    if (c.at[FLUX] < 0 || c.at[WAVE] < 0)
        return SPX_OK;
    const spx_fits_hdu *h = &f->hdu[c.at[FLUX]], *w = &f->hdu[c.at[WAVE]];
    const size_t n = h->dims[h->ndim - 1], nrow = h->ndim == 2 ? h->dims[0] : 1;
    const int own = w->nelem == h->nelem; /* every row has wavelengths of its own */
    size_t first = 0, count = nrow;
    int same = !own;
    if ((!own && w->nelem != n) || w->dims[w->ndim - 1] != n || nrow == 0)
        return SPX_OK;
    const spx_fits_values wave = image_row(c.at[WAVE], 0);
    spx_status st = own && nrow > 1 ? same_wavelengths(f, &wave, n, &same, e) : SPX_OK;
    if (st == SPX_OK && !same)
        st = orders_of(o, nrow, &first, &count, e);
    out->format = nrow > 1 && !same ? "orders" : "HDUs";
    default_arm(f, fam, arm);
    for (size_t r = first; r < first + count && st == SPX_OK; r++) {
        char unit[72] = "";
        spx_fits_spectrum *s = add(out, e);
        if (!s)
            return SPX_EIO;
        snprintf(s->arm, sizeof s->arm, "%s", arm);
        s->n = n;
        s->row = same && nrow > 1 ? r : 0;
        s->flux = image_row(c.at[FLUX], r);
        s->wave = image_row(c.at[WAVE], own ? r : 0);
        beside(f, &c, c.at[FLUX], r, s);
        s->bad = fam ? fam->bad : UINT32_MAX;
        s->medium = c.name[WAVE] < NNAMES ? names[c.name[WAVE]].medium : -1;
        s->scale = c.name[WAVE] < NNAMES && names[c.name[WAVE]].log10 ? SPX_WAVE_LOG10 : SPX_WAVE_LINEAR;
        (void)spx_cards_string(&w->header, "BUNIT", unit, sizeof unit);
        s->unit = s->scale == SPX_WAVE_LOG10 ? 1 : unit_of(unit);
        axis_of(f, c.at[WAVE], fam, s);
        if (c.name[WAVE] < NNAMES && strstr(names[c.name[WAVE]].name, "bary"))
            s->barycentric = 1;
    }
    return st;
}

/* ---- APOGEE: unnamed HDUs 1 flux, 2 error, 3 mask, 4 wavelengths or none ---- */

static spx_status find_apogee(spx_fits *f, const family *fam, const spx_fits_spectrum_options *o, spx_fits_spectra *out,
                              spx_err *e)
{
    char unit[72] = "";
    if (f->nhdu < 3 || f->hdu[0].nelem > 0 || f->hdu[0].kind != SPX_FITS_IMAGE || !is_array(&f->hdu[1]) ||
        !is_array(&f->hdu[2]) || f->hdu[1].bitpix > 0 || f->hdu[2].nelem != f->hdu[1].nelem)
        return SPX_OK;
    const spx_fits_hdu *h = &f->hdu[1];
    const size_t n = h->dims[h->ndim - 1], nrow = h->ndim == 2 ? h->dims[0] : 1;
    const int wave = f->nhdu > 4 && is_array(&f->hdu[4]) && f->hdu[4].nelem == h->nelem &&
                     spx_cards_string(&f->hdu[4].header, "BUNIT", unit, sizeof unit) &&
                     strncasecmp(unit, "wave", 4) == 0;
    const int is_apogee = fam && strcmp(fam->arm, "apogee") == 0;
    spx_fits_spectrum scale = {0};
    if (nrow == 0 || (!is_apogee && n != 8575) || (!wave && !header_scale(&h->header, &scale)))
        return SPX_OK;
    if (!is_apogee)
        for (size_t i = 0; i < sizeof families / sizeof *families; i++)
            if (strcmp(families[i].arm, "apogee") == 0)
                fam = &families[i];
    /* of sums and visits the first row is the sum; of three detectors each is an arm */
    const int visits = !wave && o->exposures && nrow > 2;
    const size_t first = visits ? 2 : 0, end = wave || visits ? nrow : 1;
    out->format = fam->name;
    for (size_t r = first; r < end; r++) {
        spx_fits_spectrum *s = add(out, e);
        if (!s)
            return SPX_EIO;
        snprintf(s->arm, sizeof s->arm, "%s", fam->arm);
        s->n = n;
        s->row = visits ? r - first : 0;
        s->exposure = visits;
        s->flux = image_row(1, r);
        s->noise = image_row(2, r);
        s->kind = SPX_NOISE_SIGMA;
        if (f->nhdu > 3 && is_array(&f->hdu[3]) && f->hdu[3].nelem == h->nelem && f->hdu[3].bitpix > 0)
            s->mask = image_row(3, r);
        s->bad = APOGEE_BAD;
        s->unit = 1;
        s->scale = scale.scale;
        s->start = scale.start;
        s->step = scale.step;
        if (wave) {
            s->wave = image_row(4, r);
            s->scale = SPX_WAVE_LINEAR;
        }
        axis_of(f, 1, fam, s);
    }
    return SPX_OK;
}

/* ---- a wavelength scale in the header ---- */

/* Wavelengths of orders as ESO's pipeline of HARPS keeps them: polynomials of the pixel from 0. */
static int drs_orders(const spx_cards *h, const char *who, size_t order, size_t n, double *w)
{
    char key[64];
    double degree = -1, c[16];
    snprintf(key, sizeof key, "%s DRS CAL TH DEG LL", who);
    if (!spx_cards_double(h, key, &degree) || !(degree >= 1) || !(degree < 16))
        return 0;
    const size_t m = (size_t)degree + 1;
    for (size_t k = 0; k < m; k++) {
        snprintf(key, sizeof key, "%s DRS CAL TH COEFF LL%zu", who, order * m + k);
        if (!spx_cards_double(h, key, &c[k]))
            return 0;
    }
    for (size_t i = 0; w && i < n; i++) {
        w[i] = 0;
        for (size_t k = m; k-- > 0;)
            w[i] = w[i] * (double)i + c[k];
    }
    return 1;
}

static int has_text(const spx_cards *h, const char *key, const char *text)
{
    char value[72];
    return spx_cards_string(h, key, value, sizeof value) && strstr(value, text) != NULL;
}

/* Which of IRAF's bands are the errors; 0: none. */
static size_t band_of_errors(const spx_cards *h, size_t nband)
{
    size_t sigma = 0;
    for (size_t b = 1; b < nband && b < 9; b++) {
        char key[16];
        snprintf(key, sizeof key, "BANDID%zu", b + 1);
        sigma = has_text(h, key, "sigma") ? b : sigma;
    }
    return sigma;
}

/* Rows of an image whose wavelengths are formulas of the header: IRAF's multispec (bands: spectrum, ..., error), HARPS.
 */
static spx_status find_formulas(spx_fits *f, const family *fam, const spx_fits_spectrum_options *o,
                                spx_fits_spectra *out, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[0];
    char arm[16];
    if (h->ndim < 1 || h->ndim > 3 || !spx_fits_is_image(h, h->ndim) || h->nelem == 0 || h->dims[h->ndim - 1] < LEAST)
        return SPX_OK;
    const size_t n = h->dims[h->ndim - 1], nrow = h->ndim > 1 ? h->dims[h->ndim - 2] : 1;
    const size_t nband = h->ndim > 2 ? h->dims[0] : 1;
    static const char *const drs[] = {"ESO", "TNG", "OHP"}; /* HARPS, HARPS-N, SOPHIE */
    const char *who = NULL;
    for (size_t i = 0; i < sizeof drs / sizeof *drs; i++)
        if (drs_orders(&h->header, drs[i], 0, n, NULL))
            who = drs[i];
    const int multispec = has_text(&h->header, "CTYPE1", "MULTISPE") || has_text(&h->header, "WAT0_001", "multispec");
    const size_t sigma = band_of_errors(&h->header, nband);
    size_t first, count;
    if (!who && !multispec)
        return SPX_OK;
    spx_status st = orders_of(o, nrow, &first, &count, e);
    default_arm(f, fam, arm);
    out->format = who ? "orders of HARPS" : "IRAF multispec";
    for (size_t r = first; st == SPX_OK && r < first + count; r++) {
        spx_fits_spectrum *s = add(out, e);
        if (!s || !(s->given[0] = spx_alloc(n, sizeof *s->given[0], e)))
            return SPX_EIO;
        snprintf(s->arm, sizeof s->arm, "%s", arm);
        s->n = n;
        s->flux = image_row(0, r);
        if (sigma > 0) {
            s->noise = image_row(0, sigma * nrow + r);
            s->kind = SPX_NOISE_SIGMA;
        }
        if (!who)
            st = spx_fits_multispec(&h->header, r, n, s->given[0], e);
        else if (!drs_orders(&h->header, who, r, n, s->given[0]))
            st = spx_fail(e, SPX_EINPUT, "order %zu has no wavelengths in the header", r);
        s->unit = 1;
        s->bad = UINT32_MAX;
        axis_of(f, 0, fam, s);
        if (s->medium < 0) /* as lines of thorium and argon are listed */
            s->medium = SPX_AIR;
    }
    return st == SPX_OK ? SPX_OK : spx_err_context(e, "%s", f->name);
}

/* Can a scale of n pixels be one of wavelengths? Pixel numbers and the like reach over all orders of magnitude. */
static int plausible(const spx_fits_spectrum *s, size_t n)
{
    const double last = s->start + s->step * (double)(n - 1), lo = fmin(s->start, last), hi = fmax(s->start, last);
    if (s->scale != SPX_WAVE_LINEAR)
        return lo > -30 && hi < 30;
    return (s->unit > 0 ? s->unit * lo > 0.1 : lo > 0.1 || (lo > 1e-9 && hi < SPX_FITS_METRES)) && hi < 50 * lo;
}

/* One array with a scale, or bands of one, in the first HDU that holds any. */
static spx_status find_plain(spx_fits *f, const family *fam, const spx_fits_spectrum_options *o, spx_fits_spectra *out,
                             spx_err *e)
{
    cast c;
    spx_fits_spectrum scale = {.medium = -1};
    int i = 0;
    (void)o;
    while ((size_t)i < f->nhdu && f->hdu[i].nelem == 0)
        i++;
    if ((size_t)i == f->nhdu)
        return SPX_OK;
    const spx_fits_hdu *h = &f->hdu[i];
    /* axes of length 1 are none */
    if (h->ndim < 1 || h->ndim > 3 || !spx_fits_is_image(h, h->ndim) || h->dims[h->ndim - 1] < LEAST)
        return SPX_OK;
    const size_t n = h->dims[h->ndim - 1], nband = h->ndim == 3 && h->dims[1] == 1 ? h->dims[0] : 1;
    const size_t sigma = band_of_errors(&h->header, nband);
    if (h->nelem != n * nband || (nband > 1 && sigma == 0))
        return SPX_OK;
    if ((!coefficient_scale(&h->header, &scale) && !header_scale(&h->header, &scale)) || !plausible(&scale, n))
        return SPX_OK;
    spx_fits_spectrum *s = add(out, e);
    if (!s)
        return SPX_EIO;
    cast_images(f, &c);
    default_arm(f, fam, s->arm);
    s->n = n;
    s->flux = image_row(i, 0);
    s->scale = scale.scale;
    s->start = scale.start;
    s->step = scale.step;
    s->unit = scale.unit;
    s->bad = fam ? fam->bad : UINT32_MAX;
    if (sigma > 0) {
        s->noise = image_row(i, sigma);
        s->kind = SPX_NOISE_SIGMA;
    } else {
        beside(f, &c, i, 0, s);
    }
    if (fam && strcmp(fam->arm, "galah") == 0) { /* a file a camera: blue, green, red, infrared */
        char band[72] = "";
        (void)spx_cards_string(&h->header, "SPECTID", band, sizeof band);
        const char *known = strchr("BGRI", toupper((unsigned char)band[0]));
        if (band[0] && known)
            snprintf(s->arm, sizeof s->arm, "%c", tolower((unsigned char)band[0]));
        if (s->noise.hdu < 0 && f->nhdu > (size_t)i + 1 && f->hdu[i + 1].nelem == h->nelem &&
            spx_fits_is_image(&f->hdu[i + 1], 1)) {
            s->noise = image_row(i + 1, 0);
            s->kind = SPX_NOISE_RELATIVE;
        }
    }
    axis_of(f, i, fam, s);
    out->format = fam ? fam->name : "image";
    return SPX_OK;
}

/* ---- all of them ---- */

/* Of sums and exposures those that are wanted; exposures where there is nothing else. */
static spx_status choose(const spx_fits *f, const spx_fits_spectrum_options *o, spx_fits_spectra *out, spx_err *e)
{
    size_t sums = 0, n = 0;
    for (size_t i = 0; i < out->n; i++)
        sums += !out->s[i].exposure;
    if (o->exposures && sums == out->n)
        return spx_fail(e, SPX_EINPUT, "%s: has no single exposures, only the sum", f->name);
    const int exposures = o->exposures || sums == 0;
    for (size_t i = 0; i < out->n; i++)
        if (out->s[i].exposure == exposures)
            out->s[n++] = out->s[i];
    for (size_t i = n; i < out->n; i++)
        memset(&out->s[i], 0, sizeof *out->s);
    out->n = n;
    return SPX_OK;
}

/* What looks like a spectrum that cannot be used. */
static void say_why(const spx_fits *f, spx_fits_spectra *out)
{
    cast c;
    for (size_t i = 0; i < f->nhdu && !out->note[0]; i++) {
        const spx_fits_hdu *h = &f->hdu[i];
        if (h->kind != SPX_FITS_BINTABLE)
            continue;
        cast_table(h, &c);
        for (size_t k = 0; k < h->ncol && !out->note[0]; k++) {
            const int name = h->col[k].element > 0 ? name_of(h->col[k].name) : -1;
            if (name >= 0 && names[name].role == FLUX)
                snprintf(out->note, sizeof out->note,
                         "HDU %zu has fluxes (%.60s) in a column of variable length, which is not read as a spectrum",
                         i, h->col[k].name);
        }
        if (!out->note[0] && c.at[FLUX] >= 0 && c.at[WAVE] < 0 && elements(&h->col[c.at[FLUX]]) * h->nrow >= LEAST)
            snprintf(out->note, sizeof out->note, "HDU %zu has a column of fluxes (%.60s), but none of wavelengths", i,
                     h->col[c.at[FLUX]].name);
    }
    cast_images(f, &c);
    if (!out->note[0] && c.at[FLUX] > 0 && c.at[WAVE] < 0 && f->hdu[c.at[FLUX]].ndim == 1)
        snprintf(out->note, sizeof out->note, "HDU %d (%.60s) holds fluxes, but there are no wavelengths", c.at[FLUX],
                 f->hdu[c.at[FLUX]].extname);
    if (!out->note[0] && is_float(&f->hdu[0], 2) && f->hdu[0].dims[0] <= MOST_ROWS && f->hdu[0].dims[1] >= LEAST)
        snprintf(out->note, sizeof out->note,
                 "holds an array of %zu rows that may be a spectrum, but nothing says what each row is",
                 f->hdu[0].dims[0]);
    if (!out->note[0] && is_float(&f->hdu[0], 1) && f->hdu[0].nelem >= LEAST)
        snprintf(out->note, sizeof out->note, "holds an array that may be a spectrum, but no wavelength scale");
}

spx_status spx_fits_spectra_find(spx_fits *f, const spx_fits_spectrum_options *o, spx_fits_spectra *out, spx_err *e)
{
    typedef spx_status finder(spx_fits * f, const family *fam, const spx_fits_spectrum_options *o,
                              spx_fits_spectra *out, spx_err *e);
    static finder *const finders[] = {find_image_rows, find_apogee,   find_tables,
                                      find_images,     find_formulas, find_plain};
    *out = (spx_fits_spectra){0};
    if (f->nhdu == 0)
        return SPX_OK;
    const family *fam = family_of(f);
    spx_status st = SPX_OK;
    for (size_t i = 0; i < sizeof finders / sizeof *finders && st == SPX_OK && out->n == 0; i++)
        st = finders[i](f, fam, o, out, e);
    /* of what is no known survey's, names alone say that it is a spectrum: lists of lines have such names, too */
    if (st == SPX_OK && out->n > 0 && !fam && (st = spx_fits_spectra_check(f, out, e)) == SPX_OK && out->note[0])
        forget(out);
    if (st == SPX_OK && out->n > 0)
        st = choose(f, o, out, e);
    else if (st == SPX_OK) {
        out->format = NULL;
        if (!out->note[0])
            say_why(f, out);
    }
    for (size_t i = 0; i < out->n; i++)
        if (o->medium >= 0)
            out->s[i].medium = o->medium;
    return st;
}

void spx_fits_spectra_plan(const spx_fits *f, const spx_fits_spectra *l, spx_fits_path *view)
{
    for (size_t i = 0; i < f->nhdu; i++)
        view[i][0] = 0;
    for (size_t i = 0; i < l->n; i++) {
        const spx_fits_spectrum *s = &l->s[i];
        size_t same = 1;
        for (size_t k = 0; k < i; k++)
            same += strcmp(l->s[k].arm, s->arm) == 0 && l->s[k].row == s->row;
        char number[24] = "";
        if (same > 1)
            snprintf(number, sizeof number, "%zu", same);
        if (s->flux.hdu >= 0 && !view[s->flux.hdu][0])
            snprintf(view[s->flux.hdu], sizeof *view, "/spectra/%s%s", s->arm, number);
    }
}
