/* Provides Legendre series of functions (num/legendre.h). */
#include "num/legendre.h"

#include <math.h>

/* P_0(u) ... P_(n-1)(u), by (k+1) P_(k+1) = (2k+1) u P_k - k P_(k-1). */
static void polynomials(size_t n, double u, double *p)
{
    double below = 0.0, here = 1.0;
    for (size_t k = 0; k < n; k++) {
        p[k] = here;
        const double above = ((double)(2 * k + 1) * u * here - (double)k * below) / (double)(k + 1);
        below = here;
        here = above;
    }
}

void spx_gauss_legendre(size_t n, double *x, double *w)
{
    double p[65];
    for (size_t j = 0; j < n; j++) {
        double at = cos(3.14159265358979323846 * ((double)j + 0.75) / ((double)n + 0.5)), slope = 1.0;
        for (int k = 0; k < 20; k++) {
            polynomials(n + 1, at, p);
            slope = (double)n * (p[n - 1] - at * p[n]) / (1.0 - at * at);
            at -= p[n] / slope;
        }
        x[j] = at;
        w[j] = 2.0 / ((1.0 - at * at) * slope * slope);
    }
}

void spx_legendre_project(size_t n, const double *x, const double *w, const double *f, size_t m, double *c)
{
    double p[64];
    for (size_t j = 0; j < n; j++) {
        polynomials(m, x[j], p);
        for (size_t k = 0; k < m; k++)
            c[k] += 0.5 * (double)(2 * k + 1) * w[j] * f[j] * p[k];
    }
}

double spx_legendre_value(size_t n, const double *c, double u)
{
    double p[64], sum = 0;
    polynomials(n, u, p);
    for (size_t k = 0; k < n; k++)
        sum += c[k] * p[k];
    return sum;
}
