#include "blocks/fits.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <fitsio.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/mem.h"
#include "h5/table.h"

enum {
    CARD = 80,
    MAX_CARDS = 100000,     /* a header of 8 MB; real ones have hundreds of cards */
    MAX_ROWTYPE = 60 * 1024 /* an HDF5 object header holds a datatype below 64 KiB */
};

/* ---- getting the bytes ---- */

/* Most that one buffer may take: --max-mem, or what the machine has, so that a small file which claims to be huge is
 * refused instead of driving the machine out of memory. */
static size_t memory_cap(void)
{
    size_t limit = spx_mem_limit_get();
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (limit == 0 && pages > 0 && page > 0)
        limit = (size_t)pages * (size_t)page;
    return limit == 0 ? SIZE_MAX / 2 : limit;
}

static spx_status too_large(const char *name, spx_err *e)
{
    return spx_fail(e, SPX_EIO,
                    "%s: needs more than %zu MiB of memory: set --max-mem to more, or use a machine with more", name,
                    memory_cap() >> 20);
}

/* Replace *buf[have] by a buffer of `room` bytes with the same content. */
static spx_status grow(unsigned char **buf, size_t have, size_t room, const char *name, spx_err *e)
{
    if (room > memory_cap())
        return too_large(name, e);
    unsigned char *new = spx_alloc(room, 1, e);
    if (!new)
        return SPX_EIO;
    if (have)
        memcpy(new, *buf, have);
    spx_free(*buf);
    *buf = new;
    return SPX_OK;
}

static spx_status read_pipe(int fd, const char *name, unsigned char **out, size_t *size, spx_err *e)
{
    unsigned char *buf = NULL;
    size_t n = 0, room = 0;
    for (;;) {
        if (n == room) {
            room = room ? 2 * room : (size_t)1 << 20;
            if (room > memory_cap() && n < memory_cap())
                room = memory_cap();
            if (room == n || grow(&buf, n, room, name, e) != SPX_OK) {
                spx_free(buf);
                return e->code ? e->code : too_large(name, e);
            }
        }
        ssize_t got = read(fd, buf + n, room - n < (size_t)1 << 26 ? room - n : (size_t)1 << 26);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            spx_free(buf);
            return spx_fail(e, SPX_EIO, "%s: cannot be read: %s", name, strerror(errno));
        }
        if (got == 0)
            break;
        n += (size_t)got;
    }
    *out = buf;
    *size = n;
    return SPX_OK;
}

/* All members of a gzip file, one after another. */
static spx_status inflate_all(const unsigned char *in, size_t nin, const char *name, unsigned char **out, size_t *size,
                              spx_err *e)
{
    /* The last four bytes are the length modulo 2^32: a hint that saves growing when it is plausible. */
    const unsigned char *t = in + nin - 4;
    size_t hint = nin < 18 ? 0 : (size_t)t[0] | (size_t)t[1] << 8 | (size_t)t[2] << 16 | (size_t)t[3] << 24;
    size_t room = hint > nin / 2 && hint / 1032 <= nin && hint < memory_cap() ? hint + 64 : 4 * nin + 4096, n = 0,
           at = 0;
    unsigned char *buf = NULL;
    z_stream z = {0};
    int rc = Z_OK;
    spx_status st = grow(&buf, 0, room, name, e);
    if (st == SPX_OK && inflateInit2(&z, 15 + 16) != Z_OK)
        st = spx_fail(e, SPX_EIO, "%s: out of memory", name);
    if (st != SPX_OK) {
        spx_free(buf);
        return st;
    }
    while (st == SPX_OK) {
        size_t give = nin - at < (size_t)1 << 30 ? nin - at : (size_t)1 << 30;
        size_t take = room - n < (size_t)1 << 30 ? room - n : (size_t)1 << 30;
        z.next_in = (Bytef *)(uintptr_t)(in + at); /* zlib does not write there */
        z.avail_in = (uInt)give;
        z.next_out = buf + n;
        z.avail_out = (uInt)take;
        rc = inflate(&z, Z_NO_FLUSH);
        at += give - z.avail_in;
        n += take - z.avail_out;
        if (rc == Z_STREAM_END) {
            /* zero bytes behind the last member are padding of tapes; anything else but a member is damage */
            size_t pad = at;
            while (pad < nin && in[pad] == 0)
                pad++;
            if (pad == nin)
                break;
            if (inflateReset(&z) != Z_OK)
                st = spx_fail(e, SPX_EIO, "%s: out of memory", name);
        } else if (rc == Z_OK || rc == Z_BUF_ERROR) {
            if (z.avail_out == 0) {
                size_t cap = memory_cap(), more = room > cap / 2 ? cap : 2 * room;
                st = more == room ? too_large(name, e) : grow(&buf, n, more, name, e);
                room = more;
            } else if (at == nin) {
                st = spx_fail(e, SPX_EINPUT, "%s: the gzip data end early: the file is truncated; copy it again", name);
            }
        } else {
            st = spx_fail(e, SPX_EINPUT, "%s: the gzip data are damaged (%s): copy the file again", name,
                          z.msg ? z.msg : "unknown");
        }
    }
    inflateEnd(&z);
    if (st != SPX_OK) {
        spx_free(buf);
        return st;
    }
    *out = buf;
    *size = n;
    return SPX_OK;
}

