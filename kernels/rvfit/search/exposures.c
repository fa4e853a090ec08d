/* Provides the agreement of exposures that are fitted as one star: has each of them the velocity of the joint fit?
 *
 * The model of an exposure, with its own continuum, is shifted along the pixels by a velocity u and scaled, piece by
 * piece; chi^2 of the good pixels at u, less that at 0, says how many errors the exposure's velocity is away from that
 * of the star. Shifts below a few km/s are the wavelength calibration's. The model's samples are interpolated by
 * cubics, which is exact enough to find another velocity, though not to measure it. */
#include <math.h>

#include "base/clones.h"
#include "base/mem.h"
#include "num/wave.h"
#include "products/plausible.h"
#include "rvfit/search/group.h"

/* Least difference of velocities that counts, km/s. */
static const double LEAST = 5;

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

/* What is asked of exposure x of a star at velocity v: shifts by half a pixel of its last piece, over the range. n is 0
 * where it has no piece. */
static spx_rv_shifts shifts_of(spx_rv_spectra *w, size_t x, double v)
{
    const spx_rvfit_options *o = w->ctx->opt;
    spx_rv_shifts s = {.w = w, .exposure = x, .first = o->vmin - v};
    for (size_t i = 0; i < w->first[w->ctx->narm]; i++) {
        const spx_rv_arm *a = &w->ctx->arm[w->piece[i].arm];
        if (!spx_rv_is_shifted(&s, i))
            continue;
        const double pixel = SPX_C_KMS * a->setup->dlnwave * (a->place[a->n - 1] - a->place[0]) / (double)(a->n - 1);
        s.step = 0.5 * pixel;
        s.n = 2 + (size_t)floor((o->vmax - o->vmin) / s.step);
    }
    return s;
}

/* Errors by which an exposure's velocity differs from the star's. */
static double disagreement(const spx_rv_shifts *s)
{
    double npix = 0, best = s->chisq[0], at = 0;
    for (size_t i = 0; i < s->w->first[s->w->ctx->narm]; i++)
        npix += spx_rv_is_shifted(s, i) ? (double)s->w->piece[i].ngood : 0;
    for (size_t k = 1; k < s->n; k++)
        if (s->chisq[k] < best) {
            best = s->chisq[k];
            at = spx_rv_shift(s, k);
        }
    /* a misfit that is there at any velocity says nothing of this one */
    return fabs(at) < LEAST ? 0 : sqrt((s->chisq[0] - best) / fmax(1, best / npix));
}

spx_status spx_rv_compare_exposures(spx_rv_group *g, size_t n, spx_rv_star *const *star, const spx_rvfit *out,
                                    spx_err *e)
{
    size_t most = 0, m = 0, all = 0;
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
            all += s[m].n;
            of[m] = star[k];
            m += s[m].n > 0;
        }
    }
    if (st == SPX_OK && m > 0 && (st = spx_rv_need_velocities(g, all, e)) == SPX_OK) {
        double *f = g->ask.f;
        for (size_t i = 0; i < m; f += s[i++].n)
            s[i].chisq = f;
        st = g->engine->shifted(g->engine->state, m, s, e);
    }
    for (size_t i = 0; i < m && st == SPX_OK; i++)
        of[i]->differ = of[i]->differ || spx_rule_broken(SPX_RULE_EXPOSURES, disagreement(&s[i]));
    spx_free(s);
    spx_free(of);
    return st;
}
