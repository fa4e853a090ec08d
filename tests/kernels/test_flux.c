/* Stage `flux` against dense algebra in long double, and the accuracy of the response with wrong models.
 *
 * Tolerances: normal matrices have conditions of 1e7 (the penalty against the data), so that solutions agree to 1e-8 of
 * their error and covariances to 1e-8. Accuracy: 20 stars of signal-to-noise ratio 25 and models wrong by a tilt of 2 %
 * at the ends, waves of 1 % rms and 1 % a bin give the convolved throughput to 0.35 % off telluric bands and 1.2 % in
 * them (rms, normalised; median of 10 seeds). Pulls, (result - truth)/error of all bins and seeds: median and 1.4826
 * times the median deviation; with right models they are 1, since the smoothness is that of the response; errors of
 * models, which reach over 100 Angstrom and more, move the median of ten seeds. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calib/resolution.h"
#include "check.h"
#include "flux_scene.h"
#include "num/stat.h"

static double stored(const flux_scene *s, size_t i, size_t k, size_t j)
{
    const long b = (long)(s->ndiag / 2) + (long)k - (long)j;
    return b < 0 || b >= (long)s->ndiag ? 0 : s->arm.resolution[(i * s->ndiag + (size_t)b) * s->n + j];
}

/* Rows that the ends cut have the sum of whole ones, 1. */
static double at(const flux_scene *s, size_t i, size_t k, size_t j)
{
    double sum = 0;
    if (k >= s->ndiag / 2 && k + s->ndiag / 2 < s->n)
        return stored(s, i, k, j);
    for (size_t q = 0; q < s->n; q++)
        sum += stored(s, i, k, q);
    return stored(s, i, k, j) / sum;
}

static void invert(size_t n, long double *a, long double *inv)
{
    for (size_t i = 0; i < n * n; i++)
        inv[i] = i / n == i % n;
    for (size_t p = 0; p < n; p++) {
        const long double scale = 1 / a[p * n + p];
        for (size_t j = 0; j < n; j++) {
            a[p * n + j] *= scale;
            inv[p * n + j] *= scale;
        }
        for (size_t i = 0; i < n; i++) {
            const long double f = i == p ? 0 : a[i * n + p];
            for (size_t j = 0; j < n && f != 0; j++) {
                a[i * n + j] -= f * a[p * n + j];
                inv[i * n + j] -= f * inv[p * n + j];
            }
        }
    }
}

/* C and its covariance by dense normal equations with the scales that were found. Nothing is rejected, and stars are
 * alike, so that weights are those of the data. */
