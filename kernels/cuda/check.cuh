/* Provides how code of the host that drives a CUDA device checks calls, and how it passes errors on: a call that fails
 * throws, and guarded(), which stands where C calls and at the end of each thread, makes an spx_err of it. */
#ifndef SPX_CUDA_CHECK_CUH
#define SPX_CUDA_CHECK_CUH

#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <cassert>
#include <cstdarg>
#include <cstdio>
#include <stdexcept>
#include <string>

extern "C" {
#include "base/err.h"
}

/* What has to hold in a kernel; checked in builds with DEBUG=1, which say where it does not. */
#ifdef SPX_DEBUG
#define SPX_DEVICE_ASSERT(x) assert(x)
#else
#define SPX_DEVICE_ASSERT(x) ((void)0)
#endif

namespace spx
{

struct failure : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/* Throws a failure with a message as of printf. */
[[noreturn]] SPX_PRINTF(1, 2) inline void fail(const char *fmt, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, fmt);
    (void)vsnprintf(text, sizeof text, fmt, arguments);
    va_end(arguments);
    throw failure(text);
}

/* Throws unless a call of CUDA's has succeeded; what: whose fault it is, such as "device memory". Launches are checked
 * by check(cudaGetLastError(), "launch"). */
inline void check(cudaError_t status, const char *what)
{
    if (status == cudaErrorMemoryAllocation)
        fail("%s: out of memory: give less than is free ({max_device_mem}), or use {device} cpu", what);
    if (status != cudaSuccess)
        fail("%s: %s: use {device} cpu", what, cudaGetErrorString(status));
}

/* Lets launches of a kernel on the current device have `bytes` of shared memory, beside what it declares: above 48 KB
 * it has to be asked for. An error where a block has less. The limit is one for all threads of the process, which
 * launch the kernel with sizes of their own: it is raised to all that a block may have, and never lowered under
 * another's launch. */
template <typename F> cudaError_t allow_shared(F *kernel, size_t bytes)
{
    const void *k = reinterpret_cast<const void *>(kernel);
    cudaFuncAttributes has;
    int device, most;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess)
        status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (status == cudaSuccess)
        status = cudaFuncGetAttributes(&has, k);
    if (status != cudaSuccess)
        return status;
    if (bytes + has.sharedSizeBytes > (size_t)most)
        return cudaErrorInvalidValue;
    most -= (int)has.sharedSizeBytes;
    return has.maxDynamicSharedSizeBytes >= most
               ? cudaSuccess
               : cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
}

/* Name of a stage in the profilers. */
class range
{
  public:
    explicit range(const char *name)
    {
        nvtxRangePushA(name);
    }
    range(const range &) = delete;
    range &operator=(const range &) = delete;
    ~range()
    {
        nvtxRangePop();
    }
};

/* Runs f(), which returns the status of what C functions did; what it throws does not get out: a failure of the device
 * becomes SPX_EDEVICE, one of the host (memory, threads) SPX_EIO. stage: its name for messages and profilers. After a
 * failure the thread's last error is cleared, or the next launch, perhaps on another device, would seem to have it. */
template <typename F> spx_status guarded(const char *stage, spx_err *e, F f)
{
    try {
        range r(stage);
        const spx_status st = f();
        if (st != SPX_OK)
            (void)cudaGetLastError();
        return st;
    } catch (const failure &x) {
        (void)cudaGetLastError();
        return spx_fail(e, SPX_EDEVICE, "CUDA, %s: %s", stage, x.what());
    } catch (const std::exception &x) {
        return spx_fail(e, SPX_EIO, "CUDA, %s: on the host: %s", stage, x.what());
    }
}

} // namespace spx

#endif
