/* Checks the decoding of tile-compressed images against CFITSIO, which makes them here: all methods, types, shapes of
 * tiles, quantisation with both kinds of dither; then that streams that contradict their keywords, or end early, are
 * refused. */
#include <fitsio.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "expect.h"
#include "fits/codec.h"
#include "fits/tiles.h"
#include "fits/values.h"

enum { MOST = 40 * 30 * 3, LARGEST = 1 << 20 };

typedef struct {
    int how, bitpix, ndim;
    long dims[3], tile[3];
    float level; /* of quantisation; 0: none */
    int dither;
    float hscale;
    int smooth, content;
} image;

/* An image with smooth and noisy parts, constant rows, zeros, and, where content is 1, undefined values. */
static void make_pixels(const image *m, double *v, long n)
{
    uint32_t seed = 12345;
    for (long i = 0; i < n; i++) {
        const long x = i % m->dims[0], y = i / m->dims[0];
        seed = seed * 1664525u + 1013904223u;
        const double noise = (double)(seed >> 16) / 65536.0 - 0.5;
        v[i] = 60.0 + 40.0 * sin(0.3 * (double)x) * cos(0.2 * (double)y) + (y % 7 == 3 ? 0.0 : 5.0 * noise);
        if (y % 11 == 5)
            v[i] = 0.0;
        if (m->content == 1 && m->bitpix < 0 && i % 53 == 7)
            v[i] = NAN;
        if (m->content == 2 && m->bitpix != BYTE_IMG) /* large and negative values, outliers */
            v[i] = m->bitpix == SHORT_IMG ? (double)((int)(seed >> 16) - 32768)
                   : i % 9 == 0           ? 2e9 * noise
                                          : 100.0 * noise;
        if (m->content == 2 && m->how == PLIO_1)
            v[i] = i % 9 == 0 ? 1e7 * fabs(noise) : i % 5 < 3 ? 0.0 : 4000.0 * fabs(noise);
        if (m->content == 2 && m->how == PLIO_1 && m->bitpix == SHORT_IMG)
            v[i] = fmod(v[i], 32000.0);
        if (m->content == 2 && m->how == HCOMPRESS_1) /* CFITSIO's encoder writes past its buffer for more */
            v[i] = (m->bitpix == BYTE_IMG ? 100.0 : m->bitpix == SHORT_IMG ? 2000.0 : 3e7) * (noise + 0.5);
        if (m->content == 3) /* unsigned */
            v[i] = 32768.0 + 100.0 * noise + (double)x;
    }
}

/* A file in memory with the image, which CFITSIO compresses. 0: it cannot. */
static int make_file(const image *m, void **file, size_t *nfile)
{
    static double v[MOST];
    static float s[MOST];
    static int w[MOST];
    fitsfile *f = NULL;
    int status = 0, closing = 0;
    long n = 1;
    double null = NAN;
    float fnull = NAN;
    for (int d = 0; d < m->ndim; d++)
        n *= m->dims[d];
    make_pixels(m, v, n);
    for (long i = 0; i < n; i++) {
        s[i] = (float)v[i];
        w[i] = isfinite(v[i]) ? (int)lrint(fmin(fmax(v[i], -2147483648.0), 2147483647.0)) : 0;
    }
    char name[] = "/tmp/test_tiles_XXXXXX"; /* in memory CFITSIO 4.2 reads tiles that were never written */
    const int fd = mkstemp(name);
    unlink(name);
    fits_create_diskfile(&f, name, &status);
    long tile[3];
    memcpy(tile, m->tile, sizeof tile);
    fits_set_compression_type(f, m->how, &status);
    fits_set_tile_dim(f, m->ndim, tile, &status);
    if (m->bitpix < 0) {
        fits_set_quantize_method(f, m->level != 0.0f ? m->dither : NO_DITHER, &status);
        fits_set_quantize_level(f, m->level, &status);
        fits_set_dither_seed(f, 5000, &status);
    }
    if (m->how == HCOMPRESS_1) {
        fits_set_hcomp_scale(f, m->hscale, &status);
        fits_set_hcomp_smooth(f, m->smooth, &status);
    }
    long dims[3];
    memcpy(dims, m->dims, sizeof dims);
    fits_create_img(f, m->content == 3 ? USHORT_IMG : m->bitpix, m->ndim, dims, &status);
    void *pixels = m->bitpix == FLOAT_IMG ? (void *)s : m->bitpix == DOUBLE_IMG ? (void *)v : (void *)w;
    for (long i = 0; i < n && m->bitpix == SHORT_IMG; i++) {
        const uint16_t u = (uint16_t)w[i];
        memcpy((char *)w + 2 * i, &u, 2);
    }
    for (long i = 0; i < n && m->bitpix == BYTE_IMG; i++)
        ((unsigned char *)w)[i] = (unsigned char)w[i];
    const int type = m->content == 3          ? TUSHORT
                     : m->bitpix == BYTE_IMG  ? TBYTE
                     : m->bitpix == SHORT_IMG ? TSHORT
                     : m->bitpix == LONG_IMG  ? TINT
                     : m->bitpix == FLOAT_IMG ? TFLOAT
                                              : TDOUBLE;
    if (m->content == 1 && m->bitpix < 0)
        fits_write_imgnull(f, type, 1, n, pixels, type == TFLOAT ? (void *)&fnull : (void *)&null, &status);
    else
        fits_write_img(f, type, 1, n, pixels, &status);
    fits_close_file(f, &closing);
    FILE *in = fopen(name, "rb");
    *file = malloc(LARGEST);
    *nfile = in != NULL ? fread(*file, 1, LARGEST, in) : 0;
    if (in != NULL)
        fclose(in);
    unlink(name);
    close(fd);
    fits_clear_errmsg();
    return status == 0 && closing == 0;
}

