/* Provides the choice of fibres that matter for the Schur complement beyond the next on each side: where coupling is
 * strong, and where traces cross. */
#ifndef SPX_EXTRACT_TRACE_COUPLING_H
#define SPX_EXTRACT_TRACE_COUPLING_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "extract/trace/schur_columns.h"

/* What the search for strong coupling needs, [nbin][nl] each, with `depth` rows and SPX_TRACE_LANES more around. */
typedef struct {
    double *inverse;   /* 1 over the diagonal of M */
    double *direct[2]; /* bound of what fibres farther than the next take off, before and after the fibre */
    double *own[2];    /* what the next takes off the diagonal, before and after the fibre, or a bound of it */
    double *root;      /* sqrt(Z), Z the diagonal of the inverse of the fibre's own block */
} scales;

/* Square roots of bounds of what the next fibres take off, into own: T_jj <= (sum_i |M_ij| sqrt(Z_ii))^2, as |Z_ik| is
 * at most sqrt(Z_ii Z_kk). All fibres of a bundle at once, so that elements of M are read once. */
static void bound_neighbours(const spx_trace_plan *p, const spx_trace_bundle *b, scales s)
{
    const size_t n = p->nbin, nl = b->nl;
    for (size_t i = 0; i < n * nl; i++) /* which was scratch */
        s.own[0][i] = s.own[1][i] = 0.0;
    for (size_t k = 0; k < n; k++)
        for (long dk = b->lo[1]; dk <= b->hi[1]; dk++) {
            const long to = (long)k + dk;
            const double *m = b->m + (k * b->nelem + b->first[1] + (size_t)(dk - b->lo[1])) * nl;
            if (to < 0 || to >= (long)n)
                continue;
            const double *mine = s.root + k * nl, *its = s.root + to * (long)nl + 1;
            double *after = s.own[1] + k * nl, *before = s.own[0] + to * (long)nl + 1;
            for (size_t i = 0; i < nl; i += SPX_VL) {
                const vec v = vabs(load(m + i));
                store(after + i, load(after + i) + v * load(its + i));
                store(before + i, load(before + i) + v * load(mine + i));
            }
        }
}

/* Bounds of a vector on one side from their square roots, own[nbin][nl]. some[nbin] becomes 1 where a lane's matters,
 * and where T has elements with such a bin; 0 elsewhere, where T is left out. Returns whether there are any. */
static int find_coupled(const spx_trace_plan *p, const spx_trace_bundle *b, size_t lane, const spx_trace_diagonals *a,
                        double *own, unsigned char *some)
{
    const size_t n = p->nbin, nl = b->nl, m = (size_t)b->hi[0];
    int any = 0;
    memset(some, 0, n);
    for (size_t k = 0; k < n; k++) {
        const vec most = square(load(own + k * nl + lane));
        const vec least = every(SPX_TRACE_LITTLE * p->tolerance) * load(a->drop_scale + k * nl + lane) *
                          load(b->m + k * b->nelem * nl + lane);
        store(own + k * nl + lane, most);
        if (!any_lane(~(most <= least)))
            continue;
        any = 1;
        for (size_t j = k > m ? k - m : 0; j <= k + m && j < n; j++)
            some[j] = 1;
    }
    return any;
}

/* direct: squares of the elements, scaled to a unit diagonal, times their number. */
static void find_scales(const spx_trace_plan *p, const spx_trace_bundle *b, scales s)
{
    const size_t n = p->nbin, nl = b->nl;
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < nl; i += SPX_VL)
            store(s.inverse + k * nl + i, every(1.0) / (load(b->m + k * b->nelem * nl + i) + every(SPX_TRACE_PRIOR)));
    for (size_t k = 0; k < n; k++)
        for (int df = 2; b->far[k] && df <= b->reach; df++)
            for (int dk = b->lo[df]; dk <= b->hi[df]; dk++) {
                const double *m = b->m + (k * b->nelem + b->first[df] + (size_t)(dk - b->lo[df])) * nl;
                const long to = ((long)k + dk) * (long)nl + df;
                for (size_t i = 0; i < nl; i += SPX_VL) {
                    vec v = load(m + i);
                    v = every(10.0) * v * v * load(s.inverse + k * nl + i) * load(s.inverse + to + (long)i);
                    store(s.direct[1] + k * nl + i, load(s.direct[1] + k * nl + i) + v);
                    store(s.direct[0] + to + (long)i, load(s.direct[0] + to + (long)i) + v);
                }
            }
}

