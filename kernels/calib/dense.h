/* Provides symmetric positive definite matrices of some hundred rows, on the host: the arithmetic of spx_small_factor()
 * and spx_small_solve() (calib/bordered.h), to the last bit, in an order that vectors take. LAPACK's would depend on
 * the library, and takes as long. */
#ifndef SPX_CALIB_DENSE_H
#define SPX_CALIB_DENSE_H

#include <stddef.h>

#include "calib/envelope.h"

/* Cholesky factor of a[n][n] in place: the lower triangle is used, and gets the factor L, the upper one L^T. 0 when it
 * is not positive definite, as spx_small_factor(). */
int spx_dense_factor(size_t n, double *a);

/* Solves for m right-hand sides, x[n][m] in place, by the factor. */
void spx_dense_solve(size_t n, const double *a, size_t m, double *x);

/* The same by the factor of an envelope (calib/envelope.h), m a multiple of SPX_ENVELOPE_SIDES; rows of x are `stride`
 * apart, m at least. */
enum { SPX_ENVELOPE_SIDES = 8 };
void spx_envelope_solve_many(const spx_envelope *v, const double *a, size_t m, size_t stride, double *x);

/* x . y of n elements: eight sums, of every eighth product each, so that it is the same on every processor. */
double spx_dot(size_t n, const double *x, const double *y);

#endif
