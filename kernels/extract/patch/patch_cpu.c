/* Provides extraction patch by patch with dense algebra: plain, and the oracle of every faster method.
 *
 * A patch keeps the bins of one group of fibres over wave_step wavelengths. It solves for them, for wave_pad more bins
 * at both ends, and for the next fibre of the bundle on either side. Everything is double precision; LAPACK runs on one
 * thread a patch, patches run in parallel and write disjoint parts of the output. */
#include <cblas.h>
#include <lapacke.h>
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/mem.h"
#include "extract/common.h"
#include "psf/spot_math.h"

/* Unknowns of a patch: its matrix has the square of this many elements. */
enum { MAX_UNKNOWNS = 30000 };

/* Added to the diagonal of M whatever the regularisation is, so that a bin without any pixel does not make it
 * singular. */
#define TINY_PRIOR 1e-15

/* Fibres of a group, and those that are solved with it. */
typedef struct {
    size_t own0, own1;     /* solved and kept: own0 <= fibre < own1 */
    size_t solve0, solve1; /* solved */
} group;

/* One patch: a group, and the bins wave0 <= k < wave0 + wave_step. */
typedef struct {
    group g;
    size_t wave0;
} patch;

/* One (fibre, wavelength) bin of a patch: a column of A. */
typedef struct {
    spx_spot at;
    int usable;         /* the PSF has a spot here */
    int outside;        /* of the range of its trace */
    double flux_weight; /* w = A^T W 1 */
} bin;

/* Memory of one thread. n: most unknowns, m: bins of a padded fibre, npix: pixels of a spot. */
typedef struct {
    bin *bins;        /* [n] */
    double *spot;     /* [n][npix] */
    double *weighted; /* [n][npix] spot times ivar, 0 on rows and columns that are not used: W A */
    double *cov;      /* [n][n] column-major: M, then C */
    double *x;        /* [n] A^T W p, then the deconvolved flux */
    double *q;        /* [m][m] block of C, its Cholesky factor, eigenvectors, then scaled for Q */
    double *root;     /* [m][m] Q of one fibre, upper triangle filled, then both */
    double *eigen;    /* [m] */
    double *lwork;    /* [nlwork] for dgesvj */
    double *spot_work;
    lapack_int nlwork;
    double *model, *chi2; /* [rows][columns] of the patch's pixels */
    size_t nmodel;        /* pixels that they have room for */
} workspace;

typedef enum { SOLVED, EMPTY, FAILED, NO_MEMORY } outcome;

static size_t group_count(const spx_psf *psf, const spx_extract_options *o)
{
    return (spx_extract_bundle_of(psf, o, psf->nspec - 1) + 1) * o->sub_bundles;
}

/* Fibres of group k of the whole PSF; 0 when none of them is wanted. */
static int group_of(const spx_psf *psf, const spx_extract_options *o, size_t k, group *g)
{
    size_t bundle0, bundle1, sub = k % o->sub_bundles;
    spx_extract_bundle(psf, o, k / o->sub_bundles, &bundle0, &bundle1);
    const size_t size = o->psf_bundles && psf->bundle != NULL ? bundle1 - bundle0 : o->bundle_size;
    g->own0 = bundle0 + sub * size / o->sub_bundles;
    g->own1 = bundle0 + (sub + 1) * size / o->sub_bundles;
    if (g->own1 > bundle1)
        g->own1 = bundle1;
    g->solve0 = g->own0 > bundle0 ? g->own0 - 1 : g->own0;
    g->solve1 = g->own1 < bundle1 ? g->own1 + 1 : g->own1;
    return g->own0 < g->own1 && g->own0 < o->first + o->nspec && g->own1 > o->first;
}

size_t spx_extract_patch_units(const spx_psf *psf, const spx_extract_options *o)
{
    if (spx_extract_check(psf, o, NULL) != SPX_OK)
        return 0;
    size_t ngroup = 0, nstep = (spx_extract_nwave(o) + o->wave_step - 1) / o->wave_step;
    for (size_t k = 0; k < group_count(psf, o); k++) {
        group g;
        ngroup += (size_t)group_of(psf, o, k, &g);
    }
    return ngroup * nstep;
}

