/* bench_shift [DEVICE...]: seconds of one measurement of shifts and widths in four windows of 60 Angstrom of 25 to 500
 * fibres, as specx-shift makes it twice where traces have moved by 0.05 pixel, against a floor: the products that each
 * bin needs, as fast as the first cache gives their operands. These are, for spots of 15 x 11 pixels and degrees of 4:
 * 2 600 for a spot with both derivatives, 1 300 for its overlaps with others, 500 for model and images of the
 * derivatives, 1 000 for what bins see of these. Made by `make bench-shift`. Without arguments: the CPU, with 1 and 2
 * threads. Of other devices the time of their kernels counts, without copies; the line "a step" has all of it.
 *
 * Then the zero point by the lines of the night sky in one fibre of ten, by the clock, and of devices their kernels.
 * Its floor is that of SUMS sums of its normal equations: 4 800 products for a spot of a line with both derivatives,
 * and LINE_ROWS x 5 pixels of each column with the 15 that overlap it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../must.h"
#include "backend.h"
#include "base/clock.h"
#include "base/mem.h"
#include "curve.h"
#include "num/stat.h"
#include "psf/psf_math.h"
#include "psf/spot_math.h"
#include "shift/shift.h"
#include "sim/sim.h"
#include "spectral/lines.h"

enum { WINDOWS = 4, RUNS = 3 };

static const double FIRST = 7560, LAST = 9780, STEP_OF_BINS = 0.8;

#define PRODUCTS 5400.0

/* Fibres of which one sees the sky; sums, rows of a column: see above. */
enum { EVERY = 10, SUMS = 4, LINE_ROWS = 13 };

typedef struct {
    spx_psf psf;
    spx_image image;
    double first[WINDOWS], last[WINDOWS];
    spx_shift_lines lines;
} scene;

/* Adds the lines of the night sky to one fibre of ten, the brightest of 20 000 electrons. */
static void add_lines(scene *s)
{
    spx_line *line = NULL;
    spx_err e = {0};
    must(spx_sky_lines(&line, &s->lines.n, &e) == SPX_OK, &e);
    s->lines.line = must_have(spx_alloc(s->lines.n, sizeof *s->lines.line, &e));
    double *spot = must_have(spx_alloc((size_t)spx_psf_nx(&s->psf) * (size_t)spx_psf_ny(&s->psf), sizeof *spot, &e));
    double *work = must_have(spx_alloc(spx_psf_spot_work(&s->psf), sizeof *work, &e)), most = 0;
    for (size_t i = 0; i < s->lines.n; i++) {
        s->lines.line[i] = (spx_shift_line){line[i].wavelength, line[i].strength};
        if (line[i].wavelength > FIRST && line[i].wavelength < LAST)
            most = fmax(most, line[i].strength);
    }
    for (size_t f = 0; f < s->psf.nspec; f += EVERY)
        for (size_t i = 0; i < s->lines.n; i++) {
            spx_spot at;
            if (!(line[i].wavelength > FIRST && line[i].wavelength < LAST) ||
                spx_psf_spot(&s->psf, f, line[i].wavelength, work, spot, &at) != SPX_SPOT_OK)
                continue;
            for (long y = 0; y < spx_psf_ny(&s->psf); y++)
                for (long x = 0; x < spx_psf_nx(&s->psf); x++) {
                    const size_t to = (size_t)(at.yc + y) * s->image.nx + (size_t)(at.xc + x);
                    s->image.data[to] += (float)(2e4 * line[i].strength / most * spot[y * spx_psf_nx(&s->psf) + x]);
                    s->image.ivar[to] = 1 / (9 + fmaxf(s->image.data[to], 0));
                }
        }
    spx_free(line);
    spx_free(spot);
    spx_free(work);
}

