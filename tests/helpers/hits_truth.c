/* hits_truth HIT CLEAN TRUTH FLAGGED PLAIN REJECTED: cosmic rays that specx-extract found, against those of a
 * simulation. HIT, CLEAN: images with hits that nothing flags, and the same without. FLAGGED, PLAIN, REJECTED: frames
 * of it with the hits flagged in the image, with none, and with none but what --reject finds (list of pixels
 * /frame/cosmic_pixels). Pixels within 2.5 of a trace count; a pixel is hit where the images differ. Lines of text:
 *
 *     found LOW HIGH N PART      hit pixels of LOW to HIGH errors, and the part that was found, per cent
 *     false N ALL FAR            pixels without a hit that were masked, of how many, and those 4 pixels off any hit
 *     bins N PLAIN REJECTED FLAGGED   bins that were hit, and in each frame those more than 5 errors from R truth
 *     pulls PLAIN REJECTED FLAGGED    medians of the pulls of the bins that were hit */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/at_centres.h"
#include "../must.h"
#include "base/mem.h"
#include "calib/resolution.h"
#include "h5/file.h"
#include "h5/read.h"
#include "num/stat.h"
#include "products/frame_h5.h"
#include "products/psf_h5.h"
#include "psf/psf_math.h"

static spx_err e;

typedef struct {
    size_t nx, ny;
    double *data, *ivar;
} image;

static image read_image(const char *name, spx_psf *psf)
{
    spx_input in = {.file = H5I_INVALID_HID};
    size_t d[2] = {0, 0};
    image im = {0};
    must(spx_input_open(&in, name, &e) == SPX_OK &&
             spx_h5_read_f64(in.file, "/image/data", 2, d, &im.data, &e) == SPX_OK &&
             spx_h5_read_f64(in.file, "/image/ivar", 2, d, &im.ivar, &e) == SPX_OK,
         &e);
    must(psf == NULL || spx_psf_read(in.file, psf, &e) == SPX_OK, &e);
    spx_input_close(&in);
    im.ny = d[0];
    im.nx = d[1];
    return im;
}

static spx_frame read_frame(const char *name)
{
    spx_input in = {.file = H5I_INVALID_HID};
    spx_frame f = {0};
    must(spx_input_open(&in, name, &e) == SPX_OK && spx_frame_read(in.file, &f, &e) == SPX_OK, &e);
    spx_input_close(&in);
    return f;
}

/* 1 for pixels within 2.5 of a trace at the frame's wavelengths. */
static uint8_t *on_traces(const image *im, const spx_psf *psf, const spx_frame *f)
{
    uint8_t *on = must_have(spx_alloc2(im->ny, im->nx, 1, &e));
    const double first = f->arm.wavelength[0], last = f->arm.wavelength[f->arm.nwave - 1];
    for (size_t i = 0; i < f->nspec; i++)
        for (double w = first; w <= last; w += 0.2) {
            const size_t fibre = (size_t)f->fiber[i];
            const double y = spx_psf_series_value(&psf->y, fibre, w), x = spx_psf_series_value(&psf->x, fibre, w);
            for (double at = ceil(x - 2.5); at <= x + 2.5; at++)
                if (y > 0 && y + 0.5 < (double)im->ny && at >= 0 && at < (double)im->nx)
                    on[(size_t)(y + 0.5) * im->nx + (size_t)at] = 1;
        }
    return on;
}

/* 1 when a hit lies within 3 pixels. */
static int near(const image *im, const double *hit, size_t at)
{
    const long y = (long)(at / im->nx), x = (long)(at % im->nx);
    for (long j = y - 3; j <= y + 3; j++)
        for (long i = x - 3; i <= x + 3; i++)
            if (j >= 0 && j < (long)im->ny && i >= 0 && i < (long)im->nx && hit[(size_t)j * im->nx + (size_t)i] != 0)
                return 1;
    return 0;
}

static void print_pixels(const image *im, const double *hit, const uint8_t *on, const uint8_t *found)
{
    static const double edge[] = {5, 10, 20, 1e9};
    size_t n[3] = {0}, of[3] = {0}, wrong = 0, far = 0, all = 0;
    for (size_t k = 0; k < im->nx * im->ny; k++) {
        if (!on[k] || !(im->ivar[k] > 0))
            continue;
        all += hit[k] == 0;
        if (hit[k] == 0 && found[k]) {
            wrong++;
            far += !near(im, hit, k);
        }
        for (int c = 0; c < 3; c++)
            if (hit[k] >= edge[c] && hit[k] < edge[c + 1]) {
                of[c]++;
                n[c] += found[k];
            }
    }
    for (int c = 0; c < 3; c++)
        printf("found %g %g %zu %.1f\n", edge[c], edge[c + 1], of[c],
               of[c] > 0 ? 100 * (double)n[c] / (double)of[c] : 0);
    printf("false %zu %zu %zu\n", wrong, all, far);
}

