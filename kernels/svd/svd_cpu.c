/* Provides singular value decomposition on the CPU: LAPACK and BLAS with one thread, so that the result is
 * reproducible. */
#include <cblas.h>
#include <lapacke.h>
#include <string.h>

#include "base/mem.h"
#include "num/blas.h"
#include "svd/svd.h"

static spx_status lapack_failed(lapack_int info, spx_err *e)
{
    if (info == LAPACK_WORK_MEMORY_ERROR || info == LAPACK_TRANSPOSE_MEMORY_ERROR)
        return spx_fail_remedy(e, SPX_EIO, "keep fewer modes with {rank} and {method} randomised", "out of memory");
    if (info > 0)
        return spx_fail(e, SPX_EINPUT, "the decomposition does not converge: are some values far too large?");
    return spx_fail(e, SPX_EBUG, "LAPACK refuses argument %d", -info);
}

/* All modes of a[m, n] (destroyed): u[m, k], s[k], v[k, n], k = min(m, n). LAPACK is column-major: it gets the
 * transposed matrix, and returns V as U. */
static spx_status economic(double *a, size_t m, size_t n, double *u, double *s, double *v, spx_err *e)
{
    const lapack_int k = (lapack_int)(m < n ? m : n);
    const lapack_int info = LAPACKE_dgesdd(LAPACK_COL_MAJOR, 'S', (lapack_int)n, (lapack_int)m, a, (lapack_int)n, s, v,
                                           (lapack_int)n, u, k);
    return info != 0 ? lapack_failed(info, e) : SPX_OK;
}

static spx_status all_modes(double *a, spx_svd *out, spx_err *e)
{
    const size_t m = out->nrow, n = out->ncol, k = m < n ? m : n;
    double *u = spx_alloc2(m, k, sizeof *u, e), *v = spx_alloc2(k, n, sizeof *v, e), *s = spx_alloc(k, sizeof *s, e);
    spx_status st = u != NULL && v != NULL && s != NULL ? economic(a, m, n, u, s, v, e) : SPX_EIO;
    if (st == SPX_OK) {
        for (size_t i = 0; i < m; i++)
            memcpy(out->u + i * out->nmode, u + i * k, out->nmode * sizeof *u);
        memcpy(out->s, s, out->nmode * sizeof *s);
        memcpy(out->v, v, out->nmode * n * sizeof *v);
    }
    spx_free(u);
    spx_free(v);
    spx_free(s);
    return st;
}

/* Replaces the rows of q[l, n], l <= n, by orthonormal rows that span the same space. */
static spx_status orthonormal(double *q, size_t l, size_t n, double *tau, spx_err *e)
{
    lapack_int info = LAPACKE_dgeqrf(LAPACK_COL_MAJOR, (lapack_int)n, (lapack_int)l, q, (lapack_int)n, tau);
    if (info == 0)
        info = LAPACKE_dorgqr(LAPACK_COL_MAJOR, (lapack_int)n, (lapack_int)l, (lapack_int)l, q, (lapack_int)n, tau);
    return info != 0 ? lapack_failed(info, e) : SPX_OK;
}

/* c[l, p] = b[l, q] a, a[q, p]; or a transposed where a is [p, q]. */
static void product(const double *b, const double *a, int transposed, size_t l, size_t p, size_t q, double *c)
{
    cblas_dgemm(CblasRowMajor, CblasNoTrans, transposed ? CblasTrans : CblasNoTrans, (int)l, (int)p, (int)q, 1.0, b,
                (int)q, a, (int)(transposed ? q : p), 0.0, c, (int)p);
}

/* Leading modes of a[m, n]. y: sample of the column space, z: of the row space, both stored by rows. */
static spx_status leading_modes(const double *a, const spx_svd_options *o, spx_svd *out, spx_err *e)
{
    const size_t m = out->nrow, n = out->ncol, l = spx_svd_sample(o, m, n);
    double *y = spx_alloc2(l, m, sizeof *y, e), *z = spx_alloc2(l, n, sizeof *z, e),
           *tau = spx_alloc(l, sizeof *tau, e);
    double *u = spx_alloc2(l, l, sizeof *u, e), *s = spx_alloc(l, sizeof *s, e), *v = spx_alloc2(l, n, sizeof *v, e);
    spx_status st = y != NULL && z != NULL && tau != NULL && u != NULL && s != NULL && v != NULL ? SPX_OK : SPX_EIO;
    for (size_t i = 0; i < l * n && st == SPX_OK; i++)
        z[i] = spx_svd_random(o->seed, i);
    for (size_t p = 0; p <= o->power && st == SPX_OK; p++) {
        product(z, a, 1, l, m, n, y);
        st = orthonormal(y, l, m, tau, e);
        if (st != SPX_OK)
            break;
        product(y, a, 0, l, n, m, z);
        if (p < o->power)
            st = orthonormal(z, l, n, tau, e);
    }
    /* z = Q^T A, and A ~ Q z within the sampled space */
    if (st == SPX_OK)
        st = economic(z, l, n, u, s, v, e);
    if (st == SPX_OK) {
        cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)m, (int)out->nmode, (int)l, 1.0, y, (int)m, u, (int)l,
                    0.0, out->u, (int)out->nmode);
        memcpy(out->s, s, out->nmode * sizeof *s);
        memcpy(out->v, v, out->nmode * n * sizeof *v);
    }
    spx_free(y);
    spx_free(z);
    spx_free(tau);
    spx_free(u);
    spx_free(s);
    spx_free(v);
    return st;
}

spx_status spx_svd_cpu(double *a, size_t nrow, size_t ncol, const spx_svd_options *o, spx_svd *out, spx_err *e)
{
    double total, scale;
    spx_status st = spx_blas_open(e);
    if (st == SPX_OK)
        st = spx_svd_begin(a, nrow, ncol, o, out, &total, &scale, e);
    if (st != SPX_OK)
        return st;
    st = o->method == SPX_SVD_RANDOMISED ? leading_modes(a, o, out, e) : all_modes(a, out, e);
    if (st == SPX_OK)
        spx_svd_end(out, total, scale);
    return st;
}
