/* Reads and writes /flat: contract of all readers and writers in products/README. */
#ifndef SPX_FLAT_H5_H
#define SPX_FLAT_H5_H

#include <hdf5.h>

#include "products/flat.h"

/* /flat, /fibermap. precision: 4 or 8 bytes a value of flat and ivar. */
spx_status spx_flat_read(hid_t file, spx_flat *flat, spx_err *e);
spx_status spx_flat_write(hid_t file, const spx_flat *flat, int precision, spx_err *e);

#endif
