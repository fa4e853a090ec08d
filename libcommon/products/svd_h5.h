/* Writes /svd: contract of all readers and writers in products/README. */
#ifndef SPX_SVD_H5_H
#define SPX_SVD_H5_H

#include <hdf5.h>

#include "base/err.h"
#include "products/svd.h"

/* Writes /svd. units: of the decomposed data. */
spx_status spx_svd_write(hid_t file, const spx_svd *d, const char *units, spx_err *e);

#endif
