/* Provides T = B^T (M_oo)^-1 B by columns, what the Schur complement with respect to given other fibres takes off the
 * block of a fibre. Lanes are fibres. */
#ifndef SPX_EXTRACT_TRACE_SCHUR_COLUMNS_H
#define SPX_EXTRACT_TRACE_SCHUR_COLUMNS_H

#include <limits.h>
#include <string.h>

#include "extract/trace/band.h"
#include "extract/trace/trace.h"
#include "simd/simd.h"

/* Other fibres whose light is taken out of that of the fibres of SPX_VL lanes: fibre + off[c], c < q, for all lanes,
 * and the factor L D L^T of their block of M, ordered by bin and then by c. */
typedef struct {
    int q;
    int off[2 * SPX_TRACE_MAX_REACH];
    ivec there[2 * SPX_TRACE_MAX_REACH]; /* lanes for which this fibre is in the bundle */
    int m;                               /* half-bandwidth */
    const double *l;                     /* row of bin 0: 1/D, and L(i, i - s) at l[i*row + s*step] */
    size_t row;
    long step;
    long begin, end; /* bins that have rows */
    int tail;        /* bins that a column of V may go on beyond the overlap */
    int cut;         /* becomes 1 where that was too little */
} others;

/* Element of M between (lane + f, k) and (lane + g, k + dk); NULL where these do not overlap. */
ALWAYS_INLINE const double *coupling_at(const spx_trace_bundle *b, size_t lane, int f, int g, long k, long dk)
{
    const int df = g > f ? g - f : f - g;
    const long step = g > f ? dk : g < f ? -dk : dk < 0 ? -dk : dk;
    if (df > b->reach || step < b->lo[df] || step > b->hi[df])
        return NULL;
    const long row = g > f || (g == f && dk >= 0) ? k : k + dk;
    const size_t element = (size_t)row * b->nelem + b->first[df] + (size_t)(step - b->lo[df]);
    return b->m + element * b->nl + lane + (g > f ? f : g);
}

/* The same for all lanes, 0 where there is none. */
ALWAYS_INLINE vec coupling(const spx_trace_bundle *b, size_t lane, int f, int g, long k, long dk)
{
    const double *at = coupling_at(b, lane, f, g, k, dk);
    return at != NULL ? load(at) : every(0.0);
}

/* Element (k, k + d) of A_s in lane 0; d beyond the diagonals of M only where those are in use. */
ALWAYS_INLINE double *element(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_trace_diagonals *a,
                              size_t k, int d)
{
    const size_t m = (size_t)b->hi[0];
    return (size_t)d <= m ? a->near + (k * (m + 1) + (size_t)d) * b->nl
                          : a->far + (((size_t)d - m - 1) * p->nbin + k) * b->nl;
}

/* From now on the vector from `lane` on has elements there, 0 to begin with. */
static void use_far(const spx_trace_plan *p, const spx_trace_bundle *b, size_t lane, spx_trace_diagonals *a)
{
    for (size_t i = 0; !a->wide && i < (b->band - (size_t)b->hi[0]) * p->nbin; i++)
        store(a->far + i * b->nl + lane, every(0.0));
    a->wide = 1;
}

/* What becomes of elements that are there already. */
typedef enum { FIRST, ADD, REPLACE } schur_mode;

/* A column of V = L^-1 B, with B the block of M between a fibre and the others. */
typedef struct {
    int rows;   /* of it that are known, from the first bin that overlaps with its own on */
    vec taken;  /* sum of v^2/D over them: T_jj */
    vec recent; /* of that the last SPX_TRACE_LAST bins and up to as many before: no more than that may follow */
    vec last;   /* of that those since a multiple of SPX_TRACE_LAST */
} reached;

