/* Reads and writes /flat (products/flat_h5.h). */
#include "products/flat_h5.h"

#include <stdio.h>
#include <string.h>

#include "h5/attr.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/table.h"
#include "h5/write.h"
#include "products/arm_h5.h"
#include "products/wavelength_h5.h"

/* Content that would mislead: a flat that cannot be divided by. */
static spx_status check(hid_t file, const spx_flat *flat, spx_err *e)
{
    for (size_t k = 0; k < flat->nspec * flat->nwave; k++)
        if (!(flat->flat[k] > 0 && flat->flat[k] < 1e30 && flat->ivar[k] >= 0 && flat->ivar[k] < 1e30))
            return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/flat", "make the flat again",
                               "fibre %zu, bin %zu: flat %g with ivar %g cannot be divided by", k / flat->nwave,
                               k % flat->nwave, flat->flat[k], flat->ivar[k]);
    return SPX_OK;
}

static spx_status read_attributes(hid_t file, spx_flat *flat, spx_err *e)
{
    int64_t native = 0;
    spx_status st = SPX_OK;
    if (spx_h5_has_attr(file, "/flat", "camera"))
        st = spx_h5_attr_str(file, "/flat", "camera", flat->camera, sizeof flat->camera, e);
    if (st == SPX_OK && spx_h5_has_attr(file, "/flat", "native"))
        st = spx_h5_attr_i64(file, "/flat", "native", &native, e);
    if (st == SPX_OK && spx_h5_has_attr(file, "/flat", "floor"))
        st = spx_h5_attr_f64(file, "/flat", "floor", &flat->floor, e);
    if (st == SPX_OK)
        st = spx_wavelength_read_words(file, "/flat/wavelength", &flat->medium, NULL, NULL, e);
    if (st == SPX_OK && spx_h5_has_attr(file, "/flat/lamp", "units"))
        st = spx_h5_attr_str(file, "/flat/lamp", "units", flat->unit, sizeof flat->unit, e);
    flat->native = native != 0;
    return st;
}

spx_status spx_flat_read(hid_t file, spx_flat *flat, spx_err *e)
{
    size_t rows[2] = {0, 0}, lamp[2] = {0, 0};
    memset(flat, 0, sizeof *flat);
    spx_status st = spx_schema_accept(file, "/flat", "flat", e);
    if (st == SPX_OK)
        st = spx_h5_read_f64(file, "/flat/flat", 2, rows, &flat->flat, e);
    if (st == SPX_OK && (rows[0] == 0 || rows[1] == 0))
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/flat/flat", "make the flat again", "holds no fibres");
    if (st != SPX_OK)
        return st;
    flat->nspec = rows[0];
    lamp[1] = flat->nwave = rows[1];
    st = spx_wavelength_read(file, "/flat/wavelength", &flat->nwave, &flat->wavelength, e);
    if (st == SPX_OK)
        st = spx_h5_read_f64(file, "/flat/ivar", 2, rows, &flat->ivar, e);
    if (st == SPX_OK)
        st = spx_h5_read_u32(file, "/flat/mask", 2, rows, &flat->mask, e);
    if (st == SPX_OK)
        st = spx_h5_read_f64(file, "/flat/lamp", 2, lamp, &flat->lamp, e);
    if (st == SPX_OK)
        st = spx_h5_read_f64(file, "/flat/mean", 2, lamp, &flat->mean, e);
    flat->nlamp = lamp[0];
    if (st == SPX_OK)
        st = spx_h5_read_f64(file, "/flat/chi2", 1, &flat->nspec, &flat->chi2, e);
    if (st == SPX_OK)
        st = spx_h5_read_f64(file, "/flat/knot", 1, &flat->nknot, &flat->knot, e);
    if (st == SPX_OK && spx_h5_exists(file, "/flat/fiber"))
        st = spx_h5_read_i32(file, "/flat/fiber", 1, &flat->nspec, &flat->fiber, e);
    if (st == SPX_OK)
        st = read_attributes(file, flat, e);
    if (st == SPX_OK)
        st = check(file, flat, e);
    return st == SPX_OK ? spx_row_table_read(file, "/fibermap", flat->nspec, &flat->fibermap, e) : st;
}

/* A dataset with wavelengths along its second dimension. */
static spx_status write_rows(hid_t file, const char *path, int precision, size_t nrow, size_t nwave, const double *v,
                             spx_err *e)
{
    const size_t dims[2] = {nrow, nwave};
    spx_status st = spx_h5_write_real(file, path, precision, 2, dims, v, e);
    return st == SPX_OK ? spx_h5_attach_scale(file, path, 1, "/flat/wavelength", "wavelength", e) : st;
}

spx_status spx_flat_write(hid_t file, const spx_flat *flat, int precision, spx_err *e)
{
    const size_t dims[2] = {flat->nspec, flat->nwave};
    const char *unit = flat->unit[0] != '\0' ? flat->unit : "1";
    spx_status st = spx_h5_write_real(file, "/flat/wavelength", 8, 1, &flat->nwave, flat->wavelength, e);
    if (st == SPX_OK)
        st = spx_wavelength_write_medium(file, "/flat/wavelength", flat->medium, e);
    if (st == SPX_OK)
        st = spx_wavelength_write_frame(file, "/flat/wavelength", 0, 0, e);
    if (st == SPX_OK)
        st = write_rows(file, "/flat/flat", precision, flat->nspec, flat->nwave, flat->flat, e);
    if (st == SPX_OK)
        st = write_rows(file, "/flat/ivar", precision, flat->nspec, flat->nwave, flat->ivar, e);
    if (st == SPX_OK)
        st = spx_h5_write(file, "/flat/mask", H5T_NATIVE_UINT32, 2, dims, flat->mask, e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/flat/mask", 1, "/flat/wavelength", "wavelength", e);
    if (st == SPX_OK)
        st = write_rows(file, "/flat/lamp", 8, flat->nlamp, flat->nwave, flat->lamp, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/flat/lamp", "units", unit, e);
    if (st == SPX_OK)
        st = write_rows(file, "/flat/mean", 8, flat->nlamp, flat->nwave, flat->mean, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/flat/mean", "units", unit, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/flat/chi2", 8, 1, &flat->nspec, flat->chi2, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/flat/knot", 8, 1, &flat->nknot, flat->knot, e);
    if (st == SPX_OK && flat->fiber != NULL)
        st = spx_h5_write(file, "/flat/fiber", H5T_NATIVE_INT32, 1, &flat->nspec, flat->fiber, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/flat", "camera", flat->camera, e);
    if (st == SPX_OK && flat->nknot > 1)
        st = spx_h5_set_f64(file, "/flat", "knots", flat->knot[1] - flat->knot[0], e);
    if (st == SPX_OK)
        st = spx_h5_set_f64(file, "/flat", "floor", flat->floor, e);
    if (st == SPX_OK)
        st = spx_h5_set_i64(file, "/flat", "native", flat->native, e);
    return st == SPX_OK ? spx_table_write(file, "/fibermap", flat->fibermap, e) : st;
}
