/* Provides the zero point of wavelengths from lines at known places (shift/shift.h).
 *
 * Image model of the fibres that share the lines, each with its scale t_i:
 *
 *     p = t_i (sum_l a_l S_i(lambda_l - z - s_l, kappa) + U_i sum_m b_m B_m(lambda)),   z = sum_q z_q P_q(u)
 *
 * S_i: spot of the PSF; U_i: image of a spectrum that is 1, B_m: cubic B splines of the row's wavelength, the
 * continuum. Gauss-Newton about s = 0 with all strengths a, b free and analytic derivatives of the spots; lines above
 * SIGNIFICANT errors have a place s_l of their own, lines that overlap one in common. z is what these places, which
 * have the covariance C of the joint fit, say of a polynomial: generalised least squares with C + tau^2, tau the
 * scatter of the places beyond their errors, by moments as in sky/params.h. So a list that is wrong by tau gives a zero
 * point with the error that follows from that, and no line is believed better than the list is.
 *
 * The lines are looked for in the image, not in the extracted sky: a spectrum of bins shows a line between two bins as
 * its normal equations and the band of its resolution matrix have it, which no template of a line follows to better
 * than some thousandths of an Angstrom. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "calib/bordered.h"
#include "calib/dense.h"
#include "calib/envelope.h"
#include "calib/series.h"
#include "num/stat.h"
#include "psf/psf.h"
#include "psf/spot_math.h"
#include "shift/zero_math.h"
#include "shift/zero_point.h"

/* Steps, and those that are whole: then they are halved, and twice, for strengths of a line that is hit may swing;
 * fewest lines; bins below which lines are one column with a fixed ratio, and below which they share a place. */
enum { MOST_STEPS = 40, WHOLE_STEPS = 8, FEWEST = 3, BLEND = 1, GROUP = 3, ROUNDS = 100 };
/* Lines fainter than a fraction of the brightest are not looked at; significance of those that tell the zero point. */
#define FAINT       1e-3
#define SIGNIFICANT 5.0
/* Distance of the knots of the continuum, Angstrom. */
#define KNOTS 25.0
/* A step that is the last one, and a round of the scatter of places; a zero point that is none: bins. */
#define SMALL_STEP  1e-4
#define SMALL_ROUND 1e-5
#define FARTHEST    1.5
/* Pixels are rejected when a step was below this, bins: those with more light, then any, each until a step finds none,
 * or not less than half of those before: spots that do not fit would lose one after the other. */
#define NEAR 0.1
/* Priors of the terms of z beyond the first, and of the places' scatter, bins; of kappa, and of its terms beyond the
 * first, squared bins. Terms of z and kappa above the first are none or of any size, rarely of another than the caller
 * expects: few lines, or lines in one place, do not tell them. CURVE, BEND, where nothing is known: of three cameras
 * over 2.5 days, whose rows had curves of 0.003 to 0.006 pixel, whose widths along had curves of 0.4 to 1 % in common.
 * ODDS that there is none. */
#define PRIOR_SLOPE 0.1
#define CURVE       0.004
#define MOST_TAU    0.5
#define PRIOR_KAPPA 0.5
#define PRIOR_BEND  0.1
#define BEND        0.01
#define ODDS        0.3
/* Rounds of sizes, from which on they move by half, and a change of their logarithm that is none. */
enum { SIZES = 60, SLOWLY = 10 };
#define SMALL_SIZE 1e-6
/* Width (sigma) that lines may have of their own, Angstrom: of temperature, isotopes, components closer than the list
 * resolves. The list says nothing of it, so that its square is part of kappa's error. */
#define LINE_WIDTH 0.06
/* Columns of a fibre that are used reach so far, in sigma; its neighbours' light is taken off where it is nearer. */
#define REACH     2.5
#define NEIGHBOUR 3.3

typedef spx_zero_blend blend;
typedef spx_zero_column column;
typedef spx_zero_strip strip;
typedef spx_zero_array array;
typedef spx_zero_columns columns;
typedef spx_zero_work work;

enum { PARTS = SPX_ZERO_PARTS };
#define NONE SPX_ZERO_NONE

/* ---- spots ---- */

static const spx_shift_spots *best_spots(void)
{
    const spx_shift_spots *k = spx_shift_spots_avx512();
    k = k != NULL ? k : spx_shift_spots_avx2();
    return k != NULL ? k : spx_shift_spots_base();
}

/* Doubles of the workspace of make_spot(): the spots, then that of psf/spot_math.h, then coefficients and the work of
 * shift/spots.h, or derivatives. */
static size_t spot_work(const spx_psf *p)
{
    const size_t nx = (size_t)spx_psf_nx(p), ny = (size_t)spx_psf_ny(p), derivatives = 4 * nx * ny;
    const size_t plain =
        (size_t)(p->ghdegx + 1) * (size_t)(p->ghdegy + 1) + spx_shift_spot_work((int)nx, (int)ny, p->ghdegx, p->ghdegy);
    return 3 * nx * ny + spx_psf_spot_work(p) + (plain > derivatives ? plain : derivatives);
}

/* Plain spots. Returns 0 where the PSF has none. */
static int make_plain(const spx_psf *p, const spx_shift_spots *spots, size_t fibre, double lambda, double kappa,
                      double dx, double dy, double *memory, double *spot, spx_spot *at)
{
    const int degx = p->ghdegx, degy = p->ghdegy;
    double *c = memory + spx_psf_spot_work(p), *more = c + (degx + 1) * (degy + 1);
    spx_spot_core core;
    if (spx_psf_spot_place(p, fibre, lambda, at) != SPX_SPOT_OK)
        return 0;
    spx_legendre_basis(p->ndeg, spx_psf_param_u(p, fibre, lambda), memory);
    if (!spx_spot_core_find(p, fibre, 0, memory, &core))
        return 0;
    const double wider = core.sigy * core.sigy + kappa * dy * dy;
    if (!(wider > 0 && wider < SPX_SPOT_FAR))
        return 0;
    for (int k = 0; k < (degx + 1) * (degy + 1); k++)
        c[k] = spx_psf_param_value(p, fibre, p->gh[k], memory);
    const spx_shift_spot shape = {spx_psf_nx(p), spx_psf_ny(p), degx,        degy, c, at->dx,
                                  at->dy,        core.sigx,     sqrt(wider), dx,   dy};
    return spots->spot(&shape, more, spot);
}

/* Spots of other kinds, of all cores that have a width; to first order in kappa, which is some hundredths of the square
 * of the width. */
static int make_other(const spx_psf *p, size_t fibre, double lambda, double kappa, double dx, double dy, double *memory,
                      double *spot, spx_spot *at)
{
    const size_t npix = (size_t)spx_psf_nx(p) * (size_t)spx_psf_ny(p);
    const int what[4] = {SPX_SPOT_X, SPX_SPOT_Y, p->sigy, p->sigy2}, ncore = spx_spot_ncore(p);
    double *d = memory + spx_psf_spot_work(p);
    if (spx_psf_spot_diff(p, fibre, lambda, 2 + (size_t)ncore, what, memory, spot, d, at) != SPX_SPOT_OK)
        return 0;
    spx_legendre_basis(p->ndeg, spx_psf_param_u(p, fibre, lambda), memory);
    for (int which = 0; which < ncore; which++) {
        const double sigma = spx_psf_param_value(p, fibre, what[2 + which], memory);
        for (size_t k = 0; k < npix; k++)
            spot[2 * npix + k] += 0.5 * dy * dy / sigma * d[(size_t)(2 + which) * npix + k];
    }
    for (size_t k = 0; k < npix; k++) {
        spot[npix + k] = dx * d[k] + dy * d[npix + k];
        spot[k] += kappa * spot[2 * npix + k];
    }
    return 1;
}

