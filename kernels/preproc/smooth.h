/* Provides a smooth curve through values in a row: the level of overscans, the lamp of pixel flats. */
#ifndef SPX_PREPROC_SMOOTH_H
#define SPX_PREPROC_SMOOTH_H

#include <math.h>
#include <stddef.h>

/* Straight line by least squares through the values v[k stride] of weight w[k stride] within `window` / 2 of i, taken
 * at i: no bias where the values rise, at the ends either. NAN where no value has weight. *var: variance of the result,
 * where a value's is 1/w. */
static inline double spx_local_line(size_t n, size_t stride, const double *v, const double *w, size_t window, size_t i,
                                    double *var)
{
    const size_t half = window / 2, lo = i > half ? i - half : 0, hi = i + half < n - 1 ? i + half : n - 1;
    double s = 0, sx = 0, sxx = 0, sy = 0, sxy = 0;
    for (size_t k = lo; k <= hi; k++) {
        const double weight = w[k * stride], x = (double)k - (double)i, y = weight > 0 ? v[k * stride] : 0;
        s += weight;
        sx += weight * x;
        sxx += weight * x * x;
        sy += weight * y;
        sxy += weight * x * y;
    }
    const double det = s * sxx - sx * sx;
    const int slope = det > 1e-9 * s * sxx && s > 0;
    *var = slope ? sxx / det : s > 0 ? 1 / s : 0;
    return slope ? (sxx * sy - sx * sxy) / det : s > 0 ? sy / s : NAN;
}

#endif
