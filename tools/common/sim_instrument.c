#include "common/sim_scene.h"
#include "common/sim_shift.h"
#include "psf/psf.h"
#include "sim/sim_fibre.h"

/* Wavelengths at which the truth says how far the PSF has moved. */
enum { NSHIFT = 65 };

static spx_status move(const spx_sim_args *o, spx_run *s, spx_sim_scene *c, spx_err *e)
{
    const size_t row = c->nspec * NSHIFT;
    spx_status st = spx_sim_motion_make(&c->psf, &c->motion, e);
    if (st == SPX_OK)
        st = spx_sim_shift(o->shift, s, (uint64_t)o->seed, c->arm, &c->motion, e);
    if (st == SPX_OK && (st = spx_sim_motion_apply(&c->motion, &c->psf, &c->drawn, e)) != SPX_OK)
        st = spx_err_context(e, "--shift %s", o->shift);
    if (st != SPX_OK)
        return st;
    c->nshift = NSHIFT;
    c->shift_wave = spx_alloc(NSHIFT, sizeof *c->shift_wave, e);
    c->shift = spx_alloc2(SPX_SIM_NMOTION, row, sizeof *c->shift, e);
    if (c->shift_wave == NULL || c->shift == NULL)
        return SPX_EIO;
    spx_sim_grid(c->wavelength[0], (c->wavelength[c->nwave - 1] - c->wavelength[0]) / (NSHIFT - 1), NSHIFT,
                 c->shift_wave);
    for (size_t i = 0; i < c->nspec; i++)
        for (size_t k = 0; k < NSHIFT; k++) {
            double v[SPX_SIM_NMOTION];
            spx_sim_motion_at(&c->motion, (size_t)c->fiber[i], c->shift_wave[k], v);
            for (size_t q = 0; q < SPX_SIM_NMOTION; q++)
                c->shift[q * row + i * NSHIFT + k] = v[q];
        }
    return SPX_OK;
}

spx_status spx_sim_scene_instrument(const spx_sim_args *o, spx_run *s, spx_sim_scene *c, spx_err *e)
{
    spx_status st = o->shift != NULL ? move(o, s, c, e) : SPX_OK;
    spx_sim_fibres f = {.throughput = o->throughput,
                        .scatter = o->fiber_scatter,
                        .seed = (uint64_t)o->seed,
                        .noise_seed = spx_sim_args_noise_seed(o),
                        .camera = c->arm};
    if (st != SPX_OK || (f.throughput == 0 && f.scatter == 0))
        return st;
    spx_psf_range(&c->psf, &f.wmin, &f.wmax);
    c->throughput = spx_alloc2(c->nspec, c->nwave, sizeof *c->throughput, e);
    c->scatter = spx_alloc(c->nspec, sizeof *c->scatter, e);
    if (c->throughput == NULL || c->scatter == NULL)
        return SPX_EIO;
    spx_sim_fibre_factors(&f, c->nspec, c->fiber, c->nwave, c->wavelength, c->throughput, c->scatter);
    return SPX_OK;
}

spx_status spx_sim_scene_truth(spx_sim_scene *c, spx_err *e)
{
    return c->scatter == NULL ? SPX_OK
                              : spx_table_add(c->truth, "FIBER_SCATTER", H5T_NATIVE_DOUBLE, NULL, c->scatter, e);
}
