/* Provides the leverage of pixels: the part of a pixel's own value in its model, w a^T M^-1 a with a its row of A.
 * Lanes are fibres, then columns of the CCD. */
#ifndef SPX_EXTRACT_TRACE_LEVERAGE_H
#define SPX_EXTRACT_TRACE_LEVERAGE_H

#include <string.h>

#include "extract/trace/band.h"
#include "extract/trace/chi2.h"
#include "extract/trace/spots.h"

/* Adds c times the product of two spots to the window, where both are. */
ALWAYS_INLINE void add_product(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_bin_geometry *i,
                               const double *spot_i, const spx_bin_geometry *j, const double *spot_j, double c,
                               double *window)
{
    const int dx = j->xc - i->xc, dy = j->yc - i->yc;
    const int columns = p->nx - (dx < 0 ? -dx : dx), rows = p->ny - (dy < 0 ? -dy : dy);
    const size_t x = dx > 0 ? (size_t)dx : 0, y = dy > 0 ? (size_t)dy : 0, stride = p->nxp;
    if (columns <= 0 || rows <= 0)
        return;
    const double *a = spot_i + y * stride + x;
    const double *other = spot_j + (dy < 0 ? (size_t)-dy : 0) * stride + (dx < 0 ? (size_t)-dx : 0);
    double *to = window + ((size_t)(i->yc - b->wy0) + y) * b->wnx + (size_t)(i->xc - b->wx0) + x;
    for (int row = 0; row < rows; row++, a += stride, other += stride, to += b->wnx)
        for (int v = 0; v < columns; v += SPX_VL)
            store(to + v, load(to + v) + every(c) * load(a + v) * load(other + v));
}

/* Of the blocks of single fibres: what is left out of M^-1 is their coupling. window[wny][wnx]; model alike, or NULL.
 */
static spx_status leverage(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r, double *window,
                           double *model, spx_err *e)
{
    const size_t n = p->nbin, nf = b->nf, nl = b->nl, m = (size_t)b->hi[0], slots = m + 1;
    const size_t npix = (size_t)p->ny * p->nxp, lrow = slots * nl;
    double *inverse = spx_trace_workspace_get(r, SPX_BUFFER_A, n + 1, lrow, e); /* Z(k, k + d), then a ring */
    double *ring = spx_trace_workspace_get(r, SPX_BUFFER_RING, slots * nf, npix, e);
    double *work = spx_trace_workspace_get(r, SPX_BUFFER_SPOT, p->spot_work, 1, e);
    double *rows = spx_trace_workspace_get(r, SPX_BUFFER_CG, slots * slots, SPX_TRACE_LANES, e);
    if (!inverse || !ring || !work || !rows)
        return SPX_EIO;
    for (size_t v = 0; v < nl; v += SPX_VL) {
        vec z[SPX_TRACE_MOST_BAND + 1];
        memset(rows, 0, slots * slots * SPX_VL * sizeof *rows);
        for (size_t k = n; k-- > 0;) {
            store(inverse + k * lrow + v, inverse_row((int)m, b->ldl + k * lrow + v, nl, rows, k % slots, z));
            for (size_t d = 1; d <= m; d++)
                store(inverse + k * lrow + d * nl + v, z[d]);
        }
    }
    memset(window, 0, b->wny * b->wnx * sizeof *window);
    for (size_t k = 0; k < n; k++)
        for (size_t f = 0; f < nf; f++) {
            double *spot = ring + (k % slots * nf + f) * npix;
            if (b->state[k * nf + f] != SPX_TRACE_SPOT)
                continue;
            make_spot(p, b->fibre0 + f, k, &b->at[k * nf + f], work, spot);
            if (model != NULL && b->x[k * nl + f] != 0.0)
                add_model(p, b, &b->at[k * nf + f], spot, b->x[k * nl + f], model);
            for (size_t d = 0; d <= m && d <= k && !b->singular[f]; d++) {
                const size_t old = k - d, at = old * nf + f;
                if (b->state[at] == SPX_TRACE_SPOT)
                    add_product(p, b, &b->at[k * nf + f], spot, &b->at[at], ring + (old % slots * nf + f) * npix,
                                (d > 0 ? 2.0 : 1.0) * inverse[old * lrow + d * nl + f], window);
            }
        }
    for (size_t i = 0; i < b->wny * b->wnx; i++)
        window[i] *= (double)b->weight[i];
    return SPX_OK;
}

#endif
