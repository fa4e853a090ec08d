/* Provides the objective of one star and its derivatives (rvfit/README): templates at a point of the parameters,
 * broadened by rotation; their samples at a velocity; the continuum, eliminated by linear least squares (variable
 * projection, Golub & Pereyra 1973, SIAM J. Numer. Anal. 10, 413). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "calib/band.h"
#include "rvfit/model/model.h"
#include "spectral/nn_math.h"
#include "spectral/rotation_math.h"

void spx_rv_cell(const spx_rv_ctx *c, const double *x, size_t *cell)
{
    for (size_t g = 0; g < c->grid.ng; g++) {
        size_t p = c->grid.gpar[g], n = c->grid.naxis[p], k = 0;
        while (k + 2 < n && x[2 + p] >= c->grid.axis[p][k + 1])
            k++;
        cell[g] = k;
    }
}

/* Simplex that x lies in, or is least outside of; barycentric coordinates into bary, made such that they are of the
 * simplex; returns whether x was in it. */
static int locate(spx_rv_spectra *w, const double *x)
{
    const spx_rv_ctx *c = w->ctx;
    size_t m = c->grid.ng + 1;
    double best = -HUGE_VAL, sum = 0;
    for (size_t s = 0; s < c->grid.nsimplex; s++) {
        const double *coef = c->grid.simplex + s * m * m;
        double least = HUGE_VAL, bary[SPX_MAX_PAR + 1];
        if (coef[0] == HUGE_VAL)
            continue;
        for (size_t k = 0; k < m && least > best; k++) {
            bary[k] = coef[k * m];
            for (size_t g = 0; g < c->grid.ng; g++)
                bary[k] += coef[k * m + 1 + g] * x[2 + c->grid.gpar[g]];
            least = fmin(least, bary[k]);
        }
        if (least > best) {
            best = least;
            w->simplex = s;
            memcpy(w->bary, bary, sizeof bary);
        }
        if (best > 1e-9)
            break;
    }
    for (size_t k = 0; k < m; k++)
        sum += w->bary[k] = fmax(0, w->bary[k]);
    for (size_t k = 0; k < m; k++)
        w->bary[k] /= sum;
    return best > -1e-9;
}

/* Outside the triangulation: x moves to the nearest simplex, and its distance is penalised as that from the range. */
static void outside_simplices(spx_rv_spectra *w, double *x, double *grad, double *hess)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_setup *s = c->arm[0].setup;
    if (locate(w, x))
        return;
    for (size_t g = 0; g < c->grid.ng; g++) {
        size_t p = c->grid.gpar[g], q = 2 + p;
        double at = 0, range = c->grid.axis[p][1] - c->grid.axis[p][0], size = 10 * (double)w->npix / (range * range);
        for (size_t k = 0; k <= c->grid.ng; k++)
            at += w->bary[k] *
                  spx_rv_map(c, q, s->params[(size_t)s->simplex[w->simplex * (c->grid.ng + 1) + k] * c->npar + p]);
        double d = x[q] - at;
        w->prior += size * d * d;
        grad[q] += 2 * size * d;
        hess[q] += 2 * size;
        w->clamped[p] = 1;
        x[q] = at;
    }
}

/* A prior on vsini with a mean above 0 has no derivative by the internal unit at rest: km/s where it is taken. */
static const double LEAST_VSINI = 0.1;

/* Derivatives of the prior ((vsini - mean)/sigma)^2 by the internal unit x: of vsini^2 = x (x + 2a), which is regular
 * at rest, and of vsini, whose curvature Gauss-Newton's, (d vsini / dx)^2, would be wrong by any factor there. */
static void vsini_prior(double x, double a, double mean, double sigma, double *grad, double *hess)
{
    const double v = fmax(spx_rv_vsini(x, a), LEAST_VSINI), s2 = sigma * sigma;
    *grad += spx_rv_vsini_square_dx(x, a) / s2 * (1 - mean / v);
    *hess += 2 / s2 * (1 + fmax(0, mean) * a * a / (v * v * v));
}

/* Prior and penalty at x, which is brought into the templates' range. */
static void outside(spx_rv_spectra *w, double *x, int deriv)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_rvfit_options *o = c->opt;
    size_t nf = c->nfree;
    w->prior = 0;
    memset(w->prior_grad, 0, sizeof w->prior_grad);
    memset(w->prior_hess, 0, sizeof w->prior_hess);
    double grad[SPX_MAX_FIT] = {0}, hess[SPX_MAX_FIT] = {0};
    for (size_t q = 0; q < c->nq; q++) {
        if (o->prior_sigma[q] > 0) {
            double p = spx_rv_unmap(c, q, x[q]), s = o->prior_sigma[q], z = (p - o->prior_mean[q]) / s;
            w->prior += z * z;
            if (q == 1 && c->slow > 0) {
                vsini_prior(x[1], c->slow, o->prior_mean[1], s, &grad[1], &hess[1]);
            } else {
                const double dp = spx_rv_slope(c, q, x[q], 0) / s;
                grad[q] += 2 * z * dp;
                hess[q] += 2 * dp * dp;
            }
        }
        if (q < 2)
            continue;
        const double *axis = c->grid.axis[q - 2];
        double first = axis[0], last = axis[c->grid.naxis[q - 2] - 1];
        double range = last > first ? last - first : fmax(1e-3, fabs(first));
        double d = x[q] < first ? x[q] - first : (x[q] > last ? x[q] - last : 0);
        double size = 10 * (double)w->npix / (range * range);
        w->prior += size * d * d;
        grad[q] += 2 * size * d;
        hess[q] += d != 0 ? 2 * size : 0;
        x[q] -= d;
        w->clamped[q - 2] = d != 0;
    }
    if (c->interpolator == SPX_INTERPOLATE_SIMPLEX)
        outside_simplices(w, x, grad, hess);
    for (size_t k = 0; deriv && k < nf; k++) {
        w->prior_grad[k] = grad[c->freeq[k]];
        w->prior_hess[k * nf + k] = hess[c->freeq[k]];
    }
}

