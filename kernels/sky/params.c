/* Scale, shift and width of fibres, and their empirical prior (sky/params.h).
 *
 * Sums run over bins in the order of the knots: bins between two knots have a block of slots, filled up with weight 0,
 * so that each element of the normal equations is a sum of whole vectors of LANES, the same on every processor. */
#include "sky/params.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "calib/bordered.h"
#include "calib/dense.h"
#include "calib/resolution.h"
#include "calib/series.h"
#include "num/stat.h"
#include "simd/vector.h"
#include "sky/sky_math.h"

/* Least tau^2, and the variance of a quantity that is left out, in units of the square of the error that is expected
 * where nothing is known. */
static const double TAU_LEAST = 1e-10, NO_WEIGHT = 1e12;
/* Change of the logarithm of squared sizes that is none. */
static const double SMALL_SIZE = 0.1;
/* Information of all fibres on a quantity, in these units, from which on they tell whether they move together. */
static const double TOLD = 100;
/* Odds that fibres which move together do not differ at all in the first term of a series, in its slope, and in a term
 * above; that a quantity of theirs has no curves. Traces are never moved by the same to the last thousandth. */
static const double FIRST_ODDS = 0.1, SLOPE_ODDS = 1, HIGHER_ODDS = 20, CURVE_ODDS = 0.1;

enum { LANES = 8, FOUR = 4, AROUND = 25, ROUNDS = 12, SWEEPS = 3 };
/* Fibres whose sums are added up by one thread: the order does not depend on the number of threads. */
enum { TOGETHER = 32 };
/* Quantities of specx-shift: loops of weigh() over so many are unrolled, as vectors in arrays would lie in memory. */
enum { USUAL = 6 };

/* Bins in the order of the spline's intervals, `slots` for each; a fit without spline has one interval. */
typedef struct {
    spx_bspline spline;
    size_t ninterval, slots, size; /* size: of an array in this order */
    size_t *first;                 /* [ninterval + 1] first bin of each */
    double *b;                     /* [7][size]: functions of the spline, the last three 0 */
    double *legendre;              /* [most terms][size] */
    double *noise;                 /* [size]; NULL: none */
} layout;

/* Memory of one thread. */
typedef struct {
    double *base;
    double *column;                                /* [K][size] */
    double *y, *w0, *w, *r, *root;                 /* [size]; root: of w0 */
    double *product;                               /* [4][slots] */
    double *d1, *d2;                               /* [nwave] */
    double *band, *border, *x, *corner, *z, *fill; /* of the bordered system */
} workspace;

static size_t most_terms(const spx_sky_terms *t)
{
    const size_t n = t->nt > t->nd ? t->nt : t->nd;
    return n > t->nk ? n : t->nk;
}

static void free_layout(layout *l)
{
    spx_free(l->first);
    spx_free(l->b);
    spx_free(l->legendre);
    spx_free(l->noise);
}

static spx_status make_layout(const spx_sky_fit *f, layout *l, spx_err *e)
{
    const double last = f->first + (double)(f->nwave - 1) * f->step;
    const size_t nterm = most_terms(&f->terms);
    size_t most = 0;
    double b[4], p[SPX_SKY_MOST];
    *l = (layout){.spline = spx_bspline_of(f->first, last, f->knots)};
    l->ninterval = l->spline.n - 3;
    l->first = spx_alloc(l->ninterval + 1, sizeof *l->first, e);
    if (l->first == NULL)
        return SPX_EIO;
    for (size_t k = 0, begun = 0; k <= f->nwave; k++) {
        const size_t i = k < f->nwave ? spx_bspline_at(&l->spline, f->first + (double)k * f->step, b) : l->ninterval;
        for (; begun <= i; begun++) { /* intervals that begin here, or had no bin */
            most = begun > 0 && k - l->first[begun - 1] > most ? k - l->first[begun - 1] : most;
            l->first[begun] = k;
        }
    }
    l->slots = (most + LANES - 1) / LANES * LANES;
    l->size = l->ninterval * l->slots;
    l->b = spx_alloc2(7, l->size, sizeof *l->b, e);
    l->legendre = spx_alloc2(nterm > 0 ? nterm : 1, l->size, sizeof *l->legendre, e);
    l->noise = f->noise != NULL ? spx_alloc(l->size, sizeof *l->noise, e) : NULL;
    if (l->b == NULL || l->legendre == NULL || (f->noise != NULL && l->noise == NULL))
        return SPX_EIO;
    for (size_t k = 0; k < f->nwave; k++) {
        const double at = f->first + (double)k * f->step;
        const size_t i = spx_bspline_at(&l->spline, at, b), slot = i * l->slots + k - l->first[i];
        for (size_t a = 0; a < 4; a++)
            l->b[a * l->size + slot] = b[a];
        spx_legendre(spx_legendre_place(f->first, last, at), nterm, p);
        for (size_t t = 0; t < nterm; t++)
            l->legendre[t * l->size + slot] = p[t];
        if (f->noise != NULL)
            l->noise[slot] = f->noise[k];
    }
    return SPX_OK;
}

static spx_status make_workspace(const spx_sky_fit *f, const layout *l, workspace *s, spx_err *e)
{
    const size_t nq = spx_sky_count(&f->terms), n = l->spline.n;
    const size_t of_system = 4 * n + nq * n + n + nq * nq + nq + nq * n + nq * nq;
    double *at = s->base =
        spx_alloc_unset(1, (nq + 5) * l->size + 4 * l->slots + 2 * f->nwave + of_system, sizeof *s->base, e);
    if (at == NULL)
        return SPX_EIO;
    s->column = at;
    s->y = s->column + nq * l->size;
    s->w0 = s->y + l->size;
    s->w = s->w0 + l->size;
    s->r = s->w + l->size;
    s->root = s->r + l->size;
    s->product = s->root + l->size;
    s->d1 = s->product + 4 * l->slots;
    s->d2 = s->d1 + f->nwave;
    s->band = s->d2 + f->nwave;
    s->border = s->band + 4 * n;
    s->x = s->border + nq * n;
    s->corner = s->x + n;
    s->z = s->corner + nq * nq;
    s->fill = s->z + nq;
    return SPX_OK;
}

/* ---- sums over slots; n is a multiple of LANES ---- */

SPX_CLONES
static void multiply(size_t n, const double *restrict a, const double *restrict b, double *restrict product)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        product[i] = a[i] * b[i];
}

/* LANES as two registers of AVX2: a longer vector would lie in memory (gcc 12). */
typedef SPX_VECTOR(double, 32) four;
typedef SPX_VECTOR_ANY(double, 32) four_any;

/* Four elements, as they lie in an array. */
#define FOUR_AT(p) (*(const four_any *)(p))

/* sum[c] = sum_i w_i x_i y_ci, y_c = y + c stride, c < 4; w NULL: 1. x is read once, and lanes of all four are added
 * together. */
static inline __attribute__((always_inline)) void sum_four(size_t n, const double *w, const double *x, size_t stride,
                                                           const double *y, double *sum)
{
    const double *y1 = y + stride, *y2 = y1 + stride, *y3 = y2 + stride;
    four l0 = {0}, l1 = {0}, l2 = {0}, l3 = {0}, h0 = {0}, h1 = {0}, h2 = {0}, h3 = {0};
    for (size_t i = 0; i < n; i += FOUR) {
        four low = FOUR_AT(x + i);
        if (w != NULL)
            low *= FOUR_AT(w + i);
        l0 += low * FOUR_AT(y + i);
        l1 += low * FOUR_AT(y1 + i);
        l2 += low * FOUR_AT(y2 + i);
        l3 += low * FOUR_AT(y3 + i);
        i += FOUR;
        four high = FOUR_AT(x + i);
        if (w != NULL)
            high *= FOUR_AT(w + i);
        h0 += high * FOUR_AT(y + i);
        h1 += high * FOUR_AT(y1 + i);
        h2 += high * FOUR_AT(y2 + i);
        h3 += high * FOUR_AT(y3 + i);
    }
#define PAIRS(a, b) (__builtin_shufflevector(a, b, 0, 4, 2, 6) + __builtin_shufflevector(a, b, 1, 5, 3, 7))
    const four p = PAIRS(l0 + h0, l1 + h1), q = PAIRS(l2 + h2, l3 + h3);
#undef PAIRS
    const four all = __builtin_shufflevector(p, q, 0, 1, 4, 5) + __builtin_shufflevector(p, q, 2, 3, 6, 7);
    memcpy(sum, &all, sizeof all);
}

SPX_CLONES
static void dots4(size_t n, const double *x, size_t stride, const double *y, double *sum)
{
    sum_four(n, NULL, x, stride, y, sum);
}

SPX_CLONES
static void weighted_dots4(size_t n, const double *w, const double *x, size_t stride, const double *y, double *sum)
{
    sum_four(n, w, x, stride, y, sum);
}

