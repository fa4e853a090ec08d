/* What all stars of a batch, and all batches of a plan, share: pixels on the templates' grids, continuum bases, ranges;
 * checks of the input. */
#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "rvfit/rvfit_internal.h"
#include "template/nn_math.h"

enum {
    EDGE_PIXELS = 5,
    MAX_CCF_GRAM = 512 /* entries that the components of the cross-correlation are made from */
};
static const double CCF_CUT = 1e-3;        /* power of the entries that may lie in frequencies that are left out */
static const double CCF_LEFT_OUT = 0.02;   /* rms of the entries that the components may leave out */
static const double SLOW = 20;             /* km/s: slower rotators are searched in vsini^2 */
static const double MAX_DECONVOLVED = 1.5; /* pixels, sigma: 1/G(f) is 66 000 there */
static const double DICHROIC_MIN = 4300, DICHROIC_MAX = 4450;

void spx_rvfit_options_init(spx_rvfit_options *o)
{
    *o = (spx_rvfit_options){.npoly = 10,
                             .continuum = SPX_CONTINUUM_RBF,
                             .vmin = -1000,
                             .vmax = 1000,
                             .vsinimax = 500,
                             .dichroic = 1,
                             .lsf_sigma = 0.5,
                             .reject_sigma = 5,
                             .keep_model = 1,
                             .threads = 1};
}

double spx_rv_unmap(const spx_rv_ctx *c, size_t q, double x)
{
    if (q < 2)
        return q == 1 ? spx_rv_vsini(x, c->slow) : x;
    double p = spx_rv_unwarp(c->warp[q - 2], c->origin[q - 2], x);
    return c->parlog[q - 2] ? pow(10, p) : p;
}

double spx_rv_map(const spx_rv_ctx *c, size_t q, double p)
{
    if (q < 2)
        return q == 1 ? spx_rv_vsini_map(p, c->slow) : p;
    return spx_rv_warp(c->warp[q - 2], c->origin[q - 2], c->parlog[q - 2] ? log10(p) : p);
}

double spx_rv_slope(const spx_rv_ctx *c, size_t q, double x, double sigma)
{
    if (q == 1)
        return sigma > 0 ? (spx_rv_vsini(x + sigma, c->slow) - spx_rv_vsini(x, c->slow)) / sigma : 1;
    if (q == 0)
        return 1;
    double slope = 1 / (1 + c->warp[q - 2] * (x - c->origin[q - 2]));
    return c->parlog[q - 2] ? M_LN10 * spx_rv_unmap(c, q, x) * slope : slope;
}

static spx_status check_options(const spx_rvfit_options *o, spx_err *e)
{
    if (o->npoly < 1 || o->npoly > SPX_RVFIT_MAX_POLY)
        return spx_fail(e, SPX_EUSAGE, "%zu continuum functions: use 1 to %d", o->npoly, SPX_RVFIT_MAX_POLY);
    if (!(o->vmin <= o->vmax) || !(fabs(o->vmin) < SPX_C_KMS / 2) || !(fabs(o->vmax) < SPX_C_KMS / 2))
        return spx_fail(e, SPX_EUSAGE, "velocity range %g to %g km/s: give a smaller, then a larger velocity", o->vmin,
                        o->vmax);
    if (!(o->vsinimin >= 0) || !(o->vsinimin <= o->vsinimax) || !(o->vsinimax <= 2000))
        return spx_fail(e, SPX_EUSAGE, "vsini range %g to %g km/s: must be within 0 and 2000, increasing", o->vsinimin,
                        o->vsinimax);
    if (o->reject < 0 || (o->reject > 0 && !(o->reject_sigma > 0)))
        return spx_fail(e, SPX_EUSAGE, "rejection %d times beyond %g sigma makes no sense", o->reject, o->reject_sigma);
    if (o->resolution && !(o->lsf_sigma >= 0))
        return spx_fail(e, SPX_EUSAGE, "sigma of the templates' line-spread function is %g: must not be negative",
                        o->lsf_sigma);
    for (size_t q = 0; q < SPX_MAX_FIT; q++)
        if ((o->fixed[q] && !isfinite(o->value[q])) || !isfinite(o->prior_mean[q]) || !(o->prior_sigma[q] >= 0) ||
            !isfinite(o->prior_sigma[q]))
            return spx_fail(e, SPX_EUSAGE, "a fixed value or prior is not a usable number");
    return SPX_OK;
}

static spx_status check_grid(const spx_setup *s, spx_err *e)
{
    size_t nnode = 1;
    for (size_t p = 0; p < s->npar; p++) {
        if (s->naxis[p] < 1 || !s->axis[p] || spx_mul(nnode, s->naxis[p], &nnode, e))
            return spx_fail(e, SPX_EINPUT, "templates of setup '%.63s': parameter %zu has no nodes", s->setup, p);
        for (size_t i = 0; i < s->naxis[p]; i++)
            if (!isfinite(s->axis[p][i]) || (i && !(s->axis[p][i] > s->axis[p][i - 1])) ||
                (s->parlog[p] && !(s->axis[p][i] > 0)))
                return spx_fail(e, SPX_EINPUT,
                                "templates of setup '%.63s': nodes of %.31s are not increasing, or not positive where "
                                "the logarithm is interpolated",
                                s->setup, s->parname[p]);
    }
    for (size_t i = 0; i < nnode; i++)
        if (s->node[i] < 0 || (size_t)s->node[i] >= s->ntemp)
            return spx_fail(e, SPX_EINPUT, "templates of setup '%.63s': node %zu of the grid has no template", s->setup,
                            i);
    return SPX_OK;
}

