/* kernels/sky/params against dense least squares in long double, and against what was put in: scale, shift and width of
 * fibres, their prior and posterior, the gauge.
 *
 * Tolerances: the normal equations of columns of unit size and a spline have conditions below 1e6, so that estimates
 * are exact to some 1e-9 of their errors. Medians and scatters of n draws have errors 1.25/sqrt(n) and 1.2/sqrt(n)
 * (scatter by the median deviation): 3.5 of these are allowed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "calib/series.h"
#include "check.h"
#include "num/stat.h"
#include "random.h"
#include "sky/params.h"

enum { N = 420, WIDE = 12 + 64 };

static const spx_sky_terms TERMS = {1, 2, 1};

static spx_sky_fit fit_of(size_t rounds, spx_sky_terms terms)
{
    return (spx_sky_fit){
        .nwave = N, .first = 7000, .step = 0.8, .terms = terms, .knots = 25, .rounds = rounds, .nthreads = 2};
}

static double *array(size_t n)
{
    spx_err e = {0};
    double *a = spx_alloc(n, sizeof *a, &e);
    if (a == NULL)
        exit(1);
    return a;
}

/* Sky with nline lines of a width of 0.6 A at any place, on a smooth continuum. */
static void make_sky(size_t nline, double *c)
{
    for (size_t k = 0; k < N; k++)
        c[k] = 100 + 0.05 * (double)k;
    for (size_t l = 0; l < nline; l++) {
        const double at = uniform() * N, strength = 100 * exp(2 * gauss());
        for (size_t k = 0; k < N; k++) {
            const double x = ((double)k - at) * 0.8 / 0.75;
            c[k] += strength * exp(-0.5 * x * x);
        }
    }
}

/* Least squares by normal equations of all columns at once: quantities first, then splines. Returns the residual in
 * r[N]. p, cov: of the quantities. */
static void dense(const spx_sky_fit *f, const double *c, const double *scaled, const double *d, const double *w,
                  int star, double *p, double *cov, double *r)
{
    static long double a[WIDE * WIDE], y[WIDE], inv[WIDE * 2 * WIDE];
    static double column[N][WIDE], value[N], d1[N], d2[N];
    const double last = f->first + (N - 1) * f->step;
    const spx_bspline s = spx_bspline_of(f->first, last, f->knots);
    const size_t nq = spx_sky_count(&f->terms), n = nq + (star ? s.n : 0);
    memset(a, 0, sizeof a);
    memset(y, 0, sizeof y);
    memset(column, 0, sizeof column);
    for (size_t k = 0; k < N; k++)
        d1[k] = spx_derivative(N, f->step, c, k);
    for (size_t k = 0; k < N; k++)
        d2[k] = spx_derivative(N, f->step, d1, k);
    for (size_t k = 8; k + 8 < N; k++) {
        double leg[SPX_SKY_MOST], b[4];
        const double at = f->first + (double)k * f->step, part = scaled != NULL ? scaled[k] : c[k];
        spx_legendre(spx_legendre_place(f->first, last, at), SPX_SKY_MOST, leg);
        for (size_t t = 0; t < f->terms.nt; t++)
            column[k][t] = part * leg[t];
        for (size_t t = 0; t < f->terms.nd; t++)
            column[k][f->terms.nt + t] = d1[k] * leg[t];
        for (size_t t = 0; t < f->terms.nk; t++)
            column[k][f->terms.nt + f->terms.nd + t] = 0.5 * d2[k] * leg[t];
        const size_t i = spx_bspline_at(&s, at, b);
        for (size_t t = 0; t < 4 && star; t++)
            column[k][nq + i + t] = b[t];
        value[k] = d[k] - (f->terms.nt > 0 ? c[k] - part : c[k]);
        if (!(w[k] > 0))
            continue;
        for (size_t u = 0; u < n; u++) {
            y[u] += (long double)w[k] * column[k][u] * value[k];
            for (size_t v = 0; v < n; v++)
                a[u * n + v] += (long double)w[k] * column[k][u] * column[k][v];
        }
    }
    for (size_t u = 0; u < n; u++) {
        /* scaled to a unit diagonal, and an empty function kept out */
        if (!(a[u * n + u] > 0))
            a[u * n + u] = 1;
        for (size_t v = 0; v < 2 * n; v++)
            inv[u * 2 * n + v] = v < n ? a[u * n + v] : v - n == u;
    }
    for (size_t t = 0; t < n; t++) {
        const long double scale = 1 / inv[t * 2 * n + t];
        for (size_t v = 0; v < 2 * n; v++)
            inv[t * 2 * n + v] *= scale;
        for (size_t u = 0; u < n; u++) {
            const long double by = u == t ? 0 : inv[u * 2 * n + t];
            for (size_t v = 0; v < 2 * n; v++)
                inv[u * 2 * n + v] -= by * inv[t * 2 * n + v];
        }
    }
    static double x[WIDE];
    for (size_t u = 0; u < n; u++) {
        long double sum = 0;
        for (size_t v = 0; v < n; v++)
            sum += inv[u * 2 * n + n + v] * y[v];
        x[u] = (double)sum;
        for (size_t v = 0; v < nq && u < nq; v++)
            cov[u * nq + v] = (double)inv[u * 2 * n + n + v];
        if (u < nq)
            p[u] = x[u];
    }
    for (size_t k = 0; k < N; k++) {
        r[k] = value[k];
        for (size_t u = 0; u < n; u++)
            r[k] -= column[k][u] * x[u];
        r[k] *= w[k] > 0 && k >= 8 && k + 8 < N ? sqrt(w[k]) : 0;
    }
}