/* The same for any number. */
static void dots(size_t n, const double *x, size_t count, size_t stride, const double *y, double *sum)
{
    size_t first = 0;
    for (; first + 4 <= count; first += 4)
        dots4(n, x, stride, y + first * stride, sum + first);
    for (size_t c = first; c < count; c++)
        sum[c] = spx_dot(n, x, y + c * stride);
}

/* ---- one fibre ---- */

/* Weights of bins that are in the fit, else 0; skip NULL: none is left out. */
SPX_CLONES
static void choose_bins(size_t n, const double *restrict w, const uint8_t *restrict skip, double *restrict w0)
{
#pragma omp simd
    for (size_t k = 0; k < n; k++)
        w0[k] = w[k] > 0 ? w[k] : 0;
    if (skip != NULL) {
#pragma omp simd
        for (size_t k = 0; k < n; k++)
            w0[k] = skip[k] ? 0 : w0[k];
    }
}

/* Data without what of c is not `part`, which the scale multiplies. */
SPX_CLONES
static void fill_data(size_t n, const double *restrict w0, const double *restrict d, const double *restrict c,
                      const double *restrict part, double *restrict y)
{
#pragma omp simd
    for (size_t k = 0; k < n; k++)
        y[k] = w0[k] > 0 ? d[k] - (c[k] - part[k]) : 0;
}

/* factor x P of bins that are in the fit. */
SPX_CLONES
static void fill_column(size_t n, const double *restrict w0, double factor, const double *restrict x,
                        const double *restrict p, double *restrict column)
{
#pragma omp simd
    for (size_t k = 0; k < n; k++)
        column[k] = w0[k] > 0 ? factor * x[k] * p[k] : 0;
}

/* Columns, data and weights of a fibre in the order of slots. */
static void fill_columns(const spx_sky_fit *f, const layout *l, const double *c, const double *scaled, const double *d,
                         const double *w, workspace *s)
{
    const size_t n = f->nwave, size = l->size, nt = f->terms.nt, nd = f->terms.nd, nk = f->terms.nk;
    const double *part = nt == 0 ? s->r : scaled != NULL ? scaled : c;     /* s->r: zeros */
    memset(s->column, 0, ((nt + nd + nk) + 4) * size * sizeof *s->column); /* and y, w0, w and r, which lie behind */
    spx_derivative_row(n, f->step, c, s->d1);
    spx_derivative_row(n, f->step, s->d1, s->d2);
    for (size_t i = 0; i < l->ninterval; i++) {
        const size_t from = l->first[i] > SPX_SKY_EDGE ? l->first[i] : SPX_SKY_EDGE,
                     end = l->first[i + 1] + SPX_SKY_EDGE < n ? l->first[i + 1] : n - SPX_SKY_EDGE;
        const size_t at = i * l->slots + from - l->first[i], m = end > from ? end - from : 0;
        const double *p = l->legendre + at, *w0 = s->w0 + at, *own = nt == 0 ? part : part + from;
        choose_bins(m, w + from, f->skip != NULL ? f->skip + from : NULL, s->w0 + at);
        fill_data(m, w0, d + from, c + from, own, s->y + at);
        for (size_t t = 0; t < nt; t++)
            fill_column(m, w0, 1, own, p + t * size, s->column + t * size + at);
        for (size_t t = 0; t < nd; t++)
            fill_column(m, w0, 1, s->d1 + from, p + t * size, s->column + (nt + t) * size + at);
        for (size_t t = 0; t < nk; t++)
            fill_column(m, w0, 0.5, s->d2 + from, p + t * size, s->column + (nt + nd + t) * size + at);
    }
}

/* Corner (lower triangle) and its right-hand side, weights s->w. Sums of a row are four at a time: behind the columns
 * are y, w0, w and r, so that those behind the last are of any numbers, and are not used. */
static void sum_corner(const layout *l, size_t nq, workspace *s)
{
    double sum[SPX_SKY_MOST + FOUR];
    for (size_t q = 0; q < nq; q++) {
        const double *own = s->column + q * l->size;
        for (size_t r = 0; r < nq - q + 1; r += FOUR)
            weighted_dots4(l->size, s->w, own, l->size, own + r * l->size, sum + r);
        for (size_t r = q; r < nq; r++)
            s->corner[r * nq + q] = sum[r - q];
        s->z[q] = sum[nq - q];
    }
}

/* Weighted noise of light of scale t, the series p[nt] of legendre[nt][n]. */
SPX_CLONES
static void weigh_noise(size_t n, size_t nt, const double *p, const double *restrict legendre,
                        const double *restrict noise, const double *restrict w, double *restrict r)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        r[i] = nt > 0 ? 0 : 1;
    for (size_t t = 0; t < nt; t++) {
        const double pt = p[t];
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            r[i] += pt * legendre[t * n + i];
    }
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        r[i] = r[i] * noise[i] * w[i];
}

/* Right-hand side of light that is noise of c: light of scale t, the series p. r is not needed at this time. Returns
 * the information on t that is nothing but noise. */
static double sum_noise(const spx_sky_fit *f, const layout *l, const double *p, workspace *s)
{
    const size_t nt = f->terms.nt, nd = f->terms.nd, nk = f->terms.nk, most = nt > nk ? nt : nk;
    weigh_noise(l->size, nt, p, l->legendre, l->noise, s->w, s->r);
    for (size_t t = 0; t < most; t++) {
        const double sum = spx_dot(l->size, s->r, l->legendre + t * l->size);
        for (size_t q = 0; q < nt + nd + nk; q++)
            if (q == t ? t < nt : q == nt + nd + t)
                s->z[q] += spx_sky_noise(nt, nd, f->step, q) * sum;
    }
    return spx_dot(l->size, s->w, l->noise);
}

/* Adds what interval i tells of spline and border. */
SPX_CLONES
static void sum_interval(const layout *l, size_t nq, size_t i, const workspace *s)
{
    const size_t n = l->spline.n, at = i * l->slots;
    double *product = s->product;
    double sum[4];
    for (size_t a = 0; a < 4; a++)
        for (size_t k = 0; k < l->slots; k += FOUR) {
            const four weighted = FOUR_AT(s->w + at + k) * FOUR_AT(l->b + a * l->size + at + k);
            memcpy(product + a * l->slots + k, &weighted, sizeof weighted);
        }
    for (size_t a = 0; a < 4; a++) { /* behind the fourth function are zeros */
        sum_four(l->slots, NULL, product + a * l->slots, l->size, l->b + a * l->size + at, sum);
        for (size_t b = 0; b < 4 - a; b++)
            s->band[b * n + i + a] += sum[b];
    }
    for (size_t q = 0; q <= nq; q++) { /* behind the columns are data, as behind the border is x */
        sum_four(l->slots, NULL, s->column + q * l->size + at, l->slots, product, sum);
        for (size_t a = 0; a < 4; a++)
            s->border[q * n + i + a] += sum[a];
    }
}

/* Spline and border. */
static void sum_spline(const layout *l, size_t nq, workspace *s)
{
    const size_t n = l->spline.n;
    double most = 0;
    memset(s->band, 0, (4 * n + nq * n + n) * sizeof *s->band); /* and border and x, which lie behind */
    for (size_t i = 0; i < l->ninterval; i++)
        sum_interval(l, nq, i, s);
    /* functions without data: 0 */
    for (size_t j = 0; j < n; j++)
        most = s->band[j] > most ? s->band[j] : most;
    for (size_t j = 0; j < n; j++)
        s->band[j] += 1e-14 * most;
}

/* Residual in units of its error, of spline x and quantities p. */
SPX_CLONES
static void residuals(const layout *l, size_t nq, const double *p, const double *x, const workspace *s)
{
    for (size_t i = 0; i < l->ninterval; i++)
        for (size_t k = i * l->slots; k < (i + 1) * l->slots; k += FOUR) {
            four r = FOUR_AT(s->y + k);
            for (size_t a = 0; a < 4; a++)
                r -= x[i + a] * FOUR_AT(l->b + a * l->size + k);
            for (size_t q = 0; q < nq; q++)
                r -= p[q] * FOUR_AT(s->column + q * l->size + k);
            r *= FOUR_AT(s->root + k);
            memcpy(s->r + k, &r, sizeof r);
        }
}

SPX_CLONES
static void take_roots(size_t n, const double *restrict x, double *restrict root)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        root[i] = sqrt(x[i]);
}

/* Squares of residuals, 25 at most; -1 without weight. */
SPX_CLONES
static void square_residuals(size_t n, const double *restrict w0, const double *restrict r, double *restrict square)
{
#pragma omp simd
    for (size_t k = 0; k < n; k++) {
        const double r2 = r[k] * r[k] < 25 ? r[k] * r[k] : 25;
        square[k] = w0[k] > 0 ? r2 : -1;
    }
}

SPX_CLONES
static void weigh_bins(size_t n, const double *restrict w0, const double *restrict mean, const double *restrict r,
                       int last, double *restrict w)
{
#pragma omp simd
    for (size_t k = 0; k < n; k++)
        w[k] = w0[k] / (mean[k] > 1 ? mean[k] : 1) * spx_sky_robust_weight(fabs(r[k]), last);
}

