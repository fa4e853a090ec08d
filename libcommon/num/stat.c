/* Provides order statistics: Hoare's selection behind a sampling pass of Floyd and Rivest; of windows that move along
 * values, which stay sorted (num/stat.h). */
#include "num/stat.h"

#include <math.h>
#include <string.h>

#include "base/clones.h"

/* Hoare's selection: afterwards v[k] is the value of rank k, nothing before it is larger, nothing after it smaller. */
static double select_rank(double *v, size_t n, size_t k)
{
    size_t lo = 0, hi = n - 1;
    while (lo < hi) {
        double pivot = v[lo + (hi - lo) / 2];
        size_t i = lo, j = hi;
        for (;;) {
            while (v[i] < pivot)
                i++;
            while (v[j] > pivot)
                j--;
            if (i >= j)
                break;
            double t = v[i];
            v[i++] = v[j];
            v[j--] = t;
        }
        /* v[lo..i-1] <= pivot <= v[i..hi] */
        if (i == lo)
            i++;
        if (k < i)
            hi = i - 1;
        else
            lo = i;
    }
    return v[k];
}

/* Values that are less than each pivot, p[4]. */
static void count_less(size_t n, const double *v, const double *p, size_t *less)
{
    const double p0 = p[0], p1 = p[1], p2 = p[2], p3 = p[3];
    double n0 = 0, n1 = 0, n2 = 0, n3 = 0; /* counted as what is compared, in vectors */
#pragma omp simd reduction(+ : n0, n1, n2, n3)
    for (size_t i = 0; i < n; i++) {
        n0 += v[i] < p0 ? 1.0 : 0.0;
        n1 += v[i] < p1 ? 1.0 : 0.0;
        n2 += v[i] < p2 ? 1.0 : 0.0;
        n3 += v[i] < p3 ? 1.0 : 0.0;
    }
    less[0] = (size_t)n0;
    less[1] = (size_t)n1;
    less[2] = (size_t)n2;
    less[3] = (size_t)n3;
}

/* Narrows v[*n] to the values near rank *k, moved to its front; *n and *k are updated, and ranks *k - 1 and *k are
 * among them. A sample gives pivots (Floyd & Rivest 1975, Comm. ACM 18, 165): one branch-free pass counts, a second
 * gathers what is between two of them. Returns whether there are fewer values now: not where the sample misled, or
 * where many are equal, unless all pivots are. */
static int narrow(double *v, size_t *n, size_t *k)
{
    enum { SAMPLE = 64, PIVOTS = 4 };
    static const int from_rank[PIVOTS] = {-11, -4, 4, 11}; /* standard deviation of a rank: 4 */
    double sample[SAMPLE], pivot[PIVOTS];
    size_t less[PIVOTS], taken = 0, m = 0;
    for (size_t i = 0; i < SAMPLE; i++)
        sample[i] = v[i * (*n / SAMPLE)];
    for (size_t j = 0; j < PIVOTS; j++) {
        const int at = (int)(SAMPLE * *k / *n) + from_rank[j];
        pivot[j] = at < 0 ? -INFINITY : INFINITY;
        if (at >= 0 && at < SAMPLE) { /* what is before `taken` is not larger */
            pivot[j] = select_rank(sample + taken, SAMPLE - taken, (size_t)at - taken);
            taken = (size_t)at;
        }
    }
    count_less(*n, v, pivot, less);
    if (pivot[0] == pivot[PIVOTS - 1]) {
        size_t equal = 0;
        for (size_t i = 0; i < *n; i++)
            equal += v[i] == pivot[0];
        if (less[0] + 1 > *k || less[0] + equal <= *k)
            return 0;
        v[0] = v[1] = pivot[0];
        *n = 2;
        *k = 1;
        return 1;
    }
    size_t lo = 0, hi = PIVOTS - 1; /* the nearest ones around both ranks */
    while (lo + 1 < hi && less[lo + 1] + 1 <= *k)
        lo++;
    while (hi > lo + 1 && less[hi - 1] > *k)
        hi--;
    if (less[lo] + 1 > *k || less[hi] <= *k || less[hi] - less[lo] == *n)
        return 0;
    for (size_t i = 0; i < *n; i++) {
        const double x = v[i];
        v[m] = x;
        m += (x >= pivot[lo]) & (x < pivot[hi]);
    }
    *n = m;
    *k -= less[lo];
    return 1;
}

double spx_median_smallest(double *v, size_t n, size_t m)
{
    enum { MANY = 256 };
    if (m == 0)
        return 0.0;
    const size_t odd = m % 2;
    size_t k = m / 2;
    while (n >= MANY && narrow(v, &n, &k))
        ;
    double upper = select_rank(v, n, k);
    if (odd)
        return upper;
    double lower = v[0];
    for (size_t i = 1; i < k; i++)
        lower = v[i] > lower ? v[i] : lower;
    return lower + (upper - lower) / 2.0;
}

double spx_median(double *v, size_t n)
{
    return spx_median_smallest(v, n, n);
}

/* How many of sorted v[n] are less than x. */
static size_t count_below(size_t n, const double *v, double x)
{
    const double *first = v;
    while (n > 1) {
        const size_t half = n / 2;
        first += first[half - 1] < x ? half : 0;
        n -= half;
    }
    return (size_t)(first - v) + (n == 1 && *first < x);
}

