/* What becomes of the stars of a group: starts, minima, errors, models. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/mem.h"
#include "rvfit/search/search.h"

enum { REFITS = 2, POLISH_ROUNDS = 3 };
static const double SCAN_STEP = 15;  /* km/s, at most, of the scan for a start */
static const double MAX_BRUTE = 100; /* templates of a start by brute force */
static const double FAST = 100;      /* km/s, vsini of the fast rotators among them */
static const double POLISHED = 1e-3; /* a polish that gains less was the last */

/* ---- the group ---- */

struct spx_rv_group {
    const spx_rv_ctx *c;
    const spx_rv_engine *engine;
    size_t most;
    size_t together; /* at most `most` */
    spx_rv_ws *ws;
    spx_rv_room *room; /* [nroom] a thread each */
    size_t nroom;
    /* [most] each. Stars that can be fitted: their index in the batch, starts, minima, curvatures. */
    spx_rv_ws **who;
    size_t *star, *nstart;
    const double **given;
    double *v_ccf;
    spx_rv_start (*start)[SPX_RV_MAX_START];
    spx_rv_minimum *min;
    double (*hess)[SPX_MAX_FIT * SPX_MAX_FIT];
    /* Some of them that are fitted again, and which. */
    spx_rv_ws **some;
    size_t *some_of;
    spx_rv_start (*again)[SPX_RV_MAX_START];
    size_t *nagain;
    const double **given_again;
    double *v_again;
    spx_rv_minimum *found;
    spx_rv_profile *prof;
    /* Those of which velocities are looked at. */
    spx_rv_ws **part;
    size_t *part_of;
    spx_rv_pick *pick;
    /* Polishing: from where, to where. */
    spx_rv_start (*base)[SPX_RV_MAX_START];
    spx_rv_minimum *reached;
    double (*chol)[SPX_MAX_FIT * (SPX_MAX_FIT + 1) / 2], *best;
    int *going;
    /* Searches, and those that ask for a value. */
    spx_rv_search *search;
    double (*point)[SPX_MAX_FIT];
    int *wants;
    spx_rv_ws **asked;
    size_t *asked_of;
    spx_rv_value *value;
    /* For the engine: points; velocities. */
    double (*at)[SPX_MAX_FIT];
    size_t *first; /* [most + 1] of v and f */
    size_t room_v;
    double *v, *f; /* [room_v] */
    size_t *one;   /* all 1 */
};

void spx_rv_group_free(spx_rv_group *g)
{
    if (!g)
        return;
    for (size_t k = 0; g->ws && k < g->most; k++)
        spx_rv_ws_free(&g->ws[k]);
    for (size_t k = 0; g->room && k < g->nroom; k++)
        spx_rv_room_free(&g->room[k]);
    void *all[] = {g->ws,    g->room,  g->who,    g->star,    g->nstart, g->given,  g->v_ccf,       g->start,
                   g->min,   g->hess,  g->some,   g->some_of, g->again,  g->nagain, g->given_again, g->v_again,
                   g->found, g->prof,  g->part,   g->part_of, g->pick,   g->base,   g->reached,     g->chol,
                   g->best,  g->going, g->search, g->point,   g->wants,  g->asked,  g->asked_of,    g->value,
                   g->at,    g->first, g->v,      g->f,       g->one};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        spx_free(all[i]);
    spx_free(g);
}

spx_rv_group *spx_rv_group_new(const spx_rv_ctx *c, const spx_rv_engine *engine, size_t most, spx_err *e)
{
    spx_rv_group *g = spx_alloc(1, sizeof *g, e);
    if (!g)
        return NULL;
    *g = (spx_rv_group){.c = c, .engine = engine, .most = most, .nroom = (size_t)engine->threads};
    g->together = engine->together < most ? engine->together : most;
#define MAKE(field) (g->field = spx_alloc(most, sizeof *g->field, e))
    int ok = MAKE(ws) && MAKE(who) && MAKE(star) && MAKE(nstart) && MAKE(given) && MAKE(v_ccf) && MAKE(start) &&
             MAKE(min) && MAKE(hess) && MAKE(some) && MAKE(some_of) && MAKE(again) && MAKE(nagain) &&
             MAKE(given_again) && MAKE(v_again) && MAKE(found) && MAKE(prof) && MAKE(part) && MAKE(part_of) &&
             MAKE(pick) && MAKE(base) && MAKE(reached) && MAKE(chol) && MAKE(best) && MAKE(going) && MAKE(search) &&
             MAKE(point) && MAKE(wants) && MAKE(asked) && MAKE(asked_of) && MAKE(value) && MAKE(at) && MAKE(one) &&
             (g->first = spx_alloc(most + 1, sizeof *g->first, e)) &&
             (g->room = spx_alloc((size_t)engine->threads, sizeof *g->room, e));
#undef MAKE
    for (size_t k = 0; k < g->nroom && ok; k++)
        ok = spx_rv_room_init(&g->room[k], c, e) == SPX_OK;
    for (size_t k = 0; k < most && ok; k++) {
        ok = spx_rv_ws_init(&g->ws[k], c, &g->room[0], e) == SPX_OK;
        g->ws[k].slot = k;
        g->one[k] = 1;
    }
    if (ok)
        return g;
    spx_rv_group_free(g);
    return NULL;
}

