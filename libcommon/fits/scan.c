/* Finds the HDU structure of a FITS file in memory, and checks every size before it is used (fits/scan.h). */
#include "fits/scan.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

#include "base/mem.h"

enum {
    CARD = 80,
    MAX_CARDS = 100000 /* a header of 8 MB; real ones have hundreds of cards */
};

/* ---- headers ---- */

/* 1 when there is a card with this keyword and a value field, readable or not. */
static int has_value(const spx_cards *h, const char *key)
{
    char start[11];
    snprintf(start, sizeof start, "%-8.8s= ", key);
    for (size_t i = 0; i < h->n; i++)
        if (memcmp(h->cards + i * CARD, start, 10) == 0)
            return 1;
    return 0;
}

spx_status spx_fits_header_int(const spx_cards *h, const char *key, long min, long max, long absent,
                               const spx_fits_where *where, long *out, spx_err *e)
{
    if (spx_cards_int(h, key, out)) {
        if (*out >= min && *out <= max)
            return SPX_OK;
        return spx_fail_at(e, SPX_EINPUT, where->file, where->place, NULL,
                           "%s = %ld is impossible: the file is damaged", key, *out);
    }
    if (has_value(h, key) || absent < min)
        return spx_fail_at(e, SPX_EINPUT, where->file, where->place, NULL,
                           "keyword %s is missing or no integer that fits: the file is damaged", key);
    *out = absent;
    return SPX_OK;
}

static spx_status impossible_size(const spx_fits_where *where, spx_err *e)
{
    return spx_fail_at(e, SPX_EINPUT, where->file, where->place, NULL,
                       "NAXISn make more data than any file holds: the file is damaged");
}

static void clean_text(char *s)
{
    for (; *s; s++)
        if (*s < 32 || *s > 126)
            *s = '_';
}

/* 1 when BZERO or TZERO makes a signed integer type of `bits` unsigned, or bytes signed (4.4.2.5, 7.3.2). */
static int is_flip(int bits, double scale, double zero)
{
    if (scale != 1.0)
        return 0;
    return (bits == 8 && zero == -128.0) || (bits == 16 && zero == 32768.0) || (bits == 32 && zero == 2147483648.0) ||
           (bits == 64 && zero == 9223372036854775808.0);
}

/* bitpix, dims, nelem, flip, scale, zero from BITPIX, NAXIS, NAXISn, BSCALE, BZERO; with prefix "Z" from ZBITPIX ... */
static spx_status image_shape(spx_fits_hdu *h, const char *prefix, const spx_fits_where *where, spx_err *e)
{
    char key[32];
    long bitpix = 0, naxis = 0, n = 0;
    spx_status st;
    snprintf(key, sizeof key, "%sBITPIX", prefix);
    if ((st = spx_fits_header_int(&h->header, key, -64, 64, -99, where, &bitpix, e)) != SPX_OK)
        return st;
    if (bitpix != 8 && bitpix != 16 && bitpix != 32 && bitpix != 64 && bitpix != -32 && bitpix != -64)
        return spx_fail_at(e, SPX_EINPUT, where->file, where->place, NULL,
                           "%s = %ld is impossible: the file is damaged", key, bitpix);
    snprintf(key, sizeof key, "%sNAXIS", prefix);
    if ((st = spx_fits_header_int(&h->header, key, 0, 999, -1, where, &naxis, e)) != SPX_OK)
        return st;
    h->bitpix = (int)bitpix;
    h->nelem = naxis > 0;
    size_t dims[SPX_FITS_MAXDIM];
    for (long i = 1; i <= naxis; i++) {
        snprintf(key, sizeof key, "%sNAXIS%ld", prefix, i);
        if ((st = spx_fits_header_int(&h->header, key, 0, __LONG_MAX__, -1, where, &n, e)) != SPX_OK)
            return st;
        if (n > 0 && h->nelem > (size_t)(__LONG_MAX__ / 16) / (size_t)n)
            return impossible_size(where, e);
        h->nelem *= (size_t)n;
        if (i <= SPX_FITS_MAXDIM)
            dims[i - 1] = (size_t)n;
    }
    h->ndim = (int)naxis;
    if (naxis <= SPX_FITS_MAXDIM)
        for (int i = 0; i < h->ndim; i++)
            h->dims[i] = dims[h->ndim - 1 - i]; /* NAXIS1 varies fastest */
    else {
        h->ndim = 1;
        h->dims[0] = h->nelem;
    }
    h->scale = 1.0;
    h->zero = 0.0;
    spx_cards_double(&h->header, "BSCALE", &h->scale);
    spx_cards_double(&h->header, "BZERO", &h->zero);
    h->flip = is_flip(h->bitpix, h->scale, h->zero);
    if (h->flip)
        h->zero = 0.0;
    return SPX_OK;
}

