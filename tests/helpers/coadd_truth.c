/* coadd_truth [--mask FRACTION] [--seed N] TRUTH FRAME...: information on velocities that coadds keep of exposures with
 * the resolution matrices and variances of extracted FRAMEs of the same stars, whose spectra a simulation wrote to
 * TRUTH.
 *
 * Information of a spectrum with resolution matrix R and weights w on a shift of f, with derivative v:
 * sum w (R v)^2. Stars are coadded on the CPU from fluxes R f without noise, FRACTION of the bins masked at random.
 * Lines of text, means over the stars:
 *
 *     simple KEPT RATIO         part of the exposures' information, and error of a velocity beside theirs
 *     line KEPT RATIO           the same of the brightness of a line that is not resolved, of the simple coadd
 *     optimal DIAGONALS LOST FLUX   part that is lost, the most of all stars; (flux - R f)/error, the most of all bins
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/at_centres.h"
#include "../kernels/random.h"
#include "../must.h"
#include "base/mem.h"
#include "calib/resolution.h"
#include "coadd/coadd.h"
#include "h5/file.h"
#include "h5/read.h"
#include "products/frame_h5.h"

enum { LINE_EVERY = 10 };

static spx_err e;

/* Information on v[n], whose image through R is made in image[n]. */
static double information(size_t n, size_t ndiag, const double *r, const double *ivar, const uint32_t *mask,
                          const double *v, double *image)
{
    double sum = 0;
    spx_resolution_apply(n, ndiag, r, v, image);
    for (size_t k = 0; k < n; k++)
        sum += mask[k] == 0 ? ivar[k] * image[k] * image[k] : 0;
    return sum;
}

typedef struct {
    size_t nstar, nexp, n, ndiag, nfine;
    size_t *first;
    double *flux, *ivar, *resolution; /* of exposure i of star s at s * nexp + i */
    uint32_t *mask;
    double *spectrum, *derivative, *spike, *image; /* [nstar][n] the first two, else [n] */
    double *of_all;                                /* [nstar] information of the exposures on velocities */
} stars;

static void read_frames(int nfile, char **name, double fraction, stars *s)
{
    for (int i = 0; i < nfile; i++) {
        spx_input in = {.file = H5I_INVALID_HID};
        spx_frame f = {0};
        must(spx_input_open(&in, name[i], &e) == SPX_OK && spx_frame_read(in.file, &f, &e) == SPX_OK, &e);
        const size_t n = f.arm.nwave, ndiag = f.arm.ndiag;
        if (i == 0) {
            *s = (stars){.nstar = f.nspec, .nexp = (size_t)nfile, .n = n, .ndiag = ndiag};
            s->flux = must_have(spx_alloc2(s->nstar * s->nexp, n, sizeof *s->flux, &e));
            s->ivar = must_have(spx_alloc2(s->nstar * s->nexp, n, sizeof *s->ivar, &e));
            s->mask = must_have(spx_alloc2(s->nstar * s->nexp, n, sizeof *s->mask, &e));
            s->resolution = must_have(spx_alloc2(s->nstar * s->nexp, ndiag * n, sizeof *s->resolution, &e));
        }
        if (f.nspec != s->nstar || n != s->n || ndiag != s->ndiag) {
            printf("%s: is not of the same stars and bins\n", name[i]);
            exit(1);
        }
        for (size_t t = 0; t < s->nstar; t++) {
            const size_t to = t * s->nexp + (size_t)i;
            memcpy(s->ivar + to * n, f.arm.ivar + t * n, n * sizeof *s->ivar);
            memcpy(s->resolution + to * ndiag * n, f.arm.resolution + t * ndiag * n, ndiag * n * sizeof *s->resolution);
            for (size_t k = 0; k < n; k++)
                s->mask[to * n + k] = f.arm.mask[t * n + k] | (uint32_t)(uniform() < fraction);
        }
        spx_frame_free(&f);
        spx_input_close(&in);
    }
    spx_coadd_cleaned ignored = {0};
    for (size_t t = 0; t < s->nstar; t++)
        spx_coadd_clean(1, (const size_t[]){0, s->nexp}, s->n, s->ndiag, s->resolution + t * s->nexp * s->ndiag * s->n,
                        s->ivar + t * s->nexp * s->n, 1, &ignored);
}

/* Spectra at the bins, their derivatives, and the exposures' fluxes and information. */
static void read_truth(const char *name, const char *frame, stars *s)
{
    spx_input in = {.file = H5I_INVALID_HID};
    spx_frame f = {0};
    size_t d[2] = {0, 0}, nfine = 0;
    double *flux = NULL, *fine = NULL;
    must(spx_input_open(&in, frame, &e) == SPX_OK && spx_frame_read(in.file, &f, &e) == SPX_OK, &e);
    spx_input_close(&in);
    must(spx_input_open(&in, name, &e) == SPX_OK &&
             spx_h5_read_f64(in.file, "/truth/wavelength", 1, &nfine, &fine, &e) == SPX_OK,
         &e);
    d[1] = nfine;
    must(spx_h5_read_f64(in.file, "/truth/flux", 2, d, &flux, &e) == SPX_OK, &e);
    spx_input_close(&in);
    const size_t n = s->n;
    double *change = must_have(spx_alloc(nfine, sizeof *change, &e));
    const double step = (f.arm.wavelength[n - 1] - f.arm.wavelength[0]) / (double)(n - 1);
    s->spectrum = must_have(spx_alloc2(s->nstar, n, sizeof *s->spectrum, &e));
    s->derivative = must_have(spx_alloc2(s->nstar, n, sizeof *s->derivative, &e));
    s->spike = must_have(spx_alloc(n, sizeof *s->spike, &e));
    s->image = must_have(spx_alloc(n, sizeof *s->image, &e));
    s->of_all = must_have(spx_alloc(s->nstar, sizeof *s->of_all, &e));
    for (size_t k = LINE_EVERY; k + LINE_EVERY < n; k += LINE_EVERY)
        s->spike[k] = 1;
    for (size_t t = 0; t < s->nstar; t++) {
        double *spectrum = s->spectrum + t * n, *v = s->derivative + t * n;
        const double *of = flux + (size_t)f.fiber[t] * nfine;
        at_centres(nfine, fine, of, f.arm.wavelength[0], step, n, spectrum);
        spx_derivative_row(nfine, fine[1] - fine[0], of, change);
        at_centres(nfine, fine, change, f.arm.wavelength[0], step, n, v);
        for (size_t k = 0; k < 2 * s->ndiag; k++) /* the ends, where R lacks rows, have no part */
            v[k] = v[n - 1 - k] = 0;
        for (size_t i = t * s->nexp; i < (t + 1) * s->nexp; i++) {
            const double *r = s->resolution + i * s->ndiag * n;
            s->of_all[t] += information(n, s->ndiag, r, s->ivar + i * n, s->mask + i * n, v, s->image);
            spx_resolution_apply(n, s->ndiag, r, spectrum, s->flux + i * n);
        }
    }
    spx_free(change);
    spx_free(flux);
    spx_free(fine);
    spx_frame_free(&f);
}

