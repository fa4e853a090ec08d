/* kernels/sky against dense algebra, against what was put in, and with input that is hardly there.
 *
 * Tolerances: dense solutions in double have a rounding of 1e-9 errors where the normal matrix has a condition of 1e6.
 * chi2 of n bins has an error of sqrt(2/n); 4 of these are allowed, and 0.02 for what the reweighting and
 * the prior take. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "check.h"
#include "device.h"
#include "num/stat.h"
#include "sky_scene.h"

static spx_backend backend;

static int solve(const sky_scene *c, const spx_sky_options *o, spx_sky *out)
{
    spx_err e = {0};
    const spx_status st = backend.sky(&backend, &c->in, o, out, &e);
    CHECK(st == SPX_OK, "%s", spx_err_text(&e));
    return st == SPX_OK;
}

static double element(const sky_scene *c, size_t i, size_t k, size_t j)
{
    const size_t nd = c->in.ndiag, n = c->in.nwave;
    const long b = (long)(nd / 2) + (long)k - (long)j;
    return b < 0 || b >= (long)nd ? 0 : c->resolution[(i * nd + (size_t)b) * n + j];
}

/* Inverse of a symmetric positive definite matrix by Gauss-Jordan elimination, in place. */
static void invert(size_t n, double *a)
{
    double *inv = sky_need(n * n, 8);
    for (size_t i = 0; i < n; i++)
        inv[i * n + i] = 1;
    for (size_t p = 0; p < n; p++) {
        const double scale = 1 / a[p * n + p];
        for (size_t j = 0; j < n; j++) {
            a[p * n + j] *= scale;
            inv[p * n + j] *= scale;
        }
        for (size_t i = 0; i < n; i++) {
            const double f = a[i * n + p];
            for (size_t j = 0; j < n && i != p; j++) {
                a[i * n + j] -= f * a[p * n + j];
                inv[i * n + j] -= f * inv[p * n + j];
            }
        }
    }
    memcpy(a, inv, n * n * sizeof *a);
    spx_free(inv);
}

/* s, its modes, their variances in every fibre: without quantities of fibres the problem is linear, and one dense
 * inverse says all. */
