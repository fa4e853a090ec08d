/* Provides the points of a pattern search around a minimum: steps both ways along each direction in which the quadratic
 * form of the curvature is diagonal, of one error, a quarter and a sixteenth of it. */
#include <math.h>
#include <string.h>

#include "rvfit/search/search.h"

int spx_rv_pattern_axes(const spx_rv_ctx *c, const spx_rv_value *at, double *chol)
{
    size_t nf = c->nfree;
    for (size_t i = 0; i < nf; i++)
        for (size_t j = 0; j <= i; j++)
            chol[spx_rv_packed(i, j)] = 0.5 * at->hess[i * nf + j] * (i == j ? 1 + 1e-9 : 1);
    return spx_rv_cholesky(nf, chol, 1e-14);
}

int spx_rv_pattern_point(const spx_rv_ctx *c, const double *chol, size_t i, const double *x, double *y)
{
    static const double step[] = {1, 0.25, 0.0625};
    size_t nf = c->nfree, round = i / (2 * nf), k = i / 2 % nf;
    if (round >= sizeof step / sizeof *step)
        return 0;
    double d[SPX_MAX_FIT] = {0};
    d[k] = i % 2 ? step[round] : -step[round];
    spx_rv_backward(nf, chol, d);
    memcpy(y, x, SPX_MAX_FIT * sizeof *y);
    for (size_t j = 0; j < nf; j++) {
        size_t q = c->freeq[j];
        y[q] = fmax(c->lo[q], fmin(c->hi[q], x[q] + d[j]));
    }
    return 1;
}
