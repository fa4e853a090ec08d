#include "common/psf_suspect.h"

#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "num/wave.h"
#include "psf/psf_math.h"
#include "psffit/compare.h"
#include "psffit/errors.h"

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

/* Lines that were used and seen, and those of them that are saturated in most fibres. */
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

/* The same without what spots that are off their places leave, which no degrees of the shape can take away. */
static double unlike_of(const spx_psffit_bundle *b)
{
    return b->fitted && b->nunlike > 0 ? b->unlike / sqrt(2 * b->nunlike) : 0;
}

/* The bundle whose spots are off the fit by most, of those whose shapes are so by more than `unlike`; the first where
 * there is none. */
static size_t worst_of(const spx_psffit *fit, double unlike)
{
    size_t worst = 0;
    for (size_t b = 1; b < fit->nbundle; b++)
        if (unlike_of(&fit->bundle[b]) > unlike &&
            (!(unlike_of(&fit->bundle[worst]) > unlike) || misfit_of(&fit->bundle[b]) > misfit_of(&fit->bundle[worst])))
            worst = b;
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
    *taken = st == SPX_OK && misfit_of(&trial.bundle[worst_of(&trial, -INFINITY)]) < before;
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

/* Degrees that are tried. Narrow functions come first: spots with edges and those with wings need them, and a fit of
 * the widths that are held ends sooner than one of free ones. */
static const struct {
    int hermite, fibre, wave;
    double width;
} degrees[] = {{8, 1, 2, 0.75}, {8, 2, 3, 0.8}, {10, 1, 2, 0.75}, {6, 2, 3, 1}};
/* Those for spots that vary along a bundle, and those that show it with less; the last that are tried where those
 * before gain nothing, as with fibres whose widths scatter. */
enum { TURNS = 1, VARIES = 3, FIRST_TRIES = 1 };

/* Whether the lines tell degrees: two for each term along wavelengths whose cores are seen in some exposure; and where
 * any line is saturated in most fibres, no more terms along fibres, as wings do not tell those of the outer fibres: one
 * with a bad column was 0.013 pixel off in x. */
static int lines_tell(size_t k, size_t whole, size_t saturated)
{
    return whole >= 2 * (size_t)(degrees[k].wave + 1) && (degrees[k].fibre <= 1 || saturated == 0);
}

static void set_degrees(size_t k, spx_psffit_options *o)
{
    o->hermite_degree = degrees[k].hermite;
    o->hermite_width = degrees[k].width;
    o->shape_degree_fibre = degrees[k].fibre;
    o->shape_degree_wave = degrees[k].wave;
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

/* Fits one bundle with the options' degrees. *ok: 0 where it cannot be fitted. */
static spx_status fit_bundle(spx_backend *backend, const spx_psffit_input *in, const spx_psffit_options *o,
                             size_t bundle, spx_psf *psf, spx_psffit *fit, int *ok, spx_err *e)
{
    spx_psffit_options one = *o;
    spx_err why = {0};
    one.bundle_first = bundle;
    one.bundle_last = bundle + 1;
    one.want_model = 0;
    one.progress = NULL;
    const spx_status st = backend->psffit(backend, in, &one, NULL, psf, fit, &why);
    *ok = st == SPX_OK && fit->bundle[bundle].fitted;
    return st == SPX_EIO ? spx_err_pass(e, &why) : SPX_OK;
}

/* *left and *error: what the options' degrees leave of the spots of a bundle, where it can be fitted. */
static spx_status try_bundle(spx_backend *backend, const spx_psffit_input *in, const spx_psffit_options *o,
                             size_t bundle, double *left, double *error, spx_err *e)
{
    spx_psf psf = {0};
    spx_psffit fit = {0};
    int ok;
    const spx_status st = fit_bundle(backend, in, o, bundle, &psf, &fit, &ok, e);
    *left = INFINITY; /* a bundle that such degrees cannot fit tells nothing */
    if (ok && fit.bundle[bundle].of[0] > 0) {
        *left = misfit_of(&fit.bundle[bundle]);
        *error = fit.bundle[bundle].psf_error;
    }
    spx_psf_free(&psf);
    spx_psffit_free(&fit);
    return st;
}

/* The same of every second exposure, from `first` on. */
static spx_status fit_half(spx_backend *backend, const spx_psffit_input *in, const spx_psffit_options *o, size_t bundle,
                           size_t first, spx_psf *psf, spx_psffit *fit, int *ok, spx_err *e)
{
    spx_psffit_input half = *in;
    spx_image *image = spx_alloc(in->nexp, sizeof *image, e);
    if (image == NULL)
        return SPX_EIO;
    half.nexp = 0;
    half.image = image;
    half.name = NULL;
    for (size_t i = first; i < in->nexp; i += 2)
        image[half.nexp++] = in->image[i];
    const spx_status st = fit_bundle(backend, &half, o, bundle, psf, fit, ok, e);
    spx_free(image);
    return st;
}

/* How far spots of a bundle are off the fit, by its peak, in what two halves of the exposures agree on with the
 * options' degrees; 0 where they do not. */
static spx_status common_of(spx_backend *backend, const spx_psffit_input *in, const spx_psffit_options *o,
                            size_t bundle, const spx_psf *psf, const spx_psffit *fit, double *common, spx_err *e)
{
    const double agree = 0.4;
    spx_psf of[2] = {{0}, {0}};
    spx_psffit half[2] = {{0}, {0}};
    int ok = 1;
    spx_status st = SPX_OK;
    *common = 0;
    for (size_t k = 0; k < 2 && ok && st == SPX_OK; k++)
        st = fit_half(backend, in, o, bundle, k, &of[k], &half[k], &ok, e);
    spx_psffit_agreement found = {0};
    if (st == SPX_OK && ok)
        st = spx_psffit_agree(psf, &of[0], &of[1], fit, bundle, &found, e);
    if (found.alike > agree)
        *common = found.common;
    for (size_t k = 0; k < 2; k++) {
        spx_psf_free(&of[k]);
        spx_psffit_free(&half[k]);
    }
    return st;
}

/* Spots that vary along the bundle as no terms do may be right in the mean, as those of optics whose coma turns: where
 * two halves of the exposures agree on it, all bundles have more terms. One exposure does not tell, and has more noise
 * than they gain. */
static spx_status choose_by_halves(spx_backend *backend, const spx_psffit_input *in, spx_psffit_options *ko,
                                   size_t bundle, double unlike, spx_psf *psf, spx_psffit *fit, spx_err *e)
{
    const double least = 1e-3;
    spx_psffit_options more = *ko;
    double common = 0;
    set_degrees(VARIES, &more);
    spx_status st = common_of(backend, in, &more, bundle, psf, fit, &common, e);
    if (st != SPX_OK || !(common > least))
        return st;
    int taken;
    set_degrees(TURNS, &more);
    more.progress = NULL;
    st = fit_again(backend, in, &more, unlike, psf, fit, &taken, e);
    if (st != SPX_OK || !taken)
        return st;
    char named[120];
    name_degrees(&more, sizeof named, named);
    spx_warn("spots vary along bundle %zu by %.2f %% of their peak as the usual degrees do not, as two halves of the "
             "exposures agree: all are fitted with %s",
             bundle, 100 * common, named);
    *ko = more;
    return SPX_OK;
}

spx_status spx_psf_choose_degrees(spx_backend *backend, const spx_psffit_input *in, spx_psffit_options *ko,
                                  spx_psf *psf, spx_psffit *fit, spx_err *e)
{
    const double unlike = 4, like = 2, half = 0.5, nearly = 0.9;
    if (fit->nbundle == 0)
        return SPX_OK;
    const size_t worst = worst_of(fit, unlike);
    const double was = misfit_of(&fit->bundle[worst]), percent = 100 * fit->bundle[worst].psf_error;
    size_t whole = 0, saturated = 0;
    for (size_t i = 0; i < in->nexp; i++) {
        size_t used;
        const size_t lost = count_saturated(&in->image[i], psf, fit, &used);
        whole = used - lost > whole ? used - lost : whole;
        saturated += lost;
    }
    if (!(was > unlike && unlike_of(&fit->bundle[worst]) > unlike))
        return in->nexp > 1 && lines_tell(TURNS, whole, saturated)
                   ? choose_by_halves(backend, in, ko, worst, unlike, psf, fit, e)
                   : SPX_OK;
    spx_psffit_options best = *ko, more = *ko;
    double left = was, error = 0;
    spx_status st = SPX_OK;
    for (size_t k = 0; k < sizeof degrees / sizeof *degrees && st == SPX_OK && left > like; k++) {
        double now, of = 0;
        if (!lines_tell(k, whole, saturated) || (k > FIRST_TRIES && left > nearly * was))
            continue;
        set_degrees(k, &more);
        st = try_bundle(backend, in, &more, worst, &now, &of, e);
        if (st == SPX_OK && now < left) {
            left = now;
            error = of;
            set_degrees(k, &best);
        }
    }
    int taken = 0;
    best.progress = NULL;
    if (st == SPX_OK && left < half * was)
        st = fit_again(backend, in, &best, was, psf, fit, &taken, e);
    if (st != SPX_OK)
        return st;
    char named[120];
    name_degrees(&best, sizeof named, named);
    if (taken) {
        *ko = best;
        spx_warn("spots of bundle %zu are off the fit by %.2f %% of their light with the usual degrees, more than "
                 "noise makes: all are fitted with %s, which leave %.2f %%",
                 worst, percent, named, 100 * error);
    } else if (left < half * was) {
        spx_warn("spots of bundle %zu are off the fit by %.2f %% of their light, more than noise makes: %s leave %.2f "
                 "%%, not in all bundles",
                 worst, percent, named, 100 * error);
    } else {
        spx_warn("spots of bundle %zu are off the fit by %.2f %% of their light, more than noise makes, and by half as "
                 "much or more with %s",
                 worst, percent,
                 saturated > 0 || !lines_tell(sizeof degrees / sizeof *degrees - 1, whole, 0)
                     ? "other degrees that its lines tell"
                     : "degrees of up to 10 and 2,3");
    }
    return SPX_OK;
}

/* Distances of the places of a fibre from those of another fit, off[2][nplace], 0 where there are none; *worst: the
 * largest. room: for spx_psf_spot_difference() and its result. */
static void distances(const spx_psf *psf, const spx_psf *other, const spx_psffit *fit, size_t fibre, double *room,
                      double *off, double *worst)
{
    const size_t more = spx_psf_spot_difference_room(psf, other);
    for (size_t k = 0; k < fit->nplace; k++) {
        double change[2] = {0, 0};
        if (!(fit->x_error[fibre * fit->nplace + k] > 0) ||
            !spx_psf_spot_difference(psf, other, fibre, fit->place[k], room, room + more, change))
            change[0] = change[1] = 0;
        for (size_t q = 0; q < 2; q++) {
            off[q * fit->nplace + k] = fabs(change[q]);
            *worst = fmax(*worst, fabs(change[q]));
        }
    }
}

/* Distances of a bundle's places from those of the fit whose spots are alike in all fibres, into its errors; 0 where
 * that fit is no rival. *farthest, of *fibre, where it is larger than it was. */
static spx_status rival_bundle(spx_backend *backend, const spx_psffit_input *in, const spx_psffit_options *o,
                               size_t bundle, spx_psf *psf, spx_psffit *fit, double *farthest, size_t *fibre,
                               spx_err *e)
{
    const double alike = 2; /* times the error of spots */
    spx_psf other = {0};
    spx_psffit trial = {0};
    double *room = NULL;
    int ok = 0;
    spx_status st = fit_bundle(backend, in, o, bundle, &other, &trial, &ok, e);
    ok = ok && trial.bundle[bundle].psf_error < alike * fit->bundle[bundle].psf_error;
    if (st == SPX_OK && ok) {
        const size_t npix = (size_t)spx_psf_nx(psf) * (size_t)spx_psf_ny(psf);
        room = spx_alloc(spx_psf_spot_difference_room(psf, &other) + 2 * npix + 2 * fit->nplace, sizeof *room, e);
        st = room != NULL ? SPX_OK : SPX_EIO;
    }
    for (size_t i = 0; i < fit->nspec && st == SPX_OK && ok; i++) {
        double *off = room, largest = 0;
        if (fit->fibre[i].bundle != (int32_t)bundle ||
            ((fit->fibre[i].status | trial.fibre[i].status) & (SPX_PSF_DEAD | SPX_PSF_BUNDLE)) != 0)
            continue;
        distances(psf, &other, fit, i, room + 2 * fit->nplace, off, &largest);
        spx_psffit_add_misfit(psf, fit, i, off);
        spx_psffit_sum_errors(psf, fit, i);
        fit->fibre[i].status |= largest > SPX_PSFFIT_OFF ? SPX_PSF_BADFIT : 0;
        psf->status[i] = (uint16_t)fit->fibre[i].status;
        *fibre = largest > *farthest ? i : *fibre;
        *farthest = fmax(*farthest, largest);
    }
    spx_free(room);
    spx_psf_free(&other);
    spx_psffit_free(&trial);
    return st;
}

/* Fits with spots that are alike in all fibres, of those bundles whose spots are off the fit or have more terms than
 * usual: there, light of a wing in the next fibre's core may be that core's own. A warning says how far places are from
 * those of that fit. */
static spx_status doubt_bundles(spx_backend *backend, const spx_psffit_input *in, const spx_psffit_options *ko,
                                spx_psf *psf, spx_psffit *fit, spx_err *e)
{
    const double unlike = 4, told = 0.01;
    const int usual = ko->hermite_degree <= 6 && ko->hermite_width >= 1 && ko->shape_degree_fibre <= 1;
    spx_psffit_options even = *ko;
    size_t fibre = 0;
    double farthest = 0;
    spx_status st = SPX_OK;
    even.shape_degree_fibre = 0;
    for (size_t k = 0; k < fit->nbundle && st == SPX_OK; k++)
        if (fit->bundle[k].fitted && fit->bundle[k].nfibre > 1 && (!usual || misfit_of(&fit->bundle[k]) > unlike))
            st = rival_bundle(backend, in, &even, k, psf, fit, &farthest, &fibre, e);
    if (st == SPX_OK && farthest > told)
        spx_warn(
            "spots that are alike in all fibres of bundle %d (--shape-degree 0,%d) suit it nearly as well, and put "
            "those of fibre %zu up to %.3f pixel elsewhere: errors of places have it",
            fit->fibre[fibre].bundle, ko->shape_degree_wave, fibre, farthest);
    return st;
}

spx_status spx_psf_doubt_places(spx_backend *backend, const spx_psffit_input *in, const spx_psffit_options *ko,
                                const spx_psffit_tail *tail, spx_psf *psf, spx_psffit *fit, spx_err *e)
{
    const int has = tail != NULL && (!tail->fit || tail->found);
    spx_psffit_input cores = *in;
    spx_psf start = *in->start, bare = *psf; /* share all but the tail with these */
    spx_image *image = NULL;
    spx_psf_drop_tail(&start);
    spx_psf_drop_tail(&bare);
    cores.start = &start;
    spx_status st = has ? spx_psffit_new_images(in, &image, e) : SPX_OK;
    if (st == SPX_OK && has) {
        cores.image = image;
        st = spx_psffit_without_tail(in, tail, ko->nthreads, psf, fit, image, e);
    }
    if (st == SPX_OK)
        st = doubt_bundles(backend, &cores, ko, &bare, fit, e);
    spx_psffit_free_images(in->nexp, image);
    return st;
}
