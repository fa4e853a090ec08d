/* Provides teams: threads of a block of a device, which wait for each other, and add up in a fixed order. Steps that
 * are written for a team run on the host, too, where tests have threads for them: a place where a wait is missing is
 * then found by ThreadSanitizer. */
#ifndef SPX_TEAM_H
#define SPX_TEAM_H

#include <math.h>

#include "hostdevice.h"

enum { SPX_TEAM_WARP = 32 };

typedef struct {
    int thread, threads;  /* this one; all, on a device a multiple of SPX_TEAM_WARP */
    double *sums;         /* shared: [threads], on a device one of each warp */
    double *shared;       /* what the step has asked for */
    void (*wait)(void *); /* of the host */
    void *barrier;
} spx_team;

/* Waits for all threads; those see what each has written before. */
SPX_HD void spx_team_wait(const spx_team *t)
{
#ifdef __CUDA_ARCH__
    if (t->threads == SPX_TEAM_WARP)
        __syncwarp();
    else
        __syncthreads();
#else
    t->wait(t->barrier);
#endif
}

/* Sum over a team, in all its threads. Waits. */
SPX_HD double spx_team_sum(const spx_team *t, double v)
{
    double sum = 0;
#ifdef __CUDA_ARCH__
    for (int s = SPX_TEAM_WARP / 2; s > 0; s /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, s);
    if (t->threads == SPX_TEAM_WARP) { /* all have it */
        __syncwarp();
        return v;
    }
    if (t->thread % SPX_TEAM_WARP == 0)
        t->sums[t->thread / SPX_TEAM_WARP] = v;
    const int n = t->threads / SPX_TEAM_WARP;
#else
    t->sums[t->thread] = v;
    const int n = t->threads;
#endif
    spx_team_wait(t);
    for (int i = 0; i < n; i++)
        sum += t->sums[i];
    spx_team_wait(t);
    return sum;
}

/* Threads side by side that share a task: `lanes` of a device, a power of two up to a warp, one of the host. */
enum { SPX_TEAM_PART = 8 };

SPX_HD int spx_team_lanes(int lanes)
{
#ifdef __CUDA_ARCH__
    return lanes;
#else
    (void)lanes;
    return 1;
#endif
}

/* Sum over these, in all of them. All threads of the team call it; it does not wait for others. */
SPX_HD double spx_team_part_sum(double v, int lanes)
{
#ifdef __CUDA_ARCH__
    for (int s = lanes / 2; s > 0; s /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, s);
#else
    (void)lanes;
#endif
    return v;
}

/* Largest value of a team, in all its threads. Waits. */
SPX_HD double spx_team_max(const spx_team *t, double v)
{
    double most;
#ifdef __CUDA_ARCH__
    for (int s = SPX_TEAM_WARP / 2; s > 0; s /= 2)
        v = fmax(v, __shfl_xor_sync(0xffffffffu, v, s));
    if (t->threads == SPX_TEAM_WARP) {
        __syncwarp();
        return v;
    }
    if (t->thread % SPX_TEAM_WARP == 0)
        t->sums[t->thread / SPX_TEAM_WARP] = v;
    const int n = t->threads / SPX_TEAM_WARP;
#else
    t->sums[t->thread] = v;
    const int n = t->threads;
#endif
    spx_team_wait(t);
    most = t->sums[0];
    for (int i = 1; i < n; i++)
        most = fmax(most, t->sums[i]);
    spx_team_wait(t);
    return most;
}

#endif