/* w = w0 / loc spx_sky_robust_weight(). The mean is over bins with a weight; `sum` and `count` of it move along with
 * the bin. */
static void reweight(const spx_sky_fit *f, const layout *l, int last, workspace *s)
{
    double sum = 0, count = 0;
    double *square = s->d1, *mean = s->d2; /* no longer needed */
    for (size_t i = 0; i < l->ninterval; i++)
        square_residuals(l->first[i + 1] - l->first[i], s->w0 + i * l->slots, s->r + i * l->slots,
                         square + l->first[i]);
    for (size_t k = 0; k < f->nwave + AROUND; k++) {
        if (k < f->nwave && square[k] >= 0) {
            sum += square[k];
            count++;
        }
        if (k > 2 * AROUND && square[k - 2 * AROUND - 1] >= 0) {
            sum -= square[k - 2 * AROUND - 1];
            count--;
        }
        if (k >= AROUND)
            mean[k - AROUND] = count > 0 ? sum / count : 0;
    }
    for (size_t i = 0; i < l->ninterval; i++)
        weigh_bins(l->first[i + 1] - l->first[i], s->w0 + i * l->slots, mean + l->first[i], s->r + i * l->slots, last,
                   s->w + i * l->slots);
}

static void measure_star(const spx_sky_fit *f, const layout *l, size_t nq, workspace *s, double *info, double *right)
{
    const size_t n = l->spline.n;
    double *schur = s->fill + nq * n, p[SPX_SKY_MOST], noise = 0;
    for (size_t q = 0; q < nq; q++)
        p[q] = spx_sky_expected(&f->terms, q);
    take_roots(l->size, s->w0, s->root);
    for (size_t round = 0;; round++) {
        sum_corner(l, nq, s);
        if (l->noise != NULL)
            noise = sum_noise(f, l, p, s);
        sum_spline(l, nq, s);
        spx_bordered_eliminate(n, 3, s->band, nq, s->border, s->corner, s->x, s->z, s->fill);
        memcpy(right, s->z, nq * sizeof *right);
        for (size_t q = 0; q < nq; q++)
            for (size_t r = 0; r <= q; r++)
                info[q * nq + r] = info[r * nq + q] = schur[q * nq + r];
        if (round >= f->rounds)
            break;
        /* with what is expected beside, so that there is a solution whatever the lines say */
        for (size_t q = 0; q < nq; q++) {
            const double error = spx_sky_expected_error(&f->terms, f->step, q);
            schur[q * nq + q] += 1 / (error * error);
            s->z[q] += spx_sky_expected(&f->terms, q) / (error * error);
        }
        if (spx_small_factor(nq, schur))
            spx_small_solve(nq, schur, s->z);
        else
            memset(s->z, 0, nq * sizeof *s->z);
        for (size_t q = 0; q < f->terms.nt; q++)
            p[q] = spx_sky_told(spx_sky_expected(&f->terms, q), s->z[q], noise, info[0]);
        spx_bordered_return(n, nq, s->fill, s->z, s->x);
        residuals(l, nq, s->z, s->x, s);
        reweight(f, l, round + 1 == f->rounds, s);
    }
    /* a column that the spline holds already has no information of its own, but rounding */
    for (size_t q = 0; q < nq; q++) {
        if (info[q * nq + q] > 1e-10 * s->corner[q * nq + q])
            continue;
        for (size_t r = 0; r < nq; r++)
            info[q * nq + r] = info[r * nq + q] = 0;
        right[q] = 0;
    }
}

static void measure_fibre(const spx_sky_fit *f, const layout *l, const double *c, const double *scaled, const double *d,
                          const double *w, spx_sky_kind kind, workspace *s, double *info, double *right)
{
    const size_t nq = spx_sky_count(&f->terms);
    fill_columns(f, l, c, scaled, d, w, s);
    memcpy(s->w, s->w0, l->size * sizeof *s->w);
    if (kind == SPX_SKY_STAR) {
        measure_star(f, l, nq, s, info, right);
        return;
    }
    sum_corner(l, nq, s);
    memcpy(right, s->z, nq * sizeof *right);
    for (size_t q = 0; q < nq; q++)
        for (size_t r = 0; r <= q; r++)
            info[q * nq + r] = info[r * nq + q] = s->corner[q * nq + r];
}

spx_status spx_sky_measure(const spx_sky_fit *f, size_t nspec, const double *c, const double *scaled, const double *d,
                           const double *w, const uint8_t *kind, double *info, double *right, spx_err *e)
{
    const size_t n = f->nwave, nq = spx_sky_count(&f->terms);
    const int nthreads = f->nthreads > 0 ? f->nthreads : 1;
    layout l = {0};
    memset(info, 0, nspec * nq * nq * sizeof *info);
    memset(right, 0, nspec * nq * sizeof *right);
    if (nq == 0 || nspec == 0)
        return SPX_OK;
    if (nq > SPX_SKY_MOST)
        return spx_fail(e, SPX_EUSAGE, "%zu terms of scale, shift and width: not more than %d ({terms})", nq,
                        SPX_SKY_MOST);
    workspace *work = spx_alloc((size_t)nthreads, sizeof *work, e);
    spx_status st = work != NULL ? make_layout(f, &l, e) : SPX_EIO;
    for (int t = 0; t < nthreads && st == SPX_OK; t++)
        st = make_workspace(f, &l, &work[t], e);
    if (st == SPX_OK) {
#pragma omp parallel for schedule(dynamic, 4) num_threads(nthreads)
        for (size_t i = 0; i < nspec; i++)
            if (kind[i] != SPX_SKY_LEAVE)
                measure_fibre(f, &l, c + i * n, scaled != NULL ? scaled + i * n : NULL, d + i * n, w + i * n,
                              (spx_sky_kind)kind[i], &work[omp_get_thread_num()], info + i * nq * nq, right + i * nq);
    }
    for (int t = 0; t < nthreads && work != NULL; t++)
        spx_free(work[t].base);
    spx_free(work);
    free_layout(&l);
    return st;
}

/* ---- estimates and their prior ---- */

double spx_sky_expected(const spx_sky_terms *t, size_t q)
{
    return q == 0 && t->nt > 0 ? 1 : 0;
}

double spx_sky_expected_error(const spx_sky_terms *t, double step, size_t q)
{
    if (q < t->nt)
        return q == 0 ? 1 : 0.3;
    return q < t->nt + t->nd ? 0.5 * step : 0.5 * step * step;
}

/* Inverse of a positive definite matrix, of which the lower triangle is used and lost, by that of its factor; 0: it is
 * none. Divisions are what takes time: there is one a row. */
static int invert(size_t n, double *a, double *inverse)
{
    double k[SPX_SKY_MOST * SPX_SKY_MOST]; /* of the factor */
    for (size_t j = 0; j < n; j++) {
        double pivot = a[j * n + j];
        for (size_t t = 0; t < j; t++)
            pivot -= a[j * n + t] * a[j * n + t];
        if (!(pivot > 1e-13 * a[j * n + j]))
            return 0;
        k[j * n + j] = 1 / sqrt(pivot);
        for (size_t i = j + 1; i < n; i++) {
            double sum = a[i * n + j];
            for (size_t t = 0; t < j; t++)
                sum -= a[i * n + t] * a[j * n + t];
            a[i * n + j] = sum * k[j * n + j];
        }
        for (size_t c = 0; c < j; c++) {
            double sum = 0;
            for (size_t t = c; t < j; t++)
                sum -= a[j * n + t] * k[t * n + c];
            k[j * n + c] = sum * k[j * n + j];
        }
    }
    for (size_t q = 0; q < n; q++)
        for (size_t r = 0; r <= q; r++) {
            double sum = 0;
            for (size_t t = q; t < n; t++)
                sum += k[t * n + q] * k[t * n + r];
            inverse[q * n + r] = inverse[r * n + q] = sum;
        }
    return 1;
}

/* sum += c x. */
SPX_CLONES
static void multiply_add(size_t n, double c, const double *restrict x, double *restrict sum)
{
#pragma omp simd
    for (size_t k = 0; k < n; k++)
        sum[k] += c * x[k];
}

int spx_sky_estimate(size_t nq, const double *info, const double *right, double *p, double *cov)
{
    double factor[SPX_SKY_MOST * SPX_SKY_MOST], scale[SPX_SKY_MOST];
    int good = nq > 0;
    /* scaled to a unit diagonal: quantities have different units */
    for (size_t q = 0; q < nq; q++) {
        good = good && info[q * nq + q] > 0 && info[q * nq + q] < INFINITY;
        scale[q] = good ? 1 / sqrt(info[q * nq + q]) : 0;
    }
    for (size_t q = 0; q < nq && good; q++)
        for (size_t r = 0; r <= q; r++)
            factor[q * nq + r] = info[q * nq + r] * scale[q] * scale[r];
    good = good && invert(nq, factor, cov);
    for (size_t q = 0; q < nq; q++) {
        p[q] = 0;
        for (size_t r = 0; r < nq; r++) {
            cov[q * nq + r] = good ? cov[q * nq + r] * scale[q] * scale[r] : 0;
            p[q] += good ? cov[q * nq + r] * right[r] : 0;
        }
    }
    return good;
}

