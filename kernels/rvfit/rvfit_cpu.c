/* The fit of a batch of stars on the CPU: a thread has a few stars at a time, which share its room. */
#include <cblas.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/mem.h"
#include "rvfit/rvfit_internal.h"

enum { PROFILE_MAX = 8192, PROFILE_ROUNDS = 8, REFITS = 2 };
static const double SCAN_KMS = 10;   /* step of the scan for other velocities */
static const double SCAN_DEPTH = 50; /* objective above the minimum beyond which a velocity has no weight */
static const double CCF_DEPTH = 150; /* the same in chi^2 of the cross-correlation, which is approximate */
/* Half-width of the profile in errors, and points an error: the moments of a Gaussian are right to 1e-6 with these. */
static const double PROFILE_HALF = 7, PROFILE_STEPS = 1.5;

/* ---- errors ---- */

/* Curvature of the objective at x, mean over the cells that meet there. */
static void mean_curvature(spx_rv_ws *w, const double *x, double *hess)
{
    const spx_rv_ctx *c = w->ctx;
    size_t nf = c->nfree, cell[SPX_MAX_PAR], face[SPX_MAX_PAR], nface = 0;
    spx_rv_cell(c, x, cell);
    for (size_t g = 0; g < c->ng; g++) {
        size_t p = c->gpar[g];
        if (cell[g] > 0 && x[2 + p] == c->axis[p][cell[g]] && c->hi[2 + p] > c->lo[2 + p])
            face[nface++] = g;
    }
    memset(hess, 0, nf * nf * sizeof *hess);
    for (unsigned set = 0; set < 1u << nface; set++) {
        size_t other[SPX_MAX_PAR];
        memcpy(other, cell, sizeof other);
        for (size_t i = 0; i < nface; i++)
            other[face[i]] -= set >> i & 1;
        spx_rv_value f;
        spx_rv_eval(w, x, other, 1, &f);
        for (size_t i = 0; i < nf * nf; i++)
            hess[i] += f.hess[i] / (double)(1u << nface);
    }
}

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
            double sa = a >= 2 && c->parlog[a - 2] ? M_LN10 * spx_rv_unmap(c, a, x[a]) : 1;
            double sb = b >= 2 && c->parlog[b - 2] ? M_LN10 * spx_rv_unmap(c, b, x[b]) : 1;
            double v = 2 * cov[i * nf + j] * sa * sb;
            star->covar[a * c->nq + b] = isfinite(v) ? v : 0;
        }
}

/* ---- profile in velocity ---- */

typedef struct {
    double best, best_f; /* lowest point */
    double err, skew, kurt;
} moments;

/* Moments about v0 of exp(-objective/2) on v0 + i step within lo ... hi, at the templates in the workspace. */
static void profile_moments(spx_rv_ws *w, double v0, double step, double lo, double hi, moments *out)
{
    double f[PROFILE_MAX], sum[4] = {0};
    double i0 = ceil((lo - v0) / step), i1 = floor((hi - v0) / step);
    size_t n = i1 >= i0 ? (size_t)fmin(i1 - i0 + 1, PROFILE_MAX) : 0;
    out->best = v0;
    out->best_f = HUGE_VAL;
    out->err = out->skew = out->kurt = 0;
    for (size_t i = 0; i < n; i++) {
        double v = v0 + (i0 + (double)i) * step;
        spx_rv_value at;
        spx_rv_project(w, v, &at);
        f[i] = at.f;
        if (f[i] < out->best_f) {
            out->best_f = f[i];
            out->best = v;
        }
    }
    if (!(out->best_f < HUGE_VAL))
        return;
    for (size_t i = 0; i < n; i++) {
        double p = exp(-0.5 * (f[i] - out->best_f)), d = (i0 + (double)i) * step;
        sum[0] += p;
        sum[1] += p * d * d;
        sum[2] += p * d * d * d;
        sum[3] += p * d * d * d * d;
    }
    out->err = sqrt(sum[1] / sum[0]);
    if (out->err > 1e-10) {
        out->skew = sum[2] / sum[0] / (out->err * out->err * out->err);
        out->kurt = sum[3] / sum[0] / (out->err * out->err * out->err * out->err);
    }
}

/* Is there weight at velocities farther than `reach` from v0? Looks where the cross-correlation does not exclude it.
 * *lower: a velocity at which the objective is lower than at v0, or v0. */
