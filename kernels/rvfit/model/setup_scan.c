/* Provides the velocity scan's grid of velocities, and the straight lines that stand for the continuum's basis in it
 * (search/scan.c). */
#include <math.h>

#include "base/mem.h"
#include "rvfit/model/setup.h"

enum { LEAST_BLOCKS = 32, MOST_VELOCITIES = 1024 };
static const double STEP_PIXELS = 0.5; /* of the scan */

/* Straight lines of the functions of an arm's continuum. */
static spx_status make_lines(spx_rv_arm *a, spx_err *e)
{
    enum { M = SPX_RVFIT_MAX_POLY };
    const spx_rv_basis *basis = &a->basis;
    spx_rv_lines *l = &a->lines;
    const size_t np = l->functions = basis->n, wanted = 4 * np > LEAST_BLOCKS ? 4 * np : LEAST_BLOCKS;
    l->per = (a->n / wanted + SPX_RV_LANES - 1) / SPX_RV_LANES * SPX_RV_LANES;
    l->per = l->per < SPX_RV_LANES ? SPX_RV_LANES : l->per > SPX_RV_BLOCK ? SPX_RV_BLOCK : l->per;
    l->n = (a->n + l->per - 1) / l->per;
    if (l->n < 2 * np) { /* few pixels: the objective itself is as fast */
        l->per = 0;
        return SPX_OK;
    }
    l->line = spx_alloc2(l->n, 2 * M, sizeof *l->line, e);
    l->range = spx_alloc(l->n, sizeof *l->range, e);
    if (l->line == NULL || l->range == NULL)
        return SPX_EIO;
    for (size_t b = 0; b < l->n; b++) {
        const size_t i0 = b * l->per, m = a->n - i0 < l->per ? a->n - i0 : l->per;
        double *line = l->line + b * 2 * M;
        const double shift = 0.5 * (double)(l->per - 1), middle = 0.5 * (double)(m - 1); /* of a last block */
        size_t first = np, end = 0;
        for (size_t k = 0; k < np; k++) {
            const double *p = basis->value + k * a->stride + i0;
            double s = 0, sx = 0, xx = 0;
            for (size_t j = 0; j < m; j++) {
                double x = (double)j - middle;
                s += p[j] / (double)m;
                sx += x * p[j];
                xx += x * x;
                if (p[j] != 0) {
                    first = k < first ? k : first;
                    end = k + 1;
                }
            }
            line[M + k] = xx > 0 ? sx / xx : 0;
            line[k] = s + line[M + k] * (shift - middle);
        }
        l->range[b][0] = first;
        l->range[b][1] = end - first;
        l->band = end - first > l->band + 1 ? end - first - 1 : l->band;
    }
    return SPX_OK;
}

spx_status spx_rv_scan_init(spx_rv_ctx *c, spx_err *e)
{
    double pixel = 0;
    spx_status st = SPX_OK;
    for (size_t i = 0; i < c->narm && st == SPX_OK; i++) {
        const spx_rv_arm *a = &c->arm[i];
        pixel += (a->lnwave[a->n - 1] - a->lnwave[0]) / (double)(a->n - 1) * SPX_C_KMS / (double)c->narm;
        st = make_lines(&c->arm[i], e);
    }
    const double range = c->hi[0] - c->lo[0];
    c->scan.step = fmax(STEP_PIXELS * pixel, range / (MOST_VELOCITIES - 2));
    c->scan.n = range > 2 * c->scan.step ? (size_t)floor(range / c->scan.step) + 1 : 0;
    return st;
}