/* Formats that a user may take for FITS, by their first bytes. */
static spx_status refuse_other(const unsigned char *b, size_t n, const char *name, spx_err *e)
{
    static const struct {
        const char *magic;
        size_t n;
        const char *what, *remedy;
    } other[] = {
        {"\x89HDF\r\n", 6, "an HDF5 file", "it needs no conversion"},
        {"BZh", 3, "packed with bzip2", "unpack it: bunzip2 -c FILE | fits2h5 -"},
        {"\xfd"
         "7zXZ",
         5, "packed with xz", "unpack it: xz -dc FILE | fits2h5 -"},
        {"\x1f\x9d", 2, "packed with compress", "unpack it: gzip -dc FILE | fits2h5 -"},
        {"\x28\xb5\x2f\xfd", 4, "packed with zstd", "unpack it: zstd -dc FILE | fits2h5 -"},
        {"PK\x03\x04", 4, "a zip archive", "unpack it: unzip -p FILE | fits2h5 -"},
    };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (n >= other[i].n && memcmp(b, other[i].magic, other[i].n) == 0)
            return spx_fail(e, SPX_EINPUT, "%s: is %s, not FITS: %s", name, other[i].what, other[i].remedy);
    return SPX_OK;
}

spx_status spx_fits_open(spx_fits *f, const char *path, spx_err *e)
{
    int is_stdin = strcmp(path, "-") == 0;
    struct stat sb;
    char name[sizeof f->name];
    memset(f, 0, sizeof *f);
    snprintf(name, sizeof name, "%s", is_stdin ? "standard input" : path);
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &sb) != 0) {
        spx_status st = errno == ENOENT ? spx_fail(e, SPX_EINPUT, "%s: no such file: check the name", name)
                                        : spx_fail(e, SPX_EIO, "%s: cannot be opened: %s", name, strerror(errno));
        if (fd > STDERR_FILENO)
            close(fd);
        return st;
    }
    spx_status st = SPX_OK;
    const unsigned char *bytes = NULL;
    size_t size = 0;
    unsigned char *owned = NULL;
    if (S_ISDIR(sb.st_mode)) {
        st = spx_fail(e, SPX_EINPUT, "%s: is a directory: a FITS file is wanted here", name);
    } else if (S_ISREG(sb.st_mode) && !(is_stdin && lseek(fd, 0, SEEK_CUR) != 0)) {
        size = (size_t)sb.st_size;
        if (size > 0) {
            f->mapped = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
            if (f->mapped == MAP_FAILED) {
                f->mapped = NULL;
                st = spx_fail(e, SPX_EIO, "%s: cannot be read: %s", name, strerror(errno));
            }
            f->nmapped = size;
            bytes = f->mapped;
        }
    } else {
        st = read_pipe(fd, name, &owned, &size, e);
        bytes = owned;
    }
    if (!is_stdin)
        close(fd);
    if (st == SPX_OK && size == 0)
        st = spx_fail(e, SPX_EINPUT, "%s: is empty: %s", name,
                      is_stdin ? "the program before this one failed" : "copy it again");
    if (st == SPX_OK && size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b) {
        unsigned char *plain = NULL;
        st = inflate_all(bytes, size, name, &plain, &size, e);
        spx_free(owned);
        bytes = owned = plain;
        if (f->mapped)
            munmap(f->mapped, f->nmapped);
        f->mapped = NULL;
    }
    void *mapped = f->mapped;
    size_t nmapped = f->nmapped;
    if (st == SPX_OK)
        st = refuse_other(bytes, size, name, e);
    if (st == SPX_OK)
        st = spx_fits_parse(f, name, bytes, size, e);
    f->owned = owned;
    f->mapped = mapped;
    f->nmapped = nmapped;
    if (st != SPX_OK)
        spx_fits_close(f);
    return st;
}

