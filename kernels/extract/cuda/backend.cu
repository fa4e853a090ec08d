/* Provides extraction as a stage of the CUDA backend. Memory of the devices lives as long as the backend. */
#include <mutex>
#include <string>
#include <vector>

#include "cuda/backend.cuh"

extern "C" {
#include "extract/cuda/extract_cuda.h"
}

namespace
{

struct devices {
    std::vector<spx_extract_device> list;
    std::vector<std::string> failed; /* why a device could not be opened; else "" */

    explicit devices(const spx_cuda_state *s) : list((size_t)s->ndevice), failed(list.size())
    {
        for (size_t i = 0; i < list.size(); i++) {
            spx_err why = {};
            if (spx_extract_cuda_open(&list[i], s->device[i], &why) != SPX_OK)
                failed[i] = spx_err_text(&why);
        }
    }
    devices(const devices &) = delete;
    devices &operator=(const devices &) = delete;
    ~devices()
    {
        for (spx_extract_device &d : list)
            spx_extract_cuda_free(&d);
    }
};

std::mutex first_use;

} // namespace

extern "C" spx_status spx_extract_cuda(spx_backend *b, const spx_image *image, const spx_psf *psf,
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
        const devices *all = static_cast<const devices *>(s->extract);
        const size_t ndev = all->list.size(), first = o->device >= 0 ? (size_t)o->device % ndev : 0;
        const size_t n = o->device >= 0 ? 1 : ndev;
        for (size_t i = first; i < first + n; i++)
            if (!all->failed[i].empty())
                throw spx::failure(all->failed[i]);
        spx_extract_cuda_times times;
        return spx_extract_trace_cuda(&all->list[first], n, image, psf, o, out, counts, &times, e);
    });
}

extern "C" void spx_extract_close_cuda(spx_cuda_state *s)
{
    delete static_cast<devices *>(s->extract);
    s->extract = nullptr;
}
