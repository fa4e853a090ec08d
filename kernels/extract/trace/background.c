/* Fits the background of an image (extract/trace/background.h). */
#include "extract/trace/background.h"

#include <lapacke.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/mem.h"
#include "calib/series.h"
#include "num/blas.h"

/* Second differences of the coefficients are held at 0 with this fraction of their mean information: where no pixel
 * tells, the background goes on as a straight line. */
#define HOLD 1e-6
/* Errors from the model beyond which a pixel is left out: hits, and stars that the PSF does not fit. */
#define CLIP 6.0
/* Conjugate gradients end where what is left would change chi^2 by this for each unknown: 0.01 of its error. */
#define ENOUGH 1e-4
/* Electrons that the directions are scaled to, so that the tolerance of fluxes, in their errors, is small beside them.
 */
#define SCALE 1e4

enum {
    BLOCK = 16, /* pixels of the sums of the preconditioner */
    STEPS = 12  /* of conjugate gradients at most */
};

struct spx_background {
    size_t ny, nx;
    spx_bspline along, across; /* in rows, in columns */
    size_t n;                  /* unknowns */
    double *c;                 /* [along.n][across.n] */
    double *chol;              /* [n][n] Cholesky factor of the preconditioner, lower */
    double hold;               /* weight of the second differences */
    float *weight;             /* [ny][nx] of the pixels in use */
    float *taken;              /* [ny][nx] P 1, of the weights that the bundles have */
    float *rest;               /* [ny][nx] image - far - A f */
    float *step;               /* [ny][nx] B d - A f_d of a direction d */
    double *row;               /* [ny][across.n] */
    double *vectors;           /* [4][n] */
    double **flux;             /* [nbundle][nbin][nl] */
    size_t nbundle;
    int known; /* P 1 is */
};

spx_status spx_background_make(size_t ny, size_t nx, double cell, spx_background **out, spx_err *e)
{
    spx_background *bg = *out = spx_alloc(1, sizeof *bg, e);
    if (!bg)
        return SPX_EIO;
    bg->ny = ny;
    bg->nx = nx;
    bg->along = spx_bspline_of(0, (double)ny - 1, cell);
    bg->across = spx_bspline_of(0, (double)nx - 1, cell);
    bg->n = bg->along.n * bg->across.n;
    if (bg->n > SPX_BACKGROUND_MOST)
        return spx_fail_remedy(e, SPX_EUSAGE, "give a larger {background}",
                               "a background in cells of %g pixels has %zu unknowns, of at most %d", cell, bg->n,
                               (int)SPX_BACKGROUND_MOST);
    return (bg->c = spx_alloc(bg->n, sizeof *bg->c, e)) && (bg->chol = spx_alloc2(bg->n, bg->n, sizeof *bg->chol, e)) &&
                   (bg->weight = spx_alloc2(ny, nx, sizeof *bg->weight, e)) &&
                   (bg->taken = spx_alloc2(ny, nx, sizeof *bg->taken, e)) &&
                   (bg->rest = spx_alloc2(ny, nx, sizeof *bg->rest, e)) &&
                   (bg->step = spx_alloc2(ny, nx, sizeof *bg->step, e)) &&
                   (bg->row = spx_alloc2(ny, bg->across.n, sizeof *bg->row, e)) &&
                   (bg->vectors = spx_alloc2(4, bg->n, sizeof *bg->vectors, e))
               ? SPX_OK
               : SPX_EIO;
}

void spx_background_free(spx_background *bg)
{
    if (bg == NULL)
        return;
    for (size_t i = 0; i < bg->nbundle; i++)
        spx_free(bg->flux[i]);
    spx_free(bg->flux);
    spx_free(bg->c);
    spx_free(bg->chol);
    spx_free(bg->weight);
    spx_free(bg->taken);
    spx_free(bg->rest);
    spx_free(bg->step);
    spx_free(bg->row);
    spx_free(bg->vectors);
    spx_free(bg);
}

/* ---- the splines ---- */