/* ---- headers ---- */

/* An integer keyword within [min, max]; absent: `absent` when that is not below min, an error otherwise. */
static spx_status header_int(const spx_cards *h, const char *key, long min, long max, long absent, const char *where,
                             long *out, spx_err *e)
{
    if (spx_cards_int(h, key, out)) {
        if (*out >= min && *out <= max)
            return SPX_OK;
        return spx_fail(e, SPX_EINPUT, "%s: %s = %ld is impossible: the file is damaged", where, key, *out);
    }
    char text[8];
    double d;
    if (spx_cards_string(h, key, text, sizeof text) || spx_cards_double(h, key, &d) || absent < min)
        return spx_fail(e, SPX_EINPUT, "%s: keyword %s is missing or no integer that fits: the file is damaged", where,
                        key);
    *out = absent;
    return SPX_OK;
}

static spx_status impossible_size(const char *where, spx_err *e)
{
    return spx_fail(e, SPX_EINPUT, "%s: NAXISn make more data than any file holds: the file is damaged", where);
}

static void clean_text(char *s)
{
    for (; *s; s++)
        if (*s < 32 || *s > 126)
            *s = '_';
}

/* Value of BZERO or TZERO that makes a signed integer type of `bits` unsigned, or bytes signed (4.4.2.5, 7.3.2). */
static int is_flip(int bits, double scale, double zero)
{
    if (scale != 1.0)
        return 0;
    return (bits == 8 && zero == -128.0) || (bits == 16 && zero == 32768.0) || (bits == 32 && zero == 2147483648.0) ||
           (bits == 64 && zero == 9223372036854775808.0);
}

/* bitpix, dims, nelem, flip, scale, zero from BITPIX, NAXIS, NAXISn, BSCALE, BZERO; with prefix "Z" from ZBITPIX ... */
static spx_status image_shape(spx_fits_hdu *h, const char *prefix, const char *where, spx_err *e)
{
    char key[32];
    long bitpix = 0, naxis = 0, n = 0;
    spx_status st;
    snprintf(key, sizeof key, "%sBITPIX", prefix);
    if ((st = header_int(&h->header, key, -64, 64, -99, where, &bitpix, e)) != SPX_OK)
        return st;
    if (bitpix != 8 && bitpix != 16 && bitpix != 32 && bitpix != 64 && bitpix != -32 && bitpix != -64)
        return spx_fail(e, SPX_EINPUT, "%s: %s = %ld is impossible: the file is damaged", where, key, bitpix);
    snprintf(key, sizeof key, "%sNAXIS", prefix);
    if ((st = header_int(&h->header, key, 0, 999, -1, where, &naxis, e)) != SPX_OK)
        return st;
    h->bitpix = (int)bitpix;
    h->nelem = naxis > 0;
    size_t dims[SPX_FITS_MAXDIM];
    for (long i = 1; i <= naxis; i++) {
        snprintf(key, sizeof key, "%sNAXIS%ld", prefix, i);
        if ((st = header_int(&h->header, key, 0, __LONG_MAX__, -1, where, &n, e)) != SPX_OK)
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

static size_t element_size(char code)
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

/* TDIM "(2, 500)" into dims, slowest first; 0 when it is no such text or has more dimensions than we keep. */
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

static spx_status parse_column(const spx_cards *h, size_t k, const char *where, spx_fits_column *c, size_t *repeat,
                               spx_err *e)
{
    char key[32], form[72], dim[72];
    snprintf(key, sizeof key, "TFORM%zu", k + 1);
    if (!spx_cards_string(h, key, form, sizeof form))
        return spx_fail(e, SPX_EINPUT, "%s: keyword %s is missing, TFIELDS asks for it: the file is damaged", where,
                        key);
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
    size_t size = element_size(c->code), bytes = 0;
    if (size == 0)
        return spx_fail(e, SPX_EINPUT, "%s: %s = '%s' is no format of a column: the file is damaged", where, key, form);
    if (c->code == 'P' || c->code == 'Q') {
        c->element = *p ? (char)toupper((unsigned char)*p) : ' ';
        if (r > 1 || element_size(c->element) == 0 || c->element == 'P' || c->element == 'Q')
            return spx_fail(e, SPX_EINPUT, "%s: %s = '%s' is no format of a column: the file is damaged", where, key,
                            form);
    }
    bytes = c->code == 'X' ? r / 8 + (r % 8 != 0) : r;
    if (r > (size_t)__LONG_MAX__ / 16)
        return spx_fail(e, SPX_EINPUT, "%s: %s = '%s' is wider than the row: the file is damaged", where, key, form);
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

/* A name for column k that no earlier column has. */
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
            i = (size_t)-1; /* look from the beginning again */
        }
}

static spx_status table_columns(spx_fits_hdu *h, const char *where, spx_err *e)
{
    long tfields = 0;
    spx_status st = header_int(&h->header, "TFIELDS", 0, 999, -1, where, &tfields, e);
    if (st != SPX_OK)
        return st;
    h->col = spx_alloc((size_t)tfields, sizeof *h->col, e);
    if (!h->col)
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
            return spx_fail(e, SPX_EINPUT, "%s: columns are wider than the row (NAXIS1 = %zu): the file is damaged",
                            where, h->rowsize);
        at += h->col[k].width;
    }
    if (at != h->rowsize)
        return spx_fail(e, SPX_EINPUT, "%s: columns fill %zu bytes of a row of NAXIS1 = %zu: the file is damaged",
                        where, at, h->rowsize);
    return SPX_OK;
}

