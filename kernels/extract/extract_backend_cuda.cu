/* Extraction as a stage of the CUDA backend: memory of the devices lives as long as the backend. */
#include <new>

#include "cuda.cuh"

extern "C" {
#include "extract/extract_cuda.h"
}

extern "C" spx_status spx_extract_stage_cuda(spx_backend *b, const spx_image *image, const spx_psf *psf,
                                             const spx_extract_options *o, spx_frame *out, spx_extract_counts *counts,
                                             spx_err *e)
{
    spx_cuda_state *s = spx::state_of(b);
    return spx::guarded("extract", e, [&]() {
        if (s->extract == nullptr) {
            spx_extract_cuda *dev = new spx_extract_cuda[(size_t)s->ndevice]();
            for (int i = 0; i < s->ndevice; i++)
                dev[i].device = s->device[i];
            s->extract = dev;
        }
        return spx_extract_trace_cuda(static_cast<spx_extract_cuda *>(s->extract), (size_t)s->ndevice, image, psf, o,
                                      out, counts, e);
    });
}

extern "C" void spx_extract_close_cuda(spx_cuda_state *s)
{
    spx_extract_cuda *dev = static_cast<spx_extract_cuda *>(s->extract);
    for (int i = 0; dev != nullptr && i < s->ndevice; i++)
        spx_extract_cuda_free(&dev[i]);
    delete[] dev;
    s->extract = nullptr;
}
