/* bench_shift [DEVICE...]: seconds of one measurement of shifts and widths in four windows of 60 Angstrom of 25 to 500
 * fibres, as specx-shift makes it twice where traces have moved by 0.05 pixel, against a floor: the products that each
 * bin needs, as fast as the first cache gives their operands. These are, for spots of 15 x 11 pixels and degrees of 4:
 * 2 600 for a spot with both derivatives, 1 300 for its overlaps with others, 500 for model and images of the
 * derivatives, 1 000 for what bins see of these. Made by `make bench-shift`. Without arguments: the CPU, with 1 and 2
 * threads; devices with 1 thread of the host, and all. Of these the time of their kernels counts, without copies; the
 * line "an exposure" has all of it, and what the host does. Several exposures at a time on a device, as specx-shift has
 * them in a queue, share it: the line "of a queue" is the time of all by their number. "Its frame made inside": as
 * specx-shift without a /frame, whose traces have to be extracted, too.
 *
 * Then the zero point by the lines of the night sky in one fibre of ten, by the clock, and of devices their kernels.
 * Its floor is that of SUMS sums of its normal equations: 4 800 products for a spot of a line with both derivatives,
 * and LINE_ROWS x 5 pixels of each column with the 15 that overlap it. */
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../must.h"
#include "backend.h"
#include "base/clock.h"
#include "base/mem.h"
#include "common/shift_options.h"
#include "curve.h"
#include "floor.h"
#include "num/stat.h"
#include "psf/psf_math.h"
#include "psf/spot_math.h"
#include "shift/shift.h"
#include "sim/sim.h"
#include "sky/sky.h"
#include "spectral/lines.h"

enum { WINDOWS = 4, RUNS = 3 };

/* Most exposures of a queue at a time, and each worker's. */
enum { WORKERS = 4, EXPOSURES = 12 };

static const double FIRST = 7560, LAST = 9780, STEP_OF_BINS = 0.8;

#define PRODUCTS 5400.0

/* Fibres of which one sees the sky; sums, rows of a column: see above. */
enum { EVERY = 10, SUMS = 4, LINE_ROWS = 13 };
/* Electrons an Angstrom, and in the brightest line. */
#define CONTINUUM 400.0
#define BRIGHTEST 2e4

typedef struct {
    spx_psf psf;
    spx_image image;
    double first[WINDOWS], last[WINDOWS];
    spx_shift_lines lines;
} scene;

/* Adds `electrons` of light at one wavelength of a fibre. spot, work: memory. */
static void add_spot(scene *s, size_t f, double lambda, double electrons, double *spot, double *work)
{
    const long nx = spx_psf_nx(&s->psf), ny = spx_psf_ny(&s->psf);
    spx_spot at;
    if (spx_psf_spot(&s->psf, f, lambda, work, spot, &at) != SPX_SPOT_OK)
        return;
    for (long y = 0; y < ny; y++)
        for (long x = 0; x < nx; x++) {
            const long row = at.yc + y, column = at.xc + x;
            if (row >= 0 && column >= 0 && row < (long)s->image.ny && column < (long)s->image.nx)
                s->image.data[(size_t)row * s->image.nx + (size_t)column] += (float)(electrons * spot[y * nx + x]);
        }
}