static void dense(void)
{
    const flux_scene_how how = {.first = 7500, .sn = 25, .tilt = 0.02, .wave = 0.01, .grain = 0.01};
    const size_t n = 180, nstar = 5;
    flux_scene s;
    spx_flux_options o;
    spx_flux f;
    spx_err e = {0};
    flux_scene_draw(&s, 6, nstar, n, 7, 3, &how);
    for (size_t k = 0; k < nstar * n; k += 17)
        s.arm.mask[k] = 4;
    spx_flux_options_init(&o);
    o.nband = spx_flux_nband;
    o.band = spx_flux_bands[0];
    o.clip = 0;
    o.passes = 40;
    o.smooth = 1e4;
    if (spx_flux_solve_cpu(&s.arm, &s.in, &o, &f, &e) != SPX_OK) {
        CHECK(0, "solve: %s", e.text);
        flux_scene_free(&s);
        return;
    }
    long double *m = calloc(n * n, sizeof *m), *inv = calloc(n * n, sizeof *inv), *y = calloc(n, sizeof *y);
    double *diagonal = calloc(n, sizeof *diagonal), *lambda = calloc(n, sizeof *lambda);
    if (m == NULL || inv == NULL || y == NULL || diagonal == NULL || lambda == NULL)
        exit(1);
    for (size_t i = 0; i < nstar; i++) {
        const double a = f.star[i].scale;
        CHECK(f.star[i].fate == SPX_FLUX_USED, "star %zu is left out: %d", i, (int)f.star[i].fate);
        for (size_t k = 0; k < n; k++) {
            const double w = s.arm.mask[i * n + k] ? 0 : s.arm.ivar[i * n + k];
            for (size_t p = k < 3 ? 0 : k - 3; p < n && p <= k + 3; p++) {
                const long double bp = a * at(&s, i, k, p) * s.model[i * n + p];
                y[p] += w * bp * s.arm.flux[i * n + k];
                for (size_t q = k < 3 ? 0 : k - 3; q < n && q <= k + 3; q++)
                    m[p * n + q] += w * bp * a * at(&s, i, k, q) * s.model[i * n + q];
            }
        }
    }
    size_t count = 0;
    for (size_t k = 0; k < n; k++) {
        lambda[k] = 1e4;
        for (size_t b = 0; b < spx_flux_nband; b++)
            if (s.arm.wavelength[k] >= spx_flux_bands[b][0] && s.arm.wavelength[k] <= spx_flux_bands[b][1])
                lambda[k] = 1e-2;
        if (lambda[k] > 1)
            diagonal[count++] = (double)m[k * n + k];
    }
    CHECK(count > 20 && count < n - 20, "%zu bins off bands: the case has none of one kind", count);
    const double middle = spx_median(diagonal, count);
    for (size_t k = 1; k + 1 < n; k++)
        for (size_t i = 0; i < 3; i++)
            for (size_t j = 0; j < 3; j++)
                m[(k - 1 + i) * n + k - 1 + j] += middle * lambda[k] * (i == 1 ? -2 : 1) * (j == 1 ? -2 : 1);
    invert(n, m, inv);
    for (size_t k = 0; k < n; k++) {
        long double c = 0;
        for (size_t j = 0; j < n; j++)
            c += inv[k * n + j] * y[j];
        const double error = sqrt((double)inv[k * n + k]);
        CHECK(fabs(f.response[k] - (double)c) < 1e-8 * error, "C[%zu] is %.15g, dense %.15g, error %g", k,
              f.response[k], (double)c, error);
        for (size_t d = 0; d < 7 && k + d < n; d++)
            CHECK(fabs(f.covariance[d * n + k] - (double)inv[k * n + k + d]) < 1e-8 * error * error,
                  "covariance (%zu, %zu) is %g, dense %g", k, k + d, f.covariance[d * n + k],
                  (double)inv[k * n + k + d]);
    }
    /* the scales are <D, R C T>/<R C T, R C T>, but for their median */
    double ratio[5];
    for (size_t i = 0; i < nstar; i++) {
        double dm = 0, mm = 0;
        for (size_t k = 0; k < n; k++) {
            double model = 0;
            for (size_t j = k < 3 ? 0 : k - 3; j < n && j <= k + 3; j++)
                model += at(&s, i, k, j) * f.response[j] * s.model[i * n + j];
            if (!s.arm.mask[i * n + k]) {
                dm += s.arm.ivar[i * n + k] * s.arm.flux[i * n + k] * model;
                mm += s.arm.ivar[i * n + k] * model * model;
            }
        }
        ratio[i] = dm / mm / f.star[i].scale;
        CHECK(fabs(ratio[i] / ratio[0] - 1) < 1e-6, "scale %zu is %.10g, scale 0 %.10g of that of the fit", i, ratio[i],
              ratio[0]);
    }
    free(m);
    free(inv);
    free(y);
    free(diagonal);
    free(lambda);
    spx_flux_free(&f);
    flux_scene_free(&s);
}

