/* Provides block `flux`: response of a camera in one exposure, found from standard stars. */
#ifndef SPX_BLOCK_FLUX_H
#define SPX_BLOCK_FLUX_H

#include <stddef.h>
#include <stdint.h>

#include "products/spectra.h"

/* Use of a star: in the response, or why it is not. */
typedef enum {
    SPX_FLUX_USED = 0,
    SPX_FLUX_NO_DATA, /* fewer than 50 good bins with a template, or no light */
    SPX_FLUX_SCALE,   /* its scale is far from that of the others */
    SPX_FLUX_CLIPPED, /* more than a fifth of its bins were rejected */
    SPX_FLUX_SHAPE    /* its shape is far from that of the others */
} spx_flux_fate;

typedef struct {
    int64_t targetid;
    int32_t row;     /* spectrum of the frame */
    double scale;    /* grey scale a_s; 0: none */
    double sn;       /* median signal-to-noise ratio of a good bin */
    double chisq;    /* reduced chi^2 of the bins that were used */
    double shape;    /* rms of the smoothed, relative residual beyond its noise */
    int64_t nbin;    /* good bins */
    int64_t nreject; /* of which were rejected */
    spx_flux_fate fate;
} spx_flux_star;

typedef struct {
    size_t nwave, ndiag;
    double *wavelength; /* [nwave] bin centres, Angstrom, as the frame's */
    spx_medium medium;
    int barycentric;
    double *response;    /* [nwave] C, deconvolved: electron/Angstrom for one unit of calibrated flux */
    double *covariance;  /* [ndiag][nwave] band of its covariance by diagonals: cov(C_j, C_(j+d)) at [d][j] */
    double *model_error; /* [nwave] relative error from the stars' models, beside the covariance */
    int32_t *stars;      /* [nwave] stars with a good bin; 0: C is interpolated */
    double chisq;        /* reduced chi^2 of the bins that were used */
    size_t nstar;
    spx_flux_star *star;     /* [nstar] */
    struct spx_table *table; /* of a response that was read: its stars; else NULL */
    size_t nband;
    double *band; /* [nband][2] telluric bands that it was made with, Angstrom */
    char camera[16];
    char unit[64];  /* of calibrated flux */
    double exptime; /* s; 0: not known */
    double floor;   /* relative error that is added in quadrature */
    double smooth;  /* weight of smoothness that it was made with; 0: not known, of a response that was read */
} spx_flux;

void spx_flux_free(spx_flux *f);

#endif
