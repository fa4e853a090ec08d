/* Provides the second component of double-lined stars: two templates with velocities of their own, of equal metallicity
 * and gravity, whose sum has one continuum.
 *
 * The model of a pixel is P (T(v1; theta1) + r T(v2; theta2)), theta2 = theta1 but for the temperature. Where there are
 * levels of the library (normalisation by a median, or none), r is q times the ratio of these in each arm, so that one
 * light ratio q serves all arms; else r = q.
 *
 *  1  two-dimensional correlation (TODCOR: Zucker & Mazeh 1994, ApJ 420, 806): with the templates and continua of the
 *     fit with one star, but without its rotation, chi^2 of a1 T(v1) + a2 T(v2) on a grid of both velocities;
 * amplitudes are linear. Its lowest minima are starts. 2  Levenberg-Marquardt over v1, v2, ln q, rotation, parameters,
 * and the second temperature, with the continua eliminated, by differences of the residuals.
 *
 * A second component is found where the objective falls by more than DETECTED against that of one star, in units of
 * chi^2 a degree of freedom where that is above 1: misfit lowers it, too (tests/science/double.bats). */
#include <math.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "num/wave.h"
#include "rvfit/search/group.h"

enum { STARTS = 3, STEPS = 25, MOST_FREE = 4 + SPX_MAX_FIT, MOST_VELOCITIES = 512 };
static const double WORTH = 4;     /* decrease of chi^2 on the grid from which on a start is followed */
static const double APART = 600;   /* km/s, most between the velocities */
static const double FAINT = 0.03;  /* least light ratio */
static const double DETECTED = 20; /* decrease of the objective that counts */
static const double CLOSE = 1e-3;  /* a descent ends where steps gain less */

/* Quantities of a pair: v1, v2, ln q, then internal units of vsini and parameters of the first star, then the second
 * one's temperature. */
enum { V1, V2, LNQ, FIRST };

typedef struct {
    double v1, v2, a1, a2, gain;
} start;

typedef struct {
    spx_rv_spectra *w;
    const spx_rv_ctx *c;
    size_t n, free[MOST_FREE], nfree; /* of y; those that vary */
    size_t teff;                      /* parameter that differs; npar: none does */
    double lo[MOST_FREE], hi[MOST_FREE];
    size_t npix;             /* of all pieces, in strides */
    double *one, *two;       /* [npix] samples of the two templates */
    double *rows[2];         /* [1 + c->nfree][npix] the same where they have been derived, and their derivatives */
    double *r, *trial, *jac; /* [npix] residuals, [nfree][npix] */
    double level[2][SPX_MAX_ARM]; /* of the two, mean of each arm of the context */
    double ratio;                 /* of all light, second to first, at the last evaluation */
} pair;

static double *samples(pair *p, int second)
{
    return second ? p->two : p->one;
}

/* Internal point of one of the stars. */
static void point_of(const pair *p, const double *y, int second, double *x)
{
    const size_t nq = p->c->nq;
    x[0] = y[second ? V2 : V1];
    memcpy(x + 1, y + FIRST, (nq - 1) * sizeof *x);
    if (second && p->teff < p->c->npar)
        x[2 + p->teff] = y[FIRST + nq - 1];
}

/* Sums over pixels, of vectors. */
SPX_CLONES
static double sum_of(size_t n, const double *x)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t k = 0; k < n; k++)
        sum += x[k];
    return sum;
}

SPX_CLONES
static double dot(size_t n, const double *x, const double *y)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t k = 0; k < n; k++)
        sum += x[k] * y[k];
    return sum;
}

