/* Provides block `raw`: one CCD exposure as it was read out, and the layout of its amplifiers. */
#ifndef SPX_RAW_H
#define SPX_RAW_H

#include <stddef.h>

#include "base/err.h"
#include "fits/cards.h"

struct spx_table;

/* One image of an exposure: all of the CCD, or what one or several amplifiers have read of it. */
typedef struct {
    char extname[72]; /* empty: none */
    size_t ny, nx;
    float *data;    /* [ny][nx], ADU; integers up to 2^24 are exact */
    double largest; /* number that the digits of the file end at, 65535 of 16 bits; 0: they do not */
    spx_cards header;
} spx_raw_image;

typedef struct {
    size_t n;
    spx_raw_image *image;
    char camera[16];            /* "r0"; empty when unknown */
    spx_cards header;           /* of the primary HDU */
    struct spx_table *fibermap; /* NULL: none */
} spx_raw;

void spx_raw_free(spx_raw *r);

/* ---- layout ---- */

/* Rectangle of pixels x0 <= x < x1, y0 <= y < y1, counted from 0. */
typedef struct {
    long x0, x1, y0, y1;
} spx_section;

enum { SPX_RAW_NBIAS = 4, SPX_RAW_NLINEAR = 4, SPX_RAW_MOST_AMPLIFIERS = 64, SPX_RAW_NAME = 16 };

/* Parses a section of the IRAF convention, [x1:x2,y1:y2]: counted from 1, both ends included. flip[0], flip[1] become
 * 1 where x or y run backwards, which is how a detector's section says that the amplifier read from the other side.
 * SPX_EINPUT: it is none. */
spx_status spx_section_parse(const char *text, spx_section *s, int flip[2], spx_err *e);
/* Bytes that hold any section as text, its NUL included: four numbers of 64 bits. */
enum { SPX_SECTION_TEXT = 88 };
/* The same section as text. */
void spx_section_print(const spx_section *s, char text[SPX_SECTION_TEXT]);

typedef struct {
    char name[SPX_RAW_NAME];
    size_t image;       /* index of the image with its pixels */
    spx_section data;   /* its pixels there */
    spx_section ccd;    /* where they belong in the pre-processed image; same size */
    int flip_x, flip_y; /* columns, rows run the other way there */
    int right, top;     /* corner of `data` that was read first: cross-talk */
    size_t nbias;       /* overscan sections, in the same image */
    spx_section bias[SPX_RAW_NBIAS];
    double gain;       /* electron/ADU */
    double readnoise;  /* electrons, as the header says; 0: it does not */
    double saturation; /* ADU; 0: unknown */
    size_t nlinear;    /* signal = m (1 + linear[0] m + linear[1] m^2 ...), m ADU above the bias */
    double linear[SPX_RAW_NLINEAR];
} spx_amplifier;

typedef struct {
    size_t ny, nx; /* of the pre-processed image */
    size_t namp;
    spx_amplifier *amp;
    double *crosstalk; /* [namp][namp]: part of the source's signal, second index, that the victim has; NULL: none */
} spx_layout;

void spx_layout_free(spx_layout *l);

/* What a text file says of a layout; empty fields are left to keywords. */
typedef struct {
    char name[SPX_RAW_NAME];
    char image[72], gain[72], readnoise[72], saturation[72]; /* number or keyword; image: index or EXTNAME */
    int has_data, has_ccd, has_corner, flip[2], right, top;
    spx_section data, ccd;
    size_t nbias, nlinear;
    spx_section bias[SPX_RAW_NBIAS];
    double linear[SPX_RAW_NLINEAR];
} spx_layout_entry;

typedef struct {
    char victim[SPX_RAW_NAME], source[SPX_RAW_NAME];
    double factor;
} spx_layout_crosstalk;

typedef struct {
    const char *name; /* of the file, for messages; the caller's */
    size_t namp, capacity, ncross, cross_capacity;
    spx_layout_entry *amp;
    spx_layout_crosstalk *cross;
} spx_layout_file;

/* Reads a layout file, whose lines are
 *
 *     amplifier NAME [image=N|EXTNAME] [data=SECTION] [bias=SECTION]... [ccd=SECTION] [gain=NUMBER|KEYWORD]
 *                    [readnoise=NUMBER|KEYWORD] [saturation=NUMBER|KEYWORD] [linearity=C1,C2...] [corner=ll|lr|ul|ur]
 *     crosstalk VICTIM SOURCE FACTOR
 *
 * SPX_EINPUT with the line that is wrong. Free with spx_layout_file_free() in every case. */
spx_status spx_layout_file_read(const char *name, spx_layout_file *f, spx_err *e);
void spx_layout_file_free(spx_layout_file *f);

/* Layout of an exposure, from its keywords and a layout file (NULL: none). Where the file gives data= of one, its
 * amplifiers are all; else it adds to those of the keywords, by their names.
 *
 * Keywords, with the amplifier's suffix (none, 1, 2, 11, A, B ...), in the image's header or the primary one: DATASEC
 * or DSEC; TRIMSEC or TSEC, which cuts it; BIASSEC or BSEC, and ORSEC of the overscan rows; DETSEC, else CCDSEC or
 * CSEC: where the pixels belong, in binned or unbinned pixels; GAIN or GTGAIN; RDNOISE, READNOIS or GTRON; SATURATE or
 * SATURAT. One amplifier without place has all of the CCD; several in one image are joined without the overscan
 * between them. need_bias: amplifiers without overscan are an error.
 * SPX_EINPUT: no keyword tells of amplifiers, a section does not fit into the image, two overlap, a gain is missing.
 * Free with spx_layout_free() in every case. */
spx_status spx_layout_make(const spx_raw *raw, const spx_layout_file *file, int need_bias, spx_layout *out, spx_err *e);

/* Exposure time, s: EXPTIME or EXPOSURE; of darks DARKTIME first. 0: the header does not say. */
double spx_raw_exptime(const spx_raw *raw, int dark);

#endif
