/* Arithmetic of the velocity fit, for host and device: Doppler shift, cubic spline on uniform knots, weights of the
 * multilinear interpolator, small dense algebra, the step of a bounded least-squares fit. */
#ifndef SPX_RVFIT_MATH_H
#define SPX_RVFIT_MATH_H

#include <float.h>
#include <math.h>
#include <stddef.h>

#include "hostdevice.h"
#include "num/wave.h"
#include "products/rvfit.h"

/* ln of sqrt((1-beta)/(1+beta)): what a velocity of v km/s adds to ln(lambda) on the way to the rest frame; and its
 * derivative by v. */
SPX_HD double spx_rv_lnshift(double v)
{
    return -atanh(v / SPX_C_KMS);
}

SPX_HD double spx_rv_lnshift_dv(double v)
{
    double b = v / SPX_C_KMS;
    return -1 / (SPX_C_KMS * (1 - b) * (1 + b));
}

/* Templates depend on the square of vsini, so that vsini is no coordinate to search in near 0: nothing changes there to
 * first order. The internal one, x = sqrt(vsini^2 + a^2) - a, is as good as vsini for fast rotators and regular for
 * those at rest (a 0: vsini itself). */
SPX_HD double spx_rv_vsini(double x, double a)
{
    return sqrt(x * (x + 2 * a));
}

SPX_HD double spx_rv_vsini_map(double vsini, double a)
{
    return vsini > 0 ? vsini * vsini / (sqrt(vsini * vsini + a * a) + a) : 0;
}

/* Derivative of vsini^2 by x. */
SPX_HD double spx_rv_vsini_square_dx(double x, double a)
{
    return 2 * (x + a);
}

/* Errors of pixels: of a bad one, in units of the median flux, and of a good one at least, of the median error. */
#define SPX_RV_LARGE_ERROR 1000.0
#define SPX_RV_LEAST_ERROR 0.3

/* Pixels that are farther from the model than sigma errors, or than that times 1.4826 times the median distance where
 * that is more, are rejected. */
SPX_HD double spx_rv_reject_cut(double sigma, double median)
{
    return sigma * fmax(1.0, 1.4826 * median);
}

/* Widths of spots, 0.25 to 2.8 pixels in steps of a tenth of the logarithm, that rows of resolution matrices are
 * matched for (model/lsf_match.c): the number of the one nearest to p. And rows of which the misfit is computed, at
 * most. */
enum { SPX_RV_LEVELS = 25, SPX_RV_MISFITS = 16 };
#define SPX_RV_LEVEL_MIN  0.25
#define SPX_RV_LEVEL_STEP 0.1
SPX_HD size_t spx_rv_match_level(double p)
{
    const double k = log(p / SPX_RV_LEVEL_MIN) / SPX_RV_LEVEL_STEP + 0.5;
    return !(k > 0) ? 0 : k < SPX_RV_LEVELS - 1 ? (size_t)k : SPX_RV_LEVELS - 1;
}

/* Functions of the lag that a match is made of, frequency responses of the templates' line-spread function g and of the
 * bins' eta: those of g^2, g eta and eta^2. */
enum { SPX_RV_GG, SPX_RV_GH, SPX_RV_HH, SPX_RV_PRODUCTS };

/* The smooth level of a spectrum is of medians in so many blocks of an arm, or in blocks of so many pixels; steps in
 * which a jitter is looked for (model/jitter.c). */
enum { SPX_RV_LEVEL_BLOCKS = 8, SPX_RV_LEVEL_PIXELS = 64, SPX_RV_JITTER_STEPS = 60 };

/* Errors with the misfit that neighbouring pixels share (search/misfit.c): most of the information that a cluster may
 * have; the level and the model of a piece are alike where the determinant of their products is less than this, of the
 * squares: lines below a thousandth of the continuum. */
#define SPX_RV_MOST_TAKEN 0.9
#define SPX_RV_COLLINEAR  1e-6

/* Clusters are LEAST to twice as many times as long as the length over which influences keep their sign, and MOST of
 * the range of wavelengths at most: in bins, and how many of these belong to a place on either side. */
typedef struct {
    int least, around;
} spx_rv_clusters;
SPX_HD spx_rv_clusters spx_rv_clusters_of(double length, double bin, double nbin)
{
    const double LEAST = 9, MOST = 0.1, bins = length / bin;
    const spx_rv_clusters c = {(int)fmax(1.0, fmin(MOST * nbin, LEAST * bins)), (int)fmax(1.0, round(bins))};
    return c;
}

