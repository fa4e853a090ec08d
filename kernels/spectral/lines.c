/* Lines of the night sky and of lamps (spectral/lines.h). */
#include "spectral/lines.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "num/wave.h"

/* ---- night sky ---- */

/* Atomic lines: vacuum wavelengths; brightness of an average dark night. */
enum { OI = SPX_SKY_LINE_OI, NA = SPX_SKY_LINE_NA, REST = SPX_SKY_LINE_REST };

static const spx_line atoms[] = {
    {3651.19, 4, REST},  {4047.70, 8, REST}, {4359.56, 20, REST}, /* Hg I of lamps */
    {5462.26, 15, REST}, {5771.20, 5, REST}, {5792.27, 5, REST},  /* Hg I of lamps */
    {5199.35, 4, REST},  {5201.71, 3, REST},                      /* [N I] */
    {5578.89, 250, OI},  {6302.05, 140, OI}, {6365.54, 45, OI},   /* [O I] */
    {5891.58, 40, NA},   {5897.56, 22, NA},                       /* Na I */
    {6564.61, 6, REST},  {8448.68, 8, OI},                        /* H alpha, O I */
};

/* OH bands v'-v'' with their brightness. */
static const struct {
    int up, low;
    double rayleigh;
} bands[] = {{7, 1, 5},  {8, 2, 10},  {5, 0, 5},   {9, 3, 20},  {6, 1, 40},  {7, 2, 70},  {8, 3, 130},
             {4, 0, 60}, {9, 4, 110}, {5, 1, 160}, {6, 2, 350}, {7, 3, 500}, {8, 4, 500}, {3, 0, 400}};

enum { NBAND = sizeof bands / sizeof *bands, MAX_N = 8, BRANCHES = 6, MAX_LINES = NBAND * MAX_N * BRANCHES };

/* Vibrational terms of OH X 2Pi, cm^-1 above v = 0: they put the Q1(3/2) lines of the bands at their observed places
 * (Osterbrock et al. 1996, PASP 108, 277) to 0.1 Angstrom. */
static const double vibration[] = {0.0, 3569.6, 6973.6, 10213.9, 13291.6, 16206.9, 18958.6, 21544.1, 23958.7, 26195.7};

/* Rotational term, cm^-1, after Hill & Van Vleck (1928, Phys. Rev. 32, 250). ladder 1: J = N + 1/2 (the lower one),
 * 2: J = N - 1/2. Constants: Huber & Herzberg, Constants of Diatomic Molecules (1979). */
static double rotation(int v, int ladder, int n)
{
    double b = 18.9108 - 0.7242 * (v + 0.5), y = -139.21 / b, m = ladder == 1 ? n + 1 : n;
    double root = 0.5 * sqrt(4.0 * m * m + y * (y - 4.0)), n2 = n * (n + 1.0);
    return b * (m * m - 1.0 + (ladder == 1 ? -root : root)) - 1.938e-3 * n2 * n2;
}

/* Makes the lines of one band, out[MAX_N * BRANCHES]; returns their number. */
static size_t band_lines(int up, int low, double rayleigh, spx_line *out)
{
    const double warmth = 190.0 * 0.6950348; /* rotational temperature in cm^-1 */
    size_t n = 0;
    double sum = 0.0, ground = rotation(up, 1, 1);
    for (int ladder = 1; ladder <= 2; ladder++)
        for (int branch = -1; branch <= 1; branch++) /* J' - J'': P, Q, R */
            for (int n_low = 1; n_low <= MAX_N; n_low++) {
                int n_up = n_low + branch;
                if (n_up < 1)
                    continue;
                double omega = ladder == 1 ? 1.5 : 0.5, j = n_low + (ladder == 1 ? 0.5 : -0.5);
                double upper = rotation(up, ladder, n_up);
                double wavenumber = vibration[up] - vibration[low] + upper - rotation(low, ladder, n_low);
                /* Hoenl-London factors of a 2Pi - 2Pi transition, case (a). */
                double factor = branch == -1  ? (j * j - omega * omega) / j
                                : branch == 0 ? (2.0 * j + 1.0) * omega * omega / (j * (j + 1.0))
                                              : ((j + 1.0) * (j + 1.0) - omega * omega) / (j + 1.0);
                double strength = factor * exp(-(upper - ground) / warmth);
                if (!(strength > 0.0))
                    continue;
                out[n++] = (spx_line){1e8 / wavenumber, strength, SPX_SKY_LINE_OH};
                sum += strength;
            }
    for (size_t i = 0; i < n; i++)
        out[i].strength *= rayleigh / sum;
    return n;
}

spx_status spx_sky_lines(spx_line **line, size_t *n, spx_err *e)
{
    const size_t natom = sizeof atoms / sizeof *atoms;
    *n = 0;
    if ((*line = spx_alloc(natom + MAX_LINES, sizeof **line, e)) == NULL)
        return SPX_EIO;
    memcpy(*line, atoms, sizeof atoms);
    *n = natom;
    for (size_t k = 0; k < NBAND; k++)
        *n += band_lines(bands[k].up, bands[k].low, bands[k].rayleigh, *line + *n);
    return SPX_OK;
}

/* ---- lamps ---- */

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
} gases[] = {GAS("Hg", SPX_LAMP_HG, mercury), GAS("Cd", SPX_LAMP_CD, cadmium), GAS("Ne", SPX_LAMP_NE, neon),
             GAS("Ar", SPX_LAMP_AR, argon),   GAS("Kr", SPX_LAMP_KR, krypton), GAS("Xe", SPX_LAMP_XE, xenon)};

unsigned spx_lamp_of(const char *symbol, size_t length)
{
    for (size_t g = 0; g < SPX_NLAMP && length == 2; g++)
        if (toupper((unsigned char)symbol[0]) == gases[g].symbol[0] &&
            tolower((unsigned char)symbol[1]) == gases[g].symbol[1])
            return gases[g].bit;
    return 0;
}

const char *spx_lamp_symbol(size_t gas)
{
    return gas < SPX_NLAMP ? gases[gas].symbol : "";
}

spx_status spx_lamp_lines(unsigned lamps, spx_line **line, size_t *n, spx_err *e)
{
    size_t most = 0;
    for (size_t g = 0; g < SPX_NLAMP; g++)
        most += gases[g].n;
    *n = 0;
    if ((*line = spx_alloc(most, sizeof **line, e)) == NULL)
        return SPX_EIO;
    for (size_t g = 0; g < SPX_NLAMP; g++)
        for (size_t k = 0; k < gases[g].n && (lamps & gases[g].bit) != 0; k++)
            (*line)[(*n)++] = (spx_line){spx_air_to_vacuum(gases[g].line[k].air), gases[g].line[k].strength, (int)g};
    return SPX_OK;
}
