/* Checks the judgement of frames (extract/quality.h) on synthetic frames whose truth is known: which are right but
 * unusual, and which are wrong. Fixed seeds.
 *
 * Tolerances: the medians of chi2pix come from 20 fibres of 400 bins with a scatter of 0.2, so that they are within
 * 0.01 of the truth; bins at an unlit end are found within 2 of their number in bright frames. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../must.h"
#include "base/mem.h"
#include "check.h"
#include "extract/quality.h"
#include "products/plausible.h"
#include "products/psf_index.h"
#include "random.h"
#include "small_psf.h"

enum { NSPEC = 20, NWAVE = 400 };

typedef enum { STARS, ARC, COOL_STARS, DARK, BLANK } scene;

typedef struct {
    scene scene;
    double sn;        /* signal-to-noise ratio of a bin with the mean light */
    double offset;    /* added to all bins, in errors */
    double sign;      /* of the light */
    double chi2;      /* chi2pix without the error of the PSF model */
    double psf_error; /* of the model */
    size_t first, last;
    double scattered; /* light everywhere, of the mean */
    int half;         /* the first half is masked */
    double hits;      /* part of the bins that are hit */
} recipe;

static double light(scene s, size_t k)
{
    switch (s) {
    case ARC:
        return k % 40 == 20 ? 20 : k % 40 == 21 ? 8 : 0;
    case COOL_STARS:
        return exp((double)k / 60 - 6); /* a factor of e in 60 bins */
    case DARK:
    case BLANK:
        return 0;
    default:
        return k % 50 == 25 ? 0.02 : 1; /* saturated lines */
    }
}

static void make_frame(const recipe *r, spx_frame *f)
{
    spx_err e = {0};
    *f = (spx_frame){.nspec = NSPEC, .arm = {.nwave = NWAVE, .ndiag = 11}};
    f->arm.flux = must_have(spx_alloc2(NSPEC, NWAVE, sizeof(double), &e));
    f->arm.ivar = must_have(spx_alloc2(NSPEC, NWAVE, sizeof(double), &e));
    f->arm.mask = must_have(spx_alloc2(NSPEC, NWAVE, sizeof(uint32_t), &e));
    f->chi2pix = must_have(spx_alloc2(NSPEC, NWAVE, sizeof(double), &e));
    random_start(5);
    for (size_t i = 0; i < NSPEC * NWAVE; i++) {
        const size_t k = i % NWAVE;
        const int lit = k >= r->first && k < NWAVE - r->last;
        const double mean = r->sign * r->sn * (lit ? light(r->scene, k) : 0) + r->sn * r->scattered + r->offset;
        f->arm.ivar[i] = 4;
        f->arm.flux[i] = r->scene == BLANK ? 0 : 0.5 * (mean + gauss());
        f->arm.mask[i] = r->half && k < NWAVE / 2 ? SPX_SOMEBADPIX : 0;
        f->arm.mask[i] |= uniform() < r->hits ? (uint32_t)(SPX_COSMIC | SPX_SOMEBADPIX) : 0;
        const double z = mean * r->psf_error;
        f->chi2pix[i] = r->chi2 * (1 + 0.2 * gauss()) / (1 + z * z / 7);
        if (f->chi2pix[i] < 0)
            f->chi2pix[i] = 0;
    }
}

static spx_frame_quality judge(const recipe *r, spx_frame *f)
{
    spx_err e = {0};
    spx_frame_quality q, again;
    spx_frame copy;
    make_frame(r, f);
    make_frame(r, &copy);
    must(spx_extract_quality(f, r->psf_error, 1, &q, &e) == SPX_OK, &e);
    must(spx_extract_quality(&copy, r->psf_error, 3, &again, &e) == SPX_OK, &e);
    CHECK(memcmp(&q, &again, sizeof q) == 0, "another result with three threads");
    CHECK(memcmp(f->arm.mask, copy.arm.mask, NSPEC * NWAVE * sizeof(uint32_t)) == 0, "another mask with three threads");
    spx_frame_free(&copy);
    return q;
}

