/* Extraction of whole traces on the CPU: the equations of the patch method with one patch a bundle, solved with banded
 * algebra. No patches, no seams.
 *
 * 1. M = A^T W A of a bundle from the overlaps of spots that a window over the wavelengths holds: A is never stored.
 * 2. M x = y by conjugate gradients; the banded blocks of the single fibres are the preconditioner.
 * 3. A_s = C_s^-1, the marginal information of fibre s: the Schur complement of M with respect to its neighbours. The
 *    correction to the fibre's own block is small (2e-7 of the diagonal, 1e-4 beside an amplifier gap) and is made with
 *    the fibres next to it, one at a time; it is banded as the block is.
 * 4. Q = A_s^(1/2) by a rational approximation (extract_trace_math.h): for each pole a banded factorisation, two solved
 *    right-hand sides, and the entries of the inverse in the band (Takahashi's recurrence).
 * 5. Model and chi^2 by a second pass over the spots.
 *
 * Bundles run in parallel in 1 to 3 and 5, groups of fibres in 4; neither depends on the number of threads, nor does a
 * fibre on which others are wanted: a bundle is solved whole. */
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "extract/extract_trace_impl.h"
#include "psf/psf_math.h"

/* Bins that a trace is solved beyond the wanted wavelengths. What the end of the model does wrong falls by ten every
 * four bins. */
#define TRACE_PAD          40
#define TRACE_PIX_PAD_FRAC 0.9
#define TRACE_TOLERANCE    1e-8
enum { MAX_PAD = 100000 };

/* A ring of spots larger than this (bytes a bundle) means traces that turn back: then spots are made twice. */
#define MAX_RING ((size_t)1 << 28)

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
    const size_t first = o->first / o->bundle_size * o->bundle_size;
    const size_t last = ((o->first + o->nspec - 1) / o->bundle_size + 1) * o->bundle_size;
    return (last < psf->nspec ? last : psf->nspec) - first;
}

static size_t round_up(size_t n)
{
    return (n + SPX_TRACE_LANES - 1) / SPX_TRACE_LANES * SPX_TRACE_LANES;
}

double *spx_trace_room(spx_trace_rooms *r, spx_trace_room_id id, size_t n1, size_t n2, spx_err *e)
{
    size_t n;
    if (spx_mul(n1, n2, &n, e) != SPX_OK)
        return NULL;
    if (!r->at[id] || n > r->size[id]) {
        spx_free(r->at[id]);
        r->at[id] = spx_alloc(n, sizeof(double), e);
        r->size[id] = r->at[id] ? n : 0;
    }
    return r->at[id];
}

/* ---- plan ---- */

static void plan_free(spx_trace_plan *p)
{
    spx_free(p->coeff);
    spx_free(p->bx);
    spx_free(p->by);
    spx_free(p->bp);
    spx_free(p->column_mask);
}

