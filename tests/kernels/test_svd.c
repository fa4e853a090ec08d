/* Checks the singular value decomposition: its defining properties, both methods against each other and against known
 * matrices; on the CPU or on the device $SPX_TEST_DEVICE. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "device.h"

static spx_backend backend;
static unsigned seed = 99;

static double uniform(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (double)(seed >> 8) * 0x1p-23 - 1;
}

/* Decompose a copy of a. */
static spx_svd decompose(const double *a, size_t m, size_t n, const spx_svd_options *o, const char *what)
{
    spx_err e = {0};
    spx_svd d = {0};
    double *b = need(m * n, sizeof(double));
    memcpy(b, a, m * n * sizeof *b);
    spx_status st = backend.svd(&backend, b, m, n, o, &d, &e);
    CHECK(st == SPX_OK, "%s, %zu x %zu: %s", what, m, n, spx_err_text(&e));
    if (st != SPX_OK)
        exit(1);
    spx_free(b);
    return d;
}

/* Largest element of the difference from what was decomposed: sqrt(wr) (a - mean) sqrt(wc) - u s v. */
static double residual(const double *a, const spx_svd *d)
{
    double worst = 0;
    for (size_t i = 0; i < d->nrow; i++)
        for (size_t j = 0; j < d->ncol; j++) {
            double x = a[i * d->ncol + j] - (d->mean != NULL ? d->mean[j] : 0);
            x *= sqrt((d->row_weight != NULL ? d->row_weight[i] : 1) *
                      (d->column_weight != NULL ? d->column_weight[j] : 1));
            for (size_t k = 0; k < d->nmode; k++)
                x -= d->u[i * d->nmode + k] * d->s[k] * d->v[k * d->ncol + j];
            worst = fmax(worst, fabs(x));
        }
    return worst;
}

/* Orthonormal vectors, decreasing values, signs, energy that grows to at most 1. */
static void properties(const spx_svd *d, const char *what)
{
    double worst = 0;
    for (size_t k = 0; k < d->nmode; k++)
        for (size_t l = 0; l <= k; l++) {
            double uu = k == l ? -1 : 0, vv = uu;
            for (size_t i = 0; i < d->nrow; i++)
                uu += d->u[i * d->nmode + k] * d->u[i * d->nmode + l];
            for (size_t j = 0; j < d->ncol; j++)
                vv += d->v[k * d->ncol + j] * d->v[l * d->ncol + j];
            worst = fmax(worst, fmax(fabs(uu), fabs(vv)));
        }
    CHECK(worst < 1e-12, "%s, %zu x %zu: vectors are not orthonormal by %g", what, d->nrow, d->ncol, worst);
    for (size_t k = 0; k < d->nmode; k++) {
        double most = 0;
        size_t first = 0;
        for (size_t j = 0; j < d->ncol; j++)
            most = fmax(most, fabs(d->v[k * d->ncol + j]));
        while (fabs(d->v[k * d->ncol + first]) < (1 - 1e-3) * most)
            first++;
        CHECK(d->v[k * d->ncol + first] > 0, "%s: the first of the largest elements of vector %zu is negative", what,
              k);
        CHECK(d->s[k] >= 0 && (k == 0 || d->s[k] <= d->s[k - 1]), "%s: singular value %zu is %g", what, k, d->s[k]);
        CHECK(d->energy[k] <= 1 && (k == 0 || d->energy[k] >= d->energy[k - 1]), "%s: energy %zu is %g", what, k,
              d->energy[k]);
    }
}

static void shapes(void)
{
    static const size_t shape[][2] = {{1, 1}, {1, 7}, {9, 1}, {30, 12}, {12, 30}, {64, 64}, {257, 40}, {33, 500}};
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++)
        for (int center = 0; center < (shape[s][0] > 1 ? 2 : 1); center++) {
            const size_t m = shape[s][0], n = shape[s][1], least = m < n ? m : n;
            double *a = need(m * n, sizeof(double));
            for (size_t i = 0; i < m * n; i++)
                a[i] = uniform() + 2;
            spx_svd_options o = {.center = center};
            spx_svd d = decompose(a, m, n, &o, "economic");
            CHECK(d.nmode == least, "%zu modes of %zu", d.nmode, least);
            CHECK(residual(a, &d) < 1e-12 * (double)(m + n), "economic, %zu x %zu: residual %g", m, n, residual(a, &d));
            properties(&d, "economic");
            CHECK(fabs(d.energy[least - 1] - 1) < 1e-12, "energy of all modes is %g", d.energy[least - 1]);
            /* fewer modes are the first of all */
            o.rank = least / 2 + 1;
            spx_svd few = decompose(a, m, n, &o, "economic");
            CHECK(few.nmode == (o.rank < least ? o.rank : least), "%zu modes", few.nmode);
            for (size_t k = 0; k < few.nmode; k++)
                CHECK(fabs(few.s[k] - d.s[k]) < 1e-12 * d.s[0], "truncated: mode %zu", k);
            /* a sample of all columns is exact */
            o.method = SPX_SVD_RANDOMISED;
            o.rank = least;
            spx_svd all = decompose(a, m, n, &o, "randomised");
            properties(&all, "randomised");
            CHECK(residual(a, &all) < 1e-12 * (double)(m + n), "randomised, %zu x %zu: residual %g", m, n,
                  residual(a, &all));
            spx_svd_free(&d);
            spx_svd_free(&few);
            spx_svd_free(&all);
            spx_free(a);
        }
}

