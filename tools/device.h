/* For programs with a kernel stage: what computes. */
#ifndef SPX_TOOLS_DEVICE_H
#define SPX_TOOLS_DEVICE_H

#include "app/main.h"
#include "backend.h"
#include "base/pipeline.h"

typedef struct {
    spx_run *s;
    spx_op stage;
    spx_backend *b;
    spx_err err, why;
    pthread_t thread;
    int threaded;
} device_opening;

static inline void *open_now(void *arg)
{
    device_opening *d = arg;
    (void)spx_backend_open(d->b, d->s->common.device, d->stage, &d->why, &d->err);
    return NULL;
}

/* Opening a GPU takes a good part of a second, in which files can be read: begin, and end before the backend is used,
 * also after an error. */
static inline void open_device_begin(device_opening *d)
{
    spx_backend_first_alone(d->s->common.device);
    d->threaded = spx_thread_begin(&d->thread, open_now, d);
    if (!d->threaded)
        (void)open_now(d);
}

static inline spx_status open_device_end(device_opening *d, spx_err *e)
{
    if (d->threaded)
        (void)pthread_join(d->thread, NULL);
    if (d->err.code != SPX_OK)
        return spx_fail(e, d->err.code, "%s", d->err.msg);
    spx_run_device(d->s, d->b->device);
    if (d->why.code != SPX_OK)
        spx_detail("computes on the CPU: %s", d->why.msg);
    return SPX_OK;
}

/* Opens what --device asks for, has it in the provenance, and says (-v) why `auto` came to be the CPU. Closed with
 * spx_backend_close(). */
static inline spx_status open_device(spx_run *s, spx_op stage, spx_backend *b, spx_err *e)
{
    device_opening d = {.s = s, .stage = stage, .b = b};
    spx_backend_first_alone(s->common.device);
    (void)open_now(&d);
    return open_device_end(&d, e);
}

#endif
