/* Provides what the steps of the fit of a bundle have in common on the host and on a device: overlaps of spots,
 * B-splines of the background, and limits of the weights. */
#ifndef SPX_PSFFIT_STEP_MATH_H
#define SPX_PSFFIT_STEP_MATH_H

#include <math.h>
#include <stdlib.h>

#include "hostdevice.h"
#include "psffit/fit.h"

/* Robust weights fall as (ROBUST / |t|)^2; the hard clip takes |t| > CLIP, and neighbours of these above BESIDE. */
#define SPX_PF_ROBUST 4.0
#define SPX_PF_CLIP   6.0
#define SPX_PF_BESIDE 2.0
/* Added to the diagonal of N_ff, in units of its largest element. */
#define SPX_PF_FLOOR 1e-10
/* Pixels in which the model is brighter than this many of its errors tell what it is uncertain by. */
#define SPX_PF_TELLING 50.0

/* Columns on either side of a trace that a fibre's chi squared is of: about half the distance of fibres. Rows of a part
 * of a fibre. Sub-pixel phases of a spot in x and in y; pixels of a spot above CORE of its peak are its core. */
#define SPX_PF_NEAR 3.5
#define SPX_PF_CORE 0.1
/* Pixels up to which a spot that is off its place differs from one that is not by its derivatives alone, to some
 * 0.1 % of its peak. */
#define SPX_PF_LINEAR 0.05
enum { SPX_PF_PART = 64, SPX_PF_PHASES = 4 };
/* Rounds of the fixed point of the shape's priors: variances that are not noise are then settled to 1 %. */
enum { SPX_PF_ROUNDS = 10 };

/* Overlap of two spots. */
typedef struct {
    int w, h;    /* columns and rows; h 0: none */
    size_t a, b; /* first pixel in the stamp of each */
} spx_pf_overlap;

SPX_HD spx_pf_overlap spx_pf_overlap_of(int nx, const spx_pf_at *a, const spx_pf_at *b)
{
    const long x0 = a->xc + a->x0 > b->xc + b->x0 ? a->xc + a->x0 : b->xc + b->x0;
    const long x1 = a->xc + a->x1 < b->xc + b->x1 ? a->xc + a->x1 : b->xc + b->x1;
    const long y0 = a->yc + a->y0 > b->yc + b->y0 ? a->yc + a->y0 : b->yc + b->y0;
    const long y1 = a->yc + a->y1 < b->yc + b->y1 ? a->yc + a->y1 : b->yc + b->y1;
    spx_pf_overlap o = {0, 0, 0, 0};
    if (x1 > x0 && y1 > y0) {
        o.w = (int)(x1 - x0);
        o.h = (int)(y1 - y0);
        o.a = (size_t)((y0 - a->yc) * nx + x0 - a->xc);
        o.b = (size_t)((y0 - b->yc) * nx + x0 - b->xc);
    }
    return o;
}

/* Interval of nknot cubic B-splines that a row is in, and its place there, 0 to 1. */
SPX_HD size_t spx_pf_interval(size_t nknot, size_t height, size_t r, double *t)
{
    const size_t n = nknot - SPX_PF_SPLINE + 1;
    const double at = (double)r * (double)n / (double)height;
    const size_t k = (size_t)at < n ? (size_t)at : n - 1;
    *t = at - (double)k;
    return k;
}

/* Values of the four that are not 0 in an interval, at t. */
SPX_HD void spx_pf_spline_values(double t, double *value)
{
    value[0] = 1.0 / 6 + t * (-0.5 + t * (0.5 + t * (-1.0 / 6)));
    value[1] = 2.0 / 3 + t * (0.0 + t * (-1.0 + t * 0.5));
    value[2] = 1.0 / 6 + t * (0.5 + t * (0.5 + t * -0.5));
    value[3] = 0.0 + t * (0.0 + t * (0.0 + t * (1.0 / 6)));
}

/* Element of the diagonal of the normal equations of the background with what keeps them positive definite: of a fibre
 * without light it is next to 0. most: the largest of all. */
SPX_HD double spx_pf_border_floor(double v, double most)
{
    return v + 1e-9 * v + 1e-14 * most + 1e-30;
}

