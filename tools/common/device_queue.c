/* A queue whose workers share a device (common/device_queue.h). */
#include "common/device_queue.h"

#include <string.h>

/* The first worker opens the device, and the others wait for it. */
static void start(void *ctx, size_t worker)
{
    spx_device_queue *d = ctx;
    (void)worker;
    (void)pthread_mutex_lock(&d->lock);
    if (!d->opened && spx_open_device(d->s, d->op, &d->backend, &d->failed) != SPX_OK)
        atomic_store(&d->stop, 1);
    d->opened = 1;
    (void)pthread_mutex_unlock(&d->lock);
}

static spx_status compute(void *ctx, size_t worker, spx_queue_item *x, spx_err *e)
{
    spx_device_queue *d = ctx;
    if (d->failed.code != SPX_OK)
        return d->failed.code;
    /* --device auto may have come to be the CPU, where one exposure after another has all threads */
    const int one = d->nworker > 1 && strcmp(d->backend.device, "cpu") == 0;
    if (one)
        (void)pthread_mutex_lock(&d->lock);
    const spx_status st = d->compute(ctx, worker, x, e);
    if (one)
        (void)pthread_mutex_unlock(&d->lock);
    return st;
}

spx_status spx_device_queue_run(spx_queue *q, spx_queue_steps steps, spx_err *e)
{
    spx_device_queue *d = steps.ctx;
    d->compute = steps.compute;
    if (d->nworker == 0 || spx_queue_total(q) == 1 || strcmp(d->s->common.device, "cpu") == 0)
        d->nworker = 1;
    (void)pthread_mutex_init(&d->lock, NULL);
    steps.nworker = d->nworker;
    steps.start = start;
    steps.compute = compute;
    steps.most = &d->most;
    steps.stop = &d->stop;
    spx_status st = spx_queue_run(q, &steps, e);
    if (d->failed.code != SPX_OK)
        st = spx_err_pass(e, &d->failed);
    spx_backend_close(&d->backend);
    (void)pthread_mutex_destroy(&d->lock);
    return st;
}
