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

/* Order from which on functions are neither a place nor a width to first order: 3, or, where widths are held, 2; at 2
 * there is otherwise only GH-1-1. */
static int least_order(const spx_pf_bundle *b)
{
    return b->held != NULL ? 2 : 3;
}

/* Class of a function of an order, round or not, among those of one term along fibres and wavelengths: the few orders
 * of either end are one. */
static int class_of(const spx_pf_bundle *b, int order, int round)
{
    const int first = least_order(b), most = 2 * b->p->deg - 2;
    const int within = order < first ? first : order > most && most >= first ? most : order;
    return 2 * within + (round != 0);
}

/* Classes of one term along fibres and wavelengths, some of them empty. */
static int classes_of_term(const spx_pf_plan *p)
{
    return 2 * (2 * p->deg + 1 > 4 ? 2 * p->deg + 1 : 4);
}

/* Least i of the functions i + j = order with i, j <= deg that are neither a place nor a width. */
static int least_of(const spx_pf_bundle *b, int order)
{
    return order < least_order(b) ? 1 : order > b->p->deg ? order - b->p->deg : 0;
}

/* Orthogonal functions of one order by those of i + j = order, scaled to norm 1: turn[nq][deg + 1], by i, and classes.
 * The first is the round one, or what is left of it without high i and j: exp(t (a_x^2 + a_y^2)), a_x and a_y raising i
 * and j, makes broader Gaussians. The others follow by a reflection that takes the first to it. */
static void turn_order(const spx_pf_bundle *b, int order, double *turn, int *class)
{
    const int side = b->p->deg + 1, least = least_of(b, order), most = order - least;
    double u[SPX_PF_MOST_HERMITE + 1] = {0}, norm = 0, square = 0;
    for (int i = least; i <= most && order % 2 == 0; i++) {
        const int j = order - i;
        u[i] = i % 2 == 0 ? -exp(0.5 * (lgamma(i + 1) + lgamma(j + 1)) - lgamma(i / 2 + 1) - lgamma(j / 2 + 1)) : 0;
        norm += u[i] * u[i];
    }
    for (int i = least; i <= most && norm > 0; i++) {
        u[i] = u[i] / sqrt(norm) + (i == least);
        square += u[i] * u[i];
    }
    for (int k = least; k <= most; k++) {
        const int q = spx_pf_row(b->p, k, order - k);
        for (int i = least; i <= most; i++)
            turn[q * side + i] = (i == k) - (square > 0 ? 2 * u[i] * u[k] / square : 0);
        class[q] = class_of(b, order, norm > 0 && k == least);
    }
}

static spx_status turned_new(const spx_pf_bundle *b, spx_pf_turned *t, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    const size_t side = (size_t)p->deg + 1, n = (size_t)p->nq * side;
    *t = (spx_pf_turned){.nq = (size_t)p->nq,
                         .side = side,
                         .mate = spx_alloc(n, sizeof *t->mate, e),
                         .classes = spx_alloc((size_t)p->nq, sizeof *t->classes, e),
                         .there = spx_alloc(2 * n, sizeof *t->there, e)};
    if (t->mate == NULL || t->classes == NULL || t->there == NULL)
        return SPX_EIO;
    t->back = t->there + n;
    for (size_t k = 0; k < n; k++)
        t->mate[k] = t->classes[k / side] = -1;
    for (int order = 2; order <= 2 * p->deg; order++)
        turn_order(b, order, t->there, t->classes);
    for (size_t q = 0; q < t->nq; q++) {
        const int order = q < 2 ? 0 : (int)((q - 1) % side + (q - 1) / side), least = least_of(b, order);
        for (int i = least; i <= order - least && t->classes[q] >= 0; i++) {
            const size_t at = q * side + (size_t)i;
            t->mate[at] = spx_pf_row(p, i, order - i);
            t->back[at] = t->there[at] / norm_of(i, order - i);
            t->there[at] *= norm_of(i, order - i);
        }
        if (t->classes[q] < 0) {
            t->mate[q * side] = (int)q;
            t->there[q * side] = t->back[q * side] = 1;
        }
    }
    return SPX_OK;
}

