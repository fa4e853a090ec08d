/* Provides block `shift` (products/shift.h). */
#include "products/shift.h"

#include <string.h>

#include "base/mem.h"

void spx_shift_free(spx_shift *s)
{
    if (s == NULL)
        return;
    double *const arrays[] = {s->wavelength,     s->dx,
                              s->dx_error,       s->width_x,
                              s->width_x_error,  s->dy,
                              s->dy_error,       s->width_y,
                              s->width_y_error,  s->coef,
                              s->covariance,     s->window_wavelength,
                              s->window_dx,      s->window_dx_error,
                              s->window_width_x, s->window_width_x_error,
                              s->delta,          s->delta_error,
                              s->kappa,          s->kappa_error};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        spx_free(arrays[i]);
    spx_free(s->flags);
    memset(s, 0, sizeof *s);
}
