/* Provides banded L D L^T factorisation and the band of the inverse (Takahashi's recurrence) of SPX_VL matrices side by
 * side: lanes are fibres of an extraction, or targets of a coadd. One matrix alone: calib/band.h. The file that
 * includes it is compiled for each instruction set and defines SPX_VL before (simd/README). */
#ifndef SPX_CALIB_BAND_LANES_H
#define SPX_CALIB_BAND_LANES_H

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "simd/simd.h"

/* Largest half-bandwidth; and that up to which sums are made one by one: with loops of constant length, which have all
 * of a column in registers, more. */
enum { SPX_LANES_MOST_BAND = 112, SPX_LANES_FEW = 16, SPX_LANES_FEW_CONSTANT = 20 };

/* All of the loop as straight code, where its length is constant. */
#define SPX_LANES_UNROLL _Pragma("GCC unroll 20")

/* Whether the sums of a band are made by blocks. */
#define SPX_LANES_BY_BLOCKS(m) ((m) > (__builtin_constant_p(m) ? SPX_LANES_FEW_CONSTANT : SPX_LANES_FEW))

/* Columns of a wide factor that are made at one time, and rows of these whose sums are in registers. */
enum { SPX_LANES_BLOCK = 4, SPX_LANES_TALL = SPX_VL == 8 ? 4 : 2 };

/* One column of the factor: see factor(). */
ALWAYS_INLINE ivec factor_column(int m, const double *a, size_t aelem, vec shift, double *l, size_t lrow, size_t lelem,
                                 double *diag, vec *u)
{
    vec pivot = load(a) + shift;
    for (int t = 1; t <= m; t++) {
        const vec lt = load(l - (size_t)t * lrow + (size_t)t * lelem);
        u[t] = lt * load(diag - t * SPX_VL);
        pivot -= lt * u[t];
    }
    const ivec good = (pivot > every(0.0)) & (pivot < every(INFINITY));
    pivot = choose(good, pivot, every(1.0));
    const vec inverse = every(1.0) / pivot;
    store(diag, pivot);
    store(l, inverse);
    for (int i = 1; i <= m; i++) {
        vec sum = load(a + (size_t)i * aelem);
        for (int t = 1; t <= m - i; t++)
            sum -= load(l - (size_t)t * lrow + (size_t)(t + i) * lelem) * u[t];
        store(l + (size_t)i * lelem, sum * inverse);
    }
    return ~good;
}

/* SPX_LANES_BLOCK columns of a band wider than that. Wide factors do not fit into the first cache: each element of L
 * that is read serves BLOCK sums, and each of u, L D of the columns before, TALL of them. */
