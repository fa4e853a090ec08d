/* Block `templates`: model spectra prepared for one instrument setup (arm), with an interpolator. */
#ifndef SPX_TEMPLATES_H
#define SPX_TEMPLATES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "blocks/spectra.h"

enum { SPX_MAX_PAR = 6 };

typedef enum { SPX_NORM_NONE = 0, SPX_NORM_MEDIAN = 1, SPX_NORM_LINEAR = 2 } spx_norm;

/* Cross-correlation set: continuum-normalised templates on a log grid of a power-of-two length. */
typedef struct {
    size_t ntemp; /* entries: a subset of the templates times a list of vsini */
    size_t nwave; /* power of two */
    double lnwave0, dlnwave;
    double *params; /* [ntemp][npar], not mapped */
    double *vsini;  /* [ntemp] km/s */
    float *flux;    /* [ntemp][nwave], continuum-normalised, apodised, padded with zeros */
    /* FFTs (FFTW r2c, unnormalised, nwave/2+1 complex values re,im) of flux and of flux squared; float32 pairs */
    float *fft, *fft2; /* [ntemp][nwave/2+1][2] */
} spx_ccf_set;

typedef struct {
    char setup[64];
    double wmin, wmax;    /* range that the setup was made for, Angstrom */
    double step;          /* Angstrom at mid-range */
    char resolution[128]; /* "R=x/1.55" or "FWHM=1.55": text of the definition */
    spx_medium medium;
    size_t nwave; /* lambda_k = exp(lnwave0 + k dlnwave) */
    double lnwave0, dlnwave;
    size_t npar;
    char parname[SPX_MAX_PAR][32]; /* teff, logg, feh, alpha */
    int parlog[SPX_MAX_PAR];       /* 1: interpolated in log10 of the parameter (the "mapped" parameter) */
    size_t ntemp;
    double *params; /* [ntemp][npar], not mapped */
    float *lnflux;  /* [ntemp][nwave] ln of the normalised flux per unit wavelength */
    spx_norm norm;
    double *lnnorm;  /* [ntemp] ln of what was divided out at mid-range; 0 for SPX_NORM_NONE */
    uint8_t *filled; /* [ntemp] 1: not in the library, filled in from its neighbours */
    /* interpolator "grid": node[i0][i1]... (last parameter fastest) is the row of the template at
     * (axis[0][i0], axis[1][i1], ...); axes hold parameters that are not mapped, increasing. NULL node: no regular
     * grid. */
    size_t naxis[SPX_MAX_PAR];
    double *axis[SPX_MAX_PAR];
    int32_t *node;
    spx_ccf_set ccf; /* ccf.ntemp 0: none */
} spx_setup;

typedef struct {
    size_t nsetup;
    spx_setup *setup;
    char library[256]; /* what the templates were made from */
} spx_templates;

void spx_setup_free(spx_setup *s);
void spx_templates_free(spx_templates *t);

#endif
