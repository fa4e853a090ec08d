/* Cases of the operation `rvfit`, against the velocities that the stars were made with. Sizes: stars, interpolator,
 * exposures of a star (0: rows are fitted by themselves), 1: some pixels masked and the last star without any.
 *
 * Tolerance: devices agree on the minimum, the objective to 1e-4 and the velocity to 1e-3 of its error, beyond which
 * rounding moves the search. The truth is known to some errors of 0.2 km/s; 3 km/s tells a wrong minimum. */
#include "op.h"
#include "rv_stars.h"

typedef struct {
    spx_spectra s;
    spx_rvfit_input in;
    spx_rvfit_options o;
    size_t nstar, *first;
    double *v;
} scene;

static spx_templates templates;

static const op_case cases[] = {
    {"two stars, cubic", {2, SPX_INTERPOLATE_CUBIC, 0, 0}},
    {"no star", {0, SPX_INTERPOLATE_CUBIC, 0, 0}},
    {"one star, linear", {1, SPX_INTERPOLATE_GRID, 0, 0}},
    {"three stars, simplices, masked", {3, SPX_INTERPOLATE_SIMPLEX, 0, 1}},
    {"five stars, cubic, masked", {5, SPX_INTERPOLATE_CUBIC, 0, 1}},
    {"two stars of three exposures", {2, SPX_INTERPOLATE_CUBIC, 3, 0}},
};

static void *draw_scene(const size_t *size, uint64_t seed)
{
    scene *c = need(1, sizeof *c);
    const size_t nexp = size[2] > 0 ? size[2] : 1, nrow = size[0] * nexp;
    if (templates.nsetup == 0) {
        random_start(20240517); /* one library for all seeds */
        make_lines();
        make_templates(&templates);
    }
    random_start(seed);
    interpolator = (spx_interpolator)size[1];
    init(&c->o);
    c->nstar = size[0];
    c->v = need(c->nstar + 1, sizeof *c->v);
    c->first = need(c->nstar + 1, sizeof *c->first);
    alloc_spectra(&c->s, nrow);
    for (size_t k = 0; k < c->nstar; k++) {
        const truth t = {.v = 600 * uniform() - 300,
                         .vsini = 30 * uniform(),
                         .teff = 4700 + 1600 * uniform(),
                         .feh = -1.8 + 1.6 * uniform(),
                         .sn = 60};
        c->v[k] = t.v;
        c->first[k + 1] = (k + 1) * nexp;
        for (size_t row = k * nexp; row < (k + 1) * nexp; row++)
            draw(&c->s, row, &t);
    }
    for (size_t a = 0; a < NARM && size[3] != 0; a++)
        for (size_t i = 0; i < nrow * NPIX; i++) {
            if (i / NPIX + 1 == nrow)
                c->s.arm[a].ivar[i] = 0;
            else if (uniform() < 0.03)
                c->s.arm[a].flux[i] = NAN;
            else if (uniform() < 0.03)
                c->s.arm[a].mask[i] = 1;
        }
    if (size[3] != 0)
        c->v[c->nstar - 1] = NAN;
    c->in = input_of(&c->s, &templates);
    if (size[2] > 0) {
        c->in.nstar = c->nstar;
        c->in.first = c->first;
    }
    for (size_t a = 0; a < NARM; a++) {
        op_const("flux", c->s.arm[a].flux, nrow * NPIX, sizeof(double));
        op_const("ivar", c->s.arm[a].ivar, nrow * NPIX, sizeof(double));
    }
    return c;
}

static void run(spx_backend *b, void *scene_, int threads, op_answer *a)
{
    const scene *c = scene_;
    spx_rvfit_options o = c->o;
    spx_rvfit *out = op_output("rvfit", 1, sizeof *out);
    spx_err e = {0};
    o.threads = threads;
    if (!op_done(b->rvfit(b, &c->in, &o, NULL, out, &e), &e))
        return;
    const size_t n = out->nstar;
    double *scale, *v = op_add(a, "vrad", n, 1e-3, &scale), *objective = op_add(a, "neg2logl", n, 1e-4, NULL);
    double *npix = op_add(a, "npix", n, 0, NULL), *bad = op_add(a, "bad", n, 0, NULL);
    for (size_t k = 0; k < n; k++) {
        const spx_rvfit_star *s = &out->star[k];
        v[k] = s->vrad;
        scale[k] = s->vrad_err;
        objective[k] = s->neg2logl;
        npix[k] = (double)s->npix;
        bad[k] = (s->warn & SPX_RVS_BAD) != 0;
    }
    spx_rvfit_free(out);
}

static void reference(void *scene_, op_answer *a)
{
    const scene *c = scene_;
    op_put(a, "vrad", c->nstar, c->v, 3);
    double *bad = op_add(a, "bad", c->nstar, 0, NULL);
    for (size_t k = 0; k < c->nstar; k++)
        bad[k] = isnan(c->v[k]);
}

static void release(void *scene_)
{
    scene *c = scene_;
    free_spectra(&c->s);
    spx_free(c->v);
    spx_free(c->first);
    spx_free(c);
}

const op_test op_rvfit = {sizeof cases / sizeof *cases, cases, draw_scene, run, reference, release};
