/* Provides the response of a camera from standard stars (flux/flux.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "calib/band.h"
#include "calib/resolution.h"
#include "flux/engine.h"
#include "flux/flux.h"
#include "num/stat.h"

static const double BLOCK_WIDTH = 100; /* of the shape of residuals, Angstrom */
static const double MOST_WEIGHT = 4;   /* of a star, in units of the median */
/* What a grid of bins leaves of unresolved lines, of the range of C in GRID_REACH bins to either side, times the square
 * of the width of the rows of R in bins (spx_resolution_widths()), and what is left of them at any width. R of 17
 * diagonals in place of 11 leaves as much. */
static const double GRID_ERROR = 0.08, LEFT_ERROR = 0.006;
enum { GRID_REACH = 4 };
static const double NOTHING = 1e-12;    /* pivot that says nothing (spx_band_factor()) */
static const double FIRST_SMOOTH = 1e4; /* weight of the penalty before one is found */
/* Its natural logarithm, off telluric bands and within: 1e2 to 1e10, from 1e-8. */
static const double LEAST_SMOOTH[] = {4.6, -18.4}, MOST_SMOOTH = 23;
static const double NODE_WIDTH = 100; /* of the penalty, Angstrom */

/* Fall of log(told/seen) with the logarithm of a penalty, which is 1 where nothing else feels it: within these. */
static const double LEAST_SLOPE = 0.2, MOST_SLOPE = 2;
/* Steps of the natural logarithm of a penalty that need no other: of one that is found again, and at last. */
static const double ABOUT = 0.5, SMALL = 0.05;

enum { SMOOTH_ROUNDS = 30 };

/* Arrays of a solution; of each star [nstar][n]: b is R diag(T), [nstar][ndiag][n]. */
typedef struct {
    size_t nstar, n, ndiag, half; /* half-bandwidth of the normal matrix */
    double *b, *d, *w;            /* data, weight of usable bins */
    double *model;                /* R (C o T) */
    double *scaled_d, *scaled_w;  /* d/a, w a^2 of bins that are kept */
    uint8_t *kept;                /* [nstar][n] bins that no test has rejected, or w is 0 */
    uint8_t *use, *out;           /* [nstar] in the fit; left out for good */
    double *a, *weight;           /* [nstar] scale; factor of its weights */
    double *band, *y, *lambda;    /* [half+1][n]; [n]; [n] */
    double *c;                    /* [n] */
    double *tmp;                  /* [threads' stars][n] */
    double *tmp1;                 /* [nstar] */
    uint8_t *telluric;            /* [n] */
    double *normal, *inverse;     /* [half+1][n]: without penalty; inverse */
    size_t nnode;                 /* of the penalty */
    /* [2][nnode] natural logarithm of the penalty, in units of the middle weight: off telluric bands, and within */
    double *node;
    double middle; /* weight of a bin */
    const spx_flux_engine *engine;
} fit;

static void free_fit(fit *f)
{
    double **all[] = {&f->b,   &f->d,      &f->w,      &f->model,   &f->scaled_d, &f->scaled_w,
                      &f->a,   &f->weight, &f->band,   &f->y,       &f->lambda,   &f->c,
                      &f->tmp, &f->tmp1,   &f->normal, &f->inverse, &f->node};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        spx_free(*all[i]);
    spx_free(f->kept);
    spx_free(f->use);
    spx_free(f->out);
    spx_free(f->telluric);
}

static spx_status make_fit(fit *f, spx_err *e)
{
    const size_t ns = f->nstar, n = f->n;
    f->half = f->ndiag - 1 > 2 ? f->ndiag - 1 : 2;
    const int ok =
        (f->b = spx_alloc2(ns * f->ndiag, n, sizeof *f->b, e)) != NULL &&
        (f->d = spx_alloc2(ns, n, sizeof *f->d, e)) != NULL && (f->w = spx_alloc2(ns, n, sizeof *f->w, e)) != NULL &&
        (f->model = spx_alloc2(ns, n, sizeof *f->model, e)) != NULL &&
        (f->scaled_d = spx_alloc2(ns, n, sizeof *f->scaled_d, e)) != NULL &&
        (f->scaled_w = spx_alloc2(ns, n, sizeof *f->scaled_w, e)) != NULL &&
        (f->kept = spx_alloc2(ns, n, 1, e)) != NULL && (f->use = spx_alloc(ns, 1, e)) != NULL &&
        (f->out = spx_alloc(ns, 1, e)) != NULL && (f->a = spx_alloc(ns, sizeof *f->a, e)) != NULL &&
        (f->weight = spx_alloc(ns, sizeof *f->weight, e)) != NULL &&
        (f->band = spx_alloc2(f->half + 1, n, sizeof *f->band, e)) != NULL &&
        (f->y = spx_alloc(n, sizeof *f->y, e)) != NULL && (f->lambda = spx_alloc(n, sizeof *f->lambda, e)) != NULL &&
        (f->c = spx_alloc(n, sizeof *f->c, e)) != NULL && (f->tmp = spx_alloc2(ns, n, sizeof *f->tmp, e)) != NULL &&
        (f->tmp1 = spx_alloc(ns, sizeof *f->tmp1, e)) != NULL && (f->telluric = spx_alloc(n, 1, e)) != NULL &&
        (f->normal = spx_alloc2(f->half + 1, n, sizeof *f->normal, e)) != NULL &&
        (f->inverse = spx_alloc2(f->half + 1, n, sizeof *f->inverse, e)) != NULL &&
        (f->node = spx_alloc2(2, f->nnode, sizeof *f->node, e)) != NULL;
    return ok ? SPX_OK : SPX_EIO;
}

