/* Fit of traces and PSF to arcs: the camera (psffit/psffit.h). */
#include "psffit/psffit.h"

#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "num/blas.h"
#include "num/stat.h"
#include "psf/psf_math.h"
#include "psffit/fit.h"

/* Beyond the rows of the CCD, Angstrom: room for traces to move. */
#define MARGIN 20.0
/* Fibres with light that a bundle needs. */
enum { PLACES = 10, MOST_SIDE = 60, MOST_FIBRES = 1000, FIBRES = 25 };

spx_psffit_options spx_psffit_defaults(void)
{
    return (spx_psffit_options){.trace_degree = 6,
                                .hermite_degree = 6,
                                .hermite_width = 1,
                                .shape_degree_fibre = 1,
                                .shape_degree_wave = 2,
                                .hsizex = 8,
                                .hsizey = 5,
                                .bundle_last = (size_t)-1,
                                .shift_exposures = 1,
                                .max_iterations = 60,
                                .nthreads = 1};
}

/* ---- plan ---- */

/* Wavelengths of the start at the CCD's first and last row. */
static void range_of(const spx_psf *psf, size_t fibre, size_t height, double *lo, double *hi)
{
    const double wmin = psf->y.wmin, wmax = psf->y.wmax;
    for (int end = 0; end < 2; end++) {
        const double row = end ? (double)height - 0.5 : -0.5;
        double a = wmin, b = wmax;
        const double ya = spx_psf_series_value(&psf->y, fibre, a), yb = spx_psf_series_value(&psf->y, fibre, b);
        const int up = yb > ya;
        for (int k = 0; k < 50; k++) {
            const double mid = 0.5 * (a + b);
            if ((spx_psf_series_value(&psf->y, fibre, mid) < row) == up)
                a = mid;
            else
                b = mid;
        }
        *lo = fmin(*lo, 0.5 * (a + b));
        *hi = fmax(*hi, 0.5 * (a + b));
    }
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Variance without light of an image without read noise: that of pixels without signal, of whose 1/ivar nothing else is
 * part. */
static spx_status dark_of(const spx_image *im, double *dark, spx_err *e)
{
    enum { MOST = 100000 };
    const size_t n = im->ny * im->nx, step = n / MOST + 1;
    size_t have = 0;
    double *v = spx_alloc(n / step + 1, sizeof *v, e);
    if (v == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < n; k += step)
        if (im->mask[k] == 0 && im->ivar[k] > 0 && im->data[k] <= 0)
            v[have++] = 1.0 / im->ivar[k];
    *dark = have > 0 ? spx_median(v, have) : 0;
    if (have == 0) { /* no pixel is dark: the smallest variance of all */
        for (size_t k = 0; k < n; k += step)
            if (im->mask[k] == 0 && im->ivar[k] > 0)
                v[have++] = 1.0 / im->ivar[k];
        qsort(v, have, sizeof *v, by_value);
        *dark = have > 0 ? v[have / 100] : 0;
    }
    spx_free(v);
    return SPX_OK;
}

static spx_status make_plan(const spx_psffit_input *in, const spx_psffit_options *o, spx_pf_plan *p, double *dark,
                            spx_err *e)
{
    const spx_psf *psf = in->start;
    int deg = o->hermite_degree, hx = o->hsizex, hy = o->hsizey;
    if (o->fix_shape) {
        deg = psf->ghdegx > psf->ghdegy ? psf->ghdegx : psf->ghdegy;
        hx = psf->hsizex;
        hy = psf->hsizey;
    }
    if (o->trace_degree < 1 || o->trace_degree >= SPX_PF_MOST_TRACE || deg < 0 || deg > SPX_PF_MOST_HERMITE ||
        o->shape_degree_fibre < 0 || o->shape_degree_fibre >= SPX_PF_MOST_FIBRE || o->shape_degree_wave < 0 ||
        o->shape_degree_wave >= SPX_PF_MOST_WAVE || hx < 1 || hx > MOST_SIDE || hy < 1 || hy > MOST_SIDE ||
        !(o->hermite_width >= 0.5 && o->hermite_width <= 1))
        return spx_fail(
            e, SPX_EUSAGE,
            "degrees or sizes out of range: traces 1 to %d, Gauss-Hermite 0 to %d of 0.5 to 1 of the width, "
            "shape 0 to %d along fibres and 0 to %d along wavelengths, spots 1 to %d pixels",
            SPX_PF_MOST_TRACE - 1, SPX_PF_MOST_HERMITE, SPX_PF_MOST_FIBRE - 1, SPX_PF_MOST_WAVE - 1, MOST_SIDE);
    if (in->nexp == 0 || o->bundle_size > MOST_FIBRES)
        return spx_fail(e, SPX_EUSAGE, "no exposure, or bundles of %zu fibres", o->bundle_size);
    for (size_t x = 1; x < in->nexp; x++)
        if (in->image[x].ny != in->image[0].ny || in->image[x].nx != in->image[0].nx)
            return spx_fail(e, SPX_EINPUT, "exposure %zu has %zu x %zu pixels, the first one %zu x %zu", x + 1,
                            in->image[x].nx, in->image[x].ny, in->image[0].nx, in->image[0].ny);
    const size_t ny = in->image[0].ny, nx = in->image[0].nx;
    spx_status st = spx_psf_require(psf, 0, "the fit of PSFs",
                                    psf->type != SPX_PSF_GAUSS_HERMITE || psf->tilt >= 0
                                        ? "fit the shape, too, which begins with Gaussians then"
                                    : spx_psf_has_tail(psf) ? "give {tail} start, or fit"
                                                            : NULL,
                                    e);
    if (st != SPX_OK)
        return st;
    if ((psf->npix_x > 0 && psf->npix_x != nx) || (psf->npix_y > 0 && psf->npix_y != ny))
        return spx_fail_remedy(e, SPX_EINPUT, "give a PSF of this camera, or images that are binned like it",
                               "the image has %zu x %zu pixels, the PSF of {start} is for %zu x %zu", nx, ny,
                               psf->npix_x, psf->npix_y);
    *p = (spx_pf_plan){.deg = deg,
                       .narrow = deg < 2 ? 1 : o->hermite_width,
                       .norder = deg + 3,
                       .nc = (deg + 1) * (deg + 1),
                       .nq = o->fix_shape ? 0 : (deg + 1) * (deg + 1) + 1,
                       .hx = hx,
                       .hy = hy,
                       .nx = 2 * hx + 1,
                       .ny = 2 * hy + 1,
                       .ntr = o->trace_degree + 1,
                       .na = o->shape_degree_fibre + 1,
                       .nb = o->shape_degree_wave + 1,
                       .wmin = INFINITY,
                       .wmax = -INFINITY,
                       .height = ny,
                       .columns = nx,
                       .nexp = in->nexp,
                       .nshift = o->shift_exposures ? 2 * (in->nexp - 1) : 0,
                       .image = in->image,
                       .start = psf,
                       .moved = {in->moved[0], in->moved[1]},
                       .dark = dark,
                       .trial = o->trial,
                       .device = o->device};
    if (p->nb > p->ntr)
        return spx_fail(e, SPX_EUSAGE, "the shape's degree along wavelengths, %d, is above that of traces, %d",
                        p->nb - 1, p->ntr - 1);
    for (size_t i = 0; i < psf->nspec; i++)
        range_of(psf, i, ny, &p->wmin, &p->wmax);
    p->wmin -= MARGIN;
    p->wmax += MARGIN;
    for (size_t x = 0; x < in->nexp && st == SPX_OK; x++)
        st = in->image[x].readnoise == NULL ? dark_of(&in->image[x], &dark[x], e) : SPX_OK;
    return st;
}

/* ---- lines ---- */

/* Whether a wavelength lies on the CCD's rows, or within `beyond` rows of them, in any fibre of the start. */
static int is_on_ccd(const spx_pf_plan *p, double wave, double beyond)
{
    const double lo = p->wmin + MARGIN, hi = p->wmax - MARGIN, far = beyond * (hi - lo) / (double)p->height;
    return wave > lo - far && wave < hi + far;
}

/* Lines of which spots touch the CCD, in the camera's list. */
static spx_status take_lines(const spx_psffit_input *in, const spx_pf_plan *p, spx_pf_line **line, size_t *n,
                             spx_err *e)
{
    size_t inside = 0;
    *n = 0;
    if ((*line = spx_alloc(in->nline + 1, sizeof **line, e)) == NULL)
        return SPX_EIO;
    for (size_t l = 0; l < in->nline; l++)
        if (is_on_ccd(p, in->line[l].wavelength, p->hy + 1)) {
            inside += (size_t)is_on_ccd(p, in->line[l].wavelength, 0);
            (*line)[*n] =
                (spx_pf_line){.wave = in->line[l].wavelength, .listed = in->line[l].wavelength, .row = *n, .source = l};
            ++*n;
        }
    if (inside == 0)
        return spx_fail(e, SPX_EINPUT, "none of %zu lines of the list is on the CCD, %.0f to %.0f Angstrom", in->nline,
                        p->wmin + MARGIN, p->wmax - MARGIN);
    return SPX_OK;
}

/* ---- bundles ---- */

/* What is kept of a bundle from stage to stage. */
typedef struct {
    double *theta;
    spx_pf_model model;
    spx_pf_run run;
    spx_pf_line_news *news; /* [1 + nexp][camera's lines] (spx_pf_line_steps()) */
    spx_pf_light *light;
    size_t nlight;
    double *shift;             /* [nshift][2] value and variance */
    spx_psffit_bundle stacked; /* sums of a hopeless bundle's residuals (spx_pf_misfit()) */
    long crossing[2];          /* fibres whose traces meet, where the bundle failed; -1: none do */
} kept;

typedef struct {
    const spx_psffit_options *o;
    spx_pf_plan plan;
    size_t nbundle, nline;
    size_t *first; /* [nbundle + 1] first fibre of each bundle */
    spx_pf_line *line;
    kept *bundle;
    size_t nwrong; /* lines that seem wrong, but are so many that all stay; of nbright that are measured */
    size_t nbright;
    size_t nfound; /* lines that the list has not: the last rows */
    int changed;
    spx_psf *psf;
    spx_psffit *fit;
} camera;

static int begins_bundle(const spx_psf *p, const spx_psffit_options *o, size_t i)
{
    if (p->bundle != NULL && o->bundle_size == 0)
        return i == 0 || p->bundle[i] != p->bundle[i - 1];
    return i % (o->bundle_size > 0 ? o->bundle_size : FIBRES) == 0;
}

size_t spx_psffit_bundles(const spx_psf *start, const spx_psffit_options *o)
{
    size_t n = 0;
    for (size_t i = 0; i < start->nspec; i++)
        n += (size_t)begins_bundle(start, o, i);
    return n;
}

static size_t fibres_of(const camera *c, size_t number)
{
    return c->first[number + 1] - c->first[number];
}

/* Bundles of the start, where it says them, else of equal size. */
static spx_status divide(camera *c, spx_err *e)
{
    const spx_psf *p = c->plan.start;
    if ((c->first = spx_alloc(p->nspec + 1, sizeof *c->first, e)) == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < p->nspec; i++)
        if (begins_bundle(p, c->o, i))
            c->first[c->nbundle++] = i;
    c->first[c->nbundle] = p->nspec;
    for (size_t k = 0; k < c->nbundle; k++)
        if (fibres_of(c, k) > MOST_FIBRES)
            return spx_fail(e, SPX_EINPUT, "bundle %zu has %zu fibres: at most %d can be fitted together", k,
                            fibres_of(c, k), MOST_FIBRES);
    return SPX_OK;
}

static int is_asked_for(const camera *c, size_t number)
{
    return number >= c->o->bundle_first && number < c->o->bundle_last;
}

/* Parameters and model that stage 1 begins with. */
static spx_status keep(const spx_pf_bundle *b, kept *to, spx_err *e)
{
    const size_t n = spx_pf_nground(b);
    if ((to->theta = spx_alloc(b->ntheta, sizeof *to->theta, e)) == NULL ||
        (to->model.row = spx_alloc(b->nl, sizeof *to->model.row, e)) == NULL ||
        (to->model.flux = spx_alloc(b->nspot, sizeof *to->model.flux, e)) == NULL ||
        (to->model.coef = spx_alloc2(b->p->nexp, n, sizeof *to->model.coef, e)) == NULL)
        return SPX_EIO;
    memcpy(to->theta, b->now.theta, b->ntheta * sizeof *to->theta);
    memcpy(to->model.flux, b->now.flux, b->nspot * sizeof *to->model.flux);
    to->model.nl = b->nl;
    for (size_t l = 0; l < b->nl; l++)
        to->model.row[l] = b->line[l].row;
    for (size_t x = 0; x < b->p->nexp; x++)
        spx_pf_take_background(b, x, to->model.coef + x * n);
    return SPX_OK;
}

/* Traces alone have their result in stage 0, if lines stay as they are. */
static int has_one_stage(const camera *c)
{
    return c->plan.nq == 0 && !c->changed;
}

/* Fibres of a bundle whose traces cross, or come within a pixel of each other, on the CCD: which of them light is of
 * cannot be told, and equations may have no solution. -1: none do. */
static void find_crossing(const spx_pf_bundle *b, long pair[2])
{
    enum { STEPS = 32 };
    const spx_pf_plan *p = b->p;
    pair[0] = pair[1] = -1;
    for (size_t i = 0; i < b->nf; i++)
        for (size_t j = i + 1; j < b->nf && pair[0] < 0; j++) {
            double before = 0;
            for (size_t k = 0; k <= STEPS && pair[0] < 0; k++) {
                const double wave = p->wmin + (double)k / STEPS * (p->wmax - p->wmin);
                double x, y, other, row;
                spx_pf_place(b, b->now.theta, i, wave, &x, &y);
                spx_pf_place(b, b->now.theta, j, wave, &other, &row);
                if (!(y > -0.5 && y < (double)p->height - 0.5))
                    continue;
                if (fabs(other - x) < 1 || (other - x) * before < 0) {
                    pair[0] = (long)(b->fibre0 + i);
                    pair[1] = (long)(b->fibre0 + j);
                }
                before = other - x;
            }
        }
}

/* What a line's spots say with weights that know the uncertainty of the model. *ok 0: no solution. */
static spx_status weighed_lines(spx_pf_bundle *b, double epsilon, size_t nline, spx_pf_line_news *news, int *ok,
                                spx_err *e)
{
    spx_pf_weights(b, epsilon, 1);
    *ok = spx_pf_fluxes(b, &b->now) && (b->there == NULL || b->p->device->take_fluxes(b));
    return *ok ? spx_pf_line_steps(b, nline, news, e) : SPX_OK;
}

/* What the bundle says of lines. Where spots are of another shape than the model's, they are alike in all fibres, and a
 * mean of n spots of a line is off by as much as one: n times what the model's uncertainty adds to the variance, as
 * independent pixels add it. */
static spx_status ask_lines(spx_pf_bundle *b, size_t nline, kept *k, spx_err *e)
{
    const size_t nexp = b->p->nexp, n = (1 + nexp) * nline;
    spx_free(k->news);
    k->news = spx_alloc2(2 * (1 + nexp), nline, sizeof *k->news, e);
    if (k->news == NULL)
        return SPX_EIO;
    if (!(b->unsure > 0))
        return spx_pf_line_steps(b, nline, k->news, e);
    spx_pf_line_news *unsure = k->news + n;
    int ok = 0;
    spx_status st = weighed_lines(b, 0, nline, k->news, &ok, e);
    if (st == SPX_OK && ok)
        st = weighed_lines(b, b->unsure, nline, unsure, &ok, e);
    for (size_t i = 0; i < n && st == SPX_OK && ok; i++) {
        double spots = 0;
        for (size_t x = 0; x < nexp; x++)
            if (i < nline || i / nline == 1 + x)
                spots += k->news[(1 + x) * nline + i % nline].nbright;
        if (!(unsure[i].info > 0 && k->news[i].info > unsure[i].info))
            continue;
        const double photons = 1 / k->news[i].info;
        const double info = 1 / (photons + spots * (1 / unsure[i].info - photons));
        k->news[i].gradient = unsure[i].gradient * (info / unsure[i].info);
        k->news[i].info = info;
    }
    return st;
}

/* A bundle fails where the spots of stage 0 are so far from the light that stage 1 is not worth its time. */
static spx_status look_ahead(spx_pf_bundle *b, double hopeless, kept *k, spx_err *e)
{
    int ok = 0;
    const spx_status st = spx_pf_misfit(b, &k->stacked, &ok, e);
    if (st == SPX_OK && ok && k->stacked.misfit > hopeless * sqrt(2 * k->stacked.of[0]))
        k->run.failed = SPX_PF_HOPELESS;
    return st;
}

static spx_status do_bundle(camera *c, size_t number, int stage, spx_err *e)
{
    kept *k = &c->bundle[number];
    spx_pf_bundle b;
    const size_t first = c->first[number], nf = fibres_of(c, number);
    if (stage == 0 && (k->shift = spx_alloc2(c->plan.nshift + 1, 2, sizeof *k->shift, e)) == NULL)
        return SPX_EIO;
    spx_status st = spx_pf_open(&c->plan, first, nf, c->nline, c->line, stage > 0 ? k->theta : NULL, &b, e);
    if (st == SPX_OK && b.nl == 0)
        k->run.failed = SPX_PF_DARK;
    if (st == SPX_OK && !k->run.failed)
        st = spx_pf_passes(&b, stage > 0 ? &k->model : NULL, c->changed, c->o->max_iterations, &k->run, e);
    if (st == SPX_OK && !k->run.failed && stage == 0) {
        st = keep(&b, k, e);
        if (st == SPX_OK && c->o->hopeless > 0)
            st = look_ahead(&b, c->o->hopeless, k, e);
        if (st == SPX_OK && !k->run.failed)
            st = spx_pf_unlisted(&b, &k->light, &k->nlight, e);
    }
    if (st == SPX_OK && !k->run.failed && (stage == 1 || has_one_stage(c)))
        st = spx_pf_finish(&b, &k->run, number, k->shift, c->psf, c->fit, e);
    if (st == SPX_OK && !k->run.failed)
        st = ask_lines(&b, c->nline, k, e);
    if (st == SPX_OK && k->run.failed)
        find_crossing(&b, k->crossing);
    if (b.there != NULL) {
        spx_err device = {0};
        const spx_status ended = c->plan.device->end(&b, st == SPX_OK ? e : &device);
        st = st == SPX_OK ? ended : st;
    }
    spx_pf_close(&b);
    return st;
}

/* Bundles that are worked on at one time: one a thread; with a device, for which a thread waits most of the time, two,
 * but not more than there are. */
static int bundles_at_once(const camera *c)
{
    const int n = c->o->nthreads > 0 ? c->o->nthreads : 1;
    return c->plan.device == NULL || (size_t)n >= c->nbundle ? n : 2 * (size_t)n < c->nbundle ? 2 * n : (int)c->nbundle;
}

/* One stage of all bundles, which are independent. */
static spx_status do_stage(camera *c, int stage, spx_err *e)
{
    spx_status st = SPX_OK;
    const size_t lost = spx_mem_failures();
#pragma omp parallel for schedule(dynamic, 1) num_threads(bundles_at_once(c))
    for (size_t k = 0; k < c->nbundle; k++) {
        spx_err mine = {0};
        const spx_status found =
            is_asked_for(c, k) && !c->bundle[k].run.failed ? do_bundle(c, k, stage, &mine) : SPX_OK;
        spx_progress_step(c->o->progress, 1);
        if (found != SPX_OK) {
#pragma omp critical(spx_psffit_error)
            {
                if (st == SPX_OK)
                    st = spx_err_pass(e, &mine);
            }
        }
    }
    /* steps that find no solution without memory for it */
    return st == SPX_OK && spx_mem_failures() > lost ? spx_mem_fail(e) : st;
}

/* ---- what the bundles say of lines ---- */

/* A line is listed wrong when it is off by more errors than this, and by more than this many Angstrom. */
#define WRONG_ERRORS   5.0
#define WRONG_ANGSTROM 0.01
/* Where more than this part of the lines is, not they are wrong, but the medium of the list or the degree of traces. */
#define MOST_WRONG 0.3
/* And where more than this part is, traces are far from what they should be. */
#define REFUSED 0.6
/* Light of two bundles within this is one line, Angstrom. */
#define APART 0.4
/* A line that was found is given the name of a known one within this, Angstrom. */
#define NAMED 0.3

/* Wavelength of a line as all bundles measure it: difference from c->line[].wave, and its error; exposure 0: in all of
 * them together, 1 + x: in one. *power: sum of (S/N)^2, may be NULL. 0: too few fibres have it bright enough. */
static int measured(const camera *c, size_t line, size_t exposure, double *delta, double *error, double *power)
{
    double info = 0, sum = 0, all = 0;
    int bright = 0, seen = 0;
    for (size_t k = 0; k < c->nbundle; k++) {
        const spx_pf_line_news *n = c->bundle[k].news;
        if (n == NULL || c->bundle[k].run.failed)
            continue;
        n += exposure * c->nline + c->line[line].row;
        all += n->power;
        bright += n->nbright;
        seen += n->nseen;
        info += n->info;
        sum += n->gradient + n->info * n->offset;
    }
    if (!(info > 0) || 2 * bright < seen)
        return 0;
    *delta = sum / info;
    *error = 1 / sqrt(info);
    if (power != NULL)
        *power = all;
    return 1;
}

static int by_line(const void *a, const void *b)
{
    const double x = ((const spx_pf_line *)a)->wave, y = ((const spx_pf_line *)b)->wave;
    return (x > y) - (x < y);
}

/* Adds light that bundles found, once where several have it, as lines whose wavelength is free. Rows of the list stay.
 */
static spx_status add_lines(camera *c, spx_err *e)
{
    size_t most = 0, n = 0;
    for (size_t k = 0; k < c->nbundle; k++)
        most += c->bundle[k].nlight;
    spx_pf_light *all = spx_alloc(most + 1, sizeof *all, e);
    spx_pf_line *more = spx_alloc(c->nline + most + 1, sizeof *more, e);
    if (all == NULL || more == NULL) {
        spx_free(all);
        spx_free(more);
        return SPX_EIO;
    }
    for (size_t k = 0; k < c->nbundle; k++)
        for (size_t l = 0; l < c->bundle[k].nlight; l++) {
            const spx_pf_light *from = &c->bundle[k].light[l];
            size_t m = 0;
            while (m < n && fabs(all[m].wave - from->wave) > APART)
                m++;
            if (m < n) {
                const int both = all[m].nfibre + from->nfibre;
                all[m].wave += (from->wave - all[m].wave) * from->nfibre / both;
                all[m].nfibre = both;
            } else {
                all[n++] = *from;
            }
        }
    memcpy(more, c->line, c->nline * sizeof *more);
    for (size_t m = 0; m < n; m++)
        more[c->nline + m] = (spx_pf_line){
            .wave = all[m].wave, .listed = all[m].wave, .free = 1, .row = c->nline + m, .source = SIZE_MAX};
    spx_free(c->line);
    spx_free(all);
    c->line = more;
    c->nline += n;
    c->nfound = n;
    c->changed |= n > 0;
    return SPX_OK;
}

typedef struct {
    size_t line;
    double delta, error; /* measured minus listed, and its error */
    double alone;        /* what the other lines say of it: delta without the part that traces have taken */
    double ratio;        /* of that to its error */
} suspect;

/* Traces follow lines that are listed wrong, so all near by seem off. Of `alone` and its error by the others: residual
 * r of a polynomial of m terms, least squares with 1/error^2, and leverage h: alone = r / (1 - h), ratio =
 * r / (error sqrt(1 - h)). Returns the line with the largest ratio, n: none is wrong, or none can be judged, which
 * leaves them as they are. */
static size_t judge(const camera *c, size_t m, size_t n, suspect *s)
{
    enum { MOST = SPX_PF_MOST_TRACE };
    double a[MOST * MOST] = {0}, r[MOST] = {0}, term[MOST], q[MOST];
    size_t worst = n;
    for (size_t k = 0; k < n; k++) {
        const double w = 1 / (s[k].error * s[k].error);
        spx_legendre_basis(m, spx_pf_u(&c->plan, c->line[s[k].line].wave), term);
        for (size_t i = 0; i < m; i++) {
            r[i] += w * term[i] * s[k].delta;
            for (size_t j = 0; j < m; j++)
                a[i * m + j] += w * term[i] * term[j];
        }
    }
    const lapack_int size = (lapack_int)m;
    if (n < m + 2 || LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'L', size, a, size) != 0 ||
        LAPACKE_dpotrs(LAPACK_COL_MAJOR, 'L', size, 1, a, size, r, size) != 0)
        return n;
    for (size_t k = 0; k < n; k++) {
        double left = s[k].delta, leverage = 0;
        spx_legendre_basis(m, spx_pf_u(&c->plan, c->line[s[k].line].wave), term);
        memcpy(q, term, sizeof q);
        if (LAPACKE_dpotrs(LAPACK_COL_MAJOR, 'L', size, 1, a, size, q, size) != 0)
            return n;
        for (size_t i = 0; i < m; i++) {
            left -= term[i] * r[i];
            leverage += term[i] * q[i] / (s[k].error * s[k].error);
        }
        const double rest = fmax(1 - leverage, 1e-3);
        s[k].alone = left / rest;
        s[k].ratio = fabs(left) / (s[k].error * sqrt(rest));
        if (fabs(s[k].alone) > WRONG_ANGSTROM && (worst == n || s[k].ratio > s[worst].ratio))
            worst = k;
    }
    return worst < n && s[worst].ratio > WRONG_ERRORS ? worst : n;
}

