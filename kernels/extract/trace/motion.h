/* Provides the local normal equations of shifts and widths of a bundle's traces (extract/motion.h has the equations).
 * Lanes are columns of the CCD; in recurrences along the trace, fibres. */
#ifndef SPX_EXTRACT_TRACE_MOTION_H
#define SPX_EXTRACT_TRACE_MOTION_H

#include <limits.h>
#include <math.h>
#include <string.h>

#include "extract/motion_math.h"
#include "extract/trace/band.h"
#include "extract/trace/cg.h"
#include "extract/trace/chi2.h"
#include "extract/trace/spots.h"

/* Images J_q of one fibre, q = dx, e: [2][height][stride] over the rows that are used; W J alike. */
typedef struct {
    double *j, *wj;
    long x0;           /* column of the CCD of the first */
    size_t nx, stride; /* columns that may differ from 0; all */
} strip;

/* Adds `scale` times a spot to rows of a strip; rows beyond it are left out. */
ALWAYS_INLINE void add_to_strip(const spx_trace_plan *p, const spx_bin_geometry *at, const double *spot, double scale,
                                const strip *s, long y0, long y1, double *to)
{
    for (int y = 0; y < p->ny; y++) {
        const long row = at->yc + y;
        if (row < y0 || row >= y1)
            continue;
        double *line = to + (size_t)(row - y0) * s->stride + (size_t)(at->xc - s->x0);
        for (size_t x = 0; x < p->nxp; x += SPX_VL)
            store(line + x, load(line + x) + every(scale) * load(spot + (size_t)y * p->nxp + x));
    }
}

/* Sum over pixels of a spot times a strip. */
ALWAYS_INLINE double spot_times_strip(const spx_trace_plan *p, const spx_bin_geometry *at, const double *spot,
                                      const strip *s, long y0, long y1, const double *image)
{
    const long off = at->xc - s->x0, columns = off < 0 ? p->nx + off : p->nx;
    if (columns <= 0 || off >= (long)s->nx)
        return 0;
    const long first = at->yc < y0 ? y0 : at->yc, last = at->yc + p->ny < y1 ? at->yc + p->ny : y1;
    const double *a = spot + (off < 0 ? -off : 0), *i = image + (off > 0 ? off : 0);
    vec sum = every(0.0);
    for (long y = first; y < last; y++)
        for (long x = 0; x < columns; x += SPX_VL)
            sum += load(a + (size_t)(y - at->yc) * p->nxp + x) * load(i + (size_t)(y - y0) * s->stride + x);
    return sum_lanes(sum);
}

/* Sum of a product of two strips where they meet. */
static double strip_times_strip(size_t height, const strip *s, const double *a, const strip *t, const double *c)
{
    const long from = s->x0 > t->x0 ? s->x0 : t->x0;
    const long end_s = s->x0 + (long)s->nx, end_t = t->x0 + (long)t->nx, to = end_s < end_t ? end_s : end_t;
    double sum = 0;
    for (size_t y = 0; y < height && to > from; y++) {
        const double *ay = a + y * s->stride + (from - s->x0), *cy = c + y * t->stride + (from - t->x0);
        for (long x = 0; x < to - from; x++)
            sum += ay[x] * cy[x];
    }
    return sum;
}

static spx_motion_range find_coupling(const spx_trace_plan *p, const spx_trace_bundle *b)
{
    const size_t nf = b->nf, nl = b->nl;
    double sum = 0, strongest = 0;
    spx_motion_range range = {0, 1, 1};
    for (size_t k = 0; k < p->nbin; k++)
        for (size_t f = 0; f < nf; f++)
            strongest = fmax(strongest, b->singular[f] ? 0 : b->m[k * b->nelem * nl + f]);
    for (int df = 1; df <= b->reach; df++) {
        double largest = 0;
        for (size_t k = 0; k < p->nbin; k++)
            for (int dk = b->lo[df]; dk <= b->hi[df]; dk++) {
                const long other = (long)k + dk;
                if (other < 0 || other >= (long)p->nbin)
                    continue;
                const double *m = b->m + (k * b->nelem + b->first[df] + (size_t)(dk - b->lo[df])) * nl;
                const double *own = b->m + k * b->nelem * nl, *its = b->m + (size_t)other * b->nelem * nl + df;
                for (size_t f = 0; f + (size_t)df < nf; f++)
                    largest = spx_motion_coupling(m[f], own[f], its[f], strongest, largest);
            }
        spx_motion_range_add(&range, df, sqrt(largest), b->hi[df] - b->lo[df] + 1, &sum);
    }
    spx_motion_range_end(&range, (int)nf, sum);
    return range;
}