/* Modes that fall off: the randomised method finds the leading ones, the same for the same seed. */
static void randomised(void)
{
    enum { M = 300, N = 180, RANK = 6 };
    double *a = need(M * N, sizeof(double));
    for (int k = 0; k < 40; k++)
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++)
                a[i * N + j] += pow(0.5, k) * sin(0.02 * (k + 1) * i + k) * cos(0.03 * (k + 1) * j);
    spx_svd_options o = {.rank = RANK};
    spx_svd exact = decompose(a, M, N, &o, "economic");
    o = (spx_svd_options){.method = SPX_SVD_RANDOMISED, .rank = RANK, .oversample = 10, .power = 3, .seed = 5};
    spx_svd d = decompose(a, M, N, &o, "randomised"), again = decompose(a, M, N, &o, "randomised");
    properties(&d, "randomised");
    double worst = 0;
    for (size_t k = 0; k < RANK; k++) {
        CHECK(fabs(d.s[k] - exact.s[k]) < 1e-9 * exact.s[0], "randomised: singular value %zu is %.12g, not %.12g", k,
              d.s[k], exact.s[k]);
        CHECK(fabs(d.energy[k] - exact.energy[k]) < 1e-9, "randomised: energy %zu", k);
        for (size_t j = 0; j < N; j++)
            worst = fmax(worst, fabs(d.v[k * N + j] - exact.v[k * N + j]));
    }
    CHECK(worst < 1e-6, "randomised: vectors differ by %g", worst);
    CHECK(memcmp(d.u, again.u, M * RANK * sizeof *d.u) == 0 && memcmp(d.v, again.v, RANK * N * sizeof *d.v) == 0 &&
              memcmp(d.s, again.s, RANK * sizeof *d.s) == 0,
          "randomised: not the same twice");
    o.seed = 6;
    spx_svd_free(&again);
    again = decompose(a, M, N, &o, "randomised");
    CHECK(memcmp(d.u, again.u, M * RANK * sizeof *d.u) != 0, "randomised: the seed is of no importance");
    spx_svd_free(&exact);
    spx_svd_free(&d);
    spx_svd_free(&again);
    spx_free(a);
}

/* Modes that are odd about the middle have two elements of largest magnitude and opposite sign: rounding must not
 * choose the sign. Column j of mode k is sqrt(2/N) sin(2 pi (k+1) (j + 1/2) / N), orthonormal; the rows are cosines, so
 * that all vectors are known. Noise of 1e-13 stands for other instructions of a processor. */
static void odd_modes(void)
{
    enum { M = 96, N = 64, MODES = 12, ROUNDS = 8 };
    double *a = need(M * N, sizeof(double)), v[MODES][N];
    for (size_t k = 0; k < MODES; k++) {
        size_t first = 0;
        for (size_t j = 0; j < N; j++)
            v[k][j] = sqrt(2.0 / N) * sin(2 * M_PI * (double)(k + 1) * ((double)j + 0.5) / N);
        double most = 0;
        for (size_t j = 0; j < N; j++)
            most = fmax(most, fabs(v[k][j]));
        while (fabs(v[k][first]) < (1 - 1e-3) * most)
            first++;
        const double sign = v[k][first] < 0 ? -1 : 1;
        for (size_t j = 0; j < N; j++)
            v[k][j] *= sign;
    }
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < M; i++)
            for (size_t j = 0; j < N; j++) {
                a[i * N + j] = 1e-13 * uniform();
                for (size_t k = 0; k < MODES; k++)
                    a[i * N + j] += pow(0.7, (double)k) * v[k][j] * (round % 2 ? -1 : 1) * sqrt(2.0 / M) *
                                    cos(M_PI * (double)(k + 1) * ((double)i + 0.5) / M);
            }
        for (int method = 0; method < 2; method++) {
            spx_svd_options o = {.method = method != 0 ? SPX_SVD_RANDOMISED : SPX_SVD_ECONOMIC,
                                 .rank = MODES,
                                 .oversample = 10,
                                 .power = 3,
                                 .seed = round};
            spx_svd d = decompose(a, M, N, &o, "odd modes");
            for (size_t k = 0; k < MODES; k++) {
                double worst = 0;
                for (size_t j = 0; j < N; j++)
                    worst = fmax(worst, fabs(d.v[k * N + j] - v[k][j]));
                CHECK(worst < 1e-9, "odd modes, method %d, round %zu: vector %zu differs by %g", method, round, k,
                      worst);
            }
            spx_svd_free(&d);
        }
    }
    spx_free(a);
}