static spx_status check_network(const spx_setup *s, spx_err *e)
{
    const spx_nn *nn = &s->nn;
    int bad = nn->nlayer < 1 || nn->nlayer > SPX_NN_MAX_LAYER || !nn->weight || !nn->bias || !s->pca.mean ||
              nn->size[0] != s->npar || nn->size[nn->nlayer] != s->pca.ncomp;
    for (size_t p = 0; p < s->npar && !bad; p++)
        bad = !isfinite(nn->offset[p]) || !isfinite(nn->scale[p]) || !isfinite(nn->lo[p]) ||
              !(nn->hi[p] >= nn->lo[p]) || !isfinite(nn->hi[p]);
    return bad ? spx_fail(e, SPX_EINPUT,
                          "templates of setup '%.63s' have no network: use another --interpolator, or build them with "
                          "rvs-template --train-nn",
                          s->setup)
               : SPX_OK;
}

/* Is there what the interpolator works with? */
static spx_status check_interpolator(const spx_setup *s, spx_interpolator which, spx_err *e)
{
    if (which == SPX_INTERPOLATE_NN)
        return check_network(s, e);
    if (s->pca.of_flux)
        return spx_fail(e, SPX_EINPUT,
                        "templates of setup '%.63s' are components of the flux: only --interpolator nn can use them",
                        s->setup);
    if (which == SPX_INTERPOLATE_SIMPLEX ? !s->simplex : !s->node)
        return spx_fail(e, SPX_EINPUT,
                        "templates of setup '%.63s' have no %s: use another --interpolator, or build them with "
                        "rvs-template --interpolator %s",
                        s->setup, which == SPX_INTERPOLATE_SIMPLEX ? "triangulation" : "regular grid",
                        which == SPX_INTERPOLATE_SIMPLEX ? "simplex" : "grid");
    return which == SPX_INTERPOLATE_SIMPLEX ? SPX_OK : check_grid(s, e);
}

static spx_status check_setup(const spx_setup *s, spx_interpolator which, spx_err *e)
{
    const int whole = which == SPX_INTERPOLATE_GRID || s->pca.ncomp == 0; /* the templates themselves are summed */
    if ((whole && !s->lnflux) || s->npar < 1 || s->npar > SPX_MAX_PAR)
        return spx_fail(e, SPX_EINPUT, "templates of setup '%.63s' have no regular grid: build them with rvs-template",
                        s->setup);
    if (s->nwave < 8 || !isfinite(s->lnwave0) || !(s->dlnwave > 0) || !(s->dlnwave < 0.1))
        return spx_fail(e, SPX_EINPUT, "templates of setup '%.63s': wavelength grid is not usable", s->setup);
    spx_status st = check_interpolator(s, which, e);
    if (st)
        return st;
    for (size_t i = 0; i < s->ntemp * s->nwave && whole; i++)
        if (!(fabsf(s->lnflux[i]) <= 80))
            return spx_fail(e, SPX_EINPUT, "templates of setup '%.63s': template %zu is not finite at pixel %zu",
                            s->setup, i / s->nwave, i % s->nwave);
    return SPX_OK;
}

static int setups_alike(const spx_setup *a, const spx_setup *b)
{
    if (a->npar != b->npar)
        return 0;
    for (size_t p = 0; p < a->npar; p++) {
        if (strcmp(a->parname[p], b->parname[p]) != 0 || !a->parlog[p] != !b->parlog[p] || a->naxis[p] != b->naxis[p])
            return 0;
        for (size_t i = 0; i < a->naxis[p]; i++)
            if (a->axis[p][i] != b->axis[p][i])
                return 0;
    }
    for (size_t p = 0; p < a->npar && a->nn.nlayer > 0 && b->nn.nlayer > 0; p++)
        if (a->nn.lo[p] != b->nn.lo[p] || a->nn.hi[p] != b->nn.hi[p])
            return 0;
    if (!a->simplex != !b->simplex)
        return 0;
    return !a->simplex || (a->ntemp == b->ntemp && a->nsimplex == b->nsimplex && a->ncorner == b->ncorner &&
                           memcmp(a->params, b->params, a->ntemp * a->npar * sizeof *a->params) == 0 &&
                           memcmp(a->simplex, b->simplex, a->nsimplex * a->ncorner * sizeof *a->simplex) == 0);
}

/* Can the sets of two arms be summed entry by entry? */
static int ccf_alike(const spx_ccf_set *a, const spx_ccf_set *b, size_t npar)
{
    return a->ntemp == b->ntemp && memcmp(a->vsini, b->vsini, a->ntemp * sizeof *a->vsini) == 0 &&
           memcmp(a->params, b->params, a->ntemp * npar * sizeof *a->params) == 0;
}

static double basis_function(const spx_rvfit_options *o, size_t k, double u)
{
    if (o->continuum == SPX_CONTINUUM_CHEBYSHEV)
        return cos((double)k * acos(fmin(1, fmax(-1, u))));
    if (k < 3)
        return k == 0 ? 1 : (k == 1 ? u : u * u);
    double nrbf = (double)(o->npoly - 3), centre = nrbf > 1 ? -1 + 2 * (double)(k - 3) / (nrbf - 1) : -1;
    double z = (u - centre) * nrbf;
    return exp(-0.5 * z * z);
}

