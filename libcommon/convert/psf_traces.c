/* Makes Legendre series in wavelength of traces that are functions of the row (convert/psf_traces.h). The wavelength of
 * each of Gauss's abscissae is looked up among the rows by bisection; the projection is the series. */
#include "convert/psf_traces.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "num/legendre.h"

enum { NODES = 48, CHECKS = 257, NTERM = SPX_TRACE_DEGREE + 1 };

#define ENOUGH 1e-4 /* pixels: degrees do not rise farther */
#define ALIKE  0.05 /* of the range of a trace: one range for all */
#define BEYOND 0.06 /* of the rows, that a trace is followed beyond its ends */

/* Series of one trace: row, column and widths. */
typedef struct {
    double c[SPX_ROW_VALUES][NTERM];
} trace_series;

static double wavelength_at(const spx_row_traces *t, size_t f, double row)
{
    double v[SPX_ROW_VALUES];
    t->at(t->of, f, row, v);
    return v[SPX_ROW_WAVELENGTH];
}

/* Row i of n that are checked, from first to last. */
static double check_row(const spx_row_traces *t, size_t f, int i)
{
    const double *r = t->rows + 2 * f;
    return r[0] + (r[1] - r[0]) * (double)i / (CHECKS - 1);
}

/* Range of wavelengths of a trace; refuses one that cannot be inverted. */
static spx_status check_trace(const spx_row_traces *t, size_t f, double range[2], double *widest, spx_err *e)
{
    double v[SPX_ROW_VALUES], before = 0, sign = 0;
    if (!(t->rows[2 * f + 1] > t->rows[2 * f]))
        return spx_fail_at(e, SPX_EINPUT, t->file, NULL, NULL, "trace %zu has rows %g to %g", f, t->rows[2 * f],
                           t->rows[2 * f + 1]);
    for (int i = 0; i < CHECKS; i++) {
        const double row = check_row(t, f, i);
        t->at(t->of, f, row, v);
        for (int k = 0; k < SPX_ROW_VALUES; k++)
            if (!(fabs(v[k]) < 1e8))
                return spx_fail_at(e, SPX_EINPUT, t->file, NULL, NULL, "trace %zu is not finite at row %g", f, row);
        if (!(v[SPX_ROW_WAVELENGTH] > 0))
            return spx_fail_at(e, SPX_EINPUT, t->file, NULL, NULL,
                               "trace %zu has a wavelength of %g Angstrom at row %g", f, v[SPX_ROW_WAVELENGTH], row);
        for (int k = SPX_ROW_SIGMA_X; k <= SPX_ROW_SIGMA_Y; k++) {
            if (!(v[k] > 0))
                return spx_fail_at(e, SPX_EINPUT, t->file, NULL, NULL,
                                   "trace %zu has a width of %g pixels at row %g: must be above 0", f, v[k], row);
            widest[k - SPX_ROW_SIGMA_X] = fmax(widest[k - SPX_ROW_SIGMA_X], v[k]);
        }
        const double step = i > 0 ? v[SPX_ROW_WAVELENGTH] - before : 0;
        sign = i == 1 ? step : sign;
        if (i > 0 && !(step * sign > 0))
            return spx_fail_at(e, SPX_EINPUT, t->file, NULL, NULL,
                               "the wavelength of trace %zu neither rises nor falls everywhere: at row %g it goes from "
                               "%g to %g Angstrom",
                               f, row, before, v[SPX_ROW_WAVELENGTH]);
        before = v[SPX_ROW_WAVELENGTH];
    }
    range[0] = wavelength_at(t, f, t->rows[2 * f]);
    range[1] = wavelength_at(t, f, t->rows[2 * f + 1]);
    if (range[0] > range[1]) {
        const double swap = range[0];
        range[0] = range[1];
        range[1] = swap;
    }
    return SPX_OK;
}

