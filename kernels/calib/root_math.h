/* Provides the poles of the rational approximation of the matrix square root, for host and device.
 *
 * For a symmetric positive definite matrix A with eigenvalues in [a, b] (Hale, Higham & Trefethen 2008, SIAM J. Numer.
 * Anal. 46, 2505, method 3):
 *     A^(1/2) ~ sum_j weight_j (I - shift_j (A + shift_j I)^-1),   j = 1..n,
 *     k^2 = a/b, K' = K(1 - k^2) the complete elliptic integral (of the parameter), t_j = (j - 1/2) K'/n,
 *     sn, cn, dn the Jacobi functions of t_j for the parameter 1 - k^2,
 *     shift_j = a (sn/cn)^2,   weight_j = 2 K' sqrt(a)/(pi n) dn/cn^2.
 * All shifts are positive, so every A + shift_j I is better conditioned than A. */
#ifndef SPX_CALIB_ROOT_MATH_H
#define SPX_CALIB_ROOT_MATH_H

#include <math.h>

#include "hostdevice.h"

/* More poles than any matrix needs that double precision can factorise. */
#define SPX_MAX_POLES 64

/* Steps of the arithmetic-geometric mean: it converges quadratically, so this is never reached. */
#define SPX_AGM_STEPS 16

/* Arithmetic-geometric mean of 1 and k = sqrt(a/b): mean[i], gap[i] are its a_i and c_i = (a_{i-1} - b_{i-1})/2. */
typedef struct {
    double k, mean[SPX_AGM_STEPS + 1], gap[SPX_AGM_STEPS + 1];
    int last;
} spx_sqrt_mean;

SPX_HD spx_sqrt_mean spx_sqrt_mean_of(double a, double b)
{
    spx_sqrt_mean m;
    double k = sqrt(a / b), low;
    m.k = k < 1.0 ? k : 1.0;
    low = m.k;
    m.last = 0;
    m.mean[0] = 1.0;
    m.gap[0] = 0.0;
    while (m.last < SPX_AGM_STEPS) {
        double up = 0.5 * (m.mean[m.last] + low), diff = 0.5 * (m.mean[m.last] - low);
        low = sqrt(m.mean[m.last] * low);
        m.last++;
        m.mean[m.last] = up;
        m.gap[m.last] = diff;
        if (fabs(diff) < 1e-17 * up)
            break;
    }
    return m;
}

/* Shift and weight of pole j of n for eigenvalues in [a, b], 0 < a <= b; m is spx_sqrt_mean_of(a, b).
 * Elliptic functions: arithmetic-geometric mean and descending phases (Abramowitz & Stegun 16.4, 17.6). Beyond the
 * middle they come from sn(K'-t)/cn(K'-t) = cn/(k sn), dn(K'-t) = k/dn, cn(K'-t) = k sn/dn, without cancellation. */
SPX_HD void spx_sqrt_pole(const spx_sqrt_mean *m, double a, int n, int j, double *shift, double *weight)
{
    const double pi = 3.14159265358979323846;
    const int last = m->last;
    double quarter = pi / (2.0 * m->mean[last]);
    double unit = 2.0 * quarter * sqrt(a) / (pi * n);
    int mirrored = 2 * j + 1 > n;
    double t = (mirrored ? n - j - 0.5 : j + 0.5) * quarter / n;
    double phase = ldexp(m->mean[last] * t, last), above = phase;
    for (int i = last; i > 0; i--) {
        above = phase;
        phase = 0.5 * (phase + asin(m->gap[i] / m->mean[i] * sin(phase)));
    }
    double sn = sin(phase), cn = cos(phase), dn = last > 0 ? cn / cos(above - phase) : 1.0;
    if (mirrored) {
        double cm = m->k * sn / dn;
        sn = cn / dn; /* sn(K'-t) = cn/dn */
        dn = m->k / dn;
        cn = cm;
    }
    *shift = a * (sn / cn) * (sn / cn);
    *weight = unit * dn / (cn * cn);
}

/* All n <= SPX_MAX_POLES of them. */
SPX_HD void spx_sqrt_poles(double a, double b, int n, double *shift, double *weight)
{
    const spx_sqrt_mean m = spx_sqrt_mean_of(a, b);
    for (int j = 0; j < n; j++)
        spx_sqrt_pole(&m, a, n, j, &shift[j], &weight[j]);
}

/* Places of a logarithmic grid over [a, b] at which the error of the approximation is looked at. */
enum { SPX_SQRT_SAMPLES = 96 };

/* Relative error of the approximation to sqrt(v) at place i. */
SPX_HD double spx_sqrt_error_at(double a, double b, int n, const double *shift, const double *weight, int i)
{
    const double step = log(b / a) / (SPX_SQRT_SAMPLES - 1), v = a * exp(step * i);
    double sum = 0.0;
    for (int j = 0; j < n; j++)
        sum += weight[j] * (v / (v + shift[j]));
    return fabs(sum / sqrt(v) - 1.0);
}

/* The largest of these errors. */
SPX_HD double spx_sqrt_error(double a, double b, int n, const double *shift, const double *weight)
{
    double worst = 0.0;
    for (int i = 0; i < SPX_SQRT_SAMPLES; i++) {
        const double error = spx_sqrt_error_at(a, b, n, shift, weight, i);
        worst = error > worst ? error : worst;
    }
    return worst;
}

/* Number of poles that are too few, or just enough: the error falls as exp(-2 pi^2 n / (log(b/a) + 6)), and a search
 * starts a little below that. */
SPX_HD int spx_sqrt_fewest(double a, double b, double tolerance)
{
    const int n = (int)(0.7 * log(1.0 / tolerance) * (log(b / a) + 6.0) / 19.7392);
    return n < 1 ? 1 : n > SPX_MAX_POLES ? SPX_MAX_POLES : n;
}

/* Smallest number of poles whose error is below `tolerance` (at most SPX_MAX_POLES), with their shifts and weights. */
SPX_HD int spx_sqrt_choose(double a, double b, double tolerance, double *shift, double *weight)
{
    int n = spx_sqrt_fewest(a, b, tolerance);
    for (; n < SPX_MAX_POLES; n++) {
        spx_sqrt_poles(a, b, n, shift, weight);
        if (spx_sqrt_error(a, b, n, shift, weight) <= tolerance)
            return n;
    }
    spx_sqrt_poles(a, b, n, shift, weight);
    return n;
}

#endif
