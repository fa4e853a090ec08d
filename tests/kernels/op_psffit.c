/* Cases of the operation `psffit`. Sizes: fibres, fibres of a bundle, exposures, lines, and the sum of 1 traces alone,
 * 2 a continuum that ends in the middle, 4 hits that nobody flagged, 8 a dead fibre, 16 a tail, 32 calls by several
 * threads at the same time, of which each has the bits of the others. There is no plain reference: test_psffit.c has
 * dense normal equations, and the truth of scenes.
 *
 * Tolerance: a fit ends where a step changes chi^2 by less than 1e-5 of itself. Backends whose steps differ by
 * rounding, 1e-13 of a pixel after a dozen of them, part only where a pixel lies at a limit of the rejection: places
 * are the same to 1e-6 pixel, spots to 1e-6 of their peak, fluxes and errors to 1e-6 of themselves. */
#include "device.h"
#include "num/blas.h"
#include "op.h"
#include "psffit_scene.h"

enum { ALONE = 1, EDGE = 2, HITS = 4, DEAD = 8, TAIL = 16, TOGETHER = 32, CALLS = 4, WAVES = 5 };
#define NEAR 1e-6

static const op_case cases[] = {
    {"two bundles", {10, 5, 1, 14, 0}},
    {"three exposures", {5, 5, 3, 12, 0}},
    {"traces alone", {5, 5, 2, 14, ALONE}},
    {"continuum with an edge, hits", {6, 6, 1, 14, EDGE | HITS}},
    {"a dead fibre, a bundle of fewer fibres", {8, 6, 1, 14, DEAD}},
    {"a tail", {5, 5, 1, 12, TAIL}},
    {"calls side by side", {10, 5, 1, 12, TOGETHER}},
};

typedef struct {
    psffit_scene s;
    spx_psffit_options o;
    int tail, together;
} scene;

static void *draw(const size_t *size, uint64_t seed)
{
    static const double shift[3][2] = {{0, 0}, {0.3, -0.2}, {-0.4, 0.35}};
    unsigned char *dead = need(size[0], 1);
    scene *c = need(1, sizeof *c);
    const psffit_request r = {.nspec = size[0],
                              .bundle = size[1],
                              .ny = 240,
                              .nexp = size[2],
                              .nline = size[3],
                              .faint = 2000,
                              .bright = 40000,
                              .continuum = size[4] & EDGE ? 60 : 5,
                              .edge = size[4] & EDGE ? 0.7 : 0,
                              .hits = size[4] & HITS ? 200 : 0,
                              .readnoise = 3,
                              .deg = 3,
                              .seed = seed,
                              .noise = 1};
    spx_err e = {0};
    dead[2] = (size[4] & DEAD) != 0;
    int ok = spx_blas_open(&e) == SPX_OK && scene_make(&r, 0, &c->s);
    for (size_t x = 0; x < r.nexp && ok; x++)
        ok = scene_expose(&c->s, x, shift[x][0], shift[x][1], dead);
    spx_free(dead);
    if (!ok) {
        puts("no scene");
        exit(1);
    }
    c->o = spx_psffit_defaults();
    c->o.hermite_degree = 3;
    c->o.trace_degree = 4;
    c->o.bundle_size = size[1];
    c->o.fix_shape = (size[4] & ALONE) != 0;
    c->tail = (size[4] & TAIL) != 0;
    c->together = (size[4] & TOGETHER) != 0;
    for (size_t x = 0; x < r.nexp; x++)
        op_const("image", c->s.image[x].data, c->s.image[x].ny * c->s.image[x].nx, sizeof *c->s.image[x].data);
    return c;
}

