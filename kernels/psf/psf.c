/* Provides PSF of a whole detector: wavelength coverage of a CCD, and change to barycentric wavelengths (psf/psf.h). */
#include "psf/psf.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "psf/psf_math.h"

/* Limit of grid points, more than any spectrograph has pixels along a trace: beyond it, the step is wrong. */
#define MAX_POINTS 1e6
/* Bins of a range whose spots are said to be as wide as it. */
#define FEWEST_BINS 50

/* Traces have no ranges of their own: the polynomials at a wavelength are those of all. basis: scratch [ncoef of x] and
 * [ncoef of y]. */
static int all_on_ccd(const spx_psf *psf, size_t nx, size_t ny, double lambda, double *basis)
{
    const size_t mx = psf->x.ncoef, my = psf->y.ncoef;
    spx_legendre_basis(mx, spx_psf_u(psf->x.wmin, psf->x.wmax, lambda), basis);
    spx_legendre_basis(my, spx_psf_u(psf->y.wmin, psf->y.wmax, lambda), basis + mx);
    for (size_t f = 0; f < psf->nspec; f++) {
        const double x = spx_basis_sum((int)mx, psf->x.coef + f * mx, basis),
                     y = spx_basis_sum((int)my, psf->y.coef + f * my, basis + mx);
        if (!(x >= -0.5 && y >= -0.5 && x < (double)nx - 0.5 && y < (double)ny - 0.5))
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

spx_status spx_psf_coverage(const spx_psf *psf, size_t nx, size_t ny, double step, double *wmin, double *wmax,
                            spx_err *e)
{
    double lo, hi;
    spx_psf_range(psf, &lo, &hi);
    if (!(step > 0.0 && isfinite(step) && hi >= lo && (hi - lo) / step < MAX_POINTS))
        return spx_fail_remedy(e, SPX_EINPUT, "give {wavelength}",
                               "psf: no usable wavelengths between %g and %g Angstrom in steps of %g", lo, hi, step);
    double first = ceil(lo / step), last = floor(hi / step), best = 0.0, run = 0.0;
    double *basis = spx_alloc(psf->x.ncoef + psf->y.ncoef, sizeof *basis, e);
    if (basis == NULL)
        return SPX_EIO;
    for (double k = first; k <= last && psf->wave_range != NULL; k += 1.0)
        if (any_on_ccd(psf, nx, ny, k * step)) {
            *wmin = best > 0.0 ? *wmin : k * step;
            *wmax = k * step;
            best = 1.0;
        }
    for (double k = first; k <= last && psf->wave_range == NULL; k += 1.0) {
        run = all_on_ccd(psf, nx, ny, k * step, basis) ? run + 1.0 : 0.0;
        if (run > best) {
            best = run;
            *wmin = (k - run + 1.0) * step;
            *wmax = k * step;
        }
    }
    spx_free(basis);
    if (!(best > 0.0))
        return spx_fail(e, SPX_EINPUT,
                        "psf: at no wavelength do the traces lie on the CCD of %zu x %zu pixels: image and PSF do not "
                        "belong together, or give {wavelength}",
                        nx, ny);
    return SPX_OK;
}

double spx_psf_coinciding(const spx_psf *psf)
{
    double lo, hi;
    size_t n = 0;
    spx_psf_range(psf, &lo, &hi);
    for (size_t f = 0; f + 1 < psf->nspec; f++) {
        int together = 1;
        const double *range = psf->wave_range != NULL ? psf->wave_range + 2 * f : NULL;
        for (int k = 0; k < 3 && together; k++) {
            /* orders: at the same places of their ranges */
            const double one = range == NULL ? lo + 0.5 * k * (hi - lo) : range[0] + 0.5 * k * (range[1] - range[0]);
            const double two = range == NULL ? one : range[2] + 0.5 * k * (range[3] - range[2]);
            together = fabs(spx_psf_series_value(&psf->x, f, one) - spx_psf_series_value(&psf->x, f + 1, two)) < 0.5 &&
                       fabs(spx_psf_series_value(&psf->y, f, one) - spx_psf_series_value(&psf->y, f + 1, two)) < 5.0;
        }
        n += (size_t)together;
    }
    return psf->nspec > 1 ? (double)n / (double)(psf->nspec - 1) : 0.0;
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
