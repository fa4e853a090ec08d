/* The continuum of kernel `rvfit`: how many functions an arm gets, splines against the recursion that defines them, the
 * loops over pixels against plain sums, and a response that falls steeply at the ends of an arm. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../must.h"
#include "base/mem.h"
#include "calib/band.h"
#include "check.h"
#include "random.h"
#include "rvfit/model/setup.h"

enum { M = SPX_RVFIT_MAX_POLY };

/* An arm of wavelengths from `from` to `to`; 0 where its basis is refused. */
static int make(spx_rv_arm *a, double from, double to, double step, spx_continuum form, size_t npoly)
{
    static spx_arm arm = {.name = "b"};
    spx_err e = {0};
    const spx_rvfit_options o = {.continuum = form, .npoly = npoly};
    *a = (spx_rv_arm){.arm = &arm, .n = (size_t)((to - from) / step + 1.5)};
    a->stride = (a->n + SPX_RV_LANES - 1) / SPX_RV_LANES * SPX_RV_LANES;
    a->wave = spx_alloc(a->n, sizeof *a->wave, &e);
    must(a->wave != NULL, &e);
    for (size_t i = 0; i < a->n; i++)
        a->wave[i] = from + step * (double)i;
    const spx_status st = spx_rv_make_basis(a, &o, &e);
    CHECK(st == SPX_OK || (st == SPX_EINPUT && strstr(spx_err_text(&e), "{npoly}") != NULL), "status %d, %s", (int)st,
          spx_err_text(&e));
    return st == SPX_OK;
}

static void release(spx_rv_arm *a)
{
    spx_free(a->wave);
    spx_free(a->basis.value);
    spx_free(a->basis.span);
}

static void numbers(void)
{
    static const struct {
        double from, to, step;
        size_t npoly, want;
        spx_continuum form;
    } cases[] = {{3600, 5800, 0.8, 0, 31, SPX_CONTINUUM_SPLINE},   {5760, 7620, 0.8, 0, 28, SPX_CONTINUUM_SPLINE},
                 {7520, 9824, 0.8, 0, 27, SPX_CONTINUUM_SPLINE},   {3800, 9200, 5, 0, 30, SPX_CONTINUUM_SPLINE},
                 {6510, 6590, 0.8, 0, 4, SPX_CONTINUUM_SPLINE},    {6335, 6855, 0.8, 0, 10, SPX_CONTINUUM_SPLINE},
                 {3600, 5800, 20, 0, 5, SPX_CONTINUUM_SPLINE},     {3600, 5800, 0.8, 12, 12, SPX_CONTINUUM_SPLINE},
                 {3600, 5800, 0.8, 0, 10, SPX_CONTINUUM_RBF},      {6510, 6590, 0.8, 1, 1, SPX_CONTINUUM_SPLINE},
                 {3600, 5800, 0.8, 0, 10, SPX_CONTINUUM_CHEBYSHEV}};
    spx_rv_arm a;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int ok = make(&a, cases[i].from, cases[i].to, cases[i].step, cases[i].form, cases[i].npoly);
        CHECK(ok && a.basis.n == cases[i].want, "case %zu: %zu functions", i, a.basis.n);
        release(&a);
    }
    /* between two knots at an end there is no pixel */
    CHECK(!make(&a, 3600, 5800, 50, SPX_CONTINUUM_SPLINE, 31), "%zu pixels determine 31 splines", a.n);
    release(&a);
    CHECK(!make(&a, 3600, 5800, 100, SPX_CONTINUUM_RBF, 30), "%zu pixels determine 30 functions", a.n);
    release(&a);
}

/* The knots' density: where the integral of it has the share s, by the midpoint rule. */
static double knot(double s)
{
    enum { N = 200000 };
    static double sum[N + 1];
    for (int i = 0; i < N; i++) {
        const double x = (i + 0.5) / N, d = fmin(x, 1 - x);
        sum[i + 1] = sum[i] + 1 + 17 * fmin(1, exp(-(d - 0.07) / 0.03));
    }
    int i = 0;
    while (i + 1 < N && sum[i + 1] < s * sum[N])
        i++;
    return (i + (s * sum[N] - sum[i]) / (sum[i + 1] - sum[i])) / N;
}

/* De Boor (1978), ch. IX, eqs. 11 to 13. */
static double spline(const double *t, int k, int degree, double x)
{
    if (degree == 0)
        return (x >= t[k] && x < t[k + 1]) || (x == 1 && t[k] < 1 && t[k + 1] == 1);
    const double left = t[k + degree] - t[k], right = t[k + degree + 1] - t[k + 1];
    return (left > 0 ? (x - t[k]) / left * spline(t, k, degree - 1, x) : 0) +
           (right > 0 ? (t[k + degree + 1] - x) / right * spline(t, k + 1, degree - 1, x) : 0);
}