static int has_far_weight(spx_rv_ws *w, double v0, double f0, double reach, double *lower)
{
    const spx_rv_ctx *c = w->ctx;
    const float *chi = w->has_curve && c->nlag > 1 ? w->curve : NULL;
    double last = (double)c->nlag - 1, least = 0, best = f0 - 0.01;
    *lower = v0;
    if (chi)
        least = (double)chi[(size_t)fmax(0, fmin(last, floor((v0 - c->lag_v0) / c->lag_step + 0.5)))];
    int far = 0;
    double i0 = ceil((c->lo[0] - v0) / SCAN_KMS), i1 = floor((c->hi[0] - v0) / SCAN_KMS);
    for (double i = i0; i <= i1; i++) {
        double v = v0 + i * SCAN_KMS, at = (v - c->lag_v0) / c->lag_step;
        if (fabs(v - v0) <= reach)
            continue;
        if (chi && (double)chi[(size_t)fmax(0, fmin(last, floor(at + 0.5)))] > least + CCF_DEPTH)
            continue;
        spx_rv_value f;
        spx_rv_project(w, v, &f);
        far = far || f.f < f0 + SCAN_DEPTH;
        if (f.f < best) {
            best = f.f;
            *lower = v;
        }
    }
    return far;
}

/* VRAD_ERR, VRAD_SKEW, VRAD_KURT as rvspecfit defines them: moments of the conditional likelihood of v on a grid that
 * resolves it. sigma: from the curvature. Returns a velocity where the objective is lower, or v0. */
