/* Provides errors of the fitted quantities that allow for a misfit which neighbouring pixels share: lines of the
 * templates that are too strong or displaced. The curvature takes the errors of pixels as independent.
 *
 * To first order a quantity is x = x_true + sum_i p_i r_i, where r_i are the residuals and p_i, the influence of pixel
 * i, is the change of the model along the quantity's row of the covariance, both in units of the pixels' errors. Its
 * variance is that of the sum, with all covariances of neighbours: the sandwich estimate (Huber 1967; White 1980,
 * Econometrica 48, 817) for clusters of pixels (Liang & Zeger 1986, Biometrika 73, 13),
 *     V = sum over clusters of (sum of p_i r_i)^2,
 * so that residuals of a line that cancel within it do not count, and those that add up do. Clusters end between lines,
 * where influences are least. Windows that slide over all places (Parzen) cut lines: of a line that is too strong p_i
 * r_i sums up to 0, but has a first moment, of which half a wave of the cosine over half a window of L lets (pi/2L)^2
 * through. Clusters are LEAST to twice as many times as long as the distance at which influences on the velocity change
 * sign, about the half-width of a line: neighbours share wings. Residuals of a cluster are smaller than errors by what
 * the fit takes from it: with the information h_i of each pixel the square is divided by 1 - sum of h (Cribari-Neto &
 * Zarkos 2001, Econometric Reviews 20, 151, have this for single points). Exposures of a star see the same misfit at
 * the same wavelength: their p_i r_i are added up before. An error is never below that of the noise.
 *
 * Of velocities, p is dT/dlambda, T the template. Residuals that are a function of T, as of another curve of growth,
 * then sum up to differences of its integral at the ends of a cluster, integral of h(T) dT, which cancel between
 * neighbours: lines that are too deep alike displace nothing. Taken as independent they make errors up to 1.4 times too
 * large. The linear part of h is taken out of the residuals, by least squares. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "rvfit/search/group.h"

static const double STEP = 0.3; /* of the differences that influences are, in errors */

/* Along a quantity: points x0 + along * up, x0 - along * down, whose distance is in errors of the quantity. */
typedef struct {
    double along[SPX_MAX_FIT];
    double up, down;
} direction;

/* Places of a star's pixels, in bins of ln(wavelength) that all arms share. */
typedef struct {
    double ln0, bin;
    size_t n;
} places;

static direction direction_of(const spx_rv_ctx *c, const spx_rv_star *s, size_t k)
{
    const size_t nf = c->nfree;
    double cov[SPX_MAX_FIT * SPX_MAX_FIT];
    direction d = {.up = STEP, .down = STEP};
    (void)spx_rv_inverse_curvature(c, s->min.x, s->min.at.grad, s->hess, cov);
    const double sigma = sqrt(2 * cov[k * nf + k]);
    for (size_t l = 0; l < nf; l++) {
        const size_t q = c->freeq[l];
        const double a = d.along[q] = 2 * cov[k * nf + l] / sigma, x = s->min.x[q];
        const double above = fmax(0, c->hi[q] - x), below = fmax(0, x - c->lo[q]);
        if (a != 0) {
            d.up = fmin(d.up, (a > 0 ? above : below) / fabs(a));
            d.down = fmin(d.down, (a > 0 ? below : above) / fabs(a));
        }
    }
    return d;
}

/* Within the bounds, by rounding errors, too: with vsini below 0 there is no template. */
static void point(const spx_rv_ctx *c, const double *x, const direction *d, double step, double *out)
{
    memcpy(out, x, c->nq * sizeof *out);
    for (size_t k = 0; k < c->nfree; k++) {
        const size_t q = c->freeq[k];
        out[q] = spx_rv_within(x[q] + step * d->along[q], c->lo[q], c->hi[q]);
    }
}

