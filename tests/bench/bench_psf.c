/* bench_psf [DEVICE...]: seconds of the fit of traces and PSF to an arc of bundles of 25 fibres, 4096 rows and 67 or
 * 165 lines, and of traces alone from a start that is half a pixel off, as a camera moves from day to day; then of two
 * and four arcs of 67 lines.
 *
 * cpu (the default): processor seconds of two bundles with 1 and 2 threads, against a floor: the products of the
 * shape's derivatives of spots with themselves and with those of the next two fibres, once in each of three passes that
 * have all parameters, as fast as the loop that makes them is with numbers in the first cache. A camera of 500 fibres
 * is 20 bundles. cuda: seconds of a camera by all threads of the host, best of 3, against the time in which the device
 * would multiply the images of the shape's derivatives with each other as often, at 30 Tflop/s (that of an H100 without
 * its tensor cores). Made by `make bench-psf DEVICES="cpu cuda"`. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../kernels/psffit_scene.h"
#include "backend.h"
#include "base/clock.h"
#include "num/blas.h"
#include "psffit/fit.h"

enum { BUNDLES = 2, CAMERA = 20, TIMES = 3, FULL = 3, FIBRES = SCENE_BUNDLE, NX = 17, NY = 11 };

/* Overlap of fibres `apart` pixels from each other: all rows, and the columns that both have. */
static double floor_seconds(size_t nline)
{
    const spx_pf_plan p = {.deg = 6, .norder = 9, .nc = 49, .nq = 50, .nx = NX, .ny = NY, .na = 2, .nb = 3};
    const spx_pf_kernels *k = spx_pf_kernels_find();
    static double stamp[NX * NY], across[NX * 8], gy[9 * NY], by[4] = {1, 0.5, 0.5, 0.25};
    double *sum = spx_alloc2(4 * 49, spx_pf_pair_width(&p), sizeof *sum, NULL);
    if (sum == NULL)
        exit(1);
    for (int q = 0; q < NX * NY; q++)
        stamp[q] = 1e-3 * q;
    for (int q = 0; q < NX * 8; q++)
        across[q] = 1e-2 * q;
    for (int q = 0; q < 9 * NY; q++)
        gy[q] = 1e-2 * q;
    const spx_pf_part part = {.stamp = {[SPX_PF_LIT] = stamp}, .across = across, .gy = gy};
    const clock_t begin = clock();
    for (size_t l = 0; l < nline * FULL; l++)
        for (int apart = 0; apart < 3; apart++)
            for (int i = apart; i < FIBRES; i++)
                k->shapes(&p, NY, (int)(NX - 7.3 * apart), &part, &part, by, sum);
    const double t = (double)(clock() - begin) / CLOCKS_PER_SEC;
    spx_free(sum);
    return t;
}

/* Of a bundle on a device. */
static double floor_of_device(const psffit_scene *s)
{
    const double images = (double)s->r.nline * (double)s->truth.npix_x / (double)s->truth.nspec * FIBRES * (NY + 2);
    return (double)s->r.nexp * FULL * images * 2 * 100 * 100 / 30e12;
}

/* Seconds, of wall time and of the processor, and iterations of all bundles. */
static double fit_once(spx_backend *b, const psffit_scene *s, int fix, int nthreads, double *cpu, int *iterations)
{
    spx_psffit_options o = spx_psffit_defaults();
    spx_psf psf = {0}, moved = {0};
    spx_psffit fit = {0};
    spx_err e = {0};
    if (spx_psf_copy(&s->truth, &moved, &e) != SPX_OK)
        exit(1);
    for (size_t i = 0; i < moved.nspec; i++) {
        moved.x.coef[moved.x.ncoef * i] += 0.3;
        moved.y.coef[moved.y.ncoef * i] -= 0.2;
    }
    const spx_psffit_input in = {
        .nexp = s->r.nexp, .image = s->image, .start = fix ? &moved : &s->start, .nline = s->r.nline, .line = s->line};
    o.fix_shape = fix;
    o.nthreads = nthreads;
    const double begin = spx_seconds();
    const clock_t used = clock();
    if (b->psffit(b, &in, &o, NULL, &psf, &fit, &e) != SPX_OK) {
        (void)fprintf(stderr, "bench_psf: %s\n", spx_err_text(&e));
        exit(1);
    }
    const double wall = spx_seconds() - begin;
    *cpu = (double)(clock() - used) / CLOCKS_PER_SEC;
    *iterations = 0;
    for (size_t k = 0; k < fit.nbundle; k++)
        *iterations += fit.bundle[k].niter;
    spx_psf_free(&moved);
    spx_psf_free(&psf);
    spx_psffit_free(&fit);
    return wall;
}

