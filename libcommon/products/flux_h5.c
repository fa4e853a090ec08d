/* Reads and writes /flux (products/flux_h5.h). */
#include "products/flux_h5.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/table.h"
#include "h5/write.h"
#include "products/wavelength_h5.h"

enum { REASON = 8 };
static const char *const reason[] = {[SPX_FLUX_USED] = "",
                                     [SPX_FLUX_NO_DATA] = "no data",
                                     [SPX_FLUX_SCALE] = "scale",
                                     [SPX_FLUX_CLIPPED] = "outliers",
                                     [SPX_FLUX_SHAPE] = "shape"};

/* Content that would mislead. */
static spx_status check(hid_t file, const spx_flux *f, spx_err *e)
{
    for (size_t k = 0; k < f->nwave; k++)
        if (!(f->covariance[k] >= 0 && f->covariance[k] < 1e300) ||
            !(f->response[k] > -1e150 && f->response[k] < 1e150) ||
            !(f->model_error[k] >= 0 && f->model_error[k] < 1e150))
            return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/flux", "make the response again with specx-flux",
                               "bin %zu: response %g with variance %g cannot be used", k, f->response[k],
                               f->covariance[k]);
    return SPX_OK;
}

static spx_status read_attributes(hid_t file, spx_flux *f, spx_err *e)
{
    const struct {
        const char *name;
        double *value;
    } number[] = {{"exptime", &f->exptime}, {"floor", &f->floor}, {"chi2", &f->chisq}};
    char unit[sizeof f->unit + 32] = "";
    spx_status st = SPX_OK;
    if (spx_h5_has_attr(file, "/flux", "camera"))
        st = spx_h5_attr_str(file, "/flux", "camera", f->camera, sizeof f->camera, e);
    if (st == SPX_OK && spx_h5_has_attr(file, "/flux", "unit"))
        st = spx_h5_attr_str(file, "/flux", "unit", unit, sizeof unit, e);
    (void)snprintf(f->unit, sizeof f->unit, "%.*s", (int)sizeof f->unit - 1, unit);
    for (size_t i = 0; i < sizeof number / sizeof *number && st == SPX_OK; i++) {
        if (spx_h5_has_attr(file, "/flux", number[i].name))
            st = spx_h5_attr_f64(file, "/flux", number[i].name, number[i].value, e);
        if (st == SPX_OK && !(*number[i].value >= 0 && *number[i].value < 1e30))
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/flux", "make the response again with specx-flux",
                             "attribute %s is %g", number[i].name, *number[i].value);
    }
    return st;
}

spx_status spx_flux_read(hid_t file, spx_flux *f, spx_err *e)
{
    memset(f, 0, sizeof *f);
    spx_status st = spx_schema_accept(file, "/flux", "flux", e);
    if (st == SPX_OK)
        st = spx_wavelength_read(file, "/flux/wavelength", &f->nwave, &f->wavelength, e);
    if (st == SPX_OK)
        st = spx_wavelength_read_words(file, "/flux/wavelength", &f->medium, &f->barycentric, NULL, e);
    size_t band[2] = {0, f->nwave};
    if (st == SPX_OK && f->nwave == 0)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/flux", NULL, "holds no response");
    if (st == SPX_OK)
        st = spx_h5_read_f64(file, "/flux/response", 1, &f->nwave, &f->response, e);
    if (st == SPX_OK)
        st = spx_h5_read_f64(file, "/flux/covariance", 2, band, &f->covariance, e);
    f->ndiag = band[0];
    if (st == SPX_OK && f->ndiag == 0)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/flux/covariance", NULL, "has no diagonal");
    if (st == SPX_OK)
        st = spx_h5_read_f64(file, "/flux/model_error", 1, &f->nwave, &f->model_error, e);
    if (st == SPX_OK)
        st = spx_h5_read_i32(file, "/flux/nstar", 1, &f->nwave, &f->stars, e);
    size_t bands[2] = {0, 2};
    if (st == SPX_OK && spx_h5_exists(file, "/flux/band"))
        st = spx_h5_read_f64(file, "/flux/band", 2, bands, &f->band, e);
    f->nband = bands[0];
    if (st == SPX_OK)
        st = spx_table_read(file, "/flux/stars", &f->table, e);
    if (st == SPX_OK)
        st = read_attributes(file, f, e);
    return st == SPX_OK ? check(file, f, e) : st;
}

/* ---- writing ---- */

static spx_status add_f64(spx_table *t, const spx_flux *f, const char *name, size_t offset, double *tmp, spx_err *e)
{
    for (size_t i = 0; i < f->nstar; i++)
        memcpy(&tmp[i], (const char *)&f->star[i] + offset, sizeof *tmp);
    return spx_table_add(t, name, H5T_NATIVE_DOUBLE, "", tmp, e);
}