static spx_status make_plan(const spx_extract_job *job, spx_trace_plan *p, spx_err *e)
{
    const spx_psf *psf = job->psf;
    const spx_extract_options *o = job->o;
    memset(p, 0, sizeof *p);
    p->job = job;
    p->pad = o->wave_pad;
    p->nbin = job->nwave + 2 * p->pad;
    p->nx = spx_psf_nx(psf);
    p->ny = spx_psf_ny(psf);
    p->nxp = round_up((size_t)p->nx + SPX_TRACE_LANES - 1);
    p->nyp = round_up((size_t)p->ny);
    p->degx = psf->ghdegx;
    p->degy = psf->ghdegy;
    p->tolerance = o->tolerance;
    const size_t nghx = (size_t)p->degx + 1, nghy = (size_t)p->degy + 1;
    size_t ngh;
    if (spx_mul(nghx, nghy, &ngh, e) != SPX_OK)
        return SPX_EINPUT;
    p->npar = round_up(ngh + 2);
    const size_t deg = nghx > nghy ? nghx : nghy;
    p->spot_work =
        p->npar + (p->nxp + p->nyp + (size_t)p->nx + 3 * SPX_TRACE_LANES) * (deg + 1) + nghx * (p->nxp + p->nyp);
    if (!(p->coeff = spx_alloc2(psf->nspec * psf->ndeg, p->npar, sizeof(double), e)) ||
        !(p->bx = spx_alloc2(p->nbin, psf->x.ncoef, sizeof(double), e)) ||
        !(p->by = spx_alloc2(p->nbin, psf->y.ncoef, sizeof(double), e)) ||
        !(p->bp = spx_alloc2(p->nbin, psf->ndeg, sizeof(double), e)) ||
        !(p->column_mask = spx_alloc(p->nxp, sizeof(double), e)))
        return SPX_EIO;
    for (int x = 0; x < p->nx; x++)
        p->column_mask[x] = 1.0;
    for (size_t k = 0; k < p->nbin; k++) {
        double lambda = spx_extract_lambda(o, (long)k - (long)p->pad);
        spx_legendre_basis(psf->x.ncoef, spx_psf_u(psf->x.wmin, psf->x.wmax, lambda), p->bx + k * psf->x.ncoef);
        spx_legendre_basis(psf->y.ncoef, spx_psf_u(psf->y.wmin, psf->y.wmax, lambda), p->by + k * psf->y.ncoef);
        spx_legendre_basis(psf->ndeg, spx_psf_u(psf->wmin, psf->wmax, lambda), p->bp + k * psf->ndeg);
    }
    for (size_t f = 0; f < psf->nspec; f++)
        for (size_t d = 0; d < psf->ndeg; d++) {
            double *to = p->coeff + (f * psf->ndeg + d) * p->npar;
            for (size_t i = 0; i < ngh; i++)
                to[i] = psf->gh[i] < 0 ? 0.0 : psf->coeff[((size_t)psf->gh[i] * psf->nspec + f) * psf->ndeg + d];
            to[ngh] = psf->coeff[((size_t)psf->sigx * psf->nspec + f) * psf->ndeg + d];
            to[ngh + 1] = psf->coeff[((size_t)psf->sigy * psf->nspec + f) * psf->ndeg + d];
        }
    return SPX_OK;
}

/* ---- geometry of a bundle ---- */

static void bundle_free(spx_trace_bundle *b)
{
    spx_free(b->at);
    spx_free(b->state);
    spx_free(b->lost);
    spx_free(b->lo);
    spx_free(b->hi);
    spx_free(b->first);
    spx_free(b->regularize);
}

static double series(size_t n, const double *c, const double *basis)
{
    double sum = 0.0;
    for (size_t k = 0; k < n; k++)
        sum += c[k] * basis[k];
    return sum;
}

/* Places of all spots, with the bits of spx_psf_spot_place(), and the rows that are used: those that the wanted
 * wavelengths touch, and the fraction pix_pad_frac of those beyond them that only the padding touches. */
static void place_bundle(const spx_trace_plan *p, spx_trace_bundle *b)
{
    const spx_psf *psf = p->job->psf;
    const spx_image *im = p->job->image;
    const size_t nwave = p->job->nwave;
    long inner0 = LONG_MAX, inner1 = LONG_MIN, outer0 = LONG_MAX, outer1 = LONG_MIN, left = LONG_MAX, right = LONG_MIN;
    for (size_t k = 0; k < p->nbin; k++)
        for (size_t f = 0; f < b->nf; f++) {
            size_t i = k * b->nf + f;
            double x = series(psf->x.ncoef, psf->x.coef + (b->fibre0 + f) * psf->x.ncoef, p->bx + k * psf->x.ncoef);
            double y = series(psf->y.ncoef, psf->y.coef + (b->fibre0 + f) * psf->y.ncoef, p->by + k * psf->y.ncoef);
            if (!(fabs(x) < SPX_SPOT_FAR && fabs(y) < SPX_SPOT_FAR)) {
                b->state[i] = SPX_TRACE_NOSPOT;
                continue;
            }
            double mx = floor(x + 0.5), my = floor(y + 0.5);
            int xc = (int)mx - psf->hsizex, yc = (int)my - psf->hsizey;
            b->at[i] = (spx_trace_place){xc, yc, x - mx, y - my};
            outer0 = yc < outer0 ? yc : outer0;
            outer1 = yc + p->ny > outer1 ? yc + p->ny : outer1;
            if (k >= p->pad && k < p->pad + nwave) {
                inner0 = yc < inner0 ? yc : inner0;
                inner1 = yc + p->ny > inner1 ? yc + p->ny : inner1;
            }
        }
    const long ccd_nx = (long)im->nx, ccd_ny = (long)im->ny;
    double fraction = p->job->o->pix_pad_frac;
    long y0 = 0, y1 = 0;
    if (inner0 < inner1) {
        y0 = outer0 + (long)((double)(inner0 - outer0) * (1.0 - fraction));
        y1 = outer0 + (long)((double)(inner1 - outer0) + (double)(outer1 - inner1) * fraction);
    }
    b->y0 = y0 < 0 ? 0 : y0 > ccd_ny ? ccd_ny : y0;
    b->y1 = y1 < b->y0 ? b->y0 : y1 > ccd_ny ? ccd_ny : y1;
    for (size_t i = 0; i < p->nbin * b->nf; i++) {
        if (b->state[i] != SPX_TRACE_SPOT)
            continue;
        long xc = b->at[i].xc, yc = b->at[i].yc;
        if (xc <= -p->nx || xc >= ccd_nx || yc <= b->y0 - p->ny || yc >= b->y1) {
            b->state[i] = SPX_TRACE_OFF;
            continue;
        }
        left = xc < left ? xc : left;
        right = xc > right ? xc : right;
    }
    b->wx0 = left <= right ? left : 0;
    b->wnx = left <= right ? (size_t)(right - left) + p->nxp : p->nxp;
    b->wy0 = b->y0 - p->ny;
    b->wny = (size_t)(b->y1 - b->y0) + 2 * (size_t)p->ny;
}