/* Pull of bin k of spectrum i, whose truth at the bins is want[n] before R. */
static void pulls_of(const spx_frame *f, size_t i, const double *truth, double *image_of, double *pull)
{
    const size_t n = f->arm.nwave;
    spx_resolution_apply(n, f->arm.ndiag, f->arm.resolution + i * f->arm.ndiag * n, truth, image_of);
    for (size_t k = 0; k < n; k++)
        pull[k] = (f->arm.flux[i * n + k] - image_of[k]) * sqrt(f->arm.ivar[i * n + k]);
}

static void print_bins(const spx_frame frame[3], const char *truth)
{
    spx_input in = {.file = H5I_INVALID_HID};
    size_t d[2] = {0, 0}, nfine = 0, bins = 0, off[3] = {0};
    double *fine = NULL, *flux = NULL;
    const size_t n = frame[0].arm.nwave, ndiag = frame[0].arm.ndiag;
    must(spx_input_open(&in, truth, &e) == SPX_OK &&
             spx_h5_read_f64(in.file, "/truth/wavelength", 1, &nfine, &fine, &e) == SPX_OK,
         &e);
    d[1] = nfine;
    must(spx_h5_read_f64(in.file, "/truth/flux", 2, d, &flux, &e) == SPX_OK, &e);
    spx_input_close(&in);
    double *work = must_have(spx_alloc2(3, n, sizeof *work, &e));
    double *pull = must_have(spx_alloc2(3, frame[0].nspec * n, sizeof *pull, &e));
    const double step = (frame[0].arm.wavelength[n - 1] - frame[0].arm.wavelength[0]) / (double)(n - 1);
    for (size_t i = 0; i < frame[0].nspec; i++) {
        at_centres(nfine, fine, flux + (size_t)frame[0].fiber[i] * nfine, frame[0].arm.wavelength[0], step, n, work);
        for (int q = 0; q < 3; q++) {
            size_t m = bins;
            pulls_of(&frame[q], i, work, work + n, work + 2 * n);
            for (size_t k = ndiag; k + ndiag < n; k++)
                if (frame[0].pixmask_fraction[i * n + k] > 1e-9 && frame[0].arm.ivar[i * n + k] > 0) {
                    off[q] += fabs(work[2 * n + k]) > 5;
                    pull[(size_t)q * frame[0].nspec * n + m++] = work[2 * n + k];
                }
            if (q == 2)
                bins = m;
        }
    }
    printf("bins %zu %zu %zu %zu\npulls", bins, off[1], off[2], off[0]);
    for (int q = 0; q < 3; q++)
        printf(" %+.3f", spx_median(pull + (size_t)((q + 1) % 3) * frame[0].nspec * n, bins));
    puts("");
    spx_free(fine);
    spx_free(flux);
    spx_free(work);
    spx_free(pull);
}

int main(int argc, char **argv)
{
    spx_psf psf = {0};
    if (argc != 7) {
        puts("usage: hits_truth HIT CLEAN TRUTH FLAGGED PLAIN REJECTED");
        return 2;
    }
    image im = read_image(argv[1], &psf), clean = read_image(argv[2], NULL);
    spx_frame frame[3];
    for (int q = 0; q < 3; q++)
        frame[q] = read_frame(argv[4 + q]);
    must(im.nx == clean.nx && im.ny == clean.ny, &e);
    double *hit = must_have(spx_alloc2(im.ny, im.nx, sizeof *hit, &e));
    uint8_t *found = must_have(spx_alloc2(im.ny, im.nx, 1, &e)), *on = on_traces(&im, &psf, &frame[2]);
    for (size_t k = 0; k < im.nx * im.ny; k++)
        hit[k] = im.data[k] != clean.data[k] ? (im.data[k] - clean.data[k]) * sqrt(clean.ivar[k]) : 0;
    for (size_t k = 0; k < frame[2].ncosmic; k++)
        found[(size_t)frame[2].cosmic_pixels[2 * k] * im.nx + (size_t)frame[2].cosmic_pixels[2 * k + 1]] = 1;
    print_pixels(&im, hit, on, found);
    print_bins(frame, argv[3]);
    for (int q = 0; q < 3; q++)
        spx_frame_free(&frame[q]);
    spx_free(im.data);
    spx_free(im.ivar);
    spx_free(clean.data);
    spx_free(clean.ivar);
    spx_free(hit);
    spx_free(found);
    spx_free(on);
    spx_psf_free(&psf);
    return 0;
}
