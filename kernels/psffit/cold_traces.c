/* Finds the traces of a flat (psffit/cold_steps.h).
 *
 * Profiles are medians over blocks of rows. Begun at the block nearest the middle that shows as many fibres as most do,
 * peaks are followed both ways: each is expected where the one before was, moved by the mean slope. Series: Legendre
 * polynomials, with three rounds of 4 sigma clipping. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "num/stat.h"
#include "psf/psf_math.h"
#include "psffit/cold_steps.h"

enum { BLOCK_ROWS = 32, LEAST_BLOCKS = 8, MOST_ROWS = 512 };
/* Peaks of profiles: errors above the background; fraction of the usual height and of the usual width. */
#define SHARP  8.0
#define FAINT  0.1
#define NARROW 0.4

typedef struct {
    size_t nx, nblock, rows;
    double *v, *error;   /* [nblock][nx]; NaN: no good pixels */
    double *row;         /* [nblock] middle */
    size_t reach, step;  /* of peaks */
    double sigma, pitch; /* medians */
} profiles;

void spx_cold_traces_free(spx_cold_traces *t)
{
    spx_free(t->x);
    spx_free(t->dead);
    spx_free(t->bundle);
    *t = (spx_cold_traces){0};
}

double spx_cold_column(const spx_cold_traces *t, size_t fibre, double row)
{
    return spx_legendre_sum(SPX_COLD_TERMS, t->x + fibre * SPX_COLD_TERMS, 2.0 * row / (double)(t->ny - 1) - 1.0);
}

/* ---- profiles ---- */

static void make_profile(const spx_image *im, size_t first, size_t rows, double *v, double *error)
{
    for (size_t c = 0; c < im->nx; c++) {
        double value[MOST_ROWS], variance = 0.0;
        size_t n = 0;
        for (size_t r = first; r < first + rows; r++) {
            const size_t p = r * im->nx + c;
            if (im->mask[p] != 0 || !(im->ivar[p] > 0.0f) || !isfinite(im->data[p]))
                continue;
            value[n++] = im->data[p];
            variance += 1.0 / im->ivar[p];
        }
        v[c] = error[c] = NAN;
        if (4 * n < rows)
            continue;
        v[c] = spx_median(value, n);
        error[c] = 1.2533 * sqrt(variance) / (double)n; /* of a median of normal values */
    }
}

static spx_status make_profiles(const spx_image *im, int nthreads, profiles *p, spx_err *e)
{
    p->nx = im->nx;
    p->rows = im->ny / LEAST_BLOCKS < BLOCK_ROWS ? im->ny / LEAST_BLOCKS : BLOCK_ROWS;
    if (p->rows < 2 || im->nx < 16)
        return spx_fail(e, SPX_EINPUT, "an image of %zu x %zu pixels is too small to find traces in", im->nx, im->ny);
    p->nblock = im->ny / p->rows;
    p->v = spx_alloc2(p->nblock, p->nx, sizeof *p->v, e);
    p->error = spx_alloc2(p->nblock, p->nx, sizeof *p->error, e);
    p->row = spx_alloc(p->nblock, sizeof *p->row, e);
    if (p->v == NULL || p->error == NULL || p->row == NULL)
        return SPX_EIO;
#pragma omp parallel for schedule(static) num_threads(nthreads)
    for (size_t b = 0; b < p->nblock; b++) {
        make_profile(im, b * p->rows, p->rows, p->v + b * p->nx, p->error + b * p->nx);
        p->row[b] = (double)(b * p->rows) + 0.5 * (double)(p->rows - 1);
    }
    return SPX_OK;
}

