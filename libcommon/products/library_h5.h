/* Reads /library: contract of all readers and writers in products/README. */
#ifndef SPX_LIBRARY_H5_H
#define SPX_LIBRARY_H5_H

#include <hdf5.h>

#include "products/library.h"

/* Reads /library without its fluxes, whose shape is checked. SPX_EINPUT: absent, shapes that contradict each other,
 * more than SPX_MAX_PAR parameters. Free with spx_library_free(), also after an error. */
spx_status spx_library_read(hid_t file, spx_library *lib, spx_err *e);
/* Reads fluxes of rows first ... first+n-1: flux[n][nwave]. */
spx_status spx_library_read_flux(hid_t file, const spx_library *lib, size_t first, size_t n, float *flux, spx_err *e);

#endif
