/* Reads and writes /flux: contract of all readers and writers in products/README. */
#ifndef SPX_FLUX_H5_H
#define SPX_FLUX_H5_H

#include <hdf5.h>

#include "products/flux.h"

spx_status spx_flux_read(hid_t file, spx_flux *f, spx_err *e);
spx_status spx_flux_write(hid_t file, const spx_flux *f, spx_err *e);

#endif
