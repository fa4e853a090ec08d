/* Writes /truth: contract of all readers and writers in products/README. */
#ifndef SPX_TRUTH_H5_H
#define SPX_TRUTH_H5_H

#include <hdf5.h>

#include "base/err.h"
#include "products/truth.h"

/* Writes /truth; fluxes as float32. */
spx_status spx_truth_write(hid_t file, const spx_truth *t, spx_err *e);

#endif
