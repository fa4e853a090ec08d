/* flux_truth FRAME CALIBRATED TRUTH: compares the response that specx-flux found with what was put into a simulation.
 *
 * Both are seen through the resolution of spectrum 0 of FRAME, which is not calibrated, and normalised by the median of
 * their ratio. The truth, electrons per photon times transmission times the wavelength (of a photon's energy), is
 * brought to the bins by Lagrange-8 sharing. Bins below a tenth of the largest response are left out, and 8 at either
 * end. Prints, off telluric bands and within: rms error in per cent, median of the pull, 1.4826 times its median
 * deviation. Then "matrix WHERE CHANGED UNCHANGED WORST": rms difference, at S/N 20 in each bin, between the spectra T
 * of the truth's stars as calibrated spectra show them, R (C T) / (R C), and as the resolution matrix of CALIBRATED and
 * that of FRAME give them; and the largest of the latter. */
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

/* Adds values v[nfine] at wavelengths fine[] to bins w[n]: Lagrange-8 shares, per Angstrom. */
static void share(size_t nfine, const double *fine, const double *v, size_t n, const double *w, double *to)
{
    const double step = (w[n - 1] - w[0]) / (double)(n - 1);
    for (size_t i = 1; i + 1 < nfine; i++) {
        const double at = (fine[i] - w[0]) / step, width = (fine[i + 1] - fine[i - 1]) / 2 / step;
        double part[8];
        if (!(at >= 4 && at < (double)n - 5))
            continue;
        const size_t first = (size_t)at - 3;
        spx_lagrange8(at - (double)first, part);
        for (size_t k = 0; k < 8; k++)
            to[first + k] += part[k] * width * v[i];
    }
}

/* In a telluric band. */
static int telluric(const spx_flux *flux, double w)
{
    int in = 0;
    for (size_t b = 0; b < flux->nband; b++)
        in |= w >= flux->band[2 * b] && w <= flux->band[2 * b + 1];
    return in;
}

/* Calibrated resolution matrices against R (C T) / (R C); star[nspec][nfine] at fine[]. */
static void compare_matrices(const spx_frame *before, const spx_frame *after, const spx_flux *flux, size_t nfine,
                             const double *fine, const double *star)
{
    enum { SNR = 20 };
    const size_t n = flux->nwave, ndiag = before->arm.ndiag;
    double *t = array(n), *ct = array(n), *seen = array(n), *c = array(n), *by[2] = {array(n), array(n)};
    double square[2][2] = {{0}}, worst[2] = {0}, m[2] = {0};
    for (size_t i = 0; i < before->nspec; i++) {
        const double *r = before->arm.resolution + i * ndiag * n, *own = after->arm.resolution + i * ndiag * n;
        memset(t, 0, n * sizeof *t);
        share(nfine, fine, star + i * nfine, n, flux->wavelength, t);
        for (size_t k = 0; k < n; k++)
            ct[k] = flux->response[k] * t[k];
        spx_resolution_apply(n, ndiag, r, ct, seen);
        spx_resolution_apply(n, ndiag, r, flux->response, c);
        spx_resolution_apply(n, ndiag, own, t, by[0]);
        spx_resolution_apply(n, ndiag, r, t, by[1]);
        for (size_t k = 12; k + 12 < n; k++) {
            const int in = telluric(flux, flux->wavelength[k]);
            if (!(seen[k] > 0 && after->arm.ivar[i * n + k] > 0)) /* no star, or not calibrated */
                continue;
            for (int q = 0; q < 2; q++) {
                const double off = SNR * (by[q][k] * c[k] / seen[k] - 1);
                square[in][q] += off * off;
                worst[in] = q == 1 ? fmax(worst[in], fabs(off)) : worst[in];
            }
            m[in]++;
        }
    }
    for (int in = 0; in < 2; in++)
        if (m[in] > 0)
            printf("matrix %s %.5f %.5f %.3f\n", in ? "in" : "off", sqrt(square[in][0] / m[in]),
                   sqrt(square[in][1] / m[in]), worst[in]);
    spx_free(t);
    spx_free(ct);
    spx_free(seen);
    spx_free(c);
    spx_free(by[0]);
    spx_free(by[1]);
}

int main(int argc, char **argv)
{
    spx_input file;
    spx_frame frame, calibrated;
    spx_flux flux;
    spx_err e = {0};
    size_t nfine = 0;
    size_t of_star[2] = {0, 0};
    double *fine, *response, *transmission = NULL, *star;
    if (argc != 4)
        return 2;
    open_file(&file, argv[1]);
    need(spx_frame_read(file.file, &frame, &e), &e);
    spx_input_close(&file);
    open_file(&file, argv[2]);
    need(spx_flux_read(file.file, &flux, &e), &e);
    need(spx_frame_read(file.file, &calibrated, &e), &e);
    spx_input_close(&file);
    open_file(&file, argv[3]);
    need(spx_h5_read_f64(file.file, "/truth/wavelength", 1, &nfine, &fine, &e), &e);
    need(spx_h5_read_f64(file.file, "/truth/response", 1, &nfine, &response, &e), &e);
    if (spx_h5_exists(file.file, "/truth/transmission"))
        need(spx_h5_read_f64(file.file, "/truth/transmission", 1, &nfine, &transmission, &e), &e);
    of_star[0] = frame.nspec;
    of_star[1] = nfine;
    need(spx_h5_read_f64(file.file, "/truth/flux", 2, of_star, &star, &e), &e);
    spx_input_close(&file);

    const size_t n = flux.nwave, ndiag = frame.arm.ndiag;
    const double *w = flux.wavelength;
    double *truth = array(n), *c = array(n), *t = array(n), *v = array(n), *ratio = array(n), most = 0;
    for (size_t i = 0; i < nfine; i++)
        response[i] *= fine[i] * (transmission != NULL ? transmission[i] : 1);
    share(nfine, fine, response, n, w, truth);
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
        double square = 0, pull2 = 0, whole2 = 0, median, scatter, *pull = array(n);
        size_t m = 0;
        for (size_t k = 12; k + 12 < n; k++) {
            if (telluric(&flux, w[k]) != in || !(t[k] > 0.1 * most))
                continue;
            const double x = c[k] / t[k] / norm - 1;
            square += x * x;
            const double variance = v[k] / (c[k] * c[k]) + flux.model_error[k] * flux.model_error[k];
            pull[m++] = x / sqrt(variance);
            pull2 += x * x / variance;
            whole2 += x * x / (variance + flux.floor * flux.floor);
        }
        robust(m, pull, &median, &scatter);
        if (m > 0)
            printf("%s %.3f %.2f %.2f %.2f %.2f\n", in ? "in" : "off", 100 * sqrt(square / (double)m), median, scatter,
                   sqrt(pull2 / (double)m), sqrt(whole2 / (double)m));
        spx_free(pull);
    }
    compare_matrices(&frame, &calibrated, &flux, nfine, fine, star);
    spx_free(star);
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
    spx_frame_free(&calibrated);
    return 0;
}
