/* Reads spectra into memory, with increasing wavelengths and inverse variances. */
#ifndef SPX_SPECTRUM_LOAD_H
#define SPX_SPECTRUM_LOAD_H

#include "convert/spectrum/spectrum.h"
#include "convert/spectrum/values.h"

typedef struct {
    const spx_fits_spectrum *from;
    size_t row, n;
    double *wave, *flux, *ivar;
    uint32_t *mask;
    size_t arm, offset; /* place in the block: arm, and offset in its grid */
    int own;            /* 1: on a grid of its own */
} spx_loaded;

void spx_loaded_free(spx_loaded *l);

typedef struct {
    spx_column_cache wave, flux, noise, mask;
} spx_spectrum_cache;

/* Reads one spectrum. *noise: kind of errors found: some files have an empty column of errors. */
spx_status spx_spectrum_load(const spx_spectrum_file *file, const spx_fits_spectrum *s, spx_spectrum_cache *k,
                             spx_loaded *l, spx_fits_noise *noise, spx_err *e);

#endif
