/* Errors of a velocity and other velocities that are possible: the objective along v, at the templates of the minimum.
 * The logic of one star: it asks for velocities and is told the objective there, so that many stars can be computed
 * together. */
#include <math.h>

#include "rvfit/rvfit_fit.h"

enum { PROFILE_MAX = 8192, PROFILE_ROUNDS = 8, OTHER_ROUNDS = 8 };
static const double SCAN_KMS = 10;   /* step of the scan for other velocities */
static const double SCAN_DEPTH = 50; /* objective above the minimum beyond which a velocity has no weight */
static const double CCF_DEPTH = 150; /* the same in chi^2 of the cross-correlation, which is approximate */
/* Half-width of the profile in errors, and points an error: the moments of a Gaussian are right to 1e-6 with these. */
static const double PROFILE_HALF = 7, PROFILE_STEPS = 1.5;
static const double FINE = 0.25; /* of the first distance: that of the points from which a parabola is drawn */

/* Is there weight at velocities farther from v0 than the profile reaches? Looked for where the cross-correlation does
 * not exclude it. Velocities into v unless NULL; returns how many. */
static size_t scan_velocities(const spx_rv_profile *p, double *v)
{
    const spx_rv_ws *w = p->w;
    const spx_rv_ctx *c = w->ctx;
    const float *chi = w->has_curve && c->nlag > 1 ? w->curve : NULL;
    double v0 = p->x[0], last = (double)c->nlag - 1, least = 0;
    size_t n = 0;
    if (chi)
        least = (double)chi[(size_t)fmax(0, fmin(last, floor((v0 - c->lag_v0) / c->lag_step + 0.5)))];
    double i0 = ceil((c->lo[0] - v0) / SCAN_KMS), i1 = floor((c->hi[0] - v0) / SCAN_KMS);
    for (double i = i0; i <= i1; i++) {
        double at = v0 + i * SCAN_KMS, lag = (at - c->lag_v0) / c->lag_step;
        if (fabs(at - v0) <= PROFILE_HALF * p->sigma)
            continue;
        if (chi && (double)chi[(size_t)fmax(0, fmin(last, floor(lag + 0.5)))] > least + CCF_DEPTH)
            continue;
        if (v)
            v[n] = at;
        n++;
    }
    return n;
}

/* First and last i of the velocities of the moments. */
static size_t moment_range(const spx_rv_profile *p, double *i0)
{
    *i0 = ceil((p->lo - p->x[0]) / p->grid);
    double i1 = floor((p->hi - p->x[0]) / p->grid);
    return i1 >= *i0 ? (size_t)fmin(i1 - *i0 + 1, PROFILE_MAX) : 0;
}

/* ---- other minima ---- */

/* A velocity where another minimum may be, with the value there of what says so. */
static void add_other(spx_rv_profile *p, double v, double value)
{
    size_t at = p->nother;
    if (fabs(v - p->x[0]) <= SPX_RV_FAR)
        return;
    while (at > 0 && value < p->other[at - 1].f)
        at--;
    if (at == SPX_RV_MAX_OTHER)
        return;
    for (size_t k = p->nother < SPX_RV_MAX_OTHER ? p->nother++ : SPX_RV_MAX_OTHER - 1; k > at; k--)
        p->other[k] = p->other[k - 1];
    p->other[at] = (spx_rv_other){.v = v, .f = value};
}

/* The lowest minima of f[n] at velocities v[n]. */
static void add_minima(spx_rv_profile *p, size_t n, const double *v, const double *f)
{
    for (size_t i = 1; i + 1 < n; i++)
        if (f[i] < f[i - 1] && f[i] <= f[i + 1])
            add_other(p, v[i], f[i]);
}

/* Look at what was found, with points on both sides. */
static void begin_other(spx_rv_profile *p)
{
    const spx_rv_ctx *c = p->w->ctx;
    p->step = SPX_RV_OTHER;
    p->round = 0;
    for (int32_t k = 0; k < p->w->nother && !p->scanned; k++)
        add_other(p, p->w->other[k], k);
    for (size_t k = 0; k < p->nother; k++)
        p->other[k].half = fmax(SCAN_KMS, c->lag_step);
    if (p->nother == 0)
        p->step = SPX_RV_DONE;
}

/* One step downhill, or, where the middle is lowest, closer; the vertex of the last parabola is the minimum. Beyond the
 * range and towards the best minimum there is none. */
static void take_other(spx_rv_profile *p, const double *f)
{
    const spx_rv_ctx *c = p->w->ctx;
    int going = 0;
    p->round++;
    for (size_t k = 0; k < p->nother; k++) {
        spx_rv_other *o = &p->other[k];
        if (!(o->half > 0))
            continue;
        double left = f[0], middle = f[1], right = f[2], bend = (left - middle) + (right - middle), was = o->half;
        f += 3;
        o->f = HUGE_VAL;
        if (middle <= left && middle <= right && bend > 0) {
            double at = 0.5 * (left - right) / bend;
            int last = was < fmax(SCAN_KMS, c->lag_step);
            o->v += at * was;
            o->f = middle - 0.25 * (left - right) * at;
            o->half = last ? 0 : FINE * was;
        } else {
            o->v += left < right ? -was : was;
        }
        if (!(middle < HUGE_VAL) || fabs(o->v - p->x[0]) <= SPX_RV_FAR || o->v - was < c->lo[0] ||
            o->v + was > c->hi[0] || (p->round == OTHER_ROUNDS && o->half > 0)) {
            o->f = HUGE_VAL;
            o->half = 0;
        }
        going = going || o->half > 0;
    }
    if (!going)
        p->step = SPX_RV_DONE;
}

