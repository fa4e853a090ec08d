#include "common/extract_report.h"

#include <stdio.h>

/* Part of the error of a flux that rounding may make up. */
#define ROUNDING_LEFT 1e-3

spx_status spx_extract_report(spx_run *s, const char *label, const spx_extract_options *eo, const spx_extract_counts *c,
                              const spx_frame *frame, const spx_psf *psf, int strict, spx_err *e)
{
    const char *unit = eo->method == SPX_METHOD_TRACE ? "traces" : "patches";
    spx_detail("%s%zu %s, %zu of %zu bins without information, %zu of %zu pixels masked", label, c->npatch, unit,
               c->nbin_empty, c->nbin, c->npix_masked, c->npix);
    if (c->npix_bad > 0)
        spx_note("%s%zu pixels are not finite or have a negative ivar: masked", label, c->npix_bad);
    if (eo->reject > 0)
        spx_detail("%s%zu pixels rejected as hit by cosmic rays, %zu bins with bit COSMIC", label, c->npix_rejected,
                   c->nbin_cosmic);
    if (c->core_light > 0)
        spx_detail("%stails have %.2f%% of the light of the cores; the last correction has changed that by %.2g%% of "
                   "itself",
                   label, 100 * c->tail_light / c->core_light, 100 * c->tail_change);
    if (c->background_unknowns > 0)
        spx_detail("%sbackground of %.4g electrons a pixel in the mean of the bins: %zu unknowns, %zu pixels left out",
                   label, c->background, c->background_unknowns, c->background_clipped);
    if (c->nbin_nospot > 0)
        spx_warn("%sthe PSF is not usable at %zu of %zu bins: flux and ivar 0 there", label, c->nbin_nospot, c->nbin);
    if (c->nbin_outside > 0)
        spx_warn("%s%zu of %zu bins lie where the PSF says that their trace may not be used (%s): masked", label,
                 c->nbin_outside, c->nbin, psf->valid_range != NULL ? "valid_range" : "wave_range");
    double lo, hi;
    const size_t beyond = spx_extract_beyond(frame, psf, &lo, &hi);
    if (beyond > 0)
        spx_warn("%s%zu bins lie beyond the wavelengths that the PSF was made for, %g to %g Angstrom: its series are "
                 "extrapolated there",
                 label, beyond, lo, hi);
    if (c->nbin_empty == c->nbin)
        return spx_fail(e, SPX_ENO, "no bin could be extracted (%zu of %zu %s failed): nothing is written",
                        c->npatch_failed, c->npatch, unit);
    if (c->npatch_failed > 0 && strict)
        return spx_fail(e, SPX_ENO,
                        "%zu of %zu %s have no solution: nothing is written; without --strict they are flagged",
                        c->npatch_failed, c->npatch, unit);
    if (c->npatch_failed > 0)
        spx_warn("%s%zu of %zu %s have no solution: flux and ivar 0 there, mask ALLBADPIX and BAD2DFIT", label,
                 c->npatch_failed, c->npatch, unit);
    if (c->npatch_regularised > 0)
        spx_warn("%s%zu of %zu %s had to be solved with regularisation", label, c->npatch_regularised, c->npatch, unit);
    if (c->npatch_inexact > 0)
        spx_warn(
            "%s%zu of %zu %s: bins of %g Angstrom are so narrow that they cannot be told apart: fluxes may be off by "
            "more than their errors, mask BAD2DFIT: give wider bins",
            label, c->npatch_inexact, c->npatch, unit, eo->dw);
    else if (c->tolerance > eo->tolerance)
        spx_warn("%sbins of %g Angstrom are much narrower than the PSF: flux is exact to %.0e of its error, not to the "
                 "%g of "
                 "--tolerance: give wider bins",
                 label, eo->dw, c->tolerance, eo->tolerance);
    else if (c->rounding > ROUNDING_LEFT)
        spx_warn("%sbeside masks, where hardly a pixel of some bins is left, rounding may make up %.0e of the error of "
                 "their "
                 "flux: leave out bins with a large pixmask_fraction",
                 label, c->rounding);
    spx_status st = spx_run_fallback(s, label, &c->fallback, e);
    if (st == SPX_OK && psf->type == SPX_PSF_GAUSS_HERMITE2 && eo->method == SPX_METHOD_TRACE)
        st = spx_run_record(s, "tolerance_used", e, "%g", eo->tolerance);
    if (st == SPX_OK && c->tolerance > eo->tolerance)
        st = spx_run_record(s, "tolerance_reached", e, "%.2g", c->tolerance);
    if (st == SPX_OK && c->rounding > eo->tolerance)
        st = spx_run_record(s, "rounding_bound", e, "%.2g", c->rounding);
    if (st == SPX_OK && c->core_light > 0)
        st = spx_run_record(s, "tail_light", e, "%.4g", c->tail_light / c->core_light);
    if (st == SPX_OK && c->nline > 0)
        st = spx_run_record(s, "sky_lines_placed", e, "%zu", c->nline);
    if (st == SPX_OK && c->nline > 0)
        st = spx_run_record(s, "sky_lines_light", e, "%.4g", c->line_light);
    if (st == SPX_OK && c->background_unknowns > 0)
        st = spx_run_record(s, "background_mean", e, "%.4g", c->background);
    if (st == SPX_OK && c->background_unknowns > 0)
        st = spx_run_record(s, "background_unknowns", e, "%zu", c->background_unknowns);
    if (st == SPX_OK && c->background_unknowns > 0)
        st = spx_run_record(s, "background_pixels_left_out", e, "%zu", c->background_clipped);
    if (st == SPX_OK && c->nbin_outside > 0)
        st = spx_run_record(s, "bins_outside", e, "%zu", c->nbin_outside);
    if (st == SPX_OK && eo->reject > 0)
        st = spx_run_record(s, "pixels_rejected", e, "%zu", c->npix_rejected);
    if (st == SPX_OK && eo->reject > 0)
        st = spx_run_record(s, "bins_cosmic", e, "%zu", c->nbin_cosmic);
    if (st == SPX_OK)
        st = spx_run_record(s, "grid", e, "%.17g,%.17g,%.17g", eo->wmin, eo->wmax, eo->dw);
    if (st == SPX_OK)
        st = spx_run_record(s, unit, e, "%zu", c->npatch);
    const struct {
        const char *name;
        size_t value;
    } count[] = {{"failed", c->npatch_failed},      {"regularised", c->npatch_regularised},
                 {"inexact", c->npatch_inexact},    {"bins", c->nbin},
                 {"bins_empty", c->nbin_empty},     {"bins_without_psf", c->nbin_nospot},
                 {"pixels_masked", c->npix_masked}, {"pixels_not_finite", c->npix_bad}};
    for (size_t i = 0; i < sizeof count / sizeof *count && st == SPX_OK; i++)
        st = spx_run_record(s, count[i].name, e, "%zu", count[i].value);
    return st;
}

void spx_extract_record_seconds(spx_run *s, const char *label, double seconds, const spx_extract_counts *c)
{
    static const char *const step[SPX_EXTRACT_STEPS] = {
        "begin", "plan", "equations", "solve", "screen", "marginal", "fit", "root", "tail", "background", "end"};
    spx_run_seconds(s, "extract", seconds);
    if (c->device_seconds > 0)
        spx_run_seconds(s, "extract.device", c->device_seconds);
    spx_detail("%sextract: %.3f s", label, seconds);
    for (int k = 0; k < SPX_EXTRACT_STEPS; k++)
        if (c->seconds[k] > 0) {
            char name[32];
            (void)snprintf(name, sizeof name, "extract.%s", step[k]);
            spx_run_seconds(s, name, c->seconds[k]);
        }
}
