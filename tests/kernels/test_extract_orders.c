/* Checks the extraction of traces with ranges of wavelengths of their own, as the orders of an echelle have them, and
 * of bundles of unequal size: against the light that was put in, and both methods against each other. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "extract/common.h"
#include "psf/psf.h"
#include "psf/spot_math.h"
#include "sim/sim.h"
#include "small_psf.h"

enum { NS = 7, NX = 90, NY = 90, SPLIT = 3 }; /* bundles of SPLIT and NS - SPLIT traces */

typedef struct {
    spx_psf *psf;
    spx_image image;
    spx_extract_options o;
    size_t nwave;
    double *light; /* [NS][nwave] electrons of each bin, 0 beyond the range of the trace */
} scene;

/* Range of a trace; all of them cover the same rows. */
static double first_of(size_t f)
{
    return 5000.0 + 4.3 * (double)f;
}

static double last_of(size_t f)
{
    return 5052.0 + 4.9 * (double)f;
}

/* Orders side by side, with spots that overlap within a bundle; light in every bin within the range of its trace, drawn
 * without noise. */
static scene make_scene(int valid)
{
    small_psf_shape shape = small_psf_default();
    shape.hsizey = 6;
    shape.pitch = 3.5;
    scene s = {.psf = small_psf(&shape), .o = spx_extract_trace_defaults(), .image = {.ny = NY, .nx = NX}};
    double *range = spx_alloc2(NS, 2, sizeof *range, NULL);
    s.psf->bundle = spx_alloc(NS, sizeof *s.psf->bundle, NULL);
    for (size_t f = 0; f < NS; f++) {
        range[2 * f] = first_of(f);
        range[2 * f + 1] = last_of(f);
        s.psf->bundle[f] = f < SPLIT ? 4 : 9;
        s.psf->x.coef[f * s.psf->x.ncoef] += f < SPLIT ? 4 : 30;
    }
    spx_psf_set_wave_range(s.psf, range);
    if (valid) {
        s.psf->valid_range = spx_alloc2(NS, 2, sizeof(double), NULL);
        for (size_t f = 0; f < NS; f++) {
            s.psf->valid_range[2 * f] = first_of(f) + 5;
            s.psf->valid_range[2 * f + 1] = f == 1 ? 0 : last_of(f) - 7; /* one may not be used at all */
        }
    }
    s.o.first = 0;
    s.o.nspec = NS;
    s.o.wmin = 4990;
    s.o.wmax = 5100;
    s.o.dw = 0.9;
    s.o.psf_bundles = 1;
    s.nwave = spx_extract_nwave(&s.o);
    s.light = spx_alloc2(NS, s.nwave, sizeof *s.light, NULL);
    s.image.data = spx_alloc2(NY, NX, sizeof(float), NULL);
    s.image.ivar = spx_alloc2(NY, NX, sizeof(float), NULL);
    double *sum = spx_alloc2(NY, NX, sizeof *sum, NULL), spot[117], work[600];
    CHECK(range && s.psf->bundle && s.light && s.image.data && s.image.ivar && sum && spx_psf_spot_work(s.psf) <= 600,
          "memory");
    for (size_t f = 0; f < NS; f++)
        for (size_t k = 0; k < s.nwave; k++) {
            const double lambda = spx_extract_lambda(&s.o, (long)k);
            spx_spot at;
            if (lambda < first_of(f) || lambda > last_of(f))
                continue;
            s.light[f * s.nwave + k] = 1000.0 * (1.2 + sin(0.7 * (double)k + 2.0 * (double)f));
            CHECK(spx_psf_spot(s.psf, f, lambda, work, spot, &at) == SPX_SPOT_OK, "spot");
            for (int i = 0; i < 117; i++) {
                const long x = at.xc + i % 9, y = at.yc + i / 9;
                if (x >= 0 && x < NX && y >= 0 && y < NY)
                    sum[y * NX + x] += s.light[f * s.nwave + k] * spot[i];
            }
        }
    for (size_t i = 0; i < (size_t)NY * NX; i++) {
        s.image.data[i] = (float)sum[i];
        s.image.ivar[i] = 0.01f;
    }
    spx_free(sum);
    return s;
}

