/* Provides HDF5 files and pipes as inputs and outputs (design: specpipe(7), PIPES). An output appears whole or not at
 * all. */
#ifndef SPX_H5_FILE_H
#define SPX_H5_FILE_H

#include <hdf5.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "h5/deferred.h"
#include "h5/inventory.h"

typedef struct {
    hid_t file;               /* read-only */
    char name[1024];          /* name for messages */
    void *image;              /* file image read from a pipe; owned */
    size_t claimed;           /* bytes of the image that count against --max-mem */
    size_t size;              /* size of the file, or of the image with its inventory, bytes */
    int64_t mtime;            /* time of last change, seconds since 1970; 0 as dev */
    spx_inventory *inventory; /* NULL: it has none; owned */
    uint64_t dev, ino;        /* identity of a regular file; 0 for a pipe or a file without a name */
} spx_input;

/* Opens a file, or the next product of standard input for "-": directly when it is a regular file, with libhdf5
 * before 1.14 also one that has no name any more; else one file image is read from the pipe (bounded by --max-mem;
 * beyond that spilled to an unlinked temporary file). Empty input, truncation, no HDF5, a named file with another
 * product behind the first: SPX_EINPUT. */
spx_status spx_input_open(spx_input *in, const char *path, spx_err *e);
/* Opens product number `nth`, the next, of several that follow each other on standard input, a pipe or a file; from 2
 * on its name has the number, 0 is any but the first without. At the end of input *end becomes 1 and *in has no file;
 * an input without a first product is SPX_EINPUT. */
spx_status spx_input_next(spx_input *in, size_t nth, int *end, spx_err *e);
/* 1 when another product follows those that were taken from standard input, as far as that is known without waiting. */
int spx_input_more(void);
void spx_input_close(spx_input *in);

typedef struct spx_output spx_output;

/* Creates an HDF5 file with specpipe's root attributes: `target` a file name (written aside, renamed at the commit) or
 * "-" (kept in memory, or mapped in $TMPDIR where --max-mem leaves little; sent at the commit). */
spx_status spx_output_open(spx_output **out, const char *target, int force, spx_err *e);
hid_t spx_output_file(const spx_output *out);
/* Why HDF5 may have failed to write to it, as the end of a message. */
const char *spx_h5_no_memory(void);
/* The list of deferred writes that spx_output_flush() writes; NULL for standard output, where there are none. */
spx_h5_writes *spx_output_writes(spx_output *out);
/* Finish the file: close it, where HDF5's errors show. */
spx_status spx_output_close(spx_output *out, spx_err *e);
/* Does the deferred writes of a closed output, with up to `nthreads` threads, adds its inventory (h5/inventory.h), and
 * syncs the data. Does not use HDF5: any thread may call it. */
spx_status spx_output_flush(spx_output *out, int nthreads, spx_err *e);
/* Syncs and renames, or sends, a closed output. Does not use HDF5: any thread may call it. Frees `out` in every case.
 * Standard output stays open for another product, until spx_output_end_stdout(). */
spx_status spx_output_publish(spx_output *out, spx_err *e);
/* Closes standard output and checks that all bytes were accepted. */
spx_status spx_output_end_stdout(spx_err *e);
/* Close, flush and publish, for a single product; frees `out` in every case. */
spx_status spx_output_commit(spx_output *out, spx_err *e);
/* Discards an output and its temporary file; NULL is allowed. */
void spx_output_discard(spx_output *out);
/* 1 when an output was discarded, or a file could not be closed: HDF5 must then not be shut down (H5close() would
 * crash). */
int spx_output_abandoned(void);

#endif
