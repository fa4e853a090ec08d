/* The objective of one star and its derivatives. */
#include <cblas.h>
#include <math.h>
#include <string.h>

#include "rvfit/rvfit_internal.h"
#include "template/rotation_math.h"

/* Loops over a number of lanes that the compiler knows. */
#define LANES(L, CALL)                                                                                                 \
    switch (L) {                                                                                                       \
    case 1:                                                                                                            \
        CALL(1);                                                                                                       \
        break;                                                                                                         \
    case 2:                                                                                                            \
        CALL(2);                                                                                                       \
        break;                                                                                                         \
    case 3:                                                                                                            \
        CALL(3);                                                                                                       \
        break;                                                                                                         \
    case 4:                                                                                                            \
        CALL(4);                                                                                                       \
        break;                                                                                                         \
    case 5:                                                                                                            \
        CALL(5);                                                                                                       \
        break;                                                                                                         \
    case 6:                                                                                                            \
        CALL(6);                                                                                                       \
        break;                                                                                                         \
    case 7:                                                                                                            \
        CALL(7);                                                                                                       \
        break;                                                                                                         \
    case 8:                                                                                                            \
        CALL(8);                                                                                                       \
        break;                                                                                                         \
    default:                                                                                                           \
        CALL(L);                                                                                                       \
    }

void spx_rv_cell(const spx_rv_ctx *c, const double *x, size_t *cell)
{
    for (size_t g = 0; g < c->ng; g++) {
        size_t p = c->gpar[g], n = c->naxis[p], k = 0;
        while (k + 2 < n && x[2 + p] >= c->axis[p][k + 1])
            k++;
        cell[g] = k;
    }
}

/* Is lane 0 followed by a lane for this free quantity? v has none: its derivative is the spline's. */
static size_t template_lanes(const spx_rv_ctx *c)
{
    return 1 + c->nfree - (c->nfree && c->freeq[0] == 0);
}

/* Prior and penalty at x, which is brought into the templates' range. */
static void outside(spx_rv_ws *w, double *x, int deriv)
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
            double dp = q >= 2 && c->parlog[q - 2] ? p * M_LN10 / s : 1 / s;
            w->prior += z * z;
            grad[q] += 2 * z * dp;
            hess[q] += 2 * dp * dp;
        }
        if (q < 2)
            continue;
        const double *axis = c->axis[q - 2];
        double first = axis[0], last = axis[c->naxis[q - 2] - 1];
        double range = last > first ? last - first : fmax(1e-3, fabs(first));
        double d = x[q] < first ? x[q] - first : (x[q] > last ? x[q] - last : 0);
        double size = 10 * (double)w->npix / (range * range);
        w->prior += size * d * d;
        grad[q] += 2 * size * d;
        hess[q] += d != 0 ? 2 * size : 0;
        x[q] -= d;
        w->clamped[q - 2] = d != 0;
    }
    for (size_t k = 0; deriv && k < nf; k++) {
        w->prior_grad[k] = grad[c->freeq[k]];
        w->prior_hess[k * nf + k] = hess[c->freeq[k]];
    }
}

