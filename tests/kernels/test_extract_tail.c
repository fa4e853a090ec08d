/* Extraction with a PSF that has a tail: neighbours of a fibre that is a thousand times brighter, against the truth of
 * a simulation, whose tails are drawn from the same parameters and from others; independence of threads and of the
 * fibres that are wanted; the model image; cosmic-ray hits; patches; tails by their definition. Light has no noise:
 * differences from the truth in units of the error are biases alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "extract/extract.h"
#include "extract_bright.h"
#include "num/stat.h"
#include "products/psf_index.h"
#include "psf/spot_math.h"
#include "psf/tail.h"
#include "sim/sim.h"

enum { BUNDLE = 9 }; /* fibres 0 to 8 and 9 to 11 */

static const scene lit = {.first = 6000, .last = 6150, .beyond = 50, .faint = 30, .ratio = 1000};

/* An exposure without noise, whose ivar is that of 3 electrons of read noise and the photons. */
static void expose(const spx_psf *p, double *model, spx_image *image)
{
    spx_err e = {0};
    const spx_sim_noise noise = {.seed = 1, .camera = 'r', .readnoise = 3, .fullwell = 1e9};
    CHECK(spx_sim_expose(p->npix_y, p->npix_x, model, &noise, image, &e) == SPX_OK, "%s", spx_err_text(&e));
    spx_free(model);
}

