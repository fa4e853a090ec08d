/* Provides what every extraction method does before and after it solves its equations. Private to kernels/extract/. */
#ifndef SPX_EXTRACT_COMMON_H
#define SPX_EXTRACT_COMMON_H

#include <math.h>

#include "extract/extract.h"

/* Inputs after their check. */
typedef struct {
    const spx_image *image;
    const spx_psf *psf;
    const spx_extract_options *o;
    size_t nwave;
    double psf_error;
    float *
        weight; /* [ny][nx] of spx_extract_pixel_weight(), or those that followed; NULL: as the image has them; owned */
    const float *far; /* [ny][nx] light beyond the spots, which is taken off, and which the model has; NULL: none */
} spx_extract_job;

/* Distance of two bins: dw as it is after being added to wmin once. That is the rounding of NumPy's arange(), so that
 * grids are equal to those of existing files to the last bit. */
static inline double spx_extract_step(const spx_extract_options *o)
{
    double next = o->wmin + o->dw;
    return next - o->wmin;
}

/* Wavelength of bin k; k may be negative or beyond the grid (padding). */
static inline double spx_extract_lambda(const spx_extract_options *o, long k)
{
    return o->wmin + (double)k * spx_extract_step(o);
}

/* ivar of a pixel that may be used; 0: it may not. Never NaN, infinite or negative. */
static inline float spx_extract_pixel_weight(const spx_image *im, size_t k)
{
    const int good = isfinite(im->data[k]) && isfinite(im->ivar[k]) && im->ivar[k] > 0.0f;
    return good && (im->mask == NULL || im->mask[k] == 0) ? im->ivar[k] : 0.0f;
}

static inline float spx_extract_weight(const spx_extract_job *job, size_t k)
{
    return job->weight != NULL ? job->weight[k] : spx_extract_pixel_weight(job->image, k);
}

/* Whether bundles are looked through before they are extracted. */
static inline int spx_extract_screens(const spx_extract_options *o)
{
    return o->reject > 0.0 || o->variance == SPX_VARIANCE_MODEL;
}

/* Whether light of tails is taken off the image. */
static inline int spx_extract_corrects_tail(const spx_psf *psf, const spx_extract_options *o)
{
    return o->tail_corrections > 0 && spx_psf_has_tail(psf);
}

/* Whether light that spots of bins do not have is taken off the image: tails, a background, lines between bins. */
static inline int spx_extract_goes_beyond(const spx_psf *psf, const spx_extract_options *o)
{
    return spx_extract_corrects_tail(psf, o) || o->background > 0.0 || o->nline > 0;
}

/* SPX_EUSAGE when the options make no sense for this PSF. */
spx_status spx_extract_check(const spx_psf *psf, const spx_extract_options *o, spx_err *e);

/* Why a frame can be extracted on the CPU only: NULL where devices take it. */
const char *spx_extract_on_cpu_only(const spx_psf *psf, const spx_extract_options *o);

/* Bundles, counted from that of fibre 0: the one that a fibre is in, and its fibres, *first and one past the last. */
size_t spx_extract_bundle_of(const spx_psf *psf, const spx_extract_options *o, size_t fibre);
void spx_extract_bundle(const spx_psf *psf, const spx_extract_options *o, size_t bundle, size_t *first, size_t *end);
/* Number of bundles from that of the first wanted fibre to that of the last. */
size_t spx_extract_nbundle(const spx_psf *psf, const spx_extract_options *o);

/* 1 when a bin of a trace has a spot: within the range of its series (wave_range) and, as at the ends of the grid, the
 * padding beyond it. */
int spx_extract_has_spot(const spx_psf *psf, const spx_extract_options *o, size_t fibre, double lambda);

/* Number of bins of a grid: values of arange(wmin, wmax + dw/2, dw); after spx_extract_check(). */
size_t spx_extract_nwave(const spx_extract_options *o);

/* Number of threads that a call may use. */
int spx_extract_threads(const spx_extract_options *o);

/* Check options and inputs, count pixels, build the weights, allocate *out with its wavelengths. */
spx_status spx_extract_begin(const spx_image *image, const spx_psf *psf, const spx_extract_options *o,
                             spx_extract_job *job, spx_frame *out, spx_extract_counts *counts, spx_err *e);

/* Its parts, for a backend that builds the weights elsewhere. Check the options; no weights yet. */
spx_status spx_extract_check_input(const spx_image *image, const spx_psf *psf, const spx_extract_options *o,
                                   spx_extract_job *job, spx_extract_counts *counts, spx_err *e);
/* Weights and counts of pixels: where they are to change. */
spx_status spx_extract_pixel_weights(spx_extract_job *job, spx_extract_counts *counts, spx_err *e);
/* SPX_EINPUT when there is nothing to extract: of the three pixels in the middle of every wanted spot, `seen` are on
 * the CCD, `masked` of these have no weight. */
spx_status spx_extract_check_coverage(const spx_extract_job *job, size_t seen, size_t masked, spx_err *e);
/* The same, from the weights of the job. */
spx_status spx_extract_check_traces(const spx_extract_job *job, spx_err *e);
/* *out with its wavelengths; unset: with anything in flux, ivar, resolution, chi2pix, pixmask_fraction. */
spx_status spx_extract_alloc(const spx_extract_job *job, int unset, spx_frame *out, spx_err *e);

/* After the method has filled flux (electrons per bin), ivar, resolution, chi2pix and pixmask_fraction: model image,
 * empty bins, flux per Angstrom, mask bits, counts. Bits that are already set in the mask stay. */
spx_status spx_extract_end(const spx_extract_job *job, spx_frame *out, spx_extract_counts *counts, spx_err *e);
/* The model image from flux in electrons per bin, for a backend that does the rest of it elsewhere. */
spx_status spx_extract_model(const spx_extract_job *job, spx_frame *out, spx_err *e);

void spx_extract_job_free(spx_extract_job *job);

#endif
