/* Provides checksums of FITS HDUs, CHECKSUM and DATASUM (FITS standard 4.0, 4.4.2.7 and appendix J). */
#ifndef SPX_FITS_CHECKSUM_H
#define SPX_FITS_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "fits/scan.h"

/* Continues the ones' complement sum of big-endian 32-bit words; bytes that lack at the end count as 0. */
uint32_t spx_fits_sum(uint32_t sum, const void *bytes, size_t n);
/* The complement of a sum as 16 letters and digits: as CHECKSUM they make the whole HDU sum to -0. */
void spx_fits_sum_text(uint32_t sum, char text[17]);

/* Notes the sum of an image's data, of whose values `words` is the sum (spx_fits_words()): its bytes are not read
 * again. */
void spx_fits_note_sum(const spx_fits *f, spx_fits_hdu *h, uint64_t words);

/* SPX_EINPUT, naming the first HDU whose bytes disagree with its DATASUM or CHECKSUM, and how many there are; SPX_OK
 * also where there are no sums. One pass over all bytes. Sums of compressed images are those of their tables. */
spx_status spx_fits_check_sums(const spx_fits *f, spx_err *e);

#endif
