/* Provides the axes of the templates, ranges of all quantities, which of them are free, and the simplices of templates
 * without a grid. */
#include <lapacke.h>
#include <math.h>

#include "base/mem.h"
#include "rvfit/model/setup.h"

static const double SLOW = 20; /* km/s: slower rotators are searched in vsini^2 */

/* Range of a parameter of templates without a grid, as an axis of one or two nodes. */
static spx_status param_range(spx_rv_ctx *c, const spx_setup *s, size_t p, spx_err *e)
{
    double lo = HUGE_VAL, hi = -HUGE_VAL;
    if (c->interpolator == SPX_INTERPOLATE_NN) {
        lo = s->nn.lo[p];
        hi = s->nn.hi[p];
    }
    for (size_t t = 0; t < s->ntemp && c->interpolator == SPX_INTERPOLATE_SIMPLEX; t++) {
        double v = s->params[t * s->npar + p];
        v = s->parlog[p] ? log10(v) : v;
        if (!isfinite(v))
            return spx_fail(e, SPX_EINPUT, "templates of setup '%.63s': %.31s of template %zu is not usable", s->setup,
                            s->parname[p], t);
        lo = fmin(lo, v);
        hi = fmax(hi, v);
    }
    c->grid.parlog[p] = s->parlog[p];
    c->grid.naxis[p] = hi > lo ? 2 : 1;
    if (!(c->grid.axis[p] = spx_alloc(2, sizeof *c->grid.axis[p], e)))
        return SPX_EIO;
    c->grid.axis[p][0] = lo;
    c->grid.axis[p][1] = hi;
    return SPX_OK;
}

/* Barycentric coordinates as functions of the mapped parameters: the inverse of the matrix of corners. */
spx_status spx_rv_make_simplices(spx_rv_ctx *c, spx_err *e)
{
    const spx_setup *s = c->arm[0].setup;
    size_t m = c->grid.ng + 1, usable = 0;
    if (s->ncorner != m)
        return spx_fail(e, SPX_EINPUT,
                        "templates of setup '%.63s': simplices of %zu corners for %zu parameters that vary", s->setup,
                        s->ncorner, c->grid.ng);
    c->grid.nsimplex = s->nsimplex;
    if (!(c->grid.simplex = spx_alloc2(s->nsimplex, m * m, sizeof *c->grid.simplex, e)))
        return SPX_EIO;
    for (size_t i = 0; i < s->nsimplex; i++) {
        double a[(SPX_MAX_PAR + 1) * (SPX_MAX_PAR + 1)], *out = c->grid.simplex + i * m * m;
        int pivot[SPX_MAX_PAR + 1];
        for (size_t k = 0; k < m; k++) { /* column k: 1 and the corner's parameters, scaled; a times bary = (1, x) */
            const double *par = s->params + (size_t)s->simplex[i * m + k] * s->npar;
            a[k] = 1;
            for (size_t g = 0; g < c->grid.ng; g++) {
                size_t p = c->grid.gpar[g];
                a[(1 + g) * m + k] =
                    (spx_rv_map(c, 2 + p, par[p]) - c->grid.axis[p][0]) / (c->grid.axis[p][1] - c->grid.axis[p][0]);
            }
        }
        int n = (int)m, bad = LAPACKE_dgetrf(LAPACK_ROW_MAJOR, n, n, a, n, pivot) != 0;
        double volume = 1;
        for (size_t k = 0; k < m; k++)
            volume *= a[k * m + k];
        bad = bad || !(fabs(volume) > 1e-10) || LAPACKE_dgetri(LAPACK_ROW_MAJOR, n, a, n, pivot) != 0;
        out[0] = HUGE_VAL; /* slivers between points that lie on a sphere are no use, and cover nothing */
        if (bad)
            continue;
        usable++;
        for (size_t k = 0; k < m; k++) {
            out[k * m] = a[k * m];
            for (size_t g = 0; g < c->grid.ng; g++) {
                size_t p = c->grid.gpar[g];
                double slope = a[k * m + 1 + g] / (c->grid.axis[p][1] - c->grid.axis[p][0]);
                out[k * m + 1 + g] = slope;
                out[k * m] -= slope * c->grid.axis[p][0];
            }
        }
    }
    return usable ? SPX_OK : spx_fail(e, SPX_EINPUT, "templates of setup '%.63s': no simplex has a volume", s->setup);
}

