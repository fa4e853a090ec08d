/* Checks the trace method of extraction on frames, PSFs, traces and artefacts of many kinds, each against dense algebra
 * on the same equations; bad data must not affect other bins. */
#include "extract_scene.h"

/* ---- PSFs ---- */

/* Sizes of spots from smaller than a vector to wider than three, degrees of all series from constants on. */
static void check_psfs(void)
{
    const struct {
        const char *what;
        int hsizex, hsizey, ghdegx, ghdegy;
        size_t ncoef, ndeg;
        double pitch, sigx, sigy, step;
    } cases[] = {{"as DESI's", 8, 5, 6, 6, 7, 2, 7.3, 1.25, 1.05, 1.5},
                 {"small spots, constant", 2, 2, 0, 0, 2, 1, 4.7, 0.7, 0.7, 1.5},
                 {"wide spots", 12, 3, 3, 1, 4, 3, 8.0, 1.9, 0.8, 1.5},
                 {"tall spots", 3, 9, 1, 7, 6, 4, 6.1, 0.9, 1.6, 2.5},
                 {"one row", 4, 0, 2, 0, 3, 2, 7.0, 1.1, 0.8, 1.3},
                 {"one column", 0, 3, 0, 3, 3, 2, 1.4, 0.8, 0.8, 1.5},
                 {"high degrees", 6, 6, 10, 9, 9, 8, 8.5, 1.3, 1.1, 1.8}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        small_psf_shape shape = small_psf_default();
        shape.nspec = 5;
        shape.wmax = shape.wmin + 60.0;
        shape.y1 = shape.y0 + 55.0;
        shape.hsizex = cases[c].hsizex;
        shape.hsizey = cases[c].hsizey;
        shape.ghdegx = cases[c].ghdegx;
        shape.ghdegy = cases[c].ghdegy;
        shape.ncoef = cases[c].ncoef;
        shape.ndeg = cases[c].ndeg;
        shape.pitch = cases[c].pitch;
        shape.sigx = cases[c].sigx;
        shape.sigy = cases[c].sigy;
        scene s = make_scene(small_psf(&shape), 70, 60, shape.wmin, shape.wmax, cases[c].step);
        s.o.bundle_size = 5;
        compare(&s, 1e-8, cases[c].what);
        free_scene(&s);
    }
}

/* Bundles of every size, the last of them partial. */
static void check_bundles(void)
{
    small_psf_shape shape = small_psf_default();
    shape.wmax = shape.wmin + 30.0;
    shape.y1 = shape.y0 + 28.0;
    scene s = make_scene(small_psf(&shape), 45, 60, shape.wmin, shape.wmax, STEP);
    for (size_t size = 1; size <= 9; size++) {
        char what[40];
        (void)snprintf(what, sizeof what, "bundles of %zu", size);
        s.o.bundle_size = size;
        compare(&s, 1e-8, what);
    }
    free_scene(&s);
}

/* ---- traces ---- */

/* Fibre 2 of the bundle 0..3 is not as it should be, fibres 4..6 are in another bundle. */
static void check_broken_traces(void)
{
    small_psf_shape shape = small_psf_default();
    shape.pitch = 7.0;
    scene s = make_small(&shape);
    result good = extract(&s, 0, "good traces");
    double *x = s.psf->x.coef + 2 * shape.ncoef, *y = s.psf->y.coef + 2 * shape.ncoef, keep[2][4];
    memcpy(keep[0], x, sizeof keep[0]);
    memcpy(keep[1], y, sizeof keep[1]);
    const char *const what[] = {
        "crosses the next", "crosses all of its bundle", "leaves the CCD", "runs down", "is far off the CCD",
        "is not finite",    "is beside the next",        "turns back"};
    for (int c = 0; c < 8; c++) {
        memcpy(x, keep[0], sizeof keep[0]);
        memcpy(y, keep[1], sizeof keep[1]);
        switch (c) {
        case 0:
            x[1] = 6.0;
            break;
        case 1:
            x[1] = 24.0;
            break;
        case 2:
            x[1] = -45.0;
            break;
        case 3:
            y[1] = -y[1];
            break;
        case 4:
            x[0] = -5000.0;
            break;
        case 5:
            x[0] = NAN;
            break;
        case 6:
            x[0] += 5.8;
            break;
        case 7:
            y[1] = 0.3 * y[1];
            y[2] = 20.0;
            break;
        }
        if (c != 7) /* a trace that turns back is left out: its bins overlap with too many of their own */
            compare(&s, 1e-8, what[c]);
        result r = extract(&s, 0, what[c]);
        CHECK(good.status == SPX_OK && r.status == SPX_OK && same_rows(&good.frame, 4, &r.frame, 4, 3),
              "a trace that %s changes another bundle", what[c]);
        CHECK(r.counts.npatch_failed == 0, "%s: %zu traces failed", what[c], r.counts.npatch_failed);
        for (size_t f = 0; c >= 4 && c <= 5 && r.status == SPX_OK && f < 2; f++)
            for (size_t k = 0; k < r.frame.arm.nwave; k++)
                CHECK(r.frame.arm.ivar[f * r.frame.arm.nwave + k] > 0.0 &&
                          !(r.frame.arm.ivar[2 * r.frame.arm.nwave + k] > 0.0),
                      "%s: bin %zu of fibre %zu", what[c], k, f);
        spx_frame_free(&r.frame);
    }
    spx_frame_free(&good.frame);
    free_scene(&s);
}

