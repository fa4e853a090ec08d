/* Provides the tail of a PSF (psf/tail.h) from exposures of arc lamps, fitted in turn with traces and cores.
 *
 *     T = (a_0 + a_1 u) R^2 / (TAILCORE^2 + R^2)^(1 + TAILINDE/2)    for each electron of a line, u its wavelength
 *
 * beyond the pixels of all spots, least squares for a_0, a_1 and TAILINDE by Gauss-Newton steps. Of each column, 64
 * rows at a time, a quadratic is free: continuum of the lamps and scattered light, which a tail that is smoother than
 * that cannot be told from. TAILCORE is not seen there: it stays what it is. The tails of the lines, with those
 * parameters, are taken off the exposures, and traces and cores fitted to what is left; fluxes are then better, and so
 * is the tail: three times. */
#ifndef SPX_PSFFIT_TAIL_FIT_H
#define SPX_PSFFIT_TAIL_FIT_H

#include "psffit/psffit.h"

/* Fits of traces and cores after the first. */
enum { SPX_PSFFIT_TAIL_ROUNDS = 3 };

typedef struct {
    int fit; /* 0: it is the start's, and is only taken off */
    double amplitude[2],
        error[2]; /* TAILAMP = amplitude[0] + amplitude[1] u, u = -1 ... 1 over the PSF's wavelengths */
    double core, index, index_error;
    double chi2;        /* a pixel, of the pixels of the fit */
    size_t npix, nclip; /* these, and those that were left out */
    int found;          /* above 3 errors; else the PSF has none */
} spx_psffit_tail;

/* spx_psffit_make() with a tail. in->start may have one: it is what the fit begins with, or, with tail->fit 0, that of
 * the result. tail->fit and tail->core (pixel) are read, the others set. The PSF's parameters need two terms of
 * wavelength for a_1 not to be 0. Errors as of spx_psffit_make() and spx_tail_shape_of(); SPX_EINPUT also where no
 * pixel beyond spots is left. */
spx_status spx_psffit_make_with_tail(const spx_psffit_input *in, const spx_psffit_options *o, spx_psffit_tail *tail,
                                     spx_psf *psf, spx_psffit *fit, spx_err *e) SPX_NODISCARD;

/* Room for exposures of their own data and noise: *image[nexp], freed with spx_psffit_free_images() also after an
 * error. SPX_EIO: memory. */
spx_status spx_psffit_new_images(const spx_psffit_input *in, spx_image **image, spx_err *e) SPX_NODISCARD;
void spx_psffit_free_images(size_t n, spx_image *image);

/* Exposures without the tails of their lines, and without light of cores beyond their windows: image[nexp], of
 * spx_psffit_new_images(), from the result of spx_psffit_make_with_tail(). SPX_EIO: memory. */
spx_status spx_psffit_without_tail(const spx_psffit_input *in, const spx_psffit_tail *tail, int nthreads,
                                   const spx_psf *psf, const spx_psffit *fit, spx_image *image,
                                   spx_err *e) SPX_NODISCARD;

/* The operation of backends: one of the two, without a tail where it is NULL. */
spx_status spx_psffit_cpu(const spx_psffit_input *in, const spx_psffit_options *o, spx_psffit_tail *tail, spx_psf *psf,
                          spx_psffit *fit, spx_err *e) SPX_NODISCARD;

#endif
