/* Checks the trace method of extraction against dense algebra on small frames, and the properties that every method
 * has. */
#include "extract_scene.h"

static void check_dense(void)
{
    small_psf_shape shape = small_psf_default();
    shape.pitch = 7.0;
    scene s = make_small(&shape);
    compare(&s, 1e-8, "clean");
    s.o.regularize = 0.01;
    compare(&s, 1e-8, "regularised");
    s.o.regularize = 0.0;
    add_masks(&s);
    compare(&s, 1e-8, "masked");
    free_scene(&s);

    shape.pitch = 5.6;
    s = make_small(&shape);
    compare(&s, 1e-8, "closer traces");
    free_scene(&s);

    /* so close that A_s is twice as wide as M: its band follows the tolerance */
    shape.pitch = 4.6;
    s = make_small(&shape);
    s.o.bundle_size = 7;
    compare(&s, 1e-8, "traces that overlap");
    s.o.tolerance = 1e-12;
    compare(&s, 1e-11, "traces that overlap, to the last digits");
    s.o.tolerance = 1e-8;
    add_masks(&s);
    compare(&s, 1e-8, "traces that overlap, masked");
    free_scene(&s);

    shape = small_psf_default(); /* other degrees and sizes */
    shape.pitch = 7.0;
    shape.hsizex = 5;
    shape.hsizey = 4;
    shape.ghdegx = 1;
    shape.ghdegy = 5;
    shape.ndeg = 3;
    shape.ncoef = 2;
    s = make_small(&shape);
    s.o.bundle_size = 3;
    compare(&s, 1e-8, "another PSF");
    s.o.dw = 3.5;
    s.o.wave_step = spx_extract_nwave(&s.o); /* bins as coarse as spots: fewer overlaps than stored diagonals */
    compare(&s, 1e-8, "coarse bins");
    free_scene(&s);
}

/* Camera as it is: 8 of its fibres in one bundle. */
static void check_camera(void)
{
    spx_psf *psf = spx_alloc(1, sizeof *psf, NULL);
    spx_err e = {0};
    CHECK(psf && spx_sim_psf('r', 8, 6000.0, 6040.0, psf, &e) == SPX_OK, "%s", spx_err_text(&e));
    if (!psf || e.code)
        return;
    scene s = make_scene(psf, psf->npix_y, psf->npix_x, 6000.0, 6040.0, 0.8);
    s.o.bundle_size = 8;
    compare(&s, 1e-8, "camera");
    const double narrow[] = {0.5, 0.45}; /* bins whose spectra hardly any light tells apart */
    s.o.bundle_size = 2;
    for (size_t i = 0; i < 2; i++) {
        s.o.dw = narrow[i];
        s.o.wave_step = spx_extract_nwave(&s.o);
        compare(&s, 2e-7, "camera, narrow bins");
    }
    s.o.bundle_size = 8;
    s.o.dw = 0.8;
    s.o.wave_step = spx_extract_nwave(&s.o);
    for (size_t x = 0; x < s.image.nx; x++)
        for (size_t y = s.image.ny / 2; y < s.image.ny / 2 + 12; y++)
            s.image.mask[y * s.image.nx + x] |= 1;
    compare(&s, 1e-8, "camera with a gap");
    free_scene(&s);
}

/* ---- properties ---- */

