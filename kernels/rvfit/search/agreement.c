/* Provides the agreement of what is fitted as one star: has each exposure the velocity of the joint fit, and have the
 * arms one velocity?
 *
 * The model of an exposure or arm, with its own continuum, is shifted along the pixels by a velocity u and scaled,
 * piece by piece. chi^2 of the good pixels of an exposure at u, less that at 0, says how many errors its velocity is
 * away from that of the star. Of an arm, the least chi^2 of its own and that of the others are compared with the least
 * one at a velocity that they share: the joint fit may have settled between the two. Shifts below a few km/s are the
 * wavelength calibration's. The model's samples are interpolated by cubics, which is exact enough to find another
 * velocity, though not to measure it. */
#include <math.h>

#include "base/clones.h"
#include "base/mem.h"
#include "num/wave.h"
#include "products/plausible.h"
#include "rvfit/search/group.h"

/* Least difference of velocities that counts, km/s: of an exposure; and of an arm, which is sought AROUND the star's.
 * Wavelengths in air, for vacuum, are 80 to 84 km/s off. */
static const double LEAST = 5, LEAST_ARM = 25, AROUND = 125;
/* Arms are looked at where chi^2 is that many standard deviations above its degrees of freedom: an arm that is
 * elsewhere makes it large, and most stars need not be. */
static const double BEYOND = 1;

/* Sums of w f m and w m^2 over n pixels of a piece, m its model at place[i] - shift, which is between pixels at[i] and
 * at[i]+1. step: 1 / (place[j+1] - place[j]); weight: 0 of pixels that are not good; data: w f. */
SPX_CLONES
static void shifted_sums(size_t n, const double *restrict place, const double *restrict step, double shift,
                         const int32_t *restrict at, const double *restrict model, const double *restrict weight,
                         const double *restrict data, double *fm, double *mm)
{
    const int32_t last = (int32_t)n - 1;
    double first = 0, second = 0;
#pragma omp simd reduction(+ : first, second)
    for (size_t i = 0; i < n; i++) {
        const int32_t j = at[i], before = j - (j > 0), after = j + 2 < last ? j + 2 : last;
        const double t = (spx_rv_within(place[i] - shift, place[0], place[last]) - place[j]) * step[j];
        const double m = spx_rv_between(t, model[before], model[j], model[j + 1], model[after]);
        first += data[i] * m;
        second += weight[i] * m * m;
    }
    *fm = first;
    *mm = second;
}

/* Adds chi^2 of a piece to all shifts. */
static void add_piece(spx_rv_workspace *r, const spx_rv_arm *a, const spx_rv_data *d, const spx_rv_shifts *s)
{
    const size_t n = a->n;
    double *weight = r->q, *data = r->r, *step = r->w, ff = 0;
    int32_t *at = (int32_t *)r->u; /* none of them is in use */
    for (size_t i = 0; i < n; i++) {
        weight[i] = d->good[i] ? d->ie[i] * d->ie[i] : 0;
        data[i] = weight[i] * d->flux[i];
        ff += data[i] * d->flux[i];
        step[i] = i + 1 < n ? 1 / (a->place[i + 1] - a->place[i]) : 0;
    }
    for (size_t k = 0; k < s->n; k++) {
        const double shift = spx_rv_place_shift(spx_rv_shift(s, k), a->setup->dlnwave);
        double fm, mm;
        for (size_t i = 0, j = 0; i < n; i++) {
            while (j + 2 < n && a->place[j + 1] <= a->place[i] - shift)
                j++;
            at[i] = (int32_t)j;
        }
        shifted_sums(n, a->place, step, shift, at, d->model, weight, data, &fm, &mm);
        s->chisq[k] += spx_rv_scaled_chisq(ff, fm, mm);
    }
}

void spx_rv_shifted_chisq(const spx_rv_shifts *s)
{
    const spx_rv_spectra *w = s->w;
    for (size_t k = 0; k < s->n; k++)
        s->chisq[k] = 0;
    for (size_t i = 0; i < w->first[w->ctx->narm]; i++)
        if (spx_rv_is_shifted(s, i))
            add_piece(w->workspace, &w->ctx->arm[w->piece[i].arm], &w->piece[i], s);
}