double spx_background_at(const spx_background *bg, double x, double y)
{
    double by[4], bx[4], sum = 0.0;
    const size_t j = spx_bspline_at(&bg->along, fmin(fmax(y, 0.0), (double)bg->ny - 1), by),
                 i = spx_bspline_at(&bg->across, fmin(fmax(x, 0.0), (double)bg->nx - 1), bx);
    for (size_t a = 0; a < 4; a++)
        for (size_t b = 0; b < 4; b++)
            sum += by[a] * bx[b] * bg->c[(j + a) * bg->across.n + i + b];
    return sum;
}

/* image += factor B c. */
static void add_splines(const spx_background *bg, const double *c, double factor, int nthreads, float *image)
{
#pragma omp parallel for num_threads(nthreads)
    for (size_t y = 0; y < bg->ny; y++) {
        double by[4], bx[4];
        const size_t n = bg->across.n, j = spx_bspline_at(&bg->along, (double)y, by);
        double *line = bg->row + y * n;
        for (size_t i = 0; i < n; i++)
            line[i] = factor * (by[0] * c[j * n + i] + by[1] * c[(j + 1) * n + i] + by[2] * c[(j + 2) * n + i] +
                                by[3] * c[(j + 3) * n + i]);
        for (size_t x = 0; x < bg->nx; x++) {
            const double *v = line + spx_bspline_at(&bg->across, (double)x, bx);
            image[y * bg->nx + x] += (float)(bx[0] * v[0] + bx[1] * v[1] + bx[2] * v[2] + bx[3] * v[3]);
        }
    }
}

void spx_background_add(const spx_background *bg, int nthreads, float *far)
{
    add_splines(bg, bg->c, 1.0, nthreads, far);
}

/* g[n] = B^T W image. */
static void gather(const spx_background *bg, const float *image, int nthreads, double *g)
{
    const size_t n = bg->across.n;
#pragma omp parallel for num_threads(nthreads)
    for (size_t y = 0; y < bg->ny; y++) {
        double bx[4], *line = bg->row + y * n;
        memset(line, 0, n * sizeof *line);
        for (size_t x = 0; x < bg->nx; x++) {
            const double w = (double)bg->weight[y * bg->nx + x];
            if (w > 0.0) {
                double *to = line + spx_bspline_at(&bg->across, (double)x, bx);
                for (size_t i = 0; i < 4; i++)
                    to[i] += w * (double)image[y * bg->nx + x] * bx[i];
            }
        }
    }
    memset(g, 0, bg->n * sizeof *g);
    for (size_t y = 0; y < bg->ny; y++) {
        double by[4];
        const size_t j = spx_bspline_at(&bg->along, (double)y, by);
        for (size_t a = 0; a < 4; a++)
            for (size_t i = 0; i < n; i++)
                g[(j + a) * n + i] += by[a] * bg->row[y * n + i];
    }
}

/* Adds hold times the normal matrix of second differences along rows and columns, times v, to to[n]. */
static void add_hold(const spx_background *bg, const double *v, double *to)
{
    const size_t ny = bg->along.n, nx = bg->across.n;
    for (size_t j = 0; j < ny; j++)
        for (size_t i = 0; i < nx; i++)
            for (int way = 0; way < 2; way++) {
                const size_t next = way == 0 ? 1 : nx, k = j * nx + i;
                if (way == 0 ? i + 2 >= nx : j + 2 >= ny)
                    continue;
                const double bend = bg->hold * (v[k] - 2 * v[k + next] + v[k + 2 * next]);
                to[k] += bend;
                to[k + next] -= 2 * bend;
                to[k + 2 * next] += bend;
            }
}

