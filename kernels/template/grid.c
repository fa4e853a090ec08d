/* Finds the regular grid in a library's parameters, fills its missing nodes, and chooses an even subset of it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/order.h"
#include "template/template.h"

enum { MAX_STEPS = 2 };

/* Distinct values of column `col` of params[n][npar], increasing, into axis[n]; returns how many. */
static size_t distinct(size_t n, size_t npar, const double *params, size_t col, double *sorted, double *axis)
{
    for (size_t i = 0; i < n; i++)
        sorted[i] = params[i * npar + col];
    qsort(sorted, n, sizeof *sorted, spx_by_f64);
    double size = fmax(fabs(sorted[0]), fabs(sorted[n - 1]));
    double tol = fmax(1e-4 * (sorted[n - 1] - sorted[0]), 1e-6 * size);
    size_t m = 0;
    for (size_t i = 0, j; i < n; i = j) {
        for (j = i; j < n && sorted[j] - sorted[i] <= tol; j++)
            ;
        axis[m++] = sorted[i + (j - i) / 2] + 0.0; /* a value of the library, not a rounded mean; + 0.0 removes -0 */
    }
    return m;
}

static size_t nearest(const double *axis, size_t n, double v)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (fabs(axis[i] - v) < fabs(axis[best] - v))
            best = i;
    return best;
}

static double mapped(const spx_setup *s, size_t p, size_t i)
{
    return s->parlog[p] ? log10(s->axis[p][i]) : s->axis[p][i];
}

static void node_index(const spx_setup *s, size_t node, size_t *index)
{
    for (size_t p = s->npar; p-- > 0; node /= s->naxis[p])
        index[p] = node % s->naxis[p];
}

/* Text "teff 4, logg 3" for messages. */
static const char *axes_text(const spx_setup *s, char *text, size_t size)
{
    size_t at = 0;
    for (size_t p = 0; p < s->npar && at < size; p++)
        at += (size_t)snprintf(text + at, size - at, "%s%.31s %zu", p ? ", " : "", s->parname[p], s->naxis[p]);
    return text;
}

const char *spx_template_describe(const spx_setup *s, size_t row, char *text, size_t size)
{
    size_t at = 0;
    for (size_t p = 0; p < s->npar && at < size; p++)
        at += (size_t)snprintf(text + at, size - at, "%s%.31s %g", p ? ", " : "", s->parname[p],
                               s->params[row * s->npar + p]);
    return text;
}

static spx_status find_axes(spx_setup *s, size_t *nnode, spx_err *e)
{
    double *sorted = spx_alloc2(2, s->ntemp, sizeof *sorted, e);
    if (!sorted)
        return SPX_EIO;
    spx_status st = SPX_OK;
    *nnode = 1;
    for (size_t p = 0; p < s->npar && st == SPX_OK; p++) {
        double *found = sorted + s->ntemp;
        s->naxis[p] = distinct(s->ntemp, s->npar, s->params, p, sorted, found);
        s->axis[p] = spx_alloc(s->naxis[p], sizeof(double), e);
        if (!s->axis[p]) {
            st = SPX_EIO;
            break;
        }
        memcpy(s->axis[p], found, s->naxis[p] * sizeof(double));
        /* naxis <= ntemp < 2^31 and the product is capped: no overflow */
        *nnode = *nnode > 4 * s->ntemp ? *nnode : *nnode * s->naxis[p];
        if (s->parlog[p] && !(found[0] > 0))
            st = spx_fail(e, SPX_EINPUT,
                          "parameter %.31s is %g in some spectrum, so that it has no logarithm: do not map it to log10 "
                          "({log_param})",
                          s->parname[p], found[0]);
    }
    spx_free(sorted);
    char text[256];
    if (st == SPX_OK && *nnode > 4 * s->ntemp)
        st = spx_fail(
            e, SPX_EINPUT,
            "the parameters of %zu spectra form no regular grid (distinct values: %s): leave out spectra that are "
            "not on the grid, or have them triangulated ({interpolator} simplex)",
            s->ntemp, axes_text(s, text, sizeof text));
    return st;
}

