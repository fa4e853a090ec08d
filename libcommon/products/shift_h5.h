/* Writes /shift: contract of all readers and writers in products/README. */
#ifndef SPX_SHIFT_H5_H
#define SPX_SHIFT_H5_H

#include <hdf5.h>

#include "base/err.h"
#include "products/shift.h"

spx_status spx_shift_write(hid_t file, const spx_shift *s, spx_err *e);

#endif