static void against_dense(int what)
{
    enum { NS = 9, N = 120, ND = 7 };
    sky_scene c;
    spx_sky out = {0};
    spx_sky_options o = spx_sky_defaults();
    random_start(17 + (uint64_t)what);
    sky_make(&c, NS, N, ND, 2, what, 1);
    o.terms = (spx_sky_terms){0, 0, 0};
    o.scale = SPX_SKY_SCALE_NONE;
    o.reject = 0;
    o.tolerance = 1e-12;
    o.most_passes = 60;
    o.gradient_knots = 30;
    if (solve(&c, &o, &out)) {
        /* columns: bins of s, splines of the gradient, halves of an amplifier */
        const spx_bspline s = spx_bspline_of(c.wavelength[0], c.wavelength[N - 1], o.gradient_knots);
        const size_t ng = what & SKY_GRADIENT ? s.n : 0, na = what & SKY_SECTORS ? 2 : 0, m = N + ng + na;
        double *a = sky_need(m * m, 8), *y = sky_need(m, 8), *g = sky_need(NS * N * m, 8), *x = sky_need(m, 8);
        double low = INFINITY, high = -INFINITY, sky[N], v[NS], largest = 0, mean = 0, used = 0;
        for (size_t i = 0; i < NS; i++) {
            low = fmin(low, c.x[i]);
            high = fmax(high, c.x[i]);
            if (c.role[i] == SPX_SKY_FIBRE) {
                mean += c.velocity[i];
                used++;
            }
        }
        mean /= used;
        for (size_t i = 0; i < NS; i++) {
            /* R_i S_i [1, x B, side]; S as a matrix: what it does to each unit vector */
            double *shift = sky_need(N * N, 8), unit[N] = {0};
            for (size_t j = 0; j < N; j++) {
                unit[j] = 1;
                for (size_t k = 0; k < N; k++) {
                    const double q = c.wavelength[k] * (mean - c.velocity[i]) / (299792.458 * 0.8);
                    shift[k * N + j] = what & SKY_VELOCITY ? spx_interpolate8(N, unit, k, q) : k == j;
                }
                unit[j] = 0;
            }
            for (size_t k = 0; k < N; k++)
                for (size_t l = k < ND ? 0 : k - ND; l <= k + ND && l < N; l++) {
                    const double r = element(&c, i, k, l);
                    double b[4];
                    double *to = g + (i * N + k) * m;
                    for (size_t j = 0; j < N; j++)
                        to[j] += r * shift[l * N + j];
                    const size_t first = spx_bspline_at(&s, c.wavelength[l], b);
                    for (size_t t = 0; t < 4 && ng > 0; t++)
                        to[N + first + t] += r * b[t] * (c.x[i] - low) / (high - low);
                    if (na > 0)
                        to[N + ng + (l < c.in.split ? 0 : 1)] += r * c.side[i];
                }
            spx_free(shift);
            for (size_t k = 0; k < N && c.role[i] == SPX_SKY_FIBRE; k++) {
                const double *row = g + (i * N + k) * m, w = c.ivar[i * N + k];
                for (size_t p = 0; p < m; p++) {
                    y[p] += row[p] * w * c.flux[i * N + k];
                    for (size_t q = 0; q < m && row[p] != 0; q++)
                        a[p * m + q] += row[p] * w * row[q];
                }
            }
        }
        for (size_t k = 0; k < N; k++) {
            size_t nv = 0;
            for (size_t i = 0; i < NS; i += 2)
                v[nv++] = c.ivar[i * N + k] > 0 ? c.flux[i * N + k] : NAN;
            for (size_t p = 0; p < nv;)
                if (isnan(v[p]))
                    v[p] = v[--nv];
                else
                    p++;
            sky[k] = fabs(spx_median(v, nv));
        }
        const double median = spx_median(sky, N);
        for (size_t p = N; p < m; p++)
            a[p * m + p] += 1 / (median * median);
        for (size_t k = 0; k < N; k++)
            largest = fmax(largest, a[k * m + k]);
        for (size_t k = 0; k < N; k++)
            a[k * m + k] += 1e-10 * largest;
        invert(m, a);
        for (size_t p = 0; p < m; p++)
            for (size_t q = 0; q < m; q++)
                x[p] += a[p * m + q] * y[q];
        double worst = 0, worst_variance = 0;
        for (size_t i = 0; i < NS; i++)
            for (size_t k = 0; k < N; k++) {
                const double *row = g + (i * N + k) * m;
                double model = 0, variance = 0;
                for (size_t p = 0; p < m; p++) {
                    double sum = 0;
                    model += row[p] * x[p];
                    for (size_t q = 0; q < m && row[p] != 0; q++)
                        sum += a[p * m + q] * row[q];
                    variance += row[p] * sum;
                }
                /* at the ends of the grid the sky of other fibres is extrapolated, and S has no inverse there */
                if (out.bad[k] || (what & SKY_VELOCITY && (k < 8 || k + 8 >= N)))
                    continue;
                worst = fmax(worst, fabs(out.model[i * N + k] - model) / sqrt(variance));
                worst_variance = fmax(worst_variance, fabs(out.variance[i * N + k] / variance - 1));
            }
        printf("scene %d: model off by %.2g of its error, variance by %.2g\n", what, worst, worst_variance);
        /* right-hand sides and C are without S, which differs from 1 by some 1e-2: noise is weighted by as much less
         * than best */
        CHECK(worst < (what & SKY_VELOCITY ? 0.1 : 1e-6), "scene %d: model off by %g of its error", what, worst);
        CHECK(worst_variance < (what & SKY_VELOCITY ? 0.05 : 1e-6), "scene %d: variance off by %g", what,
              worst_variance);
        spx_free(a);
        spx_free(y);
        spx_free(g);
        spx_free(x);
    }
    spx_sky_free(&out);
    sky_free(&c);
}

