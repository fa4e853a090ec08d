/* Provides Cholesky factors of matrices of some hundred rows (calib/dense.h): each column, when it is there, is taken
 * off all that come behind it, row by row, so that the inner loops have neither sums nor strides. */
#include "calib/dense.h"

#include <math.h>

#include "base/clones.h"
#include "simd/vector.h"

/* y -= c x */
SPX_CLONES
static void take_off(size_t n, double c, const double *restrict x, double *restrict y)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] -= c * x[i];
}

typedef SPX_VECTOR(double, 32) four;
typedef SPX_VECTOR_ANY(double, 32) four_any;

SPX_CLONES
double spx_dot(size_t n, const double *x, const double *y)
{
    const size_t whole = n / 8 * 8;
    four low = {0}, high = {0};
    for (size_t i = 0; i < whole; i += 8) {
        low += *(const four_any *)(x + i) * *(const four_any *)(y + i);
        high += *(const four_any *)(x + i + 4) * *(const four_any *)(y + i + 4);
    }
    for (size_t i = whole; i < n; i++)
        (i % 8 < 4 ? &low : &high)[0][i % 4] += x[i] * y[i];
    const four sum = low + high;
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

int spx_dense_factor(size_t n, double *a)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            a[j * n + i] = a[i * n + j];
    for (size_t j = 0; j < n; j++) {
        double *row = a + j * n, pivot = row[j]; /* of L before the diagonal, of L^T behind it */
        for (size_t t = 0; t < j; t++)
            pivot -= row[t] * row[t];
        if (!(pivot > 1e-13 * row[j]))
            return 0;
        row[j] = sqrt(pivot);
        for (size_t i = j + 1; i < n; i++)
            a[i * n + j] = row[i] /= row[j];
        for (size_t i = j + 1; i < n; i++)
            take_off(n - i - 1, row[i], row + i + 1, a + i * n + i + 1);
    }
    return 1;
}

void spx_dense_solve(size_t n, const double *a, size_t m, double *x)
{
    for (size_t j = 0; j < n; j++) {
        for (size_t t = 0; t < j; t++)
            take_off(m, a[j * n + t], x + t * m, x + j * m);
        for (size_t i = 0; i < m; i++)
            x[j * m + i] /= a[j * n + j];
    }
    for (size_t j = n; j-- > 0;) {
        for (size_t t = j + 1; t < n; t++)
            take_off(m, a[j * n + t], x + t * m, x + j * m);
        for (size_t i = 0; i < m; i++)
            x[j * m + i] /= a[j * n + j];
    }
}

/* SPX_ENVELOPE_SIDES right-hand sides, which are in registers. */
SPX_CLONES
static void solve_sides(const spx_envelope *v, const double *a, size_t stride, double *x)
{
#define AT(row, half) (*(four_any *)(x + (row)*stride + (half)*4))
    for (size_t i = 0; i < v->n; i++) {
        const double *ai = a + v->row[i];
        four low = AT(i, 0), high = AT(i, 1);
        for (size_t t = v->first[i]; t < i; t++) {
            low -= ai[t] * AT(t, 0);
            high -= ai[t] * AT(t, 1);
        }
        AT(i, 0) = low / ai[i];
        AT(i, 1) = high / ai[i];
    }
    for (size_t i = v->n; i-- > 0;) {
        const double *ai = a + v->row[i];
        const four low = AT(i, 0) / ai[i], high = AT(i, 1) / ai[i];
        AT(i, 0) = low;
        AT(i, 1) = high;
        for (size_t t = v->first[i]; t < i; t++) {
            AT(t, 0) -= ai[t] * low;
            AT(t, 1) -= ai[t] * high;
        }
    }
#undef AT
}

void spx_envelope_solve_many(const spx_envelope *v, const double *a, size_t m, size_t stride, double *x)
{
    for (size_t first = 0; first < m; first += SPX_ENVELOPE_SIDES)
        solve_sides(v, a, stride, x + first);
}
