/* bench_flat [DEVICE...]: seconds of the fibre flat field of 500 fibres and three exposures by the number of bins, up
 * to 2326 of a DESI arm, against two floors: one reading of the resolution matrices a pass, and the products that a
 * pass has to make, 2 x 11 a bin and exposure, with 66 more in the passes that make the normal matrix, as fast as the
 * first-level cache gives their operands. Made by `make bench-flat`. Without arguments: the CPU, with 1 and 2 threads.
 * Of other devices the time of their kernels counts, without copies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/flat_scene.h"
#include "base/clock.h"
#include "curve.h"
#include "floor.h"
#include "num/stat.h"

enum { FIBRES = 500, EXPOSURES = 3, DIAGONALS = 11, RUNS = 5 };

static double seconds(spx_backend *b, const flat_scene *s, int nthreads, spx_flat_counts *counts)
{
    double t[RUNS];
    const spx_flat_input in = flat_scene_input(s);
    for (int i = 0; i < RUNS; i++) {
        spx_err e = {0};
        spx_flat out = {0};
        const spx_flat_options o = {
            .knots = 60, .reject = 5, .floor = 0.001, .converge = SPX_FLAT_CONVERGE, .nthreads = nthreads};
        const double begin = spx_seconds();
        if (b->flat(b, &in, &o, &out, counts, &e) != SPX_OK) {
            (void)fprintf(stderr, "bench_flat: %s\n", spx_err_text(&e));
            exit(1);
        }
        t[i] = b->device_seconds > 0 ? b->device_seconds : spx_seconds() - begin;
        spx_flat_free(&out);
    }
    return spx_median(t, RUNS);
}

/* Seconds to read the resolution matrices once. */
static double read_once(const flat_scene *s)
{
    double t = 0;
    for (size_t x = 0; x < s->nexp; x++)
        t += floor_read(s->resolution[x], s->nspec * s->ndiag * s->nwave);
    return t;
}

static void bench(size_t nwave, int ndevice, char **device)
{
    random_start(17);
    flat_scene s = flat_scene_new(EXPOSURES, FIBRES, nwave, DIAGONALS, 6000, 3. * (double)nwave / 2326, 0);
    const double bins = (double)FIBRES * EXPOSURES * (double)nwave, rate = floor_products(), memory = read_once(&s);
    printf("%d fibres, %d exposures, %zu bins\n  reading R once, one core %8.1f ms\n", FIBRES, EXPOSURES, nwave,
           1e3 * memory);
    for (int d = 0; d < ndevice; d++) {
        spx_backend b;
        spx_err e = {0};
        spx_flat_counts counts;
        if (spx_backend_open(&b, device[d], SPX_OP_FLAT, NULL, &e) != SPX_OK) {
            (void)fprintf(stderr, "bench_flat: %s\n", spx_err_text(&e));
            exit(1);
        }
        const int most = strcmp(device[d], "cpu") == 0 ? 2 : 1;
        for (int nthreads = 1; nthreads <= most; nthreads++) {
            char name[64];
            const double t = seconds(&b, &s, nthreads, &counts);
            (void)snprintf(name, sizeof name, "%.12s, %d thread%s", device[d], nthreads, nthreads > 1 ? "s" : "");
            printf("  %-24s %8.1f ms, %zu passes", name, 1e3 * t, counts.npass);
            if (strcmp(device[d], "cpu") == 0) {
                const double least = ((double)counts.npass * 2 * DIAGONALS + 66) * bins / rate;
                printf(", floors: products %.1f ms, reading %.1f ms", 1e3 * least / nthreads,
                       1e3 * (double)counts.npass * memory / nthreads);
            }
            printf("\n");
            curve_point(name, (double)nwave, t);
        }
        spx_backend_close(&b);
    }
    flat_scene_free(&s);
}

int main(int argc, char **argv)
{
    static char cpu[] = "cpu";
    char *only_cpu[] = {cpu};
    int ndevice = argc > 1 ? argc - 1 : 1;
    char **device = argc > 1 ? argv + 1 : only_cpu;
    curve_axes("bins of a fibre (500 fibres, 3 exposures)", "seconds");
    for (size_t n = 291; n <= 2326; n = 2 * n - (n == 582 ? 1 : 0))
        bench(n, ndevice, device);
    return 0;
}