/* Where one neighbour on each side at a time is not enough, for the fibres of a vector: bins at which
 *     rel(f) rel(g) + sqrt(rel(f) rel(g) direct) + direct
 * is above the tolerance times `known`, where rel(f) is what a neighbour g takes off f as a fraction of its diagonal,
 * and rel(g) the same of g and its next, the largest near by. */
static void find_strong(const spx_trace_plan *p, const spx_trace_bundle *b, scales s, size_t lane,
                        const double *drop_scale, unsigned char *strong)
{
    const size_t n = p->nbin, nl = b->nl;
    const size_t around = (size_t)b->depth + SPX_TRACE_TAIL / 2;
    const double limit = SPX_TRACE_STRONG * p->tolerance;
    memset(strong, 0, n);
    for (int side = 0; side < 2; side++) {
        /* most of rel(g) anywhere: rules out nearly all bins */
        vec most = every(0.0);
        for (size_t k = 0; k < n; k++)
            most =
                vmax(load(s.own[side] + k * nl + lane + 2 * side - 1) * load(s.inverse + k * nl + lane + 2 * side - 1),
                     most);
        for (size_t k = 0; k < n; k++) {
            const vec direct = load(s.direct[side] + k * nl + lane);
            const vec own = load(s.own[side] + k * nl + lane) * load(s.inverse + k * nl + lane);
            const vec bound = own * most;
            /* sqrt(x y) <= (x + y)/2 */
            const vec least = every(limit) * load(drop_scale + k * nl + lane);
            if (!any_lane(every(1.5) * (bound + direct) > least))
                continue;
            vec next = every(0.0);
            size_t k0 = k > around ? k - around : 0, k1 = k + around < n ? k + around : n - 1;
            for (size_t j = k0; j <= k1; j++)
                next = vmax(load(s.own[side] + j * nl + lane + 2 * side - 1) *
                                load(s.inverse + j * nl + lane + 2 * side - 1),
                            next);
            for (int i = 0; i < SPX_VL && lane + (size_t)i < b->nf; i++) {
                double both = own[i] * next[i];
                strong[k] |= both + sqrt(both * direct[i]) + direct[i] > least[i];
            }
        }
    }
}

/* Next run of bins from `from` on that lie within `around` bins of a strong one; 0 when there is none. */
static int next_run(size_t n, const unsigned char *strong, size_t from, size_t around, size_t *k0, size_t *k1)
{
    size_t k = from;
    while (k < n && !strong[k])
        k++;
    if (k == n)
        return 0;
    *k0 = k > around ? k - around : 0;
    *k0 = *k0 > from ? *k0 : from;
    size_t last = k;
    for (; k < n && k <= last + 2 * around; k++)
        last = strong[k] ? k : last;
    *k1 = last + around < n ? last + around + 1 : n;
    return 1;
}

/* Bins around k0 .. k1 - 1 that matter for them. */
static void bins_around(const spx_trace_plan *p, const spx_trace_bundle *b, size_t *k0, size_t *k1)
{
    const size_t around = (size_t)b->depth + SPX_TRACE_TAIL / 2;
    *k0 = *k0 > around ? *k0 - around : 0;
    *k1 = *k1 + around < p->nbin ? *k1 + around : p->nbin;
}

/* How much bins k0 .. k1 - 1 of fibre f overlap with fibre f + df at most: the square of the element of M, scaled to a
 * unit diagonal, times ten for their number, as in find_scales(). */
static double most_overlap(const spx_trace_bundle *b, scales s, size_t f, int df, size_t k0, size_t k1)
{
    const size_t nl = b->nl;
    double most = 0.0;
    for (size_t k = k0; k < k1; k++)
        for (int dk = b->lo[df]; dk <= b->hi[df]; dk++) {
            const double m = b->m[(k * b->nelem + b->first[df] + (size_t)(dk - b->lo[df])) * nl + f];
            const double inverse = s.inverse[((long)k + dk) * (long)nl + (long)f + df];
            const double v = 10.0 * m * m * s.inverse[k * nl + f] * inverse;
            most = v > most ? v : most;
        }
    return most;
}

