/* Provides parts of FITS files that products become: headers, images, tables (products.c and calibration.c). */
#ifndef SPX_FITS_PRODUCTS_PARTS_H
#define SPX_FITS_PRODUCTS_PARTS_H

#include <hdf5.h>

#include "base/err.h"
#include "fits/write.h"
#include "products/spectra.h"

struct spx_table;

/* Adds HISTORY cards for each run in the provenance. */
spx_status spx_fits_add_history(hid_t in, spx_cards *h, spx_err *e);
/* Unit of an image: BUNIT, none of pure numbers; words, which no reader of units takes, in a card of our own. Replaces
 * what is there. */
spx_status spx_fits_unit_card(spx_cards *h, const char *unit, spx_err *e);
/* Header of a frame: the image's cards, and those that desispec adds. */
spx_status spx_fits_frame_header(hid_t in, const spx_frame *f, spx_cards *h, spx_err *e);
/* BITPIX -32 or -64, as the dataset is stored. */
int spx_fits_bitpix_of(hid_t in, const char *path);
/* An image of doubles, stored with `bitpix`. */
spx_status spx_fits_put_reals(spx_fits_out *o, const char *extname, int bitpix, int ndim, const size_t *dims,
                              const double *data, const spx_cards *more, spx_err *e);
/* A table; nothing where t is NULL. */
spx_status spx_fits_put_table(spx_fits_out *o, const char *extname, const struct spx_table *t, spx_err *e);
/* Wavelengths with keywords for medium and frame. */
/* An image of the wavelengths; of an arm with a grid for each of nspec spectra one with a row a spectrum. */
spx_status spx_fits_put_wavelength(spx_fits_out *o, const char *extname, size_t nspec, const spx_arm *a, spx_err *e);
/* Primary HDU without data: cards of `from` (may be NULL), RVS_CMD with `command` (may be NULL), history. */
spx_status spx_fits_put_primary(hid_t in, spx_fits_out *o, const spx_cards *from, const char *command, spx_err *e);
/* HDUs of an arm of spectra. */
spx_status spx_fits_put_arm(hid_t in, spx_fits_out *o, size_t nspec, const spx_arm *a, spx_err *e);

#endif
