/* Reads libraries of model spectra from FITS files, and writes block `library` (convert/library.h). */
#include "convert/library.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/parse.h"
#include "fits/open.h"
#include "fits/values.h"
#include "h5/attr.h"
#include "h5/write.h"

enum { CARD = 80 };

/* Names of the four parameters of a fit in known libraries, as keywords or columns. */
static const struct {
    const char *par, *key[6];
} usual[] = {{"teff", {"PHXTEFF", "TEFF", NULL}},
             {"logg", {"PHXLOGG", "LOGG", "GRAV", "G", NULL}},
             {"feh", {"PHXM_H", "FEH", "FE_H", "M_H", "METAL", NULL}},
             {"alpha", {"PHXALPHA", "ALPHA", "ALPHAFE", "ALPHA_M", "A_M", NULL}}};

spx_status spx_library_parse_params(const char *text, spx_library_layout *l, spx_err *e)
{
    const char *p = text;
    l->npar = 0;
    while (*p) {
        size_t n = strcspn(p, ",");
        const char *eq = memchr(p, '=', n);
        size_t a = eq != NULL ? (size_t)(eq - p) : 0, b = eq != NULL ? n - a - 1 : 0;
        if (a == 0 || b == 0 || a >= sizeof l->par[0] || b >= sizeof l->key[0])
            return spx_fail(e, SPX_EUSAGE, "'%s' is not NAME=KEYWORD,NAME=KEYWORD...", text);
        if (l->npar == SPX_MAX_PAR)
            return spx_fail(e, SPX_EUSAGE, "'%s': more than %d parameters", text, SPX_MAX_PAR);
        snprintf(l->par[l->npar], sizeof l->par[0], "%.*s", (int)a, p);
        snprintf(l->key[l->npar], sizeof l->key[0], "%.*s", (int)b, eq + 1);
        l->npar++;
        p += n + (p[n] == ',');
    }
    return l->npar ? SPX_OK : spx_fail(e, SPX_EUSAGE, "'%s' names no parameters", text);
}

/* ---- parameters ---- */

static int is_keyword(const void *header, const char *key)
{
    double v;
    return spx_cards_double(header, key, &v);
}

static int is_column(const void *hdu, const char *key)
{
    return spx_fits_find_column(hdu, key) != NULL;
}

/* Completes a layout with parameters found under the known names; 0 when teff and logg (or a requested parameter) are
 * absent. */
static int find_params(const spx_library_layout *want, int (*there)(const void *where, const char *key),
                       const void *where, spx_library_layout *have)
{
    *have = *want;
    for (size_t i = 0; i < want->npar; i++)
        if (!there(where, want->key[i]))
            return 0;
    if (want->npar > 0)
        return 1;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        for (size_t k = 0; usual[i].key[k]; k++)
            if (there(where, usual[i].key[k])) {
                snprintf(have->par[have->npar], sizeof have->par[0], "%s", usual[i].par);
                snprintf(have->key[have->npar], sizeof have->key[0], "%s", usual[i].key[k]);
                have->npar++;
                break;
            }
    return have->npar >= 2 && strcmp(have->par[0], "teff") == 0 && strcmp(have->par[1], "logg") == 0;
}

/* Index of the first HDU with a 1-D array, or -1. */
static int first_array(const spx_fits *f)
{
    for (size_t i = 0; i < f->nhdu && i < 2; i++)
        if (f->hdu[i].ndim > 0 || f->hdu[i].kind != SPX_FITS_IMAGE)
            return spx_fits_is_image(&f->hdu[i], 1) && f->hdu[i].nelem > 1 ? (int)i : -1;
    return -1;
}

int spx_fits_is_model(const spx_fits *f, const spx_library_layout *l, size_t *nwave)
{
    spx_library_layout have;
    int i = first_array(f);
    if (i < 0 || !find_params(l, is_keyword, &f->hdu[0].header, &have))
        return 0;
    *nwave = f->hdu[i].nelem;
    return 1;
}

static int increasing(const double *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(v[i]) || !(v[i] > (i ? v[i - 1] : 0.0)))
            return 0;
    return 1;
}

