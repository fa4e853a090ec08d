/* What the stages of the CUDA backend share: errors as exceptions that one place turns into an spx_err, memory that is
 * freed by itself, ranges for the profilers. */
#ifndef SPX_CUDA_CUH
#define SPX_CUDA_CUH

#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <atomic>
#include <cassert>
#include <cstdio>
#include <stdexcept>
#include <string>

/* Structures and functions of the host, which is C: `restrict` is no word of C++. */
#define restrict __restrict__
extern "C" {
#include "backend.h"
#include "base/mem.h"
#include "base/plugin.h"
}
#undef restrict

/* What has to hold in a kernel; checked in builds with DEBUG=1, which say where it does not. */
#ifdef SPX_DEBUG
#define SPX_DEVICE_ASSERT(x) assert(x)
#else
#define SPX_DEVICE_ASSERT(x) ((void)0)
#endif

/* Devices of one backend. */
enum { SPX_CUDA_MOST_DEVICES = 16 };
struct spx_cuda_state {
    int ndevice;
    int device[SPX_CUDA_MOST_DEVICES];
    void *extract; /* what extraction keeps from frame to frame */
};

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

/* A stream of the current device, which does not wait for the default one. */
struct stream {
    cudaStream_t s = nullptr;
    stream()
    {
        check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "stream");
    }
    stream(const stream &) = delete;
    stream &operator=(const stream &) = delete;
    ~stream()
    {
        (void)cudaStreamDestroy(s);
    }
};

/* A library's version by its parts. */
template <typename F> void tell_library(spx_plugin_tell *tell, const char *key, F property)
{
    int part[3] = {0, 0, 0};
    const libraryPropertyType which[3] = {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
    for (int i = 0; i < 3; i++)
        (void)property(which[i], &part[i]);
    tell(key, "%d.%d.%d", part[0], part[1], part[2]);
}

/* Bytes that were copied from a device to the host so far, and to a device (spx_backend's copied). */
inline std::atomic<size_t> to_host{0}, to_device{0};

/* Device memory of n elements. */
template <typename T> class array
{
  public:
    array() = default;
    explicit array(size_t n)
    {
        size_t bytes;
        if (spx_mul(n > 0 ? n : 1, sizeof(T), &bytes, nullptr) != SPX_OK)
            throw failure("device memory: size overflows");
        check(cudaMalloc(reinterpret_cast<void **>(&p_), bytes), "device memory");
    }
    array(const array &) = delete;
    array &operator=(const array &) = delete;
    array(array &&other) noexcept : p_(other.p_)
    {
        other.p_ = nullptr;
    }
    array &operator=(array &&other) noexcept
    {
        std::swap(p_, other.p_);
        return *this;
    }
    ~array()
    {
        (void)cudaFree(p_);
    }
    T *get() const
    {
        return p_;
    }
    void put(const T *from, size_t n)
    {
        to_device += n * sizeof(T);
        check(cudaMemcpy(p_, from, n * sizeof(T), cudaMemcpyHostToDevice), "copy to the device");
    }
    void take(T *to, size_t n) const
    {
        to_host += n * sizeof(T);
        check(cudaMemcpy(to, p_, n * sizeof(T), cudaMemcpyDeviceToHost), "copy from the device");
    }
    void clear(size_t n)
    {
        check(cudaMemset(p_, 0, n * sizeof(T)), "device memory");
    }

  private:
    T *p_ = nullptr;
};

/* A copy of host values on the device. */
template <typename T> array<T> upload(const T *from, size_t n)
{
    array<T> a(n);
    a.put(from, n);
    return a;
}

/* Seconds that a stream takes. */
class stopwatch
{
  public:
    explicit stopwatch(cudaStream_t stream = nullptr) : stream_(stream)
    {
        check(cudaEventCreate(&begin_), "event");
        check(cudaEventCreate(&end_), "event");
        check(cudaEventRecord(begin_, stream_), "event");
    }
    stopwatch(const stopwatch &) = delete;
    stopwatch &operator=(const stopwatch &) = delete;
    /* Waits for what was launched since, and gives the seconds. */
    double stop()
    {
        float ms = 0;
        check(cudaEventRecord(end_, stream_), "event");
        check(cudaEventSynchronize(end_), "event");
        check(cudaEventElapsedTime(&ms, begin_, end_), "event");
        return 1e-3 * (double)ms;
    }
    ~stopwatch()
    {
        (void)cudaEventDestroy(begin_);
        (void)cudaEventDestroy(end_);
    }

  private:
    cudaStream_t stream_;
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

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

/* Events of a thread, one a device: a wait is for what an event says when it is called, not for what it says later. */
struct order_events {
    cudaEvent_t event[SPX_CUDA_MOST_DEVICES] = {};
    order_events() = default;
    order_events(const order_events &) = delete;
    order_events &operator=(const order_events &) = delete;
    ~order_events()
    {
        for (cudaEvent_t e : event)
            if (e != nullptr)
                (void)cudaEventDestroy(e);
    }
};

/* The `order` of spx_hook_place. */
inline int order(void *earlier, void *later)
{
    static thread_local order_events mine;
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess || device >= SPX_CUDA_MOST_DEVICES)
        return 1;
    cudaEvent_t &done = mine.event[device];
    if (done == nullptr && cudaEventCreateWithFlags(&done, cudaEventDisableTiming) != cudaSuccess)
        return 1;
    return cudaEventRecord(done, static_cast<cudaStream_t>(earlier)) != cudaSuccess ||
           cudaStreamWaitEvent(static_cast<cudaStream_t>(later), done, 0) != cudaSuccess;
}

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
