/* Provides the velocity scan's grid of velocities, and the straight lines that stand for the continuum's basis in it
 * (search/scan.c). */
#include <math.h>

#include "base/mem.h"
#include "rvfit/model/setup.h"

enum { LEAST_BLOCKS = 32, MOST_VELOCITIES = 1024 };
static const double STEP_PIXELS = 0.5; /* of the scan */

/* Straight lines of the basis of an arm. */
static spx_status make_lines(spx_rv_arm *a, size_t np, spx_err *e)
{
    size_t wanted = 4 * np > LEAST_BLOCKS ? 4 * np : LEAST_BLOCKS;
    a->per = (a->n / wanted + SPX_RV_LANES - 1) / SPX_RV_LANES * SPX_RV_LANES;
    a->per = a->per < SPX_RV_LANES ? SPX_RV_LANES : a->per > SPX_RV_BLOCK ? SPX_RV_BLOCK : a->per;
    const size_t nblock = (a->n + a->per - 1) / a->per;
    if (nblock < 2 * np) { /* few pixels: the objective itself is as fast */
        a->per = 0;
        return SPX_OK;
    }
    if (!(a->line = spx_alloc2(nblock, 2 * SPX_RVFIT_MAX_POLY, sizeof *a->line, e)))
        return SPX_EIO;
    for (size_t b = 0; b < nblock; b++) {
        const size_t i0 = b * a->per, m = a->n - i0 < a->per ? a->n - i0 : a->per;
        double *line = a->line + b * 2 * SPX_RVFIT_MAX_POLY;
        const double shift = 0.5 * (double)(a->per - 1), middle = 0.5 * (double)(m - 1); /* of a last block */
        for (size_t k = 0; k < np; k++) {
            const double *p = a->basis + k * a->stride + i0;
            double s = 0, sx = 0, xx = 0;
            for (size_t j = 0; j < m; j++) {
                double x = (double)j - middle;
                s += p[j] / (double)m;
                sx += x * p[j];
                xx += x * x;
            }
            line[SPX_RVFIT_MAX_POLY + k] = xx > 0 ? sx / xx : 0;
            line[k] = s + line[SPX_RVFIT_MAX_POLY + k] * (shift - middle);
        }
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
        st = make_lines(&c->arm[i], c->opt->npoly, e);
    }
    const double range = c->hi[0] - c->lo[0];
    c->scan.step = fmax(STEP_PIXELS * pixel, range / (MOST_VELOCITIES - 2));
    c->scan.n = range > 2 * c->scan.step ? (size_t)floor(range / c->scan.step) + 1 : 0;
    return st;
}
