/* Provides PSF of a whole detector: wavelength coverage of a CCD, and change to barycentric wavelengths (psf/psf.h). */
#include "psf/psf.h"

#include <math.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "num/stat.h"
#include "psf/psf_math.h"

/* Limit of grid points, more than any spectrograph has pixels along a trace: beyond it, the step is wrong. */
#define MAX_POINTS 1e6
/* Bins of a range whose spots are said to be as wide as it. */
#define FEWEST_BINS 50

SPX_CLONES
void spx_psf_series_beside(size_t ncoef, size_t n, const double *restrict coef, const double *restrict basis,
                           double *restrict at)
{
    for (size_t f = 0; f < n; f++)
        at[f] = 0;
    for (size_t i = 0; i < ncoef; i++)
#pragma omp simd
        for (size_t f = 0; f < n; f++)
            at[f] += coef[i * n + f] * basis[i];
}

/* Traces side by side: series of x and y, coefficients [ncoef][nspec] of each, polynomials and places at one
 * wavelength. counts[nspec]: 0 for traces that need not be there. */
typedef struct {
    double *coef[2], *basis, *at[2];
    uint8_t *counts;
} traces_beside;

static void traces_free(traces_beside *t)
{
    spx_free(t->coef[0]);
    spx_free(t->counts);
}

static spx_status traces_make(const spx_psf *psf, traces_beside *t, spx_err *e)
{
    const spx_psf_series *const series[2] = {&psf->x, &psf->y};
    const size_t n = psf->nspec, ncoef = psf->x.ncoef + psf->y.ncoef;
    *t = (traces_beside){.coef = {spx_alloc2(ncoef + 3, n + 1, sizeof(double), e)}};
    t->counts = spx_alloc(n, 1, e);
    if (t->coef[0] == NULL || t->counts == NULL)
        return SPX_EIO;
    t->coef[1] = t->coef[0] + psf->x.ncoef * n;
    t->at[0] = t->coef[1] + psf->y.ncoef * n;
    t->at[1] = t->at[0] + n;
    t->basis = t->at[1] + n;
    for (int c = 0; c < 2; c++)
        for (size_t f = 0; f < n; f++)
            for (size_t i = 0; i < series[c]->ncoef; i++)
                t->coef[c][i * n + f] = series[c]->coef[f * series[c]->ncoef + i];
    return SPX_OK;
}

/* Traces have no ranges of their own: the polynomials at a wavelength are those of all. */
static int all_on_ccd(const spx_psf *psf, size_t nx, size_t ny, double lambda, const traces_beside *t)
{
    const double right = (double)nx - 0.5, top = (double)ny - 0.5;
    spx_legendre_basis(psf->x.ncoef, spx_psf_u(psf->x.wmin, psf->x.wmax, lambda), t->basis);
    spx_psf_series_beside(psf->x.ncoef, psf->nspec, t->coef[0], t->basis, t->at[0]);
    spx_legendre_basis(psf->y.ncoef, spx_psf_u(psf->y.wmin, psf->y.wmax, lambda), t->basis);
    spx_psf_series_beside(psf->y.ncoef, psf->nspec, t->coef[1], t->basis, t->at[1]);
    for (size_t f = 0; f < psf->nspec; f++) {
        const double x = t->at[0][f], y = t->at[1][f];
        if (t->counts[f] && !(x >= -0.5 && y >= -0.5 && x < right && y < top))
            return 0;
    }
    return 1;
}

void spx_psf_range(const spx_psf *psf, double *lo, double *hi)
{
    *lo = fmax(psf->wmin, fmax(psf->x.wmin, psf->y.wmin));
    *hi = fmin(psf->wmax, fmin(psf->x.wmax, psf->y.wmax));
}

