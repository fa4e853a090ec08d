/* Provides the extraction of whole traces on the CPU: the equations of the patch method with one patch a bundle, solved
 * with banded algebra. No patches, no seams.
 *
 * 1. M = A^T W A of a bundle from the overlaps of spots that a window over the wavelengths holds: A is never stored.
 * 2. M x = y by conjugate gradients; the banded blocks of the single fibres are the preconditioner. Where traces cross
 *    that does not converge: then by the banded factor of all of M.
 * 3. A_s = C_s^-1, the information of fibre s with the others marginalised: the Schur complement of M with respect to
 * them. The correction to the fibre's own block is small (2e-7 of the diagonal, 1e-4 beside an amplifier gap) and is
 * made with the fibres next to it, one at a time; it is banded as the block is.
 * 4. Q = A_s^(1/2) by a rational approximation (calib/root_math.h): for each pole a banded factorisation, two
 * solved right-hand sides, and the entries of the inverse in the band (Takahashi's recurrence).
 * 5. Model and chi^2 by a second pass over the spots.
 *
 * Bundles run in parallel in 1 to 3 and 5, groups of fibres in 4; neither depends on the number of threads, nor does a
 * fibre on which others are wanted: a bundle is solved whole. */
#include <lapacke.h>
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "extract/trace/trace.h"
#include "num/blas.h"
#include "psf/psf_math.h"

/* Bins that a trace is solved beyond the wanted wavelengths. What the end of the model does wrong falls by ten every
 * four bins. */
#define TRACE_PAD          40
#define TRACE_PIX_PAD_FRAC 0.9
#define TRACE_TOLERANCE    1e-8

spx_extract_options spx_extract_trace_defaults(void)
{
    spx_extract_options o = spx_extract_defaults();
    o.method = SPX_METHOD_TRACE;
    o.sub_bundles = 1;
    o.wave_pad = TRACE_PAD;
    o.pix_pad_frac = TRACE_PIX_PAD_FRAC;
    o.tolerance = TRACE_TOLERANCE;
    return o;
}

size_t spx_extract_trace_units(const spx_psf *psf, const spx_extract_options *o)
{
    if (spx_extract_check(psf, o, NULL) != SPX_OK)
        return 0;
    size_t first, last, end;
    spx_extract_bundle(psf, o, spx_extract_bundle_of(psf, o, o->first), &first, &end);
    spx_extract_bundle(psf, o, spx_extract_bundle_of(psf, o, o->first + o->nspec - 1), &last, &end);
    return end - first;
}

/* Pixels that the spots of a bundle may touch, with weights of their own where those of the whole image are not made;
 * rows with such that may be used. */
static spx_status load_tile(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *r, spx_err *e)
{
    const spx_image *im = p->job->image;
    const float *far = p->job->far;
    /* a double is as large as two floats, and rows are no fewer than columns of one */
    double *memory = spx_trace_workspace_get(r, SPX_BUFFER_TILE, b->wny + 1, b->wnx + 1, e);
    if (!memory)
        return SPX_EIO;
    memset(memory, 0, (b->wny + 1) * (b->wnx + 1) * sizeof *memory);
    b->lit = (unsigned *)(memory + b->wny * b->wnx);
    b->weight = (float *)memory;
    b->data = b->weight + b->wny * b->wnx;
    long x0 = b->wx0 > 0 ? b->wx0 : 0, x1 = b->wx0 + (long)b->wnx < (long)im->nx ? b->wx0 + (long)b->wnx : (long)im->nx;
    for (long y = b->y0; y < b->y1; y++) {
        int some = 0;
        for (long x = x0; x < x1; x++) {
            size_t from = (size_t)y * im->nx + (size_t)x, to = (size_t)(y - b->wy0) * b->wnx + (size_t)(x - b->wx0);
            const float weight = spx_extract_weight(p->job, from);
            b->weight[to] = weight;
            b->data[to] = weight > 0.0f ? im->data[from] - (far != NULL ? far[from] : 0.0f) : 0.0f;
            some |= weight > 0.0f;
        }
        b->lit[y - b->wy0 + 1] = (unsigned)some;
    }
    for (size_t y = 0; y < b->wny; y++)
        b->lit[y + 1] += b->lit[y];
    return SPX_OK;
}

const spx_trace_kernels *spx_trace_forced;