/* Spot whose sigma along the trace is larger by kappa (Angstrom^2), with its derivatives by lambda and by kappa,
 * [ny][nx] each from *spot on; NULL: the PSF has none. */
static const double *make_spot(const spx_psf *p, const spx_shift_spots *spots, size_t fibre, double lambda,
                               double kappa, double *memory, spx_spot *at)
{
    const double dx = spx_zero_slope(&p->x, fibre, lambda), dy = spx_zero_slope(&p->y, fibre, lambda);
    const size_t size = 3 * (size_t)spx_psf_nx(p) * (size_t)spx_psf_ny(p);
    if (spx_psf_plain_spots(p))
        return make_plain(p, spots, fibre, lambda, kappa, dx, dy, memory + size, memory, at) ? memory : NULL;
    memset(memory, 0, size * sizeof *memory);
    return make_other(p, fibre, lambda, kappa, dx, dy, memory + size, memory, at) ? memory : NULL;
}

/* ---- rows ---- */

enum { BLOCK = 256 };

/* Values of a fibre's series at wavelengths lambda[n] + off, with the operations of spx_psf_series_value(). */
SPX_CLONES
static void series_block(size_t n, const double *restrict lambda, double off, double wmin, double wmax, size_t ncoef,
                         const double *restrict c, double *restrict value)
{
    double u[BLOCK], below[BLOCK], here[BLOCK];
    for (size_t i = 0; i < n; i++) {
        u[i] = 2.0 * (lambda[i] + off - wmin) / (wmax - wmin) - 1.0;
        below[i] = value[i] = 0;
        here[i] = 1;
    }
    for (size_t k = 0; k < ncoef; k++) {
        const double a = (double)(2 * k + 1), b = (double)k, d = (double)(k + 1), ck = c[k];
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            const double above = (a * u[i] * here[i] - b * below[i]) / d;
            value[i] += ck * here[i];
            below[i] = here[i];
            here[i] = above;
        }
    }
}

static void series_values(const spx_psf_series *s, size_t fibre, size_t n, const double *lambda, double off,
                          double *value)
{
    const double wmin = s->range != NULL ? s->range[2 * fibre] : s->wmin,
                 wmax = s->range != NULL ? s->range[2 * fibre + 1] : s->wmax;
    for (size_t i = 0; i < n; i += BLOCK)
        series_block(n - i < BLOCK ? n - i : BLOCK, lambda + i, off, wmin, wmax, s->ncoef, s->coef + fibre * s->ncoef,
                     value + i);
}

/* Wavelengths lambda[n] at which a trace crosses rows y0, y0 + 1, ..., within lo ... hi, and what spx_zero_slope() is
 * there and how far off the columns are: x[n]. By Newton's steps from a parabola. y: [n], memory. */
static void cross_rows(const spx_psf *psf, size_t f, double y0, size_t n, double lo, double hi, double *lambda,
                       double *slope, double *x, double *y)
{
    const spx_zero_parabola p = spx_zero_parabola_of(&psf->y, f, lo, hi);
    for (size_t i = 0; i < n; i++)
        lambda[i] = spx_zero_start(&p, y0 + (double)i);
    for (int step = 0; step <= SPX_ZERO_STEPS; step++) {
        series_values(&psf->y, f, n, lambda, 0.5, slope);
        series_values(&psf->y, f, n, lambda, -0.5, y);
        for (size_t i = 0; i < n; i++)
            slope[i] -= y[i];
        if (step == SPX_ZERO_STEPS) /* at these wavelengths */
            break;
        series_values(&psf->y, f, n, lambda, 0, y);
        for (size_t i = 0; i < n; i++)
            lambda[i] = spx_zero_step(&p, lambda[i], y0 + (double)i, y[i], slope[i]);
    }
    series_values(&psf->x, f, n, lambda, 0, x);
}

/* Light of a spectrum that is 1 in rows of the CCD that the trace's middle crosses, as fractions over the columns of
 * the strip, per Angstrom that a row has: rows of spots of all wavelengths, one beside the other, have sums like those
 * of one spot's columns. slope: rows an Angstrom has. */
static void other_profiles(const work *w, const strip *s, const double *slope, double *memory)
{
    const spx_psf *p = w->psf;
    const int nx = spx_psf_nx(p), ny = spx_psf_ny(p), n = (int)s->ncol, left = p->hsizex - n / 2;
    double *spot = memory, *basis = memory + nx * ny;
    for (size_t row = 0; row < s->nrow; row++) {
        spx_spot at;
        double *unit = s->unit + row * s->ncol;
        if (!(fabs(slope[row]) > 0) || spx_psf_spot(p, s->fibre, s->lambda[row], basis, spot, &at) != SPX_SPOT_OK)
            continue;
        for (int y = 0; y < ny; y++)
            for (int x = 0; x < n; x++)
                unit[x] += spot[y * nx + left + x] / fabs(slope[row]);
    }
}

/* The same of plain spots: functions along the trace of a higher order than 0 have no sum. x: of the trace in rows. */
enum { ROWS = 32 };

static size_t profile_work(const work *w, size_t ncol)
{
    return ((size_t)w->psf->ghdegx + 2) * (spx_shift_row(ROWS * (ncol + 3)) + ROWS) + w->psf->ndeg;
}

static void plain_profiles(const work *w, const strip *s, const double *x, const double *slope, double *memory)
{
    const spx_psf *p = w->psf;
    const int degx = p->ghdegx, n = (int)s->ncol, each = n + 3;
    const size_t stride = spx_shift_row((size_t)(ROWS * each));
    double *e = memory, *h = e + stride, *c = h + (size_t)(degx + 1) * stride, *basis = c + ROWS * (degx + 1);
    for (size_t from = 0; from < s->nrow; from += ROWS) {
        const size_t rows = s->nrow - from < ROWS ? s->nrow - from : ROWS;
        memset(e, 0, stride * sizeof *e);
        for (size_t r = 0; r < rows; r++) {
            const double dx = x[from + r] - floor(x[from + r] + 0.5);
            double *edge = e + r * (size_t)each;
            spx_spot_core core;
            spx_legendre_basis(p->ndeg, spx_psf_param_u(p, s->fibre, s->lambda[from + r]), basis);
            const int good = spx_spot_core_find(p, s->fibre, 0, basis, &core) && fabs(slope[from + r]) > 0;
            for (int i = 0; i <= degx; i++)
                c[r * (size_t)(degx + 1) + (size_t)i] =
                    good && p->gh[i] >= 0 ? spx_psf_param_value(p, s->fibre, p->gh[i], basis) : 0;
            for (int k = 0; k <= n && good; k++)
                edge[k] = (k - n / 2 - 0.5 - dx) / core.sigx;
            for (int k = 0; k < 2 && good; k++) /* of all columns of a spot */
                edge[n + 1 + k] = ((k - 0.5) * spx_psf_nx(p) - dx) / core.sigx;
        }
        w->spots->edges(rows * (size_t)each, degx, e, stride, h);
        for (size_t r = 0; r < rows; r++) {
            double *unit = s->unit + (from + r) * s->ncol, sum = 0;
            for (int i = 0; i <= degx; i++) {
                const double *hi = h + (size_t)i * stride + r * (size_t)each,
                             ci = c[r * (size_t)(degx + 1) + (size_t)i];
                sum += ci * (hi[n + 1] - hi[n + 2]);
                for (int k = 0; k < n; k++)
                    unit[k] += ci * (hi[k] - hi[k + 1]);
            }
            for (int k = 0; k < n; k++)
                unit[k] = sum > 0 && isfinite(sum) ? fmax(unit[k], 0) / sum / fabs(slope[from + r]) : 0;
        }
    }
}