/* Orthonormal basis of the continuum (modified Gram-Schmidt, twice). */
static spx_status make_basis(spx_rv_arm *a, const spx_rvfit_options *o, spx_err *e)
{
    size_t n = a->n, np = o->npoly;
    const double *wave = a->arm->wavelength;
    a->basis = spx_alloc2(np, a->stride, sizeof *a->basis, e);
    if (!a->basis)
        return SPX_EIO;
    for (size_t k = 0; k < np; k++) {
        double *p = a->basis + k * a->stride, norm0 = 0, norm = 0;
        for (size_t i = 0; i < n; i++) {
            p[i] = basis_function(o, k, (wave[i] - wave[0]) / (wave[n - 1] - wave[0]) * 2 - 1);
            norm0 += p[i] * p[i];
        }
        for (size_t j = 0; j < 2 * k; j++) {
            const double *b = a->basis + j % k * a->stride;
            double s = 0;
            for (size_t i = 0; i < n; i++)
                s += b[i] * p[i];
            for (size_t i = 0; i < n; i++)
                p[i] -= s * b[i];
        }
        for (size_t i = 0; i < n; i++)
            norm += p[i] * p[i];
        if (!(norm > 1e-20 * norm0) || n <= np)
            return spx_fail(e, SPX_EINPUT,
                            "arm '%.15s' has %zu pixels: too few for %zu continuum functions: use fewer (--npoly)",
                            a->arm->name, n, np);
        norm = sqrt(norm);
        for (size_t i = 0; i < n; i++)
            p[i] /= norm;
        a->lndet += 2 * log(norm);
    }
    return SPX_OK;
}

/* Principal components in the order in which they are used: tile after tile. */
static spx_status make_tiles(spx_rv_arm *a, spx_err *e)
{
    const spx_pca *p = &a->setup->pca;
    size_t nc = p->ncomp;
    a->comp = spx_alloc2(a->ntile * SPX_RV_TILE, nc, sizeof *a->comp, e);
    a->mean = spx_alloc(a->ntile * SPX_RV_TILE, sizeof *a->mean, e);
    if (!a->comp || !a->mean)
        return SPX_EIO;
    memcpy(a->mean, p->mean, a->nt * sizeof *a->mean);
    for (size_t k = 0; k < nc; k++)
        for (size_t i = 0; i < a->nt; i++)
            a->comp[(i / SPX_RV_TILE * nc + k) * SPX_RV_TILE + i % SPX_RV_TILE] = p->comp[k * a->nt + i];
    return SPX_OK;
}

/* Takes the templates' Gaussian LSF out of a row of a resolution matrix: the filter whose frequency response is 1/G(f),
 * up to the highest frequency that the arm's pixels have. (The inverse of the matrix of G sampled at the pixels is
 * 1/(G(f) + G(1-f)) instead, since G reaches beyond: the model would be too smooth, and slow rotators too slow.) The
 * templates are means over their own pixels: that adds to the variance, here as at the middle of the arm. */
static spx_status make_deconvolution(spx_rv_arm *a, double sigma, spx_err *e)
{
    enum { NFREQ = 512 }; /* the midpoint rule is exact up to this many pixels */
    size_t m = a->arm->ndiag;
    double pixel = a->arm->wavelength[1] - a->arm->wavelength[0], filter[SPX_MAX_NDIAG] = {0};
    double own = a->setup->dlnwave * 0.5 * (a->arm->wavelength[0] + a->arm->wavelength[a->n - 1]);
    double s = sigma > 0 ? sqrt(sigma * sigma + own * own / 12) / pixel : 0;
    if (!(s < MAX_DECONVOLVED))
        return spx_fail(e, SPX_EUSAGE, "arm '%.15s': a line-spread function of sigma %g Angstrom cannot be taken out",
                        a->arm->name, sigma);
    a->deconvolve = spx_alloc2(m, m, sizeof *a->deconvolve, e);
    if (!a->deconvolve)
        return SPX_EIO;
    for (size_t k = 0; k < m; k++)
        for (size_t i = 0; i < NFREQ; i++) {
            double w = M_PI * ((double)i + 0.5) / NFREQ;
            filter[k] += exp(0.5 * s * s * w * w) * cos((double)k * w) / NFREQ;
        }
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < m; j++)
            a->deconvolve[i * m + j] = filter[i > j ? i - j : j - i];
    return SPX_OK;
}

