/* master_truth MASTER TRUTH GAIN MEAN SD: a master of specx-preproc --combine, of a camera with one amplifier of this
 * gain, against the structure that was put in (specx-sim --raw --truth). Prints the number of pixels with an ivar, mean
 * and standard deviation of (master - truth) sqrt(ivar), the largest, and flagged pixels BAD, HOT, LOWFLAT. Pixels that
 * are flagged do not count. Exit status 1: the mean is more than 4 of its errors and MEAN from 0, the standard
 * deviation more than 4 of its errors and SD from 1, or a pixel more than 8 errors off. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "../must.h"
#include "base/mem.h"
#include "h5/file.h"
#include "h5/read.h"
#include "products/image.h"
#include "products/master_h5.h"

int main(int argc, char **argv)
{
    static const char *const path[SPX_MASTERS] = {"/truth/bias", "/truth/dark", "/truth/pixel_response"};
    spx_err e = {0};
    spx_input in = {.file = H5I_INVALID_HID}, true_in = {.file = H5I_INVALID_HID};
    spx_master m = {0};
    size_t dims[2] = {0, 0}, flagged[3] = {0};
    float *truth = NULL;
    double n = 0, sum = 0, sum2 = 0, worst = 0;
    static const uint32_t bit[3] = {SPX_CCD_BAD, SPX_CCD_HOT, SPX_CCD_LOWFLAT};
    if (argc != 6) {
        puts("usage: master_truth MASTER TRUTH GAIN MEAN SD");
        return 1;
    }
    must(spx_input_open(&in, argv[1], &e) == SPX_OK && spx_master_read(in.file, &m, &e) == SPX_OK, &e);
    must(spx_input_open(&true_in, argv[2], &e) == SPX_OK &&
             spx_h5_read_f32(true_in.file, path[m.kind], 2, dims, &truth, &e) == SPX_OK,
         &e);
    if (dims[0] != m.ny || dims[1] != m.nx) {
        puts("the master has another size than the truth");
        return 1;
    }
    for (size_t i = 0; i < m.ny * m.nx; i++) {
        for (int k = 0; k < 3; k++)
            flagged[k] += (m.mask[i] & bit[k]) != 0;
        if (m.mask[i] != 0 || !(m.ivar[i] > 0))
            continue;
        const double pull = (m.data[i] - truth[i] * (m.kind == SPX_MASTER_BIAS ? atof(argv[3]) : 1)) * sqrt(m.ivar[i]);
        n++;
        sum += pull;
        sum2 += pull * pull;
        worst = fmax(worst, fabs(pull));
    }
    const double mean = sum / n, sd = sqrt(sum2 / n - mean * mean);
    printf("%.0f pixels: mean %.4f sd %.4f worst %.1f, flagged %zu %zu %zu\n", n, mean, sd, worst, flagged[0],
           flagged[1], flagged[2]);
    spx_master_free(&m);
    spx_free(truth);
    spx_input_close(&in);
    spx_input_close(&true_in);
    return !(fabs(mean) <= atof(argv[4]) + 4 / sqrt(n)) || !(fabs(sd - 1) <= atof(argv[5]) + 4 / sqrt(2 * n)) ||
           worst > 8;
}
