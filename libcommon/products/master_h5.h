/* Reads and writes /master: contract of all readers and writers in products/README. */
#ifndef SPX_MASTER_H5_H
#define SPX_MASTER_H5_H

#include <hdf5.h>

#include "products/master.h"

/* SPX_EINPUT: of a flat, a response that is not above 0. */
spx_status spx_master_read(hid_t file, spx_master *m, spx_err *e);
spx_status spx_master_write(hid_t file, const spx_master *m, spx_err *e);

#endif
