/* HDF5 in and out: typed reads that check class, rank and shape before they allocate, writes that fetch units, names
 * and flag meanings from the schema, attributes, and files or pipes as sources and targets.
 *
 * HDF5's own error stack is silenced; messages say file, dataset and remedy. `loc` may be any group; paths are relative
 * to it or absolute. Every function returns SPX_OK or fills *e (SPX_EINPUT: the content is wrong; SPX_EIO: reading or
 * writing failed). */
#ifndef SPX_H5IO_H
#define SPX_H5IO_H

#include <hdf5.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { SPX_H5_MAXDIM = 8 };

/* ---- what is there ---- */

/* 1 when every link of `path` exists and leads to an object; 0 otherwise. */
int spx_h5_exists(hid_t loc, const char *path);

/* Rank and dimensions of a dataset; SPX_EINPUT naming file and dataset when it is absent. */
spx_status spx_h5_shape(hid_t loc, const char *path, int *ndim, size_t dims[SPX_H5_MAXDIM], spx_err *e);

/* Open a dataset for a reader of its own (H5Dclose() it). Negative and SPX_EINPUT in *e when it is absent, behind an
 * external link, or keeps its data in other files: a hostile file must not make us open others. */
hid_t spx_h5_open(hid_t loc, const char *path, spx_err *e);
/* 1 when `bytes` of data are far more than dataset d can hold: a trap for memory. */
int spx_h5_overclaims(hid_t d, size_t bytes);

/* Name of a file that an object is in, for messages ("standard input" for a pipe); valid until the next call in this
 * thread. */
const char *spx_h5_filename(hid_t loc);

/* Names of the links of a group, in alphabetical order. Free with spx_h5_names_free(). */
spx_status spx_h5_list(hid_t loc, const char *path, size_t *n, char ***names, spx_err *e);
void spx_h5_names_free(size_t n, char **names);

/* ---- reading ---- */

/* Read a whole dataset of `ndim` dimensions into new memory (spx_free). dims[i] is the length wanted, or 0 for any
 * and then gets the length found. Any integer or float type in the file is converted; a value that does not fit
 * (an integer dataset of the other sign, a string) is refused by class. */
spx_status spx_h5_read_f64(hid_t loc, const char *path, int ndim, size_t *dims, double **out, spx_err *e);
spx_status spx_h5_read_f32(hid_t loc, const char *path, int ndim, size_t *dims, float **out, spx_err *e);
spx_status spx_h5_read_i32(hid_t loc, const char *path, int ndim, size_t *dims, int32_t **out, spx_err *e);
spx_status spx_h5_read_u32(hid_t loc, const char *path, int ndim, size_t *dims, uint32_t **out, spx_err *e);
spx_status spx_h5_read_u8(hid_t loc, const char *path, int ndim, size_t *dims, uint8_t **out, spx_err *e);
/* Values of arrays that are read without HDF5. The memory is there, its content comes with spx_h5_read_parts(). */
enum { SPX_H5_PARTS = 16 };
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

/* The same for rows [first, first+n) along the first dimension, into `out` which the caller owns. */
spx_status spx_h5_read_rows(hid_t loc, const char *path, hid_t memtype, size_t first, size_t n, void *out, spx_err *e);
/* 1-D dataset of fixed strings as n blocks of `size` characters, NUL-padded (longer text is refused); e.g. header cards
 * with size 80. */
spx_status spx_h5_read_strings(hid_t loc, const char *path, size_t size, size_t *n, char **out, spx_err *e);

/* Scalar attributes of the object at `path` ("." for loc itself). An absent attribute: SPX_EINPUT. */
spx_status spx_h5_attr_f64(hid_t loc, const char *path, const char *name, double *out, spx_err *e);
spx_status spx_h5_attr_i64(hid_t loc, const char *path, const char *name, int64_t *out, spx_err *e);
spx_status spx_h5_attr_str(hid_t loc, const char *path, const char *name, char *out, size_t size, spx_err *e);
int spx_h5_has_attr(hid_t loc, const char *path, const char *name);

/* ---- writing ---- */

/* Make a group and the groups above it, with the block's `type` and `version` attributes where the schema names it. */
spx_status spx_h5_group(hid_t loc, const char *path, spx_err *e);

/* Write a dataset (groups above it are made). Attributes units, long_name, flag_masks, flag_meanings come from the
 * schema of its absolute path. `memtype` is a native type; the file gets the same type. */
spx_status spx_h5_write(hid_t loc, const char *path, hid_t memtype, int ndim, const size_t *dims, const void *data,
                        spx_err *e);
/* As spx_h5_write() for doubles that are stored as float32 (precision 4) or float64 (8). A value beyond float32's
 * range is stored as its largest; a NaN or Inf is SPX_EBUG: products never hold one. */
