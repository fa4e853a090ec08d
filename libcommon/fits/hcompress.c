/* Decodes HCOMPRESS_1 (fits/codec.h): R. L. White, M. Postman & M. G. Lattanzi 1992, in Digitised Optical Sky Surveys,
 * 167; FITS standard 4.0, section 10.4.4.
 *
 * The stream holds a Haar-like transform of the image by bit planes, each a quadtree or plain. One step of the
 * transform turns 2x2 values into their sum h0 and differences hx (between rows), hy (within a row), hc (both); sums go
 * into the upper left quadrant of the array, which the next step divides again. */
#include "fits/bits.h"
#include "fits/codec.h"

enum { HEAD = 25 };                              /* bytes: magic, shape, scale, sum, numbers of bit planes */
static const int64_t LARGEST = (int64_t)1 << 54; /* coefficients: sums of them times 64 do not overflow */
static const char damaged[] = "a coefficient is impossible";

static uint32_t be32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

const char *spx_hcompress_shape(const unsigned char *stream, size_t nstream, size_t *width, size_t *height)
{
    if (nstream < HEAD || stream[0] != 0xdd || stream[1] != 0x99)
        return "no HCOMPRESS stream";
    *height = be32(stream + 2);
    *width = be32(stream + 6);
    if (*width < 2 || *height < 2 || *width > INT32_MAX || *height > INT32_MAX)
        return "the stream's shape is impossible";
    return NULL;
}

/* ---- bit planes ---- */

/* Fixed Huffman code of four bits, by the next six bits of the stream. */
static unsigned char huffman(spx_bits *b)
{
    static const unsigned char code[64] = {1,  1,  1,  1,  1, 1, 1, 1, 2,  2,  2,  2,  2,  2,  2,  2,
                                           4,  4,  4,  4,  4, 4, 4, 4, 8,  8,  8,  8,  8,  8,  8,  8,
                                           3,  3,  3,  3,  5, 5, 5, 5, 10, 10, 10, 10, 12, 12, 12, 12,
                                           15, 15, 15, 15, 6, 6, 7, 7, 9,  9,  11, 11, 13, 13, 0,  14};
    if (b->n < 6)
        spx_bits_fill(b);
    const unsigned next = (unsigned)(b->buffer >> 58);
    const unsigned length = next < 32 ? 3 : next < 52 ? 4 : next < 62 ? 5 : 6;
    b->buffer <<= length;
    b->n -= length;
    return code[next];
}

/* Bits of 2x2 values each, in order, to one byte a value: to[nx][ny]. */
static void expand(const unsigned char *code, size_t nx, size_t ny, unsigned char *to)
{
    for (size_t i = 0; i < nx; i += 2)
        for (size_t j = 0; j < ny; j += 2, code++) {
            unsigned char *t = to + i * ny + j;
            t[0] = *code >> 3 & 1;
            if (j + 1 < ny)
                t[1] = *code >> 2 & 1;
            if (i + 1 < nx)
                t[ny] = *code >> 1 & 1;
            if (i + 1 < nx && j + 1 < ny)
                t[ny + 1] = *code & 1;
        }
}

/* The same into bit `bit` of a[nx][ny], whose rows are `stride` apart. */
static void insert(const unsigned char *code, size_t nx, size_t ny, int64_t *a, size_t stride, int bit)
{
    const int64_t plane = (int64_t)1 << bit;
    for (size_t i = 0; i < nx; i += 2)
        for (size_t j = 0; j < ny; j += 2, code++) {
            int64_t *t = a + i * stride + j;
            if (*code == 0)
                continue;
            if (*code & 8)
                t[0] |= plane;
            if (*code & 4 && j + 1 < ny)
                t[1] |= plane;
            if (*code & 2 && i + 1 < nx)
                t[stride] |= plane;
            if (*code & 1 && i + 1 < nx && j + 1 < ny)
                t[stride + 1] |= plane;
        }
}

/* Number of halvings, rounded up, that leave one. */
static int levels(size_t n)
{
    int k = 0;
    while (((size_t)1 << k) < n)
        k++;
    return k;
}

static size_t halved(size_t n, int times)
{
    return (n + ((size_t)1 << times) - 1) >> times;
}