static void check_rules(void)
{
    const unsigned chi2 = 1u << SPX_RULE_CHI2, sign = 1u << SPX_RULE_SIGN, blank = 1u << SPX_RULE_BLANK,
                   unlit = 1u << SPX_RULE_UNLIT, hits = 1u << SPX_RULE_HITS;
    const struct {
        const char *what;
        recipe r;
        unsigned broken;
    } cases[] = {
        {"stars", {STARS, 30, 0, 1, 0.75, 0.01, 0, 0, 0, 0, 0}, 0},
        {"stars, half masked", {STARS, 30, 0, 1, 0.75, 0.01, 0, 0, 0, 1, 0}, 0},
        {"stars, S/N 0.3", {STARS, 0.3, 0, 1, 0.75, 0.01, 0, 0, 0, 0, 0}, 0},
        {"stars, S/N 0.3, faint ends", {STARS, 0.3, 0, 1, 0.75, 0.01, 7, 7, 0, 0, 0}, 0},
        {"stars, S/N 1000", {STARS, 1000, 0, 1, 0.75, 0.01, 0, 0, 0, 0, 0}, 0},
        {"arc", {ARC, 50, 0, 1, 0.75, 0.01, 0, 0, 0, 0, 0}, 0},
        {"arc with ends that have no lines", {ARC, 50, 0, 1, 0.75, 0.01, 60, 60, 0, 0, 0}, 0},
        {"arc, bias a little off", {ARC, 50, -0.5, 1, 0.75, 0.01, 0, 0, 0, 0, 0}, 0},
        {"cool stars", {COOL_STARS, 30, 0, 1, 0.75, 0.01, 0, 0, 0, 0, 0}, 0},
        {"dark", {DARK, 1, 0, 1, 0.75, 0.01, 0, 0, 0, 0, 0}, 0},
        {"dark, with scattered light", {DARK, 100, 0, 1, 0.75, 0.01, 0, 0, 0.002, 0, 0}, 0},
        {"variance right within 1.8", {STARS, 30, 0, 1, 1.35, 0.01, 0, 0, 0, 0, 0}, 0},
        {"variance half of it", {STARS, 30, 0, 1, 1.6, 0.01, 0, 0, 0, 0, 0}, chi2},
        {"variance twice as large", {STARS, 30, 0, 1, 0.375, 0.01, 0, 0, 0, 0, 0}, chi2},
        {"variance twice as large, S/N 1000", {STARS, 1000, 0, 1, 0.375, 0.01, 0, 0, 0, 0, 0}, chi2},
        {"no inverse variance", {STARS, 30, 0, 1, 1e7, 0.01, 0, 0, 0, 0, 0}, chi2},
        {"negative", {STARS, 30, 0, -1, 0.75, 0.01, 0, 0, 0, 0, 0}, sign},
        {"negative, S/N 0.3", {STARS, 0.5, 0, -1, 0.75, 0.01, 0, 0, 0, 0, 0}, sign},
        {"dark, too much subtracted", {DARK, 1, -0.5, 1, 0.75, 0.01, 0, 0, 0, 0, 0}, sign},
        {"blank", {BLANK, 1, 0, 1, 0, 0.01, 0, 0, 0, 0, 0}, blank},
        {"unlit ends", {STARS, 30, 0, 1, 0.75, 0.01, 7, 31, 0, 0, 0}, unlit},
        {"unlit, S/N 1000, scattered light", {STARS, 1000, 0, 1, 0.75, 0.01, 7, 31, 0.002, 0, 0}, unlit},
        {"stars, a tenth hit", {STARS, 30, 0, 1, 0.75, 0.01, 0, 0, 0, 0, 0.1}, 0},
        {"most bins called hit", {STARS, 30, 0, 1, 0.75, 0.01, 0, 0, 0, 0, 0.8}, hits},
        {"unlit, cool stars", {COOL_STARS, 300, 0, 1, 0.75, 0.01, 0, 31, 0, 0, 0}, unlit},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        spx_frame f;
        const spx_frame_quality q = judge(&cases[i].r, &f);
        CHECK(q.broken == cases[i].broken,
              "%s: rules %u, wanted %u (chi2 %g, noise %g, negative %g, blank %g, unlit %zu %zu)", cases[i].what,
              q.broken, cases[i].broken, q.chi2, q.chi2_noise, q.negative, q.blank, q.unlit[0], q.unlit[1]);
        CHECK(q.broken == (1u << SPX_RULE_BLANK) || fabs(q.chi2_noise - cases[i].r.chi2) < 0.03 * cases[i].r.chi2,
              "%s: chi2 against the noise is %g, put in %g", cases[i].what, q.chi2_noise, cases[i].r.chi2);
        spx_frame_free(&f);
    }
}

/* Unlit bins are those without light; their mask says so, and nothing else has changed. */
static void check_unlit(void)
{
    const recipe r = {STARS, 30, 0, 1, 0.75, 0.01, 7, 31, 0, 0, 0};
    spx_frame f, was;
    const spx_frame_quality q = judge(&r, &f);
    make_frame(&r, &was);
    CHECK(q.unlit[0] == 7 && q.unlit[1] == 31, "%zu and %zu bins, 7 and 31 have no light", q.unlit[0], q.unlit[1]);
    for (size_t i = 0; i < NSPEC * NWAVE; i++) {
        const size_t k = i % NWAVE;
        const int unlit = k < q.unlit[0] || k >= NWAVE - q.unlit[1];
        CHECK(f.arm.mask[i] == (unlit ? SPX_LOWFLAT : 0), "mask[%zu] is %u", i, f.arm.mask[i]);
    }
    CHECK(memcmp(f.arm.flux, was.arm.flux, NSPEC * NWAVE * sizeof(double)) == 0 &&
              memcmp(f.arm.ivar, was.arm.ivar, NSPEC * NWAVE * sizeof(double)) == 0,
          "flux or ivar has changed");
    spx_frame_free(&f);
    spx_frame_free(&was);
}