/* Peaks of a block that can be fibres: neither far fainter nor far narrower than most. work[nx]. */
static size_t block_peaks(const profiles *p, size_t b, spx_cold_peak *peak, double *work)
{
    const size_t all = spx_cold_peaks(p->nx, p->v + b * p->nx, p->error + b * p->nx, NULL, p->reach, p->step, SHARP,
                                      p->nx, peak, NULL);
    size_t n = 0;
    for (size_t i = 0; i < all; i++)
        work[i] = peak[i].height;
    const double height = spx_median(work, all);
    for (size_t i = 0; i < all; i++)
        work[i] = peak[i].sigma2;
    const double sigma2 = spx_median(work, all);
    for (size_t i = 0; i < all; i++)
        if (peak[i].height > FAINT * height && peak[i].sigma2 + 1.0 / 12.0 > NARROW * NARROW * (sigma2 + 1.0 / 12.0))
            peak[n++] = peak[i];
    return n;
}

/* Distance of peaks and their width, from the blocks of the middle half, and the sizes that suit them. */
static void measure_scale(profiles *p, spx_cold_peak *peak, double *work, double *distance, double *sigma2)
{
    p->reach = 2;
    p->step = 1;
    for (int round = 0; round < 3; round++) {
        size_t nd = 0, ns = 0;
        for (size_t b = p->nblock / 4; b < p->nblock - p->nblock / 4; b++) {
            const size_t n = block_peaks(p, b, peak, work);
            for (size_t i = 0; i < n; i++)
                work[i] = peak[i].sigma2;
            if (n > 0)
                sigma2[ns++] = spx_median(work, n);
            for (size_t i = 0; i + 1 < n; i++)
                work[i] = peak[i + 1].at - peak[i].at;
            if (n > 1)
                distance[nd++] = spx_median(work, n - 1);
        }
        p->pitch = nd > 0 ? spx_median(distance, nd) : (double)p->nx;
        p->sigma = ns > 0 ? sqrt(fmax(spx_median(sigma2, ns), 0.04)) : 0.0;
        p->step = (size_t)fmax(1.0, floor(p->sigma + 0.3));
        p->reach = (size_t)fmax(1.0, fmin(fmax(2.0, floor(1.3 * p->sigma + 0.5)), floor(0.5 * (p->pitch - 1.0))));
    }
}

/* ---- following ---- */

/* Block to begin at: of those with `want` peaks, or 0: with the number that most have, the one nearest the middle.
 * count[nblock]: peaks of each. */
static size_t first_block(const size_t *count, size_t nblock, size_t want)
{
    size_t best = nblock, often = 0;
    if (want == 0)
        for (size_t b = 0; b < nblock; b++) {
            size_t same = 0;
            for (size_t c = 0; c < nblock; c++)
                same += count[c] == count[b] && count[b] > 0;
            if (same > often || (same == often && same > 0 && count[b] > want)) {
                often = same;
                want = count[b];
            }
        }
    for (size_t b = 0; b < nblock; b++)
        if (count[b] == want && want > 0 &&
            (best == nblock || labs((long)(2 * b) - (long)nblock) < labs((long)(2 * best) - (long)nblock)))
            best = b;
    return best;
}

/* Common shift of n traces x[n] to a block: the one, within half a pitch, at which it is brightest there. */
static double common_shift(const profiles *p, size_t b, size_t n, const double *x)
{
    const double reach = fmin(0.45 * p->pitch, 8.0);
    double best = 0.0, most = -HUGE_VAL;
    for (int k = -20; k <= 20; k++) {
        double sum = 0.0;
        const double shift = reach * k / 20.0;
        for (size_t i = 0; i < n; i++) {
            const double at = x[i] + shift, f = at - floor(at);
            const long c = (long)floor(at);
            if (c < 0 || c + 1 >= (long)p->nx)
                continue;
            const double *v = p->v + b * p->nx + c, value = (1.0 - f) * v[0] + f * v[1];
            sum += isfinite(value) ? value : 0.0;
        }
        if (sum > most) {
            most = sum;
            best = shift;
        }
    }
    return best;
}

