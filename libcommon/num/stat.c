/* Provides order statistics: Hoare's selection behind a sampling pass of Floyd and Rivest (num/stat.h). */
#include "num/stat.h"

#include <math.h>

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

/* Narrows v[*n] to the values near rank *k, moved to its front; *n and *k are updated, and ranks *k - 1 and *k are
 * among them. A sample gives two pivots (Floyd & Rivest 1975, Comm. ACM 18, 165): one branch-free pass counts, a second
 * gathers. Returns whether there are fewer values now: not where the sample misled, or where many are equal. */
static int narrow(double *v, size_t *n, size_t *k)
{
    enum { SAMPLE = 64, MARGIN = 10 }; /* 2.5 standard deviations of a rank */
    double sample[SAMPLE];
    for (size_t i = 0; i < SAMPLE; i++)
        sample[i] = v[i * (*n / SAMPLE)];
    const size_t at = SAMPLE * *k / *n;
    const double lo = at >= MARGIN ? select_rank(sample, SAMPLE, at - MARGIN) : -INFINITY,
                 hi = at + MARGIN < SAMPLE ? select_rank(sample, SAMPLE, at + MARGIN) : INFINITY;
    size_t m = 0;
    double less = 0, not_more = 0; /* counted as what is compared, in vectors */
#pragma omp simd reduction(+ : less, not_more)
    for (size_t i = 0; i < *n; i++) {
        less += v[i] < lo ? 1.0 : 0.0;
        not_more += v[i] <= hi ? 1.0 : 0.0;
    }
    const size_t below = (size_t)less, upto = (size_t)not_more;
    if (below + 1 > *k || upto <= *k || upto - below == *n)
        return 0;
    for (size_t i = 0; i < *n; i++) {
        const double x = v[i];
        v[m] = x;
        m += (x >= lo) & (x <= hi);
    }
    *n = m;
    *k -= below;
    return 1;
}

double spx_median(double *v, size_t n)
{
    enum { MANY = 256 };
    if (n == 0)
        return 0.0;
    const size_t odd = n % 2;
    size_t k = n / 2;
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

double spx_intrinsic_variance(size_t n, const double *square, const double *variance, double times, double odds,
                              double usual)
{
    enum { PLACES = 64, HALVINGS = 50 };
    static const double RARE = 0.02, RANGE = 100; /* prior of what is not expected; largest over least that is */
    double logl[PLACES + 1], weight[PLACES + 1], prior[PLACES + 1], most = -INFINITY, all = 0, kept = 0, largest = 1;
    if (n == 0)
        return 0;
    const double none = sum_of_weights(n, variance, 0), v = (double)n / none;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, square[i] / v);
    const double low = log(0.01 * sqrt(2 / ((double)n * times))), high = log(largest) + 5;
    for (int k = 0; k <= PLACES; k++) {
        const double t = k < PLACES ? v * exp(low + (high - low) * k / (PLACES - 1)) : 0;
        double product = 1, sum = 0; /* a logarithm for some of the factors v/(v_i + t) at a time */
        logl[k] = 0;
        for (size_t i = 0; i < n; i++) {
            const double total = variance[i] + t;
            sum += square[i] / total;
            product *= total / v;
            if (i % 8 == 7 || i + 1 == n) {
                logl[k] -= 0.5 * times * log(product);
                product = 1;
            }
        }
        logl[k] -= 0.5 * times * sum;
        weight[k] = k < PLACES ? sum_of_weights(n, variance, t) : none;
        prior[k] = k == PLACES ? odds : 1.0 / PLACES;
        if (usual > 0 && !(t <= usual && t * RANGE > usual))
            prior[k] *= RARE;
        most = fmax(most, logl[k]);
    }
    if (usual > 0) /* sizes below all places are none */
        prior[PLACES] += fmin(fmax(low - log(usual / RANGE / v), 0), log(RANGE)) / (high - low);
    for (int k = 0; k <= PLACES; k++) {
        const double likely = prior[k] * exp(logl[k] - most);
        all += likely;
        kept += likely * weight[k];
    }
    double from = 0, to = v * exp(high);
    for (int k = 0; k < HALVINGS && n > 1; k++) {
        const double middle = 0.5 * (from + to);
        *(sum_of_weights(n, variance, middle) > kept / all ? &from : &to) = middle;
    }
    return n > 1 ? 0.5 * (from + to) : fmax(all / kept - v, 0);
}
