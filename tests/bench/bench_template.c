/* bench_template [DEVICE...]: core-seconds of the templates of three arms as DESI has them, from a library of 924
 * spectra of 66000 samples that is in memory, beside the floor: the operations and bytes of each step over what this
 * core computes (matrix products of its BLAS) and reads in a second, measured at the start; and the seconds of training
 * a network on each device, on the CPU without. Made by `make bench-template`. For comparison: rvspecfit's
 * rvs_make_interpol needs 3.7 s an arm for this library, reading included, without components and cross-correlation
 * set. */
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../helpers/mock_library.h"
#include "../must.h"
#include "backend.h"
#include "base/clock.h"
#include "base/mem.h"
#include "common/setup_options.h"
#include "num/blas.h"
#include "template/template.h"

enum { NARM = 3, BATCH = 32, ORDER = 768, SKETCH = 256 /* of pca.c */ };
static const char *const SETUP[NARM] = {"b:3500:5900:0.4:R=x/1.55", "r:5660:7720:0.4:R=x/1.55",
                                        "z:7420:9924:0.4:R=x/1.55"};
static const double REFERENCE = 3.7; /* s an arm */

/* Operations a second of matrix products. */
static double rate(int single)
{
    spx_err e = {0};
    size_t n = (size_t)ORDER * ORDER;
    double *a = spx_alloc(3 * n, sizeof *a, &e), best = 0;
    must(a != NULL, &e);
    float *f = (float *)a;
    for (int i = 0; i < 5; i++) {
        double start = spx_process_seconds();
        if (single)
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, ORDER, ORDER, ORDER, 1, f, ORDER, f + n, ORDER, 0,
                        f + 2 * n, ORDER);
        else
            cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, ORDER, ORDER, ORDER, 1, a, ORDER, a + n, ORDER, 0,
                        a + 2 * n, ORDER);
        best = fmax(best, 2.0 * ORDER * (double)n / (spx_process_seconds() - start));
    }
    spx_free(a);
    return best;
}

/* Bytes a second from memory. */
static double bandwidth(const float *flux, size_t n)
{
    double best = 0;
    for (int i = 0; i < 3; i++) {
        float sum[16] = {0}, all = 0;
        double start = spx_process_seconds();
        for (size_t k = 0; k + 16 <= n; k += 16)
            for (size_t l = 0; l < 16; l++)
                sum[l] += flux[k + l];
        for (size_t l = 0; l < 16; l++)
            all += sum[l];
        if (all > 0)
            best = fmax(best, (double)(n * sizeof *flux) / (spx_process_seconds() - start));
    }
    return best;
}

static void line(const char *what, double seconds, double floor)
{
    printf("%-28s %7.3f s   floor %6.3f s   %4.1f x\n", what, seconds, floor, seconds / floor);
}

/* A network of three hidden layers for one setup, trained on a device: seconds by the clock. */
static void train(const char *device, spx_setup *s, size_t width, size_t epochs, double sgemm)
{
    spx_err e = {0};
    spx_backend b;
    double spent = 0;
    spx_nn_training how = {.nhidden = 3, .hidden = {width, width, width}, .epochs = epochs, .seed = 1};
    must(spx_backend_open(&b, device, SPX_OP_TEMPLATE, NULL, &e) == SPX_OK, &e);
    how.open = b.nn_open;
    how.device = &b;
    double weights = (double)(4 * width + 2 * width * width + width * s->pca.ncomp);
    for (int again = 0; again < 1 + (b.library != NULL); again++) { /* a device has to be woken first */
        spx_nn_free(&s->nn);
        spent = spx_seconds();
        must(spx_template_train(s, &how, &e) == SPX_OK, &e);
        spent = spx_seconds() - spent;
    }
    double floor = b.library == NULL ? 6 * weights * 0.9 * MOCK_NTEMP * (double)epochs / sgemm : 0;
    printf("a network of 3 x %zu neurons, %zu epochs, on %s: %.3f s", width, epochs, b.device, spent);
    if (floor > 0)
        printf(", floor %.3f s, %.1f x", floor, spent / floor);
    printf("; off by %.2g rms, %.2g at most, in ln(flux)\n", s->nn.rms, s->nn.max);
    spx_backend_close(&b);
}