static void check_subsets(void)
{
    small_psf_shape shape = small_psf_default(); /* 7 fibres, bundles of 4 and 3 */
    scene s = make_small(&shape);
    add_masks(&s);
    s.o.want_model = 1;
    result all = extract(&s, 0, "all fibres");
    for (int threads = 2; threads <= 3; threads++) {
        s.o.nthreads = threads;
        result again = extract(&s, 0, "threads");
        CHECK(again.status == SPX_OK && same_rows(&all.frame, 0, &again.frame, 0, 7) &&
                  !memcmp(all.frame.arm.mask, again.frame.arm.mask, 7 * all.frame.arm.nwave * sizeof(uint32_t)) &&
                  !memcmp(all.frame.model, again.frame.model, s.image.ny * s.image.nx * sizeof(float)),
              "%d threads give another result", threads);
        spx_frame_free(&again.frame);
    }
    s.o.nthreads = 1;
    for (size_t first = 0; first < 7; first++)
        for (size_t n = 1; n <= 7 - first; n += 2) {
            s.o.first = first;
            s.o.nspec = n;
            result part = extract(&s, 0, "subset");
            CHECK(part.status == SPX_OK && same_rows(&all.frame, first, &part.frame, 0, n),
                  "fibres %zu to %zu differ from the full run", first, first + n - 1);
            spx_frame_free(&part.frame);
        }
    spx_frame_free(&all.frame);
    free_scene(&s);
}

/* Every instruction set gives the same numbers up to rounding, the same numbers twice, and flags the same bins. */
static void check_instruction_sets(void)
{
    small_psf_shape shape = small_psf_default();
    shape.nspec = 19;
    scene s = make_scene(small_psf(&shape), 90, 130, shape.wmin, shape.wmax, STEP);
    add_masks(&s);
    s.o.bundle_size = 10;
    spx_trace_forced = spx_trace_kernels_base();
    result base = extract(&s, 0, "base");
    const spx_trace_kernels *const sets[] = {spx_trace_kernels_base(), spx_trace_kernels_avx2(),
                                             spx_trace_kernels_avx512()};
    size_t nw = base.frame.arm.nwave, nd = base.frame.arm.ndiag;
    for (size_t i = 0; i < 3 && base.status == SPX_OK; i++) {
        if (!sets[i])
            continue;
        spx_trace_forced = sets[i];
        result r = extract(&s, 0, sets[i]->name), twice = extract(&s, 0, sets[i]->name);
        CHECK(same_rows(&r.frame, 0, &twice.frame, 0, 19), "%s: differs when repeated", sets[i]->name);
        double worst = 0.0;
        size_t other = 0;
        for (size_t k = 0; k < 19 * nw; k++) {
            other += r.frame.arm.mask[k] != base.frame.arm.mask[k];
            if (base.frame.arm.ivar[k] > 0.0) {
                worst = fmax(worst, fabs(r.frame.arm.flux[k] - base.frame.arm.flux[k]) * sqrt(base.frame.arm.ivar[k]));
                worst = fmax(worst, fabs(r.frame.arm.ivar[k] / base.frame.arm.ivar[k] - 1.0));
            }
        }
        for (size_t k = 0; k < 19 * nw * nd; k++)
            worst = fmax(worst, fabs(r.frame.arm.resolution[k] - base.frame.arm.resolution[k]));
        CHECK(worst < 1e-6 && other == 0, "seed %llu: %s differs from base by %g, masks in %zu bins",
              (unsigned long long)seed, sets[i]->name, worst, other);
        spx_frame_free(&r.frame);
        spx_frame_free(&twice.frame);
    }
    spx_trace_forced = NULL;
    spx_frame_free(&base.frame);
    free_scene(&s);
}

/* An image cut on any side gives what dense algebra gives there, and the same as one that is masked there. */
static void check_edges(void)
{
    small_psf_shape shape = small_psf_default();
    shape.pitch = 7.0;
    shape.x0 += 10.0;
    shape.y0 += 10.0;
    shape.y1 += 10.0;
    scene s = make_scene(small_psf(&shape), 100, 70, shape.wmin, shape.wmax, STEP);
    const struct {
        size_t x0, x1, y0, y1;
        const char *what;
    } cuts[] = {{24, 70, 0, 100, "cut on the left"},
                {0, 46, 0, 100, "cut on the right"},
                {0, 70, 21, 100, "cut at the bottom"},
                {0, 70, 0, 69, "cut at the top"},
                {22, 41, 25, 60, "cut on all sides"}};
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        scene cut = cut_scene(&s, &shape, cuts[c].x0, cuts[c].x1, cuts[c].y0, cuts[c].y1), masked = s;
        masked.image.mask = spx_alloc2(100, 70, sizeof(uint32_t), NULL);
        if (!cut.psf || !cut.image.ivar || !masked.image.mask) {
            CHECK(0, "memory");
            return;
        }
        for (size_t y = 0; y < 100; y++)
            for (size_t x = 0; x < 70; x++)
                masked.image.mask[y * 70 + x] = y < cuts[c].y0 || y >= cuts[c].y1 || x < cuts[c].x0 || x >= cuts[c].x1;
        compare(&cut, 1e-8, cuts[c].what);
        compare(&masked, 1e-8, cuts[c].what);
        spx_free(masked.image.mask);
        free_scene(&cut);
    }
    free_scene(&s);
}

