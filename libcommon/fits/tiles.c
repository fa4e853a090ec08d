/* Decodes tile-compressed images: parameters, tiles, quantised floats (fits/tiles.h). Streams are decoded by
 * fits/codec.h and zlib; all that keywords say is compared with the table and the streams before it is used.
 *
 * Quantised floats: R. L. White et al. 2012, arXiv:1201.1340; FITS standard 4.0, section 10.2. */
#include "fits/tiles.h"

#include <endian.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "base/mem.h"
#include "fits/codec.h"
#include "fits/values.h"

enum {
    NRANDOM = 10000,        /* length of the sequence of random numbers (appendix I) */
    ZERO_CODE = -2147483646 /* SUBTRACTIVE_DITHER_2: exactly 0 */
};

typedef enum { RICE, GZIP1, GZIP2, PLIO, HCOMPRESS, NOCOMPRESS } method;

typedef struct {
    const spx_fits *f;
    const spx_fits_hdu *h;
    char place[128];
    method how;
    size_t size, widest;          /* bytes of a pixel, and the most that are inflated for one */
    size_t tile[SPX_FITS_MAXDIM]; /* shape, slowest first */
    size_t most;                  /* pixels of the largest tile */
    const spx_fits_column *data, *gzip,
        *raw; /* streams; of tiles that could not be quantised; the same, not compressed */
    int rice_bytes, smooth;
    size_t rice_block;
    int quantised, dither;           /* 0: none, 1, 2: SUBTRACTIVE_DITHER_1, _2 */
    size_t seed;                     /* ZDITHER0 */
    double scale, zero, blank;       /* of all tiles; blank NaN: none */
    double *scales, *zeros, *blanks; /* of each tile, or NULL */
    float *random;                   /* [NRANDOM], with dither */
    z_stream z;
    int inflating;
    /* workspaces of one tile */
    int32_t *code;        /* [most] */
    unsigned char *bytes; /* [most * widest]: what is inflated; then the tile as FITS bytes */
    unsigned char *order; /* [most * widest]: GZIP_2 before its bytes are in order */
    int64_t *wide;        /* HCOMPRESS */
    unsigned char *codes;
} tiles;

/* ---- parameters ---- */

static spx_status refuse(const tiles *t, spx_err *e, const char *text)
{
    return spx_fail_at(e, SPX_EINPUT, t->f->name, t->place, NULL,
                       "the compressed image cannot be decoded (%s): the file is damaged", text);
}

static spx_status keyword(const tiles *t, const char *key, long min, long max, long absent, long *out, spx_err *e)
{
    const spx_fits_where where = {t->f->name, t->place};
    return spx_fits_header_int(&t->h->header, key, min, max, absent, &where, out, e);
}

/* Parameter of the method by its name in ZNAMEn, or ZVALn with n = `usual` where no ZNAMEn has it. */
static spx_status parameter(const tiles *t, const char *name, int usual, long min, long max, long absent, long *out,
                            spx_err *e)
{
    char key[16], have[72];
    int n = 0;
    for (int i = 1; i < 10 && n == 0; i++) {
        snprintf(key, sizeof key, "ZNAME%d", i);
        if (spx_cards_string(&t->h->header, key, have, sizeof have) && strcasecmp(have, name) == 0)
            n = i;
    }
    snprintf(key, sizeof key, "ZVAL%d", n > 0 ? n : usual);
    return keyword(t, key, min, max, absent, out, e);
}

