/* Provides the zero point of wavelengths from lines at known places (shift/shift.h).
 *
 * s and the information N on it (half-bandwidth ndiag - 1) are modelled as s = E(z) a + B b + noise of covariance N^-1:
 * a free strength for each line; B splines, the continuum. Gauss-Newton in z with a, b projected out.
 *
 * Share of the bins around lambda - z of a line, its column of E: N E has to be what the bins see of the line's spot,
 * interpolated between the columns of N. These are as smooth as two spots laid over each other, so that the kernel of
 * the interpolation is a Gaussian of KERNEL times their width: T e = t, T_jk = exp(-(j-k)^2/(4 w^2)). Lines so narrow
 * leave an error of the place of each that depends on where it lies within its bin; ERROR is added to the error for
 * that, in bins. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "calib/bordered.h"
#include "calib/series.h"
#include "shift/shift.h"

/* Knots of the continuum, lines fainter than a fraction of the brightest that are not looked at, significance of those
 * that tell the zero point, steps, and a step that ends them, bins. */
enum { KNOTS = 40, EDGE = 8, MOST_STEPS = 10, FEWEST = 3, TAPS = 24 };
#define FAINT       1e-3
#define SIGNIFICANT 5.0
#define SMALL_STEP  1e-6
/* Widths of spots that shares of bins are computed for: below, a line is one bin; above, T is singular. KERNEL is
 * empirical: it was chosen by the zero points of simulated skies and arcs. */
#define NARROWEST 0.2
#define WIDEST    2.0
#define KERNEL    0.65
/* Error of the place of a line by the method, bins, which adds up as that of independent lines. Empirical, too,
 * chosen by the same simulations: the error is no statement that is independent of them, and an offset that all lines
 * have in common is not in it. specx-shift(1), ACCURACY, says how large it is. */
#define ERROR 0.03
/* A zero point further off, in bins, is none. */
#define FARTHEST 1.5

/* Column of E or B: values at bins first ... first + n - 1. */
typedef struct {
    size_t first, n;
    double *value;
} column;

/* Lines that are one column. */
typedef struct {
    size_t first, n; /* of the sorted lines */
} blend;

typedef struct {
    size_t n, nline, ncol, m;           /* bins, columns of lines, of all; half-bandwidth of N */
    double width, overlap[TAPS * TAPS]; /* of the spots, bins; factor of T */
    double first, step;
    const double *s, *info;
    spx_shift_line *line;
    blend *of;              /* [nline] */
    column *e;              /* [ncol] */
    double *ne;             /* [ncol][n] N E */
    double *g, *x, *rest;   /* [ncol][ncol], [ncol]; [n] */
    double *slope, *nslope; /* [n]: d(E a)/dz, N times it */
    double *memory, *right, *inverse;
} work;

/* y = N x for x that is 0 but for bins first ... first + count - 1. */
static void multiply(const work *w, size_t first, size_t count, const double *x, double *y)
{
    memset(y, 0, w->n * sizeof *y);
    for (size_t k = 0; k < count; k++) {
        const size_t j = first + k;
        if (x[k] == 0)
            continue;
        y[j] += w->info[j] * x[k];
        for (size_t d = 1; d <= w->m; d++) {
            if (j + d < w->n)
                y[j + d] += w->info[d * w->n + j] * x[k];
            if (j >= d)
                y[j - d] += w->info[d * w->n + j - d] * x[k];
        }
    }
}

static double dot(const column *c, const double *y)
{
    double sum = 0;
    for (size_t k = 0; k < c->n; k++)
        sum += c->value[k] * y[c->first + k];
    return sum;
}

static int by_wavelength(const void *a, const void *b)
{
    const double x = ((const spx_shift_line *)a)->wavelength, y = ((const spx_shift_line *)b)->wavelength;
    return (x > y) - (x < y);
}

/* Lines within the bins that are used, sorted; those closer than a bin are one column with a fixed ratio. */
static spx_status choose_lines(const spx_shift_lines *lines, work *w, spx_err *e)
{
    const double lo = w->first + EDGE * w->step, hi = w->first + (double)(w->n - 1 - EDGE) * w->step;
    double brightest = 0;
    size_t n = 0;
    w->line = spx_alloc(lines->n + 1, sizeof *w->line, e);
    w->of = spx_alloc(lines->n + 1, sizeof *w->of, e);
    if (w->line == NULL || w->of == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < lines->n; i++)
        if (lines->line[i].wavelength > lo && lines->line[i].wavelength < hi)
            brightest = fmax(brightest, lines->line[i].strength);
    for (size_t i = 0; i < lines->n; i++)
        if (lines->line[i].wavelength > lo && lines->line[i].wavelength < hi &&
            lines->line[i].strength > FAINT * brightest)
            w->line[n++] = lines->line[i];
    qsort(w->line, n, sizeof *w->line, by_wavelength);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && w->line[i].wavelength - w->line[i - 1].wavelength < w->step) {
            w->of[w->nline - 1].n++;
            continue;
        }
        w->of[w->nline++] = (blend){i, 1};
    }
    return SPX_OK;
}

