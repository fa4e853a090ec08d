/* Checks spx_median() against a full sort, for every small length and some larger ones, with and without ties, ordered
 * and unordered, with few outliers far away; running medians against those of their windows. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "num/stat.h"

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Tails of chi squared by SciPy 1.10, chi2.logsf(x, dof)/ln 10, and where that has no number left, the continued
 * fraction's leading terms: log10 of x^(a-1) e^-x / Gamma(a) / (1 - (a-1)/x), a = dof/2, x = chi^2/2, right to 1e-6. */
static int tails(void)
{
    static const double known[][3] = {{25, 10, -2.2720112203162044},
                                      {3, 10, -0.008143297651399895},
                                      {8000, 8000, -0.3028601532346044},
                                      {8500, 8000, -4.279626527560516},
                                      {12000, 8000, -166.12367590400916},
                                      {0.5, 1, -0.31921127782572045},
                                      {200, 1, -44.680168102309054},
                                      {2000, 8000, 0},
                                      {0, 5, 0}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const double got = spx_log10_chisq_tail(known[i][0], known[i][1]);
        if (fabs(got - known[i][2]) > 1e-10 * fmax(1, fabs(known[i][2]))) {
            printf("tail of chi2 %g, %g degrees of freedom: %.15g, not %.15g\n", known[i][0], known[i][1], got,
                   known[i][2]);
            return 1;
        }
    }
    const double a = 4000, x = 5e5, far = ((a - 1) * log(x) - x - lgamma(a) - log1p(-(a - 1) / x)) / log(10);
    const double got = spx_log10_chisq_tail(2 * x, 2 * a);
    if (!(fabs(got - far) < 1e-6 * fabs(far))) {
        printf("tail of chi2 1e6, 8000 degrees of freedom: %.10g, not %.10g\n", got, far);
        return 1;
    }
    return 0;
}

/* Running medians are those of each window by itself, of values with ties and without, in which some are no numbers. */
static int running(void)
{
    enum { MOST = 400, HALF = 60 };
    double v[MOST], median[MOST], window[2 * HALF + 1], sorted[2 * HALF + 1];
    for (int trial = 0; trial < 200; trial++) {
        const size_t n = trial % 5 == 0 ? (size_t)(rand() % 4) : (size_t)(rand() % MOST),
                     half = (size_t)(rand() % (HALF + 1));
        for (size_t i = 0; i < n; i++)
            v[i] = rand() % 7 < trial % 3 || (trial % 4 == 1 && i > n / 3 && i < n / 2)
                       ? NAN
                       : (double)(rand() % (trial % 2 ? 9 : 10000));
        spx_running_median(n, v, half, sorted, median);
        for (size_t i = 0; i < n; i++) {
            size_t m = 0;
            for (size_t k = i > half ? i - half : 0; k < n && k <= i + half; k++)
                if (!isnan(v[k]))
                    window[m++] = v[k];
            const double want = spx_median(window, m);
            if (median[i] != want) {
                printf("running median, trial %d, place %zu of %zu, half %zu: %g, want %g\n", trial, i, n, half,
                       median[i], want);
                return 1;
            }
        }
    }
    return 0;
}

static double uniform(void)
{
    return (rand() + 0.5) / (RAND_MAX + 1.0);
}

static double gauss(void)
{
    return sqrt(-2 * log(uniform())) * cos(2 * acos(-1) * uniform());
}

/* Mean weight of one value of variance 1, by the definition: prior 0 with odds 1, or flat in the logarithm. */
static double mean_weight(double n, double square)
{
    enum { PLACES = 4000 };
    const double low = log(0.01 * sqrt(2 / n)), high = log(fmax(square, 1)) + 5;
    double all = exp(-0.5 * n * square), kept = all;
    for (int k = 0; k < PLACES; k++) {
        const double t = exp(low + (high - low) * (k + 0.5) / PLACES);
        const double likely = pow(1 + t, -0.5 * n) * exp(-0.5 * n * square / (1 + t)) / PLACES;
        all += likely;
        kept += likely / (1 + t);
    }
    return kept / all;
}

