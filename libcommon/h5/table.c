/* Provides tables in memory: columns of any plain HDF5 type with units, rows as bytes; values are read and set by
 * name. */
#include "h5/table_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "h5/object.h"
#include "h5/write.h"

enum { MAX_DEPTH = 16 }; /* nesting of types */

/* ---- types ---- */

/* 1 when a type has a fixed size: rows are moved as bytes, and must not contain pointers. */
int spx_table_type_is_plain(hid_t type, int depth)
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
        int ok = base >= 0 && spx_table_type_is_plain(base, depth + 1);
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
            ok = msize > 0 && msize <= size && off <= size - msize && spx_table_type_is_plain(m, depth + 1);
            H5Tclose(m);
        }
        return ok;
    }
    default: /* variable length, references, and types of later versions of HDF5 */
        return 0;
    }
}

/* Element type of an array (of arrays), and the number of elements. */
hid_t spx_table_type_base(hid_t type, size_t *nelem)
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

int spx_table_same_array_shape(hid_t a, hid_t b)
{
    hsize_t da[H5S_MAX_RANK], db[H5S_MAX_RANK];
    if (H5Tget_class(a) != H5T_ARRAY || H5Tget_class(b) != H5T_ARRAY)
        return H5Tget_class(a) != H5T_ARRAY && H5Tget_class(b) != H5T_ARRAY;
    int na = H5Tget_array_ndims(a), nb = H5Tget_array_ndims(b);
    return na == nb && na > 0 && H5Tget_array_dims2(a, da) == na && H5Tget_array_dims2(b, db) == nb &&
           memcmp(da, db, (size_t)na * sizeof *da) == 0;
}

/* ---- columns ---- */

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

const char *spx_table_unit(const spx_table *t, int col)
{
    return t->unit == NULL || col < 0 || (size_t)col >= spx_table_ncol(t) ? "" : t->unit[col];
}

char **spx_table_units(size_t n, const char *const *unit, spx_err *e)
{
    size_t chars = 0;
    int any = 0;
    for (size_t i = 0; i < n; ++i) {
        size_t len = unit[i] == NULL ? 0 : strlen(unit[i]);
        any |= len > 0;
        chars += len + 1;
    }
    char **out = any ? spx_alloc(n * sizeof *out + chars, 1, e) : NULL;
    char *p = out == NULL ? NULL : (char *)(out + n);
    for (size_t i = 0; out != NULL && i < n; ++i) {
        size_t len = unit[i] == NULL ? 0 : strlen(unit[i]);
        out[i] = p;
        if (len > 0)
            memcpy(p, unit[i], len);
        p += len + 1; /* the block is zeroed */
    }
    return out;
}

/* Units of all columns of t, followed by those of the new ones; *out stays NULL when no column has one. */
static spx_status units_extend(const spx_table *t, size_t n, const spx_table_column *c, char ***out, spx_err *e)
{
    size_t ncol = spx_table_ncol(t);
    const char **unit = spx_alloc(ncol + n, sizeof *unit, e);
    if (unit == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < ncol; ++i)
        unit[i] = spx_table_unit(t, (int)i);
    for (size_t i = 0; i < n; ++i)
        unit[ncol + i] = c[i].unit;
    spx_err err = {0}; /* NULL is no failure where no column has a unit */
    *out = spx_table_units(ncol + n, unit, &err);
    spx_free(unit);
    return err.code == SPX_OK ? SPX_OK : spx_err_pass(e, &err);
}

/* Adds n columns at once; t is unchanged on failure. */
spx_status spx_table_extend(spx_table *t, size_t n, const spx_table_column *c, spx_err *e)
{
    if (n == 0)
        return SPX_OK;
    size_t newsize = t->rowsize;
    for (size_t i = 0; i < n; ++i) {
        if (!spx_table_type_is_plain(c[i].type, 0))
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
    char *rows = NULL, **units = NULL;
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
    spx_free(t->unit);
    t->type = type;
    t->rows = rows;
    t->unit = units;
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
    spx_free(t->unit);
    spx_free(t);
}

spx_status spx_table_add(spx_table *t, const char *name, hid_t type, const char *unit, const void *data, spx_err *e)
{
    spx_table_column c = {name, type, unit, data, H5Tget_size(type)};
    return spx_table_extend(t, 1, &c, e);
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
    spx_table_column c = {.name = name, .type = H5Tget_member_type(from->type, (unsigned)col), .stride = from->rowsize};
    c.unit = spx_table_unit(from, col);
    c.data = from->nrow == 0 ? NULL : from->rows + H5Tget_member_offset(from->type, (unsigned)col);
    (void)spx_table_extend(t, 1, &c, e);
    if (c.type >= 0)
        H5Tclose(c.type);
    return e->code;
}

/* ---- values ---- */

/* Gathers column `col` of t into new memory, elements `cell` bytes apart (cell >= size of the column). */
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

/* Reads a scalar numeric column as `want` (8 bytes an element). `integer`: integers only. */
static spx_status get_number(const spx_table *t, const char *name, hid_t want, int integer, void *out, spx_err *e)
{
    int col = spx_table_find(t, name);
    if (col < 0)
        return no_column(t, name, e);
    hid_t member = H5Tget_member_type(t->type, (unsigned)col);
    size_t nelem = 0;
    hid_t base = member < 0 ? H5I_INVALID_HID : spx_table_type_base(member, &nelem);
    if (base >= 0 && H5Tget_class(base) == H5T_ENUM) { /* logical columns are enumerations */
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

spx_status spx_table_get_row(const spx_table *t, const char *name, size_t row, size_t *n, double **out, spx_err *e)
{
    const int col = spx_table_find(t, name);
    if (col < 0)
        return no_column(t, name, e);
    const hid_t member = H5Tget_member_type(t->type, (unsigned)col);
    const hid_t base = member < 0 ? H5I_INVALID_HID : spx_table_type_base(member, n);
    const H5T_class_t class = base < 0 ? H5T_NO_CLASS : H5Tget_class(base);
    const size_t size = base < 0 ? 0 : H5Tget_size(base);
    spx_status st = SPX_OK;
    if (!(class == H5T_INTEGER || class == H5T_FLOAT) || size > 8 || row >= t->nrow)
        st = spx_fail(e, SPX_EINPUT, "column %s does not hold numbers", name);
    /* H5Tconvert() works in place */
    else if ((*out = spx_alloc(*n, sizeof **out, e)) == NULL)
        st = SPX_EIO;
    else {
        memcpy(*out, t->rows + row * t->rowsize + H5Tget_member_offset(t->type, (unsigned)col), *n * size);
        if (H5Tconvert(base, H5T_NATIVE_DOUBLE, *n, *out, NULL, H5P_DEFAULT) < 0)
            st = spx_fail(e, SPX_EINPUT, "column %s has a number format that cannot be converted", name);
    }
    if (st != SPX_OK && *out != NULL) {
        spx_free(*out);
        *out = NULL;
    }
    if (base >= 0)
        H5Tclose(base);
    if (member >= 0)
        H5Tclose(member);
    return st;
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
    int64_t v = value; /* H5Tconvert() works in place */
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