/* Pixels that the spots of each trace touch, by blocks of bins: [nblock][nf], first and one past the last. */
enum { BLOCK = 64 };

typedef struct {
    int x0, x1, y0, y1;
} box;

static void find_boxes(const spx_trace_plan *p, const spx_trace_bundle *b, box *boxes)
{
    for (size_t i = 0; i < (p->nbin / BLOCK + 1) * b->nf; i++)
        boxes[i] = (box){INT_MAX, INT_MIN, INT_MAX, INT_MIN};
    for (size_t k = 0; k < p->nbin; k++)
        for (size_t f = 0; f < b->nf; f++) {
            const spx_trace_place *at = &b->at[k * b->nf + f];
            box *here = &boxes[k / BLOCK * b->nf + f];
            if (b->state[k * b->nf + f] != SPX_TRACE_SPOT)
                continue;
            here->x0 = at->xc < here->x0 ? at->xc : here->x0;
            here->x1 = at->xc + p->nx > here->x1 ? at->xc + p->nx : here->x1;
            here->y0 = at->yc < here->y0 ? at->yc : here->y0;
            here->y1 = at->yc + p->ny > here->y1 ? at->yc + p->ny : here->y1;
        }
}

/* Whether two traces may touch the same pixel: certain when 0. */
static int share_pixels(const spx_trace_plan *p, size_t nf, const box *boxes, size_t f, size_t g)
{
    const size_t nblock = p->nbin / BLOCK + 1;
    for (size_t i = 0; i < nblock; i++)
        for (size_t j = 0; j < nblock; j++) {
            const box *a = &boxes[i * nf + f], *o = &boxes[j * nf + g];
            if (a->x0 < o->x1 && o->x0 < a->x1 && a->y0 < o->y1 && o->y0 < a->y1)
                return 1;
        }
    return 0;
}

/* Range of dk for which bins (f, k) and (g, k + dk) share rows, widened into *lo, *hi. Rows of traces that run one way
 * are sorted: both ends of the range only move one way, too. */
