/* Checks kernel `template`: rotation kernel, line-spread function, log grid, air and vacuum, normalisation, grid of
 * parameters, cross-correlation set, hostile libraries and setups; and the reference templates of the shared test
 * data. */
#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../helpers/mock_library.h"
#include "base/mem.h"
#include "check.h"
#include "common/setup_options.h"
#include "num/wave.h"
#include "spectral/continuum.h"
#include "spectral/rotation_math.h"
#include "template/lsf_math.h"
#include "template/template.h"
#include "template/template_impl.h"

/* ---- kernels ---- */

static double rotation_profile(double x, double eps)
{
    const double pi = 3.14159265358979323846;
    return (2 * (1 - eps) * sqrt(1 - x * x) + 0.5 * pi * eps * (1 - x * x)) / (pi * (1 - eps / 3));
}

static double cubic_convolution(double u)
{
    double a = fabs(u);
    return a < 1 ? 1 + a * a * (1.5 * a - 2.5) : (a < 2 ? 2 + a * (-4 + a * (2.5 - 0.5 * a)) : 0);
}

/* Cubic convolution, and c times its fourth difference. */
static double sharp_convolution(double u, double c)
{
    return cubic_convolution(u) +
           c * (cubic_convolution(u - 2) - 4 * cubic_convolution(u - 1) + 6 * cubic_convolution(u) -
                4 * cubic_convolution(u + 1) + cubic_convolution(u + 2));
}

/* Weights against a fine sum over kernel times interpolation; their sum and variance; derivatives against differences.
 */
static void rotation(void)
{
    static const double widths[] = {0, 1e-9, 0.01, 0.3, 0.5, 1, 1.5, 2, 7.3, 25, 400};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        double h = widths[i], sum = 0, dsum = 0, var = 0, dvar = 0, unused;
        size_t reach = spx_rotation_reach(h);
        for (size_t k = 0; k <= reach + 1; k++) {
            double dw, w = spx_rotation_weight(k, h, &dw), twice = k ? 2 : 1;
            double tol = 1e-14 * (1 + h * h); /* sums of cubes */
            sum += twice * w;
            dsum += twice * dw;
            var += twice * w * (double)(k * k);
            dvar += twice * dw * (double)(k * k);
            if (k > reach)
                CHECK(fabs(w) < tol && fabs(dw) < tol, "h %g: weight %zu beyond the reach is %g", h, k, w);
            if (h > 0 && h < 10) {
                const int n = 40000;
                const double c = -expm1(-h * h / 0.3) / 80;
                double integral = 0;
                for (int q = 0; q < n; q++) {
                    double x = -1 + (2 * q + 1.0) / n;
                    integral += sharp_convolution(x * h - (double)k, c) * rotation_profile(x, SPX_ROTATION_EPS) * 2 / n;
                }
                CHECK(fabs(integral - w) < 1e-6, "h %g: weight %zu is %.10f, integral %.10f", h, k, w, integral);
            }
            if (h > 0.1) {
                const double d = 1e-6 * h * h;
                double diff = (spx_rotation_weight(k, sqrt(h * h + d), &unused) -
                               spx_rotation_weight(k, sqrt(h * h - d), &unused)) /
                              (2 * d);
                CHECK(fabs(diff - dw) < 1e-5 * (1 + tol / d), "h %g: derivative of weight %zu is %g, difference %g", h,
                      k, dw, diff);
            }
        }
        CHECK(fabs(sum - 1) < 1e-14 * (1 + h * h * h) && fabs(dsum) < 1e-14 * (1 + h * h),
              "h %g: weights sum to 1 + %g, derivatives to %g", h, sum - 1, dsum);
        /* the variance is that of the disc, whatever its width: slow rotators are not broadened by the grid */
        double disc = (0.25 * 0.4 + 0.6 * 2 / 15) / (1 - 0.2);
        CHECK(fabs(var - h * h * disc) < 1e-14 * (1 + pow(h, 5)) && fabs(dvar - disc) < 1e-14 * (1 + pow(h, 4)),
              "h %g: variance %.12g, want %.12g; its derivative %g", h, var, h * h * disc, dvar);
    }
}

/* Response of the weights to a sine of theta a pixel, against that of the disc, a fine sum over strips. A fifth of what
 * cubic convolution alone is off, theta^4/80, is allowed, and terms of higher order. */
static void rotation_response(void)
{
    for (double theta = 0.2; theta < 0.9; theta += 0.1)
        for (double h = 0.05; h < 12; h *= 1.17) {
            const int n = 20000;
            double disc = 0, weights = 0, unused, w[20], dw[20];
            for (int q = 0; q < n; q++) {
                const double x = -1 + (2 * q + 1.0) / n;
                disc += cos(theta * h * x) * rotation_profile(x, SPX_ROTATION_EPS) * 2 / n;
            }
            spx_rotation_weights(h, spx_rotation_reach(h), w, dw);
            for (size_t k = 0; k <= spx_rotation_reach(h); k++) {
                weights += (k ? 2 : 1) * w[k] * cos(theta * (double)k);
                CHECK(w[k] == spx_rotation_weight(k, h, &unused) && dw[k] == unused,
                      "h %g: weight %zu and its derivative are %g %g by itself, %g %g of all", h, k,
                      spx_rotation_weight(k, h, &unused), unused, w[k], dw[k]);
            }
            CHECK(fabs(weights - disc) < pow(theta, 4) / 400 + pow(theta, 6) / 1000,
                  "h %g, theta %g: response %.7f, of the disc %.7f", h, theta, weights, disc);
        }
}

/* The same for linear interpolation: rvspecfit's weights. */
static void rotation_linear(void)
{
    static const double widths[] = {0, 1e-9, 0.3, 1, 7.3, 400};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        double h = widths[i], sum = 0, var = 0, unused;
        for (size_t k = 0; k <= spx_rotation_reach(h); k++) {
            double dw, w = spx_rotation_linear_weight(k, h, &dw), twice = k ? 2 : 1, d = 1e-6;
            sum += twice * w;
            var += twice * w * (double)(k * k);
            CHECK(w >= -1e-16, "h %g: weight %zu is %g", h, k, w);
            double diff = (spx_rotation_linear_weight(k, h + d, &unused) -
                           spx_rotation_linear_weight(k, fmax(0, h - d), &unused)) /
                          (h > d ? 2 * d : d);
            CHECK(h == 1e-9 || fabs(diff - dw) < 1e-5, "h %g: derivative of weight %zu is %g, difference %g", h, k, dw,
                  diff);
        }
        double disc = h * h * (0.25 * 0.4 + 0.6 * 2 / 15) / (1 - 0.2);
        CHECK(fabs(sum - 1) < 1e-14, "h %g: weights sum to 1 + %g", h, sum - 1);
        CHECK(h < 5 || fabs(var - disc - 1. / 6) < 0.01, "h %g: variance %g, want %g", h, var, disc + 1. / 6);
    }
}

