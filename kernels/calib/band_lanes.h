/* Provides banded L D L^T factorisation and the band of the inverse (Takahashi's recurrence) of SPX_VL matrices side by
 * side: lanes are fibres of an extraction, or targets of a coadd. One matrix alone: calib/band.h. The file that
 * includes it is compiled for each instruction set and defines SPX_VL before (simd/README). */
#ifndef SPX_CALIB_BAND_LANES_H
#define SPX_CALIB_BAND_LANES_H

#include <math.h>
#include <stddef.h>

#include "simd/simd.h"

/* Largest half-bandwidth; and that up to which sums are made one by one. */
enum { SPX_LANES_MOST_BAND = 112, SPX_LANES_FEW = 16 };

/* L D L^T of the band matrix a(j, j+d) at a[j*arow + d*aelem], plus `shift` on the diagonal: l[j*lrow] = 1/D_j,
 * l[j*lrow + d*lelem] = L(j+d, j); diag[j*SPX_VL] = D_j. l and diag have m rows before the first, which hold zeros.
 * u: room for m + 1 vectors. Returns the lanes that met a pivot that is not positive (they went on with 1). */
ALWAYS_INLINE ivec factor(size_t n, int m, const double *a, size_t arow, size_t aelem, vec shift, double *l,
                          size_t lrow, size_t lelem, double *diag, vec *u)
{
    ivec bad = EVERY_INT(0);
    for (size_t j = 0; j < n; j++) {
        const double *aj = a + j * arow;
        double *lj = l + j * lrow;
        vec pivot = load(aj) + shift;
        for (int t = 1; t <= m; t++) {
            vec lt = load(lj - (size_t)t * lrow + (size_t)t * lelem);
            u[t] = lt * load(diag + ((long)j - t) * SPX_VL);
            pivot -= lt * u[t];
        }
        ivec good = (pivot > every(0.0)) & (pivot < every(INFINITY));
        bad |= ~good;
        pivot = choose(good, pivot, every(1.0));
        vec inverse = every(1.0) / pivot;
        store(diag + j * SPX_VL, pivot);
        store(lj, inverse);
        int i = 1;
        for (; m > SPX_LANES_FEW && i + 3 <= m; i += 4) { /* sums side by side: one alone waits for itself */
            vec sum[4];
            for (int s = 0; s < 4; s++)
                sum[s] = load(aj + (size_t)(i + s) * aelem);
            for (int t = 1; t <= m - i - 3; t++) {
                const double *lt = lj - (size_t)t * lrow + (size_t)(t + i) * lelem;
                for (int s = 0; s < 4; s++)
                    sum[s] -= load(lt + (size_t)s * lelem) * u[t];
            }
            for (int s = 0; s < 4; s++) {
                for (int t = m - i - 2; t <= m - i - s; t++)
                    sum[s] -= load(lj - (size_t)t * lrow + (size_t)(t + i + s) * lelem) * u[t];
                store(lj + (size_t)(i + s) * lelem, sum[s] * inverse);
            }
        }
        for (; i <= m; i++) {
            vec sum = load(aj + (size_t)i * aelem);
            for (int t = 1; t <= m - i; t++)
                sum -= load(lj - (size_t)t * lrow + (size_t)(t + i) * lelem) * u[t];
            store(lj + (size_t)i * lelem, sum * inverse);
        }
    }
    return bad;
}

/* Row j of the inverse Z from rows j + 1 .. j + m, by Takahashi's recurrence: z[1..m] and Z(j, j), which is returned.
 * lelem as in factor(). Z(j+i, j) = -sum_t Z(j+i, j+t) L(j+t, j), Z(j, j) = 1/D_j - sum_t L(j+t, j) Z(j+t, j). Row r of
 * the ring of m + 1 holds Z(r, r+d), d = 0..m-1; that of row j + i is `slot` + i. */
ALWAYS_INLINE vec inverse_row(int m, const double *lj, size_t lelem, double *ring, size_t slot, vec *z)
{
    const size_t zrow = (size_t)m * SPX_VL;
    const double *row[SPX_LANES_MOST_BAND + 1];
    for (int i = 1; i <= m; i++) {
        row[i] = ring + (slot + (size_t)i > (size_t)m ? slot + (size_t)i - (size_t)m - 1 : slot + (size_t)i) * zrow;
        z[i] = every(0.0);
    }
    int done = 0;
    for (; m > SPX_LANES_FEW && done + 4 <= m; done += 4) {
        const int i = done + 1;
        vec sum[4] = {every(0.0), every(0.0), every(0.0), every(0.0)};
        for (int t = 1; t <= i; t++) {
            const vec l = load(lj + (size_t)t * lelem);
            for (int s = 0; s < 4; s++)
                sum[s] -= l * load(row[t] + (i + s - t) * SPX_VL);
        }
        for (int t = i + 1; t < i + 4; t++) {
            const vec l = load(lj + (size_t)t * lelem);
            for (int s = 0; s < 4; s++)
                sum[s] -= l * load(i + s < t ? row[i + s] + (t - i - s) * SPX_VL : row[t] + (i + s - t) * SPX_VL);
        }
        for (int t = i + 4; t <= m; t++) {
            const vec l = load(lj + (size_t)t * lelem);
            for (int s = 0; s < 4; s++)
                sum[s] -= l * load(row[i + s] + (t - i - s) * SPX_VL);
        }
        for (int s = 0; s < 4; s++)
            z[i + s] = sum[s];
    }
    for (int t = 1; t <= m; t++) {
        vec l = load(lj + (size_t)t * lelem);
        for (int i = done + 1; i <= m; i++)
            z[i] -= l * load(i < t ? row[i] + (t - i) * SPX_VL : row[t] + (i - t) * SPX_VL);
    }
    vec sum = load(lj);
    for (int t = 1; t <= m; t++)
        sum -= load(lj + (size_t)t * lelem) * z[t];
    store(ring + slot * zrow, sum);
    for (int d = 1; d < m; d++)
        store(ring + slot * zrow + (size_t)d * SPX_VL, z[d]);
    return sum;
}

#endif
