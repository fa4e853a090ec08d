/* A plan on all devices, with workers that wait for batches, and the fit of a batch. */
#ifndef SPX_RVFIT_CUDA_BATCH_CUH
#define SPX_RVFIT_CUDA_BATCH_CUH

#include <memory>
#include <vector>

#include "rvfit/cuda/engine.cuh"

namespace rv
{

/* One that fits groups, with its engine and the memory of a group; kept for the next batch. */
struct worker {
    engine computes;
    spx_rv_engine table;
    spx_rv_group *group;

    /* group: NULL where there is no memory, which *e says */
    worker(const spx_rv_ctx *c, const device_plan *s, size_t most, int threads, spx_err *e)
        : computes(c, s, threads), table(engine_table(&computes, threads, most))
    {
        group = spx_rv_group_new(c, &table, most, e);
    }
    worker(const worker &) = delete;
    worker &operator=(const worker &) = delete;
    ~worker()
    {
        spx_rv_group_free(group);
    }
};

/* A plan on one device: copies of the templates, and workers that wait for a batch. */
struct device_state {
    device_state(int d, const spx_rv_ctx *c, size_t limit) : device(d), plan(c, limit)
    {
    }
    const int device;
    device_plan plan;
    std::vector<std::unique_ptr<worker>> idle;
};

/* On the device in use; where others have what the templates need, after a wait. */
std::unique_ptr<device_state> make_state(int device, const spx_rv_ctx *c);

/* A plan on all devices. */
struct plan_state {
    spx_rv_ctx c; /* of the batch that is under way: where workers look for it */
    std::vector<std::unique_ptr<device_state>> devices;
    /* of the workers that wait: stars that their memory suffices for; largest memory of a star, and device memory of a
     * worker, that there may have been */
    size_t most = 0, star = 0, bytes = 0;
};

/* Fits the batch that all->c is for. */
spx_status fit(plan_state *all, spx_progress *p, spx_rvfit *out, spx_err *e);

} // namespace rv

#endif
