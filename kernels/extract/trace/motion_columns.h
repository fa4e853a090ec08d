/* Provides z = M^-1 v of the motion of traces (extract/motion.h), a system for each fibre and q, where v reaches the
 * fibres next to it alone: conjugate gradients on the fibres around, preconditioned with the blocks of single fibres.
 * Lanes are systems, each with its own steps, so that none feels another.
 *
 * Fibres further away are left out of M. Their residual r of the solution says what that costs: v^T M^-1 v is larger by
 * r^T M^-1 r. Where this is too much they are taken in. */
#ifndef SPX_EXTRACT_TRACE_MOTION_COLUMNS_H
#define SPX_EXTRACT_TRACE_MOTION_COLUMNS_H

#include <string.h>

#include "extract/motion.h"
#include "extract/motion_math.h"
#include "extract/trace/trace.h"
#include "simd/simd.h"

/* Most steps of conjugate gradients. */
#define MOST_COLUMN_STEPS 100

/* The systems of fibres lane ... lane + SPX_VL - 1, both q. A vector has fibres low ... high, counted from the system's
 * own, of which those beyond in ... out are 0 but in the residual that is looked at last; element (d, k, q) of SPX_VL
 * lanes at ((d - low) rows + pad + k) 2 + q. */
typedef struct {
    const spx_trace_bundle *b;
    size_t nbin, lane, rows, pad;
    int low, high, in, out, coupled; /* coupled: fibres apart that have elements of M */
} lane_systems;

ALWAYS_INLINE double *column_at(const lane_systems *c, const double *v, int d, size_t k)
{
    return (double *)v + ((size_t)(d - c->low) * c->rows + c->pad + k) * 2 * SPX_VL;
}

static size_t column_size(const lane_systems *c)
{
    return (size_t)(c->high - c->low + 1) * c->rows * 2 * SPX_VL;
}

/* Lanes whose fibre d away is one of the bundle. */
ALWAYS_INLINE vec column_lanes(const lane_systems *c, int d)
{
    double there[SPX_VL];
    for (size_t i = 0; i < SPX_VL; i++) {
        const long f = (long)(c->lane + i) + d;
        there[i] = c->lane + i < c->b->nf && f >= 0 && f < (long)c->b->nf;
    }
    return load(there);
}

/* Adds what fibre `from` has of v in row k to the sums of fibre `to`, both counted from the system's own. */
ALWAYS_INLINE void add_columns(const lane_systems *c, const double *v, int from, int to, size_t k, vec sum[2])
{
    const spx_trace_bundle *b = c->b;
    const int df = to < from ? from - to : to - from, own = df == 0;
    const size_t nl = b->nl, first = b->first[df];
    const int lo = b->lo[df], hi = b->hi[df];
    if (to <= from) { /* elements of row k: bin k of `to`, k + dk of `from` */
        const double *m = b->m + (k * b->nelem + first) * nl + (size_t)((long)c->lane + to);
        for (int dk = own ? 1 : lo; dk <= hi; dk++) {
            const vec e = load(m + (size_t)(dk - lo) * nl);
            const double *x = column_at(c, v, from, (size_t)((long)k + dk));
            sum[0] += e * load(x);
            sum[1] += e * load(x + SPX_VL);
        }
    }
    if (to >= from) { /* of rows k - dk of the bundle: bin k - dk of `from`, bin k of `to` */
        const long most = (long)k, least = (long)k - (long)c->nbin + 1;
        const int begin = own ? 1 : least > lo ? (int)least : lo, end = most < hi ? (int)most : hi;
        for (int dk = begin; dk <= end; dk++) {
            const size_t at = (size_t)((long)k - dk);
            const vec e =
                load(b->m + (at * b->nelem + first + (size_t)(dk - lo)) * nl + (size_t)((long)c->lane + from));
            const double *x = column_at(c, v, from, at);
            sum[0] += e * load(x);
            sum[1] += e * load(x + SPX_VL);
        }
    }
}

