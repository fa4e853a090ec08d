/* Provides principal components of a setup's templates.
 *
 * Up to SMALL templates (or pixels): eigenvectors of their products, in double precision. More: a randomised range
 * finder with one power iteration (Halko, Martinsson & Tropp 2011, SIAM Review 53, 217), in single precision but for
 * the products that orthonormalise, which passes through the templates in blocks and costs a fraction. It begins with
 * sums of a few templates each, with random signs (a count sketch: Clarkson & Woodruff 2017, J. ACM 63, 54), which cost
 * nothing beside the products. Either gives candidates; the truncation error of K of them is then measured, not
 * estimated. */
#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "sim/sim_math.h"
#include "template/template.h"
#include "template/template_impl.h"

enum {
    MOST = 2048,  /* most templates used in double precision: the cost grows with the cube */
    SMALL = 512,  /* order of a matrix whose eigenvectors cost little */
    SKETCH = 256, /* candidates of the range finder, doubled until they suffice */
    SPARE = 24,   /* oversampling: the last candidates, which are less accurate */
    BLOCK = 256,  /* templates at one time */
    STEP = 4,
    AHEAD = 32,
    COLUMNS = 1024, /* pixels at one time in products in double precision */
    DRAW_SKETCH = 104
};
static const double LEAST_SINGLE = 2e-5; /* truncation error above which single precision suffices */
static const double NOISE = 1e-13;       /* fraction of the largest eigenvalue below which eigenvalues are rounding */

/* Candidate components, orthonormal, most important first. */
typedef struct {
    size_t n;
    float *comp;   /* [n][nwave] */
    double *value; /* [n] approximate sum of squares of their coefficients over `nvalue` templates */
    size_t nvalue;
    double *coef; /* [ntemp][n] */
} candidates;

static void candidates_free(candidates *c)
{
    spx_free(c->comp);
    spx_free(c->value);
    spx_free(c->coef);
    *c = (candidates){0};
}

/* Residuals of K components in a block of templates: sum of squares, and the largest. */
typedef struct {
    size_t K, ncomputed; /* components subtracted; components whose coefficients are computed */
    double sum, largest;
} left_out;

/* ln flux minus mean of n templates from row0 on, every `step`-th, into x[n][nwave]; and the largest of a row, its sum
 * of squares into *sum. */
static void centred_double(const spx_setup *s, size_t row0, size_t n, size_t step, double *x)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < s->nwave; k++)
            x[i * s->nwave + k] = (double)s->lnflux[(row0 + i * step) * s->nwave + k] - s->pca.mean[k];
    spx_mem_passed(s->lnflux);
}

static double largest_double(size_t n, const double *x, double *sum)
{
    double most = 0;
    *sum = 0;
    for (size_t k = 0; k < n; k++) {
        most = fmax(most, fabs(x[k]));
        *sum += x[k] * x[k];
    }
    return most;
}

static void centred_single(const spx_setup *s, size_t row0, size_t n, size_t step, float *x)
{
    const spx_template_kernels *kernels = spx_template_kernels_find();
    for (size_t i = 0; i < n; i++)
        kernels->centre(s->nwave, s->lnflux + (row0 + i * step) * s->nwave, s->pca.mean, x + i * s->nwave);
    spx_mem_passed(s->lnflux);
}

static double largest_single(size_t n, const float *x, double *sum)
{
    *sum = 0;
    return spx_template_kernels_find()->largest(n, x, sum);
}

#define REAL    double
#define NAME(f) f##_double
#define GEMM    cblas_dgemm
#include "template/pca_project.h"
#undef REAL
#undef NAME
#undef GEMM
#define REAL    float
#define NAME(f) f##_single
#define GEMM    cblas_sgemm
#include "template/pca_project.h"

/* Eigenvectors of a symmetric matrix in its rows, largest eigenvalue first; a[n][n] lower triangle on entry. */
static spx_status eigen(size_t n, double *a, double *value, spx_err *e)
{
    if (LAPACKE_dsyevd(LAPACK_COL_MAJOR, 'V', 'U', (int)n, a, (int)n, value) != 0)
        return spx_fail(e, SPX_EIO, "principal components of the templates were not found");
    for (size_t i = 0, j = n - 1; i < j; i++, j--) {
        cblas_dswap((int)n, a + i * n, 1, a + j * n, 1);
        double keep = value[i];
        value[i] = value[j];
        value[j] = keep;
    }
    return SPX_OK;
}

/* ---- in double precision ---- */

