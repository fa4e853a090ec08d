/* Rotational broadening of a spectrum that is piecewise linear on a log-lambda grid.
 *
 * The kernel of a rotating, limb-darkened disc (Gray, The Observation and Analysis of Stellar Photospheres, eq. 18.14)
 * in units of its half-width is K(x) = [ 2 (1-eps) sqrt(1-x^2) + (pi/2) eps (1-x^2) ] / [ pi (1 - eps/3) ],   |x| <= 1,
 * integral 1. A half-width of h pixels (h = vsini / (c dlnlambda)) turns the spectrum with values f_j at the pixels
 * into sum_k w_|k| f_(j+k), where w_k is the integral of K(u/h)/h against the hat function of pixel k. The hat is the
 * second difference of |u-k|/2, so w_k is the second difference of the kernel's second antiderivative; what that
 * exceeds |u|/2 by is D(u) = integral_u^h (t-u) K(t/h)/h dt = h [ M(x) - x Q(x) ],  x = u/h, Q(x) = integral_x^1 K,
 * M(x) = integral_x^1 t K, zero for u >= h, and w_k = D(k+1) - 2 D(k) + D(|k-1|), plus 1 for k = 0. The weights sum to
 * 1, and no h, however small, is a special case. dD/dh = M(x) gives their derivative; at h = 0 it is the right-hand
 * one. */
#ifndef SPX_ROTATION_MATH_H
#define SPX_ROTATION_MATH_H

#include <math.h>
#include <stddef.h>

#include "hostdevice.h"

#define SPX_ROTATION_EPS 0.6 /* linear limb darkening */

/* Weights on each side of the centre that may differ from zero: w_0 ... w_n. Never 0, so that the derivative at h = 0
 * has its place. h finite and >= 0. */
SPX_HD size_t spx_rotation_reach(double h)
{
    return h > 1 ? (size_t)ceil(h) : 1;
}

/* D(u) and its derivative by h; u >= 0, h >= 0. */
SPX_HD void spx_rotation_second(double u, double h, double eps, double *d, double *dh)
{
    const double pi = 3.14159265358979323846;
    double x = u > 0 ? (u < h ? u / h : 1) : 0;
    if (x >= 1) {
        *d = *dh = 0;
        return;
    }
    double y = (1 - x) * (1 + x), r = sqrt(y), norm = pi * (1 - eps / 3);
    double q = ((1 - eps) * (acos(x) - x * r) + 0.5 * pi * eps * (1 - x) * (1 - x) * (2 + x) / 3) / norm;
    double m = (2 * (1 - eps) * y * r / 3 + 0.125 * pi * eps * y * y) / norm;
    *d = h * (m - x * q);
    *dh = m;
}

/* w_k, and in *dw its derivative by h; k = 0, 1, 2, ... */
SPX_HD double spx_rotation_weight(size_t k, double h, double eps, double *dw)
{
    double u = (double)k, d0, d1, d2, h0, h1, h2;
    spx_rotation_second(fabs(u - 1), h, eps, &d0, &h0);
    spx_rotation_second(u, h, eps, &d1, &h1);
    spx_rotation_second(u + 1, h, eps, &d2, &h2);
    *dw = (h0 - h1) + (h2 - h1);
    return ((d0 - d1) + (d2 - d1)) + (k == 0 ? 1 : 0);
}

/* Pixel j of the broadened spectrum f[n]; w[0..reach]. Beyond its ends the spectrum is constant. */
SPX_HD double spx_rotation_pixel(const double *f, size_t n, size_t j, const double *w, size_t reach)
{
    double s = w[0] * f[j];
    for (size_t k = 1; k <= reach; k++)
        s += w[k] * (f[j >= k ? j - k : 0] + f[n - 1 - j >= k ? j + k : n - 1]);
    return s;
}

#endif