/* Absolute values of one quadrant. `codes` has place for two arrays of `half` codes. */
static const char *read_quadrant(spx_bits *b, int64_t *a, size_t stride, size_t nx, size_t ny, int planes,
                                 unsigned char *codes, size_t half)
{
    const int top = levels(nx > ny ? nx : ny);
    for (int bit = planes - 1; bit >= 0; bit--) {
        unsigned char *now = codes, *next = codes + half;
        const unsigned format = (unsigned)spx_bits_get(b, 4);
        if (format == 0) {
            const size_t n = halved(nx, 1) * halved(ny, 1);
            for (size_t i = 0; i < n; i++)
                now[i] = (unsigned char)spx_bits_get(b, 4);
        } else if (format == 15) {
            now[0] = huffman(b);
            for (int k = top - 1; k >= 1; k--) {
                const size_t mx = halved(nx, k), my = halved(ny, k);
                expand(now, mx, my, next);
                for (size_t i = mx * my; i-- > 0;)
                    if (next[i] != 0)
                        next[i] = huffman(b);
                unsigned char *t = now;
                now = next;
                next = t;
            }
        } else
            return "a bit plane's format is impossible";
        if (spx_bits_past(b))
            return "the stream ends early";
        insert(now, nx, ny, a, stride, bit);
    }
    return NULL;
}

/* Coefficients a[nx][ny]. */
static const char *read_coefficients(const unsigned char *stream, size_t nstream, size_t nx, size_t ny, int64_t *a,
                                     unsigned char *codes)
{
    const unsigned char *planes = stream + 22;
    const size_t mx = halved(nx, 1), my = halved(ny, 1), n = nx * ny, half = halved(nx, 2) * halved(ny, 2);
    const uint64_t sum = (uint64_t)be32(stream + 14) << 32 | be32(stream + 18);
    const int32_t scale = (int32_t)be32(stream + 10);
    const int64_t most = scale > 1 ? LARGEST / scale : LARGEST;
    for (int q = 0; q < 3; q++)
        if (planes[q] > 54)
            return damaged;
    for (size_t i = 0; i < n; i++)
        a[i] = 0;
    spx_bits b = spx_bits_open(stream + HEAD, nstream - HEAD);
    const char *wrong = read_quadrant(&b, a, ny, mx, my, planes[0], codes, half);
    if (wrong == NULL)
        wrong = read_quadrant(&b, a + my, ny, mx, ny / 2, planes[1], codes, half);
    if (wrong == NULL)
        wrong = read_quadrant(&b, a + mx * ny, ny, nx / 2, my, planes[1], codes, half);
    if (wrong == NULL)
        wrong = read_quadrant(&b, a + mx * ny + my, ny, nx / 2, ny / 2, planes[2], codes, half);
    if (wrong != NULL)
        return wrong;
    if (spx_bits_get(&b, 4) != 0)
        return "the bit planes have no end";
    spx_bits_align(&b);
    for (size_t i = 0; i < n; i++)
        if (a[i] != 0 && spx_bits_get(&b, 1) != 0)
            a[i] = -a[i];
    if (spx_bits_past(&b))
        return "the stream ends early";
    a[0] = (int64_t)sum;
    for (size_t i = 0; i < n; i++) {
        if (a[i] > most || a[i] < -most)
            return damaged;
        if (scale > 1)
            a[i] *= scale;
    }
    return NULL;
}

/* ---- inverse transform ---- */

