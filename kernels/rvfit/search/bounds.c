/* Provides errors of quantities that have bounds, such as rotation of slow rotators at 0, or parameters that are known
 * no better than the templates' range.
 *
 * Near the minimum the likelihood is a Gaussian, exp(-f/2) with the curvature of f, and 0 beyond the bounds. Errors are
 * the moments of that about the minimum, where the fit is: the mean square of (q - fit) over all q that the likelihood
 * allows, as VRAD_ERR is along v (search/profile.c). Over stars whose truth is anywhere within the bounds, (fit -
 * truth) / error has an rms of 1 then, however wide the likelihood is; with the curvature's own variance, which the
 * bounds do not know of, it is smaller.
 *
 * Moments of a Gaussian within a box are found by expectation propagation (Minka 2001, UAI 17, 362; for boxes
 * Cunningham, Hennig & Lacoste-Julien 2011, arXiv:1111.6832): the bounds of each quantity are replaced by a Gaussian
 * factor such that mean and variance of the quantity are right, in turns. Of rotation all vsini are as likely
 * beforehand, not all of the internal unit, in which those near 0 lie dense. */
#include <math.h>
#include <string.h>

#include "rvfit/search/group.h"

enum { NODES = 48, SWEEPS = 12 };
static const double REACH = 5;   /* errors: farther bounds do not matter */
static const double DROP = 18;   /* of -ln of the likelihood, where the integral ends */
static const double DONE = 1e-3; /* change of an error, relative, that no longer matters */

/* Gaussian factor exp(-tau d^2/2 + nu d) of a quantity's bounds, d from the minimum. */
typedef struct {
    double tau, nu;
} site;

/* Mean and variance of d = q - x over a Gaussian (mean, sigma) within the bounds; *square: mean of (vsini - that of
 * x)^2, of rotation. */
static void tilted(const spx_rv_ctx *c, size_t q, double x, double mean, double sigma, double *m, double *v,
                   double *square)
{
    const double at = fmin(c->hi[q], fmax(c->lo[q], x + mean)), beyond = fabs(x + mean - at) / sigma;
    const double reach = sigma * (sqrt(beyond * beyond + 2 * DROP) - beyond);
    double from = fmax(c->lo[q], at - reach), to = fmin(c->hi[q], at + reach), sum[4] = {0};
    if (q == 1) {
        from = spx_rv_vsini(from, c->slow);
        to = spx_rv_vsini(to, c->slow);
    }
    for (size_t i = 0; i < NODES; i++) {
        const double u = from + (to - from) * ((double)i + 0.5) / NODES;
        const double d = (q == 1 ? spx_rv_vsini_map(u, c->slow) : u) - x, z = (d - mean) / sigma;
        const double w = exp(-0.5 * (z * z - beyond * beyond)), off = q == 1 ? u - spx_rv_vsini(x, c->slow) : d;
        sum[0] += w;
        sum[1] += w * d;
        sum[2] += w * d * d;
        sum[3] += w * off * off;
    }
    *m = sum[1] / sum[0];
    *v = sum[2] / sum[0] - *m * *m;
    *square = sum[3] / sum[0];
}

int spx_rv_bounded_moments(const spx_rv_ctx *c, const double *x, const double *grad, const double *hess, double *moment,
                           double *vsini_square)
{
    const size_t n = c->nfree;
    double precision[SPX_MAX_FIT * SPX_MAX_FIT], h[SPX_MAX_FIT], mean[SPX_MAX_FIT] = {0};
    site s[SPX_MAX_FIT] = {{0}};
    int near[SPX_MAX_FIT] = {0}, any = 0;
    if (!spx_rv_invert(n, hess, moment))
        return 0;
    for (size_t i = 0; i < n * n; i++)
        moment[i] *= 2;
    for (size_t i = 0; i < n; i++) {
        const size_t q = c->freeq[i];
        const double sigma = REACH * sqrt(moment[i * n + i]);
        const int held = (x[q] <= c->lo[q] && grad[i] >= 0) || (x[q] >= c->hi[q] && grad[i] <= 0);
        h[i] = held ? -0.5 * grad[i] : 0;
        near[i] = x[q] - c->lo[q] < sigma || c->hi[q] - x[q] < sigma;
        any |= near[i];
    }
    double change = any ? HUGE_VAL : 0;
    for (int sweep = 0; sweep < SWEEPS && change > DONE; sweep++) {
        change = 0;
        for (size_t i = 0; i < n; i++) {
            if (!near[i] && sweep > 0)
                continue;
            memcpy(precision, hess, n * n * sizeof *precision);
            for (size_t k = 0; k < n * n; k++)
                precision[k] *= 0.5;
            for (size_t k = 0; k < n; k++)
                precision[k * n + k] += s[k].tau;
            if (!spx_rv_invert(n, precision, moment))
                return 0;
            for (size_t k = 0; k < n; k++) {
                mean[k] = 0;
                for (size_t l = 0; l < n; l++)
                    mean[k] += moment[k * n + l] * (h[l] + s[l].nu);
            }
            if (!near[i])
                continue;
            const double var = moment[i * n + i], left = 1 / var - s[i].tau; /* without the factor of its bounds */
            double m, v, square;
            if (!(left > 0))
                return 0;
            tilted(c, c->freeq[i], x[c->freeq[i]], (mean[i] / var - s[i].nu) / left, sqrt(1 / left), &m, &v, &square);
            if (!(v > 0) || !isfinite(m))
                return 0;
            change = fmax(change, fmax(fabs(sqrt(v / var) - 1), fabs(m - mean[i]) / sqrt(v)));
            s[i].tau = 1 / v - left;
            s[i].nu = m / v - (mean[i] / var - s[i].nu);
            if (c->freeq[i] == 1)
                *vsini_square = square;
        }
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            moment[i * n + k] += mean[i] * mean[k];
    return 1;
}
