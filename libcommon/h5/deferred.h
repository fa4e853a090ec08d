/* Deferred reads and writes: large arrays that threads move with pread() and pwrite(), beside HDF5, which is not
 * thread-safe. */
#ifndef SPX_H5_DEFERRED_H
#define SPX_H5_DEFERRED_H

#include <hdf5.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { SPX_H5_PARTS = 16 };

/* Values of arrays that are read without HDF5. The memory is there, its content comes with spx_h5_read_parts(). */
typedef struct {
    size_t n;
    struct {
        char name[1280]; /* FILE:/path, for messages */
        char *to;
        size_t bytes;
        int64_t at; /* place in the file, */
        int fd;     /* which this is of */
    } part[SPX_H5_PARTS];
} spx_h5_unread;

/* Large arrays of numbers that lie in their file as they are wanted in memory are left to *u from now on; NULL: they
 * are read when they are asked for. */
void spx_h5_leave(spx_h5_unread *u);
/* Read them, with up to `nthreads` threads, while the file is open; uses nothing of HDF5. */
spx_status spx_h5_read_parts(const spx_h5_unread *u, int nthreads, spx_err *e);

/* Values of a file that are written without HDF5: as they are; doubles; doubles that become float32. */
typedef enum { SPX_H5_AS_THEY_ARE, SPX_H5_DOUBLE, SPX_H5_NARROW } spx_h5_values;
typedef struct {
    hid_t file;
    size_t n;
    struct {
        char path[128]; /* for messages */
        const void *from;
        size_t bytes; /* of the values in the file */
        spx_h5_values values;
        int64_t at; /* place in the file */
    } part[SPX_H5_PARTS];
} spx_h5_later;

/* Large arrays of later->file go there from now on; NULL: they are written as they come. */
void spx_h5_put_off(spx_h5_later *later);
/* Write them to descriptor fd of the file, with up to `nthreads` threads; uses nothing of HDF5. `name`: of the file. */
spx_status spx_h5_write_parts(const spx_h5_later *later, int fd, int nthreads, const char *name, spx_err *e);

#endif
