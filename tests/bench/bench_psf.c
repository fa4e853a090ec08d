/* bench_psf: processor seconds of the fit of traces and PSF to an arc of bundles of 25 fibres, 4096 rows and 67 or 165
 * lines, and of traces alone, with 1 and 2 threads, against a floor: the products of the shape's derivatives of spots
 * with themselves and with those of the next two fibres, once in each of three passes that have all parameters, as fast
 * as the loop that makes them is with numbers in the first cache. A camera of 500 fibres is 20 bundles. Made by `make
 * bench-psf`; the CPU alone. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../kernels/psffit_scene.h"
#include "base/clock.h"
#include "num/blas.h"
#include "psffit/fit.h"

enum { BUNDLES = 2, FULL = 3, FIBRES = 25, NX = 17, NY = 11 };

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
    static const size_t nline[] = {67, 165};
    spx_err e = {0};
    for (size_t k = 0; k < 2; k++) {
        psffit_scene s;
        const psffit_request r = {.nspec = FIBRES * BUNDLES,
                                  .bundle = FIBRES,
                                  .ny = 4096,
                                  .nexp = 1,
                                  .nline = nline[k],
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
        const double floor_one = floor_seconds(nline[k]);
        printf("%d bundles of %d fibres, %zu x %zu pixels, %zu lines\n", BUNDLES, FIBRES, s.truth.npix_x, r.ny,
               nline[k]);
        for (int fix = 0; fix < 2; fix++)
            for (int nthreads = 1; nthreads <= 2; nthreads++)
                bench(&s, fix, nthreads, floor_one);
        scene_free(&s);
    }
    return 0;
}
