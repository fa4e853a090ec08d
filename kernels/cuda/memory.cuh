/* Provides memory of devices, and of the host as devices reach it, that is freed by itself; and how many bytes were
 * copied between them. */
#ifndef SPX_CUDA_MEMORY_CUH
#define SPX_CUDA_MEMORY_CUH

#include <atomic>
#include <utility>

#include "cuda/check.cuh"

extern "C" {
#include "base/mem.h"
}

namespace spx
{

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
