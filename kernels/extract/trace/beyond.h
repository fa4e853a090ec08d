/* Provides the light beyond the spots of an image for what extracts the rest of it elsewhere, as devices do: found on
 * the host, of tails, a background and lines between bins (extract/trace/tail.c). Private to kernels/extract/.
 *
 * spx_beyond_make() for a job; spx_beyond_find() with the weights as they are, as often as these change; extraction of
 * the image without spx_beyond_light(); spx_beyond_end() on the frame. */
#ifndef SPX_EXTRACT_TRACE_BEYOND_H
#define SPX_EXTRACT_TRACE_BEYOND_H

#include "extract/common.h"

typedef struct spx_beyond spx_beyond;

/* For a job whose PSF is `full` without its tail; full NULL: no tail is taken off. The job has to stay where it is; its
 * image and weights may change. Free with spx_beyond_free(), also after an error. SPX_EINPUT: a tail that differs
 * within the camera (spx_tail_shape_of()); SPX_EIO: memory. */
spx_status spx_beyond_make(const spx_extract_job *job, const spx_psf *full, spx_beyond **b, spx_err *e) SPX_NODISCARD;
void spx_beyond_free(spx_beyond *b);

/* Between frames: gives back what the next one does not need, and goes on with its job, which has the same PSF, options
 * and size of the image. What takes longest is kept: profiles of the rows, tables and transforms of the tail. SPX_EIO:
 * memory. */
void spx_beyond_rest(spx_beyond *b);
spx_status spx_beyond_go_on(spx_beyond *b, const spx_extract_job *job, spx_err *e) SPX_NODISCARD;

/* Whether it is that of a PSF with this tail; full as for spx_beyond_make(). */
int spx_beyond_has_tail_of(const spx_beyond *b, const spx_psf *full);

/* The light of the job's image, with its weights as they are, with so many corrections for tails. counts: light of
 * tails, what is known of the background, seconds. The result does not depend on the number of threads. Errors as of
 * spx_background_fit(). */
spx_status spx_beyond_find(spx_beyond *b, int corrections, spx_extract_counts *counts, spx_err *e) SPX_NODISCARD;

/* It, electrons, [ny][nx]. */
const float *spx_beyond_light(const spx_beyond *b);

/* After spx_extract_end(): flux and ivar of cores as those of spots with their tails; the background at the bins into
 * *out, and its mean into *counts. SPX_EIO: memory. */
spx_status spx_beyond_end(const spx_beyond *b, spx_frame *out, spx_extract_counts *counts, spx_err *e) SPX_NODISCARD;

#endif