/* Frees the wavelengths of lines that are listed wrong, the worst first, as long as they are few. */
static spx_status free_wrong(camera *c, spx_err *e)
{
    suspect *s = spx_alloc(c->nline, sizeof *s, e);
    suspect *wrong = spx_alloc(c->nline, sizeof *wrong, e);
    size_t n = 0, nwrong = 0;
    spx_status st = s != NULL && wrong != NULL ? SPX_OK : SPX_EIO;
    for (size_t l = 0; l < c->nline && st == SPX_OK; l++)
        if (measured(c, l, 0, &s[n].delta, &s[n].error, NULL))
            s[n++].line = l;
    const size_t all = n;
    for (size_t worst; st == SPX_OK && (worst = judge(c, (size_t)c->plan.ntr, n, s)) < n;) {
        wrong[nwrong++] = s[worst];
        s[worst] = s[--n];
    }
    c->nbright = all;
    if (nwrong > 1 && (double)nwrong > MOST_WRONG * (double)all)
        c->nwrong = nwrong;
    else
        for (size_t k = 0; k < nwrong; k++) {
            c->line[wrong[k].line].free = 1;
            c->line[wrong[k].line].wave += wrong[k].alone;
            c->changed = 1;
        }
    spx_free(s);
    spx_free(wrong);
    return st;
}

