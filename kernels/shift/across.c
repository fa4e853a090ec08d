/* Provides shifts and widths across the traces (shift/shift.h, part X): windows, the smooth fit, the moved PSF. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "calib/bordered.h"
#include "calib/dense.h"
#include "num/stat.h"
#include "psf/psf.h"
#include "psf/psf_math.h"
#include "shift/shift.h"

/* Fibres whose light is looked at for the choice of windows, and those that are enough for a bin; bins between places
 * of their traces; most terms in wavelength. */
enum { SAMPLES = 40, ENOUGH = 9, STRAIGHT = 32, MOST_TERMS = 10 };

/* Steps at most, halved ones too, and a step that needs no other: the error that is left is about its square. */
enum { MOST_STEPS = 12 };
/* Bundles from which on the first step, which is not to be the last, looks at one window in two of each; windows of all
 * bundles from which on one in three is enough, and those in the corners. One in four leaves steps of 0.08 pixel of
 * 0.05. */
enum { MANY_BUNDLES = 8, MANY_WINDOWS = 96 };
#define SMALL_STEP 0.02
/* Step, pixels and relative, after which a window is measured again; that of others leaves some 1e-4 of a pixel. */
#define FAR_STEP 0.005

/* Priors: of coefficients and of bundles' offsets, pixels; of widths, relative. Of a width that is not free. */
#define PRIOR_SHIFT        SPX_SHIFT_EXPECTED
#define PRIOR_WIDTH        SPX_SHIFT_EXPECTED_WIDTH
#define PRIOR_BUNDLE       0.01
#define PRIOR_BUNDLE_WIDTH 0.005
#define NOT_FREE           1e-9

/* Fraction of chi^2 by which a step may raise it: one that raises it by more is halved. */
#define RAISED 1e-5
/* A fibre has light when the error of its shift, by its own windows, is below this, pixels. */
#define LIT 0.1
/* A shift that is known worse than this is not applied, pixels. */
#define KNOWN 0.1
/* Factor of chi^2 of the image by which it is worse: hits of particles make it vary by less. */
#define WORSE 1.02
/* chi^2 of two degrees of freedom beyond which a window is left out (its probability is 5e-5), and the most of them. */
#define REJECT      20.0
#define MOST_REJECT 0.5
/* Least error of a window, pixels, where robust weights begin, for half of their rounds; then half of that in each. */
#define ROUGH 0.02
enum { ROBUST_ROUNDS = 10, REJECT_ROUNDS = 4 };
/* Windows that scatter by so many errors more than they should show that the smooth functions are not those of the
 * motion. */
#define LACKING 3.0
#define CLIP    9.0
/* Rows of a window that are used, at least. */
#define FREE_ROWS 10
/* Least variance of a coefficient, over that of its prior. */
#define LEAST_VARIANCE 1e-10
/* Length of the range, over that of all windows, from which on a window is the best place in its part of it. */
#define ROOM 1.5
/* Fibres for each degree of the function of fibres, unless the degree is asked for. */
#define FIBRES_A_TERM 12

/* Information of a fibre on coefficients of p_l, summed over its windows: shifts and widths (q, r) of its own, and with
 * the next fibre. */
typedef struct {
    double own[2][2][MOST_TERMS * MOST_TERMS], next[2][2][MOST_TERMS * MOST_TERMS];
    double offset[2][2], with_own[2][2][MOST_TERMS], with_next[2][2][MOST_TERMS]; /* the bundle's offset with p_l */
    double right[2][MOST_TERMS], right_offset[2];
    int any;
} fibre_sums;

typedef struct {
    const spx_shift_options *o;
    size_t ns, nw, nb, nl, nm, smooth,
        n; /* smooth = nl nm functions; n = 2 (smooth + nb) coefficients of shift, width */
    spx_motion_row *row;
    spx_motion_fit *fit;
    double *first, *last;
    double *total, *step, *prior;    /* [n] coefficients so far, this step, variances a priori */
    double *normal, *factor, *right; /* [n][n] lower triangles, [n] */
    double *p, *q, *at;   /* functions of windows' wavelengths [nw][ns][nl], of fibres [ns][nm]; [nw][ns][2] */
    double *use, *summed; /* [nw][ns] weights of windows, 1 or 0 in the end; those in the normal equations */
    double *light;        /* [nw][ns] information on shifts that their light usually has */
    size_t *bundle;       /* [ns] of each fibre */
    fibre_sums *sums;     /* [ns] of windows whose use has changed */
    double least;         /* length of windows at least, Angstrom */
    int whole;            /* windows are equal parts of the range, which they see as a whole */
    spx_motion_options motion;
    unsigned char *only;  /* [nw][nb] bundles and windows that a step measures, */
    spx_motion_row *some; /* [nw][ns] and what it finds there, [nw][nb] */
    spx_motion_fit *some_fit;
    double usual; /* median chi^2 of windows about the smooth functions over its expectation */
} work;

static void free_work(work *w)
{
    spx_free(w->row);
    spx_free(w->fit);
    spx_free(w->first);
    spx_free(w->total);
    spx_free(w->normal);
    spx_free(w->p);
    spx_free(w->use);
    spx_free(w->bundle);
    spx_free(w->sums);
    spx_free(w->only);
    spx_free(w->some);
    spx_free(w->some_fit);
}

/* Functions of a wavelength, p[nl]. The smooth functions are p_l q_m, in this order; a fibre has its bundle's offset
 * besides. */
static void functions(const work *w, double wavelength, double *p)
{
    spx_legendre_basis(w->nl, spx_psf_u(w->o->wmin, w->o->wmax, wavelength), p);
}

/* Index of the offset of fibre f's bundle, of shifts (q = 0) or widths (q = 1), in the order of the product; those of
 * smooth functions are before, q smooth + i. */
static size_t offset_of(const work *w, size_t q, size_t f)
{
    return 2 * w->smooth + q * w->nb + w->bundle[f];
}

/* ---- windows ---- */

/* First of the three pixels around a place (x, y) of a trace, or SIZE_MAX. */
static size_t pixels_around(const spx_image *im, double x, double y)
{
    const double column = floor(x + 0.5), row = floor(y + 0.5);
    if (!(column >= 1 && row >= 0 && column + 1 < (double)im->nx && row < (double)im->ny))
        return SIZE_MAX;
    return (size_t)row * im->nx + (size_t)column - 1;
}

/* What three pixels tell of a shift, in arbitrary units: the square of their signal over its variance. */
static double sample_pixels(const spx_image *im, size_t at)
{
    double signal = 0, variance = 0;
    for (size_t i = at; i < at + 3; i++) {
        const int good =
            im->ivar[i] > 0 && isfinite(im->ivar[i]) && isfinite(im->data[i]) && (im->mask == NULL || im->mask[i] == 0);
        signal += good ? (double)im->data[i] : 0;
        variance += good ? 1 / (double)im->ivar[i] : 0;
    }
    return variance > 0 && signal > 0 ? signal * signal / variance : 0;
}

/* Bins of a trace that are looked at: some, each `step` behind the one before. */
typedef struct {
    size_t first, some, step, at[STRAIGHT]; /* at: the first of their three pixels; SIZE_MAX: none */
} bins_of;

/* Finds the pixels of bins less than STRAIGHT apart, between which a trace is straight. They are rows apart, and come
 * from memory while those of the fibre before are looked at. */
static void ask_for_pixels(const spx_image *im, const spx_psf *psf, const spx_shift_options *o, size_t f, bins_of *b)
{
    const double from = o->wmin + (double)b->first * o->dw, to = from + STRAIGHT * o->dw;
    const double x = spx_psf_series_value(&psf->x, f, from), y = spx_psf_series_value(&psf->y, f, from);
    const double dx = (spx_psf_series_value(&psf->x, f, to) - x) / STRAIGHT,
                 dy = (spx_psf_series_value(&psf->y, f, to) - y) / STRAIGHT;
    double lo, hi;
    spx_psf_usable(psf, f, &lo, &hi);
    for (size_t i = 0; i < b->some; i++) {
        const double bins = (double)(i * b->step), lambda = from + bins * o->dw;
        const size_t at = lambda >= lo && lambda <= hi ? pixels_around(im, x + bins * dx, y + bins * dy) : SIZE_MAX;
        b->at[i] = at;
        if (at == SIZE_MAX)
            continue;
        __builtin_prefetch(im->ivar + at);
        __builtin_prefetch(im->data + at);
        if (im->mask != NULL)
            __builtin_prefetch(im->mask + at);
    }
}

