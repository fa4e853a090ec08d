/* Priors of the shape that the arc itself tells (psffit/fit.h). */
#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "num/blas.h"
#include "psffit/step_math.h"

/* Norm of He_i He_j: sqrt(i! j!). */
static double norm_of(int i, int j)
{
    return exp(0.5 * (lgamma(i + 1) + lgamma(j + 1)));
}

/* Class of GH-i-j among those of one term along fibres and wavelengths, by i + j, of which the few of the lowest and of
 * the highest orders are one; -1: it is a place or a width to first order, and has the prior that it always has. */
static int class_of(const spx_pf_plan *p, int i, int j)
{
    const int order = i + j, most = 2 * p->deg - 2;
    if (order < 2 || (order == 2 && i != j))
        return -1;
    return order < 3 ? 3 : order > most && most >= 3 ? most : order;
}

/* Classes of one term along fibres and wavelengths, some of them empty: 3, the lowest, to twice the degree. */
static int classes_of_term(const spx_pf_plan *p)
{
    return 2 * p->deg + 1 > 4 ? 2 * p->deg + 1 : 4;
}

/* Classes of the shape's parameters: class[nshape], and their norms. */
static void classify(const spx_pf_bundle *b, size_t ns, int *class, double *norm)
{
    const spx_pf_plan *p = b->p;
    const int each = classes_of_term(p), side = p->deg + 1;
    for (size_t k = 0; k < ns; k++) {
        const int q = (int)(k % (size_t)p->nq), term = (int)(k / (size_t)p->nq);
        const int i = (q - 1) % side, j = (q - 1) / side, c = q < 2 ? -1 : class_of(p, i, j);
        class[k] = c < 0 ? -1 : term * each + c;
        norm[k] = q < 2 ? 1 : norm_of(i, j);
    }
}

typedef struct {
    size_t n, ns;      /* free columns, and those of the shape, which are the last of them */
    size_t *at;        /* [n] */
    double *m, *r;     /* [n][n] matrix, lower triangle by columns, and right-hand side, without the shape's prior */
    double *c, *z;     /* [ns][ns] a factor, and [ns] parameters of a round */
    double *variance;  /* [ns] theirs */
    double *precision; /* [ns] of the prior */
    double *was;       /* [ns] the same, as it was */
    double *norm, *square; /* [ns]; [nclass] */
    int *class;            /* [ns] */
} room;

/* Schur complement of all other columns in the last ns of the matrix, in place: m_ss - m_st m_tt^-1 m_ts, and r_s. 0:
 * not positive definite. */
static int eliminate(const room *w)
{
    const lapack_int n = (lapack_int)w->n, nt = (lapack_int)(w->n - w->ns), ns = (lapack_int)w->ns;
    double *s = w->m + (size_t)nt * w->n + (size_t)nt;
    if (nt == 0)
        return 1;
    if (LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'L', nt, w->m, n) != 0)
        return 0;
    cblas_dtrsm(CblasColMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, (blasint)ns, (blasint)nt, 1, w->m,
                (blasint)n, w->m + nt, (blasint)n);
    cblas_dsyrk(CblasColMajor, CblasLower, CblasNoTrans, (blasint)ns, (blasint)nt, -1, w->m + nt, (blasint)n, 1, s,
                (blasint)n);
    cblas_dtrsm(CblasColMajor, CblasLeft, CblasLower, CblasNoTrans, CblasNonUnit, (blasint)nt, 1, 1, w->m, (blasint)n,
                w->r, (blasint)n);
    for (lapack_int k = 0; k < ns; k++)
        for (lapack_int l = 0; l < nt; l++)
            w->r[nt + k] -= w->m[(size_t)l * w->n + (size_t)(nt + k)] * w->r[l];
    return 1;
}

/* Parameters of the shape and their variances for precisions of its prior: z, variance. m z = r, parameters counted
 * from their priors' centres. 0: not positive definite. */
static int posterior(const room *w)
{
    const lapack_int ns = (lapack_int)w->ns;
    const size_t nt = w->n - w->ns;
    for (size_t k = 0; k < w->ns; k++) {
        memcpy(w->c + k * w->ns + k, w->m + (nt + k) * w->n + nt + k, (w->ns - k) * sizeof *w->c);
        w->c[k * (w->ns + 1)] += w->precision[k];
        w->z[k] = w->r[nt + k];
    }
    const int ok = LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'L', ns, w->c, ns) == 0 &&
                   LAPACKE_dpotrs_work(LAPACK_COL_MAJOR, 'L', ns, 1, w->c, ns, w->z, ns) == 0 &&
                   LAPACKE_dtrtri_work(LAPACK_COL_MAJOR, 'L', 'N', ns, w->c, ns) == 0;
    /* the diagonal of L^-T L^-1 */
    for (size_t k = 0; k < w->ns && ok; k++) {
        double sum = 0;
        for (size_t i = k; i < w->ns; i++)
            sum += w->c[k * w->ns + i] * w->c[k * w->ns + i];
        w->variance[k] = sum;
    }
    return ok;
}

