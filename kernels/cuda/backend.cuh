/* Provides the CUDA backend's state and its stages, for their files and kernels/backend_cuda.cu. */
#ifndef SPX_CUDA_BACKEND_CUH
#define SPX_CUDA_BACKEND_CUH

#include <atomic>

#include "cuda/check.cuh"
#include "cuda/memory.cuh"
#include "cuda/stream.cuh"

/* Structures and functions of the host, which is C: `restrict` is no word of C++. */
#define restrict __restrict__
extern "C" {
#include "backend.h"
#include "base/plugin.h"
}
#undef restrict

struct spx_cuda_state {
    int ndevice;
    int device[SPX_CUDA_MOST_DEVICES];
    void *extract; /* what extraction keeps from frame to frame */
    /* 1: an operation other than extraction has pages of blocks locked (spx_mem_begin_pagelock()) */
    std::atomic<int> pagelock;
};

namespace spx
{

/* A library's version by its parts. */
template <typename F> void tell_library(spx_plugin_tell *tell, const char *key, F property)
{
    int part[3] = {0, 0, 0};
    const libraryPropertyType which[3] = {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
    for (int i = 0; i < 3; i++)
        (void)property(which[i], &part[i]);
    tell(key, "%d.%d.%d", part[0], part[1], part[2]);
}

inline spx_cuda_state *state_of(spx_backend *b)
{
    return static_cast<spx_cuda_state *>(b->state);
}

/* The first of the devices, for stages that use one. */
inline int use_first(spx_backend *b)
{
    const int device = state_of(b)->device[0];
    check(cudaSetDevice(device), "device");
    return device;
}

/* Has pages of blocks that stay from item to item locked, by the first of an operation's calls. */
inline void lock_blocks(spx_backend *b)
{
    if (state_of(b)->pagelock.exchange(1) == 0)
        spx_mem_begin_pagelock(lock_pages);
}

/* Notes the seconds of an operation's kernels, which several workers of a queue may do at a time. */
inline void note_seconds(spx_backend *b, double seconds)
{
    __atomic_store(&b->device_seconds, &seconds, __ATOMIC_RELAXED);
}

} // namespace spx

extern "C" {
/* Operations; contracts as those of the CPU. */
#define SPX_CUDA_yes(...) __VA_ARGS__
#define SPX_CUDA_no(...)
#define SPX_FUNCTION(type, function, cuda, parameters, arguments)                                                      \
    SPX_CUDA_##cuda(type spx_##function##_cuda(spx_backend *b, SPX_LIST parameters);)
#include "operations.def"
void spx_extract_close_cuda(spx_cuda_state *s);
/* The operation svd, in a shared object of its own, backend-cuda-svd.so, with the libraries that it brings. */
spx_status spx_svd_cusolver(spx_backend *b, double *a, size_t nrow, size_t ncol, const spx_svd_options *o, spx_svd *out,
                            spx_err *e);
void spx_svd_describe_cuda(spx_plugin_tell *tell);
}

#endif