/* A frame with few clean bins, or without chi2pix, is not judged. */
static void check_few(void)
{
    const recipe r = {STARS, 30, 0, -1, 5, 0.01, 0, 0, 0, 0, 0};
    spx_err e = {0};
    spx_frame f;
    spx_frame_quality q;
    make_frame(&r, &f);
    for (size_t i = 9; i < NSPEC * NWAVE; i++)
        f.arm.ivar[i] = 0;
    must(spx_extract_quality(&f, 0.01, 2, &q, &e) == SPX_OK, &e);
    CHECK(q.nbin == 9 && q.broken == 0, "%zu bins: rules %u", q.nbin, q.broken);
    spx_frame_free(&f);
    make_frame(&r, &f);
    spx_free(f.chi2pix);
    f.chi2pix = NULL;
    must(spx_extract_quality(&f, 0.01, 2, &q, &e) == SPX_OK, &e);
    CHECK(q.broken == 1u << SPX_RULE_SIGN, "without chi2pix: rules %u", q.broken);
    spx_frame_free(&f);
}

/* Light across borders of bundles, by the definition at one wavelength: the spots of small_psf() are widest at the end,
 * and alike but for the fibre's part of 0.03 sigma. */
static void check_borders(void)
{
    spx_err e = {0};
    small_psf_shape shape = small_psf_default();
    shape.pitch = 4.5;
    spx_psf *p = must_have(small_psf(&shape));
    spx_extract_options o = spx_extract_trace_defaults();
    spx_extract_border w;
    o.nspec = p->nspec;
    o.wmin = shape.wmin;
    o.wmax = shape.wmax;
    o.dw = 1;
    must(spx_extract_borders(p, &o, &w, &e) == SPX_OK, &e);
    CHECK(w.light == 0, "one bundle: %g", w.light);
    o.bundle_size = 4;
    must(spx_extract_borders(p, &o, &w, &e) == SPX_OK, &e);
    const double u = 2 * (w.wavelength - p->wmin) / (p->wmax - p->wmin) - 1;
    const double one = shape.sigx * (1 + 0.03 * u / 5), two = shape.sigx * (1 + 0.03 * u / 6);
    const double wanted = exp(-0.5 * 4.5 * 4.5 / (one * one + two * two));
    /* traces are 0.4 / 74 columns a row, and rows of a wavelength 0.13 apart: 1e-3 of a column */
    CHECK(fabs(w.light / wanted - 1) < 0.01 && w.fibre[0] == 3 && w.fibre[1] == 4 && w.wavelength == o.wmax,
          "fibres %zu and %zu share %g at %g, %g was put in", w.fibre[0], w.fibre[1], w.light, w.wavelength, wanted);
    CHECK(spx_rule_broken(SPX_RULE_BUNDLES, w.light), "%g breaks no rule", w.light);
    const double light = w.light;
    /* fibres of bundles that are not extracted do not count, those beside one that is do */
    o.first = 5;
    o.nspec = 2;
    must(spx_extract_borders(p, &o, &w, &e) == SPX_OK, &e);
    CHECK(w.light == light, "part of a bundle: %g, all: %g", w.light, light);
    o.first = 0;
    o.nspec = 2;
    o.bundle_size = 2;
    p->x.coef[1 * p->x.ncoef] -= 2.0; /* fibre 1 is farther from 2, and 2 of the third bundle's 4 nearer */
    p->x.coef[3 * p->x.ncoef] += 2.0;
    must(spx_extract_borders(p, &o, &w, &e) == SPX_OK, &e);
    CHECK(w.fibre[1] == 2 && w.light < 0.02 * light, "fibres %zu and %zu share %g", w.fibre[0], w.fibre[1], w.light);
    o.nspec = p->nspec;
    must(spx_extract_borders(p, &o, &w, &e) == SPX_OK, &e);
    CHECK(w.fibre[0] == 3 && w.fibre[1] == 4 && w.light > light, "fibres %zu and %zu share %g", w.fibre[0], w.fibre[1],
          w.light);
    spx_psf_free(p);
    spx_free(p);
    /* the bundles that a PSF names, and fibres that are numbered in another order than they stand */
    p = must_have(small_psf(&shape));
    p->bundle = must_have(spx_alloc(p->nspec, sizeof *p->bundle, &e));
    for (size_t f = 0; f < p->nspec; f++) {
        p->bundle[f] = f < 3 ? 4 : 9;
        p->x.coef[f * p->x.ncoef] = shape.x0 + shape.pitch * (double)(f * 3 % 7);
    }
    o.psf_bundles = 1;
    must(spx_extract_borders(p, &o, &w, &e) == SPX_OK, &e);
    CHECK((w.fibre[0] < 3) != (w.fibre[1] < 3) && w.light > 1e-3, "fibres %zu and %zu share %g", w.fibre[0], w.fibre[1],
          w.light);
    p->bundle[0] = p->bundle[1] = p->bundle[2] = 9;
    must(spx_extract_borders(p, &o, &w, &e) == SPX_OK, &e);
    CHECK(w.light == 0, "one bundle that is named: %g", w.light);
    spx_psf_free(p);
    spx_free(p);
}

int main(void)
{
    check_borders();
    check_rules();
    check_unlit();
    check_few();
    return failures != 0;
}
