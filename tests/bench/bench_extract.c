/* bench_extract [DEVICE...]: seconds of the whole-trace extraction by step, on simulated frames of 125, 250 and 500
 * fibres with 2326 wavelengths (a DESI r camera), the least of five runs each; the memory that it takes; the whole
 * process with its files, for one frame and for a queue of them (SPX_BENCH_FRAMES, 8 without it); the same frame with
 * its cosmic-ray hits to be found, and where there are none; with a tail of the PSF, with a background; and a floor:
 * the bytes that must be moved and the operations that must be done, over the rates of a copy and of a matrix product
 * here. Made by `make bench-extract`. Without arguments: the CPU with as many threads as there are processors. */
#include <cblas.h>
#include <hdf5.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../must.h"
#include "backend.h"
#include "base/clock.h"
#include "base/mem.h"
#include "curve.h"
#include "extract/trace/trace.h"
#include "num/blas.h"
#include "products/image_h5.h"
#include "products/psf_h5.h"
#include "products/psf_index.h"
#include "products/spectra.h"
#include "psf/psf_math.h"
#include "sim/sim.h"

enum { RUNS = 5 };

static const char *const step_name[SPX_EXTRACT_STEPS] = {
    "begin", "plan", "equations", "solve", "screen", "marginal", "fit", "root", "tail", "background", "end"};

/* One exposure of the built-in r camera: stars and sky, noise, cosmic rays, bad columns. */
static void expose(size_t nspec, spx_psf *psf, spx_image *image)
{
    spx_err e = {0};
    const double wmin = 5730.0, step = 0.4;
    const size_t nwave = (size_t)((7650.0 - wmin) / step);
    must(spx_sim_psf('r', nspec, 0, 0, psf, &e) == SPX_OK, &e);
    double *wave = must_have(spx_alloc(nwave, sizeof *wave, &e)), *sky = must_have(spx_alloc(nwave, sizeof *sky, &e));
    double *flux = must_have(spx_alloc2(nspec, nwave, sizeof *flux, &e));
    double *model = must_have(spx_alloc2(psf->npix_y, psf->npix_x, sizeof *model, &e));
    spx_sim_grid(wmin, step, nwave, wave);
    must(spx_sim_sky('r', 900.0, nwave, wave, sky, &e) == SPX_OK, &e);
    for (size_t s = 0; s < nspec; s++)
        for (size_t k = 0; k < nwave; k++)
            flux[s * nwave + k] = 20.0 * (double)(s % 9);
    spx_sim_add_sky(nspec, nwave, sky, flux);
    must(spx_sim_project(psf, nspec, NULL, nwave, wave, flux, psf->npix_y, psf->npix_x, model, NULL, &e) == SPX_OK, &e);
    spx_sim_noise noise = {.seed = 1,
                           .camera = 'r',
                           .photon_noise = 1,
                           .readnoise = 3.0,
                           .fullwell = 1e5,
                           .cosmics = 100.0,
                           .badcolumns = 5};
    must(spx_sim_expose(psf->npix_y, psf->npix_x, model, &noise, image, &e) == SPX_OK, &e);
    spx_free(wave);
    spx_free(sky);
    spx_free(flux);
    spx_free(model);
}

/* ---- floor ---- */

static double copy_rate(int nthreads)
{
    const size_t n = (size_t)1 << 25;
    double *a = must_have(spx_alloc(n, sizeof *a, NULL)), *b = must_have(spx_alloc(n, sizeof *b, NULL)), best = 1e30;
    for (int run = 0; run < RUNS; run++) {
        double begin = spx_seconds();
#pragma omp parallel for num_threads(nthreads) schedule(static)
        for (size_t i = 0; i < 64; i++)
            memcpy(a + i * (n / 64), b + i * (n / 64), n / 64 * sizeof *a);
        double t = spx_seconds() - begin;
        best = t < best ? t : best;
    }
    spx_free(a);
    spx_free(b);
    return 2.0 * 8.0 * (double)n / best;
}

static double gemm_rate(int nthreads)
{
    enum { N = 1536 };
    double *m = must_have(spx_alloc2(3, (size_t)N * N, sizeof *m, NULL)), best = 1e30;
    for (size_t i = 0; i < (size_t)2 * N * N; i++)
        m[i] = (double)(i % 97) / 97.0;
    spx_err e = {0};
    must(spx_blas_open(&e) == SPX_OK, &e);
    openblas_set_num_threads(nthreads);
    for (int run = 0; run < RUNS; run++) {
        double begin = spx_seconds();
        cblas_dgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, N, N, N, 1.0, m, N, m + (size_t)N * N, N, 0.0,
                    m + (size_t)2 * N * N, N);
        double t = spx_seconds() - begin;
        best = t < best ? t : best;
    }
    spx_free(m);
    return 2.0 * (double)N * N * N / best;
}

