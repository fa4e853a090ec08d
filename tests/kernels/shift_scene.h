/* Provides exposures of simulated cameras, and PSFs that are wrong by a known motion: for tests of shifts. */
#ifndef SHIFT_SCENE_H
#define SHIFT_SCENE_H

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "random.h"
#include "shift/shift.h"
#include "sim/sim.h"
#include "sky/sky.h"

typedef struct {
    char arm;
    size_t nspec;
    double wmin, wmax;
    spx_psf psf;     /* that the light fell through */
    spx_image image; /* stars of S/N 3 to 30, one fibre in four the sky alone; sky in all */
    spx_target *target;
} shift_scene;

/* Simulated electrons are drawn, or not. */
static int shift_noise = 1;

/* dark[i] != 0: no light at all in bundle i; may be NULL. seed: of targets and noise. */
static inline shift_scene shift_expose(char arm, size_t nspec, double wmin, double wmax, uint64_t seed, double exptime,
                                       const unsigned char *dark)
{
    shift_scene s = {.arm = arm, .nspec = nspec, .wmin = wmin, .wmax = wmax};
    spx_err e = {0};
    spx_sim_ranges range = {.seed = seed,
                            .nsky = (nspec + 3) / 4,
                            .teff = {4600, 6900},
                            .logg = {2, 5},
                            .feh = {-1.5, 0},
                            .v = {-200, 200},
                            .vsini = {0, 10},
                            .mag = {18, 21}};
    const spx_sim_noise noise = {
        .seed = seed, .camera = arm, .photon_noise = shift_noise, .readnoise = 3, .fullwell = 2e5};
    CHECK(spx_sim_psf(arm, nspec, wmin, wmax, &s.psf, &e) == SPX_OK, "%s", spx_err_text(&e));
    const size_t n = spx_sim_grid_size(s.psf.wmin, s.psf.wmax, 0.1);
    double *w = spx_alloc(n, sizeof *w, &e), *flux = spx_alloc2(nspec, n, sizeof *flux, &e);
    double *sky = spx_alloc(n, sizeof *sky, &e), *norm = spx_alloc(nspec, sizeof *norm, &e);
    double *model = spx_alloc2(s.psf.npix_y, s.psf.npix_x, sizeof *model, &e);
    s.target = spx_alloc(nspec, sizeof *s.target, &e);
    if (!w || !flux || !sky || !norm || !model || !s.target) {
        CHECK(0, "memory");
        return s;
    }
    spx_sim_grid(s.psf.wmin, 0.1, n, w);
    spx_status st = spx_sim_draw(&range, nspec, s.target, &e);
    if (st == SPX_OK)
        st = spx_sim_stars(nspec, s.target, n, w, flux, norm, NULL, &e);
    if (st == SPX_OK)
        st = spx_sim_electrons(nspec, s.target, norm, arm, exptime, n, w, flux, &e);
    if (st == SPX_OK)
        st = spx_sim_sky(arm, exptime, n, w, sky, &e);
    if (st == SPX_OK)
        spx_sim_add_sky(nspec, n, sky, flux);
    for (size_t f = 0; f < nspec && dark != NULL; f++)
        if (dark[f / 25])
            memset(flux + f * n, 0, n * sizeof *flux);
    if (st == SPX_OK)
        st = spx_sim_project(&s.psf, nspec, NULL, n, w, flux, s.psf.npix_y, s.psf.npix_x, model, NULL, &e);
    if (st == SPX_OK)
        st = spx_sim_expose(s.psf.npix_y, s.psf.npix_x, model, &noise, &s.image, &e);
    CHECK(st == SPX_OK, "%s", spx_err_text(&e));
    spx_free(w);
    spx_free(flux);
    spx_free(sky);
    spx_free(norm);
    spx_free(model);
    return s;
}

static inline void shift_scene_free(shift_scene *s)
{
    spx_psf_free(&s->psf);
    spx_image_free(&s->image);
    spx_free(s->target);
}