const spx_trace_kernels *spx_trace_kernels_best(void)
{
    const spx_trace_kernels *k = spx_trace_forced ? spx_trace_forced : spx_trace_kernels_avx512();
    if (!k)
        k = spx_trace_kernels_avx2();
    return k ? k : spx_trace_kernels_base();
}

/* ---- one bundle ---- */

/* Regularisation of the patch method, with the largest flux weight of all bins of the bundle that are at most a padded
 * patch (wave_step + 2 wave_pad bins) away, so that it does not depend on pixels far off. Traces that are left out get
 * a unit matrix. */
spx_status spx_trace_regularise(const spx_trace_plan *p, spx_trace_bundle *b, spx_err *e)
{
    const spx_extract_options *o = p->job->o;
    const size_t n = p->nbin, nl = b->nl;
    const size_t half = o->wave_step > n ? n : o->wave_step + 2 * p->pad;
    double everywhere = 0.0, *largest = spx_alloc(n, sizeof *largest, e);
    size_t *rank =
        spx_alloc(n, sizeof *rank, e); /* bins of the window, each larger than all behind it: top .. end - 1 */
    if (!largest || !rank) {
        spx_free(largest);
        spx_free(rank);
        return SPX_EIO;
    }
    for (size_t k = 0; k < n; k++) {
        for (size_t f = 0; f < b->nf; f++) /* fmax() would be a call for each */
            largest[k] = b->w[k * nl + f] > largest[k] ? b->w[k * nl + f] : largest[k];
        everywhere = fmax(everywhere, largest[k]);
    }
    for (size_t k = 0, top = 0, end = 0, next = 0; k < n; k++) {
        for (; next < n && next <= k + half; next++) {
            while (end > top && largest[rank[end - 1]] <= largest[next])
                end--;
            rank[end++] = next;
        }
        while (rank[top] + half < k)
            top++;
        double most = largest[rank[top]];
        if (!(most > 0.0)) /* nothing known for far around: these bins stand alone, any diagonal will do */
            most = everywhere;
        for (size_t f = 0; f < b->nf; f++) {
            double w = b->w[k * nl + f], least = 1e-4 * most;
            double alpha = w < least ? least - w : b->regularize[f];
            b->m[k * b->nelem * nl + f] =
                b->singular[f] ? 1.0 : b->diagonal[k * nl + f] + alpha * alpha + SPX_TRACE_PRIOR;
        }
    }
    spx_free(largest);
    spx_free(rank);
    return SPX_OK;
}

/* Take lost traces out of the equations. */
static void leave_out(const spx_trace_plan *p, spx_trace_bundle *b)
{
    for (size_t k = 0; k < p->nbin; k++) {
        double *row = b->m + k * b->nelem * b->nl;
        for (int df = 0; df <= b->reach; df++)
            for (size_t i = b->first[df]; i <= b->first[df] + (size_t)(b->hi[df] - b->lo[df]); i++)
                for (size_t f = 0; f + (size_t)df < b->nf; f++)
                    if (b->singular[f] || b->singular[f + (size_t)df])
                        row[i * b->nl + f] = 0.0;
        for (size_t f = 0; f < b->nf; f++)
            if (b->singular[f])
                b->y[k * b->nl + f] = 0.0;
    }
}

/* Seconds of this thread since *since, which becomes now. */
static double lap(double *since)
{
    double now = spx_thread_seconds(), gone = now - *since;
    *since = now;
    return gone;
}

/* Element (i, j) of a symmetric band matrix in LAPACK's lower storage, i >= j or not. */
static void set_band(double *band, size_t rows, size_t i, size_t j, double v)
{
    if (i >= j)
        band[j * rows + i - j] = v;
    else
        band[i * rows + j - i] = v;
}

/* M x = y by the Cholesky factor of all of M, wavelength by wavelength: for bundles in which traces cross or lie on
 * each other, where the blocks of single fibres precondition badly. *solved is 0 when M is not positive definite. */
