/* Provides the response and flux calibration on a CUDA device (flux/flux.h): the products with resolution matrices and
 * normal equations of calib/calib.cuh, and the bins and matrices of calibrated spectra. Banded algebra and what is
 * decided of the stars stay on the host (flux/engine.h). */
#include <vector>

#include "calib/calib.cuh"
#include "cuda/backend.cuh"

#define restrict __restrict__
extern "C" {
#include "base/mem.h"
#include "flux/engine.h"
}
#undef restrict
#include "flux/flux_math.h"

namespace
{

using spx::check;

constexpr unsigned THREADS = 128;

/* Memory that a thread keeps from frame to frame of a queue, of `bytes` at least: for the response, and then for the
 * calibration. To get and release it for each takes as long as what is computed. */
char *keep(size_t bytes)
{
    static thread_local spx::device_buffer<char> memory;
    return memory.need(bytes);
}

/* Sends an array that is a whole block. From pages that are locked the device takes it by itself: else a thread copies
 * all of it once more. */
template <typename T> void put(T *to, const T *from, size_t n)
{
    (void)spx_mem_pagelocked(from);
    spx::to_device += n * sizeof(T);
    check(cudaMemcpy(to, from, n * sizeof(T), cudaMemcpyHostToDevice), "copy to the device");
}

template <typename T> void take(T *to, const T *from, size_t n)
{
    (void)spx_mem_pagelocked(to);
    spx::to_host += n * sizeof(T);
    check(cudaMemcpy(to, from, n * sizeof(T), cudaMemcpyDeviceToHost), "copy from the device");
}

void put_vector(double *to, const std::vector<double> &from)
{
    spx::to_device += from.size() * sizeof(double);
    check(cudaMemcpy(to, from.data(), from.size() * sizeof(double), cudaMemcpyHostToDevice), "copy to the device");
}

/* ---- the response ---- */

struct device {
    size_t nstar, n, ndiag;
    double *b, *w, *d, *part, *sum, *c, *model;
    uint32_t *fibre;
};

/* Hands out the arrays; base NULL: their size. */
size_t hand_out(char *base, device &g)
{
    spx::arena a = {base, 0, 0};
    g.b = a.take<double>(g.nstar * g.ndiag * g.n);
    g.w = a.take<double>(g.nstar * g.n);
    g.d = a.take<double>(g.nstar * g.n);
    g.part = a.take<double>(spx::calib::normal_chunks(g.nstar) * (g.ndiag + 1) * g.n);
    g.sum = a.take<double>((g.ndiag + 1) * g.n);
    g.c = a.take<double>(g.n);
    g.model = a.take<double>(g.nstar * g.n);
    g.fibre = a.take<uint32_t>(g.nstar);
    return a.used;
}

spx_status load(void *state, size_t nstar, size_t n, size_t ndiag, const double *b, spx_err *e)
{
    return spx::guarded("flux", e, [&] {
        device &g = *static_cast<device *>(state);
        g = {nstar, n, ndiag, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
        (void)hand_out(keep(hand_out(nullptr, g)), g);
        put(g.b, b, nstar * ndiag * n);
        return SPX_OK;
    });
}

spx_status normal(void *state, const double *w, const double *d, const uint8_t *use, double *a, double *y, spx_err *e)
{
    return spx::guarded("flux", e, [&] {
        device &g = *static_cast<device *>(state);
        std::vector<uint32_t> used;
        for (size_t s = 0; s < g.nstar; s++)
            if (use[s] != 0)
                used.push_back((uint32_t)s);
        check(cudaMemcpy(g.fibre, used.data(), used.size() * sizeof(uint32_t), cudaMemcpyHostToDevice), "copy");
        put(g.w, w, g.nstar * g.n);
        put(g.d, d, g.nstar * g.n);
        spx::calib::normal(nullptr, used.size(), g.fibre, g.n, g.ndiag, g.b, g.w, g.d, g.part, g.sum);
        take(a, g.sum, g.ndiag * g.n);
        take(y, g.sum + g.ndiag * g.n, g.n);
        return SPX_OK;
    });
}

spx_status models(void *state, const double *c, double *model, spx_err *e)
{
    return spx::guarded("flux", e, [&] {
        device &g = *static_cast<device *>(state);
        put(g.c, c, g.n);
        spx::calib::apply(nullptr, g.nstar, g.n, g.ndiag, g.b, g.c, 0, g.model);
        take(model, g.model, g.nstar * g.n);
        return SPX_OK;
    });
}

/* ---- calibration ---- */

struct calibration {
    double *resolution, *flux, *ivar; /* of the frame */
    double *c, *covariance, *more;    /* of the response; its relative variance by models and --floor */
    double *ci, *v;                   /* [nspec][n] R C, and its variance */
    int32_t *stars;
    uint8_t *bad;
};

/* Hands out the arrays; base NULL: their size. */
size_t hand_out(char *base, size_t nspec, size_t n, size_t ndiag, calibration &g)
{
    spx::arena a = {base, 0, 0};
    for (double **p : {&g.flux, &g.ivar, &g.ci, &g.v})
        *p = a.take<double>(nspec * n);
    g.resolution = a.take<double>(nspec * ndiag * n);
    g.c = a.take<double>(n);
    g.more = a.take<double>(n);
    g.covariance = a.take<double>(ndiag * n);
    g.stars = a.take<int32_t>(n);
    g.bad = a.take<uint8_t>(nspec * n);
    return a.used;
}

/* Scales the rows of fibre blockIdx.x that the ends cut; as many threads as there are such rows. */
__global__ void ends_kernel(size_t n, size_t ndiag, double *resolution)
{
    const size_t h = ndiag / 2, i = threadIdx.x;
    double *r = resolution + blockIdx.x * ndiag * n;
    const double scale = spx_flux_end_scale(n, ndiag, r, i);
    __syncthreads(); /* a whole row may be an end's, too, in a short spectrum */
    for (size_t b = 0; b < ndiag; b++) {
        const size_t k = i < h ? i : n - 2 * h + i, j = k + h - b;
        if (j < n)
            r[b * n + j] *= scale;
    }
}

__global__ void bins_kernel(size_t n, const double *ci, const double *v, const double *more, const int32_t *stars,
                            double *flux, double *ivar, uint8_t *bad)
{
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x, at = blockIdx.y * n + k;
    if (k < n)
        bad[at] = !spx_flux_bin(ci[at], v[at], more[k], stars[k], &flux[at], &ivar[at]);
}

__global__ void elements_kernel(size_t n, size_t ndiag, const double *c, const double *ci, const uint8_t *bad,
                                double *resolution)
{
    const size_t j = blockIdx.x * (size_t)blockDim.x + threadIdx.x, b = blockIdx.y, i = blockIdx.z;
    const size_t k = j + b - ndiag / 2; /* wraps below 0 to beyond n */
    if (j < n && k < n && !bad[i * n + k]) {
        double *r = resolution + (i * ndiag + b) * n + j;
        *r = spx_flux_element(*r, c[j], ci[i * n + k]);
    }
}

} // namespace

extern "C" spx_status spx_flux_solve_cuda(spx_backend *b, const spx_arm *arm, const spx_flux_stars *in,
                                          const spx_flux_options *o, spx_flux *out, spx_err *e)
{
    return spx::guarded("flux", e, [&] {
        (void)spx::use_first(b);
        spx::lock_blocks(b);
        device state;
        const spx_flux_engine engine = {&state, load, normal, models};
        return spx_flux_solve_with(&engine, arm, in, o, out, e);
    });
}

extern "C" spx_status spx_flux_apply_cuda(spx_backend *b, const spx_flux *f, double factor, int, size_t nspec,
                                          spx_arm *arm, size_t *nbad, spx_err *e)
{
    const spx_status st = spx_flux_check(f, nspec, arm, e);
    return st != SPX_OK ? st : spx::guarded("flux", e, [&] {
        (void)spx::use_first(b);
        spx::lock_blocks(b);
        const size_t n = arm->nwave, ndiag = arm->ndiag, size = nspec * n;
        std::vector<double> c(n), cov(ndiag * n), more(n);
        for (size_t k = 0; k < n; k++) {
            c[k] = factor * f->response[k];
            more[k] = f->model_error[k] * f->model_error[k] + f->floor * f->floor;
        }
        for (size_t k = 0; k < (ndiag < f->ndiag ? ndiag : f->ndiag) * n; k++)
            cov[k] = factor * factor * f->covariance[k];
        calibration g;
        (void)hand_out(keep(hand_out(nullptr, nspec, n, ndiag, g)), nspec, n, ndiag, g);
        put(g.resolution, arm->resolution, ndiag * size);
        put(g.flux, arm->flux, size);
        put(g.ivar, arm->ivar, size);
        put_vector(g.c, c);
        put_vector(g.covariance, cov);
        put_vector(g.more, more);
        check(cudaMemcpy(g.stars, f->stars, n * sizeof *g.stars, cudaMemcpyHostToDevice), "copy to the device");
        spx::stopwatch watch;
        const unsigned nblock = spx::blocks(n, THREADS), fibres = (unsigned)nspec;
        if (ndiag > 1)
            ends_kernel<<<fibres, (unsigned)(2 * (ndiag / 2))>>>(n, ndiag, g.resolution);
        check(cudaGetLastError(), "launch");
        spx::calib::apply(nullptr, nspec, n, ndiag, g.resolution, g.c, 0, g.ci);
        spx::calib::variance(nullptr, nspec, n, ndiag, g.resolution, g.covariance, g.v);
        bins_kernel<<<dim3(nblock, fibres), THREADS>>>(n, g.ci, g.v, g.more, g.stars, g.flux, g.ivar, g.bad);
        check(cudaGetLastError(), "launch");
        elements_kernel<<<dim3(nblock, (unsigned)ndiag, fibres), THREADS>>>(n, ndiag, g.c, g.ci, g.bad, g.resolution);
        check(cudaGetLastError(), "launch");
        b->device_seconds = watch.stop();
        std::vector<uint8_t> lost(size);
        take(arm->resolution, g.resolution, ndiag * size);
        take(arm->flux, g.flux, size);
        take(arm->ivar, g.ivar, size);
        spx::to_host += size;
        check(cudaMemcpy(lost.data(), g.bad, size, cudaMemcpyDeviceToHost), "copy from the device");
        for (size_t k = 0; k < n; k++) {
            size_t any = 0;
            for (size_t i = 0; i < nspec; i++) {
                any |= lost[i * n + k];
                if (lost[i * n + k] && arm->mask != nullptr)
                    arm->mask[i * n + k] |= SPX_NODATA;
            }
            if (nbad != nullptr)
                *nbad += any;
        }
        return SPX_OK;
    });
}
