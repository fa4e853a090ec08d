/* Provides checksums with AVX2 (h5/sum.h). */
#include "h5/sum.h"

#ifdef SPX_SUM_AVX2
#pragma GCC target("avx2")
#if !defined SPX_BARE || __has_include(<xxhash.h>)
#define XXH_INLINE_ALL
#include <xxhash.h>
#else
#define XXH3_64bits(p, n) ((void)(p), (void)(n), (uint64_t)0)
#endif

uint64_t spx_sum_avx2(const void *p, size_t n)
{
    return XXH3_64bits(p, n);
}
#endif