/* Pixels in the templates' medium and on their grid; is the range covered? */
static spx_status make_pixels(spx_rv_arm *a, const spx_rvfit_options *o, spx_err *e)
{
    const spx_arm *d = a->arm;
    const spx_setup *s = a->setup;
    size_t n = a->n;
    a->wave = spx_alloc(n, sizeof *a->wave, e);
    a->lnwave = spx_alloc(n, sizeof *a->lnwave, e);
    a->place = spx_alloc(n, sizeof *a->place, e);
    a->leftout = spx_alloc(n, 1, e);
    a->cprime = spx_alloc(a->nt, sizeof *a->cprime, e);
    if (!a->wave || !a->lnwave || !a->place || !a->leftout || !a->cprime)
        return SPX_EIO;
    memcpy(a->wave, d->wavelength, n * sizeof *a->wave);
    spx_rv_spline_factor(a->nt, a->cprime);
    for (size_t i = 0; i < n; i++) {
        double w = d->wavelength[i];
        if (!isfinite(w) || !(w > 0) || (i && !(w > d->wavelength[i - 1])))
            return spx_fail(e, SPX_EINPUT, "arm '%.15s': wavelengths are not increasing at pixel %zu", d->name, i);
        a->leftout[i] = (o->dichroic && w > DICHROIC_MIN && w < DICHROIC_MAX) ||
                        (o->resolution && (i < EDGE_PIXELS || i + EDGE_PIXELS >= n));
        if (d->medium != s->medium)
            w = s->medium == SPX_AIR ? spx_vacuum_to_air(w) : spx_air_to_vacuum(w);
        a->lnwave[i] = log(w);
        a->place[i] = (a->lnwave[i] - s->lnwave0) / s->dlnwave;
    }
    /* Setups end within a pixel of their range times 1 +- 1000 km/s / c, which is 2 km/s less than 1000 km/s. */
    double grace = 1 + 1e-5 / s->dlnwave;
    double first = a->place[0] + spx_rv_lnshift(o->vmax) / s->dlnwave;
    double last = a->place[n - 1] + spx_rv_lnshift(o->vmin) / s->dlnwave;
    if (!(first >= -grace) || !(last <= (double)(s->nwave - 1) + grace)) {
        /* a setup reaches 1000 km/s beyond the range that rvs-template is given; with the same grace, so that the arm's
         * own ends are asked for where these do */
        const double lo = exp(s->lnwave0 + first * s->dlnwave), hi = exp(s->lnwave0 + last * s->dlnwave),
                     beyond = 1 + 1000 / SPX_C_KMS, from = floor(lo * beyond * (1 + 1e-5)),
                     to = ceil(hi / beyond * (1 - 1e-5)), has_lo = exp(s->lnwave0),
                     has_hi = exp(s->lnwave0 + (double)(s->nwave - 1) * s->dlnwave);
        if (lo > has_hi || hi < has_lo)
            return spx_fail(e, SPX_EINPUT,
                            "arm '%.15s' (%.1f-%.1f Angstrom) has nothing of setup '%.63s' (%.1f-%.1f), which is "
                            "another arm's: make one with rvs-template -s %.15s:%.0f:%.0f:..., or leave the arm out "
                            "with --arms",
                            d->name, d->wavelength[0], d->wavelength[n - 1], s->setup, has_lo, has_hi, d->name, from,
                            to);
        return spx_fail(
            e, SPX_EINPUT,
            "arm '%.15s' (%.1f-%.1f Angstrom, v %g to %g km/s) needs templates of %.1f-%.1f Angstrom, "
            "setup '%.63s' has %.1f-%.1f: make a wider setup with rvs-template -s %.63s:%.0f:%.0f:... (which adds "
            "1000 km/s at both ends), or narrow --vrange, or fit less of the arm with --wavelength",
            d->name, d->wavelength[0], d->wavelength[n - 1], o->vmin, o->vmax, lo, hi, s->setup, has_lo, has_hi,
            s->setup, from, to);
    }
    return SPX_OK;
}

static spx_status make_arm(spx_rv_ctx *c, spx_rv_arm *a, spx_err *e)
{
    const spx_rvfit_options *o = c->opt;
    spx_status st = check_setup(a->setup, c->interpolator, e);
    if (st)
        return st;
    a->n = a->arm->nwave;
    a->nt = a->setup->nwave;
    a->stride = (a->n + SPX_RV_LANES - 1) / SPX_RV_LANES * SPX_RV_LANES;
    a->ntile = (a->nt + SPX_RV_TILE - 1) / SPX_RV_TILE;
    if (a->n < 2)
        return spx_fail(e, SPX_EINPUT, "arm '%.15s' has %zu pixels: nothing to fit", a->arm->name, a->n);
    a->ndiag = o->resolution ? a->arm->ndiag : 0;
    if (o->resolution && !a->arm->resolution)
        return spx_fail(e, SPX_EINPUT, "arm '%.15s' has no resolution matrix: fit without --resolution-matrix",
                        a->arm->name);
    if (o->resolution && (a->arm->ndiag % 2 == 0 || a->arm->ndiag > SPX_MAX_NDIAG))
        return spx_fail(e, SPX_EINPUT,
                        "arm '%.15s': resolution matrix has %zu diagonals, want an odd number up to %d: fit without "
                        "--resolution-matrix",
                        a->arm->name, a->arm->ndiag, SPX_MAX_NDIAG);
    if ((st = make_pixels(a, o, e)) || (st = make_basis(a, o, e)))
        return st;
    if (o->resolution && (st = make_deconvolution(a, o->lsf_sigma, e)))
        return st;
    if (c->interpolator != SPX_INTERPOLATE_GRID && a->setup->pca.ncomp > 0 && (st = make_tiles(a, e)))
        return st;
    c->maxn = a->stride > c->maxn ? a->stride : c->maxn;
    c->maxnt = a->ntile * SPX_RV_TILE > c->maxnt ? a->ntile * SPX_RV_TILE : c->maxnt;
    if (o->resolution && a->n * a->arm->ndiag > c->maxband)
        c->maxband = a->n * a->arm->ndiag;
    c->maxcomp = a->setup->pca.ncomp > c->maxcomp ? a->setup->pca.ncomp : c->maxcomp;
    if (c->interpolator == SPX_INTERPOLATE_NN) {
        size_t width = spx_nn_width(&a->setup->nn);
        c->maxwidth = width > c->maxwidth ? width : c->maxwidth;
    }
    return SPX_OK;
}

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
    c->parlog[p] = s->parlog[p];
    c->naxis[p] = hi > lo ? 2 : 1;
    if (!(c->axis[p] = spx_alloc(2, sizeof *c->axis[p], e)))
        return SPX_EIO;
    c->axis[p][0] = lo;
    c->axis[p][1] = hi;
    return SPX_OK;
}

