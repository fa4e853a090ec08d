/* Cases of the operation `extract`, the trace method, against dense algebra in extended precision. Sizes: columns
 * between the fibres in tenths, first fibre, fibres, 1: pixels masked, 2: cosmic-ray hits that are rejected, 3: both;
 * 1: model image.
 *
 * Tolerance: 1e-6 of its error for the flux, 1e-8 relative for ivar, 1e-8 for elements of the resolution, which is
 * where the iteration and the poles of the square root end (options.tolerance 1e-8); for ivar by what is left of a bin
 * whose pixels are masked: the sum of Q, whose square it is, rounds like its neighbours'. Against dense algebra a
 * hundredth of the signal-to-noise ratio more, and in proportion to the largest element of a row of the resolution
 * (extract_scene.h); bins with hardly a pixel are not known. */
#include "device.h"
#include "extract_scene.h"
#include "op.h"

static const op_case cases[] = {
    {"seven fibres", {70, 0, 7, 0, 0}},
    {"one fibre", {70, 3, 1, 0, 0}},
    {"fibres of two bundles, with a model", {70, 2, 4, 0, 1}},
    {"masked: a dead column, a gap, NaN", {70, 0, 7, 1, 0}},
    {"hits that are rejected", {70, 0, 7, 2, 0}},
    {"hits on fibres that are close, of two bundles", {56, 2, 4, 2, 0}},
    {"hits beside masks", {70, 0, 7, 3, 0}},
    {"traces on each other, which a device leaves to the CPU", {15, 0, 7, 0, 0}},
};

static void *draw(const size_t *size, uint64_t from)
{
    scene *s = need(1, sizeof *s);
    small_psf_shape shape = small_psf_default();
    spx_sim_noise noise = {.seed = from, .camera = 'r', .photon_noise = 1, .readnoise = 3.0, .fullwell = 1e6};
    shape.pitch = 0.1 * (double)size[0];
    noise.cosmics = size[3] >= 2 ? 3000.0 : 0.0;
    *s = expose_scene(small_psf(&shape), 90, 60, shape.wmin, shape.wmax, STEP, &noise);
    s->o.first = size[1];
    s->o.nspec = size[2];
    s->o.want_model = size[4] != 0;
    const size_t npix = s->image.ny * s->image.nx;
    if (size[3] >= 2) { /* nobody has flagged them */
        memset(s->image.mask, 0, npix * sizeof *s->image.mask);
        s->o.reject = 5.0;
    }
    if (size[3] % 2 == 1)
        add_masks(s);
    op_const("image", s->image.data, npix, sizeof *s->image.data);
    op_const("ivar", s->image.ivar, npix, sizeof *s->image.ivar);
    op_const("mask", s->image.mask, npix, sizeof *s->image.mask);
    return s;
}

static void run(spx_backend *b, void *scene_, int threads, op_answer *a)
{
    const scene *s = scene_;
    spx_extract_options o = s->o;
    spx_frame *out = op_output("frame", 1, sizeof *out);
    spx_extract_counts *counts = op_output("counts", 1, sizeof *counts);
    spx_err e = {0};
    o.nthreads = threads;
    if (op_done(b->extract(b, &s->image, s->psf, &o, out, counts, &e), &e)) {
        const size_t n = out->nspec * out->arm.nwave;
        double *scale, *flux = op_add(a, "flux", n, 1e-6, &scale), *mask;
        for (size_t i = 0; i < n; i++) {
            flux[i] = out->arm.flux[i];
            scale[i] = out->arm.ivar[i] > 0 ? 1 / sqrt(out->arm.ivar[i]) : 0;
        }
        double *ivar = op_add(a, "ivar", n, 1e-8, &scale);
        for (size_t i = 0; i < n; i++)
            scale[i] = (ivar[i] = out->arm.ivar[i]) / fmax(1e-6, 1 - out->pixmask_fraction[i]);
        op_put(a, "resolution", n * out->arm.ndiag, out->arm.resolution, 1e-8);
        double *chi2 = op_add(a, "chi2pix", n, 1e-8, &scale);
        for (size_t i = 0; i < n; i++)
            scale[i] = 1 + (chi2[i] = out->chi2pix[i]);
        op_put(a, "pixmask_fraction", n, out->pixmask_fraction, 1e-12);
        mask = op_add(a, "mask", n, 0, NULL);
        for (size_t i = 0; i < n; i++)
            mask[i] = out->arm.mask[i];
        double *rejected = op_add(a, "rejected", s->image.ny * s->image.nx, 0, NULL);
        for (size_t i = 0; i < out->ncosmic; i++)
            rejected[(size_t)out->cosmic_pixels[2 * i] * s->image.nx + (size_t)out->cosmic_pixels[2 * i + 1]] = 1;
        const double number[] = {(double)counts->npix_rejected, (double)counts->nbin_cosmic,
                                 (double)counts->npix_masked, (double)counts->npix_bad};
        op_put(a, "numbers", sizeof number / sizeof *number, number, 0);
        double *model = op_add(a, "model", out->model_ny * out->model_nx, 1e-6, &scale);
        for (size_t i = 0; i < out->model_ny * out->model_nx; i++)
            scale[i] = 1 + fabs(model[i] = (double)out->model[i]);
    }
    spx_frame_free(out);
}