ALWAYS_INLINE ivec factor_block(int m, const double *a, size_t arow, size_t aelem, vec shift, double *l, size_t lrow,
                                size_t lelem, double *diag, vec *u)
{
    enum { N = SPX_LANES_BLOCK, TALL = SPX_LANES_TALL };
    vec d[N][N], inverse[N]; /* d: (row, column) of the block on the diagonal */
    ivec bad = EVERY_INT(0);
    for (int c = 0; c < N; c++) {
        for (int r = c; r < N; r++)
            d[r][c] = load(a + (size_t)c * arow + (size_t)(r - c) * aelem);
        d[c][c] += shift;
    }
    for (int t = m; t > 0; t--) {
        const double *lt = l - (size_t)t * lrow + (size_t)t * lelem;
        const vec dt = load(diag - t * SPX_VL);
        vec e[N], *ut = u + t * N;
        for (int c = 0; c < N; c++) {
            e[c] = t + c <= m ? load(lt + (size_t)c * lelem) : every(0.0);
            ut[c] = e[c] * dt;
        }
        for (int r = 0; r < N; r++)
            for (int c = 0; c <= r; c++)
                d[r][c] -= e[r] * ut[c];
    }
    for (int c = 0; c < N; c++) { /* d(r, c) is L(r, c) D_c, and L(r, c) in the end */
        const ivec good = (d[c][c] > every(0.0)) & (d[c][c] < every(INFINITY));
        bad |= ~good;
        d[c][c] = choose(good, d[c][c], every(1.0));
        inverse[c] = every(1.0) / d[c][c];
        store(diag + c * SPX_VL, d[c][c]);
        store(l + (size_t)c * lrow, inverse[c]);
        for (int q = c + 1; q < N; q++)
            for (int r = q; r < N; r++)
                d[r][q] -= d[r][c] * (d[q][c] * inverse[c]);
        for (int r = c + 1; r < N; r++) {
            d[r][c] *= inverse[c];
            store(l + (size_t)c * lrow + (size_t)(r - c) * lelem, d[r][c]);
        }
    }
    for (int row = N; row < m + N; row += TALL) { /* counted from the first of the block on; beyond the band: zeros */
        vec sum[TALL][N];
        for (int r = 0; r < TALL; r++)
            for (int c = 0; c < N; c++)
                sum[r][c] = row + r - c <= m ? load(a + (size_t)c * arow + (size_t)(row + r - c) * aelem) : every(0.0);
        const int all = m - row - (TALL - 1); /* columns before, from the last on, that reach all of these rows */
        for (int r = 0; r < TALL - 1; r++)
            for (int t = m - row - r; t > 0 && t > all; t--) {
                const vec e = load(l - (size_t)t * lrow + (size_t)(t + row + r) * lelem);
                for (int c = 0; c < N; c++)
                    sum[r][c] -= e * u[t * N + c];
            }
        for (int t = all; t > 0; t--) {
            const double *lt = l - (size_t)t * lrow + (size_t)(t + row) * lelem;
            for (int r = 0; r < TALL; r++) {
                const vec e = load(lt + (size_t)r * lelem);
                for (int c = 0; c < N; c++)
                    sum[r][c] -= e * u[t * N + c];
            }
        }
        for (int r = 0; r < TALL; r++)
            for (int c = 0; c < N; c++) {
                for (int q = 0; q < c; q++)
                    sum[r][c] -= sum[r][q] * d[c][q];
                if (row + r - c <= m)
                    store(l + (size_t)c * lrow + (size_t)(row + r - c) * lelem, sum[r][c] * inverse[c]);
            }
    }
    return bad;
}

/* L D L^T of the band matrix a(j, j+d) at a[j*arow + d*aelem], plus `shift` on the diagonal: l[j*lrow] = 1/D_j,
 * l[j*lrow + d*lelem] = L(j+d, j); diag[j*SPX_VL] = D_j; l may be a. l and diag have m rows before the first, which
 * hold zeros. u: room for SPX_LANES_BLOCK (m + 1) vectors. Returns the lanes that met a pivot that is not positive
 * (they went on with 1). */
ALWAYS_INLINE ivec factor(size_t n, int m, const double *a, size_t arow, size_t aelem, vec shift, double *l,
                          size_t lrow, size_t lelem, double *diag, vec *u)
{
    ivec bad = EVERY_INT(0);
    size_t j = 0;
    for (; SPX_LANES_BY_BLOCKS(m) && j + SPX_LANES_BLOCK <= n; j += SPX_LANES_BLOCK)
        bad |= factor_block(m, a + j * arow, arow, aelem, shift, l + j * lrow, lrow, lelem, diag + j * SPX_VL, u);
    for (; j < n; j++)
        bad |= factor_column(m, a + j * arow, aelem, shift, l + j * lrow, lrow, lelem, diag + j * SPX_VL, u);
    return bad;
}

/* Rows of the inverse Z that those before follow from, Z(r, r+d), d = 0..m, in order: `memory` has SPX_INVERSE_ROWS(m)
 * vectors, and is used from its end on; row `at` is the last that was made, and the last `ahead` are still to be asked
 * for. */
typedef struct {
    double *memory, *at;
    size_t ahead;
} inverse_rows;

