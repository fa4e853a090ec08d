/* Poles of the rational approximation of the square root that the whole-trace extraction uses.
 *
 * For a symmetric positive definite matrix A with eigenvalues in [a, b] (Hale, Higham & Trefethen 2008, SIAM J. Numer.
 * Anal. 46, 2505, method 3):
 *     A^(1/2) ~ sum_j weight_j (I - shift_j (A + shift_j I)^-1),   j = 1..n,
 *     k^2 = a/b, K' = K(1 - k^2) the complete elliptic integral (of the parameter), t_j = (j - 1/2) K'/n,
 *     sn, cn, dn the Jacobi functions of t_j for the parameter 1 - k^2,
 *     shift_j = a (sn/cn)^2,   weight_j = 2 K' sqrt(a)/(pi n) dn/cn^2.
 * All shifts are positive, so every A + shift_j I is better conditioned than A. */
#ifndef SPX_EXTRACT_TRACE_MATH_H
#define SPX_EXTRACT_TRACE_MATH_H

#include <math.h>

#include "hostdevice.h"

/* More poles than any matrix needs that double precision can factorise. */
#define SPX_MAX_POLES 64

/* Steps of the arithmetic-geometric mean: it converges quadratically, so this is never reached. */
#define SPX_AGM_STEPS 16

/* Shifts and weights of n poles for eigenvalues in [a, b], 0 < a <= b, n <= SPX_MAX_POLES.
 * Elliptic functions: arithmetic-geometric mean and descending phases (Abramowitz & Stegun 16.4, 17.6). Beyond the
 * middle they come from sn(K'-t)/cn(K'-t) = cn/(k sn), dn(K'-t) = k/dn, cn(K'-t) = k sn/dn, without cancellation. */
SPX_HD void spx_sqrt_poles(double a, double b, int n, double *shift, double *weight)
{
    const double pi = 3.14159265358979323846;
    double k = sqrt(a / b);
    k = k < 1.0 ? k : 1.0;
    /* mean[i], gap[i]: a_i and c_i = (a_{i-1} - b_{i-1})/2 of the arithmetic-geometric mean of 1 and k */
    double mean[SPX_AGM_STEPS + 1], gap[SPX_AGM_STEPS + 1], low = k;
    int last = 0;
    mean[0] = 1.0;
    gap[0] = 0.0;
    while (last < SPX_AGM_STEPS) {
        double up = 0.5 * (mean[last] + low), diff = 0.5 * (mean[last] - low);
        low = sqrt(mean[last] * low);
        last++;
        mean[last] = up;
        gap[last] = diff;
        if (fabs(diff) < 1e-17 * up)
            break;
    }
    double quarter = pi / (2.0 * mean[last]);
    double unit = 2.0 * quarter * sqrt(a) / (pi * n);
    for (int j = 0; j < n; j++) {
        int mirrored = 2 * j + 1 > n;
        double t = (mirrored ? n - j - 0.5 : j + 0.5) * quarter / n;
        double phase = ldexp(mean[last] * t, last), above = phase;
        for (int i = last; i > 0; i--) {
            above = phase;
            phase = 0.5 * (phase + asin(gap[i] / mean[i] * sin(phase)));
        }
        double sn = sin(phase), cn = cos(phase), dn = last > 0 ? cn / cos(above - phase) : 1.0;
        if (mirrored) {
            double cm = k * sn / dn;
            sn = cn / dn; /* sn(K'-t) = cn/dn */
            dn = k / dn;
            cn = cm;
        }
        shift[j] = a * (sn / cn) * (sn / cn);
        weight[j] = unit * dn / (cn * cn);
    }
}

/* Largest relative error of the approximation to sqrt(v) over v in [a, b], looked at on a logarithmic grid. */
SPX_HD double spx_sqrt_error(double a, double b, int n, const double *shift, const double *weight)
{
    const int samples = 96;
    double step = log(b / a) / (samples - 1), worst = 0.0;
    for (int i = 0; i < samples; i++) {
        double v = a * exp(step * i), sum = 0.0;
        for (int j = 0; j < n; j++)
            sum += weight[j] * (v / (v + shift[j]));
        double error = fabs(sum / sqrt(v) - 1.0);
        worst = error > worst ? error : worst;
    }
    return worst;
}

/* Smallest number of poles whose error is below `tolerance` (at most SPX_MAX_POLES), with their shifts and weights.
 * The error falls as exp(-2 pi^2 n / (log(b/a) + 6)): the search starts a little below that. */
SPX_HD int spx_sqrt_choose(double a, double b, double tolerance, double *shift, double *weight)
{
    int n = (int)(0.7 * log(1.0 / tolerance) * (log(b / a) + 6.0) / 19.7392);
    n = n < 1 ? 1 : n;
    for (; n < SPX_MAX_POLES; n++) {
        spx_sqrt_poles(a, b, n, shift, weight);
        if (spx_sqrt_error(a, b, n, shift, weight) <= tolerance)
            return n;
    }
    spx_sqrt_poles(a, b, n, shift, weight);
    return n;
}

#endif
