/* sim_survey N SEED FILE [mock]: spectra of N stars, three arms as DESI has them, for tests of the velocity fit. Of the
 * simulator's formula: parameters are uniform in teff 4200-7800, logg 1.2-4.8, feh -1.9-0.4, alpha 0-0.4, v +-600 km/s,
 * vsini 0-200 km/s, the signal-to-noise ratio of a pixel is from 3 to 100, uniform in its logarithm. mock: of the
 * formula of mock_library.h, uniform over the whole range of that library, from a signal-to-noise ratio of 5 on.
 * Photons go through a Gaussian of FWHM 1.55 Angstrom and are sampled at the centres of pixels of 0.8; noise is
 * Gaussian, half of its variance at the median flux is the spectrum's own. The fibermap holds what was put in
 * (spx_target_truth; MAG is the signal-to-noise ratio). Exit status 0, or 1 with a message. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "mock_library.h"
#include "num/stat.h"
#include "products/spectra_h5.h"
#include "products/target.h"
#include "sim/sim.h"
#include "sim/sim_math.h"

enum { NARM = 3, FINE = 8, CHUNK = 16, REACH = 33 };
static const double STEP = 0.1, SIGMA = 1.55 / 2.3548200450309493, MARGIN = 10;

typedef struct {
    size_t n;     /* fine samples */
    double *wave; /* [n] */
    double *flux; /* [CHUNK][n] */
    size_t npix;  /* of the longest arm */
    double *tmp;  /* [npix] */
    double lsf[2 * REACH + 1];
} workspace;

static spx_status make_workspace(workspace *r, spx_spectra *s, size_t nstar, spx_err *e)
{
    double lo = HUGE_VAL, hi = 0, sum = 0;
    s->nspec = nstar;
    s->narm = NARM;
    for (size_t a = 0; a < NARM; a++) {
        spx_arm *m = &s->arm[a];
        double wmin, wmax;
        (void)snprintf(m->name, sizeof m->name, "%c", "brz"[a]);
        (void)spx_sim_arm_range("brz"[a], &wmin, &wmax);
        m->nwave = spx_sim_grid_size(wmin, wmax, FINE * STEP);
        m->wavelength = spx_alloc(m->nwave, sizeof *m->wavelength, e);
        m->flux = spx_alloc2(nstar, m->nwave, sizeof *m->flux, e);
        m->ivar = spx_alloc2(nstar, m->nwave, sizeof *m->ivar, e);
        if (m->wavelength == NULL || m->flux == NULL || m->ivar == NULL)
            return SPX_EIO;
        spx_sim_grid(wmin, FINE * STEP, m->nwave, m->wavelength);
        lo = fmin(lo, wmin);
        hi = fmax(hi, wmax);
        r->npix = m->nwave > r->npix ? m->nwave : r->npix;
    }
    r->n = spx_sim_grid_size(lo - MARGIN, hi + MARGIN, STEP);
    r->wave = spx_alloc(r->n, sizeof *r->wave, e);
    r->flux = spx_alloc2(CHUNK, r->n, sizeof *r->flux, e);
    r->tmp = spx_alloc(r->npix, sizeof *r->tmp, e);
    if (r->wave == NULL || r->flux == NULL || r->tmp == NULL)
        return SPX_EIO;
    spx_sim_grid(lo - MARGIN, STEP, r->n, r->wave);
    for (int k = -REACH; k <= REACH; k++)
        sum += r->lsf[k + REACH] = exp(-0.5 * pow(k * STEP / SIGMA, 2));
    for (int k = 0; k <= 2 * REACH; k++)
        r->lsf[k] /= sum;
    return SPX_OK;
}

/* One arm of star `i`, whose flux is fine[n]; the noise is drawn from counters of the star and the pixel. */
static void observe(const workspace *r, const double *fine, uint64_t seed, size_t i, double sn, size_t arm, spx_arm *m)
{
    double *flux = m->flux + i * m->nwave, *ivar = m->ivar + i * m->nwave;
    for (size_t k = 0; k < m->nwave; k++) {
        size_t at = (size_t)((m->wavelength[k] - r->wave[0]) / STEP + 0.5);
        flux[k] = 0;
        for (int j = -REACH; j <= REACH; j++)
            flux[k] += r->lsf[j + REACH] * fine[at + (size_t)j] * r->wave[at + (size_t)j] / m->wavelength[k];
        r->tmp[k] = flux[k];
    }
    double middle = spx_median(r->tmp, m->nwave);
    for (size_t k = 0; k < m->nwave; k++) {
        double u[2], f = flux[k] / middle, sigma = sqrt(0.5 + 0.5 * f) / sn;
        spx_sim_uniform2(seed, SPX_SIM_READ, (unsigned)arm, i * r->npix + k, 0, u);
        flux[k] = f + sigma * spx_sim_normal(u);
        ivar[k] = 1 / (sigma * sigma);
    }
}

