/* Writes FITS files: verbatim HDUs, and new ones made of arrays and tables. */
#ifndef SPX_FITS_OUT_H
#define SPX_FITS_OUT_H

#include <stddef.h>

#include "base/err.h"
#include "fits/cards.h"

typedef struct {
    int fd;
    const char *name; /* for messages */
    size_t at;        /* bytes written */
} spx_fits_out;

spx_status spx_fits_out_bytes(spx_fits_out *o, const void *p, size_t n, spx_err *e);
/* Writes n bytes of padding, at most 2880. */
spx_status spx_fits_out_fill(spx_fits_out *o, size_t n, char fill, spx_err *e);
/* Writes cards and END, not padded. */
spx_status spx_fits_out_cards(spx_fits_out *o, const spx_cards *h, spx_err *e);

/* Write new HDUs. The first one of a file is the primary HDU. `more`: further cards (may be NULL); those that describe
 * the data are left out of them. CHECKSUM and DATASUM are added (FITS standard 4.0, 4.4.2.7 and appendix J). An image
 * of native values in memory; bitpix 8, 32, -32, -64, -132 for uint32 or -116 for uint16 (BZERO). ndim 0: no data. */
enum { SPX_FITS_UINT32 = -132, SPX_FITS_UINT16 = -116 };
spx_status spx_fits_out_image(spx_fits_out *o, const char *extname, int bitpix, int ndim, const size_t *dims,
                              const void *data, const spx_cards *more, spx_err *e);

/* Write a new HDU in steps: its first cards; the cards of `more`; checksums, then all of it. */
spx_status spx_fits_out_start(spx_fits_out *o, spx_cards *h, const char *xtension, int bitpix, int ndim,
                              const size_t *dims, spx_err *e);
spx_status spx_fits_out_more(spx_cards *h, const spx_cards *more, spx_err *e);
spx_status spx_fits_out_hdu(spx_fits_out *o, spx_cards *h, const unsigned char *data, size_t n, spx_err *e);

#endif