spx_rv_ws *spx_rv_group_ws(spx_rv_group *g, size_t k)
{
    return &g->ws[k];
}

spx_rv_room *spx_rv_group_room(spx_rv_group *g, size_t thread)
{
    return &g->room[thread];
}

/* Room for n velocities. */
static spx_status need_velocities(spx_rv_group *g, size_t n, spx_err *e)
{
    if (n <= g->room_v)
        return SPX_OK;
    spx_free(g->v);
    spx_free(g->f);
    g->v = spx_alloc(n, sizeof *g->v, e);
    g->f = spx_alloc(n, sizeof *g->f, e);
    g->room_v = g->v && g->f ? n : 0;
    return g->room_v ? SPX_OK : SPX_EIO;
}

/* Threads for n stars of which each takes so little that `few` of them are done before the threads are called. */
static int threads_for(const spx_rv_group *g, size_t n, size_t few)
{
    return n > few ? g->engine->threads : 1;
}

/* What is done to each of n stars, by all threads of the group unless they are few. */
#define DIRECTIVE(words) _Pragma(#words)
#define EACH_STAR(k, n, few)                                                                                           \
    DIRECTIVE(omp parallel for num_threads(threads_for(g, n, few)) schedule(dynamic, 4))                               \
    for (size_t k = 0; k < (n); k++)

/* Stars whose search takes a step. */
enum { FEW_STEPS = 64 };

/* ---- errors ---- */

/* Inverse of the n x n matrix a (full), through Cholesky; 0 when it is not positive definite. */
static int invert(size_t n, const double *a, double *inverse)
{
    double chol[SPX_MAX_FIT * (SPX_MAX_FIT + 1) / 2], scale[SPX_MAX_FIT];
    for (size_t i = 0; i < n; i++) {
        if (!(a[i * n + i] > 0))
            return 0;
        scale[i] = 1 / sqrt(a[i * n + i]);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++)
            chol[spx_rv_packed(i, j)] = a[i * n + j] * scale[i] * scale[j];
    if (!spx_rv_cholesky(n, chol, 1e-12))
        return 0;
    for (size_t k = 0; k < n; k++) {
        double col[SPX_MAX_FIT] = {0};
        col[k] = 1;
        spx_rv_forward(n, chol, col);
        spx_rv_backward(n, chol, col);
        for (size_t i = 0; i < n; i++)
            inverse[i * n + k] = col[i] * scale[i] * scale[k];
    }
    return 1;
}

/* Covariance 2 H^-1. A quantity that the data push against a bound keeps the variance it would have without the bound
 * and is held for the others: that is where they were fitted. */
static void covariance(const spx_rv_ctx *c, const double *x, const double *grad, const double *hess,
                       spx_rvfit_star *star)
{
    size_t nf = c->nfree, m = 0, idx[SPX_MAX_FIT] = {0};
    double full[SPX_MAX_FIT * SPX_MAX_FIT], part[SPX_MAX_FIT * SPX_MAX_FIT] = {0};
    double cov[SPX_MAX_FIT * SPX_MAX_FIT] = {0};
    for (size_t i = 0; i < nf; i++) {
        size_t q = c->freeq[i];
        int held = (x[q] <= c->lo[q] && grad[i] >= 0) || (x[q] >= c->hi[q] && grad[i] <= 0);
        if (!held)
            idx[m++] = i;
    }
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < m; j++)
            part[i * m + j] = hess[idx[i] * nf + idx[j]];
    int ok = invert(nf, hess, full);
    double inner[SPX_MAX_FIT * SPX_MAX_FIT];
    int inner_ok = invert(m, part, inner);
    if (!ok || !inner_ok)
        star->warn |= SPX_RVS_HESSIAN;
    for (size_t i = 0; i < nf; i++) {
        double diag = hess[i * nf + i], range = c->hi[c->freeq[i]] - c->lo[c->freeq[i]];
        /* Where the curvature says nothing: the spread of the range itself. */
        double v = ok ? full[i * nf + i] : (diag > 0 ? fmin(1 / diag, range * range / 24) : range * range / 24);
        cov[i * nf + i] = v;
    }
    for (size_t i = 0; i < m && inner_ok; i++)
        for (size_t j = 0; j < m; j++)
            cov[idx[i] * nf + idx[j]] = inner[i * m + j];
    for (size_t i = 0; i < nf; i++)
        for (size_t j = 0; j < nf; j++) {
            size_t a = c->freeq[i], b = c->freeq[j];
            double sa = spx_rv_slope(c, a, x[a], sqrt(2 * cov[i * nf + i]));
            double sb = spx_rv_slope(c, b, x[b], sqrt(2 * cov[j * nf + j]));
            double v = 2 * cov[i * nf + j] * sa * sb;
            star->covar[a * c->nq + b] = isfinite(v) ? v : 0;
        }
}