static int good_bin(const spx_arm *arm, size_t at)
{
    return isfinite(arm->flux[at]) && arm->ivar[at] > 0 && isfinite(arm->ivar[at]) &&
           (arm->mask == NULL || arm->mask[at] == 0);
}

/* Data of a star: R diag(T), and the bins whose whole footprint has a template. */
static void load_star(const spx_arm *arm, const spx_flux_stars *in, fit *f, size_t s)
{
    const size_t n = f->n, nd = f->ndiag, h = nd / 2;
    const double *t = in->model + s * n, *r = arm->resolution + in->row[s] * nd * n;
    double *b = f->b + s * nd * n, scale[SPX_BAND_MOST + 1];
    spx_flux_end_rows(n, nd, r, scale);
    for (size_t d = 0; d < nd; d++)
        for (size_t j = 0; j < n; j++) { /* elements without a row are never used, but may be anything */
            const size_t k = j + d - h;
            const double end = k < h ? scale[k] : k < n && k + h >= n ? scale[k + 2 * h - n] : 1;
            b[d * n + j] = j + d >= h && k < n && t[j] > 0 ? end * r[d * n + j] * t[j] : 0;
        }
    for (size_t k = 0; k < n; k++) {
        const size_t at = in->row[s] * n + k, first = k < h ? 0 : k - h, last = k + h < n ? k + h : n - 1;
        int good = good_bin(arm, at);
        for (size_t j = first; j <= last && good; j++)
            good = t[j] > 0;
        f->d[s * n + k] = good ? arm->flux[at] : 0;
        f->w[s * n + k] = good ? arm->ivar[at] : 0;
        f->kept[s * n + k] = 1;
    }
}

/* Median of what a star's bins have: 0: flux over R T, 1: signal-to-noise ratio. tmp[n]. */
static double median_of(const fit *f, size_t s, int what, double *tmp, size_t *count)
{
    const double *d = f->d + s * f->n, *w = f->w + s * f->n, *m = f->model + s * f->n;
    size_t n = 0;
    for (size_t k = 0; k < f->n; k++)
        if (w[k] > 0 && (what == 1 || m[k] > 0))
            tmp[n++] = what == 1 ? d[k] * sqrt(w[k]) : d[k] / m[k];
    *count = n;
    return spx_median(tmp, n);
}

/* Median of v[s] over the stars that are used. */
static double star_median(const fit *f, const double *v, double *tmp)
{
    size_t n = 0;
    for (size_t s = 0; s < f->nstar; s++)
        if (f->use[s])
            tmp[n++] = v[s];
    return spx_median(tmp, n);
}

/* 1.4826 times the median absolute deviation. */
static double star_spread(const fit *f, const double *v, double middle, double *tmp)
{
    size_t n = 0;
    for (size_t s = 0; s < f->nstar; s++)
        if (f->use[s])
            tmp[n++] = fabs(v[s] - middle);
    return 1.4826 * spx_median(tmp, n);
}

static size_t count_used(const fit *f)
{
    size_t n = 0;
    for (size_t s = 0; s < f->nstar; s++)
        n += f->use[s];
    return n;
}

