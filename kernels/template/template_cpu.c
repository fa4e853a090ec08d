/* Provides the template job on the CPU (template.h): grids and LSF weights of the setups, batches of spectra, and the
 * report. Pixels are worked on in blocks whose samples stay in a thread's cache. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/mem.h"
#include "num/blas.h"
#include "num/stat.h"
#include "num/wave.h"
#include "template/lsf_math.h"
#include "template/template.h"
#include "template/template_impl.h"

enum {
    LANES = SPX_TEMPLATE_LANES,
    BLOCK = 128 /* pixels of a block */
};

#define CUT_SIGMA 5.0
#define FLOOR     1e-10
#define CCF_AIM   100 /* default size of the cross-correlation set, templates */

/* Weights of one setup: pixel k uses samples first[k] + j, counted from the job's first sample, with w[start[k] + j], j
 * < start[k+1] - start[k]. They contain the wavelengths of sample (flux to photons) and pixel (photons to flux). */
typedef struct {
    size_t *first, *start;
    double *w;
    double *wave;         /* [nwave] of the pixels */
    size_t missing, most; /* samples missing; most samples of a BLOCK of pixels */
} weights;

/* Workspace of the threads: samples of a block, its pixels, a spectrum. */
typedef struct {
    size_t most, widest; /* samples of a block; pixels of a setup, a multiple of 8 */
    double *sample, *pixel, *scratch;
    double *v; /* [LANES][widest] for each thread */
} workspace;

struct spx_template_job {
    size_t nlib;     /* number of spectra in the library */
    size_t begin, n; /* range of samples used */
    double *wave;    /* [n] their wavelengths in the library's medium */
    uint8_t *seen;   /* [nlib] 1: row was added */
    size_t *raised;  /* [nlib] samples raised to the floor */
    size_t nsetup;
    spx_setup *setup;    /* [nsetup] */
    weights *weight;     /* [nsetup] */
    workspace workspace; /* allocated with the first spectra */
    spx_template_fill fill;
    double pca_error, pca_max;
    spx_nn_training nn;
    size_t nccf_row, *ccf_row;
    size_t nvsini;
    double *vsini;
    int nthreads, raw;
    const spx_template_kernels *kernels;
    spx_progress *progress;
};

const spx_template_kernels *spx_template_kernels_find(void)
{
    const spx_template_kernels *k = spx_template_kernels_avx512();
    if (!k)
        k = spx_template_kernels_avx2();
    return k ? k : spx_template_kernels_base();
}

void spx_template_free(spx_template_job *job)
{
    if (!job)
        return;
    for (size_t i = 0; i < job->nsetup; i++) {
        if (job->setup)
            spx_setup_free(&job->setup[i]);
        if (job->weight) {
            spx_free(job->weight[i].first);
            spx_free(job->weight[i].start);
            spx_free(job->weight[i].w);
            spx_free(job->weight[i].wave);
        }
    }
    spx_free(job->workspace.sample);
    spx_free(job->workspace.pixel);
    spx_free(job->workspace.scratch);
    spx_free(job->workspace.v);
    spx_free(job->setup);
    spx_free(job->weight);
    spx_free(job->wave);
    spx_free(job->seen);
    spx_free(job->raised);
    spx_free(job->ccf_row);
    spx_free(job->vsini);
    spx_template_fill_free(&job->fill);
    spx_free(job);
}