/* The next bin of column j of V; scaled, unless it is NULL, gets v/D. */
ALWAYS_INLINE void next_bin(const spx_trace_plan *p, const spx_trace_bundle *b, const others *o, int m, int q,
                            size_t lane, size_t j, int bin, double *v, double *scaled, reached *r)
{
    const long k = (long)j + bin;
    int rows = r->rows;
    vec added = every(0.0);
    for (int c = 0; c < q; c++, rows++) {
        vec sum = every(0.0), u = every(0.0);
        if (bin <= b->depth && k >= 0 && k < (long)p->nbin)
            sum = (vec)((ivec)coupling(b, lane, 0, o->off[c], (long)j, bin) & o->there[c]);
        if (k >= o->begin && k < o->end) {
            const double *l = o->l + (k * q + c) * (long)o->row;
            /* the row before, which is known last, comes last */
            if (m > SPX_LANES_FEW) { /* parts side by side: one alone waits for itself */
                vec part[4] = {sum, every(0.0), every(0.0), every(0.0)};
                int s = rows < m ? rows : m;
                for (; s >= 4; s -= 4)
                    for (int i = 0; i < 4; i++)
                        part[i] -= load(l + (s - i) * o->step) * load(v + (rows - s + i) * SPX_VL);
                for (; s > 0; s--)
                    part[0] -= load(l + s * o->step) * load(v + (rows - s) * SPX_VL);
                sum = (part[0] + part[1]) + (part[2] + part[3]);
            } else if (rows >= m) {
                for (int s = m; s > 0; s--)
                    sum -= load(l + s * o->step) * load(v + (rows - s) * SPX_VL);
            } else {
                for (int s = rows; s > 0; s--)
                    sum -= load(l + s * o->step) * load(v + (rows - s) * SPX_VL);
            }
            u = sum * load(l);
        }
        store(v + rows * SPX_VL, sum);
        if (scaled)
            store(scaled + rows * SPX_VL, u);
        added += sum * u;
    }
    if (bin % SPX_TRACE_LAST == 0) {
        r->recent = r->last;
        r->last = every(0.0);
    }
    r->rows = rows;
    r->recent += added;
    r->last += added;
    r->taken += added;
}

/* Whether column j of V goes on with a bin: no longer than its tail, nor where what follows is too little for an
 * element of T that it has with a column of which `other` is taken off; their product is at most sqrt(recent other). */
ALWAYS_INLINE int goes_on_with(const spx_trace_bundle *b, const others *o, int bin, vec other, vec least,
                               const reached *r)
{
    return bin <= b->depth + o->tail && (bin <= b->depth + 1 || !all_lanes(r->recent * vmax(r->taken, other) <= least));
}

/* Column j of V as far as it goes on. */
ALWAYS_INLINE void follow(const spx_trace_plan *p, const spx_trace_bundle *b, const others *o, int m, int q,
                          size_t lane, size_t j, vec other, vec least, double *v, double *scaled, reached *r)
{
    reached now = *r;
    for (int bin = now.rows / q - b->depth; goes_on_with(b, o, bin, other, least, &now); bin++)
        next_bin(p, b, o, m, q, lane, j, bin, v, scaled, &now);
    *r = now;
}

/* Column j of V is forgotten; z: Z_jj. ends[row][SPX_VL] gets what it has from each row on that columns begin with
 * which come SPX_TRACE_RIM after the band or later: T_ij^2 is at most this of i times T_jj. */
ALWAYS_INLINE void leave(const spx_trace_plan *p, const spx_trace_bundle *b, const others *o, int q, size_t j,
                         const double *v, const reached *r, vec z, double *ends)
{
    const int first = (int)b->band + SPX_TRACE_RIM + 1;
    vec sum = every(0.0);
    for (int bin = r->rows / q - 1; bin >= first; bin--) {
        const long k = (long)j + bin - b->depth;
        for (int c = 0; c < q && k >= o->begin && k < o->end; c++) {
            const vec x = load(v + (bin * q + c) * SPX_VL);
            sum += x * x * load(o->l + (k * q + c) * (long)o->row);
        }
        if (k >= 0 && k < (long)p->nbin)
            store(ends + k * SPX_VL, vmax(sum * z, load(ends + k * SPX_VL)));
    }
}

/* Columns of V that are made side by side where there are several neighbours: bin by bin, for what the second cache
 * holds of L then serves all of them. */
enum { SPX_TRACE_SIDE_BY_SIDE = 4 };

/* Doubles that schur_columns() needs, with `column` of them in a column of V. */
static size_t columns_size(const spx_trace_plan *p, const spx_trace_bundle *b, size_t column)
{
    const size_t slots = b->band + SPX_TRACE_SIDE_BY_SIDE;
    return (slots + SPX_TRACE_SIDE_BY_SIDE) * column + slots * (sizeof(reached) / sizeof(double) + SPX_VL) +
           p->nbin * SPX_VL;
}

/* Columns after the one that is made, whose elements of M, and whose elements of A_s are asked for: memory takes as
 * long to answer as one column, or two. */
