/* check_psffit [small|time [BUNDLES [LINES [TIMES]]]]: the fit of PSFs on a CUDA device against the CPU (psffit/fit.h).
 *
 * Steps of one bundle, each after the same steps before it: weights, spots, fluxes, background, gradient and matrix.
 * Then whole fits: with a free and a fixed shape, several exposures, blends, cosmic-ray hits, a tail; and the same bits
 * when repeated. `small`: the steps alone, for compute-sanitizer; `time`: seconds of a camera of BUNDLES bundles (20)
 * with 67 and 165 lines, TIMES times (4), beside those of all threads of the CPU, and the steps of the last. Built by
 * make cuda-tests, and for an emulated device (test_psffit_emulated).
 *
 * Tolerances. Weights are of single precision, 6e-8; a solution of normal equations has the rounding of double
 * precision times their condition, for which 1e-9 of a diagonal is added where that is bad. Where the fit ends depends
 * on that within what its last step would still change: 1e-6 pixel, 1e-6 of the peak. */
#include <omp.h>

#include "../kernels/check.h"
#include "../kernels/psffit_blends.h"
#include "base/clock.h"
#include "num/blas.h"
#include "psffit/cuda/psffit_cuda.h"
#include "psffit/tail_fit.h"
#include "timed_device.h"

static spx_pf_device device;

/* ---- steps ---- */

enum { WEIGHTS, FLUXES, BACKGROUND, CLIPPED, MATRIX, STEPS };

typedef struct {
    spx_pf_bundle b;
    double *h, *g, *g2;
    size_t n;
} stepped;

/* Arrays of a device's bundle, for the host. */
static void take_arrays(spx_pf_bundle *b)
{
    const spx_pf_plan *p = b->p;
    const size_t n = p->height * b->width, spots = b->nspot + 1;
    spx_err e = {0};
    for (size_t x = 0; x < p->nexp; x++) {
        b->px[x].root = spx_alloc(n, sizeof *b->px[x].root, &e);
        b->px[x].ground = spx_alloc(n, sizeof *b->px[x].ground, &e);
        b->px[x].goal = spx_alloc(n, sizeof *b->px[x].goal, &e);
        b->px[x].rejected = spx_alloc(n, 1, &e);
    }
    b->now.c = spx_alloc2(spots, (size_t)p->nc, sizeof *b->now.c, &e);
    b->now.spot = spx_alloc2(spots, (size_t)(p->nx * p->ny), sizeof *b->now.spot, &e);
    b->now.light = spx_alloc2(p->nexp, n, sizeof *b->now.light, &e);
    CHECK(p->device->take_arrays(b) && p->device->places(b, NULL) && (b->ngroup == 0 || p->device->take_fluxes(b)),
          "arrays of the device");
}

