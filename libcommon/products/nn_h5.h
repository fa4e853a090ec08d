/* Reads and writes a network in any group: contract of all readers and writers in products/README. */
#ifndef SPX_NN_H5_H
#define SPX_NN_H5_H

#include <hdf5.h>

#include "products/templates.h"

/* Reads or writes a network in group `path`, nn/ of a setup or /network: npar parameters to nout outputs. Outputs are
 * finite if the parameters are. Free with spx_nn_free(), also after an error. Writing refuses numbers that are not
 * finite (SPX_EINPUT). */
spx_status spx_nn_read(hid_t file, const char *path, size_t npar, size_t nout, spx_nn *nn, spx_err *e);
spx_status spx_nn_write(hid_t file, const char *path, const spx_nn *nn, spx_err *e);

#endif
