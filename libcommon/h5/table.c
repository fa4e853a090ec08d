#include "h5/table.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "h5/object.h"
#include "h5/write.h"

enum {
    MAX_DEPTH = 16,       /* of nested types */
    MAX_UNITS = 60 * 1024 /* an attribute in the object header holds less than 64 KiB */
};

/* ---- types ---- */

/* Types of fixed size only: rows are moved as bytes, and a pointer must never be among them. */
static int type_is_plain(hid_t type, int depth)
{
    if (depth > MAX_DEPTH)
        return 0;
    switch (H5Tget_class(type)) {
    case H5T_INTEGER:
    case H5T_FLOAT:
    case H5T_BITFIELD:
    case H5T_OPAQUE:
    case H5T_TIME:
    case H5T_ENUM:
        return 1;
    case H5T_STRING:
        return H5Tis_variable_str(type) == 0;
    case H5T_ARRAY: {
        hid_t base = H5Tget_super(type);
        int ok = base >= 0 && type_is_plain(base, depth + 1);
        if (base >= 0)
            H5Tclose(base);
        return ok;
    }
    case H5T_COMPOUND: {
        int n = H5Tget_nmembers(type), ok = n > 0;
        size_t size = H5Tget_size(type);
        for (int i = 0; ok && i < n; ++i) {
            hid_t m = H5Tget_member_type(type, (unsigned)i);
            if (m < 0)
                return 0;
            size_t off = H5Tget_member_offset(type, (unsigned)i), msize = H5Tget_size(m);
            ok = msize > 0 && msize <= size && off <= size - msize && type_is_plain(m, depth + 1);
            H5Tclose(m);
        }
        return ok;
    }
    default: /* variable length, references, and what later versions of HDF5 may add */
        return 0;
    }
}

/* The element type below arrays of arrays, and how many of them there are. */
static hid_t type_base(hid_t type, size_t *nelem)
{
    hid_t t = H5Tcopy(type);
    *nelem = 1;
    while (t >= 0 && H5Tget_class(t) == H5T_ARRAY) {
        hid_t base = H5Tget_super(t);
        size_t n = base < 0 ? 0 : H5Tget_size(base);
        if (n > 0)
            *nelem *= H5Tget_size(t) / n;
        H5Tclose(t);
        t = base;
    }
    return t;
}

static int same_array_shape(hid_t a, hid_t b)
{
    hsize_t da[H5S_MAX_RANK], db[H5S_MAX_RANK];
    if (H5Tget_class(a) != H5T_ARRAY || H5Tget_class(b) != H5T_ARRAY)
        return H5Tget_class(a) != H5T_ARRAY && H5Tget_class(b) != H5T_ARRAY;
    int na = H5Tget_array_ndims(a), nb = H5Tget_array_ndims(b);
    return na == nb && na > 0 && H5Tget_array_dims2(a, da) == na && H5Tget_array_dims2(b, db) == nb &&
           memcmp(da, db, (size_t)na * sizeof *da) == 0;
}

/* ---- units: one line a column ---- */

static const char *unit_at(const char *units, size_t i, size_t *len)
{
    *len = 0;
    if (units == NULL)
        return "";
    while (i > 0) {
        units = strchr(units, '\n');
        if (units == NULL)
            return "";
        ++units;
        --i;
    }
    *len = strcspn(units, "\n");
    return units;
}

/* ---- columns ---- */

typedef struct {
    const char *name;
    hid_t type;
    const char *unit; /* not terminated */
    size_t unitlen;
    const char *data; /* element of row 0; NULL: zeros */
    size_t stride;    /* bytes from row to row */
} column;

size_t spx_table_ncol(const spx_table *t)
{
    int n = t->type < 0 ? 0 : H5Tget_nmembers(t->type);
    return n < 0 ? 0 : (size_t)n;
}

char *spx_table_name(const spx_table *t, int col, spx_err *e)
{
    char *n = col < 0 || (size_t)col >= spx_table_ncol(t) ? NULL : H5Tget_member_name(t->type, (unsigned)col);
    if (n == NULL) {
        spx_fail(e, SPX_EBUG, "table has no column %d", col);
        return NULL;
    }
    char *s = spx_strdup(n, e);
    H5free_memory(n);
    return s;
}

int spx_table_find(const spx_table *t, const char *name)
{
    size_t ncol = spx_table_ncol(t);
    for (size_t i = 0; i < ncol; ++i) {
        char *n = H5Tget_member_name(t->type, (unsigned)i);
        int same = n != NULL && strcasecmp(n, name) == 0;
        H5free_memory(n);
        if (same)
            return (int)i;
    }
    return -1;
}

char *spx_table_unit(const spx_table *t, int col, spx_err *e)
{
    size_t len;
    const char *u = unit_at(t->units, col < 0 ? 0 : (size_t)col, &len);
    char *s = spx_alloc(len + 1, 1, e);
    if (s != NULL)
        memcpy(s, u, len);
    return s;
}

