/* Reads trace sets of SDSS as PSFs (convert/psf_kinds.h). */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "convert/blocks_parts.h"
#include "convert/psf_fits.h"
#include "convert/psf_kinds.h"
#include "convert/psf_traces.h"
#include "fits/values.h"
#include "num/legendre.h"

typedef enum { LEGENDRE, CHEBYSHEV, POLYNOMIAL } set_function;

/* Function of the row for each of ntrace traces; a jump of the rows between `low` and `high` adds up to `jump`. */
typedef struct {
    set_function function;
    double first, last, low, high, jump;
    size_t ntrace, nterm;
    double *c; /* [ntrace][nterm] */
} trace_set;

enum { NSET = 4 };

/* HDUs of the sets, by bit; -1: absent. */
static unsigned find_sets(const spx_fits *f, int hdu[NSET])
{
    static const char *const name[NSET][2] = {{"TSET", "XSET"}, {"WSET", NULL}, {"WIDTHSET", NULL}, {"DISPSET", NULL}};
    static const struct {
        size_t at[2];
        int set[2];
    } place[] = {{{1, 3}, {0, 2}}, {{2, 4}, {1, 3}}}; /* spFlat, spArc */
    unsigned have = 0;
    for (int k = 0; k < NSET; k++) {
        hdu[k] = -1;
        for (int i = 0; i < 2 && name[k][i] != NULL && hdu[k] < 0; i++)
            hdu[k] = spx_fits_find_table(f, name[k][i]);
    }
    int is_set[5] = {0}, named = 0;
    for (size_t i = 0; i < f->nhdu; i++) {
        const spx_fits_hdu *h = &f->hdu[i];
        const int yes = h->kind == SPX_FITS_BINTABLE && h->nrow == 1 && spx_fits_find_column(h, "FUNC") != NULL &&
                        spx_fits_find_column(h, "XMIN") != NULL && spx_fits_find_column(h, "XMAX") != NULL &&
                        spx_fits_find_column(h, "COEFF") != NULL;
        named |= yes && h->extname[0] != '\0';
        if (i < 5)
            is_set[i] = yes;
        for (int k = 0; k < NSET; k++)
            if (hdu[k] == (int)i && !yes)
                hdu[k] = -1;
    }
    for (size_t p = 0; p < sizeof place / sizeof *place && !named && f->nhdu >= 4; p++)
        for (int k = 0; k < 2; k++)
            if (is_set[place[p].at[0]] && place[p].at[1] < f->nhdu && is_set[place[p].at[1]] &&
                !is_set[place[1 - p].at[0]])
                hdu[place[p].set[k]] = (int)place[p].at[k];
    for (int k = 0; k < NSET; k++)
        have |= hdu[k] >= 0 ? 1u << k : 0;
    return have;
}

unsigned spx_fits_trace_sets(const spx_fits *f)
{
    int hdu[NSET];
    /* spectra that have been extracted with such sets */
    if (spx_fits_find(f, "INVVAR") >= 0 || spx_fits_find(f, "PLUGMAP") >= 0)
        return 0;
    return find_sets(f, hdu);
}

/* One number of a table of one row. */
static spx_status read_number(const spx_fits *f, int hdu, const char *name, double *v, spx_err *e)
{
    size_t n;
    double *all = NULL;
    spx_status st = spx_fits_column_f64(f, (size_t)hdu, name, &n, &all, e);
    if (st == SPX_OK && (n != 1 || !isfinite(all[0])))
        st = spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)hdu), NULL, "%s should be one number",
                         name);
    *v = st == SPX_OK ? all[0] : 0;
    spx_free(all);
    return st;
}

static spx_status find_function(const spx_fits *f, int hdu, const char *text, set_function *function, spx_err *e)
{
    static const char *const known[] = {"legendre", "chebyshev", "poly"};
    const char *name = text[0] == 'f' ? text + 1 : text; /* IDL's names of the functions */
    int k = 0;
    while (k < 3 && strcasecmp(name, known[k]) != 0)
        k++;
    *function = (set_function)k;
    return k < 3 ? SPX_OK
                 : spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)hdu), NULL,
                               "FUNC is none of legendre, chebyshev and poly");
}

static spx_status read_function(const spx_fits *f, int hdu, set_function *function, spx_err *e)
{
    enum { WIDTH = 32 };
    char *text = NULL;
    spx_status st = spx_fits_column_str(f, (size_t)hdu, "FUNC", WIDTH, &text, e);
    if (st == SPX_OK)
        st = find_function(f, hdu, text, function, e);
    spx_free(text);
    return st;
}