/* Intrinsic variance: by a fine sum; of values that stand for many; of draws with none and with some. */
static int intrinsic(void)
{
    enum { N = 60, DRAWS = 400 };
    static double square[N], variance[N];
    for (int i = 0; i < 5; i++) {
        const double n = 4 + 12 * i, s = 0.3 * (i + 1);
        const double one = spx_intrinsic_variance(1, &s, &(double){1}, n, &(spx_scatter_prior){.odds = 1}, NULL),
                     want = 1 / mean_weight(n, s) - 1;
        for (size_t k = 0; k < N; k++) {
            square[k] = 4 * s;
            variance[k] = 4;
        }
        const double many = spx_intrinsic_variance(N, square, variance, n / N, &(spx_scatter_prior){.odds = 1}, NULL);
        if (!(fabs(one - want) < 0.03 * want && fabs(many / 4 - one) < 1e-6 * one)) {
            printf("intrinsic variance of %g values, mean square %g: %g and %g, not %g\n", n, s, one, many / 4, want);
            return 1;
        }
    }
    for (int put = 0; put < 3; put++) {
        const double t = put == 0 ? 0 : put == 1 ? 1 : 9;
        double mean = 0;
        srand(11);
        for (int draw = 0; draw < DRAWS; draw++) {
            for (size_t k = 0; k < N; k++) {
                variance[k] = 0.25 + 8 * uniform() * uniform();
                square[k] = pow(gauss() * sqrt(variance[k] + t), 2);
            }
            mean += spx_intrinsic_variance(N, square, variance, 1, &(spx_scatter_prior){.odds = 1}, NULL) / DRAWS;
        }
        printf("intrinsic variance put in %g: mean %.3f\n", t, mean);
        if (put == 0 ? !(mean < 0.03) : !(fabs(mean / t - 1) < (put == 1 ? 0.25 : 0.1)))
            return 1;
    }
    /* an expected variance: a tenth of what is found without it, or what is found where the values say otherwise */
    for (size_t k = 0; k < N; k++) {
        variance[k] = 1;
        square[k] = 1.1;
    }
    const double any = spx_intrinsic_variance(N, square, variance, 1, &(spx_scatter_prior){.odds = 1}, NULL);
    const double little =
        spx_intrinsic_variance(N, square, variance, 1, &(spx_scatter_prior){.odds = 1, .usual = 1e-4}, NULL);
    const double some =
        spx_intrinsic_variance(N, square, variance, 1, &(spx_scatter_prior){.odds = 1, .usual = 0.2}, NULL);
    for (size_t k = 0; k < N; k++)
        square[k] = 4;
    const double far =
        spx_intrinsic_variance(N, square, variance, 1, &(spx_scatter_prior){.odds = 1, .usual = 1e-4}, NULL);
    printf("intrinsic variance %.4f, where 0.0001 is expected %.4f, 0.2 %.4f; of 3 %.3f\n", any, little, some, far);
    if (!(little < 0.2 * any && some > 1.2 * any && fabs(far / 3 - 1) < 0.15))
        return 1;
    return spx_intrinsic_variance(0, square, variance, 1, &(spx_scatter_prior){.odds = 1}, NULL) != 0;
}

int main(void)
{
    if (tails() || running() || intrinsic())
        return 1;
    enum { MAX = 60, MOST = 5000 };
    static double v[MOST], sorted[MOST], among[2 * MOST];
    if (spx_median(v, 0) != 0.0) {
        puts("median of nothing is not 0");
        return 1;
    }
    srand(7);
    for (size_t n = 1; n <= MOST; n = n < MAX ? n + 1 : n * 5 / 4)
        for (int trial = 0; trial < (n <= MAX ? 200 : 40); trial++) {
            int levels = trial % 3 == 0 ? 3 : 1000; /* many ties in every third */
            for (size_t i = 0; i < n; i++) {
                v[i] = rand() % levels - levels / 2;
                if (trial % 4 == 1) /* in order, but for a few */
                    v[i] = (double)i + (rand() % 50 == 0 ? 1e9 * v[i] : 0);
                if (trial % 8 == 2) /* what stands at regular distances is alike: a sample that misleads */
                    v[i] = i % (n / 128 + (n < 128)) == 0 ? 1e6 + v[i] : v[i];
            }
            size_t m = 0; /* the same values among others that do not count */
            for (size_t i = 0; i < n; i++) {
                among[m++] = v[i];
                if (rand() % 4 < trial % 4)
                    among[m++] = INFINITY;
            }
            memcpy(sorted, v, n * sizeof *v);
            qsort(sorted, n, sizeof *sorted, ascending);
            double want = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0;
            double got = spx_median(v, n);
            if (fabs(got - want) > 1e-12 * fabs(want)) {
                printf("n %zu trial %d (seed 7): median %g, want %g\n", n, trial, got, want);
                return 1;
            }
            got = spx_median_smallest(among, m, n);
            if (fabs(got - want) > 1e-12 * fabs(want)) {
                printf("n %zu of %zu trial %d (seed 7): median %g, want %g\n", n, m, trial, got, want);
                return 1;
            }
        }
    return 0;
}