/* The reweighting, as plain as it is defined. */
static void plain_reweight(const double *w0, const double *r, int last, double *w)
{
    for (size_t k = 8; k + 8 < N; k++) {
        double sum = 0;
        int count = 0;
        for (size_t j = k < 25 ? 0 : k - 25; j <= k + 25 && j < N; j++)
            if (w0[j] > 0 && j >= 8 && j + 8 < N) {
                sum += fmin(r[j] * r[j], 25);
                count++;
            }
        const double loc = count > 0 ? fmax(sum / count, 1) : 1;
        const double size = fmax(fabs(r[k]), 1e-30);
        w[k] = w0[k] / loc * (last && size > 6 ? 18 / (size * size) : fmin(1, 3 / size));
    }
}

/* A line of the star at the brightest line of the sky, three times as bright: with Huber's weights alone, which never
 * let go of a bin, t is moved by 1.07 of its error, now by 0.28. */
static void check_line(void)
{
    enum { FIBRES = 60 };
    const spx_sky_terms terms = {1, 2, 1};
    const spx_sky_fit f = fit_of(3, terms);
    double *c = array(FIBRES * N), *d = array(FIBRES * N), *w = array(FIBRES * N), p[2][4], cov[16], moved = 0;
    double info[FIBRES * 16], right[FIBRES * 16], before[FIBRES];
    uint8_t kind[FIBRES];
    spx_err e = {0};
    for (int with = 0; with < 2; with++) {
        random_start(17);
        for (size_t i = 0; i < FIBRES; i++) {
            size_t most = 8;
            kind[i] = SPX_SKY_STAR;
            for (size_t k = 0; k < N; k++) { /* lines every 28 Angstrom, every fifth of them bright */
                const double x = (fmod((double)k, 35) - 17) * 0.8 / 0.75;
                c[i * N + k] = 100 + (k / 35 % 5 == 1 ? 1000 : 600) * exp(-0.5 * x * x);
            }
            for (size_t k = 8; k + 8 < N; k++)
                most = c[i * N + k] > c[i * N + most] ? k : most;
            for (size_t k = 0; k < N; k++) {
                const double away = ((double)k - (double)most) / 1.1;
                w[i * N + k] = pow(50 / c[i * N + most], 2);
                d[i * N + k] = c[i * N + k] + 300 + 0.3 * (double)k + c[i * N + most] / 50 * gauss() +
                               with * 3 * (c[i * N + most] - 100) * exp(-0.5 * away * away);
            }
        }
        CHECK(spx_sky_measure(&f, FIBRES, c, NULL, d, w, kind, info, right, &e) == SPX_OK, "%s", spx_err_text(&e));
        for (size_t i = 0; i < FIBRES; i++) {
            CHECK(spx_sky_estimate(4, info + i * 16, right + i * 4, p[with], cov), "fibre %zu", i);
            if (with)
                moved += (p[1][0] - before[i]) / sqrt(cov[0]) / FIBRES;
            else
                before[i] = p[0][0];
        }
    }
    printf("a line of the star: t moves by %.2f errors\n", moved);
    CHECK(fabs(moved) < 0.45, "a line of the star moves t by %.2f errors", moved);
    spx_free(c);
    spx_free(d);
    spx_free(w);
}