/* ln T and its derivatives by the mapped parameters, multilinear, into w->plane[lane][nt]. Lane 1 + g is axis g. */
static void interpolate(spx_rv_ws *w, const spx_rv_arm *a, const double *x, const size_t *cell, int deriv)
{
    const spx_rv_ctx *c = w->ctx;
    size_t nt = a->nt, ng = c->ng, lanes = deriv ? 1 + ng : 1, base = 0;
    double u[SPX_MAX_PAR], width[SPX_MAX_PAR];
    for (size_t g = 0; g < ng; g++) {
        size_t p = c->gpar[g];
        double left = c->axis[p][cell[g]];
        width[g] = c->axis[p][cell[g] + 1] - left;
        u[g] = (x[2 + p] - left) / width[g];
        base += cell[g] * c->stride[g];
    }
    enum { BLOCK = 512 };
    double weight[1 << SPX_MAX_PAR][1 + SPX_MAX_PAR];
    const float *row[1 << SPX_MAX_PAR];
    for (unsigned k = 0; k < 1u << ng; k++) {
        double du[SPX_MAX_PAR];
        size_t node = base;
        weight[k][0] = spx_rv_corner(ng, k, u, du);
        for (size_t g = 0; g < ng; g++) {
            weight[k][1 + g] = w->clamped[c->gpar[g]] ? 0 : du[g] / width[g];
            node += (k >> g & 1) ? c->stride[g] : 0;
        }
        row[k] = a->setup->lnflux + (size_t)a->setup->node[node] * nt;
    }
    for (size_t i0 = 0; i0 < nt; i0 += BLOCK) {
        size_t m = nt - i0 < BLOCK ? nt - i0 : BLOCK;
        for (size_t l = 0; l < lanes; l++)
            memset(w->plane + l * nt + i0, 0, m * sizeof(double));
        for (unsigned k = 0; k < 1u << ng; k++) {
            const float *f = row[k] + i0;
            for (size_t l = 0; l < lanes; l++) {
                double s = weight[k][l], *out = w->plane + l * nt + i0;
                if (s == 0)
                    continue;
                for (size_t i = 0; i < m; i++)
                    out[i] += s * (double)f[i];
            }
        }
    }
}

static inline void broaden_lanes(size_t n, size_t L, const double *f, const double *weight, size_t reach, double *out)
{
    for (size_t j = 0; j < n; j++) {
        double *o = out + j * L;
        const double *fj = f + j * L;
        for (size_t l = 0; l < L; l++)
            o[l] = weight[0] * fj[l];
        if (j >= reach && j + reach < n) {
            for (size_t k = 1; k <= reach; k++)
                for (size_t l = 0; l < L; l++)
                    o[l] += weight[k] * (fj[l - k * L] + fj[l + k * L]);
        } else {
            for (size_t k = 1; k <= reach; k++) {
                const double *left = f + (j >= k ? j - k : 0) * L, *right = f + (n - 1 - j >= k ? j + k : n - 1) * L;
                for (size_t l = 0; l < L; l++)
                    o[l] += weight[k] * (left[l] + right[l]);
            }
        }
    }
}

enum { MAX_REACH = 4096 };

/* Rotation: w->rot[nt][L] -> y[nt][L]; the lane of vsini, if any, is the derivative of lane 0. */
static void broaden(spx_rv_ws *w, const spx_rv_arm *a, double vsini, size_t L, size_t vsini_lane, double *y)
{
    double weight[MAX_REACH + 1], dweight[MAX_REACH + 1];
    double scale = 1 / (SPX_C_KMS * a->setup->dlnwave), h = fmin(vsini * scale, MAX_REACH);
    size_t reach = spx_rotation_reach(h), nt = a->nt;
    for (size_t k = 0; k <= reach; k++)
        weight[k] = spx_rotation_weight(k, h, SPX_ROTATION_EPS, &dweight[k]);
    if (h == 0) {
        memcpy(y, w->rot, nt * L * sizeof *y);
    } else {
#define CALL(N) broaden_lanes(nt, N, w->rot, weight, reach, y)
        LANES(L, CALL)
#undef CALL
    }
    if (!vsini_lane)
        return;
    for (size_t j = 0; j < nt; j++) {
        double s = dweight[0] * w->rot[j * L];
        for (size_t k = 1; k <= reach; k++)
            s += dweight[k] * (w->rot[(j >= k ? j - k : 0) * L] + w->rot[(nt - 1 - j >= k ? j + k : nt - 1) * L]);
        y[j * L + vsini_lane] = s * scale;
    }
}