/* CFITSIO's values, not scaled, in native order. */
static int by_cfitsio(void *file, size_t nfile, int bitpix, long n, void *out)
{
    fitsfile *f = NULL;
    int status = 0, closing = 0, any = 0;
    float fnan = NAN;
    double dnan = NAN;
    const int type = bitpix == 8    ? TBYTE
                     : bitpix == 16 ? TSHORT
                     : bitpix == 32 ? TINT
                     : bitpix < -32 ? TDOUBLE
                                    : TFLOAT;
    fits_open_memfile(&f, "memory", READONLY, &file, &nfile, 0, NULL, &status);
    fits_movabs_hdu(f, 2, NULL, &status);
    fits_set_bscale(f, 1.0, 0.0, &status);
    fits_read_img(f, type, 1, n,
                  type == TFLOAT    ? (void *)&fnan
                  : type == TDOUBLE ? (void *)&dnan
                                    : NULL,
                  out, &any, &status);
    fits_close_file(f, &closing);
    fits_clear_errmsg();
    return status == 0;
}

static size_t compared, undefined;

static void compare(const image *m)
{
    static unsigned char right[MOST * 8];
    void *file = NULL;
    size_t nfile = 0;
    spx_fits f;
    spx_err e = {0};
    char what[200];
    snprintf(what, sizeof what,
             "method %d, type %d, %dD, tile %ld %ld %ld, level %g, dither %d, scale %g, smooth %d, content %d", m->how,
             m->bitpix, m->ndim, m->tile[0], m->tile[1], m->tile[2], (double)m->level, m->dither, (double)m->hscale,
             m->smooth, m->content);
    if (!make_file(m, &file, &nfile)) { /* not every combination is possible */
        free(file);
        return;
    }
    if (spx_fits_parse(&f, "made", file, nfile, &e) != SPX_OK || f.nhdu != 2 || f.hdu[1].kind != SPX_FITS_TILED) {
        EXPECT(0, "%s: not read: %s", what, spx_err_text(&e));
        free(file);
        return;
    }
    const spx_fits_hdu *h = &f.hdu[1];
    const size_t size = (size_t)(abs(h->bitpix) / 8);
    const unsigned char *p = spx_fits_raw(&f, 1, &e);
    const int ok = by_cfitsio(file, nfile, h->bitpix, (long)h->nelem, right);
    /* with loss, values may leave the type: CFITSIO clips those of 16 bits only */
    EXPECT((p != NULL) == (ok || (m->how == HCOMPRESS_1 && m->hscale > 0.0f && m->bitpix == BYTE_IMG)),
           "%s: %s, CFITSIO %s", what, p == NULL ? spx_err_text(&e) : "decoded", ok ? "decodes it" : "does not");
    for (size_t i = 0; ok && p != NULL && i < h->nelem; i++) {
        uint64_t u = 0, v = spx_fits_integer(p + i * size, size);
        memcpy(&u, right + i * size, size);
        if (h->bitpix < 0) {
            double a = 0, b = 0;
            float c = 0, d = 0;
            memcpy(&a, &u, 8), memcpy(&b, &v, 8), memcpy(&c, &u, 4), memcpy(&d, &v, 4);
            if (h->bitpix == -64 ? isnan(a) && isnan(b) : isnan(c) && isnan(d)) {
                undefined++;
                continue;
            }
        }
        if (u != v) {
            EXPECT(0, "%s: pixel %zu is %llx, by CFITSIO %llx", what, i, (unsigned long long)v, (unsigned long long)u);
            break;
        }
    }
    compared += ok && p != NULL;
    spx_fits_close(&f);
    free(file);
}

