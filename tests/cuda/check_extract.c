/* check_extract [small|queue|beside|beyond|time [b|r|z [hits [model]]]|equal [b|r|z [hits [model]]]|
 *                random [FIRST [COUNT [scene|ccd|extreme|narrow]]]|camera [CLOSER [DW]]]:
 * whole-trace extraction on a CUDA device against the CPU, on simulated frames and on scenes drawn at random: within
 * 1e-6 sigma (flux) and 1e-8 (ivar, relative; resolution) of it, with the variance of the model 2e-6, 2e-6 and 5e-8,
 * with light beyond the spots 1e-5 sigma, the same bins flagged, the same bits when repeated, with
 * so little memory that it works in pieces, and on all devices. Then seconds. `small`: without the large frames, for
 * compute-sanitizer; `queue`: only frames one after another, on all devices; `time`, `equal`: only one large frame, its
 * seconds and its equality; `hits`: of one with cosmic-ray hits that nobody has flagged, `model`: with the variance of
 * the model; `beside`: only that memory is waited for which another program has; `beyond [small]`: frames with light
 * beyond the spots, `small` without whole cameras; `random`: COUNT random scenes of each kind from number FIRST on, by
 * default 100 from the seconds of the clock; `camera`: seconds of a frame with traces CLOSER by some pixels and bins of
 * DW Angstrom beside those of two threads of the CPU. Built by make cuda-tests. */
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../kernels/extract_random.h"
#include "../kernels/same_rows.h"
#include "../must.h"
#include "base/clock.h"
#include "base/mem.h"
#include "extract/cuda/extract_cuda.h"
#include "extract/trace/trace.h"
#include "num/stat.h"
#include "products/psf_index.h"
#include "sim/sim.h"

#ifdef SPX_EMULATED /* on the processor, a hundred times slower */
enum { EMULATED = 1 };
#else
enum { EMULATED = 0 };
#endif

enum { MASKS = 1, GAP = 2, LARGE = 4, SMALL = 8, TURNED = 16, CLOSE = 32, HITS = 64, BEYOND = 128 };

/* Traces that run the other way, and stand the other way round. */
static void turn(size_t nspec, size_t npix, size_t ncoef, double *coef)
{
    for (size_t i = 0; i < nspec * ncoef; i++)
        coef[i] = (i % ncoef == 0 ? (double)npix - 1.0 : 0.0) - coef[i];
}

/* A tail with 14 % of the light, in the rows that the simulation's PSFs have for one. */
static void add_tail(spx_psf *p, double core)
{
    spx_err e = {0};
    for (size_t k = 0; k < p->npar; k++)
        for (size_t f = 0; f < p->nspec; f++) {
            double *c = p->coeff + (k * p->nspec + f) * p->ndeg;
            *c = strcmp(p->param[k], "TAILAMP") == 0    ? 0.0071
                 : strcmp(p->param[k], "TAILINDE") == 0 ? 2.2
                 : strcmp(p->param[k], "TAILCORE") == 0 ? core
                                                        : *c;
        }
    must(spx_psf_index(p, &e) == SPX_OK && spx_psf_has_tail(p), &e);
}

/* A frame of a spectrograph. what: defects of the image, and spots and traces of another kind. */
static scene make_frame(char arm, size_t nspec, double wmin, double wmax, int what)
{
    spx_err e = {0};
    scene s = {.psf = must_have(spx_alloc(1, sizeof *s.psf, &e))};
    must(spx_sim_psf(arm, nspec, wmin - 20.0, wmax + 20.0, s.psf, &e) == SPX_OK, &e);
    if (what & (LARGE | SMALL)) {
        s.psf->hsizex = what & LARGE ? 12 : 3;
        s.psf->hsizey = what & LARGE ? 8 : 2;
    }
    if (what & CLOSE) /* by a fifth: what a neighbour knows of a fibre depends on its own neighbour */
        for (size_t f = 0; f < nspec; f++)
            s.psf->x.coef[f * s.psf->x.ncoef] -= 1.6 * (double)f;
    if (what & BEYOND)
        add_tail(s.psf, 1.0);
    if (what & TURNED) {
        turn(nspec, s.psf->npix_x, s.psf->x.ncoef, s.psf->x.coef);
        turn(nspec, s.psf->npix_y, s.psf->y.ncoef, s.psf->y.coef);
    }
    const size_t nwave = spx_sim_grid_size(wmin - 60.0, wmax + 60.0, 0.4), nx = s.psf->npix_x;
    double *wave = must_have(spx_alloc(nwave, sizeof *wave, &e)), *sky = must_have(spx_alloc(nwave, sizeof *sky, &e));
    double *flux = must_have(spx_alloc2(nspec, nwave, sizeof *flux, &e));
    double *model = must_have(spx_alloc2(s.psf->npix_y, s.psf->npix_x, sizeof *model, &e));
    spx_sim_grid(wmin - 60.0, 0.4, nwave, wave);
    must(spx_sim_sky(arm, 900.0, nwave, wave, sky, &e) == SPX_OK, &e);
    for (size_t i = 0; i < nspec * nwave; i++)
        flux[i] = 20.0 * (double)(i / nwave % 9);
    spx_sim_add_sky(nspec, nwave, sky, flux);
    must(spx_sim_project(s.psf, nspec, NULL, nwave, wave, flux, s.psf->npix_y, s.psf->npix_x, model, NULL, &e) ==
             SPX_OK,
         &e);
    for (size_t i = 0; i < s.psf->npix_y * nx && (what & BEYOND); i++)
        model[i] += 5.0 + 3.0 * cos(0.02 * (double)(i % nx)) * cos(0.01 * (double)(i / nx));
    spx_sim_noise noise = {.seed = 7, .camera = arm, .photon_noise = 1, .readnoise = 3.0, .fullwell = 1e5};
    if (what & MASKS) {
        noise.cosmics = 100.0;
        noise.badcolumns = 4;
        noise.nans = 20;
    }
    if (what & GAP) {
        noise.gap_row = s.psf->npix_y / 2;
        noise.gap = 10;
        noise.blocks = 2;
    }
    if (what & HITS)
        noise.cosmics = 150.0;
    must(spx_sim_expose(s.psf->npix_y, s.psf->npix_x, model, &noise, &s.image, &e) == SPX_OK, &e);
    s.o = spx_extract_trace_defaults();
    if (what & HITS) {
        for (size_t i = 0; i < s.image.ny * s.image.nx; i++)
            s.image.mask[i] &= ~(uint32_t)SPX_CCD_COSMIC;
        s.o.reject = 5.0;
    }
    if (what & BEYOND) {
        s.o.tail_corrections = 2;
        s.o.background = 64.0;
        s.o.want_model = 1;
    }
    s.o.nspec = nspec;
    s.o.wmin = wmin;
    s.o.wmax = wmax;
    s.o.dw = 0.8;
    spx_free(wave);
    spx_free(sky);
    spx_free(flux);
    spx_free(model);
    return s;
}

