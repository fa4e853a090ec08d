/* Provides arithmetic of the zero point (zero_point.c) that host and devices share. Private to kernels/shift. */
#ifndef SPX_SHIFT_ZERO_MATH_H
#define SPX_SHIFT_ZERO_MATH_H

#include "psf/psf_math.h"

/* A pixel further off, in errors, is left out; a model that is wrong by this fraction is no reason. */
#define SPX_ZERO_REJECT 5.0
#define SPX_ZERO_WRONG  0.1

/* Pixels that are left out: none, of more light than the model, any. A hit makes a line of all fibres brighter, so that
 * the others' pixels are too dark: while it is there they have to stay. */
enum { SPX_ZERO_KEEP, SPX_ZERO_BRIGHT, SPX_ZERO_ANY };

/* dX/dlambda or dY/dlambda of a trace, pixels per Angstrom. */
SPX_HD double spx_zero_slope(const spx_psf_series *s, size_t fibre, double lambda)
{
    const double h = 0.5; /* Angstrom */
    return spx_psf_series_value(s, fibre, lambda + h) - spx_psf_series_value(s, fibre, lambda - h);
}

/* A trace between wavelengths lo and hi as a parabola, y = middle + line t + bend t^2, t = -1 ... 1. */
typedef struct {
    double lo, hi, middle, line, bend;
} spx_zero_parabola;

SPX_HD spx_zero_parabola spx_zero_parabola_of(const spx_psf_series *y, size_t fibre, double lo, double hi)
{
    const double a = spx_psf_series_value(y, fibre, lo), b = spx_psf_series_value(y, fibre, hi);
    spx_zero_parabola p;
    p.lo = lo;
    p.hi = hi;
    p.middle = spx_psf_series_value(y, fibre, lo + 0.5 * (hi - lo));
    p.line = 0.5 * (b - a);
    p.bend = 0.5 * (a + b) - p.middle;
    return p;
}

/* Wavelength near which it crosses a row: where Newton's steps begin, */
SPX_HD double spx_zero_start(const spx_zero_parabola *p, double row)
{
    const double t = (row - p->middle) / p->line;
    return p->lo + 0.5 * (p->hi - p->lo) * (1 + t - p->bend / p->line * t * t);
}

/* one of which this is, from a wavelength where the trace is in row y; there are STEPS. */
enum { SPX_ZERO_STEPS = 3 };

SPX_HD double spx_zero_step(const spx_zero_parabola *p, double lambda, double row, double y, double slope)
{
    const double there = lambda + (slope != 0 ? (row - y) / slope : 0);
    return fmin(fmax(isfinite(there) ? there : p->lo, p->lo), p->hi);
}

/* Is a pixel too far from its model? rest: data - model; reject: one of the above. */
SPX_HD int spx_zero_is_far(double data, double rest, double w, int reject)
{
    const double model = data - rest, r2 = rest * rest * w;
    return (rest > 0 ? reject >= SPX_ZERO_BRIGHT : reject >= SPX_ZERO_ANY) &&
           r2 > SPX_ZERO_REJECT * SPX_ZERO_REJECT * (1 + SPX_ZERO_WRONG * SPX_ZERO_WRONG * model * model * w);
}

/* First column of a strip of ncol columns around x; where x is not on any detector none of them is. */
SPX_HD long spx_zero_corner(double x, long ncol)
{
    const double left = floor(x + 0.5) - (double)(ncol / 2);
    return fabs(left) < SPX_SPOT_FAR ? (long)left : -ncol;
}

#endif
