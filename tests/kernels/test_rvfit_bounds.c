/* Checks the moments of Gaussians within bounds (search/bounds.c) against formulae of one quantity and sums over a
 * dense grid of three; those of vsini, of which all values are as likely beforehand; and that pulls of quantities
 * within their bounds have an rms of 1. */
#include "rvfit/search/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "random.h"

static spx_rv_ctx c;

static void bounds(size_t n, const size_t *q, const double *lo, const double *hi)
{
    memset(&c, 0, sizeof c);
    c.nfree = n;
    c.nq = SPX_MAX_FIT;
    c.slow = 20;
    for (size_t i = 0; i < n; i++) {
        c.freeq[i] = q[i];
        c.lo[q[i]] = lo[i];
        c.hi[q[i]] = hi[i];
    }
}

/* The minimum within the bounds of a Gaussian about u with precision p[n][n], by coordinate descent. */
static void minimum(size_t n, const double *p, const double *u, double *x, double *grad)
{
    for (size_t i = 0; i < n; i++)
        x[c.freeq[i]] = fmin(c.hi[c.freeq[i]], fmax(c.lo[c.freeq[i]], u[i]));
    for (int round = 0; round < 4000; round++)
        for (size_t i = 0; i < n; i++) {
            const size_t q = c.freeq[i];
            double g = 0;
            for (size_t k = 0; k < n; k++)
                g += k == i ? 0 : p[i * n + k] * (x[c.freeq[k]] - u[k]);
            x[q] = fmin(c.hi[q], fmax(c.lo[q], u[i] - g / p[i * n + i]));
        }
    for (size_t i = 0; i < n; i++) {
        grad[i] = 0;
        for (size_t k = 0; k < n; k++)
            grad[i] += 2 * p[i * n + k] * (x[c.freeq[k]] - u[k]);
    }
}

/* Moments about x by sums over a grid of three quantities; those at bounds from there on. */
static void dense(const double *p, const double *u, const double *x, double *moment)
{
    enum { N = 90 };
    double sum = 0, m[9] = {0}, at[3][N], inverse[9];
    (void)spx_rv_invert(3, p, inverse);
    for (size_t i = 0; i < 3; i++) {
        const size_t q = c.freeq[i];
        const double s = 6 * sqrt(inverse[i * 3 + i]), lo = fmax(c.lo[q], u[i] - s), hi = fmin(c.hi[q], u[i] + s);
        for (size_t k = 0; k < N; k++)
            at[i][k] = lo + (hi - lo) * ((double)k + 0.5) / N;
    }
    for (size_t k = 0; k < (size_t)N * N * N; k++) {
        const double y[3] = {at[0][k / N / N], at[1][k / N % N], at[2][k % N]};
        double f = 0;
        for (size_t i = 0; i < 9; i++)
            f += p[i] * (y[i / 3] - u[i / 3]) * (y[i % 3] - u[i % 3]);
        const double w = exp(-0.5 * f);
        sum += w;
        for (size_t i = 0; i < 9; i++)
            m[i] += w * (y[i / 3] - x[c.freeq[i / 3]]) * (y[i % 3] - x[c.freeq[i % 3]]);
    }
    for (size_t i = 0; i < 9; i++)
        moment[i] = m[i] / sum;
}

static void one_quantity(void)
{
    static const size_t q = 4;
    const double lo = 0, hi = 0.4;
    for (int k = 0; k < 200; k++) {
        const double u = -1 + 2.4 * uniform(), s = pow(10, -2 + 2.5 * uniform()), p = 1 / (s * s), hess = 2 * p;
        double x[SPX_MAX_FIT] = {0}, grad, moment, unused = NAN;
        bounds(1, &q, &lo, &hi);
        minimum(1, &p, &u, x, &grad);
        CHECK(spx_rv_bounded_moments(&c, x, &grad, &hess, &moment, &unused), "u %g s %g", u, s);
        /* moments of z = (y - u) / s between a and b */
        const double a = (lo - u) / s, b = (hi - u) / s;
        double sum[3] = {0};
        for (int i = 0; i < 20000; i++) {
            const double from = fmax(a, -9), to = fmin(b, 9), least = a > 0 ? a : b < 0 ? b : 0;
            const double end = a > 0 ? fmin(b, a + 40 / a) : to, begin = b < 0 ? fmax(a, b + 40 / b) : from;
            const double z = begin + (end - begin) * (i + 0.5) / 20000;
            const double w = exp(-0.5 * (z * z - least * least)), d = u + s * z - x[q];
            sum[0] += w;
            sum[1] += w * d * d;
        }
        const double want = sum[1] / sum[0];
        CHECK(fabs(moment / want - 1) < 1e-2, "u %g, s %g: %g, exactly %g", u, s, sqrt(moment), sqrt(want));
        CHECK(isnan(unused), "a mean square of vsini");
    }
}

