/* Provides what an image says about the place and the width of its traces, with all fluxes free: local normal equations
 * of Gauss and Newton in short windows of wavelength, which kernels/shift fits smooth functions to.
 *
 * Image model: p = A(x + dx, sigma_x (1 + e)) f. With J_q = (dA/dq) f of one fibre and window, q = dx, e; W =
 * diag(ivar); M = A^T W A and r = p - A M^-1 A^T W p, which is orthogonal to A, F_qr = J_q^T W J_r - J_q^T W A M^-1 A^T
 * W J_r,   g_q = J_q^T W r,   step = F^-1 g,   covariance of it F^-1. All fibres of a bundle are solved together, so
 * that their light may overlap. A shift along the trace, and the width there, cannot be had so: they are changes of the
 * spectrum. Corners of spots stay where they are.
 *
 * Any f that is a function of A^T W p makes g unbiased, as r does not depend on it: J is made of f where a bin stands
 * out (lines, 5 sigma), of a running mean over 31 bins elsewhere, and of nothing where that is not significant. The
 * noise of f itself would make F too large. */
#ifndef SPX_EXTRACT_MOTION_H
#define SPX_EXTRACT_MOTION_H

#include <stddef.h>

#include "base/err.h"
#include "base/fallback.h"
#include "products/image.h"
#include "products/psf.h"

/* Windows that are measured. */
typedef struct {
    size_t nwindow;
    const double *first, *last; /* [nwindow] first and last bin of each, Angstrom, within the PSF's range */
    double dw;                  /* step of bins, Angstrom */
    size_t bundle_size;         /* fibres that are solved together */
    int psf_bundles;            /* or those that the PSF names, of any size, where it does */
    const unsigned char *only;  /* [nwindow][bundles] those that are measured, whose byte is not 0; NULL: all */
    int rough;    /* 1: F with the fluxes held, J^T W J, some per cent too large: for a step before others */
    int nthreads; /* 0: OpenMP's default; the result does not depend on it */
    /* Number of the image, by which a device knows that it has it; 0: it does not. One for each call of
     * spx_shift_traces(), for instance. */
    unsigned long long image;
} spx_motion_options;

/* One fibre in one window; all 0 where there is no light. Shifts in pixels, widths relative. */
typedef struct {
    double fisher[3];   /* F: dx dx, dx e, e e */
    double next[4];     /* with the next fibre of the bundle, (dx, e) by its (dx, e) */
    double gradient[2]; /* g: dx, e */
    double wavelength;  /* mean of the light's, weighted with its information; the window's middle without, Angstrom */
} spx_motion_row;

/* Most that a pixel adds to chi^2: one that a particle has hit must not hide all others. */
#define SPX_MOTION_MOST 100.0

/* One bundle in one window: chi^2 of the image, pixels and free fluxes in it. */
typedef struct {
    double chi2, npix, nflux;
} spx_motion_fit;

/* Bundles of a PSF, and the one that a fibre is in. */
size_t spx_motion_bundles(const spx_psf *psf, const spx_motion_options *o);
size_t spx_motion_bundle_of(const spx_psf *psf, const spx_motion_options *o, size_t fibre);

/* row[nwindow][nspec], fit[nwindow][bundles], 0 where nothing is measured. Pixels with a mask bit, or whose ivar is not
 * above 0 and finite, are not used, nor are rows that light of bins beyond the window may reach. A trace that may not
 * be used in all of a window has nothing there. Never NaN. *left: bundles in windows, and those that a device left to
 * the CPU. SPX_EUSAGE: windows or bins that make no sense for this PSF; SPX_EIO: memory. */
spx_status spx_motion_cpu(const spx_image *image, const spx_psf *psf, const spx_motion_options *o, spx_motion_row *row,
                          spx_motion_fit *fit, spx_fallback *left, spx_err *e) SPX_NODISCARD;

#endif
