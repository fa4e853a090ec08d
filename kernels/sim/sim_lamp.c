/* Makes the spectra of calibration lamps (sim/sim_lamp.h). */
#include "sim/sim_lamp.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "num/wave.h"
#include "sim/sim.h"
#include "sim/sim_math.h"

typedef struct {
    double air, strength; /* wavelength in air, Angstrom; of the brightest line */
} arc_line;

/* NIST Atomic Spectra Database, neutral atoms. */
static const arc_line mercury[] = {{3650.158, 0.35}, {3654.842, 0.1},  {3663.284, 0.08},
                                   {4046.565, 0.4},  {4077.837, 0.04}, {4358.335, 1},
                                   {5460.750, 0.9},  {5769.610, 0.2},  {5790.670, 0.22}};
static const arc_line cadmium[] = {{3610.508, 0.3}, {3612.873, 0.08}, {4678.149, 0.4},
                                   {4799.912, 0.7}, {5085.822, 1},    {6438.470, 0.8}};
static const arc_line neon[] = {
    {5330.778, 0.04}, {5341.094, 0.06}, {5400.562, 0.12}, {5764.419, 0.04}, {5852.488, 0.5},  {5881.895, 0.25},
    {5944.834, 0.35}, {5975.534, 0.15}, {6030.000, 0.12}, {6074.338, 0.35}, {6096.163, 0.45}, {6143.063, 0.65},
    {6163.594, 0.25}, {6217.281, 0.2},  {6266.495, 0.35}, {6304.789, 0.15}, {6334.428, 0.55}, {6382.992, 0.6},
    {6402.248, 1},    {6506.528, 0.8},  {6532.882, 0.3},  {6598.953, 0.45}, {6678.276, 0.75}, {6717.043, 0.35},
    {6929.467, 0.6},  {7024.050, 0.1},  {7032.413, 0.9},  {7173.938, 0.2},  {7245.167, 0.6},  {7438.899, 0.3},
    {7488.871, 0.1},  {7535.774, 0.1},  {8136.406, 0.04}, {8300.326, 0.12}, {8377.608, 0.25}, {8418.427, 0.08},
    {8495.360, 0.2},  {8591.259, 0.08}, {8634.647, 0.12}, {8654.383, 0.2},  {8780.622, 0.2},  {8783.755, 0.12},
    {8853.867, 0.12}, {9148.672, 0.06}, {9201.759, 0.06}, {9300.853, 0.06}, {9326.507, 0.04}, {9425.379, 0.06},
    {9486.682, 0.05}, {9534.163, 0.04}, {9665.424, 0.08}};
static const arc_line argon[] = {
    {6965.431, 0.25}, {7067.218, 0.25}, {7147.042, 0.04}, {7272.936, 0.08}, {7383.981, 0.25},
    {7503.869, 0.45}, {7514.652, 0.3},  {7635.106, 0.7},  {7723.761, 0.25}, {7724.207, 0.25},
    {7948.176, 0.35}, {8006.157, 0.3},  {8014.786, 0.4},  {8103.693, 0.4},  {8115.311, 1},
    {8264.522, 0.35}, {8408.210, 0.45}, {8424.648, 0.6},  {8521.442, 0.35}, {8667.944, 0.12},
    {9122.967, 0.7},  {9224.499, 0.25}, {9354.220, 0.08}, {9657.786, 0.3},  {9784.503, 0.12}};
static const arc_line krypton[] = {
    {4273.969, 0.03}, {4319.579, 0.03}, {4376.121, 0.03}, {4463.690, 0.03}, {4502.353, 0.03},
    {5562.225, 0.1},  {5570.289, 0.4},  {5870.916, 0.55}, {7587.414, 0.5},  {7601.546, 1},
    {7685.246, 0.3},  {7694.540, 0.45}, {7854.823, 0.35}, {7913.425, 0.06}, {8059.505, 0.4},
    {8104.366, 0.7},  {8112.901, 0.9},  {8190.057, 0.55}, {8263.243, 0.45}, {8281.052, 0.25},
    {8298.110, 0.6},  {8508.873, 0.4},  {8776.751, 0.45}, {8928.693, 0.5},  {9751.761, 0.12}};
static const arc_line xenon[] = {
    {4500.977, 0.06}, {4524.681, 0.03}, {4624.276, 0.1},  {4671.226, 0.15}, {4734.152, 0.06}, {4807.019, 0.05},
    {7642.024, 0.1},  {7887.393, 0.05}, {7967.342, 0.08}, {8231.634, 0.8},  {8280.117, 0.7},  {8346.822, 0.5},
    {8409.189, 0.3},  {8819.411, 1},    {8952.251, 0.45}, {9045.447, 0.35}, {9162.652, 0.45}, {9799.699, 0.35}};

#define GAS(symbol, bit, lines)                                                                                        \
    {                                                                                                                  \
        symbol, bit, sizeof(lines) / sizeof *(lines), lines                                                            \
    }

static const struct {
    char symbol[3];
    unsigned bit;
    size_t n;
    const arc_line *line;
} gases[] = {GAS("Hg", SPX_SIM_HG, mercury), GAS("Cd", SPX_SIM_CD, cadmium), GAS("Ne", SPX_SIM_NE, neon),
             GAS("Ar", SPX_SIM_AR, argon),   GAS("Kr", SPX_SIM_KR, krypton), GAS("Xe", SPX_SIM_XE, xenon)};

enum { NGAS = sizeof gases / sizeof *gases };

unsigned spx_sim_lamp_of(const char *symbol, size_t length)
{
    for (size_t g = 0; g < NGAS && length == 2; g++)
        if (toupper((unsigned char)symbol[0]) == gases[g].symbol[0] &&
            tolower((unsigned char)symbol[1]) == gases[g].symbol[1])
            return gases[g].bit;
    return 0;
}

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
    if (nwave < 2)
        return spx_fail(e, SPX_EINPUT, "%zu wavelengths: a lamp's spectrum needs at least 2", nwave);
    for (size_t g = 0; g < NGAS; g++)
        most += gases[g].n;
    if ((*line = spx_alloc(most, sizeof **line, e)) == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < nwave; i++)
        out[i] = 0.0;
    for (uint32_t g = 0; g < NGAS; g++)
        for (uint32_t k = 0; k < gases[g].n && (lamps & gases[g].bit) != 0; k++) {
            spx_sim_arc_line l = {.wavelength = spx_air_to_vacuum(gases[g].line[k].air)};
            double through;
            if (l.wavelength < wavelength[0] || l.wavelength > wavelength[nwave - 1])
                continue;
            spx_sim_throughput(arm, 1, &l.wavelength, &through);
            l.electrons = level * gases[g].line[k].strength * through / 0.3 * exp(0.1 * normal(noise_seed, g, 0)) *
                          exp(0.03 * normal(noise_seed, g, k + 1));
            memcpy(l.species, gases[g].symbol, sizeof l.species);
            spx_sim_add_line(l.wavelength, l.electrons, nwave, wavelength, out);
            (*line)[n++] = l;
        }
    qsort(*line, n, sizeof **line, by_wavelength);
    *nline = n;
    return SPX_OK;
}
