/* Provides PSF of a whole detector: wavelength coverage, change to barycentric wavelengths. Single spots:
 * psf/psf_math.h. */
#ifndef SPX_KERNEL_PSF_H
#define SPX_KERNEL_PSF_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "products/psf.h"

/* Common range of wavelengths of all series of a PSF, Angstrom; they can be evaluated beyond it. */
void spx_psf_range(const spx_psf *psf, double *lo, double *hi);

/* Wavelengths at which a trace may be used, Angstrom: its valid_range, or its wave_range, or all. */
void spx_psf_usable(const spx_psf *psf, size_t fibre, double *lo, double *hi);

/* Series of n traces at a wavelength, where the polynomials basis[ncoef] are those of all, with the bits of
 * spx_basis_sum(): at[n]; coef[ncoef][n]. */
void spx_psf_series_beside(size_t ncoef, size_t n, const double *coef, const double *basis, double *at);

/* Longest run of multiples of `step` (Angstrom) at which the trace centres of all fibres lie on a CCD of nx columns and
 * ny rows: first and last wavelength in *wmin, *wmax. Limited to spx_psf_range(). All fibres of the PSF count, also
 * those not extracted, so that the default grid of a camera does not depend on the selection of fibres; a quarter of
 * them at most that lie nowhere on it, or have no wavelength at which they may be used, do not. Where traces have
 * ranges of their own: from the first to the last wavelength at which any of them may be used and lies on the CCD.
 * SPX_EINPUT when there is no such wavelength; SPX_EIO: memory. */
spx_status spx_psf_coverage(const spx_psf *psf, size_t nx, size_t ny, double step, double *wmin, double *wmax,
                            spx_err *e) SPX_NODISCARD;

/* What a trace of a PSF cannot be. Fibres of an empty valid_range are nothing of it. */
enum {
    SPX_ODD_TOGETHER = 1,  /* coincides with another: half a pixel in x and five in y at both ends and in the middle */
    SPX_ODD_OFF = 2,       /* lies nowhere on the CCD, or in one row */
    SPX_ODD_LOST = 8,      /* the PSF says that it may be used nowhere; spx_psf_odd_traces() does not set this */
    SPX_ODD_APART = 4,     /* far from both neighbours along the rows, or not between them, where most others are not */
    SPX_ODD_EXCHANGED = 16 /* the same, but in the place of another such trace, which is in its */
};

/* Sets odd[nspec], a sum of SPX_ODD_..., of traces on a CCD of nx columns and ny rows, and *together: the part of the
 * fibres whose trace coincides with that of the next one; 0 for a single fibre. SPX_EIO: memory. */
spx_status spx_psf_odd_traces(const spx_psf *psf, size_t nx, size_t ny, uint32_t *odd, double *together,
                              spx_err *e) SPX_NODISCARD;

/* Sigma of the first core of the spots along the trace of a fibre, Angstrom, at the middle of spx_psf_range(). 0: the
 * PSF has no such parameter, or the trace no slope. */
double spx_psf_sigma_along(const spx_psf *psf, size_t fibre);

/* GHSIGX, sigma of the first core across the trace, pixels. 0: the PSF has no such parameter. */
double spx_psf_ghsigx(const spx_psf *psf, size_t fibre, double lambda);

/* Sigma of the core of the spot of a fibre across the trace, pixels: GHSIGX; of grids of spots that of a Gaussian as
 * wide as the pixels. 0: the spot has none. work[spx_psf_width_work()]. */
double spx_psf_sigma_across(const spx_psf *psf, size_t fibre, double lambda, double *work);
size_t spx_psf_width_work(const spx_psf *psf);

/* Distance of another trace, columns, in the row where a trace is at a wavelength; *its: the wavelength of the other
 * there, NULL: not wanted. SPX_SPOT_FAR (psf/psf_math.h): there is no other, or it has no such row. */
double spx_psf_distance(const spx_psf *psf, size_t fibre, size_t other, double lambda, double *its);

/* Bins of a fibre: `usual` Angstrom where these are `narrowest` to `widest` of its sigma along the trace, else `sigmas`
 * of that; round: of a round number, ten in a decade, at most as large, since the exposures of a camera differ a
 * little. */
typedef struct {
    double usual, narrowest, widest, sigmas;
    int round;
} spx_psf_bins;

/* Their step, Angstrom; no more bins than `rows` of a CCD, however narrow spots are said to be, and not fewer than 50
 * in the PSF's range, however wide. */
double spx_psf_step(const spx_psf *psf, size_t fibre, size_t rows, const spx_psf_bins *b);

/* PSF as a function of barycentric wavelengths: for fibre k, *to at lambda equals `from` at lambda / factor[k], with
 * factor = barycentric over observed wavelength. Exact, as a Legendre series of a stretched and shifted argument is one
 * of the same degree; so every method and device extracts each fibre on a grid of its own. The ranges (wmin, wmax) stay
 * as they are. factor[from->nspec], finite, > 0. SPX_EIO: memory. *to: free with spx_psf_free(). */
spx_status spx_psf_to_barycentre(const spx_psf *from, const double *factor, spx_psf *to, spx_err *e) SPX_NODISCARD;

/* PSF of Gaussian spots, as wide as the cores of those of any other kind, to begin a fit with: traces, ranges and tail
 * stay. SPX_EINPUT: spots of a fibre have no width; SPX_EIO: memory. *to: free with spx_psf_free(). */
spx_status spx_psf_gaussians(const spx_psf *from, spx_psf *to, spx_err *e) SPX_NODISCARD;

/* Where each trace has a range of its own (wave_range) that is 0.8 or more of that of all: the same polynomials over
 * this one, exactly, and their own as valid_range, if there is none. Others stay as they are. SPX_EIO: memory. */
spx_status spx_psf_one_range(spx_psf *psf, spx_err *e) SPX_NODISCARD;

#endif
