/* Provides functions of the edges of pixels whose differences are the pixels' integrals of a Gauss-Hermite series.
 * Lanes are edges. The file that includes it is compiled for each instruction set and defines SPX_VL before
 * (simd/README). */
#ifndef SPX_PSF_EDGE_LANES_H
#define SPX_PSF_EDGE_LANES_H

#include <stddef.h>

#include "simd/simd_math.h"

/* Of `count` vectors of edges: see edge_functions(). */
ALWAYS_INLINE void edge_vectors(int count, int deg, const double *e, size_t stride, double *h)
{
    vec edge[SPX_MATH_TOGETHER], erf2[SPX_MATH_TOGETHER], gauss[SPX_MATH_TOGETHER];
    for (int v = 0; v < count; v++)
        edge[v] = load(e + v * SPX_VL);
    half_erfs(count, edge, erf2, gauss);
    for (int v = 0; v < count; v++) {
        store(h + v * SPX_VL, every(0.0) - erf2[v]);
        vec below = every(0.0), here = gauss[v] * every(0.39894228040143267794);
        for (int m = 1; m <= deg; m++) {
            store(h + (size_t)m * stride + v * SPX_VL, here);
            const vec above = edge[v] * here - every(m - 1) * below;
            below = here;
            here = above;
        }
    }
}

/* As many edges as there are whole groups of vectors for; returns their number. Inlined, it is part of the loop over
 * spots, before which compilers copy the coefficients of both series to the stack: for each spot. */
__attribute__((noinline)) static size_t edges_together(size_t n, int deg, const double *e, size_t stride, double *h)
{
    size_t i = 0;
    for (; i + (SPX_MATH_TOGETHER - 1) * SPX_VL < n; i += SPX_MATH_TOGETHER * SPX_VL)
        edge_vectors(SPX_MATH_TOGETHER, deg, e + i, stride, h + i);
    return i;
}

__attribute__((noinline)) static void edges_alone(size_t from, size_t n, int deg, const double *e, size_t stride,
                                                  double *h)
{
    for (size_t i = from; i < n; i += SPX_VL)
        edge_vectors(1, deg, e + i, stride, h + i);
}

/* h[0 .. deg][stride] of n edges e, in units of sigma from the centre, in whole vectors: -erf(e/sqrt 2)/2, then
 * He_(m-1)(e) phi(e), as spx_gauss_hermite() has them. */
static void edge_functions(size_t n, int deg, const double *e, size_t stride, double *h)
{
    const size_t together = edges_together(n, deg, e, stride, h);
    if (together < n)
        edges_alone(together, n, deg, e, stride, h);
}

#endif