/* Mean level in each arm of a star whose samples are there. */
static void find_levels(pair *p, const double *y, int second)
{
    const spx_rv_ctx *c = p->c;
    const double *t = samples(p, second);
    double x[SPX_MAX_FIT];
    point_of(p, y, second, x);
    for (size_t ia = 0; ia < c->narm; ia++) {
        const spx_rv_arm *a = &c->arm[ia];
        const size_t n = p->w->first[ia + 1] - p->w->first[ia];
        double sum = 0;
        for (size_t i = 0; i < n; i++, t += a->stride)
            sum += sum_of(a->n, t);
        p->level[second][ia] = n > 0 ? sum / (double)(a->n * n) : 0;
        if (c->interpolator != SPX_INTERPOLATE_NN && n > 0 && a->setup->lnnorm != NULL)
            p->level[second][ia] *= exp(spx_rv_lnnorm(p->w, ia, x));
    }
}

/* Template of a star at the pixels of all pieces, into out[npix]; with `deriv` its derivatives by the free quantities
 * of the context, too, behind it. */
static void sample_template(pair *p, const double *y, int second, int deriv, double *out)
{
    const spx_rv_ctx *c = p->c;
    double x[SPX_MAX_FIT];
    point_of(p, y, second, x);
    spx_rv_template(p->w, x, NULL, deriv);
    for (size_t i = 0; i < p->w->first[c->narm]; i++) {
        const spx_rv_data *d = &p->w->piece[i];
        const size_t stride = c->arm[d->arm].stride;
        const double *t = spx_rv_sample(p->w, d, x[0]);
        for (size_t l = 0; l <= (deriv ? c->nfree : 0); l++)
            memcpy(out + l * p->npix, t + l * stride, stride * sizeof *out);
        out += stride;
    }
}

static void sample_star(pair *p, const double *y, int second)
{
    sample_template(p, y, second, 0, samples(p, second));
    find_levels(p, y, second); /* uses the stencil's memory: after the samples */
}

/* Objective with the samples as they are, and residuals of all pixels. */
static double combine(pair *p, double lnq, double *r)
{
    const spx_rv_ctx *c = p->c;
    double mean = 0, narm = 0, light[2] = {0};
    for (size_t ia = 0; ia < c->narm; ia++)
        if (p->w->first[ia] < p->w->first[ia + 1]) {
            mean += log(p->level[0][ia] / p->level[1][ia]);
            narm++;
        }
    spx_rv_value value = {0};
    const double *one = p->one, *two = p->two;
    for (size_t ia = 0; ia < c->narm; ia++) {
        const spx_rv_arm *a = &c->arm[ia];
        for (size_t i = p->w->first[ia]; i < p->w->first[ia + 1]; i++) {
            double sum[2] = {sum_of(a->n, one), sum_of(a->n, two)}, *t = p->w->workspace->r;
            /* the templates' own levels go out, those of the library come in */
            const double share = exp(lnq + mean / narm) * p->level[1][ia] / p->level[0][ia],
                         q = share * sum[0] / sum[1];
            light[0] += (double)a->n;
            light[1] += (double)a->n * share;
            for (size_t k = 0; k < a->stride; k++)
                t[k] = one[k] + q * two[k];
            if (!spx_rv_add_sampled(p->w, &p->w->piece[i], t, &value, r))
                return HUGE_VAL;
            one += a->stride;
            two += a->stride;
            r += a->stride;
        }
    }
    p->ratio = light[1] / light[0];
    return isfinite(value.f) ? value.f : HUGE_VAL;
}

static double evaluate(pair *p, const double *y, double *r)
{
    sample_star(p, y, 0);
    sample_star(p, y, 1);
    return combine(p, y[LNQ], r);
}

/* ---- starts ---- */

/* Sums over pixels for velocities of a grid: of the template times the continuum of the fit with one star, in errors,
 * so that amplitudes are near 1. */
typedef struct {
    size_t n;
    double v0, step;
    double *s;    /* [n][stride] of one piece */
    double *gram; /* [n][n] s.s of two velocities, lower triangle */
    double *b;    /* [n] s.data */
} grid;

