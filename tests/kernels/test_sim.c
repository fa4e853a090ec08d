/* Checks the simulation: random numbers against known answers and moments, conservation of flux, threads, Doppler shift
 * and rotation against direct integrals, noise statistics, defects, refusals. Fixed seeds: nothing here is random. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "psf/spot_math.h"
#include "sim/sim.h"
#include "sim/sim_math.h"

static double *vec(size_t n)
{
    return spx_alloc(n, sizeof(double), NULL);
}

/* Moments within five of their own standard deviations. */
static void test_random(void)
{
    /* Known answers of the Random123 distribution. */
    uint32_t zero[4] = {0}, ones[4] = {~0u, ~0u, ~0u, ~0u}, r[4];
    spx_philox(0, zero, r);
    CHECK(r[0] == 0x6627e8d5u && r[1] == 0xe169c58du && r[2] == 0xbc57ac4cu && r[3] == 0x9b00dbd8u,
          "philox(0) is %08x %08x %08x %08x", r[0], r[1], r[2], r[3]);
    spx_philox(~0ull, ones, r);
    CHECK(r[0] == 0x408f276du && r[1] == 0x41c83b0eu && r[2] == 0xa20bc7c6u && r[3] == 0x6d5451fdu,
          "philox(~0) is %08x %08x %08x %08x", r[0], r[1], r[2], r[3]);

    const double mus[] = {0.01, 0.3, 5.0, 9.99, 10.0, 50.0, 1000.0, 1e5, 1e13};
    const int n = 40000;
    for (size_t m = 0; m < sizeof mus / sizeof *mus; m++) {
        double mu = mus[m], s = 0.0, s2 = 0.0;
        for (int i = 0; i < n; i++) {
            double d = spx_sim_poisson(mu, 7, 'r', (uint64_t)i) - mu;
            s += d;
            s2 += d * d;
        }
        CHECK(fabs(s / n) < 5.0 * sqrt(mu / n), "Poisson mean %g: off by %g", mu, s / n);
        CHECK(fabs(s2 / n / mu - 1.0) < 5.0 * sqrt((2.0 + 1.0 / mu) / n), "Poisson mean %g: variance %g", mu, s2 / n);
    }
    CHECK(spx_sim_poisson(0.0, 7, 'r', 1) == 0.0 && spx_sim_poisson(-3.0, 7, 'r', 1) == 0.0, "Poisson of mean 0");
    double s = 0.0, s2 = 0.0, s4 = 0.0, u[2];
    for (int i = 0; i < n; i++) {
        spx_sim_uniform2(3, SPX_SIM_READ, 0, (uint64_t)i, 0, u);
        double g = spx_sim_normal(u);
        s += g;
        s2 += g * g;
        s4 += g * g * g * g;
    }
    CHECK(fabs(s / n) < 5.0 / sqrt(n) && fabs(s2 / n - 1.0) < 5.0 * sqrt(2.0 / n) &&
              fabs(s4 / n - 3.0) < 5.0 * sqrt(96.0 / n),
          "normal numbers: moments %g %g %g", s / n, s2 / n, s4 / n);
}

/* The kernel of a rotating disc, and its variance in units of vsini^2. */
static void test_disc(void)
{
    const double pi = 3.14159265358979323846, eps = 0.6;
    const double want =
        (2 * (1 - eps) * pi / 8 + pi / 2 * eps * 4 / 15) / (2 * (1 - eps) * pi / 2 + pi / 2 * eps * 4 / 3);
    const double speeds[] = {0.1, 5.0, 30.0, 200.0};
    double x[600], w[600];
    CHECK(spx_sim_strips(0.0) == 1, "strips of a star that does not rotate");
    for (size_t k = 0; k < 4; k++) {
        size_t n = spx_sim_strips(speeds[k]);
        double sum = 0.0, first = 0.0, second = 0.0;
        CHECK(n <= 600, "%zu strips", n);
        spx_sim_disc(n, x, w);
        for (size_t j = 0; j < n; j++) {
            sum += w[j];
            first += w[j] * x[j];
            second += w[j] * x[j] * x[j];
        }
        CHECK(fabs(sum - 1.0) < 1e-14 && fabs(first) < 1e-14, "vsini %g: sum %.17g, mean %g", speeds[k], sum, first);
        CHECK(fabs(second / want - 1.0) < 2e-3, "vsini %g: variance %g, not %g", speeds[k], second, want);
    }
}