static void turned_free(spx_pf_turned *t)
{
    spx_free(t->mate);
    spx_free(t->classes);
    spx_free(t->there);
}

/* Row k of `by` times v, elements of which, of all terms' parameters, are `stride` apart. */
static double row_of(const spx_pf_turned *t, const double *by, size_t k, const double *v, size_t stride)
{
    const size_t first = k / t->nq * t->nq, row = k % t->nq * t->side;
    double sum = 0;
    for (size_t i = row; i < row + t->side; i++)
        if (t->mate[i] >= 0)
            sum += by[i] * v[(first + (size_t)t->mate[i]) * stride];
    return sum;
}

typedef struct {
    size_t n, ns;      /* free columns, and those of the shape, which are the last of them */
    size_t *at;        /* [n] */
    double *m, *r;     /* [n][n] matrix, lower triangle by columns, and right-hand side, without the shape's prior */
    double *c, *z;     /* [ns][ns] a factor, and [ns] coefficients of a round */
    double *variance;  /* [ns] theirs */
    double *precision; /* [ns] of their prior */
    double *was;       /* [ns] of the parameters, as it was */
    double *square;    /* [nclass] */
    int *class;        /* [ns] */
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

/* The matrix of the shape and its right-hand side, of parameters, to those of coefficients; w->c is used. */
static void turn(const room *w, const spx_pf_turned *t)
{
    const size_t nt = w->n - w->ns, ns = w->ns;
    for (size_t k = 0; k < ns; k++)
        for (size_t l = k; l < ns; l++)
            w->c[k * ns + l] = w->c[l * ns + k] = w->m[(nt + k) * w->n + nt + l];
    for (size_t l = 0; l < ns; l++) { /* row l, by columns */
        for (size_t k = 0; k < ns; k++)
            w->variance[k] = row_of(t, t->back, k, w->c + l * ns, 1);
        memcpy(w->c + l * ns, w->variance, ns * sizeof *w->c);
    }
    for (size_t k = 0; k < ns; k++)
        for (size_t l = 0; l <= k; l++)
            w->m[(nt + l) * w->n + nt + k] = row_of(t, t->back, l, w->c + k, ns);
    for (size_t k = 0; k < ns; k++)
        w->variance[k] = row_of(t, t->back, k, w->r + nt, 1);
    memcpy(w->r + nt, w->variance, ns * sizeof *w->r);
}

/* Coefficients and their variances for precisions of their prior: z, variance. m z = r, coefficients counted from
 * their priors' centres. 0: not positive definite. */
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

/* Precisions of a round, from coefficients and their variances. */
static void maximise(const room *w, int nclass)
{
    for (int c = 0; c < nclass; c++)
        w->square[c] = spx_pf_square_of_class(w->ns, w->class, c, w->z, w->precision, w->variance);
    for (size_t k = 0; k < w->ns; k++)
        if (w->class[k] >= 0)
            w->precision[k] = 1 / w->square[w->class[k]];
}

static spx_status room_new(const spx_pf_bundle *b, size_t n, size_t ns, room *w, spx_err *e)
{
    const size_t nclass = (size_t)(b->p->na * b->p->nb * classes_of_term(b->p));
    *w = (room){.ns = ns,
                .at = spx_alloc(n, sizeof *w->at, e),
                .m = spx_alloc_unset(n * n + n + ns * ns + 4 * ns + nclass, 1, sizeof *w->m, e),
                .class = spx_alloc(ns + 1, sizeof *w->class, e)};
    if (w->at == NULL || w->m == NULL || w->class == NULL)
        return SPX_EIO;
    w->r = w->m + n * n;
    w->c = w->r + n;
    w->z = w->c + ns * ns;
    w->precision = w->z + ns;
    w->was = w->precision + ns;
    w->variance = w->was + ns;
    w->square = w->variance + ns;
    return SPX_OK;
}

/* Rounds by the CPU, of a matrix h of n columns, with the prior as it was, and the gradient g of parameters counted
 * from its centres, without it. 0: not positive definite. */
static int learn_here(const room *w, const spx_pf_turned *t, size_t n, const double *h, const double *g, int nclass)
{
    for (size_t i = 0; i < w->n; i++) {
        for (size_t k = i; k < w->n; k++)
            w->m[i * w->n + k] = h[w->at[i] * n + w->at[k]];
        w->r[i] = g[w->at[i]];
    }
    int ok = eliminate(w);
    const size_t nt = w->n - w->ns;
    for (size_t k = 0; k < w->ns && ok; k++)
        w->m[(nt + k) * w->n + nt + k] -= w->was[k];
    if (ok)
        turn(w, t);
    /* from the step to be made to the coefficients: r + S z */
    for (size_t k = 0; k < w->ns && ok; k++) {
        double sum = 0;
        for (size_t l = 0; l < w->ns; l++)
            sum += w->m[(nt + (l < k ? l : k)) * w->n + nt + (l < k ? k : l)] * w->z[l];
        w->r[nt + k] += sum;
    }
    for (int round = 0; round < SPX_PF_ROUNDS && ok; round++) {
        ok = posterior(w);
        if (ok)
            maximise(w, nclass);
    }
    return ok;
}

/* Precision of parameters by that of their coefficients: out[ns][side], of each row the elements of its mates. */
static void precision_of(const room *w, const spx_pf_turned *t, double *out)
{
    const size_t nq = t->nq, side = t->side;
    memset(out, 0, w->ns * side * sizeof *out);
    for (size_t c = 0; c < w->ns; c++) {
        const size_t first = c / nq * nq, row = c % nq * side;
        for (size_t i = 0; i < side; i++)
            for (size_t j = 0; j < side && t->mate[row + i] >= 0; j++)
                if (t->mate[row + j] >= 0)
                    out[(first + (size_t)t->mate[row + i]) * side + j] +=
                        w->precision[c] * t->there[row + i] * t->there[row + j];
    }
}

/* Coefficients and precisions of their prior to begin with: `off` are the parameters from their priors' centres. */
static void begin(const room *w, const spx_pf_turned *t, int nclass, const double *off)
{
    for (size_t k = 0; k < w->ns; k++) {
        const size_t first = k / t->nq * t->nq, row = k % t->nq * t->side;
        const int c = t->classes[k % t->nq];
        w->class[k] = c < 0 ? -1 : (int)(k / t->nq) * nclass + c;
        w->z[k] = row_of(t, t->there, k, off, 1);
        w->precision[k] = 0;
        for (size_t i = row; i < row + t->side; i++)
            if (t->mate[i] >= 0)
                w->precision[k] += t->back[i] * t->back[i] * w->was[first + (size_t)t->mate[i]];
    }
}

/* Puts the learned prior in the place of the former one, in the bundle, the matrix and the gradient. `off` and `rhs`:
 * parameters from the centres, and the gradient without a prior. SPX_EIO: memory. */
static spx_status put_prior(spx_pf_bundle *b, const room *w, spx_pf_turned *t, const double *off, const double *rhs,
                            size_t n, double *h, double *g, spx_err *e)
{
    if ((b->precision = spx_alloc2(w->ns + 1, t->side, sizeof *b->precision, e)) == NULL)
        return SPX_EIO;
    precision_of(w, t, b->precision);
    b->mate = t->mate;
    t->mate = NULL;
    for (size_t k = 0; k < w->ns; k++)
        g[b->shape0 + k] = rhs[b->shape0 + k] - spx_pf_prior_row(b, k, off + k / t->nq * t->nq);
    return spx_pf_add_learned(b, w->was, n, h, e);
}

spx_status spx_pf_learn(spx_pf_bundle *b, double *h, double *g, spx_err *e)
{
    const size_t n = spx_pf_columns(b), ns = n - b->shape0;
    const int each = classes_of_term(b->p), nclass = b->p->na * b->p->nb * each;
    room w;
    spx_pf_turned t = {0};
    double *rhs = spx_alloc(n + ns, sizeof *rhs, e);
    spx_status st = room_new(b, n, ns, &w, e);
    if (st == SPX_OK)
        st = rhs != NULL ? turned_new(b, &t, e) : SPX_EIO;
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        int is_free;
        (void)spx_pf_parameter(b, k, &is_free);
        if (is_free)
            w.at[w.n++] = k;
        rhs[k] = g[k];
    }
    double *off = rhs + n;
    for (size_t k = 0; k < ns && st == SPX_OK; k++) {
        double centre;
        w.was[k] = spx_pf_shape_prior(b, k, &centre);
        off[k] = b->now.theta[b->shape0 + k] - centre;
        rhs[b->shape0 + k] += w.was[k] * off[k];
    }
    int ok = st == SPX_OK;
    if (ok) {
        begin(&w, &t, each, off);
        ok = b->there != NULL ? b->p->device->learn(b, w.n, w.at, ns, rhs, w.z, w.was, &t, w.class, nclass, w.precision)
                              : learn_here(&w, &t, n, h, rhs, nclass);
    }
    for (size_t k = 0; k < ns && ok; k++)
        ok = isfinite(w.precision[k]);
    if (ok) { /* matrix and gradient at hand are those of the new prior */
        st = put_prior(b, &w, &t, off, rhs, n, h, g, e);
        if (st == SPX_OK)
            spx_pf_prior(b, &b->now);
    }
    spx_free(rhs);
    turned_free(&t);
    spx_free(w.at);
    spx_free(w.m);
    spx_free(w.class);
    return st;
}

