/* Stage `rvfit`: radial velocity and parameters of a batch of stars, by fitting templates to their spectra.
 *
 * Model of a star: T = exp(interpolated ln flux) at the parameters theta, broadened by rotation (vsini), shifted by v
 * (natural cubic spline through the log grid, evaluated at lambda sqrt((1-beta)/(1+beta))), optionally multiplied by
 * the spectrum's own resolution matrix, and multiplied by a continuum that is linear in its coefficients.
 *
 * Objective, marginalised over the continuum with a flat prior (Koposov et al. 2011, ApJ 736, 146; rvspecfit,
 * ascl:1907.013), with D_i = f_i/e_i and S_ik = P_k(lambda_i) T_i/e_i:
 *     -2 ln L = sum over pieces [ ln det(S'S) + 2 sum ln e_i + |D - S a|^2 ],   a = (S'S)^-1 S'D
 * where a piece is one arm of one exposure: pieces of a star share the template, and each has its own continuum, errors
 * and resolution matrix;
 * plus ((p - mean)/sigma)^2 for each Gaussian prior, plus 10 npix d^2 at a distance d outside the templates' range
 * (in units of that range, mapped parameters), where T is that of the nearest point of the range.
 *
 * Pixels with a mask, a value that is not finite, ivar <= 0, or a signal-to-noise above 10^7 are bad: they are filled
 * by linear interpolation over the pixel number and get an error of 1000 times the arm's median flux. So do, unfilled,
 * pixels in 4300-4450 Angstrom (when `dichroic` is set) and the 5 pixels at each end (with a resolution matrix).
 * Errors of good pixels below 0.3 times their median are raised to that. A piece with no more good pixels than the
 * continuum has coefficients, or no flux, is left out of the star.
 *
 * Jitter: with a fraction j of an arm, errors are e_i^2 = sigma_i^2 + (j c_i)^2, where sigma_i is what the spectrum
 * says and c_i its smooth level (medians in blocks of pixels, joined by straight lines). A fitted j is where the
 * likelihood has its maximum with the other quantities at theirs, in turns. Errors of all quantities then allow for a
 * misfit that neighbouring pixels share (search/misfit.c). */
#ifndef SPX_RVFIT_H
#define SPX_RVFIT_H

#include <stddef.h>

#include "base/err.h"
#include "base/hook.h"
#include "base/progress.h"
#include "products/rvfit.h"
#include "products/spectra.h"
#include "products/templates.h"
#include "products/transmission.h"

enum { SPX_RVFIT_MAX_POLY = 32 };

typedef enum {
    SPX_CONTINUUM_SPLINE = 0, /* cubic B-splines, with knots that are dense at both ends of an arm (setup_basis.c) */
    SPX_CONTINUUM_RBF,        /* 1, u, u^2, then npoly-3 Gaussians, centres evenly on [-1,1], sigma 1/(npoly-3) */
    SPX_CONTINUUM_CHEBYSHEV
} spx_continuum;

typedef enum {
    SPX_INTERPOLATE_AUTO = 0, /* cubic in a regular grid, else in simplices, else the network */
    SPX_INTERPOLATE_CUBIC,    /* cubic Hermite between the nodes of a regular grid, slopes from parabolas, in the
                               * function of each parameter that predicts nodes which are left out best */
    SPX_INTERPOLATE_GRID,     /* multilinear */
    SPX_INTERPOLATE_SIMPLEX,  /* linear in the simplices of a triangulation */
    SPX_INTERPOLATE_NN        /* network (products/templates.h), within the box of parameters that it is made for */
} spx_interpolator;