/* Follows n peaks from block `from` to its end in this direction; at[nblock][n], NaN where there is none. */
static void follow(const profiles *p, size_t from, int way, size_t n, double *at, spx_cold_peak *peak, double *work)
{
    const double near = fmax(1.5, 0.3 * p->pitch) < 0.45 * p->pitch ? fmax(1.5, 0.3 * p->pitch) : 0.45 * p->pitch;
    double *x = work + p->nx, *slope = x + n;
    for (size_t i = 0; i < n; i++) {
        x[i] = at[from * n + i];
        slope[i] = 0.0;
    }
    for (long b = (long)from + way, k = 0; b >= 0 && b < (long)p->nblock; b += way, k++) {
        if (k == 0) {
            const double shift = common_shift(p, (size_t)b, n, x);
            for (size_t i = 0; i < n; i++)
                slope[i] = shift;
        }
        const size_t m = block_peaks(p, (size_t)b, peak, work);
        double mean = 0.0;
        size_t seen = 0, j = 0;
        for (size_t i = 0; i < n; i++) {
            const double want = x[i] + slope[i];
            while (j + 1 < m && fabs(peak[j + 1].at - want) <= fabs(peak[j].at - want))
                j++;
            if (j >= m || fabs(peak[j].at - want) > near)
                continue;
            slope[i] += 0.3 * (peak[j].at - x[i] - slope[i]);
            x[i] = at[(size_t)b * n + i] = peak[j].at;
            mean += slope[i];
            seen++;
        }
        for (size_t i = 0; i < n && seen > 0; i++) /* lost ones go on with the others */
            if (isnan(at[(size_t)b * n + i])) {
                slope[i] = mean / (double)seen;
                x[i] += slope[i];
            }
    }
}

/* Legendre series of one trace from its points; 0: too few. work[3][nblock]. */
static int fit_trace(const profiles *p, size_t ny, size_t n, const double *at, double *c, double *work)
{
    double *u = work, *v = u + p->nblock, *weight = v + p->nblock;
    size_t m = 0;
    for (size_t b = 0; b < p->nblock; b++)
        if (!isnan(at[b * n])) {
            u[m] = 2.0 * p->row[b] / (double)(ny - 1) - 1.0;
            v[m] = at[b * n];
            weight[m++] = 1.0;
        }
    if (m < 4)
        return 0;
    size_t nterm = m / 3 < SPX_COLD_TERMS ? m / 3 : SPX_COLD_TERMS;
    if (u[m - 1] - u[0] < 1.2 && nterm > 3)
        nterm = 3; /* far from the points, high terms say nothing */
    for (size_t k = 0; k < SPX_COLD_TERMS; k++)
        c[k] = 0.0;
    return spx_cold_fit(m, u, v, weight, nterm, 3, 4.0, c);
}

/* ---- all ---- */

/* Trace of a fibre without light: its neighbours' terms, interpolated by their places at the row of the first block,
 * and moved to its own. place[n]: expected columns there. */
static void fill_dead(spx_cold_traces *t, const double *place, double row)
{
    const size_t n = t->nspec;
    for (size_t i = 0; i < n; i++) {
        if (!t->dead[i])
            continue;
        size_t left = i, right = i;
        while (left > 0 && t->dead[left])
            left--;
        while (right + 1 < n && t->dead[right])
            right++;
        if (t->dead[left])
            left = right;
        if (t->dead[right])
            right = left;
        const double f = left == right ? 0.0 : (place[i] - place[left]) / (place[right] - place[left]);
        double *c = t->x + i * SPX_COLD_TERMS;
        for (size_t k = 0; k < SPX_COLD_TERMS; k++)
            c[k] = (1.0 - f) * t->x[left * SPX_COLD_TERMS + k] + f * t->x[right * SPX_COLD_TERMS + k];
        c[0] += place[i] - spx_cold_column(t, i, row);
    }
}

/* Bundles of a flat of which no pattern is given: a gap is 1.35 times the median distance. */
static size_t bundles_by_gaps(size_t n, const double *x, double pitch, int32_t *bundle)
{
    int32_t b = 0;
    for (size_t i = 0; i < n; i++) {
        b += i > 0 && x[i] - x[i - 1] > 1.35 * pitch;
        bundle[i] = b;
    }
    return (size_t)b + 1;
}