/* ---- table columns ---- */

size_t spx_fits_element_size(char code)
{
    switch (code) {
    case 'L':
    case 'X':
    case 'B':
    case 'A':
        return 1;
    case 'I':
        return 2;
    case 'J':
    case 'E':
        return 4;
    case 'K':
    case 'D':
    case 'C':
    case 'P':
        return 8;
    case 'M':
    case 'Q':
        return 16;
    default:
        return 0;
    }
}

/* Parses TDIM "(2, 500)" into dims, slowest first; 0: another form, or too many dimensions. */
static int parse_tdim(const char *s, size_t *dims)
{
    size_t d[SPX_FITS_MAXDIM];
    int n = 0;
    while (*s == ' ')
        s++;
    if (*s++ != '(')
        return 0;
    for (;;) {
        while (*s == ' ')
            s++;
        if (!isdigit((unsigned char)*s) || n == SPX_FITS_MAXDIM)
            return 0;
        char *end;
        unsigned long long v = strtoull(s, &end, 10);
        if (v == 0 || v > 0x7fffffff || end - s > 10)
            return 0;
        d[n++] = (size_t)v;
        s = end;
        while (*s == ' ')
            s++;
        if (*s == ')')
            break;
        if (*s++ != ',')
            return 0;
    }
    for (int i = 0; i < n; i++)
        dims[i] = d[n - 1 - i];
    return n;
}