enum { SPX_TRACE_AHEAD = 4, SPX_TRACE_AHEAD_TO = 2 };

/* Asks for elements of M that a column after j begins with, for its diagonal and drop scale, and for those of A_s that
 * one adds to, beyond the diagonals of M if `wide`: each is in a cache line of its own, far from the one before, or in
 * two, as lanes are those of a neighbour. */
ALWAYS_INLINE void fetch_ahead(const spx_trace_plan *p, const spx_trace_bundle *b, const others *o,
                               const spx_trace_diagonals *t, size_t lane, size_t j, int wide)
{
    const size_t n = p->nbin, from = j + SPX_TRACE_AHEAD, to = j + SPX_TRACE_AHEAD_TO;
    for (int d = 0; to < n && d <= (wide ? (int)b->band : b->hi[0]) && (size_t)d <= to; d++)
        __builtin_prefetch(element(p, b, t, to - (size_t)d, d) + lane, 1);
    if (from < n) {
        __builtin_prefetch(b->m + from * b->nelem * b->nl + lane, 0);
        __builtin_prefetch(t->drop_scale + from * b->nl + lane, 0);
    }
    for (long bin = -(long)b->depth; from < n && bin <= b->depth; bin++) {
        const long k = (long)from + bin;
        const double *at = k >= 0 && k < (long)n ? coupling_at(b, lane, 0, o->off[0], (long)from, bin) : NULL;
        if (at != NULL) {
            __builtin_prefetch(at, 0);
            __builtin_prefetch(at + SPX_VL - 1, 0);
        }
    }
}

/* Whether columns are to be made again with a longer tail. */
ALWAYS_INLINE int must_go_further(const others *o)
{
    return o->cut && o->tail < SPX_TRACE_LONG_TAIL;
}

/* Columns j0 .. j1 - 1 of T = V^T D^-1 V, from row `low` on, into *t: what the Schur complement with respect to the
 * others takes off. Column j of V starts at the first bin that overlaps with j and goes on until what is left of it is
 * too little for any element of T; where a later column turns out to be larger than that, it is followed further.
 *
 * Diagonals that M does not have are small: they are made only where T is above `far` of the diagonal of M near
 * by, and where they may be above `nothing`; they are 0 elsewhere. All limits are multiplied with t->known.
 * Of elements beyond the band there is a bound: see leave(), *t->ends.
 * own[nbin][nl], unless it is NULL, gets the diagonal of T. Ends where must_go_further(). Returns, where elements of T
 * are replaced, the largest change as a fraction of the diagonal of M times t->known: of the diagonal; and of elements
 * with rows low .. j0 - 1, of which T has the diagonal with as many others as they need: what more others add to T is
 * positive semidefinite, so that the square of what they add to an element is at most the product of that of its two
 * diagonal ones. */