/* Units of all columns of t with those of the new ones behind; *out stays NULL when no column has one. */
static spx_status units_extend(const spx_table *t, size_t n, const column *c, char **out, spx_err *e)
{
    size_t ncol = spx_table_ncol(t), total = ncol + n + 1;
    int any = t->units != NULL;
    for (size_t i = 0; i < ncol; ++i) {
        size_t len;
        (void)unit_at(t->units, i, &len);
        total += len;
    }
    for (size_t i = 0; i < n; ++i) {
        if (memchr(c[i].unit, '\n', c[i].unitlen) != NULL)
            return spx_fail(e, SPX_EINPUT, "unit of column %s holds a line break", c[i].name);
        total += c[i].unitlen;
        any |= c[i].unitlen > 0;
    }
    if (!any)
        return SPX_OK;
    char *s = spx_alloc(total, 1, e), *p = s;
    if (s == NULL)
        return e->code;
    for (size_t i = 0; i < ncol + n; ++i) {
        size_t len;
        const char *u;
        if (i < ncol) {
            u = unit_at(t->units, i, &len);
        } else {
            u = c[i - ncol].unit;
            len = c[i - ncol].unitlen;
        }
        if (i > 0)
            *p++ = '\n';
        memcpy(p, u, len);
        p += len;
    }
    *out = s;
    return SPX_OK;
}

/* Add n columns at once; t is unchanged on failure. */
static spx_status table_extend(spx_table *t, size_t n, const column *c, spx_err *e)
{
    if (n == 0)
        return SPX_OK;
    size_t newsize = t->rowsize;
    for (size_t i = 0; i < n; ++i) {
        if (!type_is_plain(c[i].type, 0))
            return spx_fail(e, SPX_EINPUT, "column %s has no fixed size: store it in a fixed-length type", c[i].name);
        int taken = spx_table_find(t, c[i].name) >= 0;
        for (size_t k = 0; k < i && !taken; ++k)
            taken = strcasecmp(c[k].name, c[i].name) == 0;
        if (taken)
            return spx_fail(e, SPX_EINPUT, "table has a column %s already", c[i].name);
        newsize += H5Tget_size(c[i].type); /* each below 4 GiB: no overflow */
    }

    hid_t type = t->type < 0 ? H5Tcreate(H5T_COMPOUND, newsize) : H5Tcopy(t->type);
    int ok = type >= 0 && (t->type < 0 || H5Tset_size(type, newsize) >= 0);
    size_t off = t->rowsize;
    for (size_t i = 0; ok && i < n; ++i) {
        ok = H5Tinsert(type, c[i].name, off, c[i].type) >= 0;
        off += H5Tget_size(c[i].type);
    }
    char *rows = NULL, *units = NULL;
    if (!ok) {
        spx_fail(e, SPX_EINPUT, "table cannot take a column %s: HDF5 refuses the row type", c[0].name);
    } else if ((rows = spx_alloc2(t->nrow, newsize, 1, e)) != NULL) {
        ok = units_extend(t, n, c, &units, e) == SPX_OK;
    } else {
        ok = 0;
    }
    if (!ok) {
        spx_free(rows);
        if (type >= 0)
            H5Tclose(type);
        return e->code;
    }

    for (size_t r = 0; r < t->nrow; ++r) {
        if (t->rowsize > 0)
            memcpy(rows + r * newsize, t->rows + r * t->rowsize, t->rowsize);
        off = t->rowsize;
        for (size_t i = 0; i < n; ++i) {
            size_t size = H5Tget_size(c[i].type);
            if (c[i].data != NULL)
                memcpy(rows + r * newsize + off, c[i].data + r * c[i].stride, size);
            off += size;
        }
    }
    if (t->type >= 0)
        H5Tclose(t->type);
    spx_free(t->rows);
    spx_free(t->units);
    t->type = type;
    t->rows = rows;
    t->units = units;
    t->rowsize = newsize;
    return SPX_OK;
}

spx_table *spx_table_new(size_t nrow, spx_err *e)
{
    spx_table *t = spx_alloc(1, sizeof *t, e);
    if (t != NULL) {
        t->type = H5I_INVALID_HID;
        t->nrow = nrow;
    }
    return t;
}

void spx_table_free(spx_table *t)
{
    if (t == NULL)
        return;
    if (t->type >= 0)
        H5Tclose(t->type);
    spx_free(t->rows);
    spx_free(t->units);
    spx_free(t);
}

spx_status spx_table_add(spx_table *t, const char *name, hid_t type, const char *unit, const void *data, spx_err *e)
{
    const char *u = unit == NULL ? "" : unit;
    column c = {name, type, u, strlen(u), data, H5Tget_size(type)};
    return table_extend(t, 1, &c, e);
}