static spx_status parse_column(const spx_cards *h, size_t k, const spx_fits_where *where, spx_fits_column *c,
                               size_t *repeat, spx_err *e)
{
    char key[32], form[72], dim[72];
    snprintf(key, sizeof key, "TFORM%zu", k + 1);
    if (!spx_cards_string(h, key, form, sizeof form))
        return spx_fail_at(e, SPX_EINPUT, where->file, where->place, NULL,
                           "keyword %s is missing, TFIELDS asks for it: the file is damaged", key);
    const char *p = form;
    while (*p == ' ')
        p++;
    size_t r = 1;
    if (isdigit((unsigned char)*p)) {
        char *end;
        size_t digits = strspn(p, "0123456789");
        r = digits < 15 ? (size_t)strtoull(p, &end, 10) : SIZE_MAX;
        p += digits;
    }
    c->code = *p ? (char)toupper((unsigned char)*p++) : ' ';
    size_t size = spx_fits_element_size(c->code), bytes = 0;
    if (size == 0)
        return spx_fail_at(e, SPX_EINPUT, where->file, where->place, NULL,
                           "%s = '%s' is no format of a column: the file is damaged", key, form);
    if (c->code == 'P' || c->code == 'Q') {
        c->element = *p ? (char)toupper((unsigned char)*p) : ' ';
        if (r > 1 || spx_fits_element_size(c->element) == 0 || c->element == 'P' || c->element == 'Q')
            return spx_fail_at(e, SPX_EINPUT, where->file, where->place, NULL,
                               "%s = '%s' is no format of a column: the file is damaged", key, form);
    }
    bytes = c->code == 'X' ? r / 8 + (r % 8 != 0) : r;
    if (r > (size_t)__LONG_MAX__ / 16)
        return spx_fail_at(e, SPX_EINPUT, where->file, where->place, NULL,
                           "%s = '%s' is wider than the row: the file is damaged", key, form);
    c->width = bytes * size;
    c->size = size;
    *repeat = r;
    size_t elements = bytes;
    c->ndim = 0;
    snprintf(key, sizeof key, "TDIM%zu", k + 1);
    int ndim = spx_cards_string(h, key, dim, sizeof dim) ? parse_tdim(dim, c->dims) : 0;
    size_t product = ndim > 0;
    for (int i = 0; i < ndim; i++)
        product = product <= r ? product * c->dims[i] : product; /* no overflow: below r * 2^31 */
    if (c->code == 'A') {
        c->size = c->width;
        if (ndim > 0 && product == r) { /* the fastest dimension is the length of a string */
            c->size = c->dims[ndim - 1];
            c->ndim = ndim - 1;
        } else if (isdigit((unsigned char)*p)) { /* rAw: strings of w characters */
            size_t w = strspn(p, "0123456789") < 10 ? (size_t)strtoul(p, NULL, 10) : 0;
            if (w > 0 && w < r && r % w == 0) {
                c->size = w;
                c->ndim = 1;
                c->dims[0] = r / w;
            }
        }
    } else if (ndim > 0 && product == r && c->code != 'X') {
        c->ndim = ndim == 1 && r == 1 ? 0 : ndim;
    } else if (elements != 1) {
        c->ndim = 1;
        c->dims[0] = elements;
    }
    snprintf(key, sizeof key, "TUNIT%zu", k + 1);
    spx_cards_string(h, key, c->unit, sizeof c->unit);
    clean_text(c->unit);
    if (strcmp(c->unit, "deg") == 0)
        strcpy(c->unit, "degree"); /* spelling of products */
    c->scale = 1.0;
    snprintf(key, sizeof key, "TSCAL%zu", k + 1);
    spx_cards_double(h, key, &c->scale);
    snprintf(key, sizeof key, "TZERO%zu", k + 1);
    spx_cards_double(h, key, &c->zero);
    c->flip = strchr("BIJK", c->code) != NULL && is_flip((int)size * 8, c->scale, c->zero);
    if (c->flip)
        c->zero = 0.0;
    return SPX_OK;
}

/* Gives column k a name that no earlier column has. */
static void name_column(const spx_cards *h, spx_fits_column *col, size_t k)
{
    char key[32], base[60] = "";
    snprintf(key, sizeof key, "TTYPE%zu", k + 1);
    spx_cards_string(h, key, base, sizeof base);
    clean_text(base);
    if (!base[strspn(base, " ")])
        snprintf(base, sizeof base, "COL%zu", k + 1);
    snprintf(col[k].name, sizeof col[k].name, "%s", base);
    for (size_t n = 2, i = 0; i < k; i++)
        if (strcasecmp(col[i].name, col[k].name) == 0) {
            snprintf(col[k].name, sizeof col[k].name, "%s_%zu", base, n++);
            i = (size_t)-1; /* compare with all earlier columns again */
        }
}

static spx_status table_columns(spx_fits_hdu *h, const spx_fits_where *where, spx_err *e)
{
    long tfields = 0;
    spx_status st = spx_fits_header_int(&h->header, "TFIELDS", 0, 999, -1, where, &tfields, e);
    if (st != SPX_OK)
        return st;
    h->col = spx_alloc((size_t)tfields, sizeof *h->col, e);
    if (h->col == NULL)
        return SPX_EIO;
    h->ncol = (size_t)tfields;
    size_t at = 0;
    for (size_t k = 0; k < h->ncol; k++) {
        size_t repeat;
        if ((st = parse_column(&h->header, k, where, &h->col[k], &repeat, e)) != SPX_OK)
            return st;
        name_column(&h->header, h->col, k);
        h->col[k].offset = at;
        if (h->col[k].width > h->rowsize - at)
            return spx_fail_at(e, SPX_EINPUT, where->file, where->place, NULL,
                               "columns are wider than the row (NAXIS1 = %zu): the file is damaged", h->rowsize);
        at += h->col[k].width;
    }
    if (at != h->rowsize)
        return spx_fail_at(e, SPX_EINPUT, where->file, where->place, NULL,
                           "columns fill %zu bytes of a row of NAXIS1 = %zu: the file is damaged", at, h->rowsize);
    return SPX_OK;
}