static spx_status check_library(const spx_template_library *lib, const spx_template_config *cfg, spx_err *e)
{
    if (lib->nwave < 2 || lib->ntemp < 1 || lib->ntemp > INT32_MAX)
        return spx_fail(e, SPX_EINPUT,
                        "a library of %zu spectra with %zu samples is of no use: two samples are the least", lib->ntemp,
                        lib->nwave);
    if (lib->npar < 1 || lib->npar > SPX_MAX_PAR)
        return spx_fail(e, SPX_EINPUT, "the library has %zu parameters, 1 to %d are possible", lib->npar, SPX_MAX_PAR);
    for (size_t k = 0; k < lib->nwave; k++) {
        double w = lib->wavelength[k];
        if (!(w > 0 && w < 1e9) || (k && !(w > lib->wavelength[k - 1])))
            return spx_fail(e, SPX_EINPUT,
                            "the library's wavelengths do not increase at sample %zu (%g Angstrom): sort the samples",
                            k, w);
    }
    for (size_t k = 0; k < lib->ntemp * lib->npar; k++)
        if (!isfinite(lib->params[k]))
            return spx_fail(e, SPX_EINPUT,
                            "parameter %.31s of spectrum %zu of the library is not finite: leave the spectrum out",
                            lib->parname[k % lib->npar], k / lib->npar);
    if (cfg->nsetup < 1)
        return spx_fail(e, SPX_EUSAGE, "no setup is given");
    if (cfg->nn.nhidden > 0 && !(cfg->pca_error > 0))
        return spx_fail_remedy(e, SPX_EUSAGE, "let there be some ({pca})",
                               "a network interpolates principal components");
    for (size_t i = 0; i < cfg->nsetup; i++) {
        spx_status st = spx_template_check_setup(&cfg->setup[i], e);
        if (st != SPX_OK)
            return spx_err_context(e, "setup '%s'", cfg->setup[i].name);
        for (size_t j = 0; j < i; j++)
            if (!strcmp(cfg->setup[i].name, cfg->setup[j].name))
                return spx_fail(e, SPX_EUSAGE, "two setups are called '%s'", cfg->setup[i].name);
    }
    for (size_t i = 0; i < cfg->nccf_vsini; i++)
        if (!(cfg->ccf_vsini[i] >= 0 && cfg->ccf_vsini[i] <= 1000))
            return spx_fail(e, SPX_EUSAGE, "vsini %g km/s of the cross-correlation set is not within 0 and 1000",
                            cfg->ccf_vsini[i]);
    return SPX_OK;
}