void spx_running_median(size_t n, const double *v, size_t half, double *sorted, double *median)
{
    size_t m = 0;
    for (size_t i = 0, next = 0; i < n; i++) {
        if (i > half && !isnan(v[i - half - 1])) {
            const size_t k = count_below(m, sorted, v[i - half - 1]);
            memmove(sorted + k, sorted + k + 1, (--m - k) * sizeof *sorted);
        }
        for (; next < n && next <= i + half; next++) {
            if (isnan(v[next]))
                continue;
            const size_t k = count_below(m, sorted, v[next]);
            memmove(sorted + k + 1, sorted + k, (m++ - k) * sizeof *sorted);
            sorted[k] = v[next];
        }
        const double lower = m > 0 ? sorted[(m - 1) / 2] : 0, upper = m > 0 ? sorted[m / 2] : 0;
        median[i] = lower + (upper - lower) / 2.0;
    }
}

double spx_log10_chisq_tail(double chisq, double dof)
{
    enum { MOST = 1000000 };
    const double a = dof / 2, x = chisq / 2;
    if (!(x > 0))
        return 0;
    const double front = a * log(x) - x - lgamma(a); /* ln of x^a e^-x / Gamma(a) */
    if (x < a + 1) {
        /* the series of P = 1 - Q */
        double term = 1 / a, sum = term;
        for (int n = 1; n < MOST && term > 1e-17 * sum; n++) {
            term *= x / (a + n);
            sum += term;
        }
        const double p = exp(front + log(sum));
        return p < 1 ? log1p(-p) / log(10) : -INFINITY;
    }
    /* the continued fraction of Q (Lentz's method) */
    double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
    for (int n = 1; n < MOST; n++) {
        const double an = -n * (n - a);
        b += 2;
        d = 1 / (an * d + b);
        c = b + an / c;
        h *= c * d;
        if (fabs(c * d - 1) < 1e-15)
            break;
    }
    return (front + log(h)) / log(10);
}

/* Sum of weights 1/(v + t). */
static double sum_of_weights(size_t n, const double *variance, double t)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += 1 / (variance[i] + t);
    return sum;
}

/* What a value of variance[i] and its square add at intrinsic variances t[n]: to the sum of squares in units of their
 * variances, to the product of these over v, and to the sum of weights. */
SPX_CLONES
static void add_likelihood(size_t n, double variance, double square, double v, const double *restrict t,
                           double *restrict sum, double *restrict product, double *restrict weight)
{
#pragma omp simd
    for (size_t k = 0; k < n; k++) {
        const double total = variance + t[k];
        sum[k] += square / total;
        product[k] *= total / v;
        weight[k] += 1 / total;
    }
}

double spx_intrinsic_variance(size_t n, const double *square, const double *variance, double times,
                              const spx_scatter_prior *prior, double *unsure)
{
    enum { PLACES = 64, HALVINGS = 50 };
    static const double RARE = 0.02, RANGE = 100; /* prior of what is not expected; largest over least that is */
    const double usual = prior->usual;
    double place[PLACES + 1], logl[PLACES + 1] = {0}, chance[PLACES + 1];
    double product[PLACES + 1], sum[PLACES + 1] = {0}, weight[PLACES + 1] = {0};
    double most = -INFINITY, all = 0, kept = 0, squares = 0, largest = 1;
    if (unsure != NULL)
        *unsure = 0;
    if (n == 0)
        return 0;
    const double none = sum_of_weights(n, variance, 0), v = (double)n / none;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, square[i] / v);
    const double low = log(0.01 * sqrt(2 / ((double)n * times))), high = log(largest) + 5;
    for (int k = 0; k <= PLACES; k++) {
        place[k] = k < PLACES ? v * exp(low + (high - low) * k / (PLACES - 1)) : 0;
        product[k] = 1;
    }
    for (size_t i = 0; i < n; i++) {
        add_likelihood(PLACES + 1, variance[i], square[i], v, place, sum, product, weight);
        for (int k = 0; k <= PLACES && (i % 8 == 7 || i + 1 == n); k++) { /* a logarithm for some factors at a time */
            logl[k] -= 0.5 * times * log(product[k]);
            product[k] = 1;
        }
    }
    for (int k = 0; k <= PLACES; k++) {
        const double t = place[k];
        logl[k] -= 0.5 * times * sum[k];
        chance[k] = k == PLACES ? prior->odds : 1.0 / PLACES;
        if (usual > 0 && (t > usual ? !prior->larger : t * RANGE <= usual))
            chance[k] *= RARE;
        most = fmax(most, logl[k]);
    }
    if (usual > 0) { /* sizes below all places are none, and as likely where all that are usual are below them */
        const double below = fmin(fmax(low - log(usual / RANGE / v), 0), log(RANGE));
        chance[PLACES] += fmax(prior->larger ? 0 : below / (high - low), below / log(RANGE) * prior->odds);
    }
    for (int k = 0; k <= PLACES; k++) {
        const double likely = chance[k] * exp(logl[k] - most);
        all += likely;
        kept += likely * weight[k];
        squares += likely * weight[k] * weight[k];
    }
    double from = 0, to = v * exp(high);
    for (int k = 0; k < HALVINGS && n > 1; k++) {
        const double middle = 0.5 * (from + to);
        *(sum_of_weights(n, variance, middle) > kept / all ? &from : &to) = middle;
    }
    const double found = n > 1 ? 0.5 * (from + to) : fmax(all / kept - v, 0);
    double slope = 0; /* of the sum, d/dt */
    for (size_t i = 0; i < n && unsure != NULL; i++)
        slope += 1 / ((variance[i] + found) * (variance[i] + found));
    if (unsure != NULL)
        *unsure = fmax(squares / all - kept / all * (kept / all), 0) / (slope * slope);
    return found;
}