spx_status spx_h5_write_real(hid_t loc, const char *path, int precision, int ndim, const size_t *dims,
                             const double *data, spx_err *e);
/* The same two, for arrays that stay as they are until the output is finished: where their file puts values off
 * (spx_output_put_off()), large ones only get their place now. */
spx_status spx_h5_write_lasting(hid_t loc, const char *path, hid_t memtype, int ndim, const size_t *dims,
                                const void *data, spx_err *e);
spx_status spx_h5_write_real_lasting(hid_t loc, const char *path, int precision, int ndim, const size_t *dims,
                                     const double *data, spx_err *e);

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

/* n fixed strings of `size` characters (space padded in memory and file), 1-D. */
spx_status spx_h5_write_strings(hid_t loc, const char *path, size_t size, size_t n, const char *data, spx_err *e);

/* Create a dataset without data, to be filled by spx_h5_write_rows(). */
spx_status spx_h5_create(hid_t loc, const char *path, hid_t filetype, int ndim, const size_t *dims, spx_err *e);
spx_status spx_h5_write_rows(hid_t loc, const char *path, hid_t memtype, size_t first, size_t n, const void *data,
                             spx_err *e);

spx_status spx_h5_set_f64(hid_t loc, const char *path, const char *name, double v, spx_err *e);
spx_status spx_h5_set_i64(hid_t loc, const char *path, const char *name, int64_t v, spx_err *e);
spx_status spx_h5_set_str(hid_t loc, const char *path, const char *name, const char *v, spx_err *e);

/* Make `scale` (1-D) an HDF5 dimension scale called `dimname` and attach it to dimension `dim` of `data`. */
spx_status spx_h5_attach_scale(hid_t loc, const char *data, unsigned dim, const char *scale, const char *dimname,
                               spx_err *e);

/* Second name for an object of the same file. */
spx_status spx_h5_link(hid_t loc, const char *target, const char *name, spx_err *e);

/* ---- files and pipes (h5image.c; design: specpipe(7), PIPES) ---- */

typedef struct {
    hid_t file;        /* read-only */
    char name[1024];   /* as a person knows it */
    void *image;       /* file image of a pipe; owned */
    size_t claimed;    /* bytes of it that count as memory of the program */
    size_t size;       /* bytes */
    int64_t mtime;     /* seconds since 1970; 0 for a pipe */
    uint64_t dev, ino; /* identity of a regular file; 0 for a pipe */
} spx_input;

/* Open a file, or standard input for "-": directly when it is a regular file, else one file image is read from the pipe
 * (bounded by --max-mem; beyond that spilled to an unlinked temporary file). Empty input, truncation, no HDF5:
 * SPX_EINPUT. */
spx_status spx_input_open(spx_input *in, const char *path, spx_err *e);
/* The next of several products that follow each other on standard input, a pipe or a file. *end becomes 1, and *in has
 * no file, where there is no further one; an input without a `first` one is an error. */
spx_status spx_input_next(spx_input *in, int first, int *end, spx_err *e);
void spx_input_close(spx_input *in);

typedef struct spx_output spx_output;

/* New HDF5 file with specpipe's root attributes: `target` a file name (written aside, renamed at the commit) or "-"
 * (kept in memory, or mapped in $TMPDIR where --max-mem leaves little; sent at the commit). */
spx_status spx_output_open(spx_output **out, const char *target, int force, spx_err *e);
hid_t spx_output_file(const spx_output *out);
/* Why HDF5 may have failed to write to it, as the end of a message. */
const char *spx_h5_no_room(void);
/* From now on, values of large lasting arrays are left to spx_output_store(); one output at a time. They are not put
 * off on the way to standard output. */
void spx_output_put_off(spx_output *out);
/* Finish the file: close it, where HDF5's errors show. */
spx_status spx_output_seal(spx_output *out, spx_err *e);
/* Write what was put off to a sealed output, with up to `nthreads` threads, and have the disk write it. Uses nothing of
 * HDF5: any thread may do it. */
spx_status spx_output_store(spx_output *out, int nthreads, spx_err *e);
/* Sync and rename, or send, a sealed output. Uses nothing of HDF5: any thread may do it. Frees `out` in every case.
 * Standard output stays open for another product, until spx_output_end_stdout(). */
spx_status spx_output_publish(spx_output *out, spx_err *e);
/* Close standard output and check that all arrived. */
spx_status spx_output_end_stdout(spx_err *e);
/* All of this, for a single product; frees `out` in every case. */
spx_status spx_output_commit(spx_output *out, spx_err *e);
/* Close and leave nothing; NULL is allowed. */
void spx_output_discard(spx_output *out);
/* 1 when an output was discarded, or could not be finished: HDF5 must then not be shut down (H5close() would crash). */
int spx_output_abandoned(void);

#endif
