/* Normal equations of a bundle: fluxes for given traces and shape, and the Gauss-Newton matrix of those with the fluxes
 * eliminated (psffit/fit.h). */
#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "num/blas.h"
#include "psf/psf_math.h"
#include "psffit/step_math.h"

/* Priors, 1 sigma. Traces: pixels that coefficient k of a fibre deviates from a cubic along the fibres by. */
static const double tau[] = {1, 0.3, 0.1, 0.05};
#define SIGMA_HERMITE 0.1
#define SIGMA_GAUGE   0.03 /* GH-1-0 and the others that are X, Y and widths to first order */
#define SIGMA_WIDTH   0.3  /* terms of the widths but the constant, pixels */
#define SIGMA_CONST   2.0  /* the constant, about the start */
#define SIGMA_HELD    0.02 /* all terms of widths that are held, pixels (spx_pf_narrow()), and */
#define SIGMA_NONE    1e-4 /* GH-1-0 and GH-0-1 beside them, and */
#define SIGMA_INSTEAD 0.3  /* GH-2-0 and GH-0-2 instead of them */
#define SIGMA_SHIFT   5.0  /* of exposures, pixels, and of wavelengths that are free, Angstrom */
/* Trace coefficients about the start, pixels, which hold where no line tells. A camera that has moved is displaced,
 * turned or stretched, which are the first two; a bend is less, and higher terms are its optics, which stay. Without
 * that a polynomial that lines hold on half of the rows leaves the CCD on the others, and crosses its neighbours. */
static const double sigma_start[] = {50, 50, 5, 1};

static double tau_of(int k)
{
    return tau[k < 3 ? k : 3];
}

static double sigma_start_of(size_t k)
{
    return sigma_start[k < 3 ? k : 3];
}

static double dot(const spx_pf_kernels *kernels, const spx_pf_plan *p, const spx_pf_overlap *o, const double *a,
                  const double *b)
{
    return kernels->dot(o->h, o->w, a + o->a, (size_t)p->nx, b + o->b, (size_t)p->nx);
}

/* ---- fluxes ---- */

/* root S of all spots of an exposure, into stamp[nl*nf][npix]. */
static void weigh_spots(const spx_pf_bundle *b, const spx_pf_state *s, size_t x, double *stamp)
{
    const spx_pf_plan *p = b->p;
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    const size_t npix = (size_t)p->nx * (size_t)p->ny, n = b->nl * b->nf;
    for (size_t k = 0; k < n; k++) {
        const spx_pf_at *at = &s->at[x * n + k];
        const double *spot = s->spot + (x * n + k) * npix;
        double *to = stamp + k * npix;
        if (at->x1 - at->x0 < p->nx || at->y1 - at->y0 < p->ny)
            memset(to, 0, npix * sizeof *to);
        kernels->weigh_spot(at, p->nx, spot, b->px[x].root + at->yc * (long)b->width + at->xc, b->width, to);
    }
}

/* Lower triangle (by columns) of N_ff of a group, and b; group's stamps from weigh_spots(). */
static void group_matrix(const spx_pf_bundle *b, const spx_pf_state *s, size_t x, const spx_pf_group *g, double *a,
                         double *rhs)
{
    const spx_pf_plan *p = b->p;
    const size_t npix = (size_t)p->nx * (size_t)p->ny, nf = b->nf, n = (g->last - g->first) * nf;
    const spx_pf_at *at = s->at + (x * b->nl + g->first) * nf;
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    const double *stamp = b->stamp + g->first * nf * npix, *goal = b->px[x].goal;
    double most = 0;
    memset(a, 0, n * n * sizeof *a);
    for (size_t k = 0; k < n; k++) {
        const double *v = stamp + k * npix;
        rhs[k] = kernels->dot(at[k].y1 - at[k].y0, at[k].x1 - at[k].x0, v + at[k].y0 * p->nx + at[k].x0, (size_t)p->nx,
                              goal + (at[k].yc + at[k].y0) * (long)b->width + at[k].xc + at[k].x0, b->width);
        const size_t i = k % nf;
        for (size_t l = k / nf; l < n / nf; l++)
            for (size_t j = i > (size_t)b->reach ? i - (size_t)b->reach : 0; j <= i + (size_t)b->reach && j < nf; j++) {
                const size_t m = l * nf + j;
                if (m < k)
                    continue;
                const spx_pf_overlap o = spx_pf_overlap_of(p->nx, &at[k], &at[m]);
                if (o.h > 0)
                    a[k * n + m] = dot(kernels, p, &o, v, stamp + m * npix);
            }
        most = fmax(most, a[k * n + k]);
    }
    for (size_t k = 0; k < n; k++)
        a[k * n + k] += most > 0 ? SPX_PF_FLOOR * most : 1;
}

void spx_pf_draw(spx_pf_bundle *b, spx_pf_state *s)
{
    const spx_pf_plan *p = b->p;
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    const size_t npix = (size_t)p->nx * (size_t)p->ny, n = p->height * b->width, per = b->nl * b->nf;
    if (b->there != NULL) {
        p->device->draw(b, s);
        return;
    }
    s->chi2 = 0;
    for (size_t x = 0; x < p->nexp; x++) {
        double *light = s->light + x * n;
        /* rows that no spot touches, now or when the state was filled before, are 0 */
        for (size_t r = 0; r < p->height; r++)
            if (s->lit[x * p->height + r]) {
                memset(light + r * b->width, 0, b->width * sizeof *light);
                s->lit[x * p->height + r] = 0;
            }
        for (size_t k = x * per; k < (x + 1) * per; k++)
            for (int r = s->at[k].y0; r < s->at[k].y1; r++)
                s->lit[x * p->height + (size_t)(s->at[k].yc + r)] = 1;
        for (size_t k = x * per; k < (x + 1) * per; k++) {
            const spx_pf_at *at = &s->at[k];
            kernels->draw_spot(at, p->nx, s->spot + k * npix, s->flux[k], b->width,
                               light + at->yc * (long)b->width + at->xc);
        }
        const spx_pf_pixels *px = &b->px[x];
        for (size_t r = 0; r < p->height; r++) {
            const size_t at = r * b->width;
            s->chi2 += s->lit[x * p->height + r] ? kernels->squares(b->width, px->goal + at, px->root + at, light + at)
                                                 : px->quiet[r];
        }
    }
}

int spx_pf_fluxes(spx_pf_bundle *b, spx_pf_state *s)
{
    if (b->there != NULL)
        return b->p->device->fluxes(b, s);
    for (size_t x = 0; x < b->p->nexp; x++) {
        weigh_spots(b, s, x, b->stamp);
        for (size_t k = 0; k < b->ngroup; k++) {
            const spx_pf_group *g = &b->group[k];
            const size_t n = (g->last - g->first) * b->nf;
            double *a = s->factor + x * b->nfactor + g->factor, *f = s->flux + (x * b->nl + g->first) * b->nf;
            group_matrix(b, s, x, g, a, f);
            if (LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'L', (lapack_int)n, a, (lapack_int)n) != 0 ||
                LAPACKE_dpotrs_work(LAPACK_COL_MAJOR, 'L', (lapack_int)n, 1, a, (lapack_int)n, f, (lapack_int)n) != 0)
                return 0;
            for (size_t i = 0; i < n; i++)
                if (!isfinite(f[i]))
                    return 0;
        }
    }
    spx_pf_draw(b, s);
    return isfinite(s->chi2);
}

/* ---- fluxes and continuum together ---- */