static spx_status solve_directly(const spx_trace_plan *p, spx_trace_bundle *b, int *solved, spx_err *e)
{
    const size_t n = p->nbin, nf = b->nf, nl = b->nl, order = n * nf, width = (size_t)b->depth * nf + nf;
    const size_t reach = width < order ? width : order; /* rows of the storage */
    double *band = spx_alloc2(order, reach, sizeof *band, e), *x = spx_alloc(order, sizeof *x, e);
    *solved = 0;
    if (!band || !x) {
        spx_free(band);
        spx_free(x);
        return SPX_EIO;
    }
    for (size_t k = 0; k < n; k++)
        for (size_t f = 0; f < nf; f++) {
            x[k * nf + f] = b->y[k * nl + f];
            for (size_t df = 0; df <= (size_t)b->reach && f + df < nf; df++)
                for (int dk = b->lo[df]; dk <= b->hi[df]; dk++) {
                    const long other = (long)k + dk;
                    if (other >= 0 && other < (long)n)
                        set_band(band, reach, k * nf + f, (size_t)other * nf + f + df,
                                 b->m[(k * b->nelem + b->first[df] + (size_t)(dk - b->lo[df])) * nl + f]);
                }
        }
    if (LAPACKE_dpbsv_work(LAPACK_COL_MAJOR, 'L', (lapack_int)order, (lapack_int)(reach - 1), 1, band,
                           (lapack_int)reach, x, (lapack_int)order) == 0) {
        *solved = 1;
        for (size_t k = 0; k < n; k++)
            for (size_t f = 0; f < nf; f++) {
                b->x[k * nl + f] = x[k * nf + f];
                *solved &= isfinite(x[k * nf + f]) != 0;
            }
    }
    spx_free(band);
    spx_free(x);
    return SPX_OK;
}

/* Factorise and solve: as asked; where that has no solution, regularised; without the traces that even so have none.
 * *solved: 1 or 0. */
static spx_status solve_bundle(const spx_trace_plan *p, const spx_trace_kernels *kernels, spx_trace_bundle *b,
                               spx_trace_workspace *r, spx_trace_tally *t, int *solved, spx_err *e)
{
    for (size_t f = 0; f < b->nf; f++)
        b->regularize[f] = p->job->o->regularize;
    *solved = 0;
    for (int attempt = 0; attempt < 3 && !*solved; attempt++) {
        if (attempt == 1) {
            int some = 0;
            for (size_t f = 0; f < b->nf; f++)
                some |= b->singular[f];
            for (size_t f = 0; f < b->nf; f++)
                if (!some || b->singular[f]) {
                    b->regularize[f] = fmax(b->regularize[f], SPX_TRACE_RETRY);
                    b->singular[f] = 0;
                    t->regularised++;
                }
        } else if (attempt == 2) {
            leave_out(p, b);
        }
        spx_status st = spx_trace_regularise(p, b, e);
        if (st != SPX_OK)
            return st;
        if (kernels->factorise(p, b, NULL) > 0)
            continue;
        if ((st = kernels->solve(p, b, r, solved, e)) == SPX_OK && !*solved)
            st = solve_directly(p, b, solved, e);
        if (st != SPX_OK)
            return st;
    }
    return SPX_OK;
}

/* Forget what a trace without a solution has left in the output. */
static void fail_fibre(const spx_trace_plan *p, size_t f, spx_frame *out)
{
    const size_t nw = p->job->nwave, ndiag = out->arm.ndiag;
    for (size_t k = 0; k < nw; k++) {
        size_t at = f * nw + k;
        out->arm.flux[at] = out->arm.ivar[at] = out->chi2pix[at] = 0.0;
        out->arm.mask[at] = SPX_ALLBADPIX | SPX_BAD2DFIT;
    }
    memset(out->arm.resolution + f * ndiag * nw, 0, ndiag * nw * sizeof(double));
}

/* Adds to *t the bound of rounding in the fluxes of fibres f0 .. f1 - 1: see SPX_TRACE_LAST_PLACE. variance[nbin][nl]:
 * Z of these; that of others gets the variance of their own block. */
