/* Provides the end of a bin when its frame is complete, flags and masks, for host and device (spx_extract_end()). */
#ifndef SPX_EXTRACT_END_MATH_H
#define SPX_EXTRACT_END_MATH_H

#include "hostdevice.h"
#include "products/spectra.h"

/* A pixmask_fraction above this is 1 to rounding: the bin has no information. */
#define SPX_ALL_BAD (1.0 - 1e-9)
/* A bin is COSMIC when pixels with this part of its spot's light were rejected. */
#define SPX_COSMIC_LOSS 0.1
/* A bin fits badly when its chi2pix is this many times both medians. */
#define SPX_BAD_FIT 5.0

SPX_HD int spx_extract_is_empty(double fraction, double ivar)
{
    return fraction > SPX_ALL_BAD || !(ivar > 0.0);
}

/* Bits of the mask that follow from this. */
SPX_HD uint32_t spx_extract_bits(double fraction, int empty)
{
    return (empty ? (uint32_t)SPX_ALLBADPIX : 0u) | (fraction > 0.5 ? (uint32_t)SPX_SOMEBADPIX : 0u);
}

/* Medians of bins with information. What fits within the errors, as in images without noise, does not fit badly. */
SPX_HD int spx_extract_fits_badly(double chi2pix, double over_fibres, double over_waves)
{
    return chi2pix > 1.0 && chi2pix > SPX_BAD_FIT * over_fibres && chi2pix > SPX_BAD_FIT * over_waves;
}

/* Electrons per bin of width dw to electrons per Angstrom. */
SPX_HD double spx_extract_flux_density(double flux, double dw)
{
    return flux / dw;
}

SPX_HD double spx_extract_ivar_density(double ivar, double dw)
{
    return ivar * (dw * dw);
}

#endif