static void splines(void)
{
    static const size_t number[] = {1, 2, 3, 4, 5, 12, 27, 32};
    for (size_t q = 0; q < sizeof number / sizeof *number; q++) {
        const int np = (int)number[q], degree = np > 3 ? 3 : np - 1, m = np - degree;
        double t[M + 8];
        spx_rv_arm a;
        CHECK(make(&a, 5760, 7620, 3, SPX_CONTINUUM_SPLINE, (size_t)np), "%d functions are refused", np);
        for (int i = 0; i < np + degree + 1; i++)
            t[i] = i <= degree ? 0 : i >= m + degree ? 1 : knot((double)(i - degree) / m);
        double off = 0;
        for (size_t i = 0; i < a.n; i++)
            for (int k = 0; k < np; k++) {
                const double x = (a.wave[i] - a.wave[0]) / (a.wave[a.n - 1] - a.wave[0]);
                off = fmax(off, fabs(a.basis.value[(size_t)k * a.stride + i] - spline(t, k, degree, x)));
            }
        /* knots of the midpoint rule are wrong by some 1e-10 of the arm, a spline's slope is at most 1/0.007 */
        CHECK(off < 1e-6, "%d splines are off by %g", np, off);
        CHECK(a.basis.band == (size_t)degree, "%d splines: band %zu", np, a.basis.band);
        size_t at = 0;
        for (size_t j = 0; j < a.basis.nspan; j++) {
            const spx_rv_span *p = &a.basis.span[j];
            CHECK(p->begin == at && p->end > at && p->end % SPX_RV_LANES == 0, "span %zu", j);
            at = p->end;
            for (size_t k = 0; k < (size_t)np; k++)
                for (size_t i = p->begin; i < p->end && (k < p->first || k >= p->first + p->n); i++)
                    CHECK(a.basis.value[k * a.stride + i] == 0, "function %zu is left out of span %zu", k, j);
        }
        CHECK(at == a.stride, "spans end at pixel %zu of %zu", at, a.stride);
        release(&a);
    }
}

/* Loops of a set of instructions against the sums that they stand for. */
static void loops(const spx_rv_kernels *k, spx_continuum form, size_t np)
{
    enum { NF = 6, MOST = 1500 };
    static double t[(1 + NF) * MOST], ie[MOST], flux[MOST], cont[MOST];
    double gram[M * M], right[M], factor[M * M], inverse[M * M], out[(M + 1 + NF) * NF], coef[M];
    spx_rv_arm a;
    CHECK(make(&a, 6000, 6000 + 1.5 * 1101, 1.5, form, np), "%zu functions are refused", np);
    const spx_rv_basis *b = &a.basis;
    memset(ie, 0, sizeof ie);
    memset(t, 0, sizeof t);
    for (size_t i = 0; i < a.n; i++) {
        ie[i] = 1 + uniform();
        flux[i] = gauss();
        for (size_t l = 0; l <= NF; l++)
            t[l * a.stride + i] = 1 + uniform();
    }
    for (size_t j = 0; j < np; j++)
        coef[j] = gauss();
    k->normal(b, t, ie, flux, gram, right);
    for (size_t j = 0; j < np; j++) {
        double d = 0;
        for (size_t i = 0; i < a.n; i++)
            d += b->value[j * a.stride + i] * t[i] * ie[i] * ie[i] * flux[i];
        CHECK(fabs(right[j] - d) < 1e-10, "S'D of function %zu: %g, want %g", j, right[j], d);
        for (size_t l = 0; l <= j; l++) {
            double s = 0;
            for (size_t i = 0; i < a.n; i++)
                s += b->value[j * a.stride + i] * b->value[l * a.stride + i] * t[i] * t[i] * ie[i] * ie[i];
            const double got = j - l <= b->band ? gram[(j - l) * np + l] : 0;
            CHECK(fabs(got - s) < 1e-10, "S'S of functions %zu and %zu: %g, want %g", j, l, got, s);
        }
    }
    const double chisq = k->residual(b, coef, t, ie, flux, cont);
    double want = 0;
    for (size_t i = 0; i < a.n; i++) {
        double q = 0;
        for (size_t j = 0; j < np; j++)
            q += coef[j] * b->value[j * a.stride + i];
        CHECK(fabs(cont[i] - q) < 1e-12, "continuum at pixel %zu: %g, want %g", i, cont[i], q);
        want += pow((flux[i] - q * t[i]) * ie[i], 2);
    }
    CHECK(fabs(chisq / want - 1) < 1e-12, "chi^2 %g, want %g", chisq, want);

    /* the inverse is what the caller makes of it; its elements beside the band have no part in sum_kl C_kl B_k B_l */
    CHECK(spx_band_factor(np, (int)b->band, gram, 0, factor) == 0, "no factor");
    spx_band_inverse(np, (int)b->band, factor, inverse);
    k->curvature(b, NF, inverse, cont, t, ie, flux, out);
    for (size_t l = 0; l < NF; l++) {
        const double *tl = t + (1 + l) * a.stride;
        double grad = 0;
        for (size_t j = 0; j < np; j++) {
            double s = 0;
            for (size_t i = 0; i < a.n; i++)
                s += b->value[j * a.stride + i] * t[i] * ie[i] * cont[i] * tl[i] * ie[i];
            CHECK(fabs(out[j * NF + l] - s) < 1e-9, "S'u of function %zu: %g, want %g", j, out[j * NF + l], s);
        }
        for (size_t m = 0; m < NF; m++) {
            double s = 0;
            for (size_t i = 0; i < a.n; i++)
                s += pow(cont[i] * ie[i], 2) * tl[i] * t[(1 + m) * a.stride + i];
            CHECK(fabs(out[(np + 1 + l) * NF + m] / s - 1) < 1e-12, "u'u: %g, want %g", out[(np + 1 + l) * NF + m], s);
        }
        for (size_t i = 0; i < a.n; i++) {
            double lever = 0, row[M];
            for (size_t j = 0; j < np; j++)
                row[j] = b->value[j * a.stride + i];
            spx_band_solve(np, (int)b->band, factor, row);
            for (size_t j = 0; j < np; j++)
                lever += row[j] * b->value[j * a.stride + i];
            grad += (lever * t[i] * ie[i] * ie[i] - (flux[i] - cont[i] * t[i]) * ie[i] * cont[i] * ie[i]) * tl[i];
        }
        CHECK(fabs(out[np * NF + l] - grad) < 1e-9 * fabs(grad) + 1e-8, "gradient %g, want %g", out[np * NF + l], grad);
    }
    release(&a);
}