/* Adds factor times pixels [ny][nx] at a corner to those of a strip from row `first` on, of n rows. */
static void add_pixels(const strip *s, const spx_psf *p, const spx_spot *at, const double *pixels, double factor,
                       long first, long n, double *to)
{
    const long nx = spx_psf_nx(p), ny = spx_psf_ny(p);
    for (long y = 0; y < ny; y++) {
        const long row = at->yc + y - s->y0;
        if (row < first || row >= first + n)
            continue;
        for (long c = 0; c < (long)s->ncol; c++) {
            const long x = s->xc[row] + c - at->xc;
            if (x >= 0 && x < nx)
                to[(row - first) * (long)s->ncol + c] += factor * pixels[y * nx + x];
        }
    }
}

/* ---- strips ---- */

/* Takes the light of the fibre in a row of the frame, as it was extracted, off the strip of another. */
static void take_off(const work *w, const strip *s, size_t other, double *memory)
{
    const spx_frame *f = w->in->frame;
    const size_t n = f->arm.nwave;
    size_t row = 0;
    while (row < f->nspec && (size_t)f->fiber[row] != other)
        row++;
    for (size_t k = 0; k < n && row < f->nspec; k++) {
        const double flux = f->arm.flux[row * n + k] * w->in->step;
        spx_spot at;
        const double *spot = f->arm.ivar[row * n + k] > 0 && isfinite(flux)
                                 ? make_spot(w->psf, w->spots, other, f->arm.wavelength[k], 0, memory, &at)
                                 : NULL;
        if (spot != NULL)
            add_pixels(s, w->psf, &at, spot, -flux, 0, (long)s->nrow, s->data);
    }
}

/* Place and size of strip i; none where the trace is not on the CCD. */
static void place_strip(const work *w, size_t i, strip *s)
{
    const spx_psf *psf = w->psf;
    const size_t f = w->in->fibre[i];
    double usable[2];
    spx_psf_usable(psf, f, &usable[0], &usable[1]);
    const double lo = fmax(w->in->first, usable[0]), hi = fmin(w->in->last, usable[1]), middle = 0.5 * (lo + hi);
    const double sigma = spx_psf_ghsigx(psf, f, middle);
    const double a = spx_psf_series_value(&psf->y, f, lo), b = spx_psf_series_value(&psf->y, f, hi);
    const double left = spx_psf_distance(psf, f, f - 1, middle, NULL),
                 right = spx_psf_distance(psf, f, f + 1, middle, NULL);
    *s = (strip){.fibre = f, .scale = w->in->scale[i], .low = lo, .high = hi};
    if (!(hi > lo && fabs(a) < SPX_SPOT_FAR && fabs(b) < SPX_SPOT_FAR && a != b && sigma > 0))
        return;
    const double ends[2] = {fmax(ceil(fmin(a, b)), 0), fmin(floor(fmax(a, b)), (double)w->image->ny - 1)};
    if (!(ends[1] > ends[0]))
        return;
    double reach = floor(fmin(REACH * sigma, 0.5 * fmin(left, right) - 0.5));
    reach = reach < 1 ? 1 : reach > psf->hsizex ? psf->hsizex : reach;
    s->y0 = (long)ends[0];
    s->nrow = (size_t)(ends[1] - ends[0]) + 1;
    s->ncol = 2 * (size_t)reach + 1;
    s->beside[0] = left - reach - 0.5 < NEIGHBOUR * sigma;
    s->beside[1] = right - reach - 0.5 < NEIGHBOUR * sigma;
}

/* Asks for the pixels of a row of a strip: rows of the image are pages apart, and are waited for together. */
static void ask_for_row(const spx_image *im, const strip *s, size_t row)
{
    const long first = s->xc[row] < 0 ? 0 : s->xc[row], last = s->xc[row] + (long)s->ncol - 1;
    const size_t line = (size_t)(s->y0 + (long)row) * im->nx;
    for (long x = first; x <= last && last < (long)im->nx; x = x < last ? last : last + 1) {
        __builtin_prefetch(im->data + line + (size_t)x);
        __builtin_prefetch(im->ivar + line + (size_t)x);
        if (im->mask != NULL)
            __builtin_prefetch(im->mask + line + (size_t)x);
    }
}

enum { TOGETHER = 16 }; /* rows */

/* Pixels of rows first ... end - 1 of a strip. */
static void fill_rows(const spx_image *im, const strip *s, size_t first, size_t end)
{
    for (size_t row = first; row < end && row < first + TOGETHER; row++)
        ask_for_row(im, s, row);
    for (size_t row = first; row < end; row++) {
        if (row + TOGETHER < end)
            ask_for_row(im, s, row + TOGETHER);
        for (size_t c = 0; c < s->ncol; c++) {
            const long pixel = s->xc[row] + (long)c;
            const size_t at = (size_t)(s->y0 + (long)row) * im->nx + (size_t)pixel;
            const int good = pixel >= 0 && pixel < (long)im->nx && (im->mask == NULL || im->mask[at] == 0) &&
                             im->ivar[at] > 0 && isfinite(im->ivar[at]) && isfinite(im->data[at]);
            s->data[row * s->ncol + c] = good ? im->data[at] : 0;
            s->w[row * s->ncol + c] = good ? im->ivar[at] : 0;
        }
    }
}

static void take_neighbours_off(const work *w, const strip *s, double *memory)
{
    if (s->beside[0])
        take_off(w, s, s->fibre - 1, memory);
    if (s->beside[1])
        take_off(w, s, s->fibre + 1, memory);
}

/* Pixels of a strip, and its model of a spectrum that is 1. */
static spx_status fill_strip(const work *w, strip *s, spx_err *e)
{
    const spx_psf *psf = w->psf;
    if (s->nrow == 0)
        return SPX_OK;
    double *memory = spx_alloc(spot_work(psf) + profile_work(w, s->ncol), sizeof *memory, e);
    if (memory == NULL)
        return SPX_EIO;
    double *slope = s->rest, *x = slope + s->nrow; /* of at least three columns */
    cross_rows(psf, s->fibre, (double)s->y0, s->nrow, s->low, s->high, s->lambda, slope, x, x + s->nrow);
    for (size_t row = 0; row < s->nrow; row++)
        s->xc[row] = spx_zero_corner(x[row], (long)s->ncol);
    fill_rows(w->image, s, 0, s->nrow);
    if (spx_psf_plain_spots(psf))
        plain_profiles(w, s, x, slope, memory);
    else
        other_profiles(w, s, slope, memory);
    take_neighbours_off(w, s, memory);
    spx_free(memory);
    return SPX_OK;
}

int spx_zero_beside(const work *w)
{
    int any = 0;
    for (size_t i = 0; i < w->in->nfibre; i++)
        any |= w->strips[i].nrow > 0 && (w->strips[i].beside[0] || w->strips[i].beside[1]);
    return any;
}

spx_status spx_zero_take_neighbours_off(const work *w, spx_err *e)
{
    int failed = 0;
#pragma omp parallel for schedule(dynamic, 1) num_threads(w->nthreads) reduction(| : failed)
    for (size_t i = 0; i < w->in->nfibre; i++) {
        const strip *s = &w->strips[i];
        if (s->nrow == 0 || !(s->beside[0] || s->beside[1]))
            continue;
        double *memory = spx_alloc(spot_work(w->psf), sizeof *memory, NULL);
        failed |= memory == NULL;
        if (memory != NULL)
            take_neighbours_off(w, s, memory);
        spx_free(memory);
    }
    return failed ? spx_mem_fail(e) : SPX_OK;
}