static spx_status add_i64(spx_table *t, const spx_flux *f, const char *name, size_t offset, int64_t *tmp, spx_err *e)
{
    for (size_t i = 0; i < f->nstar; i++)
        memcpy(&tmp[i], (const char *)&f->star[i] + offset, sizeof *tmp);
    return spx_table_add(t, name, H5T_NATIVE_INT64, "", tmp, e);
}

static spx_status write_stars(hid_t file, const spx_flux *f, spx_err *e)
{
    spx_table *t = spx_table_new(f->nstar, e);
    double *number = spx_alloc(f->nstar, sizeof *number, e);
    int64_t *count = spx_alloc(f->nstar, sizeof *count, e);
    int32_t *row = spx_alloc(f->nstar, sizeof *row, e), *used = spx_alloc(f->nstar, sizeof *used, e);
    char *text = spx_alloc(f->nstar, REASON, e);
    spx_status st =
        t == NULL || number == NULL || count == NULL || row == NULL || used == NULL || text == NULL ? SPX_EIO : SPX_OK;
    for (size_t i = 0; i < f->nstar && st == SPX_OK; i++) {
        row[i] = f->star[i].row;
        used[i] = f->star[i].fate == SPX_FLUX_USED;
        memcpy(text + i * REASON, reason[f->star[i].fate], strlen(reason[f->star[i].fate]));
    }
    if (st == SPX_OK)
        st = add_i64(t, f, "TARGETID", offsetof(spx_flux_star, targetid), count, e);
    if (st == SPX_OK)
        st = spx_table_add(t, "SPECTRUM", H5T_NATIVE_INT32, "", row, e);
    if (st == SPX_OK)
        st = add_f64(t, f, "SCALE", offsetof(spx_flux_star, scale), number, e);
    if (st == SPX_OK)
        st = add_f64(t, f, "SN", offsetof(spx_flux_star, sn), number, e);
    if (st == SPX_OK)
        st = add_f64(t, f, "CHI2", offsetof(spx_flux_star, chisq), number, e);
    if (st == SPX_OK)
        st = add_f64(t, f, "SHAPE", offsetof(spx_flux_star, shape), number, e);
    if (st == SPX_OK)
        st = add_i64(t, f, "NBIN", offsetof(spx_flux_star, nbin), count, e);
    if (st == SPX_OK)
        st = add_i64(t, f, "NREJECT", offsetof(spx_flux_star, nreject), count, e);
    if (st == SPX_OK)
        st = spx_table_add(t, "USED", H5T_NATIVE_INT32, "", used, e);
    if (st == SPX_OK)
        st = spx_table_add_strings(t, "REASON", REASON, text, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/flux/stars", t, e);
    spx_free(number);
    spx_free(count);
    spx_free(row);
    spx_free(used);
    spx_free(text);
    spx_table_free(t);
    return st;
}

spx_status spx_flux_write(hid_t file, const spx_flux *f, spx_err *e)
{
    const size_t dims[2] = {f->ndiag, f->nwave}, bands[2] = {f->nband, 2};
    const char *w = "/flux/wavelength";
    char unit[sizeof f->unit + 32];
    (void)snprintf(unit, sizeof unit, "electron/Angstrom/(%s)", f->unit);
    spx_status st = spx_h5_group(file, "/flux", e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, w, 8, 1, &f->nwave, f->wavelength, e);
    if (st == SPX_OK)
        st = spx_wavelength_write_medium(file, w, f->medium, e);
    if (st == SPX_OK)
        st = spx_wavelength_write_frame(file, w, f->barycentric, 0, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/flux/response", 8, 1, &f->nwave, f->response, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/flux/response", "units", unit, e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/flux/response", 0, w, "wavelength", e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/flux/covariance", 8, 2, dims, f->covariance, e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/flux/covariance", 1, w, "wavelength", e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/flux/model_error", 8, 1, &f->nwave, f->model_error, e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/flux/model_error", 0, w, "wavelength", e);
    if (st == SPX_OK)
        st = spx_h5_write(file, "/flux/nstar", H5T_NATIVE_INT32, 1, &f->nwave, f->stars, e);
    if (st == SPX_OK)
        st = spx_h5_attach_scale(file, "/flux/nstar", 0, w, "wavelength", e);
    if (st == SPX_OK && f->nband > 0)
        st = spx_h5_write_real(file, "/flux/band", 8, 2, bands, f->band, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/flux", "camera", f->camera, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/flux", "unit", f->unit, e);
    if (st == SPX_OK)
        st = spx_h5_set_f64(file, "/flux", "exptime", f->exptime, e);
    if (st == SPX_OK)
        st = spx_h5_set_f64(file, "/flux", "floor", f->floor, e);
    if (st == SPX_OK)
        st = spx_h5_set_f64(file, "/flux", "chi2", f->chisq, e);
    if (st != SPX_OK)
        return st;
    return f->table != NULL ? spx_table_write(file, "/flux/stars", f->table, e) : write_stars(file, f, e);
}
