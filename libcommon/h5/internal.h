/* Provides functions that the files of h5/ share: messages that name file and object, memory types, row selections, and
 * direct and deferred transfers. */
#ifndef SPX_H5_INTERNAL_H
#define SPX_H5_INTERNAL_H

#include <hdf5.h>
#include <stdint.h>

#include "base/err.h"
#include "h5/deferred.h"
#include "h5/object.h"

/* SPX_H5_MANY_VALUES: values from which on starting threads pays; SPX_H5_PIECE: values that a thread checks, converts
 * and writes at a time. */
enum { SPX_H5_MANY_VALUES = 1 << 17, SPX_H5_PIECE = 1 << 15 };

/* Names of images of files in memory begin so: H5LTopen_file_image()'s do. */
#define SPX_H5_IMAGE_NAME "file_image_"
/* Name of a file that HDF5 has open, as the user knows it. */
const char *spx_h5_shown(const char *name);
/* Absolute path of `path` below `loc`. */
void spx_h5_absolute(hid_t loc, const char *path, char *out, size_t size);
/* SPX error `code` with "FILE:/path: what". */
spx_status spx_h5_fail_at(hid_t loc, const char *path, spx_status code, const char *what, spx_err *e);
/* SPX_EIO: writing the object failed, with HDF5's reason. */
spx_status spx_h5_write_failed(hid_t loc, const char *path, spx_err *e);
spx_status spx_h5_dataset_dims(hid_t d, int *ndim, size_t dims[SPX_H5_MAXDIM]);
/* Reads n bytes of a descriptor at `at`; returns errno, ENODATA where the file ends before. */
int spx_h5_read_at(int fd, void *p, size_t n, uint64_t at);
/* 1 when converting the file type to memory type `mem` keeps the class of values: numbers, strings. */
int spx_h5_class_fits(hid_t ftype, hid_t mem);
/* Makes memory and file spaces that select rows [first, first+n). */
spx_status spx_h5_row_spaces(hid_t d, size_t first, size_t n, hid_t *fspace, hid_t *mspace);
/* An attribute that is open, its type and space. */
typedef struct {
    hid_t id, type, space;
} spx_h5_attribute;
/* Opens an attribute; 0: one of the three cannot be had. Close it in either case. */
int spx_h5_attribute_open(hid_t object, const char *name, spx_h5_attribute *a);
void spx_h5_attribute_close(const spx_h5_attribute *a);
/* Creates or replaces an attribute. */
spx_status spx_h5_put_attr(hid_t loc, const char *path, const char *name, hid_t filetype, hid_t mem, hid_t space,
                           const void *value, spx_err *e);
/* Offset in its file of a dataset whose `bytes` bytes of type `mem` are contiguous; *fd gets the file's descriptor. -1:
 * another layout or type, or a file not opened read-only through a plain descriptor. */
int64_t spx_h5_place(hid_t d, hid_t ftype, hid_t mem, size_t bytes, int *fd);
/* Large arrays of numbers that lie in the file as they are wanted in memory: put on the list `reads`, or read now by
 * several threads. *done: 0, HDF5 has to read. */
spx_status spx_h5_read_directly(spx_h5_reads *reads, hid_t loc, const char *path, hid_t d, hid_t ftype, hid_t mem,
                                size_t bytes, char *out, int *done, spx_err *e);
/* The same of a mask of `bytes` whose pixels have these weights: spx_h5_defer_mask(). */
spx_status spx_h5_mask_directly(spx_h5_reads *reads, hid_t loc, const char *path, hid_t d, hid_t ftype, size_t bytes,
                                float *weight, int *done, spx_err *e);
/* Rows [first, first+n) of a large dataset d of an output, which lie in the file as in memory, written by several
 * threads. *done: 0, HDF5 has to write. d is open for these rows alone: HDF5 keeps nothing of it that would replace
 * them. */
spx_status spx_h5_write_directly(hid_t loc, const char *path, hid_t d, hid_t mem, size_t first, size_t n,
                                 const void *data, int *done, spx_err *e);
/* 1: the values, `bytes` in the file, are put on the list; the dataset d is there. 0: they have to be written now. */
int spx_h5_defer_values(spx_h5_writes *w, hid_t loc, const char *path, hid_t d, const void *data, size_t bytes,
                        spx_h5_values values);
/* n values of doubles, as float32 in `to` unless that is NULL; 0: one of them is not finite, which no product holds. */
int spx_h5_check_values(const double *from, size_t n, float *to);

#endif