/* LSF weights on an irregular grid against a fine sum over LSF times pixel times hat. */
static void lsf(void)
{
    enum { N = 40 };
    static const double sigmas[] = {0, 1e-12, 0.05, 0.4, 1.5};
    double x[N], w[N];
    for (int j = 0; j < N; j++)
        x[j] = 5000 + 0.45 * j + 0.15 * sin(7.0 * j);
    for (size_t i = 0; i < sizeof sigmas / sizeof *sigmas; i++) {
        double s = sigmas[i], l1 = 5008.1, l2 = 5009.4, sum = 0, total = 0;
        spx_lsf_linear_weights(x, N, l1, l2, s, w);
        for (int j = 0; j < N; j++) {
            sum += w[j];
            const int n = 20000;
            double integral = 0, a = j ? x[j - 1] : x[0], b = j + 1 < N ? x[j + 1] : x[N - 1];
            for (int q = 0; q < n; q++) {
                double at = a + (b - a) * (q + 0.5) / n;
                double hat = at < x[j] ? (at - a) / (x[j] - a) : (b - at) / (b - x[j]);
                double p = s > 1e-6 ? 0.5 * (erf((l2 - at) / s / sqrt(2)) - erf((l1 - at) / s / sqrt(2)))
                                    : (at > l1 && at < l2);
                integral += hat * p / (l2 - l1) * (b - a) / n;
            }
            total += integral;
            CHECK(fabs(integral - w[j]) < 1e-4, "sigma %g: weight %d is %g, integral %g", s, j, w[j], integral);
        }
        CHECK(fabs(sum - 1) < 1e-12 && fabs(total - 1) < 1e-3, "sigma %g: weights sum to 1 + %g", s, sum - 1);
    }
    /* a pixel inside one interval of a coarse grid */
    spx_lsf_linear_weights(x, 2, x[0] + 0.1, x[0] + 0.2, 0, w);
    CHECK(fabs(w[1] - 0.15 / (x[1] - x[0])) < 1e-12, "weights %g %g in one interval", w[0], w[1]);
}

/* Width of a Gaussian line that is sampled every 0.5 to 1 of its sigma, behind an LSF and pixels: second moment of its
 * pixels against the sum of variances. Straight lines are off by step^2/6. */
static void lsf_widths(void)
{
    enum { N = 400, NPIX = 120 };
    static const double steps[] = {0.05, 0.1}, lsfs[] = {0.1, 0.3, 0.5};
    const double line = 0.1, pixel = 0.1;
    for (size_t t = 0; t < 2 * sizeof steps / sizeof *steps; t++)
        for (size_t i = 0; i < sizeof lsfs / sizeof *lsfs; i++) {
            const double h = steps[t / 2], lsf = lsfs[i], at = 0.5 * N * h + 0.3 * h;
            const int even = t % 2 == 0;
            double x[N], w[N], s0 = 0, s1 = 0, s2 = 0, linear = 0, l0 = 0, l1 = 0;
            for (int j = 0; j < N; j++)
                x[j] = h * (j + (even ? 0 : 0.2 * sin(0.7 * j)));
            for (int k = -NPIX; k < NPIX; k++) {
                double value[2] = {0};
                const double centre = at + k * pixel;
                if (centre < h || centre > (N - 2) * h)
                    continue;
                for (int how = 0; how < 2; how++) {
                    (how ? spx_lsf_weights : spx_lsf_linear_weights)(x, N, centre - 0.5 * pixel, centre + 0.5 * pixel,
                                                                     lsf, w);
                    for (int j = 0; j < N; j++)
                        value[how] += w[j] * exp(-0.5 * pow((x[j] - at) / line, 2));
                }
                const double d = k * pixel;
                l0 += value[0];
                l1 += value[0] * d;
                linear += value[0] * d * d;
                s0 += value[1];
                s1 += value[1] * d;
                s2 += value[1] * d * d;
            }
            const double want = line * line + lsf * lsf + pixel * pixel / 12;
            const double got = s2 / s0 - s1 / s0 * (s1 / s0), straight = linear / l0 - l1 / l0 * (l1 / l0);
            /* the fourth order: some (h/line)^2/10 of what straight lines are off, more where steps differ */
            CHECK(fabs(got - want) < 0.2 * h * h / 6, "step %g, LSF %g: variance %g, want %g", h, lsf, got, want);
            CHECK(!even || fabs(straight - want - h * h / 6) < 0.1 * h * h / 6, "step %g, LSF %g: straight lines %g", h,
                  lsf, straight - want);
        }
}

/* Heavy loops of each instruction set against plain ones. */
static void instruction_sets(void)
{
    enum { L = SPX_TEMPLATE_LANES, NSAMPLE = 90, NPIX = 11, NLOG = 4096 };
    const spx_template_kernels *set[] = {spx_template_kernels_base(), spx_template_kernels_avx2(),
                                         spx_template_kernels_avx512()};
    static float flux[L][NSAMPLE];
    static double sample[NSAMPLE * L], out[NPIX * L], w[NPIX * 30], x[NLOG];
    size_t first[NPIX], start[NPIX + 1] = {0};
    for (size_t l = 0; l < L; l++)
        for (size_t k = 0; k < NSAMPLE; k++)
            flux[l][k] = (float)sin(0.1 * (double)k * (double)(l + 1));
    for (size_t k = 0; k < NPIX; k++) {
        first[k] = 100 + (k == 5 ? 20 : 5 * k); /* need not increase */
        start[k + 1] = start[k] + 10 + k;
        for (size_t j = start[k]; j < start[k + 1]; j++)
            w[j] = cos((double)(3 * j));
    }
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        if (!set[i])
            continue;
        set[i]->transpose(NSAMPLE, L - 1, flux[0], NSAMPLE, sample);
        set[i]->smooth(NPIX, first, start, w, 100, sample, out);
        for (size_t k = 0; k < NPIX; k++)
            for (size_t l = 0; l + 1 < L; l++) {
                double sum = 0;
                for (size_t j = start[k]; j < start[k + 1]; j++)
                    sum += w[j] * (double)flux[l][first[k] - 100 + j - start[k]];
                CHECK(fabs(out[k * L + l] - sum) < 1e-13, "set %zu: pixel %zu of lane %zu is %g, want %g", i, k, l,
                      out[k * L + l], sum);
            }
        for (size_t k = 0; k < NLOG; k++)
            x[k] = k < 2000 ? 1 + 1e-3 * ((double)k - 1000) * 0.7 : pow(10, ((double)k - 3000) / 4);
        x[0] = sqrt(0.5);
        x[1] = nextafter(sqrt(0.5), 0);
        x[2] = 2;
        set[i]->logarithm(NLOG, x);
        for (size_t k = 0; k < NLOG; k++) {
            double was = k == 0     ? sqrt(0.5)
                         : k == 1   ? nextafter(sqrt(0.5), 0)
                         : k == 2   ? 2
                         : k < 2000 ? 1 + 1e-3 * ((double)k - 1000) * 0.7
                                    : pow(10, ((double)k - 3000) / 4);
            CHECK(fabs(x[k] - log(was)) <= 1e-15 * fmax(1, fabs(log(was))), "set %zu: ln %g is %.17g, want %.17g", i,
                  was, x[k], log(was));
        }
    }
}