/* Median of (flux - truth)/error of a fibre. */
static double bias(const spx_frame *f, size_t fibre)
{
    double v[400];
    const size_t n = f->arm.nwave;
    for (size_t k = 0; k < n; k++)
        v[k] = (f->arm.flux[fibre * n + k] - truth(&lit, fibre)) * sqrt(f->arm.ivar[fibre * n + k]);
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

/* Tails by their definition, pixel by pixel, of flat spectra with lines as bright as a hundred times the faint ones,
 * all of whose light is extracted: fluxes against the truth, without noise. */
static void check_direct(void)
{
    enum { LINES = 17, MOST = 200 };
    const scene s = {.first = 6000, .last = 6060, .beyond = 19, .faint = 30, .ratio = 1000};
    const double step = 0.8;
    const size_t n = (size_t)((s.last - s.first + 2 * s.beyond) / step);
    spx_err e = {0};
    spx_psf p;
    spx_tail_shape shape;
    spx_image image = {0};
    spx_extract_counts counts;
    camera(&s, 0.0071, 2.2, &p);
    spx_psf bare = p;
    spx_psf_drop_tail(&bare);
    CHECK(spx_tail_shape_of(&p, &shape, &e) == SPX_OK, "%s", spx_err_text(&e));
    double wave[MOST], flux[NFIBRE * MOST], work[40000], spot[6000], core = 0, all = 0;
    double *model = spx_alloc2(p.npix_y, p.npix_x, sizeof *model, NULL);
    spx_sim_grid(s.first - s.beyond, step, n, wave);
    for (size_t i = 0; i < NFIBRE * n; i++)
        flux[i] = truth(&s, i / n) + (i % n % LINES == 0 ? 100 * s.faint : 0);
    CHECK(spx_sim_project(&bare, NFIBRE, NULL, n, wave, flux, p.npix_y, p.npix_x, model, NULL, &e) == SPX_OK, "%s",
          spx_err_text(&e));
    for (size_t i = 0; i < NFIBRE * n; i++) {
        spx_spot at;
        CHECK(spx_psf_spot_place(&p, i / n, wave[i % n], &at) == SPX_SPOT_OK &&
                  spx_psf_spot_scale(&bare, i / n, wave[i % n], work, spot, &core) == SPX_SPOT_OK,
              "spot");
        for (size_t y = 0; y < p.npix_y; y++)
            for (size_t x = 0; x < p.npix_x; x++)
                model[y * p.npix_x + x] +=
                    0.0071 * core * flux[i] * step * spx_tail_value(&shape, (double)x - at.x, (double)y - at.y);
    }
    expose(&p, model, &image);
    spx_extract_options o = options(&s, BUNDLE, 2);
    o.dw = step;
    spx_frame f = extract(&image, &p, &o, &counts);
    const size_t nw = f.arm.nwave, nd = f.arm.ndiag, before = (size_t)lround((s.beyond + 5) / step);
    double v[NFIBRE * MOST];
    for (size_t fibre = 0; fibre < NFIBRE; fibre++) {
        for (size_t k = 0; k < nw; k++) {
            double seen = 0;
            for (size_t d = 0; d < nd; d++) {
                const size_t j = k + nd / 2 - d; /* R[j - off, j], off = nd/2 - d */
                seen += j < nw ? f.arm.resolution[(fibre * nd + d) * nw + j] * flux[fibre * n + before + j] : 0;
            }
            CHECK(spx_psf_spot_scale(&bare, fibre, f.arm.wavelength[k], work, spot, &core) == SPX_SPOT_OK &&
                      spx_psf_spot_scale(&p, fibre, f.arm.wavelength[k], work, spot, &all) == SPX_SPOT_OK,
                  "spot");
            v[fibre * MOST + k] =
                fabs(f.arm.flux[fibre * nw + k] - seen * core / all) * sqrt(f.arm.ivar[fibre * nw + k]);
        }
        /* beside the ends R misses light of bins that are not there */
        double worst = 0;
        for (size_t k = nd; k + nd < nw; k++)
            worst = fmax(worst, v[fibre * MOST + k]);
        const double middle = spx_median(v + fibre * MOST + nd, nw - 2 * nd);
        /* the star has S/N 150 a bin: 0.1 of its errors are 7e-4 of its light */
        CHECK(middle < (fibre == BRIGHT ? 0.15 : 0.08) && worst < 0.3,
              "direct sum of tails, fibre %zu: off by %g sigma, %g at most", fibre, middle, worst);
    }
    spx_frame_free(&f);
    spx_image_free(&image);
    spx_psf_free(&p);
}

int main(void)
{
    spx_psf p, steeper;
    spx_image image = {0}, foreign = {0};
    spx_extract_counts counts;
    camera(&lit, 0.0071, 2.2, &p);
    expose(&p, project(&lit, &p), &image);
    spx_extract_options o = options(&lit, BUNDLE, 0);
    o.tolerance = 1e-4;
    o.want_model = 1;
    spx_frame spots = extract(&image, &p, &o, &counts);
    o = options(&lit, BUNDLE, 2);
    o.want_model = 1;
    spx_frame f = extract(&image, &p, &o, &counts);
    CHECK(worst_bias(&spots) > 3, "without corrections the bias is %g sigma only", worst_bias(&spots));
    CHECK(worst_bias(&f) < 0.1 && fabs(bias(&f, BRIGHT)) < 0.1, "bias %g sigma beside the star, %g of the star itself",
          worst_bias(&f), bias(&f, BRIGHT));
    double off = model_rms(&image, &f);
    CHECK(off < 0.05, "the model is off by an rms of %g errors of a pixel", off);
    off = model_rms(&image, &spots);
    CHECK(off > 0.5, "the model of spots alone is off by an rms of %g errors of a pixel only", off);

    check_same(&image, &p, o, &f);

    /* taken off before: spots with what they have within their pixels are left, whatever the number of threads */
    spx_err e = {0};
    spx_image taken = {0}, alone = {0};
    expose(&p, project(&lit, &p), &taken);
    expose(&p, project(&lit, &p), &alone);
    o = options(&lit, BUNDLE, 2);
    spx_extract_tails *kept = NULL, *other = NULL;
    CHECK(spx_extract_take_tails(&taken, &p, &o, &kept, &e) == SPX_OK, "%s", spx_err_text(&e));
    o.nthreads = 1;
    CHECK(spx_extract_take_tails(&alone, &p, &o, &other, &e) == SPX_OK, "%s", spx_err_text(&e));
    const size_t bytes = image.ny * image.nx * sizeof *image.data;
    CHECK(memcmp(taken.data, alone.data, bytes) == 0, "tails taken off with one thread and two");
    o = options(&lit, BUNDLE, 0);
    o.tolerance = 1e-4;
    spx_frame again = extract(&taken, &p, &o, &counts);
    CHECK(worst_bias(&again) < 0.1 && fabs(bias(&again, BRIGHT)) < 0.1,
          "tails taken off: bias %g sigma beside the star, %g of the star itself", worst_bias(&again),
          bias(&again, BRIGHT));
    spx_frame_free(&again);
    memcpy(taken.data, image.data, bytes);
    CHECK(spx_extract_take_tails(&taken, &p, &o, &kept, &e) == SPX_OK && memcmp(taken.data, image.data, bytes) == 0,
          "no corrections, and tails are taken off");
    spx_psf bare = p;
    spx_psf_drop_tail(&bare);
    o = options(&lit, BUNDLE, 2);
    CHECK(spx_extract_take_tails(&taken, &bare, &o, &kept, &e) == SPX_OK && memcmp(taken.data, image.data, bytes) == 0,
          "no tails, and something is taken off");
    /* with what was kept of the image before, and after that of another PSF */
    camera(&lit, 0.0071 * pow(8, 0.4), 2.6, &steeper);
    for (int round = 0; round < 3; round++) {
        memcpy(taken.data, image.data, bytes);
        CHECK(spx_extract_take_tails(&taken, round == 1 ? &steeper : &p, &o, &kept, &e) == SPX_OK &&
                  (memcmp(taken.data, alone.data, bytes) != 0) == (round == 1),
              "tails taken off with tables of the image before, round %d: %s", round, spx_err_text(&e));
    }
    spx_extract_tails_free(kept);
    spx_extract_tails_free(other);
    spx_image_free(&taken);
    spx_image_free(&alone);

    /* light of wavelengths that are not wanted counts */
    o = options(&lit, BUNDLE, 2);
    o.wmin = 6060;
    o.wmax = 6090;
    again = extract(&image, &p, &o, &counts);
    CHECK(worst_bias(&again) < 0.1, "some wavelengths: bias %g sigma", worst_bias(&again));
    spx_frame_free(&again);

    /* tails are no hits, although they are brighter than the threshold */
    o = options(&lit, BUNDLE, 2);
    o.reject = 5;
    o.variance = SPX_VARIANCE_MODEL;
    again = extract(&image, &p, &o, &counts);
    CHECK(worst_bias(&again) < 0.1 && counts.npix_rejected == 0,
          "with the model's variance: bias %g sigma, %zu pixels rejected", worst_bias(&again), counts.npix_rejected);
    spx_frame_free(&again);

    /* tails of another index than the PSF says, of the same light 8 pixels away */
    expose(&steeper, project(&lit, &steeper), &foreign);
    o = options(&lit, BUNDLE, 0);
    o.tolerance = 1e-4;
    spx_frame near = extract(&foreign, &p, &o, &counts);
    o = options(&lit, BUNDLE, 2);
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
    check_direct();
    return failures != 0;
}
