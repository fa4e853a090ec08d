/* Provides keys of doubles for order statistics, on host and device: unsigned integers that compare as the values do.
 * Of a negative number all bits are inverted, of others the sign (Herf 2001, "Radix Tricks"). -0 comes before 0. */
#ifndef SPX_ORDERED_KEY_H
#define SPX_ORDERED_KEY_H

#include <stdint.h>

#include "hostdevice.h"

/* Key of the bits of a double, and back. */
SPX_HD uint64_t spx_key_of_bits(uint64_t bits)
{
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

SPX_HD uint64_t spx_bits_of_key(uint64_t key)
{
    return key >> 63 ? key & ~((uint64_t)1 << 63) : ~key;
}

#endif
