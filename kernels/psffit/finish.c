/* Results of a bundle: PSF, errors, flags (psffit/fit.h). */
#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "calib/bordered.h"
#include "num/blas.h"
#include "num/stat.h"
#include "products/psf_index.h"
#include "psf/spot_math.h"
#include "psffit/errors.h"
#include "psffit/step_math.h"

/* S/N of a line that counts for its fibre, and of one that counts for its wavelength. */
#define GOOD   5.0
#define BRIGHT 10.0
/* Chi squared of a part of a fibre above which its fit is bad. */
#define WORST 2.0
/* Error of the PSF, of its peak, above which the fits of all fibres are bad, if it is more than this many errors of the
 * misfit of noise: light of neighbours that the model lacks then moves lines by hundredths of a pixel. */
#define OTHER_SPOTS 0.005
#define SURE        4.0
/* Rows behind the last line of a fibre where its trace is still valid. */
#define BEHIND 30.0
/* Lines with S/N above GOOD that a living fibre has. */
enum { FEWEST = 4 };

/* ---- PSF ---- */

spx_status spx_pf_new_psf(const spx_pf_plan *p, spx_psf *psf, spx_err *e)
{
    const spx_psf *from = p->start;
    if (p->nq == 0) {
        spx_status st = spx_psf_copy(from, psf, e);
        if (st != SPX_OK)
            return st;
        spx_free(psf->x.coef);
        spx_free(psf->y.coef);
        psf->x.coef = psf->y.coef = NULL;
    } else {
        psf->nspec = from->nspec;
        psf->npar = (size_t)(2 + p->nc);
        psf->ndeg = (size_t)p->nb;
        psf->wmin = p->wmin;
        psf->wmax = p->wmax;
        psf->ghdegx = psf->ghdegy = p->deg;
        memcpy(psf->camera, from->camera, sizeof psf->camera);
        psf->psferr = from->psferr;
        if (from->fibre != NULL) {
            if ((psf->fibre = spx_alloc_unset(from->nspec, 1, sizeof *psf->fibre, e)) == NULL)
                return SPX_EIO;
            memcpy(psf->fibre, from->fibre, from->nspec * sizeof *psf->fibre);
        }
        if ((psf->param = spx_alloc(psf->npar, sizeof *psf->param, e)) == NULL ||
            (psf->coeff = spx_alloc2(psf->npar * psf->nspec, psf->ndeg, sizeof *psf->coeff, e)) == NULL)
            return SPX_EIO;
        snprintf(psf->param[0], sizeof *psf->param, "GHSIGX");
        snprintf(psf->param[1], sizeof *psf->param, "GHSIGY");
        for (int k = 0; k < p->nc; k++)
            snprintf(psf->param[2 + k], sizeof *psf->param, "GH-%u-%u", (unsigned)(k % (p->deg + 1)) & 0xffu,
                     (unsigned)(k / (p->deg + 1)) & 0xffu);
    }
    psf->hsizex = p->hx;
    psf->hsizey = p->hy;
    psf->npix_x = p->columns;
    psf->npix_y = p->height;
    psf->x = psf->y = (spx_psf_series){.ncoef = (size_t)p->ntr, .wmin = p->wmin, .wmax = p->wmax};
    if ((psf->x.coef = spx_alloc2(psf->nspec, (size_t)p->ntr, sizeof *psf->x.coef, e)) == NULL ||
        (psf->y.coef = spx_alloc2(psf->nspec, (size_t)p->ntr, sizeof *psf->y.coef, e)) == NULL)
        return SPX_EIO;
    return spx_psf_index(psf, e);
}

static void put_psf(const spx_pf_bundle *b, const double *theta, spx_psf *psf)
{
    const spx_pf_plan *p = b->p;
    const size_t ntr = (size_t)p->ntr, row = psf->nspec * psf->ndeg;
    for (size_t i = 0; i < b->nf; i++) {
        const size_t f = b->fibre0 + i;
        memcpy(psf->x.coef + f * ntr, theta + i * 2 * ntr, ntr * sizeof *theta);
        memcpy(psf->y.coef + f * ntr, theta + i * 2 * ntr + ntr, ntr * sizeof *theta);
        if (p->nq == 0)
            continue;
        /* the tensor at this fibre; GH-0-0 = 1 */
        psf->coeff[2 * row + f * psf->ndeg] = 1;
        for (int q = 0; q < p->nq; q++) {
            double *to = psf->coeff + (size_t)(q < 2 ? q : q + 1) * row + f * psf->ndeg;
            memset(to, 0, psf->ndeg * sizeof *to);
            for (int t = 0; t < p->nb; t++)
                for (int a = 0; a < p->na; a++)
                    to[t] += theta[b->shape0 + (size_t)((t * p->na + a) * p->nq + q)] *
                             b->vterm[i * (size_t)p->na + (size_t)a];
        }
    }
}

spx_status spx_pf_keep_start(const spx_pf_plan *p, size_t number, size_t fibre0, size_t nf, double dx, double dy,
                             spx_psf *psf, spx_psffit *fit, spx_err *e)
{
    spx_pf_bundle b;
    spx_pf_plan plan = *p;
    if (p->trial) /* nobody asks for shapes of bundles that it does not fit, which take longest */
        plan.nq = 0;
    spx_status st = spx_pf_begin(&plan, fibre0, nf, 0, &b, e);
    for (size_t i = 0; i < nf && st == SPX_OK; i++) {
        b.theta0[i * 2 * (size_t)p->ntr] += dx - p->moved[0];
        b.theta0[(i * 2 + 1) * (size_t)p->ntr] += dy - p->moved[1];
        fit->fibre[fibre0 + i] = (spx_psffit_fibre){.fibre = (int32_t)(fibre0 + i),
                                                    .bundle = (int32_t)number,
                                                    .status = SPX_PSF_BUNDLE,
                                                    .x_shift = dx,
                                                    .y_shift = dy,
                                                    .valid_min = p->wmin,
                                                    .valid_max = p->wmax};
    }
    if (st == SPX_OK)
        put_psf(&b, b.theta0, psf);
    fit->bundle[number] = (spx_psffit_bundle){.fibre0 = (int32_t)fibre0, .nfibre = (int32_t)nf};
    spx_pf_close(&b);
    return st;
}