/* Places of spots and their pixels, in units of the peak. */
static void put_spots(const spx_psf *p, op_answer *a)
{
    const size_t npix = (size_t)(spx_psf_nx(p) * spx_psf_ny(p)), n = p->nspec * WAVES;
    double *place = op_add(a, "places", 2 * n, NEAR, NULL), *spot = op_add(a, "spots", n * npix, NEAR, NULL);
    double *work = need(spx_psf_spot_work(p), sizeof *work);
    for (size_t k = 0; k < n; k++) {
        const size_t i = k / WAVES;
        const double wave = p->y.wmin + (p->y.wmax - p->y.wmin) * (0.2 + 0.15 * (double)(k % WAVES));
        double most = 0;
        spx_spot at;
        if (spx_psf_spot(p, i, wave, work, spot + k * npix, &at) != SPX_SPOT_OK)
            continue;
        place[2 * k] = at.x;
        place[2 * k + 1] = at.y;
        for (size_t m = 0; m < npix; m++)
            most = fmax(most, spot[k * npix + m]);
        for (size_t m = 0; m < npix; m++)
            spot[k * npix + m] /= most;
    }
    spx_free(work);
}

static int same(const double *a, const double *b, size_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}

/* Calls beside each other; how many have other bits than *psf and *fit. */
static size_t call_together(spx_backend *b, const spx_psffit_input *in, const spx_psffit_options *o, const spx_psf *psf,
                            const spx_psffit *fit)
{
    size_t differ = 0;
#pragma omp parallel for num_threads(CALLS) schedule(static, 1) reduction(+ : differ)
    for (int k = 0; k < CALLS; k++) {
        spx_psf mine = {0};
        spx_psffit found = {0};
        spx_err e = {0};
        differ += b->psffit(b, in, o, NULL, &mine, &found, &e) != SPX_OK ||
                  !same(mine.x.coef, psf->x.coef, psf->nspec * psf->x.ncoef) ||
                  !same(mine.y.coef, psf->y.coef, psf->nspec * psf->y.ncoef) ||
                  !same(mine.coeff, psf->coeff, psf->npar * psf->nspec * psf->ndeg) ||
                  !same(found.flux, fit->flux, fit->nexp * fit->nspec * fit->nline);
        spx_psf_free(&mine);
        spx_psffit_free(&found);
    }
    return differ;
}

static void run(spx_backend *b, void *scene_, int threads, op_answer *a)
{
    const scene *c = scene_;
    spx_psffit_options o = c->o;
    spx_psffit_tail tail = {.fit = 1, .core = 1};
    spx_psf psf = {0};
    spx_psffit fit = {0};
    spx_err e = {0};
    const spx_psffit_input in = {.nexp = c->s.r.nexp,
                                 .image = c->s.image,
                                 .start = o.fix_shape ? &c->s.truth : &c->s.start,
                                 .nline = c->s.r.nline,
                                 .line = c->s.line};
    o.nthreads = threads;
    if (op_done(b->psffit(b, &in, &o, c->tail ? &tail : NULL, &psf, &fit, &e), &e)) {
        const size_t n = fit.nexp * fit.nspec * fit.nline;
        put_spots(&psf, a);
        double *scale, *flux = op_add(a, "fluxes", n, NEAR, &scale);
        for (size_t k = 0; k < n; k++) {
            flux[k] = fit.flux[k];
            scale[k] = fit.flux_ivar[k] > 0 ? 1 / sqrt(fit.flux_ivar[k]) : 1;
        }
        double *error = op_add(a, "errors", 2 * fit.nspec, NEAR, NULL),
               *status = op_add(a, "flags", fit.nspec, 0, NULL);
        for (size_t i = 0; i < fit.nspec; i++) {
            error[2 * i] = fit.fibre[i].x_error;
            error[2 * i + 1] = fit.fibre[i].y_error;
            status[i] = fit.fibre[i].status;
        }
        op_put(a, "psferr", 1, &psf.psferr, NEAR);
        op_put(a, "tail", 2, tail.amplitude, NEAR);
        const double differ = c->together ? (double)call_together(b, &in, &o, &psf, &fit) : 0;
        op_put(a, "calls that differ", 1, &differ, 0);
    }
    spx_psf_free(&psf);
    spx_psffit_free(&fit);
}

static void release(void *scene_)
{
    scene *c = scene_;
    scene_free(&c->s);
    spx_free(c);
}

const op_test op_psffit = {sizeof cases / sizeof *cases, cases, draw, run, NULL, release};
