/* Computes tails by tables and by FFTs on two grids (psf/tail.h). */
#include "psf/tail.h"

#include <complex.h>
#include <fftw3.h>
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "psf/spot_math.h"

/* Relative change of a parameter that counts as rounding. */
#define SAME 1e-6

enum {
    NKNOT = SPX_TAIL_KNOTS,
    RIM = SPX_TAIL_RIM,
    LANES = 8, /* columns of a row of the tables: a multiple of it */
    XPHASES = SPX_TAIL_XPHASES,
    YPHASES = SPX_TAIL_YPHASES,
    ACROSS = XPHASES + 1, /* places across a pixel, with those of both edges */
    BAND = 64,            /* rows of the image whose light is spread by one thread */
    ALIGN = 8,            /* rows of which bands are a multiple */
    TILE = 256            /* cells of a side of a tile, or more where the middle part is long */
};

/* FFT of real arrays [ny][nx] and their transforms [ny][nx/2 + 1]. */
typedef struct {
    size_t ny, nx;
    fftwf_plan forward, inverse;
} transform;

/* Light in a row of places: electrons times amplitude at one of them, and at the next one across. */
typedef struct {
    int32_t x, y;  /* central pixel, counted from the edge's first */
    int32_t table; /* of the first place; below 0: no light */
    float q[2];
} source;

/* Grid of cells over the CCD and its edge. */
typedef struct {
    size_t ny, nx; /* cells */
    size_t stride; /* of a row of `light` */
    float *light;
} grid;

struct spx_tail {
    const spx_psf *psf;
    spx_tail_shape shape;
    int beyond;             /* without the spots' own pixels */
    size_t ny, nx;          /* of the CCD */
    size_t edge;            /* pixels around it whose light counts */
    size_t gy, gx;          /* of the CCD with its edge */
    source *light, *sorted; /* [most], of which nlight are in use */
    size_t nlight, most;
    double inner, width;   /* pixels at which the middle part begins, and in which it rises */
    double outer;          /* at which the far part begins */
    size_t near, row;      /* pixels that a table reaches; columns of its rows, with zeros behind */
    float *table;          /* [YPHASES + 1][XPHASES + 1][2 near + 1][row] */
    size_t reach;          /* of the middle part, cells */
    transform tile, field; /* of the middle grid's tiles; of the far grid */
    fftwf_complex *middle; /* [tile] of the middle kernel, divided by the number of cells */
    fftwf_complex *far;    /* [field] of the far kernel, divided by the number of cells */
    grid fine, coarse;     /* of the middle and the far part */
    float *smooth;         /* [fine.ny][fine.nx] both parts on the middle grid */
    double wmin, wmax;
    double *amplitude; /* [nspec][NKNOT] TAILAMP over the sum of the pixels of the spot with its tail, or of its core */
    double *within;    /* [nspec][NKNOT] the first of these sums over the second */
};

/* ---- the tail's shape ---- */

static spx_status constant_of(const spx_psf *psf, int which, double *value, spx_err *e)
{
    static const char remedy[] = "give {tail} near, and light beyond the spots stays";
    const char *name = psf->param[psf->tail[which]];
    const double *c = psf->coeff + (size_t)psf->tail[which] * psf->nspec * psf->ndeg;
    *value = c[0];
    for (size_t f = 0; f < psf->nspec; f++)
        for (size_t k = 0; k < psf->ndeg; k++) {
            const double v = c[f * psf->ndeg + k];
            if (!(fabs(v - (k == 0 ? *value : 0.0)) <= SAME * fabs(*value)))
                return k == 0
                           ? spx_fail_remedy(e, SPX_EINPUT, remedy,
                                             "psf: %s is %g for fibre %zu, and %g for fibre 0: a camera's tails must "
                                             "have one",
                                             name, v, f, *value)
                           : spx_fail_remedy(e, SPX_EINPUT, remedy,
                                             "psf: %s of fibre %zu changes along the wavelengths: a camera's tails "
                                             "must have one",
                                             name, f);
        }
    return SPX_OK;
}

