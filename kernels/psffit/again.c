/* Fits that are made again to judge a first one (psffit/again.h). */
#include "psffit/again.h"

#include <math.h>

#include "base/mem.h"
#include "psf/psf_math.h"
#include "psffit/compare.h"
#include "psffit/errors.h"

/* Stacked residuals of a bundle's spots over what noise makes of them. */
static double misfit_of(const spx_psffit_bundle *b)
{
    return b->of[0] > 0 ? b->misfit / sqrt(2 * b->of[0]) : 0;
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
static spx_status fit_again(const spx_psffit_maker *by, const spx_psffit_input *in, const spx_psffit_options *o,
                            double before, spx_psf *psf, spx_psffit *fit, int *taken, spx_err *e)
{
    spx_psf other = {0};
    spx_psffit trial = {0};
    spx_err why = {0};
    const spx_status st = by->fit(by->with, in, o, &other, &trial, &why);
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
} degrees[] = {{8, 1, 2, 0.75}, {8, 2, 3, 0.8}, {10, 1, 2, 0.75}, {6, 2, 3, 1}, {8, 2, 3, 0.75}};
/* So many are tried, the last of them where those before FIRST_TRIES and it gain nothing, as with fibres whose widths
 * scatter; and those that two halves of the exposures are asked about. */
enum { TRIES = 4, FIRST_TRIES = 1 };
static const size_t of_halves[] = {0, 4};

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

/* Fits one bundle with the options' degrees, without errors. *ok: 0 where it cannot be fitted. */
static spx_status fit_bundle(const spx_psffit_maker *by, const spx_psffit_input *in, const spx_psffit_options *o,
                             size_t bundle, spx_psf *psf, spx_psffit *fit, int *ok, spx_err *e)
{
    spx_psffit_options one = *o;
    spx_err why = {0};
    one.bundle_first = bundle;
    one.bundle_last = bundle + 1;
    one.want_model = 0;
    one.trial = 1;
    one.progress = NULL;
    const spx_status st = by->fit(by->with, in, &one, psf, fit, &why);
    *ok = st == SPX_OK && fit->bundle[bundle].fitted;
    return st == SPX_EIO ? spx_err_pass(e, &why) : SPX_OK;
}

/* What the options' degrees leave of the spots of a bundle, and the error of the PSF. */
typedef struct {
    double left, error;
} outcome;

/* Outcome of a trial with the options' degrees, which loses above `most`: that of its first stage then. */
static spx_status try_bundle(const spx_psffit_maker *by, const spx_psffit_input *in, const spx_psffit_options *o,
                             size_t bundle, double most, outcome *to, spx_err *e)
{
    spx_psf psf = {0};
    spx_psffit fit = {0};
    spx_psffit_options trial = *o;
    int ok;
    trial.hopeless = most;
    const spx_status st = fit_bundle(by, in, &trial, bundle, &psf, &fit, &ok, e);
    to->left = INFINITY; /* a bundle that such degrees cannot fit tells nothing */
    const int lost = !ok && fit.bundle != NULL && !fit.bundle[bundle].fitted;
    if ((ok || lost) && fit.bundle[bundle].of[0] > 0) {
        to->left = misfit_of(&fit.bundle[bundle]);
        to->error = fit.bundle[bundle].psf_error;
    }
    spx_psf_free(&psf);
    spx_psffit_free(&fit);
    return st;
}

/* The same of every second exposure, from `first` on. */
static spx_status fit_half(const spx_psffit_maker *by, const spx_psffit_input *in, const spx_psffit_options *o,
                           size_t bundle, size_t first, spx_psf *psf, spx_psffit *fit, int *ok, spx_err *e)
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
    const spx_status st = fit_bundle(by, &half, o, bundle, psf, fit, ok, e);
    spx_free(image);
    return st;
}

/* Fits of degrees to both halves of the exposures. */
typedef struct {
    int asked, told; /* told: both halves are fitted */
    spx_psf half[2];
    double core; /* what chi squared has above noise in the cores of the spots of each half, with the other's shape */
} halves;

static void free_halves(halves *h)
{
    spx_psf_free(&h->half[0]);
    spx_psf_free(&h->half[1]);
    *h = (halves){0};
}

/* Fits both halves of the exposures, side by side where that can be: the shape, too, into to->half, or traces and
 * fluxes with the shape that the other half has there, into to->core. */
