/* Runs a queue of exposures through a program's steps, which overlap (base/pipeline.h). */
#ifndef SPX_QUEUE_RUN_H
#define SPX_QUEUE_RUN_H

#include <stdatomic.h>
#include <stddef.h>

#include "base/err.h"
#include "run/queue_inputs.h"

/* What is done with each. Each function but start() and clear() returns what goes wrong with this exposure; after an
 * error the later ones are left out. */
typedef struct {
    void *ctx;
    size_t size;    /* bytes of the struct that begins with an spx_queue_item; zeroed */
    size_t nworker; /* threads that compute */
    /* Exposures in work at most; 0: as many as keep the workers busy. start() may set it. */
    atomic_size_t *most;
    const char *what; /* of the line that shows the progress of a queue: "extract" */
    /* In each worker, once. */
    void (*start)(void *ctx, size_t worker);
    /* Caller's thread, step `read` of the product: when the image has been read, but for its pixels. */
    spx_status (*prepare)(void *ctx, spx_queue_item *x, spx_err *e);
    /* A worker. */
    spx_status (*compute)(void *ctx, size_t worker, spx_queue_item *x, spx_err *e);
    /* Caller's thread, the product in work: makes the output, which is committed afterwards. */
    spx_status (*write)(void *ctx, spx_queue_item *x, spx_err *e);
    /* Caller's thread: frees what is behind the spx_queue_item, when the output is finished. */
    void (*clear)(void *ctx, spx_queue_item *x);
    /* Becomes 1, in any thread, where it makes no sense to go on with further exposures: nothing more is read or
     * computed. A step may set it; it is set when standard output cannot take a product, as nothing may follow a part
     * of one. */
    atomic_int *stop;
} spx_queue_steps;

/* All of them. An exposure that fails harms no other; its error is said, and the status is that of the first which
 * failed. The error of a single one is returned. An error with code but without text has been said elsewhere. */
spx_status spx_queue_run(spx_queue *q, const spx_queue_steps *steps, spx_err *e);

#endif
