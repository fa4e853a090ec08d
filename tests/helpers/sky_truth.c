/* sky_truth SFRAME [IMAGE TRUTH [EXACT]]: what specx-sky made of a simulated exposure, against what was put in. Lines
 * of text:
 *
 *     chi2 CLASS N SUM       bins of held-out fibres (class off, on, top of /sky/class) and the sum of flux^2 ivar: all
 *                            of them, none is left out
 *     bare CLASS N SUM       the same with the variance of the spectra alone, without that of the sky
 *     model CLASS ROLE N SUM with EXACT: bins of fibres of a role, and the sum of (model - R s)^2 / variance of the
 *                            model; s: /sky/sky of EXACT, so that it means something where the PSF is right and all
 *                            fibres have the same throughput
 *     pull NAME ROLE VALUE   (value - truth)/error of T, DELTA, the slope of DELTA and KAPPA, of each fibre; NAME t, d,
 *                            d1, k
 *     alone NAME ROLE ERROR VALUE - TRUTH   the same by the fibre's own bins, without the prior of all fibres; where
 *                            the frame was divided by a flat, truth of T has to be that of the rest
 *
 * Scales: throughputs; with EXACT, /sky/parameters of the same fibres without noise, whose scales also have the light
 * that spots beside their traces, or wider than the PSF, lose in the extraction.
 *
 * Shifts: light of wavelength l + delta falls where the PSF of IMAGE has l, so that delta = - dy / (dY/dl), as a
 * Legendre series over the arm, and kappa = ((1 + wy)^2 - 1) (GHSIGY / (dY/dl))^2. Means over sky fibres that were
 * fitted are taken off, as the gauge has it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "calib/resolution.h"
#include "calib/series.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/table.h"
#include "products/frame_h5.h"
#include "products/psf_h5.h"
#include "psf/psf_math.h"
#include "sky/params.h"

enum { ROLE = 9, SAMPLES = 200 };

static spx_err e;

static void must(spx_status st)
{
    if (st != SPX_OK) {
        (void)fprintf(stderr, "sky_truth: %s\n", spx_err_text(&e));
        exit(1);
    }
}

/* Value of a curve v[n] over x[n] at `at`, straight in between. */
static double between(size_t n, const double *x, const double *v, double at)
{
    size_t i = 0;
    while (i + 2 < n && x[i + 1] < at)
        i++;
    return v[i] + (v[i + 1] - v[i]) * (at - x[i]) / (x[i + 1] - x[i]);
}

static const char *const class_name[] = {"off", "on", "top"};

/* bare: without the variance[nspec][nwave] of the sky. */
static void print_chi2(const char *name, const spx_frame *f, const char *role, const uint8_t *class, const double *bare)
{
    for (int c = 0; c < 3; c++) {
        size_t n = 0;
        double sum = 0;
        for (size_t i = 0; i < f->nspec; i++)
            for (size_t k = 0; k < f->arm.nwave; k++) {
                const size_t at = i * f->arm.nwave + k;
                if (strcmp(role + i * ROLE, "HELDOUT") != 0 || !(class[k] >> c & 1) || f->arm.mask[at] != 0 ||
                    !(f->arm.ivar[at] > 0))
                    continue;
                n++;
                sum += f->arm.flux[at] * f->arm.flux[at] / (1 / f->arm.ivar[at] - (bare != NULL ? bare[at] : 0));
            }
        printf("%s %s %zu %.6f\n", name, class_name[c], n, sum);
    }
}

/* Errors of the model in units of what the product says, against the sky s[nwave] through the resolution of each fibre,
 * which a star in it makes another one than in a frame of nothing but sky. */
static void print_model(const spx_frame *f, const char *role, const uint8_t *class, const double *model,
                        const double *variance, const double *s)
{
    static const char *const of[] = {"SKY", "HELDOUT", "TARGET"};
    const size_t nw = f->arm.nwave;
    size_t n[3][3] = {{0}};
    double sum[3][3] = {{0}}, *true_sky = spx_alloc(nw, sizeof *true_sky, &e);
    must(true_sky != NULL ? SPX_OK : SPX_EIO);
    for (size_t i = 0; i < f->nspec; i++) {
        spx_resolution_apply(nw, f->arm.ndiag, f->arm.resolution + i * f->arm.ndiag * nw, s, true_sky);
        for (int c = 0; c < 3; c++)
            for (int r = 0; r < 3; r++)
                for (size_t k = 0; k < nw; k++) {
                    const size_t at = i * nw + k;
                    const double off = model[at] - true_sky[k];
                    if (strcmp(role + i * ROLE, of[r]) != 0 || !(class[k] >> c & 1) || f->arm.mask[at] != 0 ||
                        !(variance[at] > 0))
                        continue;
                    n[c][r]++;
                    sum[c][r] += off * off / variance[at];
                }
    }
    for (int c = 0; c < 3; c++)
        for (int r = 0; r < 3; r++)
            printf("model %s %s %zu %.6f\n", class_name[c], of[r], n[c][r], sum[c][r]);
    spx_free(true_sky);
}

