/* Provides the factors of the blocks of single fibres. Lanes are fibres. */
#ifndef SPX_EXTRACT_TRACE_BAND_H
#define SPX_EXTRACT_TRACE_BAND_H

#include <math.h>
#include <string.h>

#include "calib/band_lanes.h"
#include "extract/trace/trace.h"

/* Variance of each bin's flux from its fibre's own block, [nbin][nl]: diagonal of the inverse, from the factors. ring:
 * scratch of (m + 1)^2 vectors. */
static void own_variance(const spx_trace_plan *p, const spx_trace_bundle *b, double *ring, double *variance)
{
    const int m = b->hi[0];
    const size_t lrow = (size_t)(m + 1) * b->nl;
    for (size_t v = 0; v < b->nl; v += SPX_VL) {
        vec z[SPX_TRACE_MOST_BAND + 1];
        memset(ring, 0, (size_t)(m + 1) * (size_t)(m + 1) * SPX_VL * sizeof *ring);
        for (size_t k = p->nbin; k-- > 0;)
            store(variance + k * b->nl + v, inverse_row(m, b->ldl + k * lrow + v, b->nl, ring, k % (size_t)(m + 1), z));
    }
}

static spx_status variances(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r, double *z,
                            spx_err *e)
{
    const size_t m = (size_t)b->hi[0];
    double *ring = spx_trace_workspace_get(r, SPX_BUFFER_RING, (m + 1) * (m + 1), SPX_TRACE_LANES, e);
    if (ring)
        own_variance(p, b, ring, z);
    return ring ? SPX_OK : SPX_EIO;
}

/* Rows k0 .. k1 - 1 of a vector's factors, from those of the rows before. Returns lanes without a factor. */
static ivec factor_rows(const spx_trace_bundle *b, size_t v, size_t k0, size_t k1)
{
    const int m = b->hi[0];
    const size_t lrow = (size_t)(m + 1) * b->nl, mrow = b->nelem * b->nl;
    const double *a = b->m + k0 * mrow + v;
    double *l = b->ldl + k0 * lrow + v, *diag = b->diag + k0 * SPX_VL;
    vec u[SPX_LANES_BLOCK * (SPX_TRACE_MOST_BAND + 1)];
    for (size_t t = 1; t <= (size_t)m && t <= k0; t++)
        store(diag - t * SPX_VL, every(1.0) / load(l - t * lrow));
    if (m == 7)
        return factor(k1 - k0, 7, a, mrow, b->nl, every(0.0), l, lrow, b->nl, diag, u);
    return factor(k1 - k0, m, a, mrow, b->nl, every(0.0), l, lrow, b->nl, diag, u);
}

static size_t factorise(const spx_trace_plan *p, spx_trace_bundle *b, const unsigned char *only)
{
    const size_t n = p->nbin;
    size_t count = 0;
    for (size_t v = 0; v < b->nl; v += SPX_VL) {
        ivec bad = EVERY_INT(0);
        for (size_t k0 = 0, k1; k0 < n; k0 = k1) {
            for (k1 = only ? k0 + 1 : n; k1 < n && only[k1] == only[k0];)
                k1++;
            if (!only || only[k0])
                bad |= factor_rows(b, v, k0, k1);
        }
        for (size_t i = 0; i < SPX_VL; i++)
            if (v + i < b->nf && bad[i] && !b->singular[v + i]) {
                b->singular[v + i] = 1;
                count++;
            }
    }
    return count;
}

#endif
