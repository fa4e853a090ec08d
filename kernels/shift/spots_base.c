/* Spots of lines for any processor: vectors of two doubles. */
#define SPX_VL         2
#define SPX_SPOTS      base
#define SPX_SPOTS_NAME "base"
#include "shift/spots_lanes.h"

const spx_shift_spots *spx_shift_spots_base(void)
{
    return &base;
}
