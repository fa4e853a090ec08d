/* Provides the steps of the fit of PSFs on CUDA devices (psffit/fit.h) by themselves, for tests. */
#ifndef SPX_PSFFIT_CUDA_H
#define SPX_PSFFIT_CUDA_H

#include "psffit/fit.h"

/* Devices of the runtime's numbers, between which bundles are divided. Closed with spx_psffit_cuda_close(), which takes
 * one that was not opened, all 0. SPX_EIO: memory. */
spx_status spx_psffit_cuda_open(int ndevice, const int *device, spx_pf_device *out, spx_err *e);
void spx_psffit_cuda_close(spx_pf_device *d);
/* Frees what the operation psffit keeps of devices from fit to fit. */
void spx_psffit_close_cuda(void);

#endif
