/* In which function of a parameter cubic interpolation errs least.
 *
 * Lines grow with abundance, and levels are populated with temperature, about exponentially: ln T is no polynomial in
 * [Fe/H], and where nodes are far apart that shows. The family of spx_rv_warp(), in effect exp(g p), holds p itself
 * (g = 0), powers of 10^p (for p a logarithm: the temperature, its inverse), and what lies between. The g of each axis
 * is that for which the nodes inside the grid, left out one at a time, are best predicted by those that remain. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "rvfit/rvfit_internal.h"

enum { LEAST_NODES = 5, PIXELS = 96, TRIALS = 13 };
static const double STEP = 0.5;  /* of g times the range of the axis, which is tried from -3 to 3 */
static const double GAIN = 0.05; /* a mapping has to err less than none by this much */

/* rms, over pixels of all arms, of what is interpolated at node j of a line of nodes from the others, less what is
 * there; the line's node i is first + i stride. -1: one of them is not of the library. */
static double left_out(const spx_rv_ctx *c, size_t n, const double *x, size_t j, size_t first, size_t stride)
{
    double rest[64], w[4], d[4], sum = 0;
    size_t index[64], m = 0, count = 0;
    for (size_t i = 0; i < n; i++)
        if (i != j) {
            index[m] = i;
            rest[m++] = x[i];
        }
    size_t from = spx_rv_cubic_weights(m, rest, x[j], w, d);
    for (size_t a = 0; a < c->narm; a++) {
        const spx_setup *s = c->arm[a].setup;
        const float *f[4] = {NULL}, *at = s->lnflux + (size_t)s->node[first + j * stride] * s->nwave;
        size_t step = s->nwave / PIXELS + 1;
        for (size_t k = 0; k < 4 && from + k < m; k++) {
            size_t row = (size_t)s->node[first + index[from + k] * stride];
            f[k] = s->lnflux + row * s->nwave;
            if (s->filled && (s->filled[row] || s->filled[s->node[first + j * stride]]))
                return -1;
        }
        for (size_t i = step / 2; i < s->nwave; i += step, count++) {
            double e = -(double)at[i];
            for (size_t k = 0; k < 4 && f[k]; k++)
                e += w[k] * (double)f[k][i];
            sum += e * e;
        }
    }
    return sqrt(sum / (double)count);
}

/* Mean over the grid of the error that the mapping g of axis p makes. */
static double mean_error(const spx_rv_ctx *c, size_t p, size_t stride, double g)
{
    size_t n = c->naxis[p], nnode = 1, count = 0;
    double x[64], sum = 0;
    for (size_t i = 0; i < n; i++)
        x[i] = spx_rv_warp(g, c->axis[p][0], c->axis[p][i]);
    for (size_t q = 0; q < c->npar; q++)
        nnode *= c->naxis[q];
    for (size_t first = 0; first < nnode; first++) {
        if (first / stride % n != 0)
            continue;
        for (size_t j = 1; j + 1 < n; j++) {
            double e = left_out(c, n, x, j, first, stride);
            if (e >= 0) {
                sum += e;
                count++;
            }
        }
    }
    return count ? sum / (double)count : 0;
}

void spx_rv_choose_warp(spx_rv_ctx *c)
{
    for (size_t g = 0; g < c->ng; g++) {
        size_t p = c->gpar[g], n = c->naxis[p];
        if (n < LEAST_NODES || n > 64)
            continue;
        double range = c->axis[p][n - 1] - c->axis[p][0], error[TRIALS];
#pragma omp parallel for schedule(dynamic, 1) num_threads(c->opt->threads) if (c->opt->threads > 1)
        for (int k = 0; k < TRIALS; k++)
            error[k] = mean_error(c, p, c->stride[g], (k - TRIALS / 2) * STEP / range);
        double best = error[TRIALS / 2] * (1 - GAIN), warp = 0;
        for (int k = 0; k < TRIALS; k++)
            if (k != TRIALS / 2 && error[k] < best) {
                best = error[k];
                warp = (k - TRIALS / 2) * STEP / range;
            }
        c->warp[p] = warp;
        c->origin[p] = c->axis[p][0];
        for (size_t i = 0; i < n; i++)
            c->axis[p][i] = spx_rv_warp(warp, c->origin[p], c->axis[p][i]);
    }
}