/* ---- errors ---- */

/* Arrays of one spot: Gauss-Hermite functions of its place, its pixels, none negative, and its derivatives by X and Y,
 * 0 where it is clipped; and weights of 1 for kernels that take some. */
typedef struct {
    double *gx, *gy, *spot, *by[2];
    float *root;
} spot_room;

/* Freed with spx_free(to->gx). */
static spx_status room_new(const spx_pf_plan *p, spot_room *to, spx_err *e)
{
    const size_t nx = (size_t)p->nx, ny = (size_t)p->ny, order = (size_t)p->norder, n = nx * ny;
    /* kernels read whole vectors */
    if ((to->gx = spx_alloc(order * (nx + ny) + 4 * n + 2 * SPX_PF_LANES, sizeof *to->gx, e)) == NULL)
        return SPX_EIO;
    to->gy = to->gx + order * nx + SPX_PF_LANES;
    to->spot = to->gy + order * ny + SPX_PF_LANES;
    to->by[0] = to->spot + n;
    to->by[1] = to->by[0] + n;
    to->root = (float *)(void *)(to->by[1] + n);
    for (size_t k = 0; k < n; k++)
        to->root[k] = 1;
    return SPX_OK;
}

/* Spot of fibre i at a wavelength: shape c, its place and its pixels. */
static void spot_of(const spx_pf_bundle *b, size_t i, double wave, double *c, const spot_room *to, spx_pf_at *at)
{
    const spx_pf_plan *p = b->p;
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    double *stamp[SPX_PF_STAMPS] = {[SPX_PF_BY_X] = to->by[0], [SPX_PF_BY_Y] = to->by[1]};
    *at = (spx_pf_at){.x1 = p->nx, .y1 = p->ny};
    spx_pf_place(b, b->now.theta, i, wave, &at->x, &at->y);
    spx_pf_shape(b, b->now.theta, i, wave, &at->sigx, &at->sigy, c);
    kernels->hermite(p->norder - 1, p->nx, at->x - floor(at->x + 0.5), at->sigx, to->gx);
    kernels->hermite(p->norder - 1, p->ny, at->y - floor(at->y + 0.5), at->sigy, to->gy);
    kernels->spot(p, to->gx, to->gy, c, to->spot);
    kernels->derive(p, 0, at, to->gx, to->gy, c, to->spot, 1, to->root, 0, (size_t)p->nx, stamp, NULL);
}

/* Linear functionals of the place of a spot: dP/dq of each local parameter (X, Y, shape) projected on
 * (dP/dX, dP/dY, P) by least squares. Unlike X itself they do not change with the gauge, in which GH-1-0 moves a spot
 * as X does. fx[2 + nq], fy[2 + nq]. 0: no solution. */
static int functionals(const spx_pf_bundle *b, size_t i, double wave, const spot_room *room, double *fx, double *fy)
{
    const spx_pf_plan *p = b->p;
    const size_t n = (size_t)(p->nx * p->ny);
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    const double *on[3] = {room->by[0], room->by[1], room->spot};
    double c[SPX_PF_MOST_LOCAL], product[3][2 + SPX_PF_MOST_LOCAL], a[9] = {0}, r[3];
    spx_pf_at at;
    spot_of(b, i, wave, c, room, &at);
    for (int m = 0; m < 3; m++) {
        kernels->gradient(p, p->nq, &at, room->gx, room->gy, c, room->spot, 1, room->root, on[m], 0, (size_t)p->nx,
                          product[m]);
        a[3 * m] = product[m][0];
        a[3 * m + 1] = product[m][1];
    }
    a[2] = a[6];
    a[5] = a[7];
    for (size_t k = 0; k < n; k++)
        a[8] += room->spot[k] * room->spot[k];
    const int ok = spx_small_factor(3, a);
    for (int q = 0; q < 2 + p->nq && ok; q++) {
        for (int m = 0; m < 3; m++)
            r[m] = product[m][q];
        spx_small_solve(3, a, r);
        fx[q] = r[0];
        fy[q] = r[1];
    }
    return ok;
}

/* Covariance of the shape at one wavelength, whose parameters are sums over terms along wavelengths, term[nb]: for
 * g[na nq] the sum of g_k to[k][l] g_l is its variance. cov: of all parameters, upper triangle. */
static void shape_at(const spx_pf_bundle *b, const double *cov, const double *term, double *to)
{
    const spx_pf_plan *p = b->p;
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    const size_t n = (size_t)(p->na * p->nq), nb = (size_t)p->nb;
    memset(to, 0, n * n * sizeof *to);
    for (size_t w = 0; w < nb; w++)
        for (size_t k = 0; k < n; k++) {
            const double *row = cov + (b->shape0 + w * n + k) * b->ntheta + b->shape0 + w * n, by = term[w] * term[w];
            to[k * n + k] += by * row[k];
            kernels->add(n - k - 1, 2 * by, row + k + 1, to + k * n + k + 1);
            for (size_t v = w + 1; v < nb; v++)
                kernels->add(n, 2 * term[w] * term[v], row + (v - w) * n, to + k * n);
        }
}

/* Variance of a place of fibre i from the covariance of all parameters, a' C a: a are t[nt] of the fibre's trace, and
 * g[na nq] of the shape at that wavelength, whose own variance is sum_k g_k product_k. row[na nq]: room. */
