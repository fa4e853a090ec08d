/* Cases of the operation `flux`: the response from standard stars, and spectra calibrated with it. Sizes: spectra,
 * standards, bins, diagonals, and 1: models are wrong, bins are masked, no star has some of them. test_flux.c compares
 * with dense algebra; here backends are compared.
 *
 * Tolerance: a response to 1e-9 of itself, with conditions of 1e7 of the normal matrix; that is below 1e-6 of its
 * error, which is never below 1e-3. Inverse variances and matrices follow it. */
#include <math.h>
#include <string.h>

#include "device.h"
#include "flux_scene.h"
#include "op.h"

static const op_case cases[] = {
    {"five stars", {6, 5, 180, 7, 0}},      {"20 stars of 40 fibres", {40, 20, 500, 11, 1}},
    {"three stars", {3, 3, 120, 11, 0}},    {"one diagonal", {4, 4, 150, 1, 1}},
    {"many diagonals", {7, 6, 300, 21, 1}},
};

typedef struct {
    flux_scene s;
    spx_flux_options o;
} scene;

static void *draw(const size_t *size, uint64_t seed)
{
    scene *c = need(1, sizeof *c);
    const flux_scene_how right = {.first = 7520, .sn = 40};
    const flux_scene_how wrong = {.first = 7500, .sn = 25, .tilt = 0.02, .wave = 0.01, .grain = 0.01};
    flux_scene_draw(&c->s, size[0], size[1], size[2], size[3], seed, size[4] ? &wrong : &right);
    for (size_t k = 0; k < size[0] * size[2] && size[4]; k += 13)
        c->s.arm.mask[k] = 4;
    for (size_t i = 0; i < size[0] && size[4]; i++)
        for (size_t k = 90; k < 94; k++)
            c->s.arm.ivar[i * size[2] + k] = 0;
    spx_flux_options_init(&c->o);
    c->o.nband = spx_flux_nband;
    c->o.band = spx_flux_bands[0];
    op_const("flux", c->s.arm.flux, size[0] * size[2], sizeof(double));
    op_const("ivar", c->s.arm.ivar, size[0] * size[2], sizeof(double));
    op_const("resolution", c->s.arm.resolution, size[0] * size[3] * size[2], sizeof(double));
    op_const("model", c->s.model, size[1] * size[2], sizeof(double));
    return c;
}

static void relative(op_answer *a, const char *name, size_t n, const double *v, double tolerance)
{
    double *scale, most = 0, *out = op_add(a, name, n, tolerance, &scale);
    for (size_t k = 0; k < n; k++)
        most = fmax(most, fabs(v[k]));
    for (size_t k = 0; k < n; k++) {
        out[k] = v[k];
        scale[k] = most;
    }
}

static void run(spx_backend *b, void *scene_, int threads, op_answer *a)
{
    scene *c = scene_;
    const size_t nspec = c->s.nspec, n = c->s.n, nd = c->s.ndiag;
    spx_flux *f = op_output("response", 1, sizeof *f);
    spx_arm arm = c->s.arm;
    spx_err e = {0};
    arm.flux = op_output("calibrated flux", nspec * n, sizeof *arm.flux);
    arm.ivar = op_output("calibrated ivar", nspec * n, sizeof *arm.ivar);
    arm.mask = op_output("calibrated mask", nspec * n, sizeof *arm.mask);
    arm.resolution = op_output("calibrated resolution", nspec * nd * n, sizeof *arm.resolution);
    memcpy(arm.flux, c->s.arm.flux, nspec * n * sizeof *arm.flux);
    memcpy(arm.ivar, c->s.arm.ivar, nspec * n * sizeof *arm.ivar);
    memcpy(arm.mask, c->s.arm.mask, nspec * n * sizeof *arm.mask);
    memcpy(arm.resolution, c->s.arm.resolution, nspec * nd * n * sizeof *arm.resolution);
    c->o.nthreads = threads;
    if (!op_done(b->flux_solve(b, &c->s.arm, &c->s.in, &c->o, f, &e), &e))
        return;
    f->floor = 0.003;
    size_t nbad = 0;
    double *fate = op_add(a, "fate", c->s.nstar, 0, NULL), *stars = op_add(a, "stars", n, 0, NULL);
    double *scale = op_add(a, "scale", c->s.nstar, 1e-9, NULL);
    for (size_t i = 0; i < c->s.nstar; i++) {
        fate[i] = (double)f->star[i].fate + 10. * (double)f->star[i].nreject;
        scale[i] = f->star[i].scale;
    }
    for (size_t k = 0; k < n; k++)
        stars[k] = f->stars[k];
    relative(a, "response", n, f->response, 1e-9);
    relative(a, "covariance", nd * n, f->covariance, 1e-8);
    relative(a, "model error", n, f->model_error, 1e-6);
    if (op_done(b->flux_apply(b, f, 0.9, threads, nspec, &arm, &nbad, &e), &e)) {
        relative(a, "flux", nspec * n, arm.flux, 1e-8);
        relative(a, "ivar", nspec * n, arm.ivar, 1e-8);
        relative(a, "resolution", nspec * nd * n, arm.resolution, 1e-8);
        double *mask = op_add(a, "mask", nspec * n + 1, 0, NULL);
        for (size_t k = 0; k < nspec * n; k++)
            mask[k] = arm.mask[k];
        mask[nspec * n] = (double)nbad;
    }
    spx_flux_free(f);
}

static void release(void *scene_)
{
    scene *c = scene_;
    flux_scene_free(&c->s);
    spx_free(c);
}

const op_test op_flux = {sizeof cases / sizeof *cases, cases, draw, run, NULL, release};