/* The steps up to `last` of a bundle, on the CPU or the device. */
static void run_steps(const spx_pf_plan *p, const spx_pf_line *line, size_t nline, int last, stepped *to)
{
    spx_err e = {0};
    spx_pf_bundle *b = &to->b;
    int ok = 0;
    memset(to, 0, sizeof *to);
    CHECK(spx_pf_open(p, 0, 4, nline, line, NULL, b, &e) == SPX_OK, "%s", spx_err_text(&e));
    if (p->nshift > 0) {
        b->now.theta[b->shift0] = 0.25;
        b->now.theta[b->shift0 + 1] = -0.15;
    }
    if (p->device != NULL)
        CHECK(p->device->begin(b, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(spx_pf_first_weights(b, 0.05, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(spx_pf_spots(b, &b->now) && spx_pf_regroup(b, 0, &e) == SPX_OK, "%s", spx_err_text(&e));
    if (last >= FLUXES)
        CHECK(spx_pf_fluxes(b, &b->now), "no fluxes");
    if (last >= BACKGROUND)
        CHECK(spx_pf_background(b, &ok, &e) == SPX_OK && ok, "no background: %s", spx_err_text(&e));
    if (last >= CLIPPED) {
        spx_pf_weights(b, 0.02, 1);
        CHECK(spx_pf_fluxes(b, &b->now), "no fluxes");
        spx_pf_weights(b, 0.01, 1);
        CHECK(spx_pf_fluxes(b, &b->now) && spx_pf_regroup(b, 0, &e) == SPX_OK, "%s", spx_err_text(&e));
        CHECK(spx_pf_background(b, &ok, &e) == SPX_OK && ok, "no background: %s", spx_err_text(&e));
        CHECK(spx_pf_fluxes(b, &b->now), "no fluxes");
    }
    to->n = spx_pf_columns(b);
    if (last >= MATRIX) {
        for (size_t l = 0; l < b->nl; l++)
            b->line[l].weak = l == 3;
        if (b->there != NULL)
            CHECK(p->device->regroup(b), "groups");
        to->h = spx_alloc2(to->n, to->n, sizeof *to->h, &e);
        to->g = spx_alloc(to->n, sizeof *to->g, &e);
        to->g2 = spx_alloc(to->n, sizeof *to->g, &e);
        CHECK(spx_pf_normal(b, to->h, to->g, &ok, &e) == SPX_OK && ok, "no matrix: %s", spx_err_text(&e));
        if (b->there != NULL)
            CHECK(p->device->take_matrix(b, to->h), "no matrix from the device");
        CHECK(spx_pf_gradient(b, to->g2, &e) == SPX_OK, "%s", spx_err_text(&e));
    }
    if (b->there != NULL) {
        take_arrays(b);
        CHECK(p->device->end(b, &e) == SPX_OK, "%s", spx_err_text(&e));
    }
}

static void close_steps(stepped *s)
{
    spx_pf_close(&s->b);
    spx_free(s->h);
    spx_free(s->g);
    spx_free(s->g2);
}

/* Largest difference, in units of the largest value. */
static void compare(const char *name, int step, size_t n, const double *a, const double *b, double tolerance)
{
    double most = 0, off = 0;
    size_t where = 0;
    for (size_t k = 0; k < n; k++) {
        most = fmax(most, fabs(a[k]));
        if (!(fabs(a[k] - b[k]) <= off)) {
            off = fabs(a[k] - b[k]);
            where = k;
        }
    }
    CHECK(off <= tolerance * most, "step %d, %s: element %zu of %zu is %.15g, not %.15g; largest %g", step, name, where,
          n, n > 0 ? b[where] : 0, n > 0 ? a[where] : 0, most);
}

static void compare_floats(const char *name, int step, size_t n, const float *a, const float *b, double tolerance)
{
    double *x = spx_alloc(n + 1, sizeof *x, NULL), *y = spx_alloc(n + 1, sizeof *y, NULL);
    for (size_t k = 0; x != NULL && y != NULL && k < n; k++) {
        x[k] = a[k];
        y[k] = b[k];
    }
    compare(name, step, n, x, y, tolerance);
    spx_free(x);
    spx_free(y);
}

static void compare_steps(int last, const stepped *a, const stepped *b)
{
    const spx_pf_bundle *x = &a->b, *y = &b->b;
    const size_t n = x->p->height * x->width, npix = (size_t)(x->p->nx * x->p->ny), nc = (size_t)x->p->nc;
    CHECK(x->nspot == y->nspot && a->n == b->n && x->ngroup == y->ngroup, "%zu spots and %zu", x->nspot, y->nspot);
    for (size_t k = 0; k < x->nspot; k++) {
        const spx_pf_at *p = &x->now.at[k], *q = &y->now.at[k];
        CHECK(p->xc == q->xc && p->yc == q->yc && p->x0 == q->x0 && p->x1 == q->x1 && p->y0 == q->y0 && p->y1 == q->y1,
              "spot %zu: corner %ld, %ld, not %ld, %ld", k, q->xc, q->yc, p->xc, p->yc);
        if (p->y0 == p->y1)
            continue;
        compare("coefficients", last, nc, x->now.c + k * nc, y->now.c + k * nc, 1e-13);
        compare("spot", last, npix, x->now.spot + k * npix, y->now.spot + k * npix, 1e-12);
    }
    for (size_t e = 0; e < x->p->nexp; e++) {
        size_t other = 0;
        compare_floats("root", last, n, x->px[e].root, y->px[e].root, 1e-6);
        compare("goal", last, n, x->px[e].goal, y->px[e].goal, 1e-6);
        compare("background", last, n, x->px[e].ground, y->px[e].ground, 1e-6);
        for (size_t k = 0; k < n; k++)
            other += x->px[e].rejected[k] != y->px[e].rejected[k];
        CHECK(other == 0, "step %d: %zu pixels are rejected by one of them", last, other);
    }
    if (last < FLUXES)
        return;
    compare("fluxes", last, x->nspot, x->now.flux, y->now.flux, 1e-7);
    compare("light", last, x->p->nexp * n, x->now.light, y->now.light, 1e-7);
    compare("chi2", last, 1, &x->now.chi2, &y->now.chi2, 1e-7);
    if (last < MATRIX)
        return;
    for (size_t i = 0; i < a->n; i++) {
        const double scale = sqrt(a->h[i * (a->n + 1)]) * sqrt(x->now.chi2);
        CHECK(fabs(a->g[i] - b->g[i]) <= 1e-6 * scale && fabs(b->g[i] - b->g2[i]) <= 1e-9 * scale,
              "gradient %zu: %.12g, %.12g, not %.12g (%g)", i, b->g[i], b->g2[i], a->g[i], scale);
        for (size_t k = i; k < a->n; k++) {
            const double of = sqrt(a->h[i * (a->n + 1)]) * sqrt(a->h[k * (a->n + 1)]);
            CHECK(fabs(a->h[i * a->n + k] - b->h[i * a->n + k]) <= 1e-6 * of, "matrix %zu, %zu: %.12g, not %.12g (%g)",
                  i, k, b->h[i * a->n + k], a->h[i * a->n + k], of);
        }
    }
}

/* Two exposures, blended lines, a line whose wavelength is free and one that is in the model only, masked pixels, spots
 * that leave the CCD. */
static void test_steps(int nq)
{
    psffit_scene s;
    if (!blends_make(30, 2000, &s)) {
        CHECK(0, "no memory");
        return;
    }
    const double dark[2] = {9, 9};
    spx_pf_plan p = blends_plan(&s, nq, dark);
    spx_pf_line line[BLENDS_LINES];
    blends_lines(&s, line);
    for (int last = 0; last < STEPS; last++) {
        stepped cpu, gpu;
        p.device = NULL;
        run_steps(&p, line, 5, last, &cpu);
        p.device = &device;
        run_steps(&p, line, 5, last, &gpu);
        compare_steps(last, &cpu, &gpu);
        close_steps(&cpu);
        close_steps(&gpu);
    }
    scene_free(&s);
}

/* ---- fits ---- */

typedef struct {
    spx_psf psf;
    spx_psffit fit;
    double seconds;
} fitted;

static void run_fit(const psffit_scene *s, const spx_psffit_options *with, int on_device, fitted *to)
{
    spx_err e = {0};
    spx_psffit_options o = *with;
    const spx_psffit_input in = {.nexp = s->r.nexp,
                                 .image = s->image,
                                 .start = o.fix_shape ? &s->truth : &s->start,
                                 .nline = s->r.nline,
                                 .line = s->line};
    memset(to, 0, sizeof *to);
    o.device = on_device ? &device : NULL;
    const double begin = spx_seconds();
    CHECK(spx_psffit_cpu(&in, &o, NULL, &to->psf, &to->fit, &e) == SPX_OK, "%s", spx_err_text(&e));
    to->seconds = spx_seconds() - begin;
}

static void close_fit(fitted *f)
{
    spx_psf_free(&f->psf);
    spx_psffit_free(&f->fit);
}

/* Places of spots within `pixel`, pixels of spots within `peak` of the peak. */
static void compare_fits(const char *name, const fitted *a, const fitted *b, double pixel, double peak)
{
    const spx_psf *p = &a->psf, *q = &b->psf;
    static double u[10000], v[10000], work[100000];
    double far = 0, off = 0, error = 0;
    if (p->nspec != q->nspec || p->npar != q->npar || p->nspec == 0) {
        CHECK(0, "%s: %zu and %zu fibres", name, p->nspec, q->nspec);
        return;
    }
    for (size_t i = 0; i < p->nspec; i++)
        for (int k = 0; k < 9; k++) {
            const double lo = fmax(p->valid_range[2 * i], q->valid_range[2 * i]);
            const double hi = fmin(p->valid_range[2 * i + 1], q->valid_range[2 * i + 1]);
            const double wave = lo + (hi - lo) * (k + 0.5) / 9;
            double most = 0;
            spx_spot x, y;
            if (spx_psf_spot(p, i, wave, work, u, &x) != SPX_SPOT_OK ||
                spx_psf_spot(q, i, wave, work, v, &y) != SPX_SPOT_OK || x.xc != y.xc || x.yc != y.yc) {
                CHECK(0, "%s: no spot", name);
                continue;
            }
            far = fmax(far, fmax(fabs(x.x - y.x), fabs(x.y - y.y)));
            for (int m = 0; m < spx_psf_nx(p) * spx_psf_ny(p); m++)
                most = fmax(most, u[m]);
            for (int m = 0; m < spx_psf_nx(p) * spx_psf_ny(p); m++)
                off = fmax(off, fabs(u[m] - v[m]) / most);
        }
    for (size_t k = 0; k < a->fit.nspec * a->fit.nplace; k++) {
        const double x = a->fit.x_error[k], y = a->fit.y_error[k];
        error = fmax(error, x > 0 ? fabs(b->fit.x_error[k] - x) / x : fabs(b->fit.x_error[k]));
        error = fmax(error, y > 0 ? fabs(b->fit.y_error[k] - y) / y : fabs(b->fit.y_error[k]));
    }
    int steps = 0, same = 0;
    for (size_t k = 0; k < a->fit.nbundle; k++) {
        steps += a->fit.bundle[k].niter != b->fit.bundle[k].niter;
        same += a->fit.bundle[k].nreject == b->fit.bundle[k].nreject;
    }
    printf("%s: places within %.1e pixel, spots within %.1e of the peak, errors within %.1e; %d of %zu bundles with "
           "other iterations, %d with "
           "the same rejected pixels\n",
           name, far, off, error, steps, a->fit.nbundle, same);
    CHECK(far <= pixel && off <= peak && error <= 1e-5,
          "%s: places differ by %g pixel, spots by %g of the peak, errors by %g", name, far, off, error);
}

/* What the pixels tell of fibres, lines and the PSF. */
static void compare_results(const char *name, const spx_psffit *a, const spx_psffit *b)
{
    for (size_t i = 0; i < a->nspec; i++) {
        const spx_psffit_fibre *x = &a->fibre[i], *y = &b->fibre[i];
        /* spots agree to 1e-6 of their peak, which is 200 of its noise: chi squared of some hundred pixels, to 1e-5 */
        CHECK(x->npix == y->npix && x->status == y->status && x->nline == y->nline &&
                  fabs(x->chi2 - y->chi2) <= 1e-5 * x->chi2,
              "%s: fibre %zu: chi squared %.9g of %ld pixels, status %d, not %.9g of %ld, %d", name, i, y->chi2,
              (long)y->npix, (int)y->status, x->chi2, (long)x->npix, (int)x->status);
    }
    CHECK(a->nline == b->nline && a->nunlisted == b->nunlisted, "%s: %zu lines, not %zu", name, b->nline, a->nline);
    for (size_t l = 0; l < a->nline && l < b->nline; l++) {
        const spx_psffit_row *x = &a->line[l], *y = &b->line[l];
        CHECK(fabs(x->delta - y->delta) <= 1e-4 * x->delta_error &&
                  fabs(x->delta_error - y->delta_error) <= 1e-6 * x->delta_error,
              "%s: line %zu: %.9g +- %.9g Angstrom, not %.9g +- %.9g", name, l, y->delta, y->delta_error, x->delta,
              x->delta_error);
    }
    for (size_t k = 0; k < a->nbundle; k++)
        CHECK(fabs(a->bundle[k].psf_error - b->bundle[k].psf_error) <= 1e-6 * a->bundle[k].psf_error &&
                  a->bundle[k].nreject == b->bundle[k].nreject,
              "%s: bundle %zu: error of the PSF %.9g, not %.9g; %ld pixels rejected, not %ld", name, k,
              b->bundle[k].psf_error, a->bundle[k].psf_error, (long)b->bundle[k].nreject, (long)a->bundle[k].nreject);
    /* electrons: of spots, which agree to 1e-6 of their peak, and a ten-thousandth of the noise, 3 at least: what the
     * largest degree has in the wings is told by few */
    for (size_t k = 0; a->model != NULL && k < a->nexp * a->ny * a->nx; k++)
        CHECK(fabs(a->model[k] - b->model[k]) <= 3e-4 + 1e-5 * fabs(a->model[k]) && fabs(a->chi[k] - b->chi[k]) <= 1e-4,
              "%s: pixel %zu: model %.7g, chi %.5g, not %.7g, %.5g", name, k, b->model[k], b->chi[k], a->model[k],
              a->chi[k]);
}

static int same_bits(const fitted *a, const fitted *b)
{
    const spx_psf *p = &a->psf, *q = &b->psf;
    return p->nspec == q->nspec && memcmp(p->x.coef, q->x.coef, p->nspec * p->x.ncoef * sizeof(double)) == 0 &&
           memcmp(p->y.coef, q->y.coef, p->nspec * p->y.ncoef * sizeof(double)) == 0 &&
           memcmp(p->coeff, q->coeff, p->npar * p->nspec * p->ndeg * sizeof(double)) == 0;
}

typedef struct {
    const char *name;
    psffit_request r;
    int fix, deg;  /* traces alone; Gauss-Hermite degree */
    double bright; /* electrons of the brightest line; 0: 40 000 */
    int degree_of; /* of the truth, where it is another one */
    double width;  /* of the functions, where it is not free */
    size_t rows;   /* of the CCD; 0: ROWS */
} fit_case;

#ifdef SPX_EMULATED /* on the processor, a hundred times slower */
enum { ROWS = 120, LINES = 8, FIRST = 2 };
#else
enum { ROWS = 300, LINES = 16, FIRST = 0 };
#endif

static const fit_case cases[] = {
    {"two bundles, a continuum, hits", {.nspec = 10, .nexp = 1, .continuum = 20, .hits = 100}, 0, 6, 0, 0, 0, 0},
    /* whose matrix of the background is a band of several panels */
    {"many rows, a continuum", {.nspec = 5, .nexp = 1, .continuum = 300}, 0, 2, 0, 0, 0, 3000},
    {"two exposures", {.nspec = 5, .nexp = 2}, 0, 2, 0, 0, 0, 0},
    {"traces alone", {.nspec = 5, .nexp = 1}, 1, 2, 0, 0, 0, 0},
    {"brighter than the model is good", {.nspec = 5, .nexp = 1}, 0, 2, 3e6, 4, 0, 0},
    {"narrow functions", {.nspec = 5, .nexp = 1}, 0, 4, 0, 2, 0.8, 0},
    {"the largest degree", {.nspec = 5, .nexp = 1}, 0, SPX_PF_MOST_HERMITE, 0, 6, 0.8, 0},
};

static void test_fits(void)
{
    for (size_t k = FIRST; k < sizeof cases / sizeof *cases; k++) {
        const fit_case *c = &cases[k];
        psffit_request r = c->r;
        psffit_scene s;
        fitted cpu, gpu, again;
        spx_psffit_options o = spx_psffit_defaults();
        r.bundle = 5;
        r.ny = c->rows > 0 ? c->rows : ROWS;
        r.nline = LINES;
        r.faint = 2000;
        r.bright = c->bright > 0 ? c->bright : 40000;
        r.readnoise = 3;
        r.deg = c->degree_of > 0 ? c->degree_of : c->deg;
        r.seed = 5 + k;
        r.noise = 1;
        int ok = scene_make(&r, 0, &s);
        for (size_t x = 0; x < r.nexp && ok; x++)
            ok = scene_expose(&s, x, 0.3 * (double)x, -0.2 * (double)x, NULL);
        CHECK(ok, "no memory");
        o.fix_shape = c->fix;
        o.hermite_degree = c->deg;
        o.hermite_width = c->width > 0 ? c->width : 1;
        o.trace_degree = 3;
        o.bundle_size = 5;
        o.want_model = 1;
        run_fit(&s, &o, 0, &cpu);
        run_fit(&s, &o, 1, &gpu);
        o.nthreads = 2;
        run_fit(&s, &o, 1, &again);
        compare_fits(c->name, &cpu, &gpu, 1e-6, 1e-6);
        compare_results(c->name, &cpu.fit, &gpu.fit);
        CHECK(same_bits(&gpu, &again), "%s: not the same bits when repeated", c->name);
        close_fit(&cpu);
        close_fit(&gpu);
        close_fit(&again);
        scene_free(&s);
    }
}

/* ---- time ---- */

static void time_camera(size_t bundles, size_t nline, int times)
{
    const psffit_request r = scene_camera(bundles, nline);
    psffit_scene s;
    spx_psffit_options o = spx_psffit_defaults();
    fitted cpu, gpu;
    if (!scene_make(&r, 0, &s) || !scene_expose(&s, 0, 0, 0, NULL)) {
        CHECK(0, "no memory");
        return;
    }
    o.nthreads = omp_get_max_threads();
    for (int fix = 0; fix < 2; fix++) {
        o.fix_shape = fix;
        run_fit(&s, &o, 0, &cpu);
        printf("%zu fibres, %zu lines%s: %.3f s by %d threads of the CPU; with the device", r.nspec, nline,
               fix ? ", traces alone" : "", cpu.seconds, o.nthreads);
        for (int k = 0; k < times; k++) {
            const spx_pf_device bare = device;
            double seconds = 0;
            if (k + 1 == times)
                timed_device(&bare, &device);
            run_fit(&s, &o, 1, &gpu);
            device = bare;
            printf(" %.3f", gpu.seconds);
            if (k + 1 < times) {
                close_fit(&gpu);
                continue;
            }
            for (size_t m = 0; m < bundles; m++)
                seconds += gpu.fit.bundle[m].seconds;
            printf(" s; of the last, all bundles added up: passes %.3f s, steps of the device:\n", seconds);
            timed_print("    ");
        }
        compare_fits(fix ? "traces alone" : "camera", &cpu, &gpu, 1e-5, 1e-5);
        close_fit(&cpu);
        close_fit(&gpu);
    }
    scene_free(&s);
}

int main(int argc, char **argv)
{
    spx_err e = {0};
    const int first = 0, nline[] = {67, 165};
    const char *what = argc > 1 ? argv[1] : "";
    if (spx_blas_open(&e) != SPX_OK || spx_psffit_cuda_open(1, &first, &device, &e) != SPX_OK) {
        puts(spx_err_text(&e));
        return 1;
    }
    if (strcmp(what, "time") == 0) {
        const size_t bundles = argc > 2 ? strtoull(argv[2], NULL, 10) : 20;
        for (int k = 0; k < 2; k++)
            if (argc < 4 || atoi(argv[3]) == nline[k])
                time_camera(bundles, (size_t)nline[k], argc > 4 ? atoi(argv[4]) : 4);
    } else {
        test_steps(10);
        test_steps(0);
        if (strcmp(what, "small") != 0)
            test_fits();
    }
    spx_psffit_cuda_close(&device);
    return failures != 0;
}