spx_status spx_fits_describe(spx_fits_hdu *h, int first, const char *where, spx_err *e)
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
        (st = header_int(&h->header, "PCOUNT", 0, __LONG_MAX__ / 16, 0, where, &pcount, e)) != SPX_OK ||
        (st = header_int(&h->header, "GCOUNT", 0, __LONG_MAX__ / 16, 1, where, &gcount, e)) != SPX_OK)
        return st;
    spx_cards_bool(&h->header, "GROUPS", &groups);
    size_t elements = h->nelem, group = (size_t)pcount, total = 0;
    if (first && groups && h->ndim > 0 &&
        h->dims[h->ndim - 1] == 0) { /* random groups (6): NAXIS1 = 0 does not count */
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
            return spx_fail(e, SPX_EINPUT, "%s: a table has NAXIS = 2, BITPIX = 8 and GCOUNT = 1: the file is damaged",
                            where);
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
            (st = header_int(&h->header, "THEAP", 0, __LONG_MAX__, rows, where, &theap, e)) != SPX_OK)
            return st;
        if (theap < rows || theap - rows > pcount)
            return spx_fail(e, SPX_EINPUT, "%s: THEAP = %ld is outside the table's data: the file is damaged", where,
                            theap);
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
static spx_status check_descriptors(const spx_fits *f, const spx_fits_hdu *h, const char *where, spx_err *e)
{
    uint64_t room = h->pcount - h->theap;
    for (size_t k = 0; k < h->ncol; k++) {
        const spx_fits_column *c = &h->col[k];
        if (c->element == 0 || c->width == 0)
            continue;
        size_t size = element_size(c->element);
        for (size_t r = 0; r < h->nrow; r++) {
            const unsigned char *d = f->bytes + h->data_at + r * h->rowsize + c->offset;
            uint64_t n = spx_fits_integer(d, c->width / 2), at = spx_fits_integer(d + c->width / 2, c->width / 2);
            if (c->element == 'X')
                n = n / 8 + (n % 8 != 0);
            if (n > 0 && (at > room || n > (room - at) / size))
                return spx_fail(e, SPX_EINPUT, "%s: column %s, row %zu: points outside the heap: the file is damaged",
                                where, c->name, r + 1);
        }
    }
    return SPX_OK;
}

/* All that was looked for is there, but who knows what should have followed. */
static spx_status incomplete_block(const char *where, spx_err *e)
{
    return spx_fail(
        e, SPX_EINPUT,
        "%s: the file ends within a block of %d bytes: it is truncated; copy it again, or, if it was written "
        "without padding, add that: truncate -s %%2880 FILE",
        where, SPX_FITS_BLOCK);
}

