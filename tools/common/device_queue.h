/* Runs a queue of a program with one worker, which opens the device of one operation and computes everything on it. */
#ifndef SPX_TOOLS_DEVICE_QUEUE_H
#define SPX_TOOLS_DEVICE_QUEUE_H

#include <stdatomic.h>

#include "common/device.h"
#include "run/queue_run.h"

/* The program's context begins with it. The program sets s and op; the backend is open while items are computed. */
typedef struct {
    spx_run *s;
    spx_op op;
    spx_backend backend;
    spx_err failed; /* why the backend could not be opened: said once, at the end */
    atomic_size_t most;
    atomic_int stop;
    spx_status (*compute)(void *ctx, size_t worker, spx_queue_item *x, spx_err *e);
} spx_device_queue;

/* Runs the queue through steps, of which ctx, size, what, read, compute, write and clear are set, and closes the
 * backend. Errors of spx_queue_run(); of the device where it cannot be opened. */
spx_status spx_device_queue_run(spx_queue *q, spx_queue_steps steps, spx_err *e);

#endif