static inline int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t greater(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t within(int64_t v, int64_t low, int64_t high)
{
    return greater(lesser(v, high), low);
}

/* Difference within a zone, moved by `most` at most toward the slope between the sums of the zones on both sides. */
static int64_t smooth_slope(int64_t before, int64_t here, int64_t after, int64_t old, int64_t most)
{
    const int64_t a = after - here, b = here - before;
    const int64_t high = 4 * greater(lesser(a, b), 0), low = 4 * lesser(greater(a, b), 0);
    if (low >= high)
        return old;
    return old + within((within(after - before, low, high) - 8 * old) / 8, -most, most);
}

/* One level before its inversion: t[nx][ny] is in quadrants, of whose sums there are hx times hy. */
static void smooth_level(int64_t *t, size_t nx, size_t ny, size_t hx, size_t hy, int64_t most)
{
    int64_t *rows = t + hx * ny, *cols = t + hy, *both = rows + hy;
    for (size_t i = 1; 2 * i + 2 < nx; i++)
        for (size_t j = 0; j < hy; j++) {
            const size_t k = i * ny + j;
            rows[k] = smooth_slope(t[k - ny], t[k], t[k + ny], rows[k], most);
        }
    for (size_t i = 0; i < hx; i++)
        for (size_t j = 1; 2 * j + 2 < ny; j++) {
            const size_t k = i * ny + j;
            cols[k] = smooth_slope(t[k - 1], t[k], t[k + 1], cols[k], most);
        }
    for (size_t i = 1; 2 * i + 2 < nx; i++)
        for (size_t j = 1; 2 * j + 2 < ny; j++) {
            const size_t k = i * ny + j;
            const int64_t h0 = t[k], x = 2 * rows[k], y = 2 * cols[k];
            /* differences to the sums of the four diagonal neighbours */
            const int64_t pp = t[k + ny + 1] - h0, pm = h0 - t[k + ny - 1], mp = h0 - t[k - ny + 1],
                          mm = t[k - ny - 1] - h0;
            const int64_t high = 16 * lesser(lesser(greater(pp, 0) - x - y, greater(pm, 0) + x - y),
                                             lesser(greater(mp, 0) - x + y, greater(mm, 0) + x + y));
            const int64_t low = 16 * greater(greater(lesser(pp, 0) - x - y, lesser(pm, 0) + x - y),
                                             greater(lesser(mp, 0) - x + y, lesser(mm, 0) + x + y));
            if (low < high)
                both[k] += within((within(pp + mm + mp + pm, low, high) - 64 * both[k]) / 64, -most, most);
        }
}

/* v rounded to a multiple of `unit`, a power of 2; halves away from zero. */
static inline int64_t rounded(int64_t v, int64_t unit)
{
    const int64_t half = unit / 2;
    return (v + (v >= 0 ? half : half - (half > 0))) & -unit;
}

/* Takes `bits` off the absolute value. */
static inline int64_t without(int64_t v, int64_t bits)
{
    return v >= 0 ? v - bits : v + bits;
}

/* Inverts the step to level k (0: the last one): a[nx][ny], rows `stride` apart, from quadrants in t[nx][ny]. Low bits
 * that the transform dropped are those of the differences. Returns the bits of all absolute values. */
static uint64_t invert_level(const int64_t *t, size_t nx, size_t ny, int k, int64_t *a, size_t stride)
{
    const size_t hx = halved(nx, 1), hy = halved(ny, 1);
    const int64_t *rows = t + hx * ny, *cols = t + hy, *both = rows + hy;
    const int64_t bit0 = (int64_t)1 << k, bit1 = 2 * bit0;
    const int shift = k > 0 ? 1 : 2;
    uint64_t all = 0;
    for (size_t i = 0; i < hx; i++)
        for (size_t j = 0; j < hy; j++) {
            const size_t s = i * ny + j;
            int64_t *to = a + 2 * i * stride + 2 * j, h0 = t[s], x, y, c, v[4] = {0, 0, 0, 0};
            const int has_x = 2 * i + 1 < nx, has_y = 2 * j + 1 < ny;
            if (has_x && has_y) {
                c = rounded(both[s], bit0);
                const int64_t low0 = c & bit0;
                x = without(rounded(rows[s], bit1), low0);
                y = without(rounded(cols[s], bit1), low0);
                const int64_t low1 = (c ^ x ^ y) & bit1;
                h0 += h0 >= 0 ? low0 - low1 : low0 == 0 ? low1 : low0 - low1;
                to[0] = v[0] = (h0 - x - y + c) >> shift;
                to[1] = v[1] = (h0 - x + y - c) >> shift;
                to[stride] = v[2] = (h0 + x - y - c) >> shift;
                to[stride + 1] = v[3] = (h0 + x + y + c) >> shift;
            } else if (has_x) {
                x = rounded(rows[s], bit1);
                h0 = without(h0, x & bit1);
                to[0] = v[0] = (h0 - x) >> shift;
                to[stride] = v[1] = (h0 + x) >> shift;
            } else if (has_y) {
                y = rounded(cols[s], bit1);
                h0 = without(h0, y & bit1);
                to[0] = v[0] = (h0 - y) >> shift;
                to[1] = v[1] = (h0 + y) >> shift;
            } else
                to[0] = v[0] = h0 >> shift;
            for (int q = 0; q < 4; q++)
                all |= (uint64_t)(v[q] < 0 ? ~v[q] : v[q]);
        }
    return all;
}

const char *spx_hcompress_decode(const unsigned char *stream, size_t nstream, int smooth, int64_t *wide,
                                 unsigned char *codes, int32_t *out)
{
    size_t nx, ny;
    const char *wrong = spx_hcompress_shape(stream, nstream, &ny, &nx);
    int64_t *a = wide, *t = wide + (wrong == NULL ? nx * ny : 0);
    if (wrong == NULL)
        wrong = read_coefficients(stream, nstream, nx, ny, a, codes);
    if (wrong != NULL)
        return wrong;
    const int top = levels(nx > ny ? nx : ny);
    const int64_t most = (int32_t)be32(stream + 10) / 2; /* rounding by `scale` left as much open */
    a[0] = rounded(a[0], (int64_t)1 << (top + 1));
    for (int k = top - 1; k >= 0; k--) {
        const size_t mx = halved(nx, k), my = halved(ny, k);
        for (size_t i = 0; i < mx; i++)
            for (size_t j = 0; j < my; j++)
                t[i * my + j] = a[i * ny + j];
        if (smooth && most > 0)
            smooth_level(t, mx, my, halved(mx, 1), halved(my, 1), most);
        if (invert_level(t, mx, my, k, a, ny) > (uint64_t)LARGEST)
            return damaged;
    }
    for (size_t i = 0; i < nx * ny; i++)
        out[i] = (int32_t)a[i];
    return NULL;
}
