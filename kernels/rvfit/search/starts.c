/* Provides the starts of the stars of a group: given ones, those of the cross-correlation, those of a scan of the
 * objective itself. */
#include <math.h>
#include <string.h>

#include "rvfit/search/group.h"

static const double SCAN_STEP = 15;  /* km/s, at most, of the scan for a start */
static const double MAX_BRUTE = 100; /* templates of a start by brute force */
static const double FAST = 100;      /* km/s, vsini of the fast rotators among them */

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

/* The objective of n stars (n <= together; g->part) on a scan of velocities with the templates at x; the lowest of
 * each joins its starts, best first. */
static spx_status scan(spx_rv_group *g, size_t n, const double *x, spx_rv_start (*start)[SPX_RV_MAX_START],
                       size_t *nstart, spx_err *e)
{
    const spx_rv_ctx *c = g->c;
    double step = SCAN_STEP;
    for (size_t i = 0; i < c->narm; i++) /* sharper templates, narrower minima */
        step = fmin(step, c->arm[i].setup->dlnwave * SPX_C_KMS);
    size_t steps = (size_t)floor((c->hi[0] - c->lo[0]) / step), nv = steps + 1;
    spx_status st = spx_rv_need_velocities(g, n * nv, e);
    if (st != SPX_OK)
        return st;
    for (size_t k = 0; k < n; k++) {
        g->first[k] = k * nv;
        memcpy(g->at[k], x, sizeof g->at[k]);
        for (size_t i = 0; i < nv; i++)
            g->v[k * nv + i] = c->lo[0] + (c->hi[0] - c->lo[0]) * (steps ? (double)i / (double)steps : 0);
    }
    g->first[n] = n * nv;
    st = g->engine->values(g->engine->state, n, g->part, (const double(*)[SPX_MAX_FIT])g->at, g->first, g->v, g->f, e);
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        size_t j = g->part_of[k];
        spx_rv_start s = {.f = HUGE_VAL};
        memcpy(s.x, x, sizeof s.x);
        for (size_t i = k * nv; i < (k + 1) * nv; i++)
            if (g->f[i] < s.f) {
                s.f = g->f[i];
                s.x[0] = g->v[i];
            }
        size_t at = nstart[j] < SPX_RV_MAX_START ? nstart[j]++ : SPX_RV_MAX_START;
        for (; at > 0 && s.f < start[j][at - 1].f; at--)
            if (at < SPX_RV_MAX_START)
                start[j][at] = start[j][at - 1];
        if (at < SPX_RV_MAX_START)
            start[j][at] = s;
    }
    return st;
}

/* Starts by the objective itself. Without a cross-correlation set: with templates along the first axis; by brute force:
 * over all of parameter space, the same number of them along each axis, and slow and fast rotators. */
static spx_status scan_starts(spx_rv_group *g, size_t n, spx_rv_start (*start)[SPX_RV_MAX_START], size_t *nstart,
                              spx_err *e)
{
    const spx_rv_ctx *c = g->c;
    size_t naxis = c->opt->brute ? c->ng : c->npar > 0, per = 3, total = 1, nvsini = 1;
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
            size_t q = 2 + (c->opt->brute ? c->gpar[i] : 0);
            double u = c->opt->brute ? ((double)(rest % per) + 0.5) / (double)per : 0.25 * (double)(rest % per + 1);
            x[q] = c->lo[q] + u * (c->hi[q] - c->lo[q]);
        }
        st = scan(g, n, x, start, nstart, e);
    }
    return st;
}

spx_status spx_rv_group_starts(spx_rv_group *g, size_t n, spx_rv_ws *const *w, const double *const *given,
                               spx_rv_start (*start)[SPX_RV_MAX_START], size_t *nstart, double *v_ccf, spx_err *e)
{
    const spx_rv_ctx *c = g->c;
    size_t m = 0;
    for (size_t k = 0; k < n; k++) {
        int have = given[k] && isfinite(given[k][0]);
        w[k]->ccf_entry = -1;
        v_ccf[k] = NAN;
        nstart[k] = 0;
        if (c->maxccf > 0 && c->nlag > 0 && (c->opt->keep_ccf || !(have || c->opt->brute))) {
            g->part_of[m] = k;
            g->part[m++] = w[k];
        }
    }
    spx_status st = m > 0 ? g->engine->correlate(g->engine->state, m, g->part, g->pick, e) : SPX_OK;
    for (size_t k = 0; k < m && st == SPX_OK; k++) {
        size_t j = g->part_of[k];
        const spx_rv_pick *p = &g->pick[k];
        if (p->n == 0)
            continue;
        w[j]->ccf_entry = p->entry[0];
        v_ccf[j] = p->v[0];
        for (; nstart[j] < (size_t)p->n; nstart[j]++)
            entry_start(c, p->entry[nstart[j]], p->v[nstart[j]], &start[j][nstart[j]]);
    }
    /* What has no start by now is scanned, and all that is to be found by brute force. */
    for (size_t k = 0; k < n && st == SPX_OK;) {
        for (m = 0; k < n && m < g->together; k++) {
            if (given[k] && isfinite(given[k][0])) {
                given_start(c, given[k], start[k][0].x);
                nstart[k] = 1;
            } else if (nstart[k] == 0 || c->opt->brute) {
                nstart[k] = 0;
                g->part_of[m] = k;
                g->part[m++] = w[k];
            }
        }
        if (m > 0)
            st = scan_starts(g, m, start, nstart, e);
    }
    for (size_t k = 0; k < n && st == SPX_OK; k++)
        if (!c->opt->brute && !(given[k] && isfinite(given[k][0])))
            v_ccf[k] = start[k][0].x[0];
    return st;
}