static spx_status scan_hdu(spx_fits *f, size_t at, spx_fits_hdu *h, spx_err *e)
{
    size_t n = 0, left = (f->size - at) / CARD;
    const char *cards = (const char *)f->bytes + at;
    int first = f->nhdu == 0;
    char where[sizeof f->name + 128];
    snprintf(where, sizeof where, "%s: HDU %zu", f->name, f->nhdu);
    while (n < left && n < MAX_CARDS && memcmp(cards + n * CARD, "END     ", 8) != 0)
        n++;
    if (n == MAX_CARDS)
        return spx_fail(e, SPX_EINPUT, "%s: no END in the first %d cards of the header: this is no FITS header", where,
                        MAX_CARDS);
    if (n == left)
        return spx_fail(e, SPX_EINPUT, "%s: the file ends within the header: it is truncated; copy it again", where);
    h->header.n = n;
    h->header.cards = (char *)(uintptr_t)cards;
    h->header_at = at;
    spx_status st = spx_fits_describe(h, first, where, e);
    if (st != SPX_OK)
        return st;
    size_t head = (n + 1) * CARD;
    head += (SPX_FITS_BLOCK - head % SPX_FITS_BLOCK) % SPX_FITS_BLOCK;
    if (h->extname[0])
        snprintf(where, sizeof where, "%s: HDU %zu (%s)", f->name, f->nhdu, h->extname);
    if (head > f->size - at)
        return incomplete_block(where, e);
    h->data_at = at + head;
    if (h->nbytes > f->size - h->data_at)
        return spx_fail(e, SPX_EINPUT,
                        "%s: the file ends %zu bytes into the %zu bytes of data: it is truncated; copy it again", where,
                        f->size - h->data_at, h->nbytes);
    size_t pad = (SPX_FITS_BLOCK - h->nbytes % SPX_FITS_BLOCK) % SPX_FITS_BLOCK;
    h->end = h->data_at + h->nbytes;
    if (pad > f->size - h->end)
        return incomplete_block(where, e);
    h->end += pad;
    return h->kind == SPX_FITS_BINTABLE || h->kind == SPX_FITS_TILED ? check_descriptors(f, h, where, e) : SPX_OK;
}