/* Image without noise: a continuum in all fibres, and the lines of the night sky in one of EVERY. */
static void make(size_t nspec, scene *s)
{
    spx_line *line = NULL;
    spx_err e = {0};
    double most = 0;
    *s = (scene){{0}, {0}, {0}, {0}, {0}};
    must(spx_sim_psf('z', nspec, 0, 0, &s->psf, &e) == SPX_OK, &e);
    const size_t n = s->psf.npix_x * s->psf.npix_y;
    s->image = (spx_image){.nx = s->psf.npix_x, .ny = s->psf.npix_y};
    s->image.data = must_have(spx_alloc(n, sizeof(float), &e));
    s->image.ivar = must_have(spx_alloc(n, sizeof(float), &e));
    s->image.mask = must_have(spx_alloc(n, sizeof(uint32_t), &e));
    must(spx_sky_lines(&line, &s->lines.n, &e) == SPX_OK, &e);
    s->lines.line = must_have(spx_alloc(s->lines.n, sizeof *s->lines.line, &e));
    double *spot = must_have(spx_alloc((size_t)spx_psf_nx(&s->psf) * (size_t)spx_psf_ny(&s->psf), sizeof *spot, &e));
    double *work = must_have(spx_alloc(spx_psf_spot_work(&s->psf), sizeof *work, &e));
    for (size_t i = 0; i < s->lines.n; i++) {
        s->lines.line[i] = (spx_shift_line){line[i].wavelength, line[i].strength};
        if (line[i].wavelength > FIRST && line[i].wavelength < LAST)
            most = fmax(most, line[i].strength);
    }
    for (size_t f = 0; f < nspec; f++) {
        for (double lambda = FIRST - 30; lambda < LAST + 30; lambda++)
            add_spot(s, f, lambda, CONTINUUM, spot, work);
        for (size_t i = 0; i < s->lines.n && f % EVERY == 0; i++)
            if (line[i].wavelength > FIRST && line[i].wavelength < LAST)
                add_spot(s, f, line[i].wavelength, BRIGHTEST * line[i].strength / most, spot, work);
    }
    for (size_t i = 0; i < n; i++)
        s->image.ivar[i] = 1 / (9 + fmaxf(s->image.data[i], 0));
    for (size_t i = 0; i < WINDOWS; i++) {
        s->first[i] = 7700 + 580.0 * (double)i;
        s->last[i] = s->first[i] + 60;
    }
    spx_free(line);
    spx_free(spot);
    spx_free(work);
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

enum { WINDOWS_OF, EXTRACT, SKY, ZERO, PARTS };

/* Parts of an exposure by the clock, of the smooth functions by this thread's processor time; kernels of a device. */
typedef struct {
    spx_backend *b;
    int nthreads;
    double seconds[PARTS], device[PARTS];
    double mine; /* of this thread in what is not the smooth functions */
} watch;

static double begin_part(watch *w)
{
    w->mine -= spx_thread_seconds();
    return spx_seconds();
}

static void end_part(watch *w, double begin, int part)
{
    w->seconds[part] += spx_seconds() - begin;
    w->mine += spx_thread_seconds();
    w->device[part] += w->b->device_seconds;
}

static spx_status windows(void *ctx, const spx_image *image, const spx_psf *psf, const spx_motion_options *o,
                          spx_motion_row *row, spx_motion_fit *fit, spx_err *e)
{
    watch *w = ctx;
    spx_fallback left;
    const double begin = begin_part(w);
    const spx_status st = w->b->motion(w->b, image, psf, o, row, fit, &left, e);
    end_part(w, begin, WINDOWS_OF);
    return st;
}

static spx_status sky(void *ctx, const spx_frame *frame, const double *usual, const double *moved, spx_sky *out,
                      int *found, spx_err *e)
{
    watch *w = ctx;
    const spx_arm *a = &frame->arm;
    spx_sky_options o = spx_sky_defaults();
    double together[SPX_SKY_MOST] = {0};
    uint8_t *role = must_have(spx_alloc(frame->nspec, 1, e));
    double *place = must_have(spx_alloc(frame->nspec, sizeof *place, e));
    for (size_t i = 0; i < frame->nspec; i++) {
        role[i] = i % EVERY == 0 ? SPX_SKY_FIBRE : SPX_SKY_TARGET;
        place[i] = 2 * (double)i / (double)frame->nspec - 1;
    }
    o.terms = (spx_sky_terms){1, 4, 1};
    memcpy(together + o.terms.nt, usual, o.terms.nd * sizeof *usual);
    o.together = together;
    o.quantities = 1;
    o.nthreads = w->nthreads;
    const spx_sky_input in = {.nspec = frame->nspec,
                              .nwave = a->nwave,
                              .ndiag = a->ndiag,
                              .wavelength = a->wavelength,
                              .resolution = a->resolution,
                              .flux = a->flux,
                              .ivar = a->ivar,
                              .role = role,
                              .place = place,
                              .moved = moved};
    *found = 1;
    const double begin = begin_part(w);
    const spx_status st = w->b->sky(w->b, &in, &o, out, e);
    end_part(w, begin, SKY);
    spx_free(role);
    spx_free(place);
    return st;
}

static spx_status zero(void *ctx, const spx_image *image, const spx_psf *psf, const spx_shift_common *in,
                       const spx_shift_lines *lines, spx_shift_zero *out, spx_err *e)
{
    watch *w = ctx;
    const double begin = begin_part(w);
    const spx_status st = w->b->zero_point(w->b, image, psf, in, lines, out, e);
    end_part(w, begin, ZERO);
    return st;
}

/* A frame of an image. Returns the seconds of a device. */
static double extract(spx_backend *b, const spx_image *image, const spx_psf *psf, int nthreads, spx_frame *frame)
{
    spx_extract_options o = spx_extract_trace_defaults();
    spx_extract_counts counts;
    spx_err e = {0};
    o.nspec = psf->nspec;
    o.wmin = FIRST;
    o.wmax = LAST;
    o.dw = STEP_OF_BINS;
    o.tolerance = SPX_SHIFT_TOLERANCE;
    o.nthreads = nthreads;
    must(b->extract(b, image, psf, &o, frame, &counts, &e) == SPX_OK, &e);
    return counts.device_seconds;
}

static spx_status extract_inside(void *ctx, const spx_image *image, const spx_psf *psf, spx_frame *frame, spx_err *e)
{
    watch *w = ctx;
    (void)e;
    const double begin = begin_part(w);
    w->b->device_seconds = extract(w->b, image, psf, w->nthreads, frame);
    end_part(w, begin, EXTRACT);
    return SPX_OK;
}

/* An exposure whose traces have moved by 0.05 pixel, from a frame on; an empty one is made. Returns its seconds. */
static double expose(const scene *s, spx_frame *frame, watch *w, double *smooth, int *steps)
{
    const spx_shift_options o = {.wmin = FIRST,
                                 .wmax = LAST,
                                 .dw = STEP_OF_BINS,
                                 .bundle_size = 25,
                                 .nwindow = 6,
                                 .window = 60,
                                 .degree_wave = -1,
                                 .degree_fibre = -1,
                                 .width = 1,
                                 .nthreads = w->nthreads};
    const spx_shift_engine g = {w, windows, extract_inside, sky, zero};
    spx_psf psf = {0};
    spx_shift shift = {0};
    spx_err e = {0};
    must(spx_shift_psf_copy(&s->psf, &psf, &e) == SPX_OK, &e);
    for (size_t f = 0; f < psf.nspec; f++)
        psf.x.coef[f * psf.x.ncoef] += 0.05;
    const double begin = spx_seconds(), mine = spx_thread_seconds();
    must(spx_shift_traces(&g, &s->image, frame, &s->lines, &o, &psf, &shift, &e) == SPX_OK, &e);
    const double seconds = spx_seconds() - begin;
    *smooth = spx_thread_seconds() - mine - w->mine;
    *steps = shift.steps;
    spx_psf_free(&psf);
    spx_shift_free(&shift);
    return seconds;
}

/* inside: its frame is not there. */
static void whole(spx_backend *b, const scene *s, const char *name, int nthreads, int inside)
{
    spx_frame given = {0};
    if (!inside)
        (void)extract(b, &s->image, &s->psf, nthreads, &given);
    for (int i = 0; i < RUNS; i++) { /* the last of them is shown */
        watch w = {.b = b, .nthreads = nthreads};
        spx_frame made = {0};
        double smooth;
        int steps;
        const double t = expose(s, inside ? &made : &given, &w, &smooth, &steps);
        spx_frame_free(&made);
        if (i + 1 < RUNS)
            continue;
        printf("  %-24s %8.1f ms an exposure%s: windows %.1f (%d steps), ", name, 1e3 * t,
               inside ? ", its frame made inside" : "", 1e3 * w.seconds[WINDOWS_OF], steps);
        if (inside)
            printf("extraction %.1f, ", 1e3 * w.seconds[EXTRACT]);
        printf("smooth functions %.1f, sky %.1f, zero point %.1f", 1e3 * smooth, 1e3 * w.seconds[SKY],
               1e3 * w.seconds[ZERO]);
        if (w.device[WINDOWS_OF] > 0)
            printf("; kernels of windows %.1f, extraction %.1f, sky %.1f, zero point %.1f", 1e3 * w.device[WINDOWS_OF],
                   1e3 * w.device[EXTRACT], 1e3 * w.device[SKY], 1e3 * w.device[ZERO]);
        puts("");
    }
    spx_frame_free(&given);
}

/* A worker of a queue: its first exposures, for memory, come before `begin`. */
typedef struct {
    spx_backend *b;
    const scene *s;
    int nthreads, inside;
    pthread_barrier_t *begin;
} worker;

static void work_on(const worker *k, spx_frame *given)
{
    watch w = {.b = k->b, .nthreads = k->nthreads};
    spx_frame made = {0};
    double smooth;
    int steps;
    (void)expose(k->s, k->inside ? &made : given, &w, &smooth, &steps);
    spx_frame_free(&made);
}

static void *work(void *of)
{
    const worker *k = of;
    spx_frame given = {0};
    if (!k->inside)
        (void)extract(k->b, &k->s->image, &k->s->psf, k->nthreads, &given);
    for (int i = 0; i < RUNS; i++)
        work_on(k, &given);
    (void)pthread_barrier_wait(k->begin);
    for (int i = 0; i < EXPOSURES; i++)
        work_on(k, &given);
    (void)pthread_barrier_wait(k->begin);
    spx_frame_free(&given);
    return NULL;
}

/* Half of the workers wait for the device: two of them have one's threads. */
static void queue(spx_backend *b, const scene *s, const char *name, int nthreads, int nworker, int inside)
{
    pthread_t thread[WORKERS];
    pthread_barrier_t begin;
    spx_err e = {0};
    const int each = nworker < 2 ? nthreads : (2 * nthreads + nworker - 1) / nworker;
    worker k = {b, s, each, inside, &begin};
    must(pthread_barrier_init(&begin, NULL, (unsigned)nworker + 1) == 0, &e);
    for (int i = 0; i < nworker; i++)
        must(pthread_create(&thread[i], NULL, work, &k) == 0, &e);
    (void)pthread_barrier_wait(&begin);
    const double from = spx_seconds();
    (void)pthread_barrier_wait(&begin);
    const double t = spx_seconds() - from;
    for (int i = 0; i < nworker; i++)
        (void)pthread_join(thread[i], NULL);
    (void)pthread_barrier_destroy(&begin);
    printf("  %-24s %8.1f ms an exposure of a queue%s, %d at a time of %d threads\n", name,
           1e3 * t / (EXPOSURES * nworker), inside ? ", its frame made inside" : "", nworker, each);
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
    const spx_shift_common in = {.nfibre = n,
                                 .fibre = fibre,
                                 .scale = scale,
                                 .first = FIRST,
                                 .last = LAST,
                                 .step = STEP_OF_BINS,
                                 .nterm = SPX_SHIFT_ZERO_MOST,
                                 .nkappa = SPX_SHIFT_ZERO_MOST,
                                 .nthreads = nthreads};
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
    const double rate = floor_products(), least = PRODUCTS * 76 * WINDOWS * (double)nspec / rate;
    printf("%zu fibres, %d windows of 60 Angstrom\n  products, one core %8.1f ms\n", nspec, WINDOWS, 1e3 * least);
    for (int d = 0; d < ndevice; d++) {
        const int all = omp_get_max_threads(), most = strcmp(device[d], "cpu") == 0 || all < 2 ? 2 : all;
        spx_backend b;
        spx_err e = {0};
        must(spx_backend_open(&b, device[d], SPX_OP_SHIFT, NULL, &e) == SPX_OK, &e);
        for (int nthreads = 1; nthreads <= most; nthreads += most - 1) {
            char name[64];
            const double t = seconds(&b, &s, nthreads);
            (void)snprintf(name, sizeof name, "%.12s, %d thread%s", device[d], nthreads, nthreads > 1 ? "s" : "");
            printf("  %-24s %8.1f ms, %.1f times the floor\n", name, 1e3 * t, t * nthreads / least);
            curve_point(name, (double)nspec, t);
            zero_point(&b, &s, name, nthreads, rate);
            for (int inside = 0; inside < 2; inside++) {
                whole(&b, &s, name, nthreads, inside);
                for (int n = 1; n <= WORKERS && nthreads == all && strcmp(b.device, "cpu") != 0; n++)
                    queue(&b, &s, name, nthreads, n, inside);
            }
        }
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
    spx_mem_cache(1); /* as in a queue */
    curve_axes("fibres (4 windows of 60 Angstrom)", "seconds");
    for (size_t i = 0; i < sizeof fibres / sizeof *fibres; i++)
        bench(fibres[i], argc > 1 ? argc - 1 : 1, argc > 1 ? argv + 1 : only_cpu);
    spx_mem_cache(0);
    return 0;
}
