/* Provides the subtraction of the sky from a frame: one deconvolved spectrum s for all fibres, of which each fibre has
 * its own view through its resolution matrix, with its own scale, shift and width (sky/params.h):
 *
 *     m_i = t_i o c_i + t_i0 (delta_i o D1 c_i + 1/2 kappa_i o D2 c_i),    c_i = R_i S_i (s + sum_q x_iq b_q)
 *
 * b_q: optional spectra that vary with a coordinate x_q of the fibres: smooth ones for gradients over the focal plane,
 * steps for offsets of amplifiers. S_i: shift by the known difference of barycentric velocities (Lagrange, 8 bins).
 *
 * s and b solve the normal equations of the sky fibres, with corrections from the residuals until nothing changes; all
 * other quantities are measured in between. var(m_i) = t_i^2 diag(R_i C R_i^T) + G cov_i G^T, C the covariance of s
 * inside its band by selected inversion, G the columns of the quantities. What is decided is decided on the host, once
 * for all backends (sky/engine.h). */
#ifndef SPX_KERNEL_SKY_H
#define SPX_KERNEL_SKY_H

#include "base/err.h"
#include "products/sky.h"
#include "sky/params.h"

/* Light that the scale of a fibre multiplies: all of the sky, its lines only, or no scale. The scale of a fibre with a
 * star is measured on sky lines. */
typedef enum { SPX_SKY_SCALE_ALL, SPX_SKY_SCALE_LINES, SPX_SKY_SCALE_NONE } spx_sky_scale;

typedef struct {
    spx_sky_terms terms;
    spx_sky_scale scale;
    double knots;           /* of a star's continuum, Angstrom; 0: of spx_sky_knots() */
    double gradient_knots;  /* of spectra of a gradient, Angstrom */
    size_t degree;          /* of the prior of shift and width over the fibres */
    const double *together; /* [K] fibres have moved as one: little scatter is expected (sky/params.h); NULL: they have
                               not */
    int quantities;         /* those of the fibres alone are wanted: no model, no variance (NULL), no covariance of s;
                               chi2 is that of the fit, of all bins, and there is no other */
    double reject;          /* bins of sky fibres further off than this many errors are left out; 0: none */
    double shift_error;     /* Angstrom: a shift that is not reason enough to leave a bin out */
    double tolerance;       /* the iteration ends when no bin of a sky fibre changes by more, in errors */
    size_t most_passes;
    int nthreads;
} spx_sky_options;

spx_sky_options spx_sky_defaults(void);

/* A frame. Arrays stay the caller's; resolution, flux and ivar are blocks of spx_alloc(), whose pages a device may
 * lock. */
typedef struct {
    size_t nspec, nwave, ndiag;
    const double *wavelength;       /* [nwave] Angstrom, uniform */
    const double *resolution;       /* [nspec][ndiag][nwave] */
    const double *flux, *ivar;      /* [nspec][nwave]; ivar 0: not used */
    const uint8_t *role;            /* [nspec] SPX_SKY_TARGET, SPX_SKY_FIBRE or SPX_SKY_HELD_OUT */
    const double *place;            /* [nspec] of the fibres in the slit, -1 ... 1 */
    const double *velocity;         /* [nspec] barycentric velocities that the grid was made with, km/s; NULL: none */
    size_t ngradient;               /* coordinates, at most 2 */
    const double *coordinate[2];    /* [nspec] each */
    const char *coordinate_name[2]; /* "x", "y" */
    const double *moved; /* [nspec][K] by which fibres have been moved already: prior of the sum; NULL: none */
    const double *side;  /* [nspec] 0 or 1: amplifier that reads the fibre; NULL: no offsets */
    size_t split;        /* first bin of the second pair of amplifiers */
} spx_sky_input;

/* Finds the sky; out->converged: it has settled within most_passes. SPX_EINPUT: no resolution matrix, no uniform grid,
 * no usable sky fibre; SPX_EUSAGE: options that make no sense; SPX_EIO: memory. Free *out with spx_sky_free(), also
 * after an error. */
spx_status spx_sky_cpu(const spx_sky_input *in, const spx_sky_options *o, spx_sky *out, spx_err *e);

/* Bins over sigma of the rows of the resolution matrix: a median over some bins of some sky fibres; infinite: bins are
 * much wider than lines; 0: not known. */
double spx_sky_bin_in_sigma(const spx_sky_input *in);

/* Distance of the knots of a star's continuum, Angstrom: 25, or 30 sigma of a line where that is more. A continuum that
 * is not much smoother than lines follows those of the star in part, and the rest is taken for shifts and widths of
 * the sky: of a camera of 3 Angstrom sigma, knots of 8 sigma left temperatures wrong by 0.2 of their errors. */
double spx_sky_knots(const spx_sky_input *in);

/* Subtracts it: flux - model, ivar = 1/(1/ivar + variance), mask |= bad_bit in bins without sky and in sky fibres that
 * were rejected; flux, ivar, mask [nspec][nwave]. Without sky flux and ivar become 0. */
void spx_sky_subtract(const spx_sky *sky, uint32_t bad_bit, int nthreads, double *flux, double *ivar, uint32_t *mask);

#endif