static void row_range(const spx_trace_plan *p, const spx_trace_bundle *b, size_t f, size_t g, const int *way, long *lo,
                      long *hi)
{
    const size_t n = p->nbin, nf = b->nf;
    const int sorted = way[f] != 0 && way[f] == way[g];
    size_t from = 0, to = 0; /* sorted: rows of bins before `from` end before those of k, bins before `to` begin so */
    for (size_t k = 0; k < n; k++) {
        if (b->state[k * nf + f] != SPX_TRACE_SPOT)
            continue;
        const int yc = b->at[k * nf + f].yc;
        if (sorted) {
            while (from < n &&
                   (b->state[from * nf + g] != SPX_TRACE_SPOT ||
                    (way[f] > 0 ? b->at[from * nf + g].yc <= yc - p->ny : b->at[from * nf + g].yc >= yc + p->ny)))
                from++;
            while (to < n && (b->state[to * nf + g] != SPX_TRACE_SPOT ||
                              (way[f] > 0 ? b->at[to * nf + g].yc < yc + p->ny : b->at[to * nf + g].yc > yc - p->ny)))
                to++;
            if (from < to) {
                *lo = (long)from - (long)k < *lo ? (long)from - (long)k : *lo;
                *hi = (long)to - 1 - (long)k > *hi ? (long)to - 1 - (long)k : *hi;
            }
            continue;
        }
        for (size_t j = 0; j < n; j++) {
            const int dy = b->at[j * nf + g].yc - yc;
            const long dk = (long)j - (long)k;
            if (b->state[j * nf + g] != SPX_TRACE_SPOT || dy <= -p->ny || dy >= p->ny)
                continue;
            *lo = dk < *lo ? dk : *lo;
            *hi = dk > *hi ? dk : *hi;
        }
    }
}

/* 1: rows never fall with wavelength, -1: never rise, 0: the trace turns back. */
static int direction(const spx_trace_plan *p, const spx_trace_bundle *b, size_t f)
{
    int up = 1, down = 1, last = 0, any = 0;
    for (size_t k = 0; k < p->nbin; k++) {
        if (b->state[k * b->nf + f] != SPX_TRACE_SPOT)
            continue;
        int yc = b->at[k * b->nf + f].yc;
        up &= !any || yc >= last;
        down &= !any || yc <= last;
        last = yc;
        any = 1;
    }
    return up ? 1 : down ? -1 : 0;
}

/* Which bins overlap with which. A trace whose bins overlap with too many of their own is left out. */
static spx_status pair_bundle(const spx_trace_plan *p, spx_trace_bundle *b, size_t *left_out, spx_err *e)
{
    const size_t nf = b->nf;
    long *lo = spx_alloc2(2, nf, sizeof *lo, e), *hi = lo + nf;
    int *way = spx_alloc(nf, sizeof *way, e);
    box *boxes = spx_alloc2(p->nbin / BLOCK + 1, nf, sizeof *boxes, e);
    if (!lo || !way || !boxes) {
        spx_free(lo);
        spx_free(way);
        spx_free(boxes);
        return SPX_EIO;
    }
    for (size_t f = 0; f < nf; f++) {
        way[f] = direction(p, b, f);
        lo[f] = LONG_MAX;
        hi[f] = LONG_MIN;
    }
    for (size_t f = 0; f < nf; f++) {
        long from = 0, to = 0;
        row_range(p, b, f, f, way, &from, &to);
        if (to > SPX_TRACE_MAX_BAND) {
            for (size_t k = 0; k < p->nbin; k++)
                b->state[k * nf + f] = SPX_TRACE_NOSPOT;
            (*left_out)++;
            continue;
        }
        hi[0] = to > hi[0] ? to : hi[0];
    }
    lo[0] = 0;
    hi[0] = hi[0] > 0 ? hi[0] : 0;
    find_boxes(p, b, boxes);
    for (size_t f = 0; f < nf; f++)
        for (size_t g = f + 1; g < nf; g++)
            if (share_pixels(p, nf, boxes, f, g))
                row_range(p, b, f, g, way, &lo[g - f], &hi[g - f]);
    b->reach = 0;
    for (size_t df = 1; df < nf; df++)
        if (lo[df] <= hi[df])
            b->reach = (int)df;
    spx_status st = SPX_EIO;
    size_t n = (size_t)b->reach + 1;
    if ((b->lo = spx_alloc(n, sizeof *b->lo, e)) && (b->hi = spx_alloc(n, sizeof *b->hi, e)) &&
        (b->first = spx_alloc(n, sizeof *b->first, e))) {
        st = SPX_OK;
        b->nelem = 0;
        b->depth = 0;
        for (size_t df = 0; df < n; df++) {
            if (lo[df] > hi[df]) { /* df without overlap below one with: one element, always 0 */
                lo[df] = hi[df] = 0;
            }
            b->lo[df] = (int)lo[df];
            b->hi[df] = (int)hi[df];
            b->first[df] = b->nelem;
            b->nelem += (size_t)(hi[df] - lo[df] + 1);
            b->depth = hi[df] > b->depth ? (int)hi[df] : b->depth;
            b->depth = -lo[df] > b->depth ? (int)-lo[df] : b->depth;
        }
        b->nl = round_up(nf + n - 1);
        size_t least = (size_t)p->job->psf->hsizey;
        b->band = (size_t)b->hi[0] + (b->reach > 0 ? SPX_TRACE_WIDER : 0);
        b->band = b->band > least ? b->band : least;
    }
    /* bins after which all rows of a bin are complete, when all traces run up */
    b->fit_depth = 0;
    int up = 1;
    for (size_t f = 0; f < nf; f++)
        up &= way[f] > 0;
    for (size_t k = 0, j = 0; up && k < p->nbin; k++) {
        int end = INT_MIN;
        for (size_t f = 0; f < nf; f++)
            if (b->state[k * nf + f] == SPX_TRACE_SPOT && b->at[k * nf + f].yc + p->ny > end)
                end = b->at[k * nf + f].yc + p->ny;
        for (j = j > k ? j : k; j < p->nbin; j++) { /* bin j does not touch those rows any more: nor do later ones */
            int clear = 1;
            for (size_t f = 0; f < nf; f++)
                clear &= b->state[j * nf + f] != SPX_TRACE_SPOT || b->at[j * nf + f].yc >= end;
            if (clear)
                break;
        }
        b->fit_depth = (int)(j - k) > b->fit_depth ? (int)(j - k) : b->fit_depth;
    }
    if (((size_t)b->fit_depth + 1) * nf * (size_t)p->ny * p->nxp * sizeof(double) > MAX_RING)
        b->fit_depth = 0;
    spx_free(lo);
    spx_free(way);
    spx_free(boxes);
    return st;
}

