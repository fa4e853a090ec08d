/* Reads and writes /traces: contract of all readers and writers in products/README. */
#ifndef SPX_TRACES_H5_H
#define SPX_TRACES_H5_H

#include <hdf5.h>

#include "app/main.h"
#include "h5/file.h"
#include "products/stack.h"

/* Reads /traces. SPX_EINPUT also where a type differs from the schema's: shifts of half a sample are a mistake. */
spx_status spx_traces_read(spx_input *in, spx_traces *t, spx_err *e);
spx_status spx_traces_write(hid_t file, const spx_traces *t, spx_err *e);

#endif