static spx_status read_method(tiles *t, spx_err *e)
{
    static const struct {
        const char *name;
        method how;
    } known[] = {{"RICE_1", RICE}, {"RICE_ONE", RICE},         {"GZIP_1", GZIP1},         {"GZIP_2", GZIP2},
                 {"PLIO_1", PLIO}, {"HCOMPRESS_1", HCOMPRESS}, {"NOCOMPRESS", NOCOMPRESS}};
    char name[72] = "";
    long v = 0;
    size_t i = 0;
    spx_status st = SPX_OK;
    spx_cards_string(&t->h->header, "ZCMPTYPE", name, sizeof name);
    while (i < sizeof known / sizeof *known && strcmp(known[i].name, name) != 0)
        i++;
    if (i == sizeof known / sizeof *known)
        return spx_fail_at(e, SPX_EINPUT, t->f->name, t->place, "unpack it with funpack",
                           "ZCMPTYPE = '%s' is no compression that is known here", name);
    t->how = known[i].how;
    if (t->how == RICE) {
        if ((st = parameter(t, "BLOCKSIZE", 1, 1, 1 << 20, 32, &v, e)) == SPX_OK) {
            t->rice_block = (size_t)v;
            st = parameter(t, "BYTEPIX", 2, 1, 4, 4, &v, e);
            t->rice_bytes = (int)v;
        }
        if (st == SPX_OK && v == 3)
            st = refuse(t, e, "BYTEPIX is 3");
    } else if (t->how == HCOMPRESS) {
        st = parameter(t, "SMOOTH", 2, -__LONG_MAX__, __LONG_MAX__, 0, &v, e);
        t->smooth = v != 0;
    }
    return st;
}

/* Shape of the tiles, and that there is a row for each. */
static spx_status read_shape(tiles *t, spx_err *e)
{
    const spx_fits_hdu *h = t->h;
    size_t n = 1;
    long v = 0;
    spx_status st = keyword(t, "ZNAXIS", 0, SPX_FITS_MAXDIM, -1, &v, e);
    t->most = 1;
    for (int i = 0; st == SPX_OK && i < h->ndim; i++) {
        char key[16];
        const size_t length = h->dims[h->ndim - 1 - i];
        snprintf(key, sizeof key, "ZTILE%d", i + 1);
        if ((st = keyword(t, key, 1, __LONG_MAX__, i == 0 ? (long)length : 1, &v, e)) != SPX_OK)
            break;
        const size_t tile = (size_t)v < length ? (size_t)v : length;
        t->tile[h->ndim - 1 - i] = tile;
        t->most *= tile; /* no overflow: at most nelem, and so is n */
        n *= (length - 1) / tile + 1;
    }
    if (st == SPX_OK && n != h->nrow)
        return spx_fail_at(e, SPX_EINPUT, t->f->name, t->place, NULL,
                           "ZNAXISn and ZTILEn make %zu tiles, but the table has %zu rows: the file is damaged", n,
                           h->nrow);
    return st;
}

static spx_status stream_column(const tiles *t, const char *name, char element, const spx_fits_column **out, spx_err *e)
{
    *out = spx_fits_find_column(t->h, name);
    if (*out != NULL && ((*out)->element != element || (*out)->width == 0))
        return spx_fail_at(e, SPX_EINPUT, t->f->name, t->place, NULL,
                           "column %s has no variable-length arrays of type %c: the file is damaged", name, element);
    return SPX_OK;
}

/* A parameter that is a column with a value a tile, or a keyword. */
static spx_status per_tile(const tiles *t, size_t hdu, const char *name, double *all, double **each, spx_err *e)
{
    size_t n = 0;
    if (spx_fits_find_column(t->h, name) == NULL) {
        spx_cards_double(&t->h->header, name, all);
        return SPX_OK;
    }
    const spx_status st = spx_fits_column_f64(t->f, hdu, name, &n, each, e);
    return st == SPX_OK && n != 1 ? refuse(t, e, "more than one value a tile") : st;
}

/* Park & Miller 1988, as appendix I of the FITS standard asks for. */
static spx_status make_random(tiles *t, spx_err *e)
{
    const double a = 16807.0, m = 2147483647.0;
    double seed = 1.0;
    t->random = spx_alloc(NRANDOM, sizeof *t->random, e);
    if (t->random == NULL)
        return SPX_EIO;
    for (int i = 0; i < NRANDOM; i++) {
        seed = fmod(a * seed, m); /* exact: below 2^46 */
        t->random[i] = (float)(seed / m);
    }
    return SPX_OK;
}