/* Flux of stars on the fine grid, r->flux; m: of its formula, table [CHUNK][MOCK_NWAVE]; NULL: of the simulator's. */
static spx_status shine(const mock_library *m, float *table, size_t n, const spx_target *star, workspace *r, spx_err *e)
{
    double norm[CHUNK];
    if (m == NULL)
        return spx_sim_stars(n, star, r->n, r->wave, r->flux, NULL, NULL, e);
#pragma omp parallel for schedule(dynamic, 1)
    for (size_t k = 0; k < n; k++)
        mock_library_flux(m, (double[]){star[k].teff, star[k].logg, star[k].feh, star[k].alpha},
                          table + k * MOCK_NWAVE);
    return spx_sim_members(n, star, MOCK_NWAVE, m->wave, 0, table, r->n, r->wave, r->flux, norm, NULL, e);
}

static spx_status survey(size_t n, uint64_t seed, int mock, hid_t file, spx_err *e)
{
    spx_sim_ranges range = {.seed = seed,
                            .teff = {4200, 7800},
                            .logg = {1.2, 4.8},
                            .feh = {-1.9, 0.4},
                            .alpha = {0, 0.4},
                            .v = {-600, 600},
                            .vsini = {0, 200},
                            .mag = {log(3), log(100)}};
    if (mock) {
        const double all[4][2] = {{mock_teff[0], mock_teff[MOCK_NTEFF - 1]},
                                  {mock_logg[0], mock_logg[MOCK_NLOGG - 1]},
                                  {mock_feh[0], mock_feh[MOCK_NFEH - 1]},
                                  {mock_alpha[0], mock_alpha[MOCK_NALPHA - 1]}};
        memcpy(range.teff, all[0], sizeof all[0]);
        memcpy(range.logg, all[1], sizeof all[1]);
        memcpy(range.feh, all[2], sizeof all[2]);
        memcpy(range.alpha, all[3], sizeof all[3]);
        range.mag[0] = log(5);
    }
    workspace r = {0};
    spx_spectra s = {0};
    mock_library *library = mock ? mock_library_make() : NULL;
    float *table = mock ? spx_alloc2(CHUNK, MOCK_NWAVE, sizeof *table, e) : NULL;
    spx_target *star = spx_alloc(n, sizeof *star, e);
    spx_status st = star == NULL || (mock && (library == NULL || table == NULL)) ? SPX_EIO : SPX_OK;
    if (st == SPX_OK)
        st = spx_sim_draw(&range, n, star, e);
    if (st == SPX_OK)
        st = make_workspace(&r, &s, n, e);
    for (size_t i = 0; i < n && st == SPX_OK; i += CHUNK) {
        size_t m = n - i < CHUNK ? n - i : CHUNK;
        st = shine(library, table, m, star + i, &r, e);
        for (size_t k = 0; k < m && st == SPX_OK; k++) {
            star[i + k].mag = exp(star[i + k].mag);
            for (size_t a = 0; a < NARM; a++)
                observe(&r, r.flux + k * r.n, seed, i + k, star[i + k].mag, a, &s.arm[a]);
        }
    }
    if (st == SPX_OK)
        st = spx_target_truth(n, star, 0, 1, 0, &s.fibermap, e);
    if (st == SPX_OK)
        st = spx_spectra_write(file, &s, 4, e);
    spx_spectra_free(&s);
    free(library);
    spx_free(table);
    spx_free(r.wave);
    spx_free(r.flux);
    spx_free(r.tmp);
    spx_free(star);
    return st;
}

int main(int argc, char **argv)
{
    const int mock = argc == 5 && strcmp(argv[4], "mock") == 0;
    long n = argc == 4 || mock ? strtol(argv[1], NULL, 10) : 0;
    if (n < 1 || n > 100000) {
        puts("usage: sim_survey N SEED FILE [mock]");
        return 1;
    }
    spx_err e = {0};
    hid_t file = H5Fcreate(argv[3], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    spx_status st = file < 0 ? SPX_EIO : survey((size_t)n, strtoull(argv[2], NULL, 10), mock, file, &e);
    if (st != SPX_OK)
        printf("sim_survey: %s\n", spx_err_text(&e));
    return file < 0 || H5Fclose(file) < 0 || st != SPX_OK;
}