/* Range and n coefficients of a set. */
static spx_status check_set(const spx_fits *f, int hdu, const trace_set *s, size_t n, spx_err *e)
{
    const char *name = spx_fits_hduname(f, (size_t)hdu);
    if (!(s->last > s->first))
        return spx_fail_at(e, SPX_EINPUT, f->name, name, NULL, "XMIN is %g, XMAX %g", s->first, s->last);
    if (n == 0 || s->nterm > 64)
        return spx_fail_at(e, SPX_EINPUT, f->name, name, NULL,
                           "has %zu coefficients of %zu traces: should be at most 64 of each", n, s->ntrace);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(s->c[i]))
            return spx_fail_at(e, SPX_EINPUT, f->name, name, NULL, "a coefficient is not finite");
    return SPX_OK;
}

static spx_status read_set(const spx_fits *f, int hdu, trace_set *s, spx_err *e)
{
    const spx_fits_column *c = spx_fits_find_column(&f->hdu[hdu], "COEFF");
    size_t n = 0;
    spx_status st = read_function(f, hdu, &s->function, e);
    if (st == SPX_OK)
        st = read_number(f, hdu, "XMIN", &s->first, e);
    if (st == SPX_OK)
        st = read_number(f, hdu, "XMAX", &s->last, e);
    if (st == SPX_OK && spx_fits_find_column(&f->hdu[hdu], "XJUMPVAL") != NULL) {
        st = read_number(f, hdu, "XJUMPVAL", &s->jump, e);
        if (st == SPX_OK)
            st = read_number(f, hdu, "XJUMPLO", &s->low, e);
        if (st == SPX_OK)
            st = read_number(f, hdu, "XJUMPHI", &s->high, e);
        if (st == SPX_OK && s->jump != 0 && !(s->first < s->low && s->low < s->high && s->high < s->last))
            st = spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)hdu), NULL,
                             "rows jump from %g to %g (XJUMPLO, XJUMPHI), of %g to %g", s->low, s->high, s->first,
                             s->last);
    }
    if (st == SPX_OK)
        st = spx_fits_column_f64(f, (size_t)hdu, "COEFF", &n, &s->c, e);
    s->ntrace = c->ndim == 2 ? c->dims[0] : 1;
    s->nterm = s->ntrace > 0 ? n / s->ntrace : 0;
    if (st == SPX_OK && c->ndim > 2)
        st = spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, (size_t)hdu), NULL, "COEFF has %d dimensions",
                         c->ndim);
    return st == SPX_OK ? check_set(f, hdu, s, n, e) : st;
}

/* ---- APOGEE ---- */

enum { AP_COLUMNS = 3, AP_WIDTHS = 4, AP_WAVES = 2 };

/* 1: an image of coefficients, whose header says the function's name and range. */
static int is_coefficients(const spx_fits *f, size_t hdu)
{
    char text[32];
    double v;
    const spx_cards *h = hdu < f->nhdu ? &f->hdu[hdu].header : NULL;
    return h != NULL && spx_fits_is_image(&f->hdu[hdu], 2) && spx_cards_string(h, "FUNC", text, sizeof text) &&
           spx_cards_double(h, "XMIN", &v) && spx_cards_double(h, "XMAX", &v);
}

int spx_fits_apogee_psf(const spx_fits *f)
{
    double type;
    return is_coefficients(f, AP_COLUMNS) && is_coefficients(f, AP_WIDTHS) &&
           spx_cards_double(&f->hdu[AP_WIDTHS].header, "PROFTYPE", &type);
}

int spx_fits_apogee_waves(const spx_fits *f, const spx_fits *psf)
{
    double last;
    if (f->nhdu <= AP_WAVES || !spx_fits_is_image(&f->hdu[AP_WAVES], 2) || f->hdu[AP_WAVES].bitpix > 0 ||
        !spx_cards_double(&psf->hdu[AP_COLUMNS].header, "XMAX", &last))
        return 0;
    return (double)f->hdu[AP_WAVES].dims[1] == last + 1;
}

/* Sets of APOGEE's apPSF: coefficients as image. */
static spx_status read_image_set(spx_fits *f, size_t hdu, trace_set *s, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    char text[32] = "";
    (void)spx_cards_string(&h->header, "FUNC", text, sizeof text);
    spx_status st = find_function(f, (int)hdu, text, &s->function, e);
    if (st == SPX_OK)
        st = spx_fits_need_key(f, (int)hdu, "XMIN", &s->first, e);
    if (st == SPX_OK)
        st = spx_fits_need_key(f, (int)hdu, "XMAX", &s->last, e);
    if (st == SPX_OK)
        st = spx_fits_f64(f, hdu, &s->c, e);
    s->ntrace = h->dims[0];
    s->nterm = h->dims[1];
    return st == SPX_OK ? check_set(f, (int)hdu, s, s->ntrace * s->nterm, e) : st;
}

