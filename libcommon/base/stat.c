#include "base/stat.h"

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

double spx_median(double *v, size_t n)
{
    if (n == 0)
        return 0.0;
    double upper = select_rank(v, n, n / 2);
    if (n % 2 == 1)
        return upper;
    double lower = v[0];
    for (size_t i = 1; i < n / 2; i++)
        lower = v[i] > lower ? v[i] : lower;
    return lower + (upper - lower) / 2.0;
}
