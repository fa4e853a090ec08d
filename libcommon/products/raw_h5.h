/* Reads and writes /raw: contract of all readers and writers in products/README. */
#ifndef SPX_RAW_H5_H
#define SPX_RAW_H5_H

#include <hdf5.h>

#include "h5/deferred.h"
#include "products/raw.h"

/* Reads /raw, and /fibermap where present; `reads`: pixels are deferred (NULL: not). */
spx_status spx_raw_read(hid_t file, spx_h5_reads *reads, spx_raw *r, spx_err *e);

/* Writes camera, header and fibermap; images follow, each with spx_raw_write_image(). */
spx_status spx_raw_write(hid_t file, const spx_raw *r, spx_err *e);
/* Path of image number k, "/raw/image00"; /data and /header are below it. */
void spx_raw_path(size_t k, char path[32]);
/* Writes image k with pixels of an HDF5 type, [ny][nx] of im; its own `data` is not used. */
spx_status spx_raw_write_image(hid_t file, size_t k, const spx_raw_image *im, hid_t type, const void *pixels,
                               spx_err *e);

#endif