/* out = M v for fibres first ... last; v is 0 beyond in ... out. */
static void multiply_columns(const lane_systems *c, const double *v, int first, int last, double *out)
{
    for (int d = first; d <= last; d++) {
        const vec there = column_lanes(c, d);
        const int from = d - c->coupled > c->in ? d - c->coupled : c->in;
        const int to = d + c->coupled < c->out ? d + c->coupled : c->out;
        for (size_t k = 0; k < c->nbin; k++) {
            vec sum[2] = {every(0.0), every(0.0)}, more[2] = {every(0.0), every(0.0)};
            if (d >= c->in && d <= c->out) {
                const vec e = load(c->b->m + k * c->b->nelem * c->b->nl + (size_t)((long)c->lane + d));
                const double *x = column_at(c, v, d, k);
                sum[0] = e * load(x);
                sum[1] = e * load(x + SPX_VL);
            }
            for (int i = from; i <= to; i++)
                add_columns(c, v, i, d, k, i < d ? more : sum);
            double *to_row = column_at(c, out, d, k);
            store(to_row, (sum[0] + more[0]) * there);
            store(to_row + SPX_VL, (sum[1] + more[1]) * there);
        }
    }
}

/* z = P^-1 r for fibres first ... last, with P the blocks of single fibres. */
static void precondition_columns(const lane_systems *c, const double *r, int first, int last, double *z)
{
    const spx_trace_bundle *b = c->b;
    const size_t nl = b->nl, lrow = (size_t)(b->hi[0] + 1) * nl;
    const int m = b->hi[0];
    for (int d = first; d <= last; d++) {
        const double *ldl = b->ldl + ((long)c->lane + d);
        for (size_t k = 0; k < c->nbin; k++) {
            const double *from = column_at(c, r, d, k), *l = ldl + k * lrow;
            double *to = column_at(c, z, d, k);
            vec sum[2] = {load(from), load(from + SPX_VL)};
            for (int t = m; t >= 1; t--) { /* the bin before last: it is what this one waits for */
                const vec e = load(l - (size_t)t * lrow + (size_t)t * nl);
                sum[0] -= e * load(to - 2 * t * SPX_VL);
                sum[1] -= e * load(to - (2 * t - 1) * SPX_VL);
            }
            store(to, sum[0]);
            store(to + SPX_VL, sum[1]);
        }
        for (size_t k = c->nbin; k-- > 0;) {
            const double *l = ldl + k * lrow;
            double *to = column_at(c, z, d, k);
            const vec inverse = load(l);
            vec sum[2] = {load(to) * inverse, load(to + SPX_VL) * inverse};
            for (int t = m; t >= 1; t--) {
                const vec e = load(l + (size_t)t * nl);
                sum[0] -= e * load(to + 2 * t * SPX_VL);
                sum[1] -= e * load(to + (2 * t + 1) * SPX_VL);
            }
            store(to, sum[0]);
            store(to + SPX_VL, sum[1]);
        }
    }
}

/* Products of two vectors over fibres first ... last, each lane and q its own. */
static void inner_columns(const lane_systems *c, const double *a, const double *v, int first, int last, vec sum[2])
{
    sum[0] = sum[1] = every(0.0);
    for (int d = first; d <= last; d++)
        for (size_t k = 0; k < c->nbin; k++) {
            const double *x = column_at(c, a, d, k), *y = column_at(c, v, d, k);
            sum[0] += load(x) * load(y);
            sum[1] += load(x + SPX_VL) * load(y + SPX_VL);
        }
}

/* x = M^-1 r in each lane; x, z, q, d: zeros. r is used up. The preconditioned residual r^T P^-1 r is driven below
 * SPX_MOTION_RELATIVE of what it was at first. row: with J^T W J. Returns whether the fibres left out do not matter. */
