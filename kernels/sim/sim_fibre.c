/* Makes the throughput of fibres (sim/sim_fibre.h). */
#include "sim/sim_fibre.h"

#include <math.h>

#include "psf/psf_math.h"
#include "sim/sim_math.h"

enum { TERMS = 4 };

static double normal(uint64_t seed, unsigned kind, char camera, int32_t fibre, uint32_t draw, double most)
{
    double u[2];
    spx_sim_uniform2(seed, kind, (unsigned char)camera, (uint64_t)fibre, draw, u);
    return fmax(-most, fmin(most, spx_sim_normal(u)));
}

void spx_sim_fibre_factors(const spx_sim_fibres *s, size_t nspec, const int32_t *fiber, size_t nwave,
                           const double *wavelength, double *factor, double *scatter)
{
    static const double size[TERMS] = {0.82, 0.72, 0.72, 0.61};
    for (size_t i = 0; i < nspec; i++)
        scatter[i] = fmax(0.05, 1.0 + s->scatter * normal(s->noise_seed, SPX_SIM_SCATTER, s->camera, fiber[i], 0, 1e9));
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < nspec; i++) {
        double c[TERMS];
        for (uint32_t k = 0; k < TERMS; k++)
            c[k] = s->throughput * size[k] * normal(s->seed, SPX_SIM_THROUGHPUT, s->camera, fiber[i], k, 3.0);
        for (size_t k = 0; k < nwave; k++)
            factor[i * nwave + k] =
                scatter[i] * exp(spx_legendre_sum(TERMS, c, spx_psf_u(s->wmin, s->wmax, wavelength[k])));
    }
}

void spx_sim_fringes(double amplitude, uint64_t seed, char camera, size_t nfibre, size_t nspec, const int32_t *fiber,
                     size_t nwave, const double *wavelength, double *factor)
{
    const double turn = 6.283185307179586477, path = 2.0 * 3.6 * 20e4; /* 2 n d, Angstrom */
    double phase[2];
    spx_sim_uniform2(seed, SPX_SIM_FRINGE, (unsigned char)camera, 0, 0, phase);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < nspec; i++) {
        const double at = (double)fiber[i] / (double)nfibre;
        const double d = path * (1.0 + 0.01 * sin(turn * (at + phase[1])));
        for (size_t k = 0; k < nwave; k++)
            factor[i * nwave + k] *= 1.0 + amplitude * cos(turn * (d / wavelength[k] + phase[0]));
    }
}

void spx_sim_multiply(size_t n, const double *factor, double *flux)
{
    for (size_t i = 0; i < n; i++)
        flux[i] *= factor[i];
}
