/* Stage `extract`: spectra out of a CCD image by 2-D modelling ("spectroperfectionism", Bolton & Schlegel 2010, PASP
 * 122, 248; B&S below).
 *
 * The image is modelled as p = A f + noise, where column j of A is the PSF spot of one (fibre, wavelength) bin. With
 * W = diag(ivar), M = A^T W A and C = M^-1, the deconvolved flux is x = C A^T W p. For each fibre, Q is the symmetric
 * square root of the inverse of its own block of C (B&S eq. 19); with s the row sums of Q:
 *     resolution matrix R = diag(1/s) Q,   flux = R x,   ivar = s^2,
 * so that the errors of the flux are uncorrelated and R says exactly what was done to the spectrum. A bin is the light
 * of its central wavelength: R acts on a spectrum that is sampled at the centres (brought there by interpolation), not
 * averaged over the bins, which would broaden it by a bin once more.
 *
 * One call extracts any number of fibres of a frame. All methods share options, output and diagnostics. */
#ifndef SPX_EXTRACT_H
#define SPX_EXTRACT_H

#include <stddef.h>

#include "base/err.h"
#include "base/fallback.h"
#include "base/hook.h"
#include "base/progress.h"
#include "products/image.h"
#include "products/psf.h"
#include "products/spectra.h"

/* How the equations are solved: patch by patch with dense algebra (plain, slow, and the definition of correct), or
 * whole traces with banded algebra. */
typedef enum { SPX_METHOD_PATCH = 0, SPX_METHOD_TRACE = 1 } spx_extract_method;

/* Variance of the pixels: 1/ivar of the image, or, of the trace method, the image's read noise squared and the photons
 * of the model, whose spectra are smoothed where they have no lines. */
typedef enum { SPX_VARIANCE_DATA = 0, SPX_VARIANCE_MODEL = 1 } spx_variance;

/* Least distance of a background's knots, pixels: it has to be smooth over many fibres. */
enum { SPX_EXTRACT_LEAST_CELL = 64 };

typedef struct {
    spx_extract_method method;
    size_t first, nspec;   /* fibres first .. first+nspec-1 of the PSF */
    double wmin, wmax, dw; /* bins at wmin + k dw < wmax + dw/2, Angstrom; equal to NumPy's arange() to the last bit */
    /* Layout, counted from fibre 0 of the PSF whatever `first` is: bundles of bundle_size fibres (the last one may be
     * smaller), each in sub_bundles groups: group k holds the bundle's fibres k*bundle_size/sub_bundles up to
     * (k+1)*bundle_size/sub_bundles. A group is solved whole, with its neighbours, when any of its fibres is wanted;
     * so a fibre has the same flux in every subset. */
    size_t bundle_size, sub_bundles;
    int psf_bundles;     /* bundles are those of the PSF, of any size, where it names them (psf->bundle) */
    size_t wave_step;    /* bins kept of a patch */
    size_t wave_pad;     /* bins that a patch solves beyond them, on both sides; below hsizey the outer diagonals of
                          * the resolution are 0 beside a border */
    double pix_pad_frac; /* fraction of the rows that only padding bins reach and that are used, 0..1 */
    double regularize;   /* alpha: alpha^2 is added to the diagonal of M */
    double psf_error;    /* fractional error of the model in chi^2; negative: the PSF's own */
    double tolerance;    /* of the trace method: of its square root, relative; of its fluxes, in standard deviations */
    /* Cosmic-ray hits, of the trace method: pixels more than so many errors above the model of the deconvolved flux
     * are left out; 0: none is looked for. */
    double reject;
    spx_variance variance;
    /* Of the trace method, where the PSF has a tail: how often its light is taken off the image; 2 leave less than
     * 0.005 of it. 0: spots have it within their pixels, and what is beyond them stays. */
    int tail_corrections;
    /* Of the trace method: smooth light between and beneath the traces is fitted with the fluxes, as cubic splines with
     * knots so many pixels apart; 0: there is none. */
    double background;
    /* Of the trace method: lines of the sky whose place between bins is taken care of (extract/trace/lines.h): vacuum
     * wavelengths line[nline], Angstrom, on the ground; line_factor [fibres of the PSF]: wavelengths of the PSF over
     * these, NULL: 1. The arrays stay the caller's. */
    const double *line, *line_factor;
    size_t nline;
    int want_model; /* fill the model image */
    int nthreads;   /* 0: OpenMP's default; the result does not depend on it */
    /* Backends with devices; calls may be made from several threads at the same time, for a queue of frames. */
    int device;            /* which of the backend's devices, modulo their number; negative: a frame's bundles are
                            * shared out among all of them */
    int queued;            /* 1: others are extracted on the device beside this frame, which is not waited for */
    size_t max_device_mem; /* bytes that the call may take on a device; 0: what is free */
    spx_progress *progress;
    spx_hook *hook; /* called with the result, which it may change (spx_extract_hook()); may be NULL */
} spx_extract_options;