/* Fibres of a numbering without a peak. */
static size_t count_dark(size_t n, const long *peak_of)
{
    size_t dark = 0;
    for (size_t i = 0; i < n; i++)
        dark += peak_of[i] < 0;
    return dark;
}

/* Whether fewer fibres are dark where the pattern, bundle[nbundle], is read from the other side of the CCD. */
static spx_status try_other_side(size_t npeak, const double *x, const spx_cold_options *o, size_t *bundle,
                                 const long *peak_of, spx_cold_traces *t, spx_err *e)
{
    const size_t dark = count_dark(t->nspec, peak_of);
    int same = 1;
    for (size_t b = 0; b < o->nbundle; b++)
        same &= bundle[b] == bundle[o->nbundle - 1 - b];
    if (dark == 0 || same)
        return SPX_OK;
    for (size_t b = 0; b < o->nbundle / 2; b++) {
        const size_t swap = bundle[b];
        bundle[b] = bundle[o->nbundle - 1 - b];
        bundle[o->nbundle - 1 - b] = swap;
    }
    long *other = spx_alloc(t->nspec, sizeof *other, e);
    double *place = other != NULL ? spx_alloc(t->nspec, sizeof *place, e) : NULL, pitch, gap;
    spx_err none = {0};
    const spx_status st =
        place == NULL ? SPX_EIO
                      : spx_cold_number(npeak, x, o->nbundle, bundle, t->nspec, other, place, &pitch, &gap, &none);
    t->turned = st == SPX_OK && count_dark(t->nspec, other) < dark;
    spx_free(other);
    spx_free(place);
    return st == SPX_EIO ? spx_mem_fail(e) : SPX_OK;
}

/* Gives the peaks of the first block to fibres: peak_of[nspec], -1: none; place[nspec]. */
static spx_status number_fibres(const spx_cold_options *o, size_t npeak, const double *x, spx_cold_traces *t,
                                long *peak_of, double *place, spx_err *e)
{
    double gap;
    if (o->nbundle == 0 || (t->nspec == 1 && npeak == 1)) { /* one fibre has no pattern */
        for (size_t i = 0; i < t->nspec; i++) {
            peak_of[i] = (long)i;
            place[i] = x[i];
        }
        t->nbundle = bundles_by_gaps(t->nspec, x, t->pitch, t->bundle);
        return SPX_OK;
    }
    size_t *bundle = spx_alloc(o->nbundle, sizeof *bundle, e), i = 0;
    if (bundle == NULL)
        return SPX_EIO;
    for (size_t b = 0; b < o->nbundle; b++) {
        bundle[b] = o->bundle[o->from_right ? o->nbundle - 1 - b : b];
        for (size_t k = 0; k < bundle[b]; k++)
            t->bundle[i++] = (int32_t)b;
    }
    t->nbundle = o->nbundle;
    spx_status st = spx_cold_number(npeak, x, o->nbundle, bundle, t->nspec, peak_of, place, &t->pitch, &gap, e);
    if (st == SPX_OK)
        st = try_other_side(npeak, x, o, bundle, peak_of, t, e);
    spx_free(bundle);
    return st;
}

/* Numbers fibres from the right. */
static void turn_round(spx_cold_traces *t)
{
    for (size_t i = 0, j = t->nspec - 1; i < j; i++, j--) {
        for (size_t k = 0; k < SPX_COLD_TERMS; k++) {
            const double swap = t->x[i * SPX_COLD_TERMS + k];
            t->x[i * SPX_COLD_TERMS + k] = t->x[j * SPX_COLD_TERMS + k];
            t->x[j * SPX_COLD_TERMS + k] = swap;
        }
        const int dead = t->dead[i];
        t->dead[i] = t->dead[j];
        t->dead[j] = dead;
        const int32_t bundle = t->bundle[i];
        t->bundle[i] = t->bundle[j];
        t->bundle[j] = bundle;
    }
    for (size_t i = 0; i < t->nspec; i++)
        t->bundle[i] = (int32_t)t->nbundle - 1 - t->bundle[i];
}