/* chi^2 that a response leaves which falls at `before` Angstrom from both ends, over some 60, at a
 * signal-to-noise ratio of 60. */
static double steep(spx_continuum form, size_t npoly, double before)
{
    spx_rv_arm a;
    const double from = 5650, to = 7620;
    CHECK(make(&a, from, to, 0.8, form, npoly), "refused");
    const size_t np = a.basis.n;
    double gram[M * M], coef[M], *x = spx_alloc2(4, a.stride, sizeof *x, NULL);
    if (x == NULL)
        exit(1);
    double *t = x, *ie = x + a.stride, *flux = ie + a.stride;
    for (size_t i = 0; i < a.n; i++) {
        const double w = a.wave[i];
        flux[i] =
            exp(-pow((w - 6650) / 2200, 2)) / (1 + exp(-(w - from - before) / 15)) / (1 + exp((w - to + before) / 15));
        ie[i] = 60 / sqrt(0.1 + 0.9 * flux[i]);
        t[i] = 1;
    }
    const spx_rv_kernels *k = spx_rv_kernels_base();
    k->normal(&a.basis, t, ie, flux, gram, coef);
    CHECK(spx_band_factor(np, (int)a.basis.band, gram, 0, gram) == 0, "no factor");
    spx_band_solve(np, (int)a.basis.band, gram, coef);
    const double chisq = k->residual(&a.basis, coef, t, ie, flux, flux + a.stride);
    spx_free(x);
    release(&a);
    return chisq;
}

/* The loop of the velocity scan against plain sums: blocks of an odd number of pixels, functions that few blocks have,
 * a template that begins and ends within the pixels; velocities `step` of its pixels apart; with the templates at the
 * pixels, too. */
