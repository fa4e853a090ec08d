/* Provides rotational broadening of a spectrum sampled on a log-lambda grid, for host and device.
 *
 * The kernel of a rotating, limb-darkened disc (Gray, The Observation and Analysis of Stellar Photospheres, eq. 18.14)
 * in units of its half-width is K(x) = [ 2 (1-eps) sqrt(1-x^2) + (pi/2) eps (1-x^2) ] / [ pi (1 - eps/3) ],   |x| <= 1,
 * integral 1. A half-width of h pixels (h = vsini / (c dlnlambda)) turns the spectrum with values f_j at the pixels
 * into sum_k w_|k| f_(j+k), where w_k is the integral of K(u/h)/h against a kernel C of pixel k that interpolates: the
 * weights sum to 1, and no h, however small, is a special case. With the hat function (linear interpolation, as
 * rvspecfit has it) the variance of the weights exceeds that of K by up to 1/6 of a pixel squared, and slow rotators
 * come out slower than they are (20 km/s as 12, with pixels of 0.4 Angstrom at 6000). So C is the cubic convolution of
 * Keys (1981, IEEE Trans. ASSP 29, 1153), which interpolates parabolas exactly: the variance of the weights is that of
 * K, h^2 SPX_ROTATION_VARIANCE.
 *
 * C is piecewise cubic with slopes that are continuous, so it is a sum of cubes and squares of (u - j)+, j = -2 ... 2,
 * by the jumps of its third and second derivative, and w_k = sum_j jump3_j T_3(k+j) + jump2_j T_2(k+j) with T_n(u) =
 * integral_u^h (t-u)^n/n! K(t/h)/h dt. The derivative is by h^2: by h it is zero for a star at rest.
 *
 * Fourth moments: Keys' C lacks t^2 (1-t)^2 and more of x^4 between pixels, in the mean 24/80, so that the weights
 * damp a frequency of theta a pixel by theta^4/80: stars of 14 km/s come out slower by 0.1 km/s with pixels of 0.25
 * Angstrom and lines of 1.6. (1 + c D) is applied to them, D the fourth difference, whose response is theta^4. c is
 * h^2/24 for h -> 0, where only the two pixels beside the centre count (x^4 there is 5 x^2 - 6 |x|^3 + x^4 too small),
 * and 1/80 for wide kernels; c = (1 - exp(-10/3 h^2))/80 is within a sixth of the exact value between, and smooth.
 */
#ifndef SPX_ROTATION_MATH_H
#define SPX_ROTATION_MATH_H

#include <math.h>
#include <stddef.h>

#include "hostdevice.h"

#define SPX_ROTATION_EPS 0.6 /* linear limb darkening */
/* Variance of K. */
#define SPX_ROTATION_VARIANCE ((0.25 * (1 - SPX_ROTATION_EPS) + SPX_ROTATION_EPS * 2 / 15) / (1 - SPX_ROTATION_EPS / 3))

/* Weights on each side of the centre that may differ from zero: w_0 ... w_n. Never 0, so that the derivative at h = 0
 * has its place. h finite and >= 0. */
SPX_HD size_t spx_rotation_reach(double h)
{
    return (h > 1 ? (size_t)ceil(h) : 1) + 3;
}

/* T_2(u) and T_3(u) in t[2], and their derivatives by h^2 in dt[2]; h >= 0. */
SPX_HD void spx_rotation_tails(double u, double h, double t[2], double dt[2])
{
    const double pi = 3.14159265358979323846, eps = SPX_ROTATION_EPS, norm = pi * (1 - eps / 3);
    double a = fabs(u), x = a < h ? a / h : (a > 0 ? 1 : 0);
    t[0] = t[1] = dt[0] = dt[1] = 0;
    if (x < 1) { /* moments of K over x ... 1 */
        double y = (1 - x) * (1 + x), r = sqrt(y), angle = acos(x), x3 = x * x * x;
        double m0 = ((1 - eps) * (angle - x * r) + 0.5 * pi * eps * (1 - x) * (1 - x) * (2 + x) / 3) / norm;
        double m1 = (2 * (1 - eps) * y * r / 3 + 0.125 * pi * eps * y * y) / norm;
        double m2 = (0.25 * (1 - eps) * (angle + x * r * (1 - 2 * x * x)) +
                     0.5 * pi * eps * ((1 - x3) / 3 - (1 - x3 * x * x) / 5)) /
                    norm;
        double m3 = (2 * (1 - eps) * y * r * (1. / 3 - y / 5) + 0.5 * pi * eps * y * y * (0.25 - y / 6)) / norm;
        double t1 = m1 - x * m0, t2 = 0.5 * (m2 - x * (2 * m1 - x * m0));
        double t3 = (m3 - x * (3 * m2 - x * (3 * m1 - x * m0))) / 6;
        t[0] = h * h * t2;
        t[1] = h * h * h * t3;
        dt[0] = 0.5 * (2 * t2 + x * t1);
        dt[1] = 0.5 * h * (3 * t3 + x * t2);
    }
    if (u < 0) { /* K is even: the total moment minus that beyond -u */
        t[0] = 0.5 * (h * h * SPX_ROTATION_VARIANCE + u * u) - t[0];
        t[1] = a * (u * u + 3 * h * h * SPX_ROTATION_VARIANCE) / 6 + t[1];
        dt[0] = 0.5 * SPX_ROTATION_VARIANCE - dt[0];
        dt[1] = 0.5 * a * SPX_ROTATION_VARIANCE + dt[1];
    }
}