/* Spots that are larger, and of a higher degree, than what is worked on in one go, and reach over two neighbours. */
static void widen(scene *s)
{
    enum { DEGREE = 8 };
    spx_psf *p = s->psf;
    int *gh = must_have(spx_alloc((DEGREE + 1) * (DEGREE + 1), sizeof *gh, NULL));
    for (int j = 0; j <= DEGREE; j++)
        for (int i = 0; i <= DEGREE; i++)
            gh[i + (DEGREE + 1) * j] = i <= p->ghdegx && j <= p->ghdegy ? p->gh[i + (p->ghdegx + 1) * j] : -1;
    gh[DEGREE] = gh[4]; /* a small one */
    gh[(DEGREE + 1) * DEGREE] = gh[4];
    spx_free(p->gh);
    p->gh = gh;
    p->ghdegx = p->ghdegy = DEGREE;
    p->hsizex = 8;
    p->hsizey = 6;
}

/* The blocks' own functions live with HDF5. */
static void free_frame(spx_frame *f)
{
    spx_free(f->arm.wavelength);
    spx_free(f->arm.flux);
    spx_free(f->arm.ivar);
    spx_free(f->arm.mask);
    spx_free(f->arm.resolution);
    spx_free(f->chi2pix);
    spx_free(f->pixmask_fraction);
    spx_free(f->fiber);
    spx_free(f->model);
    spx_free(f->cosmic_pixels);
    memset(f, 0, sizeof *f);
}

static int same_hits(const spx_frame *a, const spx_frame *b)
{
    return a->ncosmic == b->ncosmic &&
           (a->ncosmic == 0 || !memcmp(a->cosmic_pixels, b->cosmic_pixels, 2 * a->ncosmic * sizeof *a->cosmic_pixels));
}

/* Pixels that only one of the two has rejected. */
static size_t other_hits(const spx_frame *a, const spx_frame *b)
{
    size_t i = 0, j = 0, n = 0;
    while (i < a->ncosmic || j < b->ncosmic) {
        const int32_t *p = a->cosmic_pixels + 2 * i, *q = b->cosmic_pixels + 2 * j;
        const int way = i == a->ncosmic   ? 1
                        : j == b->ncosmic ? -1
                        : p[0] != q[0]    ? (p[0] < q[0] ? -1 : 1)
                                          : (p[1] > q[1]) - (p[1] < q[1]);
        n += way != 0;
        i += way <= 0;
        j += way >= 0;
    }
    return n;
}

static int same_bits(const spx_frame *a, const spx_frame *b)
{
    const size_t n = a->nspec * a->arm.nwave, bytes = n * sizeof(double);
    return !memcmp(a->arm.flux, b->arm.flux, bytes) && !memcmp(a->arm.ivar, b->arm.ivar, bytes) &&
           !memcmp(a->chi2pix, b->chi2pix, bytes) && !memcmp(a->pixmask_fraction, b->pixmask_fraction, bytes) &&
           !memcmp(a->arm.mask, b->arm.mask, n * sizeof(uint32_t)) &&
           !memcmp(a->arm.resolution, b->arm.resolution, bytes * a->arm.ndiag) && same_hits(a, b);
}

static void say_difference(const char *of, const double *a, const double *b, size_t n)
{
    size_t differ = 0, worst = 0;
    for (size_t i = 0; i < n; i++) {
        differ += memcmp(&a[i], &b[i], sizeof *a) != 0;
        worst = fabs(a[i] - b[i]) > fabs(a[worst] - b[worst]) ? i : worst;
    }
    if (differ > 0)
        printf("  repeated: %zu of %zu values of %s differ, most %zu: %.17g %.17g\n", differ, n, of, worst, a[worst],
               b[worst]);
}

static void say_differences(const spx_frame *a, const spx_frame *b)
{
    const size_t n = a->nspec * a->arm.nwave;
    say_difference("flux", a->arm.flux, b->arm.flux, n);
    say_difference("ivar", a->arm.ivar, b->arm.ivar, n);
    say_difference("chi2pix", a->chi2pix, b->chi2pix, n);
    say_difference("pixmask_fraction", a->pixmask_fraction, b->pixmask_fraction, n);
    say_difference("resolution", a->arm.resolution, b->arm.resolution, n * a->arm.ndiag);
}

/* A comparison of one thread of several. */
static void count_failure(int failed)
{
#pragma omp atomic
    failures += failed;
}

/* The largest of all, NaN above any. */
static void raise_to(double *most, double v)
{
    *most = isnan(v) ? INFINITY : fmax(*most, v);
}

/* Frames of a spectrograph are compared as they are, and all of their bundles have to stay on the device. In scenes
 * that are drawn at random limits of flux and chi2pix are larger in proportion to the signal-to-noise ratio, where that
 * is above a hundred (hits that nobody has noticed), and bundles may be left to the CPU. */
typedef enum { FRAME, HARD, DRAWN } kind;

/* The largest signal-to-noise ratio of rows f0 .. f1 - 1 over a hundred, at least 1. */
static double brightness(const spx_frame *f, size_t f0, size_t f1)
{
    double most = 1.0;
    for (size_t i = f0 * f->arm.nwave; i < f1 * f->arm.nwave; i++)
        raise_to(&most, 0.01 * fabs(f->arm.flux[i]) * sqrt(f->arm.ivar[i]));
    return most;
}

/* Bundles whose rows are the same to the last bit. */
static size_t bundles_alike(const scene *s, const spx_frame *a, const spx_frame *b)
{
    const size_t size = s->o.bundle_size, last = s->o.first + a->nspec;
    size_t alike = 0;
    for (size_t f = s->o.first; f < last;) {
        const size_t end = (f / size + 1) * size < last ? (f / size + 1) * size : last;
        alike += (size_t)same_rows(a, f - s->o.first, b, f - s->o.first, end - f);
        f = end;
    }
    return alike;
}

/* The same words, each where it belongs. */
static int same_error(const spx_err *a, const spx_err *b)
{
    return strcmp(a->file, b->file) == 0 && strcmp(a->place, b->place) == 0 && strcmp(a->text, b->text) == 0 &&
           strcmp(a->remedy, b->remedy) == 0;
}

static void show_errors(const spx_err *cpu, const spx_err *gpu)
{
    printf("CPU: %s\n", spx_err_text(cpu));
    printf("GPU: %s\n", spx_err_text(gpu));
}

/* Magnitude of a row of a fibre's R, at least 1: the sum of that row of Q, which divides it, nearly cancels where it is
 * above, and relative errors grow with it, as in extract_scene.h. */
static double largest_in_row(const spx_frame *f, size_t fibre, long row)
{
    const size_t nw = f->arm.nwave, nd = f->arm.ndiag;
    double most = 1.0;
    for (size_t d = 0; d < nd; d++) {
        const long k = row - (long)d + (long)(nd / 2);
        if (k >= 0 && k < (long)nw)
            most = fmax(most, fabs(f->arm.resolution[(fibre * nd + d) * nw + (size_t)k]));
    }
    return most;
}

/* The same for elements of R. Of rows at the ends of the grid, and of those of the padding, a frame does not have all
 * elements: in drawn scenes the largest may be another one, and is taken for 10 at least at the ends, and for ten times
 * what there is of the padding (eleven in scene 179573609300194 of draw_extreme()). */
static double scale_of_row(const spx_frame *f, size_t fibre, long row, kind of)
{
    const long half = (long)(f->arm.ndiag / 2), nw = (long)f->arm.nwave;
    const double most = largest_in_row(f, fibre, row);
    if (of == DRAWN && (row < 0 || row >= nw))
        return 10.0 * most;
    return of == DRAWN && (row < half || row >= nw - half) ? fmax(most, 10.0) : most;
}