/* Width of the pixels of a piece, km/s. */
static double pixel_of(const spx_rv_arm *a)
{
    return SPX_C_KMS * a->setup->dlnwave * (a->place[a->n - 1] - a->place[0]) / (double)(a->n - 1);
}

/* What is asked of exposure x of a star at velocity v: shifts by half a pixel of its last piece, over the range. n is 0
 * where it has no piece. */
static spx_rv_shifts shifts_of(spx_rv_spectra *w, size_t x, double v)
{
    const spx_rvfit_options *o = w->ctx->opt;
    spx_rv_shifts s = {.w = w, .exposure = x, .arm = SPX_RV_ALL, .first = o->vmin - v};
    for (size_t i = 0; i < w->first[w->ctx->narm]; i++) {
        if (!spx_rv_is_shifted(&s, i))
            continue;
        s.step = 0.5 * pixel_of(&w->ctx->arm[w->piece[i].arm]);
        s.n = 2 + (size_t)floor((o->vmax - o->vmin) / s.step);
    }
    return s;
}

/* Good pixels of all that is shifted. */
static double pixels_of(const spx_rv_shifts *s)
{
    double npix = 0;
    for (size_t i = 0; i < s->w->first[s->w->ctx->narm]; i++)
        npix += spx_rv_is_shifted(s, i) ? (double)s->w->piece[i].ngood : 0;
    return npix;
}

/* chi^2 of m sets of shifts. */
static spx_status ask_shifts(spx_rv_group *g, size_t m, spx_rv_shifts *s, spx_err *e)
{
    size_t all = 0;
    for (size_t i = 0; i < m; i++)
        all += s[i].n;
    if (m == 0)
        return SPX_OK;
    const spx_status st = spx_rv_need_velocities(g, all, e);
    if (st != SPX_OK)
        return st;
    double *f = g->ask.f;
    for (size_t i = 0; i < m; f += s[i++].n)
        s[i].chisq = f;
    return g->engine->shifted(g->engine->state, m, s, e);
}

/* Errors by which an exposure's velocity differs from the star's. */
static double disagreement(const spx_rv_shifts *s)
{
    double best = s->chisq[0], at = 0;
    for (size_t k = 1; k < s->n; k++)
        if (s->chisq[k] < best) {
            best = s->chisq[k];
            at = spx_rv_shift(s, k);
        }
    /* a misfit that is there at any velocity says nothing of this one */
    return fabs(at) < LEAST ? 0 : sqrt((s->chisq[0] - best) / fmax(1, best / pixels_of(s)));
}

spx_status spx_rv_compare_exposures(spx_rv_group *g, size_t n, spx_rv_star *const *star, const spx_rvfit *out,
                                    spx_err *e)
{
    size_t most = 0, m = 0;
    for (size_t k = 0; k < n; k++) {
        most += out->first[star[k]->index + 1] - out->first[star[k]->index];
        star[k]->differ = 0;
    }
    if (most == n)
        return SPX_OK;
    spx_rv_shifts *s = spx_alloc(most, sizeof *s, e);
    spx_rv_star **of = spx_alloc(most, sizeof(spx_rv_star *), e);
    spx_status st = s != NULL && of != NULL ? SPX_OK : SPX_EIO;
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        const size_t begin = out->first[star[k]->index], end = out->first[star[k]->index + 1];
        for (size_t x = begin; x < end && end - begin > 1 && star[k]->min.at.f < HUGE_VAL; x++) {
            s[m] = shifts_of(&star[k]->spectra, x, star[k]->min.x[0]);
            of[m] = star[k];
            m += s[m].n > 0;
        }
    }
    if (st == SPX_OK)
        st = ask_shifts(g, m, s, e);
    for (size_t i = 0; i < m && st == SPX_OK; i++)
        of[i]->differ = of[i]->differ || spx_rule_broken(SPX_RULE_EXPOSURES, disagreement(&s[i]));
    spx_free(s);
    spx_free(of);
    return st;
}

/* ---- arms ---- */

/* May an arm of a star be elsewhere? Errors that hold a jitter hold that, too. */
static int is_beyond_noise(const spx_rv_star *star)
{
    const spx_rv_spectra *w = &star->spectra;
    const spx_rv_ctx *c = w->ctx;
    double chisq = 0, dof = -(double)c->nfree - (double)spx_rv_continua(w);
    for (size_t i = 0; i < w->first[c->narm]; i++) {
        chisq += w->piece[i].chisq;
        dof += (double)w->piece[i].ngood;
    }
    return c->opt->jitter || chisq - dof > BEYOND * sqrt(2 * fmax(1, dof));
}

