/* Checks the interpolating network: values against plain loops, derivatives against differences; training, which
 * depends on the seed alone; the fit that uses it. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "common/setup_options.h"
#include "device.h"
#include "random.h"
#include "rvfit/rvfit.h"
#include "spectral/nn_math.h"
#include "template/template.h"

static const uint64_t seed = 20261120;
static spx_backend backend; /* which trains */

/* ---- arithmetic ---- */

static void random_network(spx_nn *nn, spx_nn_activation f, size_t nlayer, const size_t *size)
{
    size_t nweight, nbias;
    *nn = (spx_nn){.nlayer = nlayer, .activation = f, .slope = 0.01};
    memcpy(nn->size, size, (nlayer + 1) * sizeof *size);
    spx_nn_count(nn, &nweight, &nbias);
    nn->weight = spx_alloc(nweight, sizeof *nn->weight, NULL);
    nn->bias = spx_alloc(nbias, sizeof *nn->bias, NULL);
    if (!nn->weight || !nn->bias)
        exit(1);
    for (size_t i = 0; i < nweight; i++)
        nn->weight[i] = (float)(uniform() - 0.5);
    for (size_t i = 0; i < nbias; i++)
        nn->bias[i] = (float)(uniform() - 0.5);
    for (size_t p = 0; p < size[0]; p++) {
        nn->offset[p] = 10 * uniform();
        nn->scale[p] = 0.1 + uniform();
    }
}

/* The same by the formula, in long double. */
static void plain(const spx_nn *nn, const double *x, double *out)
{
    long double y[32], next[32];
    const float *w = nn->weight, *b = nn->bias;
    for (size_t p = 0; p < nn->size[0]; p++)
        y[p] = ((long double)x[p] - nn->offset[p]) * nn->scale[p];
    for (size_t l = 0; l < nn->nlayer; l++) {
        for (size_t i = 0; i < nn->size[l + 1]; i++) {
            long double a = *b++;
            for (size_t j = 0; j < nn->size[l]; j++)
                a += *w++ * y[j];
            if (l + 1 < nn->nlayer)
                a = nn->activation == SPX_NN_LEAKY     ? (a > 0 ? a : nn->slope * a)
                    : nn->activation == SPX_NN_SIGMOID ? 1 / (1 + expl(-a))
                                                       : a / (1 + expl(-a));
            next[i] = a;
        }
        memcpy(y, next, sizeof y);
    }
    for (size_t i = 0; i < nn->size[nn->nlayer]; i++)
        out[i] = (double)y[i];
}

static void arithmetic(void)
{
    static const spx_nn_activation all[] = {SPX_NN_SILU, SPX_NN_SIGMOID, SPX_NN_LEAKY};
    static const size_t deep[] = {4, 20, 17, 9}, flat[] = {1, 3};
    static const size_t gpar[] = {0, 1, 3}; /* parameter 2 has one value only */
    for (size_t k = 0; k < 4; k++) {
        spx_nn nn;
        random_network(&nn, all[k % 3], k < 3 ? 3 : 1, k < 3 ? deep : flat);
        size_t lanes = k < 3 ? 4 : 2, nout = nn.size[nn.nlayer], width = spx_nn_width(&nn);
        CHECK(width == (k < 3 ? 20 : 3), "width %zu", width);
        double x[4], coef[9 * 4], alone[9], want[9], up[9], down[9], work[2 * 20 * 4];
        for (size_t p = 0; p < 4; p++)
            x[p] = 10 * uniform();
        spx_nn_evaluate(&nn, x, lanes, gpar, work, coef);
        spx_nn_evaluate(&nn, x, 1, gpar, work, alone);
        plain(&nn, x, want);
        for (size_t i = 0; i < nout; i++)
            CHECK(fabs(coef[i * lanes] - want[i]) < 1e-13 && coef[i * lanes] == alone[i],
                  "network %zu: output %zu is %.17g, alone %.17g, want %.17g", k, i, coef[i * lanes], alone[i],
                  want[i]);
        for (size_t g = 0; g + 1 < lanes; g++) {
            double h = 1e-6, keep = x[gpar[g]];
            x[gpar[g]] = keep + h;
            plain(&nn, x, up);
            x[gpar[g]] = keep - h;
            plain(&nn, x, down);
            x[gpar[g]] = keep;
            for (size_t i = 0; i < nout; i++) {
                double d = (up[i] - down[i]) / (2 * h);
                CHECK(fabs(coef[i * lanes + 1 + g] - d) < 1e-7,
                      "network %zu: derivative %zu of output %zu is %g, want %g", k, g, i, coef[i * lanes + 1 + g], d);
            }
        }
        spx_free(nn.weight);
        spx_free(nn.bias);
    }
    /* far out nothing overflows */
    double d;
    CHECK(spx_nn_activate(SPX_NN_SILU, 0, -1e6, &d) == 0 && d == 0, "silu of -1e6");
    CHECK(spx_nn_activate(SPX_NN_SILU, 0, 1e6, &d) == 1e6 && d == 1, "silu of 1e6");
    CHECK(spx_nn_activate(SPX_NN_SIGMOID, 0, -1e6, &d) == 0 && d == 0, "sigmoid of -1e6");
}

