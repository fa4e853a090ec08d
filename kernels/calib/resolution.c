/* Products with resolution matrices (calib/resolution.h). */
#include "calib/resolution.h"

#include <string.h>

#include "calib/clones.h"
#include "calib/series.h"

/* Bins that are worked on at one time, so that what is summed stays in the first-level cache. */
enum { BLOCK = 256 };

/* Bins j of diagonal b whose row lies in first ... last-1, and their number. */
static size_t columns(size_t n, size_t ndiag, size_t b, size_t first, size_t last, size_t *count)
{
    const long off = (long)(ndiag / 2) - (long)b;
    long lo = (long)first + off, hi = (long)last + off;
    lo = lo < 0 ? 0 : lo;
    hi = hi > (long)n ? (long)n : hi;
    *count = hi > lo ? (size_t)(hi - lo) : 0;
    return (size_t)lo;
}

static size_t row_of(size_t ndiag, size_t b, size_t j)
{
    return j + b - ndiag / 2;
}

SPX_CLONES
static void multiply_add(size_t n, const double *restrict a, const double *restrict b, double *restrict sum)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        sum[i] += a[i] * b[i];
}

SPX_CLONES
static void multiply(size_t n, const double *restrict a, const double *restrict b, double *restrict product)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        product[i] = a[i] * b[i];
}

SPX_CLONES
static void multiply_add3(size_t n, double scale, const double *restrict a, const double *restrict b,
                          const double *restrict c, double *restrict sum)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        sum[i] += scale * a[i] * b[i] * c[i];
}

void spx_resolution_apply(size_t n, size_t ndiag, const double *r, const double *x, double *y)
{
    for (size_t first = 0; first < n; first += BLOCK) {
        const size_t last = n - first < BLOCK ? n : first + BLOCK;
        memset(y + first, 0, (last - first) * sizeof *y);
        for (size_t b = 0; b < ndiag; b++) {
            size_t count;
            const size_t j = columns(n, ndiag, b, first, last, &count);
            if (count > 0)
                multiply_add(count, r + b * n + j, x + j, y + row_of(ndiag, b, j));
        }
    }
}

void spx_resolution_apply_transposed(size_t n, size_t ndiag, const double *r, const double *x, double *y)
{
    memset(y, 0, n * sizeof *y);
    for (size_t b = 0; b < ndiag; b++) {
        size_t count;
        const size_t j = columns(n, ndiag, b, 0, n, &count);
        if (count > 0)
            multiply_add(count, r + b * n + j, x + row_of(ndiag, b, j), y + j);
    }
}

void spx_resolution_row_sums(size_t n, size_t ndiag, const double *r, double *y)
{
    memset(y, 0, n * sizeof *y);
    for (size_t b = 0; b < ndiag; b++) {
        size_t count;
        const size_t j = columns(n, ndiag, b, 0, n, &count), k = count > 0 ? row_of(ndiag, b, j) : 0;
        for (size_t i = 0; i < count; i++)
            y[k + i] += r[b * n + j + i];
    }
}

void spx_resolution_variance(size_t n, size_t ndiag, const double *r, const double *c, double *v)
{
    for (size_t first = 0; first < n; first += BLOCK) {
        const size_t last = n - first < BLOCK ? n : first + BLOCK;
        memset(v + first, 0, (last - first) * sizeof *v);
        for (size_t b = 0; b < ndiag; b++) {
            size_t count;
            const size_t j = columns(n, ndiag, b, first, last, &count);
            for (size_t d = 0; d <= b && count > 0; d++) {
                /* the end of the spectrum cuts the other element of a pair off */
                const size_t both = j + count + d <= n ? count : j + d < n ? n - j - d : 0;
                multiply_add3(both, d == 0 ? 1 : 2, r + b * n + j, r + (b - d) * n + j + d, c + d * n + j,
                              v + row_of(ndiag, b, j));
            }
        }
    }
}

SPX_CLONES
static void derivative(size_t n, double dw, const double *restrict x, double *restrict y)
{
#pragma omp simd
    for (size_t k = SPX_DERIVATIVE_EDGE; k < n - SPX_DERIVATIVE_EDGE; k++)
        y[k] = (4. / 5 * (x[k + 1] - x[k - 1]) - 1. / 5 * (x[k + 2] - x[k - 2]) + 4. / 105 * (x[k + 3] - x[k - 3]) -
                1. / 280 * (x[k + 4] - x[k - 4])) /
               dw;
}

void spx_derivative_row(size_t n, double dw, const double *x, double *y)
{
    const size_t edge = n < SPX_DERIVATIVE_EDGE ? n : SPX_DERIVATIVE_EDGE;
    memset(y, 0, edge * sizeof *y);
    memset(y + n - edge, 0, edge * sizeof *y);
    if (n > 2 * SPX_DERIVATIVE_EDGE)
        derivative(n, dw, x, y);
}

/* Adds one fibre to columns first ... last-1 of the normal equations. weighted: work, [BLOCK] */
static void add_normal(size_t n, size_t ndiag, const double *r, const double *w, const double *d, size_t first,
                       size_t last, double *a, double *y)
{
    double weighted[BLOCK];
    for (size_t b = 0; b < ndiag; b++) {
        /* columns j of this block, whose rows j - off have to exist */
        const long off = (long)(ndiag / 2) - (long)b;
        const long lo = off > (long)first ? off : (long)first;
        const long hi = (long)n + off < (long)last ? (long)n + off : (long)last;
        if (hi <= lo)
            continue;
        const size_t j = (size_t)lo, count = (size_t)(hi - lo), k = row_of(ndiag, b, j);
        multiply(count, r + b * n + j, w + k, weighted);
        for (size_t e = 0; e <= b; e++) {
            const size_t both = j + count + e <= n ? count : j + e < n ? n - j - e : 0;
            multiply_add(both, weighted, r + (b - e) * n + j + e, a + e * n + j);
        }
        for (size_t i = 0; i < count && y != NULL; i++)
            y[j + i] += w[k + i] > 0 ? weighted[i] * d[k + i] : 0;
    }
}

void spx_resolution_normal(size_t nspec, size_t n, size_t ndiag, const double *resolution, const double *w,
                           const double *d, const uint8_t *use, int nthreads, double *a, double *y)
{
    memset(a, 0, ndiag * n * sizeof *a);
    if (y != NULL)
        memset(y, 0, n * sizeof *y);
    const long nblock = (long)((n + BLOCK - 1) / BLOCK);
#pragma omp parallel for schedule(dynamic, 1) num_threads(nthreads > 0 ? nthreads : 1)
    for (long block = 0; block < nblock; block++) {
        const size_t first = (size_t)block * BLOCK, last = n - first < BLOCK ? n : first + BLOCK;
        for (size_t i = 0; i < nspec; i++)
            if (use == NULL || use[i])
                add_normal(n, ndiag, resolution + i * ndiag * n, w + i * n, d != NULL ? d + i * n : NULL, first, last,
                           a, d != NULL ? y : NULL);
    }
}
