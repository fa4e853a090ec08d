/* Provides the velocities of the single exposures of a star that was fitted jointly, and chi^2 of their constancy.
 *
 * With rotation and parameters of the star held, each exposure's own part of the objective (its pixels, its continua)
 * is minimised along v; spx_rv_profile gives the error and the best other minimum, as for a star. Parameters and misfit
 * of the templates are common to all exposures, so they shift all velocities alike: the error of an exposure is that of
 * the noise of its pixels, which is what velocities scatter by. Constant velocities have
 *     chi^2 = sum_i (v_i - m)^2 / sigma_i^2,   m = sum_i v_i sigma_i^-2 / sum_i sigma_i^-2
 * with one degree of freedom less than exposures. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "rvfit/search/group.h"
#include "rvfit/zero.h"

enum { DESCENT = 60, REFITS = 3 };
/* Half-distance of the points of the last parabola, in errors: its vertex is then right to a hundredth of one. */
static const double NEAR = 0.3;
/* An exposure is not compared where another velocity is nearly as likely: noise makes such a minimum the deeper one
 * once in a few hundred such spectra (tests/science/epochs.bats). */
static const double AMBIGUOUS = 16;
static const double WIDEST = 100; /* km/s, error beyond which a velocity is not compared, as RVS_WARN 4 */

/* The pieces of one exposure of a star, as a star of their own. */
typedef struct {
    spx_rv_spectra w;
    spx_rv_data piece[SPX_MAX_ARM];
    size_t n;
} epoch;

static void take_pieces(const spx_rv_spectra *star, size_t exposure, epoch *x)
{
    const size_t narm = star->ctx->narm;
    x->w = *star;
    x->w.piece = x->piece;
    x->w.prior = 0; /* those on parameters are the same at all velocities */
    x->n = 0;
    for (size_t ia = 0; ia < narm; ia++) {
        x->w.first[ia] = x->n;
        for (size_t i = star->first[ia]; i < star->first[ia + 1]; i++)
            if (star->piece[i].exposure == exposure)
                x->piece[x->n++] = star->piece[i];
    }
    x->w.first[narm] = x->n;
}

static double objective(epoch *x, double v)
{
    const spx_rv_ctx *c = x->w.ctx;
    spx_rv_value at = {.f = HUGE_VAL};
    if (v >= c->lo[0] && v <= c->hi[0])
        spx_rv_project(&x->w, v, &at);
    return at.f;
}

/* Minimum of the objective near *v: steps downhill, then vertices of parabolas. *sigma: error by the curvature. 0:
 * there is none within the range. */
static int descend(epoch *x, double *v, double *f, double *sigma)
{
    double half = 0.25 * x->w.ctx->scan.step, middle = objective(x, *v);
    for (int i = 0; i < DESCENT && middle < HUGE_VAL; i++) {
        const double left = objective(x, *v - half), right = objective(x, *v + half);
        const double curvature = (left - middle) + (right - middle);
        if (!(left < HUGE_VAL && right < HUGE_VAL))
            return 0;
        if (!(middle <= left && middle <= right && curvature > 0)) {
            *v += left < right ? -half : half;
            middle = fmin(left, right);
            continue;
        }
        *v += 0.5 * half * (left - right) / curvature;
        *f = objective(x, *v);
        *sigma = half * sqrt(2 / curvature);
        if (half <= 1.01 * NEAR * *sigma)
            return 1;
        half = fmax(NEAR * *sigma, 0.1 * half);
        middle = *f;
    }
    return 0;
}

/* Profile of the objective along v from its minimum, and the best other minimum; 0: out of memory. */
static int profile(epoch *x, const double *at, double f, double sigma, spx_rv_profile *p)
{
    double *v = NULL, *value = NULL;
    size_t room = 0;
    spx_rv_profile_begin(p, &x->w, at, f, sigma);
    while (p->step != SPX_RV_DONE) {
        if (p->step == SPX_RV_SCAN) {
            spx_rv_velocity_scan(&x->w);
            spx_rv_profile_take(p, x->w.scan);
            continue;
        }
        const size_t n = spx_rv_profile_ask(p, NULL);
        if (n > room) {
            spx_free(v);
            spx_free(value);
            v = spx_alloc(n, sizeof *v, &x->w.err);
            value = spx_alloc(n, sizeof *value, &x->w.err);
            room = n;
        }
        if (v == NULL || value == NULL)
            break;
        (void)spx_rv_profile_ask(p, v);
        for (size_t i = 0; i < n; i++)
            value[i] = objective(x, v[i]);
        spx_rv_profile_take(p, value);
    }
    spx_free(v);
    spx_free(value);
    return p->step == SPX_RV_DONE;
}

/* Information on the velocity that a piece has, sum (dm/dv / e)^2 over its good pixels, where the continuum follows:
 * added to info[2], the second with photon noise instead of errors that hold a jitter. Adds chi^2, too. */
