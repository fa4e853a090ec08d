/* Provides the spots of lines, with their derivatives, and integrals over the columns of rows, for the zero point
 * (zero_point.c), which makes some ten thousand of them: compiled for each instruction set (kernels/simd/README).
 * Private to kernels/shift. */
#ifndef SPX_SHIFT_SPOTS_H
#define SPX_SHIFT_SPOTS_H

#include <stddef.h>

/* A plain Gauss-Hermite spot: size, degrees, coefficients c[i + (degx + 1) j]; centre minus middle of the central
 * pixel; widths; how far the trace moves along both axes, pixels per Angstrom. */
typedef struct {
    int nx, ny, degx, degy;
    const double *c;
    double dx, dy, sigx, sigy, slope_x, slope_y;
} spx_shift_spot;

/* Doubles of a row of n values, with room for a vector that begins in it. */
static inline size_t spx_shift_row(size_t n)
{
    return (n + 16) / 8 * 8;
}

/* Doubles of memory that spot() needs. */
static inline size_t spx_shift_spot_work(int nx, int ny, int degx, int degy)
{
    const size_t row = spx_shift_row((size_t)nx), edges = spx_shift_row((size_t)(nx + ny + 2));
    const size_t deg = (size_t)(degx + 1 > degy + 2 ? degx + 1 : degy + 2);
    return (deg + 2) * edges + ((size_t)degx + 2 + 2 * ((size_t)degy + 1) + 3 * (size_t)ny) * row;
}

typedef struct {
    const char *name;
    /* Functions at edges e[n]: h[0][k] = -erf(e_k/sqrt 2)/2, h[m][k] = He_(m-1)(e_k) phi(e_k), m <= deg, rows of
     * `stride`, at least spx_shift_row(n), as e is long. Differences of neighbours are spx_gauss_hermite()'s. */
    void (*edges)(size_t n, int deg, const double *e, size_t stride, double *h);
    /* Pixels [ny][nx] of the spot S, sum 1, of dS/dlambda, its corner held, and of dS/d(sigma_lambda^2), one after the
     * other: with dg_m/dx = g_(m+1)/sigma and dg_m/d ln sigma = g_(m+2) + m g_m. Pixels below 0 are 0 in all three. 0:
     * there is no spot. */
    int (*spot)(const spx_shift_spot *s, double *work, double *pixels);
} spx_shift_spots;

const spx_shift_spots *spx_shift_spots_base(void);
const spx_shift_spots *spx_shift_spots_avx2(void); /* NULL: not on this processor */
const spx_shift_spots *spx_shift_spots_avx512(void);

#endif
