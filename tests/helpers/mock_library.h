/* Provides the simulated star library behind rv/mock-coadd.fits.gz and rv/reference-templates.h5 (shared test data; the
 * formula is that of tools/make-star-library.py there), so that tests need no Python and no large file: 924 spectra, 11
 * teff x 6 logg x 7 feh x 2 alpha, on 3400-10000 Angstrom in vacuum, step 0.1. Its line list is drawn from numpy's
 * default_rng(3). */
#ifndef MOCK_LIBRARY_H
#define MOCK_LIBRARY_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

enum { MOCK_NWAVE = 66000, MOCK_NLINE = 2500, MOCK_NTEMP = 924, MOCK_NPAR = 4 };

/* ---- numpy's PCG64 (XSL-RR 128/64, O'Neill 2014) seeded through SeedSequence, and its normal deviates ---- */

typedef struct {
    unsigned __int128 state, inc;
    uint64_t k[256]; /* ziggurat of 256 layers (Marsaglia & Tsang 2000, Doornik 2005), 52 bits */
    double w[256], f[256];
} mock_rng;

static const double mock_zig_r = 3.6541528853610087963519472518;

static inline uint64_t mock_next(mock_rng *g)
{
    const unsigned __int128 mult = (unsigned __int128)2549297995355413924u << 64 | 4865540595714422341u;
    g->state = g->state * mult + g->inc;
    uint64_t x = (uint64_t)(g->state >> 64) ^ (uint64_t)g->state;
    unsigned rot = (unsigned)(g->state >> 122);
    return x >> rot | x << (-rot & 63);
}

static inline double mock_uniform(mock_rng *g)
{
    return (double)(mock_next(g) >> 11) / 9007199254740992.0;
}

static inline double mock_normal(mock_rng *g)
{
    for (;;) {
        uint64_t r = mock_next(g);
        unsigned i = (unsigned)(r & 0xff);
        uint64_t a = r >> 9 & 0xfffffffffffff;
        double x = (double)a * g->w[i];
        if (r >> 8 & 1)
            x = -x;
        if (a < g->k[i])
            return x;
        if (i == 0) {
            for (;;) {
                double xx = -log1p(-mock_uniform(g)) / mock_zig_r, yy = -log1p(-mock_uniform(g));
                if (yy + yy > xx * xx)
                    return a >> 8 & 1 ? -(mock_zig_r + xx) : mock_zig_r + xx;
            }
        }
        if ((g->f[i - 1] - g->f[i]) * mock_uniform(g) + g->f[i] < exp(-0.5 * x * x))
            return x;
    }
}

static inline void mock_seed(mock_rng *g, uint32_t seed)
{
    uint32_t pool[4], words[8], hash = 0x43b0d7e5;
    for (int i = 0; i < 4; i++) {
        uint32_t v = (i == 0 ? seed : 0) ^ hash;
        v *= hash *= 0x931e8875;
        pool[i] = v ^ v >> 16;
    }
    for (int src = 0; src < 4; src++)
        for (int dst = 0; dst < 4; dst++) {
            if (src == dst)
                continue;
            uint32_t v = pool[src] ^ hash;
            v *= hash *= 0x931e8875;
            v ^= v >> 16;
            v = 0xca01f9dd * pool[dst] - 0x4973f715 * v;
            pool[dst] = v ^ v >> 16;
        }
    hash = 0x8b51f9dd;
    for (int i = 0; i < 8; i++) {
        uint32_t v = pool[i % 4] ^ hash;
        v *= hash *= 0x58f38ded;
        words[i] = v ^ v >> 16;
    }
    unsigned __int128 s[2];
    for (int i = 0; i < 2; i++)
        s[i] = (unsigned __int128)words[4 * i + 1] << 96 | (unsigned __int128)words[4 * i] << 64 |
               (unsigned __int128)words[4 * i + 3] << 32 | words[4 * i + 2];
    g->state = 0;
    g->inc = s[1] << 1 | 1;
    mock_next(g);
    g->state += s[0];
    mock_next(g);

    const double m = 4503599627370496.0, area = 0.00492867323397465524494;
    double x = mock_zig_r, last = x, q = area / exp(-0.5 * x * x);
    g->k[0] = (uint64_t)(x / q * m);
    g->k[1] = 0;
    g->w[0] = q / m;
    g->w[255] = x / m;
    g->f[0] = 1;
    g->f[255] = exp(-0.5 * x * x);
    for (int i = 254; i >= 1; i--) {
        x = sqrt(-2 * log(area / x + exp(-0.5 * x * x)));
        g->k[i + 1] = (uint64_t)(x / last * m);
        last = x;
        g->f[i] = exp(-0.5 * x * x);
        g->w[i] = x / m;
    }
}