spx_status spx_tail_shape_of(const spx_psf *psf, spx_tail_shape *s, spx_err *e)
{
    spx_status st = constant_of(psf, SPX_TAIL_CORE, &s->core, e);
    if (st == SPX_OK)
        st = constant_of(psf, SPX_TAIL_XSCA, &s->xscale, e);
    if (st == SPX_OK)
        st = constant_of(psf, SPX_TAIL_YSCA, &s->yscale, e);
    if (st == SPX_OK)
        st = constant_of(psf, SPX_TAIL_INDE, &s->index, e);
    if (st == SPX_OK && !(s->core >= 0.0 && s->xscale > 0.0 && s->yscale > 0.0 && s->index > 0.0 &&
                          isfinite(s->core + s->xscale + s->yscale + s->index)))
        st = spx_fail_remedy(e, SPX_EINPUT, "give {tail} none, and the tail is left out",
                             "psf: TAILCORE %g, TAILXSCA %g, TAILYSCA %g, TAILINDE %g are no tail: must be at least 0, "
                             "and the last three above 0",
                             s->core, s->xscale, s->yscale, s->index);
    return st;
}

double spx_tail_value(const spx_tail_shape *s, double dx, double dy)
{
    const double tx = dx * s->xscale, ty = dy * s->yscale, r2 = tx * tx + ty * ty, q = s->core * s->core + r2;
    return q > 0.0 ? r2 * pow(q, -(1.0 + 0.5 * s->index)) : 0.0;
}

/* 0 below `inner` pixels, 1 beyond `width` more, with two continuous derivatives. */
static double step(double inner, double width, double r)
{
    const double t = (r - inner) / width;
    return t <= 0.0 ? 0.0 : t >= 1.0 ? 1.0 : t * t * t * (10.0 - t * (15.0 - 6.0 * t));
}

/* The steps at which the middle and the far part begin. */
static double middle_step(const spx_tail *t, double r)
{
    return step(t->inner, t->width, r);
}

static double far_step(const spx_tail *t, double r)
{
    return step(t->outer, SPX_TAIL_FAR_STEP, r);
}

/* A place within a pixel. */
static double place_of(int i, int phases)
{
    return (double)i / phases - 0.5;
}

/* Tables of the near part; of a pixel of the spot itself it takes off what the others have there. */
static void make_tables(spx_tail *t, int nthreads)
{
    const int near = (int)t->near;
#pragma omp parallel for num_threads(nthreads)
    for (int p = 0; p < ACROSS * (YPHASES + 1); p++) {
        const double x = place_of(p % ACROSS, XPHASES), y = place_of(p / ACROSS, YPHASES);
        float *to = t->table + (size_t)p * (2 * t->near + 1) * t->row;
        for (int dy = -near; dy <= near; dy++, to += t->row)
            for (int dx = -near; dx <= near; dx++) {
                const int in = t->beyond && abs(dx) <= t->psf->hsizex && abs(dy) <= t->psf->hsizey;
                const double share = (in ? 0.0 : 1.0) - middle_step(t, sqrt((dx - x) * (dx - x) + (dy - y) * (dy - y)));
                to[dx + near] = share != 0.0 ? (float)(share * spx_tail_value(&t->shape, dx - x, dy - y)) : 0.0f;
            }
    }
}

/* ---- memory and kernels ---- */

/* Least size of an FFT that is n or more: a product of 2, 3 and 5, even. */
static size_t good_size(size_t n)
{
    for (;; n++) {
        size_t rest = n;
        for (size_t p = 2; p <= 5; p++)
            while (rest % p == 0)
                rest /= p;
        if (rest == 1 && n % 2 == 0)
            return n;
    }
}

static size_t nfreq(const transform *f)
{
    return f->ny * (f->nx / 2 + 1);
}

static spx_status make_transform(size_t ny, size_t nx, transform *f, spx_err *e)
{
    *f = (transform){.ny = ny, .nx = nx};
    float *r = spx_alloc_unset(ny, nx, sizeof *r, e);
    fftwf_complex *z = r ? spx_alloc_unset(nfreq(f), 1, sizeof *z, e) : NULL;
    if (z) {
#pragma omp critical(spx_fftw_planner)
        {
            f->forward = fftwf_plan_dft_r2c_2d((int)ny, (int)nx, r, z, FFTW_ESTIMATE);
            f->inverse = fftwf_plan_dft_c2r_2d((int)ny, (int)nx, z, r, FFTW_ESTIMATE);
        }
    }
    spx_free(r);
    spx_free(z);
    return f->forward && f->inverse ? SPX_OK : spx_mem_fail(e);
}

static void free_transform(transform *f)
{
#pragma omp critical(spx_fftw_planner)
    {
        if (f->forward)
            fftwf_destroy_plan(f->forward);
        if (f->inverse)
            fftwf_destroy_plan(f->inverse);
    }
}

