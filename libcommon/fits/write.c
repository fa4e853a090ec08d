#include "fits/write.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/tmpfile.h"
#include "fits/fits.h"
#include "h5/table.h"

spx_status spx_fits_out_bytes(spx_fits_out *o, const void *p, size_t n, spx_err *e)
{
    o->at += n;
    return spx_write_all(o->fd, p, n, o->name, e);
}

spx_status spx_fits_out_fill(spx_fits_out *o, size_t n, char fill, spx_err *e)
{
    char pad[SPX_FITS_BLOCK];
    memset(pad, fill, sizeof pad);
    return spx_fits_out_bytes(o, pad, n < sizeof pad ? n : sizeof pad, e);
}

spx_status spx_fits_out_cards(spx_fits_out *o, const spx_cards *h, spx_err *e)
{
    spx_status st = h->n ? spx_fits_out_bytes(o, h->cards, h->n * 80, e) : SPX_OK;
    return st == SPX_OK ? spx_fits_out_bytes(o, "END", 3, e) : st;
}

/* ---- checksums (FITS standard 4.0, appendix J) ---- */

/* One's complement sum of big-endian 32-bit words; bytes beyond the end count as 0. */
static uint32_t add_sum(uint32_t sum, const unsigned char *p, size_t n)
{
    uint64_t s = sum;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t w = 0;
        for (size_t k = 0; k < 4; k++)
            w = w << 8 | (i + k < n ? p[i + k] : 0);
        s += w;
        s = (s & 0xffffffff) + (s >> 32);
    }
    return (uint32_t)s;
}

/* The sum as 16 letters and digits, which make the whole HDU sum to -0 when they stand in CHECKSUM. */
static void encode_sum(uint32_t value, char text[17])
{
    static const char exclude[] = ":;<=>?@[\\]^_`";
    char ascii[16];
    value = ~value;
    for (int i = 0; i < 4; i++) {
        int byte = (int)(value >> (24 - 8 * i) & 0xff), quotient = byte / 4 + '0';
        int ch[4] = {quotient + byte % 4, quotient, quotient, quotient};
        for (int again = 1; again;) {
            again = 0;
            for (int j = 0; j < 4; j += 2)
                if (strchr(exclude, ch[j]) || strchr(exclude, ch[j + 1])) {
                    ch[j]++;
                    ch[j + 1]--;
                    again = 1;
                }
        }
        for (int j = 0; j < 4; j++)
            ascii[4 * j + i] = (char)ch[j];
    }
    for (int i = 0; i < 16; i++) /* rotated: the value begins in the last byte of a word */
        text[i] = ascii[(i + 15) % 16];
    text[16] = 0;
}

/* Complete the header with DATASUM and CHECKSUM and write the HDU. */
static spx_status put_hdu(spx_fits_out *o, spx_cards *h, const unsigned char *data, size_t n, spx_err *e)
{
    char text[32];
    uint32_t datasum = add_sum(0, data, n);
    snprintf(text, sizeof text, "%lu", (unsigned long)datasum);
    spx_status st;
    if ((st = spx_cards_set_string(h, "DATASUM", text, "data unit checksum", e)) != SPX_OK ||
        (st = spx_cards_set_string(h, "CHECKSUM", "0000000000000000", "HDU checksum", e)) != SPX_OK)
        return st;
    uint32_t sum = add_sum(datasum, (const unsigned char *)h->cards, h->n * 80);
    char tail[SPX_FITS_BLOCK];
    memset(tail, ' ', sizeof tail);
    memcpy(tail, "END", 3);
    size_t ntail = (SPX_FITS_BLOCK - h->n * 80 % SPX_FITS_BLOCK);
    sum = add_sum(sum, (const unsigned char *)tail, ntail);
    encode_sum(sum, text);
    if ((st = spx_cards_set_string(h, "CHECKSUM", text, "HDU checksum", e)) != SPX_OK ||
        (st = spx_fits_out_bytes(o, h->cards, h->n * 80, e)) != SPX_OK ||
        (st = spx_fits_out_bytes(o, tail, ntail, e)) != SPX_OK || (st = spx_fits_out_bytes(o, data, n, e)) != SPX_OK)
        return st;
    return spx_fits_out_fill(o, (SPX_FITS_BLOCK - n % SPX_FITS_BLOCK) % SPX_FITS_BLOCK, 0, e);
}

