/* Reads and writes the attributes `medium`, `frame` and `units` of a dataset of wavelengths.
 * A word that is not known is refused: taken for another it would move a velocity by 80 km/s, and nobody would see. */
#ifndef SPX_WAVELENGTH_H5_H
#define SPX_WAVELENGTH_H5_H

#include <hdf5.h>

#include "base/err.h"
#include "products/spectra.h"

/* medium: air or vacuum; frame: barycentric, topocentric or unknown (*unknown 1, and *barycentric 0); in any case of
 * letters. Absent: vacuum, topocentric. medium and barycentric may be NULL; unknown NULL: the frame has to be known.
 * SPX_EINPUT: another word. */
spx_status spx_wavelength_read_words(hid_t file, const char *path, spx_medium *medium, int *barycentric, int *unknown,
                                     spx_err *e);
spx_status spx_wavelength_write_medium(hid_t file, const char *path, spx_medium medium, spx_err *e);
/* unknown 1: the frame is written as that. */
spx_status spx_wavelength_write_frame(hid_t file, const char *path, int barycentric, int unknown, spx_err *e);

/* Reads wavelengths, *n of them (0: any number, which is set), in Angstrom: units of nm, um, m and so on are converted,
 * none is Angstrom. SPX_EINPUT: another unit, or they do not increase from above 0 on, as numbers alone do. */
spx_status spx_wavelength_read(hid_t file, const char *path, size_t *n, double **wavelength, spx_err *e);

/* Reads wavelengths with a grid for each row, (*out)[*nrow][*nwave], in Angstrom; or one grid for all, *nrow 0.
 * SPX_EINPUT: another unit, or those of a row do not increase from above 0 on. */
spx_status spx_wavelength_read_grids(hid_t file, const char *path, size_t *nrow, size_t *nwave, double **out,
                                     spx_err *e);

/* Reads the wavelengths of spectra first ... first+n-1 of a dataset with a grid for each row, in Angstrom,
 * out[n][nwave]. SPX_EINPUT: another unit, or they do not increase from above 0 on. */
spx_status spx_wavelength_read_rows(hid_t file, const char *path, size_t first, size_t n, size_t nwave, double *out,
                                    spx_err *e);

#endif