static double variance_of(const spx_pf_bundle *b, const double *cov, size_t i, const double *t, const double *term,
                          const double *g, const double *product, double *row)
{
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    const size_t nt = 2 * (size_t)b->p->ntr, n = (size_t)(b->p->na * b->p->nq);
    double sum = 0;
    memcpy(row, product, n * sizeof *row);
    for (size_t m = 0; m < nt; m++) {
        const double *c = cov + (i * nt + m) * b->ntheta;
        double in = 0.5 * t[m] * c[i * nt + m];
        for (size_t l = m + 1; l < nt; l++)
            in += t[l] * c[i * nt + l];
        sum += 2 * t[m] * in;
        for (size_t w = 0; w < (size_t)b->p->nb && n > 0; w++)
            kernels->add(n, 2 * t[m] * term[w], c + b->shape0 + w * n, row);
    }
    for (size_t k = 0; k < n; k++)
        sum += g[k] * row[k];
    return sum;
}

/* Errors of the places of the fibres that are not dead at wavelengths wave[nplace], from the covariance of all
 * parameters and what a fibre's own misfit makes of them: to[nf][2][nplace]. 0: there is none. */
static spx_status find_errors(const spx_pf_bundle *b, const double *cov, const spx_psffit_fibre *fibre, size_t nplace,
                              const double *wave, double *to, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    const size_t ntr = (size_t)p->ntr, nt = 2 * ntr, nf = b->nf, na = (size_t)p->na, nq = (size_t)p->nq, n = na * nq;
    double f[2][2 + SPX_PF_MOST_LOCAL], term[SPX_PF_MOST_TRACE];
    double *trace = spx_alloc(2 * nf * (nt + 2 * n) + n * n + n, sizeof *trace, e);
    spot_room room = {0};
    spx_status st = trace != NULL ? room_new(p, &room, e) : SPX_EIO;
    double *shape = trace + 2 * nf * nt, *product = shape + 2 * nf * n, *matrix = product + 2 * nf * n,
           *row = matrix + n * n;
    for (size_t at = 0; at < nplace && st == SPX_OK; at++) {
        spx_legendre_basis(ntr, spx_pf_u(p, wave[at]), term);
        memset(trace, 0, 2 * nf * (nt + n) * sizeof *trace);
        for (size_t i = 0; i < nf; i++) {
            if ((fibre[i].status & SPX_PSF_DEAD) || !functionals(b, i, wave[at], &room, f[0], f[1]))
                continue;
            for (size_t y = 0; y < 2; y++) {
                for (size_t m = 0; m < nt; m++)
                    trace[(2 * i + y) * nt + m] = f[y][m / ntr] * term[m % ntr];
                for (size_t k = 0; k < n; k++)
                    shape[(2 * i + y) * n + k] = f[y][2 + k % nq] * b->vterm[i * na + k / nq];
            }
        }
        if (n > 0) {
            shape_at(b, cov, term, matrix);
            cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)(2 * nf), (blasint)n, (blasint)n, 1, shape,
                        (blasint)n, matrix, (blasint)n, 0, product, (blasint)n);
        }
        for (size_t k = 0; k < 2 * nf; k++)
            to[k * nplace + at] =
                b->swell[k / 2] *
                sqrt(fmax(0, variance_of(b, cov, k / 2, trace + k * nt, term, shape + k * n, product + k * n, row)));
    }
    spx_free(trace);
    spx_free(room.gx);
    return st;
}

static spx_status put_covariance(const spx_pf_bundle *b, const double *cov, size_t number, spx_psffit *fit, spx_err *e)
{
    const size_t nt = fit->ntrace, ns = fit->nshape, n = b->ntheta;
    for (size_t i = 0; i < b->nf; i++)
        for (size_t k = 0; k < nt; k++)
            for (size_t l = 0; l < nt; l++)
                fit->cov_trace[((b->fibre0 + i) * nt + k) * nt + l] =
                    (float)(b->swell[i] * b->swell[i] * cov[(i * nt + (k < l ? k : l)) * n + i * nt + (k < l ? l : k)]);
    double *shape = spx_alloc2(ns + 1, ns, sizeof *shape, e);
    if (shape == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < ns; k++)
        for (size_t l = 0; l < ns; l++)
            shape[k * ns + l] = cov[(b->shape0 + (k < l ? k : l)) * n + b->shape0 + (k < l ? l : k)];
    const spx_status st = spx_pf_unknown_priors(b, shape, e);
    for (size_t k = 0; k < ns * ns && st == SPX_OK; k++)
        fit->cov_shape[number * ns * ns + k] = (float)shape[k];
    spx_free(shape);
    return st;
}

/* ---- fibres ---- */

/* Pixels near a fibre's spots: to[4] (spx_pf_look). */
static void look_near(const spx_pf_bundle *b, size_t i, double *to)
{
    const spx_pf_plan *p = b->p;
    memset(to, 0, 4 * sizeof *to);
    for (size_t x = 0; x < p->nexp; x++) {
        const spx_pf_pixels *px = &b->px[x];
        const double *light = b->now.light + x * p->height * b->width;
        long last = -1; /* rows below are counted */
        for (size_t l = 0; l < b->nl; l++) {
            /* rows in the order of lines, whichever way wavelengths run */
            const size_t m = b->now.at[i].y < b->now.at[(b->nl - 1) * b->nf + i].y ? l : b->nl - 1 - l;
            const spx_pf_at *at = &b->now.at[(x * b->nl + m) * b->nf + i];
            for (long r = at->yc + at->y0 > last + 1 ? at->yc + at->y0 : last + 1; r < at->yc + at->y1; r++) {
                last = r;
                for (long c = at->xc + at->x0; c < at->xc + at->x1; c++) {
                    const size_t k = (size_t)r * b->width + (size_t)c;
                    if (fabs((double)(c + (long)b->x0) - at->x) > SPX_PF_NEAR)
                        continue;
                    to[3]++;
                    to[2] += !(px->noise[k] > 0);
                    if (!(px->root[k] > 0))
                        continue;
                    const double t = px->goal[k] - px->root[k] * light[k];
                    to[0] += t * t;
                    to[1]++;
                }
            }
        }
    }
}

