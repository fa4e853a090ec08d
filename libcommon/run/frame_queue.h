/* A queue of exposures: the images among a program's inputs, one after another, each with the PSF that belongs to it
 * and the product that is made of it.
 *
 * An input may hold an image, a PSF, or both. An image that comes with a PSF has that one; any other has the last PSF
 * that stands alone before it, or, where there is none, the first one behind it. Standard input may hold any number of
 * such products, one after another.
 *
 * The output (-o) is a file for a single exposure; standard output, where the products of all follow each other; or,
 * for any number, a folder or a name with %s in it: the file then is called as the image's, without folder and ending,
 * and images of standard input get their number, 001 for the first.
 *
 * spx_queue_run() takes all of them through a program's steps, which overlap (base/pipeline.h). */
#ifndef SPX_BLOCK_EXPOSURES_H
#define SPX_BLOCK_EXPOSURES_H

#include <stdatomic.h>

#include "app/main.h"
#include "h5/deferred.h"
#include "products/image.h"
#include "products/psf.h"

typedef struct spx_queue spx_queue;
struct spx_psf_source;

/* One of them: a program's own struct begins with it. */
typedef struct {
    char name[1024];      /* of the input that holds the image */
    char label[1072];     /* before messages: name and ": " in a queue, "" otherwise */
    spx_product *product; /* where it goes */
    spx_image image;      /* without read noise; see spx_image_drop_pixels() */
    const spx_psf *psf;   /* valid as long as the exposure */
    struct spx_psf_source *source;
    char *target;
    spx_h5_unread unread; /* pixels that have not been read when it is prepared, but when it is computed */
    double seconds;       /* of that */
    size_t number;        /* in the queue: 1 is the first */
    int left;             /* left out, because the run stopped before */
    spx_status st;        /* what went wrong with it */
    spx_err e;
} spx_queue_item;

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

/* Look at the inputs of a stage and say which products there will be: SPX_EUSAGE where several go to one file, a
 * product would replace an input, a PSF has no image; SPX_EINPUT where there is no image or no PSF. A file among
 * several that cannot be read is an error of its own exposure. */
spx_status spx_queue_open(spx_run *s, spx_queue **q, spx_err *e);
/* Number of exposures; 0 when it is not known, because standard input may hold any number. */
size_t spx_queue_total(const spx_queue *q);
/* All of them. An exposure that fails harms no other; its error is said, and the status is that of the first which
 * failed. The error of a single one is returned. An error with code but without text has been said elsewhere. */
spx_status spx_queue_run(spx_queue *q, const spx_queue_steps *steps, spx_err *e);
void spx_queue_close(spx_queue *q);

#endif
