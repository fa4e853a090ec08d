/* Provides zero points of velocities (rvfit/zero.h). */
#include "rvfit/zero.h"

#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "num/blas.h"
#include "num/stat.h"

enum { ROUNDS = 30 };
static const double THREE_SIGMA = 2.7e-3; /* two-sided probability of a deviation of more than 3 sigma: 0.0026998 */
static const double HUBER = 2.5, FAR = 6; /* errors */
static const double ROUNDED = 1e-12;      /* of shares whose sum is 1 */
static const double KNOWN_LEAST = 1e-3;   /* km/s, error of a known velocity, at least */

/* ---- measurement ---- */

typedef struct {
    const spx_zero_input *in;
    double *weight;        /* [n] */
    double *a;             /* [ngroup][ngroup] normal matrix, stars eliminated, then its factor */
    double *z, *velocity;  /* [ngroup], [nstar] */
    double *sum, *mean;    /* [nstar] weights, and weighted velocities */
    size_t *set, *size;    /* [ngroup] set of groups that stars connect: number of one of them; groups of it */
    int *fixed;            /* [ngroup] the set has a known velocity */
    size_t *order, *begin; /* [n] exposures by stars, [nstar+1] */
    double *tmp;           /* [n + ngroup] */
} fit;

static size_t root(size_t *set, size_t g)
{
    while (set[g] != g)
        g = set[g] = set[set[g]];
    return g;
}

static int is_known(const spx_zero_input *in, size_t star)
{
    return in->known != NULL && isfinite(in->known[star]);
}

static double prior(const spx_zero_input *in, size_t star)
{
    return is_known(in, star) ? 1 / pow(fmax(KNOWN_LEAST, in->known_err[star]), 2) : 0;
}

static void connect(fit *f)
{
    const spx_zero_input *in = f->in;
    for (size_t i = 0; i < in->n; i++)
        f->begin[in->star[i] + 1]++;
    for (size_t s = 0; s < in->nstar; s++)
        f->begin[s + 1] += f->begin[s];
    for (size_t i = in->n; i-- > 0;)
        f->order[--f->begin[in->star[i] + 1]] = i;
    /* begin[s+1] is now where star s begins */
    for (size_t s = 0; s < in->nstar; s++)
        f->begin[s] = f->begin[s + 1];
    f->begin[in->nstar] = in->n;
    for (size_t g = 0; g < in->ngroup; g++)
        f->set[g] = g;
    for (size_t s = 0; s < in->nstar; s++)
        for (size_t k = f->begin[s] + 1; k < f->begin[s + 1]; k++)
            f->set[root(f->set, in->group[f->order[k]])] = root(f->set, in->group[f->order[k - 1]]);
    for (size_t i = 0; i < in->n; i++)
        f->fixed[root(f->set, in->group[i])] |= is_known(in, in->star[i]);
    for (size_t g = 0; g < in->ngroup; g++)
        f->size[root(f->set, g)]++;
}

/* Zero points and velocities with the weights as they are. The velocities of the stars are eliminated:
 *     A = diag(sum w) - sum_s w_s w_s' / W_s,   W_s = sum of the star's weights and that of its known velocity.
 * Of sets without known velocity A is singular: one is added to the diagonal for their mean. */
static int solve(fit *f)
{
    const spx_zero_input *in = f->in;
    const size_t n = in->ngroup;
    memset(f->a, 0, n * n * sizeof *f->a);
    memset(f->z, 0, n * sizeof *f->z);
    for (size_t s = 0; s < in->nstar; s++) {
        const size_t b = f->begin[s], end = f->begin[s + 1];
        const double p = prior(in, s);
        f->sum[s] = p;
        f->mean[s] = p > 0 ? p * in->known[s] : 0;
        for (size_t k = b; k < end; k++) {
            const size_t i = f->order[k];
            f->sum[s] += f->weight[i];
            f->mean[s] += f->weight[i] * in->v[i];
        }
        if (!(f->sum[s] > 0))
            continue;
        f->mean[s] /= f->sum[s];
        for (size_t k = b; k < end; k++) {
            const size_t i = f->order[k], g = in->group[i];
            f->a[g * n + g] += f->weight[i];
            f->z[g] += f->weight[i] * (in->v[i] - f->mean[s]);
            for (size_t l = b; l < end; l++)
                f->a[g * n + in->group[f->order[l]]] -= f->weight[i] * f->weight[f->order[l]] / f->sum[s];
        }
    }
    for (size_t g = 0; g < n; g++)
        for (size_t h = 0; h < n; h++)
            if (!f->fixed[root(f->set, g)] && root(f->set, g) == root(f->set, h))
                f->a[g * n + h] += 1 / (double)f->size[root(f->set, g)];
    /* the lower triangle by rows is the upper one by columns */
    if (LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'U', (lapack_int)n, f->a, (lapack_int)n) != 0 ||
        LAPACKE_dpotrs(LAPACK_COL_MAJOR, 'U', (lapack_int)n, 1, f->a, (lapack_int)n, f->z, (lapack_int)n) != 0)
        return 0;
    for (size_t s = 0; s < in->nstar; s++) {
        double shift = 0;
        for (size_t k = f->begin[s]; k < f->begin[s + 1]; k++)
            shift += f->weight[f->order[k]] * f->z[in->group[f->order[k]]];
        f->velocity[s] = f->sum[s] > 0 ? f->mean[s] - shift / f->sum[s] : NAN;
    }
    return 1;
}