void spx_tail_free(spx_tail *t)
{
    if (t == NULL)
        return;
    free_transform(&t->tile);
    free_transform(&t->field);
    spx_free(t->light);
    spx_free(t->sorted);
    spx_free(t->table);
    spx_free(t->middle);
    spx_free(t->far);
    spx_free(t->fine.light);
    spx_free(t->coarse.light);
    spx_free(t->smooth);
    spx_free(t->amplitude);
    spx_free(t->within);
    spx_free(t);
}

/* Transform of a kernel that is symmetric in both directions, wrapped around the corner; which: 0: middle, 1: far. */
static spx_status make_kernel(const spx_tail *t, const transform *f, int which, int nthreads, fftwf_complex *to,
                              spx_err *e)
{
    const double cell = which ? SPX_TAIL_COARSE : SPX_TAIL_FINE;
    float *r = spx_alloc2(f->ny, f->nx, sizeof *r, e);
    if (!r)
        return SPX_EIO;
#pragma omp parallel for num_threads(nthreads)
    for (size_t y = 0; y <= (which ? f->ny / 2 : t->reach); y++)
        for (size_t x = 0; x <= f->nx / 2 && (which || x <= t->reach); x++) {
            const double dx = cell * (double)x, dy = cell * (double)y, d = sqrt(dx * dx + dy * dy),
                         far = far_step(t, d);
            const double share = which ? far : middle_step(t, d) - far;
            const float v =
                share != 0.0 ? (float)(share * spx_tail_value(&t->shape, dx, dy) / (double)(f->ny * f->nx)) : 0.0f;
            const size_t yy = y > 0 ? f->ny - y : 0, xx = x > 0 ? f->nx - x : 0;
            r[y * f->nx + x] = r[yy * f->nx + x] = r[y * f->nx + xx] = r[yy * f->nx + xx] = v;
        }
    fftwf_execute_dft_r2c(f->forward, r, to);
    spx_free(r);
    return SPX_OK;
}

/* Amplitudes along the traces; 0 where there is no spot. */
static spx_status make_amplitudes(spx_tail *t, int nthreads, spx_err *e)
{
    const spx_psf *p = t->psf;
    const size_t npix = (size_t)spx_psf_nx(p) * (size_t)spx_psf_ny(p), nwork = spx_psf_spot_work(p);
    spx_psf bare = *p;
    int failed = 0;
    spx_psf_drop_tail(&bare);
#pragma omp parallel num_threads(nthreads) reduction(| : failed)
    {
        double *work = spx_alloc(nwork + npix + p->ndeg, sizeof *work, NULL);
        failed |= !work;
#pragma omp for
        for (size_t f = 0; f < p->nspec; f++)
            for (size_t k = 0; k < NKNOT && work; k++) {
                const double lambda = t->wmin + (t->wmax - t->wmin) * (double)k / (NKNOT - 1);
                double all, core, *basis = work + nwork + npix;
                t->within[f * NKNOT + k] = 1.0;
                if (spx_psf_spot_scale(p, f, lambda, work, work + nwork, &all) != SPX_SPOT_OK ||
                    spx_psf_spot_scale(&bare, f, lambda, work, work + nwork, &core) != SPX_SPOT_OK)
                    continue;
                spx_legendre_basis(p->ndeg, spx_psf_param_u(p, f, lambda), basis);
                t->amplitude[f * NKNOT + k] =
                    (t->beyond ? all : core) * spx_psf_param_value(p, f, p->tail[SPX_TAIL_AMP], basis);
                t->within[f * NKNOT + k] = core / all;
            }
        spx_free(work);
    }
    return failed ? spx_mem_fail(e) : SPX_OK;
}

/* A grid over n pixels in each direction, without its light. */
static grid make_grid(size_t cell, size_t gy, size_t gx)
{
    return (grid){.ny = gy / cell + 2 * RIM + 2, .nx = gx / cell + 2 * RIM + 2};
}

