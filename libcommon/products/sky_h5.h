/* Writes /sky: contract of all readers and writers in products/README. */
#ifndef SPX_SKY_H5_H
#define SPX_SKY_H5_H

#include <hdf5.h>

#include "h5/deferred.h"
#include "products/sky.h"
#include "products/spectra.h"

/* precision: 4 or 8 bytes a value of model and variance. Large arrays go on the list `writes` (h5/deferred.h; NULL:
 * none), and then stay as they are until it is flushed. */
spx_status spx_sky_write(hid_t file, const spx_sky *sky, spx_medium medium, int precision, spx_h5_writes *writes,
                         spx_err *e);

/* Has the sky been subtracted from the frame? It may be there, and kept in the frame (specx-sky --keep-sky). */
int spx_sky_is_subtracted(hid_t file);

#endif