size_t spx_zero_most_rows(const work *w, const strip *s, double length)
{
    const double rows = (double)s->nrow / (w->in->last - w->in->first) * length;
    return (size_t)(1.5 * rows) + (size_t)spx_psf_ny(w->psf) + 3;
}

/* Rows that a column of lines may take. */
static size_t most_rows(const work *w, const strip *s, const blend *b)
{
    return spx_zero_most_rows(w, s, w->line[b->first + b->n - 1].wavelength - w->line[b->first].wavelength);
}

/* Doubles of the images of all lines in a strip. */
static size_t value_size(const work *w, const strip *s)
{
    size_t size = 0;
    for (size_t l = 0; l < w->nl; l++)
        size += 3 * most_rows(w, s, &w->of[l]) * s->ncol;
    return size;
}

/* Strips of all fibres, in one block of memory: some hundred small ones would cost as much as what is done with them.
 */
static spx_status make_strips(work *w, spx_err *e)
{
    const size_t n = w->in->nfibre;
    size_t size = 0, nrow = 0;
    int failed = 0;
    w->strips = spx_alloc(n, sizeof *w->strips, e);
    if (w->strips == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < n; i++)
        place_strip(w, i, &w->strips[i]);
    if (w->engine != NULL)
        return w->engine->begin(w->engine, w, e);
    w->images = spx_alloc2(n, w->nl, sizeof *w->images, e);
    if (w->images == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < n; i++) {
        const strip *s = &w->strips[i];
        size += s->nrow * (1 + 4 * s->ncol) + value_size(w, s);
        nrow += s->nrow;
    }
    w->pixels = spx_alloc(size + 1, sizeof *w->pixels, e);
    w->corners = spx_alloc(nrow + 1, sizeof *w->corners, e);
    if (w->pixels == NULL || w->corners == NULL)
        return SPX_EIO;
    double *at = w->pixels;
    long *xc = w->corners;
    for (size_t i = 0; i < n; i++) {
        strip *s = &w->strips[i];
        const size_t npix = s->nrow * s->ncol;
        s->lambda = at;
        s->data = s->lambda + s->nrow;
        s->w = s->data + npix;
        s->unit = s->w + npix;
        s->rest = s->unit + npix;
        s->values = s->rest + npix;
        at = s->values + value_size(w, s);
        s->xc = xc;
        xc += s->nrow;
        s->line = w->images + i * w->nl;
        s->made = -1;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(w->nthreads) reduction(| : failed)
    for (size_t i = 0; i < n; i++) {
        spx_err mine = {0};
        failed |= fill_strip(w, &w->strips[i], &mine) != SPX_OK;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t k = 1; k < w->strips[i].nrow; k++)
            w->row = fmax(w->row, fabs(w->strips[i].lambda[k] - w->strips[i].lambda[k - 1]));
    return failed ? spx_mem_fail(e) : SPX_OK;
}

/* ---- lines ---- */

static int by_wavelength(const void *a, const void *b)
{
    const double x = ((const spx_shift_line *)a)->wavelength, y = ((const spx_shift_line *)b)->wavelength;
    return (x > y) - (x < y);
}

/* Lines whose light falls on the rows, sorted; those closer than a bin are one column with a fixed ratio. */
static spx_status choose_lines(const spx_shift_lines *lines, work *w, spx_err *e)
{
    const double lo = w->in->first, hi = w->in->last, beyond = (w->psf->hsizey + 1) * w->in->step;
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
        if (lines->line[i].wavelength > lo - beyond && lines->line[i].wavelength < hi + beyond &&
            !(lines->line[i].strength < FAINT * brightest))
            w->line[n++] = lines->line[i];
    w->nline = n;
    qsort(w->line, n, sizeof *w->line, by_wavelength);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && w->line[i].wavelength - w->line[i - 1].wavelength < BLEND * w->in->step)
            w->of[w->nl - 1].n++;
        else
            w->of[w->nl++] = (blend){.first = i, .n = 1, .group = NONE};
    }
    for (size_t l = 0; l < w->nl; l++) {
        blend *b = &w->of[l];
        double sum = 0, weighted = 0;
        for (size_t i = b->first; i < b->first + b->n; i++) {
            sum += w->line[i].strength;
            weighted += w->line[i].strength * w->line[i].wavelength;
        }
        b->middle = sum > 0 ? weighted / sum : w->line[b->first].wavelength;
        for (size_t i = b->first; i < b->first + b->n; i++)
            w->line[i].strength = sum > 0 ? w->line[i].strength / sum : 1 / (double)b->n;
    }
    return SPX_OK;
}

/* Value of a series of n terms at a wavelength, which are p[SPX_SHIFT_ZERO_MOST]. */
static double series(const work *w, size_t n, const double *c, double lambda, double *p)
{
    double sum = 0;
    spx_legendre(spx_legendre_place(w->in->first, w->in->last, lambda), n, p);
    for (size_t q = 0; q < n; q++)
        sum += c[q] * p[q];
    return sum;
}

/* Value of a zero point z at a wavelength. */
static double polynomial(const work *w, const double *z, double lambda)
{
    double p[SPX_SHIFT_ZERO_MOST];
    return series(w, w->in->nterm, z, lambda, p);
}

double spx_zero_place(const work *w, double lambda)
{
    return lambda - polynomial(w, w->z, lambda);
}

double spx_zero_kappa(const work *w, const blend *b, double *p)
{
    return series(w, w->in->nkappa, w->kappa, b->middle, p);
}

/* Image of a line in a strip, and its derivatives by the place of the line in the spectrum of bins, -d/dlambda, and by
 * kappa: values [3][c->n][ncol], at most `most` rows. */
static void make_line(const work *w, const strip *s, const blend *b, size_t most, double *memory, column *c)
{
    const long ny = spx_psf_ny(w->psf), nx = spx_psf_nx(w->psf);
    long first = (long)s->nrow, end = 0;
    double p[SPX_SHIFT_ZERO_MOST];
    const double kappa = spx_zero_kappa(w, b, p);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = b->first; i < b->first + b->n; i++) {
            spx_spot at;
            const double lambda = spx_zero_place(w, w->line[i].wavelength);
            const double *spot = pass == 0 ? NULL : make_spot(w->psf, w->spots, s->fibre, lambda, kappa, memory, &at);
            if (pass == 0 && spx_psf_spot_place(w->psf, s->fibre, lambda, &at) == SPX_SPOT_OK) {
                first = at.yc - s->y0 < first ? at.yc - s->y0 : first;
                end = at.yc - s->y0 + ny > end ? at.yc - s->y0 + ny : end;
            }
            const size_t size = c->n * s->ncol;
            for (size_t d = 0; d < 3 && spot != NULL && size > 0; d++)
                add_pixels(s, w->psf, &at, spot + d * (size_t)(nx * ny), w->line[i].strength * (d == 1 ? -1 : 1),
                           (long)c->first, (long)c->n, c->value + d * size);
        }
        if (pass > 0)
            break;
        first = first < 0 ? 0 : first;
        end = end > (long)s->nrow ? (long)s->nrow : end;
        c->first = (size_t)first;
        c->n = end > first ? (size_t)(end - first) : 0;
        c->n = c->n < most ? c->n : most;
        memset(c->value, 0, 3 * c->n * s->ncol * sizeof *c->value);
    }
}

/* ---- normal equations ---- */

