/* What benchmarks and checks cannot go on without, and clocks. */
#ifndef MUST_H
#define MUST_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/err.h"

static inline void must(int ok, const spx_err *e)
{
    if (!ok) {
        printf("%s\n", e->msg);
        exit(1);
    }
}

static inline void *must_have(void *p)
{
    if (p == NULL) {
        puts("out of memory");
        exit(1);
    }
    return p;
}

static inline double seconds_of(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double wall_seconds(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

/* Of all threads of the process. */
static inline double core_seconds(void)
{
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

#endif
