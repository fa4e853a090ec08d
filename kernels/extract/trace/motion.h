/* Provides the local normal equations of shifts and widths of a bundle's traces (extract/motion.h has the equations).
 * Lanes are columns of the CCD; in recurrences along the trace, fibres. */
#ifndef SPX_EXTRACT_TRACE_MOTION_H
#define SPX_EXTRACT_TRACE_MOTION_H

#include <limits.h>
#include <math.h>
#include <string.h>

#include "extract/motion_math.h"
#include "extract/trace/band.h"
#include "extract/trace/chi2.h"
#include "extract/trace/motion_columns.h"
#include "extract/trace/spots.h"

/* Images J_q of one fibre, q = dx, e: [2][height][stride] over the rows that are used. */
typedef struct {
    double *j;
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
        for (size_t x = 0; x < (size_t)p->nx; x += SPX_VL)
            store(line + x, load(line + x) + every(scale) * load(spot + (size_t)y * p->nxp + x));
    }
}

/* Sums over pixels of a spot times two strips that lie like s. */
ALWAYS_INLINE void spot_times_strips(const spx_trace_plan *p, const spx_bin_geometry *at, const double *spot,
                                     const strip *s, long y0, long y1, const double *const image[2], double out[2])
{
    const long off = at->xc - s->x0, columns = off < 0 ? p->nx + off : p->nx;
    out[0] = out[1] = 0;
    if (columns <= 0 || off >= (long)s->nx)
        return;
    const long first = at->yc < y0 ? y0 : at->yc, last = at->yc + p->ny < y1 ? at->yc + p->ny : y1;
    const double *a = spot + (off < 0 ? -off : 0);
    const size_t right = off > 0 ? (size_t)off : 0;
    vec sum[2] = {every(0.0), every(0.0)};
    for (long y = first; y < last; y++) {
        const double *line = a + (size_t)(y - at->yc) * p->nxp;
        const size_t i = (size_t)(y - y0) * s->stride + right;
        for (long x = 0; x < columns; x += SPX_VL) {
            const vec pixels = load(line + x);
            sum[0] += pixels * load(image[0] + i + x);
            sum[1] += pixels * load(image[1] + i + x);
        }
    }
    out[0] = sum_lanes(sum[0]);
    out[1] = sum_lanes(sum[1]);
}

/* Sum of a product of two strips where they meet: beyond, one of them is 0. */
static double strip_times_strip(size_t height, const strip *s, const double *a, const strip *t, const double *c)
{
    const long from = s->x0 > t->x0 ? s->x0 : t->x0;
    const long end_s = s->x0 + (long)s->nx, end_t = t->x0 + (long)t->nx, to = end_s < end_t ? end_s : end_t;
    vec even = every(0.0), odd = every(0.0);
    for (size_t y = 0; y < height && to > from; y++) {
        const double *ay = a + y * s->stride + (from - s->x0), *cy = c + y * t->stride + (from - t->x0);
        for (long x = 0; x < to - from; x += 2 * SPX_VL) {
            even += load(ay + x) * load(cy + x);
            odd += load(ay + x + SPX_VL) * load(cy + x + SPX_VL);
        }
    }
    return sum_lanes(even + odd);
}

/* Largest squares of elements of M between fibres df apart, relative to their diagonals. */
static double largest_coupling(const spx_trace_plan *p, const spx_trace_bundle *b, int df, double strongest)
{
    const size_t nl = b->nl;
    const vec weak = every(SPX_MOTION_WEAK * strongest);
    vec largest = every(0.0);
    for (size_t k = 0; k < p->nbin; k++)
        for (int dk = b->lo[df]; dk <= b->hi[df]; dk++) {
            const long other = (long)k + dk;
            if (other < 0 || other >= (long)p->nbin)
                continue;
            const double *m = b->m + (k * b->nelem + b->first[df] + (size_t)(dk - b->lo[df])) * nl;
            const double *own = b->m + k * b->nelem * nl, *its = b->m + (size_t)other * b->nelem * nl + df;
            for (size_t f = 0; f + (size_t)df < b->nf; f += SPX_VL) { /* lanes beyond hold 0 */
                const vec e = load(m + f), mine = load(own + f), of_other = load(its + f);
                const ivec strong = (mine > weak) & (of_other > weak);
                largest =
                    vmax(largest, choose(strong, e * e / choose(strong, mine * of_other, every(1.0)), every(0.0)));
            }
        }
    double most = 0;
    for (size_t i = 0; i < SPX_VL; i++)
        most = fmax(most, largest[i]);
    return most;
}

