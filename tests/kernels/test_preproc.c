/* Checks parts of the pre-processing: straight lines in windows against sums in long double, level and noise of an
 * overscan, weights of the light, the mean of exposures with hits and of two that disagree. Whole exposures:
 * tests/specx-preproc.bats.
 *
 * Random numbers are those of the simulation; tolerances are 4 standard errors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "preproc/preproc.h"
#include "preproc/smooth.h"
#include "sim/sim_math.h"

enum { NX = 120, NY = 400, OVER = 20 };

static int bad;

static void within(const char *what, double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance)) {
        printf("%s: %.6g, not %.6g within %.3g\n", what, value, expected, tolerance);
        bad = 1;
    }
}

static double normal(uint64_t index, uint32_t draw)
{
    double u[2];
    spx_sim_uniform2(11, SPX_SIM_RAW_NOISE, 'x', index, draw, u);
    return spx_sim_normal(u);
}

/* The line by the normal equations of all weights, w = 0 outside of the window. */
static void lines(void)
{
    enum { N = 40 };
    double v[2 * N], w[2 * N], var;
    for (size_t k = 0; k < N; k++) {
        v[2 * k] = normal(k, 1) + 0.3 * (double)k;
        w[2 * k] = k % 7 == 3 ? 0 : 1 + 0.5 * (double)(k % 3);
    }
    for (size_t i = 0; i < N; i++) {
        long double s = 0, sx = 0, sxx = 0, sy = 0, sxy = 0;
        for (size_t k = 0; k < N; k++) {
            const long double x = (long double)k - (long double)i, q = fabsl(x) <= 4 ? w[2 * k] : 0;
            s += q;
            sx += q * x;
            sxx += q * x * x;
            sy += q * v[2 * k];
            sxy += q * x * v[2 * k];
        }
        within("line", spx_local_line(N, 2, v, w, 9, i, &var), (double)((sxx * sy - sx * sxy) / (s * sxx - sx * sx)),
               1e-10);
        within("its variance", var, (double)(sxx / (s * sxx - sx * sx)), 1e-10);
    }
    memset(w, 0, sizeof w);
    if (!isnan(spx_local_line(N, 2, v, w, 9, 3, &var)))
        within("a line through nothing", 0, 1, 0);
}

/* One amplifier of NX columns and OVER of overscan, level 1000 + slope y, noise 2.5 ADU, light in the last column. */
static spx_raw exposure(double slope, double light, double trail)
{
    spx_err e = {0};
    spx_raw r = {.n = 1, .image = spx_alloc(1, sizeof *r.image, &e)};
    r.image->nx = NX + OVER;
    r.image->ny = NY;
    if ((r.image->data = spx_alloc2(NY, NX + OVER, sizeof *r.image->data, &e)) == NULL)
        exit(1);
    for (size_t y = 0; y < NY; y++)
        for (size_t x = 0; x < NX + OVER; x++) {
            const double l = y % 5 == 0 && x == NX - 1 ? light : 0, t = y % 5 == 0 && x == NX ? trail * light : 0;
            r.image->data[y * (NX + OVER) + x] =
                (float)(1000 + slope * (double)y + 2.5 * normal(y * (NX + OVER) + x, 2) + l + t);
        }
    return r;
}

static const spx_amplifier amplifier = {.name = "A",
                                        .data = {0, NX, 0, NY},
                                        .ccd = {0, NX, 0, NY},
                                        .nbias = 1,
                                        .bias = {{NX, NX + OVER, 0, NY}},
                                        .gain = 1};

