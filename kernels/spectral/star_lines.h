/* Provides a check of the medium of a star's wavelengths: are its lines where they are in air, or in vacuum? The two
 * differ by 83 km/s. */
#ifndef SPX_STAR_LINES_H
#define SPX_STAR_LINES_H

#include <stddef.h>

#include "base/err.h"

/* Lines that lie where they are in air, and in vacuum, of those that are deep enough to tell. */
typedef struct {
    size_t air, vacuum;
} spx_star_medium;

/* Counts them in a spectrum of a star at rest, flux[n] at wavelengths, rising, Angstrom. NAN flux: not known. */
spx_star_medium spx_star_lines_medium(size_t n, const double *wavelength, const double *flux);

/* 1 where these lines contradict a medium: four or more are at the places of the other, and at most a quarter as many
 * at its own. air: the medium is air. */
int spx_star_medium_wrong(const spx_star_medium *lines, int air);

#endif