/* The preconditioner of the weights as they are, factored. */
static spx_status make_preconditioner(spx_background *bg, spx_err *e)
{
    const size_t n = bg->n, nx = bg->across.n;
    memset(bg->chol, 0, n * n * sizeof *bg->chol);
    for (size_t y0 = 0; y0 < bg->ny; y0 += BLOCK)
        for (size_t x0 = 0; x0 < bg->nx; x0 += BLOCK) {
            const size_t y1 = y0 + BLOCK < bg->ny ? y0 + BLOCK : bg->ny, x1 = x0 + BLOCK < bg->nx ? x0 + BLOCK : bg->nx;
            double by[4], bx[4], all = 0.0, left = 0.0;
            for (size_t y = y0; y < y1; y++)
                for (size_t x = x0; x < x1; x++) {
                    const double w = (double)bg->weight[y * bg->nx + x];
                    all += w;
                    left += w * (1.0 - (double)bg->taken[y * bg->nx + x]);
                }
            if (!(all > 0.0))
                continue;
            const size_t j = spx_bspline_at(&bg->along, 0.5 * (double)(y0 + y1 - 1), by),
                         i = spx_bspline_at(&bg->across, 0.5 * (double)(x0 + x1 - 1), bx);
            for (size_t a = 0; a < 16; a++)
                for (size_t b = 0; b < 16; b++)
                    bg->chol[((j + a / 4) * nx + i + a % 4) * n + (j + b / 4) * nx + i + b % 4] +=
                        fmax(left, 0.02 * all) * by[a / 4] * bx[a % 4] * by[b / 4] * bx[b % 4];
        }
    double sum = 0.0, *unit = bg->vectors, *column = unit + n;
    for (size_t k = 0; k < n; k++)
        sum += bg->chol[k * n + k];
    if (!(sum > 0.0))
        return spx_fail_remedy(e, SPX_EINPUT, "leave {background} out, or extract more wavelengths",
                               "no pixel of the image tells of a background: all are masked, or belong to light of "
                               "other wavelengths");
    bg->hold = HOLD * sum / (double)n;
    for (size_t k = 0; k < n; k++) {
        memset(unit, 0, 2 * n * sizeof *unit);
        unit[k] = 1.0;
        add_hold(bg, unit, column);
        for (size_t i = 0; i < n; i++)
            bg->chol[i * n + k] += column[i];
        bg->chol[k * n + k] *= 1.0 + 1e-12;
    }
    return LAPACKE_dpotrf(LAPACK_COL_MAJOR, 'L', (lapack_int)n, bg->chol, (lapack_int)n) == 0
               ? SPX_OK
               : spx_fail(e, SPX_EBUG, "the background's equations are not positive definite");
}

/* ---- pixels ---- */

/* Rows of a bundle between its first and last spots of all fibres that have some, *from and one past the last, and its
 * columns in each row, left[ny], right[ny]. 0: it has none. */
static int extent(const spx_trace_plan *p, const spx_trace_bundle *b, long *from, long *to, long *left, long *right)
{
    const long ny = (long)p->job->image->ny;
    int any = 0;
    *from = b->y0;
    *to = b->y1;
    for (long y = 0; y < ny; y++) {
        left[y] = (long)p->job->image->nx;
        right[y] = 0;
    }
    for (size_t f = 0; f < b->nf; f++) {
        long first = ny, last = -1; /* corners */
        for (size_t k = 0; k < p->nbin; k++) {
            const spx_bin_geometry *at = &b->at[k * b->nf + f];
            if (b->state[k * b->nf + f] != SPX_TRACE_SPOT)
                continue;
            first = at->yc < first ? at->yc : first;
            last = at->yc > last ? at->yc : last;
            for (long y = at->yc > 0 ? at->yc : 0; y < at->yc + p->ny && y < ny; y++) {
                left[y] = at->xc < left[y] ? at->xc : left[y];
                right[y] = at->xc + p->nx > right[y] ? at->xc + p->nx : right[y];
            }
        }
        if (last < 0)
            continue;
        any = 1;
        *from = first > 0 && first + p->ny > *from ? first + p->ny : *from; /* a trace may begin beyond the CCD */
        *to = last + p->ny < ny && last < *to ? last : *to;
    }
    return any && *from < *to;
}

/* Weights of the pixels whose light the bundles and the background are: 0 elsewhere, and beside bundles that have spots
 * of wavelengths in a row which are not extracted. */
