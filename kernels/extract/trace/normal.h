/* Provides the normal equations of a bundle, M = A^T W A and y = A^T W p, from the overlaps of spots. Lanes are columns
 * of the CCD. */
#ifndef SPX_EXTRACT_TRACE_NORMAL_H
#define SPX_EXTRACT_TRACE_NORMAL_H

#include <omp.h>
#include <string.h>

#include "base/mem.h"
#include "extract/trace/spots.h"

/* Sum of products of `rows` rows of two spots, nv vectors of each. */
ALWAYS_INLINE double dot_rows(const double *a, const double *b, int rows, size_t stride, int nv)
{
    vec even = every(0.0), odd = every(0.0);
    int y = 0;
    for (; y + 1 < rows; y += 2) {
        for (int v = 0; v < nv; v++) {
            even += load(a + v * SPX_VL) * load(b + v * SPX_VL);
            odd += load(a + stride + v * SPX_VL) * load(b + stride + v * SPX_VL);
        }
        a += 2 * stride;
        b += 2 * stride;
    }
    if (y < rows)
        for (int v = 0; v < nv; v++)
            even += load(a + v * SPX_VL) * load(b + v * SPX_VL);
    return sum_lanes(even + odd);
}

/* Element of M: sum over the pixels that both spots cover; `weighted` is the first times the weights. */
ALWAYS_INLINE double overlap(const spx_trace_plan *p, const double *weighted, const spx_bin_geometry *i,
                             const double *spot, const spx_bin_geometry *j)
{
    const int dx = j->xc - i->xc, dy = j->yc - i->yc;
    const int columns = p->nx - (dx < 0 ? -dx : dx), rows = p->ny - (dy < 0 ? -dy : dy);
    if (columns <= 0 || rows <= 0)
        return 0.0;
    const size_t stride = p->nxp;
    const double *a = weighted + (dx > 0 ? dx : 0) + (dy > 0 ? (size_t)dy * stride : 0);
    const double *b = spot + (dx < 0 ? -dx : 0) + (dy < 0 ? (size_t)-dy * stride : 0);
    /* beyond the columns of a spot are zeros, so a vector may reach there */
    const int nv = (columns + SPX_VL - 1) / SPX_VL;
    if (nv == 1)
        return dot_rows(a, b, rows, stride, 1);
    if (nv == 2)
        return dot_rows(a, b, rows, stride, 2);
    if (nv == 3)
        return dot_rows(a, b, rows, stride, 3);
    return dot_rows(a, b, rows, stride, nv);
}

/* Spot times weight, and its sums: A^T W p, A^T W 1, A^T [W > 0] of one bin. */
ALWAYS_INLINE void weighted_sums(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_bin_geometry *at,
                                 const double *spot, double *weighted, double *value, double *weight, double *seen)
{
    vec sum_value = every(0.0), sum_weight = every(0.0), sum_seen = every(0.0);
    size_t pixel = (size_t)(at->yc - b->wy0) * b->wnx + (size_t)(at->xc - b->wx0);
    const size_t columns = (size_t)spot_vectors(p) * SPX_VL;
    for (int y = 0; y < p->ny; y++, pixel += b->wnx) {
        for (size_t x = 0; x < columns; x += SPX_VL) {
            vec s = load(spot + (size_t)y * p->nxp + x), ivar = load_float(b->weight + pixel + x);
            vec ws = s * ivar;
            store(weighted + (size_t)y * p->nxp + x, ws);
            sum_weight += ws;
            sum_value += ws * load_float(b->data + pixel + x);
            sum_seen += (vec)((ivec)s & (ivar > every(0.0)));
        }
        for (size_t x = columns; x < p->nxp; x += SPX_VL)
            store(weighted + (size_t)y * p->nxp + x, every(0.0));
    }
    *value = sum_lanes(sum_value);
    *weight = sum_lanes(sum_weight);
    *seen = sum_lanes(sum_seen);
}

/* Columns at each side of a spot that are looked at for how much light others may share with it. */
enum { SIDE = SPX_VL < 4 ? SPX_VL : 4 };

