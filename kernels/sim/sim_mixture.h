/* Provides spots that are mixtures of Gaussians, in families that are no Gauss-Hermite series (sim/sim.h). */
#ifndef SPX_SIM_MIXTURE_H
#define SPX_SIM_MIXTURE_H

#include "psf/spot_math.h"
#include "sim/sim.h"

enum { SPX_SIM_COMPONENTS = 32 };

/* Components of equal weight, in units of the PSF's GHSIGX and GHSIGY. n = 0: the PSF's own spots. */
typedef struct {
    size_t n;
    double x[SPX_SIM_COMPONENTS], y[SPX_SIM_COMPONENTS], sigma[SPX_SIM_COMPONENTS];
} spx_sim_mixture;

void spx_sim_mixture_make(spx_sim_family family, spx_sim_mixture *m);

/* As spx_psf_spot(), with the same workspace. */
spx_spot_status spx_sim_mixture_spot(const spx_sim_mixture *m, const spx_psf *psf, size_t fibre, double lambda,
                                     double *work, double *spot, spx_spot *at);

#endif
