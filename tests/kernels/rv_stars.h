/* Provides input for tests of kernel `rvfit`: a small library and stars from a formula, two arms of 500 pixels. */
#ifndef SPX_TEST_RV_STARS_H
#define SPX_TEST_RV_STARS_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "common/setup_options.h"
#include "device.h"
#include "num/wave.h"
#include "random.h"
#include "rvfit/rvfit.h"
#include "template/template.h"

static spx_backend backend;

#define NEED(call)                                                                                                     \
    do {                                                                                                               \
        spx_err need_e = {0};                                                                                          \
        if ((call) != SPX_OK) {                                                                                        \
            printf("%s:%d: %s\n", __FILE__, __LINE__, spx_err_text(&need_e));                                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* ---- library and stars ---- */

enum { NLINE = 160, NPIX = 500, NPAR = 3, NQ = 2 + NPAR, NARM = 2 };
static const double ARM_MIN[NARM] = {4600, 6350}, STEP = 0.4, LSF_FWHM = 1.5;
static const double TEFF[] = {4500, 5000, 5500, 6000, 6500}, FEH[] = {-2, -1, -0.5, 0};
enum { FIRST_BIN = 4500, NBIN = 2200, REACH = 6 };
static const double LINE_SIGMA = 0.25; /* Angstrom */
static double line_at[NLINE], line_depth[NLINE], line_exc[NLINE];
/* Lines that reach into each Angstrom from FIRST_BIN on, in their order. */
static uint8_t line_near[NBIN][NLINE];
static size_t nnear[NBIN];

static void make_lines(void)
{
    for (int k = 0; k < NLINE; k++) {
        line_at[k] = k % 2 ? 4580 + 240 * uniform() : 6330 + 240 * uniform();
        line_depth[k] = 0.05 + 0.8 * uniform();
        line_exc[k] = 4 * uniform();
    }
    for (int b = 0; b < NBIN; b++)
        for (int k = 0; k < NLINE; k++)
            if (fabs(line_at[k] - FIRST_BIN - b - 0.5) < 0.5 + REACH * LINE_SIGMA + 1e-6)
                line_near[b][nnear[b]++] = (uint8_t)k;
}

/* Strength of each line; kept until others are asked for. */
static const double *strengths(double teff, double feh)
{
    static double of[2], strength[NLINE];
    if (of[0] != teff || of[1] != feh)
        for (int k = 0; k < NLINE; k++)
            strength[k] = line_depth[k] * pow(10, 0.3 * feh - 0.25 * line_exc[k] * (5040 / teff - 0.9));
    of[0] = teff;
    of[1] = feh;
    return strength;
}

/* Flux per unit wavelength; alpha is there as a parameter that has one value only. */
static double flux_at(double teff, double feh, double lambda)
{
    const double *strength = strengths(teff, feh);
    double tau = 0;
    if (lambda >= FIRST_BIN && lambda < FIRST_BIN + NBIN) {
        size_t bin = (size_t)(lambda - FIRST_BIN);
        for (size_t i = 0; i < nnear[bin]; i++) {
            size_t k = line_near[bin][i];
            double z = (lambda - line_at[k]) / LINE_SIGMA;
            if (fabs(z) < REACH)
                tau += strength[k] * exp(-0.5 * z * z);
        }
    }
    double u = 5000 / lambda * (5000 / lambda);
    return u * u / expm1(1.4388e8 / (lambda * teff)) * (tau > 0 ? exp(-tau) : 1);
}

/* Interpolator `simplex` too: each cell of the grid of teff and feh in two triangles. */
static void cut_cells(spx_setup *s)
{
    const size_t nt = s->naxis[0], nf = s->naxis[1];
    s->nsimplex = 2 * (nt - 1) * (nf - 1);
    s->ncorner = 3;
    s->simplex = spx_alloc2(s->nsimplex, s->ncorner, sizeof *s->simplex, NULL);
    if (!s->simplex)
        exit(1);
    for (size_t i = 0, k = 0; i + 1 < nt; i++)
        for (size_t j = 0; j + 1 < nf; j++) {
            const int32_t *here = s->node + i * nf + j, *next = here + nf;
            const int32_t corner[6] = {here[0], here[1], next[1], here[0], next[0], next[1]};
            for (size_t c = 0; c < 6; c++)
                s->simplex[k++] = corner[c];
        }
}

static void make_templates(spx_templates *t)
{
    enum { NT = sizeof TEFF / sizeof *TEFF, NF = sizeof FEH / sizeof *FEH };
    size_t nwave = 10000;
    double *wave = spx_alloc(nwave, sizeof *wave, NULL), *par = spx_alloc2(NT * NF, NPAR, sizeof *par, NULL);
    float *flux = spx_alloc2(NT * NF, nwave, sizeof *flux, NULL);
    if (!wave || !par || !flux)
        exit(1);
    for (size_t i = 0; i < nwave; i++)
        wave[i] = i < nwave / 2 ? 4540 + 0.065 * (double)i : 6290 + 0.065 * (double)(i - nwave / 2);
    for (size_t i = 0; i < NT * NF; i++) {
        par[i * NPAR] = TEFF[i / NF];
        par[i * NPAR + 1] = FEH[i % NF];
        for (size_t j = 0; j < nwave; j++)
            flux[i * nwave + j] = (float)(1e6 * flux_at(par[i * NPAR], par[i * NPAR + 1], wave[j]));
    }
    spx_template_library lib = {.nwave = nwave,
                                .wavelength = wave,
                                .ntemp = NT * NF,
                                .npar = NPAR,
                                .params = par,
                                .parname = {"teff", "feh", "alpha"}};
    static const double vsini[] = {0, 100};
    spx_template_request request[NARM];
    spx_template_config cfg = {.nsetup = NARM,
                               .setup = request,
                               .norm = SPX_NORM_LINEAR,
                               .parlog = {1},
                               .ccf = 1,
                               .pca_error = 1e-9,
                               .ccf_every = 2,
                               .nccf_vsini = 2,
                               .ccf_vsini = vsini,
                               .nthreads = 1};
    spx_template_job *job;
    NEED(spx_template_parse_setup("b:4580:4820:0.4:FWHM=1.5", &request[0], &need_e));
    NEED(spx_template_parse_setup("r:6330:6570:0.4:FWHM=1.5", &request[1], &need_e));
    NEED(spx_template_begin(&lib, &cfg, &job, &need_e));
    size_t first, n;
    spx_template_range(job, &first, &n);
    NEED(spx_template_add(job, 0, NT * NF, flux + first, nwave, &need_e));
    NEED(spx_template_finish(job, t, NULL, &need_e));
    spx_template_free(job);
    for (size_t a = 0; a < NARM; a++)
        cut_cells(&t->setup[a]);
    spx_free(wave);
    spx_free(par);
    spx_free(flux);
}

typedef struct {
    double v, vsini, teff, feh, sn;
} truth;

/* What a spectrograph sees of the formula: photons per pixel through rotation, Doppler shift and a Gaussian. */
static void draw_arm(const truth *s, const double *wave, double *flux, double *ivar)
{
    enum { NROT = 24, NLSF = 25 };
    double mean = 0;
    for (size_t i = 0; i < NPIX; i++) {
        double sum = 0, norm = 0;
        for (int l = 0; l < NLSF; l++) {
            double z = -4 + 8.0 * l / (NLSF - 1), w = exp(-0.5 * z * z), at = wave[i] + z * LSF_FWHM / 2.3548;
            double rot = 0, rnorm = 0;
            for (int k = 0; k < NROT; k++) {
                double x = (k + 0.5) / NROT * 2 - 1, y = 1 - x * x;
                double kernel = 0.8 * sqrt(y) + 0.3 * M_PI * y, v = s->v + x * s->vsini;
                rot += kernel * flux_at(s->teff, s->feh, at * sqrt((1 - v / SPX_C_KMS) / (1 + v / SPX_C_KMS)));
                rnorm += kernel;
                if (s->vsini == 0)
                    break;
            }
            sum += w * at * rot / rnorm;
            norm += w;
        }
        double u = (double)i / NPIX;
        flux[i] = sum / norm / wave[i] * (1 + 0.3 * u - 0.2 * u * u);
        mean += flux[i] / NPIX;
    }
    for (size_t i = 0; i < NPIX; i++) {
        double sigma = mean / s->sn;
        flux[i] = (flux[i] + sigma * gauss()) / mean;
        ivar[i] = s->sn * s->sn;
    }
}

static void alloc_spectra(spx_spectra *s, size_t nspec)
{
    *s = (spx_spectra){.nspec = nspec, .narm = NARM};
    for (size_t a = 0; a < NARM; a++) {
        spx_arm *m = &s->arm[a];
        strcpy(m->name, a ? "r" : "b");
        m->nwave = NPIX;
        m->wavelength = spx_alloc(NPIX, sizeof *m->wavelength, NULL);
        m->flux = spx_alloc2(nspec, NPIX, sizeof *m->flux, NULL);
        m->ivar = spx_alloc2(nspec, NPIX, sizeof *m->ivar, NULL);
        m->mask = spx_alloc2(nspec, NPIX, sizeof *m->mask, NULL);
        if (!m->wavelength || !m->flux || !m->ivar || !m->mask)
            exit(1);
        for (size_t i = 0; i < NPIX; i++)
            m->wavelength[i] = ARM_MIN[a] + STEP * (double)i;
    }
}

static void free_spectra(spx_spectra *s)
{
    for (size_t a = 0; a < s->narm; a++) {
        spx_free(s->arm[a].wavelength);
        spx_free(s->arm[a].flux);
        spx_free(s->arm[a].ivar);
        spx_free(s->arm[a].mask);
        spx_free(s->arm[a].resolution);
    }
}

static void draw(spx_spectra *s, size_t row, const truth *t)
{
    for (size_t a = 0; a < s->narm; a++)
        draw_arm(t, s->arm[a].wavelength, s->arm[a].flux + row * NPIX, s->arm[a].ivar + row * NPIX);
}

static spx_rvfit_input input_of(const spx_spectra *s, const spx_templates *t)
{
    return (spx_rvfit_input){.spectra = s, .setup = {&t->setup[0], &t->setup[1]}, .nrow = s->nspec};
}

/* All tests run with each of them. */
static spx_interpolator interpolator;

static void init(spx_rvfit_options *o)
{
    spx_rvfit_options_init(o);
    o->interpolator = interpolator;
}

/* The fit has to end with status `want`, say why, and give nothing. */
static inline void refused(const char *what, spx_status want, const spx_rvfit_input *in, const spx_rvfit_options *o)
{
    spx_err e = {0};
    spx_rvfit r;
    spx_status st = backend.rvfit(&backend, in, o, NULL, &r, &e);
    CHECK(st == want && e.text[0] != '\0' && !r.star, "%s: status %d, %s", what, (int)st, spx_err_text(&e));
    if (st == SPX_OK)
        spx_rvfit_free(&r);
}

/* Main function of a test: `body` with templates and the backend. */
static inline int rv_test(void (*body)(spx_templates *))
{
    static const uint64_t seed = 20240517;
    spx_templates t = {0};
    open_device(&backend, SPX_OP_RVFIT);
    random_start(seed);
    make_lines();
    make_templates(&t);
    body(&t);
    spx_templates_free(&t);
    spx_backend_close(&backend);
    if (failures)
        printf("seed %llu\n", (unsigned long long)seed);
    return failures != 0;
}

#endif
