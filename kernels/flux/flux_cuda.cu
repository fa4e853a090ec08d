/* Provides the response and flux calibration on a CUDA device (flux/flux.h): the products with resolution matrices and
 * normal equations of calib/calib.cuh, and the bins and matrices of calibrated spectra. Banded algebra and what is
 * decided of the stars stay on the host (flux/engine.h). */
#include <vector>

#include "calib/calib.cuh"
#include "cuda/backend.cuh"

#define restrict __restrict__
extern "C" {
#include "flux/engine.h"
}
#undef restrict
#include "flux/flux_math.h"

namespace
{

using spx::array;
using spx::check;

constexpr unsigned THREADS = 128;

/* ---- the response ---- */

struct device {
    size_t nstar = 0, n = 0, ndiag = 0;
    array<double> b, w, d, part, sum, c, model;
    array<uint32_t> fibre;
};

spx_status load(void *state, size_t nstar, size_t n, size_t ndiag, const double *b, spx_err *e)
{
    return spx::guarded("flux", e, [&] {
        device &g = *static_cast<device *>(state);
        g.nstar = nstar;
        g.n = n;
        g.ndiag = ndiag;
        g.b = spx::upload(b, nstar * ndiag * n);
        g.w = array<double>(nstar * n);
        g.d = array<double>(nstar * n);
        g.part = array<double>(spx::calib::normal_chunks(nstar) * (ndiag + 1) * n);
        g.sum = array<double>((ndiag + 1) * n);
        g.c = array<double>(n);
        g.model = array<double>(nstar * n);
        g.fibre = array<uint32_t>(nstar);
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
        g.fibre.put(used.data(), used.size());
        g.w.put(w, g.nstar * g.n);
        g.d.put(d, g.nstar * g.n);
        spx::calib::normal(nullptr, used.size(), g.fibre.get(), g.n, g.ndiag, g.b.get(), g.w.get(), g.d.get(),
                           g.part.get(), g.sum.get());
        std::vector<double> sum((g.ndiag + 1) * g.n);
        g.sum.take(sum.data(), sum.size());
        for (size_t k = 0; k < g.ndiag * g.n; k++)
            a[k] = sum[k];
        for (size_t k = 0; k < g.n; k++)
            y[k] = sum[g.ndiag * g.n + k];
        return SPX_OK;
    });
}

spx_status models(void *state, const double *c, double *model, spx_err *e)
{
    return spx::guarded("flux", e, [&] {
        device &g = *static_cast<device *>(state);
        g.c.put(c, g.n);
        spx::calib::apply(nullptr, g.nstar, g.n, g.ndiag, g.b.get(), g.c.get(), 0, g.model.get());
        g.model.take(model, g.nstar * g.n);
        return SPX_OK;
    });
}

/* ---- calibration ---- */

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
        const size_t n = arm->nwave, ndiag = arm->ndiag, size = nspec * n;
        std::vector<double> c(n), cov(ndiag * n), more(n);
        for (size_t k = 0; k < n; k++) {
            c[k] = factor * f->response[k];
            more[k] = f->model_error[k] * f->model_error[k] + f->floor * f->floor;
        }
        for (size_t k = 0; k < (ndiag < f->ndiag ? ndiag : f->ndiag) * n; k++)
            cov[k] = factor * factor * f->covariance[k];
        array<double> resolution = spx::upload(arm->resolution, ndiag * size);
        array<double> flux = spx::upload(arm->flux, size), ivar = spx::upload(arm->ivar, size);
        array<double> response = spx::upload(c.data(), n), covariance = spx::upload(cov.data(), ndiag * n);
        array<double> added = spx::upload(more.data(), n), ci(size), v(size);
        array<int32_t> stars = spx::upload(f->stars, n);
        array<uint8_t> bad(size);
        spx::stopwatch watch;
        const unsigned nblock = spx::blocks(n, THREADS), fibres = (unsigned)nspec;
        if (ndiag > 1)
            ends_kernel<<<fibres, (unsigned)(2 * (ndiag / 2))>>>(n, ndiag, resolution.get());
        check(cudaGetLastError(), "launch");
        spx::calib::apply(nullptr, nspec, n, ndiag, resolution.get(), response.get(), 0, ci.get());
        spx::calib::variance(nullptr, nspec, n, ndiag, resolution.get(), covariance.get(), v.get());
        bins_kernel<<<dim3(nblock, fibres), THREADS>>>(n, ci.get(), v.get(), added.get(), stars.get(), flux.get(),
                                                       ivar.get(), bad.get());
        check(cudaGetLastError(), "launch");
        elements_kernel<<<dim3(nblock, (unsigned)ndiag, fibres), THREADS>>>(n, ndiag, response.get(), ci.get(),
                                                                            bad.get(), resolution.get());
        check(cudaGetLastError(), "launch");
        b->device_seconds = watch.stop();
        std::vector<uint8_t> lost(size);
        resolution.take(arm->resolution, ndiag * size);
        flux.take(arm->flux, size);
        ivar.take(arm->ivar, size);
        bad.take(lost.data(), size);
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