/* Rows that the trace has on the CCD beyond its lines, as a part of all. */
static void find_range(const spx_pf_bundle *b, size_t i, double first, double last, spx_psffit_fibre *to)
{
    const spx_pf_plan *p = b->p;
    const double edge0 = spx_pf_wave_at(b, b->now.theta, i, -0.5);
    const double edge1 = spx_pf_wave_at(b, b->now.theta, i, (double)p->height - 0.5);
    double x, y0, y1;
    to->valid_min = fmin(edge0, edge1);
    to->valid_max = fmax(edge0, edge1);
    if (!(last >= first))
        return;
    spx_pf_place(b, b->now.theta, i, first, &x, &y0);
    spx_pf_place(b, b->now.theta, i, last, &x, &y1);
    const double way = y1 >= y0 ? 1 : -1;
    const double lo = spx_pf_wave_at(b, b->now.theta, i, y0 - way * BEHIND);
    const double hi = spx_pf_wave_at(b, b->now.theta, i, y1 + way * BEHIND);
    double c0, c1;
    to->valid_min = fmax(to->valid_min, lo);
    to->valid_max = fmin(to->valid_max, hi);
    spx_pf_place(b, b->now.theta, i, to->valid_min, &x, &c0);
    spx_pf_place(b, b->now.theta, i, to->valid_max, &x, &c1);
    const double beyond = fmax(fmin(c0, c1), 0) + fmax((double)p->height - fmax(c0, c1), 0);
    if (beyond > 0.05 * (double)p->height)
        to->status |= SPX_PSF_RANGE;
}

/* Pixels near each fibre in each part of the rows: to[nparts][nf][2] of an exposure (spx_pf_look). */
static void look_at_parts(const spx_pf_bundle *b, size_t x, double *to)
{
    const spx_pf_plan *p = b->p;
    const spx_pf_pixels *px = &b->px[x];
    const double *light = b->now.light + x * p->height * b->width;
    for (size_t r = 0; r < spx_pf_nparts(p->height) * SPX_PF_PART; r++)
        for (size_t i = 0; i < b->nf; i++) {
            const long middle = px->at[r * b->nf + i] + p->hx;
            double *sum = to + (r / SPX_PF_PART * b->nf + i) * 2;
            for (long c = middle - (long)SPX_PF_NEAR; c <= middle + (long)SPX_PF_NEAR; c++) {
                const size_t k = r * b->width + (size_t)c;
                if (c < 0 || c >= (long)b->width || !(px->root[k] > 0))
                    continue;
                const double t = px->goal[k] - px->root[k] * light[k];
                sum[0] += t * t;
                sum[1]++;
            }
        }
}

static size_t cells_of(const spx_pf_bundle *b)
{
    return (size_t)(SPX_PF_PHASES * SPX_PF_PHASES * b->p->nx * b->p->ny);
}

/* Whether the middle of a spot is saturated: its wings alone were fitted, and are fitted better by functions that its
 * core would not allow. */
static int is_saturated(const spx_pf_bundle *b, size_t x, size_t s)
{
    const spx_pf_at *at = &b->now.at[s];
    return spx_psffit_spot_saturated(&b->p->image[x], (long)b->x0 + at->xc + b->p->hx, at->yc + b->p->hy);
}

/* Looks at the residuals of the spots of a bundle with S/N above BRIGHT that are not saturated, and, where `all` is
 * not 0, at all its pixels, by the CPU or a device; freed with spx_free(to->cell). *ok 0: a device has failed. SPX_EIO:
 * memory. */
static spx_status look(spx_pf_bundle *b, const double *variance, int all, spx_pf_look *to, int *ok, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    const size_t near = all ? 4 * b->nf : 0, part = all ? 2 * p->nexp * spx_pf_nparts(p->height) * b->nf : 0;
    const size_t cell = SPX_PF_CELL * cells_of(b), offset = SPX_PF_OFFSET * b->nspot, per = b->nl * b->nf;
    int *bright = spx_alloc(b->nspot + 1, sizeof *bright, e);
    *to = (spx_pf_look){.cell = spx_alloc(cell + offset + near + part, sizeof *to->cell, e)};
    if (bright == NULL || to->cell == NULL) {
        spx_free(bright);
        return SPX_EIO;
    }
    to->offset = to->cell + cell;
    if (all) {
        to->near = to->offset + offset;
        to->part = to->near + near;
    }
    for (size_t s = 0; s < b->nspot; s++)
        bright[s] = variance[s] > 0 && b->now.flux[s] > BRIGHT * sqrt(variance[s]) && !is_saturated(b, s / per, s);
    const int here = b->there == NULL;
    if (!here)
        *ok = p->device->look(b, bright, to);
    for (size_t s = 0; s < b->nspot && here; s++)
        if (bright[s])
            spx_pf_look_at_spot(b, s / per, s, to->offset + SPX_PF_OFFSET * s, to->cell);
    for (size_t i = 0; i < b->nf && here && all; i++)
        look_near(b, i, to->near + 4 * i);
    for (size_t x = 0; x < p->nexp && here && all; x++) {
        look_at_parts(b, x, to->part + 2 * x * spx_pf_nparts(p->height) * b->nf);
        for (size_t k = 0; k < p->height * b->width; k++)
            to->nreject += b->px[x].rejected[k];
    }
    spx_free(bright);
    return SPX_OK;
}

/* Largest chi squared a pixel near a fibre in a part of the rows, of all exposures: a continuum with an edge that no
 * B-spline follows, saturated lines and the like move spots there, and are little of the whole. */
