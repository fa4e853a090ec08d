/* The steps of the motion of traces on a device (extract/trace/motion_steps.h), run on the host: a team is some
 * threads with a barrier (teams.h). Against spx_motion_cpu(), to 1e-6 of F and of what g scatters by. */
#include <stdlib.h>

#include "extract/trace/motion_layout.h"
#include "extract_exposure.h"
#include "teams.h"

enum { BATCH = 3, NWINDOW = 3, LONGEST = 64 };

#define TEAM_STEP(name, items, threads, bytes, teams)                                                                  \
    static void run_##name(const void *g, const spx_team *t, size_t item)                                              \
    {                                                                                                                  \
        spx_motion_##name(g, t, item);                                                                                 \
    }
SPX_MOTION_STEPS(TEAM_STEP)
#undef TEAM_STEP

/* ---- a device that is the host ---- */

static size_t measured; /* jobs */

static void put_pixels(const spx_image *im, const spx_motion_layout *l, const spx_motion_view *g)
{
    for (size_t i = 0; i < NWINDOW; i++) {
        const size_t from = (size_t)l->row0[i] * im->nx, n = l->nrow[i] * im->nx;
        memcpy(g->data + l->pixel[i], im->data + from, n * sizeof(float));
        memcpy(g->weight + l->pixel[i], im->ivar + from, n * sizeof(float));
        if (im->mask)
            memcpy(g->mask + l->pixel[i], im->mask + from, n * sizeof(uint32_t));
    }
    for (size_t i = 0; i < g->npixel; i++)
        spx_motion_pixel(g, i);
}

static spx_status send(spx_motion_engine *engine, size_t nwindow, const long *row0, const size_t *nrow, spx_err *e)
{
    (void)engine;
    (void)nwindow;
    (void)row0;
    (void)nrow;
    (void)e;
    return SPX_OK;
}

static spx_status measure(spx_motion_engine *engine, size_t nwindow, const spx_motion_layout *l, spx_motion_row *row,
                          spx_motion_fit *fit, unsigned char *left, spx_err *e)
{
    const spx_image *im = l->w[0].job.image;
    const size_t nspec = l->w[0].job.psf->nspec;
    spx_motion_view all = l->size;
    (void)engine;
    (void)e;
    char *pixels = team_unset(spx_motion_pixels(&all, im->mask != NULL, NULL));
    (void)spx_motion_pixels(&all, im->mask != NULL, pixels);
    put_pixels(im, l, &all);
    for (size_t first = 0; first < (size_t)l->size.njob; first += BATCH) {
        spx_motion_view view = all;
        const spx_motion_view *g = &view;
        view.njob = l->size.njob - (int)first < BATCH ? l->size.njob - (int)first : BATCH;
        char *tables = team_unset(spx_motion_tables(&view, nwindow, nspec, NULL)),
             *work = team_unset(spx_motion_work(&view, NULL));
        (void)spx_motion_tables(&view, nwindow, nspec, tables);
        (void)spx_motion_work(&view, work);
        spx_motion_fill(l, nwindow, first, g);
#define RUN(name, items, threads, bytes, teams) team_run(run_##name, g, items, bytes);
        SPX_MOTION_STEPS(RUN)
        spx_motion_collect(l, first, (size_t)g->njob, g->row, g->result, row, fit, left);
        measured += (size_t)g->njob;
        spx_free(tables);
        spx_free(work);
    }
    spx_free(pixels);
    return SPX_OK;
}

/* ---- cases ---- */

typedef struct {
    const char *what;
    size_t nspec, bundle;
    double pitch, sigy, dw, first, apart, length; /* windows, each shorter than the one before */
    int masked, dark;                             /* pixels; all of the last bundle */
    int ranges;                                   /* traces have ranges of their own, all alike: none for a device */
    size_t every;                                 /* bundles and windows of which one is measured */
    int rough;
    size_t jobs, left; /* that are measured, and that are left to the CPU */
} a_case;

static void draw(const a_case *c, scene *s)
{
    const spx_sim_noise noise = {.seed = seed, .camera = 'r', .photon_noise = 1, .readnoise = 3.0, .fullwell = 1e6};
    small_psf_shape shape = small_psf_default();
    shape.nspec = c->nspec;
    shape.pitch = c->pitch;
    shape.sigy = c->sigy;
    *s = expose_scene(small_psf(&shape), 90, 60, shape.wmin, shape.wmax, 1.2, &noise);
    if (c->ranges) {
        double *range = spx_alloc2(c->nspec, 2, sizeof *range, NULL);
        for (size_t f = 0; f < c->nspec && range != NULL; f++) {
            range[2 * f] = shape.wmin;
            range[2 * f + 1] = shape.wmax;
        }
        spx_psf_set_wave_range(s->psf, range);
    }
    for (size_t i = 0; i < 90 * 60; i++) {
        const size_t x = i % 60, y = i / 60;
        if (c->masked) {
            s->image.mask[i] |= x == 14 || (y > 24 && y < 28);
            if (y == 40 && x % 7 == 0)
                s->image.data[i] = NAN;
        }
        if (c->dark && (double)x > shape.x0 + c->pitch * ((double)c->bundle - 0.5) - 4)
            s->image.ivar[i] = 0;
    }
}

