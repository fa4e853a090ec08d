/* bench_rvfit: core-seconds a star of the velocity fit and of its steps on one core, for three arms as DESI has
 * them (7958 pixels), a library of 924 spectra and 6 quantities, beside the floor: the bytes and operations of a step
 * over what this core reads from its caches and computes in a second, measured at the start. Made by `make
 * bench-rvfit`; stars are drawn from the library itself. On other devices, and on several threads of the CPU
 * (DEVICES="cpu cuda cpu:16"): whole batches of as many stars as SPX_BENCH_STARS lists ("106 5000 50000"), on a GPU
 * beside what an H200 needs at least. */
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../helpers/mock_library.h"
#include "../must.h"
#include "backend.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/order.h"
#include "common/setup_options.h"
#include "curve.h"
#include "num/blas.h"
#include "num/wave.h"
#include "rvfit/search/group.h"
#include "template/template.h"

enum { NARM = 3, NDIAG = 11 };
static const double WMIN[NARM] = {3600, 5760, 7520}, WMAX[NARM] = {5800, 7620, 9824};
static const char *const SETUP[NARM] = {"b:3500:5900:0.4:R=x/1.55", "r:5660:7720:0.4:R=x/1.55",
                                        "z:7420:9924:0.4:R=x/1.55"};

static double uniform(unsigned long long *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (double)(*state >> 11) * 0x1p-53;
}

static double gauss(unsigned long long *state)
{
    return sqrt(-2 * log(1 - uniform(state))) * cos(6.283185307179586 * uniform(state));
}

static void make_templates(const mock_library *m, int threads, spx_templates *t)
{
    static const double vsini[] = {0, 100};
    spx_err e = {0};
    spx_template_request request[NARM];
    double *par = spx_alloc2(MOCK_NTEMP, MOCK_NPAR, sizeof *par, &e);
    float *flux = spx_alloc2(MOCK_NTEMP, MOCK_NWAVE, sizeof *flux, &e);
    must(par && flux, &e);
#pragma omp parallel for schedule(dynamic, 4)
    for (int i = 0; i < MOCK_NTEMP; i++) {
        mock_library_params(i, par + i * MOCK_NPAR);
        mock_library_flux(m, par + i * MOCK_NPAR, flux + (size_t)i * MOCK_NWAVE);
    }
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
                               .pca_error = 1e-4,
                               .ccf = 1,
                               .ccf_every = 10,
                               .nccf_vsini = 2,
                               .ccf_vsini = vsini,
                               .nthreads = threads};
    spx_template_job *job;
    size_t first, n;
    double start = spx_process_seconds(), spent = 0;
    must(spx_template_begin(&lib, &cfg, &job, &e) == SPX_OK, &e);
    spx_template_range(job, &first, &n);
    spent += spx_process_seconds() - start;
    for (int i = 0; i < MOCK_NTEMP; i++) {
        start = spx_process_seconds();
        must(spx_template_add(job, (size_t)i, 1, flux + (size_t)i * MOCK_NWAVE + first, MOCK_NWAVE, &e) == SPX_OK, &e);
        spent += spx_process_seconds() - start;
    }
    start = spx_process_seconds();
    must(spx_template_finish(job, t, NULL, &e) == SPX_OK, &e);
    spent += spx_process_seconds() - start;
    printf("templates: %.2f s for %d spectra, three arms; components:", spent, (int)MOCK_NTEMP);
    for (size_t a = 0; a < NARM; a++)
        printf(" %zu", t->setup[a].pca.ncomp);
    puts("");
    spx_template_free(job);
    spx_free(par);
    spx_free(flux);
}

/* Noisy stars of the library at random nodes and velocities: linear in wavelength is enough for a measurement of time.
 */
