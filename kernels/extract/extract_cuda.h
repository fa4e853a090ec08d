/* Whole-trace extraction on a CUDA device. */
#ifndef SPX_EXTRACT_CUDA_H
#define SPX_EXTRACT_CUDA_H

#include "extract/extract.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SPX_CUDA_STREAMS = 4 };

/* One device: its memory, kept from call to call. Zeroed before its first use, but for `device`. */
typedef struct {
    int device;
    void *room; /* device memory, and its size */
    size_t size;
    void *staging; /* page-locked host memory */
    void *stream[SPX_CUDA_STREAMS];
    void *event[4];           /* when its parts are free */
    size_t shared;            /* bytes of shared memory that a block may have */
    double transfer, compute; /* seconds of the last call */
    double step[5];           /* of which: equations, solution, marginal information, square root, fit */
    size_t nbundle_host;      /* bundles of the last call that were left to the CPU */
} spx_extract_cuda;

/* As spx_extract_trace_cpu(), within 1e-6 sigma (flux) and 1e-8 (ivar, relative; R) of it; the same bits when repeated
 * on the same device. Bundles are shared out among the devices. Those with coupling beyond the next fibre (masks that
 * hit neighbouring traces at the same place), and those whose equations need regularisation, are solved on the CPU;
 * counts->seconds are of these. SPX_EDEVICE: a device failed or has too little memory; SPX_EUSAGE also for patches. */
spx_status spx_extract_trace_cuda(spx_extract_cuda *dev, size_t ndev, const spx_image *image, const spx_psf *psf,
                                  const spx_extract_options *o, spx_frame *out, spx_extract_counts *counts, spx_err *e);
/* Give the memory back. */
void spx_extract_cuda_free(spx_extract_cuda *dev);

#ifdef __cplusplus
}
#endif

#endif
