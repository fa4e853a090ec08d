/* Converts FITS binary tables to tables of a product, and back. */
#ifndef SPX_FITS_TABLE_H5_H
#define SPX_FITS_TABLE_H5_H

#include <stddef.h>

#include "base/err.h"
#include "fits/cards.h"
#include "fits/scan.h"
#include "fits/write.h"
#include "h5/table.h"

/* Reads a binary table without variable-length columns as a table; *out stays NULL (and SPX_OK) where
 * spx_fits_row_type() has no type. */
spx_status spx_fits_table(const spx_fits *f, size_t hdu, spx_table **out, spx_err *e);

/* Writes a table: columns become TFORM A, B, I, J, K, E, D, C, M, L (booleans); unsigned integers by TZERO. SPX_EINPUT:
 * a column of a type that FITS does not have. */
spx_status spx_fits_out_table(spx_fits_out *o, const char *extname, const spx_table *t, const spx_cards *more,
                              spx_err *e);

#endif