/* Templates at the corners of the star's simplex. */
static void corners(const spx_rv_spectra *w, spx_rv_stencil *s)
{
    const spx_rv_ctx *c = w->ctx;
    size_t m = c->grid.ng + 1;
    const double *coef = c->grid.simplex + w->simplex * m * m;
    for (size_t k = 0; k < m; k++) {
        double *out = s->weight + k * m;
        s->corner[k] = c->arm[0].setup->simplex[w->simplex * m + k];
        out[0] = w->bary[k];
        for (size_t g = 0; g < c->grid.ng; g++)
            out[1 + g] = w->clamped[c->grid.gpar[g]] ? 0 : coef[k * m + 1 + g];
    }
}

/* Weights of the nodes along the axes of the grid, x in `cell` (NULL: cubic, which has no cells). */
static void along_axes(const spx_rv_spectra *w, const double *x, const size_t *cell, spx_rv_stencil *s)
{
    const spx_rv_ctx *c = w->ctx;
    size_t base = 0;
    for (size_t g = 0; g < c->grid.ng; g++) {
        size_t p = c->grid.gpar[g], first = cell ? cell[g] : 0;
        if (c->interpolator == SPX_INTERPOLATE_CUBIC) {
            first = spx_rv_cubic_weights(c->grid.naxis[p], c->grid.axis[p], x[2 + p], s->value[g], s->slope[g]);
            s->count[g] = c->grid.naxis[p] < 4 ? (int32_t)c->grid.naxis[p] : 4;
        } else {
            double left = c->grid.axis[p][first], width = c->grid.axis[p][first + 1] - left,
                   u = (x[2 + p] - left) / width;
            s->value[g][0] = 1 - u;
            s->value[g][1] = u;
            s->slope[g][0] = -1 / width;
            s->slope[g][1] = 1 / width;
            s->count[g] = 2;
        }
        for (size_t k = 0; k < 4 && w->clamped[p]; k++)
            s->slope[g][k] = 0;
        base += first * c->grid.stride[g];
    }
    s->base = (int32_t)base;
}

/* Templates between which x lies: nodes of the grid, or of a simplex, into node[], and weights of the value and its
 * derivative by each axis into weight[node][lanes]. Returns how many; a network takes none. */
static size_t stencil(const spx_rv_spectra *w, const double *x, const size_t *cell, size_t lanes)
{
    const spx_rv_ctx *c = w->ctx;
    spx_rv_stencil s;
    size_t ng = c->grid.ng, n = 1;
    if (c->interpolator == SPX_INTERPOLATE_NN)
        return 0;
    if (c->interpolator == SPX_INTERPOLATE_SIMPLEX) {
        corners(w, &s);
        for (size_t k = 0; k <= ng; k++) {
            w->workspace->node[k] = s.corner[k];
            memcpy(w->workspace->weight + k * lanes, s.weight + k * (ng + 1), lanes * sizeof *s.weight);
        }
        return ng + 1;
    }
    /* products of the axes' weights, one axis after another; the last one's nodes are side by side */
    double *weight = w->workspace->weight;
    int32_t *node = w->workspace->node;
    along_axes(w, x, cell, &s);
    node[0] = s.base;
    for (size_t l = 0; l < lanes; l++)
        weight[l] = 1;
    for (size_t g = 0; g < ng; g++) {
        const size_t m = (size_t)s.count[g];
        for (size_t k = n; k-- > 0;) { /* from behind, so that none is lost */
            const int32_t from = node[k];
            double was[1 + SPX_MAX_PAR];
            memcpy(was, weight + k * lanes, lanes * sizeof *was);
            for (size_t j = m; j-- > 0;) {
                double *out = weight + (k * m + j) * lanes;
                for (size_t l = 0; l < lanes; l++)
                    out[l] = was[l] * (l == 1 + g ? s.slope[g][j] : s.value[g][j]);
                node[k * m + j] = from + (int32_t)(j * c->grid.stride[g]);
            }
        }
        n *= m;
    }
    return n;
}

/* Row of the template that a stencil names: by its node, or in simplices itself. */
static size_t template_row(const spx_rv_arm *a, int32_t node)
{
    return (size_t)(a->setup->node ? a->setup->node[node] : node);
}

/* ln T into plane[stride] and its derivatives by the mapped parameters into slope[lanes-1][stride], from the templates
 * themselves. */
static void sum_templates(const spx_rv_spectra *w, const spx_rv_arm *a, size_t nnode, size_t lanes, double *plane,
                          float *slope)
{
    size_t nt = a->nt, stride = a->ntile * SPX_RV_TILE;
    enum { PIXELS = 256 };
    memset(plane, 0, stride * sizeof *plane);
    for (size_t i0 = 0; i0 < nt; i0 += PIXELS) {
        size_t m = nt - i0 < PIXELS ? nt - i0 : PIXELS;
        double sum[1 + SPX_MAX_PAR][PIXELS] = {{0}};
        for (size_t k = 0; k < nnode; k++) {
            const float *f = a->setup->lnflux + template_row(a, w->workspace->node[k]) * nt + i0;
            for (size_t l = 0; l < lanes; l++) {
                double s = w->workspace->weight[k * lanes + l], *out = sum[l];
                if (s == 0)
                    continue;
                for (size_t i = 0; i < m; i++)
                    out[i] += s * (double)f[i];
            }
        }
        memcpy(plane + i0, sum[0], m * sizeof *plane);
        for (size_t l = 1; l < lanes; l++)
            for (size_t i = 0; i < m; i++)
                slope[(l - 1) * stride + i0 + i] = (float)sum[l][i];
    }
}

