/* Deferred reads and writes: large arrays that threads move with pread() and pwrite(), beside HDF5, which is not
 * thread-safe.
 *
 * A list of them is passed to the functions that read or write (spx_h5_defer_f32(), spx_h5_defer_write() ...; NULL: at
 * once). HDF5 makes the dataset and says where in the file it lies; the values move when the list is flushed. What does
 * not lie in the file as it is wanted in memory (another type, chunks, compression, a pipe), or is small, moves at once
 * all the same. */
#ifndef SPX_H5_DEFERRED_H
#define SPX_H5_DEFERRED_H

#include <hdf5.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "h5/inventory.h"

enum { SPX_H5_DEFERRED = 16 }; /* arrays of a list; further ones move at once */

/* Deferred reads. The arrays are allocated; their content comes with spx_h5_flush_reads(). */
typedef struct {
    size_t n;
    struct {
        char file[1024], path[512]; /* for messages */
        char *to;
        float *weight;                  /* of pixels of which this is the mask, in place of `to`; NULL: no mask */
        size_t bytes, piece;            /* piece: bytes that are read, and verified, at a time */
        int64_t at;                     /* offset in the file, */
        int fd;                         /* which this is the descriptor of */
        const spx_inventory *inventory; /* NULL: not verified */
    } array[SPX_H5_DEFERRED];
} spx_h5_reads;

/* Reads them, with up to `nthreads` threads, while the file is open; uses nothing of HDF5. SPX_EINPUT: the file ends
 * before, cannot be read, or differs from its inventory; SPX_EIO: memory. */
spx_status spx_h5_flush_reads(const spx_h5_reads *r, int nthreads, spx_err *e);

/* How values in memory become those of the file: as they are; doubles, checked; doubles that become float32. */
typedef enum { SPX_H5_AS_THEY_ARE, SPX_H5_DOUBLE, SPX_H5_NARROW } spx_h5_values;

/* Deferred writes to one file (spx_output_writes()). The arrays stay as they are until spx_h5_flush_writes(). */
typedef struct {
    hid_t file;
    size_t n;
    struct {
        char path[128]; /* for messages */
        const void *from;
        size_t bytes; /* size of the values in the file */
        spx_h5_values values;
        int64_t at; /* offset in the file */
    } array[SPX_H5_DEFERRED];
} spx_h5_writes;

/* Writes them to descriptor fd of the file, with up to `nthreads` threads, and enters them into its inventory unless
 * that is NULL; uses nothing of HDF5. `name`: of the file. SPX_EBUG: a value is not finite; SPX_EIO: writing failed. */
spx_status spx_h5_flush_writes(const spx_h5_writes *w, int fd, int nthreads, spx_inventory *inventory, const char *name,
                               spx_err *e);

#endif