/* Pulls against what was put in, through the resolution matrix. */
static void check_statistics(void)
{
    small_psf_shape shape = small_psf_default();
    shape.pitch = 7.0;
    shape.hsizey = 6; /* so that the stored diagonals hold all of R */
    scene s = make_small(&shape);
    s.o.bundle_size = 7;
    result r = extract(&s, 0, "statistics");
    double sum = 0.0, sum2 = 0.0, chi2 = 0.0;
    const long half = 6, nw = (long)r.frame.arm.nwave;
    size_t n = 0;
    for (size_t f = 0; r.status == SPX_OK && f < shape.nspec; f++)
        for (long k = half; k + half < nw; k++, n++) {
            double expected = 0.0;
            for (long d = 0; d <= 2 * half; d++) { /* row k holds R[k][j] at column j = k - off, off = half - d */
                long j = k - half + d;
                double mean = 0.0;
                for (int i = 0; i < 20; i++)
                    mean += truth(f, 5000.0 + fmod(s.o.wmin + ((double)j + (i - 9.5) / 20.0) * STEP, 100.0)) / 20.0;
                expected += r.frame.arm.resolution[((long)f * (2 * half + 1) + 2 * half - d) * nw + j] * mean;
            }
            size_t at = f * (size_t)nw + (size_t)k;
            double pull = (r.frame.arm.flux[at] - expected) * sqrt(r.frame.arm.ivar[at]);
            sum += pull;
            sum2 += pull * pull;
            chi2 += r.frame.chi2pix[at];
        }
    double mean = sum / (double)n, rms = sqrt(sum2 / (double)n);
    chi2 /= (double)n;
    CHECK(n > 200 && fabs(mean) < 0.25 && rms > 0.85 && rms < 1.2 && chi2 > 0.4 && chi2 < 1.2,
          "seed %llu: %zu pulls, mean %g, rms %g, mean chi2pix %g", (unsigned long long)seed, n, mean, rms, chi2);
    spx_frame_free(&r.frame);
    free_scene(&s);
}