static void add_light(const spx_image *im, const bins_of *b, double *info)
{
    for (size_t i = 0; i < b->some; i++)
        info[b->first + i * b->step] += b->at[i] != SIZE_MAX ? sample_pixels(im, b->at[i]) : 0;
}

/* Information on a shift that the light of some fibres has at each bin, info[n]. Fibres take turns in bins: windows
 * have many, and the pixels of almost every one come from memory. */
static void sample_light(const spx_image *im, const spx_psf *psf, const spx_shift_options *o, size_t n, double *info)
{
    const size_t every = psf->nspec / SAMPLES + 1, seen = (psf->nspec - every / 2 + every - 1) / every;
    const size_t turns = seen < 2 * ENOUGH ? 1 : seen / ENOUGH;
#pragma omp parallel for num_threads(o->nthreads > 0 ? o->nthreads : omp_get_max_threads())
    for (size_t from = 0; from < n; from += STRAIGHT) {
        const size_t end = n - from < STRAIGHT ? n : from + STRAIGHT;
        bins_of bins[2] = {{.some = 0}};
        for (size_t f = every / 2, asked = 0; f < psf->nspec; f += every, asked++) {
            bins_of *now = &bins[asked % 2];
            now->step = turns;
            now->first = from + asked % turns;
            now->some = end > now->first ? (end - now->first + turns - 1) / turns : 0;
            ask_for_pixels(im, psf, o, f, now);
            add_light(im, &bins[(asked + 1) % 2], info);
        }
        add_light(im, &bins[(seen + 1) % 2], info);
    }
}

static size_t nbins(const spx_shift_options *o)
{
    return (size_t)((o->wmax - o->wmin) / o->dw + 0.5) + 1;
}

/* Bin at the border of parts of the range that are narrow at its ends, -cos(pi i/nw): between the extrema of a
 * Chebyshev polynomial, as a function that is smooth is best measured near the ends. even: of equal parts. */
static size_t border(size_t n, size_t i, size_t nw, int even)
{
    const double part = (double)i / (double)nw;
    return (size_t)((even ? part : 0.5 * (1 - cos(M_PI * part))) * (double)n + 0.5);
}

/* Parts of the range, of which each has a window. Ranges with little room beside the windows are seen as a whole, by
 * equal parts, as many as there is room for: those at the ends would be much shorter than a window, and the place where
 * the light tells most in one would follow its noise. */
static void divide(work *w)
{
    const size_t n = nbins(w->o);
    const double least = w->least / w->o->dw, length = fmax(w->o->window / w->o->dw, least);
    w->whole = (double)n < ROOM * length * (double)w->nw;
    while (w->nw > 1 && (double)border(n, 1, w->nw, w->whole) < (w->whole ? length : least))
        w->nw--;
}

/* Length that windows need, Angstrom, so that FREE_ROWS of them are free of the light of other bins: these rows, those
 * of a spot, and those that the fibres of a bundle are apart at one wavelength. */
static double least_length(const work *w, const spx_psf *psf)
{
    double need = 0;
    for (size_t f = 0, first = 0; f < w->ns; f++) {
        double lo, hi;
        first = w->bundle[f] != w->bundle[first] ? f : first;
        spx_psf_usable(psf, f, &lo, &hi);
        const double lambda = 0.5 * (fmax(lo, w->o->wmin) + fmin(hi, w->o->wmax)),
                     y = spx_psf_series_value(&psf->y, f, lambda);
        const double rows =
            fabs(spx_psf_series_value(&psf->y, f, lambda + 0.5) - spx_psf_series_value(&psf->y, f, lambda - 0.5));
        const double apart = fabs(y - spx_psf_series_value(&psf->y, first, lambda));
        if (psf->wave_range == NULL && rows > 0 && isfinite(apart))
            need = fmax(need, (FREE_ROWS + spx_psf_ny(psf) + apart) / rows);
    }
    return need;
}

/* Bins of the rows at an end of a window that light of other bins reaches: those of a spot. */
static size_t bins_of_end(const spx_psf *psf, const spx_shift_options *o)
{
    const double middle = 0.5 * (o->wmin + o->wmax);
    const size_t f = psf->nspec / 2;
    const double rows =
        fabs(spx_psf_series_value(&psf->y, f, middle + 0.5) - spx_psf_series_value(&psf->y, f, middle - 0.5));
    return rows > 0 ? (size_t)fmin(spx_psf_ny(psf) / (rows * o->dw) + 0.5, (double)nbins(o)) : 0;
}

/* What the light of a window of `length` bins from `first` on tells, times its part of that and of the light around its
 * ends, `end` bins to each side: a bright line there is of no use in its rows, and may reach those that are.
 * below[n + 1]: information of the bins before each. */
static double worth(size_t n, const double *below, size_t first, size_t length, size_t end)
{
    const size_t last = first + length, before = first > end ? first - end : 0,
                 behind = last + end < n ? last + end : n;
    const double inside = below[last - end] - below[first + end], around = below[behind] - below[before];
    return around > 0 ? inside * inside / around : 0;
}

/* Windows of `length` bins, one in each of nw parts of the range: where the light tells most. */
static spx_status place_windows(const spx_image *im, const spx_psf *psf, work *w, spx_err *e)
{
    const spx_shift_options *o = w->o;
    const size_t n = nbins(o);
    size_t length = (size_t)(fmin(fmax(o->window, w->least), o->wmax - o->wmin) / o->dw + 0.5) + 1;
    double *info = spx_alloc(n + 1, sizeof *info, e);
    if (info == NULL)
        return SPX_EIO;
    sample_light(im, psf, o, n, info + 1);
    for (size_t k = 0; k < n; k++) /* of the bins before k */
        info[k + 1] += info[k];
    const size_t part = border(n, 1, w->nw, w->whole);
    length = w->whole || length > part ? part : length;
    length = length > 0 ? length : 1;
    const size_t of_end = bins_of_end(psf, o), end = of_end < length / 4 ? of_end : length / 4;
    for (size_t i = 0; i < w->nw; i++) {
        const size_t from = border(n, i, w->nw, w->whole), to = border(n, i + 1, w->nw, w->whole);
        size_t best = to - from > length ? from + (to - from - length) / 2 : from;
        double most = best + length <= to ? worth(n, info, best, length, end) : INFINITY;
        for (size_t k = from; k + length <= to; k++) {
            const double here = worth(n, info, k, length, end);
            if (here > 1.001 * most) {
                best = k;
                most = here;
            }
        }
        w->first[i] = o->wmin + (double)best * o->dw;
        w->last[i] = w->first[i] + (double)(length - 1) * o->dw;
    }
    spx_free(info);
    return SPX_OK;
}

/* ---- the smooth fit ---- */

static void add_own(size_t nl, const spx_motion_row *r, double sign, const double *p, fibre_sums *s)
{
    const double f[4] = {sign * r->fisher[0], sign * r->fisher[1], sign * r->fisher[1], sign * r->fisher[2]};
    for (size_t q = 0; q < 2; q++) {
        for (size_t l = 0; l < nl; l++)
            s->right[q][l] += sign * r->gradient[q] * p[l];
        s->right_offset[q] += sign * r->gradient[q];
        for (size_t t = 0; t < 2; t++) {
            s->offset[q][t] += f[2 * q + t];
            for (size_t l = 0; l < nl; l++) {
                s->with_own[q][t][l] += f[2 * q + t] * p[l];
                for (size_t k = 0; k < nl; k++)
                    s->own[q][t][l * nl + k] += f[2 * q + t] * p[l] * p[k];
            }
        }
    }
}

/* The same with the next fibre, whose functions are `its`. */
static void add_next(size_t nl, const spx_motion_row *r, double sign, const double *p, const double *its, fibre_sums *s)
{
    for (size_t q = 0; q < 2; q++)
        for (size_t t = 0; t < 2; t++) {
            const double a = sign * r->next[2 * q + t], b = sign * r->next[2 * t + q];
            s->offset[q][t] += a + b;
            for (size_t l = 0; l < nl; l++) {
                s->with_own[q][t][l] += b * p[l];
                s->with_next[q][t][l] += a * its[l];
                for (size_t k = 0; k < nl; k++)
                    s->next[q][t][l * nl + k] += a * p[l] * its[k];
            }
        }
}

/* Functions of fibre f, and of the next one. */
static const double *of_fibre(const work *w, size_t f)
{
    return w->q + f * w->nm;
}

static const double *of_next(const work *w, size_t f)
{
    return w->q + (f + 1 < w->ns ? f + 1 : f) * w->nm;
}

/* Adds (own mine_i + b its_i) mine_j + a mine_i its_j to element (i, j) of a block [nm][nm], rows of which are n apart.
 */
