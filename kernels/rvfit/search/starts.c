/* Provides the starts of the stars of a group: given ones, those of the cross-correlation, those of a scan of the
 * objective itself. */
#include <math.h>
#include <string.h>

#include "rvfit/search/group.h"

static const double SCAN_STEP = 15;  /* km/s, at most, of the scan for a start */
static const double MAX_BRUTE = 100; /* templates of a start by brute force */
static const double FAST = 100;      /* km/s, vsini of the fast rotators among them */
static const double FAINT = 15;      /* signal-to-noise ratio of a pixel, the median of the best arm, and */
static const double VERY_FAST = 300; /* km/s, vsini of a start */
/* Error of a velocity, km/s, above which other velocities are sought with another rotation, and vsini on both sides of
 * which that is slow or fast. */
static const double OPEN = 10, MODERATE = 75;

/* Point of an entry of the cross-correlation set at velocity v. */
static void entry_start(const spx_rv_ctx *c, int32_t entry, double v, spx_rv_start *out)
{
    const spx_ccf_set *set = &c->arm[0].setup->ccf;
    size_t t = (size_t)entry;
    out->x[0] = v;
    out->x[1] = spx_rv_map(c, 1, set->vsini[t]);
    for (size_t p = 0; p < c->npar; p++)
        out->x[2 + p] = spx_rv_map(c, 2 + p, set->params[t * c->npar + p]);
    for (size_t q = 0; q < c->nq; q++) {
        out->x[q] = fmax(c->lo[q], fmin(c->hi[q], out->x[q]));
        if (!isfinite(out->x[q]))
            out->x[q] = c->start[q];
    }
}

static void given_start(const spx_rv_ctx *c, const double *given, double *x)
{
    for (size_t q = 0; q < c->nq; q++) {
        double at = isfinite(given[q]) ? spx_rv_map(c, q, given[q]) : c->start[q];
        x[q] = fmax(c->lo[q], fmin(c->hi[q], isfinite(at) ? at : c->start[q]));
    }
}

/* The objective of n stars (n <= together; g->list) on a scan of velocities with the templates at x; the lowest of
 * each joins its starts, best first. */
static spx_status scan(spx_rv_group *g, size_t n, const double *x, spx_err *e)
{
    spx_rv_request *r = &g->ask;
    const spx_rv_ctx *c = g->c;
    double step = SCAN_STEP;
    for (size_t i = 0; i < c->narm; i++) /* sharper templates, narrower minima */
        step = fmin(step, c->arm[i].setup->dlnwave * SPX_C_KMS);
    size_t steps = (size_t)floor((c->hi[0] - c->lo[0]) / step), nv = steps + 1;
    spx_status st = spx_rv_need_velocities(g, n * nv, e);
    if (st != SPX_OK)
        return st;
    r->n = 0;
    for (size_t k = 0; k < n; k++) {
        spx_rv_ask(r, g->list[k], x);
        r->first[k] = k * nv;
        for (size_t i = 0; i < nv; i++)
            r->v[k * nv + i] = c->lo[0] + (c->hi[0] - c->lo[0]) * (steps ? (double)i / (double)steps : 0);
    }
    r->first[n] = n * nv;
    st = spx_rv_ask_values(g, e);
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        spx_rv_star *star = g->list[k];
        spx_rv_start s = {.f = HUGE_VAL};
        memcpy(s.x, x, sizeof s.x);
        for (size_t i = k * nv; i < (k + 1) * nv; i++)
            if (r->f[i] < s.f) {
                s.f = r->f[i];
                s.x[0] = r->v[i];
            }
        size_t at = star->nstart < SPX_RV_MAX_START ? star->nstart++ : SPX_RV_MAX_START;
        star->nsure = star->nstart;
        for (; at > 0 && s.f < star->start[at - 1].f; at--)
            if (at < SPX_RV_MAX_START)
                star->start[at] = star->start[at - 1];
        if (at < SPX_RV_MAX_START)
            star->start[at] = s;
    }
    return st;
}

/* Starts by the objective itself. Without a cross-correlation set: with templates along the first axis; by brute force:
 * over all of parameter space, the same number of them along each axis, and slow and fast rotators. */
static spx_status scan_starts(spx_rv_group *g, size_t n, spx_err *e)
{
    const spx_rv_ctx *c = g->c;
    size_t naxis = c->opt->brute ? c->grid.ng : c->npar > 0, per = 3, total = 1, nvsini = 1;
    spx_status st = SPX_OK;
    if (c->opt->brute && c->hi[1] > c->lo[1])
        nvsini = 2;
    for (; c->opt->brute && naxis > 0 && pow((double)per + 1, (double)naxis) <= MAX_BRUTE; per++)
        ;
    for (size_t i = 0; i < naxis; i++)
        total *= per;
    for (size_t k = 0; k < total * nvsini && st == SPX_OK; k++) {
        double x[SPX_MAX_FIT];
        size_t rest = k / nvsini;
        memcpy(x, c->start, sizeof x);
        if (k % nvsini)
            x[1] = fmax(c->lo[1], fmin(c->hi[1], spx_rv_map(c, 1, FAST)));
        for (size_t i = 0; i < naxis; i++, rest /= per) {
            size_t q = 2 + (c->opt->brute ? c->grid.gpar[i] : 0);
            double u = c->opt->brute ? ((double)(rest % per) + 0.5) / (double)per : 0.25 * (double)(rest % per + 1);
            x[q] = c->lo[q] + u * (c->hi[q] - c->lo[q]);
        }
        st = scan(g, n, x, e);
    }
    return st;
}

