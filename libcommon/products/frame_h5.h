/* Reads and writes /frame: contract of all readers and writers in products/README. */
#ifndef SPX_FRAME_H5_H
#define SPX_FRAME_H5_H

#include <hdf5.h>

#include "h5/deferred.h"
#include "products/spectra.h"

/* /frame, /fibermap, /scores. precision: 4 or 8 bytes a value of flux, ivar, resolution, chi2pix, pixmask_fraction.
 * Large arrays go on the list `writes` (h5/deferred.h; NULL: none), and
 * then stay as they are until it is flushed. */
spx_status spx_frame_read(hid_t file, spx_frame *f, spx_err *e);
spx_status spx_frame_write(hid_t file, const spx_frame *f, int precision, spx_h5_writes *writes, spx_err *e);
/* Camera of a frame, `size` bytes, and the arm's name, spx_arm_of_camera(). */
spx_status spx_frame_read_camera(hid_t file, size_t size, char *camera, spx_arm *a, spx_err *e);

#endif