void spx_sky_physical(const spx_sky_terms *t, size_t nspec, const double *scale, double *info, double *right)
{
    const size_t nq = spx_sky_count(t);
    for (size_t i = 0; i < nspec; i++)
        for (size_t q = 0; q < nq; q++) {
            const double at_q = q < t->nt ? 1 : scale[i];
            right[i * nq + q] *= at_q;
            for (size_t r = 0; r < nq; r++)
                info[(i * nq + q) * nq + r] *= at_q * (r < t->nt ? 1 : scale[i]);
        }
}

/* What a fibre tells of the scatter of a quantity: its own error variance, and the square of its distance. */
typedef struct {
    double variance, square;
} fibre_scatter;

/* Values of the fibres that a prior is found of, in units of the error that is expected where nothing is known, and
 * what is known of the polynomials. Arrays of fibres are [...][size], so that LANES of them are worked on together;
 * those behind the last of the n have no weight. */
typedef struct {
    size_t n, size, nq, nterm, term[SPX_SKY_MOST + 1]; /* fibres, and with those behind; coefficients, first of each */
    double *value, *variance;                          /* [nq][size], [pairs][size] */
    double *basis;                                     /* [SPX_SKY_PRIOR_TERMS][size] */
    size_t nproduct;                                   /* of two terms of the basis, u >= t; a multiple of FOUR */
    double *product;                                   /* [nproduct][size] b_u b_t at u (u + 1)/2 + t, then 0 */
    double *out;                                       /* [nq][size] variance of a quantity that is left out, or 0 */
    double *in;                                        /* [size] 1: a fibre */
    double *weight;                                    /* [pairs][size] (V + diag(tau^2))^-1, of the last fit */
    double *weighted;                                  /* [size] scratch */
    fibre_scatter *fibre;                              /* [n] scratch */
    double together[SPX_SKY_MOST];                     /* odds that the fibres have no scatter; 0: not expected */
    double usual2[SPX_SKY_MOST]; /* squares of scatter and curves that are expected at least; 0: any */
    size_t as[SPX_SKY_MOST];     /* quantity whose scatter is expected, too; its own number: of none */
    int moving;                  /* the fibres are expected to move as one */
    double expected[SPX_SKY_MOST], tau2[SPX_SKY_MOST];
    double curve2[SPX_SKY_MOST];                             /* prior variances of coefficients of degree 1 and above */
    double unsure[SPX_SKY_MOST], unsure_curve[SPX_SKY_MOST]; /* variances of tau^2 and curve2 */
    double *a, *normal, *covariance; /* coefficients; [nterm][nterm] of scratch and of the result */
    double *told;                    /* [nterm + 1][nterm] B^T W B and B^T W p of the last fit */
    double *sum;                     /* [pairs][nproduct] sums of a fit, then the covariance of polynomials, folded */
} sample;

/* Pair of quantities, q >= r. */
static size_t at_pair(size_t q, size_t r)
{
    return q >= r ? q * (q + 1) / 2 + r : r * (r + 1) / 2 + q;
}

static size_t npair(size_t nq)
{
    return nq * (nq + 1) / 2;
}

static double sum_of(const four *sum)
{
    const double *v = (const double *)sum;
    return (v[0] + v[1]) + (v[2] + v[3]);
}

/* Square of the median deviation of quantity q from the median, as that of a normal distribution. */
static double robust_variance(const sample *s, size_t q)
{
    double *sorted = s->weighted;
    const double *value = s->value + q * s->size;
    memcpy(sorted, value, s->n * sizeof *sorted);
    const double median = spx_median(sorted, s->n);
    for (size_t i = 0; i < s->n; i++)
        sorted[i] = fabs(value[i] - median);
    const double sigma = 1.4826 * spx_median(sorted, s->n);
    return sigma * sigma;
}

/* Value of the polynomial of quantity q. */
static double polynomial(size_t nterm, const double *basis, const double *a)
{
    double sum = 0;
    for (size_t u = 0; u < nterm; u++)
        sum += a[u] * basis[u];
    return sum;
}

#define AT(array, row) (*(four_any *)((array) + (row)*s->size + i))

/* Values of fibres i ... less the polynomial of quantity q. */
static inline __attribute__((always_inline)) void residual(const sample *s, size_t i, size_t q, four *r)
{
    four sum = AT(s->value, q);
    for (size_t u = 0; u < s->term[q + 1] - s->term[q]; u++)
        sum -= s->a[s->term[q] + u] * AT(s->basis, u);
    *r = sum;
}

/* Place of b_u b_t among the products. */
static size_t at_product(size_t u, size_t t)
{
    return u >= t ? u * (u + 1) / 2 + t : t * (t + 1) / 2 + u;
}

static void make_products(size_t nproduct, const double *b, double *product)
{
    for (size_t k = 0, u = 0; k < nproduct; u++)
        for (size_t t = 0; t <= u; t++)
            product[k++] = b[u] * b[t];
}

/* Products that there are of the terms of the longest polynomial. */
static size_t count_products(size_t nq, const size_t *term)
{
    size_t most = 0;
    for (size_t q = 0; q < nq; q++)
        most = term[q + 1] - term[q] > most ? term[q + 1] - term[q] : most;
    return most * (most + 1) / 2;
}

/* W = (V + diag(tau^2))^-1 of all fibres, by V = L D L^T; 0 where that is none. */
static inline __attribute__((always_inline)) void weigh_of(const sample *s, const size_t nq)
{
    for (size_t i = 0; i < s->size; i += FOUR) {
        four l[SPX_SKY_MOST * (SPX_SKY_MOST + 1) / 2], k[SPX_SKY_MOST * (SPX_SKY_MOST + 1) / 2], d[SPX_SKY_MOST];
        const four nothing = {0};
        four in = AT(s->in, 0);
#pragma GCC unroll 8
        for (size_t j = 0; j < nq; j++) {
            const four own = AT(s->variance, at_pair(j, j)) + s->tau2[j] + AT(s->out, j);
            four pivot = own;
#pragma GCC unroll 8
            for (size_t t = 0; t < j; t++)
                pivot -= l[at_pair(j, t)] * l[at_pair(j, t)] * d[t];
            in = SPX_CHOOSE(pivot > 1e-13 * own, in, nothing);
            d[j] = SPX_CHOOSE(pivot > 1e-13 * own, pivot, nothing + 1);
            const four inverse = 1 / d[j];
#pragma GCC unroll 8
            for (size_t r = j + 1; r < nq; r++) {
                four sum = AT(s->variance, at_pair(r, j));
#pragma GCC unroll 8
                for (size_t t = 0; t < j; t++)
                    sum -= l[at_pair(r, t)] * l[at_pair(j, t)] * d[t];
                l[at_pair(r, j)] = sum * inverse;
            }
#pragma GCC unroll 8
            for (size_t c = 0; c < j; c++) { /* L^-1 */
                four sum = -l[at_pair(j, c)];
#pragma GCC unroll 8
                for (size_t t = c + 1; t < j; t++)
                    sum -= l[at_pair(j, t)] * k[at_pair(t, c)];
                k[at_pair(j, c)] = sum;
            }
            k[at_pair(j, j)] = nothing + 1;
        }
#pragma GCC unroll 8
        for (size_t j = 0; j < nq; j++)
            d[j] = in / d[j];
#pragma GCC unroll 8
        for (size_t q = 0; q < nq; q++)
#pragma GCC unroll 8
            for (size_t r = 0; r <= q; r++) {
                four sum = {0};
#pragma GCC unroll 8
                for (size_t t = q; t < nq; t++)
                    sum += k[at_pair(t, q)] * k[at_pair(t, r)] * d[t];
                AT(s->weight, at_pair(q, r)) = sum;
            }
    }
}

SPX_CLONES
static void weigh(const sample *s)
{
    if (s->nq == USUAL)
        weigh_of(s, USUAL);
    else
        weigh_of(s, s->nq);
}

/* W p of quantity q of all fibres, into s->weighted. */
SPX_CLONES
static void weigh_values(const sample *s, size_t q)
{
    for (size_t i = 0; i < s->size; i += FOUR) {
        four sum = AT(s->weight, at_pair(q, 0)) * AT(s->value, 0);
        for (size_t r = 1; r < s->nq; r++)
            sum += AT(s->weight, at_pair(q, r)) * AT(s->value, r);
        AT(s->weighted, 0) = sum;
    }
}