/* Largest difference of the light beyond the spots, electrons: of the background at the bins, and, with all of it, of
 * the model image where it has more than a thousand in proportion to that. */
static double difference_beyond(const spx_frame *a, const spx_frame *b)
{
    double most = (a->background != NULL) != (b->background != NULL) ? INFINITY : 0.0;
    for (size_t i = 0; i < a->nspec * a->arm.nwave && a->background != NULL && b->background != NULL; i++)
        raise_to(&most, fabs(a->background[i] - b->background[i]));
    for (size_t i = 0; i < a->model_ny * a->model_nx; i++)
        raise_to(&most, fabs((double)a->model[i] - (double)b->model[i]) / fmax(1.0, 1e-3 * (double)a->model[i]));
    return most;
}

/* Returns the number of bundles that were left to the CPU, which have the CPU's bits. What the CPU refuses the device
 * has to refuse with the same words. Of what is drawn only failures are reported. */
static size_t compare_on(const scene *s, const spx_extract_device *dev, size_t ndev, kind of, const char *what)
{
    spx_frame c = {0}, g = {0}, again = {0};
    spx_extract_counts nc, ng;
    spx_extract_cuda_times times;
    spx_err ec = {0}, eg = {0};
    const spx_status on_cpu = spx_extract_trace_cpu(&s->image, s->psf, &s->o, &c, &nc, &ec);
    const spx_status on_device = spx_extract_trace_cuda(dev, ndev, &s->image, s->psf, &s->o, &g, &ng, &times, &eg);
    if (on_cpu != SPX_OK || on_device != SPX_OK) {
        const int ok = of == DRAWN && on_cpu == on_device && same_error(&ec, &eg);
        if (!ok) {
            printf("%-28s status %d and %d:  FAILED\n", what, (int)on_cpu, (int)on_device);
            show_errors(&ec, &eg);
        }
        count_failure(!ok);
        free_frame(&c);
        free_frame(&g);
        return 0;
    }
    must(spx_extract_trace_cuda(dev, ndev, &s->image, s->psf, &s->o, &again, &ng, &times, &eg) == SPX_OK, &eg);
    double flux = 0.0, ivar = 0.0, res = 0.0, chi2 = 0.0, fraction = 0.0;
    const size_t nw = c.arm.nwave, nd = c.arm.ndiag, size = s->o.bundle_size;
    size_t mask = 0;
    for (size_t f = 0; f < c.nspec; f++) {
        const size_t f0 = (s->o.first + f) / size * size, last = s->o.first + c.nspec;
        const size_t f1 = f0 + size < last ? f0 + size : last;
        const double own = of == DRAWN ? brightness(&c, f, f + 1) : 1.0;
        const double all = of == DRAWN ? brightness(&c, f0 > s->o.first ? f0 - s->o.first : 0, f1 - s->o.first) : 1.0;
        for (size_t i = f * nw; i < (f + 1) * nw; i++) {
            mask += c.arm.mask[i] != g.arm.mask[i];
            raise_to(&fraction, fabs(c.pixmask_fraction[i] - g.pixmask_fraction[i]));
            if (!(c.arm.ivar[i] > 0.0) || c.pixmask_fraction[i] > 0.99)
                continue;
            const double scale = largest_in_row(&c, f, (long)(i % nw));
            raise_to(&flux, fabs(c.arm.flux[i] - g.arm.flux[i]) * sqrt(c.arm.ivar[i]) / own / scale);
            raise_to(&ivar, fabs(g.arm.ivar[i] / c.arm.ivar[i] - 1.0) / scale);
            raise_to(&chi2, fabs(c.chi2pix[i] - g.chi2pix[i]) / (1.0 + c.chi2pix[i]) / all);
            for (size_t d = 0; d < nd; d++) {
                const size_t at = (f * nd + d) * nw + i % nw;
                const double in_row = scale_of_row(&c, f, (long)(i % nw + d) - (long)(nd / 2), of);
                raise_to(&res, fabs(c.arm.resolution[at] - g.arm.resolution[at]) / in_row /
                                   fmax(in_row, fabs(c.arm.resolution[at])));
            }
        }
    }
    const int bits = same_bits(&g, &again);
    /* weights of scenes drawn at random go over twelve powers of ten: rounding alone, by another exp on the CPU or
     * other instructions, moves chi2pix by up to 4e-8 there */
    const int anew = s->o.variance == SPX_VARIANCE_MODEL; /* weights have single precision, and are of a flux that the
                                                           * search has to a hundredth of its error */
    const int lit = s->o.tail_corrections > 0 || s->o.background > 0.0; /* that light has single precision */
    const double chi2_limit = anew || lit   ? 1e-6
                              : of == DRAWN ? 5e-8
                                            : 1e-8,
                 flux_limit = lit    ? 1e-5
                              : anew ? 2e-6
                                     : fmax(1e-6, s->o.tolerance);
    const double ivar_limit = fmax(anew ? 2e-6 : 1e-8, s->o.tolerance),
                 res_limit = fmax(anew ? 5e-8 : 1e-8, s->o.tolerance);
    /* where conditioning forbids the tolerance, each side may be off by what it says that rounding makes; not by what
     * it says to have reached as well, which both leave out by the same rules, but where diagonals have no room */
    const double rounded = fmax(nc.rounding, ng.rounding),
                 narrow = nc.npatch_inexact > 0 ? fmax(nc.tolerance, ng.tolerance) : 0.0,
                 reached = of == FRAME ? 0.0 : 2.0 * fmax(narrow, rounded);
    /* a model has single precision; of the model's variance it differs as fluxes do */
    const double beyond = difference_beyond(&c, &g), beyond_limit = 2e-4;
    const size_t left = ng.fallback.on_cpu, alike = bundles_alike(s, &c, &g);
    const int rounding =
        rounded <= s->o.tolerance || (ng.rounding <= 2.0 * nc.rounding && nc.rounding <= 2.0 * ng.rounding);
    /* fluxes for which more than a tenth of an error is said are worth nothing, and so is a second digit of that */
    const double said = fmax(nc.tolerance, ng.tolerance);
    const int same_tolerance = fabs(nc.tolerance - ng.tolerance) <= (said > SPX_TRACE_INEXACT ? 0.5 : 0.05) * said;
    const int ok = (of != FRAME || left == 0) && alike >= left && rounding && same_tolerance &&
                   flux <= fmax(flux_limit, reached) && ivar <= fmax(ivar_limit, reached) &&
                   res <= fmax(res_limit, reached) && chi2 <= fmax(chi2_limit, reached) && fraction <= 1e-12 &&
                   mask == 0 && bits && beyond <= beyond_limit && nc.nbin_nospot == ng.nbin_nospot &&
                   nc.npatch_failed == ng.npatch_failed && nc.npatch_regularised == ng.npatch_regularised &&
                   nc.npix == ng.npix && nc.npix_bad == ng.npix_bad && nc.npix_masked == ng.npix_masked &&
                   same_hits(&c, &g) && nc.npix_rejected == ng.npix_rejected && nc.nbin_cosmic == ng.nbin_cosmic;
    if (beyond > 0.0 && (of != DRAWN || !ok))
        printf("%-28s light beyond the spots and model: %.1e electrons\n", what, beyond);
    if (s->o.reject > 0.0 && (of != DRAWN || !ok))
        printf("%-28s %zu pixels rejected, %zu others than on the CPU; %zu bins COSMIC\n", what, g.ncosmic,
               other_hits(&c, &g), ng.nbin_cosmic);
    if (of != DRAWN || !ok)
        printf(
            "%-28s flux %.1e sigma, ivar %.1e, R %.1e, chi2pix %.1e, fraction %.1e, %zu masks differ, %zu bundles on "
            "the CPU, rounding below %.0e and %.0e, tolerances %.1e and %.1e, repeated: %s%s\n",
            what, flux, ivar, res, chi2, fraction, mask, left, nc.rounding, ng.rounding, nc.tolerance, ng.tolerance,
            bits ? "same bits" : "DIFFERS", ok ? "" : "  FAILED");
    if (!bits)
        say_differences(&g, &again);
    count_failure(!ok);
    free_frame(&c);
    free_frame(&g);
    free_frame(&again);
    return left;
}