/* Lines whose wavelength is wrong leave the positions; light that is not listed joins the model. */
static spx_status look_at_lines(camera *c, spx_err *e)
{
    spx_status st = free_wrong(c, e);
    if (st == SPX_OK)
        st = add_lines(c, e);
    if (st == SPX_OK) /* bundles need them by wavelength */
        qsort(c->line, c->nline, sizeof *c->line, by_line);
    for (size_t l = 0, n = 0; l < c->nline && st == SPX_OK; l++)
        if (c->line[l].free)
            c->line[l].free = ++n;
    return st;
}

/* A line of a lamp is a spot where the other lines say: its shift since the start differs from theirs, and is
 * uncertain, by less than IN_PLACE of the width of a spot, or NOISE times what its light allows, width/(S/N). Peaks of
 * the sky, of stars or of a smooth lamp that the fit takes for lines are off by as much as it lets them, and smooth
 * light has no place. PLACE_FLOOR, of the width: lines count alike for where another should be, however bright. */
#define IN_PLACE    0.12
#define NOISE       3.0
#define PLACE_FLOOR 0.02
/* Of fewer lines nothing is said. Their shifts are a polynomial of as many terms as traces have, or more, because these
 * may be too few: a term for three lines, at most one for two. One in four may be a stray, the worst first, that says
 * nothing of where others should be. */
