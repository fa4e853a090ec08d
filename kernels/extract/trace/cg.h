/* Provides M x = y by conjugate gradients, preconditioned with the blocks of single fibres. Lanes are fibres. */
#ifndef SPX_EXTRACT_TRACE_CG_H
#define SPX_EXTRACT_TRACE_CG_H

#include <math.h>
#include <string.h>

#include "extract/trace/trace.h"
#include "simd/simd.h"

/* Vectors of a row that are multiplied together: an element of M is then read for all of them at once, line after
 * line, as processors expect. */
enum { SPX_TRACE_TOGETHER = 4 };

/* Row k of M times v, nv vectors of lanes from lane i on: adds to out what it and its mirror image give. */
ALWAYS_INLINE void multiply_row(const spx_trace_bundle *b, size_t k, size_t i, int nv, const double *v, double *out)
{
    const size_t nl = b->nl;
    const double *row = b->m + k * b->nelem * nl + i;
    const int reach = b->far[k] || b->reach < 1 ? b->reach : 1;
    vec own[SPX_TRACE_TOGETHER], sum[SPX_TRACE_TOGETHER];
    for (int c = 0; c < nv; c++) {
        own[c] = load(v + k * nl + i + c * SPX_VL);
        sum[c] = load(row + c * SPX_VL) * own[c];
    }
    for (int df = 0; df <= reach; df++)
        for (int dk = df == 0 ? 1 : b->lo[df]; dk <= b->hi[df]; dk++) {
            const double *element = row + (b->first[df] + (size_t)(dk - b->lo[df])) * nl;
            const long at = ((long)k + dk) * (long)nl + (long)i + df;
            for (int c = 0; c < nv; c++) {
                const vec m = load(element + c * SPX_VL);
                double *to = out + at + c * SPX_VL;
                sum[c] += m * load(v + at + c * SPX_VL);
                store(to, load(to) + m * own[c]);
            }
        }
    for (int c = 0; c < nv; c++) {
        double *to = out + k * nl + i + c * SPX_VL;
        store(to, load(to) + sum[c]);
    }
}

/* out = M v in rows k0 .. k1 - 1, where v is 0 elsewhere or the rows are all that reach there. Vectors have `depth`
 * rows of zeros before and after. */
static void multiply(const spx_trace_bundle *b, size_t k0, size_t k1, const double *v, double *out)
{
    const size_t nl = b->nl, depth = (size_t)b->depth, together = SPX_TRACE_TOGETHER * SPX_VL;
    memset(out + ((long)k0 - (long)depth) * (long)nl, 0, (k1 - k0 + 2 * depth + 1) * nl * sizeof *out);
    for (size_t k = k0; k < k1; k++) {
        size_t i = 0;
        for (; i + together <= nl; i += together)
            multiply_row(b, k, i, SPX_TRACE_TOGETHER, v, out);
        for (; i < nl; i += SPX_VL)
            multiply_row(b, k, i, 1, v, out);
    }
}

/* z = P^-1 r in rows k0 .. k1 - 1 with P the blocks of the single fibres; z is 0 in the rows around them. */
static void precondition(const spx_trace_bundle *b, size_t k0, size_t k1, const double *r, double *z)
{
    const size_t nl = b->nl, lrow = (size_t)(b->hi[0] + 1) * nl;
    const int m = b->hi[0];
    for (size_t k = k0; k < k1; k++)
        for (size_t i = 0; i < nl; i += SPX_VL) {
            vec sum = load(r + k * nl + i);
            const double *l = b->ldl + k * lrow + i;
            for (int t = 1; t <= m; t++)
                sum -= load(l - (size_t)t * lrow + (size_t)t * nl) * load(z + ((long)k - t) * (long)nl + (long)i);
            store(z + k * nl + i, sum);
        }
    for (size_t k = k1; k-- > k0;)
        for (size_t i = 0; i < nl; i += SPX_VL) {
            const double *l = b->ldl + k * lrow + i;
            vec sum = load(z + k * nl + i) * load(l);
            for (int t = 1; t <= m; t++)
                sum -= load(l + (size_t)t * nl) * load(z + (k + (size_t)t) * nl + i);
            store(z + k * nl + i, sum);
        }
}

static double inner(size_t n, const double *a, const double *c)
{
    vec sum = every(0.0);
    for (size_t i = 0; i < n; i += SPX_VL)
        sum += load(a + i) * load(c + i);
    return sum_lanes(sum);
}

/* Frames with masks need some 15. */
#define MOST_STEPS 100

/* Conjugate gradients for rows k0 .. k1 - 1 of M x = y from the rest r of y, a vector with margins; z, q, d: vectors of
 * zeros. The preconditioned residual r^T P^-1 r is the squared error of x in units of its standard deviations, summed
 * over the rows, where fibres are hardly coupled: that is what is driven below the square of `absolute`, or `relative`
 * times what it was at first. The squared error itself, r^T M^-1 r, is up to 1/l of it, l the smallest eigenvalue of
 * P^-1 M, and the longest step is at most 1/l: 1.1 in usual frames, 10^7 where hardly a pixel is left. `coupled`: the
 * limit is smaller by the square of the longest step, for the steps so far may not have met l yet (a step of 5.8 left
 * fluxes 2e-7 of their errors off for a tolerance of 1e-8). Returns whether it is reached. */