spx_status spx_fits_describe(spx_fits_hdu *h, int first, const spx_fits_where *where, spx_err *e)
{
    char ext[72] = "";
    long pcount = 0, gcount = 1, theap = 0;
    int groups = 0, zimage = 0;
    spx_status st;
    spx_cards_string(&h->header, "EXTNAME", h->extname, sizeof h->extname);
    clean_text(h->extname);
    if (!first)
        spx_cards_string(&h->header, "XTENSION", ext, sizeof ext);
    if ((st = image_shape(h, "", where, e)) != SPX_OK ||
        (st = spx_fits_header_int(&h->header, "PCOUNT", 0, __LONG_MAX__ / 16, 0, where, &pcount, e)) != SPX_OK ||
        (st = spx_fits_header_int(&h->header, "GCOUNT", 0, __LONG_MAX__ / 16, 1, where, &gcount, e)) != SPX_OK)
        return st;
    spx_cards_bool(&h->header, "GROUPS", &groups);
    size_t elements = h->nelem, group = (size_t)pcount, total = 0;
    if (first && groups && h->ndim > 0 &&
        h->dims[h->ndim - 1] == 0) { /* random groups (6): NAXIS1 = 0 is no dimension */
        elements = 1;
        for (int i = 0; i < h->ndim - 1; i++)
            elements *= h->dims[i] && elements > (size_t)(__LONG_MAX__ / 16) / h->dims[i] ? 0 : h->dims[i];
        h->kind = SPX_FITS_OTHER;
    } else if (first) {
        group = 0; /* PCOUNT and GCOUNT belong to extensions */
        gcount = 1;
    }
    group += elements;
    if (h->ndim == 0)
        group = 0;
    if (gcount > 0 && group > (size_t)(__LONG_MAX__ / 16) / (size_t)gcount)
        return impossible_size(where, e);
    total = group * (size_t)gcount;
    h->nbytes = total * (size_t)(abs(h->bitpix) / 8);
    if (first && h->kind == SPX_FITS_OTHER)
        return SPX_OK;
    if (first || strcmp(ext, "IMAGE") == 0) {
        h->kind = total == h->nelem ? SPX_FITS_IMAGE : SPX_FITS_OTHER;
        return SPX_OK;
    }
    h->kind = SPX_FITS_OTHER;
    if (strcmp(ext, "TABLE") == 0 || strcmp(ext, "BINTABLE") == 0) {
        if (h->ndim != 2 || h->bitpix != 8 || gcount != 1)
            return spx_fail_at(e, SPX_EINPUT, where->file, where->place, NULL,
                               "a table has NAXIS = 2, BITPIX = 8 and GCOUNT = 1: the file is damaged");
        h->nrow = h->dims[0];
        h->rowsize = h->dims[1];
        h->pcount = (size_t)pcount;
        if (ext[0] == 'T') {
            h->kind = pcount == 0 ? SPX_FITS_ASCII : SPX_FITS_OTHER;
            return SPX_OK;
        }
        h->kind = SPX_FITS_BINTABLE;
        long rows = (long)(h->nrow * h->rowsize);
        if ((st = table_columns(h, where, e)) != SPX_OK ||
            (st = spx_fits_header_int(&h->header, "THEAP", 0, __LONG_MAX__, rows, where, &theap, e)) != SPX_OK)
            return st;
        if (theap < rows || theap - rows > pcount)
            return spx_fail_at(e, SPX_EINPUT, where->file, where->place, NULL,
                               "THEAP = %ld is outside the table's data: the file is damaged", theap);
        h->theap = (size_t)(theap - rows);
        if (spx_cards_bool(&h->header, "ZIMAGE", &zimage) && zimage) {
            h->kind = SPX_FITS_TILED;
            h->ndim = 0;
            return image_shape(h, "Z", where, e);
        }
    }
    return SPX_OK;
}

