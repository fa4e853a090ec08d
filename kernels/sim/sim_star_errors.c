/* Makes spectra of stars that differ from those of their parameters (sim/sim.h). */
#include <math.h>

#include "sim/sim.h"
#include "sim/sim_math.h"

void spx_sim_star_errors(double rms, uint64_t seed, size_t nstar, const int32_t *index, size_t nwave,
                         const double *wavelength, double *flux)
{
    const double turn = 6.283185307179586477;
#pragma omp parallel for schedule(static)
    for (size_t s = 0; s < nstar; s++) {
        double u[2], wave[2], own = 0.0, cell = -1.0;
        /* draw 0 and 1: tilt and wave; draw 2 + Angstrom: noise */
        spx_sim_uniform2(seed, SPX_SIM_STAR_ERROR, 0, (uint64_t)index[s], 0, u);
        const double tilt = 2.0 * spx_sim_normal(u);
        spx_sim_uniform2(seed, SPX_SIM_STAR_ERROR, 0, (uint64_t)index[s], 1, wave);
        const double period = 50.0 * pow(10.0, wave[0]);
        for (size_t k = 0; k < nwave; k++) {
            const double w = wavelength[k];
            if (floor(w) != cell) {
                cell = floor(w);
                spx_sim_uniform2(seed, SPX_SIM_STAR_ERROR, 0, (uint64_t)index[s], 2 + (uint32_t)cell, u);
                own = spx_sim_normal(u);
            }
            flux[s * nwave + k] *=
                fmax(0.05, 1.0 + rms * (tilt * (w - 6700.0) / 3100.0 +
                                        1.41421356237309505 * cos(turn * (w / period + wave[1])) + own));
        }
    }
}
