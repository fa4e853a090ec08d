/* Provides traces and widths that have moved since the PSF was measured: an image is drawn through a PSF that differs
 * from the one that its reduction is given.
 *
 * A motion has four quantities, each a Legendre series in wavelength for every fibre:
 *     X, Y    shift of the spot's centre across and along the CCD's columns, pixels: drawn = written + shift
 *     WX, WY  relative change of GHSIGX, GHSIGY: drawn = written (1 + change)
 * as functions of u = 2 (lambda - wmin)/(wmax - wmin) - 1. What is added to a motion adds up. */
#ifndef SPX_SIM_MOTION_H
#define SPX_SIM_MOTION_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "products/psf.h"

typedef enum { SPX_SIM_X, SPX_SIM_Y, SPX_SIM_WX, SPX_SIM_WY, SPX_SIM_NMOTION } spx_sim_quantity;

enum {
    SPX_SIM_MOTION_TERMS = 10, /* of a series in fibre number or wavelength: degrees 0 to 9 */
    SPX_SIM_BUNDLE = 25        /* fibres of a bundle */
};

typedef struct {
    size_t nspec;      /* fibres of the PSF */
    double wmin, wmax; /* Angstrom */
    double *coef;      /* [SPX_SIM_NMOTION][nspec][SPX_SIM_MOTION_TERMS] */
} spx_sim_motion;

/* No motion, over the range of the PSF's traces. Free with spx_sim_motion_free(). */
spx_status spx_sim_motion_make(const spx_psf *psf, spx_sim_motion *m, spx_err *e) SPX_NODISCARD;
void spx_sim_motion_free(spx_sim_motion *m);

/* Adds c P_i(v) P_j(u), v = 2 fibre/(nspec - 1) - 1 (0 for one fibre); i, j < SPX_SIM_MOTION_TERMS. */
void spx_sim_motion_term(spx_sim_motion *m, spx_sim_quantity q, size_t i, size_t j, double c);

/* Adds normal numbers of this rms, one for each fibre or for each bundle of SPX_SIM_BUNDLE fibres. */
void spx_sim_motion_scatter(spx_sim_motion *m, spx_sim_quantity q, int by_bundle, double rms, uint64_t seed,
                            char camera);

/* Adds `size` times a wave over the slit, with p = 1.3 2 pi fibre/nspec + 0.5:
 *     x 0.05 cos p + 0.02 u sin p,  y 0.05 cos p + 0.03 u sin p + 0.01 normal,  both widths 0.01 cos p. */
void spx_sim_motion_wave(spx_sim_motion *m, double size, uint64_t seed, char camera);

/* Motion measured at one place: value[SPX_SIM_NMOTION]. */
typedef struct {
    double fibre, wavelength, value[SPX_SIM_NMOTION];
} spx_sim_point;

/* Adds the polynomials of degree `di` in fibre number and `dj` in wavelength that fit n points best (least squares, all
 * with the same weight). SPX_EINPUT: degrees of SPX_SIM_MOTION_TERMS or more, points outside the PSF's fibres, or ones
 * that do not determine the polynomial. */
spx_status spx_sim_motion_fit(spx_sim_motion *m, size_t n, const spx_sim_point *point, size_t di, size_t dj,
                              spx_err *e) SPX_NODISCARD;

/* Motion of a fibre at a wavelength, value[SPX_SIM_NMOTION]. */
void spx_sim_motion_at(const spx_sim_motion *m, size_t fibre, double wavelength, double *value);

/* PSF with its traces and widths moved, exactly: its series get as many terms as that needs. SPX_EINPUT: a shift of
 * more than 100 pixels, a width less than a fifth or more than five times its own, anything that is not finite. *to:
 * free with spx_psf_free(). */
spx_status spx_sim_motion_apply(const spx_sim_motion *m, const spx_psf *from, spx_psf *to, spx_err *e) SPX_NODISCARD;

#endif