ALWAYS_INLINE double schur_columns(const spx_trace_plan *p, const spx_trace_bundle *b, others *o, int m, int q,
                                   size_t lane, size_t low, size_t j0, size_t j1, schur_mode mode,
                                   spx_trace_diagonals *t, double *own, double *columns)
{
    const int band = (int)b->band, depth = b->depth, most = (2 * depth + 1 + o->tail) * q;
    const int ahead = q > 1 ? SPX_TRACE_SIDE_BY_SIDE : 1;
    const size_t nl = b->nl, column = (size_t)most * SPX_VL, slots = (size_t)(band + ahead);
    const double far = SPX_TRACE_FAR * p->drop_tolerance, little = SPX_TRACE_LITTLE * p->tolerance;
    const double nothing = SPX_TRACE_NOTHING * p->tolerance;
    /* of the last columns: T_jj as a fraction of M_jj */
    double *all_scaled = columns + slots * column, *share = all_scaled + (size_t)ahead * column;
    reached *ring = (reached *)(share + slots * SPX_VL);
    double *ends = (double *)(ring + slots);
    memset(share, 0, slots * SPX_VL * sizeof *share);
    vec change = every(0.0), behind = every(0.0), end_of = every(0.0);
    int wide = 0; /* columns that still need all diagonals */
    const size_t begin = j0 > (size_t)band ? j0 - (size_t)band : 0;
    const size_t from = begin > (size_t)depth ? begin - (size_t)depth : 0, reach = j1 + (size_t)(depth + o->tail);
    memset(ends + from * SPX_VL, 0, ((reach < p->nbin ? reach : p->nbin) - from) * SPX_VL * sizeof *ends);
    for (size_t j = begin; j < j1 && !must_go_further(o); j++) {
        if (q == 1)
            fetch_ahead(p, b, o, t, lane, j, wide);
        const vec diagonal = load(b->m + j * b->nelem * nl + lane);
        const vec drop_scale = load(t->drop_scale + j * nl + lane),
                  least = square(every(little) * drop_scale * diagonal);
        vec largest = every(0.0);
        for (size_t i = 0; i < slots; i++)
            largest = vmax(load(share + i * SPX_VL), largest);
        const vec other = vmax(every(SPX_TRACE_OTHER), largest) * diagonal;
        const size_t turn = (j - begin) % (size_t)ahead;
        double *scaled = all_scaled + turn * column;
        for (size_t i = j; turn == 0 && i < j + (size_t)ahead && i < j1; i++) {
            if (i >= begin + slots && ring[i % slots].rows > (band + SPX_TRACE_RIM + 1) * q) {
                const size_t old = i - slots;
                const vec m_old = load(b->m + old * b->nelem * nl + lane) * load(t->drop_scale + old * nl + lane);
                leave(p, b, o, q, old, columns + i % slots * column, &ring[i % slots],
                      every(SPX_TRACE_MAX_INVERSE) / m_old, ends);
            }
            ring[i % slots] = (reached){0, every(0.0), every(0.0), every(0.0)};
        }
        for (int bin = -depth, some = ahead > 1 && turn == 0; some; bin++) {
            some = 0;
            for (size_t i = j; i < j + (size_t)ahead && i < j1; i++) {
                const vec limit =
                    square(every(little) * load(t->drop_scale + i * nl + lane) * load(b->m + i * b->nelem * nl + lane));
                reached *r = &ring[i % slots];
                if (r->rows != (bin + depth) * q || !goes_on_with(b, o, bin, other, limit, r))
                    continue;
                next_bin(p, b, o, m, q, lane, i, bin, columns + i % slots * column, all_scaled + (i - j) * column, r);
                some = 1;
            }
        }
        reached now = ring[j % slots];
        follow(p, b, o, m, q, lane, j, other, least, columns + j % slots * column, scaled, &now);
        o->cut |= j >= j0 && any_lane(now.recent * vmax(now.taken, other) > every(100.0) * least);
        const vec mine = now.taken / (diagonal + every(SPX_TRACE_PRIOR));
        ring[j % slots] = now;
        store(share + j % slots * SPX_VL, mine);
        if (j >= (size_t)depth)
            end_of = vmax(load(ends + (j - (size_t)depth) * SPX_VL) * mine / drop_scale, end_of);
        if (j < j0 && mode == REPLACE && j >= low)
            behind = vmax(vabs(now.taken - load(element(p, b, t, j, 0) + lane)) /
                              (drop_scale * (diagonal + every(SPX_TRACE_PRIOR))),
                          behind);
        if (j < j0)
            continue;
        for (int d = 0; d <= band && (size_t)d <= j - low; d++) {
            const size_t i = j - (size_t)d, slot = i % slots;
            /* T_ij^2 <= T_ii T_jj. Elements on the way may be smaller than those farther out: narrow spots touch in
             * some bins, and not in those between. */
            const vec both = drop_scale * load(t->drop_scale + i * nl + lane);
            const int needed = wide && any_lane(mine * load(share + slot * SPX_VL) > every(nothing * nothing) * both);
            if (d > b->hi[0] && !needed) {
                if (mode == REPLACE && t->wide)
                    store(element(p, b, t, i, d) + lane, every(0.0));
                else if (!wide)
                    break;
                continue;
            }
            const vec end = every(little * little) * both * diagonal * load(b->m + i * b->nelem * nl + lane);
            if (d > 0 && any_lane(ring[slot].recent * now.taken > end)) {
                follow(p, b, o, m, q, lane, i, now.taken, end, columns + slot * column, NULL, &ring[slot]);
                o->cut |= any_lane(ring[slot].recent * now.taken > every(100.0) * end);
            }
            const double *before = columns + slot * column + d * q * SPX_VL;
            const int common = ring[slot].rows - d * q < now.rows ? ring[slot].rows - d * q : now.rows;
            vec sum = every(0.0), odd = every(0.0);
            int row = 0;
            for (; row + 1 < common; row += 2) {
                sum += load(scaled + row * SPX_VL) * load(before + row * SPX_VL);
                odd += load(scaled + (row + 1) * SPX_VL) * load(before + (row + 1) * SPX_VL);
            }
            if (row < common)
                sum += load(scaled + row * SPX_VL) * load(before + row * SPX_VL);
            sum += odd;
            double *to = element(p, b, t, i, d) + lane;
            if (d == 0) {
                if (any_lane(sum > every(far) * drop_scale * diagonal)) {
                    wide = band + 1;
                    use_far(p, b, lane, t);
                }
                if (own)
                    store(own + j * nl + lane, sum);
                if (mode == REPLACE)
                    change = vmax(vabs(sum - load(to)) / (drop_scale * (diagonal + every(SPX_TRACE_PRIOR))), change);
            }
            store(to, mode == ADD ? load(to) + sum : sum);
        }
        wide -= wide > 0;
    }
    if (any_lane(end_of * every(SPX_TRACE_MAX_INVERSE) > square(every(SPX_TRACE_ENDS * p->tolerance))))
        t->ends[lane / SPX_VL] = 1;
    double worst = 0.0;
    for (int i = 0; i < SPX_VL; i++)
        worst = fmax(fmax(change[i], sqrt(change[i] * behind[i])), worst);
    return worst;
}

