/* Provides the plan of whole-trace extraction, which does not depend on pixels: bin geometry, the overlaps of spots,
 * and the bandwidths that follow. */
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "extract/trace/trace.h"
#include "psf/spot_math.h"

/* A ring of spots larger than this (bytes a bundle) means traces that turn back: then spots are made twice. */
#define MAX_RING ((size_t)1 << 28)

enum { MAX_PAD = 100000 };

static size_t round_up(size_t n)
{
    return (n + SPX_TRACE_LANES - 1) / SPX_TRACE_LANES * SPX_TRACE_LANES;
}

/* ---- plan ---- */

void spx_trace_plan_free(spx_trace_plan *p)
{
    spx_free(p->shares_coeff ? NULL : p->coeff);
    spx_free(p->bx);
    spx_free(p->by);
    spx_free(p->bp);
    spx_free(p->column_mask);
    spx_free(p->row_mask);
}

spx_status spx_trace_plan_make(const spx_extract_job *job, const spx_trace_plan *like, spx_trace_plan *p, spx_err *e)
{
    const spx_psf *psf = job->psf;
    const spx_extract_options *o = job->o;
    memset(p, 0, sizeof *p);
    if (!(o->tolerance >= 1e-13 && o->tolerance <= 1e-2))
        return spx_fail(e, SPX_EUSAGE, "tolerance %g: must be 1e-13 to 0.01", o->tolerance);
    if (o->wave_pad > MAX_PAD)
        return spx_fail(e, SPX_EUSAGE, "traces padded with %zu wavelengths: at most %d", o->wave_pad, MAX_PAD);
    if (psf->hsizey > SPX_TRACE_MAX_BAND)
        return spx_fail(e, SPX_EUSAGE, "spots of %d rows: the trace method takes at most %d; use the patch method",
                        spx_psf_ny(psf), 2 * SPX_TRACE_MAX_BAND + 1);
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
    p->drop_tolerance = spx_trace_drop_tolerance(p->tolerance);
    const size_t nghx = (size_t)p->degx + 1, nghy = (size_t)p->degy + 1;
    size_t ngh;
    if (spx_mul(nghx, nghy, &ngh, e) != SPX_OK)
        return SPX_EINPUT;
    p->npar = round_up(ngh + 2);
    const size_t deg = nghx > nghy ? nghx : nghy;
    p->spot_work =
        p->npar + (p->nxp + p->nyp + (size_t)p->nx + 3 * SPX_TRACE_LANES) * (deg + 1) + nghx * (p->nxp + p->nyp);
    p->dense = !spx_psf_plain_spots(psf);
    if (p->dense)
        p->spot_work = spx_psf_spot_work(psf) + (size_t)p->nx * (size_t)p->ny;
    p->motion_work = p->dense ? 3 * (size_t)p->nx * (size_t)p->ny
                              : p->nxp + p->nyp + (size_t)p->nx + 3 * SPX_TRACE_LANES + 2 * nghx * p->nxp;
    p->own_basis = psf->wave_range != NULL;
    const size_t nbasis = p->own_basis ? psf->nspec : 1;
    size_t nrow;
    if (spx_mul(nbasis, p->nbin, &nrow, e) != SPX_OK)
        return SPX_EINPUT;
    p->shares_coeff = like != NULL;
    p->coeff = like != NULL ? like->coeff : spx_alloc2(psf->nspec * psf->ndeg, p->npar, sizeof(double), e);
    if (!p->coeff || !(p->bx = spx_alloc2(nrow, psf->x.ncoef, sizeof(double), e)) ||
        !(p->by = spx_alloc2(nrow, psf->y.ncoef, sizeof(double), e)) ||
        !(p->bp = spx_alloc2(nrow, psf->ndeg, sizeof(double), e)) ||
        !(p->column_mask = spx_alloc(p->nxp, sizeof(double), e)) ||
        !(p->row_mask = spx_alloc(p->nyp, sizeof(double), e)))
        return SPX_EIO;
    for (int x = 0; x < p->nx; x++)
        p->column_mask[x] = 1.0;
    for (int y = 0; y < p->ny; y++)
        p->row_mask[y] = 1.0;
    for (size_t row = 0; row < nrow; row++) {
        const size_t f = row / p->nbin, k = row % p->nbin;
        double lambda = spx_extract_lambda(o, (long)k - (long)p->pad);
        spx_legendre_basis(psf->x.ncoef, spx_psf_series_u(&psf->x, f, lambda), p->bx + row * psf->x.ncoef);
        spx_legendre_basis(psf->y.ncoef, spx_psf_series_u(&psf->y, f, lambda), p->by + row * psf->y.ncoef);
        spx_legendre_basis(psf->ndeg, spx_psf_param_u(psf, f, lambda), p->bp + row * psf->ndeg);
    }
    if (like != NULL)
        return SPX_OK;
#pragma omp parallel for num_threads(spx_extract_threads(o))
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

void spx_trace_bundle_free(spx_trace_bundle *b)
{
    spx_free(b->at);
    spx_free(b->state);
    spx_free(b->lo);
    spx_free(b->hi);
    spx_free(b->first);
}

/* Coefficients of the fibres of a bundle side by side, to[ncoef][nf]. */
static void transpose(const spx_psf_series *s, const spx_trace_bundle *b, double *to)
{
    for (size_t f = 0; f < b->nf; f++)
        for (size_t i = 0; i < s->ncoef; i++)
            to[i * b->nf + f] = s->coef[(b->fibre0 + f) * s->ncoef + i];
}

/* Series of all fibres of a bundle at one bin, with the bits of spx_basis_sum(), and the pixels that they are in:
 * coef[ncoef][nf]. */
SPX_CLONES
static void find_centres(size_t ncoef, size_t nf, const double *restrict coef, const double *restrict basis,
                         double *restrict at, double *restrict pixel)
{
    for (size_t f = 0; f < nf; f++)
        at[f] = 0;
    for (size_t i = 0; i < ncoef; i++)
        for (size_t f = 0; f < nf; f++)
            at[f] += coef[i * nf + f] * basis[i];
    for (size_t f = 0; f < nf; f++)
        pixel[f] = floor(at[f] + 0.5);
}

/* The same where each fibre has a basis of its own. */
static void find_own_centres(const spx_trace_plan *p, const spx_trace_bundle *b, const spx_psf_series *s,
                             const double *basis, size_t k, double *at, double *pixel)
{
    for (size_t f = 0; f < b->nf; f++) {
        at[f] = spx_basis_sum((int)s->ncoef, s->coef + (b->fibre0 + f) * s->ncoef,
                              spx_trace_basis(p, basis, s->ncoef, b->fibre0 + f, k));
        pixel[f] = floor(at[f] + 0.5);
    }
}

/* Places of all spots, with the bits of spx_psf_spot_place(), and the rows that are used: those that the wanted
 * wavelengths touch, and the fraction pix_pad_frac of those beyond them that only the padding touches. */
static spx_status bundle_geometry(const spx_trace_plan *p, spx_trace_bundle *b, spx_err *e)
{
    const spx_psf *psf = p->job->psf;
    const spx_image *im = p->job->image;
    const size_t nwave = p->job->nwave, nf = b->nf, nx = psf->x.ncoef, ny = psf->y.ncoef;
    long inner0 = LONG_MAX, inner1 = LONG_MIN, outer0 = LONG_MAX, outer1 = LONG_MIN, left = LONG_MAX, right = LONG_MIN;
    double *x = spx_alloc2(nx + ny + 4, nf, sizeof *x, e);
    if (x == NULL)
        return SPX_EIO;
    double *mx = x + nf, *y = mx + nf, *my = y + nf, *cx = my + nf, *cy = cx + nx * nf;
    transpose(&psf->x, b, cx);
    transpose(&psf->y, b, cy);
    for (size_t k = 0; k < p->nbin; k++) {
        const double lambda = spx_extract_lambda(p->job->o, (long)k - (long)p->pad);
        if (p->own_basis) {
            find_own_centres(p, b, &psf->x, p->bx, k, x, mx);
            find_own_centres(p, b, &psf->y, p->by, k, y, my);
        } else {
            find_centres(nx, nf, cx, p->bx + k * nx, x, mx);
            find_centres(ny, nf, cy, p->by + k * ny, y, my);
        }
        for (size_t f = 0; f < nf; f++) {
            const size_t i = k * nf + f, fibre = b->fibre0 + f;
            if (!spx_extract_has_spot(psf, p->job->o, fibre, lambda)) {
                b->state[i] = SPX_TRACE_OFF;
                continue;
            }
            if (!(fabs(x[f]) < SPX_SPOT_FAR && fabs(y[f]) < SPX_SPOT_FAR)) {
                b->state[i] = SPX_TRACE_NOSPOT;
                continue;
            }
            const int xc = (int)mx[f] - psf->hsizex, yc = (int)my[f] - psf->hsizey;
            b->at[i] = (spx_bin_geometry){xc, yc, x[f] - mx[f], y[f] - my[f]};
            outer0 = yc < outer0 ? yc : outer0;
            outer1 = yc + p->ny > outer1 ? yc + p->ny : outer1;
            if (k >= p->pad && k < p->pad + nwave &&
                (psf->wave_range == NULL ||
                 (lambda >= psf->wave_range[2 * fibre] && lambda <= psf->wave_range[2 * fibre + 1]))) {
                inner0 = yc < inner0 ? yc : inner0;
                inner1 = yc + p->ny > inner1 ? yc + p->ny : inner1;
            }
        }
    }
    spx_free(x);
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
    return SPX_OK;
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
            const spx_bin_geometry *at = &b->at[k * b->nf + f];
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

/* Row of a bin without a spot: before all others. */
#define NO_ROW INT_MIN

/* First rows of the spots of fibre f, row[nbin], as they rise; those of a trace that turns back as they are. */
static void take_rows(const spx_trace_plan *p, const spx_trace_bundle *b, size_t f, int way, int *row)
{
    for (size_t k = 0; k < p->nbin; k++) {
        const size_t i = k * b->nf + f;
        row[k] = b->state[i] == SPX_TRACE_SPOT ? way < 0 ? -b->at[i].yc : b->at[i].yc : NO_ROW;
    }
}

/* Range of dk for which bins k of a trace and k + dk of another share rows, widened into *lo, *hi; way, row: of both.
 * Rows of traces that run one way are sorted: both ends of the range only move one way, too. */
static void row_range(const spx_trace_plan *p, const int way[2], const int *const rows[2], long *lo, long *hi)
{
    const size_t n = p->nbin;
    const int sorted = way[0] != 0 && way[0] == way[1], *mine = rows[0], *its = rows[1];
    /* sorted: rows of bins before `from` end before those of k, bins before `to` begin so; `end` is one past the last
     * of these with a spot (the bins of a trace that has left the CCD have none) */
    size_t from = 0, to = 0, end = 0;
    for (size_t k = 0; k < n; k++) {
        const int row = mine[k];
        if (row == NO_ROW)
            continue;
        if (sorted) {
            while (from < n && its[from] <= row - p->ny)
                from++;
            for (; to < n && its[to] < row + p->ny; to++)
                end = its[to] != NO_ROW ? to + 1 : end;
            if (from < end) {
                *lo = (long)from - (long)k < *lo ? (long)from - (long)k : *lo;
                *hi = (long)end - 1 - (long)k > *hi ? (long)end - 1 - (long)k : *hi;
            }
            continue;
        }
        for (size_t j = 0; j < n; j++) {
            const long dk = (long)j - (long)k;
            const int dy = its[j] == NO_ROW ? p->ny : (way[1] < 0 ? -its[j] : its[j]) - (way[0] < 0 ? -row : row);
            if (dy <= -p->ny || dy >= p->ny)
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
    long *lo = spx_alloc(nf, sizeof *lo, e), *hi = spx_alloc(nf, sizeof *hi, e);
    int *way = spx_alloc(nf, sizeof *way, e), *row = spx_alloc_unset(nf, p->nbin, sizeof *row, e);
    box *boxes = spx_alloc2(p->nbin / BLOCK + 1, nf, sizeof *boxes, e);
    if (!lo || !hi || !way || !row || !boxes) {
        spx_free(lo);
        spx_free(hi);
        spx_free(way);
        spx_free(row);
        spx_free(boxes);
        return SPX_EIO;
    }
    for (size_t f = 0; f < nf; f++) {
        way[f] = direction(p, b, f);
        take_rows(p, b, f, way[f], row + f * p->nbin);
        lo[f] = LONG_MAX;
        hi[f] = LONG_MIN;
    }
    for (size_t f = 0; f < nf; f++) {
        long from = 0, to = 0;
        const int *const own = row + f * p->nbin;
        row_range(p, (const int[2]){way[f], way[f]}, (const int *const[2]){own, own}, &from, &to);
        if (to > SPX_TRACE_MAX_BAND) {
            for (size_t k = 0; k < p->nbin; k++)
                b->state[k * nf + f] = SPX_TRACE_NOSPOT;
            take_rows(p, b, f, way[f], row + f * p->nbin);
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
                row_range(p, (const int[2]){way[f], way[g]},
                          (const int *const[2]){row + f * p->nbin, row + g * p->nbin}, &lo[g - f], &hi[g - f]);
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
        b->band = spx_trace_band(b->hi[0], b->reach, p->job->psf->hsizey, p->tolerance);
        if (b->reach > 0)
            b->band = b->band + SPX_TRACE_RIM < SPX_TRACE_MOST_BAND ? b->band + SPX_TRACE_RIM : SPX_TRACE_MOST_BAND;
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
    spx_free(hi);
    spx_free(way);
    spx_free(row);
    spx_free(boxes);
    return st;
}

spx_status spx_trace_bundle_make(const spx_trace_plan *p, spx_trace_bundle *b, size_t *left_out, spx_err *e)
{
    if (!(b->at = spx_alloc2(p->nbin, b->nf, sizeof *b->at, e)) || !(b->state = spx_alloc2(p->nbin, b->nf, 1, e)))
        return SPX_EIO;
    const spx_status st = bundle_geometry(p, b, e);
    return st != SPX_OK ? st : pair_bundle(p, b, left_out, e);
}

void spx_trace_bundles_place(const spx_trace_plan *p, size_t nbundle, spx_trace_bundle *list)
{
    const spx_extract_options *o = p->job->o;
    const size_t first = spx_extract_bundle_of(p->job->psf, o, o->first);
    for (size_t i = 0; i < nbundle; i++) {
        size_t end;
        spx_extract_bundle(p->job->psf, o, first + i, &list[i].fibre0, &end);
        list[i].nf = end - list[i].fibre0;
    }
}

spx_status spx_trace_narrow(const spx_trace_plan *p, spx_err *e)
{
    return spx_fail(e, SPX_EUSAGE,
                    "wavelength steps of %g Angstrom are far smaller than a pixel: give larger ones, or use the patch "
                    "method",
                    p->job->o->dw);
}

spx_status spx_trace_bundles_make(const spx_trace_plan *p, size_t nbundle, spx_trace_bundle *list, int nthreads,
                                  spx_err *e)
{
    size_t left_out = 0, solved = 0;
    int no_memory = 0;
    spx_trace_bundles_place(p, nbundle, list);
#pragma omp parallel for schedule(dynamic) num_threads(nthreads) reduction(+ : left_out, solved) reduction(| : no_memory)
    for (size_t i = 0; i < nbundle; i++) {
        no_memory |= spx_trace_bundle_make(p, &list[i], &left_out, NULL) != SPX_OK;
        solved += list[i].nf;
    }
    if (no_memory)
        return spx_mem_fail(e);
    return left_out == solved ? spx_trace_narrow(p, e) : SPX_OK;
}

/* ---- for several frames ---- */

static int same_series(const spx_psf_series *a, const spx_psf_series *b, size_t nspec)
{
    return a->ncoef == b->ncoef && a->wmin == b->wmin && a->wmax == b->wmax &&
           memcmp(a->coef, b->coef, nspec * a->ncoef * sizeof(double)) == 0;
}

static size_t size_of_gh(const spx_psf *psf)
{
    return ((size_t)psf->ghdegx + 1) * ((size_t)psf->ghdegy + 1) * sizeof *psf->gh;
}

static size_t size_of_coeff(const spx_psf *psf)
{
    return psf->npar * psf->nspec * psf->ndeg * sizeof(double);
}

int spx_trace_layout_fits(const spx_trace_layout *l, const spx_extract_job *job)
{
    const spx_extract_options *a = &l->o, *b = job->o;
    const spx_psf *p = &l->psf, *q = job->psf;
    return a->first == b->first && a->nspec == b->nspec && a->wmin == b->wmin && a->wmax == b->wmax && a->dw == b->dw &&
           a->bundle_size == b->bundle_size && a->wave_pad == b->wave_pad && a->pix_pad_frac == b->pix_pad_frac &&
           a->tolerance == b->tolerance && l->ny == job->image->ny && l->nx == job->image->nx && p->nspec == q->nspec &&
           p->npar == q->npar && p->ndeg == q->ndeg && p->wmin == q->wmin && p->wmax == q->wmax &&
           p->ghdegx == q->ghdegx && p->ghdegy == q->ghdegy && p->hsizex == q->hsizex && p->hsizey == q->hsizey &&
           p->sigx == q->sigx && p->sigy == q->sigy && memcmp(p->gh, q->gh, size_of_gh(p)) == 0 &&
           spx_psf_plain_spots(p) && spx_psf_plain_spots(q) && same_series(&p->x, &q->x, p->nspec) &&
           same_series(&p->y, &q->y, p->nspec) && memcmp(p->coeff, q->coeff, size_of_coeff(p)) == 0;
}

static void *copy_of(const void *from, size_t bytes, spx_err *e)
{
    void *to = spx_alloc_unset(bytes, 1, 1, e);
    if (to)
        memcpy(to, from, bytes);
    return to;
}

spx_status spx_trace_layout_make(const spx_extract_job *job, spx_trace_layout *l, spx_err *e)
{
    const spx_extract_options *o = job->o;
    const spx_psf *psf = job->psf;
    const size_t nbundle = spx_extract_nbundle(psf, o);
    *l = (spx_trace_layout){.o = *o, .ny = job->image->ny, .nx = job->image->nx, .psf = *psf};
    l->psf.param = NULL;
    l->psf.header = (spx_cards){0};
    l->psf.x.range = l->psf.y.range = l->psf.wave_range = l->psf.valid_range = NULL;
    l->psf.status = NULL;
    l->psf.bundle = l->psf.order = NULL;
    l->psf.fibre = NULL;
    l->psf.x.coef = copy_of(psf->x.coef, psf->nspec * psf->x.ncoef * sizeof(double), e);
    l->psf.y.coef = copy_of(psf->y.coef, psf->nspec * psf->y.ncoef * sizeof(double), e);
    l->psf.coeff = copy_of(psf->coeff, size_of_coeff(psf), e);
    l->psf.gh = copy_of(psf->gh, size_of_gh(psf), e);
    if (!l->psf.x.coef || !l->psf.y.coef || !l->psf.coeff || !l->psf.gh)
        return SPX_EIO;
    spx_status st = spx_trace_plan_make(job, NULL, &l->plan, e);
    if (st == SPX_OK && !(l->list = spx_alloc(nbundle, sizeof *l->list, e)))
        st = SPX_EIO;
    if (st == SPX_OK) {
        l->nbundle = nbundle;
        st = spx_trace_bundles_make(&l->plan, l->nbundle, l->list, spx_extract_threads(o), e);
    }
    l->plan.job = NULL;
    return st;
}

void spx_trace_layout_free(spx_trace_layout *l)
{
    for (size_t i = 0; i < l->nbundle; i++)
        spx_trace_bundle_free(&l->list[i]);
    spx_free(l->list);
    spx_trace_plan_free(&l->plan);
    spx_free(l->psf.x.coef);
    spx_free(l->psf.y.coef);
    spx_free(l->psf.coeff);
    spx_free(l->psf.gh);
    memset(l, 0, sizeof *l);
}
