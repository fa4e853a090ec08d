/* Provides block `psf`: Gauss-Hermite point-spread function of one camera (DESI PSF files, PSFTYPE = GAUSS-HERMITE,
 * PSFVER 2, 3). */
#ifndef SPX_PSF_H
#define SPX_PSF_H

#include <stddef.h>

#include "base/err.h"
#include "fits/cards.h"

/* Names of table rows have at most 15 characters ("GH-10-10"). */
typedef char spx_psf_param[16];

/* Legendre series: value(lambda) = sum_k c[k] P_k(u), u = 2 (lambda - wmin)/(wmax - wmin) - 1. */
typedef struct {
    size_t ncoef;
    double wmin, wmax; /* Angstrom */
    double *coef;      /* [nspec][ncoef] */
} spx_psf_series;

typedef struct {
    size_t nspec;
    spx_psf_series x, y;   /* trace centre, pixels */
    size_t npar;           /* rows of the parameter table */
    spx_psf_param *param;  /* [npar] names */
    size_t ndeg;           /* Legendre coefficients a parameter */
    double wmin, wmax;     /* range of the parameters' series, Angstrom */
    double *coeff;         /* [npar][nspec][ndeg] */
    int ghdegx, ghdegy;    /* highest Gauss-Hermite order */
    int hsizex, hsizey;    /* half size of a spot: (2 hsizey + 1) x (2 hsizex + 1) pixels */
    double psferr;         /* fractional model error; 0.01 when the file has none */
    size_t npix_x, npix_y; /* CCD size that the PSF was made for; 0 when unknown */
    char camera[16];
    spx_cards header; /* header of the PSF HDU */
    /* Set by spx_psf_index(): rows in `param` of GHSIGX, GHSIGY, and of GH-i-j at gh[i + (ghdegx+1)*j]; -1: absent
     * (0). */
    int sigx, sigy;
    int *gh;
} spx_psf;

void spx_psf_free(spx_psf *psf);

/* Deep copy; *to is overwritten, and empty after an error. */
spx_status spx_psf_copy(const spx_psf *from, spx_psf *to, spx_err *e);

#endif