/* Steps of the trace method that are timed. */
typedef enum {
    SPX_EXTRACT_BEGIN,      /* checks, pixel weights */
    SPX_EXTRACT_PLAN,       /* memory, places of the spots, pixels of a bundle */
    SPX_EXTRACT_EQUATIONS,  /* spots and their overlaps */
    SPX_EXTRACT_SOLVE,      /* deconvolved flux */
    SPX_EXTRACT_SCREEN,     /* cosmic-ray hits, variance of the model */
    SPX_EXTRACT_SCHUR,      /* information of each fibre without its neighbours */
    SPX_EXTRACT_FIT,        /* spots again: model and chi^2 */
    SPX_EXTRACT_ROOT,       /* square root: flux, ivar, resolution */
    SPX_EXTRACT_TAIL,       /* light of tails */
    SPX_EXTRACT_BACKGROUND, /* fit of the background */
    SPX_EXTRACT_END,        /* masks, units, model image */
    SPX_EXTRACT_STEPS
} spx_extract_step_id;

/* What was met on the way. */
typedef struct {
    size_t npatch;             /* systems of equations solved */
    size_t npatch_failed;      /* of them without a solution: flux 0, ivar 0, mask ALLBADPIX | BAD2DFIT */
    size_t npatch_regularised; /* of them (trace method) that were solved again with regularisation */
    size_t npatch_inexact; /* of them (trace method) whose bins are so narrow that fluxes are not exact to a tenth of
                            * their errors: mask BAD2DFIT */
    size_t nbin;           /* bins in the output */
    size_t nbin_empty;     /* of them without information */
    size_t nbin_nospot;    /* of them without a usable PSF: sigma not above 0, centre not finite, no positive pixel;
                            * the CPU's traces do not ask where all rows of a spot are masked */
    size_t nbin_outside;   /* of them where the PSF says that the trace may not be used (spx_psf_usable()) */
    size_t npix;           /* pixels in the image */
    size_t npix_masked;    /* of them with a mask bit, or ivar 0 */
    size_t npix_bad;       /* of them with a value or ivar that is not finite, or ivar < 0: treated as masked */
    size_t npix_rejected;  /* pixels rejected as hit by cosmic rays; not counted as masked */
    double tolerance;      /* that was reached (trace method): more than was asked for where bins are so much narrower
                            * than the PSF that little more than rounding is left; else that, or 0 without spectra */
    /* Bound of what rounding makes of the fluxes, in their errors (above a signal-to-noise ratio of a hundred in
     * proportion to it), where masks leave so little of some bins that others have to tell what is in them. Trace
     * method; 0: less than the tolerance. */
    double rounding;
    size_t nbin_cosmic; /* bins in the output that are COSMIC */
    /* Electrons of tails on the CCD, and of the cores of all fibres; the last correction's change of the first,
     * relative. 0 without corrections. */
    double tail_light, core_light, tail_change;
    /* Of the background: its mean over the bins of the output, electrons a pixel; unknowns, pixels that were left out
     * as hits. 0 without one. */
    double background;
    size_t background_unknowns, background_clipped;
    /* Of lines between bins: those on the grid, and the electrons of all of them in a fibre, a median. */
    size_t nline;
    double line_light;
    double seconds[SPX_EXTRACT_STEPS]; /* of processor time by step, all threads; the trace method's */
    spx_fallback fallback;             /* bundles (trace method), and those that a device left to the CPU */
    double device_seconds;             /* from the first transfer to the last, where a device computed; else 0 */
} spx_extract_counts;

