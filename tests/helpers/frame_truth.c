/* frame_truth [--mean M] [--sd S] [--corr C] FRAME TRUTH [TABLE]: a frame against the electrons that a simulation put
 * in (specx-sim --truth; row f of the truth is fibre f of the PSF).
 *
 * Pulls (flux - R truth) sqrt(ivar), with the truth at the bin centres (at_centres.h). The far wings of R, which the
 * diagonals that are stored lack, are -2e-4 of a row, some -0.007 errors of a star's continuum in all of its bins:
 * there the truth is taken for smooth. Mean pulls with the stored diagonals alone stand behind their sum. Printed for
 * comparison too: the truth averaged over each bin, which broadens it by the bin a second time.
 *
 * clean: bins whose spot has no masked pixel. hit: up to half of it is masked; there R reaches farther than the
 * diagonals that are stored. Exit status 1: a file cannot be read, or the pulls of clean bins have a mean farther than
 * M from 0, a standard deviation farther than S from 1, or a correlation of neighbours beyond C; or those of hit bins,
 * where they are more than 20000, twice that mean or standard deviation.
 *
 * TABLE, for gnuplot, blocks divided by two empty lines: histogram of the pulls (pull, density); classes of
 * signal-to-noise ratio (its mean, lower limit, bins, mean pull and its error, standard deviation, bias in percent of
 * the flux); a stretch of the first fibre (wavelength, flux, error, R truth). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../kernels/at_centres.h"
#include "base/mem.h"
#include "h5/file.h"
#include "h5/read.h"
#include "products/frame_h5.h"
#include "products/spectra.h"

/* A pixmask_fraction that is 0 but for rounding. */
#define ROUNDING 1e-9

enum { NHIST = 81, STRETCH = 90, MANY_HIT = 20000 };

static const double classes[] = {-1e9, 0.3, 1, 2, 4, 8, 16, 32, 64, 128, 1e9};
enum { NCLASS = sizeof classes / sizeof *classes - 1 };

typedef struct {
    size_t n, pairs;
    double sum, sum2, product, worst, expected;
} moments;

static void add(moments *m, double pull)
{
    m->n++;
    m->sum += pull;
    m->sum2 += pull * pull;
    m->worst = fmax(m->worst, fabs(pull));
}

static double mean_of(const moments *m)
{
    return m->n ? m->sum / (double)m->n : 0.0;
}

static double sd_of(const moments *m)
{
    return m->n > 1 ? sqrt((m->sum2 - m->sum * mean_of(m)) / (double)(m->n - 1)) : 0.0;
}

static double corr_of(const moments *m)
{
    return m->pairs ? (m->product / (double)m->pairs - mean_of(m) * mean_of(m)) / (sd_of(m) * sd_of(m)) : 0.0;
}

typedef struct {
    size_t nspec, nwave;
    double *wavelength, *flux;
} truth;

/* Electrons per Angstrom of one fibre, averaged over each bin. */
static void averaged(const truth *t, size_t f, double first, double step, size_t nbin, double *out)
{
    memset(out, 0, nbin * sizeof *out);
    for (size_t i = 1; i + 1 < t->nwave; i++) { /* a sample is as wide as its interval */
        const double half = 0.25 * (t->wavelength[i + 1] - t->wavelength[i - 1]) / step;
        const double at = (t->wavelength[i] - first) / step;
        for (double j = floor(at - half + 0.5); j <= floor(at + half + 0.5); j++) {
            double part = fmin(at + half, j + 0.5) - fmax(at - half, j - 0.5);
            if (j >= 0 && j < (double)nbin && part > 0)
                out[(size_t)j] += t->flux[f * t->nwave + i] * part;
        }
    }
}

/* (R in)(k); in NULL: (R 1)(k). */
static double resolved(const spx_arm *a, size_t f, size_t k, const double *in)
{
    const size_t half = a->ndiag / 2;
    double sum = 0.0;
    for (size_t d = 0; d < a->ndiag; d++) { /* resolution[d][j] = R[j - off][j], off = half - d */
        size_t j = k + half - d;
        sum += a->resolution[(f * a->ndiag + d) * a->nwave + j] * (in ? in[j] : 1.0);
    }
    return sum;
}

