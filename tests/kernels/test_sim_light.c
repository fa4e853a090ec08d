/* Checks the parts of a simulated exposure that are not stars: spots of other families, wings, tellurics, parts of the
 * sky, fringes, hidden hits and offsets of amplifiers. Against moments, sums and formulas. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "sim/sim.h"
#include "sim/sim_fibre.h"
#include "sim/sim_mixture.h"
#include "sim/sim_telluric.h"

static double *vec(size_t n)
{
    return spx_alloc(n, sizeof(double), NULL);
}

/* Widens the box, so that moments see all of the light. */
static void test_families(void)
{
    spx_err e = {0};
    spx_psf psf;
    double spot[61 * 61], own[61 * 61], work[4096];
    CHECK(spx_sim_psf('r', 30, 6000, 6120, &psf, &e) == SPX_OK, "%s", spx_err_text(&e));
    psf.hsizex = psf.hsizey = 30;
    CHECK(spx_psf_spot_work(&psf) <= 4096, "work");
    for (int family = SPX_SIM_MOFFAT; family <= SPX_SIM_DISC; family++) {
        spx_sim_mixture m;
        spx_sim_mixture_make((spx_sim_family)family, &m);
        CHECK(m.n > 0 && m.n <= SPX_SIM_COMPONENTS, "%zu components", m.n);
        for (size_t f = 0; f < 30; f += 7) {
            spx_spot at;
            CHECK(spx_sim_mixture_spot(&m, &psf, f, 6050.3, work, spot, &at) == SPX_SPOT_OK, "no spot");
            double sum = 0, mx = 0, my = 0, xx = 0, yy = 0, half = 0, difference = 0;
            double u = spx_psf_u(psf.wmin, psf.wmax, 6050.3);
            double sx = spx_legendre_sum(psf.ndeg, psf.coeff + ((size_t)psf.sigx * 30 + f) * psf.ndeg, u);
            double sy = spx_legendre_sum(psf.ndeg, psf.coeff + ((size_t)psf.sigy * 30 + f) * psf.ndeg, u);
            for (int k = 0; k < 61 * 61; k++) {
                double x = (double)at.xc + k % 61 - at.x, y = (double)at.yc + (double)(k / 61) - at.y;
                sum += spot[k];
                mx += x * spot[k];
                my += y * spot[k];
                xx += x * x * spot[k];
                yy += y * y * spot[k];
                /* share of each pixel within 1.1774 sigma, by 21 x 21 points */
                int in = 0;
                for (int q = 0; q < 441; q++)
                    in += hypot((x + (q % 21 - 10) / 21.) / sx, (y + (q / 21 - 10) / 21.) / sy) < 1.1774;
                half += spot[k] * in / 441.;
                CHECK(spot[k] >= 0, "a negative pixel");
            }
            CHECK(fabs(sum - 1) < 1e-12, "the spot has %.15g of the light", sum);
            CHECK(fabs(mx) < 2e-3 && fabs(my) < 2e-3, "its light is %g, %g off the trace", mx, my);
            /* The pixel adds 1/12 to the variance of each. */
            if (family == SPX_SIM_DISC)
                CHECK(fabs(sqrt(xx - 1. / 12) / sx - 1) < 0.03 && fabs(sqrt(yy - 1. / 12) / sy - 1) < 0.03,
                      "widths %g, %g instead of %g, %g", sqrt(xx - 1. / 12), sqrt(yy - 1. / 12), sx, sy);
            else /* a pixel's width takes some light out of the half-light radius */
                CHECK(half > 0.42 && half < 0.52, "half of the light: %g", half);
            spx_spot same;
            CHECK(spx_psf_spot(&psf, f, 6050.3, work, own, &same) == SPX_SPOT_OK, "no spot");
            CHECK(same.xc == at.xc && same.yc == at.yc, "spots lie at different places");
            for (int k = 0; k < 61 * 61; k++)
                difference += fabs(spot[k] - own[k]);
            CHECK(difference > 0.05 && difference < 0.6, "%g of the light is elsewhere", difference);
        }
    }
    spx_psf_free(&psf);
}