void spx_fits_hdu_free(spx_fits_hdu *h)
{
    spx_free(h->col);
    spx_free(h->decoded);
    h->col = NULL;
    h->decoded = NULL;
}

uint64_t spx_fits_integer(const unsigned char *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v = v << 8 | p[i];
    return v;
}

/* Descriptors of variable-length columns must point into the heap. */
static spx_status check_descriptors(const spx_fits *f, const spx_fits_hdu *h, const spx_fits_where *where, spx_err *e)
{
    uint64_t heap = h->pcount - h->theap;
    for (size_t k = 0; k < h->ncol; k++) {
        const spx_fits_column *c = &h->col[k];
        if (c->element == 0 || c->width == 0)
            continue;
        size_t size = spx_fits_element_size(c->element);
        for (size_t r = 0; r < h->nrow; r++) {
            const unsigned char *d = f->bytes + h->data_at + r * h->rowsize + c->offset;
            uint64_t n = spx_fits_integer(d, c->width / 2), at = spx_fits_integer(d + c->width / 2, c->width / 2);
            if (c->element == 'X')
                n = n / 8 + (n % 8 != 0);
            if (n > 0 && (at > heap || n > (heap - at) / size))
                return spx_fail_at(e, SPX_EINPUT, where->file, where->place, NULL,
                                   "column %s, row %zu: points outside the heap: the file is damaged", c->name, r + 1);
        }
    }
    return SPX_OK;
}

/* All that was looked for is there, but who knows what should have followed. */
static spx_status incomplete_block(const spx_fits_where *where, spx_err *e)
{
    return spx_fail_at(e, SPX_EINPUT, where->file, where->place, NULL,
                       "the file ends within a block of %d bytes: it is truncated; copy it again, or, if it was "
                       "written without padding, add that: truncate -s %%2880 FILE",
                       SPX_FITS_BLOCK);
}

static spx_status scan_hdu(spx_fits *f, size_t at, spx_fits_hdu *h, spx_err *e)
{
    size_t n = 0, left = (f->size - at) / CARD;
    const char *cards = (const char *)f->bytes + at;
    int first = f->nhdu == 0;
    char place[128];
    const spx_fits_where where = {f->name, place};
    snprintf(place, sizeof place, "HDU %zu", f->nhdu);
    while (n < left && n < MAX_CARDS && memcmp(cards + n * CARD, "END     ", 8) != 0)
        n++;
    if (n == MAX_CARDS)
        return spx_fail_at(e, SPX_EINPUT, f->name, place, NULL,
                           "no END in the first %d cards of the header: this is no FITS header", MAX_CARDS);
    if (n == left)
        return spx_fail_at(e, SPX_EINPUT, f->name, place, NULL,
                           "the file ends within the header: it is truncated; copy it again");
    h->header.n = n;
    h->header.cards = (char *)(uintptr_t)cards;
    h->header_at = at;
    spx_status st = spx_fits_describe(h, first, &where, e);
    if (st != SPX_OK)
        return st;
    size_t head = (n + 1) * CARD;
    head += (SPX_FITS_BLOCK - head % SPX_FITS_BLOCK) % SPX_FITS_BLOCK;
    if (h->extname[0])
        snprintf(place, sizeof place, "HDU %zu (%s)", f->nhdu, h->extname);
    if (head > f->size - at)
        return incomplete_block(&where, e);
    h->data_at = at + head;
    if (h->nbytes > f->size - h->data_at)
        return spx_fail_at(e, SPX_EINPUT, f->name, place, NULL,
                           "the file ends %zu bytes into the %zu bytes of data: it is truncated; copy it again",
                           f->size - h->data_at, h->nbytes);
    size_t pad = (SPX_FITS_BLOCK - h->nbytes % SPX_FITS_BLOCK) % SPX_FITS_BLOCK;
    h->end = h->data_at + h->nbytes;
    if (pad > f->size - h->end)
        return incomplete_block(&where, e);
    h->end += pad;
    return h->kind == SPX_FITS_BINTABLE || h->kind == SPX_FITS_TILED ? check_descriptors(f, h, &where, e) : SPX_OK;
}