/* chi2 of what was put in, in targets and held-out fibres, by the variance that is given. */
static double truth_chi2(const sky_scene *c, const spx_sky *out, int sky)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < out->nspec; i++)
        for (size_t k = 0; k < out->nwave; k++)
            if ((out->role[i] == SPX_SKY_FIBRE) == sky && !out->bad[k]) {
                const double r = out->model[i * out->nwave + k] - c->light[i * out->nwave + k];
                sum += r * r / out->variance[i * out->nwave + k];
                n++;
            }
    return sum / (double)n;
}

static void all_finite(const spx_sky *out)
{
    int good = 1;
    for (size_t k = 0; k < out->nspec * out->nwave; k++)
        good = good && isfinite(out->model[k]) && isfinite(out->variance[k]) && out->variance[k] >= 0;
    for (size_t k = 0; k < out->nspec * out->nq; k++)
        good = good && isfinite(out->p[k]);
    for (size_t k = 0; k < out->nwave; k++)
        good = good && isfinite(out->s[k]);
    for (size_t i = 0; i < out->nspec; i++)
        good = good && isfinite(out->chi2[i]) && isfinite(out->chi2_loo[i]);
    CHECK(good, "not finite");
}

/* Models against the truth, in units of their errors. */
static void against_truth(int what, spx_sky_scale scale)
{
    sky_scene c;
    spx_sky out = {0};
    spx_sky_options o = spx_sky_defaults();
    random_start(23 + (uint64_t)what);
    sky_make(&c, 120, 900, 11, 3, what, 1);
    o.nthreads = 2;
    o.scale = scale;
    c.role[0] = c.role[30] = c.role[60] = c.role[90] = SPX_SKY_HELD_OUT;
    if (solve(&c, &o, &out)) {
        const double targets = truth_chi2(&c, &out, 0), fitted = truth_chi2(&c, &out, 1);
        printf("scene %d: chi2 of models %.3f (sky), %.3f (others); loo %.3f %.3f %.3f; held out %.3f %.3f %.3f; %zu "
               "passes\n",
               what, fitted, targets, out.loo[0], out.loo[1], out.loo[2], out.held_out[0], out.held_out[1],
               out.held_out[2], out.passes);
        all_finite(&out);
        for (size_t k = 0; k < SPX_SKY_CLASSES; k++) {
            const double error = sqrt(2. / (double)out.nfitted[k]), held = sqrt(2. / (double)out.nheld_out[k]);
            CHECK(fabs(out.loo[k] - 1) < 0.02 + 4 * error, "scene %d: chi2 %zu is %g +- %g", what, k, out.loo[k],
                  error);
            CHECK(fabs(out.held_out[k] - 1) < 0.02 + 4 * held, "scene %d: held out, chi2 %zu is %g +- %g", what, k,
                  out.held_out[k], held);
        }
        /* errors of models are common to all fibres: fewer degrees of freedom than bins */
        CHECK(targets > 0.6 && targets < 1.5, "scene %d: chi2 of models %g", what, targets);
    }
    spx_sky_free(&out);
    sky_free(&c);
}

static double scatter(const double *v, size_t n, double *median)
{
    double *copy = sky_need(n, sizeof *copy); /* spx_median() leaves another array behind */
    memcpy(copy, v, n * sizeof *copy);
    *median = spx_median(copy, n);
    for (size_t i = 0; i < n; i++)
        copy[i] = fabs(v[i] - *median);
    const double s = 1.4826 * spx_median(copy, n);
    spx_free(copy);
    return s;
}

/* Scales and shifts of sky fibres and targets in units of their errors, over frames of other noise, fibres and lines;
 * with 5 sky fibres errors of the common part are larger, and not as well known. */
