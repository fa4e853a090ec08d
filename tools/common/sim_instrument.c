#include <string.h>

#include "common/sim_raw_frame.h"
#include "common/sim_scene.h"
#include "common/sim_shift.h"
#include "h5/table.h"
#include "products/psf_h5.h"
#include "products/truth_h5.h"
#include "psf/psf.h"
#include "sim/sim.h"
#include "sim/sim_fibre.h"
#include "sim/sim_telluric.h"

/* Wavelengths at which the truth says how far the PSF has moved. */
enum { NSHIFT = 65 };

static spx_status move(const spx_sim_args *o, spx_run *s, spx_sim_scene *c, spx_err *e)
{
    const size_t row = c->nspec * NSHIFT;
    spx_status st = spx_sim_motion_make(&c->psf, &c->motion, e);
    if (st == SPX_OK)
        st = spx_sim_shift(o->shift, s, spx_sim_args_instrument_seed(o), c->arm, &c->motion, e);
    if (st == SPX_OK && (st = spx_sim_motion_apply(&c->motion, &c->psf, &c->drawn, e)) != SPX_OK)
        st = spx_sim_scene_psf_error(o, spx_err_context(e, "--shift %s", o->shift), e);
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

static spx_status fibres(const spx_sim_args *o, spx_sim_scene *c, spx_err *e)
{
    spx_sim_fibres f = {.throughput = o->throughput,
                        .scatter = o->fiber_scatter,
                        .seed = spx_sim_args_instrument_seed(o),
                        .noise_seed = spx_sim_args_noise_seed(o),
                        .camera = c->arm};
    if (f.throughput == 0 && f.scatter == 0 && o->fringes == 0)
        return SPX_OK;
    spx_psf_range(&c->psf, &f.wmin, &f.wmax);
    c->throughput = spx_alloc2(c->nspec, c->nwave, sizeof *c->throughput, e);
    c->scatter = spx_alloc(c->nspec, sizeof *c->scatter, e);
    if (c->throughput == NULL || c->scatter == NULL)
        return SPX_EIO;
    spx_sim_fibre_factors(&f, c->nspec, c->fiber, c->nwave, c->wavelength, c->throughput, c->scatter);
    if (o->fringes > 0)
        spx_sim_fringes(o->fringes, f.seed, c->arm, c->psf.nspec, c->nspec, c->fiber, c->nwave, c->wavelength,
                        c->throughput);
    spx_sim_multiply(c->nspec * c->nwave, c->throughput, c->flux);
    return SPX_OK;
}

static spx_status atmosphere(const spx_sim_args *o, spx_sim_scene *c, spx_err *e)
{
    if (!o->has_tellurics)
        return SPX_OK;
    c->transmission = spx_alloc(c->nwave, sizeof *c->transmission, e);
    c->response = spx_alloc(c->nwave, sizeof *c->response, e);
    if (c->transmission == NULL || c->response == NULL)
        return SPX_EIO;
    spx_sim_telluric(o->tellurics, c->nwave, c->wavelength, c->transmission);
    spx_sim_throughput(c->arm, c->nwave, c->wavelength, c->response);
    for (size_t i = 0; i < c->nspec; i++)
        spx_sim_multiply(c->nwave, c->transmission, c->flux + i * c->nwave);
    return SPX_OK;
}

/* Sky that differs from fibre to fibre. */
static spx_status field(const spx_sim_args *o, const double *factor, spx_sim_scene *c, spx_err *e)
{
    const double continuum[SPX_SIM_NSKY] = {[SPX_SIM_SKY_CONTINUUM] = factor[SPX_SIM_SKY_CONTINUUM]};
    const double oh[SPX_SIM_NSKY] = {[SPX_SIM_SKY_OH] = factor[SPX_SIM_SKY_OH]};
    double g[2], h[2], *part = NULL;
    spx_status st = spx_sim_args_gradient(o->sky_gradient, "--sky-gradient", g, e);
    if (st == SPX_OK)
        st = spx_sim_args_gradient(o->line_gradient, "--line-gradient", h, e);
    if (st != SPX_OK)
        return st;
    c->sky_fiber = spx_alloc2(c->nspec, c->nwave, sizeof *c->sky_fiber, e);
    part = spx_alloc2(2, c->nwave, sizeof *part, e);
    if (c->sky_fiber == NULL || part == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = spx_sim_sky_parts(c->arm, o->exptime, continuum, c->nwave, c->wavelength, part, e);
    if (st == SPX_OK)
        st = spx_sim_sky_parts(c->arm, o->exptime, oh, c->nwave, c->wavelength, part + c->nwave, e);
    if (st == SPX_OK)
        spx_sim_sky_field(c->nspec, c->field, c->field + c->nspec, c->nwave, c->sky, part, part + c->nwave, g, h,
                          c->sky_fiber);
    for (size_t i = 0; i < c->nspec && st == SPX_OK; i++)
        spx_sim_add_sky(1, c->nwave, c->sky_fiber + i * c->nwave, c->flux + i * c->nwave);
    spx_free(part);
    return st;
}

static spx_status night_sky(const spx_sim_args *o, spx_sim_scene *c, spx_err *e)
{
    double factor[SPX_SIM_NSKY];
    spx_status st = spx_sim_args_sky(o, factor, e);
    if (st == SPX_OK && (c->sky = spx_alloc(c->nwave, sizeof *c->sky, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = spx_sim_sky_parts(c->arm, o->exptime, factor, c->nwave, c->wavelength, c->sky, e);
    if (st == SPX_OK && c->field != NULL)
        st = field(o, factor, c, e);
    else if (st == SPX_OK)
        spx_sim_add_sky(c->nspec, c->nwave, c->sky, c->flux);
    return st;
}

spx_status spx_sim_scene_light(const spx_sim_args *o, spx_run *s, spx_sim_scene *c, spx_err *e)
{
    const int lamp = o->flat || o->arc != NULL;
    if (!lamp && o->star_error > 0)
        spx_sim_star_errors(o->star_error, (uint64_t)o->seed, c->nspec, c->fiber, c->nwave, c->wavelength, c->flux);
    spx_status st = lamp ? SPX_OK : atmosphere(o, c, e);
    if (st == SPX_OK && !lamp && (o->sky_gradient != NULL || o->line_gradient != NULL)) {
        if ((c->field = spx_alloc2(2, c->nspec, sizeof *c->field, e)) == NULL)
            st = SPX_EIO;
        for (size_t i = 0; i < c->nspec && st == SPX_OK; i++)
            spx_sim_focal_plane(c->target + i, c->field + i, c->field + c->nspec + i);
    }
    if (st == SPX_OK && o->sky && !lamp)
        st = night_sky(o, c, e);
    if (st == SPX_OK)
        st = fibres(o, c, e);
    return st == SPX_OK && o->shift != NULL ? move(o, s, c, e) : st;
}

/* No light reaches the CCD beyond the range of a trace that has one of its own: the truth has none either. */
static void end_traces(spx_sim_scene *c)
{
    for (size_t s = 0; s < c->nspec && c->psf.wave_range != NULL; s++) {
        const double *range = c->psf.wave_range + 2 * (size_t)c->fiber[s];
        for (size_t k = 0; k < c->nwave; k++)
            if (c->wavelength[k] < range[0] || c->wavelength[k] > range[1])
                c->flux[s * c->nwave + k] = 0.0;
    }
}

spx_status spx_sim_scene_expose(const spx_sim_args *o, spx_run *s, spx_sim_scene *c, spx_err *e)
{
    const size_t ny = c->psf.npix_y, nx = c->psf.npix_x;
    spx_sim_noise n;
    spx_status st = spx_sim_args_noise(o, c->arm, ny, &n, e);
    if (st == SPX_OK && o->amp_offsets != NULL) {
        if ((c->amplifier = spx_alloc(4, sizeof *c->amplifier, e)) == NULL)
            st = SPX_EIO;
        else
            memcpy(c->amplifier, n.offset, sizeof n.offset);
    }
    if (st == SPX_OK && n.hide_cosmics && (n.hits = c->hits = spx_alloc2(ny, nx, sizeof *c->hits, e)) == NULL)
        st = SPX_EIO;
    double *model = st == SPX_OK ? spx_alloc2(ny, nx, sizeof *model, e) : NULL;
    if (st == SPX_OK && model == NULL)
        st = SPX_EIO;
    end_traces(c);
    spx_run_step(s, "project");
    if (st == SPX_OK) {
        spx_progress *p = spx_progress_start(s->common.progress, "project", "rows", ny);
        st = spx_sim_project_family(c->drawn.nspec > 0 ? &c->drawn : &c->psf, o->spots, c->nspec, c->fiber, c->nwave,
                                    c->wavelength, c->flux, ny, nx, model, p, e);
        spx_progress_end(p);
        st = spx_sim_scene_psf_error(o, st, e);
    }
    if (st == SPX_OK && o->tails > 0)
        st = spx_sim_tails(o->tails, ny, nx, model, e);
    spx_run_step(s, "expose");
    if (st == SPX_OK && o->raw != NULL)
        st = spx_sim_raw_light(o, c, model, e);
    if (st == SPX_OK && o->raw != NULL) /* that of the amplifiers follows */
        n.readnoise = 0.01;
    if (st == SPX_OK)
        st = spx_sim_expose(ny, nx, model, &n, &c->image, e);
    spx_free(model);
    return st == SPX_OK && o->raw != NULL ? spx_sim_raw_expose(o, c, e) : st;
}

/* Adds the places on the focal plane to a table of nrow fibres, the first of which is fibre `first`. */
static spx_status add_field(const spx_sim_scene *c, size_t first, size_t nrow, spx_table *t, spx_err *e)
{
    static const char *const name[] = {"FIBERASSIGN_X", "FIBERASSIGN_Y"};
    double *v = spx_alloc(nrow, sizeof *v, e);
    spx_status st = v == NULL ? SPX_EIO : SPX_OK;
    for (size_t k = 0; k < 2 && st == SPX_OK; k++) {
        memcpy(v + (c->first - first), c->field + k * c->nspec, c->nspec * sizeof *v);
        st = spx_table_add(t, name[k], H5T_NATIVE_DOUBLE, "mm", v, e);
    }
    spx_free(v);
    return st;
}

/* Numbers the fibres of a table, whose first row is fibre `first` of its petal, as an instrument of ten petals does. */
static spx_status number_fibers(long petal, size_t first, size_t nrow, spx_table *t, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < nrow && st == SPX_OK && petal > 0; i++)
        st = spx_table_set_i64(t, "FIBER", i, 500 * petal + (int64_t)(first + i), e);
    return st;
}

/* Adds DESI_TARGET to a table of nrow fibres, the first of which is fibre `first`: 0 but for the first `n` targets. */
static spx_status add_standards(const spx_sim_scene *c, long n, size_t first, size_t nrow, spx_table *t, spx_err *e)
{
    const int64_t std_bright = INT64_C(1) << 35; /* a bit of desitarget's desi_mask */
    int64_t *bits = spx_alloc(nrow, sizeof *bits, e);
    if (bits == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < c->nspec && n > 0; i++)
        if (!c->target[i].sky && n-- > 0)
            bits[c->first - first + i] = std_bright;
    spx_status st = spx_table_add(t, "DESI_TARGET", H5T_NATIVE_INT64, NULL, bits, e);
    spx_free(bits);
    return st;
}

spx_status spx_sim_scene_tables(const spx_sim_args *o, spx_sim_scene *c, spx_err *e)
{
    const int standards = o->standards > 0 && !o->flat && o->arc == NULL;
    spx_status st = number_fibers(o->petal, 0, c->psf.nspec, c->image.fibermap, e);
    if (st == SPX_OK)
        st = number_fibers(o->petal, c->first, c->nspec, c->truth, e);
    if (st == SPX_OK && standards)
        st = add_standards(c, o->standards, 0, c->psf.nspec, c->image.fibermap, e);
    if (st == SPX_OK && standards)
        st = add_standards(c, o->standards, c->first, c->nspec, c->truth, e);
    if (st == SPX_OK && c->field != NULL)
        st = add_field(c, 0, c->psf.nspec, c->image.fibermap, e);
    if (st == SPX_OK && c->field != NULL)
        st = add_field(c, c->first, c->nspec, c->truth, e);
    if (st == SPX_OK && c->scatter != NULL)
        st = spx_table_add(c->truth, "FIBER_SCATTER", H5T_NATIVE_DOUBLE, NULL, c->scatter, e);
    return st;
}

spx_status spx_sim_scene_write_truth(hid_t file, const spx_sim_scene *c, spx_err *e)
{
    const spx_truth truth = {.nspec = c->nspec,
                             .nwave = c->nwave,
                             .wavelength = c->wavelength,
                             .flux = c->flux,
                             .sky = c->sky,
                             .table = c->truth,
                             .throughput = c->throughput,
                             .sky_fiber = c->sky_fiber,
                             .transmission = c->transmission,
                             .response = c->response,
                             .amplifier = c->amplifier,
                             .ny = c->image.ny,
                             .nx = c->image.nx,
                             .hits = c->hits,
                             .electrons = c->electrons,
                             .bias = c->structure.bias,
                             .dark = c->structure.dark,
                             .pixel_response = c->structure.response,
                             .lines = c->lines,
                             .nshift = c->nshift,
                             .shift_wavelength = c->shift_wave,
                             .shift = c->shift};
    spx_status st = spx_truth_write(file, &truth, e);
    return st == SPX_OK && c->drawn.nspec > 0 ? spx_psf_write(file, &c->drawn, e) : st;
}
