/* Provides singular value decomposition and principal components.
 *
 * ECONOMIC is LAPACK's divide and conquer (dgesdd) on the CPU: all min(nrow, ncol) modes, of which the leading ones are
 * kept. RANDOMISED finds the leading modes only (Halko, Martinsson & Tropp 2011, SIAM Review 53, 217, algorithms 4.4
 * and 5.1): the range of the matrix is sampled with rank + oversample normal random vectors, sharpened by power
 * iterations, and the matrix decomposed within it. Its error is of the order of the first singular value left out,
 * times (that value over the last one kept)^(2 * power). The random numbers depend on the seed alone. */
#ifndef SPX_SVD_H
#define SPX_SVD_H

#include <stdint.h>

#include "base/err.h"
#include "products/svd.h"

typedef enum { SPX_SVD_ECONOMIC, SPX_SVD_RANDOMISED } spx_svd_method;

typedef struct {
    spx_svd_method method;
    size_t rank;                              /* number of modes; 0: all (ECONOMIC only) */
    int center;                               /* subtract the (weighted) mean row: principal components */
    const double *row_weight, *column_weight; /* [nrow], [ncol], >= 0; NULL: all 1 */
    size_t oversample, power;                 /* RANDOMISED; usual: 10, 3 */
    uint64_t seed;
} spx_svd_options;

/* Decomposes a[nrow * ncol], row-major, which is overwritten. Fills a zeroed *out (spx_svd_free()). SPX_EINPUT: the
 * matrix is empty, or so large that float64 may not hold a singular value; a weight is negative, all are 0; LAPACK does
 * not converge. */
spx_status spx_svd_cpu(double *a, size_t nrow, size_t ncol, const spx_svd_options *o, spx_svd *out, spx_err *e);

/* Checks weights of `what`, rows or columns: SPX_EINPUT when one is negative or not finite, or all are 0; NULL
 * passes. */
spx_status spx_svd_check_weights(const double *weight, size_t n, const char *what, spx_err *e);

/* a[n] -= b[n]. */
void spx_svd_subtract(double *a, const double *b, size_t n);

/* ---- shared by the backends ---- */

/* Checks input, allocates *out with nmode modes, and applies mean and weights to a[]. *total gets the sum of squares of
 * the result, divided by *scale^2 (its largest element, so that nothing overflows). */
spx_status spx_svd_begin(double *a, size_t nrow, size_t ncol, const spx_svd_options *o, spx_svd *out, double *total,
                         double *scale, spx_err *e);
/* Elements of a right singular vector that are as large as its largest within this fraction are ties for its sign: far
 * more than the methods' errors, so that rounding does not choose between the two equal peaks of an odd mode. */
#define SPX_SVD_SIGN_TIE 1e-3
/* Computes the energies of s[], and fixes the signs of the vectors: the first element of a right singular vector that
 * is as large as its largest, but for SPX_SVD_SIGN_TIE, is positive. */
void spx_svd_end(spx_svd *out, double total, double scale);
/* Element i of RANDOMISED's random vectors, standard normal. */
double spx_svd_random(uint64_t seed, size_t i);
/* Number of sample vectors: rank + oversample, at most min(nrow, ncol). */
size_t spx_svd_sample(const spx_svd_options *o, size_t nrow, size_t ncol);

#endif
