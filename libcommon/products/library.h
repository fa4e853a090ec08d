/* Provides block `library`: model spectra on one wavelength grid, converted from an atmosphere library. Large: fluxes
 * stay in the file and are read in batches of rows. */
#ifndef SPX_LIBRARY_H
#define SPX_LIBRARY_H

#include <stddef.h>

#include "products/templates.h"

typedef struct {
    size_t ntemp, nwave, npar;
    double *wavelength; /* [nwave] Angstrom, increasing */
    spx_medium medium;
    double *params;                /* [ntemp][npar] */
    char parname[SPX_MAX_PAR][32]; /* [npar] */
} spx_library;

void spx_library_free(spx_library *lib);

#endif
