/* Stores FITS files in HDF5 without loss, as /fits/<file>/<hdu>/... (schemas/fits.schema), and restores them. */
#ifndef SPX_FITS_HDF5_H
#define SPX_FITS_HDF5_H

#include <hdf5.h>

#include "base/err.h"
#include "fits/scan.h"
#include "fits/write.h"

typedef char spx_fits_path[96];

/* Stores file f as group /fits/<name>, named after the file without folder and suffix; a number is added when the name
 * is taken. `product`: kind that was recognised (spx_fits_product_names), kept as an attribute. view[nhdu] (may be
 * NULL): dataset of a block made from each HDU, or an empty text; where it holds exactly the same values, the HDU's
 * `data` becomes a hard link to it instead of a copy. */
spx_status spx_fits_store(hid_t file, spx_fits *f, const char *product, const spx_fits_path *view, spx_err *e);

/* Restores the FITS file that `group` (/fits/<file>) was made from. SPX_EINPUT: the group is incomplete or contradicts
 * its headers. */
spx_status spx_fits_restore(hid_t file, const char *group, spx_fits_out *out, spx_err *e);

#endif