static double worst_part(const spx_pf_bundle *b, const spx_pf_look *seen, size_t i)
{
    double worst = 0;
    for (size_t k = 0; k < b->p->nexp * spx_pf_nparts(b->p->height); k++) {
        const double *part = seen->part + 2 * (k * b->nf + i);
        worst = part[1] > SPX_PF_PART ? fmax(worst, part[0] / part[1]) : worst;
    }
    return worst;
}

static void put_fibre(const spx_pf_bundle *b, size_t i, const double *variance, const spx_pf_look *seen, double off,
                      size_t number, double *some, spx_psffit *fit)
{
    const spx_pf_plan *p = b->p;
    spx_psffit_fibre *to = &fit->fibre[b->fibre0 + i];
    const double *near = seen->near + 4 * i;
    double first = INFINITY, last = -INFINITY;
    size_t n = 0, lines = 0;
    *to = (spx_psffit_fibre){.fibre = (int32_t)(b->fibre0 + i),
                             .bundle = (int32_t)number,
                             .chi2 = near[1] > 0 ? near[0] / near[1] : 0,
                             .npix = (int64_t)near[1]};
    for (size_t l = 0; l < b->nl; l++) {
        double best = 0;
        for (size_t x = 0; x < p->nexp; x++) {
            const size_t s = (x * b->nl + l) * b->nf + i, k = (x * fit->nspec + b->fibre0 + i) * fit->nline;
            if (b->now.at[s].y0 == b->now.at[s].y1 || !(variance[s] > 0))
                continue;
            fit->flux[k + b->line[l].row] = b->now.flux[s];
            fit->flux_ivar[k + b->line[l].row] = 1 / variance[s];
            best = fmax(best, b->now.flux[s] / sqrt(variance[s]));
        }
        if (best > GOOD && !b->line[l].free) {
            first = fmin(first, b->line[l].wave);
            last = fmax(last, b->line[l].wave);
            some[n++] = best;
            lines++;
        }
    }
    to->nline = (int32_t)lines;
    to->flux_sn = spx_median(some, n);
    if (lines < FEWEST)
        to->status |= SPX_PSF_DEAD;
    else if (lines < 2 * (size_t)p->ntr)
        to->status |= SPX_PSF_FEWLINES;
    if (!(near[3] > 0) || near[2] > 0.5 * near[3])
        to->status |= SPX_PSF_MASKED;
    if (worst_part(b, seen, i) > WORST || off > SPX_PSFFIT_OFF)
        to->status |= SPX_PSF_BADFIT;
    find_range(b, i, first, last, to);
}

/* Fibres whose middle is further than 5 pixels from the cubic of the bundle. */
static void find_moved(const spx_pf_bundle *b, spx_psffit *fit)
{
    const size_t nt = 2 * (size_t)b->p->ntr;
    for (size_t i = 0; i < b->nf; i++) {
        double off[2] = {0, 0};
        for (int y = 0; y < 2; y++)
            for (size_t k = 0; k < b->nf; k++)
                off[y] += b->prior[i * b->nf + k] * b->now.theta[k * nt + (size_t)(y * b->p->ntr)];
        if (fabs(off[0]) > 5 || fabs(off[1]) > 5)
            fit->fibre[b->fibre0 + i].status |= SPX_PSF_MOVED;
    }
}

/* Fibres without light have the trace that the prior gives them: with Q = projection off cubics along the fibres, d
 * dead and l living ones, Q_dd theta_d = -Q_dl theta_l for each coefficient. Where fibres scatter about the cubic by
 * sigma, such a trace is off by sigma times lever[nf], the root of the diagonal of Q_dd^-1; 0: a living fibre. */
static int neighbours_traces(spx_pf_bundle *b, double *lever, spx_psffit *fit, spx_psf *psf)
{
    const size_t nf = b->nf, nt = 2 * (size_t)b->p->ntr;
    size_t n = 0;
    for (size_t i = 0; i < nf; i++) {
        lever[i] = 0;
        n += (fit->fibre[b->fibre0 + i].status & SPX_PSF_DEAD) != 0;
    }
    if (n == 0 || n == nf)
        return 1;
    double *a = spx_alloc(n * n + n * nt, sizeof *a, NULL);
    size_t *dead = spx_alloc(n, sizeof *dead, NULL);
    int ok = a != NULL && dead != NULL;
    if (ok) {
        double *rhs = a + n * n;
        n = 0;
        for (size_t i = 0; i < nf; i++)
            if (fit->fibre[b->fibre0 + i].status & SPX_PSF_DEAD)
                dead[n++] = i;
        for (size_t k = 0; k < n; k++) {
            for (size_t l = 0; l < n; l++)
                a[k * n + l] = b->prior[dead[k] * nf + dead[l]] + (k == l ? 1e-9 : 0);
            for (size_t j = 0; j < nf; j++)
                for (size_t t = 0; t < nt && !(fit->fibre[b->fibre0 + j].status & SPX_PSF_DEAD); t++)
                    rhs[t * n + k] -= b->prior[dead[k] * nf + j] * b->now.theta[j * nt + t];
        }
        ok = LAPACKE_dposv(LAPACK_COL_MAJOR, 'L', (lapack_int)n, (lapack_int)nt, a, (lapack_int)n, rhs,
                           (lapack_int)n) == 0 &&
             LAPACKE_dpotri_work(LAPACK_COL_MAJOR, 'L', (lapack_int)n, a, (lapack_int)n) == 0;
        for (size_t k = 0; k < n && ok; k++) {
            for (size_t t = 0; t < nt; t++)
                b->now.theta[dead[k] * nt + t] = rhs[t * n + k];
            lever[dead[k]] = sqrt(a[k * (n + 1)]);
        }
        if (ok)
            put_psf(b, b->now.theta, psf);
        for (size_t k = 0; k < n && ok; k++)
            find_range(b, dead[k], INFINITY, -INFINITY, &fit->fibre[b->fibre0 + dead[k]]);
    }
    spx_free(a);
    spx_free(dead);
    return ok;
}