spx_status spx_table_add_strings(spx_table *t, const char *name, size_t size, const char *data, spx_err *e)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type < 0 || H5Tset_size(type, size) < 0 || H5Tset_strpad(type, H5T_STR_NULLPAD) < 0)
        spx_fail(e, SPX_EINPUT, "column %s cannot hold strings of %zu characters", name, size);
    else
        (void)spx_table_add(t, name, type, NULL, data, e);
    if (type >= 0)
        H5Tclose(type);
    return e->code;
}

spx_status spx_table_copy_column(spx_table *t, const char *name, const spx_table *from, int col, spx_err *e)
{
    if (t->nrow != from->nrow || col < 0 || (size_t)col >= spx_table_ncol(from))
        return spx_fail(e, SPX_EBUG, "column %s is not there to be copied", name);
    column c = {.name = name, .type = H5Tget_member_type(from->type, (unsigned)col), .stride = from->rowsize};
    c.unit = unit_at(from->units, (size_t)col, &c.unitlen);
    c.data = from->nrow == 0 ? NULL : from->rows + H5Tget_member_offset(from->type, (unsigned)col);
    (void)table_extend(t, 1, &c, e);
    if (c.type >= 0)
        H5Tclose(c.type);
    return e->code;
}

/* ---- values ---- */

/* Column `col` of t gathered into new memory, elements `cell` bytes apart (cell >= size of the column). */
static char *gather(const spx_table *t, size_t off, size_t size, size_t cell, spx_err *e)
{
    char *buf = spx_alloc2(t->nrow, cell, 1, e);
    for (size_t r = 0; buf != NULL && r < t->nrow; ++r)
        memcpy(buf + r * cell, t->rows + r * t->rowsize + off, size);
    return buf;
}

static spx_status no_column(const spx_table *t, const char *name, spx_err *e)
{
    char have[256] = "";
    size_t len = 0, ncol = spx_table_ncol(t);
    for (size_t i = 0; i < ncol && len < sizeof have - 1; ++i) {
        char *n = H5Tget_member_name(t->type, (unsigned)i);
        if (n != NULL)
            len += (size_t)snprintf(have + len, sizeof have - len, "%s%s", i == 0 ? "" : ", ", n);
        H5free_memory(n);
    }
    return spx_fail(e, SPX_EINPUT, "table has no column %s (it has %s%s)", name, have, len >= sizeof have ? "..." : "");
}

/* A scalar numeric column as `want` (8 bytes an element). Integers only when `integer`. */
static spx_status get_number(const spx_table *t, const char *name, hid_t want, int integer, void *out, spx_err *e)
{
    int col = spx_table_find(t, name);
    if (col < 0)
        return no_column(t, name, e);
    hid_t member = H5Tget_member_type(t->type, (unsigned)col);
    size_t nelem = 0;
    hid_t base = member < 0 ? H5I_INVALID_HID : type_base(member, &nelem);
    if (base >= 0 && H5Tget_class(base) == H5T_ENUM) { /* logical columns */
        hid_t number = H5Tget_super(base);
        H5Tclose(base);
        base = number;
    }
    H5T_class_t class = base < 0 ? H5T_NO_CLASS : H5Tget_class(base);
    size_t size = base < 0 ? 0 : H5Tget_size(base);
    char *buf = NULL;
    if (nelem != 1 || !(class == H5T_INTEGER || (class == H5T_FLOAT && !integer))) {
        spx_fail(e, SPX_EINPUT, "column %s does not hold one %s a row", name, integer ? "integer" : "number");
    } else {
        buf = gather(t, H5Tget_member_offset(t->type, (unsigned)col), size, size, e);
        char *wide = buf;
        if (buf != NULL && size < 8) { /* H5Tconvert() works in place */
            wide = spx_alloc(t->nrow, 8, e);
            if (wide != NULL)
                memcpy(wide, buf, t->nrow * size);
            spx_free(buf);
            buf = wide;
        }
        if (buf != NULL && t->nrow > 0) {
            if (H5Tconvert(base, want, t->nrow, buf, NULL, H5P_DEFAULT) < 0)
                spx_fail(e, SPX_EINPUT, "column %s has a number format that cannot be converted", name);
            else
                memcpy(out, buf, t->nrow * 8);
        }
    }
    spx_free(buf);
    if (base >= 0)
        H5Tclose(base);
    if (member >= 0)
        H5Tclose(member);
    return e->code;
}

spx_status spx_table_get_f64(const spx_table *t, const char *name, double *out, spx_err *e)
{
    return get_number(t, name, H5T_NATIVE_DOUBLE, 0, out, e);
}

spx_status spx_table_get_i64(const spx_table *t, const char *name, int64_t *out, spx_err *e)
{
    return get_number(t, name, H5T_NATIVE_INT64, 1, out, e);
}

spx_status spx_table_find_i64(const spx_table *t, const char *name, int64_t **out, spx_err *e)
{
    *out = NULL;
    if (t == NULL || spx_table_find(t, name) < 0)
        return SPX_OK;
    if ((*out = spx_alloc(t->nrow, sizeof **out, e)) == NULL)
        return SPX_EIO;
    return spx_table_get_i64(t, name, *out, e);
}