/* Scales of median 1 by what the stars have where C is 1, and limits to their weights. */
static void start(const spx_arm *arm, const spx_flux_stars *in, const spx_flux_options *o, fit *f, spx_flux *out)
{
    const size_t n = f->n;
#pragma omp parallel for schedule(static) num_threads(o->nthreads > 0 ? o->nthreads : 1)
    for (size_t s = 0; s < f->nstar; s++) {
        double *ones = f->scaled_d + s * n, *tmp = f->tmp + s * n;
        size_t count, bright;
        load_star(arm, in, f, s);
        for (size_t j = 0; j < n; j++)
            ones[j] = 1;
        spx_resolution_apply(n, f->ndiag, f->b + s * f->ndiag * n, ones, f->model + s * n);
        f->a[s] = median_of(f, s, 0, tmp, &count);
        spx_flux_star *x = &out->star[s];
        x->sn = median_of(f, s, 1, tmp, &bright);
        x->nbin = (int64_t)bright;
        x->row = (int32_t)in->row[s];
        f->use[s] = bright >= SPX_FLUX_LEAST_BINS && f->a[s] > 0 && isfinite(f->a[s]) && x->sn > 0;
        f->out[s] = !f->use[s];
        x->fate = f->use[s] ? SPX_FLUX_USED : SPX_FLUX_NO_DATA;
    }
    const double middle = star_median(f, f->a, f->tmp);
    for (size_t s = 0; s < f->nstar; s++) {
        f->a[s] = f->use[s] ? f->a[s] / middle : 0;
        f->tmp1[s] = out->star[s].sn * out->star[s].sn;
    }
    const double weight = star_median(f, f->tmp1, f->tmp);
    for (size_t s = 0; s < f->nstar; s++)
        f->weight[s] = f->tmp1[s] > MOST_WEIGHT * weight ? MOST_WEIGHT * weight / f->tmp1[s] : 1;
}

/* Normal matrix of the stars that are used, and y; without the penalty. */
static spx_status normal(const spx_flux_options *o, fit *f, spx_err *e)
{
    const size_t n = f->n;
#pragma omp parallel for schedule(static) num_threads(o->nthreads > 0 ? o->nthreads : 1)
    for (size_t s = 0; s < f->nstar; s++)
        for (size_t k = 0; k < n; k++) {
            const size_t at = s * n + k;
            f->scaled_w[at] = f->kept[at] && f->use[s] ? f->w[at] * f->a[s] * f->a[s] * f->weight[s] : 0;
            f->scaled_d[at] = f->use[s] ? f->d[at] / f->a[s] : 0;
        }
    memset(f->band, 0, (f->half + 1) * n * sizeof *f->band);
    return f->engine->normal(f->engine->state, f->scaled_w, f->scaled_d, f->use, f->band, f->y, e);
}

/* Median diagonal of the normal matrix off telluric bands; 0: there are no data. */
static double middle_weight(fit *f)
{
    size_t count = 0;
    for (int pass = 0; pass < 2 && count == 0; pass++) /* an arm may be all bands */
        for (size_t k = 0; k < f->n; k++)
            if (f->band[k] > 0 && (pass == 1 || !f->telluric[k]))
                f->tmp[count++] = f->band[k];
    return spx_median(f->tmp, count);
}

/* Place of bin k among the nodes of the penalty: node *j, and the share of the next one. */
static double node_of(const fit *f, size_t k, size_t *j)
{
    const double at = f->nnode > 1 ? (double)k / (double)(f->n - 1) * (double)(f->nnode - 1) : 0;
    *j = (size_t)at + 1 < f->nnode ? (size_t)at : f->nnode > 1 ? f->nnode - 2 : 0;
    return at - (double)*j;
}

/* Adds the penalty to the band; `middle`: the weight of a bin. */
static void add_penalty(double middle, fit *f)
{
    const size_t n = f->n;
    for (uint8_t in = 0; in < 2; in++) {
        const double *node = f->node + in * f->nnode;
        double here = 0, ratio = 1; /* the penalty between two nodes, by its ratio from bin to bin */
        for (size_t k = 0, last = SIZE_MAX; k < n; k++) {
            size_t j;
            const double share = node_of(f, k, &j), next = f->nnode > 1 ? node[j + 1] : node[j];
            here *= ratio;
            if (j != last) {
                here = exp((1 - share) * node[j] + share * next);
                ratio = n > 1 ? exp((next - node[j]) * (double)(f->nnode - 1) / (double)(n - 1)) : 1;
                last = j;
            }
            if (f->telluric[k] == in)
                f->lambda[k] = middle * here;
        }
    }
    for (size_t k = 1; k + 1 < n; k++) {
        static const double d[3] = {1, -2, 1};
        for (size_t i = 0; i < 3; i++)
            for (size_t j = i; j < 3; j++)
                f->band[(j - i) * n + k - 1 + i] += f->lambda[k] * d[i] * d[j];
    }
}

/* C with a penalty; the band becomes the factor. */
static void solve_band(double middle, fit *f)
{
    add_penalty(middle, f);
    (void)spx_band_factor_host(f->n, (int)f->half, f->band, NOTHING, f->band);
    memcpy(f->c, f->y, f->n * sizeof *f->c);
    spx_band_solve_host(f->n, (int)f->half, f->band, f->c);
}

/* The most likely penalty: where each node tells as many degrees of freedom as are seen, log(told/seen) = 0 (MacKay
 * 1992, Neural Computation 4, 415). By steps of this size at first, then by those of the secant. noise: chi^2 of the
 * stars, at least 1. enough: a step that needs no other. */