void spx_rv_profile_other(const spx_rv_profile *p, double *v, double *above)
{
    *v = *above = NAN;
    for (size_t k = 0; k < p->nother; k++)
        if (p->other[k].half == 0 && p->other[k].f < HUGE_VAL && !(p->other[k].f - p->f0 >= *above)) {
            *v = p->other[k].v;
            *above = p->other[k].f - p->f0;
        }
}

/* ---- the profile ---- */

size_t spx_rv_profile_ask(const spx_rv_profile *p, double *v)
{
    if (p->step == SPX_RV_SCAN)
        return scan_velocities(p, v);
    if (p->step == SPX_RV_OTHER) {
        size_t m = 0;
        for (size_t k = 0; k < p->nother; k++)
            for (int i = -1; i <= 1 && p->other[k].half > 0; i++, m++)
                if (v)
                    v[m] = p->other[k].v + i * p->other[k].half;
        return m;
    }
    double i0;
    size_t n = moment_range(p, &i0);
    for (size_t i = 0; v && i < n; i++)
        v[i] = p->x[0] + (i0 + (double)i) * p->grid;
    return n;
}

static void narrow(spx_rv_profile *p)
{
    p->grid = p->err / PROFILE_STEPS;
    p->lo = fmax(p->w->ctx->lo[0], p->x[0] - PROFILE_HALF * p->err);
    p->hi = fmin(p->w->ctx->hi[0], p->x[0] + PROFILE_HALF * p->err);
}

static void wide(spx_rv_profile *p)
{
    p->step = SPX_RV_WIDE;
    p->lo = p->w->ctx->lo[0];
    p->hi = p->w->ctx->hi[0];
    p->grid = fmax(SCAN_KMS, (p->hi - p->lo) / (PROFILE_MAX - 2));
}

void spx_rv_profile_begin(spx_rv_profile *p, const spx_rv_ws *w, const double *x, double f0, double sigma)
{
    const spx_rv_ctx *c = w->ctx;
    *p = (spx_rv_profile){.w = w, .x = x, .f0 = f0, .sigma = sigma, .err = sigma, .lower = x[0], .best = f0 - 0.01};
    if (!(sigma > 0) || !(sigma < 0.1 * (c->hi[0] - c->lo[0])))
        wide(p);
}

/* Moments of exp(-objective/2) about x[0]. */
static void moments(spx_rv_profile *p, const double *f)
{
    double i0, least = HUGE_VAL, sum[4] = {0};
    size_t n = moment_range(p, &i0);
    for (size_t i = 0; i < n; i++)
        least = fmin(least, f[i]);
    p->err = p->skew = p->kurt = 0;
    if (!(least < HUGE_VAL))
        return;
    for (size_t i = 0; i < n; i++) {
        double weight = exp(-0.5 * (f[i] - least)), d = (i0 + (double)i) * p->grid;
        sum[0] += weight;
        sum[1] += weight * d * d;
        sum[2] += weight * d * d * d;
        sum[3] += weight * d * d * d * d;
    }
    p->err = sqrt(sum[1] / sum[0]);
    if (p->err > 1e-10) {
        p->skew = sum[2] / sum[0] / (p->err * p->err * p->err);
        p->kurt = sum[3] / sum[0] / (p->err * p->err * p->err * p->err);
    }
}

void spx_rv_profile_take(spx_rv_profile *p, const double *v, const double *f)
{
    if (p->step == SPX_RV_OTHER) {
        take_other(p, f);
        return;
    }
    if (p->step == SPX_RV_SCAN) {
        size_t n = scan_velocities(p, NULL);
        for (size_t i = 0; i < n; i++) {
            p->far = p->far || f[i] < p->f0 + SCAN_DEPTH;
            if (f[i] < p->best) {
                p->best = f[i];
                p->lower = v[i];
            }
        }
        p->scanned = !p->w->has_curve;
        if (p->scanned)
            add_minima(p, n, v, f);
        if (p->far) {
            wide(p);
        } else {
            p->step = SPX_RV_NARROW;
            narrow(p);
        }
        return;
    }
    double before = p->err;
    int done = 0;
    if (p->step == SPX_RV_WIDE && p->round == 0) { /* the whole range */
        p->scanned = 1;
        p->nother = 0;
        add_minima(p, moment_range(p, &(double){0}), v, f);
    }
    moments(p, f);
    if (!(p->err > 0) || ++p->round == PROFILE_ROUNDS) {
        done = 1;
    } else if (p->step == SPX_RV_WIDE) {
        double width = 10 * fmax(p->err, p->grid);
        done = p->grid < p->err / PROFILE_STEPS;
        p->grid = p->err > p->grid ? 0.8 * p->err / PROFILE_STEPS : p->grid / 5;
        p->lo = fmax(p->lo, p->x[0] - width);
        p->hi = fmin(p->hi, p->x[0] + width);
    } else {
        done = p->err < 1.2 * before && p->err > 0.7 * before;
        narrow(p);
    }
    if (done)
        begin_other(p);
}