/* Quantities are numbered 0: v (km/s), 1: vsini (km/s), 2 + i: parameter i of the templates (not mapped). */
typedef struct {
    size_t npoly; /* functions of the continuum of each arm; 0: of splines, as many as its range asks for, else 10 */
    spx_continuum continuum;
    spx_interpolator interpolator;
    double vmin, vmax;         /* km/s, |v| < c/2 */
    double vsinimin, vsinimax; /* km/s, 0 <= vsinimin <= vsinimax <= 2000 */
    int dichroic;              /* leave 4300-4450 Angstrom out */
    int resolution;            /* use the spectra's resolution matrices */
    double lsf_sigma;       /* Angstrom: sigma of the templates' line-spread function, which the matrices of spectra are
                             * matched with; 0: they have none; negative: what each setup says */
    int fixed[SPX_MAX_FIT]; /* 1: held at value[] */
    double value[SPX_MAX_FIT];
    double prior_mean[SPX_MAX_FIT], prior_sigma[SPX_MAX_FIT]; /* sigma 0: no prior */
    int reject;          /* so many times, pixels farther than reject_sigma from the model are masked, and the star is
                          * fitted again; 0: never */
    double reject_sigma; /* in units of their errors, or of 1.48 times the median deviation where that is larger */
    int brute;  /* start from the objective itself on a grid of velocities and templates, not from cross-correlation */
    int jitter; /* errors of pixels hold a fraction of the flux, */
    double jitter_of[SPX_MAX_ARM]; /* of each arm of the spectra: this; NaN: fitted, for each star */
    int scale_errors;              /* errors times the root of chi^2 a degree of freedom, where that is above 1 */
    int components; /* 2: seek a second component, by the whole star's pixels (search/double.c); on the host always */
    int epochs;     /* velocity of each exposure of a star, by its own pixels (search/epochs.c) */
    /* Transmission of the atmosphere, which multiplies the star's light before the line-spread function; NULL: none.
     * With `resolution` only; on the CPU only. */
    const spx_transmission *transmission;
    int keep_model;
    int keep_ccf;
    size_t max_device_mem; /* bytes that a device may use; 0: as much as it has free */
    int threads;           /* > 0 */
    spx_hook *hook;        /* spx_rvfit_hook(); may be NULL */
} spx_rvfit_options;

/* What batches of the same templates, arms and options share, and takes a while to make: wavelengths on the templates'
 * grids, transforms of the cross-correlation, the choice of mappings, copies on devices and the memory of what works
 * there. Made by a backend, for it. */
typedef struct spx_rvfit_plan spx_rvfit_plan;

typedef struct {
    const spx_spectra *spectra;
    const spx_setup *setup[SPX_MAX_ARM]; /* for each arm; NULL: the arm is not fitted */
    size_t nrow;
    const size_t *row; /* [nrow] rows to fit; NULL: rows 0 ... nrow-1 */
    /* [nstar+1] joint fits: row[first[k]] ... row[first[k+1]-1] are exposures of star k, first[nstar] = nrow. NULL:
     * every row is a star of its own, and nstar has no meaning. */
    size_t nstar;
    const size_t *first;
    /* [nstar][2+npar] where to start, not mapped; a star whose v is not finite starts from the cross-correlation, other
     * quantities that are not finite from the middle of their range. NULL: all start from the cross-correlation. */
    const double *start;
    /* [nrow][nspecies+1] with a transmission: strengths of its species in each of row[], and the velocity of the
     * atmosphere's lines in the frame of its wavelengths, km/s. NULL: all strengths 1, at rest. */
    const double *air;
    const spx_rvfit_plan *plan; /* for batches one after another; NULL: one is made for this batch alone */
} spx_rvfit_input;

/* Gives axes of abundance ratios that have two nodes, [alpha/Fe] and the like, a third one between them, bent as the
 * metallicity predicts (model/two_nodes.c), for SPX_INTERPOLATE_CUBIC. Rows of the new nodes are behind the others,
 * marked as filled. *name: of the parameter, or NULL: there is no such axis, or no metallicity of three nodes. SPX_EIO:
 * memory. */
spx_status spx_rvfit_bend(spx_templates *t, const char **name, spx_err *e);

/* Estimates how far off fits with SPX_INTERPOLATE_CUBIC are because of the interpolation between nodes, after
 * spx_rvfit_bend(): setup[].nodes of fits of each setup alone, *all of a fit of all of them. Nothing is estimated (sn
 * is 0) where a setup has no grid or no components of ln flux. SPX_EIO: memory. */
spx_status spx_rvfit_node_errors(spx_templates *t, int threads, spx_node_error *all, spx_err *e);

/* Splines, v within +-1000 km/s, vsini 0 ... 500 km/s, dichroic left out, one thread. */
void spx_rvfit_options_init(spx_rvfit_options *o);