static void find_smooth(const spx_flux_options *o, double middle, double noise, double enough, fit *f)
{
    const size_t n = f->n, size = (f->half + 1) * n, nnode = 2 * f->nnode;
    double change = INFINITY;
    double *v = f->inverse, *told = f->tmp, *seen = told + nnode, *before = seen + nnode, *step = before + nnode;
    memcpy(f->normal, f->band, size * sizeof *f->band);
    memset(step, 0, nnode * sizeof *step);
    for (int round = 0; round < SMOOTH_ROUNDS && change > enough; round++) {
        memcpy(f->band, f->normal, size * sizeof *f->band);
        solve_band(middle, f);
        spx_band_inverse_host(n, (int)f->half, f->band, v);
        memset(told, 0, 2 * nnode * sizeof *told);
        for (size_t k = 1; k + 1 < n; k++) {
            size_t j;
            const double share = node_of(f, k, &j), x = f->c[k - 1] - 2 * f->c[k] + f->c[k + 1];
            const double vk = v[k - 1] + 4 * v[k] + v[k + 1] - 4 * (v[n + k - 1] + v[n + k]) + 2 * v[2 * n + k - 1];
            const size_t set = f->telluric[k] ? f->nnode : 0;
            for (size_t i = 0; i < 2 && j + i < f->nnode; i++) {
                const double h = i == 0 ? 1 - share : share;
                told[set + j + i] += h * fmax(1 - f->lambda[k] * vk, 1e-6);
                seen[set + j + i] += h * f->lambda[k] * x * x / noise;
            }
        }
        change = 0;
        for (size_t j = 0; j < nnode; j++) {
            if (!(told[j] > 0 && seen[j] > 0))
                continue;
            const double rest = log(told[j] / seen[j]), slope = step[j] != 0 ? (before[j] - rest) / step[j] : 1;
            const double to = f->node[j] + rest / fmin(fmax(slope, LEAST_SLOPE), MOST_SLOPE);
            const int in = j >= f->nnode;
            const double most = in ? log(o->smooth_band) : MOST_SMOOTH, now = fmin(fmax(to, LEAST_SMOOTH[in]), most);
            before[j] = rest;
            step[j] = now - f->node[j];
            change = fmax(change, fabs(step[j]));
            f->node[j] = now;
        }
    }
    memcpy(f->band, f->normal, size * sizeof *f->band);
}

/* C with the scales as they are, and the models with it. noise: chi^2 of the stars, with which the penalty is found; 0:
 * it stays. enough: a step of its natural logarithm that needs no other. */
static spx_status solve(const spx_flux_options *o, double noise, double enough, fit *f, spx_err *e)
{
    const spx_status st = normal(o, f, e);
    if (st != SPX_OK)
        return st;
    const double middle = middle_weight(f);
    if (!(middle > 0))
        return spx_fail(e, SPX_EINPUT, "the standard stars have no good bin in common with their models");
    if (noise > 0 && !(o->smooth > 0))
        find_smooth(o, middle, noise, enough, f);
    solve_band(middle, f);
    f->middle = middle;
    return f->engine->models(f->engine->state, f->c, f->model, e);
}

/* Median chi^2 of the stars that are used, at least 1. */
static double find_noise(fit *f, const spx_flux *out)
{
    for (size_t s = 0; s < f->nstar; s++)
        f->tmp1[s] = out->star[s].chisq;
    return fmax(1, star_median(f, f->tmp1, f->tmp));
}

/* Scales (`scale`: else they stay), and with `clip` what is rejected. */
static void test_stars(const spx_flux_options *o, int scale, int clip, fit *f, spx_flux *out)
{
    const size_t n = f->n;
#pragma omp parallel for schedule(static) num_threads(o->nthreads > 0 ? o->nthreads : 1)
    for (size_t s = 0; s < f->nstar; s++) {
        double *tmp = f->tmp + s * n, dm = 0, mm = 0;
        const double *d = f->d + s * n, *w = f->w + s * n, *m = f->model + s * n;
        size_t count = 0;
        int64_t reject = 0;
        if (f->out[s])
            continue;
        for (size_t k = 0; k < n; k++)
            if (w[k] > 0 && f->kept[s * n + k]) {
                dm += w[k] * d[k] * m[k];
                mm += w[k] * m[k] * m[k];
            }
        if (scale)
            f->a[s] = mm > 0 ? dm / mm : 0;
        for (size_t k = 0; k < n; k++) {
            const double r = d[k] - f->a[s] * m[k];
            if (w[k] > 0)
                tmp[count++] = w[k] * r * r;
        }
        const double chi2 = spx_median(tmp, count) / 0.45494; /* median of chi^2 with one degree of freedom */
        const double most = o->clip * o->clip * (chi2 > 1 ? chi2 : 1);
        double sum = 0;
        for (size_t k = 0; k < n; k++) {
            const double r = d[k] - f->a[s] * m[k], z = w[k] * r * r;
            const int kept = clip ? !(o->clip > 0) || z <= most : f->kept[s * n + k];
            f->kept[s * n + k] = (uint8_t)kept;
            reject += w[k] > 0 && !kept;
            sum += kept ? z : 0;
        }
        out->star[s].nreject = reject;
        out->star[s].chisq = (int64_t)count > reject ? sum / (double)((int64_t)count - reject) : 0;
    }
}