enum { SPX_LANES_AHEAD = 24 }; /* rows until those m are moved back to the end: many rows are for the second cache */
#define SPX_INVERSE_ROWS(m) (((size_t)(m) + SPX_LANES_AHEAD) * ((size_t)(m) + 1))

/* Behind the last row are zeros. */
ALWAYS_INLINE inverse_rows inverse_begin(int m, double *memory)
{
    const size_t zrow = (size_t)(m + 1) * SPX_VL;
    memset(memory + SPX_LANES_AHEAD * zrow, 0, (size_t)m * zrow * sizeof *memory);
    return (inverse_rows){memory, memory + SPX_LANES_AHEAD * zrow, 0};
}

/* Room for `count` rows more, which become the last. */
ALWAYS_INLINE double *inverse_room(int m, size_t count, inverse_rows *rows)
{
    const size_t zrow = (size_t)(m + 1) * SPX_VL;
    if (rows->at < rows->memory + count * zrow) {
        double *end = rows->memory + SPX_LANES_AHEAD * zrow;
        memmove(end, rows->at, (size_t)m * zrow * sizeof *end);
        rows->at = end;
    }
    return rows->at -= count * zrow;
}

/* Sums of Z(r, k) L(k, c) over the rows k = 0 .. m - 1 behind a block with columns c, for `tall` of these rows from r
 * on; L is u[k][c]. Z is symmetric, and its rows lie from `behind` on. */
ALWAYS_INLINE void inverse_sums(int m, int r, int tall, const double *behind, const vec *u, vec (*sum)[SPX_LANES_BLOCK])
{
    enum { N = SPX_LANES_BLOCK };
    const size_t zrow = (size_t)(m + 1) * SPX_VL;
    for (int i = 0; i < tall; i++)
        for (int c = 0; c < N; c++)
            sum[i][c] = every(0.0);
    for (int k = 0; k < r; k++)
        for (int i = 0; i < tall; i++) {
            const vec e = load(behind + (size_t)k * zrow + (r + i - k) * SPX_VL);
            for (int c = 0; c < N; c++)
                sum[i][c] += e * u[k * N + c];
        }
    for (int k = r; k < r + tall; k++)
        for (int i = 0; i < tall; i++) {
            const int low = k < r + i ? k : r + i, high = k < r + i ? r + i : k;
            const vec e = load(behind + (size_t)low * zrow + (high - low) * SPX_VL);
            for (int c = 0; c < N; c++)
                sum[i][c] += e * u[k * N + c];
        }
    for (int k = r + tall; k < m; k++)
        for (int i = 0; i < tall; i++) {
            const vec e = load(behind + (size_t)(r + i) * zrow + (k - r - i) * SPX_VL);
            for (int c = 0; c < N; c++)
                sum[i][c] += e * u[k * N + c];
        }
}

/* SPX_LANES_BLOCK rows of a wide band, as factor_block() makes its columns, of which the first is at l: each element of
 * Z that is read serves as many sums. Elements beyond the band of a row are not stored; what is computed of them meets
 * zeros of L. */