/* Barycentric coordinates as functions of the mapped parameters: the inverse of the matrix of corners. */
static spx_status make_simplices(spx_rv_ctx *c, spx_err *e)
{
    const spx_setup *s = c->arm[0].setup;
    size_t m = c->ng + 1, usable = 0;
    if (s->ncorner != m)
        return spx_fail(e, SPX_EINPUT,
                        "templates of setup '%.63s': simplices of %zu corners for %zu parameters that vary", s->setup,
                        s->ncorner, c->ng);
    c->nsimplex = s->nsimplex;
    if (!(c->simplex = spx_alloc2(s->nsimplex, m * m, sizeof *c->simplex, e)))
        return SPX_EIO;
    for (size_t i = 0; i < s->nsimplex; i++) {
        double a[(SPX_MAX_PAR + 1) * (SPX_MAX_PAR + 1)], *out = c->simplex + i * m * m;
        int pivot[SPX_MAX_PAR + 1];
        for (size_t k = 0; k < m; k++) { /* column k: 1 and the corner's parameters, scaled; a times bary = (1, x) */
            const double *par = s->params + (size_t)s->simplex[i * m + k] * s->npar;
            a[k] = 1;
            for (size_t g = 0; g < c->ng; g++) {
                size_t p = c->gpar[g];
                a[(1 + g) * m + k] = (spx_rv_map(c, 2 + p, par[p]) - c->axis[p][0]) / (c->axis[p][1] - c->axis[p][0]);
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
            for (size_t g = 0; g < c->ng; g++) {
                size_t p = c->gpar[g];
                double slope = a[k * m + 1 + g] / (c->axis[p][1] - c->axis[p][0]);
                out[k * m + 1 + g] = slope;
                out[k * m] -= slope * c->axis[p][0];
            }
        }
    }
    return usable ? SPX_OK : spx_fail(e, SPX_EINPUT, "templates of setup '%.63s': no simplex has a volume", s->setup);
}

/* Axes, ranges, and which quantities are free. */
static spx_status make_ranges(spx_rv_ctx *c, spx_err *e)
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
        c->parlog[p] = s->parlog[p];
        c->naxis[p] = s->naxis[p];
        if (!(c->axis[p] = spx_alloc(s->naxis[p], sizeof *c->axis[p], e)))
            return SPX_EIO;
        for (size_t i = 0; i < s->naxis[p]; i++)
            c->axis[p][i] = spx_rv_map(c, 2 + p, s->axis[p][i]);
    }
    c->slow = c->interpolator == SPX_INTERPOLATE_GRID ? 0 : SLOW;
    c->lo[0] = o->vmin;
    c->hi[0] = o->vmax;
    c->lo[1] = spx_rv_map(c, 1, o->vsinimin);
    c->hi[1] = spx_rv_map(c, 1, o->vsinimax);
    for (size_t p = 0; p < c->npar; p++)
        if (c->naxis[p] > 1) {
            c->gpar[c->ng] = p;
            c->stride[c->ng++] = step[p];
        }
    if (c->interpolator == SPX_INTERPOLATE_CUBIC && (st = spx_rv_choose_warp(c, e)) != SPX_OK)
        return st;
    for (size_t p = 0; p < c->npar; p++) {
        c->lo[2 + p] = c->axis[p][0];
        c->hi[2 + p] = c->axis[p][c->naxis[p] - 1];
    }
    for (size_t q = 0; q < c->nq; q++) {
        if (o->fixed[q]) {
            if (q >= 2 && c->parlog[q - 2] && !(o->value[q] > 0))
                return spx_fail(e, SPX_EUSAGE, "%.31s is fixed at %g: must be positive", s->parname[q - 2],
                                o->value[q]);
            double x = spx_rv_map(c, q, o->value[q]);
            /* the nodes of some libraries are rounded to single precision */
            double room = q < 2 ? 0 : 1e-6 * (fabs(c->lo[q]) + fabs(c->hi[q]));
            if (!(x >= c->lo[q] - room && x <= c->hi[q] + room))
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

/* Components of the entries and of their squares together, transformed and cut to frequencies below nshort/2: the
 * right singular vectors of the entries, as many as leave out less than CCF_LEFT_OUT of their rms. */
static spx_status make_ccf_components(spx_rv_arm *a, spx_err *e)
{
    const spx_ccf_set *f = &a->setup->ccf;
    size_t nt = f->ntemp, half = f->nwave / 2 + 1, step = (nt + MAX_CCF_GRAM - 1) / MAX_CCF_GRAM;
    size_t n = (nt + step - 1) / step, width, k = 0;
    spx_status st = SPX_EIO;
    double *gram = spx_alloc2(n, n, sizeof *gram, e), *value = spx_alloc(n, sizeof *value, e);
    float *x = NULL, *vector = spx_alloc2(n, n, sizeof *vector, e), *power = spx_alloc(half, sizeof *power, e);
    if (!gram || !value || !vector || !power)
        goto end;

    double sum = 0, left = 0;
    for (size_t t = 0; t < nt; t += step)
        for (size_t i = 0; i < half; i++) {
            const float *z = f->fft + (t * half + i) * 2;
            power[i] += z[0] * z[0] + z[1] * z[1];
        }
    for (size_t i = 0; i < half; i++)
        sum += (double)power[i];
    for (a->nshort = f->nwave; a->nshort > 32; a->nshort /= 2) {
        for (size_t i = a->nshort / 4; i < half && i <= a->nshort / 2; i++)
            left += (double)power[i];
        if (left > CCF_CUT * sum)
            break;
    }
    width = 4 * (a->nshort / 2 + 1);
    if (!(x = spx_alloc2(nt, width, sizeof *x, e)))
        goto end;
    for (size_t t = 0; t < nt; t++)
        for (size_t i = 0; i < width / 2; i++) {
            x[t * width + i] = f->fft[t * half * 2 + i];
            x[t * width + width / 2 + i] = f->fft2[t * half * 2 + i];
        }
    cblas_ssyrk(CblasRowMajor, CblasLower, CblasNoTrans, (int)n, (int)width, 1, x, (int)(step * width), 0, vector,
                (int)n);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j <= i; j++)
            gram[i * n + j] = (double)vector[i * n + j];
    if (LAPACKE_dsyevd(LAPACK_ROW_MAJOR, 'V', 'L', (int)n, gram, (int)n, value) != 0) {
        st = spx_fail(e, SPX_EINPUT, "cross-correlation set of setup '%.63s' is not usable", a->setup->setup);
        goto end;
    }
    sum = left = 0;
    for (size_t i = 0; i < n; i++)
        sum += fmax(0, value[i]);
    while (k + 1 < n && left + fmax(0, value[k]) <= CCF_LEFT_OUT * CCF_LEFT_OUT * sum)
        left += fmax(0, value[k++]);
    a->nccf = n - k;
    a->ccf_comp = spx_alloc2(a->nccf, width, sizeof *a->ccf_comp, e);
    a->ccf_coef = spx_alloc2(nt, a->nccf, sizeof *a->ccf_coef, e);
    if (!a->ccf_comp || !a->ccf_coef)
        goto end;
    for (size_t c = 0; c < a->nccf; c++)
        for (size_t i = 0; i < n; i++)
            vector[c * n + i] = (float)(value[n - 1 - c] > 0 ? gram[i * n + n - 1 - c] / sqrt(value[n - 1 - c]) : 0);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)a->nccf, (int)width, (int)n, 1, vector, (int)n, x,
                (int)(step * width), 0, a->ccf_comp, (int)width);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)nt, (int)a->nccf, (int)width, 1, x, (int)width,
                a->ccf_comp, (int)width, 0, a->ccf_coef, (int)a->nccf);
    st = SPX_OK;