/* Bins of telluric bands that most of the stars reject are kept: what they do not fit is a line that the response does
 * not follow yet, and without them never would. */
static void keep_common(fit *f)
{
    for (size_t k = 0; k < f->n; k++) {
        if (!f->telluric[k])
            continue;
        size_t all = 0, kept = 0;
        for (size_t s = 0; s < f->nstar; s++)
            if (f->use[s] && f->w[s * f->n + k] > 0) {
                all++;
                kept += f->kept[s * f->n + k];
            }
        for (size_t s = 0; s < f->nstar && 2 * kept < all; s++)
            f->kept[s * f->n + k] = 1;
    }
}

static void leave_out(fit *f, spx_flux *out, size_t s, spx_flux_fate why)
{
    f->out[s] = 1;
    f->use[s] = 0;
    out->star[s].fate = why;
}

/* Scales of median 1, and stars whose scale or number of rejected bins is out of the ordinary. */
static void test_scales(const spx_flux_stars *in, int leave, fit *f, spx_flux *out)
{
    for (size_t s = 0; s < f->nstar; s++)
        if (f->use[s] && !(f->a[s] > 0 && isfinite(f->a[s])))
            leave_out(f, out, s, SPX_FLUX_NO_DATA);
    const double middle = star_median(f, f->a, f->tmp), spread = star_spread(f, f->a, middle, f->tmp);
    for (size_t s = 0; s < f->nstar && leave; s++) {
        const double off = fabs(f->a[s] - middle);
        if (f->use[s] && in->calibrated && off > 4 * spread && off > 0.2 * middle)
            leave_out(f, out, s, SPX_FLUX_SCALE);
        else if (f->use[s] && 5 * out->star[s].nreject > out->star[s].nbin)
            leave_out(f, out, s, SPX_FLUX_CLIPPED);
    }
    const double now = star_median(f, f->a, f->tmp);
    for (size_t s = 0; s < f->nstar && now > 0; s++)
        f->a[s] /= now;
}

/* ---- error of the models ---- */

/* Blocks of the spectrum: relative residual of each star, its variance by the noise, and information. */
typedef struct {
    size_t n, of;                              /* blocks; bins of one */
    double *residual, *variance, *information; /* [nstar][n] */
    double *tau2;                              /* [n] */
} blocks;

static void block_residuals(const fit *f, size_t s, blocks *b)
{
    const size_t n = f->n;
    const double *d = f->d + s * n, *w = f->w + s * n, *m = f->model + s * n;
    for (size_t k = 0; k < n && f->use[s]; k++) {
        const size_t at = s * b->n + (k / b->of < b->n ? k / b->of : b->n - 1);
        const double model = f->a[s] * m[k];
        if (!(w[k] > 0) || !f->kept[s * n + k] || f->telluric[k])
            continue;
        b->residual[at] += w[k] * model * (d[k] - model);
        b->information[at] += w[k] * model * model;
    }
    for (size_t i = 0; i < b->n; i++) {
        const size_t at = s * b->n + i;
        const int any = b->information[at] > 0;
        b->residual[at] = any ? b->residual[at] / b->information[at] : 0;
        b->variance[at] = any ? 1 / b->information[at] : 0;
    }
}

/* tau^2 of block i by moments. */
static double block_excess(const fit *f, const blocks *b, size_t i)
{
    double total = 0, tau2 = 0;
    for (size_t s = 0; s < f->nstar; s++)
        total += b->information[s * b->n + i] * f->weight[s];
    for (int round = 0; round < 8; round++) {
        double sum = 0, weight = 0;
        for (size_t s = 0; s < f->nstar; s++) {
            const size_t at = s * b->n + i;
            const double share = total > 0 ? b->information[at] * f->weight[s] / total : 1;
            if (!(b->information[at] > 0) || !(share < 0.9))
                continue;
            const double q = 1 / (b->variance[at] + tau2);
            sum += q * q * (b->residual[at] * b->residual[at] / (1 - share) - b->variance[at]);
            weight += q * q;
        }
        tau2 = weight > 0 && sum > 0 ? sum / weight : 0;
    }
    return tau2;
}

