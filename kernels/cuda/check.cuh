/* Provides how code of the host that drives a CUDA device checks calls, and how it passes errors on: a call that fails
 * throws, and guarded(), which stands where C calls and at the end of each thread, makes an spx_err of it. */
#ifndef SPX_CUDA_CHECK_CUH
#define SPX_CUDA_CHECK_CUH

#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <cassert>
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

inline void check(cudaError_t status, const char *what)
{
    if (status != cudaSuccess)
        throw failure(std::string(what) + ": " + cudaGetErrorString(status));
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

/* Runs a stage; a failure of the device becomes SPX_EDEVICE. The stage returns the status of what the host did. */
template <typename F> spx_status guarded(const char *stage, spx_err *e, F f)
{
    try {
        range r(stage);
        return f();
    } catch (const std::exception &x) {
        (void)cudaGetLastError();
        return spx_fail(e, SPX_EDEVICE, "CUDA, %s: %s", stage, x.what());
    }
}

} // namespace spx

#endif
