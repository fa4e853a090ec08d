/* Provides the jitter of a star: a variance in the square of a fraction of the smooth flux, which stands for what the
 * templates cannot follow, and errors with it (rvfit.h). */
#include <math.h>

#include "base/clones.h"
#include "num/stat.h"
#include "rvfit/model/model.h"

static const double MATTERS = 0.1; /* change of a jitter, in units of its error, after which a star is fitted again */

SPX_CLONES
static void invert(size_t n, double *x)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        x[i] = 1 / x[i];
}

/* sigma of good pixels, `large` of others. */
SPX_CLONES
static void choose_errors(size_t n, const uint8_t *good, double large, const double *restrict sigma, double *restrict s)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        s[i] = good[i] ? sigma[i] : large;
}

void spx_rv_set_errors(const spx_rv_arm *a, spx_rv_data *d, const double *sigma, const double *level, double jitter)
{
    double *s = d->ie; /* errors, at first */
    choose_errors(a->n, d->good, d->large, sigma, s);
    for (size_t i = 0; jitter > 0 && i < a->n; i++)
        s[i] = d->good[i] ? hypot(sigma[i], jitter * level[i]) : s[i];
    double sum = 0;
    for (size_t i = 0; i < a->n; i += 4) { /* of four errors, which are within 1e-50 and 1e50 */
        double product = s[i];
        for (size_t k = i + 1; k < i + 4 && k < a->n; k++)
            product *= s[k];
        sum += 2 * log(product);
    }
    d->sum_lne2 = sum;
    invert(a->n, s);
}

void spx_rv_level(size_t n, const double *flux, const uint8_t *good, double *tmp, double *level)
{
    const size_t block = n / SPX_RV_LEVEL_BLOCKS > SPX_RV_LEVEL_PIXELS ? n / SPX_RV_LEVEL_BLOCKS : SPX_RV_LEVEL_PIXELS;
    const size_t nblock = n > block ? n / block : 1;
    double before = 0, at = 0;
    size_t filled = 0; /* pixels that have their level */
    for (size_t b = 0; b < nblock; b++) {
        const size_t first = b * n / nblock, end = (b + 1) * n / nblock;
        size_t m = 0;
        for (size_t i = first; i < end; i++)
            if (good[i])
                tmp[m++] = flux[i];
        if (m == 0)
            continue;
        const double middle = 0.5 * (double)(first + end - 1), value = fabs(spx_median(tmp, m));
        for (; filled < n && (double)filled <= middle; filled++)
            level[filled] = at > 0 ? before + (value - before) * ((double)filled - at) / (middle - at) : value;
        before = value;
        at = middle;
    }
    for (; filled < n; filled++)
        level[filled] = before;
}

/* Likelihood of an arm as a function of the jitter's square q, at the models: with r = flux - model, e^2 = sigma^2 + q
 * c^2 and the share h of the pixels' freedom that fitted quantities take, -2 ln L = sum_i [(1 - h) ln e_i^2 +
 * r_i^2/e_i^2] + constant where -h sum ln e^2 is ln det(S'S) of the continuum with its leverage spread evenly, and the
 * same of the templates' quantities. */
typedef struct {
    double slope; /* derivative of -2 ln L by q */
    double info;  /* Fisher information on q */
    double scale; /* mean of r^2/c^2 */
} likelihood;

static likelihood at_jitter(const spx_rv_spectra *w, size_t ia, double h, double q)
{
    likelihood l = {0};
    double n = 0;
    for (size_t k = w->first[ia]; k < w->first[ia + 1]; k++) {
        const spx_rv_data *d = &w->piece[k];
        for (size_t i = 0; i < w->ctx->arm[ia].n && d->chisq < HUGE_VAL; i++) {
            if (!d->good[i] || !(d->level[i] > 0))
                continue;
            const double r = d->flux[i] - d->model[i], c2 = d->level[i] * d->level[i];
            const double weight = c2 / (d->sigma[i] * d->sigma[i] + q * c2);
            l.slope += weight * (1 - h - r * r * weight / c2);
            l.info += 0.5 * weight * weight;
            l.scale += r * r / c2;
            n++;
        }
    }
    l.scale /= fmax(1, n);
    return l;
}

/* Square of the jitter of an arm where the likelihood has its maximum; 0 when it falls from there on. */
static double best_square(const spx_rv_spectra *w, size_t ia, double h)
{
    const likelihood none = at_jitter(w, ia, h, 0);
    double lo = 0, hi = none.scale;
    if (!(none.slope < 0) || !(hi > 0) || !(hi < HUGE_VAL))
        return 0;
    for (int k = 0; k < SPX_RV_JITTER_STEPS && at_jitter(w, ia, h, hi).slope < 0; k++)
        hi *= 2;
    for (int k = 0; k < SPX_RV_JITTER_STEPS && hi - lo > 1e-6 * hi; k++) {
        const double middle = 0.5 * (lo + hi);
        if (at_jitter(w, ia, h, middle).slope < 0)
            lo = middle;
        else
            hi = middle;
    }
    return 0.5 * (lo + hi);
}

int spx_rv_is_jitter_fitted(const spx_rv_spectra *w, size_t ia)
{
    return w->first[ia] < w->first[ia + 1] && !isfinite(w->ctx->opt->jitter_of[w->ctx->arm[ia].index]);
}

double spx_rv_freedom_taken(const spx_rv_spectra *w, size_t ia)
{
    const spx_rv_ctx *c = w->ctx;
    double all = 0, good = 0;
    for (size_t k = 0; k < w->first[c->narm]; k++)
        all += (double)w->piece[k].ngood;
    for (size_t k = w->first[ia]; k < w->first[ia + 1]; k++)
        good += (double)w->piece[k].ngood;
    const double taken = (double)(w->first[ia + 1] - w->first[ia]) * (double)c->arm[ia].basis.n;
    return fmin(0.9, taken / good + (double)c->nfree / all);
}

int spx_rv_take_jitter(spx_rv_spectra *w, size_t ia, double square, double info)
{
    const double jitter = sqrt(square), error = sqrt(square + 1 / sqrt(info)) - jitter;
    if (!isfinite(error) || fabs(jitter - w->jitter[ia]) <= MATTERS * error)
        return 0;
    w->jitter[ia] = jitter;
    w->jitter_err[ia] = error;
    return 1;
}

int spx_rv_fit_jitter(spx_rv_spectra *w)
{
    const spx_rv_ctx *c = w->ctx;
    int changed = 0;
    for (size_t ia = 0; ia < c->narm; ia++) {
        if (!spx_rv_is_jitter_fitted(w, ia))
            continue;
        const double h = spx_rv_freedom_taken(w, ia), q = best_square(w, ia, h);
        if (!spx_rv_take_jitter(w, ia, q, at_jitter(w, ia, h, q).info))
            continue;
        changed = 1;
        for (size_t k = w->first[ia]; k < w->first[ia + 1]; k++)
            spx_rv_set_errors(&c->arm[ia], &w->piece[k], w->piece[k].sigma, w->piece[k].level, w->jitter[ia]);
    }
    return changed;
}