/* sum w x y over the rows that both columns have; wx: w x, in the rows of x. */
static double product(const strip *s, const column *x, const double *wx, const column *y)
{
    const size_t first = x->first > y->first ? x->first : y->first;
    const size_t ends[2] = {x->first + x->n, y->first + y->n}, end = ends[0] < ends[1] ? ends[0] : ends[1];
    if (end <= first)
        return 0;
    return spx_dot((end - first) * s->ncol, wx + (first - x->first) * s->ncol, y->value + (first - y->first) * s->ncol);
}

SPX_CLONES
static void add_scaled(size_t n, double c, const double *restrict x, double *restrict to)
{
#pragma omp simd
    for (size_t k = 0; k < n; k++)
        to[k] += c * x[k];
}

SPX_CLONES
static void multiply(size_t n, const double *restrict a, const double *restrict b, double *restrict product)
{
#pragma omp simd
    for (size_t k = 0; k < n; k++)
        product[k] = a[k] * b[k];
}

/* Adds c times a column to pixels of the strip. */
static void add_column(const strip *s, const column *x, double c, double *to)
{
    add_scaled(x->n * s->ncol, c, x->value, to + x->first * s->ncol);
}

/* Doubles: n of them, with anything in them. */
static spx_status need(array *a, size_t n, spx_err *e)
{
    if (n <= a->n && a->at != NULL)
        return SPX_OK;
    spx_free(a->at);
    a->n = 0;
    a->at = spx_alloc_unset(n + 1, 1, sizeof *a->at, e);
    a->n = a->at != NULL ? n : 0;
    return a->at != NULL ? SPX_OK : SPX_EIO;
}

static spx_status need_columns(columns *k, size_t n, spx_err *e)
{
    if (n <= k->n)
        return SPX_OK;
    spx_free(k->c);
    k->n = 0;
    k->c = spx_alloc(n, sizeof *k->c, e);
    k->n = k->c != NULL ? n : 0;
    return k->c != NULL ? SPX_OK : SPX_EIO;
}

/* Images of the lines in a strip, unless they are still those of this zero point. */
static void make_lines(const work *w, strip *s, double *memory)
{
    double *at = s->values;
    for (size_t l = 0; l < w->nl && s->made != w->made; l++) {
        column *c = &s->line[l];
        c->value = at;
        make_line(w, s, &w->of[l], most_rows(w, s, &w->of[l]), memory, c);
        for (size_t i = 0; i < 3 * c->n * s->ncol; i++)
            c->value[i] *= s->scale;
        at += 3 * c->n * s->ncol;
    }
    s->made = w->made;
}

/* Splines, places of groups and terms of kappa. */
static spx_status make_rest(const work *w, const strip *s, columns *k, spx_err *e)
{
    column *spline = k->c + w->nl, *group = spline + w->nb, *kappa = group + w->ng;
    double b[4];
    for (size_t i = w->nl; i < w->nc; i++)
        k->c[i] = (column){s->nrow, 0, NULL};
    size_t size = w->nk * s->nrow;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t r = 0; r < s->nrow; r++) {
            const size_t i = spx_bspline_at(&w->spline, s->lambda[r], b);
            for (size_t j = 0; j < 4; j++) {
                column *one = &spline[i + j];
                if (pass == 0) {
                    one->first = r < one->first ? r : one->first;
                    one->n = r - one->first + 1;
                }
                for (size_t x = 0; x < s->ncol && pass > 0; x++)
                    one->value[(r - one->first) * s->ncol + x] = b[j] * s->scale * s->unit[r * s->ncol + x];
            }
        }
        for (size_t l = 0; l < w->nl; l++) {
            const column *c = &k->c[l];
            const size_t pixels = c->n * s->ncol;
            if (c->n == 0 || w->of[l].group == NONE)
                continue;
            column *one = &group[w->of[l].group];
            if (pass == 0) {
                const size_t first = c->first < one->first ? c->first : one->first;
                const size_t end = one->n > 0 ? one->first + one->n : 0;
                one->first = first;
                one->n = (c->first + c->n > end ? c->first + c->n : end) - first;
            }
            if (pass > 0)
                add_scaled(pixels, w->strength[l], c->value + pixels, one->value + (c->first - one->first) * s->ncol);
        }
        if (pass > 0)
            break;
        for (size_t i = w->nl; i < w->nl + w->nb + w->ng; i++)
            size += k->c[i].n;
        if (need(&k->rest, size * s->ncol, e) != SPX_OK)
            return SPX_EIO;
        double *at = k->rest.at;
        memset(at, 0, size * s->ncol * sizeof *at);
        for (size_t i = w->nl; i < w->nl + w->nb + w->ng; i++) {
            k->c[i].value = at;
            at += k->c[i].n * s->ncol;
        }
        for (size_t q = 0; q < w->nk; q++)
            kappa[q] = (column){0, s->nrow, at + q * s->nrow * s->ncol};
    }
    for (size_t l = 0; l < w->nl && w->nk > 0; l++) {
        const column *c = &k->c[l];
        double p[SPX_SHIFT_ZERO_MOST];
        (void)spx_zero_kappa(w, &w->of[l], p);
        for (size_t q = 0; q < w->nk; q++)
            add_column(s, &(column){c->first, c->n, c->value + 2 * c->n * s->ncol}, p[q] * w->strength[l],
                       kappa[q].value);
    }
    return SPX_OK;
}

/* Adds a strip to the normal equations of its part. reject (zero_math.h): pixels far from the model are left out from
 * now on. */
static spx_status add_strip(work *w, size_t part, strip *s, int reject, spx_err *e)
{
    const size_t npix = s->nrow * s->ncol, nc = w->nc;
    columns *k = &w->memory[part];
    spx_status st = need_columns(k, nc, e);
    if (st == SPX_OK)
        st = need(&k->work, spot_work(w->psf), e);
    if (st == SPX_OK)
        st = need(&k->weighted, npix, e);
    if (st == SPX_OK)
        make_lines(w, s, k->work.at);
    if (st == SPX_OK && w->nl > 0)
        memcpy(k->c, s->line, w->nl * sizeof *k->c);
    if (st == SPX_OK)
        st = make_rest(w, s, k, e);
    if (st == SPX_OK) {
        double *g = w->g + part * w->size, *wx = k->weighted.at, *right = w->right + part * nc;
        const column all = {0, s->nrow, s->rest};
        memcpy(s->rest, s->data, npix * sizeof *s->rest);
        for (size_t i = 0; i < w->nl + w->nb; i++)
            add_column(s, &k->c[i], -w->strength[i], s->rest);
        double chi2 = w->chi2[part], used = w->npix[part]; /* those of other parts lie in the same line of the cache */
        for (size_t i = 0; i < npix; i++) {
            const double r2 = s->rest[i] * s->rest[i] * s->w[i];
            if (spx_zero_is_far(s->data[i], s->rest[i], s->w[i], reject))
                s->w[i] = 0;
            chi2 += s->w[i] > 0 ? r2 : 0;
            used += s->w[i] > 0;
        }
        w->chi2[part] = chi2;
        w->npix[part] = used;
        for (size_t i = 0; i < nc; i++) {
            const column *x = &k->c[w->column[i]];
            multiply(x->n * s->ncol, s->w + x->first * s->ncol, x->value, wx);
            right[i] += product(s, x, wx, &all);
            for (size_t j = w->shape.first[i]; j <= i; j++)
                g[w->shape.row[i] + j] += product(s, x, wx, &k->c[w->column[j]]);
        }
    }
    return st;
}