/* A plan for batches like `in` (of which setup[] and what the arms of the spectra are matter, not the stars): it is
 * used with options `o` only, which stay as they are until it is closed, as the templates do. Errors as below. *plan is
 * NULL, or the CPU's plan for the same: a backend of a device builds upon it, so that a program can make it before the
 * device is open, and to the CPU there is nothing to do. After an error *plan is NULL. */
spx_status spx_rvfit_open_cpu(const spx_rvfit_input *in, const spx_rvfit_options *o, spx_rvfit_plan **plan, spx_err *e);
void spx_rvfit_close_cpu(spx_rvfit_plan *plan); /* NULL: nothing */

/* Fit all stars. *out is filled in (free with spx_rvfit_free()); a star that cannot be fitted has SPX_RVS_BAD and NaN
 * parameters and changes no other. The result does not depend on the number of threads or on which other stars there
 * are, nor on whether there is a plan. SPX_EINPUT: no arm to fit, templates without a regular grid, not alike between
 * arms, or not covering an arm's wavelengths at vmin and vmax; SPX_EUSAGE: impossible options, or a plan for other
 * options, templates or arms; SPX_EIO: memory. `p` may be NULL. */
spx_status spx_rvfit_cpu(const spx_rvfit_input *in, const spx_rvfit_options *o, spx_progress *p, spx_rvfit *out,
                         spx_err *e);

/* Calls the hook, if there is one, for stars whose fit has ended. The arrays of *out, and wavelength[], are at `at`;
 * names and numbers are the host's. It sees:
 * - of each star [nstar]: vrad, vrad_err, vsini (km/s), chisq, neg2logl, npix, warn; par [nstar,npar]; first [nstar],
 *   the first of its spectra;
 * - of each spectrum [nspec]: row, of the batch's spectra;
 * - of each arm with residuals: residual_ARM [nspec,nwave], (data - model) / error of the pixels that the fit used, 0
 *   for all others; model_ARM [nspec,nwave], where models are kept; wavelength_ARM [nwave].
 * The CPU calls it once, with its results; a CUDA device for the stars of a group, in their order, with the buffers
 * that it has computed residuals and models into. */
spx_status spx_rvfit_hook(spx_hook *hook, const spx_rvfit *out, double *const *wavelength, spx_hook_space at,
                          spx_err *e);

/* Templates of stars at the points of their fit: fills out->arm[].star_template, on the host, of a result of `in` and
 * `o`; bins[narm]: arms whose wavelengths it is wanted on, with the steps of those fitted. They have the spectra's
 * resolution matrices: the templates' line-spread function (o->lsf_sigma) is taken out as from those, up to the highest
 * frequency of the bins, so that R times the template is the star but for a continuum. The templates of the setups are
 * not normalised (SPX_EUSAGE otherwise). Stars and arms that were not fitted have 0. */
spx_status spx_rvfit_templates(const spx_rvfit_input *in, const spx_rvfit_options *o, const spx_arm *bins,
                               spx_rvfit *out, spx_err *e);

/* Fits out[ngroup] jointly with the quantities of all stars of a group: in turns, the stars with the atmosphere held,
 * and a Gauss-Newton step of the atmosphere, with the stars' quantities marginalised (Schur complement), until it
 * changes by less than a tenth of its error. Spectrum k of the input belongs to group[k]; each is a star of its own
 * (in->first is NULL), of which those with a good fit and a signal-to-noise ratio count. velocity[nrow]: of the ground
 * in the frame of the wavelengths, km/s, to which the shift is added; NULL: 0. On the CPU. Errors as below. */
spx_status spx_rvfit_fit_air(const spx_rvfit_input *in, const spx_rvfit_options *o, size_t ngroup, const size_t *group,
                             const double *velocity, spx_progress *p, spx_air *out, spx_err *e);

/* The objective itself, at x[nstar][2+npar]; f[nstar], and grad[nstar][2+npar] unless NULL (at a node of the grid the
 * derivative towards larger values; 0 for fixed quantities and outside the templates' range that of the penalty alone).
 * Stars that cannot be fitted give f = 0. Errors as above. */
spx_status spx_rvfit_objective(const spx_rvfit_input *in, const spx_rvfit_options *o, const double *x, double *f,
                               double *grad, spx_err *e);

#endif
