/* Checks the start of a PSF fit from a flat and an arc alone (psffit/cold.h): traces, numbers of fibres and
 * wavelengths, against images of another kind (cold_scene.h), of the built-in camera and, with SPX_SHARED, an arc of a
 * real spectrograph; and what has no start. */
#include "psffit/cold.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "check.h"
#include "cold_scene.h"
#include "num/stat.h"
#include "psf/psf_math.h"
#include "psffit/cold_steps.h"
#include "sim/sim.h"
#include "sim/sim_lamp.h"

/* 28 fibres in bundles of 9, 12 and 7. */
static cold_scene small(void)
{
    return (cold_scene){.nx = 320,
                        .ny = 1200,
                        .nbundle = 3,
                        .bundle = {9, 12, 7},
                        .x0 = 20,
                        .pitch = 9,
                        .gap = 22,
                        .tilt = 12,
                        .bend = 6,
                        .middle = 6700,
                        .dispersion = 1.1,
                        .curve = 0.02,
                        .twist = -0.03,
                        .smile = 20,
                        .width = 1.5,
                        .light = 1e5,
                        .lamps = SPX_LAMP_HG | SPX_LAMP_NE | SPX_LAMP_AR | SPX_LAMP_KR,
                        .quality = SPX_ARC_VISIBLE,
                        .unlisted = 10,
                        .uneven = 2,
                        .hits = 50,
                        .hit = 2000,
                        .noise = 3,
                        .seed = 11};
}

/* Centre and dispersion are known to 60 Angstrom and 4 %. */
static spx_cold_options options(const cold_scene *s)
{
    spx_cold_options o = spx_cold_defaults();
    o.nbundle = s->nbundle;
    o.bundle = s->bundle;
    o.centre = s->middle + 60;
    o.dispersion = 1.04 * fabs(s->dispersion);
    return o;
}

static spx_status start(const spx_image *flat, const spx_image *arc, unsigned lamps, const spx_cold_options *o,
                        spx_psf *psf, spx_cold_report *r, spx_err *e)
{
    spx_arc_line *line = NULL;
    size_t n = 0;
    spx_status st = spx_arc_lines(lamps, &line, &n, e);
    if (st == SPX_OK)
        st = spx_cold_start(flat, 1, arc, n, line, o, psf, r, e);
    spx_free(line);
    return st;
}

/* ---- scenes of another kind ---- */

typedef struct {
    double x, y, dead; /* rms against the truth, pixels; dead: x of fibres without light */
    int flags_right;
} errors;

/* Start against truth at 39 rows of the CCD. */
static errors compare(const cold_scene *s, const spx_psf *psf, int from_right)
{
    errors d = {.flags_right = 1};
    size_t n = 0, nd = 0, nspec = cold_nspec(s);
    for (size_t i = 0; i < nspec; i++) {
        const size_t f = from_right ? nspec - 1 - i : i;
        d.flags_right &=
            (psf->status[f] == SPX_PSF_DEAD) == cold_is_dead(s, i) && psf->bundle[f] == cold_bundle(s, i, from_right);
        for (int k = 1; k < 40; k++) {
            const double row = (double)s->ny * k / 40, lambda = cold_lambda(s, i, row);
            const double dx = spx_psf_series_value(&psf->x, f, lambda) - cold_x(s, i, row),
                         dy = spx_psf_series_value(&psf->y, f, lambda) - row;
            if (cold_is_dead(s, i)) {
                d.dead += dx * dx;
                nd++;
            } else {
                d.x += dx * dx;
                d.y += dy * dy;
                n++;
            }
        }
    }
    d.x = sqrt(d.x / (double)n);
    d.y = sqrt(d.y / (double)n);
    d.dead = nd > 0 ? sqrt(d.dead / (double)nd) : 0;
    return d;
}

