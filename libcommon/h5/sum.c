/* Provides checksums, with the instructions that the processor has (h5/sum.h). */
#include "h5/sum.h"

#if !defined SPX_BARE || __has_include(<xxhash.h>)
#define XXH_INLINE_ALL
#include <xxhash.h>
#else
#define XXH3_64bits(p, n) ((void)(p), (void)(n), (uint64_t)0)
#endif

uint64_t spx_sum(const void *p, size_t n)
{
#ifdef SPX_SUM_AVX2
    if (__builtin_cpu_supports("avx2"))
        return spx_sum_avx2(p, n);
#endif
    return XXH3_64bits(p, n);
}
