/* Chooses starts from a star's cross-correlation, for host and device. */
#ifndef SPX_RVFIT_CANDIDATES_H
#define SPX_RVFIT_CANDIDATES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "hostdevice.h"

enum { SPX_RV_MAX_START = 6 };

/* Peaks closer than this are one, km/s. */
#define SPX_RV_FAR 60.0

/* What the starts of all stars have in common: entries of the set and velocities lag_v0 + i lag_step. */
typedef struct {
    size_t ntemp, nlag;
    double lag_v0, lag_step, vmin, vmax;
    const int32_t *kind; /* [ntemp] entries with the same parameters have the same number */
    const double *vsini; /* [ntemp] */
} spx_rv_set;

/* The starts of a star, best first: entry, lag, refined velocity, and chi^2 (less its constant part) there. n 0: the
 * cross-correlation says nothing. */
typedef struct {
    int32_t n, entry[SPX_RV_MAX_START];
    float chi[SPX_RV_MAX_START];
    double v[SPX_RV_MAX_START];
} spx_rv_candidates;

/* Adds the start of entry t at lag i, refined by a parabola. */
SPX_HD void spx_rv_candidates_add(const spx_rv_set *s, const float *chi, int32_t t, size_t i, spx_rv_candidates *p)
{
    const float *c = chi + (size_t)t * s->nlag;
    double at = (double)i;
    if (i > 0 && i + 1 < s->nlag) {
        double left = (double)(c[i - 1] - c[i]), right = (double)(c[i + 1] - c[i]);
        if (left + right > 0)
            at += fmax(-0.5, fmin(0.5, 0.5 * (left - right) / (left + right)));
    }
    p->entry[p->n] = t;
    p->chi[p->n] = c[i];
    p->v[p->n] = fmax(s->vmin, fmin(s->vmax, s->lag_v0 + at * s->lag_step));
    p->n++;
}

/* Least chi^2 at lag i over all entries, chi[ntemp][nlag], and whose it is. */
SPX_HD void spx_rv_candidates_best(const spx_rv_set *s, const float *chi, size_t i, float *best, int32_t *entry)
{
    *best = HUGE_VALF;
    *entry = 0;
    for (size_t t = 0; t < s->ntemp; t++)
        if (chi[t * s->nlag + i] < *best) {
            *best = chi[t * s->nlag + i];
            *entry = (int32_t)t;
        }
}

/* Several starts from chi^2 of all entries and lags: the best of all; the best with another template; then the best at
 * velocities that are far from all others. */
SPX_HD void spx_rv_candidates_choose(const spx_rv_set *s, const float *chi, const float *best,
                                     const int32_t *best_entry, spx_rv_candidates *p)
{
    size_t nl = s->nlag, top = 0;
    p->n = 0;
    for (size_t i = 1; i < nl; i++)
        if (best[i] < best[top])
            top = i;
    if (!isfinite(best[top]))
        return;
    int32_t first = best_entry[top];
    spx_rv_candidates_add(s, chi, first, top, p);
    /* Other templates near the best velocity: different parameters first, then another vsini. */
    size_t reach = (size_t)ceil(SPX_RV_FAR / s->lag_step), i0 = top > reach ? top - reach : 0;
    size_t i1 = top + reach < nl ? top + reach : nl - 1;
    for (int other = 0; other < 2; other++) {
        float least = HUGE_VALF;
        size_t bt = 0, bi = 0;
        for (size_t t = 0; t < s->ntemp; t++) {
            if (other == 0 ? s->kind[t] == s->kind[first] : s->vsini[t] == s->vsini[first])
                continue;
            for (size_t i = i0; i <= i1; i++)
                if (chi[t * nl + i] < least) {
                    least = chi[t * nl + i];
                    bt = t;
                    bi = i;
                }
        }
        if (isfinite(least))
            spx_rv_candidates_add(s, chi, (int32_t)bt, bi, p);
    }
    while (p->n < SPX_RV_MAX_START) {
        size_t bi = nl;
        for (size_t i = 0; i < nl; i++) {
            double v = s->lag_v0 + (double)i * s->lag_step;
            int far = 1, peak = (i == 0 || best[i] <= best[i - 1]) && (i + 1 == nl || best[i] <= best[i + 1]);
            for (int32_t k = 0; k < p->n; k++)
                far = far && fabs(p->v[k] - v) > SPX_RV_FAR;
            if (far && peak && (bi == nl || best[i] < best[bi]))
                bi = i;
        }
        if (bi == nl)
            break;
        spx_rv_candidates_add(s, chi, best_entry[bi], bi, p);
    }
}

#endif