/* ---- profile in velocity ---- */

/* Surveys of n stars at x[k], n <= together, where the engine has a way of its own for them. */
static spx_status survey_all(spx_rv_group *g, size_t n, spx_rv_profile *p, spx_err *e)
{
    size_t m = 0;
    for (size_t k = 0; k < n && g->engine->survey; k++)
        if (p[k].step == SPX_RV_SURVEY) {
            g->part[m] = &g->ws[p[k].w->slot];
            g->part_of[m] = k;
            memcpy(g->at[m++], p[k].x, sizeof g->at[m]);
        }
    spx_status st =
        m == 0 ? SPX_OK : g->engine->survey(g->engine->state, m, g->part, (const double(*)[SPX_MAX_FIT])g->at, e);
    for (size_t k = 0; k < m && st == SPX_OK; k++)
        spx_rv_profile_take(&p[g->part_of[k]], NULL, g->part[k]->survey);
    return st;
}

/* Profiles of n stars at x[k], n <= together, until all are done. */
static spx_status profiles(spx_rv_group *g, size_t n, spx_rv_profile *p, spx_err *e)
{
    spx_status surveyed = survey_all(g, n, p, e);
    if (surveyed != SPX_OK)
        return surveyed;
    for (;;) {
        size_t m = 0, total = 0;
        for (size_t k = 0; k < n; k++)
            if (p[k].step != SPX_RV_DONE) {
                g->part[m] = &g->ws[p[k].w->slot];
                g->part_of[m] = k;
                memcpy(g->at[m], p[k].x, sizeof g->at[m]);
                g->first[m++] = total;
                total += spx_rv_profile_ask(&p[k], NULL);
            }
        if (m == 0)
            return SPX_OK;
        g->first[m] = total;
        spx_status st = need_velocities(g, total, e);
        for (size_t k = 0; k < m && st == SPX_OK; k++)
            (void)spx_rv_profile_ask(&p[g->part_of[k]], g->v + g->first[k]);
        if (st != SPX_OK ||
            (total > 0 && (st = g->engine->values(g->engine->state, m, g->part, (const double(*)[SPX_MAX_FIT])g->at,
                                                  g->first, g->v, g->f, e)) != SPX_OK))
            return st;
        for (size_t k = 0; k < m; k++)
            spx_rv_profile_take(&p[g->part_of[k]], g->v + g->first[k], g->f + g->first[k]);
    }
}

/* ---- one star ---- */

static int at_edge(const spx_rv_ctx *c, size_t p, double value)
{
    const spx_setup *s = c->arm[0].setup;
    double first = spx_rv_unmap(c, 2 + p, c->axis[p][0]), last = spx_rv_unmap(c, 2 + p, c->axis[p][c->naxis[p] - 1]);
    double near = 1e-3 * (last - first);
    if (c->naxis[p] < 2 || !(c->hi[2 + p] > c->lo[2 + p]) || strcmp(s->parname[p], "alpha") == 0)
        return 0;
    if (strcmp(s->parname[p], "teff") == 0)
        near = 10;
    else if (strcmp(s->parname[p], "logg") == 0 || strcmp(s->parname[p], "feh") == 0)
        near = 0.01;
    return value < first + near || value > last - near;
}

