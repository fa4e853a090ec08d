/* Provides the throughput of fibres relative to each other: light of every source is multiplied with it. */
#ifndef SPX_SIM_FIBRE_H
#define SPX_SIM_FIBRE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    double throughput;   /* rms of its logarithm over fibres and wavelengths */
    double scatter;      /* rms of a further factor of each fibre, grey */
    uint64_t seed;       /* of `throughput`: exposures with the same seed share it */
    uint64_t noise_seed; /* of `scatter` */
    char camera;
    double wmin, wmax; /* Angstrom: the camera's range */
} spx_sim_fibres;

/* Computes factor[nspec][nwave] of the fibres fiber[nspec], on wavelength[nwave] (Angstrom), and scatter[nspec], which
 * `factor` contains:
 *     factor_i = scatter_i exp(throughput (0.82 n_0 + 0.72 n_1 P_1(u) + 0.72 n_2 P_2(u) + 0.61 n_3 P_3(u)))
 * with normal numbers n of each fibre, cut at 3, and u from -1 to 1 over wmin ... wmax; scatter_i = 1 + normal * rms,
 * at least 0.05. */
void spx_sim_fibre_factors(const spx_sim_fibres *s, size_t nspec, const int32_t *fiber, size_t nwave,
                           const double *wavelength, double *factor, double *scatter);

/* Multiplies factor[nspec][nwave] by the fringes of a thin CCD of nfibre fibres: 1 + amplitude cos(2 pi 2 n d/lambda +
 * phase), with refractive index n = 3.6 and thickness d = 20 micrometre, 1 % thicker and thinner over the slit: a
 * period of lambda^2/(2 n d), 56 Angstrom at 9000 and 25 at 6000. The phases depend on seed and camera alone. */
void spx_sim_fringes(double amplitude, uint64_t seed, char camera, size_t nfibre, size_t nspec, const int32_t *fiber,
                     size_t nwave, const double *wavelength, double *factor);

/* flux[i] *= factor[i]. */
void spx_sim_multiply(size_t n, const double *factor, double *flux);

#endif