/* Memory of a call. */
typedef struct {
    double *spots, *spot_work, *model, *variance, *light, *work, *dx, *dwidth, *strips, *v, *z;
    unsigned char *touched;
} motion_memory;

static spx_status motion_alloc(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r,
                               const spx_motion_range *c, size_t widest, size_t height, motion_memory *m, spx_err *e)
{
    const size_t npix = (size_t)p->ny * p->nxp, around = 2 * (size_t)c->z + 1;
    const size_t vectors = 2 * b->nf * around * p->nbin;
    const size_t ring = (size_t)(b->hi[0] + 1) * (size_t)(b->hi[0] + 1) * SPX_TRACE_LANES;
    m->spots = spx_trace_workspace_get(r, SPX_BUFFER_RING, p->nbin * b->nf, npix, e);
    m->spot_work = spx_trace_workspace_get(r, SPX_BUFFER_SPOT, p->spot_work + p->motion_work + 2 * npix, 1, e);
    /* the model, and a byte a pixel */
    m->model = spx_trace_workspace_get(r, SPX_BUFFER_MODEL, 2 * b->wny, b->wnx, e);
    const size_t size = p->nbin * (3 * b->nl + 1) + 4 * (p->nbin + 1) + ring + 2 * vectors;
    m->variance =
        spx_trace_workspace_get(r, SPX_BUFFER_MOTION, size + 4 * b->nf * height * (widest + 2 * p->nxp), 1, e);
    if (!m->spots || !m->spot_work || !m->model || !m->variance)
        return SPX_EIO;
    m->dx = m->spot_work + p->spot_work + p->motion_work;
    m->dwidth = m->dx + npix;
    m->touched = (unsigned char *)(m->model + b->wny * b->wnx);
    m->light = m->variance + 3 * p->nbin * b->nl; /* behind the variance: a right-hand side and its solution */
    m->work = m->light + p->nbin;
    m->v = m->work + 4 * (p->nbin + 1) + ring;
    m->z = m->v + vectors;
    m->strips = m->z + vectors;
    memset(m->model, 0, 2 * b->wny * b->wnx * sizeof *m->model);
    memset(m->v, 0, 2 * vectors * sizeof *m->v);
    memset(m->strips, 0, 4 * b->nf * height * (widest + 2 * p->nxp) * sizeof *m->strips);
    return SPX_OK;
}

/* Spots of all bins, the model, and J of all fibres. */
static void make_images(const spx_trace_plan *p, const spx_trace_bundle *b, strip *s, motion_memory *m,
                        spx_motion_row *out)
{
    const size_t npix = (size_t)p->ny * p->nxp, nf = b->nf, height = (size_t)(b->y1 - b->y0);
    const spot_motion d = {m->dx, m->dwidth};
    own_variance(p, b, m->work + 4 * (p->nbin + 1), m->variance);
    for (size_t f = 0; f < nf; f++) {
        double info = 0, mean = 0;
        spx_motion_light(p->nbin, b->nl, (size_t)b->hi[0], b->m + f, b->nelem * b->nl, b->w + f, b->x + f,
                         m->variance + f, 1, m->light, m->work);
        for (size_t k = 0; k < p->nbin; k++) {
            const spx_bin_geometry *at = &b->at[k * nf + f];
            if (b->state[k * nf + f] != SPX_TRACE_SPOT)
                continue;
            double *spot = m->spots + (k * nf + f) * npix;
            make_moving_spot(p, b->fibre0 + f, k, at, m->spot_work, spot, &d);
            add_model(p, b, at, spot, b->x[k * b->nl + f], m->model);
            unsigned char *mark = m->touched + (size_t)(at->yc - b->wy0) * b->wnx + (size_t)(at->xc - b->wx0);
            for (int y = 0; y < p->ny; y++)
                memset(mark + (size_t)y * b->wnx, 1, (size_t)p->nx);
            const double here = m->light[k] * m->light[k] * b->m[k * b->nelem * b->nl + f];
            if (!(here > 0))
                continue;
            info += here;
            mean += here * spx_extract_lambda(p->job->o, (long)k - (long)p->pad);
            add_to_strip(p, at, m->dx, m->light[k], &s[f], b->y0, b->y1, s[f].j);
            add_to_strip(p, at, m->dwidth, m->light[k], &s[f], b->y0, b->y1, s[f].j + height * s[f].stride);
        }
        if (info > 0)
            out[f].wavelength = mean / info;
    }
}