static spx_status choose_pixels(spx_background *bg, const spx_trace_all *all, spx_err *e)
{
    const size_t ny = bg->ny, nx = bg->nx;
    const spx_extract_job *job = all->p->job;
    long *columns = spx_alloc2(2 * all->nbundle, ny, sizeof *columns, e), *rows = NULL;
    if (columns)
        rows = spx_alloc2(2, all->nbundle, sizeof *rows, e);
    if (!rows) {
        spx_free(columns);
        return SPX_EIO;
    }
    memset(bg->weight, 0, ny * nx * sizeof *bg->weight);
    for (size_t i = 0; i < all->nbundle; i++) {
        long *to = rows + 2 * i;
        if (!all->any[i] || !all->solved[i] ||
            !extent(all->p, &all->b[i], to, to + 1, columns + 2 * i * ny, columns + (2 * i + 1) * ny))
            to[0] = to[1] = -1;
    }
    for (size_t i = 0; i < all->nbundle; i++) {
        long from = rows[2 * i], to = rows[2 * i + 1];
        if (from == to)
            continue;
        for (size_t j = i > 0 ? i - 1 : 0; j <= i + 1 && j < all->nbundle; j++)
            if (rows[2 * j] != rows[2 * j + 1]) {
                from = rows[2 * j] > from ? rows[2 * j] : from;
                to = rows[2 * j + 1] < to ? rows[2 * j + 1] : to;
            }
        for (long y = from; y < to; y++) {
            const long left = columns[2 * i * ny + (size_t)y] - SPX_BACKGROUND_GAP,
                       right = columns[(2 * i + 1) * ny + (size_t)y] + SPX_BACKGROUND_GAP;
            for (long x = left > 0 ? left : 0; x < right && x < (long)nx; x++) {
                const size_t at = (size_t)y * nx + (size_t)x;
                bg->weight[at] = job->weight != NULL ? job->weight[at] : spx_extract_pixel_weight(job->image, at);
            }
        }
    }
    spx_free(columns);
    spx_free(rows);
    return SPX_OK;
}

/* Pixels that are more than CLIP errors off, with those beside them: returns their number. */
static size_t clip(spx_background *bg, int nthreads)
{
    size_t count = 0;
    for (size_t y = 0; y < bg->ny; y++)
        for (size_t x = 0; x < bg->nx; x++) {
            const size_t at = y * bg->nx + x;
            const double t = (double)bg->rest[at];
            bg->step[at] = bg->weight[at] > 0.0f && t * t * (double)bg->weight[at] > CLIP * CLIP;
        }
#pragma omp parallel for num_threads(nthreads) reduction(+ : count)
    for (size_t y = 0; y < bg->ny; y++)
        for (size_t x = 0; x < bg->nx; x++) {
            const size_t at = y * bg->nx + x;
            const int hit = bg->step[at] > 0.0f || (x > 0 && bg->step[at - 1] > 0.0f) ||
                            (x + 1 < bg->nx && bg->step[at + 1] > 0.0f) || (y > 0 && bg->step[at - bg->nx] > 0.0f) ||
                            (y + 1 < bg->ny && bg->step[at + bg->nx] > 0.0f);
            if (hit && bg->weight[at] > 0.0f) {
                bg->weight[at] = 0.0f;
                count++;
            }
        }
    return count;
}

/* ---- fluxes ---- */

