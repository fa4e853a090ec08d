/* Provides the light that the variance of a model is made of: spectra that are smoothed where there are no lines. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "extract/trace/trace.h"
#include "num/stat.h"

enum { HALF = SPX_TRACE_SMOOTH_HALF };

/* Median of the bins around k with information; 0 where there are none. */
static double median_around(const double *flux, const unsigned char *known, size_t n, size_t k)
{
    double v[2 * HALF + 1];
    size_t count = 0;
    for (size_t j = k > HALF ? k - HALF : 0; j <= k + HALF && j < n; j++)
        if (known[j])
            v[count++] = flux[j];
    return spx_median(v, count);
}

spx_status spx_trace_smooth_light(const spx_trace_plan *p, const spx_trace_kernels *kernels, const spx_trace_bundle *b,
                                  spx_trace_workspace *r, int lines, double **light, spx_err *e)
{
    const size_t n = p->nbin, nl = b->nl, row = n * nl;
    double *smooth = spx_trace_workspace_get(r, SPX_BUFFER_SMOOTH, 2 * row + 2 * n, 1, e);
    *light = spx_trace_workspace_get(r, SPX_BUFFER_MODEL, b->wny, b->wnx, e);
    if (!smooth || !*light)
        return SPX_EIO;
    double *variance = smooth + row, *flux = variance + row;
    unsigned char *known = (unsigned char *)(flux + n);
    memset(*light, 0, b->wny * b->wnx * sizeof **light);
    memset(smooth, 0, row * sizeof *smooth);
    const spx_status st = kernels->variances(p, b, r, variance, e);
    if (st != SPX_OK)
        return st;
    for (size_t f = 0; f < b->nf; f++) {
        for (size_t k = 0; k < n; k++) {
            flux[k] = b->x[k * nl + f];
            known[k] = !b->singular[f] && b->state[k * b->nf + f] == SPX_TRACE_SPOT && b->w[k * nl + f] > 0.0;
        }
        for (size_t k = 0; k < n; k++) {
            const double middle = median_around(flux, known, n, k), off = flux[k] - middle;
            const int line =
                lines && known[k] && off * off > SPX_TRACE_SMOOTH_LINE * SPX_TRACE_SMOOTH_LINE * variance[k * nl + f];
            smooth[k * nl + f] = line ? flux[k] : middle;
        }
    }
    return kernels->render(p, b, r, smooth, *light, e);
}
