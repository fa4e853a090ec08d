/* Reads .npz archives: zip directory, stored or deflated members, NPY headers (convert/npz.h). */
#include "convert/npz.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/infile.h"
#include "base/mem.h"

enum {
    END_SIZE = 22,
    ENTRY_SIZE = 46,
    LOCAL_SIZE = 30,
    COMMENT = 65535,
    MAX_ARRAYS = 1000,
    MOST_HEADER = 1023,
    TYPE = 5
};

static uint32_t u16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32(const uint8_t *p)
{
    return u16(p) | u16(p + 2) << 16;
}

/* ---- an array ---- */

/* Text after 'key': in the header's dictionary, or NULL. */
static const char *entry(const char *header, const char *key)
{
    char quoted[24];
    (void)snprintf(quoted, sizeof quoted, "'%s':", key);
    const char *at = strstr(header, quoted);
    return at != NULL ? at + strlen(quoted) + strspn(at + strlen(quoted), " ") : NULL;
}

/* Little-endian number k of type `kind` and `size` bytes. */
static double get_number(const uint8_t *p, char kind, size_t size)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < size; i++)
        bits |= (uint64_t)p[i] << 8 * i;
    if (kind == 'f' && size == 4) {
        uint32_t low = (uint32_t)bits;
        float f;
        memcpy(&f, &low, sizeof f);
        return (double)f;
    }
    if (kind == 'f') {
        double d;
        memcpy(&d, &bits, sizeof d);
        return d;
    }
    if (kind == 'i' && size < 8 && (bits >> (8 * size - 1) & 1) != 0)
        bits |= ~(uint64_t)0 << 8 * size;
    return kind == 'i' ? (double)(int64_t)bits : (double)bits;
}

/* Parses the shape in the dictionary's text; 0 when it is malformed, or has too many dimensions. */
static int parse_shape(const char *p, spx_npz_array *a)
{
    a->n = 1;
    if (p == NULL || *p++ != '(')
        return 0;
    for (p += strspn(p, " ,"); *p != ')'; p += strspn(p, " ,")) {
        char *end;
        errno = 0;
        unsigned long long v = *p >= '0' && *p <= '9' ? strtoull(p, &end, 10) : 0;
        if (!(*p >= '0' && *p <= '9') || errno != 0 || v > SIZE_MAX || a->ndim == SPX_NPZ_MAXDIM ||
            spx_mul(a->n, (size_t)v, &a->n, NULL) != SPX_OK)
            return 0;
        a->dims[a->ndim++] = (size_t)v;
        p = end;
    }
    return 1;
}

/* C-order position of element k of an array in Fortran order. */
static size_t fortran_place(const spx_npz_array *a, size_t k)
{
    size_t place = 0, rest = k;
    for (int d = a->ndim; d-- > 0;) {
        size_t stride = 1;
        for (int q = 0; q < d; q++)
            stride *= a->dims[q];
        place += rest % a->dims[d] * stride;
        rest /= a->dims[d];
    }
    return place;
}

/* Parses an array (NEP 1): magic, version, length of the header, a Python dictionary as text, numbers. `held`: numbers
 * in the arrays before it, which stay in memory. */
static spx_status parse_npy(const char *path, const uint8_t *data, size_t size, size_t held, spx_npz_array *a,
                            spx_err *e)
{
    char header[MOST_HEADER + TYPE] = {0}; /* with margin: a type's characters can be read at its end */
    size_t skip = 10, length;
    if (size < 12 || memcmp(data, "\x93NUMPY", 6) != 0 || data[6] < 1 || data[6] > 3)
        return spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "%s is no array of NumPy", a->name);
    length = data[6] == 1 ? u16(data + 8) : u32(data + 8);
    skip = data[6] == 1 ? 10 : 12;
    if (length > size - skip)
        return spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "the header of %s is cut off", a->name);
    if (length > MOST_HEADER)
        return SPX_OK; /* a structured type: no numbers */
    memcpy(header, data + skip, length);
    const char *type = entry(header, "descr"), *order = entry(header, "fortran_order");
    char kind = type != NULL && type[0] == '\'' ? type[2] : 'O';
    const size_t letters = type != NULL && type[0] == '\'' ? strcspn(type + 1, "'") : sizeof a->type;
    for (size_t k = 0; k < letters && letters < sizeof a->type; k++)
        a->type[k] = (char)(type[1 + k] > 32 && type[1 + k] < 127 ? type[1 + k] : '?');
    size_t width = kind != 'O' && type[3] >= '1' && type[3] <= '9' && type[4] == '\'' ? (size_t)(type[3] - '0') : 0;
    int known = kind == 'f' ? width == 4 || width == 8
                            : (kind == 'i' || kind == 'u') && (width == 1 || width == 2 || width == 4 || width == 8);
    if (!known || (type[1] == '>' && width > 1))
        return SPX_OK;
    if (order == NULL || !parse_shape(entry(header, "shape"), a)) {
        if (a->ndim < SPX_NPZ_MAXDIM)
            return spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "the shape of %s cannot be read", a->name);
        return SPX_OK;
    }
    if (a->n > (size - skip - length) / width)
        return spx_fail(e, SPX_EINPUT, "%s: %s should have %zu numbers, but is cut off", path, a->name, a->n);
    spx_status st = spx_mem_check(path, (held + a->n) * sizeof *a->value, e);
    if (st != SPX_OK)
        return st;
    if ((a->value = spx_alloc(a->n, sizeof *a->value, e)) == NULL)
        return SPX_EIO;
    int fortran = order[0] == 'T' && a->ndim > 1;
    for (size_t k = 0; k < a->n; k++)
        a->value[k] = get_number(data + skip + length + (fortran ? fortran_place(a, k) : k) * width, kind, width);
    return SPX_OK;
}