/* Scatter of the fibres' places about the cubic at a wavelength, *x and *y, from v'Q v of those that live; the others
 * lie on what the prior says and add nothing. A place that is told by few has Student's distribution, whose variance is
 * larger by dof / (dof - 2). 0 where there are too few. place[2 nf]: room. */
static void scatter(const spx_pf_bundle *b, const double *lever, double wave, double *place, double *x, double *y)
{
    const size_t nf = b->nf;
    double sum[2] = {0, 0}, dof = -4;
    for (size_t i = 0; i < nf; i++) {
        spx_pf_place(b, b->now.theta, i, wave, &place[2 * i], &place[2 * i + 1]);
        dof += !(lever[i] > 0);
    }
    for (size_t i = 0; i < nf; i++)
        for (size_t k = 0; k < nf; k++)
            for (int q = 0; q < 2; q++)
                sum[q] += place[2 * i + (size_t)q] * b->prior[i * nf + k] * place[2 * k + (size_t)q];
    *x = dof > 0 ? sqrt(fmax(0, sum[0]) / fmax(dof - 2, 1)) : 0;
    *y = dof > 0 ? sqrt(fmax(0, sum[1]) / fmax(dof - 2, 1)) : 0;
}

/* Errors of the places of spots: of living fibres from the covariance and from what their lines are off by beyond it,
 * misfit[nf][2][nplace]; of dead ones from the scatter of the others. */
static spx_status put_errors(const spx_pf_bundle *b, const double *cov, const double *misfit, const double *lever,
                             double *a, const spx_psf *psf, spx_psffit *fit, spx_err *e)
{
    double *error = spx_alloc2(2 * b->nf, fit->nplace, sizeof *error, e);
    spx_status st =
        error != NULL ? find_errors(b, cov, fit->fibre + b->fibre0, fit->nplace, fit->place, error, e) : SPX_EIO;
    for (size_t i = 0; i < b->nf && st == SPX_OK; i++) {
        const spx_psffit_fibre *to = &fit->fibre[b->fibre0 + i];
        const int dead = (to->status & SPX_PSF_DEAD) != 0;
        for (size_t k = 0; k < fit->nplace; k++) {
            const size_t out = (b->fibre0 + i) * fit->nplace + k;
            const double wave = fit->place[k];
            if (wave < to->valid_min || wave > to->valid_max)
                continue;
            if (lever[i] > 0) {
                scatter(b, lever, wave, a, &fit->x_error[out], &fit->y_error[out]);
                fit->x_error[out] *= lever[i];
                fit->y_error[out] *= lever[i];
            } else if (!dead) {
                fit->x_error[out] = error[2 * i * fit->nplace + k];
                fit->y_error[out] = error[(2 * i + 1) * fit->nplace + k];
            }
        }
        if (!dead)
            spx_psffit_add_misfit(psf, fit, b->fibre0 + i, misfit + 2 * i * fit->nplace);
        spx_psffit_sum_errors(psf, fit, b->fibre0 + i);
    }
    spx_free(error);
    return st;
}

/* ---- motion ---- */

/* Step after which the next one would change nothing that is told, pixels. */
#define SMALL_STEP 1e-4

/* Divides n pixels, and those of more[2][n] where there are any, by the sum of the former. 0: that is not positive. */
static int normalise(size_t n, double *pixel, double *const more[2])
{
    double sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += pixel[k];
    const double scale = 1 / sum;
    for (size_t k = 0; k < n; k++) {
        pixel[k] *= scale;
        for (int q = 0; q < 2 && more != NULL; q++)
            more[q][k] *= scale;
    }
    return sum > 0 && isfinite(scale);
}

/* Spots of the start, of any kind, in the window of those of a bundle. plain: a plan whose series are those of the
 * start where it has Gauss-Hermite functions alone, and deg -1 where not. work: for spx_psf_spot_pixels(). */
typedef struct {
    spx_psf psf;
    spx_pf_plan plain;
    double *work;
} start_spots;

/* Shape of the start at (fibre, wave), where it is of functions alone. */
static void start_shape(const start_spots *s, size_t f, double wave, spx_pf_at *shape, double *c)
{
    if (s->plain.deg >= 0)
        spx_pf_shape_start(&s->plain, f, wave, &shape->sigx, &shape->sigy, c);
}

/* Pixels of the start's spot, whose place is *at, of that shape. 0: there is none. */
static int start_pixels(const start_spots *s, size_t f, double wave, const spx_spot *at, const spx_pf_at *shape,
                        const double *c, const spot_room *room, double *pixel)
{
    const spx_pf_plan *p = &s->plain;
    const spx_pf_kernels *kernels = spx_pf_kernels_find();
    if (p->deg < 0)
        return spx_psf_spot_pixels(&s->psf, f, wave, at, s->work, pixel) == SPX_SPOT_OK;
    if (!(shape->sigx > 0 && shape->sigy > 0))
        return 0;
    kernels->hermite(p->deg, p->nx, at->dx, shape->sigx, room->gx);
    kernels->hermite(p->deg, p->ny, at->dy, shape->sigy, room->gy);
    kernels->spot(p, room->gx, room->gy, c, pixel);
    return normalise((size_t)(p->nx * p->ny), pixel, NULL);
}

/* How far the spot of fibre i of the bundle has moved since the start: by d[2], after which the difference of both has
 * nothing along the derivatives by place and flux. Traces alone do not tell, as GH-1-0 moves a spot, too. Gauss-Newton
 * steps. now, then: room for spots of either. 0: no spot. */