size_t spx_pf_border_splines(const spx_pf_bundle *b, size_t x, const spx_pf_group *g, size_t *first)
{
    long lo = (long)b->p->height - 1, hi = 0;
    double value[SPX_PF_SPLINE];
    size_t last;
    for (size_t k = g->first * b->nf; k < g->last * b->nf; k++) {
        const spx_pf_at *at = &b->now.at[x * b->nl * b->nf + k];
        if (at->y0 == at->y1)
            continue;
        lo = at->yc + at->y0 < lo ? at->yc + at->y0 : lo;
        hi = at->yc + at->y1 - 1 > hi ? at->yc + at->y1 - 1 : hi;
    }
    spx_pf_splines(b, (size_t)(lo < hi ? lo : hi), first, value);
    spx_pf_splines(b, (size_t)hi, &last, value);
    return last - *first + SPX_PF_SPLINE;
}

/* Products of a spot with the continuum of the fibres around it and the constant: row[nk][nf], row[nk nf]. stamp: root
 * S of the spot. */
static void spot_by_border(const spx_pf_bundle *b, size_t x, size_t fibre, const spx_pf_at *at, const double *stamp,
                           size_t first, size_t nk, double *row)
{
    const spx_pf_plan *p = b->p;
    const spx_pf_pixels *px = &b->px[x];
    const size_t wide = spx_pf_profile_width(p), reach = (size_t)b->reach;
    double v[SPX_PF_MOST_WIDE], value[SPX_PF_SPLINE];
    for (int y = at->y0; y < at->y1; y++) {
        const size_t r = (size_t)(at->yc + y);
        size_t spline;
        spx_pf_splines(b, r, &spline, value);
        for (int c = at->x0; c < at->x1; c++) {
            v[c] = stamp[y * p->nx + c] * px->root[r * b->width + (size_t)(at->xc + c)];
            row[b->nf * nk] += v[c];
        }
        for (size_t j = fibre > reach ? fibre - reach : 0; j <= fibre + reach && j < b->nf; j++) {
            const float *profile = px->profile + (r * b->nf + j) * wide;
            const long off = at->xc - px->at[r * b->nf + j];
            const long c0 = -off > at->x0 ? -off : at->x0, c1 = (long)wide - off < at->x1 ? (long)wide - off : at->x1;
            double sum = 0;
            for (long c = c0; c < c1; c++)
                sum += v[c] * profile[c + off];
            for (size_t k = 0; k < SPX_PF_SPLINE; k++)
                row[(spline - first + k) * b->nf + j] += sum * value[k];
        }
    }
}

/* Continuum and constant, from the normal equations of the border, whose constant is a column of its own: out as of
 * spx_pf_bordered(). 0: no solution. */
static int solve_border(const spx_pf_bundle *b, spx_pf_border *to, double *out)
{
    const lapack_int n = (lapack_int)to->n, band = (lapack_int)to->band;
    /* the upper triangle in rows is the lower one in columns */
    if (LAPACKE_dpbtrf_work(LAPACK_COL_MAJOR, 'L', n, band, to->a, band + 1) != 0)
        return 0;
    double *edge = to->rhs + to->n, corner = to->corner, level = to->level;
    memcpy(to->column, edge, to->n * sizeof *edge);
    if (LAPACKE_dpbtrs_work(LAPACK_COL_MAJOR, 'L', n, band, 2, to->a, band + 1, to->rhs, n) != 0)
        return 0;
    for (size_t k = 0; k < to->n; k++) {
        corner -= to->column[k] * edge[k];
        level -= to->column[k] * to->rhs[k];
    }
    const double constant = level / corner;
    if (!(corner > 0) || !isfinite(constant))
        return 0;
    int ok = 1;
    for (size_t k = 0; k < to->n; k++) {
        const double v = to->rhs[k] - constant * edge[k];
        out[k % b->nf * b->nknot + k / b->nf] = v;
        ok &= isfinite(v) != 0;
    }
    out[to->n] = constant;
    return ok;
}

int spx_pf_bordered(spx_pf_bundle *b, size_t x, spx_pf_border *to, double *out)
{
    const size_t npix = (size_t)b->p->nx * (size_t)b->p->ny, nf = b->nf;
    spx_pf_state *s = &b->now;
    double *edge = to->rhs + to->n, *column = to->column;
    weigh_spots(b, s, x, b->stamp);
    to->at[0] = 0;
    for (size_t k = 0; k < b->ngroup; k++) {
        const spx_pf_group *g = &b->group[k];
        size_t first;
        const size_t n = (g->last - g->first) * nf, nk = spx_pf_border_splines(b, x, g, &first), m = nk * nf;
        double *a = s->factor + x * b->nfactor + g->factor, *f = s->flux + (x * b->nl + g->first) * nf;
        double *w = to->product + to->at[k];
        to->at[k + 1] = to->at[k] + n * (m + 1);
        group_matrix(b, s, x, g, a, f);
        memset(w, 0, n * (m + 1) * sizeof *w);
        for (size_t i = 0; i < n; i++)
            spot_by_border(b, x, i % nf, &s->at[(x * b->nl + g->first) * nf + i], b->stamp + (g->first * nf + i) * npix,
                           first, nk, w + i * (m + 1));
        if (LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'L', (lapack_int)n, a, (lapack_int)n) != 0)
            return 0;
        /* by columns: (m + 1 x fluxes) L^-T */
        cblas_dtrsm(CblasColMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, (blasint)m + 1, (blasint)n, 1, a,
                    (blasint)n, w, (blasint)m + 1);
        cblas_dtrsm(CblasColMajor, CblasLeft, CblasLower, CblasNoTrans, CblasNonUnit, (blasint)n, 1, 1, a, (blasint)n,
                    f, (blasint)n);
        /* a block of a band is a matrix whose rows are one element shorter than the band's */
        cblas_dsyrk(CblasRowMajor, CblasUpper, CblasTrans, (blasint)m, (blasint)n, -1, w, (blasint)m + 1, 1,
                    to->a + first * nf * (to->band + 1), (blasint)to->band);
        memset(column, 0, 2 * m * sizeof *column);
        for (size_t j = 0; j < n; j++) {
            const double *row = w + j * (m + 1), of = f[j], constant = row[m];
            for (size_t i = 0; i < m; i++) {
                column[i] += row[i] * of;
                column[m + i] += row[i] * constant;
            }
            to->corner -= constant * constant;
            to->level -= constant * of;
        }
        for (size_t i = 0; i < m; i++) {
            to->rhs[first * nf + i] -= column[i];
            edge[first * nf + i] -= column[m + i];
        }
    }
    if (!solve_border(b, to, out))
        return 0;
    for (size_t k = 0; k < b->ngroup; k++) {
        const spx_pf_group *g = &b->group[k];
        size_t first;
        const size_t n = (g->last - g->first) * nf, nk = spx_pf_border_splines(b, x, g, &first), m = nk * nf;
        double *f = s->flux + (x * b->nl + g->first) * nf;
        for (size_t i = 0; i < m; i++)
            column[i] = out[i % nf * b->nknot + first + i / nf];
        column[m] = out[to->n];
        for (size_t j = 0; j < n; j++) {
            const double *row = to->product + to->at[k] + j * (m + 1);
            double sum = 0;
            for (size_t i = 0; i <= m; i++)
                sum += row[i] * column[i];
            f[j] -= sum;
        }
        cblas_dtrsm(CblasColMajor, CblasLeft, CblasLower, CblasTrans, CblasNonUnit, (blasint)n, 1, 1,
                    s->factor + x * b->nfactor + g->factor, (blasint)n, f, (blasint)n);
        for (size_t i = 0; i < n; i++)
            if (!isfinite(f[i]))
                return 0;
    }
    return 1;
}

