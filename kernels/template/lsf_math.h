/* Provides the weights of the samples of a spectrum in one output pixel behind a Gaussian line-spread function, for
 * host and device.
 *
 * Pixel l1 ... l2 and an LSF of sigma s see the spectrum through P(x) = [Phi((l2-x)/s) - Phi((l1-x)/s)] / (l2-l1), Phi
 * the normal distribution. With F'' = Phi, F'(y) = s (t Phi(t) + phi(t)), F(y) = s^2/2 ((t^2+1) Phi(t) + t phi(t)), t =
 * y/s, and B(x) = [F(l2-x) - F(l1-x)] / (l2-l1), so that B'' = P, the weight of sample j, integral of P times its hat
 * function, is (B_(j+1) - B_j)/(x_(j+1) - x_j) - (B_j - B_(j-1))/(x_j - x_(j-1)), and at the two ends, with half a hat,
 * B' takes the place of the missing difference.
 *
 * Straight lines between samples h apart widen lines by a variance of h^2/6: between two samples they are off by (x-a)
 * (b-x) S''/2. So hats are drawn through S_j - h^2/12 S''_j instead, quasi-interpolation, whose error is of the fourth
 * order in h (de Boor 1978, A Practical Guide to Splines, ch. XII); S'' by divided differences. */
#ifndef SPX_LSF_MATH_H
#define SPX_LSF_MATH_H

#include <math.h>
#include <stddef.h>

#include "hostdevice.h"

/* F and F' at y; sigma >= 0. */
SPX_HD void spx_lsf_antiderivatives(double y, double sigma, double *f, double *df)
{
    double t = sigma > 0 ? y / sigma : (y > 0 ? INFINITY : -INFINITY);
    if (fabs(t) > 30) { /* Phi is 0 or 1 to all digits; t^2 must not overflow */
        *df = t > 0 ? y : 0;
        *f = t > 0 ? 0.5 * (y * y + sigma * sigma) : 0;
        return;
    }
    double cdf = 0.5 * erfc(-t * 0.70710678118654752440), pdf = 0.39894228040143267794 * exp(-0.5 * t * t);
    *df = sigma * (t * cdf + pdf);
    *f = 0.5 * sigma * sigma * ((t * t + 1) * cdf + t * pdf);
}

/* Computes w[0 ... n-1], of sum 1, for samples at x[0 ... n-1], increasing; n >= 2: straight lines between them. */
SPX_HD void spx_lsf_linear_weights(const double *x, size_t n, double l1, double l2, double sigma, double *w)
{
    double f1, f2, d1, d2, sum = 0;
    spx_lsf_antiderivatives(l1 - x[0], sigma, &f1, &d1);
    spx_lsf_antiderivatives(l2 - x[0], sigma, &f2, &d2);
    double b = f2 - f1, slope = d1 - d2;
    for (size_t j = 0; j < n; j++) {
        double next;
        if (j + 1 < n) {
            spx_lsf_antiderivatives(l1 - x[j + 1], sigma, &f1, &d1);
            spx_lsf_antiderivatives(l2 - x[j + 1], sigma, &f2, &d2);
            next = (f2 - f1 - b) / (x[j + 1] - x[j]);
            b = f2 - f1;
        } else {
            next = d1 - d2;
        }
        w[j] = next - slope;
        sum += w[j];
        slope = next;
    }
    for (size_t j = 0; j < n; j++)
        w[j] /= sum;
}

/* S''_j of sample j, as a part of the correction: c [(S_(j+1) - S_j)/d_j - (S_j - S_(j-1))/d_(j-1)]; so that the sum
 * over hats of c S'' is that over intervals of d^3/12 S''. 0 at both ends. */
SPX_HD double spx_lsf_curvature(const double *x, size_t n, size_t j)
{
    if (j == 0 || j + 1 >= n)
        return 0;
    const double a = x[j] - x[j - 1], b = x[j + 1] - x[j];
    return (a * a * a + b * b * b) / (6 * (a + b) * (a + b));
}

/* The same of the corrected samples. The two at the ends should be beyond the LSF: they are not corrected. */
SPX_HD void spx_lsf_weights(const double *x, size_t n, double l1, double l2, double sigma, double *w)
{
    spx_lsf_linear_weights(x, n, l1, l2, sigma, w);
    double before = 0, here = 0; /* weights times curvature of samples j-1 and j */
    for (size_t j = 0; j < n; j++) {
        const double after = j + 1 < n ? w[j + 1] * spx_lsf_curvature(x, n, j + 1) : 0;
        if (j > 0)
            w[j] += (here - before) / (x[j] - x[j - 1]);
        if (j + 1 < n)
            w[j] += (here - after) / (x[j + 1] - x[j]);
        before = here;
        here = after;
    }
}

#endif