static spx_status fit_halves(const spx_psffit_maker *by, const spx_psffit_input *in, const spx_psffit_options *o,
                             size_t bundle, int crossed, halves *to, spx_err *e)
{
    double core[2] = {0, 0};
    int ok[2] = {0, 0};
    spx_status st = SPX_OK;
#pragma omp parallel for schedule(static, 1) num_threads(by->at_once > 1 ? 2 : 1)
    for (size_t k = 0; k < 2; k++) {
        spx_psf psf = {0};
        spx_psffit fit = {0};
        spx_err mine = {0};
        spx_psffit_input from = *in;
        spx_psffit_options how = *o;
        if (crossed) {
            from.start = &to->half[1 - k];
            how.fix_shape = 1;
            how.hermite_width = 1; /* weights of both kinds are those of photons */
        }
        const spx_status did = fit_half(by, &from, &how, bundle, k, crossed ? &psf : &to->half[k], &fit, &ok[k], &mine);
        core[k] = ok[k] ? fit.bundle[bundle].core : 0;
        spx_psf_free(&psf);
        spx_psffit_free(&fit);
        if (did != SPX_OK) {
#pragma omp critical(spx_psffit_again)
            st = spx_err_pass(e, &mine);
        }
    }
    to->told = ok[0] && ok[1];
    to->core = core[0] + core[1];
    return st;
}

/* Cross-validation of degrees, once: how well the shape that each half of the exposures has predicts the other's spots.
 */
static spx_status ask_halves(const spx_psffit_maker *by, const spx_psffit_input *in, const spx_psffit_options *o,
                             size_t bundle, halves *to, spx_err *e)
{
    spx_status st = to->asked ? SPX_OK : fit_halves(by, in, o, bundle, 0, to, e);
    if (st == SPX_OK && !to->asked && to->told)
        st = fit_halves(by, in, o, bundle, 1, to, e);
    to->asked = 1;
    return st;
}

/* Stacked residuals of a bundle's spots with the options' degrees, without what misplaced spots leave: chi squared
 * above noise. */
static spx_status unlike_with(const spx_psffit_maker *by, const spx_psffit_input *in, const spx_psffit_options *o,
                              size_t bundle, double *unlike, int *ok, spx_err *e)
{
    spx_psf psf = {0};
    spx_psffit fit = {0};
    const spx_status st = fit_bundle(by, in, o, bundle, &psf, &fit, ok, e);
    *unlike = st == SPX_OK && *ok ? fit.bundle[bundle].unlike : 0;
    spx_psf_free(&psf);
    spx_psffit_free(&fit);
    return st;
}

/* Fall of chi squared of stacked residuals below which halves are not asked: those of the usual spots have -5 to -50,
 * others more than -20. */
#define ASKED (-20.0)

/* Fall of chi squared with degrees `more`, -INFINITY: it cannot be told. Residuals of all exposures, stacked, show what
 * all spots have, cross-validation what turns along the bundle, too; that has twice the noise of all exposures, which
 * is known by what halves differ by. usual: of the options' degrees, asked where they are not yet. */
static spx_status ask_degrees(const spx_psffit_maker *by, const spx_psffit_input *in, const spx_psffit_options *o,
                              const spx_psffit_options *more, size_t bundle, halves *usual, const spx_psf *psf,
                              const spx_psffit *fit, spx_psffit_agreement *found, double *fall, spx_err *e)
{
    const spx_psffit_bundle *b = &fit->bundle[bundle];
    halves other = {0};
    spx_psf *const kinds[2][2] = {{&usual->half[0], &usual->half[1]}, {&other.half[0], &other.half[1]}};
    double left = 0;
    int ok = 0;
    *fall = -INFINITY;
    spx_status st = unlike_with(by, in, more, bundle, &left, &ok, e);
    ok = ok && b->unlike - left > ASKED;
    if (st == SPX_OK && ok)
        st = ask_halves(by, in, o, bundle, usual, e);
    if (st == SPX_OK && ok && usual->told)
        st = ask_halves(by, in, more, bundle, &other, e);
    if (st == SPX_OK && other.told) {
        st = spx_psffit_agree(psf, kinds, fit, bundle, found, e);
        *fall = b->unlike - left + usual->core - other.core - (found->of_light[0] - found->of_light[1]) * b->of[1];
    }
    free_halves(&other);
    return st;
}

/* Spots may be off by less than residuals show for certain, or right in the mean, as those of optics whose coma turns
 * along a bundle: two halves of the exposures are asked. Of 27 pairs of arcs of such coma the fall of degrees 2,3 is 57
 * to 233, of 28 of the usual spots -1 and less. One exposure does not tell. */