/* /sky/NAME[nspec][nwave]. */
static double *read_bins(const spx_input *in, const char *path, const spx_frame *f)
{
    size_t d[2] = {f->nspec, f->arm.nwave};
    double *v = NULL;
    must(spx_h5_read_f64(in->file, path, 2, d, &v, &e));
    return v;
}

/* Quantities p[nspec][4] and cov[nspec][4][4] of each fibre by its own bins: data and weights as they were before the
 * sky was subtracted, scales of shifts and widths from `found` (with the prior). */
static void measure_alone(const spx_input *in, const spx_frame *f, const char *role, const double *variance,
                          const double *found, double *p, double *cov)
{
    enum { NQ = 4 };
    const size_t nw = f->arm.nwave, size = f->nspec * nw;
    double *sky = NULL, *model = read_bins(in, "/sky/model", f);
    double *c = spx_alloc(size, sizeof *c, &e), *d = spx_alloc(size, sizeof *d, &e),
           *w = spx_alloc(size, sizeof *w, &e);
    double *info = spx_alloc(f->nspec * NQ * NQ, sizeof *info, &e),
           *right = spx_alloc(f->nspec * NQ, sizeof *right, &e);
    double *scale = spx_alloc(f->nspec, sizeof *scale, &e);
    uint8_t *kind = spx_alloc(f->nspec, 1, &e);
    must(c != NULL && d != NULL && w != NULL && info != NULL && right != NULL && scale != NULL && kind != NULL
             ? SPX_OK
             : SPX_EIO);
    must(spx_h5_read_f64(in->file, "/sky/sky", 1, (size_t[]){nw}, &sky, &e));
    for (size_t i = 0; i < f->nspec; i++) {
        kind[i] = strcmp(role + i * ROLE, "SKY") == 0 ? SPX_SKY_ALONE : SPX_SKY_STAR;
        scale[i] = found[i * NQ];
        spx_resolution_apply(nw, f->arm.ndiag, f->arm.resolution + i * f->arm.ndiag * nw, sky, c + i * nw);
    }
    for (size_t at = 0; at < size; at++) {
        const double rest = f->arm.ivar[at] > 0 && f->arm.mask[at] == 0 ? 1 / f->arm.ivar[at] - variance[at] : 0;
        w[at] = rest > 0 ? 1 / rest : 0;
        d[at] = f->arm.flux[at] + model[at];
    }
    spx_sky_fit fit = {.nwave = nw,
                       .first = f->arm.wavelength[0],
                       .step = f->arm.wavelength[1] - f->arm.wavelength[0],
                       .terms = {1, 2, 1},
                       .knots = 25,
                       .rounds = 3,
                       .nthreads = 1};
    must(spx_sky_measure(&fit, f->nspec, c, NULL, d, w, kind, info, right, &e));
    spx_sky_physical(&fit.terms, f->nspec, scale, info, right);
    for (size_t i = 0; i < f->nspec; i++)
        (void)spx_sky_estimate(NQ, info + i * NQ * NQ, right + i * NQ, p + i * NQ, cov + i * NQ * NQ);
    spx_free(sky);
    spx_free(model);
    spx_free(c);
    spx_free(d);
    spx_free(w);
    spx_free(info);
    spx_free(right);
    spx_free(scale);
    spx_free(kind);
}

/* Pulls of column q of the parameters, or with `alone` errors and what values are off. */
static void print_pulls(const char *name, size_t ns, size_t nq, size_t q, const double *p, const double *cov,
                        const double *truth, const char *role, int scaled, int alone)
{
    double mean = 0;
    size_t n = 0;
    for (size_t i = 0; i < ns; i++)
        if (strcmp(role + i * ROLE, "SKY") == 0) {
            mean += truth[i];
            n++;
        }
    mean /= (double)n;
    for (size_t i = 0; i < ns; i++) {
        const double off = p[i * nq + q] - (scaled ? truth[i] / mean : truth[i] - mean);
        const double error = sqrt(cov[(i * nq + q) * nq + q]);
        if (!alone)
            printf("pull %s %s %.6f\n", name, role + i * ROLE, off / error);
        else if (error > 0)
            printf("alone %s %s %.6f %.6f\n", name, role + i * ROLE, error, off);
    }
}