SPX_CLONES
static void add_products(size_t nm, size_t n, double own, double a, double b, const double *mine, const double *its,
                         double *restrict to)
{
    for (size_t m = 0; m < nm; m++) {
        const double x = own * mine[m] + b * its[m], y = a * mine[m];
#pragma omp simd
        for (size_t i = 0; i < nm; i++)
            to[m * n + i] += x * mine[i] + y * its[i];
    }
}

/* Adds the sums of fibre f to the block of functions p_l of shifts or widths (q) with p_k of r: of the lower triangle.
 */
static void add_functions(work *w, size_t q, size_t l, size_t r, size_t k, size_t f, const fibre_sums *s)
{
    const size_t nl = w->nl, nm = w->nm;
    const double *mine = of_fibre(w, f), *its = of_next(w, f);
    const double own = s->own[q][r][l * nl + k], a = s->next[q][r][l * nl + k], b = s->next[r][q][k * nl + l];
    add_products(nm, w->n, own, a, b, mine, its, w->normal + (q * w->smooth + l * nm) * w->n + r * w->smooth + k * nm);
}

/* The same of the offset of its bundle with p_k, or with the offset of r (k = nl). */
static void add_offset(work *w, size_t q, size_t r, size_t k, size_t f, const fibre_sums *s)
{
    const size_t nm = w->nm, offset = offset_of(w, q, f);
    const double *mine = of_fibre(w, f), *its = of_next(w, f);
    if (k == w->nl)
        w->normal[offset * w->n + offset_of(w, r, f)] += s->offset[q][r];
    for (size_t m = 0; m < nm && k < w->nl; m++)
        w->normal[offset * w->n + r * w->smooth + k * nm + m] +=
            s->with_own[q][r][k] * mine[m] + s->with_next[q][r][k] * its[m];
}

/* The same of the right-hand side. */
static void add_right(work *w, size_t q, size_t l, size_t f, const fibre_sums *s)
{
    const double *mine = of_fibre(w, f);
    if (l == w->nl)
        w->right[offset_of(w, q, f)] += s->right_offset[q];
    for (size_t m = 0; m < w->nm && l < w->nl; m++)
        w->right[q * w->smooth + l * w->nm + m] += s->right[q][l] * mine[m];
}

/* All fibres' sums of a block: of functions p_l of shifts or widths (q), or offsets of bundles (l = nl), with those of
 * r and k. */
static void add_block(work *w, size_t q, size_t l, size_t r, size_t k)
{
    const int offset = l == w->nl, other = k == w->nl;
    if (offset ? other && r > q : other || r > q || (r == q && k > l))
        return; /* not of the lower triangle, which offsets are the last rows of */
    for (size_t f = 0; f < w->ns; f++) {
        const fibre_sums *s = &w->sums[f];
        if (!s->any)
            continue;
        if (offset)
            add_offset(w, q, r, k, f, s);
        else
            add_functions(w, q, l, r, k, f, s);
        if (q == r && l == k)
            add_right(w, q, l, f, s);
    }
}

/* Weight of fibre f, in window k, with the next one of its bundle. */
static double with_next(const work *w, const double *use, size_t k, size_t f)
{
    if (f + 1 >= w->ns || w->bundle[f + 1] != w->bundle[f])
        return 0;
    return sqrt(use[k * w->ns + f] * use[k * w->ns + f + 1]);
}

/* Normal equations of a step, the prior of all so far included; right[n]. begin: of no window yet; else those that are
 * used, or not, since the last time are added or taken off. */
static void sum_up(work *w, int begin)
{
    if (begin) {
        memset(w->normal, 0, w->n * w->n * sizeof *w->normal);
        memset(w->summed, 0, w->nw * w->ns * sizeof *w->summed);
        for (size_t i = 0; i < w->n; i++) {
            w->normal[i * w->n + i] = 1 / w->prior[i];
            w->right[i] = -w->total[i] / w->prior[i];
        }
    }
    const int nthreads = w->o->nthreads > 0 ? w->o->nthreads : omp_get_max_threads();
#pragma omp parallel for num_threads(nthreads)
    for (size_t f = 0; f < w->ns; f++) {
        fibre_sums *s = &w->sums[f];
        memset(s, 0, sizeof *s);
        for (size_t k = 0; k < w->nw; k++) {
            const size_t i = k * w->ns + f;
            const double own = w->use[i] - w->summed[i],
                         both = with_next(w, w->use, k, f) - with_next(w, w->summed, k, f);
            s->any |= own != 0 || both != 0;
            if (own != 0)
                add_own(w->nl, &w->row[i], own, w->p + i * w->nl, s);
            if (both != 0)
                add_next(w->nl, &w->row[i], both, w->p + i * w->nl, w->p + (i + 1) * w->nl, s);
        }
    }
    /* each block by one thread, fibre by fibre: the same sums for any number of threads */
    const size_t kinds = w->nl + 1, rows = 2 * kinds;
#pragma omp parallel for schedule(dynamic, 1) num_threads(nthreads)
    for (size_t i = 0; i < rows * rows; i++)
        add_block(w, i / rows / kinds, i / rows % kinds, i % rows / kinds, i % kinds);
    memcpy(w->summed, w->use, w->nw * w->ns * sizeof *w->use);
}

/* Series of fibre f in wavelength by coefficients c: v[2][nl], offsets apart. */
static void series_of(const work *w, const double *c, size_t f, double *v)
{
    for (size_t i = 0; i < 2 * w->nl; i++) {
        v[i] = 0;
        for (size_t m = 0; m < w->nm; m++)
            v[i] += c[i * w->nm + m] * w->q[f * w->nm + m];
    }
}

/* Shift and width of fibre f by coefficients c, at the wavelength of functions p[nl]; v: of series_of(). */
static void value(const work *w, const double *c, size_t f, const double *v, const double *p, double out[2])
{
    for (size_t q = 0; q < 2; q++) {
        out[q] = c[offset_of(w, q, f)];
        for (size_t l = 0; l < w->nl; l++)
            out[q] += v[q * w->nl + l] * p[l];
    }
}

/* The same of all windows, w->at. */
static void values(work *w, const double *c)
{
    double v[2 * MOST_TERMS];
    for (size_t f = 0; f < w->ns; f++) {
        series_of(w, c, f, v);
        for (size_t k = 0; k < w->nw; k++)
            value(w, c, f, v, w->p + (k * w->ns + f) * w->nl, w->at + 2 * (k * w->ns + f));
    }
}

/* chi^2 of g - F step, what a window has left against the smooth function, for two degrees of freedom. */
static double window_chi2(const spx_motion_row *r, const double step[2])
{
    double rest[2];
    const double determinant = r->fisher[0] * r->fisher[2] - r->fisher[1] * r->fisher[1];
    rest[0] = r->gradient[0] - r->fisher[0] * step[0] - r->fisher[1] * step[1];
    rest[1] = r->gradient[1] - r->fisher[1] * step[0] - r->fisher[2] * step[1];
    if (!(determinant > 1e-12 * r->fisher[0] * r->fisher[2]))
        return rest[0] * rest[0] / r->fisher[0];
    return (rest[0] * rest[0] * r->fisher[2] - 2 * rest[0] * rest[1] * r->fisher[1] +
            rest[1] * rest[1] * r->fisher[0]) /
           determinant;
}

/* Solves for the step; 0 where the matrix is not positive definite, which its prior does not allow. */
static int solve(work *w)
{
    memcpy(w->factor, w->normal, w->n * w->n * sizeof *w->factor);
    memcpy(w->step, w->right, w->n * sizeof *w->step);
    if (!spx_dense_factor(w->n, w->factor))
        return 0;
    spx_dense_solve(w->n, w->factor, 1, w->step);
    return 1;
}

/* chi^2 of window i about the smooth function of the last step, w->at, where that is known to `rough` at best. */
static double chi2_about(const work *w, size_t i, double rough)
{
    return window_chi2(&w->row[i], w->at + 2 * i) / (1 + rough * rough * w->row[i].fisher[0]);
}

/* chi^2 beyond which a window does not agree: by the median of all about the last step, where that is more than noise
 * makes. chi2[nw * ns]: those of windows with light, *n. */
static double limit_of(work *w, double rough, double *chi2, size_t *n)
{
    *n = 0;
    values(w, w->step);
    for (size_t i = 0; i < w->nw * w->ns; i++)
        if (w->row[i].fisher[0] > 0)
            chi2[(*n)++] = chi2_about(w, i, rough);
    w->usual = *n > 0 ? spx_median(chi2, *n) / 1.386 : 1; /* median of two degrees of freedom */
    return REJECT * fmax(1, w->usual);
}