/* Whether a pixel with light of spots, m electrons in all, tells what the model is uncertain by. */
SPX_HD int spx_pf_is_bright(double noise, double m, double light)
{
    return noise > 0 && light > 0 && m > 0 && m * m > SPX_PF_TELLING * SPX_PF_TELLING * spx_pf_noise(noise, m, 0);
}

/* Fibre whose trace is the nearest to a column of a row, in which its profiles begin at first[nf], hx before traces. */
SPX_HD int spx_pf_nearest(int nf, int hx, const int32_t *first, long column)
{
    int nearest = 0;
    for (int i = 1; i < nf; i++)
        if (labs(first[i] + hx - column) < labs(first[nearest] + hx - column))
            nearest = i;
    return nearest;
}

/* Numbers of a sample. */
enum { SPX_PF_SAMPLE = 4 };

/* What it tells: (data - m)^2, V, m^2, and of which fibre. */
SPX_HD void spx_pf_bright_sample(double data, double noise, double m, int fibre, double *out)
{
    out[0] = (data - m) * (data - m);
    out[1] = spx_pf_noise(noise, m, 0);
    out[2] = m * m;
    out[3] = fibre;
}

/* Whole parts of the rows. */
SPX_HD size_t spx_pf_nparts(size_t height)
{
    return height / SPX_PF_PART;
}

/* Sub-pixel phase of a place. */
SPX_HD int spx_pf_phase_of(double at)
{
    const int k = (int)(SPX_PF_PHASES * (at - floor(at + 0.5) + 0.5));
    return k < SPX_PF_PHASES ? k : SPX_PF_PHASES - 1;
}

/* Whether a pixel of a spot, flux f times S of `peak` at most, is of its core, and most of its light, m electrons in
 * all, is the spot's. */
SPX_HD int spx_pf_is_core(double f, double spot, double peak, double m)
{
    return spot > 0 && spot >= SPX_PF_CORE * peak && 2 * f * spot >= m;
}

/* Derivatives by X and Y of pixel (x, y) of a spot, not clipped: d g_n / d X = g_{n+1} / sigma. */
SPX_HD void spx_pf_spot_gradient(int side, int nx, int ny, const double *gx, const double *gy, const double *c,
                                 const spx_pf_at *at, int x, int y, double by[2])
{
    by[0] = by[1] = 0;
    for (int j = 0; j < side; j++) {
        double along = 0, across = 0;
        for (int i = 0; i < side; i++) {
            across += c[i + side * j] * gx[(i + 1) * nx + x];
            along += c[i + side * j] * gx[i * nx + x];
        }
        by[0] += across * gy[j * ny + y];
        by[1] += along * gy[(j + 1) * ny + y];
    }
    by[0] /= at->sigx;
    by[1] /= at->sigy;
}

/* Sums of the projection of residuals on a spot's derivatives by X, Y and flux: the matrix, lower triangle in rows, the
 * same times the variance of pixels, and the right-hand side. */
enum { SPX_PF_OFFSET = 15 };

/* Adds a pixel of a spot's core, all of which count alike. */
SPX_HD void spx_pf_add_to_offset(double f, const double by[2], double spot, double data, double noise, double m,
                                 double *sum)
{
    const double d[3] = {f * by[0], f * by[1], f * spot}, v = spx_pf_noise(noise, m, 0);
    int k = 0;
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j <= i; j++) {
            sum[k] += d[i] * d[j];
            sum[6 + k++] += v * d[i] * d[j];
        }
        sum[12 + i] += d[i] * (data - m);
    }
}

/* What these sums tell: the step in X, Y (pixels) and flux (a part of itself) that takes most off the residuals, the
 * inverse of the matrix, and variances of the step, lower triangles in rows. */
typedef struct {
    int told; /* 0: there is none */
    double step[3], inverse[6], variance[6];
} spx_pf_offset;

/* A symmetric matrix, its lower triangle in rows, times d[3]. */
SPX_HD void spx_pf_times(const double *a, const double *d, double *out)
{
    out[0] = a[0] * d[0] + a[1] * d[1] + a[3] * d[2];
    out[1] = a[1] * d[0] + a[2] * d[1] + a[4] * d[2];
    out[2] = a[3] * d[0] + a[4] * d[1] + a[5] * d[2];
}

