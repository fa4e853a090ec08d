/* Provides the mappings between quantities and internal units, and chooses, for each axis of the templates, the
 * function of its parameter in which cubic interpolation errs least.
 *
 * Lines grow with abundance, and levels are populated with temperature, about exponentially: ln T is no polynomial in
 * [Fe/H], and where nodes are far apart that shows. The family of spx_rv_axis_transform(), in effect exp(g p), holds p
 * itself (g = 0), powers of 10^p (for p a logarithm: the temperature, its inverse), and what lies between. The g of
 * each axis is that for which the nodes inside the grid, left out one at a time, are best predicted by those that
 * remain. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "rvfit/model/setup.h"

enum { LEAST_NODES = 5, MOST_NODES = 64, PIXELS = 96, TRIALS = 13 };
static const double STEP = 0.5;  /* of g times the range of the axis, which is tried from -3 to 3 */
static const double GAIN = 0.05; /* a mapping has to err less than none by this much */

double spx_rv_unmap(const spx_rv_ctx *c, size_t q, double x)
{
    if (q < 2)
        return q == 1 ? spx_rv_vsini(x, c->slow) : x;
    double p = spx_rv_axis_inverse(c->grid.transform[q - 2], c->grid.origin[q - 2], x);
    return c->grid.parlog[q - 2] ? pow(10, p) : p;
}

double spx_rv_map(const spx_rv_ctx *c, size_t q, double p)
{
    if (q < 2)
        return q == 1 ? spx_rv_vsini_map(p, c->slow) : p;
    return spx_rv_axis_transform(c->grid.transform[q - 2], c->grid.origin[q - 2], c->grid.parlog[q - 2] ? log10(p) : p);
}

double spx_rv_slope(const spx_rv_ctx *c, size_t q, double x, double sigma)
{
    if (q == 1)
        return sigma > 0 ? (spx_rv_vsini(x + sigma, c->slow) - spx_rv_vsini(x, c->slow)) / sigma : 1;
    if (q == 0)
        return 1;
    double slope = 1 / (1 + c->grid.transform[q - 2] * (x - c->grid.origin[q - 2]));
    return c->grid.parlog[q - 2] ? M_LN10 * spx_rv_unmap(c, q, x) * slope : slope;
}

/* Some pixels of all arms at each node of the grid: value[nnode][npix]; given[nnode]: the node is of the library. */
typedef struct {
    size_t nnode, npix;
    float *value;
    uint8_t *given;
} sample;

/* Every `step`-th pixel of an arm at all nodes, into out[nnode][npix], from components where there are some. */
static spx_status take_arm(const spx_setup *set, size_t step, sample *s, float *out, int threads, spx_err *e)
{
    const spx_pca *p = &set->pca;
    const size_t n = (set->nwave + step - 1) / step, K = p->ncomp;
    float *comp = spx_alloc2(K, n, sizeof *comp, e);
    if (!comp)
        return SPX_EIO;
    for (size_t k = 0; k < K; k++)
        for (size_t i = 0; i < n; i++)
            comp[k * n + i] = p->comp[k * set->nwave + i * step];
#pragma omp parallel for schedule(static) num_threads(threads)
    for (size_t node = 0; node < s->nnode; node++) {
        const size_t row = (size_t)set->node[node];
        float *to = out + node * s->npix;
        for (size_t i = 0; i < n; i++)
            to[i] = K > 0 ? (float)p->mean[i * step] : set->lnflux[row * set->nwave + i * step];
        for (size_t k = 0; k < K; k++) {
            const float c = (float)p->coef[row * K + k], *from = comp + k * n;
#pragma omp simd
            for (size_t i = 0; i < n; i++)
                to[i] += c * from[i];
        }
        if (set->filled && set->filled[row])
            s->given[node] = 0;
    }
    spx_free(comp);
    return SPX_OK;
}

