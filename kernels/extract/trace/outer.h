/* Provides what the outer diagonals of A_s say about those beyond them. Lanes are fibres. */
#ifndef SPX_EXTRACT_TRACE_OUTER_H
#define SPX_EXTRACT_TRACE_OUTER_H

#include "extract/trace/schur_columns.h"

/* Lanes v .. v + SPX_VL - 1 that are fibres. */
ALWAYS_INLINE ivec lanes_used(const spx_trace_bundle *b, size_t v)
{
    return lanes_there(b, v, 0);
}

/* Whether an element of a fibre of the vector on diagonal d of A_s, in rows r0 .. r1 - 1, is above `limit`, scaled with
 * scale[r1 - r0] of its two bins. */
static int is_above(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_diagonals *a, size_t v,
                    size_t r0, size_t r1, size_t d, double limit, const double *scale)
{
    const ivec used = lanes_used(b, v);
    for (size_t k = r0; k + d < r1; k++) {
        const vec e = load(element(p, b, a, k, (int)d) + v);
        const vec by = load(scale + (k - r0) * SPX_VL) * load(scale + (k + d - r0) * SPX_VL);
        if (any_lane((e * e * by > every(limit * limit)) & used))
            return 1;
    }
    return 0;
}

/* Largest diagonal of A_s, more than `from`, with such an element; `from` where there is none. */
static size_t outermost(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_diagonals *a, size_t v,
                        size_t r0, size_t r1, size_t from, double limit, const double *scale)
{
    for (size_t d = b->band; d > from; d--)
        if (is_above(p, b, a, v, r0, r1, d, limit, scale))
            return d;
    return from;
}

/* Whether the outermost SPX_TRACE_RIM diagonals of A_s, but for the first `least`, say that others beyond them are
 * above `limit`. They fall by SPX_TRACE_FALL or more from one to the next, unless bins without light lie between: where
 * fewer than that many do, a diagonal further in shows it. */
static int goes_on(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_diagonals *a, size_t v,
                   size_t r0, size_t r1, size_t least, double limit, const double *scale)
{
    for (size_t d = b->band; d > least && d + SPX_TRACE_RIM > b->band; d--, limit *= SPX_TRACE_FALL)
        if (is_above(p, b, a, v, r0, r1, d, limit, scale))
            return 1;
    return 0;
}

/* Half-bandwidth that A_s has at least: that of M, and what R is stored with. */
ALWAYS_INLINE size_t least_band(const spx_trace_plan *p, const spx_trace_bundle *b)
{
    const size_t h = (size_t)p->job->psf->hsizey, m = (size_t)b->hi[0];
    return h > m ? h : m;
}

/* Z of a bin, as far as rounding allows it to count (SPX_TRACE_ROUNDING); diagonal: of A_s. */
ALWAYS_INLINE vec counted_inverse(const spx_trace_plan *p, vec drop_scale, vec diagonal, vec inverse)
{
    const vec least = every(spx_trace_least_scale(p->tolerance));
    const vec largest = every(SPX_TRACE_MAX_INVERSE) / choose(drop_scale < least, drop_scale, least);
    return choose(inverse * diagonal < largest, inverse, largest / diagonal);
}

#endif
