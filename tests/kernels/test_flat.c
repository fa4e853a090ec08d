/* The fibre flat field against throughputs that are known: errors that are what they say, hits, fibres and wavelengths
 * that are not there, the number of threads; and the division of frames. What cases of op_flat.c do not cover.
 *
 * Tolerances: 4 scenes of 60 fibres and 19 splines have 4 500 independent errors, whose median is known to 0.019 of an
 * error and whose scatter, from the median of their magnitudes, to 0.017: 3 times that. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flat_scene.h"
#include "h5/table.h"
#include "num/stat.h"
#include "products/frame.h"

static int failures;

static void expect(int ok, const char *what)
{
    if (!ok) {
        printf("test_flat: %s\n", what);
        failures++;
    }
}

static spx_flat flat_of(spx_backend *b, const flat_scene *s, const spx_flat_options *o, spx_flat_counts *c)
{
    const spx_flat_input in = flat_scene_input(s);
    spx_flat out = {0};
    spx_err e = {0};
    if (b->flat(b, &in, o, &out, c, &e) != SPX_OK) {
        printf("test_flat: %s\n", spx_err_text(&e));
        exit(1);
    }
    return out;
}

static spx_flat_options usual(void)
{
    return (spx_flat_options){.knots = 60, .reject = 5, .converge = SPX_FLAT_CONVERGE, .nthreads = 2};
}

/* No value that is not finite, and flat 1 with ivar 0 wherever the mask says so. */
static void expect_sound(const spx_flat *f)
{
    int finite = 1, consistent = 1;
    for (size_t k = 0; k < f->nspec * f->nwave; k++) {
        finite = finite && isfinite(f->flat[k]) && isfinite(f->ivar[k]) && f->ivar[k] >= 0;
        consistent = consistent && (f->mask[k] != 0 ? f->flat[k] == 1 && f->ivar[k] == 0 : f->ivar[k] > 0);
    }
    for (size_t k = 0; k < f->nlamp * f->nwave; k++)
        finite = finite && isfinite(f->lamp[k]) && isfinite(f->mean[k]);
    for (size_t i = 0; i < f->nspec; i++)
        finite = finite && isfinite(f->chi2[i]);
    expect(finite, "a value is not finite");
    expect(consistent, "mask, flat and ivar contradict each other");
}

/* Median and scatter of (flat - truth)/error of several scenes, every 19th part of the bins; truth normalised over the
 * fibres that the flat has. */
static void pulls(spx_backend *b, int edge, int hits, double *median, double *scatter, double *chi2)
{
    enum { SCENES = 4, NS = 60, N = 1200, STEP = 63 };
    static double pull[SCENES * NS * (N / STEP + 1)], size[SCENES * NS * (N / STEP + 1)];
    size_t n = 0, planted = 0, rejected = 0;
    *chi2 = 0;
    for (int scene = 0; scene < SCENES; scene++) {
        random_start(1000 + (uint64_t)(10 * scene + 5 * edge + hits));
        flat_scene s = flat_scene_new(3, NS, N, 11, 6000, 1, edge);
        for (size_t h = 0; h < 900 && hits; h++) /* 0.4 % of the bins, 10 to 200 errors */
            s.flux[h % 3][(size_t)(uniform() * NS * N)] += 70 * (10 + 190 * uniform());
        planted += hits ? 900 : 0;
        spx_flat_counts c;
        const spx_flat_options o = usual();
        spx_flat f = flat_of(b, &s, &o, &c);
        expect_sound(&f);
        expect(c.converged, "no convergence");
        rejected += c.nreject;
        *chi2 += c.chi2 / SCENES;
        for (size_t i = 0; i < NS; i++)
            for (size_t k = STEP / 2; k < N; k += STEP)
                pull[n++] = (f.flat[i * N + k] - s.truth[i * N + k]) * sqrt(f.ivar[i * N + k]);
        spx_flat_free(&f);
        flat_scene_free(&s);
    }
    if (hits) /* a few fall on each other */
        expect(rejected > planted - planted / 100 && rejected < planted + 20, "hits are not what was rejected");
    memcpy(size, pull, n * sizeof *pull);
    *median = spx_median(size, n);
    for (size_t k = 0; k < n; k++)
        size[k] = fabs(pull[k] - *median);
    *scatter = 1.4826 * spx_median(size, n);
    printf("lamp %s, %s: pulls %.3f +- 0.019, scatter %.3f +- 0.017, chi2 %.4f\n", edge ? "with an edge" : "smooth",
           hits ? "0.4 % hits" : "no hits", *median, *scatter, *chi2);
}