int spx_pf_flux_variance(spx_pf_bundle *b, double *out)
{
    if (b->there != NULL)
        return b->p->device->flux_variance(b, out);
    for (size_t x = 0; x < b->p->nexp; x++)
        for (size_t k = 0; k < b->ngroup; k++) {
            const spx_pf_group *g = &b->group[k];
            const size_t n = (g->last - g->first) * b->nf;
            double *to = out + (x * b->nl + g->first) * b->nf;
            memcpy(b->matrix, b->now.factor + x * b->nfactor + g->factor, n * n * sizeof *b->matrix);
            if (LAPACKE_dpotri_work(LAPACK_COL_MAJOR, 'L', (lapack_int)n, b->matrix, (lapack_int)n) != 0)
                return 0;
            for (size_t i = 0; i < n; i++)
                to[i] = b->matrix[i * n + i];
        }
    return 1;
}

/* ---- priors ---- */

/* Whether a parameter of the shape moves spots to first order, as the traces of each fibre do. */
static int moves(const spx_pf_plan *p, size_t q)
{
    return p->deg > 0 && (q == (size_t)spx_pf_row(p, 1, 0) || q == (size_t)spx_pf_row(p, 0, 1));
}

/* Whether it widens them to first order. */
static int widens(const spx_pf_plan *p, size_t q)
{
    return p->deg > 1 && (q == (size_t)spx_pf_row(p, 2, 0) || q == (size_t)spx_pf_row(p, 0, 2));
}

double spx_pf_shape_prior(const spx_pf_bundle *b, size_t k, double *centre)
{
    const spx_pf_plan *p = b->p;
    const size_t q = k % (size_t)p->nq, term = k / (size_t)p->nq;
    double sigma = SIGMA_HERMITE;
    *centre = 0;
    if (q < 2 && b->held != NULL) {
        sigma = SIGMA_HELD;
        *centre = b->held[2 * term + q];
    } else if (q < 2) {
        sigma = term == 0 ? SIGMA_CONST : SIGMA_WIDTH;
        *centre = term == 0 ? b->theta0[b->shape0 + k] : 0;
    } else if (b->held != NULL && widens(p, q)) {
        sigma = SIGMA_INSTEAD;
    } else if (b->held != NULL && moves(p, q)) {
        /* To second order they have c^2 more, within 0.03 half a percent of the peak where the terms along a bundle and
         * along wavelengths add up, in the corners: spots of such functions need none of it. */
        sigma = SIGMA_NONE;
    } else if (moves(p, q) || widens(p, q)) {
        sigma = SIGMA_GAUGE;
    }
    return 1 / (sigma * sigma);
}

double spx_pf_prior_row(const spx_pf_bundle *b, size_t k, const double *v)
{
    const size_t nq = (size_t)b->p->nq, side = (size_t)b->p->deg + 1;
    const int *mate = b->mate + k % nq * side;
    double sum = 0;
    for (size_t i = 0; i < side; i++)
        if (mate[i] >= 0)
            sum += b->precision[k * side + i] * v[mate[i]];
    return sum;
}

spx_status spx_pf_add_learned(spx_pf_bundle *b, const double *was, size_t n, double *h, spx_err *e)
{
    const size_t nq = (size_t)b->p->nq, side = (size_t)b->p->deg + 1, ns = b->ntheta - b->shape0;
    double *add = spx_alloc(ns * side + 1, sizeof *add, e);
    if (add == NULL)
        return SPX_EIO;
    memcpy(add, b->precision, ns * side * sizeof *add);
    for (size_t k = 0; k < ns; k++)
        for (size_t i = 0; i < side; i++) {
            const int mate = b->mate[k % nq * side + i];
            if (mate == (int)(k % nq) && was != NULL)
                add[k * side + i] -= was[k];
            if (mate >= (int)(k % nq) && b->there == NULL)
                h[(b->shape0 + k) * n + b->shape0 + k / nq * nq + (size_t)mate] += add[k * side + i];
        }
    if (b->there != NULL)
        (void)b->p->device->add_to_matrix(b, b->mate, add); /* what fails is told in the end */
    spx_free(add);
    return SPX_OK;
}

/* Weight of the prior that holds coefficient k of the traces to cubics. */
static double weight_of(size_t k)
{
    return 1 / (tau_of((int)k) * tau_of((int)k));
}

/* The same of the learned prior; its gradient, of all parameters of the shape, where g is not NULL. */
static double add_learned_prior(const spx_pf_bundle *b, const double *theta, double *g)
{
    const size_t nq = (size_t)b->p->nq, nterm = (size_t)(b->p->na * b->p->nb);
    double off[SPX_PF_MOST_LOCAL + 1], sum = 0;
    for (size_t t = 0; t < nterm; t++) {
        for (size_t q = 0; q < nq; q++) {
            double centre;
            (void)spx_pf_shape_prior(b, t * nq + q, &centre);
            off[q] = theta[b->shape0 + t * nq + q] - centre;
        }
        for (size_t q = 0; q < nq; q++) {
            const double w = spx_pf_prior_row(b, t * nq + q, off);
            sum += w * off[q];
            if (g != NULL)
                g[b->shape0 + t * nq + q] -= w;
        }
    }
    return sum;
}

/* Adds the prior at theta to the gradient g of columns n, and its part on the diagonal, without that of cubics, to
 * diagonal[n], where these are not NULL; returns its value. */
static double add_prior(const spx_pf_bundle *b, const double *theta, size_t n, double *diagonal, double *g)
{
    const spx_pf_plan *p = b->p;
    const size_t nf = b->nf, ntr = (size_t)p->ntr, nt = 2 * ntr;
    double sum = 0;
    for (size_t t = 0; t < nt; t++) {
        const double w = weight_of(t % ntr);
        for (size_t i = 0; i < nf; i++) {
            double off = 0;
            for (size_t j = 0; j < nf; j++)
                off += b->prior[i * nf + j] * theta[j * nt + t];
            sum += w * off * theta[i * nt + t];
            if (g != NULL)
                g[i * nt + t] -= w * off;
        }
    }
    for (size_t k = 0; k < b->shape0; k++) {
        const double sigma = k < b->shift0 ? sigma_start_of(k % ntr) : SIGMA_SHIFT, w = 1 / (sigma * sigma);
        const double off = theta[k] - b->theta0[k];
        sum += w * off * off;
        if (diagonal != NULL)
            diagonal[k] += w;
        if (g != NULL)
            g[k] -= w * off;
    }
    if (b->precision != NULL)
        return sum + add_learned_prior(b, theta, g);
    for (size_t k = b->shape0; k < b->ntheta; k++) {
        double centre;
        const double w = spx_pf_shape_prior(b, k - b->shape0, &centre), off = theta[k] - centre;
        sum += w * off * off;
    }
    for (size_t k = b->shape0; k < n; k++) {
        int is_free;
        double centre;
        const size_t at = spx_pf_parameter(b, k, &is_free);
        const double w = spx_pf_shape_prior(b, at - b->shape0, &centre);
        if (diagonal != NULL)
            diagonal[k] += w;
        if (g != NULL)
            g[k] -= w * (theta[at] - centre);
    }
    return sum;
}

void spx_pf_prior(const spx_pf_bundle *b, spx_pf_state *s)
{
    s->prior = add_prior(b, s->theta, b->shape0, NULL, NULL);
}

/* ---- columns of a pass ---- */