static void warnings(const spx_rv_ctx *c, spx_rvfit_star *s)
{
    if (s->chisq_c - s->chisq < 50)
        s->warn |= SPX_RVS_CHISQ;
    if (!c->opt->fixed[0] && (s->vrad < c->opt->vmin + 5 || s->vrad > c->opt->vmax - 5))
        s->warn |= SPX_RVS_VEDGE;
    if (s->vrad_err > 100)
        s->warn |= SPX_RVS_VERR;
    for (size_t p = 0; p < c->npar; p++)
        if (at_edge(c, p, s->par[p]))
            s->warn |= SPX_RVS_PARAM;
    if (s->vsini > 100)
        s->warn |= SPX_RVS_VSINI;
}

static void bad_star(const spx_rv_ctx *c, spx_rvfit_star *s)
{
    *s = (spx_rvfit_star){.warn = SPX_RVS_BAD, .ccf_entry = -1};
    s->vrad = s->vrad_err = s->vrad_skew = s->vrad_kurt = s->vrad_ccf = s->vrad_alt = s->dchisq_alt = s->vsini =
        s->vsini_err = s->neg2logl = NAN;
    for (size_t p = 0; p < c->npar; p++)
        s->par[p] = s->par_err[p] = NAN;
    for (size_t i = 0; i < c->nq * c->nq; i++)
        s->covar[i] = NAN;
}

/* Curvatures of n stars (g->some) at their minima, into g->hess[g->some_of[]]. What a smooth interpolation says there
 * it says with the derivatives; between linear cells there are several. */
static spx_status curvatures(spx_rv_group *g, size_t n, spx_err *e)
{
    spx_status st = SPX_OK;
    int kinks = g->c->interpolator == SPX_INTERPOLATE_GRID;
    for (size_t k = 0; k < n; k++)
        memcpy(g->at[k], g->min[g->some_of[k]].x, sizeof g->at[k]);
    if (kinks)
        st = spx_rv_mean_curvature(g->engine, g->c, n, g->some, (const double(*)[SPX_MAX_FIT])g->at, g->value, e);
    for (size_t k = 0; k < n && st == SPX_OK; k++)
        memcpy(g->hess[g->some_of[k]], kinks ? g->value[k].hess : g->min[g->some_of[k]].at.hess, sizeof g->hess[k]);
    return st;
}

/* ---- minima ---- */

/* Searches of n stars, a point of each at a time. */
static spx_status search_all(spx_rv_group *g, size_t n, spx_rv_ws *const *w,
                             const spx_rv_start (*start)[SPX_RV_MAX_START], const size_t *nstart, spx_rv_minimum *out,
                             spx_err *e)
{
    for (size_t k = 0; k < n; k++)
        spx_rv_search_begin(&g->search[k], g->c, nstart[k], start[k], &out[k]);
    for (;;) {
        size_t m = 0;
        EACH_STAR(k, n, FEW_STEPS)
        g->wants[k] = spx_rv_search_next(&g->search[k], g->point[k]);
        for (size_t k = 0; k < n; k++)
            if (g->wants[k]) {
                g->asked[m] = w[k];
                memcpy(g->at[m], g->point[k], sizeof g->at[m]);
                g->asked_of[m++] = k;
            }
        if (m == 0)
            return SPX_OK;
        spx_status st =
            g->engine->eval(g->engine->state, m, g->asked, (const double(*)[SPX_MAX_FIT])g->at, NULL, g->value, e);
        if (st != SPX_OK)
            return st;
        EACH_STAR(k, m, FEW_STEPS)
        spx_rv_search_take(&g->search[g->asked_of[k]], g->at[k], &g->value[k]);
    }
}

/* Does the interpolation have kinks, at which a descent may end though it goes on downhill beyond? */
static int has_kinks(const spx_rv_ctx *c)
{
    int leaky = 0;
    for (size_t i = 0; i < c->narm; i++)
        leaky |= c->arm[i].setup->nn.activation == SPX_NN_LEAKY;
    return c->interpolator == SPX_INTERPOLATE_SIMPLEX || (c->interpolator == SPX_INTERPOLATE_NN && leaky);
}

/* Search without derivatives around the minima of n stars, n <= together, and descent from where it led, until nothing
 * near is lower. */