spx_status spx_tail_make(const spx_psf *psf, size_t ny, size_t nx, double wmin, double wmax, int beyond, int nthreads,
                         spx_tail **tail, spx_err *e)
{
    const int n = nthreads > 0 ? nthreads : omp_get_max_threads();
    const size_t hsize = (size_t)(psf->hsizex > psf->hsizey ? psf->hsizex : psf->hsizey);
    spx_tail *t = *tail = spx_alloc(1, sizeof *t, e);
    if (!t)
        return SPX_EIO;
    spx_status st = spx_tail_shape_of(psf, &t->shape, e);
    if (st != SPX_OK)
        return st;
    t->psf = psf;
    t->beyond = beyond;
    t->ny = ny;
    t->nx = nx;
    t->edge = 2 * hsize + 1 > SPX_TAIL_LEAST_EDGE ? 2 * hsize + 1 : SPX_TAIL_LEAST_EDGE;
    t->gy = ny + 2 * t->edge;
    t->gx = nx + 2 * t->edge;
    t->inner = beyond ? fmax(SPX_TAIL_INNER, fmin(psf->hsizex, psf->hsizey)) : SPX_TAIL_INNER;
    t->width = beyond ? SPX_TAIL_BEYOND_STEP : SPX_TAIL_MIDDLE_STEP;
    t->outer = fmax(SPX_TAIL_OUTER, t->inner);
    t->near = (size_t)(t->inner + t->width);
    t->near = beyond && hsize > t->near ? hsize : t->near;
    t->row = (2 * t->near + 1 + LANES - 1) / LANES * LANES;
    t->reach = ((size_t)t->outer + SPX_TAIL_FAR_STEP) / SPX_TAIL_FINE + 1;
    t->fine = make_grid(SPX_TAIL_FINE, t->gy, t->gx);
    t->coarse = make_grid(SPX_TAIL_COARSE, t->gy, t->gx);
    t->wmin = wmin;
    t->wmax = wmax > wmin ? wmax : wmin + 1.0;
    const size_t side = good_size(4 * t->reach > TILE ? 4 * t->reach : TILE);
    st = make_transform(side, side, &t->tile, e);
    if (st == SPX_OK)
        st = make_transform(good_size(2 * t->coarse.ny), good_size(2 * t->coarse.nx), &t->field, e);
    t->fine.stride = t->fine.nx;
    t->coarse.stride = t->field.nx;
    if (st == SPX_OK &&
        !((t->table = spx_alloc2((size_t)ACROSS * (YPHASES + 1) * (2 * t->near + 1), t->row, sizeof *t->table, e)) &&
          (t->middle = spx_alloc(nfreq(&t->tile), sizeof *t->middle, e)) &&
          (t->far = spx_alloc(nfreq(&t->field), sizeof *t->far, e)) &&
          (t->fine.light = spx_alloc2(t->fine.ny, t->fine.stride, sizeof *t->fine.light, e)) &&
          (t->smooth = spx_alloc2(t->fine.ny, t->fine.nx, sizeof *t->smooth, e)) &&
          (t->coarse.light = spx_alloc2(t->field.ny, t->field.nx, sizeof *t->coarse.light, e)) &&
          (t->amplitude = spx_alloc2(psf->nspec, NKNOT, sizeof *t->amplitude, e)) &&
          (t->within = spx_alloc2(psf->nspec, NKNOT, sizeof *t->within, e))))
        st = SPX_EIO;
    if (st == SPX_OK)
        make_tables(t, n);
    if (st == SPX_OK)
        st = make_kernel(t, &t->tile, 0, n, t->middle, e);
    if (st == SPX_OK)
        st = make_kernel(t, &t->field, 1, n, t->far, e);
    return st == SPX_OK ? make_amplitudes(t, n, e) : st;
}

/* Tables of places in the middle of a row come from this one on. */
static size_t first_of_row(void)
{
    return (size_t)ACROSS * (YPHASES / 2);
}

void spx_tail_look(const spx_tail *t, spx_tail_view *v)
{
    *v = (spx_tail_view){.ny = t->ny,
                         .nx = t->nx,
                         .edge = t->edge,
                         .near = t->near,
                         .row = t->row,
                         .fine_ny = t->fine.ny,
                         .fine_nx = t->fine.nx,
                         .coarse_ny = t->coarse.ny,
                         .coarse_nx = t->coarse.nx,
                         .reach = t->reach,
                         .tile = t->tile.nx,
                         .field_ny = t->field.ny,
                         .field_nx = t->field.nx,
                         .table = t->table + first_of_row() * (2 * t->near + 1) * t->row,
                         .middle = (const float *)t->middle,
                         .far = (const float *)t->far,
                         .wmin = t->wmin,
                         .wmax = t->wmax,
                         .amplitude = t->amplitude};
}