static void compare(const scene *s, const spx_extract_device *dev, const char *what)
{
    (void)compare_on(s, dev, 1, FRAME, what);
}

/* `count` scenes from number `first` on, small ones or on a CCD, by a thread for each of `ndev` devices: see
 * extract_random.h. */
static void compare_drawn(const spx_extract_device *dev, int ndev, drawn draw(uint64_t), const char *what,
                          uint64_t first, uint64_t count)
{
    size_t nbundle = 0, left = 0;
    const int before = failures;
#pragma omp parallel for schedule(dynamic) reduction(+ : nbundle, left) num_threads(ndev)
    for (uint64_t i = first; i < first + count; i++) {
        drawn d = draw(i);
        if (d.s.image.data) {
            nbundle += (d.s.o.nspec + d.s.o.bundle_size - 1) / d.s.o.bundle_size;
            left += compare_on(&d.s, &dev[omp_get_thread_num()], 1, DRAWN, d.what);
        }
        free_scene(&d.s);
    }
    if (!EMULATED || failures > before)
        printf("%-28s %llu from %llu on, %d differ; %zu of %zu bundles on the CPU\n", what, (unsigned long long)count,
               (unsigned long long)first, failures - before, left, nbundle);
}

/* As many at a time as OpenMP has threads, each with the device for itself: calls that share one wait for each other,
 * and a small scene's kernels fill a hundredth of it. */
static void compare_all_drawn(const spx_extract_device *dev, uint64_t first, uint64_t count, const char *only)
{
    static const struct {
        const char *name, *what;
        drawn (*draw)(uint64_t);
    } kinds[] = {{"scene", "random scenes", draw_scene},
                 {"ccd", "random scenes on a CCD", draw_ccd},
                 {"extreme", "one row, wild weights", draw_extreme},
                 {"narrow", "random narrow bins", draw_narrow}};
    size_t known = 0;
    const int ndev = EMULATED ? 1 : omp_get_max_threads();
    spx_extract_device *own = must_have(spx_alloc((size_t)ndev, sizeof *own, NULL));
    spx_err e = {0};
    for (int i = 0; i < ndev; i++)
        must(spx_extract_cuda_open(&own[i], dev->device, &e) == SPX_OK, &e);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!only || strcmp(only, kinds[i].name) == 0) {
            compare_drawn(own, ndev, kinds[i].draw, kinds[i].what, first, count);
            known++;
        }
    if (known == 0)
        printf("no kind %s  FAILED\n", only);
    failures += known == 0;
    for (int i = 0; i < ndev; i++)
        spx_extract_cuda_free(&own[i]);
    spx_free(own);
}

/* Frames one after another, which share spots, with a bundle that is solved again beside others: a device's memory is
 * cut in another way for it, and spots that lay there were taken for those of the next frame; half of its spectra were
 * wrong. Which parts are written is another matter each time. */
static void compare_repeated(const spx_extract_device *dev, const char *what)
{
    for (int i = 0; i < (EMULATED ? 1 : 10); i++) {
        compare_drawn(dev, 1, draw_ccd, what, 880001040u, 1);
        compare_drawn(dev, 1, draw_ccd, what, 880001051u, 1);
    }
}

/* Scenes in which fibres beyond the second neighbour were left out where a bundle's equations needed more memory than
 * most: fluxes 1.1e-5 and 0.024 of their errors off. */
static void compare_once_wrong(const spx_extract_device *dev)
{
    compare_drawn(dev, 1, draw_scene, "third neighbours", 1795658166001u, 1);
    if (!EMULATED) /* ten seconds */
        compare_drawn(dev, 1, draw_extreme, "third neighbours", 1795658166006u, 1);
    /* elements that bins beside masks feel: ivar 6.7e-7 off */
    compare_drawn(dev, 1, draw_ccd, "beside masks", 1795690900012u, 1);
    /* what a neighbour's neighbour takes off, diagonals that M does not have: 2.2e-6 and 9e-8 off without these */
    compare_drawn(dev, 1, draw_scene, "beside a dead column", 2001100042u, 1);
    /* what more neighbours change grows before it falls: 0.06 and 1.8e-7 of ivar */
    compare_drawn(dev, 1, draw_extreme, "all neighbours", 550002047u, 1);
    compare_drawn(dev, 1, draw_extreme, "all neighbours", 2001200130u, 1);
    /* fibres that can hardly be told apart: the iteration ended 1.6e-5 of an error too early */
    compare_drawn(dev, 1, draw_extreme, "one row", 2003300165u, 1);
    /* elements of A_s that are small in units of 1/Z, beside bins with a signal-to-noise ratio of a thousand, of the
     * spectrum or of its padding: fluxes 1.0e-6 and 1.1e-6 off */
    compare_drawn(dev, 1, draw_scene, "beside bright bins", 179571171700017u, 1);
    compare_drawn(dev, 1, draw_scene, "beside bright padding", 179571332001014u, 1);
    /* fibres that stand between others than those next to them by number: 7.1e-5, 8e-6 and 1.1e-4 off */
    compare_drawn(dev, 1, draw_extreme, "traces that cross", 179571184701511u, 1);
    compare_drawn(dev, 1, draw_ccd, "traces that cross", 179571332000313u, 1);
    if (!EMULATED)
        compare_drawn(dev, 1, draw_ccd, "traces that cross", 179571184701605u, 1);
    /* the smallest eigenvalue that of a few bins, 0.3 of what was taken for it: 1.5e-6 off */
    compare_drawn(dev, 1, draw_ccd, "a few bins alone", 179573267601680u, 1);
    /* columns that a bin with little light feels beyond their tail: ivar 2.1e-8 off */
    compare_drawn(dev, 1, draw_ccd, "long columns", 179573784302806u, 1);
    compare_drawn(dev, 1, draw_ccd, "steps before the smallest eigenvalue", 1795748663315u, 1);
    /* elements between bins where traces cross and bins where they do not: fluxes 2.7e-7 (and ivar 1.7e-7), 1.1e-6 and
     * 2.1e-6 off */
    compare_drawn(dev, 1, draw_ccd, "beside traces that cross", 1795900000767u, 1);
    if (!EMULATED) {
        compare_drawn(dev, 1, draw_ccd, "beside traces that cross", 1795903000625u, 1);
        compare_drawn(dev, 1, draw_ccd, "beside traces that cross", 1795900000728u, 1);
    }
    /* elements between bins that a third fibre matters for and bins beyond them, of the padding at the other end of a
     * short trace: fluxes 0.011 of their errors off, by rounding 6.5e-4 at most */
    compare_drawn(dev, 1, draw_narrow, "band of narrow bins", 179580007300u, 1);
    /* rounding that bins of other fibres and of the padding amplify */
    if (!EMULATED)
        compare_drawn(dev, 1, draw_scene, "rounding", 179571332001117u, 1);
}

