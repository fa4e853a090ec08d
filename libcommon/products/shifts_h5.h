/* Reads and writes /shifts: contract of all readers and writers in products/README. */
#ifndef SPX_SHIFTS_H5_H
#define SPX_SHIFTS_H5_H

#include <hdf5.h>

#include "app/main.h"
#include "h5/file.h"
#include "products/stack.h"

/* Reads /shifts for traces of this precision; weights are 1 where the file has none. */
spx_status spx_shifts_read(spx_input *in, int precision, spx_shifts *s, spx_err *e);
spx_status spx_shifts_write(hid_t file, const spx_shifts *s, spx_err *e);

#endif