/* ---- whole jobs ---- */

/* Library of ntemp spectra with one parameter 0, 1, 2, ... */
static spx_template_library simple_library(size_t nwave, const double *wave, size_t ntemp, const double *params)
{
    spx_template_library lib = {
        .nwave = nwave, .wavelength = wave, .ntemp = ntemp, .npar = 1, .params = params, .parname = {"number"}};
    return lib;
}

static spx_status run(const spx_template_library *lib, const spx_template_config *cfg, const float *flux, size_t batch,
                      spx_templates *out, spx_template_report *rep, spx_err *e)
{
    spx_template_job *job;
    size_t first, n;
    spx_status st = spx_template_begin(lib, cfg, &job, e);
    if (st != SPX_OK)
        return st;
    spx_template_range(job, &first, &n);
    for (size_t row = 0; row < lib->ntemp && st == SPX_OK; row += batch) {
        size_t nrow = lib->ntemp - row < batch ? lib->ntemp - row : batch;
        st = spx_template_add(job, row, nrow, flux + row * lib->nwave + first, lib->nwave, e);
    }
    if (st == SPX_OK)
        st = spx_template_finish(job, out, rep, e);
    spx_template_free(job);
    return st;
}

static void parse(const char *text, spx_template_request *r)
{
    spx_err e = {0};
    if (spx_template_parse_setup(text, r, &e) != SPX_OK) {
        puts(spx_err_text(&e));
        exit(1);
    }
}

/* Constant stays constant (times wavelength: the photons), a Gaussian line gets sqrt(s1^2 + s2^2), keeps its area and
 * place. */
static void convolution(void)
{
    enum { N = 20000, NT = 3 };
    const double sigma_line = 0.7, depth = 0.5, centre = 5512.3;
    double *wave = malloc(N * sizeof *wave), params[NT] = {0, 1, 2};
    float *flux = malloc(NT * N * sizeof *flux);
    for (int k = 0; k < N; k++) {
        double w = 5000 + 0.05 * k, x = (w - centre) / sigma_line;
        wave[k] = w;
        flux[k] = 3;
        flux[N + k] = (float)(1e15 * 5500 / w);
        flux[2 * N + k] = (float)((1 - depth * exp(-0.5 * x * x)) * 5500 / w);
    }
    spx_template_request r[2];
    parse("a:5300:5700:0.4:FWHM=2.5", &r[0]);
    parse("b:5300:5700:0.2:R=3000+0*x", &r[1]);
    spx_template_config cfg = {.nsetup = 2, .setup = r, .norm = SPX_NORM_NONE, .library_resolution = "R=20000"};
    spx_template_library lib = simple_library(N, wave, NT, params);
    spx_templates t = {0};
    spx_template_report rep;
    spx_err e = {0};
    CHECK(run(&lib, &cfg, flux, NT, &t, &rep, &e) == SPX_OK, "%s", spx_err_text(&e));
    if (failures)
        exit(1);
    for (size_t i = 0; i < 2; i++) {
        const spx_setup *s = &t.setup[i];
        double f = 1 + 1000 / SPX_C_KMS, worst[2] = {0}, area = 0, mean = 0, var = 0;
        CHECK(fabs(s->dlnwave - log(1 + s->step / 5500)) < 1e-15, "step of setup %s", s->setup);
        CHECK(fabs(exp(s->lnwave0) / (5300 / f) - 1) < 1e-13, "setup %s begins at %.8f", s->setup, exp(s->lnwave0));
        double end = exp(s->lnwave0 + (double)(s->nwave - 1) * s->dlnwave);
        CHECK(end < 5700 * f && end * (1 + s->dlnwave) > 5700 * f * (1 - 1e-9), "setup %s ends at %g", s->setup, end);
        CHECK(s->ntemp == NT && s->naxis[0] == NT && s->node[2] == 2 && rep.nfilled == 0, "grid of %s", s->setup);
        for (size_t k = 0; k < s->nwave; k++) {
            double w = exp(s->lnwave0 + (double)k * s->dlnwave);
            /* a spectrum flat in F is a straight line in photons: the mean over a pixel is its middle's */
            worst[0] = fmax(worst[0], fabs((double)s->lnflux[k] - log(3)));
            worst[1] = fmax(worst[1], fabs((double)s->lnflux[s->nwave + k] - log(1e15 * 5500 / w)));
            double line = 1 - exp((double)s->lnflux[2 * s->nwave + k]) * w / 5500, dw = w * 2 * sinh(s->dlnwave / 2);
            area += line * dw;
            mean += line * dw * w;
            var += line * dw * w * w;
        }
        mean /= area;
        var = var / area - mean * mean;
        CHECK(worst[0] < 2e-7 && worst[1] < 4e-6, "setup %s: constant spectra change by %g, %g", s->setup, worst[0],
              worst[1]);
        double fwhm = i == 0 ? 2.5 : centre / 3000, fwhm0 = centre / 20000, step = s->step * centre / 5500;
        double want = sigma_line * sigma_line + (fwhm * fwhm - fwhm0 * fwhm0) / (8 * log(2)) + step * step / 12;
        CHECK(fabs(area / (depth * sigma_line * sqrt(2 * 3.14159265358979)) - 1) < 1e-5, "setup %s: area %g", s->setup,
              area);
        CHECK(fabs(mean - centre) < 2e-3, "setup %s: centre %g", s->setup, mean);
        CHECK(fabs(var / want - 1) < 2e-3, "setup %s: variance %g, want %g", s->setup, var, want);
    }
    spx_templates_free(&t);

    /* the batch size and the number of threads change no bit */
    spx_templates one = {0}, two = {0};
    cfg.norm = SPX_NORM_LINEAR;
    cfg.nthreads = 1;
    cfg.ccf = 1;
    double vsini[] = {0, 80};
    cfg.nccf_vsini = 2;
    cfg.ccf_vsini = vsini;
    CHECK(run(&lib, &cfg, flux, 1, &one, NULL, &e) == SPX_OK, "%s", spx_err_text(&e));
    cfg.nthreads = 3;
    CHECK(run(&lib, &cfg, flux, 2, &two, NULL, &e) == SPX_OK, "%s", spx_err_text(&e));
    if (!failures)
        for (size_t i = 0; i < 2; i++) {
            const spx_setup *a = &one.setup[i], *b = &two.setup[i];
            CHECK(!memcmp(a->lnflux, b->lnflux, NT * a->nwave * sizeof(float)), "templates of %s differ", a->setup);
            CHECK(!memcmp(a->ccf.fft2, b->ccf.fft2, a->ccf.ntemp * (a->ccf.nwave + 2) * sizeof(float)),
                  "transforms of %s differ", a->setup);
            const spx_ccf_pca *p = &a->ccf.pca, *q = &b->ccf.pca;
            CHECK(p->ncomp == q->ncomp && p->nshort == q->nshort &&
                      !memcmp(p->comp, q->comp, p->ncomp * (2 * p->nshort + 4) * sizeof(float)) &&
                      !memcmp(p->coef, q->coef, a->ccf.ntemp * p->ncomp * sizeof(float)),
                  "components of the transforms of %s differ", a->setup);
        }
    spx_templates_free(&one);
    spx_templates_free(&two);
    free(wave);
    free(flux);
}