/* Traces with light of 400 electrons a row, rectangular: what it looks like does not matter to the time. */
static void make(size_t nspec, scene *s)
{
    spx_err e = {0};
    *s = (scene){{0}, {0}, {0}, {0}, {0}};
    must(spx_sim_psf('z', nspec, 0, 0, &s->psf, &e) == SPX_OK, &e);
    const size_t n = s->psf.npix_x * s->psf.npix_y;
    s->image = (spx_image){.nx = s->psf.npix_x, .ny = s->psf.npix_y};
    s->image.data = must_have(spx_alloc(n, sizeof(float), &e));
    s->image.ivar = must_have(spx_alloc(n, sizeof(float), &e));
    s->image.mask = must_have(spx_alloc(n, sizeof(uint32_t), &e));
    for (size_t i = 0; i < n; i++)
        s->image.ivar[i] = 1.0f / 9;
    for (size_t f = 0; f < nspec; f++)
        for (double lambda = FIRST - 30; lambda < LAST + 30; lambda += 0.5) {
            const size_t x = (size_t)(spx_psf_series_value(&s->psf.x, f, lambda) + 0.5);
            const size_t y = (size_t)(spx_psf_series_value(&s->psf.y, f, lambda) + 0.5);
            for (size_t k = y * s->image.nx + x - 1; k <= y * s->image.nx + x + 1; k++) {
                s->image.data[k] = 133;
                s->image.ivar[k] = 1.0f / 142;
            }
        }
    for (size_t i = 0; i < WINDOWS; i++) {
        s->first[i] = 7700 + 580.0 * (double)i;
        s->last[i] = s->first[i] + 60;
    }
}

/* Products of two operands with a sum, a second, of one core whose arrays lie in the first cache. */
static double products(void)
{
    enum { N = 256, TIMES = 200000 };
    static double a[N], b[N], c[N];
    for (int i = 0; i < N; i++)
        a[i] = b[i] = 1e-3 * i;
    const double begin = spx_seconds();
    for (int t = 0; t < TIMES; t++) {
#pragma omp simd
        for (int i = 0; i < N; i++)
            c[i] += a[i] * b[i];
        __asm__ volatile("" : : "r"(c) : "memory");
    }
    return (double)N * TIMES / (spx_seconds() - begin);
}

static double seconds(spx_backend *b, const scene *s, int nthreads)
{
    const size_t nbundle = (s->psf.nspec + 24) / 25;
    const spx_motion_options o = {.nwindow = WINDOWS,
                                  .first = s->first,
                                  .last = s->last,
                                  .dw = STEP_OF_BINS,
                                  .bundle_size = 25,
                                  .nthreads = nthreads};
    spx_err e = {0};
    spx_motion_row *row = must_have(spx_alloc2(WINDOWS, s->psf.nspec, sizeof *row, &e));
    spx_motion_fit *fit = must_have(spx_alloc2(WINDOWS, nbundle, sizeof *fit, &e));
    double t[RUNS];
    for (int i = 0; i < RUNS; i++) {
        const double begin = spx_seconds();
        spx_fallback left;
        must(b->motion(b, &s->image, &s->psf, &o, row, fit, &left, &e) == SPX_OK, &e);
        t[i] = b->device_seconds > 0 ? b->device_seconds : spx_seconds() - begin;
    }
    spx_free(row);
    spx_free(fit);
    return spx_median(t, RUNS);
}

typedef struct {
    spx_backend *b;
    double seconds, mine; /* of the windows: by the clock, and of this thread */
} watch;

static spx_status timed(void *ctx, const spx_image *image, const spx_psf *psf, const spx_motion_options *o,
                        spx_motion_row *row, spx_motion_fit *fit, spx_err *e)
{
    watch *w = ctx;
    const double begin = spx_seconds(), mine = spx_thread_seconds();
    spx_fallback left;
    const spx_status st = w->b->motion(w->b, image, psf, o, row, fit, &left, e);
    w->seconds += spx_seconds() - begin;
    w->mine += spx_thread_seconds() - mine;
    return st;
}

/* Part X of an exposure: windows by the clock, copies and plan included; the smooth fit in processor time. */
static void whole(spx_backend *b, const scene *s, const char *name)
{
    const spx_shift_options o = {.wmin = FIRST,
                                 .wmax = LAST,
                                 .dw = STEP_OF_BINS,
                                 .bundle_size = 25,
                                 .nwindow = WINDOWS,
                                 .window = 60,
                                 .degree_wave = -1,
                                 .degree_fibre = -1,
                                 .width = 1};
    watch w = {b, 0, 0};
    spx_psf psf = {0};
    spx_shift shift = {0};
    spx_err e = {0};
    must(spx_shift_psf_copy(&s->psf, &psf, &e) == SPX_OK, &e);
    const double mine = spx_thread_seconds();
    must(spx_shift_across(timed, &w, &s->image, &psf, &o, &shift, &e) == SPX_OK, &e);
    printf("  %-24s %8.1f ms a step with plan and copies; smooth functions %.1f ms, %d steps\n", name,
           1e3 * w.seconds / shift.steps, 1e3 * (spx_thread_seconds() - mine - w.mine), shift.steps);
    spx_psf_free(&psf);
    spx_shift_free(&shift);
}