/* ---- headers ---- */

/* Cards of another header that would contradict what is written now. */
static spx_status add_more(spx_cards *h, const spx_cards *more, spx_err *e)
{
    static const char *const own[] = {"SIMPLE",   "XTENSION", "BITPIX",   "NAXIS*",   "EXTEND",  "PCOUNT",  "GCOUNT",
                                      "GROUPS",   "TFIELDS",  "EXTNAME",  "BSCALE",   "BZERO",   "BLANK",   "CHECKSUM",
                                      "DATASUM",  "ZHECKSUM", "ZDATASUM", "END",      "TTYPE*",  "TFORM*",  "TUNIT*",
                                      "TDIM*",    "TNULL*",   "TSCAL*",   "TZERO*",   "TDISP*",  "THEAP",   "ZIMAGE",
                                      "ZCMPTYPE", "ZBITPIX",  "ZNAXIS*",  "ZTILE*",   "ZNAME*",  "ZVAL*",   "ZQUANTIZ",
                                      "ZDITHER0", "ZSIMPLE",  "ZEXTEND",  "ZTENSION", "ZPCOUNT", "ZGCOUNT", "ZBLANK"};
    spx_cards copy = {0};
    if (!more || more->n == 0)
        return SPX_OK;
    spx_status st = spx_cards_copy(&copy, more, e);
    if (st != SPX_OK)
        return st;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        spx_cards_drop(&copy, own[i]);
    char *all = spx_alloc2(h->n + copy.n, 80, 1, e);
    if (all) {
        memcpy(all, h->cards, h->n * 80);
        if (copy.n)
            memcpy(all + h->n * 80, copy.cards, copy.n * 80);
        /* text from HDF5 may be padded with NUL, which FITS does not allow */
        for (size_t i = h->n * 80; i < (h->n + copy.n) * 80; i++)
            if (all[i] < 32 || all[i] > 126)
                all[i] = ' ';
        spx_free(h->cards);
        h->cards = all;
        h->n += copy.n;
    }
    spx_cards_free(&copy);
    return all ? SPX_OK : SPX_EIO;
}

static spx_status start_header(spx_fits_out *o, spx_cards *h, const char *xtension, int bitpix, int ndim,
                               const size_t *dims, spx_err *e)
{
    char key[32];
    int first = o->at == 0;
    spx_status st = first ? spx_cards_set_bool(h, "SIMPLE", 1, "conforms to FITS standard", e)
                          : spx_cards_set_string(h, "XTENSION", xtension, NULL, e);
    if (st == SPX_OK)
        st = spx_cards_set_int(h, "BITPIX", bitpix, NULL, e);
    if (st == SPX_OK)
        st = spx_cards_set_int(h, "NAXIS", ndim, NULL, e);
    for (int i = 0; st == SPX_OK && i < ndim; i++) {
        snprintf(key, sizeof key, "NAXIS%d", i + 1);
        st = spx_cards_set_int(h, key, (long)dims[ndim - 1 - i], NULL, e);
    }
    if (first)
        return st == SPX_OK ? spx_cards_set_bool(h, "EXTEND", 1, NULL, e) : st;
    if (st == SPX_OK)
        st = spx_cards_set_int(h, "PCOUNT", 0, NULL, e);
    return st == SPX_OK ? spx_cards_set_int(h, "GCOUNT", 1, NULL, e) : st;
}

static int little_endian(void)
{
    const uint16_t probe = 1;
    return *(const unsigned char *)&probe;
}