static spx_status take_sample(const spx_rv_ctx *c, sample *s, spx_err *e)
{
    *s = (sample){.nnode = 1};
    for (size_t q = 0; q < c->npar; q++)
        s->nnode *= c->grid.naxis[q];
    for (size_t a = 0; a < c->narm; a++) {
        size_t n = c->arm[a].setup->nwave, step = n / PIXELS + 1;
        s->npix += (n + step - 1) / step;
    }
    if (!(s->value = spx_alloc2(s->nnode, s->npix, sizeof *s->value, e)) ||
        !(s->given = spx_alloc(s->nnode, sizeof *s->given, e)))
        return SPX_EIO;
    memset(s->given, 1, s->nnode);
    size_t at = 0;
    spx_status st = SPX_OK;
    for (size_t a = 0; a < c->narm && st == SPX_OK; a++) {
        const spx_setup *set = c->arm[a].setup;
        const size_t step = set->nwave / PIXELS + 1;
        st = take_arm(set, step, s, s->value + at, spx_rv_plan_threads(c), e);
        at += (set->nwave + step - 1) / step;
    }
    return st;
}

/* rms, over pixels, of what is interpolated at a node from the nodes at[k] with weights w[k], less what is there; -1:
 * one of them is not of the library. */
static double left_out(const sample *s, size_t node, size_t n, const size_t *at, const double *w)
{
    const float *f = s->value + node * s->npix;
    double sum = 0;
    int ok = s->given[node];
    for (size_t k = 0; k < n; k++)
        ok = ok && s->given[at[k]];
    for (size_t i = 0; i < s->npix && ok; i++) {
        double e = -(double)f[i];
        for (size_t k = 0; k < n; k++)
            e += w[k] * (double)s->value[at[k] * s->npix + i];
        sum += e * e;
    }
    return ok ? sqrt(sum / (double)s->npix) : -1;
}

/* Mean over the grid of the error that the mapping g of an axis of n nodes makes; the next node of the axis is `stride`
 * nodes of the grid farther. */
static double mean_error(const sample *s, size_t n, const double *axis, size_t stride, double g)
{
    size_t count = 0;
    double sum = 0;
    for (size_t j = 1; j + 1 < n; j++) {
        double rest[MOST_NODES], w[4], d[4];
        size_t index[MOST_NODES], m = 0, at[4];
        for (size_t i = 0; i < n; i++)
            if (i != j) {
                index[m] = i;
                rest[m++] = spx_rv_axis_transform(g, axis[0], axis[i]);
            }
        size_t from = spx_rv_cubic_weights(m, rest, spx_rv_axis_transform(g, axis[0], axis[j]), w, d);
        for (size_t first = 0; first < s->nnode; first++) {
            if (first / stride % n != 0)
                continue;
            for (size_t k = 0; k < 4; k++)
                at[k] = first + index[from + k] * stride;
            double e = left_out(s, first + j * stride, 4, at, w);
            if (e >= 0) {
                sum += e;
                count++;
            }
        }
    }
    return count ? sum / (double)count : 0;
}

spx_status spx_rv_choose_axis_transforms(spx_rv_ctx *c, spx_err *e)
{
    sample s;
    spx_status st = take_sample(c, &s, e);
    for (size_t g = 0; g < c->grid.ng && st == SPX_OK; g++) {
        size_t p = c->grid.gpar[g], n = c->grid.naxis[p];
        if (n < LEAST_NODES || n > MOST_NODES)
            continue;
        double range = c->grid.axis[p][n - 1] - c->grid.axis[p][0], error[TRIALS];
#pragma omp parallel for schedule(dynamic, 1) num_threads(spx_rv_plan_threads(c))
        for (int k = 0; k < TRIALS; k++)
            error[k] = mean_error(&s, n, c->grid.axis[p], c->grid.stride[g], (k - TRIALS / 2) * STEP / range);
        double best = error[TRIALS / 2] * (1 - GAIN), rate = 0;
        for (int k = 0; k < TRIALS; k++)
            if (k != TRIALS / 2 && error[k] < best) {
                best = error[k];
                rate = (k - TRIALS / 2) * STEP / range;
            }
        c->grid.transform[p] = rate;
        c->grid.origin[p] = c->grid.axis[p][0];
        for (size_t i = 0; i < n; i++)
            c->grid.axis[p][i] = spx_rv_axis_transform(rate, c->grid.origin[p], c->grid.axis[p][i]);
    }
    spx_free(s.value);
    spx_free(s.given);
    return st;
}
