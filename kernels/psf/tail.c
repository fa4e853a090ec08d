/* Computes the far tail by FFTs on two scales (psf/tail.h). */
#include "psf/tail.h"

#include <complex.h>
#include <fftw3.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "psf/spot_math.h"

/* Relative change of a parameter that counts as rounding. */
#define SAME 1e-6
/* Steps of the differences that derivatives of the kernel are made of, pixels. */
#define STEP1 0.01
#define STEP2 0.05

enum {
    MOST_TERMS = 6, /* of a Taylor series of order 2: 1, x, y, xx/2, xy, yy/2 */
    NKNOT = 65,     /* of the amplitude along a trace, which is linear in between */
    RIM = 2,        /* cells around the grid that cubics reach */
    NEAR = 6,       /* pixels around the central one whose kernel is tabulated */
    SIDE = 2 * NEAR + 1,
    STRIDE = 16, /* of its rows, columns beyond SIDE are 0 */
    XPHASES = 32,
    YPHASES = 16 /* places of the trace centre within a pixel that it is tabulated for */
};

/* Terms of a Taylor series. */
static size_t terms_of(int order)
{
    return order > 1 ? MOST_TERMS : order == 1 ? 3 : 1;
}

/* FFT of real arrays [ny][nx] and their transforms [ny][nx/2 + 1]. */
typedef struct {
    size_t ny, nx;
    fftwf_plan forward, inverse;
} transform;