static int solve_lanes(const lane_systems *c, const spx_motion_row *row, double *r, double *x, double *z, double *q,
                       double *d)
{
    vec rz[2], dq[2], next[2], enough[2], little[2];
    ivec on[2];
    precondition_columns(c, r, c->in, c->out, z);
    inner_columns(c, r, z, c->in, c->out, rz);
    memcpy(d, z, column_size(c) * sizeof *d);
    for (int i = 0; i < 2; i++) {
        double of_f[SPX_VL];
        for (size_t l = 0; l < SPX_VL; l++)
            of_f[l] = c->lane + l < c->b->nf ? SPX_MOTION_LEFT_OUT_OF_F * row[c->lane + l].fisher[2 * i] : 0;
        enough[i] = every(SPX_MOTION_RELATIVE) * rz[i];
        little[i] = vmax(every(SPX_MOTION_LEFT_OUT) * rz[i], load(of_f));
    }
    for (int step = 0; step < MOST_COLUMN_STEPS; step++) {
        for (int i = 0; i < 2; i++)
            on[i] = rz[i] > enough[i];
        if (!any_lane(on[0] | on[1]))
            break;
        multiply_columns(c, d, c->in, c->out, q);
        inner_columns(c, d, q, c->in, c->out, dq);
        vec alpha[2], beta[2];
        for (int i = 0; i < 2; i++) {
            on[i] &= dq[i] > every(0.0);
            alpha[i] = choose(on[i], rz[i] / choose(on[i], dq[i], every(1.0)), every(0.0));
        }
        if (!any_lane(on[0] | on[1]))
            break;
        for (int f = c->in; f <= c->out; f++)
            for (size_t k = 0; k < c->nbin; k++)
                for (int i = 0; i < 2; i++) {
                    const size_t at = (size_t)(column_at(c, x, f, k) - x) + (size_t)i * SPX_VL;
                    store(x + at, load(x + at) + alpha[i] * load(d + at));
                    store(r + at, load(r + at) - alpha[i] * load(q + at));
                }
        precondition_columns(c, r, c->in, c->out, z);
        inner_columns(c, r, z, c->in, c->out, next);
        for (int i = 0; i < 2; i++) {
            beta[i] = choose(on[i], next[i] / choose(on[i], rz[i], every(1.0)), every(0.0));
            rz[i] = next[i];
        }
        for (int f = c->in; f <= c->out; f++)
            for (size_t k = 0; k < c->nbin; k++)
                for (int i = 0; i < 2; i++) {
                    const size_t at = (size_t)(column_at(c, x, f, k) - x) + (size_t)i * SPX_VL;
                    store(d + at, load(z + at) + beta[i] * load(d + at));
                }
    }
    /* the residual of the fibres beyond */
    for (int side = 0; side < 2; side++) {
        const int first = side == 0 ? c->low : c->out + 1, last = side == 0 ? c->in - 1 : c->high;
        multiply_columns(c, x, first, last, q);
        precondition_columns(c, q, first, last, z);
        inner_columns(c, q, z, first, last, next);
        for (int i = 0; i < 2; i++)
            if (any_lane(next[i] > little[i]))
                return 0;
    }
    return 1;
}

/* z = M^-1 v of all fibres: v, z: [2][2 reach + 1][nbin][nl], element (q, d, k) of the system of a lane on the fibre d
 * away, d = -reach ... reach. coupled: fibres apart that have elements of M. row[nf]: with J^T W J. v is 0 where there
 * is no fibre. */
static spx_status solve_columns(const spx_trace_plan *p, const spx_trace_bundle *b, int coupled, int reach,
                                const spx_motion_row *row, const double *v, spx_trace_workspace *r, double *z,
                                spx_err *e)
{
    const size_t nl = b->nl, part = p->nbin * nl, around = 2 * (size_t)reach + 1;
    for (size_t lane = 0; lane < b->nf; lane += SPX_VL)
        for (int width = reach, done = 0; !done; width *= 2) {
            const int low = -(int)lane - SPX_VL + 1, high = (int)b->nf - 1 - (int)lane, beyond = width + coupled;
            lane_systems c = {.b = b, .nbin = p->nbin, .lane = lane, .coupled = coupled};
            c.pad = (size_t)(b->depth > b->hi[0] ? b->depth : b->hi[0]);
            c.rows = p->nbin + 2 * c.pad;
            c.low = -beyond > low ? -beyond : low;
            c.high = beyond < high ? beyond : high;
            c.in = -width > low ? -width : low;
            c.out = width < high ? width : high;
            const size_t size = column_size(&c);
            double *memory = spx_trace_workspace_get(r, SPX_BUFFER_CG, 5, size, e);
            if (memory == NULL)
                return SPX_EIO;
            memset(memory, 0, 5 * size * sizeof *memory);
            for (int d = c.in > -reach ? c.in : -reach; d <= c.out && d <= reach; d++)
                for (size_t k = 0; k < p->nbin; k++)
                    for (size_t q = 0; q < 2; q++)
                        store(column_at(&c, memory, d, k) + q * SPX_VL,
                              load(v + (q * around + (size_t)(d + reach)) * part + k * nl + lane));
            double *x = memory + size;
            done = solve_lanes(&c, row, memory, x, x + size, x + 2 * size, x + 3 * size);
            for (int d = c.in > -reach ? c.in : -reach; d <= c.out && d <= reach; d++)
                for (size_t k = 0; k < p->nbin; k++)
                    for (size_t q = 0; q < 2; q++)
                        store(z + (q * around + (size_t)(d + reach)) * part + k * nl + lane,
                              load(column_at(&c, x, d, k) + q * SPX_VL));
        }
    return SPX_OK;
}

#endif