/* A trace that crosses eight others, in their bundle. */
static void check_crossing(void)
{
    small_psf_shape shape = small_psf_default();
    shape.nspec = 9;
    shape.pitch = 6.5;
    scene s = make_scene(small_psf(&shape), 90, 75, shape.wmin, shape.wmax, STEP);
    s.o.bundle_size = 9;
    s.psf->x.coef[1] = 30.0;
    s.psf->x.coef[0] += 26.0;
    compare(&s, 1e-8, "crosses eight others");
    result r = extract(&s, 0, "crosses eight others");
    CHECK(r.counts.npatch_failed == 0 && r.counts.npatch_regularised == 0 && r.counts.nbin_empty == 0,
          "crosses eight others: %zu failed, %zu regularised, %zu bins empty", r.counts.npatch_failed,
          r.counts.npatch_regularised, r.counts.nbin_empty);
    spx_frame_free(&r.frame);
    /* all along beside another: conjugate gradients do not converge */
    s.psf->x.coef[1] = 0.4;
    s.psf->x.coef[0] += 0.1;
    compare(&s, 1e-8, "lies beside another that is not next to it");
    free_scene(&s);
}

/* Two traces in one place, not next to each other in the bundle: which of them has the light cannot be said, so they
 * have no information. The others are as with one of them. */
static void check_double_trace(void)
{
    small_psf_shape shape = small_psf_default();
    shape.pitch = 9.5;
    scene s = make_small(&shape);
    s.o.bundle_size = 7;
    const size_t nc = shape.ncoef, nw = spx_extract_nwave(&s.o);
    s.psf->x.coef[6 * nc] = -5000.0; /* off the CCD */
    result one = extract(&s, 0, "one trace in one place");
    memcpy(s.psf->x.coef + 6 * nc, s.psf->x.coef + 2 * nc, nc * sizeof(double));
    memcpy(s.psf->y.coef + 6 * nc, s.psf->y.coef + 2 * nc, nc * sizeof(double));
    for (size_t p = 0; p < s.psf->npar; p++)
        memcpy(s.psf->coeff + (p * 7 + 6) * s.psf->ndeg, s.psf->coeff + (p * 7 + 2) * s.psf->ndeg,
               s.psf->ndeg * sizeof(double));
    result two = extract(&s, 0, "two traces in one place");
    double worst = 0.0;
    for (size_t f = 0; one.status == SPX_OK && two.status == SPX_OK && f < 7; f++)
        for (size_t k = 0; k < nw; k++) {
            size_t i = f * nw + k;
            if (f % 4 == 2) {
                CHECK(two.frame.arm.ivar[i] < 1e-9, "fibre %zu, bin %zu: ivar %g", f, k, two.frame.arm.ivar[i]);
                continue;
            }
            CHECK(two.frame.arm.ivar[i] > 0.0, "fibre %zu, bin %zu: lost with the double trace", f, k);
            worst = fmax(worst, fabs(two.frame.arm.flux[i] - one.frame.arm.flux[i]) * sqrt(one.frame.arm.ivar[i]));
        }
    CHECK(worst < 1e-6, "a double trace changes others by %g sigma", worst);
    spx_frame_free(&one.frame);
    spx_frame_free(&two.frame);
    free_scene(&s);
}