/* Finds all candidates, from every `step`-th template. */
static spx_status exact(const spx_setup *s, candidates *c, spx_err *e)
{
    size_t step = (s->ntemp + MOST - 1) / MOST, n = (s->ntemp + step - 1) / step, nw = s->nwave;
    int by_wave = nw < n;
    size_t m = by_wave ? nw : n;
    spx_status st = SPX_EIO;
    double *x = spx_alloc2(n, nw, sizeof *x, e), *gram = spx_alloc2(m, m, sizeof *gram, e), *comp = NULL;
    c->value = spx_alloc(m, sizeof *c->value, e);
    if (!x || !gram || !c->value)
        goto end;
    centred_double(s, 0, n, step, x);
    cblas_dsyrk(CblasRowMajor, CblasLower, by_wave ? CblasTrans : CblasNoTrans, (int)m, (int)(by_wave ? n : nw), 1, x,
                (int)nw, 0, gram, (int)m);
    if ((st = eigen(m, gram, c->value, e)) != SPX_OK)
        goto end;
    c->nvalue = n;
    while (c->n < m && c->value[c->n] > 1e-14 * c->value[0])
        c->n++;
    st = SPX_EIO;
    if (!(c->comp = spx_alloc2(c->n, nw, sizeof *c->comp, e)))
        goto end;
    if (!by_wave && c->n > 0) {
        if (!(comp = spx_alloc2(c->n, nw, sizeof *comp, e)))
            goto end;
        for (size_t i = 0; i < c->n; i++)
            cblas_dscal((int)n, 1 / sqrt(c->value[i]), gram + i * m, 1);
        cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)c->n, (int)nw, (int)n, 1, gram, (int)m, x, (int)nw,
                    0, comp, (int)nw);
    }
    for (size_t i = 0; i < c->n * nw; i++)
        c->comp[i] = (float)(by_wave ? gram[i] : comp[i]);
    st = SPX_OK;
end:
    spx_free(x);
    spx_free(gram);
    spx_free(comp);
    return st;
}

/* ---- in single precision ---- */

/* Gram matrix of the rows of y[n][m], in double precision: lower triangle of gram[n][n]. `workspace` [n][COLUMNS]. */
static void products(size_t n, size_t m, const float *y, double *workspace, double *gram)
{
    for (size_t first = 0; first < m; first += COLUMNS) {
        size_t w = m - first < COLUMNS ? m - first : COLUMNS;
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < w; k++)
                workspace[i * COLUMNS + k] = (double)y[i * m + first + k];
        cblas_dsyrk(CblasRowMajor, CblasLower, CblasNoTrans, (int)n, (int)w, 1, workspace, COLUMNS, first > 0, gram,
                    (int)n);
    }
}

/* Workspace of the range finder with L candidates. */
typedef struct {
    size_t L, n, nw;
    float *x, *y, *q, *z;         /* [BLOCK][nw], [L][nw], [L][nw], [L][n] */
    float *turn;                  /* [L][L] */
    double *gram, *value, *small; /* [L][L], [L], [L][COLUMNS] */
} sketch;

static void sketch_free(sketch *k)
{
    spx_free(k->x);
    spx_free(k->y);
    spx_free(k->q);
    spx_free(k->z);
    spx_free(k->turn);
    spx_free(k->gram);
    spx_free(k->value);
    spx_free(k->small);
}

/* Orthonormalises rows[n][m] in order, by the Cholesky factor of their Gram matrix: exact but for rounding of nearly
 * dependent rows. 0: some are dependent. */
static int in_order(sketch *k, size_t n, size_t m, float *rows)
{
    products(n, m, rows, k->small, k->gram);
    if (LAPACKE_dpotrf(LAPACK_ROW_MAJOR, 'L', (int)n, k->gram, (int)n) != 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            k->turn[i * n + j] = (float)(j <= i ? k->gram[i * n + j] : 0);
    cblas_strsm(CblasRowMajor, CblasLeft, CblasLower, CblasNoTrans, CblasNonUnit, (int)n, (int)m, 1, k->turn, (int)n,
                rows, (int)m);
    return 1;
}

/* Orthonormal rows to[r][m] that span those of from[L][m], by decreasing eigenvalue; r into *rank, eigenvalues into
 * k->value. */
static spx_status by_importance(sketch *k, size_t L, size_t m, const float *from, float *to, size_t *rank, spx_err *e)
{
    products(L, m, from, k->small, k->gram);
    spx_status st = eigen(L, k->gram, k->value, e);
    if (st != SPX_OK)
        return st;
    size_t r = 0;
    for (; r < L && k->value[r] > NOISE * k->value[0]; r++)
        for (size_t i = 0; i < L; i++)
            k->turn[r * L + i] = (float)(k->gram[r * L + i] / sqrt(k->value[r]));
    if (r > 0)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)r, (int)m, (int)L, 1, k->turn, (int)L, from, (int)m,
                    0, to, (int)m);
    *rank = r;
    return SPX_OK;
}

