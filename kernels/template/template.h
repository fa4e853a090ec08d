/* Provides kernel `template`: a library of model spectra -> templates of one or several setups.
 *
 * The library streams through: begin (grids, weights and the grid of parameters are made; the samples that are needed
 * are known), add as often as there are batches of rows, finish (holes filled, cross-correlation set made, result
 * handed out).
 *
 * For each setup (Koposov et al., rvspecfit, ascl:1907.013, defines the same steps):  1. log grid: ln step ln(1 + step
 * / ((wmin + wmax)/2)), from wmin/f up to below wmax*f, f = 1 + 1000 km/s / c. Pixels that reach beyond the library are
 * left out; the library has to cover wmin ... wmax.  2. flux times wavelength (photons), taken as curved
 * between the library's samples (lsf_math.h; `straight`: as piecewise linear), is integrated against
 *     LSF x output pixel exactly: the LSF is a Gaussian of sigma = sqrt(FWHM^2 - FWHM_library^2) / 2.3548 at the
 * pixel's wavelength, pixel edges lie midway between pixel centres, and the LSF is cut at 5 sigma from the pixel's
 * centre (from its edges where 4 sigma are less than the pixel); the weights of a pixel are scaled to sum 1. Then it is
 * divided by the wavelength again. Values not above 1e-10 of the template's median are raised to that (they have no
 * logarithm), and counted.  3. normalisation: none; median: divided by the median of the pixels; linear: then also by
 * the straight line in
 *     (wavelength, ln flux) through the medians of the two halves of the pixels.
 *  4. ln, float32. */
#ifndef SPX_TEMPLATE_H
#define SPX_TEMPLATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/progress.h"
#include "products/network.h"
#include "products/templates.h"
#include "spectral/lsf_width.h"
#include "template/nn_steps.h"

/* Request for a setup. */
typedef struct {
    char name[64];
    double wmin, wmax, step; /* Angstrom, in `medium` */
    char resolution[128];    /* "R=expression" or "FWHM=expression" (Angstrom), x: wavelength in Angstrom; or with
                              * "@name" in place of the expression, the table */
    spx_medium medium;
    spx_lsf_table table; /* table for "@name"; has to cover wmin ... wmax */
} spx_template_request;

/* SPX_EUSAGE when a setup is invalid by itself. */
spx_status spx_template_check_setup(const spx_template_request *r, spx_err *e);

/* Description of the library, without its spectra. */
typedef struct {
    size_t nwave;
    const double *wavelength; /* [nwave] Angstrom, strictly increasing, any spacing */
    spx_medium medium;
    size_t ntemp, npar;            /* npar 1 ... SPX_MAX_PAR */
    const double *params;          /* [ntemp][npar] */
    char parname[SPX_MAX_PAR][32]; /* [npar] */
} spx_template_library;

typedef enum {
    SPX_TEMPLATE_AUTO = 0, /* regular grid where the library is one, else triangulation */
    SPX_TEMPLATE_GRID,
    SPX_TEMPLATE_SIMPLEX
} spx_template_interpolator;

/* Training of a network. */
typedef struct {
    size_t nhidden; /* hidden layers; 0: no network */
    size_t hidden[SPX_NN_MAX_LAYER - 1];
    size_t epochs; /* most epochs */
    uint64_t seed;
    spx_nn_open *open;          /* opens a trainer of a backend; NULL: the CPU's */
    struct spx_backend *device; /* argument of open() */
    size_t number;              /* number of the setup among those trained at one time */
} spx_nn_training;

typedef struct {
    size_t nsetup;
    const spx_template_request *setup; /* [nsetup], names differ */
    spx_norm norm;
    char library_resolution[128]; /* as resolution, or a plain number (R); empty: infinite */
    spx_lsf_table library_table;
    int straight;            /* 1: straight lines between the library's samples, as rvspecfit has them */
    int parlog[SPX_MAX_PAR]; /* 1: the parameter is interpolated in log10 */
    int ccf;                 /* 1: make the cross-correlation set */
    size_t ccf_every;        /* every N-th template of the library; 0: such that about 100 remain */
    size_t nccf_vsini;
    const double *ccf_vsini; /* [nccf_vsini] km/s, 0 ... 1000 */
    double pca_error;        /* largest rms truncation error of principal components in ln flux; 0: no components */
    double pca_max;          /* largest truncation error in any pixel of any template; 0: any */
    spx_template_interpolator interpolator;
    spx_nn_training nn; /* requires principal components */
    int raw;            /* 1: spectra are only convolved and resampled: no norm, no logarithm, any sign */
    int nthreads;       /* 0: OpenMP's default; the result does not depend on it */
} spx_template_config;

/* Report for the user. */
typedef struct {
    size_t nfilled;  /* nodes missing in the library, and filled in */
    size_t nraised;  /* samples raised to 1e-10 of their template's median */
    size_t nccf;     /* entries of the cross-correlation set */
    size_t nmissing; /* pixels at the ends of the grids that the library does not cover */
} spx_template_report;

typedef struct spx_template_job spx_template_job;

/* Begins a job. SPX_EUSAGE: an impossible setup (step, range, resolution not positive or higher than the library's);
 * SPX_EINPUT: the library's wavelengths or parameters are unusable, do not cover a setup, or form no regular grid;
 * SPX_EIO: memory. */
spx_status spx_template_begin(const spx_template_library *lib, const spx_template_config *cfg, spx_template_job **job,
                              spx_err *e);

/* Range of the library's samples that the setups use: first ... first+n-1. */
void spx_template_range(const spx_template_job *job, size_t *first, size_t *n);