/* The start is as good as this: rms of places in pixels, of columns where fibres have no light. */
static void good(const char *name, const cold_scene *s, const spx_cold_options *o, double x, double y, double dead)
{
    spx_image flat = {0}, arc = {0};
    spx_psf psf = {0};
    spx_cold_report r;
    spx_err e = {0};
    cold_flat(s, &flat);
    cold_arc(s, &arc);
    const spx_status st = start(&flat, &arc, s->lamps, o, &psf, &r, &e);
    CHECK(st == SPX_OK, "%s: %s", name, spx_err_text(&e));
    if (st == SPX_OK) {
        const errors d = compare(s, &psf, o->from_right);
        CHECK(d.x < x && d.y < y && d.dead < dead, "%s: x %.4f, y %.4f, fibres without light %.2f pixel", name, d.x,
              d.y, d.dead);
        CHECK(d.flags_right, "%s: flags or bundles are wrong", name);
        CHECK(r.nspec == cold_nspec(s) && r.ndead == s->ndead && r.nfew == 0 && psf.nspec == r.nspec,
              "%s: %zu fibres, %zu dead, %zu few", name, r.nspec, r.ndead, r.nfew);
        CHECK(r.best.nline >= 10 && (double)r.best.nline >= 1.3 * (double)r.rival.nline, "%s: %zu lines, rival %zu",
              name, r.best.nline, r.rival.nline);
        CHECK(fabs(r.pitch / s->pitch - 1) < 0.1 && fabs(r.sigmax / r.sigmay - 1) < 0.15 && r.degree == 5,
              "%s: pitch %.2f, widths %.2f, %.2f, degree %d", name, r.pitch, r.sigmax, r.sigmay, r.degree);
    }
    spx_psf_free(&psf);
    spx_image_free(&flat);
    spx_image_free(&arc);
}

static void test_scenes(void)
{
    static const size_t turned[] = {7, 12, 9};
    cold_scene s = small();
    spx_cold_options o = options(&s);
    good("rising", &s, &o, 0.04, 0.03, 0.01);
    o.nbundle = 0; /* bundles by the gaps of the flat */
    good("no pattern", &s, &o, 0.04, 0.03, 0.01);

    s.dispersion = -1.1;
    s.ndead = 3;
    s.dead[0] = 0;
    s.dead[1] = 13;
    s.dead[2] = 20;
    o = options(&s);
    o.from_right = 1;
    o.bundle = turned;
    good("falling, numbers from the right, dead fibres", &s, &o, 0.04, 0.03, 1);
    o.direction = -1;
    good("falling, as is known", &s, &o, 0.04, 0.03, 1);

    s = small(); /* wide spots: errors scale with them */
    s.pitch = 22;
    s.gap = 40;
    s.nx = 700;
    s.width = 4;
    s.dispersion = 0.6;
    o = options(&s);
    good("small pixels", &s, &o, 0.1, 0.1, 0.01);

    s = small();
    s.pitch = 4.5;
    s.gap = 9;
    s.nx = 170;
    s.width = 0.9;
    s.dispersion = 2;
    s.uneven = 5;
    o = options(&s);
    good("large pixels, uneven fibres", &s, &o, 0.04, 0.03, 0.01);

    s = small(); /* one bundle, no gap, no dead fibre */
    s.nbundle = 1;
    s.bundle[0] = 3;
    s.nx = 60;
    o = options(&s);
    good("three fibres", &s, &o, 0.04, 0.04, 0.01);
}

/* ---- what has no start ---- */

static void bad(const char *want, const spx_image *flat, const spx_image *arc, unsigned lamps,
                const spx_cold_options *o)
{
    spx_psf psf = {0};
    spx_cold_report r;
    spx_err e = {0};
    const spx_status st = start(flat, arc, lamps, o, &psf, &r, &e);
    CHECK(st == SPX_EINPUT && fnmatch(want, spx_err_text(&e), 0) == 0, "status %d '%s', should be '%s'", st,
          spx_err_text(&e), want);
    spx_psf_free(&psf);
}

