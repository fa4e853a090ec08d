/* Provides the arithmetic of the search for cosmic-ray hits, and of the variance of a model, for host and device. */
#ifndef SPX_EXTRACT_TRACE_REJECT_MATH_H
#define SPX_EXTRACT_TRACE_REJECT_MATH_H

#include <math.h>

#include "hostdevice.h"

/* Errors of the PSF that are allowed for: a fraction of the light in a pixel, and of the place of a spot, pixels. */
#define SPX_REJECT_SHAPE 0.02
#define SPX_REJECT_SHIFT 0.05

/* A pixel is rejected when its excess is this part of the largest within 5 x 5 at least. */
#define SPX_REJECT_WORST 0.25
/* An excess above STRONG is a hit for certain: pixels beside it go from NEAR on, and stay out from BACK_NEAR on. Others
 * come back below BACK times the threshold. */
#define SPX_REJECT_STRONG    10.0
#define SPX_REJECT_NEAR      3.0
#define SPX_REJECT_BACK_NEAR 2.0
#define SPX_REJECT_BACK      0.8

/* Part of a pixel's noise that is left in its residual at least: a residual that is next to nothing says nothing. */
#define SPX_REJECT_LEAST_FREE 0.1

/* Read noise below which a pixel has none, electrons: its variance could be 0. */
#define SPX_LEAST_READNOISE 1e-3

/* Variance of a pixel, electrons^2, of which a model is known: read noise and photons. */
SPX_HD double spx_model_variance(double readnoise, double model)
{
    return readnoise * readnoise + (model > 0.0 ? model : 0.0);
}

/* (p - m) / sqrt(variance + (0.02 m)^2 + (0.05 |grad m|)^2), from the model in a pixel and in its four neighbours. */
SPX_HD double spx_reject_excess(double value, double variance, double m, double left, double right, double below,
                                double above)
{
    const double gx = 0.5 * SPX_REJECT_SHIFT * (right - left), gy = 0.5 * SPX_REJECT_SHIFT * (above - below);
    const double shape = SPX_REJECT_SHAPE * m;
    return (value - m) / sqrt(variance + shape * shape + gx * gx + gy * gy);
}

/* Excess of a pixel that noise reaches as seldom as that of a Gaussian reaches `sigma`: photons are skewed, with a
 * third moment of m (Cornish & Fisher 1938, Rev. Inst. Int. Stat. 5, 307). */
SPX_HD double spx_reject_threshold(double sigma, double variance, double m)
{
    const double skewness = m > 0.0 ? m / (variance * sqrt(variance)) : 0.0;
    return sigma > 1.0 ? sigma + skewness * (sigma * sigma - 1.0) / 6.0 : sigma;
}

#endif
