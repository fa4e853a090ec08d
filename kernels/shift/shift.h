/* Provides traces that have moved: shifts and widths across the traces from the image (part X), along them from what
 * fibres share, sky or lamp (part Y), and their zero point from lines at known wavelengths.
 *
 * Part X. Local normal equations (extract/motion.h) of each fibre in a few windows; the smooth function that they are
 * fitted with is a Legendre series in wavelength times one in the number of the fibre, and an offset a bundle with a
 * prior of 0.01 pixel (0.005 of the width); coefficients have a prior of 0.5 pixel (0.1), at last an empirical one:
 * terms of wavelength, of fibres, and of both, have the variance that they show beyond their errors. Gauss-Newton,
 * until a step is so small that the next would be nothing. */
#ifndef SPX_SHIFT_KERNEL_H
#define SPX_SHIFT_KERNEL_H

#include <stddef.h>

#include "base/err.h"
#include "extract/motion.h"
#include "products/image.h"
#include "products/psf.h"
#include "products/shift.h"
#include "products/sky.h"
#include "products/spectra.h"

typedef struct {
    double wmin, wmax, dw; /* wavelengths that are extracted, and their step, Angstrom */
    size_t bundle_size;
    int psf_bundles; /* bundles are those that the PSF names, of any size, where it does */
    size_t nwindow;  /* of each fibre: 6 */
    double window;   /* length, Angstrom: 60 */
    /* Highest degrees in wavelength and fibre of part X; negative: 3, and what the number of fibres bears, at most 7 */
    int degree_wave, degree_fibre;
    int width; /* 0: widths stay as they are */
    int lamp;  /* all fibres see lines so bright that a round of part Y leaves more than its errors */
    int nthreads;
    unsigned long long image; /* its number, by which a device knows that it has it; 0: of none */
} spx_shift_options;

/* Measures windows: spx_motion_cpu() or a device's. */
typedef spx_status spx_shift_measure(void *ctx, const spx_image *image, const spx_psf *psf, const spx_motion_options *o,
                                     spx_motion_row *row, spx_motion_fit *fit, spx_err *e);

/* By how much traces (pixels) and widths (relative) are expected to change: errors of those that nothing tells. */
#define SPX_SHIFT_EXPECTED       0.5
#define SPX_SHIFT_EXPECTED_WIDTH 0.1

/* Places at which a product gives changes. */
enum { SPX_SHIFT_PLACES = 9 };

/* Copy of a PSF. Free with spx_psf_free(). */
spx_status spx_shift_psf_copy(const spx_psf *from, spx_psf *to, spx_err *e) SPX_NODISCARD;

/* Part X: measures the traces of `psf`, which are changed in place, and fills part X of a zeroed *out, with its places.
 * Traces without light stay as they are. SPX_EUSAGE: options that make no sense for this PSF. */
spx_status spx_shift_across(spx_shift_measure *measure, void *ctx, const spx_image *image, spx_psf *psf,
                            const spx_shift_options *o, spx_shift *out, spx_err *e) SPX_NODISCARD;

/* Most coefficients of polynomials that change, and wavelengths that they are compared at: enough for these. */
enum { SPX_SHIFT_MOST_USE = 16, SPX_SHIFT_NODES = 33 };

/* Matrix to[n][m] that gives the n coefficients of the polynomial nearest to m values at wavelengths lambda[m] (least
 * squares), a Legendre series over wmin ... wmax; beyond them it stays near the values at their ends. Returns n: `use`,
 * at most SPX_SHIFT_MOST_USE, or fewer where the wavelengths do not tell as many. spx_shift_project() adds what it
 * gives for values y[m] to c. */
size_t spx_shift_projection(double wmin, double wmax, size_t use, size_t m, const double *lambda, double *to);
void spx_shift_project(size_t n, const double *projection, size_t m, const double *y, double *c);

/* Adds to a Legendre series c[n] over wmin ... wmax the polynomial that is nearest to values y[m] at wavelengths
 * lambda[m] (least squares), m at most SPX_SHIFT_NODES; the first `use` coefficients, at most SPX_SHIFT_MOST_USE,
 * change. */
void spx_shift_add_series(size_t n, double *c, double wmin, double wmax, size_t use, size_t m, const double *lambda,
                          const double *y);

/* ---- along the traces ---- */

/* Lines at known wavelengths (vacuum, Angstrom); strengths matter within blends alone, and to leave faint ones out. */
typedef struct {
    double wavelength, strength;
} spx_shift_line;

typedef struct {
    size_t n;
    spx_shift_line *line;
} spx_shift_lines;

/* Most terms of the zero point, and of the width that lines have in common. */
enum { SPX_SHIFT_ZERO_MOST = 4 };

/* Fibres that share the light of lines. frame: extracted with (nearly) this PSF, its fibers known; light of neighbours
 * that reaches the pixels used is taken from it. */