static int spot_motion(const spx_pf_bundle *b, const start_spots *start, size_t i, double wave, const spot_room *now,
                       const spot_room *then, double d[2])
{
    const size_t npix = (size_t)(b->p->nx * b->p->ny), f = b->fibre0 + i;
    double c[SPX_PF_MOST_LOCAL], before[SPX_PF_MOST_LOCAL], m[9] = {0};
    spx_pf_at at, shape = {0};
    spx_spot from;
    spot_of(b, i, wave, c, now, &at);
    if (!normalise(npix, now->spot, now->by) || spx_psf_spot_place(&start->psf, f, wave, &from) != SPX_SPOT_OK)
        return 0;
    start_shape(start, f, wave, &shape, before);
    const double *column[] = {now->by[0], now->by[1], now->spot};
    for (size_t k = 0; k < npix; k++)
        for (size_t q = 0; q < 3; q++)
            for (size_t j = 0; j < 3; j++)
                m[q * 3 + j] += column[q][k] * column[j][k];
    if (!spx_small_factor(3, m))
        return 0;
    d[0] = at.x - from.x;
    d[1] = at.y - from.y;
    for (int step = 0; step < 3; step++) {
        double r[3] = {0};
        spx_spot moved = from; /* the start's spot, where it lies now, in the window of the new one */
        moved.x += d[0];
        moved.y += d[1];
        moved.dx = moved.x - floor(at.x + 0.5);
        moved.dy = moved.y - floor(at.y + 0.5);
        if (!start_pixels(start, f, wave, &moved, &shape, before, then, then->spot))
            return 0;
        for (size_t k = 0; k < npix; k++)
            for (size_t q = 0; q < 3; q++)
                r[q] += column[q][k] * (now->spot[k] - then->spot[k]);
        spx_small_solve(3, m, r);
        d[0] += r[0];
        d[1] += r[1];
        if (fabs(r[0]) + fabs(r[1]) < SMALL_STEP)
            break;
    }
    return isfinite(d[0] + d[1]);
}

/* XSHIFT and YSHIFT: medians over lines in the range of each fibre, every second, third ... where a bundle has many:
 * a median of 16 is as good a summary, and spots of the start are slow to make. some[2 nl]: room. */