/* Pixels that the spots of a bundle may touch. */
static spx_status window(const spx_trace_plan *p, spx_trace_bundle *b, spx_trace_rooms *r, spx_err *e)
{
    const spx_image *im = p->job->image;
    double *memory = spx_trace_room(r, SPX_ROOM_WINDOW, b->wny, b->wnx, e); /* a double is as large as two floats */
    if (!memory)
        return SPX_EIO;
    memset(memory, 0, b->wny * b->wnx * sizeof *memory);
    b->weight = (float *)memory;
    b->data = b->weight + b->wny * b->wnx;
    long x0 = b->wx0 > 0 ? b->wx0 : 0, x1 = b->wx0 + (long)b->wnx < (long)im->nx ? b->wx0 + (long)b->wnx : (long)im->nx;
    for (long y = b->y0; y < b->y1; y++)
        for (long x = x0; x < x1; x++) {
            size_t from = (size_t)y * im->nx + (size_t)x, to = (size_t)(y - b->wy0) * b->wnx + (size_t)(x - b->wx0);
            b->weight[to] = p->job->weight[from];
            b->data[to] = p->job->weight[from] > 0.0f ? im->data[from] : 0.0f;
        }
    return SPX_OK;
}

/* ---- one bundle ---- */

/* Regularisation of the patch method, with the largest flux weight of all bins of the bundle that are at most a padded
 * patch (wave_step + 2 wave_pad bins) away, so that it does not depend on pixels far off. Traces that are left out get
 * a unit matrix. */
static spx_status regularise(const spx_trace_plan *p, spx_trace_bundle *b, const double *diagonal, spx_err *e)
{
    const spx_extract_options *o = p->job->o;
    const size_t n = p->nbin, nl = b->nl;
    const size_t half = o->wave_step > n ? n : o->wave_step + 2 * p->pad;
    double everywhere = 0.0, *largest = spx_alloc(n, sizeof *largest, e);
    if (!largest)
        return SPX_EIO;
    for (size_t k = 0; k < n; k++) {
        for (size_t f = 0; f < b->nf; f++)
            largest[k] = fmax(largest[k], b->w[k * nl + f]);
        everywhere = fmax(everywhere, largest[k]);
    }
    for (size_t k = 0; k < n; k++) {
        const size_t k0 = k > half ? k - half : 0, k1 = k + half < n ? k + half : n - 1;
        double most = 0.0;
        for (size_t j = k0; j <= k1; j++)
            most = fmax(most, largest[j]);
        if (!(most > 0.0)) /* nothing known for far around: these bins stand alone, any diagonal will do */
            most = everywhere;
        for (size_t f = 0; f < b->nf; f++) {
            double w = b->w[k * nl + f], least = 1e-4 * most;
            double alpha = w < least ? least - w : b->regularize[f];
            b->m[k * b->nelem * nl + f] = b->lost[f] ? 1.0 : diagonal[k * nl + f] + alpha * alpha + SPX_TRACE_PRIOR;
        }
    }
    spx_free(largest);
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
                    if (b->lost[f] || b->lost[f + (size_t)df])
                        row[i * b->nl + f] = 0.0;
        for (size_t f = 0; f < b->nf; f++)
            if (b->lost[f])
                b->y[k * b->nl + f] = 0.0;
    }
}

