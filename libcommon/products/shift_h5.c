/* Writes /shift (products/shift_h5.h). */
#include "products/shift_h5.h"

#include "h5/attr.h"
#include "h5/write.h"

/* Arrays with a row a fibre; those without columns are left out. */
static spx_status write_rows(hid_t file, const spx_shift *s, spx_err *e)
{
    const struct {
        const char *path;
        size_t n;
        const double *value;
    } of[] = {{"/shift/dx", s->nplace, s->dx},
              {"/shift/dx_error", s->nplace, s->dx_error},
              {"/shift/dy", s->nplace, s->dy},
              {"/shift/dy_error", s->nplace, s->dy_error},
              {"/shift/width_x", s->nplace, s->width_x},
              {"/shift/width_x_error", s->nplace, s->width_x_error},
              {"/shift/width_y", s->nplace, s->width_y},
              {"/shift/width_y_error", s->nplace, s->width_y_error},
              {"/shift/window_wavelength", s->nwindow, s->window_wavelength},
              {"/shift/window_dx", s->nwindow, s->window_dx},
              {"/shift/window_dx_error", s->nwindow, s->window_dx_error},
              {"/shift/window_width_x", s->nwindow, s->window_width_x},
              {"/shift/window_width_x_error", s->nwindow, s->window_width_x_error},
              {"/shift/delta", s->nterm_delta, s->delta},
              {"/shift/delta_error", s->nterm_delta, s->delta_error},
              {"/shift/kappa", s->nterm_kappa, s->kappa},
              {"/shift/kappa_error", s->nterm_kappa, s->kappa_error}};
    spx_status st = SPX_OK;
    for (size_t i = 0; i < sizeof of / sizeof *of && st == SPX_OK; i++) {
        const size_t dims[2] = {s->nspec, of[i].n};
        if (of[i].n > 0 && of[i].value != NULL)
            st = spx_h5_write_real(file, of[i].path, 8, 2, dims, of[i].value, e);
        if (st == SPX_OK && i < 8)
            st = spx_h5_attach_scale(file, of[i].path, 1, "/shift/wavelength", "wavelength", e);
    }
    return st;
}

static spx_status write_figures(hid_t file, const spx_shift *s, spx_err *e)
{
    const struct {
        const char *name;
        double value;
    } real[] = {{"zero_point", s->zero_point},
                {"zero_point_error", s->zero_point_error},
                {"zero_point_chi2", s->zero_point_chi2},
                {"zero_point_dof", s->zero_point_dof},
                {"chi2_before", s->chi2_before},
                {"chi2_after", s->chi2_after},
                {"dof", s->dof},
                {"chi2_smooth", s->chi2_smooth},
                {"dof_smooth", s->dof_smooth},
                {"tau_delta", s->tau_delta},
                {"tau_kappa", s->tau_kappa},
                {"wavemin", s->wmin},
                {"wavemax", s->wmax}};
    const struct {
        const char *name;
        size_t value;
    } whole[] = {{"lines", s->nline},
                 {"steps", (size_t)s->steps},
                 {"rounds", (size_t)s->rounds},
                 {"windows_used", s->nwindow_used},
                 {"windows_rejected", s->nwindow_rejected},
                 {"common_fibers", s->nfibre_common}};
    spx_status st = s->camera[0] != '\0' ? spx_h5_set_str(file, "/shift", "camera", s->camera, e) : SPX_OK;
    for (size_t i = 0; i < sizeof real / sizeof *real && st == SPX_OK; i++)
        st = spx_h5_set_f64(file, "/shift", real[i].name, real[i].value, e);
    for (size_t i = 0; i < sizeof whole / sizeof *whole && st == SPX_OK; i++)
        st = spx_h5_set_i64(file, "/shift", whole[i].name, (int64_t)whole[i].value, e);
    return st;
}

spx_status spx_shift_write(hid_t file, const spx_shift *s, spx_err *e)
{
    const size_t square[2] = {s->ncoef, s->ncoef};
    spx_status st = spx_h5_group(file, "/shift", e);
    if (st == SPX_OK)
        st = write_figures(file, s, e);
    if (st == SPX_OK)
        st = spx_h5_write(file, "/shift/wavelength", H5T_NATIVE_DOUBLE, 1, &s->nplace, s->wavelength, e);
    if (st == SPX_OK)
        st = write_rows(file, s, e);
    if (st == SPX_OK)
        st = spx_h5_write(file, "/shift/flags", H5T_NATIVE_UINT32, 1, &s->nspec, s->flags, e);
    if (st == SPX_OK)
        st = spx_h5_write_real(file, "/shift/coefficients", 8, 1, &s->ncoef, s->coef, e);
    if (st == SPX_OK)
        st = spx_h5_set_i64(file, "/shift/coefficients", "wave_terms", (int64_t)s->nterm_wave, e);
    if (st == SPX_OK)
        st = spx_h5_set_i64(file, "/shift/coefficients", "fiber_terms", (int64_t)s->nterm_fibre, e);
    if (st == SPX_OK)
        st = spx_h5_set_i64(file, "/shift/coefficients", "bundles", (int64_t)s->nbundle, e);
    return st == SPX_OK ? spx_h5_write_real(file, "/shift/covariance", 8, 2, square, s->covariance, e) : st;
}