/* ---- errors ---- */

enum { MOST_OF_CLASS = 2 * (SPX_PF_MOST_HERMITE + 1) };

/* A class of coefficients by itself, in the axes of what the arc says of it: information, right-hand side, and the
 * estimate and its variance with the prior as it was learned. */
typedef struct {
    size_t n;
    double info[MOST_OF_CLASS], rhs[MOST_OF_CLASS], z[MOST_OF_CLASS], variance[MOST_OF_CLASS];
} told_class;

/* What is added to the variance of each axis as the prior's sigma is not known, into more[]: it has all values up to
 * `most`, as likely as they make what the arc says of the class, under the density of spx_pf_square_of_class(), flat in
 * ln sigma; the estimate is that of one of them. */
static void unknown_sigma(const told_class *c, double most, double *more)
{
    enum { STEPS = 48 };
    double weight[STEPS], square[STEPS], best = -INFINITY, all = 0;
    for (int s = 0; s < STEPS; s++) {
        const double sigma = SPX_PF_LEAST_SIGMA * pow(most / SPX_PF_LEAST_SIGMA, (s + 0.5) / STEPS);
        square[s] = sigma * sigma;
        weight[s] = 0;
        for (size_t k = 0; k < c->n; k++)
            weight[s] += 0.5 * (c->rhs[k] * c->rhs[k] / (c->info[k] + 1 / square[s]) - log1p(square[s] * c->info[k]));
        best = fmax(best, weight[s]);
    }
    for (int s = 0; s < STEPS; s++)
        all += weight[s] = exp(weight[s] - best);
    for (size_t k = 0; k < c->n; k++) {
        double sum = 0;
        for (int s = 0; s < STEPS; s++) {
            const double v = 1 / (c->info[k] + 1 / square[s]), off = v * c->rhs[k] - c->z[k];
            sum += weight[s] / all * (v + off * off);
        }
        more[k] = fmax(0, sum - c->variance[k]);
    }
}