static spx_status find_rounding(const spx_trace_plan *p, const spx_trace_kernels *kernels, const spx_trace_bundle *b,
                                spx_trace_workspace *r, size_t f0, size_t f1, const spx_frame *out, double *variance,
                                spx_trace_tally *t, spx_err *e)
{
    const size_t n = p->nbin, nl = b->nl, nw = p->job->nwave;
    double most = 0.0, largest = 0.0, faintest = INFINITY; /* of the fibres the least bright one */
    if (f1 - f0 < b->nf) {
        double *own = spx_alloc2(n, nl, sizeof *own, e);
        const spx_status st = own ? kernels->variances(p, b, r, own, e) : SPX_EIO;
        for (size_t i = 0; i < n * nl && st == SPX_OK; i++)
            if (i % nl < f0 || i % nl >= f1)
                variance[i] = own[i];
        spx_free(own);
        if (st != SPX_OK)
            return st;
    }
    for (size_t f = 0; f < b->nf; f++) {
        double brightest = 1.0;
        for (size_t k = 0; k < n && !b->singular[f]; k++) {
            const double z = variance[k * nl + f], m = b->m[k * b->nelem * nl + f];
            most = fmax(most, spx_trace_amplifies(z, m));
            largest = fmax(largest, spx_trace_amplified(z, m, b->x[k * nl + f]));
        }
        if (f < f0 || f >= f1 || b->singular[f])
            continue;
        for (size_t k = 0, row = (b->fibre0 + f - p->job->o->first) * nw; k < nw; k++)
            brightest = fmax(brightest, 0.01 * fabs(out->arm.flux[row + k]) * sqrt(out->arm.ivar[row + k]));
        faintest = fmin(faintest, brightest);
    }
    t->rounding = fmax(t->rounding, SPX_TRACE_LAST_PLACE * most * largest / faintest);
    return SPX_OK;
}

/* Marginal information and square root of fibres f0 .. f1 - 1; again with twice the diagonals for those vectors of
 * fibres that need more, where traces lie on each other. */
static spx_status take_root(const spx_trace_plan *p, const spx_trace_kernels *kernels, spx_trace_bundle *b,
                            spx_trace_workspace *r, size_t f0, size_t f1, spx_frame *out, spx_trace_tally *t,
                            double *since, spx_err *e)
{
    unsigned char *pending = spx_alloc(b->nf, 1, e), *reached = spx_alloc2(b->nl, p->nbin, 1, e);
    unsigned char *ends = spx_alloc(b->nl, 1, e);
    double *variance = spx_alloc2(b->nl, p->nbin, sizeof *variance, e);
    spx_status st = pending && reached && ends && variance ? SPX_OK : SPX_EIO;
    if (st == SPX_OK)
        memset(pending + f0, 1, f1 - f0);
    for (int again = 1; st == SPX_OK && again;) {
        spx_trace_diagonals a = {.near = spx_trace_workspace_get(r, SPX_BUFFER_A, p->nbin, (b->band + 2) * b->nl, e),
                                 .variance = variance,
                                 .wanted = pending,
                                 .reached = reached,
                                 .ends = ends};
        if (!a.near) {
            st = SPX_EIO;
            break;
        }
        memset(ends, 0, b->nl);
        a.far = a.near + p->nbin * ((size_t)b->hi[0] + 1) * b->nl;
        a.drop_scale = a.near + p->nbin * (b->band + 1) * b->nl;
        st = kernels->schur(p, b, r, &a, e);
        t->seconds[SPX_EXTRACT_SCHUR] += lap(since);
        if (st == SPX_OK)
            st = kernels->root(p, b, r, &a, f0, f1, pending, out, t, e);
        t->seconds[SPX_EXTRACT_ROOT] += lap(since);
        t->tolerance = fmax(t->tolerance, spx_trace_reached_tolerance(p->tolerance, a.z));
        again = memchr(pending, 1, b->nf) != NULL;
        b->band = 2 * b->band < SPX_TRACE_MOST_BAND ? 2 * b->band : SPX_TRACE_MOST_BAND;
    }
    if (st == SPX_OK)
        st = find_rounding(p, kernels, b, r, f0, f1, out, variance, t, e);
    spx_free(variance);
    spx_free(ends);
    spx_free(reached);
    spx_free(pending);
    return st;
}