/* Solves all bundles for image, and takes their models off it. */
static spx_status take_models(spx_background *bg, const spx_trace_all *all, int solve, int nthreads, float *image,
                              spx_err *e)
{
    const spx_trace_kernels *kernels = spx_trace_kernels_best();
    int failed = 0;
#pragma omp parallel for schedule(dynamic) num_threads(nthreads) reduction(| : failed)
    for (size_t i = 0; i < all->nbundle; i++) {
        spx_trace_bundle *b = &all->b[i];
        if (!all->any[i] || !all->solved[i])
            continue;
        const long x0 = b->wx0 > 0 ? b->wx0 : 0,
                   x1 = b->wx0 + (long)b->wnx < (long)bg->nx ? b->wx0 + (long)b->wnx : (long)bg->nx;
        for (long y = b->y0; y < b->y1 && solve; y++)
            for (long x = x0; x < x1; x++) {
                const size_t to = (size_t)(y - b->wy0) * b->wnx + (size_t)(x - b->wx0);
                b->data[to] = b->weight[to] > 0.0f ? image[(size_t)y * bg->nx + (size_t)x] : 0.0f;
            }
        if (solve) {
            memset(b->x, 0, all->p->nbin * b->nl * sizeof *b->x);
            failed |= spx_trace_solve_again(all->p, b, &all->r[i], &all->tallies[i], &all->solved[i], NULL) != SPX_OK;
        }
        double *model = spx_trace_workspace_get(&all->r[i], SPX_BUFFER_MODEL, b->wny, b->wnx, NULL);
        if (model == NULL) {
            failed = 1;
            continue;
        }
        memset(model, 0, b->wny * b->wnx * sizeof *model);
        failed |= kernels->render(all->p, b, &all->r[i], b->x, model, NULL) != SPX_OK;
    }
    if (failed)
        return spx_mem_fail(e);
#pragma omp parallel for num_threads(nthreads)
    for (size_t y = 0; y < bg->ny; y++)
        for (size_t i = 0; i < all->nbundle; i++) {
            const spx_trace_bundle *b = &all->b[i];
            if (!all->any[i] || !all->solved[i] || (long)y < b->wy0 || (long)y >= b->wy0 + (long)b->wny)
                continue;
            const double *model = all->r[i].at[SPX_BUFFER_MODEL] + (y - (size_t)b->wy0) * b->wnx;
            for (size_t k = 0; k < b->wnx; k++) {
                const long x = b->wx0 + (long)k;
                if (x >= 0 && x < (long)bg->nx)
                    image[y * bg->nx + (size_t)x] -= (float)model[k];
            }
        }
    return SPX_OK;
}

/* flux -= factor times that of the bundles, or flux = that (factor 0). */
static spx_status keep_flux(spx_background *bg, const spx_trace_all *all, double factor, spx_err *e)
{
    if (bg->flux == NULL && (bg->flux = spx_alloc(all->nbundle, sizeof *bg->flux, e)) == NULL)
        return SPX_EIO;
    bg->nbundle = all->nbundle;
    for (size_t i = 0; i < all->nbundle; i++) {
        const size_t n = all->p->nbin * all->b[i].nl;
        if (!all->any[i] || !all->solved[i])
            continue;
        if (bg->flux[i] == NULL && (bg->flux[i] = spx_alloc(n, sizeof **bg->flux, e)) == NULL)
            return SPX_EIO;
        for (size_t k = 0; k < n; k++)
            bg->flux[i][k] = factor == 0.0 ? all->b[i].x[k] : bg->flux[i][k] - factor * all->b[i].x[k];
    }
    return SPX_OK;
}

static void return_flux(const spx_background *bg, const spx_trace_all *all)
{
    for (size_t i = 0; i < all->nbundle; i++)
        if (all->any[i] && all->solved[i])
            memcpy(all->b[i].x, bg->flux[i], all->p->nbin * all->b[i].nl * sizeof **bg->flux);
}

/* P 1. */
static spx_status find_taken(spx_background *bg, const spx_trace_all *all, int nthreads, spx_err *e)
{
    const size_t npix = bg->ny * bg->nx;
    for (size_t k = 0; k < npix; k++)
        bg->step[k] = (float)SCALE;
    const spx_status st = take_models(bg, all, 1, nthreads, bg->step, e);
    for (size_t k = 0; k < npix; k++)
        bg->taken[k] = 1.0f - bg->step[k] / (float)SCALE;
    bg->known = st == SPX_OK;
    return st;
}

static double dot(size_t n, const double *a, const double *b)
{
    double sum = 0.0;
    for (size_t k = 0; k < n; k++)
        sum += a[k] * b[k];
    return sum;
}