/* Sums over all strips, in fixed parts, of the normal equations. */
static spx_status sum_strips(work *w, int reject, spx_err *e)
{
    const size_t nc = w->nc;
    int failed = 0;
    memset(w->g, 0, PARTS * w->size * sizeof *w->g);
    memset(w->right, 0, PARTS * nc * sizeof *w->right);
#pragma omp parallel for schedule(dynamic, 1) num_threads(w->nthreads) reduction(| : failed)
    for (size_t part = 0; part < PARTS; part++) {
        spx_err mine = {0};
        w->chi2[part] = w->npix[part] = 0;
        for (size_t i = part; i < w->in->nfibre && !failed; i += PARTS)
            failed |= add_strip(w, part, &w->strips[i], reject, &mine) != SPX_OK;
    }
    if (failed)
        return spx_mem_fail(e);
    for (size_t part = 1; part < PARTS; part++) {
        for (size_t i = 0; i < w->size; i++)
            w->g[i] += w->g[part * w->size + i];
        for (size_t i = 0; i < nc; i++)
            w->right[i] += w->right[part * nc + i];
        w->chi2[0] += w->chi2[part];
        w->npix[0] += w->npix[part];
    }
    return SPX_OK;
}

/* Prior of term q of kappa in the joint fit, 1/Angstrom^4. */
static double weak_information(const work *w, size_t q)
{
    return pow((q == 0 ? PRIOR_KAPPA : PRIOR_BEND) * w->in->step * w->in->step, -2);
}

/* Normal equations of all strips, factored. *good 0: they have no factor. */
static spx_status sum_up(work *w, int reject, int *good, spx_err *e)
{
    const size_t nc = w->nc;
    const spx_status st = w->engine != NULL ? w->engine->sum_up(w->engine, w, reject, e) : sum_strips(w, reject, e);
    if (st != SPX_OK)
        return st;
    for (size_t q = 0; q < w->nk; q++) { /* so that there is a solution; fit_width() has its own */
        const size_t i = nc - w->nk + q;
        const double information = weak_information(w, q);
        w->g[w->shape.row[i] + i] += information;
        w->right[i] -= w->kappa[q] * information;
    }
    for (size_t i = 0; i < nc; i++) { /* columns without light */
        double *diagonal = &w->g[w->shape.row[i] + i];
        *diagonal += *diagonal > 0 ? 1e-10 * *diagonal : 1;
    }
    *good = spx_envelope_factor(&w->shape, w->g);
    if (!*good)
        return SPX_OK;
    spx_envelope_solve(&w->shape, w->g, 0, w->right);
    for (size_t i = 0; i < nc; i++)
        w->found[w->column[i]] = w->right[i];
    return SPX_OK;
}

/* Columns that are solved for, of which the last may be of 0, so that n of them are. */
static size_t sides_of(size_t n)
{
    return (n + SPX_ENVELOPE_SIDES - 1) / SPX_ENVELOPE_SIDES * SPX_ENVELOPE_SIDES;
}

/* Columns first ... first + n - 1 of the inverse side by side, x[nc][m] by the ranks of columns, m = sides_of(n). */
static void inverse_columns(const work *w, size_t first, size_t n, double *x)
{
    const size_t m = sides_of(n);
    memset(x, 0, w->nc * m * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[w->rank[first + i] * m + i] = 1;
#pragma omp parallel for schedule(static) num_threads(w->nthreads)
    for (size_t i = 0; i < m; i += SPX_ENVELOPE_SIDES)
        spx_envelope_solve_many(&w->shape, w->g, SPX_ENVELOPE_SIDES, m, x + i);
}

/* ---- the fit ---- */

/* Gives lines above the noise groups with places of their own; places of the middles of groups into at[ng]. */
static spx_status make_groups(work *w, double *at, spx_err *e)
{
    const size_t m = sides_of(w->nl);
    double *x = spx_alloc2(w->nc, m, sizeof *x, e), before = 0;
    if (x == NULL)
        return SPX_EIO;
    w->ng = 0;
    inverse_columns(w, 0, w->nl, x);
    for (size_t l = 0; l < w->nl; l++) {
        blend *b = &w->of[l];
        b->group = NONE;
        if (!(w->strength[l] > SIGNIFICANT * sqrt(x[w->rank[l] * m + l])) || b->middle < w->in->first ||
            b->middle > w->in->last)
            continue;
        if (w->ng == 0 || b->middle - before >= GROUP * w->in->step)
            w->ng++;
        b->group = w->ng - 1;
        at[b->group] = before = b->middle;
    }
    spx_free(x);
    return SPX_OK;
}

/* Adds to the covariance of terms what not knowing their prior variances k does: x has the slope cov e_q x_q/k^2 with
 * that of term q, whose variance is unsure[q]. */
static void add_unsure(size_t n, const double *x, const double *prior, const double *unsure, double *cov)
{
    double known[SPX_SHIFT_ZERO_MOST * SPX_SHIFT_ZERO_MOST];
    memcpy(known, cov, n * n * sizeof *known);
    for (size_t q = 0; q < n; q++) {
        const double by = x[q] / (prior[q] * prior[q]), variance = by * by * unsure[q];
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n; j++)
                cov[i * n + j] += variance * known[i * n + q] * known[j * n + q];
    }
}

int spx_zero_shrink(size_t n, const double *info, const double *right, const double *wide, const double *usual,
                    double *x, double *cov)
{
    double prior[SPX_SHIFT_ZERO_MOST], of[SPX_SHIFT_ZERO_MOST], unsure[SPX_SHIFT_ZERO_MOST] = {0}; /* variances */
    double moved = 1;
    for (size_t q = 0; q < n; q++)
        prior[q] = wide[q] * wide[q];
    for (int round = 0; round < SIZES && moved > SMALL_SIZE; round++) {
        double g[SPX_SHIFT_ZERO_MOST * SPX_SHIFT_ZERO_MOST];
        memcpy(g, info, n * n * sizeof *g);
        memcpy(x, right, n * sizeof *x);
        memcpy(of, prior, n * sizeof *of);
        for (size_t q = 0; q < n; q++)
            g[q * n + q] += 1 / prior[q];
        if (!spx_small_factor(n, g))
            return 0;
        spx_small_solve(n, g, x);
        spx_small_inverse(n, g, cov);
        moved = 0;
        for (size_t q = 0; q < n; q++) {
            const spx_scatter_prior expected = {.odds = ODDS, .usual = usual[q] * usual[q]};
            const double v = cov[q * n + q], own = 1 / fmax(1 / v - 1 / prior[q], 1e-9 / prior[q]);
            const double value = x[q] * own / v, square = value * value; /* of the data alone */
            if (!(usual[q] > 0))
                continue;
            double found = spx_intrinsic_variance(1, &square, &own, 1, &expected, &unsure[q]);
            found = fmin(found, wide[q] * wide[q]);
            found = round < SLOWLY ? found : sqrt(found * prior[q]); /* terms may take turns in what they explain */
            moved = fmax(moved, fabs(log(found / prior[q])));
            prior[q] = found;
        }
    }
    add_unsure(n, x, of, unsure, cov);
    return 1;
}

/* Polynomial z through places s[ng] at wavelengths with covariance c[ng][ng], z so far included, by generalised least
 * squares with scatter tau. use[ng]. memory: [ng][ng + 1 + 2 terms]. 0: no solution, or none that stays. */