/* Lanes whose fibre + off is in the bundle. */
ALWAYS_INLINE ivec lanes_there(const spx_trace_bundle *b, size_t lane, int off)
{
    ivec there = EVERY_INT(0);
    for (int i = 0; i < SPX_VL; i++) {
        long f = (long)lane + i + off;
        there[i] = f >= 0 && f < (long)b->nf ? -1 : 0;
    }
    return there;
}

/* Fibres with the next on one side alone, at bins with some[nbin], NULL: all; its factor is at hand, and copied to
 * rows[nbin][m + 1][SPX_VL]: there it lies between those of all fibres of the bundle, in lines that a cache has few
 * places for. */
ALWAYS_INLINE void one_neighbour(const spx_trace_plan *p, const spx_trace_bundle *b, size_t lane, int side,
                                 const unsigned char *some, schur_mode mode, spx_trace_diagonals *t, double *own,
                                 double *rows, double *columns)
{
    const int m = b->hi[0];
    const size_t n = p->nbin, row = (size_t)(m + 1) * SPX_VL, from = (size_t)(m + 1) * b->nl;
    const size_t before = b->band + (size_t)b->depth, after = (size_t)b->depth + SPX_TRACE_LONG_TAIL + 1;
    const double *l = b->ldl + (long)lane + side;
    others o = {
        .q = 1, .m = m, .row = row, .step = SPX_VL, .l = rows, .begin = 0, .end = (long)n, .tail = SPX_TRACE_LONG_TAIL};
    o.off[0] = side;
    o.there[0] = lanes_there(b, lane, side);
    for (size_t k0 = 0, k1 = n, made = 0; k0 < n; k0 = k1) {
        for (k1 = some ? k0 : n; k1 < n && some[k1] == some[k0];)
            k1++;
        if (some && !some[k0])
            continue;
        for (size_t k = k0 > before + made ? k0 - before : made; k < k1 + after && k < n; made = ++k)
            for (size_t s = 0; s <= (size_t)m; s++) /* the rows before the first are zeros */
                store(rows + k * row + s * SPX_VL, load(l + k * from - (long)(s * (from - b->nl))));
        if (m == 7)
            schur_columns(p, b, &o, 7, 1, lane, k0, k0, k1, mode, t, own, columns);
        else
            schur_columns(p, b, &o, m, 1, lane, k0, k0, k1, mode, t, own, columns);
    }
}

/* The same for columns k0 .. k1 - 1 with the `noff` fibres at the distances off[] at once, columns of V going on for
 * `tail` bins at most; *cut becomes 1 where one is longer. */