/* Adds a piece, whose continuum is given. */
static void add_to_grid(pair *p, const spx_rv_data *d, const double *continuum, grid *g)
{
    const spx_rv_arm *a = &p->c->arm[d->arm];
    for (size_t v = 0; v < g->n; v++) {
        const double *t = spx_rv_sample(p->w, d, g->v0 + (double)v * g->step);
        double *s = g->s + v * a->stride;
        for (size_t k = 0; k < a->n; k++) {
            s[k] = d->good[k] ? t[k] * continuum[k] * d->ie[k] : 0;
            g->b[v] += s[k] * d->flux[k] * d->ie[k];
        }
    }
    for (size_t i = 0; i < g->n; i++)
        for (size_t j = 0; j <= i; j++)
            g->gram[i * g->n + j] += dot(a->n, g->s + i * a->stride, g->s + j * a->stride);
}

static void make_grid(pair *p, const double *y, grid *g)
{
    const spx_rv_ctx *c = p->c;
    const double *continuum = p->two;
    double x[SPX_MAX_FIT];
    point_of(p, y, 0, x);
    spx_rv_template(p->w, x, NULL, 0);
    for (size_t i = 0; i < p->w->first[c->narm]; i++) {
        add_to_grid(p, &p->w->piece[i], continuum, g);
        continuum += c->arm[p->w->piece[i].arm].stride;
    }
}

/* chi^2 that a1 T(v1) + a2 T(v2) takes off, v1 above v2, and the amplitudes. */
static double gain_at(const grid *g, size_t i, size_t j, double *a1, double *a2)
{
    const double ii = g->gram[i * g->n + i], jj = g->gram[j * g->n + j], ij = g->gram[i * g->n + j];
    const double det = ii * jj - ij * ij;
    *a1 = (g->b[i] * jj - g->b[j] * ij) / det;
    *a2 = (g->b[j] * ii - g->b[i] * ij) / det;
    return det > 1e-9 * ii * jj && *a1 > 0 && *a2 > 0 ? *a1 * g->b[i] + *a2 * g->b[j] : -HUGE_VAL;
}

static void keep(start *best, size_t *n, start s)
{
    size_t at = *n;
    while (at > 0 && s.gain > best[at - 1].gain)
        at--;
    if (at == STARTS)
        return;
    for (size_t k = *n < STARTS ? (*n)++ : STARTS - 1; k > at; k--)
        best[k] = best[k - 1];
    best[at] = s;
}

/* Best minima of the grid; gains are those against the best single velocity of the grid. */
static size_t find_starts(pair *p, const double *y, double v, start *best)
{
    const spx_rv_ctx *c = p->c;
    const double lo = fmax(c->lo[0], v - APART), hi = fmin(c->hi[0], v + APART);
    grid g = {.v0 = lo, .step = fmax(c->scan.step, (hi - lo) / (MOST_VELOCITIES - 1))};
    g.n = (size_t)floor((hi - lo) / g.step) + 1;
    size_t n = 0;
    double *gain = spx_alloc2(g.n, g.n, sizeof *gain, &p->w->err), single = -HUGE_VAL;
    g.s = spx_alloc2(g.n, c->size.n, sizeof *g.s, &p->w->err);
    g.gram = spx_alloc2(g.n, g.n, sizeof *g.gram, &p->w->err);
    g.b = spx_alloc(g.n, sizeof *g.b, &p->w->err);
    if (gain != NULL && g.s != NULL && g.gram != NULL && g.b != NULL) {
        double a1, a2;
        make_grid(p, y, &g);
        for (size_t i = 0; i < g.n; i++) {
            const double square = g.gram[i * g.n + i];
            single = fmax(single, square > 0 ? g.b[i] * g.b[i] / square : 0);
            for (size_t j = 0; j < i; j++)
                gain[i * g.n + j] = gain[j * g.n + i] =
                    (double)(i - j) * g.step <= APART ? gain_at(&g, i, j, &a1, &a2) : -HUGE_VAL;
            gain[i * g.n + i] = -HUGE_VAL;
        }
        for (size_t i = 1; i + 1 < g.n; i++)
            for (size_t j = 1; j < i; j++) {
                const double here = gain[i * g.n + j];
                int top = here > -HUGE_VAL;
                for (int k = -1; k <= 1; k++)
                    for (int l = -1; l <= 1; l++)
                        top = top && here >= gain[(size_t)((long)i + k) * g.n + (size_t)((long)j + l)];
                if (!top || here - single < WORTH)
                    continue;
                (void)gain_at(&g, i, j, &a1, &a2);
                start s = {lo + (double)i * g.step, lo + (double)j * g.step, a1, a2, here};
                if (a2 > a1)
                    s = (start){s.v2, s.v1, a2, a1, here};
                keep(best, &n, s);
            }
    }
    spx_free(gain);
    spx_free(g.s);
    spx_free(g.gram);
    spx_free(g.b);
    return n;
}