/* Bins of a padded fibre. */
static size_t padded(const spx_extract_options *o)
{
    return o->wave_step + 2 * o->wave_pad;
}

static void workspace_free(workspace *w)
{
    spx_free(w->bins);
    spx_free(w->spot);
    spx_free(w->weighted);
    spx_free(w->cov);
    spx_free(w->x);
    spx_free(w->q);
    spx_free(w->root);
    spx_free(w->eigen);
    spx_free(w->lwork);
    spx_free(w->spot_work);
    spx_free(w->model);
    spx_free(w->chi2);
    memset(w, 0, sizeof *w);
}

static spx_status workspace_alloc(workspace *w, const spx_psf *psf, size_t n, size_t m, spx_err *e)
{
    size_t npix = (size_t)spx_psf_nx(psf) * (size_t)spx_psf_ny(psf);
    w->nlwork = (lapack_int)(2 * m + 6); /* at least 6, and 2 m */
    if (!(w->bins = spx_alloc(n, sizeof *w->bins, e)) || !(w->spot = spx_alloc2(n, npix, sizeof(double), e)) ||
        !(w->weighted = spx_alloc2(n, npix, sizeof(double), e)) || !(w->cov = spx_alloc2(n, n, sizeof(double), e)) ||
        !(w->x = spx_alloc(n, sizeof(double), e)) || !(w->q = spx_alloc2(m, m, sizeof(double), e)) ||
        !(w->root = spx_alloc2(m, m, sizeof(double), e)) || !(w->eigen = spx_alloc(m, sizeof(double), e)) ||
        !(w->lwork = spx_alloc((size_t)w->nlwork, sizeof(double), e)) ||
        !(w->spot_work = spx_alloc(spx_psf_spot_work(psf), sizeof(double), e)))
        return SPX_EIO;
    return SPX_OK;
}

/* Rows of the CCD that a patch uses, first and one past the last; columns likewise (all that its spots touch). */
typedef struct {
    long y0, y1, x0, x1;
} region;