/* ---- the archive ---- */

/* Member at `at` of the archive: its bytes, as they are or inflated into *inflated, which is to be freed. */
static spx_status extract(const char *path, const uint8_t *data, size_t size, const uint8_t *at, const uint8_t **member,
                          uint8_t **inflated, spx_err *e)
{
    size_t method = u16(at + 10), packed = u32(at + 20), full = u32(at + 24), local = u32(at + 42);
    if (local > size || size - local < LOCAL_SIZE || memcmp(data + local, "PK\3\4", 4) != 0)
        return spx_fail_at(e, SPX_EINPUT, path, NULL, NULL,
                           "the archive is damaged: a member is not where it should be");
    size_t skip = LOCAL_SIZE + u16(data + local + 26) + u16(data + local + 28);
    if (skip > size - local || packed > size - local - skip)
        return spx_fail_at(e, SPX_EINPUT, path, NULL, "copy it again", "the archive is cut off");
    const uint8_t *from = data + local + skip;
    if (method == 0) {
        if (packed != full)
            return spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "the archive is damaged: the sizes of a member differ");
        *member = from;
    } else if (method == 8) {
        z_stream z = {.next_in = (Bytef *)(uintptr_t)from, .avail_in = (uInt)packed}; /* zlib only reads next_in */
        spx_status st = full / 1100 > packed
                            ? spx_fail(e, SPX_EINPUT, "%s: a member claims to be larger than it can be", path)
                            : spx_mem_check(path, full, e);
        if (st != SPX_OK)
            return st;
        if ((*inflated = spx_alloc(full, 1, e)) == NULL)
            return SPX_EIO;
        z.next_out = *inflated;
        z.avail_out = (uInt)full;
        if (inflateInit2(&z, -15) != Z_OK)
            return spx_fail_at(e, SPX_EIO, path, NULL, NULL, "no memory to inflate the archive");
        int rc = inflate(&z, Z_FINISH);
        (void)inflateEnd(&z);
        if (rc != Z_STREAM_END || z.avail_out != 0)
            return spx_fail(e, SPX_EINPUT, "%s: the archive is damaged: a member cannot be inflated", path);
        *member = *inflated;
    } else {
        return spx_fail_at(e, SPX_EINPUT, path, NULL, NULL,
                           "a member is packed with method %zu, which NumPy does not use", method);
    }
    if (crc32(crc32(0, NULL, 0), *member, (uInt)full) != u32(at + 16))
        return spx_fail_at(e, SPX_EINPUT, path, NULL, "copy it again", "the archive is damaged: a checksum differs");
    return SPX_OK;
}

spx_status spx_npz_parse(const char *name, const uint8_t *data, size_t size, spx_npz *z, spx_err *e)
{
    memset(z, 0, sizeof *z);
    size_t end = size < END_SIZE ? 0 : size - END_SIZE, stop = end > COMMENT ? end - COMMENT : 0;
    while (size >= END_SIZE && end > stop && memcmp(data + end, "PK\5\6", 4) != 0)
        end--;
    if (size < END_SIZE || memcmp(data + end, "PK\5\6", 4) != 0)
        return spx_fail_at(e, SPX_EINPUT, name, NULL, NULL,
                           "is no .npz archive, or cut off: give the file that NumPy's savez() has written");
    size_t n = u16(data + end + 10), at = u32(data + end + 16), held = 0;
    if (n > MAX_ARRAYS)
        return spx_fail_at(e, SPX_EINPUT, name, NULL, NULL, "has %zu arrays; up to %d are read", n, MAX_ARRAYS);
    if ((z->array = spx_alloc(n, sizeof *z->array, e)) == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < n; i++) {
        if (at > end || end - at < ENTRY_SIZE || memcmp(data + at, "PK\1\2", 4) != 0)
            return spx_fail_at(e, SPX_EINPUT, name, NULL, NULL, "the archive's list of members is damaged");
        const uint8_t *p = data + at, *member = NULL;
        size_t length = u16(p + 28), whole = ENTRY_SIZE + length + u16(p + 30) + u16(p + 32);
        if (whole > end - at)
            return spx_fail_at(e, SPX_EINPUT, name, NULL, NULL, "the archive's list of members is damaged");
        at += whole;
        spx_npz_array *a = &z->array[z->n];
        if (length < 5 || length - 4 >= sizeof a->name || memcmp(p + ENTRY_SIZE + length - 4, ".npy", 4) != 0)
            continue;
        memcpy(a->name, p + ENTRY_SIZE, length - 4);
        for (size_t k = 0; k < length - 4; k++)
            if (a->name[k] < 32 || a->name[k] > 126)
                a->name[k] = '?';
        z->n++;
        uint8_t *inflated = NULL;
        spx_status st = extract(name, data, size, p, &member, &inflated, e);
        if (st == SPX_OK)
            st = parse_npy(name, member, u32(p + 24), held, a, e);
        spx_free(inflated);
        held += a->value != NULL ? a->n : 0;
        if (st != SPX_OK)
            return st;
    }
    return SPX_OK;
}