static void pulls(size_t every, double allowed, double shrunk)
{
    enum { SEEDS = 8, NS = 120 };
    static double pull[2][2][SEEDS * NS];
    size_t n[2] = {0, 0};
    double median;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        sky_scene c;
        spx_sky out = {0};
        spx_sky_options o = spx_sky_defaults();
        random_start(100 + seed);
        sky_make(&c, NS, 700, 11, every, SKY_SHIFTS | SKY_STARS, 1);
        o.nthreads = 2;
        if (solve(&c, &o, &out)) {
            double mean[2] = {0, 0}, used = 0;
            for (size_t i = 0; i < NS; i += every, used++) {
                mean[0] += c.t[i];
                mean[1] += c.delta[i];
            }
            for (size_t i = 0; i < NS; i++) {
                const size_t who = out.role[i] != SPX_SKY_FIBRE;
                pull[0][who][n[who]] = (out.p[i * 4] - c.t[i] * used / mean[0]) / sqrt(out.cov[i * 16]);
                pull[1][who][n[who]++] = (out.p[i * 4 + 1] - c.delta[i] + mean[1] / used) / sqrt(out.cov[i * 16 + 5]);
            }
        }
        spx_sky_free(&out);
        sky_free(&c);
    }
    for (size_t q = 0; q < 2; q++)
        for (size_t who = 0; who < 2; who++) {
            const double s = scatter(pull[q][who], n[who], &median), error = 1 / sqrt((double)n[who]);
            printf("1 of %zu fibres sky, %s of %s: pulls of %zu fibres: median %+.3f, scatter %.3f\n", every,
                   q == 0 ? "t" : "delta", who == 0 ? "sky" : "targets", n[who], median, s);
            CHECK(fabs(s - 1) < allowed + 3.5 * 1.2 * error, "scatter of pulls %g", s);
            /* targets: reweighting, and the noise of a sky of few fibres, which makes t smaller */
            CHECK(fabs(median) < (who == 0 ? 0.1 : shrunk) + 3.5 * 1.25 * error, "median of pulls %g", median);
        }
}

/* A fifth of the bins off, a star in a sky fibre, a variance that is four times too small, all in one go, each alone.
 */
static void odd(const char *name, int which)
{
    enum { NS = 60, N = 600 };
    sky_scene c;
    spx_sky out = {0};
    spx_sky_options o = spx_sky_defaults();
    random_start(31);
    sky_make(&c, NS, N, 11, 3, SKY_SHIFTS | SKY_STARS, which == 3 ? 2 : 1);
    size_t outliers = 0;
    for (size_t i = 0; i < NS && which == 1; i++)
        for (size_t k = 0; k < N; k++)
            if (c.role[i] == SPX_SKY_FIBRE && uniform() < 0.004) {
                c.flux[i * N + k] += (8 + 92 * uniform()) / sqrt(c.ivar[i * N + k]);
                outliers++;
            }
    for (size_t k = 0; k < N && which == 2; k++)
        c.flux[6 * N + k] += 80;
    for (size_t i = 0; i < NS && which == 4; i++)
        for (size_t k = 200; k < 203; k++)
            c.ivar[i * N + k] = c.role[i] == SPX_SKY_FIBRE ? 0 : c.ivar[i * N + k];
    for (size_t i = 0, sign = 0; i < NS && which >= 6; i++)
        for (size_t k = 200; k < 205 && c.role[i] == SPX_SKY_FIBRE; k++) {
            sign += k == 200;
            if (which == 6) /* all but without light: it grew from pass to pass */
                c.ivar[i * N + k] *= 1e-10;
            else /* half of the fibres contradicts the other half: so did that */
                c.flux[i * N + k] += sign % 2 ? 100 : -100;
        }
    for (size_t k = 0; k < N && which == 5; k++) /* one line of a target */
        c.flux[1 * N + k] += 3000 * exp(-0.5 * pow(((double)k - 300.4) / 1.2, 2));
    if (solve(&c, &o, &out)) {
        size_t rejected = 0, fibres = 0, bad = 0;
        for (size_t i = 0; i < NS; i++) {
            rejected += out.role[i] == SPX_SKY_FIBRE ? out.nrejected[i] : 0;
            fibres += out.role[i] == SPX_SKY_REJECTED;
        }
        for (size_t k = 0; k < N; k++)
            bad += out.bad[k];
        printf("%s: loo %.3f %.3f %.3f, %zu bins and %zu fibres out (%zu outliers), %zu bad, noise %.2f\n", name,
               out.loo[0], out.loo[1], out.loo[2], rejected, fibres, outliers, bad, out.noise);
        all_finite(&out);
        const double expected = which == 3 ? 4 : 1;
        for (size_t k = 0; k < SPX_SKY_CLASSES; k++)
            CHECK(fabs(out.loo[k] / expected - 1) < 0.02 + 4 * sqrt(2. / (double)out.nfitted[k]), "%s: chi2 %zu is %g",
                  name, k, out.loo[k]);
        CHECK(fibres == (which == 2), "%s: %zu fibres out", name, fibres);
        CHECK(which != 2 || out.role[6] == SPX_SKY_REJECTED, "%s: another fibre than that with the star", name);
        /* of a normal distribution 7e-6 are beyond 4.5 errors; 12000 bins */
        CHECK(rejected >= outliers && rejected <= outliers + (which == 3 ? 10 : 3), "%s: %zu bins out, %zu outliers",
              name, rejected, outliers);
        /* of contradicting fibres one may agree with what its neighbours say in a bin at the end */
        CHECK(bad == (which == 4   ? 3 + 22
                      : which >= 6 ? 5 + 22
                                   : 0) ||
                  (which == 7 && bad > 22 && bad < 5 + 22),
              "%s: %zu bad bins", name, bad);
        CHECK(out.converged && out.change <= o.tolerance, "%s: changes by %g after %zu passes", name, out.change,
              out.passes);
        for (size_t i = 0; i < NS && (which == 4 || which >= 6); i++)
            CHECK(out.model[i * N + 201] == 0, "%s: a model where no sky is known", name);
        /* the line of a target changes its scale by much less than its light: the sky's lines hold it */
        CHECK(which != 5 || fabs(out.p[4] / c.t[1] - 1) < 4 * sqrt(out.cov[16]) + 0.006, "%s: scale %g, not %g", name,
              out.p[4], c.t[1]);
    }
    spx_sky_free(&out);
    sky_free(&c);
}