static long clip(long v, long lo, long hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

/* Spots of all bins of the patch, and the pixels to use: all columns that they touch, all rows that the kept
 * wavelengths touch, and the fraction pix_pad_frac of the rows beyond them that the padding touches. A patch that hangs
 * over an edge of the CCD uses the pixels that exist. Returns 0 when there are none. */
static int place_spots(const spx_extract_job *job, const patch *p, workspace *w, region *use)
{
    const spx_psf *psf = job->psf;
    const spx_extract_options *o = job->o;
    const int nx = spx_psf_nx(psf), ny = spx_psf_ny(psf);
    const size_t m = padded(o), npix = (size_t)nx * (size_t)ny;
    long x0 = LONG_MAX, x1 = LONG_MIN;           /* columns of all bins */
    long inner0 = LONG_MAX, inner1 = LONG_MIN;   /* rows of the kept wavelengths */
    long padded0 = LONG_MAX, padded1 = LONG_MIN; /* rows of all bins */
    for (size_t i = 0; i < (p->g.solve1 - p->g.solve0) * m; i++) {
        bin *b = &w->bins[i];
        size_t k = i % m;
        double lambda = spx_extract_lambda(o, (long)(p->wave0 + k) - (long)o->wave_pad);
        const size_t fibre = p->g.solve0 + i / m;
        const double *range = psf->wave_range != NULL ? psf->wave_range + 2 * fibre : NULL;
        b->outside = !spx_extract_has_spot(psf, o, fibre, lambda);
        b->usable =
            !b->outside && spx_psf_spot(psf, fibre, lambda, w->spot_work, w->spot + i * npix, &b->at) == SPX_SPOT_OK;
        if (!b->usable)
            continue;
        long xc = b->at.xc, yc = b->at.yc;
        x0 = xc < x0 ? xc : x0;
        x1 = xc + nx > x1 ? xc + nx : x1;
        padded0 = yc < padded0 ? yc : padded0;
        padded1 = yc + ny > padded1 ? yc + ny : padded1;
        if (k >= o->wave_pad && k < o->wave_pad + o->wave_step &&
            (range == NULL || (lambda >= range[0] && lambda <= range[1]))) {
            inner0 = yc < inner0 ? yc : inner0;
            inner1 = yc + ny > inner1 ? yc + ny : inner1;
        }
    }
    if (inner0 >= inner1)
        return 0;
    double f = o->pix_pad_frac;
    long y0 = padded0 + (long)((double)(inner0 - padded0) * (1.0 - f));
    long y1 = padded0 + (long)((double)(inner1 - padded0) + (double)(padded1 - inner1) * f);
    const long ccd_nx = (long)job->image->nx, ccd_ny = (long)job->image->ny;
    *use = (region){clip(y0, 0, ccd_ny), clip(y1, 0, ccd_ny), clip(x0, 0, ccd_nx), clip(x1, 0, ccd_nx)};
    return use->y0 < use->y1 && use->x0 < use->x1;
}

/* Part of a spot that lies on the pixels in use. */
static region clip_spot(const spx_psf *psf, const spx_spot *at, const region *use)
{
    return (region){clip(at->yc, use->y0, use->y1), clip(at->yc + spx_psf_ny(psf), use->y0, use->y1),
                    clip(at->xc, use->x0, use->x1), clip(at->xc + spx_psf_nx(psf), use->x0, use->x1)};
}

/* W A, A^T W p and A^T W 1, and for the patch's own bins the fraction of the spot on pixels without information. */
static void weigh_spots(const spx_extract_job *job, size_t n, workspace *w, const region *use, double *masked)
{
    const int nx = spx_psf_nx(job->psf);
    const size_t npix = (size_t)nx * (size_t)spx_psf_ny(job->psf), stride = job->image->nx;
    for (size_t i = 0; i < n; i++) {
        bin *b = &w->bins[i];
        const double *spot = w->spot + i * npix;
        double *ws = w->weighted + i * npix, weight = 0.0, value = 0.0, seen = 0.0;
        memset(ws, 0, npix * sizeof *ws);
        if (b->usable) {
            region r = clip_spot(job->psf, &b->at, use);
            for (long y = r.y0; y < r.y1; y++)
                for (long x = r.x0; x < r.x1; x++) {
                    size_t pix = (size_t)y * stride + (size_t)x;
                    long s = (y - b->at.yc) * nx + (x - b->at.xc);
                    double ivar = (double)spx_extract_weight(job, pix);
                    if (!(ivar > 0.0))
                        continue;
                    ws[s] = spot[s] * ivar;
                    weight += ws[s];
                    value += ws[s] * (double)job->image->data[pix];
                    seen += spot[s];
                }
        }
        b->flux_weight = weight;
        w->x[i] = value;
        masked[i] = seen < 1.0 ? 1.0 - seen : 0.0;
    }
}

/* Element (i, j) of M = A^T W A: sum over the pixels that both spots cover. */
static double overlap(const double *weighted_i, const spx_spot *i, const double *spot_j, const spx_spot *j, int nx,
                      int ny)
{
    long dx = j->xc - i->xc, dy = j->yc - i->yc;
    if (dx <= -nx || dx >= nx || dy <= -ny || dy >= ny)
        return 0.0;
    long x0 = dx > 0 ? dx : 0, x1 = dx > 0 ? nx : nx + dx;
    long y0 = dy > 0 ? dy : 0, y1 = dy > 0 ? ny : ny + dy;
    double sum = 0.0;
    for (long y = y0; y < y1; y++)
        for (long x = x0; x < x1; x++)
            sum += weighted_i[y * nx + x] * spot_j[(y - dy) * nx + (x - dx)];
    return sum;
}

/* Lower triangle of M with its regularisation. */
static void normal_matrix(const spx_extract_job *job, size_t n, workspace *w)
{
    const int nx = spx_psf_nx(job->psf), ny = spx_psf_ny(job->psf);
    const size_t npix = (size_t)nx * (size_t)ny;
    double max_weight = 0.0;
    for (size_t i = 0; i < n; i++)
        max_weight = fmax(max_weight, w->bins[i].flux_weight);
    double min_weight = 1e-4 * max_weight;
    for (size_t j = 0; j < n; j++) {
        for (size_t i = j; i < n; i++)
            w->cov[j * n + i] =
                w->bins[i].usable && w->bins[j].usable
                    ? overlap(w->weighted + i * npix, &w->bins[i].at, w->spot + j * npix, &w->bins[j].at, nx, ny)
                    : 0.0;
        double fw = w->bins[j].flux_weight;
        double alpha = fw < min_weight ? min_weight - fw : job->o->regularize;
        w->cov[j * n + j] += alpha * alpha + TINY_PRIOR;
    }
}

/* x = C A^T W p, and C = M^-1 (lower triangle). 0 when M is not positive definite. */
static int solve(size_t n, workspace *w)
{
    lapack_int order = (lapack_int)n;
    if (LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'L', order, w->cov, order) != 0 ||
        LAPACKE_dpotrs_work(LAPACK_COL_MAJOR, 'L', order, 1, w->cov, order, w->x, order) != 0 ||
        LAPACKE_dpotri_work(LAPACK_COL_MAJOR, 'L', order, w->cov, order) != 0)
        return 0;
    return 1;
}