/* ---- the library ---- */

typedef struct {
    double wave[MOCK_NWAVE];
    double centre[MOCK_NLINE], strength[MOCK_NLINE], excitation[MOCK_NLINE], gravity[MOCK_NLINE];
    int alpha[MOCK_NLINE];
} mock_library;

static inline int mock_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* NULL when memory is out; free(). */
static inline mock_library *mock_library_make(void)
{
    mock_library *m = malloc(sizeof *m);
    mock_rng *g = malloc(sizeof *g);
    if (m && g) {
        mock_seed(g, 3);
        for (int i = 0; i < MOCK_NWAVE; i++)
            m->wave[i] = 3400 + i * ((3400 + 0.1) - 3400);
        for (int i = 0; i < MOCK_NLINE; i++)
            m->centre[i] = 3410 + (9990.0 - 3410) * mock_uniform(g);
        qsort(m->centre, MOCK_NLINE, sizeof(double), mock_compare);
        for (int i = 0; i < MOCK_NLINE; i++)
            m->strength[i] = pow(10, -0.6 + 0.6 * mock_normal(g));
        for (int i = 0; i < MOCK_NLINE; i++)
            m->excitation[i] = 5 * mock_uniform(g);
        for (int i = 0; i < MOCK_NLINE; i++)
            m->alpha[i] = mock_uniform(g) < 0.25;
        for (int i = 0; i < MOCK_NLINE; i++)
            m->gravity[i] = -.15 + (.25 + .15) * mock_uniform(g);
    }
    free(g);
    return m;
}

enum { MOCK_NTEFF = 11, MOCK_NLOGG = 6, MOCK_NFEH = 7, MOCK_NALPHA = 2 };
static const double mock_teff[MOCK_NTEFF] = {3500, 4000, 4500, 5000, 5500, 6000, 6500, 7000, 8000, 9000, 10000};
static const double mock_logg[MOCK_NLOGG] = {0, 1, 2, 3, 4, 5}, mock_alpha[MOCK_NALPHA] = {0, 0.4};
static const double mock_feh[MOCK_NFEH] = {-3, -2, -1.5, -1, -.5, 0, .5};

/* Parameters of spectrum i of the library: teff, logg, feh, alpha. */
static inline void mock_library_params(int i, double p[MOCK_NPAR])
{
    p[0] = mock_teff[i / 84];
    p[1] = mock_logg[i / 14 % 6];
    p[2] = mock_feh[i / 2 % 7];
    p[3] = mock_alpha[i % 2];
}

/* Its flux per unit wavelength, flux[MOCK_NWAVE], as the float32 values that the library's files hold. */
static inline void mock_library_flux(const mock_library *m, const double p[MOCK_NPAR], float *flux)
{
    static const double broad[13] = {6562.8, 4861.3, 4340.5, 4101.7, 3970.1,  3889.05, 8498,
                                     8542,   8662,   3933.7, 3968.5, 5889.95, 5895.92};
    const double teff = p[0], logg = p[1], feh = p[2], alpha = p[3], width = 0.12 + 0.03 * logg;
    double *tau = calloc(MOCK_NWAVE, sizeof *tau);
    if (!tau)
        abort();
    for (int l = 0; l < MOCK_NLINE; l++) {
        double d = m->strength[l] * pow(10, 0.7 * feh + 0.7 * alpha * m->alpha[l] + m->gravity[l] * (logg - 3) -
                                                m->excitation[l] * (5040 / teff - 0.9));
        int i = (int)((m->centre[l] - 4 - 3400) * 10) - 1;
        for (i = i > 0 ? i : 0; i < MOCK_NWAVE && m->wave[i] < m->centre[l] + 4; i++) {
            if (m->wave[i] < m->centre[l] - 4)
                continue;
            double x = (m->wave[i] - m->centre[l]) / width;
            tau[i] += d * (exp(-0.5 * x * x) + 0.03 / (1 + x * x));
        }
    }
    for (int b = 0; b < 13; b++) {
        double d = b < 6 ? 2.5 * exp(-pow((teff - 9000) / 2500, 2))
                         : 1.5 * pow(10, 0.4 * feh) * pow(10, -(teff - 4500) / 2500);
        double w = b < 6 ? 3 + 1.5 * logg : 0.8 + .2 * logg;
        for (int i = 0; i < MOCK_NWAVE; i++) {
            double x = (m->wave[i] - broad[b]) / w;
            tau[i] += d / (1 + x * x);
        }
    }
    for (int i = 0; i < MOCK_NWAVE; i++)
        flux[i] = (float)(pow(m->wave[i] / 5000., -5) / expm1(1.4388e8 / m->wave[i] / teff) * exp(-tau[i]));
    free(tau);
}

#endif
