/* Provides arrays that lie behind each other in one block of memory, of the host or a device: which they are is written
 * once, for counting and for handing out. */
#ifndef SPX_LAYOUT_H
#define SPX_LAYOUT_H

#include <stddef.h>

/* n elements behind the *used bytes of those before, 256 bytes aligned; base NULL: only counts. */
static inline void *spx_layout_take(char *base, size_t *used, size_t n, size_t size)
{
    const size_t at = *used;
    *used += (n * size + 255) / 256 * 256;
    return base != NULL ? base + at : NULL;
}

#endif