static int fit_places(const work *w, const double *at, const double *s, const double *c, spx_shift_zero *out,
                      uint8_t *use, double *memory)
{
    const size_t nt = w->in->nterm;
    double tau2 = 0, z[SPX_SHIFT_ZERO_MOST] = {0}, wide[SPX_SHIFT_ZERO_MOST], usual[SPX_SHIFT_ZERO_MOST];
    for (size_t t = 0; t < nt; t++) {
        wide[t] = (t == 0 ? FARTHEST : PRIOR_SLOPE) * w->in->step;
        usual[t] = t == 0 ? 0 : t == 1 ? w->in->slope : w->in->curve > 0 ? w->in->curve : CURVE * w->in->step;
    }
    int settled = 0;
    for (int round = 0; round <= ROUNDS && !settled; round++) {
        size_t n = 0, *list = (size_t *)memory;
        double *v = memory + w->ng, *p = v + w->ng * w->ng, *r = p + w->ng * nt;
        double g[SPX_SHIFT_ZERO_MOST * SPX_SHIFT_ZERO_MOST] = {0}, right[SPX_SHIFT_ZERO_MOST] = {0};
        for (size_t i = 0; i < w->ng; i++)
            if (use[i])
                list[n++] = i;
        if (n < FEWEST)
            return 0;
        for (size_t i = 0; i < n; i++) {
            for (size_t j = 0; j < n; j++)
                v[i * n + j] = c[list[i] * w->ng + list[j]] + (i == j ? tau2 : 0);
            double q[SPX_SHIFT_ZERO_MOST];
            spx_legendre(spx_legendre_place(w->in->first, w->in->last, at[list[i]]), nt, q);
            for (size_t t = 0; t < nt; t++)
                p[i * nt + t] = q[t];
        }
        if (!spx_dense_factor(n, v))
            return 0;
        memcpy(r, p, n * nt * sizeof *r);
        spx_dense_solve(n, v, nt, r);
        for (size_t t = 0; t < nt; t++) {
            for (size_t i = 0; i < n; i++) {
                right[t] += r[i * nt + t] * s[list[i]];
                for (size_t u = 0; u < nt; u++)
                    g[t * nt + u] += r[i * nt + t] * p[i * nt + u];
            }
        }
        double moved = 0, had[SPX_SHIFT_ZERO_MOST];
        memcpy(had, z, sizeof had);
        if (!spx_zero_shrink(nt, g, right, wide, usual, z, out->cov))
            return 0;
        for (size_t t = 0; t < nt; t++)
            moved = fmax(moved, fabs(z[t] - had[t]) / w->in->step);
        double *square = r, *variance = p; /* no longer needed */
        out->chi2 = 0;
        for (size_t i = 0; i < n; i++) {
            const double d = s[list[i]] - polynomial(w, z, at[list[i]]);
            variance[i] = c[list[i] * w->ng + list[i]];
            square[i] = d * d;
            out->chi2 += square[i] / variance[i];
        }
        out->dof = n > nt ? (double)(n - nt) : 0;
        out->nline = n;
        out->tau = sqrt(tau2);
        settled = round > 0 && moved < SMALL_ROUND;
        if (settled)
            break;
        /* a line may come and go, with what scatter and curves explain: then the larger scatter, and not that line */
        const int turns = round >= ROUNDS / 2;
        const double had_tau2 = tau2;
        const double free = (double)(n > nt ? n - nt : 1) / (double)n;
        const double own_tau2 =
            spx_intrinsic_variance(n, square, variance, free, &(spx_scatter_prior){.odds = 0.3}, NULL);
        tau2 = fmin(fmax(own_tau2, turns ? had_tau2 : 0), pow(MOST_TAU * w->in->step, 2));
        int other = 0;
        for (size_t i = 0; i < w->ng; i++) {
            const double d = s[i] - polynomial(w, z, at[i]);
            const int near = d * d <= 16 * (c[i * w->ng + i] + tau2), keep = near && (use[i] || !turns);
            other |= use[i] != keep;
            use[i] = (uint8_t)keep;
        }
        settled = !other && tau2 == had_tau2; /* the next round would be this one */
    }
    memcpy(out->z, z, nt * sizeof *z);
    return settled;
}

/* Series of kappa from that of the joint fit, free[nk] with covariance c[nk][nk], which has weak priors; noise: by
 * which the covariance has been multiplied. 0: none. */
static int fit_width(const work *w, const double *free, const double *c, double noise, spx_shift_zero *out)
{
    const size_t nk = w->nk;
    const double square = w->in->step * w->in->step;
    double info[SPX_SHIFT_ZERO_MOST * SPX_SHIFT_ZERO_MOST], right[SPX_SHIFT_ZERO_MOST] = {0};
    double wide[SPX_SHIFT_ZERO_MOST], usual[SPX_SHIFT_ZERO_MOST];
    double factor[SPX_SHIFT_ZERO_MOST * SPX_SHIFT_ZERO_MOST];
    memcpy(factor, c, nk * nk * sizeof *factor);
    if (!spx_small_factor(nk, factor))
        return 0;
    spx_small_inverse(nk, factor, info);
    for (size_t q = 0; q < nk; q++) {
        for (size_t r = 0; r < nk; r++)
            right[q] += info[q * nk + r] * free[r];
        wide[q] = (q == 0 ? PRIOR_KAPPA : PRIOR_BEND) * square;
        usual[q] = q == 0 ? 0 : w->in->bend > 0 ? w->in->bend : BEND * square;
    }
    for (size_t q = 0; q < nk; q++)
        info[q * nk + q] = fmax(info[q * nk + q] - weak_information(w, q) / noise, 0);
    if (!spx_zero_shrink(nk, info, right, wide, usual, out->kappa, out->kappa_cov))
        return 0;
    out->kappa_cov[0] += pow(LINE_WIDTH, 4);
    return 1;
}

/* Wavelengths that a column reaches over, Angstrom. */
typedef struct {
    double low, high;
    size_t column;
} range;

static int by_middle(const void *a, const void *b)
{
    const range *x = a, *y = b;
    const double d = x->low + x->high - y->low - y->high;
    return d != 0 ? (d > 0) - (d < 0) : (x->column > y->column) - (x->column < y->column);
}

/* Ranges of lines, splines and groups, range[nc]: spots of lines, wherever the zero point may take them. */
static void find_ranges(const work *w, range *r)
{
    const double reach = (w->psf->hsizey + 2) * w->row + SPX_SHIFT_ZERO_MOST * FARTHEST * w->in->step;
    for (size_t i = 0; i < w->nc; i++)
        r[i] = (range){INFINITY, -INFINITY, i};
    for (size_t l = 0; l < w->nl; l++) {
        const blend *b = &w->of[l];
        range *group = b->group != NONE ? &r[w->nl + w->nb + b->group] : &r[l];
        r[l].low = w->line[b->first].wavelength - reach;
        r[l].high = w->line[b->first + b->n - 1].wavelength + reach;
        group->low = fmin(group->low, r[l].low);
        group->high = fmax(group->high, r[l].high);
    }
    for (size_t i = 0; i < w->nb; i++) {
        r[w->nl + i].low = w->spline.first + ((double)i - 3) * w->spline.step;
        r[w->nl + i].high = r[w->nl + i].low + 4 * w->spline.step;
    }
}