/* ---- edges of the CCD ---- */

/* Each of the four borders at places that cut spots differently, through traces that bend across it. */
static void check_cuts(void)
{
    small_psf_shape shape = small_psf_default();
    shape.nspec = 3;
    shape.pitch = 7.0;
    shape.x0 = 14.0;
    shape.y0 = 12.0;
    shape.y1 = 52.0;
    shape.wmax = shape.wmin + 42.0;
    scene s = make_scene(small_psf(&shape), 65, 42, shape.wmin, shape.wmax, STEP);
    s.o.bundle_size = 3;
    for (size_t k = 0; k < 40; k++) {
        const size_t at = k / 4 * 2 + k / 20, side = k % 4;
        char what[40];
        (void)snprintf(what, sizeof what, "border %zu at %zu", side, at);
        scene cut = cut_scene(&s, &shape, side == 0 ? at : 0, side == 1 ? 42 - at : 42, side == 2 ? at : 0,
                              side == 3 ? 65 - at : 65);
        if (cut.psf && cut.image.ivar)
            compare(&cut, 1e-8, what);
        free_scene(&cut);
    }
    free_scene(&s);
}

/* ---- masks ---- */

/* Pixels that are not finite or have a negative ivar are the same as masked ones; columns that are dead all along a
 * trace; a fibre without a single pixel; a frame that is masked but for 4 %. */
static void check_masks(void)
{
    small_psf_shape shape = small_psf_default();
    shape.pitch = 7.0;
    scene s = make_small(&shape);
    const size_t nx = s.image.nx, ny = s.image.ny;
    const size_t where[5] = {30 * nx + 8, 31 * nx + 14, 32 * nx + 25, 33 * nx + 30, 20 * nx + 36};
    for (size_t k = 0; k < 5; k++)
        s.image.mask[where[k]] = 1;
    result masked = extract(&s, 0, "masked pixels");
    for (size_t k = 0; k < 5; k++)
        s.image.mask[where[k]] = 0;
    s.image.data[where[0]] = NAN;
    s.image.data[where[1]] = INFINITY;
    s.image.ivar[where[2]] = NAN;
    s.image.ivar[where[3]] = -1.0f;
    s.image.ivar[where[4]] = INFINITY;
    result bad = extract(&s, 0, "bad pixels");
    CHECK(bad.counts.npix_bad == 5 && masked.counts.npix_bad == 0, "%zu bad pixels", bad.counts.npix_bad);
    CHECK(masked.status == SPX_OK && bad.status == SPX_OK && same_rows(&masked.frame, 0, &bad.frame, 0, 7),
          "bad pixels are not the same as masked ones");
    spx_frame_free(&masked.frame);
    spx_frame_free(&bad.frame);

    for (size_t y = 0; y < ny; y++) { /* the middle of fibre 0, and two columns beside that of fibre 3 */
        s.image.mask[y * nx + 8] |= 2;
        s.image.mask[y * nx + 27] |= 2;
        s.image.mask[y * nx + 31] |= 2;
    }
    compare(&s, 1e-8, "dead columns");
    for (size_t y = 0; y < ny; y++) /* nothing of fibre 2 */
        for (size_t x = 17; x < 29; x++)
            s.image.mask[y * nx + x] |= 4;
    compare(&s, 1e-8, "a fibre without pixels");
    result r = extract(&s, 0, "a fibre without pixels");
    for (size_t k = 0; r.status == SPX_OK && k < r.frame.arm.nwave; k++)
        for (size_t f = 1; f < 4; f++) {
            const size_t i = f * r.frame.arm.nwave + k;
            const uint32_t want = f == 2 ? SPX_ALLBADPIX | SPX_SOMEBADPIX : 0;
            CHECK((r.frame.arm.mask[i] & (SPX_ALLBADPIX | (want & SPX_SOMEBADPIX))) == want &&
                      (f != 2 || (r.frame.arm.flux[i] == 0.0 && r.frame.arm.ivar[i] == 0.0)),
                  "fibre %zu, bin %zu: mask %u", f, k, r.frame.arm.mask[i]);
        }
    spx_frame_free(&r.frame);

    for (size_t i = 0; i < nx * ny; i++)
        s.image.mask[i] = i % 25 != 0;
    spx_frame frame = {0};
    spx_extract_counts counts;
    spx_err e = {0};
    spx_status st = spx_extract_trace_cpu(&s.image, s.psf, &s.o, &frame, &counts, &e);
    CHECK(st == SPX_EINPUT && strstr(spx_err_text(&e), "masked"), "4 %% of the pixels left: status %d: %s", st,
          spx_err_text(&e));
    spx_frame_free(&frame);
    free_scene(&s);
}