static void scene_free(scene *s)
{
    spx_psf_free(s->psf);
    spx_free(s->psf);
    spx_free(s->light);
    spx_image_free(&s->image);
}

static spx_frame extract(const scene *s, int patch, spx_extract_counts *counts)
{
    spx_frame out = {0};
    spx_err e = {0};
    const spx_status st = patch ? spx_extract_patch_cpu(&s->image, s->psf, &s->o, &out, counts, &e)
                                : spx_extract_trace_cpu(&s->image, s->psf, &s->o, &out, counts, &e);
    CHECK(st == SPX_OK, "%s", spx_err_text(&e));
    return out;
}

/* Flux is R times the light that was put in, where the trace may be used; elsewhere all is masked. */
static void check_light(const scene *s, const spx_frame *out, const spx_extract_counts *counts, const char *what)
{
    const size_t nw = s->nwave, nd = out->arm.ndiag;
    size_t outside = 0, good = 0;
    double worst = 0, row_sum = 0;
    for (size_t f = 0; f < NS; f++) {
        double lo, hi;
        spx_psf_usable(s->psf, f, &lo, &hi);
        for (size_t k = 0; k < nw; k++) {
            const size_t at = f * nw + k;
            const double lambda = out->arm.wavelength[k];
            double want = 0, ones = 0, all = 0;
            for (size_t d = 0; d < nd; d++) {
                const long j = (long)k + (long)(nd / 2) - (long)d;
                if (j < 0 || j >= (long)nw)
                    continue;
                const double r = out->arm.resolution[(f * nd + d) * nw + (size_t)j];
                want += r * s->light[f * nw + (size_t)j];
                ones += r;
                all += fabs(r);
            }
            if (lambda < lo || lambda > hi) {
                outside++;
                CHECK(out->arm.flux[at] == 0 && out->arm.ivar[at] == 0 && out->chi2pix[at] == 0 && all == 0 &&
                          out->pixmask_fraction[at] == 1 && (out->arm.mask[at] & SPX_ALLBADPIX),
                      "%s: fibre %zu, %g A: not masked", what, f, lambda);
                continue;
            }
            good++;
            CHECK(out->arm.ivar[at] > 0, "%s: fibre %zu, %g A: masked", what, f, lambda);
            worst = fmax(worst, fabs(out->arm.flux[at] * s->o.dw - want) * sqrt(out->arm.ivar[at]) / s->o.dw);
            row_sum = fmax(row_sum, fabs(ones - 1));
        }
    }
    /* what R lacks beyond its 13 diagonals: 5e-3 of an error everywhere, at signal-to-noise ratios of 14 to 92 */
    CHECK(worst < 0.02 && good > 0 && outside > 0, "%s: flux is off by %g errors in %zu bins", what, worst, good);
    CHECK(row_sum < 2e-3, "%s: rows of R sum to 1 within %g", what, row_sum);
    CHECK(counts->nbin_outside == outside && counts->nbin_nospot == 0, "%s: %zu of %zu bins outside, %zu without spot",
          what, counts->nbin_outside, outside, counts->nbin_nospot);
}

/* Largest difference of two frames: flux in errors, ivar as a fraction. */
static double difference(const spx_frame *a, const spx_frame *b)
{
    double worst = 0;
    for (size_t i = 0; i < a->nspec * a->arm.nwave; i++) {
        CHECK((a->arm.ivar[i] > 0) == (b->arm.ivar[i] > 0), "bin %zu: information in one frame only", i);
        if (!(a->arm.ivar[i] > 0))
            continue;
        worst = fmax(worst, fabs(a->arm.flux[i] - b->arm.flux[i]) * sqrt(a->arm.ivar[i]));
        worst = fmax(worst, fabs(b->arm.ivar[i] / a->arm.ivar[i] - 1));
    }
    return worst;
}