/* Information on shifts that fibre f usually has in window k: medians of windows over all fibres, times that of the
 * fibre's ratios to them. sorted[nw * ns]: scratch. */
static void find_light(work *w, double *sorted)
{
    for (size_t k = 0; k < w->nw; k++) {
        const spx_motion_row *row = w->row + k * w->ns;
        size_t n = 0;
        for (size_t f = 0; f < w->ns; f++)
            if (row[f].fisher[0] > 0)
                sorted[n++] = row[f].fisher[0];
        const double of_all = n > 0 ? spx_median(sorted, n) : 0;
        for (size_t f = 0; f < w->ns; f++)
            w->light[k * w->ns + f] = of_all;
    }
    for (size_t f = 0; f < w->ns; f++) {
        size_t n = 0;
        for (size_t i = f; i < w->nw * w->ns; i += w->ns)
            if (w->row[i].fisher[0] > 0)
                sorted[n++] = w->row[i].fisher[0] / w->light[i];
        const double ratio = n > 0 ? spx_median(sorted, n) : 0;
        for (size_t i = f; i < w->nw * w->ns; i += w->ns)
            w->light[i] *= ratio;
    }
}

/* Weights of Cauchy's estimate by the last step: a window pulls the less the further it is off. A hit has far more
 * light than a star, too: no window tells more than its star usually does, for where stars are faint a hit would bend
 * the function to itself, and none knows the function better than to `rough`, or hits of chi^2 10^6 bend it so far that
 * their neighbours seem to be wrong. last: 1 and 0 in place of these weights. */
static void weigh(work *w, double rough, int last, double *chi2)
{
    size_t n;
    const double limit = limit_of(w, rough, chi2, &n);
    for (size_t i = 0; i < w->nw * w->ns; i++) {
        const double information = w->row[i].fisher[0];
        if (!(information > 0))
            continue;
        const double here = chi2_about(w, i, rough), usual = fmin(w->light[i], information);
        w->use[i] = last ? !(here > limit) : fmin(1, limit / here) * usual / information / (1 + rough * rough * usual);
    }
}

/* Leaves windows out that do not agree with the smooth function: hit by a particle, or beside a star's ghost. chi2: as
 * of limit_of(). Returns whether weights have changed. */
static int reject(work *w, spx_shift *out, double *chi2)
{
    size_t n = 0, nlit;
    int again = 0;
    const double limit = limit_of(w, 0, chi2, &nlit);
    for (size_t i = 0; i < nlit; i++)
        n += chi2[i] > limit;
    const int all = (double)n > MOST_REJECT * (double)nlit; /* then it is the smooth function that is wrong */
    out->chi2_smooth = 0;
    out->nwindow_used = nlit - n;
    out->nwindow_rejected = all ? 0 : n;
    for (size_t i = 0; i < w->nw * w->ns; i++) {
        if (!(w->row[i].fisher[0] > 0))
            continue;
        const double here = chi2_about(w, i, 0);
        const int keep = !(here > limit);
        out->chi2_smooth += keep ? here : 0;
        again |= w->use[i] != (keep || all);
        w->use[i] = keep || all;
    }
    return again;
}

/* ---- the PSF ---- */

spx_status spx_shift_psf_copy(const spx_psf *from, spx_psf *to, spx_err *e)
{
    *to = (spx_psf){0};
    const spx_status st = spx_psf_require(from, SPX_PSF_SPOTS | SPX_PSF_RANGES, "the fit of shifts",
                                          "extract with the PSF as it is, or make one of this exposure", e);
    return st == SPX_OK ? spx_psf_copy(from, to, e) : st;
}

/* Beyond the measured wavelengths a series goes on as nearly as it can with what it has at their ends: OUTSIDE places
 * to each side, of this weight: that of a prior of 0.1 pixel, where shifts along the traces are known to 0.01. A cubic
 * over an eighth of an arm would end pixels away, and widths below 0; with 1e-4 it ended 0.4 pixel away in the mean,
 * and within the range it is followed to 0.02 pixel with either. */
enum { OUTSIDE = 8 };
#define WEIGHT 1e-2

/* Place k of those where a series is determined: wavelength, weight, and the number of the value there. */
static double place_of(size_t k, double wmin, double wmax, size_t m, const double *lambda, double *weight,
                       size_t *value)
{
    const int up = lambda[m - 1] >= lambda[0];
    const size_t low = up ? 0 : m - 1, high = m - 1 - low;
    const double part = (double)(k < m ? 0 : (k - m) % OUTSIDE + 1) / OUTSIDE;
    *weight = 1;
    *value = k;
    if (k < m)
        return lambda[k];
    *value = k < m + OUTSIDE ? low : high;
    const double end = k < m + OUTSIDE ? wmin : wmax, from = lambda[*value];
    *weight = (k < m + OUTSIDE ? end < from : end > from) ? WEIGHT : 0;
    return from + part * (end - from);
}

size_t spx_shift_projection(double wmin, double wmax, size_t use, size_t m, const double *lambda, double *to)
{
    double p[16], g[256], weight;
    size_t value;
    for (use = use > SPX_SHIFT_MOST_USE ? SPX_SHIFT_MOST_USE : use; use > 0; use--) {
        memset(g, 0, sizeof g);
        for (size_t k = 0; k < m + 2 * OUTSIDE; k++) {
            spx_legendre_basis(use, spx_psf_u(wmin, wmax, place_of(k, wmin, wmax, m, lambda, &weight, &value)), p);
            for (size_t i = 0; i < use; i++)
                for (size_t j = 0; j <= i; j++)
                    g[i * use + j] += weight * p[i] * p[j];
        }
        if (!spx_small_factor(use, g)) /* a range so short that higher terms are all alike */
            continue;
        memset(to, 0, use * m * sizeof *to);
        for (size_t k = 0; k < m + 2 * OUTSIDE; k++) {
            spx_legendre_basis(use, spx_psf_u(wmin, wmax, place_of(k, wmin, wmax, m, lambda, &weight, &value)), p);
            spx_small_solve(use, g, p);
            for (size_t i = 0; i < use; i++)
                to[i * m + value] += weight * p[i];
        }
        return use;
    }
    return 0;
}

void spx_shift_project(size_t n, const double *projection, size_t m, const double *y, double *c)
{
    for (size_t i = 0; i < n; i++) {
        double sum = c[i];
        for (size_t k = 0; k < m; k++)
            sum += projection[i * m + k] * y[k];
        c[i] = sum;
    }
}

void spx_shift_add_series(size_t n, double *c, double wmin, double wmax, size_t use, size_t m, const double *lambda,
                          const double *y)
{
    double to[SPX_SHIFT_MOST_USE * SPX_SHIFT_NODES];
    spx_shift_project(spx_shift_projection(wmin, wmax, use > n ? n : use, m, lambda, to), to, m, y, c);
}

/* Where polynomials of a fibre are compared: nodes over the wavelengths that are measured and that its trace has. */
typedef struct {
    double low, high, lambda[SPX_SHIFT_NODES], p[SPX_SHIFT_NODES * MOST_TERMS];
    double centre[SPX_SHIFT_MOST_USE * SPX_SHIFT_NODES],
        width[SPX_SHIFT_MOST_USE * SPX_SHIFT_NODES];   /* projections on the trace, and its width */
    double shape[SPX_SHIFT_NODES][SPX_SHIFT_MOST_USE]; /* polynomials of widths; not of longer series */
    size_t ncentre, nwidth;
} nodes;

static void make_nodes(const work *w, const spx_psf *psf, size_t f, nodes *n)
{
    double lo, hi;
    spx_psf_usable(psf, f, &lo, &hi);
    lo = fmax(lo, w->o->wmin);
    hi = fmin(hi, w->o->wmax);
    if (n->ncentre > 0 && psf->wave_range == NULL && lo == n->low && hi == n->high)
        return;
    n->low = lo;
    n->high = hi;
    const double *own = psf->wave_range != NULL ? psf->wave_range + 2 * f : NULL;
    for (size_t k = 0; k < SPX_SHIFT_NODES; k++) {
        n->lambda[k] = lo + (hi - lo) * (double)k / (SPX_SHIFT_NODES - 1);
        functions(w, n->lambda[k], n->p + k * w->nl);
    }
    n->ncentre =
        spx_shift_projection(own ? own[0] : psf->x.wmin, own ? own[1] : psf->x.wmax,
                             w->nl < psf->x.ncoef ? w->nl : psf->x.ncoef, SPX_SHIFT_NODES, n->lambda, n->centre);
    n->nwidth = spx_shift_projection(own ? own[0] : psf->wmin, own ? own[1] : psf->wmax, psf->ndeg, SPX_SHIFT_NODES,
                                     n->lambda, n->width);
    for (size_t k = 0; k < SPX_SHIFT_NODES && psf->ndeg <= SPX_SHIFT_MOST_USE; k++)
        spx_legendre_basis(psf->ndeg, spx_psf_param_u(psf, f, n->lambda[k]), n->shape[k]);
}