static int iterate(const spx_trace_bundle *b, size_t k0, size_t k1, double absolute, double relative, int coupled,
                   double *r, double *z, double *q, double *d, double *x)
{
    const size_t nl = b->nl, from = k0 * nl, n = (k1 - k0) * nl;
    precondition(b, k0, k1, r, z);
    memcpy(d + from, z + from, n * sizeof *d);
    double rz = inner(n, r + from, z + from), longest = 1.0;
    const double rounding = relative * rz;
    double enough = fmax(absolute * absolute, rounding);
    int steps = 0;
    while (rz > enough && steps < MOST_STEPS) {
        multiply(b, k0, k1, d, q);
        double dq = inner(n, d + from, q + from);
        if (!(dq > 0.0 && isfinite(dq)))
            break;
        double alpha = rz / dq;
        longest = coupled ? fmax(longest, alpha) : 1.0;
        enough = fmax(absolute * absolute / (longest * longest), rounding);
        for (size_t i = from; i < from + n; i += SPX_VL) {
            store(x + i, load(x + i) + every(alpha) * load(d + i));
            store(r + i, load(r + i) - every(alpha) * load(q + i));
        }
        precondition(b, k0, k1, r, z);
        double next = inner(n, r + from, z + from), beta = next / rz;
        rz = next;
        for (size_t i = from; i < from + n; i += SPX_VL)
            store(d + i, load(z + i) + every(beta) * load(d + i));
        steps++;
    }
    return rz <= enough;
}

/* Four vectors of zeros. */
static double *vectors_of(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *workspace,
                          size_t *size, spx_err *e)
{
    const size_t margin = (size_t)b->depth * b->nl + b->nl;
    *size = p->nbin * b->nl + 2 * margin;
    double *memory = spx_trace_workspace_get(workspace, SPX_BUFFER_CG, 4, *size, e);
    if (memory)
        memset(memory, 0, 4 * *size * sizeof *memory);
    return memory ? memory + margin : NULL;
}

/* Solves M x = y; y[nbin][nl], x alike; `absolute` and `relative` as for iterate(). */
static spx_status solve_to(const spx_trace_plan *p, const spx_trace_bundle *b, const double *y, double absolute,
                           double relative, spx_trace_workspace *workspace, double *x, int *solved, spx_err *e)
{
    const size_t n = p->nbin * b->nl;
    size_t size;
    double *r = vectors_of(p, b, workspace, &size, e);
    if (!r)
        return SPX_EIO;
    memcpy(r, y, n * sizeof *r);
    memset(x, 0, n * sizeof *x);
    *solved = iterate(b, 0, p->nbin, absolute, relative, 1, r, r + size, r + 2 * size, r + 3 * size, x);
    return SPX_OK;
}

/* Where rounding ends. */
#define ROUNDING 1e-26

static spx_status improve(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *workspace,
                          const unsigned char *chosen, double tolerance, int *solved, spx_err *e)
{
    const size_t n = p->nbin, nl = b->nl, depth = (size_t)b->depth;
    size_t size;
    double *r = vectors_of(p, b, workspace, &size, e);
    if (!r)
        return SPX_EIO;
    double *z = r + size, *q = z + size, *d = q + size;
    *solved = 1;
    for (size_t k0 = 0, k1; k0 < n && *solved; k0 = k1) {
        for (k1 = k0 + 1; k1 < n && chosen[k1] == chosen[k0];)
            k1++;
        if (!chosen[k0])
            continue;
        /* r = y - M x needs the rows that reach into these; what is left behind is 0 again */
        const size_t a0 = k0 > depth ? k0 - depth : 0, a1 = k1 + depth < n ? k1 + depth : n;
        const size_t v0 = a0 > depth ? a0 - depth : 0, v1 = a1 + depth < n ? a1 + depth : n;
        memcpy(d + v0 * nl, b->x + v0 * nl, (v1 - v0) * nl * sizeof *d);
        multiply(b, a0, a1, d, q);
        memset(d + v0 * nl, 0, (v1 - v0) * nl * sizeof *d);
        for (size_t i = k0 * nl; i < k1 * nl; i += SPX_VL)
            store(r + i, load(b->y + i) - load(q + i));
        *solved = iterate(b, k0, k1, tolerance, ROUNDING, 0, r, z, q, d, b->x);
        memset(z + k0 * nl, 0, (k1 - k0) * nl * sizeof *z);
        memset(d + k0 * nl, 0, (k1 - k0) * nl * sizeof *d);
    }
    return SPX_OK;
}

/* The deconvolved flux, to the tolerance or to where rounding ends. */
static spx_status solve(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *workspace, int *solved,
                        spx_err *e)
{
    return solve_to(p, b, b->y, p->tolerance, ROUNDING, workspace, b->x, solved, e);
}

#endif