spx_status spx_table_set_i64(spx_table *t, const char *name, size_t row, int64_t value, spx_err *e)
{
    int col = spx_table_find(t, name);
    if (col < 0)
        return no_column(t, name, e);
    hid_t type = H5Tget_member_type(t->type, (unsigned)col);
    size_t size = type < 0 ? 0 : H5Tget_size(type);
    int64_t v = value; /* converted in place */
    if (row >= t->nrow || type < 0 || H5Tget_class(type) != H5T_INTEGER || size > sizeof v ||
        H5Tconvert(H5T_NATIVE_INT64, type, 1, &v, NULL, H5P_DEFAULT) < 0)
        spx_fail(e, SPX_EINPUT, "column %s does not hold one integer a row", name);
    else
        memcpy(t->rows + row * t->rowsize + H5Tget_member_offset(t->type, (unsigned)col), &v, size);
    if (type >= 0)
        H5Tclose(type);
    return e->code;
}

spx_status spx_table_get_str(const spx_table *t, const char *name, size_t size, char *out, spx_err *e)
{
    int col = spx_table_find(t, name);
    if (col < 0)
        return no_column(t, name, e);
    hid_t member = H5Tget_member_type(t->type, (unsigned)col);
    if (member < 0 || H5Tget_class(member) != H5T_STRING) {
        spx_fail(e, SPX_EINPUT, "column %s does not hold text", name);
    } else {
        size_t width = H5Tget_size(member), off = H5Tget_member_offset(t->type, (unsigned)col);
        for (size_t r = 0; r < t->nrow; ++r) {
            const char *s = t->rows + r * t->rowsize + off;
            size_t n = strnlen(s, width);
            while (n > 0 && isspace((unsigned char)s[n - 1]))
                --n;
            if (n > size - 1)
                n = size - 1;
            memset(out + r * size, 0, size);
            memcpy(out + r * size, s, n);
        }
    }
    if (member >= 0)
        H5Tclose(member);
    return e->code;
}

/* ---- whole tables ---- */

spx_table *spx_table_take(const spx_table *t, size_t n, const size_t *row, spx_err *e)
{
    spx_table *s = spx_table_new(n, e);
    if (s == NULL)
        return NULL;
    s->rowsize = t->rowsize;
    s->type = t->type < 0 ? H5I_INVALID_HID : H5Tcopy(t->type);
    if (t->type >= 0 && s->type < 0)
        spx_fail(e, SPX_EIO, "row type cannot be copied: out of memory");
    else if (t->units == NULL || (s->units = spx_strdup(t->units, e)) != NULL)
        s->rows = spx_alloc2(n, s->rowsize, 1, e);
    if (s->rows == NULL) {
        spx_table_free(s);
        return NULL;
    }
    for (size_t i = 0; i < n && s->rowsize > 0; ++i)
        if (row[i] != SPX_NO_ROW)
            memcpy(s->rows + i * s->rowsize, t->rows + row[i] * t->rowsize, s->rowsize);
    return s;
}

/* Element type that holds every value of a and b (element types of a column in two tables); negative when there is
 * none. */
static hid_t common_base(hid_t a, hid_t b)
{
    H5T_class_t ca = H5Tget_class(a), cb = H5Tget_class(b);
    size_t sa = H5Tget_size(a), sb = H5Tget_size(b);
    if (H5Tequal(a, b) > 0)
        return H5Tcopy(a);
    if (ca == H5T_STRING && cb == H5T_STRING) {
        /* a terminator takes a character that a padded string of the same size may use */
        int room =
            sb > sa || (sb == sa && H5Tget_strpad(a) == H5T_STR_NULLTERM && H5Tget_strpad(b) != H5T_STR_NULLTERM);
        return H5Tget_cset(a) == H5Tget_cset(b) ? H5Tcopy(room ? b : a) : H5I_INVALID_HID;
    }
    if (ca == H5T_INTEGER && cb == H5T_INTEGER) {
        if (H5Tget_sign(a) == H5Tget_sign(b))
            return H5Tcopy(sb > sa ? b : a);
        hid_t is = H5Tget_sign(a) == H5T_SGN_2 ? a : b; /* the signed one; wide enough for the other? */
        if (H5Tget_size(is) > H5Tget_size(is == a ? b : a))
            return H5Tcopy(is);
        return sa < 8 && sb < 8 ? H5Tcopy(H5T_STD_I64LE) : H5I_INVALID_HID;
    }
    if (ca == H5T_FLOAT && cb == H5T_FLOAT)
        return H5Tcopy(sb > sa ? b : a);
    if ((ca == H5T_FLOAT && cb == H5T_INTEGER && sb <= 4) || (cb == H5T_FLOAT && ca == H5T_INTEGER && sa <= 4))
        return H5Tcopy(H5T_IEEE_F64LE);
    return H5I_INVALID_HID;
}