/* W J, and what needs no projection: g and J^T W J. The model becomes the residual. */
static void weigh(const spx_trace_bundle *b, strip *s, motion_memory *m, spx_motion_row *out, spx_motion_fit *fit)
{
    const size_t height = (size_t)(b->y1 - b->y0);
    for (size_t y = (size_t)(b->y0 - b->wy0); y < (size_t)(b->y1 - b->wy0); y++)
        for (size_t i = y * b->wnx; i < (y + 1) * b->wnx; i++) {
            const double w = (double)b->weight[i], rest = (double)b->data[i] - m->model[i];
            m->model[i] = w > 0 ? rest : 0;
            if (w > 0 && m->touched[i]) {
                fit->chi2 += fmin(w * rest * rest, SPX_MOTION_MOST);
                fit->npix += 1;
            }
        }
    for (size_t f = 0; f < b->nf; f++)
        for (size_t q = 0; q < 2; q++)
            for (size_t y = 0; y < height; y++) {
                const size_t tile = (y + (size_t)(b->y0 - b->wy0)) * b->wnx + (size_t)(s[f].x0 - b->wx0);
                const double *j = s[f].j + (q * height + y) * s[f].stride;
                double *wj = s[f].wj + (q * height + y) * s[f].stride;
                for (size_t x = 0; x < s[f].nx; x++)
                    wj[x] = (double)b->weight[tile + x] * j[x];
                for (size_t x = 0; x < s[f].nx; x++)
                    out[f].gradient[q] += wj[x] * m->model[tile + x];
            }
    for (size_t f = 0; f < b->nf; f++) {
        const size_t part = height * s[f].stride;
        out[f].fisher[0] = strip_times_strip(height, &s[f], s[f].wj, &s[f], s[f].j);
        out[f].fisher[1] = strip_times_strip(height, &s[f], s[f].wj, &s[f], s[f].j + part);
        out[f].fisher[2] = strip_times_strip(height, &s[f], s[f].wj + part, &s[f], s[f].j + part);
        for (size_t q = 0; f + 1 < b->nf && q < 4; q++)
            out[f].next[q] = strip_times_strip(height, &s[f], s[f].wj + q / 2 * part, &s[f + 1],
                                               s[f + 1].j + q % 2 * height * s[f + 1].stride);
    }
}

/* v = A^T W J_q of fibre f on the fibres around it, [2][nf][2 range.z + 1][nbin]. */
static void couple(const spx_trace_plan *p, const spx_trace_bundle *b, const strip *s, const spx_motion_range *c,
                   motion_memory *m)
{
    const size_t npix = (size_t)p->ny * p->nxp, nf = b->nf, height = (size_t)(b->y1 - b->y0);
    const size_t reach = (size_t)c->v, around = 2 * (size_t)c->z + 1;
    for (size_t f = 0; f < nf; f++)
        for (size_t g = f > reach ? f - reach : 0; g <= f + reach && g < nf; g++)
            for (size_t k = 0; k < p->nbin; k++) {
                const spx_bin_geometry *at = &b->at[k * nf + g];
                if (b->state[k * nf + g] != SPX_TRACE_SPOT || b->singular[g] || !(b->w[k * b->nl + g] > 0))
                    continue;
                for (size_t q = 0; q < 2; q++)
                    m->v[((q * nf + f) * around + g + (size_t)c->z - f) * p->nbin + k] = spot_times_strip(
                        p, at, m->spots + (k * nf + g) * npix, &s[f], b->y0, b->y1, s[f].wj + q * height * s[f].stride);
            }
}