static void make_stars(const spx_templates *t, size_t nstar, spx_spectra *s)
{
    spx_err e = {0};
    *s = (spx_spectra){.nspec = nstar, .narm = NARM};
    for (size_t a = 0; a < NARM; a++) {
        spx_arm *m = &s->arm[a];
        const spx_setup *set = &t->setup[a];
        size_t n = (size_t)((WMAX[a] - WMIN[a]) / 0.8) + 1;
        (void)snprintf(m->name, sizeof m->name, "%.15s", set->setup);
        m->nwave = n;
        m->wavelength = spx_alloc(n, sizeof *m->wavelength, &e);
        m->flux = spx_alloc2(nstar, n, sizeof *m->flux, &e);
        m->ivar = spx_alloc2(nstar, n, sizeof *m->ivar, &e);
        must(m->wavelength && m->flux && m->ivar, &e);
        for (size_t k = 0; k < n; k++)
            m->wavelength[k] = WMIN[a] + 0.8 * (double)k;
    }
#pragma omp parallel for
    for (size_t i = 0; i < nstar; i++) {
        unsigned long long state = 88172645463325252ull ^ (i + 1) * 0x9e3779b97f4a7c15ull;
        (void)uniform(&state);
        double v = -300 + 600 * uniform(&state), sn = 5 + 75 * (double)i / (double)nstar;
        size_t row = (size_t)(uniform(&state) * (double)t->setup[0].ntemp);
        for (size_t a = 0; a < NARM; a++) {
            const spx_arm *m = &s->arm[a];
            const spx_setup *set = &t->setup[a];
            const float *ln = set->lnflux + row * set->nwave;
            for (size_t k = 0; k < m->nwave; k++) {
                double at = (log(m->wavelength[k]) + spx_rv_lnshift(v) - set->lnwave0) / set->dlnwave;
                size_t j = (size_t)at;
                double u = at - (double)j, f = exp((1 - u) * (double)ln[j] + u * (double)ln[j + 1]);
                m->flux[i * m->nwave + k] = f + gauss(&state) / sn;
                m->ivar[i * m->nwave + k] = sn * sn;
            }
        }
    }
}

/* What this core does at its best: single-precision operations on registers, and bytes from memory of the components'
 * size. */
static double peak_flops(const spx_rv_kernels *k)
{
    enum { L = 5, NC = 512, REPEAT = 20000 };
    static float comp[NC * SPX_RV_TILE], cf[NC * L];
    static double mean[SPX_RV_TILE], cd[NC * L], plane[SPX_RV_TILE];
    static float slope[(L - 1) * SPX_RV_TILE];
    double *out = plane, start = spx_process_seconds();
    for (int i = 0; i < REPEAT; i++)
        k->components(L, 1, 0, NC, comp, mean, 1, (const double *[]){cd}, (const float *[]){cf}, &out,
                      &(float *){slope});
    return 2.0 * L * NC * SPX_RV_TILE * REPEAT / (spx_process_seconds() - start);
}

static double bandwidth(size_t bytes)
{
    spx_err e = {0};
    size_t n = bytes / sizeof(double) / 8 * 8;
    double *x = spx_alloc(n, sizeof *x, &e), sum[8] = {0};
    must(x != NULL, &e);
    double start = spx_process_seconds();
    int repeat = 0;
    while (spx_process_seconds() - start < 0.2) {
        for (size_t i = 0; i < n; i += 8)
            for (size_t l = 0; l < 8; l++)
                sum[l] += x[i + l];
        repeat++;
    }
    double spent = spx_process_seconds() - start;
    printf("%s", sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7] > 1 ? " " : "");
    spx_free(x);
    return (double)n * sizeof *x * repeat / spent;
}

static void line(const char *what, double ms, double times, double mflop, double mbyte, double flops, double bytes)
{
    double floor = fmax(mflop * 1e9 / flops, mbyte * 1e9 / bytes);
    printf("  %-34s %8.3f ms", what, ms);
    if (mflop > 0 || mbyte > 0)
        printf("   floor %6.3f ms (%.1f Mflop, %.1f MB)", floor, mflop, mbyte);
    if (times > 0)
        printf("   x %.1f = %.2f ms a star", times, ms * times);
    puts("");
}

static void free_stars(spx_spectra *s)
{
    for (size_t a = 0; a < NARM; a++) {
        spx_free(s->arm[a].resolution);
        spx_free(s->arm[a].wavelength);
        spx_free(s->arm[a].flux);
        spx_free(s->arm[a].ivar);
    }
}

