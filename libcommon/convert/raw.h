/* Recognises raw CCD exposures, and writes their block. */
#ifndef SPX_FITS_RAW_H
#define SPX_FITS_RAW_H

#include <hdf5.h>

#include "base/err.h"
#include "convert/hdf5.h"
#include "fits/scan.h"

/* 1 when an image of two dimensions has a keyword of amplifiers or overscan (products/raw.h); any: when there is an
 * image of two dimensions. */
int spx_fits_is_raw(const spx_fits *f, int any);
/* Path of the dataset made from each HDU; others stay as they are. */
void spx_fits_raw_plan(const spx_fits *f, spx_fits_path *view);
/* Writes /raw: all images of two dimensions that have such keywords, or all where none has. */
spx_status spx_fits_raw_block(spx_fits *f, hid_t file, spx_err *e);

#endif