static void against_dense(int star, size_t rounds, spx_sky_terms terms, int lines_only)
{
    enum { FIBRES = 3 };
    const spx_sky_fit f = fit_of(rounds, terms);
    const size_t nq = spx_sky_count(&terms);
    double *c = array(FIBRES * N), *d = array(FIBRES * N), *w = array(FIBRES * N), *part = array(FIBRES * N);
    double info[FIBRES * SPX_SKY_MOST * SPX_SKY_MOST], right[FIBRES * SPX_SKY_MOST];
    uint8_t kind[FIBRES];
    spx_err e = {0};
    for (size_t i = 0; i < FIBRES; i++) {
        kind[i] = star ? SPX_SKY_STAR : SPX_SKY_ALONE;
        make_sky(30, c + i * N);
        for (size_t k = 0; k < N; k++) {
            const size_t at = i * N + k;
            w[at] = uniform() < 0.1 ? 0 : 0.02 * (0.5 + uniform());
            part[at] = c[at] - 100;
            d[at] = w[at] > 0 ? c[at] * 1.02 + (star ? 300 + 0.3 * (double)k : 0) + 8 * gauss() : NAN;
            if (star && k % 40 < 2)
                d[at] -= 200;
        }
    }
    CHECK(spx_sky_measure(&f, FIBRES, c, lines_only ? part : NULL, d, w, kind, info, right, &e) == SPX_OK, "%s",
          spx_err_text(&e));
    for (size_t i = 0; i < FIBRES; i++) {
        double p[SPX_SKY_MOST], cov[SPX_SKY_MOST * SPX_SKY_MOST], q[SPX_SKY_MOST], covq[SPX_SKY_MOST * SPX_SKY_MOST];
        double r[N], now[N];
        memcpy(now, w + i * N, sizeof now);
        for (size_t round = 0;; round++) {
            dense(&f, c + i * N, lines_only ? part + i * N : NULL, d + i * N, now, star, q, covq, r);
            if (round == (star ? rounds : 0))
                break;
            for (size_t k = 0; k < N; k++) /* residual in units of the original error */
                r[k] *= now[k] > 0 ? sqrt(w[i * N + k] / now[k]) : 0;
            plain_reweight(w + i * N, r, round + 1 == rounds, now);
        }
        CHECK(spx_sky_estimate(nq, info + i * nq * nq, right + i * nq, p, cov), "fibre %zu: no estimate", i);
        for (size_t u = 0; u < nq; u++) {
            const double error = sqrt(covq[u * nq + u]);
            /* the residuals that weights are made of have what is expected as a prior: (error / 0.3)^2 of the
             * least known term of t, 1e-3, in them, and less in the weights */
            const double tolerance = star && rounds > 0 ? 2e-3 : 1e-7;
            CHECK(fabs(p[u] - q[u]) <= tolerance * error,
                  "star %d, rounds %zu, fibre %zu, quantity %zu: %.12g, not %.12g", star, rounds, i, u, p[u], q[u]);
            for (size_t v = 0; v < nq; v++)
                CHECK(fabs(cov[u * nq + v] - covq[u * nq + v]) <= tolerance * sqrt(covq[u * nq + u] * covq[v * nq + v]),
                      "star %d, rounds %zu, fibre %zu: covariance (%zu, %zu) %.12g, not %.12g", star, rounds, i, u, v,
                      cov[u * nq + v], covq[u * nq + v]);
        }
    }
    spx_free(c);
    spx_free(d);
    spx_free(w);
    spx_free(part);
}

static double scatter(double *v, size_t n, double *median)
{
    double *a = array(n);
    memcpy(a, v, n * sizeof *a);
    *median = spx_median(a, n);
    for (size_t i = 0; i < n; i++)
        a[i] = fabs(v[i] - *median);
    const double s = 1.4826 * spx_median(a, n);
    spx_free(a);
    return s;
}

/* Shifted, scaled, widened spectra of many fibres, with noise: pulls of the estimates. noise: variance of noise of the
 * common spectrum, as that of a few fibres has; not told: the fit does not know of it. */