/* A line of a vacuum library is found at its air wavelength in an air setup, and the other way round. */
static void media(void)
{
    enum { N = 40000 };
    double *wave = malloc(N * sizeof *wave), params[1] = {1};
    float *flux = malloc(N * sizeof *flux);
    for (int medium = 0; medium < 2; medium++) {
        const double centre = 6000;
        for (int k = 0; k < N; k++) {
            wave[k] = 1900 + 0.2 * k; /* across the place below which nothing is converted */
            flux[k] = (float)((1 - 0.3 * exp(-0.5 * pow((wave[k] - centre) / 2, 2))) * 6000 / wave[k]);
        }
        spx_template_request r;
        parse(medium == SPX_VACUUM ? "m:5900:6100:0.5:FWHM=2:air" : "m:5900:6100:0.5:FWHM=2:vacuum", &r);
        spx_template_config cfg = {.nsetup = 1, .setup = &r, .norm = SPX_NORM_NONE};
        spx_template_library lib = simple_library(N, wave, 1, params);
        lib.medium = medium ? SPX_AIR : SPX_VACUUM;
        spx_templates t = {0};
        spx_err e = {0};
        CHECK(run(&lib, &cfg, flux, 1, &t, NULL, &e) == SPX_OK, "%s", spx_err_text(&e));
        if (failures)
            exit(1);
        const spx_setup *s = &t.setup[0];
        double area = 0, mean = 0, want = medium ? spx_air_to_vacuum(centre) : spx_vacuum_to_air(centre);
        /* the constant: d(lambda) in the other medium, and lambda of the photons */
        for (size_t k = 0; k < s->nwave; k++) {
            double w = exp(s->lnwave0 + (double)k * s->dlnwave), line = 1 - exp((double)s->lnflux[k]) * w / 6000;
            area += line * w;
            mean += line * w * w;
        }
        CHECK(fabs(mean / area - want) < 2e-3, "line at %.4f, want %.4f", mean / area, want);
        CHECK(s->medium == r.medium, "medium of the setup");
        CHECK(s->npar == 1 && s->naxis[0] == 1 && s->node[0] == 0, "a single template is a grid of one node");
        spx_templates_free(&t);
    }
    free(wave);
    free(flux);
}

static void normalisation(void)
{
    enum { N = 4000 };
    double *wave = malloc(N * sizeof *wave), params[1] = {1};
    float *flux = malloc(N * sizeof *flux);
    for (int k = 0; k < N; k++) {
        wave[k] = 4000 + 0.5 * k;
        flux[k] = (float)(1e-3 * exp(-2e-3 * (wave[k] - 4000)));
    }
    flux[2000] = -1; /* a sample without flux */
    spx_template_request r;
    parse("n:4500:5500:1:FWHM=3", &r);
    for (int norm = 0; norm < 3; norm++) {
        spx_template_config cfg = {.nsetup = 1, .setup = &r, .norm = (spx_norm)norm};
        spx_template_library lib = simple_library(N, wave, 1, params);
        spx_templates t = {0};
        spx_template_report rep;
        spx_err e = {0};
        CHECK(run(&lib, &cfg, flux, 1, &t, &rep, &e) == SPX_OK, "%s", spx_err_text(&e));
        if (failures)
            exit(1);
        const spx_setup *s = &t.setup[0];
        double worst = 0;
        for (size_t k = 0; k < s->nwave; k++) {
            double w = exp(s->lnwave0 + (double)k * s->dlnwave), truth = log(1e-3) - 2e-3 * (w - 4000);
            CHECK(isfinite(s->lnflux[k]), "template at %g is not finite", w);
            if (fabs(w - 5000) < 20)
                continue;
            double got = (double)s->lnflux[k] + (norm == SPX_NORM_MEDIAN ? s->lnnorm[0] : 0);
            worst = fmax(worst, fabs(norm == SPX_NORM_LINEAR ? got : got - truth));
        }
        /* the hole shifts the medians of the halves */
        CHECK(worst < (norm == SPX_NORM_LINEAR ? 0.05 : 1e-4), "normalisation %d: off by %g", norm, worst);
        CHECK(rep.nraised > 0 && rep.nraised < 20, "%zu samples raised", rep.nraised);
        double want = norm == SPX_NORM_NONE ? 0 : log(1e-3) - 2.0;
        CHECK(fabs(s->lnnorm[0] - want) < 0.06, "normalisation %d: lnnorm %g", norm, s->lnnorm[0]);
        spx_templates_free(&t);
    }
    free(wave);
    free(flux);
}

/* ---- principal components ---- */