/* Factor of an error: of the variance of the clusters' sum, known to `freedom` degrees of freedom, the information
 * `square` of the pixels, that part of it which is noise, of `good` pixels with `free` quantities. */
SPX_HD double spx_rv_widened(double variance, double freedom, double square, double noise, double good, double free)
{
    /* what is more than the noise is known to few degrees of freedom: Student's 84 % quantile, by Fisher's expansion */
    const double more = fmax(0.0, variance * good / fmax(1.0, good - free) - noise);
    const double student = 1 + 0.5 / freedom + 0.25 / (freedom * freedom);
    const double rest = fmax(0.0, 1 - square); /* what priors and the penalty outside the range contribute */
    const double f = sqrt((noise + more * student * student + rest) / (square + rest));
    return fabs(f) <= DBL_MAX ? f : 1;
}

/* Can a flux with an ivar, whose root is known, be a measurement? No detector has a signal-to-noise ratio above 10^7.
 */
SPX_HD int spx_rv_sane(double flux, double ivar, double root)
{
    const double size = fabs(flux);
    return (size <= DBL_MAX) & (ivar > 1e-100) & (ivar < 1e100) & (size * root <= 1e7);
}

/* Flux of pixel k of those that are filled between pixels `before` and `after`. */
SPX_HD double spx_rv_filled(double left, double right, size_t before, size_t k, size_t after)
{
    return left + (right - left) * ((double)(k - before) / (double)(after - before));
}

/* A point of a cubic through four values side by side, t of the way from the second to the third (Catmull & Rom 1974).
 */
SPX_HD double spx_rv_between(double t, double a, double b, double c, double d)
{
    return b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
}

SPX_HD double spx_rv_within(double x, double lo, double hi)
{
    const double least = x > lo ? x : lo;
    return least < hi ? least : hi;
}

/* Samples, dlnwave apart, by which u km/s more move a template. */
SPX_HD double spx_rv_place_shift(double u, double dlnwave)
{
    return log1p(u / SPX_C_KMS) / dlnwave;
}

/* chi^2 of a model that is scaled, from the sums over w f^2, w f m and w m^2. */
SPX_HD double spx_rv_scaled_chisq(double ff, double fm, double mm)
{
    return mm > 0 ? ff - fm * fm / mm : ff;
}

/* A model's value as it is kept: finite. */
SPX_HD float spx_rv_model(double model)
{
    const double most = 1e38, finite = fabs(model) <= DBL_MAX ? model : 0;
    return (float)(finite > most ? most : finite < -most ? -most : finite);
}

/* (data - model) / error, ie = 1 / error, likewise. */
SPX_HD float spx_rv_residual(double flux, double ie, double model)
{
    return spx_rv_model((flux - model) * ie);
}

/* Pixel of the coarse model (model/coarse.c): weighted mean of n pixels, and the root of the sum of their weights. */
SPX_HD double spx_rv_coarse_pixel(size_t n, const double *flux, const double *ie, double *coarse_ie)
{
    double weight = 0, sum = 0;
    for (size_t k = 0; k < n; k++) {
        const double iv = ie[k] * ie[k];
        weight += iv;
        sum += iv * flux[k];
    }
    *coarse_ie = sqrt(weight);
    return weight > 0 ? sum / weight : 0;
}

/* Mapping of a parameter in which it is interpolated, and back: an exponential with slope 1 at p0; g 0: none. */
SPX_HD double spx_rv_axis_transform(double g, double p0, double p)
{
    return g != 0 ? p0 + expm1(g * (p - p0)) / g : p;
}

SPX_HD double spx_rv_axis_inverse(double g, double p0, double x)
{
    return g != 0 ? p0 + log1p(g * (x - p0)) / g : x;
}

/* Natural cubic spline through y at knots 0, 1, 2 ... In units m = y''/6 (Press et al., Numerical Recipes, 3.3):
 * m_(i-1) + 4 m_i + m_(i+1) = y_(i-1) - 2 y_i + y_(i+1), zero at both ends. The multipliers of the elimination do not
 * depend on y: cprime[n]. n >= 3. */
SPX_HD void spx_rv_spline_factor(size_t n, double *cprime)
{
    cprime[0] = 0;
    for (size_t i = 1; i < n; i++)
        cprime[i] = 1 / (4 - cprime[i - 1]);
}