static spx_status place_templates(spx_setup *s, size_t nnode, spx_err *e)
{
    s->node = spx_alloc(nnode, sizeof *s->node, e);
    if (!s->node)
        return SPX_EIO;
    for (size_t i = 0; i < nnode; i++)
        s->node[i] = -1;
    for (size_t t = 0; t < s->ntemp; t++) {
        size_t at = 0;
        for (size_t p = 0; p < s->npar; p++)
            at = at * s->naxis[p] + nearest(s->axis[p], s->naxis[p], s->params[t * s->npar + p]);
        if (s->node[at] >= 0) {
            char text[256];
            return spx_fail(e, SPX_EINPUT,
                            "spectra %d and %zu of the library have the same parameters (%s): leave one out",
                            (int)s->node[at], t, spx_template_describe(s, t, text, sizeof text));
        }
        s->node[at] = (int32_t)t;
    }
    return SPX_OK;
}

/* Finds the neighbours of a missing node on each axis and their weights; returns their number, at most 2 npar. */
static size_t between(const spx_setup *s, const int32_t *have, size_t node, int32_t *row, double *weight)
{
    size_t index[SPX_MAX_PAR], stride = 1, n = 0;
    node_index(s, node, index);
    for (size_t p = s->npar; p-- > 0; stride *= s->naxis[p]) {
        size_t lo = 0, hi = 0;
        for (size_t k = 1; k <= MAX_STEPS && !lo && k <= index[p]; k++)
            lo = have[node - k * stride] >= 0 ? k : 0;
        for (size_t k = 1; k <= MAX_STEPS && !hi && k < s->naxis[p] - index[p]; k++)
            hi = have[node + k * stride] >= 0 ? k : 0;
        if (!lo || !hi)
            continue;
        double a = mapped(s, p, index[p] - lo), b = mapped(s, p, index[p] + hi), x = mapped(s, p, index[p]);
        row[n] = have[node - lo * stride];
        weight[n++] = (b - x) / (b - a);
        row[n] = have[node + hi * stride];
        weight[n++] = (x - a) / (b - a);
    }
    for (size_t i = 0; i < n; i++)
        weight[i] *= 2.0 / (double)n;
    return n;
}

/* Nearest node of the library (squared distance in steps of the grid), the first of several. */
static int32_t closest(const spx_setup *s, size_t nlib, const size_t *lib_index, size_t node)
{
    size_t index[SPX_MAX_PAR], best = 0;
    double least = INFINITY;
    node_index(s, node, index);
    for (size_t t = 0; t < nlib; t++) {
        double d2 = 0;
        for (size_t p = 0; p < s->npar; p++) {
            double d = (double)lib_index[t * s->npar + p] - (double)index[p];
            d2 += d * d;
        }
        if (d2 < least) {
            least = d2;
            best = t;
        }
    }
    return (int32_t)best;
}