/* Rows are exposures of stars, so many of each: with the light of the first of them, and noise of their own. */
static void repeat_stars(spx_spectra *s, size_t exposures)
{
#pragma omp parallel for
    for (size_t i = 0; i < s->nspec; i++) {
        unsigned long long state = 88172645463325252ull ^ (i + 1) * 0x9e3779b97f4a7c15ull;
        const size_t first = i - i % exposures;
        for (size_t a = 0; a < NARM && i != first; a++) {
            const spx_arm *m = &s->arm[a];
            for (size_t k = 0; k < m->nwave; k++) {
                const size_t from = first * m->nwave + k, to = i * m->nwave + k;
                m->ivar[to] = m->ivar[from];
                m->flux[to] = m->flux[from] + gauss(&state) / sqrt(m->ivar[from]);
            }
        }
    }
}

static spx_rvfit_input input_of(const spx_spectra *s, const spx_templates *t)
{
    spx_rvfit_input in = {.spectra = s, .nrow = s->nspec};
    for (size_t a = 0; a < NARM; a++)
        in.setup[a] = &t->setup[a];
    return in;
}

/* What a batch needs at least of a device with `flops` operations a second (single precision; half of that in double)
 * and `bytes` a second of memory: the components, three derivatives' worth of samples and pixels written and read once
 * for each evaluation, and the sums over pixels; those of the velocity profiles and of the cross-correlation. */
static double batch_floor(const spx_rv_ctx *c, const spx_rvfit *r, double flops, double bytes)
{
    double neval = 0, comp = 0, samples = 0, pixels = 0, ccf = 0, sums = 0, moments = 0, nf = (double)c->nfree;
    for (size_t i = 0; i < r->nstar; i++)
        neval += (double)r->star[i].niter;
    for (size_t a = 0; a < c->narm; a++) {
        const spx_rv_arm *arm = &c->arm[a];
        comp += 2 * (1 + (double)c->grid.ng) * (double)(arm->nt * arm->setup->pca.ncomp);
        samples += (double)arm->nt;
        pixels += (double)arm->n;
        /* np: continuum functions that differ from 0 at a pixel; operations in double precision */
        const double np = (double)arm->basis.band + 1, n = (double)arm->n;
        sums += n * (np * (np + 1) + np * np + 2 * nf * (np + 1 + nf));
        moments += n * np * np;
        ccf += 2.0 *
               (double)((arm->nshort + 2) * arm->nccf * c->ccf.nlag + arm->setup->ccf.ntemp * arm->nccf * c->ccf.nlag);
    }
    double operations = neval * (comp + 2 * sums) + (double)r->nstar * (ccf + 2 * 40 * moments);
    double traffic = neval * 2 * (samples * (8 + 4 * (double)c->grid.ng) + pixels * (8 + 4 * nf));
    return fmax(operations / flops, traffic / bytes);
}

/* A number that changes when a bit of the stars' results does (FNV-1a). */
static uint64_t fingerprint(const spx_rvfit *r)
{
    const unsigned char *p = (const unsigned char *)r->star;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < r->nstar * sizeof *r->star; i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h;
}

/* Resolution matrices of Gaussians of 0.9 pixels, wider by 0.2 % from star to star, as if extraction had made them. */
static void add_matrices(spx_spectra *s)
{
    spx_err e = {0};
    for (size_t a = 0; a < NARM; a++) {
        spx_arm *m = &s->arm[a];
        m->ndiag = NDIAG;
        m->resolution = spx_alloc2(s->nspec, NDIAG * m->nwave, sizeof *m->resolution, &e);
        must(m->resolution != NULL, &e);
    }
#pragma omp parallel for
    for (size_t i = 0; i < s->nspec; i++) {
        double w[NDIAG], sum = 0;
        for (int k = 0; k < NDIAG; k++)
            sum += w[k] = exp(-0.5 * pow((k - NDIAG / 2) / (0.9 + 0.002 * (double)(i % 50)), 2));
        for (size_t a = 0; a < NARM; a++)
            for (size_t k = 0; k < NDIAG * s->arm[a].nwave; k++)
                s->arm[a].resolution[i * NDIAG * s->arm[a].nwave + k] = w[k / s->arm[a].nwave] / sum;
    }
}

/* What is asked for beside the fit: words "reject", "jitter", "matrices", "pairs", "ccf", "exposures" (four of each
 * star, fitted jointly), "epochs" (their velocities, too). */
static size_t exposures_of_star(const char *how)
{
    enum { EXPOSURES = 4 };
    return strstr(how, "epochs") || strstr(how, "exposures") ? EXPOSURES : 1;
}