static void inform(epoch *x, const spx_rv_data *d, double v, double half, double *info, double *chisq)
{
    const spx_rv_arm *a = &x->w.ctx->arm[d->arm];
    double *left = x->w.workspace->r, *right = x->w.workspace->w;
    if (!(spx_rv_chisq(&x->w, d, v - half, 0, left) < HUGE_VAL) ||
        !(spx_rv_chisq(&x->w, d, v + half, 0, right) < HUGE_VAL))
        return;
    for (size_t i = 0; i < a->n; i++) {
        if (!d->good[i])
            continue;
        const double s = (right[i] - left[i]) / (2 * half) * d->ie[i],
                     photon = d->sigma ? s * d->sigma[i] * d->ie[i] : s;
        info[0] += s * s;
        info[1] += photon * photon;
    }
    *chisq += spx_rv_chisq(&x->w, d, v, 0, NULL);
}

/* Shares of the arms in the velocity, and its error: of noise alone where errors hold a jitter, and as large as chi^2
 * says where that is wanted. */
static void finish(epoch *x, double sigma, spx_rvfit_exposure *out)
{
    const spx_rv_ctx *c = x->w.ctx;
    double sum = 0, noise = 0, chisq = 0, dof = -1;
    for (size_t i = 0; i < x->n; i++) {
        const spx_rv_arm *a = &c->arm[x->piece[i].arm];
        double info[2] = {0};
        inform(x, &x->piece[i], out->vrad, NEAR * sigma, info, &chisq);
        out->weight[a->index] = info[0];
        sum += info[0];
        noise += info[1];
        dof += (double)x->piece[i].ngood - (double)a->basis.n;
    }
    for (size_t i = 0; i < x->n && sum > 0; i++)
        out->weight[c->arm[x->piece[i].arm].index] /= sum;
    if (c->opt->jitter && sum > 0)
        out->vrad_err *= sqrt(noise / sum);
    else if (c->opt->scale_errors && dof > 0)
        out->vrad_err *= sqrt(fmax(1, chisq / dof));
}

/* Velocity of an exposure whose star has the templates in the workspace, at the point x0. */
static void measure(const spx_rv_spectra *star, const double *x0, size_t exposure, spx_rvfit_exposure *out, spx_err *e)
{
    epoch x;
    double at[SPX_MAX_FIT], f, sigma;
    spx_rv_profile p;
    take_pieces(star, exposure, &x);
    memcpy(at, x0, sizeof at);
    int found = x.n > 0 && descend(&x, at, &f, &sigma);
    for (int again = 0; found; again++) {
        if (!profile(&x, at, f, sigma, &p)) {
            (void)spx_err_pass(e, &x.w.err);
            return;
        }
        if (p.lower == at[0] || again == REFITS)
            break;
        at[0] = p.lower;
        found = descend(&x, at, &f, &sigma);
    }
    if (!found || !(p.err > 0))
        return;
    out->warn = 0;
    out->vrad = at[0];
    out->vrad_err = p.err;
    spx_rv_profile_other(&p, &out->vrad_alt, &out->dchisq_alt);
    finish(&x, sigma, out);
    out->information = 1 / (out->vrad_err * out->vrad_err);
    if (out->dchisq_alt < AMBIGUOUS)
        out->warn |= SPX_EPOCH_AMBIGUOUS;
    if (!(p.err < 1.25 * sigma && p.err > 0.8 * sigma && p.err < WIDEST))
        out->warn |= SPX_EPOCH_PROFILE;
}

static void compare(const spx_rvfit_exposure *x, size_t n, spx_rvfit_star *s)
{
    double weight = 0, sum = 0;
    s->const_chisq = 0;
    s->const_dof = -1;
    for (size_t i = 0; i < n; i++)
        if ((x[i].warn & SPX_EPOCH_OUT) == 0) {
            const double w = 1 / (x[i].vrad_err * x[i].vrad_err);
            weight += w;
            sum += w * x[i].vrad;
            s->const_dof++;
        }
    for (size_t i = 0; i < n; i++)
        if ((x[i].warn & SPX_EPOCH_OUT) == 0)
            s->const_chisq += pow((x[i].vrad - sum / weight) / x[i].vrad_err, 2);
    if (s->const_dof < 1) /* nothing to compare */
        s->const_chisq = s->const_dof = 0;
    spx_rvfit_judge_constancy(s);
}

void spx_rv_epochs(spx_rv_star *star, spx_rvfit *out)
{
    spx_rv_spectra *w = &star->spectra;
    const size_t first = out->first[star->index], end = out->first[star->index + 1];
    spx_rv_template(w, star->min.x, NULL, 0);
    for (size_t i = first; i < end && w->err.code == SPX_OK; i++)
        measure(w, star->min.x, i, &out->exposure[i], &w->err);
    compare(out->exposure + first, end - first, &out->star[star->index]);
}