/* The defaults of the patch method, which are those of the reference programs; first, nspec, wmin, wmax and dw are left
 * 0. */
spx_extract_options spx_extract_defaults(void);

/* Units of work that a call with these options will report to `progress`; 0 when it would refuse the options. */
size_t spx_extract_patch_units(const spx_psf *psf, const spx_extract_options *o);

/* Extract with patches and dense algebra, on the CPU: the definition of correct for every other method.
 *
 * *out (whose other members are 0) gets: nspec, arm (name: band; wavelength [nwave], vacuum, topocentric; flux
 * electron/Angstrom, ivar, mask, resolution with 2 hsizey + 1 diagonals), chi2pix, pixmask_fraction, fiber, camera and,
 * if wanted, the model image in electrons (size of the input image): the sum of flux times spot of the bins in the
 * output. Header, fibermap and scores are left as they are.
 * Free with spx_frame_free(), also after an error. No value is NaN or infinite.
 *
 * - background [nspec][nwave], with the option: electrons a pixel at the place of the bin; the model image has it, too.
 * - pixmask_fraction: fraction of a bin's spot on pixels without information; pixels off the CCD count as such.
 * - mask: SOMEBADPIX where it is above 1/2; ALLBADPIX where it is 1 to rounding: no information, flux 0, ivar 0;
 *   BAD2DFIT where chi2pix is above 1 and above 5 times both its median over the extracted fibres at that wavelength
 * and its median over the fibre's wavelengths (medians over bins with information, so this bit depends on the fibres
 * that are extracted together; a single fibre has nothing to compare with and never gets it).
 * - chi2pix: chi^2 a pixel of the model, weighted with the bin's spot, with the error of the PSF model added to the
 *   noise; 0 where there is no information.
 *
 * SPX_EUSAGE: options that make no sense (fibres beyond the PSF, empty wavelength range, ...); SPX_EINPUT: no bin on
 * the CCD, or more than 95 % of the pixels under the traces masked; SPX_EIO: memory. */
spx_status spx_extract_patch_cpu(const spx_image *image, const spx_psf *psf, const spx_extract_options *o,
                                 spx_frame *out, spx_extract_counts *counts, spx_err *e) SPX_NODISCARD;

/* Defaults of the trace method: as above, with wave_pad 40, pix_pad_frac 0.9, sub_bundles 1 and tolerance 1e-8. */
spx_extract_options spx_extract_trace_defaults(void);

/* Units of work (fibres that are solved) that spx_extract_trace_cpu() will report to `progress`; 0 when it would
 * refuse the options. */
size_t spx_extract_trace_units(const spx_psf *psf, const spx_extract_options *o);

/* Extract whole traces, on the CPU: the same contract as spx_extract_patch_cpu(), and the same equations as it has with
 * one patch for a whole bundle (sub_bundles 1, wave_step of all wavelengths): no seams, and a hundredth of the
 * arithmetic. Options that differ:
 * - sub_bundles is not used; wave_pad bins are solved beyond the wanted wavelengths at both ends.
 * - wave_step: bins within wave_step + 2 wave_pad of a bin, of all fibres of its bundle, make the max(w) of its
 *   regularisation (where its flux weight w is below m = 1e-4 max(w), alpha is m - w).
 * - tolerance, 1e-13..0.01: chooses the poles of the square root and ends the iteration that gives the fluxes.
 * counts: npatch is the number of traces; one whose equations have no solution is tried again with regularisation 1e-4,
 * then flagged.
 * SPX_EUSAGE also where bins are so small that one overlaps with more than 96 others of its trace.
 * Arithmetic: vectors as wide as the processor has; results differ between instruction sets by rounding. */
