/* Provides the band of an inverse on the host (calib/band.h). Element (j, j + i) is a sum over rows j + 1 ... j + m,
 * which are kept with both their sides, Z(r, r - m ... r + m): the sums of a row go on side by side, each in its own
 * order. */
#include "calib/band.h"

#include <string.h>

#include "calib/clones.h"
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