static spx_motion_range find_coupling(const spx_trace_plan *p, const spx_trace_bundle *b)
{
    const size_t nf = b->nf, nl = b->nl;
    double strongest = 0;
    spx_motion_range range = {0, 1};
    for (size_t k = 0; k < p->nbin; k++)
        for (size_t f = 0; f < nf; f++)
            strongest = fmax(strongest, b->singular[f] ? 0 : b->m[k * b->nelem * nl + f]);
    for (int df = 1; df <= b->reach; df++)
        spx_motion_range_add(&range, df, sqrt(largest_coupling(p, b, df, strongest)));
    return range;
}

/* Memory of a call. Fibres are worked on one after the other, each once those that share light with it are in the
 * model: spots and strips are kept of these alone, which the cache holds, spots of nspots and strips of nstrips fibres
 * in turn. */
typedef struct {
    double *spots, *spot_work, *model, *variance, *light, *work, *dx, *dwidth, *strips, *wj, *v, *z, *sums;
    unsigned char *touched;
    size_t lag, nspots, nstrips; /* lag: fibres that are in the model after one that is worked on */
} motion_memory;

static spx_status motion_alloc(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r,
                               const spx_motion_range *c, size_t stride, size_t height, motion_memory *m, spx_err *e)
{
    const size_t npix = (size_t)p->ny * p->nxp, around = 2 * (size_t)c->z + 1, part = 2 * height * stride;
    const size_t vectors = 2 * around * p->nbin * b->nl + SPX_TRACE_LANES;  /* a vector may reach beyond */
    const size_t rows = (SPX_INVERSE_ROWS(b->hi[0]) + 1) * SPX_TRACE_LANES; /* of own_variance() */
    m->lag = b->reach > 1 ? (size_t)b->reach : 1;
    m->nstrips = m->lag + 1;
    m->nspots = m->nstrips + (size_t)c->v;
    m->spots = spx_trace_workspace_get(r, SPX_BUFFER_RING, p->nbin * m->nspots, npix, e);
    m->spot_work = spx_trace_workspace_get(r, SPX_BUFFER_SPOT, p->spot_work + p->motion_work + 2 * npix, 1, e);
    /* the model, and a byte a pixel */
    m->model = spx_trace_workspace_get(r, SPX_BUFFER_MODEL, 2 * b->wny, b->wnx, e);
    const size_t size = p->nbin * (b->nl + 1) + 4 * (p->nbin + 1) + rows + 2 * vectors + b->nl;
    m->variance = spx_trace_workspace_get(r, SPX_BUFFER_MOTION, size + (m->nstrips + 1) * part, 1, e);
    if (!m->spots || !m->spot_work || !m->model || !m->variance)
        return SPX_EIO;
    m->dx = m->spot_work + p->spot_work + p->motion_work;
    m->dwidth = m->dx + npix;
    m->touched = (unsigned char *)(m->model + b->wny * b->wnx);
    m->light = m->variance + p->nbin * b->nl;
    m->work = m->light + p->nbin;
    m->v = m->work + 4 * (p->nbin + 1) + rows;
    m->z = m->v + vectors;
    m->sums = m->z + vectors;
    m->strips = m->sums + b->nl;
    m->wj = m->strips + m->nstrips * part;
    memset(m->model, 0, 2 * b->wny * b->wnx * sizeof *m->model);
    memset(m->v, 0, 2 * vectors * sizeof *m->v);
    return SPX_OK;
}

/* Spots of all bins of a fibre, [nbin], while they are kept. */
ALWAYS_INLINE double *spots_of(const spx_trace_plan *p, const motion_memory *m, size_t f)
{
    return m->spots + f % m->nspots * p->nbin * (size_t)p->ny * p->nxp;
}

/* Marks the pixels of a spot, but for rows that the bin before it, where there is one, has marked. */
static void mark_spot(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_bin_geometry *at,
                      const spx_bin_geometry *before, unsigned char *touched)
{
    unsigned char *mark = touched + (size_t)(at->yc - b->wy0) * b->wnx + (size_t)(at->xc - b->wx0);
    const long moved = before != NULL && before->xc == at->xc ? at->yc - before->yc : p->ny;
    for (long y = 0; y < p->ny; y++)
        if (y < -moved || y >= p->ny - moved)
            memset(mark + (size_t)y * b->wnx, 1, (size_t)p->nx);
}

/* Spots of all bins of fibre f with light in the rows that are used, the model there, and J. rough: of the spots the
 * last one stays, as nothing else asks for them. */
