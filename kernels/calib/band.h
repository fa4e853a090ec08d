/* Provides symmetric positive definite band matrices, one at a time: factors, solutions, the band of the inverse.
 *
 * A matrix of n rows and half-bandwidth m is kept by diagonals, a[d*n + j] = A(j, j+d), d = 0 ... m, like a resolution
 * matrix: sums over the rows of all fibres run along a diagonal. Elements beyond the end, j + d >= n, are 0.
 * Extraction, where a matrix belongs to each fibre, has the same recurrences with fibres side by side
 * (calib/band_lanes.h).
 *
 * L D L^T without pivoting; Takahashi, Fagan & Chin 1973 for the inverse:
 *     Z(j+i, j) = - sum_t Z(j+i, j+t) L(j+t, j),   Z(j, j) = 1/D_j - sum_t L(j+t, j) Z(j+t, j).
 * All functions are for host and device, and take one thread. */
#ifndef SPX_CALIB_BAND_H
#define SPX_CALIB_BAND_H

#include <math.h>
#include <stddef.h>

#include "hostdevice.h"

/* Largest half-bandwidth. */
enum { SPX_BAND_MOST = 64 };

/* Factors A: l[0*n + j] = 1/D_j, l[d*n + j] = L(j+d, j); [m+1][n], may be `a` itself. A pivot that is not above `tiny`
 * times the diagonal's element is replaced by that element (1 where it is 0), as if nothing else were known of the row.
 * Returns how many these were. m <= SPX_BAND_MOST. */
SPX_HD size_t spx_band_factor(size_t n, int m, const double *a, double tiny, double *l)
{
    size_t replaced = 0;
    for (size_t j = 0; j < n; j++) {
        const int back = j < (size_t)m ? (int)j : m;
        const double diagonal = a[j];
        double u[SPX_BAND_MOST + 1], pivot = diagonal;
        for (int t = 1; t <= back; t++) {
            const double lt = l[(size_t)t * n + j - (size_t)t];
            u[t] = lt / l[j - (size_t)t];
            pivot -= lt * u[t];
        }
        if (!(pivot > tiny * fabs(diagonal)) || !(pivot < INFINITY)) {
            pivot = diagonal > 0 && diagonal < INFINITY ? diagonal : 1;
            replaced++;
        }
        l[j] = 1 / pivot;
        for (int i = 1; i <= m; i++) {
            double sum = j + (size_t)i < n ? a[(size_t)i * n + j] : 0;
            for (int t = 1; t <= back && t + i <= m; t++)
                sum -= l[(size_t)(t + i) * n + j - (size_t)t] * u[t];
            l[(size_t)i * n + j] = j + (size_t)i < n ? sum / pivot : 0;
        }
    }
    return replaced;
}

/* Solves A x = x in place, by the factor of spx_band_factor(). */
SPX_HD void spx_band_solve(size_t n, int m, const double *l, double *x)
{
    for (size_t j = 0; j < n; j++) {
        double sum = x[j];
        for (size_t t = 1; t <= (size_t)m && t <= j; t++)
            sum -= l[t * n + j - t] * x[j - t];
        x[j] = sum;
    }
    for (size_t j = n; j-- > 0;) {
        double sum = x[j] * l[j];
        for (size_t t = 1; t <= (size_t)m && j + t < n; t++)
            sum -= l[t * n + j] * x[j + t];
        x[j] = sum;
    }
}

/* The same of up to four right-hand sides x[count][n], each with the same bits: recurrences wait for themselves, and
 * side by side they do so at the same time. */
SPX_HD void spx_band_solve_four(size_t n, int m, const double *l, size_t count, double *x)
{
    double *const a = x, *const b = x + (count > 1 ? n : 0), *const c = b + (count > 2 ? n : 0),
                  *const d = c + (count > 3 ? n : 0); /* fewer: the last one again */
    for (size_t j = 0; j < n; j++) {
        double of_a = a[j], of_b = b[j], of_c = c[j], of_d = d[j];
        for (size_t t = 1; t <= (size_t)m && t <= j; t++) {
            const double element = l[t * n + j - t];
            of_a -= element * a[j - t];
            of_b -= element * b[j - t];
            of_c -= element * c[j - t];
            of_d -= element * d[j - t];
        }
        a[j] = of_a;
        b[j] = of_b;
        c[j] = of_c;
        d[j] = of_d;
    }
    for (size_t j = n; j-- > 0;) {
        double of_a = a[j] * l[j], of_b = b[j] * l[j], of_c = c[j] * l[j], of_d = d[j] * l[j];
        for (size_t t = 1; t <= (size_t)m && j + t < n; t++) {
            const double element = l[t * n + j];
            of_a -= element * a[j + t];
            of_b -= element * b[j + t];
            of_c -= element * c[j + t];
            of_d -= element * d[j + t];
        }
        a[j] = of_a;
        b[j] = of_b;
        c[j] = of_c;
        d[j] = of_d;
    }
}

/* The same on the host, faster (calib/band.c): factors and solutions up to rounding, the inverse with the same bits. */
size_t spx_band_factor_host(size_t n, int m, const double *a, double tiny, double *l);
void spx_band_solve_host(size_t n, int m, const double *l, double *x);
void spx_band_inverse_host(size_t n, int m, const double *l, double *z);

/* Band of the inverse: z[d*n + j] = Z(j, j+d), d = 0 ... m; [m+1][n], not `l`. */
SPX_HD void spx_band_inverse(size_t n, int m, const double *l, double *z)
{
    for (size_t j = n; j-- > 0;) {
        const int ahead = n - 1 - j < (size_t)m ? (int)(n - 1 - j) : m;
        for (int i = 1; i <= m; i++) {
            double sum = 0;
            for (int t = 1; i <= ahead && t <= ahead; t++) {
                const size_t low = j + (size_t)(i < t ? i : t);
                sum -= l[(size_t)t * n + j] * z[(size_t)(i < t ? t - i : i - t) * n + low];
            }
            z[(size_t)i * n + j] = sum;
        }
        double sum = l[j];
        for (int t = 1; t <= ahead; t++)
            sum -= l[(size_t)t * n + j] * z[(size_t)t * n + j];
        z[j] = sum;
    }
}

#endif
