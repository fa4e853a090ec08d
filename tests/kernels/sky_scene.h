/* Provides frames of sky for tests: fibres with their own resolution matrices, throughputs, shifts and widths, a sky of
 * lines on a continuum, smooth stars in some. */
#ifndef SKY_SCENE_H
#define SKY_SCENE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "calib/resolution.h"
#include "calib/series.h"
#include "random.h"
#include "sky/sky.h"

typedef struct {
    spx_sky_input in;
    double *wavelength, *resolution, *flux, *ivar, *place, *velocity, *x, *side;
    double *sky;               /* [nwave] what was put in */
    double *t, *delta, *kappa; /* [nspec] */
    double *light;             /* [nspec][nwave] sky of each fibre, without noise */
    uint8_t *role;
} sky_scene;

enum { SKY_STARS = 1, SKY_VELOCITY = 2, SKY_GRADIENT = 4, SKY_SECTORS = 8, SKY_SHIFTS = 16, SKY_MASKS = 32 };

static inline void *sky_need(size_t n, size_t size)
{
    spx_err e = {0};
    void *p = spx_alloc(n, size, &e);
    if (p == NULL)
        exit(1);
    return p;
}

/* Fibre i is sky where i % every == 0. nline: of sky lines in 100 bins. */
static inline void sky_make(sky_scene *c, size_t ns, size_t n, size_t nd, size_t every, int what, double noise)
{
    const double step = 0.8;
    memset(c, 0, sizeof *c);
    c->wavelength = sky_need(n, 8);
    c->resolution = sky_need(ns * nd * n, 8);
    c->flux = sky_need(ns * n, 8);
    c->ivar = sky_need(ns * n, 8);
    c->light = sky_need(ns * n, 8);
    c->place = sky_need(ns, 8);
    c->velocity = sky_need(ns, 8);
    c->x = sky_need(ns, 8);
    c->side = sky_need(ns, 8);
    c->sky = sky_need(n, 8);
    c->t = sky_need(ns, 8);
    c->delta = sky_need(ns, 8);
    c->kappa = sky_need(ns, 8);
    c->role = sky_need(ns, 1);
    for (size_t k = 0; k < n; k++) {
        c->wavelength[k] = 8000 + step * (double)k;
        c->sky[k] = 60 + 20 * sin((double)k / 200);
    }
    for (size_t l = 0; l < n / 12; l++) {
        const double at = 8 + uniform() * ((double)n - 16), strength = 60 * exp(1.5 * gauss());
        for (size_t k = 0; k < n; k++)
            c->sky[k] += strength * exp(-0.5 * pow(((double)k - at) / 0.7, 2));
    }
    double *s = sky_need(n, 8), *d1 = sky_need(n, 8), *d2 = sky_need(n, 8);
    for (size_t i = 0; i < ns; i++) {
        double *r = c->resolution + i * nd * n, *m = c->light + i * n;
        const double u = spx_legendre_place(0, (double)(ns - 1), (double)i);
        c->place[i] = u;
        c->role[i] = i % every == 0 ? SPX_SKY_FIBRE : SPX_SKY_TARGET;
        c->velocity[i] = 0.4 * gauss();
        c->x[i] = 100 * u + gauss();
        c->side[i] = 2 * i >= ns;
        c->t[i] = what & SKY_SHIFTS ? 1 + 0.02 * gauss() : 1;
        c->delta[i] = what & SKY_SHIFTS ? 0.02 * cos(4 * u) + 0.005 * gauss() : 0;
        c->kappa[i] = what & SKY_SHIFTS ? 0.01 * u : 0;
        for (size_t k = 0; k < n; k++) { /* rows sum to 1 */
            double sum = 0;
            for (size_t pass = 0; pass < 2; pass++)
                for (size_t b = 0; b < nd; b++) {
                    const long j = (long)k + (long)(nd / 2) - (long)b;
                    const double width = (0.85 + 0.1 * u + 0.05 * (double)k / (double)n);
                    const double value = exp(-0.5 * pow(((double)k - (double)j + 0.1 * u) / width, 2));
                    if (j < 0 || j >= (long)n)
                        continue;
                    sum += pass == 0 ? value : 0;
                    if (pass == 1)
                        r[b * n + (size_t)j] = value / sum;
                }
        }
        for (size_t k = 0; k < n; k++) {
            const double q = what & SKY_VELOCITY ? -c->wavelength[k] * c->velocity[i] / (299792.458 * step) : 0;
            s[k] = spx_interpolate8(n, c->sky, k, q) + (what & SKY_GRADIENT ? 0.05 * 60 * u : 0);
        }
        spx_resolution_apply(n, nd, r, s, m);
        spx_derivative_row(n, step, m, d1);
        spx_derivative_row(n, step, d1, d2);
        for (size_t k = 0; k < n; k++) {
            const size_t at = i * n + k;
            const double star =
                what & SKY_STARS && c->role[i] != SPX_SKY_FIBRE ? 40 + 10 * sin((double)k / 70 + (double)i) : 0;
            m[k] = c->t[i] * (m[k] + c->delta[i] * d1[k] + 0.5 * c->kappa[i] * d2[k]) +
                   (what & SKY_SECTORS && 2 * i >= ns ? (2 * k < n ? 3 : -2) : 0);
            const double variance = 9 + m[k] + star;
            c->ivar[at] = what & SKY_MASKS && uniform() < 0.02 ? 0 : 1 / variance;
            c->flux[at] = m[k] + star + noise * sqrt(variance) * gauss();
        }
    }
    spx_free(s);
    spx_free(d1);
    spx_free(d2);
    c->in = (spx_sky_input){.nspec = ns,
                            .nwave = n,
                            .ndiag = nd,
                            .wavelength = c->wavelength,
                            .resolution = c->resolution,
                            .flux = c->flux,
                            .ivar = c->ivar,
                            .role = c->role,
                            .place = c->place};
    if (what & SKY_VELOCITY)
        c->in.velocity = c->velocity;
    if (what & SKY_GRADIENT) {
        c->in.ngradient = 1;
        c->in.coordinate[0] = c->x;
        c->in.coordinate_name[0] = "x";
    }
    if (what & SKY_SECTORS) {
        c->in.side = c->side;
        c->in.split = n / 2;
    }
}

static inline void sky_free(sky_scene *c)
{
    spx_free(c->wavelength);
    spx_free(c->resolution);
    spx_free(c->flux);
    spx_free(c->ivar);
    spx_free(c->light);
    spx_free(c->place);
    spx_free(c->velocity);
    spx_free(c->x);
    spx_free(c->side);
    spx_free(c->sky);
    spx_free(c->t);
    spx_free(c->delta);
    spx_free(c->kappa);
    spx_free(c->role);
}

#endif