/* Coefficients of the principal components at x from the network, as sum_coefficients(). */
static void network_coefficients(const spx_rv_spectra *w, const spx_rv_arm *a, const double *x, size_t lanes,
                                 double *cd, float *cf)
{
    const spx_rv_ctx *c = w->ctx;
    size_t nc = a->setup->pca.ncomp;
    spx_nn_evaluate(&a->setup->nn, x + 2, lanes, c->grid.gpar, w->workspace->net, cd);
    for (size_t g = 0; g + 1 < lanes; g++)
        for (size_t k = 0; k < nc && w->clamped[c->grid.gpar[g]]; k++)
            cd[k * lanes + 1 + g] = 0;
    for (size_t k = 0; k < nc * lanes; k++)
        cf[k] = (float)cd[k];
}

/* Values of the large components, large[SPX_RV_LARGE], from the nodes' rows of coefficients, [nnode][nc]. */
static void sum_large(size_t nnode, const int32_t *row, const double *weight, size_t lanes, size_t nc,
                      const double *coef, double *large)
{
    for (size_t k = 0; k < nnode && nc < SPX_RV_LARGE; k++)
        for (size_t i = 0; i < nc; i++)
            large[i] += weight[k * lanes] * coef[(size_t)row[k] * nc + i];
    for (size_t k = 0; k < nnode && nc >= SPX_RV_LARGE; k++)
        for (size_t i = 0; i < SPX_RV_LARGE; i++) /* mostly there are so many, and the loop is of vectors */
            large[i] += weight[k * lanes] * coef[(size_t)row[k] * nc + i];
}

/* Coefficients of the principal components at x, [ncomp][lanes] in single precision, in double those of the values of
 * the large ones. */
static void sum_coefficients(const spx_rv_spectra *w, const spx_rv_arm *a, const double *x, size_t nnode, size_t lanes,
                             double *cd, float *cf)
{
    const spx_pca *p = &a->setup->pca;
    if (w->ctx->interpolator == SPX_INTERPOLATE_NN) {
        network_coefficients(w, a, x, lanes, cd, cf);
        return;
    }
    const size_t nc = p->ncomp, nd = nc < SPX_RV_LARGE ? nc : SPX_RV_LARGE;
    int32_t *row = w->workspace->row;
    float *sum = w->workspace->sum;
    double large[SPX_RV_LARGE] = {0};
    for (size_t k = 0; k < nnode; k++)
        row[k] = (int32_t)template_row(a, w->workspace->node[k]);
    sum_large(nnode, row, w->workspace->weight, lanes, nc, p->coef, large);
    w->ctx->kernels->combine(a->ncoef, nnode, row, w->workspace->single, lanes, a->coef, sum);
    for (size_t k = 0; k < nd; k++)
        cd[k * lanes] = large[k];
    for (size_t k = 0; k < nc; k++)
        for (size_t l = 0; l < lanes; l++)
            cf[k * lanes + l] = sum[l * a->ncoef + k];
}

/* Flux of a template whose components are those of flux itself; less has no logarithm. */
static const double LEAST_FLUX = 1e-10;

/* ln T and its derivatives from the coefficients of n stars, into their planes. */
static void sum_components(const spx_rv_arm *a, const spx_rv_kernels *kernels, size_t n, const double *const *cd,
                           const float *const *cf, spx_rv_workspace *r, size_t lanes)
{
    size_t nc = a->setup->pca.ncomp, stride = a->ntile * SPX_RV_TILE;
    kernels->components(lanes, a->ntile, nc < SPX_RV_LARGE ? nc : SPX_RV_LARGE, nc, a->comp, a->mean, n, cd, cf,
                        r->plane, r->slope);
    for (size_t k = 0; k < n && a->setup->pca.of_flux; k++)
        for (size_t i = 0; i < stride; i++) {
            double *t = r->plane[k] + i, flux = fmax(t[0], LEAST_FLUX), good = t[0] > LEAST_FLUX;
            t[0] = log(flux);
            for (size_t l = 1; l < lanes; l++)
                r->slope[k][(l - 1) * stride + i] *= (float)(good / flux);
        }
}

enum { MAX_REACH = 4096 };

/* Weights of the rotation kernel of arm `ia` at x1 and their derivatives, which are to be multiplied by *scale; returns
 * its reach, and *h, 0: there is none. */
static size_t rotation(const spx_rv_ctx *c, size_t ia, double x1, double *h, double *weight, double *dweight,
                       double *scale)
{
    const double per = 1 / (SPX_C_KMS * c->arm[ia].setup->dlnwave);
    *h = fmin(spx_rv_vsini(x1, c->slow) * per, MAX_REACH - 4);
    *scale = spx_rv_vsini_square_dx(x1, c->slow) * per * per;
    const size_t reach = spx_rotation_reach(*h);
    if (c->interpolator != SPX_INTERPOLATE_GRID) {
        spx_rotation_weights(*h, reach, weight, dweight);
    } else { /* rvspecfit's model in all */
        *scale = per;
        for (size_t k = 0; k <= reach; k++)
            weight[k] = spx_rotation_linear_weight(k, *h, &dweight[k]);
    }
    return reach;
}

/* Derivatives of the template, flux plane[stride] before rotation, by the free quantities but v, into s: coefficients
 * of their splines. slope: those of ln T by the axes. */
