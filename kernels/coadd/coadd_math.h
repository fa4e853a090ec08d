/* Provides arithmetic of coadds that host and device share: which bins have information, scales, widths, regularisation
 * (coadd/coadd.h). */
#ifndef SPX_COADD_MATH_H
#define SPX_COADD_MATH_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "coadd/coadd.h"
#include "hostdevice.h"

/* Scales are improved, and found again, at most so often for a set of rejected bins; bins are rejected in so many
 * rounds.
 */
enum { SPX_COADD_SCALINGS = 4, SPX_COADD_ROUNDS = 2 };

/* Bins on either side with which a residual is compared before the bin is rejected: x follows a hit as far as it can,
 * and rings around it. It has to be at least half of those within SPX_COADD_AROUND, then of
 * ever less, and SPX_COADD_LEAST of those as far as SPX_COADD_REACH: what is hidden so is found in the second round. */
enum { SPX_COADD_AROUND = 2, SPX_COADD_REACH = 60 };
#define SPX_COADD_LEAST 0.01

/* Bins further off than this, in errors, count less in scales, so that a hit does not make one. */
#define SPX_COADD_CLIP 3

/* Added to the diagonal of N, in units of it and of its median; bins with less of the median have no information. */
#define SPX_COADD_RIDGE   1e-10
#define SPX_COADD_PRIOR   1e-14
#define SPX_COADD_NOTHING 1e-12

/* Relative error of the root of N: R^T diag(ivar) R is N to twice as much. */
#define SPX_COADD_ERROR 1e-9

/* Change of scales below which they are not improved further. */
#define SPX_COADD_SETTLED 1e-4

/* Weight of a bin of an exposure. */
SPX_HD double spx_coadd_weight(double flux, double ivar, uint32_t mask)
{
    return mask == 0 && ivar > 0 && ivar < INFINITY && fabs(flux) < INFINITY ? ivar : 0;
}

/* Part of the light of bin k that is from bins of the arm, which ends: the sum of its row of R, r[ndiag][n] by
 * diagonals, of rows that sum to 1. Of a spectrum that goes on as it is at bin k, D times this is (R x)(k). */
SPX_HD double spx_coadd_inside(size_t n, size_t ndiag, const double *r, size_t k)
{
    const size_t h = ndiag / 2;
    double sum = 0;
    if (r == NULL || (k + h >= ndiag - 1 && k + h < n))
        return 1;
    for (size_t b = 0; b < ndiag; b++)
        if (k + h >= b && k + h - b < n)
            sum += r[b * n + k + h - b];
    return sum > 0 && sum < 1 ? sum : 1;
}

/* Scale of an exposure from sums over its bins, dm of w D (R x) and mm of w (R x)^2; 1 where chi^2 gains too little. */
SPX_HD double spx_coadd_scale(double dm, double mm, double good)
{
    double a = mm > 0 ? dm / mm : 1;
    a = a < 0.1 ? 0.1 : a > 10 ? 10 : a;
    const double drop = (2 * a * dm - a * a * mm) - (2 * dm - mm);
    return drop > SPX_COADD_DROP * good ? a : 1;
}

/* Weight of a bin in scales: what a hit adds to sums is bounded, in D and in the R x that follows it. */
SPX_HD double spx_coadd_robust(double w, double residual)
{
    const double z2 = w * residual * residual, most = SPX_COADD_CLIP * SPX_COADD_CLIP;
    return z2 > most ? w * most / z2 : w;
}

/* 1 when residual far[k] is large enough beside those around it. */
SPX_HD int spx_coadd_stands_out(size_t n, const double *far, size_t k)
{
    double f = 0.5;
    for (size_t i = 1; i <= SPX_COADD_REACH; i++) {
        if (i > SPX_COADD_AROUND && f > SPX_COADD_LEAST)
            f *= 0.70710678118654752;
        if ((k >= i && f * fabs(far[k - i]) > fabs(far[k])) || (k + i < n && f * fabs(far[k + i]) > fabs(far[k])))
            return 0;
    }
    return 1;
}

/* Residual of a bin in units of its error, with sign; 0 where no other exposure has information. W: sum of weights. */
SPX_HD double spx_coadd_residual(double w, double W, double d, double model)
{
    const double rest = 1 - w / W; /* the other exposures' share */
    return w > 0 && rest > 1e-9 ? (d - model) * sqrt(w / rest) : 0;
}

/* Divisor of a row of Q: the sum of the elements that are kept, so that a flat spectrum stays as it is; s where that is
 * something else, as beside gaps. */
SPX_HD double spx_coadd_norm(double kept, double s)
{
    return fabs(kept - s) < 0.01 * fabs(s) ? kept : s;
}

/* 1 when residual z of one exposure counts as further off than `worst` of another one of the same bin. */
SPX_HD int spx_coadd_worse(double z, double worst)
{
    const double a = fabs(z), b = fabs(worst);
    if (fabs(a - b) <= 0.25 * (a > b ? a : b)) /* as far off: of three exposures one has 1.4 times the others */
        return z > 0 && !(worst > 0);
    return a > b;
}

#endif
