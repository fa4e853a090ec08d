/* Provides the arithmetic of the fibre flat field on one bin and one fibre, for host and device (flat/flat.h). */
#ifndef SPX_FLAT_MATH_H
#define SPX_FLAT_MATH_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "calib/band.h"
#include "hostdevice.h"

/* State of a bin of an exposure. */
enum { SPX_FLAT_USABLE = 1, SPX_FLAT_REJECTED = 2 };

/* Sums of the four splines of an interval: 10 products, by rows of the upper triangle, and 4 of the right-hand side. */
enum { SPX_FLAT_SUMS = 14 };

/* Significance from which a single bin has its own throughput ({native}): in 1e4 bins without one, 0.6 have it. */
#define SPX_FLAT_NATIVE 4.0

SPX_HD uint8_t spx_flat_state(double flux, double ivar, uint32_t mask)
{
    return mask == 0 && ivar > 0 && ivar < INFINITY && fabs(flux) < INFINITY ? SPX_FLAT_USABLE : 0;
}

/* Bins of a block, for which the start has one level. */
enum { SPX_FLAT_BLOCK = 64 };

/* F at bin k before the first pass: levels of the blocks, level[nblock], at their centres and straight in between. */
SPX_HD double spx_flat_start(size_t nblock, const double *level, size_t k)
{
    const double at = ((double)k + 0.5) / SPX_FLAT_BLOCK - 0.5;
    if (at <= 0)
        return level[0];
    const size_t b = (size_t)at;
    return b + 1 >= nblock ? level[nblock - 1] : level[b] + (at - (double)b) * (level[b + 1] - level[b]);
}

/* State before the first pass: a hit may stand out by as much as it likes, and would draw the lamp's spectrum after
 * it, so that what is beyond `reject` errors and a fifth of start is out until the first test. A start that is not
 * above 0 is not known. */
SPX_HD uint8_t spx_flat_first_state(double flux, double ivar, uint32_t mask, double start, double reject)
{
    const double r = fabs(flux - start) - 0.2 * fabs(start);
    if (spx_flat_state(flux, ivar, mask) == 0)
        return 0;
    return start > 0 && r > 0 && r * r * ivar > reject * reject ? SPX_FLAT_USABLE | SPX_FLAT_REJECTED : SPX_FLAT_USABLE;
}

/* Adds a bin with weight p = sum w x^2 and right-hand side q = sum w x D, x = R m. */
SPX_HD void spx_flat_add(const double b[4], double p, double q, double sum[SPX_FLAT_SUMS])
{
    int at = 0;
    for (int i = 0; i < 4; i++)
        for (int j = i; j < 4; j++)
            sum[at++] += p * b[i] * b[j];
    for (int i = 0; i < 4; i++)
        sum[at++] += q * b[i];
}

/* Normal equations of nspline splines from the sums of their intervals, sum[nspline-3][SPX_FLAT_SUMS]: band[4][nspline]
 * by diagonals, rhs[nspline]. 1e-7 of the largest weight holds second differences of the coefficients down, so that F
 * goes on smoothly where a fibre has no bins; where it has, this is 1e-7 of its error. 0: there is no light. */
SPX_HD int spx_flat_assemble(size_t nspline, const double *sum, double *band, double *rhs)
{
    double most = 0;
    for (size_t i = 0; i < 4 * nspline; i++)
        band[i] = 0;
    for (size_t i = 0; i < nspline; i++)
        rhs[i] = 0;
    for (size_t t = 0; t + 3 < nspline; t++) {
        const double *s = sum + t * SPX_FLAT_SUMS;
        int at = 0;
        for (size_t i = 0; i < 4; i++)
            for (size_t j = i; j < 4; j++)
                band[(j - i) * nspline + t + i] += s[at++];
        for (size_t i = 0; i < 4; i++)
            rhs[t + i] += s[at++];
    }
    for (size_t i = 0; i < nspline; i++)
        most = band[i] > most ? band[i] : most;
    const double hold = 1e-7 * most;
    for (size_t i = 0; i + 2 < nspline; i++) {
        band[i] += hold;
        band[i + 1] += 4 * hold;
        band[i + 2] += hold;
        band[nspline + i] -= 2 * hold;
        band[nspline + i + 1] -= 2 * hold;
        band[2 * nspline + i] += hold;
    }
    return most > 0;
}

/* B a at one bin; a: the first of its four coefficients. */
SPX_HD double spx_flat_value(const double b[4], const double *a)
{
    return b[0] * a[0] + b[1] * a[1] + b[2] * a[2] + b[3] * a[3];
}

/* diag(B C B^T) at one bin of splines first ... first+3; inverse: band of C, [4][nspline]. */
SPX_HD double spx_flat_variance(size_t nspline, const double *inverse, size_t first, const double b[4])
{
    double sum = 0;
    for (size_t i = 0; i < 4; i++) {
        sum += b[i] * b[i] * inverse[first + i];
        for (size_t j = i + 1; j < 4; j++)
            sum += 2 * b[i] * b[j] * inverse[(j - i) * nspline + first + i];
    }
    return sum > 0 ? sum : 0;
}

/* Does a bin have its own throughput? t = sum w f D and s = sum w f^2 over its n usable exposures, f = F R m: the
 * factor is t/s, 1/sqrt(s) its error. That no exposure contradicts it is the caller's to see. */
SPX_HD int spx_flat_is_native(size_t n, double t, double s)
{
    return n > 1 && s > 0 && t > 0 && (t / s - 1) * (t / s - 1) * s > SPX_FLAT_NATIVE * SPX_FLAT_NATIVE;
}

#endif