static void finish_slopes(const spx_rv_spectra *w, size_t ia, double h, size_t reach, const double *weight,
                          const double *dweight, double scale, const double *plane, const float *slope)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_rv_arm *a = &c->arm[ia];
    const spx_rv_kernels *kernels = c->kernels;
    const size_t nt = a->nt, stride = a->ntile * SPX_RV_TILE;
    float single[MAX_REACH + 1], *f = w->workspace->rotf, *broad = f + c->size.nt, *m = broad + c->size.nt,
                                 *flux = m + c->size.nt, *s = w->workspace->s[ia] + 1;
    kernels->scaled(nt, plane, 1, flux);
    for (size_t k = 0; k <= reach; k++)
        single[k] = (float)weight[k];
    for (size_t k = 0; k < c->nfree; k++) {
        const size_t q = c->freeq[k];
        const float *of = f;
        size_t g = 0;
        if (q == 0)
            continue;
        if (q == 1) {
            kernels->broaden_one(nt, reach, dweight, plane, w->workspace->rot);
            kernels->scaled(nt, w->workspace->rot, scale, f);
        } else {
            while (c->grid.gpar[g] != q - 2)
                g++;
            kernels->slopes(nt, flux, slope + g * stride, f);
            if (h > 0) {
                kernels->broaden_float(nt, reach, single, f, broad);
                of = broad;
            }
        }
        kernels->coefficients_float(nt, a->cprime, of, m, s);
        s += nt + 2;
    }
}

/* Templates of arm `ia`, broadened, into *to, out of ln T in plane[stride] and, with derivatives, its own,
 * slope[ng][stride]. */
static void finish_template(const spx_rv_spectra *w, size_t ia, double x1, int deriv, double *plane, const float *slope,
                            const spx_rv_templates *to)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_rv_arm *a = &c->arm[ia];
    const spx_rv_kernels *kernels = c->kernels;
    const size_t nt = a->nt;
    double weight[MAX_REACH + 1], dweight[MAX_REACH + 1], h, scale;
    const size_t reach = rotation(c, ia, x1, &h, weight, dweight, &scale);
    kernels->exponential(a->ntile * SPX_RV_TILE, plane);
    double *broad = w->workspace->rot + c->size.nt, *scratch = broad + c->size.nt;
    if (h > 0)
        kernels->broaden_one(nt, reach, weight, plane, broad);
    kernels->coefficients(nt, a->cprime, h > 0 ? broad : plane, scratch, to->c[ia] + 1);
    if (deriv)
        finish_slopes(w, ia, h, reach, weight, dweight, scale, plane, slope);
}

/* Prior of the point x0, which is brought into range in x. Returns the cell that it is seen from, of an interpolation
 * that has cells: `cell`, or the one that it is in, in here[]. */
static const size_t *begin_point(spx_rv_spectra *w, const double *x0, const size_t *cell, int deriv, double *x,
                                 size_t *here)
{
    const spx_rv_ctx *c = w->ctx;
    memcpy(x, x0, c->nq * sizeof *x);
    outside(w, x, deriv);
    memcpy(w->prep, x0, c->nq * sizeof *x);
    w->prep_deriv = deriv;
    if (cell || c->interpolator != SPX_INTERPOLATE_GRID)
        return cell;
    spx_rv_cell(c, x, here);
    return here;
}

/* The same, and the templates that the point lies between. */
static size_t prepare(spx_rv_spectra *w, const double *x0, const size_t *cell, int deriv, size_t lanes, double *x)
{
    size_t here[SPX_MAX_PAR];
    return stencil(w, x, begin_point(w, x0, cell, deriv, x, here), lanes);
}

double spx_rv_lnnorm(spx_rv_spectra *w, size_t ia, const double *x0)
{
    const spx_rv_arm *a = &w->ctx->arm[ia];
    double x[SPX_MAX_FIT], sum = 0;
    const size_t nnode = prepare(w, x0, NULL, 0, 1, x);
    for (size_t k = 0; k < nnode && a->setup->lnnorm != NULL; k++)
        sum += w->workspace->weight[k] * a->setup->lnnorm[template_row(a, w->workspace->node[k])];
    return sum;
}

void spx_rv_stencil_at(spx_rv_spectra *w, const double *x0, const size_t *cell, int deriv, spx_rv_stencil *s)
{
    const spx_rv_ctx *c = w->ctx;
    double x[SPX_MAX_FIT];
    size_t here[SPX_MAX_PAR];
    *s = (spx_rv_stencil){0};
    cell = begin_point(w, x0, cell, deriv, x, here);
    s->vsini = spx_rv_vsini(x[1], c->slow);
    s->vsini_square_dx = spx_rv_vsini_square_dx(x[1], c->slow);
    memcpy(s->x, x + 2, c->npar * sizeof *x);
    for (size_t g = 0; g < c->grid.ng; g++)
        s->clamped[g] = w->clamped[c->grid.gpar[g]];
    if (c->interpolator == SPX_INTERPOLATE_SIMPLEX)
        corners(w, s);
    else if (c->interpolator != SPX_INTERPOLATE_NN)
        along_axes(w, x, cell, s);
}

/* Coefficients of the components of arm `ia` for star k of a workspace. */
static double *large_coefficients(const spx_rv_workspace *r, size_t k, const spx_rv_ctx *c, size_t ia, size_t lanes)
{
    return r->cd[k] + ia * c->size.comp * lanes;
}

static float *coefficients(const spx_rv_workspace *r, size_t k, const spx_rv_ctx *c, size_t ia, size_t lanes)
{
    return r->cf[k] + ia * c->size.comp * lanes;
}

/* n stars begin a point each, x[k], which is at[k] brought into range: the coefficients of all arms' components, which
 * the same nodes have with the same weights. */
