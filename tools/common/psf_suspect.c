#include "common/psf_suspect.h"

#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "common/arc_list.h"
#include "num/wave.h"
#include "psf/psf_math.h"
#include "psffit/again.h"

spx_status spx_psf_check_fitted(const spx_psffit *fit, const char *flat, const char *arc, spx_err *e)
{
    size_t lost = 0;
    for (size_t i = 0; i < fit->nspec; i++)
        lost += (fit->fibre[i].status & (SPX_PSF_DEAD | SPX_PSF_BUNDLE)) != 0;
    return 2 * lost <= fit->nspec
               ? SPX_OK
               : spx_fail_at(e, SPX_EINPUT, arc, NULL, "give a flat and arcs of one camera and night",
                             "%zu of the %zu traces of --flat %s have no lines in the arcs, or are of bundles that "
                             "were not fitted",
                             lost, fit->nspec, flat);
}

spx_status spx_psf_record_medium(spx_run *s, const char *lines, int medium, int given, size_t n,
                                 const spx_arc_line *line, spx_err *e)
{
    const char *const word = medium == SPX_AIR ? "air" : "vacuum";
    int tells;
    const spx_status st = spx_arc_list_tells_medium(n, line, &tells, e);
    if (st != SPX_OK)
        return st;
    if (!tells && !given)
        spx_warn("%s: no line of a known lamp tells that its wavelengths are in vacuum, as they are taken for: in air, "
                 "all velocities are 80 km/s off; give --medium",
                 lines);
    return spx_run_record(s, "medium", e, "%s, %s", word,
                          tells   ? "as known lines are"
                          : given ? "as --medium says"
                                  : "not verified");
}

void spx_psf_suspect_air(const spx_psf *start, const spx_psffit *fit, const char *lines, int medium)
{
    const size_t f = start->nspec / 2;
    const double mid = 0.5 * (start->y.wmin + start->y.wmax);
    const double rows =
        0.5 * (spx_psf_series_value(&start->y, f, mid + 1) - spx_psf_series_value(&start->y, f, mid - 1));
    const int air = medium == SPX_AIR;
    const double off = rows * (spx_air_to_vacuum(mid) - mid) * (air ? -1.0 : 1.0);
    int near = 1;
    for (size_t i = 0; i < fit->nspec; i++)
        near &= (fit->fibre[i].status & (SPX_PSF_DEAD | SPX_PSF_BUNDLE)) != 0 ||
                fabs(fit->fibre[i].y_shift - off) < 0.1 * fabs(off);
    if (near)
        spx_warn(
            "all traces have moved by %.2f pixels in y, as wavelengths in %s make them: if those of --lines %s are "
            "in %s, give --medium %s",
            off, air ? "vacuum, taken for air," : "air", lines, air ? "vacuum" : "air", air ? "vacuum" : "air");
}

void spx_psf_suspect_saturation(size_t n, const spx_image *image, char *const *name, const spx_psf *psf,
                                const spx_psffit *fit)
{
    for (size_t i = 0; i < n; i++) {
        size_t used;
        const size_t lost = spx_psffit_count_saturated(&image[i], psf, fit, &used);
        if (2 * lost > used)
            spx_warn("%s: %zu of the %zu lines are saturated in most fibres: their wings tell little of places and "
                     "spots: take shorter exposures",
                     name[i], lost, used);
    }
}

void spx_psf_suspect_ghost(spx_psf *psf, spx_psffit *fit)
{
    spx_psffit_ghost found;
    spx_psffit_find_ghost(psf, fit, &found);
    if (found.with > 0)
        spx_warn("%zu of %zu lines have %.2g %% of their light once more %+.1f rows away, which the PSF has not: a "
                 "second core of spots, or a ghost",
                 found.with, found.of, 100 * found.part, found.rows);
}

/* Options as a user gives them. */
static void name_degrees(const spx_psffit_options *o, size_t size, char *text)
{
    char width[40] = "";
    if (o->hermite_width < 1)
        snprintf(width, sizeof width, " --hermite-width %g", o->hermite_width);
    snprintf(text, size, "--hermite-degree %d%s --shape-degree %d,%d", o->hermite_degree, width, o->shape_degree_fibre,
             o->shape_degree_wave);
}

static spx_status fit_by_backend(void *with, const spx_psffit_input *in, const spx_psffit_options *o, spx_psf *psf,
                                 spx_psffit *fit, spx_err *e)
{
    spx_backend *backend = with;
    return backend->psffit(backend, in, o, NULL, psf, fit, e);
}

/* Fits of a bundle that are made at one time: one a thread; with a device, for which a thread waits most of the time,
 * two. */
static int at_once(const spx_backend *backend, const spx_psffit_options *o)
{
    return backend->library == NULL ? o->nthreads : 2 * o->nthreads;
}

spx_status spx_psf_choose_degrees(spx_backend *backend, const spx_psffit_input *in, spx_psffit_options *ko,
                                  spx_psf *psf, spx_psffit *fit, spx_err *e)
{
    const spx_psffit_maker by = {fit_by_backend, backend, at_once(backend, ko)};
    spx_psffit_choice found;
    char named[120];
    const spx_status st = spx_psffit_choose_degrees(&by, in, ko, psf, fit, &found, e);
    if (st != SPX_OK)
        return st;
    const double off = 100 * found.off, left = 100 * found.left;
    name_degrees(&found.best, sizeof named, named);
    switch (found.what) {
    case SPX_PSFFIT_USUAL:
        break;
    case SPX_PSFFIT_TAKEN:
        spx_warn("spots of bundle %zu are off the fit by %.2f %% of their light with the usual degrees, more than "
                 "noise makes: all are fitted with %s, which leave %.2f %%",
                 found.bundle, off, named, left);
        break;
    case SPX_PSFFIT_NOT_IN_ALL:
        spx_warn("spots of bundle %zu are off the fit by %.2f %% of their light, more than noise makes: %s leave %.2f "
                 "%%, not in all bundles",
                 found.bundle, off, named, left);
        break;
    case SPX_PSFFIT_NONE_FITS:
        spx_warn("spots of bundle %zu are off the fit by %.2f %% of their light, more than noise makes, and by half as "
                 "much or more with %s",
                 found.bundle, off,
                 found.all_told ? "degrees of up to 10 and 2,3" : "other degrees that its lines tell");
        break;
    case SPX_PSFFIT_BY_HALVES:
        spx_warn(
            "spots of bundle %zu are off the usual degrees by %.2f %% of their peak, as two halves of the exposures "
            "agree: all are fitted with %s, which leave %.2f %%",
            found.bundle, off, named, left);
        break;
    }
    return SPX_OK;
}

spx_status spx_psf_doubt_places(spx_backend *backend, const spx_psffit_input *in, const spx_psffit_options *ko,
                                const spx_psffit_tail *tail, spx_psf *psf, spx_psffit *fit, spx_err *e)
{
    const double told = 0.01;
    const spx_psffit_maker by = {fit_by_backend, backend, at_once(backend, ko)};
    double farthest;
    size_t fibre;
    const spx_status st = spx_psffit_doubt_places(&by, in, ko, tail, psf, fit, &farthest, &fibre, e);
    if (st == SPX_OK && farthest > told)
        spx_warn(
            "spots that are alike in all fibres of bundle %d (--shape-degree 0,%d) suit it nearly as well, and put "
            "those of fibre %zu up to %.3f pixel elsewhere: errors of places have it",
            fit->fibre[fibre].bundle, ko->shape_degree_wave, fibre, farthest);
    return st;
}