/* Share of the bins of a line, and its slope with the line's wavelength, bins^-1: of one column at zero point z. */
static void make_line(const work *w, const blend *b, double z, column *c, double *slope)
{
    double sum = 0;
    c->n = 0;
    for (size_t i = 0; i < b->n; i++)
        sum += w->line[b->first + i].strength;
    for (size_t i = 0; i < b->n; i++) {
        const double at = (w->line[b->first + i].wavelength - z - w->first) / w->step;
        const double part = sum > 0 ? w->line[b->first + i].strength / sum : 1 / (double)b->n;
        double here[TAPS], more[TAPS], first = floor(at) - (TAPS / 2 - 1);
        first = first < 0 ? 0 : first > (double)(w->n - TAPS) ? (double)(w->n - TAPS) : first;
        for (size_t k = 0; k < TAPS; k++) {
            const double d = (at - first - (double)k) / (2 * w->width);
            here[k] = exp(-d * d);
            more[k] = -d / w->width * here[k];
        }
        spx_small_solve(TAPS, w->overlap, here);
        spx_small_solve(TAPS, w->overlap, more);
        if (i == 0) {
            c->first = (size_t)first;
            memset(c->value, 0, (TAPS + 2 * b->n) * sizeof *c->value);
            memset(slope, 0, (TAPS + 2 * b->n) * sizeof *slope);
        }
        const size_t from = (size_t)first - c->first;
        for (size_t k = 0; k < TAPS; k++) {
            c->value[from + k] += part * here[k];
            slope[from + k] += part * more[k];
        }
        c->n = from + TAPS;
    }
}

static spx_status make_columns(work *w, const spx_bspline *spline, spx_err *e)
{
    size_t size = 0;
    w->ncol = w->nline + spline->n + 2 * EDGE;
    for (size_t i = 0; i < w->nline; i++)
        size += TAPS + 2 * w->of[i].n;
    const size_t per = w->n / (spline->n - 3) * 4 + 16;
    w->e = spx_alloc(w->ncol, sizeof *w->e, e);
    w->memory = spx_alloc(2 * size + spline->n * per + 2 * EDGE, sizeof *w->memory, e);
    w->ne = spx_alloc2(w->ncol, w->n, sizeof *w->ne, e);
    w->g = spx_alloc2(w->ncol, w->ncol, sizeof *w->g, e);
    w->x = spx_alloc(3 * w->ncol, sizeof *w->x, e);
    w->rest = spx_alloc(3 * w->n, sizeof *w->rest, e);
    if (!w->e || !w->memory || !w->ne || !w->g || !w->x || !w->rest)
        return SPX_EIO;
    w->right = w->x + w->ncol;
    w->inverse = w->right + w->ncol;
    w->slope = w->rest + w->n;
    w->nslope = w->slope + w->n;
    double *at = w->memory;
    for (size_t i = 0; i < w->nline; i++) {
        w->e[i].value = at;
        at += 2 * (TAPS + 2 * w->of[i].n);
    }
    for (size_t i = 0; i < spline->n; i++)
        w->e[w->nline + i] = (column){w->n, 0, at + i * per};
    for (size_t k = 0; k < w->n; k++) {
        double b[4];
        const size_t i = spx_bspline_at(spline, w->first + (double)k * w->step, b);
        for (size_t j = 0; j < 4; j++) {
            column *c = &w->e[w->nline + i + j];
            if (c->n == 0)
                c->first = k;
            if (k - c->first < per) {
                c->value[k - c->first] = b[j];
                c->n = k - c->first + 1;
            }
        }
    }
    for (size_t i = 0; i < 2 * EDGE; i++) { /* bins at the ends are free: light of lines beyond them may be there */
        double *one = at + spline->n * per + i;
        *one = 1;
        w->e[w->nline + spline->n + i] = (column){i < EDGE ? i : w->n - 2 * EDGE + i, 1, one};
    }
    for (size_t i = w->nline; i < w->ncol; i++)
        multiply(w, w->e[i].first, w->e[i].n, w->e[i].value, w->ne + i * w->n);
    return SPX_OK;
}

/* Strengths and continuum at zero point z; then information and gradient of z with these projected out. 0: no solution.
 * *used: columns of lines that tell z. */