/* Column `src` of t converted to `nelem` elements of base type `to` a row, stored into rows of `dst`. */
static spx_status convert_into(const spx_table *t, unsigned src, hid_t to, size_t nelem, char *dst, size_t stride,
                               spx_err *e)
{
    hid_t member = H5Tget_member_type(t->type, src);
    size_t n0 = 0;
    hid_t from = member < 0 ? H5I_INVALID_HID : type_base(member, &n0);
    char *buf = NULL;
    if (from < 0 || n0 != nelem) {
        spx_fail(e, SPX_EBUG, "table column changed its shape");
    } else {
        size_t sf = H5Tget_size(from), st = H5Tget_size(to), off = H5Tget_member_offset(t->type, src);
        /* gathered densely at the front, converted in place */
        buf = spx_alloc2(t->nrow, nelem * (sf > st ? sf : st), 1, e);
        for (size_t r = 0; buf != NULL && r < t->nrow; ++r)
            memcpy(buf + r * nelem * sf, t->rows + r * t->rowsize + off, nelem * sf);
        if (buf != NULL && t->nrow > 0 && H5Tequal(from, to) <= 0 &&
            H5Tconvert(from, to, t->nrow * nelem, buf, NULL, H5P_DEFAULT) < 0)
            spx_fail(e, SPX_EINPUT, "column has a number format that cannot be converted");
        for (size_t r = 0; buf != NULL && e->code == SPX_OK && r < t->nrow; ++r)
            memcpy(dst + r * stride, buf + r * nelem * st, nelem * st);
    }
    spx_free(buf);
    if (from >= 0)
        H5Tclose(from);
    if (member >= 0)
        H5Tclose(member);
    return e->code;
}

/* Column `col` of `a` (and the column of that name of `b`) into column of the new table s; s grows by one column. */
static spx_status append_column(spx_table *s, const spx_table *a, const spx_table *b, unsigned col, spx_err *e)
{
    char *name = spx_table_name(a, (int)col, e), *ua = NULL, *ub = NULL;
    int other = name == NULL ? -1 : spx_table_find(b, name);
    hid_t ma = H5I_INVALID_HID, mb = ma, ba = ma, bb = ma, base = ma, type = ma;
    size_t nelem = 0, nb = 0;
    if (name == NULL)
        goto end;
    if (other < 0) {
        spx_fail(e, SPX_EINPUT, "column %s is in one table and not in the other", name);
        goto end;
    }
    ma = H5Tget_member_type(a->type, col);
    mb = H5Tget_member_type(b->type, (unsigned)other);
    ba = ma < 0 ? ma : type_base(ma, &nelem);
    bb = mb < 0 ? mb : type_base(mb, &nb);
    if (ba >= 0 && bb >= 0 && same_array_shape(ma, mb) && nelem == nb)
        base = common_base(ba, bb);
    if (base < 0) {
        spx_fail(e, SPX_EINPUT, "column %s has another type or shape in the other table", name);
        goto end;
    }
    ua = spx_table_unit(a, (int)col, e);
    ub = ua == NULL ? NULL : spx_table_unit(b, other, e);
    if (ub == NULL)
        goto end;
    if (ua[0] != '\0' && ub[0] != '\0' && strcmp(ua, ub) != 0) {
        spx_fail(e, SPX_EINPUT, "column %s is in %s in one table and in %s in the other", name, ua, ub);
        goto end;
    }
    if (H5Tget_class(ma) == H5T_ARRAY) {
        hsize_t dims[H5S_MAX_RANK];
        int nd = H5Tget_array_dims2(ma, dims);
        type = nd > 0 ? H5Tarray_create2(base, (unsigned)nd, dims) : H5I_INVALID_HID;
    } else {
        type = H5Tcopy(base);
    }
    if (type < 0 || H5Tget_size(type) != nelem * H5Tget_size(base)) {
        spx_fail(e, SPX_EINPUT, "column %s has a type that cannot be joined", name);
        goto end;
    }
    size_t off = s->rowsize;
    if (spx_table_add(s, name, type, ua[0] != '\0' ? ua : ub, NULL, e) != SPX_OK)
        goto end;
    if (convert_into(a, col, base, nelem, s->rows + off, s->rowsize, e) == SPX_OK)
        (void)convert_into(b, (unsigned)other, base, nelem, s->rows + a->nrow * s->rowsize + off, s->rowsize, e);
    if (e->code != SPX_OK)
        spx_err_context(e, "column %s", name);
end:
    for (size_t i = 0; i < 6; ++i) {
        hid_t h[] = {ma, mb, ba, bb, base, type};
        if (h[i] >= 0)
            H5Tclose(h[i]);
    }
    spx_free(name);
    spx_free(ua);
    spx_free(ub);
    return e->code;
}