/* Operations of a bin, counted from the method: spots twice, overlaps with its own and the next two fibres, two sides
 * of the Schur complement, `poles` poles, a few iterations. */
static double operations(const spx_psf *psf, double overlap_pixels, double band, double poles)
{
    const double nx = spx_psf_nx(psf), ny = spx_psf_ny(psf), gx = psf->ghdegx + 1, gy = psf->ghdegy + 1;
    const double spot = (double)psf->ndeg * gx * gy + (nx + ny + 2) * (23 + 13 + 12 + gx) + gx * gy * ny + gx * nx * ny;
    const double marginal = 2.0 * (3.0 * band) * (band + band);
    const double pole = band * (band + 1) / 2 + band * band + 5.0 * band;
    return 2.0 * (2.0 * spot + overlap_pixels + marginal + poles * pole + 6.0 * (2.0 * 5.0 * band + 2.0 * band));
}

/* Pixels that a bin's spot shares with those of the bins that M couples it with, each pair once. */
static double overlap_pixels(const spx_psf *psf, double dw)
{
    const size_t f = psf->nspec / 2 / 25 * 25 + 10; /* not at the edge of a bundle */
    const double lambda = 0.5 * (psf->wmin + psf->wmax);
    const long nx = spx_psf_nx(psf), ny = spx_psf_ny(psf);
    spx_spot a, b;
    double sum = 0.0;
    if (spx_psf_spot_place(psf, f, lambda, &a) != SPX_SPOT_OK)
        return 0.0;
    for (long df = 0; df <= 3; df++)
        for (long dk = df == 0 ? 0 : -20; dk <= 20; dk++)
            if (spx_psf_spot_place(psf, f + (size_t)df, lambda + (double)dk * dw, &b) == SPX_SPOT_OK) {
                long dx = labs(b.xc - a.xc), dy = labs(b.yc - a.yc);
                sum += dx < nx && dy < ny ? (double)((nx - dx) * (ny - dy)) : 0.0;
            }
    return sum;
}

/* ---- the whole process ---- */

/* Least seconds of a program that is run a few times; negative when it fails. */
static double whole_process(char *const argv[], int runs)
{
    double best = 1e30;
    for (int run = 0; run < runs; run++) {
        double begin = spx_seconds();
        pid_t pid = fork();
        if (pid == 0) {
            execv(argv[0], argv);
            _exit(127);
        }
        int status = 0;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            return -1.0;
        double t = spx_seconds() - begin;
        best = t < best ? t : best;
    }
    return best;
}

static void write_input(const char *path, const spx_image *image, const spx_psf *psf)
{
    spx_err e = {0};
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    spx_status st = file < 0 ? spx_fail(&e, SPX_EIO, "%s: cannot be written", path) : SPX_OK;
    if (st == SPX_OK && (st = spx_image_write(file, image, &e)) == SPX_OK)
        st = spx_psf_write(file, psf, &e);
    must(st == SPX_OK, &e);
    (void)H5Fclose(file);
}

/* The program beside this one's folder, with a frame and with a queue of frames, which are links to one file: what the
 * disk takes is not measured. */