struct spx_tail {
    const spx_psf *psf;
    spx_tail_shape shape;
    int beyond;    /* without the spots' own pixels */
    size_t ny, nx; /* of the CCD */
    size_t edge;   /* pixels around it whose light counts */
    size_t gy, gx; /* of the CCD with its edge */
    size_t nterm;
    float *near;  /* [gy + 2 NEAR][gx + 2 STRIDE] the short part where it is tabulated */
    float *table; /* [YPHASES][XPHASES][SIDE][STRIDE] */
    float *light; /* [nterm][gy][gx] moments about the nearest pixel */
    double inner; /* pixels at which the smooth part begins */
    size_t reach; /* of the short kernel, pixels */
    transform tile;
    fftwf_complex *kernel; /* [nterm][tile] of the short kernel, divided by the number of pixels */
    size_t cy, cx;         /* cells of the coarse grid */
    float *coarse;         /* [field.ny][field.nx], of which [cy][cx] has light */
    transform field;
    fftwf_complex *smooth; /* [field] of the smooth kernel, divided by the number of cells */
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

/* S: 0 below `inner` pixels, 1 beyond SPX_TAIL_STEP more, with two continuous derivatives. */
static double step(double inner, double dx, double dy)
{
    const double t = (sqrt(dx * dx + dy * dy) - inner) / SPX_TAIL_STEP;
    return t <= 0.0 ? 0.0 : t >= 1.0 ? 1.0 : t * t * t * (10.0 - t * (15.0 - 6.0 * t));
}

/* The short part at dx, dy from the trace centre; of a pixel of the spot itself it takes off what the smooth part has
 * there. */
static double short_part(const spx_tail *t, int within, double dx, double dy)
{
    return spx_tail_value(&t->shape, dx, dy) * ((within ? 0.0 : 1.0) - step(t->inner, dx, dy));
}

/* Tables of the short part around the central pixel, whose steps the series does not follow. */
static void make_table(spx_tail *t)
{
    for (int py = 0; py < YPHASES; py++)
        for (int px = 0; px < XPHASES; px++)
            for (int dy = -NEAR; dy <= NEAR; dy++)
                for (int dx = -NEAR; dx <= NEAR; dx++) {
                    const int in = t->beyond && abs(dx) <= t->psf->hsizex && abs(dy) <= t->psf->hsizey;
                    const double x = (px + 0.5) / XPHASES - 0.5, y = (py + 0.5) / YPHASES - 0.5;
                    t->table[((size_t)(py * XPHASES + px) * SIDE + (size_t)(dy + NEAR)) * STRIDE +
                             (size_t)(dx + NEAR)] = (float)short_part(t, in, dx - x, dy - y);
                }
}

/* Term k of its Taylor series in the place of the trace centre, at integer dx, dy from the central pixel. */
static double term(const spx_tail *t, size_t k, int dx, int dy)
{
    if (abs(dx) <= NEAR && abs(dy) <= NEAR)
        return 0.0;
    const int in = t->beyond && abs(dx) <= t->psf->hsizex && abs(dy) <= t->psf->hsizey;
    const double x = dx, y = dy, h = k < 3 ? STEP1 : STEP2, here = short_part(t, in, x, y);
    switch (k) {
    case 0:
        return here;
    case 1:
        return (short_part(t, in, x - h, y) - short_part(t, in, x + h, y)) / (2 * h);
    case 2:
        return (short_part(t, in, x, y - h) - short_part(t, in, x, y + h)) / (2 * h);
    case 3:
        return (short_part(t, in, x - h, y) - 2 * here + short_part(t, in, x + h, y)) / (2 * h * h);
    case 4:
        return (short_part(t, in, x - h, y - h) - short_part(t, in, x - h, y + h) - short_part(t, in, x + h, y - h) +
                short_part(t, in, x + h, y + h)) /
               (4 * h * h);
    default:
        return (short_part(t, in, x, y - h) - 2 * here + short_part(t, in, x, y + h)) / (2 * h * h);
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
    spx_free(t->near);
    spx_free(t->table);
    spx_free(t->kernel);
    spx_free(t->coarse);
    spx_free(t->smooth);
    spx_free(t->amplitude);
    spx_free(t->within);
    spx_free(t);
}

/* Transforms of the kernels, which are wrapped around the corner. */
static spx_status make_kernels(spx_tail *t, spx_err *e)
{
    const size_t n = t->tile.ny * t->tile.nx, most = n > t->field.ny * t->field.nx ? n : t->field.ny * t->field.nx;
    const int reach = (int)t->reach;
    float *r = spx_alloc_unset(most, 1, sizeof *r, e);
    if (!r)
        return SPX_EIO;
    for (size_t k = 0; k < t->nterm; k++) {
        memset(r, 0, n * sizeof *r);
        for (int dy = -reach; dy <= reach; dy++)
            for (int dx = -reach; dx <= reach; dx++) {
                const size_t y = (size_t)(dy < 0 ? dy + (int)t->tile.ny : dy),
                             x = (size_t)(dx < 0 ? dx + (int)t->tile.nx : dx);
                r[y * t->tile.nx + x] = (float)(term(t, k, dx, dy) / (double)n);
            }
        fftwf_execute_dft_r2c(t->tile.forward, r, t->kernel + k * nfreq(&t->tile));
    }
    const long fy = (long)t->field.ny, fx = (long)t->field.nx;
    for (long y = 0; y < fy; y++)
        for (long x = 0; x < fx; x++) {
            const double dy = (double)(SPX_TAIL_CELL * (y <= fy / 2 ? y : y - fy)),
                         dx = (double)(SPX_TAIL_CELL * (x <= fx / 2 ? x : x - fx));
            r[y * fx + x] = (float)(spx_tail_value(&t->shape, dx, dy) * step(t->inner, dx, dy) / (double)(fy * fx));
        }
    fftwf_execute_dft_r2c(t->field.forward, r, t->smooth);
    spx_free(r);
    return SPX_OK;
}

/* Amplitudes along the traces; 0 where there is no spot. */
static spx_status make_amplitudes(spx_tail *t, spx_err *e)
{
    const spx_psf *p = t->psf;
    const size_t npix = (size_t)spx_psf_nx(p) * (size_t)spx_psf_ny(p), nwork = spx_psf_spot_work(p);
    spx_psf bare = *p;
    int failed = 0;
    spx_psf_drop_tail(&bare);
#pragma omp parallel reduction(| : failed)
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

spx_status spx_tail_make(const spx_psf *psf, size_t ny, size_t nx, double wmin, double wmax, int order, int beyond,
                         spx_tail **tail, spx_err *e)
{
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
    t->edge = 2 * hsize + 1;
    t->gy = ny + 2 * t->edge;
    t->gx = nx + 2 * t->edge;
    t->nterm = terms_of(order);
    t->inner = fmax(SPX_TAIL_INNER, fmin(psf->hsizex, psf->hsizey));
    t->reach = (size_t)t->inner + SPX_TAIL_STEP > hsize ? (size_t)t->inner + SPX_TAIL_STEP : hsize;
    t->cy = t->gy / SPX_TAIL_CELL + 2 * RIM + 1;
    t->cx = t->gx / SPX_TAIL_CELL + 2 * RIM + 1;
    t->wmin = wmin;
    t->wmax = wmax > wmin ? wmax : wmin + 1.0;
    const size_t side = good_size(8 * t->reach);
    st = make_transform(side, side, &t->tile, e);
    if (st == SPX_OK)
        st = make_transform(good_size(2 * t->cy), good_size(2 * t->cx), &t->field, e);
    if (st == SPX_OK && !((t->light = spx_alloc2(t->nterm * t->gy, t->gx, sizeof *t->light, e)) &&
                          (t->near = spx_alloc2(t->gy + 2 * NEAR, t->gx + 2 * STRIDE, sizeof *t->near, e)) &&
                          (t->table = spx_alloc((size_t)YPHASES * XPHASES * SIDE * STRIDE, sizeof *t->table, e)) &&
                          (t->kernel = spx_alloc2(t->nterm, nfreq(&t->tile), sizeof *t->kernel, e)) &&
                          (t->coarse = spx_alloc2(t->field.ny, t->field.nx, sizeof *t->coarse, e)) &&
                          (t->smooth = spx_alloc(nfreq(&t->field), sizeof *t->smooth, e)) &&
                          (t->amplitude = spx_alloc2(psf->nspec, NKNOT, sizeof *t->amplitude, e)) &&
                          (t->within = spx_alloc2(psf->nspec, NKNOT, sizeof *t->within, e))))
        st = SPX_EIO;
    if (st == SPX_OK)
        make_table(t);
    if (st == SPX_OK)
        st = make_kernels(t, e);
    return st == SPX_OK ? make_amplitudes(t, e) : st;
}

/* ---- light ---- */

void spx_tail_clear(spx_tail *t)
{
    memset(t->light, 0, t->nterm * t->gy * t->gx * sizeof *t->light);
    memset(t->near, 0, (t->gy + 2 * NEAR) * (t->gx + 2 * STRIDE) * sizeof *t->near);
    memset(t->coarse, 0, t->field.ny * t->field.nx * sizeof *t->coarse);
}

/* Weights of Lagrange's cubic through -1, 0, 1, 2 at u. */
static void cubic(double u, float w[4])
{
    w[0] = (float)(-u * (u - 1) * (u - 2) / 6);
    w[1] = (float)((u + 1) * (u - 1) * (u - 2) / 2);
    w[2] = (float)(-(u + 1) * u * (u - 2) / 2);
    w[3] = (float)((u + 1) * u * (u - 1) / 6);
}

/* Cell before a pixel coordinate, and the cubic's weights of this cell's left neighbour and the three from it on. */
static size_t cell_of(const spx_tail *t, double x, float w[4])
{
    const double u = (x + (double)t->edge) / SPX_TAIL_CELL + RIM, cell = floor(u);
    cubic(u - cell, w);
    return (size_t)cell;
}

/* Value of a table along the trace. */
static double along(const spx_tail *t, const double *table, size_t fibre, double lambda)
{
    const double knot = fmin(fmax((lambda - t->wmin) / (t->wmax - t->wmin), 0.0), 1.0) * (NKNOT - 1);
    const size_t k = knot < NKNOT - 1 ? (size_t)knot : NKNOT - 2;
    const double *a = table + fibre * NKNOT + k;
    return a[0] + (knot - (double)k) * (a[1] - a[0]);
}

double spx_tail_within(const spx_tail *t, size_t fibre, double lambda)
{
    return along(t, t->within, fibre, lambda);
}

void spx_tail_add(spx_tail *t, size_t fibre, double lambda, long column, long row, double dx, double dy,
                  double electrons)
{
    const long gx = column + (long)t->edge, gy = row + (long)t->edge;
    if (electrons == 0.0 || gx < 0 || gy < 0 || gx >= (long)t->gx || gy >= (long)t->gy)
        return;
    const size_t n = t->gy * t->gx;
    const double q = electrons * along(t, t->amplitude, fibre, lambda);
    const double moment[MOST_TERMS] = {q, q * dx, q * dy, q * dx * dx, q * dx * dy, q * dy * dy};
    float wx[4], wy[4], *to = t->light + (size_t)gy * t->gx + (size_t)gx;
    for (size_t i = 0; i < t->nterm; i++)
        to[i * n] += (float)moment[i];
    const size_t px = (size_t)fmin((dx + 0.5) * XPHASES, XPHASES - 1),
                 py = (size_t)fmin((dy + 0.5) * YPHASES, YPHASES - 1);
    const size_t width = t->gx + 2 * STRIDE;
    const float *from = t->table + (py * XPHASES + px) * SIDE * STRIDE;
    float *near = t->near + (size_t)gy * width + (size_t)gx + STRIDE - NEAR;
    for (size_t j = 0; j < SIDE; j++)
        for (size_t i = 0; i < STRIDE; i++)
            near[j * width + i] += (float)q * from[j * STRIDE + i];
    const size_t cx = cell_of(t, (double)column + dx, wx), cy = cell_of(t, (double)row + dy, wy);
    for (size_t j = 0; j < 4; j++)
        for (size_t i = 0; i < 4; i++)
            t->coarse[(cy + j - 1) * t->field.nx + cx + i - 1] += (float)q * wy[j] * wx[i];
}

/* ---- convolution ---- */

static void multiply(size_t n, const fftwf_complex *a, const fftwf_complex *b, int more, fftwf_complex *to)
{
    const float *x = (const float *)a, *y = (const float *)b;
    float *z = (float *)to;
#pragma omp simd
    for (size_t i = 0; i < 2 * n; i += 2) {
        const float re = x[i] * y[i] - x[i + 1] * y[i + 1], im = x[i] * y[i + 1] + x[i + 1] * y[i];
        z[i] = more ? z[i] + re : re;
        z[i + 1] = more ? z[i + 1] + im : im;
    }
}

/* The smooth part on the grid's cells, in place of the light. */
static spx_status convolve_field(spx_tail *t, spx_err *e)
{
    fftwf_complex *z = spx_alloc_unset(nfreq(&t->field), 1, sizeof *z, e);
    if (!z)
        return SPX_EIO;
    fftwf_execute_dft_r2c(t->field.forward, t->coarse, z);
    multiply(nfreq(&t->field), z, t->smooth, 0, z);
    fftwf_execute_dft_c2r(t->field.inverse, z, t->coarse);
    spx_free(z);
    return SPX_OK;
}

/* Row y of the image from the cells and the tables. line: [cx]. */
static void interpolate_row(const spx_tail *t, size_t y, float *line, float *row)
{
    float w[4], column[SPX_TAIL_CELL][4];
    size_t first[SPX_TAIL_CELL];
    const float *c = t->coarse + (cell_of(t, (double)y, w) - 1) * t->field.nx;
    for (size_t i = 0; i < t->cx; i++)
        line[i] =
            w[0] * c[i] + w[1] * c[t->field.nx + i] + w[2] * c[2 * t->field.nx + i] + w[3] * c[3 * t->field.nx + i];
    const float *near = t->near + (y + t->edge + NEAR) * (t->gx + 2 * STRIDE) + t->edge + STRIDE;
    for (size_t x = 0; x < SPX_TAIL_CELL; x++)
        first[x] = cell_of(t, (double)x, column[x]) - 1;
    for (size_t x = 0; x < t->nx; x++) {
        const float *v = line + first[x % SPX_TAIL_CELL] + x / SPX_TAIL_CELL, *u = column[x % SPX_TAIL_CELL];
        row[x] = near[x] + u[0] * v[0] + u[1] * v[1] + u[2] * v[2] + u[3] * v[3];
    }
}

/* Adds the short part to the pixels (x0, y0) ... of a tile. */
static void convolve_tile(const spx_tail *t, size_t nterm, size_t y0, size_t x0, size_t inner, float *r,
                          fftwf_complex *z, fftwf_complex *sum, float *image)
{
    const size_t side = t->tile.nx;
    /* first pixel of the tile, counted from the edge's; it may lie before or end behind that */
    const long gy0 = (long)(y0 + t->edge) - (long)t->reach, gx0 = (long)(x0 + t->edge) - (long)t->reach;
    const long from = gx0 > 0 ? gx0 : 0, to = gx0 + (long)side < (long)t->gx ? gx0 + (long)side : (long)t->gx;
    int any = 0;
    for (size_t k = 0; k < nterm && (k == 0 || any); k++) {
        memset(r, 0, side * side * sizeof *r);
        for (size_t y = 0; y < side; y++) {
            const long gy = gy0 + (long)y;
            if (gy < 0 || gy >= (long)t->gy || from >= to)
                continue;
            float *at = r + y * side + (from - gx0);
            memcpy(at, t->light + (k * t->gy + (size_t)gy) * t->gx + from, (size_t)(to - from) * sizeof *r);
            for (long x = 0; k == 0 && !any && x < to - from; x++)
                any |= at[x] != 0.0f;
        }
        if (!any)
            return;
        fftwf_execute_dft_r2c(t->tile.forward, r, z);
        multiply(nfreq(&t->tile), z, t->kernel + k * nfreq(&t->tile), k > 0, sum);
    }
    fftwf_execute_dft_c2r(t->tile.inverse, sum, r);
    for (size_t y = 0; y < inner && y0 + y < t->ny; y++)
        for (size_t x = 0; x < inner && x0 + x < t->nx; x++)
            image[(y0 + y) * t->nx + x0 + x] += r[(y + t->reach) * side + x + t->reach];
}

spx_status spx_tail_image(spx_tail *t, int order, int nthreads, float *image, spx_err *e)
{
    const size_t side = t->tile.nx, inner = side - 2 * t->reach;
    const size_t across = (t->nx + inner - 1) / inner, ntile = across * ((t->ny + inner - 1) / inner);
    const int n = nthreads > 0 ? nthreads : omp_get_max_threads();
    const size_t nterm = terms_of(order) < t->nterm ? terms_of(order) : t->nterm;
    spx_status st = convolve_field(t, e);
    int failed = 0;
    if (st != SPX_OK)
        return st;
#pragma omp parallel num_threads(n) reduction(| : failed)
    {
        float *r = spx_alloc_unset(side, side, sizeof *r, NULL), *line = spx_alloc(t->cx, sizeof *line, NULL);
        fftwf_complex *z = spx_alloc_unset(nfreq(&t->tile), 2, sizeof *z, NULL);
        failed |= !r || !line || !z;
#pragma omp for
        for (size_t y = 0; y < t->ny; y++)
            if (line)
                interpolate_row(t, y, line, image + y * t->nx);
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < ntile; i++)
            if (r && z)
                convolve_tile(t, nterm, i / across * inner, i % across * inner, inner, r, z, z + nfreq(&t->tile),
                              image);
        spx_free(r);
        spx_free(line);
        spx_free(z);
    }
    return failed ? spx_mem_fail(e) : SPX_OK;
}