/* Adds rows row0 ... row0+nrow-1 of the library: flux[r*stride + k] is sample first+k of row row0+r, k < n of
 * spx_template_range(). Every row once, in any order; the result does not depend on the batch size. SPX_EINPUT: a flux
 * that a setup uses is not finite, or a spectrum has none in a setup. */
spx_status spx_template_add(spx_template_job *job, size_t row0, size_t nrow, const float *flux, size_t stride,
                            spx_err *e);

/* Units of work of the job, rows of the library and entries of the cross-correlation sets, and their counter p, which
 * may be NULL. */
size_t spx_template_units(const spx_template_job *job);
void spx_template_watch(spx_template_job *job, spx_progress *p);

/* Finishes the job: moves the setups to *out (out->library is unchanged). SPX_EBUG when rows are missing. `report` may
 * be NULL. */
spx_status spx_template_finish(spx_template_job *job, spx_templates *out, spx_template_report *report, spx_err *e);

void spx_template_free(spx_template_job *job);

/* Makes setups from a network of whole spectra, in place of a library: its last layer, which is linear, goes through
 * the LSF and onto the setups' pixels as spectra do; its columns become the components, and what is before it the
 * interpolator `nn`. `ntemp` spectra at parameters all over its range serve as templates, for the cross-correlation
 * set. Of cfg are used: setups, library_resolution, ccf, ccf_vsini, nthreads. SPX_EUSAGE also where a network of ln
 * flux would have to be blurred, which is not linear. */
spx_status spx_template_import(const spx_network *net, const spx_template_config *cfg, size_t ntemp, spx_templates *out,
                               spx_template_report *report, spx_err *e);

/* Interpolator `grid`: from s->ntemp, npar, params, parlog, parname finds the axes and sets naxis, axis, node and
 * filled; where nodes are missing, rows are appended to params (ntemp grows, filled is 1 there), and *f says how to
 * make their spectra. Values of a parameter that differ by less than 1e-4 of its range, or 1e-6 of its size, are one
 * node. SPX_EINPUT when two templates share a node, a parameter to be mapped is not positive, or less than a quarter of
 * the nodes are there (the library is no regular grid).
 *
 * A missing node is interpolated, linearly in the mapped parameter and ln(flux), between the nearest nodes on both
 * sides along an axis, at most two steps away, the mean over all axes that have them; that is repeated with what was
 * filled. What remains (outside the hull of the library) copies the nearest of the library's nodes, in steps of the
 * grid. */
typedef struct {
    size_t nfill;   /* number of missing nodes */
    size_t *start;  /* [nfill+1] sources of fill i are start[i] ... start[i+1]-1, in the order in which to fill */
    int32_t *row;   /* rows of s->lnflux */
    double *weight; /* sum 1 */
} spx_template_fill;

spx_status spx_template_grid(spx_setup *s, spx_template_fill *f, spx_err *e);
void spx_template_fill_free(spx_template_fill *f);

/* Interpolator `simplex`: triangulates s->ntemp, npar, params, parlog; sets simplex, nsimplex, ncorner, and filled to
 * 0. SPX_EINPUT when the parameters span no volume, or one that is to be mapped is not positive. */
spx_status spx_template_simplex(spx_setup *s, spx_err *e);
/* Checks for dependent parameters. SPX_EINPUT when the spectra lie on a line, or a plane, in the space of the
 * parameters that vary, or of the logarithms of those interpolated in the logarithm. */
spx_status spx_template_span(const spx_setup *s, spx_err *e);

/* Parameters of a template as text, "teff 5000, logg 4.5", for messages; returns `text`. */
const char *spx_template_describe(const spx_setup *s, size_t row, char *text, size_t size);

/* Chooses the rows of a library, params[ntemp][npar], for the cross-correlation set: every N-th along a Z-order curve
 * through the ranks of the parameters (even coverage). ccf_row[ntemp] receives *nccf_row of them, in order of rows.
 * SPX_EIO: memory. */
spx_status spx_template_ccf_rows(size_t ntemp, size_t npar, const double *params, size_t every, size_t *ccf_row,
                                 size_t *nccf_row, spx_err *e);

/* Makes principal components of a setup's templates: the fewest, or nearly, with a truncation error of at most `error`
 * (rms of ln flux over templates and pixels), and `most` in any pixel of any template (0: any). Where the error is
 * below 2e-5 they are made from every N-th template when there are more than 2048. The truncation error is measured
 * over all templates; it may exceed the limits where there are no further components. Sets s->pca. Calls BLAS: have it
 * run on one thread where the result must not depend on threads. SPX_EIO: memory. */
spx_status spx_template_pca(spx_setup *s, double error, double most, spx_err *e);

/* Network from the mapped parameters to the coefficients of s->pca, which has components: sets s->nn. A random
 * twentieth of the templates is used for validation (stopping), another for test (nn.rms, nn.max). Filled-in templates
 * are not used. Calls BLAS, as spx_template_pca(). SPX_EUSAGE: sizes; SPX_EINPUT: no components, fewer than 20
 * templates; SPX_EIO: memory; and what the backend says. */
spx_status spx_template_train(spx_setup *s, const spx_nn_training *how, spx_err *e);

/* Makes the cross-correlation set of a setup (products/templates.h) from rows ccf_row[nccf_row] of its templates times
 * vsini[nvsini]; a template is broadened before it is divided by its continuum. */
spx_status spx_template_ccf(spx_setup *s, size_t nccf_row, const size_t *ccf_row, size_t nvsini, const double *vsini,
                            int nthreads, spx_progress *progress, spx_err *e);

#endif