/* Index of the last sample not above v (0 when there is none), and of the first not below (n-1 when there is none). */
static size_t last_below(const double *x, size_t n, double v)
{
    size_t lo = 0, hi = n;
    while (lo + 1 < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (x[mid] <= v)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static size_t first_above(const double *x, size_t n, double v)
{
    size_t i = last_below(x, n, v);
    return x[i] < v && i + 1 < n ? i + 1 : i;
}

/* Range of samples lo ... hi-1 of the BLOCK of pixels from k on. */
static void block_range(const spx_setup *s, const weights *w, size_t k, size_t *lo, size_t *hi)
{
    *lo = SIZE_MAX;
    *hi = 0;
    for (size_t i = k; i < s->nwave && i < k + BLOCK; i++) { /* sigma may fall so fast that first[] decreases */
        size_t last = w->first[i] + w->start[i + 1] - w->start[i];
        *lo = w->first[i] < *lo ? w->first[i] : *lo;
        *hi = last > *hi ? last : *hi;
    }
}

/* Grid and weights of one setup; first[] counts from the library's first sample here. */
static spx_status make_setup(const spx_template_library *lib, const spx_template_config *cfg, size_t i, spx_setup *s,
                             weights *w, spx_err *e)
{
    const spx_template_request *r = &cfg->setup[i];
    int nt = cfg->nthreads > 0 ? cfg->nthreads : omp_get_max_threads();
    spx_status st = SPX_EIO;
    size_t n = lib->nwave, skip = 0, total = 0;
    double *x = spx_alloc(n, sizeof *x, e), *sigma = NULL;
    if (!x)
        return SPX_EIO;
    if (r->medium != lib->medium) { /* below 2000 Angstrom air and vacuum wavelengths are equal by convention, with a
                                     * jump */
        while (skip < n && lib->wavelength[skip] <= SPX_AIR_MIN)
            skip++;
        for (size_t k = skip; k < n; k++)
            x[k - skip] =
                r->medium == SPX_AIR ? spx_vacuum_to_air(lib->wavelength[k]) : spx_air_to_vacuum(lib->wavelength[k]);
        n -= skip;
    } else {
        memcpy(x, lib->wavelength, n * sizeof *x);
    }
    if (n < 2 || x[0] > r->wmin || x[n - 1] < r->wmax) {
        st = spx_fail(e, SPX_EINPUT,
                      "setup '%s' asks for %g to %g Angstrom in %s, the library covers %.6g to %.6g there: choose a "
                      "range within",
                      r->name, r->wmin, r->wmax, r->medium == SPX_AIR ? "air" : "vacuum", n ? x[0] : 0,
                      n ? x[n - 1] : 0);
        goto end;
    }
    st = spx_template_make_grid(r, cfg->norm, x[0], x[n - 1], s, &w->missing, e);
    if (st != SPX_OK)
        goto end;
    st = SPX_EIO;
    sigma = spx_alloc(s->nwave, sizeof *sigma, e);
    w->first = spx_alloc(s->nwave, sizeof *w->first, e);
    w->start = spx_alloc(s->nwave + 1, sizeof *w->start, e);
    w->wave = spx_alloc(s->nwave, sizeof *w->wave, e);
    if (!sigma || !w->first || !w->start || !w->wave)
        goto end;
    st = spx_template_sigma(s, r, cfg, sigma, e);
    if (st != SPX_OK)
        goto end;
    for (size_t k = 0; k < s->nwave; k++) {
        double l1 = spx_template_edge(s, k), l2 = spx_template_edge(s, k + 1), centre = spx_template_wave(s, (double)k);
        double reach = CUT_SIGMA * sigma[k];
        /* LSF cut from the pixel's centre, with one sample more at the red end, as in rvspecfit: behind a saturated
         * line 5 sigma away the difference is 1e-3 in ln flux. From its edges for a pixel wider than the LSF. */
        if (4 * sigma[k] > l2 - l1)
            l1 = l2 = centre;
        /* one more at both ends, which corrections of their neighbours by the curvature need */
        const size_t begin = last_below(x, n, l1 - reach), last = first_above(x, n, l2 + reach);
        const size_t more = cfg->straight ? 0 : 1;
        w->first[k] = begin > more ? begin - more : 0;
        w->start[k] = total;
        total += (last + 1 + more < n ? last + 1 + more : n - 1) - w->first[k] + 1;
    }
    w->start[s->nwave] = total;
    w->w = spx_alloc(total, sizeof *w->w, e);
    if (!w->w) {
        st = spx_err_context(e, "setup '%s' needs %zu weights", s->setup, total);
        goto end;
    }
#pragma omp parallel for num_threads(nt) schedule(static)
    for (size_t k = 0; k < s->nwave; k++) {
        (cfg->straight ? spx_lsf_linear_weights : spx_lsf_weights)(x + w->first[k], w->start[k + 1] - w->start[k],
                                                                   spx_template_edge(s, k), spx_template_edge(s, k + 1),
                                                                   sigma[k], w->w + w->start[k]);
        w->first[k] += skip;
        w->wave[k] = spx_template_wave(s, (double)k);
        for (size_t j = w->start[k]; j < w->start[k + 1]; j++)
            w->w[j] *= lib->wavelength[w->first[k] + j - w->start[k]] / w->wave[k];
    }
    for (size_t k = 0; k < s->nwave; k += BLOCK) {
        size_t lo, hi;
        block_range(s, w, k, &lo, &hi);
        w->most = hi - lo > w->most ? hi - lo : w->most;
    }
end:
    spx_free(x);
    spx_free(sigma);
    return st;
}

/* Finds the interpolator, a regular grid or a triangulation, as requested. */
static spx_status find_interpolator(spx_setup *s, spx_template_interpolator which, spx_template_fill *fill, spx_err *e)
{
    spx_err why = {0};
    spx_status st = spx_template_span(s, e);
    if (st != SPX_OK || which == SPX_TEMPLATE_SIMPLEX)
        return st == SPX_OK ? spx_template_simplex(s, e) : st;
    st = spx_template_grid(s, fill, &why);
    if (st == SPX_EINPUT && which == SPX_TEMPLATE_AUTO && !s->node && s->ntemp > s->npar + 1) {
        for (size_t p = 0; p < s->npar; p++) {
            spx_free(s->axis[p]);
            s->axis[p] = NULL;
            s->naxis[p] = 0;
        }
        return spx_template_simplex(s, e);
    }
    return st != SPX_OK ? spx_err_pass(e, &why) : st;
}

/* Finds the interpolator in the first setup, and copies it to the others. */
static spx_status make_nodes(const spx_template_library *lib, const spx_template_config *cfg, spx_template_job *job,
                             spx_err *e)
{
    spx_setup *s0 = &job->setup[0];
    spx_status st;
    for (size_t i = 0; i < job->nsetup; i++) {
        spx_setup *s = &job->setup[i];
        s->npar = lib->npar;
        memcpy(s->parname, lib->parname, sizeof s->parname);
        for (size_t p = 0; p < lib->npar; p++)
            s->parlog[p] = cfg->parlog[p];
    }
    s0->ntemp = lib->ntemp;
    s0->params = spx_alloc2(lib->ntemp, lib->npar, sizeof *s0->params, e);
    if (!s0->params)
        return SPX_EIO;
    memcpy(s0->params, lib->params, lib->ntemp * lib->npar * sizeof *s0->params);
    if ((st = find_interpolator(s0, cfg->interpolator, &job->fill, e)) != SPX_OK)
        return st;
    for (size_t i = 0; i < job->nsetup; i++) {
        spx_setup *s = &job->setup[i];
        s->ntemp = s0->ntemp;
        s->lnnorm = spx_alloc(s->ntemp, sizeof *s->lnnorm, e);
        s->lnflux = spx_alloc_spill(s->ntemp, s->nwave, sizeof *s->lnflux, e);
        if (!s->lnnorm || !s->lnflux)
            return SPX_EIO;
        if (i == 0)
            continue;
        s->params = spx_alloc2(s->ntemp, s->npar, sizeof *s->params, e);
        s->filled = spx_alloc(s->ntemp, sizeof *s->filled, e);
        if (!s->params || !s->filled)
            return SPX_EIO;
        memcpy(s->params, s0->params, s->ntemp * s->npar * sizeof *s->params);
        memcpy(s->filled, s0->filled, s->ntemp * sizeof *s->filled);
        if (s0->simplex) {
            s->nsimplex = s0->nsimplex;
            s->ncorner = s0->ncorner;
            if (!(s->simplex = spx_alloc2(s->nsimplex, s->ncorner, sizeof *s->simplex, e)))
                return SPX_EIO;
            memcpy(s->simplex, s0->simplex, s->nsimplex * s->ncorner * sizeof *s->simplex);
            continue;
        }
        if (!(s->node = spx_alloc(s->ntemp, sizeof *s->node, e)))
            return SPX_EIO;
        memcpy(s->node, s0->node, s->ntemp * sizeof *s->node); /* every node has a template: as many nodes as
                                                                * templates */
        for (size_t p = 0; p < s->npar; p++) {
            s->naxis[p] = s0->naxis[p];
            s->axis[p] = spx_alloc(s->naxis[p], sizeof(double), e);
            if (!s->axis[p])
                return SPX_EIO;
            memcpy(s->axis[p], s0->axis[p], s->naxis[p] * sizeof(double));
        }
    }
    return SPX_OK;
}

static spx_status choose_ccf_rows(const spx_template_library *lib, const spx_template_config *cfg,
                                  spx_template_job *job, spx_err *e)
{
    if (!cfg->ccf || cfg->nccf_vsini == 0)
        return SPX_OK;
    size_t every = cfg->ccf_every ? cfg->ccf_every : (lib->ntemp + CCF_AIM - 1) / CCF_AIM;
    job->ccf_row = spx_alloc(lib->ntemp, sizeof *job->ccf_row, e);
    job->vsini = spx_alloc(cfg->nccf_vsini, sizeof *job->vsini, e);
    if (!job->ccf_row || !job->vsini)
        return SPX_EIO;
    job->nvsini = cfg->nccf_vsini;
    memcpy(job->vsini, cfg->ccf_vsini, job->nvsini * sizeof *job->vsini);
    return spx_template_ccf_rows(lib->ntemp, lib->npar, lib->params, every, job->ccf_row, &job->nccf_row, e);
}

spx_status spx_template_begin(const spx_template_library *lib, const spx_template_config *cfg, spx_template_job **out,
                              spx_err *e)
{
    *out = NULL;
    spx_status st = check_library(lib, cfg, e);
    if (st == SPX_OK)
        st = spx_blas_open(e);
    if (st != SPX_OK)
        return st;
    spx_template_job *job = spx_alloc(1, sizeof *job, e);
    if (!job)
        return SPX_EIO;
    st = SPX_EIO;
    job->nlib = lib->ntemp;
    job->nthreads = cfg->nthreads > 0 ? cfg->nthreads : omp_get_max_threads();
    job->kernels = spx_template_kernels_find();
    job->pca_error = cfg->pca_error;
    job->pca_max = cfg->pca_max;
    job->nn = cfg->nn;
    job->raw = cfg->raw;
    job->nsetup = cfg->nsetup;
    job->setup = spx_alloc(cfg->nsetup, sizeof *job->setup, e);
    job->weight = spx_alloc(cfg->nsetup, sizeof *job->weight, e);
    job->seen = spx_alloc(lib->ntemp, sizeof *job->seen, e);
    job->raised = spx_alloc(lib->ntemp, sizeof *job->raised, e);
    if (!job->setup || !job->weight || !job->seen || !job->raised)
        goto fail;
    size_t begin = lib->nwave, end = 0;
    for (size_t i = 0; i < cfg->nsetup; i++) {
        spx_setup *s = &job->setup[i];
        weights *w = &job->weight[i];
        if ((st = make_setup(lib, cfg, i, s, w, e)) != SPX_OK)
            goto fail;
        size_t last = w->first[s->nwave - 1] + w->start[s->nwave] - w->start[s->nwave - 1];
        begin = w->first[0] < begin ? w->first[0] : begin;
        end = last > end ? last : end;
    }
    /* sigma may fall so fast with wavelength that a pixel in the middle reaches further than the outer ones */
    for (size_t i = 0; i < cfg->nsetup; i++) {
        const weights *w = &job->weight[i];
        for (size_t k = 0; k < job->setup[i].nwave; k++) {
            size_t last = w->first[k] + w->start[k + 1] - w->start[k];
            begin = w->first[k] < begin ? w->first[k] : begin;
            end = last > end ? last : end;
        }
    }
    for (size_t i = 0; i < cfg->nsetup; i++)
        for (size_t k = 0; k < job->setup[i].nwave; k++)
            job->weight[i].first[k] -= begin;
    job->begin = begin;
    job->n = end - begin;
    st = SPX_EIO;
    job->wave = spx_alloc(job->n, sizeof *job->wave, e);
    if (!job->wave)
        goto fail;
    memcpy(job->wave, lib->wavelength + begin, job->n * sizeof *job->wave);
    if ((st = make_nodes(lib, cfg, job, e)) != SPX_OK || (st = choose_ccf_rows(lib, cfg, job, e)) != SPX_OK)
        goto fail;
    *out = job;
    return SPX_OK;
fail:
    spx_template_free(job);
    return st;
}

void spx_template_range(const spx_template_job *job, size_t *first, size_t *n)
{
    *first = job->begin;
    *n = job->n;
}

size_t spx_template_units(const spx_template_job *job)
{
    return job->nlib + job->nsetup * job->nccf_row * job->nvsini;
}

void spx_template_watch(spx_template_job *job, spx_progress *p)
{
    job->progress = p;
}

/* Error for a sample of nlane spectra that setups use and that is not finite. */
static spx_status not_finite(const spx_template_job *job, size_t row0, size_t nlane, const float *flux, size_t stride,
                             spx_err *e)
{
    char text[256];
    for (size_t lane = 0; lane < nlane; lane++)
        for (size_t k = 0; k < job->n; k++)
            if (!isfinite(flux[lane * stride + k]))
                return spx_fail(e, SPX_EINPUT,
                                "spectrum %zu of the library (%s): the flux at %g Angstrom is not finite: leave the "
                                "spectrum out",
                                row0 + lane, spx_template_describe(&job->setup[0], row0 + lane, text, sizeof text),
                                job->wave[k]);
    return SPX_OK;
}

/* Median of wavelengths k0 ... k1-1 of the grid. */
static double median_wave(const spx_setup *s, size_t k0, size_t k1)
{
    return 0.5 * (spx_template_wave(s, (double)(k0 + (k1 - k0 - 1) / 2)) +
                  spx_template_wave(s, (double)(k0 + (k1 - k0) / 2)));
}

static double median_of(const double *v, size_t n, double *scratch)
{
    memcpy(scratch, v, n * sizeof *v);
    return spx_median(scratch, n);
}

/* Normalises v[nwave], flux of one template, and returns its logarithm in place. 0: no flux. v and scratch have a
 * multiple of 8 elements. */
static int normalise(const spx_template_job *job, size_t i, double *v, double *scratch, double *lnnorm, size_t *raised)
{
    const spx_setup *s = &job->setup[i];
    const double *wave = job->weight[i].wave;
    size_t n = s->nwave, half = n / 2;
    double left = 0, right = 0, least = v[0];
    if (s->norm == SPX_NORM_LINEAR) {
        left = median_of(v, half, scratch);
        right = median_of(v + half, n - half, scratch);
    }
#pragma omp simd reduction(min : least)
    for (size_t k = 1; k < n; k++)
        least = v[k] < least ? v[k] : least;
    /* the median lies between the medians of the halves: most spectra are decided by those */
    double median = fmax(left, right);
    if (!(left > 0 && right > 0 && isfinite(median) && least > FLOOR * median)) {
        median = median_of(v, n, scratch);
        if (!(median > 0 && isfinite(median)))
            return 0;
        for (size_t k = 0; k < n; k++)
            if (!(v[k] > FLOOR * median)) {
                v[k] = FLOOR * median;
                ++*raised;
            }
    }
    double offset = 0, slope = 0, w0 = 0;
    if (s->norm != SPX_NORM_NONE)
        offset = log(median);
    if (s->norm == SPX_NORM_LINEAR) {
        offset = log(fmax(left, FLOOR * median));
        w0 = median_wave(s, 0, half);
        slope = (log(fmax(right, FLOOR * median)) - offset) / (median_wave(s, half, n) - w0);
    }
    for (size_t k = n; k % 8 != 0; k++)
        v[k] = 1;
    job->kernels->logarithm((n + 7) / 8 * 8, v);
#pragma omp simd
    for (size_t k = 0; k < n; k++)
        v[k] -= offset + slope * (wave[k] - w0);
    *lnnorm = offset + slope * (0.5 * (s->wmin + s->wmax) - w0);
    return 1;
}

/* Makes the templates of rows row0 ... row0+nlane-1 in setup i. */
static spx_status make_templates(spx_template_job *job, size_t i, size_t row0, size_t nlane, const float *flux,
                                 size_t stride, const workspace *r, spx_err *e)
{
    spx_setup *s = &job->setup[i];
    const weights *w = &job->weight[i];
    int good[LANES], bad = 0;
#pragma omp parallel for num_threads(job->nthreads) schedule(static) reduction(| : bad)
    for (size_t k = 0; k < s->nwave; k += BLOCK) {
        size_t lo, hi, npix = s->nwave - k < BLOCK ? s->nwave - k : BLOCK, me = (size_t)omp_get_thread_num();
        double *sample = r->sample + me * r->most * LANES, *pixel = r->pixel + me * BLOCK * LANES;
        block_range(s, w, k, &lo, &hi);
        for (size_t lane = 0; lane < nlane; lane++)
            bad |= job->kernels->not_finite(hi - lo, flux + lane * stride + lo);
        job->kernels->transpose(hi - lo, nlane, flux + lo, stride, sample);
        job->kernels->smooth(npix, w->first + k, w->start + k, w->w, lo, sample, pixel);
        for (size_t lane = 0; lane < nlane; lane++)
            for (size_t j = 0; j < npix; j++)
                r->v[lane * r->widest + k + j] = pixel[j * LANES + lane];
    }
    if (bad)
        return not_finite(job, row0, nlane, flux, stride, e);
#pragma omp parallel for num_threads(job->nthreads) schedule(static)
    for (size_t lane = 0; lane < nlane; lane++) {
        size_t row = row0 + lane;
        double *v = r->v + lane * r->widest, *scratch = r->scratch + (size_t)omp_get_thread_num() * r->widest;
        good[lane] = job->raw || normalise(job, i, v, scratch, &s->lnnorm[row], &job->raised[row]);
        float *to = s->lnflux + row * s->nwave;
        if (good[lane])
#pragma omp simd
            for (size_t k = 0; k < s->nwave; k++)
                to[k] = (float)v[k];
    }
    for (size_t lane = 0; lane < nlane; lane++)
        if (!good[lane]) {
            char text[256];
            return spx_fail(e, SPX_EINPUT, "spectrum %zu of the library (%s) has no flux in setup '%s': leave it out",
                            row0 + lane, spx_template_describe(s, row0 + lane, text, sizeof text), s->setup);
        }
    return SPX_OK;
}

static spx_status make_workspace(spx_template_job *job, spx_err *e)
{
    workspace *r = &job->workspace;
    size_t nt = (size_t)job->nthreads;
    if (r->v)
        return SPX_OK;
    for (size_t i = 0; i < job->nsetup; i++) {
        size_t wide = (job->setup[i].nwave + 7) / 8 * 8;
        r->widest = wide > r->widest ? wide : r->widest;
        r->most = job->weight[i].most > r->most ? job->weight[i].most : r->most;
    }
    if ((!r->sample && !(r->sample = spx_alloc2(nt * r->most, LANES, sizeof *r->sample, e))) ||
        (!r->pixel && !(r->pixel = spx_alloc2(nt * BLOCK, LANES, sizeof *r->pixel, e))) ||
        (!r->scratch && !(r->scratch = spx_alloc2(nt, r->widest, sizeof *r->scratch, e))) ||
        !(r->v = spx_alloc2(r->widest, LANES, sizeof *r->v, e)))
        return SPX_EIO;
    return SPX_OK;
}

spx_status spx_template_add(spx_template_job *job, size_t row0, size_t nrow, const float *flux, size_t stride,
                            spx_err *e)
{
    if (row0 > job->nlib || nrow > job->nlib - row0)
        return spx_fail(e, SPX_EBUG, "rows %zu to %zu of a library of %zu", row0, row0 + nrow, job->nlib);
    spx_status st = make_workspace(job, e);
    for (size_t k = 0; k < nrow && st == SPX_OK; k += LANES) {
        size_t nlane = nrow - k < LANES ? nrow - k : LANES;
        for (size_t i = 0; i < job->nsetup && st == SPX_OK; i++)
            st = make_templates(job, i, row0 + k, nlane, flux + k * stride, stride, &job->workspace, e);
        if (st != SPX_OK)
            break;
        for (size_t i = 0; i < job->nsetup; i++)
            spx_mem_passed(job->setup[i].lnflux);
        for (size_t lane = 0; lane < nlane; lane++)
            job->seen[row0 + k + lane] = 1;
        spx_progress_step(job->progress, nlane);
    }
    return st;
}

static void fill_holes(spx_template_job *job, spx_setup *s)
{
    const spx_template_fill *f = &job->fill;
    for (size_t i = 0; i < f->nfill; i++) {
        size_t row = job->nlib + i;
        for (size_t k = 0; k < s->nwave; k++) {
            double sum = 0;
            for (size_t j = f->start[i]; j < f->start[i + 1]; j++)
                sum += f->weight[j] * (double)s->lnflux[(size_t)f->row[j] * s->nwave + k];
            s->lnflux[row * s->nwave + k] = (float)sum;
        }
        spx_mem_passed(s->lnflux);
        for (size_t j = f->start[i]; j < f->start[i + 1]; j++)
            s->lnnorm[row] += f->weight[j] * s->lnnorm[f->row[j]];
    }
}

/* Makes components and networks of all setups, one thread a setup. */
static spx_status make_components(spx_template_job *job, spx_err *e)
{
    spx_status st = spx_blas_open(e);
    if (st != SPX_OK)
        return st;
#pragma omp parallel for num_threads(job->nthreads) schedule(dynamic, 1)
    for (size_t i = 0; i < job->nsetup; i++) {
        spx_err mine = {0};
        spx_nn_training how = job->nn;
        how.number = i;
        if (spx_template_pca(&job->setup[i], job->pca_error, job->pca_max, &mine) != SPX_OK ||
            (job->nn.nhidden > 0 && spx_template_train(&job->setup[i], &how, &mine) != SPX_OK)) {
#pragma omp critical(spx_template_pca_error)
            st = spx_fail(e, mine.code, "setup '%s': %s", job->setup[i].setup, spx_err_text(&mine));
        }
    }
    return st;
}

spx_status spx_template_finish(spx_template_job *job, spx_templates *out, spx_template_report *report, spx_err *e)
{
    spx_template_report rep = {.nfilled = job->fill.nfill};
    for (size_t t = 0; t < job->nlib; t++) {
        if (!job->seen[t])
            return spx_fail(e, SPX_EBUG, "row %zu of the library was not added", t);
        rep.nraised += job->raised[t];
    }
    for (size_t i = 0; i < job->nsetup; i++) {
        spx_setup *s = &job->setup[i];
        rep.nmissing += job->weight[i].missing;
        fill_holes(job, s);
        if (job->nccf_row == 0)
            continue;
        spx_status st =
            spx_template_ccf(s, job->nccf_row, job->ccf_row, job->nvsini, job->vsini, job->nthreads, job->progress, e);
        if (st != SPX_OK)
            return st;
        rep.nccf = s->ccf.ntemp;
    }
    spx_status st = job->pca_error > 0 ? make_components(job, e) : SPX_OK;
    if (st != SPX_OK)
        return st;
    out->nsetup = job->nsetup;
    out->setup = job->setup;
    job->setup = NULL;
    if (report)
        *report = rep;
    return SPX_OK;
}