static void check_orders(int valid)
{
    scene s = make_scene(valid);
    spx_extract_counts counts[4];
    spx_frame trace = extract(&s, 0, &counts[0]);
    check_light(&s, &trace, &counts[0], "traces");
    CHECK(counts[0].fallback.total == 2, "%zu bundles", counts[0].fallback.total);
    s.o.wave_step = s.nwave; /* a single patch a group, and a group a bundle */
    s.o.sub_bundles = 1;
    s.o.pix_pad_frac = 0.9;
    spx_frame patch = extract(&s, 1, &counts[1]);
    check_light(&s, &patch, &counts[1], "patches");
    const double apart = difference(&trace, &patch);
    CHECK(apart < 1e-6, "methods differ by %g", apart);
    /* all in one bundle is the same, as the two share no light; bundles that cut through light are not */
    s.o.psf_bundles = 0;
    s.o.bundle_size = NS;
    spx_frame one = extract(&s, 0, &counts[2]);
    const double together = difference(&trace, &one);
    CHECK(together < 1e-7 && counts[2].fallback.total == 1, "in one bundle: differs by %g", together);
    s.o.bundle_size = 2;
    spx_frame cut = extract(&s, 0, &counts[3]);
    CHECK(difference(&trace, &cut) > 1, "bundles do not matter");
    /* a selection of fibres, over the border of two bundles */
    s.o.psf_bundles = 1;
    s.o.bundle_size = 25;
    s.o.first = 2;
    s.o.nspec = 3;
    spx_frame some = extract(&s, 0, &counts[3]);
    for (size_t i = 0; i < 3 * s.nwave; i++)
        CHECK(some.arm.flux[i] == trace.arm.flux[2 * s.nwave + i], "bin %zu of a selection differs", i);
    CHECK(counts[3].fallback.total == 2 && spx_extract_units(s.psf, &s.o) == NS, "bundles of a selection");
    CHECK(spx_extract_on_cpu_only(s.psf, &s.o) != NULL, "devices would take it");
    spx_frame_free(&trace);
    spx_frame_free(&patch);
    spx_frame_free(&one);
    spx_frame_free(&cut);
    spx_frame_free(&some);
    scene_free(&s);
}

/* The default grid: from the first wavelength at which any trace may be used to the last. The simulator draws no light
 * beyond the range of a trace. */
static void check_grid(void)
{
    scene s = make_scene(0);
    double wmin, wmax, flux[NS * 200], w[200], *image = spx_alloc2(NY, NX, sizeof *image, NULL), sum = 0, want = 0;
    spx_err e = {0};
    CHECK(spx_psf_coverage(s.psf, NX, NY, 0.5, &wmin, &wmax, &e) == SPX_OK && wmin == 5000 &&
              wmax == floor(last_of(NS - 1) / 0.5) * 0.5,
          "grid %g to %g: %s", wmin, wmax, spx_err_text(&e));
    uint32_t odd[NS];
    double together;
    CHECK(spx_psf_odd_traces(s.psf, NX, NY, odd, &together, &e) == SPX_OK && together == 0, "orders coincide");
    for (size_t f = 0; f < NS; f++)
        CHECK(odd[f] == 0, "order %zu is odd: %u", f, odd[f]);
    for (size_t k = 0; k < 200; k++)
        w[k] = 4995 + 0.5 * (double)k;
    for (size_t f = 0; f < NS; f++)
        for (size_t k = 0; k < 200; k++) {
            flux[f * 200 + k] = 1;
            want += w[k] >= first_of(f) && w[k] <= last_of(f) ? 0.5 : 0;
        }
    CHECK(image != NULL && spx_sim_project(s.psf, NS, NULL, 200, w, flux, NY, NX, image, NULL, &e) == SPX_OK, "%s",
          spx_err_text(&e));
    for (size_t i = 0; i < (size_t)NY * NX; i++)
        sum += image[i];
    CHECK(fabs(sum - want) < 1e-9 * want, "%g electrons were drawn of %g", sum, want);
    spx_free(image);
    scene_free(&s);
}

int main(void)
{
    check_orders(0);
    check_orders(1);
    check_grid();
    return failures != 0;
}
