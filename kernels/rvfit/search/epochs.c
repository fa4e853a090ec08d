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

/* The pieces of one exposure of a star, as a star of their own, and where its search is. */
typedef struct {
    spx_rv_spectra w;
    size_t exposure, n; /* its pieces are w.piece[n] */
    double at[SPX_MAX_FIT];
    enum { START, SIDES, VERTEX, FOUND, LOST } step; /* which velocities the descent asks for next, or its end */
    int steps;
    double half, middle; /* distance of the points on both sides; objective between them */
    double f, sigma;     /* at the minimum, and the error by the curvature there */
    int refits, ended;
    spx_rv_profile profile;
} epoch;

/* ---- descent: steps downhill, then vertices of parabolas ---- */

static int is_within(const epoch *x, double v)
{
    return v >= x->w.ctx->lo[0] && v <= x->w.ctx->hi[0];
}

static void begin_descent(epoch *x)
{
    x->half = 0.25 * x->w.ctx->scan.step;
    x->step = is_within(x, x->at[0]) ? START : LOST;
    x->steps = 0;
}

/* Velocities that it asks for, one or two, into v unless NULL; 0: none. */
static size_t ask_descent(epoch *x, double *v)
{
    if (x->step == SIDES && !(is_within(x, x->at[0] - x->half) && is_within(x, x->at[0] + x->half)))
        x->step = LOST;
    if (x->step == FOUND || x->step == LOST)
        return 0;
    if (v != NULL) {
        v[0] = x->step == SIDES ? x->at[0] - x->half : x->at[0];
        v[x->step == SIDES] = x->step == SIDES ? x->at[0] + x->half : x->at[0];
    }
    return x->step == SIDES ? 2 : 1;
}

/* The objective there. */
static void take_descent(epoch *x, const double *f)
{
    if (x->step == START) {
        x->middle = f[0];
        x->step = f[0] < HUGE_VAL ? SIDES : LOST;
        return;
    }
    if (x->step == VERTEX) {
        x->f = x->middle = f[0];
        x->step = x->half <= 1.01 * NEAR * x->sigma ? FOUND : f[0] < HUGE_VAL ? SIDES : LOST;
        x->half = fmax(NEAR * x->sigma, 0.1 * x->half);
    } else {
        const double left = f[0], right = f[1], curvature = (left - x->middle) + (right - x->middle);
        if (!(left < HUGE_VAL && right < HUGE_VAL)) {
            x->step = LOST;
            return;
        }
        if (x->middle <= left && x->middle <= right && curvature > 0) {
            x->at[0] += 0.5 * x->half * (left - right) / curvature;
            x->sigma = x->half * sqrt(2 / curvature);
            x->step = is_within(x, x->at[0]) ? VERTEX : LOST;
            return;
        }
        x->at[0] += left < right ? -x->half : x->half;
        x->middle = fmin(left, right);
    }
    if (x->step != FOUND && ++x->steps == DESCENT)
        x->step = LOST;
}

/* Those of n exposures, n <= together. */
static spx_status descend(spx_rv_group *g, size_t n, epoch *x, spx_err *e)
{
    spx_rv_request *r = &g->ask;
    for (;;) {
        size_t total = 0;
        r->n = 0;
        spx_status st = spx_rv_need_velocities(g, 2 * n, e);
        for (size_t k = 0; k < n && st == SPX_OK; k++) {
            const size_t many = x[k].ended ? 0 : ask_descent(&x[k], r->v + total);
            if (many == 0)
                continue;
            r->first[r->n] = total;
            spx_rv_ask_of(r, &x[k].w, x[k].at);
            total += many;
        }
        r->first[r->n] = total;
        if (st != SPX_OK || total == 0 || (st = spx_rv_ask_values(g, e)) != SPX_OK)
            return st;
        const size_t *first = r->first;
        for (size_t k = 0; k < n; k++)
            if (!x[k].ended && ask_descent(&x[k], NULL) > 0)
                take_descent(&x[k], r->f + *first++);
    }
}

/* ---- profiles ---- */

/* Profiles of the objective along v from its minima, and the best other minima; from a lower point that they meet, the
 * minimum is sought again. */