/* z = M^-1 v. Fibres whose solutions do not reach each other are solved for at once. */
static spx_status solve_columns(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_motion_range *c,
                                spx_trace_workspace *r, motion_memory *m, spx_err *e)
{
    const size_t nf = b->nf, nl = b->nl, reach = (size_t)c->z, around = 2 * reach + 1, apart = (size_t)c->apart;
    double *side = m->variance + p->nbin * nl, *solution = side + p->nbin * nl;
    spx_status st = SPX_OK;
    for (size_t q = 0; q < 2; q++)
        for (size_t group = 0; group < apart && group < nf && st == SPX_OK; group++) {
            memset(side, 0, p->nbin * nl * sizeof *side);
            for (size_t f = group; f < nf; f += apart)
                for (size_t i = 0; i < around; i++)
                    for (size_t k = 0; k < p->nbin && f + i >= reach && f + i - reach < nf; k++)
                        side[k * nl + f + i - reach] = m->v[((q * nf + f) * around + i) * p->nbin + k];
            int solved;
            st = solve_to(p, b, side, 0, SPX_MOTION_RELATIVE, r, solution, &solved, e);
            for (size_t f = group; f < nf && st == SPX_OK; f += apart)
                for (size_t i = 0; i < around; i++)
                    for (size_t k = 0; k < p->nbin && f + i >= reach && f + i - reach < nf; k++)
                        m->z[((q * nf + f) * around + i) * p->nbin + k] = solution[k * nl + f + i - reach];
        }
    return st;
}

/* v of (q, f) times z of (s, g): sum over the fibres that both have. */
static double project(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_motion_range *c,
                      const motion_memory *m, size_t q, size_t f, size_t s, size_t g)
{
    const size_t nf = b->nf, reach = (size_t)c->z, around = 2 * reach + 1;
    double sum = 0;
    for (size_t h = 0; h < nf; h++) {
        if (h + reach < f || h > f + reach || h + reach < g || h > g + reach)
            continue;
        const double *v = m->v + ((q * nf + f) * around + h + reach - f) * p->nbin;
        const double *z = m->z + ((s * nf + g) * around + h + reach - g) * p->nbin;
        for (size_t k = 0; k < p->nbin; k++)
            sum += v[k] * z[k];
    }
    return sum;
}

static spx_status motion(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *r, spx_motion_row *out,
                         spx_motion_fit *fit, spx_err *e)
{
    const size_t nf = b->nf, height = (size_t)(b->y1 - b->y0);
    strip s[256];
    size_t widest = 0;
    motion_memory m;
    if (nf > sizeof s / sizeof *s)
        return spx_fail(e, SPX_EUSAGE, "bundles of %zu fibres: at most %zu have their traces measured", nf,
                        sizeof s / sizeof *s);
    for (size_t f = 0; f < nf; f++) {
        long left = LONG_MAX, right = LONG_MIN;
        for (size_t k = 0; k < p->nbin; k++)
            if (b->state[k * nf + f] == SPX_TRACE_SPOT) {
                left = b->at[k * nf + f].xc < left ? b->at[k * nf + f].xc : left;
                right = b->at[k * nf + f].xc > right ? b->at[k * nf + f].xc : right;
            }
        s[f].x0 = left <= right ? left : b->wx0;
        s[f].nx = left <= right ? (size_t)(right - left) + p->nxp : p->nxp;
        widest = s[f].nx > widest ? s[f].nx : widest;
    }
    const spx_motion_range range = find_coupling(p, b);
    if (motion_alloc(p, b, r, &range, widest, height, &m, e) != SPX_OK)
        return SPX_EIO;
    for (size_t f = 0; f < nf; f++) {
        s[f].stride = widest + 2 * p->nxp;
        s[f].j = m.strips + 4 * f * height * s[f].stride;
        s[f].wj = s[f].j + 2 * height * s[f].stride;
    }
    make_images(p, b, s, &m, out);
    weigh(b, s, &m, out, fit);
    couple(p, b, s, &range, &m);
    spx_status st = solve_columns(p, b, &range, r, &m, e);
    for (size_t f = 0; f < nf && st == SPX_OK; f++) {
        out[f].fisher[0] -= project(p, b, &range, &m, 0, f, 0, f);
        out[f].fisher[1] -= project(p, b, &range, &m, 0, f, 1, f);
        out[f].fisher[2] -= project(p, b, &range, &m, 1, f, 1, f);
        for (size_t q = 0; f + 1 < nf && q < 4; q++)
            out[f].next[q] -= project(p, b, &range, &m, q / 2, f, q % 2, f + 1);
        for (size_t k = 0; k < p->nbin; k++)
            fit->nflux += b->w[k * b->nl + f] > 0;
    }
    return st;
}

#endif
