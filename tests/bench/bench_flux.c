/* bench_flux [DEVICE...]: seconds of the response of 2326 bins from 20 and 50 stars, and of the calibration of 500
 * fibres with it, against floors: for the response the products of the normal matrix (66 a bin and star for each of
 * eight solutions), for the calibration those of variance, response and matrix (66 + 22 a bin and fibre), as fast as
 * the first-level cache gives their operands, and reading and writing the resolution matrices once. Made by `make
 * bench-flux`. Without arguments: the CPU, with 1 and 2 threads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/flux_scene.h"
#include "backend.h"
#include "base/clock.h"
#include "curve.h"
#include "floor.h"
#include "num/stat.h"

enum { FIBRES = 500, BINS = 2326, DIAGONALS = 11, RUNS = 7, SOLUTIONS = 8 };

static void must(spx_status st, const spx_err *e)
{
    if (st != SPX_OK) {
        (void)fprintf(stderr, "bench_flux: %s\n", spx_err_text(e));
        exit(1);
    }
}

/* Seconds to copy resolution matrices once. */
static double copy_once(const flux_scene *s, double *to)
{
    const double begin = spx_seconds();
    memcpy(to, s->arm.resolution, s->nspec * s->ndiag * s->n * sizeof *to);
    return spx_seconds() - begin;
}

static void bench(size_t nstar, int ndevice, char **device)
{
    const flux_scene_how how = {.first = 7520, .sn = 25, .tilt = 0.02, .wave = 0.01, .grain = 0.01};
    flux_scene s;
    flux_scene_draw(&s, FIBRES, nstar, BINS, DIAGONALS, 7, &how);
    spx_arm arm = s.arm;
    const size_t size = (size_t)FIBRES * DIAGONALS * BINS;
    arm.resolution = flux_array(size);
    arm.flux = flux_array((size_t)FIBRES * BINS);
    arm.ivar = flux_array((size_t)FIBRES * BINS);
    (void)copy_once(&s, arm.resolution);
    const double rate = floor_products(), memory = copy_once(&s, arm.resolution);
    printf("%zu stars, %d fibres, %d bins: copying R once, one core, %.1f ms\n", nstar, FIBRES, BINS, 1e3 * memory);
    for (int d = 0; d < ndevice; d++) {
        spx_backend b;
        spx_err e = {0};
        must(spx_backend_open(&b, device[d], SPX_OP_FLUX, NULL, &e), &e);
        const int cpu = strcmp(device[d], "cpu") == 0;
        for (int nthreads = 1; nthreads <= (cpu ? 2 : 1); nthreads++) {
            double solve[RUNS], apply[RUNS];
            char name[64];
            spx_flux_options o;
            spx_flux_options_init(&o);
            o.nband = spx_flux_nband;
            o.band = spx_flux_bands[0];
            o.nthreads = nthreads;
            for (int i = 0; i < RUNS; i++) {
                spx_flux f;
                size_t nbad = 0;
                (void)copy_once(&s, arm.resolution);
                memcpy(arm.flux, s.arm.flux, (size_t)FIBRES * BINS * sizeof *arm.flux);
                memcpy(arm.ivar, s.arm.ivar, (size_t)FIBRES * BINS * sizeof *arm.ivar);
                const double begin = spx_seconds();
                must(b.flux_solve(&b, &s.arm, &s.in, &o, &f, &e), &e);
                const double middle = spx_seconds();
                must(b.flux_apply(&b, &f, 1, nthreads, FIBRES, &arm, &nbad, &e), &e);
                solve[i] = middle - begin;
                apply[i] = spx_seconds() - middle;
                spx_flux_free(&f);
            }
            const double t = spx_median(solve, RUNS), u = spx_median(apply, RUNS);
            (void)snprintf(name, sizeof name, "%.12s, %d thread%s", device[d], nthreads, nthreads > 1 ? "s" : "");
            printf("  %-24s response %6.1f ms, calibration %6.1f ms", name, 1e3 * t, 1e3 * u);
            if (cpu)
                printf(", floors: products %.1f and %.1f ms, copying %.1f ms",
                       1e3 * 66 * SOLUTIONS * (double)nstar * BINS / rate / nthreads,
                       1e3 * 88 * FIBRES * (double)BINS / rate / nthreads, 1e3 * memory / nthreads);
            printf("\n");
            curve_point(name, (double)nstar, t + u);
        }
        spx_backend_close(&b);
    }
    spx_free(arm.resolution);
    spx_free(arm.flux);
    spx_free(arm.ivar);
    flux_scene_free(&s);
}

int main(int argc, char **argv)
{
    static char cpu[] = "cpu";
    char *only_cpu[] = {cpu};
    const int ndevice = argc > 1 ? argc - 1 : 1;
    char **device = argc > 1 ? argv + 1 : only_cpu;
    curve_axes("standard stars (500 fibres, 2326 bins)", "seconds");
    for (size_t n = 20; n <= 50; n += 30)
        bench(n, ndevice, device);
    return 0;
}