/* Q of one fibre, whose first unknown is `start`, into w->root (both triangles): C_s = L L^T and L = U S V^T give
 * Q = C_s^(-1/2) = (U S^(-1/2)) (U S^(-1/2))^T. By Jacobi rotations: C_s of bins without information is some 1e12 times
 * that of others, and eigenvalues by other ways would lose as many digits. 0 when C_s is not positive definite. */
static int square_root(size_t n, size_t m, size_t start, workspace *w)
{
    memset(w->q, 0, m * m * sizeof *w->q);
    for (size_t j = 0; j < m; j++)
        for (size_t i = j; i < m; i++)
            w->q[j * m + i] = w->cov[(start + j) * n + start + i];
    lapack_int order = (lapack_int)m;
    if (LAPACKE_dpotrf_work(LAPACK_COL_MAJOR, 'L', order, w->q, order) != 0 ||
        LAPACKE_dgesvj_work(LAPACK_COL_MAJOR, 'L', 'U', 'N', order, order, w->q, order, w->eigen, 0, w->root, order,
                            w->lwork, w->nlwork) != 0)
        return 0;
    for (size_t j = 0; j < m; j++) {
        double s = w->lwork[0] * w->eigen[j]; /* singular values come with a common factor */
        if (!(s > 0.0 && isfinite(s)))
            return 0;
        double scale = 1.0 / sqrt(s);
        for (size_t i = 0; i < m; i++)
            w->q[j * m + i] *= scale;
    }
    cblas_dsyrk(CblasColMajor, CblasLower, CblasNoTrans, (int)m, (int)m, 1.0, w->q, (int)m, 0.0, w->root, (int)m);
    for (size_t j = 0; j < m; j++)
        for (size_t i = j + 1; i < m; i++)
            w->root[i * m + j] = w->root[j * m + i];
    return 1;
}

/* flux, ivar and resolution of the kept bins of one fibre (row `f` of the output) from Q and x. 0 when a value is not
 * finite. */
