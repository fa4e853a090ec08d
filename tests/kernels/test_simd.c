/* Vectors of kernels/simd on each instruction set of this processor: exp, log and erf against expl(), logl() and
 * erfl(), within the accuracy that simd_math.h states, and against each other; what they do at 0, at the ends of their
 * ranges, with NaN and infinities; masks and sums over lanes. */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "simd/accuracy.h"
#include "simd_arrays.h"

enum { N = 1 << 16, NSET = 3 };

static double x[N], y[N], gauss[N], first[N], first_gauss[N];
static const simd_arrays *set[NSET];

static double uniform(void)
{
    static uint64_t s = 88172645463325252u;
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return (double)(s >> 11) * 0x1p-53;
}

/* Distance in units in the last place of `want` in double precision. */
static double ulps(long double a, long double want)
{
    int e;
    frexpl(want, &e);
    return (double)(fabsl(a - want) / ldexpl(1, e - DBL_MANT_DIG));
}

typedef struct {
    const char *name;
    void (*of)(const simd_arrays *s);
    long double (*want)(long double x);
    double low, high; /* arguments: even in themselves, or in their logarithm where `geometric` */
    int geometric;
    double bound, apart; /* ulp: from the true value, from another instruction set's */
} function;

static void exp_all(const simd_arrays *s)
{
    s->exp(N, x, y);
}

static void log_all(const simd_arrays *s)
{
    s->log(N, x, y);
}

static void functions(void)
{
    static const function f[] = {
        {"exp", exp_all, expl, SPX_EXP_LOW, SPX_EXP_HIGH, 0, SPX_EXP_ULP, SPX_EXP_SETS_ULP},
        {"exp", exp_all, expl, -1, 1, 0, SPX_EXP_ULP, SPX_EXP_SETS_ULP},
        {"exp", exp_all, expl, 1e-320, 1e-3, 1, SPX_EXP_ULP, SPX_EXP_SETS_ULP},
        {"log", log_all, logl, DBL_MIN, DBL_MAX, 1, SPX_LOG_ULP, SPX_LOG_SETS_ULP},
        {"log", log_all, logl, 0.5, 2, 0, SPX_LOG_ULP, SPX_LOG_SETS_ULP},
        {"log", log_all, logl, 1 - 1e-7, 1 + 1e-7, 0, SPX_LOG_ULP, SPX_LOG_SETS_ULP},
    };
    for (size_t k = 0; k < sizeof f / sizeof *f; k++) {
        const double a = f[k].geometric ? log(f[k].low) : f[k].low, b = f[k].geometric ? log(f[k].high) : f[k].high;
        for (size_t i = 0; i < N; i++) {
            const double u = a + (b - a) * uniform();
            x[i] = f[k].geometric ? fmin(fmax(exp(u), f[k].low), f[k].high) : u;
        }
        x[0] = f[k].low;
        x[1] = f[k].high;
        for (size_t v = 0; v < NSET; v++) {
            double worst = 0, at = 0, apart = 0;
            if (!set[v])
                continue;
            f[k].of(set[v]);
            if (v == 0)
                memcpy(first, y, sizeof y);
            for (size_t i = 0; i < N; i++) {
                const double off = ulps((long double)y[i], f[k].want((long double)x[i]));
                if (!(off <= worst)) {
                    worst = off;
                    at = x[i];
                }
                apart = fmax(apart, ulps((long double)y[i], (long double)first[i]));
            }
            printf("%s, %s, %g ... %g: %.3f ulp at %.17g, %.0f ulp from base\n", f[k].name, set[v]->name, f[k].low,
                   f[k].high, worst, at, apart);
            CHECK(worst <= f[k].bound, "%s of %s: %g ulp at %.17g", f[k].name, set[v]->name, worst, at);
            CHECK(apart <= f[k].apart, "%s of %s: %g ulp from base", f[k].name, set[v]->name, apart);
        }
    }
}