double spx_psf_sigma_along(const spx_psf *psf, size_t fibre)
{
    double lo, hi;
    spx_psf_range(psf, &lo, &hi);
    const double middle = 0.5 * (lo + hi), h = 0.5; /* Angstrom */
    const double slope =
        fabs(spx_psf_series_value(&psf->y, fibre, middle + h) - spx_psf_series_value(&psf->y, fibre, middle - h)) /
        (2 * h);
    if (psf->sigy < 0 || !(slope > 0))
        return 0;
    const double *c = psf->coeff + ((size_t)psf->sigy * psf->nspec + fibre) * psf->ndeg;
    return spx_legendre_sum(psf->ndeg, c, spx_psf_param_u(psf, fibre, middle)) / slope;
}

static double round_step(double x)
{
    static const double mantissa[] = {1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8};
    const double decade = pow(10, floor(log10(x)));
    double step = decade;
    for (size_t i = 0; i < sizeof mantissa / sizeof *mantissa && mantissa[i] * decade <= x; i++)
        step = mantissa[i] * decade;
    return step;
}

double spx_psf_step(const spx_psf *psf, size_t fibre, size_t rows, const spx_psf_bins *b)
{
    const double sigma = spx_psf_sigma_along(psf, fibre);
    double lo, hi;
    spx_psf_range(psf, &lo, &hi);
    if (!(sigma > 0 && hi > lo && rows > 0) || (b->usual >= b->narrowest * sigma && b->usual <= b->widest * sigma))
        return b->usual;
    const double step = fmin(fmax(b->sigmas * sigma, (hi - lo) / (double)rows), (hi - lo) / FEWEST_BINS);
    return b->round ? round_step(step) : step;
}

double spx_psf_ghsigx(const spx_psf *psf, size_t fibre, double lambda)
{
    if (psf->sigx < 0)
        return 0;
    return spx_legendre_sum(psf->ndeg, psf->coeff + ((size_t)psf->sigx * psf->nspec + fibre) * psf->ndeg,
                            spx_psf_param_u(psf, fibre, lambda));
}

void spx_psf_usable(const spx_psf *psf, size_t fibre, double *lo, double *hi)
{
    const double *range = psf->valid_range != NULL ? psf->valid_range : psf->wave_range;
    *lo = range != NULL ? range[2 * fibre] : -HUGE_VAL;
    *hi = range != NULL ? range[2 * fibre + 1] : HUGE_VAL;
}

double spx_psf_distance(const spx_psf *psf, size_t fibre, size_t other, double lambda, double *its)
{
    enum { STEPS = 4 };   /* Newton's, to the row */
    const double h = 0.5; /* Angstrom */
    double lo, hi;
    if (other >= psf->nspec)
        return SPX_SPOT_FAR;
    spx_psf_usable(psf, other, &lo, &hi);
    const double row = spx_psf_series_value(&psf->y, fibre, lambda);
    double there = lambda >= lo && lambda <= hi ? lambda : 0.5 * (lo + hi);
    for (int i = 0; i < STEPS; i++) {
        const double slope =
            spx_psf_series_value(&psf->y, other, there + h) - spx_psf_series_value(&psf->y, other, there - h);
        there += slope != 0 ? (row - spx_psf_series_value(&psf->y, other, there)) / slope : 0;
    }
    const double d = fabs(spx_psf_series_value(&psf->x, fibre, lambda) - spx_psf_series_value(&psf->x, other, there));
    if (its != NULL)
        *its = there;
    return isfinite(d) ? d : SPX_SPOT_FAR;
}

/* 1 when any trace may be used and lies on the CCD at this wavelength. */
static int any_on_ccd(const spx_psf *psf, size_t nx, size_t ny, double lambda)
{
    for (size_t f = 0; f < psf->nspec; f++) {
        double lo, hi;
        spx_psf_usable(psf, f, &lo, &hi);
        if (!(lambda >= lo && lambda <= hi))
            continue;
        const double x = spx_psf_series_value(&psf->x, f, lambda), y = spx_psf_series_value(&psf->y, f, lambda);
        if (x >= -0.5 && y >= -0.5 && x < (double)nx - 0.5 && y < (double)ny - 0.5)
            return 1;
    }
    return 0;
}

/* Places of a trace: at both ends, in the middle and a quarter from both ends of its wavelengths. */
enum { PLACES = 5 };
typedef struct {
    double x[PLACES], y[PLACES];
    int used;
} places;