/* Templates of rank 3 and noise: three components, and what they leave out is the noise. */
static void principal_components(void)
{
    /* more pixels than templates, and fewer; so many that they are found at random, in single precision */
    static const size_t size[][2] = {{40, 120}, {300, 120}, {700, 600}};
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        size_t nt = size[i][0], nw = size[i][1];
        spx_setup s = {.ntemp = nt, .nwave = nw};
        s.lnflux = spx_alloc2(nt, nw, sizeof *s.lnflux, NULL);
        if (!s.lnflux)
            exit(1);
        for (size_t t = 0; t < nt; t++)
            for (size_t k = 0; k < nw; k++) {
                double a = sin(1.7 * (double)t), b = cos(0.9 * (double)t), x = (double)k / (double)nw;
                double noise = 1e-5 * sin(12.9898 * (double)(t * nw + k) + 78.233 * (double)(k % 7));
                s.lnflux[t * nw + k] = (float)(1 + a * x + 0.3 * b * sin(9 * x) + 0.01 * a * b * cos(30 * x) + noise);
            }
        spx_err e = {0};
        CHECK(spx_template_pca(&s, 1e-4, 9e-6, &e) == SPX_OK, "%s", spx_err_text(&e));
        CHECK(s.pca.ncomp > 3 && s.pca.max <= 9e-6, "%zu components leave out %g", s.pca.ncomp, s.pca.max);
        spx_free(s.pca.mean);
        spx_free(s.pca.comp);
        spx_free(s.pca.coef);
        CHECK(spx_template_pca(&s, 1e-4, 0, &e) == SPX_OK, "%s", spx_err_text(&e));
        const spx_pca *p = &s.pca;
        CHECK(p->ncomp == 3, "%zu components", p->ncomp);
        CHECK(p->rms > 5e-6 && p->rms < 9e-6 && p->max > p->rms && p->max < 2e-5, "left out: %g rms, %g at most",
              p->rms, p->max);
        double worst = 0, sum = 0;
        for (size_t t = 0; t < nt; t++)
            for (size_t k = 0; k < nw; k++) {
                double f = p->mean[k];
                for (size_t c = 0; c < p->ncomp; c++)
                    f += p->coef[t * p->ncomp + c] * (double)p->comp[c * nw + k];
                double d = fabs(f - (double)s.lnflux[t * nw + k]);
                worst = fmax(worst, d);
                sum += d * d;
            }
        CHECK(fabs(worst - p->max) < (i < 2 ? 1e-9 : 1e-6) && fabs(sqrt(sum / (double)(nt * nw)) - p->rms) < 1e-7,
              "left out %g, reported %g", worst, p->max);
        for (size_t a = 0; a < p->ncomp; a++)
            for (size_t b = 0; b <= a; b++) {
                double dot = 0;
                for (size_t k = 0; k < nw; k++)
                    dot += (double)p->comp[a * nw + k] * (double)p->comp[b * nw + k];
                CHECK(fabs(dot - (a == b)) < 1e-6, "components %zu and %zu: product %g", a, b, dot);
            }
        spx_setup_free(&s);
    }
}

/* ---- grid of the parameters ---- */

static size_t node_of(const spx_setup *s, size_t i, size_t j, size_t k)
{
    return (i * s->naxis[1] + j) * s->naxis[2] + k;
}

static void grid(void)
{
    static const double teff[] = {4000, 5000, 6000, 8000}, feh[] = {-1, -0.5, 0}, alpha[] = {0, 0.4};
    enum { FULL = 24 };
    spx_err e = {0};
    spx_template_fill fill;
    spx_setup s = {.npar = 4, .parname = {"teff", "feh", "alpha", "logg"}, .parlog = {1, 0, 0, 0}};
    s.params = spx_alloc2(FULL, 4, sizeof(double), &e);
    for (size_t i = 0; i < FULL; i++) {
        size_t k = (i * 7) % FULL; /* in no order */
        if (k == 9 || k == 23)
            continue; /* hole in the middle (5000, -0.5, 0.4), and a corner (8000, 0, 0.4) */
        double *p = s.params + 4 * s.ntemp++;
        p[0] = teff[k / 6] + 0.01 * sin((double)i); /* rounded */
        p[1] = (double)(float)feh[k / 2 % 3];
        p[2] = (double)(float)alpha[k % 2];
        p[3] = 4.5;
    }
    CHECK(spx_template_grid(&s, &fill, &e) == SPX_OK, "%s", spx_err_text(&e));
    if (failures)
        exit(1);
    CHECK(s.naxis[0] == 4 && s.naxis[1] == 3 && s.naxis[2] == 2 && s.naxis[3] == 1, "axes %zu %zu %zu %zu", s.naxis[0],
          s.naxis[1], s.naxis[2], s.naxis[3]);
    CHECK(s.ntemp == FULL && fill.nfill == 2, "%zu templates, %zu filled", s.ntemp, fill.nfill);
    int used[FULL] = {0};
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 3; j++)
            for (size_t k = 0; k < 2; k++) {
                size_t row = (size_t)s.node[node_of(&s, i, j, k)];
                CHECK(row < FULL && !used[row]++, "row %zu is on two nodes", row);
                CHECK(fabs(s.params[4 * row] - teff[i]) < 0.02 && fabs(s.params[4 * row + 1] - feh[j]) < 1e-6 &&
                          fabs(s.params[4 * row + 2] - alpha[k]) < 1e-6,
                      "node %zu %zu %zu has row %zu", i, j, k, row);
                CHECK(s.filled[row] == (row >= FULL - 2), "row %zu filled", row);
            }
    /* the hole: between teff 4000 and 6000 in log, and between feh -1 and 0, half each; alpha has one side only */
    size_t hole = (size_t)s.node[node_of(&s, 1, 1, 1)] - (FULL - 2), corner = 1 - hole;
    double low = (log10(6000) - log10(5000)) / (log10(6000) - log10(4000)), sum = 0, at4000 = 0;
    for (size_t j = fill.start[hole]; j < fill.start[hole + 1]; j++) {
        sum += fill.weight[j];
        if (fill.row[j] == s.node[node_of(&s, 0, 1, 1)])
            at4000 = fill.weight[j];
    }
    CHECK(fill.start[hole + 1] - fill.start[hole] == 4 && fabs(sum - 1) < 1e-14 && fabs(at4000 - low / 2) < 1e-5,
          "hole: %zu sources, sum %g, weight of 4000 K %g", fill.start[hole + 1] - fill.start[hole], sum, at4000);
    CHECK(fill.start[corner + 1] - fill.start[corner] == 1 && fill.weight[fill.start[corner]] == 1,
          "a corner copies its nearest node");
    spx_template_fill_free(&fill);
    spx_setup_free(&s);

    /* twice the same; irregular; log of zero */
    for (int trial = 0; trial < 3; trial++) {
        static const char *const why[] = {"same parameters", "no regular grid", "no logarithm"};
        spx_setup b = {.npar = 2, .parname = {"teff", "feh"}, .parlog = {trial == 2, 0}, .ntemp = 30};
        b.params = spx_alloc2(30, 2, sizeof(double), &e);
        for (size_t i = 0; i < 30; i++) {
            b.params[2 * i] = trial == 1 ? sin((double)(i * i)) : (double)(i / 5);
            b.params[2 * i + 1] = trial == 1 ? cos((double)(i * i * i)) : (double)(i % 5);
        }
        if (trial == 0)
            b.params[14] = b.params[16], b.params[15] = b.params[17];
        spx_err_clear(&e);
        CHECK(spx_template_grid(&b, &fill, &e) == SPX_EINPUT && strstr(spx_err_text(&e), why[trial]), "trial %d: %s",
              trial, spx_err_text(&e));
        spx_template_fill_free(&fill);
        spx_setup_free(&b);
    }

    /* an even subset: every value of every axis is there */
    double p[MOCK_NTEMP * MOCK_NPAR];
    size_t pick[MOCK_NTEMP], npick, seen[11] = {0};
    for (int i = 0; i < MOCK_NTEMP; i++)
        mock_library_params(i, p + 4 * i);
    spx_err_clear(&e);
    CHECK(spx_template_ccf_rows(MOCK_NTEMP, 4, p, 10, pick, &npick, &e) == SPX_OK && npick == 93, "%zu picks", npick);
    for (size_t i = 0; i < npick; i++)
        seen[pick[i] / 84]++;
    for (int i = 0; i < 11; i++)
        CHECK(seen[i] >= 3 && seen[i] <= 14, "%zu picks at temperature %d", seen[i], i);
}

