/* Provides the principal components of a cross-correlation set (ccf_pca.h). */
#include "spectral/ccf_pca.h"

#include <cblas.h>
#include <lapacke.h>
#include <math.h>

#include "base/mem.h"
#include "num/blas.h"

enum { MOST = 512 /* entries that the components are made from */ };
static const double CUT = 1e-3;      /* power of the entries that may lie in frequencies that are left out */
static const double LEFT_OUT = 0.04; /* rms of the entries that the components may leave out */

spx_status spx_ccf_pca_make(const spx_ccf_set *f, const char *setup, spx_ccf_pca *out, spx_err *e)
{
    size_t nt = f->ntemp, half = f->nwave / 2 + 1, step = (nt + MOST - 1) / MOST;
    size_t n = (nt + step - 1) / step, width, k = 0;
    *out = (spx_ccf_pca){0};
    spx_status st = spx_blas_open(e);
    if (st != SPX_OK)
        return st;
    st = SPX_EIO;
    double *gram = spx_alloc2(n, n, sizeof *gram, e), *value = spx_alloc(n, sizeof *value, e);
    float *x = NULL, *vector = spx_alloc2(n, n, sizeof *vector, e), *power = spx_alloc(half, sizeof *power, e);
    if (!gram || !value || !vector || !power)
        goto end;

    double sum = 0, left = 0;
    for (size_t t = 0; t < nt; t += step)
        for (size_t i = 0; i < half; i++) {
            const float *z = f->fft + (t * half + i) * 2;
            power[i] += z[0] * z[0] + z[1] * z[1];
        }
    for (size_t i = 0; i < half; i++)
        sum += (double)power[i];
    for (out->nshort = f->nwave; out->nshort > 32; out->nshort /= 2) {
        for (size_t i = out->nshort / 4; i < half && i <= out->nshort / 2; i++)
            left += (double)power[i];
        if (left > CUT * sum)
            break;
    }
    width = 4 * (out->nshort / 2 + 1);
    if (!(x = spx_alloc2(nt, width, sizeof *x, e)))
        goto end;
    for (size_t t = 0; t < nt; t++)
        for (size_t i = 0; i + 2 < width / 2; i++) { /* 0 at nshort/2, which is its own conjugate */
            x[t * width + i] = f->fft[t * half * 2 + i];
            x[t * width + width / 2 + i] = f->fft2[t * half * 2 + i];
        }
    cblas_ssyrk(CblasRowMajor, CblasLower, CblasNoTrans, (int)n, (int)width, 1, x, (int)(step * width), 0, vector,
                (int)n);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++)
            gram[i * n + j] = (double)vector[i * n + j];
    if (LAPACKE_dsyevd(LAPACK_ROW_MAJOR, 'V', 'L', (int)n, gram, (int)n, value) != 0) {
        st = spx_fail(e, SPX_EINPUT, "cross-correlation set of setup '%.63s' is not usable", setup);
        goto end;
    }
    sum = left = 0;
    for (size_t i = 0; i < n; i++)
        sum += fmax(0, value[i]);
    while (k + 1 < n && left + fmax(0, value[k]) <= LEFT_OUT * LEFT_OUT * sum)
        left += fmax(0, value[k++]);
    out->ncomp = n - k;
    out->comp = spx_alloc2(out->ncomp, width, sizeof *out->comp, e);
    out->coef = spx_alloc2(nt, out->ncomp, sizeof *out->coef, e);
    if (!out->comp || !out->coef)
        goto end;
    for (size_t c = 0; c < out->ncomp; c++)
        for (size_t i = 0; i < n; i++)
            vector[c * n + i] = (float)(value[n - 1 - c] > 0 ? gram[i * n + n - 1 - c] / sqrt(value[n - 1 - c]) : 0);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)out->ncomp, (int)width, (int)n, 1, vector, (int)n, x,
                (int)(step * width), 0, out->comp, (int)width);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)nt, (int)out->ncomp, (int)width, 1, x, (int)width,
                out->comp, (int)width, 0, out->coef, (int)out->ncomp);
    st = SPX_OK;
end:
    if (st != SPX_OK)
        spx_ccf_pca_free(out);
    spx_free(gram);
    spx_free(value);
    spx_free(vector);
    spx_free(power);
    spx_free(x);
    return st;
}
