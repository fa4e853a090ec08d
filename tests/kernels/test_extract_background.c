/* Extraction with a background: scattered light of a form that no spline of the model has, against the truth of a
 * simulation, without and with noise, with a tail of the PSF, with hits; independence of threads and of the fibres that
 * are wanted; and nothing changes without it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "extract/extract.h"
#include "extract_bright.h"
#include "num/stat.h"
#include "products/psf_index.h"
#include "psf/psf_math.h"
#include "sim/sim.h"

enum { BUNDLE = 6, CELL = 128 };

static const scene lit = {.first = 6000, .last = 6400, .beyond = 50, .faint = 30, .ratio = 100};

/* Scattered light: a Gaussian hill, a Lorentzian ridge that leans, a slope. */
static double scattered(const spx_psf *p, double x, double y)
{
    const double u = x / (double)p->npix_x, v = y / (double)p->npix_y, lean = v - 0.4 - 0.3 * u;
    return 2 + 3 * u + 6 * exp(-0.5 * (pow((u - 0.3) / 0.8, 2) + pow((v - 0.55) / 0.15, 2))) +
           2 / (1 + pow(lean / 0.3, 2));
}

/* How an exposure is made. */
typedef struct {
    double factor; /* of the scattered light */
    int noise;
    double hits; /* a million pixels, not flagged */
    spx_sim_ivar ivar;
} exposure;

static void expose(const spx_psf *p, exposure how, spx_image *image)
{
    spx_err e = {0};
    const size_t npix = p->npix_y * p->npix_x;
    double *model = project(&lit, p);
    for (size_t k = 0; k < npix; k++)
        model[k] += how.factor * scattered(p, (double)(k % p->npix_x), (double)(k / p->npix_x));
    const spx_sim_noise noise = {.seed = 7,
                                 .camera = 'r',
                                 .photon_noise = how.noise,
                                 .readnoise = 3,
                                 .cosmics = how.hits,
                                 .hide_cosmics = 1,
                                 .ivar = how.ivar,
                                 .fullwell = 1e9};
    spx_image_free(image);
    CHECK(spx_sim_expose(p->npix_y, p->npix_x, model, &noise, image, &e) == SPX_OK, "%s", spx_err_text(&e));
    spx_free(model);
}

static spx_extract_options with_cell(double cell)
{
    spx_extract_options o = options(&lit, BUNDLE, 2);
    o.background = cell;
    o.tolerance = 1e-6;
    return o;
}

/* Median and 1.4826 MAD of (flux - truth)/error of all fibres but the bright one. */
static double pulls(const spx_frame *f, double *scatter)
{
    size_t n = 0;
    double *v = spx_alloc2(f->nspec, f->arm.nwave, sizeof *v, NULL),
           *w = spx_alloc2(f->nspec, f->arm.nwave, sizeof *w, NULL);
    for (size_t i = 0; i < f->nspec * f->arm.nwave; i++)
        if (i / f->arm.nwave != BRIGHT && f->arm.mask[i] == 0)
            v[n++] = (f->arm.flux[i] - lit.faint) * sqrt(f->arm.ivar[i]);
    memcpy(w, v, n * sizeof *w);
    const double middle = spx_median(w, n);
    for (size_t i = 0; i < n; i++)
        v[i] = fabs(v[i] - middle);
    *scatter = 1.4826 * spx_median(v, n);
    spx_free(v);
    spx_free(w);
    return middle;
}

/* Rms and largest difference of the background from the truth at the bins, electrons. */
static double off(const spx_psf *p, const spx_frame *f, double *most)
{
    double sum = 0;
    *most = 0;
    for (size_t i = 0; i < f->nspec * f->arm.nwave; i++) {
        const double w = f->arm.wavelength[i % f->arm.nwave];
        const size_t fibre = i / f->arm.nwave;
        const double d = f->background[i] -
                         scattered(p, spx_psf_series_value(&p->x, fibre, w), spx_psf_series_value(&p->y, fibre, w));
        sum += d * d;
        *most = fmax(*most, fabs(d));
    }
    return sqrt(sum / (double)(f->nspec * f->arm.nwave));
}

/* Largest difference of model and image, which has no noise, in errors of a pixel, where wavelengths are extracted. */
static double model_off(const spx_image *image, const spx_frame *f)
{
    const size_t margin = 160;
    double most = 0;
    for (size_t y = margin; y + margin < image->ny; y++)
        for (size_t x = 0; x < image->nx; x++) {
            const size_t i = y * image->nx + x;
            most = fmax(most, fabs((double)f->model[i] - (double)image->data[i]) * sqrt((double)image->ivar[i]));
        }
    return most;
}

