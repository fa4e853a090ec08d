/* Spots of lines for processors with AVX-512; compiled for them by the Makefile, used where they are found. */
#include "shift/spots.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__)
#define SPX_VL         8
#define SPX_SPOTS      avx512
#define SPX_SPOTS_NAME "avx512"
#include "shift/spots_lanes.h"

const spx_shift_spots *spx_shift_spots_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") ? &avx512 : NULL;
}
#else
const spx_shift_spots *spx_shift_spots_avx512(void)
{
    return NULL;
}
#endif