static spx_status read_quantisation(tiles *t, size_t hdu, spx_err *e)
{
    char name[72] = "";
    const int has = spx_cards_string(&t->h->header, "ZQUANTIZ", name, sizeof name);
    double blank = NAN;
    t->scale = 1.0;
    t->blank = NAN;
    spx_status st = SPX_OK;
    if (t->h->bitpix > 0)
        return SPX_OK;
    t->scale = NAN; /* none */
    if ((st = per_tile(t, hdu, "ZSCALE", &t->scale, &t->scales, e)) != SPX_OK ||
        (st = per_tile(t, hdu, "ZZERO", &t->zero, &t->zeros, e)) != SPX_OK ||
        (st = per_tile(t, hdu, "ZBLANK", &blank, &t->blanks, e)) != SPX_OK)
        return st;
    if (isnan(blank))
        spx_cards_double(&t->h->header, "BLANK", &blank);
    t->blank = blank;
    const int scaled = !isnan(t->scale) || t->scales != NULL;
    const int exact = t->how == GZIP1 || t->how == GZIP2 || t->how == NOCOMPRESS;
    t->quantised = !(has && strcasecmp(name, "NONE") == 0) && (scaled || !exact);
    if (!scaled)
        t->scale = 1.0;
    if (!t->quantised && !exact)
        return refuse(t, e, "floats that are not quantised need GZIP");
    t->dither = strcasecmp(name, "SUBTRACTIVE_DITHER_1") == 0   ? 1
                : strcasecmp(name, "SUBTRACTIVE_DITHER_2") == 0 ? 2
                                                                : 0;
    if (!t->quantised || t->dither == 0)
        return SPX_OK;
    long seed = 1;
    if ((st = keyword(t, "ZDITHER0", 1, __LONG_MAX__ / 2, 1, &seed, e)) != SPX_OK)
        return st;
    t->seed = (size_t)seed;
    return make_random(t, e);
}

static spx_status read_parameters(tiles *t, size_t hdu, spx_err *e)
{
    spx_status st;
    if ((st = read_method(t, e)) != SPX_OK || (st = read_shape(t, e)) != SPX_OK ||
        (st = stream_column(t, "COMPRESSED_DATA", t->how == PLIO ? 'I' : 'B', &t->data, e)) != SPX_OK ||
        (st = stream_column(t, "GZIP_COMPRESSED_DATA", 'B', &t->gzip, e)) != SPX_OK ||
        (st = stream_column(t, "UNCOMPRESSED_DATA",
                            t->h->bitpix == 8     ? 'B'
                            : t->h->bitpix == 16  ? 'I'
                            : t->h->bitpix == 32  ? 'J'
                            : t->h->bitpix == 64  ? 'K'
                            : t->h->bitpix == -32 ? 'E'
                                                  : 'D',
                            &t->raw, e)) != SPX_OK)
        return st;
    if (t->data == NULL)
        return refuse(t, e, "there is no column COMPRESSED_DATA");
    return read_quantisation(t, hdu, e);
}

static spx_status make_workspaces(tiles *t, spx_err *e)
{
    size_t longest = 0, codes = 0;
    spx_status st = spx_mul(t->most, 2, &longest, e);
    if (st != SPX_OK)
        return st;
    t->widest = t->size > 4 ? t->size : 4;
    t->bytes = spx_alloc2(t->most, t->widest, 1, e);
    t->code = t->bytes != NULL ? spx_alloc(t->most, sizeof *t->code, e) : NULL;
    if (t->code != NULL && t->how == GZIP2)
        t->order = spx_alloc2(t->most, t->widest, 1, e);
    if (t->code != NULL && t->how == HCOMPRESS) {
        codes = t->most + 8; /* 2 * ceil(width / 4) * ceil(height / 4), both 2 at least */
        t->wide = spx_alloc(longest, sizeof *t->wide, e);
        t->codes = t->wide != NULL ? spx_alloc(codes, 1, e) : NULL;
    }
    return t->code == NULL || (t->how == GZIP2 && t->order == NULL) || (t->how == HCOMPRESS && t->codes == NULL)
               ? SPX_EIO
               : SPX_OK;
}