spx_status spx_fits_out_image(spx_fits_out *o, const char *extname, int bitpix, int ndim, const size_t *dims,
                              const void *data, const spx_cards *more, spx_err *e)
{
    spx_cards h = {0};
    int flip = bitpix == SPX_FITS_UINT32;
    if (flip)
        bitpix = 32;
    size_t n = ndim > 0, size = (size_t)(abs(bitpix) / 8);
    for (int i = 0; i < ndim; i++)
        n *= dims[i];
    unsigned char *bytes = spx_alloc(n, size, e);
    spx_status st = bytes ? start_header(o, &h, "IMAGE", bitpix, ndim, dims, e) : SPX_EIO;
    if (st == SPX_OK && flip)
        st = spx_cards_set_double(&h, "BZERO", 2147483648.0, "unsigned integers", e);
    if (st == SPX_OK && flip)
        st = spx_cards_set_int(&h, "BSCALE", 1, NULL, e);
    if (st == SPX_OK && extname && *extname)
        st = spx_cards_set_string(&h, "EXTNAME", extname, NULL, e);
    if (st == SPX_OK)
        st = add_more(&h, more, e);
    if (st == SPX_OK) {
        const unsigned char *p = data;
        int swap = little_endian();
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < size; k++)
                bytes[i * size + k] = p[i * size + (swap ? size - 1 - k : k)];
        if (flip)
            spx_fits_flip(bytes, n, size);
        st = put_hdu(o, &h, bytes, n * size, e);
    }
    spx_free(bytes);
    spx_cards_free(&h);
    return st;
}

/* ---- tables ---- */

/* What a column becomes: TFORM code, the HDF5 type of one FITS element, unsigned or signed by TZERO, boolean. */
typedef struct {
    char code;
    hid_t file; /* big-endian type of one element; closed by the caller */
    size_t repeat, ndim, dims[SPX_FITS_MAXDIM];
    int flip, truth;
} out_column;

static int is_boolean(hid_t t)
{
    signed char no = 1, yes = 0;
    hid_t super = H5Tget_super(t);
    int ok = super >= 0 && H5Tget_size(t) == 1 && H5Tget_nmembers(t) == 2 && H5Tget_class(super) == H5T_INTEGER &&
             H5Tenum_valueof(t, "FALSE", &no) >= 0 && H5Tenum_valueof(t, "TRUE", &yes) >= 0 && no == 0 && yes == 1;
    if (super >= 0)
        H5Tclose(super);
    return ok;
}

static int is_complex(hid_t t)
{
    char *a = H5Tget_nmembers(t) == 2 ? H5Tget_member_name(t, 0) : NULL;
    char *b = a ? H5Tget_member_name(t, 1) : NULL;
    int ok = a && b && strcmp(a, "r") == 0 && strcmp(b, "i") == 0 && H5Tget_member_class(t, 0) == H5T_FLOAT &&
             H5Tget_member_class(t, 1) == H5T_FLOAT;
    H5free_memory(a);
    H5free_memory(b);
    return ok;
}