enum { FEWEST_PLACED = 3, LINES_A_TERM = 3, FEWEST_A_TERM = 2, LINES_A_STRAY = 4 };
/* Error of places, pixels, above which exposures without bright lines are no arcs. */
#define UNCERTAIN 0.5

/* Width of spots of the start in the middle of the bundles that are fitted, and rows an Angstrom. A start that a trial
 * has made has no shape in others. */
static double width_at(const camera *c, double wave, double *slope)
{
    const spx_pf_plan *p = &c->plan;
    const double h = 1e-4 * (p->wmax - p->wmin);
    size_t first = p->start->nspec, end = 0;
    for (size_t k = 0; k < c->nbundle; k++)
        if (is_asked_for(c, k)) {
            first = c->first[k] < first ? c->first[k] : first;
            end = c->first[k] + fibres_of(c, k) > end ? c->first[k] + fibres_of(c, k) : end;
        }
    const size_t fibre = (first + end) / 2;
    double sigx, sigy, shape[SPX_PF_MOST_LOCAL];
    spx_pf_shape_start(p, fibre, wave, &sigx, &sigy, shape);
    const double rows =
        spx_psf_series_value(&p->start->y, fibre, wave + h) - spx_psf_series_value(&p->start->y, fibre, wave - h);
    *slope = copysign(fmax(fabs(rows), 1e-9), rows) / (2 * h);
    return sigy / fabs(*slope);
}