static void make_image(const spx_trace_plan *p, const spx_trace_bundle *b, int rough, size_t f, const strip *s,
                       motion_memory *m, spx_motion_row *out)
{
    const size_t npix = (size_t)p->ny * p->nxp, nf = b->nf, part = (size_t)(b->y1 - b->y0) * s->stride;
    const spot_motion d = {m->dx, m->dwidth};
    double info = 0, mean = 0, *w = m->work + 3 * (p->nbin + 1);
    memset(s->j, 0, 2 * part * sizeof *s->j);
    for (size_t k = 0; k < p->nbin; k++)
        w[k] = spx_motion_light_weight(p->nbin, b->nl, (size_t)b->hi[0], b->m + f, b->nelem * b->nl,
                                       b->w[k * b->nl + f], k);
    spx_motion_light(p->nbin, w, b->nl, b->x + f, m->variance + f, 1, m->light, m->work);
    for (size_t k = 0; k < p->nbin; k++) {
        const spx_bin_geometry *at = &b->at[k * nf + f];
        if (b->state[k * nf + f] != SPX_TRACE_SPOT)
            continue;
        const double here = m->light[k] * m->light[k] * b->m[k * b->nelem * b->nl + f];
        if (here > 0) {
            info += here;
            mean += here * spx_extract_lambda(p->job->o, (long)k - (long)p->pad);
        }
        if (at->yc >= b->y1 || at->yc + p->ny <= b->y0)
            continue;
        double *spot = rough ? m->spots : spots_of(p, m, f) + k * npix;
        make_moving_spot(p, b->fibre0 + f, k, at, m->spot_work, spot, &d);
        add_model(p, b, at, spot, b->x[k * b->nl + f], m->model);
        mark_spot(p, b, at, k > 0 && b->state[(k - 1) * nf + f] == SPX_TRACE_SPOT ? at - nf : NULL, m->touched);
        if (!(here > 0))
            continue;
        add_to_strip(p, at, m->dx, m->light[k], s, b->y0, b->y1, s->j);
        add_to_strip(p, at, m->dwidth, m->light[k], s, b->y0, b->y1, s->j + part);
    }
    if (info > 0)
        out[f].wavelength = mean / info;
}

/* W J of a fibre, and what needs no projection: g and J^T W J; next: strip of the next fibre, or NULL. */
static void weigh(const spx_trace_bundle *b, const strip *s, const strip *next, const motion_memory *m,
                  spx_motion_row *out)
{
    const size_t height = (size_t)(b->y1 - b->y0), part = height * s->stride;
    for (size_t q = 0; q < 2; q++) {
        vec gradient = every(0.0);
        for (size_t y = 0; y < height; y++) {
            const size_t tile = (y + (size_t)(b->y0 - b->wy0)) * b->wnx + (size_t)(s->x0 - b->wx0);
            const double *j = s->j + (q * height + y) * s->stride;
            double *wj = m->wj + (q * height + y) * s->stride;
            for (size_t x = 0; x < s->nx; x++)
                wj[x] = (double)b->weight[tile + x] * j[x];
            for (size_t x = s->nx; x < s->stride; x++)
                wj[x] = 0;
            for (size_t x = 0; x < s->nx; x += SPX_VL) {
                const vec rest = load_float(b->data + tile + x) - load(m->model + tile + x);
                const ivec seen = load_float(b->weight + tile + x) > every(0.0);
                gradient += load(wj + x) * choose(seen, rest, every(0.0));
            }
        }
        out->gradient[q] = sum_lanes(gradient);
    }
    out->fisher[0] = strip_times_strip(height, s, m->wj, s, s->j);
    out->fisher[1] = strip_times_strip(height, s, m->wj, s, s->j + part);
    out->fisher[2] = strip_times_strip(height, s, m->wj + part, s, s->j + part);
    for (size_t q = 0; next != NULL && q < 4; q++)
        out->next[q] = strip_times_strip(height, s, m->wj + q / 2 * part, next, next->j + q % 2 * part);
}

/* chi^2 of the pixels that spots reach, and their number. */
static void add_chi2(const spx_trace_bundle *b, const motion_memory *m, spx_motion_fit *fit)
{
    for (size_t y = (size_t)(b->y0 - b->wy0); y < (size_t)(b->y1 - b->wy0); y++)
        for (size_t i = y * b->wnx; i < (y + 1) * b->wnx; i++) {
            const double w = (double)b->weight[i], rest = (double)b->data[i] - m->model[i];
            if (w > 0 && m->touched[i]) {
                fit->chi2 += fmin(w * rest * rest, SPX_MOTION_MOST);
                fit->npix += 1;
            }
        }
}