spx_status spx_trace_deconvolve(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *r,
                                spx_trace_tally *t, int *any, int *solved, spx_err *e)
{
    const spx_trace_kernels *kernels = spx_trace_kernels_best();
    const size_t n = p->nbin, nl = b->nl, m = (size_t)b->hi[0], row = (m + 1) * nl;
    double since = spx_thread_seconds();
    *any = *solved = 0;
    b->margin = (size_t)b->depth + m + SPX_TRACE_LONG_TAIL + 2;
    const size_t nldl = (n + 2 * b->margin) * row;
    /* lanes before the first and after the last are read, and not used */
    const size_t front = SPX_TRACE_MAX_REACH / nl + 1;
    double *elements = spx_trace_workspace_get(r, SPX_BUFFER_M, n * b->nelem + 2 * front, nl, e);
    double *vectors = spx_trace_workspace_get(r, SPX_BUFFER_VECTORS, 5 * n + n / sizeof(double) / nl + 1, nl, e);
    double *factors = spx_trace_workspace_get(r, SPX_BUFFER_FACTOR, nldl + (n + m) * SPX_TRACE_LANES, 1, e);
    if (!elements || !vectors || !factors || load_tile(p, b, r, e) != SPX_OK)
        return SPX_EIO;
    memset(elements, 0, front * nl * sizeof *elements);
    memset(elements + (front + n * b->nelem) * nl, 0, front * nl * sizeof *elements);
    memset(vectors, 0, 5 * n * nl * sizeof *vectors + n);
    memset(factors, 0, (nldl + (n + m) * SPX_TRACE_LANES) * sizeof *factors);
    b->m = elements + front * nl;
    b->x = vectors;
    b->y = b->x + n * nl;
    b->w = b->y + n * nl;
    b->seen = b->w + n * nl;
    b->diagonal = b->seen + n * nl;
    b->far = (unsigned char *)(b->diagonal + n * nl);
    b->ldl = factors + b->margin * row;
    b->diag = factors + nldl + m * SPX_TRACE_LANES;
    t->seconds[SPX_EXTRACT_PLAN] += lap(&since);

    spx_status st = kernels->equations(p, b, r, NULL, e);
    t->seconds[SPX_EXTRACT_EQUATIONS] += lap(&since);
    if (st != SPX_OK)
        return st;
    for (size_t k = 0; k < n; k++)
        for (size_t f = 0; f < b->nf; f++) {
            b->diagonal[k * nl + f] = b->m[k * b->nelem * nl + f];
            *any |= b->w[k * nl + f] > 0.0;
        }
    if (*any)
        st = solve_bundle(p, kernels, b, r, t, solved, e);
    t->seconds[SPX_EXTRACT_SOLVE] += lap(&since);
    return st;
}

/* From the solution to the rows of the output that belong to the bundle's wanted fibres. */
static spx_status end_bundle(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *r, int any, int solved,
                             spx_frame *out, spx_trace_tally *t, spx_err *e)
{
    const spx_trace_kernels *kernels = spx_trace_kernels_best();
    const spx_extract_options *o = p->job->o;
    const size_t nwave = p->job->nwave, nl = b->nl;
    const size_t f0 = o->first > b->fibre0 ? o->first - b->fibre0 : 0;
    const size_t f1 = o->first + o->nspec < b->fibre0 + b->nf ? o->first + o->nspec - b->fibre0 : b->nf;
    double since = spx_thread_seconds();
    spx_status st = SPX_OK;
    for (size_t f = f0; f < f1; f++)
        for (size_t k = 0; k < nwave; k++) {
            size_t at = (b->fibre0 + f - o->first) * nwave + k;
            double seen = b->seen[(k + p->pad) * nl + f];
            out->pixmask_fraction[at] = seen < 1.0 ? 1.0 - seen : 0.0;
            t->nospot += b->state[(k + p->pad) * b->nf + f] == SPX_TRACE_NOSPOT;
        }
    if (!any) /* no information: flux and ivar stay 0 */
        return SPX_OK;
    if (solved) {
        st = take_root(p, kernels, b, r, f0, f1, out, t, &since, e);
        if (st == SPX_OK)
            st = kernels->fit(p, b, r, f0, f1, out->chi2pix + (b->fibre0 + f0 - o->first) * nwave, e);
        t->seconds[SPX_EXTRACT_FIT] += lap(&since);
    }
    for (size_t f = f0; f < f1 && st == SPX_OK; f++)
        if (!solved || b->singular[f]) {
            fail_fibre(p, b->fibre0 + f - o->first, out);
            t->failed++;
        }
    return st;
}

/* ---- all ---- */

/* A bundle of one call: the geometry of `from` may be shared by calls. SPX_EIO: memory; free it all the same. */
static spx_status copy_bundle(const spx_trace_bundle *from, spx_trace_bundle *b)
{
    *b = *from;
    b->singular = spx_alloc(b->nf, 1, NULL);
    b->regularize = spx_alloc(b->nf, sizeof *b->regularize, NULL);
    return b->singular && b->regularize ? SPX_OK : SPX_EIO;
}

static void free_copy(spx_trace_bundle *b)
{
    spx_free(b->singular);
    spx_free(b->regularize);
    b->singular = NULL;
    b->regularize = NULL;
}