/* Coarse tolerances in narrow bins, of whose A_s diagonals were left out that just miss the limit and that bright bins
 * feel: fluxes 11, 2.3 and 1.1 times the tolerance off. */
static void compare_coarse(const spx_extract_device *dev)
{
    static const struct {
        uint64_t number;
        double tolerance;
    } coarse[] = {{1795822413044u, 1e-5}, {179580890600190u, 1e-4}, {28110000004u, 1e-6}};
    for (size_t i = 0; i < sizeof coarse / sizeof *coarse; i++) {
        drawn d = draw_narrow(coarse[i].number);
        d.s.o.tolerance = coarse[i].tolerance;
        (void)compare_on(&d.s, dev, 1, DRAWN, d.what);
        free_scene(&d.s);
    }
}

/* An image without information, and traces that miss it, are refused as on the CPU, with a background, too, which finds
 * no pixel first; the next frame is not harmed. */
static void refuse(const scene *s, spx_extract_device *dev, const char *what)
{
    scene bad = *s;
    for (int i = 0; i < 4; i++) {
        const int off = i % 2;
        spx_frame c = {0}, g = {0};
        spx_extract_counts counts;
        spx_extract_cuda_times times;
        spx_err ec = {0}, eg = {0};
        const size_t npix = s->image.nx * s->image.ny;
        if (off) {
            bad.o.wmin += 1e4;
            bad.o.wmax += 1e4;
        } else {
            bad.image.mask = must_have(spx_alloc(npix, sizeof *bad.image.mask, NULL));
            memset(bad.image.mask, 1, npix * sizeof *bad.image.mask);
        }
        bad.o.background = i < 2 ? 0.0 : SPX_EXTRACT_LEAST_CELL;
        const spx_status on_cpu = spx_extract_trace_cpu(&bad.image, bad.psf, &bad.o, &c, &counts, &ec);
        const spx_status on_gpu = spx_extract_trace_cuda(dev, 1, &bad.image, bad.psf, &bad.o, &g, &counts, &times, &eg);
        const int ok = on_cpu == SPX_EINPUT && on_gpu == SPX_EINPUT && same_error(&ec, &eg);
        printf("%-28s %s%s%s\n", what, off ? "traces beside the image" : "all masked",
               i < 2 ? "" : ", with a background", ok ? ": refused" : ":  FAILED");
        if (!ok)
            show_errors(&ec, &eg);
        failures += !ok;
        if (!off)
            spx_free(bad.image.mask);
        bad = *s;
        free_frame(&c);
        free_frame(&g);
    }
}

static void time_it(scene *s, spx_extract_device *dev, const char *what)
{
    enum { RUNS = 15 };
    spx_extract_cuda_times best = {.seconds = 1e30};
    double whole = 1e30, seconds[RUNS];
    spx_frame first = {0};
    size_t on_cpu = 0, coupled = 0;
    int differ = 0;
    for (int run = 0; run < RUNS; run++) {
        spx_frame g = {0};
        spx_extract_counts counts;
        spx_extract_cuda_times times;
        spx_err e = {0};
        double begin = spx_seconds();
        must(spx_extract_trace_cuda(dev, 1, &s->image, s->psf, &s->o, &g, &counts, &times, &e) == SPX_OK, &e);
        double t = spx_seconds() - begin;
        whole = t < whole ? t : whole;
        seconds[run] = times.seconds;
        on_cpu = counts.fallback.on_cpu;
        coupled = times.coupled;
        best = times.seconds < best.seconds ? times : best;
        if (run == 0) {
            first = g;
            continue;
        }
        differ += !same_bits(&first, &g);
        free_frame(&g);
    }
    printf("%-28s equations %.4f, solution %.4f, marginal %.4f, square root %.4f, fit %.4f s, added up\n", what,
           best.step[0], best.step[1], best.step[2], best.step[3], best.step[4]);
    free_frame(&first);
    failures += differ != 0;
    if (differ)
        printf("%-28s %d of %d runs differ from the first  FAILED\n", what, differ, RUNS - 1);
    printf(
        "%-28s whole call %.4f s, on the device, with transfers %.4f s, median %.4f; %zu bundles coupled, %zu on the "
        "CPU\n",
        what, whole, best.seconds, spx_median(seconds, RUNS), coupled, on_cpu);
}

/* The same bits with other options, which change what bundles are worked on together. */
static void compare_bits(const scene *s, const spx_extract_device *dev, const spx_extract_options *other,
                         const char *what)
{
    spx_frame frame[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        spx_extract_counts counts;
        spx_extract_cuda_times times;
        spx_err e = {0};
        must(spx_extract_trace_cuda(dev, 1, &s->image, s->psf, i ? other : &s->o, &frame[i], &counts, &times, &e) ==
                 SPX_OK,
             &e);
    }
    const int same = same_bits(&frame[0], &frame[1]);
    printf("%-28s %s\n", what, same ? "same bits" : "other bits  FAILED");
    if (!same)
        say_differences(&frame[0], &frame[1]);
    failures += !same;
    free_frame(&frame[0]);
    free_frame(&frame[1]);
}

/* Two bundles in one piece, as of a frame in a queue, and in two. One has segments of some half-bandwidths at the end
 * of its traces alone: the other's, which are longer, must not change how early those are begun. */
static void compare_queued(const spx_extract_device *dev)
{
    scene s = make_frame('r', 40, 6178.0, 6343.0, MASKS);
    s.o.bundle_size = 10;
    s.o.first = s.o.nspec = 20;
    spx_extract_options queued = s.o;
    queued.queued = 1;
    compare_bits(&s, dev, &queued, "two bundles in one piece");
    free_scene(&s);
}

/* Frames one after another: each thread has a device, and takes the next one. In memory that is kept from frame to
 * frame, as a program with a queue has it. */
enum { QUEUE = 48, MOST_DEVICES = 16, PART = 60 }; /* QUEUE for each device */

typedef struct {
    scene s;
    spx_extract_device *dev;
    int ndev, nthreads;
    /* [2] what frames must be, all and part of the wavelengths by turns; NULL: all, not compared, for their time */
    const spx_frame *want;
    atomic_int next, failed, nthread;
} queue;

static void *work_off(void *p)
{
    queue *q = p;
    spx_extract_options o = q->s.o;
    o.nthreads = q->nthreads;
    o.queued = 1;
    const spx_extract_device *dev = &q->dev[atomic_fetch_add(&q->nthread, 1) % q->ndev];
    for (int i; (i = atomic_fetch_add(&q->next, 1)) < QUEUE * q->ndev;) {
        const int part = q->want ? i / 2 % 2 : 0;
        o.wmax = q->s.o.wmax - part * PART;
        spx_frame g = {0};
        spx_extract_counts counts;
        spx_extract_cuda_times times;
        spx_err e = {0};
        const spx_status st = spx_extract_trace_cuda(dev, 1, &q->s.image, q->s.psf, &o, &g, &counts, &times, &e);
        const int right = st == SPX_OK && (!q->want || same_bits(&g, &q->want[part]));
        if (!right && atomic_exchange(&q->failed, 1) == 0) { /* the first says why */
            if (st != SPX_OK)
                printf("frame %d: %s\n", i, spx_err_text(&e));
            else
                say_differences(&q->want[part], &g);
        }
        free_frame(&g);
    }
    return NULL;
}

