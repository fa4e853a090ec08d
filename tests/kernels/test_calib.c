/* kernels/calib against dense matrices in long double and plain formulas: band factors, solutions and inverses,
 * products with resolution matrices, derivatives, interpolation, Legendre polynomials, splines, bordered systems.
 *
 * Tolerances: the matrices have conditions of some 1e3, so that solutions are exact to some 1e-13. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calib/band.h"
#include "calib/bordered.h"
#include "calib/dense.h"
#include "calib/envelope.h"
#include "calib/resolution.h"
#include "calib/series.h"

static uint64_t state = 12345;
static int failures;

static double draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 9007199254740992.;
}

static void close_to(const char *name, double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance)) {
        printf("%s: %.17g, not %.17g (tolerance %g)\n", name, value, expected, tolerance);
        failures++;
    }
}

/* Inverse of a dense symmetric matrix, by Gauss-Jordan elimination in long double. */
static void invert(size_t n, const double *a, long double *inv)
{
    long double *work = malloc(n * 2 * n * sizeof *work);
    if (work == NULL)
        exit(1);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            work[i * 2 * n + j] = a[i * n + j];
            work[i * 2 * n + n + j] = i == j;
        }
    for (size_t p = 0; p < n; p++) {
        const long double scale = 1 / work[p * 2 * n + p];
        for (size_t j = 0; j < 2 * n; j++)
            work[p * 2 * n + j] *= scale;
        for (size_t i = 0; i < n; i++) {
            const long double f = i == p ? 0 : work[i * 2 * n + p];
            for (size_t j = 0; j < 2 * n; j++)
                work[i * 2 * n + j] -= f * work[p * 2 * n + j];
        }
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            inv[i * n + j] = work[i * 2 * n + n + j];
    free(work);
}

/* Resolution matrices as extraction makes them, wider for each fibre, with garbage where no row is. */
static void make_resolution(size_t nspec, size_t n, size_t ndiag, double *r)
{
    for (size_t i = 0; i < nspec; i++)
        for (size_t b = 0; b < ndiag; b++)
            for (size_t j = 0; j < n; j++) {
                const double x = ((double)(ndiag / 2) - (double)b) / (0.9 + 0.05 * (double)i + 0.1 * draw());
                const long k = (long)j + (long)b - (long)(ndiag / 2);
                r[(i * ndiag + b) * n + j] = k < 0 || k >= (long)n ? NAN : exp(-0.5 * x * x) * (0.9 + 0.2 * draw());
            }
}

static double element(size_t n, size_t ndiag, const double *r, size_t k, size_t j)
{
    const long b = (long)(ndiag / 2) + (long)k - (long)j;
    return b < 0 || b >= (long)ndiag ? 0 : r[(size_t)b * n + j];
}

