/* Reads and writes /frame (products/frame_h5.h). */
#include "products/frame_h5.h"

#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "h5/attr.h"
#include "h5/deferred.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/table.h"
#include "h5/write.h"
#include "products/arm_h5.h"
#include "products/cards_h5.h"

spx_status spx_frame_read_camera(hid_t file, size_t size, char *camera, spx_arm *a, spx_err *e)
{
    spx_status st = SPX_OK;
    if (spx_h5_has_attr(file, "/frame", "camera"))
        st = spx_h5_attr_str(file, "/frame", "camera", camera, size, e);
    spx_arm_of_camera(camera, a->name);
    return st;
}

/* Values of a dataset of nspec rows of `each` elements are finite, and at least `least`. */
static spx_status check_finite(hid_t file, const char *path, size_t nspec, size_t each, double least, const double *v,
                               spx_err *e)
{
    enum { MANY = 1 << 17 };
    const size_t n = v != NULL ? nspec * each : 0;
    int bad = 0;
#pragma omp parallel for simd reduction(| : bad) if (n > MANY)
    for (size_t i = 0; i < n; i++)
        bad |= !(v[i] >= least && v[i] <= DBL_MAX);
    for (size_t i = 0; i < n && bad; i++)
        if (isfinite(v[i]) && v[i] < least)
            return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, "make the frame again",
                               "row %zu: a value is negative", i / each);
        else if (!isfinite(v[i]))
            return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path,
                               "give bins without information flux and ivar 0, and a bit of the mask",
                               "row %zu: a value is not finite", i / each);
    return SPX_OK;
}

static spx_status check_values(hid_t file, const spx_frame *f, spx_err *e)
{
    const size_t n = f->arm.nwave;
    spx_status st = check_finite(file, "/frame/flux", f->nspec, n, -DBL_MAX, f->arm.flux, e);
    if (st == SPX_OK)
        st = check_finite(file, "/frame/ivar", f->nspec, n, -DBL_MAX, f->arm.ivar, e);
    return st == SPX_OK
               ? check_finite(file, "/frame/resolution", f->nspec, f->arm.ndiag * n, -DBL_MAX, f->arm.resolution, e)
               : st;
}

static spx_status check_resolution(hid_t file, const spx_frame *f, spx_err *e)
{
    const size_t n = f->arm.nwave;
    spx_status st = SPX_OK;
    for (size_t i = 0; i < f->nspec && f->arm.resolution != NULL && st == SPX_OK; i++) {
        const double sum =
            spx_resolution_sum(n, f->arm.ndiag, f->arm.resolution + i * f->arm.ndiag * n, f->arm.ivar + i * n);
        if (spx_resolution_is_wrong(sum))
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/frame/resolution", "extract the frame again",
                             "row %zu: rows of its resolution matrix sum to %.3g in place of 1", i, sum);
    }
    return st;
}

/* An array of bins that a frame may lack: *v stays NULL then. */
static spx_status read_optional(hid_t file, const char *path, const spx_frame *f, double least, double **v, spx_err *e)
{
    size_t dims[2] = {f->nspec, f->arm.nwave};
    const spx_status st = spx_h5_exists(file, path) ? spx_h5_read_f64(file, path, 2, dims, v, e) : SPX_OK;
    return st == SPX_OK ? check_finite(file, path, f->nspec, f->arm.nwave, least, *v, e) : st;
}