/* Calibrated spectra against dense products: flux, variance, R' with rows of sum 1; and R' T is the flux. */
static void apply(void)
{
    const flux_scene_how how = {.first = 7500};
    const size_t n = 200;
    flux_scene s;
    spx_err e = {0};
    flux_scene_draw(&s, 4, 3, n, 7, 5, &how);
    spx_flux f = {.nwave = n, .ndiag = 7, .wavelength = s.arm.wavelength, .floor = 0.003};
    f.response = flux_array(n);
    f.covariance = flux_array(7 * n);
    f.model_error = flux_array(n);
    f.stars = spx_alloc(n, sizeof *f.stars, &e);
    if (f.stars == NULL)
        exit(1);
    for (size_t k = 0; k < n; k++) {
        f.response[k] = s.truth[k];
        f.stars[k] = k == 77 ? 0 : 3;
        f.model_error[k] = 0.004;
        for (size_t d = 0; d < 7; d++)
            f.covariance[d * n + k] = 1e-6 * exp(-0.3 * (double)d) * (k == 120 ? 1e8 : 1);
    }
    flux_scene before;
    flux_scene_draw(&before, 4, 3, n, 7, 5, &how);
    for (size_t d = 0; d < 7; d++) /* elements without a row may be anything */
        for (size_t j = 0; j < n; j++)
            if (j + d < 3 || j + d - 3 >= n)
                s.arm.resolution[d * n + j] = NAN;
    size_t bad = 0;
    const spx_status st = spx_flux_apply_cpu(&f, 1, 3, 4, &s.arm, &bad, &e);
    CHECK(st == SPX_OK && bad > 1, "apply: %s, %zu wavelengths without a response", e.text, bad);
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < n; k++) {
            long double ci = 0, v = 0, sum = 0, flux = 0;
            for (size_t j = k < 3 ? 0 : k - 3; j < n && j <= k + 3; j++) {
                ci += at(&before, i, k, j) * s.truth[j];
                for (size_t q = k < 3 ? 0 : k - 3; q < n && q <= k + 3; q++)
                    v += at(&before, i, k, j) * at(&before, i, k, q) *
                         f.covariance[(j < q ? q - j : j - q) * n + (j < q ? j : q)];
                sum += stored(&s, i, k, j);
                flux += s.scale[i] * at(&s, i, k, j) * s.star[i * n + j];
            }
            const size_t x = i * n + k;
            const double relative2 = (double)(v / (ci * ci)) + 0.004 * 0.004 + 0.003 * 0.003;
            if (k == 77 || 9 * relative2 > 1) {
                CHECK(s.arm.ivar[x] == 0 && s.arm.flux[x] == 0 && s.arm.mask[x] == SPX_NODATA,
                      "bin %zu without a response has ivar %g, mask %u", k, s.arm.ivar[x], (unsigned)s.arm.mask[x]);
                continue;
            }
            const double f0 = before.arm.flux[x] / (double)ci;
            CHECK(fabs(s.arm.flux[x] - f0) < 1e-12 * fabs(f0), "flux %zu, %zu", i, k);
            const double variance = 1 / (before.arm.ivar[x] * (double)(ci * ci)) + f0 * f0 * relative2;
            CHECK(fabs(s.arm.ivar[x] * variance - 1) < 1e-12, "ivar %zu, %zu: %g, not %g", i, k, s.arm.ivar[x],
                  1 / variance);
            CHECK(fabsl(sum - 1) < 1e-13, "row %zu of R' of fibre %zu sums to %.17Lg", k, i, sum);
            CHECK(fabsl(flux - s.arm.flux[x]) < 1e-11 * fabsl(flux), "R' T of fibre %zu, bin %zu: %Lg, flux %g", i, k,
                  flux, s.arm.flux[x]);
        }
    f.wavelength = NULL;
    spx_flux_free(&f);
    flux_scene_free(&s);
    flux_scene_free(&before);
}

/* Pulls of many bins and seeds, off bands and within. */
typedef struct {
    double off, in; /* rms errors of one seed */
    size_t n[2];
    double *pull[2];
} accuracy;

/* Adds the errors of the convolved throughput of fibre 0, normalised, where it is above a tenth of the largest. */
static int measure(size_t nstar, uint64_t seed, const flux_scene_how *how, accuracy *out)
{
    const size_t n = 2326;
    flux_scene s;
    spx_flux_options o;
    spx_flux f;
    spx_err e = {0};
    flux_scene_draw(&s, nstar, nstar, n, 11, seed, how);
    spx_flux_options_init(&o);
    o.nband = spx_flux_nband;
    o.band = spx_flux_bands[0];
    if (spx_flux_solve_cpu(&s.arm, &s.in, &o, &f, &e) != SPX_OK) {
        CHECK(0, "seed %d: %s", (int)seed, e.text);
        flux_scene_free(&s);
        return 0;
    }
    double *c = flux_array(n), *truth = flux_array(n), *v = flux_array(n), *ratio = flux_array(n);
    spx_resolution_apply(n, 11, s.arm.resolution, f.response, c);
    spx_resolution_apply(n, 11, s.arm.resolution, s.truth, truth);
    spx_resolution_variance(n, 11, s.arm.resolution, f.covariance, v);
    for (size_t k = 0; k < n; k++)
        ratio[k] = c[k] / truth[k];
    const double norm = spx_median(ratio, n);
    double square[2] = {0}, count[2] = {0}, *width = flux_array(2 * n);
    spx_resolution_widths(n, 11, s.arm.resolution + 11 * n * f.star[0].row, width + n, width);
    const double part = hypot(0.08 / pow(spx_median(width, n), 2), 0.006);
    for (size_t k = 0; k < n; k++) {
        const double x = c[k] / truth[k] / norm - 1;
        /* the scene has a grid that holds its lines: what the response has for that is not seen */
        double least = c[k], most = c[k];
        for (size_t l = k < 4 ? 0 : k - 4; l <= k + 4 && l < n; l++) {
            least = fmin(least, c[l]);
            most = fmax(most, c[l]);
        }
        const double grid = part * (most - fmax(least, 0)) / c[k], models = pow(f.model_error[k], 2) - grid * grid;
        const double error = sqrt(v[k] / (c[k] * c[k]) + fmax(models, 0));
        CHECK(models >= -1e-12, "bin %zu: error by the grid %g, model_error %g", k, grid, f.model_error[k]);
        size_t in = 0;
        for (size_t b = 0; b < spx_flux_nband; b++)
            in |= s.arm.wavelength[k] >= spx_flux_bands[b][0] && s.arm.wavelength[k] <= spx_flux_bands[b][1];
        if (truth[k] < 0.2)
            continue;
        square[in] += x * x;
        count[in]++;
        out->pull[in][out->n[in]++] = x / error;
    }
    out->off = sqrt(square[0] / count[0]);
    out->in = sqrt(square[1] / count[1]);
    spx_free(c);
    spx_free(truth);
    spx_free(v);
    spx_free(ratio);
    spx_free(width);
    spx_flux_free(&f);
    flux_scene_free(&s);
    return 1;
}