/* ---- light ---- */

/* Room for n sources. */
static spx_status make_room(spx_tail *t, size_t n, spx_err *e)
{
    t->nlight = 0;
    if (t->most >= n && t->light != NULL)
        return SPX_OK;
    spx_free(t->light);
    spx_free(t->sorted);
    t->most = n;
    t->light = spx_alloc_unset(n + 1, 1, sizeof *t->light, e);
    t->sorted = spx_alloc_unset(n + 1, 1, sizeof *t->sorted, e);
    return t->light && t->sorted ? SPX_OK : SPX_EIO;
}

spx_tail_knots spx_tail_knots_at(const spx_tail *t, double lambda)
{
    const double knot = fmin(fmax((lambda - t->wmin) / (t->wmax - t->wmin), 0.0), 1.0) * (NKNOT - 1);
    const size_t k = knot < 1.0 ? 0 : knot < NKNOT - 3 ? (size_t)knot - 1 : NKNOT - 4;
    const double u = knot - (double)(k + 1);
    return (spx_tail_knots){k,
                            {-u * (u - 1) * (u - 2) / 6, (u + 1) * (u - 1) * (u - 2) / 2, -(u + 1) * u * (u - 2) / 2,
                             (u + 1) * u * (u - 1) / 6}};
}

/* Value of a table along the trace. */
static double along(const double *table, size_t fibre, const spx_tail_knots *at)
{
    const double *a = table + fibre * NKNOT + at->first, *w = at->weight;
    return a[0] * w[0] + a[1] * w[1] + a[2] * w[2] + a[3] * w[3];
}

double spx_tail_within(const spx_tail *t, size_t fibre, const spx_tail_knots *at)
{
    return along(t->within, fibre, at);
}

double spx_tail_amplitude(const spx_tail *t, size_t fibre, const spx_tail_knots *at)
{
    return along(t->amplitude, fibre, at);
}

/* The last place that d pixels from the middle of one are at or beyond, but for that of the other edge. */
static int phase_of(double d, int phases)
{
    const double p = (d + 0.5) * phases;
    return p > 0.0 ? (int)fmin(p, phases - 1) : 0;
}

spx_tail_column spx_tail_column_of(double column)
{
    const double middle = floor(column + 0.5);
    const int place = phase_of(column - middle, XPHASES);
    return (spx_tail_column){(long)middle, place, middle + place_of(place, XPHASES)};
}

/* Light at two places of a table, or none. */
static source source_of(const spx_tail *t, long column, long row, int table, double first, double next)
{
    const long gx = column + (long)t->edge, gy = row + (long)t->edge;
    const int in = gx >= 0 && gy >= 0 && gx < (long)t->gx && gy < (long)t->gy;
    return in && (first != 0.0 || next != 0.0) ? (source){(int32_t)gx, (int32_t)gy, table, {(float)first, (float)next}}
                                               : (source){.table = -1};
}

spx_status spx_tail_reserve(spx_tail *t, size_t n, spx_err *e)
{
    const spx_status st = make_room(t, n, e);
    t->nlight = st == SPX_OK ? n : 0;
    return st;
}

void spx_tail_set(spx_tail *t, size_t i, double amplitude, const spx_tail_column *at, long row, double electrons,
                  double moment)
{
    const double next = moment * XPHASES;
    t->light[i] =
        source_of(t, at->pixel, row, (int)first_of_row() + at->place, amplitude * (electrons - next), amplitude * next);
}

spx_status spx_tail_clear(spx_tail *t, size_t nlight, spx_err *e)
{
    return make_room(t, 2 * nlight, e); /* rows of places before and behind each */
}

void spx_tail_add(spx_tail *t, size_t fibre, double lambda, long column, long row, double dx, double dy,
                  double electrons)
{
    const spx_tail_knots at = spx_tail_knots_at(t, lambda);
    const int px = phase_of(dx, XPHASES), py = phase_of(dy, YPHASES);
    const double x = (dx - place_of(px, XPHASES)) * XPHASES, y = (dy - place_of(py, YPHASES)) * YPHASES,
                 q = electrons * along(t->amplitude, fibre, &at);
    for (int k = 0; k < 2 && t->nlight < t->most; k++) {
        const double share = q * (k == 0 ? 1.0 - y : y);
        t->light[t->nlight] = source_of(t, column, row, (py + k) * ACROSS + px, share * (1.0 - x), share * x);
        t->nlight += t->light[t->nlight].table >= 0;
    }
}

