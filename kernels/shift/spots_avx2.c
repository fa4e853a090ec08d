/* Spots of lines for processors with AVX2; compiled for them by the Makefile, used where they are found. */
#include "shift/spots.h"

#if defined(__AVX2__) && defined(__FMA__)
#define SPX_VL         4
#define SPX_SPOTS      avx2
#define SPX_SPOTS_NAME "avx2"
#include "shift/spots_lanes.h"

const spx_shift_spots *spx_shift_spots_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2 : NULL;
}
#else
const spx_shift_spots *spx_shift_spots_avx2(void)
{
    return NULL;
}
#endif