static spx_status choose_by_halves(const spx_psffit_maker *by, const spx_psffit_input *in, spx_psffit_options *o,
                                   size_t whole, size_t saturated, double unlike, spx_psf *psf, spx_psffit *fit,
                                   spx_psffit_choice *out, spx_err *e)
{
    halves usual = {0};
    double won = 0;
    int taken = 0;
    spx_status st = SPX_OK;
    for (size_t n = 0; n < sizeof of_halves / sizeof *of_halves && st == SPX_OK; n++) {
        const size_t k = of_halves[n];
        spx_psffit_options more = *o;
        spx_psffit_agreement found = {0};
        double fall = 0;
        if (!lines_tell(k, whole, saturated))
            continue;
        set_degrees(k, &more);
        st = ask_degrees(by, in, o, &more, out->bundle, &usual, psf, fit, &found, &fall, e);
        if (st == SPX_OK && fall > won) {
            won = fall;
            out->off = sqrt(fmax(0, found.gain) + found.noise[0]);
            out->left = sqrt(found.noise[1]);
            out->best = more;
        }
    }
    free_halves(&usual);
    out->best.progress = NULL;
    if (st == SPX_OK && won > 0)
        st = fit_again(by, in, &out->best, unlike, psf, fit, &taken, e);
    if (st == SPX_OK && taken) {
        *o = out->best;
        out->what = SPX_PSFFIT_BY_HALVES;
    }
    return st;
}

/* Degrees are taken that leave less than this part of what spots are off by. */
#define HALF 0.5

/* Trials of degrees for a bundle whose spots are off by `was`. */
typedef struct {
    const spx_psffit_maker *by;
    const spx_psffit_input *in;
    const spx_psffit_options *o;
    size_t bundle, whole, saturated;
    double was;
    int made[TRIES];
    outcome found[TRIES];
} rivals;

/* Whether degrees are worth a trial, where others leave `left` of what the spots are off by. */
static int is_rival(const rivals *r, size_t k, double left)
{
    const double nearly = 0.9, alike = 0.05;
    /* so little is left of spots that are alike in all fibres but have wings that no degrees follow, and terms along
     * the fibres take these for a difference: a fibre at an end of its bundle, through a bad column, was 0.014 pixel
     * off */
    return lines_tell(k, r->whole, r->saturated) && !(k > FIRST_TRIES && left > nearly * r->was) &&
           !(degrees[k].fibre > 1 && left < alike * r->was);
}

/* Outcome of degrees k. A trial is one bundle, and has one thread: where two can be made at the same time, the other
 * one is that of the next degrees, if they may be asked for. */
static spx_status try_from(rivals *r, size_t k, double left, spx_err *e)
{
    size_t which[2], n = 0;
    spx_status st = SPX_OK;
    for (size_t i = k; i < TRIES && i < k + 2 && !r->made[k] && (i == k || r->by->at_once > 1); i++)
        if (is_rival(r, i, left) && !r->made[i])
            which[n++] = i;
#pragma omp parallel for schedule(static, 1) num_threads(n > 1 ? 2 : 1)
    for (size_t i = 0; i < n; i++) {
        spx_psffit_options o = *r->o;
        spx_err mine = {0};
        set_degrees(which[i], &o);
        const spx_status found = try_bundle(r->by, r->in, &o, r->bundle, HALF * r->was, &r->found[which[i]], &mine);
        r->made[which[i]] = 1;
        if (found != SPX_OK) {
#pragma omp critical(spx_psffit_again)
            st = spx_err_pass(e, &mine);
        }
    }
    return st;
}

