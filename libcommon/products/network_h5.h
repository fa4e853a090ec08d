/* Reads and writes /network: contract of all readers and writers in products/README. */
#ifndef SPX_NETWORK_H5_H
#define SPX_NETWORK_H5_H

#include <hdf5.h>

#include "products/network.h"

/* Reads or writes /network. */
spx_status spx_network_read(hid_t file, spx_network *n, spx_err *e);
spx_status spx_network_write(hid_t file, const spx_network *n, spx_err *e);

#endif
