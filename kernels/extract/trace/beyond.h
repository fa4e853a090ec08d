/* Provides the light beyond the spots of an image, of tails, a background and lines between bins
 * (extract/trace/tail.c), for what extracts the rest of it elsewhere, as devices do. Private to kernels/extract/.
 *
 * spx_beyond_make() for a job; spx_beyond_find(), or spx_beyond_find_by() the steps of a device, with the weights as
 * they are, as often as these change; extraction of the image without that light; spx_beyond_end() on the frame. */
#ifndef SPX_EXTRACT_TRACE_BEYOND_H
#define SPX_EXTRACT_TRACE_BEYOND_H

#include "extract/common.h"
#include "extract/trace/background.h"
#include "psf/tail.h"

typedef struct spx_beyond spx_beyond;

/* Rows whose light the tail has next to one place across a pixel, to first order in the distance from it: of the last
 * correction, where each row has a light of its own; and of those before, where two rows have all of it, those with
 * numbers 2 and 5 of eight. */
enum { SPX_BEYOND_TOGETHER = 4, SPX_BEYOND_ROUGHLY = 8, SPX_BEYOND_FIRST = 2, SPX_BEYOND_APART = 3 };
SPX_HD int spx_beyond_rows_of(int rough)
{
    return rough ? SPX_BEYOND_ROUGHLY : SPX_BEYOND_TOGETHER;
}
SPX_HD int spx_beyond_lights(int rough)
{
    return rough ? 2 : SPX_BEYOND_TOGETHER;
}
/* The row of light j, and its part of the light of row k, so that sum and centre of all are what they were. */
SPX_HD int spx_beyond_row(int rough, int j)
{
    return rough ? SPX_BEYOND_FIRST + j * SPX_BEYOND_APART : j;
}
SPX_HD float spx_beyond_part(int rough, int k, int j)
{
    const float at = (float)(k - SPX_BEYOND_FIRST) / SPX_BEYOND_APART;
    return !rough ? (float)(k == j) : j == 0 ? 1.0f - at : at;
}

/* Rows whose light is one of those that k of the corrections is found from; and the share, from sums over these: of
 * (f_0 - f_1) f_0, and of f_0^2. */
enum { SPX_BEYOND_EACH = 16 };
SPX_HD float spx_beyond_share(double change, double all)
{
    return all > 0.0 ? (float)fmin(fmax(change / all, 0.0), 0.5) : 0.0f;
}

/* For a job whose PSF is `full` without its tail; full NULL: no tail is taken off. The job has to stay where it is; its
 * image and weights may change. Free with spx_beyond_free(), also after an error. SPX_EINPUT: a tail that differs
 * within the camera (spx_tail_shape_of()); SPX_EIO: memory. */
spx_status spx_beyond_make(const spx_extract_job *job, const spx_psf *full, spx_beyond **b, spx_err *e) SPX_NODISCARD;
void spx_beyond_free(spx_beyond *b);

/* Between frames: gives back what the next one does not need, and goes on with its job, which has the same PSF, options
 * and size of the image. What takes longest is kept: profiles of the rows, tables and transforms of the tail. */
void spx_beyond_rest(spx_beyond *b);
void spx_beyond_go_on(spx_beyond *b, const spx_extract_job *job);

/* Whether it is that of a PSF with this tail; full as for spx_beyond_make(). */
int spx_beyond_has_tail_of(const spx_beyond *b, const spx_psf *full);

/* The light of the job's image, with its weights as they are, with so many corrections for tails. counts: light of
 * tails, what is known of the background, seconds. The result does not depend on the number of threads. Errors as of
 * spx_background_fit(). */
spx_status spx_beyond_find(spx_beyond *b, int corrections, spx_extract_counts *counts, spx_err *e) SPX_NODISCARD;

/* It, electrons, [ny][nx]; NULL: it was not found here. */
const float *spx_beyond_light(const spx_beyond *b);

/* The steps in which it is found. Those of a device have the light by rows and the image of light beyond the spots,
 * `far`, there. */
typedef struct {
    void *with; /* the first argument of each */
    spx_status (*clear)(void *with, spx_err *e);
    /* The light by rows of the image without far: spx_rows_light(). */
    spx_status (*light)(void *with, int rough, spx_err *e);
    /* keeps the light as f_0; the light, f_1, becomes what the corrections lead to. */
    spx_status (*keep)(void *with, spx_err *e);
    spx_status (*extrapolate)(void *with, spx_err *e);
    /* Tails of the light become far. sum[2]: light of the fibres, and of their tails. */
    spx_status (*draw)(void *with, int rough, double *sum, spx_err *e);
    /* spx_background_fit() to the image without far; spx_background_add() to far. */
    spx_status (*fit)(void *with, spx_background *bg, int rough, spx_extract_counts *counts, spx_err *e);
    spx_status (*add)(void *with, const spx_background *bg, spx_err *e);
} spx_beyond_steps;

/* spx_beyond_find() by such steps, without lines between bins. *bg: the background, to be freed also after an error;
 * NULL: there is none. From several threads at a time. */
spx_status spx_beyond_find_by(const spx_beyond *b, const spx_beyond_steps *steps, int corrections, spx_background **bg,
                              spx_extract_counts *counts, spx_err *e) SPX_NODISCARD;

/* What such steps need: tables that stay as long as *b, of which tail is NULL without one. Those of one job, or of jobs
 * between which spx_beyond_go_on() may go, are the same where key is, too. */
enum { SPX_BEYOND_KEY = SPX_PSF_NTAIL + 1 };
const spx_rows *spx_beyond_rows(const spx_beyond *b);
const spx_tail *spx_beyond_tail(const spx_beyond *b);
void spx_beyond_key(const spx_beyond *b, int *key);

/* What a device has found, for spx_beyond_end(): *bg is given away. */
void spx_beyond_take_background(spx_beyond *b, spx_background *bg);
/* Memory for far, which spx_beyond_light() is from then on. NULL: none. */
float *spx_beyond_room(spx_beyond *b, spx_err *e);

/* The background, which there is, at the bins into *out, and its mean, by so many threads: as soon as it is known.
 * SPX_EIO: memory. */
spx_status spx_beyond_give_background(const spx_beyond *b, int nthreads, spx_frame *out, double *mean,
                                      spx_err *e) SPX_NODISCARD;

/* After spx_extract_end(): flux and ivar of cores as those of spots with their tails; the background, if *out does not
 * have it yet, and its mean into *counts. SPX_EIO: memory. */
spx_status spx_beyond_end(const spx_beyond *b, spx_frame *out, spx_extract_counts *counts, spx_err *e) SPX_NODISCARD;

#endif