static int keep_fibre(const spx_extract_job *job, const patch *p, size_t f, const double *x, const workspace *w,
                      spx_frame *out)
{
    const size_t m = padded(job->o), pad = job->o->wave_pad, nw = job->nwave, ndiag = out->arm.ndiag;
    double *norm = w->eigen; /* its job is done: row sums of Q */
    for (size_t i = 0; i < m; i++) {
        double sum = 0.0;
        for (size_t j = 0; j < m; j++)
            sum += w->root[j * m + i];
        norm[i] = sum;
    }
    for (size_t k = 0; k < job->o->wave_step && p->wave0 + k < nw; k++) {
        size_t i = pad + k, at = f * nw + p->wave0 + k;
        double sum = 0.0;
        for (size_t j = 0; j < m; j++)
            sum += w->root[j * m + i] * x[j];
        if (norm[i] != 0.0) {
            out->arm.flux[at] = sum / norm[i];
            out->arm.ivar[at] = norm[i] * norm[i];
        }
        if (!isfinite(out->arm.flux[at]) || !isfinite(out->arm.ivar[at]))
            return 0;
        /* column i of R: the file's diagonals hold data[d][j] = R[j - off_d][j], off_d = ndiag div 2 - d */
        for (size_t d = 0; d < ndiag; d++) {
            long row = (long)(i + d) - (long)(ndiag / 2);
            if (row < 0 || row >= (long)m || norm[row] == 0.0)
                continue;
            double r = w->root[i * m + (size_t)row] / norm[row];
            if (!isfinite(r))
                return 0;
            out->arm.resolution[(f * ndiag + d) * nw + p->wave0 + k] = r;
        }
    }
    return 1;
}

/* Model M = A x of all bins over the pixels in use, then (p - M)^2 totivar; negative where a pixel has no
 * information. */
static outcome pixel_chi2(const spx_extract_job *job, size_t n, workspace *w, const region *use, spx_err *e)
{
    const int nx = spx_psf_nx(job->psf);
    const size_t npix = (size_t)nx * (size_t)spx_psf_ny(job->psf);
    const size_t columns = (size_t)(use->x1 - use->x0), count = (size_t)(use->y1 - use->y0) * columns;
    if (count > w->nmodel) {
        spx_free(w->model);
        spx_free(w->chi2);
        w->model = spx_alloc(count, sizeof *w->model, e);
        w->chi2 = spx_alloc(count, sizeof *w->chi2, e);
        w->nmodel = w->model && w->chi2 ? count : 0;
        if (w->nmodel == 0)
            return NO_MEMORY;
    }
    memset(w->model, 0, count * sizeof *w->model);
    for (size_t i = 0; i < n; i++) {
        const bin *b = &w->bins[i];
        if (!b->usable)
            continue;
        region r = clip_spot(job->psf, &b->at, use);
        for (long y = r.y0; y < r.y1; y++)
            for (long x = r.x0; x < r.x1; x++)
                w->model[(size_t)(y - use->y0) * columns + (size_t)(x - use->x0)] +=
                    w->x[i] * w->spot[i * npix + (size_t)((y - b->at.yc) * nx + (x - b->at.xc))];
    }
    for (size_t k = 0; k < count; k++) {
        size_t pix = ((size_t)use->y0 + k / columns) * job->image->nx + (size_t)use->x0 + k % columns;
        double ivar = (double)spx_extract_weight(job, pix), model = w->model[k];
        if (!(ivar > 0.0)) {
            w->chi2[k] = -1.0;
            continue;
        }
        double psf_sigma = job->psf_error * model, rest = (double)job->image->data[pix] - model;
        w->chi2[k] = rest * rest / (psf_sigma * psf_sigma + 1.0 / ivar);
        if (!isfinite(w->chi2[k]))
            return FAILED;
    }
    return SOLVED;
}

/* chi2pix of one bin: A^T chi^2 / A^T [pixel has information]. */
static double bin_chi2(const spx_extract_job *job, size_t i, const workspace *w, const region *use)
{
    const bin *b = &w->bins[i];
    if (!b->usable)
        return 0.0;
    const int nx = spx_psf_nx(job->psf);
    const double *spot = w->spot + i * (size_t)nx * (size_t)spx_psf_ny(job->psf);
    const size_t columns = (size_t)(use->x1 - use->x0);
    double sum = 0.0, weight = 0.0;
    region r = clip_spot(job->psf, &b->at, use);
    for (long y = r.y0; y < r.y1; y++)
        for (long x = r.x0; x < r.x1; x++) {
            double chi2 = w->chi2[(size_t)(y - use->y0) * columns + (size_t)(x - use->x0)];
            double s = spot[(y - b->at.yc) * nx + (x - b->at.xc)];
            if (chi2 >= 0.0) {
                sum += s * chi2;
                weight += s;
            }
        }
    return weight > 0.0 ? sum / weight : 0.0;
}

