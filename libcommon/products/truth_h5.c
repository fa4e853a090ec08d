/* Writes /truth (products/truth_h5.h). */
#include "products/truth_h5.h"

#include "h5/attr.h"
#include "h5/table.h"
#include "h5/write.h"

/* Writes one dataset of rows on a scale of wavelengths. */
static spx_status write_rows(hid_t file, const char *path, const char *scale, const size_t dims[2],
                             const double *values, spx_err *e)
{
    spx_status st = spx_h5_write_real(file, path, 4, 2, dims, values, e);
    return st == SPX_OK ? spx_h5_attach_scale(file, path, 1, scale, "wavelength", e) : st;
}

static spx_status write_curve(hid_t file, const char *path, const spx_truth *t, const double *values, spx_err *e)
{
    spx_status st = spx_h5_write_real(file, path, 8, 1, &t->nwave, values, e);
    return st == SPX_OK ? spx_h5_attach_scale(file, path, 0, "/truth/wavelength", "wavelength", e) : st;
}

static spx_status write_shift(hid_t file, const spx_truth *t, spx_err *e)
{
    static const char *const name[] = {"/truth/shift/x", "/truth/shift/y", "/truth/shift/wx", "/truth/shift/wy"};
    static const char *const scale = "/truth/shift/wavelength";
    const size_t dims[2] = {t->nspec, t->nshift};
    spx_status st = spx_h5_write(file, scale, H5T_NATIVE_DOUBLE, 1, &dims[1], t->shift_wavelength, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, scale, "medium", "vacuum", e);
    for (size_t q = 0; q < 4 && st == SPX_OK; q++)
        st = write_rows(file, name[q], scale, dims, t->shift + q * t->nspec * t->nshift, e);
    return st;
}

spx_status spx_truth_write(hid_t file, const spx_truth *t, spx_err *e)
{
    size_t dims[2] = {t->nspec, t->nwave};
    spx_status st = spx_h5_write(file, "/truth/wavelength", H5T_NATIVE_DOUBLE, 1, &dims[1], t->wavelength, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/truth/wavelength", "medium", "vacuum", e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/truth/flux", 4, 2, dims, t->flux, e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/truth/flux", 1, "/truth/wavelength", "wavelength", e);
    if (st == SPX_OK && t->sky != NULL)
        st = spx_h5_write_real(file, "/truth/sky", 4, 1, &dims[1], t->sky, e);
    if (st == SPX_OK && t->sky != NULL)
        st = spx_h5_attach_scale(file, "/truth/sky", 0, "/truth/wavelength", "wavelength", e);
    if (st == SPX_OK && t->throughput != NULL)
        st = write_rows(file, "/truth/throughput", "/truth/wavelength", dims, t->throughput, e);
    if (st == SPX_OK && t->shift != NULL)
        st = write_shift(file, t, e);
    if (st == SPX_OK && t->sky_fiber != NULL)
        st = write_rows(file, "/truth/sky_fiber", "/truth/wavelength", dims, t->sky_fiber, e);
    if (st == SPX_OK && t->transmission != NULL)
        st = write_curve(file, "/truth/transmission", t, t->transmission, e);
    if (st == SPX_OK && t->response != NULL)
        st = write_curve(file, "/truth/response", t, t->response, e);
    const size_t amplifiers = 4, image[2] = {t->ny, t->nx};
    if (st == SPX_OK && t->amplifier != NULL)
        st = spx_h5_write(file, "/truth/amplifier_offset", H5T_NATIVE_DOUBLE, 1, &amplifiers, t->amplifier, e);
    if (st == SPX_OK && t->hits != NULL)
        st = spx_h5_write(file, "/truth/hits", H5T_NATIVE_FLOAT, 2, image, t->hits, e);
    const struct {
        const char *path;
        const float *v;
    } pixels[] = {{"/truth/electrons", t->electrons},
                  {"/truth/bias", t->bias},
                  {"/truth/dark", t->dark},
                  {"/truth/pixel_response", t->pixel_response}};
    for (size_t i = 0; i < sizeof pixels / sizeof *pixels && st == SPX_OK; i++)
        if (pixels[i].v != NULL)
            st = spx_h5_write(file, pixels[i].path, H5T_NATIVE_FLOAT, 2, image, pixels[i].v, e);
    if (st == SPX_OK && t->lines != NULL)
        st = spx_table_write(file, "/truth/lines", t->lines, e);
    return st == SPX_OK ? spx_table_write(file, "/truth/table", t->table, e) : st;
}