/* 0: FITS has no such type. */
static int classify(hid_t type, out_column *c)
{
    memset(c, 0, sizeof *c);
    c->file = H5I_INVALID_HID;
    c->repeat = 1;
    hid_t t = H5Tcopy(type);
    while (t >= 0 && H5Tget_class(t) == H5T_ARRAY) {
        hsize_t d[H5S_MAX_RANK];
        int n = H5Tget_array_dims2(t, d);
        for (int i = 0; i < n; i++) {
            c->repeat *= (size_t)d[i];
            if (c->ndim < SPX_FITS_MAXDIM)
                c->dims[c->ndim] = (size_t)d[i];
            c->ndim++;
        }
        hid_t super = H5Tget_super(t);
        H5Tclose(t);
        t = super;
    }
    size_t size = t < 0 ? 0 : H5Tget_size(t);
    int flip;
    switch (t < 0 ? H5T_NO_CLASS : H5Tget_class(t)) {
    case H5T_INTEGER:
        flip = (H5Tget_sign(t) == H5T_SGN_NONE) != (size == 1);
        c->code = size == 1 ? 'B' : size == 2 ? 'I' : size == 4 ? 'J' : size == 8 ? 'K' : 0;
        c->flip = flip;
        break;
    case H5T_FLOAT:
        c->code = size <= 4 ? 'E' : 'D';
        size = size <= 4 ? 4 : 8;
        break;
    case H5T_STRING:
        c->code = 'A';
        break;
    case H5T_ENUM:
        c->truth = is_boolean(t);
        c->code = c->truth ? 'L' : 0;
        break;
    case H5T_COMPOUND:
        c->code = !is_complex(t) ? 0 : size <= 8 ? 'C' : 'M';
        break;
    default:
        break;
    }
    if (t >= 0)
        H5Tclose(t);
    if (c->code)
        c->file = spx_fits_element_type(c->code, size, c->flip, c->truth);
    return c->file >= 0;
}

/* TTYPEn, TFORMn, TUNITn, TDIMn, TZEROn. */
static spx_status describe_column(spx_cards *h, size_t k, const char *name, const char *unit, const out_column *c,
                                  spx_err *e)
{
    char key[32], text[200];
    size_t width = c->code == 'A' ? H5Tget_size(c->file) : 1;
    spx_status st;
    snprintf(key, sizeof key, "TTYPE%zu", k);
    if ((st = spx_cards_set_string(h, key, name, NULL, e)) != SPX_OK)
        return st;
    snprintf(key, sizeof key, "TFORM%zu", k);
    if (c->repeat * width == 1)
        snprintf(text, sizeof text, "%c", c->code);
    else
        snprintf(text, sizeof text, "%zu%c", c->repeat * width, c->code);
    if ((st = spx_cards_set_string(h, key, text, NULL, e)) != SPX_OK)
        return st;
    snprintf(key, sizeof key, "TUNIT%zu", k);
    if (strcmp(unit, "degree") == 0)
        unit = "deg"; /* as FITS spells it */
    if (strcmp(unit, "km/s") == 0)
        unit = "km s-1";
    if (*unit && strcmp(unit, "1") != 0 && (st = spx_cards_set_string(h, key, unit, NULL, e)) != SPX_OK)
        return st;
    if (c->ndim > (c->code == 'A' ? 0 : 1) && c->ndim <= SPX_FITS_MAXDIM) {
        size_t n = (size_t)snprintf(text, sizeof text, "(");
        if (c->code == 'A')
            n += (size_t)snprintf(text + n, sizeof text - n, "%zu,", width);
        for (size_t i = c->ndim; i-- > 0;)
            n += (size_t)snprintf(text + n, sizeof text - n, "%zu%s", c->dims[i], i ? "," : ")");
        snprintf(key, sizeof key, "TDIM%zu", k);
        if ((st = spx_cards_set_string(h, key, text, NULL, e)) != SPX_OK)
            return st;
    }
    if (c->flip) {
        static const struct {
            char code;
            const char *zero;
        } zeros[] = {{'B', "-128"}, {'I', "32768"}, {'J', "2147483648"}, {'K', "9223372036854775808"}};
        for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++)
            if (zeros[i].code == c->code) {
                snprintf(text, sizeof text, "TZERO%-3zu= %20s", k, zeros[i].zero);
                if ((st = spx_cards_append(h, text, e)) != SPX_OK)
                    return st;
            }
    }
    return SPX_OK;
}