void spx_rv_template(spx_rv_ws *w, const double *x0, const size_t *cell, int deriv)
{
    const spx_rv_ctx *c = w->ctx;
    double x[SPX_MAX_FIT];
    size_t here[SPX_MAX_PAR], L = deriv ? template_lanes(c) : 1;
    memcpy(x, x0, c->nq * sizeof *x);
    outside(w, x, deriv);
    if (!cell) {
        spx_rv_cell(c, x, here);
        cell = here;
    }
    memcpy(w->prep, x0, c->nq * sizeof *x);
    w->prep_deriv = deriv;
    for (size_t ia = 0; ia < c->narm; ia++) {
        const spx_rv_arm *a = &c->arm[ia];
        if (!w->data[ia].used)
            continue;
        size_t nt = a->nt, vsini_lane = 0, lane = 1;
        interpolate(w, a, x, cell, deriv);
        for (size_t i = 0; i < nt; i++)
            w->rot[i * L] = exp(w->plane[i]);
        for (size_t k = 0; deriv && k < c->nfree; k++) {
            size_t q = c->freeq[k], g = 0;
            if (q == 0)
                continue;
            if (q == 1) {
                vsini_lane = lane;
                for (size_t i = 0; i < nt; i++)
                    w->rot[i * L + lane] = 0;
            } else {
                while (c->gpar[g] != q - 2)
                    g++;
                const double *dln = w->plane + (1 + g) * nt;
                for (size_t i = 0; i < nt; i++)
                    w->rot[i * L + lane] = w->rot[i * L] * dln[i];
            }
            lane++;
        }
        broaden(w, a, x[1], L, vsini_lane, w->y[ia]);
#define CALL(N) spx_rv_spline_solve(nt, N, a->cprime, w->y[ia], w->m[ia])
        LANES(L, CALL)
#undef CALL
    }
}

/* Templates at the pixels: t[n][P]; lane 0 the value, then, with derivatives, one for each free quantity. */
static inline void sample_lanes(const spx_rv_arm *a, size_t L, size_t P, const double *y, const double *m, double shift,
                                double dshift, double *t)
{
    size_t skip = P - L; /* 1: lane 1 of t is the derivative by v */
    for (size_t i = 0; i < a->n; i++) {
        double wt[4], dw[4];
        size_t k = spx_rv_spline_weights(a->place[i] + shift, a->nt, wt, dw);
        const double *yk = y + k * L, *mk = m + k * L;
        double *ti = t + i * P;
        for (size_t l = 0; l < L; l++)
            ti[l + (l ? skip : 0)] = wt[0] * yk[l] + wt[1] * yk[L + l] + wt[2] * mk[l] + wt[3] * mk[L + l];
        if (skip)
            ti[1] = (dw[0] * yk[0] + dw[1] * yk[L] + dw[2] * mk[0] + dw[3] * mk[L]) * dshift;
    }
}

/* t = R t, with the band rows of the star's resolution matrix. */
static double *apply_band(const spx_rv_arm *a, const double *band, size_t P, const double *in, double *out)
{
    size_t n = a->n, nd = a->arm->ndiag, h = nd / 2;
    for (size_t i = 0; i < n; i++) {
        double *o = out + i * P;
        size_t k0 = i < h ? h - i : 0, k1 = n - i > h ? nd : n - i + h;
        for (size_t l = 0; l < P; l++)
            o[l] = 0;
        for (size_t k = k0; k < k1; k++) {
            double b = band[i * nd + k];
            const double *v = in + (i + k - h) * P;
            for (size_t l = 0; l < P; l++)
                o[l] += b * v[l];
        }
    }
    return out;
}

/* Template lanes of arm `ia` at its pixels and velocity v: [n][P]. */
static const double *sample(spx_rv_ws *w, size_t ia, double v, size_t L, size_t P)
{
    const spx_rv_arm *a = &w->ctx->arm[ia];
    double shift = spx_rv_lnshift(v) / a->setup->dlnwave, dshift = spx_rv_lnshift_dv(v) / a->setup->dlnwave;
    if (P == L) {
#define CALL(N) sample_lanes(a, N, N, w->y[ia], w->m[ia], shift, dshift, w->t)
        LANES(L, CALL)
#undef CALL
    } else {
#define CALL(N) sample_lanes(a, N, (N) + 1, w->y[ia], w->m[ia], shift, dshift, w->t)
        LANES(L, CALL)
#undef CALL
    }
    return w->ctx->opt->resolution ? apply_band(a, w->data[ia].band, P, w->t, w->t2) : w->t;
}

/* Continuum coefficients for the template lane 0 of t[n][P]; chol receives the factor of S'S. 0 when S'S is singular.
 * Leaves the continuum in w->q and t f/e^2, t^2/e^2 in w->r, w->w. */
