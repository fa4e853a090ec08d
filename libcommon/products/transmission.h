/* Provides block `transmission`: optical depth of the atmosphere, one column a species. */
#ifndef SPX_BLOCK_TRANSMISSION_H
#define SPX_BLOCK_TRANSMISSION_H

#include <stddef.h>
#include <stdint.h>

#include "products/spectra.h"

enum { SPX_MAX_SPECIES = 4, SPX_SPECIES_NAME = 16 };

typedef struct {
    size_t nspecies, nwave;
    char name[SPX_MAX_SPECIES][SPX_SPECIES_NAME]; /* O2, H2O: letters, digits and _ */
    double *wavelength;                           /* [nwave], Angstrom on the ground, strictly increasing */
    spx_medium medium;
    double *tau; /* [nspecies][nwave] optical depth at strength 1, >= 0, before any instrument */
} spx_transmission;

/* Strengths of the species and shift of the lines that the spectra of an exposure share. */
typedef struct {
    int64_t expid;                                               /* -1: none */
    double value[SPX_MAX_SPECIES + 1], err[SPX_MAX_SPECIES + 1]; /* strengths, then the shift in km/s; err 0: the
                                                                  * spectra say nothing, and value is 1, or 0 */
    size_t nstar;                                                /* spectra that it was fitted to */
} spx_air;

/* Is it usable: increasing wavelengths, finite tau >= 0, names? SPX_EINPUT. */
spx_status spx_transmission_check(const spx_transmission *t, spx_err *e);

void spx_transmission_free(spx_transmission *t);

#endif