size_t spx_pf_columns(const spx_pf_bundle *b)
{
    return b->shape0 + (size_t)(b->p->na * b->p->nb * b->active);
}

size_t spx_pf_parameter(const spx_pf_bundle *b, size_t k, int *is_free)
{
    const spx_pf_plan *p = b->p;
    if (k < b->shift0) {
        *is_free = (int)(k % (size_t)p->ntr) < b->terms;
        return k;
    }
    *is_free = 1;
    if (k < b->shape0)
        return k;
    const size_t term = (k - b->shape0) / (size_t)b->active, q = (k - b->shape0) % (size_t)b->active;
    if (!b->gauge && q >= 2)
        *is_free = !moves(p, q) && !widens(p, q);
    return b->shape0 + term * (size_t)p->nq + q;
}

/* ---- Gauss-Newton matrix ---- */

/* Derivatives by the parameters of a line's spots are those by its local parameters, the places of each fibre and the
 * shape's na*active, times polynomials at its wavelength. So are products of two lines, from which fluxes are taken off
 * before they are multiplied by polynomials: pairs of lines that are added to H at one time, at most. */
enum { MOST_BLOCKS = 16 };

/* Kept from call to call, as new pages have to be cleared one by one. */
struct spx_pf_work {
    double *w, *rest, *block, *across;
    size_t nw, nrest, nblock, nacross; /* doubles */
};

typedef struct {
    spx_pf_bundle *b;
    const spx_pf_kernels *k;
    size_t x, n, ns; /* exposure; columns; those of the shape of one term in wavelength: na*active */
    double *h, *g;
    double *w;      /* rows of H_f,theta: of groups that are taken off H together, [rows][n], and, */
    double *local;  /* of a group, by local parameters: [fluxes][lines that are not weak][2 nf + ns] */
    size_t nrow;    /* of w */
    double *rest;   /* root (data - model), [height][width] */
    double *across; /* g_i(x) of spots by columns, [nl nf][nx][pad] */
    /* products of the derivatives by local parameters of pairs of lines that are not yet added to H, each
     * [2 nf + ns][stride], and the lines' polynomials */
    double *block;
    size_t nblock;
    const double *one[MOST_BLOCKS], *two[MOST_BLOCKS];
    double *weight, *plane; /* room for add_blocks() */
    /* of two lines: products with the shape's derivatives by GH-i-j as kernels->shapes makes them; and of the stamps of
     * spots of one with the derivatives of the other, both ways, [2][nf][SPX_PF_DENSE][na][projected] */
    double *sums, *projected;
} job;

/* Columns that the place of a spot depends on, with the derivative of x and y by each: the fibre's coefficients, and
 * the shift of the exposure, and the wavelength of a free line. */
typedef struct {
    size_t n, at[SPX_PF_MOST_TRACE + 2];
    double by[SPX_PF_MOST_TRACE + 2];
} chain;

static void chain_of(const job *j, size_t line, size_t fibre, int y, chain *to)
{
    const spx_pf_plan *p = j->b->p;
    const size_t ntr = (size_t)p->ntr;
    to->n = 0;
    for (size_t k = 0; k < ntr; k++) {
        to->at[to->n] = (2 * fibre + (size_t)y) * ntr + k;
        to->by[to->n++] = j->b->line[line].term[k];
    }
    if (j->x > 0 && p->nshift > 0) {
        to->at[to->n] = j->b->shift0 + 2 * (j->x - 1) + (size_t)y;
        to->by[to->n++] = 1;
    }
    if (j->b->line[line].free > 0) {
        to->at[to->n] = j->b->free0 + j->b->line[line].free - 1;
        to->by[to->n++] = j->b->slope[2 * (line * j->b->nf + fibre) + (size_t)y];
    }
}

static double *stamp_of(const job *j, int which, size_t spot)
{
    const spx_pf_bundle *b = j->b;
    return b->stamp + ((size_t)which * b->nl * b->nf + spot) * (size_t)(b->p->nx * b->p->ny);
}

/* Whether the shape's derivatives of a line count. */
static int has_shape(const job *j, size_t line)
{
    return j->ns > 0 && !j->b->line[line].weak;
}

/* Stamps of the derivatives of a line's spots. */
static void derive_line(job *j, size_t line)
{
    const spx_pf_bundle *b = j->b;
    const spx_pf_plan *p = b->p;
    const size_t nx = (size_t)p->nx, ny = (size_t)p->ny;
    for (size_t k = line * b->nf; k < (line + 1) * b->nf; k++) {
        const size_t s = j->x * b->nl * b->nf + k;
        const spx_pf_at *at = &b->now.at[s];
        double *stamp[SPX_PF_STAMPS];
        for (int q = 0; q < SPX_PF_STAMPS; q++)
            stamp[q] = stamp_of(j, q < SPX_PF_BY_SIGX || has_shape(j, line) ? q : 0, k);
        if (at->y0 < at->y1)
            j->k->derive(p, has_shape(j, line), at, b->now.gx + s * (size_t)p->norder * nx,
                         b->now.gy + s * (size_t)p->norder * ny, b->now.c + s * (size_t)p->nc,
                         b->now.spot + s * nx * ny, b->now.flux[s], b->px[j->x].root, at->yc * (long)b->width + at->xc,
                         b->width, stamp, j->across + (has_shape(j, line) ? k * nx * spx_pf_pad(p) : 0));
        else
            for (int q = SPX_PF_BY_X; q < SPX_PF_STAMPS; q++)
                if (q < SPX_PF_BY_SIGX || has_shape(j, line))
                    memset(stamp[q], 0, nx * ny * sizeof(double));
    }
}

/* ---- shape: two lines whose spots overlap ---- */

static spx_pf_part part_of(const job *j, size_t spot, size_t pixel)
{
    const spx_pf_plan *p = j->b->p;
    const size_t nx = (size_t)p->nx, ny = (size_t)p->ny, s = j->x * j->b->nl * j->b->nf + spot;
    spx_pf_part part;
    const int shape = has_shape(j, spot / j->b->nf);
    for (int q = 0; q < SPX_PF_STAMPS; q++)
        part.stamp[q] = q < SPX_PF_BY_SIGX || shape ? stamp_of(j, q, spot) + pixel : NULL;
    part.across = shape ? j->across + (spot * nx + pixel % nx) * spx_pf_pad(p) : NULL;
    part.gy = j->b->now.gy + s * (size_t)p->norder * ny + pixel / nx;
    return part;
}

/* Products of stamps of fibre i's spot with the shape of the other line; back: of the second line's with the first's.
 */
static double *projected_of(const job *j, int back, size_t i)
{
    const spx_pf_plan *p = j->b->p;
    return j->projected + ((size_t)back * j->b->nf + i) * SPX_PF_DENSE * (size_t)p->na * spx_pf_projected(p);
}