/* Stars whose shape is far from the others'; returns how many. */
static size_t test_shapes(fit *f, const blocks *b, spx_flux *out)
{
    size_t n = 0;
    for (size_t s = 0; s < f->nstar; s++) {
        double sum = 0, count = 0;
        for (size_t i = 0; i < b->n; i++) {
            const size_t at = s * b->n + i;
            sum += b->residual[at] * b->residual[at] - b->variance[at];
            count += b->information[at] > 0;
        }
        f->tmp1[s] = count > 0 && sum > 0 ? sqrt(sum / count) : 0;
        if (f->use[s])
            out->star[s].shape = f->tmp1[s];
    }
    const double middle = star_median(f, f->tmp1, f->tmp), spread = star_spread(f, f->tmp1, middle, f->tmp);
    for (size_t s = 0; s < f->nstar; s++)
        if (f->use[s] && f->tmp1[s] > middle + 4 * spread && f->tmp1[s] > 0.05) {
            leave_out(f, out, s, SPX_FLUX_SHAPE);
            n++;
        }
    return n;
}

static void make_blocks(const fit *f, blocks *b)
{
    memset(b->residual, 0, f->nstar * b->n * sizeof *b->residual);
    memset(b->information, 0, f->nstar * b->n * sizeof *b->information);
    for (size_t s = 0; s < f->nstar; s++)
        block_residuals(f, s, b);
}

/* Relative error of C by the models, from the blocks, linearly between their middles. */
static void model_error(const fit *f, const blocks *b, double *error)
{
    for (size_t i = 0; i < b->n; i++)
        b->tau2[i] = block_excess(f, b, i);
    for (size_t k = 0; k < f->n; k++) {
        const double at = ((double)k + 0.5) / (double)b->of - 0.5;
        const double q = at < 0 ? 0 : at > (double)(b->n - 1) ? (double)(b->n - 1) : at;
        const size_t i0 = (size_t)q, i1 = i0 + 1 < b->n ? i0 + 1 : i0;
        double value[2];
        for (int side = 0; side < 2; side++) {
            const size_t i = side == 0 ? i0 : i1, first = i < 1 ? 0 : i - 1, last = i + 2 < b->n ? i + 2 : b->n;
            double tau2 = 0, weight = 0, square = 0;
            for (size_t j = first; j < last; j++) {
                double all = 0, information = 0, squares = 0;
                for (size_t s = 0; s < f->nstar; s++) {
                    const double w = b->information[s * b->n + j] * f->weight[s];
                    information += b->information[s * b->n + j];
                    all += w;
                    squares += w * w;
                }
                if (!(all > 0))
                    continue;
                /* the error of tau^2 goes with the variance of residuals: few bins of a block are off bands */
                const double u = information * information;
                tau2 += u * b->tau2[j];
                square += u * squares / (all * all);
                weight += u;
            }
            /* times 1/(effective number of stars) */
            value[side] = weight > 0 ? tau2 / weight * (square / weight) : 0;
        }
        error[k] = sqrt(value[0] + (q - (double)i0) * (value[1] - value[0]));
    }
}

static spx_status alloc_blocks(const spx_arm *arm, const fit *f, blocks *b, spx_err *e)
{
    const double range = arm->wavelength[f->n - 1] - arm->wavelength[0];
    b->n = range > 4 * BLOCK_WIDTH ? (size_t)(range / BLOCK_WIDTH) : 4;
    b->of = (f->n + b->n - 1) / b->n;
    b->n = (f->n + b->of - 1) / b->of;
    return (b->residual = spx_alloc2(f->nstar, b->n, sizeof *b->residual, e)) != NULL &&
                   (b->variance = spx_alloc2(f->nstar, b->n, sizeof *b->variance, e)) != NULL &&
                   (b->information = spx_alloc2(f->nstar, b->n, sizeof *b->information, e)) != NULL &&
                   (b->tau2 = spx_alloc(b->n, sizeof *b->tau2, e)) != NULL
               ? SPX_OK
               : SPX_EIO;
}

static void free_blocks(blocks *b)
{
    spx_free(b->residual);
    spx_free(b->variance);
    spx_free(b->information);
    spx_free(b->tau2);
}

/* ---- the solution ---- */

static spx_status too_few(const fit *f, spx_err *e)
{
    const size_t n = count_used(f);
    if (n >= SPX_FLUX_LEAST_STARS)
        return SPX_OK;
    return spx_fail_remedy(e, SPX_EINPUT, "name more with {stars}, or apply the response of another exposure",
                           "%zu of %zu standard stars can be used, %d are needed", n, f->nstar, SPX_FLUX_LEAST_STARS);
}