static places places_of(const spx_psf *psf, size_t f)
{
    double range[2], lo, hi;
    places p;
    spx_psf_range(psf, &range[0], &range[1]);
    const double *own = psf->wave_range != NULL ? psf->wave_range + 2 * f : range; /* orders: at the same places */
    spx_psf_usable(psf, f, &lo, &hi);
    p.used = hi >= lo;
    for (int k = 0; k < PLACES; k++) {
        const double lambda = own[0] + (own[1] - own[0]) * k / (PLACES - 1);
        p.x[k] = spx_psf_series_value(&psf->x, f, lambda);
        p.y[k] = spx_psf_series_value(&psf->y, f, lambda);
    }
    return p;
}

static int are_together(const places *a, const places *b)
{
    int together = 1;
    for (int k = 0; k < PLACES && together; k += 2)
        together = fabs(a->x[k] - b->x[k]) < 0.5 && fabs(a->y[k] - b->y[k]) < 5.0;
    return together;
}

/* Nowhere on the CCD, or all in one row. */
static int is_off(const places *p, size_t nx, size_t ny)
{
    if (fabs(p->y[PLACES - 1] - p->y[0]) < 1.0)
        return 1;
    for (int k = 0; k < PLACES; k++)
        if (p->x[k] >= -0.5 && p->y[k] >= -0.5 && p->x[k] < (double)nx - 0.5 && p->y[k] < (double)ny - 0.5)
            return 0;
    return 1;
}

/* Part of the traces that may lie nowhere on a CCD that the others are of. */
#define MOST_OFF 0.25

/* Sets counts[nspec]: 0 for traces that lie nowhere on the CCD, or may be used nowhere, unless too many do. */
static void count_traces(const spx_psf *psf, size_t nx, size_t ny, uint8_t *counts)
{
    size_t off = 0;
    for (size_t f = 0; f < psf->nspec; f++) {
        const places p = places_of(psf, f);
        counts[f] = p.used && !is_off(&p, nx, ny);
        off += !counts[f];
    }
    if ((double)off > MOST_OFF * (double)psf->nspec)
        memset(counts, 1, psf->nspec);
}

spx_status spx_psf_coverage(const spx_psf *psf, size_t nx, size_t ny, double step, double *wmin, double *wmax,
                            spx_err *e)
{
    double lo, hi;
    spx_psf_range(psf, &lo, &hi);
    if (!(step > 0.0 && isfinite(step) && hi >= lo && (hi - lo) / step < MAX_POINTS))
        return spx_fail_remedy(e, SPX_EINPUT, "give {wavelength}",
                               "psf: no usable wavelengths between %g and %g Angstrom in steps of %g", lo, hi, step);
    double first = ceil(lo / step), last = floor(hi / step), best = 0.0, run = 0.0;
    traces_beside traces;
    if (traces_make(psf, &traces, e) != SPX_OK) {
        traces_free(&traces);
        return SPX_EIO;
    }
    count_traces(psf, nx, ny, traces.counts);
    for (double k = first; k <= last && psf->wave_range != NULL; k += 1.0)
        if (any_on_ccd(psf, nx, ny, k * step)) {
            *wmin = best > 0.0 ? *wmin : k * step;
            *wmax = k * step;
            best = 1.0;
        }
    for (double k = first; k <= last && psf->wave_range == NULL; k += 1.0) {
        run = all_on_ccd(psf, nx, ny, k * step, &traces) ? run + 1.0 : 0.0;
        if (run > best) {
            best = run;
            *wmin = (k - run + 1.0) * step;
            *wmax = k * step;
        }
    }
    traces_free(&traces);
    if (!(best > 0.0))
        return spx_fail(e, SPX_EINPUT,
                        "psf: at no wavelength do the traces lie on the CCD of %zu x %zu pixels: image and PSF do not "
                        "belong together, or give {wavelength}",
                        nx, ny);
    return SPX_OK;
}

