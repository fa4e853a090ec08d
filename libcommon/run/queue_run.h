/* Runs a queue of exposures through a program's steps, which overlap (base/pipeline.h). */
#ifndef SPX_QUEUE_RUN_H
#define SPX_QUEUE_RUN_H

#include <stdatomic.h>
#include <stddef.h>

#include "base/err.h"
#include "run/queue_inputs.h"

/* Steps of a program for each exposure. Functions other than start() and clear() return the exposure's status; after an
 * error its later steps are skipped. */
typedef struct {
    void *ctx;
    size_t size;    /* size of the struct that begins with an spx_queue_item, bytes; zeroed */
    size_t nworker; /* worker threads */
    /* Most exposures in the pipeline; 0: as many as keep the workers busy. start() may set it. */
    atomic_size_t *most;
    const char *what; /* word in the progress line of a queue: "extract" */
    /* Each worker thread, once; may be NULL. */
    void (*start)(void *ctx, size_t worker);
    /* Caller's thread, step `read` of the product: after the image was read, perhaps without its pixels; frames are
     * read here. */
    spx_status (*read)(void *ctx, spx_queue_item *x, spx_err *e);
    /* Worker thread. */
    spx_status (*compute)(void *ctx, size_t worker, spx_queue_item *x, spx_err *e);
    /* Caller's thread, the exposure's product is current: makes the output, which is committed afterwards. */
    spx_status (*write)(void *ctx, spx_queue_item *x, spx_err *e);
    /* Caller's thread: frees the fields after the spx_queue_item, when the output is finished. */
    void (*clear)(void *ctx, spx_queue_item *x);
    /* Set to 1 by any thread to stop: nothing more is read or computed. A step may set it; it is set when standard
     * output cannot take a product, since none may follow an incomplete one. */
    atomic_int *stop;
} spx_queue_steps;

/* Runs all exposures. A failure does not affect other exposures; its error is printed, and the status is that of the
 * first failure. The error of a single exposure is returned. An error with a code but no text has been printed
 * already. */
spx_status spx_queue_run(spx_queue *q, const spx_queue_steps *steps, spx_err *e);

#endif
