/* Reads and writes /image: contract of all readers and writers in products/README. */
#ifndef SPX_IMAGE_H5_H
#define SPX_IMAGE_H5_H

#include <hdf5.h>

#include "h5/deferred.h"
#include "products/image.h"

/* Reads /image, and /fibermap where present. Without a mask in the file, the mask is all 0. */
spx_status spx_image_read(hid_t file, spx_image *im, spx_err *e);
/* The same without the read noise, which not everybody needs, and, where the file lets it, without a mask: pixels that
 * it forbids have ivar 0, once the list `reads` is flushed (h5/deferred.h; NULL: none). */
spx_status spx_image_read_pixels(hid_t file, spx_h5_reads *reads, spx_image *im, spx_err *e);
/* The read noise of an image whose pixels were read before, if the file has any. */
spx_status spx_image_read_noise(hid_t file, spx_h5_reads *reads, spx_image *im, spx_err *e);
/* Arrays that are NULL are not written: there are none, or the caller did it before. */
spx_status spx_image_write(hid_t file, const spx_image *im, spx_err *e);

#endif
