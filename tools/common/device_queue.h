/* Runs a queue of a program whose workers share the device of one operation, which the first of them opens. */
#ifndef SPX_TOOLS_DEVICE_QUEUE_H
#define SPX_TOOLS_DEVICE_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/device.h"
#include "run/queue_run.h"

/* The program's context begins with it. The program sets s, op and, where compute() may run for several exposures at a
 * time, nworker: the host's part of one is computed while the device has another. 0: one; so it is on the CPU. The
 * backend is open while items are computed. */
typedef struct {
    spx_run *s;
    spx_op op;
    size_t nworker;
    spx_backend backend;
    spx_err failed; /* why the backend could not be opened: said once, at the end */
    atomic_size_t most;
    atomic_int stop;
    pthread_mutex_t lock;
    int opened;
    spx_status (*compute)(void *ctx, size_t worker, spx_queue_item *x, spx_err *e);
} spx_device_queue;

/* Runs the queue through steps, of which ctx, size, what, read, compute, write and clear are set, and closes the
 * backend. Errors of spx_queue_run(); of the device where it cannot be opened. */
spx_status spx_device_queue_run(spx_queue *q, spx_queue_steps steps, spx_err *e);

#endif