/* Fibres of a group that are wanted. */
static group wanted(const spx_extract_options *o, group g)
{
    if (g.own0 < o->first)
        g.own0 = o->first;
    if (g.own1 > o->first + o->nspec)
        g.own1 = o->first + o->nspec;
    return g;
}

/* Forget what a failed patch has left in the output. */
static void fail_patch(const spx_extract_job *job, const patch *p, spx_frame *out)
{
    const size_t nw = job->nwave, ndiag = out->arm.ndiag;
    group g = wanted(job->o, p->g);
    for (size_t fibre = g.own0; fibre < g.own1; fibre++)
        for (size_t k = p->wave0; k < p->wave0 + job->o->wave_step && k < nw; k++) {
            size_t f = fibre - job->o->first, at = f * nw + k;
            out->arm.flux[at] = out->arm.ivar[at] = out->chi2pix[at] = 0.0;
            out->arm.mask[at] = SPX_ALLBADPIX | SPX_BAD2DFIT;
            for (size_t d = 0; d < ndiag; d++)
                out->arm.resolution[(f * ndiag + d) * nw + k] = 0.0;
        }
}

static outcome extract_patch(const spx_extract_job *job, const patch *p, workspace *w, spx_frame *out, spx_err *e)
{
    const spx_extract_options *o = job->o;
    const size_t m = padded(o), n = (p->g.solve1 - p->g.solve0) * m, nw = job->nwave;
    const group g = wanted(o, p->g);
    double *masked = w->cov; /* free until M is built */
    region use;
    int any = place_spots(job, p, w, &use);
    if (any) {
        weigh_spots(job, n, w, &use, masked);
        any = 0;
        for (size_t i = 0; i < n; i++)
            any |= w->bins[i].flux_weight > 0.0;
    }
    for (size_t fibre = g.own0; fibre < g.own1; fibre++)
        for (size_t k = 0; k < o->wave_step && p->wave0 + k < nw; k++)
            out->pixmask_fraction[(fibre - o->first) * nw + p->wave0 + k] =
                any ? masked[(fibre - p->g.solve0) * m + o->wave_pad + k] : 1.0;
    if (!any)
        return EMPTY;

    normal_matrix(job, n, w);
    if (!solve(n, w))
        return FAILED;
    for (size_t fibre = g.own0; fibre < g.own1; fibre++) {
        size_t start = (fibre - p->g.solve0) * m;
        if (!square_root(n, m, start, w) || !keep_fibre(job, p, fibre - o->first, w->x + start, w, out))
            return FAILED;
    }
    outcome res = pixel_chi2(job, n, w, &use, e);
    if (res != SOLVED)
        return res;
    for (size_t fibre = g.own0; fibre < g.own1; fibre++)
        for (size_t k = 0; k < o->wave_step && p->wave0 + k < nw; k++)
            out->chi2pix[(fibre - o->first) * nw + p->wave0 + k] =
                bin_chi2(job, (fibre - p->g.solve0) * m + o->wave_pad + k, w, &use);
    return SOLVED;
}

/* Bins of the output for which the PSF gives no spot. */
static size_t count_nospot(const patch *p, const workspace *w, const spx_extract_job *job)
{
    const spx_extract_options *o = job->o;
    const size_t m = padded(o);
    const group g = wanted(o, p->g);
    size_t count = 0;
    for (size_t fibre = g.own0; fibre < g.own1; fibre++)
        for (size_t k = 0; k < o->wave_step && p->wave0 + k < job->nwave; k++)
            count += !w->bins[(fibre - p->g.solve0) * m + o->wave_pad + k].usable &&
                     !w->bins[(fibre - p->g.solve0) * m + o->wave_pad + k].outside;
    return count;
}