static spx_status polish(spx_rv_group *g, size_t n, spx_rv_ws *const *w, spx_rv_minimum *min, spx_err *e)
{
    const spx_rv_ctx *c = g->c;
    spx_status st = need_velocities(g, n, e);
    for (size_t k = 0; k < n; k++)
        g->going[k] = c->nfree > 0 && min[k].at.f < HUGE_VAL;
    for (int round = 0; round < POLISH_ROUNDS && st == SPX_OK; round++) {
        size_t m = 0;
        for (size_t k = 0; k < n; k++) {
            g->going[k] = g->going[k] && spx_rv_probe_scale(c, &min[k].at, g->chol[k]);
            if (!g->going[k])
                continue;
            g->part[m] = w[k];
            g->part_of[m] = k;
            memcpy(g->base[m][0].x, min[k].x, sizeof min[k].x);
            g->best[m++] = min[k].at.f;
        }
        if (m == 0)
            return SPX_OK;
        for (size_t i = 0; st == SPX_OK; i++) {
            int more = 0;
            for (size_t k = 0; k < m; k++) {
                more = spx_rv_probe(c, g->chol[g->part_of[k]], i, g->base[k][0].x, g->at[k]);
                g->first[k] = k;
                g->v[k] = g->at[k][0];
            }
            if (!more)
                break;
            g->first[m] = m;
            st = g->engine->values(g->engine->state, m, g->part, (const double(*)[SPX_MAX_FIT])g->at, g->first, g->v,
                                   g->f, e);
            for (size_t k = 0; k < m && st == SPX_OK; k++)
                if (g->f[k] < g->best[k] - SPX_RV_PROBE_LOWER) {
                    g->best[k] = g->f[k];
                    memcpy(g->base[k][0].x, g->at[k], sizeof g->at[k]);
                }
        }
        size_t fell = 0;
        for (size_t k = 0; k < m; k++) {
            double gain = min[g->part_of[k]].at.f - g->best[k];
            g->going[g->part_of[k]] = gain >= POLISHED;
            if (!(gain > 0))
                continue;
            g->part[fell] = g->part[k];
            g->part_of[fell] = g->part_of[k];
            memcpy(g->base[fell++][0].x, g->base[k][0].x, sizeof g->base[k][0].x);
        }
        if (st == SPX_OK && fell > 0)
            st = search_all(g, fell, g->part, (const spx_rv_start(*)[SPX_RV_MAX_START])g->base, g->one, g->reached, e);
        for (size_t k = 0; k < fell && st == SPX_OK; k++) {
            spx_rv_minimum *to = &min[g->part_of[k]];
            memcpy(to->x, g->reached[k].x, sizeof to->x);
            to->at = g->reached[k].at;
            to->converged = 1; /* nothing near was lower when it ended */
        }
    }
    return st;
}

spx_status spx_rv_group_minimise(spx_rv_group *g, size_t n, spx_rv_ws *const *w,
                                 const spx_rv_start (*start)[SPX_RV_MAX_START], const size_t *nstart,
                                 spx_rv_minimum *out, spx_err *e)
{
    if (g->c->interpolator == SPX_INTERPOLATE_GRID)
        return spx_rv_minimise(g->engine, g->c, n, w, start, nstart, out, e);
    spx_status st = search_all(g, n, w, start, nstart, out, e);
    for (size_t k = 0; k < n && st == SPX_OK && has_kinks(g->c); k += g->together)
        st = polish(g, n - k < g->together ? n - k : g->together, w + k, out + k, e);
    return st;
}

/* ---- starts ---- */

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
    spx_status st = need_velocities(g, n * nv, e);
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

/* ---- all of it ---- */

/* Models and chi^2 of n stars at their minima, n <= together. */
static spx_status models(spx_rv_group *g, size_t n, spx_rv_ws *const *w, const spx_rv_minimum *min, spx_err *e)
{
    for (size_t k = 0; k < n; k++)
        memcpy(g->at[k], min[k].x, sizeof g->at[k]);
    return n > 0 ? g->engine->models(g->engine->state, n, w, (const double(*)[SPX_MAX_FIT])g->at, e) : SPX_OK;
}

/* Starts of stars g->some[m] once the worst of their outliers are masked, after where they are: those may have led to a
 * wrong minimum. */
static spx_status start_again(spx_rv_group *g, size_t m, spx_err *e)
{
    for (size_t k = 0; k < m; k++)
        g->given_again[k] = g->given[g->some_of[k]];
    spx_status st = spx_rv_group_starts(g, m, g->some, g->given_again, g->again, g->nagain, g->v_again, e);
    for (size_t k = 0; k < m && st == SPX_OK; k++) {
        const double *given = g->given_again[k];
        size_t n = given && isfinite(given[0]) ? 0 : g->nagain[k];
        n = n < SPX_RV_MAX_START ? n : SPX_RV_MAX_START - 1;
        memmove(g->again[k] + 1, g->again[k], n * sizeof g->again[k][0]);
        memcpy(g->again[k][0].x, g->min[g->some_of[k]].x, sizeof g->again[k][0].x);
        g->nagain[k] = n + 1;
    }
    return st;
}