static void *copy_of(const void *from, size_t n, size_t size)
{
    void *to = must_have(spx_alloc(n, size, NULL));
    memcpy(to, from, n * size);
    return to;
}

/* Twice: compared with what device 0 makes of the frame alone, and for its time. */
static void time_queue(const scene *s, spx_extract_device *dev, int ndev, int ncall, const char *what)
{
    double seconds = 0.0;
    spx_frame want[2] = {{0}};
    spx_extract_counts counts;
    spx_extract_cuda_times times;
    spx_err e = {0};
    const size_t npix = s->image.nx * s->image.ny;
    spx_mem_cache(1);
    queue q = {.s = *s, .dev = dev, .ndev = ndev, .nthreads = (omp_get_max_threads() + ncall - 1) / ncall};
    q.s.image.data = copy_of(s->image.data, npix, sizeof *s->image.data);
    q.s.image.ivar = copy_of(s->image.ivar, npix, sizeof *s->image.ivar);
    q.s.image.mask = copy_of(s->image.mask, npix, sizeof *s->image.mask);
    for (int part = 0; part < 2; part++) {
        spx_extract_options o = s->o;
        o.wmax -= part * PART;
        must(spx_extract_trace_cuda(dev, 1, &s->image, s->psf, &o, &want[part], &counts, &times, &e) == SPX_OK, &e);
    }
    for (int timed = 0; timed < 2; timed++) {
        pthread_t thread[4 * MOST_DEVICES];
        const double begin = spx_seconds();
        q.want = timed ? NULL : want;
        atomic_store(&q.next, 0);
        atomic_store(&q.nthread, 0);
        for (int i = 0; i < ncall; i++)
            if (pthread_create(&thread[i], NULL, work_off, &q) != 0) {
                puts("no threads");
                exit(1);
            }
        for (int i = 0; i < ncall; i++)
            (void)pthread_join(thread[i], NULL);
        seconds = spx_seconds() - begin;
    }
    printf("%-28s %d frames, %d at a time on %d devices: %.4f s a frame%s\n", what, QUEUE * ndev, ncall, ndev,
           seconds / (QUEUE * ndev), q.failed ? "  FAILED" : "");
    failures += q.failed;
    free_frame(&want[0]);
    free_frame(&want[1]);
    spx_free(q.s.image.data);
    spx_free(q.s.image.ivar);
    spx_free(q.s.image.mask);
    spx_mem_cache(0);
}

/* Several devices: one frame shared out among them, then a queue. */
static void several(int ndev)
{
    spx_extract_device dev[MOST_DEVICES] = {{0}};
    scene s = make_frame('r', 500, 5760.0, 7620.0, MASKS);
    spx_err e = {0};
    for (int i = 0; i < ndev; i++)
        must(spx_extract_cuda_open(&dev[i], i, &e) == SPX_OK, &e);
    (void)compare_on(&s, dev, (size_t)ndev, FRAME, "shared out");
    for (int n = 1; n <= ndev; n++)
        for (int each = 1; each <= 4; each++)
            time_queue(&s, dev, n, each * n, "queue");
    free_scene(&s);
    for (int i = 0; i < ndev; i++)
        spx_extract_cuda_free(&dev[i]);
}

/* ---- memory that another program has ---- */

/* Of the runtime library, whose header the C compiler may not find. */
extern int cudaMemGetInfo(size_t *free_bytes, size_t *total);
extern int cudaMalloc(void **p, size_t bytes);

typedef struct {
    pid_t child;
    int there[2], go[2]; /* the child says that it has the memory; it takes it, and gives it back, when told */
} hoarder;

/* A child that will take all but 100 MB of the device: before this process uses it. */
static hoarder start_hoarder(void)
{
    hoarder h;
    if (pipe(h.there) != 0 || pipe(h.go) != 0 || (h.child = fork()) < 0) {
        puts("no second process");
        exit(1);
    }
    if (h.child == 0) {
        size_t left = 0, total = 0;
        void *p;
        char c = 0;
        (void)close(h.go[1]);
        if (read(h.go[0], &c, 1) == 1 && cudaMemGetInfo(&left, &total) == 0)
            c = cudaMalloc(&p, left - ((size_t)100 << 20)) == 0;
        if (write(h.there[1], &c, 1) == 1)
            (void)!read(h.go[0], &c, 1);
        _exit(0);
    }
    (void)close(h.go[0]);
    return h;
}

/* Reads what this process says on stderr, and has the memory given back when it says that it waits. */
typedef struct {
    hoarder *h;
    int from, said;
} listener;

static void *listen_to(void *p)
{
    listener *l = p;
    char text[4096];
    size_t n = 0;
    for (ssize_t more; (more = read(l->from, text + n, sizeof text - 1 - n)) > 0 && n < sizeof text - 1;) {
        text[n += (size_t)more] = '\0';
        if (!l->said && strstr(text, "waits for") != NULL) {
            l->said = 1;
            (void)close(l->h->go[1]);
        }
    }
    return NULL;
}

/* An extraction waits for the memory, says so, and is right. */
static void wait_for_others(hoarder *h, const spx_extract_device *dev)
{
    scene s = make_frame('r', 12, 6000.0, 6040.0, 0);
    listener l = {.h = h};
    pthread_t thread;
    int words[2], before = dup(STDERR_FILENO);
    char c = 1;
    compare(&s, dev, "alone"); /* contexts of the device are there */
    spx_extract_device other;
    spx_err e = {0};
    must(spx_extract_cuda_open(&other, 0, &e) == SPX_OK, &e);
    if (write(h->go[1], &c, 1) != 1 || read(h->there[0], &c, 1) != 1 || c != 1 || pipe(words) != 0 ||
        dup2(words[1], STDERR_FILENO) < 0 || close(words[1]) != 0) {
        puts("beside a program: it could not take the memory  FAILED");
        failures++;
        return;
    }
    l.from = words[0];
    must(pthread_create(&thread, NULL, listen_to, &l) == 0, &e);
    compare(&s, &other, "beside another program");
    (void)dup2(before, STDERR_FILENO);
    (void)pthread_join(thread, NULL);
    if (!l.said) {
        puts("beside another program       nobody has waited  FAILED");
        failures++;
        (void)close(h->go[1]);
    }
    (void)waitpid(h->child, NULL, 0);
    spx_extract_cuda_free(&other);
    free_scene(&s);
}

/* Another camera: traces closer by `closer` pixels and bins of `dw` Angstrom, 500 fibres of an r frame. The CPU
 * extracts the first bundles with two threads, which are compared. */
