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

/* Whether b has the bits of a from fibre `from` on. */
static inline int same(const spx_frame *a, size_t from, const spx_frame *b)
{
    const size_t n = b->nspec * b->arm.nwave, at = from * b->arm.nwave;
    return memcmp(a->arm.flux + at, b->arm.flux, n * sizeof(double)) == 0 &&
           memcmp(a->arm.ivar + at, b->arm.ivar, n * sizeof(double)) == 0 &&
           memcmp(a->chi2pix + at, b->chi2pix, n * sizeof(double)) == 0 &&
           memcmp(a->arm.resolution + at * b->arm.ndiag, b->arm.resolution, n * b->arm.ndiag * sizeof(double)) == 0 &&
           (!b->background || memcmp(a->background + at, b->background, n * sizeof(double)) == 0);
}

/* One thread gives the bits of f, of two, and so do three fibres alone, the bright one not among them. */
static inline void check_same(const spx_image *image, const spx_psf *p, spx_extract_options o, const spx_frame *f)
{
    spx_extract_counts counts;
    o.nthreads = 1;
    spx_frame again = extract(image, p, &o, &counts);
    CHECK(same(f, 0, &again), "one thread and two");
    spx_frame_free(&again);
    o.first = 2;
    o.nspec = 3;
    again = extract(image, p, &o, &counts);
    CHECK(same(f, 2, &again), "three fibres alone");
    spx_frame_free(&again);
}

#endif
