/* Writes /psffit (products/psffit_h5.h). */
#include "products/psffit_h5.h"

#include <stddef.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/table.h"
#include "h5/write.h"

typedef struct {
    const char *name, *unit;
    hid_t type;
    size_t at, size; /* of the member of a row */
} column;

#define COLUMN(row, name, member, type, unit)                                                                          \
    {                                                                                                                  \
        name, unit, type, offsetof(row, member), sizeof(((row *)0)->member)                                            \
    }

/* A table of n rows of `size` bytes each. */
static spx_status write_table(hid_t file, const char *path, size_t n, size_t size, const void *rows, size_t ncol,
                              const column *col, spx_err *e)
{
    spx_table *t = spx_table_new(n, e);
    char *values = spx_alloc(n + 1, 32, e);
    spx_status st = t != NULL && values != NULL ? SPX_OK : SPX_EIO;
    for (size_t k = 0; k < ncol && st == SPX_OK; k++) {
        for (size_t i = 0; i < n; i++) {
            const char *from = (const char *)rows + i * size + col[k].at;
            for (size_t b = 0; b < col[k].size; b++)
                values[i * col[k].size + b] = from[b];
        }
        st = col[k].type < 0 ? spx_table_add_strings(t, col[k].name, col[k].size, values, e)
                             : spx_table_add(t, col[k].name, col[k].type, col[k].unit, values, e);
    }
    if (st == SPX_OK)
        st = spx_table_write(file, path, t, e);
    spx_free(values);
    spx_table_free(t);
    return st;
}

static spx_status write_tables(hid_t file, const spx_psffit *f, spx_err *e)
{
    const hid_t i32 = H5T_NATIVE_INT32, i64 = H5T_NATIVE_INT64, u32 = H5T_NATIVE_UINT32, f64 = H5T_NATIVE_DOUBLE;
    const column fibre[] = {COLUMN(spx_psffit_fibre, "FIBER", fibre, i32, "1"),
                            COLUMN(spx_psffit_fibre, "BUNDLE", bundle, i32, "1"),
                            COLUMN(spx_psffit_fibre, "STATUS", status, u32, "1"),
                            COLUMN(spx_psffit_fibre, "NLINE", nline, i32, "1"),
                            COLUMN(spx_psffit_fibre, "CHI2", chi2, f64, "1"),
                            COLUMN(spx_psffit_fibre, "NPIX", npix, i64, "1"),
                            COLUMN(spx_psffit_fibre, "XSHIFT", x_shift, f64, "pixel"),
                            COLUMN(spx_psffit_fibre, "YSHIFT", y_shift, f64, "pixel"),
                            COLUMN(spx_psffit_fibre, "X_ERR", x_error, f64, "pixel"),
                            COLUMN(spx_psffit_fibre, "Y_ERR", y_error, f64, "pixel"),
                            COLUMN(spx_psffit_fibre, "WAVE_ERR_KMS", wave_error_kms, f64, "km/s"),
                            COLUMN(spx_psffit_fibre, "FLUX_SN", flux_sn, f64, "1")};
    const column line[] = {COLUMN(spx_psffit_row, "ELEMENT", element, -1, "1"),
                           COLUMN(spx_psffit_row, "WAVELENGTH", wavelength, f64, "Angstrom"),
                           COLUMN(spx_psffit_row, "LISTED", listed, i32, "1"),
                           COLUMN(spx_psffit_row, "USED", used, i32, "1"),
                           COLUMN(spx_psffit_row, "NFIBRE", nfibre, i32, "1"),
                           COLUMN(spx_psffit_row, "FLUX", flux, f64, "electron"),
                           COLUMN(spx_psffit_row, "SN", sn, f64, "1"),
                           COLUMN(spx_psffit_row, "DELTA", delta, f64, "Angstrom"),
                           COLUMN(spx_psffit_row, "DELTA_ERR", delta_error, f64, "Angstrom")};
    const column bundle[] = {COLUMN(spx_psffit_bundle, "FIRST", fibre0, i32, "1"),
                             COLUMN(spx_psffit_bundle, "NFIBRE", nfibre, i32, "1"),
                             COLUMN(spx_psffit_bundle, "FITTED", fitted, i32, "1"),
                             COLUMN(spx_psffit_bundle, "CHI2", chi2, f64, "1"),
                             COLUMN(spx_psffit_bundle, "NPIX", npix, i64, "1"),
                             COLUMN(spx_psffit_bundle, "NREJECT", nreject, i64, "1"),
                             COLUMN(spx_psffit_bundle, "NITER", niter, i32, "1"),
                             COLUMN(spx_psffit_bundle, "PSFERR", psf_error, f64, "1")};
    spx_status st = write_table(file, "/psffit/fibre", f->nspec, sizeof *f->fibre, f->fibre,
                                sizeof fibre / sizeof *fibre, fibre, e);
    if (st == SPX_OK)
        st = write_table(file, "/psffit/line", f->nline, sizeof *f->line, f->line, sizeof line / sizeof *line, line, e);
    return st == SPX_OK ? write_table(file, "/psffit/bundle", f->nbundle, sizeof *f->bundle, f->bundle,
                                      sizeof bundle / sizeof *bundle, bundle, e)
                        : st;
}

spx_status spx_psffit_write(hid_t file, const spx_psffit *f, spx_err *e)
{
    const size_t flux[3] = {f->nexp, f->nspec, f->nline}, shift[2] = {f->nexp, 2}, errors[2] = {f->nspec, f->nplace};
    const size_t trace[3] = {f->nspec, f->ntrace, f->ntrace}, shape[3] = {f->nbundle, f->nshape, f->nshape};
    spx_status st = spx_h5_group(file, "/psffit", e);
    if (st == SPX_OK)
        st = write_tables(file, f, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/psffit/shift", 8, 2, shift, f->shift, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/psffit/shift_error", 8, 2, shift, f->shift_error, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/psffit/flux", 4, 3, flux, f->flux, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/psffit/flux_ivar", 4, 3, flux, f->flux_ivar, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/psffit/place", 8, 1, &f->nplace, f->place, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/psffit/x_error", 8, 2, errors, f->x_error, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/psffit/y_error", 8, 2, errors, f->y_error, e);
    if (st == SPX_OK)
        st = spx_h5_write(file, "/psffit/cov_trace", H5T_NATIVE_FLOAT, 3, trace, f->cov_trace, e);
    if (st == SPX_OK && f->nshape > 0)
        st = spx_h5_write(file, "/psffit/cov_shape", H5T_NATIVE_FLOAT, 3, shape, f->cov_shape, e);
    return st == SPX_OK ? spx_h5_set_i64(file, "/psffit", "exposures", (int64_t)f->nexp, e) : st;
}

spx_status spx_psffit_write_model(hid_t file, const spx_psffit *f, spx_err *e)
{
    const size_t dims[3] = {f->nexp, f->ny, f->nx};
    spx_status st = spx_h5_group(file, "/psffit", e);
    if (st == SPX_OK)
        st = spx_h5_write(file, "/psffit/model", H5T_NATIVE_FLOAT, 3, dims, f->model, e);
    return st == SPX_OK ? spx_h5_write(file, "/psffit/chi", H5T_NATIVE_FLOAT, 3, dims, f->chi, e) : st;
}
