/* Makes the transmission of the atmosphere (sim/sim_telluric.h). */
#include "sim/sim_telluric.h"

#include <math.h>

#include "sim/sim_math.h"

#define SIGMA 0.1 /* Angstrom */

/* Places of the made-up lines: the same in every simulation. */
enum { LINES_SEED = 20 };

/* Adds a line of optical depth tau at its centre. */
static void add(double wave, double tau, size_t n, const double *w, double *out)
{
    size_t a = 0, b = n;
    while (a < b) {
        size_t mid = a + (b - a) / 2;
        if (w[mid] < wave - 6.0 * SIGMA)
            a = mid + 1;
        else
            b = mid;
    }
    for (size_t i = a; i < n && w[i] <= wave + 6.0 * SIGMA; i++) {
        double x = (w[i] - wave) / SIGMA;
        out[i] += tau * exp(-0.5 * x * x);
    }
}

/* Band of O2: origin and upper rotational constant, cm^-1; tau of its strongest line. Each rotational number N, odd
 * only, has pairs of lines some 2 cm^-1 apart to both sides of the origin (Herzberg, Spectra of Diatomic Molecules). */
static void oxygen(double origin, double upper, double tau, size_t n, const double *w, double *out)
{
    const double lower = 1.4377, warmth = 270.0 * 0.6950348;
    double most = 0.0;
    for (int N = 1; N <= 29; N += 2)
        most = fmax(most, (2 * N + 1) * exp(-lower * N * (N + 1) / warmth));
    for (int N = 1; N <= 29; N += 2) {
        const double depth = tau * (2 * N + 1) * exp(-lower * N * (N + 1) / warmth) / most;
        const double ground = origin - lower * N * (N + 1);
        const double down = ground + upper * (N - 1) * N, up = ground + upper * (N + 1) * (N + 2);
        add(1e8 / down, depth, n, w, out);
        add(1e8 / (down + 1.95), 0.9 * depth, n, w, out);
        add(1e8 / up, depth, n, w, out);
        add(1e8 / (up - 1.95), 0.9 * depth, n, w, out);
    }
}

static void water(uint64_t band, double lo, double hi, double tau, size_t n, const double *w, double *out)
{
    const size_t lines = (size_t)((hi - lo) / 2.0);
    for (size_t k = 0; k < lines; k++) {
        double u[2];
        spx_sim_uniform2(LINES_SEED, SPX_SIM_TELLURIC, 0, band << 32 | k, 0, u);
        const double at = lo + u[0] * (hi - lo), envelope = sin(3.14159265358979323846 * u[0]);
        add(at, tau * envelope * pow(10.0, -1.5 * u[1]), n, w, out);
    }
}

static void add_species(spx_sim_species species, size_t nwave, const double *wavelength, double *out)
{
    if (species == SPX_SIM_O2) {
        oxygen(15902.42, 1.3545, 0.25, nwave, wavelength, out);
        oxygen(14525.66, 1.3730, 1.8, nwave, wavelength, out);
        oxygen(13120.91, 1.3913, 6.0, nwave, wavelength, out);
    } else {
        water(0, 7160, 7340, 1.2, nwave, wavelength, out);
        water(1, 8130, 8350, 1.5, nwave, wavelength, out);
        water(2, 8940, 9240, 2.5, nwave, wavelength, out);
        water(3, 9300, 9700, 5.0, nwave, wavelength, out);
    }
}

void spx_sim_telluric_depth(spx_sim_species species, size_t nwave, const double *wavelength, double *out)
{
    for (size_t i = 0; i < nwave; i++)
        out[i] = 0.0;
    add_species(species, nwave, wavelength, out);
}

void spx_sim_telluric(double strength, size_t nwave, const double *wavelength, double *out)
{
    spx_sim_telluric_depth(SPX_SIM_O2, nwave, wavelength, out);
    add_species(SPX_SIM_H2O, nwave, wavelength, out);
    for (size_t i = 0; i < nwave; i++)
        out[i] = exp(-strength * out[i]);
}