static spx_status solve_one(const spx_trace_plan *p, const spx_trace_bundle *from, spx_trace_workspace *workspace,
                            spx_frame *out, spx_trace_tally *tally)
{
    spx_trace_bundle b;
    int any, solved;
    spx_status st = copy_bundle(from, &b);
    if (st == SPX_OK)
        st = spx_trace_deconvolve(p, &b, workspace, tally, &any, &solved, NULL);
    if (st == SPX_OK)
        st = end_bundle(p, &b, workspace, any, solved, out, tally, NULL);
    free_copy(&b);
    return st;
}

/* The solution of equations that hits were taken out of, as if they were new. */
static spx_status solve_again(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_workspace *r, spx_trace_tally *t,
                              int *any, int *solved, spx_err *e)
{
    spx_trace_tally seconds = {0};
    double since = spx_thread_seconds();
    memcpy(seconds.seconds, t->seconds, sizeof t->seconds);
    *t = seconds;
    memset(b->singular, 0, b->nf);
    *any = *solved = 0;
    for (size_t k = 0; k < p->nbin; k++)
        for (size_t f = 0; f < b->nf; f++)
            *any |= b->w[k * b->nl + f] > 0.0;
    const spx_status st = *any ? solve_bundle(p, spx_trace_kernels_best(), b, r, t, solved, e) : SPX_OK;
    t->seconds[SPX_EXTRACT_SOLVE] += lap(&since);
    return st;
}

spx_status spx_trace_screen_bundle(const spx_trace_plan *p, const spx_trace_bundle *from, spx_trace_bundle *b,
                                   spx_trace_workspace *r, const float *readnoise, int finish, int alone,
                                   spx_trace_hits *hits, double **light, int *chosen, spx_frame *out,
                                   spx_trace_tally *t, spx_err *e)
{
    const spx_trace_kernels *kernels = spx_trace_kernels_best();
    const spx_extract_options *o = p->job->o;
    int any = 0, solved = 0;
    *chosen = 1;
    spx_status st = copy_bundle(from, b);
    if (st == SPX_OK)
        st = spx_trace_deconvolve(p, b, r, t, &any, &solved, e);
    double since = spx_thread_seconds();
    if (st == SPX_OK && solved && o->reject > 0.0)
        st = spx_trace_reject(p, kernels, b, r, readnoise, hits, e);
    if (st == SPX_OK && solved && o->variance == SPX_VARIANCE_MODEL)
        st = spx_trace_smooth_light(p, kernels, b, r, 1, light, e);
    t->seconds[SPX_EXTRACT_SCREEN] += lap(&since);
    if (finish && o->variance == SPX_VARIANCE_DATA && (!hits->changed || (alone && hits->solved))) {
        if (st == SPX_OK && hits->changed)
            st = solve_again(p, b, r, t, &any, &solved, e);
        if (st == SPX_OK)
            st = end_bundle(p, b, r, any, solved, out, t, e);
        *chosen = 0;
    }
    free_copy(b);
    return st;
}

/* Sets the rows of a bundle's wanted fibres to 0, whatever a device has left there. */
static void clear_rows(const spx_trace_plan *p, const spx_trace_bundle *b, spx_frame *out)
{
    const spx_extract_options *o = p->job->o;
    const size_t nw = p->job->nwave, ndiag = out->arm.ndiag;
    for (size_t f = b->fibre0; f < b->fibre0 + b->nf; f++)
        if (f >= o->first && f < o->first + o->nspec) {
            const size_t at = (f - o->first) * nw;
            memset(out->arm.flux + at, 0, nw * sizeof(double));
            memset(out->arm.ivar + at, 0, nw * sizeof(double));
            memset(out->chi2pix + at, 0, nw * sizeof(double));
            memset(out->arm.resolution + at * ndiag, 0, nw * ndiag * sizeof(double));
        }
}

void spx_trace_tally_add(const spx_trace_tally *t, spx_trace_tally *sum)
{
    sum->failed += t->failed;
    sum->regularised += t->regularised;
    sum->inexact += t->inexact;
    sum->nospot += t->nospot;
    sum->tolerance = fmax(sum->tolerance, t->tolerance);
    sum->rounding = fmax(sum->rounding, t->rounding);
}

void spx_trace_count_tasks(const spx_trace_workspace *list, int nthreads, spx_extract_counts *counts)
{
    for (int t = 0; list != NULL && t < nthreads; t++)
        for (int step = 0; step < SPX_EXTRACT_STEPS; step++)
            counts->seconds[step] += list->of_tasks[t].seconds[step];
}