/* Precision of the learned prior of coefficient k, and sigma by the prior that is not learned. */
static void priors_of(const spx_pf_bundle *b, const spx_pf_turned *t, size_t k, double *precision, double *sigma)
{
    const size_t first = k / t->nq * t->nq, row = k % t->nq * t->side;
    double is = 0, was = 0, centre;
    for (size_t i = 0; i < t->side; i++) {
        const int mate = t->mate[row + i];
        if (mate < 0)
            continue;
        was += t->back[row + i] * t->back[row + i] * spx_pf_shape_prior(b, first + (size_t)mate, &centre);
        for (size_t j = 0; j < t->side; j++)
            if (t->mate[row + j] >= 0)
                is += t->back[row + i] * t->back[row + j] * b->precision[(first + (size_t)mate) * t->side + j];
    }
    *precision = is;
    *sigma = 1 / sqrt(was);
}

/* What the class of[n] has of unknown sigma, and what follows of it for all parameters: factor[n][ns], the columns of
 * C_zc V^-1 more^1/2 in the axes of the class. c: the covariance; z: coefficients. */
static void add_class(const spx_pf_bundle *b, const spx_pf_turned *t, size_t ns, const double *c, const double *z,
                      size_t n, const size_t *of, double *factor)
{
    double axis[MOST_OF_CLASS * MOST_OF_CLASS] = {0}, variance[MOST_OF_CLASS], more[MOST_OF_CLASS], precision, most = 0;
    told_class all = {.n = n};
    for (size_t k = 0; k < n; k++) {
        double sigma;
        priors_of(b, t, of[k], &precision, &sigma); /* one precision of all: axes of C are those of the information */
        most = fmax(most, sigma);
        for (size_t l = 0; l < n; l++)
            for (size_t i = of[k] % t->nq * t->side, end = i + t->side; i < end; i++)
                if (t->mate[i] >= 0)
                    axis[k * n + l] += t->there[i] * row_of(t, t->there, of[l],
                                                            c + (of[k] / t->nq * t->nq + (size_t)t->mate[i]) * ns, 1);
    }
    if (LAPACKE_dsyev(LAPACK_COL_MAJOR, 'V', 'L', (lapack_int)n, axis, (lapack_int)n, variance) != 0)
        return;
    for (size_t a = 0; a < n; a++) {
        variance[a] = fmax(variance[a], SPX_PF_LEAST_SIGMA * SPX_PF_LEAST_SIGMA * 1e-6); /* rounding */
        for (size_t k = 0; k < n; k++)
            all.z[a] += axis[a * n + k] * z[of[k]];
        all.variance[a] = variance[a];
        all.info[a] = fmax(0, 1 / variance[a] - precision);
        all.rhs[a] = all.z[a] / variance[a];
    }
    unknown_sigma(&all, most, more);
    for (size_t p = 0; p < ns; p++) {
        double with[MOST_OF_CLASS];
        for (size_t k = 0; k < n; k++)
            with[k] = row_of(t, t->there, of[k], c + p * ns, 1);
        for (size_t a = 0; a < n; a++) {
            double sum = 0;
            for (size_t k = 0; k < n; k++)
                sum += axis[a * n + k] * with[k];
            factor[a * ns + p] = sqrt(more[a]) / variance[a] * sum;
        }
    }
}

