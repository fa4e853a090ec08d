/* Writes /psffit: contract of all writers in products/README. */
#ifndef SPX_PSFFIT_H5_H
#define SPX_PSFFIT_H5_H

#include <hdf5.h>

#include "products/psffit.h"

/* All but the images. */
spx_status spx_psffit_write(hid_t file, const spx_psffit *fit, spx_err *e);
/* Model and residuals alone, of a fit that has them. */
spx_status spx_psffit_write_model(hid_t file, const spx_psffit *fit, spx_err *e);

#endif
