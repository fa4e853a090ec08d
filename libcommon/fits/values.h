/* Reads values of FITS HDUs: images, tile-compressed or not, and binary tables. */
#ifndef SPX_FITS_VALUES_H
#define SPX_FITS_VALUES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "fits/scan.h"

/* Elements of the image as FITS stores them (big-endian, not scaled), nelem*|bitpix|/8 bytes; tile-compressed images
 * are decoded at the first call. NULL and *e when that fails. */
const unsigned char *spx_fits_raw(spx_fits *f, size_t hdu, spx_err *e);
/* The same with the sign bits inverted where the header's `flip` is set, as spx_fits_image_type() has them: then in new
 * memory, *copy (spx_free), which is NULL otherwise. */
const unsigned char *spx_fits_signed(spx_fits *f, size_t hdu, unsigned char **copy, spx_err *e);

/* Values of the image, scaled (4.4.2.5), nelem elements in new memory (spx_free). BLANK is NaN. u32 is for masks:
 * negative values keep their bits, others that do not fit are SPX_EINPUT. */
spx_status spx_fits_f64(spx_fits *f, size_t hdu, double **out, spx_err *e);
spx_status spx_fits_f32(spx_fits *f, size_t hdu, float **out, spx_err *e);
spx_status spx_fits_u32(spx_fits *f, size_t hdu, uint32_t **out, spx_err *e);

/* 1: the image's values are words of 4 bytes without a scale, BITPIX 32 or -32 as asked. */
int spx_fits_has_words(const spx_fits_hdu *h, int bitpix);
/* n such words of spx_fits_raw() in the machine's order, out[n], their sign bits inverted where `flip` is set. Returns
 * the sum of the words as they are in the file, as numbers without sign, which does not overflow for fewer than 2^32.
 */
uint64_t spx_fits_words(const unsigned char *raw, size_t n, int flip, void *out);

/* Values of a numeric column of any shape as doubles, scaled, [nrow][elements]; *n gets the elements a row. SPX_EINPUT
 * when absent or not numeric. TNULL is NaN. */
spx_status spx_fits_column_f64(const spx_fits *f, size_t hdu, const char *name, size_t *n, double **out, spx_err *e);
/* The same of one row, whose number of elements may vary (P or Q), *n of them. */
spx_status spx_fits_cell_f64(const spx_fits *f, size_t hdu, const char *name, size_t row, size_t *n, double **out,
                             spx_err *e);
/* One row of a logical column of one element: *is_true 1 for T, else 0. SPX_EINPUT when absent or of another kind. */
spx_status spx_fits_cell_true(const spx_fits *f, size_t hdu, const char *name, size_t row, int *is_true, spx_err *e);
/* Values of a string column: nrow blocks of `size` characters, NUL-terminated, trailing blanks dropped. */
spx_status spx_fits_column_str(const spx_fits *f, size_t hdu, const char *name, size_t size, char **out, spx_err *e);

/* Marks the columns that are logical and hold only T and F: truth[ncol], 1 or 0. */
void spx_fits_truth(const spx_fits *f, size_t hdu, unsigned char *truth);
/* Converts rows in place between file bytes and the row type (spx_fits_row_type()); `to_file`: the way back. */
void spx_fits_convert_rows(const spx_fits_hdu *h, const unsigned char *truth, unsigned char *rows, size_t nrow,
                           int to_file);
/* Inverts the sign bits of n big-endian integers of `size` bytes. */
void spx_fits_flip(unsigned char *p, size_t n, size_t size);

#endif