/* Difference of the light's PSF from the one that is handed in: pixels, relative. */
typedef struct {
    double x, x_slope, y, y_slope, y_fibre, width; /* amplitudes; y_fibre: of each fibre by itself */
    double constant_x, constant_y;                 /* of all fibres */
    size_t bundle;                                 /* moved alone by bundle_x, 0: none (bundle 0 stays) */
    double bundle_x;
} shift_motion;

/* The motion of calibration tests: 0.05 pixel that varies over the slit, with slopes, 1 % in widths. */
static inline shift_motion shift_wrong_psf(void)
{
    return (shift_motion){.x = 0.05, .x_slope = 0.02, .y = 0.05, .y_slope = 0.03, .y_fibre = 0.01, .width = 0.01};
}

/* Values at u = -1 ... 1 over wmin ... wmax: dx, dy, widths. */
static inline void shift_true_motion(const shift_motion *m, size_t nspec, size_t f, double u, double out[3])
{
    const double phase = 1.3 * 2 * M_PI * (double)f / (double)nspec + 0.5;
    const double own = sqrt(2.0) * sin(12.9898 * (double)f + 78.233 * sin((double)f));
    out[0] = m->x * cos(phase) + m->x_slope * u * sin(phase) + m->constant_x +
             (m->bundle > 0 && f / 25 == m->bundle ? m->bundle_x : 0);
    out[1] = m->y * cos(phase) + m->y_slope * u * sin(phase) + m->y_fibre * own + m->constant_y;
    out[2] = m->width * cos(phase);
}

/* The PSF of before the motion: light's minus it. */
static inline void shift_psf_before(const shift_scene *s, const shift_motion *m, spx_psf *psf)
{
    spx_err e = {0};
    double lambda[9], dx[9], dy[9], at[3];
    CHECK(spx_shift_psf_copy(&s->psf, psf, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (size_t f = 0; f < s->nspec; f++) {
        for (int k = 0; k < 9; k++) {
            lambda[k] = s->wmin + (s->wmax - s->wmin) * k / 8;
            shift_true_motion(m, s->nspec, f, -1 + 2 * k / 8.0, at);
            dx[k] = -at[0];
            dy[k] = -at[1];
        }
        spx_shift_add_series(psf->x.ncoef, psf->x.coef + f * psf->x.ncoef, psf->x.wmin, psf->x.wmax, 2, 9, lambda, dx);
        spx_shift_add_series(psf->y.ncoef, psf->y.coef + f * psf->y.ncoef, psf->y.wmin, psf->y.wmax, 2, 9, lambda, dy);
        for (size_t d = 0; d < psf->ndeg; d++) {
            psf->coeff[((size_t)psf->sigx * psf->nspec + f) * psf->ndeg + d] /= 1 + at[2];
            psf->coeff[((size_t)psf->sigy * psf->nspec + f) * psf->ndeg + d] /= 1 + at[2];
        }
    }
}

static inline spx_status shift_on_cpu(void *ctx, const spx_image *image, const spx_psf *psf,
                                      const spx_motion_options *o, spx_motion_row *row, spx_motion_fit *fit, spx_err *e)
{
    (void)ctx;
    spx_fallback left;
    return spx_motion_cpu(image, psf, o, row, fit, &left, e);
}

/* Input of the sky of a frame of all fibres of a scene, role[nspec] and place[nspec] of which are filled; lamp: they
 * all see it. */
static inline spx_sky_input shift_sky_input(const shift_scene *s, const spx_frame *frame, int lamp, const double *moved,
                                            uint8_t *role, double *place)
{
    for (size_t i = 0; i < frame->nspec; i++) {
        role[i] = lamp || s->target[i].sky ? SPX_SKY_FIBRE : SPX_SKY_TARGET;
        place[i] = 2 * (double)i / (double)(frame->nspec - 1) - 1;
    }
    return (spx_sky_input){.nspec = frame->nspec,
                           .nwave = frame->arm.nwave,
                           .ndiag = frame->arm.ndiag,
                           .wavelength = frame->arm.wavelength,
                           .resolution = frame->arm.resolution,
                           .flux = frame->arm.flux,
                           .ivar = frame->arm.ivar,
                           .role = role,
                           .place = place,
                           .moved = moved};
}

#endif
