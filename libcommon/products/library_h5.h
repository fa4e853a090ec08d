/* Block `library`: model spectra on one wavelength grid, as fits2h5 makes it of an atmosphere library. Large: the
 * fluxes stay in the file and are read in batches of rows. */
#ifndef SPX_LIBRARY_H
#define SPX_LIBRARY_H

#include <hdf5.h>
#include <stddef.h>

#include "base/err.h"
#include "products/templates.h"

typedef struct {
    size_t ntemp, nwave, npar;
    double *wavelength; /* [nwave] Angstrom, increasing */
    spx_medium medium;
    double *params;                /* [ntemp][npar] */
    char parname[SPX_MAX_PAR][32]; /* [npar] */
} spx_library;

/* /library without its fluxes, whose shape is checked. SPX_EINPUT: absent, shapes that contradict each other, more than
 * SPX_MAX_PAR parameters. Frees with spx_library_free(), also after an error. */
spx_status spx_library_read(hid_t file, spx_library *lib, spx_err *e);
/* Fluxes of rows first ... first+n-1: flux[n][nwave]. */
spx_status spx_library_read_flux(hid_t file, const spx_library *lib, size_t first, size_t n, float *flux, spx_err *e);
void spx_library_free(spx_library *lib);

#endif
