/* Provides the weights of the samples of a piecewise-linear spectrum in one output pixel behind a Gaussian line-spread
 * function, for host and device.
 *
 * Pixel l1 ... l2 and an LSF of sigma s see the spectrum through P(x) = [Phi((l2-x)/s) - Phi((l1-x)/s)] / (l2-l1), Phi
 * the normal distribution. With F'' = Phi, F'(y) = s (t Phi(t) + phi(t)), F(y) = s^2/2 ((t^2+1) Phi(t) + t phi(t)), t =
 * y/s, and B(x) = [F(l2-x) - F(l1-x)] / (l2-l1), so that B'' = P, the weight of sample j, integral of P times its hat
 * function, is (B_(j+1) - B_j)/(x_(j+1) - x_j) - (B_j - B_(j-1))/(x_j - x_(j-1)), and at the two ends, with half a hat,
 * B' takes the place of the missing difference. */
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

/* Computes w[0 ... n-1], of sum 1, for samples at x[0 ... n-1], increasing; n >= 2. */
SPX_HD void spx_lsf_weights(const double *x, size_t n, double l1, double l2, double sigma, double *w)
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

#endif