spx_status spx_pf_unknown_priors(const spx_pf_bundle *b, double *c, spx_err *e)
{
    const size_t ns = b->ntheta - b->shape0, nq = (size_t)b->p->nq;
    spx_pf_turned t = {0};
    if (b->precision == NULL)
        return SPX_OK;
    double *z = spx_alloc(2 * ns + ns * ns, sizeof *z, e);
    spx_status st = z != NULL ? turned_new(b, &t, e) : SPX_EIO;
    double *off = z + ns, *factor = z + 2 * ns;
    size_t nfactor = 0;
    for (size_t k = 0; k < ns && st == SPX_OK; k++) {
        double centre;
        (void)spx_pf_shape_prior(b, k, &centre);
        off[k] = b->now.theta[b->shape0 + k] - centre;
    }
    for (size_t k = 0; k < ns && st == SPX_OK; k++)
        z[k] = row_of(&t, t.there, k, off, 1);
    for (size_t term = 0; term < ns && st == SPX_OK; term += nq)
        for (int kind = 0; kind < classes_of_term(b->p); kind++) {
            size_t n = 0, of[MOST_OF_CLASS];
            for (size_t q = 0; q < nq; q++)
                if (t.classes[q] == kind)
                    of[n++] = term + q;
            if (n > 0)
                add_class(b, &t, ns, c, z, n, of, factor + nfactor * ns);
            nfactor += n;
        }
    if (st == SPX_OK)
        cblas_dsyrk(CblasColMajor, CblasLower, CblasNoTrans, (blasint)ns, (blasint)nfactor, 1, factor, (blasint)ns, 1,
                    c, (blasint)ns);
    for (size_t k = 0; k < ns && st == SPX_OK; k++)
        for (size_t l = 0; l < k; l++)
            c[k * ns + l] = c[l * ns + k];
    turned_free(&t);
    spx_free(z);
    return st;
}
