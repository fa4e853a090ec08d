/* Provides bands of wavelengths from a command line: those of the atmosphere, of text files, single ones. */
#ifndef SPX_TOOLS_BANDS_H
#define SPX_TOOLS_BANDS_H

#include "app/main.h"
#include "products/spectra.h"

/* Zeroed to begin with; the caller frees `band`. */
typedef struct {
    size_t n, held;
    double *band; /* [n][2] Angstrom */
} spx_bands;

spx_status spx_bands_add(spx_bands *b, double lo, double hi, spx_err *e);
/* The bands of oxygen and water, in `medium`. */
spx_status spx_bands_add_telluric(spx_bands *b, spx_medium medium, spx_err *e);
/* Those of a text file, two wavelengths a line and, if it is not Angstrom, their unit, which becomes an input of the
 * run. SPX_EINPUT: it holds something else, or nothing. */
spx_status spx_bands_add_file(spx_bands *b, spx_run *s, const char *name, spx_err *e);
/* Is a wavelength of the arm within one of the bands from `first` on? What moves with the observer, 100 km/s at most,
 * does not matter. 1, too, where each spectrum has a grid of its own. */
int spx_bands_touch(const spx_bands *b, size_t first, const spx_arm *a);
/* Warns that the bands from `first` on touch nothing; `option` names them. */
void spx_bands_warn(const spx_bands *b, size_t first, const char *option, const char *name);

#endif
