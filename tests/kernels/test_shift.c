/* Checks shifts and widths across traces (shift/shift.h): PSFs that are wrong by a known motion, on simulated exposures
 * with sky and stars. Fixed seeds.
 *
 * Accuracy: what single windows say, against the truth, in units of its error: median within 3 statistical errors of 0,
 * 1.4826 MAD within 0.2 of 1, which are 3 such errors for 400 windows. The smooth functions: 0.003 pixel rms over
 * fibres and wavelengths, as the design of the calibration asks for. */
#include "shift_scene.h"

#include "extract/extract.h"
#include "num/stat.h"
#include "psf/psf_math.h"
#include "psf/spot_math.h"
#include "shift/spots.h"
#include "shift/zero_point.h"
#include "sky/sky.h"
#include "spectral/lines.h"

enum { NSPEC = 50, NWINDOW = 4 };
static const double WMIN = 8250, WMAX = 8950;

static spx_shift_options options(void)
{
    return (spx_shift_options){.wmin = WMIN,
                               .wmax = WMAX,
                               .dw = 0.8,
                               .bundle_size = 25,
                               .nwindow = NWINDOW,
                               .window = 120,
                               .degree_wave = 1,
                               .degree_fibre = 7,
                               .width = 1};
}

/* Median and 1.4826 MAD of v[n], which is destroyed. */
static void spread(size_t n, double *v, double *median, double *mad)
{
    double *copy = spx_alloc(n, sizeof *copy, NULL);
    memcpy(copy, v, n * sizeof *copy);
    *median = spx_median(copy, n);
    for (size_t i = 0; i < n; i++)
        copy[i] = fabs(v[i] - *median);
    *mad = 1.4826 * spx_median(copy, n);
    spx_free(copy);
}

static void check_windows(const char *what, const shift_motion *m, const spx_shift *s)
{
    double *pull[2], median, mad;
    size_t n = 0;
    pull[0] = spx_alloc(NSPEC * NWINDOW, sizeof(double), NULL);
    pull[1] = spx_alloc(NSPEC * NWINDOW, sizeof(double), NULL);
    for (size_t i = 0; i < NSPEC * NWINDOW; i++) {
        double at[3];
        if (s->window_dx_error[i] > 0.1)
            continue;
        shift_true_motion(m, NSPEC, i / NWINDOW, 2 * (s->window_wavelength[i] - WMIN) / (WMAX - WMIN) - 1, at);
        pull[0][n] = (s->window_dx[i] - at[0]) / s->window_dx_error[i];
        pull[1][n++] = (s->window_width_x[i] - at[2]) / s->window_width_x_error[i];
    }
    CHECK(n > 150, "%s: %zu windows with light", what, n);
    for (int q = 0; q < 2; q++) {
        spread(n, pull[q], &median, &mad);
        CHECK(fabs(median) < 3 * 1.2533 / sqrt((double)n) && fabs(mad - 1) < 0.25,
              "%s: %s of %zu windows: pulls %.3f, %.3f", what, q ? "widths" : "shifts", n, median, mad);
        spx_free(pull[q]);
    }
}

/* As shift_on_cpu(), with a third of the information: steps are three times too long. */
static spx_status too_far(void *ctx, const spx_image *image, const spx_psf *psf, const spx_motion_options *o,
                          spx_motion_row *row, spx_motion_fit *fit, spx_err *e)
{
    const spx_status st = shift_on_cpu(ctx, image, psf, o, row, fit, e);
    for (size_t i = 0; i < o->nwindow * psf->nspec; i++) {
        for (int k = 0; k < 3; k++)
            row[i].fisher[k] /= 3;
        for (int k = 0; k < 4; k++)
            row[i].next[k] /= 3;
    }
    return st;
}