/* By how many rows the traces of living fibres have moved since the start: mean. */
static double motion_at(const camera *c, double wave)
{
    double sum = 0, n = 0;
    for (size_t i = 0; i < c->fit->nspec; i++)
        if (!(c->fit->fibre[i].status & (SPX_PSF_DEAD | SPX_PSF_BUNDLE))) {
            sum += spx_psf_series_value(&c->psf->y, i, wave) - spx_psf_series_value(&c->plan.start->y, i, wave);
            n++;
        }
    return n > 0 ? sum / n : 0;
}

/* Terms of the polynomial that shifts of n lines are. */
static size_t terms_of(const camera *c, size_t n)
{
    const size_t ntr = (size_t)c->plan.ntr,
                 most = n / FEWEST_A_TERM < SPX_PF_MOST_TRACE ? n / FEWEST_A_TERM : SPX_PF_MOST_TRACE;
    const size_t m = n / LINES_A_TERM > ntr ? n / LINES_A_TERM : ntr;
    return m < most ? m : most;
}

/* Lines of one exposure that are bright enough to be measured, and those of them that are in place, which are marked in
 * there[nline]. */
static void count_placed(const camera *c, const spx_psffit_input *in, size_t exposure, suspect *s, double *allowed,
                         int *there, size_t *seen, size_t *placed)
{
    size_t n = 0;
    for (size_t l = 0; l < c->nline; l++) {
        double delta, error, power, slope;
        if (c->line[l].source >= in->nline || !measured(c, l, 1 + exposure, &delta, &error, &power))
            continue;
        const double wave = c->line[l].listed, width = width_at(c, wave, &slope);
        delta += c->line[l].wave - wave;
        s[n] = (suspect){.line = l,
                         .delta = delta + motion_at(c, wave) / slope,
                         .error = hypot(error, PLACE_FLOOR * width),
                         .alone = delta};
        allowed[l] = width * fmax(IN_PLACE, NOISE / sqrt(power));
        n++;
    }
    *seen = n;
    /* a faint line in a bright one's wings, which spots of another shape move, would move the places of all */
    const size_t fewest = n - n / LINES_A_STRAY;
    for (size_t worst = n; n > 0 && (worst = judge(c, terms_of(c, n), n, s)) < n && n > fewest;)
        s[worst] = s[--n];
    *placed = 0;
    for (size_t k = 0; k < n; k++) {
        const int is_placed = hypot(s[k].alone, s[k].error) < allowed[s[k].line];
        *placed += (size_t)is_placed;
        there[s[k].line] = there[s[k].line] || is_placed;
    }
}