static spx_status iterate(const spx_arm *arm, const spx_flux_stars *in, const spx_flux_options *o, fit *f, blocks *b,
                          spx_flux *out, spx_err *e)
{
    start(arm, in, o, f, out);
    for (size_t j = 0; j < f->nnode; j++) {
        f->node[j] = log(o->smooth > 0 ? o->smooth : FIRST_SMOOTH);
        f->node[f->nnode + j] = log(o->smooth_band);
    }
    spx_status st = too_few(f, e);
    if (st == SPX_OK)
        st = f->engine->load(f->engine->state, f->nstar, f->n, f->ndiag, f->b, e);
    const int passes = o->passes > 2 ? o->passes : 2;
    size_t odd = 0;
    for (int pass = 0; pass < passes + (odd > 0) && st == SPX_OK; pass++) {
        /* when scales are about right and outliers are out, and once more behind that */
        const int last = pass + 1 == passes;
        if ((st = solve(o, pass == 2 || last ? find_noise(f, out) : 0, last ? SMALL : ABOUT, f, e)) != SPX_OK)
            break;
        test_stars(o, 1, pass > 0, f, out);
        keep_common(f);
        test_scales(in, pass > 1, f, out);
        if (pass + 1 == passes) {
            make_blocks(f, b);
            odd = test_shapes(f, b, out);
        }
        st = too_few(f, e);
    }
    if (st != SPX_OK || (st = solve(o, 0, 0, f, e)) != SPX_OK)
        return st;
    test_stars(o, 0, 0, f, out);
    make_blocks(f, b);
    return SPX_OK;
}

/* Adds to the relative error what a grid of bins leaves of lines narrower than the resolution, such as telluric ones:
 * stars share it, since they have their bins at the same places, and do not tell it. r: resolution matrix of one;
 * memory: [3][n]. */
static void add_grid_error(const fit *f, const double *r, double *memory, double *error)
{
    const size_t n = f->n;
    double *c = memory, *width = memory + n, *square = memory + 2 * n;
    spx_resolution_apply(n, f->ndiag, r, f->c, c);
    spx_resolution_widths(n, f->ndiag, r, square, width);
    const double part = hypot(GRID_ERROR / pow(spx_median(width, n), 2), LEFT_ERROR);
    for (size_t k = 0; k < n; k++) {
        double least = c[k], most = c[k];
        for (size_t l = k < GRID_REACH ? 0 : k - GRID_REACH; l <= k + GRID_REACH && l < n; l++) {
            least = fmin(least, c[l]);
            most = fmax(most, c[l]);
        }
        const double more = c[k] > 0 ? part * (most - fmax(least, 0)) / c[k] : 0;
        error[k] = sqrt(error[k] * error[k] + more * more);
    }
}

/* The solution, as a response. */
static spx_status finish(const spx_arm *arm, const fit *f, const blocks *b, spx_flux *out, spx_err *e)
{
    const size_t n = f->n;
    double sum = 0, count = 0, *inverse = spx_alloc2(f->half + 3, n, sizeof *inverse, e);
    out->covariance = spx_alloc2(f->ndiag, n, sizeof *out->covariance, e);
    out->response = spx_alloc(n, sizeof *out->response, e);
    out->wavelength = spx_alloc(n, sizeof *out->wavelength, e);
    out->model_error = spx_alloc(n, sizeof *out->model_error, e);
    out->stars = spx_alloc(n, sizeof *out->stars, e);
    if (inverse == NULL || out->covariance == NULL || out->response == NULL || out->wavelength == NULL ||
        out->model_error == NULL || out->stars == NULL) {
        spx_free(inverse);
        return SPX_EIO;
    }
    out->nwave = n;
    for (size_t k = 0; k < n; k++)
        f->tmp[k] = f->lambda[k] / f->middle;
    out->smooth = spx_median(f->tmp, n);
    out->ndiag = f->ndiag;
    out->medium = arm->medium;
    out->barycentric = arm->barycentric;
    memcpy(out->wavelength, arm->wavelength, n * sizeof *out->wavelength);
    memcpy(out->response, f->c, n * sizeof *f->c);
    spx_band_inverse_host(n, (int)f->half, f->band, inverse);
    memcpy(out->covariance, inverse, f->ndiag * n * sizeof *inverse);
    for (size_t s = 0; s < f->nstar; s++) {
        spx_flux_star *x = &out->star[s];
        x->scale = f->a[s];
        for (size_t k = 0; k < n && f->use[s]; k++)
            out->stars[k] += f->w[s * n + k] > 0 && f->kept[s * n + k];
        if (f->use[s]) {
            sum += x->chisq * (double)(x->nbin - x->nreject);
            count += (double)(x->nbin - x->nreject);
        }
    }
    out->chisq = count > 0 ? sum / count : 0;
    model_error(f, b, out->model_error);
    size_t s = 0; /* R of stars differs by some per cent: any will do */
    while (s + 1 < f->nstar && !f->use[s])
        s++;
    add_grid_error(f, arm->resolution + (size_t)out->star[s].row * f->ndiag * n, inverse, out->model_error);
    spx_free(inverse);
    for (size_t k = 0; k < n; k++)
        if (!isfinite(f->c[k]))
            return spx_fail(e, SPX_EINPUT, "the response is not finite at bin %zu: are models and fluxes in order?", k);
    return SPX_OK;
}

