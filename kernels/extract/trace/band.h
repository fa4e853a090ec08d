/* Provides the factors of the blocks of single fibres. Lanes are fibres. */
#ifndef SPX_EXTRACT_TRACE_BAND_H
#define SPX_EXTRACT_TRACE_BAND_H

#include <math.h>
#include <string.h>

#include "calib/band_lanes.h"
#include "extract/trace/trace.h"

/* Variance of each bin's flux from its fibre's own block, [nbin][nl]: diagonal of the inverse, from the factors.
 * memory: of inverse_rows. */
static void own_variance(const spx_trace_plan *p, const spx_trace_bundle *b, double *memory, double *variance)
{
    const int m = b->hi[0];
    const size_t lrow = (size_t)(m + 1) * b->nl;
    for (size_t v = 0; v < b->nl; v += SPX_VL) {
        vec z[SPX_TRACE_MOST_BAND + 1];
        inverse_rows rows = inverse_begin(m, memory);
        for (size_t k = p->nbin; k-- > 0;)
            store(variance + k * b->nl + v, inverse_row(m, k, b->ldl + k * lrow + v, lrow, b->nl, &rows, z));
    }
}

static spx_status variances(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r, double *z,
                            spx_err *e)
{
    double *memory = spx_trace_workspace_get(r, SPX_BUFFER_RING, SPX_INVERSE_ROWS(b->hi[0]) + 1, SPX_TRACE_LANES, e);
    if (memory)
        own_variance(p, b, memory, z);
    return memory ? SPX_OK : SPX_EIO;
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
