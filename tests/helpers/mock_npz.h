/* Writes NumPy archives for tests: arrays into a zip, stored or deflated, as numpy.savez() and savez_compressed()
 * do. */
#ifndef MOCK_NPZ_H
#define MOCK_NPZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

typedef struct {
    uint8_t data[1 << 18], list[1 << 12];
    size_t size, listed, n;
    int packed; /* deflate */
} mock_npz;

static inline void mock_npz_put(uint8_t *to, size_t bytes, size_t value)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

/* A member of these bytes. */
static inline void mock_npz_member(mock_npz *z, const char *name, const uint8_t *bytes, size_t full)
{
    uint8_t *p = z->data + z->size, *c = z->list + z->listed;
    size_t length = strlen(name), size = full;
    memset(p, 0, 30);
    memcpy(p, "PK\3\4", 4);
    if (z->packed) {
        z_stream s = {.next_in = (Bytef *)(uintptr_t)bytes, .avail_in = (uInt)full};
        s.next_out = p + 30 + length;
        s.avail_out = (uInt)(sizeof z->data - z->size - 30 - length);
        if (deflateInit2(&s, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK ||
            deflate(&s, Z_FINISH) != Z_STREAM_END)
            abort();
        size = s.total_out;
        (void)deflateEnd(&s);
    } else {
        if (full + length + 30 > sizeof z->data - z->size)
            abort();
        memcpy(p + 30 + length, bytes, full);
    }
    mock_npz_put(p + 8, 2, z->packed ? 8 : 0);
    mock_npz_put(p + 14, 4, crc32(crc32(0, NULL, 0), bytes, (uInt)full));
    mock_npz_put(p + 18, 4, size);
    mock_npz_put(p + 22, 4, full);
    mock_npz_put(p + 26, 2, length);
    memcpy(p + 30, name, length);
    memset(c, 0, 46);
    memcpy(c, "PK\1\2", 4);
    memcpy(c + 10, p + 8, 20); /* method ... length of the name */
    mock_npz_put(c + 42, 4, z->size);
    memcpy(c + 46, name, length);
    z->size += 30 + length + size;
    z->listed += 46 + length;
    z->n++;
}

/* An array: type as NumPy writes it, "<f8"; shape "(3, 4)". */
static inline void mock_npz_array(mock_npz *z, const char *name, const char *type, int fortran, const char *shape,
                                  const void *numbers, size_t bytes)
{
    static uint8_t npy[1 << 18];
    char member[80], header[128];
    int n = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n", type,
                     fortran ? "True" : "False", shape);
    if (n < 0 || 10 + (size_t)n + bytes > sizeof npy)
        abort();
    memcpy(npy, "\x93NUMPY\1\0", 8);
    mock_npz_put(npy + 8, 2, (size_t)n);
    memcpy(npy + 10, header, (size_t)n);
    memcpy(npy + 10 + n, numbers, bytes);
    (void)snprintf(member, sizeof member, "%s.npy", name);
    mock_npz_member(z, member, npy, 10 + (size_t)n + bytes);
}

/* The archive's end; returns its size. */
static inline size_t mock_npz_finish(mock_npz *z)
{
    uint8_t *p = z->data + z->size;
    memcpy(p, z->list, z->listed);
    memset(p + z->listed, 0, 22);
    memcpy(p + z->listed, "PK\5\6", 4);
    mock_npz_put(p + z->listed + 8, 2, z->n);
    mock_npz_put(p + z->listed + 10, 2, z->n);
    mock_npz_put(p + z->listed + 12, 4, z->listed);
    mock_npz_put(p + z->listed + 16, 4, z->size);
    return z->size += z->listed + 22;
}

#endif
