/* Provides PSF of a whole detector: wavelength coverage of a CCD, and change to barycentric wavelengths (psf/psf.h). */
#include "psf/psf.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "psf/psf_math.h"

/* Limit of grid points, more than any spectrograph has pixels along a trace: beyond it, the step is wrong. */
#define MAX_POINTS 1e6

static int all_on_ccd(const spx_psf *psf, size_t nx, size_t ny, double lambda)
{
    for (size_t f = 0; f < psf->nspec; f++) {
        double x = spx_psf_series_value(&psf->x, f, lambda), y = spx_psf_series_value(&psf->y, f, lambda);
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

spx_status spx_psf_coverage(const spx_psf *psf, size_t nx, size_t ny, double step, double *wmin, double *wmax,
                            spx_err *e)
{
    double lo, hi;
    spx_psf_range(psf, &lo, &hi);
    if (!(step > 0.0 && isfinite(step) && hi >= lo && (hi - lo) / step < MAX_POINTS))
        return spx_fail_remedy(e, SPX_EINPUT, "give {wavelength}",
                               "psf: no usable wavelengths between %g and %g Angstrom in steps of %g", lo, hi, step);
    double first = ceil(lo / step), last = floor(hi / step), best = 0.0, run = 0.0;
    for (double k = first; k <= last; k += 1.0) {
        run = all_on_ccd(psf, nx, ny, k * step) ? run + 1.0 : 0.0;
        if (run > best) {
            best = run;
            *wmin = (k - run + 1.0) * step;
            *wmax = k * step;
        }
    }
    if (!(best > 0.0))
        return spx_fail(e, SPX_EINPUT,
                        "psf: at no wavelength do all traces lie on the CCD of %zu x %zu pixels: image and PSF do not "
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
        for (int k = 0; k < 3 && together; k++) {
            const double lambda = lo + 0.5 * k * (hi - lo);
            together =
                fabs(spx_psf_series_value(&psf->x, f, lambda) - spx_psf_series_value(&psf->x, f + 1, lambda)) < 0.5 &&
                fabs(spx_psf_series_value(&psf->y, f, lambda) - spx_psf_series_value(&psf->y, f + 1, lambda)) < 5.0;
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

/* Transforms one set of series over [wmin, wmax]: coef[nseries][nspec][n]. */
static spx_status transform_all(size_t nseries, size_t nspec, size_t n, double wmin, double wmax, const double *coef,
                                const double *factor, double **out, spx_err *e)
{
    double *work = spx_alloc2(3, n, sizeof *work, e);
    *out = spx_alloc2(nseries * nspec, n, sizeof **out, e);
    spx_status st = work == NULL || *out == NULL ? SPX_EIO : SPX_OK;
    for (size_t i = 0; i < nseries * nspec && st == SPX_OK; i++) {
        double a = 1 / factor[i % nspec];
        transform_series(n, coef + i * n, a, (a - 1) * (wmax + wmin) / (wmax - wmin), *out + i * n, work);
    }
    spx_free(work);
    return st;
}

spx_status spx_psf_to_barycentre(const spx_psf *from, const double *factor, spx_psf *to, spx_err *e)
{
    size_t ngh = (size_t)(from->ghdegx + 1) * (size_t)(from->ghdegy + 1);
    *to = *from;
    to->x.coef = to->y.coef = to->coeff = NULL;
    to->header = (spx_cards){0};
    to->param = spx_alloc(from->npar, sizeof *to->param, e);
    to->gh = spx_alloc(ngh, sizeof *to->gh, e);
    spx_status st = to->param == NULL || to->gh == NULL ? SPX_EIO : spx_cards_copy(&to->header, &from->header, e);
    if (st == SPX_OK) {
        memcpy(to->param, from->param, from->npar * sizeof *to->param);
        memcpy(to->gh, from->gh, ngh * sizeof *to->gh);
        st = transform_all(1, from->nspec, from->x.ncoef, from->x.wmin, from->x.wmax, from->x.coef, factor, &to->x.coef,
                           e);
    }
    if (st == SPX_OK)
        st = transform_all(1, from->nspec, from->y.ncoef, from->y.wmin, from->y.wmax, from->y.coef, factor, &to->y.coef,
                           e);
    if (st == SPX_OK)
        st = transform_all(from->npar, from->nspec, from->ndeg, from->wmin, from->wmax, from->coeff, factor, &to->coeff,
                           e);
    if (st != SPX_OK)
        spx_psf_free(to);
    return st;
}
