/* Provides the transmission of the atmosphere in the bands of O2 and H2O. */
#ifndef SPX_SIM_TELLURIC_H
#define SPX_SIM_TELLURIC_H

#include <stddef.h>

typedef enum { SPX_SIM_O2, SPX_SIM_H2O, SPX_SIM_NSPECIES } spx_sim_species;

/* Optical depth of a species into out[nwave], on wavelength[nwave] (vacuum, Angstrom).
 *   O2: the b-X bands gamma, B and A (6288, 6884, 7621 Angstrom), lines from the molecule's constants (Huber & Herzberg
 *   1979), Boltzmann strengths at 270 K.
 *   H2O: lines at made-up places, one in 2 Angstrom, of made-up strengths, in 7160-7340, 8130-8350, 8940-9240 and
 *   9300-9700 Angstrom, strongest in the middle.
 * Lines are Gaussians in tau of sigma 0.1 Angstrom: narrower ones cannot be sampled every 0.1 Angstrom. It is about
 * that of a good site at the zenith. */
void spx_sim_telluric_depth(spx_sim_species species, size_t nwave, const double *wavelength, double *out);

/* Transmission of all species, 0 to 1: exp(-strength tau). */
void spx_sim_telluric(double strength, size_t nwave, const double *wavelength, double *out);

#endif
