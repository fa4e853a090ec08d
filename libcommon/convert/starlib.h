/* Writes a folder of model spectra in PHOENIX layout: one FITS file a spectrum, whose primary array is the flux and
 * whose header has PHXTEFF, PHXLOGG, PHXM_H, PHXALPHA, and one FITS file of wavelengths, WAVE_*.fits. */
#ifndef SPX_STARLIB_H
#define SPX_STARLIB_H

#include <signal.h>
#include <stddef.h>

#include "base/err.h"

typedef struct {
    char *target, *temp; /* target folder, and temporary folder */
    size_t n;            /* spectra so far */
    int replace;         /* 1: an earlier library is replaced */
    int guarded;         /* 1: signals that would end the program are deferred; `before`: their former handlers */
    struct sigaction before[4];
} spx_starlib;

/* Begins a library. The folder appears when it is complete (spx_starlib_commit()). A signal that would end the program
 * makes the next spectrum fail; spx_starlib_discard() cleans up and raises it again. One library at a time. SPX_EIO
 * when `dir` exists and is not empty, unless `force` is set and it holds nothing but a library (files *.fits). */
spx_status spx_starlib_open(spx_starlib *l, const char *dir, int force, spx_err *e);
spx_status spx_starlib_wavelength(spx_starlib *l, size_t n, const double *wavelength, spx_err *e);
/* Flux per unit wavelength, erg/s/cm^2/cm, kept in single precision. The name is made of the parameters, which must
 * differ from all before. */
spx_status spx_starlib_add(spx_starlib *l, double teff, double logg, double feh, double alpha, size_t n,
                           const double *flux, spx_err *e);
spx_status spx_starlib_commit(spx_starlib *l, spx_err *e);
/* Removes what was written and not committed; safe on a struct of zeros. */
void spx_starlib_discard(spx_starlib *l);

#endif