SPX_HD spx_pf_offset spx_pf_solve_offset(const double *a)
{
    spx_pf_offset to = {0, {0, 0, 0}, {0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}};
    double *c = to.inverse;
    c[0] = a[2] * a[5] - a[4] * a[4];
    c[1] = a[3] * a[4] - a[1] * a[5];
    c[2] = a[0] * a[5] - a[3] * a[3];
    c[3] = a[1] * a[4] - a[2] * a[3];
    c[4] = a[1] * a[3] - a[0] * a[4];
    c[5] = a[0] * a[2] - a[1] * a[1];
    const double det = a[0] * c[0] + a[1] * c[1] + a[3] * c[3];
    if (!(det > 1e-12 * a[0] * a[2] * a[5]) || !isfinite(det))
        return to;
    for (int k = 0; k < 6; k++)
        c[k] /= det;
    spx_pf_times(c, a + 12, to.step);
    for (int i = 0; i < 3; i++) { /* a row of the inverse, times the variance of the sums, times the inverse */
        const int at[3][3] = {{0, 1, 3}, {1, 2, 4}, {3, 4, 5}};
        const double of[3] = {c[at[i][0]], c[at[i][1]], c[at[i][2]]};
        double half[3], row[3];
        spx_pf_times(a + 6, of, half);
        spx_pf_times(c, half, row);
        for (int j = 0; j <= i; j++)
            to.variance[at[i][j]] = row[j];
    }
    to.told = to.variance[0] > 0 && to.variance[2] > 0;
    return to;
}

/* Numbers of a cell. */
enum { SPX_PF_CELL = 6 };

/* Adds a pixel of a spot's core to a cell: f r / V, f^2 / V and f^2 S / V; and, of residuals without what the spot's
 * place and flux make of them, f r / V and its variance, and r^2 / V less its expectation, where these are near enough
 * for that to be linear: shapes alone. */
SPX_HD void spx_pf_add_to_cell(double f, const double by[2], double spot, double data, double noise, double m,
                               const spx_pf_offset *off, double *cell)
{
    const double v = spx_pf_noise(noise, m, 0), w = f / v, d[3] = {f * by[0], f * by[1], f * spot};
    cell[0] += w * (data - m);
    cell[1] += w * f;
    cell[2] += w * f * spot;
    if (!off->told || fabs(off->step[0]) > SPX_PF_LINEAR || fabs(off->step[1]) > SPX_PF_LINEAR)
        return;
    double lever[3], spread[3], rest = data - m, of = v;
    spx_pf_times(off->inverse, d, lever);
    spx_pf_times(off->variance, d, spread);
    for (int k = 0; k < 3; k++) {
        rest -= d[k] * off->step[k];
        of += d[k] * (spread[k] - 2 * v * lever[k]);
    }
    cell[3] += w * rest;
    cell[4] += w * w * of;
    cell[5] += (rest * rest - of) / v;
}

/* sigma^2 of a class of the shape's coefficients (psffit/learn.c), of[n] their classes: that of the largest evidence
 * under Jeffreys' prior, flat in ln sigma: sum z^2 over two more than the number of coefficients that the arc tells,
 * sum (1 - variance / sigma^2). With a prior flat in sigma^2, without these two, half of the small classes that are 0
 * keep their noise; now one alone stays where it is above 3.1 errors. The least is that at which the matrix stays well
 * conditioned. */
#define SPX_PF_LEAST_SIGMA 1e-5
SPX_HD double spx_pf_square_of_class(size_t n, const int *of, int c, const double *z, const double *precision,
                                     const double *variance)
{
    const double least = SPX_PF_LEAST_SIGMA;
    double sum = 0, told = 0;
    for (size_t k = 0; k < n; k++)
        if (of[k] == c) {
            sum += z[k] * z[k];
            told += fmax(0.0, 1 - precision[k] * variance[k]);
        }
    return fmax(sum / (told + 2), least * least);
}

/* Place of a row on [-1, 1]. */
SPX_HD double spx_pf_row_at(size_t height, size_t r)
{
    return 2 * (double)r / (double)(height > 1 ? height - 1 : 1) - 1;
}

#endif
