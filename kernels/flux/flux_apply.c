/* Provides flux calibration with a response (flux/flux.h). */
#include "base/mem.h"
#include "calib/resolution.h"
#include "flux/flux.h"
#include "flux/flux_math.h"

/* Scales the rows of r that the ends cut. */
static void complete_ends(size_t n, size_t ndiag, double *r, double *scale)
{
    const size_t h = ndiag / 2;
    spx_flux_end_rows(n, ndiag, r, scale);
    for (size_t b = 0; b < ndiag; b++)
        for (size_t i = 0; i < 2 * h; i++) {
            const size_t k = i < h ? i : n - 2 * h + i, j = k + h - b; /* wraps below 0 to beyond n */
            if (j < n)
                r[b * n + j] *= scale[i];
        }
}

/* One fibre: calibrates, with ci[n] = R C and v[n] its variance. */
static void calibrate(const spx_flux *f, const double *c, const double *ci, const double *v, size_t n, size_t ndiag,
                      double *flux, double *ivar, uint32_t *mask, double *r, uint8_t *bad)
{
    for (size_t k = 0; k < n; k++) {
        const double more = f->model_error[k] * f->model_error[k] + f->floor * f->floor;
        bad[k] = (uint8_t)!spx_flux_bin(ci[k], v[k], more, f->stars[k], &flux[k], &ivar[k]);
        if (bad[k] && mask != NULL)
            mask[k] |= SPX_NODATA;
    }
    for (size_t b = 0; b < ndiag; b++)
        for (size_t j = 0; j < n; j++) {
            const size_t k = j + b; /* row k - ndiag/2 */
            if (k >= ndiag / 2 && k - ndiag / 2 < n && !bad[k - ndiag / 2])
                r[b * n + j] = spx_flux_element(r[b * n + j], c[j], ci[k - ndiag / 2]);
        }
}

spx_status spx_flux_apply_cpu(const spx_flux *f, double factor, int nthreads, size_t nspec, spx_arm *arm, size_t *nbad,
                              spx_err *e)
{
    const size_t n = arm->nwave, ndiag = arm->ndiag, threads = nthreads > 0 ? (size_t)nthreads : 1;
    spx_status st = spx_flux_check(f, nspec, arm, e);
    if (st != SPX_OK)
        return st;
    double *c = spx_alloc(n, sizeof *c, e), *cov = spx_alloc2(ndiag, n, sizeof *cov, e);
    uint8_t *bad = spx_alloc2(nspec, n, 1, e);
    if (c == NULL || cov == NULL || bad == NULL)
        st = SPX_EIO;
    /* of matrices of other numbers of diagonals, what of the covariance is known */
    for (size_t k = 0; k < n && st == SPX_OK; k++)
        c[k] = factor * f->response[k];
    for (size_t k = 0; k < (ndiag < f->ndiag ? ndiag : f->ndiag) * n && st == SPX_OK; k++)
        cov[k] = factor * factor * f->covariance[k];
#pragma omp parallel num_threads(threads)
    {
        spx_err mine = {0};
        double *work = st == SPX_OK ? spx_alloc2(3, n, sizeof *work, &mine) : NULL;
#pragma omp for schedule(static)
        for (size_t i = 0; i < nspec; i++) {
            if (work == NULL)
                continue;
            double *r = arm->resolution + i * ndiag * n;
            complete_ends(n, ndiag, r, work + 2 * n);
            spx_resolution_apply(n, ndiag, r, c, work);
            spx_resolution_variance(n, ndiag, r, cov, work + n);
            calibrate(f, c, work, work + n, n, ndiag, arm->flux + i * n, arm->ivar + i * n,
                      arm->mask != NULL ? arm->mask + i * n : NULL, r, bad + i * n);
        }
        if (mine.code != SPX_OK) {
#pragma omp critical(spx_flux_error)
            st = spx_err_pass(e, &mine);
        }
        spx_free(work);
    }
    for (size_t k = 0; k < n && st == SPX_OK && nbad != NULL; k++) {
        int any = 0;
        for (size_t i = 0; i < nspec && !any; i++)
            any = bad[i * n + k];
        *nbad += (size_t)any;
    }
    spx_free(c);
    spx_free(cov);
    spx_free(bad);
    return st;
}