/* The built-in cameras with all artefacts of the simulation. */
static void check_cameras(void)
{
    const char bands[] = "bz";
    for (int b = 0; b < 2; b++) {
        const double wmin = b == 0 ? 4400.0 : 8600.0, wmax = wmin + 32.0;
        spx_psf *psf = spx_alloc(1, sizeof *psf, NULL);
        spx_err e = {0};
        CHECK(psf && spx_sim_psf(bands[b], 5, wmin, wmax, psf, &e) == SPX_OK, "%s", spx_err_text(&e));
        if (!psf || e.code)
            return;
        const spx_sim_noise noise = {.seed = seed,
                                     .camera = bands[b],
                                     .photon_noise = 1,
                                     .readnoise = 3.0,
                                     .fullwell = 3e4,
                                     .cosmics = 3000.0,
                                     .badcolumns = 6,
                                     .gap_row = psf->npix_y / 2 - 12,
                                     .gap = 9,
                                     .blocks = 1,
                                     .nans = 20};
        scene s = expose_scene(psf, psf->npix_y, psf->npix_x, wmin, wmax, 0.8, &noise);
        char what[] = "camera b";
        what[7] = bands[b];
        s.o.bundle_size = 5;
        compare(&s, 1e-8, what);
        s.o.tolerance = 1e-10;
        compare(&s, 1e-9, what);
        free_scene(&s);
    }
}

/* ---- borders of patches ---- */

/* With the default padding, 12, up to some 2 % of the error beside a border, several times less with every two bins of
 * padding more; with 16, nothing in the middle. */
static void check_patch_borders(void)
{
    const char bands[] = "brz";
    for (int b = 0; b < 3; b++) {
        const double wmin = b == 0 ? 4400.0 : b == 1 ? 6000.0 : 8600.0, wmax = wmin + 119.2;
        spx_psf *psf = spx_alloc(1, sizeof *psf, NULL);
        spx_err e = {0};
        CHECK(psf && spx_sim_psf(bands[b], 4, wmin, wmax, psf, &e) == SPX_OK, "%s", spx_err_text(&e));
        if (!psf || e.code)
            return;
        const spx_sim_noise noise = {
            .seed = seed, .camera = bands[b], .photon_noise = 1, .readnoise = 3.0, .fullwell = 1e6, .cosmics = 300.0};
        scene s = expose_scene(psf, psf->npix_y, psf->npix_x, wmin, wmax, 0.8, &noise);
        s.o.wave_pad = 40;
        s.o.pix_pad_frac = 0.9;
        result trace = extract(&s, 0, "traces");
        char what[] = "camera b";
        what[7] = bands[b];
        check_worst(&s, 2, what);
        double last = 0.0;
        for (size_t pad = 12; pad <= 16; pad += 2) {
            difference d = from_patches(&s, &trace, pad, 1);
            CHECK(d.bins > 500 && d.border < (pad == 12 ? 4e-2 : 2e-2) && d.border > 0.0 &&
                      (pad == 12 || d.border < 0.6 * last) && (pad < 16 || d.middle < 1e-5),
                  "seed %llu, camera %c: patches with padding %zu differ by %g sigma at borders (%g before), %g in the "
                  "middle, in %zu bins",
                  (unsigned long long)seed, bands[b], pad, d.border, last, d.middle, d.bins);
            last = d.border;
            spx_frame_free(&d.patches.frame);
        }
        spx_frame_free(&trace.frame);
        free_scene(&s);
    }
}

int main(void)
{
    check_psfs();
    check_bundles();
    check_broken_traces();
    check_crossing();
    check_double_trace();
    check_cuts();
    check_masks();
    check_cameras();
    check_patch_borders();
    return failures != 0;
}