/* ---- descent ---- */

/* Step of the difference of a quantity. */
static double difference(const pair *p, size_t q)
{
    static const double fixed[FIRST] = {[V1] = 0.5, [V2] = 0.5, [LNQ] = 0.02};
    /* cppcheck-suppress arrayIndexOutOfBoundsCond ; q < n <= MOST_FREE */
    return q < FIRST ? fixed[q] : 0.002 * (p->hi[q] - p->lo[q]);
}

/* Row of p->rows[second] that holds the derivatives of a star by quantity q of the pair; 0: it does not depend on it.
 */
static size_t row_of(const pair *p, size_t q, int second)
{
    const size_t nq = p->c->nq, teff = 2 + p->teff, own = second ? V2 : V1;
    size_t of = nq, k = 0; /* quantity of the context */
    if (q == own)
        of = 0;
    else if (q == FIRST + nq - 1)
        of = second ? teff : nq;
    else if (q >= FIRST && !(second && q == FIRST + teff - 1))
        of = q - FIRST + 1;
    while (k < p->c->nfree && p->c->freeq[k] != of)
        k++;
    return k < p->c->nfree ? 1 + k : 0;
}

/* Samples of a star where quantity q is larger by h, by their derivatives; y: the point there. */
static void move_star(pair *p, const double *y, size_t q, double h, int second)
{
    const size_t row = row_of(p, q, second);
    const double *base = p->rows[second], *slope = base + row * p->npix;
    double *t = samples(p, second);
    for (size_t i = 0; i < p->npix; i++)
        t[i] = row > 0 ? base[i] + h * slope[i] : base[i];
    find_levels(p, y, second);
}

/* Residuals' derivatives at y, whose residuals are p->r. */
static int derive(pair *p, const double *y)
{
    double there[MOST_FREE];
    for (int second = 0; second < 2; second++)
        sample_template(p, y, second, 1, p->rows[second]);
    for (size_t k = 0; k < p->nfree; k++) {
        const size_t q = p->free[k];
        double *j = p->jac + k * p->npix, h = difference(p, q);
        memcpy(there, y, sizeof there);
        h = y[q] + h > p->hi[q] ? -h : h;
        there[q] += h;
        for (int second = 0; second < 2; second++)
            move_star(p, there, q, h, second);
        if (!(combine(p, there[LNQ], j) < HUGE_VAL))
            return 0;
        for (size_t i = 0; i < p->npix; i++)
            j[i] = (j[i] - p->r[i]) / h;
    }
    return 1;
}

/* Solves (J'J + lambda diag) step = -J'r of quantities that may move; covar[nfree] gets the diagonal of (J'J)^-1 where
 * lambda is 0. */
