/* Reads and writes /image (products/image_h5.h). */
#include "products/image_h5.h"

#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/deferred.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/table.h"
#include "h5/write.h"
#include "products/cards_h5.h"

/* Compares the shapes of all arrays before the first is read. */
static spx_status same_shapes(hid_t file, spx_err *e)
{
    static const char *const other[] = {"/image/ivar", "/image/mask", "/image/readnoise"};
    size_t dims[2] = {0, 0};
    spx_status st = spx_h5_check_shape(file, "/image/data", 2, dims, e);
    for (size_t i = 0; i < sizeof other / sizeof *other && st == SPX_OK; i++)
        if (spx_h5_exists(file, other[i]))
            st = spx_h5_check_shape(file, other[i], 2, dims, e);
    return st;
}

static spx_status check_electrons(hid_t file, spx_err *e)
{
    char unit[64] = "";
    spx_status st = SPX_OK;
    if (spx_h5_has_attr(file, "/image/data", "units"))
        st = spx_h5_attr_str(file, "/image/data", "units", unit, sizeof unit, e);
    if (st == SPX_OK && spx_image_in_counts(unit))
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/image/data",
                         "specx-preproc makes electrons of raw exposures; if they are, correct the attribute",
                         "has units '%s': a CCD image should be in electrons", unit);
    return st;
}

/* mask 0: pixels that may not be used have ivar 0, where the file lets it, in place of a mask. */
static spx_status read_pixels(hid_t file, spx_h5_reads *reads, int mask, spx_image *im, spx_err *e)
{
    size_t dims[2] = {0, 0};
    spx_status st = spx_schema_accept(file, "/image", "image", e);
    memset(im, 0, sizeof *im);
    if (st == SPX_OK)
        st = same_shapes(file, e);
    if (st == SPX_OK)
        st = check_electrons(file, e);
    if (st != SPX_OK || (st = spx_h5_defer_f32(reads, file, "/image/data", 2, dims, &im->data, e)) != SPX_OK)
        return st;
    im->ny = dims[0];
    im->nx = dims[1];
    if (im->ny == 0 || im->nx == 0)
        return spx_fail(e, SPX_EINPUT, "%s:/image/data: has no pixels", spx_h5_filename(file));
    if ((st = spx_h5_defer_f32(reads, file, "/image/ivar", 2, dims, &im->ivar, e)) != SPX_OK)
        return st;
    const int has_mask = spx_h5_exists(file, "/image/mask");
    int done = !mask && !has_mask;
    if (!mask && has_mask)
        st = spx_h5_defer_mask(reads, file, "/image/mask", 2, dims, im->ivar, &done, e);
    if (st == SPX_OK && !done && has_mask)
        st = spx_h5_read_u32(file, "/image/mask", 2, dims, &im->mask, e);
    else if (st == SPX_OK && !done && (im->mask = spx_alloc2(im->ny, im->nx, sizeof *im->mask, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = spx_cards_read(file, "/image/header", &im->header, e);
    if (st == SPX_OK && spx_h5_has_attr(file, "/image", "camera"))
        st = spx_h5_attr_str(file, "/image", "camera", im->camera, sizeof im->camera, e);
    if (st == SPX_OK)
        st = spx_table_read(file, "/fibermap", &im->fibermap, e);
    return st;
}

spx_status spx_image_read_pixels(hid_t file, spx_h5_reads *reads, spx_image *im, spx_err *e)
{
    return read_pixels(file, reads, 0, im, e);
}

spx_status spx_image_read_noise(hid_t file, spx_h5_reads *reads, spx_image *im, spx_err *e)
{
    size_t dims[2] = {im->ny, im->nx};
    return spx_h5_exists(file, "/image/readnoise")
               ? spx_h5_defer_f32(reads, file, "/image/readnoise", 2, dims, &im->readnoise, e)
               : SPX_OK;
}

spx_status spx_image_read(hid_t file, spx_image *im, spx_err *e)
{
    const spx_status st = read_pixels(file, NULL, 1, im, e);
    return st == SPX_OK ? spx_image_read_noise(file, NULL, im, e) : st;
}

spx_status spx_image_write(hid_t file, const spx_image *im, spx_err *e)
{
    size_t dims[2] = {im->ny, im->nx};
    spx_status st = SPX_OK;
    if (im->data != NULL)
        st = spx_h5_write(file, "/image/data", H5T_NATIVE_FLOAT, 2, dims, im->data, e);
    if (st == SPX_OK && im->ivar != NULL)
        st = spx_h5_write(file, "/image/ivar", H5T_NATIVE_FLOAT, 2, dims, im->ivar, e);
    if (st == SPX_OK && im->mask != NULL)
        st = spx_h5_write(file, "/image/mask", H5T_NATIVE_UINT32, 2, dims, im->mask, e);
    if (st == SPX_OK && im->readnoise != NULL)
        st = spx_h5_write(file, "/image/readnoise", H5T_NATIVE_FLOAT, 2, dims, im->readnoise, e);
    if (st == SPX_OK)
        st = spx_cards_write(file, "/image/header", &im->header, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/image", "camera", im->camera, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/fibermap", im->fibermap, e);
    return st;
}
