/* Provides the cross-correlation set: entries of the library at several vsini, and their transforms. */
#include <fftw3.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/mem.h"
#include "num/wave.h"
#include "spectral/ccf_pca.h"
#include "spectral/continuum.h"
#include "spectral/rotation_math.h"
#include "template/template.h"
#include "template/template_impl.h"

#define LAG_KMS   1500.0
#define TAPER_KMS 200.0

/* Length of the rotation kernel for the largest vsini on this grid. */
static size_t longest_kernel(const spx_setup *s, size_t n, const double *vsini)
{
    size_t reach = 1;
    for (size_t i = 0; i < n; i++) {
        size_t k = spx_rotation_reach(vsini[i] / SPX_C_KMS / s->dlnwave);
        reach = k > reach ? k : reach;
    }
    return reach;
}

/* Makes one entry. work: workspace of a thread, doubles: template (flux itself), broadened, continuum, kernel. */
static spx_status make_entry(const spx_setup *s, const double *lnwave, double vsini, double *work, float *flux,
                             spx_err *e)
{
    size_t n = s->nwave;
    double *t = work, *rot = work + n, *cont = work + 2 * n, *w = work + 3 * n;
    double h = vsini / SPX_C_KMS / s->dlnwave, unused;
    size_t reach = spx_rotation_reach(h);
    for (size_t k = 0; k <= reach; k++)
        w[k] = spx_rotation_weight(k, h, &unused);
    for (size_t k = 0; k < n; k++)
        rot[k] = vsini > 0 ? spx_rotation_pixel(t, n, k, w, reach) : t[k];
    spx_status st = spx_continuum_find(log(s->wmin), log(s->wmax), n, lnwave, rot, NULL, cont, e);
    if (st != SPX_OK)
        return st;
    double taper = TAPER_KMS / SPX_C_KMS / s->dlnwave;
    for (size_t k = 0; k < n; k++) {
        double d = 0.5 + (double)(k < n - 1 - k ? k : n - 1 - k); /* distance to the nearer end, pixels */
        double a = d < taper ? sin(0.5 * 3.14159265358979323846 * d / taper) : 1;
        flux[k] = (float)((rot[k] / cont[k] - 1) * a * a);
    }
    return SPX_OK;
}

spx_status spx_template_ccf(spx_setup *s, size_t nccf_row, const size_t *ccf_row, size_t nvsini, const double *vsini,
                            int nthreads, spx_progress *progress, spx_err *e)
{
    spx_status st = SPX_EIO;
    spx_ccf_set *c = &s->ccf;
    int nt = nthreads > 0 ? nthreads : omp_get_max_threads();
    size_t n = s->nwave, need = n + (size_t)ceil(LAG_KMS / SPX_C_KMS / s->dlnwave), entries;
    memset(c, 0, sizeof *c);
    if ((st = spx_mul(nccf_row, nvsini, &entries, e)) != SPX_OK)
        return st;
    st = SPX_EIO;
    for (c->nwave = 4; c->nwave < need; c->nwave *= 2)
        ;
    c->lnwave0 = s->lnwave0;
    c->dlnwave = s->dlnwave;
    size_t nfreq = c->nwave / 2 + 1, nwork = 3 * n + longest_kernel(s, nvsini, vsini) + 1;
    size_t stride = (nwork + 7) / 8 * 8 + (c->nwave + 7) / 8 * 8 + (2 * nfreq + 7) / 8 * 8;
    c->params = spx_alloc2(entries, s->npar, sizeof *c->params, e);
    c->vsini = spx_alloc(entries, sizeof *c->vsini, e);
    c->flux = spx_alloc2(entries, c->nwave, sizeof *c->flux, e);
    c->fft = spx_alloc2(entries, 2 * nfreq, sizeof *c->fft, e);
    c->fft2 = spx_alloc2(entries, 2 * nfreq, sizeof *c->fft2, e);
    double *lnwave = spx_alloc(n, sizeof *lnwave, e);
    double *work = spx_alloc2((size_t)nt, stride, sizeof *work, e);
    void (*exponential)(size_t, const float *, double *) = spx_template_kernels_find()->exponential;
    fftw_plan plan = NULL;
    if (!c->params || !c->vsini || !c->flux || !c->fft || !c->fft2 || !lnwave || !work)
        goto end;
    for (size_t k = 0; k < n; k++)
        lnwave[k] = s->lnwave0 + (double)k * s->dlnwave;
    /* The offsets are multiples of 64 bytes, as spx_alloc()'s are, so that one plan serves every thread. Estimated, not
     * measured: the same plan, and so the same bits, in every run. */
    double *in0 = work + (nwork + 7) / 8 * 8, *out0 = in0 + (c->nwave + 7) / 8 * 8;
    plan = fftw_plan_dft_r2c_1d((int)c->nwave, in0, (fftw_complex *)out0, FFTW_ESTIMATE);
    if (!plan) {
        spx_fail(e, SPX_EIO, "no plan for a Fourier transform of %zu pixels: out of memory?", c->nwave);
        goto end;
    }
    c->ntemp = entries;
    st = SPX_OK;
#pragma omp parallel for num_threads(nt) schedule(static)
    for (size_t p = 0; p < nccf_row; p++) {
        double *mine = work + (size_t)omp_get_thread_num() * stride;
        double *in = mine + (nwork + 7) / 8 * 8, *out = in + (c->nwave + 7) / 8 * 8;
        exponential(n, s->lnflux + ccf_row[p] * n, mine);
        for (size_t i = p * nvsini; i < (p + 1) * nvsini; i++) {
            float *flux = c->flux + i * c->nwave;
            spx_err local = {0};
            memcpy(c->params + i * s->npar, s->params + ccf_row[p] * s->npar, s->npar * sizeof *c->params);
            c->vsini[i] = vsini[i % nvsini];
            if (make_entry(s, lnwave, c->vsini[i], mine, flux, &local)) {
#pragma omp critical(spx_template_ccf_error)
                st = spx_err_pass(e, &local);
                continue;
            }
            for (int square = 0; square < 2; square++) {
                float *to = (square ? c->fft2 : c->fft) + i * 2 * nfreq;
                for (size_t k = 0; k < c->nwave; k++)
                    in[k] = square ? (double)flux[k] * (double)flux[k] : (double)flux[k];
                fftw_execute_dft_r2c(plan, in, (fftw_complex *)out);
                int finite = 1;
                for (size_t k = 0; k < 2 * nfreq; k++) {
                    to[k] = (float)out[k];
                    finite &= isfinite(to[k]) != 0;
                }
                if (!finite) {
#pragma omp critical(spx_template_ccf_error)
                    st = spx_fail_remedy(e, SPX_EINPUT, "leave the spectrum out",
                                         "the flux of spectrum %zu of the library varies by more than any light does",
                                         ccf_row[p]);
                }
            }
            spx_progress_step(progress, 1);
        }
    }
    if (st == SPX_OK)
        st = spx_ccf_pca_make(c, s->setup, &c->pca, e);
end:
    if (plan)
        fftw_destroy_plan(plan);
    spx_free(lnwave);
    spx_free(work);
    return st;
}
