/* Whole-trace extraction on a CUDA device. */
#ifndef SPX_EXTRACT_CUDA_H
#define SPX_EXTRACT_CUDA_H

#include "extract/extract.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One device: its streams, memory and staging areas, kept from call to call. */
typedef struct {
    int device;
    void *pool;
} spx_extract_device;

/* What a call took, and where it went. */
typedef struct {
    double seconds; /* from the first transfer to the last */
    double step[5]; /* equations, solution, marginal information, square root, fit: pieces of a frame that run side
                     * by side are added up; what is done beside another step counts where it is waited for */
    size_t coupled; /* bundles that were solved once more, as strongly coupled */
} spx_extract_cuda_times;

/* Devices that there are, 0 also where there is no driver. */
int spx_extract_cuda_count(void);
spx_status spx_extract_cuda_open(spx_extract_device *dev, int device, spx_err *e);
/* Give the memory back; no call may be under way. */
void spx_extract_cuda_free(spx_extract_device *dev);

/* As spx_extract_trace_cpu(), within 1e-6 sigma (flux) and 1e-8 (ivar, relative; R) of it or, where that is more, the
 * sum of what both say that rounding makes (counts->rounding; what they drop they drop by the same rules); the same
 * bits when repeated on the same device. Tails and a background are found by the device in single precision: fluxes are
 * within 1e-5 sigma then. Bundles are shared out among the devices. Those in which the next neighbours but one matter
 * more than to first order (traces that lie on each other, masks that hit several at the same place), and those in
 * which bins matter to each other that are farther apart than usual (bins of less than a pixel, traces that cross), are
 * solved once more, as on the CPU; where bins are so narrow that the tolerance is not reached, counts->tolerance says
 * how far. Those whose equations need regularisation, or that take more memory than there is, are solved on the CPU, to
 * the bits of spx_extract_trace_cpu() unless that light is taken off; counts->fallback has their number, and
 * counts->seconds are of these. Hits (o->reject) are found on the devices by a pass before, those of such bundles on
 * the CPU: the same pixels as on the CPU, unless an excess is at a threshold to within rounding; with the variance of
 * the model, both on the CPU for all. SPX_EDEVICE: a device failed or has too little memory; SPX_EUSAGE also for
 * patches. Several threads may call it for the same device: three calls at a time share it, transfers of some beside
 * the computation of others, and more wait. A call that finds the memory taken by others waits for them, too. Where
 * memory is kept (spx_mem_cache()), all arrays have to be blocks of spx_alloc() and its like. */
spx_status spx_extract_trace_cuda(const spx_extract_device *dev, size_t ndev, const spx_image *image,
                                  const spx_psf *psf, const spx_extract_options *o, spx_frame *out,
                                  spx_extract_counts *counts, spx_extract_cuda_times *times, spx_err *e);

#ifdef __cplusplus
}
#endif

#endif