/* erf(e/sqrt 2)/2, absolute; exp(-e^2/2), where rounding of e^2/2 counts. */
static void erf_and_gauss(void)
{
    static const double range[][2] = {{-6, 6}, {-40, 40}, {-1e-5, 1e-5}};
    for (size_t k = 0; k < sizeof range / sizeof *range; k++) {
        for (size_t i = 0; i < N; i++)
            x[i] = range[k][0] + (range[k][1] - range[k][0]) * uniform();
        for (size_t v = 0; v < NSET; v++) {
            double worst = 0, apart = 0, worst_gauss = 0;
            if (!set[v])
                continue;
            set[v]->half_erf(N, x, y, gauss);
            if (v == 0) {
                memcpy(first, y, sizeof y);
                memcpy(first_gauss, gauss, sizeof gauss);
            }
            for (size_t i = 0; i < N; i++) {
                const long double e = (long double)x[i], half = e * e / 2;
                const long double want = erfl(e * 0.707106781186547524400844362104849039L) / 2;
                const long double g = expl(half < 700 ? -half : -700.0L);
                worst = fmax(worst, (double)fabsl((long double)y[i] - want));
                worst_gauss = fmax(worst_gauss, (double)(fabsl((long double)gauss[i] / g - 1) / (1 + half)));
                apart = fmax(apart, fabs(y[i] - first[i]));
                CHECK(fabs(gauss[i] / first_gauss[i] - 1) <= 2 * SPX_GAUSS_ERROR * (double)(1 + half),
                      "exp(-e^2/2) of %s at %.17g is %.17g, base %.17g", set[v]->name, x[i], gauss[i], first_gauss[i]);
            }
            printf("erf/2, %s, %g ... %g: %.2e, %.2e from base; gauss %.2e\n", set[v]->name, range[k][0], range[k][1],
                   worst, apart, worst_gauss);
            CHECK(worst <= SPX_HALF_ERF_ERROR, "erf/2 of %s: error %g", set[v]->name, worst);
            CHECK(apart <= SPX_HALF_ERF_ERROR, "erf/2 of %s: %g from base", set[v]->name, apart);
            CHECK(worst_gauss <= SPX_GAUSS_ERROR, "exp(-e^2/2) of %s: error %g", set[v]->name, worst_gauss);
        }
    }
}

static void single_precision(void)
{
    static float xf[N], yf[N];
    for (size_t i = 0; i < N; i++)
        xf[i] = (float)(-90 + 180 * uniform());
    for (size_t v = 0; v < NSET; v++) {
        double worst = 0;
        if (!set[v])
            continue;
        set[v]->expf(N, xf, yf);
        for (size_t i = 0; i < N; i++) {
            const double want = exp(fmin(fmax((double)xf[i], -87), 87));
            worst = fmax(worst, fabs((double)yf[i] / want - 1));
        }
        printf("exp, %s, single precision: %.2e\n", set[v]->name, worst);
        CHECK(worst <= SPX_EXPF_ERROR, "exp of %s in single precision: error %g", set[v]->name, worst);
    }
}