static void begin_points(size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT], const size_t *const *cell,
                         int deriv, double (*at)[SPX_MAX_FIT])
{
    const spx_rv_ctx *c = w[0]->ctx;
    spx_rv_workspace *r = w[0]->workspace;
    const size_t lanes = deriv ? 1 + c->grid.ng : 1;
    for (size_t k = 0; k < n; k++) {
        const size_t nnode = prepare(w[k], x[k], cell != NULL ? cell[k] : NULL, deriv, lanes, at[k]);
        for (size_t i = 0; i < nnode * lanes; i++)
            r->single[i] = (float)r->weight[i];
        for (size_t ia = 0; ia < c->narm; ia++)
            if (c->arm[ia].comp != NULL && w[k]->first[ia] < w[k]->first[ia + 1])
                sum_coefficients(w[k], &c->arm[ia], at[k], nnode, lanes, large_coefficients(r, k, c, ia, lanes),
                                 coefficients(r, k, c, ia, lanes));
    }
}

/* ln T of arm `ia` at the points x[k] of n stars that have begun, and with several lanes its derivatives, into their
 * planes. */
static void make_planes(size_t n, spx_rv_spectra *const *w, size_t ia, const double (*x)[SPX_MAX_FIT],
                        const size_t *const *cell, int deriv)
{
    const spx_rv_ctx *c = w[0]->ctx;
    const spx_rv_arm *a = &c->arm[ia];
    spx_rv_workspace *r = w[0]->workspace;
    const size_t lanes = deriv ? 1 + c->grid.ng : 1;
    const double *cd[SPX_RV_BATCH] = {NULL};
    const float *cf[SPX_RV_BATCH] = {NULL};
    for (size_t k = 0; k < n; k++) {
        cd[k] = large_coefficients(r, k, c, ia, lanes);
        cf[k] = coefficients(r, k, c, ia, lanes);
    }
    if (a->comp != NULL) {
        sum_components(a, c->kernels, n, cd, cf, r, lanes);
        return;
    }
    for (size_t k = 0; k < n; k++) {
        double at[SPX_MAX_FIT];
        const size_t nnode = prepare(w[k], x[k], cell != NULL ? cell[k] : NULL, deriv, lanes, at);
        sum_templates(w[k], a, nnode, lanes, r->plane[k], r->slope[k]);
    }
}

void spx_rv_template(spx_rv_spectra *w, const double *x0, const size_t *cell, int deriv)
{
    const spx_rv_ctx *c = w->ctx;
    spx_rv_workspace *r = w->workspace;
    double x[1][SPX_MAX_FIT], at[1][SPX_MAX_FIT];
    memcpy(x[0], x0, c->nq * sizeof *x0);
    r->at = &r->own;
    begin_points(1, &w, (const double(*)[SPX_MAX_FIT])x, &cell, deriv, at);
    for (size_t ia = 0; ia < c->narm; ia++) {
        if (w->first[ia] == w->first[ia + 1])
            continue;
        make_planes(1, &w, ia, (const double(*)[SPX_MAX_FIT])x, &cell, deriv);
        finish_template(w, ia, at[0][1], deriv, r->plane[0], r->slope[0], &r->own);
    }
}

size_t spx_rv_together(const spx_rv_ctx *c)
{
    return c->interpolator == SPX_INTERPOLATE_GRID ? 1 : SPX_RV_TOGETHER;
}

/* The star of whose pieces w has some, or all. */
static spx_rv_spectra *star_of(spx_rv_spectra *w)
{
    return w->whole != NULL ? w->whole : w;
}

/* Are the templates of a star at x kept, and is that the point that it was seen at last, so that the prior is of it,
 * too? Then they are in use from now on. At other velocities they are the same. */
static int use_kept(spx_rv_spectra *w, const double *x)
{
    spx_rv_workspace *r = w->workspace;
    const size_t size = (w->ctx->nq - 1) * sizeof *x;
    for (size_t i = 0; i < SPX_RV_TOGETHER && !w->prep_deriv && memcmp(w->prep + 1, x + 1, size) == 0; i++)
        if (r->kept[i].owner == w && memcmp(r->kept[i].x + 1, x + 1, size) == 0) {
            r->at = &r->kept[i];
            return 1;
        }
    return 0;
}

void spx_rv_forget(const spx_rv_spectra *w)
{
    for (size_t i = 0; i < SPX_RV_TOGETHER; i++)
        if (w->workspace->kept[i].owner == w)
            w->workspace->kept[i].owner = NULL;
}

/* Where the templates of star k are kept: no other of the n stars has this place. NULL: no memory. */
static spx_rv_templates *place_for(size_t n, spx_rv_spectra *const *w, size_t k, const double *x)
{
    spx_rv_templates *t = w[0]->workspace->kept;
    spx_rv_spectra *star = star_of(w[k]);
    spx_rv_forget(star);
    for (;; t++) { /* there are as many as stars */
        int taken = 0;
        for (size_t j = 0; j < n && !taken; j++)
            taken = t->owner == star_of(w[j]);
        if (!taken)
            break;
    }
    if (t->c[0] == NULL && !spx_rv_make_templates(w[k]->ctx, t, &w[0]->err))
        return NULL;
    t->owner = star;
    memcpy(t->x, x, w[k]->ctx->nq * sizeof *x);
    return t;
}

int spx_rv_keep_templates(size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT])
{
    spx_rv_spectra *who[SPX_RV_TOGETHER];
    spx_rv_templates *to[SPX_RV_TOGETHER];
    double where[SPX_RV_TOGETHER][SPX_MAX_FIT], at[SPX_RV_TOGETHER][SPX_MAX_FIT];
    size_t m = 0;
    for (size_t k = 0; k < n; k++) {
        spx_rv_spectra *star = star_of(w[k]);
        int listed = 0; /* exposures of a star have the same parameters */
        for (size_t j = 0; j < m; j++)
            listed = listed || who[j] == star;
        if (listed || use_kept(star, x[k]))
            continue;
        who[m] = star;
        if ((to[m] = place_for(n, w, k, x[k])) == NULL)
            return 0;
        memcpy(where[m++], x[k], sizeof where[0]);
    }
    if (m > 0)
        begin_points(m, who, (const double(*)[SPX_MAX_FIT])where, NULL, 0, at);
    for (size_t ia = 0; m > 0 && ia < w[0]->ctx->narm; ia++) {
        make_planes(m, who, ia, (const double(*)[SPX_MAX_FIT])where, NULL, 0);
        for (size_t k = 0; k < m; k++)
            if (who[k]->first[ia] < who[k]->first[ia + 1])
                finish_template(who[k], ia, at[k][1], 0, w[0]->workspace->plane[k], NULL, to[k]);
    }
    return 1;
}