typedef struct {
    size_t nfibre;
    const size_t *fibre;      /* [nfibre] numbers in the PSF */
    const double *scale;      /* [nfibre] by which the common light is multiplied */
    double first, last, step; /* wavelengths of the bins */
    size_t nterm;             /* of z, 1 to SPX_SHIFT_ZERO_MOST */
    size_t nkappa;            /* of kappa; 0: it is not free */
    double slope;             /* size that the slope of z may have, Angstrom; 0: any */
    double curve;             /* the same of terms above the slope; 0: not known */
    double bend;              /* the same of terms of kappa above the first, Angstrom^2 */
    const spx_frame *frame;
    int nthreads;
    unsigned long long image; /* as in spx_shift_options */
} spx_shift_common;

/* Zero point: bins hold light of wavelength lambda + z(lambda), z = sum_q z[q] P_q over first ... last, Angstrom, with
 * covariance cov[nterm][nterm]; kappa, the same with nkappa terms, Angstrom^2: by how much the square of the spots'
 * width along the traces is larger than the PSF says. Errors contain the scatter tau of lines about z beyond their own
 * errors, and noise beyond that of ivar. chi2, dof: of the places of lines (groups of those that overlap), of which
 * nline tell z; 0: there is none. */
typedef struct {
    size_t nterm, nkappa; /* 0: there is no zero point */
    double z[SPX_SHIFT_ZERO_MOST], cov[SPX_SHIFT_ZERO_MOST * SPX_SHIFT_ZERO_MOST];
    double kappa[SPX_SHIFT_ZERO_MOST], kappa_cov[SPX_SHIFT_ZERO_MOST * SPX_SHIFT_ZERO_MOST];
    double tau, chi2, dof;
    size_t nline;
} spx_shift_zero;

/* Zero point by spots of lines on the image. Never far off: beyond 1.5 bins, with fewer than three lines above 5
 * errors, or without convergence, there is none. The same for any number of threads. SPX_EIO: memory. */
spx_status spx_zero_point_cpu(const spx_image *image, const spx_psf *psf, const spx_shift_common *in,
                              const spx_shift_lines *lines, spx_shift_zero *out, spx_err *e) SPX_NODISCARD;

/* By how much a round has moved traces along: at most, pixels; rms in the middle of the fibres, in units of errors. */
typedef struct {
    double largest, errors;
} spx_shift_moved;

/* Adds to the variance of each bin of a lamp's spectra what the grid of bins and derivatives across it cannot hold of
 * lines: 0.5 % of the brightest of the nine bins around. Beside lines of S/N 1000 they would weigh more than the lines,
 * and shifts be too small. flux, ivar [nspec][nwave]. */
void spx_shift_lamp_variance(size_t nspec, size_t nwave, const double *flux, double *ivar);

/* Part Y: moves the traces of `psf` by what the sky (or a lamp) in a frame says, which was extracted with them. sky:
 * found in that frame, of sky fibres by role[nspec]; their common part by the lines (n 0: none). Fills part Y of *out,
 * which spx_shift_across() has made, or adds to it in a later round. Fibres whose
 * shift is known worse than 0.1 pixel keep their traces. frame->fiber: of the PSF's fibres. SPX_EIO: memory. */
struct spx_shift_engine;
spx_status spx_shift_along(const struct spx_shift_engine *g, const spx_image *image, const spx_frame *frame,
                           const spx_sky *sky, const spx_shift_lines *lines, const spx_shift_options *o, spx_psf *psf,
                           spx_shift *out, spx_shift_moved *moved, spx_err *e) SPX_NODISCARD;

/* ---- all ---- */

/* Functions that measure and extract: the members of a backend, or others. */
typedef struct spx_shift_engine {
    void *ctx;
    spx_shift_measure *measure;
    spx_status (*extract)(void *ctx, const spx_image *image, const spx_psf *psf, spx_frame *frame, spx_err *e);
    /* The sky of a frame, of fibres which are expected to differ by usual[q] Angstrom at most in the terms P_q of
     * delta (q < SPX_SKY_MOST; 0: by anything), and have been moved already (sky/sky.h; NULL: not); *found 0: there is
     * no sky fibre, or no sky. */
    spx_status (*sky)(void *ctx, const spx_frame *frame, const double *usual, const double *moved, spx_sky *sky,
                      int *found, spx_err *e);
    spx_status (*zero_point)(void *ctx, const spx_image *image, const spx_psf *psf, const spx_shift_common *in,
                             const spx_shift_lines *lines, spx_shift_zero *out, spx_err *e);
} spx_shift_engine;

/* Parts X and Y. frame: extracted with this PSF, for the first round; empty: it is extracted when part X has moved the
 * PSF. It is extracted again when part Y has moved the PSF by more than 0.1 pixel, or that of a lamp by three errors;
 * it is the last one then. SPX_EINPUT: frame and PSF do not belong together. */
spx_status spx_shift_traces(const spx_shift_engine *g, const spx_image *image, spx_frame *frame,
                            const spx_shift_lines *lines, const spx_shift_options *o, spx_psf *psf, spx_shift *out,
                            spx_err *e) SPX_NODISCARD;

#endif