/* Value of a series of widths, c[ndeg], at node k. */
static double width_at(const spx_psf *psf, const double *c, size_t f, const nodes *n, size_t k)
{
    return psf->ndeg > SPX_SHIFT_MOST_USE ? spx_legendre_sum(psf->ndeg, c, spx_psf_param_u(psf, f, n->lambda[k]))
                                          : spx_basis_sum((int)psf->ndeg, c, n->shape[k]);
}

/* Fibre f of a PSF, whose trace is that of before; n: nodes of the fibre before, of this one then. */
static void move_fibre(const work *w, const spx_psf *from, const double *coef, size_t f, int moves, nodes *n,
                       spx_psf *psf)
{
    const int row[2] = {psf->sigx, psf->type == SPX_PSF_GAUSS_HERMITE2 ? psf->sigx2 : -1};
    double v[2 * MOST_TERMS], dx[SPX_SHIFT_NODES], e[SPX_SHIFT_NODES], ds[SPX_SHIFT_NODES], at[2];
    make_nodes(w, from, f, n);
    series_of(w, coef, f, v);
    for (size_t k = 0; k < SPX_SHIFT_NODES; k++) {
        value(w, coef, f, v, n->p + k * w->nl, at);
        dx[k] = at[0];
        e[k] = at[1];
    }
    if (moves && n->high > n->low)
        spx_shift_project(n->ncentre, n->centre, SPX_SHIFT_NODES, dx, psf->x.coef + f * psf->x.ncoef);
    for (int c = 0; c < 2 && row[c] >= 0; c++) {
        const size_t to = ((size_t)row[c] * from->nspec + f) * from->ndeg;
        memcpy(psf->coeff + to, from->coeff + to, from->ndeg * sizeof *psf->coeff);
        for (size_t k = 0; k < SPX_SHIFT_NODES; k++)
            ds[k] = e[k] * width_at(from, from->coeff + to, f, n, k);
        if (moves && w->o->width && n->high > n->low)
            spx_shift_project(n->nwidth, n->width, SPX_SHIFT_NODES, ds, psf->coeff + to);
    }
}

/* psf: that of before, moved by all coefficients so far. moves[ns]: 0 leaves a fibre where it was. */
static void move(const work *w, const spx_psf *from, const double *coef, const uint8_t *moves, spx_psf *psf)
{
    const size_t ncoef = from->x.ncoef;
#pragma omp parallel num_threads(w->o->nthreads > 0 ? w->o->nthreads : omp_get_max_threads())
    {
        nodes n = {0};
#pragma omp for schedule(static)
        for (size_t f = 0; f < w->ns; f++) {
            memcpy(psf->x.coef + f * ncoef, from->x.coef + f * ncoef, ncoef * sizeof *psf->x.coef);
            move_fibre(w, from, coef, f, moves[f], &n, psf);
        }
    }
}

/* ---- all ---- */

/* Whether a window of a bundle is at an end of the range and of the slit, where polynomials go astray if it is left
 * out. */
static int is_corner(const work *w, size_t window, size_t bundle)
{
    return (window == 0 || window + 1 == w->nw) && (bundle == 0 || bundle + 1 == w->nb);
}

static spx_status make_work(const spx_image *im, const spx_psf *psf, const spx_shift_options *o, work *w, spx_err *e)
{
    *w = (work){.o = o, .ns = psf->nspec, .nw = o->nwindow};
    if (!(o->wmax > o->wmin && o->dw > 0) || o->bundle_size == 0 || o->nwindow == 0 || !(o->window >= o->dw) ||
        o->degree_wave > 9 || o->degree_fibre > 15)
        return spx_fail(e, SPX_EUSAGE,
                        "%zu windows of %g Angstrom between %g and %g, functions of degrees %d and %d: nothing to "
                        "measure",
                        o->nwindow, o->window, o->wmin, o->wmax, o->degree_wave, o->degree_fibre);
    w->motion = (spx_motion_options){.nwindow = w->nw,
                                     .dw = o->dw,
                                     .bundle_size = o->bundle_size,
                                     .psf_bundles = o->psf_bundles,
                                     .nthreads = o->nthreads,
                                     .image = o->image};
    w->nb = spx_motion_bundles(psf, &w->motion);
    w->bundle = spx_alloc(w->ns, sizeof *w->bundle, e);
    if (w->bundle == NULL)
        return SPX_EIO;
    for (size_t f = 0; f < w->ns; f++)
        w->bundle[f] = spx_motion_bundle_of(psf, &w->motion, f);
    w->least = least_length(w, psf);
    divide(w);
    w->motion.nwindow = w->nw;
    const size_t bears = 1 + psf->nspec / FIBRES_A_TERM;
    w->nl = o->degree_wave < 0 ? 4 : (size_t)o->degree_wave + 1;
    w->nl = w->nl < w->nw ? w->nl : w->nw;
    w->nl = w->nl < psf->x.ncoef ? w->nl : psf->x.ncoef;
    w->nm = o->degree_fibre < 0 ? (bears < 7 ? bears : 7) + 1 : (size_t)o->degree_fibre + 1;
    w->nm = w->nm < psf->nspec ? w->nm : psf->nspec;
    w->smooth = w->nl * w->nm;
    w->n = 2 * (w->smooth + w->nb);
    const size_t rows = w->nw * w->ns;
    w->row = spx_alloc(rows, sizeof *w->row, e);
    w->fit = spx_alloc(w->nw * w->nb, sizeof *w->fit, e);
    w->first = spx_alloc(2 * w->nw, sizeof *w->first, e);
    w->total = spx_alloc(4 * w->n, sizeof *w->total, e);
    w->normal = spx_alloc2(2 * w->n, w->n, sizeof *w->normal, e);
    w->use = spx_alloc2(rows, 3, sizeof *w->use, e);
    w->only = spx_alloc(w->nw * w->nb, 1, e);
    w->some = spx_alloc(rows, sizeof *w->some, e);
    w->sums = spx_alloc_unset(w->ns, 1, sizeof *w->sums, e);
    w->some_fit = spx_alloc(w->nw * w->nb, sizeof *w->some_fit, e);
    const size_t functions_of = rows * (w->nl + 2) + w->ns * w->nm;
    w->p = spx_alloc(functions_of, sizeof *w->p, e);
    if (!w->row || !w->fit || !w->first || !w->total || !w->normal || !w->use || !w->p || !w->only || !w->some ||
        !w->some_fit || !w->sums)
        return SPX_EIO;
    w->motion.first = w->first;
    w->motion.last = w->last = w->first + w->nw;
    w->factor = w->normal + w->n * w->n;
    w->summed = w->use + rows;
    w->light = w->summed + rows;
    w->at = w->p + rows * w->nl;
    w->q = w->at + 2 * rows;
    for (size_t f = 0; f < w->ns; f++)
        spx_legendre_basis(w->nm, w->ns > 1 ? 2 * (double)f / (double)(w->ns - 1) - 1 : 0, w->q + f * w->nm);
    w->step = w->total + w->n;
    w->prior = w->step + w->n;
    w->right = w->prior + w->n;
    for (size_t i = 0; i < w->n; i++) {
        const int offset = i >= 2 * w->smooth, q = i >= (offset ? 2 * w->smooth + w->nb : w->smooth);
        /* a term that the PSF's series of widths cannot take would be asked for again in each step */
        const int taken = o->width && (offset || (i - w->smooth) / w->nm < psf->ndeg);
        const double error = q == 0  ? offset ? PRIOR_BUNDLE : PRIOR_SHIFT
                             : taken ? offset ? PRIOR_BUNDLE_WIDTH : PRIOR_WIDTH
                                     : NOT_FREE;
        w->prior[i] = error * error;
    }
    const size_t every = w->nw * w->nb >= MANY_WINDOWS ? 3 : 2;
    if (w->nb >= MANY_BUNDLES && w->nw >= every) {
        for (size_t i = 0; i < w->nw * w->nb; i++)
            w->only[i] = (i / w->nb + i % w->nb) % every == 0 || is_corner(w, i / w->nb, i % w->nb);
        w->motion.only = w->only;
        w->motion.rough = 1;
    }
    return place_windows(im, psf, w, e);
}

/* Compares chi^2 with that of the best step, of windows of bundles that both have measured and that no hit is in: what
 * the function does to a hit says nothing of it. best[nw * nb]: NAN where there is none; 1: it is higher. rough: only
 * some were measured. */