static void specials(void)
{
    enum { E = 16 };
    const double tiny = DBL_TRUE_MIN,
                 in[E] = {0, -0.0, tiny, -tiny, DBL_MIN, -DBL_MIN, NAN, -NAN, 0, 0, 0, 0, 0, 0, 0, 0};
    const double wide[E] = {INFINITY, -INFINITY, NAN, 1e300, -1e300, 3, -3, 0};
    const double ln[E] = {1, DBL_MIN, DBL_MAX, 2, 0.5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const double edge[E] = {0, -0.0, tiny, 1e300, -1e300, 50, -50, INFINITY, -INFINITY, NAN, 38, -38, DBL_MAX, 0, 0, 0};
    for (size_t v = 0; v < NSET; v++) {
        double out[E], g[E], in_range[E];
        if (!set[v])
            continue;
        set[v]->exp(E, in, out);
        for (size_t i = 0; i < 6; i++)
            CHECK(out[i] == 1, "%s: exp(%g) is %.17g", set[v]->name, in[i], out[i]);
        CHECK(isnan(out[6]) && isnan(out[7]), "%s: exp(NaN) is %g, %g", set[v]->name, out[6], out[7]);
        /* what lies beyond the range is brought into it first */
        set[v]->clamp(E, wide, SPX_EXP_LOW, SPX_EXP_HIGH, in_range);
        CHECK(in_range[0] == SPX_EXP_HIGH && in_range[1] == SPX_EXP_LOW && isnan(in_range[2]) &&
                  in_range[3] == SPX_EXP_HIGH && in_range[4] == SPX_EXP_LOW && in_range[5] == 3 && in_range[6] == -3,
              "%s: clamped to %g %g %g %g %g %g", set[v]->name, in_range[0], in_range[1], in_range[2], in_range[3],
              in_range[4], in_range[5]);
        set[v]->exp(E, in_range, out);
        CHECK(isfinite(out[0]) && out[0] > 8e307 && out[1] >= DBL_MIN && out[1] < 4e-308 && isnan(out[2]),
              "%s: exp at the ends of its range: %g %g %g", set[v]->name, out[0], out[1], out[2]);
        set[v]->log(E, ln, out);
        CHECK(out[0] == 0 && fabs(out[1] - log(DBL_MIN)) < 1e-12 && fabs(out[2] - log(DBL_MAX)) < 1e-12 &&
                  out[3] == log(2) && out[4] == log(0.5),
              "%s: ln of 1, the least and the largest double, 2, 0.5: %g %.17g %.17g %.17g %.17g", set[v]->name, out[0],
              out[1], out[2], out[3], out[4]);
        set[v]->half_erf(E, edge, out, g);
        CHECK(fabs(out[0]) <= SPX_HALF_ERF_ERROR && signbit(out[1]) && fabs(out[2]) <= SPX_HALF_ERF_ERROR,
              "%s: erf near 0: %g %g %g", set[v]->name, out[0], out[1], out[2]);
        CHECK(out[3] == 0.5 && out[4] == -0.5 && out[5] == 0.5 && out[6] == -0.5 && out[12] == 0.5,
              "%s: erf/2 far away: %.17g %.17g %.17g %.17g %.17g", set[v]->name, out[3], out[4], out[5], out[6],
              out[12]);
        CHECK(isnan(out[7]) && isnan(out[8]) && isnan(out[9]), "%s: erf of infinities and NaN: %g %g %g", set[v]->name,
              out[7], out[8], out[9]);
        CHECK(g[0] == 1 && g[3] > 0 && g[3] < 1e-303, "%s: exp(-e^2/2) at 0 and far away: %g %g", set[v]->name, g[0],
              g[3]);
    }
}

static void lanes(void)
{
    enum { E = 16 };
    for (size_t v = 0; v < NSET; v++) {
        double a[E], b[E], most[E], magnitude[E], in_order = 0, ones[E], part[8];
        if (!set[v])
            continue;
        const size_t n = set[v]->lanes;
        for (size_t i = 0; i < E; i++) {
            a[i] = uniform() - 0.5;
            b[i] = uniform() - 0.5;
            ones[i] = 1;
        }
        set[v]->choose(E, a, b, most, magnitude);
        for (size_t i = 0; i < E; i++)
            CHECK(most[i] == fmax(a[i], b[i]) && magnitude[i] == fabs(a[i]), "%s: larger of %g and %g: %g; |.| %g",
                  set[v]->name, a[i], b[i], most[i], magnitude[i]);
        for (size_t i = 0; i < n; i++) {
            in_order += a[i];
            part[i] = a[i];
        }
        CHECK(set[v]->sum_in_order(a) == in_order, "%s: sum in order", set[v]->name);
        for (size_t m = n / 2; m >= 1; m /= 2) /* halves */
            for (size_t i = 0; i < m; i++)
                part[i] += part[i + m];
        CHECK(set[v]->sum_lanes(a) == part[0], "%s: sum by halves", set[v]->name);
        CHECK(!set[v]->any_above(ones, 2) && set[v]->all_above(ones, 0), "%s: none or all lanes", set[v]->name);
        for (size_t i = 0; i < n; i++) {
            ones[i] = 3;
            CHECK(set[v]->any_above(ones, 2) && !set[v]->all_above(ones, 2), "%s: lane %zu alone", set[v]->name, i);
            ones[i] = NAN;
            CHECK(!set[v]->all_above(ones, 0), "%s: NaN in lane %zu", set[v]->name, i);
            ones[i] = 1;
        }
    }
}

int main(void)
{
    set[0] = simd_base();
    set[1] = simd_avx2();
    set[2] = simd_avx512();
    functions();
    erf_and_gauss();
    single_precision();
    specials();
    lanes();
    for (size_t v = 0; v < NSET; v++)
        if (!set[v])
            printf("not tested: this processor has no %s\n", v == 1 ? "AVX2 with FMA" : "AVX-512");
    return failures != 0;
}