/* Rounds of rejection: stars of which pixels were masked are fitted again from where they are. */
static spx_status reject_outliers(spx_rv_group *g, size_t n, spx_err *e)
{
    const spx_rvfit_options *o = g->c->opt;
    spx_status st = SPX_OK;
    for (int round = 0; round < o->reject && st == SPX_OK; round++) {
        size_t m = 0;
        for (size_t k = 0; k < n && st == SPX_OK; k += g->together) {
            size_t end = n - k < g->together ? n : k + g->together;
            st = models(g, end - k, g->who + k, g->min + k, e);
            EACH_STAR(i, end - k, 1)
            {
                spx_rv_ws *w = g->who[k + i];
                w->room = &g->room[omp_get_thread_num()];
                g->wants[k + i] = g->min[k + i].at.f < HUGE_VAL && spx_rv_reject(w, o->reject_sigma) > 0;
            }
        }
        for (size_t k = 0; k < n && st == SPX_OK; k++)
            if (g->wants[k]) {
                memcpy(g->again[m][0].x, g->min[k].x, sizeof g->min[k].x);
                g->some_of[m] = k;
                g->some[m++] = g->who[k];
            }
        if (st != SPX_OK || m == 0)
            return st;
        if ((g->engine->load && (st = g->engine->load(g->engine->state, m, g->some, e)) != SPX_OK) ||
            (round == 0 && (st = start_again(g, m, e)) != SPX_OK) ||
            (st = spx_rv_group_minimise(g, m, g->some, (const spx_rv_start(*)[SPX_RV_MAX_START])g->again,
                                        round == 0 ? g->nagain : g->one, g->found, e)) != SPX_OK)
            return st;
        for (size_t k = 0; k < m; k++) {
            spx_rv_minimum *old = &g->min[g->some_of[k]];
            memcpy(old->x, g->found[k].x, sizeof old->x);
            old->at = g->found[k].at;
            old->converged = g->found[k].converged;
        }
    }
    return st;
}

/* What a piece adds to the star's sums (sn: of the squares), and what is kept of it. */
static void finish_piece(const spx_rv_ctx *c, const spx_rv_data *d, spx_rvfit_star *s, spx_rvfit *out)
{
    size_t a = c->arm[d->arm].index, n = c->arm[d->arm].n;
    spx_rvfit_exposure *x = &out->exposure[d->exposure];
    float *model = out->arm[a].model ? out->arm[a].model + d->exposure * n : NULL;
    float *residual = out->arm[a].residual ? out->arm[a].residual + d->exposure * n : NULL;
    s->nexp += x->npix == 0;
    x->npix += (int64_t)d->ngood;
    x->sn[a] = d->sn;
    x->chisq[a] = d->chisq;
    s->sn[a] += d->sn * fabs(d->sn);
    s->arm_chisq[a] += d->chisq;
    s->arm_chisq_c[a] += d->chisq_c;
    s->npix += (int64_t)d->ngood;
    s->nreject += (int64_t)d->nreject;
    for (size_t i = 0; model && i < n; i++)
        model[i] = spx_rv_model(d->model[i]);
    for (size_t i = 0; residual && i < n; i++)
        residual[i] = d->good[i] ? spx_rv_residual(d->flux[i], d->ie[i], d->model[i]) : 0;
}

/* The row of a star: all is known. */
static void finish_star(const spx_rv_ctx *c, const spx_rv_ws *w, const spx_rv_minimum *min, const double *hess,
                        spx_rvfit_star *s, spx_rvfit *out)
{
    const double *x = min->x;
    int vfree = c->nfree > 0 && c->freeq[0] == 0;
    double sigma_v = vfree && hess[0] > 0 ? sqrt(2 / hess[0]) : 0;
    if (vfree && !(s->vrad_err < 1.25 * sigma_v && s->vrad_err > 0.8 * sigma_v))
        s->warn |= SPX_RVS_PROFILE;
    covariance(c, x, min->at.grad, hess, s);
    s->success = min->converged;
    s->niter = w->neval;
    s->neg2logl = min->at.f;
    s->vrad = x[0];
    s->vsini = spx_rv_unmap(c, 1, x[1]);
    s->vsini_err = sqrt(s->covar[1 * c->nq + 1]);
    for (size_t p = 0; p < c->npar; p++) {
        s->par[p] = c->opt->fixed[2 + p]
                        ? c->opt->value[2 + p]
                        : (c->naxis[p] == 1 ? c->arm[0].setup->params[p] : spx_rv_unmap(c, 2 + p, x[2 + p]));
        s->par_err[p] = sqrt(s->covar[(2 + p) * c->nq + 2 + p]);
    }
    for (size_t i = 0; i < w->first[c->narm]; i++)
        finish_piece(c, &w->piece[i], s, out);
    for (size_t a = 0; a < out->narm; a++) {
        s->sn[a] = copysign(sqrt(fabs(s->sn[a])), s->sn[a]);
        s->chisq += s->arm_chisq[a];
        s->chisq_c += s->arm_chisq_c[a];
    }
    warnings(c, s);
}

