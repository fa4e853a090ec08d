/* Provides the frame that stays on the device until a hook has seen it: pieces write their results to it, it is
 * completed as spx_extract_end() does on the host, with the same bits, and then copied to the host once. */
#ifndef SPX_EXTRACT_CUDA_HOOK_FRAME_CUH
#define SPX_EXTRACT_CUDA_HOOK_FRAME_CUH

#include "cuda/backend.cuh"
#include "cuda/reduce.cuh"
#include "extract/cuda/params.cuh"
#include "extract/end_math.h"

namespace
{

/* Bins without information, and bits of the mask; count: of these bins. */
__global__ void empty_kernel(spx_frame f, size_t nbin, unsigned long long *count)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    bool is_empty = false;
    if (i < nbin) {
        const double fraction = f.pixmask_fraction[i];
        is_empty = spx_extract_is_empty(fraction, f.arm.ivar[i]);
        if (is_empty)
            f.arm.flux[i] = f.arm.ivar[i] = f.chi2pix[i] = 0.0;
        f.arm.mask[i] |= spx_extract_bits(fraction, is_empty);
    }
    const int n = __syncthreads_count(is_empty);
    if (threadIdx.x == 0 && n > 0)
        atomicAdd(count, (unsigned long long)n);
}

/* Medians of chi2pix of bins with information, as spx_median() has them, of a block's series: series b begins at b *
 * first and has n values `stride` apart. */
__global__ void medians_kernel(spx_frame f, size_t first, size_t n, size_t stride, double *out)
{
    __shared__ unsigned total;
    const double *chi2 = f.chi2pix + blockIdx.x * first, *ivar = f.arm.ivar + blockIdx.x * first;
    /* values with information whose bits are below `bound` */
    const auto below = [&](unsigned long long bound, bool all) {
        unsigned mine = 0;
        for (size_t i = threadIdx.x; i < n; i += blockDim.x)
            mine += ivar[i * stride] > 0.0 && (all || spx::key_of(chi2[i * stride]) < bound);
        mine = __reduce_add_sync(FULL, mine);
        if (threadIdx.x == 0)
            total = 0;
        __syncthreads();
        if (threadIdx.x % WARP == 0 && mine > 0)
            atomicAdd(&total, mine);
        __syncthreads();
        const unsigned sum = total;
        __syncthreads();
        return sum;
    };
    /* bit by bit: the largest bound that no more than `rank` values are below */
    const auto of_rank = [&](unsigned rank) {
        unsigned long long bits = 0;
        for (int b = 63; b >= 0; b--)
            if (below(bits | 1ULL << b, false) <= rank)
                bits |= 1ULL << b;
        return spx::of_key(bits);
    };
    const unsigned count = below(0, true);
    double median = 0.0;
    if (count > 0) {
        const double upper = of_rank(count / 2), lower = count % 2 ? upper : of_rank(count / 2 - 1);
        median = count % 2 ? upper : lower + (upper - lower) / 2.0;
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = median;
}

__global__ void bad_fits_kernel(spx_frame f, size_t nbin, const double *over_fibres, const double *over_waves)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, nw = f.arm.nwave;
    if (i < nbin && spx_extract_fits_badly(f.chi2pix[i], over_fibres[i % nw], over_waves[i / nw]))
        f.arm.mask[i] |= SPX_BAD2DFIT;
}

__global__ void densities_kernel(spx_frame f, size_t nbin, double dw)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= nbin)
        return;
    f.arm.flux[i] = spx_extract_flux_density(f.arm.flux[i], dw);
    f.arm.ivar[i] = spx_extract_ivar_density(f.arm.ivar[i], dw);
}

/* ---- the host's side ---- */

struct device_frame {
    int device = 0;
    size_t bytes = 0;
    cudaStream_t stream = nullptr;
    spx::array<char> memory;
    spx_frame f = {}; /* with arrays on the device */
    double *over_fibres = nullptr, *over_waves = nullptr;
    unsigned long long *count = nullptr;

    device_frame() = default;
    device_frame(const device_frame &) = delete;
    device_frame &operator=(const device_frame &) = delete;
    ~device_frame()
    {
        (void)(stream && cudaStreamDestroy(stream));
    }

    size_t nbin() const
    {
        return f.nspec * f.arm.nwave;
    }
};

template <typename T> void send(const device_frame &h, T *to, const T *from, size_t n)
{
    spx::to_device += n * sizeof(T);
    spx::check(cudaMemcpyAsync(to, from, n * sizeof(T), cudaMemcpyHostToDevice, h.stream), "copy");
}

template <typename T> void fetch(const device_frame &h, T *to, const T *from, size_t n)
{
    spx::to_host += n * sizeof(T);
    spx::check(cudaMemcpyAsync(to, from, n * sizeof(T), cudaMemcpyDeviceToHost, h.stream), "copy");
}