int main(int argc, char **argv)
{
    static const double vsini[] = {0, 100};
    spx_err e = {0};
    must(spx_blas_open(&e) == SPX_OK, &e);
    mock_library *m = mock_library_make();
    double *par = spx_alloc2(MOCK_NTEMP, MOCK_NPAR, sizeof *par, &e);
    float *flux = spx_alloc2(MOCK_NTEMP, MOCK_NWAVE, sizeof *flux, &e);
    size_t *pick = spx_alloc(MOCK_NTEMP, sizeof *pick, &e), npick, first, n;
    must(m && par && flux && pick, &e);
    for (int i = 0; i < MOCK_NTEMP; i++) {
        mock_library_params(i, par + i * MOCK_NPAR);
        mock_library_flux(m, par + i * MOCK_NPAR, flux + (size_t)i * MOCK_NWAVE);
    }
    double dgemm = rate(0), sgemm = rate(1), bytes = bandwidth(flux, (size_t)MOCK_NTEMP * MOCK_NWAVE);
    printf("one core: %.0f and %.0f Gflop/s in double and single precision (BLAS: %s), %.1f GB/s\n", dgemm * 1e-9,
           sgemm * 1e-9, openblas_get_corename(), bytes * 1e-9);
    spx_template_request request[NARM];
    for (size_t a = 0; a < NARM; a++)
        must(spx_template_parse_setup(SETUP[a], &request[a], &e) == SPX_OK, &e);
    spx_template_library lib = {.nwave = MOCK_NWAVE,
                                .wavelength = m->wave,
                                .ntemp = MOCK_NTEMP,
                                .npar = MOCK_NPAR,
                                .params = par,
                                .parname = {"teff", "logg", "feh", "alpha"}};
    spx_template_config cfg = {.nsetup = NARM,
                               .setup = request,
                               .norm = SPX_NORM_LINEAR,
                               .library_resolution = "R=100000",
                               .parlog = {1},
                               .nthreads = 1};
    spx_template_job *job;
    spx_templates t;
    double start = spx_process_seconds(), all = 0, alone, spent;
    must(spx_template_begin(&lib, &cfg, &job, &e) == SPX_OK, &e);
    spx_template_range(job, &first, &n);
    for (size_t i = 0; i < MOCK_NTEMP; i += BATCH) {
        size_t rows = MOCK_NTEMP - i < BATCH ? MOCK_NTEMP - i : BATCH;
        must(spx_template_add(job, i, rows, flux + i * MOCK_NWAVE + first, MOCK_NWAVE, &e) == SPX_OK, &e);
    }
    must(spx_template_finish(job, &t, NULL, &e) == SPX_OK, &e);
    spx_template_free(job);
    all += alone = spent = spx_process_seconds() - start;
    double pixels = 0, samples = 10 * 1.55 / 2.3548 / 0.1 + 2; /* of a pixel's weights */
    for (size_t a = 0; a < NARM; a++)
        pixels += (double)t.setup[a].nwave * MOCK_NTEMP;
    line("line-spread function, norm", spent,
         2 * pixels * samples / dgemm + (double)MOCK_NTEMP * MOCK_NWAVE * sizeof *flux / bytes);
    start = spx_process_seconds();
    double flops = 0;
    for (size_t a = 0; a < NARM; a++) {
        spx_setup *s = &t.setup[a];
        must(spx_template_pca(s, 1e-4, 3e-3, &e) == SPX_OK, &e);
        flops += 2.0 * (double)s->ntemp * (double)s->nwave * (3 * SKETCH + 2 * (double)s->pca.ncomp);
    }
    all += spent = spx_process_seconds() - start;
    line("principal components", spent, flops / sgemm);
    start = spx_process_seconds();
    must(spx_template_ccf_rows(MOCK_NTEMP, MOCK_NPAR, par, 10, pick, &npick, &e) == SPX_OK, &e);
    flops = 0;
    for (size_t a = 0; a < NARM; a++) {
        must(spx_template_ccf(&t.setup[a], npick, pick, 2, vsini, 1, NULL, &e) == SPX_OK, &e);
        double length = (double)t.setup[a].ccf.nwave;
        flops += 2 * (double)t.setup[a].ccf.ntemp * 2.5 * length * log2(length);
    }
    all += spent = spx_process_seconds() - start;
    line("cross-correlation set", spent, flops / dgemm);
    printf("%.3f s an arm, components:", all / NARM);
    for (size_t a = 0; a < NARM; a++)
        printf(" %zu (%.1e rms, %.1e at most)", t.setup[a].pca.ncomp, t.setup[a].pca.rms, t.setup[a].pca.max);
    printf("; %.1f times faster than %.1f s, %.1f times without components and set\n", REFERENCE / (all / NARM),
           REFERENCE, REFERENCE / (alone / NARM));
    for (int i = argc > 1 ? 1 : 0; i < argc; i++) {
        const char *device = argc > 1 ? argv[i] : "cpu";
        train(device, &t.setup[0], 128, 400, sgemm);
        train(device, &t.setup[0], 512, 40, sgemm);
    }
    spx_templates_free(&t);
    spx_free(par);
    spx_free(flux);
    spx_free(pick);
    free(m);
    return 0;
}
