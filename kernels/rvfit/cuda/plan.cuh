/* A plan on one device: copies of the templates and of all that stars have in common. */
#ifndef SPX_RVFIT_CUDA_PLAN_CUH
#define SPX_RVFIT_CUDA_PLAN_CUH

#include <string>
#include <vector>

#include "rvfit/cuda/types.cuh"

namespace rv
{

std::string megabytes(size_t bytes);

/* Ends what says how much memory is too little. */
#define MORE_MEMORY                                                                                                    \
    " MB are free or allowed: allow more ({max_device_mem}), use a device with more, or the CPU ({device} cpu)"

/* What a plan may take of the memory of the device in use, of which `taken` bytes are what it has already; waits for
 * other programs where that is less than `least`. */
size_t device_limit(const spx_rvfit_options *o, size_t taken, size_t least);

/* Templates of the model, or of the coarse one, and what its stars have in common. */
struct templates {
    model m = {};
    int tiles = 0; /* of samples, of the widest arm: columns */
};

/* What a plan has on one device. */
class device_plan
{
  public:
    /* limit: bytes that there may be; where there are more, these are counted alone. */
    device_plan(const spx_rv_ctx *c, size_t limit);
    bool has_all() const
    {
        return bytes <= limit_;
    }
    /* spx::failure says how many bytes there would be. */
    void need_all() const;

    templates full, coarse; /* coarse: without arms where there is no such model */
    size_t bytes = 0;       /* of device memory */
    size_t window = 0;      /* most samples of the inverse transform */

  private:
    /* A copy on the device, which lives as long as this. */
    template <typename T> const T *keep(const T *from, size_t n);

    void add_model(const spx_rv_ctx *c, templates *t);

    void add_arm(const spx_rv_ctx *c, const spx_rv_arm &from, templates *t, arm *a, std::vector<int> *first);

    void add_bins(const spx_rv_arm &from, arm *a);

    void add_set(const spx_rv_ctx *c, model &m, std::vector<arm> &arms);

    const size_t limit_;
    std::vector<spx::array<uint8_t>> kept_;
};

} // namespace rv

#endif
