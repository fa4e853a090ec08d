/* bench_psf: processor seconds of the fit of traces and PSF to an arc of bundles of 25 fibres, 4096 rows and 67 lines,
 * and of traces alone, with 1 and 2 threads, against a floor: the products of the shape's derivatives, 100 columns by
 * 2400 pixels a line, once in each of the three passes that have all parameters, as fast as BLAS makes them. A camera
 * of 500 fibres is 20 bundles. Made by `make bench-psf`; the CPU alone. */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../kernels/psffit_scene.h"
#include "base/clock.h"
#include "num/blas.h"

enum { BUNDLES = 4, LINES = 67, FULL = 3, COLUMNS = 100, PIXELS = 2400 };

static double floor_seconds(void)
{
    double *d = spx_alloc2(PIXELS, COLUMNS, sizeof *d, NULL), *m = spx_alloc2(COLUMNS, COLUMNS, sizeof *m, NULL);
    if (d == NULL || m == NULL)
        exit(1);
    for (size_t k = 0; k < (size_t)PIXELS * COLUMNS; k++)
        d[k] = 1e-3 * (double)(k % 977);
    const clock_t begin = clock();
    for (int k = 0; k < LINES * FULL; k++)
        cblas_dsyrk(CblasRowMajor, CblasUpper, CblasTrans, COLUMNS, PIXELS, 1, d, COLUMNS, 0, m, COLUMNS);
    const double t = (double)(clock() - begin) / CLOCKS_PER_SEC;
    spx_free(d);
    spx_free(m);
    return t;
}

static void bench(const psffit_scene *s, int fix, int nthreads, double floor_one)
{
    spx_psffit_options o = spx_psffit_defaults();
    spx_psf psf = {0};
    spx_psffit fit = {0};
    spx_err e = {0};
    const spx_psffit_input in = {
        .nexp = 1, .image = s->image, .start = fix ? &s->truth : &s->start, .nline = s->r.nline, .line = s->line};
    o.fix_shape = fix;
    o.nthreads = nthreads;
    const double begin = spx_seconds();
    const clock_t used = clock();
    if (spx_psffit_make(&in, &o, &psf, &fit, &e) != SPX_OK) {
        (void)fprintf(stderr, "bench_psf: %s\n", spx_err_text(&e));
        exit(1);
    }
    const double wall = spx_seconds() - begin, cpu = (double)(clock() - used) / CLOCKS_PER_SEC;
    int iterations = 0;
    for (size_t k = 0; k < fit.nbundle; k++)
        iterations += fit.bundle[k].niter;
    printf(
        "  %-12s %d thread%s %8.2f s a bundle of processor time (%4.1f iterations), %8.2f s of wall time; 20 bundles: "
        "%6.1f processor s; floor %.2f s a bundle\n",
        fix ? "traces alone" : "all", nthreads, nthreads > 1 ? "s" : " ", cpu / BUNDLES, (double)iterations / BUNDLES,
        wall / BUNDLES, 20 * cpu / BUNDLES, fix ? 0 : floor_one);
    spx_psf_free(&psf);
    spx_psffit_free(&fit);
}

int main(void)
{
    spx_err e = {0};
    psffit_scene s;
    const psffit_request r = {.nspec = 25 * BUNDLES,
                              .bundle = 25,
                              .ny = 4096,
                              .nexp = 1,
                              .nline = LINES,
                              .faint = 300,
                              .bright = 56000,
                              .readnoise = 3,
                              .hits = 100,
                              .deg = 6,
                              .seed = 1,
                              .noise = 1};
    if (spx_blas_open(&e) != SPX_OK || !scene_make(&r, 0, &s) || !scene_expose(&s, 0, 0, 0, NULL)) {
        (void)fprintf(stderr, "bench_psf: %s\n", spx_err_text(&e));
        return 1;
    }
    const double floor_one = floor_seconds();
    printf("%d bundles of 25 fibres, %zu x %zu pixels, %d lines\n", BUNDLES, s.truth.npix_x, r.ny, LINES);
    for (int fix = 0; fix < 2; fix++)
        for (int nthreads = 1; nthreads <= 2; nthreads++)
            bench(&s, fix, nthreads, floor_one);
    scene_free(&s);
    return 0;
}
