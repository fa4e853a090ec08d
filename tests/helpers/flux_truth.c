/* flux_truth FRAME CALIBRATED TRUTH: compares the response that specx-flux found with what was put into a simulation.
 *
 * Both are seen through the resolution of spectrum 0 of FRAME, which is not calibrated, and normalised by the median of
 * their ratio. The truth, electrons per photon times transmission times the wavelength (of a photon's energy), is
 * brought to the bins by Lagrange-8 sharing. Bins below a tenth of the largest response are left out, and 8 at either
 * end. Prints, off telluric bands and within: rms error in per cent, median of the pull, 1.4826 times its median
 * deviation. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "calib/resolution.h"
#include "calib/series.h"
#include "flux/flux.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/read.h"
#include "num/stat.h"
#include "products/flux_h5.h"
#include "products/frame_h5.h"

static void need(spx_status st, const spx_err *e)
{
    if (st != SPX_OK) {
        fprintf(stderr, "flux_truth: %s: %s\n", e->file, e->text);
        exit(1);
    }
}

static double *array(size_t n)
{
    spx_err e = {0};
    double *p = spx_alloc(n, sizeof *p, &e);
    need(p != NULL ? SPX_OK : SPX_EIO, &e);
    return p;
}

static void open_file(spx_input *in, const char *name)
{
    spx_err e = {0};
    need(spx_input_open(in, name, &e), &e);
}

/* Median of v[n] and 1.4826 times the median deviation. */
static void robust(size_t n, const double *v, double *median, double *scatter)
{
    double *copy = array(n);
    memcpy(copy, v, n * sizeof *v);
    *median = spx_median(copy, n);
    for (size_t k = 0; k < n; k++)
        copy[k] = fabs(v[k] - *median);
    *scatter = 1.4826 * spx_median(copy, n);
    spx_free(copy);
}

int main(int argc, char **argv)
{
    spx_input file;
    spx_frame frame;
    spx_flux flux;
    spx_err e = {0};
    size_t nfine = 0;
    double *fine, *response, *transmission = NULL;
    if (argc != 4)
        return 2;
    open_file(&file, argv[1]);
    need(spx_frame_read(file.file, &frame, &e), &e);
    spx_input_close(&file);
    open_file(&file, argv[2]);
    need(spx_flux_read(file.file, &flux, &e), &e);
    spx_input_close(&file);
    open_file(&file, argv[3]);
    need(spx_h5_read_f64(file.file, "/truth/wavelength", 1, &nfine, &fine, &e), &e);
    need(spx_h5_read_f64(file.file, "/truth/response", 1, &nfine, &response, &e), &e);
    if (spx_h5_exists(file.file, "/truth/transmission"))
        need(spx_h5_read_f64(file.file, "/truth/transmission", 1, &nfine, &transmission, &e), &e);
    spx_input_close(&file);

    const size_t n = flux.nwave, ndiag = frame.arm.ndiag;
    const double *w = flux.wavelength, step = (w[n - 1] - w[0]) / (double)(n - 1);
    double *truth = array(n), *c = array(n), *t = array(n), *v = array(n), *ratio = array(n), most = 0;
    for (size_t i = 1; i + 1 < nfine; i++) {
        const double at = (fine[i] - w[0]) / step, width = (fine[i + 1] - fine[i - 1]) / 2 / step;
        double share[8];
        if (!(at >= 4 && at < (double)n - 5))
            continue;
        const size_t first = (size_t)at - 3;
        spx_lagrange8(at - (double)first, share);
        for (size_t k = 0; k < 8; k++)
            truth[first + k] += share[k] * width * fine[i] * response[i] * (transmission != NULL ? transmission[i] : 1);
    }
    spx_resolution_apply(n, ndiag, frame.arm.resolution, flux.response, c);
    spx_resolution_apply(n, ndiag, frame.arm.resolution, truth, t);
    spx_resolution_variance(n, ndiag, frame.arm.resolution, flux.covariance, v);
    for (size_t k = 0; k < n; k++)
        most = t[k] > most ? t[k] : most;
    size_t count = 0;
    for (size_t k = 12; k + 12 < n; k++)
        if (t[k] > 0.1 * most)
            ratio[count++] = c[k] / t[k];
    const double norm = spx_median(ratio, count);
    for (int in = 0; in < 2; in++) {
        double square = 0, median, scatter, *pull = array(n);
        size_t m = 0;
        for (size_t k = 12; k + 12 < n; k++) {
            int telluric = 0;
            for (size_t b = 0; b < flux.nband; b++)
                telluric |= w[k] >= flux.band[2 * b] && w[k] <= flux.band[2 * b + 1];
            if (telluric != in || !(t[k] > 0.1 * most))
                continue;
            const double x = c[k] / t[k] / norm - 1;
            square += x * x;
            pull[m++] = x / sqrt(v[k] / (c[k] * c[k]) + flux.model_error[k] * flux.model_error[k]);
        }
        robust(m, pull, &median, &scatter);
        if (m > 0)
            printf("%s %.3f %.2f %.2f\n", in ? "in" : "off", 100 * sqrt(square / (double)m), median, scatter);
        spx_free(pull);
    }
    spx_free(fine);
    spx_free(response);
    spx_free(transmission);
    spx_free(truth);
    spx_free(c);
    spx_free(t);
    spx_free(v);
    spx_free(ratio);
    spx_flux_free(&flux);
    spx_frame_free(&frame);
    return 0;
}