end:
    spx_free(gram);
    spx_free(value);
    spx_free(vector);
    spx_free(power);
    spx_free(x);
    return st;
}

/* Where the common velocity grid lies in the inverse transform; cubic (Catmull-Rom) between its samples. */
static spx_status make_lags(const spx_rv_ctx *c, spx_rv_arm *a, spx_err *e)
{
    a->lag_at = spx_alloc(c->nlag, sizeof *a->lag_at, e);
    a->lag_weight = spx_alloc2(c->nlag, 4, sizeof *a->lag_weight, e);
    if (!a->lag_at || !a->lag_weight)
        return SPX_EIO;
    double pixel = a->setup->ccf.dlnwave * (double)(a->setup->ccf.nwave / a->nshort);
    for (size_t i = 0; i < c->nlag; i++) {
        double lag = -spx_rv_lnshift(c->lag_v0 + (double)i * c->lag_step) / pixel, base = floor(lag), u = lag - base;
        a->lag_at[i] = (size_t)((ptrdiff_t)base - 1) & (a->nshort - 1);
        float *w = a->lag_weight + 4 * i;
        w[0] = (float)(0.5 * u * (-1 + u * (2 - u)));
        w[1] = (float)(1 + 0.5 * u * u * (-5 + 3 * u));
        w[2] = (float)(0.5 * u * (1 + u * (4 - 3 * u)));
        w[3] = (float)(0.5 * u * u * (u - 1));
    }
    return SPX_OK;
}

/* Where the samples of the cross-correlation lie between pixels. */
static spx_status make_rebin(spx_rv_arm *a, spx_err *e)
{
    const spx_ccf_set *set = &a->setup->ccf;
    size_t j = 0;
    a->rebin_at = spx_alloc(set->nwave, sizeof *a->rebin_at, e);
    a->rebin = spx_alloc(set->nwave, sizeof *a->rebin, e);
    if (!a->rebin_at || !a->rebin)
        return SPX_EIO;
    for (size_t k = 0; k < set->nwave; k++) {
        double x = set->lnwave0 + (double)k * set->dlnwave;
        a->rebin_at[k] = -1;
        if (x < a->lnwave[0] || x > a->lnwave[a->n - 1])
            continue;
        while (j + 2 < a->n && a->lnwave[j + 1] < x)
            j++;
        a->rebin_at[k] = (int32_t)j;
        a->rebin[k] = (x - a->lnwave[j]) / (a->lnwave[j + 1] - a->lnwave[j]);
    }
    return SPX_OK;
}

