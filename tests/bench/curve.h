/* Writes points of curves for `make bench PLOT=1` into the file $SPX_BENCH_CURVES; without it, nothing. */
#ifndef CURVE_H
#define CURVE_H

#include <stdio.h>
#include <stdlib.h>

static inline FILE *curve_file(void)
{
    static FILE *f;
    const char *name = getenv("SPX_BENCH_CURVES");
    if (f == NULL && name != NULL && (f = fopen(name, "w")) == NULL) {
        perror(name);
        exit(1);
    }
    return f;
}

/* Before the first point. */
static inline void curve_axes(const char *x, const char *y)
{
    FILE *f = curve_file();
    if (f != NULL)
        (void)fprintf(f, "%s\t%s\n", x, y);
}

static inline void curve_point(const char *line, double x, double y)
{
    FILE *f = curve_file();
    if (f != NULL) {
        (void)fprintf(f, "%s\t%.6g\t%.6g\n", line, x, y);
        (void)fflush(f);
    }
}

#endif