static int solve_at(work *w, double z, const double *ns, double *info, double *gradient, double *chi2, size_t *used)
{
    const size_t nc = w->ncol;
    for (size_t i = 0; i < w->nline; i++) {
        make_line(w, &w->of[i], z, &w->e[i], w->e[i].value + TAPS + 2 * w->of[i].n);
        multiply(w, w->e[i].first, w->e[i].n, w->e[i].value, w->ne + i * w->n);
    }
    for (size_t i = 0; i < nc; i++) {
        w->right[i] = dot(&w->e[i], ns);
        for (size_t j = 0; j <= i; j++)
            w->g[i * nc + j] = dot(&w->e[i], w->ne + j * w->n);
    }
    for (size_t i = 0; i < nc; i++) /* columns on bins without light */
        w->g[i * nc + i] += w->g[i * nc + i] > 0 ? 1e-12 * w->g[i * nc + i] : 1;
    if (!spx_small_factor(nc, w->g))
        return 0;
    memcpy(w->x, w->right, nc * sizeof *w->x);
    spx_small_solve(nc, w->g, w->x);
    memcpy(w->rest, w->s, w->n * sizeof *w->rest);
    memset(w->slope, 0, w->n * sizeof *w->slope);
    *used = 0;
    for (size_t i = 0; i < nc; i++) {
        for (size_t k = 0; k < w->e[i].n; k++)
            w->rest[w->e[i].first + k] -= w->x[i] * w->e[i].value[k];
        if (i >= w->nline)
            continue;
        memset(w->inverse, 0, nc * sizeof *w->inverse);
        w->inverse[i] = 1;
        spx_small_solve(nc, w->g, w->inverse);
        if (!(w->x[i] > SIGNIFICANT * sqrt(w->inverse[i])))
            continue;
        const double *slope = w->e[i].value + TAPS + 2 * w->of[i].n;
        for (size_t k = 0; k < w->e[i].n; k++) /* a line at lambda - z: minus its slope with lambda */
            w->slope[w->e[i].first + k] -= w->x[i] * slope[k] / w->step;
        (*used)++;
    }
    multiply(w, 0, w->n, w->slope, w->nslope);
    *info = *gradient = *chi2 = 0;
    for (size_t k = 0; k < w->n; k++) {
        *info += w->slope[k] * w->nslope[k];
        *gradient += w->rest[k] * w->nslope[k];
    }
    for (size_t i = 0; i < nc; i++)
        w->right[i] = w->inverse[i] = dot(&w->e[i], w->nslope);
    spx_small_solve(nc, w->g, w->inverse);
    for (size_t i = 0; i < nc; i++)
        *info -= w->right[i] * w->inverse[i];
    double *nr = w->nslope; /* not needed any more */
    multiply(w, 0, w->n, w->rest, nr);
    for (size_t k = 0; k < w->n; k++)
        *chi2 += w->rest[k] * nr[k];
    return 1;
}

spx_status spx_shift_zero_point(size_t n, size_t ndiag, double first, double step, double width, const double *s,
                                const double *info, const spx_shift_lines *lines, spx_shift_zero *out, spx_err *e)
{
    work w = {.n = n, .m = ndiag - 1, .first = first, .step = step, .s = s, .info = info};
    *out = (spx_shift_zero){0};
    if (lines->n == 0 || n < 4 * TAPS)
        return SPX_OK;
    w.width = fmin(fmax(KERNEL * width, NARROWEST), WIDEST);
    for (size_t j = 0; j < TAPS; j++)
        for (size_t k = 0; k < TAPS; k++) {
            const double d = ((double)j - (double)k) / (2 * w.width);
            w.overlap[j * TAPS + k] = exp(-d * d) + (j == k ? 1e-9 : 0);
        }
    if (!spx_small_factor(TAPS, w.overlap))
        return spx_fail(e, SPX_EBUG, "the overlaps of spots of %g bins have no factor", w.width);
    const spx_bspline spline =
        spx_bspline_of(first, first + (double)(n - 1) * step, (double)(n - 1) * step / (KNOTS - 3));
    spx_status st = choose_lines(lines, &w, e);
    if (st == SPX_OK)
        st = make_columns(&w, &spline, e);
    double *ns = st == SPX_OK ? spx_alloc(n, sizeof *ns, e) : NULL;
    if (ns == NULL)
        st = SPX_EIO;
    if (st == SPX_OK) {
        double z = 0, known = 0, gradient = 0, chi2 = 0, moved = step;
        size_t used = 0, with_light = 0;
        int good = w.nline >= FEWEST;
        multiply(&w, 0, n, s, ns);
        for (size_t k = 0; k < n; k++)
            with_light += info[k] > 0;
        for (int i = 0; i < MOST_STEPS && good && fabs(moved) > SMALL_STEP * step; i++) {
            good = solve_at(&w, z, ns, &known, &gradient, &chi2, &used) && used >= FEWEST && known > 0;
            moved = good ? gradient / known : 0;
            z += moved;
            good = good && fabs(z) < FARTHEST * step;
        }
        if (good && fabs(moved) <= SMALL_STEP * step && with_light > w.ncol + 1) {
            out->dof = (double)(with_light - w.ncol - 1);
            out->chi2 = chi2;
            out->nline = used;
            out->value = z;
            out->error = sqrt(fmax(1, chi2 / out->dof) / known + ERROR * ERROR * step * step / (double)used);
        }
    }
    spx_free(ns);
    spx_free(w.line);
    spx_free(w.of);
    spx_free(w.e);
    spx_free(w.memory);
    spx_free(w.ne);
    spx_free(w.g);
    spx_free(w.x);
    spx_free(w.rest);
    return st;
}
