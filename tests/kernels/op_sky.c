/* Cases of the operation `sky`. Sizes: fibres, bins, diagonals, every which fibre is sky, what there is
 * (sky_scene.h) + 256 times what the scale multiplies.
 *
 * Tolerance between backends: 1e-6 of the error of a bin, and of a quantity; variances 1e-6 of themselves. Sums of some
 * thousand terms are rounded by 1e-13, and the normal matrix has a condition of some 1e6. */
#include <math.h>

#include "op.h"
#include "sky_scene.h"

typedef struct {
    sky_scene s;
    spx_sky_options o;
} scene;

static const op_case cases[] = {
    {"sky fibres alone", {20, 300, 11, 1, SKY_SHIFTS}},
    {"stars", {30, 700, 11, 3, SKY_SHIFTS | SKY_STARS | SKY_MASKS}},
    {"one sky fibre", {8, 300, 7, 8, SKY_STARS}},
    {"barycentric", {24, 400, 11, 2, SKY_SHIFTS | SKY_STARS | SKY_VELOCITY}},
    {"gradient", {40, 500, 9, 2, SKY_SHIFTS | SKY_STARS | SKY_GRADIENT}},
    {"gradient and amplifiers", {40, 500, 11, 2, SKY_STARS | SKY_GRADIENT | SKY_SECTORS}},
    {"scale of lines", {30, 500, 11, 3, SKY_SHIFTS | SKY_STARS | 256 * SPX_SKY_SCALE_LINES}},
    {"no scale, 5 diagonals", {30, 500, 5, 3, SKY_STARS | 256 * SPX_SKY_SCALE_NONE}},
};

static void *draw(const size_t *size, uint64_t seed)
{
    scene *c = sky_need(1, sizeof *c);
    random_start(seed + 1);
    sky_make(&c->s, size[0], size[1], size[2], size[3], (int)(size[4] % 256), 1);
    c->o = spx_sky_defaults();
    c->o.scale = (spx_sky_scale)(size[4] / 256);
    op_const("resolution", c->s.resolution, size[0] * size[1] * size[2], sizeof(double));
    op_const("flux", c->s.flux, size[0] * size[1], sizeof(double));
    op_const("ivar", c->s.ivar, size[0] * size[1], sizeof(double));
    op_const("role", c->s.role, size[0], 1);
    return c;
}

static void run(spx_backend *b, void *scene_, int threads, op_answer *a)
{
    scene *c = scene_;
    spx_sky *out = op_output("sky", 1, sizeof *out);
    spx_err e = {0};
    spx_sky_options o = c->o;
    o.nthreads = threads;
    if (op_done(b->sky(b, &c->s.in, &o, out, &e), &e)) {
        const size_t ns = out->nspec, n = out->nwave, nq = out->nq;
        double *scale, *v = op_add(a, "model", ns * n, 1e-6, &scale);
        for (size_t k = 0; k < ns * n; k++) {
            v[k] = out->model[k];
            scale[k] = c->s.ivar[k] > 0 ? 1 / sqrt(c->s.ivar[k]) : 10;
        }
        v = op_add(a, "variance", ns * n, 1e-6, &scale);
        for (size_t k = 0; k < ns * n; k++)
            scale[k] = v[k] = out->variance[k];
        v = op_add(a, "quantities", ns * nq, 1e-6, &scale);
        for (size_t k = 0; k < ns * nq; k++) {
            v[k] = out->p[k];
            scale[k] = sqrt(out->cov[(k / nq * nq + k % nq) * nq + k % nq]);
        }
        v = op_add(a, "sky", n, 1e-6, &scale);
        for (size_t k = 0; k < n; k++) {
            v[k] = out->s[k];
            scale[k] = sqrt(out->covariance[k]);
        }
        op_put(a, "chi2", ns, out->chi2_loo, 1e-6);
        v = op_add(a, "bad", n, 0, NULL);
        for (size_t k = 0; k < n; k++)
            v[k] = out->bad[k];
        v = op_add(a, "role", ns, 0, NULL);
        for (size_t i = 0; i < ns; i++)
            v[i] = out->role[i];
        v = op_add(a, "rejected", ns, 0, NULL);
        for (size_t i = 0; i < ns; i++)
            v[i] = out->nrejected[i];
    }
    spx_sky_free(out);
}

static void release(void *scene_)
{
    scene *c = scene_;
    sky_free(&c->s);
    spx_free(c);
}

const op_test op_sky = {sizeof cases / sizeof *cases, cases, draw, run, NULL, release};