/* Conjugate gradients for the change of c, which is added to change[n]. */
static spx_status iterate(spx_background *bg, const spx_trace_all *all, int nthreads, double *change,
                          spx_extract_counts *counts, spx_err *e)
{
    const size_t n = bg->n, npix = bg->ny * bg->nx;
    double *r = bg->vectors, *z = r + n, *d = z + n, *q = d + n, last = 0.0;
    spx_status st = make_preconditioner(bg, e);
    if (st != SPX_OK)
        return st;
    gather(bg, bg->rest, nthreads, r);
    for (size_t k = 0; k < n; k++) {
        q[k] = 0.0;
        z[k] = bg->c[k] + change[k];
    }
    add_hold(bg, z, q);
    for (size_t k = 0; k < n; k++)
        r[k] -= q[k];
    counts->background_left = INFINITY;
    for (int step = 0; st == SPX_OK; step++) {
        memcpy(z, r, n * sizeof *z);
        (void)LAPACKE_dpotrs(LAPACK_COL_MAJOR, 'L', (lapack_int)n, 1, bg->chol, (lapack_int)n, z, (lapack_int)n);
        const double size = dot(n, r, z);
        counts->background_left = sqrt(fmax(size, 0.0) / (double)n);
        if (!(size > ENOUGH * (double)n) || step == STEPS)
            break;
        for (size_t k = 0; k < n; k++)
            d[k] = z[k] + (step > 0 ? size / last * d[k] : 0.0);
        last = size;
        double most = 0.0;
        for (size_t k = 0; k < n; k++)
            most = fmax(most, fabs(d[k]));
        const double scale = SCALE / most;
        memset(bg->step, 0, npix * sizeof *bg->step);
        add_splines(bg, d, scale, nthreads, bg->step);
        st = take_models(bg, all, 1, nthreads, bg->step, e);
        if (st != SPX_OK)
            break;
        gather(bg, bg->step, nthreads, q);
        for (size_t k = 0; k < n; k++)
            q[k] /= scale;
        add_hold(bg, d, q);
        const double curvature = dot(n, d, q);
        if (!(curvature > 0.0))
            break;
        const double alpha = size / curvature;
        for (size_t k = 0; k < n; k++) {
            change[k] += alpha * d[k];
            r[k] -= alpha * q[k];
        }
        for (size_t k = 0; k < npix; k++)
            bg->rest[k] -= (float)(alpha / scale) * bg->step[k];
        st = keep_flux(bg, all, alpha / scale, e);
        counts->background_steps++;
    }
    return st;
}

spx_status spx_background_fit(spx_background *bg, const spx_trace_all *all, const spx_image *image, float *far,
                              int nthreads, spx_extract_counts *counts, spx_err *e)
{
    const size_t npix = bg->ny * bg->nx;
    double *change = spx_alloc(bg->n, sizeof *change, e);
    spx_status st = change ? spx_blas_open(e) : SPX_EIO;
    counts->background_unknowns = bg->n;
    if (st == SPX_OK)
        st = choose_pixels(bg, all, e);
    for (size_t k = 0; k < npix; k++)
        bg->rest[k] = bg->weight[k] > 0.0f ? image->data[k] - far[k] : 0.0f;
    if (st == SPX_OK)
        st = keep_flux(bg, all, 0.0, e);
    if (st == SPX_OK)
        st = take_models(bg, all, 0, nthreads, bg->rest, e);
    if (st == SPX_OK && !bg->known)
        st = find_taken(bg, all, nthreads, e);
    if (st == SPX_OK)
        st = iterate(bg, all, nthreads, change, counts, e);
    counts->background_clipped = st == SPX_OK ? clip(bg, nthreads) : 0;
    if (st == SPX_OK && counts->background_clipped > 0)
        st = iterate(bg, all, nthreads, change, counts, e);
    if (st == SPX_OK) {
        return_flux(bg, all);
        add_splines(bg, change, 1.0, nthreads, far);
        for (size_t k = 0; k < bg->n; k++)
            bg->c[k] += change[k];
    }
    spx_free(change);
    return st;
}