/* Weights of Lagrange's cubic through -1, 0, 1, 2 at u. */
static inline void cubic(float u, float w[4])
{
    w[0] = -u * (u - 1) * (u - 2) / 6;
    w[1] = (u + 1) * (u - 1) * (u - 2) / 2;
    w[2] = -(u + 1) * u * (u - 2) / 2;
    w[3] = (u + 1) * u * (u - 1) / 6;
}

/* First of the four cells whose cubic holds at a pixel, and their weights; `more`: at most half a pixel beyond it.
 * next: NULL, or weights of the same cells at a place `step` pixels further. */
static inline size_t cells_around(size_t cell, size_t pixel, float more, float step, float w[4], float *next)
{
    const float u = ((float)(pixel % cell) + more) * (1.0f / (float)cell);
    const int before = u < 0.0f; /* in the cell before that of the pixel */
    cubic(before ? u + 1.0f : u, w);
    if (next)
        cubic((before ? u + 1.0f : u) + step * (1.0f / (float)cell), next);
    return pixel / cell + RIM - 1 - (size_t)before;
}

static inline size_t cells_of(size_t cell, size_t pixel, float more, float w[4])
{
    return cells_around(cell, pixel, more, 0.0f, w, NULL);
}

/* Moves light to the cells around it. */
static inline void spread(size_t cell, const grid *g, const source *s)
{
    float wx[4], next[4], wy[4];
    const size_t cx = cells_around(cell, (size_t)s->x, (float)place_of(s->table % ACROSS, XPHASES), 1.0f / XPHASES, wx,
                                   next),
                 cy = cells_of(cell, (size_t)s->y, (float)place_of(s->table / ACROSS, YPHASES), wy);
    for (size_t i = 0; i < 4; i++)
        wx[i] = s->q[0] * wx[i] + s->q[1] * next[i];
    for (size_t j = 0; j < 4; j++) {
        float *to = g->light + (cy + j) * g->stride + cx;
        for (size_t i = 0; i < 4; i++)
            to[i] += wy[j] * wx[i];
    }
}

/* Moves the light of sources to both grids. */
SPX_CLONES static void spread_all(const spx_tail *t, size_t n, const source *light)
{
    for (size_t i = 0; i < n; i++)
        if (light[i].table >= 0)
            spread(SPX_TAIL_FINE, &t->fine, &light[i]);
    for (size_t i = 0; i < n; i++)
        if (light[i].table >= 0)
            spread(SPX_TAIL_COARSE, &t->coarse, &light[i]);
}

/* The near part of sources. */
SPX_CLONES static void draw_near(const spx_tail *t, size_t n, const source *light, float *image)
{
    const long side = 2 * (long)t->near + 1, row = (long)t->row, nx = (long)t->nx, ny = (long)t->ny;
    for (size_t k = 0; k < n; k++) {
        const source *s = &light[k];
        if (s->table < 0)
            continue;
        const float q = s->q[0], r = s->q[1], *from = t->table + (size_t)s->table * (size_t)(side * row);
        const long x0 = s->x - (long)(t->edge + t->near), y0 = s->y - (long)(t->edge + t->near);
        const long j0 = y0 < 0 ? -y0 : 0, j1 = y0 + side > ny ? ny - y0 : side;
        const long i0 = x0 < 0 ? -x0 : 0, i1 = x0 + side > nx ? nx - x0 : side;
        for (long j = j0; j < j1; j++) {
            float *to = image + (y0 + j) * nx + x0;
            const float *v = from + j * row, *w = v + side * row;
            if (i0 == 0 && x0 + row <= nx)
                for (long i = 0; i < row; i += LANES)
#pragma omp simd
                    for (long l = i; l < i + LANES; l++)
                        to[l] += q * v[l] + r * w[l];
            else
                for (long i = i0; i < i1; i++)
                    to[i] += q * v[i] + r * w[i];
        }
    }
}

/* Sources by the band of rows that they are in, in their order: first[band] to first[band + 1] of what it returns,
 * which is t->light where they are in that order. A band is (row + shift)/band. */