/* Columns of groups, and of kappa, are new: order, shape and memory of the normal equations. */
static spx_status resize(work *w, spx_err *e)
{
    const size_t local = w->nl + w->nb + w->ng;
    w->nk = w->ng > 0 ? w->in->nkappa : 0;
    w->nc = local + w->nk;
    spx_free(w->column);
    spx_free(w->g);
    spx_free(w->right);
    w->g = w->right = NULL;
    w->column = spx_alloc2(4, w->nc, sizeof *w->column, e);
    range *r = spx_alloc(w->nc, sizeof *r, e);
    if (w->column == NULL || r == NULL) {
        spx_free(r);
        return SPX_EIO;
    }
    w->rank = w->column + w->nc;
    w->shape = (spx_envelope){w->nc, w->rank + w->nc, w->rank + 2 * w->nc};
    find_ranges(w, r);
    qsort(r, local, sizeof *r, by_middle);
    for (size_t i = 0; i < w->nc; i++) {
        w->column[i] = r[i].column;
        w->rank[r[i].column] = i;
        w->shape.first[i] = i < local ? i : 0;
        for (size_t j = 0; j < i && i < local; j++)
            if (r[j].high >= r[i].low && r[j].low <= r[i].high) {
                w->shape.first[i] = j;
                break;
            }
    }
    spx_free(r);
    w->size = spx_envelope_rows(&w->shape);
    const size_t parts = w->engine != NULL ? 1 : PARTS;
    w->g = spx_alloc2(parts, w->size, sizeof *w->g, e);
    w->right = spx_alloc2(parts + 1, w->nc, sizeof *w->right, e);
    w->found = w->right + parts * w->nc;
    return w->g && w->right ? SPX_OK : SPX_EIO;
}

static spx_status iterate(work *w, spx_shift_zero *out, spx_err *e)
{
    double *at = spx_alloc(w->nl + 1, sizeof *at, e), *place = NULL, *cov = NULL, *x = NULL, *memory = NULL;
    uint8_t *use = NULL;
    int good = 1, settled = 0;
    spx_status st = at != NULL ? resize(w, e) : SPX_EIO;
    if (st == SPX_OK)
        st = sum_up(w, 0, &good, e);
    if (st == SPX_OK && good) {
        memcpy(w->strength, w->found, (w->nl + w->nb) * sizeof *w->strength);
        st = make_groups(w, at, e);
    }
    const size_t ng = w->ng;
    good = good && ng >= FEWEST;
    if (st == SPX_OK && good)
        st = resize(w, e);
    if (st == SPX_OK && good) {
        place = spx_alloc(ng, sizeof *place, e);
        cov = spx_alloc2(ng, ng, sizeof *cov, e);
        x = spx_alloc2(w->nc, sides_of(w->nc - w->nl - w->nb), sizeof *x, e);
        memory = spx_alloc2(ng, ng + 1 + 2 * SPX_SHIFT_ZERO_MOST, sizeof *memory, e);
        use = spx_alloc(ng, 1, e);
        if (!place || !cov || !x || !memory || !use)
            st = SPX_EIO;
    }
    double moved = 1;                   /* by the step before, bins */
    double used = 0, before = INFINITY; /* pixels that it used, and by how much fewer */
    int reject = SPX_ZERO_KEEP, rejected = 0;
    for (int step = 0; step < MOST_STEPS && good && !settled && st == SPX_OK; step++) {
        const size_t first = w->nl + w->nb;
        if (reject == SPX_ZERO_KEEP && !rejected && step > 0 && (moved < NEAR || step > 2))
            reject = SPX_ZERO_BRIGHT;
        if ((st = sum_up(w, reject, &good, e)) != SPX_OK || !good)
            break;
        const double fewer = used - w->npix[0];
        const int more = fewer > 0 && fewer < 0.5 * before;
        used = w->npix[0];
        before = more ? fewer : INFINITY;
        if (reject == SPX_ZERO_BRIGHT && !more) {
            reject = SPX_ZERO_ANY;
        } else if (reject == SPX_ZERO_ANY && !more) {
            reject = SPX_ZERO_KEEP;
            rejected = 1;
        }
        /* pixel noise that is larger than ivar says, as of spots that the PSF cannot describe */
        const double noise = fmax(1, w->chi2[0] / fmax(1, w->npix[0] - (double)w->nc));
        const double part = step < WHOLE_STEPS ? 1 : step < 2 * WHOLE_STEPS ? 0.5 : 0.25;
        for (size_t i = 0; i < first; i++)
            w->strength[i] += part * w->found[i];
        const size_t m = sides_of(w->nc - first); /* of groups, and kappa */
        inverse_columns(w, first, w->nc - first, x);
        for (size_t i = 0; i < ng; i++) {
            place[i] = w->found[first + i] + polynomial(w, w->z, at[i]);
            use[i] = 1;
            for (size_t j = 0; j < ng; j++)
                cov[i * ng + j] = noise * x[w->rank[first + j] * m + i];
        }
        good = fit_places(w, at, place, cov, out, use, memory);
        if (good && w->nk > 0) {
            double free[SPX_SHIFT_ZERO_MOST], of_free[SPX_SHIFT_ZERO_MOST * SPX_SHIFT_ZERO_MOST];
            for (size_t q = 0; q < w->nk; q++) {
                free[q] = w->kappa[q] + w->found[first + ng + q];
                for (size_t r = 0; r < w->nk; r++)
                    of_free[q * w->nk + r] = noise * x[w->rank[first + ng + q] * m + ng + r];
            }
            good = fit_width(w, free, of_free, noise, out);
            for (size_t q = 0; q < w->nk && good; q++)
                w->kappa[q] += part * (out->kappa[q] - w->kappa[q]);
        }
        moved = 0;
        for (size_t q = 0; q < w->in->nterm && good; q++) {
            moved = fmax(moved, fabs(out->z[q] - w->z[q]) / w->in->step);
            w->z[q] += part * (out->z[q] - w->z[q]);
            good = fabs(w->z[q]) < FARTHEST * w->in->step;
        }
        w->made++;
        settled = rejected && moved < SMALL_STEP;
    }
    memcpy(out->kappa, w->kappa, sizeof out->kappa);
    out->nterm = w->in->nterm;
    out->nkappa = w->nk;
    if (!settled)
        *out = (spx_shift_zero){0};
    spx_free(at);
    spx_free(place);
    spx_free(cov);
    spx_free(x);
    spx_free(memory);
    spx_free(use);
    return st;
}

spx_status spx_zero_point_cpu(const spx_image *image, const spx_psf *psf, const spx_shift_common *in,
                              const spx_shift_lines *lines, spx_shift_zero *out, spx_err *e)
{
    return spx_zero_solve(NULL, image, psf, in, lines, out, e);
}

spx_status spx_zero_solve(spx_zero_engine *g, const spx_image *image, const spx_psf *psf, const spx_shift_common *in,
                          const spx_shift_lines *lines, spx_shift_zero *out, spx_err *e)
{
    work w = {.image = image,
              .psf = psf,
              .in = in,
              .spots = best_spots(),
              .engine = g != NULL && spx_zero_on_device(psf) ? g : NULL,
              .nthreads = in->nthreads > 0 ? in->nthreads : omp_get_max_threads()};
    *out = (spx_shift_zero){0};
    if (lines->n == 0 || in->nfibre == 0 || !(in->last > in->first))
        return SPX_OK;
    w.spline = spx_bspline_of(in->first, in->last, KNOTS);
    w.nb = w.spline.n;
    spx_status st = choose_lines(lines, &w, e);
    w.strength = st == SPX_OK ? spx_alloc(w.nl + w.nb, sizeof *w.strength, e) : NULL;
    if (w.strength == NULL)
        st = SPX_EIO;
    if (st == SPX_OK && w.nl >= FEWEST) {
        st = make_strips(&w, e);
        if (st == SPX_OK)
            st = iterate(&w, out, e);
    }
    for (size_t part = 0; part < PARTS; part++) {
        spx_free(w.memory[part].c);
        spx_free(w.memory[part].work.at);
        spx_free(w.memory[part].rest.at);
        spx_free(w.memory[part].weighted.at);
    }
    spx_free(w.strips);
    spx_free(w.pixels);
    spx_free(w.corners);
    spx_free(w.images);
    spx_free(w.strength);
    spx_free(w.line);
    spx_free(w.of);
    spx_free(w.column);
    spx_free(w.g);
    spx_free(w.right);
    return st;
}
