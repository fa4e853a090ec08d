/* A queue of exposures: the images among a program's inputs, one after another, each with the PSF that belongs to it
 * and the product that is made of it.
 *
 * An input may hold an image, a PSF, or both. An image that comes with a PSF has that one; any other has the last PSF
 * that stands alone before it, or, where there is none, the first one behind it. Standard input may hold any number of
 * such products, one after another.
 *
 * The output (-o) is a file for a single exposure; standard output, where the products of all follow each other; or,
 * for any number, a folder or a name with %s in it: the file then is called as the image's, without folder and ending,
 * and images of standard input get their number, 001 for the first */
#ifndef SPX_BLOCK_EXPOSURES_H
#define SPX_BLOCK_EXPOSURES_H

#include "blocks/image.h"
#include "blocks/psf.h"
#include "h5/stage.h"

typedef struct spx_exposures spx_exposures;
struct spx_psf_source;

/* One of them; zeroed before spx_exposures_next(). */
typedef struct {
    char name[1024];      /* of the input that holds the image */
    spx_product *product; /* in work after spx_exposures_next(); NULL when it did not come so far */
    spx_image image;
    const spx_psf *psf; /* valid until spx_exposure_free() */
    struct spx_psf_source *source;
    char *target;
} spx_exposure;

/* Look at the inputs of a stage and say which products there will be: SPX_EUSAGE where several go to one file, a
 * product would replace an input, a PSF has no image; SPX_EINPUT where there is no image or no PSF. A file among
 * several that cannot be read is an error of its own exposure. */
spx_status spx_exposures_open(spx_stage *s, spx_exposures **q, spx_err *e);
/* Number of exposures; 0 when it is not known, because standard input may hold any number. */
size_t spx_exposures_total(const spx_exposures *q);
/* 1 when the next one can be read without waiting for the program before this one in a pipe. */
int spx_exposures_ready(const spx_exposures *q);
/* Read the next one; *end becomes 1 where there is none. After an error, which is this exposure's, the next call goes
 * on with the next. */
spx_status spx_exposures_next(spx_exposures *q, spx_exposure *x, int *end, spx_err *e);
/* After the last one has been published: closes standard output where it is the output. */
spx_status spx_exposures_finish(const spx_exposures *q, spx_err *e);
/* Ends its product, too. */
void spx_exposure_free(spx_exposures *q, spx_exposure *x);
void spx_exposures_close(spx_exposures *q);

#endif