static int solve_continuum(spx_rv_ws *w, size_t ia, const double *t, size_t P, double *chol, double *coef)
{
    const spx_rv_arm *a = &w->ctx->arm[ia];
    const spx_rv_data *d = &w->data[ia];
    size_t n = a->n, np = w->ctx->opt->npoly;
    for (size_t i = 0; i < n; i++) {
        double ti = t[i * P];
        w->w[i] = ti * ti * d->ie2[i];
        w->r[i] = ti * d->die[i];
    }
    cblas_dgemv(CblasRowMajor, CblasNoTrans, (int)(np * (np + 1) / 2), (int)n, 1, a->pairs, (int)n, w->w, 1, 0, chol,
                1);
    cblas_dgemv(CblasRowMajor, CblasNoTrans, (int)np, (int)n, 1, a->basis, (int)n, w->r, 1, 0, coef, 1);
    if (!spx_rv_cholesky(np, chol, 0))
        return 0;
    spx_rv_forward(np, chol, coef);
    spx_rv_backward(np, chol, coef);
    cblas_dgemv(CblasRowMajor, CblasTrans, (int)np, (int)n, 1, a->basis, (int)n, coef, 1, 0, w->q, 1);
    return 1;
}

/* Gradient and Gauss-Newton curvature of one arm. With the continuum projected out (Golub & Pereyra 1973; Kaufman's
 * approximation of the curvature), u_l = (P a) dT_l / e:  d|r|^2 = -2 r'u,  curvature 2 [u'u - (S'u)'(S'S)^-1 (S'u)],
 * and d ln det(S'S) = 2 sum_i (S_i (S'S)^-1 S_i') dT_i / T_i. */
static void arm_derivatives(spx_rv_ws *w, size_t ia, const double *t, const double *chol, spx_rv_value *out)
{
    const spx_rv_ctx *c = w->ctx;
    const spx_rv_arm *a = &c->arm[ia];
    const spx_rv_data *d = &w->data[ia];
    size_t n = a->n, np = c->opt->npoly, nf = c->nfree, P = 1 + nf;
    double inverse[SPX_RVFIT_MAX_POLY * (SPX_RVFIT_MAX_POLY + 1) / 2];
    for (size_t k = 0; k < np; k++) {
        double col[SPX_RVFIT_MAX_POLY] = {0};
        col[k] = 1;
        spx_rv_forward(np, chol, col);
        spx_rv_backward(np, chol, col);
        for (size_t j = 0; j <= k; j++)
            inverse[spx_rv_packed(k, j)] = (j < k ? 2 : 1) * col[j];
    }
    /* w->w: what multiplies 2 dT_i in the gradient. */
    double *factor = w->w;
    cblas_dgemv(CblasRowMajor, CblasTrans, (int)(np * (np + 1) / 2), (int)n, 1, a->pairs, (int)n, inverse, 1, 0, factor,
                1);
    double grad[SPX_MAX_FIT] = {0};
    for (size_t i = 0; i < n; i++) {
        const double *ti = t + i * P;
        double s = w->q[i] * d->ie[i], *u = w->u + i * nf;
        double f = factor[i] * ti[0] * d->ie2[i] - w->r[i] * s;
        for (size_t l = 0; l < nf; l++) {
            grad[l] += f * ti[1 + l];
            u[l] = s * ti[1 + l];
        }
    }
    double uu[SPX_MAX_FIT * SPX_MAX_FIT], su[SPX_RVFIT_MAX_POLY * SPX_MAX_FIT];
    cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)nf, (int)nf, (int)n, 1, w->u, (int)nf, w->u, (int)nf, 0,
                uu, (int)nf);
    for (size_t i = 0; i < n; i++) {
        double s = t[i * P] * d->ie[i], *u = w->u + i * nf;
        for (size_t l = 0; l < nf; l++)
            u[l] *= s;
    }
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)np, (int)nf, (int)n, 1, a->basis, (int)n, w->u, (int)nf,
                0, su, (int)nf);
    double half[SPX_MAX_FIT][SPX_RVFIT_MAX_POLY];
    for (size_t l = 0; l < nf; l++) {
        for (size_t k = 0; k < np; k++)
            half[l][k] = su[k * nf + l];
        spx_rv_forward(np, chol, half[l]);
    }
    for (size_t l = 0; l < nf; l++) {
        out->grad[l] += 2 * grad[l];
        for (size_t m = 0; m < nf; m++) {
            double s = uu[l * nf + m];
            for (size_t k = 0; k < np; k++)
                s -= half[l][k] * half[m][k];
            out->hess[l * nf + m] += 2 * s;
        }
    }
}