/* Rows of both copied whole: NULL and SPX_OK where their types or units differ. */
static spx_table *append_rows(const spx_table *a, const spx_table *b, spx_err *e)
{
    size_t na = spx_table_ncol(a);
    int same_units = a->units == NULL || b->units == NULL || strcmp(a->units, b->units) == 0;
    if (na == 0 || na != spx_table_ncol(b) || !same_units || H5Tequal(a->type, b->type) <= 0)
        return NULL;
    spx_table *s = spx_table_new(a->nrow + b->nrow, e);
    if (s == NULL)
        return NULL;
    const char *units = a->units != NULL ? a->units : b->units;
    s->type = H5Tcopy(a->type);
    s->rowsize = a->rowsize;
    s->rows = spx_alloc2(s->nrow, s->rowsize, 1, e);
    if (s->rows == NULL || (units != NULL && (s->units = spx_strdup(units, e)) == NULL)) {
        spx_table_free(s);
        return NULL;
    }
    memcpy(s->rows, a->rows, a->nrow * a->rowsize);
    memcpy(s->rows + a->nrow * a->rowsize, b->rows, b->nrow * b->rowsize);
    return s;
}

/* Names of b's columns that a has not, into `dropped`; SPX_EINPUT where that is NULL and there is one. */
static spx_status missing_columns(const spx_table *a, const spx_table *b, spx_text *dropped, spx_err *e)
{
    for (size_t i = 0; i < spx_table_ncol(b) && e->code == SPX_OK; ++i) {
        char *name = spx_table_name(b, (int)i, e);
        if (name == NULL)
            return e->code;
        if (spx_table_find(a, name) < 0 && dropped == NULL)
            spx_fail(e, SPX_EINPUT, "column %s is in one table and not in the other", name);
        else if (spx_table_find(a, name) < 0)
            (void)spx_text_add(dropped, e, "%s\n", name);
        spx_free(name);
    }
    return e->code;
}

/* Column `col` of a could not be joined with that of b, for the reason `why`. */
static spx_status drop_column(const spx_table *a, unsigned col, const spx_err *why, spx_text *dropped, spx_err *e)
{
    if (dropped == NULL || why->code != SPX_EINPUT)
        return spx_fail(e, why->code, "%s", why->msg);
    char *name = spx_table_name(a, (int)col, e);
    if (name != NULL)
        (void)spx_text_add(dropped, e, "%s\n", name);
    spx_free(name);
    return e->code;
}

spx_table *spx_table_append_common(const spx_table *a, const spx_table *b, spx_text *dropped, spx_err *e)
{
    if (a->nrow > SIZE_MAX - b->nrow) {
        spx_fail(e, SPX_EINPUT, "table has too many rows");
        return NULL;
    }
    if (missing_columns(a, b, dropped, e) != SPX_OK)
        return NULL;
    spx_table *s = append_rows(a, b, e);
    if (s != NULL || e->code != SPX_OK || (s = spx_table_new(a->nrow + b->nrow, e)) == NULL)
        return s;
    for (size_t i = 0; i < spx_table_ncol(a) && e->code == SPX_OK; ++i) {
        size_t before = spx_table_ncol(s);
        spx_err why = {0};
        if (append_column(s, a, b, (unsigned)i, &why) == SPX_OK)
            continue;
        if (spx_table_ncol(s) == before) /* seen before anything was written */
            (void)drop_column(a, (unsigned)i, &why, dropped, e);
        else
            spx_fail(e, why.code, "%s", why.msg);
    }
    if (e->code != SPX_OK) {
        spx_table_free(s);
        s = NULL;
    }
    return s;
}

spx_table *spx_table_append(const spx_table *a, const spx_table *b, spx_err *e)
{
    return spx_table_append_common(a, b, NULL, e);
}

/* 1 when column ca of a and cb of b have the same type and, where both have a row, the same values. */
static int same_column(const spx_table *a, const char *have_a, unsigned ca, const spx_table *b, const char *have_b,
                       unsigned cb)
{
    hid_t ta = H5Tget_member_type(a->type, ca), tb = H5Tget_member_type(b->type, cb);
    int same = ta >= 0 && tb >= 0 && H5Tequal(ta, tb) > 0;
    size_t size = same ? H5Tget_size(ta) : 0;
    size_t oa = H5Tget_member_offset(a->type, ca), ob = H5Tget_member_offset(b->type, cb);
    for (size_t r = 0; same && r < a->nrow; ++r)
        if ((have_a == NULL || have_a[r]) && (have_b == NULL || have_b[r]))
            same = memcmp(a->rows + r * a->rowsize + oa, b->rows + r * b->rowsize + ob, size) == 0;
    if (ta >= 0)
        H5Tclose(ta);
    if (tb >= 0)
        H5Tclose(tb);
    return same;
}

