/* Provides HDF5 types of the elements of FITS images and of the rows of binary tables. */
#ifndef SPX_FITS_TYPES_H5_H
#define SPX_FITS_TYPES_H5_H

#include <hdf5.h>

#include "base/err.h"
#include "fits/scan.h"

/* HDF5 type of an image's elements: big-endian, as the file's bytes with sign bits inverted where `flip` is set. */
hid_t spx_fits_image_type(const spx_fits_hdu *h);

/* Compound type of a binary table's rows: members big-endian at the columns' offsets, so that rows are the file's bytes
 * (except for `flip`, and for L columns with truth[i] set, which hold only T and F and become HDF5's boolean). A: fixed
 * strings; X: bytes; C, M: {r, i}; P, Q: {length, offset}. H5I_INVALID_HID and no error when HDF5 cannot hold it: no
 * columns, or more of them than an object header takes. */
hid_t spx_fits_row_type(const spx_fits_hdu *h, const unsigned char *truth, spx_err *e);
/* Type of one element of a column with this TFORM code; `size` matters for A only: the length of a string. */
hid_t spx_fits_element_type(char code, size_t size, int flip, int truth);

#endif
