/* Makes the night sky: continuum, atomic lines, OH Meinel bands (sim/sim.h). */
#include <math.h>

#include "base/mem.h"
#include "sim/sim.h"
#include "sim/sim_math.h"
#include "spectral/lines.h"

/* 10^6/(4 pi) photons/s/cm^2/sr, per square arcsecond. */
#define RAYLEIGH 1.8704e-6

void spx_sim_add_line(double wave, double photons, double sigma, size_t nwave, const double *wavelength, double *out)
{
    const double reach = 6.0 * sigma, scale = 1.0 / (sigma * sqrt(2.0));
    size_t i0 = 0, i1 = nwave;
    while (i0 < i1) { /* first sample that ends beyond the line's blue end */
        size_t mid = i0 + (i1 - i0) / 2;
        if (spx_sim_edge(nwave, wavelength, mid + 1) < wave - reach)
            i0 = mid + 1;
        else
            i1 = mid;
    }
    for (size_t i = i0; i < nwave; i++) {
        double a = spx_sim_edge(nwave, wavelength, i), b = spx_sim_edge(nwave, wavelength, i + 1);
        if (a > wave + reach)
            break;
        out[i] += photons * 0.5 * (erf((b - wave) * scale) - erf((a - wave) * scale)) / (b - a);
    }
}

/* Parts of the sky by what makes a line. */
static const int part[] = {[SPX_SKY_LINE_OH] = SPX_SIM_SKY_OH,
                           [SPX_SKY_LINE_OI] = SPX_SIM_SKY_OI,
                           [SPX_SKY_LINE_NA] = SPX_SIM_SKY_NA,
                           [SPX_SKY_LINE_REST] = SPX_SIM_SKY_REST};

spx_status spx_sim_sky_parts(char arm, double exptime, const double *factor, size_t nwave, const double *wavelength,
                             double *out, spx_err *e)
{
    if (nwave < 2)
        return spx_fail(e, SPX_EINPUT, "%zu wavelengths: a sky spectrum needs at least 2", nwave);
    double *throughput = spx_alloc(nwave, sizeof *throughput, e);
    spx_line *lines = NULL;
    size_t n = 0;
    if (throughput == NULL || spx_sky_lines(&lines, &n, e) != SPX_OK) {
        spx_free(throughput);
        return SPX_EIO;
    }
    spx_sim_throughput(arm, nwave, wavelength, throughput);
    for (size_t i = 0; i < nwave; i++)
        out[i] = factor[SPX_SIM_SKY_CONTINUUM] *
                 spx_sim_photons(21.3 - 0.38e-3 * (wavelength[i] - SPX_SIM_WAVE_REF), wavelength[i]);
    for (size_t i = 0; i < n; i++)
        spx_sim_add_line(lines[i].wavelength, lines[i].strength * RAYLEIGH * factor[part[lines[i].source]],
                         SPX_SIM_LINE_WIDTH, nwave, wavelength, out);
    for (size_t i = 0; i < nwave; i++)
        out[i] *= throughput[i] * SPX_SIM_MIRROR * SPX_SIM_FIBRE_AREA * exptime;
    spx_free(throughput);
    spx_free(lines);
    return SPX_OK;
}

spx_status spx_sim_sky(char arm, double exptime, size_t nwave, const double *wavelength, double *out, spx_err *e)
{
    static const double one[SPX_SIM_NSKY] = {1, 1, 1, 1, 1};
    return spx_sim_sky_parts(arm, exptime, one, nwave, wavelength, out, e);
}

void spx_sim_sky_vary(double rms, uint64_t noise_seed, double *factor)
{
    for (uint64_t q = SPX_SIM_SKY_OH; q < SPX_SIM_NSKY; q++) {
        double u[2];
        spx_sim_uniform2(noise_seed, SPX_SIM_FIELD, 0, q, 0, u);
        factor[q] *= exp(rms * spx_sim_normal(u));
    }
}

void spx_sim_sky_field(size_t nspec, const double *x, const double *y, size_t nwave, const double *sky,
                       const double *continuum, const double *oh, const double g[2], const double h[2], double *out)
{
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < nspec; i++) {
        const double a = (g[0] * x[i] + g[1] * y[i]) / 400.0, b = (h[0] * x[i] + h[1] * y[i]) / 400.0;
        for (size_t k = 0; k < nwave; k++)
            out[i * nwave + k] = fmax(0.0, sky[k] + a * continuum[k] + b * oh[k]);
    }
}

void spx_sim_focal_plane(const spx_target *target, double *x, double *y)
{
    *x = -250.0 * (target->ra - 150.0) * cos(2.0 * 3.14159265358979323846 / 180.0);
    *y = 250.0 * (target->dec - 2.0);
}
