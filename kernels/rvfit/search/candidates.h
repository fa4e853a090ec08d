/* Chooses starts from a star's cross-correlation, for host and device. */
#ifndef SPX_RVFIT_CANDIDATES_H
#define SPX_RVFIT_CANDIDATES_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "hostdevice.h"

/* Starts of a star; those of them that the cross-correlation gives, at most, and of these at other velocities than the
 * best. */
enum { SPX_RV_MAX_START = 12, SPX_RV_CANDIDATES = 10, SPX_RV_VELOCITIES = 3 };

/* Peaks closer than this are one, km/s. */
#define SPX_RV_FAR 60.0

/* Places closer than this lead to the same minimum, mostly. */
#define SPX_RV_APART 0.2f

/* An entry of another vsini whose chi^2 is less than this above the best is a start of its own. */
#define SPX_RV_ALIKE 50.0f

/* Other velocities whose chi^2 is so much above the best, and that explain less than this fraction of the lines, are no
 * starts: templates between the entries gain less. */
#define SPX_RV_WORSE     1000.0f
#define SPX_RV_EXPLAINED 0.5f

/* What the starts of all stars have in common: entries of the set and velocities lag_v0 + i lag_step. */
typedef struct {
    size_t ntemp, nlag;
    double lag_v0, lag_step, vmin, vmax;
    const double *vsini; /* [ntemp] */
    size_t npar, main;   /* parameters; the one that changes spectra most */
    const float *place;  /* [ntemp][npar] parameters, such that distances tell how unlike spectra are (setup_ccf.c) */
} spx_rv_set;

/* The starts of a star, best first: entry, lag, refined velocity, and chi^2 (less its constant part) there. Those
 * from nsure on are for stars whose minimum one start alone has met. n 0: the cross-correlation says nothing. */
typedef struct {
    int32_t n, nsure, entry[SPX_RV_MAX_START];
    float chi[SPX_RV_MAX_START];
    double v[SPX_RV_MAX_START];
} spx_rv_candidates;

/* chi^2 of a star, and what is least of it. */
typedef struct {
    const float *chi; /* [ntemp][nlag] */
    float *best;      /* [nlag] of all entries, and */
    int32_t *entry;   /* whose it is */
    float *least;     /* [ntemp] of each entry near the best velocity, and */
    int32_t *lag;     /* where */
} spx_rv_surface;