/* All pairs of spots of lines l <= k. 0: none overlaps. */
static int pairs_of_spots(job *j, size_t l, size_t k)
{
    const spx_pf_bundle *b = j->b;
    const spx_pf_plan *p = b->p;
    const size_t nf = b->nf, reach = (size_t)b->reach, na = (size_t)p->na, side = (size_t)p->deg + 1;
    const spx_pf_at *at = b->now.at + j->x * b->nl * nf;
    const int whole = b->active > 2, shape_l = has_shape(j, l), shape_k = has_shape(j, k);
    int any = 0;
    for (size_t i = 0; i < nf; i++)
        for (size_t m = l == k ? i : i > reach ? i - reach : 0; m <= i + reach && m < nf; m++) {
            const size_t s = l * nf + i, t = k * nf + m;
            const spx_pf_overlap o = spx_pf_overlap_of(p->nx, &at[s], &at[t]);
            if (o.h == 0)
                continue;
            if (!any) {
                memset(j->sums, 0, na * na * side * side * spx_pf_pair_width(p) * sizeof *j->sums);
                memset(projected_of(j, 0, 0), 0,
                       (size_t)(projected_of(j, l == k ? 1 : 2, 0) - j->projected) * sizeof *j->sums);
            }
            any = 1;
            const spx_pf_part one = part_of(j, s, o.a), two = part_of(j, t, o.b);
            const double *v = b->vterm + i * na, *u = b->vterm + m * na;
            if (shape_l && shape_k && whole) {
                double by[SPX_PF_MOST_FIBRE * SPX_PF_MOST_FIBRE];
                for (size_t q = 0; q < na * na; q++) /* of a line with itself both orders are added in the end */
                    by[q] = (s == t ? 0.5 : 1) * v[q / na] * u[q % na];
                j->k->shapes(p, o.h, o.w, &one, &two, by, j->sums);
            }
            /* of a weak line the fluxes alone */
            if (shape_k)
                j->k->project(p, o.h, o.w, shape_l ? SPX_PF_DENSE : 1, whole, &one, &two, u, projected_of(j, 0, i));
            if (shape_l && s != t)
                j->k->project(p, o.h, o.w, shape_k ? SPX_PF_DENSE : 1, whole, &two, &one, v,
                              projected_of(j, l != k, m));
        }
    return any;
}

/* Products of a stamp with the derivatives of a line's shape, as its parameters are ordered: out[ns]. */
static void by_shape(const job *j, const double *projected, double *out)
{
    const spx_pf_bundle *b = j->b;
    const size_t na = (size_t)b->p->na, active = (size_t)b->active, side = (size_t)b->p->deg + 1,
                 pad = spx_pf_pad(b->p);
    for (size_t a = 0; a < na; a++) {
        const double *from = projected + a * spx_pf_projected(b->p);
        out[a * active] = from[0];
        out[a * active + 1] = from[1];
        for (size_t q = 1; q + 1 < active; q++)
            out[a * active + 1 + q] = from[2 + q / side * pad + q % side];
    }
}

/* Local parameters of a line: places, x and y, of its fibres, then the shape. */
static size_t locals(const job *j)
{
    return 2 * j->b->nf + j->ns;
}

/* Numbers of a row of a block: whole vectors. */
static size_t stride_of(const job *j)
{
    return (locals(j) + SPX_PF_LANES - 1) / SPX_PF_LANES * SPX_PF_LANES;
}

/* Row of H_f,theta of fibre i's flux in a line, from the local parameters of another one on. */
static double *local_row(const job *j, const spx_pf_group *g, size_t line, size_t i, size_t other)
{
    size_t before = 0, all = 0;
    for (size_t l = g->first; l < g->last; l++) {
        before += l < other && !j->b->line[l].weak;
        all += !j->b->line[l].weak;
    }
    return j->local + (((line - g->first) * j->b->nf + i) * all + before) * locals(j);
}

/* Adds the products of the spots of line `line` with the shape of `other`: to H_f,shape, and to the block x of both,
 * whose rows are those of `line`, or of `other` where `back`. */
static void spots_by_shape(job *j, size_t line, size_t other, int back, const spx_pf_group *g, double *x)
{
    const spx_pf_bundle *b = j->b;
    const size_t ns = j->ns, na = (size_t)b->p->na, active = (size_t)b->active, n = stride_of(j), shape = 2 * b->nf;
    double out[SPX_PF_MOST_FIBRE * SPX_PF_MOST_LOCAL];
    for (size_t i = 0; i < b->nf; i++)
        for (int q = 0; q < (b->line[line].weak ? 1 : SPX_PF_DENSE); q++) {
            by_shape(j, projected_of(j, back, i) + (size_t)q * na * spx_pf_projected(b->p), out);
            if (q == SPX_PF_BY_FLUX) {
                j->k->add(ns, 1, out, local_row(j, g, line, i, other) + shape);
            } else if (q < SPX_PF_BY_SIGX) {
                const size_t row = 2 * i + (size_t)(q - SPX_PF_BY_X);
                for (size_t m = 0; m < ns; m++)
                    x[back ? (shape + m) * n + row : row * n + shape + m] += out[m];
            } else {
                for (size_t a = 0; a < na; a++) {
                    const size_t row = shape + a * active + (size_t)(q - SPX_PF_BY_SIGX);
                    const double by = b->vterm[i * na + a];
                    for (size_t m = 0; m < ns; m++)
                        if (!back)
                            x[row * n + shape + m] += by * out[m];
                        else if (m % active >= 2) /* widths by widths are in the rows */
                            x[(shape + m) * n + row] += by * out[m];
                }
            }
        }
}

/* Adds the products of GH-i-j with each other to a block; of a line with itself both orders. */
static void add_sums(const job *j, int same, double *x)
{
    const spx_pf_plan *p = j->b->p;
    const size_t na = (size_t)p->na, active = (size_t)j->b->active, side = (size_t)p->deg + 1, shape = 2 * j->b->nf;
    const size_t pad = spx_pf_pad(p), n = spx_pf_pair_width(p), stride = stride_of(j);
    for (size_t t = 0; t < na * na; t++)
        for (size_t q = 1; q + 1 < active; q++)
            for (size_t r = 1; r + 1 < active; r++) {
                const size_t row = shape + t / na * active + 1 + q, column = shape + t % na * active + 1 + r;
                const double v = j->sums[((t * side + q / side) * side + r / side) * n + q % side * pad + r % side];
                x[row * stride + column] += v;
                if (same)
                    x[column * stride + row] += v;
            }
}

/* Places by places, and fluxes by places, of lines l <= k; x: their block. */
static void spots_by_places(job *j, size_t l, size_t k, const spx_pf_group *g, double *x)
{
    const spx_pf_bundle *b = j->b;
    const spx_pf_plan *p = b->p;
    const size_t nf = b->nf, reach = (size_t)b->reach, n = stride_of(j), npix = (size_t)(p->nx * p->ny);
    const spx_pf_at *at = b->now.at + j->x * b->nl * nf;
    const int told_l = !b->line[l].weak, told_k = !b->line[k].weak;
    for (size_t i = 0; i < nf; i++)
        for (size_t m = l == k ? i : i > reach ? i - reach : 0; m <= i + reach && m < nf; m++) {
            const size_t s = l * nf + i, t = k * nf + m;
            const spx_pf_overlap o = spx_pf_overlap_of(p->nx, &at[s], &at[t]);
            double out[SPX_PF_PLACES * SPX_PF_PLACES];
            if (o.h == 0)
                continue;
            j->k->places(o.h, o.w, stamp_of(j, 0, s) + o.a, stamp_of(j, 0, t) + o.b, b->nl * nf * npix, (size_t)p->nx,
                         out);
            for (size_t y = 0; y < 2; y++) {
                if (told_k)
                    local_row(j, g, l, i, k)[2 * m + y] += out[1 + y];
                if (told_l && s != t)
                    local_row(j, g, k, m, l)[2 * i + y] += out[SPX_PF_PLACES * (1 + y)];
                for (size_t z = 0; z < 2 && x != NULL; z++)
                    x[(2 * i + y) * n + 2 * m + z] += out[SPX_PF_PLACES * (1 + y) + 1 + z];
            }
        }
}

/* Two lines, l <= k, of a group: rows of their fluxes, and, unless one is weak, their block x, of a line with itself
 * its upper triangle. */