/* Errors of v of n stars (g->some, whose minima are g->min[g->some_of[]]), n <= together; where the scan meets a lower
 * point, that is where the minimum is sought again. */
static spx_status velocity_errors(spx_rv_group *g, size_t n, spx_rvfit *out, spx_err *e)
{
    const spx_rv_ctx *c = g->c;
    spx_status st = SPX_OK;
    for (int refit = 0; n > 0 && st == SPX_OK; refit++) {
        if ((st = curvatures(g, n, e)) != SPX_OK)
            return st;
        for (size_t k = 0; k < n; k++) {
            const spx_rv_minimum *min = &g->min[g->some_of[k]];
            const double *hess = g->hess[g->some_of[k]];
            spx_rvfit_star *s = &out->star[g->star[g->some_of[k]]];
            s->vrad_alt = s->dchisq_alt = NAN;
            spx_rv_profile_begin(&g->prof[k], g->some[k], min->x, min->at.f, hess[0] > 0 ? sqrt(2 / hess[0]) : 0);
        }
        if (c->nfree == 0 || c->freeq[0] != 0 || (st = profiles(g, n, g->prof, e)) != SPX_OK)
            return st;
        size_t m = 0;
        for (size_t k = 0; k < n; k++) {
            const spx_rv_profile *p = &g->prof[k];
            size_t j = g->some_of[k];
            spx_rvfit_star *s = &out->star[g->star[j]];
            s->vrad_err = p->err;
            s->vrad_skew = p->skew;
            s->vrad_kurt = p->kurt;
            spx_rv_profile_other(p, &s->vrad_alt, &s->dchisq_alt);
            if (p->lower == p->x[0] || refit == REFITS)
                continue;
            memcpy(g->again[m][0].x, p->x, sizeof g->again[m][0].x);
            g->again[m][0].x[0] = p->lower;
            g->some[m] = g->some[k];
            g->some_of[m++] = j;
        }
        n = 0;
        if (m > 0)
            st = spx_rv_group_minimise(g, m, g->some, (const spx_rv_start(*)[SPX_RV_MAX_START])g->again, g->one,
                                       g->found, e);
        for (size_t k = 0; k < m && st == SPX_OK; k++) {
            spx_rv_minimum *min = &g->min[g->some_of[k]];
            if (!(g->found[k].at.f < min->at.f))
                continue;
            memcpy(min->x, g->found[k].x, sizeof min->x);
            min->at = g->found[k].at;
            min->converged = g->found[k].converged;
            g->some[n] = g->some[k];
            g->some_of[n++] = g->some_of[k];
        }
    }
    return st;
}

/* Everything after the minima of stars k0 ... k0+n-1 of those that can be fitted, n <= together. */
static spx_status finish(spx_rv_group *g, size_t k0, size_t n, spx_rvfit *out, spx_err *e)
{
    size_t m = 0;
    for (size_t k = k0; k < k0 + n; k++) {
        if (!(g->min[k].at.f < HUGE_VAL)) {
            bad_star(g->c, &out->star[g->star[k]]);
            continue;
        }
        g->some[m] = g->who[k];
        g->some_of[m++] = k;
    }
    spx_status st = velocity_errors(g, m, out, e);
    if (st != SPX_OK || (st = models(g, n, g->who + k0, g->min + k0, e)) != SPX_OK)
        return st;
    EACH_STAR(i, n, 1)
    {
        size_t k = k0 + i;
        if (g->min[k].at.f < HUGE_VAL)
            finish_star(g->c, g->who[k], &g->min[k], g->hess[k], &out->star[g->star[k]], out);
    }
    return SPX_OK;
}

static void keep_ccf(spx_rv_ws *w, spx_rvfit *out)
{
    const spx_rv_ctx *c = w->ctx;
    for (size_t i = 0; i < w->first[c->narm]; i++) {
        const spx_rv_data *d = &w->piece[i];
        spx_rv_ccf(w, d, (size_t)w->ccf_entry, out->arm[c->arm[d->arm].index].ccf + d->exposure * out->nlag);
    }
}

