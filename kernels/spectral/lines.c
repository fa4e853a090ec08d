/* Lines of the night sky (spectral/lines.h). */
#include "spectral/lines.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

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
