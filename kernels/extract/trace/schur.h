/* Provides A_s, the Schur complement of each fibre of a bundle with respect to all others. */
#ifndef SPX_EXTRACT_TRACE_SCHUR_H
#define SPX_EXTRACT_TRACE_SCHUR_H

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "extract/trace/coupling.h"
#include "extract/trace/drop_scale.h"
#include "extract/trace/outer.h"

/* The scale of the drop tolerances of a vector; *a: for this vector alone. */
static spx_status begin_vector(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r, scales s,
                               size_t lane, spx_trace_diagonals *a)
{
    const size_t column = (size_t)(2 * b->depth + 1 + SPX_TRACE_LONG_TAIL) * SPX_VL;
    double *columns = spx_trace_workspace_get(r, SPX_BUFFER_COLUMNS, columns_size(p, b, column), 1, NULL);
    if (!columns)
        return SPX_EIO;
    find_drop_scale(p, b, lane, a, s.own[0], s.own[1], s.inverse, s.root, columns);
    return SPX_OK;
}

/* The next fibre on each side, one at a time, of those of a vector. some[nbin]: scratch for the bins that matter; NULL:
 * all do. */
static spx_status next_neighbours(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r, scales s,
                                  size_t lane, unsigned char *some, spx_trace_diagonals *a)
{
    const size_t column = (size_t)(2 * b->depth + 1 + SPX_TRACE_LONG_TAIL) * SPX_VL, m = (size_t)b->hi[0];
    double *columns = spx_trace_workspace_get(r, SPX_BUFFER_COLUMNS, columns_size(p, b, column), 1, NULL);
    double *rows = spx_trace_workspace_get(r, SPX_BUFFER_CHAIN, p->nbin * (m + 1), SPX_VL, NULL);
    if (!columns || !rows)
        return SPX_EIO;
    for (size_t i = 0; i < p->nbin * (m + 1) && some; i++)
        store(a->near + i * b->nl + lane, every(0.0));
    for (int side = 0; side < 2; side++) {
        const int last = side == 1 && lane + 1 >= b->nf;        /* which has none on this side */
        for (size_t k = 0; k < p->nbin && (last || !some); k++) /* which was scratch */
            store(s.own[side] + k * b->nl + lane, every(0.0));
        if (!last && (!some || find_coupled(p, b, lane, a, s.own[side], some)))
            one_neighbour(p, b, lane, 2 * side - 1, some, some || side == 1 ? ADD : FIRST, a, s.own[side], rows,
                          columns);
    }
    return SPX_OK;
}

/* Whether what the next fibres take off already says that A_s of a vector is wider than b->band, so that all of it is
 * to be made once more: see bandwidth(). Neighbours make Z larger than that of the fibres' own blocks, with which
 * elements count here. scale[nbin]: scratch. */
static int is_wider(const spx_trace_plan *p, const spx_trace_bundle *b, scales s, size_t lane,
                    const spx_trace_diagonals *a, double *scale)
{
    const size_t n = p->nbin, nl = b->nl, least = least_band(p, b);
    if (!a->wide || least >= b->band || b->band == SPX_TRACE_MOST_BAND)
        return 0;
    if (a->ends[lane / SPX_VL])
        return 1;
    for (size_t k = 0; k < n; k++)
        store(scale + k * SPX_VL,
              counted_inverse(p, load(a->drop_scale + k * nl + lane), load(b->m + k * b->nelem * nl + lane),
                              square(load(s.root + k * nl + lane))));
    return goes_on(p, b, a, lane, 0, n, least, SPX_TRACE_EDGE * p->drop_tolerance, scale);
}

/* All fibres that matter, where more than these do; strong[nbin]: scratch. */
static spx_status more_neighbours(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r, scales s,
                                  size_t lane, spx_trace_diagonals *a, unsigned char *strong)
{
    const size_t n = p->nbin;
    size_t k0, k1;
    unsigned char *needed = a->reached + lane / SPX_VL * n;
    double *scale = spx_trace_workspace_get(r, SPX_BUFFER_COLUMNS, n, SPX_VL, NULL);
    if (!scale)
        return SPX_EIO;
    if (is_wider(p, b, s, lane, a, scale)) {
        a->ends[lane / SPX_VL] = 1;
        return SPX_OK;
    }
    find_strong(p, b, s, lane, a->drop_scale, strong);
    for (size_t from = 0; next_run(n, strong, from, b->band, &k0, &k1); from = k1) {
        int tail = SPX_TRACE_TAIL;
        for (size_t j0 = k0; j0 < k1; j0 += SPX_TRACE_RUN) { /* in pieces, for the sake of memory */
            const size_t j1 = j0 + SPX_TRACE_RUN < k1 ? j0 + SPX_TRACE_RUN : k1;
            const size_t low = j0 > k0 + b->band ? j0 - b->band : k0;
            if (traces_cross(p, b, s, low, j1)) { /* of what T has rows of, too */
                if (crossing_neighbours(p, b, r, s, lane, low, j0, j1, a, NULL) != SPX_OK)
                    return SPX_EIO;
                continue;
            }
            double change = 1.0, before[2] = {INFINITY, INFINITY}; /* of the last two rounds */
            int last = 0;
            for (size_t j = j0; j < j1; j++)
                last = needed[j] > last ? needed[j] : last;
            const int begin = last > 2 ? last : 2; /* with a wider band: as many neighbours as before */
            for (int reach = begin; reach < (int)b->nf && reach <= SPX_TRACE_MAX_REACH &&
                                    (last <= 2 || reach == begin) && change > 0.1 * p->tolerance &&
                                    !(change < SPX_TRACE_ROUNDED && change > SPX_TRACE_STALL * before[0] &&
                                      before[0] > SPX_TRACE_STALL * before[1]);
                 reach++) {
                before[1] = before[0];
                before[0] = reach > begin ? change : INFINITY;
                int off[2 * SPX_TRACE_MAX_REACH], noff = 0;
                for (int i = -reach; i <= reach; i++)
                    if (i != 0)
                        off[noff++] = i;
                if (many_neighbours(p, b, r, lane, off, noff, &tail, low, j0, j1, a, &change, NULL) != SPX_OK)
                    return SPX_EIO;
                memset(needed + j0, reach, j1 - j0);
            }
        }
    }
    return SPX_OK;
}