/* Inverse of a positive definite matrix g[n][n] by its factor (spx_small_factor()), which becomes that of L. */
static void invert_factored(size_t n, double *g, double *inverse)
{
    for (size_t j = 0; j < n; j++) {
        double *row = g + j * n;
        const double own = 1 / row[j];
        for (size_t c = 0; c < j; c++) {
            double sum = 0;
            for (size_t t = c; t < j; t++)
                sum += row[t] * g[t * n + c];
            inverse[c] = -own * sum;
        }
        memcpy(row, inverse, j * sizeof *row);
        row[j] = own;
    }
    memset(inverse, 0, n * n * sizeof *inverse);
    for (size_t t = 0; t < n; t++)
        for (size_t q = 0; q <= t; q++)
            multiply_add(t + 1, g[t * n + q], g + t * n, inverse + q * n);
}

/* Polynomials by what fibres tell of them, and the prior of their curves. */
static void solve_polynomials(sample *s)
{
    const size_t nq = s->nq, np = s->nterm;
    memcpy(s->normal, s->told, np * np * sizeof *s->normal);
    memcpy(s->a, s->told + np * np, np * sizeof *s->a);
    for (size_t q = 0; q < nq; q++)
        for (size_t u = s->term[q]; u < s->term[q + 1]; u++) {
            s->a[u] += u == s->term[q] ? s->expected[q] : 0;
            s->normal[u * (np + 1)] += u == s->term[q] ? 1 : 1 / s->curve2[q];
        }
    (void)spx_small_factor(np, s->normal); /* positive definite by the prior */
    spx_small_solve(np, s->normal, s->a);
    invert_factored(np, s->normal, s->covariance);
}

/* Polynomials by generalised least squares: B^T W B a = B^T W p. */
static void fit_polynomials(sample *s)
{
    const size_t nq = s->nq, np = s->nterm;
    weigh(s);
    memset(s->told, 0, np * np * sizeof *s->told);
    for (size_t q = 0; q < nq; q++) {
        const size_t of_q = s->term[q], nu = s->term[q + 1] - of_q;
        weigh_values(s, q);
        dots(s->size, s->weighted, nu, s->size, s->basis, s->told + np * np + of_q);
        for (size_t r = 0; r <= q; r++) {
            double *sum = s->sum + at_pair(q, r) * s->nproduct;
            dots(s->size, s->weight + at_pair(q, r) * s->size, s->nproduct, s->size, s->product, sum);
            for (size_t u = 0; u < nu; u++)
                for (size_t t = 0; t < s->term[r + 1] - s->term[r]; t++)
                    s->told[(of_q + u) * np + s->term[r] + t] = sum[at_product(u, t)];
        }
    }
    solve_polynomials(s);
}

/* Leaves quantities out that are beyond 4 sqrt(e^2 + tau^2); how many are in goes to used[nq].
 * 0: as before. */
SPX_CLONES
static int leave_out(sample *s, size_t *used)
{
    const size_t nq = s->nq;
    int changed = 0;
    for (size_t q = 0; q < nq; q++) {
        size_t in = 0;
        for (size_t i = 0; i < s->size; i += FOUR) {
            four r;
            residual(s, i, q, &r);
            const four nothing = {0}, v = AT(s->variance, at_pair(q, q)) + s->tau2[q], before = AT(s->out, q);
            const four out = SPX_CHOOSE(r * r <= 16 * v, nothing, nothing + NO_WEIGHT);
            AT(s->out, q) = out;
            for (size_t l = 0; l < FOUR && i + l < s->n; l++) {
                changed |= out[l] != before[l];
                in += !(out[l] > 0);
            }
        }
        if (in == 0) /* two fibres that contradict each other: the scatter is theirs */
            memset(s->out + q * s->size, 0, s->size * sizeof *s->out);
        used[q] = in > 0 ? in : s->n;
    }
    if (changed)
        weigh(s);
    return changed;
}

/* Covariance E[nterm][nterm] of coefficients for covariances of polynomials: those of quantity q begin at term[q].
 * folded[nproduct][pairs of quantities] gets what belongs to each product of two terms. */
static void fold_covariance(size_t nq, const size_t *term, const double *e, size_t nproduct, double *folded)
{
    const size_t np = term[nq], pairs = npair(nq);
    memset(folded, 0, nproduct * pairs * sizeof *folded);
    for (size_t q = 0, pair = 0; q < nq; q++)
        for (size_t r = 0; r <= q; r++, pair++)
            for (size_t u = term[q]; u < term[q + 1]; u++)
                for (size_t t = term[r]; t < term[r + 1]; t++)
                    folded[at_product(u - term[q], t - term[r]) * pairs + pair] += e[u * np + t];
}

/* B E B^T, [nq][nq]: covariance of the polynomials at a fibre. */
static void polynomial_covariance(size_t nq, size_t nproduct, const double *product, const double *folded, double *cov)
{
    const size_t pairs = npair(nq);
    double sum[SPX_SKY_MOST * (SPX_SKY_MOST + 1) / 2] = {0};
    for (size_t k = 0; k < nproduct; k++)
        multiply_add(pairs, product[k], folded + k * pairs, sum);
    for (size_t q = 0, pair = 0; q < nq; q++)
        for (size_t r = 0; r <= q; r++, pair++)
            cov[q * nq + r] = cov[r * nq + q] = sum[pair];
}

/* Restricted likelihood of tau^2: gradient and expected curvature [nq][nq], both doubled; sums of weights W_qq over
 * fibres, and of what the polynomials take of them. */
typedef struct {
    double gradient[SPX_SKY_MOST], curvature[SPX_SKY_MOST * SPX_SKY_MOST];
    double weight[SPX_SKY_MOST], fitted[SPX_SKY_MOST];
} slopes;

static inline __attribute__((always_inline)) void likelihood_of(const sample *s, const size_t nq, slopes *out)
{
    const size_t pairs = npair(nq);
    four sum[SPX_SKY_MOST] = {0}, weight[SPX_SKY_MOST] = {0}, taken[SPX_SKY_MOST] = {0},
         square[SPX_SKY_MOST * (SPX_SKY_MOST + 1) / 2] = {0};
    for (size_t i = 0; i < s->size; i += FOUR) {
        four of[SPX_SKY_MOST], w[SPX_SKY_MOST * (SPX_SKY_MOST + 1) / 2], cov[SPX_SKY_MOST * (SPX_SKY_MOST + 1) / 2];
        for (size_t q = 0; q < nq; q++)
            residual(s, i, q, &of[q]);
#pragma GCC unroll 32
        for (size_t pair = 0; pair < pairs; pair++) {
            w[pair] = AT(s->weight, pair);
            cov[pair] = AT(s->product, 0) * s->sum[pair];
            for (size_t k = 1; k < s->nproduct; k++)
                cov[pair] += AT(s->product, k) * s->sum[k * pairs + pair];
            square[pair] += w[pair] * w[pair];
        }
#pragma GCC unroll 8
        for (size_t q = 0; q < nq; q++) {
            four wr = {0}, fitted = {0}; /* W r; W B cov B^T W */
#pragma GCC unroll 8
            for (size_t r = 0; r < nq; r++) {
                four with = {0};
                wr += w[at_pair(q, r)] * of[r];
#pragma GCC unroll 8
                for (size_t t = 0; t < nq; t++)
                    with += cov[at_pair(r, t)] * w[at_pair(q, t)];
                fitted += w[at_pair(q, r)] * with;
            }
            sum[q] += wr * wr - w[at_pair(q, q)] + fitted;
            weight[q] += w[at_pair(q, q)];
            taken[q] += fitted;
        }
    }
    for (size_t q = 0; q < nq; q++) {
        out->gradient[q] = sum_of(&sum[q]);
        out->weight[q] = sum_of(&weight[q]);
        out->fitted[q] = sum_of(&taken[q]);
        for (size_t r = 0; r < nq; r++)
            out->curvature[q * nq + r] = sum_of(&square[at_pair(q, r)]);
    }
}

/* With the weights of the last fit. */
SPX_CLONES
static void likelihood(const sample *s, slopes *out)
{
    fold_covariance(s->nq, s->term, s->covariance, s->nproduct, s->sum);
    if (s->nq == USUAL)
        likelihood_of(s, USUAL, out);
    else
        likelihood_of(s, s->nq, out);
}

/* tau^2 by restricted maximum likelihood, one step of Fisher's scoring. Those at 0 that would be negative stay.
 * Returns the largest relative change. */
static double find_scatter(sample *s)
{
    double change = 0;
    const size_t nq = s->nq;
    slopes of;
    likelihood(s, &of);
    double *gradient = of.gradient, *curvature = of.curvature;
    for (size_t q = 0; q < nq; q++) {
        if ((s->tau2[q] > 0 || gradient[q] > 0) && curvature[q * nq + q] > 0)
            continue;
        for (size_t r = 0; r < nq; r++)
            curvature[q * nq + r] = curvature[r * nq + q] = r == q;
        gradient[q] = 0;
    }
    if (!spx_small_factor(nq, curvature))
        return 0;
    spx_small_solve(nq, curvature, gradient);
    for (size_t q = 0; q < nq; q++) {
        const double before = s->tau2[q], tau2 = before + gradient[q], now = tau2 < 0 ? 0 : tau2 > 1 ? 1 : tau2;
        s->tau2[q] = now;
        change = fmax(change, fabs(now - before) / fmax(now, before + TAU_LEAST));
    }
    return change;
}

