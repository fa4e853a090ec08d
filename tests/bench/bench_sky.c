/* bench_sky [DEVICE...]: seconds of the sky of 500 fibres, of which 50 see sky alone, by the number of bins, up to 2326
 * of a DESI arm, against two floors: reading the resolution matrices three times (once for the views of the sky, once
 * for their variances, and those of the sky fibres in each pass), and the products that have to be made, 11 + 66 a bin
 * and fibre for these, 66 a bin and sky fibre for each pass, and 4 x 45 for the fits of each fibre, as fast as the
 * first-level cache gives their operands. Made by `make bench-sky`. Without arguments: the CPU, with 1 and 2 threads;
 * devices with 1 thread of the host, and all. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/sky_scene.h"
#include "backend.h"
#include "base/clock.h"
#include "curve.h"
#include "floor.h"
#include "num/stat.h"

enum { FIBRES = 500, EVERY = 10, DIAGONALS = 11, RUNS = 5 };

/* Median of the whole call; *device: of the device's own part. */
static double seconds(spx_backend *b, const sky_scene *s, int nthreads, size_t *passes, double *device)
{
    double t[RUNS], own[RUNS];
    for (int i = 0; i < RUNS; i++) {
        spx_err e = {0};
        spx_sky out = {0};
        spx_sky_options o = spx_sky_defaults();
        o.nthreads = nthreads;
        const double begin = spx_seconds();
        if (b->sky(b, &s->in, &o, &out, &e) != SPX_OK) {
            (void)fprintf(stderr, "bench_sky: %s\n", spx_err_text(&e));
            exit(1);
        }
        t[i] = spx_seconds() - begin;
        own[i] = b->device_seconds;
        *passes = out.passes;
        spx_sky_free(&out);
    }
    *device = spx_median(own, RUNS);
    return spx_median(t, RUNS);
}

static void bench(size_t nwave, int ndevice, char **device)
{
    sky_scene s;
    spx_mem_cache(1); /* as in a queue */
    random_start(17);
    sky_make(&s, FIBRES, nwave, DIAGONALS, EVERY, SKY_SHIFTS | SKY_STARS, 1);
    const double rate = floor_products(), memory = floor_read(s.resolution, s.in.nspec * s.in.ndiag * s.in.nwave);
    printf("%d fibres, %zu bins\n  reading R once, one core %8.1f ms\n", FIBRES, nwave, 1e3 * memory);
    for (int d = 0; d < ndevice; d++) {
        spx_backend b;
        spx_err e = {0};
        size_t passes;
        double own;
        if (spx_backend_open(&b, device[d], SPX_OP_SKY, NULL, &e) != SPX_OK) {
            (void)fprintf(stderr, "bench_sky: %s\n", spx_err_text(&e));
            exit(1);
        }
        const int all = omp_get_max_threads(), most = strcmp(device[d], "cpu") == 0 || all < 2 ? 2 : all;
        for (int nthreads = 1; nthreads <= most; nthreads += most - 1) {
            char name[64];
            const double t = seconds(&b, &s, nthreads, &passes, &own);
            (void)snprintf(name, sizeof name, "%.12s, %d thread%s", device[d], nthreads, nthreads > 1 ? "s" : "");
            printf("  %-24s %8.1f ms, %zu passes", name, 1e3 * t, passes);
            if (own > 0)
                printf(", of these %.1f on the device", 1e3 * own);
            if (strcmp(device[d], "cpu") == 0) {
                const double again = (double)(passes + 1) / EVERY;
                const double least = (77 + 77 * again + 180) * FIBRES * (double)nwave / rate;
                printf(", floors: products %.1f ms, reading %.1f ms", 1e3 * least / nthreads,
                       1e3 * (2 + 2 * again) * memory / nthreads);
            }
            printf("\n");
            curve_point(name, (double)nwave, t);
        }
        spx_backend_close(&b);
    }
    sky_free(&s);
    spx_mem_cache(0);
}

int main(int argc, char **argv)
{
    static char cpu[] = "cpu";
    char *only_cpu[] = {cpu};
    const int ndevice = argc > 1 ? argc - 1 : 1;
    char **device = argc > 1 ? argv + 1 : only_cpu;
    curve_axes("bins of a fibre (500 fibres, 50 of them sky)", "seconds");
    for (size_t n = 291; n <= 2326; n = 2 * n - (n == 582 ? 1 : 0))
        bench(n, ndevice, device);
    return 0;
}