/* ---- training ---- */

enum { NT = 9, NF = 8, NWAVE = 3000, NPAR = 3 };

/* Flux that depends smoothly on temperature and abundance, with some twenty lines. */
static double flux_at(double teff, double feh, double lambda)
{
    double tau = 0;
    for (int k = 0; k < 20; k++) {
        double z = (lambda - 5010 - 9.3 * k) / 0.5, depth = 0.1 + 0.04 * k;
        tau += depth * pow(10, 0.4 * feh - 0.2 * (k % 5) * (5040 / teff - 0.9)) * exp(-0.5 * z * z);
    }
    return pow(lambda / 5000, -4) / expm1(1.4388e8 / (lambda * teff)) * exp(-tau);
}

static spx_status make(int nthreads, const spx_nn_training *how, double pca, spx_templates *t, spx_err *e)
{
    static double wave[NWAVE], par[NT * NF * NPAR];
    static float flux[NT * NF][NWAVE];
    for (size_t j = 0; j < NWAVE; j++)
        wave[j] = 4970 + 0.09 * (double)j;
    for (size_t i = 0; i < NT * NF; i++) {
        par[i * NPAR] = 4500 + 250 * (double)(i / NF);
        par[i * NPAR + 1] = -2 + 0.3 * (double)(i % NF);
        par[i * NPAR + 2] = 7; /* has one value only */
        for (size_t j = 0; j < NWAVE; j++)
            flux[i][j] = (float)(1e6 * flux_at(par[i * NPAR], par[i * NPAR + 1], wave[j]));
    }
    spx_template_library lib = {.nwave = NWAVE,
                                .wavelength = wave,
                                .ntemp = NT * NF,
                                .npar = NPAR,
                                .params = par,
                                .parname = {"teff", "feh", "x"}};
    spx_template_request request[2];
    spx_template_config cfg = {.nsetup = 2,
                               .setup = request,
                               .norm = SPX_NORM_LINEAR,
                               .parlog = {1},
                               .pca_error = pca,
                               .nn = *how,
                               .nthreads = nthreads};
    spx_template_job *job = NULL;
    size_t first, n;
    *t = (spx_templates){0};
    spx_status st = spx_template_parse_setup("a:5000:5090:0.3:FWHM=1", &request[0], e);
    if (st == SPX_OK)
        st = spx_template_parse_setup("b:5100:5190:0.3:FWHM=1", &request[1], e);
    if (st == SPX_OK)
        st = spx_template_begin(&lib, &cfg, &job, e);
    if (st == SPX_OK) {
        spx_template_range(job, &first, &n);
        st = spx_template_add(job, 0, NT * NF, flux[0] + first, NWAVE, e);
    }
    if (st == SPX_OK)
        st = spx_template_finish(job, t, NULL, e);
    spx_template_free(job);
    return st;
}

