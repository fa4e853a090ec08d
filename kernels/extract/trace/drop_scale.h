/* Provides the scale of the drop tolerances where bins are narrow: see SPX_TRACE_MAX_INVERSE. */
#ifndef SPX_EXTRACT_TRACE_DROP_SCALE_H
#define SPX_EXTRACT_TRACE_DROP_SCALE_H

#include <math.h>
#include <string.h>

#include "extract/trace/band.h"
#include "extract/trace/schur_columns.h"

/* The largest value within SPX_TRACE_AROUND bins, or up to twice as many, in the place of every value of a vector. */
ALWAYS_INLINE void largest_around(size_t n, size_t nl, size_t lane, double *v)
{
    const size_t size = SPX_TRACE_AROUND;
    vec before = every(0.0), here = every(0.0);
    for (size_t k = 0; k < size && k < n; k++)
        here = vmax(load(v + k * nl + lane), here);
    for (size_t k0 = 0; k0 < n; k0 += size) { /* block by block: with the blocks before and after it */
        vec after = every(0.0);
        for (size_t k = k0 + size; k < k0 + 2 * size && k < n; k++)
            after = vmax(load(v + k * nl + lane), after);
        const vec most = vmax(vmax(before, after), here);
        for (size_t k = k0; k < k0 + size && k < n; k++)
            store(v + k * nl + lane, most);
        before = here;
        here = after;
    }
}

/* How much masks have taken from the bins of a vector: 1 where a bin overlaps with none that has much less of its spot
 * left than others around it (SPX_TRACE_UNMASKED), 0.5 where it has half of what they have itself, else 0.
 * of[nbin][nl]: scratch. */
static void find_unmasked(const spx_trace_plan *p, const spx_trace_bundle *b, size_t lane, double *unmasked, double *of)
{
    const size_t n = p->nbin, nl = b->nl, m = (size_t)b->hi[0];
    for (size_t k = 0; k < n; k++)
        store(of + k * nl + lane, load(b->seen + k * nl + lane));
    largest_around(n, nl, lane, of);
    for (size_t k = 0; k < n; k++) {
        const vec most = load(of + k * nl + lane);
        const vec half = choose(load(b->seen + k * nl + lane) > every(0.5) * most, every(0.5), every(0.0));
        ivec is = EVERY_INT(-1);
        for (size_t j = k > m ? k - m : 0; j <= k + m && j < n; j++)
            is &= load(b->seen + j * nl + lane) > every(SPX_TRACE_UNMASKED) * most;
        store(unmasked + k * nl + lane, choose(is, every(1.0), half));
    }
}

/* v[nbin][nl] of bins of a vector that are not whole becomes the largest of bins around them: of those that are whole,
 * else of those that take it from such, else of those with half of their spots. of: scratch. */
static void from_unmasked(size_t n, size_t nl, size_t lane, const double *unmasked, double *v, double *of)
{
    const vec none = every(0.0), all = every(1.0);
    for (size_t k = 0; k < n; k++)
        store(of + k * nl + lane, choose(load(unmasked + k * nl + lane) == all, load(v + k * nl + lane), none));
    largest_around(n, nl, lane, of);
    for (size_t k = 0; k < n; k++) {
        const vec most = load(of + k * nl + lane);
        const vec half = choose(load(unmasked + k * nl + lane) > none, load(v + k * nl + lane), none);
        store(of + k * nl + lane, choose(most > none, most, half));
    }
    largest_around(n, nl, lane, of);
    for (size_t k = 0; k < n; k++) {
        const vec most = load(of + k * nl + lane);
        const ivec takes = (load(unmasked + k * nl + lane) != all) & (most > none);
        store(v + k * nl + lane, choose(takes, most, load(v + k * nl + lane)));
    }
}

/* a->drop_scale of a vector: see SPX_TRACE_MAX_INVERSE; a->z, and root[nbin][nl], sqrt(Z). unmasked, of, whole:
 * scratch, [nbin][nl] each; memory: of inverse_rows. */
static void find_drop_scale(const spx_trace_plan *p, const spx_trace_bundle *b, size_t lane, spx_trace_diagonals *a,
                            double *unmasked, double *of, double *whole, double *root, double *memory)
{
    const int m = b->hi[0];
    const size_t n = p->nbin, nl = b->nl, lrow = (size_t)(m + 1) * nl, mrow = b->nelem * nl;
    const vec none = every(0.0), all = every(1.0);
    vec z[SPX_TRACE_MAX_BAND + 1], smallest = all;
    inverse_rows rows = inverse_begin(m, memory);
    for (size_t k = n; k-- > 0;) {
        const vec inverse = inverse_row(m, k, b->ldl + k * lrow + lane, lrow, nl, &rows, z);
        const vec v = every(SPX_TRACE_MAX_INVERSE) / (inverse * load(b->m + k * mrow + lane));
        const vec scale = choose(v < all, vmax(v, none), all);
        store(a->drop_scale + k * nl + lane, scale);
        store(whole + k * nl + lane, scale);
        for (int i = 0; i < SPX_VL; i++)
            root[k * nl + lane + (size_t)i] = sqrt(inverse[i]);
    }
    find_unmasked(p, b, lane, unmasked, of);
    from_unmasked(n, nl, lane, unmasked, whole, of);
    const vec least = every(spx_trace_least_scale(p->tolerance)), rounding = every(spx_trace_rounding(p->tolerance));
    for (size_t k = 0; k < n; k++) {
        const vec v = load(whole + k * nl + lane);
        if (k >= p->pad && k < p->pad + p->job->nwave)
            smallest = choose(v < smallest, v, smallest);
        double *scale = a->drop_scale + k * nl + lane;
        store(scale, vmax(load(scale), choose(load(unmasked + k * nl + lane) == all, least, rounding)));
    }
    for (size_t i = 0; i < SPX_VL && lane + i < b->nf; i++)
        a->z = fmax(a->z, SPX_TRACE_MAX_INVERSE / smallest[i]);
}

#endif
