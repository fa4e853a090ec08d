/* Provides Legendre series of functions: Gauss's abscissae, projection, values. On the host; kernels have the same
 * recurrence for devices, too (psf/psf_math.h). */
#ifndef SPX_NUM_LEGENDRE_H
#define SPX_NUM_LEGENDRE_H

#include <stddef.h>

/* Gauss-Legendre abscissae x[n] and weights w[n] on [-1, 1], n to 64, falling, by Newton's method on P_n. */
void spx_gauss_legendre(size_t n, double *x, double *w);

/* Adds the projection of f on P_0 ... P_(m-1), c_k += (2k+1)/2 sum_j w_j f_j P_k(x_j), to c[m], m to 64: the series of
 * a polynomial of less than 2n - m terms, exactly. */
void spx_legendre_project(size_t n, const double *x, const double *w, const double *f, size_t m, double *c);

/* sum_k c[k] P_k(u), k < n. */
double spx_legendre_value(size_t n, const double *c, double u);

#endif
