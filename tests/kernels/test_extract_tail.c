/* Extraction with a PSF that has a tail: neighbours of a fibre that is a thousand times brighter, against the truth of
 * a simulation, whose tails are drawn from the same parameters and from others; independence of threads and of the
 * fibres that are wanted; the model image; cosmic-ray hits; patches. Light has no noise: differences from the truth in
 * units of the error are biases alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "extract/extract.h"
#include "num/stat.h"
#include "products/psf_index.h"
#include "sim/sim.h"

enum { NFIBRE = 12, BRIGHT = 6, BUNDLE = 9 }; /* fibres 0 to 8 and 9 to 11 */

static const double faint = 30, ratio = 1000, first = 6000, last = 6150;

static void camera(double amplitude, double index, spx_psf *p)
{
    spx_err e = {0};
    spx_sim_camera c = spx_sim_camera_defaults();
    c.tail = amplitude;
    c.tail_index = index;
    CHECK(spx_sim_psf_camera(&c, 'r', NFIBRE, first, last, p, &e) == SPX_OK, "%s", spx_err_text(&e));
}

/* An exposure without noise, whose ivar is that of 3 electrons of read noise and the photons. */
static void expose(const spx_psf *p, spx_image *image)
{
    enum { MOST = 700 };
    spx_err e = {0};
    const double step = 0.4;
    const size_t n = (size_t)((last - first + 100) / step);
    double wave[MOST], *flux = spx_alloc2(NFIBRE, n, sizeof *flux, NULL);
    double *model = spx_alloc2(p->npix_y, p->npix_x, sizeof *model, NULL);
    spx_sim_grid(first - 50, step, n, wave);
    for (size_t i = 0; i < NFIBRE * n; i++)
        flux[i] = i / n == BRIGHT ? ratio * faint : faint;
    CHECK(spx_sim_project(p, NFIBRE, NULL, n, wave, flux, p->npix_y, p->npix_x, model, NULL, &e) == SPX_OK, "%s",
          spx_err_text(&e));
    const spx_sim_noise noise = {.seed = 1, .camera = 'r', .readnoise = 3, .fullwell = 1e9};
    CHECK(spx_sim_expose(p->npix_y, p->npix_x, model, &noise, image, &e) == SPX_OK, "%s", spx_err_text(&e));
    spx_free(flux);
    spx_free(model);
}

static spx_extract_options options(int corrections)
{
    spx_extract_options o = spx_extract_trace_defaults();
    o.nspec = NFIBRE;
    o.bundle_size = BUNDLE;
    o.wmin = first + 5;
    o.wmax = last - 5;
    o.dw = 0.8;
    o.tail_corrections = corrections;
    o.nthreads = 2;
    return o;
}

static spx_frame extract(const spx_image *image, const spx_psf *p, const spx_extract_options *o,
                         spx_extract_counts *counts)
{
    spx_frame f = {0};
    spx_err e = {0};
    CHECK(spx_extract_trace_cpu(image, p, o, &f, counts, &e) == SPX_OK, "%s", spx_err_text(&e));
    return f;
}

/* Median of (flux - truth)/error of a fibre. */
static double bias(const spx_frame *f, size_t fibre)
{
    double v[400];
    const size_t n = f->arm.nwave;
    for (size_t k = 0; k < n; k++)
        v[k] =
            (f->arm.flux[fibre * n + k] - (fibre == BRIGHT ? ratio * faint : faint)) * sqrt(f->arm.ivar[fibre * n + k]);
    return spx_median(v, n);
}

/* Largest bias of the fibres beside the bright one. */
static double worst_bias(const spx_frame *f)
{
    double worst = 0;
    for (size_t i = 0; i < NFIBRE; i++)
        worst = i != BRIGHT ? fmax(worst, fabs(bias(f, i))) : worst;
    return worst;
}

static int same(const spx_frame *a, size_t from, const spx_frame *b)
{
    const size_t n = b->nspec * b->arm.nwave, at = from * b->arm.nwave;
    return memcmp(a->arm.flux + at, b->arm.flux, n * sizeof(double)) == 0 &&
           memcmp(a->arm.ivar + at, b->arm.ivar, n * sizeof(double)) == 0 &&
           memcmp(a->arm.resolution + at * b->arm.ndiag, b->arm.resolution, n * b->arm.ndiag * sizeof(double)) == 0;
}

/* Rms of model and image, which has no noise, in errors of a pixel. */
static double model_rms(const spx_image *image, const spx_frame *f)
{
    double rms = 0;
    const size_t margin = 160; /* rows beyond the wanted wavelengths */
    for (size_t y = margin; y + margin < image->ny; y++)
        for (size_t x = 0; x < image->nx; x++) {
            const size_t i = y * image->nx + x;
            const double chi = ((double)f->model[i] - (double)image->data[i]) * sqrt((double)image->ivar[i]);
            rms += chi * chi / (double)((image->ny - 2 * margin) * image->nx);
        }
    return sqrt(rms);
}