/* Axes, ranges, and which quantities are free. */
spx_status spx_rv_make_ranges(spx_rv_ctx *c, spx_err *e)
{
    const spx_rvfit_options *o = c->opt;
    const spx_setup *s = c->arm[0].setup;
    c->npar = s->npar;
    c->nq = 2 + s->npar;
    size_t stride = 1;
    size_t step[SPX_MAX_PAR] = {0};
    spx_status st = SPX_OK;
    int grid = c->interpolator != SPX_INTERPOLATE_SIMPLEX && c->interpolator != SPX_INTERPOLATE_NN;
    for (size_t p = s->npar; p-- > 0 && !grid;)
        if ((st = param_range(c, s, p, e)) != SPX_OK)
            return st;
    for (size_t p = s->npar; p-- > 0 && grid; stride *= s->naxis[p]) {
        step[p] = stride;
        c->grid.parlog[p] = s->parlog[p];
        c->grid.naxis[p] = s->naxis[p];
        if (!(c->grid.axis[p] = spx_alloc(s->naxis[p], sizeof *c->grid.axis[p], e)))
            return SPX_EIO;
        for (size_t i = 0; i < s->naxis[p]; i++)
            c->grid.axis[p][i] = spx_rv_map(c, 2 + p, s->axis[p][i]);
    }
    c->slow = c->interpolator == SPX_INTERPOLATE_GRID ? 0 : SLOW;
    c->lo[0] = o->vmin;
    c->hi[0] = o->vmax;
    c->lo[1] = spx_rv_map(c, 1, o->vsinimin);
    c->hi[1] = spx_rv_map(c, 1, o->vsinimax);
    for (size_t p = 0; p < c->npar; p++)
        if (c->grid.naxis[p] > 1) {
            c->grid.gpar[c->grid.ng] = p;
            c->grid.stride[c->grid.ng++] = step[p];
        }
    if (c->interpolator == SPX_INTERPOLATE_CUBIC && (st = spx_rv_choose_axis_transforms(c, e)) != SPX_OK)
        return st;
    for (size_t p = 0; p < c->npar; p++) {
        c->lo[2 + p] = c->grid.axis[p][0];
        c->hi[2 + p] = c->grid.axis[p][c->grid.naxis[p] - 1];
    }
    for (size_t q = 0; q < c->nq; q++) {
        if (o->fixed[q]) {
            if (q >= 2 && c->grid.parlog[q - 2] && !(o->value[q] > 0))
                return spx_fail(e, SPX_EUSAGE, "%.31s is fixed at %g: must be positive", s->parname[q - 2],
                                o->value[q]);
            double x = spx_rv_map(c, q, o->value[q]);
            /* the nodes of some libraries are rounded to single precision */
            double slack = q < 2 ? 0 : 1e-6 * (fabs(c->lo[q]) + fabs(c->hi[q]));
            if (!(x >= c->lo[q] - slack && x <= c->hi[q] + slack))
                return spx_fail(e, SPX_EUSAGE, "%.31s is fixed at %g%s, outside its range %g to %g",
                                q == 0   ? "v"
                                : q == 1 ? "vsini"
                                         : s->parname[q - 2],
                                o->value[q], q < 2 ? " km/s" : "", spx_rv_unmap(c, q, c->lo[q]),
                                spx_rv_unmap(c, q, c->hi[q]));
            c->lo[q] = c->hi[q] = x;
        }
        c->start[q] = q == 1 ? c->lo[q] : 0.5 * (c->lo[q] + c->hi[q]);
        if (c->hi[q] > c->lo[q])
            c->freeq[c->nfree++] = q;
    }
    return SPX_OK;
}
