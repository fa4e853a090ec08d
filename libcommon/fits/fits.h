/* FITS files in memory: their structure, checked before anything is trusted, and their values.
 *
 * Files are never opened by name through CFITSIO, whose names are a language of their own. A plain file is mapped, a
 * gzip file and a pipe are read into memory; the HDU structure is found here; CFITSIO decodes tile-compressed images
 * from memory. FITS standard 4.0: https://fits.gsfc.nasa.gov/fits_standard.html; section numbers below are its. */
#ifndef SPX_FITS_H
#define SPX_FITS_H

#include <hdf5.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "fits/cards.h"

struct spx_table;

enum { SPX_FITS_BLOCK = 2880, SPX_FITS_MAXDIM = 8 };

typedef enum {
    SPX_FITS_IMAGE,    /* an array, or nothing (ndim 0) */
    SPX_FITS_TILED,    /* tile-compressed image: a binary table whose image is `decoded` when it is asked for */
    SPX_FITS_BINTABLE, /* binary table */
    SPX_FITS_ASCII,    /* ASCII table: rows of text */
    SPX_FITS_OTHER     /* anything else: bytes */
} spx_fits_kind;

/* Column of a binary table (7.3). */
typedef struct {
    char name[72];                /* TTYPEn, or COLn; no two are equal, regardless of case */
    char unit[72];                /* TUNITn */
    char code;                    /* L X B I J K A E D C M P Q */
    char element;                 /* P, Q: code of what the descriptors point at; else 0 */
    size_t offset, width;         /* bytes in the row */
    size_t size;                  /* bytes of one element (A: of one string) */
    int ndim;                     /* 0: one element a row */
    size_t dims[SPX_FITS_MAXDIM]; /* slowest first (TDIMn or the repeat count) */
    int flip;                     /* TZEROn makes integers unsigned (B: signed): the sign bit is inverted */
    double scale, zero;           /* TSCALn, TZEROn; 1 and 0 where `flip` says it all */
} spx_fits_column;

typedef struct {
    spx_fits_kind kind;
    char extname[72];       /* EXTNAME, or empty */
    spx_cards header;       /* in the file's memory: not to be changed or freed */
    size_t header_at;       /* offset of the header in the file */
    size_t data_at, nbytes; /* data, without padding */
    size_t end;             /* offset behind the padding */
    /* images */
    int bitpix;                   /* TILED: of the image */
    int ndim;                     /* NAXIS; above SPX_FITS_MAXDIM: 1 with all elements */
    size_t dims[SPX_FITS_MAXDIM]; /* slowest first */
    size_t nelem;
    int flip;               /* BZERO makes integers unsigned (8 bits: signed): the sign bit is inverted */
    double scale, zero;     /* BSCALE, BZERO; 1 and 0 where `flip` says it all */
    unsigned char *decoded; /* TILED: the image as FITS bytes, once decoded */
    /* tables */
    size_t nrow, rowsize, ncol;
    spx_fits_column *col; /* [ncol] */
    size_t pcount;        /* bytes behind the rows: gap and heap */
    size_t theap;         /* where in them the heap starts */
} spx_fits_hdu;

typedef struct {
    char name[1024]; /* as a person knows it */
    const unsigned char *bytes;
    size_t size;
    size_t nhdu;
    spx_fits_hdu *hdu;
    size_t trailing; /* offset of what follows the last HDU and is none; = size: nothing */
    void *owned, *mapped;
    size_t nmapped;
} spx_fits;

/* Open a file, gzip file or "-". SPX_EINPUT, naming file and HDU: no FITS file, truncated, a structure that contradicts
 * itself. SPX_EIO: cannot be read, or does not fit --max-mem (the machine's memory where none is set). */
spx_status spx_fits_open(spx_fits *f, const char *path, spx_err *e);
/* The same for bytes that the caller owns and keeps. */
spx_status spx_fits_parse(spx_fits *f, const char *name, const void *bytes, size_t size, spx_err *e);
void spx_fits_close(spx_fits *f);