/* Rows that only b has: b's values of a column that both have in the same type. */
static void fill_column(spx_table *a, const char *have_a, unsigned ca, const spx_table *b, const char *have_b,
                        unsigned cb)
{
    hid_t ta = H5Tget_member_type(a->type, ca), tb = H5Tget_member_type(b->type, cb);
    size_t size = ta >= 0 && tb >= 0 && H5Tequal(ta, tb) > 0 ? H5Tget_size(ta) : 0;
    size_t oa = H5Tget_member_offset(a->type, ca), ob = H5Tget_member_offset(b->type, cb);
    for (size_t r = 0; size > 0 && r < a->nrow; ++r)
        if (have_a != NULL && !have_a[r] && (have_b == NULL || have_b[r]))
            memcpy(a->rows + r * a->rowsize + oa, b->rows + r * b->rowsize + ob, size);
    if (ta >= 0)
        H5Tclose(ta);
    if (tb >= 0)
        H5Tclose(tb);
}

spx_status spx_table_fill(spx_table *a, const char *have_a, const spx_table *b, const char *have_b, const char *suffix,
                          spx_err *e)
{
    size_t nb = spx_table_ncol(b), n = 0;
    if (a->nrow != b->nrow)
        return spx_fail(e, SPX_EINPUT, "tables of %zu and %zu rows cannot be joined", a->nrow, b->nrow);
    column *c = spx_alloc(nb, sizeof *c, e);
    char **name = c == NULL ? NULL : spx_alloc(nb, sizeof *name, e);
    for (size_t i = 0; name != NULL && e->code == SPX_OK && i < nb; ++i) {
        char *plain = spx_table_name(b, (int)i, e);
        int have = plain == NULL ? -1 : spx_table_find(a, plain);
        if (plain == NULL || (have >= 0 && same_column(a, have_a, (unsigned)have, b, have_b, (unsigned)i))) {
            spx_free(plain);
            continue;
        }
        if (have >= 0 && (suffix == NULL || suffix[0] == '\0')) {
            spx_fail(e, SPX_EINPUT, "column %s differs between the tables", plain);
            spx_free(plain);
            break;
        }
        name[n] = plain;
        if (have >= 0) {
            size_t len = strlen(plain) + strlen(suffix) + 1;
            name[n] = spx_alloc(len, 1, e);
            if (name[n] != NULL)
                (void)snprintf(name[n], len, "%s%s", plain, suffix);
            spx_free(plain);
        }
        c[n].name = name[n];
        c[n].type = H5Tget_member_type(b->type, (unsigned)i);
        c[n].unit = unit_at(b->units, i, &c[n].unitlen);
        c[n].data = b->nrow == 0 ? NULL : b->rows + H5Tget_member_offset(b->type, (unsigned)i);
        c[n].stride = b->rowsize;
        ++n;
    }
    if (name != NULL && e->code == SPX_OK && table_extend(a, n, c, e) == SPX_OK)
        for (size_t i = 0; i < nb; ++i) {
            char *plain = spx_table_name(b, (int)i, e);
            if (plain == NULL)
                break;
            fill_column(a, have_a, (unsigned)spx_table_find(a, plain), b, have_b, (unsigned)i);
            spx_free(plain);
        }
    for (size_t i = 0; name != NULL && i < n; ++i) {
        spx_free(name[i]);
        if (c[i].type >= 0)
            H5Tclose(c[i].type);
    }
    spx_free(name);
    spx_free(c);
    return e->code;
}

spx_status spx_table_join(spx_table *a, const spx_table *b, const char *suffix, spx_err *e)
{
    return spx_table_fill(a, NULL, b, NULL, suffix, e);
}

/* ---- files ---- */

/* Attribute column_units: one string a column. A file of another origin may have it otherwise: then there are none. */
static spx_status read_units(hid_t dset, size_t ncol, char **out, spx_err *e)
{
    if (H5Aexists(dset, "column_units") <= 0)
        return SPX_OK;
    hid_t attr = H5Aopen(dset, "column_units", H5P_DEFAULT);
    hid_t type = attr < 0 ? H5I_INVALID_HID : H5Aget_type(attr);
    hid_t space = attr < 0 ? H5I_INVALID_HID : H5Aget_space(attr);
    hssize_t n = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    size_t size = type < 0 ? 0 : H5Tget_size(type);
    char *raw = NULL, *text = NULL;
    if (type >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) == 0 && n >= 0 && (size_t)n == ncol &&
        size > 0 && size <= MAX_UNITS) {
        raw = spx_alloc2(ncol, size, 1, e);
        text = raw == NULL ? NULL : spx_alloc2(ncol, size + 1, 1, e);
        if (text != NULL && H5Aread(attr, type, raw) >= 0) {
            char *p = text;
            for (size_t i = 0; i < ncol; ++i) {
                const char *s = raw + i * size;
                size_t len = strnlen(s, size);
                while (len > 0 && isspace((unsigned char)s[len - 1]))
                    --len;
                if (i > 0)
                    *p++ = '\n';
                for (size_t k = 0; k < len; ++k)
                    *p++ = s[k] == '\n' ? ' ' : s[k];
            }
            *out = text;
            text = NULL;
        }
    }
    spx_free(raw);
    spx_free(text);
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    if (attr >= 0)
        H5Aclose(attr);
    return e->code;
}