static void bench_cpu(spx_backend *b, const psffit_scene *s, int fix, double floor_one)
{
    for (int nthreads = 1; nthreads <= 2; nthreads++) {
        double cpu;
        int iterations;
        const double wall = fit_once(b, s, fix, nthreads, &cpu, &iterations);
        printf("  %-12s %d thread%s %8.2f s a bundle of processor time (%4.1f iterations), %8.2f s of wall time; 20 "
               "bundles: %6.1f processor s; floor %.2f s a bundle\n",
               fix ? "traces alone" : "all", nthreads, nthreads > 1 ? "s" : " ", cpu / BUNDLES,
               (double)iterations / BUNDLES, wall / BUNDLES, 20 * cpu / BUNDLES, fix ? 0 : floor_one);
    }
}

static void bench_device(spx_backend *b, const psffit_scene *s, int fix)
{
    const int nthreads = omp_get_max_threads();
    double best = 1e30, cpu = 0, used;
    int iterations = 0;
    for (int k = 0; k < TIMES; k++) {
        const double wall = fit_once(b, s, fix, nthreads, &used, &iterations);
        cpu = wall < best ? used : cpu;
        best = wall < best ? wall : best;
    }
    printf(
        "  %-12s %8.3f s a camera of %d bundles (%4.1f iterations), %6.2f s of %d threads of the host; floor %.3f s\n",
        fix ? "traces alone" : "all", best, CAMERA, (double)iterations / CAMERA, cpu, nthreads,
        fix ? 0 : CAMERA * floor_of_device(s));
}

static void bench(const char *device, size_t nline, size_t arcs)
{
    const int on_cpu = strcmp(device, "cpu") == 0;
    const size_t bundles = on_cpu ? BUNDLES : CAMERA;
    psffit_scene s;
    spx_backend b;
    spx_err e = {0};
    psffit_request r = scene_camera(bundles, nline);
    r.nexp = arcs;
    if (spx_blas_open(&e) != SPX_OK || spx_backend_open(&b, device, SPX_OP_PSFFIT, NULL, &e) != SPX_OK ||
        !scene_make(&r, 0, &s)) {
        (void)fprintf(stderr, "bench_psf: %s\n", spx_err_text(&e));
        exit(1);
    }
    for (size_t x = 0; x < arcs; x++)
        if (!scene_expose(&s, x, 0.1 * (double)x, -0.1 * (double)x, NULL))
            exit(1);
    printf("%s: %zu bundles of %d fibres, %zu x %zu pixels, %zu lines, %zu arc%s\n", device, bundles, FIBRES,
           s.truth.npix_x, r.ny, nline, arcs, arcs > 1 ? "s" : "");
    const double floor_one = on_cpu ? (double)arcs * floor_seconds(nline) : 0;
    for (int fix = 0; fix < 2; fix++)
        if (on_cpu)
            bench_cpu(&b, &s, fix, floor_one);
        else
            bench_device(&b, &s, fix);
    scene_free(&s);
    spx_backend_close(&b);
}

int main(int argc, char **argv)
{
    static const size_t nline[] = {67, 165, 67, 67}, arcs[] = {1, 1, 2, 4};
    for (int d = 1; d < argc || d == 1; d++)
        for (size_t k = 0; k < 4; k++)
            bench(argc > 1 ? argv[d] : "cpu", nline[k], arcs[k]);
    return 0;
}
