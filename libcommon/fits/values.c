/* Reads values of FITS HDUs: byte order, scaling, nulls (fits/values.h). */
#include "fits/values.h"

#include <endian.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clones.h"
#include "base/mem.h"
#include "fits/cards.h"
#include "fits/tiles.h"

/* ---- images ---- */

void spx_fits_flip(unsigned char *p, size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++)
        p[i * size] ^= 0x80;
}

int spx_fits_has_words(const spx_fits_hdu *h, int bitpix)
{
    return (h->kind == SPX_FITS_IMAGE || h->kind == SPX_FITS_TILED) && h->bitpix == bitpix && abs(bitpix) == 32 &&
           h->scale == 1.0 && h->zero == 0.0;
}

SPX_CLONES
uint64_t spx_fits_words(const unsigned char *raw, size_t n, int flip, void *out)
{
    const uint32_t sign = flip ? 0x80000000u : 0;
    uint32_t *to = out;
    uint64_t sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) {
        uint32_t v;
        memcpy(&v, raw + i * sizeof v, sizeof v);
        v = be32toh(v);
        sum += v;
        to[i] = v ^ sign;
    }
    return sum;
}

const unsigned char *spx_fits_raw(spx_fits *f, size_t hdu, spx_err *e)
{
    spx_fits_hdu *h = &f->hdu[hdu];
    if (h->kind == SPX_FITS_IMAGE)
        return f->bytes + h->data_at;
    if (h->kind != SPX_FITS_TILED) {
        spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, hdu), NULL, "is no image");
        return NULL;
    }
    if (h->decoded == NULL && spx_fits_decode_tiles(f, hdu, &h->decoded, e) != SPX_OK)
        return NULL;
    return h->decoded;
}

const unsigned char *spx_fits_signed(spx_fits *f, size_t hdu, unsigned char **copy, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    const size_t size = (size_t)(abs(h->bitpix) / 8);
    const unsigned char *raw = spx_fits_raw(f, hdu, e);
    *copy = NULL;
    if (raw == NULL || !h->flip)
        return raw;
    if ((*copy = spx_alloc(h->nelem, size, e)) == NULL)
        return NULL;
    memcpy(*copy, raw, h->nelem * size);
    spx_fits_flip(*copy, h->nelem, size);
    return *copy;
}

/* 1 when the stored integer of |bitpix| bits, before scaling, equals BLANK or TNULL. Compared as integers: doubles do
 * not distinguish all those of 64 bits. */
static int is_null(const unsigned char *p, int bitpix, long null)
{
    uint64_t v = spx_fits_integer(p, (size_t)(bitpix / 8));
    switch (bitpix) {
    case 8:
        return (long)v == null;
    case 16:
        return (int16_t)v == null;
    case 32:
        return (int32_t)v == null;
    default:
        return (int64_t)v == null;
    }
}

/* Converts one big-endian element to double. */
static double element(const unsigned char *p, int bitpix, int flip)
{
    uint64_t v = spx_fits_integer(p, (size_t)(abs(bitpix) / 8));
    switch (bitpix) {
    case 8:
        return flip ? (double)(int8_t)(v ^ 0x80) : (double)v;
    case 16:
        return flip ? (double)(v ^ 0x8000) : (double)(int16_t)v;
    case 32:
        return flip ? (double)(v ^ 0x80000000u) : (double)(int32_t)v;
    case 64:
        return flip ? (double)(v ^ 0x8000000000000000u) : (double)(int64_t)v;
    case -32: {
        uint32_t u = (uint32_t)v;
        float x;
        memcpy(&x, &u, 4);
        return (double)x;
    }
    default: {
        double x;
        memcpy(&x, &v, 8);
        return x;
    }
    }
}

spx_status spx_fits_f64(spx_fits *f, size_t hdu, double **out, spx_err *e)
{
    const unsigned char *p = spx_fits_raw(f, hdu, e);
    const spx_fits_hdu *h = &f->hdu[hdu];
    *out = p != NULL ? spx_alloc(h->nelem, sizeof **out, e) : NULL;
    if (*out == NULL)
        return e->code;
    size_t size = (size_t)(abs(h->bitpix) / 8);
    long blank = 0;
    int has_blank = h->bitpix > 0 && (spx_cards_int(&h->header, "BLANK", &blank) ||
                                      (h->kind == SPX_FITS_TILED && spx_cards_int(&h->header, "ZBLANK", &blank)));
    for (size_t i = 0; i < h->nelem; i++, p += size) {
        if (has_blank && is_null(p, h->bitpix, blank))
            (*out)[i] = NAN;
        else
            (*out)[i] = element(p, h->bitpix, h->flip) * h->scale + h->zero;
    }
    return SPX_OK;
}

