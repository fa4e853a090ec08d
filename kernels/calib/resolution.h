/* Provides products with resolution matrices, in the layout of frames: r[b*n + j] = R(j - off_b, j), off_b = ndiag/2 -
 * b, b = 0 ... ndiag-1 (products/spectra.h). Elements whose row lies outside of 0 ... n-1 are never used, whatever they
 * are.
 *
 * All loops run along diagonals, which is where vectors are. Sums have a fixed order: threads share out bins, never
 * terms of a sum. One fibre: r[ndiag][n]; all fibres: resolution[nspec][ndiag][n]. */
#ifndef SPX_CALIB_RESOLUTION_H
#define SPX_CALIB_RESOLUTION_H

#include <stddef.h>
#include <stdint.h>

/* y = R x, and y = R^T x; [n] each, y is not x. */
void spx_resolution_apply(size_t n, size_t ndiag, const double *r, const double *x, double *y);
void spx_resolution_apply_transposed(size_t n, size_t ndiag, const double *r, const double *x, double *y);

/* y = R 1: what a flat spectrum becomes; 1 but for ends and rounding of the file. */
void spx_resolution_row_sums(size_t n, size_t ndiag, const double *r, double *y);

/* Widths of the rows of R in bins, of spx_resolution_width(): width[n]; square[n]: scratch. */
void spx_resolution_widths(size_t n, size_t ndiag, const double *r, double *square, double *width);

/* Variance of row i of R about its mean, bins^2; i at least ndiag/2 from the ends. Not finite without light. */
double spx_resolution_variance_of_row(size_t n, size_t ndiag, const double *r, size_t i);

/* Variance of R s, diag(R C R^T): v[n]. c: the band of the covariance C of s, [ndiag][n], by diagonals (calib/band.h),
 * which is all of C that is needed. */
void spx_resolution_variance(size_t n, size_t ndiag, const double *r, const double *c, double *v);

/* Derivative of x[n] along the bins, steps of dw: spx_derivative() of all; y is not x. */
void spx_derivative_row(size_t n, double dw, const double *x, double *y);

/* Normal equations of the common spectrum s of nspec fibres, d_i = R_i s: a = sum_i R_i^T diag(w_i) R_i, [ndiag][n] by
 * diagonals (half-bandwidth ndiag - 1), and y = sum_i R_i^T (w_i d_i), [n]. w, d: [nspec][n]; weights are >= 0, and d
 * is not looked at where they are 0. use[nspec]: 0 leaves a fibre out; NULL: all are in. d and y may be NULL. Fibres
 * are added in order, so that the result does not depend on nthreads. */
void spx_resolution_normal(size_t nspec, size_t n, size_t ndiag, const double *resolution, const double *w,
                           const double *d, const uint8_t *use, int nthreads, double *a, double *y);

#endif