/* Row of a trace at a wavelength: bisection, a straight line beyond the rows that it is followed to. */
static double row_at(const spx_row_traces *t, size_t f, double wavelength)
{
    const double *r = t->rows + 2 * f, more = BEYOND * (r[1] - r[0]);
    const int rises = wavelength_at(t, f, r[1]) > wavelength_at(t, f, r[0]);
    double low = r[0] - more, high = r[1] + more;
    const double below = wavelength_at(t, f, low), above = wavelength_at(t, f, high);
    const int ends = rises ? above > below : below > above;
    if (!ends || (wavelength - below) * (wavelength - above) > 0) {
        const int near = (wavelength < wavelength_at(t, f, r[0])) == rises ? 0 : 1;
        const double here = wavelength_at(t, f, r[near]), in = r[near] + (near ? -1e-3 : 1e-3) * (r[1] - r[0]);
        return r[near] + (wavelength - here) * (in - r[near]) / (wavelength_at(t, f, in) - here);
    }
    for (int i = 0; i < 60; i++) {
        const double middle = 0.5 * (low + high);
        if ((wavelength_at(t, f, middle) < wavelength) == rises)
            low = middle;
        else
            high = middle;
    }
    return 0.5 * (low + high);
}

static void project(const spx_row_traces *t, size_t f, const double range[2], const double *x, const double *w,
                    trace_series *s)
{
    double v[SPX_ROW_VALUES][NODES], at[SPX_ROW_VALUES];
    memset(s, 0, sizeof *s);
    for (int j = 0; j < NODES; j++) {
        const double row = row_at(t, f, range[0] + 0.5 * (x[j] + 1) * (range[1] - range[0]));
        t->at(t->of, f, row, at);
        at[SPX_ROW_WAVELENGTH] = row;
        for (int k = 0; k < SPX_ROW_VALUES; k++)
            v[k][j] = at[k];
    }
    for (int k = 0; k < SPX_ROW_VALUES; k++)
        spx_legendre_project(NODES, x, w, v[k], NTERM, s->c[k]);
}

/* Largest difference of a quantity from its series of n terms, pixels, within the rows of the trace. */
static double residual(const spx_row_traces *t, size_t f, const double range[2], const trace_series *s, int k, size_t n)
{
    double v[SPX_ROW_VALUES], worst = 0;
    for (int i = 0; i < CHECKS; i++) {
        const double row = check_row(t, f, i);
        t->at(t->of, f, row, v);
        const double u = 2 * (v[SPX_ROW_WAVELENGTH] - range[0]) / (range[1] - range[0]) - 1;
        worst = fmax(worst, fabs(spx_legendre_value(n, s->c[k], u) - (k == SPX_ROW_WAVELENGTH ? row : v[k])));
    }
    return worst;
}

/* Terms that a quantity needs in all traces; *worst: what they leave. */
static spx_status find_terms(const spx_row_traces *t, const double *range, const trace_series *s, int k, size_t *nterm,
                             double *worst, spx_err *e)
{
    static const char *const what[] = {"row", "column", "width across", "width along"};
    double most = 0;
    for (size_t f = 0; f < t->ntrace; f++) {
        double left = residual(t, f, range + 2 * f, &s[f], k, *nterm);
        while (left > ENOUGH && *nterm < NTERM)
            left = residual(t, f, range + 2 * f, &s[f], k, ++*nterm);
        if (!(left <= SPX_TRACE_RESIDUAL))
            return spx_fail_at(e, SPX_EINPUT, t->file, NULL, NULL,
                               "the %s of trace %zu as a function of the wavelength differs by %.3g pixel from a "
                               "Legendre series of degree %d: not more than %g can be taken",
                               what[k], f, left, SPX_TRACE_DEGREE, SPX_TRACE_RESIDUAL);
    }
    for (size_t f = 0; f < t->ntrace; f++)
        most = fmax(most, residual(t, f, range + 2 * f, &s[f], k, *nterm));
    *worst = fmax(*worst, most);
    return SPX_OK;
}

/* Copies the first n terms of one quantity of all traces. */
static void take(size_t ntrace, const trace_series *s, int k, size_t n, size_t stride, double *to)
{
    for (size_t f = 0; f < ntrace; f++)
        memcpy(to + f * stride, s[f].c[k], n * sizeof *to);
}