/* Adds the start of entry t at lag i, refined by a parabola. */
SPX_HD void spx_rv_candidates_add(const spx_rv_set *s, const spx_rv_surface *q, int32_t t, size_t i,
                                  spx_rv_candidates *p)
{
    const float *c = q->chi + (size_t)t * s->nlag;
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

/* best[i] and entry[i], of each lag; first of all. */
SPX_HD void spx_rv_candidates_best(const spx_rv_set *s, const spx_rv_surface *q, size_t i)
{
    float best = HUGE_VALF;
    int32_t entry = 0;
    for (size_t t = 0; t < s->ntemp; t++)
        if (q->chi[t * s->nlag + i] < best) {
            best = q->chi[t * s->nlag + i];
            entry = (int32_t)t;
        }
    q->best[i] = best;
    q->entry[i] = entry;
}

/* The lag that is best of all, and those near it, *i0 ... *i1. */
SPX_HD size_t spx_rv_candidates_near(const spx_rv_set *s, const spx_rv_surface *q, size_t *i0, size_t *i1)
{
    const size_t reach = (size_t)ceil(SPX_RV_FAR / s->lag_step);
    size_t top = 0;
    for (size_t i = 1; i < s->nlag; i++)
        if (q->best[i] < q->best[top])
            top = i;
    *i0 = top > reach ? top - reach : 0;
    *i1 = top + reach < s->nlag ? top + reach : s->nlag - 1;
    return top;
}

/* least[t] and lag[t], of each entry, at lags i0 ... i1. */
SPX_HD void spx_rv_candidates_least(const spx_rv_set *s, const spx_rv_surface *q, size_t t, size_t i0, size_t i1)
{
    const float *chi = q->chi + t * s->nlag;
    float least = HUGE_VALF;
    size_t lag = i0;
    for (size_t i = i0; i <= i1; i++)
        if (chi[i] < least) {
            least = chi[i];
            lag = i;
        }
    q->least[t] = least;
    q->lag[t] = (int32_t)lag;
}

/* Entries that may be a start besides those that are chosen: on either side of the best along the main parameter, apart
 * from all of them, of another vsini than the best. */
typedef enum { SPX_RV_BELOW, SPX_RV_ABOVE, SPX_RV_ELSEWHERE, SPX_RV_ROTATION } spx_rv_kind;

SPX_HD int spx_rv_candidates_is(const spx_rv_set *s, const spx_rv_candidates *p, size_t t, spx_rv_kind kind)
{
    const float *here = s->place + t * s->npar;
    if (kind == SPX_RV_ROTATION)
        return s->vsini[t] != s->vsini[p->entry[0]];
    if (kind != SPX_RV_ELSEWHERE) {
        const float d = here[s->main] - s->place[(size_t)p->entry[0] * s->npar + s->main];
        return kind == SPX_RV_ABOVE ? d > SPX_RV_APART : -d > SPX_RV_APART;
    }
    for (int32_t k = 0; k < p->n; k++) {
        const float *there = s->place + (size_t)p->entry[k] * s->npar;
        float d = 0;
        for (size_t i = 0; i < s->npar; i++)
            d += (here[i] - there[i]) * (here[i] - there[i]);
        if (!(d > SPX_RV_APART * SPX_RV_APART))
            return 0;
    }
    return 1;
}

/* Adds the best entry of a kind near the best velocity with a chi^2 below `most`; 0: there is none. */
SPX_HD int spx_rv_candidates_other(const spx_rv_set *s, const spx_rv_surface *q, spx_rv_kind kind, float most,
                                   spx_rv_candidates *p)
{
    float least = most;
    size_t which = s->ntemp;
    for (size_t t = 0; t < s->ntemp; t++)
        if (q->least[t] < least && spx_rv_candidates_is(s, p, t, kind)) {
            least = q->least[t];
            which = t;
        }
    if (which < s->ntemp)
        spx_rv_candidates_add(s, q, (int32_t)which, (size_t)q->lag[which], p);
    return which < s->ntemp;
}

/* Several starts from chi^2 of all entries and lags. At the best velocity: the best of all; the best on both sides of
 * it along the main parameter, since minima are two where a line is strongest at a temperature between them (Balmer
 * lines of hot stars); that with another rotation where the data hardly tell. Then the best at velocities that are far
 * from all others, unless they explain much less (chi^2 without lines is 0). At last more at the best velocity that are
 * apart from all. top: of spx_rv_candidates_near(). */
SPX_HD void spx_rv_candidates_choose(const spx_rv_set *s, const spx_rv_surface *q, size_t top, spx_rv_candidates *p)
{
    const size_t nl = s->nlag;
    const float *best = q->best;
    p->n = p->nsure = 0;
    if (!isfinite(best[top]))
        return;
    spx_rv_candidates_add(s, q, q->entry[top], top, p);
    (void)spx_rv_candidates_other(s, q, SPX_RV_ABOVE, HUGE_VALF, p);
    (void)spx_rv_candidates_other(s, q, SPX_RV_BELOW, HUGE_VALF, p);
    (void)spx_rv_candidates_other(s, q, SPX_RV_ROTATION, p->chi[0] + SPX_RV_ALIKE, p);
    for (int32_t end = p->n + SPX_RV_VELOCITIES; p->n < end;) {
        size_t bi = nl;
        for (size_t i = 0; i < nl; i++) {
            double v = s->lag_v0 + (double)i * s->lag_step;
            int far = 1, peak = (i == 0 || best[i] <= best[i - 1]) && (i + 1 == nl || best[i] <= best[i + 1]);
            for (int32_t k = 0; k < p->n; k++)
                far = far && fabs(p->v[k] - v) > SPX_RV_FAR;
            if (far && peak && (bi == nl || best[i] < best[bi]))
                bi = i;
        }
        if (bi == nl || (best[bi] > p->chi[0] + SPX_RV_WORSE && best[bi] > SPX_RV_EXPLAINED * p->chi[0]))
            break;
        spx_rv_candidates_add(s, q, q->entry[bi], bi, p);
    }
    p->nsure = p->n;
    while (p->n < SPX_RV_CANDIDATES && spx_rv_candidates_other(s, q, SPX_RV_ELSEWHERE, HUGE_VALF, p))
        ;
}

#endif