/* Fourier transforms and the common velocity grid of the cross-correlation; none when an arm has no set. */
static spx_status make_ccf(spx_rv_ctx *c, spx_err *e)
{
    double step = HUGE_VAL;
    for (size_t i = 0; i < c->narm; i++) {
        const spx_ccf_set *f = &c->arm[i].setup->ccf, *f0 = &c->arm[0].setup->ccf;
        if (f->ntemp == 0)
            return SPX_OK;
        if (!ccf_alike(f, f0, c->npar))
            return spx_fail(e, SPX_EINPUT,
                            "cross-correlation sets of setups '%.63s' and '%.63s' differ: build all "
                            "setups of a file together",
                            c->arm[0].setup->setup, c->arm[i].setup->setup);
        if (f->nwave < 16 || f->nwave > ((size_t)1 << 30) || (f->nwave & (f->nwave - 1)) != 0 || !(f->dlnwave > 0) ||
            !isfinite(f->lnwave0))
            return spx_fail(e, SPX_EINPUT, "cross-correlation set of setup '%.63s' is not usable",
                            c->arm[i].setup->setup);
        step = fmin(step, f->dlnwave);
    }
    c->lag_step = 0.5 * step * SPX_C_KMS;
    c->lag_v0 = c->opt->vmin;
    c->nlag = (size_t)floor((c->opt->vmax - c->opt->vmin) / c->lag_step) + 1;
    int blas = openblas_get_num_threads();
    openblas_set_num_threads(1);
    spx_status st = SPX_OK;
    spx_err err[SPX_MAX_ARM] = {{0}};
#pragma omp parallel for schedule(dynamic, 1) num_threads(c->opt->threads) if (c->opt->threads > 1)
    for (size_t i = 0; i < c->narm; i++)
        if (make_ccf_components(&c->arm[i], &err[i]) == SPX_OK && make_rebin(&c->arm[i], &err[i]) == SPX_OK)
            (void)make_lags(c, &c->arm[i], &err[i]);
    for (size_t i = 0; i < c->narm; i++) {
        const spx_rv_arm *a = &c->arm[i];
        c->maxccf = a->setup->ccf.nwave > c->maxccf ? a->setup->ccf.nwave : c->maxccf;
        c->maxnccf = a->nccf > c->maxnccf ? a->nccf : c->maxnccf;
        if (st == SPX_OK && err[i].code != SPX_OK)
            st = spx_fail(e, err[i].code, "%s", err[i].msg);
    }
    openblas_set_num_threads(blas);
    const spx_ccf_set *set = &c->arm[0].setup->ccf;
    if (st == SPX_OK && !(c->ccf_kind = spx_alloc(set->ntemp, sizeof *c->ccf_kind, e)))
        st = SPX_EIO;
    for (size_t t = 0; st == SPX_OK && t < set->ntemp; t++) {
        size_t k = t; /* entries of one template lie side by side */
        while (k-- > 0)
            if (memcmp(set->params + t * c->npar, set->params + k * c->npar, c->npar * sizeof *set->params) == 0)
                break;
        c->ccf_kind[t] = k < t ? c->ccf_kind[k] : (int32_t)t;
    }
    c->ccf_stride = c->maxccf / 2 + 16;
    float *r = st == SPX_OK ? spx_alloc(c->maxccf, sizeof *r, e) : NULL;
    fftwf_complex *z = r ? spx_alloc(c->maxccf, sizeof *z, e) : NULL;
    if (st == SPX_OK && !z)
        st = SPX_EIO;
    for (size_t i = 0; st == SPX_OK && i < c->narm; i++) {
        spx_rv_arm *a = &c->arm[i];
        /* ESTIMATE: the plan, and so the last bit, does not depend on timing. */
        a->forward = fftwf_plan_dft_r2c_1d((int)a->setup->ccf.nwave, r, z, FFTW_ESTIMATE);
        a->inverse = fftwf_plan_dft_c2r_1d((int)a->nshort, z, r, FFTW_ESTIMATE);
        if (!a->forward || !a->inverse)
            st = spx_fail(e, SPX_EIO, "no plan for a Fourier transform of length %zu", a->setup->ccf.nwave);
    }
    spx_free(r);
    spx_free(z);
    return st;
}