static int solve(const pair *p, const double *y, double lambda, double *step, double *covar)
{
    const size_t n = p->nfree;
    double a[MOST_FREE * (MOST_FREE + 1) / 2], g[MOST_FREE];
    for (size_t k = 0; k < n; k++) {
        const double *x = p->jac + k * p->npix;
        g[k] = -dot(p->npix, x, p->r);
        for (size_t l = 0; l <= k; l++)
            a[spx_rv_packed(k, l)] = dot(p->npix, x, p->jac + l * p->npix);
    }
    for (size_t k = 0; k < n; k++) { /* at a bound that the step would cross: held */
        const size_t q = p->free[k];
        const int held = (y[q] <= p->lo[q] && g[k] < 0) || (y[q] >= p->hi[q] && g[k] > 0);
        double *d = &a[spx_rv_packed(k, k)];
        *d = *d * (1 + lambda) + 1e-12;
        if (!held)
            continue;
        g[k] = 0;
        for (size_t l = 0; l < n; l++)
            if (l != k)
                a[l < k ? spx_rv_packed(k, l) : spx_rv_packed(l, k)] = 0;
    }
    if (!spx_rv_cholesky(n, a, 1e-12))
        return 0;
    memcpy(step, g, n * sizeof *step);
    spx_rv_forward(n, a, step);
    spx_rv_backward(n, a, step);
    for (size_t k = 0; k < n && covar != NULL; k++) {
        double e[MOST_FREE] = {0};
        e[k] = 1;
        spx_rv_forward(n, a, e);
        spx_rv_backward(n, a, e);
        covar[k] = e[k];
    }
    return 1;
}

/* Minimum from y; the objective there. */
static double descend(pair *p, double *y)
{
    double f = evaluate(p, y, p->r), lambda = 1e-2, there[MOST_FREE], step[MOST_FREE];
    for (int i = 0; i < STEPS && f < HUGE_VAL; i++) {
        double gained = 0;
        if (!derive(p, y))
            break;
        for (int again = 0; again < 6; again++, lambda *= 8) {
            if (!solve(p, y, lambda, step, NULL))
                continue;
            memcpy(there, y, sizeof there);
            for (size_t k = 0; k < p->nfree; k++) {
                const size_t q = p->free[k];
                there[q] = fmin(p->hi[q], fmax(p->lo[q], y[q] + step[k]));
            }
            const double now = evaluate(p, there, p->trial);
            if (!(now < f))
                continue;
            gained = f - now;
            f = now;
            memcpy(y, there, sizeof there);
            memcpy(p->r, p->trial, p->npix * sizeof *p->r);
            lambda = fmax(1e-6, lambda / 10);
            break;
        }
        if (gained < CLOSE)
            break;
    }
    return f;
}

/* ---- the result ---- */

/* Quantities of a pair of stars that are like the single one, which is at x; their ranges. */
static void begin(pair *p, const double *x, double *y)
{
    const spx_rv_ctx *c = p->c;
    const size_t nq = c->nq;
    y[V1] = y[V2] = x[0];
    y[LNQ] = -INFINITY;
    memcpy(y + FIRST, x + 1, (nq - 1) * sizeof *y);
    p->lo[V1] = p->lo[V2] = c->lo[0];
    p->hi[V1] = p->hi[V2] = c->hi[0];
    p->lo[LNQ] = log(FAINT);
    p->hi[LNQ] = -log(FAINT);
    memcpy(p->lo + FIRST, c->lo + 1, (nq - 1) * sizeof *y);
    memcpy(p->hi + FIRST, c->hi + 1, (nq - 1) * sizeof *y);
    p->teff = 0;
    while (p->teff < c->npar && strcmp(c->arm[0].setup->parname[p->teff], "teff") != 0)
        p->teff++;
    p->n = FIRST + nq - 1;
    if (p->teff < c->npar) {
        y[p->n] = x[2 + p->teff];
        p->lo[p->n] = c->lo[2 + p->teff];
        p->hi[p->n++] = c->hi[2 + p->teff];
    }
    for (size_t q = 0; q < p->n; q++)
        if (p->hi[q] > p->lo[q])
            p->free[p->nfree++] = q;
}

/* The continua of the fit with one star, into p->two. */
static void continua(pair *p)
{
    const spx_rv_ctx *c = p->c;
    const double *t = p->one;
    double *out = p->two;
    for (size_t ia = 0; ia < c->narm; ia++)
        for (size_t i = p->w->first[ia]; i < p->w->first[ia + 1]; i++) {
            const size_t stride = c->arm[ia].stride;
            for (size_t k = 0; k < stride; k++)
                out[k] = k < c->arm[ia].n && t[k] > 0 ? p->w->piece[i].model[k] / t[k] : 0;
            t += stride;
            out += stride;
        }
}

