/* A small bundle for the steps of the fit of PSFs: two exposures of four fibres and five lines, of which two blend, the
 * wavelength of one is free and the last is in the model only; masked pixels, spots that leave the CCD. */
#ifndef PSFFIT_BLENDS_H
#define PSFFIT_BLENDS_H

#include "psffit/fit.h"
#include "psffit_scene.h"

enum { BLENDS_LINES = 5, BLENDS_FIBRES = 4 };

/* Two exposures, shifted by (0.3, -0.2) pixel. continuum: electrons a row; hits: in a million pixels. 0: no memory. */
static inline int blends_make(double continuum, double hits, psffit_scene *s)
{
    const psffit_request r = {.nspec = BLENDS_FIBRES,
                              .bundle = BLENDS_FIBRES,
                              .ny = 64,
                              .nexp = 2,
                              .nline = BLENDS_LINES,
                              .faint = 2000,
                              .bright = 20000,
                              .continuum = continuum,
                              .readnoise = 3,
                              .hits = hits,
                              .deg = 2,
                              .seed = 3,
                              .noise = 1};
    if (!scene_make(&r, 0, s))
        return 0;
    s->line[2].wavelength = s->drawn[2] = s->drawn[1] + 1.1; /* two pixels */
    s->line[4].wavelength = s->drawn[4] = SCENE_WMIN + SCENE_STEP * 62.6;
    if (!scene_expose(s, 0, 0, 0, NULL) || !scene_expose(s, 1, 0.3, -0.2, NULL))
        return 0;
    for (size_t k = 0; k < 30; k++)
        s->image[0].mask[k * 97 % (s->image[0].nx * s->image[0].ny)] = 1;
    return 1;
}

/* nq: coefficients of the shape and width; dark[2]: variance of dark pixels; both and the scene have to stay. */
static inline spx_pf_plan blends_plan(const psffit_scene *s, int nq, const double *dark)
{
    return (spx_pf_plan){.deg = 2,
                         .norder = 5,
                         .nc = 9,
                         .nq = nq,
                         .hx = 5,
                         .hy = 4,
                         .nx = 11,
                         .ny = 9,
                         .ntr = 3,
                         .na = 2,
                         .nb = 2,
                         .wmin = 4985,
                         .wmax = 5055,
                         .height = 64,
                         .columns = s->image[0].nx,
                         .nexp = 2,
                         .nshift = 2,
                         .image = s->image,
                         .start = &s->truth,
                         .dark = dark};
}

static inline void blends_lines(const psffit_scene *s, spx_pf_line line[BLENDS_LINES])
{
    for (size_t l = 0; l < BLENDS_LINES; l++)
        line[l] = (spx_pf_line){.wave = s->drawn[l], .listed = s->drawn[l], .row = l, .free = l == 1};
}

#endif