/* Knot to the left of place x, and the four weights of (y_k, y_k+1, m_k, m_k+1); of the derivative by x in d. Beyond
 * the ends the spline is constant. */
SPX_HD size_t spx_rv_spline_weights(double x, size_t n, double w[4], double d[4])
{
    double at = x > 0 ? (x < (double)(n - 1) ? x : (double)(n - 1)) : 0, f = floor(at), inside = at == x;
    size_t k = f >= (double)(n - 2) ? n - 2 : (size_t)f;
    double b = at - (double)k, a = 1 - b;
    w[0] = a;
    w[1] = b;
    w[2] = a * (a * a - 1);
    w[3] = b * (b * b - 1);
    d[0] = -inside;
    d[1] = inside;
    d[2] = inside * (1 - 3 * a * a);
    d[3] = inside * (3 * b * b - 1);
    return k;
}

/* Slope at node j of the parabola through three nodes of x[n], n >= 3: weights of nodes *first ... *first + 2, which
 * have j in the middle but at the ends. */
SPX_HD void spx_rv_slope_weights(size_t n, const double *x, size_t j, size_t *first, double w[3])
{
    size_t a = j == 0 ? 0 : (j > n - 2 ? n - 3 : j - 1);
    double x0 = x[a], x1 = x[a + 1], x2 = x[a + 2], at = x[j];
    *first = a;
    w[0] = ((at - x1) + (at - x2)) / ((x0 - x1) * (x0 - x2));
    w[1] = ((at - x0) + (at - x2)) / ((x1 - x0) * (x1 - x2));
    w[2] = ((at - x0) + (at - x1)) / ((x2 - x0) * (x2 - x1));
}

/* Cubic Hermite interpolation on nodes x[n], increasing, n >= 2, at x[0] <= at <= x[n-1], with slopes of parabolas:
 * weights of the nodes first ... first + 3 (those beyond the last have none), and of the derivative. Linear between two
 * nodes; a parabola through three. */
SPX_HD size_t spx_rv_cubic_weights(size_t n, const double *x, double at, double w[4], double d[4])
{
    size_t k = 0;
    while (k + 2 < n && at >= x[k + 1])
        k++;
    double h = x[k + 1] - x[k], u = (at - x[k]) / h, v = 1 - u;
    size_t first = n <= 4 || k == 0 ? 0 : (k - 1 > n - 4 ? n - 4 : k - 1);
    for (size_t i = 0; i < 4; i++)
        w[i] = d[i] = 0;
    if (n == 2) {
        w[0] = v;
        w[1] = u;
        d[0] = -1 / h;
        d[1] = 1 / h;
        return 0;
    }
    w[k - first] = (1 + 2 * u) * v * v;
    w[k + 1 - first] = u * u * (3 - 2 * u);
    d[k - first] = -6 * u * v / h;
    d[k + 1 - first] = 6 * u * v / h;
    for (size_t side = 0; side < 2; side++) {
        size_t a;
        double s[3];
        double hw = side ? u * u * (u - 1) * h : u * v * v * h, hd = side ? u * (3 * u - 2) : v * (1 - 3 * u);
        spx_rv_slope_weights(n, x, k + side, &a, s);
        for (size_t i = 0; i < 3; i++) {
            w[a + i - first] += hw * s[i];
            d[a + i - first] += hd * s[i];
        }
    }
    return first;
}

/* Index of the entry (i, j), i >= j, of a symmetric matrix that is packed by rows of its lower triangle. */
SPX_HD size_t spx_rv_packed(size_t i, size_t j)
{
    return i * (i + 1) / 2 + j;
}

/* a = L L' in place, packed lower triangle of order n; 0 when a pivot is not above `tiny` times the diagonal. */
SPX_HD int spx_rv_cholesky(size_t n, double *a, double tiny)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j <= i; j++) {
            double s = a[spx_rv_packed(i, j)];
            for (size_t k = 0; k < j; k++)
                s -= a[spx_rv_packed(i, k)] * a[spx_rv_packed(j, k)];
            if (j < i)
                a[spx_rv_packed(i, j)] = s / a[spx_rv_packed(j, j)];
            else if (s > tiny * a[spx_rv_packed(i, i)] && s > 0 && isfinite(s))
                a[spx_rv_packed(i, i)] = sqrt(s);
            else
                return 0;
        }
    }
    return 1;
}