/* Sum of s^2 over the first 1, ... SIDE columns of a spot, then over the last. */
ALWAYS_INLINE void light_of_sides(const spx_trace_plan *p, const double *spot, double *side)
{
    vec first = every(0.0), last = every(0.0);
    const size_t end = p->nx < SPX_VL ? 0 : (size_t)p->nx - SPX_VL;
    for (size_t y = 0; y < (size_t)p->ny; y++, spot += p->nxp) {
        first += square(load(spot));
        last += square(load(spot + end));
    }
    double sum[2] = {0.0, 0.0};
    for (int c = 0; c < SIDE; c++) {
        side[c] = sum[0] += first[c];
        side[SIDE + c] = sum[1] += last[SPX_VL - 1 - c];
    }
}

/* Whether two spots share light: sum s_i s_j <= sqrt(sum s_i^2 sum s_j^2) over the columns that both have. */
ALWAYS_INLINE int share_light(const spx_trace_plan *p, const spx_bin_geometry *i, const double *side_i,
                              const spx_bin_geometry *j, const double *side_j)
{
    const int dx = j->xc - i->xc, columns = p->nx - (dx < 0 ? -dx : dx);
    if (columns <= 0)
        return 0;
    if (columns > SIDE || p->nx < SPX_VL)
        return 1;
    const double both = side_i[(dx > 0 ? SIDE : 0) + columns - 1] * side_j[(dx > 0 ? 0 : SIDE) + columns - 1];
    return both > SPX_TRACE_NIL * SPX_TRACE_NIL;
}

/* Whether a spot lies on rows of which no pixel may be used. */
ALWAYS_INLINE int is_dark(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_bin_geometry *at)
{
    const unsigned *lit = b->lit + (at->yc - b->wy0);
    return lit[p->ny] == lit[0];
}

/* Of a bin: another part may find at the same time that the PSF has no spot there. */
ALWAYS_INLINE unsigned char state_of(const unsigned char *state)
{
    return __atomic_load_n(state, __ATOMIC_RELAXED);
}

/* Bins that share out the equations of a bundle: k0 .. k1 - 1, with the spots of those before that they overlap with.
 * only: as for spx_trace_kernels. zero: rows of M from here on are zeros already, as the next part has elements there.
 */
typedef struct {
    const unsigned char *only;
    size_t k0, k1, zero;
} equation_part;

/* The spots of bin k that are in use, and the light of their sides. */
ALWAYS_INLINE void make_spots(const spx_trace_plan *p, const spx_trace_bundle *b, const unsigned char *chosen, size_t k,
                              double *work, double *now, double *sides)
{
    const size_t nf = b->nf, npix = (size_t)p->ny * p->nxp;
    const spx_bin_geometry *at = b->at + k * nf;
    unsigned char *state = b->state + k * nf;
    for (size_t f = 0; f < nf; f++) {
        if (state_of(&state[f]) != SPX_TRACE_SPOT || (chosen ? !chosen[f] : is_dark(p, b, &at[f])))
            continue;
        if (!make_spot(p, b->fibre0 + f, k, &at[f], work, now + f * npix))
            __atomic_store_n(&state[f], SPX_TRACE_NOSPOT, __ATOMIC_RELAXED);
        else if (b->reach > 1)
            light_of_sides(p, now + f * npix, sides + f * 2 * SIDE);
    }
}

/* Spots are not made where they are dark: their rows of M are 0 but for what regularisation adds, and no other bin
 * overlaps with them. */