void spx_rv_use_templates(spx_rv_spectra *w, const double *x)
{
    if (!use_kept(star_of(w), x))
        spx_rv_template(star_of(w), x, NULL, 0);
}

static size_t sample_stride(const spx_rv_arm *a)
{
    return a->fine.per > 0 ? (a->fine.n + SPX_RV_LANES - 1) / SPX_RV_LANES * SPX_RV_LANES : a->stride;
}

/* The template of arm `ia` at its pixels and velocity v, and with derivatives those by each free quantity:
 * workspace->t[1 or 1+nfree][stride]; with a transmission of the atmosphere at the samples between, and their stride.
 */
static void sample(const spx_rv_spectra *w, size_t ia, double v)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_rv_arm *a = &c->arm[ia];
    spx_rv_workspace *r = w->workspace;
    double shift = spx_rv_lnshift(v) / a->setup->dlnwave, dshift = spx_rv_lnshift_dv(v) / a->setup->dlnwave;
    size_t P = w->prep_deriv ? 1 + c->nfree : 1;
    const size_t n = a->fine.per > 0 ? a->fine.n : a->n, stride = sample_stride(a);
    const double *place = a->fine.per > 0 ? a->fine.place : a->place;
    const int free_v = c->nfree > 0 && c->freeq[0] == 0;
    if (w->prep_deriv)
        c->kernels->sample(n, place, shift, dshift, a->nt, r->at->c[ia] + 1, r->s[ia] + 1, a->nt + 2,
                           c->nfree - (size_t)free_v, free_v, r->t, stride);
    else
        c->kernels->sample_one(n, place, shift, a->nt, r->at->c[ia] + 1, r->t);
    for (size_t l = 0; l < P; l++)
        for (size_t i = n; i < stride; i++)
            r->t[l * stride + i] = 0;
}

/* What sample() left, as a piece of the arm sees it: P rows. */
static const double *blurred(const spx_rv_spectra *w, const spx_rv_data *d, size_t P)
{
    spx_rv_workspace *r = w->workspace;
    const spx_rv_arm *a = &w->ctx->arm[d->arm];
    for (size_t l = 0; l < P && a->fine.per > 0; l++)
        spx_rv_apply_fine(a, d->band, d->air, r->t + l * sample_stride(a), r->product, r->t2 + l * a->stride);
    if (a->fine.per > 0)
        return r->t2;
    if (!w->ctx->opt->resolution)
        return r->t;
    w->ctx->kernels->resolve(a->n, a->arm->ndiag, d->band, P, a->stride, r->t, r->t2);
    for (size_t l = 0; l < P; l++)
        for (size_t i = a->n; i < a->stride; i++)
            r->t2[l * a->stride + i] = 0;
    return r->t2;
}

const double *spx_rv_sample(spx_rv_spectra *w, const spx_rv_data *d, double v)
{
    sample(w, d->arm, v);
    return blurred(w, d, w->prep_deriv ? 1 + w->ctx->nfree : 1);
}

void spx_rv_sample_at(const spx_rv_spectra *w, size_t ia, double v, size_t n, const double *place, double *t)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_rv_arm *a = &c->arm[ia];
    const double shift = spx_rv_lnshift(v) / a->setup->dlnwave;
    c->kernels->sample_one(n, place, shift, a->nt, w->workspace->at->c[ia] + 1, t);
    for (size_t i = 0; i < n; i++)
        if (!(place[i] + shift >= 0 && place[i] + shift <= (double)(a->nt - 1)))
            t[i] = 0;
}

/* Normal equations of the continuum of a piece. */
typedef struct {
    double factor[SPX_RVFIT_MAX_POLY * SPX_RVFIT_MAX_POLY]; /* of S'S (calib/band.h) */
    double coef[SPX_RVFIT_MAX_POLY];
} equations;

/* The continuum for the template t[stride]; leaves it in workspace->q, returns chi^2 over all pixels; HUGE_VAL when S'S
 * is singular. */
static double solve_continuum(const spx_rv_spectra *w, const spx_rv_data *d, const double *t, equations *s)
{
    const spx_rv_basis *b = &w->ctx->arm[d->arm].basis;
    const spx_rv_kernels *kernels = w->ctx->kernels;
    double gram[SPX_RVFIT_MAX_POLY * SPX_RVFIT_MAX_POLY];
    kernels->normal(b, t, d->ie, d->flux, gram, s->coef);
    if (spx_band_factor(b->n, (int)b->band, gram, 0, s->factor) > 0)
        return HUGE_VAL;
    spx_band_solve(b->n, (int)b->band, s->factor, s->coef);
    return kernels->residual(b, s->coef, t, d->ie, d->flux, w->workspace->q);
}

/* Gradient and Gauss-Newton curvature of one piece. With the continuum projected out (Golub & Pereyra 1973; Kaufman's
 * approximation of the curvature), u_l = (P a) dT_l / e:  d|r|^2 = -2 r'u,  curvature 2 [u'u - (S'u)'(S'S)^-1(S'u)],
 * and d ln det(S'S) = 2 sum_i S_i'(S'S)^-1 S_i dT_i / T_i. */
