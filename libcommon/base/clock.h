/* Provides clocks: seconds that pass, and processor seconds of a thread or of the process. Differences alone mean
 * something; nobody sets these clocks, as the time of day may be. */
#ifndef SPX_CLOCK_H
#define SPX_CLOCK_H

#include <time.h>

static inline double spx_clock_read(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t); /* fails for an unknown clock only */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Monotonic: what elapses, s. */
static inline double spx_seconds(void)
{
    return spx_clock_read(CLOCK_MONOTONIC);
}

/* Processor time of the calling thread, s. */
static inline double spx_thread_seconds(void)
{
    return spx_clock_read(CLOCK_THREAD_CPUTIME_ID);
}

/* Processor time of all threads of the process, s. */
static inline double spx_process_seconds(void)
{
    return spx_clock_read(CLOCK_PROCESS_CPUTIME_ID);
}

#endif