spx_status spx_extract_trace_cpu(const spx_image *image, const spx_psf *psf, const spx_extract_options *o,
                                 spx_frame *out, spx_extract_counts *counts, spx_err *e) SPX_NODISCARD;

/* Takes the tails of a PSF, where it has some and o->tail_corrections is not 0, off an image, of all fibres: the light
 * that they have beyond the pixels of their spots, which keep theirs. For programs that look at spots alone; extraction
 * by the trace method with corrections has its own. *tables: NULL at first; kept for the next image, where its PSF,
 * options and size are the same; free with spx_extract_tails_free(). Errors as of spx_extract_trace_cpu(), but an image
 * without light is none: nothing is taken. The result does not depend on the number of threads, nor on what was kept.
 */
typedef struct spx_extract_tails spx_extract_tails;
spx_status spx_extract_take_tails(spx_image *image, const spx_psf *psf, const spx_extract_options *o,
                                  spx_extract_tails **tables, spx_err *e) SPX_NODISCARD;
void spx_extract_tails_free(spx_extract_tails *tables);

/* Both methods on the CPU, and their units of work, by o->method. The first calls the hook when the frame is complete;
 * spx_extract_trace_cpu() and spx_extract_patch_cpu() call none. */
spx_status spx_extract_cpu(const spx_image *image, const spx_psf *psf, const spx_extract_options *o, spx_frame *out,
                           spx_extract_counts *counts, spx_err *e) SPX_NODISCARD;
size_t spx_extract_units(const spx_psf *psf, const spx_extract_options *o);

/* The hook for a frame that is complete, if there is one: arrays flux, ivar, mask, resolution, chi2pix,
 * pixmask_fraction [nspec,(ndiag,)nwave], wavelength [nwave], fiber [nspec]; the first four may be changed. The arrays
 * of *frame are at `at`: the CPU's result itself; on a CUDA device those that the kernels have written to, before they
 * come to the host.
 */
spx_status spx_extract_hook(spx_hook *hook, const spx_frame *frame, spx_hook_space at, spx_err *e);
/* What it has changed, when it is in the host's memory. SPX_EHOOK where flux, ivar or resolution are not finite, or
 * ivar is negative. */
spx_status spx_extract_hook_check(const spx_hook *hook, const spx_frame *out, spx_err *e);

/* Name of the camera's arm, or where the camera has no name b, r or z by mean wavelength. */
void spx_extract_arm(const char *camera, double mean_wavelength, char arm[SPX_ARM_NAME]);

/* Number of bins with information at wavelengths that the PSF was not made for, which are *lo to *hi, Angstrom: what
 * its series give there nobody has looked at. */
size_t spx_extract_beyond(const spx_frame *frame, const spx_psf *psf, double *lo, double *hi);

/* Wavelength range that the scores of an arm are taken over. */
typedef struct {
    char arm[SPX_ARM_NAME];
    double wlo, whi; /* wlo <= wavelength < whi, Angstrom */
} spx_score_range;

/* Scores as in DESI frames, over the fixed range of the arms b, r and z (4000-5800, 5800-7600, 7600-9800 Angstrom), or
 * over the whole grid of other arms and where it has no bin there: sum of the electrons (sum of flux times bin width),
 * median electrons per Angstrom, and median signal-to-noise ratio per sqrt(Angstrom); [nspec] each. The number of
 * threads changes nothing.
 */
spx_status spx_extract_scores(const spx_frame *frame, int nthreads, double *sum_count, double *median_count,
                              double *median_snr, spx_score_range *range, spx_err *e) SPX_NODISCARD;

#endif