static spx_status look_at_profiles(spx_rv_group *g, size_t n, epoch *x, spx_err *e)
{
    spx_rv_spectra **w = spx_alloc(n, sizeof(spx_rv_spectra *), e);
    spx_rv_profile **p = spx_alloc(n, sizeof(spx_rv_profile *), e);
    spx_status st = w != NULL && p != NULL ? SPX_OK : SPX_EIO;
    size_t m = 0;
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        x[k].ended = x[k].ended || x[k].step != FOUND;
        if (x[k].ended)
            continue;
        spx_rv_profile_begin(&x[k].profile, &x[k].w, x[k].at, x[k].f, x[k].sigma);
        w[m] = &x[k].w;
        p[m++] = &x[k].profile;
    }
    if (st == SPX_OK)
        st = spx_rv_profiles(g, m, w, p, e);
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        if (x[k].ended)
            continue;
        x[k].ended = x[k].profile.lower == x[k].at[0] || x[k].refits++ == REFITS;
        if (x[k].ended)
            continue;
        x[k].at[0] = x[k].profile.lower;
        begin_descent(&x[k]);
    }
    spx_free(w);
    spx_free(p);
    return st;
}

/* ---- the result ---- */

/* Of a piece at `info`: see spx_rv_information. */
static void inform(const spx_rv_information *s, const spx_rv_data *d, double *info)
{
    spx_rv_spectra *w = s->w;
    const spx_rv_arm *a = &w->ctx->arm[d->arm];
    double *left = w->workspace->r, *right = w->workspace->w;
    info[0] = info[1] = info[2] = 0;
    if (!(spx_rv_chisq(w, d, s->v - s->half, 0, left) < HUGE_VAL) ||
        !(spx_rv_chisq(w, d, s->v + s->half, 0, right) < HUGE_VAL))
        return;
    for (size_t i = 0; i < a->n; i++) {
        if (!d->good[i])
            continue;
        const double slope = (right[i] - left[i]) / (2 * s->half) * d->ie[i],
                     photon = d->sigma ? slope * d->sigma[i] * d->ie[i] : slope;
        info[0] += slope * slope;
        info[1] += photon * photon;
    }
    info[2] = spx_rv_chisq(w, d, s->v, 0, NULL);
}

void spx_rv_inform(const spx_rv_information *s)
{
    for (size_t i = 0; i < s->w->first[s->w->ctx->narm]; i++)
        inform(s, &s->w->piece[i], s->piece[i]);
}

/* Shares of the arms in the velocity, and its error: of noise alone where errors hold a jitter, and as large as chi^2
 * says where that is wanted. */
static void finish(const epoch *x, const double (*info)[3], spx_rvfit_exposure *out)
{
    const spx_rv_ctx *c = x->w.ctx;
    double sum = 0, noise = 0, chisq = 0, dof = -1;
    for (size_t i = 0; i < x->n; i++) {
        const spx_rv_arm *a = &c->arm[x->w.piece[i].arm];
        out->weight[a->index] = info[i][0];
        sum += info[i][0];
        noise += info[i][1];
        chisq += info[i][2];
        dof += (double)x->w.piece[i].ngood - (double)a->basis.n;
    }
    for (size_t i = 0; i < x->n && sum > 0; i++)
        out->weight[c->arm[x->w.piece[i].arm].index] /= sum;
    if (c->opt->jitter && sum > 0)
        out->vrad_err *= sqrt(noise / sum);
    else if (c->opt->scale_errors && dof > 0)
        out->vrad_err *= sqrt(fmax(1, chisq / dof));
}

static int is_measured(const epoch *x)
{
    return x->step == FOUND && x->profile.err > 0;
}

static void write_epoch(const epoch *x, const double (*info)[3], spx_rvfit_exposure *out)
{
    const spx_rv_profile *p = &x->profile;
    out->warn = 0;
    out->vrad = x->at[0];
    out->vrad_err = p->err;
    spx_rv_profile_other(p, &out->vrad_alt, &out->dchisq_alt);
    finish(x, info, out);
    out->information = 1 / (out->vrad_err * out->vrad_err);
    if (out->dchisq_alt < AMBIGUOUS)
        out->warn |= SPX_EPOCH_AMBIGUOUS;
    if (!(p->err < 1.25 * x->sigma && p->err > 0.8 * x->sigma && p->err < WIDEST))
        out->warn |= SPX_EPOCH_PROFILE;
}

