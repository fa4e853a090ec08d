/* spx_median() against a full sort, for every small length, with and without ties. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/stat.h"

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    enum { MAX = 60 };
    double v[MAX], sorted[MAX];
    if (spx_median(v, 0) != 0.0) {
        puts("median of nothing is not 0");
        return 1;
    }
    srand(7);
    for (size_t n = 1; n <= MAX; n++)
        for (int trial = 0; trial < 200; trial++) {
            int levels = trial % 3 == 0 ? 3 : 1000; /* many ties in every third */
            for (size_t i = 0; i < n; i++)
                v[i] = rand() % levels - levels / 2;
            memcpy(sorted, v, n * sizeof *v);
            qsort(sorted, n, sizeof *sorted, ascending);
            double want = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0;
            double got = spx_median(v, n);
            qsort(v, n, sizeof *v, ascending);
            if (fabs(got - want) > 1e-12 || memcmp(v, sorted, n * sizeof *v) != 0) {
                printf("n %zu trial %d (seed 7): median %g, want %g\n", n, trial, got, want);
                return 1;
            }
        }
    return 0;
}
