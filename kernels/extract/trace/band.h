/* Provides the factors of the blocks of single fibres. Lanes are fibres. */
#ifndef SPX_EXTRACT_TRACE_BAND_H
#define SPX_EXTRACT_TRACE_BAND_H

#include <math.h>

#include "calib/band_lanes.h"
#include "extract/trace/trace.h"

static size_t factorise(const spx_trace_plan *p, spx_trace_bundle *b)
{
    const int m = b->hi[0];
    const size_t lrow = (size_t)(m + 1) * b->nl;
    double *diag = b->diag;
    size_t count = 0;
    for (size_t v = 0; v < b->nl; v += SPX_VL) {
        vec u[SPX_TRACE_MOST_BAND + 1];
        ivec bad;
        if (m == 7)
            bad = factor(p->nbin, 7, b->m + v, b->nelem * b->nl, b->nl, every(0.0), b->ldl + v, lrow, b->nl, diag, u);
        else
            bad = factor(p->nbin, m, b->m + v, b->nelem * b->nl, b->nl, every(0.0), b->ldl + v, lrow, b->nl, diag, u);
        for (size_t i = 0; i < SPX_VL; i++)
            if (v + i < b->nf && bad[i] && !b->singular[v + i]) {
                b->singular[v + i] = 1;
                count++;
            }
    }
    return count;
}

#endif