static void time_camera(spx_extract_device *dev, double closer, double dw)
{
    enum { BUNDLES = 2, RUNS = 3 };
    char name[64];
    scene s = make_frame('r', 500, 5760.0, 7620.0, MASKS | GAP);
    (void)snprintf(name, sizeof name, "%.1f closer, bins of %.2f", closer, dw);
    for (size_t f = 0; f < 500; f++)
        s.psf->x.coef[f * s.psf->x.ncoef] -= closer * (double)f;
    s.o.dw = dw;
    double best = 1e30, on_cpu;
    size_t left = 0, coupled = 0;
    spx_err e = {0};
    for (int run = 0; run < RUNS; run++) {
        spx_frame g = {0};
        spx_extract_counts counts;
        spx_extract_cuda_times times;
        const double begin = spx_seconds();
        must(spx_extract_trace_cuda(dev, 1, &s.image, s.psf, &s.o, &g, &counts, &times, &e) == SPX_OK, &e);
        best = fmin(best, spx_seconds() - begin);
        left = counts.fallback.on_cpu;
        coupled = times.coupled;
        free_frame(&g);
    }
    printf("%-28s %.3f s for 500 fibres, %zu bundles coupled, %zu on the CPU\n", name, best, coupled, left);
    (void)fflush(stdout);
    s.o.nspec = BUNDLES * s.o.bundle_size;
    s.o.nthreads = BUNDLES;
    (void)compare_on(&s, dev, 1, HARD, name);
    spx_frame c = {0};
    spx_extract_counts counts;
    const double begin = spx_seconds();
    must(spx_extract_trace_cpu(&s.image, s.psf, &s.o, &c, &counts, &e) == SPX_OK, &e);
    on_cpu = (spx_seconds() - begin) * 500.0 / (double)s.o.nspec;
    free_frame(&c);
    printf("%-28s two threads of the CPU %.1f s: %.0f x\n", name, on_cpu, on_cpu / best);
    free_scene(&s);
}

static const char arms[] = "rbz";
static const double from[] = {5760.0, 3600.0, 7520.0}, to[] = {7620.0, 5800.0, 9824.0};

/* Small frames, each for what it says. */
static void chosen_frames(spx_extract_device *dev)
{
    scene s = make_frame('r', 12, 6000.0, 6040.0, 0);
    s.o.bundle_size = 5;
    compare(&s, dev, "12 fibres, bundles of 5");
    s.o.first = 3;
    s.o.nspec = 4;
    compare(&s, dev, "4 of them");
    s.o.first = 0;
    s.o.nspec = 12;
    s.o.dw = 1.2; /* bandwidths without loops of constant length */
    compare(&s, dev, "wide bins");
    s.o.dw = 0.55; /* hardly anything tells the spectra of neighbouring bins apart */
    compare(&s, dev, "narrow bins");
    s.o.dw = 0.5; /* nor of those far away */
    (void)compare_on(&s, dev, 1, HARD, "bins of 0.5 Angstrom");
    s.o.dw = 0.4;
    (void)compare_on(&s, dev, 1, HARD, "bins of 0.4 Angstrom");
    free_scene(&s);
    s = make_frame('r', 10, 6000.0, 6040.0, MASKS | GAP);
    s.o.dw = 0.65;
    compare(&s, dev, "narrow bins, masks and a gap");
    free_scene(&s);
    s = make_frame('r', 10, 6000.0, 6040.0, LARGE | MASKS | GAP);
    s.o.dw = 0.65; /* a warp works on bands as wide as it can */
    compare(&s, dev, "widest bands");
    free_scene(&s);
    s = make_frame('r', 12, 6000.0, 6040.0, MASKS);
    widen(&s);
    compare(&s, dev, "larger spots");
    free_scene(&s);
    s = make_frame('b', 7, 4000.0, 4320.0, MASKS | GAP);
    s.o.bundle_size = 4;
    refuse(&s, dev, "blue, masks and a gap");
    compare(&s, dev, "blue, masks and a gap");
    free_scene(&s);
    s = make_frame('r', 10, 6000.0, 6080.0, LARGE);
    compare(&s, dev, "spots of 25 x 17 pixels");
    free_scene(&s);
    s = make_frame('r', 10, 6000.0, 6080.0, SMALL);
    compare(&s, dev, "spots of 7 x 5 pixels");
    free_scene(&s);
    s = make_frame('r', 12, 6000.0, 6080.0, CLOSE | MASKS);
    compare(&s, dev, "traces closer by a fifth");
    free_scene(&s);
    s = make_frame('z', 10, 9000.0, 9120.0, TURNED | MASKS);
    s.o.bundle_size = 3;
    compare(&s, dev, "turned by half a turn");
    free_scene(&s);
    s = make_frame('r', 12, 6000.0, 6200.0, HITS);
    s.o.bundle_size = 5;
    compare(&s, dev, "hits");
    s.o.variance = SPX_VARIANCE_MODEL;
    compare(&s, dev, "hits, variance of the model");
    s.o.reject = 0.0;
    compare(&s, dev, "variance of the model");
    s.image.readnoise[s.image.nx * s.image.ny / 2] = 0.0f;
    s.image.readnoise[s.image.nx * s.image.ny / 3] = NAN;
    compare(&s, dev, "pixels without read noise");
    s.o.reject = 5.0;
    s.o.variance = SPX_VARIANCE_DATA;
    s.o.dw = 1.2; /* recurrences of any bandwidth */
    compare(&s, dev, "hits, wide bins");
    free_scene(&s);
    s = make_frame('z', 7, 9000.0, 9120.0, TURNED | HITS | GAP);
    compare(&s, dev, "hits, turned, a gap");
    s.o.variance = SPX_VARIANCE_MODEL;
    compare(&s, dev, "the same, variance of model");
    free_scene(&s);
    s = make_frame('b', 6, 4000.0, 4080.0, LARGE | HITS);
    compare(&s, dev, "hits, large spots");
    free_scene(&s);
}

/* Light beyond the spots; hits and the model's variance are found without it. */
static void frames_beyond(spx_extract_device *dev)
{
    const size_t nspec = EMULATED ? 4 : 12;
    const double end = EMULATED ? 6016.0 : 6200.0, line = 6008.3;
    scene s = make_frame('r', nspec, 6000.0, end, BEYOND | MASKS);
    s.o.bundle_size = 5;
    compare(&s, dev, "tails and a background");
    refuse(&s, dev, "tails");
    s.o.line = &line;
    s.o.nline = 1;
    compare(&s, dev, "the same, a line of the sky");
    refuse(&s, dev, "lines");
    s.o.nline = 0;
    s.o.background = 0.0;
    if (!EMULATED) {
        compare(&s, dev, "tails");
        add_tail(s.psf, 3.0); /* tables of the layout before are not those of this one */
        compare(&s, dev, "tails of another radius");
    }
    free_scene(&s);
    if (!EMULATED) {
        s = make_frame('r', nspec, 6000.0, end, BEYOND | LARGE);
        s.o.bundle_size = 7;
        compare(&s, dev, "tails of larger spots");
        free_scene(&s);
    }
    s = make_frame('r', nspec, 6000.0, end, BEYOND | HITS);
    s.o.bundle_size = 5;
    compare(&s, dev, "tails, background, hits");
    s.o.variance = SPX_VARIANCE_MODEL;
    compare(&s, dev, "the same, model's variance");
    refuse(&s, dev, "tails, hits, model's variance");
    s.o.tail_corrections = 0;
    spx_psf_drop_tail(s.psf);
    if (!EMULATED)
        compare(&s, dev, "background, its variance");
    free_scene(&s);
}