/* Median of v[n], and 1.4826 times the median deviation from it; the median reorders and overwrites. */
static void robust(size_t n, const double *v, double *median, double *scatter)
{
    double *copy = flux_array(n);
    memcpy(copy, v, n * sizeof *v);
    *median = spx_median(copy, n);
    for (size_t k = 0; k < n; k++)
        copy[k] = fabs(v[k] - *median);
    *scatter = 1.4826 * spx_median(copy, n);
    spx_free(copy);
}

static void accurate(const char *what, size_t nstar, const flux_scene_how *how, double most_off, double most_in,
                     double least, double most)
{
    enum { SEEDS = 10 };
    double off[SEEDS], in[SEEDS], median[2], scatter[2];
    accuracy a = {.n = {0}};
    a.pull[0] = flux_array(SEEDS * 2326);
    a.pull[1] = flux_array(SEEDS * 2326);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        if (!measure(nstar, seed + 1, how, &a))
            return;
        off[seed] = a.off;
        in[seed] = a.in;
    }
    const double o = spx_median(off, SEEDS), i = spx_median(in, SEEDS);
    robust(a.n[0], a.pull[0], &median[0], &scatter[0]);
    robust(a.n[1], a.pull[1], &median[1], &scatter[1]);
    if (getenv("SPX_VERBOSE") != NULL)
        printf("%s: off bands %.3f %%, pull %+.2f, %.2f; in bands %.2f %%, pull %+.2f, %.2f\n", what, 100 * o,
               median[0], scatter[0], 100 * i, median[1], scatter[1]);
    CHECK(o <= most_off && i <= most_in, "%s: error %.3f %% off bands, %.3f %% within", what, 100 * o, 100 * i);
    CHECK(scatter[0] > least && scatter[0] < most && fabs(median[0]) < 0.25, "%s: pull off bands %+.2f, scatter %.2f",
          what, median[0], scatter[0]);
    CHECK(scatter[1] > 0.9 && scatter[1] < 1.12 && fabs(median[1]) < 0.15, "%s: pull in bands %+.2f, scatter %.2f",
          what, median[1], scatter[1]);
    spx_free(a.pull[0]);
    spx_free(a.pull[1]);
}

