/* Provides block `templates`: model spectra prepared for one instrument setup (arm), with an interpolator. */
#ifndef SPX_TEMPLATES_H
#define SPX_TEMPLATES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "products/spectra.h"

enum { SPX_MAX_PAR = 6 };

typedef enum { SPX_NORM_NONE = 0, SPX_NORM_MEDIAN = 1, SPX_NORM_LINEAR = 2 } spx_norm;

/* Principal components of the transforms of a cross-correlation set and of its squares together: entry t is about sum_k
 * coef[t][k] comp[k], up to frequency nshort/2, beyond which the templates have next to nothing. */
typedef struct {
    size_t nshort, ncomp; /* nshort: a power of two, ncomp > 0 */
    float *comp;          /* [ncomp][2][nshort/2+1][2], of the entries and of the squares; NULL: not made */
    float *coef;          /* [ntemp][ncomp] */
} spx_ccf_pca;

/* Cross-correlation set. An entry is t = T/continuum - 1 (T: template, broadened by vsini; continuum: continuum.h over
 * wmin ... wmax), 0 where there is no template, on the setup's own grid, tapered over the outer 200 km/s, and followed
 * by zeros for at least 1500 km/s, so that lags up to that do not wrap. With data s_i = S_i/continuum - 1 on the same
 * grid and ivar_i of S/continuum, chi^2(lag) = sum ivar s^2 - 2 sum_i ivar_i s_i t_(i-lag) + sum_i ivar_i t_(i-lag)^2.
 * Entries are the same templates and vsini in every setup of a file. */
typedef struct {
    size_t ntemp; /* entries: a subset of the library's templates times a list of vsini */
    size_t nwave; /* power of two; wavelength of pixel k is exp(lnwave0 + k dlnwave) */
    double lnwave0, dlnwave;
    double *params; /* [ntemp][npar], not mapped */
    double *vsini;  /* [ntemp] km/s */
    float *flux;    /* [ntemp][nwave] t; NULL: not read, pca has what a fit needs of it and of its transforms */
    /* FFTs of t and of t squared (FFTW r2c, unnormalised, nwave/2+1 complex values re,im); float32 pairs */
    float *fft, *fft2; /* [ntemp][nwave/2+1][2] */
    spx_ccf_pca pca;
} spx_ccf_set;

/* Principal components: ln flux of template t is mean + sum_k coef[t][k] comp[k], up to the truncation error. */
typedef struct {
    size_t ncomp;    /* 0: all templates are equal */
    int of_flux;     /* 1: components of flux, not of its logarithm (networks made elsewhere) */
    double *mean;    /* [nwave]; NULL: no components in the file */
    float *comp;     /* [ncomp][nwave], orthonormal but for rounding, most important first */
    double *coef;    /* [ntemp][ncomp] */
    double rms, max; /* truncation error over all templates and pixels */
} spx_pca;

/* Interpolator "nn": a multilayer perceptron from the mapped parameters to the coefficients of the principal
 * components. Parameter p enters as (mapped - offset[p]) * scale[p]; layer l makes f(W y + b) of its input y, the last
 * one W y + b. The arithmetic, with derivatives: spectral/nn_math.h. */
enum { SPX_NN_MAX_LAYER = 8, SPX_NN_MAX_WIDTH = 8192 };

typedef enum {
    SPX_NN_SILU = 0, /* a / (1 + exp(-a)) */
    SPX_NN_SIGMOID,  /* 1 / (1 + exp(-a)) */
    SPX_NN_LEAKY     /* a where it is positive, else slope * a */
} spx_nn_activation;

typedef struct {
    size_t nlayer;                     /* 0: no network */
    size_t size[SPX_NN_MAX_LAYER + 1]; /* size[0] = npar, size[nlayer] = pca.ncomp */
    spx_nn_activation activation;
    double slope;                                   /* of SPX_NN_LEAKY */
    double offset[SPX_MAX_PAR], scale[SPX_MAX_PAR]; /* scale 0: the parameter is constant */
    double lo[SPX_MAX_PAR], hi[SPX_MAX_PAR];        /* range of mapped parameters of the training set */
    float *weight;                                  /* W[size[l+1]][size[l]] of each layer, one after another */
    float *bias;                                    /* b[size[l+1]] of each layer, one after another */
    double rms, max; /* error in ln flux (of_flux: in flux) over the validation templates; 0: unknown */
} spx_nn;

/* Error of the parameters of a fit of this setup alone because the interpolator `grid` has to interpolate between its
 * nodes (rvfit/model/node_errors.c). */
typedef struct {
    double sn; /* signal-to-noise ratio of a bin, of two steps; 0: not estimated */
    double
        error[SPX_MAX_PAR]; /* [npar] standard error of the fit at that ratio, median over the grid; 0: has one node */
    double bias[SPX_MAX_PAR];   /* (fit - truth) / error: median */
    double spread[SPX_MAX_PAR]; /* and 1.4826 times the median deviation from it */
    int known[SPX_MAX_PAR];     /* 0: two nodes, which tell nothing; the axis is left out of all of these */
} spx_node_error;

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
    float *lnflux;  /* [ntemp][nwave] ln of the normalised flux per unit wavelength; NULL: not read, pca has it */
    spx_norm norm;
    double *lnnorm;  /* [ntemp] ln of the factor divided out, at (wmin+wmax)/2; 0 for SPX_NORM_NONE */
    uint8_t *filled; /* [ntemp] 1: missing node of the grid, filled in from its neighbours */
    /* interpolator "grid": node[i0][i1]... (last parameter fastest) is the row of the template at
     * (axis[0][i0], axis[1][i1], ...); axes hold parameters that are not mapped, increasing. NULL node: no regular
     * grid. */
    size_t naxis[SPX_MAX_PAR];
    double *axis[SPX_MAX_PAR];
    int32_t *node;
    /* interpolator "simplex", of a library without a regular grid: rows of the templates at the corners of each simplex
     * of a Delaunay triangulation of the mapped parameters that have more than one value, each over its range. */
    size_t nsimplex, ncorner;
    int32_t *simplex; /* [nsimplex][ncorner], NULL: none */
    spx_pca pca;
    spx_nn nn;
    spx_ccf_set ccf; /* ccf.ntemp 0: none */
    spx_node_error nodes;
} spx_setup;

typedef struct {
    size_t nsetup;
    spx_setup *setup;
    char library[256]; /* origin of the templates */
} spx_templates;

void spx_nn_free(spx_nn *nn);
void spx_ccf_pca_free(spx_ccf_pca *p);
/* Numbers of weights and of biases, over all layers. */
void spx_nn_count(const spx_nn *nn, size_t *nweight, size_t *nbias);
void spx_setup_free(spx_setup *s);
void spx_templates_free(spx_templates *t);

#endif