static void check_failures(void)
{
    small_psf_shape shape = small_psf_default();
    scene s = make_small(&shape);
    result all = extract(&s, 0, "all spots");
    for (size_t k = 0; k < s.image.ny * s.image.nx; k++)
        s.image.ivar[k] *= 1e12f;
    s.o.wmax = s.o.wmin + 3.0;
    s.o.dw = 0.1; /* bins that share their pixels */
    result r = extract(&s, 0, "no solution");
    CHECK(r.counts.npatch == 7 && r.counts.npatch_failed == 7 && r.counts.nbin_empty == r.counts.nbin,
          "%zu of %zu traces failed, %zu bins empty", r.counts.npatch_failed, r.counts.npatch, r.counts.nbin_empty);
    for (size_t k = 0; r.status == SPX_OK && k < r.counts.nbin; k++)
        CHECK(r.frame.arm.mask[k] == (SPX_ALLBADPIX | SPX_BAD2DFIT), "bin %zu: mask %u", k, r.frame.arm.mask[k]);
    spx_frame_free(&r.frame);
    free_scene(&s);

    s = make_small(&shape);
    s.psf->coeff[5 * s.psf->ndeg] = -1.0; /* sigma of fibre 5 */
    r = extract(&s, 0, "a fibre without spots");
    CHECK(r.counts.nbin_nospot == r.frame.arm.nwave && r.counts.npatch_failed == 0, "%zu bins without spot",
          r.counts.nbin_nospot);
    CHECK(all.status == SPX_OK && r.status == SPX_OK && same_rows(&all.frame, 0, &r.frame, 0, 4), "other bundle");
    for (size_t k = 0; r.status == SPX_OK && k < r.frame.arm.nwave; k++)
        CHECK(r.frame.arm.mask[5 * r.frame.arm.nwave + k] == (SPX_ALLBADPIX | SPX_SOMEBADPIX) &&
                  r.frame.arm.ivar[4 * r.frame.arm.nwave + k] > 0.0,
              "bin %zu of fibres 4, 5", k);
    spx_frame_free(&r.frame);
    /* a trace that turns back harms no other bundle, and nobody's results are not finite */
    s.psf->coeff[5 * s.psf->ndeg] = shape.sigx;
    s.psf->y.coef[6 * shape.ncoef + 1] = 0.01;
    s.psf->y.coef[6 * shape.ncoef + 2] = 15.0;
    r = extract(&s, 0, "a trace that turns back");
    CHECK(all.status == SPX_OK && r.status == SPX_OK && same_rows(&all.frame, 0, &r.frame, 0, 4), "other bundle");
    spx_frame_free(&r.frame);
    spx_frame_free(&all.frame);
    free_scene(&s);
}

static void check_refusals(void)
{
    small_psf_shape shape = small_psf_default();
    scene good = make_small(&shape);
    for (int c = 0; c < 8; c++) {
        scene s = good;
        const char *text = "tolerance";
        spx_status want = SPX_EUSAGE;
        switch (c) {
        case 0:
            s.o.tolerance = 0.0;
            break;
        case 1:
            s.o.tolerance = NAN;
            break;
        case 2:
            s.o.wave_pad = (size_t)-1;
            text = "padded";
            break;
        case 3:
            s.o.dw = 0.005;
            s.o.wmax = s.o.wmin + 2.0;
            text = "smaller than a pixel";
            break;
        case 4:
            s.o.nspec = 8;
            text = "{spectra}";
            break;
        case 5:
            s.o.wmin = 6000.0;
            s.o.wmax = 6010.0;
            text = "{wavelength}";
            want = SPX_EINPUT;
            break;
        case 6:
            s.o.tolerance = 1.0;
            break;
        case 7:
            s.o.wave_step = (size_t)-1; /* allowed: the window is everything */
            want = SPX_OK;
            text = "";
            break;
        }
        spx_frame frame = {0};
        spx_extract_counts counts;
        spx_err e = {0};
        spx_status st = spx_extract_trace_cpu(&s.image, s.psf, &s.o, &frame, &counts, &e);
        CHECK(st == want && strstr(spx_err_text(&e), text), "case %d: status %d: %s", c, st, spx_err_text(&e));
        spx_frame_free(&frame);
    }
    free_scene(&good);
}

static void check_poles(void)
{
    double shift[SPX_MAX_POLES], weight[SPX_MAX_POLES];
    for (double b = 1.0; b < 1e13; b *= 7.0) {
        int n = spx_sqrt_choose(2.0, 2.0 * b, 1e-9, shift, weight);
        double worst = 0.0;
        for (double v = 2.0; v <= 2.0 * b; v *= 1.037) {
            double sum = 0.0;
            for (int j = 0; j < n; j++)
                sum += weight[j] * (1.0 - shift[j] / (v + shift[j]));
            worst = fmax(worst, fabs(sum / sqrt(v) - 1.0));
        }
        CHECK(worst < 1.5e-9 && n <= 50, "condition %g: %d poles, error %g", b, n, worst);
    }
}

int main(void)
{
    check_poles();
    check_dense();
    check_camera();
    check_subsets();
    check_instruction_sets();
    check_edges();
    check_statistics();
    check_failures();
    check_refusals();
    return failures != 0;
}
