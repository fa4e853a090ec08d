/* Reads and writes tables as compound datasets. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "h5/failure.h"
#include "h5/internal.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/table_internal.h"
#include "h5/write.h"

/* Reads attribute column_units, one string a column; none where a foreign file has it in another form. */
static spx_status read_units(hid_t dset, size_t ncol, char ***out, spx_err *e)
{
    const htri_t found = H5Aexists(dset, "column_units");
    if (found < 0)
        spx_h5_lookup_failed(dset, ".");
    if (found <= 0)
        return SPX_OK;
    spx_h5_attribute a;
    const int open = spx_h5_attribute_open(dset, "column_units", &a);
    const hssize_t n = open ? H5Sget_simple_extent_npoints(a.space) : -1;
    const size_t size = open ? H5Tget_size(a.type) : 0;
    char *raw = NULL, *text = NULL;
    const char **unit = NULL;
    if (open && H5Tget_class(a.type) == H5T_STRING && H5Tis_variable_str(a.type) == 0 && n >= 0 && (size_t)n == ncol &&
        size > 0 && size <= SPX_TABLE_MAX_UNITS && (raw = spx_alloc2(ncol, size, 1, e)) != NULL &&
        (text = spx_alloc2(ncol, size + 1, 1, e)) != NULL && (unit = spx_alloc(ncol, sizeof *unit, e)) != NULL &&
        H5Aread(a.id, a.type, raw) >= 0) {
        for (size_t i = 0; i < ncol; ++i) {
            const char *s = raw + i * size;
            char *u = text + i * (size + 1); /* zeroed: ends with NUL */
            size_t len = strnlen(s, size);
            while (len > 0 && isspace((unsigned char)s[len - 1]))
                --len;
            for (size_t k = 0; k < len; ++k)
                u[k] = s[k] == '\n' ? ' ' : s[k]; /* tables are printed with a line a row */
            unit[i] = u;
        }
        *out = spx_table_units(ncol, unit, e);
    }
    spx_free(raw);
    spx_free(text);
    spx_free(unit);
    spx_h5_attribute_close(&a);
    return e->code;
}