/* Steps that raise chi^2 are halved: what is measured is the same. */
static void check_halving(const shift_scene *scene)
{
    const shift_motion m = {.constant_x = 0.05};
    spx_shift_options o = options();
    spx_psf psf = {0};
    spx_shift s = {0};
    spx_err e = {0};
    double worst = 0;
    o.width = 0;
    shift_psf_before(scene, &m, &psf);
    CHECK(spx_shift_across(too_far, NULL, &scene->image, &psf, &o, &s, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (size_t i = 0; i < NSPEC * SPX_SHIFT_PLACES && s.dx != NULL; i++)
        worst = fmax(worst, fabs(s.dx[i] - 0.05));
    printf("steps too long: wrong by %.4f at most, %d steps, chi2 %.4f to %.4f\n", worst, s.steps,
           s.chi2_before / s.dof, s.chi2_after / s.dof);
    CHECK(worst < 0.02 && s.steps > 2, "steps that are too long: wrong by %.4f pixel", worst);
    spx_shift_free(&s);
    spx_psf_free(&psf);
}

/* Measures the motion m of the scene; rms errors over fibres first ... last-1 and wavelengths must be within the
 * tolerances. */
static void check_motion(const char *what, const shift_scene *scene, const shift_motion *m, const spx_shift_options *o,
                         size_t first, size_t last, double tolerance_x, double tolerance_width)
{
    spx_psf psf = {0};
    spx_shift s = {0};
    spx_err e = {0};
    shift_psf_before(scene, m, &psf);
    CHECK(spx_shift_across(shift_on_cpu, NULL, &scene->image, &psf, o, &s, &e) == SPX_OK, "%s: %s", what,
          spx_err_text(&e));
    if (s.dx != NULL) {
        double x2 = 0, w2 = 0, left2 = 0, pull2 = 0;
        size_t n = 0;
        for (size_t f = first; f < last; f++)
            for (size_t k = 0; k < SPX_SHIFT_PLACES; k++) {
                const size_t i = f * SPX_SHIFT_PLACES + k;
                double at[3];
                shift_true_motion(m, NSPEC, f, 2 * (s.wavelength[k] - WMIN) / (WMAX - WMIN) - 1, at);
                /* the PSF that comes out is what counts */
                const double left = spx_psf_series_value(&psf.x, f, s.wavelength[k]) -
                                    spx_psf_series_value(&scene->psf.x, f, s.wavelength[k]);
                x2 += (s.dx[i] - at[0]) * (s.dx[i] - at[0]);
                w2 += (s.width_x[i] - at[2]) * (s.width_x[i] - at[2]);
                left2 += left * left;
                pull2 += (s.dx[i] - at[0]) * (s.dx[i] - at[0]) / (s.dx_error[i] * s.dx_error[i]);
                n++;
            }
        const double x = sqrt(x2 / (double)n), w = sqrt(w2 / (double)n), left = sqrt(left2 / (double)n);
        printf("%s: x %.4f (pull %.2f), width %.4f, %d steps, chi2 %.4f to %.4f\n", what, x, sqrt(pull2 / (double)n), w,
               s.steps, s.chi2_before / s.dof, s.chi2_after / s.dof);
        CHECK(x < tolerance_x && left < tolerance_x, "%s: shifts are wrong by %.4f, the PSF by %.4f pixel", what, x,
              left);
        CHECK(sqrt(pull2 / (double)n) < 1.5, "%s: pulls have rms %.2f", what, sqrt(pull2 / (double)n));
        CHECK(w < tolerance_width, "%s: widths are wrong by %.4f", what, w);
        CHECK(s.chi2_after < s.chi2_before + 1 && (s.chi2_after / s.dof < 1.02 || o->bundle_size < 25),
              "%s: chi2 %g to %g of %g", what, s.chi2_before, s.chi2_after, s.dof);
        if (o->width && m->bundle == 0)
            check_windows(what, m, &s);
    }
    spx_shift_free(&s);
    spx_psf_free(&psf);
}

/* As shift_on_cpu(); counts calls and the bundles that they measure, in all windows, which are kept. */
typedef struct {
    size_t calls, measured, all;
    double first[NWINDOW], last[NWINDOW];
} counting;

static spx_status counted(void *ctx, const spx_image *image, const spx_psf *psf, const spx_motion_options *o,
                          spx_motion_row *row, spx_motion_fit *fit, spx_err *e)
{
    counting *c = ctx;
    const size_t n = o->nwindow * spx_motion_bundles(psf, o);
    c->calls++;
    c->all += n;
    for (size_t i = 0; i < n; i++)
        c->measured += o->only == NULL || o->only[i];
    memcpy(c->first, o->first, o->nwindow * sizeof *c->first);
    memcpy(c->last, o->last, o->nwindow * sizeof *c->last);
    return shift_on_cpu(NULL, image, psf, o, row, fit, e);
}

/* Windows that a step has not moved far are not measured again. The gradients of chi^2, measured in all of them with
 * the PSF that comes out, are 0 along the shift (q 0) and the width of all, which have no prior that matters, to a
 * tenth of their errors (0.025; 4.0 if no window were measured again). */
static void check_far(const shift_scene *scene, size_t bundle_size)
{
    shift_motion m = shift_wrong_psf();
    counting c = {0};
    spx_psf psf = {0};
    spx_shift s = {0};
    spx_err e = {0};
    spx_shift_options o = options();
    spx_motion_row row[NWINDOW * NSPEC];
    spx_motion_fit fit[NWINDOW * NSPEC];
    double most = 0;
    m.constant_x = -0.2;
    o.bundle_size = bundle_size;
    shift_psf_before(scene, &m, &psf);
    CHECK(spx_shift_across(counted, &c, &scene->image, &psf, &o, &s, &e) == SPX_OK, "%s", spx_err_text(&e));
    const spx_motion_options all = {
        .nwindow = s.nwindow, .first = c.first, .last = c.last, .dw = o.dw, .bundle_size = bundle_size};
    CHECK(shift_on_cpu(NULL, &scene->image, &psf, &all, row, fit, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (int q = 0; q < 2; q++) {
        double g = 0, fisher = 0;
        for (size_t k = 0; k < s.nwindow * NSPEC; k++) {
            g += row[k].gradient[q];
            fisher += row[k].fisher[2 * q];
        }
        most = fmax(most, fabs(g) / sqrt(fisher));
    }
    printf("bundles of %zu: %zu of %zu windows measured in %zu steps, gradients of %.4f errors are left\n", bundle_size,
           c.measured, c.all, c.calls, most);
    CHECK(c.calls > 1 && c.measured < c.all, "%zu of %zu windows are measured in %zu steps", c.measured, c.all,
          c.calls);
    CHECK(most < 0.1, "gradients of %.3f errors are left", most);
    spx_shift_free(&s);
    spx_psf_free(&psf);
}

/* As shift_on_cpu(), but the first call, *ctx 0, finds no light in any window. */
static spx_status dark_at_first(void *ctx, const spx_image *image, const spx_psf *psf, const spx_motion_options *o,
                                spx_motion_row *row, spx_motion_fit *fit, spx_err *e)
{
    const spx_status st = shift_on_cpu(NULL, image, psf, o, row, fit, e);
    if (st != SPX_OK || (*(int *)ctx)++ > 0)
        return st;
    CHECK(o->only != NULL, "the first step looks at all windows");
    memset(fit, 0, o->nwindow * (NSPEC / 5) * sizeof *fit);
    for (size_t i = 0; i < o->nwindow * NSPEC; i++)
        row[i] = (spx_motion_row){.wavelength = row[i].wavelength};
    return st;
}

/* A first step without light says nothing of the image: the next one is the first. */
static void check_dark_start(const shift_scene *scene)
{
    const shift_motion m = shift_wrong_psf();
    int calls = 0;
    spx_psf psf = {0};
    spx_shift s = {0};
    spx_err e = {0};
    spx_shift_options o = options();
    o.bundle_size = 5;
    shift_psf_before(scene, &m, &psf);
    CHECK(spx_shift_across(dark_at_first, &calls, &scene->image, &psf, &o, &s, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (size_t f = 0; f < NSPEC && s.flags != NULL; f++) {
        double at[3];
        shift_true_motion(&m, NSPEC, f, 0, at);
        CHECK(s.flags[f] == 0 && fabs(s.dx[f * SPX_SHIFT_PLACES + 4] - at[0]) < 0.02,
              "a dark start: fibre %zu moves by %g, flags %u", f, s.dx[f * SPX_SHIFT_PLACES + 4], s.flags[f]);
    }
    CHECK(s.chi2_before > s.chi2_after && s.chi2_after > 0, "a dark start: chi2 %g to %g of %g", s.chi2_before,
          s.chi2_after, s.dof);
    spx_shift_free(&s);
    spx_psf_free(&psf);
}

/* As shift_on_cpu(), but shifts of 0.3 pixel that each step finds are never left: no convergence. */
static spx_status never_there(void *ctx, const spx_image *image, const spx_psf *psf, const spx_motion_options *o,
                              spx_motion_row *row, spx_motion_fit *fit, spx_err *e)
{
    const spx_status st = shift_on_cpu(NULL, image, psf, o, row, fit, e);
    const double off = (*(int *)ctx)++ % 2 == 0 ? 0.3 : -0.3;
    for (size_t i = 0; i < o->nwindow * NSPEC && st == SPX_OK; i++)
        row[i].gradient[0] = off * row[i].fisher[0];
    return st;
}

/* Traces that stay because the fit fails may be as far off as they could before. */
static void check_failed(const shift_scene *scene)
{
    const shift_motion m = {.constant_x = 0.1};
    spx_psf psf = {0};
    spx_shift s = {0};
    spx_err e = {0};
    spx_shift_options o = options();
    int calls = 0;
    shift_psf_before(scene, &m, &psf);
    CHECK(spx_shift_across(never_there, &calls, &scene->image, &psf, &o, &s, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (size_t i = 0; i < NSPEC * SPX_SHIFT_PLACES && s.flags != NULL; i++)
        CHECK(s.failed && s.dx[i] == 0 && s.dx_error[i] == SPX_SHIFT_EXPECTED &&
                  s.width_x_error[i] == SPX_SHIFT_EXPECTED_WIDTH,
              "no convergence: failed %d, place %zu moves by %g +- %g, width %g", s.failed, i, s.dx[i], s.dx_error[i],
              s.width_x_error[i]);
    spx_shift_free(&s);
    spx_psf_free(&psf);
}

/* A bundle without light keeps its traces; the others move. A frame without any is as it was. */
static void check_dark(void)
{
    const unsigned char second[2] = {0, 1}, all[2] = {1, 1};
    const shift_motion m = {.constant_x = 0.1};
    for (int none = 0; none < 2; none++) {
        shift_scene scene = shift_expose('z', NSPEC, WMIN, WMAX, 3, 900, none ? all : second);
        spx_psf psf = {0}, before = {0};
        spx_shift s = {0};
        spx_err e = {0};
        spx_shift_options o = options();
        shift_psf_before(&scene, &m, &psf);
        CHECK(spx_shift_psf_copy(&psf, &before, &e) == SPX_OK, "%s", spx_err_text(&e));
        o.degree_fibre = 1;
        CHECK(spx_shift_across(shift_on_cpu, NULL, &scene.image, &psf, &o, &s, &e) == SPX_OK, "%s", spx_err_text(&e));
        for (size_t f = 0; f < NSPEC && s.flags != NULL; f++) {
            const int dark = none || f >= 25;
            const int same = memcmp(psf.x.coef + f * psf.x.ncoef, before.x.coef + f * psf.x.ncoef,
                                    psf.x.ncoef * sizeof(double)) == 0;
            const uint32_t flags = dark ? SPX_SHIFT_NOLIGHT | SPX_SHIFT_OLDX : 0;
            CHECK(same == dark && s.flags[f] == flags, "%s dark: fibre %zu: flags %u, %s", none ? "all" : "a bundle", f,
                  s.flags[f], same ? "as it was" : "moved");
            CHECK(dark ? s.dx[f * SPX_SHIFT_PLACES] == 0 : fabs(s.dx[f * SPX_SHIFT_PLACES] - 0.1) < 0.02,
                  "%s dark: fibre %zu moves by %g", none ? "all" : "a bundle", f, s.dx[f * SPX_SHIFT_PLACES]);
            CHECK(dark == (s.dx_error[f * SPX_SHIFT_PLACES] == SPX_SHIFT_EXPECTED), "%s dark: fibre %zu: error %g",
                  none ? "all" : "a bundle", f, s.dx_error[f * SPX_SHIFT_PLACES]);
        }
        spx_shift_free(&s);
        spx_psf_free(&psf);
        spx_psf_free(&before);
        shift_scene_free(&scene);
    }
}

/* Adds up the lengths of the windows, *ctx, and measures nothing. */
static spx_status add_lengths(void *ctx, const spx_image *image, const spx_psf *psf, const spx_motion_options *o,
                              spx_motion_row *row, spx_motion_fit *fit, spx_err *e)
{
    double *sum = ctx;
    *sum = 0;
    for (size_t i = 0; i < o->nwindow; i++)
        *sum += o->last[i] - o->first[i] + o->dw;
    memset(row, 0, o->nwindow * psf->nspec * sizeof *row);
    memset(fit, 0, o->nwindow * spx_motion_bundles(psf, o) * sizeof *fit);
    (void)image;
    (void)e;
    return SPX_OK;
}

/* A range that has little room beside as many windows as are asked for is seen as a whole; of a long one, these. */
static void check_short_range(const shift_scene *scene)
{
    static const double range[] = {500, 400, 300, 190, 70, 40};
    for (size_t i = 0; i < sizeof range / sizeof *range; i++) {
        double seen = 0;
        spx_psf psf = {0};
        spx_shift s = {0};
        spx_err e = {0};
        spx_shift_options o = options();
        o.wmax = o.wmin + range[i];
        o.nwindow = i == 0 ? 4 : 6;
        o.window = 60;
        CHECK(spx_shift_psf_copy(&scene->psf, &psf, &e) == SPX_OK, "%s", spx_err_text(&e));
        CHECK(spx_shift_across(add_lengths, &seen, &scene->image, &psf, &o, &s, &e) == SPX_OK, "%s", spx_err_text(&e));
        const double all = i == 0 ? 4 * 60 : range[i];
        CHECK(fabs(seen - all) < 5 * o.dw, "windows of %g Angstrom in a range of %g", seen, range[i]);
        spx_shift_free(&s);
        spx_psf_free(&psf);
    }
}

/* Keeps the windows that it is asked to measure, and ends the fit. */
typedef struct {
    double first[SPX_SHIFT_PLACES], last[SPX_SHIFT_PLACES];
    size_t n;
} asked_windows;

static spx_status keep_windows(void *ctx, const spx_image *image, const spx_psf *psf, const spx_motion_options *o,
                               spx_motion_row *row, spx_motion_fit *fit, spx_err *e)
{
    asked_windows *a = ctx;
    (void)image;
    (void)psf;
    (void)row;
    (void)fit;
    for (a->n = 0; a->n < o->nwindow && a->n < SPX_SHIFT_PLACES; a->n++) {
        a->first[a->n] = o->first[a->n];
        a->last[a->n] = o->last[a->n];
    }
    return spx_fail(e, SPX_EUSAGE, "seen");
}

/* Bright lines as far apart as a window is long, as those of oxygen at 6300 and 6364 Angstrom. Light of a line that is
 * just outside reaches rows that are used: no window ends within a spot of one. One had shifts wrong by 9 errors. */
static void check_ends(void)
{
    const double bright[] = {6400.3, 6460.3, 6700.3, 6760.3}, from = 6300, to = 6860;
    const spx_shift_options o = {.wmin = from,
                                 .wmax = to,
                                 .dw = 0.8,
                                 .bundle_size = 25,
                                 .nwindow = 2,
                                 .window = 60,
                                 .degree_wave = 1,
                                 .degree_fibre = 1,
                                 .width = 1};
    spx_psf psf = {0};
    spx_shift shift = {0};
    asked_windows asked = {.n = 0};
    spx_err e = {0};
    CHECK(spx_sim_psf('r', 25, 0, 0, &psf, &e) == SPX_OK, "%s", spx_err_text(&e));
    const size_t n = psf.npix_x * psf.npix_y;
    spx_image image = {.nx = psf.npix_x, .ny = psf.npix_y};
    image.data = spx_alloc(n, sizeof *image.data, &e);
    image.ivar = spx_alloc(n, sizeof *image.ivar, &e);
    for (size_t f = 0; f < psf.nspec && image.data != NULL && image.ivar != NULL; f++)
        for (double lambda = from - 20; lambda < to + 20; lambda += 0.4) {
            double light = 100;
            for (size_t l = 0; l < sizeof bright / sizeof *bright; l++)
                light += fabs(lambda - bright[l]) < 0.6 ? 5000 : 0;
            const size_t x = (size_t)(spx_psf_series_value(&psf.x, f, lambda) + 0.5),
                         at = (size_t)(spx_psf_series_value(&psf.y, f, lambda) + 0.5) * image.nx + x;
            for (size_t i = at - 1; i <= at + 1; i++) {
                image.data[i] = (float)light;
                image.ivar[i] = (float)(1 / (10 + light));
            }
        }
    CHECK(spx_shift_across(keep_windows, &asked, &image, &psf, &o, &shift, &e) == SPX_EUSAGE && asked.n == 2,
          "%zu windows are asked for", asked.n);
    for (size_t k = 0; k < asked.n; k++)
        for (size_t l = 0; l < sizeof bright / sizeof *bright; l++)
            CHECK(fabs(bright[l] - asked.first[k]) > 5.5 && fabs(bright[l] - asked.last[k]) > 5.5,
                  "a window of %.1f to %.1f Angstrom ends at the line at %.1f", asked.first[k], asked.last[k],
                  bright[l]);
    spx_shift_free(&shift);
    spx_image_free(&image);
    spx_psf_free(&psf);
}

/* Variance of a lamp's bins: 0.5 % of the brightest of the nine around; bins that are not used say nothing, and stay
 * so. */
static void check_lamp_variance(void)
{
    enum { N = 24 };
    double flux[2 * N] = {0}, ivar[2 * N];
    for (size_t k = 0; k < 2 * (size_t)N; k++)
        ivar[k] = 0.25;
    flux[10] = 4000; /* the first row's; in the second it is not used */
    flux[N + 10] = 4000;
    ivar[N + 10] = 0;
    flux[N] = -1e6;
    spx_shift_lamp_variance(2, N, flux, ivar);
    for (size_t k = 0; k < 2 * (size_t)N; k++) {
        const double variance = k >= 6 && k <= 14 ? 4 + 20 * 20 : 4;
        CHECK(k == N + 10 ? ivar[k] == 0 : fabs(1 / ivar[k] / variance - 1) < 1e-14, "lamp: variance %g of bin %zu",
              1 / ivar[k], k);
    }
}

/* The same bits for any number of threads. */
static void check_threads(const shift_scene *scene)
{
    const shift_motion m = shift_wrong_psf();
    spx_shift s[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        spx_psf psf = {0};
        spx_err e = {0};
        spx_shift_options o = options();
        o.nthreads = 1 + 2 * i;
        shift_psf_before(scene, &m, &psf);
        CHECK(spx_shift_across(shift_on_cpu, NULL, &scene->image, &psf, &o, &s[i], &e) == SPX_OK, "%s",
              spx_err_text(&e));
        spx_psf_free(&psf);
    }
    if (s[0].coef != NULL && s[1].coef != NULL)
        CHECK(memcmp(s[0].coef, s[1].coef, s[0].ncoef * sizeof(double)) == 0 && s[0].chi2_after == s[1].chi2_after,
              "results depend on the number of threads");
    spx_shift_free(&s[0]);
    spx_shift_free(&s[1]);
}

/* Spots of lines, of all instruction sets: the PSF's to 1e-13; derivatives against
 * differences, to 1e-3 of the largest, as the sum of pixels that a spot is divided by counts as constant. */
static void check_spots(const spx_psf *p)
{
    const spx_shift_spots *set[] = {spx_shift_spots_base(), spx_shift_spots_avx2(), spx_shift_spots_avx512()};
    const size_t nx = (size_t)spx_psf_nx(p), ny = (size_t)spx_psf_ny(p), n = nx * ny;
    const size_t ngh = (size_t)(p->ghdegx + 1) * (size_t)(p->ghdegy + 1);
    double *work = spx_alloc(spx_psf_spot_work(p) + spx_shift_spot_work((int)nx, (int)ny, p->ghdegx, p->ghdegy),
                             sizeof *work, NULL);
    double *basis = spx_alloc(p->ndeg + ngh, sizeof *basis, NULL), *c = basis + p->ndeg;
    double *plain = spx_alloc(n, sizeof *plain, NULL), *found = spx_alloc2(5, 3 * n, sizeof *found, NULL);
    spx_spot at = {0, 0, 0, 0, 0, 0};
    CHECK(spx_psf_plain_spots(p) && spx_psf_spot(p, 7, 8500.3, work, plain, &at) == SPX_SPOT_OK, "spot");
    spx_legendre_basis(p->ndeg, spx_psf_param_u(p, 7, 8500.3), basis);
    for (size_t k = 0; k < ngh; k++)
        c[k] = spx_psf_param_value(p, 7, p->gh[k], basis);
    const double sigx = spx_psf_param_value(p, 7, p->sigx, basis), sigy = spx_psf_param_value(p, 7, p->sigy, basis);
    const double h = 1e-4;
    const spx_shift_spot here = {(int)nx, (int)ny, p->ghdegx, p->ghdegy, c, at.dx, at.dy, sigx, sigy, -0.02, 1.6};
    for (size_t i = 0; i < 3; i++) {
        double worst = 0, most[3] = {0}, off[2] = {0};
        if (set[i] == NULL)
            continue;
        for (int j = 0; j < 5; j++) { /* there; moved by h, widened by h, to both sides */
            const double sign = j % 2 == 1 ? 1 : -1;
            spx_shift_spot s = here;
            s.dx += j == 1 || j == 2 ? sign * h * s.slope_x : 0;
            s.dy += j == 1 || j == 2 ? sign * h * s.slope_y : 0;
            s.sigy = j > 2 ? sqrt(sigy * sigy + sign * h * s.slope_y * s.slope_y) : sigy;
            CHECK(set[i]->spot(&s, work, found + (size_t)j * 3 * n) == 1, "%s: no spot", set[i]->name);
        }
        for (size_t k = 0; k < n; k++) {
            worst = fmax(worst, fabs(found[k] - plain[k]));
            for (size_t d = 0; d < 2; d++) {
                const double difference = (found[(3 * d * 2 + 3) * n + k] - found[(3 * d * 2 + 6) * n + k]) / (2 * h);
                most[d] = fmax(most[d], fabs(difference));
                off[d] = fmax(off[d], fabs(found[(1 + d) * n + k] - difference));
            }
        }
        printf("spots, %s: off by %.2g, derivatives by %.2g and %.2g\n", set[i]->name, worst, off[0] / most[0],
               off[1] / most[1]);
        CHECK(worst < 1e-13, "%s: pixels are off by %g", set[i]->name, worst);
        CHECK(off[0] < 1e-3 * most[0] && off[1] < 1e-3 * most[1], "%s: derivatives are off by %g, %g", set[i]->name,
              off[0] / most[0], off[1] / most[1]);
        CHECK(set[i]->spot(&(spx_shift_spot){(int)nx, (int)ny, p->ghdegx, p->ghdegy, c, at.dx, at.dy, NAN, sigy, 0, 1},
                           work, found) == 0,
              "%s: a spot without a width", set[i]->name);
    }
    spx_free(work);
    spx_free(basis);
    spx_free(plain);
    spx_free(found);
}

/* ---- along the traces ---- */

typedef struct {
    const shift_scene *scene;
    int lamp;
    double wmin, wmax;
} on_cpu;

static spx_status extract_on_cpu(void *ctx, const spx_image *image, const spx_psf *psf, spx_frame *frame, spx_err *e)
{
    spx_extract_options o = spx_extract_trace_defaults();
    spx_extract_counts counts;
    const on_cpu *c = ctx;
    o.nspec = psf->nspec;
    o.wmin = c->wmin;
    o.wmax = c->wmax;
    o.dw = 0.8;
    return spx_extract_trace_cpu(image, psf, &o, frame, &counts, e);
}

static spx_status sky_on_cpu(void *ctx, const spx_frame *frame, const double *usual, const double *moved, spx_sky *sky,
                             int *found, spx_err *e)
{
    const on_cpu *c = ctx;
    spx_sky_options o = spx_sky_defaults();
    uint8_t role[NSPEC];
    double place[NSPEC];
    o.terms = (spx_sky_terms){1, 4, 1};
    const double together[6] = {0, usual[0], usual[1], usual[2], usual[3], 0};
    o.together = together;
    const spx_sky_input in = shift_sky_input(c->scene, frame, c->lamp, moved, role, place);
    *found = 1;
    return spx_sky_cpu(&in, &o, sky, e);
}

static spx_status zero_on_cpu(void *ctx, const spx_image *image, const spx_psf *psf, const spx_shift_common *in,
                              const spx_shift_lines *lines, spx_shift_zero *zero, spx_err *e)
{
    (void)ctx;
    return spx_zero_point_cpu(image, psf, in, lines, zero, e);
}

static void sky_line_list(spx_shift_lines *lines)
{
    spx_line *line = NULL;
    spx_err e = {0};
    CHECK(spx_sky_lines(&line, &lines->n, &e) == SPX_OK, "%s", spx_err_text(&e));
    lines->line = spx_alloc(lines->n, sizeof *lines->line, NULL);
    for (size_t i = 0; i < lines->n; i++)
        lines->line[i] = (spx_shift_line){line[i].wavelength, line[i].strength};
    spx_free(line);
}

/* Tolerances: errors of 12 sky fibres in 700 Angstrom are 0.01 pixel; a smooth function of fibres has some ten degrees
 * of freedom, so that pulls scatter by a quarter.
 *
 * All of it: the traces of the PSF that comes out against the light's, y in pixels over fibres and wavelengths. */
static void check_traces(const char *what, const shift_scene *scene, const shift_motion *m, int with_lines,
                         double tolerance)
{
    on_cpu ctx = {scene, 0, WMIN, WMAX};
    const spx_shift_engine g = {&ctx, shift_on_cpu, extract_on_cpu, sky_on_cpu, zero_on_cpu};
    spx_shift_options o = options();
    spx_shift_lines lines = {0};
    spx_psf psf = {0};
    spx_frame frame = {0};
    spx_shift s = {0};
    spx_err e = {0};
    double y2 = 0, mean = 0, common = 0, *pull = spx_alloc(NSPEC * SPX_SHIFT_PLACES, sizeof *pull, NULL), median, mad;
    size_t n = 0;
    if (with_lines)
        sky_line_list(&lines);
    shift_psf_before(scene, m, &psf);
    CHECK(spx_shift_traces(&g, &scene->image, &frame, &lines, &o, &psf, &s, &e) == SPX_OK, "%s: %s", what,
          spx_err_text(&e));
    for (size_t f = 0; f < NSPEC && s.dy != NULL; f++)
        for (size_t k = 0; k < SPX_SHIFT_PLACES; k++) {
            const double left = spx_psf_series_value(&psf.y, f, s.wavelength[k]) -
                                spx_psf_series_value(&scene->psf.y, f, s.wavelength[k]);
            y2 += left * left;
            mean += left;
            pull[n++] = left;
        }
    mean /= (double)n;
    common = with_lines ? 0 : mean;
    for (size_t i = 0; i < n; i++)
        pull[i] = (pull[i] - common) / s.dy_error[i];
    spread(n, pull, &median, &mad);
    const double rms = sqrt(y2 / (double)n - common * common);
    printf("%s: y %.4f (mean %.4f), pulls %.2f, %.2f, zero point %.5f +- %.5f, %zu lines, chi2 %.2f, %d rounds\n", what,
           rms, mean, median, mad, s.zero_point, s.zero_point_error, s.nline,
           s.zero_point_dof > 0 ? s.zero_point_chi2 / s.zero_point_dof : 0, s.rounds);
    CHECK(rms < tolerance, "%s: traces are wrong by %.4f pixel", what, rms);
    CHECK(fabs(mad - 1) < 0.7, "%s: pulls %.2f, %.2f", what, median, mad);
    /* 0.6 Angstrom a row: the mean over fibres is the zero point's error */
    CHECK(!with_lines || (s.nline > 20 && fabs(mean) * 0.6 < 3 * s.zero_point_error + 0.001), "%s: mean %.4f pixel",
          what, mean);
    for (size_t f = 0; f < NSPEC && s.flags != NULL; f++)
        CHECK(s.flags[f] == (with_lines ? 0 : SPX_SHIFT_RELATIVE), "%s: fibre %zu has flags %u", what, f, s.flags[f]);
    spx_free(pull);
    spx_free(lines.line);
    spx_shift_free(&s);
    spx_frame_free(&frame);
    spx_psf_free(&psf);
}

/* Arm r has few lines, none of them bright in its red half: a slope that fibres have in common is usual up to 0.04
 * pixel, not of any size: with a prior that is flat in it the error at the red end is 0.0170 pixel, with this 0.0156.
 */
static void check_slope(void)
{
    enum { LAST = SPX_SHIFT_PLACES - 1 };
    shift_scene scene = shift_expose('r', NSPEC, 6300, 7000, 11, 900, NULL);
    on_cpu ctx = {&scene, 0, 6300, 7000};
    const spx_shift_engine g = {&ctx, shift_on_cpu, extract_on_cpu, sky_on_cpu, zero_on_cpu};
    spx_shift_options o = options();
    spx_shift_lines lines = {0};
    spx_psf psf = {0};
    spx_frame frame = {0};
    spx_shift s = {0};
    spx_err e = {0};
    double error = 0, slope = 0;
    o.wmin = ctx.wmin;
    o.wmax = ctx.wmax;
    sky_line_list(&lines);
    CHECK(spx_shift_psf_copy(&scene.psf, &psf, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(spx_shift_traces(&g, &scene.image, &frame, &lines, &o, &psf, &s, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (size_t f = 0; f < NSPEC && s.dy != NULL; f++) {
        error += s.dy_error[f * SPX_SHIFT_PLACES + LAST] / NSPEC;
        slope += 0.5 * (s.dy[f * SPX_SHIFT_PLACES + LAST] - s.dy[f * SPX_SHIFT_PLACES]) / NSPEC;
    }
    printf("r: slope of all %.4f pixel, error at the red end %.4f\n", slope, error);
    CHECK(fabs(slope) < 0.004 && error < 0.0163, "a slope of %g pixel, error %g", slope, error);
    spx_free(lines.line);
    spx_shift_free(&s);
    spx_frame_free(&frame);
    spx_psf_free(&psf);
    shift_scene_free(&scene);
}

/* Zero point without noise: by the fibres with sky alone, and the PSF that the light fell through but for a motion of
 * all of 0.06 pixel, a slope, and 2 % of width, which bends. What is left is the method's own error: the lines of the
 * simulation have a sigma of 0.05 Angstrom, and the steps of its spectra another 0.1/sqrt(12). */
static void check_zero_point(char arm, double wmin, double wmax)
{
    const double dy = 0.06, slope = 0.03, width = 0.02, bend = 0.02, own = 0.05 * 0.05 + 0.1 * 0.1 / 12;
    spx_shift_lines lines = {0};
    shift_noise = 0;
    shift_scene scene = shift_expose(arm, NSPEC, wmin, wmax, 11, 9000, NULL);
    shift_noise = 1;
    spx_psf *psf = &scene.psf;
    size_t fibre[NSPEC], n = 0;
    enum { PLACES = 9 };
    double scale[NSPEC], sigma[PLACES] = {0}, rows[PLACES] = {0};
    for (size_t f = 0; f < NSPEC; f++) {
        const double middle = 0.5 * (wmin + wmax);
        if (!scene.target[f].sky)
            continue;
        fibre[n] = f;
        scale[n++] = 1;
        double *c = psf->coeff + ((size_t)psf->sigy * psf->nspec + f) * psf->ndeg;
        double lambdas[PLACES], narrow[PLACES];
        for (int k = 0; k < PLACES; k++) {
            const double u = 2.0 * k / (PLACES - 1) - 1;
            lambdas[k] = middle + 0.5 * u * (wmax - wmin);
            sigma[k] = spx_legendre_sum(psf->ndeg, c, spx_psf_u(psf->wmin, psf->wmax, lambdas[k]));
            rows[k] =
                spx_psf_series_value(&psf->y, f, lambdas[k] + 0.5) - spx_psf_series_value(&psf->y, f, lambdas[k] - 0.5);
            narrow[k] = sigma[k] / (1 + width + bend * u) - sigma[k];
        }
        spx_shift_add_series(psf->ndeg, c, psf->wmin, psf->wmax, psf->ndeg, PLACES, lambdas, narrow);
        /* over wmin ... wmax of the frame, not of the PSF */
        const double lambda[3] = {wmin, middle, wmax}, move[3] = {-dy + slope, -dy, -dy - slope};
        spx_shift_add_series(psf->y.ncoef, psf->y.coef + f * psf->y.ncoef, psf->y.wmin, psf->y.wmax, 2, 3, lambda,
                             move);
    }
    const spx_shift_common in = {
        .nfibre = n, .fibre = fibre, .scale = scale, .first = wmin, .last = wmax, .step = 0.8, .nterm = 2, .nkappa = 3};
    spx_shift_zero zero[2];
    spx_err e = {0};
    sky_line_list(&lines);
    for (int i = 0; i < 2; i++) {
        spx_shift_common threads = in;
        threads.nthreads = 1 + 2 * i;
        CHECK(spx_zero_point_cpu(&scene.image, psf, &threads, &lines, &zero[i], &e) == SPX_OK, "%s", spx_err_text(&e));
    }
    CHECK(memcmp(&zero[0], &zero[1], sizeof zero[0]) == 0, "zero points depend on the number of threads");
    double left = 0, wider = 0;
    for (int k = 0; k < PLACES; k++) {
        const double u = 2.0 * k / (PLACES - 1) - 1, more = 1 + width + bend * u;
        const double kappa = pow(sigma[k] / rows[k], 2) * (1 - 1 / (more * more)) + own;
        double p[SPX_SHIFT_ZERO_MOST], found = 0;
        spx_legendre(u, zero->nkappa, p);
        for (size_t q = 0; q < zero->nkappa; q++)
            found += zero->kappa[q] * p[q];
        wider = fmax(wider, fabs(found - kappa));
    }
    for (int u = -1; u <= 1; u++) { /* the trace of fibre 0 as it is, and by the zero point */
        const double lambda = 0.5 * (wmin + wmax) + 0.4 * u * (wmax - wmin), z = zero->z[0] + 0.8 * u * zero->z[1];
        const double before = spx_psf_series_value(&psf->y, fibre[0], lambda - z);
        const double truth = spx_psf_series_value(&psf->y, fibre[0], lambda) + dy + 0.8 * slope * u;
        left = fmax(left, fabs(before - truth));
    }
    printf(
        "%c: zero point %.5f +- %.5f, wrong by %.5f pixel, kappa %.5f %.5f %.5f, wrong by %.5f, %zu lines, tau %.5f\n",
        arm, zero->z[0], sqrt(zero->cov[0]), left, zero->kappa[0], zero->kappa[1], zero->kappa[2], wider, zero->nline,
        zero->tau);
    CHECK(zero->nline > 20 && left < 0.001, "%c: traces wrong by %.5f pixel", arm, left);
    CHECK(wider < 0.002, "%c: kappa wrong by %.5f", arm, wider);
    spx_free(lines.line);
    shift_scene_free(&scene);
}

/* Terms whose size is not known: 400 draws with errors that are correlated as those of a polynomial through few lines.
 * size: of the two last terms. rms and error of the last, rms of its pulls. */
static void shrink(double size, double *rms, double *error, double *pull)
{
    enum { DRAWS = 400, N = 4 };
    static const double wide[N] = {10, 10, 10, 10}, usual[N] = {0, 0, 0.1, 0.1};
    *rms = *error = *pull = 0;
    random_start(3);
    for (int draw = 0; draw < DRAWS; draw++) {
        double info[N * N] = {0}, right[N] = {0}, x[N], cov[N * N];
        const double truth[N] = {1, -2, size, -size};
        for (int k = 0; k < 12; k++) { /* more of them at one end; the cubic is known to 1.8 */
            double p[N], value = gauss();
            spx_legendre(k < 8 ? -1 + 0.1 * k : -1.2 + 0.2 * k, N, p);
            for (int q = 0; q < N; q++)
                value += p[q] * truth[q];
            for (int q = 0; q < N; q++) {
                right[q] += p[q] * value;
                for (int r = 0; r < N; r++)
                    info[q * N + r] += p[q] * p[r];
            }
        }
        CHECK(spx_zero_shrink(N, info, right, wide, usual, x, cov), "no solution");
        const double left = x[N - 1] - truth[N - 1], e = sqrt(cov[N * N - 1]);
        *rms += left * left / DRAWS;
        *error += e * e / DRAWS;
        *pull += left * left / (e * e) / DRAWS;
    }
    *rms = sqrt(*rms);
    *error = sqrt(*error);
    *pull = sqrt(*pull);
}

static void check_shrink(void)
{
    double rms, error, pull;
    shrink(0.03, &rms, &error, &pull);
    printf("terms of a usual size: rms %.4f, error %.4f, pulls %.2f\n", rms, error, pull);
    CHECK(rms < 0.2 && error < 0.2 && pull < 1.3, "terms of 0.03: rms %g, error %g, pulls %g", rms, error, pull);
    shrink(9, &rms, &error, &pull);
    printf("terms far above it: rms %.4f, error %.4f, pulls %.2f\n", rms, error, pull);
    CHECK(rms < 2 && pull > 0.8 && pull < 1.2, "terms of 9: rms %g, error %g, pulls %g", rms, error, pull);
}

int main(void)
{
    check_shrink();
    shift_scene scene = shift_expose('z', NSPEC, WMIN, WMAX, 11, 900, NULL);
    spx_shift_options o = options();
    shift_motion m = {0};
    /* no noise of functions that there is no need of: with them x 0.0018, width 0.0012 */
    check_motion("no motion", &scene, &m, &o, 0, NSPEC, 0.001, 0.0008);
    m = shift_wrong_psf();
    check_motion("0.05 pixel", &scene, &m, &o, 0, NSPEC, 0.003, 0.003);
    o.width = 0;
    m.width = 0;
    check_motion("0.05 pixel, widths held", &scene, &m, &o, 0, NSPEC, 0.003, 1e-6);
    o.width = 1;
    m = shift_wrong_psf();
    m.constant_x = -0.3;
    check_motion("0.3 pixel", &scene, &m, &o, 0, NSPEC, 0.003, 0.003);
    m = (shift_motion){.bundle = 1, .bundle_x = 0.05};
    o.degree_fibre = 1;
    check_motion("a bundle alone", &scene, &m, &o, 0, NSPEC, 0.003, 0.003);
    /* so many bundles that the first step looks at half of the windows; light of neighbours beyond is not modelled */
    o = options();
    o.bundle_size = 5;
    m = shift_wrong_psf();
    check_motion("0.05 pixel, many bundles", &scene, &m, &o, 0, NSPEC, 0.004, 0.004);
    check_dark_start(&scene);
    check_failed(&scene);
    check_far(&scene, 5);
    check_short_range(&scene);
    check_ends();
    check_lamp_variance();
    o = options();
    o.degree_fibre = 1;
    check_threads(&scene);
    check_halving(&scene);
    m = (shift_motion){0};
    check_traces("no motion", &scene, &m, 1, 0.015);
    m = shift_wrong_psf();
    check_traces("wrong PSF", &scene, &m, 1, 0.015);
    check_traces("wrong PSF, no lines", &scene, &m, 0, 0.015);
    m.constant_y = 0.3;
    check_traces("0.3 pixel", &scene, &m, 1, 0.015);
    check_spots(&scene.psf);
    shift_scene_free(&scene);
    check_dark();
    check_zero_point('z', WMIN, WMAX);
    check_zero_point('r', 6300, 7000);
    check_slope();
    return failures != 0;
}