ALWAYS_INLINE void inverse_block(int m, const double *l, size_t lrow, size_t lelem, inverse_rows *rows)
{
    enum { N = SPX_LANES_BLOCK, TALL = SPX_LANES_TALL };
    const size_t zrow = (size_t)(m + 1) * SPX_VL;
    double *z = inverse_room(m, N, rows);
    const double *behind = z + N * zrow;
    vec u[N * SPX_LANES_MOST_BAND], within[N][N], d[N][N]; /* L behind the block and in it; Z(q, c) in it */
    for (int k = 0; k < m; k++)
        for (int c = 0; c < N; c++)
            u[k * N + c] = k + N - c <= m ? load(l + (size_t)c * lrow + (size_t)(k + N - c) * lelem) : every(0.0);
    for (int c = 0; c < N; c++) {
        d[c][c] = load(l + (size_t)c * lrow);
        for (int q = c + 1; q < N; q++) {
            within[q][c] = load(l + (size_t)c * lrow + (size_t)(q - c) * lelem);
            d[q][c] = every(0.0);
        }
    }
    for (int r = 0, tall = TALL; r < m; r += tall) {
        vec sum[TALL][N];
        tall = m - r < TALL ? 1 : TALL;
        if (tall == TALL)
            inverse_sums(m, r, TALL, behind, u, sum);
        else
            inverse_sums(m, r, 1, behind, u, sum);
        for (int i = 0; i < tall; i++)
            for (int c = N - 1; c >= 0; c--) {
                vec v = every(0.0) - sum[i][c];
                for (int q = c + 1; q < N; q++)
                    v -= sum[i][q] * within[q][c];
                sum[i][c] = v;
                if (r + i + N - c <= m)
                    store(z + (size_t)c * zrow + (r + i + N - c) * SPX_VL, v);
                for (int b = 0; b <= c; b++)
                    d[c][b] -= v * u[(r + i) * N + b];
            }
    }
    for (int c = N - 1; c >= 0; c--) {
        for (int q = N - 1; q > c; q--) {
            for (int k = c + 1; k < N; k++)
                d[q][c] -= (k < q ? d[q][k] : d[k][q]) * within[k][c];
            store(z + (size_t)c * zrow + (q - c) * SPX_VL, d[q][c]);
        }
        for (int q = c + 1; q < N; q++)
            d[c][c] -= d[q][c] * within[q][c];
        store(z + (size_t)c * zrow, d[c][c]);
    }
}

/* Row j of the inverse Z from rows j + 1 .. j + m, by Takahashi's recurrence: z[1..m] and Z(j, j), which is returned.
 * lrow, lelem as in factor(). Z(j+i, j) = -sum_t Z(j+i, j+t) L(j+t, j), Z(j, j) = 1/D_j - sum_t L(j+t, j) Z(j+t, j). Z
 * is symmetric: an element that is read serves two sums. */
ALWAYS_INLINE vec inverse_row(int m, size_t j, const double *lj, size_t lrow, size_t lelem, inverse_rows *rows, vec *z)
{
    const size_t zrow = (size_t)(m + 1) * SPX_VL;
    if (SPX_LANES_BY_BLOCKS(m) && rows->ahead == 0 && j + 1 >= SPX_LANES_BLOCK) {
        inverse_block(m, lj - (SPX_LANES_BLOCK - 1) * lrow, lrow, lelem, rows);
        rows->ahead = SPX_LANES_BLOCK;
    }
    if (SPX_LANES_BY_BLOCKS(m) && rows->ahead > 0) {
        const double *made = rows->at + --rows->ahead * zrow;
        for (int d = 1; d <= m; d++)
            z[d] = load(made + (size_t)d * SPX_VL);
        return load(made);
    }
    double *to = inverse_room(m, 1, rows);
    SPX_LANES_UNROLL
    for (int i = 1; i <= m; i++)
        z[i] = every(0.0);
    SPX_LANES_UNROLL
    for (int r = 1; r <= m; r++) {
        const double *row = to + (size_t)r * zrow;
        const vec l = load(lj + (size_t)r * lelem);
        vec sum = z[r] - load(row) * l;
        SPX_LANES_UNROLL
        for (int c = r + 1; c <= m; c++) {
            const vec e = load(row + (c - r) * SPX_VL);
            sum -= e * load(lj + (size_t)c * lelem);
            z[c] -= e * l;
        }
        z[r] = sum;
    }
    vec sum = load(lj);
    SPX_LANES_UNROLL
    for (int t = 1; t <= m; t++)
        sum -= load(lj + (size_t)t * lelem) * z[t];
    SPX_LANES_UNROLL
    for (int d = 0; d <= m; d++)
        store(to + (size_t)d * SPX_VL, d == 0 ? sum : z[d]);
    return sum;
}

#endif
