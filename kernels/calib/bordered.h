/* Provides bordered systems: least squares for a banded block, such as the splines of a continuum, beside a few
 * functions that reach over all bins.
 *
 *     [ B    E ] [ x ]   [ y ]        S = G - E^T B^-1 E    Schur complement: information on p with x marginalised
 *     [ E^T  G ] [ p ] = [ z ]        p = S^-1 (z - E^T B^-1 y),   x = B^-1 (y - E p),   cov(p) = S^-1
 *
 * For host and device, one thread. */
#ifndef SPX_CALIB_BORDERED_H
#define SPX_CALIB_BORDERED_H

#include <math.h>
#include <stddef.h>

#include "calib/band.h"
#include "hostdevice.h"

/* Most columns of a border. */
enum { SPX_BORDER_MOST = 16 };

/* Cholesky factor of a small matrix g[k][k] in place, lower triangle; 0 when it is not positive definite: a pivot is
 * not above 1e-13 of its diagonal. */
SPX_HD int spx_small_factor(size_t k, double *g)
{
    for (size_t j = 0; j < k; j++) {
        double pivot = g[j * k + j];
        for (size_t t = 0; t < j; t++)
            pivot -= g[j * k + t] * g[j * k + t];
        if (!(pivot > 1e-13 * g[j * k + j]))
            return 0;
        g[j * k + j] = sqrt(pivot);
        for (size_t i = j + 1; i < k; i++) {
            double sum = g[i * k + j];
            for (size_t t = 0; t < j; t++)
                sum -= g[i * k + t] * g[j * k + t];
            g[i * k + j] = sum / g[j * k + j];
        }
    }
    return 1;
}

/* Solves by the factor of spx_small_factor(), x[k] in place. */
SPX_HD void spx_small_solve(size_t k, const double *g, double *x)
{
    for (size_t j = 0; j < k; j++) {
        for (size_t t = 0; t < j; t++)
            x[j] -= g[j * k + t] * x[t];
        x[j] /= g[j * k + j];
    }
    for (size_t j = k; j-- > 0;) {
        for (size_t t = j + 1; t < k; t++)
            x[j] -= g[t * k + j] * x[t];
        x[j] /= g[j * k + j];
    }
}

/* Inverse of the factored matrix: inv[k][k], symmetric. k <= SPX_BORDER_MOST. */
SPX_HD void spx_small_inverse(size_t k, const double *g, double *inv)
{
    for (size_t c = 0; c < k; c++) {
        double x[SPX_BORDER_MOST];
        for (size_t i = 0; i < k; i++)
            x[i] = i == c ? 1 : 0;
        spx_small_solve(k, g, x);
        for (size_t i = 0; i < k; i++)
            inv[i * k + c] = x[i];
    }
}

/* Eliminates the banded block. band[m+1][n] by diagonals, destroyed: its factor; border e[k][n]; corner g[k][k], the
 * lower triangle is used; right-hand sides y[n], z[k], which become B^-1 y and z - E^T B^-1 y. work: [k][n] + [k][k]:
 * in its last k*k elements is S, the information on p, lower triangle; before them rows of B^-1 E. Pivots of B that say
 * nothing are replaced (tiny 1e-12): give empty splines a small diagonal where x is used. */
SPX_HD void spx_bordered_eliminate(size_t n, int m, double *band, size_t k, const double *e, const double *g, double *y,
                                   double *z, double *work)
{
    double *s = work + k * n;
    (void)spx_band_factor(n, m, band, 1e-12, band);
    spx_band_solve(n, m, band, y);
    for (size_t i = 0; i < k * n; i++)
        work[i] = e[i];
    for (size_t c = 0; c < k; c += 4)
        spx_band_solve_four(n, m, band, k - c < 4 ? k - c : 4, work + c * n);
    for (size_t c = 0; c < k; c++) {
        for (size_t d = 0; d <= c; d++) {
            double sum = g[c * k + d];
            for (size_t j = 0; j < n; j++)
                sum -= e[c * n + j] * work[d * n + j];
            s[c * k + d] = sum;
        }
        double sum = z[c];
        for (size_t j = 0; j < n; j++)
            sum -= e[c * n + j] * y[j];
        z[c] = sum;
    }
}

/* x = B^-1 (y - E p) in place, behind spx_bordered_eliminate(). */
SPX_HD void spx_bordered_return(size_t n, size_t k, const double *work, const double *p, double *y)
{
    for (size_t c = 0; c < k; c++)
        for (size_t j = 0; j < n; j++)
            y[j] -= work[c * n + j] * p[c];
}

/* Solves a bordered system, as of spx_bordered_eliminate(). Results: x in y, p in z, cov[k][k]. 0 when S is not
 * positive definite: p and cov are then 0, and x is B^-1 y. */
SPX_HD int spx_bordered_solve(size_t n, int m, double *band, size_t k, const double *e, const double *g, double *y,
                              double *z, double *cov, double *work)
{
    double *s = work + k * n;
    int good = 1;
    spx_bordered_eliminate(n, m, band, k, e, g, y, z, work);
    /* against G, not only against the pivot: a column that the band already holds has no information of its own */
    for (size_t c = 0; c < k; c++)
        good = good && s[c * k + c] > 1e-10 * g[c * k + c];
    good = good && spx_small_factor(k, s);
    if (good) {
        spx_small_solve(k, s, z);
        spx_small_inverse(k, s, cov);
    }
    for (size_t c = 0; c < k && !good; c++) {
        z[c] = 0;
        for (size_t d = 0; d < k; d++)
            cov[c * k + d] = 0;
    }
    spx_bordered_return(n, k, work, z, y);
    return good;
}

#endif