static const source *sort_bands(spx_tail *t, size_t shift, size_t band, size_t nband, size_t *first)
{
    size_t last = 0;
    int sorted = 1;
    for (size_t i = 0; i < t->nlight; i++) {
        const size_t b =
            t->light[i].table >= 0 ? ((size_t)t->light[i].y + shift) / band : last; /* dark ones lie anywhere */
        first[b + 1]++;
        sorted &= b >= last;
        last = b;
    }
    for (size_t b = 0; b < nband; b++)
        first[b + 1] += first[b];
    if (sorted)
        return t->light;
    for (size_t i = 0, b = 0; i < t->nlight; i++) {
        b = t->light[i].table >= 0 ? ((size_t)t->light[i].y + shift) / band : b;
        t->sorted[first[b]++] = t->light[i];
    }
    memmove(first + 1, first, nband * sizeof *first);
    first[0] = 0;
    return t->sorted;
}

/* ---- convolution ---- */

static void multiply(size_t n, const fftwf_complex *kernel, fftwf_complex *z)
{
    const float *k = (const float *)kernel;
    float *to = (float *)z;
#pragma omp simd
    for (size_t i = 0; i < 2 * n; i += 2) {
        const float re = to[i] * k[i] - to[i + 1] * k[i + 1], im = to[i] * k[i + 1] + to[i + 1] * k[i];
        to[i] = re;
        to[i + 1] = im;
    }
}

/* The far part on the cells of its grid, in place of the light. z: [nfreq] */
static void convolve_field(spx_tail *t, fftwf_complex *z)
{
    fftwf_execute_dft_r2c(t->field.forward, t->coarse.light, z);
    multiply(nfreq(&t->field), t->far, z);
    fftwf_execute_dft_c2r(t->field.inverse, z, t->coarse.light);
}

/* The middle part into the cells (y0, x0) ... of a tile. */
static void convolve_tile(spx_tail *t, size_t y0, size_t x0, size_t inner, float *r, fftwf_complex *z)
{
    const grid *g = &t->fine;
    const size_t side = t->tile.nx, reach = t->reach;
    const size_t from = x0 > reach ? x0 - reach : 0, to = x0 + side - reach < g->nx ? x0 + side - reach : g->nx;
    int any = 0;
    memset(r, 0, side * side * sizeof *r);
    for (size_t y = 0; y < side; y++) {
        const size_t gy = y0 + y;
        if (gy < reach || gy - reach >= g->ny)
            continue;
        float *at = r + y * side + (from + reach - x0);
        memcpy(at, g->light + (gy - reach) * g->stride + from, (to - from) * sizeof *r);
        for (size_t x = 0; !any && x < to - from; x++)
            any |= at[x] != 0.0f;
    }
    if (any) {
        fftwf_execute_dft_r2c(t->tile.forward, r, z);
        multiply(nfreq(&t->tile), t->middle, z);
        fftwf_execute_dft_c2r(t->tile.inverse, z, r);
    }
    for (size_t y = 0; y < inner && y0 + y < g->ny; y++)
        for (size_t x = 0; x < inner && x0 + x < g->nx; x++)
            t->smooth[(y0 + y) * g->nx + x0 + x] = r[(y + reach) * side + x + reach];
}

/* Adds the far part to row y of the middle grid. line: [coarse.nx]. */
static void add_far(spx_tail *t, size_t y, float *line)
{
    enum { RATIO = SPX_TAIL_COARSE / SPX_TAIL_FINE };
    const grid *g = &t->coarse;
    const float *c = g->light;
    float w[4], column[RATIO][4];
    /* cell k of the middle grid lies on pixel k - RIM of those that cells of the far grid count from RIM on */
    const size_t shift = RATIO * RIM, up = cells_of(RATIO, y + shift - RIM, 0.0f, w) - RIM;
    for (size_t i = 0; i < g->nx; i++)
        line[i] = w[0] * c[up * g->stride + i] + w[1] * c[(up + 1) * g->stride + i] +
                  w[2] * c[(up + 2) * g->stride + i] + w[3] * c[(up + 3) * g->stride + i];
    for (size_t x = 0; x < RATIO; x++)
        (void)cells_of(RATIO, x, 0.0f, column[x]);
    for (size_t x = 0; x < t->fine.nx; x++) {
        const size_t at = x + shift - RIM;
        const float *v = line + at / RATIO - 1, *u = column[at % RATIO];
        t->smooth[y * t->fine.nx + x] += u[0] * v[0] + u[1] * v[1] + u[2] * v[2] + u[3] * v[3];
    }
}