static void choose_fit(const char *how, spx_spectra *s, spx_rvfit_options *o)
{
    o->components = strstr(how, "pairs") != NULL ? 2 : 1;
    o->keep_ccf = strstr(how, "ccf") != NULL;
    o->epochs = strstr(how, "epochs") != NULL;
    o->reject = strstr(how, "reject") != NULL ? 2 : 0;
    o->jitter = strstr(how, "jitter") != NULL;
    o->resolution = strstr(how, "matrices") != NULL;
    if (o->resolution)
        add_matrices(s);
}

/* Stars a second of a device, or of so many threads of the CPU, for batches in memory of as many stars as
 * SPX_BENCH_STARS lists: a plan and the first batch with it, then the median of as many batches as SPX_BENCH_CALLS
 * says, one after another with that plan, as rvs-fit has them; how: see exposures_of_star(). Core-seconds are those
 * of the host, waiting for the device included. */
static void on_device(const spx_templates *t, const char *device, int threads, const char *how)
{
    enum { MOST = 100 };
    spx_backend b;
    spx_err e = {0};
    double begin = spx_seconds();
    must(spx_backend_open(&b, device, SPX_OP_RVFIT, NULL, &e) == SPX_OK, &e);
    printf("%s, %d threads of the host; opened in %.3f s\n", b.device, threads, spx_seconds() - begin);
    const char *list = getenv("SPX_BENCH_STARS"), *times = getenv("SPX_BENCH_CALLS");
    size_t calls = times ? strtoul(times, NULL, 10) : 5;
    calls = calls < 1 ? 1 : (calls > MOST ? MOST : calls);
    char *end;
    for (list = list ? list : "106 5000 50000"; *list; list = end) {
        size_t batch = strtoul(list, &end, 10);
        if (end == list)
            break;
        spx_spectra s;
        spx_rvfit r;
        spx_rvfit_options o;
        spx_rvfit_plan *plan = NULL;
        spx_rv_ctx c;
        double spent[MOST], first = 0, open, core = 0;
        const size_t exposures = exposures_of_star(how);
        size_t *begin_of = spx_alloc(batch + 1, sizeof *begin_of, &e);
        must(begin_of != NULL, &e);
        for (size_t k = 0; k <= batch; k++)
            begin_of[k] = k * exposures;
        make_stars(t, batch * exposures, &s);
        repeat_stars(&s, exposures);
        spx_rvfit_input in = input_of(&s, t);
        in.nstar = batch;
        in.first = exposures > 1 ? begin_of : NULL;
        spx_rvfit_options_init(&o);
        o.threads = threads;
        choose_fit(how, &s, &o);
        begin = spx_seconds();
        must(b.rvfit_open(&b, &in, &o, &plan, &e) == SPX_OK, &e);
        open = spx_seconds() - begin;
        in.plan = plan;
        for (size_t k = 0; k <= calls; k++) {
            double used = spx_process_seconds();
            begin = spx_seconds();
            must(b.rvfit(&b, &in, &o, NULL, &r, &e) == SPX_OK, &e);
            *(k == 0 ? &first : &spent[k - 1]) = spx_seconds() - begin;
            core = spx_process_seconds() - used;
            if (k < calls)
                spx_rvfit_free(&r);
        }
        b.rvfit_close(&b, plan);
        qsort(spent, calls, sizeof *spent, spx_by_f64);
        double rate = (double)batch / spent[calls / 2];
        must(spx_rv_ctx_init(&c, &in, &o, &e) == SPX_OK, &e);
        printf("%zu stars: plan %.3f s, first batch %.3f s; then %.3f s (%.3f to %.3f), %.0f stars a second, %.2f ms "
               "of the host's cores a star; ",
               batch, open, first, spent[calls / 2], spent[0], spent[calls - 1], rate, 1e3 * core / (double)batch);
        /* an H200: 60 Tflop/s and 4.3 TB/s, as measured with large products and copies */
        if (strcmp(device, "cpu") != 0)
            printf("floor on an H200 %.4f s; ", batch_floor(&c, &r, 6e13, 4.3e12));
        printf("result %016" PRIx64 "\n", fingerprint(&r));
        curve_point(b.device, (double)batch, rate);
        spx_rv_ctx_free(&c);
        spx_rvfit_free(&r);
        free_stars(&s);
        spx_free(begin_of);
    }
    spx_backend_close(&b);
}