static void pair_of_lines(job *j, size_t l, size_t k, const spx_pf_group *g, double *x)
{
    const spx_pf_bundle *b = j->b;
    const size_t ns = j->ns, active = (size_t)b->active, shape = 2 * b->nf, n = stride_of(j);
    if (b->line[l].weak && b->line[k].weak)
        return;
    if (ns > 0 && pairs_of_spots(j, l, k)) {
        if (has_shape(j, k))
            spots_by_shape(j, l, k, 0, g, x);
        if (has_shape(j, l) && l != k)
            spots_by_shape(j, k, l, 1, g, x);
        for (size_t row = 0; row < ns && l == k; row++) /* columns of the widths are their rows */
            for (size_t column = 0; row % active < 2 && column < ns; column++)
                x[(shape + column) * n + shape + row] = x[(shape + row) * n + shape + column];
        if (b->active > 2 && x != NULL)
            add_sums(j, l == k, x);
    }
    spots_by_places(j, l, k, g, x);
}

/* Adds the blocks, times the lines' polynomials, to the upper triangle of H. */
static void add_blocks(job *j)
{
    const spx_pf_plan *p = j->b->p;
    const size_t n = stride_of(j), nt = 2 * j->b->nf, ns = j->ns, ntr = (size_t)p->ntr, nb = (size_t)p->nb;
    const size_t size = locals(j) * n, shape = j->b->shape0;
    double *to[SPX_PF_MOST_TRACE * SPX_PF_MOST_TRACE];
    if (j->nblock == 0)
        return;
    for (size_t m = 0; m < j->nblock; m++)
        for (size_t s = 0; s < ntr; s++)
            for (size_t t = 0; t < ntr; t++)
                j->weight[(m * ntr + s) * ntr + t] = j->one[m][s] * j->two[m][t];
    for (size_t r = 0; r < nt; r++) {
        for (size_t q = 0; q < ntr * ntr; q++)
            to[q] = j->plane + q * nt;
        memset(j->plane, 0, ntr * ntr * nt * sizeof *j->plane);
        j->k->combine(j->nblock, j->block + r * n + r, size, ntr * ntr, j->weight, nt - r, to);
        for (size_t c = 0; c < nt - r; c++)
            for (size_t s = 0; s < ntr; s++)
                for (size_t t = c == 0 ? s : 0; t < ntr; t++)
                    j->h[(r * ntr + s) * j->n + (r + c) * ntr + t] += to[s * ntr + t][c];
    }
    for (size_t m = 0; m < j->nblock && ns > 0; m++)
        for (size_t s = 0; s < ntr; s++)
            for (size_t t = 0; t < nb; t++)
                j->weight[(m * ntr + s) * nb + t] = j->one[m][s] * j->two[m][t];
    for (size_t r = 0; r < nt && ns > 0; r++) {
        for (size_t q = 0; q < ntr * nb; q++)
            to[q] = j->h + (r * ntr + q / nb) * j->n + shape + q % nb * ns;
        j->k->combine(j->nblock, j->block + r * n + nt, size, ntr * nb, j->weight, ns, to);
    }
    for (size_t m = 0, q = 0; m < j->nblock && ns > 0; m++)
        for (size_t s = 0; s < nb; s++)
            for (size_t t = s; t < nb; t++)
                j->weight[q++] = j->one[m][s] * j->two[m][t];
    for (size_t r = 0; r < ns; r++) {
        size_t q = 0;
        for (size_t s = 0; s < nb; s++)
            for (size_t t = s; t < nb; t++)
                to[q++] = j->h + (shape + s * ns + r) * j->n + shape + t * ns;
        j->k->combine(j->nblock, j->block + (nt + r) * n + nt, size, q, j->weight, ns, to);
    }
    j->nblock = 0;
}

/* Room for the products of two lines, zeros. */
static double *new_block(job *j, size_t l, size_t k)
{
    const size_t size = locals(j) * stride_of(j);
    double *to = j->block + j->nblock * size;
    memset(to, 0, size * sizeof *to);
    j->one[j->nblock] = j->b->line[l].term;
    j->two[j->nblock++] = j->b->line[k].term;
    return to;
}

/* Parameters that places of all fibres of a line depend on, but for the fibres' own: shifts of the exposure in x and y,
 * and the wavelength if that is free, with the derivative of each place by each, by[2 nf]. */
typedef struct {
    size_t at, step;
    const double *by; /* of places 0, step, 2 step ...; NULL: 1 */
    size_t from;
} common;

static size_t commons_of(const job *j, size_t line, common *to)
{
    const spx_pf_bundle *b = j->b;
    size_t n = 0;
    for (size_t y = 0; y < 2 && j->x > 0 && b->p->nshift > 0; y++)
        to[n++] = (common){.at = b->shift0 + 2 * (j->x - 1) + y, .step = 2, .from = y};
    if (b->line[line].free > 0)
        to[n++] = (common){.at = b->free0 + b->line[line].free - 1, .step = 1, .by = b->slope + 2 * line * b->nf};
    return n;
}

/* Sum over a common parameter's places of numbers that are `stride` apart. */
static double sum_of_places(const job *j, const common *of, const double *v, size_t stride)
{
    double sum = 0;
    for (size_t r = of->from; r < 2 * j->b->nf; r += of->step)
        sum += (of->by != NULL ? of->by[r] : 1) * v[r * stride];
    return sum;
}

/* Adds to H what a block, of line l by line k, says of their common parameters. */
static void add_commons(job *j, size_t l, size_t k, const double *x)
{
    const spx_pf_bundle *b = j->b;
    const size_t nt = 2 * b->nf, n = stride_of(j), ntr = (size_t)b->p->ntr;
    common row[3], column[3];
    const size_t nrow = commons_of(j, l, row), ncolumn = commons_of(j, k, column);
    for (size_t q = 0; q < ncolumn; q++) {
        double sum[3] = {0};
        for (size_t r = 0; r < nt; r++) {
            const double v = sum_of_places(j, &column[q], x + r * n, 1);
            for (size_t s = 0; s < ntr; s++)
                j->h[(r * ntr + s) * j->n + column[q].at] += b->line[l].term[s] * v;
            for (size_t m = 0; m < nrow; m++)
                if (r % row[m].step == row[m].from)
                    sum[m] += (row[m].by != NULL ? row[m].by[r] : 1) * v;
        }
        for (size_t m = 0; m < nrow; m++)
            if (row[m].at <= column[q].at)
                j->h[row[m].at * j->n + column[q].at] += sum[m];
    }
    for (size_t m = 0; m < nrow; m++)
        for (size_t c = 0; c < j->ns; c++) {
            const double v = sum_of_places(j, &row[m], x + nt + c, n);
            for (size_t t = 0; t < (size_t)b->p->nb; t++)
                j->h[row[m].at * j->n + b->shape0 + t * j->ns + c] += b->line[k].term[t] * v;
        }
}

/* Ends a block: all of it for a line with itself, and the transposed one, of k by l, for two. */
static void end_block(job *j, size_t l, size_t k, double *x)
{
    const size_t m = locals(j), n = stride_of(j);
    double *turned = l == k ? x : new_block(j, k, l);
    for (size_t r = 0; r < m; r++)
        for (size_t c = l == k ? r + 1 : 0; c < m; c++)
            turned[c * n + r] = x[r * n + c];
    add_commons(j, l, k, x);
    if (l != k)
        add_commons(j, k, l, turned);
}