static void errors(spx_backend *b)
{
    for (int edge = 0; edge < 2; edge++)
        for (int hits = 0; hits < 2; hits++) {
            double median, scatter, chi2;
            pulls(b, edge, hits, &median, &scatter, &chi2);
            expect(fabs(median) < 0.057, "errors of the flat have a bias");
            expect(fabs(scatter - 1) < 0.05, "errors of the flat are not what they say");
            /* 4 x 216 000 bins: 0.0015; rejected beyond 5 of 1 are no loss */
            expect(fabs(chi2 - 1) < 0.006, "chi2 is not 1");
        }
}

/* Fringes of 40 Angstrom: knots of 60 do not follow them, and chi2 says so; knots of 10 do. */
static void fringes(spx_backend *b)
{
    random_start(77);
    flat_scene s = flat_scene_new(3, 20, 600, 11, 6000, 1, 0);
    for (size_t i = 0; i < 20; i++)
        for (size_t k = 0; k < 600; k++)
            for (size_t x = 0; x < 3; x++)
                s.flux[x][i * 600 + k] *= 1 + 0.03 * sin(2 * M_PI * (double)k * 0.8 / 40 + (double)i);
    spx_flat_options o = usual();
    spx_flat_counts c;
    spx_flat f = flat_of(b, &s, &o, &c);
    printf("fringes: chi2 %.3f with knots of 60", c.chi2);
    expect(c.chi2 > 2, "fringes do not show");
    spx_flat_free(&f);
    o.knots = 10;
    f = flat_of(b, &s, &o, &c);
    printf(", %.3f with knots of 10\n", c.chi2);
    expect(c.chi2 < 1.05, "splines do not follow fringes");
    spx_flat_free(&f);
    flat_scene_free(&s);
}

/* Fibres and wavelengths that are not there. */
static void absent(spx_backend *b)
{
    enum { NS = 30, N = 500 };
    random_start(5);
    flat_scene s = flat_scene_new(2, NS, N, 11, 6000, 1, 1);
    for (size_t x = 0; x < 2; x++)
        for (size_t k = 0; k < N; k++) {
            s.flux[x][4 * N + k] = 3 * gauss(); /* dead */
            s.flux[x][9 * N + k] = NAN;         /* unreadable */
            s.flux[x][12 * N + k] *= 0.03;      /* next to nothing */
            s.ivar[x][13 * N + k] = k < N / 2 ? 0 : s.ivar[x][13 * N + k];
            s.ivar[x][14 * N + k] = k % 2 == 0 ? 0 : s.ivar[x][14 * N + k];
            for (size_t i = 0; i < NS; i++)
                if (k >= 200 && k < 215)
                    s.mask[x][i * N + k] = 2; /* no fibre has these */
        }
    const spx_flat_options o = usual();
    spx_flat_counts c;
    spx_flat f = flat_of(b, &s, &o, &c);
    expect_sound(&f);
    expect(c.nbadfiber == 3, "bad fibres are not three");
    static const size_t bad[] = {4, 9, 12};
    for (size_t i = 0; i < 3; i++)
        expect(f.mask[bad[i] * N] == SPX_BADFIBERFLAT && f.mask[bad[i] * N + N - 1] == SPX_BADFIBERFLAT,
               "a bad fibre is not flagged");
    expect(f.mask[13 * N + 20] == SPX_LOWFLAT && f.mask[13 * N + N - 20] == 0, "half a fibre: wrong half");
    expect(f.mask[14 * N + N / 2 - 30] == 0, "every second bin is enough");
    /* the others are as good as without: over the gap and beside a half fibre, too */
    double most = 0, mean[N];
    for (size_t k = 0; k < N; k++) {
        mean[k] = 0;
        for (size_t i = 0; i < NS; i++) /* the fibres of the mean have bins everywhere */
            mean[k] += i == 4 || i == 9 || i == 12 || i == 13 ? 0 : s.truth[i * N + k] / (NS - 4);
    }
    for (size_t i = 0; i < NS; i++)
        for (size_t k = 0; k < N; k++)
            if (f.mask[i * N + k] == 0)
                most = fmax(most, fabs(f.flat[i * N + k] - s.truth[i * N + k] / mean[k]) * sqrt(f.ivar[i * N + k]));
    expect(most < 5, "a fibre is off beside what is not there"); /* 30 x 11 numbers: 1e-4 of all tests */
    spx_flat_free(&f);
    flat_scene_free(&s);
}