static void scans(const spx_rv_kernels *k, size_t np, size_t width, double step)
{
    enum { L = SPX_RV_LANES, PER = 24, NBLOCK = 45, NPIX = PER * NBLOCK - 5, NT = 1500 };
    static double line[NBLOCK][2][M], t[NPIX][L];
    static size_t range[NBLOCK][2];
    static spx_rv_scan_pixel pixel[NPIX];
    static float knot[NT + SPX_RV_KNOTS], rise[NT + SPX_RV_KNOTS];
    const spx_rv_lines lines = {
        .per = PER, .functions = np, .n = NBLOCK, .band = width - 1, .range = range, .line = &line[0][0][0]};
    double y[NT], f[2][L], shift[L];
    for (size_t i = 0; i < NT; i++)
        y[i] = 1 + 0.2 * gauss();
    for (size_t i = 0; i < NT + 2; i++) {
        knot[i] = (float)y[i == 0 ? 0 : i > NT ? NT - 1 : i - 1];
        rise[i] = i == 0 || i >= NT ? 0 : (float)(y[i] - y[i - 1]);
    }
    for (size_t b = 0; b < NBLOCK; b++) {
        range[b][0] = b * (np - width) / (NBLOCK - 1);
        range[b][1] = width;
        for (size_t j = 0; j < width; j++) {
            line[b][0][range[b][0] + j] = uniform();
            line[b][1][range[b][0] + j] = 0.1 * gauss() / PER;
        }
    }
    for (size_t i = 0; i < NPIX; i++) {
        const double x = (double)(i % PER) - 0.5 * (PER - 1), w = 400 * uniform(), d = w * (1 + 0.1 * gauss());
        pixel[i] = (spx_rv_scan_pixel){
            .weight = {w, w * x, w * x * x, d, d * x}, .k = (int32_t)(1.3 * (double)i) + 20, .u = (float)uniform()};
    }
    for (size_t v = 0; v < L; v++)
        shift[v] = -45 + step * (double)v;
    for (size_t v = 0; v < L; v++)
        for (size_t i = 0; i < NPIX; i++) {
            const double at = fmin(fmax(pixel[i].k + (double)pixel[i].u + shift[v], 0), NT - 1), j = floor(at);
            t[i][v] = j < NT - 1 ? y[(int)j] + (at - j) * (y[(int)j + 1] - y[(int)j]) : y[NT - 1];
        }
    k->scan(NPIX, &lines, pixel, knot, rise, NT, shift, NULL, f[0]);
    k->scan(NPIX, &lines, pixel, NULL, NULL, 0, NULL, &t[0][0], f[1]);
    for (size_t v = 0; v < L; v++) {
        double gram[M * (M + 1) / 2] = {0}, right[M] = {0}, want = 0;
        for (size_t i = 0; i < NPIX; i++) {
            const size_t b = i / PER;
            const double x = (double)(i % PER) - 0.5 * (PER - 1);
            for (size_t a = range[b][0]; a < range[b][0] + width; a++) {
                const double pa = t[i][v] * (line[b][0][a] + x * line[b][1][a]);
                right[a] += pa * pixel[i].weight[3];
                for (size_t c = range[b][0]; c <= a; c++)
                    gram[spx_rv_packed(a, c)] +=
                        pa * t[i][v] * (line[b][0][c] + x * line[b][1][c]) * pixel[i].weight[0];
            }
        }
        CHECK(spx_rv_cholesky(np, gram, 0), "no factor");
        spx_rv_forward(np, gram, right);
        for (size_t a = 0; a < np; a++)
            want += 2 * log(gram[spx_rv_packed(a, a)]) - right[a] * right[a];
        /* the first has templates in single precision: 3e-8 of each pixel's part of the sum, by chance */
        CHECK(fabs(f[0][v] - want) < 1e-7 * fabs(want), "%zu functions, velocity %zu: %.9g, plain sums %.9g", np, v,
              f[0][v], want);
        CHECK(fabs(f[1][v] - want) < 1e-12 * fabs(want), "%zu functions, velocity %zu: %.15g, plain sums %.15g", np, v,
              f[1][v], want);
    }
    /* a function that no pixel has */
    memset(line, 0, sizeof line);
    k->scan(NPIX, &lines, pixel, knot, rise, NT, shift, NULL, f[0]);
    CHECK(!(f[0][0] < HUGE_VAL) && !(f[0][L - 1] < HUGE_VAL), "singular: %g", f[0][0]);
}

int main(void)
{
    const spx_rv_kernels *set[3] = {spx_rv_kernels_base(), spx_rv_kernels_avx2(), spx_rv_kernels_avx512()};
    random_start(7);
    numbers();
    splines();
    for (int i = 0; i < 3; i++)
        if (set[i] != NULL) {
            loops(set[i], SPX_CONTINUUM_SPLINE, 28);
            loops(set[i], SPX_CONTINUUM_SPLINE, 3);
            loops(set[i], SPX_CONTINUUM_CHEBYSHEV, 32);
            loops(set[i], SPX_CONTINUUM_RBF, 10);
            for (int far = 0; far < 2; far++) { /* both ways: in the AVX-512 loop near velocities share a vector */
                scans(set[i], 12, 4, far ? 37.3 : 1.3);
                scans(set[i], M, M, far ? 37.3 : -1.9);
                scans(set[i], 1, 1, far ? 37.3 : 0.7);
            }
        }
    static const double before[] = {70, 40, 120};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        const double is = steep(SPX_CONTINUUM_SPLINE, 0, before[i]), was = steep(SPX_CONTINUUM_RBF, 10, before[i]);
        CHECK(is < 1 && was > 1e4,
              "a response that falls %g Angstrom before the ends leaves chi^2 %g, ten functions of form rbf %g",
              before[i], is, was);
    }
    return failures != 0;
}
