/* bench_stack [DEVICE...]: speed of shift-and-stack, in samples * traces * shifts a second, at the shapes of the
 * method's reference (30 traces, 10000 shifts, 6000 samples; 20 traces, 100 shifts, 10 to 10000 samples), against the
 * plain loop over the definition as the compiler makes it with -O3, and against the floor: each term needs one read of
 * a sample, so a core that reads one vector a cycle from its first cache cannot be faster than that.
 * Made by `make bench-stack`. Without arguments: the CPU, with 1 and 2 threads. Of other devices the time of their
 * kernels counts, without copies. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../must.h"
#include "backend.h"
#include "base/clock.h"
#include "base/mem.h"
#include "curve.h"
#include "num/stat.h"

static unsigned state = 12345;

static unsigned next(void)
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

/* Traces of n samples, shifts within [0, spread). */
static void make_case(size_t ntrace, size_t nshift, size_t n, unsigned spread, spx_traces *tr, spx_shifts *sh)
{
    spx_err e = {0};
    *tr = (spx_traces){.ntrace = ntrace, .nsample = ntrace * n, .precision = 4};
    tr->start = must_have(spx_alloc(ntrace + 1, sizeof *tr->start, &e));
    tr->offset = must_have(spx_alloc(ntrace, sizeof *tr->offset, &e));
    tr->data = must_have(spx_alloc(tr->nsample, sizeof(float), &e));
    *sh = (spx_shifts){.ntrace = ntrace, .nshift = nshift, .precision = 4};
    sh->shift = must_have(spx_alloc2(nshift, ntrace, sizeof *sh->shift, &e));
    sh->weight = must_have(spx_alloc2(nshift, ntrace, sizeof(float), &e));
    for (size_t j = 0; j <= ntrace; j++)
        tr->start[j] = j * n;
    for (size_t i = 0; i < tr->nsample; i++)
        ((float *)tr->data)[i] = (float)next() * 0x1p-23f - 1;
    for (size_t i = 0; i < nshift * ntrace; i++) {
        sh->shift[i] = (int32_t)(next() % spread);
        ((float *)sh->weight)[i] = (float)(next() + 1) * 0x1p-24f;
    }
}

/* The definition, as one would write it: sums in float, the inner loop over samples. out: zeros. */
static void plain(const spx_traces *tr, const spx_shifts *sh, int64_t t0, size_t length, float *out)
{
    const float *data = tr->data, *weight = sh->weight;
    for (size_t k = 0; k < sh->nshift; k++)
        for (size_t j = 0; j < tr->ntrace; j++) {
            int64_t first = tr->offset[j] + sh->shift[k * tr->ntrace + j] - t0;
            int64_t n = (int64_t)(tr->start[j + 1] - tr->start[j]);
            int64_t low = first > 0 ? first : 0, high = first + n < (int64_t)length ? first + n : (int64_t)length;
            const float *restrict a = data + tr->start[j], w = weight[k * tr->ntrace + j];
            float *restrict sum = out + k * length;
            for (int64_t t = low; t < high; t++)
                sum[t] += w * a[t - first];
        }
}

/* Median seconds of a few runs of the stage; of its kernels on the device alone, where there is one. */
static double seconds(spx_backend *b, const spx_traces *tr, const spx_shifts *sh, spx_stack_method method, int nthreads)
{
    enum { RUNS = 7 };
    double t[RUNS];
    for (int i = 0; i < RUNS; i++) {
        spx_err e = {0};
        spx_stack out = {0};
        spx_stack_options o = {.method = method, .nthreads = nthreads};
        double begin = spx_seconds();
        must(b->stack(b, tr, sh, &o, &out, &e) == SPX_OK, &e);
        t[i] = b->device_seconds > 0 ? b->device_seconds : spx_seconds() - begin;
        spx_stack_free(&out);
    }
    return spx_median(t, RUNS);
}

static void bench(size_t ntrace, size_t nshift, size_t n, int ndevice, char **device)
{
    static const char *const method[] = {"stack", "max", "argmax"};
    spx_traces tr;
    spx_shifts sh;
    spx_err e = {0};
    int64_t t0;
    size_t length;
    spx_stack_options o = {0};
    make_case(ntrace, nshift, n, 200, &tr, &sh);
    if (spx_stack_window(&tr, &sh, &o, &t0, &length, &e) != SPX_OK)
        exit(1);
    double terms = (double)ntrace * (double)nshift * (double)n, best = INFINITY;
    for (int i = 0; i < 3; i++) {
        double begin = spx_seconds();
        float *out = must_have(spx_alloc2(nshift, length, sizeof *out, &e));
        plain(&tr, &sh, t0, length, out);
        double t = spx_seconds() - begin;
        best = t < best ? t : best;
        spx_free(out);
    }
    printf("%zu traces, %zu shifts, %zu samples\n  %-28s %9.3f ms  %8.3g /s\n", ntrace, nshift, n, "plain loop, -O3",
           1e3 * best, terms / best);
    /* the second shape is the one that grows */
    if (ntrace == 20)
        curve_point("plain loop", (double)n, terms / best);
    for (int d = 0; d < ndevice; d++) {
        spx_backend b;
        must(spx_backend_open(&b, device[d], SPX_OP_STACK, NULL, &e) == SPX_OK, &e);
        int most = strcmp(device[d], "cpu") == 0 ? 2 : 1;
        for (int nthreads = 1; nthreads <= most; nthreads++)
            for (int m = 0; m < 3; m++) {
                char name[64];
                double t = seconds(&b, &tr, &sh, (spx_stack_method)m, nthreads);
                (void)snprintf(name, sizeof name, "%.12s, %d thread%s, %s", device[d], nthreads,
                               nthreads > 1 ? "s" : "", method[m]);
                printf("  %-28s %9.3f ms  %8.3g /s  %5.2f x plain\n", name, 1e3 * t, terms / t, best / t);
                if (ntrace == 20)
                    curve_point(name, (double)n, terms / t);
            }
        spx_backend_close(&b);
    }
    spx_traces_free(&tr);
    spx_shifts_free(&sh);
}

/* Floor: one core adds weighted samples that lie in its first cache, as fast as it can. */
static void floor_of_one_core(void)
{
    spx_traces tr;
    spx_shifts sh;
    spx_backend b;
    spx_err e = {0};
    make_case(8, 2000, 1024, 1, &tr, &sh);
    if (spx_backend_open(&b, "cpu", SPX_OP_STACK, NULL, &e) != SPX_OK)
        exit(1);
    double terms = 8.0 * 2000 * 1024;
    printf("floor: %.3g /s for a core whose traces lie in the first cache, unshifted\n",
           terms / seconds(&b, &tr, &sh, SPX_STACK_MAX, 1));
    spx_backend_close(&b);
    spx_traces_free(&tr);
    spx_shifts_free(&sh);
}

int main(int argc, char **argv)
{
    static char cpu[] = "cpu";
    char *only_cpu[] = {cpu};
    int ndevice = argc > 1 ? argc - 1 : 1;
    char **device = argc > 1 ? argv + 1 : only_cpu;
    curve_axes("samples of a trace (20 traces, 100 shifts)", "samples x traces x shifts a second");
    floor_of_one_core();
    bench(30, 10000, 6000, ndevice, device);
    for (size_t n = 10; n <= 10000; n *= 10)
        bench(20, 100, n, ndevice, device);
    return 0;
}
