/* Provides the error of a velocity and other possible velocities, from the profile of the objective along v at the
 * templates of the minimum. Called as a state machine, one a star: spx_rv_profile_ask() gives the velocities that are
 * wanted, spx_rv_profile_take() receives the objective there, so that many stars are computed together. The error is
 * the second moment of the likelihood exp(-f/2), as in rvspecfit (Koposov, ascl:1907.013). */
#include <math.h>

#include "rvfit/search/search.h"

enum { PROFILE_MAX = 8192, PROFILE_ROUNDS = 8, OTHER_ROUNDS = 8 };
static const double SCAN_KMS = 10;   /* step of a scan of the whole range, where errors are wide */
static const double SCAN_DEPTH = 50; /* objective above the minimum beyond which a velocity has no weight */
/* Half-width of the profile in errors, and points an error: the moments of a Gaussian are right to 1e-4 with these. */
static const double PROFILE_HALF = 5.5, PROFILE_STEPS = 1;
static const double PROFILE_BEYOND = 7; /* errors from which on other velocities are looked for */
/* Spread, in steps of the velocities, below which a single one has nearly all weight: it measures the step, no error.
 * (A Gaussian whose sigma is a third of the step has 0.15.) */
static const double UNRESOLVED = 0.2;
static const double FINE = 0.25; /* of a step of the scan: distance of the points from which a parabola is drawn */

/* First and last i of the velocities of the moments. */
static size_t moment_range(const spx_rv_profile *p, double *i0)
{
    *i0 = ceil((p->lo - p->x[0]) / p->grid);
    double i1 = floor((p->hi - p->x[0]) / p->grid);
    return i1 >= *i0 ? (size_t)fmin(i1 - *i0 + 1, PROFILE_MAX) : 0;
}

/* Velocity number i of the moments. */
static double moment_velocity(const spx_rv_profile *p, double i0, size_t i)
{
    return p->x[0] + (i0 + (double)i) * p->grid;
}

/* Objective at a velocity of the whole range by the scan where that has no weight; else NaN, and it is to be computed.
 */