static double residual(const fit *f, size_t i)
{
    return f->in->v[i] - f->z[f->in->group[i]] - f->velocity[f->in->star[i]];
}

/* Robust scatter of the residuals in errors; of n numbers from which p quantities were fitted. */
static double scatter(fit *f, double p)
{
    const spx_zero_input *in = f->in;
    size_t m = 0;
    for (size_t i = 0; i < in->n; i++)
        if (isfinite(f->velocity[in->star[i]]))
            f->tmp[m++] = fabs(residual(f, i)) / in->err[i];
    const double mad = 1.4826 * spx_median(f->tmp, m);
    return (double)m > p ? mad * sqrt((double)m / ((double)m - p)) : 1;
}

static void finish(fit *f, double s, double *zero, double *err, double *about, int64_t *relative, int64_t *used)
{
    const spx_zero_input *in = f->in;
    const size_t n = in->ngroup;
    int64_t sets = 0;
    for (size_t g = 0; g < n; g++)
        relative[g] = root(f->set, g) == g && !f->fixed[g] ? ++sets : 0;
    (void)LAPACKE_dpotri_work(LAPACK_COL_MAJOR, 'U', (lapack_int)n, f->a, (lapack_int)n);
    for (size_t g = 0; g < n; g++) {
        const size_t top = root(f->set, g);
        size_t m = 0;
        relative[g] = relative[top];
        zero[g] = f->z[g];
        /* what was added for the mean is no information */
        const double square = f->a[g * n + g] - (relative[g] > 0 ? 1 / (double)f->size[top] : 0);
        err[g] = s * sqrt(fmax(0, square));
        for (size_t i = 0; i < in->n; i++)
            if (in->group[i] == g && f->weight[i] > 0)
                f->tmp[m++] = fabs(residual(f, i));
        used[g] = (int64_t)m;
        about[g] = m > 1 ? 1.4826 * spx_median(f->tmp, m) : NAN;
    }
}

static int make(fit *f, spx_err *e)
{
    const spx_zero_input *in = f->in;
    return (f->weight = spx_alloc(in->n, sizeof *f->weight, e)) != NULL &&
           (f->a = spx_alloc2(in->ngroup, in->ngroup, sizeof *f->a, e)) != NULL &&
           (f->z = spx_alloc(in->ngroup, sizeof *f->z, e)) != NULL &&
           (f->velocity = spx_alloc(in->nstar, sizeof *f->velocity, e)) != NULL &&
           (f->sum = spx_alloc(in->nstar, sizeof *f->sum, e)) != NULL &&
           (f->mean = spx_alloc(in->nstar, sizeof *f->mean, e)) != NULL &&
           (f->set = spx_alloc(in->ngroup, sizeof *f->set, e)) != NULL &&
           (f->size = spx_alloc(in->ngroup, sizeof *f->size, e)) != NULL &&
           (f->fixed = spx_alloc(in->ngroup, sizeof *f->fixed, e)) != NULL &&
           (f->order = spx_alloc(in->n, sizeof *f->order, e)) != NULL &&
           (f->begin = spx_alloc(in->nstar + 1, sizeof *f->begin, e)) != NULL &&
           (f->tmp = spx_alloc(in->n + in->ngroup, sizeof *f->tmp, e)) != NULL;
}