static double velocity_errors(spx_rv_ws *w, const double *x, double f0, double sigma, spx_rvfit_star *star)
{
    const spx_rv_ctx *c = w->ctx;
    double v0 = x[0], lower = v0, lo = c->lo[0], hi = c->hi[0];
    moments m = {.err = sigma};
    spx_rv_template(w, x, NULL, 0);
    int wide = !(sigma > 0) || !(sigma < 0.1 * (hi - lo)) || has_far_weight(w, v0, f0, PROFILE_HALF * sigma, &lower);
    if (wide) {
        double step = fmax(SCAN_KMS, (hi - lo) / (PROFILE_MAX - 2));
        for (int round = 0; round < PROFILE_ROUNDS; round++) {
            profile_moments(w, v0, step, lo, hi, &m);
            if (!(m.err > 0) || step < m.err / PROFILE_STEPS)
                break;
            double width = 10 * fmax(m.err, step);
            step = m.err > step ? 0.8 * m.err / PROFILE_STEPS : step / 5;
            lo = fmax(lo, v0 - width);
            hi = fmin(hi, v0 + width);
        }
    } else {
        for (int round = 0; round < PROFILE_ROUNDS; round++) {
            double err = m.err;
            profile_moments(w, v0, err / PROFILE_STEPS, fmax(lo, v0 - PROFILE_HALF * err),
                            fmin(hi, v0 + PROFILE_HALF * err), &m);
            if (!(m.err > 0) || (m.err < 1.2 * err && m.err > 0.7 * err))
                break;
        }
    }
    star->vrad_err = m.err;
    star->vrad_skew = m.skew;
    star->vrad_kurt = m.kurt;
    return lower;
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

/* What the cubic interpolation says at x has its derivatives with it; between linear cells there are several. */
static void curvature_at(spx_rv_ws *w, const double *x, const spx_rv_value *at, double *hess)
{
    if (w->ctx->interpolator != SPX_INTERPOLATE_GRID)
        memcpy(hess, at->hess, sizeof at->hess);
    else
        mean_curvature(w, x, hess);
}

static void minimise(size_t n, spx_rv_ws *const *w, const size_t *nstart, spx_rv_start (*start)[SPX_RV_MAX_START],
                     spx_rv_minimum *out)
{
    if (n > 0 && w[0]->ctx->interpolator != SPX_INTERPOLATE_GRID) {
        spx_rv_minimise_batch(n, w, nstart, start, out);
        for (size_t k = 0; k < n && w[0]->ctx->interpolator == SPX_INTERPOLATE_SIMPLEX; k++)
            spx_rv_polish(w[k], &out[k]);
    } else
        for (size_t k = 0; k < n; k++)
            spx_rv_minimise(w[k], nstart[k], start[k], &out[k]);
}

/* Best of the points that starts led to at other velocities. */
static void other_minimum(const spx_rv_minimum *min, spx_rvfit_star *s)
{
    s->vrad_alt = s->dchisq_alt = NAN;
    for (size_t k = 0; k < min->nend; k++)
        if (fabs(min->end_v[k] - min->x[0]) > SPX_RV_FAR && min->end_f[k] < HUGE_VAL &&
            !(min->end_f[k] - min->at.f >= s->dchisq_alt)) {
            s->vrad_alt = min->end_v[k];
            s->dchisq_alt = min->end_f[k] - min->at.f;
        }
}

/* Rounds of rejection: stars of which pixels were masked are fitted again from where they are. */
static void reject_outliers(size_t n, spx_rv_ws *const *w, spx_rv_minimum *min)
{
    const spx_rvfit_options *o = n > 0 ? w[0]->ctx->opt : NULL;
    for (int round = 0; n > 0 && round < o->reject; round++) {
        spx_rv_ws *who[SPX_RV_BATCH] = {NULL};
        spx_rv_start start[SPX_RV_BATCH][SPX_RV_MAX_START];
        spx_rv_minimum found[SPX_RV_BATCH];
        size_t m = 0, index[SPX_RV_BATCH], one[SPX_RV_BATCH] = {0};
        for (size_t k = 0; k < n; k++)
            if (min[k].at.f < HUGE_VAL && spx_rv_reject(w[k], min[k].x, o->reject_sigma) > 0) {
                memcpy(start[m][0].x, min[k].x, sizeof min[k].x);
                one[m] = 1;
                index[m] = k;
                who[m++] = w[k];
            }
        minimise(m, who, one, start, found);
        for (size_t k = 0; k < m; k++) {
            spx_rv_minimum *old = &min[index[k]];
            double change = found[k].at.f - old->at.f; /* what other minima changed by is about the same */
            for (size_t i = 0; i < old->nend; i++)
                old->end_f[i] += change;
            memcpy(old->x, found[k].x, sizeof old->x);
            old->at = found[k].at;
            old->converged = found[k].converged;
        }
    }
}

/* What a piece adds to the star's sums (sn: of the squares), and what is kept of it. */
static void finish_piece(spx_rv_ws *w, const spx_rv_data *d, double v, spx_rvfit_star *s, spx_rvfit *out)
{
    size_t a = w->ctx->arm[d->arm].index;
    spx_rvfit_exposure *x = &out->exposure[d->exposure];
    float *model = out->arm[a].model ? out->arm[a].model + d->exposure * out->arm[a].nwave : NULL;
    s->nexp += x->npix == 0;
    x->npix += (int64_t)d->ngood;
    x->sn[a] = d->sn;
    x->chisq[a] = spx_rv_chisq(w, d, v, 0, model);
    s->sn[a] += d->sn * fabs(d->sn);
    s->arm_chisq[a] += x->chisq[a];
    s->arm_chisq_c[a] += spx_rv_chisq(w, d, v, 1, NULL);
    s->npix += (int64_t)d->ngood;
    s->nreject += (int64_t)d->nreject;
}

/* Everything after the minimum of a star. */
static void finish_star(spx_rv_ws *w, size_t star, spx_rv_minimum *min, spx_rvfit *out)
{
    const spx_rv_ctx *c = w->ctx;
    spx_rvfit_star *s = &out->star[star];
    double hess[SPX_MAX_FIT * SPX_MAX_FIT], *x = min->x;
    spx_rv_value *at = &min->at;
    if (!(at->f < HUGE_VAL)) {
        bad_star(c, s);
        return;
    }
    s->success = min->converged;
    int vfree = c->nfree > 0 && c->freeq[0] == 0;
    for (int refit = 0;; refit++) {
        curvature_at(w, x, at, hess);
        if (!vfree)
            break;
        double sigma = hess[0] > 0 ? sqrt(2 / hess[0]) : 0;
        double lower = velocity_errors(w, x, at->f, sigma, s);
        if (lower == x[0] || refit == REFITS)
            break;
        /* The scan met a lower point: that is where the minimum is to be sought. */
        spx_rv_start again[1][SPX_RV_MAX_START];
        spx_rv_minimum more;
        memcpy(again[0][0].x, x, sizeof again[0][0].x);
        again[0][0].x[0] = lower;
        minimise(1, &w, &(size_t){1}, again, &more);
        if (!(more.at.f < at->f))
            break;
        memcpy(x, more.x, sizeof more.x);
        *at = more.at;
        s->success = more.converged;
    }
    double sigma_v = vfree && hess[0] > 0 ? sqrt(2 / hess[0]) : 0;
    if (vfree && !(s->vrad_err < 1.25 * sigma_v && s->vrad_err > 0.8 * sigma_v))
        s->warn |= SPX_RVS_PROFILE;
    other_minimum(min, s);
    covariance(c, x, at->grad, hess, s);
    s->niter = w->neval;
    s->neg2logl = at->f;
    s->vrad = x[0];
    s->vsini = x[1];
    s->vsini_err = sqrt(s->covar[1 * c->nq + 1]);
    for (size_t p = 0; p < c->npar; p++) {
        s->par[p] = c->opt->fixed[2 + p]
                        ? c->opt->value[2 + p]
                        : (c->naxis[p] == 1 ? c->arm[0].setup->params[p] : spx_rv_unmap(c, 2 + p, x[2 + p]));
        s->par_err[p] = sqrt(s->covar[(2 + p) * c->nq + 2 + p]);
    }
    spx_rv_template(w, x, NULL, 0);
    for (size_t i = 0; i < w->first[c->narm]; i++)
        finish_piece(w, &w->piece[i], x[0], s, out);
    for (size_t a = 0; a < out->narm; a++) {
        s->sn[a] = copysign(sqrt(fabs(s->sn[a])), s->sn[a]);
        s->chisq += s->arm_chisq[a];
        s->chisq_c += s->arm_chisq_c[a];
    }
    warnings(c, s);
}

/* ---- the batch ---- */

static spx_status make_result(const spx_rv_ctx *c, spx_rvfit *out, spx_err *e)
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

/* Stars first ... first + n - 1 of the batch, in workspaces w[n]; where an error of memory is, w[k].err says so. */
typedef void (*star_task)(spx_rv_ws *w, size_t first, size_t n, void *arg);

static void *free_group(size_t n, spx_rv_ws *w, spx_rv_room *room)
{
    for (size_t k = 0; k < n; k++)
        spx_rv_ws_free(&w[k]);
    spx_free(w);
    spx_rv_room_free(room);
    return NULL;
}

static spx_rv_ws *make_group(const spx_rv_ctx *c, size_t n, spx_rv_room *room, spx_err *e)
{
    spx_rv_ws *w = spx_alloc(n, sizeof *w, e);
    size_t made = 0;
    if (!w || spx_rv_room_init(room, c, e) != SPX_OK) {
        spx_free(w);
        return NULL;
    }
    while (made < n && spx_rv_ws_init(&w[made], c, room, e) == SPX_OK)
        made++;
    return made < n ? free_group(made, w, room) : w;
}

/* Runs `task` for all stars, at most `group` at a time; each star by itself, so that neither threads nor groups change
 * anything. */
static spx_status for_stars(const spx_rv_ctx *c, spx_progress *p, size_t group, star_task task, void *arg, spx_err *e)
{
    spx_status st = SPX_OK;
    size_t nstar = c->nstar, threads = c->opt->threads > 1 ? (size_t)c->opt->threads : 1;
    threads = threads > nstar ? (nstar > 1 ? nstar : 1) : threads;
    size_t share = (nstar + threads - 1) / threads, rounds = (share + group - 1) / group;
    group = rounds ? (share + rounds - 1) / rounds : 1; /* all threads get the same */
    size_t ngroup = (nstar + group - 1) / group;
    int blas = openblas_get_num_threads();
    openblas_set_num_threads(1);
#pragma omp parallel num_threads((int)threads)
    {
        spx_rv_room room = {0};
        spx_err mine = {0};
        spx_rv_ws *w = make_group(c, group, &room, &mine);
#pragma omp for schedule(dynamic, 1)
        for (size_t g = 0; g < ngroup; g++) {
            if (mine.code != SPX_OK)
                continue;
            size_t first = g * group, n = nstar - first < group ? nstar - first : group;
            task(w, first, n, arg);
            spx_progress_step(p, n);
            for (size_t k = 0; k < n && mine.code == SPX_OK; k++)
                mine = w[k].err;
        }
        if (mine.code != SPX_OK) {
#pragma omp critical(spx_rvfit_error)
            st = spx_fail(e, mine.code, "%s", mine.msg);
        }
        if (w)
            free_group(group, w, &room);
    }
    openblas_set_num_threads(blas);
    return st;
}

static void keep_ccf(spx_rv_ws *w, size_t entry, spx_rvfit *out)
{
    const spx_rv_ctx *c = w->ctx;
    for (size_t i = 0; i < w->first[c->narm]; i++) {
        const spx_rv_data *d = &w->piece[i];
        spx_rv_ccf(w, d, entry, out->arm[c->arm[d->arm].index].ccf + d->exposure * out->nlag);
    }
}

static void fit_task(spx_rv_ws *w, size_t first, size_t n, void *arg)
{
    const spx_rv_ctx *c = w->ctx;
    spx_rvfit *out = arg;
    spx_rv_ws *who[SPX_RV_BATCH] = {NULL};
    spx_rv_start start[SPX_RV_BATCH][SPX_RV_MAX_START];
    spx_rv_minimum found[SPX_RV_BATCH];
    size_t m = 0, nstart[SPX_RV_BATCH] = {0}, star[SPX_RV_BATCH];
    for (size_t k = 0; k < n; k++) {
        spx_rvfit_star *s = &out->star[first + k];
        if (!spx_rv_load(&w[k], first + k)) {
            bad_star(c, s);
            continue;
        }
        const double *given = c->in->start ? c->in->start + (first + k) * c->nq : NULL;
        nstart[m] = spx_rv_starts(&w[k], given, start[m], &s->vrad_ccf);
        s->ccf_entry = w[k].ccf_entry;
        if (c->opt->keep_ccf && s->ccf_entry >= 0)
            keep_ccf(&w[k], (size_t)s->ccf_entry, out);
        who[m] = &w[k];
        star[m++] = first + k;
    }
    minimise(m, who, nstart, start, found);
    reject_outliers(m, who, found);
    for (size_t k = 0; k < m; k++)
        finish_star(who[k], star[k], &found[k], out);
}

spx_status spx_rvfit_cpu(const spx_rvfit_input *in, const spx_rvfit_options *o, spx_progress *p, spx_rvfit *out,
                         spx_err *e)
{
    spx_rv_ctx c;
    *out = (spx_rvfit){0};
    spx_status st = spx_rv_ctx_init(&c, in, o, e);
    if (st)
        return st;
    if ((st = make_result(&c, out, e)) == SPX_OK)
        st = for_stars(&c, p, c.interpolator != SPX_INTERPOLATE_GRID ? SPX_RV_BATCH : 1, fit_task, out, e);
    spx_rv_ctx_free(&c);
    if (st)
        spx_rvfit_free(out);
    return st;
}

typedef struct {
    const double *x;
    double *f, *grad;
} objective_args;

static void objective_task(spx_rv_ws *w, size_t star, size_t n, void *arg)
{
    const objective_args *a = arg;
    (void)n; /* 1 */
    const spx_rv_ctx *c = w->ctx;
    double x[SPX_MAX_FIT];
    spx_rv_value at;
    a->f[star] = 0;
    for (size_t q = 0; a->grad && q < c->nq; q++)
        a->grad[star * c->nq + q] = 0;
    if (!spx_rv_load(w, star))
        return;
    for (size_t q = 0; q < c->nq; q++)
        x[q] = spx_rv_map(c, q, a->x[star * c->nq + q]);
    spx_rv_eval(w, x, NULL, a->grad != NULL, &at);
    a->f[star] = at.f;
    for (size_t k = 0; a->grad && k < c->nfree; k++) {
        size_t q = c->freeq[k];
        double scale = q >= 2 && c->parlog[q - 2] ? M_LN10 * a->x[star * c->nq + q] : 1;
        a->grad[star * c->nq + q] = at.grad[k] / scale;
    }
}

spx_status spx_rvfit_objective(const spx_rvfit_input *in, const spx_rvfit_options *o, const double *x, double *f,
                               double *grad, spx_err *e)
{
    spx_rv_ctx c;
    spx_status st = spx_rv_ctx_init(&c, in, o, e);
    if (st)
        return st;
    for (size_t i = 0; st == SPX_OK && i < c.nstar * c.nq; i++) {
        size_t q = i % c.nq;
        if (!isfinite(x[i]) || (q >= 2 && c.parlog[q - 2] && !(x[i] > 0)) ||
            (q < 2 && !(x[i] >= (q ? o->vsinimin : o->vmin) && x[i] <= (q ? o->vsinimax : o->vmax))))
            st = spx_fail(e, SPX_EUSAGE, "point %zu, quantity %zu: %g is outside its range", i / c.nq, q, x[i]);
    }
    objective_args a = {x, f, grad};
    if (st == SPX_OK)
        st = for_stars(&c, NULL, 1, objective_task, &a, e);
    spx_rv_ctx_free(&c);
    return st;
}