static void overscans(void)
{
    const spx_preproc_options o = {.window = 51, .nthreads = 2};
    const double values = NY * OVER, dof = values - NY;
    spx_err e = {0};
    for (int slope = 0; slope < 2; slope++) {
        spx_raw r = exposure(slope * 0.1, 0, 0);
        spx_overscan s = {0};
        if (spx_overscan_fit(&r, &amplifier, &o, &s, &e) != SPX_OK)
            exit(1);
        within("model", s.model, slope ? SPX_OVERSCAN_SMOOTH : SPX_OVERSCAN_CONSTANT, 0);
        within("read noise", s.readnoise, 2.5, 4 * 2.5 / sqrt(2 * dof));
        within("its error", s.readnoise_err, 2.5 / sqrt(2 * dof), 0.05 * 2.5 / sqrt(2 * dof));
        within("level", s.level[0], 1000, 4 * sqrt(s.level_var) + (slope ? 4 * 2.5 / sqrt(OVER * 6.5) : 0));
        within("level", s.level[NY / 2], 1000 + slope * 0.1 * (NY / 2), 4 * sqrt(s.level_var));
        within("dropped columns", (double)s.ndropped, 0, 0);
        spx_overscan_free(&s);
        spx_raw_free(&r);
    }
    /* light of single rows in the first column: 0.002 of 20000 */
    spx_raw r = exposure(0, 20000, 0.002);
    spx_overscan s = {0};
    if (spx_overscan_fit(&r, &amplifier, &o, &s, &e) != SPX_OK)
        exit(1);
    within("dropped columns", (double)s.ndropped, 1, 0);
    within("part of the light", s.trail, 0.002, 4 * 1.2 * 2.5 / (20000 * sqrt(NY / 5.)));
    spx_overscan_free(&s);
    spx_raw_free(&r);
}

/* n exposures of 400 electrons and noise of 3, a hit of 500 in one of them in every 10th pixel. */
static void combined(size_t n, double expected, int nthreads, float *copy)
{
    spx_amplifier a = amplifier;
    const spx_layout l = {.ny = NY, .nx = NX, .namp = 1, .amp = &a};
    spx_overscan over = {.readnoise = 3};
    spx_combine c = {0};
    spx_combine_options o = {.kind = SPX_MASTER_DARK, .reject = 5, .nthreads = nthreads};
    spx_combine_amp amp;
    spx_master m = {0};
    spx_err e = {0};
    double sum = 0, sum2 = 0, hits = 0;
    spx_image im = {.ny = NY, .nx = NX};
    im.data = spx_alloc2(NY, NX, sizeof *im.data, &e);
    im.mask = spx_alloc2(NY, NX, sizeof *im.mask, &e);
    if (im.data == NULL || im.mask == NULL)
        exit(1);
    for (size_t k = 0; k < n; k++) {
        for (size_t i = 0; i < NY * NX; i++)
            im.data[i] = (float)(spx_sim_poisson(400, 5 + k, 'x', i) + 3 * normal(i, 10 + (uint32_t)k) +
                                 (i % 10 == 0 && i / 10 % n == k ? 500 : 0));
        if (spx_combine_add(&c, &o, &l, &im, &over, 1, &e) != SPX_OK)
            exit(1);
    }
    if (spx_combine_cpu(&c, &o, &l, NULL, &m, &amp, &e) != SPX_OK)
        exit(1);
    for (size_t i = 0; i < NY * NX; i++) {
        const double pull = (m.data[i] - 400) * sqrt(m.ivar[i]);
        sum += pull;
        sum2 += pull * pull;
        hits += i % 10 == 0 && m.count[i] == n - 1;
    }
    within("mean of the pulls", sum / (NY * NX), 0, 0.02 + 4 / sqrt(NY * NX));
    within("scatter of the pulls", sqrt(sum2 / (NY * NX)), 1, 0.02 + 4 / sqrt(2. * NY * NX));
    within("scatter of the exposures", amp.scatter, 1, 0.02);
    within("hits that were found", hits / (NY * NX / 10.), expected, 0.001);
    if (copy != NULL && nthreads == 1)
        memcpy(copy, m.data, NY * NX * sizeof *copy);
    else if (copy != NULL)
        within("threads", memcmp(copy, m.data, NY * NX * sizeof *copy), 0, 0);
    spx_master_free(&m);
    spx_combine_free(&c);
    spx_image_free(&im);
}

int main(void)
{
    static float copy[NX * NY];
    lines();
    overscans();
    combined(5, 1, 1, copy);
    combined(5, 1, 3, copy);
    combined(2, 1, 2, NULL);
    combined(3, 1, 2, NULL);
    return bad;
}
