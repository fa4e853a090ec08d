#include "common/flux_report.h"

#include <stdio.h>

#include "base/log.h"

/* chi^2 a bin of the standards that wrong models, of some per cent, do not reach. */
#define MOST_CHI2 3.0

spx_status spx_flux_report(spx_run *s, const char *label, const spx_flux *f, const char *how, double factor,
                           size_t nbad, spx_err *e)
{
    size_t fate[SPX_FLUX_SHAPE + 1] = {0};
    double model = 0;
    for (size_t i = 0; i < f->nstar; i++)
        fate[f->star[i].fate]++;
    for (size_t k = 0; k < f->nwave; k++)
        model += f->model_error[k] / (double)f->nwave;
    spx_status st = SPX_OK;
    if (how != NULL) {
        spx_note(
            "%sresponse of %zu stars (%s), chi2 %.2f, smoothness %.1e, their models wrong by %.2f %% of it; unit %s",
            label, fate[SPX_FLUX_USED], how, f->chisq, f->smooth, 100 * model, f->unit);
        if (f->chisq > MOST_CHI2)
            spx_warn(
                "%sstandards are off their models by more than their errors (chi2 %.1f): is the sky subtracted, and "
                "are these the fits of this exposure?",
                label, f->chisq);
        if (fate[SPX_FLUX_USED] < f->nstar)
            spx_note("%sof %zu stars left out: %zu without data, %zu by scale, %zu by outliers, %zu by shape", label,
                     f->nstar, fate[SPX_FLUX_NO_DATA], fate[SPX_FLUX_SCALE], fate[SPX_FLUX_CLIPPED],
                     fate[SPX_FLUX_SHAPE]);
        st = spx_run_record(s, "stars_used", e, "%zu", fate[SPX_FLUX_USED]);
        if (st == SPX_OK)
            st = spx_run_record(s, "stars_left_out", e, "%zu", f->nstar - fate[SPX_FLUX_USED]);
        if (st == SPX_OK)
            st = spx_run_record(s, "chi2", e, "%.6g", f->chisq);
        if (st == SPX_OK)
            st = spx_run_record(s, "smoothness", e, "%.3g", f->smooth);
        if (st == SPX_OK)
            st = spx_run_record(s, "model_error", e, "%.6g", model);
    } else {
        st = spx_run_record(s, "response_factor", e, "%.9g", factor);
    }
    if (nbad > 0)
        spx_note("%s%zu wavelengths have no response: flux and ivar 0 there, mask NODATA", label, nbad);
    return st == SPX_OK ? spx_run_record(s, "wavelengths_without_response", e, "%zu", nbad) : st;
}