static int same_network(const spx_nn *a, const spx_nn *b)
{
    size_t nweight, nbias;
    spx_nn_count(a, &nweight, &nbias);
    return a->nlayer == b->nlayer && memcmp(a->size, b->size, sizeof a->size) == 0 &&
           memcmp(a->weight, b->weight, nweight * sizeof *a->weight) == 0 &&
           memcmp(a->bias, b->bias, nbias * sizeof *a->bias) == 0 && a->rms == b->rms && a->max == b->max;
}

/* The network is as good as it says, between the templates too, and depends on the seed alone. */
static void training(spx_templates *t)
{
    static const size_t none[1] = {0};
    spx_nn_training how = {.nhidden = 2, .hidden = {24, 20}, .epochs = 300, .seed = 5};
    spx_templates again, other, cpu;
    spx_err e = {0};
    if (make(1, &how, 1e-5, &cpu, &e) != SPX_OK) {
        CHECK(0, "%s", spx_err_text(&e));
        exit(1);
    }
    how.open = backend.nn_open;
    how.device = &backend;
    if (make(1, &how, 1e-5, t, &e) != SPX_OK || make(3, &how, 1e-5, &again, &e) != SPX_OK) {
        CHECK(0, "%s", spx_err_text(&e));
        exit(1);
    }
    for (size_t i = 0; i < t->nsetup; i++) {
        const spx_setup *s = &t->setup[i];
        const spx_nn *nn = &s->nn;
        CHECK(nn->nlayer == 3 && nn->size[1] == 24 && nn->size[2] == 20 && nn->size[3] == s->pca.ncomp, "sizes");
        CHECK(nn->lo[0] == log10(4500) && nn->hi[0] == log10(6500) && nn->lo[2] == 7 && nn->scale[2] == 0, "range");
        CHECK(nn->rms > 0 && nn->rms < 0.005 && nn->max < 0.05, "setup %zu: error %g rms, %g at most", i, nn->rms,
              nn->max);
        CHECK(nn->rms < 1.5 * cpu.setup[i].nn.rms && cpu.setup[i].nn.rms < 1.5 * nn->rms,
              "setup %zu: error %g rms, the CPU's %g", i, nn->rms, cpu.setup[i].nn.rms);
        CHECK(same_network(nn, &again.setup[i].nn), "setup %zu: another network with three threads", i);
        double worst = 0, work[2 * 64], coef[64], x[NPAR] = {log10(5130), -0.77, 7};
        CHECK(spx_nn_width(nn) <= 64, "%zu components", s->pca.ncomp);
        spx_nn_evaluate(nn, x, 1, none, work, coef);
        for (size_t k = 0; k < s->nwave; k += 10) { /* between lines and in them, but for the LSF */
            double lnflux = s->pca.mean[k], near = 1e9;
            for (size_t c = 0; c < s->pca.ncomp; c++)
                lnflux += coef[c] * (double)s->pca.comp[c * s->nwave + k];
            for (size_t r = 0; r < s->ntemp; r++) { /* within what its neighbours span */
                double d = fabs(s->params[r * NPAR] - 5130) / 250 + fabs(s->params[r * NPAR + 1] + 0.77) / 0.3;
                if (d < near) {
                    near = d;
                    worst = fmax(worst, d < 0.7 ? fabs(lnflux - (double)s->lnflux[r * s->nwave + k]) : 0);
                }
            }
        }
        CHECK(worst < 0.15, "setup %zu: %g from its neighbours", i, worst);
    }
    spx_templates_free(&cpu);
    spx_templates_free(&again);
    how.seed = 6;
    how.epochs = 20;
    CHECK(make(1, &how, 1e-5, &other, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(other.nsetup == 2 && !same_network(&t->setup[0].nn, &other.setup[0].nn), "the seed makes no difference");
    spx_templates_free(&other);
    CHECK(make(1, &how, 0, &other, &e) == SPX_EUSAGE && strstr(spx_err_text(&e), "{pca}"), "no components: %s",
          spx_err_text(&e));
    spx_templates_free(&other);
    e = (spx_err){0};
    how.hidden[0] = 0;
    CHECK(make(1, &how, 1e-5, &other, &e) == SPX_EUSAGE && strstr(spx_err_text(&e), "0 neurons"), "no neurons: %s",
          spx_err_text(&e));
    spx_templates_free(&other);
}

/* A parameter of two values: halfway between them the network is what is halfway between the spectra, not anything. */
static void between(void)
{
    enum { NA = 20, NW = 500 };
    static double wave[NW], par[2 * NA * 2];
    static float flux[2 * NA][NW];
    static const size_t none[1] = {0};
    spx_template_request request;
    spx_template_library lib = {.nwave = NW,
                                .wavelength = wave,
                                .ntemp = sizeof flux / sizeof *flux,
                                .npar = 2,
                                .params = par,
                                .parname = {"a", "b"}};
    spx_template_config cfg = {.nsetup = 1,
                               .setup = &request,
                               .pca_error = 1e-5,
                               .nn = {.nhidden = 2, .hidden = {24, 24}, .epochs = 1000, .seed = 3},
                               .nthreads = 1};
    for (size_t k = 0; k < NW; k++)
        wave[k] = 5000 + 0.2 * (double)k;
    for (size_t t = 0; t < lib.ntemp; t++) {
        double a = par[2 * t] = (double)(t / 2), b = par[2 * t + 1] = (double)(t % 2);
        for (size_t k = 0; k < NW; k++)
            flux[t][k] =
                (float)exp(-0.5 * sin(0.2 * a) * (1 + sin(0.15 * (double)k)) - 0.3 * b * (1 + cos(0.11 * (double)k)));
    }
    spx_template_job *job = NULL;
    spx_templates t = {0};
    spx_err e = {0};
    size_t first, n;
    spx_status st = spx_template_parse_setup("a:5010:5090:0.4:FWHM=0.5", &request, &e);
    if (st == SPX_OK)
        st = spx_template_begin(&lib, &cfg, &job, &e);
    if (st == SPX_OK) {
        spx_template_range(job, &first, &n);
        st = spx_template_add(job, 0, lib.ntemp, flux[0] + first, NW, &e);
    }
    if (st == SPX_OK)
        st = spx_template_finish(job, &t, NULL, &e);
    spx_template_free(job);
    CHECK(st == SPX_OK, "%s", spx_err_text(&e));
    const spx_setup *s = t.setup;
    double work[2 * 64], coef[64], worst = 0;
    for (size_t i = 1; i + 1 < NA && st == SPX_OK; i++) {
        double x[2] = {(double)i, 0.5};
        spx_nn_evaluate(&s->nn, x, 1, none, work, coef);
        for (size_t k = 0; k < s->nwave; k++) {
            double ln = s->pca.mean[k];
            for (size_t c = 0; c < s->pca.ncomp; c++)
                ln += coef[c] * (double)s->pca.comp[c * s->nwave + k];
            double mid = 0.5 * (double)(s->lnflux[2 * i * s->nwave + k] + s->lnflux[(2 * i + 1) * s->nwave + k]);
            worst = fmax(worst, fabs(ln - mid));
        }
    }
    CHECK(worst > 0 && worst < 0.02, "%g from what is halfway, of 0.6", worst);
    spx_templates_free(&t);
}

/* ---- fit ---- */

enum { NPIX = 280, NSTAR = 3 };

static void free_arms(spx_spectra *s)
{
    for (size_t a = 0; a < s->narm; a++) {
        spx_free(s->arm[a].wavelength);
        spx_free(s->arm[a].flux);
        spx_free(s->arm[a].ivar);
        spx_free(s->arm[a].mask);
    }
}

/* Stars that are the model itself, at v = 0 on the templates' pixels. */
static void draw(const spx_templates *t, const double x[][NPAR], spx_spectra *s)
{
    static const size_t none[1] = {0};
    *s = (spx_spectra){.nspec = NSTAR, .narm = t->nsetup};
    for (size_t a = 0; a < t->nsetup; a++) {
        const spx_setup *p = &t->setup[a];
        spx_arm *m = &s->arm[a];
        double work[2 * 64], coef[64];
        strcpy(m->name, p->setup);
        m->nwave = NPIX;
        m->wavelength = spx_alloc(NPIX, sizeof *m->wavelength, NULL);
        m->flux = spx_alloc2(NSTAR, NPIX, sizeof *m->flux, NULL);
        m->ivar = spx_alloc2(NSTAR, NPIX, sizeof *m->ivar, NULL);
        m->mask = spx_alloc2(NSTAR, NPIX, sizeof *m->mask, NULL);
        if (!m->wavelength || !m->flux || !m->ivar || !m->mask)
            exit(1);
        size_t begin = (size_t)((log(p->wmin + 2) - p->lnwave0) / p->dlnwave);
        for (size_t i = 0; i < NPIX; i++)
            m->wavelength[i] = exp(p->lnwave0 + (double)(begin + i) * p->dlnwave);
        for (size_t r = 0; r < NSTAR; r++) {
            spx_nn_evaluate(&p->nn, x[r], 1, none, work, coef);
            for (size_t i = 0; i < NPIX; i++) {
                double v = p->pca.mean[begin + i];
                for (size_t c = 0; c < p->pca.ncomp; c++)
                    v += coef[c] * (double)p->pca.comp[c * p->nwave + begin + i];
                m->flux[r * NPIX + i] = p->pca.of_flux ? v : exp(v);
                m->ivar[r * NPIX + i] = 1e4;
            }
        }
    }
}

/* Fitted parameters are those that went in; gradient against differences. */
static void fit(const spx_templates *t, const char *what)
{
    static const double x[NSTAR][NPAR] = {{3.70, -1.1, 7}, {3.742, -0.3, 7}, {3.79, -1.6, 7}};
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit fitted = {0};
    spx_err e = {0};
    draw(t, x, &s);
    spx_rvfit_input in = {.spectra = &s, .setup = {&t->setup[0], &t->setup[1]}, .nrow = NSTAR};
    double start[NSTAR * (2 + NPAR)], f[NSTAR], up[NSTAR], down[NSTAR], grad[NSTAR * (2 + NPAR)];
    spx_rvfit_options_init(&o);
    o.interpolator = SPX_INTERPOLATE_NN;
    o.npoly = 4;
    o.vmin = -90;
    o.vmax = 90;
    for (size_t r = 0; r < NSTAR; r++) {
        double *at = start + r * (2 + NPAR);
        at[0] = 5;
        at[1] = 12;
        at[2] = pow(10, x[r][0] + 0.01);
        at[3] = x[r][1] - 0.1;
        at[4] = 7;
    }
    in.start = start;
    CHECK(spx_rvfit_objective(&in, &o, start, f, grad, &e) == SPX_OK, "%s: %s", what, spx_err_text(&e));
    for (size_t q = 0; q < 4; q++) {
        double h = q == 2 ? 0.05 : 1e-4;
        for (size_t r = 0; r < NSTAR; r++)
            start[r * (2 + NPAR) + q] += h;
        CHECK(spx_rvfit_objective(&in, &o, start, up, NULL, &e) == SPX_OK, "%s: %s", what, spx_err_text(&e));
        for (size_t r = 0; r < NSTAR; r++)
            start[r * (2 + NPAR) + q] -= 2 * h;
        CHECK(spx_rvfit_objective(&in, &o, start, down, NULL, &e) == SPX_OK, "%s: %s", what, spx_err_text(&e));
        for (size_t r = 0; r < NSTAR; r++) {
            start[r * (2 + NPAR) + q] += h;
            double d = (up[r] - down[r]) / (2 * h), g = grad[r * (2 + NPAR) + q];
            CHECK(fabs(g - d) <= 2e-4 * fabs(d) + 1e-3, "%s: star %zu: derivative by quantity %zu is %g, difference %g",
                  what, r, q, g, d);
        }
    }
    CHECK(spx_rvfit_cpu(&in, &o, NULL, &fitted, &e) == SPX_OK, "%s: %s", what, spx_err_text(&e));
    for (size_t r = 0; r < NSTAR && fitted.nstar == NSTAR; r++) {
        const spx_rvfit_star *w = &fitted.star[r];
        CHECK(fabs(w->vrad) < 0.1 && fabs(w->par[0] / pow(10, x[r][0]) - 1) < 1e-3 && fabs(w->par[1] - x[r][1]) < 0.01,
              "%s: star %zu: v %g, teff %g, feh %g", what, r, w->vrad, w->par[0], w->par[1]);
    }
    spx_rvfit_free(&fitted);
    free_arms(&s);
}

/* The same with components of the flux itself: those of ln flux are near enough, with 1 + mean in place of exp. */
static void of_flux(spx_templates *t)
{
    for (size_t a = 0; a < t->nsetup; a++) {
        spx_setup *s = &t->setup[a];
        s->pca.of_flux = 1;
        for (size_t k = 0; k < s->nwave; k++)
            s->pca.mean[k] += 1.5;
    }
    fit(t, "components of flux");
}

/* ---- a network that gives spectra ---- */

/* Stars of an imported network: auto takes what is there, the start comes from its own cross-correlation set. Its lines
 * are weak: at a signal-to-noise ratio of a hundred, chi^2 was the same within 0.1 from end to end. */
static void fit_imported(const spx_templates *t)
{
    static const double x[NSTAR][NPAR] = {{5000, -1.1}, {5600, -0.4}, {6100, -1.5}};
    spx_spectra s;
    spx_rvfit_options o;
    spx_rvfit fitted = {0};
    spx_err e = {0};
    draw(t, x, &s);
    for (size_t i = 0; i < NSTAR * NPIX; i++)
        s.arm[0].ivar[i] *= 400;
    spx_rvfit_input in = {.spectra = &s, .setup = {&t->setup[0]}, .nrow = NSTAR};
    spx_rvfit_options_init(&o);
    o.npoly = 3;
    o.vmin = -500;
    o.vmax = 500;
    CHECK(spx_rvfit_cpu(&in, &o, NULL, &fitted, &e) == SPX_OK, "imported: %s", spx_err_text(&e));
    for (size_t r = 0; r < NSTAR && fitted.nstar == NSTAR; r++) {
        const spx_rvfit_star *w = &fitted.star[r];
        CHECK(w->success && w->chisq < 1e-3 && fabs(w->vrad) < 0.2 * w->vrad_err &&
                  fabs(w->par[0] - x[r][0]) < 0.2 * w->par_err[0] && fabs(w->par[1] - x[r][1]) < 0.2 * w->par_err[1],
              "imported: star %zu: v %g +- %g, teff %g +- %g, feh %g +- %g, chi^2 %g, success %d", r, w->vrad,
              w->vrad_err, w->par[0], w->par_err[0], w->par[1], w->par_err[1], w->chisq, (int)w->success);
    }
    spx_rvfit_free(&fitted);
    free_arms(&s);
}

/* Its templates at a point against the spectrum that the network gives there, through the LSF as a spectrum. */
static void imported(void)
{
    enum { NX = 900, NH = 9 };
    static const size_t size[] = {2, 12, NH, NX};
    static double wave[NX], x[2] = {5200, -0.7};
    static float flux[2][NX];
    spx_network net = {.npar = 2, .parname = {"teff", "feh"}, .nwave = NX, .wavelength = wave, .of_flux = 1};
    random_network(&net.nn, SPX_NN_LEAKY, 3, size);
    spx_nn *nn = &net.nn;
    nn->lo[0] = 4500;
    nn->hi[0] = 6500;
    nn->lo[1] = -2;
    nn->hi[1] = 0;
    for (size_t p = 0; p < 2; p++) {
        nn->offset[p] = 0.5 * (nn->lo[p] + nn->hi[p]);
        nn->scale[p] = 1 / (nn->hi[p] - nn->lo[p]);
    }
    for (size_t k = 0; k < NX; k++) { /* a continuum of 1 with lines */
        wave[k] = 5000 + 0.2 * (double)k;
        nn->bias[12 + NH + k] = 1;
        for (size_t j = 0; j < NH; j++)
            nn->weight[2 * 12 + 12 * NH + k * NH + j] = (float)(0.08 * sin((double)(k * (j + 3)) / 7));
    }
    static const size_t none[1] = {0};
    static double work[2 * NX], out[NX], par[2] = {1, 2};
    spx_nn_evaluate(nn, x, 1, none, work, out);
    for (size_t k = 0; k < NX; k++)
        flux[0][k] = flux[1][k] = (float)out[k];
    spx_template_request request;
    static const double vsini[] = {0, 50};
    spx_template_config cfg = {.nsetup = 1,
                               .setup = &request,
                               .library_resolution = "R=20000",
                               .ccf = 1,
                               .nccf_vsini = 2,
                               .ccf_vsini = vsini,
                               .nthreads = 1};
    spx_template_library lib = {
        .nwave = NX, .wavelength = wave, .ntemp = 2, .npar = 1, .params = par, .parname = {"row"}};
    spx_templates t = {0}, want = {0};
    spx_template_report rep = {0};
    spx_template_job *job = NULL;
    spx_err e = {0};
    size_t first, n;
    CHECK(spx_template_parse_setup("b:5030:5150:0.4:FWHM=0.9", &request, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(spx_template_import(&net, &cfg, 30, &t, &rep, &e) == SPX_OK && rep.nccf == 60, "%s", spx_err_text(&e));
    cfg.ccf = 0;
    CHECK(spx_template_begin(&lib, &cfg, &job, &e) == SPX_OK, "%s", spx_err_text(&e));
    spx_template_range(job, &first, &n);
    CHECK(spx_template_add(job, 0, 2, flux[0] + first, NX, &e) == SPX_OK &&
              spx_template_finish(job, &want, NULL, &e) == SPX_OK,
          "%s", spx_err_text(&e));
    const spx_setup *s = t.setup, *w = want.setup;
    CHECK(s->pca.of_flux && s->pca.ncomp == NH && s->nn.size[3] == NH && s->nwave == w->nwave, "shape");
    double coef[NH], worst = 0;
    spx_nn_evaluate(&s->nn, x, 1, none, work, coef);
    for (size_t k = 0; k < s->nwave; k++) {
        double f = s->pca.mean[k];
        for (size_t c = 0; c < NH; c++)
            f += coef[c] * (double)s->pca.comp[c * s->nwave + k];
        worst = fmax(worst, fabs(log(f) - (double)w->lnflux[k]));
    }
    CHECK(worst < 2e-6, "the network is off by %g in ln flux", worst);
    for (size_t i = 0; i < s->ntemp; i++)
        for (size_t p = 0; p < 2; p++)
            CHECK(s->params[2 * i + p] > nn->lo[p] && s->params[2 * i + p] < nn->hi[p], "template %zu is outside", i);
    fit_imported(&t);
    spx_template_free(job);
    spx_templates_free(&t);
    spx_templates_free(&want);
    net.of_flux = 0;
    e = (spx_err){0};
    CHECK(spx_template_import(&net, &cfg, 30, &t, &rep, &e) == SPX_EUSAGE && strstr(spx_err_text(&e), "blurred"), "%s",
          spx_err_text(&e));
    spx_templates_free(&t);
    spx_free(nn->weight);
    spx_free(nn->bias);
}

int main(void)
{
    spx_templates t;
    open_device(&backend, SPX_OP_TEMPLATE);
    random_start(seed);
    arithmetic();
    training(&t);
    between();
    fit(&t, "components of ln flux");
    of_flux(&t);
    spx_templates_free(&t);
    imported();
    spx_backend_close(&backend);
    if (failures)
        printf("seed %llu\n", (unsigned long long)seed);
    return failures != 0;
}