spx_status spx_rvfit_measure_zero(const spx_zero_input *in, double *zero, double *err, double *about, int64_t *relative,
                                  int64_t *used, spx_err *e)
{
    fit f = {.in = in};
    double s = 1, quantities = (double)in->ngroup;
    if (in->ngroup > SPX_ZERO_MAX_GROUP)
        return spx_fail(e, SPX_EINPUT, "%zu zero points are more than %d: measure them in parts, or fewer", in->ngroup,
                        SPX_ZERO_MAX_GROUP);
    spx_status st = spx_blas_open(e);
    if (st == SPX_OK && !make(&f, e))
        st = SPX_EIO;
    if (st == SPX_OK)
        connect(&f);
    for (size_t k = 0; k < in->nstar && st == SPX_OK; k++)
        quantities += !is_known(in, k) && f.begin[k + 1] > f.begin[k];
    for (size_t i = 0; i < in->n && st == SPX_OK; i++)
        f.weight[i] = 1 / (in->err[i] * in->err[i]);
    for (int round = 0; round < ROUNDS && st == SPX_OK; round++) {
        if (!solve(&f))
            st = spx_fail(e, SPX_EINPUT, "a zero point has no exposure that measures it");
        if (st != SPX_OK || round == ROUNDS - 1)
            break;
        s = fmax(1, scatter(&f, quantities));
        for (size_t i = 0; i < in->n; i++) {
            const double r = fabs(residual(&f, i)) / (s * in->err[i]), w = 1 / (in->err[i] * in->err[i]);
            /* a far one may come back until the others have settled */
            f.weight[i] =
                !isfinite(r) || (r > FAR && round >= ROUNDS / 2) ? f.weight[i] * 1e-12 : w * fmin(1, HUBER / r);
        }
    }
    if (st == SPX_OK)
        finish(&f, s, zero, err, about, relative, used);
    void *all[] = {f.weight, f.a, f.z, f.velocity, f.sum, f.mean, f.set, f.size, f.fixed, f.order, f.begin, f.tmp};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        spx_free(all[i]);
    return st;
}

/* ---- subtraction ---- */

/* Share of a zero point in a velocity. */
typedef struct {
    size_t id;
    double weight, zero, err;
} share;

static int by_id(const void *a, const void *b)
{
    const share *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Adds up shares of the same zero points; returns how many are left, sorted. */
static size_t merge(size_t n, share *s)
{
    size_t m = 0;
    qsort(s, n, sizeof *s, by_id);
    for (size_t i = 0; i < n; i++)
        if (m > 0 && s[m - 1].id == s[i].id)
            s[m - 1].weight += s[i].weight;
        else
            s[m++] = s[i];
    return m;
}

/* Shares of the arms of exposure i, times `weight`. */
static size_t shares_of(const spx_rvfit *r, size_t i, double weight, const double *zero, const double *err,
                        const size_t *id, share *s)
{
    size_t n = 0;
    for (size_t a = 0; a < r->narm; a++) {
        const size_t k = i * r->narm + a;
        if (r->exposure[i].weight[a] > 0 && id[k] != SIZE_MAX)
            s[n++] = (share){id[k], weight * r->exposure[i].weight[a], zero[k], err[k]};
    }
    return n;
}

/* What is subtracted from a velocity; known: share of the arms that have a zero point. */
typedef struct {
    double zero, err, known;
} sum_of;

static sum_of total(size_t n, const share *s)
{
    sum_of t = {0};
    for (size_t i = 0; i < n; i++) {
        t.zero += s[i].weight * s[i].zero;
        t.err += pow(s[i].weight * s[i].err, 2);
        t.known += s[i].weight;
    }
    t.known = fabs(t.known - 1) < ROUNDED ? 1 : t.known;
    t.err = sqrt(t.err);
    return t;
}

void spx_rvfit_judge_constancy(spx_rvfit_star *s)
{
    s->const_logp = s->const_dof > 0 ? spx_log10_chisq_tail(s->const_chisq, s->const_dof) : 0;
    s->variable = s->const_logp < log10(THREE_SIGMA);
}

double spx_rvfit_constancy(size_t n, const double *v, double *covar)
{
    double vv = 0, v1 = 0, one = 0, *x = covar + n * n, *y = x + n;
    for (size_t i = 0; i < n; i++) {
        x[i] = v[i] - v[0];
        y[i] = 1;
    }
    if (LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'U', (lapack_int)n, covar, (lapack_int)n) != 0 ||
        LAPACKE_dpotrs(LAPACK_COL_MAJOR, 'U', (lapack_int)n, 2, covar, (lapack_int)n, x, (lapack_int)n) != 0)
        return NAN;
    for (size_t i = 0; i < n; i++) {
        vv += (v[i] - v[0]) * x[i];
        v1 += x[i];
        one += y[i];
    }
    return vv - v1 * v1 / one;
}