static places places_of(const spx_rv_spectra *w)
{
    const spx_rv_ctx *c = w->ctx;
    double lo = HUGE_VAL, hi = -HUGE_VAL, bin = HUGE_VAL;
    for (size_t i = 0; i < c->narm; i++) {
        const spx_rv_arm *a = &c->arm[i];
        if (w->first[i] == w->first[i + 1] || a->n < 2)
            continue;
        lo = fmin(lo, a->lnwave[0]);
        hi = fmax(hi, a->lnwave[a->n - 1]);
        bin = fmin(bin, (a->lnwave[a->n - 1] - a->lnwave[0]) / (double)(a->n - 1));
    }
    return hi > lo ? (places){lo, bin, (size_t)((hi - lo) / bin) + 1} : (places){0};
}

size_t spx_rv_misfit_bins(const spx_rv_ctx *c)
{
    spx_rv_spectra all = {.ctx = c};
    for (size_t i = 0; i <= c->narm; i++)
        all.first[i] = i;
    return places_of(&all).n;
}

/* Influence of pixel i of a piece whose models at the two points are in `other` and `model`, per error of the quantity;
 * 0 where the pixel is not used. */
static double influence(const spx_rv_data *d, const direction *along, size_t i)
{
    return d->good[i] ? (d->other[i] - d->model[i]) * d->ie[i] / (along->up + along->down) : 0;
}

/* Mean length in ln(wavelength) over which influences keep their sign: the first zero of their autocorrelation. */
static double coherence(const spx_rv_spectra *w, const direction *along)
{
    const spx_rv_ctx *c = w->ctx;
    double sum = 0, weight = 0;
    for (size_t k = 0; k < w->first[c->narm]; k++) {
        const spx_rv_data *d = &w->piece[k];
        const spx_rv_arm *a = &c->arm[d->arm];
        double square = 0, before = 0, now = 0;
        size_t lag = 0;
        for (; lag < a->n; lag++, before = now) {
            now = 0;
            for (size_t i = 0; i + lag < a->n; i++)
                now += influence(d, along, i) * influence(d, along, i + lag);
            if (lag == 0)
                square = now;
            if (now <= 0)
                break;
        }
        if (!(square > 0) || lag == a->n || a->n < 2)
            continue;
        const double pixel = (a->lnwave[a->n - 1] - a->lnwave[0]) / (double)(a->n - 1);
        sum += square * pixel * ((double)lag - 1 + before / (before - now));
        weight += square;
    }
    return weight > 0 ? sum / weight : 0;
}

/* End of the cluster from `first` on, `least` to twice as many bins from there: where the information around is least.
 */
static size_t end_of(size_t n, const double *share, size_t first, size_t least, size_t around)
{
    const size_t from = first + least, to = from + least < n - least / 2 ? from + least : n - least / 2;
    double lowest = HUGE_VAL;
    size_t end = n;
    for (size_t k = from; k < to; k++) {
        double sum = 0;
        for (size_t i = k > around ? k - around : 0; i < k + around && i < n; i++)
            sum += share[i];
        if (sum < lowest) {
            lowest = sum;
            end = k;
        }
    }
    return end;
}

/* Variance of the sum of score[n] whose clusters are independent of each other, and its degrees of freedom, 1 / sum of
 * H^2. share[n]: of the information, of which the fit has taken from the residuals of a cluster what belongs to it, H.
 */
static double clustered(size_t n, const double *score, const double *share, size_t least, size_t around,
                        double *freedom)
{
    double variance = 0, squares = 0;
    for (size_t first = 0, end; first < n; first = end) {
        double sum = 0, taken = 0;
        end = n - first > least + least / 2 ? end_of(n, share, first, least, around) : n;
        for (size_t k = first; k < end; k++) {
            sum += score[k];
            taken += share[k];
        }
        variance += sum * sum / (1 - fmin(SPX_RV_MOST_TAKEN, taken));
        squares += taken * taken;
    }
    *freedom = 1 / squares;
    return variance;
}