typedef struct {
    moments clean, hit, averaged, by_class[NCLASS];
    size_t histogram[NHIST];
    double row_sum;     /* of R: the largest distance from 1 */
    double wings, rows; /* sum of the light of the far wings in clean bins, in errors, and of their part of a row */
    double stretch[STRETCH][4];
} result;

static void look_at(const spx_frame *frame, const truth *t, size_t f, double *sampled, double *mean, result *r)
{
    const spx_arm *a = &frame->arm;
    const size_t nw = a->nwave, half = a->ndiag / 2, row = (size_t)frame->fiber[f];
    double last = NAN;
    const double step = (a->wavelength[nw - 1] - a->wavelength[0]) / (double)(nw - 1);
    at_centres(t->nwave, t->wavelength, t->flux + row * t->nwave, a->wavelength[0], step, nw, sampled);
    averaged(t, row, a->wavelength[0], step, nw, mean);
    size_t peak = half + STRETCH / 2;
    for (size_t k = peak; k + peak < nw; k++)
        peak = sampled[k] > sampled[peak] ? k : peak;
    for (size_t k = half; k + half < nw; k++) {
        const size_t at = f * nw + k;
        const double s = sqrt(a->ivar[at]), beyond = 1.0 - resolved(a, f, k, NULL), wings = beyond * sampled[k];
        const double want = resolved(a, f, k, sampled) + wings, pull = (a->flux[at] - want) * s;
        if (f == 0 && k + STRETCH / 2 >= peak && k + STRETCH / 2 < peak + STRETCH) {
            double *row_of = r->stretch[k + STRETCH / 2 - peak];
            row_of[0] = a->wavelength[k];
            row_of[1] = a->flux[at];
            row_of[2] = s > 0 ? 1.0 / s : 0.0;
            row_of[3] = want;
        }
        if (frame->pixmask_fraction[at] > ROUNDING || !(s > 0)) {
            last = NAN;
            if (s > 0 && frame->pixmask_fraction[at] <= 0.5)
                add(&r->hit, pull);
            continue;
        }
        add(&r->clean, pull);
        r->row_sum = fmax(r->row_sum, fabs(beyond));
        r->wings += wings * s;
        r->rows += beyond;
        add(&r->averaged, (a->flux[at] - resolved(a, f, k, mean) - beyond * mean[k]) * s);
        if (isfinite(last)) {
            r->clean.pairs++;
            r->clean.product += pull * last;
        }
        last = pull;
        int c = 0;
        while (want * s >= classes[c + 1])
            c++;
        add(&r->by_class[c], pull);
        r->by_class[c].expected += want * s;
        double bin = (pull + 5.0) / 10.0 * NHIST;
        if (bin >= 0 && bin < NHIST)
            r->histogram[(size_t)bin]++;
    }
}

static int write_table(const char *name, const result *r)
{
    FILE *file = fopen(name, "w");
    if (!file)
        return 0;
    const double width = 10.0 / NHIST;
    for (int i = 0; i < NHIST; i++)
        fprintf(file, "%g %g\n", -5.0 + (i + 0.5) * width, (double)r->histogram[i] / (double)r->clean.n / width);
    fputs("\n\n", file);
    for (int c = 0; c < NCLASS; c++) {
        const moments *m = &r->by_class[c];
        if (m->n > 20)
            fprintf(file, "%g %g %zu %.4f %.4f %.4f %.4f\n", m->expected / (double)m->n, classes[c], m->n, mean_of(m),
                    sd_of(m) / sqrt((double)m->n), sd_of(m), 100.0 * m->sum / m->expected);
    }
    fputs("\n\n", file);
    for (int i = 0; i < STRETCH; i++)
        fprintf(file, "%.2f %g %g %g\n", r->stretch[i][0], r->stretch[i][1], r->stretch[i][2], r->stretch[i][3]);
    return fclose(file) == 0;
}

static void print(const char *what, const moments *m, int pairs)
{
    printf("%-9s %7zu bins  mean %+.4f +- %.4f  sd %.4f +- %.4f", what, m->n, mean_of(m),
           m->n ? sd_of(m) / sqrt((double)m->n) : 0.0, sd_of(m), m->n ? sd_of(m) / sqrt(2.0 * (double)m->n) : 0.0);
    if (pairs)
        printf("  corr %+.4f", corr_of(m));
    printf("  worst %.1f\n", m->worst);
}

