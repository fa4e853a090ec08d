/* The velocity fit on CUDA devices, as the backend calls it: plans and batches. */
#include <cstring>

#include "rvfit/cuda/batch.cuh"

using namespace rv;

extern "C" void spx_rvfit_close_cuda(spx_backend *, spx_rvfit_plan *plan)
{
    if (plan != nullptr)
        delete static_cast<plan_state *>(plan->device);
    spx_rvfit_close_cpu(plan);
}

extern "C" spx_status spx_rvfit_open_cuda(spx_backend *b, const spx_rvfit_input *in, const spx_rvfit_options *o,
                                          spx_rvfit_plan **plan, spx_err *e)
{
    spx_rv_ctx c;
    spx_status st = *plan != nullptr ? SPX_OK : spx_rvfit_open_cpu(in, o, plan, e);
    if (st != SPX_OK)
        return st;
    if ((st = spx_rv_ctx_batch(&c, *plan, in, o, e)) == SPX_OK)
        st = spx::guarded("rvfit", e, [&] {
            const spx_cuda_state *state = spx::state_of(b);
            plan_state *all = new plan_state;
            (*plan)->device = all; /* which is closed with it, whatever happens */
            for (int d = 0; d < state->ndevice; d++) {
                spx::check(cudaSetDevice(state->device[d]), "device");
                all->devices.push_back(make_state(state->device[d], &c));
            }
            return SPX_OK;
        });
    if (st != SPX_OK) {
        spx_rvfit_close_cuda(b, *plan);
        *plan = nullptr;
    }
    return st;
}

extern "C" spx_status spx_rvfit_cuda(spx_backend *b, const spx_rvfit_input *in, const spx_rvfit_options *o,
                                     spx_progress *p, spx_rvfit *out, spx_err *e)
{
    spx_rvfit_plan *own = nullptr;
    memset(out, 0, sizeof *out);
    spx_status st = in->plan != nullptr ? SPX_OK : spx_rvfit_open_cuda(b, in, o, &own, e);
    if (st != SPX_OK)
        return st;
    const spx_rvfit_plan *plan = in->plan != nullptr ? in->plan : own;
    plan_state *all = static_cast<plan_state *>(plan->device);
    if ((st = spx_rv_ctx_batch(&all->c, plan, in, o, e)) == SPX_OK &&
        (st = spx_rv_result_init(&all->c, out, e)) == SPX_OK && all->c.nstar > 0)
        st = spx::guarded("rvfit", e, [&] { return fit(all, p, out, e); });
    spx_rvfit_close_cuda(b, own);
    if (st != SPX_OK)
        spx_rvfit_free(out);
    return st;
}