static void resolution(size_t nspec, size_t n, size_t ndiag)
{
    double *r = malloc(nspec * ndiag * n * sizeof *r), *w = malloc(nspec * n * sizeof *w);
    double *d = malloc(nspec * n * sizeof *d), *a = malloc(ndiag * n * sizeof *a), *y = malloc(n * sizeof *y);
    double *dense = calloc(n * n, sizeof *dense), *v = malloc(n * sizeof *v), *x = malloc(n * sizeof *x);
    double *a3 = malloc(ndiag * n * sizeof *a3), *y3 = malloc(n * sizeof *y3);
    long double *inv = malloc(n * n * sizeof *inv);
    uint8_t *use = malloc(nspec);
    if (r == NULL || w == NULL || d == NULL || a == NULL || y == NULL || dense == NULL || v == NULL || x == NULL ||
        inv == NULL || use == NULL || a3 == NULL || y3 == NULL)
        exit(1);
    make_resolution(nspec, n, ndiag, r);
    for (size_t i = 0; i < nspec; i++)
        use[i] = i % 3 != 2 || nspec < 3;
    for (size_t k = 0; k < nspec * n; k++) {
        w[k] = draw() < 0.1 ? 0 : 0.5 + draw();
        d[k] = w[k] > 0 ? 10 * draw() : NAN;
    }
    for (size_t j = 0; j < n; j++)
        x[j] = draw();

    spx_resolution_apply(n, ndiag, r, x, y);
    spx_resolution_apply_transposed(n, ndiag, r, x, v);
    for (size_t k = 0; k < n; k++) {
        double sum = 0, transposed = 0;
        for (size_t j = 0; j < n; j++) {
            sum += element(n, ndiag, r, k, j) * x[j];
            transposed += element(n, ndiag, r, j, k) * x[j];
        }
        close_to("R x", y[k], sum, 1e-13);
        close_to("R^T x", v[k], transposed, 1e-13);
    }
    spx_resolution_row_sums(n, ndiag, r, y);
    for (size_t k = 0; k < n; k++) {
        double sum = 0;
        for (size_t j = 0; j < n; j++)
            sum += element(n, ndiag, r, k, j);
        close_to("R 1", y[k], sum, 1e-13);
    }
    spx_resolution_widths(n, ndiag, r, v, y);
    for (size_t k = 0; k < n; k++) {
        double sum = 0, square = 0;
        for (size_t j = 0; j < n; j++) {
            sum += element(n, ndiag, r, k, j);
            square += pow(element(n, ndiag, r, k, j), 2);
        }
        close_to("width of a row", y[k], sum * sum / square, 1e-13);
    }

    spx_resolution_normal(nspec, n, ndiag, r, w, d, use, 1, a, y);
    spx_resolution_normal(nspec, n, ndiag, r, w, d, use, 3, a3, y3);
    if (memcmp(a, a3, ndiag * n * sizeof *a) != 0 || memcmp(y, y3, n * sizeof *y) != 0) {
        printf("normal equations depend on the number of threads\n");
        failures++;
    }
    for (size_t j = 0; j < n; j++) {
        double right = 0;
        for (size_t i = 0; i < nspec; i++)
            for (size_t k = 0; k < n && use[i]; k++)
                right +=
                    w[i * n + k] > 0 ? element(n, ndiag, r + i * ndiag * n, k, j) * w[i * n + k] * d[i * n + k] : 0;
        close_to("R^T W d", y[j], right, 1e-10);
        for (size_t l = j; l < n; l++) {
            double sum = 0;
            for (size_t i = 0; i < nspec; i++)
                for (size_t k = 0; k < n && use[i]; k++)
                    sum += element(n, ndiag, r + i * ndiag * n, k, j) * w[i * n + k] *
                           element(n, ndiag, r + i * ndiag * n, k, l);
            if (l - j < ndiag)
                close_to("R^T W R", a[(l - j) * n + j], sum, 1e-11);
            dense[j * n + l] = dense[l * n + j] = sum;
        }
    }
    /* conditioned like the sky of many fibres */
    for (size_t j = 0; j < n; j++) {
        dense[j * n + j] += 0.05 * (double)nspec;
        a[j] += 0.05 * (double)nspec;
    }
    invert(n, dense, inv);
    const int m = (int)ndiag - 1;
    double *z = malloc(2 * ndiag * n * sizeof *z);
    if (z == NULL)
        exit(1);
    double *of_host = z + ndiag * n;
    memcpy(of_host, a, ndiag * n * sizeof *a);
    if (spx_band_factor(n, m, a, 1e-14, a) + spx_band_factor_host(n, m, of_host, 1e-14, of_host) != 0) {
        printf("a pivot was replaced\n");
        failures++;
    }
    for (size_t i = 0; i < ndiag * n; i++) /* in place */
        close_to("L of the host", of_host[i], a[i], 1e-12);
    memcpy(v, y, n * sizeof *v);
    memcpy(z, y, n * sizeof *v);
    spx_band_solve(n, m, a, v);
    spx_band_solve_host(n, m, of_host, z);
    for (size_t j = 0; j < n; j++)
        close_to("A^-1 y of the host", z[j], v[j], 1e-12);
    spx_band_inverse(n, m, a, z);
    spx_band_inverse_host(n, m, a, of_host);
    for (size_t i = 0; i < ndiag * n; i++)
        close_to("A^-1 of the host", of_host[i], z[i], 0);
    for (size_t j = 0; j < n; j++) {
        long double sum = 0;
        for (size_t l = 0; l < n; l++)
            sum += inv[j * n + l] * y[l];
        close_to("A^-1 y", v[j], (double)sum, 1e-10);
        for (size_t e = 0; e < ndiag; e++)
            close_to("A^-1", z[e * n + j], j + e < n ? (double)inv[j * n + j + e] : 0, 1e-12);
    }
    spx_resolution_variance(n, ndiag, r, z, v);
    for (size_t k = 0; k < n; k++) {
        long double sum = 0;
        for (size_t j = 0; j < n; j++)
            for (size_t l = 0; l < n; l++)
                sum += element(n, ndiag, r, k, j) * inv[j * n + l] * element(n, ndiag, r, k, l);
        close_to("diag(R C R^T)", v[k], (double)sum, 1e-12);
    }
    free(r), free(w), free(d), free(a), free(y), free(dense), free(v), free(x), free(inv), free(use), free(z);
    free(a3), free(y3);
}