/* ---- one tile ---- */

/* Array that the descriptor of a row points at, which the scan found within the heap; its length in elements. */
static const unsigned char *stream_of(const tiles *t, const spx_fits_column *c, size_t row, size_t *n)
{
    const spx_fits_hdu *h = t->h;
    if (c == NULL) {
        *n = 0;
        return NULL;
    }
    const unsigned char *d = t->f->bytes + h->data_at + row * h->rowsize + c->offset;
    const size_t half = c->width / 2, heap = h->data_at + h->nrow * h->rowsize + h->theap;
    *n = (size_t)spx_fits_integer(d, half);
    return t->f->bytes + heap + (*n > 0 ? spx_fits_integer(d + half, half) : 0);
}

/* Inflates one gzip member of at most `nout` bytes; *got gets its length. */
static const char *inflate_one(tiles *t, const unsigned char *in, size_t nin, unsigned char *out, size_t nout,
                               size_t *got)
{
    const size_t piece = (size_t)1 << 30;
    int rc = t->inflating ? inflateReset(&t->z) : inflateInit2(&t->z, 15 + 16);
    if (rc != Z_OK)
        return "out of memory";
    t->inflating = 1;
    size_t read = 0;
    *got = 0;
    do {
        const size_t give = nin - read < piece ? nin - read : piece, take = nout - *got < piece ? nout - *got : piece;
        t->z.next_in = (Bytef *)(uintptr_t)(in + read); /* zlib does not write there */
        t->z.avail_in = (uInt)give;
        t->z.next_out = out + *got;
        t->z.avail_out = (uInt)take;
        rc = inflate(&t->z, Z_NO_FLUSH);
        read += give - t->z.avail_in;
        *got += take - t->z.avail_out;
    } while (rc == Z_OK && (read < nin || *got < nout) && (t->z.avail_in == 0 || t->z.avail_out == 0));
    return rc == Z_STREAM_END ? NULL : rc == Z_MEM_ERROR ? "out of memory" : "the gzip data are damaged or too long";
}

/* Bytes of a tile of n elements that were stored as they are or by gzip, in t->bytes; *width: of an element. */
static const char *read_bytes(tiles *t, const unsigned char *in, size_t nin, size_t n, method how, size_t *width)
{
    unsigned char *to = how == GZIP2 ? t->order : t->bytes;
    size_t got = nin;
    if (how != NOCOMPRESS) {
        const char *wrong = inflate_one(t, in, nin, to, t->widest * n, &got);
        if (wrong != NULL)
            return wrong;
    } else if (nin > t->widest * n)
        return "a tile has the wrong size";
    else
        memcpy(to, in, nin);
    *width = got / n;
    if (got % n != 0 || (*width != 1 && *width != 2 && *width != 4 && *width != 8))
        return "a tile has the wrong size";
    for (size_t b = 0; how == GZIP2 && b < *width; b++) /* most significant bytes of all elements first */
        for (size_t i = 0; i < n; i++)
            t->bytes[i * *width + b] = to[b * n + i];
    return NULL;
}

/* Big-endian integer of 1, 2, 4 or 8 bytes. */
static inline void put(unsigned char *p, uint64_t v, size_t size)
{
    v = htobe64(v << (64 - 8 * size));
    if (size == 4)
        memcpy(p, &v, 4);
    else
        memcpy(p, &v, size);
}