/* y[L][nw] = z[L][n] times the templates. */
static void gather(const spx_setup *s, sketch *k, size_t L)
{
    for (size_t row = 0; row < k->n; row += BLOCK) {
        size_t n = k->n - row < BLOCK ? k->n - row : BLOCK;
        centred_single(s, row, n, 1, k->x);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)L, (int)k->nw, (int)n, 1, k->z + row, (int)k->n,
                    k->x, (int)k->nw, row > 0, k->y, (int)k->nw);
    }
}

/* Orthonormalises rows[*n][m] in place, in any order; *n decreases where some are dependent. */
static spx_status basis(sketch *k, size_t *n, size_t m, float *rows, float *workspace, spx_err *e)
{
    size_t rank = 0;
    memcpy(workspace, rows, *n * m * sizeof *rows);
    if (in_order(k, *n, m, rows))
        return SPX_OK;
    spx_status st = by_importance(k, *n, m, workspace, rows, &rank, e);
    *n = rank;
    return st;
}

/* Count sketch: y[L][nw], where template t, with a random sign, is added to sum t mod L. */
static void count_sketch(const spx_setup *s, sketch *k)
{
    for (size_t row = 0; row < k->n; row += BLOCK) {
        size_t n = k->n - row < BLOCK ? k->n - row : BLOCK;
        centred_single(s, row, n, 1, k->x);
        for (size_t i = 0; i < n; i++) {
            uint32_t counter[4] = {(uint32_t)(row + i), (uint32_t)((row + i) >> 32), DRAW_SKETCH, 0}, draw[4];
            spx_philox(0, counter, draw);
            cblas_saxpy((int)k->nw, draw[0] & 1 ? 1 : -1, k->x + i * k->nw, 1, k->y + (row + i) % k->L * k->nw, 1);
        }
    }
}

/* Finds at most L candidates by the randomised range finder. */
static spx_status find_candidates(const spx_setup *s, size_t L, candidates *c, spx_err *e)
{
    sketch k = {.L = L, .n = s->ntemp, .nw = s->nwave};
    size_t r = 0;
    spx_status st = SPX_EIO;
    if (!(k.x = spx_alloc2(BLOCK, k.nw, sizeof *k.x, e)) || !(k.y = spx_alloc2(L, k.nw, sizeof *k.y, e)) ||
        !(k.q = spx_alloc2(L, k.nw > k.n ? k.nw : k.n, sizeof *k.q, e)) ||
        !(k.z = spx_alloc2(L, k.n, sizeof *k.z, e)) || !(k.turn = spx_alloc2(L, L, sizeof *k.turn, e)) ||
        !(k.gram = spx_alloc2(L, L, sizeof *k.gram, e)) || !(k.value = spx_alloc(L, sizeof *k.value, e)) ||
        !(k.small = spx_alloc2(L, COLUMNS, sizeof *k.small, e)))
        goto end;
    count_sketch(s, &k);
    r = L;
    if ((st = basis(&k, &r, k.nw, k.y, k.q, e)) != SPX_OK || r == 0)
        goto end;
    for (size_t row = 0; row < k.n; row += BLOCK) { /* z = y times the templates, transposed */
        size_t n = k.n - row < BLOCK ? k.n - row : BLOCK;
        centred_single(s, row, n, 1, k.x);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)r, (int)n, (int)k.nw, 1, k.y, (int)k.nw, k.x,
                    (int)k.nw, 0, k.z + row, (int)k.n);
    }
    if ((st = basis(&k, &r, k.n, k.z, k.q, e)) != SPX_OK || r == 0)
        goto end;
    L = r;
    gather(s, &k, L);
    if ((st = by_importance(&k, L, k.nw, k.y, k.q, &r, e)) != SPX_OK)
        goto end;
    c->n = r;
    c->nvalue = k.n;
    c->comp = spx_alloc2(r, k.nw, sizeof *c->comp, e);
    c->value = spx_alloc(r, sizeof *c->value, e);
    st = c->comp && c->value ? SPX_OK : SPX_EIO;
    if (st == SPX_OK) {
        memcpy(c->comp, k.q, r * k.nw * sizeof *c->comp);
        memcpy(c->value, k.value, r * sizeof *c->value);
        /* once more: rounding has left components not quite orthogonal */
        if (!in_order(&k, r, k.nw, c->comp))
            st = spx_fail(e, SPX_EIO, "principal components of the templates were not found");
    }
