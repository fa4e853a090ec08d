/* Draws targets, and magnitudes for a signal-to-noise ratio (sim/sim.h). */
#include <math.h>

#include "sim/sim.h"
#include "sim/sim_math.h"

static int range_ok(const double r[2], double lo, double hi)
{
    return isfinite(r[0]) && isfinite(r[1]) && r[0] <= r[1] && r[0] >= lo && r[1] <= hi;
}

static double within(const double r[2], double u)
{
    return r[0] + (r[1] - r[0]) * u;
}

spx_status spx_sim_draw(const spx_sim_ranges *range, size_t nspec, spx_target *target, spx_err *e)
{
    const struct {
        const char *name;
        const double *r;
        double lo, hi;
    } check[] = {{"teff", range->teff, 1e3, 1e5},       {"logg", range->logg, -5, 15},
                 {"feh", range->feh, -10, 10},          {"alpha", range->alpha, -10, 10},
                 {"velocity", range->v, -99999, 99999}, {"vsini", range->vsini, 0, 1000},
                 {"magnitude", range->mag, -20, 60}};
    for (size_t i = 0; i < sizeof check / sizeof *check; i++)
        if (!range_ok(check[i].r, check[i].lo, check[i].hi))
            return spx_fail(e, SPX_EUSAGE, "%s from %g to %g: give a range MIN:MAX within %g:%g", check[i].name,
                            check[i].r[0], check[i].r[1], check[i].lo, check[i].hi);
    if (range->nsky > nspec)
        return spx_fail(e, SPX_EUSAGE, "{sky_fibers}: %zu sky fibres of %zu fibres: ask for fewer", range->nsky, nspec);

    for (size_t i = 0; i < nspec; i++) {
        spx_target *t = target + i;
        double u[12];
        for (uint32_t k = 0; k < 6; k++)
            spx_sim_uniform2(range->seed, SPX_SIM_TARGET, 0, i, k, u + 2 * k);
        t->targetid = (int64_t)((range->seed & 0x7fffffff) << 24 | (uint64_t)(i + 1));
        t->sky = (i + 1) * range->nsky / nspec > i * range->nsky / nspec;
        /* A field of 3.2 degrees around (150, +2). */
        t->ra = 150.0 + 3.2 * (u[0] - 0.5);
        t->dec = 2.0 + 3.2 * (u[1] - 0.5);
        t->teff = within(range->teff, u[2]);
        t->logg = within(range->logg, u[3]);
        t->feh = within(range->feh, u[4]);
        t->alpha = within(range->alpha, u[5]);
        t->v = within(range->v, u[6]);
        t->vsini = within(range->vsini, u[7]);
        t->mag = within(range->mag, u[8]);
        t->member = (size_t)(u[9] * (double)range->nlibrary);
    }
    return SPX_OK;
}

/* Electrons per Angstrom at the reference wavelength, r arm. */
static double reference_electrons(double mag, double exptime)
{
    double throughput, wave = SPX_SIM_WAVE_REF;
    spx_sim_throughput('r', 1, &wave, &throughput);
    return spx_sim_photons(mag, wave) * SPX_SIM_MIRROR * exptime * throughput;
}

spx_status spx_sim_magnitude(double snr, double exptime, double readnoise, int sky, double *mag, spx_err *e)
{
    if (!(snr > 0.0 && snr < 1e6))
        return spx_fail(e, SPX_EUSAGE, "{snr}: signal-to-noise ratio %g: give one above 0 and below 1e6", snr);
    if (!(exptime > 0.0 && exptime < 1e9))
        return spx_fail(e, SPX_EUSAGE, "exposure time %g s: give one above 0", exptime);
    /* A Gaussian spot of sigma 1.05 pixel across has 2 sqrt(pi) sigma effective columns; two rows an Angstrom. */
    double background = 2.0 * 1.05 * 3.5449 * readnoise * readnoise;
    if (sky)
        background += reference_electrons(21.3, exptime) * SPX_SIM_FIBRE_AREA;
    double s2 = snr * snr, electrons = 0.5 * (s2 + sqrt(s2 * (s2 + 4.0 * background)));
    *mag = -2.5 * log10(electrons / (reference_electrons(0.0, exptime) * SPX_SIM_FIBRE_LIGHT));
    return SPX_OK;
}

size_t spx_sim_nodes(const spx_sim_axis axis[SPX_SIM_NAXIS])
{
    size_t n = 1;
    for (int i = 0; i < SPX_SIM_NAXIS; i++)
        n *= axis[i].n;
    return n;
}

void spx_sim_node(const spx_sim_axis axis[SPX_SIM_NAXIS], size_t k, spx_target *star)
{
    double *const value[SPX_SIM_NAXIS] = {&star->teff, &star->logg, &star->feh, &star->alpha};
    for (int i = SPX_SIM_NAXIS - 1; i >= 0; i--) {
        *value[i] = axis[i].v[k % axis[i].n];
        k /= axis[i].n;
    }
}
