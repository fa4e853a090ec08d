/* Provides exposures of flat spectra, one of them far brighter than the others, and their extraction: for tests of
 * light beyond the spots. */
#ifndef EXTRACT_BRIGHT_H
#define EXTRACT_BRIGHT_H

#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "extract/extract.h"
#include "sim/sim.h"

enum { NFIBRE = 12, BRIGHT = 6 };

/* Spectra in electrons per Angstrom; wavelengths are extracted from first + 5 to last - 5, and have light up to
 * `beyond` before first and behind last. */
typedef struct {
    double first, last, beyond, faint, ratio;
} scene;

static inline void camera(const scene *s, double amplitude, double index, spx_psf *p)
{
    spx_err e = {0};
    spx_sim_camera c = spx_sim_camera_defaults();
    c.tail = amplitude;
    c.tail_index = index;
    CHECK(spx_sim_psf_camera(&c, 'r', NFIBRE, s->first, s->last, p, &e) == SPX_OK, "%s", spx_err_text(&e));
}

/* Truth of a fibre. */
static inline double truth(const scene *s, size_t fibre)
{
    return fibre == BRIGHT ? s->ratio * s->faint : s->faint;
}

/* Light on the CCD; free with spx_free(). */
static inline double *project(const scene *s, const spx_psf *p)
{
    spx_err e = {0};
    const double step = 0.4;
    const size_t n = (size_t)((s->last - s->first + 2 * s->beyond) / step);
    double *wave = spx_alloc(n, sizeof *wave, NULL), *flux = spx_alloc2(NFIBRE, n, sizeof *flux, NULL);
    double *model = spx_alloc2(p->npix_y, p->npix_x, sizeof *model, NULL);
    spx_sim_grid(s->first - s->beyond, step, n, wave);
    for (size_t i = 0; i < NFIBRE * n; i++)
        flux[i] = truth(s, i / n);
    CHECK(spx_sim_project(p, NFIBRE, NULL, n, wave, flux, p->npix_y, p->npix_x, model, NULL, &e) == SPX_OK, "%s",
          spx_err_text(&e));
    spx_free(wave);
    spx_free(flux);
    return model;
}

static inline spx_extract_options options(const scene *s, size_t bundle, int corrections)
{
    spx_extract_options o = spx_extract_trace_defaults();
    o.nspec = NFIBRE;
    o.bundle_size = bundle;
    o.wmin = s->first + 5;
    o.wmax = s->last - 5;
    o.dw = 0.8;
    o.tail_corrections = corrections;
    o.nthreads = 2;
    return o;
}

static inline spx_frame extract(const spx_image *image, const spx_psf *p, const spx_extract_options *o,
                                spx_extract_counts *counts)
{
    spx_frame f = {0};
    spx_err e = {0};
    CHECK(spx_extract_trace_cpu(image, p, o, &f, counts, &e) == SPX_OK, "%s", spx_err_text(&e));
    return f;
}

#endif
