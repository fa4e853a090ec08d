#include "common/shift_report.h"

#include <math.h>

#include "base/text.h"

/* Mean and rms about it over fibres and places. */
static void spread(const spx_shift *s, const double *v, double *mean, double *rms)
{
    const size_t n = s->nspec * s->nplace;
    double sum = 0, sum2 = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i];
    *mean = n > 0 ? sum / (double)n : 0;
    for (size_t i = 0; i < n; i++)
        sum2 += (v[i] - *mean) * (v[i] - *mean);
    *rms = n > 0 ? sqrt(sum2 / (double)n) : 0;
}

static size_t count(const spx_shift *s, uint32_t flag)
{
    size_t n = 0;
    for (size_t f = 0; f < s->nspec; f++)
        n += (s->flags[f] & flag) != 0;
    return n;
}

spx_status spx_shift_report(spx_run *r, const char *label, const spx_shift *s, spx_err *e)
{
    double dx, rms_x, dy, rms_y;
    const size_t old_x = count(s, SPX_SHIFT_OLDX), old_y = count(s, SPX_SHIFT_NOLINES);
    const size_t nolight = count(s, SPX_SHIFT_NOLIGHT);
    char some[80];
    spread(s, s->dx, &dx, &rms_x);
    spread(s, s->dy, &dy, &rms_y);
    spx_note("%straces moved by %.4f pixel in x (rms %.4f about it), %.4f in y (rms %.4f); chi2 of the image %.4f, was "
             "%.4f",
             label, dx, rms_x, dy, rms_y, s->dof > 0 ? s->chi2_after / s->dof : 0,
             s->dof > 0 ? s->chi2_before / s->dof : 0);
    if (s->nline > 0)
        spx_note("%szero point %.5f +- %.5f Angstrom by %zu lines", label, s->zero_point, s->zero_point_error,
                 s->nline);
    else if (old_y < s->nspec)
        spx_note("%sno zero point: what all traces have moved along themselves is not known", label);
    spx_detail("%s%d steps, %d rounds, %zu windows of fibres used, %zu left out, chi2 about the smooth functions %.3f",
               label, s->steps, s->rounds, s->nwindow_used, s->nwindow_rejected,
               s->dof_smooth > 0 ? s->chi2_smooth / s->dof_smooth : 0);
    if (s->failed)
        spx_warn("%sthe fit of the places across the traces does not converge, or makes the image worse: they stay "
                 "where they "
                 "were: look for light that is not the fibres', and for spots unlike those of the PSF",
                 label);
    else if (old_x > 0)
        spx_warn("%s%zu of %zu fibres: no light across the traces tells their place: they stay where they were", label,
                 old_x, s->nspec);
    else if (nolight > 0) {
        spx_text_flagged(s->nspec, s->flags, SPX_SHIFT_NOLIGHT, some);
        spx_warn("%s%zu of %zu fibres%s have no light: their neighbours' tells where their traces are", label, nolight,
                 s->nspec, some);
    }
    if (old_y > 0) {
        spx_text_flagged(s->nspec, s->flags, SPX_SHIFT_NOLINES, some);
        spx_warn("%s%zu of %zu fibres%s: no lines tell their place along the trace: y stays as it was", label, old_y,
                 s->nspec, some);
    }
    if (s->dof_smooth > 0 && s->chi2_smooth > 2 * s->dof_smooth)
        spx_warn("%sshifts of single windows scatter %.1f times more than their errors: give higher --terms-x", label,
                 sqrt(s->chi2_smooth / s->dof_smooth));
    spx_status st = spx_run_record(r, "dx", e, "%.5f", dx);
    if (st == SPX_OK)
        st = spx_run_record(r, "dy", e, "%.5f", dy);
    if (st == SPX_OK)
        st = spx_run_record(r, "zero_point", e, "%.6f", s->zero_point);
    if (st == SPX_OK)
        st = spx_run_record(r, "zero_point_error", e, "%.6f", s->zero_point_error);
    if (st == SPX_OK)
        st = spx_run_record(r, "lines", e, "%zu", s->nline);
    if (st == SPX_OK)
        st = spx_run_record(r, "chi2", e, "%.5f before, %.5f after", s->dof > 0 ? s->chi2_before / s->dof : 0,
                            s->dof > 0 ? s->chi2_after / s->dof : 0);
    if (st == SPX_OK)
        st = spx_run_record(r, "windows_rejected", e, "%zu", s->nwindow_rejected);
    return st == SPX_OK ? spx_run_record(r, "fibers_not_moved", e, "%zu in x, %zu in y", old_x, old_y) : st;
}