static spx_status neighbours_to(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r, size_t lane,
                                const int *off, int noff, int tail, size_t low, size_t k0, size_t k1,
                                spx_trace_diagonals *t, double *change, int *cut, spx_err *e)
{
    others o = {.q = noff, .tail = tail};
    for (int c = 0; c < noff; c++) {
        o.off[c] = off[c];
        o.there[c] = lanes_there(b, lane, off[c]);
    }
    const int q = o.q, m = b->depth * q + q - 1, depth = b->depth;
    /* bins that are factorised: what is cut off before them is forgotten after twice the tail */
    const size_t before = b->band + (size_t)(depth + 2 * tail), after = (size_t)(depth + tail + 1);
    const size_t r0 = k0 > before ? k0 - before : 0, r1 = k1 + after < p->nbin ? k1 + after : p->nbin;
    const size_t rows = (r1 - r0) * (size_t)q, row = (size_t)(m + 1) * SPX_VL;
    /* columns of L that are made at one time, and those before them that they need: what the second cache holds */
    const size_t run = ((size_t)m / SPX_LANES_BLOCK + 1) * SPX_LANES_BLOCK, made = (size_t)m + run;
    const size_t column = (size_t)(2 * depth + 1 + tail) * (size_t)q * SPX_VL;
    double *block =
        spx_trace_workspace_get(r, SPX_BUFFER_CHAIN, (rows + made + SPX_LANES_BLOCK) * row + made * SPX_VL, 1, e);
    double *columns = spx_trace_workspace_get(r, SPX_BUFFER_COLUMNS, columns_size(p, b, column), 1, e);
    if (!block || !columns)
        return SPX_EIO;
    double *first = block + rows * row, *l = first + (size_t)m * row, *first_diag = first + made * row;
    double *diag = first_diag + m * SPX_VL, *u = first_diag + made * SPX_VL;
    memset(first, 0, (size_t)m * row * sizeof *first);
    memset(first_diag, 0, (size_t)m * SPX_VL * sizeof *first_diag);
    for (size_t i0 = 0; i0 < rows; i0 += run) {
        const size_t n = i0 + run < rows ? run : rows - i0;
        for (size_t i = 0; i < n; i++) {
            const long k = (long)(r0 + (i0 + i) / (size_t)q);
            const int c = (int)((i0 + i) % (size_t)q);
            for (int s = 0, c2 = c, dk = 0; s <= m; s++, c2++) {
                if (c2 == q) {
                    c2 = 0;
                    dk++;
                }
                vec v = every(0.0);
                if (k + dk < (long)r1)
                    v = (vec)((ivec)coupling(b, lane, o.off[c], o.off[c2], k, dk) & o.there[c] & o.there[c2]);
                if (s == 0)
                    v = choose(o.there[c], v, every(1.0));
                store(l + i * row + (size_t)s * SPX_VL, v);
            }
        }
        factor(n, m, l, row, SPX_VL, every(0.0), l, row, SPX_VL, diag, (vec *)u);
        for (size_t i = 0; i < n; i++) /* by rows, as columns of V read them */
            for (size_t s = 0; s <= (size_t)m; s++)
                store(block + (i0 + i) * row + s * SPX_VL, load(l + (long)(i * row) - (long)(s * (row - SPX_VL))));
        memmove(first, first + n * row, (size_t)m * row * sizeof *first);
        memmove(first_diag, first_diag + n * SPX_VL, (size_t)m * SPX_VL * sizeof *first_diag);
    }
    o.l = block - (long)(r0 * (size_t)q * row);
    o.row = row;
    o.step = SPX_VL;
    o.begin = (long)r0;
    o.end = (long)r1;
    *change = schur_columns(p, b, &o, m, q, lane, low, k0, k1, REPLACE, t, NULL, columns);
    *cut = o.cut;
    return SPX_OK;
}

/* The same as far as it has to go. *tail: what columns before these had to be given, SPX_TRACE_TAIL to begin with;
 * later calls for these columns begin with what it had to become, so that *change is what more fibres change, and not
 * what a longer tail does. */
static spx_status many_neighbours(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r,
                                  size_t lane, const int *off, int noff, int *tail, size_t low, size_t k0, size_t k1,
                                  spx_trace_diagonals *t, double *change, spx_err *e)
{
    int cut;
    spx_status st = neighbours_to(p, b, r, lane, off, noff, *tail, low, k0, k1, t, change, &cut, e);
    if (st == SPX_OK && cut && *tail < SPX_TRACE_LONG_TAIL) {
        double more;
        *tail = SPX_TRACE_LONG_TAIL;
        st = neighbours_to(p, b, r, lane, off, noff, *tail, low, k0, k1, t, &more, &cut, e);
        *change = more > *change ? more : *change;
    }
    return st;
}

#endif