/* The zero point. rate: products a second. */
static void zero_point(spx_backend *b, const scene *s, const char *name, int nthreads, double rate)
{
    const size_t n = (s->psf.nspec + EVERY - 1) / EVERY;
    spx_err e = {0};
    size_t *fibre = must_have(spx_alloc(n, sizeof *fibre, &e)), nline = 0;
    double *scale = must_have(spx_alloc(n, sizeof *scale, &e)), t[RUNS], device = 0;
    for (size_t i = 0; i < n; i++) {
        fibre[i] = i * EVERY;
        scale[i] = 1;
    }
    for (size_t i = 0; i < s->lines.n; i++)
        nline += s->lines.line[i].wavelength > FIRST && s->lines.line[i].wavelength < LAST;
    const spx_shift_common in = {n, fibre, scale, FIRST, LAST, STEP_OF_BINS, SPX_SHIFT_ZERO_MOST, 1, NULL, nthreads};
    spx_shift_zero zero = {.nline = 0};
    for (int i = 0; i < RUNS; i++) {
        const double begin = spx_seconds();
        must(b->zero_point(b, &s->image, &s->psf, &in, &s->lines, &zero, &e) == SPX_OK, &e);
        t[i] = spx_seconds() - begin;
        device = b->device_seconds;
    }
    const double columns = 2 * (double)nline + (LAST - FIRST) / 25, of_columns = columns * LINE_ROWS * 5 * 15;
    const double least = SUMS * (double)n * ((double)nline * 4800 + of_columns) / rate, now = spx_median(t, RUNS);
    printf("  %-24s %8.1f ms a zero point of %zu fibres by %zu lines (floor, one core %.1f ms)", name, 1e3 * now, n,
           zero.nline, 1e3 * least);
    if (device > 0)
        printf(", kernels %.1f ms", 1e3 * device);
    puts("");
    spx_free(fibre);
    spx_free(scale);
}

static void bench(size_t nspec, int ndevice, char **device)
{
    scene s;
    make(nspec, &s);
    add_lines(&s);
    const double rate = products(), least = PRODUCTS * 76 * WINDOWS * (double)nspec / rate;
    printf("%zu fibres, %d windows of 60 Angstrom\n  products, one core %8.1f ms\n", nspec, WINDOWS, 1e3 * least);
    for (int d = 0; d < ndevice; d++) {
        const int most = strcmp(device[d], "cpu") == 0 ? 2 : 1;
        spx_backend b;
        spx_err e = {0};
        must(spx_backend_open(&b, device[d], SPX_OP_SHIFT, NULL, &e) == SPX_OK, &e);
        for (int nthreads = 1; nthreads <= most; nthreads++) {
            char name[64];
            const double t = seconds(&b, &s, nthreads);
            (void)snprintf(name, sizeof name, "%.12s, %d thread%s", device[d], nthreads, nthreads > 1 ? "s" : "");
            printf("  %-24s %8.1f ms, %.1f times the floor\n", name, 1e3 * t, t * nthreads / least);
            curve_point(name, (double)nspec, t);
            zero_point(&b, &s, name, nthreads, rate);
        }
        whole(&b, &s, device[d]);
        spx_backend_close(&b);
    }
    spx_psf_free(&s.psf);
    spx_image_free(&s.image);
    spx_free(s.lines.line);
}

int main(int argc, char **argv)
{
    static const size_t fibres[] = {25, 100, 500};
    static char cpu[] = "cpu";
    char *only_cpu[] = {cpu};
    curve_axes("fibres (4 windows of 60 Angstrom)", "seconds");
    for (size_t i = 0; i < sizeof fibres / sizeof *fibres; i++)
        bench(fibres[i], argc > 1 ? argc - 1 : 1, argc > 1 ? argv + 1 : only_cpu);
    return 0;
}
