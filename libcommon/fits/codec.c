/* Decodes streams of RICE_1 and PLIO_1 (fits/codec.h). */
#include "fits/codec.h"

#include "fits/bits.h"

static const char ends_early[] = "the stream ends early";

/* ---- RICE_1 ---- */

/* Number of zeros before the next one, which is taken, too. */
static inline uint32_t leading_zeros(spx_bits *b)
{
    uint32_t zeros = 0;
    if (b->n < 32)
        spx_bits_fill(b);
    while (b->buffer == 0) {
        zeros += b->n;
        b->n = 0;
        if (b->at == b->end) { /* no one will come */
            b->past = 1;
            return zeros;
        }
        spx_bits_fill(b);
    }
    const unsigned k = (unsigned)__builtin_clzll(b->buffer);
    b->buffer = b->buffer << k << 1;
    b->n -= k + 1;
    return zeros + k;
}

/* Rice & Plaunt: each block has the number of low bits, fs, that are stored as they are; the rest of a difference is
 * unary. Differences are folded, 0 -1 1 -2 2 ... -> 0 1 2 3 4 ..., and wrap around at the size of the type. */
const char *spx_rice_decode(const unsigned char *stream, size_t nstream, int bytes, size_t block, int32_t *out,
                            size_t n)
{
    const unsigned fs_bits = bytes == 1 ? 3 : bytes == 2 ? 4 : 5, value_bits = 8 * (unsigned)bytes;
    const unsigned direct = bytes == 1 ? 6 : bytes == 2 ? 14 : 25; /* fs that means: stored in full */
    spx_bits b = spx_bits_open(stream, nstream);
    uint32_t last = (uint32_t)spx_bits_get(&b, value_bits);
    for (size_t i = 0; i < n;) {
        const size_t end = n - i < block ? n : i + block;
        const unsigned code = (unsigned)spx_bits_get(&b, fs_bits), fs = code - 1;
        if (code > direct + 1)
            return "a block's code is impossible";
        for (; i < end; i++) {
            uint32_t diff = 0;
            if (code == direct + 1)
                diff = (uint32_t)spx_bits_get(&b, value_bits);
            else if (code > 0) {
                diff = leading_zeros(&b) << fs;
                if (fs > 0)
                    diff |= (uint32_t)spx_bits_get(&b, fs);
            }
            last += diff % 2 != 0 ? ~(diff / 2) : diff / 2;
            out[i] = bytes == 1 ? (uint8_t)last : bytes == 2 ? (int16_t)last : (int32_t)last;
        }
        if (spx_bits_past(&b))
            return ends_early;
    }
    return NULL;
}

/* ---- PLIO_1 ---- */

static int32_t word(const unsigned char *stream, size_t i)
{
    return (int16_t)(stream[2 * i] << 8 | stream[2 * i + 1]);
}

enum { ZEROS, SET_HIGH, RAISE, LOWER, HIGHS, ZEROS_HIGH, RAISE_ONE, LOWER_ONE };

const char *spx_plio_decode(const unsigned char *stream, size_t nword, int32_t *out, size_t n)
{
    if (nword < 3)
        return ends_early;
    /* the length of the list counts its head; lists of the first version had it in the third word */
    size_t length = 0, at = 3;
    if (word(stream, 2) > 0)
        length = (size_t)word(stream, 2);
    else if (nword >= 7 && word(stream, 1) >= 7 && word(stream, 3) >= 0 && word(stream, 4) >= 0) {
        length = (size_t)word(stream, 4) << 15 | (size_t)word(stream, 3);
        at = (size_t)word(stream, 1);
    } else
        length = 3;
    if (length > nword || at > nword)
        return ends_early;
    int64_t high = 1;
    size_t done = 0;
    for (; at < length && done < n; at++) {
        const int32_t w = word(stream, at), data = w & 4095;
        size_t run = (size_t)data < n - done ? (size_t)data : n - done;
        if (w < 0)
            return "an instruction is impossible";
        const int op = w >> 12;
        switch (op) {
        case ZEROS:
        case HIGHS:
        case ZEROS_HIGH:
            for (size_t i = 0; i < run; i++)
                out[done + i] = op == HIGHS || (op == ZEROS_HIGH && i + 1 == (size_t)data) ? (int32_t)high : 0;
            done += run;
            break;
        case SET_HIGH:
            if (++at >= length || word(stream, at) < 0)
                return ends_early;
            high = ((int64_t)word(stream, at) << 12) + data;
            break;
        default:
            high += op == RAISE || op == RAISE_ONE ? data : -data;
            if (op == RAISE_ONE || op == LOWER_ONE)
                out[done++] = (int32_t)high;
        }
        if (high > INT32_MAX || high < INT32_MIN)
            return "a value is impossible";
    }
    for (; done < n; done++)
        out[done] = 0;
    return NULL;
}
