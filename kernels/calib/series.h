/* Provides functions of wavelength that spectra are fitted with, for host and device: derivatives and shifts of a
 * spectrum on a uniform grid, Legendre polynomials, cubic B-splines. */
#ifndef SPX_CALIB_SERIES_H
#define SPX_CALIB_SERIES_H

#include <stddef.h>

#include "hostdevice.h"

/* Bins at either end in which derivatives are 0 (spx_derivative()); twice as many for the second. */
enum { SPX_DERIVATIVE_EDGE = 4 };

/* d/dlambda of x[n] at bin k, for steps of dw: central difference of 8th order, (4/5, -1/5, 4/105, -1/280)/dw; 0 within
 * SPX_DERIVATIVE_EDGE bins of the ends. */
SPX_HD double spx_derivative(size_t n, double dw, const double *x, size_t k)
{
    if (k < SPX_DERIVATIVE_EDGE || k + SPX_DERIVATIVE_EDGE >= n)
        return 0;
    return (4. / 5 * (x[k + 1] - x[k - 1]) - 1. / 5 * (x[k + 2] - x[k - 2]) + 4. / 105 * (x[k + 3] - x[k - 3]) -
            1. / 280 * (x[k + 4] - x[k - 4])) /
           dw;
}

/* Weights w[8] with which a function that is sampled at 0, 1, ... 7 is interpolated at t, 3 <= t < 4 best (Lagrange).
 */
SPX_HD void spx_lagrange8(double t, double w[8])
{
    const double scale[8] = {-1. / 5040, 1. / 720, -1. / 240, 1. / 144, -1. / 144, 1. / 240, -1. / 720, 1. / 5040};
    double before[8], after = 1;
    before[0] = 1;
    for (int i = 1; i < 8; i++)
        before[i] = before[i - 1] * (t - (i - 1));
    for (int i = 7; i >= 0; i--) {
        w[i] = scale[i] * before[i] * after;
        after *= t - i;
    }
}

/* x[n] at bin k + q, by eight bins around it (nearer the ends: by the first or last eight; beyond them: the end's
 * value); n >= 8. */
SPX_HD double spx_interpolate8(size_t n, const double *x, size_t k, double q)
{
    double at = (double)k + q, w[8], sum = 0;
    at = at < 0 ? 0 : at > (double)(n - 1) ? (double)(n - 1) : at;
    size_t first = (size_t)at;
    first = first < 3 ? 0 : first - 3;
    first = first > n - 8 ? n - 8 : first;
    spx_lagrange8(at - (double)first, w);
    for (int i = 0; i < 8; i++)
        sum += w[i] * x[first + (size_t)i];
    return sum;
}

/* Legendre polynomials p[nterm] = P_0(u) ... P_(nterm-1)(u). */
SPX_HD void spx_legendre(double u, size_t nterm, double *p)
{
    for (size_t l = 0; l < nterm; l++)
        p[l] = l == 0 ? 1 : l == 1 ? u : ((2. * (double)l - 1) * u * p[l - 1] - ((double)l - 1) * p[l - 2]) / (double)l;
}

/* Place of wavelength among first ... last, -1 ... 1. */
SPX_HD double spx_legendre_place(double first, double last, double wavelength)
{
    return last > first ? 2 * (wavelength - first) / (last - first) - 1 : 0;
}

/* Cubic B-splines on uniform knots over first ... last. */
typedef struct {
    double first, step;
    size_t n; /* functions: intervals + 3 */
} spx_bspline;

/* Splines with knots about `spacing` apart (rounded, at least one interval). */
SPX_HD spx_bspline spx_bspline_of(double first, double last, double spacing)
{
    spx_bspline s;
    double count = spacing > 0 ? (last - first) / spacing + 0.5 : 1;
    size_t intervals = count < 1 ? 1 : count < 1e6 ? (size_t)count : 1000000;
    s.first = first;
    s.step = last > first ? (last - first) / (double)intervals : 1;
    s.n = intervals + 3;
    return s;
}

/* The four functions that differ from 0 at x: b[4], of which the first is the one returned. They sum to 1. Beyond the
 * ends the outermost cubics go on. */
SPX_HD size_t spx_bspline_at(const spx_bspline *s, double x, double b[4])
{
    const double at = (x - s->first) / s->step;
    size_t i = at > 0 ? (size_t)at : 0;
    i = i > s->n - 4 ? s->n - 4 : i;
    const double t = at - (double)i, u = 1 - t;
    b[0] = u * u * u / 6;
    b[1] = (3 * t * t * t - 6 * t * t + 4) / 6;
    b[2] = (3 * u * u * u - 6 * u * u + 4) / 6;
    b[3] = t * t * t / 6;
    return i;
}

/* The same, as series of the distance from x: d[k][i], of its power k, of function i. */
SPX_HD size_t spx_bspline_series(const spx_bspline *s, double x, double d[4][4])
{
    const double h = 1.0 / s->step;
    const size_t first = spx_bspline_at(s, x, d[0]);
    const double t = (x - s->first) * h - (double)first, u = 1.0 - t;
    const double one[4] = {-0.5 * u * u, 1.5 * t * t - 2.0 * t, 2.0 * u - 1.5 * u * u, 0.5 * t * t},
                 two[4] = {u, 3.0 * t - 2.0, 3.0 * u - 2.0, t}, three[4] = {-1.0, 3.0, -3.0, 1.0};
    for (size_t i = 0; i < 4; i++) {
        d[1][i] = one[i] * h;
        d[2][i] = two[i] * h * h / 2.0;
        d[3][i] = three[i] * h * h * h / 6.0;
    }
    return first;
}

/* Width of a row of R, in bins, from the sums of its elements and of their squares: 2 sqrt(pi) sigma of a Gaussian. */
SPX_HD double spx_resolution_width(double sum, double square)
{
    return square > 0 ? sum * sum / square : 0;
}

#endif