static void same_bits(spx_backend *b)
{
    random_start(8);
    flat_scene s = flat_scene_new(3, 70, 300, 11, 6000, 1, 1);
    spx_flat f[3];
    for (int t = 0; t < 3; t++) {
        spx_flat_options o = usual();
        spx_flat_counts c;
        o.nthreads = 1 + 2 * t;
        f[t] = flat_of(b, &s, &o, &c);
        expect(memcmp(f[t].flat, f[0].flat, 70 * 300 * sizeof(double)) == 0 &&
                   memcmp(f[t].ivar, f[0].ivar, 70 * 300 * sizeof(double)) == 0 &&
                   memcmp(f[t].lamp, f[0].lamp, 3 * 300 * sizeof(double)) == 0,
               "other bits for another number of threads");
    }
    for (int t = 0; t < 3; t++)
        spx_flat_free(&f[t]);
    flat_scene_free(&s);
}

static void refused(spx_backend *b)
{
    random_start(9);
    flat_scene s = flat_scene_new(1, 4, 100, 5, 6000, 1, 0);
    const spx_flat_input in = flat_scene_input(&s);
    const struct {
        double knots, scale;
        int native;
        spx_status st;
    } wrong[] = {{60, 1, 1, SPX_EUSAGE}, {2, 1, 0, SPX_EUSAGE}, {60, 0, 0, SPX_EINPUT}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        spx_flat_options o = usual();
        spx_flat out = {0};
        spx_flat_counts c;
        spx_err e = {0};
        o.knots = wrong[i].knots;
        o.native = wrong[i].native;
        for (size_t k = 0; k < 400; k++)
            s.flux[0][k] *= wrong[i].scale;
        expect(b->flat(b, &in, &o, &out, &c, &e) == wrong[i].st, "a wrong call has another status");
        spx_flat_free(&out);
    }
    flat_scene_free(&s);
}

/* ---- division of a frame ---- */

enum { FRAME_NS = 3, FRAME_N = 20, FRAME_DIAG = 3 };

static spx_frame frame_new(void)
{
    spx_frame f = {.nspec = FRAME_NS, .camera = "z1"};
    f.arm.nwave = FRAME_N;
    f.arm.ndiag = FRAME_DIAG;
    f.arm.wavelength = need(FRAME_N, sizeof(double));
    f.arm.flux = need((size_t)FRAME_NS * FRAME_N, sizeof(double));
    f.arm.ivar = need((size_t)FRAME_NS * FRAME_N, sizeof(double));
    f.arm.resolution = need((size_t)FRAME_NS * FRAME_DIAG * FRAME_N, sizeof(double));
    f.fiber = need(FRAME_NS, sizeof *f.fiber);
    for (size_t k = 0; k < FRAME_N; k++)
        f.arm.wavelength[k] = 5000 + (double)k;
    for (size_t k = 0; k < (size_t)FRAME_NS * FRAME_N; k++) {
        f.arm.flux[k] = 100 + 10 * gauss();
        f.arm.ivar[k] = k % 7 == 0 ? 0 : 0.01 + 0.01 * uniform();
    }
    for (size_t k = 0; k < (size_t)FRAME_NS * FRAME_DIAG * FRAME_N; k++)
        f.arm.resolution[k] = uniform();
    for (int i = 0; i < FRAME_NS; i++)
        f.fiber[i] = 2 * i + 1;
    return f;
}

