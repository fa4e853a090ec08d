/* Arithmetic of flux calibration for host and device (flux/flux.h). */
#ifndef SPX_FLUX_MATH_H
#define SPX_FLUX_MATH_H

#include <math.h>
#include <stddef.h>

#include "hostdevice.h"

/* Significance of a response that is divided by. */
#define SPX_FLUX_SIGNIFICANCE 3.0

/* Sum of row k of r[ndiag][n]. */
SPX_HD double spx_flux_row_sum(size_t n, size_t ndiag, const double *r, size_t k)
{
    const size_t h = ndiag / 2;
    double sum = 0;
    for (size_t b = 0; b < ndiag; b++) { /* column k + h - b */
        const size_t j = k + h;
        if (j >= b && j - b < n)
            sum += r[b * n + j - b];
    }
    return sum;
}

/* Scale of row i of the 2 (ndiag/2) rows that the ends cut: rows 0, 1, ... and then n-ndiag/2, ... A row that has lost
 * most of its light is left as it is. */
SPX_HD double spx_flux_end_scale(size_t n, size_t ndiag, const double *r, size_t i)
{
    const size_t h = ndiag / 2, k = i < h ? i : n - 2 * h + i, whole = i < h ? h : n - 1 - h;
    const double sum = spx_flux_row_sum(n, ndiag, r, k), full = spx_flux_row_sum(n, ndiag, r, whole);
    return sum > 0.2 * full && full > 0 && full / sum < INFINITY ? full / sum : 1;
}

/* Calibrates a bin with the response ci of variance v, which a further relative variance is added to; 0: there is no
 * response, and flux and ivar become 0. Numbers that no detector makes do not become infinite. */
SPX_HD int spx_flux_bin(double ci, double v, double more, int stars, double *flux, double *ivar)
{
    const double relative = v / (ci * ci) + more, f = *flux / ci;
    if (!(stars > 0 && ci > 0 && relative * SPX_FLUX_SIGNIFICANCE * SPX_FLUX_SIGNIFICANCE < 1 && 1 / ci < INFINITY)) {
        *flux = *ivar = 0;
        return 0;
    }
    const double variance = 1 / (*ivar * ci * ci) + f * f * relative;
    const int good = f > -INFINITY && f < INFINITY;
    *flux = good ? f : 0;
    *ivar = good && *ivar > 0 && variance > 0 && variance < INFINITY && 1 / variance < INFINITY ? 1 / variance : 0;
    return 1;
}

/* Element of R' = diag(C_i)^-1 R diag(C). */
SPX_HD double spx_flux_element(double r, double c, double ci)
{
    const double x = r * (c / ci);
    return x > -INFINITY && x < INFINITY ? x : 0;
}

#endif