/* Residual of good pixel i, in errors, from the model between the two points. */
static double residual(const spx_rv_data *d, const direction *along, size_t i)
{
    const double model = (along->down * d->other[i] + along->up * d->model[i]) / (along->up + along->down);
    return (d->flux[i] - model) * d->ie[i];
}

/* The part of the residuals of a piece that is linear in the template, coef[0] level + coef[1] model, by least squares;
 * 0 where these are too much alike. */
static void linear_part(const spx_rv_data *d, const direction *along, size_t n, double coef[2])
{
    double gram[3] = {0}, right[2] = {0};
    for (size_t i = 0; i < n; i++) {
        if (!d->good[i])
            continue;
        const double r = residual(d, along, i), level = d->level[i] * d->ie[i], model = d->model[i] * d->ie[i];
        gram[0] += level * level;
        gram[1] += level * model;
        gram[2] += model * model;
        right[0] += level * r;
        right[1] += model * r;
    }
    const double det = gram[0] * gram[2] - gram[1] * gram[1];
    const int apart = det > SPX_RV_COLLINEAR * gram[0] * gram[2];
    coef[0] = apart ? (gram[2] * right[0] - gram[1] * right[1]) / det : 0;
    coef[1] = apart ? (gram[0] * right[1] - gram[1] * right[0]) / det : 0;
}

/* Quantities that are fitted to the pixels, linear parts among them. */
static double free_of(const spx_rv_spectra *w, int is_velocity)
{
    const spx_rv_ctx *c = w->ctx;
    return (double)c->nfree + (double)spx_rv_continua(w) + (is_velocity ? (double)w->first[c->narm] : 0);
}

/* Factor of the error of a quantity, from the models at its two points. length: over which influences keep their sign;
 * is_velocity: it is v. score[2][n of places] is used. */
static double factor(const spx_rv_spectra *w, const direction *along, const places *p, double length, int is_velocity,
                     double *score)
{
    const spx_rv_ctx *c = w->ctx;
    double square = 0, noise = 0, good = 0, *share = score + p->n;
    const double free = free_of(w, is_velocity);
    memset(score, 0, 2 * p->n * sizeof *score);
    for (size_t k = 0; k < w->first[c->narm]; k++) {
        const spx_rv_data *d = &w->piece[k];
        const spx_rv_arm *a = &c->arm[d->arm];
        double line[2] = {0};
        if (is_velocity)
            linear_part(d, along, a->n, line);
        for (size_t i = 0; i < a->n; i++) {
            if (!d->good[i])
                continue;
            const double s = influence(d, along, i), photon = s * d->sigma[i] * d->ie[i];
            const size_t bin = (size_t)((a->lnwave[i] - p->ln0) / p->bin);
            score[bin] += s * (residual(d, along, i) - (line[0] * d->level[i] + line[1] * d->model[i]) * d->ie[i]);
            share[bin] += s * s;
            square += s * s;
            noise += photon * photon;
            good++;
        }
    }
    const spx_rv_clusters size = spx_rv_clusters_of(length, p->bin, (double)p->n);
    for (size_t i = 0; i < p->n; i++)
        share[i] /= square;
    double freedom;
    const double variance = clustered(p->n, score, share, (size_t)size.least, (size_t)size.around, &freedom);
    return spx_rv_widened(variance, freedom, square, noise, good, free);
}

/* Models of stars r->star[r->n], which the engine has at one point, are kept beside those at the next. */
static spx_status keep_models(spx_rv_group *g, spx_err *e)
{
    spx_rv_request *r = &g->ask;
    if (r->n == 0)
        return SPX_OK;
    if (r->spectra[0]->unread) /* as all of them are */
        return g->engine->keep_models(g->engine->state, r->n, r->spectra, e);
    for (size_t i = 0; i < r->n; i++)
        for (size_t j = 0; j < r->spectra[i]->first[g->c->narm]; j++) {
            spx_rv_data *d = &r->spectra[i]->piece[j];
            memcpy(d->other, d->model, g->c->arm[d->arm].n * sizeof *d->other);
        }
    return SPX_OK;
}

