/* Provides simulated exposures for tests of the extraction. */
#ifndef EXTRACT_EXPOSURE_H
#define EXTRACT_EXPOSURE_H

#include <math.h>
#include <stdint.h>

#include "base/mem.h"
#include "check.h"
#include "extract/common.h"
#include "sim/sim.h"
#include "small_psf.h"

static const uint64_t seed = 20250117u;

typedef struct {
    spx_psf *psf;
    spx_image image;
    spx_extract_options o;
} scene;

/* Electrons per Angstrom of fibre f: continuum with lines, fibres of very different brightness. */
static inline double truth(size_t f, double wavelength)
{
    double line = 0.0;
    for (double at = 5003.7; at < 5100.0; at += 9.3)
        line += 900.0 * exp(-0.5 * (wavelength - at) * (wavelength - at) / 4.0);
    return 30.0 + 40.0 * (double)(f % 5) + line;
}

/* Exposure of the fibres of a PSF with this noise, 20 Angstrom more than wmin..wmax at both ends. */
static inline scene expose_scene(spx_psf *psf, size_t ny, size_t nx, double wmin, double wmax, double dw,
                                 const spx_sim_noise *noise)
{
    scene s = {.psf = psf, .o = spx_extract_trace_defaults()};
    CHECK(psf, "memory");
    if (!psf)
        return s;
    s.o.nspec = psf->nspec;
    s.o.wmin = wmin;
    s.o.wmax = wmax;
    s.o.dw = dw;
    s.o.wave_pad = 12;
    s.o.bundle_size = 4;
    s.o.sub_bundles = 1;
    s.o.wave_step = spx_extract_nwave(&s.o);
    s.o.nthreads = 1;
    const size_t nwave = (size_t)((wmax - wmin + 40.0) / 0.25);
    double *wave = spx_alloc(nwave, sizeof *wave, NULL), *flux = spx_alloc2(psf->nspec, nwave, sizeof *flux, NULL);
    double *model = spx_alloc2(ny, nx, sizeof *model, NULL);
    spx_err e = {0};
    if (wave && flux && model) {
        spx_sim_grid(wmin - 20.0, 0.25, nwave, wave);
        for (size_t f = 0; f < psf->nspec; f++)
            for (size_t k = 0; k < nwave; k++)
                flux[f * nwave + k] = truth(f, 5000.0 + fmod(wave[k], 100.0));
        CHECK(spx_sim_project(psf, psf->nspec, NULL, nwave, wave, flux, ny, nx, model, NULL, &e) == SPX_OK &&
                  spx_sim_expose(ny, nx, model, noise, &s.image, &e) == SPX_OK,
              "%s", spx_err_text(&e));
    }
    spx_free(wave);
    spx_free(flux);
    spx_free(model);
    return s;
}

static inline scene make_scene(spx_psf *psf, size_t ny, size_t nx, double wmin, double wmax, double dw)
{
    spx_sim_noise noise = {.seed = seed, .camera = 'r', .photon_noise = 1, .readnoise = 3.0, .fullwell = 1e6};
    return expose_scene(psf, ny, nx, wmin, wmax, dw, &noise);
}

/* Bins of 1.4 pixels, as surveys have them. */
#define STEP 1.5

static inline scene make_small(const small_psf_shape *shape)
{
    return make_scene(small_psf(shape), 90, 60, shape->wmin, shape->wmax, STEP);
}

static inline void free_scene(scene *s)
{
    if (s->psf)
        spx_psf_free(s->psf);
    spx_free(s->psf);
    spx_free(s->image.data); /* spx_image_free() would need HDF5 */
    spx_free(s->image.ivar);
    spx_free(s->image.mask);
    spx_free(s->image.readnoise);
}

#endif