/* For exposures whose lines are not where they should be. */
static const char remedy[] =
    "give exposures of arc lamps, and if it is one, name its lamps ({lamps}) or lines ({lines}), "
    "see whether the PSF to start from is of this camera, or raise {trace_degree}";

/* Traces that leave most bright lines where others say that they are not: of too low a degree, or of other lines. */
static spx_status refuse_traces(const camera *c, size_t placed, spx_err *e)
{
    return spx_fail_remedy(e, SPX_EINPUT, remedy, "of %zu bright lines only %zu are where lines should be", c->nbright,
                           placed);
}

static spx_status see_traces(const camera *c, spx_err *e)
{
    const int refused = c->nbright >= FEWEST_PLACED && (double)c->nwrong > REFUSED * (double)c->nbright;
    return refused ? refuse_traces(c, c->nbright - c->nwrong, e) : SPX_OK;
}

typedef struct {
    size_t seen, placed; /* bright lines, and those of them in place */
} lamps_of;

/* Error of the places of spots along the rows: median of the fibres that were fitted. SPX_EIO: memory. */
static spx_status place_error(const camera *c, double *error, spx_err *e)
{
    double *some = spx_alloc(c->fit->nspec + 1, sizeof *some, e);
    size_t n = 0;
    for (size_t i = 0; i < c->fit->nspec && some != NULL; i++)
        if (!(c->fit->fibre[i].status & (SPX_PSF_DEAD | SPX_PSF_BUNDLE)))
            some[n++] = c->fit->fibre[i].y_error;
    *error = some != NULL ? spx_median(some, n) : 0;
    const spx_status st = some != NULL ? SPX_OK : SPX_EIO;
    spx_free(some);
    return st;
}

/* Refuses an exposure in which half of what seem to be bright lines, or more, are not in place; one that has none in
 * place, however few it has, beside another that certainly is an arc; and exposures with too few to tell that leave
 * places uncertain by UNCERTAIN pixels. Refuses traces, too, of which many lines are off, and that end with no more
 * than half of the bright ones in place: the light of others was taken for lines that are not listed. */
static spx_status find_lamps(const camera *c, const spx_psffit_input *in, spx_err *e)
{
    suspect *s = spx_alloc(c->nline, sizeof *s, e);
    double *allowed = spx_alloc(c->nline, sizeof *allowed, e);
    lamps_of *lamps = spx_alloc(in->nexp, sizeof *lamps, e);
    int *there = spx_alloc(c->nline, sizeof *there, e);
    size_t placed = 0;
    spx_status st = s != NULL && allowed != NULL && lamps != NULL && there != NULL ? SPX_OK : SPX_EIO;
    int arc = 0;
    double error = 0;
    if (st == SPX_OK)
        st = place_error(c, &error, e);
    for (size_t x = 0; x < in->nexp && st == SPX_OK; x++) {
        count_placed(c, in, x, s, allowed, there, &lamps[x].seen, &lamps[x].placed);
        arc |= lamps[x].placed >= FEWEST_PLACED && 2 * lamps[x].placed > lamps[x].seen;
    }
    for (size_t x = 0; x < in->nexp && st == SPX_OK; x++) {
        const char *name = in->name != NULL ? in->name[x] : NULL;
        if (arc && lamps[x].seen == 0)
            st = spx_fail_at(e, SPX_EINPUT, name, "/image/data", remedy,
                             "shows no lamp lines: none is bright enough to be measured");
        else if (!arc && lamps[x].seen < FEWEST_PLACED && error > UNCERTAIN)
            st = spx_fail_at(e, SPX_EINPUT, name, "/image/data", remedy,
                             "shows no lamp lines: %zu are bright, and places are uncertain by %.1f pixels",
                             lamps[x].seen, error);
        else if ((lamps[x].seen >= FEWEST_PLACED && 2 * lamps[x].placed <= lamps[x].seen) ||
                 (arc && lamps[x].placed == 0))
            st = spx_fail_at(e, SPX_EINPUT, name, "/image/data", remedy,
                             "shows no lamp lines: of %zu bright peaks near listed wavelengths only %zu are where "
                             "lines should be",
                             lamps[x].seen, lamps[x].placed);
    }
    for (size_t l = 0; l < c->nline && st == SPX_OK; l++)
        placed += (size_t)there[l];
    if (st == SPX_OK && c->nwrong > 0 && c->nbright >= FEWEST_PLACED && 2 * placed <= c->nbright)
        st = refuse_traces(c, placed, e);
    spx_free(s);
    spx_free(allowed);
    spx_free(lamps);
    spx_free(there);
    return st;
}

/* ---- result ---- */

static spx_status new_fit(const camera *c, spx_psffit *f, spx_err *e)
{
    const spx_pf_plan *p = &c->plan;
    f->nspec = p->start->nspec;
    f->nbundle = c->nbundle;
    f->nexp = p->nexp;
    f->nline = c->nline;
    f->nunlisted = c->nfound;
    f->ndisagree = c->nwrong;
    f->ntrace = 2 * (size_t)p->ntr;
    f->nshape = (size_t)(p->na * p->nb * p->nq);
    f->nplace = PLACES;
    f->ny = p->height;
    f->nx = p->columns;
    const size_t npix = f->nexp * f->ny;
    if ((f->fibre = spx_alloc(f->nspec, sizeof *f->fibre, e)) == NULL ||
        (f->line = spx_alloc(f->nline, sizeof *f->line, e)) == NULL ||
        (f->bundle = spx_alloc(f->nbundle, sizeof *f->bundle, e)) == NULL ||
        (f->shift = spx_alloc2(f->nexp, 2, sizeof *f->shift, e)) == NULL ||
        (f->shift_error = spx_alloc2(f->nexp, 2, sizeof *f->shift_error, e)) == NULL ||
        (f->flux = spx_alloc2(f->nexp * f->nspec, f->nline, sizeof *f->flux, e)) == NULL ||
        (f->flux_ivar = spx_alloc2(f->nexp * f->nspec, f->nline, sizeof *f->flux_ivar, e)) == NULL ||
        (f->cov_trace = spx_alloc2(f->nspec * f->ntrace, f->ntrace, sizeof *f->cov_trace, e)) == NULL ||
        (f->cov_shape = spx_alloc2(f->nbundle * f->nshape, f->nshape, sizeof *f->cov_shape, e)) == NULL ||
        (f->place = spx_alloc(f->nplace, sizeof *f->place, e)) == NULL ||
        (f->x_error = spx_alloc2(f->nspec, f->nplace, sizeof *f->x_error, e)) == NULL ||
        (f->y_error = spx_alloc2(f->nspec, f->nplace, sizeof *f->y_error, e)) == NULL ||
        (c->o->want_model && ((f->model = spx_alloc2(npix, f->nx, sizeof *f->model, e)) == NULL ||
                              (f->chi = spx_alloc2(npix, f->nx, sizeof *f->chi, e)) == NULL)))
        return SPX_EIO;
    double lo = INFINITY, hi = -INFINITY;
    for (size_t l = 0; l < c->nline; l++)
        if (is_on_ccd(p, c->line[l].wave, 0)) {
            lo = fmin(lo, c->line[l].wave);
            hi = fmax(hi, c->line[l].wave);
        }
    for (size_t k = 0; k < PLACES; k++)
        f->place[k] = lo + (hi - lo) * (double)k / (PLACES - 1);
    return SPX_OK;
}