/* Passes that are not enough are told. */
static void too_few_passes(void)
{
    sky_scene c;
    spx_sky out = {0};
    spx_sky_options o = spx_sky_defaults();
    random_start(37);
    sky_make(&c, 30, 300, 11, 3, SKY_SHIFTS | SKY_STARS, 1);
    for (o.most_passes = 1; o.most_passes <= 30; o.most_passes += 29) {
        if (solve(&c, &o, &out))
            CHECK(out.converged == (o.most_passes == 30) && (out.change <= o.tolerance) == out.converged,
                  "%zu passes at most: converged %d, last change %g", o.most_passes, out.converged, out.change);
        spx_sky_free(&out);
    }
    sky_free(&c);
}

/* One sky fibre, all fibres sky, hardly any light, no lines. */
static void few(void)
{
    sky_scene c;
    spx_sky out = {0};
    spx_sky_options o = spx_sky_defaults();
    for (int which = 0; which < 4; which++) {
        random_start(41);
        sky_make(&c, 12, 300, 11, which == 0 ? 12 : which == 1 ? 1 : 4, SKY_STARS, 1);
        for (size_t k = 0; k < 12 * 300 && which == 2; k++) /* nothing but noise */
            c.flux[k] = gauss() / sqrt(c.ivar[k]);
        for (size_t k = 0; k < 12 * 300 && which == 3; k++) { /* a continuum */
            c.ivar[k] = 1. / 100;
            c.flux[k] = 60 + 10 * gauss();
        }
        if (solve(&c, &o, &out)) {
            all_finite(&out);
            for (size_t i = 0; i < 12; i++)
                /* of noise alone other fibres have no part */
                CHECK(fabs(out.p[i * 4 + 1]) < 0.1 && fabs(out.p[i * 4] - 1) < (which == 2 ? 1.5 : 0.3),
                      "case %d, fibre %zu: scale %g, shift %g", which, i, out.p[i * 4], out.p[i * 4 + 1]);
        }
        spx_sky_free(&out);
        sky_free(&c);
    }
}

