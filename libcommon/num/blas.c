#include "num/blas.h"

#include <cblas.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *best_core(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "Haswell";
#endif
    return NULL;
}

void spx_blas_exec(char *const *argv)
{
    static const char name[] = "OPENBLAS_CORETYPE";
    const char *now = openblas_get_corename(), *best = best_core();
    if (best == NULL || now == NULL || strcmp(now, "Prescott") != 0 || getenv(name) != NULL)
        return;
    if (setenv(name, best, 1) == 0)
        (void)execv("/proc/self/exe", argv); /* when that fails, all works as well, but slowly */
}

static pthread_mutex_t pinning = PTHREAD_MUTEX_INITIALIZER;
static int pins, unpinned_threads;

void spx_blas_pin(void)
{
    (void)pthread_mutex_lock(&pinning);
    if (pins++ == 0) {
        unpinned_threads = openblas_get_num_threads();
        openblas_set_num_threads(1);
    }
    (void)pthread_mutex_unlock(&pinning);
}

void spx_blas_unpin(void)
{
    (void)pthread_mutex_lock(&pinning);
    if (--pins == 0)
        openblas_set_num_threads(unpinned_threads);
    (void)pthread_mutex_unlock(&pinning);
}