int main(void)
{
    spx_psf p, tailed;
    spx_image image = {0};
    spx_extract_counts counts;
    spx_err e = {0};
    double scatter, most;
    camera(&lit, 0, 2.2, &p);
    camera(&lit, 0.0071, 2.2, &tailed);

    /* without noise: biases alone */
    expose(&p, (exposure){.factor = 1}, &image);
    spx_extract_options o = with_cell(0);
    spx_frame f = extract(&image, &p, &o, &counts);
    double bias = pulls(&f, &scatter), rms;
    CHECK(bias > 1 && f.background == NULL, "without the fit the bias is %g only", bias);
    spx_frame_free(&f);
    o = with_cell(CELL);
    o.want_model = 1;
    f = extract(&image, &p, &o, &counts);
    bias = pulls(&f, &scatter);
    rms = off(&p, &f, &most);
    /* profiles lie between tabulated ones: 1e-4 of the star's light is off */
    CHECK(fabs(bias) < 0.005 && scatter < 0.01, "without noise: bias %g, scatter %g", bias, scatter);
    CHECK(rms < 0.03 && most < 0.1, "without noise the background is off by %g, %g at most", rms, most);
    CHECK(model_off(&image, &f) < 0.1, "the model is off by %g errors of a pixel", model_off(&image, &f));

    check_same(&image, &p, o, &f);
    spx_frame_free(&f);

    /* nothing is found where nothing is */
    o = with_cell(CELL);
    expose(&p, (exposure){.factor = 0}, &image);
    f = extract(&image, &p, &o, &counts);
    bias = pulls(&f, &scatter);
    CHECK(fabs(bias) < 0.005 && fabs(counts.background) < 0.01, "without scattered light: bias %g, background %g", bias,
          counts.background);
    spx_frame_free(&f);

    /* noise, with the variance of the model, and that of the data, which biases background and flux */
    for (int ivar = 0; ivar < 2; ivar++) {
        expose(&p, (exposure){.factor = 1, .noise = 1, .ivar = ivar ? SPX_SIM_IVAR_DATA : SPX_SIM_IVAR_MODEL}, &image);
        for (int model = 0; model < 2; model++) {
            o.variance = model ? SPX_VARIANCE_MODEL : SPX_VARIANCE_DATA;
            f = extract(&image, &p, &o, &counts);
            bias = pulls(&f, &scatter);
            rms = off(&p, &f, &most);
            CHECK(fabs(bias) < (ivar && !model ? 0.12 : 0.05) && fabs(scatter - 1) < (ivar && !model ? 0.1 : 0.04),
                  "noise, variance %d, of the model %d: bias %g, scatter %g", ivar, model, bias, scatter);
            CHECK(ivar && !model ? fabs(counts.background - 7.73 + 1) < 0.2 : rms < 0.15 && most < 0.5,
                  "noise: the background is off by %g, %g at most, its mean %g", rms, most, counts.background);
            spx_frame_free(&f);
        }
    }

    /* hits that nobody has flagged, in the gaps, too */
    o.variance = SPX_VARIANCE_MODEL;
    o.reject = 5;
    expose(&p, (exposure){.factor = 1, .noise = 1, .hits = 300}, &image);
    f = extract(&image, &p, &o, &counts);
    bias = pulls(&f, &scatter);
    rms = off(&p, &f, &most);
    CHECK(fabs(bias) < 0.05 && fabs(scatter - 1) < 0.04 && rms < 0.2 && counts.background_clipped > 0,
          "hits: bias %g, scatter %g; the background is off by %g, %g at most; %zu pixels left out", bias, scatter, rms,
          most, counts.background_clipped);
    spx_frame_free(&f);

    /* with a tail of 14 % of the light, taken off; or within spots alone, and smooth enough for the background */
    expose(&tailed, (exposure){.factor = 1}, &image);
    for (int corrections = 0; corrections <= 2; corrections += 2) {
        o = with_cell(CELL);
        o.tail_corrections = corrections;
        o.tolerance = 1e-4;
        f = extract(&image, &tailed, &o, &counts);
        bias = pulls(&f, &scatter);
        rms = off(&tailed, &f, &most);
        CHECK(corrections == 0 || (fabs(bias) < 0.005 && scatter < 0.02 && rms < 0.04),
              "tails: bias %g, scatter %g, the background is off by %g", bias, scatter, rms);
        CHECK(corrections > 0 || fabs(bias) < 0.2, "tails within spots, and a background: bias %g", bias);
        spx_frame_free(&f);
    }

    /* options that make no sense */
    o = with_cell(20);
    CHECK(spx_extract_trace_cpu(&image, &p, &o, &f, &counts, &e) == SPX_EUSAGE &&
              strstr(spx_err_text(&e), "background"),
          "cells of 20 pixels: %s", spx_err_text(&e));
    o = with_cell(CELL);
    o.method = SPX_METHOD_PATCH;
    CHECK(spx_extract_patch_cpu(&image, &p, &o, &f, &counts, &e) == SPX_EUSAGE &&
              strstr(spx_err_text(&e), "background"),
          "patches: %s", spx_err_text(&e));
    spx_image_free(&image);
    spx_psf_free(&p);
    spx_psf_free(&tailed);
    return failures != 0;
}