/* Rows, and times the median step from trace to trace, that a trace may be away from the nearer of its neighbours;
 * columns that it may lie beyond both. */
#define ROWS    10.0
#define STEPS   10.0
#define COLUMNS 1.0
/* Part of the traces that may be apart: with more, the arrangement is another. */
#define MOST_APART 0.25
/* Steps from trace to trace against the order of most, or a fifth of all: with more, fibres are numbered otherwise. */
enum { FEW_BACK = 2 };
#define MOST_BACK 0.2

static double rows_between(const places *a, const places *b)
{
    return fmin(fabs(a->y[1] - b->y[1]), fmin(fabs(a->y[2] - b->y[2]), fabs(a->y[3] - b->y[3])));
}

/* Finds traces that their neighbours in the slit contradict: p[n] of those that are used, in their order; step[n]. */
static void find_apart(size_t n, const places *const *p, double *step, uint8_t *apart)
{
    size_t found = 0, right = 0;
    for (size_t f = 0; f + 1 < n; f++) {
        step[f] = rows_between(p[f], p[f + 1]);
        right += p[f + 1]->x[2] > p[f]->x[2];
    }
    const double far = fmax(ROWS, STEPS * spx_median(step, n - 1)), sign = 2 * right > n - 1 ? 1 : -1;
    const size_t back = sign > 0 ? n - 1 - right : right;
    const int ordered = back <= FEW_BACK || (double)back <= MOST_BACK * (double)n;
    for (size_t f = 0; f < n; f++) {
        /* of the first and last trace, the two beside it */
        const places *one = p[f > 0 ? f - 1 : 1], *two = p[f > 0 && f + 1 < n ? f + 1 : f > 0 ? n - 3 : 2];
        const double before = sign * (p[f]->x[2] - one->x[2]), after = sign * (two->x[2] - p[f]->x[2]),
                     order = sign * (two->x[2] - one->x[2]);
        const int inside = f > 0 && f + 1 < n, beyond = f == 0   ? before > COLUMNS && order > 0
                                                        : inside ? order > 0 && fmin(before, after) < -COLUMNS
                                                                 : before < -COLUMNS && order < 0;
        apart[f] = fmin(rows_between(p[f], one), rows_between(p[f], two)) > far || (ordered && beyond);
        found += apart[f];
    }
    if ((double)found > MOST_APART * (double)n)
        memset(apart, 0, n);
}

/* Marks in exchanged[n] pairs of traces that are apart each, and in the other's place neither; at most MOST_EXCHANGED
 * traces that are apart are looked at. again[n]: room. */
static void find_exchanged(size_t n, const places **p, double *step, const uint8_t *apart, uint8_t *again,
                           uint8_t *exchanged)
{
    enum { MOST_EXCHANGED = 16 };
    size_t which[MOST_EXCHANGED], m = 0;
    for (size_t f = 0; f < n; f++) {
        if (apart[f] && m == MOST_EXCHANGED)
            return;
        if (apart[f])
            which[m++] = f;
    }
    for (size_t i = 0; i < m; i++)
        for (size_t k = i + 1; k < m; k++) {
            const size_t a = which[i], b = which[k];
            if (exchanged[a] || exchanged[b])
                continue;
            const places *const first = p[a];
            p[a] = p[b];
            p[b] = first;
            find_apart(n, p, step, again);
            exchanged[a] = exchanged[b] = !again[a] && !again[b];
            p[b] = p[a];
            p[a] = first;
        }
}