static spx_image copy(const spx_image *from)
{
    spx_image im = *from;
    const size_t n = im.nx * im.ny;
    im.data = spx_alloc(n, sizeof *im.data, NULL);
    im.ivar = spx_alloc(n, sizeof *im.ivar, NULL);
    im.mask = spx_alloc(n, sizeof *im.mask, NULL);
    memcpy(im.data, from->data, n * sizeof *im.data);
    memcpy(im.ivar, from->ivar, n * sizeof *im.ivar);
    memcpy(im.mask, from->mask, n * sizeof *im.mask);
    return im;
}

static void test_bad(void)
{
    cold_scene s = small();
    spx_cold_options o = options(&s);
    spx_image flat = {0}, arc = {0}, im = {0};
    cold_flat(&s, &flat);
    cold_arc(&s, &arc);
    const size_t n = s.nx * s.ny;

    s.light = 0; /* the lamp was off */
    cold_arc(&s, &im);
    bad("*arc shows * lines in the middle*at least 10 are needed*", &flat, &im, s.lamps, &o);
    s = small();
    for (size_t p = 0; p < n; p++)
        im.data[p] = 100;
    bad("*arc shows 0 lines in the middle*", &flat, &im, s.lamps, &o);
    bad("*the flat shows 0 traces of 28*", &im, &arc, s.lamps, &o);
    for (size_t p = 0; p < n; p++)
        im.mask[p] = 1;
    bad("*the flat shows 0 traces of 28*", &im, &arc, s.lamps, &o);
    bad("*arc shows 0 lines*", &flat, &im, s.lamps, &o);
    spx_image_free(&im);

    im = copy(&arc); /* bright lines saturate */
    for (size_t p = 0; p < n; p++)
        im.mask[p] = im.data[p] > 25 ? 8 : 0;
    bad("*lines of the arc in the middle are saturated or masked: take a shorter exposure*", &flat, &im, s.lamps, &o);
    spx_image_free(&im);

    bad("*the list has * near {centre}*10 are needed*", &flat, &arc, SPX_LAMP_XE | SPX_LAMP_CD, &o); /* other lamps */
    s.lamps = SPX_LAMP_KR | SPX_LAMP_HG;
    cold_arc(&s, &im);
    bad("*no*identification*", &flat, &im, SPX_LAMP_NE | SPX_LAMP_AR, &o);
    spx_image_free(&im);
    s = small();
    o.centre = 9000; /* another part of the spectrum */
    bad("*no*identification*", &flat, &arc, s.lamps, &o);
    o = options(&s);

    im = copy(&flat);
    im.ny = 1000;
    bad("*flat has 320 x 1000 pixels, the arc 320 x 1200*", &im, &arc, s.lamps, &o);
    im.ny = s.ny;
    strcpy(im.camera, "b1");
    strcpy(arc.camera, "r1");
    bad("*flat is of camera b1, the arc of camera r1*", &im, &arc, s.lamps, &o);
    arc.camera[0] = '\0';
    spx_image_free(&im);

    const size_t many[] = {40, 40};
    o.nbundle = 2;
    o.bundle = many;
    bad("*the flat shows 28 traces of 80*", &flat, &arc, s.lamps, &o);
    const size_t one[] = {29};
    o.nbundle = 1;
    o.bundle = one;
    bad("*", &flat, &arc, s.lamps, &o);
    spx_image_free(&flat);
    spx_image_free(&arc);
}

/* Unusable pixels here and there do no harm. */
static void test_damage(void)
{
    cold_scene s = small();
    spx_cold_options o = options(&s);
    spx_image flat = {0}, arc = {0};
    spx_psf psf = {0};
    spx_cold_report r;
    spx_err e = {0};
    cold_flat(&s, &flat);
    cold_arc(&s, &arc);
    for (size_t r1 = 0; r1 < s.ny; r1++)
        for (size_t c = 0; c < s.nx; c++) {
            const size_t p = r1 * s.nx + c;
            if (r1 % 97 == 5 || c == 60 || (r1 / 8 * 40 + c / 8) % 11 == 3)
                flat.mask[p] = arc.mask[p] = 1;
            if (p % 1009 == 0)
                flat.data[p] = arc.data[p] = NAN;
            if (c == 130 && r1 > 300)
                flat.data[p] = arc.data[p] = 5000; /* a hot column that nothing flags */
            if (r1 > 800 && r1 < 860)
                flat.ivar[p] = arc.ivar[p] = 0;
        }
    const spx_status st = start(&flat, &arc, s.lamps, &o, &psf, &r, &e);
    CHECK(st == SPX_OK, "%s", spx_err_text(&e));
    if (st == SPX_OK) {
        const errors d = compare(&s, &psf, 0);
        CHECK(d.x < 0.15 && d.y < 0.15, "damaged: x %.4f, y %.4f", d.x, d.y);
        for (size_t i = 0; i < psf.nspec * psf.x.ncoef; i++)
            CHECK(isfinite(psf.x.coef[i]) && isfinite(psf.y.coef[i]), "coefficient %zu", i);
    }
    spx_psf_free(&psf);
    spx_image_free(&flat);
    spx_image_free(&arc);
}