static void write_pair(pair *p, const double *y, double gain, spx_rvfit_star *s)
{
    const spx_rv_ctx *c = p->c;
    double step[MOST_FREE], covar[MOST_FREE], chisq = 0, dof = -(double)p->nfree;
    (void)evaluate(p, y, p->r);
    const double ratio = p->ratio;
    const int swapped = ratio > 1; /* the brighter one is the first */
    for (size_t i = 0; i < p->npix; i++)
        chisq += p->r[i] * p->r[i];
    dof += (double)s->npix - (double)spx_rv_continua(p->w);
    s->dchisq_2 = gain / fmax(1, chisq / fmax(1, dof));
    s->vrad1 = y[swapped ? V2 : V1];
    s->vrad2 = y[swapped ? V1 : V2];
    s->flux_ratio = swapped ? 1 / ratio : ratio;
    if (p->teff < c->npar)
        s->teff2 = spx_rv_unmap(c, 2 + p->teff, y[swapped ? FIRST + 1 + p->teff : p->n - 1]);
    if (derive(p, y) && solve(p, y, 0, step, covar))
        for (size_t k = 0; k < p->nfree; k++) {
            const size_t q = p->free[k];
            const double sigma = sqrt(covar[k]);
            if (q == (swapped ? V2 : V1))
                s->vrad1_err = sigma;
            else if (q == (swapped ? V1 : V2))
                s->vrad2_err = sigma;
            else if (q == LNQ)
                s->flux_ratio_err = sigma * s->flux_ratio;
        }
    s->is_double = s->dchisq_2 > DETECTED && fabs(s->vrad1 - s->vrad2) > 2 * c->scan.step;
}

void spx_rv_double(spx_rv_star *star, spx_rvfit *out)
{
    pair p = {.w = &star->spectra, .c = star->spectra.ctx};
    spx_rv_spectra *w = p.w;
    spx_rvfit_star *s = &out->star[star->index];
    start at[STARTS];
    double y[MOST_FREE], best[MOST_FREE], lowest = HUGE_VAL;
    s->dchisq_2 = 0;
    begin(&p, star->min.x, y);
    for (size_t ia = 0; ia < p.c->narm; ia++)
        p.npix += (w->first[ia + 1] - w->first[ia]) * p.c->arm[ia].stride;
    const size_t nrow = 1 + p.c->nfree;
    p.one = spx_alloc2(4 + p.nfree + 2 * nrow, p.npix, sizeof *p.one, &w->err);
    if (p.one == NULL)
        return;
    p.two = p.one + p.npix;
    p.r = p.two + p.npix;
    p.trial = p.r + p.npix;
    p.rows[0] = p.trial + p.npix;
    p.rows[1] = p.rows[0] + nrow * p.npix;
    p.jac = p.rows[1] + nrow * p.npix;
    const double single = evaluate(&p, y, p.r);
    sample_star(&p, y, 0);
    continua(&p);
    y[FIRST] = p.lo[FIRST]; /* two narrow lines look like a broad one */
    const size_t n = single < HUGE_VAL && p.c->scan.n > 4 ? find_starts(&p, y, star->min.x[0], at) : 0;
    for (size_t k = 0; k < n && w->err.code == SPX_OK; k++) {
        double z[MOST_FREE];
        memcpy(z, y, sizeof z);
        z[V1] = at[k].v1;
        z[V2] = at[k].v2;
        z[LNQ] = fmax(p.lo[LNQ], fmin(p.hi[LNQ], log(at[k].a2 / at[k].a1)));
        const double f = descend(&p, z);
        if (f < lowest) {
            lowest = f;
            memcpy(best, z, sizeof best);
        }
    }
    if (lowest < single)
        write_pair(&p, best, single - lowest, s);
    spx_free(p.one);
}
