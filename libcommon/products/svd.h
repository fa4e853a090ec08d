/* Provides the singular value decomposition of a matrix (specpipe-schema(5): /svd). */
#ifndef SPX_BLOCK_SVD_H
#define SPX_BLOCK_SVD_H

#include <stddef.h>

/* B = U diag(s) V, B = diag(sqrt(row_weight)) (A - mean) diag(sqrt(column_weight)), truncated to nmode modes. */
typedef struct {
    size_t nrow, ncol, nmode;
    double *u;      /* [nrow * nmode]: left singular vectors in columns */
    double *s;      /* [nmode], decreasing */
    double *v;      /* [nmode * ncol]: right singular vectors in rows; the element of largest magnitude is positive */
    double *energy; /* [nmode]: fraction of the sum of squares of B in this and all modes before it */
    double *mean;   /* [ncol]: mean subtracted from every row; NULL: none */
    double *row_weight, *column_weight; /* [nrow], [ncol]; NULL: all 1 */
} spx_svd;

void spx_svd_free(spx_svd *d);

#endif