/* What is asked of the arms of a star, s[narm], at shifts that all of them share, by the narrowest pixel; how many
 * arms: 0 where there are not two. */
static size_t shifts_of_arms(spx_rv_star *star, spx_rv_shifts *s)
{
    spx_rv_spectra *w = &star->spectra;
    double step = HUGE_VAL;
    size_t n = 0;
    for (size_t a = 0; a < w->ctx->narm; a++) {
        s[n] = (spx_rv_shifts){.w = w, .exposure = SPX_RV_ALL, .arm = a, .first = -AROUND};
        if (!(pixels_of(&s[n]) > 0))
            continue;
        step = fmin(step, pixel_of(&w->ctx->arm[a]));
        n++;
    }
    for (size_t i = 0; i < n; i++) {
        s[i].step = step;
        s[i].n = 2 + (size_t)floor(2 * AROUND / step);
    }
    return n < 2 ? 0 : n;
}

/* chi^2 of arm i alone, or of all others, at shift k of the n arms of a star. */
static double chisq_of(size_t n, const spx_rv_shifts *s, size_t i, int others, size_t k)
{
    double sum = 0;
    for (size_t j = 0; j < n; j++)
        sum += (j == i) != others ? s[j].chisq[k] : 0;
    return sum;
}

/* The least of it, and where that is: at the vertex of the parabola through its neighbours. */
static double least(size_t n, const spx_rv_shifts *s, size_t i, int others, double *at)
{
    size_t best = 1;
    for (size_t k = 2; k < s->n; k++)
        best = chisq_of(n, s, i, others, k) < chisq_of(n, s, i, others, best) ? k : best;
    const double value = chisq_of(n, s, i, others, best);
    *at = spx_rv_shift(s, best);
    if (best > 1 && best + 1 < s->n) {
        const double left = chisq_of(n, s, i, others, best - 1) - value,
                     right = chisq_of(n, s, i, others, best + 1) - value;
        *at += left + right > 0 ? 0.5 * s->step * (left - right) / (left + right) : 0;
    }
    return fmin(value, chisq_of(n, s, i, others, 0));
}

/* Which of the n arms of a star has another velocity than the others, by most errors. */
static void find_odd_arm(spx_rv_star *star, size_t n, const spx_rv_shifts *s)
{
    double most = 0, npix = 0, shared = HUGE_VAL;
    for (size_t i = 0; i < n; i++)
        npix += pixels_of(&s[i]);
    for (size_t k = 0; k < s->n; k++)
        shared = fmin(shared, chisq_of(n, s, 0, 0, k) + chisq_of(n, s, 0, 1, k));
    for (size_t i = 0; i < n; i++) {
        double at, others_at;
        const double apart = least(n, s, i, 0, &at) + least(n, s, i, 1, &others_at),
                     errors = sqrt((shared - apart) / fmax(1, apart / npix));
        if (fabs(at - others_at) < LEAST_ARM || !spx_rule_broken(SPX_RULE_ARMS, errors) || !(errors > most))
            continue;
        most = errors;
        star->odd = s[i].arm;
        star->odd_by = at - others_at;
    }
}

spx_status spx_rv_compare_arms(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_err *e)
{
    const size_t narm = g->c->narm;
    spx_rv_shifts *s = spx_alloc2(n, narm, sizeof *s, e);
    size_t *first = spx_alloc(n + 1, sizeof *first, e), m = 0;
    spx_status st = s != NULL && first != NULL ? SPX_OK : SPX_EIO;
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        star[k]->odd = SPX_RV_ALL;
        first[k] = m;
        if (star[k]->min.at.f < HUGE_VAL && is_beyond_noise(star[k]))
            m += shifts_of_arms(star[k], s + m);
        first[k + 1] = m;
    }
    if (st == SPX_OK)
        st = ask_shifts(g, m, s, e);
    for (size_t k = 0; k < n && st == SPX_OK; k++)
        if (first[k + 1] > first[k])
            find_odd_arm(star[k], first[k + 1] - first[k], s + first[k]);
    spx_free(s);
    spx_free(first);
    return st;
}
