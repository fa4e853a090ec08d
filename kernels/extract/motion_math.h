/* Provides the arithmetic of the motion of traces (extract/motion.h) that the CPU and a device share. */
#ifndef SPX_EXTRACT_MOTION_MATH_H
#define SPX_EXTRACT_MOTION_MATH_H

#include <math.h>
#include <stddef.h>

#include "hostdevice.h"

/* Significance of a bin that is taken for a line, and of a mean that is taken for light; bins that the mean is taken
 * over, to each side, and that a line reaches. */
#define SPX_MOTION_LINE  5.0
#define SPX_MOTION_LIGHT 5.0
enum { SPX_MOTION_HALF = 15, SPX_MOTION_LINE_REACH = 3 };

/* Accuracy of v^T M^-1 v, relative: CG's error of it is of second order, that of v with another's solution of first. F
 * has some per cent of them, and is the matrix of a step and its covariance: the place where steps end is g = 0. */
#define SPX_MOTION_RELATIVE 1e-8
/* v^T M^-1 v that fibres left out of a column's system may have: relative, or to J^T W J, as it is taken from that.
 * Where spots are symmetric a column is nearly free of the fluxes of its own fibre, and a relative limit would be too
 * strict. */
#define SPX_MOTION_LEFT_OUT      1e-8
#define SPX_MOTION_LEFT_OUT_OF_F 1e-10

/* Elements of M between fibres, relative to the diagonal, below which there is no coupling; bins whose diagonal is
 * below a fraction of the largest, at the ends of the rows that are used, carry no light of a column. */
#define SPX_MOTION_NO_COUPLING 1e-8
#define SPX_MOTION_WEAK        0.01

/* Weighted mean around bin k of the bins that are no lines, from sums over the bins before; *weight of it is its
 * inverse variance. Sums lie `stride` apart. */
SPX_HD double spx_motion_mean(size_t n, size_t k, size_t stride, const double *sum_wf, const double *sum_w,
                              double *weight)
{
    const size_t from = k > SPX_MOTION_HALF ? k - SPX_MOTION_HALF : 0;
    const size_t to = k + SPX_MOTION_HALF + 1 < n ? k + SPX_MOTION_HALF + 1 : n;
    *weight = sum_w[to * stride] - sum_w[from * stride];
    return *weight > 0 ? (sum_wf[to * stride] - sum_wf[from * stride]) / *weight : 0;
}

/* Weight of a flux that is the same in all bins, M 1, in bin k; 0: of a bin that is not used. m: a fibre's own block of
 * M, element (k, k + d) at [k mrow + d nl], half-bandwidth `band`; weight: A^T W 1 of the bin. */
SPX_HD double spx_motion_light_weight(size_t n, size_t nl, size_t band, const double *m, size_t mrow, double weight,
                                      size_t k)
{
    double sum = m[k * mrow];
    for (size_t d = 1; d <= band; d++)
        sum += (k + d < n ? m[k * mrow + d * nl] : 0) + (k >= d ? m[(k - d) * mrow + d * nl] : 0);
    return sum > 0 && weight > 0 ? sum : 0;
}

/* Light of a fibre that J is made of, light[n]. w[n]: of spx_motion_light_weight(); elements of flux and variance at
 * [k nl], all others are `stride` apart. work: 3 (n + 1) elements. */
SPX_HD void spx_motion_light(size_t n, const double *w, size_t nl, const double *x, const double *variance,
                             size_t stride, double *light, double *work)
{
    double *line = work, *sum_w = line + (n + 1) * stride;
    double *sum_wf = sum_w + (n + 1) * stride, weight;
    for (size_t k = 0; k < n; k++)
        line[k * stride] = 0;
    for (int round = 0; round < 3; round++) {
        sum_w[0] = sum_wf[0] = 0;
        for (size_t k = 0; k < n; k++) {
            const double here = line[k * stride] > 0 ? 0 : w[k * stride];
            sum_w[(k + 1) * stride] = sum_w[k * stride] + here;
            sum_wf[(k + 1) * stride] = sum_wf[k * stride] + here * x[k * nl];
        }
        for (size_t k = 0; k < n; k++) {
            const double mean = spx_motion_mean(n, k, stride, sum_wf, sum_w, &weight);
            const int lit = mean * mean * weight > SPX_MOTION_LIGHT * SPX_MOTION_LIGHT;
            light[k * stride] = line[k * stride] > 0 ? x[k * nl] : lit ? mean : 0;
        }
        for (size_t k = 0; k < n && round < 2; k++) {
            const double mean = spx_motion_mean(n, k, stride, sum_wf, sum_w, &weight), off = x[k * nl] - mean;
            if (!(w[k * stride] > 0) || !(off * off > SPX_MOTION_LINE * SPX_MOTION_LINE * variance[k * nl]))
                continue;
            const size_t from = k > SPX_MOTION_LINE_REACH ? k - SPX_MOTION_LINE_REACH : 0;
            for (size_t i = from; i <= k + SPX_MOTION_LINE_REACH && i < n; i++)
                line[i * stride] = 1;
        }
    }
}

/* Range of coupling between fibres: neighbours to each side that a column of v = A^T W J reaches, and those whose part
 * of M^-1 v is needed, one more, as F has elements with the next fibre. */
typedef struct {
    int v, z;
} spx_motion_range;

/* Largest square of an element of M relative to its two diagonals, of those that are not weak. */
SPX_HD double spx_motion_coupling(double element, double own, double other, double strongest, double largest)
{
    const double square = element * element, scale = own * other;
    if (own > SPX_MOTION_WEAK * strongest && other > SPX_MOTION_WEAK * strongest && square > largest * scale)
        return square / scale;
    return largest;
}

/* Adds fibres df apart, whose largest coupling is given, to a range of no neighbour at first. */
SPX_HD void spx_motion_range_add(spx_motion_range *range, int df, double largest)
{
    if (largest > SPX_MOTION_NO_COUPLING) {
        range->v = df;
        range->z = df + 1;
    }
}

#endif