/* Precisions of a round, from parameters and their variances. */
static void maximise(const room *w, int nclass)
{
    for (int c = 0; c < nclass; c++)
        w->square[c] = spx_pf_square_of_class(w->ns, w->class, c, w->z, w->norm, w->precision, w->variance);
    for (size_t k = 0; k < w->ns; k++)
        if (w->class[k] >= 0)
            w->precision[k] = w->norm[k] * w->norm[k] / w->square[w->class[k]];
}

static spx_status room_new(const spx_pf_bundle *b, size_t n, size_t ns, room *w, spx_err *e)
{
    const size_t nclass = (size_t)(b->p->na * b->p->nb * classes_of_term(b->p));
    *w = (room){.ns = ns,
                .at = spx_alloc(n, sizeof *w->at, e),
                .m = spx_alloc_unset(n * n + n + ns * ns + 5 * ns + nclass, 1, sizeof *w->m, e),
                .class = spx_alloc(ns + 1, sizeof *w->class, e)};
    if (w->at == NULL || w->m == NULL || w->class == NULL)
        return SPX_EIO;
    w->r = w->m + n * n;
    w->c = w->r + n;
    w->z = w->c + ns * ns;
    w->precision = w->z + ns;
    w->was = w->precision + ns;
    w->norm = w->was + ns;
    w->variance = w->norm + ns;
    w->square = w->variance + ns;
    return SPX_OK;
}

/* Rounds by the CPU, of a matrix h and gradient g of n columns. 0: not positive definite. */
static int learn_here(const room *w, size_t n, const double *h, const double *g, int nclass)
{
    for (size_t i = 0; i < w->n; i++) {
        for (size_t k = i; k < w->n; k++)
            w->m[i * w->n + k] = h[w->at[i] * n + w->at[k]];
        w->r[i] = g[w->at[i]];
    }
    int ok = eliminate(w);
    /* from the step to be made to the parameters: r + S z, and the prior taken off both */
    const size_t nt = w->n - w->ns;
    for (size_t k = 0; k < w->ns && ok; k++) {
        double sum = 0;
        for (size_t l = 0; l < w->ns; l++)
            sum += w->m[(nt + (l < k ? l : k)) * w->n + nt + (l < k ? k : l)] * w->z[l];
        w->r[nt + k] += sum;
    }
    for (size_t k = 0; k < w->ns && ok; k++)
        w->m[(nt + k) * w->n + nt + k] -= w->was[k];
    for (int round = 0; round < SPX_PF_ROUNDS && ok; round++) {
        ok = posterior(w);
        if (ok)
            maximise(w, nclass);
    }
    return ok;
}

spx_status spx_pf_learn(spx_pf_bundle *b, double *h, double *g, spx_err *e)
{
    const size_t n = spx_pf_columns(b), ns = n - b->shape0;
    const int nclass = b->p->na * b->p->nb * classes_of_term(b->p), there = b->there != NULL;
    room w;
    spx_status st = room_new(b, n, ns, &w, e);
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        int is_free;
        (void)spx_pf_parameter(b, k, &is_free);
        if (is_free)
            w.at[w.n++] = k;
    }
    if (st == SPX_OK)
        classify(b, ns, w.class, w.norm);
    for (size_t k = 0; k < ns && st == SPX_OK; k++) {
        double centre;
        w.was[k] = w.precision[k] = spx_pf_shape_prior(b, k, &centre);
        w.z[k] = b->now.theta[b->shape0 + k] - centre;
    }
    int ok = st == SPX_OK;
    if (ok && there)
        ok = b->p->device->learn(b, w.n, w.at, ns, g, w.z, w.was, w.class, w.norm, nclass, w.precision);
    else if (ok)
        ok = learn_here(&w, n, h, g, nclass);
    for (size_t k = 0; k < ns && ok; k++)
        ok = isfinite(w.precision[k]);
    if (ok) { /* matrix and gradient at hand are those of the new prior */
        for (size_t k = 0; k < ns; k++) {
            double centre;
            (void)spx_pf_shape_prior(b, k, &centre);
            if (!there)
                h[(b->shape0 + k) * (n + 1)] += w.precision[k] - w.was[k];
            g[b->shape0 + k] -= (w.precision[k] - w.was[k]) * (b->now.theta[b->shape0 + k] - centre);
            b->precision[k] = w.class[k] >= 0 ? w.precision[k] : 0;
            w.was[k] = w.precision[k] - w.was[k];
        }
        if (there)
            (void)b->p->device->add_to_matrix(b, b->shape0, ns, w.was); /* what fails is told in the end */
        spx_pf_prior(b, &b->now);
    }
    spx_free(w.at);
    spx_free(w.m);
    spx_free(w.class);
    return st;
}