static void piece_derivatives(const spx_rv_spectra *w, const spx_rv_data *d, const double *t, const equations *s,
                              spx_rv_value *out)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_rv_basis *b = &c->arm[d->arm].basis;
    const size_t np = b->n, nf = c->nfree;
    double sum[(SPX_RVFIT_MAX_POLY + 1 + SPX_MAX_FIT) * SPX_MAX_FIT], inverse[SPX_RVFIT_MAX_POLY * SPX_RVFIT_MAX_POLY];
    spx_band_inverse(np, (int)b->band, s->factor, inverse);
    c->kernels->curvature(b, nf, inverse, w->workspace->q, t, d->ie, d->flux, sum);
    /* S'S = L D L': of S'u, L^-1 S'u is enough, of all free quantities side by side */
    double y[SPX_RVFIT_MAX_POLY][SPX_MAX_FIT] = {{0}};
    for (size_t j = 0; j < np; j++) {
        memcpy(y[j], sum + j * nf, nf * sizeof *sum);
        for (size_t k = 1; k <= b->band && k <= j; k++)
            for (size_t l = 0; l < SPX_MAX_FIT; l++)
                y[j][l] -= s->factor[k * np + j - k] * y[j - k][l];
    }
    for (size_t l = 0; l < nf; l++) {
        double *row = sum + (np + 1 + l) * nf;
        out->grad[l] += 2 * sum[np * nf + l];
        for (size_t k = 0; k < np; k++)
            for (size_t m = 0; m <= l; m++)
                row[m] -= y[k][l] * s->factor[k] * y[k][m];
        for (size_t m = 0; m <= l; m++) {
            out->hess[l * nf + m] += 2 * row[m];
            if (m < l)
                out->hess[m * nf + l] += 2 * row[m];
        }
    }
}

/* Adds a piece to *out, with what sample() left; 0 when the objective cannot be computed. */
static int add_piece(spx_rv_spectra *w, const spx_rv_data *d, spx_rv_value *out)
{
    const spx_rv_basis *b = &w->ctx->arm[d->arm].basis;
    const double *t = blurred(w, d, w->prep_deriv ? 1 + w->ctx->nfree : 1);
    equations s;
    const double chisq = solve_continuum(w, d, t, &s);
    if (!(chisq < HUGE_VAL))
        return 0;
    out->f += spx_rv_lndet(b->n, s.factor) + b->lndet + d->sum_lne2 + chisq;
    if (w->prep_deriv)
        piece_derivatives(w, d, t, &s, out);
    return 1;
}

int spx_rv_add_sampled(const spx_rv_spectra *w, const spx_rv_data *d, const double *t, spx_rv_value *out, double *r)
{
    const spx_rv_arm *a = &w->ctx->arm[d->arm];
    equations s;
    const double chisq = solve_continuum(w, d, t, &s);
    if (!(chisq < HUGE_VAL))
        return 0;
    out->f += spx_rv_lndet(a->basis.n, s.factor) + a->basis.lndet + d->sum_lne2 + chisq;
    for (size_t i = 0; i < a->stride; i++)
        r[i] = i < a->n ? (d->flux[i] - w->workspace->q[i] * t[i]) * d->ie[i] : 0;
    return 1;
}

/* Adds the pieces of an arm, at velocity v and the templates in use. */
static int add_arm(spx_rv_spectra *w, size_t ia, double v, spx_rv_value *out)
{
    int ok = 1;
    if (w->first[ia] < w->first[ia + 1])
        sample(w, ia, v);
    for (size_t i = w->first[ia]; i < w->first[ia + 1] && ok; i++)
        ok = add_piece(w, &w->piece[i], out);
    return ok;
}

void spx_rv_begin_value(spx_rv_spectra *w, double v, spx_rv_value *out)
{
    const spx_rvfit_options *o = w->ctx->opt;
    out->f = w->prior;
    if (o->prior_sigma[0] > 0) { /* the prior in the workspace is for the v that the templates were made with */
        double z0 = (w->prep[0] - o->prior_mean[0]) / o->prior_sigma[0];
        double z = (v - o->prior_mean[0]) / o->prior_sigma[0];
        out->f += z * z - z0 * z0;
    }
    if (w->prep_deriv) {
        memcpy(out->grad, w->prior_grad, sizeof out->grad);
        memcpy(out->hess, w->prior_hess, sizeof out->hess);
        w->neval++;
    }
}

void spx_rv_project(spx_rv_spectra *w, double v, spx_rv_value *out)
{
    int ok = 1;
    spx_rv_begin_value(w, v, out);
    for (size_t ia = 0; ia < w->ctx->narm && ok; ia++)
        ok = add_arm(w, ia, v, out);
    if (!ok || !isfinite(out->f))
        out->f = HUGE_VAL;
}

void spx_rv_eval(spx_rv_spectra *w, const double *x, const size_t *cell, int deriv, spx_rv_value *out)
{
    spx_rv_template(w, x, cell, deriv);
    spx_rv_project(w, x[0], out);
}

void spx_rv_eval_batch(size_t n, spx_rv_spectra *const *w, const double (*x)[SPX_MAX_FIT], const size_t *const *cell,
                       spx_rv_value *out)
{
    const spx_rv_ctx *c = w[0]->ctx;
    spx_rv_workspace *r = w[0]->workspace;
    double at[SPX_RV_BATCH][SPX_MAX_FIT];
    r->at = &r->own;
    begin_points(n, w, x, cell, 1, at);
    for (size_t k = 0; k < n; k++)
        spx_rv_begin_value(w[k], x[k][0], &out[k]);
    for (size_t ia = 0; ia < c->narm; ia++) {
        make_planes(n, w, ia, x, cell, 1);
        for (size_t k = 0; k < n; k++) {
            if (w[k]->first[ia] == w[k]->first[ia + 1])
                continue;
            finish_template(w[k], ia, at[k][1], 1, r->plane[k], r->slope[k], &r->own);
            if (!add_arm(w[k], ia, x[k][0], &out[k]) || !isfinite(out[k].f))
                out[k].f = HUGE_VAL;
        }
    }
}