spx_status spx_fits_parse(spx_fits *f, const char *name, const void *bytes, size_t size, spx_err *e)
{
    memset(f, 0, sizeof *f);
    snprintf(f->name, sizeof f->name, "%s", name);
    f->bytes = bytes;
    f->size = size;
    if (size < 10 || memcmp(f->bytes, "SIMPLE  = ", 10) != 0)
        return spx_fail(e, SPX_EINPUT, "%s: is no FITS file (it does not begin with SIMPLE)", name);
    size_t at = 0, room = 0;
    static const char next[] = "XTENSION= ";
    /* the beginning of that word is an HDU too, which is truncated */
    while (f->nhdu == 0 || (size > at && memcmp(f->bytes + at, next, size - at < 10 ? size - at : 10) == 0)) {
        if (f->nhdu == room) {
            room = room ? 2 * room : 16;
            spx_fits_hdu *h = spx_alloc(room, sizeof *h, e);
            if (!h) {
                spx_fits_close(f);
                return SPX_EIO;
            }
            if (f->nhdu)
                memcpy(h, f->hdu, f->nhdu * sizeof *h);
            spx_free(f->hdu);
            f->hdu = h;
        }
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
    if (f->mapped)
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

/* ---- images ---- */

void spx_fits_flip(unsigned char *p, size_t n, size_t size)
{
    for (size_t i = 0; i < n; i++)
        p[i * size] ^= 0x80;
}

/* Reverse the bytes of n elements where this machine is little-endian. */
static void swap_bytes(void *data, size_t n, size_t size)
{
    unsigned char *p = data;
    const uint16_t probe = 1;
    if (*(const unsigned char *)&probe == 0 || size == 1)
        return;
    for (size_t i = 0; i < n; i++, p += size)
        for (size_t a = 0, b = size - 1; a < b; a++, b--) {
            unsigned char t = p[a];
            p[a] = p[b];
            p[b] = t;
        }
}

/* Tile-compressed image, decoded by CFITSIO from a copy of this HDU behind an empty primary HDU. */
static spx_status decode_tiles(spx_fits *f, size_t hdu, spx_err *e)
{
    spx_fits_hdu *h = &f->hdu[hdu];
    size_t size = (size_t)(abs(h->bitpix) / 8), used = h->end - h->header_at;
    size_t total = SPX_FITS_BLOCK + used + (SPX_FITS_BLOCK - used % SPX_FITS_BLOCK) % SPX_FITS_BLOCK;
    int type = h->bitpix == 8     ? TBYTE
               : h->bitpix == 16  ? TSHORT
               : h->bitpix == 32  ? TINT
               : h->bitpix == 64  ? TLONGLONG
               : h->bitpix == -32 ? TFLOAT
                                  : TDOUBLE;
    if (h->nelem > memory_cap() / size)
        return too_large(f->name, e);
    unsigned char *file = spx_alloc(total, 1, e);
    unsigned char *out = file ? spx_alloc(h->nelem, size, e) : NULL;
    if (!out) {
        spx_free(file);
        return SPX_EIO;
    }
    static const char primary[][CARD + 1] = {"SIMPLE  =                    T", "BITPIX  =                    8",
                                             "NAXIS   =                    0", "EXTEND  =                    T", "END"};
    memset(file, ' ', SPX_FITS_BLOCK);
    for (size_t i = 0; i < sizeof primary / sizeof *primary; i++)
        memcpy(file + i * CARD, primary[i], strlen(primary[i]));
    memcpy(file + SPX_FITS_BLOCK, f->bytes + h->header_at, used);

    fitsfile *fp = NULL;
    int status = 0, close_status = 0, any = 0;
    void *mem = file;
    float fnan = NAN;
    double dnan = NAN;
    void *null = type == TFLOAT ? (void *)&fnan : type == TDOUBLE ? (void *)&dnan : NULL;
    fits_open_memfile(&fp, "memory", READONLY, &mem, &total, 0, NULL, &status);
    fits_movabs_hdu(fp, 2, NULL, &status);
    if (status == 0 && !fits_is_compressed_image(fp, &status))
        status = DATA_DECOMPRESSION_ERR;
    fits_set_bscale(fp, 1.0, 0.0, &status); /* stored values, as in an image that was never compressed */
    if (h->nelem > 0)
        fits_read_img(fp, type, 1, (LONGLONG)h->nelem, null, out, &any, &status);
    if (fp)
        fits_close_file(fp, &close_status);
    spx_free(file);
    if (status != 0) {
        char text[FLEN_STATUS];
        fits_get_errstatus(status, text);
        fits_clear_errmsg();
        spx_free(out);
        return spx_fail(e, SPX_EINPUT, "%s: %s: the compressed image cannot be decoded (%s): the file is damaged",
                        f->name, spx_fits_hduname(f, hdu), text);
    }
    swap_bytes(out, h->nelem, size);
    h->decoded = out;
    return SPX_OK;
}

const unsigned char *spx_fits_raw(spx_fits *f, size_t hdu, spx_err *e)
{
    spx_fits_hdu *h = &f->hdu[hdu];
    if (h->kind == SPX_FITS_IMAGE)
        return f->bytes + h->data_at;
    if (h->kind != SPX_FITS_TILED) {
        spx_fail(e, SPX_EINPUT, "%s: %s: is no image", f->name, spx_fits_hduname(f, hdu));
        return NULL;
    }
    if (!h->decoded && decode_tiles(f, hdu, e) != SPX_OK)
        return NULL;
    return h->decoded;
}

/* One big-endian element as a double. `blank` is compared for integers when has_blank. */
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
    *out = p ? spx_alloc(h->nelem, sizeof **out, e) : NULL;
    if (!*out)
        return e->code;
    size_t size = (size_t)(abs(h->bitpix) / 8);
    long blank = 0;
    int has_blank = h->bitpix > 0 && (spx_cards_int(&h->header, "BLANK", &blank) ||
                                      (h->kind == SPX_FITS_TILED && spx_cards_int(&h->header, "ZBLANK", &blank)));
    for (size_t i = 0; i < h->nelem; i++, p += size) {
        if (has_blank && element(p, h->bitpix, 0) == (double)blank)
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
    if (h->bitpix == -32 && h->scale == 1.0 && h->zero == 0.0) { /* the common case: bit for bit */
        const unsigned char *p = spx_fits_raw(f, hdu, e);
        *out = p ? spx_alloc(h->nelem, sizeof **out, e) : NULL;
        if (!*out)
            return e->code;
        memcpy(*out, p, h->nelem * sizeof **out);
        swap_bytes(*out, h->nelem, sizeof **out);
        return SPX_OK;
    }
    if (spx_fits_f64(f, hdu, &d, e) != SPX_OK)
        return e->code;
    *out = spx_alloc(h->nelem, sizeof **out, e);
    for (size_t i = 0; *out && i < h->nelem; i++)
        (*out)[i] = (float)d[i];
    spx_free(d);
    return *out ? SPX_OK : SPX_EIO;
}

spx_status spx_fits_u32(spx_fits *f, size_t hdu, uint32_t **out, spx_err *e)
{
    const unsigned char *p = spx_fits_raw(f, hdu, e);
    const spx_fits_hdu *h = &f->hdu[hdu];
    *out = NULL;
    if (!p)
        return e->code;
    if (h->bitpix < 0 || h->scale != 1.0 || h->zero != 0.0)
        return spx_fail(e, SPX_EINPUT, "%s: %s: a mask holds integers without scale", f->name,
                        spx_fits_hduname(f, hdu));
    *out = spx_alloc(h->nelem, sizeof **out, e);
    if (!*out)
        return SPX_EIO;
    size_t size = (size_t)(h->bitpix / 8);
    for (size_t i = 0; i < h->nelem; i++, p += size) {
        double v = element(p, h->bitpix, h->flip);
        if (v < -2147483648.0 || v > 4294967295.0) {
            spx_free(*out);
            *out = NULL;
            return spx_fail(e, SPX_EINPUT, "%s: %s: mask value %.0f does not fit 32 bits", f->name,
                            spx_fits_hduname(f, hdu), v);
        }
        (*out)[i] = v < 0.0 ? (uint32_t)(int32_t)v : (uint32_t)v;
    }
    return SPX_OK;
}

static hid_t integer_type(size_t size, int unsign)
{
    switch (size) {
    case 1:
        return unsign ? H5T_STD_U8BE : H5T_STD_I8BE;
    case 2:
        return unsign ? H5T_STD_U16BE : H5T_STD_I16BE;
    case 4:
        return unsign ? H5T_STD_U32BE : H5T_STD_I32BE;
    default:
        return unsign ? H5T_STD_U64BE : H5T_STD_I64BE;
    }
}

hid_t spx_fits_image_type(const spx_fits_hdu *h)
{
    if (h->bitpix < 0)
        return h->bitpix == -32 ? H5T_IEEE_F32BE : H5T_IEEE_F64BE;
    /* bytes are unsigned in FITS, all others signed */
    return integer_type((size_t)(h->bitpix / 8), (h->bitpix == 8) != (h->flip != 0));
}

/* ---- tables ---- */

/* New type {a, b} of two equal members; the caller closes it. */
static hid_t pair_type(hid_t member, const char *a, const char *b)
{
    size_t size = H5Tget_size(member);
    hid_t t = H5Tcreate(H5T_COMPOUND, 2 * size);
    if (t >= 0 && (H5Tinsert(t, a, 0, member) < 0 || H5Tinsert(t, b, size, member) < 0)) {
        H5Tclose(t);
        return H5I_INVALID_HID;
    }
    return t;
}

static hid_t string_type(size_t size)
{
    hid_t t = H5Tcopy(H5T_C_S1);
    if (t >= 0 && (H5Tset_size(t, size) < 0 || H5Tset_strpad(t, H5T_STR_NULLPAD) < 0)) {
        H5Tclose(t);
        return H5I_INVALID_HID;
    }
    return t;
}

/* HDF5's usual boolean, as h5py writes and reads it. */
static hid_t bool_type(void)
{
    signed char no = 0, yes = 1;
    hid_t t = H5Tenum_create(H5T_STD_I8LE);
    if (t >= 0 && (H5Tenum_insert(t, "FALSE", &no) < 0 || H5Tenum_insert(t, "TRUE", &yes) < 0)) {
        H5Tclose(t);
        return H5I_INVALID_HID;
    }
    return t;
}

hid_t spx_fits_element_type(char code, size_t size, int flip, int truth)
{
    switch (code) {
    case 'L':
        return truth ? bool_type() : string_type(1);
    case 'A':
        return string_type(size);
    case 'X':
        return H5Tcopy(H5T_STD_U8BE);
    case 'B':
        return H5Tcopy(flip ? H5T_STD_I8BE : H5T_STD_U8BE);
    case 'I':
    case 'J':
    case 'K':
        return H5Tcopy(integer_type(element_size(code), flip));
    case 'E':
        return H5Tcopy(H5T_IEEE_F32BE);
    case 'D':
        return H5Tcopy(H5T_IEEE_F64BE);
    case 'C':
        return pair_type(H5T_IEEE_F32BE, "r", "i");
    case 'M':
        return pair_type(H5T_IEEE_F64BE, "r", "i");
    case 'P':
        return pair_type(H5T_STD_U32BE, "length", "offset");
    default:
        return pair_type(H5T_STD_U64BE, "length", "offset");
    }
}

hid_t spx_fits_row_type(const spx_fits_hdu *h, const unsigned char *truth, spx_err *e)
{
    size_t members = 0, encoded = 0;
    if (h->rowsize == 0)
        return H5I_INVALID_HID;
    hid_t row = H5Tcreate(H5T_COMPOUND, h->rowsize);
    int ok = row >= 0;
    for (size_t k = 0; ok && k < h->ncol; k++) {
        const spx_fits_column *c = &h->col[k];
        if (c->width == 0) /* 0 elements: HDF5 has no such member; the header keeps the column */
            continue;
        hid_t t = spx_fits_element_type(c->code, c->size, c->flip, truth && truth[k]);
        if (t >= 0 && c->ndim > 0) {
            hsize_t dims[SPX_FITS_MAXDIM];
            for (int i = 0; i < c->ndim; i++)
                dims[i] = c->dims[i];
            hid_t a = H5Tarray_create2(t, (unsigned)c->ndim, dims);
            H5Tclose(t);
            t = a;
        }
        ok = t >= 0 && H5Tinsert(row, c->name, c->offset, t) >= 0;
        if (t >= 0)
            H5Tclose(t);
        members++;
    }
    if (ok && members > 0 && H5Tencode(row, NULL, &encoded) >= 0 && encoded < MAX_ROWTYPE)
        return row;
    if (row >= 0)
        H5Tclose(row);
    if (!ok)
        spx_fail(e, SPX_EIO, "HDF5 cannot make the type of a table row");
    return H5I_INVALID_HID;
}

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
        int logical = truth && truth[k];
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

spx_status spx_fits_table(const spx_fits *f, size_t hdu, spx_table **out, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    *out = NULL;
    unsigned char *truth = spx_alloc(h->ncol, 1, e);
    if (!truth)
        return SPX_EIO;
    spx_fits_truth(f, hdu, truth);
    hid_t type = spx_fits_row_type(h, truth, e);
    spx_table *t = type < 0 ? NULL : spx_table_new(h->nrow, e);
    if (t) {
        t->type = type;
        t->rowsize = h->rowsize;
        t->rows = spx_alloc2(h->nrow, h->rowsize, 1, e);
        size_t room = 1;
        int any = 0;
        for (size_t k = 0; k < h->ncol; k++) {
            room += strlen(h->col[k].unit) + 1;
            any |= h->col[k].unit[0] && h->col[k].width > 0;
        }
        t->units = any ? spx_alloc(room, 1, e) : NULL;
        if (t->rows && h->nrow)
            memcpy(t->rows, f->bytes + h->data_at, h->nrow * h->rowsize);
        char *p = t->units;
        int members = 0;
        for (size_t k = 0; t->rows && p && k < h->ncol; k++)
            if (h->col[k].width > 0)
                p += sprintf(p, "%s%s", members++ ? "\n" : "", h->col[k].unit);
        if (t->rows)
            spx_fits_convert_rows(h, truth, (unsigned char *)t->rows, h->nrow, 0);
        if (!t->rows || (any && !t->units)) {
            spx_table_free(t);
            t = NULL;
        }
    } else if (type >= 0) {
        H5Tclose(type);
    }
    spx_free(truth);
    *out = t;
    return e->code;
}

static const spx_fits_column *need_column(const spx_fits *f, size_t hdu, const char *name, const char *codes,
                                          const char *what, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    const spx_fits_column *c = h->kind == SPX_FITS_BINTABLE ? spx_fits_find_column(h, name) : NULL;
    if (c && c->width > 0 && strchr(codes, c->code))
        return c;
    spx_fail(e, SPX_EINPUT, "%s: %s: has no column %s that holds %s", f->name, spx_fits_hduname(f, hdu), name, what);
    return NULL;
}

spx_status spx_fits_column_f64(const spx_fits *f, size_t hdu, const char *name, size_t *n, double **out, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    *out = NULL;
    const spx_fits_column *c = need_column(f, hdu, name, "BIJKED", "numbers", e);
    if (!c)
        return SPX_EINPUT;
    *n = c->width / c->size;
    *out = spx_alloc2(h->nrow, *n, sizeof **out, e);
    if (!*out)
        return SPX_EIO;
    int bitpix = (int)c->size * (c->code == 'E' || c->code == 'D' ? -8 : 8);
    for (size_t r = 0; r < h->nrow; r++)
        for (size_t i = 0; i < *n; i++)
            (*out)[r * *n + i] =
                element(f->bytes + h->data_at + r * h->rowsize + c->offset + i * c->size, bitpix, c->flip) * c->scale +
                c->zero;
    return SPX_OK;
}

spx_status spx_fits_column_str(const spx_fits *f, size_t hdu, const char *name, size_t size, char **out, spx_err *e)
{
    const spx_fits_hdu *h = &f->hdu[hdu];
    *out = NULL;
    const spx_fits_column *c = need_column(f, hdu, name, "A", "text", e);
    if (!c)
        return SPX_EINPUT;
    *out = spx_alloc2(h->nrow, size, 1, e);
    if (!*out)
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
