/* Products with resolution matrices (calib/resolution.h). */
#include "calib/resolution.h"

#include <string.h>

#include "base/clones.h"
#include "calib/series.h"
#include "simd/vector.h"

/* Bins that are worked on at one time, so that what is summed stays in the first-level cache. */
enum { BLOCK = 256 };

/* Bins away from the ends, where all elements of a row or column exist, are summed in registers, FOUR bins to a vector
 * and some vectors side by side; those at the ends, and what is left, diagonal by diagonal. Both add the same terms in
 * the same order. */
enum { FOUR = 4, SIDE = 4 * FOUR };

typedef SPX_VECTOR(double, FOUR * 8) four;
typedef SPX_VECTOR_ANY(double, FOUR * 8) four_any;

static inline __attribute__((always_inline)) const four_any *at(const double *p)
{
    return (const four_any *)(const void *)p;
}

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

/* Columns of diagonal b among first ... last-1 whose rows exist: the first, and their number. */
static size_t columns_with_row(size_t n, size_t ndiag, size_t b, size_t first, size_t last, size_t *count)
{
    const long off = (long)(ndiag / 2) - (long)b;
    const long lo = off > (long)first ? off : (long)first, hi = (long)n + off < (long)last ? (long)n + off : (long)last;
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

/* y[i] = sum over b of r[b of_r + i] x[b of_x + i], for SIDE bins at a time; returns how many bins these were. */
SPX_CLONES
static size_t sum_diagonals(size_t n, size_t ndiag, const double *r, long of_r, const double *x, long of_x, double *y)
{
    size_t i = 0;
    for (; i + SIDE <= n; i += SIDE) {
        four s[4] = {{0}};
        for (long b = 0; b < (long)ndiag; b++) {
            const four_any *p = at(r + b * of_r + i), *q = at(x + b * of_x + i);
            s[0] += p[0] * q[0];
            s[1] += p[1] * q[1];
            s[2] += p[2] * q[2];
            s[3] += p[3] * q[3];
        }
        memcpy(y + i, s, sizeof s);
    }
    return i;
}

/* Rows first ... last-1. */
static void apply_rows(size_t n, size_t ndiag, const double *r, const double *x, size_t first, size_t last, double *y)
{
    memset(y + first, 0, (last - first) * sizeof *y);
    for (size_t b = 0; b < ndiag; b++) {
        size_t count;
        const size_t j = columns(n, ndiag, b, first, last, &count);
        if (count > 0)
            multiply_add(count, r + b * n + j, x + j, y + row_of(ndiag, b, j));
    }
}

void spx_resolution_apply(size_t n, size_t ndiag, const double *r, const double *x, double *y)
{
    const size_t h = ndiag / 2, low = ndiag - 1 - h; /* row k has bins k - low ... k + h */
    size_t done = low;
    if (n < ndiag + SIDE) {
        apply_rows(n, ndiag, r, x, 0, n, y);
        return;
    }
    apply_rows(n, ndiag, r, x, 0, low, y);
    done += sum_diagonals(n - low - h, ndiag, r + low + h, (long)n - 1, x + low + h, -1, y + low);
    apply_rows(n, ndiag, r, x, done, n, y);
}

/* Columns first ... last-1. */
static void apply_columns(size_t n, size_t ndiag, const double *r, const double *x, size_t first, size_t last,
                          double *y)
{
    memset(y + first, 0, (last - first) * sizeof *y);
    for (size_t b = 0; b < ndiag; b++) {
        size_t count;
        const size_t j = columns_with_row(n, ndiag, b, first, last, &count);
        if (count > 0)
            multiply_add(count, r + b * n + j, x + row_of(ndiag, b, j), y + j);
    }
}

void spx_resolution_apply_transposed(size_t n, size_t ndiag, const double *r, const double *x, double *y)
{
    const size_t h = ndiag / 2, low = ndiag - 1 - h; /* column j has rows j - h ... j + low */
    size_t done = h;
    if (n < ndiag + SIDE) {
        apply_columns(n, ndiag, r, x, 0, n, y);
        return;
    }
    apply_columns(n, ndiag, r, x, 0, h, y);
    done += sum_diagonals(n - low - h, ndiag, r + h, (long)n, x, 1, y + h);
    apply_columns(n, ndiag, r, x, done, n, y);
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

void spx_resolution_widths(size_t n, size_t ndiag, const double *r, double *square, double *width)
{
    spx_resolution_row_sums(n, ndiag, r, width);
    memset(square, 0, n * sizeof *square);
    for (size_t b = 0; b < ndiag; b++) {
        size_t count;
        const size_t j = columns(n, ndiag, b, 0, n, &count), k = count > 0 ? row_of(ndiag, b, j) : 0;
        for (size_t i = 0; i < count; i++)
            square[k + i] += r[b * n + j + i] * r[b * n + j + i];
    }
    for (size_t k = 0; k < n; k++)
        width[k] = spx_resolution_width(width[k], square[k]);
}

double spx_resolution_variance_of_row(size_t n, size_t ndiag, const double *r, size_t i)
{
    const size_t h = ndiag / 2;
    double s[3] = {0};
    for (size_t k = 0; k < ndiag; k++) {
        /* column j = i - h + k is kept in the diagonal of offset k - h, at j */
        const double x = (double)k - (double)h, element = r[(ndiag - 1 - k) * n + i + k - h];
        s[0] += element;
        s[1] += element * x;
        s[2] += element * x * x;
    }
    return s[2] / s[0] - s[1] / s[0] * (s[1] / s[0]);
}

/* Rows first ... last-1. */
static void variance_of_rows(size_t n, size_t ndiag, const double *r, const double *c, size_t first, size_t last,
                             double *v)
{
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

/* The same of `count` rows, all of whose elements exist, SIDE at a time; r, c: at the last bin of the first of them.
 * Returns how many these were. */
SPX_CLONES
static size_t sum_variance(size_t n, size_t ndiag, size_t count, const double *r, const double *c, double *v)
{
    size_t i = 0;
    for (; i + SIDE <= count; i += SIDE) {
        four s[4] = {{0}};
        for (size_t b = 0; b < ndiag; b++) {
            const four_any *one = at(r + b * (n - 1) + i);
            four scaled[4] = {one[0], one[1], one[2], one[3]};
            for (size_t d = 0; d <= b; d++) {
                const four_any *other = at(r + (b - d) * (n - 1) + i), *with = at(c + d * n + i - b);
                s[0] += scaled[0] * other[0] * with[0];
                s[1] += scaled[1] * other[1] * with[1];
                s[2] += scaled[2] * other[2] * with[2];
                s[3] += scaled[3] * other[3] * with[3];
                for (int k = 0; k < 4 && d == 0; k++) /* pairs count twice */
                    scaled[k] = 2 * scaled[k];
            }
        }
        memcpy(v + i, s, sizeof s);
    }
    return i;
}

void spx_resolution_variance(size_t n, size_t ndiag, const double *r, const double *c, double *v)
{
    const size_t h = ndiag / 2, low = ndiag - 1 - h;
    size_t done = low;
    if (n < ndiag + SIDE) {
        variance_of_rows(n, ndiag, r, c, 0, n, v);
        return;
    }
    variance_of_rows(n, ndiag, r, c, 0, low, v);
    done += sum_variance(n, ndiag, n - low - h, r + low + h, c + low + h, v + low);
    variance_of_rows(n, ndiag, r, c, done, n, v);
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

/* Number of diagonals whose normal equations have a column's elements in registers. */
enum { USUAL = 11 };

/* Adds columns of R^T diag(w) R, all of whose elements exist, FOUR at a time: r, a at the first, w at its first row.
 * Returns how many these were. */
SPX_CLONES
static size_t add_usual(size_t n, size_t count, const double *r, const double *w, double *a)
{
#define LOAD(e)    four a##e = *at(a + (size_t)(e)*n + j);
#define KEEP(e)    *(four_any *)(void *)(a + (size_t)(e)*n + j) = a##e;
#define ALL(what)  what(0) what(1) what(2) what(3) what(4) what(5) what(6) what(7) what(8) what(9) what(10)
#define TERM(b, e) a##e += wr * *at(r + (size_t)((b) - (e)) * n + j + (e));
#define TERMS0(b)  TERM(b, 0)
#define TERMS1(b)  TERMS0(b) TERM(b, 1)
#define TERMS2(b)  TERMS1(b) TERM(b, 2)
#define TERMS3(b)  TERMS2(b) TERM(b, 3)
#define TERMS4(b)  TERMS3(b) TERM(b, 4)
#define TERMS5(b)  TERMS4(b) TERM(b, 5)
#define TERMS6(b)  TERMS5(b) TERM(b, 6)
#define TERMS7(b)  TERMS6(b) TERM(b, 7)
#define TERMS8(b)  TERMS7(b) TERM(b, 8)
#define TERMS9(b)  TERMS8(b) TERM(b, 9)
#define TERMS10(b) TERMS9(b) TERM(b, 10)
#define ROW(b)                                                                                                         \
    wr = *at(r + (size_t)(b)*n + j) * *at(w + j + (b));                                                                \
    TERMS##b(b)
    size_t j = 0;
    for (; j + FOUR <= count; j += FOUR) {
        four wr;
        ALL(LOAD)
        ALL(ROW)
        ALL(KEEP)
    }
    return j;
#undef LOAD
#undef KEEP
#undef ALL
#undef TERM
#undef TERMS0
#undef TERMS1
#undef TERMS2
#undef TERMS3
#undef TERMS4
#undef TERMS5
#undef TERMS6
#undef TERMS7
#undef TERMS8
#undef TERMS9
#undef TERMS10
#undef ROW
}

/* Adds columns first ... last-1 of R^T diag(w) R, BLOCK of them at most, diagonal by diagonal. */
static void add_columns(size_t n, size_t ndiag, const double *r, const double *w, size_t first, size_t last, double *a)
{
    double weighted[BLOCK];
    for (size_t b = 0; b < ndiag; b++) {
        size_t count;
        const size_t j = columns_with_row(n, ndiag, b, first, last, &count);
        if (count == 0)
            continue;
        multiply(count, r + b * n + j, w + row_of(ndiag, b, j), weighted);
        for (size_t e = 0; e <= b; e++) {
            const size_t both = j + count + e <= n ? count : j + e < n ? n - j - e : 0;
            multiply_add(both, weighted, r + (b - e) * n + j + e, a + e * n + j);
        }
    }
}

SPX_CLONES
static void add_weighted(size_t n, const double *restrict r, const double *restrict w, const double *restrict d,
                         double *restrict y)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] += w[i] > 0 ? r[i] * w[i] * d[i] : 0;
}

/* Adds one fibre to columns first ... last-1 of the normal equations. */
static void add_normal(size_t n, size_t ndiag, const double *r, const double *w, const double *d, size_t first,
                       size_t last, double *a, double *y)
{
    const size_t h = ndiag / 2, whole = n > ndiag ? n - ndiag + 1 : 0; /* columns before have all elements */
    size_t from = first > h ? first : h, end = last < whole ? last : whole;
    if (ndiag == USUAL && end > from) {
        end = from + add_usual(n, end - from, r + from, w + from - h, a + from);
        add_columns(n, ndiag, r, w, first, from, a);
    } else {
        end = first;
    }
    add_columns(n, ndiag, r, w, end, last, a);
    for (size_t b = 0; b < ndiag && y != NULL; b++) {
        size_t count;
        const size_t j = columns_with_row(n, ndiag, b, first, last, &count), k = row_of(ndiag, b, j);
        if (count > 0)
            add_weighted(count, r + b * n + j, w + k, d + k, y + j);
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