/* Wavelengths at all rows (apWave) as Legendre series of 10 terms: those of a polynomial and of gaps between CCDs. */
static spx_status read_waves(spx_fits *f, trace_set *s, spx_err *e)
{
    enum { NODES = 48, NTERM = 10 };
    const size_t n = f->hdu[AP_WAVES].dims[1];
    double *all = NULL, x[NODES], w[NODES], v[NODES];
    s->ntrace = f->hdu[AP_WAVES].dims[0];
    s->nterm = NTERM;
    s->function = LEGENDRE;
    s->first = 0;
    s->last = (double)n - 1;
    spx_status st = n >= NODES ? spx_fits_f64(f, AP_WAVES, &all, e)
                               : spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, AP_WAVES), NULL,
                                             "has wavelengths of %zu pixels: at least %d", n, NODES);
    if (st == SPX_OK && (s->c = spx_alloc2(s->ntrace, NTERM, sizeof *s->c, e)) == NULL)
        st = SPX_EIO;
    spx_gauss_legendre(NODES, x, w);
    for (size_t k = 0; k < s->ntrace && st == SPX_OK; k++) {
        const double *from = all + k * n;
        for (int j = 0; j < NODES; j++) { /* the parabola through three pixels */
            const double at = 0.5 * (x[j] + 1) * s->last;
            const size_t i = (size_t)fmin(fmax(floor(at + 0.5), 1), s->last - 1);
            const double t = at - (double)i;
            v[j] = from[i] + 0.5 * t * (from[i + 1] - from[i - 1]) +
                   0.5 * t * t * (from[i + 1] - 2 * from[i] + from[i - 1]);
        }
        spx_legendre_project(NODES, x, w, v, NTERM, s->c + k * NTERM);
    }
    spx_free(all);
    return st == SPX_OK ? check_set(f, AP_WAVES, s, s->ntrace * s->nterm, e) : st;
}

static double set_value(const trace_set *s, size_t trace, double row)
{
    const double *c = s->c + trace * s->nterm;
    const double passed = s->jump != 0 ? fmin(fmax((row - s->low) / (s->high - s->low), 0), 1) : 0;
    const double u = 2 * (row + passed * s->jump - 0.5 * (s->first + s->last)) / (s->last - s->first);
    double below = 0, here = 1, sum = 0;
    for (size_t k = 0; k < s->nterm; k++) {
        const double n = (double)k;
        sum += c[k] * here;
        const double above = s->function == LEGENDRE    ? ((2 * n + 1) * u * here - n * below) / (n + 1)
                             : s->function == CHEBYSHEV ? (k == 0 ? u : 2 * u * here - below)
                                                        : u * here;
        below = here;
        here = above;
    }
    return sum;
}

static void at_set(const void *of, size_t trace, double row, double v[SPX_ROW_VALUES])
{
    const trace_set *s = of;
    const size_t f = trace % s->ntrace;
    const double wave = set_value(&s[1], f, row);
    v[SPX_ROW_WAVELENGTH] = wave < 10 ? pow(10, wave) : wave;
    v[SPX_ROW_X] = set_value(&s[0], f, row);
    v[SPX_ROW_SIGMA_X] = set_value(&s[2], f, row);
    v[SPX_ROW_SIGMA_Y] = set_value(&s[3], f, row);
}

/* Camera and rows of the CCD, by the headers of SDSS. */
static void set_camera(const spx_fits *f, const trace_set *wave, spx_psf *psf)
{
    char text[32];
    if (spx_cards_string(&f->hdu[0].header, "CAMERAS", text, sizeof text) && strlen(text) < sizeof psf->camera)
        memcpy(psf->camera, text, strlen(text) + 1);
    psf->npix_y = wave->first == 0 && wave->last < 1e6 ? (size_t)wave->last + 1 : 0;
}

