/* Reads and writes /zeropoint: contract of all readers and writers in products/README. */
#ifndef SPX_ZEROPOINT_H5_H
#define SPX_ZEROPOINT_H5_H

#include <hdf5.h>

#include "base/err.h"
#include "products/zeropoint.h"

/* Sorted by keys. SPX_EINPUT also where two rows have the same key, or a zero point or its error is no number. Columns
 * ARM, PETAL, FIBER and NIGHT that are absent name nothing; ZERO_ERR that is absent is 0. */
spx_status spx_zeropoints_read(hid_t file, spx_zeropoints *z, spx_err *e) SPX_NODISCARD;
spx_status spx_zeropoints_write(hid_t file, const spx_zeropoints *z, spx_err *e);

#endif
