/* kernels/coadd beyond the cases of op_coadd.c: information that is kept, exact copies, gaps, values that are no
 * numbers, scales and hits against what was put in, many exposures, the same bits for any batch and instruction set. */
#include <float.h>
#include <string.h>

#include "check.h"
#include "coadd/coadd_lanes.h"
#include "coadd/coadd_math.h"
#include "coadd_dense.h"

static spx_coadd coadd(const exposures *x, spx_coadd_method method, double reject, int scale, size_t ndiag, int threads)
{
    const spx_coadd_input in = input_of(x);
    const spx_coadd_options o = {method, reject, scale, ndiag, threads, NULL};
    spx_coadd out = {0};
    spx_err e = {0};
    must(spx_coadd_cpu(&in, &o, &out, &e) == SPX_OK, &e);
    return out;
}

/* R f of a coadd at bin k. */
static double model_of(const spx_coadd *c, size_t t, size_t k, const double *f)
{
    const double *r = c->resolution + t * c->ndiag * c->nwave;
    double model = 0;
    for (size_t j = k > c->ndiag ? k - c->ndiag : 0; j < c->nwave && j <= k + c->ndiag; j++)
        model += element_of(c->nwave, c->ndiag, r, k, j) * f[j];
    return model;
}

/* What R^T diag(ivar) R lacks of N: of single elements, relative to the geometric mean of their diagonal elements, the
 * most of all; and of the information on a velocity, v^T N v with v the derivative of the spectrum. */
static void information_lost(const exposures *x, const spx_coadd *c, size_t t, double *element, double *velocity)
{
    const size_t n = x->nwave;
    long double *normal = memory_for(n * n, sizeof *normal), *y = memory_for(n, sizeof *y), all = 0, lost = 0;
    const double *r = c->resolution + t * c->ndiag * n, *ivar = c->ivar + t * n, *f = x->truth + t * n;
    *element = 0;
    dense_normal(x, t, normal, y);
    for (size_t p = 0; p < n; p++)
        for (size_t q = 0; q < n; q++) {
            long double sum = 0;
            for (size_t k = p > c->ndiag ? p - c->ndiag : 0; k < n && k <= p + c->ndiag; k++)
                sum += element_of(n, c->ndiag, r, k, p) * (long double)ivar[k] * element_of(n, c->ndiag, r, k, q);
            const long double of = sqrtl(normal[p * n + p] * normal[q * n + q]), less = normal[p * n + q] - sum;
            *element = fmax(*element, (double)(fabsl(less) / of));
            if (p > 0 && q > 0 && p + 1 < n && q + 1 < n) {
                const double v = (f[p + 1] - f[p - 1]) * (f[q + 1] - f[q - 1]);
                all += v * normal[p * n + q];
                lost += v * less;
            }
        }
    *velocity = (double)fabsl(lost / all);
    spx_free(normal);
    spx_free(y);
}

/* Optimal coadds keep the information of all exposures: to 1e-8 where R has enough diagonals, on velocities to 1e-4
 * with those that products have. What simple ones keep is printed. */