/* A weight of 2 is the same as a row that is there twice; a weight of 0, as one that is not there. */
static void weights(void)
{
    enum { M = 12, N = 9 };
    double a[M * N], twice[(M + 1) * N], rows[M], columns[N];
    for (size_t i = 0; i < M * N; i++)
        a[i] = uniform();
    for (size_t i = 0; i < M; i++)
        rows[i] = i == 4 ? 2 : i == 7 ? 0 : 1;
    size_t n = 0;
    for (size_t i = 0; i < M; i++)
        for (size_t r = 0; r < (size_t)rows[i]; r++)
            memcpy(twice + n++ * N, a + i * N, N * sizeof *a);
    spx_svd_options o = {.center = 1, .row_weight = rows}, plain = {.center = 1};
    spx_svd d = decompose(a, M, N, &o, "weights"), want = decompose(twice, n, N, &plain, "weights");
    CHECK(residual(a, &d) < 1e-13, "weights: residual %g", residual(a, &d));
    for (size_t k = 0; k < N; k++)
        CHECK(fabs(d.s[k] - want.s[k]) < 1e-13 && fabs(d.mean[k] - want.mean[k]) < 1e-14, "weights: mode %zu: %g, %g",
              k, d.s[k], want.s[k]);
    spx_svd_free(&d);
    spx_svd_free(&want);
    for (size_t j = 0; j < N; j++)
        columns[j] = 0.5 * (double)j;
    o = (spx_svd_options){.row_weight = rows, .column_weight = columns};
    d = decompose(a, M, N, &o, "column weights");
    CHECK(residual(a, &d) < 1e-13, "column weights: residual %g", residual(a, &d));
    spx_svd_free(&d);
}

/* Values that are known: diag(3, 2, 1) in a rotated frame has them, rank 1 has one, 0 has none; scales do not matter.
 */
static void known(void)
{
    static const double scale[3] = {1, 1e200, 1e-200};
    for (size_t s = 0; s < 3; s++) {
        const double c = cos(0.3), r = sin(0.3), f = scale[s];
        const double a[9] = {3 * c * f, -2 * r * f, 0, 3 * r * f, 2 * c * f, 0, 0, 0, f};
        spx_svd_options o = {0};
        spx_svd d = decompose(a, 3, 3, &o, "known");
        for (size_t k = 0; k < 3; k++)
            CHECK(fabs(d.s[k] / f - (double)(3 - k)) < 1e-14, "singular value %zu is %g", k, d.s[k] / f);
        CHECK(fabs(d.energy[0] - 9.0 / 14) < 1e-14 && fabs(d.energy[1] - 13.0 / 14) < 1e-14, "energies %g %g",
              d.energy[0], d.energy[1]);
        spx_svd_free(&d);
    }
    double zero[20] = {0}, one[20];
    spx_svd_options o = {0};
    spx_svd d = decompose(zero, 5, 4, &o, "zeros");
    CHECK(d.s[0] <= 0 && d.energy[0] >= 1, "zeros: %g, %g", d.s[0], d.energy[0]);
    spx_svd_free(&d);
    for (size_t i = 0; i < 20; i++)
        one[i] = (double)(i / 4 + 1) * (double)(i % 4 + 1);
    o = (spx_svd_options){.method = SPX_SVD_RANDOMISED, .rank = 2, .oversample = 10, .power = 2};
    d = decompose(one, 5, 4, &o, "rank 1");
    CHECK(fabs(d.s[0] - sqrt(55 * 30)) < 1e-12 && d.s[1] < 1e-12 && fabs(d.energy[0] - 1) < 1e-14, "rank 1: %g %g",
          d.s[0], d.s[1]);
    spx_svd_free(&d);
}

static void refused(double *a, size_t m, size_t n, const spx_svd_options *o, spx_status want, const char *message)
{
    spx_err e = {0};
    spx_svd d = {0};
    spx_status st = backend.svd(&backend, a, m, n, o, &d, &e);
    CHECK(st == want && strstr(spx_err_text(&e), message) != NULL, "'%s' expected: status %d, '%s'", message, st,
          spx_err_text(&e));
    spx_svd_free(&d);
}

static void mistakes(void)
{
    double a[6] = {1, 2, 3, 4, NAN, 6}, w[3] = {1, -1, 1}, none[3] = {0};
    spx_svd_options o = {0};
    refused(a, 0, 3, &o, SPX_EINPUT, "cannot be decomposed");
    refused(a, 2, 3, &o, SPX_EINPUT, "row 1, column 1");
    o.method = SPX_SVD_RANDOMISED;
    refused(a, 2, 3, &o, SPX_EUSAGE, "rank");
    o = (spx_svd_options){.row_weight = w};
    refused(a, 2, 3, &o, SPX_EINPUT, "weight 1 of the rows is -1");
    o = (spx_svd_options){.column_weight = none};
    refused(a, 2, 3, &o, SPX_EINPUT, "all weights of the columns");
}

int main(void)
{
    open_device(&backend, SPX_OP_SVD);
    shapes();
    randomised();
    odd_modes();
    weights();
    known();
    mistakes();
    spx_backend_close(&backend);
    return failures != 0;
}