int spx_fits_is_wavelengths(spx_fits *f, size_t *nwave)
{
    spx_err e = {0};
    double *v = NULL;
    int i = first_array(f);
    if (i < 0 || f->nhdu > (size_t)i + 1 || f->hdu[i].bitpix > 0 || spx_fits_f64(f, (size_t)i, &v, &e) != SPX_OK)
        return 0;
    int ok = increasing(v, f->hdu[i].nelem);
    *nwave = f->hdu[i].nelem;
    spx_free(v);
    return ok;
}

/* ---- wavelengths ---- */

/* Medium from the option or the header: AIRORVAC, AIR, VACUUM, or CTYPE1 AWAV; -1: not stated. */
static int medium_of(const spx_cards *h, const spx_library_layout *l)
{
    char text[16];
    int b;
    if (l->medium >= 0)
        return l->medium;
    if (spx_cards_string(h, "AIRORVAC", text, sizeof text))
        return strncasecmp(text, "air", 3) == 0 ? SPX_AIR : SPX_VACUUM;
    if (spx_cards_bool(h, "VACUUM", &b))
        return b ? SPX_VACUUM : SPX_AIR;
    if (spx_cards_string(h, "CTYPE1", text, sizeof text) && strncmp(text, "AWAV", 4) == 0)
        return SPX_AIR;
    return -1;
}

/* Writes wavelengths with attribute `medium`. */
static spx_status write_wavelengths(hid_t file, const char *name, const double *v, size_t n, int medium,
                                    spx_note_list *notes, spx_err *e)
{
    if (!increasing(v, n))
        return spx_fail_at(e, SPX_EINPUT, name, NULL, NULL, "the wavelengths of the library do not increase");
    spx_status st = spx_h5_write(file, "/library/wavelength", H5T_NATIVE_DOUBLE, 1, &n, v, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/library/wavelength", "medium", medium == SPX_AIR ? "air" : "vacuum", e);
    if (st == SPX_OK && medium < 0)
        st = spx_note_list_add(notes, e,
                               "%s: the file does not say, so wavelengths are taken for vacuum: --air otherwise", name);
    return st;
}

/* Pads n texts of `size` characters, NUL-terminated where shorter, with blanks as in FITS and the schema. */
static void pad_texts(char *text, size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = strnlen(text + i * size, size); k < size; k++)
            text[i * size + k] = ' ';
}

/* Writes parameters params[ntemp][npar] and names[ntemp][name_size] (may be NULL; padded in place). */
static spx_status write_params(hid_t file, const spx_library_layout *l, size_t ntemp, const double *params, char *names,
                               size_t name_size, spx_err *e)
{
    size_t dims[2] = {ntemp, l->npar};
    char par[SPX_MAX_PAR][sizeof l->par[0]];
    for (size_t i = 0; i < ntemp * l->npar; i++)
        if (!isfinite(params[i]))
            return spx_fail(e, SPX_EINPUT, "spectrum %zu of the library: %s is not finite", i / l->npar,
                            l->par[i % l->npar]);
    memcpy(par, l->par, sizeof par);
    pad_texts(par[0], l->npar, sizeof par[0]);
    spx_status st = spx_h5_write(file, "/library/params", H5T_NATIVE_DOUBLE, 2, dims, params, e);
    if (st == SPX_OK)
        st = spx_h5_write_strings(file, "/library/parname", sizeof par[0], l->npar, par[0], e);
    if (st == SPX_OK && names != NULL) {
        pad_texts(names, ntemp, name_size);
        st = spx_h5_write_strings(file, "/library/name", name_size, ntemp, names, e);
    }
    return st == SPX_OK ? spx_h5_attach_scale(file, "/library/flux", 1, "/library/wavelength", "wavelength", e) : st;
}

static spx_status flux_unit(hid_t file, const spx_cards *h, spx_err *e)
{
    char unit[72];
    if (!spx_cards_string(h, "BUNIT", unit, sizeof unit) || !unit[0])
        return SPX_OK;
    for (char *c = unit; *c; c++)
        if (*c < 32 || *c > 126)
            *c = '?';
    return spx_h5_set_str(file, "/library/flux", "units", unit, e);
}

/* ---- libraries in one file ---- */