static spx_status write_units(hid_t loc, const char *path, const spx_table *t, spx_err *e)
{
    if (t->unit == NULL)
        return SPX_OK;
    size_t ncol = spx_table_ncol(t), size = 1;
    for (size_t i = 0; i < ncol; ++i) {
        size_t len = strlen(t->unit[i]);
        size = len > size ? len : size;
    }
    if (size > SPX_TABLE_MAX_UNITS / ncol)
        return spx_fail_at(e, SPX_EINPUT, NULL, path, NULL,
                           "units of %zu columns with up to %zu characters do not fit an attribute", ncol, size);
    char *raw = spx_alloc2(ncol, size, 1, e);
    if (raw == NULL)
        return e->code;
    for (size_t i = 0; i < ncol; ++i)
        memcpy(raw + i * size, t->unit[i], strlen(t->unit[i]));
    hsize_t dim = ncol;
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, &dim, NULL), attr = H5I_INVALID_HID;
    if (type >= 0 && space >= 0 && H5Tset_size(type, size) >= 0 && H5Tset_strpad(type, H5T_STR_NULLPAD) >= 0)
        attr = H5Acreate_by_name(loc, path, "column_units", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (attr < 0 || H5Awrite(attr, type, raw) < 0)
        spx_fail_at(e, SPX_EIO, spx_h5_filename(loc), path, NULL, "attribute column_units cannot be written");
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
    } else if (!spx_table_type_is_plain(filetype, 0)) {
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
        else if (t->rows != NULL && (nrow == 0 || spx_h5_get(dset, t->type, H5S_ALL, H5S_ALL, t->rows, e) == SPX_OK))
            (void)read_units(dset, spx_table_ncol(t), &t->unit, e);
    }
    if (e->code != SPX_OK) {
        spx_err_at(e, spx_h5_filename(loc), path);
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

/* ---- which tables there are ---- */

/* Groups are followed to this depth: hard links may make a cycle. */
enum { DEEPEST = 8 };

typedef struct {
    spx_table_entry *entry;
    size_t n, capacity;
} table_list;

/* Names of a compound type's members, with commas between; NULL: no memory. */
static char *member_names(hid_t type, spx_err *e)
{
    spx_text t = {0};
    spx_status st = SPX_OK;
    const int n = H5Tget_nmembers(type);
    for (int i = 0; i < n && st == SPX_OK; i++) {
        char *name = H5Tget_member_name(type, (unsigned)i);
        st = name == NULL ? spx_fail(e, SPX_EIO, "out of memory") : spx_text_add(&t, e, "%s%s", i > 0 ? "," : "", name);
        (void)H5free_memory(name);
    }
    if (st != SPX_OK)
        spx_text_free(&t);
    return t.s;
}

/* Appends dataset `path` where it is a table. */
static spx_status list_dataset(hid_t loc, const char *path, table_list *l, spx_err *e)
{
    spx_status st = SPX_OK;
    hid_t d = spx_h5_open(loc, path, e);
    if (d < 0)
        return e->code;
    hid_t type = H5Dget_type(d), space = H5Dget_space(d);
    hsize_t nrow = 0;
    if (type >= 0 && space >= 0 && H5Tget_class(type) == H5T_COMPOUND && H5Sget_simple_extent_ndims(space) == 1 &&
        H5Sget_simple_extent_dims(space, &nrow, NULL) == 1) {
        spx_table_entry *more = spx_grow(l->entry, l->n, 1, &l->capacity, sizeof *more, e);
        spx_table_entry t = {.nrow = (size_t)nrow};
        if (more != NULL)
            l->entry = more;
        if (more == NULL || (t.path = spx_strdup(path, e)) == NULL || (t.columns = member_names(type, e)) == NULL) {
            spx_free(t.path);
            st = SPX_EIO;
        } else {
            l->entry[l->n++] = t;
        }
    }
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    H5Dclose(d);
    return st;
}

static spx_status list_group(hid_t loc, const char *group, int depth, table_list *l, spx_err *e)
{
    size_t n = 0;
    char **name = NULL;
    spx_status st = spx_h5_list(loc, group, &n, &name, e);
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        char path[600];
        H5O_info_t info;
        const int len = snprintf(path, sizeof path, "%s/%s", strcmp(group, "/") == 0 ? "" : group, name[i]);
        if (len < 0 || (size_t)len >= sizeof path || !spx_h5_exists(loc, path))
            continue;
        if (H5Oget_info_by_name1(loc, path, &info, H5P_DEFAULT) < 0)
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(loc), path, NULL, "is not readable: is the file damaged?");
        else if (info.type == H5O_TYPE_GROUP && depth < DEEPEST)
            st = list_group(loc, path, depth + 1, l, e);
        else if (info.type == H5O_TYPE_DATASET)
            st = list_dataset(loc, path, l, e);
    }
    spx_h5_names_free(n, name);
    return st;
}

spx_status spx_table_list(hid_t loc, const char *group, size_t *n, spx_table_entry **out, spx_err *e)
{
    table_list l = {0};
    const spx_status st = list_group(loc, group, 0, &l, e);
    *n = st == SPX_OK ? l.n : 0;
    *out = st == SPX_OK ? l.entry : NULL;
    if (st != SPX_OK)
        spx_table_list_free(l.n, l.entry);
    return st;
}

void spx_table_list_free(size_t n, spx_table_entry *list)
{
    for (size_t i = 0; list != NULL && i < n; i++) {
        spx_free(list[i].path);
        spx_free(list[i].columns);
    }
    spx_free(list);
}

spx_status spx_table_write(hid_t loc, const char *path, const spx_table *t, spx_err *e)
{
    if (t == NULL)
        return SPX_OK;
    if (t->type < 0)
        return spx_fail_at(e, SPX_EINPUT, NULL, path, NULL, "a table without columns cannot be stored");
    if (spx_h5_write(loc, path, t->type, 1, &t->nrow, t->rows, e) != SPX_OK)
        return e->code;
    return write_units(loc, path, t, e);
}
