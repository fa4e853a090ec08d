/* Provides an image that stays on a device from call to call: windows of traces (extract/cuda/motion.cu) and lines on
 * them (shift/zero_cuda.cu) are measured on the same one. */
#ifndef SPX_CUDA_IMAGE_CUH
#define SPX_CUDA_IMAGE_CUH

#include <algorithm>
#include <vector>

#include "cuda/memory.cuh"
#include "cuda/stream.cuh"

#define restrict __restrict__
extern "C" {
#include "products/image.h"
}
#undef restrict

namespace spx
{

namespace image_kernels
{

constexpr int THREADS = 256;

/* Weights, and values where there are any, as spx_extract_pixel_weights() has them. mask NULL: none. */
static __global__ void __launch_bounds__(THREADS) weigh(size_t n, float *data, float *weight, const unsigned *mask)
{
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n)
        return;
    const bool good = isfinite(data[i]) && isfinite(weight[i]) && weight[i] > 0.0f && (mask == nullptr || mask[i] == 0);
    weight[i] = good ? weight[i] : 0.0f;
    data[i] = good ? data[i] : 0.0f;
}

} // namespace image_kernels

/* Rows are sent once for each image, as they are asked for. */
class image_rows
{
  public:
    /* An image with a number is the one of before, if that had the same; 0: it has none. */
    void begin(const spx_image *image, unsigned long long number)
    {
        const size_t n = image->nx * image->ny;
        const bool same = number != 0 && number == number_ && image->nx == nx_ && image->ny == sent_.size() &&
                          (image->mask != nullptr) == (mask_ != nullptr);
        image_ = image;
        number_ = number;
        if (same)
            return;
        nx_ = image->nx;
        sent_.assign(image->ny, 0);
        data_ = data_of_.need(n);
        weight_ = weight_of_.need(n);
        mask_ = image->mask != nullptr ? mask_of_.need(n) : nullptr;
        locked_ = true;
        for (const void *p : {(const void *)image->data, (const void *)image->ivar, (const void *)image->mask})
            if (p != nullptr)
                locked_ = spx_mem_pagelocked(p) && locked_;
    }
    /* Begins to send those of rows first ... end - 1 that are not there. */
    void send(long first, long end)
    {
        const size_t last = end > 0 ? std::min((size_t)end, sent_.size()) : 0;
        for (size_t row = first > 0 ? (size_t)first : 0, next; row < last; row = next) {
            for (next = row; next < last && !sent_[next];)
                next++;
            if (next > row)
                send_block(row, next - row);
            for (; next < last && sent_[next];)
                next++;
        }
    }
    /* Begins to send all of it for calls to come, where copies do not wait for the host. */
    void send_rest()
    {
        if (locked_ && number_ != 0)
            send(0, (long)sent_.size());
    }
    /* What is launched on a stream from now on finds the rows that were sent so far. */
    void wait_on(cudaStream_t s)
    {
        if (order(stream_.s, s) != 0)
            fail("event");
    }
    /* The caller's pixels are read no more. */
    void finish()
    {
        (void)cudaStreamSynchronize(stream_.s);
    }
    /* [ny][nx] */
    float *data() const
    {
        return data_;
    }
    float *weight() const
    {
        return weight_;
    }

  private:
    stream stream_;
    device_buffer<float> data_of_, weight_of_;
    device_buffer<unsigned> mask_of_;
    const spx_image *image_ = nullptr;
    unsigned long long number_ = 0;
    size_t nx_ = 0;
    std::vector<unsigned char> sent_; /* [ny] */
    float *data_ = nullptr, *weight_ = nullptr;
    unsigned *mask_ = nullptr;
    bool locked_ = false;

    template <typename T> void put(T *to, const T *from, size_t n)
    {
        to_device += n * sizeof(T);
        check(cudaMemcpyAsync(to, from, n * sizeof(T), cudaMemcpyHostToDevice, stream_.s), "copy to the device");
    }
    void send_block(size_t row, size_t rows)
    {
        const size_t at = row * nx_, n = rows * nx_;
        put(data_ + at, image_->data + at, n);
        put(weight_ + at, image_->ivar + at, n);
        if (mask_ != nullptr)
            put(mask_ + at, (const unsigned *)image_->mask + at, n);
        image_kernels::weigh<<<blocks(n, image_kernels::THREADS), image_kernels::THREADS, 0, stream_.s>>>(
            n, data_ + at, weight_ + at, mask_ != nullptr ? mask_ + at : nullptr);
        check(cudaGetLastError(), "launch");
        std::fill_n(sent_.begin() + (long)row, rows, (unsigned char)1);
    }
};

/* That of this thread. One thread of a program measures, on one device. */
inline image_rows &rows_of_thread()
{
    static thread_local image_rows rows;
    return rows;
}

/* Until the end of a call. */
struct rows_in_use {
    image_rows &rows;
    rows_in_use(const spx_image *image, unsigned long long number) : rows(rows_of_thread())
    {
        rows.begin(image, number);
    }
    rows_in_use(const rows_in_use &) = delete;
    rows_in_use &operator=(const rows_in_use &) = delete;
    ~rows_in_use()
    {
        rows.finish();
    }
};

} // namespace spx

#endif