/* Index of an HDU by name or number, or -1. */
static int hdu_called(const spx_fits *f, const char *name)
{
    char *end;
    int i = spx_fits_find(f, name);
    if (i >= 0 || !isdigit((unsigned char)name[0]))
        return i;
    long n = strtol(name, &end, 10);
    return *end || n < 0 || (size_t)n >= f->nhdu ? -1 : (int)n;
}

typedef struct {
    int flux, params, wavelength; /* indices of HDUs; wavelength -1: a formula */
    int log10;
    double start, step; /* formula: of pixel 0 */
    int medium;
    spx_library_layout l; /* with the parameters found */
} single;

/* Wavelengths from the header of the fluxes: IRAF's log-linear form (DC-FLAG = 1, log10), or a linear axis. */
static int header_wavelengths(const spx_cards *h, single *s)
{
    double value, step, pixel = 1.0;
    long flag = -1;
    char type[16] = "";
    if (!spx_cards_double(h, "CRVAL1", &value) ||
        (!spx_cards_double(h, "CD1_1", &step) && !spx_cards_double(h, "CDELT1", &step)) || step <= 0.0)
        return 0;
    spx_cards_double(h, "CRPIX1", &pixel);
    spx_cards_int(h, "DC-FLAG", &flag);
    spx_cards_string(h, "CTYPE1", type, sizeof type);
    s->log10 = flag == 1;
    if (flag != 1 && !(flag == 0 || strcmp(type, "WAVE") == 0 || strcmp(type, "AWAV") == 0 ||
                       strcmp(type, "LAMBDA") == 0 || strcmp(type, "WAVELENGTH") == 0))
        return 0;
    s->wavelength = -1;
    s->step = step;
    s->start = value + (1.0 - pixel) * step;
    return 1;
}

static spx_status find_wavelengths(const spx_fits *f, const spx_library_layout *l, single *s, spx_err *e)
{
    static const char *const names[] = {"WAVELENGTH", "WAVE", "LAMBDA", "LOGLAM"};
    size_t nwave = f->hdu[s->flux].dims[1];
    s->wavelength = -1;
    if (l->wavelength != NULL &&
        (strncmp(l->wavelength, "log10:", 6) == 0 || strncmp(l->wavelength, "linear:", 7) == 0)) {
        double v[2];
        size_t n = 0;
        s->log10 = l->wavelength[2] == 'g';
        spx_status st = spx_parse_doubles(strchr(l->wavelength, ':') + 1, ':', "--library-wavelength",
                                          "log10:START:STEP or linear:START:STEP", 2, v, &n, e);
        if (st == SPX_OK && (n != 2 || !(v[1] > 0.0)))
            st = spx_fail(e, SPX_EUSAGE, "--library-wavelength %s: START:STEP with a positive step is wanted",
                          l->wavelength);
        s->start = v[0];
        s->step = v[1];
        return st;
    }
    if (l->wavelength != NULL) {
        int i = hdu_called(f, l->wavelength);
        if (i < 0 || !spx_fits_is_image(&f->hdu[i], 1) || f->hdu[i].nelem != nwave)
            return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL,
                               "HDU %s is not an array of %zu wavelengths (--library-wavelength)", l->wavelength,
                               nwave);
        s->wavelength = i;
        s->log10 = strcasecmp(f->hdu[i].extname, "LOGLAM") == 0;
        return SPX_OK;
    }
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        int i = spx_fits_find(f, names[k]);
        if (i >= 0 && spx_fits_is_image(&f->hdu[i], 1) && f->hdu[i].nelem == nwave) {
            s->wavelength = i;
            s->log10 = k == 3;
            return SPX_OK;
        }
    }
    if (header_wavelengths(&f->hdu[s->flux].header, s))
        return SPX_OK;
    return spx_fail_at(e, SPX_EINPUT, f->name, NULL,
                       "give --library-wavelength HDU, log10:START:STEP or linear:START:STEP",
                       "the wavelengths of the library cannot be seen");
}