double spx_rv_chisq(spx_rv_spectra *w, const spx_rv_data *d, double v, int flat, double *model)
{
    const spx_rv_arm *a = &w->ctx->arm[d->arm];
    equations s;
    double chisq = 0;
    if (flat)
        for (size_t i = 0; i < sample_stride(a); i++)
            w->workspace->t[i] = a->fine.per > 0 || i < a->n;
    else
        sample(w, d->arm, v);
    const double *t = blurred(w, d, 1);
    int ok = solve_continuum(w, d, t, &s) < HUGE_VAL;
    for (size_t i = 0; i < a->n; i++) {
        double f = ok ? w->workspace->q[i] * t[i] : 0, z = (d->flux[i] - f) * d->ie[i];
        if (d->good[i])
            chisq += z * z;
        if (model)
            model[i] = f;
    }
    return ok ? chisq : HUGE_VAL;
}

/* Adds what a piece says of the nf free quantities and na of the atmosphere: half of curvature and gradient of chi^2,
 * with the continuum projected out. t[1+nf+na][stride]: the template and its derivatives, as the piece sees them. */
static int add_air(const spx_rv_spectra *w, const spx_rv_data *d, const double *t, size_t nq, double *su, double *u,
                   double *hess, double *grad)
{
    const spx_rv_arm *a = &w->ctx->arm[d->arm];
    const spx_rv_basis *b = &a->basis;
    equations s;
    if (!(solve_continuum(w, d, t, &s) < HUGE_VAL))
        return 0;
    const double *cont = w->workspace->q;
    for (size_t l = 0; l < nq; l++) {
        const double *dt = t + (1 + l) * a->stride;
        double *ul = u + l * a->stride, right = 0, solved[SPX_RVFIT_MAX_POLY];
        for (size_t i = 0; i < a->n; i++) {
            ul[i] = cont[i] * dt[i] * d->ie[i];
            right += ul[i] * (d->flux[i] - cont[i] * t[i]) * d->ie[i];
        }
        grad[l] += right;
        for (size_t k = 0; k < b->n; k++) {
            const double *p = b->value + k * b->stride;
            double sum = 0;
            for (size_t i = 0; i < a->n; i++)
                sum += p[i] * t[i] * d->ie[i] * ul[i];
            su[l * SPX_RVFIT_MAX_POLY + k] = solved[k] = sum;
        }
        spx_band_solve(b->n, (int)b->band, s.factor, solved);
        for (size_t m = 0; m <= l; m++) {
            double sum = 0;
            for (size_t i = 0; i < a->n; i++)
                sum += ul[i] * u[m * a->stride + i];
            for (size_t k = 0; k < b->n; k++)
                sum -= su[m * SPX_RVFIT_MAX_POLY + k] * solved[k];
            hess[l * nq + m] += sum;
            if (m < l)
                hess[m * nq + l] += sum;
        }
    }
    return 1;
}

int spx_rv_air_normal(spx_rv_spectra *w, const double *x, const double *strength, double *hess, double *grad)
{
    static const double STEP = 1e-3, SHIFT = 0.05; /* of a strength, and km/s */
    const spx_rv_ctx *c = w->ctx;
    const spx_transmission *air = c->opt->transmission;
    const size_t nf = c->nfree, na = air->nspecies + 1, nq = nf + na;
    spx_rv_workspace *r = w->workspace;
    double *t = spx_alloc2(1 + nq, c->size.n, sizeof *t, &w->err), *u = spx_alloc2(nq, c->size.n, sizeof *u, &w->err);
    double *su = spx_alloc2(nq, SPX_RVFIT_MAX_POLY, sizeof *su, &w->err);
    double *side = spx_alloc2(5, c->size.sample, sizeof *side, &w->err);
    int ok = t != NULL && u != NULL && su != NULL && side != NULL;
    memset(hess, 0, nq * nq * sizeof *hess);
    memset(grad, 0, nq * sizeof *grad);
    if (ok)
        spx_rv_template(w, x, NULL, 1);
    for (size_t ia = 0; ia < c->narm && ok; ia++) {
        const spx_rv_arm *a = &c->arm[ia];
        const size_t nair = 2 * a->fine.n;
        if (w->first[ia] < w->first[ia + 1])
            sample(w, ia, x[0]);
        for (size_t i = w->first[ia]; i < w->first[ia + 1] && ok; i++) {
            const spx_rv_data *d = &w->piece[i];
            memcpy(t, blurred(w, d, 1 + nf), (1 + nf) * a->stride * sizeof *t);
            for (size_t k = 0; k < na; k++) {
                const double step = k + 1 < na ? STEP : SHIFT;
                double at[SPX_MAX_SPECIES + 1], *other = side + nair, *tmp = side + 2 * nair;
                memcpy(at, strength, na * sizeof *at);
                at[k] = strength[k] + step;
                spx_rv_air(a, air, at, side, tmp);
                at[k] = strength[k] - step;
                spx_rv_air(a, air, at, other, tmp);
                for (size_t j = 0; j < nair; j++)
                    side[j] = (side[j] - other[j]) / (2 * step);
                spx_rv_apply_fine(a, d->band, side, r->t, r->product, t + (1 + nf + k) * a->stride);
            }
            ok = add_air(w, d, t, nq, su, u, hess, grad);
        }
    }
    for (size_t l = 0; l < nf && ok; l++) {
        grad[l] -= 0.5 * w->prior_grad[l];
        for (size_t m = 0; m < nf; m++)
            hess[l * nq + m] += 0.5 * w->prior_hess[l * nf + m];
    }
    spx_free(t);
    spx_free(u);
    spx_free(su);
    spx_free(side);
    return ok;
}