/* Allocates a frame like `out` on the device, with its wavelengths, fibres and mask. */
void make_device_frame(device_frame &h, int device, const spx_frame *out)
{
    const size_t ns = out->nspec, nw = out->arm.nwave, nbin = ns * nw;
    const auto share = [&](arena &m) {
        h.f.arm.flux = m.take<double>(nbin);
        h.f.arm.ivar = m.take<double>(nbin);
        h.f.chi2pix = m.take<double>(nbin);
        h.f.pixmask_fraction = m.take<double>(nbin);
        h.f.arm.resolution = m.take<double>(nbin * out->arm.ndiag);
        h.f.arm.mask = m.take<uint32_t>(nbin);
        h.f.arm.wavelength = m.take<double>(nw);
        h.f.fiber = m.take<int32_t>(ns);
        h.over_fibres = m.take<double>(nw);
        h.over_waves = m.take<double>(ns);
        h.count = m.take<unsigned long long>(1);
    };
    h.device = device;
    h.f.nspec = ns;
    h.f.arm.nwave = nw;
    h.f.arm.ndiag = out->arm.ndiag;
    arena m = {NULL, 0, 0};
    share(m);
    h.bytes = m.used;
    spx::check(cudaSetDevice(device), "device");
    spx::check(cudaStreamCreateWithFlags(&h.stream, cudaStreamNonBlocking), "stream");
    h.memory = spx::array<char>(h.bytes);
    m = {h.memory.get(), 0, h.bytes};
    share(m);
    spx::check(cudaMemsetAsync(h.count, 0, sizeof *h.count, h.stream), "device memory");
    send(h, h.f.arm.mask, out->arm.mask, nbin); /* bits of what was rejected before */
    send(h, h.f.arm.wavelength, out->arm.wavelength, nw);
    send(h, h.f.fiber, out->fiber, ns);
}

/* Copies rows to the device that the CPU has solved for it. */
void send_rows(const device_frame &h, const spx_frame *out, size_t row, size_t n)
{
    const size_t nw = out->arm.nwave, at = row * nw, ndiag = out->arm.ndiag;
    send(h, h.f.arm.flux + at, out->arm.flux + at, n * nw);
    send(h, h.f.arm.ivar + at, out->arm.ivar + at, n * nw);
    send(h, h.f.chi2pix + at, out->chi2pix + at, n * nw);
    send(h, h.f.pixmask_fraction + at, out->pixmask_fraction + at, n * nw);
    send(h, h.f.arm.mask + at, out->arm.mask + at, n * nw);
    send(h, h.f.arm.resolution + at * ndiag, out->arm.resolution + at * ndiag, n * nw * ndiag);
}

/* Calls the hook with the frame; its stream is idle afterwards, also after an error. */
spx_status call_hook(const device_frame &h, spx_hook *hook, spx_err *e)
{
    const spx_status st = spx_extract_hook(hook, &h.f, {h.device, h.stream, spx::order}, e);
    const cudaError_t done = cudaStreamSynchronize(h.stream);
    spx_hook_release(hook);
    spx::check(done, "hook");
    spx::check(cudaSetDevice(h.device), "device");
    return st;
}

/* All that is done with a frame whose rows are there, as spx_extract_end() does it; the hook; and the frame into *out.
 */
spx_status finish_device_frame(const device_frame &h, const spx_extract_job *job, spx_frame *out,
                               spx_extract_counts *counts, spx_err *e)
{
    const unsigned each = 256, all = blocks(h.nbin(), each);
    const size_t ns = h.f.nspec, nw = h.f.arm.nwave, nbin = h.nbin();
    unsigned long long empty = 0;
    spx::check(cudaSetDevice(h.device), "device");
    empty_kernel<<<all, each, 0, h.stream>>>(h.f, nbin, h.count);
    medians_kernel<<<(unsigned)nw, each, 0, h.stream>>>(h.f, 1, ns, nw, h.over_fibres);
    medians_kernel<<<(unsigned)ns, each, 0, h.stream>>>(h.f, nw, nw, 1, h.over_waves);
    bad_fits_kernel<<<all, each, 0, h.stream>>>(h.f, nbin, h.over_fibres, h.over_waves);
    spx::check(cudaGetLastError(), "launch");
    fetch(h, &empty, h.count, 1);
    if (job->o->want_model)
        fetch(h, out->arm.flux, h.f.arm.flux, nbin);
    spx::check(cudaStreamSynchronize(h.stream), "stream");
    counts->nbin = nbin;
    counts->nbin_empty += empty;
    spx_status st = job->o->want_model ? spx_extract_model(job, out, e) : SPX_OK;
    if (st != SPX_OK)
        return st;
    densities_kernel<<<all, each, 0, h.stream>>>(h.f, nbin, spx_extract_step(job->o));
    spx::check(cudaGetLastError(), "launch");
    if ((st = call_hook(h, job->o->hook, e)) != SPX_OK)
        return st;
    fetch(h, out->arm.flux, h.f.arm.flux, nbin);
    fetch(h, out->arm.ivar, h.f.arm.ivar, nbin);
    fetch(h, out->arm.mask, h.f.arm.mask, nbin);
    fetch(h, out->arm.resolution, h.f.arm.resolution, nbin * h.f.arm.ndiag);
    fetch(h, out->chi2pix, h.f.chi2pix, nbin);
    fetch(h, out->pixmask_fraction, h.f.pixmask_fraction, nbin);
    spx::check(cudaStreamSynchronize(h.stream), "stream");
    return spx_extract_hook_check(job->o->hook, out, e);
}

} // namespace

#endif