static int is_worse(const work *w, int rough, double *now, const double *best)
{
    double before = 0, after = 0;
    for (size_t i = 0; i < w->nw * w->nb; i++)
        now[i] = (rough && !w->only[i]) || !(w->fit[i].chi2 > 0) ? NAN : w->fit[i].chi2;
    for (size_t i = 0; i < w->nw * w->ns; i++)
        if (w->row[i].fisher[0] > 0 && w->use[i] == 0)
            now[i / w->ns * w->nb + w->bundle[i % w->ns]] = NAN;
    for (size_t i = 0; i < w->nw * w->nb; i++)
        if (!isnan(now[i]) && !isnan(best[i])) {
            before += best[i];
            after += now[i];
        }
    return after > (1 + RAISED) * before;
}

/* chi^2 of the windows that the first step looked at. */
static double sparse_chi2(const work *w)
{
    double sum = 0;
    for (size_t i = 0; i < w->nw * w->nb; i++)
        sum += w->only[i] ? w->fit[i].chi2 : 0;
    return sum;
}

/* Measures all windows, or those of w->only: the rows of the others stay, but for the first step. */
static spx_status measure_windows(work *w, spx_shift_measure *measure, void *ctx, const spx_image *image,
                                  const spx_psf *psf, spx_err *e)
{
    if (w->motion.only == NULL || w->motion.rough)
        return measure(ctx, image, psf, &w->motion, w->row, w->fit, e);
    const spx_status st = measure(ctx, image, psf, &w->motion, w->some, w->some_fit, e);
    for (size_t k = 0; k < w->nw && st == SPX_OK; k++)
        for (size_t f = 0; f < w->ns; f++)
            if (w->only[k * w->nb + w->bundle[f]]) {
                w->row[k * w->ns + f] = w->some[k * w->ns + f];
                w->fit[k * w->nb + w->bundle[f]] = w->some_fit[k * w->nb + w->bundle[f]];
            }
    return st;
}

/* The step that windows ask for: of all, where they agree; else robust weights begin, and those that are off are left
 * out. */
static spx_status fit_windows(work *w, spx_shift *out, spx_err *e)
{
    double *chi2 = spx_alloc(w->nw * w->ns, sizeof *chi2, e);
    spx_status st = chi2 == NULL ? SPX_EIO : SPX_OK;
    for (int round = 0, again = 1; again && round < 1 + ROBUST_ROUNDS + REJECT_ROUNDS && st == SPX_OK; round++) {
        sum_up(w, round == 0);
        if (!solve(w))
            st = spx_fail_remedy(e, SPX_EINPUT, "look for pixels without a mask that are far brighter than any star",
                                 "the smooth fit of the shifts has no solution");
        else if (round == 0 || round > ROBUST_ROUNDS)
            again = reject(w, out, chi2);
        if (again && round == 0) {
            memset(w->step, 0, w->n * sizeof *w->step); /* hits have bent the function: begin without it */
            find_light(w, chi2);
        }
        if (again && round < ROBUST_ROUNDS)
            weigh(w, ROUGH * pow(0.5, fmax(0, round + 1 - ROBUST_ROUNDS / 2)), round + 1 == ROBUST_ROUNDS, chi2);
    }
    spx_free(chi2);
    return st;
}

/* Measures the windows of a PSF, and the step that they ask for. *largest: of it, over all fibres and windows. */
static spx_status one_step(work *w, spx_shift_measure *measure, void *ctx, const spx_image *image, const spx_psf *psf,
                           spx_shift *out, double *largest, double *chi2, spx_err *e)
{
    spx_status st = measure_windows(w, measure, ctx, image, psf, e);
    *chi2 = *largest = out->dof = 0;
    for (size_t i = 0; i < w->nw * w->nb && st == SPX_OK; i++) {
        *chi2 += w->fit[i].chi2;
        out->dof += w->fit[i].npix - w->fit[i].nflux;
    }
    for (size_t i = 0; i < w->nw * w->ns && st == SPX_OK; i++) {
        w->use[i] = w->row[i].fisher[0] > 0;
        functions(w, w->row[i].wavelength, w->p + i * w->nl);
    }
    if (st == SPX_OK)
        st = fit_windows(w, out, e);
    if (st == SPX_OK)
        values(w, w->step);
    for (size_t i = 0; i < 2 * w->nw * w->ns && st == SPX_OK; i++)
        *largest = fmax(*largest, fabs(w->at[i]));
    return st;
}

/* chi^2 of the image that a step takes off in row i = (window, fibre) and with the next fibre; w->at: the step. */
static double gain_of(const work *w, size_t i, int next)
{
    const spx_motion_row *r = &w->row[i];
    const double *step = w->at + 2 * i, *its = step + 2;
    double sum = 2 * (r->gradient[0] * step[0] + r->gradient[1] * step[1]) - r->fisher[0] * step[0] * step[0] -
                 2 * r->fisher[1] * step[0] * step[1] - r->fisher[2] * step[1] * step[1];
    if (next)
        sum -= 2 * (step[0] * (r->next[0] * its[0] + r->next[1] * its[1]) +
                    step[1] * (r->next[2] * its[0] + r->next[3] * its[1]));
    return sum;
}

/* The same of all windows that are used, by the last step, which is not measured again. */
static double gain(work *w)
{
    double sum = 0;
    values(w, w->step);
    for (size_t k = 0; k < w->nw; k++)
        for (size_t f = 0; f < w->ns; f++)
            if (w->use[k * w->ns + f] != 0)
                sum += gain_of(w, k * w->ns + f, with_next(w, w->use, k, f) > 0);
    return sum;
}

/* Whether fibre f has a next one in its bundle. */
static int has_next(const work *w, size_t f)
{
    return f + 1 < w->ns && w->bundle[f + 1] == w->bundle[f];
}

/* Chooses the windows of bundles whose traces the last step has moved so far that they have to be measured again. In
 * the others chi^2 is a parabola, and g - F step what the next step meets. */
static void choose_far(work *w)
{
    memset(w->only, 0, w->nw * w->nb);
    values(w, w->step);
    for (size_t k = 0; k < w->nw; k++)
        for (size_t f = 0; f < w->ns; f++) {
            const double *step = w->at + 2 * (k * w->ns + f);
            if (w->row[k * w->ns + f].fisher[0] > 0 && fmax(fabs(step[0]), fabs(step[1])) > FAR_STEP)
                w->only[k * w->nb + w->bundle[f]] = 1;
        }
    for (size_t k = 0; k < w->nw; k++)
        for (size_t f = 0; f < w->ns; f++)
            if (!w->only[k * w->nb + w->bundle[f]])
                w->fit[k * w->nb + w->bundle[f]].chi2 -= gain_of(w, k * w->ns + f, has_next(w, f));
    for (size_t i = 0; i < w->nw * w->ns; i++) {
        spx_motion_row *r = &w->row[i];
        const size_t f = i % w->ns;
        const double *step = w->at + 2 * i, *its = step + 2;
        for (size_t q = 0; q < 2; q++) {
            r->gradient[q] -= r->fisher[q] * step[0] + r->fisher[q + 1] * step[1];
            if (has_next(w, f)) {
                r->gradient[q] -= r->next[2 * q] * its[0] + r->next[2 * q + 1] * its[1];
                r[1].gradient[q] -= r->next[q] * step[0] + r->next[2 + q] * step[1];
            }
        }
    }
    w->motion.only = w->only;
}

static spx_status alloc_out(const work *w, const spx_psf *psf, spx_shift *out, spx_err *e)
{
    const size_t at = w->ns * SPX_SHIFT_PLACES, windows = w->ns * w->nw;
    double **const places[] = {&out->dx, &out->dx_error, &out->width_x, &out->width_x_error,
                               &out->dy, &out->dy_error, &out->width_y, &out->width_y_error};
    double **const local[] = {&out->window_wavelength, &out->window_dx, &out->window_dx_error, &out->window_width_x,
                              &out->window_width_x_error};
    spx_status st = SPX_OK;
    for (size_t i = 0; i < sizeof places / sizeof *places && st == SPX_OK; i++)
        st = (*places[i] = spx_alloc(at, sizeof(double), e)) == NULL ? SPX_EIO : SPX_OK;
    for (size_t i = 0; i < sizeof local / sizeof *local && st == SPX_OK; i++)
        st = (*local[i] = spx_alloc(windows, sizeof(double), e)) == NULL ? SPX_EIO : SPX_OK;
    if (st == SPX_OK && ((out->wavelength = spx_alloc(SPX_SHIFT_PLACES, sizeof(double), e)) == NULL ||
                         (out->flags = spx_alloc(w->ns, sizeof *out->flags, e)) == NULL ||
                         (out->coef = spx_alloc(w->n, sizeof(double), e)) == NULL ||
                         (out->covariance = spx_alloc2(w->n, w->n, sizeof(double), e)) == NULL))
        st = SPX_EIO;
    out->nspec = w->ns;
    out->nplace = SPX_SHIFT_PLACES;
    memcpy(out->camera, psf->camera, sizeof out->camera);
    out->wmin = w->o->wmin;
    out->wmax = w->o->wmax;
    out->nterm_wave = w->nl;
    out->nterm_fibre = w->nm;
    out->nbundle = w->nb;
    out->ncoef = w->n;
    out->nwindow = w->nw;
    for (size_t k = 0; k < SPX_SHIFT_PLACES && st == SPX_OK; k++)
        out->wavelength[k] = out->wmin + (out->wmax - out->wmin) * (double)k / (SPX_SHIFT_PLACES - 1);
    return st;
}

