/* Results of a batch on a CUDA device for a hook. They are with the host when a batch is complete: the hook gets copies
 * on the device that computed them, and what it wrote there comes back. */
#include <cstring>
#include <vector>

#include "cuda.cuh"

namespace
{

size_t elements(const spx_hook_array &a)
{
    size_t n = 1;
    for (int i = 0; i < a.ndim; i++)
        n *= a.shape[i];
    return n;
}

bool strided(const spx_hook_array &a)
{
    for (int i = 0; i < a.ndim; i++)
        if (a.stride[i] != 0)
            return true;
    return false;
}

/* The elements of a strided array one after another. */
std::vector<unsigned char> gathered(const spx_hook_array &a)
{
    const size_t size = spx_hook_type_size(a.type), n = elements(a);
    std::vector<unsigned char> to(n * size);
    for (size_t i = 0; i < n; i++) {
        ptrdiff_t at = 0;
        size_t rest = i;
        for (int d = a.ndim - 1; d >= 0; d--) {
            at += (ptrdiff_t)(rest % a.shape[d]) * a.stride[d];
            rest /= a.shape[d];
        }
        std::memcpy(&to[i * size], static_cast<const unsigned char *>(a.data) + at, size);
    }
    return to;
}

} // namespace

extern "C" spx_status spx_cuda_lend(void *ctx, spx_hook *h, const char *stage, size_t narray,
                                    const spx_hook_array *array, spx_err *e)
{
    const int device = *static_cast<const int *>(ctx);
    return spx::guarded("hook", e, [&] {
        spx::check(cudaSetDevice(device), "device");
        const spx::stream st;
        std::vector<spx::array<unsigned char>> memory;
        std::vector<spx_hook_array> lent(array, array + narray);
        for (spx_hook_array &a : lent) {
            const size_t bytes = elements(a) * spx_hook_type_size(a.type);
            memory.emplace_back(bytes);
            if (strided(a))
                memory.back().put(gathered(a).data(), bytes);
            else
                memory.back().put(static_cast<const unsigned char *>(a.data), bytes);
            a.data = memory.back().get();
            std::memset(a.stride, 0, sizeof a.stride);
        }
        spx::check(cudaDeviceSynchronize(), "copy to the device");
        spx_hook_step_info step = {};
        step.stage = stage;
        step.at = {device, st.s, spx_cuda_order};
        step.narray = narray;
        step.array = lent.data();
        spx_status status = spx_hook_step(h, &step, e);
        const cudaError_t done = cudaStreamSynchronize(st.s);
        spx_hook_leave(h);
        spx::check(done, "hook");
        spx::check(cudaSetDevice(device), "device");
        for (size_t i = 0; i < narray && status == SPX_OK; i++)
            if (h->writable && array[i].writable)
                memory[i].take(static_cast<unsigned char *>(array[i].data),
                               elements(array[i]) * spx_hook_type_size(array[i].type));
        return status;
    });
}