int main(void)
{
    spx_psf p, steeper;
    spx_image image = {0}, foreign = {0};
    spx_extract_counts counts;
    camera(0.0071, 2.2, &p);
    expose(&p, &image);
    spx_extract_options o = options(0);
    o.tolerance = 1e-4;
    o.want_model = 1;
    spx_frame spots = extract(&image, &p, &o, &counts);
    o = options(2);
    o.want_model = 1;
    spx_frame f = extract(&image, &p, &o, &counts);
    CHECK(worst_bias(&spots) > 3, "without corrections the bias is %g sigma only", worst_bias(&spots));
    CHECK(worst_bias(&f) < 0.1 && fabs(bias(&f, BRIGHT)) < 0.1, "bias %g sigma beside the star, %g of the star itself",
          worst_bias(&f), bias(&f, BRIGHT));
    double off = model_rms(&image, &f);
    CHECK(off < 0.05, "the model is off by an rms of %g errors of a pixel", off);
    off = model_rms(&image, &spots);
    CHECK(off > 0.5, "the model of spots alone is off by an rms of %g errors of a pixel only", off);

    o.nthreads = 1;
    spx_frame again = extract(&image, &p, &o, &counts);
    CHECK(same(&f, 0, &again), "one thread and two");
    spx_frame_free(&again);
    o.first = 2;
    o.nspec = 3;
    again = extract(&image, &p, &o, &counts);
    CHECK(same(&f, 2, &again), "three fibres alone, the bright one not among them");
    spx_frame_free(&again);

    /* taken off before: spots with what they have within their pixels are left, whatever the number of threads */
    spx_err e = {0};
    spx_image taken = {0}, alone = {0};
    expose(&p, &taken);
    expose(&p, &alone);
    o = options(2);
    CHECK(spx_extract_take_tails(&taken, &p, &o, &e) == SPX_OK, "%s", spx_err_text(&e));
    o.nthreads = 1;
    CHECK(spx_extract_take_tails(&alone, &p, &o, &e) == SPX_OK, "%s", spx_err_text(&e));
    const size_t bytes = image.ny * image.nx * sizeof *image.data;
    CHECK(memcmp(taken.data, alone.data, bytes) == 0, "tails taken off with one thread and two");
    o = options(0);
    o.tolerance = 1e-4;
    again = extract(&taken, &p, &o, &counts);
    CHECK(worst_bias(&again) < 0.1 && fabs(bias(&again, BRIGHT)) < 0.1,
          "tails taken off: bias %g sigma beside the star, %g of the star itself", worst_bias(&again),
          bias(&again, BRIGHT));
    spx_frame_free(&again);
    memcpy(taken.data, image.data, bytes);
    CHECK(spx_extract_take_tails(&taken, &p, &o, &e) == SPX_OK && memcmp(taken.data, image.data, bytes) == 0,
          "no corrections, and tails are taken off");
    spx_psf bare = p;
    spx_psf_drop_tail(&bare);
    o = options(2);
    CHECK(spx_extract_take_tails(&taken, &bare, &o, &e) == SPX_OK && memcmp(taken.data, image.data, bytes) == 0,
          "no tails, and something is taken off");
    spx_image_free(&taken);
    spx_image_free(&alone);

    /* tails are no hits, although they are brighter than the threshold */
    o = options(2);
    o.reject = 5;
    o.variance = SPX_VARIANCE_MODEL;
    again = extract(&image, &p, &o, &counts);
    CHECK(worst_bias(&again) < 0.1 && counts.npix_rejected == 0,
          "with the model's variance: bias %g sigma, %zu pixels rejected", worst_bias(&again), counts.npix_rejected);
    spx_frame_free(&again);

    /* tails of another index than the PSF says, of the same light 8 pixels away */
    camera(0.0071 * pow(8, 0.4), 2.6, &steeper);
    expose(&steeper, &foreign);
    o = options(0);
    o.tolerance = 1e-4;
    spx_frame near = extract(&foreign, &p, &o, &counts);
    o = options(2);
    again = extract(&foreign, &p, &o, &counts);
    CHECK(worst_bias(&again) < 0.5 * worst_bias(&near), "foreign tails: bias %g sigma, without corrections %g",
          worst_bias(&again), worst_bias(&near));
    spx_frame_free(&again);
    spx_frame_free(&near);

    o.method = SPX_METHOD_PATCH;
    again = (spx_frame){0};
    CHECK(spx_extract_patch_cpu(&image, &p, &o, &again, &counts, &e) == SPX_EUSAGE && strstr(spx_err_text(&e), "tail"),
          "patches: %s", spx_err_text(&e));
    spx_frame_free(&again);
    spx_frame_free(&f);
    spx_frame_free(&spots);
    spx_image_free(&image);
    spx_image_free(&foreign);
    spx_psf_free(&p);
    spx_psf_free(&steeper);
    return failures != 0;
}