/* Results of n exposures whose profiles are there, which have m pieces. */
static spx_status write_epochs(spx_rv_group *g, size_t n, size_t m, epoch *x, spx_rvfit *out, spx_err *e)
{
    spx_rv_information *s = spx_alloc(n, sizeof *s, e);
    double(*info)[3] = spx_alloc(m, sizeof *info, e);
    spx_status st = s != NULL && info != NULL ? SPX_OK : SPX_EIO;
    size_t asked = 0, pieces = 0;
    for (size_t k = 0; k < n && st == SPX_OK; k++)
        if (is_measured(&x[k])) {
            s[asked++] = (spx_rv_information){&x[k].w, x[k].at, x[k].at[0], NEAR * x[k].sigma, info + pieces};
            pieces += x[k].n;
        }
    if (st == SPX_OK && asked > 0)
        st = g->engine->inform(g->engine->state, asked, s, e);
    asked = 0;
    for (size_t k = 0; k < n && st == SPX_OK; k++)
        if (is_measured(&x[k]))
            write_epoch(&x[k], (const double(*)[3])s[asked++].piece, &out->exposure[x[k].exposure]);
    spx_free(s);
    spx_free(info);
    return st;
}

/* ---- exposures ---- */

/* One exposure of a star whose fit has ended at x0; its pieces, of which there is memory, and their numbers. */
static void take_pieces(spx_rv_star *star, size_t exposure, spx_rv_data *piece, size_t *part, double *scan, epoch *x)
{
    spx_rv_spectra *whole = &star->spectra;
    const size_t narm = whole->ctx->narm;
    x->w = *whole;
    x->w.whole = whole;
    x->w.piece = piece;
    x->w.part = part;
    x->w.scan = scan;
    x->w.prior = 0; /* those on parameters are the same at all velocities */
    x->exposure = exposure;
    memcpy(x->at, star->min.x, sizeof x->at);
    for (size_t ia = 0; ia < narm; ia++) {
        x->w.first[ia] = x->n;
        for (size_t i = whole->first[ia]; i < whole->first[ia + 1]; i++)
            if (whole->piece[i].exposure == exposure) {
                part[x->n] = i;
                piece[x->n++] = whole->piece[i];
            }
    }
    x->w.first[narm] = x->n;
    begin_descent(x);
    x->ended = x->n == 0;
}

/* Exposures i[n], n <= together, of stars of[n], with m pieces in all at most. */
static spx_status measure(spx_rv_group *g, size_t n, spx_rv_star *const *of, const size_t *i, size_t m, spx_rvfit *out,
                          spx_err *e)
{
    const size_t nscan = g->c->scan.n;
    epoch *x = spx_alloc(n, sizeof *x, e);
    spx_rv_data *piece = spx_alloc(m, sizeof *piece, e);
    size_t *part = spx_alloc(m, sizeof *part, e), used = 0;
    double *scan = spx_alloc2(n, nscan, sizeof *scan, e);
    spx_status st = x != NULL && piece != NULL && part != NULL && scan != NULL ? SPX_OK : SPX_EIO;
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        take_pieces(of[k], i[k], piece + used, part + used, scan + k * nscan, &x[k]);
        used += x[k].n;
    }
    for (int refit = 0; refit <= REFITS && st == SPX_OK; refit++)
        if ((st = descend(g, n, x, e)) == SPX_OK)
            st = look_at_profiles(g, n, x, e);
    if (st == SPX_OK)
        st = write_epochs(g, n, used, x, out, e);
    spx_free(x);
    spx_free(piece);
    spx_free(part);
    spx_free(scan);
    return st;
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

spx_status spx_rv_epochs(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_rvfit *out, spx_err *e)
{
    spx_rv_star **of = spx_alloc(g->together, sizeof(spx_rv_star *), e);
    size_t *exposure = spx_alloc(g->together, sizeof *exposure, e), m = 0, pieces = 0;
    spx_status st = of != NULL && exposure != NULL ? SPX_OK : SPX_EIO;
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        const size_t index = star[k]->index, end = out->first[index + 1];
        for (size_t i = out->first[index]; i < end && star[k]->min.at.f < HUGE_VAL && st == SPX_OK; i++) {
            of[m] = star[k];
            exposure[m++] = i;
            pieces += g->c->narm;
            if (m < g->together)
                continue;
            st = measure(g, m, of, exposure, pieces, out, e);
            m = pieces = 0;
        }
    }
    if (st == SPX_OK && m > 0)
        st = measure(g, m, of, exposure, pieces, out, e);
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        const size_t first = out->first[star[k]->index], end = out->first[star[k]->index + 1];
        if (star[k]->min.at.f < HUGE_VAL)
            compare(out->exposure + first, end - first, &out->star[star[k]->index]);
    }
    spx_free(of);
    spx_free(exposure);
    return st;
}