/* "HDU 3 (B_FLUX)", for messages; valid until the next call in this thread. */
const char *spx_fits_hduname(const spx_fits *f, size_t hdu);
/* Index of the HDU with this EXTNAME (regardless of case), or -1. */
int spx_fits_find(const spx_fits *f, const char *extname);
/* Column with this name (regardless of case), or NULL. */
const spx_fits_column *spx_fits_find_column(const spx_fits_hdu *h, const char *name);
/* 1: HDU holds an image (tile-compressed or not) of `ndim` dimensions. */
int spx_fits_is_image(const spx_fits_hdu *h, int ndim);

/* The image's elements as FITS stores them (big-endian, not scaled), nelem*|bitpix|/8 bytes; tile-compressed images are
 * decoded at the first call. NULL and *e when that fails. */
const unsigned char *spx_fits_raw(spx_fits *f, size_t hdu, spx_err *e);

/* The image's values, scaled (4.4.2.5), nelem elements in new memory (spx_free). BLANK is NaN. u32 is for masks: values
 * that are negative keep their bits, others that do not fit are SPX_EINPUT. */
spx_status spx_fits_f64(spx_fits *f, size_t hdu, double **out, spx_err *e);
spx_status spx_fits_f32(spx_fits *f, size_t hdu, float **out, spx_err *e);
spx_status spx_fits_u32(spx_fits *f, size_t hdu, uint32_t **out, spx_err *e);

/* HDF5 type of an image's elements: big-endian, as the file's bytes once sign bits are inverted where `flip` says so.
 */
hid_t spx_fits_image_type(const spx_fits_hdu *h);

/* Compound type of a binary table's rows: members big-endian at the columns' offsets, so that the rows are the file's
 * bytes (but for `flip`, and L columns that hold nothing but T and F: these become HDF5's usual boolean when `truth[i]`
 * is set). A: fixed strings; X: bytes; C, M: {r, i}; P, Q: {length, offset}. H5I_INVALID_HID and no error when HDF5
 * cannot hold it: no columns, or more of them than an object header takes. */
hid_t spx_fits_row_type(const spx_fits_hdu *h, const unsigned char *truth, spx_err *e);
/* Type of one element of a column with this TFORM code; `size` matters for A only: the length of a string. */
hid_t spx_fits_element_type(char code, size_t size, int flip, int truth);
/* For each column: 1 when it is logical and holds only T and F. `truth` has ncol elements. */
void spx_fits_truth(const spx_fits *f, size_t hdu, unsigned char *truth);
/* Between file bytes and the values that the row type means, in place; `to_file` for the way back. */
void spx_fits_convert_rows(const spx_fits_hdu *h, const unsigned char *truth, unsigned char *rows, size_t nrow,
                           int to_file);
/* Bytes of one element of a TFORM code; 0: no such code. */
size_t spx_fits_element_size(char code);
/* n bytes, the most significant first, as an unsigned integer. */
uint64_t spx_fits_integer(const unsigned char *p, size_t n);
/* Invert the sign bits of n big-endian integers of `size` bytes. */
void spx_fits_flip(unsigned char *p, size_t n, size_t size);

/* A binary table without variable-length columns as a table block; *out stays NULL (and SPX_OK) where
 * spx_fits_row_type() has no type. */
spx_status spx_fits_table(const spx_fits *f, size_t hdu, struct spx_table **out, spx_err *e);
/* A numeric column of any shape as doubles, scaled, [nrow][elements]; *n gets the elements a row. SPX_EINPUT when
 * absent or no numbers. TNULL is NaN. */
spx_status spx_fits_column_f64(const spx_fits *f, size_t hdu, const char *name, size_t *n, double **out, spx_err *e);
/* A string column: nrow blocks of `size` characters, NUL-terminated, trailing blanks dropped. */
spx_status spx_fits_column_str(const spx_fits *f, size_t hdu, const char *name, size_t size, char **out, spx_err *e);

/* Fill *h from h->header alone (which stays the caller's): kind, shape, columns, nbytes. `first`: a primary header;
 * `where` is for messages. Used by the reader, and by h52fits, which trusts no file. Free with spx_fits_hdu_free(). */
spx_status spx_fits_describe(spx_fits_hdu *h, int first, const char *where, spx_err *e);
void spx_fits_hdu_free(spx_fits_hdu *h);

#endif