/* Constancy of exposures first ... end-1, s[] of which begin at begin[]: covariances of a common zero point. */
static spx_status compare_again(spx_rvfit *r, size_t k, const share *s, const size_t *begin, spx_err *e)
{
    const size_t first = r->first[k], most = r->first[k + 1] - first;
    size_t n = 0, *at = spx_alloc(most, sizeof *at, e);
    double *v = spx_alloc(most, sizeof *v, e), *covar = spx_alloc2(most + 2, most, sizeof *covar, e);
    spx_status st = at == NULL || v == NULL || covar == NULL ? SPX_EIO : SPX_OK;
    for (size_t i = 0; i < most && st == SPX_OK; i++)
        if ((r->exposure[first + i].warn & SPX_EPOCH_OUT) == 0) {
            v[n] = r->exposure[first + i].vrad;
            at[n++] = i;
        }
    for (size_t i = 0; i < n && st == SPX_OK; i++)
        for (size_t j = 0; j <= i; j++) {
            const spx_rvfit_exposure *x = &r->exposure[first + at[i]];
            double c = i == j ? x->vrad_err * x->vrad_err - x->zero_err * x->zero_err : 0;
            for (size_t p = begin[at[i]]; p < begin[at[i] + 1]; p++)
                for (size_t q = begin[at[j]]; q < begin[at[j] + 1]; q++)
                    if (s[p].id == s[q].id)
                        c += s[p].weight * s[q].weight * s[p].err * s[p].err;
            covar[i * n + j] = c;
        }
    if (st == SPX_OK && n > 1) {
        spx_rvfit_star *star = &r->star[k];
        star->const_chisq = spx_rvfit_constancy(n, v, covar);
        spx_rvfit_judge_constancy(star);
    }
    spx_free(at);
    spx_free(v);
    spx_free(covar);
    return st;
}

static spx_status subtract_star(spx_rvfit *r, size_t k, const double *zero, const double *err, const size_t *id,
                                spx_err *e)
{
    spx_rvfit_star *star = &r->star[k];
    const size_t first = r->first[k], nexp = r->first[k + 1] - first;
    double information = 0;
    size_t n = 0, *begin = spx_alloc(nexp + 1, sizeof *begin, e);
    share *s = spx_alloc2(2 * nexp, r->narm, sizeof *s, e);
    spx_status st = begin == NULL || s == NULL ? SPX_EIO : SPX_OK;
    for (size_t i = 0; i < nexp && st == SPX_OK; i++)
        information += r->exposure[first + i].information;
    for (size_t i = 0; i < nexp && st == SPX_OK; i++) { /* each exposure, then its part of the star */
        spx_rvfit_exposure *x = &r->exposure[first + i];
        begin[i] = n;
        n += merge(shares_of(r, first + i, 1, zero, err, id, s + n), s + n);
        const sum_of t = total(n - begin[i], s + begin[i]);
        x->zero = t.zero;
        x->zero_err = t.err;
        x->zero_known = t.known;
        x->vrad -= t.zero;
        x->vrad_alt -= t.zero;
        x->vrad_err = sqrt(x->vrad_err * x->vrad_err + t.err * t.err);
    }
    if (st == SPX_OK) {
        begin[nexp] = n;
        size_t m = 0;
        share *all = s + nexp * r->narm;
        for (size_t i = 0; i < nexp && information > 0; i++)
            for (size_t p = begin[i]; p < begin[i + 1]; p++) {
                all[m] = s[p];
                all[m++].weight *= r->exposure[first + i].information / information;
            }
        m = merge(m, all);
        const sum_of t = total(m, all);
        star->zero = t.zero;
        star->zero_err = t.err;
        star->zero_known = t.known;
        star->vrad -= t.zero;
        star->vrad_alt -= t.zero;
        star->vrad_err = sqrt(star->vrad_err * star->vrad_err + t.err * t.err);
        star->covar[0] += t.err * t.err;
        if (star->const_dof > 0)
            st = compare_again(r, k, s, begin, e);
    }
    spx_free(begin);
    spx_free(s);
    return st;
}

spx_status spx_rvfit_subtract_zero(spx_rvfit *r, const double *zero, const double *err, const size_t *id, spx_err *e)
{
    spx_status st = spx_blas_open(e);
    r->with_zero = 1;
    for (size_t k = 0; k < r->nstar && st == SPX_OK; k++)
        st = subtract_star(r, k, zero, err, id, e);
    return st;
}
