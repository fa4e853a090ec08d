/* Writes /burgers: contract of all readers and writers in products/README. */
#ifndef SPX_BURGERS_H5_H
#define SPX_BURGERS_H5_H

#include <hdf5.h>

#include "base/err.h"
#include "products/burgers.h"

/* Writes /burgers. */
spx_status spx_burgers_write(hid_t file, const spx_burgers *b, spx_err *e);

#endif