/* Rows of which nothing is known, and one that is not finite, are replaced by both factors alike. */
static void replaced_pivots(size_t n, int m)
{
    const size_t size = ((size_t)m + 1) * n;
    double *a = calloc(3 * size, sizeof *a);
    if (a == NULL)
        exit(1);
    double *l = a + size, *of_host = l + size;
    for (size_t j = 0; j < n; j++)
        for (size_t d = 0; d <= (size_t)m && j + d < n; d++)
            a[d * n + j] = j % 7 == 3 || (j + d) % 7 == 3 ? 0 : d == 0 ? 2 * m + draw() : draw();
    a[n / 2] = INFINITY;
    const size_t replaced = spx_band_factor(n, m, a, 1e-12, l), by_host = spx_band_factor_host(n, m, a, 1e-12, of_host);
    if (replaced < n / 7 || by_host != replaced) {
        printf("%zu and %zu pivots were replaced of %zu\n", replaced, by_host, n);
        failures++;
    }
    for (size_t i = 0; i < size; i++)
        close_to("L of the host with replaced pivots", of_host[i], l[i], 1e-12);
    free(a);
}

/* Bins that are summed in registers have the bits of a plain loop, which adds along the diagonals, as those at the ends
 * have. */
static void same_bits(size_t n, size_t ndiag)
{
    double *r = malloc(ndiag * n * sizeof *r), *a = calloc(2 * ndiag * n, sizeof *a), *x = malloc(6 * n * sizeof *x);
    if (r == NULL || a == NULL || x == NULL)
        exit(1);
    double *w = x + n, *y = w + n, *back = y + n, *v = back + n, *right = v + n, *c = a + ndiag * n;
    make_resolution(1, n, ndiag, r);
    for (size_t k = 0; k < n; k++) {
        x[k] = draw() - 0.5;
        w[k] = draw() < 0.1 ? 0 : draw();
    }
    for (size_t i = 0; i < ndiag * n; i++)
        c[i] = draw() - 0.5;
    spx_resolution_apply(n, ndiag, r, x, y);
    spx_resolution_apply_transposed(n, ndiag, r, x, back);
    spx_resolution_variance(n, ndiag, r, c, v);
    spx_resolution_normal(1, n, ndiag, r, w, x, NULL, 1, a, right);
    const long last = (long)n, h = (long)(ndiag / 2);
    for (long k = 0; k < last; k++) {
        double sum = 0, sum_back = 0, variance = 0, sum_right = 0;
        for (long b = 0; b < (long)ndiag; b++) {
            const long j = k - b + h, row = k + b - h;
            sum += j >= 0 && j < last ? r[b * last + j] * x[j] : 0;
            sum_back += row >= 0 && row < last ? r[b * last + k] * x[row] : 0;
            sum_right += row >= 0 && row < last && w[row] > 0 ? r[b * last + k] * w[row] * x[row] : 0;
            for (long d = 0; d <= b && j >= 0; d++)
                if (j + d < last)
                    variance += (d == 0 ? 1 : 2) * r[b * last + j] * r[(b - d) * last + j + d] * c[d * last + j];
        }
        close_to("R x, bits", y[k], sum, 0);
        close_to("R^T x, bits", back[k], sum_back, 0);
        close_to("diag(R C R^T), bits", v[k], variance, 0);
        close_to("R^T W d, bits", right[k], sum_right, 0);
        for (long e = 0; e < (long)ndiag; e++) {
            double all = 0;
            for (long b = e; b < (long)ndiag; b++) {
                const long row = k + b - h;
                if (row >= 0 && row < last && k + e < last)
                    all += r[b * last + k] * w[row] * r[(b - e) * last + k + e];
            }
            close_to("R^T W R, bits", a[e * last + k], all, 0);
        }
    }
    free(r), free(a), free(x);
}

/* A polynomial of degree 7 is interpolated, and of degree 8 differentiated, exactly. */
static double polynomial(double x, int degree, int derivative)
{
    double sum = 0;
    for (int p = derivative; p <= degree; p++)
        sum += (derivative ? p : 1) * pow(x / 20, p - derivative) / (derivative ? 20 : 1) * (p % 2 ? 1 : -0.7);
    return sum;
}