/* Adds the gradient by the spots of a line to g. */
static void line_gradient(job *j, size_t line)
{
    const spx_pf_bundle *b = j->b;
    const spx_pf_plan *p = b->p;
    const size_t na = (size_t)p->na, active = (size_t)b->active;
    double out[2 + SPX_PF_MOST_LOCAL], sum[SPX_PF_MOST_FIBRE * SPX_PF_MOST_LOCAL] = {0};
    if (b->line[line].weak)
        return;
    for (size_t i = 0; i < b->nf; i++) {
        const size_t s = (j->x * b->nl + line) * b->nf + i;
        const spx_pf_at *at = &b->now.at[s];
        if (at->y0 == at->y1)
            continue;
        j->k->gradient(p, b->active, at, b->now.gx + s * (size_t)(p->norder * p->nx),
                       b->now.gy + s * (size_t)(p->norder * p->ny), b->now.c + s * (size_t)p->nc,
                       b->now.spot + s * (size_t)(p->nx * p->ny), b->now.flux[s], b->px[j->x].root, j->rest,
                       at->yc * (long)b->width + at->xc, b->width, out);
        for (int y = 0; y < 2; y++) {
            chain to;
            chain_of(j, line, i, y, &to);
            for (size_t c = 0; c < to.n; c++)
                j->g[to.at[c]] += out[y] * to.by[c];
        }
        for (size_t a = 0; a < na; a++)
            for (size_t q = 0; q < active; q++)
                sum[a * active + q] += b->vterm[i * na + a] * out[2 + q];
    }
    for (int t = 0; t < p->nb; t++)
        for (size_t k = 0; k < j->ns; k++)
            j->g[b->shape0 + (size_t)t * j->ns + k] += b->line[line].term[t] * sum[k];
}

/* Rows that a line's spots have: of lines apart no spots overlap. */
static void rows_of(const job *j, size_t line, long *lo, long *hi)
{
    const spx_pf_bundle *b = j->b;
    *lo = (long)b->p->height;
    *hi = 0;
    for (size_t i = 0; i < b->nf; i++) {
        const spx_pf_at *at = &b->now.at[(j->x * b->nl + line) * b->nf + i];
        if (at->y0 == at->y1)
            continue;
        *lo = at->yc + at->y0 < *lo ? at->yc + at->y0 : *lo;
        *hi = at->yc + at->y1 > *hi ? at->yc + at->y1 : *hi;
    }
}

/* Rows of H_f,theta that are taken off H at one time: of one group they are fewer than H is worth reading for. */
enum { ROWS = 256 };

/* Takes off what fluxes know: H -= (L^-1 H_f,theta)' (L^-1 H_f,theta). */
static void take_rows(job *j)
{
    if (j->nrow > 0)
        cblas_dsyrk(CblasRowMajor, CblasUpper, CblasTrans, (blasint)j->n, (blasint)j->nrow, -1, j->w, (blasint)j->n, 1,
                    j->h, (blasint)j->n);
    j->nrow = 0;
}

/* Rows of a group by all parameters, from those by local ones. */
static void add_rows(job *j, const spx_pf_group *g)
{
    const spx_pf_bundle *b = j->b;
    const size_t nt = 2 * b->nf, ntr = (size_t)b->p->ntr, nflux = (g->last - g->first) * b->nf;
    double *to = j->w + j->nrow * j->n;
    memset(to, 0, nflux * j->n * sizeof *to);
    for (size_t f = 0; f < nflux; f++, to += j->n)
        for (size_t l = g->first; l < g->last; l++) {
            const double *from = local_row(j, g, g->first + f / b->nf, f % b->nf, l);
            common of[3];
            const size_t n = b->line[l].weak ? 0 : commons_of(j, l, of);
            for (size_t r = 0; r < nt && !b->line[l].weak; r++)
                for (size_t s = 0; s < ntr; s++)
                    to[r * ntr + s] += from[r] * b->line[l].term[s];
            for (size_t m = 0; m < n; m++)
                to[of[m].at] += sum_of_places(j, &of[m], from, 1);
            for (int t = 0; t < b->p->nb && !b->line[l].weak; t++)
                j->k->add(j->ns, b->line[l].term[t], from + nt, to + b->shape0 + (size_t)t * j->ns);
        }
    j->nrow += nflux;
    if (j->nrow >= ROWS)
        take_rows(j);
}

/* Adds a group: its lines, and the rows of its fluxes. Those are taken off the blocks of all pairs of its lines, which
 * have fewer columns than H, unless lines are many. */
static void add_group(job *j, const spx_pf_group *g)
{
    const spx_pf_bundle *b = j->b;
    const size_t nflux = (g->last - g->first) * b->nf, m = locals(j);
    double *block[MOST_BLOCKS];
    size_t told = 0, nblock = 0;
    for (size_t l = g->first; l < g->last; l++)
        told += !b->line[l].weak;
    if (told == 0)
        return;
    const int whole = told * told <= MOST_BLOCKS && 2 * told * told * m * m <= j->n * j->n;
    const blasint n = (blasint)(told * m);
    if (whole && j->nblock + told * told > MOST_BLOCKS)
        add_blocks(j);
    memset(j->local, 0, nflux * told * m * sizeof *j->local);
    for (size_t l = g->first; l < g->last; l++)
        derive_line(j, l);
    for (size_t l = g->first; l < g->last; l++)
        for (size_t k = l; k < g->last; k++) {
            long lo, hi, lo2, hi2;
            rows_of(j, l, &lo, &hi);
            rows_of(j, k, &lo2, &hi2);
            const int meet = lo2 < hi && lo < hi2, both = !b->line[l].weak && !b->line[k].weak;
            if (!meet && !(both && whole))
                continue;
            if (!whole && j->nblock + 2 > MOST_BLOCKS)
                add_blocks(j);
            double *x = both ? new_block(j, l, k) : NULL;
            if (meet)
                pair_of_lines(j, l, k, g, x);
            if (both && !whole)
                end_block(j, l, k, x);
            else if (both)
                block[nblock++] = x;
        }
    /* by columns: W' (n x fluxes) L^-T */
    cblas_dtrsm(CblasColMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, n, (blasint)nflux, 1,
                b->now.factor + j->x * b->nfactor + g->factor, (blasint)nflux, j->local, n);
    if (!whole) {
        add_rows(j, g);
        return;
    }
    nblock = 0;
    for (size_t l = g->first; l < g->last; l++)
        for (size_t k = l; k < g->last; k++) {
            if (b->line[l].weak || b->line[k].weak)
                continue;
            double *x = block[nblock++];
            const double *one = local_row(j, g, g->first, 0, l), *two = local_row(j, g, g->first, 0, k);
            if (l == k)
                cblas_dsyrk(CblasRowMajor, CblasUpper, CblasTrans, (blasint)m, (blasint)nflux, -1, one, n, 1, x,
                            (blasint)stride_of(j));
            else
                cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (blasint)m, (blasint)m, (blasint)nflux, -1, one, n,
                            two, n, 1, x, (blasint)stride_of(j));
            end_block(j, l, k, x);
        }
}

void spx_pf_work_free(struct spx_pf_work *w)
{
    if (w == NULL)
        return;
    spx_free(w->w);
    spx_free(w->rest);
    spx_free(w->block);
    spx_free(w->across);
    spx_free(w);
}

/* *old with at least n doubles. */
static spx_status at_least(double **old, size_t *have, size_t n, spx_err *e)
{
    if (*have >= n)
        return SPX_OK;
    spx_free(*old);
    *have = 0;
    if ((*old = spx_alloc_unset(n, 1, sizeof **old, e)) == NULL)
        return SPX_EIO;
    *have = n;
    return SPX_OK;
}