/* Of five fibres, 0 ... 4: the frame's are in other places. */
static spx_flat flat_new(int native)
{
    spx_flat f = {.nspec = 5 + 1, .nwave = FRAME_N, .camera = "z1", .native = native};
    f.wavelength = need(FRAME_N, sizeof(double));
    f.flat = need(6 * FRAME_N, sizeof(double));
    f.ivar = need(6 * FRAME_N, sizeof(double));
    f.mask = need(6 * FRAME_N, sizeof *f.mask);
    f.fiber = need(6, sizeof *f.fiber);
    for (size_t k = 0; k < FRAME_N; k++)
        f.wavelength[k] = 5000 + (double)k;
    for (int i = 0; i < 6; i++)
        f.fiber[i] = i;
    for (size_t k = 0; k < 6 * FRAME_N; k++) {
        f.flat[k] = 0.7 + 0.6 * uniform();
        f.ivar[k] = 1e4 * (1 + uniform());
        if (k % 11 == 3) {
            f.flat[k] = 1;
            f.ivar[k] = 0;
            f.mask[k] = SPX_LOWFLAT;
        }
    }
    return f;
}

static void division(void)
{
    random_start(31);
    for (int native = 0; native < 2; native++) {
        spx_frame before = frame_new(), after = frame_new();
        spx_flat flat = flat_new(native);
        spx_err e = {0};
        size_t lost = 0, expected = 0;
        const size_t bins = (size_t)FRAME_NS * FRAME_N, diagonals = bins * FRAME_DIAG;
        memcpy(after.arm.flux, before.arm.flux, bins * sizeof(double));
        memcpy(after.arm.ivar, before.arm.ivar, bins * sizeof(double));
        memcpy(after.arm.resolution, before.arm.resolution, diagonals * sizeof(double));
        expect(spx_flat_apply(&flat, &after, 2, &lost, &e) == SPX_OK, "a frame cannot be divided");
        double worst = 0;
        for (size_t i = 0; i < FRAME_NS; i++)
            for (size_t k = 0; k < FRAME_N; k++) {
                const size_t at = i * FRAME_N + k, row = (size_t)before.fiber[i];
                const double t = flat.flat[row * FRAME_N + k], w = before.arm.ivar[at], d = before.arm.flux[at];
                const double wf = flat.ivar[row * FRAME_N + k];
                /* variance, and that of the flat beside it */
                const double ivar = w > 0 && wf > 0 ? 1 / (1 / (w * t * t) + d * d / (wf * pow(t, 4))) : 0;
                worst = fmax(worst, fabs(after.arm.flux[at] * t / d - 1));
                worst = fmax(worst, ivar > 0 ? fabs(after.arm.ivar[at] / ivar - 1) : after.arm.ivar[at]);
                expected += w > 0 && !(wf > 0);
                expect(after.arm.mask[at] == flat.mask[row * FRAME_N + k], "the mask of the flat is not added");
                for (size_t b = 0; b < FRAME_DIAG; b++) {
                    /* element R[row k, column j] */
                    const long j = (long)k + (long)(FRAME_DIAG / 2) - (long)b;
                    if (j < 0 || j >= FRAME_N)
                        continue;
                    const size_t here = (i * FRAME_DIAG + b) * FRAME_N + (size_t)j;
                    const double factor = native ? flat.flat[row * FRAME_N + (size_t)j] / t : 1;
                    worst = fmax(worst, fabs(after.arm.resolution[here] / before.arm.resolution[here] / factor - 1));
                }
            }
        expect(worst < 1e-13, "a frame is not divided as it should");
        expect(lost == expected, "bins without flat are not counted");
        expect(after.flat_applied && spx_flat_apply(&flat, &after, 1, &lost, &e) == SPX_EINPUT,
               "a frame is divided twice");
        spx_frame_free(&before);
        spx_frame_free(&after);
        spx_flat_free(&flat);
    }
}

