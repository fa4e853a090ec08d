/* FITS files in HDF5 without loss: /fits/<file>/<hdu>/... (schemas/fits.schema). */
#ifndef SPX_FITS_HDF5_H
#define SPX_FITS_HDF5_H

#include <hdf5.h>

#include "base/err.h"
#include "fits/scan.h"
#include "fits/write.h"

typedef char spx_fits_path[96];

/* Write file f as the group /fits/<name>, made of the file's own name without folder and suffix; a number is added when
 * the name is taken. `product` is what was made of it (spx_fits_product_names), kept as an attribute. view[nhdu] (may
 * be NULL): for each HDU, the dataset of a block that was made of it, or an empty text; where that holds the very same
 * values, the HDU's `data` becomes a second name for it (a hard link) instead of a copy. */
spx_status spx_fits_store(hid_t file, spx_fits *f, const char *product, const spx_fits_path *view, spx_err *e);

/* Write the FITS file that `group` (/fits/<file>) was made of. SPX_EINPUT: the group is not complete or contradicts its
 * headers. */
spx_status spx_fits_restore(hid_t file, const char *group, spx_fits_out *out, spx_err *e);

#endif