spx_status spx_fits_parse(spx_fits *f, const char *name, const void *bytes, size_t size, spx_err *e)
{
    memset(f, 0, sizeof *f);
    snprintf(f->name, sizeof f->name, "%s", name);
    f->bytes = bytes;
    f->size = size;
    if (size < 10 || memcmp(f->bytes, "SIMPLE  = ", 10) != 0)
        return spx_fail(e, SPX_EINPUT, "%s: is no FITS file (it does not begin with SIMPLE)", name);
    size_t at = 0, capacity = 0;
    static const char next[] = "XTENSION= ";
    /* a truncated "XTENSION" or "SIMPLE" is a truncated HDU, too */
    while (f->nhdu == 0 || (size > at && memcmp(f->bytes + at, next, size - at < 10 ? size - at : 10) == 0)) {
        spx_fits_hdu *h = spx_grow(f->hdu, f->nhdu, 1, &capacity, sizeof *h, e);
        if (h == NULL) {
            spx_fits_close(f);
            return SPX_EIO;
        }
        f->hdu = h;
        spx_status st = scan_hdu(f, at, &f->hdu[f->nhdu], e);
        at = f->hdu[f->nhdu].end;
        f->nhdu++;
        if (st != SPX_OK) {
            spx_fits_close(f);
            return st;
        }
    }
    f->trailing = at;
    return SPX_OK;
}

void spx_fits_close(spx_fits *f)
{
    for (size_t i = 0; i < f->nhdu; i++)
        spx_fits_hdu_free(&f->hdu[i]);
    spx_free(f->hdu);
    spx_free(f->owned);
    if (f->mapped != NULL)
        munmap(f->mapped, f->nmapped);
    memset(f, 0, sizeof *f);
}

/* ---- finding ---- */

const char *spx_fits_hduname(const spx_fits *f, size_t hdu)
{
    static _Thread_local char s[112];
    if (hdu < f->nhdu && f->hdu[hdu].extname[0])
        snprintf(s, sizeof s, "HDU %zu (%s)", hdu, f->hdu[hdu].extname);
    else
        snprintf(s, sizeof s, "HDU %zu", hdu);
    return s;
}

int spx_fits_find(const spx_fits *f, const char *extname)
{
    for (size_t i = 0; i < f->nhdu; i++)
        if (strcasecmp(f->hdu[i].extname, extname) == 0)
            return (int)i;
    return -1;
}

void spx_fits_leave_out(spx_fits *f, const char *names)
{
    size_t n = f->nhdu > 0;
    for (size_t i = 1; i < f->nhdu; i++) {
        const char *name = f->hdu[i].extname;
        const size_t length = strlen(name);
        int listed = 0;
        for (const char *p = names; *p != '\0' && !listed; p += p[0] == ',') {
            const size_t word = strcspn(p, ",");
            listed = length > 0 && word == length && strncasecmp(p, name, length) == 0;
            p += word;
        }
        if (listed)
            spx_fits_hdu_free(&f->hdu[i]);
        else
            f->hdu[n++] = f->hdu[i];
    }
    f->nhdu = n;
}

const spx_fits_column *spx_fits_find_column(const spx_fits_hdu *h, const char *name)
{
    for (size_t i = 0; i < h->ncol; i++)
        if (strcasecmp(h->col[i].name, name) == 0)
            return &h->col[i];
    return NULL;
}

int spx_fits_is_image(const spx_fits_hdu *h, int ndim)
{
    return (h->kind == SPX_FITS_IMAGE || h->kind == SPX_FITS_TILED) && h->ndim == ndim;
}
