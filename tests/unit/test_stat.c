/* Checks spx_median() against a full sort, for every small length and some larger ones, with and without ties, ordered
 * and unordered, with few outliers far away. */
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

int main(void)
{
    enum { MAX = 60, MOST = 5000 };
    static double v[MOST], sorted[MOST];
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
            memcpy(sorted, v, n * sizeof *v);
            qsort(sorted, n, sizeof *sorted, ascending);
            double want = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0;
            double got = spx_median(v, n);
            if (fabs(got - want) > 1e-12 * fabs(want)) {
                printf("n %zu trial %d (seed 7): median %g, want %g\n", n, trial, got, want);
                return 1;
            }
        }
    return 0;
}