/* The same for each of the fits that $SPX_BENCH_FIT lists, with commas between. */
static void all_fits_on_device(const spx_templates *t, const char *device, int threads)
{
    const char *list = getenv("SPX_BENCH_FIT");
    for (const char *at = list ? list : "";; at++) {
        char how[64];
        const size_t n = strcspn(at, ",");
        (void)snprintf(how, sizeof how, "%.*s", (int)n, at);
        if (list)
            printf("fit: %s\n", how);
        on_device(t, device, threads, how);
        at += n;
        if (*at == 0)
            break;
    }
}

/* Steps of the fit on one core. */
static void on_cpu(const spx_templates *t)
{
    const size_t nstar = 96;
    spx_err e = {0};
    spx_spectra s;
    make_stars(t, nstar, &s);
    spx_rvfit_input in = input_of(&s, t);
    spx_rvfit_options o;
    spx_rvfit_options_init(&o);

    spx_rv_ctx c;
    spx_rvfit_plan *plan = NULL;
    double begin = spx_process_seconds();
    must(spx_rvfit_open_cpu(&in, &o, &plan, &e) == SPX_OK, &e);
    double setup = spx_process_seconds() - begin;
    must(spx_rv_ctx_batch(&c, plan, &in, &o, &e) == SPX_OK, &e);
    size_t comp_bytes = 0, nt = 0, npix = 0;
    double comp_flop = 0, ccf_flop = 0, coarse_flop = 0;
    for (size_t a = 0; a < NARM; a++) {
        const spx_rv_arm *arm = &c.arm[a], *few = &c.coarse->arm[a];
        comp_bytes += arm->ntile * SPX_RV_TILE * arm->setup->pca.ncomp * sizeof(float);
        comp_flop += 2.0 * 5 * (double)(arm->nt * arm->setup->pca.ncomp);
        coarse_flop += 2.0 * 5 * (double)(few->nt * few->setup->pca.ncomp);
        ccf_flop += (double)arm->nccf * ((16.0 + 4.0 * SPX_RV_TAPS) * (double)(arm->few.per * arm->few.nblock) +
                                         2.5 * (double)arm->few.length * log2((double)arm->few.length)) +
                    2.0 * (double)(arm->setup->ccf.ntemp * arm->nccf * c.ccf.nlag);
        nt += arm->nt;
        npix += arm->n;
    }
    double flops = peak_flops(c.kernels), bytes = bandwidth(comp_bytes);
    printf("one core: %.1f Gflop/s (single precision, components in cache), %.1f GB/s (%.1f MB in a row)\n",
           flops * 1e-9, bytes * 1e-9, (double)comp_bytes * 1e-6);
    printf("%zu stars, %zu pixels and %zu template samples each; set-up of batches %.1f ms\n", nstar, npix, nt,
           1e3 * setup);

    /* Steps, on one full group of stars. */
    enum { REPEAT = 20 };
    spx_rv_engine engine = spx_rv_engine_cpu(&c);
    spx_rv_spectra *who[SPX_RV_BATCH];
    spx_rv_star *star[SPX_RV_BATCH];
    spx_rv_value value[SPX_RV_BATCH];
    double x[SPX_RV_BATCH][SPX_MAX_FIT];
    spx_rv_group *group = spx_rv_group_new(&c, &engine, SPX_RV_BATCH, &e);
    must(group != NULL, &e);
    for (size_t k = 0; k < SPX_RV_BATCH; k++) {
        star[k] = &group->star[k];
        who[k] = &star[k]->spectra;
    }
    size_t step = nstar / SPX_RV_BATCH;
    begin = spx_process_seconds();
    for (size_t k = 0; k < SPX_RV_BATCH; k++)
        must(spx_rv_load(who[k], k * step), &e);
    double load = (spx_process_seconds() - begin) / SPX_RV_BATCH;
    begin = spx_process_seconds();
    must(spx_rv_group_starts(group, SPX_RV_BATCH, star, &e) == SPX_OK, &e);
    double starts = (spx_process_seconds() - begin) / SPX_RV_BATCH;
    for (size_t k = 0; k < SPX_RV_BATCH; k++)
        memcpy(x[k], star[k]->start[0].x, sizeof x[k]);
    begin = spx_process_seconds();
    for (int i = 0; i < REPEAT; i++)
        spx_rv_eval_batch(SPX_RV_BATCH, who, (const double(*)[SPX_MAX_FIT])x, NULL, value);
    double eval = (spx_process_seconds() - begin) / SPX_RV_BATCH / REPEAT;
    begin = spx_process_seconds();
    for (int i = 0; i < REPEAT; i++)
        spx_rv_eval(who[0], x[0], NULL, 1, &value[0]);
    double alone = (spx_process_seconds() - begin) / REPEAT;
    spx_rv_spectra *blurred[SPX_RV_BATCH];
    for (size_t k = 0; k < SPX_RV_BATCH; k++) {
        blurred[k] = &star[k]->coarse;
        must(spx_rv_coarsen(blurred[k]), &e);
    }
    begin = spx_process_seconds();
    for (int i = 0; i < REPEAT; i++)
        spx_rv_eval_batch(SPX_RV_BATCH, blurred, (const double(*)[SPX_MAX_FIT])x, NULL, value);
    double coarse = (spx_process_seconds() - begin) / SPX_RV_BATCH / REPEAT;
    spx_rv_template(who[0], x[0], NULL, 0);
    begin = spx_process_seconds();
    for (int i = 0; i < REPEAT; i++)
        spx_rv_project(who[0], x[0][0] + i, &value[0]);
    double project = (spx_process_seconds() - begin) / REPEAT;
    for (size_t k = 0; k < SPX_RV_BATCH; k++)
        who[k]->neval = blurred[k]->neval = 0;
    begin = spx_process_seconds();
    must(spx_rv_group_minimise(group, SPX_RV_BATCH, star, &e) == SPX_OK, &e);
    double minimise = (spx_process_seconds() - begin) / SPX_RV_BATCH, neval = 0, ncoarse = 0;
    for (size_t k = 0; k < SPX_RV_BATCH; k++) {
        neval += (double)who[k]->neval / SPX_RV_BATCH;
        ncoarse += (double)blurred[k]->neval / SPX_RV_BATCH;
    }

    /* The whole fit, with a plan that is there: batches share it. */
    spx_rvfit r;
    in.plan = plan;
    begin = spx_process_seconds();
    must(spx_rvfit_cpu(&in, &o, NULL, &r, &e) == SPX_OK, &e);
    double whole = (spx_process_seconds() - begin) / (double)nstar;

    puts("steps, CPU time a star:");
    line("load", 1e3 * load, 0, 0, 0, flops, bytes);
    line("starts (cross-correlation)", 1e3 * starts, 0, ccf_flop * 1e-6, 0, flops, bytes);
    line("objective with derivatives, in 16s", 1e3 * eval, neval, comp_flop * 1e-6,
         (double)comp_bytes * 1e-6 / SPX_RV_BATCH, flops, bytes);
    line("the same on the coarse model", 1e3 * coarse, ncoarse, coarse_flop * 1e-6, 0, flops, bytes);
    line("objective, one star alone", 1e3 * alone, 0, comp_flop * 1e-6, (double)comp_bytes * 1e-6, flops, bytes);
    line("objective at another velocity", 1e3 * project, 0, 0, 0, flops, bytes);
    line("search", 1e3 * minimise, 0, 0, 0, flops, bytes);
    printf("whole fit: %.2f ms a star, %.0f stars a second and core; with the plan of these stars alone %.2f ms\n",
           1e3 * whole, 1 / whole, 1e3 * (whole + setup / (double)nstar));

    spx_rvfit_free(&r);
    spx_rv_group_free(group);
    spx_rvfit_close_cpu(plan);
    free_stars(&s);
}

int main(int argc, char **argv)
{
    spx_err e = {0};
    spx_templates t = {0};
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    curve_axes("stars of a batch", "stars a second");
    must(spx_blas_open(&e) == SPX_OK, &e);
    mock_library *m = mock_library_make();
    must(m != NULL, &e);
    make_templates(m, argc == 1 ? 1 : omp_get_max_threads(), &t);
    free(m);
    if (argc == 1)
        on_cpu(&t);
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "cpu") == 0)
            on_cpu(&t);
        else if (strncmp(argv[i], "cpu:", 4) == 0)
            all_fits_on_device(&t, "cpu", atoi(argv[i] + 4));
        else
            all_fits_on_device(&t, argv[i], omp_get_max_threads());
    spx_templates_free(&t);
    return 0;
}