static spx_status find_single(const spx_fits *f, const spx_library_layout *l, single *s, spx_err *e)
{
    memset(s, 0, sizeof *s);
    s->flux = s->params = -1;
    if (l->flux != NULL && ((s->flux = hdu_called(f, l->flux)) < 0 || !spx_fits_is_image(&f->hdu[s->flux], 2)))
        return spx_fail(e, SPX_EINPUT, "%s: HDU %s is not an image of spectra (--library-flux)", f->name, l->flux);
    if (l->params != NULL &&
        ((s->params = hdu_called(f, l->params)) < 0 || f->hdu[s->params].kind != SPX_FITS_BINTABLE ||
         !find_params(l, is_column, &f->hdu[s->params], &s->l)))
        return spx_fail(
            e, SPX_EINPUT,
            "%s: HDU %s is not a table with the parameters of the spectra (--library-params, --param-keywords)",
            f->name, l->params);
    for (size_t i = 0; i < f->nhdu; i++) {
        const spx_fits_hdu *h = &f->hdu[i];
        if (s->flux < 0 && spx_fits_is_image(h, 2) && h->bitpix < 0 && h->dims[0] > 1 && h->dims[1] > 1)
            s->flux = (int)i;
        if (s->params < 0 && h->kind == SPX_FITS_BINTABLE && find_params(l, is_column, h, &s->l))
            s->params = (int)i;
    }
    if (s->flux < 0)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, "give --library-flux HDU",
                           "no image of model spectra is there");
    if (s->params < 0)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL,
                           "give --library-params HDU and --param-keywords NAME=COLUMN,...",
                           "no table with the parameters of the model spectra is there");
    if (f->hdu[s->params].nrow != f->hdu[s->flux].dims[0] || f->hdu[s->flux].nelem == 0)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL,
                           "%zu model spectra, but parameters for %zu: --library-flux, --library-params",
                           f->hdu[s->flux].dims[0], f->hdu[s->params].nrow);
    spx_status st = find_wavelengths(f, l, s, e);
    if (st != SPX_OK)
        return st;
    s->medium = medium_of(&f->hdu[s->wavelength >= 0 ? s->wavelength : s->flux].header, l);
    return SPX_OK;
}

int spx_fits_is_library(spx_fits *f, const spx_library_layout *l, spx_fits_path *view)
{
    single s;
    spx_err e = {0};
    if (find_single(f, l, &s, &e) != SPX_OK)
        return 0;
    for (size_t i = 0; view != NULL && i < f->nhdu; i++)
        view[i][0] = 0;
    if (view != NULL) {
        snprintf(view[s.flux], sizeof *view, "/library/flux");
        snprintf(view[s.params], sizeof *view, "/library/params");
        if (s.wavelength >= 0)
            snprintf(view[s.wavelength], sizeof *view, "/library/wavelength");
    }
    return 1;
}