/* ---- cross-correlation set ---- */

/* Any number of parameters from one to six, any mapping, as a grid, in simplices, and by a network. */
static void parameters(void)
{
    enum { NW = 400, MOST = 64 };
    static double wave[NW], par[MOST * 6];
    static float flux[MOST][NW];
    for (size_t k = 0; k < NW; k++)
        wave[k] = 5000 + 0.25 * (double)k;
    for (size_t np = 1; np <= 6; np++) {
        size_t side = np == 1 ? 24 : (np == 2 ? 6 : (np == 3 ? 4 : 2)), nt = 1;
        for (size_t p = 0; p < np; p++)
            nt *= side;
        spx_template_library lib = {.nwave = NW, .wavelength = wave, .ntemp = nt, .npar = np, .params = par};
        spx_template_request request;
        /* a network needs 20 templates */
        spx_template_config cfg = {.nsetup = 1,
                                   .setup = &request,
                                   .pca_error = 1e-5,
                                   .nn = {.nhidden = nt >= 20, .hidden = {8}, .epochs = 5, .seed = 1},
                                   .nthreads = 1};
        for (size_t p = 0; p < np; p++) {
            (void)snprintf(lib.parname[p], sizeof lib.parname[p], "quantity_%zu", p);
            cfg.parlog[p] = p % 2 == 0;
        }
        for (size_t t = 0; t < nt; t++) {
            size_t rest = t;
            for (size_t p = 0; p < np; p++, rest /= side)
                par[t * np + p] = (double)((1 + rest % side) * (p + 1));
            for (size_t k = 0; k < NW; k++) {
                double tau = 0;
                for (size_t p = 0; p < np; p++)
                    tau += 0.02 * log(par[t * np + p] + 1) * (1 + sin((double)(k * (p + 2)) / 9));
                flux[t][k] = (float)exp(-tau);
            }
        }
        parse("a:5010:5090:0.5:FWHM=1", &request);
        for (int which = SPX_TEMPLATE_GRID; which <= SPX_TEMPLATE_SIMPLEX; which++) {
            spx_templates out = {0};
            spx_err e = {0};
            cfg.interpolator = (spx_template_interpolator)which;
            CHECK(run(&lib, &cfg, flux[0], 7, &out, NULL, &e) == SPX_OK, "%zu parameters: %s", np, spx_err_text(&e));
            const spx_setup *s = out.setup;
            if (!s)
                return;
            CHECK(s->npar == np && s->ntemp == nt && !s->node == (which == SPX_TEMPLATE_SIMPLEX) &&
                      !s->simplex == (which == SPX_TEMPLATE_GRID),
                  "%zu parameters", np);
            for (size_t p = 0; p < np && s->node; p++)
                CHECK(s->naxis[p] == side && s->axis[p][1] == 2 * (double)(p + 1), "axis %zu of %zu", p, np);
            CHECK(!s->simplex || (s->ncorner == np + 1 && s->nsimplex >= 1), "%zu corners for %zu parameters",
                  s->ncorner, np);
            CHECK((s->nn.nlayer == 2) == (nt >= 20), "%zu parameters: no network", np);
            for (size_t p = 0; p < np && s->nn.nlayer > 0; p++) {
                double first = (double)(p + 1), last = first * (double)side;
                CHECK(fabs(s->nn.lo[p] - (p % 2 ? first : log10(first))) < 1e-12 &&
                          fabs(s->nn.hi[p] - (p % 2 ? last : log10(last))) < 1e-12,
                      "range of parameter %zu of %zu", p, np);
            }
            spx_templates_free(&out);
        }
    }
}

/* Libraries of 16 spectra whose parameters span a volume, and such that lie on a line or a plane in it. */
static void span(void)
{
    enum { NT = 16 };
    static const struct {
        const char *what;
        int parlog;
        const char *why; /* NULL: they span a volume */
    } lib[] = {{"volume", 1, NULL},
               {"line", 0, "16 spectra lie on a line: of a, b, c only 1 can"},
               {"rounded", 1, "16 spectra lie on a plane: of a, b only 1 can"},
               {"logarithm", 1, "16 spectra lie on a line, in logarithms: of a, b only 1 can"},
               {"logarithm", 0, NULL},
               {"constant", 1, NULL}};
    for (size_t i = 0; i < sizeof lib / sizeof *lib; i++) {
        double par[NT][3];
        spx_setup s = {.ntemp = NT, .npar = 3, .params = par[0], .parname = {"a", "b", "c"}, .parlog = {lib[i].parlog}};
        spx_err e = {0};
        for (int t = 0; t < NT; t++) {
            const double a = 4000 + 150 * t;
            const int kind = lib[i].what[0];
            par[t][0] = a;
            par[t][1] = kind == 'l' ? (lib[i].what[1] == 'i' ? a / 1000 : log10(a)) : round(0.0017 * a * 100) / 100;
            par[t][2] = kind == 'l' ? (lib[i].what[1] == 'i' ? -a : 2) : t * t % 7;
            if (kind == 'v' || kind == 'c')
                par[t][1] = t * t * t % 11;
            if (kind == 'c')
                par[t][2] = 1;
        }
        const spx_status st = spx_template_span(&s, &e);
        CHECK(st == (lib[i].why ? SPX_EINPUT : SPX_OK) && (!lib[i].why || strstr(spx_err_text(&e), lib[i].why)),
              "%s, %d: %s", lib[i].what, lib[i].parlog, spx_err_text(&e));
    }
}

