/* Extraction as a stage of the CUDA backend: memory of the devices lives as long as the backend. */
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda.cuh"

extern "C" {
#include "extract/extract_cuda.h"
}

namespace
{

/* Devices in their order; a call that needs one waits until it is free. */
struct devices {
    std::vector<spx_extract_cuda> list;
    std::unique_ptr<std::mutex[]> busy;
    explicit devices(const spx_cuda_state *s) : list((size_t)s->ndevice), busy(new std::mutex[(size_t)s->ndevice])
    {
        for (size_t i = 0; i < list.size(); i++)
            list[i].device = s->device[i];
    }
    devices(const devices &) = delete;
    devices &operator=(const devices &) = delete;
    ~devices()
    {
        for (spx_extract_cuda &d : list)
            spx_extract_cuda_free(&d);
    }
};

std::mutex first_use;

} // namespace

extern "C" spx_status spx_extract_stage_cuda(spx_backend *b, const spx_image *image, const spx_psf *psf,
                                             const spx_extract_options *o, spx_frame *out, spx_extract_counts *counts,
                                             spx_err *e)
{
    spx_cuda_state *s = spx::state_of(b);
    return spx::guarded("extract", e, [&]() {
        {
            const std::lock_guard<std::mutex> lock(first_use);
            if (s->extract == nullptr)
                s->extract = new devices(s);
        }
        devices *all = static_cast<devices *>(s->extract);
        const size_t ndev = all->list.size(), first = o->device >= 0 ? (size_t)o->device % ndev : 0,
                     last = o->device >= 0 ? first : ndev - 1;
        std::vector<std::unique_lock<std::mutex>> held; /* in the order of the devices: nobody waits in a circle */
        for (size_t d = first; d <= last; d++)
            held.emplace_back(all->busy[d]);
        return spx_extract_trace_cuda(&all->list[first], last - first + 1, image, psf, o, out, counts, e);
    });
}

extern "C" void spx_extract_close_cuda(spx_cuda_state *s)
{
    delete static_cast<devices *>(s->extract);
    s->extract = nullptr;
}