static void pulls(int star, double noise, int told)
{
    enum { FIBRES = 400 };
    const double truth[4] = {1.03, 0.02, -0.015, 0.01};
    spx_sky_fit f = fit_of(3, TERMS);
    double *c = array(FIBRES * N), *d = array(FIBRES * N), *w = array(FIBRES * N), d1[N], d2[N], v[N];
    double *info = array(FIBRES * 16), *right = array(FIBRES * 4), pull[4][FIBRES], median;
    uint8_t kind[FIBRES];
    spx_err e = {0};
    random_start(7 + (uint64_t)star);
    for (size_t i = 0; i < FIBRES; i++) {
        double *ci = c + i * N;
        kind[i] = star ? SPX_SKY_STAR : SPX_SKY_ALONE;
        make_sky(25, ci);
        for (size_t k = 0; k < N; k++)
            d1[k] = spx_derivative(N, 0.8, ci, k);
        for (size_t k = 0; k < N; k++)
            d2[k] = spx_derivative(N, 0.8, d1, k);
        for (size_t k = 0; k < N; k++) {
            const double u = spx_legendre_place(0, N - 1, (double)k), sigma = 5 + 0.02 * ci[k];
            const double line = star ? 1 - 0.5 * (k % 60 == 7) : 0;
            w[i * N + k] = 1 / (sigma * sigma);
            d[i * N + k] = truth[0] * ci[k] + (truth[1] + truth[2] * u) * d1[k] + 0.5 * truth[3] * d2[k] +
                           line * (80 + 40 * u * u) + sigma * gauss();
        }
        for (size_t k = 0; k < N && noise > 0; k++)
            ci[k] += sqrt(noise) * gauss();
    }
    for (size_t k = 0; k < N; k++)
        v[k] = noise;
    f.noise = told ? v : NULL;
    CHECK(spx_sky_measure(&f, FIBRES, c, NULL, d, w, kind, info, right, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (size_t i = 0; i < FIBRES; i++) {
        double p[4] = {0}, cov[16] = {0};
        CHECK(spx_sky_estimate(4, info + i * 16, right + i * 4, p, cov), "no estimate");
        for (size_t q = 0; q < 4; q++)
            pull[q][i] = (p[q] - truth[q]) / sqrt(cov[q * 5]);
    }
    for (size_t q = 0; q < 4; q++) {
        const double s = scatter(pull[q], FIBRES, &median);
        printf("star %d, noise %g (%d), quantity %zu: pulls of %d fibres: median %+.3f, scatter %.3f\n", star, noise,
               told, q, FIBRES, median, s);
        if (noise > 0 && !told) { /* attenuation: light of the noise is missed */
            CHECK(q != 0 || median < -0.8, "scale of a noisy spectrum: median of pulls %g", median);
            continue;
        }
        /* reweighting shrinks towards the spline: up to 0.4 of an error */
        CHECK(fabs(median) < (star ? 0.4 : 0) + 3.5 * 1.25 / sqrt(FIBRES), "quantity %zu: median of pulls %g", q,
              median);
        CHECK(fabs(s - 1) < 0.05 + 3.5 * 1.2 / sqrt(FIBRES), "quantity %zu: scatter of pulls %g", q, s);
    }
    spx_free(c);
    spx_free(d);
    spx_free(w);
    spx_free(info);
    spx_free(right);
}

/* Fibres that move together, by sizes of which nothing is known. */
static const double any_size[SPX_SKY_MOST];

/* Prior: polynomials and scatters that were put in are found again, with some fibres that are wild. */
static void prior(int together)
{
    enum { FIBRES = 400, NQ = 4 };
    const double tau[NQ] = {0.02, 0.008, 0.004, 0}, e0[NQ] = {0.004, 0.004, 0.003, 0.02};
    double place[FIBRES], *info = array(FIBRES * 16), *right = array(FIBRES * 4), *truth = array(FIBRES * 4);
    double *p = array(FIBRES * 4), *cov = array(FIBRES * 16), *other = array(FIBRES * 16), pull[NQ][FIBRES], median;
    spx_sky_prior found, three;
    spx_err e = {0};
    random_start(5);
    for (size_t i = 0; i < FIBRES; i++) {
        place[i] = spx_legendre_place(0, FIBRES - 1, (double)i);
        for (size_t q = 0; q < NQ; q++) {
            const double u = place[i], error = e0[q] * (0.5 + uniform());
            const double mean = q == 0 ? 1 : q == 1 ? 0.02 * u - 0.05 * u * u : q == 2 ? 0.01 : 0.03 * u * u * u;
            truth[i * 4 + q] = mean + tau[q] * gauss();
            info[i * 16 + q * 5] = 1 / (error * error);
            right[i * 4 + q] = (truth[i * 4 + q] + error * gauss()) / (error * error);
            if (i % 40 == 3)
                right[i * 4 + q] += 0.3 / (error * error);
        }
    }
    CHECK(spx_sky_prior_find(&TERMS, 0.8, 4, together ? any_size : NULL, FIBRES, place, info, right, NULL, 1, &found,
                             &e) == SPX_OK &&
              spx_sky_prior_find(&TERMS, 0.8, 4, together ? any_size : NULL, FIBRES, place, info, right, NULL, 3,
                                 &three, &e) == SPX_OK,
          "%s", spx_err_text(&e));
    spx_sky_posterior(&three, info, right, NULL, p, cov);
    memcpy(other, cov, FIBRES * 16 * sizeof *other);
    spx_sky_posterior(&found, info, right, NULL, p, cov);
    CHECK(memcmp(found.mean, three.mean, FIBRES * NQ * sizeof(double)) == 0 &&
              memcmp(found.tau, three.tau, sizeof found.tau) == 0 &&
              memcmp(other, cov, FIBRES * 16 * sizeof *other) == 0,
          "the prior depends on the number of threads");
    spx_sky_prior_free(&three);
    for (size_t q = 0; q < NQ; q++) {
        size_t n = 0;
        printf("quantity %zu: tau %.5f (put in %.5f), degree %zu of %zu fibres\n", q, found.tau[q], tau[q],
               found.degree[q], found.used[q]);
        /* the error of tau^2 of n fibres is sqrt(2/n) (tau^2 + e^2) */
        CHECK(fabs(found.tau[q] * found.tau[q] - tau[q] * tau[q]) <
                  3.5 * sqrt(2. / 390) * (tau[q] * tau[q] + 1.2 * e0[q] * e0[q]),
              "quantity %zu: tau %g, not %g", q, found.tau[q], tau[q]);
        CHECK(found.degree[q] == (q == 0 ? 0 : 4), "quantity %zu: degree %zu", q, found.degree[q]);
        CHECK(found.used[q] >= 385 && found.used[q] <= 390, "quantity %zu: %zu fibres used", q, found.used[q]);
        for (size_t i = 0; i < FIBRES; i++)
            if (i % 40 != 3)
                pull[q][n++] = (p[i * 4 + q] - truth[i * 4 + q]) / sqrt(cov[i * 16 + q * 5]);
        if (tau[q] <= 0) /* all fibres have the polynomial's error */
            continue;
        const double s = scatter(pull[q], n, &median);
        printf("quantity %zu: pulls of posteriors: median %+.3f, scatter %.3f\n", q, median, s);
        CHECK(fabs(median) < 3.5 * 1.25 / sqrt((double)n), "quantity %zu: median of pulls %g", q, median);
        CHECK(fabs(s - 1) < 3.5 * 1.2 / sqrt((double)n), "quantity %zu: scatter of pulls %g", q, s);
    }
    /* gauge: means of the fibres in use */
    double change[NQ];
    uint8_t use[FIBRES];
    for (size_t i = 0; i < FIBRES; i++)
        use[i] = i % 3 == 0;
    CHECK(spx_sky_gauge(&TERMS, FIBRES, use, p, cov, change) == (FIBRES + 2) / 3, "number of fibres of the gauge");
    for (size_t q = 0; q < NQ; q++) {
        double sum = 0;
        for (size_t i = 0; i < FIBRES; i += 3)
            sum += p[i * 4 + q];
        CHECK(fabs(sum / ((FIBRES + 2) / 3) - (q == 0)) < 1e-12, "mean of quantity %zu: %g", q, sum);
    }
    spx_sky_prior_free(&found);
    spx_free(info);
    spx_free(right);
    spx_free(truth);
    spx_free(p);
    spx_free(other);
    spx_free(cov);
}

/* Inverse of a[n][n], symmetric and positive definite, by elimination in long double. */
static void invert(size_t n, long double *a, long double *inv)
{
    for (size_t i = 0; i < n * n; i++)
        inv[i] = i % (n + 1) == 0;
    for (size_t t = 0; t < n; t++) {
        const long double scale = 1 / a[t * n + t];
        for (size_t j = 0; j < n; j++) {
            a[t * n + j] *= scale;
            inv[t * n + j] *= scale;
        }
        for (size_t i = 0; i < n; i++) {
            const long double by = i == t ? 0 : a[i * n + t];
            for (size_t j = 0; j < n; j++) {
                a[i * n + j] -= by * a[t * n + j];
                inv[i * n + j] -= by * inv[t * n + j];
            }
        }
    }
}

/* Fibres of a slit that has moved as a whole, each by `scatter` besides, or with a third term that goes with the place
 * in the slit, by `bend` at its ends. Over frames of other noise: rms of what is left of delta in the middle of the
 * arm, and of the errors, and frames whose prior of that term has curves. */
static void draws(const double *together, double scatter, double bend, double *rms, double *error, double *pull,
                  size_t *higher)
{
    enum { FIBRES = 100, FRAMES = 60, NQ = 6 };
    const spx_sky_terms terms = {1, 4, 1};
    const double e0[NQ] = {0.003, 0.005, 0.008, 0.016, 0.015, 0.006};
    double place[FIBRES], moved[FIBRES], *info = array(FIBRES * NQ * NQ), *right = array(FIBRES * NQ);
    double *p = array(FIBRES * NQ), *cov = array(FIBRES * NQ * NQ);
    *rms = *error = *pull = 0;
    *higher = 0;
    random_start(29);
    for (size_t frame = 0; frame < FRAMES; frame++) {
        spx_sky_prior found;
        spx_err e = {0};
        for (size_t i = 0; i < FIBRES; i++) {
            place[i] = spx_legendre_place(0, FIBRES - 1, (double)i);
            moved[i] = scatter > 0 ? scatter * gauss() : 0;
            for (size_t q = 0; q < NQ; q++) {
                const double own = e0[q] * (i % 5 == 0 ? 0.7 : 1.1);
                const double truth = q == 0 ? 1 : q == 1 ? moved[i] : q == 3 ? bend * place[i] : 0;
                info[(i * NQ + q) * NQ + q] = 1 / (own * own);
                right[i * NQ + q] = (truth + own * gauss()) / (own * own);
            }
        }
        CHECK(spx_sky_prior_find(&terms, 0.8, 4, together, FIBRES, place, info, right, NULL, 1, &found, &e) == SPX_OK,
              "%s", spx_err_text(&e));
        spx_sky_posterior(&found, info, right, NULL, p, cov);
        *higher += found.curve[3] > pow(0.3 * bend + 0.002, 2);
        for (size_t i = 0; i < FIBRES; i++) { /* P_2 is -1/2 there */
            const double v = p[i * NQ + 1] - moved[i] - 0.5 * (p[i * NQ + 3] - bend * place[i]);
            const double variance =
                cov[(i * NQ + 1) * NQ + 1] + 0.25 * cov[(i * NQ + 3) * NQ + 3] - cov[(i * NQ + 1) * NQ + 3];
            *rms += v * v / (FRAMES * FIBRES);
            *error += variance / (FRAMES * FIBRES);
            *pull += v * v / variance / (FRAMES * FIBRES);
        }
        spx_sky_prior_free(&found);
    }
    *rms = sqrt(*rms);
    *error = sqrt(*error);
    *pull = sqrt(*pull);
    spx_free(info);
    spx_free(right);
    spx_free(p);
    spx_free(cov);
}

static void moving_together(void)
{
    static const double small[6] = {0, 0.0006, 0.0006, 0.0006, 0.0006, 0.0006};
    static const double *const together[3] = {NULL, any_size, small};
    double rms[3], error[3], pull[3];
    size_t higher;
    for (int i = 0; i < 3; i++) {
        draws(together[i], 0, 0, &rms[i], &error[i], &pull[i], &higher);
        printf("no scatter, together %d: rms %.5f, error %.5f, rms of pulls %.3f, curved in %zu of 60 frames\n", i,
               rms[i], error[i], pull[i], higher);
    }
    /* terms above the first scatter as that does, at most: errors are 0.0035 where each is on its own */
    CHECK(error[0] < 0.003, "terms above the first: %g", error[0]);
    /* five coefficients of 100 fibres of 0.005 have 0.0011, a constant alone 0.0005; 60 frames tell some 4 % */
    CHECK(rms[1] < 0.5 * rms[0] && error[1] < 0.7 * error[0], "no better: %g and %g", rms[1], error[1]);
    /* scatter that is not seen is part of the error */
    CHECK(pull[1] > 0.5 && pull[1] < 1.2, "rms of pulls %g", pull[1]);
    CHECK(higher < 9, "%zu frames are curved", higher);
    /* a usual size makes little difference to that: scatter of it is not seen */
    CHECK(rms[2] < 1.1 * rms[1] && error[2] < 1.1 * error[1], "no better: %g and %g", rms[2], error[2]);
    for (int i = 1; i < 3; i++) { /* curves far above it are found all the same */
        draws(together[i], 0, 0.02, &rms[0], &error[0], &pull[0], &higher);
        printf("bent by 0.02: rms %.5f, error %.5f, rms of pulls %.3f, curved in %zu of 60 frames\n", rms[0], error[0],
               pull[0], higher);
        CHECK(higher > 54, "%zu frames are curved", higher);
        CHECK(pull[0] > 0.7 && pull[0] < 1.2, "rms of pulls %g", pull[0]);
        /* and scatter of two thirds of a fibre's error is, also where columns say that there is none; it is hardly
         * seen */
        draws(together[i], 0.0035, 0, &rms[0], &error[0], &pull[0], &higher);
        printf("scatter of 0.0035: rms %.5f, error %.5f, rms of pulls %.3f\n", rms[0], error[0], pull[0]);
        CHECK(pull[0] > 0.8 && pull[0] < 1.3, "rms of pulls %g", pull[0]);
    }
}

/* Adds to extra[FIBRES][NQ][NQ] what not knowing the prior variance k of coefficients first ... last does to the joint
 * posterior x: its slope with k is a^-1 x/k^2 of these. fixed: the same behind the gauge, of slopes less their mean
 * over fibres in use. */
enum { JOINT_FIBRES = 13, JOINT_NQ = 4 };

static void add_unsure(size_t n, const long double *inv, const long double *x, const uint8_t *use, size_t first,
                       size_t last, double k, double variance, double *extra, double *fixed)
{
    double slope[JOINT_FIBRES * JOINT_NQ] = {0}, mean[JOINT_NQ] = {0}, used = 0;
    for (size_t i = 0; i < JOINT_FIBRES; i++) {
        used += use[i];
        for (size_t q = 0; q < JOINT_NQ; q++)
            for (size_t u = first; u < last; u++)
                slope[i * JOINT_NQ + q] += (double)(inv[(i * JOINT_NQ + q) * n + u] * x[u]) / k / k;
        for (size_t q = 0; q < JOINT_NQ; q++)
            mean[q] += use[i] * slope[i * JOINT_NQ + q];
    }
    for (size_t i = 0; i < JOINT_FIBRES; i++)
        for (size_t q = 0; q < JOINT_NQ; q++)
            for (size_t r = 0; r < JOINT_NQ; r++) {
                const double of_q = slope[i * JOINT_NQ + q], of_r = slope[i * JOINT_NQ + r];
                extra[(i * JOINT_NQ + q) * JOINT_NQ + r] += of_q * of_r * variance;
                fixed[(i * JOINT_NQ + q) * JOINT_NQ + r] +=
                    (of_q - mean[q] / used) * (of_r - mean[r] / used) * variance;
            }
}

/* Errors of posteriors, before and behind the gauge, against the joint posterior of all quantities and coefficients,
 * with what sizes that are not known add. */
static void joint(int together)
{
    enum { FIBRES = JOINT_FIBRES, NQ = JOINT_NQ, TERM = 1 + 3 * 3, ALL = FIBRES * NQ + TERM };
    static long double a[ALL * ALL], inv[ALL * ALL], rhs[ALL], x[ALL];
    double extra[FIBRES * NQ * NQ] = {0}, extra_fixed[FIBRES * NQ * NQ] = {0};
    const double unit[NQ] = {1, 0.4, 0.4, 0.32}, error[NQ] = {0.01, 0.004, 0.006, 0.005};
    double place[FIBRES], info[FIBRES * 16], right[FIBRES * 4], p[FIBRES * 4], cov[FIBRES * 16], before[FIBRES * 16];
    uint8_t use[FIBRES];
    spx_sky_prior found;
    spx_err e = {0};
    random_start(17);
    for (size_t i = 0; i < FIBRES; i++) {
        place[i] = spx_legendre_place(0, FIBRES - 1, (double)i);
        use[i] = i % 3 == 0;
        for (size_t q = 0; q < NQ; q++)
            for (size_t r = 0; r < NQ; r++)
                info[i * 16 + q * 4 + r] = (q == r ? 1 : 0.4 - 0.1 * (double)(i % 5)) / (error[q] * error[r]);
        for (size_t q = 0; q < NQ; q++) {
            right[i * 4 + q] = 0;
            for (size_t r = 0; r < NQ; r++)
                right[i * 4 + q] += info[i * 16 + q * 4 + r] * ((r == 0) + 1.5 * error[r] * gauss());
        }
    }
    CHECK(spx_sky_prior_find(&TERMS, 0.8, 2, together ? any_size : NULL, FIBRES, place, info, right, NULL, 1, &found,
                             &e) == SPX_OK,
          "%s", spx_err_text(&e));
    CHECK(found.nterm == TERM, "%zu coefficients, not %d", found.nterm, TERM);
    spx_sky_posterior(&found, info, right, NULL, p, cov);
    memcpy(before, cov, sizeof cov);
    CHECK(spx_sky_gauge_errors(&found, info, use, cov, &e) == SPX_OK, "%s", spx_err_text(&e));
    for (size_t q = 0, at = FIBRES * NQ; q < NQ; q++) {
        CHECK(found.used[q] == FIBRES, "quantity %zu: a fibre was left out", q);
        const size_t nterm = found.degree[q] + 1;
        for (size_t u = 0; u < nterm; u++)
            a[(at + u) * (ALL + 1)] = u == 0 ? 1 / (unit[q] * unit[q]) : 1 / found.curve[q];
        for (size_t i = 0; i < FIBRES; i++) {
            const double *b = found.basis + i * SPX_SKY_PRIOR_TERMS, t = found.precision[q];
            for (size_t r = 0; r < NQ; r++)
                a[(i * NQ + q) * ALL + i * NQ + r] = info[i * 16 + q * 4 + r] + (q == r ? t : 0);
            for (size_t u = 0; u < nterm; u++) {
                a[(i * NQ + q) * ALL + at + u] = a[(at + u) * ALL + i * NQ + q] = -t * b[u];
                for (size_t v = 0; v < nterm; v++)
                    a[(at + u) * ALL + at + v] += t * b[u] * b[v];
            }
        }
        at += nterm;
    }
    for (size_t i = 0; i < FIBRES * NQ; i++)
        rhs[i] = right[i];
    for (size_t q = 0, at = FIBRES * NQ; q < NQ; at += found.degree[q++] + 1)
        rhs[at] = q == 0 ? 1 / (unit[0] * unit[0]) : 0;
    invert(ALL, a, inv);
    for (size_t i = 0; i < ALL; i++) {
        x[i] = 0;
        for (size_t j = 0; j < ALL; j++)
            x[i] += inv[i * ALL + j] * rhs[j];
    }
    for (size_t q = 0, at = FIBRES * NQ; q < NQ; at += found.degree[q++] + 1) {
        if (found.degree[q] > 0)
            add_unsure(ALL, inv, x, use, at + 1, at + found.degree[q] + 1, found.curve[q], found.unsure_curve[q], extra,
                       extra_fixed);
        for (size_t i = 0; i < FIBRES; i++) { /* tau of fibre i: what its quantities do where the mean stays */
            double up[FIBRES * NQ], down[FIBRES * NQ];
            const double step = 1e-3, precision = found.precision[q];
            found.precision[q] = precision / (1 + step);
            spx_sky_posterior(&found, info, right, NULL, up, NULL);
            found.precision[q] = precision / (1 - step);
            spx_sky_posterior(&found, info, right, NULL, down, NULL);
            found.precision[q] = precision;
            for (size_t r = 0; r < NQ; r++)
                for (size_t t = 0; t < NQ; t++) {
                    const double more = (up[i * NQ + r] - down[i * NQ + r]) * (up[i * NQ + t] - down[i * NQ + t]) *
                                        pow(0.5 * precision / step, 2) * found.unsure[q];
                    extra[(i * NQ + r) * NQ + t] += more;
                    extra_fixed[(i * NQ + r) * NQ + t] += more;
                }
        }
    }
    for (size_t i = 0; i < FIBRES; i++)
        CHECK(fabs(p[i * NQ] - (double)x[i * NQ]) < 1e-9, "fibre %zu: %g, not %g", i, p[i * NQ], (double)x[i * NQ]);
    for (size_t i = 0; i < FIBRES; i++)
        for (size_t q = 0; q < NQ; q++)
            for (size_t r = 0; r < NQ; r++) {
                const long double alone = inv[(i * NQ + q) * ALL + i * NQ + r];
                long double fixed = alone, n = (FIBRES + 2) / 3;
                const double more = extra[(i * NQ + q) * NQ + r], more_fixed = extra_fixed[(i * NQ + q) * NQ + r];
                for (size_t j = 0; j < FIBRES; j += 3) {
                    fixed -= (inv[(i * NQ + q) * ALL + j * NQ + r] + inv[(j * NQ + q) * ALL + i * NQ + r]) / n;
                    for (size_t k = 0; k < FIBRES; k += 3)
                        fixed += inv[(j * NQ + q) * ALL + k * NQ + r] / (n * n);
                }
                const double tolerance = 1e-6 * error[q] * error[r] + 1e-4 * fabs(more);
                CHECK(fabs(before[i * 16 + q * 4 + r] - (double)alone - more) < tolerance,
                      "fibre %zu, (%zu, %zu): %g, not %g", i, q, r, before[i * 16 + q * 4 + r], (double)alone + more);
                CHECK(fabs(cov[i * 16 + q * 4 + r] - (double)fixed - more_fixed) < tolerance,
                      "gauge, fibre %zu, (%zu, %zu): %g, not %g", i, q, r, cov[i * 16 + q * 4 + r],
                      (double)fixed + more_fixed);
            }
    spx_sky_prior_free(&found);
}

/* Nothing to measure: what is expected, with its error, and no NaN. */
static void nothing(size_t fibres, int measured)
{
    const spx_sky_fit f = fit_of(3, TERMS);
    double *c = array(fibres * N), *d = array(fibres * N), *w = array(fibres * N), *place = array(fibres);
    double *info = array(fibres * 16), *right = array(fibres * 4), *p = array(fibres * 4), *cov = array(fibres * 16);
    uint8_t *kind = (uint8_t *)array(fibres);
    spx_sky_prior found;
    spx_err e = {0};
    for (size_t i = 0; i < fibres; i++) {
        kind[i] = (uint8_t)(measured ? SPX_SKY_STAR : SPX_SKY_LEAVE);
        for (size_t k = 0; k < N; k++) {
            c[i * N + k] = 100 + 0.1 * (double)k; /* no line */
            d[i * N + k] = 400 + gauss();
            w[i * N + k] = i == 0 ? 0 : 1;
        }
    }
    CHECK(spx_sky_measure(&f, fibres, c, NULL, d, w, kind, info, right, &e) == SPX_OK, "%s", spx_err_text(&e));
    CHECK(spx_sky_prior_find(&TERMS, 0.8, 4, NULL, fibres, place, info, right, NULL, 1, &found, &e) == SPX_OK, "%s",
          spx_err_text(&e));
    spx_sky_posterior(&found, info, right, NULL, p, cov);
    for (size_t i = 0; i < fibres; i++)
        for (size_t q = 0; q < 4; q++) {
            const double error = spx_sky_expected_error(&TERMS, 0.8, q);
            CHECK(fabs(p[i * 4 + q] - spx_sky_expected(&TERMS, q)) <= error, "fibre %zu, quantity %zu: %g", i, q,
                  p[i * 4 + q]);
            CHECK(cov[i * 16 + q * 5] > 0 && cov[i * 16 + q * 5] <= 2.1 * error * error, "variance %g",
                  cov[i * 16 + q * 5]);
        }
    spx_sky_prior_free(&found);
    spx_free(c);
    spx_free(d);
    spx_free(w);
    spx_free(place);
    spx_free(info);
    spx_free(right);
    spx_free(p);
    spx_free(cov);
    spx_free(kind);
}

/* Physical shifts: a fibre of half the light has the shift that was put in. */
static void physical(void)
{
    const spx_sky_fit f = fit_of(3, TERMS);
    double c[N], d[N], w[N], info[16], right[4], p[4] = {0}, cov[16], scale = 0.5;
    const uint8_t kind = SPX_SKY_ALONE;
    spx_err e = {0};
    random_start(11);
    make_sky(25, c);
    for (size_t k = 0; k < N; k++) {
        w[k] = 1;
        d[k] = 0.5 * (c[k] + 0.03 * spx_derivative(N, 0.8, c, k));
    }
    CHECK(spx_sky_measure(&f, 1, c, NULL, d, w, &kind, info, right, &e) == SPX_OK, "%s", spx_err_text(&e));
    spx_sky_physical(&TERMS, 1, &scale, info, right);
    CHECK(spx_sky_estimate(4, info, right, p, cov), "no estimate");
    CHECK(fabs(p[0] - 0.5) < 1e-9 && fabs(p[1] - 0.03) < 1e-9, "scale %g, shift %g", p[0], p[1]);
}

int main(void)
{
    random_start(3);
    for (int star = 0; star < 2; star++) {
        against_dense(star, 0, TERMS, 0);
        against_dense(star, 0, TERMS, 1);
        against_dense(star, 3, TERMS, 0);
        against_dense(star, 0, (spx_sky_terms){0, 1, 0}, 0);
        against_dense(star, 1, (spx_sky_terms){3, 3, 2}, 0);
        pulls(star, 0, 0);
    }
    pulls(1, 30, 1);
    pulls(1, 30, 0);
    check_line();
    prior(0);
    prior(1);
    moving_together();
    joint(0);
    joint(1);
    nothing(20, 1);
    nothing(1, 1);
    nothing(20, 0);
    physical();
    return failures != 0;
}