/* Processor seconds of this thread. */
static double thread_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of this thread since *since, which becomes now. */
static double lap(double *since)
{
    double now = thread_seconds(), gone = now - *since;
    *since = now;
    return gone;
}

typedef struct {
    double seconds[SPX_EXTRACT_STEPS];
    size_t failed, regularised, nospot;
} tally;

/* Factorise and solve: as asked; where that has no solution, regularised; without the traces that even so have none.
 * *solved: 1 or 0. */
static spx_status solve_bundle(const spx_trace_plan *p, const spx_trace_kernels *kernels, spx_trace_bundle *b,
                               spx_trace_rooms *r, const double *diagonal, tally *t, int *solved, spx_err *e)
{
    for (size_t f = 0; f < b->nf; f++)
        b->regularize[f] = p->job->o->regularize;
    *solved = 0;
    for (int attempt = 0; attempt < 3 && !*solved; attempt++) {
        if (attempt == 1) {
            int some = 0;
            for (size_t f = 0; f < b->nf; f++)
                some |= b->lost[f];
            for (size_t f = 0; f < b->nf; f++)
                if (!some || b->lost[f]) {
                    b->regularize[f] = fmax(b->regularize[f], SPX_TRACE_RETRY);
                    b->lost[f] = 0;
                    t->regularised++;
                }
        } else if (attempt == 2) {
            leave_out(p, b);
        }
        spx_status st = regularise(p, b, diagonal, e);
        if (st != SPX_OK)
            return st;
        if (kernels->factorise(p, b) > 0)
            continue;
        if ((st = kernels->solve(p, b, r, solved, e)) != SPX_OK)
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

/* Everything for one bundle, into the rows of the output that belong to its wanted fibres. */
static spx_status extract_bundle(const spx_trace_plan *p, const spx_trace_kernels *kernels, spx_trace_bundle *b,
                                 spx_trace_rooms *r, spx_frame *out, tally *t, spx_err *e)
{
    const spx_extract_options *o = p->job->o;
    const size_t n = p->nbin, nwave = p->job->nwave, nl = b->nl, m = (size_t)b->hi[0], row = (m + 1) * nl;
    const size_t f0 = o->first > b->fibre0 ? o->first - b->fibre0 : 0;
    const size_t f1 = o->first + o->nspec < b->fibre0 + b->nf ? o->first + o->nspec - b->fibre0 : b->nf;
    double since = thread_seconds();
    b->margin = (size_t)b->depth + m + SPX_TRACE_TAIL + 2;
    const size_t nldl = (n + 2 * b->margin) * row;
    /* lanes before the first and after the last are read, and not used */
    const size_t front = SPX_TRACE_MAX_REACH / nl + 1;
    double *elements = spx_trace_room(r, SPX_ROOM_M, n * b->nelem + 2 * front, nl, e);
    double *vectors = spx_trace_room(r, SPX_ROOM_VECTORS, 5 * n, nl, e);
    double *factors = spx_trace_room(r, SPX_ROOM_FACTOR, nldl + (n + m) * SPX_TRACE_LANES, 1, e);
    double *a = spx_trace_room(r, SPX_ROOM_A, n, (b->band + 1) * nl, e);
    if (!elements || !vectors || !factors || !a || window(p, b, r, e) != SPX_OK)
        return SPX_EIO;
    memset(elements, 0, front * nl * sizeof *elements);
    memset(elements + (front + n * b->nelem) * nl, 0, front * nl * sizeof *elements);
    memset(vectors, 0, 5 * n * nl * sizeof *vectors);
    memset(factors, 0, (nldl + (n + m) * SPX_TRACE_LANES) * sizeof *factors);
    b->m = elements + front * nl;
    b->x = vectors;
    b->y = b->x + n * nl;
    b->w = b->y + n * nl;
    b->seen = b->w + n * nl;
    double *diagonal = b->seen + n * nl;
    b->ldl = factors + b->margin * row;
    b->diag = factors + nldl + m * SPX_TRACE_LANES;
    t->seconds[SPX_EXTRACT_PLAN] += lap(&since);

    spx_status st = kernels->equations(p, b, r, e);
    t->seconds[SPX_EXTRACT_EQUATIONS] += lap(&since);
    if (st != SPX_OK)
        return st;
    int any = 0, solved = 0;
    for (size_t k = 0; k < n; k++)
        for (size_t f = 0; f < b->nf; f++) {
            diagonal[k * nl + f] = b->m[k * b->nelem * nl + f];
            any |= b->w[k * nl + f] > 0.0;
        }
    for (size_t f = f0; f < f1; f++)
        for (size_t k = 0; k < nwave; k++) {
            size_t at = (b->fibre0 + f - o->first) * nwave + k;
            double seen = b->seen[(k + p->pad) * nl + f];
            out->pixmask_fraction[at] = seen < 1.0 ? 1.0 - seen : 0.0;
            t->nospot += b->state[(k + p->pad) * b->nf + f] == SPX_TRACE_NOSPOT;
        }
    if (!any) /* no information: flux and ivar stay 0 */
        return SPX_OK;
    if ((st = solve_bundle(p, kernels, b, r, diagonal, t, &solved, e)) != SPX_OK)
        return st;
    t->seconds[SPX_EXTRACT_SOLVE] += lap(&since);
    if (solved) {
        st = kernels->marginal(p, b, r, a, e);
        t->seconds[SPX_EXTRACT_MARGINAL] += lap(&since);
        if (st == SPX_OK)
            st = kernels->root(p, b, r, a, f0, f1, out, &t->regularised, e);
        t->seconds[SPX_EXTRACT_ROOT] += lap(&since);
        if (st == SPX_OK)
            st = kernels->fit(p, b, r, f0, f1, out->chi2pix + (b->fibre0 + f0 - o->first) * nwave, e);
        t->seconds[SPX_EXTRACT_FIT] += lap(&since);
    }
    for (size_t f = f0; f < f1 && st == SPX_OK; f++)
        if (!solved || b->lost[f]) {
            fail_fibre(p, b->fibre0 + f - o->first, out);
            t->failed++;
        }
    return st;
}

/* ---- all ---- */

const spx_trace_kernels *spx_trace_forced;

static const spx_trace_kernels *best_kernels(void)
{
    const spx_trace_kernels *k = spx_trace_forced ? spx_trace_forced : spx_trace_kernels_avx512();
    if (!k)
        k = spx_trace_kernels_avx2();
    return k ? k : spx_trace_kernels_base();
}

/* Bundles that hold wanted fibres, with their geometry. */
static spx_status make_bundles(const spx_trace_plan *p, size_t nbundle, spx_trace_bundle *list, int nthreads,
                               spx_err *e)
{
    const spx_extract_options *o = p->job->o;
    const size_t nspec = p->job->psf->nspec, first = o->first / o->bundle_size;
    spx_status st = SPX_OK;
    for (size_t i = 0; i < nbundle && st == SPX_OK; i++) {
        spx_trace_bundle *b = &list[i];
        b->fibre0 = (first + i) * o->bundle_size;
        b->nf = nspec - b->fibre0 < o->bundle_size ? nspec - b->fibre0 : o->bundle_size;
        if (!(b->at = spx_alloc2(p->nbin, b->nf, sizeof *b->at, e)) || !(b->state = spx_alloc2(p->nbin, b->nf, 1, e)) ||
            !(b->lost = spx_alloc(b->nf, 1, e)) || !(b->regularize = spx_alloc(b->nf, sizeof *b->regularize, e)))
            st = SPX_EIO;
    }
    size_t left_out = 0;
    int no_memory = 0;
    if (st == SPX_OK) {
#pragma omp parallel for schedule(dynamic) num_threads(nthreads) reduction(+ : left_out) reduction(| : no_memory)
        for (size_t i = 0; i < nbundle; i++) {
            place_bundle(p, &list[i]);
            no_memory |= pair_bundle(p, &list[i], &left_out, NULL) != SPX_OK;
        }
        if (no_memory)
            st = spx_fail(e, SPX_EIO, "out of memory");
    }
    size_t solved = 0;
    for (size_t i = 0; i < nbundle; i++)
        solved += list[i].nf;
    if (st == SPX_OK && left_out == solved)
        st =
            spx_fail(e, SPX_EUSAGE,
                     "wavelength steps of %g Angstrom are far smaller than a pixel: give larger ones, or use the patch "
                     "method",
                     o->dw);
    return st;
}

static spx_status extract_all(const spx_extract_job *job, spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    const spx_extract_options *o = job->o;
    const spx_trace_kernels *kernels = best_kernels();
    const size_t first = o->first / o->bundle_size, last = (o->first + o->nspec - 1) / o->bundle_size;
    const size_t nbundle = last - first + 1;
    const int nthreads = spx_extract_threads(o);
    double since = thread_seconds();
    spx_trace_plan plan;
    spx_trace_bundle *bundles = spx_alloc(nbundle, sizeof *bundles, e);
    spx_trace_rooms *rooms = spx_alloc((size_t)nthreads, sizeof *rooms, e);
    tally *tallies = spx_alloc((size_t)nthreads, sizeof *tallies, e);
    spx_status st = make_plan(job, &plan, e);
    if (!bundles || !rooms || !tallies)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = make_bundles(&plan, nbundle, bundles, nthreads, e);
    counts->seconds[SPX_EXTRACT_PLAN] = lap(&since);
    if (st == SPX_OK) {
        int failed = 0;
#pragma omp parallel for schedule(dynamic) num_threads(nthreads) reduction(| : failed)
        for (size_t i = 0; i < nbundle; i++) {
            const int t = omp_get_thread_num();
            failed |= extract_bundle(&plan, kernels, &bundles[i], &rooms[t], out, &tallies[t], NULL) != SPX_OK;
            spx_progress_step(o->progress, bundles[i].nf);
        }
        if (failed) /* there is no other reason */
            st = spx_fail(e, SPX_EIO, "out of memory: use fewer threads");
    }
    counts->npatch = o->nspec;
    for (int t = 0; tallies && t < nthreads; t++) {
        counts->npatch_failed += tallies[t].failed;
        counts->npatch_regularised += tallies[t].regularised;
        counts->nbin_nospot += tallies[t].nospot;
        for (int step = 0; step < SPX_EXTRACT_STEPS; step++)
            counts->seconds[step] += tallies[t].seconds[step];
    }
    for (size_t i = 0; bundles && i < nbundle; i++)
        bundle_free(&bundles[i]);
    for (int t = 0; rooms && t < nthreads; t++)
        for (int i = 0; i < SPX_ROOMS; i++)
            spx_free(rooms[t].at[i]);
    plan_free(&plan);
    spx_free(bundles);
    spx_free(rooms);
    spx_free(tallies);
    return st;
}

spx_status spx_extract_trace_cpu(const spx_image *image, const spx_psf *psf, const spx_extract_options *o,
                                 spx_frame *out, spx_extract_counts *counts, spx_err *e)
{
    spx_extract_job job;
    double since = thread_seconds();
    spx_status st = spx_extract_begin(image, psf, o, &job, out, counts, e);
    if (st == SPX_OK && !(o->tolerance >= 1e-13 && o->tolerance <= 1e-2))
        st = spx_fail(e, SPX_EUSAGE, "tolerance %g: must be 1e-13 to 0.01", o->tolerance);
    if (st == SPX_OK && o->wave_pad > MAX_PAD)
        st = spx_fail(e, SPX_EUSAGE, "traces padded with %zu wavelengths: at most %d", o->wave_pad, MAX_PAD);
    if (st == SPX_OK && psf->hsizey > SPX_TRACE_MAX_BAND)
        st = spx_fail(e, SPX_EUSAGE, "spots of %d rows: the trace method takes at most %d; use the patch method",
                      spx_psf_ny(psf), 2 * SPX_TRACE_MAX_BAND + 1);
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