spx_status spx_fits_library_single(spx_fits *f, const spx_library_layout *l, hid_t file, spx_note_list *notes,
                                   spx_err *e)
{
    single s;
    double *wave = NULL, *params = NULL;
    spx_status st = find_single(f, l, &s, e);
    if (st != SPX_OK)
        return st;
    const spx_fits_hdu *flux = &f->hdu[s.flux], *table = &f->hdu[s.params];
    size_t ntemp = flux->dims[0], nwave = flux->dims[1];
    if (s.wavelength >= 0)
        st = spx_fits_f64(f, (size_t)s.wavelength, &wave, e);
    else if ((wave = spx_alloc(nwave, sizeof *wave, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; st == SPX_OK && i < nwave; i++) {
        if (s.wavelength < 0)
            wave[i] = s.start + s.step * (double)i;
        if (s.log10)
            wave[i] = pow(10.0, wave[i]);
    }
    if (st == SPX_OK)
        st = write_wavelengths(file, f->name, wave, nwave, s.medium, notes, e);
    spx_free(wave);
    if (st == SPX_OK && (params = spx_alloc2(ntemp, s.l.npar, sizeof *params, e)) == NULL)
        st = SPX_EIO;
    for (size_t k = 0; st == SPX_OK && k < s.l.npar; k++) {
        double *v = NULL;
        size_t n = 0;
        st = spx_fits_column_f64(f, (size_t)s.params, s.l.key[k], &n, &v, e);
        if (st == SPX_OK && n != 1)
            st = spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "column %s has %zu values a row", s.l.key[k], n);
        for (size_t i = 0; st == SPX_OK && i < ntemp; i++)
            params[i * s.l.npar + k] = v[i];
        spx_free(v);
    }
    if (st == SPX_OK && flux->bitpix == -64) {
        double *v = NULL;
        st = spx_fits_f64(f, (size_t)s.flux, &v, e);
        if (st == SPX_OK)
            st = spx_h5_write(file, "/library/flux", H5T_NATIVE_DOUBLE, 2, flux->dims, v, e);
        spx_free(v);
    } else if (st == SPX_OK) {
        float *v = NULL;
        st = spx_fits_f32(f, (size_t)s.flux, &v, e);
        if (st == SPX_OK)
            st = spx_h5_write(file, "/library/flux", H5T_NATIVE_FLOAT, 2, flux->dims, v, e);
        spx_free(v);
    }
    if (st == SPX_OK)
        st = flux_unit(file, &flux->header, e);
    /* spectra are named by the first column of text, if there is one */
    char *names = NULL;
    for (size_t k = 0; st == SPX_OK && names == NULL && k < table->ncol; k++)
        if (table->col[k].code == 'A' && table->col[k].ndim == 0 && table->col[k].width > 0)
            st = spx_fits_column_str(f, (size_t)s.params, table->col[k].name, 64, &names, e);
    if (st == SPX_OK)
        st = write_params(file, &s.l, ntemp, params, names, 64, e);
    if (st == SPX_EINPUT)
        spx_err_at(e, f->name, NULL);
    spx_free(names);
    spx_free(params);
    return st;
}

/* ---- libraries with one file a spectrum ---- */

/* Opens and checks one spectrum of the library; the file may have changed since it was recognised. */
static spx_status open_model(spx_fits *f, const char *path, size_t nwave, const spx_library_layout *l, double *params,
                             spx_err *e)
{
    size_t n = 0;
    spx_status st = spx_fits_open(f, path, e);
    if (st != SPX_OK)
        return st;
    if (!spx_fits_is_model(f, l, &n))
        st = spx_fail_at(e, SPX_EINPUT, path, NULL, NULL,
                         "is no model spectrum with the keywords of the first one (%s, ...)", l->key[0]);
    else if (n != nwave)
        st = spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "has %zu samples, the wavelength file has %zu", n, nwave);
    for (size_t k = 0; st == SPX_OK && k < l->npar; k++)
        spx_cards_double(&f->hdu[0].header, l->key[k], &params[k]);
    if (st != SPX_OK)
        spx_fits_close(f);
    return st;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* Writes the header of spectrum i, blank padded to `ncard`, as row i of /library/header. */
static spx_status write_header(hid_t file, size_t i, size_t ncard, const spx_cards *h, hid_t type, spx_err *e)
{
    char *row = spx_alloc2(ncard, CARD, 1, e);
    if (row == NULL)
        return SPX_EIO;
    memset(row, ' ', ncard * CARD);
    if (h->n)
        memcpy(row, h->cards, (h->n < ncard ? h->n : ncard) * CARD);
    spx_status st = spx_h5_write_rows(file, "/library/header", type, i, 1, row, e);
    spx_free(row);
    return st;
}

/* Opens the first file of a library, which defines the keywords of parameters and the type of fluxes. */
static spx_status open_first(const char *path, const spx_library_layout *l, spx_library_layout *have, int *wide,
                             spx_err *e)
{
    spx_fits f;
    spx_status st = spx_fits_open(&f, path, e);
    if (st != SPX_OK)
        return st;
    if (!find_params(l, is_keyword, &f.hdu[0].header, have))
        st = spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "is no model spectrum");
    *wide = first_array(&f) >= 0 && f.hdu[first_array(&f)].bitpix == -64;
    spx_fits_close(&f);
    return st;
}