static void ccf(void)
{
    enum { N = 8000 };
    double *wave = malloc(N * sizeof *wave), params[2] = {0, 1}, vsini[] = {0, 300};
    float *flux = malloc(2 * N * sizeof *flux);
    for (int k = 0; k < N; k++) {
        wave[k] = 4000 + 0.25 * k;
        double line = exp(-0.5 * pow((wave[k] - 5000) / 1.5, 2));
        flux[k] = (float)(exp(1e-3 * (wave[k] - 5000)) * (1 - 0.6 * line));
        flux[N + k] = (float)(7 * exp(-1e-3 * (wave[k] - 5000)) * (1 - 0.3 * line));
    }
    spx_template_request r;
    parse("c:4500:5500:0.5:FWHM=2", &r);
    spx_template_config cfg = {
        .nsetup = 1, .setup = &r, .norm = SPX_NORM_MEDIAN, .ccf = 1, .nccf_vsini = 2, .ccf_vsini = vsini};
    spx_template_library lib = simple_library(N, wave, 2, params);
    spx_templates t = {0};
    spx_template_report rep;
    spx_err e = {0};
    CHECK(run(&lib, &cfg, flux, 2, &t, &rep, &e) == SPX_OK, "%s", spx_err_text(&e));
    if (failures)
        exit(1);
    const spx_setup *s = &t.setup[0];
    const spx_ccf_set *c = &s->ccf;
    CHECK(c->ntemp == 4 && rep.nccf == 4 && c->nwave == 4096 && c->lnwave0 == s->lnwave0, "%zu entries of %zu",
          c->ntemp, c->nwave);
    for (size_t i = 0; i < c->ntemp; i++) {
        const float *f = c->flux + i * c->nwave, *fft = c->fft + i * (c->nwave + 2),
                    *fft2 = c->fft2 + i * (c->nwave + 2);
        double sum = 0, sum2 = 0, deepest = 0, at = 0;
        for (size_t k = 0; k < c->nwave; k++) {
            sum += (double)f[k];
            sum2 += (double)f[k] * (double)f[k];
            if ((double)f[k] < deepest) {
                deepest = (double)f[k];
                at = exp(c->lnwave0 + (double)k * c->dlnwave);
            }
            CHECK(k < s->nwave || f[k] == 0, "padding is not 0");
        }
        CHECK(c->params[i] == (double)(i / 2) && c->vsini[i] == vsini[i % 2], "entry %zu", i);
        CHECK(fabs((double)fft[0] - sum) < 1e-4 && fabs((double)fft2[0] - sum2) < 1e-4 && fft[1] == 0, "transform %zu",
              i);
        CHECK(fabs(at - 5000) < 3 && deepest < (i % 2 ? -0.05 : -0.2), "entry %zu: line of %g at %g", i, deepest, at);
        CHECK(fabs((double)f[s->nwave / 4]) < 0.01, "entry %zu: continuum off by %g", i, (double)f[s->nwave / 4]);
    }
    /* Components leave out less than 0.04 of the rms of the transforms and of those of the squares. */
    const spx_ccf_pca *p = &c->pca;
    double all = 0, left = 0;
    for (size_t i = 0; i < c->ntemp; i++)
        for (size_t part = 0; part < 2; part++)
            for (size_t k = 0; k < c->nwave + 2; k++) {
                const float *z = (part ? c->fft2 : c->fft) + i * (c->nwave + 2);
                double d = (double)z[k];
                all += d * d;
                for (size_t m = 0; m < p->ncomp && k < p->nshort; m++)
                    d -= (double)(p->coef[i * p->ncomp + m] * p->comp[(2 * m + part) * (p->nshort + 2) + k]);
                left += k < p->nshort ? d * d : 0;
            }
    CHECK(p->ncomp >= 1 && p->ncomp <= c->ntemp && p->nshort <= c->nwave && left <= 0.04 * 0.04 * all && all > 0,
          "%zu components up to frequency %zu leave out %g of %g", p->ncomp, p->nshort / 2, left, all);
    spx_templates_free(&t);
    free(wave);
    free(flux);

    double lnw[3] = {8, 8.1, 8.2}, y[3] = {-1, 0, -3}, cont[3];
    uint8_t bad[3] = {1, 1, 1};
    CHECK(!spx_continuum_find(8, 8.2, 3, lnw, y, bad, cont, &e) && cont[1] == 1, "continuum without pixels");
    CHECK(!spx_continuum_find(8, 8.2, 3, lnw, y, NULL, cont, &e) && cont[0] > 0 && isfinite(cont[0]),
          "continuum of negative flux");
}

/* ---- what is refused ---- */

static void refused_setup(const char *text, const char *why)
{
    spx_template_request r;
    spx_err e = {0};
    CHECK(spx_template_parse_setup(text, &r, &e) == SPX_EUSAGE && strstr(spx_err_text(&e), why), "'%.80s': %s", text,
          spx_err_text(&e));
}

static void refused_job(const spx_template_library *lib, const char *setup, const char *resolution, const float *flux,
                        spx_status code, const char *why)
{
    spx_template_request r;
    spx_err e = {0};
    spx_templates t = {0};
    parse(setup, &r);
    spx_template_config cfg = {.nsetup = 1, .setup = &r};
    strcpy(cfg.library_resolution, resolution);
    spx_status st = run(lib, &cfg, flux, lib->ntemp, &t, NULL, &e);
    CHECK(st == code && strstr(spx_err_text(&e), why), "%s: status %d, '%s', want '%s'", setup, (int)st,
          spx_err_text(&e), why);
    if (st == SPX_OK)
        spx_templates_free(&t);
}

