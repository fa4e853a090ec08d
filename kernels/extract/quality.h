/* Judges an extraction as a whole: are its bundles apart, is the fit of the image as good as noise allows, is its light
 * positive, and do the ends of its wavelengths have any? The rules are in products/plausible.h. */
#ifndef SPX_EXTRACT_QUALITY_H
#define SPX_EXTRACT_QUALITY_H

#include <stddef.h>

#include "base/err.h"
#include "extract/extract.h"
#include "products/spectra.h"

typedef struct {
    size_t nbin;       /* bins with ivar > 0 and mask 0: clean bins */
    double blank;      /* part of them whose flux is exactly 0 */
    double chi2;       /* median over fibres of the median of their chi2pix */
    double chi2_noise; /* the same against the noise of the pixels alone, without the error of the PSF model */
    double negative;   /* sum of squares of the signal-to-noise ratios of negative bins over that of positive ones; 0
                        * where   the difference is no more than noise gives */
    double hits;       /* part of the bins with information, or that were rejected, of mask COSMIC */
    size_t nmisfit;    /* spectra whose light is not where their traces are */
    size_t misfit[3];  /* the first of them */
    size_t unlit[2];   /* bins at the first and last wavelengths that no light reaches */
    unsigned broken;   /* rules that are broken, a sum of 1 << spx_rule_id */
} spx_frame_quality;

/* Measures a frame and adds SPX_LOWFLAT to the mask of its unlit bins. psf_error: fractional error of the PSF model
 * that is in chi2pix. Fewer than 10 clean bins, or no chi2pix: not judged, but for hits. The result does not depend on
 * the number of threads. SPX_EIO: memory.
 *
 * chi2_noise: chi2pix has the variance v + (psf_error m)^2 of a pixel with model m. A spot covers some seven pixels, so
 * that (m^2/v) is a seventh of the bin's squared signal-to-noise ratio, by which chi2pix is scaled back. Right frames
 * of any signal-to-noise ratio have 0.7 to 0.8.
 *
 * misfit: a spectrum of 50 clean bins or more whose median chi2pix is above 8 times that of all, and 5, where that of
 * all breaks no rule; or more than half of which is hit, where less than a fifth of all bins are.
 *
 * unlit: the mean spectrum of the clean bins of all fibres, from an end inwards. Bins are unlit up to the last place
 * where their mean, with 2.5 errors added, is below 0.05 of the median of the 125 bins that follow (or an eighth of
 * all), and where neither all of them nor the last 1, 4, 16 or 64 have light: more than 3 errors, and more than 0.005
 * of that median. The light's edge, bins below half of the median, is unlit too, up to half of the diagonals of R.
 * Spectra of which more than 5 % of the blocks of 16 bins are as dark inside, over a quarter of the bins, such as those
 * of arc lamps, have no unlit ends, nor have frames of fewer than 200 wavelengths. */
spx_status spx_extract_quality(spx_frame *frame, double psf_error, int nthreads, spx_frame_quality *q,
                               spx_err *e) SPX_NODISCARD;

/* The two fibres of different bundles that share most light. */
typedef struct {
    double light; /* part of one's light that is taken for the other's; 0: no bundles, or far apart */
    size_t fibre[2];
    double wavelength; /* of the first, Angstrom */
} spx_extract_border;

/* Light that fibres share across the borders of the bundles that are extracted: of Gaussian cores at a distance d in a
 * row, whose widths s1 and s2 are the sigma of cores, exp(-d^2 / 2 (s1^2 + s2^2)), at nine wavelengths of each pair of
 * fibres that stand side by side on the CCD. SPX_EIO: memory. */
spx_status spx_extract_borders(const spx_psf *psf, const spx_extract_options *o, spx_extract_border *worst,
                               spx_err *e) SPX_NODISCARD;

#endif