static void test_stars(void)
{
    enum { N = 4000 };
    spx_err e = {0};
    double *wave = vec(N), *rest = vec(N), *flux = vec(4 * N), *again = vec(4 * N), *still = vec(N);
    spx_target t[4] = {{.teff = 5300, .logg = 3.7, .feh = -0.4, .alpha = 0.1, .v = 0.6 * SPX_C_KMS}};
    /* b = 0.6 doubles every wavelength. */
    CHECK(fabs(spx_sim_doppler(0.6 * SPX_C_KMS) - 2.0) < 1e-15, "Doppler factor %.17g",
          spx_sim_doppler(0.6 * SPX_C_KMS));
    t[0].v = 150.0;
    t[1] = t[2] = t[3] = t[0];
    t[1].vsini = 0.01;
    t[2].vsini = 60.0;
    t[3].sky = 1;
    spx_sim_grid(5100.0, 0.1, N, wave);
    spx_status st = spx_sim_stars(4, t, N, wave, flux, NULL, NULL, &e);
    CHECK(st == SPX_OK, "%s", spx_err_text(&e));
    omp_set_num_threads(1);
    st = spx_sim_stars(4, t, N, wave, again, NULL, NULL, &e);
    omp_set_num_threads(2);
    CHECK(st == SPX_OK && memcmp(flux, again, 4 * N * sizeof *flux) == 0, "stars differ with the number of threads");

    /* The shifted star is the star at rest at lambda/D, where D is of the relativistic formula. */
    double beta = 150.0 / SPX_C_KMS, d = sqrt((1 + beta) / (1 - beta)), deepest = 1.0, worst = 0.0;
    for (int i = 0; i < N; i++)
        rest[i] = wave[i] / d;
    spx_target at_rest = t[0];
    at_rest.v = 0.0;
    st = spx_sim_stars(1, &at_rest, N, rest, still, NULL, NULL, &e);
    CHECK(st == SPX_OK && memcmp(still, flux, N * sizeof *flux) == 0, "Doppler shift is not that of the formula");
    for (int i = 0; i < N; i++) {
        double c = spx_sim_continuum(5300, rest[i]);
        deepest = fmin(deepest, flux[i] / c);
        worst = fmax(worst, fabs(flux[N + i] - flux[i]) / c);
        CHECK(flux[3 * N + i] == 0.0, "light in a sky fibre");
    }
    CHECK(deepest < 0.5, "no deep line: %g", deepest);
    CHECK(worst < 1e-4, "interpolation error %g", worst);

    /* Rotation against the integral over the disc in 2001 fine steps of the formula itself. */
    enum { FINE = 2001 };
    double *strip = vec(FINE), *lam = vec(FINE);
    for (int i = 50; i < N; i += 487) {
        double num = 0.0, den = 0.0;
        for (int k = 0; k < FINE; k++)
            lam[k] = rest[i] * exp(((k + 0.5) * 2.0 / FINE - 1.0) * 60.0 / SPX_C_KMS);
        st = spx_sim_stars(1, &at_rest, FINE, lam, strip, NULL, NULL, &e);
        CHECK(st == SPX_OK, "%s", spx_err_text(&e));
        for (int k = 0; k < FINE; k++) {
            double x = (k + 0.5) * 2.0 / FINE - 1.0, y = 1.0 - x * x;
            double kernel = 2.0 * 0.4 * sqrt(y) + 1.57079632679489661923 * 0.6 * y;
            num += kernel * strip[k];
            den += kernel;
        }
        CHECK(fabs(flux[2 * N + i] / (num / den) - 1.0) < 3e-4, "rotation at %g: %g, not %g", wave[i], flux[2 * N + i],
              num / den);
    }
    /* A table that is too short, and one that does not increase. */
    CHECK(spx_sim_observe(N, wave, flux, 100.0, 0.0, N, wave, again, &e) == SPX_EINPUT, "short table accepted");
    CHECK(strstr(spx_err_text(&e), "covers") != NULL, "message: %s", spx_err_text(&e));
    spx_err_clear(&e);
    wave[7] = wave[6];
    CHECK(spx_sim_stars(1, t, N, wave, flux, NULL, NULL, &e) == SPX_EINPUT, "wavelengths that stand still accepted");
    spx_free(wave);
    spx_free(rest);
    spx_free(flux);
    spx_free(again);
    spx_free(still);
    spx_free(strip);
    spx_free(lam);
}