spx_status spx_fits_out_table(spx_fits_out *o, const char *extname, const spx_table *t, const spx_cards *more,
                              spx_err *e)
{
    spx_cards h = {0}, columns = {0};
    size_t ncol = spx_table_ncol(t), size = 0;
    out_column *c = spx_alloc(ncol, sizeof *c, e);
    spx_status st = c ? SPX_OK : SPX_EIO;
    if (st == SPX_OK && ncol > 999)
        st = spx_fail(e, SPX_EINPUT, "table %s has %zu columns, FITS allows 999", extname, ncol);
    size_t made = 0;
    for (; st == SPX_OK && made < ncol; made++) {
        char *name = spx_table_name(t, (int)made, e), *unit = spx_table_unit(t, (int)made, e);
        hid_t type = H5Tget_member_type(t->type, (unsigned)made);
        if (!name || !unit)
            st = SPX_EIO;
        else if (!classify(type, &c[made]))
            st = spx_fail(e, SPX_EINPUT, "table %s, column %s: FITS has no such type of column", extname, name);
        else
            st = describe_column(&columns, made + 1, name, unit, &c[made], e);
        if (st == SPX_OK)
            size += c[made].repeat * H5Tget_size(c[made].file);
        H5Tclose(type);
        spx_free(name);
        spx_free(unit);
    }
    /* one more row, so that a buffer may hold a wider value while it is converted */
    size_t wide = size > t->rowsize ? size : t->rowsize, at = 0;
    unsigned char *rows = NULL;
    char *work = NULL;
    if (st == SPX_OK &&
        (!(rows = spx_alloc2(t->nrow, size ? size : 1, 1, e)) || !(work = spx_alloc(wide ? wide : 1, 1, e))))
        st = SPX_EIO;
    for (size_t k = 0; st == SPX_OK && k < ncol; k++) {
        hid_t type = H5Tget_member_type(t->type, (unsigned)k), base = H5Tcopy(type);
        while (H5Tget_class(base) == H5T_ARRAY) {
            hid_t super = H5Tget_super(base);
            H5Tclose(base);
            base = super;
        }
        size_t from = H5Tget_member_offset(t->type, (unsigned)k), have = H5Tget_size(type);
        size_t want = c[k].repeat * H5Tget_size(c[k].file);
        for (size_t r = 0; st == SPX_OK && r < t->nrow; r++) {
            unsigned char *to = rows + r * size + at;
            memcpy(work, t->rows + r * t->rowsize + from, have);
            if (H5Tconvert(base, c[k].file, c[k].repeat, work, NULL, H5P_DEFAULT) < 0)
                st = spx_fail(e, SPX_EINPUT, "table %s: column %zu cannot be converted", extname, k + 1);
            memcpy(to, work, want);
            if (c[k].flip)
                spx_fits_flip(to, c[k].repeat, H5Tget_size(c[k].file));
            for (size_t i = 0; c[k].truth && i < want; i++)
                to[i] = to[i] ? 'T' : 'F';
        }
        at += want;
        H5Tclose(base);
        H5Tclose(type);
    }
    size_t dims[2] = {t->nrow, size};
    if (st == SPX_OK && o->at == 0)
        st = spx_fail(e, SPX_EBUG, "a table cannot be the first HDU");
    if (st == SPX_OK)
        st = start_header(o, &h, "BINTABLE", 8, 2, dims, e);
    if (st == SPX_OK)
        st = spx_cards_set_int(&h, "TFIELDS", (long)ncol, NULL, e);
    if (st == SPX_OK)
        st = spx_cards_set_string(&h, "EXTNAME", extname, NULL, e);
    for (size_t i = 0; st == SPX_OK && i < columns.n; i++) {
        char card[81];
        snprintf(card, sizeof card, "%.80s", columns.cards + i * 80);
        st = spx_cards_append(&h, card, e);
    }
    if (st == SPX_OK)
        st = add_more(&h, more, e);
    if (st == SPX_OK)
        st = put_hdu(o, &h, rows, t->nrow * size, e);
    for (size_t k = 0; c && k < made; k++)
        if (c[k].file >= 0)
            H5Tclose(c[k].file);
    spx_free(c);
    spx_free(rows);
    spx_free(work);
    spx_cards_free(&h);
    spx_cards_free(&columns);
    return st;
}