int main(int argc, char **argv)
{
    spx_input s = {0}, im = {0}, t = {0};
    spx_frame f = {0};
    spx_psf psf = {0};
    spx_table *table = NULL;
    uint8_t *class = NULL;
    double *p = NULL, *cov = NULL, *throughput = NULL, *wave = NULL, *y = NULL, *wider = NULL, *exact = NULL;
    if (argc != 2 && argc != 4 && argc != 5)
        return 1;
    must(spx_input_open(&s, argv[1], &e));
    must(spx_frame_read(s.file, &f, &e));
    must(spx_table_read(s.file, "/sky/table", &table, &e));
    size_t dims[3] = {f.arm.nwave, 0, 0};
    must(spx_h5_read_u8(s.file, "/sky/class", 1, dims, &class, &e));
    char *role = spx_alloc(f.nspec, ROLE, &e);
    double *truth = spx_alloc2(4, f.nspec, sizeof *truth, &e);
    if (role == NULL || truth == NULL)
        must(SPX_EIO);
    must(spx_table_get_str(table, "ROLE", ROLE, role, &e));
    size_t of_p[2] = {f.nspec, 0};
    must(spx_h5_read_f64(s.file, "/sky/parameters", 2, of_p, &p, &e));
    size_t of_cov[3] = {f.nspec, of_p[1], of_p[1]};
    must(spx_h5_read_f64(s.file, "/sky/parameter_covariance", 3, of_cov, &cov, &e));
    double *variance = read_bins(&s, "/sky/variance", &f);
    print_chi2("chi2", &f, role, class, NULL);
    print_chi2("bare", &f, role, class, variance);
    if (argc == 2)
        return 0;
    must(spx_input_open(&im, argv[2], &e));
    must(spx_input_open(&t, argv[3], &e));
    must(spx_psf_read(im.file, &psf, &e));
    const double first = f.arm.wavelength[0], last = f.arm.wavelength[f.arm.nwave - 1];
    for (size_t i = 0; i < f.nspec; i++)
        truth[i] = 1;
    if (argc == 5) {
        spx_input x = {0};
        size_t d[2] = {f.nspec, of_p[1]};
        must(spx_input_open(&x, argv[4], &e));
        must(spx_h5_read_f64(x.file, "/sky/parameters", 2, d, &exact, &e));
        for (size_t i = 0; i < f.nspec; i++)
            truth[i] = exact[i * d[1]];
        double *model = read_bins(&s, "/sky/model", &f), *sky = NULL;
        must(spx_h5_read_f64(x.file, "/sky/sky", 1, &f.arm.nwave, &sky, &e));
        print_model(&f, role, class, model, variance, sky);
        spx_free(model);
        spx_free(sky);
        spx_input_close(&x);
    } else if (spx_h5_exists(t.file, "/truth/throughput")) {
        size_t d[2] = {f.nspec, 0};
        must(spx_h5_read_f64(t.file, "/truth/throughput", 2, d, &throughput, &e));
        for (size_t i = 0; i < f.nspec; i++) {
            truth[i] = 0;
            for (size_t k = 0; k < d[1]; k++)
                truth[i] += throughput[i * d[1] + k] / (double)d[1];
        }
    }
    if (spx_h5_exists(t.file, "/truth/shift/y")) {
        size_t n = 0, d[2] = {f.nspec, 0};
        must(spx_h5_read_f64(t.file, "/truth/shift/wavelength", 1, &n, &wave, &e));
        must(spx_h5_read_f64(t.file, "/truth/shift/y", 2, d, &y, &e));
        must(spx_h5_read_f64(t.file, "/truth/shift/wy", 2, d, &wider, &e));
        for (size_t i = 0; i < f.nspec; i++)
            for (size_t k = 0; k < SAMPLES; k++) {
                const double u = ((double)k + 0.5) / SAMPLES * 2 - 1, at = first + 0.5 * (u + 1) * (last - first);
                const double slope =
                    spx_psf_series_value(&psf.y, i, at + 0.5) - spx_psf_series_value(&psf.y, i, at - 0.5);
                const double delta = -between(n, wave, y + i * n, at) / slope;
                truth[f.nspec + i] += delta / SAMPLES;
                truth[2 * f.nspec + i] += 3 * u * delta / SAMPLES;
                const double sigma =
                    spx_legendre_sum(psf.ndeg, psf.coeff + ((size_t)psf.sigy * psf.nspec + i) * psf.ndeg,
                                     spx_psf_param_u(&psf, i, at)) /
                    slope;
                const double more = 1 + between(n, wave, wider + i * n, at);
                truth[3 * f.nspec + i] += (more * more - 1) * sigma * sigma / SAMPLES;
            }
    }
    if (of_p[1] == 4) { /* terms 1,2,1 */
        static const char *const name[] = {"t", "d", "d1", "k"};
        double *own = spx_alloc(f.nspec * 4, sizeof *own, &e), *of_own = spx_alloc(f.nspec * 16, sizeof *of_own, &e);
        must(own != NULL && of_own != NULL ? SPX_OK : SPX_EIO);
        measure_alone(&s, &f, role, variance, p, own, of_own);
        for (size_t q = 0; q < 4; q++) {
            print_pulls(name[q], f.nspec, 4, q, p, cov, truth + q * f.nspec, role, q == 0, 0);
            print_pulls(name[q], f.nspec, 4, q, own, of_own, truth + q * f.nspec, role, q == 0, 1);
        }
        spx_free(own);
        spx_free(of_own);
    }
    spx_free(class);
    spx_free(variance);
    spx_free(p);
    spx_free(cov);
    spx_free(throughput);
    spx_free(wave);
    spx_free(y);
    spx_free(wider);
    spx_free(exact);
    spx_free(role);
    spx_free(truth);
    spx_table_free(table);
    spx_frame_free(&f);
    spx_psf_free(&psf);
    spx_input_close(&s);
    spx_input_close(&im);
    spx_input_close(&t);
    return 0;
}
