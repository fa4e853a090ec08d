/* Provides a check of wavelengths: are the lines of a list where a spectrum has them? A zero point is only looked for
 * within 1.5 bins (shift/shift.h); this finds wavelengths that are further off: a PSF of another night, an image that
 * was read out the other way or has lost rows, wavelengths in air. */
#ifndef SPX_LINE_PLACES_H
#define SPX_LINE_PLACES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "products/psf.h"
#include "shift/shift.h"

/* offset, rows or bins: by how much lines lie higher than the list says; 0: nothing says that they do. mirrored 1: they
 * do in the spectrum that runs the other way, from the last row or bin to the first. angstrom: offset, at the mean
 * dispersion. nline: lines that are found there.
 * agree, here: mean signal at the places of the list with that offset, and without any, in standard deviations over
 * all offsets. */
typedef struct {
    double offset, angstrom, agree, here;
    int mirrored;
    size_t nline;
} spx_line_places;

/* Spectrum flux[n] of bins at wavelengths, uniform and rising, Angstrom in vacuum; bad[n]: 1, not used. With a PSF:
 * the spectrum of its fibres, by the rows of the middle one, of which the image has psf->npix_y, where it says that;
 * so a flip or a shift of the image is one, whatever the dispersion. NULL: by bins. SPX_EIO: memory. */
spx_status spx_find_line_places(const spx_psf *psf, size_t n, const double *wavelength, const double *flux,
                                const uint8_t *bad, const spx_shift_lines *lines, spx_line_places *out,
                                spx_err *e) SPX_NODISCARD;

#endif