enum { SPX_ROTATION_NEAR = 4, SPX_ROTATION_TAILS = 2 * SPX_ROTATION_NEAR + 1 }; /* pixels that a weight depends on */

/* w_k, and in *dw its derivative by h^2, of the tails of pixels k - SPX_ROTATION_NEAR on. */
SPX_HD double spx_rotation_sum(double h, const double t[SPX_ROTATION_TAILS][2], const double dt[SPX_ROTATION_TAILS][2],
                               double *dw)
{
    const double jump2[SPX_ROTATION_TAILS] = {0, 0, -1, 2, 0, -2, 1, 0, 0},
                 jump3[SPX_ROTATION_TAILS] = {0, 0, 3, -12, 18, -12, 3, 0, 0};
    /* fourth differences of the two */
    const double high2[SPX_ROTATION_TAILS] = {-1, 6, -14, 14, 0, -14, 14, -6, 1},
                 high3[SPX_ROTATION_TAILS] = {3, -24, 84, -168, 210, -168, 84, -24, 3};
    const double fade = exp(-10 * h * h / 3), c = (1 - fade) / 80, dc = fade / 24;
    double w = 0;
    *dw = 0;
    for (int j = 0; j < SPX_ROTATION_TAILS; j++) {
        w += (jump2[j] + c * high2[j]) * t[j][0] + (jump3[j] + c * high3[j]) * t[j][1];
        *dw += (jump2[j] + c * high2[j]) * dt[j][0] + (jump3[j] + c * high3[j]) * dt[j][1] +
               dc * (high2[j] * t[j][0] + high3[j] * t[j][1]);
    }
    return w;
}

/* w_k, and in *dw its derivative by h^2; k = 0, 1, 2, ... */
SPX_HD double spx_rotation_weight(size_t k, double h, double *dw)
{
    double t[SPX_ROTATION_TAILS][2], dt[SPX_ROTATION_TAILS][2];
    for (int j = 0; j < SPX_ROTATION_TAILS; j++)
        spx_rotation_tails((double)k + j - SPX_ROTATION_NEAR, h, t[j], dt[j]);
    return spx_rotation_sum(h, t, dt, dw);
}

/* All of them, w[reach+1] and dw[reach+1], the same numbers: neighbours share tails. */
SPX_HD void spx_rotation_weights(double h, size_t reach, double *w, double *dw)
{
    double t[SPX_ROTATION_TAILS][2], dt[SPX_ROTATION_TAILS][2];
    for (int j = 0; j < SPX_ROTATION_TAILS; j++)
        spx_rotation_tails(j - SPX_ROTATION_NEAR, h, t[j], dt[j]);
    for (size_t k = 0; k <= reach; k++) {
        w[k] = spx_rotation_sum(h, t, dt, &dw[k]);
        for (int j = 0; j + 1 < SPX_ROTATION_TAILS; j++)
            for (int q = 0; q < 2; q++) {
                t[j][q] = t[j + 1][q];
                dt[j][q] = dt[j + 1][q];
            }
        spx_rotation_tails((double)k + 1 + SPX_ROTATION_NEAR, h, t[SPX_ROTATION_TAILS - 1], dt[SPX_ROTATION_TAILS - 1]);
    }
}

/* The second antiderivative of K exceeds |u|/2 by D(u) = integral_u^h (t-u) K(t/h)/h dt; this is D and its derivative
 * by h; u >= 0, h >= 0. */
SPX_HD void spx_rotation_second(double u, double h, double *d, double *dh)
{
    const double pi = 3.14159265358979323846, eps = SPX_ROTATION_EPS;
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

/* Weights by linear interpolation, second differences of D, as in rvspecfit; in *dw the derivative by h (at h = 0 the
 * right-hand one). */
SPX_HD double spx_rotation_linear_weight(size_t k, double h, double *dw)
{
    double u = (double)k, d0, d1, d2, h0, h1, h2;
    spx_rotation_second(fabs(u - 1), h, &d0, &h0);
    spx_rotation_second(u, h, &d1, &h1);
    spx_rotation_second(u + 1, h, &d2, &h2);
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
