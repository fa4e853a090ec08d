#include "common/psf_suspect.h"

#include <math.h>

#include "base/log.h"
#include "base/mem.h"
#include "num/wave.h"
#include "psf/psf_math.h"

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

/* Lines that were used, and those of them that are saturated in most fibres. */
static size_t count_saturated(const spx_image *image, const spx_psf *psf, const spx_psffit *fit, size_t *used)
{
    size_t lost = 0;
    *used = 0;
    for (size_t l = 0; l < fit->nline; l++)
        if (fit->line[l].used && fit->line[l].nfibre > 0) {
            ++*used;
            lost += spx_psffit_line_saturated(image, psf, fit->line[l].wavelength) != 0;
        }
    return lost;
}

void spx_psf_suspect_saturation(size_t n, const spx_image *image, char *const *name, const spx_psf *psf,
                                const spx_psffit *fit)
{
    for (size_t i = 0; i < n; i++) {
        size_t used;
        const size_t lost = count_saturated(&image[i], psf, fit, &used);
        if (2 * lost > used)
            spx_warn("%s: %zu of the %zu lines are saturated in most fibres: their wings tell little of places and "
                     "spots: take shorter exposures",
                     name[i], lost, used);
    }
}

/* Stacked residuals of a bundle's spots over what noise makes of them. */
static double misfit_of(const spx_psffit_bundle *b)
{
    return b->fitted && b->of[0] > 0 ? b->misfit / sqrt(2 * b->of[0]) : 0;
}

/* The bundle whose spots are off the fit by most. */
static size_t worst_of(const spx_psffit *fit)
{
    size_t worst = 0;
    for (size_t b = 1; b < fit->nbundle; b++)
        worst = misfit_of(&fit->bundle[b]) > misfit_of(&fit->bundle[worst]) ? b : worst;
    return worst;
}

/* Takes over a fit of all bundles with the options' degrees, where its spots are less off than `before`. A fit that
 * fails takes nothing away. *taken: 1 or 0. */
static spx_status fit_again(spx_backend *backend, const spx_psffit_input *in, const spx_psffit_options *ko,
                            double before, spx_psf *psf, spx_psffit *fit, int *taken, spx_err *e)
{
    spx_psf other = {0};
    spx_psffit trial = {0};
    spx_err why = {0};
    const spx_status st = backend->psffit(backend, in, ko, NULL, &other, &trial, &why);
    *taken = st == SPX_OK && misfit_of(&trial.bundle[worst_of(&trial)]) < before;
    if (*taken) {
        spx_psf_free(psf);
        spx_psffit_free(fit);
        *psf = other;
        *fit = trial;
        return SPX_OK;
    }
    spx_psf_free(&other);
    spx_psffit_free(&trial);
    return st == SPX_EIO ? spx_err_pass(e, &why) : SPX_OK;
}

spx_status spx_psf_choose_degrees(spx_backend *backend, const spx_psffit_input *in, spx_psffit_options *ko,
                                  spx_psf *psf, spx_psffit *fit, spx_err *e)
{
    /* in the order of their number of parameters */
    static const struct {
        int hermite, fibre, wave;
    } degrees[] = {{8, 1, 2}, {6, 2, 3}, {8, 2, 3}};
    const double unlike = 4, like = 2, half = 0.5;
    size_t saturated = 0, used;
    if (fit->nbundle == 0)
        return SPX_OK;
    const size_t worst = worst_of(fit);
    const double was = misfit_of(&fit->bundle[worst]), percent = 100 * fit->bundle[worst].psf_error;
    if (!(was > unlike))
        return SPX_OK;
    for (size_t i = 0; i < in->nexp; i++)
        saturated += count_saturated(&in->image[i], psf, fit, &used);
    spx_psffit_options best = *ko;
    double left = was, error = 0;
    spx_status st = SPX_OK;
    for (size_t k = 0; k < sizeof degrees / sizeof *degrees && st == SPX_OK && left > like; k++) {
        spx_psffit_options more = *ko;
        spx_psf one = {0};
        spx_psffit trial = {0};
        more.hermite_degree = degrees[k].hermite;
        more.shape_degree_fibre = degrees[k].fibre;
        more.shape_degree_wave = degrees[k].wave;
        more.bundle_first = worst;
        more.bundle_last = worst + 1;
        more.want_model = 0;
        more.progress = NULL;
        spx_err why = {0};
        const spx_status tried = backend->psffit(backend, in, &more, NULL, &one, &trial, &why);
        const spx_psffit_bundle *to = tried == SPX_OK ? &trial.bundle[worst] : NULL;
        if (tried == SPX_EIO) /* a bundle that such degrees cannot fit tells nothing */
            st = spx_mem_fail(e);
        if (to != NULL && to->fitted && misfit_of(to) < left) {
            left = misfit_of(to);
            error = to->psf_error;
            best.hermite_degree = more.hermite_degree;
            best.shape_degree_fibre = more.shape_degree_fibre;
            best.shape_degree_wave = more.shape_degree_wave;
        }
        spx_psf_free(&one);
        spx_psffit_free(&trial);
    }
    int taken = 0;
    best.progress = NULL;
    if (st == SPX_OK && left < half * was && saturated == 0)
        st = fit_again(backend, in, &best, was, psf, fit, &taken, e);
    if (st == SPX_OK && taken) {
        *ko = best;
        spx_warn("spots of bundle %zu are off the fit by %.2f %% of their light with the usual degrees, more than "
                 "noise makes: all are fitted with --hermite-degree %d --shape-degree %d,%d, which leave %.2f %%",
                 worst, percent, best.hermite_degree, best.shape_degree_fibre, best.shape_degree_wave, 100 * error);
    } else if (st == SPX_OK && left < half * was) {
        spx_warn("spots of bundle %zu are off the fit by %.2f %% of their light, more than noise makes: "
                 "--hermite-degree %d --shape-degree %d,%d leave %.2f %%, %s",
                 worst, percent, best.hermite_degree, best.shape_degree_fibre, best.shape_degree_wave, 100 * error,
                 saturated > 0 ? "but they may fit the wings of saturated lines alone" : "not in all bundles");
    } else if (st == SPX_OK) {
        spx_warn("spots of bundle %zu are off the fit by %.2f %% of their light, more than noise makes, and by half as "
                 "much or more with degrees of up to 8 and 2,3",
                 worst, percent);
    }
    return st;
}