/* Traces of the sets, in two halves where the rows jump. */
static spx_status traces_of_sets(spx_fits *f, const trace_set s[NSET], spx_psf *psf, spx_note_list *notes, spx_err *e)
{
    const size_t n = s[0].ntrace;
    const double first = fmax(s[0].first, s[1].first), last = fmin(s[0].last, s[1].last);
    const int jump = s[1].jump != 0 || s[0].jump != 0;
    const trace_set *j = s[1].jump != 0 ? &s[1] : &s[0];
    double *rows = spx_alloc2(2 * n, 2, sizeof *rows, e);
    spx_status st = rows != NULL ? SPX_OK : SPX_EIO;
    for (size_t i = 0; i < 2 * n && st == SPX_OK; i++) {
        rows[2 * i] = jump && i >= n ? ceil(j->high) : first;
        rows[2 * i + 1] = jump && i < n ? floor(j->low) : last;
    }
    const spx_row_traces t = {.file = f->name, .ntrace = jump ? 2 * n : n, .rows = rows, .of = s, .at = at_set};
    if (st == SPX_OK)
        st = spx_psf_of_rows(&t, psf, notes, e);
    spx_free(rows);
    if (st != SPX_OK || !jump)
        return st;
    psf->fibre = spx_alloc(2 * n, sizeof *psf->fibre, e);
    psf->order = spx_alloc(2 * n, sizeof *psf->order, e);
    if (psf->fibre == NULL || psf->order == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < 2 * n; i++) {
        psf->fibre[i] = (uint32_t)(i % n);
        psf->order[i] = i < n ? 1 : 2;
    }
    return spx_note_list_add(
        notes, e,
        "%s: rows jump by %.3g pixel between %g and %g (XJUMPVAL): each of %zu fibres is two traces, "
        "of orders 1 and 2, below the jump and above it",
        f->name, j->jump, j->low, j->high, n);
}

spx_status spx_fits_read_apogee(spx_fits *f, spx_fits *waves, spx_psf *psf, spx_note_list *notes, spx_err *e)
{
    trace_set s[NSET] = {{0}};
    if (waves == NULL)
        return spx_fail_at(e, SPX_EINPUT, f->name, NULL,
                           "give apPSF and apWave of one CCD in one call, or --generic to keep it as it is",
                           "holds traces of APOGEE without their wavelengths");
    spx_status st = read_image_set(f, AP_COLUMNS, &s[0], e);
    if (st == SPX_OK)
        st = read_waves(waves, &s[1], e);
    if (st == SPX_OK)
        st = read_image_set(f, AP_WIDTHS, &s[2], e);
    if (st == SPX_OK && (s[1].ntrace != s[0].ntrace || s[2].ntrace != s[0].ntrace))
        st = spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL,
                         "%zu traces, %zu widths, wavelengths of %zu fibres: of which fibres they are is not said",
                         s[0].ntrace, s[2].ntrace, s[1].ntrace);
    s[3] = s[2];
    if (st == SPX_OK)
        st = traces_of_sets(f, s, psf, notes, e);
    if (st == SPX_OK) {
        set_camera(f, &s[1], psf);
        psf->npix_x = psf->npix_y; /* a square */
        st = spx_note_list_add(notes, e,
                               "%s: APOGEE's traces run along rows, here along columns: swap the axes of images; spots "
                               "are Gaussians as wide along the traces as across, for specx-psf --start",
                               f->name);
    }
    for (int k = 0; k < 3; k++)
        spx_free(s[k].c);
    return st == SPX_OK ? spx_cards_copy(&psf->header, &f->hdu[0].header, e) : st;
}

spx_status spx_fits_read_tsets(spx_fits *f, spx_fits *other, spx_psf *psf, spx_note_list *notes, spx_err *e)
{
    static const char *const name[NSET] = {"TSET (columns of traces)", "WSET (wavelengths)", "WIDTHSET (widths across)",
                                           "DISPSET (widths along)"};
    trace_set s[NSET] = {{0}};
    int hdu[2][NSET];
    spx_status st = SPX_OK;
    (void)find_sets(f, hdu[0]);
    if (other != NULL)
        (void)find_sets(other, hdu[1]);
    for (int k = 0; k < NSET && st == SPX_OK; k++) {
        const int in_other = hdu[0][k] < 0 && other != NULL;
        if (hdu[in_other][k] < 0)
            st = spx_fail_at(e, SPX_EINPUT, f->name, NULL,
                             "give both files, spFlat and spArc, in one call, or --generic to keep it as it is",
                             "holds no trace set %s", name[k]);
        if (st == SPX_OK)
            st = read_set(in_other ? other : f, hdu[in_other][k], &s[k], e);
        if (st == SPX_OK && s[k].ntrace != s[0].ntrace)
            st = spx_fail_at(e, SPX_EINPUT, f->name, NULL, NULL, "trace set %s has %zu traces, %s %zu", name[0],
                             s[0].ntrace, name[k], s[k].ntrace);
    }
    if (st == SPX_OK)
        st = traces_of_sets(f, s, psf, notes, e);
    if (st == SPX_OK)
        set_camera(f, &s[1], psf);
    for (int k = 0; k < NSET; k++)
        spx_free(s[k].c);
    return st == SPX_OK ? spx_cards_copy(&psf->header, &f->hdu[0].header, e) : st;
}
