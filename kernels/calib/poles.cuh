/* Provides the poles of a matrix square root (calib/root_math.h) on a device: the fewest that are exact enough, as
 * spx_sqrt_choose() finds them, by a block. TRIES numbers of poles are tried at a time, each by POLE_THREADS threads: a
 * thread a pole, and they look at the error together. */
#ifndef SPX_CALIB_POLES_CUH
#define SPX_CALIB_POLES_CUH

#include "cuda/reduce.cuh"
extern "C" {
#include "calib/root_math.h"
}

namespace
{

enum { POLE_THREADS = 96, TRIES = 4 };

/* Shared memory of a block. */
struct pole_tries {
    double shift[TRIES][SPX_MAX_POLES], weight[TRIES][SPX_MAX_POLES];
    int enough[TRIES];
};

/* Poles that were chosen: n of them; 0 for threads whose number of poles was not the one. */
struct pole_choice {
    int n;
    const double *shift, *weight;
};

/* For eigenvalues in [a, b], 0 < a <= b, and a relative error of `tolerance`. All threads of a block of (POLE_THREADS,
 * TRIES). */
__device__ pole_choice choose_poles(pole_tries &s, double a, double b, double tolerance)
{
    const int me = (int)threadIdx.x, tried = (int)threadIdx.y;
    double *shift = s.shift[tried], *weight = s.weight[tried];
    int n = spx_sqrt_fewest(a, b, tolerance);
    for (int chosen = TRIES;; n += TRIES) {
        const int mine = min(n + tried, SPX_MAX_POLES);
        const spx_sqrt_mean mean = spx_sqrt_mean_of(a, b);
        if (me < mine)
            spx_sqrt_pole(&mean, a, mine, me, &shift[me], &weight[me]);
        if (me == 0)
            s.enough[tried] = 1;
        __syncthreads();
        for (int i = me; i < SPX_SQRT_SAMPLES && mine < SPX_MAX_POLES; i += POLE_THREADS)
            if (spx_sqrt_error_at(a, b, mine, shift, weight, i) > tolerance)
                atomicAnd(&s.enough[tried], 0);
        __syncthreads();
        for (int i = TRIES - 1; i >= 0; i--)
            if (s.enough[i])
                chosen = i;
        if (chosen < TRIES)
            return {tried == chosen ? mine : 0, shift, weight};
        __syncthreads();
    }
}

} // namespace

#endif