static void test_sky(void)
{
    spx_err e = {0};
    const double line = 250 * 1.8704e-6 * SPX_SIM_MIRROR * SPX_SIM_FIBRE_AREA * 900.0;
    for (int k = 0; k < 3; k++) {
        double step = k == 0 ? 0.02 : k == 1 ? 0.1 : 0.8;
        size_t n = spx_sim_grid_size(5565.0, 5595.0, step);
        double *w = vec(n), *sky = vec(n), sum = 0.0, through, at = 5578.89;
        spx_sim_grid(5565.0, step, n, w);
        CHECK(spx_sim_sky('x', 900.0, n, w, sky, &e) == SPX_OK, "%s", spx_err_text(&e));
        spx_sim_throughput('x', 1, &at, &through);
        double continuum = sky[0];
        for (size_t i = 0; i < n; i++)
            continuum = fmin(continuum, sky[i]);
        for (size_t i = 0; i < n; i++)
            if (fabs(w[i] - at) < 2.0)
                sum += (sky[i] - continuum) * step;
        CHECK(fabs(sum / (line * through) - 1.0) < 1e-3, "[O I] 5577 on steps of %g: %g electrons, not %g", step, sum,
              line * through);
        spx_free(w);
        spx_free(sky);
    }
}

static void test_targets(void)
{
    enum { N = 60 };
    spx_err e = {0};
    spx_target t[N], again[N];
    spx_sim_ranges r = {.seed = 11,
                        .nsky = 7,
                        .nlibrary = 5,
                        .teff = {4500, 7000},
                        .logg = {1, 5},
                        .feh = {-2, 0.5},
                        .alpha = {0, 0.4},
                        .v = {-300, 300},
                        .vsini = {0, 20},
                        .mag = {16, 19}};
    CHECK(spx_sim_draw(&r, N, t, &e) == SPX_OK && spx_sim_draw(&r, N, again, &e) == SPX_OK, "%s", spx_err_text(&e));
    size_t sky = 0;
    for (int i = 0; i < N; i++) {
        const spx_target *a = t + i, *b = again + i;
        sky += a->sky != 0;
        CHECK(a->teff == b->teff && a->v == b->v && a->mag == b->mag, "one seed, two draws");
        CHECK(a->teff >= 4500 && a->teff <= 7000 && a->logg >= 1 && a->logg <= 5 && a->feh >= -2 && a->feh <= 0.5 &&
                  fabs(a->v) <= 300 && a->vsini >= 0 && a->vsini <= 20 && a->member < 5,
              "target %d out of its ranges", i);
        for (int j = 0; j < i; j++)
            CHECK(t[j].targetid != a->targetid, "TARGETID of %d and %d", i, j);
    }
    CHECK(sky == 7, "%zu sky fibres", sky);
    r.nsky = N + 1;
    CHECK(spx_sim_draw(&r, N, t, &e) == SPX_EUSAGE, "more sky fibres than fibres");
    spx_err_clear(&e);
    r.nsky = 0;
    r.teff[0] = NAN;
    CHECK(spx_sim_draw(&r, N, t, &e) == SPX_EUSAGE, "teff NaN");
    spx_err_clear(&e);

    /* The magnitude for a signal-to-noise ratio gives the electrons for it. */
    double mag, flux = 1.0, norm = 1.0, wave = SPX_SIM_WAVE_REF;
    CHECK(spx_sim_magnitude(40.0, 900.0, 0.0, 0, &mag, &e) == SPX_OK, "%s", spx_err_text(&e));
    t[0] = (spx_target){.mag = mag};
    CHECK(spx_sim_electrons(1, t, &norm, 'r', 900.0, 1, &wave, &flux, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(fabs(sqrt(flux) / 40.0 - 1.0) < 1e-9, "S/N %g, not 40", sqrt(flux));
    CHECK(spx_sim_magnitude(-1.0, 900.0, 3.0, 1, &mag, &e) == SPX_EUSAGE, "negative S/N accepted");
}

static void test_projection(void)
{
    spx_err e = {0};
    const char arms[] = "brz";
    for (int a = 0; a < 3; a++) {
        double lo, hi;
        spx_psf p;
        CHECK(spx_sim_arm_range(arms[a], &lo, &hi), "no arm %c", arms[a]);
        spx_status st = spx_sim_psf(arms[a], 500, 0, 0, &p, &e);
        CHECK(st == SPX_OK, "%s", spx_err_text(&e));
        if (st != SPX_OK)
            return;
        /* DESI's CCDs have 4096 to 4128 x 4114 pixels. */
        CHECK(p.npix_x < 4250 && p.npix_y < 4200, "CCD of %zu x %zu", p.npix_x, p.npix_y);
        for (size_t f = 0; f < 500; f++)
            for (double w = lo - 20; w <= hi + 20; w += 10) {
                spx_spot at, next, later;
                CHECK(spx_psf_spot_place(&p, f, w, &at) == SPX_SPOT_OK, "no spot");
                (void)spx_psf_spot_place(&p, f + 1 < 500 ? f + 1 : f, w, &next);
                (void)spx_psf_spot_place(&p, f, w + 1, &later);
                CHECK(at.xc >= 0 && at.xc + 15 <= (long)p.npix_x && at.yc >= 0 && at.yc + 11 <= (long)p.npix_y,
                      "%c fibre %zu, %g: spot off the CCD", arms[a], f, w);
                CHECK(f == 499 || next.x - at.x > 6.0, "%c fibres %zu and %zu: %g apart", arms[a], f, f + 1,
                      next.x - at.x);
                CHECK(later.y - at.y > 1.4 && later.y - at.y < 2.3, "dispersion %g", later.y - at.y);
            }
        spx_psf_free(&p);
    }

    /* Three fibres, all of the light on the CCD; then one fibre alone, at another place of the list. */
    spx_psf psf;
    CHECK(spx_sim_psf('r', 30, 6000, 6120, &psf, &e) == SPX_OK, "%s", spx_err_text(&e));
    size_t n = spx_sim_grid_size(5990, 6130, 0.1), npix = psf.npix_x * psf.npix_y;
    double *w = vec(n), *flux = vec(3 * n), *image = vec(npix), *one = vec(npix), *alone = vec(npix), sum = 0,
           total = 0;
    int32_t fiber[3] = {2, 3, 28};
    spx_sim_grid(5990, 0.1, n, w);
    for (size_t i = 0; i < 3 * n; i++)
        total += (flux[i] = 10.0 + 90.0 * (i % 97 == 0)) * 0.1;
    CHECK(spx_sim_project(&psf, 3, fiber, n, w, flux, psf.npix_y, psf.npix_x, image, NULL, &e) == SPX_OK, "%s",
          spx_err_text(&e));
    for (size_t i = 0; i < npix; i++)
        sum += image[i];
    CHECK(fabs(sum / total - 1.0) < 1e-12, "%.15g electrons on the CCD, %.15g were sent", sum, total);
    omp_set_num_threads(1);
    CHECK(spx_sim_project(&psf, 3, fiber, n, w, flux, psf.npix_y, psf.npix_x, one, NULL, &e) == SPX_OK, "%s",
          spx_err_text(&e));
    omp_set_num_threads(2);
    CHECK(memcmp(image, one, npix * sizeof *one) == 0, "the image depends on the number of threads");

    /* A single sample is its spot, wherever the bands of rows end. */
    memset(flux, 0, n * sizeof *flux);
    double spot[15 * 11], work[512];
    CHECK(spx_psf_spot_work(&psf) <= 512, "work");
    for (size_t k = 3; k < n; k += 7) {
        memset(alone, 0, npix * sizeof *alone);
        flux[k] = 100.0;
        CHECK(spx_sim_project(&psf, 1, fiber + 1, n, w, flux, psf.npix_y, psf.npix_x, alone, NULL, &e) == SPX_OK, "%s",
              spx_err_text(&e));
        flux[k] = 0.0;
        spx_spot at;
        double worst = 0.0;
        CHECK(spx_psf_spot(&psf, 3, w[k], work, spot, &at) == SPX_SPOT_OK, "no spot");
        for (long y = 0; y < 11; y++)
            for (long x = 0; x < 15; x++)
                worst = fmax(worst, fabs(alone[(size_t)(at.yc + y) * psf.npix_x + (size_t)(at.xc + x)] -
                                         10.0 * spot[y * 15 + x]));
        CHECK(worst < 1e-9, "sample at %g is not its spot: off by %g", w[k], worst);
    }
    /* A CCD that is too small keeps what it sees. */
    memset(alone, 0, npix * sizeof *alone);
    flux[n / 2] = 100.0;
    CHECK(spx_sim_project(&psf, 1, fiber, n, w, flux, psf.npix_y / 2, 20, alone, NULL, &e) == SPX_OK, "%s",
          spx_err_text(&e));

    fiber[0] = 30;
    CHECK(spx_sim_project(&psf, 1, fiber, n, w, flux, 10, 10, alone, NULL, &e) == SPX_EINPUT, "fibre 30 of 30");
    spx_err_clear(&e);
    fiber[0] = 0;
    flux[5] = NAN;
    CHECK(spx_sim_project(&psf, 1, fiber, n, w, flux, 10, 10, alone, NULL, &e) == SPX_EINPUT, "NaN flux");
    spx_err_clear(&e);
    flux[5] = 0.0;
    psf.coeff[(size_t)psf.sigx * psf.nspec * psf.ndeg] = -1.0;
    CHECK(spx_sim_project(&psf, 1, fiber, n, w, flux, psf.npix_y, psf.npix_x, alone, NULL, &e) == SPX_EINPUT,
          "negative width");
    spx_err_clear(&e);
    spx_psf_free(&psf);
    CHECK(spx_sim_psf('q', 30, 0, 0, &psf, &e) == SPX_EUSAGE, "camera q");
    spx_err_clear(&e);
    CHECK(spx_sim_psf('b', 0, 0, 0, &psf, &e) == SPX_EUSAGE, "no fibre");
    spx_err_clear(&e);
    CHECK(spx_sim_psf('b', 5, 5000, 4000, &psf, &e) == SPX_EUSAGE, "range backwards");
    spx_free(w);
    spx_free(flux);
    spx_free(image);
    spx_free(one);
    spx_free(alone);
}

static void test_noise(void)
{
    enum { NY = 300, NX = 320, NPIX = NY * NX };
    spx_err e = {0};
    double *model = vec(NPIX);
    spx_sim_noise n = {.seed = 4, .camera = 'r', .photon_noise = 1, .readnoise = 3.0, .fullwell = 1e5};
    for (size_t i = 0; i < NPIX; i++)
        model[i] = i % NX < NX / 2 ? 0.0 : 4.0 * (double)(i % NX - NX / 2);
    spx_image clean = {0}, again = {0}, camera = {0}, data = {0}, spoiled = {0};
    CHECK(spx_sim_expose(NY, NX, model, &n, &clean, &e) == SPX_OK, "%s", spx_err_text(&e));
    omp_set_num_threads(1);
    CHECK(spx_sim_expose(NY, NX, model, &n, &again, &e) == SPX_OK, "%s", spx_err_text(&e));
    omp_set_num_threads(2);
    CHECK(memcmp(clean.data, again.data, NPIX * sizeof(float)) == 0, "noise depends on the number of threads");
    double s = 0, s2 = 0, same = 0;
    n.camera = 'z';
    CHECK(spx_sim_expose(NY, NX, model, &n, &camera, &e) == SPX_OK, "%s", spx_err_text(&e));
    n.camera = 'r';
    for (size_t i = 0; i < NPIX; i++) {
        double pull = (clean.data[i] - model[i]) * sqrt(clean.ivar[i]);
        double other = (camera.data[i] - model[i]) * sqrt(camera.ivar[i]);
        s += pull;
        s2 += pull * pull;
        same += pull * other;
        CHECK(clean.mask[i] == 0 && fabs(1.0 / clean.ivar[i] - model[i] - 9.0) < 1e-3, "ivar of pixel %zu", i);
    }
    CHECK(fabs(s) < 5.0 * sqrt(NPIX) && fabs(s2 / NPIX - 1.0) < 5.0 * sqrt(2.1 / NPIX), "pulls: mean %g, variance %g",
          s / NPIX, s2 / NPIX);
    CHECK(fabs(same) < 5.0 * sqrt(NPIX), "two cameras share their noise: %g", same / NPIX);

    /* Defects are flagged, and what is not flagged is as before. */
    n.ivar = SPX_SIM_IVAR_DATA;
    CHECK(spx_sim_expose(NY, NX, model, &n, &data, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(fabs(1.0 / data.ivar[5] - fmax(data.data[5], 0.0f) - 9.0) < 1e-3, "ivar from data");
    n.ivar = SPX_SIM_IVAR_MODEL;
    n.cosmics = 200;
    n.badcolumns = 3;
    n.gap_row = 40;
    n.gap = 5;
    n.blocks = 2;
    n.nans = 30;
    CHECK(spx_sim_expose(NY, NX, model, &n, &spoiled, &e) == SPX_OK, "%s", spx_err_text(&e));
    size_t hit = 0, bad = 0, saturated = 0, nan = 0;
    for (size_t i = 0; i < NPIX; i++) {
        uint32_t m = spoiled.mask[i];
        hit += (m & SPX_CCD_COSMIC) != 0;
        bad += (m & SPX_CCD_BAD) != 0;
        saturated += (m & SPX_CCD_SATURATED) != 0;
        nan += isnan(spoiled.data[i]) != 0;
        CHECK(m != 0 || (spoiled.data[i] == clean.data[i] && spoiled.ivar[i] == clean.ivar[i]),
              "pixel %zu changed without a flag", i);
        CHECK((m & (SPX_CCD_BAD | SPX_CCD_SATURATED)) == 0 || spoiled.ivar[i] == 0.0f, "bad pixel %zu has weight", i);
        CHECK(!isnan(spoiled.data[i]) || (m & SPX_CCD_BAD), "NaN without a flag");
        CHECK(i / NX < 40 || i / NX >= 45 || (m & SPX_CCD_BAD), "gap without a flag");
    }
    CHECK(hit > 50 && bad > 5 * NX && saturated > 50 && nan > 20 && nan <= 30,
          "%zu cosmic-ray, %zu bad, %zu saturated, %zu NaN pixels", hit, bad, saturated, nan);

    /* Without noise the data are the model. */
    spx_image quiet = {0};
    n = (spx_sim_noise){.readnoise = 3.0, .fullwell = 500.0};
    CHECK(spx_sim_expose(NY, NX, model, &n, &quiet, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(quiet.data[200] == 160.0f && quiet.data[NX - 1] == 500.0f && quiet.mask[NX - 1] == SPX_CCD_SATURATED,
          "noise-free pixels %g and %g", (double)quiet.data[200], (double)quiet.data[NX - 1]);
    spx_image none = {0};
    n.readnoise = 0.0;
    CHECK(spx_sim_expose(NY, NX, model, &n, &none, &e) == SPX_EUSAGE, "read noise 0: the inverse variance is infinite");
    spx_err_clear(&e);
    n.readnoise = 3.0;
    model[9] = NAN;
    CHECK(spx_sim_expose(NY, NX, model, &n, &none, &e) == SPX_EINPUT, "NaN in the model");
    spx_image *all[] = {&clean, &again, &camera, &data, &spoiled, &quiet};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        spx_free(all[i]->data);
        spx_free(all[i]->ivar);
        spx_free(all[i]->mask);
        spx_free(all[i]->readnoise);
    }
    spx_free(model);
}

/* Nodes of a star library's grid: all of them, each once, alpha fastest. */
static void test_nodes(void)
{
    const spx_sim_axis axis[SPX_SIM_NAXIS] = {{2, {4500, 5000}}, {1, {3}}, {3, {-2, -1, 0}}, {2, {0, 0.4}}};
    spx_target star = {.v = 7};
    CHECK(spx_sim_nodes(axis) == 12, "%zu nodes", spx_sim_nodes(axis));
    for (size_t k = 0; k < 12; k++) {
        spx_sim_node(axis, k, &star);
        CHECK(star.teff == (k < 6 ? 4500 : 5000) && star.logg == 3 && star.feh == (double)(k / 2 % 3) - 2 &&
                  star.alpha == (k % 2 ? 0.4 : 0) && star.v == 7,
              "node %zu: %g %g %g %g", k, star.teff, star.logg, star.feh, star.alpha);
    }
}

int main(void)
{
    omp_set_num_threads(2);
    test_random();
    test_nodes();
    test_disc();
    test_stars();
    test_sky();
    test_targets();
    test_projection();
    test_noise();
    return failures != 0;
}