static void test_tails(void)
{
    enum { NY = 301, NX = 251 };
    spx_err e = {0};
    double *image = vec(NY * NX), *two = vec(NY * NX), sum = 0, far = 0;
    image[150 * NX + 125] = two[150 * NX + 125] = 1000;
    CHECK(spx_sim_tails(0.05, NY, NX, image, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (size_t i = 0; i < NY * NX; i++) {
        sum += image[i];
        if (hypot((double)(i % NX) - 125, (double)(i / NX) - 150) > 20)
            far += image[i];
    }
    CHECK(fabs(sum / 1000 - 1) < 1e-12, "%g of the light is left", sum / 1000);
    /* The middle keeps 95 % and 0.05 sum share/(2 pi sigma^2) of the wings; beyond 20 pixels are exp(-r^2/(2 sigma^2)).
     */
    double core = 0.95, beyond = 0;
    const double s[] = {3, 6, 12, 24}, share[] = {0.4, 0.3, 0.2, 0.1};
    for (int q = 0; q < 4; q++) {
        core += 0.05 * share[q] / (2 * 3.14159265 * s[q] * s[q]);
        beyond += 0.05 * share[q] * exp(-200 / (s[q] * s[q]));
    }
    CHECK(fabs(image[150 * NX + 125] / 1000 - core) < 1e-5, "the middle has %g", image[150 * NX + 125]);
    CHECK(fabs(far / 1000 / beyond - 1) < 0.03, "%g of the light is beyond 20 pixels, not %g", far / 1000, beyond);
    omp_set_num_threads(1);
    CHECK(spx_sim_tails(0.05, NY, NX, two, &e) == SPX_OK, "%s", spx_err_text(&e));
    omp_set_num_threads(2);
    CHECK(memcmp(image, two, NY * NX * sizeof *two) == 0, "wings depend on the number of threads");
    memcpy(two, image, NY * NX * sizeof *two);
    CHECK(spx_sim_tails(0, NY, NX, two, &e) == SPX_OK && memcmp(image, two, NY * NX * sizeof *two) == 0, "no wings");
    CHECK(spx_sim_tails(NAN, NY, NX, two, &e) == SPX_EUSAGE, "NaN accepted");
    spx_err_clear(&e);
    spx_free(image);
    spx_free(two);
}

static double mean(size_t n, const double *w, const double *v, double lo, double hi)
{
    double s = 0;
    size_t m = 0;
    for (size_t k = 0; k < n; k++)
        if (w[k] >= lo && w[k] <= hi) {
            s += v[k];
            m++;
        }
    return s / (double)m;
}

static void test_telluric(void)
{
    size_t n = spx_sim_grid_size(3600, 9824, 0.1);
    double *w = vec(n), *t = vec(n), *t2 = vec(n);
    spx_sim_grid(3600, 0.1, n, w);
    spx_sim_telluric(1, n, w, t);
    spx_sim_telluric(2, n, w, t2);
    for (size_t k = 0; k < n; k++) {
        CHECK(t[k] > 0 && t[k] <= 1 && fabs(t2[k] - t[k] * t[k]) < 1e-15, "%g, %g at %g", t[k], t2[k], w[k]);
        const double band[][2] = {{6250, 6352}, {6860, 6952}, {7580, 7700}, {7159, 7341},
                                  {8129, 8351}, {8939, 9241}, {9299, 9701}};
        int in = 0;
        for (size_t b = 0; b < sizeof band / sizeof *band; b++)
            in |= w[k] > band[b][0] && w[k] < band[b][1];
        CHECK(in || t[k] == 1, "%g at %g, outside the bands", t[k], w[k]);
    }
    /* Mean absorptions of the bands. */
    double a = 1 - mean(n, w, t, 7594, 7660), b = 1 - mean(n, w, t, 6867, 6910), h = 1 - mean(n, w, t, 9350, 9650);
    CHECK(a > 0.2 && a < 0.7, "A band takes %g", a);
    CHECK(b > 0.05 && b < 0.4, "B band takes %g", b);
    CHECK(h > 0.05 && h < 0.5, "water at 9500 takes %g", h);
    /* The head of the A band is at 7594 Angstrom in air, 7596 in vacuum. */
    CHECK(mean(n, w, t, 7580, 7590) == 1 && mean(n, w, t, 7596, 7606) < 0.8, "the A band does not begin at 7595");
    spx_free(w);
    spx_free(t);
    spx_free(t2);
}

static void test_sky(void)
{
    spx_err e = {0};
    size_t n = spx_sim_grid_size(5500, 6400, 0.1);
    double *w = vec(n), *all = vec(n), *sum = vec(n), *part = vec(n), *field = vec(2 * n), worst = 0;
    spx_sim_grid(5500, 0.1, n, w);
    CHECK(spx_sim_sky('r', 900, n, w, all, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (int q = 0; q < SPX_SIM_NSKY; q++) {
        double factor[SPX_SIM_NSKY] = {0};
        factor[q] = 1;
        CHECK(spx_sim_sky_parts('r', 900, factor, n, w, part, &e) == SPX_OK, "%s", spx_err_text(&e));
        for (size_t k = 0; k < n; k++)
            sum[k] += part[k];
        double line = mean(n, w, part, 6301.5, 6302.6);
        double sodium = mean(n, w, part, 5897, 5898), flat = mean(n, w, part, 5500, 6400);
        CHECK((line > 100 * flat) == (q == SPX_SIM_SKY_OI), "part %d has %g at 6302, %g in the mean", q, line, flat);
        CHECK((sodium > 100 * flat) == (q == SPX_SIM_SKY_NA), "part %d has %g at 5897.5, %g in the mean", q, sodium,
              flat);
    }
    for (size_t k = 0; k < n; k++)
        worst = fmax(worst, fabs(sum[k] / all[k] - 1));
    CHECK(worst < 1e-12, "parts do not make the sky: %g", worst);
    const double x[2] = {400, -200}, y[2] = {0, 100}, g[2] = {0.05, 0.1}, h[2] = {0, 0};
    spx_sim_sky_field(2, x, y, n, all, all, part, g, h, field);
    CHECK(fabs(field[7] / all[7] - 1.05) < 1e-12 && fabs(field[n + 7] / all[7] - 1) < 1e-12, "gradient: %g, %g",
          field[7] / all[7], field[n + 7] / all[7]);
    double factor[SPX_SIM_NSKY] = {1, 1, 1, 1, 1}, other[SPX_SIM_NSKY] = {1, 1, 1, 1, 1};
    spx_sim_sky_vary(0.2, 1, factor);
    spx_sim_sky_vary(0.2, 2, other);
    CHECK(factor[0] == 1 && factor[1] != 1 && factor[1] != other[1], "lines do not vary");
    spx_free(w);
    spx_free(all);
    spx_free(sum);
    spx_free(part);
    spx_free(field);
}

static void test_fringes(void)
{
    enum { NW = 1000 };
    double w[NW], factor[NW], sum2 = 0;
    const int32_t fibre = 40;
    int crossings = 0;
    for (int k = 0; k < NW; k++) {
        w[k] = 9000 + 0.5 * k;
        factor[k] = 1;
    }
    spx_sim_fringes(0.03, 1, 'z', 250, 1, &fibre, NW, w, factor);
    for (int k = 0; k < NW; k++) {
        sum2 += (factor[k] - 1) * (factor[k] - 1) / NW;
        crossings += k > 0 && (factor[k] > 1) != (factor[k - 1] > 1);
    }
    CHECK(fabs(sqrt(2 * sum2) / 0.03 - 1) < 0.1, "amplitude %g", sqrt(2 * sum2));
    /* 2 n d (1/9000 - 1/9500) = 8.4 periods, two crossings each, 1 % of thickness */
    CHECK(crossings >= 16 && crossings <= 18, "%d crossings", crossings);
}

static void test_exposure(void)
{
    enum { NY = 200, NX = 300 };
    spx_err e = {0};
    static double model[NY * NX];
    static float hits[NY * NX];
    for (int i = 0; i < NY * NX; i++)
        model[i] = 50;
    spx_image clean = {0}, flagged = {0}, hidden = {0}, data = {0}, offset = {0};
    spx_sim_noise n = {.seed = 3, .camera = 'r', .photon_noise = 1, .readnoise = 3, .fullwell = 2e5, .badcolumns = 1};
    CHECK(spx_sim_expose(NY, NX, model, &n, &clean, &e) == SPX_OK, "%s", spx_err_text(&e));
    n.cosmics = 1000;
    CHECK(spx_sim_expose(NY, NX, model, &n, &flagged, &e) == SPX_OK, "%s", spx_err_text(&e));
    n.hide_cosmics = 1;
    n.hits = hits;
    CHECK(spx_sim_expose(NY, NX, model, &n, &hidden, &e) == SPX_OK, "%s", spx_err_text(&e));
    size_t hit = 0, bad = 0;
    for (int i = 0; i < NY * NX; i++) {
        CHECK(hidden.data[i] == flagged.data[i], "pixel %d has another value", i);
        CHECK((hidden.mask[i] & SPX_CCD_COSMIC) == 0, "pixel %d is flagged", i);
        bad += hidden.mask[i] != 0;
        if (hidden.mask[i] != 0) {
            CHECK(hits[i] == 0, "a bad pixel with a hit");
            continue;
        }
        CHECK((hits[i] > 0) == ((flagged.mask[i] & SPX_CCD_COSMIC) != 0), "hit %g of pixel %d", hits[i], i);
        /* sums of float32 of some 1e4 electrons */
        CHECK(fabs(hidden.data[i] - clean.data[i] - hits[i]) < 0.02, "pixel %d has %g more, hits of %g", i,
              hidden.data[i] - clean.data[i], hits[i]);
        CHECK(hidden.ivar[i] == clean.ivar[i], "ivar of pixel %d", i);
        hit += hits[i] > 0;
    }
    CHECK(hit > 300 && bad > 10, "%zu pixels hit, %zu bad", hit, bad);
    n.ivar = SPX_SIM_IVAR_DATA;
    CHECK(spx_sim_expose(NY, NX, model, &n, &data, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (int i = 0; i < NY * NX; i++)
        if (data.mask[i] == 0)
            CHECK(fabs(data.ivar[i] * (fmax(data.data[i], 0) + 9) - 1) < 1e-5, "ivar of pixel %d", i);
    n = (spx_sim_noise){.readnoise = 3, .fullwell = 2e5, .offset = {1, 2, 3, 4}};
    CHECK(spx_sim_expose(NY, NX, model, &n, &offset, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (int i = 0; i < NY * NX; i++)
        CHECK(offset.data[i] == 51 + 2 * (i / NX >= NY / 2) + (i % NX >= NX / 2), "pixel %d is %g", i, offset.data[i]);
    spx_image_free(&clean);
    spx_image_free(&flagged);
    spx_image_free(&hidden);
    spx_image_free(&data);
    spx_image_free(&offset);
}

static void test_star_errors(void)
{
    enum { NS = 400, NW = 3000 };
    static double flux[NS * NW], part[NS * NW], w[NW];
    static int32_t index[NS];
    double sum2 = 0, tilt2 = 0, noise2 = 0;
    for (int k = 0; k < NW; k++)
        w[k] = 5200 + k;
    for (size_t i = 0; i < NS * NW; i++)
        flux[i] = part[i] = 1;
    for (int s = 0; s < NS; s++)
        index[s] = s;
    spx_sim_star_errors(0.01, 5, NS, index, NW, w, flux);
    for (size_t s = 0; s < NS; s++) {
        double red = 0, blue = 0;
        for (size_t k = 0; k < NW; k++) {
            const double d = flux[s * NW + k] - 1;
            sum2 += d * d / (NS * NW);
            *(k < NW / 2 ? &blue : &red) += d / (NW / 2);
            if (k > 0)
                noise2 += pow(d + 1 - flux[s * NW + k - 1], 2) / (NS * NW);
        }
        tilt2 += (red - blue) * (red - blue) / NS;
    }
    /* Tilt: 2 (lambda - 6700)/3100 has an rms of 0.56 over these wavelengths; wave and noise have 1 each. */
    CHECK(fabs(sqrt(sum2) / 0.01 / sqrt(2 + 0.56 * 0.56) - 1) < 0.05, "rms %g", sqrt(sum2));
    /* Between the halves' means: 2 1500/3100 of n_0, and some of long waves. */
    CHECK(fabs(sqrt(tilt2) / 0.01 / 0.97 - 1) < 0.15, "tilt %g", sqrt(tilt2));
    /* From one Angstrom to the next: noise alone, but for the shortest waves. */
    CHECK(fabs(sqrt(noise2) / 0.01 / sqrt(2) - 1) < 0.05, "noise %g", sqrt(noise2));
    /* Another camera sees the same star: other wavelengths, other fibres before it. */
    spx_sim_star_errors(0.01, 5, 10, index + 7, NW - 100, w + 100, part);
    for (size_t k = 0; k < NW - 100; k++)
        CHECK(part[k] == flux[7 * NW + 100 + k], "value %zu", k);
}

int main(void)
{
    test_star_errors();
    test_families();
    test_tails();
    test_telluric();
    test_sky();
    test_fringes();
    test_exposure();
    return failures != 0;
}