static void refusals(void)
{
    char text[400];
    refused_setup("", "is wanted");
    refused_setup("r:1:2:3", "is wanted");
    refused_setup("r:5000:6000:0.4:R=1:air:more", "is wanted");
    refused_setup(":5000:6000:0.4:R=1", "no name");
    refused_setup("a/b:5000:6000:0.4:R=1", "letters");
    refused_setup("..:5000:6000:0.4:R=1", "dot");
    refused_setup("r:6000:5000:0.4:R=1", "empty");
    refused_setup("r:-1:5000:0.4:R=1", "empty");
    refused_setup("r:nan:5000:0.4:R=1", "wavelength");
    refused_setup("r:1e300:2e300:1e299:R=1", "impossible");
    refused_setup("r:5000:6000:0:R=1", "step");
    refused_setup("r:5000:6000:1e-12:R=1", "pixels");
    refused_setup("r:5000:6000:900:R=1", "step");
    refused_setup("r:5000:6000:0.4:1000", "R=EXPRESSION");
    refused_setup("r:5000:6000:0.4:R=", "missing");
    refused_setup("r:5000:6000:0.4:R=x+", "missing");
    refused_setup("r:5000:6000:0.4:R=5:water", "water");
    memset(text, 'n', 399);
    text[399] = 0;
    refused_setup(text, "is wanted");
    memcpy(text + 100, ":1:2:.1:R=1", 12);
    refused_setup(text, "longer");

    enum { N = 3000 };
    static double wave[N], params[2] = {0, 1};
    static float flux[2 * N];
    for (int k = 0; k < N; k++) {
        wave[k] = 5000 + 0.5 * k;
        flux[k] = flux[N + k] = 1;
    }
    spx_template_library lib = simple_library(N, wave, 2, params);
    refused_job(&lib, "r:4900:6000:0.5:R=2000", "", flux, SPX_EINPUT, "covers 5000 to 6499.5");
    refused_job(&lib, "r:5100:6500:0.5:R=2000", "", flux, SPX_EINPUT, "covers");
    refused_job(&lib, "r:5100:6000:0.5:R=2000", "1000", flux, SPX_EUSAGE, "library's own");
    refused_job(&lib, "r:5100:6000:0.5:R=2000-x", "", flux, SPX_EUSAGE, "resolution R is -");
    refused_job(&lib, "r:5100:6000:0.5:R=1/(x-x)", "", flux, SPX_EUSAGE, "resolution R is inf");
    refused_job(&lib, "r:5100:6000:0.5:FWHM=1e6", "", flux, SPX_EUSAGE, "wider");
    refused_job(&lib, "r:5100:6000:0.5:R=2000", "R=log(0)", flux, SPX_EUSAGE, "library");
    refused_job(&lib, "r:5100:6000:0.5:R=2000", "hello", flux, SPX_EUSAGE, "unknown name");
    refused_job(&lib, "r:5000:6499.5:0.5:R=2000", "R=2000", flux, SPX_OK, "");
    flux[N + 1000] = NAN;
    refused_job(&lib, "r:5100:6000:0.5:R=2000", "", flux, SPX_EINPUT, "spectrum 1 of the library (number 1)");
    memset(flux + N, 0, N * sizeof *flux);
    refused_job(&lib, "r:5100:6000:0.5:R=2000", "", flux, SPX_EINPUT, "no flux");
    params[1] = 0;
    refused_job(&lib, "r:5100:6000:0.5:R=2000", "", flux, SPX_EINPUT, "same parameters");
    params[1] = INFINITY;
    refused_job(&lib, "r:5100:6000:0.5:R=2000", "", flux, SPX_EINPUT, "not finite");
    params[1] = 1;
    wave[7] = wave[6];
    refused_job(&lib, "r:5100:6000:0.5:R=2000", "", flux, SPX_EINPUT, "do not increase at sample 7");
}

/* ---- rvspecfit's own templates of four spectra ---- */

static void read_reference(hid_t file, const char *setup, const char *name, hid_t type, size_t n, void *out)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", setup, name);
    hid_t d = H5Dopen2(file, path, H5P_DEFAULT), space = H5Dget_space(d);
    if (H5Sget_simple_extent_npoints(space) != (hssize_t)n ||
        H5Dread(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) < 0) {
        printf("%s: unreadable, or not of %zu values\n", path, n);
        exit(1);
    }
    H5Sclose(space);
    H5Dclose(d);
}

static void reference(hid_t file)
{
    enum { NT = 4 };
    double par[NT * MOCK_NPAR], number[NT] = {0, 1, 2, 3};
    mock_library *m = mock_library_make();
    float *flux = malloc(sizeof *flux * NT * MOCK_NWAVE);
    spx_template_request r[3];
    parse("desi_b:3500:5900:0.4:R=x/1.55", &r[0]);
    parse("desi_r:5660:7720:0.4:R=x/1.55", &r[1]);
    parse("desi_z:7420:9924:0.4:R=x/1.55", &r[2]);
    read_reference(file, "desi_b", "params", H5T_NATIVE_DOUBLE, NT * MOCK_NPAR, par);
    for (size_t i = 0; i < NT; i++)
        mock_library_flux(m, par + i * MOCK_NPAR, flux + i * MOCK_NWAVE);
    /* four of the 924 make no grid of their four parameters: they are numbered here */
    spx_template_library lib = simple_library(MOCK_NWAVE, m->wave, NT, number);
    spx_template_config cfg = {
        .nsetup = 3, .setup = r, .norm = SPX_NORM_LINEAR, .library_resolution = "100000", .straight = 1};
    spx_templates t = {0};
    spx_err e = {0};
    CHECK(run(&lib, &cfg, flux, NT, &t, NULL, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (size_t i = 0; i < t.nsetup; i++) {
        const spx_setup *s = &t.setup[i];
        double *wave = malloc(s->nwave * sizeof *wave);
        float *want = malloc(NT * s->nwave * sizeof *want);
        read_reference(file, s->setup, "wavelength", H5T_NATIVE_DOUBLE, s->nwave, wave);
        read_reference(file, s->setup, "ln_flux", H5T_NATIVE_FLOAT, NT * s->nwave, want);
        for (size_t k = 0; k < s->nwave; k++)
            CHECK(fabs(exp(s->lnwave0 + (double)k * s->dlnwave) / wave[k] - 1) < 1e-10, "%s: pixel %zu", s->setup, k);
        for (size_t q = 0; q < NT; q++) {
            double rms = 0, worst = 0;
            for (size_t k = 0; k < s->nwave; k++) {
                double d = (double)s->lnflux[q * s->nwave + k] - (double)want[q * s->nwave + k];
                rms += d * d;
                worst = fmax(worst, fabs(d));
            }
            rms = sqrt(rms / (double)s->nwave);
            /* float32 rounds at 6e-8 a value of 1; what remains is the normalisation of the weights and the end pixels
             */
            CHECK(rms < 1e-6 && worst < 2e-5, "%s, template %zu: rms %g, largest difference %g", s->setup, q, rms,
                  worst);
        }
        free(wave);
        free(want);
    }
    spx_templates_free(&t);
    free(flux);
    free(m);
}

int main(void)
{
    char name[4096];
    const char *shared = getenv("SPX_SHARED");
    instruction_sets();
    rotation();
    rotation_response();
    rotation_linear();
    lsf();
    lsf_widths();
    convolution();
    media();
    normalisation();
    principal_components();
    parameters();
    grid();
    span();
    ccf();
    refusals();
    if (failures)
        return 1;
    snprintf(name, sizeof name, "%s/data/rv/reference-templates.h5", shared ? shared : "../shared");
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    hid_t file = H5Fopen(name, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (file < 0) {
        puts("the rest passed, but the reference templates (rv/reference-templates.h5) are absent");
        return 77;
    }
    reference(file);
    H5Fclose(file);
    return failures != 0;
}
