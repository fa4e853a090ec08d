/* bench_burgers [DEVICE...]: microseconds a step of Burgers' equation, and milliseconds of the decomposition of its
 * snapshots. Made by `make bench-burgers`. Without arguments: the CPU. Of other devices the time of their kernels
 * counts, without copies. With SPX_BENCH_HOOK=FILE.py:function, microseconds a step with this hook instead: hooks.py
 * beside this file has some. */
#include <stdio.h>
#include <stdlib.h>

#include "../must.h"
#include "backend.h"
#include "base/clock.h"
#include "curve.h"

static void open_backend(spx_backend *b, const char *device)
{
    spx_err e = {0};
    must(spx_backend_open(b, device, SPX_OP_BURGERS, NULL, &e) == SPX_OK, &e);
}

static void bench(const char *device)
{
    spx_backend b;
    spx_err e = {0};
    open_backend(&b, device);
    for (size_t nx = 256; nx <= 65536; nx *= 16) {
        const spx_burgers_options o = {.nx = nx,
                                       .viscosity = 0.01,
                                       .dt = 1e-3 * 65536 / (double)(nx * nx),
                                       .nstep = 2000,
                                       .every = 1,
                                       .nthreads = 1};
        double best = 1e9;
        for (int i = 0; i < 5; i++) {
            spx_burgers out = {0};
            const double begin = spx_seconds();
            must(b.burgers(&b, &o, &out, &e) == SPX_OK, &e);
            const double t = b.device_seconds > 0 ? b.device_seconds : spx_seconds() - begin;
            best = t < best ? t : best;
            if (i == 0 && nx == 256) {
                const spx_svd_options so = {.rank = 10};
                spx_svd svd = {0};
                const double from = spx_seconds();
                if (b.svd(&b, out.snapshot, out.nsnapshot, nx, &so, &svd, &e) != SPX_OK)
                    exit(1);
                printf("%s: decomposition of %zu x %zu: %.1f ms\n", device, svd.nrow, svd.ncol,
                       1e3 * (spx_seconds() - from));
                spx_svd_free(&svd);
            }
            spx_burgers_free(&out);
        }
        printf("%s: %zu cells: %.3f us a step\n", device, nx, 1e6 * best / 2000);
        curve_point(device, (double)nx, 1e6 * best / 2000);
    }
    spx_backend_close(&b);
}

/* Steps with a hook: the first run, in which it imports what it needs, does not count. */
static void bench_hook(const char *device, const char *file)
{
    spx_backend b;
    spx_hook hook;
    spx_err e = {0};
    open_backend(&b, device);
    spx_status st = spx_hook_open(&hook, file, &e);
    const spx_burgers_options o = {
        .nx = 256, .viscosity = 0.01, .dt = 1e-3, .nstep = 2000, .every = 1, .nthreads = 1, .hook = &hook};
    double best = 1e9;
    for (int i = 0; i < 8 && st == SPX_OK; i++) {
        spx_burgers out = {0};
        const double begin = spx_seconds();
        st = b.burgers(&b, &o, &out, &e);
        const double t = b.device_seconds > 0 ? b.device_seconds : spx_seconds() - begin;
        best = i > 0 && t < best ? t : best;
        spx_burgers_free(&out);
    }
    must(st == SPX_OK, &e);
    printf("%s: 256 cells, %s: %.3f us a step\n", device, file, 1e6 * best / 2000);
    spx_hook_close(&hook);
    spx_backend_close(&b);
}

int main(int argc, char **argv)
{
    const char *hook = getenv("SPX_BENCH_HOOK");
    if (hook != NULL) {
        bench_hook(argc > 1 ? argv[1] : "cpu", hook);
        return 0;
    }
    curve_axes("cells", "microseconds a step");
    if (argc == 1)
        bench("cpu");
    for (int i = 1; i < argc; i++)
        bench(argv[i]);
    return 0;
}
