/* Finds the structure of FITS files in memory, and checks it before anything is trusted.
 *
 * A plain file is mapped, a gzip file and a pipe are read into memory; names of files are never interpreted. FITS
 * standard 4.0: https://fits.gsfc.nasa.gov/fits_standard.html; section numbers below are its. */
#ifndef SPX_FITS_SCAN_H
#define SPX_FITS_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "fits/cards.h"

enum { SPX_FITS_BLOCK = 2880, SPX_FITS_MAXDIM = 8 };

typedef enum {
    SPX_FITS_IMAGE,    /* an array, or nothing (ndim 0) */
    SPX_FITS_TILED,    /* tile-compressed image: a binary table; `decoded` is made at the first use */
    SPX_FITS_BINTABLE, /* binary table */
    SPX_FITS_ASCII,    /* ASCII table: rows of text */
    SPX_FITS_OTHER     /* another extension: bytes */
} spx_fits_kind;

/* Column of a binary table (7.3). */
typedef struct {
    char name[72];                /* TTYPEn, or COLn; no two are equal, regardless of case */
    char unit[72];                /* TUNITn */
    char code;                    /* L X B I J K A E D C M P Q */
    char element;                 /* P, Q: code of the elements that descriptors point at; else 0 */
    size_t offset, width;         /* bytes, in the row */
    size_t size;                  /* bytes of one element (A: of one string) */
    int ndim;                     /* 0: scalar, one element a row */
    size_t dims[SPX_FITS_MAXDIM]; /* slowest first (TDIMn or the repeat count) */
    int flip;                     /* TZEROn makes integers unsigned (B: signed): the sign bit is inverted */
    double scale, zero;           /* TSCALn, TZEROn; 1 and 0 where `flip` covers them */
} spx_fits_column;

typedef struct {
    spx_fits_kind kind;
    char extname[72];       /* EXTNAME, or empty */
    spx_cards header;       /* view into the file's memory: not to be changed or freed */
    size_t header_at;       /* offset of the header in the file */
    size_t data_at, nbytes; /* data, without padding */
    size_t end;             /* offset of the next HDU, behind the padding */
    /* images */
    int bitpix;                   /* TILED: of the image */
    int ndim;                     /* NAXIS; above SPX_FITS_MAXDIM: 1 with all elements */
    size_t dims[SPX_FITS_MAXDIM]; /* slowest first */
    size_t nelem;
    int flip;               /* BZERO makes integers unsigned (8 bits: signed): the sign bit is inverted */
    double scale, zero;     /* BSCALE, BZERO; 1 and 0 where `flip` covers them */
    unsigned char *decoded; /* TILED: the decoded image as FITS bytes */
    const char *copied;     /* dataset that was made of the image bit by bit (convert/blocks.c), or NULL */
    int summed;             /* 1: datasum is known */
    uint32_t datasum;       /* sum of the data (spx_fits_sum()) */
    /* tables */
    size_t nrow, rowsize, ncol;
    spx_fits_column *col; /* [ncol] */
    size_t pcount;        /* bytes behind the rows: gap and heap */
    size_t theap;         /* offset of the heap in them */
} spx_fits_hdu;

typedef struct {
    char name[1024]; /* name for messages */
    const unsigned char *bytes;
    size_t size;
    size_t nhdu;
    spx_fits_hdu *hdu;
    size_t trailing; /* offset of bytes behind the last HDU that are no HDU; = size: none */
    void *owned, *mapped;
    size_t nmapped;
} spx_fits;

/* Finds the structure of a file in memory: `bytes` stay the caller's, and must outlive *f. Errors as of
 * spx_fits_open(). */
spx_status spx_fits_parse(spx_fits *f, const char *name, const void *bytes, size_t size, spx_err *e);
void spx_fits_close(spx_fits *f);

/* "HDU 3 (B_FLUX)", for messages; valid until the next call in this thread. */
const char *spx_fits_hduname(const spx_fits *f, size_t hdu);
/* Index of the HDU with this EXTNAME (regardless of case), or -1. */
int spx_fits_find(const spx_fits *f, const char *extname);
/* Takes HDUs of these names, with commas between them, off the file, as if it had never had them; the first HDU stays.
 */
void spx_fits_leave_out(spx_fits *f, const char *names);
/* Column with this name (regardless of case), or NULL. */
const spx_fits_column *spx_fits_find_column(const spx_fits_hdu *h, const char *name);
/* 1 when the HDU holds an image (tile-compressed or not) of `ndim` dimensions. */
int spx_fits_is_image(const spx_fits_hdu *h, int ndim);

/* Size of one element of a TFORM code, bytes; 0: no such code. */
size_t spx_fits_element_size(char code);
/* Big-endian unsigned integer of n bytes. */
uint64_t spx_fits_integer(const unsigned char *p, size_t n);

/* File and HDU, or dataset, that messages name. */
typedef struct {
    const char *file, *place;
} spx_fits_where;

/* An integer keyword within [min, max]; absent: `absent` when that is not below min. SPX_EINPUT otherwise. */
spx_status spx_fits_header_int(const spx_cards *h, const char *key, long min, long max, long absent,
                               const spx_fits_where *where, long *out, spx_err *e);

/* Fill *h from h->header alone (which stays the caller's): kind, shape, columns, nbytes. `first`: a primary header;
 * `where` is for messages. Used by the reader, and by h52fits, which trusts no file. Free with spx_fits_hdu_free(). */
spx_status spx_fits_describe(spx_fits_hdu *h, int first, const spx_fits_where *where, spx_err *e);
void spx_fits_hdu_free(spx_fits_hdu *h);

#endif
