/* Opens the backend of --device for a program (common/device.h). */
#include "common/device.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "base/ending.h"
#include "base/pipeline.h"

/* Bytes of the inputs up to which a fit takes less time than CUDA's queues take to be made: some 2 000 stars. */
enum { LITTLE = 1 << 27 };

/* Are all inputs files that are together small? Of pipes and lists it is not known. */
static int is_little(const spx_run *s)
{
    off_t sum = 0;
    for (size_t i = 0; i < s->ninput; i++) {
        struct stat is;
        if (stat(s->input[i], &is) != 0 || !S_ISREG(is.st_mode))
            return 0;
        sum += is.st_size;
    }
    return s->ninput > 0 && sum < LITTLE;
}

void spx_device_queues(int n)
{
    const char number[] = {(char)('0' + n), '\0'};
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", number, 0);
}

static void *open_now(void *arg)
{
    spx_device_opening *d = arg;
    (void)spx_backend_open(d->b, d->s->common.device, d->op, &d->why, &d->err);
    return NULL;
}

void spx_open_device_begin(spx_device_opening *d)
{
    spx_backend_restrict(d->s->common.device);
    if (d->op == SPX_OP_RVFIT && is_little(d->s)) /* many groups of stars would wait for each other */
        spx_device_queues(2);
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
    if (d->b->library != NULL)
        spx_ending_at_once();
    return SPX_OK;
}

spx_status spx_open_device(spx_run *s, spx_op op, spx_backend *b, spx_err *e)
{
    spx_device_opening d = {.s = s, .op = op, .b = b};
    spx_backend_restrict(s->common.device);
    (void)open_now(&d);
    return spx_open_device_end(&d, e);
}

/* The library stays: its words may be reported yet. */
static void *close_now(void *arg)
{
    spx_backend *b = arg;
    b->close(b);
    return NULL;
}

void spx_close_device_begin(spx_backend *b, spx_device_closing *c)
{
    if (b->library != NULL && b->close != NULL)
        c->threaded = spx_thread_begin(&c->thread, close_now, b);
}

void spx_close_device(spx_backend *b, spx_device_closing *c)
{
    if (c->threaded) {
        (void)pthread_join(c->thread, NULL);
        b->close = NULL;
        c->threaded = 0;
    }
    spx_backend_close(b);
}