spx_status spx_rv_ctx_init(spx_rv_ctx *c, const spx_rvfit_input *in, const spx_rvfit_options *o, spx_err *e)
{
    *c = (spx_rv_ctx){.opt = o, .kernels = spx_rv_kernels_avx512()};
    if (!c->kernels)
        c->kernels = spx_rv_kernels_avx2();
    if (!c->kernels)
        c->kernels = spx_rv_kernels_base();
    spx_status st = check_options(o, e);
    c->interpolator = o->interpolator;
    for (size_t i = 0; i < in->spectra->narm && c->interpolator == SPX_INTERPOLATE_AUTO; i++)
        if (in->setup[i])
            c->interpolator = in->setup[i]->node            ? SPX_INTERPOLATE_CUBIC
                              : in->setup[i]->simplex       ? SPX_INTERPOLATE_SIMPLEX
                              : in->setup[i]->nn.nlayer > 0 ? SPX_INTERPOLATE_NN
                                                            : SPX_INTERPOLATE_CUBIC;
    for (size_t i = 0; st == SPX_OK && i < in->spectra->narm; i++) {
        if (!in->setup[i])
            continue;
        spx_rv_arm *a = &c->arm[c->narm++];
        a->index = i;
        a->arm = &in->spectra->arm[i];
        a->setup = in->setup[i];
        if ((st = make_arm(c, a, e)) == SPX_OK && !setups_alike(a->setup, c->arm[0].setup))
            st = spx_fail(e, SPX_EINPUT, "setups '%.63s' and '%.63s' have different grids: build them from one library",
                          c->arm[0].setup->setup, a->setup->setup);
    }
    if (st == SPX_OK && c->narm == 0)
        st =
            spx_fail(e, SPX_EINPUT, "no arm has a setup of the templates: name the setups like the arms, or use --map");
    for (size_t i = 0; st == SPX_OK && o->keep_ccf && i < c->narm; i++)
        if (c->arm[i].setup->ccf.ntemp == 0)
            st = spx_fail(e, SPX_EINPUT, "setup '%.63s' has no cross-correlation set whose curves could be kept",
                          c->arm[i].setup->setup);
    if (st || (st = make_ranges(c, e)) || (c->interpolator == SPX_INTERPOLATE_SIMPLEX && (st = make_simplices(c, e))) ||
        (st = make_ccf(c, e)) || (st = spx_rv_survey_init(c, e))) {
        spx_rv_ctx_free(c);
        return st;
    }
    for (size_t i = 0; i < c->narm; i++)
        c->arm[i].arm = NULL; /* that of the batch comes later */
    return SPX_OK;
}

/* Is the plan for these arms, templates and options? */
static int plan_suits(const spx_rv_ctx *c, const spx_rvfit_input *in, const spx_rvfit_options *o)
{
    size_t narm = 0;
    for (size_t i = 0; i < in->spectra->narm; i++)
        narm += in->setup[i] != NULL;
    int ok = o == c->opt && narm == c->narm;
    for (size_t i = 0; i < c->narm && ok; i++) {
        const spx_rv_arm *a = &c->arm[i];
        const spx_arm *d = &in->spectra->arm[a->index];
        ok = a->index < in->spectra->narm && in->setup[a->index] == a->setup && d->nwave == a->n &&
             memcmp(d->wavelength, a->wave, a->n * sizeof *a->wave) == 0 &&
             (!o->resolution || (d->resolution && d->ndiag == a->ndiag));
    }
    return ok;
}

spx_status spx_rv_ctx_batch(spx_rv_ctx *c, const spx_rvfit_plan *plan, const spx_rvfit_input *in,
                            const spx_rvfit_options *o, spx_err *e)
{
    spx_status st = SPX_OK;
    if (!plan_suits(&plan->ctx, in, o))
        return spx_fail(e, SPX_EUSAGE, "the plan of the fit is for other arms, templates or options");
    *c = plan->ctx;
    c->in = in;
    for (size_t i = 0; i < c->narm; i++)
        c->arm[i].arm = &in->spectra->arm[c->arm[i].index];
    for (size_t i = 0; st == SPX_OK && i < in->nrow; i++)
        if ((in->row ? in->row[i] : i) >= in->spectra->nspec)
            st = spx_fail(e, SPX_EINPUT, "row %zu does not exist: there are %zu spectra", in->row ? in->row[i] : i,
                          in->spectra->nspec);
    c->nstar = in->first ? in->nstar : in->nrow;
    if (st == SPX_OK && in->first && (in->first[0] != 0 || in->first[in->nstar] != in->nrow))
        st = spx_fail(e, SPX_EINPUT, "exposures of %zu stars are not all of the %zu rows", in->nstar, in->nrow);
    for (size_t k = 0; st == SPX_OK && in->first && k < in->nstar; k++)
        if (in->first[k] > in->first[k + 1])
            st = spx_fail(e, SPX_EINPUT, "exposures of star %zu: the list is not in order", k);
    return st;
}

void spx_rv_ctx_free(spx_rv_ctx *c)
{
    for (size_t i = 0; i < c->narm; i++) {
        spx_rv_arm *a = &c->arm[i];
        spx_free(a->wave);
        spx_free(a->lnwave);
        spx_free(a->place);
        spx_free(a->basis);
        spx_free(a->ccf_comp);
        spx_free(a->ccf_coef);
        spx_free(a->lag_at);
        spx_free(a->lag_weight);
        spx_free(a->rebin_at);
        spx_free(a->rebin);
        spx_free(a->comp);
        spx_free(a->mean);
        spx_free(a->cprime);
        spx_free(a->leftout);
        spx_free(a->deconvolve);
        spx_free(a->line);
        if (a->forward)
            fftwf_destroy_plan(a->forward);
        if (a->inverse)
            fftwf_destroy_plan(a->inverse);
    }
    for (size_t p = 0; p < SPX_MAX_PAR; p++)
        spx_free(c->axis[p]);
    spx_free(c->simplex);
    spx_free(c->ccf_kind);
    *c = (spx_rv_ctx){0};
}
