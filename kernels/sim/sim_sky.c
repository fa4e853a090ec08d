/* Makes the night sky: continuum, atomic lines, OH Meinel bands (sim/sim.h). */
#include <math.h>

#include "base/mem.h"
#include "sim/sim.h"
#include "sim/sim_math.h"

/* 10^6/(4 pi) photons/s/cm^2/sr, per square arcsecond. */
#define RAYLEIGH 1.8704e-6

typedef struct {
    double wave, rayleigh; /* vacuum Angstrom, brightness */
    int part;              /* SPX_SIM_SKY_OI ... */
} sky_line;

/* Atomic lines: vacuum wavelengths; brightness of an average dark night. */
enum { OI = SPX_SIM_SKY_OI, NA = SPX_SIM_SKY_NA, REST = SPX_SIM_SKY_REST };

static const sky_line atoms[] = {
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
static size_t band_lines(int up, int low, double rayleigh, sky_line *out)
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
                out[n].wave = 1e8 / wavenumber;
                out[n++].rayleigh = strength;
                sum += strength;
            }
    for (size_t i = 0; i < n; i++)
        out[i].rayleigh *= rayleigh / sum;
    return n;
}

void spx_sim_add_line(double wave, double photons, size_t nwave, const double *wavelength, double *out)
{
    const double sigma = 0.05, reach = 6.0 * sigma, scale = 1.0 / (sigma * sqrt(2.0));
    size_t i0 = 0, i1 = nwave;
    while (i0 < i1) { /* first sample that ends beyond the line's blue end */
        size_t mid = i0 + (i1 - i0) / 2;
        if (spx_sim_edge(nwave, wavelength, mid + 1) < wave - reach)
            i0 = mid + 1;
        else
            i1 = mid;
    }
    for (size_t i = i0; i < nwave; i++) {
        double a = spx_sim_edge(nwave, wavelength, i), b = spx_sim_edge(nwave, wavelength, i + 1);
        if (a > wave + reach)
            break;
        out[i] += photons * 0.5 * (erf((b - wave) * scale) - erf((a - wave) * scale)) / (b - a);
    }
}

static void add_line(const sky_line *l, double factor, size_t nwave, const double *wavelength, double *out)
{
    spx_sim_add_line(l->wave, l->rayleigh * RAYLEIGH * factor, nwave, wavelength, out);
}

spx_status spx_sim_sky_parts(char arm, double exptime, const double *factor, size_t nwave, const double *wavelength,
                             double *out, spx_err *e)
{
    if (nwave < 2)
        return spx_fail(e, SPX_EINPUT, "%zu wavelengths: a sky spectrum needs at least 2", nwave);
    double *throughput = spx_alloc(nwave, sizeof *throughput, e);
    sky_line *lines = spx_alloc(MAX_LINES, sizeof *lines, e);
    if (throughput == NULL || lines == NULL) {
        spx_free(throughput);
        spx_free(lines);
        return SPX_EIO;
    }
    spx_sim_throughput(arm, nwave, wavelength, throughput);
    for (size_t i = 0; i < nwave; i++)
        out[i] = factor[SPX_SIM_SKY_CONTINUUM] *
                 spx_sim_photons(21.3 - 0.38e-3 * (wavelength[i] - SPX_SIM_WAVE_REF), wavelength[i]);
    for (size_t k = 0; k < sizeof atoms / sizeof *atoms; k++)
        add_line(atoms + k, factor[atoms[k].part], nwave, wavelength, out);
    for (size_t k = 0; k < NBAND; k++) {
        size_t n = band_lines(bands[k].up, bands[k].low, bands[k].rayleigh, lines);
        for (size_t i = 0; i < n; i++)
            add_line(lines + i, factor[SPX_SIM_SKY_OH], nwave, wavelength, out);
    }
    for (size_t i = 0; i < nwave; i++)
        out[i] *= throughput[i] * SPX_SIM_MIRROR * SPX_SIM_FIBRE_AREA * exptime;
    spx_free(throughput);
    spx_free(lines);
    return SPX_OK;
}

spx_status spx_sim_sky(char arm, double exptime, size_t nwave, const double *wavelength, double *out, spx_err *e)
{
    static const double one[SPX_SIM_NSKY] = {1, 1, 1, 1, 1};
    return spx_sim_sky_parts(arm, exptime, one, nwave, wavelength, out, e);
}

void spx_sim_sky_vary(double rms, uint64_t noise_seed, double *factor)
{
    for (uint64_t q = SPX_SIM_SKY_OH; q < SPX_SIM_NSKY; q++) {
        double u[2];
        spx_sim_uniform2(noise_seed, SPX_SIM_FIELD, 0, q, 0, u);
        factor[q] *= exp(rms * spx_sim_normal(u));
    }
}

void spx_sim_sky_field(size_t nspec, const double *x, const double *y, size_t nwave, const double *sky,
                       const double *continuum, const double *oh, const double g[2], const double h[2], double *out)
{
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < nspec; i++) {
        const double a = (g[0] * x[i] + g[1] * y[i]) / 400.0, b = (h[0] * x[i] + h[1] * y[i]) / 400.0;
        for (size_t k = 0; k < nwave; k++)
            out[i * nwave + k] = fmax(0.0, sky[k] + a * continuum[k] + b * oh[k]);
    }
}

void spx_sim_focal_plane(const spx_target *target, double *x, double *y)
{
    *x = -250.0 * (target->ra - 150.0) * cos(2.0 * 3.14159265358979323846 / 180.0);
    *y = 250.0 * (target->dec - 2.0);
}
