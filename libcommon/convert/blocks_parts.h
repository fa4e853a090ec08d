/* Provides parts of the recognition of FITS files and of the blocks made of them (blocks.c and psf_fits.c). */
#ifndef SPX_FITS_BLOCKS_PARTS_H
#define SPX_FITS_BLOCKS_PARTS_H

#include "convert/hdf5.h"
#include "fits/scan.h"

/* Index of the image HDU of this name and number of dimensions, or -1. */
int spx_fits_find_image(const spx_fits *f, const char *name, int ndim);
/* Index of the binary table of this name, or -1. */
int spx_fits_find_table(const spx_fits *f, const char *name);
/* Writes the path of the dataset that is made of an HDU into view, where the file has it. */
void spx_fits_plan_hdu(const spx_fits *f, const char *hdu, spx_fits_path *view, const char *path);
/* SPX_EINPUT: an HDU is missing, or is not of this shape ("an image"); what: the file, "PSF". */
spx_status spx_fits_need_hdu(const spx_fits *f, const char *hdu, const char *what, const char *shape, spx_err *e);

#endif
