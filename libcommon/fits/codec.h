/* Decodes the streams of tile-compressed images (FITS standard 4.0, section 10.4), which may be damaged: nothing
 * outside stream and output is touched, and no state is shared. Each function returns NULL, or says what is wrong with
 * the stream; then the output is undefined. */
#ifndef SPX_FITS_CODEC_H
#define SPX_FITS_CODEC_H

#include <stddef.h>
#include <stdint.h>

/* RICE_1 (10.4.1): n values of `bytes` bytes, 1 (unsigned), 2 or 4, coded in blocks of `block` values. */
const char *spx_rice_decode(const unsigned char *stream, size_t nstream, int bytes, size_t block, int32_t *out,
                            size_t n);

/* PLIO_1 (10.4.3): line list of `nword` big-endian 16-bit words. Values that the list does not reach are 0. */
const char *spx_plio_decode(const unsigned char *stream, size_t nword, int32_t *out, size_t n);

/* HCOMPRESS_1 (10.4.4): the shape of the image, from the head of a stream: `width` values a row. */
const char *spx_hcompress_shape(const unsigned char *stream, size_t nstream, size_t *width, size_t *height);
/* The values, row by row. smooth: coefficients are moved toward their neighbours', within what rounding left open.
 * Workspaces: wide[2 * width * height], codes[2 * ceil(width / 4) * ceil(height / 4)]. */
const char *spx_hcompress_decode(const unsigned char *stream, size_t nstream, int smooth, int64_t *wide,
                                 unsigned char *codes, int32_t *out);

#endif