spx_status spx_psf_odd_traces(const spx_psf *psf, size_t nx, size_t ny, uint32_t *odd, double *together, spx_err *e)
{
    enum { FEWEST = 5 }; /* traces that have neighbours */
    const size_t n = psf->nspec;
    places *p = spx_alloc(n, sizeof *p, e);
    const places **used = p != NULL ? spx_alloc(n, sizeof *used, e) : NULL;
    size_t *which = used != NULL ? spx_alloc(n, sizeof *which, e) : NULL, m = 0, next = 0;
    double *step = which != NULL ? spx_alloc(n, sizeof *step, e) : NULL;
    uint8_t *apart = step != NULL ? spx_alloc2(3, n, sizeof *apart, e) : NULL;
    spx_status st = apart != NULL ? SPX_OK : SPX_EIO;
    for (size_t f = 0; f < n && st == SPX_OK; f++) {
        p[f] = places_of(psf, f);
        odd[f] = p[f].used && is_off(&p[f], nx, ny) ? SPX_ODD_OFF : 0;
        next += f > 0 && p[f].used && p[f - 1].used && are_together(&p[f - 1], &p[f]);
        if (p[f].used) {
            which[m] = f;
            used[m++] = &p[f];
        }
    }
    for (size_t i = 0; i < m && st == SPX_OK; i++)
        for (size_t k = i + 1; k < m; k++)
            if (are_together(used[i], used[k])) {
                odd[which[i]] |= SPX_ODD_TOGETHER;
                odd[which[k]] |= SPX_ODD_TOGETHER;
            }
    if (st == SPX_OK && m >= FEWEST && psf->wave_range == NULL && psf->order == NULL) {
        find_apart(m, used, step, apart);
        uint8_t *exchanged = apart + n;
        find_exchanged(m, used, step, apart, apart + 2 * n, exchanged);
        for (size_t i = 0; i < m; i++)
            odd[which[i]] |= exchanged[i] ? SPX_ODD_EXCHANGED : apart[i] ? SPX_ODD_APART : 0;
    }
    *together = n > 1 ? (double)next / (double)(n - 1) : 0.0;
    spx_free(p);
    spx_free(used);
    spx_free(which);
    spx_free(step);
    spx_free(apart);
    return st;
}

/* Legendre coefficients d[n] of c's series as a function of v, where its argument is u = a v + b. work[3][n]. The
 * series of P_{k+1}(u) follows from (k+1) P_{k+1} = (2k+1) u P_k - k P_{k-1} with
 * v P_j(v) = ((j+1) P_{j+1}(v) + j P_{j-1}(v)) / (2j+1). */
static void transform_series(size_t n, const double *c, double a, double b, double *d, double *work)
{
    double *below = work, *here = work + n, *above = work + 2 * n;
    memset(work, 0, 3 * n * sizeof *work);
    memset(d, 0, n * sizeof *d);
    here[0] = 1;
    for (size_t k = 0; k < n; k++) {
        for (size_t j = 0; j <= k; j++)
            d[j] += c[k] * here[j];
        for (size_t j = 0; j < n && j <= k + 1; j++) {
            double times_v = j > 0 ? (double)j / (double)(2 * j - 1) * here[j - 1] : 0;
            if (j + 1 < n)
                times_v += (double)(j + 1) / (double)(2 * j + 3) * here[j + 1];
            above[j] = ((double)(2 * k + 1) * (a * times_v + b * here[j]) - (double)k * below[j]) / (double)(k + 1);
        }
        double *swap = below;
        below = here;
        here = above;
        above = swap;
    }
}

/* Transforms one set of series of psf in place: coef[nseries][nspec][n] over [wmin, wmax], or the ranges of the
 * traces. */
static spx_status transform_all(const spx_psf *psf, size_t nseries, size_t n, double wmin, double wmax,
                                const double *factor, double *coef, spx_err *e)
{
    double *work = spx_alloc2(4, n, sizeof *work, e);
    if (work == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < nseries * psf->nspec; i++) {
        const size_t f = i % psf->nspec;
        const double lo = psf->wave_range != NULL ? psf->wave_range[2 * f] : wmin;
        const double hi = psf->wave_range != NULL ? psf->wave_range[2 * f + 1] : wmax;
        double a = 1 / factor[f];
        memcpy(work, coef + i * n, n * sizeof *work);
        transform_series(n, work, a, (a - 1) * (hi + lo) / (hi - lo), coef + i * n, work + n);
    }
    spx_free(work);
    return SPX_OK;
}