static void series(void)
{
    double x[40], y[40], p[6], b[4];
    for (int k = 0; k < 40; k++) {
        x[k] = polynomial(0.5 * k, 8, 0);
        y[k] = polynomial(0.5 * k, 7, 0);
    }
    for (size_t k = 0; k < 40; k++)
        close_to("derivative", spx_derivative(40, 0.5, x, k), k < 4 || k > 35 ? 0 : polynomial(0.5 * (double)k, 8, 1),
                 1e-12);
    for (size_t k = 0; k < 40; k++)
        for (double q = -1.3; q < 1.4; q += 0.37) {
            const double at = (double)k + q;
            close_to("interpolation", spx_interpolate8(40, y, k, q),
                     polynomial(0.5 * (at < 0    ? 0
                                       : at > 39 ? 39
                                                 : at),
                                7, 0),
                     1e-12);
        }
    const double u = 0.3;
    spx_legendre(u, 6, p);
    const double expected[6] = {1,
                                u,
                                (3 * u * u - 1) / 2,
                                (5 * u * u * u - 3 * u) / 2,
                                (35 * pow(u, 4) - 30 * u * u + 3) / 8,
                                (63 * pow(u, 5) - 70 * u * u * u + 15 * u) / 8};
    for (int l = 0; l < 6; l++)
        close_to("Legendre polynomial", p[l], expected[l], 1e-15);

    /* sums of the splines with coefficients i, i^2: a line, and a parabola (Marsden's identity) */
    const spx_bspline s = spx_bspline_of(5000, 5600, 61);
    close_to("knots", s.step, 60, 0);
    close_to("splines", (double)s.n, 13, 0);
    for (double at = 5000; at <= 5600; at += 7.3) {
        const size_t first = spx_bspline_at(&s, at, b);
        double sum[3] = {0};
        for (size_t i = 0; i < 4; i++) {
            const double t = (double)(first + i) - 1;
            sum[0] += b[i];
            sum[1] += b[i] * t;
            sum[2] += b[i] * (t * t - 1. / 3);
        }
        const double t = (at - 5000) / 60;
        close_to("splines: sum", sum[0], 1, 1e-15);
        close_to("splines: line", sum[1], t, 1e-13);
        close_to("splines: parabola", sum[2], t * t, 1e-12);
    }
}

static void bordered(void)
{
    enum { N = 17, M = 3, K = 4 };
    double dense[(N + K) * (N + K)] = {0}, column[60][N + K], band[(M + 1) * N] = {0}, e[K * N], g[K * K], right[N + K];
    double y[N], z[K], cov[K * K], work[K * N + K * K];
    long double inv[(N + K) * (N + K)];
    for (int i = 0; i < 60; i++) {
        double b[4];
        const spx_bspline s = spx_bspline_of(0, 59, 59. / (N - 3));
        const size_t first = spx_bspline_at(&s, i, b);
        memset(column[i], 0, sizeof column[i]);
        for (size_t k = 0; k < 4; k++)
            column[i][first + k] = b[k];
        for (size_t k = 0; k < K; k++)
            column[i][N + k] = draw();
    }
    memset(right, 0, sizeof right);
    for (int i = 0; i < 60; i++) {
        const double data = draw();
        for (int a = 0; a < N + K; a++) {
            right[a] += column[i][a] * data;
            for (int b = 0; b < N + K; b++)
                dense[a * (N + K) + b] += column[i][a] * column[i][b];
        }
    }
    invert(N + K, dense, inv);
    for (int j = 0; j < N; j++) {
        y[j] = right[j];
        for (int d = 0; d <= M && j + d < N; d++)
            band[d * N + j] = dense[j * (N + K) + j + d];
        for (int k = 0; k < K; k++)
            e[k * N + j] = dense[j * (N + K) + N + k];
    }
    for (int k = 0; k < K; k++) {
        z[k] = right[N + k];
        for (int l = 0; l < K; l++)
            g[k * K + l] = dense[(N + k) * (N + K) + N + l];
    }
    if (!spx_bordered_solve(N, M, band, K, e, g, y, z, cov, work)) {
        printf("bordered system: not positive definite\n");
        failures++;
    }
    for (int a = 0; a < N + K; a++) {
        long double sum = 0;
        for (int b = 0; b < N + K; b++)
            sum += inv[a * (N + K) + b] * right[b];
        close_to("bordered solution", a < N ? y[a] : z[a - N], (double)sum, 1e-10);
    }
    for (int k = 0; k < K; k++)
        for (int l = 0; l < K; l++)
            close_to("bordered covariance", cov[k * K + l], (double)inv[(N + k) * (N + K) + N + l], 1e-11);
    /* a column that the splines can make has no information of its own */
    double yy[1] = {1}, zz[1] = {3}, c1[1], one[1] = {2}, corner[1] = {4}, block[1] = {1}, w1[2];
    if (spx_bordered_solve(1, 0, block, 1, one, corner, yy, zz, c1, w1) || zz[0] != 0 || c1[0] != 0 || yy[0] != 1) {
        printf("bordered system: a dependent column was solved for\n");
        failures++;
    }
}

