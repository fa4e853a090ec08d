/* Reads and writes /transmission, and writes /tellurics: contract of all readers and writers in products/README. */
#ifndef SPX_TRANSMISSION_H5_H
#define SPX_TRANSMISSION_H5_H

#include <hdf5.h>

#include "products/transmission.h"

/* To be freed with spx_transmission_free(), also after an error. */
spx_status spx_transmission_read(hid_t file, spx_transmission *t, spx_err *e);
spx_status spx_transmission_write(hid_t file, const spx_transmission *t, spx_err *e);

/* Writes /tellurics/table, a row an exposure. */
spx_status spx_tellurics_write(hid_t file, const spx_transmission *t, size_t n, const spx_air *air, spx_err *e);

#endif