/* Stretches the ranges in which the traces may be used; without them, those of the series. */
static spx_status transform_ranges(const double *factor, spx_psf *psf, spx_err *e)
{
    if (psf->valid_range == NULL && psf->wave_range != NULL) {
        if ((psf->valid_range = spx_alloc2(psf->nspec, 2, sizeof *psf->valid_range, e)) == NULL)
            return SPX_EIO;
        memcpy(psf->valid_range, psf->wave_range, 2 * psf->nspec * sizeof *psf->valid_range);
    }
    for (size_t i = 0; i < 2 * psf->nspec && psf->valid_range != NULL; i++)
        psf->valid_range[i] *= factor[i / 2];
    return SPX_OK;
}

/* The grid of spots stays at the detector's wavelengths. */
static spx_status transform_grid(const double *factor, spx_psf *psf, spx_err *e)
{
    spx_psf_grid *g = &psf->grid;
    if (psf->type != SPX_PSF_SPOTGRID)
        return SPX_OK;
    const int first = g->stretched == NULL;
    if (first && (g->stretched = spx_alloc(psf->nspec, sizeof *g->stretched, e)) == NULL)
        return SPX_EIO;
    for (size_t f = 0; f < psf->nspec; f++)
        g->stretched[f] = (first ? 1.0 : g->stretched[f]) * factor[f];
    return SPX_OK;
}

spx_status spx_psf_to_barycentre(const spx_psf *from, const double *factor, spx_psf *to, spx_err *e)
{
    spx_status st = spx_psf_copy(from, to, e);
    if (st == SPX_OK)
        st = transform_all(to, 1, to->x.ncoef, to->x.wmin, to->x.wmax, factor, to->x.coef, e);
    if (st == SPX_OK)
        st = transform_all(to, 1, to->y.ncoef, to->y.wmin, to->y.wmax, factor, to->y.coef, e);
    if (st == SPX_OK)
        st = transform_all(to, to->npar, to->ndeg, to->wmin, to->wmax, factor, to->coeff, e);
    if (st == SPX_OK)
        st = transform_ranges(factor, to, e);
    if (st == SPX_OK)
        st = transform_grid(factor, to, e);
    if (st != SPX_OK)
        spx_psf_free(to);
    return st;
}

/* Part of the range of all that a trace has to have: polynomials are worth nothing far beyond their own. */
#define LEAST_OF_ALL 0.8

/* Sets of series over the ranges of the traces, coef[nseries][nspec][n], as those over the range of all. */
static spx_status stretch_all(const spx_psf *psf, size_t nseries, size_t n, double *coef, spx_err *e)
{
    double *work = spx_alloc2(4, n, sizeof *work, e);
    if (work == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < nseries * psf->nspec; i++) {
        const double *own = psf->wave_range + 2 * (i % psf->nspec), wide = own[1] - own[0];
        memcpy(work, coef + i * n, n * sizeof *work);
        transform_series(n, work, (psf->wmax - psf->wmin) / wide, (psf->wmin + psf->wmax - own[0] - own[1]) / wide,
                         coef + i * n, work + n);
    }
    spx_free(work);
    return SPX_OK;
}

spx_status spx_psf_one_range(spx_psf *psf, spx_err *e)
{
    double *range = psf->wave_range;
    for (size_t f = 0; f < psf->nspec && range != NULL; f++)
        if (range[2 * f + 1] - range[2 * f] < LEAST_OF_ALL * (psf->wmax - psf->wmin))
            return SPX_OK;
    if (range == NULL)
        return SPX_OK;
    spx_status st = stretch_all(psf, 1, psf->x.ncoef, psf->x.coef, e);
    if (st == SPX_OK)
        st = stretch_all(psf, 1, psf->y.ncoef, psf->y.coef, e);
    if (st == SPX_OK)
        st = stretch_all(psf, psf->npar, psf->ndeg, psf->coeff, e);
    if (st != SPX_OK)
        return st;
    spx_psf_set_wave_range(psf, NULL);
    if (psf->valid_range == NULL)
        psf->valid_range = range;
    else
        spx_free(range);
    return SPX_OK;
}
