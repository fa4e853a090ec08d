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

/* Pixels of terms under those of spot i, from the first row on, and how many rows have them. */
typedef struct {
    const double *from[SPX_TRACE_MAX_BAND + 1];
    double factor[SPX_TRACE_MAX_BAND + 1];
    int last[SPX_TRACE_MAX_BAND + 1], n;
} spot_terms;

/* Adds spot i times the sum of the terms to the window, in nv vectors of columns. */
ALWAYS_INLINE void add_sum(const spx_trace_plan *p, const spx_trace_bundle *b, const double *spot_i,
                           const spot_terms *term, int nv, size_t column, double *to)
{
    const size_t row = p->nxp;
    spot_i += column;
    to += column;
    for (int y = 0, n = term->n; n > 0 && y < term->last[0]; y++, spot_i += row, to += b->wnx) {
        const size_t at = (size_t)y * row + column;
        vec sum[3];
        while (term->last[n - 1] <= y)
            n--;
        for (int v = 0; v < nv; v++)
            sum[v] = every(0.0);
        for (int t = 0; t < n; t++)
            for (int v = 0; v < nv; v++)
                sum[v] += every(term->factor[t]) * load(term->from[t] + at + v * SPX_VL);
        for (int v = 0; v < nv; v++)
            store(to + v * SPX_VL, load(to + v * SPX_VL) + load(spot_i + v * SPX_VL) * sum[v]);
    }
}

/* A spot and its factor. */
typedef struct {
    const spx_bin_geometry *at;
    const double *spot;
    double factor;
} spot_term;

/* Adds spot i times the sum of the terms to the window, where both are. Traces go on along y: the first term is spot i
 * itself, others have no more of its rows than those before, and their sum is made row by row in registers. Beyond the
 * columns of a spot there are zeros, in its rows and at the end of those before. What lies otherwise is added alone. */
ALWAYS_INLINE void add_products(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_bin_geometry *i,
                                const double *spot_i, int nterms, const spot_term *term, double *window)
{
    const int zeros = (int)p->nxp - p->nx;
    spot_terms s;
    s.n = 0; /* without zeros in all of it */
    for (int t = 0; t < nterms; t++) {
        const int dx = term[t].at->xc - i->xc, dy = term[t].at->yc - i->yc;
        if (dx < -zeros || dx > zeros || dy > 0 || (s.n > 0 && p->ny + dy > s.last[s.n - 1])) {
            add_product(p, b, i, spot_i, term[t].at, term[t].spot, term[t].factor, window);
        } else if (p->ny + dy > 0) {
            s.from[s.n] = term[t].spot - (long)dy * (long)p->nxp - dx;
            s.factor[s.n] = term[t].factor;
            s.last[s.n++] = p->ny + dy;
        }
    }
    double *to = window + (size_t)(i->yc - b->wy0) * b->wnx + (size_t)(i->xc - b->wx0);
    int v = 0;
    for (const int nv = spot_vectors(p); v < nv;) {
        const size_t column = (size_t)v * SPX_VL;
        if (nv - v >= 3)
            add_sum(p, b, spot_i, &s, 3, column, to);
        else if (nv - v == 2)
            add_sum(p, b, spot_i, &s, 2, column, to);
        else
            add_sum(p, b, spot_i, &s, 1, column, to);
        v += 3;
    }
}

/* Of the blocks of single fibres: what is left out of M^-1 is their coupling. window[wny][wnx]; model alike, or NULL.
 */
static spx_status leverage(const spx_trace_plan *p, const spx_trace_bundle *b, spx_trace_workspace *r, double *window,
                           double *model, spx_err *e)
{
    const size_t n = p->nbin, nf = b->nf, nl = b->nl, m = (size_t)b->hi[0], slots = m + 1;
    const size_t npix = (size_t)p->ny * p->nxp, lrow = slots * nl;
    double *inverse = spx_trace_workspace_get(r, SPX_BUFFER_A, n + 1, lrow, e); /* Z(k, k + d) */
    double *ring = spx_trace_workspace_get(r, SPX_BUFFER_RING, slots * nf * npix + 2 * SPX_TRACE_LANES, 1, e);
    double *work = spx_trace_workspace_get(r, SPX_BUFFER_SPOT, p->spot_work, 1, e);
    double *memory = spx_trace_workspace_get(r, SPX_BUFFER_CG, SPX_INVERSE_ROWS(m) + 1, SPX_TRACE_LANES, e);
    if (!inverse || !ring || !work || !memory)
        return SPX_EIO;
    for (size_t v = 0; v < nl; v += SPX_VL) {
        vec z[SPX_TRACE_MOST_BAND + 1];
        inverse_rows rows = inverse_begin((int)m, memory);
        for (size_t k = n; k-- > 0;) {
            store(inverse + k * lrow + v, inverse_row((int)m, k, b->ldl + k * lrow + v, lrow, nl, &rows, z));
            for (size_t d = 1; d <= m; d++)
                store(inverse + k * lrow + d * nl + v, z[d]);
        }
    }
    memset(window, 0, b->wny * b->wnx * sizeof *window);
    memset(ring, 0, (slots * nf * npix + 2 * SPX_TRACE_LANES) * sizeof *ring);
    ring += SPX_TRACE_LANES; /* columns before the first spot, and behind the last: see add_products() */
    for (size_t k = 0; k < n; k++)
        for (size_t f = 0; f < nf; f++) {
            double *spot = ring + (k % slots * nf + f) * npix;
            if (b->state[k * nf + f] != SPX_TRACE_SPOT)
                continue;
            make_spot(p, b->fibre0 + f, k, &b->at[k * nf + f], work, spot);
            if (model != NULL && b->x[k * nl + f] != 0.0)
                add_model(p, b, &b->at[k * nf + f], spot, b->x[k * nl + f], model);
            spot_term term[SPX_TRACE_MAX_BAND + 1];
            int terms = 0;
            for (size_t d = 0; d <= m && d <= k && !b->singular[f]; d++) {
                const size_t old = k - d, at = old * nf + f;
                if (b->state[at] == SPX_TRACE_SPOT)
                    term[terms++] = (spot_term){&b->at[at], ring + (old % slots * nf + f) * npix,
                                                (d > 0 ? 2.0 : 1.0) * inverse[old * lrow + d * nl + f]};
            }
            add_products(p, b, &b->at[k * nf + f], spot, terms, term, window);
        }
    for (size_t i = 0; i < b->wny * b->wnx; i++)
        window[i] *= (double)b->weight[i];
    return SPX_OK;
}

#endif
