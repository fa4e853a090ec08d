/* bench_coadd [DEVICE...]: time of coadds of 500 targets with 4 exposures of 3 arms, 2326 bins and 11 diagonals each,
 * by method, against the floor: optimal coadds need `poles` banded factors, inverses and solutions a target, some 280
 * multiply-adds a bin and pole, which a core with vectors of 4 doubles cannot do faster than two of them a cycle.
 * Made by `make bench-coadd`. Without arguments: the CPU, with 1 and 2 threads. Of other devices the time of their
 * kernels counts, without copies; that of whole calls stands behind. Goals: 4 s with 2 threads, 50 ms on an H200. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../must.h"
#include "backend.h"
#include "base/clock.h"
#include "base/mem.h"
#include "curve.h"

enum { TARGETS = 500, EXPOSURES = 4, ARMS = 3, BINS = 2326, DIAGONALS = 11 };

static unsigned state = 12345;

static double next(void)
{
    state = state * 1664525u + 1013904223u;
    return (double)(state >> 8) * 0x1p-24;
}

/* Exposures of stars of a signal-to-noise ratio of 20, whose widths differ by 5 %. */
static void make_case(size_t *first, double *flux, double *ivar, double *resolution)
{
    for (size_t t = 0; t <= TARGETS; t++)
        first[t] = t * EXPOSURES;
    for (size_t i = 0; i < (size_t)TARGETS * EXPOSURES; i++) {
        const double width = 0.85 * (1 + 0.05 * (double)(i % EXPOSURES));
        double row[DIAGONALS], sum = 0;
        for (int b = 0; b < DIAGONALS; b++) {
            const double at = (b - DIAGONALS / 2) / width;
            sum += row[b] = exp(-0.5 * at * at);
        }
        for (size_t k = 0; k < BINS; k++) {
            double noise = -6;
            for (int n = 0; n < 12; n++)
                noise += next();
            flux[i * BINS + k] = 100 * (1 - 0.5 * exp(-0.5 * pow(fmod((double)k, 30) - 15, 2))) + 5 * noise;
            ivar[i * BINS + k] = 0.04;
            for (int b = 0; b < DIAGONALS; b++)
                resolution[(i * DIAGONALS + (size_t)b) * BINS + k] = row[b] / sum;
        }
    }
}

/* Seconds of all arms; *whole: with copies. */
static double seconds(spx_backend *b, const spx_coadd_input *in, spx_coadd_method method, int checks, int nthreads,
                      double *whole)
{
    double all = 0;
    *whole = 0;
    for (int arm = 0; arm < ARMS; arm++) {
        spx_err e = {0};
        spx_coadd out = {0};
        const spx_coadd_options o = {.method = method,
                                     .reject = checks ? 5 : 0,
                                     .scale = checks,
                                     .ndiag_out = spx_coadd_diagonals(method, DIAGONALS),
                                     .nthreads = nthreads};
        const double begin = spx_seconds();
        must(b->coadd(b, in, &o, &out, &e) == SPX_OK, &e);
        const double call = spx_seconds() - begin;
        *whole += call;
        all += b->device_seconds > 0 ? b->device_seconds : call;
        spx_coadd_free(&out);
    }
    return all;
}

int main(int argc, char **argv)
{
    static char cpu[] = "cpu";
    char *only_cpu[] = {cpu};
    const int ndevice = argc > 1 ? argc - 1 : 1;
    char **device = argc > 1 ? argv + 1 : only_cpu;
    spx_err e = {0};
    const size_t nexp = (size_t)TARGETS * EXPOSURES;
    spx_mem_cache(1); /* as in a program */
    size_t *first = must_have(spx_alloc(TARGETS + 1, sizeof *first, &e));
    double *flux = must_have(spx_alloc2(nexp, BINS, sizeof *flux, &e));
    double *ivar = must_have(spx_alloc2(nexp, BINS, sizeof *ivar, &e));
    double *resolution = must_have(spx_alloc2(nexp, (size_t)DIAGONALS * BINS, sizeof *resolution, &e));
    make_case(first, flux, ivar, resolution);
    const spx_coadd_input in = {TARGETS, BINS, DIAGONALS, first, flux, ivar, NULL, resolution};
    const double terms = 17. * 280 * (double)TARGETS * ARMS * BINS;
    printf("%d targets, %d exposures, %d arms of %d bins; floor of optimal: %.2g s on a core of 3 GHz\n", TARGETS,
           EXPOSURES, ARMS, BINS, terms / 8 / 3e9);
    for (int d = 0; d < ndevice; d++) {
        spx_backend b;
        must(spx_backend_open(&b, device[d], SPX_OP_COADD, NULL, &e) == SPX_OK, &e);
        const int most = strcmp(device[d], "cpu") == 0 ? 2 : 1;
        for (int nthreads = 1; nthreads <= most; nthreads++)
            for (int k = 0; k < 3; k++) {
                static const char *const name[] = {"simple, as it is", "simple", "optimal"};
                char text[64];
                double whole;
                const double t =
                    seconds(&b, &in, k < 2 ? SPX_COADD_SIMPLE : SPX_COADD_OPTIMAL, k > 0, nthreads, &whole);
                (void)snprintf(text, sizeof text, "%.12s, %d thread%s, %s", device[d], nthreads,
                               nthreads > 1 ? "s" : "", name[k]);
                printf("  %-40s %9.1f ms  %8.3g targets and arms/s, whole calls %.1f ms\n", text, 1e3 * t,
                       TARGETS * ARMS / t, 1e3 * whole);
                curve_point(text, TARGETS, TARGETS * ARMS / t);
            }
        spx_backend_close(&b);
    }
    spx_free(first);
    spx_free(flux);
    spx_free(ivar);
    spx_free(resolution);
    spx_mem_cache(0);
    return 0;
}