/* Integers to FITS bytes. HCOMPRESS with loss may go a little beyond the type. */
static const char *store_integers(tiles *t, size_t n)
{
    const int bitpix = t->h->bitpix;
    const int32_t low = bitpix == 8 ? 0 : bitpix == 16 ? INT16_MIN : INT32_MIN;
    const int32_t high = bitpix == 8 ? UINT8_MAX : bitpix == 16 ? INT16_MAX : INT32_MAX;
    double bzero = 0.0;
    /* unsigned integers of 16 bits are in PLIO lists as they are, for these cannot be negative */
    const int32_t offset =
        t->how == PLIO && bitpix == 16 && spx_cards_double(&t->h->header, "BZERO", &bzero) && bzero == 32768.0 ? 32768
                                                                                                               : 0;
    for (size_t i = 0; i < n; i++) {
        const int64_t v = (int64_t)t->code[i] - offset;
        if ((v < low || v > high) && t->how != HCOMPRESS)
            return "a value does not fit ZBITPIX";
        put(t->bytes + i * t->size, (uint64_t)(v < low ? low : v > high ? high : v), t->size);
    }
    return NULL;
}

static void store_float(tiles *t, size_t i, double v)
{
    if (t->size == 4) {
        const float x = (float)v;
        uint32_t u;
        memcpy(&u, &x, 4);
        put(t->bytes + 4 * i, u, 4);
    } else {
        uint64_t u;
        memcpy(&u, &v, 8);
        put(t->bytes + 8 * i, u, 8);
    }
}

/* Quantised floats to FITS bytes: (code - random + 1/2) * scale + zero with dither, else code * scale + zero. The
 * sequence of random numbers begins with the row's, at a place that this one gives. */
static void store_quantised(tiles *t, size_t row, size_t n)
{
    const double scale = t->scales != NULL ? t->scales[row] : t->scale,
                 zero = t->zeros != NULL ? t->zeros[row] : t->zero,
                 blank = t->blanks != NULL ? t->blanks[row] : t->blank;
    size_t first = (row + t->seed - 1) % NRANDOM, next = t->dither ? (size_t)(t->random[first] * 500.0f) : 0;
    for (size_t i = 0; i < n; i++) {
        const int32_t code = t->code[i];
        double v = code;
        if ((double)code == blank)
            v = NAN;
        else if (t->dither == 2 && code == ZERO_CODE)
            v = 0.0;
        else
            v = (t->dither ? v - (double)t->random[next] + 0.5 : v) * scale + zero;
        store_float(t, i, v);
        if (t->dither && ++next == NRANDOM) {
            first = (first + 1) % NRANDOM;
            next = (size_t)(t->random[first] * 500.0f);
        }
    }
}

/* Integers of a tile, in t->code. *done: they were pixels already, in t->bytes. */
static const char *read_codes(tiles *t, const unsigned char *in, size_t nin, const size_t *shape, size_t n, int *done)
{
    size_t width = 0, height = 0;
    const char *wrong = NULL;
    if (t->how == RICE)
        return spx_rice_decode(in, nin, t->rice_bytes, t->rice_block, t->code, n);
    if (t->how == PLIO)
        return spx_plio_decode(in, nin, t->code, n);
    if (t->how == HCOMPRESS) {
        if ((wrong = spx_hcompress_shape(in, nin, &width, &height)) != NULL)
            return wrong;
        size_t row = 1; /* axes that are together a row of the stream */
        for (int d = t->h->ndim - 1; d >= 0 && row < width; d--)
            row *= shape[d];
        if (row != width || n / width != height || n % width != 0)
            return "the stream has another shape than the tile";
        return spx_hcompress_decode(in, nin, t->smooth, t->wide, t->codes, t->code);
    }
    if ((wrong = read_bytes(t, in, nin, n, t->how, &width)) != NULL)
        return wrong;
    *done = !t->quantised && width == t->size;
    if (*done)
        return NULL;
    if (width == 8 || (t->h->bitpix < 0 && !t->quantised))
        return "a tile has the wrong size";
    for (size_t i = 0; i < n; i++) {
        const uint32_t v = (uint32_t)spx_fits_integer(t->bytes + i * width, width);
        t->code[i] = width == 1 ? (int32_t)v : width == 2 ? (int16_t)v : (int32_t)v;
    }
    return NULL;
}