/* The same of a whole camera, timed. */
static void large_beyond(spx_extract_device *dev)
{
    scene s = make_frame('r', 500, 5760.0, 7620.0, MASKS | BEYOND);
    s.o.background = 512.0;
    compare(&s, dev, "500, tails and background");
    s.o.want_model = 0;
    time_it(&s, dev, "500, tails and background");
    time_queue(&s, dev, 1, 2, "500, tails and background");
    s.o.background = 0.0;
    time_it(&s, dev, "500, tails");
    time_queue(&s, dev, 1, 2, "500, tails");
    free_scene(&s);
}

/* Frames as cameras have them, timed too. */
static void large_frames(spx_extract_device *dev, int ndev)
{
    scene s = make_frame('r', 60, 6000.0, 6400.0, MASKS);
    compare(&s, dev, "60 fibres, masks");
    s.o.max_device_mem = (size_t)400 << 20;
    compare(&s, dev, "in pieces of 400 MB");
    free_scene(&s);
    for (int arm = 0; arm < 3; arm++) {
        char name[] = "500 fibres, x";
        name[12] = arms[arm];
        s = make_frame(arms[arm], 500, from[arm], to[arm], MASKS);
        compare(&s, dev, name);
        time_it(&s, dev, name);
        spx_extract_options small = s.o; /* what the smallest cards have */
        small.max_device_mem = (size_t)3 << 30;
        compare_bits(&s, dev, &small, "in 3 GB");
        if (arm == 0) {
            s.o.max_device_mem = small.max_device_mem;
            compare(&s, dev, "in 3 GB");
            s.o.max_device_mem = 0;
        }
        if (arm == 0)
            for (int ncall = 1; ncall <= 4; ncall++)
                time_queue(&s, dev, 1, ncall, name);
        free_scene(&s);
    }
    s = make_frame('r', 100, 5760.0, 7620.0, HITS | MASKS);
    compare(&s, dev, "100 fibres with hits");
    time_it(&s, dev, "100 fibres with hits");
    s.o.max_device_mem = (size_t)500 << 20;
    compare(&s, dev, "100 with hits, in pieces");
    s.o.variance = SPX_VARIANCE_MODEL;
    s.o.max_device_mem = (size_t)900 << 20;
    compare(&s, dev, "variance of model, in pieces");
    s.o.max_device_mem = 0;
    compare(&s, dev, "variance of model");
    free_scene(&s);
    s = make_frame('r', 100, 5760.0, 7620.0, MASKS | GAP);
    compare(&s, dev, "100 fibres with a gap");
    time_it(&s, dev, "100 fibres with a gap");
    free_scene(&s);
    large_beyond(dev);
    if (ndev > 1)
        several(ndev);
}

/* For profilers: `time` or `equal`, then an arm, then what of: hits, variance (of the model, with hits), tails,
 * background (with tails), and, timed, a number of calls at a time. */
static void one_frame(spx_extract_device *dev, int nword, char **word)
{
    int what = MASKS, variance = 0, background = 0, ncall = 0;
    const char *arm = nword > 1 ? strchr(arms, word[1][0]) : arms;
    const int i = arm ? (int)(arm - arms) : 0;
    char name[] = "500 fibres, x";
    name[12] = arms[i];
    for (int k = 2; k < nword; k++) {
        const int own = strcmp(word[k], "variance") == 0, all = strcmp(word[k], "background") == 0;
        variance |= own;
        background |= all;
        ncall = atoi(word[k]) > 0 ? atoi(word[k]) : ncall;
        what = own || strcmp(word[k], "hits") == 0 ? (what & ~MASKS) | HITS : what;
        what |= all || strcmp(word[k], "tails") == 0 ? BEYOND : 0;
    }
    scene s = make_frame(arms[i], 500, from[i], to[i], what);
    s.o.variance = variance ? SPX_VARIANCE_MODEL : SPX_VARIANCE_DATA;
    s.o.background = background ? 512.0 : 0.0;
    s.o.want_model = 0;
    if (strcmp(word[0], "equal") == 0)
        compare(&s, dev, name);
    else if (ncall > 0)
        time_queue(&s, dev, 1, ncall, name);
    else
        time_it(&s, dev, name);
    free_scene(&s);
}

int main(int argc, char **argv)
{
    const int small = argc > 1 && strcmp(argv[1], "small") == 0;
    spx_extract_device dev;
    spx_err error = {0};
    hoarder h;
    setvbuf(stdout, NULL, _IOLBF, 0);
    const int beside = argc > 1 && strcmp(argv[1], "beside") == 0;
    if (beside)
        h = start_hoarder();
    must(spx_extract_cuda_open(&dev, 0, &error) == SPX_OK, &error);
    if (beside)
        wait_for_others(&h, &dev);
    if (beside) {
        spx_extract_cuda_free(&dev);
        return failures != 0;
    }
    const uint64_t fresh = (uint64_t)time(NULL) * 1000; /* scenes that nobody has seen */
    if (argc > 1 && (strcmp(argv[1], "time") == 0 || strcmp(argv[1], "equal") == 0)) {
        one_frame(&dev, argc - 1, argv + 1);
        spx_extract_cuda_free(&dev);
        return failures != 0;
    }
    if (argc > 1 && strcmp(argv[1], "camera") == 0) {
        time_camera(&dev, argc > 2 ? atof(argv[2]) : 1.6, argc > 3 ? atof(argv[3]) : 0.8);
        spx_extract_cuda_free(&dev);
        return failures != 0;
    }
    if ((argc > 1 && strcmp(argv[1], "random") == 0) || (EMULATED && argc == 1)) {
        /* On the emulated device always the same, for a check that takes seconds and not minutes. */
        const uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : EMULATED ? 88031 : fresh;
        const uint64_t count = argc > 3 ? strtoull(argv[3], NULL, 10) : EMULATED ? 1 : 100;
        compare_all_drawn(&dev, first, count, argc > 4 ? argv[4] : NULL);
        if (argc == 1) {
            compare_once_wrong(&dev);
            compare_coarse(&dev);
            compare_queued(&dev);
            frames_beyond(&dev);
        }
        spx_extract_cuda_free(&dev);
        return failures != 0;
    }
    if (argc > 1 && strcmp(argv[1], "beyond") == 0) {
        frames_beyond(&dev);
        if (!EMULATED && argc == 2)
            large_beyond(&dev);
        spx_extract_cuda_free(&dev);
        return failures != 0;
    }
    const int count = spx_extract_cuda_count(), ndev = count < MOST_DEVICES ? count : MOST_DEVICES;
    if (argc > 1 && strcmp(argv[1], "queue") == 0) {
        several(ndev);
        spx_extract_cuda_free(&dev);
        return failures != 0;
    }
    chosen_frames(&dev);
    frames_beyond(&dev);
    compare_once_wrong(&dev);
    compare_coarse(&dev);
    compare_queued(&dev);
    compare_repeated(&dev, "one bundle again");
    compare_all_drawn(&dev, fresh, small ? 2 : 20, NULL);
    if (!small)
        large_frames(&dev, ndev);
    spx_extract_cuda_free(&dev);
    printf("%s\n", failures ? "FAILED" : "all equal");
    return failures != 0;
}