spx_status spx_fits_f32(spx_fits *f, size_t hdu, float **out, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    double *d = NULL;
    *out = NULL;
    if (spx_fits_has_words(h, -32)) { /* most images: float32 without scaling, copied bit by bit */
        const unsigned char *p = spx_fits_raw(f, hdu, e);
        *out = p != NULL ? spx_alloc(h->nelem, sizeof **out, e) : NULL;
        if (*out == NULL)
            return e->code;
        (void)spx_fits_words(p, h->nelem, 0, *out);
        return SPX_OK;
    }
    if (spx_fits_f64(f, hdu, &d, e) != SPX_OK)
        return e->code;
    *out = spx_alloc(h->nelem, sizeof **out, e);
    for (size_t i = 0; *out != NULL && i < h->nelem; i++)
        (*out)[i] = (float)d[i];
    spx_free(d);
    return *out != NULL ? SPX_OK : SPX_EIO;
}

spx_status spx_fits_u32(spx_fits *f, size_t hdu, uint32_t **out, spx_err *e)
{
    const unsigned char *p = spx_fits_raw(f, hdu, e);
    const spx_fits_hdu *h = &f->hdu[hdu];
    *out = NULL;
    if (p == NULL)
        return e->code;
    if (h->bitpix < 0 || h->scale != 1.0 || h->zero != 0.0)
        return spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, hdu), NULL,
                           "a mask holds integers without scale");
    *out = spx_alloc(h->nelem, sizeof **out, e);
    if (*out == NULL)
        return SPX_EIO;
    if (spx_fits_has_words(h, 32)) {
        (void)spx_fits_words(p, h->nelem, h->flip, *out);
        return SPX_OK;
    }
    size_t size = (size_t)(h->bitpix / 8);
    for (size_t i = 0; i < h->nelem; i++, p += size) {
        double v = element(p, h->bitpix, h->flip);
        if (v < -2147483648.0 || v > 4294967295.0) {
            spx_free(*out);
            *out = NULL;
            return spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, hdu), NULL,
                               "mask value %.0f does not fit 32 bits", v);
        }
        (*out)[i] = v < 0.0 ? (uint32_t)(int32_t)v : (uint32_t)v;
    }
    return SPX_OK;
}

/* ---- tables ---- */

void spx_fits_truth(const spx_fits *f, size_t hdu, unsigned char *truth)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    for (size_t k = 0; k < h->ncol; k++) {
        const spx_fits_column *c = &h->col[k];
        truth[k] = c->code == 'L';
        for (size_t r = 0; truth[k] && c->width > 0 && r < h->nrow; r++) {
            const unsigned char *p = f->bytes + h->data_at + r * h->rowsize + c->offset;
            for (size_t i = 0; i < c->width; i++)
                if (p[i] != 'T' && p[i] != 'F')
                    truth[k] = 0;
        }
    }
}

void spx_fits_convert_rows(const spx_fits_hdu *h, const unsigned char *truth, unsigned char *rows, size_t nrow,
                           int to_file)
{
    for (size_t k = 0; k < h->ncol; k++) {
        const spx_fits_column *c = &h->col[k];
        int logical = truth != NULL && truth[k];
        if ((!c->flip && !logical) || c->width == 0)
            continue;
        for (size_t r = 0; r < nrow; r++) {
            unsigned char *p = rows + r * h->rowsize + c->offset;
            if (c->flip)
                spx_fits_flip(p, c->width / c->size, c->size);
            else
                for (size_t i = 0; i < c->width; i++)
                    p[i] = to_file ? (p[i] ? 'T' : 'F') : p[i] == 'T';
        }
    }
}