static void compare(const a_case *c)
{
    scene s;
    double first[NWINDOW], last[NWINDOW];
    spx_err e = {0};
    spx_fallback left[2];
    draw(c, &s);
    for (int i = 0; i < NWINDOW; i++) {
        first[i] = c->first + c->apart * i;
        last[i] = first[i] + c->length - 3 * c->dw * i;
    }
    unsigned char only[LONGEST];
    spx_motion_options o = {.nwindow = NWINDOW,
                            .first = first,
                            .last = last,
                            .dw = c->dw,
                            .bundle_size = c->bundle,
                            .rough = c->rough,
                            .nthreads = 1};
    const size_t n = NWINDOW * c->nspec, nfit = NWINDOW * spx_motion_bundles(s.psf, &o);
    for (size_t i = 0; i < nfit; i++)
        only[i] = i % c->every == 0;
    o.only = c->every > 1 ? only : NULL;
    spx_motion_row row[2][LONGEST];
    spx_motion_fit fit[2][LONGEST];
    spx_motion_engine g = {NULL, send, measure};
    measured = 0;
    CHECK(spx_motion_cpu(&s.image, s.psf, &o, row[0], fit[0], &left[0], &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(spx_motion_solve(&g, &s.image, s.psf, &o, row[1], fit[1], &left[1], &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(measured == c->jobs && left[1].on_cpu == c->left && left[1].total == nfit && left[0].on_cpu == 0,
          "%s: %zu jobs, %zu left of %zu", c->what, measured, left[1].on_cpu, left[1].total);
    CHECK((left[1].reason != NULL) == (c->left > 0), "%s: a reason", c->what);
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        const spx_motion_row *a = &row[0][i], *b = &row[1][i];
        const double scale = fmax(a->fisher[0], a->fisher[2]), error = sqrt(scale);
        const double off[] = {
            a->fisher[0] - b->fisher[0], a->fisher[1] - b->fisher[1],     a->fisher[2] - b->fisher[2],
            a->next[0] - b->next[0],     a->next[1] - b->next[1],         a->next[2] - b->next[2],
            a->next[3] - b->next[3],     a->gradient[0] - b->gradient[0], a->gradient[1] - b->gradient[1]};
        for (size_t k = 0; k < 9; k++) {
            const double of = k < 7 ? scale : error;
            CHECK(fabs(off[k]) <= 1e-6 * of, "%s: row %zu, number %zu: off by %g of %g", c->what, i, k, off[k], of);
            worst = of > 0 ? fmax(worst, fabs(off[k]) / of) : worst;
        }
        CHECK(fabs(a->wavelength - b->wavelength) <= 1e-6, "%s: row %zu: wavelength %.9g, not %.9g", c->what, i,
              b->wavelength, a->wavelength);
    }
    for (size_t i = 0; i < nfit; i++)
        CHECK(fabs(fit[0][i].chi2 - fit[1][i].chi2) <= 1e-8 * fit[0][i].npix && fit[0][i].npix == fit[1][i].npix &&
                  fit[0][i].nflux == fit[1][i].nflux,
              "%s: bundle %zu: chi2 %.12g, not %.12g, %g and %g pixels", c->what, i, fit[1][i].chi2, fit[0][i].chi2,
              fit[1][i].npix, fit[0][i].npix);
    if (getenv("SPX_TEST_VERBOSE") != NULL)
        printf("%s: %.2g\n", c->what, worst);
    free_scene(&s);
}

int main(void)
{
    static const a_case cases[] = {
        {"fibres that overlap", 6, 4, 4.5, 0.9, 1.2, 5003, 26, 22, 0, 0, 0, 1, 0, 6, 0},
        {"systems of a few fibres in a wide bundle", 12, 12, 5.0, 0.9, 1.2, 5003, 26, 22, 0, 0, 0, 1, 0, 3, 0},
        {"the same of fibres that overlap little", 12, 12, 5.5, 0.9, 1.2, 5003, 26, 22, 0, 0, 0, 1, 0, 3, 0},
        {"one fibre", 1, 4, 7, 0.9, 1.2, 5003, 26, 22, 0, 0, 0, 1, 0, 3, 0},
        {"masked, a bundle without light", 6, 4, 6, 0.9, 1.2, 5003, 26, 22, 1, 1, 0, 1, 0, 6, 0},
        {"many bins to a spot: longer recurrences than registers hold", 3, 4, 6, 0.55, 0.65, 5003, 26, 21, 0, 0, 0, 1,
         0, 3, 0},
        {"more bins than a strip keeps at a time", 2, 2, 7, 0.9, 1, 5001, 1, 76, 0, 0, 0, 1, 0, 3, 0},
        {"a window beyond the CCD", 5, 4, 7, 0.9, 1.2, 5003, 42, 22, 0, 0, 0, 1, 0, 4, 0},
        {"traces on each other", 3, 4, 0.02, 0.9, 1.2, 5003, 26, 22, 0, 0, 0, 1, 0, 3, 3},
        {"ranges of their own", 6, 4, 4.5, 0.9, 1.2, 5003, 26, 22, 0, 0, 1, 1, 0, 0, 6},
        {"some of them", 6, 4, 4.5, 0.9, 1.2, 5003, 26, 22, 0, 0, 0, 4, 0, 2, 0},
        {"fluxes held", 6, 4, 4.5, 0.9, 1.2, 5003, 26, 22, 0, 0, 0, 1, 1, 6, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        compare(&cases[i]);
    return failures != 0;
}