static spx_status equations_of(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r,
                               equation_part part)
{
    const size_t nf = b->nf, nl = b->nl, npix = (size_t)p->ny * p->nxp, slots = (size_t)b->depth + 1;
    const unsigned char *only = part.only;
    double *ring = spx_trace_workspace_get(r, SPX_BUFFER_RING, slots * nf + 1, npix + 2 * SIDE, NULL);
    double *work = spx_trace_workspace_get(r, SPX_BUFFER_SPOT, p->spot_work, 1, NULL);
    if (!ring || !work)
        return SPX_EIO;
    double *weighted = ring + slots * nf * npix, *sides = weighted + npix;
    for (size_t k = part.k0 > slots - 1 && !only ? part.k0 - (slots - 1) : part.k0; k < part.k1; k++) {
        double *now = ring + k % slots * nf * npix;
        const spx_bin_geometry *at = b->at + k * nf;
        unsigned char *state = b->state + k * nf;
        const unsigned char *chosen = only ? only + k * nf : NULL;
        double *row = b->m + k * b->nelem * nl;
        if (chosen && !memchr(chosen, 1, nf))
            continue;
        make_spots(p, b, chosen, k, work, now, sides + k % slots * nf * 2 * SIDE);
        if (k < part.k0)
            continue;
        if (!chosen && k < part.zero)
            memset(row, 0, b->nelem * nl * sizeof *row);
        for (size_t f = 0; f < nf; f++) {
            if (state_of(&state[f]) != SPX_TRACE_SPOT || (chosen ? !chosen[f] : is_dark(p, b, &at[f])))
                continue;
            const double *side = sides + (k % slots * nf + f) * 2 * SIDE;
            weighted_sums(p, b, &at[f], now + f * npix, weighted, &b->y[k * nl + f], &b->w[k * nl + f],
                          &b->seen[k * nl + f]);
            if (!(b->w[k * nl + f] > 0.0) && !chosen) /* what is changed may have to become 0 */
                continue;
            row[f] = overlap(p, weighted, &at[f], now + f * npix, &at[f]);
            size_t f0 = f > (size_t)b->reach ? f - (size_t)b->reach : 0,
                   f1 = f + (size_t)b->reach < nf ? f + (size_t)b->reach : nf - 1;
            for (size_t g = f0; g <= f1; g++) {
                /* earlier bins of fibre g, and this bin of fibres before f */
                size_t df = g > f ? g - f : f - g;
                long from = g > f ? b->lo[df] : -b->hi[df], to = g >= f ? -1 : b->lo[df] > 0 ? -b->lo[df] : 0;
                for (long dk = from < -(long)k ? -(long)k : from; dk <= to; dk++) {
                    size_t k2 = (size_t)((long)k + dk), at2 = k2 * nf + g;
                    if (state_of(&b->state[at2]) != SPX_TRACE_SPOT || (only ? !only[at2] : is_dark(p, b, &b->at[at2])))
                        continue;
                    const size_t its = k2 % slots * nf + g;
                    double sum = 0.0;
                    if (df < 2 || share_light(p, &at[f], side, &b->at[at2], sides + its * 2 * SIDE)) {
                        sum = overlap(p, weighted, &at[f], ring + its * npix, &b->at[at2]);
                        if (df > 1 && sum != 0.0)
                            __atomic_store_n(&b->far[g > f ? k : k2], 1, __ATOMIC_RELAXED);
                    } else if (!only) {
                        continue;
                    }
                    if (g > f)
                        row[(b->first[df] + (size_t)(dk - b->lo[df])) * nl + f] = sum;
                    else
                        b->m[(k2 * b->nelem + b->first[df] + (size_t)(-dk - b->lo[df])) * nl + g] = sum;
                }
            }
        }
    }
    return SPX_OK;
}

/* All bins; without `only` in parts, which are tasks: their bits are those of one. */
static spx_status equations(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *r,
                            const unsigned char *only, spx_err *e)
{
    enum { MOST_PARTS = 8, LEAST_BINS = 4 }; /* LEAST_BINS: for each whose spots are made twice */
    const size_t depth = (size_t)b->depth, row = b->nelem * b->nl, threads = (size_t)omp_get_num_threads();
    size_t parts = p->nbin / (LEAST_BINS * (depth + 1));
    parts = parts > threads ? threads : parts;
    parts = only || parts < 1 ? 1 : parts > MOST_PARTS ? MOST_PARTS : parts;
    int failed = 0;
    if (!only)
        memset(b->far, 0, p->nbin);
    for (size_t i = 1; i < parts; i++) /* the next part has elements in the last rows of one */
        memset(b->m + (p->nbin * i / parts - depth) * row, 0, depth * row * sizeof *b->m);
    for (size_t i = 0; i < parts; i++) {
        const size_t k1 = p->nbin * (i + 1) / parts;
        const equation_part part = {only, p->nbin * i / parts, k1, k1 < p->nbin ? k1 - depth : k1};
#pragma omp task shared(failed)
        {
            spx_trace_workspace *own = spx_trace_task_begin(r);
            if (equations_of(p, b, own, part) != SPX_OK)
                __atomic_store_n(&failed, 1, __ATOMIC_RELAXED);
            spx_trace_task_end(r, own, SPX_EXTRACT_EQUATIONS);
        }
    }
#pragma omp taskwait
    return failed ? spx_mem_fail(e) : SPX_OK;
}

#endif
