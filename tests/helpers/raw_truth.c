/* raw_truth IMAGE TRUTH EXPTIME MEAN SD: what specx-preproc made of a raw exposure, against the electrons that were put
 * in (specx-sim --raw --truth). EXPTIME: seconds of dark current that were not subtracted. Pixels that are not masked:
 *
 *     faint N MEAN SD          (data - truth)/error of pixels with less than 20 electrons of light
 *     bright N MEAN SD         the same above 200
 *     weights N MEAN SD        bright, with the image's own ivar
 *     masked BAD HOT SATURATED LOWFLAT     pixels with these bits
 *
 * error^2 = truth + readnoise^2, readnoise being the image's. Exit status 1: a mean of faint or bright ones is more
 * than 4 of its own errors and MEAN from 0, or a standard deviation more than 4 of its errors and SD from 1, or a pixel
 * that counts is not finite. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../must.h"
#include "base/mem.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/read.h"
#include "products/image_h5.h"

typedef struct {
    double n, sum, sum2;
} moments;

static void add(moments *m, double pull)
{
    m->n++;
    m->sum += pull;
    m->sum2 += pull * pull;
}

static int print(const char *name, const moments *m, double mean, double sd)
{
    const double mu = m->sum / m->n, s = sqrt(m->sum2 / m->n - mu * mu);
    printf("%s %.0f %.4f %.4f\n", name, m->n, mu, s);
    return !(fabs(mu) <= mean + 4 / sqrt(m->n)) || !(fabs(s - 1) <= sd + 4 / sqrt(2 * m->n));
}

int main(int argc, char **argv)
{
    spx_err e = {0};
    spx_input in = {.file = H5I_INVALID_HID}, true_in = {.file = H5I_INVALID_HID};
    spx_image im = {0};
    size_t dims[2] = {0, 0}, count[4] = {0};
    float *light = NULL, *dark = NULL;
    moments faint = {0}, bright = {0}, weights = {0};
    static const uint32_t bit[4] = {SPX_CCD_BAD, SPX_CCD_HOT, SPX_CCD_SATURATED, SPX_CCD_LOWFLAT};
    if (argc != 6) {
        puts("usage: raw_truth IMAGE TRUTH EXPTIME MEAN SD");
        return 1;
    }
    must(spx_input_open(&in, argv[1], &e) == SPX_OK && spx_image_read(in.file, &im, &e) == SPX_OK, &e);
    must(spx_input_open(&true_in, argv[2], &e) == SPX_OK &&
             spx_h5_read_f32(true_in.file, "/truth/electrons", 2, dims, &light, &e) == SPX_OK &&
             spx_h5_read_f32(true_in.file, "/truth/dark", 2, dims, &dark, &e) == SPX_OK,
         &e);
    if (dims[0] != im.ny || dims[1] != im.nx) {
        puts("the image has another size than the truth");
        return 1;
    }
    for (size_t i = 0; i < im.ny * im.nx; i++) {
        for (int k = 0; k < 4; k++)
            count[k] += (im.mask[i] & bit[k]) != 0;
        if (im.mask[i] != 0)
            continue;
        const double truth = light[i] + atof(argv[3]) * dark[i], d = im.data[i] - truth;
        const double pull = d / sqrt(truth + (double)im.readnoise[i] * im.readnoise[i]);
        if (!isfinite(pull) || !(im.ivar[i] > 0)) {
            printf("pixel %zu: data %g, ivar %g, read noise %g\n", i, im.data[i], im.ivar[i], im.readnoise[i]);
            return 1;
        }
        if (light[i] < 20)
            add(&faint, pull);
        if (light[i] > 200) {
            add(&bright, pull);
            add(&weights, d * sqrt(im.ivar[i]));
        }
    }
    int bad = faint.n > 0 && print("faint", &faint, atof(argv[4]), atof(argv[5]));
    bad |= bright.n > 0 && print("bright", &bright, atof(argv[4]), atof(argv[5]));
    (void)(bright.n > 0 && print("weights", &weights, 1, 1));
    printf("masked %zu %zu %zu %zu\n", count[0], count[1], count[2], count[3]);
    spx_image_free(&im);
    spx_free(light);
    spx_free(dark);
    spx_input_close(&in);
    spx_input_close(&true_in);
    return bad || faint.n + bright.n == 0;
}
