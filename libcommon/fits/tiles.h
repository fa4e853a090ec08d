/* Decodes tile-compressed images (FITS standard 4.0, section 10): a table with one row a tile. */
#ifndef SPX_FITS_TILES_H
#define SPX_FITS_TILES_H

#include "base/err.h"
#include "fits/scan.h"

/* The image of a SPX_FITS_TILED HDU as FITS bytes (big-endian, not scaled by BSCALE and BZERO), nelem*|bitpix|/8 of
 * them in new memory (spx_free). RICE_1, GZIP_1, GZIP_2, PLIO_1, HCOMPRESS_1 and NOCOMPRESS; quantised floats with and
 * without dither, their undefined values NaN. SPX_EINPUT: damaged, or another compression. */
spx_status spx_fits_decode_tiles(const spx_fits *f, size_t hdu, unsigned char **out, spx_err *e);

#endif