/* Factors of the errors of quantity k of stars r->star[r->n], which are unread. */
static spx_status factors_of_unread(spx_rv_group *g, size_t k, spx_err *e)
{
    const spx_rv_ctx *c = g->c;
    spx_rv_request *r = &g->ask;
    spx_rv_shared_misfit *asked = spx_alloc(r->n, sizeof *asked, e);
    if (asked == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < r->n; i++) {
        spx_rv_star *s = r->star[i];
        const direction d = direction_of(c, s, k);
        const places p = places_of(&s->spectra);
        const int is_velocity = c->freeq[k] == 0;
        asked[i] = (spx_rv_shared_misfit){.w = &s->spectra,
                                          .up = d.up,
                                          .down = d.down,
                                          .ln0 = p.ln0,
                                          .bin = p.bin,
                                          .bins = p.n,
                                          .free = free_of(&s->spectra, is_velocity),
                                          .first = k == 0,
                                          .is_velocity = is_velocity,
                                          .length = s->coherence,
                                          .factor = 1};
    }
    const spx_status st = g->engine->misfit(g->engine->state, r->n, asked, e);
    for (size_t i = 0; i < r->n && st == SPX_OK; i++) {
        r->star[i]->coherence = asked[i].length;
        r->star[i]->widen[c->freeq[k]] = asked[i].factor;
    }
    spx_free(asked);
    return st;
}

/* Models of the stars of the list at the two points along quantity k, then the factor of its error. */
static spx_status one_quantity(spx_rv_group *g, size_t n, spx_rv_star *const *star, size_t k, spx_err *e)
{
    const spx_rv_ctx *c = g->c;
    spx_rv_request *r = &g->ask;
    for (int side = 0; side < 2; side++) {
        r->n = 0;
        for (size_t i = 0; i < n; i++) {
            const direction d = direction_of(c, star[i], k);
            if (!(star[i]->min.at.f < HUGE_VAL) || !(d.up + d.down > 0.5 * STEP))
                continue;
            point(c, star[i]->min.x, &d, side == 0 ? d.up : -d.down, star[i]->point);
            spx_rv_ask(r, star[i], star[i]->point);
        }
        spx_status st =
            r->n == 0 ? SPX_OK
                      : g->engine->models(g->engine->state, r->n, r->spectra, (const double(*)[SPX_MAX_FIT])r->x, e);
        if (st != SPX_OK || (side == 0 && (st = keep_models(g, e)) != SPX_OK))
            return st;
    }
    if (r->n > 0 && r->spectra[0]->unread)
        return factors_of_unread(g, k, e);
    EACH_STAR(i, r->n, 1)
    {
        spx_rv_star *s = r->star[i];
        const direction d = direction_of(c, s, k);
        const places p = places_of(&s->spectra);
        double *score = p.n > 0 ? spx_alloc2(2, p.n, sizeof *score, &s->spectra.err) : NULL;
        if (k == 0)
            s->coherence = coherence(&s->spectra, &d);
        if (score != NULL)
            s->widen[c->freeq[k]] = factor(&s->spectra, &d, &p, s->coherence, c->freeq[k] == 0, score);
        spx_free(score);
    }
    for (size_t i = 0; i < r->n; i++)
        if (r->star[i]->spectra.err.code != SPX_OK)
            return spx_err_pass(e, &r->star[i]->spectra.err);
    return SPX_OK;
}

spx_status spx_rv_misfit(spx_rv_group *g, size_t n, spx_rv_star *const *star, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < n; i++) {
        star[i]->coherence = 0;
        for (size_t q = 0; q < SPX_MAX_FIT; q++)
            star[i]->widen[q] = 1;
    }
    for (size_t k = 0; k < g->c->nfree && st == SPX_OK; k++)
        st = one_quantity(g, n, star, k, e);
    return st;
}
