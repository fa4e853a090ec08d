/* Reads and writes any dataset of numbers, named by a user as FILE:/path, in blocks. */
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
    char units[64];                    /* attribute units; empty where there is none */
} spx_dataset;

/* Opens the dataset at `path` of `in`: type and shape. SPX_EINPUT: absent, not numeric, or larger than the file can
 * hold. */
spx_status spx_dataset_open(spx_input *in, const char *path, spx_dataset *d, spx_err *e);

/* Opens input `arg` of a program, FILE:/path (FILE - for standard input), and its file. Without :/path, the first
 * dataset of `usual` (ended by NULL) that exists. */
spx_status spx_dataset_input(spx_run *s, const char *arg, const char *const *usual, spx_dataset *d, spx_err *e);

/* Reads the block that begins at start[ndim] and has count[ndim] elements, converted to double. SPX_EINPUT: an integer
 * beyond 2^53, which a double cannot represent. */
spx_status spx_dataset_read(const spx_dataset *d, const size_t *start, const size_t *count, double *out, spx_err *e);

/* Divides the dataset into blocks of at most `most` values, of shape step[ndim]: `axis` is divided last, other
 * dimensions first. axis -1: blocks of values contiguous in C order. */
void spx_dataset_cut(const spx_dataset *d, int axis, size_t most, size_t *step);
/* Shape count[ndim] of the block at start[ndim] (all 0 for the first): smaller than step at the end. */
void spx_dataset_block(const spx_dataset *d, const size_t *step, const size_t *start, size_t *count);
/* Advances start to the next block, along `axis` first, then the last dimension first. 0: no more blocks. */
int spx_dataset_next(const spx_dataset *d, int axis, const size_t *step, size_t *start);

/* Writes a block of a dataset made with spx_h5_create(). */
spx_status spx_dataset_write(hid_t file, const char *path, hid_t memtype, int ndim, const size_t *start,
                             const size_t *count, const void *data, spx_err *e);

#endif
