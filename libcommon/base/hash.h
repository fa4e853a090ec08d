/* Provides the FNV-1a hash of 64 bits, for short keys: not for checksums of files (h5/inventory.h). */
#ifndef SPX_HASH_H
#define SPX_HASH_H

#include <stddef.h>
#include <stdint.h>

#define SPX_FNV1A UINT64_C(14695981039346656037) /* of nothing */

/* Hash of what `h` is the hash of, followed by the n bytes p. */
static inline uint64_t spx_fnv1a(uint64_t h, const void *p, size_t n)
{
    for (const unsigned char *c = p, *end = c + n; c < end; c++)
        h = (h ^ *c) * UINT64_C(1099511628211);
    return h;
}

#endif