/* Are lines so weak in the noise that a fast rotator's may be as likely? */
static int is_faint(const spx_rv_spectra *w)
{
    double sn = 0;
    for (size_t i = 0; i < w->first[w->ctx->narm]; i++)
        sn = fmax(sn, w->piece[i].sn);
    return sn < FAINT;
}

/* Adds the best start as a fast rotator to those that are followed in any case. */
static void add_fast_rotator(const spx_rv_ctx *c, spx_rv_star *s)
{
    if (s->nstart == SPX_RV_MAX_START)
        s->nstart--;
    memmove(s->start + s->nsure + 1, s->start + s->nsure, (s->nstart - s->nsure) * sizeof *s->start);
    spx_rv_start *fast = &s->start[s->nsure++];
    *fast = s->start[0];
    fast->x[1] = fmax(c->lo[1], fmin(c->hi[1], spx_rv_map(c, 1, VERY_FAST)));
    s->nstart++;
}

static int is_given(const spx_rv_star *s)
{
    return s->given && isfinite(s->given[0]);
}

spx_status spx_rv_group_starts(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_err *e)
{
    const spx_rv_ctx *c = g->c;
    spx_rv_request *r = &g->ask;
    r->n = 0;
    for (size_t k = 0; k < n; k++) {
        spx_rv_star *s = star[k];
        s->spectra.ccf_entry = -1;
        s->v_ccf = NAN;
        s->nstart = 0;
        if (c->ccf.n > 0 && c->ccf.nlag > 0 && (c->opt->keep_ccf || !(is_given(s) || c->opt->brute)))
            spx_rv_ask(r, s, s->point); /* a cross-correlation is of no point */
    }
    spx_status st = r->n > 0 ? g->engine->correlate(g->engine->state, r->n, r->spectra, r->candidates, e) : SPX_OK;
    for (size_t k = 0; k < r->n && st == SPX_OK; k++) {
        spx_rv_star *s = r->star[k];
        const spx_rv_candidates *p = &r->candidates[k];
        if (p->n == 0)
            continue;
        s->spectra.ccf_entry = p->entry[0];
        s->v_ccf = p->v[0];
        for (; s->nstart < (size_t)p->n; s->nstart++)
            entry_start(c, p->entry[s->nstart], p->v[s->nstart], &s->start[s->nstart]);
        s->nsure = (size_t)p->nsure;
        if (is_faint(&s->spectra))
            add_fast_rotator(c, s);
    }
    /* Stars without a start by now are scanned, and all that are to be found by brute force. */
    for (size_t k = 0; k < n && st == SPX_OK;) {
        size_t m = 0;
        for (; k < n && m < g->together; k++) {
            spx_rv_star *s = star[k];
            if (is_given(s)) {
                given_start(c, s->given, s->start[0].x);
                s->nstart = s->nsure = 1;
            } else if (s->nstart == 0 || c->opt->brute) {
                s->nstart = 0;
                g->list[m++] = s;
            }
        }
        if (m > 0)
            st = scan_starts(g, m, e);
    }
    for (size_t k = 0; k < n && st == SPX_OK; k++)
        if (!c->opt->brute && !is_given(star[k]))
            star[k]->v_ccf = star[k]->start[0].x[0];
    return st;
}

/* Is the velocity of a star so open that its lines, seen as those of another rotation, may be at another velocity? */
static int is_open(const spx_rv_ctx *c, const spx_rv_star *s)
{
    return c->nfree > 1 && c->freeq[0] == 0 && c->freeq[1] == 1 && !is_given(s) && s->min.at.f < HUGE_VAL &&
           !(s->min.at.hess[0] * OPEN * OPEN > 2);
}

spx_status spx_rv_turn_open(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_err *e)
{
    const spx_rv_ctx *c = g->c;
    spx_rv_request *r = &g->ask;
    size_t m = 0;
    r->n = 0;
    for (size_t k = 0; k < n; k++) {
        spx_rv_star *s = star[k];
        s->nstart = 0;
        if (g->engine->scan == NULL || c->scan.n == 0 || !is_open(c, s))
            continue;
        const double vsini = spx_rv_unmap(c, 1, s->min.x[1]) > MODERATE ? 0 : VERY_FAST;
        memcpy(s->point, s->min.x, sizeof s->point);
        s->point[1] = fmax(c->lo[1], fmin(c->hi[1], spx_rv_map(c, 1, vsini)));
        g->again[m++] = s;
        spx_rv_ask(r, s, s->point);
    }
    spx_status st =
        m == 0 ? SPX_OK : g->engine->scan(g->engine->state, m, r->spectra, (const double(*)[SPX_MAX_FIT])r->x, e);
    for (size_t k = 0; k < m && st == SPX_OK; k++) {
        spx_rv_star *s = g->again[k];
        size_t lowest = 0;
        for (size_t i = 1; i < c->scan.n; i++)
            if (s->spectra.scan[i] < s->spectra.scan[lowest])
                lowest = i;
        s->point[0] = c->lo[0] + (double)lowest * c->scan.step;
        memcpy(s->start[0].x, s->point, sizeof s->point);
        s->nstart = s->nsure = 1;
    }
    return st;
}
