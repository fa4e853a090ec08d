/* Random damage to a file, the same for the same seed: for fuzz targets without libFuzzer (driver.c) and for the
 * programs (tests/helpers/damage.c). */
#ifndef FUZZ_DAMAGE_H
#define FUZZ_DAMAGE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* splitmix64: a fixed sequence, so that a failure comes back. */
static inline uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* One to four damages: bits, extreme bytes, a missing end, a repeated or moved piece. Returns the new size, at
 * most `capacity`. */
static inline size_t damage(uint8_t *data, size_t size, size_t capacity, uint64_t *state)
{
    static const uint8_t extreme[] = {0, 1, 0x7f, 0x80, 0xff, ' ', '\'', '-', '9', '(', ':', '\n'};
    size_t times = 1 + (size_t)(next_random(state) % 4);
    while (times-- > 0 && size > 0) {
        size_t at = (size_t)(next_random(state) % size), len = 1 + (size_t)(next_random(state) % 16), to;
        if (at + len > size)
            len = size - at;
        switch (next_random(state) % 5) {
        case 0:
            data[at] = (uint8_t)(data[at] ^ (1u << (next_random(state) % 8)));
            break;
        case 1:
            memset(data + at, extreme[next_random(state) % sizeof extreme], len);
            break;
        case 2:
            size = at;
            break;
        case 3:
            if (size + len <= capacity) {
                memmove(data + at + len, data + at, size - at);
                size += len;
            }
            break;
        default:
            to = (size_t)(next_random(state) % (size - len + 1));
            memmove(data + to, data + at, len);
        }
    }
    return size;
}

#endif