spx_status spx_psffit_choose_degrees(const spx_psffit_maker *by, const spx_psffit_input *in, spx_psffit_options *o,
                                     spx_psf *psf, spx_psffit *fit, spx_psffit_choice *out, spx_err *e)
{
    const double unlike = 4, like = 2;
    *out = (spx_psffit_choice){.what = SPX_PSFFIT_USUAL, .best = *o};
    if (fit->nbundle == 0)
        return SPX_OK;
    out->bundle = worst_of(fit, unlike);
    const double was = misfit_of(&fit->bundle[out->bundle]);
    size_t whole = 0, saturated = 0;
    for (size_t i = 0; i < in->nexp; i++) {
        size_t used;
        const size_t lost = spx_psffit_count_saturated(&in->image[i], psf, fit, &used);
        whole = used - lost > whole ? used - lost : whole;
        saturated += lost;
    }
    if (!(was > unlike && unlike_of(&fit->bundle[out->bundle]) > unlike))
        return in->nexp > 1 ? choose_by_halves(by, in, o, whole, saturated, unlike, psf, fit, out, e) : SPX_OK;
    rivals r = {.by = by, .in = in, .o = o, .bundle = out->bundle, .whole = whole, .saturated = saturated, .was = was};
    double left = was;
    spx_status st = SPX_OK;
    out->off = fit->bundle[out->bundle].psf_error;
    out->all_told = saturated == 0;
    for (size_t k = 0; k < TRIES && st == SPX_OK && left > like; k++) {
        out->all_told &= lines_tell(k, whole, saturated);
        if (!is_rival(&r, k, left))
            continue;
        st = try_from(&r, k, left, e);
        if (st == SPX_OK && r.found[k].left < left) {
            left = r.found[k].left;
            out->left = r.found[k].error;
            set_degrees(k, &out->best);
        }
    }
    int taken = 0;
    out->best.progress = NULL;
    if (st == SPX_OK && left < HALF * was)
        st = fit_again(by, in, &out->best, was, psf, fit, &taken, e);
    out->what = taken ? SPX_PSFFIT_TAKEN : left < HALF * was ? SPX_PSFFIT_NOT_IN_ALL : SPX_PSFFIT_NONE_FITS;
    if (taken)
        *o = out->best;
    return st;
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
static spx_status rival_bundle(const spx_psffit_maker *by, const spx_psffit_input *in, const spx_psffit_options *o,
                               size_t bundle, spx_psf *psf, spx_psffit *fit, double *farthest, size_t *fibre,
                               spx_err *e)
{
    const double alike = 2; /* times the error of spots */
    spx_psf other = {0};
    spx_psffit trial = {0};
    double *room = NULL;
    int ok = 0;
    spx_status st = fit_bundle(by, in, o, bundle, &other, &trial, &ok, e);
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
 * usual: there, light of a wing in the next fibre's core may be that core's own. */
static spx_status doubt_bundles(const spx_psffit_maker *by, const spx_psffit_input *in, const spx_psffit_options *o,
                                spx_psf *psf, spx_psffit *fit, double *farthest, size_t *fibre, spx_err *e)
{
    const double unlike = 4;
    const int usual = o->hermite_degree <= 6 && o->hermite_width >= 1 && o->shape_degree_fibre <= 1;
    spx_psffit_options even = *o;
    size_t *of = spx_alloc2(fit->nbundle + 1, 2, sizeof *of, e), *which = of + fit->nbundle, n = 0;
    double *far = spx_alloc(fit->nbundle + 1, sizeof *far, e);
    spx_status st = of != NULL && far != NULL ? SPX_OK : SPX_EIO;
    even.shape_degree_fibre = 0;
    *fibre = 0;
    *farthest = 0;
    /* threads share out those that are fitted, not all */
    for (size_t k = 0; k < fit->nbundle && st == SPX_OK; k++) {
        const spx_psffit_bundle *b = &fit->bundle[k];
        if (b->fitted && b->nfibre > 1 && (!usual || misfit_of(b) > unlike))
            which[n++] = k;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(by->at_once > 0 ? by->at_once : 1)
    for (size_t k = 0; k < n; k++) {
        spx_err mine = {0};
        const spx_status found = rival_bundle(by, in, &even, which[k], psf, fit, &far[k], &of[k], &mine);
        if (found != SPX_OK) {
#pragma omp critical(spx_psffit_again)
            st = st == SPX_OK ? spx_err_pass(e, &mine) : st;
        }
    }
    for (size_t k = 0; k < n; k++) {
        *fibre = far[k] > *farthest ? of[k] : *fibre;
        *farthest = fmax(far[k], *farthest);
    }
    spx_free(of);
    spx_free(far);
    return st;
}

spx_status spx_psffit_doubt_places(const spx_psffit_maker *by, const spx_psffit_input *in, const spx_psffit_options *o,
                                   const spx_psffit_tail *tail, spx_psf *psf, spx_psffit *fit, double *farthest,
                                   size_t *fibre, spx_err *e)
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
        st = spx_psffit_without_tail(in, tail, o->nthreads, psf, fit, image, e);
    }
    if (st == SPX_OK)
        st = doubt_bundles(by, &cores, o, &bare, fit, farthest, fibre, e);
    spx_psffit_free_images(in->nexp, image);
    return st;
}