static void time_program(const spx_image *image, const spx_psf *psf, int ndevice, char **device)
{
    enum { MOST = 200, NAME = 64, FIXED = 8 };
    static char name[MOST][NAME], program[4096], one[NAME], many[NAME], grid[] = "5760,7620,0.8";
    const char *wanted = getenv("SPX_BENCH_FRAMES");
    const int given = wanted ? atoi(wanted) : 8, nframe = given < 1 ? 1 : given > MOST ? MOST : given;
    char folder[] = "/tmp/bench-extract-XXXXXX", *argv[FIXED + MOST + 1] = {0};
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 64);
    program[n > 0 ? n : 0] = '\0';
    char *end = strstr(program, "/bench/bench_extract");
    if (!end || !mkdtemp(folder))
        return;
    (void)strcpy(end, "/bin/specx-extract");
    (void)snprintf(one, NAME, "%s/frame.h5", folder);
    (void)snprintf(many, NAME, "%s/frame-%%s.h5", folder);
    for (int i = 0; i < nframe; i++) {
        (void)snprintf(name[i], NAME, "%s/image%d.h5", folder, i);
        if (i == 0)
            write_input(name[0], image, psf);
        else if (link(name[0], name[i]) != 0)
            perror(name[i]);
    }
    for (int d = 0; d < ndevice; d++) {
        const char *fixed[FIXED] = {program, "-qf", "--device", device[d], "--wavelength", grid, "-o", one};
        for (int i = 0; i < FIXED; i++)
            argv[i] = (char *)(uintptr_t)fixed[i];
        argv[FIXED] = name[0];
        argv[FIXED + 1] = NULL;
        const double single = whole_process(argv, RUNS);
        argv[FIXED - 1] = many;
        for (int i = 0; i < nframe; i++)
            argv[FIXED + i] = name[i];
        argv[FIXED + nframe] = NULL;
        const double queue = whole_process(argv, 2);
        printf("whole process with files, %s: %.3f s; queue of %d frames %.3f s, %.3f s a frame\n", device[d], single,
               nframe, queue, queue / nframe);
    }
    for (int i = 0; i < nframe; i++) {
        char out[2 * NAME];
        (void)snprintf(out, sizeof out, "%s/frame-image%d.h5", folder, i);
        (void)unlink(out);
        (void)unlink(name[i]);
    }
    (void)unlink(one);
    (void)rmdir(folder);
}

/* Seconds with rejection beside those without: with all hits flagged, so that each bundle is solved once, and one more
 * model image made of it; and with all to be found. The floor of both is the extraction itself. */
static void time_rejection(spx_backend *b, spx_image *image, const spx_psf *psf, spx_extract_options o, double plain)
{
    spx_err e = {0};
    const size_t npix = image->ny * image->nx;
    uint32_t *flagged = image->mask, *open = must_have(spx_alloc_unset(npix, 1, sizeof *open, &e));
    for (size_t i = 0; i < npix; i++)
        open[i] = flagged[i] & ~(uint32_t)SPX_CCD_COSMIC;
    o.reject = 5.0;
    for (int found = 0; found < 2; found++) {
        double best = 1e30, screen = 1e30;
        size_t pixels = 0;
        image->mask = found ? open : flagged;
        for (int run = 0; run < RUNS; run++) {
            spx_frame frame = {0};
            spx_extract_counts counts;
            const double begin = spx_seconds();
            must(b->extract(b, image, psf, &o, &frame, &counts, &e) == SPX_OK, &e);
            const double t = spx_seconds() - begin, s = counts.seconds[SPX_EXTRACT_SCREEN];
            best = t < best ? t : best;
            screen = s < screen ? s : screen;
            pixels = counts.npix_rejected;
            spx_frame_free(&frame);
        }
        printf("   with rejection, %s: %zu pixels, %.3f s, %.2f times the extraction; screen %.3f s of all threads\n",
               found ? "100 hits a million pixels" : "nothing to find", pixels, best, best / plain, screen);
    }
    image->mask = flagged;
    spx_free(open);
}

/* A PSF of the simulation, whose table has rows for a tail, with one of 14 % of the light. */
static void add_tail(const spx_psf *from, spx_psf *to)
{
    spx_err e = {0};
    must(spx_psf_copy(from, to, &e) == SPX_OK, &e);
    for (size_t k = 0; k < to->npar; k++)
        for (size_t f = 0; f < to->nspec; f++) {
            double *c = to->coeff + (k * to->nspec + f) * to->ndeg;
            *c = strcmp(to->param[k], "TAILAMP") == 0 ? 0.0071 : strcmp(to->param[k], "TAILINDE") == 0 ? 2.2 : *c;
        }
    must(spx_psf_index(to, &e) == SPX_OK && spx_psf_has_tail(to), &e);
}