static spx_status fill(const spx_row_traces *t, const trace_series *s, const size_t *nterm, const double *range,
                       const double *widest, spx_psf *psf, spx_err *e)
{
    const size_t n = t->ntrace;
    psf->nspec = n;
    psf->npar = 3;
    psf->ndeg = nterm[SPX_ROW_SIGMA_X] > nterm[SPX_ROW_SIGMA_Y] ? nterm[SPX_ROW_SIGMA_X] : nterm[SPX_ROW_SIGMA_Y];
    psf->x.ncoef = nterm[SPX_ROW_X];
    psf->y.ncoef = nterm[SPX_ROW_WAVELENGTH];
    psf->wmin = psf->x.wmin = psf->y.wmin = range[0];
    psf->wmax = psf->x.wmax = psf->y.wmax = range[1];
    psf->hsizex = (int)ceil(SPX_TRACE_SPOT * widest[0]);
    psf->hsizey = (int)ceil(SPX_TRACE_SPOT * widest[1]);
    psf->x.coef = spx_alloc2(n, psf->x.ncoef, sizeof(double), e);
    psf->y.coef = spx_alloc2(n, psf->y.ncoef, sizeof(double), e);
    psf->param = spx_alloc(psf->npar, sizeof *psf->param, e);
    psf->coeff = spx_alloc2(psf->npar * n, psf->ndeg, sizeof(double), e);
    if (psf->x.coef == NULL || psf->y.coef == NULL || psf->param == NULL || psf->coeff == NULL)
        return SPX_EIO;
    memcpy(psf->param[0], "GHSIGX", 7);
    memcpy(psf->param[1], "GHSIGY", 7);
    memcpy(psf->param[2], "GH-0-0", 7);
    take(n, s, SPX_ROW_X, psf->x.ncoef, psf->x.ncoef, psf->x.coef);
    take(n, s, SPX_ROW_WAVELENGTH, psf->y.ncoef, psf->y.ncoef, psf->y.coef);
    take(n, s, SPX_ROW_SIGMA_X, nterm[SPX_ROW_SIGMA_X], psf->ndeg, psf->coeff);
    take(n, s, SPX_ROW_SIGMA_Y, nterm[SPX_ROW_SIGMA_Y], psf->ndeg, psf->coeff + n * psf->ndeg);
    for (size_t f = 0; f < n; f++)
        psf->coeff[(2 * n + f) * psf->ndeg] = 1;
    return SPX_OK;
}

spx_status spx_psf_of_rows(const spx_row_traces *t, spx_psf *psf, spx_note_list *notes, spx_err *e)
{
    const size_t n = t->ntrace;
    double x[NODES], w[NODES], widest[2] = {0, 0}, low[2] = {HUGE_VAL, -HUGE_VAL}, high[2] = {HUGE_VAL, -HUGE_VAL};
    double worst = 0;
    size_t nterm[SPX_ROW_VALUES] = {2, 1, 1, 1};
    if (n == 0)
        return spx_fail_at(e, SPX_EINPUT, t->file, NULL, NULL, "holds no traces");
    double *range = spx_alloc2(n, 2, sizeof *range, e);
    trace_series *s = spx_alloc(n, sizeof *s, e);
    spx_status st = range != NULL && s != NULL ? SPX_OK : SPX_EIO;
    for (size_t f = 0; f < n && st == SPX_OK; f++) {
        st = check_trace(t, f, range + 2 * f, widest, e);
        low[0] = fmin(low[0], range[2 * f]);
        low[1] = fmax(low[1], range[2 * f]);
        high[0] = fmin(high[0], range[2 * f + 1]);
        high[1] = fmax(high[1], range[2 * f + 1]);
    }
    const int alike = fmax(low[1] - low[0], high[1] - high[0]) <= ALIKE * (high[0] - low[1]);
    spx_gauss_legendre(NODES, x, w);
    for (size_t f = 0; f < n && st == SPX_OK; f++) {
        if (alike) {
            range[2 * f] = low[0];
            range[2 * f + 1] = high[1];
        }
        project(t, f, range + 2 * f, x, w, &s[f]);
    }
    for (int k = 0; k < SPX_ROW_VALUES && st == SPX_OK; k++)
        st = find_terms(t, range, s, k, &nterm[k], &worst, e);
    if (st == SPX_OK)
        st = fill(t, s, nterm, range, widest, psf, e);
    if (st == SPX_OK)
        st = spx_note_list_add(
            notes, e,
            "%s: traces as Legendre series of degree %zu (row) and %zu (column) in wavelength, to %.2g "
            "pixel",
            t->file, nterm[SPX_ROW_WAVELENGTH] - 1, nterm[SPX_ROW_X] - 1, worst);
    if (st == SPX_OK && !alike) {
        spx_psf_set_wave_range(psf, range);
        range = NULL;
    }
    spx_free(range);
    spx_free(s);
    return st;
}