/* Factor of the errors' squares: the median of windows, for a hit by a particle is no reason; chi2 of the image: spots
 * may be unlike those of the PSF. */
static double enlargement(const work *w, const spx_shift *out)
{
    return fmax(fmax(1, w->usual), out->dof > 0 ? out->chi2_after / out->dof : 1);
}

/* Kinds of functions of shifts (q = 0) and widths (1) of which as little is expected as they show: of wavelength alone,
 * of fibres alone, of both. */
enum { COMMON, SLIT, BOTH, KINDS };

/* Empirical prior: coefficients of a kind have the variance that they show beyond their errors, if any, so that motion
 * without them does not get their noise; another step from the same windows. covariance[n][n]: scratch. 0: no solution.
 */
static int shrink(work *w, double *covariance)
{
    double square[16 * MOST_TERMS], variance[16 * MOST_TERMS];
    memset(covariance, 0, w->n * w->n * sizeof *covariance);
    for (size_t i = 0; i < w->n; i++)
        covariance[i * (w->n + 1)] = 1;
    spx_dense_solve(w->n, w->factor, w->n, covariance);
    for (size_t part = 0; part < 2 * KINDS; part++) {
        const size_t q = part / KINDS, kind = part % KINDS, l0 = kind == SLIT ? 0 : 1, m0 = kind == COMMON ? 0 : 1;
        const size_t l1 = kind == SLIT ? 1 : w->nl, m1 = kind == COMMON ? 1 : w->nm;
        size_t n = 0;
        for (size_t l = l0; l < l1; l++)
            for (size_t m = m0; m < m1; m++, n++) {
                const size_t i = q * w->smooth + l * w->nm + m;
                const double c = w->total[i] + w->step[i];
                square[n] = c * c;
                variance[n] = covariance[i * (w->n + 1)];
            }
        const double found = spx_intrinsic_variance(n, square, variance, 1, &(spx_scatter_prior){.odds = 1}, NULL);
        for (size_t l = l0; l < l1; l++)
            for (size_t m = m0; m < m1; m++) {
                const size_t i = q * w->smooth + l * w->nm + m;
                const double more = fmax(1 / fmax(found, LEAST_VARIANCE * w->prior[i]) - 1 / w->prior[i], 0);
                w->normal[i * (w->n + 1)] += more;
                w->right[i] -= more * w->total[i];
            }
    }
    return solve(w);
}

/* Covariance of all coefficients from the factor, enlarged where windows or pixels scatter more than they should. */
static void fill_covariance(const work *w, spx_shift *out)
{
    const size_t free = (w->o->width ? 2 : 1) * w->nl * w->nm;
    out->dof_smooth = 2 * (double)out->nwindow_used - (double)free;
    const double more = enlargement(w, out);
    for (size_t i = 0; i < w->n; i++)
        out->covariance[i * w->n + i] = 1;
    spx_dense_solve(w->n, w->factor, w->n, out->covariance);
    for (size_t i = 0; i < w->n; i++) /* row i is the solution of side i */
        for (size_t j = 0; j <= i; j++) {
            const double other = more * out->covariance[j * w->n + i];
            out->covariance[j * w->n + i] = more * out->covariance[i * w->n + j];
            out->covariance[i * w->n + j] = other;
        }
}

/* Covariance of fibre f's series in wavelength (q = 0: shift, 1: width), with its offset last: own[nl + 1][nl + 1]. */
static void covariance_of(const work *w, const double *covariance, size_t q, size_t f, double *own)
{
    const size_t nl = w->nl, nm = w->nm, offset = offset_of(w, q, f);
    const double *m = w->q + f * nm;
    for (size_t l = 0; l <= nl; l++)
        for (size_t k = 0; k <= l; k++) {
            const size_t first = l < nl ? q * w->smooth + l * nm : offset, second = q * w->smooth + k * nm;
            double sum = l == nl && k == nl ? covariance[offset * w->n + offset] : 0;
            for (size_t i = 0; i < (l < nl ? nm : 1) && k < nl; i++) {
                double here = 0;
                for (size_t j = 0; j < nm; j++)
                    here += m[j] * covariance[(first + i) * w->n + second + j];
                sum += here * (l < nl ? m[i] : 1);
            }
            own[l * (nl + 1) + k] = own[k * (nl + 1) + l] = sum;
        }
}

/* Scatter of n values beyond errors that are known, at most `most`: that which makes the mean of r^2/(e^2 + tau^2), at
 * most CLIP each, 1; 0 unless it is LACKING of its errors above 1. r2, e2: squares. */
static double scatter_beyond(size_t n, const double *r2, const double *e2, double most)
{
    double low = 0, high = most;
    for (int step = 0; step < 24 && n > 0; step++) {
        const double tau = step == 0 ? 0 : 0.5 * (low + high);
        double sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += fmin(r2[i] / (e2[i] + tau * tau), CLIP);
        if (step == 0 && !(sum > (double)n + LACKING * sqrt(2 * (double)n)))
            return 0;
        *(sum > (double)n ? &low : &high) = tau;
    }
    return n > 0 ? 0.5 * (low + high) : 0;
}

/* How far the smooth functions of shifts (q = 0) or widths (q = 1) are from the motion, such as by terms that they have
 * not: scatter of windows about them, and of means over the fibres of a window. scratch[2 nw (ns + 1)]. */
static double lack_of_fit(work *w, const spx_shift *out, size_t q, double *scratch)
{
    const double more = enlargement(w, out), most = q == 0 ? PRIOR_SHIFT : PRIOR_WIDTH;
    const double *value = q == 0 ? out->window_dx : out->window_width_x,
                 *error = q == 0 ? out->window_dx_error : out->window_width_x_error;
    double *r2 = scratch, *e2 = r2 + w->nw * w->ns, *mean2 = e2 + w->nw * w->ns, *error2 = mean2 + w->nw;
    size_t n = 0, m = 0;
    values(w, w->total);
    for (size_t k = 0; k < w->nw; k++) {
        double sum = 0, weight = 0;
        for (size_t f = 0; f < w->ns; f++) {
            const size_t i = k * w->ns + f, at = f * w->nw + k;
            const double r = value[at] - w->at[2 * i + q], v = more * error[at] * error[at];
            if (w->use[i] == 0 || !(w->row[i].fisher[0] > 0))
                continue;
            r2[n] = r * r;
            e2[n++] = v;
            sum += r / v;
            weight += 1 / v;
        }
        if (weight > 0) {
            mean2[m] = sum * sum / (weight * weight);
            error2[m++] = 1 / weight;
        }
    }
    const double own = scatter_beyond(n, r2, e2, most), common = scatter_beyond(m, mean2, error2, most);
    return sqrt(own * own + common * common);
}

/* Errors at the places of the product. lack[2]: of lack_of_fit(). */
static void fill_errors(const work *w, const double *lack, spx_shift *out)
{
    const size_t n = w->nl + 1;
#pragma omp parallel for num_threads(w->o->nthreads > 0 ? w->o->nthreads : omp_get_max_threads())
    for (size_t f = 0; f < w->ns; f++)
        for (size_t q = 0; q < (w->o->width ? 2 : 1); q++) {
            double own[(MOST_TERMS + 1) * (MOST_TERMS + 1)], p[MOST_TERMS + 1];
            double *error = (q == 0 ? out->dx_error : out->width_x_error) + f * SPX_SHIFT_PLACES;
            covariance_of(w, out->covariance, q, f, own);
            for (size_t k = 0; k < SPX_SHIFT_PLACES; k++) {
                double sum = lack[q] * lack[q];
                functions(w, out->wavelength[k], p);
                p[w->nl] = 1;
                for (size_t i = 0; i < n * n; i++)
                    sum += p[i / n] * p[i % n] * own[i];
                error[k] = sum > 0 ? sqrt(sum) : 0;
            }
        }
}

