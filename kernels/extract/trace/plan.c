/* Provides the plan of whole-trace extraction, which does not depend on pixels: bin geometry, the overlaps of spots,
 * and the bandwidths that follow. */
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "extract/trace/trace.h"
#include "psf/psf.h"
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

/* Pixels that places are in. */
SPX_CLONES
static void find_pixels(size_t nf, const double *restrict at, double *restrict pixel)
{
#pragma omp simd
    for (size_t f = 0; f < nf; f++)
        pixel[f] = floor(at[f] + 0.5);
}

/* Series of all fibres of a bundle at one bin, and these pixels: coef[ncoef][nf]. */
static void find_centres(size_t ncoef, size_t nf, const double *coef, const double *basis, double *at, double *pixel)
{
    spx_psf_series_beside(ncoef, nf, coef, basis, at);
    find_pixels(nf, at, pixel);
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
            const int there = psf->wave_range == NULL || spx_extract_has_spot(psf, p->job->o, fibre, lambda);
            if (!there || !(fabs(x[f]) < SPX_SPOT_FAR && fabs(y[f]) < SPX_SPOT_FAR)) {
                b->state[i] = there ? SPX_TRACE_NOSPOT : SPX_TRACE_OFF;
                b->at[i] = (spx_bin_geometry){0, 0, 0, 0};
                continue;
            }
            b->state[i] = SPX_TRACE_SPOT;
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

/* Row of a bin without a spot: before all others. */
#define NO_ROW INT_MIN

/* What tells which bins overlap with which. Rows of a trace are the first ones of its spots, as they rise with
 * the bins: with the other sign where they fall; those of a trace that turns back are as they are. */
typedef struct {
    int *way; /* [nf] 1: rows never fall with wavelength, -1: never rise, 0: the trace turns back; scratch [2 nf] */
    int *row; /* [nf][nbin] NO_ROW: no spot */
    int *first, *end; /* [nf][nrow] of traces that run one way: first bin whose row is not before this one, or nbin; */
    size_t nrow;      /* one past the last whose row is before it, or 0 */
    box *boxes;       /* [nblock][nf] */
    int *low, *high;  /* [nbin] first rows of a bin's spots, lowest and highest; low > high: it has none */
} pairing;

static void pairing_free(pairing *t)
{
    spx_free(t->way);
    spx_free(t->row);
    spx_free(t->first);
    spx_free(t->boxes);
    spx_free(t->low);
}

static spx_status pairing_make(const spx_trace_plan *p, const spx_trace_bundle *b, pairing *t, spx_err *e)
{
    t->nrow = (size_t)(b->y1 - b->y0) + 3 * (size_t)p->ny;
    t->way = spx_alloc(3 * b->nf, sizeof *t->way, e);
    t->row = spx_alloc_unset(b->nf, p->nbin, sizeof *t->row, e);
    t->first = spx_alloc_unset(2 * b->nf, t->nrow, sizeof *t->first, e);
    t->boxes = spx_alloc2(p->nbin / BLOCK + 1, b->nf, sizeof *t->boxes, e);
    t->low = spx_alloc(2 * p->nbin, sizeof *t->low, e);
    if (!t->way || !t->row || !t->first || !t->boxes || !t->low)
        return SPX_EIO;
    t->end = t->first + b->nf * t->nrow;
    t->high = t->low + p->nbin;
    return SPX_OK;
}

/* Rows of all traces, and the ways that they run. */
static void find_rows(const spx_trace_plan *p, const spx_trace_bundle *b, pairing *t)
{
    const size_t n = p->nbin, nf = b->nf;
    int *last = t->way + nf, *turns = last + nf; /* bits: falls, rises */
    for (size_t f = 0; f < nf; f++)
        last[f] = NO_ROW;
    for (size_t k = 0; k < n; k++)
        for (size_t f = 0; f < nf; f++) {
            const int there = b->state[k * nf + f] == SPX_TRACE_SPOT, yc = b->at[k * nf + f].yc;
            const int before = last[f] != NO_ROW ? last[f] : yc;
            t->row[f * n + k] = there ? yc : NO_ROW;
            turns[f] |= there ? (yc < before) | (yc > before) << 1 : 0;
            last[f] = there ? yc : last[f];
        }
    for (size_t f = 0; f < nf; f++) {
        t->way[f] = turns[f] == 3 ? 0 : turns[f] == 1 ? -1 : 1;
        for (size_t k = 0; k < n && t->way[f] < 0; k++)
            t->row[f * n + k] = t->row[f * n + k] == NO_ROW ? NO_ROW : -t->row[f * n + k];
    }
}

/* Lowest row, as those of t->row, that a trace of the bundle may have; element `ny` of t->first and t->end. */
static int base_of(const spx_trace_plan *p, const spx_trace_bundle *b, int way)
{
    return way < 0 ? 1 - (int)b->y1 : (int)b->y0 - p->ny + 1;
}

/* Bins of trace f by their rows. */
static void sort_rows(const spx_trace_plan *p, const spx_trace_bundle *b, size_t f, pairing *t)
{
    const int base = base_of(p, b, t->way[f]) - p->ny, *row = t->row + f * p->nbin;
    int *first = t->first + f * t->nrow, *end = t->end + f * t->nrow;
    size_t next = 0; /* element that first and end are to have */
    int before = 0;
    for (size_t k = 0; k < p->nbin; k++) {
        if (row[k] == NO_ROW)
            continue;
        for (; (long)next <= (long)row[k] - base; next++) {
            first[next] = (int)k;
            end[next] = before;
        }
        before = (int)k + 1;
    }
    for (; next < t->nrow; next++) {
        first[next] = (int)p->nbin;
        end[next] = before;
    }
}

/* Boxes of all traces, and rows of bins, of spots that are not left out. */
static void find_boxes(const spx_trace_plan *p, const spx_trace_bundle *b, pairing *t)
{
    const size_t nf = b->nf;
    for (size_t i = 0; i < (p->nbin / BLOCK + 1) * nf; i++)
        t->boxes[i] = (box){INT_MAX, INT_MIN, INT_MAX, INT_MIN};
    for (size_t k = 0; k < p->nbin; k++) {
        int low = INT_MAX, high = INT_MIN;
        for (size_t f = 0; f < nf; f++) {
            const spx_bin_geometry *at = &b->at[k * nf + f];
            box *here = &t->boxes[k / BLOCK * nf + f];
            if (b->state[k * nf + f] != SPX_TRACE_SPOT)
                continue;
            here->x0 = at->xc < here->x0 ? at->xc : here->x0;
            here->x1 = at->xc + p->nx > here->x1 ? at->xc + p->nx : here->x1;
            here->y0 = at->yc < here->y0 ? at->yc : here->y0;
            here->y1 = at->yc + p->ny > here->y1 ? at->yc + p->ny : here->y1;
            low = at->yc < low ? at->yc : low;
            high = at->yc > high ? at->yc : high;
        }
        t->low[k] = low;
        t->high[k] = high;
    }
}

/* Whether two traces may touch the same pixel: certain when 0. Blocks of traces that run one way are sorted. */
static int share_pixels(const spx_trace_plan *p, size_t nf, const pairing *t, size_t f, size_t g)
{
    const size_t nblock = p->nbin / BLOCK + 1;
    const int way = t->way[f] == t->way[g] ? t->way[f] : 0;
    for (size_t i = 0, from = 0; i < nblock; i++) {
        const box *a = &t->boxes[(way < 0 ? nblock - 1 - i : i) * nf + f];
        for (size_t j = from; j < nblock && a->y0 < a->y1; j++) {
            const box *o = &t->boxes[(way < 0 ? nblock - 1 - j : j) * nf + g];
            if (a->x0 < o->x1 && o->x0 < a->x1 && a->y0 < o->y1 && o->y0 < a->y1)
                return 1;
            from += way != 0 && j == from && o->y1 <= a->y0;
            if (way != 0 && o->y0 >= a->y1 && o->y0 < o->y1)
                break;
        }
    }
    return 0;
}

/* row_range() of traces that run one way, by their rows: of bins with the same row the last has the lowest dk, the
 * first the highest. */
SPX_CLONES
static void sorted_range(size_t n, int ny, const int *restrict first, const int *restrict end,
                         const int *restrict its_first, const int *restrict its_end, int range[2])
{
    int lo = INT_MAX, hi = INT_MIN;
#pragma omp simd reduction(min : lo) reduction(max : hi)
    for (size_t i = 0; i < n; i++) {
        const int mine = first[i + (size_t)ny], last = end[i + (size_t)ny + 1] - 1;
        const int from = its_first[i + 1], to = its_end[i + 2 * (size_t)ny] - 1;
        const int any = (mine <= last) & (from <= to);
        const int low = any ? from - last : INT_MAX, high = any ? to - mine : INT_MIN;
        lo = low < lo ? low : lo;
        hi = high > hi ? high : hi;
    }
    range[0] = lo;
    range[1] = hi;
}

/* Range of dk for which bins k of trace f and k + dk of g share rows, widened into *lo, *hi. */
static void row_range(const spx_trace_plan *p, const pairing *t, size_t f, size_t g, long *lo, long *hi)
{
    const size_t n = p->nbin;
    if (t->way[f] != 0 && t->way[f] == t->way[g]) {
        int range[2];
        sorted_range(t->nrow - 2 * (size_t)p->ny, p->ny, t->first + f * t->nrow, t->end + f * t->nrow,
                     t->first + g * t->nrow, t->end + g * t->nrow, range);
        if (range[0] <= range[1]) {
            *lo = range[0] < *lo ? range[0] : *lo;
            *hi = range[1] > *hi ? range[1] : *hi;
        }
        return;
    }
    const int *mine = t->row + f * n, *its = t->row + g * n;
    for (size_t k = 0; k < n; k++)
        for (size_t j = 0; j < n && mine[k] != NO_ROW; j++) {
            const long dk = (long)j - (long)k;
            const int dy =
                its[j] == NO_ROW ? p->ny : (t->way[g] < 0 ? -its[j] : its[j]) - (t->way[f] < 0 ? -mine[k] : mine[k]);
            if (dy <= -p->ny || dy >= p->ny)
                continue;
            *lo = dk < *lo ? dk : *lo;
            *hi = dk > *hi ? dk : *hi;
        }
}

/* Which bins overlap with which. A trace whose bins overlap with too many of their own is left out. */
static spx_status pair_bundle(const spx_trace_plan *p, spx_trace_bundle *b, size_t *left_out, spx_err *e)
{
    const size_t nf = b->nf;
    pairing t = {0};
    long *lo = spx_alloc(nf, sizeof *lo, e), *hi = spx_alloc(nf, sizeof *hi, e);
    spx_status st = pairing_make(p, b, &t, e);
    if (!lo || !hi || st != SPX_OK) {
        spx_free(lo);
        spx_free(hi);
        pairing_free(&t);
        return SPX_EIO;
    }
    find_rows(p, b, &t);
    for (size_t f = 0; f < nf; f++) {
        if (t.way[f] != 0)
            sort_rows(p, b, f, &t);
        lo[f] = LONG_MAX;
        hi[f] = LONG_MIN;
    }
    for (size_t f = 0; f < nf; f++) {
        long from = 0, to = 0;
        row_range(p, &t, f, f, &from, &to);
        if (to > SPX_TRACE_MAX_BAND) {
            for (size_t k = 0; k < p->nbin; k++) {
                b->state[k * nf + f] = SPX_TRACE_NOSPOT;
                t.row[f * p->nbin + k] = NO_ROW;
            }
            if (t.way[f] != 0)
                sort_rows(p, b, f, &t);
            (*left_out)++;
            continue;
        }
        hi[0] = to > hi[0] ? to : hi[0];
    }
    lo[0] = 0;
    hi[0] = hi[0] > 0 ? hi[0] : 0;
    find_boxes(p, b, &t);
    for (size_t f = 0; f < nf; f++)
        for (size_t g = f + 1; g < nf; g++)
            if (share_pixels(p, nf, &t, f, g))
                row_range(p, &t, f, g, &lo[g - f], &hi[g - f]);
    b->reach = 0;
    for (size_t df = 1; df < nf; df++)
        if (lo[df] <= hi[df])
            b->reach = (int)df;
    st = SPX_EIO;
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
        up &= t.way[f] > 0;
    for (size_t k = 0, j = 0; up && k < p->nbin; k++) {
        const long end = t.low[k] <= t.high[k] ? (long)t.high[k] + p->ny : INT_MIN;
        /* a bin that does not touch those rows any more: nor do later ones */
        for (j = j > k ? j : k; j < p->nbin && t.low[j] <= t.high[j] && t.low[j] < end;)
            j++;
        b->fit_depth = (int)(j - k) > b->fit_depth ? (int)(j - k) : b->fit_depth;
    }
    if (((size_t)b->fit_depth + 1) * nf * (size_t)p->ny * p->nxp * sizeof(double) > MAX_RING)
        b->fit_depth = 0;
    spx_free(lo);
    spx_free(hi);
    pairing_free(&t);
    return st;
}

spx_status spx_trace_bundle_make(const spx_trace_plan *p, spx_trace_bundle *b, size_t *left_out, spx_err *e)
{
    if (!(b->at = spx_alloc_unset(p->nbin, b->nf, sizeof *b->at, e)) ||
        !(b->state = spx_alloc_unset(p->nbin, b->nf, 1, e)))
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
