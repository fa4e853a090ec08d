/* Provides staging workers: host threads that copy between pageable arrays and page-locked chunks, while the device
 * transfers other chunks. A device moves page-locked memory only. */
#ifndef SPX_EXTRACT_CUDA_STAGING_CUH
#define SPX_EXTRACT_CUDA_STAGING_CUH

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "extract/cuda/params.cuh"

namespace
{

/* MAX_WORKERS threads at most, as memory gets no faster with more; and as many chunks as they can fill, with those that
 * hold most of a piece's results. Chunks come by the block: locking pages takes a millisecond each time. */
enum { CHUNKS = 32, CHUNK_BYTES = 2 << 20, MAX_WORKERS = 12, EACH_BLOCK = 8 };

struct chunk {
    char *at;
    cudaEvent_t used; /* when the device has read it, or written to it */
};

/* The threads and the chunks of a call's pieces, kept from call to call: a thread that is made needs a stack, and where
 * other threads fetch pages it waits for them. */
class staging_workers
{
  public:
    staging_workers() = default;
    staging_workers(const staging_workers &) = delete;
    staging_workers &operator=(const staging_workers &) = delete;
    ~staging_workers()
    {
        stop();
        for (int i = 0; i < nchunk_; i++)
            (void)cudaEventDestroy(used_[i]);
        for (char *block : blocks_)
            (void)cudaFreeHost(block);
    }

    /* n threads, MAX_WORKERS at most, for the device; those that are there stay if they are as many. */
    void start(int n, int device)
    {
        n = n < MAX_WORKERS ? n : (int)MAX_WORKERS;
        if ((size_t)n == threads_.size())
            return;
        stop();
        for (int i = 0; i < n; i++)
            threads_.emplace_back([this, device]() { work_for(device); });
    }

    /* Something to do, as spx_status(spx_err *), which throws nothing: begun in the order of posting. */
    template <typename F> void post(F what)
    {
        {
            const std::lock_guard<std::mutex> lock(lock_);
            loads_.emplace_back(std::move(what));
        }
        posted_.notify_one();
    }

    /* Waits until all is done that was posted; returns the first error since the last time. */
    spx_status wait(spx_err *e)
    {
        std::unique_lock<std::mutex> lock(lock_);
        idle_.wait(lock, [this]() { return loads_.empty() && busy_ == 0; });
        const spx_status st = status_;
        if (st != SPX_OK)
            spx_err_pass(e, &error_);
        status_ = SPX_OK;
        return st;
    }

    /* Takes a chunk, which is free once `used` has come; waits for one. Others than workers leave one chunk per worker:
     * only workers return chunks, so if others could take the last ones the workers would deadlock. */
    void take(bool is_worker, chunk *c)
    {
        std::unique_lock<std::mutex> lock(lock_);
        const int left = is_worker ? 0 : (int)threads_.size();
        given_.wait(lock, [&]() { return nfree_ + CHUNKS - nchunk_ > left; });
        if (nfree_ == 0)
            make();
        *c = free_[first_];
        first_ = (first_ + 1) % CHUNKS;
        nfree_--;
    }
    void give(const chunk &c)
    {
        {
            const std::lock_guard<std::mutex> lock(lock_);
            free_[(first_ + nfree_++) % CHUNKS] = c;
        }
        given_.notify_all(); /* who can take it depends on who waits */
    }

  private:
    std::mutex lock_;
    std::condition_variable posted_, idle_, given_;
    std::deque<std::function<spx_status(spx_err *)>> loads_;
    chunk free_[CHUNKS] = {}; /* nfree_ of them, from first_ on, round about */
    char *blocks_[CHUNKS / EACH_BLOCK] = {};
    cudaEvent_t used_[CHUNKS] = {};
    int nchunk_ = 0, first_ = 0, nfree_ = 0;
    std::vector<std::thread> threads_;
    int busy_ = 0;
    bool leave_ = false;
    spx_status status_ = SPX_OK;
    spx_err error_ = {};

    /* A block of chunks more: locking is done for many at a time, as each takes long. */
    void make()
    {
        char **block = &blocks_[nchunk_ / EACH_BLOCK];
        if (!*block)
            spx::check(cudaMallocHost((void **)block, (size_t)EACH_BLOCK * CHUNK_BYTES), "page-locked memory");
        do {
            spx::check(cudaEventCreateWithFlags(&used_[nchunk_], spx::host_event(cudaEventDisableTiming, sleeps())),
                       "event");
            free_[(first_ + nfree_++) % CHUNKS] = {*block + (size_t)(nchunk_ % EACH_BLOCK) * CHUNK_BYTES,
                                                   used_[nchunk_]};
        } while (++nchunk_ % EACH_BLOCK != 0);
    }

    void work_for(int device)
    {
        std::unique_lock<std::mutex> lock(lock_);
        const cudaError_t code = cudaSetDevice(device);
        for (;;) {
            posted_.wait(lock, [this]() { return leave_ || !loads_.empty(); });
            if (loads_.empty())
                return;
            const auto what = std::move(loads_.front());
            loads_.pop_front();
            busy_++;
            lock.unlock();
            spx_err mine = {};
            spx_status st = what(&mine); /* in any case: others wait for what it gives back, and for its word */
            if (code != cudaSuccess)
                st = spx::guarded("extract", &mine, [&]() {
                    spx::check(code, "threads of the host");
                    return SPX_OK;
                });
            lock.lock();
            busy_--;
            if (st != SPX_OK && status_ == SPX_OK) {
                status_ = st;
                error_ = mine;
            }
            if (loads_.empty() && busy_ == 0)
                idle_.notify_all();
        }
    }

    void stop()
    {
        {
            const std::lock_guard<std::mutex> lock(lock_);
            leave_ = true;
        }
        posted_.notify_all();
        for (std::thread &t : threads_)
            t.join();
        threads_.clear();
        leave_ = false;
    }
};

} // namespace

#endif
