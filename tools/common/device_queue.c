/* A queue whose one worker has a device (common/device_queue.h). */
#include "common/device_queue.h"

static void start(void *ctx, size_t worker)
{
    spx_device_queue *d = ctx;
    (void)worker;
    if (spx_open_device(d->s, d->op, &d->backend, &d->failed) != SPX_OK)
        atomic_store(&d->stop, 1);
}

static spx_status compute(void *ctx, size_t worker, spx_queue_item *x, spx_err *e)
{
    spx_device_queue *d = ctx;
    return d->failed.code != SPX_OK ? d->failed.code : d->compute(ctx, worker, x, e);
}

spx_status spx_device_queue_run(spx_queue *q, spx_queue_steps steps, spx_err *e)
{
    spx_device_queue *d = steps.ctx;
    d->compute = steps.compute;
    steps.nworker = 1;
    steps.start = start;
    steps.compute = compute;
    steps.most = &d->most;
    steps.stop = &d->stop;
    spx_status st = spx_queue_run(q, &steps, e);
    if (d->failed.code != SPX_OK)
        st = spx_err_pass(e, &d->failed);
    spx_backend_close(&d->backend);
    return st;
}
