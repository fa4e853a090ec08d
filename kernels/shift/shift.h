/* Provides traces that have moved: shifts and widths across the traces from the image (part X), along them from what
 * fibres share, sky or lamp (part Y), and their zero point from lines at known wavelengths.
 *
 * Part X. Local normal equations (extract/motion.h) of each fibre in a few windows; the smooth function that they are
 * fitted with is a Legendre series in wavelength times one in the number of the fibre, and an offset a bundle with a
 * prior of 0.01 pixel (0.005 of the width); coefficients have a prior of 0.5 pixel (0.1). Gauss-Newton, until a step is
 * so small that the next would be nothing. */
#ifndef SPX_SHIFT_KERNEL_H
#define SPX_SHIFT_KERNEL_H

#include <stddef.h>

#include "base/err.h"
#include "extract/motion.h"
#include "products/image.h"
#include "products/psf.h"
#include "products/shift.h"

typedef struct {
    double wmin, wmax, dw; /* wavelengths that are extracted, and their step, Angstrom */
    size_t bundle_size;
    size_t nwindow; /* of each fibre: 4 */
    double window;  /* length, Angstrom: 60 */
    /* Highest degrees in wavelength and fibre of part X; negative: 2, and what the number of fibres bears, at most 7 */
    int degree_wave, degree_fibre;
    int width; /* 0: widths stay as they are */
    int nthreads;
} spx_shift_options;

/* Measures windows: spx_motion_cpu() or a device's. */
typedef spx_status spx_shift_measure(void *ctx, const spx_image *image, const spx_psf *psf, const spx_motion_options *o,
                                     spx_motion_row *row, spx_motion_fit *fit, spx_err *e);

/* Places at which a product gives changes. */
enum { SPX_SHIFT_PLACES = 9 };

/* Copy of a PSF. Free with spx_psf_free(). */
spx_status spx_shift_psf_copy(const spx_psf *from, spx_psf *to, spx_err *e) SPX_NODISCARD;

/* Part X: measures the traces of `psf`, which are changed in place, and fills part X of a zeroed *out, with its places.
 * Traces without light stay as they are. SPX_EUSAGE: options that make no sense for this PSF. */
spx_status spx_shift_across(spx_shift_measure *measure, void *ctx, const spx_image *image, spx_psf *psf,
                            const spx_shift_options *o, spx_shift *out, spx_err *e) SPX_NODISCARD;

/* Adds to a Legendre series c[n] over wmin ... wmax the polynomial that is nearest to values y[m] at wavelengths
 * lambda[m] (least squares); the first `use` coefficients, at most 16, change. */
void spx_shift_add_series(size_t n, double *c, double wmin, double wmax, size_t use, size_t m, const double *lambda,
                          const double *y);

#endif