/* 5 sky fibres, whose noise in the sky is above 1 % of the brightest line: bins off lines are not chosen by it, and
 * chi2 of held-out fibres is 1. */
static void noisy(void)
{
    enum { SCENES = 30, NOISE = 10, FIBRES = 20, BINS = 600 };
    double sum = 0, n = 0;
    random_start(97);
    for (int scene = 0; scene < SCENES; scene++) {
        sky_scene c;
        spx_sky out = {0};
        const spx_sky_options o = spx_sky_defaults();
        sky_make(&c, FIBRES, BINS, 11, 1, 0, NOISE);
        for (size_t i = 0; i < FIBRES; i++)
            c.role[i] = i % 4 == 0 ? SPX_SKY_FIBRE : SPX_SKY_HELD_OUT;
        for (size_t k = 0; k < (size_t)FIBRES * BINS; k++)
            c.ivar[k] /= NOISE * NOISE;
        if (solve(&c, &o, &out)) {
            sum += out.held_out[SPX_SKY_OFF] * (double)out.nheld_out[SPX_SKY_OFF];
            n += (double)out.nheld_out[SPX_SKY_OFF];
        }
        spx_sky_free(&out);
        sky_free(&c);
    }
    CHECK(fabs(sum / n - 1) < 0.025, "5 noisy sky fibres: chi2 of others off lines %g of %g bins", sum / n, n);
}

static void refused(void)
{
    sky_scene c;
    spx_sky out = {0};
    spx_sky_options o = spx_sky_defaults();
    spx_err e = {0};
    random_start(43);
    sky_make(&c, 6, 200, 11, 6, 0, 1);
    c.role[0] = SPX_SKY_TARGET;
    CHECK(backend.sky(&backend, &c.in, &o, &out, &e) == SPX_EINPUT, "no sky fibre");
    c.role[0] = SPX_SKY_FIBRE;
    memset(c.ivar, 0, 200 * sizeof *c.ivar);
    CHECK(backend.sky(&backend, &c.in, &o, &out, &e) == SPX_EINPUT, "no good bin");
    c.ivar[100] = 1;
    c.in.ndiag = 0;
    CHECK(backend.sky(&backend, &c.in, &o, &out, &e) == SPX_EINPUT, "no resolution");
    c.in.ndiag = 11;
    c.wavelength[50] += 0.3;
    CHECK(backend.sky(&backend, &c.in, &o, &out, &e) == SPX_EINPUT, "uneven bins");
    c.wavelength[50] -= 0.3;
    o.terms = (spx_sky_terms){5, 5, 5};
    CHECK(backend.sky(&backend, &c.in, &o, &out, &e) == SPX_EUSAGE, "too many terms");
    spx_sky_free(&out);
    sky_free(&c);
}

/* Any number of threads. */
static void threads(void)
{
    sky_scene c;
    spx_sky one = {0}, three = {0};
    spx_sky_options o = spx_sky_defaults();
    random_start(47);
    sky_make(&c, 30, 400, 11, 3, SKY_SHIFTS | SKY_STARS | SKY_GRADIENT, 1);
    o.nthreads = 1;
    const int first = solve(&c, &o, &one);
    o.nthreads = 3;
    if (first && solve(&c, &o, &three))
        CHECK(memcmp(one.model, three.model, 30 * 400 * sizeof(double)) == 0 &&
                  memcmp(one.variance, three.variance, 30 * 400 * sizeof(double)) == 0,
              "results depend on the number of threads");
    spx_sky_free(&one);
    spx_sky_free(&three);
    sky_free(&c);
}