void spx_trace_count(const spx_trace_tally *t, int all, spx_extract_counts *counts)
{
    if (all) {
        counts->npatch_failed += t->failed;
        counts->npatch_regularised += t->regularised;
        counts->npatch_inexact += t->inexact;
        counts->nbin_nospot += t->nospot;
        counts->tolerance = fmax(counts->tolerance, t->tolerance);
        counts->rounding = fmax(counts->rounding, t->rounding);
    }
    for (int step = 0; step < SPX_EXTRACT_STEPS; step++)
        counts->seconds[step] += t->seconds[step];
}

spx_status spx_trace_solve_bundles(const spx_trace_plan *p, size_t nbundle, const spx_trace_bundle *list,
                                   const int *chosen, spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    const int nthreads = spx_extract_threads(p->job->o);
    spx_trace_workspace *workspaces = spx_trace_workspaces_make(nthreads, e);
    spx_trace_tally *tallies = spx_alloc((size_t)nthreads, sizeof *tallies, e);
    spx_status st = workspaces && tallies ? SPX_OK : SPX_EIO;
    if (st == SPX_OK) {
        int failed = 0;
#pragma omp parallel for schedule(dynamic) num_threads(nthreads) reduction(| : failed)
        for (size_t i = 0; i < nbundle; i++) {
            const int t = omp_get_thread_num();
            if (chosen && !chosen[i])
                continue;
            if (chosen)
                clear_rows(p, &list[i], out);
            failed |= solve_one(p, &list[i], &workspaces[t], out, &tallies[t]) != SPX_OK;
            spx_progress_step(p->job->o->progress, list[i].nf);
        }
        if (failed) /* there is no other reason */
            st = spx_mem_fail(e);
    }
    for (int t = 0; workspaces && tallies && t < nthreads; t++)
        spx_trace_count(&tallies[t], 1, counts);
    spx_trace_count_tasks(workspaces, nthreads, counts);
    spx_trace_workspaces_free(workspaces, nthreads);
    spx_free(tallies);
    return st;
}

static spx_status extract_all(spx_extract_job *job, spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    const spx_extract_options *o = job->o;
    const size_t nbundle = spx_extract_nbundle(job->psf, o);
    double since = spx_thread_seconds();
    spx_trace_plan plan;
    spx_trace_bundle *bundles = spx_alloc(nbundle, sizeof *bundles, e);
    int *chosen = spx_extract_screens(o) ? spx_alloc(nbundle, sizeof *chosen, e) : NULL;
    spx_status st = spx_trace_plan_make(job, NULL, &plan, e);
    if (!bundles || (spx_extract_screens(o) && !chosen))
        st = SPX_EIO;
    if (st == SPX_OK)
        st = spx_trace_bundles_make(&plan, nbundle, bundles, spx_extract_threads(o), e);
    counts->seconds[SPX_EXTRACT_PLAN] = lap(&since);
    counts->npatch = o->nspec;
    counts->fallback = (spx_fallback){.unit = "bundles", .total = nbundle};
    if (st == SPX_OK && chosen)
        st = spx_trace_screen_bundles(&plan, nbundle, bundles, NULL, NULL, job, 1, chosen, out, counts, e);
    if (st == SPX_OK)
        st = spx_trace_solve_bundles(&plan, nbundle, bundles, chosen, out, counts, e);
    for (size_t i = 0; bundles && i < nbundle; i++)
        spx_trace_bundle_free(&bundles[i]);
    spx_trace_plan_free(&plan);
    spx_free(bundles);
    spx_free(chosen);
    return st;
}

spx_status spx_extract_trace_cpu(const spx_image *image, const spx_psf *psf, const spx_extract_options *o,
                                 spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    spx_extract_job job;
    if (spx_extract_goes_beyond(psf, o))
        return spx_trace_extract_beyond_spots(image, psf, o, out, counts, e);
    double since = spx_thread_seconds();
    spx_status st = spx_extract_begin(image, psf, o, &job, out, counts, e);
    counts->seconds[SPX_EXTRACT_BEGIN] = lap(&since);
    if (st == SPX_OK)
        st = extract_all(&job, out, counts, e);
    lap(&since);
    if (st == SPX_OK)
        st = spx_extract_end(&job, out, counts, e);
    counts->seconds[SPX_EXTRACT_END] = lap(&since);
    spx_extract_job_free(&job);
    return st;
}
