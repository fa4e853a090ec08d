#include "common/psf_report.h"

#include "products/psf.h"

/* Error of the PSF, a part of the peak, above which spots have wings that the model lacks, and a tail may be these. */
#define ANOTHER_KIND 0.01

static spx_status report_tail(spx_run *s, const spx_psffit *f, const spx_psffit_tail *t, spx_err *e)
{
    double off = 0;
    if (!t->fit)
        return SPX_OK;
    for (size_t k = 0; k < f->nbundle; k++)
        off = f->bundle[k].fitted && f->bundle[k].psf_error > off ? f->bundle[k].psf_error : off;
    if (t->found)
        spx_note("tail: TAILAMP %.5f %+.5f u (errors %.5f, %.5f where TAILINDE is known), TAILINDE %.3f +- %.3f; %zu "
                 "pixels beyond the lines, chi2 %.3f",
                 t->amplitude[0], t->amplitude[1], t->error[0], t->error[1], t->index, t->index_error, t->npix,
                 t->chi2);
    else
        spx_warn("no tail is seen: TAILAMP %.5f +- %.5f: the PSF has none", t->amplitude[0], t->error[0]);
    if (t->found && off > ANOTHER_KIND)
        spx_warn("spots are off the fit by %.1f %% of their peak: the tail may be wings that it lacks: try more "
                 "--hermite-degree, or larger spots (--hsize)",
                 100 * off);
    const struct {
        const char *name;
        double value;
    } number[] = {{"tail_amplitude", t->amplitude[0]},
                  {"tail_amplitude_error", t->error[0]},
                  {"tail_slope", t->amplitude[1]},
                  {"tail_slope_error", t->error[1]},
                  {"tail_index", t->index},
                  {"tail_index_error", t->index_error},
                  {"tail_chi2", t->chi2}};
    spx_status st = SPX_OK;
    for (size_t k = 0; k < sizeof number / sizeof *number && st == SPX_OK; k++)
        st = spx_run_record(s, number[k].name, e, "%.6g", number[k].value);
    return st == SPX_OK ? spx_run_record(s, "tail_pixels", e, "%zu", t->npix) : st;
}

spx_status spx_psf_report(spx_run *s, const spx_psffit *f, int part, size_t nan, const spx_psffit_tail *t, spx_err *e)
{
    static const struct {
        unsigned flag;
        const char *what;
    } flags[] = {
        {SPX_PSF_DEAD, "have no light: traces are those of their neighbours"},
        {SPX_PSF_FEWLINES, "have fewer than two lines a term of the trace: the highest terms are those of the start"},
        {SPX_PSF_RANGE, "reach beyond their last lines: /psf/valid_range says where traces hold"},
        {SPX_PSF_BADFIT, "are fitted badly: see --model"},
        {SPX_PSF_MOVED, "lie far from where their neighbours say"},
        {SPX_PSF_MASKED, "are masked over more than half of their spots"},
        {SPX_PSF_BUNDLE, "are of bundles that were not fitted: traces and spots are those of the start"},
        {SPX_PSF_NOTCONVERGED,
         "are of bundles whose fit has not converged: try more --max-iterations, or arcs that are less bright"}};
    double chi2 = 0, npix = 0, kms = 0, x = 0, y = 0;
    size_t good = 0, nused = 0, nfound = 0, nwrong = 0, nseen = 0;
    for (size_t i = 0; i < f->nspec; i++) {
        chi2 += f->fibre[i].chi2 * (double)f->fibre[i].npix;
        npix += (double)f->fibre[i].npix;
        if (f->fibre[i].status & (SPX_PSF_DEAD | SPX_PSF_BUNDLE))
            continue;
        kms += f->fibre[i].wave_error_kms;
        x += f->fibre[i].x_error;
        y += f->fibre[i].y_error;
        good++;
    }
    const double n = good > 0 ? (double)good : 1;
    for (size_t l = 0; l < f->nline; l++) {
        nfound += !f->line[l].listed;
        nseen += f->line[l].nfibre > 0;
        nused += f->line[l].used && f->line[l].nfibre > 0;
        nwrong += f->line[l].listed && !f->line[l].used;
    }
    spx_note("%zu of %zu fibres fitted to %zu lines: errors %.4f pixel in x, %.4f in y, %.3f km/s; chi2 %.3f a pixel",
             good, f->nspec, nused, x / n, y / n, kms / n, npix > 0 ? chi2 / npix : 0);
    for (size_t l = 0; l < f->nline; l++)
        if (f->line[l].listed && !f->line[l].used)
            spx_warn("line %s %.3f: found at %+.4f +- %.4f Angstrom from there: left out of the wavelengths",
                     f->line[l].element, f->line[l].wavelength, f->line[l].delta, f->line[l].delta_error);
        else if (!f->line[l].listed)
            spx_detail("light at %.3f that is not listed (%s), %.0f electrons",
                       f->line[l].wavelength + f->line[l].delta,
                       f->line[l].element[0] != '\0' ? f->line[l].element : "unknown", f->line[l].flux);
    if (f->ndisagree > 0)
        spx_warn(
            "%zu lines are off by more than 5 errors and 0.01 Angstrom, too many to be listed wrong: is the list in "
            "another --medium, or --trace-degree too low?",
            f->ndisagree);
    if (nfound > 0)
        spx_note("%zu lines that are not listed: in the model, not in the wavelengths (-v names them)", nfound);
    if (nan > 0)
        spx_warn("%zu pixels are not numbers: masked", nan);
    spx_status st = t != NULL ? report_tail(s, f, t, e) : SPX_OK;
    for (size_t k = 0; k < sizeof flags / sizeof *flags && st == SPX_OK; k++) {
        size_t count = 0;
        if (flags[k].flag == SPX_PSF_BUNDLE && part)
            continue;
        for (size_t i = 0; i < f->nspec; i++)
            count += (f->fibre[i].status & flags[k].flag) != 0;
        if (count > 0)
            spx_warn("%zu of %zu fibres %s", count, f->nspec, flags[k].what);
    }
    const struct {
        const char *name;
        size_t value;
    } counts[] = {{"fibres_fitted", good}, {"lines_used", nused},   {"lines_seen", nseen},
                  {"lines_found", nfound}, {"lines_wrong", nwrong}, {"pixels_not_numbers", nan}};
    for (size_t k = 0; k < sizeof counts / sizeof *counts && st == SPX_OK; k++)
        st = spx_run_record(s, counts[k].name, e, "%zu", counts[k].value);
    return st == SPX_OK ? spx_run_record(s, "chi2", e, "%.6g", npix > 0 ? chi2 / npix : 0) : st;
}