/* Quantities of the fibres alone are the same as with models of all, and chi2 of the fit. */
static void quantities_alone(void)
{
    enum { FIBRES = 30 };
    sky_scene c;
    spx_sky all = {0}, alone = {0};
    spx_sky_options o = spx_sky_defaults();
    random_start(53);
    sky_make(&c, FIBRES, 400, 11, 3, SKY_SHIFTS | SKY_STARS, 1);
    const int first = solve(&c, &o, &all);
    o.quantities = 1;
    if (first && solve(&c, &o, &alone)) {
        const size_t nq = all.nq;
        CHECK(memcmp(all.p, alone.p, FIBRES * nq * sizeof(double)) == 0 &&
                  memcmp(all.cov, alone.cov, FIBRES * nq * nq * sizeof(double)) == 0 &&
                  memcmp(all.s, alone.s, 400 * sizeof(double)) == 0,
              "quantities depend on whether models are wanted");
        for (size_t i = 0; i < FIBRES; i++)
            if (all.role[i] == SPX_SKY_FIBRE)
                CHECK(fabs(alone.chi2[i] - all.chi2[i]) <= 1e-9 * all.chi2[i],
                      "fibre %zu: chi2 %.12g, with models %.12g", i, alone.chi2[i], all.chi2[i]);
            else
                CHECK(alone.chi2[i] == 0 || all.role[i] == SPX_SKY_REJECTED, "fibre %zu: chi2 of a star", i);
        CHECK(alone.model == NULL && alone.variance == NULL, "models that are not wanted");
    }
    spx_sky_free(&all);
    spx_sky_free(&alone);
    sky_free(&c);
}

/* Frames of other sizes side by side, as threads of a queue solve them: each as alone. Their systems of a fibre have
 * other sizes; a limit that one thread lowers under another's launch is an error of the device. */
static void side_by_side(void)
{
    enum { SIZES = 4, TIMES = 8, FIBRES = 8 };
    static const size_t n[SIZES] = {200, 700, 1400, 400};
    sky_scene c[SIZES];
    spx_sky alone[SIZES] = {0};
    spx_sky_options o = spx_sky_defaults();
    int same[SIZES] = {0};
    random_start(59);
    o.nthreads = 1;
    for (size_t k = 0; k < SIZES; k++) {
        sky_make(&c[k], FIBRES, n[k], 11, 3, SKY_SHIFTS | SKY_STARS, 1);
        if (!solve(&c[k], &o, &alone[k]))
            return;
    }
#pragma omp parallel for num_threads(SIZES) schedule(static, 1)
    for (size_t k = 0; k < SIZES; k++)
        for (int time = 0; time < TIMES; time++) {
            spx_sky out = {0};
            spx_err e = {0};
            same[k] += backend.sky(&backend, &c[k].in, &o, &out, &e) == SPX_OK &&
                       memcmp(out.model, alone[k].model, FIBRES * n[k] * sizeof(double)) == 0;
            spx_sky_free(&out);
        }
    for (size_t k = 0; k < SIZES; k++) {
        CHECK(same[k] == TIMES, "%zu bins beside frames of other sizes: %d of %d times as alone", n[k], same[k], TIMES);
        spx_sky_free(&alone[k]);
        sky_free(&c[k]);
    }
}

int main(void)
{
    open_device(&backend, SPX_OP_SKY);
    against_dense(0);
    against_dense(SKY_MASKS | SKY_GRADIENT);
    against_dense(SKY_GRADIENT | SKY_SECTORS);
    against_dense(SKY_VELOCITY);
    against_truth(SKY_SHIFTS | SKY_STARS, SPX_SKY_SCALE_ALL);
    against_truth(SKY_SHIFTS | SKY_STARS | SKY_MASKS | SKY_GRADIENT, SPX_SKY_SCALE_ALL);
    against_truth(SKY_STARS | SKY_VELOCITY, SPX_SKY_SCALE_ALL);
    against_truth(SKY_STARS | SKY_SECTORS, SPX_SKY_SCALE_ALL);
    pulls(3, 0.1, 0.4);
    pulls(24, 0.2, 0.4);
    odd("plain", 0);
    odd("outliers", 1);
    odd("star", 2);
    odd("noise", 3);
    odd("masked", 4);
    odd("line", 5);
    odd("dim", 6);
    odd("contradictory", 7);
    too_few_passes();
    few();
    noisy();
    refused();
    threads();
    quantities_alone();
    side_by_side();
    spx_backend_close(&backend);
    return failures != 0;
}