/* Stars that are used and refused, and input that is refused. */
static void stars(void)
{
    const flux_scene_how how = {.first = 7520, .sn = 25, .tilt = 0.01, .wave = 0.005, .grain = 0.01};
    const size_t n = 600, nstar = 12;
    flux_scene s;
    spx_flux_options o;
    spx_flux f;
    spx_err e = {0};
    flux_scene_draw(&s, nstar, nstar, n, 11, 9, &how);
    spx_flux_options_init(&o);
    o.nband = spx_flux_nband;
    o.band = spx_flux_bands[0];
    for (size_t k = 0; k < n; k++) {
        s.arm.flux[2 * n + k] *= 1.8; /* star 2: too bright */
        s.arm.ivar[2 * n + k] /= 1.8 * 1.8;
        s.model[5 * n + k] *= 1 + 0.6 * ((double)k / (double)n - 0.5); /* star 5: another star's model */
        s.arm.ivar[7 * n + k] = 0;                                     /* star 7: nothing */
        s.model[8 * n + k] = k < 300 ? s.model[8 * n + k] : 0;         /* star 8: half a model */
        for (size_t i = 0; i < nstar && k >= 200 && k < 205; i++)
            s.arm.mask[i * n + k] = 1; /* no star has these */
    }
    for (size_t k = 20; k < n; k += 100)
        s.arm.flux[k] += 40 / sqrt(s.arm.ivar[k]); /* star 0: hits */
    if (spx_flux_solve_cpu(&s.arm, &s.in, &o, &f, &e) != SPX_OK) {
        CHECK(0, "%s", e.text);
        flux_scene_free(&s);
        return;
    }
    static const spx_flux_fate fate[12] = {[2] = SPX_FLUX_SCALE, [5] = SPX_FLUX_SHAPE, [7] = SPX_FLUX_NO_DATA};
    for (size_t i = 0; i < nstar; i++)
        CHECK(f.star[i].fate == fate[i], "star %zu: %d, not %d (scale %g, shape %g)", i, (int)f.star[i].fate,
              (int)fate[i], f.star[i].scale, f.star[i].shape);
    CHECK(f.star[0].nreject >= 6 && f.star[0].nreject < 12, "%d bins of star 0 rejected", (int)f.star[0].nreject);
    CHECK(f.star[8].nbin > 280 && f.star[8].nbin < 300, "%d bins of star 8", (int)f.star[8].nbin);
    for (size_t k = 200; k < 205; k++)
        CHECK(f.stars[k] == 0 && fabs(f.response[k] / s.truth[k] / (f.response[190] / s.truth[190]) - 1) < 0.3,
              "bin %zu without a star: %d, response %g", k, (int)f.stars[k], f.response[k]);
    for (size_t k = 0; k < n; k++)
        CHECK(isfinite(f.response[k]) && f.covariance[k] > 0 && isfinite(f.covariance[k]) && isfinite(f.model_error[k]),
              "bin %zu is not finite", k);
    /* threads change nothing */
    spx_flux g;
    o.nthreads = 3;
    if (spx_flux_solve_cpu(&s.arm, &s.in, &o, &g, &e) == SPX_OK) {
        CHECK(memcmp(f.response, g.response, n * sizeof *f.response) == 0 &&
                  memcmp(f.covariance, g.covariance, 11 * n * sizeof *f.covariance) == 0 &&
                  memcmp(f.model_error, g.model_error, n * sizeof *f.model_error) == 0,
              "three threads give other bits");
        spx_flux_free(&g);
    }
    spx_flux_free(&f);
    /* refusals */
    s.in.nstar = 2;
    CHECK(spx_flux_solve_cpu(&s.arm, &s.in, &o, &f, &e) == SPX_EINPUT, "two stars are taken");
    s.in.nstar = 0;
    e = (spx_err){0};
    CHECK(spx_flux_solve_cpu(&s.arm, &s.in, &o, &f, &e) == SPX_EINPUT, "no star is taken");
    s.in.nstar = nstar;
    s.model[4] = NAN;
    e = (spx_err){0};
    CHECK(spx_flux_solve_cpu(&s.arm, &s.in, &o, &f, &e) == SPX_EINPUT, "a model of NaN is taken");
    flux_scene_free(&s);
}

/* Factor of a template to a flux of a passband: of constant f_nu it is f_nu c/lambda^2, whatever the passband. */
static void photometry(void)
{
    enum { N = 400 };
    double w[N], t[N];
    for (int k = 0; k < N; k++) {
        w[k] = 5600 + 5. * k;
        t[k] = 7 / (w[k] * w[k]);
    }
    const double factor = spx_flux_factor(N, w, t, 5680, 7160, 100);
    const double flux = factor * t[200] * 1e-17, expected = 100 * 3.631e-29 * 2.99792458e18 / (w[200] * w[200]);
    CHECK(fabs(flux / expected - 1) < 1e-12, "flux %g, not %g", flux, expected);
    CHECK(spx_flux_factor(N, w, t, 5000, 7160, 100) == 0, "a passband that is covered by half has a flux");
    CHECK(spx_flux_factor(N, w, t, 5680, 7160, 0) == 0, "a star of no light has a flux");
}

int main(void)
{
    const flux_scene_how wrong = {.first = 7520, .sn = 25, .tilt = 0.02, .wave = 0.01, .grain = 0.01};
    const flux_scene_how right = {.first = 7520, .sn = 25};
    const flux_scene_how bright = {.first = 7520, .sn = 500};
    const flux_scene_how smooth = {.first = 7520, .sn = 25, .smooth = 1};
    dense();
    apply();
    stars();
    photometry();
    accurate("20 stars", 20, &wrong, 0.0035, 0.012, 0.75, 1.15);
    accurate("10 stars", 10, &wrong, 0.0050, 0.016, 0.75, 1.15);
    accurate("40 stars", 40, &wrong, 0.0035, 0.012, 0.75, 1.25);
    accurate("20 stars, right models", 20, &right, 0.0020, 0.012, 0.85, 1.1);
    accurate("20 bright stars", 20, &bright, 0.0002, 0.0008, 0.7, 1.1);
    accurate("20 stars, no tellurics", 20, &smooth, 0.0020, 0.012, 0.85, 1.1);
    return failures != 0;
}