static const spx_fits_column *need_column(const spx_fits *f, size_t hdu, const char *name, const char *codes,
                                          const char *what, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    const spx_fits_column *c = spx_fits_find_column(h, name); /* of a binary table, or of tiles */
    if (c != NULL && c->width > 0 && strchr(codes, c->code) != NULL)
        return c;
    spx_fail_at(e, SPX_EINPUT, f->name, spx_fits_hduname(f, hdu), NULL, "has no column %s that holds %s", name, what);
    return NULL;
}

spx_status spx_fits_column_f64(const spx_fits *f, size_t hdu, const char *name, size_t *n, double **out, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    *out = NULL;
    const spx_fits_column *c = need_column(f, hdu, name, "BIJKED", "numbers", e);
    if (c == NULL)
        return SPX_EINPUT;
    *n = c->width / c->size;
    *out = spx_alloc2(h->nrow, *n, sizeof **out, e);
    if (*out == NULL)
        return SPX_EIO;
    const int bitpix = (int)c->size * (c->code == 'E' || c->code == 'D' ? -8 : 8);
    char key[24];
    long null = 0;
    snprintf(key, sizeof key, "TNULL%td", c - h->col + 1);
    const int has_null = bitpix > 0 && spx_cards_int(&h->header, key, &null);
    for (size_t r = 0; r < h->nrow; r++)
        for (size_t i = 0; i < *n; i++) {
            const unsigned char *p = f->bytes + h->data_at + r * h->rowsize + c->offset + i * c->size;
            (*out)[r * *n + i] =
                has_null && is_null(p, bitpix, null) ? NAN : element(p, bitpix, c->flip) * c->scale + c->zero;
        }
    return SPX_OK;
}

spx_status spx_fits_cell_f64(const spx_fits *f, size_t hdu, const char *name, size_t row, size_t *n, double **out,
                             spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    *out = NULL;
    const spx_fits_column *c = need_column(f, hdu, name, "BIJKEDPQ", "numbers", e);
    if (c == NULL)
        return SPX_EINPUT;
    const int varies = c->code == 'P' || c->code == 'Q';
    const char code = varies ? c->element : c->code;
    if (strchr("BIJKED", code) == NULL)
        return spx_fail_at(e, SPX_EINPUT, f->name, h->extname, NULL, "column %s should hold numbers", name);
    const size_t size = spx_fits_element_size(code);
    const unsigned char *p = f->bytes + h->data_at + row * h->rowsize + c->offset;
    *n = c->width / c->size;
    if (varies && c->width > 0) { /* how many, and where in the heap: within it (fits/scan.c) */
        *n = (size_t)spx_fits_integer(p, c->width / 2);
        p = f->bytes + h->data_at + h->nrow * h->rowsize + h->theap + spx_fits_integer(p + c->width / 2, c->width / 2);
    }
    const int bitpix = (int)size * (code == 'E' || code == 'D' ? -8 : 8);
    if ((*out = spx_alloc(*n + 1, sizeof **out, e)) == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < *n; i++)
        (*out)[i] = element(p + i * size, bitpix, c->flip) * c->scale + c->zero;
    return SPX_OK;
}

spx_status spx_fits_cell_true(const spx_fits *f, size_t hdu, const char *name, size_t row, int *is_true, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    const spx_fits_column *c = need_column(f, hdu, name, "L", "T or F", e);
    if (c == NULL)
        return SPX_EINPUT;
    *is_true = c->width > 0 && f->bytes[h->data_at + row * h->rowsize + c->offset] == 'T';
    return SPX_OK;
}

spx_status spx_fits_column_str(const spx_fits *f, size_t hdu, const char *name, size_t size, char **out, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    *out = NULL;
    const spx_fits_column *c = need_column(f, hdu, name, "A", "text", e);
    if (c == NULL)
        return SPX_EINPUT;
    *out = spx_alloc2(h->nrow, size, 1, e);
    if (*out == NULL)
        return SPX_EIO;
    for (size_t r = 0; r < h->nrow; r++) {
        char *s = *out + r * size;
        size_t n = c->width < size - 1 ? c->width : size - 1;
        memcpy(s, f->bytes + h->data_at + r * h->rowsize + c->offset, n);
        n = strlen(s);
        while (n > 0 && s[n - 1] == ' ')
            s[--n] = 0;
    }
    return SPX_OK;
}