/* Barycentric bins: the flat of where they are on the ground. Its curvature, 0.05 (2 pi / 300)^2, leaves 3e-6 between
 * bins of 1 Angstrom. */
static void barycentric(void)
{
    static const double velocity[FRAME_NS] = {-29.5, 0, 26};
    random_start(33);
    spx_frame f = frame_new();
    spx_flat flat = flat_new(0);
    spx_err e = {0};
    size_t lost;
    double worst = 0;
    for (size_t i = 0; i < 6; i++)
        for (size_t k = 0; k < FRAME_N; k++) {
            flat.flat[i * FRAME_N + k] = 1 + 0.05 * sin(2 * M_PI * (double)k / 300 + (double)i);
            flat.ivar[i * FRAME_N + k] = 1e6;
            flat.mask[i * FRAME_N + k] = 0;
        }
    f.arm.barycentric = 1;
    for (size_t k = 0; k < (size_t)FRAME_NS * FRAME_N; k++)
        f.arm.flux[k] = 1;
    f.fibermap = spx_table_new(FRAME_NS, &e);
    expect(f.fibermap != NULL &&
               spx_table_add(f.fibermap, "BARYCENTRIC_VELOCITY", H5T_NATIVE_DOUBLE, "km/s", velocity, &e) == SPX_OK,
           "no fibermap");
    expect(spx_flat_apply(&flat, &f, 2, &lost, &e) == SPX_OK, "barycentric bins cannot be divided");
    for (size_t i = 0; i < FRAME_NS; i++)
        for (size_t k = 1; k + 1 < FRAME_N; k++) {
            const double at = (double)k - (5000 + (double)k) * velocity[i] / (299792.458 + velocity[i]);
            worst = fmax(worst, fabs(1 / f.arm.flux[i * FRAME_N + k] - 1 -
                                     0.05 * sin(2 * M_PI * at / 300 + (double)f.fiber[i])));
        }
    expect(worst < 4e-6, "barycentric bins have the flat of other places");
    spx_frame_free(&f);
    spx_flat_free(&flat);
}

static void mismatches(void)
{
    random_start(32);
    for (int what = 0; what < 7; what++) {
        spx_frame f = frame_new();
        spx_flat flat = flat_new(0);
        spx_err e = {0};
        size_t row[FRAME_NS];
        spx_status st = SPX_EINPUT;
        switch (what) {
        case 0:
            st = SPX_OK;
            break;
        case 1:
            (void)snprintf(flat.camera, sizeof flat.camera, "z2");
            break;
        case 2:
            flat.wavelength[7] += 1e-4;
            break;
        case 3:
            flat.nwave--;
            break;
        case 4:
            f.arm.barycentric = 1;
            break;
        case 5:
            f.fiber[2] = 17;
            break;
        default: /* by row, of another number */
            spx_free(f.fiber);
            f.fiber = NULL;
        }
        expect(spx_flat_match(&flat, &f, row, &e) == st, "match of flat and frame");
        expect(st == SPX_OK || (e.text[0] != '\0' && e.remedy[0] != '\0'), "no remedy");
        flat.nwave = FRAME_N;
        spx_frame_free(&f);
        spx_flat_free(&flat);
    }
}

int main(void)
{
    spx_backend b;
    open_device(&b, SPX_OP_FLAT);
    errors(&b);
    fringes(&b);
    absent(&b);
    same_bits(&b);
    refused(&b);
    division();
    barycentric();
    mismatches();
    spx_backend_close(&b);
    return failures > 0;
}
