/* Opens the backend of --device for a program (common/device.h). */
#include "common/device.h"

#include "base/pipeline.h"

static void *open_now(void *arg)
{
    spx_device_opening *d = arg;
    (void)spx_backend_open(d->b, d->s->common.device, d->op, &d->why, &d->err);
    return NULL;
}

void spx_open_device_begin(spx_device_opening *d)
{
    spx_backend_restrict(d->s->common.device);
    d->threaded = spx_thread_begin(&d->thread, open_now, d);
    if (!d->threaded)
        (void)open_now(d);
}

spx_status spx_open_device_end(spx_device_opening *d, spx_err *e)
{
    if (d->threaded)
        (void)pthread_join(d->thread, NULL);
    d->threaded = 0;
    if (d->err.code != SPX_OK)
        return spx_err_pass(e, &d->err);
    spx_run_device(d->s, d->b->device);
    if (d->why.code != SPX_OK)
        spx_detail("computes on the CPU: %s", spx_err_text(&d->why));
    return SPX_OK;
}

spx_status spx_open_device(spx_run *s, spx_op op, spx_backend *b, spx_err *e)
{
    spx_device_opening d = {.s = s, .op = op, .b = b};
    spx_backend_restrict(s->common.device);
    (void)open_now(&d);
    return spx_open_device_end(&d, e);
}