end:
    sketch_free(&k);
    return st;
}

/* ---- number of components ---- */

/* Estimates the number of components for a truncation error of at most `error`; it is measured later. */
static size_t estimate_number(const candidates *c, size_t nw, double error)
{
    double left = 0, allowed = error * error * (double)c->nvalue * (double)nw;
    size_t K = c->n;
    while (K > 0 && left + fmax(0, c->value[K - 1]) <= allowed)
        left += fmax(0, c->value[--K]);
    return K;
}

/* Finds the smallest K, or nearly, that meets both limits; *kept 0 when all candidates do not. */
static spx_status choose_number(const spx_setup *s, const candidates *c, int single, double error, double most,
                                size_t *K, double *rms, double *largest, int *kept, spx_err *e)
{
    const size_t nblock = (s->ntemp + BLOCK - 1) / BLOCK;
    left_out *r = spx_alloc(nblock, sizeof *r, e);
    spx_status st = r ? SPX_OK : SPX_EIO;
    *K = estimate_number(c, s->nwave, error);
    while (st == SPX_OK) {
        st = single ? measure_single(s, c, most, K, r, e) : measure_double(s, c, most, K, r, e);
        double sum = 0;
        *largest = 0;
        int stale = 0;
        for (size_t b = 0; b < nblock; b++) {
            stale |= r[b].K < *K;
            sum += r[b].sum;
            *largest = fmax(*largest, r[b].largest);
        }
        *rms = sqrt(sum / (double)s->ntemp / (double)s->nwave);
        *kept = *rms <= error && !(most > 0 && *largest > most);
        if (stale) /* K grew on the way: measure the blocks before again */
            continue;
        if (*kept || *K == c->n)
            break;
        *K = *K + STEP < c->n ? *K + STEP : c->n; /* the rms is too large: the estimate was wrong */
    }
    spx_free(r);
    return st;
}

spx_status spx_template_pca(spx_setup *s, double error, double most, spx_err *e)
{
    spx_pca *p = &s->pca;
    size_t nw = s->nwave, m = s->ntemp < nw ? s->ntemp : nw, K = 0;
    int single = m > SMALL && error >= LEAST_SINGLE, kept = 0;
    candidates c = {0};
    spx_status st = SPX_OK;
    if (!(p->mean = spx_alloc(nw, sizeof *p->mean, e)))
        return SPX_EIO;
    for (size_t t = 0; t < s->ntemp; t++) {
        spx_template_kernels_find()->add(nw, s->lnflux + t * nw, p->mean);
        if (t % BLOCK == 0)
            spx_mem_passed(s->lnflux);
    }
    for (size_t k = 0; k < nw; k++)
        p->mean[k] /= (double)s->ntemp;
    for (size_t L = SKETCH;; L *= 2) {
        candidates_free(&c);
        single = single && L < m / 2;
        st = single ? find_candidates(s, L, &c, e) : exact(s, &c, e);
        if (st == SPX_OK && !(c.coef = spx_alloc2(s->ntemp, c.n, sizeof *c.coef, e)))
            st = SPX_EIO;
        if (st == SPX_OK && single && estimate_number(&c, nw, error) + SPARE > c.n && c.n + SPARE > L)
            continue;
        if (st == SPX_OK)
            st = choose_number(s, &c, single, error, most, &K, &p->rms, &p->max, &kept, e);
        if (st != SPX_OK || !single || (kept && K + SPARE / 2 <= c.n))
            break;
    }
    if (st == SPX_OK && (!(p->comp = spx_alloc2(K, nw, sizeof *p->comp, e)) ||
                         !(p->coef = spx_alloc2(s->ntemp, K, sizeof *p->coef, e))))
        st = SPX_EIO;
    if (st == SPX_OK) {
        p->ncomp = K;
        memcpy(p->comp, c.comp, K * nw * sizeof *p->comp);
        for (size_t t = 0; t < s->ntemp; t++)
            memcpy(p->coef + t * K, c.coef + t * c.n, K * sizeof *p->coef);
    }
    candidates_free(&c);
    return st;
}