spx_status spx_fits_library_files(size_t nfile, const char *const *files, const char *wavelengths,
                                  const spx_library_layout *l, hid_t file, spx_progress *progress, spx_failures *failed,
                                  spx_note_list *notes, spx_err *e)
{
    spx_fits w, f;
    spx_library_layout have;
    double *wave = NULL;
    size_t n = 0, nwave = 0, ncard = 0, width = 1;
    int wide = 0;
    spx_status st = spx_fits_open(&w, wavelengths, e);
    if (st != SPX_OK)
        return st;
    const char **path = spx_alloc(nfile, sizeof *path, e);
    double *params = spx_alloc2(nfile, SPX_MAX_PAR, sizeof *params, e);
    int hdu = first_array(&w);
    if (hdu < 0)
        st = spx_fail_at(e, SPX_EINPUT, wavelengths, NULL, NULL, "holds no wavelengths");
    else
        st = spx_fits_f64(&w, (size_t)hdu, &wave, e);
    if (st == SPX_OK) {
        nwave = w.hdu[hdu].nelem;
        st = write_wavelengths(file, wavelengths, wave, nwave, medium_of(&w.hdu[hdu].header, l), notes, e);
    }
    if (st == SPX_OK)
        st = spx_h5_write_strings(file, "/library/wavelength_header", CARD, w.hdu[hdu].header.n,
                                  w.hdu[hdu].header.cards, e);
    spx_free(wave);
    spx_fits_close(&w);
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, CARD);
    H5Tset_strpad(type, H5T_STR_SPACEPAD);

    /* First pass: parameters and sizes. */
    if (path == NULL || params == NULL)
        st = e->code;
    for (size_t i = 0; st == SPX_OK && i < nfile; i++) {
        double v[SPX_MAX_PAR] = {0};
        int left_out;
        spx_status one = n == 0 ? open_first(files[i], l, &have, &wide, e) : SPX_OK;
        if (one == SPX_OK)
            one = open_model(&f, files[i], nwave, &have, v, e);
        if ((st = spx_failures_note(failed, one, &left_out, e)) != SPX_OK || left_out)
            continue;
        memcpy(params + n * have.npar, v, have.npar * sizeof *v);
        ncard = f.hdu[0].header.n > ncard ? f.hdu[0].header.n : ncard;
        width = strlen(base_name(files[i])) > width ? strlen(base_name(files[i])) : width;
        path[n++] = files[i];
        spx_fits_close(&f);
    }
    if (st == SPX_OK && n == 0)
        st = spx_fail(e, SPX_EINPUT, "no model spectrum could be read: see above");
    char *names = st == SPX_OK ? spx_alloc2(n, width, 1, e) : NULL;
    if (st == SPX_OK && names == NULL)
        st = SPX_EIO;
    size_t dims[2] = {n, nwave}, hdims[2] = {n, ncard};
    if (st == SPX_OK)
        st = spx_h5_create(file, "/library/flux", wide ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT, 2, dims, e);
    if (st == SPX_OK)
        st = spx_h5_create(file, "/library/header", type, 2, hdims, e);

    /* Second pass: one row at a time, so that a library may be larger than memory. */
    for (size_t i = 0; st == SPX_OK && i < n; i++) {
        double v[SPX_MAX_PAR] = {0};
        double *row8 = NULL;
        float *row4 = NULL;
        if ((st = open_model(&f, path[i], nwave, &have, v, e)) != SPX_OK)
            break;
        size_t k = (size_t)first_array(&f);
        if (wide && (st = spx_fits_f64(&f, k, &row8, e)) == SPX_OK)
            st = spx_h5_write_rows(file, "/library/flux", H5T_NATIVE_DOUBLE, i, 1, row8, e);
        else if (!wide && (st = spx_fits_f32(&f, k, &row4, e)) == SPX_OK)
            st = spx_h5_write_rows(file, "/library/flux", H5T_NATIVE_FLOAT, i, 1, row4, e);
        if (st == SPX_OK)
            st = write_header(file, i, ncard, &f.hdu[0].header, type, e);
        if (st == SPX_OK && i == 0)
            st = flux_unit(file, &f.hdu[k].header, e);
        const char *base = base_name(path[i]);
        memcpy(names + i * width, base, strlen(base) < width ? strlen(base) : width);
        spx_free(row8);
        spx_free(row4);
        spx_fits_close(&f);
        spx_progress_step(progress, 1);
    }
    if (st == SPX_OK)
        st = write_params(file, &have, n, params, names, width, e);
    H5Tclose(type);
    spx_free(names);
    spx_free(params);
    spx_free(path);
    return st;
}
