/* Stage `flux`: response of a camera from standard stars, and flux calibration with it.
 *
 * Model of star s: D_s = a_s R_s (C o T_s), o bin by bin. C[n]: response, deconvolved, so that it may hold telluric
 * bands; T_s[n]: model of the star outside the atmosphere, as it would reach the CCD without blurring (the template of
 * the velocity fit with its own continuum); a_s: grey scale. C minimises
 *     sum_s |D_s - a_s R_s diag(T_s) C|^2_w + sum_k lambda_k (C_(k-1) - 2 C_k + C_(k+1))^2,
 * lambda_k = `smooth` times the median diagonal of the normal matrix off telluric bands, `smooth_band` times within
 * them. smooth 0: lambda_k is found, as two functions, one off bands and one within, that are straight in their
 * logarithm between nodes 100 Angstrom apart: the penalty is the prior of a response whose second differences are
 * independent and normal, of a variance that changes along the arm, and its likelihood (evidence) is largest where, h_j
 * being the hat of node j (MacKay 1992), sum_k h_j (1 - lambda_k v_k) = sum_k h_j lambda_k (C_(k-1) - 2 C_k +
 * C_(k+1))^2 / max(1, chi^2), v_k: variance of the second difference, chi^2: median of the stars. 1e2 to 1e10 times the
 * median diagonal off bands, 1e-8 to `smooth_band` times within: a band is no one density of lines, and where noise
 * hides them the evidence would take all for noise. Steep ends are followed, and a smooth response does not take the
 * stars' lines. The matrix is banded, and the band of its inverse is the covariance of C, exact for any R
 * (calib/band.h). In turn a_s = <D, R C T>/<R C T, R C T>, of median 1 over the stars.
 *
 * Rows of R that the ends of the spectrum cut, and which lack the light from beyond, are scaled to the sum of the
 * nearest whole row, as the velocity fit does: as if C T went on beyond the ends.
 *
 * Bins beyond `clip` times sqrt(max(1, median chi^2 of the star)) are rejected, and all tested again in each pass; not
 * those of telluric bands that most stars reject, where C does not follow a line yet. A
 * star is left out whose scale is more than 4 robust standard deviations and 20 % from the median (only where scales
 * are expected to be equal), which loses a fifth of its bins, or whose smooth residual is more than 4 robust standard
 * deviations above the median and above 5 %. No star has more than four times the median weight.
 *
 * Error of the models: e_sb, relative residual of star s in block b of about 100 Angstrom, has the variance
 * (1 - h_sb) (sigma_sb^2 + tau_b^2), h: share of the star in the weight of all. tau_b by moments, 8 rounds, averaged
 * over three blocks; the response has the error tau sqrt(sum W^2)/sum W from it. That does not shrink with the number
 * of bins, as the covariance does. To it is added, bin by bin, what the grid leaves of lines that are not resolved,
 * which all stars have alike: 0.6 % of the range of R C in the nine bins around, and in quadrature 0.6 % over the
 * square of sigma of the rows of R in bins, by exposures of r and z with bins of 0.6 to 1.5 Angstrom, lines of 1 to 1.6
 * times the width, and air of 0.4 to 2 times the depth.
 *
 * Calibration of fibre i: C_i = R_i C, flux D/C_i, R'_i = diag(C_i)^-1 R_i diag(C), whose rows sum to 1 and with which
 * R'_i T is exactly the flux of a star T. Inverse variance w C_i^2, and the variance
 * flux^2 (diag(R_i cov(C) R_i^T)/C_i^2 + model_error^2 + floor^2) is added. */
#ifndef SPX_FLUX_H
#define SPX_FLUX_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "products/flux.h"
#include "products/spectra.h"

enum { SPX_FLUX_LEAST_STARS = 3, SPX_FLUX_LEAST_BINS = 50 };

typedef struct {
    double smooth, smooth_band; /* 0: found; 1e-2, at most where smooth is found */
    size_t nband;
    const double *band; /* [nband][2] telluric bands, Angstrom, in the medium of the wavelengths */
    double clip;        /* 6; 0: nothing is rejected */
    int passes;         /* 6 */
    int nthreads;
} spx_flux_options;

/* Standard stars of a frame. Rows are those of the frame. */
typedef struct {
    size_t nstar;
    const size_t *row;   /* [nstar] spectra of the frame */
    const double *model; /* [nstar][nwave] T, on the frame's bins; 0: not known */
    int calibrated;      /* 1: models are in units of flux, so that scales are expected to be equal */
} spx_flux_stars;

/* The values above, no bands, one thread. */
void spx_flux_options_init(spx_flux_options *o);

/* Telluric bands of oxygen and water, Angstrom in vacuum. */
extern const double spx_flux_bands[][2];
extern const size_t spx_flux_nband;

/* Finds the response. `arm`: flux (electron/Angstrom), ivar, mask, resolution [nspec] of the frame, wavelengths. Fills
 * *out (zeroed before; spx_flux_free()), but for camera, unit, exptime, targetid and floor, which the caller sets. The
 * result does not depend on the number of threads. SPX_EINPUT: fewer than 3 stars can be used, no resolution, no light.
 */
spx_status spx_flux_solve_cpu(const spx_arm *arm, const spx_flux_stars *in, const spx_flux_options *o, spx_flux *out,
                              spx_err *e);

/* Calibrates nspec spectra in place: flux, ivar, resolution; `factor`: the frame's exposure time over the response's.
 * Bins that the response does not know (no star had a good bin; C_i is less than three times its error) get flux and
 * ivar 0, SPX_NODATA, and keep their row of R. *nbad (may be NULL) gets the number of wavelengths of these. SPX_EINPUT:
 * wavelengths differ. The unit is the caller's to set. */
spx_status spx_flux_apply_cpu(const spx_flux *f, double factor, int nthreads, size_t nspec, spx_arm *arm, size_t *nbad,
                              spx_err *e);

/* t[n] on wavelength[n] from values on other bins, tin[nin] on win[nin]: Lagrange's interpolation through eight bins
 * (exact where bins coincide); 0 beyond them, and where any of the eight is 0. Both increase; nin >= 8. */
void spx_flux_on_bins(size_t nin, const double *win, const double *tin, size_t n, const double *wavelength, double *t);

/* Passbands that scale a template t[n] per unit wavelength (any unit) on wavelength[n] (Angstrom): factor that makes it
 * a flux in 1e-17 erg/s/cm^2/Angstrom of `nanomaggies` (AB, 3.631e-29 erg/s/cm^2/Hz each), with <f_nu> = int f lambda
 * dlambda / (c int dlambda/lambda) over the band lo ... hi, whose edges are sharp. 0 where less than nine tenths of the
 * band have a template, or the flux is not positive. */
double spx_flux_factor(size_t n, const double *wavelength, const double *t, double lo, double hi, double nanomaggies);

/* ---- shared by the backends ---- */

/* Scales of the rows of r[ndiag][n] that the ends cut: scale[2 * (ndiag/2)], of rows 0, 1, ... and then n-ndiag/2, ...
 */
void spx_flux_end_rows(size_t n, size_t ndiag, const double *r, double *scale);

/* SPX_EINPUT unless the response and the arm have the same wavelengths, to 1e-6 Angstrom. */
spx_status spx_flux_check(const spx_flux *f, size_t nspec, const spx_arm *arm, spx_err *e);

#endif
