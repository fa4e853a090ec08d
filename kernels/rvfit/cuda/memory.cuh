/* Memory that grows, of the host and of the device. */
#ifndef SPX_RVFIT_CUDA_MEMORY_CUH
#define SPX_RVFIT_CUDA_MEMORY_CUH

#include "cuda/backend.cuh"

namespace rv
{

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
            spx::check(cudaMallocHost(reinterpret_cast<void **>(&p_), n * sizeof(T)), "page-locked memory");
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

/* Device memory that grows; what was in it is lost. */
template <typename T> class device_buffer
{
  public:
    T *need(size_t n)
    {
        if (n > n_) {
            n_ = 0;
            a_ = spx::array<T>();
            a_ = spx::array<T>(n);
            n_ = n;
        }
        return a_.get();
    }
    T *get() const
    {
        return a_.get();
    }

  private:
    spx::array<T> a_;
    size_t n_ = 0;
};

} // namespace rv

#endif
