/* Provides extraction of a queue's exposures on one of several devices each, of which one may fail. */
#ifndef SPX_TOOLS_EXTRACT_DEVICES_H
#define SPX_TOOLS_EXTRACT_DEVICES_H

#include <pthread.h>
#include <stdatomic.h>

#include "backend.h"
#include "common/device.h"
#include "extract/extract.h"

typedef struct {
    spx_backend backend; /* open */
    spx_device_closing closing;
    size_t n;         /* devices of the backend */
    atomic_int *lost; /* [n]; 1: the device has failed, and others compute in its place */
    /* Frames that the CPU works on at one time, 0 where the backend is another, and threads of each. */
    size_t at_once;
    int threads;
    size_t busy; /* frames that it works on now, with the lock held */
    pthread_mutex_t lock;
    pthread_cond_t ended;
} spx_extract_devices;

/* Workers for `total` frames on `device`, the value of --device, and in *ndevice how many devices that names: four for
 * each device of a queue, where three frames share it while the host reads and completes others; one for a single
 * frame, which is shared out among the devices by its bundles, and where frames are taken one after another. On the CPU
 * one for SPX_EXTRACT_THREADS of `threads`: a frame has some twenty bundles, and the threads of a larger team wait for
 * the last of these. */
enum { SPX_EXTRACT_THREADS = 4 };
size_t spx_extract_workers(const char *device, size_t total, int one_after_another, size_t threads, size_t *ndevice);

/* When the backend is open: whether it is the CPU, which works on d->at_once frames of nworker workers at one time. */
int spx_extract_on_cpu(spx_extract_devices *d, size_t nworker, size_t threads);

/* Extracts as the backend's extract(), on the worker's device (o->device is set) or, on the CPU, when fewer than
 * d->at_once frames are worked on (o->nthreads is set); where a device fails, on the next one
 * that has not, with a warning. *out may have what it inherits from the image (products/frame.h). SPX_EDEVICE: all have
 * failed; else errors of extract(). Calls may be made from several threads at the same time. */
spx_status spx_extract_on_one(spx_extract_devices *d, size_t worker, const spx_image *image, const spx_psf *psf,
                              spx_extract_options *o, spx_frame *out, spx_extract_counts *counts, spx_err *e);

#endif
