/* Provides factors, solutions and the band of an inverse on the host (calib/band.h): sums of a row go on side by side,
 * each in its own order. */
#include "calib/band.h"

#include <string.h>

#include "base/clones.h"
#include "simd/vector.h"

enum { FOUR = 4, WIDE = SPX_BAND_MOST + FOUR, SIDES = 2 * WIDE };

/* Bands up to NARROW have the sums of a row in registers. */
enum { NARROW = 3 * FOUR - 1 };

typedef SPX_VECTOR(double, FOUR * 8) four;
typedef SPX_VECTOR_ANY(double, FOUR * 8) four_any;

/* sum[i] -= sum over t of by[t] rows[t][i], t = 1 ... n, for i < wide, a multiple of FOUR. */
static inline __attribute__((always_inline)) void subtract_rows(size_t n, const double *by, const double *const *rows,
                                                                size_t wide, double *sum)
{
    if (wide <= NARROW + 1) {
        four_any *to = (four_any *)(void *)sum;
        four a = to[0], b = to[1], c = to[2];
        for (size_t t = 1; t <= n; t++) {
            const double f = by[t];
            const four all = {f, f, f, f};
            const four_any *row = (const four_any *)(const void *)rows[t];
            a -= all * row[0];
            b -= all * row[1];
            c -= all * row[2];
        }
        to[0] = a;
        to[1] = b;
        to[2] = c;
        return;
    }
    for (size_t t = 1; t <= n; t++) {
        const double f = by[t], *row = rows[t];
#pragma omp simd
        for (size_t i = 0; i < wide; i++)
            sum[i] -= f * row[i];
    }
}

/* Rows j ... j + m are kept as those before have left them: what a pivot takes off them, L(j+i, j) A(j, j+i+d), is
 * taken off at once, so that a pivot waits for the one before alone. */
SPX_CLONES
size_t spx_band_factor_host(size_t n, int m, const double *a, double tiny, double *l)
{
    const size_t slots = (size_t)m + 1;
    double row[SPX_BAND_MOST + 1][SIDES]; /* A(r, r + d) at row[r % slots][d], 0 beyond d = m */
    size_t replaced = 0;
    memset(row, 0, sizeof row);
    for (size_t r = 0; r < slots && r < n; r++)
        for (size_t d = 0; d < slots && r + d < n; d++)
            row[r][d] = a[d * n + r];
    for (size_t j = 0, here = 0; j < n; j++, here = here + 1 < slots ? here + 1 : 0) {
        double *own = row[here], pivot = own[0];
        const double diagonal = a[j];
        const size_t ahead = n - 1 - j < (size_t)m ? n - 1 - j : (size_t)m;
        if (!(pivot > tiny * fabs(diagonal)) || !(pivot < INFINITY)) {
            pivot = diagonal > 0 && diagonal < INFINITY ? diagonal : 1;
            replaced++;
        }
        const double inverse = 1 / pivot;
        l[j] = inverse;
        for (size_t i = 1, at = here; i <= ahead; i++) {
            at = at + 1 < slots ? at + 1 : 0;
            const double f = own[i] * inverse;
            const four all = {f, f, f, f};
            l[i * n + j] = f;
            for (size_t d = 0; d < slots - i; d += FOUR)
                *(four_any *)(void *)(row[at] + d) -= all * *(const four_any *)(const void *)(own + i + d);
        }
        for (size_t i = ahead + 1; i < slots; i++)
            l[i * n + j] = 0;
        for (size_t d = 0; d < slots; d++) /* the row that comes in */
            own[d] = j + slots + d < n ? a[d * n + j + slots] : 0;
    }
    return replaced;
}

void spx_band_solve_host(size_t n, int m, const double *l, double *x)
{
    const size_t most = (size_t)m;
    for (size_t j = 0; j < n; j++) {
        const size_t ahead = n - 1 - j < most ? n - 1 - j : most;
        const double here = x[j];
        for (size_t t = 1; t <= ahead; t++)
            x[j + t] -= l[t * n + j] * here;
    }
    for (size_t j = n; j-- > 0;) { /* the bin before last: it is what this one waits for */
        double sum = x[j] * l[j];
        for (size_t t = n - 1 - j < most ? n - 1 - j : most; t > 0; t--)
            sum -= l[t * n + j] * x[j + t];
        x[j] = sum;
    }
}

/* Element (j, j + i) is a sum over rows j + 1 ... j + m, which are kept with both their sides, Z(r, r - m ... r + m).
 */
SPX_CLONES
void spx_band_inverse_host(size_t n, int m, const double *l, double *z)
{
    const size_t slots = (size_t)m + 1, wide = (slots + FOUR - 1) / FOUR * FOUR;
    double row[SPX_BAND_MOST + 1][SIDES], sum[WIDE], lt[SPX_BAND_MOST + 1]; /* Z(r, r + i) at row[r % slots][m + i] */
    const double *its[SPX_BAND_MOST + 1];
    memset(row, 0, sizeof row);
    memset(sum, 0, sizeof sum);
    for (size_t j = n, here = (n - 1) % slots; j-- > 0; here = here > 0 ? here - 1 : slots - 1) {
        const size_t ahead = n - 1 - j < (size_t)m ? n - 1 - j : (size_t)m;
        for (size_t i = 0; i < wide; i++)
            sum[i] = 0;
        for (size_t t = 1, at = here; t <= ahead; t++) { /* from sum[0] on, which is another */
            at = at + 1 < slots ? at + 1 : 0;
            lt[t] = l[t * n + j];
            its[t] = row[at] + (size_t)m - t;
        }
        subtract_rows(ahead, lt, its, wide, sum);
        sum[0] = l[j];
        for (size_t t = 1; t <= ahead; t++)
            sum[0] -= lt[t] * sum[t];
        for (size_t i = 0, at = here; i < slots; i++, at = at + 1 < slots ? at + 1 : 0) {
            z[i * n + j] = row[here][(size_t)m + i] = i <= ahead ? sum[i] : 0;
            if (i <= ahead)
                row[at][(size_t)m - i] = sum[i];
        }
    }
}
