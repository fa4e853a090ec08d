/* Provides M x = y by conjugate gradients, preconditioned with the blocks of single fibres. Lanes are fibres. */
#ifndef SPX_EXTRACT_TRACE_CG_H
#define SPX_EXTRACT_TRACE_CG_H

#include <math.h>
#include <string.h>

#include "extract/trace/trace.h"
#include "simd/simd.h"

/* out = M v. Vectors have `depth` rows of zeros before and after. */
static void multiply(const spx_trace_plan *p, const spx_trace_bundle *b, const double *v, double *out)
{
    const size_t nl = b->nl;
    memset(out - (size_t)b->depth * nl, 0, (p->nbin + 2 * (size_t)b->depth + 1) * nl * sizeof *out);
    for (size_t k = 0; k < p->nbin; k++) {
        const double *row = b->m + k * b->nelem * nl, *vk = v + k * nl;
        for (size_t i = 0; i < nl; i += SPX_VL) {
            const vec own = load(vk + i);
            vec sum = load(row + i) * own;
            for (int df = 0; df <= b->reach; df++)
                for (int dk = df == 0 ? 1 : b->lo[df]; dk <= b->hi[df]; dk++) {
                    vec m = load(row + (b->first[df] + (size_t)(dk - b->lo[df])) * nl + i);
                    long at = ((long)k + dk) * (long)nl + (long)i + df;
                    sum += m * load(v + at);
                    store(out + at, load(out + at) + m * own);
                }
            store(out + k * nl + i, load(out + k * nl + i) + sum);
        }
    }
}

/* z = P^-1 r with P the blocks of the single fibres. */
static void precondition(const spx_trace_plan *p, const spx_trace_bundle *b, const double *r, double *z)
{
    const size_t nl = b->nl, lrow = (size_t)(b->hi[0] + 1) * nl;
    const int m = b->hi[0];
    for (size_t k = 0; k < p->nbin; k++)
        for (size_t i = 0; i < nl; i += SPX_VL) {
            vec sum = load(r + k * nl + i);
            const double *l = b->ldl + k * lrow + i;
            for (int t = 1; t <= m; t++)
                sum -= load(l - (size_t)t * lrow + (size_t)t * nl) * load(z + ((long)k - t) * (long)nl + (long)i);
            store(z + k * nl + i, sum);
        }
    for (size_t k = p->nbin; k-- > 0;)
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

/* Solves M x = y; y[nbin][nl], x alike. The preconditioned residual r^T P^-1 r is the squared error of x in units of
 * its standard deviations, summed over the bundle: that is what is driven below the square of `absolute`, or `relative`
 * times what it was at first. */
static spx_status solve_to(const spx_trace_plan *p, const spx_trace_bundle *b, const double *y, double absolute,
                           double relative, spx_trace_workspace *workspace, double *x, int *solved, spx_err *e)
{
    const size_t nl = b->nl, n = p->nbin * nl, margin = (size_t)b->depth * nl + nl, size = n + 2 * margin;
    double *memory = spx_trace_workspace_get(workspace, SPX_BUFFER_CG, 4, size, e);
    if (!memory)
        return SPX_EIO;
    memset(memory, 0, 4 * size * sizeof *memory);
    double *r = memory + margin, *z = r + size, *q = z + size, *d = q + size;
    memcpy(r, y, n * sizeof *r);
    memset(x, 0, n * sizeof *x);
    precondition(p, b, r, z);
    memcpy(d, z, n * sizeof *d);
    double rz = inner(n, r, z), enough = absolute * absolute;
    enough = enough > relative * rz ? enough : relative * rz;
    int steps = 0;
    while (rz > enough && steps < MOST_STEPS) {
        multiply(p, b, d, q);
        double dq = inner(n, d, q);
        if (!(dq > 0.0 && isfinite(dq)))
            break;
        double alpha = rz / dq;
        for (size_t i = 0; i < n; i += SPX_VL) {
            store(x + i, load(x + i) + every(alpha) * load(d + i));
            store(r + i, load(r + i) - every(alpha) * load(q + i));
        }
        precondition(p, b, r, z);
        double next = inner(n, r, z), beta = next / rz;
        rz = next;
        for (size_t i = 0; i < n; i += SPX_VL)
            store(d + i, load(z + i) + every(beta) * load(d + i));
        steps++;
    }
    *solved = rz <= enough;
    return SPX_OK;
}

/* The deconvolved flux, to the tolerance or to where rounding ends. */
static spx_status solve(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *workspace, int *solved,
                        spx_err *e)
{
    return solve_to(p, b, b->y, p->tolerance, 1e-26, workspace, b->x, solved, e);
}

#endif
