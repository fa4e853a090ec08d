/* Provides the band of an inverse on the host (calib/band.h). Element (j, j + i) is a sum over rows j + 1 ... j + m,
 * which are kept with both their sides, Z(r, r - m ... r + m): the sums of a row go on side by side, each in its own
 * order. */
#include "calib/band.h"

#include <string.h>

#include "calib/clones.h"

enum { FOUR = 4, WIDE = SPX_BAND_MOST + FOUR, SIDES = 2 * WIDE };

SPX_CLONES
void spx_band_inverse_host(size_t n, int m, const double *l, double *z)
{
    const size_t slots = (size_t)m + 1, wide = (slots + FOUR - 1) / FOUR * FOUR;
    double row[SPX_BAND_MOST + 1][SIDES], sum[WIDE]; /* Z(r, r + i) at row[r % slots][m + i] */
    memset(row, 0, sizeof row);
    for (size_t j = n; j-- > 0;) {
        const size_t ahead = n - 1 - j < (size_t)m ? n - 1 - j : (size_t)m;
        memset(sum, 0, wide * sizeof *sum);
        for (size_t t = 1, at = j % slots; t <= ahead; t++) { /* from sum[0] on, which is another */
            at = at + 1 < slots ? at + 1 : 0;
            const double lt = l[t * n + j], *its = row[at] + (size_t)m - t;
#pragma omp simd
            for (size_t i = 0; i < wide; i++)
                sum[i] -= lt * its[i];
        }
        sum[0] = l[j];
        for (size_t t = 1; t <= ahead; t++)
            sum[0] -= l[t * n + j] * sum[t];
        for (size_t i = 0; i < slots; i++) {
            z[i * n + j] = row[j % slots][(size_t)m + i] = i <= ahead ? sum[i] : 0;
            if (i <= ahead)
                row[(j + i) % slots][(size_t)m - i] = sum[i];
        }
    }
}