/* Two arcs with a lamp each, of which neither is enough, and a masked row in one. */
static void test_two(void)
{
    cold_scene s = small();
    spx_cold_options o = options(&s);
    spx_image flat = {0}, arc[2] = {{0}};
    spx_psf psf = {0};
    spx_cold_report r;
    spx_err e = {0};
    spx_arc_line *line = NULL;
    size_t n = 0;
    s.unlisted = 0;
    s.hits = 0;
    s.quality = SPX_ARC_BRIGHT;
    cold_flat(&s, &flat);
    s.lamps = SPX_LAMP_NE;
    cold_arc(&s, &arc[0]);
    s.lamps = SPX_LAMP_AR | SPX_LAMP_KR;
    s.seed++;
    cold_arc(&s, &arc[1]);
    for (size_t c = 0; c < s.nx; c++)
        arc[1].mask[700 * s.nx + c] = 1;
    CHECK(spx_arc_lines(SPX_LAMP_NE | SPX_LAMP_AR | SPX_LAMP_KR, &line, &n, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(spx_cold_start(&flat, 2, arc, n, line, &o, &psf, &r, &e) == SPX_OK, "%s", spx_err_text(&e));
    const size_t both = r.best.nline;
    const errors d = compare(&s, &psf, 0);
    CHECK(d.x < 0.04 && d.y < 0.05, "two arcs: x %.4f, y %.4f", d.x, d.y);
    spx_psf_free(&psf);
    psf = (spx_psf){0};
    const spx_status st = spx_cold_start(&flat, 1, arc, n, line, &o, &psf, &r, &e);
    CHECK(st == SPX_EINPUT || r.best.nline < both, "one of two arcs has %zu lines, both %zu", r.best.nline, both);
    spx_free(line);
    spx_psf_free(&psf);
    spx_image_free(&flat);
    for (int k = 0; k < 2; k++)
        spx_image_free(&arc[k]);
}

/* Few lines: the degree falls. */
static void test_few(void)
{
    cold_scene s = small();
    s.lamps = SPX_LAMP_AR;
    s.quality = SPX_ARC_BRIGHT;
    s.unlisted = 0;
    s.middle = 7500;
    s.dispersion = 0.85;
    spx_cold_options o = options(&s);
    spx_image flat = {0}, arc = {0};
    spx_psf psf = {0};
    spx_cold_report r;
    spx_err e = {0};
    cold_flat(&s, &flat);
    cold_arc(&s, &arc);
    const spx_status st = start(&flat, &arc, s.lamps, &o, &psf, &r, &e);
    CHECK(st == SPX_OK && r.degree < 5 && r.degree > 1 && r.nline < 12, "%s degree %d, %g lines", spx_err_text(&e),
          r.degree, r.nline);
    if (st == SPX_OK) {
        const errors d = compare(&s, &psf, 0);
        CHECK(d.x < 0.04 && d.y < 1, "few: x %.4f, y %.4f", d.x, d.y);
    }
    spx_psf_free(&psf);
    spx_image_free(&flat);
    spx_image_free(&arc);
}

/* ---- numbers of fibres ---- */

/* 20 bundles of 25 whose pitch varies over the camera, some fibres dark, some peaks that are no fibre. */
static void number_many(uint64_t seed)
{
    enum { NB = 20, NF = 500 };
    size_t bundle[NB], npeak = 0;
    double x[NF + 8], place[NF], true_x[NF], pitch, gap;
    long peak_of[NF], want[NF];
    spx_err e = {0};
    random_start(seed);
    for (int k = 0; k < 100; k++)
        (void)uniform();
    for (size_t b = 0; b < NB; b++)
        bundle[b] = 25;
    double at = 30;
    for (size_t i = 0; i < NF; i++) {
        const double stretch = 1 + 0.04 * sin((double)i / 120);
        at += (i == 0 ? 0 : i % 25 == 0 ? 14.5 : 7.2) * stretch;
        true_x[i] = at + 0.15 * gauss();
        want[i] = -1;
        if (uniform() > 0.02 && i != (seed % 2 ? 0 : NF - 1)) {
            want[i] = (long)npeak;
            x[npeak++] = true_x[i];
            if (uniform() < 0.004) /* a hot column */
                x[npeak++] = true_x[i] + 2 + 3 * uniform();
        }
    }
    CHECK(spx_cold_number(npeak, x, NB, bundle, NF, peak_of, place, &pitch, &gap, &e) == SPX_OK, "seed %d: %s",
          (int)seed, spx_err_text(&e));
    for (size_t i = 0; i < NF; i++) {
        CHECK(peak_of[i] == want[i], "seed %d: fibre %zu has peak %ld, should be %ld", (int)seed, i, peak_of[i],
              want[i]);
        CHECK(fabs(place[i] - true_x[i]) < 2, "seed %d: fibre %zu at %.2f, should be %.2f", (int)seed, i, place[i],
              true_x[i]);
    }
    CHECK(fabs(pitch - 7.2) < 0.3 && fabs(gap - 14.5) < 1.2, "pitch %.2f, gap %.2f", pitch, gap);
}

static void test_number(void)
{
    for (uint64_t seed = 1; seed <= 6; seed++)
        number_many(seed);
    /* a single bundle without its first fibre: it might be the last as well */
    double x[30], place[30], pitch, gap;
    long peak_of[30];
    spx_err e = {0};
    const size_t one[] = {25}, pair[] = {10, 10}, three[] = {10, 10, 10};
    for (int i = 0; i < 24; i++)
        x[i] = 10 + 7 * (i + 1);
    CHECK(spx_cold_number(24, x, 1, one, 25, peak_of, place, &pitch, &gap, &e) == SPX_EINPUT &&
              strstr(spx_err_text(&e), "more than one way") != NULL,
          "%s", spx_err_text(&e));
    e = (spx_err){0};
    for (int i = 10; i < 24; i++) /* one in its middle: it is known */
        x[i] += 7;
    CHECK(spx_cold_number(24, x, 1, one, 25, peak_of, place, &pitch, &gap, &e) == SPX_OK && peak_of[10] == -1 &&
              peak_of[11] == 10 && fabs(place[10] - 87) < 1e-9,
          "%s", spx_err_text(&e));
    /* two bundles, the gap between them is not known: the first or the last fibre of the first bundle */
    for (int i = 0; i < 9; i++)
        x[i] = 20 + 5 * i;
    for (int i = 0; i < 10; i++)
        x[9 + i] = 20 + 5 * 9 + 12 + 5 * i;
    CHECK(spx_cold_number(19, x, 2, pair, 20, peak_of, place, &pitch, &gap, &e) == SPX_EINPUT &&
              strstr(spx_err_text(&e), "more than one way") != NULL,
          "19 of 20 are told apart: %s", spx_err_text(&e));
    e = (spx_err){0};
    for (int i = 0; i < 10; i++) /* a third one tells the gap */
        x[19 + i] = 20 + 5 * 18 + 24 + 5 * i;
    CHECK(spx_cold_number(29, x, 3, three, 30, peak_of, place, &pitch, &gap, &e) == SPX_OK && peak_of[9] == -1 &&
              peak_of[8] == 8 && peak_of[10] == 9 && fabs(place[9] - 65) < 1 && fabs(gap - 12) < 0.1,
          "last of a bundle: %s", spx_err_text(&e));
}

/* ---- built-in camera ---- */

static void expose(const spx_psf *psf, size_t n, const double *wave, const double *flux, uint64_t seed, spx_image *im)
{
    spx_err e = {0};
    const size_t npix = psf->npix_x * psf->npix_y;
    double *all = spx_alloc2(psf->nspec, n, sizeof *all, NULL), *model = spx_alloc(npix, sizeof *model, NULL);
    for (size_t i = 0; i < psf->nspec; i++)
        for (size_t k = 0; k < n; k++)
            all[i * n + k] = flux[k] * (1 + 0.2 * sin(3 * (double)i));
    CHECK(spx_sim_project(psf, psf->nspec, NULL, n, wave, all, psf->npix_y, psf->npix_x, model, NULL, &e) == SPX_OK,
          "%s", spx_err_text(&e));
    const spx_sim_noise noise = {.seed = seed,
                                 .camera = 'r',
                                 .photon_noise = 1,
                                 .readnoise = 3,
                                 .fullwell = 65535,
                                 .cosmics = 100,
                                 .hide_cosmics = 1,
                                 .badcolumns = 1};
    CHECK(spx_sim_expose(psf->npix_y, psf->npix_x, model, &noise, im, &e) == SPX_OK, "%s", spx_err_text(&e));
    spx_free(all);
    spx_free(model);
}

/* 25 fibres of camera r: a start is good to 0.04 pixel in x and `limit` in y between the first and the last line, when
 * it finds at least `least` lines. */
static void camera(unsigned lamps, unsigned listed, size_t least, double limit)
{
    spx_err e = {0};
    spx_psf psf = {0}, out = {0};
    spx_cold_report r;
    spx_image flat = {0}, arc = {0};
    spx_sim_arc_line *sent = NULL;
    size_t nsent = 0;
    const size_t bundle[] = {25};
    const double lo = 5700, hi = 7680;
    CHECK(spx_sim_psf('r', 25, 0, 0, &psf, &e) == SPX_OK, "%s", spx_err_text(&e));
    const size_t n = spx_sim_grid_size(lo, hi, 0.1), m = spx_sim_grid_size(lo, hi, 1);
    double *w = spx_alloc(n, sizeof *w, NULL), *f = spx_alloc(n, sizeof *f, NULL);
    spx_sim_grid(lo, 1, m, w);
    spx_sim_flat('r', 6000, m, w, f);
    expose(&psf, m, w, f, 3, &flat);
    spx_sim_grid(lo, 0.1, n, w);
    CHECK(spx_sim_arc(lamps, 'r', 5e4, 1, n, w, f, &sent, &nsent, &e) == SPX_OK, "%s", spx_err_text(&e));
    expose(&psf, n, w, f, 4, &arc);
    spx_cold_options o = spx_cold_defaults();
    o.nbundle = 1;
    o.bundle = bundle;
    o.centre = 6640;
    o.dispersion = 0.54;
    o.nthreads = 2;
    const spx_status st = start(&flat, &arc, listed, &o, &out, &r, &e);
    CHECK(st == SPX_OK && r.nline >= (double)least && (double)r.best.nline >= 1.3 * (double)r.rival.nline,
          "%zu of %zu lines, rival %zu: %s", r.best.nline, nsent, r.rival.nline, spx_err_text(&e));
    double sx = 0, sy = 0;
    for (size_t i = 0; i < 25 && st == SPX_OK; i++)
        for (int k = 0; k < 40; k++) {
            const double lambda = sent[0].wavelength + (sent[nsent - 1].wavelength - sent[0].wavelength) * k / 39;
            const double dx = spx_psf_series_value(&out.x, i, lambda) - spx_psf_series_value(&psf.x, i, lambda);
            const double dy = spx_psf_series_value(&out.y, i, lambda) - spx_psf_series_value(&psf.y, i, lambda);
            sx += dx * dx / 1000;
            sy += dy * dy / 1000;
        }
    CHECK(sqrt(sx) < 0.04 && sqrt(sy) < limit, "lamps %x of %x: x %.4f, y %.4f", lamps, listed, sqrt(sx), sqrt(sy));
    if (st == SPX_OK) { /* the same with one thread */
        spx_psf again = {0};
        o.nthreads = 1;
        CHECK(start(&flat, &arc, listed, &o, &again, &r, &e) == SPX_OK &&
                  memcmp(again.y.coef, out.y.coef, 25 * out.y.ncoef * sizeof *out.y.coef) == 0 &&
                  memcmp(again.x.coef, out.x.coef, 25 * out.x.ncoef * sizeof *out.x.coef) == 0,
              "one thread finds another start");
        spx_psf_free(&again);
    }
    spx_free(sent);
    spx_free(w);
    spx_free(f);
    spx_psf_free(&psf);
    spx_psf_free(&out);
    spx_image_free(&flat);
    spx_image_free(&arc);
}

/* Arcs that have moved against a PSF: by a distance of fibres, beyond the reach of a fit, and farther than is looked
 * for. */
static void test_shift(void)
{
    static const double moved[][2] = {{0, 0}, {0.4, -0.3}, {5.3, -14.2}, {-7.3, 3}, {7.3, -20}, {2.6, 22.4}, {0, 40}};
    const double lo = 5950, hi = 6750;
    spx_err e = {0};
    spx_psf psf = {0};
    spx_image arc = {0};
    spx_sim_arc_line *sent = NULL;
    spx_arc_line *line = NULL;
    size_t nsent = 0, nline = 0;
    const size_t n = spx_sim_grid_size(lo, hi, 0.1);
    double *w = spx_alloc(n, sizeof *w, NULL), *f = spx_alloc(n, sizeof *f, NULL);
    CHECK(spx_sim_psf('r', 30, 6000, 6700, &psf, &e) == SPX_OK, "%s", spx_err_text(&e));
    spx_sim_grid(lo, 0.1, n, w);
    CHECK(spx_sim_arc(SPX_LAMP_NE | SPX_LAMP_KR, 'r', 5e4, 1, n, w, f, &sent, &nsent, &e) == SPX_OK, "%s",
          spx_err_text(&e));
    expose(&psf, n, w, f, 5, &arc);
    CHECK(spx_arc_lines(SPX_LAMP_EVERY, &line, &nline, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (size_t k = 0; k < sizeof moved / sizeof *moved; k++) {
        const double x = moved[k][0], y = moved[k][1];
        const int near = fabs(y) < 25;
        int found;
        double dx, dy;
        spx_cold_move(&psf, -x, -y);
        CHECK(spx_cold_shift(&psf, 1, &arc, nline, line, 1, &found, &dx, &dy, &e) == SPX_OK && found == near &&
                  (!near || (fabs(dx - x) < 0.6 && fabs(dy - y) < 0.6)),
              "moved by %.1f, %.1f: found %d %.1f, %.1f", x, y, found, dx, dy);
        spx_cold_move(&psf, x, y);
    }
    memset(arc.mask, 1, arc.nx * arc.ny * sizeof *arc.mask);
    int found = 1;
    double dx = 1, dy = 1;
    CHECK(spx_cold_shift(&psf, 1, &arc, nline, line, 1, &found, &dx, &dy, &e) == SPX_OK && !found && dx == 0 && dy == 0,
          "a masked arc has moved by %g, %g", dx, dy);
    spx_free(sent);
    spx_free(line);
    spx_free(w);
    spx_free(f);
    spx_psf_free(&psf);
    spx_image_free(&arc);
}

/* ---- a real arc ---- */

/* Kast blue arm (Lick), grism 600/4310, Hg, Cd, He: the sum of 100 rows of the slit, from 3430 to 5520 Angstrom. */
static void test_kast(void)
{
    enum { NX = 2112, NY = 350, USED = 2048 };
    static double sum[USED], error[USED], background[USED];
    static spx_cold_peak peak[200];
    static unsigned char pixel[2 * NX];
    char name[1024], card[81] = "";
    const char *shared = getenv("SPX_SHARED");
    snprintf(name, sizeof name, "%s/data/raw/kast-b1.fits.gz", shared != NULL ? shared : "");
    gzFile file = shared != NULL ? gzopen(name, "rb") : NULL;
    if (file == NULL)
        return;
    long cards = 0;
    while (strncmp(card, "END ", 4) != 0 && gzread(file, card, 80) == 80)
        cards++;
    gzseek(file, (cards + 35) / 36 * 2880, SEEK_SET);
    for (int r = 0; r < NY; r++) {
        CHECK(gzread(file, pixel, sizeof pixel) == (int)sizeof pixel, "%s ends early", name);
        for (int c = 0; c < USED && r >= 150 && r < 250; c++)
            sum[c] += (double)(int16_t)((uint16_t)(pixel[2 * c] << 8 | pixel[2 * c + 1])) / 100;
    }
    gzclose(file);
    for (int c = 0; c < USED; c++) {
        double near[101];
        size_t k = 0;
        for (int j = c < 50 ? 0 : c - 50; j <= c + 50 && j < USED; j++)
            near[k++] = sum[j];
        background[c] = spx_median(near, k);
        error[c] = sqrt(4 + fabs(sum[c] - background[c]) / 100);
    }
    const size_t n = spx_cold_peaks(USED, sum, error, background, 3, 1, 10, 200, peak, NULL);
    spx_err e = {0};
    spx_arc_line *line = NULL;
    size_t nline = 0, nwave = 0;
    double wave[1000];
    CHECK(spx_arc_lines(SPX_LAMP_HG | SPX_LAMP_CD | SPX_LAMP_HE, &line, &nline, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (size_t i = 0; i < nline; i++)
        if (line[i].quality == SPX_ARC_BRIGHT)
            wave[nwave++] = line[i].wavelength;
    spx_cold_options o = spx_cold_defaults();
    spx_cold_wave w;
    spx_cold_solution best, rival;
    o.centre = 4500;
    o.centre_range = 300;
    o.dispersion = 1.02;
    CHECK(spx_cold_identify(n, peak, nwave, wave, USED, &o, &w, &best, &rival, &e) == SPX_OK && best.nline >= 15 &&
              best.dispersion > 1 && best.dispersion < 1.06 && rival.nline <= 10,
          "%zu peaks, %zu lines, rival %zu, %.3f Angstrom a pixel: %s", n, best.nline, rival.nline, best.dispersion,
          spx_err_text(&e));
    /* lines that are alone: Hg 4047.708, 4359.560, 5462.268, Cd 5087.239, He 5017.077 */
    static const double alone[] = {4047.708, 4359.560, 5462.268, 5087.239, 5017.077};
    for (size_t k = 0; k < 5; k++) {
        double off = HUGE_VAL;
        for (size_t i = 0; i < n; i++) {
            const double d = spx_cold_wavelength(&w, 0.5 * (USED - 1), 0.5 * (USED - 1), peak[i].at) - alone[k];
            off = fabs(d) < fabs(off) ? d : off;
        }
        CHECK(fabs(off) < 0.25, "Kast: %.3f is off by %.3f Angstrom", alone[k], off);
    }
    o.direction = -1;
    CHECK(spx_cold_identify(n, peak, nwave, wave, USED, &o, &w, &best, &rival, &e) == SPX_EINPUT,
          "Kast: the wrong direction has a solution of %zu lines", best.nline);
    spx_free(line);
}

int main(void)
{
    const unsigned all = SPX_LAMP_ALL;
    test_number();
    test_scenes();
    test_damage();
    test_two();
    test_few();
    test_bad();
    camera(all, all, 40, 0.03);
    camera(all & ~(unsigned)SPX_LAMP_AR, all, 33, 0.03);          /* a lamp of the list is off */
    camera(SPX_LAMP_HG | SPX_LAMP_CD | SPX_LAMP_AR, all, 9, 0.3); /* 11 lines, with a gap of 650 Angstrom */
    test_shift();
    test_kast();
    return failures != 0;
}
