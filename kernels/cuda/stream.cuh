/* Provides streams, what orders and times them, and shapes of launches. */
#ifndef SPX_CUDA_STREAM_CUH
#define SPX_CUDA_STREAM_CUH

#include "cuda/check.cuh"
#include "cuda/wait.cuh"

/* Devices of one backend. */
enum { SPX_CUDA_MOST_DEVICES = 16 };

namespace spx
{

/* Blocks of `size` threads, or of as many items, that n need. */
inline unsigned blocks(size_t n, size_t size)
{
    return (unsigned)((n + size - 1) / size);
}

/* A stream of the current device, which does not wait for the default one. */
struct stream {
    cudaStream_t s = nullptr;
    stream()
    {
        check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "stream");
    }
    /* urgent: its blocks go before those of streams that are not. */
    explicit stream(bool urgent)
    {
        int low = 0, high = 0;
        check(cudaDeviceGetStreamPriorityRange(&low, &high), "device");
        check(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, urgent ? high : low), "stream");
    }
    stream(const stream &) = delete;
    stream &operator=(const stream &) = delete;
    ~stream()
    {
        (void)cudaStreamDestroy(s);
    }
};

/* Seconds that a stream takes. */
class stopwatch
{
  public:
    explicit stopwatch(cudaStream_t stream = nullptr) : stream_(stream)
    {
        check(cudaEventCreate(&begin_), "event");
        check(cudaEventCreateWithFlags(&end_, host_event()), "event");
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

/* The `order` of spx_hook_space. */
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

} // namespace spx

#endif
