/* Provides block `psffit`: how well a PSF was measured from arcs, line by line and fibre by fibre
 * (schemas/psffit.schema).
 */
#ifndef SPX_PSFFIT_PRODUCT_H
#define SPX_PSFFIT_PRODUCT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

typedef struct {
    int32_t fibre, bundle;
    uint32_t status;             /* flags SPX_PSF_DEAD ... (products/psf.h) */
    int32_t nline;               /* lines with S/N above 5 */
    double chi2;                 /* a pixel, of the pixels around its spots */
    int64_t npix;                /* number of these */
    double x_shift, y_shift;     /* median over lines of place minus that of the start, pixels */
    double x_error, y_error;     /* median over wavelengths of the error of the place of spots, pixels */
    double wave_error_kms;       /* of the wavelength, km/s */
    double flux_sn;              /* median signal-to-noise ratio of lines with S/N above 5 */
    double valid_min, valid_max; /* Angstrom */
} spx_psffit_fibre;

typedef struct {
    char element[16];
    double wavelength;         /* listed, vacuum Angstrom */
    int32_t nfibre;            /* fibres with S/N above 10 */
    double flux, sn;           /* medians over fibres that have it on the CCD */
    double delta, delta_error; /* measured minus listed wavelength, Angstrom; error 0: not measured */
    int32_t listed, used;      /* used: its wavelength takes part in the fit */
} spx_psffit_row;

typedef struct {
    int32_t fibre0, nfibre, alive; /* alive: not DEAD */
    int32_t fitted, niter, converged;
    double chi2; /* a pixel */
    int64_t npix, nreject;
    double seconds;
    double psf_error;       /* of its spots, a fraction of the light in a pixel; 0: not measured */
    double misfit, of[2];   /* (residual / error)^2 of stacked spots, less their number; that; (light / error)^2 */
    double unlike, nunlike; /* the same of what spots' places and fluxes do not explain, and the number */
    double core; /* chi squared, of single spots, of what these do not explain, less what noise makes of it */
} spx_psffit_bundle;

typedef struct {
    size_t nspec, nbundle, nexp;
    size_t nline, nunlisted;     /* lines on the CCD; the last nunlisted of them were not listed */
    size_t ndisagree;            /* lines off by over 5 errors and 0.01 Angstrom that are used, as they are too many */
    size_t ntrace, nshape;       /* parameters of the traces of a fibre, of the shape of a bundle (0: was fixed) */
    spx_psffit_fibre *fibre;     /* [nspec] */
    spx_psffit_row *line;        /* [nline] */
    spx_psffit_bundle *bundle;   /* [nbundle] */
    double *shift, *shift_error; /* [nexp][2]: dx, dy against the first exposure, mean of bundles, pixels */
    double *flux, *flux_ivar;    /* [nexp][nspec][nline], electron and its inverse variance; 0: not on the CCD */
    float *cov_trace;            /* [nspec][ntrace][ntrace], pixel^2: x_0 ... x_d, y_0 ... y_d */
    float *cov_shape;            /* [nbundle][nshape][nshape]: wavelength's polynomial, fibre's, parameter */
    size_t nplace;               /* wavelengths at which errors are given */
    double *place;               /* [nplace], Angstrom */
    double *x_error, *y_error;   /* [nspec][nplace]: 1 sigma of the place of the spot, pixels; 0: not known */
    size_t ny, nx;               /* of the images below */
    float *model, *chi;          /* [nexp][ny][nx], electron and errors; NULL: not asked for */
} spx_psffit;

void spx_psffit_free(spx_psffit *p);

#endif