static spx_status find(const spx_image *flat, const spx_cold_options *o, profiles *p, spx_cold_traces *t, spx_err *e)
{
    size_t want = 0;
    for (size_t b = 0; b < o->nbundle; b++)
        want += o->bundle[b];
    spx_cold_peak *peak = spx_alloc(p->nx, sizeof *peak, e);
    double *work = spx_alloc2(4, p->nx + p->nblock, sizeof *work, e);
    double *scale = spx_alloc2(2, p->nblock, sizeof *scale, e);
    size_t *count = spx_alloc(p->nblock, sizeof *count, e);
    double *at = NULL, *place = NULL;
    long *peak_of = NULL;
    spx_status st = peak != NULL && work != NULL && scale != NULL && count != NULL ? SPX_OK : SPX_EIO;
    size_t from = 0, n = 0;
    if (st == SPX_OK) {
        measure_scale(p, peak, work, scale, scale + p->nblock);
        for (size_t b = 0; b < p->nblock; b++)
            count[b] = block_peaks(p, b, peak, work);
        from = first_block(count, p->nblock, want);
        if (from == p->nblock)
            from = first_block(count, p->nblock, 0);
        n = from < p->nblock ? block_peaks(p, from, peak, work) : 0;
        t->nspec = want > 0 ? want : n;
        t->nx = flat->nx;
        t->ny = flat->ny;
        t->pitch = p->pitch;
        t->sigma = p->sigma;
        if (n == 0 || 2 * n < want || (want > 0 && n > 2 * want + 2))
            st = spx_fail_remedy(e, SPX_EINPUT, "is it a flat of this camera, with traces along columns?",
                                 want > 0 ? "the flat shows %zu traces of %zu" : "the flat shows %zu traces", n, want);
    }
    if (st == SPX_OK) {
        t->x = spx_alloc2(t->nspec, SPX_COLD_TERMS, sizeof *t->x, e);
        t->dead = spx_alloc(t->nspec, sizeof *t->dead, e);
        t->bundle = spx_alloc(t->nspec, sizeof *t->bundle, e);
        at = spx_alloc2(p->nblock, n, sizeof *at, e);
        place = spx_alloc(t->nspec, sizeof *place, e);
        peak_of = spx_alloc(t->nspec, sizeof *peak_of, e);
        if (t->x == NULL || t->dead == NULL || t->bundle == NULL || at == NULL || place == NULL || peak_of == NULL)
            st = SPX_EIO;
    }
    if (st == SPX_OK) {
        for (size_t i = 0; i < p->nblock * n; i++)
            at[i] = NAN;
        for (size_t i = 0; i < n; i++)
            at[from * n + i] = peak[i].at;
        st = number_fibres(o, n, at + from * n, t, peak_of, place, e);
    }
    if (st == SPX_OK) {
        size_t alive = 0;
        follow(p, from, 1, n, at, peak, work);
        follow(p, from, -1, n, at, peak, work);
        for (size_t i = 0; i < t->nspec; i++) {
            t->dead[i] = peak_of[i] < 0 || !fit_trace(p, t->ny, n, at + peak_of[i], t->x + i * SPX_COLD_TERMS, work);
            alive += !t->dead[i];
        }
        if (2 * alive < t->nspec)
            st = spx_fail(e, SPX_EINPUT, "the flat shows %zu traces of %zu that can be followed", alive, t->nspec);
        else
            fill_dead(t, place, p->row[from]);
    }
    if (st == SPX_OK && o->from_right)
        turn_round(t);
    spx_free(peak);
    spx_free(work);
    spx_free(scale);
    spx_free(count);
    spx_free(at);
    spx_free(place);
    spx_free(peak_of);
    return st;
}

spx_status spx_cold_find_traces(const spx_image *flat, const spx_cold_options *o, spx_cold_traces *t, spx_err *e)
{
    profiles p = {0};
    spx_status st = make_profiles(flat, o->nthreads, &p, e);
    if (st == SPX_OK)
        st = find(flat, o, &p, t, e);
    spx_free(p.v);
    spx_free(p.error);
    spx_free(p.row);
    return st;
}