/* List of all patches, and the most unknowns that one of them has. */
static patch *list_patches(const spx_extract_job *job, size_t *npatch, size_t *unknowns, spx_err *e)
{
    const spx_extract_options *o = job->o;
    *npatch = spx_extract_patch_units(job->psf, o);
    *unknowns = 0;
    patch *list = spx_alloc(*npatch, sizeof *list, e);
    if (!list)
        return NULL;
    size_t count = 0;
    for (size_t k = 0; k < group_count(job->psf, o); k++) {
        group g;
        if (!group_of(job->psf, o, k, &g))
            continue;
        size_t n = (g.solve1 - g.solve0) * padded(o);
        *unknowns = n > *unknowns ? n : *unknowns;
        for (size_t wave0 = 0; wave0 < job->nwave; wave0 += o->wave_step)
            list[count++] = (patch){.g = g, .wave0 = wave0};
    }
    return list;
}

static spx_status extract_all(const spx_extract_job *job, spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    const spx_extract_options *o = job->o;
    size_t npatch, unknowns;
    if (o->wave_step > MAX_UNKNOWNS || o->wave_pad > MAX_UNKNOWNS)
        return spx_fail(e, SPX_EUSAGE, "patches of %zu + 2 x %zu wavelengths: need at most %d", o->wave_step,
                        o->wave_pad, MAX_UNKNOWNS);
    patch *list = list_patches(job, &npatch, &unknowns, e);
    if (!list)
        return SPX_EIO;
    spx_status st = SPX_OK;
    if (unknowns > MAX_UNKNOWNS) {
        st = spx_fail(e, SPX_EUSAGE,
                      "patches of %zu unknowns: at most %d; use fewer wavelengths a patch or more sub-bundles",
                      unknowns, MAX_UNKNOWNS);
        spx_free(list);
        return st;
    }
    int nthreads = spx_extract_threads(o);
    if ((size_t)nthreads > npatch)
        nthreads = (int)npatch;
    workspace *w = spx_alloc((size_t)nthreads, sizeof *w, e);
    if (!w)
        st = SPX_EIO;
    for (int t = 0; t < nthreads && st == SPX_OK; t++)
        st = workspace_alloc(&w[t], job->psf, unknowns, padded(o), e);

    if (st == SPX_OK) {
        size_t failed = 0, nospot = 0;
        int no_memory = 0;
#pragma omp parallel for schedule(dynamic) num_threads(nthreads) reduction(+ : failed, nospot) reduction(| : no_memory)
        for (size_t k = 0; k < npatch; k++) {
            workspace *mine = &w[omp_get_thread_num()];
            outcome res = extract_patch(job, &list[k], mine, out, NULL);
            if (res == FAILED) {
                fail_patch(job, &list[k], out);
                failed++;
            }
            no_memory |= res == NO_MEMORY;
            nospot += count_nospot(&list[k], mine, job);
            spx_progress_step(o->progress, 1);
        }
        counts->npatch = npatch;
        counts->npatch_failed = failed;
        counts->nbin_nospot = nospot;
        if (no_memory)
            st = spx_mem_fail(e);
    }
    for (int t = 0; w && t < nthreads; t++)
        workspace_free(&w[t]);
    spx_free(w);
    spx_free(list);
    return st;
}

spx_status spx_extract_patch_cpu(const spx_image *image, const spx_psf *psf, const spx_extract_options *o,
                                 spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    spx_extract_job job;
    spx_status st = spx_extract_begin(image, psf, o, &job, out, counts, e);
    if (st == SPX_OK)
        st = extract_all(&job, out, counts, e);
    if (st == SPX_OK)
        st = spx_extract_end(&job, out, counts, e);
    spx_extract_job_free(&job);
    return st;
}