/* v = A^T W J_q of fibre f on the fibres around it, as solve_columns() takes it. */
static void couple(const spx_trace_plan *p, const spx_trace_bundle *b, size_t f, const strip *s,
                   const spx_motion_range *c, motion_memory *m)
{
    const size_t npix = (size_t)p->ny * p->nxp, nf = b->nf, part = (size_t)(b->y1 - b->y0) * s->stride;
    const size_t reach = (size_t)c->v, around = 2 * (size_t)c->z + 1;
    for (size_t g = f > reach ? f - reach : 0; g <= f + reach && g < nf; g++)
        for (size_t k = 0; k < p->nbin; k++) {
            const spx_bin_geometry *at = &b->at[k * nf + g];
            if (b->state[k * nf + g] != SPX_TRACE_SPOT || b->singular[g] || !(b->w[k * b->nl + g] > 0))
                continue;
            double sum[2];
            spot_times_strips(p, at, spots_of(p, m, g) + k * npix, s, b->y0, b->y1,
                              (const double *[2]){m->wj, m->wj + part}, sum);
            for (size_t q = 0; q < 2; q++)
                m->v[((q * around + g + (size_t)c->z - f) * p->nbin + k) * b->nl + f] = sum[q];
        }
}

/* v of q times z of s, sums over the fibres that both have; of each fibre f with fibre f + next: sum[nl]. */
static void project(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_motion_range *c,
                    const motion_memory *m, size_t q, size_t s, size_t next, double *sum)
{
    const size_t nl = b->nl, reach = (size_t)c->z, around = 2 * reach + 1;
    memset(sum, 0, nl * sizeof *sum);
    for (size_t d = next; d < around; d++)
        for (size_t k = 0; k < p->nbin; k++) {
            const double *v = m->v + ((q * around + d) * p->nbin + k) * nl;
            const double *z = m->z + ((s * around + d - next) * p->nbin + k) * nl + next;
            for (size_t f = 0; f < nl; f += SPX_VL)
                store(sum + f, load(sum + f) + load(v + f) * load(z + f));
        }
}

static spx_status motion(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *r, int rough,
                         spx_motion_row *out, spx_motion_fit *fit, spx_err *e)
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
        s[f].nx = (left <= right ? (size_t)(right - left) : 0) + (size_t)spot_vectors(p) * SPX_VL;
        widest = s[f].nx > widest ? s[f].nx : widest;
    }
    /* two vectors of zeros behind; rows are not apart by a power of two, in which few lines of the cache are theirs */
    const size_t stride = (((widest + SPX_TRACE_LANES - 1) / SPX_TRACE_LANES + 2) | 1) * SPX_TRACE_LANES;
    const spx_motion_range range = rough ? (spx_motion_range){0, 1} : find_coupling(p, b);
    if (motion_alloc(p, b, r, &range, stride, height, &m, e) != SPX_OK)
        return SPX_EIO;
    for (size_t f = 0; f < nf; f++) {
        s[f].stride = stride;
        s[f].j = m.strips + 2 * (f % m.nstrips) * height * stride;
    }
    own_variance(p, b, m.work + 4 * (p->nbin + 1), m.variance);
    for (size_t f = 0; f < nf + m.lag; f++) {
        if (f < nf)
            make_image(p, b, rough, f, &s[f], &m, out);
        if (f < m.lag)
            continue;
        const size_t here = f - m.lag;
        weigh(b, &s[here], here + 1 < nf ? &s[here + 1] : NULL, &m, &out[here]);
        if (!rough)
            couple(p, b, here, &s[here], &range, &m);
    }
    add_chi2(b, &m, fit);
    const spx_status st = rough ? SPX_OK : solve_columns(p, b, range.v, range.z, out, m.v, r, m.z, e);
    for (size_t i = 0; i < 7 && st == SPX_OK && !rough; i++) { /* F: 00, 01, 11; with the next fibre: 00, 01, 10, 11 */
        const size_t q = i < 3 ? i / 2 : (i - 3) / 2, with = i < 3 ? (i + 1) / 2 : (i - 3) % 2, next = i >= 3;
        project(p, b, &range, &m, q, with, next, m.sums);
        for (size_t f = 0; f + next < nf; f++)
            *(next ? &out[f].next[i - 3] : &out[f].fisher[i]) -= m.sums[f];
    }
    for (size_t f = 0; f < nf; f++)
        for (size_t k = 0; k < p->nbin; k++)
            fit->nflux += b->w[k * b->nl + f] > 0;
    return st;
}

#endif