static void three_quantities(void)
{
    static const size_t q[3] = {0, 3, 4};
    const double lo[3] = {-1000, 0, -1}, hi[3] = {1000, 0.4, 1};
    double worst = 0;
    for (int k = 0; k < 60; k++) {
        double a[9], p[9] = {0}, hess[9], u[3], x[SPX_MAX_FIT] = {0}, grad[3], moment[9], want[9], unused = NAN;
        bounds(3, q, lo, hi);
        for (int i = 0; i < 9; i++)
            a[i] = gauss();
        for (int i = 0; i < 9; i++) {
            for (int l = 0; l < 3; l++)
                p[i] += a[i / 3 * 3 + l] * a[i % 3 * 3 + l];
            p[i] += i % 4 == 0 ? 0.3 : 0; /* correlations up to some 0.9 */
        }
        static const double scale[3] = {0.5, 0.15, 0.6};
        for (int i = 0; i < 9; i++)
            hess[i] = 2 * (p[i] /= scale[i / 3] * scale[i % 3]);
        u[0] = 30 * gauss();
        u[1] = 0.2 + 0.3 * gauss();
        u[2] = gauss();
        minimum(3, p, u, x, grad);
        CHECK(spx_rv_bounded_moments(&c, x, grad, hess, moment, &unused), "case %d", k);
        dense(p, u, x, want);
        for (int i = 0; i < 9; i++) {
            const double off = (moment[i] - want[i]) / sqrt(want[i / 3 * 4] * want[i % 3 * 4]);
            worst = fmax(worst, fabs(off));
            /* expectation propagation is no exact method */
            CHECK(fabs(off) < 0.05, "case %d, moment %d: %g, sums %g", k, i, moment[i], want[i]);
        }
    }
    printf("three quantities: moments off by up to %.3f\n", worst);
}

/* Of rotation, beside a metallicity that goes with it: draws of both with vsini anywhere in 0 ... 40. */
static void rotation(void)
{
    static const size_t q[2] = {1, 3};
    enum { N = 20000 };
    const double lo[2] = {0, -5}, hi[2] = {spx_rv_vsini_map(40, 20), 5};
    for (int k = 0; k < 4; k++) {
        const double sigma = (double[]){1, 4, 12, 40}[k], rho = 0.6, feh = 0.1;
        double v2 = 0, f2 = 0;
        bounds(2, q, lo, hi);
        for (int i = 0; i < N; i++) {
            const double v = 40 * uniform(), g = gauss(), d = 1 - rho * rho;
            const double p[4] = {1 / (sigma * sigma * d), -rho / (sigma * feh * d), -rho / (sigma * feh * d),
                                 1 / (feh * feh * d)};
            const double u[2] = {spx_rv_vsini_map(v, 20) + sigma * g, feh * (rho * g + sqrt(d) * gauss())};
            double hess[4], x[SPX_MAX_FIT] = {0}, grad[2], moment[4], square = NAN;
            for (int l = 0; l < 4; l++)
                hess[l] = 2 * p[l];
            for (int l = 0; l < 2; l++)
                x[q[l]] = fmin(hi[l], fmax(lo[l], u[l]));
            if (x[1] != u[0]) /* the other at the minimum there */
                x[3] = u[1] + rho * feh / sigma * (x[1] - u[0]);
            for (int l = 0; l < 2; l++)
                grad[l] = 2 * (p[2 * l] * (x[1] - u[0]) + p[2 * l + 1] * (x[3] - u[1]));
            if (!spx_rv_bounded_moments(&c, x, grad, hess, moment, &square)) {
                CHECK(0, "no moments at %g", u[0]);
                continue;
            }
            const double off = spx_rv_vsini(x[1], 20) - v;
            if (isnan(square)) /* far from the bounds */
                square = moment[0] * pow((spx_rv_vsini(x[1] + sigma, 20) - spx_rv_vsini(x[1], 20)) / sigma, 2);
            v2 += off * off / square / N;
            f2 += x[3] * x[3] / moment[3] / N;
        }
        printf("rotation, sigma %g: rms of pulls %.3f, of a metallicity %.3f\n", sigma, sqrt(v2), sqrt(f2));
        CHECK(fabs(sqrt(v2) - 1) < 0.03 && fabs(sqrt(f2) - 1) < 0.03, "sigma %g: rms of pulls %g, %g", sigma, sqrt(v2),
              sqrt(f2));
    }
}

int main(void)
{
    static const uint64_t seed = 20261126;
    random_start(seed);
    one_quantity();
    three_quantities();
    rotation();
    if (failures)
        printf("seed %llu\n", (unsigned long long)seed);
    return failures != 0;
}