int main(int argc, char **argv)
{
    double limit[3] = {INFINITY, INFINITY, INFINITY};
    const char *const names[3] = {"--mean", "--sd", "--corr"};
    int next = 1;
    for (; next + 1 < argc && strncmp(argv[next], "--", 2) == 0; next += 2)
        for (int i = 0; i < 3; i++)
            if (strcmp(argv[next], names[i]) == 0)
                limit[i] = atof(argv[next + 1]);
    if (argc - next != 2 && argc - next != 3) {
        puts("usage: frame_truth [--mean M] [--sd S] [--corr C] FRAME TRUTH [TABLE]");
        return 1;
    }
    spx_input in[2] = {{.file = H5I_INVALID_HID}, {.file = H5I_INVALID_HID}};
    spx_frame frame = {0};
    truth t = {0};
    spx_err e = {0};
    static result r;
    size_t d2[2] = {0, 0}, d1[1] = {0};
    spx_status st = spx_input_open(&in[0], argv[next], &e);
    if (st == SPX_OK && (st = spx_input_open(&in[1], argv[next + 1], &e)) == SPX_OK &&
        (st = spx_frame_read(in[0].file, &frame, &e)) == SPX_OK &&
        (st = spx_h5_read_f64(in[1].file, "/truth/flux", 2, d2, &t.flux, &e)) == SPX_OK) {
        d1[0] = d2[1];
        st = spx_h5_read_f64(in[1].file, "/truth/wavelength", 1, d1, &t.wavelength, &e);
    }
    t.nspec = d2[0];
    t.nwave = d2[1];
    if (st == SPX_OK && (!frame.fiber || !frame.pixmask_fraction || !frame.arm.resolution || frame.nspec == 0 ||
                         (size_t)frame.fiber[frame.nspec - 1] >= t.nspec || t.nwave < 3 ||
                         frame.arm.nwave < STRETCH + 2 * frame.arm.ndiag))
        st = spx_fail(&e, SPX_EINPUT, "frame and truth do not belong together, or are too short");
    double *bins = st == SPX_OK ? spx_alloc2(2, frame.arm.nwave, sizeof *bins, &e) : NULL;
    int ok = 0;
    if (bins) {
        for (size_t f = 0; f < frame.nspec; f++)
            look_at(&frame, &t, f, bins, bins + frame.arm.nwave, &r);
        print("clean", &r.clean, 1);
        print("hit", &r.hit, 0);
        print("averaged", &r.averaged, 0);
        const double n = (double)(r.clean.n > 0 ? r.clean.n : 1);
        printf("stored rows of R sum to 1 within %.1e, mean %+.1e; with them alone mean %+.4f\n", r.row_sum,
               -r.rows / n, mean_of(&r.clean) + r.wings / n);
        for (int c = 0; c < NCLASS; c++)
            if (r.by_class[c].n > 20)
                printf("  S/N %6.2f: %7zu bins  mean %+.4f +- %.4f  sd %.4f  bias %+.3f %%\n",
                       r.by_class[c].expected / (double)r.by_class[c].n, r.by_class[c].n, mean_of(&r.by_class[c]),
                       sd_of(&r.by_class[c]) / sqrt((double)r.by_class[c].n), sd_of(&r.by_class[c]),
                       100.0 * r.by_class[c].sum / r.by_class[c].expected);
        ok = r.clean.n > 0 && fabs(mean_of(&r.clean)) <= limit[0] && fabs(sd_of(&r.clean) - 1.0) <= limit[1] &&
             fabs(corr_of(&r.clean)) <= limit[2];
        if (r.hit.n > MANY_HIT)
            ok &= fabs(mean_of(&r.hit)) <= 2.0 * limit[0] && fabs(sd_of(&r.hit) - 1.0) <= 2.0 * limit[1];
        if (!ok)
            puts("TOO LARGE");
        if (argc - next == 3 && !write_table(argv[next + 2], &r)) {
            printf("%s: cannot be written\n", argv[next + 2]);
            ok = 0;
        }
    } else {
        printf("%s\n", spx_err_text(&e));
    }
    spx_free(bins);
    spx_frame_free(&frame);
    spx_free(t.wavelength);
    spx_free(t.flux);
    spx_input_close(&in[0]);
    spx_input_close(&in[1]);
    return !ok;
}
