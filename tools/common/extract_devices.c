/* A queue's devices, of which one may fail (common/extract_devices.h). */
#include "common/extract_devices.h"

#include <string.h>

#include "base/log.h"

/* Of `threads`, in at most `most` frames; at least one. */
static size_t cpu_frames(size_t threads, size_t most)
{
    const size_t n = threads / SPX_EXTRACT_THREADS;
    return n < 1 ? 1 : n < most ? n : most;
}

size_t spx_extract_workers(const char *device, size_t total, int one_after_another, size_t threads, size_t *ndevice)
{
    *ndevice = 1;
    for (const char *p = device; strncmp(device, "cuda:", 5) == 0 && (p = strchr(p, ',')) != NULL; p++)
        ++*ndevice;
    if (total == 1 || one_after_another)
        return 1;
    return strcmp(device, "cpu") == 0 ? cpu_frames(threads, total > 0 ? total : threads) : 4 * *ndevice;
}

int spx_extract_on_cpu(spx_extract_devices *d, size_t nworker, size_t threads)
{
    if (strcmp(d->backend.device, "cpu") != 0)
        return 0;
    d->at_once = cpu_frames(threads, nworker);
    d->threads = (int)((threads + d->at_once - 1) / d->at_once);
    (void)pthread_mutex_init(&d->lock, NULL);
    (void)pthread_cond_init(&d->ended, NULL);
    return 1;
}

/* A frame on the CPU begins, when others leave room for it, and ends. */
static void begin_on_cpu(spx_extract_devices *d)
{
    (void)pthread_mutex_lock(&d->lock);
    while (d->busy >= d->at_once)
        (void)pthread_cond_wait(&d->ended, &d->lock);
    d->busy++;
    (void)pthread_mutex_unlock(&d->lock);
}

static void end_on_cpu(spx_extract_devices *d)
{
    (void)pthread_mutex_lock(&d->lock);
    d->busy--;
    (void)pthread_cond_signal(&d->ended);
    (void)pthread_mutex_unlock(&d->lock);
}

/* Says, once, that exposures of device `from` go to device `to` from now on. */
static void give_up(spx_extract_devices *d, size_t from, size_t to, const spx_err *why)
{
    if (atomic_exchange(&d->lost[from], 1) == 0)
        spx_warn("the device in place %zu of --device has failed, the one in place %zu goes on for it: %s", from + 1,
                 to + 1, why->text);
}

/* Clears what a device has begun; what the frame has inherited stays. */
static void begin_anew(spx_frame *out, spx_extract_counts *counts)
{
    spx_frame begun = *out;
    *out = (spx_frame){.header = begun.header, .fibermap = begun.fibermap};
    begun.header = (spx_cards){.n = 0};
    begun.fibermap = NULL;
    spx_frame_free(&begun);
    *counts = (spx_extract_counts){.npatch = 0};
}

spx_status spx_extract_on_one(spx_extract_devices *d, size_t worker, const spx_image *image, const spx_psf *psf,
                              spx_extract_options *o, spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    size_t first = worker % d->n, failed = d->n;
    spx_err why = {.code = SPX_OK};
    if (d->at_once > 0) {
        begin_on_cpu(d);
        o->nthreads = d->threads;
        const spx_status st = d->backend.extract(&d->backend, image, psf, o, out, counts, e);
        end_on_cpu(d);
        return st;
    }
    for (size_t n = 1; n < d->n && atomic_load(&d->lost[first]); n++)
        first = (first + 1) % d->n;
    for (size_t n = 1, k = first;; n++, k = (k + 1) % d->n) {
        o->device = (int)k;
        const spx_status st = d->backend.extract(&d->backend, image, psf, o, out, counts, e);
        if (st == SPX_OK && failed < d->n)
            give_up(d, failed, k, &why);
        if (st != SPX_EDEVICE || n >= d->n)
            return st;
        failed = k;
        why = *e;
        *e = (spx_err){.code = SPX_OK};
        begin_anew(out, counts);
    }
}