/* A_f = M_ff - T_f, the Schur complement with respect to all other fibres of the bundle. T is some 1e-7 of M where
 * nothing is masked, and there the next fibre on each side matters, one at a time. Where T is larger, beside masks and
 * where traces are close, more and more fibres on both sides are taken off together until nothing changes. Vectors of
 * fibres are tasks: part[] has what is each one's own of *a. */
static spx_status schur_of(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r, scales s,
                           unsigned char *strong, spx_trace_diagonals *a, spx_trace_diagonals *part)
{
    const size_t n = p->nbin, nl = b->nl, row = (size_t)(b->hi[0] + 1) * nl;
    const int bounded = p->tolerance >= SPX_TRACE_BOUNDED;
    int failed = 0;
    for (size_t v = 0; v < nl / SPX_VL; v++) {
        part[v] = *a;
#pragma omp task shared(failed, s)
        {
            spx_trace_workspace *own = spx_trace_task_begin(r);
            if (begin_vector(p, b, own, s, v * SPX_VL, &part[v]) != SPX_OK ||
                (!bounded && next_neighbours(p, b, own, s, v * SPX_VL, NULL, &part[v]) != SPX_OK))
                __atomic_store_n(&failed, 1, __ATOMIC_RELAXED);
            spx_trace_task_end(r, own, SPX_EXTRACT_SCHUR);
        }
    }
#pragma omp taskwait
    if (bounded && !failed)
        bound_neighbours(p, b, s);
    for (size_t v = 0; v < nl / SPX_VL && bounded && !failed; v++) {
#pragma omp task shared(failed, s)
        {
            spx_trace_workspace *own = spx_trace_task_begin(r);
            if (next_neighbours(p, b, own, s, v * SPX_VL, strong + v * n, &part[v]) != SPX_OK)
                __atomic_store_n(&failed, 1, __ATOMIC_RELAXED);
            spx_trace_task_end(r, own, SPX_EXTRACT_SCHUR);
        }
    }
#pragma omp taskwait
    if (b->nf > 2)
        find_scales(p, b, s);
    for (size_t v = 0; v * SPX_VL < b->nf && b->nf > 2 && !failed; v++) {
        const size_t lane = v * SPX_VL;
        if (!memchr(a->wanted + lane, 1, lane + SPX_VL < b->nf ? SPX_VL : b->nf - lane))
            continue;
#pragma omp task shared(failed, s)
        {
            spx_trace_workspace *own = spx_trace_task_begin(r);
            if (more_neighbours(p, b, own, s, lane, &part[v], strong + v * n) != SPX_OK)
                __atomic_store_n(&failed, 1, __ATOMIC_RELAXED);
            spx_trace_task_end(r, own, SPX_EXTRACT_SCHUR);
        }
    }
#pragma omp taskwait
    for (size_t v = 0; v < nl / SPX_VL; v++) {
        a->wide |= part[v].wide;
        a->z = fmax(a->z, part[v].z);
    }
    for (size_t v = 0; v < nl / SPX_VL && a->wide; v++)
        use_far(p, b, v * SPX_VL, &part[v]);
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < row; i += SPX_VL)
            store(a->near + k * row + i, load(b->m + k * b->nelem * nl + i) - load(a->near + k * row + i));
    for (size_t i = 0; a->wide && i < (b->band - (size_t)b->hi[0]) * n * nl; i += SPX_VL)
        store(a->far + i, every(0.0) - load(a->far + i));
    return failed ? SPX_EIO : SPX_OK;
}

static spx_status schur(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r,
                        spx_trace_diagonals *a, spx_err *e)
{
    const size_t n = p->nbin, nl = b->nl, row = (size_t)(b->hi[0] + 1) * nl;
    a->wide = 0;
    a->z = 0.0;
    if (b->reach < 1) {
        for (size_t k = 0; k < n; k++)
            memcpy(a->near + k * row, b->m + k * b->nelem * nl, row * sizeof *a->near);
        return SPX_OK;
    }
    const size_t around = (size_t)b->depth * nl + SPX_TRACE_LANES, scale = n * nl + 2 * around, nvec = nl / SPX_VL;
    double *sides = spx_trace_workspace_get(r, SPX_BUFFER_SIDES, 6 * scale + nvec * (n / sizeof(double) + 1), 1, e);
    spx_trace_diagonals *part = spx_alloc(nvec, sizeof *part, e);
    spx_status st = sides && part ? SPX_OK : SPX_EIO;
    if (st == SPX_OK) {
        double *const at = sides + around;
        const scales s = {at, {at + scale, at + 2 * scale}, {at + 3 * scale, at + 4 * scale}, at + 5 * scale};
        memset(sides, 0, 6 * scale * sizeof *sides);
        for (size_t k = n > row / nl ? n - row / nl : 0; k < n; k++) /* elements beyond the last bin */
            memset(a->near + k * row, 0, row * sizeof *a->near);
        if ((st = schur_of(p, b, r, s, (unsigned char *)(sides + 6 * scale), a, part)) != SPX_OK)
            st = spx_mem_fail(e);
    }
    spx_free(part);
    return st;
}

#endif