/* Row y of the image from the middle grid. line: [fine.nx]. */
SPX_CLONES static void interpolate_row(const spx_tail *t, size_t y, float *line, float *row)
{
    const size_t n = t->fine.nx;
    float w[4], even[4], odd[4];
    const float *c = t->smooth + cells_of(SPX_TAIL_FINE, y + t->edge, 0.0f, w) * n;
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        line[i] = w[0] * c[i] + w[1] * c[n + i] + w[2] * c[2 * n + i] + w[3] * c[3 * n + i];
    const size_t a = cells_of(SPX_TAIL_FINE, t->edge, 0.0f, even), b = cells_of(SPX_TAIL_FINE, t->edge + 1, 0.0f, odd);
#pragma omp simd
    for (size_t i = 0; i < t->nx / 2; i++) {
        const float *u = line + a + i, *v = line + b + i;
        row[2 * i] = even[0] * u[0] + even[1] * u[1] + even[2] * u[2] + even[3] * u[3];
        row[2 * i + 1] = odd[0] * v[0] + odd[1] * v[1] + odd[2] * v[2] + odd[3] * v[3];
    }
    if (t->nx % 2 == 1) {
        const float *u = line + a + t->nx / 2;
        row[t->nx - 1] = even[0] * u[0] + even[1] * u[1] + even[2] * u[2] + even[3] * u[3];
    }
}

spx_status spx_tail_image(spx_tail *t, int nthreads, float *image, spx_err *e)
{
    const size_t side = t->tile.nx, inner = side - 2 * t->reach;
    const size_t across = (t->fine.nx + inner - 1) / inner, ntile = across * ((t->fine.ny + inner - 1) / inner);
    const int n = nthreads > 0 ? nthreads : omp_get_max_threads();
    /* sources of a band reach into those before and behind it alone: every other band at one time. Bands begin with
     * that of the first row of the CCD, so that sources in the order of a few rows each are in that of bands. */
    const size_t band = BAND > 2 * t->near ? BAND : (2 * t->near + ALIGN - 1) / ALIGN * ALIGN,
                 shift = (t->edge + band - 1) / band * band - t->edge, nband = (t->gy + shift) / band + 1;
    size_t *first = spx_alloc(nband + 1, sizeof *first, e);
    fftwf_complex *far = spx_alloc_unset(nfreq(&t->field), 1, sizeof *far, e);
    int failed = 0;
    if (!first || !far) {
        spx_free(first);
        spx_free(far);
        return SPX_EIO;
    }
    const source *light = sort_bands(t, shift, band, nband, first);
#pragma omp parallel num_threads(n) reduction(| : failed)
    {
        float *r = spx_alloc_unset(side, side, sizeof *r, NULL), *line = spx_alloc(t->fine.nx, sizeof *line, NULL);
        fftwf_complex *z = spx_alloc_unset(nfreq(&t->tile), 1, sizeof *z, NULL);
        failed |= !r || !line || !z;
#pragma omp for
        for (size_t y = 0; y < t->fine.ny; y++)
            memset(t->fine.light + y * t->fine.stride, 0, t->fine.stride * sizeof *t->fine.light);
#pragma omp for
        for (size_t y = 0; y < t->field.ny; y++)
            memset(t->coarse.light + y * t->coarse.stride, 0, t->coarse.stride * sizeof *t->coarse.light);
        for (size_t odd = 0; odd < 2; odd++) {
#pragma omp for schedule(dynamic)
            for (size_t b = odd; b < nband; b += 2)
                spread_all(t, first[b + 1] - first[b], light + first[b]);
        }
#pragma omp single nowait
        convolve_field(t, far);
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < ntile; i++)
            if (r && z)
                convolve_tile(t, i / across * inner, i % across * inner, inner, r, z);
#pragma omp for
        for (size_t y = 0; y < t->fine.ny; y++)
            if (line)
                add_far(t, y, line);
#pragma omp for
        for (size_t y = 0; y < t->ny; y++)
            if (line)
                interpolate_row(t, y, line, image + y * t->nx);
        for (size_t odd = 0; odd < 2; odd++) {
#pragma omp for schedule(dynamic)
            for (size_t b = odd; b < nband; b += 2)
                draw_near(t, first[b + 1] - first[b], light + first[b], image);
        }
        spx_free(r);
        spx_free(line);
        spx_free(z);
    }
    spx_free(first);
    spx_free(far);
    return failed ? spx_mem_fail(e) : SPX_OK;
}