static spx_status put_motion(const spx_pf_bundle *b, double *some, spx_psffit *fit, spx_err *e)
{
    enum { ENOUGH = 16 };
    const spx_pf_plan *p = b->p;
    const size_t step = b->nl / ENOUGH + 1;
    start_spots start = {.psf = *p->start, .plain = *p};
    start.psf.hsizex = p->hx;
    start.psf.hsizey = p->hy;
    start.plain.deg = start.psf.ghdegx > start.psf.ghdegy ? start.psf.ghdegx : start.psf.ghdegy;
    if (!spx_psf_plain_spots(&start.psf) || start.plain.deg > SPX_PF_MOST_HERMITE)
        start.plain.deg = -1;
    start.plain.nc = (start.plain.deg + 1) * (start.plain.deg + 1);
    start.plain.norder = start.plain.deg + 3;
    spot_room now = {0}, then = {0};
    spx_status st = room_new(p, &now, e);
    if (st == SPX_OK)
        st = room_new(start.plain.deg > p->deg ? &start.plain : p, &then, e);
    if (st == SPX_OK && (start.work = spx_alloc(spx_psf_spot_work(&start.psf), sizeof *start.work, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < b->nf && st == SPX_OK; i++) {
        spx_psffit_fibre *to = &fit->fibre[b->fibre0 + i];
        size_t n = 0;
        double d[2];
        for (size_t l = step / 2; l < b->nl; l += step) {
            const double wave = b->line[l].wave;
            if (wave < to->valid_min || wave > to->valid_max || !spot_motion(b, &start, i, wave, &now, &then, d))
                continue;
            some[n] = d[0];
            some[b->nl + n++] = d[1];
        }
        to->x_shift = spx_median(some, n) + p->moved[0];
        to->y_shift = spx_median(some + b->nl, n) + p->moved[1];
    }
    spx_free(now.gx);
    spx_free(then.gx);
    spx_free(start.work);
    return st;
}

/* Model and (data - model) / error of a bundle. *ok 0: a device has failed. SPX_EIO: memory. */
static spx_status put_model(spx_pf_bundle *b, spx_psffit *fit, int *ok, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    if (b->there != NULL) {
        b->now.light = spx_alloc2(p->nexp * p->height, b->width, sizeof *b->now.light, e);
        int have = b->now.light != NULL;
        for (size_t x = 0; x < p->nexp && have; x++) {
            spx_pf_pixels *px = &b->px[x];
            have = (px->ground = spx_alloc2(p->height, b->width, sizeof *px->ground, e)) != NULL &&
                   (px->data != NULL || ((px->data = spx_alloc2(p->height, b->width, sizeof *px->data, e)) != NULL &&
                                         (px->noise = spx_alloc2(p->height, b->width, sizeof *px->noise, e)) != NULL));
        }
        if (!have)
            return SPX_EIO;
        *ok = p->device->take_arrays(b);
    }
    for (size_t x = 0; x < p->nexp && *ok; x++)
        for (size_t r = 0; r < p->height; r++)
            for (size_t c = 0; c < b->width; c++) {
                const size_t k = r * b->width + c, to = (x * p->height + r) * p->columns + b->x0 + c;
                const spx_pf_pixels *px = &b->px[x];
                const double m = px->ground[k] + b->now.light[x * p->height * b->width + k];
                if (!(px->noise[k] > 0))
                    continue;
                fit->model[to] = (float)m;
                fit->chi[to] = (float)((px->data[k] - m) / sqrt(spx_pf_variance(b, x, k, 0)));
            }
    return SPX_OK;
}

/* ---- error of the PSF ---- */

double spx_pf_psf_error(double misfit, const double of[2])
{
    /* below its noise a misfit cannot be told from none */
    return of[1] > 0 ? sqrt(fmax(misfit, sqrt(2 * of[0])) / of[1]) : 0;
}

/* Of the stacked residuals of all bright spots: a pattern that repeats from spot to spot is the PSF's, noise is not. */
static void put_psf_error(const spx_pf_bundle *b, const double *cells, spx_psffit_bundle *to)
{
    to->misfit = to->of[0] = to->of[1] = to->unlike = to->nunlike = to->core = 0;
    for (const double *cell = cells; cell < cells + SPX_PF_CELL * cells_of(b); cell += SPX_PF_CELL) {
        if (cell[1] > 0) {
            to->misfit += cell[0] * cell[0] / cell[1] - 1;
            to->of[0]++;
            to->of[1] += cell[2] * cell[2] / cell[1];
        }
        to->core += cell[5];
        if (cell[4] > 0) {
            to->unlike += cell[3] * cell[3] / cell[4] - 1;
            to->nunlike++;
        }
    }
    to->psf_error = spx_pf_psf_error(to->misfit, to->of);
}

spx_status spx_pf_misfit(spx_pf_bundle *b, spx_psffit_bundle *to, int *ok, spx_err *e)
{
    double *variance = spx_alloc(b->nspot + 1, sizeof *variance, e);
    spx_pf_look seen = {0};
    if (variance == NULL)
        return SPX_EIO;
    *ok = spx_pf_flux_variance(b, variance);
    const spx_status st = *ok ? look(b, variance, 0, &seen, ok, e) : SPX_OK;
    if (st == SPX_OK && *ok)
        put_psf_error(b, seen.cell, to);
    spx_free(seen.cell);
    spx_free(variance);
    return st;
}

spx_status spx_pf_places_off(spx_pf_bundle *b, double *off, int *ok, spx_err *e)
{
    spx_psffit_bundle of = {0};
    const spx_status st = spx_pf_misfit(b, &of, ok, e);
    const double n = of.of[0], shape = of.nunlike > 0 ? of.unlike / of.nunlike : 0;
    *off = n > 0 ? fmax(0, of.misfit / n - shape - SURE * sqrt(2 / n)) : 0;
    return st;
}

spx_status spx_pf_finish(spx_pf_bundle *b, const spx_pf_run *run, size_t number, double *shift, spx_psf *psf,
                         spx_psffit *fit, spx_err *e)
{
    const spx_pf_plan *p = b->p;
    const double *cov = b->covariance;
    double *variance = spx_alloc(b->nspot + 1, sizeof *variance, e);
    double *a = spx_alloc(b->ntheta + 2 * b->nl, sizeof *a, e), *lever = spx_alloc(b->nf, sizeof *lever, e);
    double *misfit = spx_alloc(b->nf * (2 * fit->nplace + 1), sizeof *misfit, e);
    spx_status st = variance != NULL && a != NULL && lever != NULL && misfit != NULL ? SPX_OK : SPX_EIO;
    spx_pf_look seen = {0};
    int ok = 1;
    if (st == SPX_OK)
        ok = spx_pf_flux_variance(b, variance);
    if (st == SPX_OK && ok)
        st = look(b, variance, 1, &seen, &ok, e);
    double *most = misfit + 2 * b->nf * fit->nplace;
    if (st == SPX_OK && ok)
        st = spx_pf_misplaced(b, seen.offset, fit->nplace, fit->place, misfit, most, e);
    if (st == SPX_OK && ok) {
        put_psf(b, b->now.theta, psf);
        if (cov != NULL)
            st = put_covariance(b, cov, number, fit, e);
        for (size_t i = 0; i < b->nf; i++)
            put_fibre(b, i, variance, &seen, most[i], number, a, fit);
        ok = neighbours_traces(b, lever, fit, psf);
        find_moved(b, fit);
        if (st == SPX_OK && cov != NULL)
            st = put_errors(b, cov, misfit, lever, a, psf, fit, e);
        if (st == SPX_OK && cov != NULL)
            st = put_motion(b, a, fit, e);
        if (st == SPX_OK && fit->model != NULL)
            st = put_model(b, fit, &ok, e);
        spx_psffit_bundle *to = &fit->bundle[number];
        *to = (spx_psffit_bundle){.fibre0 = (int32_t)b->fibre0,
                                  .nfibre = (int32_t)b->nf,
                                  .niter = run->niter,
                                  .converged = run->converged,
                                  .seconds = run->seconds};
        size_t alive = 0;
        for (size_t i = 0; i < b->nf; i++) {
            spx_psffit_fibre *f = &fit->fibre[b->fibre0 + i];
            alive += !(f->status & SPX_PSF_DEAD);
            f->status |= run->converged ? 0 : SPX_PSF_NOTCONVERGED;
            to->chi2 += f->chi2 * (double)f->npix;
            to->npix += f->npix;
        }
        to->chi2 = to->npix > 0 ? to->chi2 / (double)to->npix : 0;
        to->nreject = (int64_t)seen.nreject;
        to->alive = (int32_t)alive;
        put_psf_error(b, seen.cell, to);
        for (size_t i = 0; i < b->nf && to->psf_error > OTHER_SPOTS && to->misfit > SURE * sqrt(2 * to->of[0]); i++)
            fit->fibre[b->fibre0 + i].status |= SPX_PSF_BADFIT;
    }
    for (size_t k = 0; k < p->nshift && ok && cov != NULL && st == SPX_OK; k++) {
        shift[2 * k] = b->now.theta[b->shift0 + k];
        shift[2 * k + 1] = cov[(b->shift0 + k) * (b->ntheta + 1)];
    }
    fit->bundle[number].fitted = ok;
    spx_free(seen.cell);
    spx_free(variance);
    spx_free(a);
    spx_free(lever);
    spx_free(misfit);
    return st;
}
