/* Any dataset of numbers, named by a user as FILE:/path. */
#ifndef SPX_DATASET_H
#define SPX_DATASET_H

#include <hdf5.h>
#include <stddef.h>

#include "app/main.h"
#include "base/err.h"
#include "h5/file.h"
#include "h5/object.h"

typedef struct {
    spx_input *in;
    char path[512];
    char name[1600]; /* FILE:/path, for messages */
    int is_float, is_signed, bytes;
    int ndim;
    size_t dims[SPX_H5_MAXDIM], count; /* count: number of values */
    char units[64];                    /* attribute units; empty without */
} spx_dataset;

/* Type and shape of the dataset at `path` of `in`. SPX_EINPUT: not there, not numbers, or more than the file holds. */
spx_status spx_dataset_open(spx_input *in, const char *path, spx_dataset *d, spx_err *e);

/* Input `arg` of a program, FILE:/path (FILE - for standard input); opens the file. Without :/path the first of the
 * datasets in `usual` (ended by NULL) that is there. */
spx_status spx_dataset_input(spx_run *s, const char *arg, const char *const *usual, spx_dataset *d, spx_err *e);

/* Values of the block that begins at start[ndim] and has count[ndim] elements, converted to double. SPX_EINPUT: a whole
 * number is beyond 2^53 and has no equal double. */
spx_status spx_dataset_read(const spx_dataset *d, const size_t *start, const size_t *count, double *out, spx_err *e);

/* Cut into blocks of at most `most` values, step[ndim]: across the other dimensions before `axis` is cut. axis -1: into
 * blocks that follow each other in the order of the values. */
void spx_dataset_cut(const spx_dataset *d, int axis, size_t most, size_t *step);
/* Size of the block at start[ndim] (all 0 to begin with): count[ndim]. */
void spx_dataset_block(const spx_dataset *d, const size_t *step, const size_t *start, size_t *count);
/* Go to the next block, along `axis` first, then the last dimension first. 0: there is none. */
int spx_dataset_next(const spx_dataset *d, int axis, const size_t *step, size_t *start);

/* Write a block of a dataset that was made with spx_h5_create(). */
spx_status spx_dataset_write(hid_t file, const char *path, hid_t memtype, int ndim, const size_t *start,
                             const size_t *count, const void *data, spx_err *e);

#endif