/* The n pixels of a tile as FITS bytes, in t->bytes. */
static const char *decode_tile(tiles *t, size_t row, const size_t *shape, size_t n)
{
    size_t nin, width = 0;
    int done = 0;
    const unsigned char *in = stream_of(t, t->data, row, &nin);
    if (nin > 0) {
        const char *wrong = read_codes(t, in, nin, shape, n, &done);
        if (wrong != NULL || done)
            return wrong;
        if (t->h->bitpix > 0)
            return store_integers(t, n);
        store_quantised(t, row, n);
        return NULL;
    }
    in = stream_of(t, t->raw, row, &nin);
    if (nin > 0) {
        if (nin != n)
            return "a tile has the wrong size";
        memcpy(t->bytes, in, n * t->size);
        return NULL;
    }
    in = stream_of(t, t->gzip, row, &nin);
    if (nin == 0)
        return "a tile is missing";
    const char *wrong = read_bytes(t, in, nin, n, GZIP1, &width);
    return wrong == NULL && width != t->size ? "a tile has the wrong size" : wrong;
}

/* ---- all tiles ---- */

/* Place and shape of the tile of a row; number of its pixels. */
static size_t locate(const tiles *t, size_t row, size_t *start, size_t *shape)
{
    size_t n = 1;
    for (int d = t->h->ndim - 1; d >= 0; d--) {
        const size_t length = t->h->dims[d], count = (length - 1) / t->tile[d] + 1;
        start[d] = row % count * t->tile[d];
        shape[d] = length - start[d] < t->tile[d] ? length - start[d] : t->tile[d];
        row /= count;
        n *= shape[d];
    }
    return n;
}

/* Copies the pixels of a tile to their places in the image. */
static void place(const tiles *t, const size_t *start, const size_t *shape, size_t n, unsigned char *out)
{
    const int last = t->h->ndim - 1;
    const size_t run = shape[last] * t->size;
    for (size_t i = 0; i < n; i += shape[last]) {
        size_t at = 0, left = i / shape[last], step = t->h->dims[last];
        for (int d = last - 1; d >= 0; d--) {
            at += (start[d] + left % shape[d]) * step;
            left /= shape[d];
            step *= t->h->dims[d];
        }
        memcpy(out + (at + start[last]) * t->size, t->bytes + i * t->size, run);
    }
}

static void free_all(tiles *t)
{
    if (t->inflating)
        inflateEnd(&t->z);
    spx_free(t->scales);
    spx_free(t->zeros);
    spx_free(t->blanks);
    spx_free(t->random);
    spx_free(t->code);
    spx_free(t->bytes);
    spx_free(t->order);
    spx_free(t->wide);
    spx_free(t->codes);
}

spx_status spx_fits_decode_tiles(const spx_fits *f, size_t hdu, unsigned char **out, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    tiles t = {.f = f, .h = h, .size = (size_t)(abs(h->bitpix) / 8)};
    snprintf(t.place, sizeof t.place, "%s", spx_fits_hduname(f, hdu));
    *out = NULL;
    spx_status st = spx_mem_check(f->name, h->nelem > SIZE_MAX / t.size ? SIZE_MAX : h->nelem * t.size, e);
    if (st == SPX_OK && h->nelem > 0)
        st = read_parameters(&t, hdu, e);
    if (st == SPX_OK && h->nelem > 0)
        st = make_workspaces(&t, e);
    if (st == SPX_OK && (*out = spx_alloc(h->nelem, t.size, e)) == NULL)
        st = SPX_EIO;
    for (size_t row = 0; st == SPX_OK && h->nelem > 0 && row < h->nrow; row++) {
        size_t start[SPX_FITS_MAXDIM], shape[SPX_FITS_MAXDIM];
        const size_t n = locate(&t, row, start, shape);
        const char *wrong = decode_tile(&t, row, shape, n);
        if (wrong != NULL)
            st = spx_fail_at(e, SPX_EINPUT, f->name, t.place, NULL,
                             "the compressed image cannot be decoded (tile %zu: %s): the file is damaged", row + 1,
                             wrong);
        else
            place(&t, start, shape, n, *out);
    }
    if (st != SPX_OK) {
        spx_free(*out);
        *out = NULL;
    }
    free_all(&t);
    return st;
}