/* The scene without what is rejected, which test_extract_reject compares with dense algebra; its mask is to be freed.
 */
static scene without_hits(const scene *s)
{
    const size_t npix = s->image.ny * s->image.nx;
    scene t = *s;
    result r = extract(s, 0, "hits");
    t.o.reject = 0.0;
    t.image.mask = need(npix, sizeof *t.image.mask);
    memcpy(t.image.mask, s->image.mask, npix * sizeof *t.image.mask);
    for (size_t i = 0; i < r.frame.ncosmic; i++)
        t.image.mask[(size_t)r.frame.cosmic_pixels[2 * i] * t.image.nx + (size_t)r.frame.cosmic_pixels[2 * i + 1]] = 1;
    spx_frame_free(&r.frame);
    return t;
}

static void reference(void *scene_, op_answer *a)
{
    const scene masked = without_hits(scene_), *s = &masked;
    const size_t nw = spx_extract_nwave(&s->o), nd = (size_t)spx_psf_ny(s->psf), ns = s->o.nspec, n = ns * nw;
    const size_t pad = s->o.wave_pad, nb = nw + 2 * pad, size = s->o.bundle_size, end = s->o.first + ns;
    /* all fibres of the bundles that are asked for */
    scene all = *s;
    all.o.first = s->o.first / size * size;
    all.o.nspec = (end + size - 1) / size * size;
    all.o.nspec = (all.o.nspec > s->psf->nspec ? s->psf->nspec : all.o.nspec) - all.o.first;
    dense d = dense_alloc(all.o.nspec, nw, pad, nd);
    for (size_t f = 0; f < all.o.nspec; f += size)
        dense_bundle(&all, all.o.first + f, f + size < all.o.nspec ? size : all.o.nspec - f, &d);
    result p = extract(s, 1, "patches");
    double *of_flux, *of_ivar, *of_res, *flux = op_add(a, "flux", n, 1e-7, &of_flux);
    double *ivar = op_add(a, "ivar", n, 1e-8, &of_ivar), *res = op_add(a, "resolution", n * nd, 1e-8, &of_res);
    op_put(a, "pixmask_fraction", n, p.frame.pixmask_fraction, 1e-12);
    for (size_t f = 0; f < ns; f++) {
        const size_t g = f + s->o.first - all.o.first;
        double brightest = 1;
        for (size_t k = 0; k < nw; k++)
            brightest = fmax(brightest, 0.01 * fabs(d.flux[g * nw + k]) * sqrt(d.ivar[g * nw + k]));
        for (size_t k = 0; k < nw; k++) {
            const size_t to = f * nw + k, from = g * nw + k;
            const double scale = fmax(1, d.largest[g * nb + k + pad]);
            const int known = p.frame.arm.ivar[to] > 0 && p.frame.pixmask_fraction[to] <= 0.99;
            flux[to] = known ? d.flux[from] : NAN;
            of_flux[to] = brightest * scale / sqrt(d.ivar[from]);
            ivar[to] = known ? d.ivar[from] : NAN;
            of_ivar[to] = d.ivar[from] * scale;
            for (size_t r = 0; r < nd; r++) {
                const size_t at = (f * nd + r) * nw + k, row = k + r - nd / 2; /* beyond the grid: some large number */
                const int seen = known && (row >= nw || p.frame.pixmask_fraction[f * nw + row] <= 0.99);
                res[at] = seen ? d.resolution[(g * nd + r) * nw + k] : NAN;
                of_res[at] = row + pad < nb ? fmax(1, d.largest[g * nb + row + pad]) : 1;
            }
        }
    }
    spx_free(masked.image.mask);
    spx_frame_free(&p.frame);
    dense_free(&d);
}

static void release(void *scene_)
{
    free_scene(scene_);
    spx_free(scene_);
}

const op_test op_extract = {sizeof cases / sizeof *cases, cases, draw, run, reference, release};