spx_status spx_npz_read(const char *path, spx_npz *z, spx_err *e)
{
    memset(z, 0, sizeof *z);
    FILE *f = NULL;
    spx_status st = spx_infile_open(path, &f, e);
    if (st != SPX_OK)
        return st;
    uint8_t *data = NULL;
    long size = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    if (size < 0 || fseek(f, 0, SEEK_SET) != 0)
        st = spx_fail_at(e, SPX_EIO, path, NULL, NULL, "cannot be read: %s", strerror(errno));
    if (st == SPX_OK)
        st = spx_mem_check(path, (size_t)size, e);
    if (st == SPX_OK && (data = spx_alloc((size_t)size, 1, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK && fread(data, 1, (size_t)size, f) != (size_t)size)
        st = spx_fail_at(e, SPX_EIO, path, NULL, NULL, "cannot be read");
    (void)fclose(f);
    if (st == SPX_OK)
        st = spx_npz_parse(path, data, (size_t)size, z, e);
    spx_free(data);
    return st;
}

/* A shape as NumPy writes it, n where any length will do. */
static void shape_text(int ndim, const size_t *dims, size_t size, char *out)
{
    size_t at = (size_t)snprintf(out, size, "(");
    for (int d = 0; d < ndim && at < size; d++) {
        const char *comma = d > 0 ? ", " : "";
        if (dims[d] > 0)
            at += (size_t)snprintf(out + at, size - at, "%s%zu", comma, dims[d]);
        else
            at += (size_t)snprintf(out + at, size - at, "%sn", comma);
    }
    if (at < size)
        (void)snprintf(out + at, size - at, ndim == 1 ? ",)" : ")");
}

void spx_npz_shape(const spx_npz_array *a, size_t size, char *out)
{
    if (a->value != NULL)
        shape_text(a->ndim, a->dims, size, out);
    else if (a->ndim == SPX_NPZ_MAXDIM)
        (void)snprintf(out, size, "of more than %d dimensions", SPX_NPZ_MAXDIM);
    else
        (void)snprintf(out, size, "of type %s", a->type[0] != '\0' ? a->type : "structure");
}

void spx_npz_list(const spx_npz *z, size_t size, char *out)
{
    enum { SHOWN = 8 };
    size_t at = (size_t)snprintf(out, size, z->n > 0 ? "the archive has " : "the archive has no arrays");
    for (size_t i = 0; i < z->n && at < size; i++) {
        char shape[160];
        if (i == SHOWN) {
            (void)snprintf(out + at, size - at, " and %zu more", z->n - i);
            break;
        }
        spx_npz_shape(&z->array[i], sizeof shape, shape);
        at += (size_t)snprintf(out + at, size - at, "%s%s %s", i > 0 ? ", " : "", z->array[i].name, shape);
    }
}

const spx_npz_array *spx_npz_find(const spx_npz *z, const char *path, const char *name, int ndim, size_t *dims,
                                  spx_err *e)
{
    for (size_t i = 0; i < z->n; i++) {
        const spx_npz_array *a = &z->array[i];
        if (strcmp(a->name, name) != 0)
            continue;
        int ok = a->value != NULL && a->ndim == ndim;
        char wanted[160], has[160];
        shape_text(ndim, dims, sizeof wanted, wanted);
        spx_npz_shape(a, sizeof has, has);
        for (int d = 0; d < ndim && ok; d++) {
            ok = a->dims[d] > 0 && (dims[d] == 0 || dims[d] == a->dims[d]);
            dims[d] = a->dims[d];
        }
        for (size_t k = 0; k < a->n && ok; k++)
            if (!isfinite(a->value[k])) {
                (void)spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "element %zu of %s is not finite", k, name);
                return NULL;
            }
        if (ok)
            return a;
        if (a->value == NULL)
            (void)spx_fail_at(e, SPX_EINPUT, path, NULL, "write it as <f8",
                              "%s is %s, wanted are numbers of the shape %s", name, has, wanted);
        else
            (void)spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "%s has the shape %s, wanted is %s", name, has, wanted);
        return NULL;
    }
    char list[600];
    spx_npz_list(z, sizeof list, list);
    (void)spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "there is no array %s: %s", name, list);
    return NULL;
}

void spx_npz_free(spx_npz *z)
{
    for (size_t i = 0; i < z->n; i++)
        spx_free(z->array[i].value);
    spx_free(z->array);
    memset(z, 0, sizeof *z);
}