/* ln det of a matrix of n rows with this factor of calib/band.h. */
SPX_HD double spx_rv_lndet(size_t n, const double *factor)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++)
        sum -= log(factor[k]);
    return sum;
}

/* x = L^-1 x and x = L'^-1 x. */
SPX_HD void spx_rv_forward(size_t n, const double *l, double *x)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++)
            x[i] -= l[spx_rv_packed(i, k)] * x[k];
        x[i] /= l[spx_rv_packed(i, i)];
    }
}

SPX_HD void spx_rv_backward(size_t n, const double *l, double *x)
{
    for (size_t i = n; i-- > 0;) {
        for (size_t k = i + 1; k < n; k++)
            x[i] -= l[spx_rv_packed(k, i)] * x[k];
        x[i] /= l[spx_rv_packed(i, i)];
    }
}

/* Step d that lowers g'd + d'(H + lambda diag H)d/2 within lo <= d <= hi (lo <= 0 <= hi): an active-set solution. h is
 * n x n, full. Returns the decrease that the undamped quadratic predicts, 0 when d = 0. */
SPX_HD double spx_rv_box_step(size_t n, const double *g, const double *h, double lambda, const double *lo,
                              const double *hi, double *d)
{
    double a[SPX_MAX_FIT * (SPX_MAX_FIT + 1) / 2], r[SPX_MAX_FIT];
    size_t idx[SPX_MAX_FIT];
    int held[SPX_MAX_FIT]; /* at a bound: -1 lower, 1 upper */
    for (size_t i = 0; i < n; i++) {
        d[i] = 0;
        held[i] = g[i] > 0 && lo[i] >= 0 ? -1 : (g[i] < 0 && hi[i] <= 0 ? 1 : 0);
    }
    for (size_t round = 0; round < 4 * n + 4; round++) {
        size_t m = 0;
        for (size_t i = 0; i < n; i++)
            if (!held[i])
                idx[m++] = i;
        for (size_t i = 0; i < m; i++) {
            r[i] = -g[idx[i]];
            for (size_t j = 0; j < n; j++)
                if (held[j])
                    r[i] -= h[idx[i] * n + j] * d[j];
            for (size_t j = 0; j <= i; j++)
                a[spx_rv_packed(i, j)] = h[idx[i] * n + idx[j]];
            double diag = h[idx[i] * n + idx[i]];
            a[spx_rv_packed(i, i)] = diag > 0 ? diag * (1 + lambda) : 1;
        }
        if (!spx_rv_cholesky(m, a, 1e-13)) { /* no curvature along some direction: the diagonal alone */
            for (size_t i = 0; i < m; i++) {
                double diag = h[idx[i] * n + idx[i]];
                r[i] = diag > 0 ? -g[idx[i]] / (diag * (double)(m + 1) * (1 + lambda)) : 0;
            }
        } else {
            spx_rv_forward(m, a, r);
            spx_rv_backward(m, a, r);
        }
        int changed = 0;
        for (size_t i = 0; i < m; i++) {
            size_t k = idx[i];
            d[k] = r[i];
            if (r[i] <= lo[k] && r[i] < 0) {
                d[k] = lo[k];
                held[k] = -1;
                changed = 1;
            } else if (r[i] >= hi[k] && r[i] > 0) {
                d[k] = hi[k];
                held[k] = 1;
                changed = 1;
            }
        }
        if (changed)
            continue;
        /* Let go of the bound that pulls inwards most; never after many rounds, so that the loop ends. */
        size_t free_one = n;
        double pull = 0;
        for (size_t i = 0; i < n && round < 2 * n; i++) {
            if (!held[i] || !(hi[i] > lo[i]))
                continue;
            double q = g[i];
            for (size_t j = 0; j < n; j++)
                q += h[i * n + j] * d[j];
            q *= held[i];
            double size = h[i * n + i] > 0 ? q / sqrt(h[i * n + i]) : 0;
            if (size > pull && size > 1e-9) {
                pull = size;
                free_one = i;
            }
        }
        if (free_one == n)
            break;
        held[free_one] = 0;
    }
    double gain = 0;
    for (size_t i = 0; i < n; i++) {
        double q = 0;
        for (size_t j = 0; j < n; j++)
            q += h[i * n + j] * d[j];
        gain -= d[i] * (g[i] + 0.5 * q);
    }
    return gain > 0 ? gain : 0;
}

#endif
