/* Provides random exposures, PSFs and artefacts for tests: equal for equal seeds. */
#ifndef EXTRACT_RANDOM_H
#define EXTRACT_RANDOM_H

#include "extract_exposure.h"

/* Where a thread's sequence of random numbers is. */
static _Thread_local uint64_t drawing;

/* Uniform in [0, 1): splitmix64. */
static inline double uniform(void)
{
    uint64_t z = (drawing += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static inline double between(double a, double b)
{
    return a + (b - a) * uniform();
}

static inline int whole(int a, int b)
{
    return a + (int)(uniform() * (b - a + 1));
}

static inline int chance(double p)
{
    return uniform() < p;
}

/* Spots of any size, degree, width and tilt, with tails; traces that bend, close to each other or not. */
static inline spx_psf *draw_psf(small_psf_shape *shape)
{
    *shape = small_psf_default();
    shape->nspec = (size_t)whole(1, 8);
    shape->hsizex = whole(2, 9);
    shape->hsizey = whole(2, 7);
    shape->ghdegx = whole(0, 6);
    shape->ghdegy = whole(0, 6);
    shape->ncoef = (size_t)whole(2, 5);
    shape->ndeg = (size_t)whole(1, 4);
    shape->sigx = between(0.6, 0.35 * shape->hsizex + 0.3);
    shape->sigy = between(0.6, 0.3 * shape->hsizey + 0.3);
    shape->pitch = shape->sigx * between(3.2, 8.0);
    shape->wmax = shape->wmin + 50.0;
    shape->y1 = shape->y0 + 46.0;
    spx_psf *psf = small_psf(shape);
    for (size_t i = 2; psf && i < psf->npar; i++)
        for (size_t f = 0; f < psf->nspec; f++)
            psf->coeff[(i * psf->nspec + f) * psf->ndeg] += i == 2 ? 0.0 : between(-0.04, 0.04);
    if (psf && psf->gh[shape->ghdegx + 2] >= 0 && shape->ghdegx > 0 && shape->ghdegy > 0 && chance(0.3)) /* tilted */
        for (size_t f = 0; f < psf->nspec; f++)
            psf->coeff[((size_t)psf->gh[shape->ghdegx + 2] * psf->nspec + f) * psf->ndeg] = between(-0.4, 0.4);
    for (size_t f = 0; psf && f < psf->nspec; f++) {
        psf->x.coef[f * shape->ncoef + 1] += between(-1.5, 1.5); /* not parallel */
        if (shape->ncoef > 2)
            psf->x.coef[f * shape->ncoef + 2] += between(-2.0, 2.0);
    }
    return psf;
}

/* What detectors and what is done to their images leave behind. */
static inline void spoil(scene *s, char *what, size_t size)
{
    const size_t nx = s->image.nx, ny = s->image.ny, npix = nx * ny;
    float *data = s->image.data, *ivar = s->image.ivar;
    uint32_t *mask = s->image.mask;
    size_t used = strlen(what);
#define NOTE(text) used += (size_t)snprintf(what + used, used < size ? size - used : 0, " " text)
    if (chance(0.3)) {
        NOTE("gap");
        const size_t y0 = (size_t)whole(5, (int)ny - 10), rows = (size_t)whole(1, 9);
        for (size_t i = y0 * nx; i < (y0 + rows) * nx && i < npix; i++)
            mask[i] |= 16;
    }
    if (chance(0.3)) {
        NOTE("dead-column");
        const size_t x = (size_t)whole(0, (int)nx - 1), y0 = (size_t)whole(0, (int)ny / 2);
        for (size_t y = y0; y < ny; y++)
            mask[y * nx + x] |= 2;
    }
    if (chance(0.3)) {
        NOTE("hot-column"); /* that nobody has noticed */
        const size_t x = (size_t)whole(0, (int)nx - 1);
        for (size_t y = 0; y < ny; y++)
            data[y * nx + x] += 3000.0f;
    }
    if (chance(0.3)) {
        NOTE("hits");
        for (int k = 0; k < 30; k++) {
            const float value = (float)between(-1e3, 1e5);
            data[(size_t)(uniform() * (double)npix)] = value;
        }
    }
    if (chance(0.3)) {
        NOTE("masked-hits");
        for (int k = 0; k < 60; k++)
            mask[(size_t)(uniform() * (double)npix)] |= 64;
    }
    if (chance(0.2)) {
        NOTE("bad-ivar");
        const float values[] = {NAN, INFINITY, -1.0f, 0.0f, 1e-20f, 1e3f};
        for (int k = 0; k < 30; k++)
            ivar[(size_t)(uniform() * (double)npix)] = values[k % 6];
    }
    if (chance(0.2)) {
        NOTE("gains"); /* of four amplifiers */
        float gain[4];
        for (int q = 0; q < 4; q++)
            gain[q] = (float)pow(10.0, between(-1.5, 1.5));
        for (size_t i = 0; i < npix; i++) {
            const float g = gain[2 * (i / nx > ny / 2) + (i % nx > nx / 2)];
            data[i] *= g;
            ivar[i] /= g * g;
        }
    }
    if (chance(0.2)) {
        NOTE("read-noise-only");
        for (size_t i = 0; i < npix; i++) {
            data[i] = (float)between(-5.0, 5.0);
            ivar[i] = 1.0f / 9.0f;
        }
    }
    if (chance(0.1)) {
        NOTE("negative");
        for (size_t i = 0; i < npix; i++)
            data[i] = -data[i];
    }
    if (chance(0.15)) {
        NOTE("bright-star"); /* in columns of one fibre, 10^4 times the others, cut at full well */
        const size_t x0 = (size_t)whole(0, (int)nx - 6);
        for (size_t y = 0; y < ny; y++)
            for (size_t x = x0; x < x0 + 6; x++) {
                data[y * nx + x] = fminf(1e4f * fabsf(data[y * nx + x]), 6.5e4f);
                ivar[y * nx + x] = 1.0f / (9.0f + data[y * nx + x]);
            }
    }
#undef NOTE
}

/* A scene, and what it is; without an image when memory is out. */
typedef struct {
    scene s;
    char what[300];
} drawn;

static inline drawn draw_scene(uint64_t number)
{
    drawn d = {0};
    drawing = number * 0x2545f4914f6cdd1du;
    small_psf_shape shape;
    spx_psf *psf = draw_psf(&shape);
    (void)snprintf(d.what, sizeof d.what,
                   "scene %llu: %zu fibres, spots %dx%d, degrees %d %d, sigma %.2f %.2f, pitch %.1f:",
                   (unsigned long long)number, shape.nspec, 2 * shape.hsizex + 1, 2 * shape.hsizey + 1, shape.ghdegx,
                   shape.ghdegy, shape.sigx, shape.sigy, shape.pitch);
    const double dw = shape.sigy * between(1.1, 2.2) * 50.0 / 46.0;
    const size_t ny = (size_t)whole(40, 62), nx = (size_t)fmin(200.0, 17.0 + shape.pitch * (double)shape.nspec);
    d.s = make_scene(psf, ny, nx, shape.wmin, shape.wmax, dw);
    if (!d.s.image.data)
        return d;
    d.s.o.bundle_size = (size_t)whole(1, 9);
    d.s.o.regularize = chance(0.15) ? 0.01 : 0.0;
    spoil(&d.s, d.what, sizeof d.what);
    return d;
}

/* A CCD of 300 x 200: more fibres, other steps, spots that lie 0.3 to 3 rows apart, traces that cross all others. */
static inline drawn draw_ccd(uint64_t number)
{
    drawn d = {0};
    drawing = number * 0x2545f4914f6cdd1du + 77;
    small_psf_shape shape = small_psf_default();
    shape.hsizex = whole(3, 9);
    shape.hsizey = whole(3, 7);
    shape.ghdegx = whole(0, 8);
    shape.ghdegy = whole(0, 8);
    shape.ncoef = (size_t)whole(2, 8);
    shape.ndeg = (size_t)whole(1, 6);
    shape.sigx = between(0.7, 0.3 * shape.hsizex + 0.2);
    shape.sigy = between(0.7, 0.28 * shape.hsizey + 0.2);
    shape.pitch = shape.sigx * between(3.5, 6.0);
    shape.nspec = (size_t)whole(1, 14);
    const double dw = between(0.3, 2.0), row = dw / (shape.sigy * between(0.8, 2.0));
    const int bins = whole(20, 60);
    const size_t highest = bins * dw < 20.0 ? 4 : bins * dw < 24.0 ? 5 : shape.ndeg;
    if (shape.ndeg > highest) /* beyond a short range the widths of a high degree are not positive */
        shape.ndeg = highest;
    shape.wmax = shape.wmin + bins * dw;
    shape.y0 = between(-8.0, 250.0);
    shape.y1 = shape.y0 + bins * dw / row;
    spx_psf *psf = small_psf(&shape);
    for (size_t f = 0; psf && f < psf->nspec; f++)
        psf->x.coef[f * shape.ncoef + 1] += chance(0.1) ? between(-150.0, 150.0) : between(-4.0, 4.0);
    (void)snprintf(d.what, sizeof d.what, "CCD %llu: %zu fibres, sigma %.2f %.2f, pitch %.1f, steps of %.2f",
                   (unsigned long long)number, shape.nspec, shape.sigx, shape.sigy, shape.pitch, dw);
    d.s = make_scene(psf, 300, 200, shape.wmin, shape.wmax, dw);
    d.s.o.bundle_size = chance(0.5) ? 30 : 7;
    return d;
}

/* What hardly determines anything: a small CCD with one row that is not masked (odd numbers), weights that differ by up
 * to 10^12 from pixel to pixel (even ones). */
static inline drawn draw_extreme(uint64_t number)
{
    drawn d = {0};
    drawing = number * 0x2545f4914f6cdd1du + 1234;
    small_psf_shape shape;
    spx_psf *psf = draw_psf(&shape);
    const int one_row = number % 2 == 1;
    (void)snprintf(d.what, sizeof d.what, "%s %llu: %zu fibres, spots %dx%d, sigma %.2f %.2f, pitch %.1f",
                   one_row ? "one row" : "weights", (unsigned long long)number, shape.nspec, 2 * shape.hsizex + 1,
                   2 * shape.hsizey + 1, shape.sigx, shape.sigy, shape.pitch);
    const double dw = shape.sigy * between(1.1, 2.2);
    const size_t ny = one_row ? 16 : (size_t)whole(40, 62), row = (size_t)whole(2, 13);
    const size_t nx = (size_t)fmin(200.0, 17.0 + shape.pitch * (double)shape.nspec);
    d.s = make_scene(psf, ny, nx, shape.wmin, shape.wmax, dw);
    if (!d.s.image.data)
        return d;
    d.s.o.bundle_size = (size_t)whole(1, 9);
    for (size_t i = 0; i < nx * ny; i++)
        if (one_row)
            d.s.image.mask[i] |= i / nx != row;
        else
            d.s.image.ivar[i] = (float)pow(10.0, between(-8.0, 4.0));
    return d;
}

/* Bins of 0.35 to 1.5 pixels on cameras with a PSF of 0.6 to 2 pixels, tilted or with tails. */
static inline drawn draw_narrow(uint64_t number)
{
    drawn d = {0};
    drawing = number * 0x2545f4914f6cdd1du + 4711;
    small_psf_shape shape = small_psf_default();
    shape.nspec = (size_t)whole(1, 4);
    if (shape.nspec == 1 && chance(0.7))
        shape.nspec = 3;
    shape.sigx = between(0.6, 2.0);
    shape.sigy = between(0.6, 2.0);
    shape.hsizex = (int)fmin(10.0, ceil(shape.sigx * between(2.5, 5.0)));
    shape.hsizey = (int)fmin(10.0, ceil(shape.sigy * between(2.5, 5.0)));
    shape.ghdegx = whole(0, 6);
    shape.ghdegy = whole(0, 6);
    shape.ncoef = (size_t)whole(2, 5);
    shape.ndeg = (size_t)whole(1, 3);
    shape.pitch = shape.sigx * between(3.5, 7.5);
    shape.x0 = 8.0;
    const double dw = between(0.35, 1.5); /* a pixel is an Angstrom */
    const int rows = dw < 0.6 ? 30 : 40;
    shape.y0 = 5.0;
    shape.y1 = shape.y0 + rows;
    shape.wmax = shape.wmin + rows;
    spx_psf *psf = small_psf(&shape);
    const double wings = between(0.0, 0.05);
    for (size_t i = 3; psf && i < psf->npar; i++)
        for (size_t f = 0; f < psf->nspec; f++)
            psf->coeff[(i * psf->nspec + f) * psf->ndeg] += between(-wings, wings);
    if (psf && shape.ghdegx > 0 && shape.ghdegy > 0 && chance(0.4)) /* tilted */
        for (size_t f = 0; f < psf->nspec; f++)
            psf->coeff[((size_t)psf->gh[shape.ghdegx + 2] * psf->nspec + f) * psf->ndeg] = between(-0.4, 0.4);
    for (size_t f = 0; psf && f < psf->nspec; f++)
        psf->x.coef[f * shape.ncoef + 1] += between(-1.5, 1.5);
    (void)snprintf(
        d.what, sizeof d.what,
        "narrow bins %llu: %zu fibres, spots %dx%d, degrees %d %d, sigma %.2f %.2f, pitch %.1f, bins of %.2f",
        (unsigned long long)number, shape.nspec, 2 * shape.hsizex + 1, 2 * shape.hsizey + 1, shape.ghdegx, shape.ghdegy,
        shape.sigx, shape.sigy, shape.pitch, dw);
    const size_t ny = (size_t)rows + 11, nx = (size_t)(17.0 + shape.pitch * (double)shape.nspec);
    d.s = make_scene(psf, ny, nx, shape.wmin + 3.0, shape.wmax - 3.0, dw);
    if (!d.s.image.data)
        return d;
    d.s.o.bundle_size = shape.nspec;
    d.s.o.wave_pad = (size_t)(10.0 / dw) + 4;
    if (chance(0.3)) {
        const size_t y0 = (size_t)whole(10, rows - 10), gap = (size_t)whole(1, 6);
        for (size_t i = y0 * nx; i < (y0 + gap) * nx; i++)
            d.s.image.mask[i] |= 1;
        if (chance(0.5)) {
            const size_t x = (size_t)whole(5, (int)nx - 5);
            for (size_t y = 0; y < ny; y++)
                d.s.image.mask[y * nx + x] |= 1;
        }
    }
    return d;
}

#endif