static void compare_all(void)
{
    static const int how[] = {RICE_1, GZIP_1, GZIP_2, PLIO_1, HCOMPRESS_1};
    static const int type[] = {BYTE_IMG, SHORT_IMG, LONG_IMG, FLOAT_IMG, DOUBLE_IMG};
    static const struct {
        int ndim;
        long dims[3], tile[3];
    } shape[] = {{1, {700, 1, 1}, {700, 1, 1}}, {1, {700, 1, 1}, {64, 1, 1}},  {2, {40, 30, 1}, {40, 1, 1}},
                 {2, {40, 30, 1}, {16, 8, 1}},  {2, {40, 30, 1}, {40, 30, 1}}, {2, {37, 29, 1}, {37, 29, 1}},
                 {2, {33, 21, 1}, {9, 7, 1}},   {3, {20, 11, 3}, {20, 11, 1}}, {3, {20, 11, 3}, {7, 5, 2}},
                 {2, {64, 4, 1}, {64, 4, 1}}};
    for (size_t a = 0; a < sizeof how / sizeof *how; a++)
        for (size_t b = 0; b < sizeof type / sizeof *type; b++)
            for (size_t c = 0; c < sizeof shape / sizeof *shape; c++)
                for (int content = 0; content < 4; content++) {
                    image m = {.how = how[a], .bitpix = type[b], .ndim = shape[c].ndim, .content = content};
                    memcpy(m.dims, shape[c].dims, sizeof m.dims);
                    memcpy(m.tile, shape[c].tile, sizeof m.tile);
                    if ((content == 3 && type[b] != SHORT_IMG) || (content == 1 && type[b] > 0))
                        continue;
                    if (how[a] == HCOMPRESS_1)
                        for (int k = 0; k < 4; k++) {
                            m.hscale = k < 2 ? 0.0f : 4.0f;
                            m.smooth = k % 2;
                            m.level = type[b] < 0 ? 4.0f : 0.0f;
                            m.dither = k < 2 ? SUBTRACTIVE_DITHER_1 : NO_DITHER;
                            compare(&m);
                        }
                    else if (type[b] < 0) {
                        compare(&m); /* lossless */
                        for (int k = 0; k < 3; k++) {
                            static const int dither[] = {NO_DITHER, SUBTRACTIVE_DITHER_1, SUBTRACTIVE_DITHER_2};
                            m.dither = dither[k];
                            m.level = 8.0f;
                            compare(&m);
                            m.level = -0.01f; /* steps that do not fit integers: tiles that stay floats, by GZIP */
                            compare(&m);
                        }
                    } else
                        compare(&m);
                }
    EXPECT(compared > 600 && undefined > 1000, "only %zu images with %zu undefined pixels were compared", compared,
           undefined);
}

/* Puts an integer into the card of HDU 1 that has the keyword. */
static void edit(unsigned char *file, size_t nfile, const char *key, long value)
{
    for (size_t at = 2880; at + 80 <= nfile && memcmp(file + at, "END     ", 8) != 0; at += 80)
        if (memcmp(file + at, key, 8) == 0) {
            char text[21];
            snprintf(text, sizeof text, "%20ld", value);
            memcpy(file + at + 10, text, 20);
            return;
        }
    EXPECT(0, "no %s", key);
}