/* Shifts of single windows, which are measured from the traces of the last step, as shifts of the traces before it. */
static void fill_windows(work *w, const double *before, spx_shift *out)
{
    values(w, before);
    for (size_t f = 0; f < w->ns; f++)
        for (size_t k = 0; k < w->nw; k++) {
            const spx_motion_row *r = &w->row[k * w->ns + f];
            const double *at = w->at + 2 * (k * w->ns + f);
            const double xx = r->fisher[0] + 1 / (PRIOR_SHIFT * PRIOR_SHIFT), xs = r->fisher[1];
            const double ss = r->fisher[2] + 1 / (PRIOR_WIDTH * PRIOR_WIDTH), determinant = xx * ss - xs * xs;
            const size_t to = f * w->nw + k;
            out->window_wavelength[to] = r->wavelength;
            out->window_dx[to] = at[0] + (ss * r->gradient[0] - xs * r->gradient[1]) / determinant;
            out->window_width_x[to] = at[1] + (xx * r->gradient[1] - xs * r->gradient[0]) / determinant;
            out->window_dx_error[to] = sqrt(ss / determinant);
            out->window_width_x_error[to] = sqrt(xx / determinant);
        }
}

/* Shifts and widths at the places of the product; traces that stay have the errors that were expected of them. */
static void fill_places(const work *w, const uint8_t *moves, spx_shift *out)
{
#pragma omp parallel for num_threads(w->o->nthreads > 0 ? w->o->nthreads : omp_get_max_threads())
    for (size_t f = 0; f < w->ns; f++) {
        double v[2 * MOST_TERMS], p[MOST_TERMS], change[2];
        series_of(w, w->total, f, v);
        for (size_t k = 0; k < SPX_SHIFT_PLACES; k++) {
            const size_t at = f * SPX_SHIFT_PLACES + k;
            functions(w, out->wavelength[k], p);
            value(w, w->total, f, v, p, change);
            out->dx[at] = moves[f] ? change[0] : 0;
            out->width_x[at] = moves[f] && w->o->width ? change[1] : 0;
            out->dx_error[at] = moves[f] ? out->dx_error[at] : PRIOR_SHIFT;
            out->width_x_error[at] = moves[f] || !w->o->width ? out->width_x_error[at] : PRIOR_WIDTH;
        }
    }
}

/* Flags, and which fibres move. */
static void judge(const work *w, spx_shift *out, uint8_t *moves)
{
    for (size_t f = 0; f < w->ns; f++) {
        double info = 0;
        for (size_t k = 0; k < w->nw; k++) {
            const double *h = w->row[k * w->ns + f].fisher;
            info += w->use[k * w->ns + f] != 0 && h[2] > 0 ? h[0] - h[1] * h[1] / h[2] : 0;
        }
        out->flags[f] = info * LIT * LIT > 1 ? 0 : SPX_SHIFT_NOLIGHT;
    }
    for (size_t f = 0; f < w->ns; f++) {
        int lit = 0;
        double error = 0;
        for (size_t g = f + 1; g-- > 0 && w->bundle[g] == w->bundle[f];)
            lit |= !(out->flags[g] & SPX_SHIFT_NOLIGHT);
        for (size_t g = f; g < w->ns && w->bundle[g] == w->bundle[f]; g++)
            lit |= !(out->flags[g] & SPX_SHIFT_NOLIGHT);
        for (size_t k = 0; k < SPX_SHIFT_PLACES; k++)
            error = fmax(error, out->dx_error[f * SPX_SHIFT_PLACES + k]);
        moves[f] = lit && error < KNOWN;
        if (!moves[f])
            out->flags[f] |= SPX_SHIFT_OLDX;
    }
}

spx_status spx_shift_across(spx_shift_measure *measure, void *ctx, const spx_image *image, spx_psf *psf,
                            const spx_shift_options *o, spx_shift *out, spx_err *e)
{
    work w;
    spx_psf before = {0};
    double *last = NULL, *scratch = NULL, lack[2] = {0}, *best, largest = 1, taken = 0, chi2 = 0, few = 0;
    double *now = NULL, *lowest = NULL; /* [nw * nb] chi2 of this step, and of the best one */
    int sparse = 0;                     /* the step before looked at some of the windows, whose chi2 was `few` */
    uint8_t *moves = NULL;
    spx_status st = make_work(image, psf, o, &w, e);
    if (st == SPX_OK)
        st = spx_shift_psf_copy(psf, &before, e);
    if (st == SPX_OK)
        st = alloc_out(&w, psf, out, e);
    if (st == SPX_OK &&
        ((last = spx_alloc(2 * w.n, sizeof *last, e)) == NULL ||
         (scratch = spx_alloc2(2 * w.nw, w.ns + 1, sizeof *scratch, e)) == NULL ||
         (now = spx_alloc2(2 * w.nw, w.nb, sizeof *now, e)) == NULL || (moves = spx_alloc(w.ns, 1, e)) == NULL))
        st = SPX_EIO;
    if (st == SPX_OK)
        memset(moves, 1, w.ns);
    best = st == SPX_OK ? last + w.n : NULL; /* coefficients of the lowest chi2 */
    lowest = st == SPX_OK ? now + w.nw * w.nb : NULL;
    for (size_t i = 0; st == SPX_OK && i < w.nw * w.nb; i++)
        lowest[i] = NAN;
    for (int step = 0; st == SPX_OK && step < MOST_STEPS && largest > SMALL_STEP; step++) {
        st = one_step(&w, measure, ctx, image, psf, out, &largest, &chi2, e);
        if (st == SPX_OK && largest <= SMALL_STEP && !w.motion.rough && !shrink(&w, out->covariance))
            st = spx_fail(e, SPX_EBUG, "the smooth fit of the shifts has no solution with its prior");
        if (st != SPX_OK)
            break;
        if (step == 0)
            out->chi2_before = chi2;
        if (sparse) { /* as all windows would have had it; where those were dark, this is the first step */
            const double same = sparse_chi2(&w);
            out->chi2_before = few > 0 && same > 0 ? chi2 * few / same : chi2;
        }
        const double asked = largest;
        sparse = w.motion.rough;
        if (sparse) {
            largest = 1;
            few = chi2;
        }
        /* a step that has left a much smaller one was none too long: chi2 is of other pixels then */
        const int worse = is_worse(&w, sparse, now, lowest) && asked > 0.5 * taken;
        w.motion.only = NULL;
        w.motion.rough = 0;
        memcpy(last, w.total, w.n * sizeof *last);
        if (worse) {
            largest = 1;
            taken *= 0.5;
            for (size_t i = 0; i < w.n; i++)
                w.total[i] = 0.5 * (best[i] + w.total[i]);
        } else {
            memcpy(lowest, now, w.nw * w.nb * sizeof *now);
            for (size_t i = 0; i < w.n; i++) {
                best[i] = w.total[i];
                w.total[i] += w.step[i];
            }
            taken = asked;
            if (!sparse && largest > SMALL_STEP)
                choose_far(&w);
        }
        out->steps = step + 1;
        move(&w, &before, w.total, moves, psf);
    }
    if (st == SPX_OK) {
        /* a step that is still large is no prediction: chi^2 of the last measurement, then */
        out->chi2_after = largest > SMALL_STEP ? chi2 : chi2 - gain(&w);
        fill_covariance(&w, out);
        fill_windows(&w, last, out);
        for (size_t q = 0; q < 2; q++)
            lack[q] = lack_of_fit(&w, out, q, scratch);
        out->scatter_dx = lack[0];
        fill_errors(&w, lack, out);
        judge(&w, out, moves);
        /* no convergence, or a worse image: nothing that may be used */
        out->failed = out->chi2_after > WORSE * out->chi2_before || largest > SMALL_STEP;
        if (out->failed)
            for (size_t f = 0; f < w.ns; f++) {
                moves[f] = 0;
                out->flags[f] |= SPX_SHIFT_OLDX;
            }
        if (memchr(moves, 1, w.ns) == NULL)
            out->chi2_after = out->chi2_before;
        if (memchr(moves, 0, w.ns) != NULL) /* otherwise it is where the last step has moved it */
            move(&w, &before, w.total, moves, psf);
        memcpy(out->coef, w.total, w.n * sizeof *out->coef);
        fill_places(&w, moves, out);
    }
    spx_free(last);
    spx_free(scratch);
    spx_free(moves);
    spx_free(now);
    spx_psf_free(&before);
    free_work(&w);
    return st;
}