void spx_rv_project(spx_rv_ws *w, double v, spx_rv_value *out)
{
    const spx_rv_ctx *c = w->ctx;
    int deriv = w->prep_deriv;
    size_t np = c->opt->npoly, nf = c->nfree, L = deriv ? template_lanes(c) : 1, P = deriv ? 1 + nf : 1;
    double chol[SPX_RVFIT_MAX_POLY * (SPX_RVFIT_MAX_POLY + 1) / 2];
    out->f = w->prior;
    if (c->opt->prior_sigma[0] > 0) { /* the prior in the workspace is for the v that the templates were made with */
        double z0 = (w->prep[0] - c->opt->prior_mean[0]) / c->opt->prior_sigma[0];
        double z = (v - c->opt->prior_mean[0]) / c->opt->prior_sigma[0];
        out->f += z * z - z0 * z0;
    }
    if (deriv) {
        memcpy(out->grad, w->prior_grad, sizeof out->grad);
        memcpy(out->hess, w->prior_hess, sizeof out->hess);
        w->neval++;
    }
    for (size_t ia = 0; ia < c->narm; ia++) {
        const spx_rv_arm *a = &c->arm[ia];
        const spx_rv_data *d = &w->data[ia];
        if (!d->used)
            continue;
        const double *t = sample(w, ia, v, L, P);
        if (!solve_continuum(w, ia, t, P, chol, w->coef[ia])) {
            out->f = HUGE_VAL;
            return;
        }
        double chisq = 0, lndet = a->lndet;
        for (size_t i = 0; i < a->n; i++) {
            w->r[i] = (d->flux[i] - w->q[i] * t[i * P]) * d->ie[i];
            chisq += w->r[i] * w->r[i];
        }
        for (size_t k = 0; k < np; k++)
            lndet += 2 * log(chol[spx_rv_packed(k, k)]);
        out->f += lndet + d->sum_lne2 + chisq;
        if (deriv)
            arm_derivatives(w, ia, t, chol, out);
    }
    if (!isfinite(out->f))
        out->f = HUGE_VAL;
}

void spx_rv_eval(spx_rv_ws *w, const double *x, const size_t *cell, int deriv, spx_rv_value *out)
{
    spx_rv_template(w, x, cell, deriv);
    spx_rv_project(w, x[0], out);
}

double spx_rv_chisq(spx_rv_ws *w, size_t ia, double v, int flat, float *model)
{
    const spx_rv_arm *a = &w->ctx->arm[ia];
    const spx_rv_data *d = &w->data[ia];
    double chol[SPX_RVFIT_MAX_POLY * (SPX_RVFIT_MAX_POLY + 1) / 2], coef[SPX_RVFIT_MAX_POLY], chisq = 0;
    const double *t = w->t;
    size_t P = 1;
    if (flat) {
        for (size_t i = 0; i < a->n; i++)
            w->t[i] = 1;
        if (w->ctx->opt->resolution)
            t = apply_band(a, d->band, 1, w->t, w->t2);
    } else {
        P = w->prep_deriv ? 1 + w->ctx->nfree : 1;
        t = sample(w, ia, v, w->prep_deriv ? template_lanes(w->ctx) : 1, P);
    }
    if (!solve_continuum(w, ia, t, P, chol, coef))
        return HUGE_VAL;
    for (size_t i = 0; i < a->n; i++) {
        double f = w->q[i] * t[i * P], z = (d->flux[i] - f) * d->ie[i];
        if (d->good[i])
            chisq += z * z;
        if (model)
            model[i] = (float)(isfinite(f) ? fmax(-1e38, fmin(1e38, f)) : 0);
    }
    return chisq;
}