/* Mean of a normal distribution that is cut off at 0. */
static double mean_above_zero(double mean, double sigma)
{
    const double a = -mean / sigma, density = exp(-0.5 * a * a) / sqrt(2 * M_PI), above = 0.5 * erfc(a * M_SQRT1_2);
    return a > 6 ? sigma / a : mean + sigma * density / above; /* beyond: of an exponential tail */
}

/* Information of a fibre that its own error leaves at least, of that with the scatter; part of the fibres' information
 * that polynomials leave at least. */
static const double LEAST_OWN = 1e-3, LEAST_FREE = 0.1;

static int by_variance(const void *a, const void *b)
{
    const double left = ((const fibre_scatter *)a)->variance, right = ((const fibre_scatter *)b)->variance;
    return (left > right) - (left < right);
}

/* Square of the scatter of quantity q that is usual: terms above the first of a series scatter as that does; 0: any. */
static double usual_scatter(const sample *s, size_t q)
{
    if (s->as[q] == q)
        return s->usual2[q];
    return fmax(fmax(s->usual2[q], s->tau2[s->as[q]]), TAU_LEAST);
}

/* tau^2 of quantity q by evidence. With the others' tau^2 and the polynomials as they are, a fibre of residual r tells
 * of it as one value, (W r)_q / W_qq of variance 1/W_qq - tau^2: exact, since W is (V + diag(tau^2))^-1. Fibres of
 * similar errors are taken together. of: of the last fit. */
static double evident_scatter(sample *s, size_t q, const slopes *of)
{
    enum { MOST_GROUPS = 16 };
    const size_t size = s->size;
    const spx_scatter_prior prior = {.odds = s->together[q], .usual = usual_scatter(s, q), .larger = s->moving};
    double square[MOST_GROUPS] = {0}, variance[MOST_GROUPS] = {0};
    fibre_scatter *value = s->fibre;
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        const double w = s->weight[at_pair(q, q) * size + i];
        double wr = 0;
        if (!(w > 0) || s->out[q * size + i] > 0)
            continue;
        for (size_t r = 0; r < s->nq; r++) {
            double of_r = s->value[r * size + i];
            for (size_t u = 0; u < s->term[r + 1] - s->term[r]; u++)
                of_r -= s->a[s->term[r] + u] * s->basis[u * size + i];
            wr += s->weight[at_pair(q, r) * size + i] * of_r;
        }
        value[n++] = (fibre_scatter){fmax(1 / w - s->tau2[q], LEAST_OWN / w), wr / w * (wr / w)};
    }
    const size_t groups = n < MOST_GROUPS ? n : MOST_GROUPS;
    qsort(value, n, sizeof *value, by_variance);
    for (size_t g = 0; g < groups; g++) {
        const size_t from = g * n / groups, to = (g + 1) * n / groups;
        for (size_t i = from; i < to; i++) {
            square[g] += value[i].square / (double)(to - from);
            variance[g] += value[i].variance / (double)(to - from);
        }
    }
    const double free = fmax(1 - of->fitted[q] / of->weight[q], LEAST_FREE);
    const double found =
        spx_intrinsic_variance(groups, square, variance, groups > 0 ? free * (double)n / (double)groups : 0, &prior,
                               s->moving ? &s->unsure[q] : NULL);
    return fmin(fmax(found, TAU_LEAST), 1);
}

/* Prior variance of the coefficients of degree 1 and above of quantity q by evidence, that of what they show beyond
 * their errors. Of a posterior a of variance c with a prior of variance k the data alone have variance 1/(1/c - 1/k)
 * and value a by that over c. */
static double evident_curve(sample *s, size_t q)
{
    const spx_scatter_prior prior = {.odds = CURVE_ODDS, .usual = s->usual2[q], .larger = 1};
    double square[SPX_SKY_DEGREE], variance[SPX_SKY_DEGREE];
    size_t n = 0;
    for (size_t u = s->term[q] + 1; u < s->term[q + 1]; u++) {
        const double c = s->covariance[u * (s->nterm + 1)], own = 1 / c - 1 / s->curve2[q];
        if (!(own > LEAST_OWN / c))
            continue;
        square[n] = s->a[u] * s->a[u] / (c * own) / (c * own);
        variance[n++] = 1 / own;
    }
    if (n == 0)
        return s->curve2[q];
    const double found = spx_intrinsic_variance(n, square, variance, 1, &prior, &s->unsure_curve[q]);
    return fmin(fmax(found, TAU_LEAST), 1);
}

/* Gives a squared size another value; 0: it is the same but for a few per cent, and stays. */
static int resize(double *size2, double found)
{
    if (fabs(log(found / fmax(*size2, TAU_LEAST))) < SMALL_SIZE)
        return 0;
    *size2 = found;
    return 1;
}

/* Few fibres, or fibres of large errors, tell tau^2 badly, and 0 would be as wrong as any: its mean over the
 * likelihood, which is taken for normal, in place of the most likely value. */
static void widen_scatter(sample *s)
{
    const size_t nq = s->nq;
    slopes of;
    likelihood(s, &of);
    for (size_t q = 0; q < nq; q++) {
        const double f = of.curvature[q * nq + q];
        if (!(of.weight[q] > TOLD && of.weight[q] > of.fitted[q]))
            s->together[q] = 0;
        if (s->together[q] == 0)
            s->tau2[q] = f > 0 ? mean_above_zero(s->tau2[q] + of.gradient[q] / f, sqrt(2 / f)) : 0;
        s->tau2[q] = fmin(s->tau2[q], 1);
    }
    fit_polynomials(s);
}

/* Sizes of scatter, and of curves of fibres that move together, have priors flat in their logarithm: their means over
 * the evidence, one after the other, given all others, and again: what one explains the others need not, and which it
 * is shows when all have been looked at. The first begins with all scatter, and curves of any size. */
static void find_sizes(sample *s)
{
    for (size_t q = 0; q < s->nq; q++)
        if (s->together[q] > 0 && s->usual2[q] > 0)
            s->tau2[q] = fmin(s->tau2[q], s->usual2[q]);
    fit_polynomials(s);
    slopes of;
    int stale = 1, moved = 1; /* slopes are of an older fit */
    for (int sweep = 0; sweep < (s->moving ? SWEEPS : 1) && moved; sweep++) {
        moved = 0;
        for (size_t q = 0; q < s->nq; q++) {
            if (!(s->together[q] > 0))
                continue;
            if (stale)
                likelihood(s, &of);
            stale = resize(&s->tau2[q], evident_scatter(s, q, &of));
            if (stale)
                fit_polynomials(s);
            if (s->moving && s->term[q + 1] - s->term[q] > 1 && resize(&s->curve2[q], evident_curve(s, q))) {
                solve_polynomials(s);
                stale = 1;
            }
            moved |= stale;
        }
    }
}

/* Adds to the covariance E of the coefficients what not knowing the sizes of curves does to it: a = E b has the slope
 * E a/k^2 with the variance k of those of a quantity. */
static void add_unsure_curves(sample *s)
{
    const size_t np = s->nterm;
    double *slope = s->normal; /* no longer needed; a row each */
    memset(slope, 0, s->nq * np * sizeof *slope);
    for (size_t q = 0; q < s->nq; q++)
        for (size_t u = s->term[q] + 1; u < s->term[q + 1]; u++)
            for (size_t v = 0; v < np; v++)
                slope[q * np + v] += s->covariance[u * np + v] * s->a[u] / (s->curve2[q] * s->curve2[q]);
    for (size_t q = 0; q < s->nq; q++)
        for (size_t u = 0; u < np; u++)
            multiply_add(np, s->unsure_curve[q] * slope[q * np + u], slope + q * np, s->covariance + u * np);
}

/* Rounds of scatter and polynomials; used[nq]: fibres that were not left out. */
static void find_prior(sample *s, size_t *used)
{
    for (size_t q = 0; q < s->nq; q++) {
        const double tau2 = s->n > 1 ? robust_variance(s, q) : 0;
        s->tau2[q] = tau2 < 1 ? tau2 : 1;
        s->curve2[q] = 1;
        used[q] = s->n;
    }
    fit_polynomials(s);
    for (size_t round = 0, done = 0; round < ROUNDS && s->n > 0 && !done; round++) {
        const int changed = leave_out(s, used);
        done = find_scatter(s) < 1e-3 && !changed;
        fit_polynomials(s);
    }
    if (s->n > 0) {
        widen_scatter(s);
        find_sizes(s);
        add_unsure_curves(s);
    }
}

/* Those of the fibres whose own data tell all quantities, in units of `unit`[nq]: what they tell, p and cov of each of
 * the fibres where good[nspec]. */