/* Results of a stage, in the place of those of the stage before. */
static spx_status new_results(const camera *c, spx_err *e)
{
    spx_psf_free(c->psf);
    spx_psffit_free(c->fit);
    const spx_status st = spx_pf_new_psf(&c->plan, c->psf, e);
    return st == SPX_OK ? new_fit(c, c->fit, e) : st;
}

/* Element of the nearest known line, where one is near enough. */
static void name_line(size_t n, const spx_arc_line *known, double wave, char *element)
{
    double best = NAMED;
    for (size_t k = 0; k < n; k++)
        if (fabs(known[k].wavelength - wave) < best) {
            best = fabs(known[k].wavelength - wave);
            memcpy(element, known[k].element, sizeof known[k].element);
        }
}

static spx_status finish_lines(const camera *c, const spx_psffit_input *in, spx_err *e)
{
    spx_psffit *f = c->fit;
    spx_arc_line *known = NULL;
    size_t nknown = 0;
    spx_status st = spx_arc_lines(SPX_LAMP_EVERY, &known, &nknown, e);
    if (st != SPX_OK)
        return st;
    double *flux = spx_alloc2(2 * f->nexp, f->nspec, sizeof *flux, e), *sn;
    if (flux == NULL) {
        spx_free(known);
        return SPX_EIO;
    }
    sn = flux + f->nexp * f->nspec;
    for (size_t l = 0; l < c->nline; l++) {
        const spx_pf_line *from = &c->line[l];
        spx_psffit_row *to = &f->line[from->row];
        size_t n = 0;
        to->wavelength = from->listed;
        to->used = !from->free;
        to->listed = from->source < in->nline;
        double delta, error;
        if (measured(c, l, 0, &delta, &error, NULL)) {
            to->delta = delta + from->wave - from->listed;
            to->delta_error = error;
        }
        if (from->source < in->nline)
            memcpy(to->element, in->line[from->source].element, sizeof in->line[from->source].element);
        else
            name_line(nknown, known, from->wave, to->element);
        for (size_t i = 0; i < f->nspec; i++) {
            double best = 0;
            for (size_t x = 0; x < f->nexp; x++) {
                const size_t k = (x * f->nspec + i) * f->nline + from->row;
                if (!(f->flux_ivar[k] > 0))
                    continue;
                flux[n] = f->flux[k];
                sn[n] = f->flux[k] * sqrt(f->flux_ivar[k]);
                best = fmax(best, sn[n++]);
            }
            to->nfibre += best > 10;
        }
        to->flux = spx_median(flux, n);
        to->sn = spx_median(sn, n);
    }
    spx_free(flux);
    spx_free(known);
    return SPX_OK;
}

/* Bundles that were not fitted are moved as the mean of the nearest fitted ones on either side, or as the start was;
 * those that were not asked for stay where they were. */
static spx_status finish_bundles(camera *c, size_t *nfitted, spx_err *e)
{
    spx_psffit *f = c->fit;
    spx_status st = SPX_OK;
    *nfitted = 0;
    for (size_t k = 0; k < c->nbundle; k++)
        *nfitted += f->bundle[k].fitted != 0;
    for (size_t k = 0; k < c->nbundle && st == SPX_OK; k++) {
        double shift[2] = {0, 0};
        const int asked = is_asked_for(c, k);
        int n = 0;
        if (f->bundle[k].fitted)
            continue;
        for (int side = -1; side <= 1 && asked; side += 2)
            for (long m = (long)k + side; m >= 0 && m < (long)c->nbundle; m += side)
                if (f->bundle[m].fitted) {
                    double sum[2] = {0, 0};
                    const size_t nf = fibres_of(c, (size_t)m), first = c->first[m];
                    for (size_t i = first; i < first + nf; i++) {
                        sum[0] += f->fibre[i].x_shift;
                        sum[1] += f->fibre[i].y_shift;
                    }
                    shift[0] += sum[0] / (double)nf;
                    shift[1] += sum[1] / (double)nf;
                    n++;
                    break;
                }
        for (int y = 0; y < 2 && asked; y++)
            shift[y] = n > 0 ? shift[y] / n : c->plan.moved[y];
        st = spx_pf_keep_start(&c->plan, k, c->first[k], fibres_of(c, k), shift[0], shift[1], c->psf, f, e);
        if (c->bundle[k].run.failed == SPX_PF_HOPELESS) {
            f->bundle[k].misfit = c->bundle[k].stacked.misfit;
            memcpy(f->bundle[k].of, c->bundle[k].stacked.of, sizeof f->bundle[k].of);
        }
    }
    return st;
}

/* Shifts of exposures: means of the bundles, by their errors. */
static void finish_shifts(const camera *c)
{
    for (size_t k = 0; k < c->plan.nshift; k++) {
        double sum = 0, weight = 0;
        for (size_t b = 0; b < c->nbundle; b++)
            if (c->fit->bundle[b].fitted && c->bundle[b].shift[2 * k + 1] > 0) {
                sum += c->bundle[b].shift[2 * k] / c->bundle[b].shift[2 * k + 1];
                weight += 1 / c->bundle[b].shift[2 * k + 1];
            }
        c->fit->shift[2 + k] = weight > 0 ? sum / weight : 0;
        c->fit->shift_error[2 + k] = weight > 0 ? 1 / sqrt(weight) : 0;
    }
}

/* A bundle without light says nothing. */
static void drop_dark(camera *c)
{
    for (size_t k = 0; k < c->nbundle; k++) {
        spx_psffit_bundle *b = &c->fit->bundle[k];
        const size_t nf = fibres_of(c, k), least = nf < SPX_PF_FEWEST_ALIVE ? nf : SPX_PF_FEWEST_ALIVE;
        if (b->fitted && ((size_t)b->alive < least || b->alive == 0))
            b->fitted = 0;
    }
}