/* Rows that begin at random places, the last one at 0. */
static void envelope(size_t n)
{
    double a[60 * 60] = {0}, e[60 * 60], x[60];
    long double inv[60 * 60];
    size_t first[60], row[60];
    spx_envelope v = {n, first, row};
    for (size_t i = 0; i < n; i++) {
        const size_t most = i < 9 ? i : 9;
        first[i] = i + 1 == n ? 0 : i - (size_t)(draw() * (double)(most + 1));
        a[i * n + i] = 10 + (i + 1 == n ? 30 : 0) + draw();
        for (size_t j = first[i]; j < i; j++)
            a[i * n + j] = a[j * n + i] = draw() - 0.5;
    }
    invert(n, a, inv);
    const size_t size = spx_envelope_rows(&v);
    close_to("elements of an envelope", (double)size, (double)(row[n - 1] + n), 0);
    for (size_t i = 0; i < n; i++)
        for (size_t j = first[i]; j <= i; j++)
            e[row[i] + j] = a[i * n + j];
    if (!spx_envelope_factor(&v, e))
        close_to("factor of an envelope", 0, 1, 0);
    for (size_t c = 0; c < n; c++) {
        memset(x, 0, sizeof x);
        x[c] = 1;
        spx_envelope_solve(&v, e, c, x);
        for (size_t i = 0; i < n; i++)
            close_to("inverse of an envelope", x[i], (double)inv[i * n + c], 1e-14);
    }
    enum { WIDE = 2 * SPX_ENVELOPE_SIDES + 1 };
    double many[60 * WIDE] = {0}; /* columns 0, n/2, n - 1 among others of 0 */
    const size_t chosen[3] = {0, n / 2, n - 1}, in[3] = {1, 5, SPX_ENVELOPE_SIDES + 3};
    for (size_t c = 0; c < 3; c++)
        many[chosen[c] * WIDE + in[c]] = 1;
    spx_envelope_solve_many(&v, e, 2 * SPX_ENVELOPE_SIDES, WIDE, many);
    for (size_t c = 0; c < 3; c++) {
        memset(x, 0, sizeof x);
        x[chosen[c]] = 1;
        spx_envelope_solve(&v, e, 0, x);
        for (size_t i = 0; i < n; i++)
            close_to("columns side by side", many[i * WIDE + in[c]], x[i], 0);
    }
    size_t alike[2] = {0, 0}, rows[2];
    spx_envelope two = {2, alike, rows};
    double ones[3] = {1, 1, 1};
    (void)spx_envelope_rows(&two);
    close_to("factor of a singular envelope", spx_envelope_factor(&two, ones), 0, 0);
}

/* A matrix of n rows: bits of the small ones' functions, for each of its right-hand sides. */
static void dense(size_t n)
{
    enum { MOST = 60, M = 5 };
    double a[MOST * MOST], small[MOST * MOST], x[MOST * M], y[MOST];
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++) {
            a[i * n + j] = small[i * n + j] = i == j ? 10 + draw() : draw() - 0.5;
            a[j * n + i] = i == j ? a[i * n + i] : NAN; /* is not looked at */
        }
    close_to("factor of a matrix", spx_dense_factor(n, a), spx_small_factor(n, small), 0);
    for (size_t i = 0; i < n * M; i++)
        x[i] = draw();
    for (size_t c = 0; c < M; c++) {
        double right[MOST * M];
        memcpy(right, x, n * M * sizeof *x);
        spx_dense_solve(n, a, M, right);
        for (size_t i = 0; i < n; i++)
            y[i] = x[i * M + c];
        spx_small_solve(n, small, y);
        for (size_t i = 0; i < n; i++)
            close_to("solution", right[i * M + c], y[i], 0);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++)
            close_to("factor", a[i * n + j], small[i * n + j], 0);
    double ones[4] = {1, 1, 1, 1};
    close_to("factor of a singular matrix", spx_dense_factor(2, ones), 0, 0);
}

int main(void)
{
    dense(1);
    dense(60);
    envelope(1);
    envelope(60);
    resolution(4, 60, 11);
    resolution(1, 300, 5);
    resolution(2, 40, 4);
    resolution(5, 12, 15); /* wider than the spectrum */
    resolution(1, 9, 1);
    for (size_t n = 280; n < 297; n++) {
        same_bits(n, 11);
        same_bits(n, 10);
    }
    replaced_pivots(60, 10);
    replaced_pivots(40, 3);
    replaced_pivots(30, 20);
    same_bits(26, 11);
    same_bits(27, 11);
    series();
    bordered();
    return failures > 0;
}