/* An error that a workspace met, if any. */
static spx_status any_error(const spx_rv_group *g, size_t n, spx_err *e)
{
    for (size_t k = 0; k < n; k++)
        if (g->ws[k].err.code != SPX_OK)
            return spx_fail(e, g->ws[k].err.code, "%s", g->ws[k].err.msg);
    return SPX_OK;
}

spx_status spx_rv_group_fit(spx_rv_group *g, size_t first, size_t n, spx_rvfit *out, spx_err *e)
{
    const spx_rv_ctx *c = g->c;
    size_t m = 0;
    EACH_STAR(k, n, 1)
    {
        g->ws[k].room = &g->room[omp_get_thread_num()];
        g->wants[k] = spx_rv_load(&g->ws[k], first + k);
    }
    for (size_t k = 0; k < n; k++) {
        if (!g->wants[k]) {
            bad_star(c, &out->star[first + k]);
            continue;
        }
        g->given[m] = c->in->start ? c->in->start + (first + k) * c->nq : NULL;
        g->who[m] = &g->ws[k];
        g->star[m++] = first + k;
    }
    spx_status st = any_error(g, n, e);
    if (st != SPX_OK || m == 0 ||
        (g->engine->load && (st = g->engine->load(g->engine->state, m, g->who, e)) != SPX_OK) ||
        (st = spx_rv_group_starts(g, m, g->who, g->given, g->start, g->nstart, g->v_ccf, e)) != SPX_OK)
        return st;
    EACH_STAR(k, m, 1)
    {
        spx_rvfit_star *s = &out->star[g->star[k]];
        s->vrad_ccf = g->v_ccf[k];
        s->ccf_entry = g->who[k]->ccf_entry;
        g->who[k]->room = &g->room[omp_get_thread_num()];
        if (c->opt->keep_ccf && s->ccf_entry >= 0)
            keep_ccf(g->who[k], out);
    }
    if ((st = any_error(g, n, e)) != SPX_OK ||
        (st = spx_rv_group_minimise(g, m, g->who, (const spx_rv_start(*)[SPX_RV_MAX_START])g->start, g->nstart, g->min,
                                    e)) != SPX_OK ||
        (st = reject_outliers(g, m, e)) != SPX_OK)
        return st;
    for (size_t k = 0; k < m && st == SPX_OK; k += g->together)
        st = finish(g, k, m - k < g->together ? m - k : g->together, out, e);
    return st;
}

spx_status spx_rv_result_init(const spx_rv_ctx *c, spx_rvfit *out, spx_err *e)
{
    const spx_spectra *sp = c->in->spectra;
    *out = (spx_rvfit){.nstar = c->nstar, .npar = c->npar, .narm = sp->narm, .nrow = c->in->nrow};
    memcpy(out->parname, c->arm[0].setup->parname, sizeof out->parname);
    out->row = spx_alloc(out->nrow, sizeof *out->row, e);
    out->first = spx_alloc(out->nstar + 1, sizeof *out->first, e);
    out->star = spx_alloc(out->nstar, sizeof *out->star, e);
    out->exposure = spx_alloc(out->nrow, sizeof *out->exposure, e);
    if (!out->row || !out->first || !out->star || !out->exposure)
        return SPX_EIO;
    for (size_t i = 0; i < out->nrow; i++)
        out->row[i] = spx_rv_row(c, i);
    for (size_t i = 0; i < out->nstar; i++)
        spx_rv_exposures(c, i, &out->first[i], &out->first[i + 1]);
    if (c->opt->keep_ccf) {
        out->nlag = c->nlag;
        out->lag_v0 = c->lag_v0;
        out->lag_step = c->lag_step;
    }
    for (size_t i = 0; i < sp->narm; i++) {
        memcpy(out->arm[i].name, sp->arm[i].name, sizeof out->arm[i].name);
        out->arm[i].nwave = sp->arm[i].nwave;
        if (c->opt->keep_model && c->in->setup[i] &&
            !(out->arm[i].model = spx_alloc2(out->nrow, sp->arm[i].nwave, sizeof *out->arm[i].model, e)))
            return SPX_EIO;
        if (c->opt->keep_ccf && c->in->setup[i] &&
            !(out->arm[i].ccf = spx_alloc2(out->nrow, out->nlag, sizeof *out->arm[i].ccf, e)))
            return SPX_EIO;
    }
    return SPX_OK;
}
