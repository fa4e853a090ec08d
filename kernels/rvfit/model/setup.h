/* Parts of spx_rv_ctx_init() (setup.c), which calls them in this order. Private to kernels/rvfit/model/. */
#ifndef SPX_RVFIT_SETUP_H
#define SPX_RVFIT_SETUP_H

#include "rvfit/model/model.h"

spx_status spx_rv_check_options(const spx_rvfit_options *o, spx_err *e);

/* An arm whose index, data and templates are set; c->interpolator is chosen. Adds to the largest sizes in *c. */
/* The coefficients of an arm's components in single precision, as they are combined. */
spx_status spx_rv_make_coefficients(spx_rv_arm *a, spx_err *e);
spx_status spx_rv_make_arm(spx_rv_ctx *c, spx_rv_arm *a, spx_err *e);
/* Makes a->match, for templates of this sigma, Angstrom; negative: as the setup says (model/lsf_match.c). SPX_EINPUT:
 * it does not; SPX_EUSAGE: lines that no bins of the arm could see. */
spx_status spx_rv_make_match(spx_rv_arm *a, double sigma, spx_err *e);
void spx_rv_match_free(spx_rv_match *m);
/* Frequency response of a bin's value of the spectrum at v, radian a bin, for spots of sigma p bins: P^2(v) / sum_m
 * P^2(v
 * + 2 pi m). */
double spx_rv_bin_response(double p, double v);
/* Row i of R, res[ndiag][n] by diagonals: raw[ndiag], elements beyond the ends of the arm are 0; and the second moment
 * of a row about its centroid, pixels squared. */
void spx_rv_raw_row(const spx_rv_arm *a, const double *res, size_t i, double *raw);
double spx_rv_row_variance(size_t nd, const double *row);
/* Makes a->fine, after a->match, for a transmission of the atmosphere (model/transmission.c). */
spx_status spx_rv_make_fine(spx_rv_arm *a, const spx_transmission *t, spx_err *e);
void spx_rv_fine_free(spx_rv_fine *f);
/* The continuum's basis: npoly, basis, lndet of an arm that has its pixels. */
spx_status spx_rv_make_basis(spx_rv_arm *a, const spx_rvfit_options *o, spx_err *e);
/* That of pixels which are `bin` of the basis's, n of them: means of the functions. */
spx_status spx_rv_coarse_basis(const spx_rv_basis *from, size_t bin, size_t n, size_t stride, spx_rv_basis *b,
                               spx_err *e);
/* The coarse model, where there can be one. */
spx_status spx_rv_make_coarse(spx_rv_ctx *c, spx_err *e);
void spx_rv_coarse_free(spx_rv_ctx *coarse);
/* Has the setup what the interpolator works with? */
spx_status spx_rv_check_setup(const spx_setup *s, spx_interpolator which, spx_err *e);
/* Do two setups have the same parameters, nodes and simplices? */
int spx_rv_setups_alike(const spx_setup *a, const spx_setup *b);

/* Axes, ranges, and which quantities are free. */
spx_status spx_rv_make_ranges(spx_rv_ctx *c, spx_err *e);
/* The mapping of each axis in which cubic interpolation errs least: c->grid.transform, and the axes in it. */
spx_status spx_rv_choose_axis_transforms(spx_rv_ctx *c, spx_err *e);
/* Barycentric coordinates as functions of the mapped parameters. */
spx_status spx_rv_make_simplices(spx_rv_ctx *c, spx_err *e);
/* Fourier transforms and the common velocity grid of the cross-correlation; none when an arm has no set. */
spx_status spx_rv_make_ccf(spx_rv_ctx *c, spx_err *e);
/* Velocities of the velocity scan: steps of less than a pixel, all over the range. */
spx_status spx_rv_scan_init(spx_rv_ctx *c, spx_err *e);

#endif