static spx_status write_units(hid_t loc, const char *path, const spx_table *t, spx_err *e)
{
    if (t->units == NULL)
        return SPX_OK;
    size_t ncol = spx_table_ncol(t), size = 1;
    for (size_t i = 0; i < ncol; ++i) {
        size_t len;
        (void)unit_at(t->units, i, &len);
        size = len > size ? len : size;
    }
    if (size > MAX_UNITS / ncol)
        return spx_fail(e, SPX_EINPUT, "%s: units of %zu columns with up to %zu characters do not fit an attribute",
                        path, ncol, size);
    char *raw = spx_alloc2(ncol, size, 1, e);
    if (raw == NULL)
        return e->code;
    for (size_t i = 0; i < ncol; ++i) {
        size_t len;
        const char *u = unit_at(t->units, i, &len);
        memcpy(raw + i * size, u, len);
    }
    hsize_t dim = ncol;
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, &dim, NULL), attr = H5I_INVALID_HID;
    if (type >= 0 && space >= 0 && H5Tset_size(type, size) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0)
        attr = H5Acreate_by_name(loc, path, "column_units", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (attr < 0 || H5Awrite(attr, type, raw) < 0)
        spx_fail(e, SPX_EIO, "%s:%s: attribute column_units cannot be written", spx_h5_filename(loc), path);
    if (attr >= 0)
        H5Aclose(attr);
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    spx_free(raw);
    return e->code;
}

spx_status spx_table_read(hid_t loc, const char *path, spx_table **out, spx_err *e)
{
    *out = NULL;
    if (!spx_h5_exists(loc, path))
        return SPX_OK;
    hid_t dset = spx_h5_open(loc, path, e);
    if (dset < 0)
        return e->code;
    hid_t filetype = H5Dget_type(dset), space = H5Dget_space(dset);
    hsize_t nrow = 0;
    spx_table *t = NULL;
    size_t bytes = 0;
    if (filetype < 0 || space < 0) {
        spx_fail(e, SPX_EINPUT, "is not readable: is the file damaged?");
    } else if (H5Tget_class(filetype) != H5T_COMPOUND) {
        spx_fail(e, SPX_EINPUT, "is not a table: a compound dataset is wanted here");
    } else if (!type_is_plain(filetype, 0)) {
        spx_fail(e, SPX_EINPUT,
                 "has a column of variable length, or of references: store it with fixed-length columns");
    } else if (H5Sis_simple(space) <= 0 || H5Sget_simple_extent_ndims(space) != 1 ||
               H5Sget_simple_extent_dims(space, &nrow, NULL) != 1) {
        spx_fail(e, SPX_EINPUT, "is not a one-dimensional table");
    } else if (nrow > SIZE_MAX / 2 || spx_mul((size_t)nrow, H5Tget_size(filetype), &bytes, e) != SPX_OK ||
               spx_h5_overclaims(dset, bytes)) {
        spx_err_clear(e);
        spx_fail(e, SPX_EINPUT, "claims %llu rows that the file does not hold: it is damaged or was not finished",
                 (unsigned long long)nrow);
    } else if ((t = spx_table_new((size_t)nrow, e)) != NULL) {
        t->type = H5Tcopy(filetype);
        t->rowsize = H5Tget_size(filetype);
        t->rows = spx_alloc(bytes, 1, e);
        if (t->type < 0)
            spx_fail(e, SPX_EIO, "row type cannot be copied: out of memory");
        else if (t->rows != NULL && nrow > 0 && H5Dread(dset, t->type, H5S_ALL, H5S_ALL, H5P_DEFAULT, t->rows) < 0)
            spx_fail(e, SPX_EINPUT,
                     "cannot be read: the file is damaged, or packed with a filter that is missing here");
        else if (t->rows != NULL)
            (void)read_units(dset, spx_table_ncol(t), &t->units, e);
    }
    if (e->code != SPX_OK) {
        spx_err_context(e, "%s:%s", spx_h5_filename(loc), path);
        spx_table_free(t);
        t = NULL;
    }
    *out = t;
    if (space >= 0)
        H5Sclose(space);
    if (filetype >= 0)
        H5Tclose(filetype);
    H5Dclose(dset);
    return e->code;
}

spx_status spx_table_write(hid_t loc, const char *path, const spx_table *t, spx_err *e)
{
    if (t == NULL)
        return SPX_OK;
    if (t->type < 0)
        return spx_fail(e, SPX_EINPUT, "%s: a table without columns cannot be stored", path);
    if (spx_h5_write(loc, path, t->type, 1, &t->nrow, t->rows, e) != SPX_OK)
        return e->code;
    return write_units(loc, path, t, e);
}