spx_status spx_frame_read(hid_t file, spx_frame *f, spx_err *e)
{
    spx_status st = spx_schema_accept(file, "/frame", "frame", e);
    int finite = 0;
    memset(f, 0, sizeof *f);
    if (st != SPX_OK || (st = spx_arm_read(file, "/frame", &f->nspec, 1, &f->arm, &finite, e)) != SPX_OK ||
        (!finite && (st = check_values(file, f, e)) != SPX_OK) || (st = check_resolution(file, f, e)) != SPX_OK)
        return st;
    if ((st = read_optional(file, "/frame/chi2pix", f, 0, &f->chi2pix, e)) != SPX_OK ||
        (st = read_optional(file, "/frame/pixmask_fraction", f, 0, &f->pixmask_fraction, e)) != SPX_OK ||
        (st = read_optional(file, "/frame/background", f, -DBL_MAX, &f->background, e)) != SPX_OK)
        return st;
    if (spx_h5_exists(file, "/frame/fiber") &&
        (st = spx_h5_read_i32(file, "/frame/fiber", 1, &f->nspec, &f->fiber, e)) != SPX_OK)
        return st;
    if (spx_h5_has_attr(file, "/frame", "flat_applied")) {
        int64_t applied = 0;
        if ((st = spx_h5_attr_i64(file, "/frame", "flat_applied", &applied, e)) != SPX_OK)
            return st;
        f->flat_applied = applied != 0;
    }
    if (spx_h5_has_attr(file, "/frame", "implausible") &&
        (st = spx_h5_attr_str(file, "/frame", "implausible", f->implausible, sizeof f->implausible, e)) != SPX_OK)
        return st;
    if (spx_h5_exists(file, "/frame/cosmic_pixels")) {
        size_t cd[2] = {0, 2};
        if ((st = spx_h5_read_i32(file, "/frame/cosmic_pixels", 2, cd, &f->cosmic_pixels, e)) != SPX_OK)
            return st;
        f->ncosmic = cd[0];
    }
    if (spx_h5_exists(file, "/frame/model")) {
        size_t md[2] = {0, 0};
        if ((st = spx_h5_read_f32(file, "/frame/model", 2, md, &f->model, e)) != SPX_OK)
            return st;
        f->model_ny = md[0];
        f->model_nx = md[1];
        for (size_t i = 0; i < md[0] * md[1]; i++)
            if (!isfinite(f->model[i]))
                return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/frame/model", "make the frame again",
                                   "row %zu: a value is not finite", i / md[1]);
    }
    if ((st = spx_frame_read_camera(file, sizeof f->camera, f->camera, &f->arm, e)) != SPX_OK ||
        (st = spx_cards_read(file, "/frame/header", &f->header, e)) != SPX_OK ||
        (st = spx_row_table_read(file, "/fibermap", f->nspec, &f->fibermap, e)) != SPX_OK)
        return st;
    return spx_row_table_read(file, "/scores", f->nspec, &f->scores, e);
}

spx_status spx_frame_write(hid_t file, const spx_frame *f, int precision, spx_h5_writes *writes, spx_err *e)
{
    size_t dims[2] = {f->nspec, f->arm.nwave};
    spx_status st = spx_arm_write(file, "/frame", f->nspec, &f->arm, precision, writes, e);
    const char *w = "/frame/wavelength";
    if (st == SPX_OK && f->chi2pix != NULL &&
        (st = spx_h5_defer_write_real(writes, file, "/frame/chi2pix", precision, 2, dims, f->chi2pix, e)) == SPX_OK)
        st = spx_h5_attach_scale(file, "/frame/chi2pix", 1, w, "wavelength", e);
    if (st == SPX_OK && f->pixmask_fraction != NULL &&
        (st = spx_h5_defer_write_real(writes, file, "/frame/pixmask_fraction", precision, 2, dims, f->pixmask_fraction,
                                      e)) == SPX_OK)
        st = spx_h5_attach_scale(file, "/frame/pixmask_fraction", 1, w, "wavelength", e);
    if (st == SPX_OK && f->background != NULL &&
        (st = spx_h5_defer_write_real(writes, file, "/frame/background", precision, 2, dims, f->background, e)) ==
            SPX_OK)
        st = spx_h5_attach_scale(file, "/frame/background", 1, w, "wavelength", e);
    if (st == SPX_OK && f->fiber != NULL)
        st = spx_h5_write(file, "/frame/fiber", H5T_NATIVE_INT32, 1, &f->nspec, f->fiber, e);
    if (st == SPX_OK && f->ncosmic > 0) {
        size_t cd[2] = {f->ncosmic, 2};
        st = spx_h5_write(file, "/frame/cosmic_pixels", H5T_NATIVE_INT32, 2, cd, f->cosmic_pixels, e);
    }
    if (st == SPX_OK && f->model != NULL) {
        size_t md[2] = {f->model_ny, f->model_nx};
        st = spx_h5_defer_write(writes, file, "/frame/model", H5T_NATIVE_FLOAT, 2, md, f->model, e);
    }
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/frame", "camera", f->camera, e);
    if (st == SPX_OK && f->flat_applied)
        st = spx_h5_set_i64(file, "/frame", "flat_applied", 1, e);
    if (st == SPX_OK && f->implausible[0] != '\0')
        st = spx_h5_set_str(file, "/frame", "implausible", f->implausible, e);
    if (st == SPX_OK)
        st = spx_cards_write(file, "/frame/header", &f->header, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/fibermap", f->fibermap, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/scores", f->scores, e);
    return st;
}
