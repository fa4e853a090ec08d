/* Provides the queue of exposures: the images, or the frames, among a program's inputs, one after another, each with
 * its product.
 *
 * A queue of frames takes every input with a /frame, which the program's `read` reads from x->in; one of raw exposures
 * takes those with a /raw. In a queue of frames with flats, or fits, inputs with a /flat, or /rvfit, and no /frame
 * stand before their frames as PSFs do before images, but a frame needs none. In a queue of images each has a PSF: an
 * input may hold an image, a PSF, or both. An image that comes with a PSF has that one; any other has the last PSF that
 * stands alone before it, or, where there is none, the first one behind it. Standard input may hold any number of such
 * products, one after another.
 * @FILE, the only input, is a list of exposures: a line names all inputs of one, its PSF among them, with tabs between.
 * They are opened in their turn; lines of a pipe, or of standard input (@-), may come while others are in work. The
 * outputs are a list, too.
 *
 * The output (-o) is a file for a single exposure; standard output, where the products of all follow each other; or,
 * for any number, a folder or a name with %s in it: the file then is called as the image's, without folder and ending,
 * and images of standard input get their number, 001 for the first; or @FILE, with the outputs of all in their order, a
 * name a line. spx_queue_run() (run/queue_run.h) takes all of them
 * through a program's steps. */
#ifndef SPX_QUEUE_INPUTS_H
#define SPX_QUEUE_INPUTS_H

#include "app/main.h"
#include "h5/deferred.h"
#include "products/flat.h"
#include "products/image.h"
#include "products/psf.h"

typedef struct spx_queue spx_queue;

/* Content of a queue. */
typedef enum {
    SPX_QUEUE_IMAGES,
    SPX_QUEUE_FRAMES,
    SPX_QUEUE_FLAT_FRAMES,
    SPX_QUEUE_FIT_FRAMES,
    SPX_QUEUE_RAW
} spx_queue_kind;
struct spx_psf_source;

/* Exposure in the queue: a program's own struct begins with it. */
typedef struct {
    char name[1024];      /* name of the input with the image */
    char label[1072];     /* prefix of messages: name and ": " in a queue, "" otherwise */
    spx_product *product; /* its output */
    spx_image image;      /* read noise: see spx_queue_need_noise(); see spx_image_drop_pixels() */
    const spx_psf *psf;   /* of an image; valid as long as the exposure */
    const spx_flat *flat; /* of SPX_QUEUE_FLAT_FRAMES; NULL: none among the inputs */
    spx_input *in;        /* the input with the image or frame, open until the product ends */
    struct spx_psf_source *source;
    char *target, *line; /* line: of the list of exposures; else NULL */
    spx_h5_reads reads;  /* deferred: pixels come when it is computed */
    double seconds;      /* of that */
    size_t number;       /* in the queue: 1 is the first */
    int left;            /* left out, because the run stopped before */
    int exists;          /* its file does already, which is the error */
    spx_status st;       /* what went wrong with it */
    spx_err e;
} spx_queue_item;

/* Opens the queue: finds the content of a program's inputs, and the products to make. skip_existing: exposures whose
 * target exists are counted and left out (--skip-existing; SPX_EUSAGE with --force, or with standard output).
 * SPX_EUSAGE where an @FILE has fewer names, where several have one target, a product would replace an input, a PSF has
 * no image; SPX_EINPUT where there is no image, no PSF or no frame. A file among several that cannot be read is an
 * error of its own exposure. */
spx_status spx_queue_open(spx_run *s, spx_queue_kind kind, int skip_existing, spx_queue **q, spx_err *e);
/* Images come with their read noise, where they have it. */
void spx_queue_need_noise(spx_queue *q);
/* Number of exposures to process; 0 when unknown, because standard input may hold any number. */
size_t spx_queue_total(const spx_queue *q);
void spx_queue_close(spx_queue *q);

/* Reads the next exposure (for spx_queue_run()); `later`: reads of pixels are deferred; *end becomes 1 at the end. An
 * error is this exposure's; the next call continues with the next. */
spx_status spx_queue_next(spx_queue *q, spx_queue_item *x, int later, int *end, spx_err *e);
/* 1 when the next exposure can be read without waiting for the preceding program in a pipe, or a line of a list. */
int spx_queue_ready(spx_queue *q);
spx_run *spx_queue_context(const spx_queue *q);
int spx_queue_to_stdout(const spx_queue *q);
/* File that the PSF of an exposure of SPX_QUEUE_IMAGES lies in, open as long as the exposure. */
hid_t spx_queue_psf_file(const spx_queue_item *x);
/* File that the fit for an exposure of SPX_QUEUE_FIT_FRAMES lies in, open as long as the exposure; NULL: none among the
 * inputs. */
const spx_input *spx_queue_fit(const spx_queue_item *x);
/* Releases an exposure's reference to its PSF (x->source; NULL: none). */
void spx_psf_source_release(struct spx_psf_source *p);
/* 1 when there is anything to do. *kept gets the number of existing products left out; those of standard input are
 * counted as they come, so that it is final at the end of the queue. */
int spx_queue_todo(const spx_queue *q, size_t *kept);
/* Error of an input without an image, or a frame. */
spx_status spx_queue_without(const spx_queue *q, const char *name, spx_err *e);

#endif