static spx_status reserve(spx_pf_bundle *b, size_t nw, size_t nrest, size_t nblock, size_t nacross, spx_err *e)
{
    if (b->work == NULL && (b->work = spx_alloc(1, sizeof *b->work, e)) == NULL)
        return SPX_EIO;
    struct spx_pf_work *w = b->work;
    spx_status st = at_least(&w->w, &w->nw, nw, e);
    if (st == SPX_OK)
        st = at_least(&w->rest, &w->nrest, nrest, e);
    if (st == SPX_OK)
        st = at_least(&w->block, &w->nblock, nblock, e);
    return st == SPX_OK ? at_least(&w->across, &w->nacross, nacross, e) : st;
}

/* Of a free line: polynomials at its wavelength, and the traces' slopes there, pixels an Angstrom. */
static void find_slopes(spx_pf_bundle *b, size_t l)
{
    const double wave = spx_pf_wave(b, &b->now, &b->line[l]), h = 1e-4 * (b->p->wmax - b->p->wmin);
    spx_legendre_basis((size_t)b->p->ntr, spx_pf_u(b->p, wave), b->line[l].term);
    for (size_t i = 0; i < b->nf; i++) {
        double lo[2], hi[2];
        spx_pf_place(b, b->now.theta, i, wave - h, &lo[0], &lo[1]);
        spx_pf_place(b, b->now.theta, i, wave + h, &hi[0], &hi[1]);
        for (size_t y = 0; y < 2; y++)
            b->slope[2 * (l * b->nf + i) + y] = (hi[y] - lo[y]) / (2 * h);
    }
}

/* Gradient of an exposure; residuals of the rows with light, in which all spots are. */
static void add_gradient(job *j)
{
    const spx_pf_bundle *b = j->b;
    const spx_pf_pixels *px = &b->px[j->x];
    const size_t height = b->p->height;
    const double *light = b->now.light + j->x * height * b->width;
    for (size_t r = 0; r < height; r++)
        for (size_t k = r * b->width; b->now.lit[j->x * height + r] && k < (r + 1) * b->width; k++)
            j->rest[k] = px->goal[k] - px->root[k] * light[k];
    for (size_t l = 0; l < b->nl; l++)
        line_gradient(j, l);
}

static void find_all_slopes(spx_pf_bundle *b)
{
    for (size_t l = 0; l < b->nl; l++)
        if (b->line[l].free > 0)
            find_slopes(b, l);
}

spx_status spx_pf_gradient(spx_pf_bundle *b, double *g, spx_err *e)
{
    job j = {.b = b, .k = spx_pf_kernels_find(), .n = spx_pf_columns(b), .ns = (size_t)(b->p->na * b->active), .g = g};
    if (b->there != NULL) {
        find_all_slopes(b);
        if (!b->p->device->gradient(b, g))
            memset(g, 0xff, j.n * sizeof *g); /* not finite: no solution */
        else
            (void)add_prior(b, b->now.theta, j.n, NULL, g);
        return SPX_OK;
    }
    spx_status st = reserve(b, 0, b->p->height * b->width, 0, 0, e);
    if (st != SPX_OK)
        return st;
    j.rest = b->work->rest;
    find_all_slopes(b);
    memset(g, 0, j.n * sizeof *g);
    for (j.x = 0; j.x < b->p->nexp; j.x++)
        add_gradient(&j);
    (void)add_prior(b, b->now.theta, j.n, NULL, g);
    return SPX_OK;
}

/* Adds the priors to the matrix and gradient of the host, or makes these of a device. *ok: matrix and gradient are
 * finite. SPX_EIO: memory. */
static spx_status with_prior(spx_pf_bundle *b, size_t n, double *h, double *g, int *ok, spx_err *e)
{
    const size_t nf = b->nf, ntr = (size_t)b->p->ntr, nt = 2 * ntr;
    double *diagonal = spx_alloc(n + nt, sizeof *diagonal, e);
    if (diagonal == NULL)
        return SPX_EIO;
    double *weight = diagonal + n;
    *ok = 1;
    (void)add_prior(b, b->now.theta, n, diagonal, NULL);
    for (size_t t = 0; t < nt; t++)
        weight[t] = weight_of(t % ntr);
    if (b->there != NULL)
        *ok = b->p->device->normal(b, weight, diagonal, g);
    for (size_t k = 0; k < nf * nt && b->there == NULL; k++)
        for (size_t j = k / nt; j < nf; j++)
            h[k * n + j * nt + k % nt] += weight[k % nt] * b->prior[k / nt * nf + j];
    for (size_t k = 0; k < n && b->there == NULL; k++)
        diagonal[k] = h[k * n + k] += diagonal[k];
    const spx_status st = b->precision != NULL && *ok ? spx_pf_add_learned(b, NULL, n, h, e) : SPX_OK;
    if (*ok)
        (void)add_prior(b, b->now.theta, n, NULL, g);
    for (size_t k = 0; k < n; k++)
        *ok &= isfinite(g[k]) && isfinite(diagonal[k]);
    spx_free(diagonal);
    return st;
}

spx_status spx_pf_normal(spx_pf_bundle *b, double *h, double *g, int *ok, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    job j = {
        .b = b, .k = spx_pf_kernels_find(), .n = spx_pf_columns(b), .ns = (size_t)(p->na * b->active), .h = h, .g = g};
    const size_t na = (size_t)p->na, side = (size_t)p->deg + 1;
    const size_t sums = na * na * side * side * spx_pf_pair_width(p);
    const size_t projected = 2 * b->nf * SPX_PF_DENSE * na * spx_pf_projected(p);
    size_t most = 1;
    for (size_t k = 0; k < b->ngroup; k++)
        most = b->group[k].last - b->group[k].first > most ? b->group[k].last - b->group[k].first : most;
    find_all_slopes(b);
    if (b->there != NULL)
        return with_prior(b, j.n, h, g, ok, e);
    memset(h, 0, j.n * j.n * sizeof *h);
    memset(g, 0, j.n * sizeof *g);
    const size_t nterm = (size_t)(p->ntr * p->ntr), blocks = MOST_BLOCKS * locals(&j) * stride_of(&j);
    const size_t local = most * b->nf * most * locals(&j), rows = (most * b->nf + ROWS) * j.n;
    spx_status st =
        reserve(b, local + rows, p->height * b->width,
                blocks + (MOST_BLOCKS + 2 * b->nf) * nterm + SPX_PF_TERMS + (j.ns > 0 ? sums + projected : 0),
                j.ns > 0 ? b->nl * b->nf * (size_t)p->nx * spx_pf_pad(p) : 1, e);
    if (st == SPX_OK) {
        j.local = b->work->w;
        j.w = j.local + local;
        j.rest = b->work->rest;
        j.across = b->work->across;
        j.block = b->work->block;
        j.weight = j.block + blocks;
        j.plane = j.weight + MOST_BLOCKS * nterm + SPX_PF_TERMS;
        j.sums = j.plane + 2 * b->nf * nterm;
        j.projected = j.sums + sums;
    }
    for (j.x = 0; j.x < p->nexp && st == SPX_OK; j.x++) {
        add_gradient(&j);
        weigh_spots(b, &b->now, j.x, b->stamp);
        for (size_t k = 0; k < b->ngroup; k++)
            add_group(&j, &b->group[k]);
    }
    if (st == SPX_OK) {
        take_rows(&j);
        add_blocks(&j);
    }
    return st == SPX_OK ? with_prior(b, j.n, h, g, ok, e) : st;
}