static spx_status make_sample(const spx_sky_prior *prior, const double *unit, const uint8_t *good, const double *p,
                              const double *cov, sample *s, spx_err *e)
{
    const size_t nq = s->nq;
    for (size_t i = 0; i < prior->nspec; i++)
        s->n += good[i];
    s->size = (s->n + LANES - 1) / LANES * LANES;
    s->value = spx_alloc2(2 * nq + 2 * npair(nq) + SPX_SKY_PRIOR_TERMS + 2, s->size, sizeof *s->value, e);
    s->fibre = spx_alloc2(s->size, 1, sizeof *s->fibre, e);
    if (s->value == NULL || s->fibre == NULL)
        return SPX_EIO;
    s->variance = s->value + nq * s->size;
    s->basis = s->variance + npair(nq) * s->size;
    s->out = s->basis + SPX_SKY_PRIOR_TERMS * s->size;
    s->in = s->out + nq * s->size;
    s->weight = s->in + s->size;
    s->weighted = s->weight + npair(nq) * s->size;
    for (size_t q = 0; q < nq; q++) /* those behind the last have a matrix that has an inverse */
        for (size_t i = s->n; i < s->size; i++)
            s->variance[at_pair(q, q) * s->size + i] = 1;
    for (size_t i = 0, to = 0; i < prior->nspec; i++) {
        if (!good[i])
            continue;
        s->in[to] = 1;
        for (size_t q = 0; q < nq; q++) {
            s->value[q * s->size + to] = p[i * nq + q] / unit[q];
            for (size_t r = 0; r <= q; r++)
                s->variance[at_pair(q, r) * s->size + to] = cov[(i * nq + q) * nq + r] / (unit[q] * unit[r]);
        }
        for (size_t u = 0; u < SPX_SKY_PRIOR_TERMS; u++)
            s->basis[u * s->size + to] = prior->basis[i * SPX_SKY_PRIOR_TERMS + u];
        to++;
    }
    return SPX_OK;
}

static spx_status make_coefficients(sample *s, spx_err *e)
{
    s->normal = spx_alloc2(2 * s->nterm + 2, s->nterm, sizeof *s->normal, e);
    s->covariance = spx_alloc2(s->nterm, s->nterm, sizeof *s->covariance, e);
    s->product = spx_alloc2(s->nproduct, s->size, sizeof *s->product, e);
    s->sum = spx_alloc2(npair(s->nq), s->nproduct, sizeof *s->sum, e);
    if (s->normal == NULL || s->covariance == NULL || s->product == NULL || s->sum == NULL)
        return SPX_EIO;
    s->a = s->normal + s->nterm * s->nterm;
    s->told = s->a + s->nterm;
    for (size_t k = 0, u = 0; k < count_products(s->nq, s->term); u++)
        for (size_t t = 0; t <= u; t++, k++)
            multiply(s->size, s->basis + u * s->size, s->basis + t * s->size, s->product + k * s->size);
    return SPX_OK;
}

static void free_sample(sample *s)
{
    spx_free(s->value);
    spx_free(s->fibre);
    spx_free(s->normal);
    spx_free(s->covariance);
    spx_free(s->product);
    spx_free(s->sum);
}

/* Degree in wavelength of quantity q. */
static size_t degree_of(const spx_sky_terms *t, size_t q)
{
    return q < t->nt ? q : q < t->nt + t->nd ? q - t->nt : q - t->nt - t->nd;
}

/* What the fibres' own data tell: p[nspec][nq], cov[nspec][nq][nq]; good[nspec]: 1 where that is all quantities. */
static void estimate_all(size_t nspec, size_t nq, const double *info, const double *right, const uint8_t *use,
                         int nthreads, double *p, double *cov, uint8_t *good)
{
#pragma omp parallel for schedule(static) num_threads(nthreads) if (nthreads > 1 && nspec > TOGETHER)
    for (size_t i = 0; i < nspec; i++)
        good[i] = (use == NULL || use[i]) &&
                  spx_sky_estimate(nq, info + i * nq * nq, right + i * nq, p + i * nq, cov + i * nq * nq);
}

/* Hands the prior out in its own units; its covariance is the sample's. */
static void hand_out(const double *unit, sample *s, spx_sky_prior *prior)
{
    const size_t nq = s->nq, np = s->nterm;
    prior->nterm = np;
    prior->covariance = s->covariance;
    s->covariance = NULL;
    for (size_t q = 0; q < nq; q++) {
        const size_t nterm = s->term[q + 1] - s->term[q];
        prior->tau[q] = sqrt(s->tau2[q]) * unit[q];
        prior->degree[q] = nterm - 1;
        prior->curve[q] = s->curve2[q] * unit[q] * unit[q];
        prior->unsure[q] = s->unsure[q] * pow(unit[q], 4);
        prior->unsure_curve[q] = s->unsure_curve[q] * pow(unit[q], 4);
        prior->precision[q] = 1 / (fmax(s->tau2[q], TAU_LEAST) * unit[q] * unit[q]);
        for (size_t i = 0; i < prior->nspec; i++)
            prior->mean[i * nq + q] =
                unit[q] * polynomial(nterm, prior->basis + i * SPX_SKY_PRIOR_TERMS, s->a + s->term[q]);
        for (size_t r = 0; r < nq; r++)
            for (size_t u = s->term[q]; u < s->term[q + 1]; u++)
                for (size_t v = s->term[r]; v < s->term[r + 1]; v++)
                    prior->covariance[u * np + v] *= unit[q] * unit[r];
    }
}

spx_status spx_sky_prior_find(const spx_sky_terms *t, double step, size_t degree, const double *together, size_t nspec,
                              const double *place, const double *info, const double *right, const uint8_t *use,
                              int nthreads, spx_sky_prior *prior, spx_err *e)
{
    sample s = {.nq = spx_sky_count(t), .moving = together != NULL};
    const size_t nq = s.nq;
    double unit[SPX_SKY_MOST];
    degree = degree > SPX_SKY_DEGREE ? SPX_SKY_DEGREE : degree;
    *prior = (spx_sky_prior){.nspec = nspec, .nq = nq, .nthreads = nthreads > 0 ? nthreads : 1};
    prior->mean = spx_alloc2(nspec, nq, sizeof(double), e);
    prior->basis = spx_alloc2(nspec, SPX_SKY_PRIOR_TERMS, sizeof(double), e);
    double *p = spx_alloc2(nspec, nq + nq * nq, sizeof *p, e);
    uint8_t *good = spx_alloc(nspec, sizeof *good, e);
    spx_status st = prior->mean != NULL && prior->basis != NULL && p != NULL && good != NULL ? SPX_OK : SPX_EIO;
    if (st == SPX_OK) {
        for (size_t i = 0; i < nspec; i++)
            spx_legendre(place[i], SPX_SKY_PRIOR_TERMS, prior->basis + i * SPX_SKY_PRIOR_TERMS);
        for (size_t q = 0; q < nq; q++) {
            unit[q] = spx_sky_expected_error(t, step, q);
            s.expected[q] = spx_sky_expected(t, q) / unit[q];
            const int slope = q > t->nt && q < t->nt + t->nd;
            s.as[q] = slope ? t->nt : q;
            s.together[q] = together == NULL && !slope ? 0
                            : degree_of(t, q) > 1      ? HIGHER_ODDS
                            : slope                    ? SLOPE_ODDS
                                                       : FIRST_ODDS;
            s.usual2[q] = together == NULL ? 0 : together[q] * together[q] / (unit[q] * unit[q]);
        }
        estimate_all(nspec, nq, info, right, use, prior->nthreads, p, p + nspec * nq, good);
        st = make_sample(prior, unit, good, p, p + nspec * nq, &s, e);
    }
    if (st == SPX_OK) {
        const size_t most = s.n > 0 ? (s.n - 1) / 5 : 0;
        for (size_t q = 0; q < nq; q++)
            s.term[q + 1] = s.term[q] + 1 + (q < t->nt ? 0 : most < degree ? most : degree);
        s.nterm = s.term[nq];
        s.nproduct = (count_products(nq, s.term) + FOUR - 1) / FOUR * FOUR;
        st = make_coefficients(&s, e);
    }
    if (st == SPX_OK) {
        find_prior(&s, prior->used);
        hand_out(unit, &s, prior);
    }
    free_sample(&s);
    spx_free(p);
    spx_free(good);
    if (st != SPX_OK)
        spx_sky_prior_free(prior);
    return st;
}

void spx_sky_prior_free(spx_sky_prior *prior)
{
    spx_free(prior->mean);
    spx_free(prior->basis);
    spx_free(prior->covariance);
    *prior = (spx_sky_prior){0};
}

/* First coefficient of each quantity, and their number. */
static void terms_of(const spx_sky_prior *prior, size_t *term)
{
    term[0] = 0;
    for (size_t q = 0; q < prior->nq; q++)
        term[q + 1] = term[q] + prior->degree[q] + 1;
}