/* Flags, ranges and bundles of traces, and the error of the PSF, from the fit's tables. */
static spx_status finish_psf(const camera *c, spx_err *e)
{
    spx_psf *p = c->psf;
    const spx_psffit *f = c->fit;
    if (p->status == NULL)
        p->status = spx_alloc(p->nspec, sizeof *p->status, e);
    if (p->valid_range == NULL)
        p->valid_range = spx_alloc2(p->nspec, 2, sizeof *p->valid_range, e);
    if (p->bundle == NULL)
        p->bundle = spx_alloc(p->nspec, sizeof *p->bundle, e);
    if (p->status == NULL || p->valid_range == NULL || p->bundle == NULL)
        return SPX_EIO;
    double misfit = 0, of[2] = {0, 0};
    for (size_t k = 0; k < f->nbundle; k++)
        if (f->bundle[k].fitted) {
            misfit += f->bundle[k].misfit;
            of[0] += f->bundle[k].of[0];
            of[1] += f->bundle[k].of[1];
        }
    if (of[1] > 0)
        p->psferr = spx_pf_psf_error(misfit, of);
    for (size_t i = 0; i < p->nspec; i++) {
        p->status[i] = (uint16_t)f->fibre[i].status;
        p->bundle[i] = f->fibre[i].bundle;
        p->valid_range[2 * i] = f->fibre[i].valid_min;
        p->valid_range[2 * i + 1] = f->fibre[i].valid_max;
    }
    return SPX_OK;
}

static spx_status flag_bad(spx_psffit *f, spx_err *e)
{
    double *chi2 = spx_alloc(f->nspec, sizeof *chi2, e);
    size_t n = 0;
    if (chi2 == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < f->nspec; i++)
        if (f->fibre[i].npix > 0)
            chi2[n++] = f->fibre[i].chi2;
    const double median = spx_median(chi2, n);
    for (size_t i = 0; i < f->nspec; i++)
        if (f->fibre[i].chi2 > 2 || (n > 0 && f->fibre[i].chi2 > 3 * median))
            f->fibre[i].status |= SPX_PSF_BADFIT;
    spx_free(chi2);
    return SPX_OK;
}

/* The error of a camera of which no bundle was fitted. */
static spx_status say_why(const camera *c, spx_err *e)
{
    static const char fewer[] =
        "see whether {start} is of this camera, lower {trace_degree}, or name the lamps that were on ({lamps})";
    const kept *unsolved = NULL, *crossed = NULL;
    for (size_t k = c->nbundle; k-- > 0;) {
        unsolved = c->bundle[k].run.failed == SPX_PF_UNSOLVED ? &c->bundle[k] : unsolved;
        crossed = c->bundle[k].run.failed && c->bundle[k].crossing[0] >= 0 ? &c->bundle[k] : crossed;
    }
    if (crossed != NULL)
        return spx_fail_remedy(
            e, SPX_ENO, fewer,
            "no bundle could be fitted: traces of fibres %ld and %ld meet on the CCD, and light cannot "
            "be told apart there",
            crossed->crossing[0], crossed->crossing[1]);
    if (unsolved != NULL)
        return spx_fail_remedy(e, SPX_ENO, fewer, "no bundle could be fitted: equations of bundle %zu have no solution",
                               (size_t)(unsolved - c->bundle));
    return spx_fail_remedy(e, SPX_ENO,
                           "see whether the lamps were on and are those of the list ({lamps}, {lines}), whether "
                           "{start} is of this camera, or raise {trace_degree}",
                           "no bundle could be fitted: fibres need four lines with S/N above 5, near their places");
}

spx_status spx_psffit_make(const spx_psffit_input *in, const spx_psffit_options *o, spx_psf *psf, spx_psffit *fit,
                           spx_err *e)
{
    camera c = {.o = o, .psf = psf, .fit = fit};
    size_t nfitted = 0;
    double *dark = spx_alloc(in->nexp, sizeof *dark, e);
    spx_status st = dark != NULL ? make_plan(in, o, &c.plan, dark, e) : SPX_EIO;
    if (st == SPX_OK)
        st = take_lines(in, &c.plan, &c.line, &c.nline, e);
    if (st == SPX_OK)
        st = divide(&c, e);
    if (st == SPX_OK) {
        if ((c.bundle = spx_alloc(c.nbundle, sizeof *c.bundle, e)) == NULL)
            st = SPX_EIO;
    }
    if (st == SPX_OK && (o->bundle_first >= c.nbundle || o->bundle_last <= o->bundle_first))
        st = spx_fail(e, SPX_EUSAGE, "no bundle in that range: there are %zu, counted from 0", c.nbundle);
    if (st == SPX_OK && has_one_stage(&c))
        st = new_results(&c, e);
    if (st == SPX_OK && o->device != NULL)
        o->device->begin_fit(o->device);
    if (st == SPX_OK)
        st = do_stage(&c, 0, e);
    if (st == SPX_OK)
        st = look_at_lines(&c, e);
    if (st == SPX_OK)
        st = see_traces(&c, e);
    if (st == SPX_OK && !has_one_stage(&c)) {
        st = new_results(&c, e);
        if (st == SPX_OK)
            st = do_stage(&c, 1, e);
    } else if (st == SPX_OK) {
        fit->ndisagree = c.nwrong;
        spx_progress_step(o->progress, c.nbundle);
    }
    if (st == SPX_OK) {
        drop_dark(&c);
        st = finish_bundles(&c, &nfitted, e);
        finish_shifts(&c);
    }
    if (st == SPX_OK && nfitted == 0)
        st = say_why(&c, e);
    if (st == SPX_OK)
        st = find_lamps(&c, in, e);
    if (st == SPX_OK)
        st = finish_lines(&c, in, e);
    if (st == SPX_OK)
        st = flag_bad(fit, e);
    if (st == SPX_OK)
        st = finish_psf(&c, e);
    for (size_t k = 0; c.bundle != NULL && k < c.nbundle; k++) {
        spx_free(c.bundle[k].theta);
        spx_free(c.bundle[k].model.row);
        spx_free(c.bundle[k].model.flux);
        spx_free(c.bundle[k].model.coef);
        spx_free(c.bundle[k].news);
        spx_free(c.bundle[k].light);
        spx_free(c.bundle[k].shift);
    }
    spx_free(c.bundle);
    spx_free(c.first);
    spx_free(c.line);
    spx_free(dark);
    return st;
}