static double without_weight(const spx_rv_profile *p, double v)
{
    const spx_rv_ctx *c = p->w->ctx;
    if (p->step != SPX_RV_WIDE || p->scan == NULL || fabs(v - p->x[0]) <= PROFILE_BEYOND * p->sigma)
        return NAN;
    const double at = fmax(0, fmin((double)c->scan.n - 2, (v - c->lo[0]) / c->scan.step));
    const size_t i = (size_t)at;
    const double before = p->scan[i] - p->least, after = p->scan[i + 1] - p->least, t = at - (double)i;
    return before > SCAN_DEPTH && after > SCAN_DEPTH ? p->f0 + (1 - t) * before + t * after : NAN;
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

/* Where the cubic through f[0] ... f[3], at -1 ... 2, has a minimum between 0 and 1; NaN: nowhere. */
static double cubic_minimum(const double *f, double *value)
{
    double c1 = f[2] - f[0] / 3 - f[1] / 2 - f[3] / 6, c2 = 0.5 * (f[0] - 2 * f[1] + f[2]);
    double c3 = (f[3] - f[0]) / 6 + 0.5 * (f[1] - f[2]), root = c2 * c2 - 3 * c1 * c3;
    if (!(root > 0) || !isfinite(root))
        return NAN;
    double u = c2 > 0 ? -c1 / (c2 + sqrt(root)) : (sqrt(root) - c2) / (3 * c3);
    *value = f[1] + u * (c1 + u * (c2 + u * c3));
    return u > 0 && u < 1 ? u : NAN;
}

/* The lowest minima of f[n] at velocities v0 + i step: vertices of parabolas, and what cubics say of intervals that
 * only go down, or up, from point to point. */
static void add_minima(spx_rv_profile *p, size_t n, double v0, double step, const double *f)
{
    p->nother = 0;
    for (size_t i = 1; i + 1 < n; i++) {
        if (!(f[i - 1] < HUGE_VAL && f[i] < HUGE_VAL && f[i + 1] < HUGE_VAL))
            continue;
        double before = f[i] - f[i - 1], after = f[i + 1] - f[i], value;
        if (before < 0 && after >= 0) {
            double at = -0.5 * (before + after) / (after - before);
            add_other(p, v0 + ((double)i + at) * step, f[i] + 0.25 * (before + after) * at);
        } else if (i + 2 < n && f[i + 2] < HUGE_VAL && before * after > 0 && (f[i + 2] - f[i + 1]) * after > 0) {
            double at = cubic_minimum(f + i - 1, &value);
            if (isfinite(at))
                add_other(p, v0 + ((double)i + at) * step, value);
        }
    }
}

static void narrow(spx_rv_profile *p)
{
    p->step = SPX_RV_NARROW;
    p->round = 0;
    p->grid = p->err / PROFILE_STEPS;
    p->lo = fmax(p->w->ctx->lo[0], p->x[0] - PROFILE_HALF * p->err);
    p->hi = fmin(p->w->ctx->hi[0], p->x[0] + PROFILE_HALF * p->err);
}

static void wide(spx_rv_profile *p)
{
    p->step = SPX_RV_WIDE;
    p->round = 0;
    p->lo = p->w->ctx->lo[0];
    p->hi = p->w->ctx->hi[0];
    p->grid = fmax(SCAN_KMS, (p->hi - p->lo) / (PROFILE_MAX - 2));
}

/* The other minima have been found: is there weight there, or a point lower than the minimum? Then the errors, unless
 * they are what has been looked at first. */
static void end_others(spx_rv_profile *p)
{
    for (size_t k = 0; k < p->nother; k++) {
        const spx_rv_other *o = &p->other[k];
        p->far = p->far || o->f < p->f0 + SCAN_DEPTH;
        if (o->f < p->best) {
            p->best = o->f;
            p->lower = o->v;
        }
    }
    if (p->scanned)
        p->step = SPX_RV_DONE;
    else if (p->far)
        wide(p);
    else
        narrow(p);
    p->scanned = 1;
}

/* Look at what was found, with points on both sides. */
static void begin_others(spx_rv_profile *p, double half)
{
    p->step = SPX_RV_OTHER;
    p->round = 0;
    for (size_t k = 0; k < p->nother; k++)
        p->other[k].half = half;
    if (p->nother == 0)
        end_others(p);
}

/* Velocities that are wanted of another minimum, into v unless NULL; returns how many. */
static size_t ask_other(const spx_rv_other *o, double *v)
{
    if (!(o->half > 0))
        return 0;
    for (int i = -1; v && i <= 1; i++)
        if (o->moved == 0 || o->moved == i)
            *v++ = o->v + i * o->half;
    return o->moved == 0 ? 3 : 1;
}

/* One step downhill, or, where the middle is lowest, the vertex of the parabola, which is the minimum. Beyond the range
 * and towards the best minimum there is none. */
static void take_others(spx_rv_profile *p, const double *f)
{
    const spx_rv_ctx *c = p->w->ctx;
    int going = 0;
    p->round++;
    for (size_t k = 0; k < p->nother; k++) {
        spx_rv_other *o = &p->other[k];
        if (!(o->half > 0))
            continue;
        for (int i = -1; i <= 1; i++)
            if (o->moved == 0 || o->moved == i)
                o->around[1 + i] = *f++;
        const double left = o->around[0], middle = o->around[1], right = o->around[2], was = o->half;
        const double curvature = (left - middle) + (right - middle);
        o->f = HUGE_VAL;
        if (middle <= left && middle <= right && curvature > 0) {
            double at = 0.5 * (left - right) / curvature;
            o->v += at * was;
            o->f = middle - 0.25 * (left - right) * at;
            o->half = 0;
        } else {
            o->moved = left < right ? -1 : 1;
            o->v += o->moved * was;
            o->around[1 - o->moved] = middle;
            o->around[1] = o->moved < 0 ? left : right;
        }
        if (!(middle < HUGE_VAL) || fabs(o->v - p->x[0]) <= SPX_RV_FAR || o->v - was < c->lo[0] ||
            o->v + was > c->hi[0] || (p->round == OTHER_ROUNDS && o->half > 0)) {
            o->f = HUGE_VAL;
            o->half = 0;
        }
        going = going || o->half > 0;
    }
    if (!going)
        end_others(p);
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
    if (p->step == SPX_RV_SCAN) {
        const spx_rv_ctx *c = p->w->ctx;
        for (size_t i = 0; v && i < c->scan.n; i++)
            v[i] = c->lo[0] + (double)i * c->scan.step;
        return c->scan.n;
    }
    if (p->step == SPX_RV_OTHER) {
        size_t m = 0;
        for (size_t k = 0; k < p->nother; k++)
            m += ask_other(&p->other[k], v ? v + m : NULL);
        return m;
    }
    double i0;
    size_t n = moment_range(p, &i0), m = 0;
    for (size_t i = 0; i < n; i++) {
        const double at = moment_velocity(p, i0, i);
        if (!isnan(without_weight(p, at)))
            continue;
        if (v != NULL)
            v[m] = at;
        m++;
    }
    return m;
}

void spx_rv_profile_begin(spx_rv_profile *p, const spx_rv_spectra *w, const double *x, double f0, double sigma)
{
    const spx_rv_ctx *c = w->ctx;
    *p = (spx_rv_profile){.w = w, .x = x, .f0 = f0, .sigma = sigma, .err = sigma, .lower = x[0], .best = f0 - 0.01};
    if (!(sigma > 0) || !(sigma < 0.1 * (c->hi[0] - c->lo[0]))) {
        p->scanned = 1;
        wide(p);
    }
}

/* Moments of exp(-objective/2) about x[0]. Where the steps are too wide to see them, an error to look more closely
 * with. */
static void moments(spx_rv_profile *p, const double *f)
{
    double i0, least = HUGE_VAL, sum[4] = {0};
    size_t n = moment_range(p, &i0);
    for (size_t i = 0; i < n; i++)
        least = fmin(least, f[i]);
    p->err = p->skew = p->kurt = 0;
    for (size_t i = 0; i < n && least < HUGE_VAL; i++) {
        double weight = exp(-0.5 * (f[i] - least)), d = (i0 + (double)i) * p->grid;
        sum[0] += weight;
        sum[1] += weight * d * d;
        sum[2] += weight * d * d * d;
        sum[3] += weight * d * d * d * d;
    }
    p->err = sum[1] > 0 ? sqrt(sum[1] / sum[0]) : 0;
    if (p->err > 1e-10) {
        p->skew = sum[2] / sum[0] / (p->err * p->err * p->err);
        p->kurt = sum[3] / sum[0] / (p->err * p->err * p->err * p->err);
    }
    p->unresolved = p->err < UNRESOLVED * p->grid;
    if (p->unresolved) {
        p->err = UNRESOLVED * p->grid;
        p->skew = p->kurt = 0;
    }
}

/* The scan's value at the minimum, by the parabola through the three velocities around it; the objective there where
 * the scan has none. The scan's continuum is not the objective's: where lines of no template make chi^2 large, the two
 * differ by thousands, everywhere alike, so that the scan is compared with itself. */
static double scan_at_minimum(const spx_rv_profile *p, const double *f)
{
    const spx_rv_ctx *c = p->w->ctx;
    const double at = (p->x[0] - c->lo[0]) / c->scan.step, last = (double)c->scan.n - 2;
    const size_t i = (size_t)fmax(1, fmin(last, round(at)));
    const double t = at - (double)i, before = f[i - 1] - f[i], after = f[i + 1] - f[i];
    const double value = f[i] + 0.5 * t * (after - before) + 0.5 * t * t * (after + before);
    return isfinite(value) && value < HUGE_VAL ? value : p->f0;
}

/* Takes a velocity scan: other minima, and weight that has no minimum of its own. */
static void take_scan(spx_rv_profile *p, const double *f)
{
    const spx_rv_ctx *c = p->w->ctx;
    const double least = c->scan.n > 2 ? scan_at_minimum(p, f) : p->f0;
    if (c->scan.n > 2 && f == p->w->scan) { /* which stays */
        p->scan = f;
        p->least = least;
    }
    for (size_t i = 0; i < c->scan.n; i++)
        if (fabs(c->lo[0] + (double)i * c->scan.step - p->x[0]) > PROFILE_BEYOND * p->sigma)
            p->far = p->far || f[i] < least + SCAN_DEPTH;
    add_minima(p, c->scan.n, c->lo[0], c->scan.step, f);
    if (p->nother > 0) { /* those that are far above the lowest, by the scan, are neither it nor have any weight */
        const double most = p->other[0].f + fmax(2 * SCAN_DEPTH, 0.2 * (p->other[0].f - least));
        while (p->other[p->nother - 1].f > most)
            p->nother--;
    }
    begin_others(p, FINE * c->scan.step);
}

void spx_rv_profile_take(spx_rv_profile *p, const double *f)
{
    if (p->step == SPX_RV_SCAN) {
        take_scan(p, f);
        return;
    }
    if (p->step == SPX_RV_OTHER) {
        take_others(p, f);
        return;
    }
    double before = p->err, i0, all[PROFILE_MAX];
    int done = 0, whole = p->step == SPX_RV_WIDE;
    const size_t n = moment_range(p, &i0);
    for (size_t i = 0; i < n; i++) {
        all[i] = without_weight(p, moment_velocity(p, i0, i));
        if (isnan(all[i]))
            all[i] = *f++;
    }
    if (whole && p->round == 0) /* the whole range */
        add_minima(p, n, moment_velocity(p, i0, 0), p->grid, all);
    moments(p, all);
    if (++p->round == PROFILE_ROUNDS) {
        done = 1;
    } else if (whole) {
        double width = 10 * fmax(p->err, p->grid);
        done = !p->unresolved && p->grid < p->err / PROFILE_STEPS;
        p->grid = p->err > p->grid ? 0.8 * p->err / PROFILE_STEPS : p->grid / 5;
        p->lo = fmax(p->lo, p->x[0] - width);
        p->hi = fmin(p->hi, p->x[0] + width);
    } else {
        int round = p->round;
        done = !p->unresolved && p->err < 1.2 * before && p->err > 0.85 * before;
        narrow(p);
        p->round = round;
    }
    if (done && p->unresolved) /* the curvature says more than points that are too far apart */
        p->err = fmax(p->err, p->sigma);
    if (done && whole)
        begin_others(p, FINE * SCAN_KMS);
    else if (done)
        p->step = SPX_RV_DONE;
}