/* The frame with light beyond the spots, which the host takes off: a tail, a background, both. */
static void time_beyond(spx_backend *b, const spx_image *image, const spx_psf *psf, spx_extract_options o, double plain)
{
    spx_err e = {0};
    spx_psf tailed = {0};
    spx_image lit = *image; /* scattered light: a hill of 8 electrons, which is no spline */
    add_tail(psf, &tailed);
    o.tail_corrections = 2;
    lit.data = must_have(spx_alloc_unset(image->ny, image->nx, sizeof *lit.data, &e));
    for (size_t k = 0; k < image->ny * image->nx; k++) {
        const double x = (double)(k % image->nx) / (double)image->nx - 0.5,
                     y = (double)(k / image->nx) / (double)image->ny - 0.5;
        lit.data[k] = image->data[k] + (float)(8.0 * exp(-4.5 * (x * x + y * y)));
    }
    for (int kind = 1; kind < 4; kind++) {
        double best = 1e30, tail = 1e30, background = 1e30;
        o.background = kind & 2 ? 512.0 : 0.0;
        for (int run = 0; run < RUNS; run++) {
            spx_frame frame = {0};
            spx_extract_counts counts;
            const double begin = spx_seconds();
            must(b->extract(b, &lit, kind & 1 ? &tailed : psf, &o, &frame, &counts, &e) == SPX_OK, &e);
            const double t = spx_seconds() - begin;
            best = t < best ? t : best;
            tail = fmin(tail, counts.seconds[SPX_EXTRACT_TAIL]);
            background = fmin(background, counts.seconds[SPX_EXTRACT_BACKGROUND]);
            spx_frame_free(&frame);
        }
        printf("   with %s: %.3f s, %.2f times the extraction; tail %.3f, background %.3f s of one thread\n",
               kind == 1   ? "a tail"
               : kind == 2 ? "a background"
                           : "both",
               best, best / plain, tail, background);
    }
    spx_free(lit.data);
    spx_psf_free(&tailed);
}

int main(int argc, char **argv)
{
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* lines as they come, in a file too */
    static char cpu[] = "cpu";
    char *only_cpu[] = {cpu};
    const int ndevice = argc > 1 ? argc - 1 : 1, nthreads = omp_get_max_threads();
    char **device = argc > 1 ? argv + 1 : only_cpu;
    const double copy = copy_rate(nthreads), gemm = gemm_rate(nthreads);
    curve_axes("fibres", "seconds a frame");
    printf("%d threads: copy %.1f GB/s, matrix product %.1f GFLOP/s\n", nthreads, 1e-9 * copy, 1e-9 * gemm);
    for (size_t nspec = 125; nspec <= 500; nspec *= 2) {
        spx_psf psf = {0};
        spx_image image = {0};
        spx_err e = {0};
        expose(nspec, &psf, &image);
        spx_extract_options o = spx_extract_trace_defaults();
        o.nspec = nspec;
        o.wmin = 5760.0;
        o.wmax = 7620.0;
        o.dw = 0.8;
        o.nthreads = nthreads;
        for (int d = 0; d < ndevice; d++) {
            spx_backend b;
            must(spx_backend_open(&b, device[d], SPX_OP_EXTRACT, NULL, &e) == SPX_OK, &e);
            double least[SPX_EXTRACT_STEPS], best = 1e30, on_device = 1e30, moved = 0.0, work = 0.0;
            for (int step = 0; step < SPX_EXTRACT_STEPS; step++)
                least[step] = 1e30;
            for (int run = 0; run < RUNS; run++) {
                spx_frame frame = {0};
                spx_extract_counts counts;
                double begin = spx_seconds();
                must(b.extract(&b, &image, &psf, &o, &frame, &counts, &e) == SPX_OK, &e);
                double t = spx_seconds() - begin;
                best = t < best ? t : best;
                for (int step = 0; step < SPX_EXTRACT_STEPS; step++)
                    least[step] = counts.seconds[step] < least[step] ? counts.seconds[step] : least[step];
                on_device = counts.device_seconds < on_device ? counts.device_seconds : on_device;
                const double nbin = (double)(frame.nspec * frame.arm.nwave);
                moved = 12.0 * (double)(image.nx * image.ny) + 8.0 * nbin * (double)(5 + frame.arm.ndiag);
                work = nbin * operations(&psf, overlap_pixels(&psf, o.dw), 7.0, 12.0);
                spx_frame_free(&frame);
            }
            curve_point(b.device, (double)nspec, best);
            printf("%3zu fibres, %-8.32s %8.3f s; %.2f GB, %.1f GFLOP; peak memory %.0f MB\n", nspec, b.device, best,
                   1e-9 * moved, 1e-9 * work, 1e-6 * (double)spx_mem_peak());
            if (on_device > 0.0) { /* whose rates are not measured here */
                printf("   of it from the first transfer to the last: %.4f s\n", on_device);
            } else {
                printf("   floor here %.3f s by bytes, %.3f s by operations; seconds of all threads:", moved / copy,
                       work / gemm);
                for (int step = 0; step < SPX_EXTRACT_STEPS; step++)
                    printf(" %s %.3f", step_name[step], least[step]);
                printf("\n");
            }
            time_rejection(&b, &image, &psf, o, best);
            time_beyond(&b, &image, &psf, o, best);
            spx_backend_close(&b);
        }
        if (nspec == 500)
            time_program(&image, &psf, ndevice, device);
        spx_psf_free(&psf);
        spx_image_free(&image);
    }
    return 0;
}
