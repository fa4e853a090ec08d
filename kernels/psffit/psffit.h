/* Provides the fit of traces and PSF to exposures of arc lamps.
 *
 * Pixel p of exposure e: m_p = b_p + sum_s f_s S_s(p), sum over spots s = (fibre i, line l). Free are
 *
 *     fluxes f_s, linear: no ratios of lines are assumed, and a lamp that is off does no harm
 *     traces X_i(lambda), Y_i(lambda): Legendre series of each fibre
 *     shape of each bundle: every local parameter q of a spot (GHSIGX, GHSIGY, GH-i-j) is
 *         q(v, lambda) = sum_ab q_ab P_a(v) P_b(u), v the fibre on [-1, 1] in its bundle, u the wavelength on [-1, 1]
 *     background b: the continuum of each fibre, cubic B-splines of the row times its cross profile, and a constant of
 *         the bundle, linear and eliminated with the fluxes; the profile has a place and a width of its own
 *     with several exposures: one shift (dx, dy) of each but the first
 *
 * Variable projection (Golub & Pereyra 1973, SIAM J. Numer. Anal. 10, 413; Kaufman 1975, BIT 15, 49): fluxes are
 * eliminated, H = H_tt - H_tf N_ff^-1 H_ft + prior, and the others found by Levenberg-Marquardt steps. The variance of
 * a pixel is that of the model. The place of lines that are listed wrong, and light that is not listed, are found.
 * Bundles are independent work items: results do not depend on the number of threads.
 *
 * The method and the use of lines are those of specex (Guy et al. 2023, AJ 165, 144), but fluxes are eliminated, and
 * blends need not be avoided. */
#ifndef SPX_PSFFIT_H
#define SPX_PSFFIT_H

#include <stddef.h>

#include "base/err.h"
#include "base/progress.h"
#include "products/image.h"
#include "products/psf.h"
#include "products/psffit.h"
#include "spectral/lines.h"

typedef struct {
    size_t nexp;
    const spx_image *image; /* [nexp], of equal size; a pixel that is not finite counts as masked */
    char *const *name;      /* [nexp] for messages; may be NULL */
    const spx_psf *start;   /* of type Gauss-Hermite */
    double moved[2];        /* by which start was moved in x and y from the PSF that shifts are against, pixels */
    size_t nline;
    const spx_arc_line *line; /* [nline], by increasing wavelength, in vacuum */
} spx_psffit_input;

struct spx_pf_device;

typedef struct {
    int trace_degree;     /* of the traces' series */
    int hermite_degree;   /* highest i and j of GH-i-j */
    double hermite_width; /* widths of the series by those of Gaussians, 0.5 to 1; 1: free */
    int shape_degree_fibre, shape_degree_wave;
    int hsizex, hsizey;               /* half size of a spot, pixels */
    size_t bundle_size;               /* fibres; 0: bundles of the start, or 25 where it has none */
    size_t bundle_first, bundle_last; /* bundles that are fitted, without the last; the others keep their start */
    int fix_shape;                    /* the shape stays that of the start */
    int shift_exposures;              /* exposures have shifts of their own */
    int max_iterations;               /* of each bundle, in all passes together */
    int want_model;                   /* fill model and chi of the result */
    int trial;                        /* judges another fit: no errors, motions, or shapes of other bundles */
    double hopeless;                  /* ends where a bundle's misfit is above it after its first stage, whose sums of
                                       * residuals are its result then; 0: never */
    int nthreads;
    const struct spx_pf_device *device; /* the CPU's part, too, where not NULL: set by a backend */
    spx_progress *progress;             /* counts bundles, twice; may be NULL */
} spx_psffit_options;

spx_psffit_options spx_psffit_defaults(void);

/* Number of bundles of a fit that begins with `start`. */
size_t spx_psffit_bundles(const spx_psf *start, const spx_psffit_options *o);

/* Fits traces and shape; fills zeroed *psf and *fit, freed with spx_psf_free() and spx_psffit_free() also after an
 * error. spx_blas_open() must have been called. SPX_EINPUT: images of different size, no line on the CCD, a start of
 * another size, an exposure without lines of lamps; SPX_ENO: no bundle could be fitted; SPX_EUSAGE: degrees out of
 * range; SPX_EIO: memory. */
spx_status spx_psffit_make(const spx_psffit_input *in, const spx_psffit_options *o, spx_psf *psf, spx_psffit *fit,
                           spx_err *e) SPX_NODISCARD;

typedef struct {
    double level;          /* ceiling of the image, in its units; 0: it has none */
    size_t npix;           /* pixels at the ceiling, now masked */
    size_t npeak, nbright; /* peaks of rows there, and of all with S/N above 100 */
} spx_psffit_saturation;

/* Looks for saturated pixels that an arc does not flag, and masks them (SPX_CCD_SATURATED): where the highest peaks of
 * the image's rows have one level, to 6 %, far more than below it, and many of them flat tops, as spots have not. Where
 * amplifiers saturate at levels farther apart, the highest is found. SPX_EIO: memory. */
spx_status spx_psffit_saturated(spx_image *im, spx_psffit_saturation *out, spx_err *e) SPX_NODISCARD;

/* Whether a pixel within one of column x and row y is saturated (SPX_CCD_SATURATED). */
int spx_psffit_spot_saturated(const spx_image *im, long x, long y);

/* Whether most fibres whose spot of a wavelength lies on the CCD have saturated pixels within one of its middle. */
int spx_psffit_line_saturated(const spx_image *im, const spx_psf *psf, double wavelength);

/* Lines of a fit that are saturated in most fibres; *used: of so many that were used and seen. */
size_t spx_psffit_count_saturated(const spx_image *image, const spx_psf *psf, const spx_psffit *fit, size_t *used);

typedef struct {
    size_t with, of; /* lines that have it, of those where it would be seen; 0: there is none */
    double rows;     /* how far from a line, along the rows */
    double part;     /* of the line's light */
} spx_psffit_ghost;

/* Looks among the lines that were found for light that most bright lines have at one distance along the rows, one part
 * of theirs: a second core of spots, or a ghost, beyond what spots can have, which a fit takes for lines that are not
 * listed. Lines of a comb or an etalon that a list lacks, behind which there is another one at the same distance, are
 * not taken for it. Fibres are flagged then (SPX_PSF_BADFIT), since a star's spectrum has it, too. psf->status must be
 * there. */
void spx_psffit_find_ghost(spx_psf *psf, spx_psffit *fit, spx_psffit_ghost *out);

#endif