/* Whether traces cross near bins k0 .. k1 - 1: fibres overlap that have two others or more between them. Elsewhere they
 * lie side by side in the order of their numbers, and the influence of one on another falls with their distance. */
static int traces_cross(const spx_trace_plan *p, const spx_trace_bundle *b, scales s, size_t k0, size_t k1)
{
    bins_around(p, b, &k0, &k1);
    for (int df = b->reach; df > 2; df--)
        for (size_t f = 0; f + (size_t)df < b->nf; f++)
            if (most_overlap(b, s, f, df, k0, k1) > SPX_TRACE_STRONG * p->tolerance)
                return 1;
    return 0;
}

/* Distances off[] of the fibres that matter for a fibre of a vector: those which a chain of overlaps joins to it whose
 * product is above `limit`. overlap[reach + 1][nf]; chain[nf] and best[2 nf]: scratch. Returns their number, at most
 * 2 SPX_TRACE_MAX_REACH: the strongest. */
static int chained(const spx_trace_bundle *b, size_t lane, const double *overlap_of, double limit, double *chain,
                   double *best, int *off)
{
    const long nf = (long)b->nf;
    memset(best, 0, 2 * b->nf * sizeof *best);
    for (long f = (long)lane; f < (long)lane + SPX_VL && f < nf; f++) {
        memset(chain, 0, b->nf * sizeof *chain);
        chain[f] = 1.0;
        for (int longer = 1; longer;) { /* no overlap counts for more than 1: chains without a loop are the strongest */
            longer = 0;
            for (long g = 0; g < nf; g++)
                for (long h = g - b->reach > 0 ? g - b->reach : 0; chain[g] > limit && h < nf && h <= g + b->reach;
                     h++) {
                    const double v = h == g ? 0.0 : chain[g] * overlap_of[labs(h - g) * nf + (h < g ? h : g)];
                    if (v > chain[h] && v > limit) {
                        chain[h] = v;
                        longer = 1;
                    }
                }
        }
        for (long h = 0; h < nf; h++)
            if (h != f && chain[h] > best[h - f + nf])
                best[h - f + nf] = chain[h];
    }
    best[nf - 1] = best[nf + 1] = 1.0; /* the next on both sides always */
    int n = 0;
    for (; n < 2 * SPX_TRACE_MAX_REACH; n++) {
        long strongest = 0;
        for (long i = 1; i < 2 * nf; i++)
            strongest = best[i] > best[strongest] ? i : strongest;
        if (!(best[strongest] > limit))
            break;
        best[strongest] = 0.0;
        off[n] = (int)(strongest - nf);
    }
    return n;
}

/* Columns j0 .. j1 - 1 of T where traces cross: with all fibres that matter, and with ever weaker ones until nothing
 * changes. */
static spx_status crossing_neighbours(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r,
                                      scales s, size_t lane, size_t low, size_t j0, size_t j1, spx_trace_diagonals *t,
                                      spx_err *e)
{
    double *overlap_of = spx_alloc2((size_t)b->reach + 4, b->nf, sizeof *overlap_of, e);
    if (!overlap_of)
        return SPX_EIO;
    spx_status st = SPX_OK;
    double *chain = overlap_of + ((size_t)b->reach + 1) * b->nf, *best = chain + b->nf,
           limit = SPX_TRACE_STRONG * p->tolerance;
    size_t k0 = j0, k1 = j1;
    bins_around(p, b, &k0, &k1);
    for (int df = 1; df <= b->reach; df++)
        for (size_t f = 0; f + (size_t)df < b->nf; f++) {
            const double v = most_overlap(b, s, f, df, k0, k1);
            overlap_of[(size_t)df * b->nf + f] = v < 1.0 ? v : 1.0;
        }
    double change = 1.0;
    int tail = SPX_TRACE_TAIL;
    for (int round = 0, used = 0; round < 4 && st == SPX_OK && change > 0.1 * p->tolerance; round++, limit *= 0.01) {
        int off[2 * SPX_TRACE_MAX_REACH];
        const int n = chained(b, lane, overlap_of, limit, chain, best, off);
        if (n > used)
            st = many_neighbours(p, b, r, lane, off, n, &tail, low, j0, j1, t, &change, e);
        used = n;
    }
    spx_free(overlap_of);
    return st;
}

#endif
