/* Reads bits of a stream in memory, most significant first; behind its end come zeros, and spx_bits_past() says so. */
#ifndef SPX_FITS_BITS_H
#define SPX_FITS_BITS_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const unsigned char *at, *end;
    uint64_t buffer; /* the next bits, from the top; zeros below them */
    unsigned n;      /* bits in the buffer */
    uint64_t past;   /* bits from behind the end that were put there */
} spx_bits;

static inline spx_bits spx_bits_open(const unsigned char *p, size_t n)
{
    return (spx_bits){.at = p, .end = p + n};
}

/* Fills the buffer: 56 bits or more. */
static inline void spx_bits_fill(spx_bits *b)
{
    if (b->end - b->at >= 8) {
        uint64_t v;
        memcpy(&v, b->at, 8);
        b->buffer |= be64toh(v) >> b->n;
        const unsigned bytes = (63 - b->n) / 8;
        b->at += bytes;
        b->n += 8 * bytes;
        b->buffer &= ~(uint64_t)0 << (64 - b->n);
        return;
    }
    for (; b->n <= 56; b->n += 8) {
        if (b->at < b->end)
            b->buffer |= (uint64_t)*b->at++ << (56 - b->n);
        else
            b->past += 8;
    }
}

/* The next k bits, 1 <= k <= 56. */
static inline uint64_t spx_bits_get(spx_bits *b, unsigned k)
{
    if (b->n < k)
        spx_bits_fill(b);
    const uint64_t v = b->buffer >> (64 - k);
    b->buffer <<= k;
    b->n -= k;
    return v;
}

/* Skips what is left of a byte that was begun. */
static inline void spx_bits_align(spx_bits *b)
{
    const unsigned k = b->n % 8;
    b->buffer <<= k;
    b->n -= k;
}

/* 1 when bits behind the end were taken. */
static inline int spx_bits_past(const spx_bits *b)
{
    return b->past > b->n;
}

#endif
