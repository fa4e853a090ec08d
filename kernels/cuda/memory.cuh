/* Provides memory of devices, and of the host as devices reach it, that is freed by itself; how much of it a program
 * takes beside others; and how many bytes were copied between them. */
#ifndef SPX_CUDA_MEMORY_CUH
#define SPX_CUDA_MEMORY_CUH

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include "cuda/check.cuh"

extern "C" {
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
}

namespace spx
{

/* Bytes that were copied from a device to the host so far, and to a device (spx_backend's copied). */
inline std::atomic<size_t> to_host{0}, to_device{0};

/* ---- programs side by side on a device ----
 *
 * A program takes what its work needs, and leaves a tenth of what is free, and LEFT_FREE, for contexts of those that
 * begin. One that finds less than its least because of others waits for them, PATIENCE seconds at most, and says so:
 * two that wait for each other go on then, with an error. */
constexpr size_t LEFT_FREE = (size_t)512 << 20;
constexpr double PATIENCE = 60.0;

enum { MOST_DEVICES = 64 };

/* Bytes that this program has of each device. */
inline std::atomic<size_t> held[MOST_DEVICES];

/* Gives back what the program keeps of devices and does not use; set by what keeps some. */
inline std::atomic<void (*)()> give_back{nullptr};

struct memory_of_device {
    size_t usable, total;
};

/* Of the device in use, with `own` bytes that are given back before. */
inline memory_of_device look_at_memory(size_t own)
{
    size_t free_bytes, total;
    check(cudaMemGetInfo(&free_bytes, &total), "device memory");
    const size_t all = free_bytes + own, left = std::max(all / 10, std::min(LEFT_FREE, total / 32));
    return {all - std::min(all, left), total};
}

inline int device_in_use()
{
    int device;
    check(cudaGetDevice(&device), "device");
    return std::min(device, (int)MOST_DEVICES - 1);
}

/* Bytes of the device in use that may be taken; where these are less than `least`, what the program keeps is given
 * back, and other programs that have the rest are waited for. own: bytes of this program that are given back before. */
inline size_t usable_memory(size_t least, size_t own = 0)
{
    memory_of_device m = look_at_memory(own);
    if (m.usable < least && give_back != nullptr) { /* programs that keep memory would wait for each other */
        give_back.load()();
        m = look_at_memory(own);
    }
    const size_t mine = held[device_in_use()] - own;
    const double begin = spx_seconds();
    for (bool said = false; m.usable < least && least + mine + 2 * LEFT_FREE <= m.total; m = look_at_memory(own)) {
        if (spx_seconds() - begin > PATIENCE)
            break;
        if (!said)
            spx_note("waits for %.2f GB of device memory, up to %.0f s: other programs have left %.2f GB",
                     1e-9 * (double)least, PATIENCE, 1e-9 * (double)m.usable);
        said = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return m.usable;
}

/* Device memory of n elements. Where other programs have too much of it, waits for them. */
template <typename T> class array
{
  public:
    array() = default;
    explicit array(size_t n)
    {
        size_t bytes;
        if (spx_mul(n > 0 ? n : 1, sizeof(T), &bytes, nullptr) != SPX_OK)
            throw failure("device memory: size overflows");
        const int device = device_in_use();
        const double begin = spx_seconds();
        cudaError_t code = cudaMalloc(reinterpret_cast<void **>(&p_), bytes);
        /* another program may be faster, again and again */
        while (code == cudaErrorMemoryAllocation && usable_memory(bytes) >= bytes && spx_seconds() - begin < PATIENCE) {
            (void)cudaGetLastError();
            if ((code = cudaMalloc(reinterpret_cast<void **>(&p_), bytes)) == cudaErrorMemoryAllocation)
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        check(code, "device memory");
        device_ = device;
        bytes_ = bytes;
        held[device] += bytes;
    }
    array(const array &) = delete;
    array &operator=(const array &) = delete;
    array(array &&other) noexcept
    {
        swap(other);
    }
    array &operator=(array &&other) noexcept
    {
        swap(other);
        return *this;
    }
    ~array()
    {
        (void)cudaFree(p_);
        held[device_] -= bytes_;
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
    size_t bytes_ = 0;
    int device_ = 0;

    void swap(array &other) noexcept
    {
        std::swap(p_, other.p_);
        std::swap(bytes_, other.bytes_);
        std::swap(device_, other.device_);
    }
};

/* A copy of host values on the device. */
template <typename T> array<T> upload(const T *from, size_t n)
{
    array<T> a(n);
    a.put(from, n);
    return a;
}

/* Page-locked host memory of n elements, which grows. */
template <typename T> class pinned_buffer
{
  public:
    pinned_buffer() = default;
    pinned_buffer(const pinned_buffer &) = delete;
    pinned_buffer &operator=(const pinned_buffer &) = delete;
    ~pinned_buffer()
    {
        (void)cudaFreeHost(p_);
    }
    T *need(size_t n)
    {
        if (n > n_) {
            (void)cudaFreeHost(p_);
            p_ = nullptr;
            n_ = 0;
            check(cudaMallocHost(reinterpret_cast<void **>(&p_), n * sizeof(T)), "page-locked memory");
            n_ = n;
        }
        return p_;
    }
    T *get() const
    {
        return p_;
    }

  private:
    T *p_ = nullptr;
    size_t n_ = 0;
};

/* A spx_mem_pagelock: pages of blocks that stay from item to item of a queue. */
inline int lock_pages(void *at, size_t bytes, int on)
{
    const cudaError_t code = on ? cudaHostRegister(at, bytes, cudaHostRegisterPortable) : cudaHostUnregister(at);
    (void)cudaGetLastError();
    return code == cudaSuccess;
}

/* Locks pages of host memory that is there, as long as it lives: the device reaches them itself, and copies run at the
 * speed of the bus. Where they cannot be locked, copies are slower. */
class page_lock
{
  public:
    page_lock(void *p, size_t bytes)
        : p_(cudaHostRegister(p, bytes, cudaHostRegisterDefault) == cudaSuccess ? p : nullptr)
    {
        (void)cudaGetLastError();
    }
    page_lock(const page_lock &) = delete;
    page_lock &operator=(const page_lock &) = delete;
    ~page_lock()
    {
        if (p_ != nullptr)
            (void)cudaHostUnregister(p_);
    }

  private:
    void *p_;
};

/* Memory, handed out from the front; with base NULL it only counts. */
struct arena {
    char *base;
    size_t used, size;

    template <typename T> T *take(size_t n)
    {
        size_t at = used;
        used += (n * sizeof(T) + 255) / 256 * 256;
        return base ? (T *)(base + at) : (T *)256;
    }
};

/* Device memory that grows; what was in it is lost. */
template <typename T> class device_buffer
{
  public:
    T *need(size_t n)
    {
        if (n > n_) {
            n_ = 0;
            a_ = array<T>();
            a_ = array<T>(n);
            n_ = n;
        }
        return a_.get();
    }
    T *get() const
    {
        return a_.get();
    }

  private:
    array<T> a_;
    size_t n_ = 0;
};

} // namespace spx

#endif