static spx_status find_fills(spx_setup *s, size_t nnode, size_t nlib, spx_template_fill *f, spx_err *e)
{
    spx_status st = SPX_EIO;
    size_t nfill = nnode - nlib, done = 0;
    int32_t *have = spx_alloc(nnode, sizeof *have, e);
    size_t *lib_index = spx_alloc2(nlib, s->npar, sizeof *lib_index, e);
    f->start = spx_alloc(nfill + 1, sizeof *f->start, e);
    f->row = spx_alloc2(nfill, 2 * s->npar, sizeof *f->row, e);
    f->weight = spx_alloc2(nfill, 2 * s->npar, sizeof *f->weight, e);
    if (!have || !lib_index || !f->start || !f->row || !f->weight)
        goto end;
    for (size_t k = 0; k < nnode; k++)
        if (s->node[k] >= 0)
            node_index(s, k, lib_index + (size_t)s->node[k] * s->npar);

    /* Each round uses nodes filled in earlier rounds, not in the same one; the last round copies. */
    for (int copy = 0, more = 1; done < nfill; copy = !more) {
        more = 0;
        memcpy(have, s->node, nnode * sizeof *have);
        for (size_t k = 0; k < nnode && done < nfill; k++) {
            if (s->node[k] >= 0)
                continue;
            size_t at = f->start[done], n;
            if (copy) {
                f->row[at] = closest(s, nlib, lib_index, k);
                f->weight[at] = 1;
                n = 1;
            } else {
                n = between(s, have, k, f->row + at, f->weight + at);
            }
            if (!n)
                continue;
            size_t row = nlib + done, index[SPX_MAX_PAR];
            node_index(s, k, index);
            for (size_t p = 0; p < s->npar; p++)
                s->params[row * s->npar + p] = s->axis[p][index[p]];
            s->node[k] = (int32_t)row;
            s->filled[row] = 1;
            f->start[++done] = at + n;
            more = 1;
        }
    }
    f->nfill = nfill;
    st = SPX_OK;
end:
    spx_free(have);
    spx_free(lib_index);
    return st;
}

spx_status spx_template_grid(spx_setup *s, spx_template_fill *f, spx_err *e)
{
    size_t nnode, nlib = s->ntemp;
    memset(f, 0, sizeof *f);
    spx_status st = find_axes(s, &nnode, e);
    if (st == SPX_OK)
        st = place_templates(s, nnode, e);
    if (st != SPX_OK)
        return st;
    double *params = spx_alloc2(nnode, s->npar, sizeof *params, e);
    if (!params)
        return SPX_EIO;
    memcpy(params, s->params, nlib * s->npar * sizeof *params);
    spx_free(s->params);
    s->params = params;
    s->ntemp = nnode;
    s->filled = spx_alloc(nnode, sizeof *s->filled, e);
    if (!s->filled)
        return SPX_EIO;
    return find_fills(s, nnode, nlib, f, e);
}

void spx_template_fill_free(spx_template_fill *f)
{
    spx_free(f->start);
    spx_free(f->row);
    spx_free(f->weight);
    memset(f, 0, sizeof *f);
}

typedef struct {
    uint64_t code;
    size_t row;
} zorder;

static int compare_zorder(const void *a, const void *b)
{
    const zorder *x = a, *y = b;
    if (x->code != y->code)
        return x->code < y->code ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

static int compare_size(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

spx_status spx_template_ccf_rows(size_t ntemp, size_t npar, const double *params, size_t every, size_t *ccf_row,
                                 size_t *nccf_row, spx_err *e)
{
    spx_status st = SPX_EIO;
    const size_t bits = 60 / npar < 16 ? 60 / npar : 16;
    zorder *z = spx_alloc(ntemp, sizeof *z, e);
    double *work = spx_alloc2(2, ntemp, sizeof *work, e);
    if (!z || !work)
        goto end;
    double *axis = work + ntemp;
    for (size_t p = 0; p < npar; p++) {
        size_t m = distinct(ntemp, npar, params, p, work, axis);
        double scale = m > 1 ? (double)((1u << bits) - 1) / (double)(m - 1) : 0;
        for (size_t t = 0; t < ntemp; t++) {
            uint64_t rank = (uint64_t)((double)nearest(axis, m, params[t * npar + p]) * scale);
            for (size_t b = 0; b < bits; b++)
                z[t].code |= ((rank >> b) & 1) << (b * npar + p);
        }
    }
    for (size_t t = 0; t < ntemp; t++)
        z[t].row = t;
    qsort(z, ntemp, sizeof *z, compare_zorder);
    *nccf_row = 0;
    for (size_t t = 0; t < ntemp; t += every)
        ccf_row[(*nccf_row)++] = z[t].row;
    qsort(ccf_row, *nccf_row, sizeof *ccf_row, compare_size);
    st = SPX_OK;
end:
    spx_free(z);
    spx_free(work);
    return st;
}