static spx_coadd coadd(const stars *s, spx_coadd_method method, size_t ndiag)
{
    const spx_coadd_input in = {s->nstar, s->n, s->ndiag, s->first, s->flux, s->ivar, s->mask, s->resolution};
    const spx_coadd_options o = {method, 0, 0, ndiag, 2, NULL};
    spx_coadd out = {0};
    must(spx_coadd_cpu(&in, &o, &out, &e) == SPX_OK, &e);
    return out;
}

static double kept(const stars *s, const spx_coadd *c, size_t t, const double *v)
{
    return information(s->n, c->ndiag, c->resolution + t * c->ndiag * s->n, c->ivar + t * s->n, c->mask + t * s->n, v,
                       s->image);
}

static void print_simple(const stars *s)
{
    spx_coadd c = coadd(s, SPX_COADD_SIMPLE, s->ndiag);
    double velocity = 0, error = 0, line = 0, line_error = 0;
    for (size_t t = 0; t < s->nstar; t++) {
        double all = 0, part = kept(s, &c, t, s->derivative + t * s->n) / s->of_all[t];
        velocity += part;
        error += sqrt(1 / part);
        for (size_t i = t * s->nexp; i < (t + 1) * s->nexp; i++)
            all += information(s->n, s->ndiag, s->resolution + i * s->ndiag * s->n, s->ivar + i * s->n,
                               s->mask + i * s->n, s->spike, s->image);
        part = kept(s, &c, t, s->spike) / all;
        line += part;
        line_error += sqrt(1 / part);
    }
    const double n = (double)s->nstar;
    printf("simple %.6f %.4f\nline %.6f %.4f\n", velocity / n, error / n, line / n, line_error / n);
    spx_coadd_free(&c);
}

static void print_optimal(const stars *s, size_t ndiag)
{
    spx_coadd c = coadd(s, SPX_COADD_OPTIMAL, ndiag);
    double lost = 0, off = 0;
    for (size_t t = 0; t < s->nstar; t++) {
        lost = fmax(lost, fabs(1 - kept(s, &c, t, s->derivative + t * s->n) / s->of_all[t]));
        spx_resolution_apply(s->n, ndiag, c.resolution + t * ndiag * s->n, s->spectrum + t * s->n, s->image);
        for (size_t k = 2 * ndiag; k + 2 * ndiag < s->n; k++)
            if (c.mask[t * s->n + k] == 0)
                off = fmax(off, fabs(c.flux[t * s->n + k] - s->image[k]) * sqrt(c.ivar[t * s->n + k]));
    }
    printf("optimal %zu %.1e %.1e%s\n", ndiag, lost, off, c.failed > 0 ? " FAILED" : "");
    spx_coadd_free(&c);
}

int main(int argc, char **argv)
{
    static const size_t diagonals[] = {0, 21, 31, 41, 51, 61, 71, 81, 101, 127};
    double fraction = 0;
    uint64_t seed = 1;
    int i = 1;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2)
        if (strcmp(argv[i], "--mask") == 0)
            fraction = strtod(argv[i + 1], NULL);
        else
            seed = strtoull(argv[i + 1], NULL, 10);
    if (argc - i < 3) {
        puts("usage: coadd_truth [--mask FRACTION] [--seed N] TRUTH FRAME FRAME...");
        return 2;
    }
    stars s;
    random_start(seed * 7919 + 17);
    read_frames(argc - i - 1, argv + i + 1, fraction, &s);
    s.first = must_have(spx_alloc(s.nstar + 1, sizeof *s.first, &e));
    for (size_t t = 0; t <= s.nstar; t++)
        s.first[t] = t * s.nexp;
    read_truth(argv[i], argv[i + 1], &s);
    print_simple(&s);
    for (size_t k = 0; k < sizeof diagonals / sizeof *diagonals; k++)
        print_optimal(&s, k == 0 ? spx_coadd_diagonals(SPX_COADD_OPTIMAL, s.ndiag) : diagonals[k]);
    spx_free(s.first);
    spx_free(s.flux);
    spx_free(s.ivar);
    spx_free(s.mask);
    spx_free(s.resolution);
    spx_free(s.spectrum);
    spx_free(s.derivative);
    spx_free(s.spike);
    spx_free(s.image);
    spx_free(s.of_all);
    return 0;
}