static void information(void)
{
    static const struct {
        double width, step;
        int masked;
    } cases[] = {{0.9, 0, 0}, {0.9, 0.05, 0}, {0.9, 0.05, 1}, {0.75, 0.5, 0}, {0.75, 0.5, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const size_t ndiag[] = {11, 15, 21, 81};
        exposures x =
            draw_exposures(1, i < 3 ? 4 : 2, 200, 11, cases[i].width, cases[i].step, 30, 1, cases[i].masked, i);
        printf("widths %.2f + %.0f %%%s: lost of single elements, velocities:\n", cases[i].width, 100 * cases[i].step,
               cases[i].masked ? ", masks" : "");
        for (size_t k = 0; k < 4; k++) {
            spx_coadd c = coadd(&x, k == 0 ? SPX_COADD_SIMPLE : SPX_COADD_OPTIMAL, 0, 0, ndiag[k], 1);
            double element, velocity;
            information_lost(&x, &c, 0, &element, &velocity);
            printf("    %s, %zu diagonals: %.1e, %.1e\n", k == 0 ? "simple" : "optimal", c.ndiag, element, velocity);
            CHECK(ndiag[k] < 81 || (element < 1e-8 && velocity < 1e-8), "information is lost: %g, %g", element,
                  velocity);
            CHECK(k == 0 || velocity < 1e-4, "information on velocities is lost: %g", velocity);
            CHECK(k == 0 || (c.optimal[0] && c.failed == 0), "not optimal");
            spx_coadd_free(&c);
        }
        exposures_free(&x);
    }
}

/* Without noise each coadd is R f of its own R, at a signal-to-noise ratio of 100; with the diagonals that products
 * have to a thousandth of an error. */
static void exact(void)
{
    static const size_t ndiag[] = {11, 81, 15};
    for (int k = 0; k < 3; k++) {
        exposures x = draw_exposures(6, 4, 300, 11, 0.9, 0.1, 100, 0, 1, 3);
        spx_coadd c = coadd(&x, k == 0 ? SPX_COADD_SIMPLE : SPX_COADD_OPTIMAL, 0, 0, ndiag[k], 2);
        double most = 0;
        for (size_t t = 0; t < 6; t++)
            for (size_t p = 0; p < 300; p++) {
                const double model = model_of(&c, t, p, x.truth + t * 300);
                if (c.mask[t * 300 + p] == 0)
                    most = fmax(most, fabs(c.flux[t * 300 + p] - model) * sqrt(c.ivar[t * 300 + p]));
            }
        printf("%s without noise, %zu diagonals: within %.1e errors of R f\n", k == 0 ? "simple" : "optimal", ndiag[k],
               most);
        CHECK(most < (k == 0 ? 1e-9 : k == 1 ? 1e-6 : 2e-2), "flux is not R f, by %g errors", most);
        spx_coadd_free(&c);
        exposures_free(&x);
    }
}

/* Exposures that are cut out of longer ones, as an arm is: light from beyond the ends is no light of the end bins.
 * Spectra that are smooth there, at a signal-to-noise ratio of 100, without noise. */
static void ends(void)
{
    enum { LONG = 240, CUT = 20, N = LONG - 2 * CUT };
    exposures x = draw_exposures(1, 3, LONG, 11, 0.9, 0.1, 100, 0, 0, 13),
              cut = draw_exposures(1, 3, N, 11, 0.9, 0, 1, 0, 0, 1);
    for (size_t k = 0; k < N; k++)
        cut.truth[k] = 1e4 * (1 + 0.1 * sin(0.05 * (double)k));
    for (size_t i = 0; i < 3; i++) {
        for (size_t b = 0; b < 11; b++)
            memcpy(cut.resolution + (i * 11 + b) * N, x.resolution + (i * 11 + b) * LONG + CUT,
                   N * sizeof *cut.resolution);
        for (size_t k = 0; k < N; k++) {
            double flux = 0;
            for (size_t j = k + CUT - 10; j <= k + CUT + 10; j++)
                flux += element_of(LONG, 11, x.resolution + i * 11 * LONG, k + CUT, j) * 1e4 *
                        (1 + 0.1 * sin(0.05 * ((double)j - CUT)));
            cut.flux[i * N + k] = flux;
            cut.ivar[i * N + k] = 1e-4;
        }
    }
    for (int method = 0; method < 2; method++) {
        spx_coadd c = coadd(&cut, (spx_coadd_method)method, 5, 1, method == 0 ? 11 : 15, 1);
        double most = 0, rows = 0;
        for (size_t k = 0; k < N; k++) {
            double row = 0;
            for (size_t j = k > 15 ? k - 15 : 0; j < N && j <= k + 15; j++)
                row += element_of(N, c.ndiag, c.resolution, k, j);
            /* the row's light, were the spectrum to go on beyond its ends as it is */
            const double model = model_of(&c, 0, k, cut.truth) + (1 - row) * cut.truth[k];
            most = fmax(most, fabs(c.flux[k] - model) * sqrt(c.ivar[k]));
            rows = fmax(rows, fabs(row - 1));
        }
        printf("%s, arms that end: within %.2f errors\n", method == 0 ? "simple" : "optimal", most);
        /* the spectrum changes by 0.9 errors of the coadd a bin, and a quarter of the light is from 1 to 2 bins further
         */
        CHECK(most < 0.5, "ends are off by %g errors", most);
        CHECK(method == 0 ? rows > 0.2 : rows < 1e-9, "rows sum to 1 within %g", rows);
        CHECK(c.rejected[0] + c.rejected[1] + c.rejected[2] == 0, "bins of the ends are rejected");
        spx_coadd_free(&c);
    }
    exposures_free(&x);
    exposures_free(&cut);
}

/* The only exposure is copied to the byte; values that are not finite become 0. */
static void one_exposure(void)
{
    for (int method = 0; method < 3; method++) {
        exposures x = draw_exposures(4, 1, 100, 11, 0.9, 0, 30, 1, 1, 8);
        const size_t ndiag = spx_coadd_diagonals((spx_coadd_method)method, 11), more = (ndiag - 11) / 2;
        x.flux[17] = NAN;
        x.ivar[20] = INFINITY;
        x.ivar[21] = -1;
        spx_coadd c = coadd(&x, (spx_coadd_method)method, 5, 1, ndiag, 1);
        for (size_t i = 0; i < 400; i++) {
            const int bad = i == 17 || i == 20 || i == 21;
            const double flux = bad ? 0 : x.flux[i], ivar = bad ? 0 : x.ivar[i];
            CHECK(memcmp(&c.flux[i], &flux, 8) == 0 && memcmp(&c.ivar[i], &ivar, 8) == 0, "bin %zu is not the input's",
                  i);
            CHECK(c.mask[i] == (bad && x.mask[i] == 0 ? SPX_COADD_NODATA : x.mask[i]), "mask %zu", i);
        }
        for (size_t t = 0; t < 4; t++)
            for (size_t k = 0; k < 100; k++)
                for (size_t j = 0; j < 100; j++) {
                    const double *r = c.resolution + t * ndiag * 100, *from = x.resolution + t * 1100;
                    CHECK(element_of(100, ndiag, r, k, j) == element_of(100, 11, from, k, j), "R(%zu,%zu)", k, j);
                }
        CHECK(more == (method == 0 ? 0 : 2), "%zu diagonals", ndiag);
        spx_coadd_free(&c);
        exposures_free(&x);
    }
}

/* Grey scales as put in, and not where the light is too faint to tell. */
static void scales(void)
{
    static const double put[4] = {0.5, 1, 1.3, 3};
    for (int bright = 0; bright < 2; bright++) {
        exposures x = draw_exposures(1, 4, 400, 11, 0.9, 0.05, bright ? 30 : 0.02, 1, 0, 5);
        for (size_t i = 0; i < 4; i++)
            for (size_t k = 0; k < 400; k++) {
                x.flux[i * 400 + k] *= put[i];
                x.ivar[i * 400 + k] /= put[i] * put[i];
            }
        spx_coadd c = coadd(&x, SPX_COADD_OPTIMAL, 5, 1, 15, 1);
        for (size_t i = 0; i < 4; i++) {
            /* errors of the ratios: 1/sqrt(400 bins S/N 20^2), 3e-3 */
            const double ratio = c.scale[i] / c.scale[1] / put[i];
            CHECK(bright ? fabs(ratio - 1) < 0.02 : c.scale[i] == 1, "scale %zu is %g of what was put in", i, ratio);
            CHECK(c.rejected[i] <= 1, "%u bins rejected", c.rejected[i]);
            CHECK(!bright || fabs(c.chi2[i] - 1) < 0.4, "chi2 of exposure %zu is %g", i, c.chi2[i]);
        }
        spx_coadd_free(&c);
        exposures_free(&x);
    }
}

/* Hits, in one of 2 ... 6 exposures: found, others left alone, and none where there is none. */
static void hits(void)
{
    for (size_t most = 2; most <= 6; most += 2)
        for (int hit = 0; hit < 2; hit++) {
            const size_t n = 500, ntarget = 8;
            exposures x = draw_exposures(ntarget, most, n, 11, 0.9, 0.03, 30, 1, 0, 11 + most);
            uint8_t *put = memory_for(x.nexp * n, 1);
            size_t number = 0, found = 0, more = 0, off[2] = {0};
            for (size_t t = 0; t < ntarget; t++)
                for (size_t k = 20; k < n - 20 && hit && x.first[t + 1] - x.first[t] > 1; k += 40) {
                    const size_t i = x.first[t] + (k / 40) % (x.first[t + 1] - x.first[t]);
                    for (size_t b = k; b < k + 1 + (k / 40) % 3; b++) { /* 1 to 3 bins */
                        x.flux[i * n + b] += (k % 3 == 0 ? 1e5 : 30) / sqrt(x.ivar[i * n + b]);
                        put[i * n + b] = 1;
                        number++;
                    }
                }
            for (int with = 0; with < 2; with++) {
                spx_coadd c = coadd(&x, SPX_COADD_SIMPLE, with ? 5 : 0, with, 11, 2);
                size_t all = 0;
                for (size_t i = 0; i < x.nexp; i++)
                    all += c.rejected[i];
                for (size_t t = 0; t < ntarget; t++)
                    for (size_t k = 0; k < n && x.first[t + 1] - x.first[t] > 1; k++) {
                        const double model = model_of(&c, t, k, x.truth + t * n);
                        off[with] += fabs(c.flux[t * n + k] - model) * sqrt(c.ivar[t * n + k]) > 5;
                    }
                found = with ? all : 0;
                spx_coadd_free(&c);
            }
            more = found > number ? found - number : 0;
            printf("up to %zu exposures, %zu bins hit: %zu rejected; off by more than 5 errors: %zu, without %zu\n",
                   most, number, found, off[1], off[0]);
            CHECK(hit || found <= 1, "%zu bins without a hit are rejected", found);
            CHECK(!hit || (found >= number * 95 / 100 && more <= 2 + number / 50), "%zu of %zu", found, number);
            CHECK(!hit || off[1] * 20 <= off[0], "%zu of %zu bins stay wrong", off[1], off[0]);
            spx_free(put);
            exposures_free(&x);
        }
}

/* Bins of wrong ivar, after which they are none. */
static size_t clean(exposures *x, size_t ntarget, size_t n)
{
    spx_coadd_cleaned cleaned = {0};
    spx_coadd_clean(ntarget, x->first, n, 11, x->resolution, x->ivar, 2, &cleaned);
    CHECK(cleaned.wrong == 0, "%zu exposures have no R", cleaned.wrong);
    return cleaned.over;
}

/* Everything masked; a gap of 20 bins in all exposures; values that are no numbers. */
static void gaps(void)
{
    for (int method = 0; method < 2; method++) {
        const size_t n = 300;
        exposures x = draw_exposures(3, 3, n, 11, 0.9, 0.1, 50, 0, 0, 21);
        for (size_t i = x.first[1]; i < x.first[2]; i++)
            for (size_t k = 0; k < n; k++) {
                x.mask[i * n + k] = 1u << (i - x.first[1]);
                x.flux[i * n + k] = NAN;
            }
        for (size_t i = x.first[2]; i < x.first[3]; i++) {
            for (size_t k = 100; k < 120; k++)
                x.ivar[i * n + k] = 0;
            x.flux[i * n + 200] = i % 2 ? NAN : INFINITY;
            x.ivar[i * n + 210] = NAN;
            x.resolution[(i * 11 + 5) * n + 220] = NAN;
            x.resolution[(i * 11 + 3) * n + 230] = -INFINITY;
        }
        (void)clean(&x, 3, n);
        spx_coadd c = coadd(&x, (spx_coadd_method)method, 5, 1, method == 0 ? 11 : 21, 1);
        for (size_t i = 0; i < 3 * n; i++)
            CHECK(isfinite(c.flux[i]) && isfinite(c.ivar[i]) && c.ivar[i] >= 0, "bin %zu", i);
        for (size_t i = 0; i < 3 * c.ndiag * n; i++)
            CHECK(isfinite(c.resolution[i]), "resolution %zu", i);
        for (size_t i = 0; i < x.nexp; i++)
            CHECK(isfinite(c.scale[i]) && isfinite(c.chi2[i]), "exposure %zu", i);
        for (size_t k = 0; k < n; k++)
            CHECK(c.flux[n + k] == 0 && c.ivar[n + k] == 0 && c.mask[n + k] == (x.first[2] - x.first[1] == 2 ? 3 : 1),
                  "all masked: bin %zu is %g, %g, mask %u", k, c.flux[n + k], c.ivar[n + k], c.mask[n + k]);
        for (size_t k = 0; k < n; k++) {
            const size_t at = 2 * n + k;
            const double model = model_of(&c, 2, k, x.truth + 2 * n);
            if (k >= 105 && k < 115)
                CHECK(c.ivar[at] < 1e-3 * c.ivar[2 * n + 50], "gap: ivar[%zu] is %g", k, c.ivar[at]);
            CHECK((k >= 100 && k < 120) == (c.mask[at] == SPX_COADD_NODATA) || k > 195, "gap: mask[%zu] is %u", k,
                  c.mask[at]);
            /* x beyond the gap's edge is not known, and leaks in by what R has there, within its error */
            if (c.mask[at] == 0 && (k < 100 || k > 119))
                CHECK(fabs(c.flux[at] - model) * sqrt(c.ivar[at]) < 1e-3, "gap: flux[%zu] is off by %g errors", k,
                      (c.flux[at] - model) * sqrt(c.ivar[at]));
        }
        spx_coadd_free(&c);
        exposures_free(&x);
    }
}

/* One ivar out of all proportion is left out, and what lies around it stays as it is without that bin; one within the
 * range is taken at its word, and bins beyond the reach of its row stay. */
static void range(void)
{
    static const double factor[] = {1e7, 1e10, 1e16, 1e300};
    enum { N = 300, AT = 150, NEAR = 15 };
    for (size_t f = 0; f < sizeof factor / sizeof *factor; f++)
        for (int method = 0; method < 2; method++) {
            exposures x = draw_exposures(2, 3, N, 11, 0.9, 0.1, 50, 1, 0, 5);
            double *at = &x.ivar[x.first[1] * N + AT];
            const double was = *at;
            *at = 0;
            CHECK(clean(&x, 2, N) == 0, "bins are left out");
            spx_coadd without = coadd(&x, (spx_coadd_method)method, 0, 0, method == 0 ? 11 : 15, 1);
            *at = was * factor[f];
            const size_t over = clean(&x, 2, N);
            spx_coadd c = coadd(&x, (spx_coadd_method)method, 0, 0, method == 0 ? 11 : 15, 1);
            CHECK(over == (factor[f] > 1e8), "%g: %zu bins are left out", factor[f], over);
            for (size_t k = 0; k < 2 * N; k++) {
                const size_t from = k > N + AT ? k - N - AT : N + AT - k;
                const double off = (c.flux[k] - without.flux[k]) * sqrt(without.ivar[k]);
                CHECK((over > 0 || from > NEAR ? fabs(off) < 1e-3 : 1), "%g: bin %zu is off by %g errors", factor[f], k,
                      off);
            }
            spx_coadd_free(&without);
            spx_coadd_free(&c);
            exposures_free(&x);
        }
}

/* Most bins have next to no ivar, but some: the lit ones stay, as they are where the others have none. */
static void dim(void)
{
    static const double factor[] = {1e-6, 1e-12, 1e-300};
    enum { N = 300, LIT = 60, REACH = 8 };
    for (size_t f = 0; f < sizeof factor / sizeof *factor; f++)
        for (int method = 0; method < 2; method++) {
            exposures x = draw_exposures(2, 3, N, 11, 0.9, 0.1, 50, 1, 0, 6);
            spx_coadd c[2];
            for (int dark = 1; dark >= 0; dark--) {
                exposures y = draw_exposures(2, 3, N, 11, 0.9, 0.1, 50, 1, 0, 6);
                for (size_t i = 0; i < y.nexp * N; i++)
                    if (i % N >= LIT)
                        y.ivar[i] *= dark ? 0 : factor[f];
                CHECK(clean(&y, 2, N) == 0, "%g: bins are left out", factor[f]);
                c[dark] = coadd(&y, (spx_coadd_method)method, 0, 0, method == 0 ? 11 : 15, 1);
                exposures_free(&y);
            }
            for (size_t t = 0; t < 2; t++)
                for (size_t k = 0; k < N; k++) {
                    const size_t at = t * N + k;
                    const double off = (c[0].flux[at] - c[1].flux[at]) * sqrt(c[1].ivar[at]);
                    CHECK(k >= LIT || c[0].ivar[at] > 0.99 * c[1].ivar[at], "%g: bin %zu has lost its ivar", factor[f],
                          k);
                    CHECK(k + REACH >= LIT || fabs(off) < 1e-3, "%g: bin %zu is off by %g errors", factor[f], k, off);
                    const double model = model_of(&c[0], t, k, x.truth + t * N);
                    CHECK(k < LIT || !(fabs(c[0].flux[at] - model) * sqrt(c[0].ivar[at]) > 6),
                          "%g: dim bin %zu is off by %g errors", factor[f], k,
                          (c[0].flux[at] - model) * sqrt(c[0].ivar[at]));
                }
            spx_coadd_free(&c[0]);
            spx_coadd_free(&c[1]);
            exposures_free(&x);
        }
}

/* An exposure whose R has another sign or unit counts for nothing. */
static void no_resolution(void)
{
    static const double factor[] = {-1, 0, 0.9, 3, 1e30};
    enum { N = 300 };
    for (size_t f = 0; f < sizeof factor / sizeof *factor; f++)
        for (int method = 0; method < 2; method++) {
            exposures x = draw_exposures(1, 3, N, 11, 0.9, 0.1, 50, 1, 0, 7);
            const int wrong = factor[f] != 0.9;
            if (x.nexp < 2) {
                exposures_free(&x);
                continue;
            }
            memset(x.ivar, 0, N * sizeof *x.ivar);
            spx_coadd without = coadd(&x, (spx_coadd_method)method, 0, 0, method == 0 ? 11 : 15, 1);
            exposures y = draw_exposures(1, 3, N, 11, 0.9, 0.1, 50, 1, 0, 7);
            for (size_t i = 0; i < 11 * N; i++)
                y.resolution[i] *= factor[f];
            spx_coadd_cleaned cleaned = {0};
            spx_coadd_clean(1, y.first, N, 11, y.resolution, y.ivar, 1, &cleaned);
            CHECK(cleaned.wrong == (size_t)wrong && cleaned.over == 0, "R times %g: %zu exposures have none", factor[f],
                  cleaned.wrong);
            spx_coadd c = coadd(&y, (spx_coadd_method)method, 0, 0, method == 0 ? 11 : 15, 1);
            for (size_t k = 0; k < N && wrong; k++)
                CHECK(c.flux[k] == without.flux[k] && c.ivar[k] == without.ivar[k], "R times %g: bin %zu", factor[f],
                      k);
            spx_coadd_free(&c);
            spx_coadd_free(&without);
            exposures_free(&x);
            exposures_free(&y);
        }
}

static void same(const char *what, const spx_coadd *a, size_t ta, const spx_coadd *b, size_t tb, double tolerance)
{
    for (size_t k = 0; k < a->nwave; k++) {
        const double x = a->flux[ta * a->nwave + k], y = b->flux[tb * b->nwave + k],
                     s = sqrt(a->ivar[ta * a->nwave + k]);
        CHECK(tolerance > 0 ? fabs(x - y) * s <= tolerance : x == y, "%s: flux[%zu] %.17g, not %.17g", what, k, x, y);
    }
    for (size_t k = 0; k < a->ndiag * a->nwave; k++) {
        const double x = a->resolution[ta * a->ndiag * a->nwave + k], y = b->resolution[tb * b->ndiag * b->nwave + k];
        CHECK(tolerance > 0 ? fabs(x - y) <= tolerance : x == y, "%s: R[%zu] %.17g, not %.17g", what, k, x, y);
    }
}

/* The same bits for a target alone and among others, and for any number of threads; every instruction set that there is
 * within rounding. */
static void same_bits(void)
{
    const spx_coadd_kernels *const sets[] = {spx_coadd_kernels_base(), spx_coadd_kernels_avx2(),
                                             spx_coadd_kernels_avx512()};
    exposures x = draw_exposures(19, 4, 150, 11, 0.9, 0.1, 30, 1, 1, 31);
    spx_coadd all = coadd(&x, SPX_COADD_OPTIMAL, 5, 1, 15, 3);
    for (size_t t = 0; t < 19; t++) {
        const size_t first[2] = {0, x.first[t + 1] - x.first[t]}, i = x.first[t];
        exposures one = {.ntarget = 1, .nexp = first[1], .nwave = 150, .ndiag = 11, .first = (size_t *)first};
        one.flux = x.flux + i * 150;
        one.ivar = x.ivar + i * 150;
        one.mask = x.mask + i * 150;
        one.resolution = x.resolution + i * 1650;
        spx_coadd c = coadd(&one, SPX_COADD_OPTIMAL, 5, 1, 15, 1);
        same("alone", &c, 0, &all, t, 0);
        spx_coadd_free(&c);
    }
    for (size_t i = 0; i < 3; i++) {
        if ((spx_coadd_forced = sets[i]) == NULL)
            continue;
        spx_coadd c = coadd(&x, SPX_COADD_OPTIMAL, 5, 1, 15, 1);
        for (size_t t = 0; t < 19; t++)
            same(sets[i]->name, &c, t, &all, t, 1e-7);
        spx_coadd_free(&c);
    }
    spx_coadd_forced = NULL;
    spx_coadd_free(&all);
    exposures_free(&x);
}

/* 1000 exposures: chi^2 of all of them, and the error of the mean. */
static void many(void)
{
    for (int method = 0; method < 2; method++) {
        exposures x = draw_exposures(1, 1000, 120, 11, 0.9, 0, 5, 1, 0, 41);
        spx_coadd c = coadd(&x, (spx_coadd_method)method, 5, 1, method == 0 ? 11 : 21, 1);
        double chi2 = 0, pull = 0;
        size_t rejected = 0;
        for (size_t i = 0; i < 1000; i++) {
            chi2 += c.chi2[i] / 1000;
            rejected += c.rejected[i];
        }
        for (size_t k = 0; k < 120; k++) {
            const double model = model_of(&c, 0, k, x.truth);
            pull += pow(c.flux[k] - model, 2) * c.ivar[k] / 120;
        }
        /* 120 000 bins: chi^2 to 0.004; 120 bins: 0.13; beyond 5 errors: 0.07 bins */
        CHECK(fabs(chi2 - 1) < 0.02, "chi2 of 1000 exposures: %g", chi2);
        CHECK(fabs(pull - 1) < 0.5, "chi2 of their coadd: %g", pull);
        CHECK(rejected <= 2, "%zu bins rejected", rejected);
        spx_coadd_free(&c);
        exposures_free(&x);
    }
}

/* Which targets are coadded optimally: those whose widths differ by more than 5 % rms. */
static void automatic(void)
{
    static const double step[] = {0, 0.03, 0.3};
    for (size_t i = 0; i < 3; i++) {
        exposures x = draw_exposures(2, 2, 200, 11, 0.9, step[i], 30, 1, 0, 51);
        spx_coadd c = coadd(&x, SPX_COADD_AUTO, 5, 1, 15, 1);
        CHECK(c.optimal[1] == (step[i] > 0.1), "widths 1, %g: spread %g", 1 + step[i], c.spread[1]);
        CHECK(c.optimal[0] == 0 && c.spread[0] == 0, "one exposure");
        CHECK(step[i] > 0 || c.spread[1] < 1e-7, "equal widths: spread %g", c.spread[1]);
        spx_coadd_free(&c);
        exposures_free(&x);
    }
}

static void refused(void)
{
    exposures x = draw_exposures(1, 2, 20, 0, 0.9, 0, 30, 1, 0, 61);
    const spx_coadd_input in = input_of(&x);
    spx_coadd_options o = {.method = SPX_COADD_OPTIMAL};
    spx_coadd out = {0};
    spx_err e = {0};
    CHECK(spx_coadd_cpu(&in, &o, &out, &e) == SPX_EUSAGE, "optimal without resolution");
    spx_coadd_free(&out);
    exposures_free(&x);
}

int main(void)
{
    information();
    exact();
    ends();
    one_exposure();
    scales();
    hits();
    gaps();
    range();
    dim();
    no_resolution();
    same_bits();
    many();
    automatic();
    refused();
    return failures != 0;
}