/* C = (V^-1 + T)^-1 of fibre i, p = C (right + T mean), and what an error of the polynomials does to it, C T: ct. */
static void predict(const spx_sky_prior *prior, size_t i, const double *info, const double *right, double *p, double *c,
                    double *ct)
{
    const size_t nq = prior->nq;
    const double *mean = prior->mean + i * nq;
    double a[SPX_SKY_MOST * SPX_SKY_MOST], b[SPX_SKY_MOST] = {0};
    int informed = 0;
    memcpy(a, info + i * nq * nq, nq * nq * sizeof *a);
    for (size_t q = 0; q < nq; q++) {
        informed |= a[q * nq + q] != 0;
        a[q * nq + q] += prior->precision[q];
        b[q] = (right != NULL ? right[i * nq + q] : 0) + prior->precision[q] * mean[q];
    }
    if (!informed || !spx_sky_estimate(nq, a, b, p, c)) /* nothing measured, or not finite */
        for (size_t q = 0; q < nq; q++) {
            p[q] = mean[q];
            for (size_t r = 0; r < nq; r++)
                c[q * nq + r] = q == r ? 1 / prior->precision[q] : 0;
        }
    for (size_t r = 0; r < nq; r++)
        for (size_t q = 0; q < nq; q++)
            ct[r * nq + q] = c[r * nq + q] * prior->precision[q];
}

/* to += a b, all [nq][nq]. */
static void add_product(size_t nq, const double *a, const double *b, double *to)
{
    for (size_t q = 0; q < nq; q++)
        for (size_t t = 0; t < nq; t++)
            for (size_t r = 0; r < nq; r++)
                to[q * nq + r] += a[q * nq + t] * b[t * nq + r];
}

/* Adds to a covariance what not knowing tau^2 of a quantity does to p: with W = (V + diag(tau^2))^-1 p has the slope
 * V W e_q (W r)_q, W r = T (p - mean), V W = C T. */
static void add_unsure_scatter(const spx_sky_prior *prior, const double *p, const double *mean, const double *ct,
                               double *cov)
{
    const size_t nq = prior->nq;
    for (size_t q = 0; q < nq; q++) {
        const double wr = prior->precision[q] * (p[q] - mean[q]), variance = wr * wr * prior->unsure[q];
        for (size_t r = 0; r < nq && variance > 0; r++)
            for (size_t t = 0; t < nq; t++)
                cov[r * nq + t] += variance * ct[r * nq + q] * ct[t * nq + q];
    }
}

void spx_sky_posterior(const spx_sky_prior *prior, const double *info, const double *right, const uint8_t *use,
                       double *p, double *cov)
{
    enum { PAIRS = SPX_SKY_MOST * (SPX_SKY_MOST + 1) / 2, PRODUCTS = SPX_SKY_PRIOR_TERMS * (SPX_SKY_DEGREE + 2) / 2 };
    const size_t nq = prior->nq, nspec = prior->nspec;
    size_t term[SPX_SKY_MOST + 1];
    double folded[PRODUCTS * PAIRS];
    terms_of(prior, term);
    const size_t nproduct = count_products(nq, term);
    fold_covariance(nq, term, prior->covariance, nproduct, folded);
#pragma omp parallel for schedule(static) num_threads(prior->nthreads) if (prior->nthreads > 1 && nspec > TOGETHER)
    for (size_t i = 0; i < nspec; i++) {
        double ct[SPX_SKY_MOST * SPX_SKY_MOST], poly[SPX_SKY_MOST * SPX_SKY_MOST];
        double product[PRODUCTS], of[SPX_SKY_MOST * SPX_SKY_MOST] = {0}, transposed[SPX_SKY_MOST * SPX_SKY_MOST];
        double own[SPX_SKY_MOST * SPX_SKY_MOST];
        if (use != NULL && !use[i])
            continue;
        predict(prior, i, info, right, p + i * nq, cov != NULL ? cov + i * nq * nq : own, ct);
        if (cov == NULL)
            continue;
        make_products(nproduct, prior->basis + i * SPX_SKY_PRIOR_TERMS, product);
        polynomial_covariance(nq, nproduct, product, folded, poly);
        add_product(nq, ct, poly, of);
        for (size_t q = 0; q < nq; q++)
            for (size_t r = 0; r < nq; r++)
                transposed[q * nq + r] = ct[r * nq + q];
        add_product(nq, of, transposed, cov + i * nq * nq);
        add_unsure_scatter(prior, p + i * nq, prior->mean + i * nq, ct, cov + i * nq * nq);
    }
}

spx_status spx_sky_gauge_errors(const spx_sky_prior *prior, const double *info, const uint8_t *use, double *cov,
                                spx_err *e)
{
    const size_t nq = prior->nq, np = prior->nterm, nspec = prior->nspec, size = nq * nq;
    size_t term[SPX_SKY_MOST + 1];
    double own[SPX_SKY_MOST * SPX_SKY_MOST] = {0}, n = 0;
    double *mean = spx_alloc2(2 * nq, np, sizeof *mean, e), *c = spx_alloc2(nspec, 2 * size, sizeof *c, e);
    const spx_status st = mean != NULL && c != NULL ? SPX_OK : SPX_EIO;
    terms_of(prior, term);
    for (size_t i = 0; i < nspec && st == SPX_OK; i++)
        n += use[i];
    if (st == SPX_OK && n > 0) {
        double *ct = c + nspec * size, *y = mean + nq * np;
#pragma omp parallel for schedule(static) num_threads(prior->nthreads) if (prior->nthreads > 1 && nspec > TOGETHER)
        for (size_t i = 0; i < nspec; i++) {
            double p[SPX_SKY_MOST];
            predict(prior, i, info, NULL, p, c + i * size, ct + i * size);
        }
        for (size_t i = 0; i < nspec; i++) { /* X of the mean, and what does not depend on the coefficients */
            const double *basis = prior->basis + i * SPX_SKY_PRIOR_TERMS;
            if (!use[i])
                continue;
            for (size_t k = 0; k < size; k++)
                own[k] += c[i * size + k] / (n * n);
            for (size_t r = 0; r < nq; r++)
                for (size_t q = 0; q < nq; q++)
                    for (size_t u = term[q]; u < term[q + 1]; u++)
                        mean[r * np + u] += ct[i * size + r * nq + q] * basis[u - term[q]] / n;
        }
        for (size_t q = 0; q < nq; q++)
            for (size_t u = 0; u < np; u++)
                y[q * np + u] = polynomial(np, mean + q * np, prior->covariance + u * np);
        for (size_t q = 0; q < nq; q++) /* variance of the mean */
            for (size_t r = 0; r < nq; r++)
                own[q * nq + r] += polynomial(np, mean + q * np, y + r * np);
#pragma omp parallel for schedule(static) num_threads(prior->nthreads) if (prior->nthreads > 1 && nspec > TOGETHER)
        for (size_t i = 0; i < nspec; i++) {
            const double *basis = prior->basis + i * SPX_SKY_PRIOR_TERMS;
            double *to = cov + i * size, by[SPX_SKY_MOST * SPX_SKY_MOST];
            double with[SPX_SKY_MOST * SPX_SKY_MOST]; /* of the fibre and the mean */
            for (size_t k = 0; k < size; k++)
                with[k] = use[i] ? c[i * size + k] / n : 0;
            for (size_t q = 0; q < nq; q++)
                for (size_t r = 0; r < nq; r++)
                    by[q * nq + r] = polynomial(term[q + 1] - term[q], basis, y + r * np + term[q]);
            add_product(nq, ct + i * size, by, with);
            for (size_t q = 0; q < nq; q++)
                for (size_t r = 0; r < nq; r++)
                    to[q * nq + r] += own[q * nq + r] - with[q * nq + r] - with[r * nq + q];
            for (size_t q = 0; q < nq; q++) /* the only fibre in use is fixed: nothing is left but rounding */
                for (size_t r = 0; r < nq && !(to[q * nq + q] > 1e-9 * own[q * nq + q]); r++)
                    to[q * nq + r] = to[r * nq + q] = 0;
        }
    }
    spx_free(mean);
    spx_free(c);
    return st;
}

size_t spx_sky_gauge(const spx_sky_terms *t, size_t nspec, const uint8_t *use, double *p, double *cov, double *change)
{
    const size_t nq = spx_sky_count(t);
    size_t n = 0;
    for (size_t q = 0; q < nq; q++)
        change[q] = 0;
    for (size_t i = 0; i < nspec; i++) {
        if (use != NULL && !use[i])
            continue;
        n++;
        for (size_t q = 0; q < nq; q++)
            change[q] += p[i * nq + q];
    }
    for (size_t q = 0; q < nq; q++)
        change[q] = n > 0 ? change[q] / (double)n : q == 0 && t->nt > 0 ? 1 : 0;
    const double scale = t->nt > 0 && change[0] > 0 ? change[0] : 1;
    for (size_t i = 0; i < nspec; i++)
        for (size_t q = 0; q < nq; q++) {
            const int scaled = q < t->nt;
            const double shift = q == 0 && t->nt > 0 ? 0 : change[q];
            p[i * nq + q] = (p[i * nq + q] - shift) / (scaled ? scale : 1);
            for (size_t r = 0; r < nq; r++)
                cov[(i * nq + q) * nq + r] /= (scaled ? scale : 1) * (r < t->nt ? scale : 1);
        }
    return n;
}
