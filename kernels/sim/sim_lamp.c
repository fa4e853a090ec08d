/* Makes the spectra of calibration lamps (sim/sim_lamp.h). */
#include "sim/sim_lamp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sim/sim.h"
#include "sim/sim_math.h"
#include "spectral/lines.h"

/* Width of a lamp's lines, Angstrom: that of neon at 400 K, lambda sqrt(kT/m)/c. Coarser grids have wider ones, which
 * keep their places. */
#define NATURAL 0.01

/* Photons of the flat lamp per Angstrom, any unit: lambda B_lambda. */
static double lamp(double wavelength)
{
    const double x = 1.438777e8 / (wavelength * 3100.0), w = wavelength / 6000.0;
    return 1.0 / (w * w * w * w * (exp(x) - 1.0));
}

void spx_sim_flat(char arm, double level, size_t nwave, const double *wavelength, double *out)
{
    double lo, hi, top = 0.0;
    spx_sim_throughput(arm, nwave, wavelength, out);
    for (size_t i = 0; i < nwave; i++)
        out[i] *= lamp(wavelength[i]);
    if (!spx_sim_arm_range(arm, &lo, &hi)) {
        lo = wavelength[0];
        hi = wavelength[nwave - 1];
    }
    for (int k = 0; k <= 1000; k++) {
        double t, w = lo + (hi - lo) * k / 1000.0;
        spx_sim_throughput(arm, 1, &w, &t);
        top = fmax(top, t * lamp(w));
    }
    for (size_t i = 0; i < nwave; i++)
        out[i] *= level / top;
}

static int by_wavelength(const void *a, const void *b)
{
    const double x = ((const spx_sim_arc_line *)a)->wavelength, y = ((const spx_sim_arc_line *)b)->wavelength;
    return (x > y) - (x < y);
}

static double normal(uint64_t seed, uint64_t index, uint32_t draw)
{
    double u[2];
    spx_sim_uniform2(seed, SPX_SIM_LAMP, 0, index, draw, u);
    return fmax(-3.0, fmin(3.0, spx_sim_normal(u)));
}

spx_status spx_sim_arc(unsigned lamps, char arm, double level, uint64_t noise_seed, size_t nwave,
                       const double *wavelength, double *out, spx_sim_arc_line **line, size_t *nline, spx_err *e)
{
    size_t most = 0, n = 0;
    spx_line *from = NULL;
    if (nwave < 2)
        return spx_fail(e, SPX_EINPUT, "%zu wavelengths: a lamp's spectrum needs at least 2", nwave);
    const double step = (wavelength[nwave - 1] - wavelength[0]) / (double)(nwave - 1);
    const double width = fmin(SPX_SIM_LINE_WIDTH, fmax(NATURAL, 0.5 * step * (1 + 1e-9)));
    spx_status st = spx_lamp_lines(lamps, &from, &most, e);
    if (st != SPX_OK || (*line = spx_alloc(most + 1, sizeof **line, e)) == NULL) {
        spx_free(from);
        return SPX_EIO;
    }
    for (size_t i = 0; i < nwave; i++)
        out[i] = 0.0;
    for (uint32_t i = 0, k = 0; i < most; i++) {
        const uint32_t g = (uint32_t)from[i].source;
        spx_sim_arc_line l = {.wavelength = from[i].wavelength};
        double through;
        k = i > 0 && from[i - 1].source == from[i].source ? k + 1 : 0; /* line k of the gas */
        if (l.wavelength < wavelength[0] || l.wavelength > wavelength[nwave - 1])
            continue;
        spx_sim_throughput(arm, 1, &l.wavelength, &through);
        l.electrons = level * from[i].strength * through / 0.3 * exp(0.1 * normal(noise_seed, g, 0)) *
                      exp(0.03 * normal(noise_seed, g, k + 1));
        memcpy(l.species, spx_lamp_symbol(g), sizeof l.species);
        spx_sim_add_line(l.wavelength, l.electrons, width, nwave, wavelength, out);
        (*line)[n++] = l;
    }
    spx_free(from);
    qsort(*line, n, sizeof **line, by_wavelength);
    *nline = n;
    return SPX_OK;
}