spx_status spx_flux_solve_with(const spx_flux_engine *engine, const spx_arm *arm, const spx_flux_stars *in,
                               const spx_flux_options *o, spx_flux *out, spx_err *e)
{
    fit f = {.nstar = in->nstar, .n = arm->nwave, .ndiag = arm->ndiag, .engine = engine};
    blocks b = {0};
    *out = (spx_flux){0};
    if (arm->resolution == NULL || arm->ndiag % 2 == 0 || arm->ndiag - 1 > SPX_BAND_MOST)
        return spx_fail_remedy(e, SPX_EINPUT, "extract it with specx-extract",
                               "the frame has no resolution matrices of an odd number of diagonals up to %d",
                               SPX_BAND_MOST + 1);
    if (arm->nwave < SPX_FLUX_LEAST_BINS)
        return spx_fail(e, SPX_EINPUT, "%zu bins are too few for a response: at least %d are needed", arm->nwave,
                        SPX_FLUX_LEAST_BINS);
    for (size_t k = 0; k < arm->nwave && in->nstar > 0; k++)
        for (size_t s = 0; s < in->nstar; s++)
            if (!isfinite(in->model[s * arm->nwave + k]))
                return spx_fail(e, SPX_EINPUT, "the model of star %zu is not finite at bin %zu", s, k);
    const double nodes = (arm->wavelength[f.n - 1] - arm->wavelength[0]) / NODE_WIDTH;
    f.nnode = nodes < 1 ? 1 : nodes < (double)f.n / 4 ? (size_t)nodes + 1 : f.n / 4;
    spx_status st = make_fit(&f, e);
    if (st == SPX_OK)
        st = alloc_blocks(arm, &f, &b, e);
    if (st == SPX_OK && (out->star = spx_alloc(in->nstar, sizeof *out->star, e)) == NULL)
        st = SPX_EIO;
    out->nstar = in->nstar;
    for (size_t k = 0; k < f.n && st == SPX_OK; k++)
        for (size_t i = 0; i < o->nband; i++)
            f.telluric[k] |= arm->wavelength[k] >= o->band[2 * i] && arm->wavelength[k] <= o->band[2 * i + 1];
    if (st == SPX_OK)
        st = iterate(arm, in, o, &f, &b, out, e);
    if (st == SPX_OK)
        st = finish(arm, &f, &b, out, e);
    free_fit(&f);
    free_blocks(&b);
    if (st != SPX_OK)
        spx_flux_free(out);
    return st;
}

/* ---- the CPU as an engine ---- */

typedef struct {
    size_t nstar, n, ndiag;
    const double *b;
    int nthreads;
} cpu;

static spx_status cpu_load(void *state, size_t nstar, size_t n, size_t ndiag, const double *b, spx_err *e)
{
    cpu *c = state;
    (void)e;
    c->nstar = nstar;
    c->n = n;
    c->ndiag = ndiag;
    c->b = b;
    return SPX_OK;
}

static spx_status cpu_normal(void *state, const double *w, const double *d, const uint8_t *use, double *a, double *y,
                             spx_err *e)
{
    const cpu *c = state;
    (void)e;
    spx_resolution_normal(c->nstar, c->n, c->ndiag, c->b, w, d, use, c->nthreads, a, y);
    return SPX_OK;
}

static spx_status cpu_models(void *state, const double *c_, double *model, spx_err *e)
{
    const cpu *c = state;
    (void)e;
#pragma omp parallel for schedule(static) num_threads(c->nthreads)
    for (size_t s = 0; s < c->nstar; s++)
        spx_resolution_apply(c->n, c->ndiag, c->b + s * c->ndiag * c->n, c_, model + s * c->n);
    return SPX_OK;
}

spx_status spx_flux_solve_cpu(const spx_arm *arm, const spx_flux_stars *in, const spx_flux_options *o, spx_flux *out,
                              spx_err *e)
{
    cpu state = {.nthreads = o->nthreads > 0 ? o->nthreads : 1};
    const spx_flux_engine engine = {&state, cpu_load, cpu_normal, cpu_models};
    return spx_flux_solve_with(&engine, arm, in, o, out, e);
}