/* Two keywords of a good image are changed: the message is `text`. */
static void contradicts(const image *m, const char *key1, long value1, const char *key2, long value2, const char *text)
{
    void *file = NULL;
    size_t nfile = 0;
    spx_fits f;
    spx_err e = {0};
    if (!make_file(m, &file, &nfile)) {
        EXPECT(0, "no file for %s", text);
        return;
    }
    edit(file, nfile, key1, value1);
    edit(file, nfile, key2, value2);
    unsigned char *exact = malloc(nfile);
    memcpy(exact, file, nfile);
    free(file);
    if (spx_fits_parse(&f, "edited", exact, nfile, &e) == SPX_OK) {
        EXPECT(spx_fits_raw(&f, 1, &e) == NULL && e.code == SPX_EINPUT, "%s = %ld, %s = %ld: decoded", key1, value1,
               key2, value2);
        spx_fits_close(&f);
    }
    EXPECT(strstr(spx_err_text(&e), text) != NULL, "'%s', not '%s'", spx_err_text(&e), text);
    free(exact);
}

/* CFITSIO 4.2 wrote past the heap, divided by zero, or read past the stream for these. */
static void contradictions(void)
{
    const image hcompress = {
        .how = HCOMPRESS_1, .bitpix = LONG_IMG, .ndim = 2, .dims = {40, 30, 1}, .tile = {40, 30, 1}};
    const image plio = {.how = PLIO_1, .bitpix = SHORT_IMG, .ndim = 2, .dims = {40, 30, 1}, .tile = {40, 1, 1}};
    const image rice = {.how = RICE_1, .bitpix = LONG_IMG, .ndim = 2, .dims = {40, 30, 1}, .tile = {40, 1, 1}};
    contradicts(&hcompress, "ZNAXIS1 ", 20, "ZTILE1  ", 20, "another shape than the tile");
    contradicts(&hcompress, "ZNAXIS2 ", 10, "ZTILE2  ", 10, "another shape than the tile");
    contradicts(&hcompress, "ZNAXIS1 ", 60, "ZNAXIS2 ", 20, "make 2 tiles");
    contradicts(&rice, "ZVAL1   ", 0, "ZVAL2   ", 4, "ZVAL1 = 0 is impossible");
    contradicts(&rice, "ZVAL2   ", 3, "ZVAL1   ", 32, "BYTEPIX is 3");
    contradicts(&rice, "ZTILE1  ", 0, "ZNAXIS1 ", 40, "ZTILE1 = 0 is impossible");
    contradicts(&rice, "ZNAXIS1 ", 40000, "ZTILE1  ", 40000, "the stream ends early");
    contradicts(&plio, "ZTILE2  ", 0, "ZNAXIS2 ", 30, "ZTILE2 = 0 is impossible");
    contradicts(&plio, "ZBITPIX ", 8, "ZNAXIS1 ", 80, "make 60 tiles");
}

/* Streams that end early, in memory of exactly their length. */
static void cut_short(void)
{
    static const unsigned char plio[] = {0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0x50, 5, 0x20, 3};
    static const unsigned char rice[] = {0, 0, 0, 9, 0x2a, 0x55, 0xaa, 0x33, 0xf0, 0x0f};
    static const unsigned char hcompress[25] = {0xdd, 0x99, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0,
                                                0,    0,    0, 0, 0, 0, 0, 0, 9, 2, 1, 0};
    int32_t out[16];
    int64_t wide[32];
    unsigned char codes[2];
    size_t width, height;
    for (size_t n = 0; n <= sizeof plio; n++) {
        unsigned char *exact = malloc(n + 1);
        memcpy(exact, plio, n);
        const char *wrong = spx_plio_decode(exact, n / 2, out, 16);
        EXPECT((wrong == NULL) == (n == sizeof plio || (n >= 6 && n < 14)), "PLIO of %zu bytes: %s", n,
               wrong != NULL ? wrong : "decoded");
        EXPECT(n < sizeof plio || (out[3] == 0 && out[4] == 1 && out[5] == 0), "PLIO: other values");
        free(exact);
    }
    for (size_t n = 0; n <= sizeof rice; n++) {
        unsigned char *exact = malloc(n + 1);
        memcpy(exact, rice, n);
        EXPECT(spx_rice_decode(exact, n, 4, 32, out, 16) != NULL, "RICE of %zu bytes: decoded", n);
        free(exact);
    }
    EXPECT(spx_hcompress_shape(hcompress, 24, &width, &height) != NULL, "HCOMPRESS without a head");
    EXPECT(spx_hcompress_shape(hcompress, 25, &width, &height) == NULL && width == 4 && height == 4,
           "HCOMPRESS: shape");
    EXPECT(spx_hcompress_decode(hcompress, 25, 0, wide, codes, out) != NULL, "HCOMPRESS without bit planes");
}

int main(void)
{
    compare_all();
    contradictions();
    cut_short();
    return failures != 0;
}
