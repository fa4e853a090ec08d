/* Checks files against the schema: spx_schema_accept() for readers of one block, spx_schema_check() for h5check. */
#include <ctype.h>
#include <hdf5_hl.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/provenance.h"
#include "h5/read.h"
#include "h5/schema_internal.h"
#include "h5/table.h"

spx_status spx_schema_accept(hid_t loc, const char *path, const char *type, spx_err *e)
{
    char have[64], version[64];
    const char *known = NULL;
    size_t n;
    const spx_item *it = spx_schema_items(&n);
    for (size_t i = 0; i < n && known == NULL; i++)
        if (strcmp(it[i].block, type) == 0)
            known = it[i].version;
    if (known == NULL)
        return spx_fail(e, SPX_EBUG, "no schema is called %s", type);
    spx_status st = SPX_OK;
    if (!spx_h5_exists(loc, path))
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(loc), path, NULL,
                           "is missing: this program needs the block %s", type);
    if (!spx_h5_has_attr(loc, path, "type"))
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(loc), path,
                           "h5check lists all that is, and specpipe-schema(5) has an example of how to write a file",
                           "attribute 'type' is missing");
    if ((st = spx_h5_attr_str(loc, path, "type", have, sizeof have, e)) != SPX_OK ||
        (st = spx_h5_attr_str(loc, path, "version", version, sizeof version, e)) != SPX_OK)
        return st;
    if (strcmp(have, type) != 0)
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(loc), path, NULL, "is a block of type '%s', not '%s'", have,
                           type);
    if (strtol(version, NULL, 10) > strtol(known, NULL, 10))
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(loc), path, "use a newer specpipe",
                           "was written with schema version %s, this program knows %s", version, known);
    return SPX_OK;
}

/* ---- checking ---- */

typedef struct {
    char scope[256], name[32];
    size_t length;
    char first[512];
} known_dim;

typedef struct {
    hid_t file;
    const char *name;
    FILE *out;
    size_t nbad;
    known_dim *dim;
    size_t ndim, dim_capacity;
    size_t failures; /* of memory, before the check */
    spx_err *e;
    spx_status st;
} checker;

/* 1 when an allocation failed: findings since then are no property of the file. */
static int out_of_memory(checker *c)
{
    if (spx_mem_failures() != c->failures && c->st == SPX_OK)
        c->st = spx_fail_at(c->e, SPX_EIO, c->name, NULL, NULL,
                            "cannot be checked: out of memory, or more than --max-mem allows");
    return c->st != SPX_OK;
}

static void SPX_PRINTF(3, 4) violation(checker *c, const char *path, const char *fmt, ...)
{
    va_list ap;
    if (out_of_memory(c))
        return;
    va_start(ap, fmt);
    fprintf(c->out, "%s:%s: ", c->name, path);
    vfprintf(c->out, fmt, ap);
    fputc('\n', c->out);
    va_end(ap);
    c->nbad++;
}

/* Name of an HDF5 type in the schema's words, such as "float64". */
static void type_name(hid_t t, char *out, size_t size)
{
    size_t n = H5Tget_size(t);
    switch (H5Tget_class(t)) {
    case H5T_INTEGER:
    case H5T_ENUM:
        (void)snprintf(out, size, "%sint%zu", H5Tget_sign(t) == H5T_SGN_NONE ? "u" : "", 8 * n);
        break;
    case H5T_FLOAT:
        (void)snprintf(out, size, "float%zu", 8 * n);
        break;
    case H5T_STRING:
        if (H5Tis_variable_str(t) > 0)
            (void)snprintf(out, size, "text of variable length");
        else
            (void)snprintf(out, size, "string%zu", n);
        break;
    case H5T_COMPOUND:
        (void)snprintf(out, size, "table");
        break;
    default:
        (void)snprintf(out, size, "another type");
    }
}

static int type_allowed(const char *types, size_t ntypes, const char *have)
{
    for (const char *p = types, *end = types + ntypes; p < end;) {
        size_t n = 0;
        while (p + n < end && p[n] != '|')
            n++;
        if (spx_schema_same(p, n, "any") || spx_schema_same(p, n, have) ||
            (spx_schema_same(p, n, "string") && strncmp(have, "string", 6) == 0))
            return 1;
        p += n + 1;
    }
    return 0;
}

/* MAJOR of text "MAJOR.MINOR"; -1: another form. */
static long major_of(const char *version)
{
    char *end;
    if (!isdigit((unsigned char)version[0]))
        return -1;
    long major = strtol(version, &end, 10);
    if (end[0] != '.' || !isdigit((unsigned char)end[1]))
        return -1;
    for (end++; *end != '\0'; end++)
        if (!isdigit((unsigned char)*end))
            return -1;
    return major;
}

static void check_dim(checker *c, const char *path, const char *name, size_t length)
{
    if (strcmp(name, "*") == 0)
        return;
    char scope[256] = "";
    if (isdigit((unsigned char)name[0])) {
        if (strtoull(name, NULL, 10) != length)
            violation(c, path, "a dimension is %zu, should be %s", length, name);
        return;
    }
    if (strcmp(name, "nspec") != 0 && strcmp(name, "nexp") != 0) {
        const char *slash = strrchr(path, '/');
        (void)snprintf(scope, sizeof scope, "%.*s", (int)(slash - path), path);
    }
    for (size_t i = 0; i < c->ndim; i++)
        if (strcmp(c->dim[i].scope, scope) == 0 && strcmp(c->dim[i].name, name) == 0) {
            if (c->dim[i].length != length)
                violation(c, path, "dimension %s is %zu, but %zu in %s", name, length, c->dim[i].length,
                          c->dim[i].first);
            return;
        }
    known_dim *more = spx_grow(c->dim, c->ndim, 1, &c->dim_capacity, sizeof *more, c->e);
    if (more == NULL) {
        c->st = SPX_EIO;
        return;
    }
    c->dim = more;
    known_dim *d = &c->dim[c->ndim++];
    (void)snprintf(d->scope, sizeof d->scope, "%s", scope);
    (void)snprintf(d->name, sizeof d->name, "%s", name);
    (void)snprintf(d->first, sizeof d->first, "%s", path);
    d->length = length;
}

/* 1 when the file can hold as much data as the shape claims: reading a false claim could take for ever. */
static int check_size(checker *c, const char *path, hid_t d, hid_t type, const size_t *dims, int ndim)
{
    size_t bytes = H5Tget_size(type);
    for (int i = 0; i < ndim; i++)
        if (spx_mul(bytes, dims[i], &bytes, NULL) != SPX_OK) {
            violation(c, path, "claims more data than a file can hold");
            return 0;
        }
    if (spx_h5_overclaims(d, bytes)) {
        violation(c, path, "claims more data than the file holds");
        return 0;
    }
    return 1;
}

static void check_values(checker *c, const char *path, const spx_item *it, const size_t *dims, int ndim)
{
    size_t row = 1, nrow = ndim > 0 ? dims[0] : 1;
    for (int i = 1; i < ndim; i++)
        row *= dims[i]; /* no overflow: check_size() has bounded the product */
    size_t step = row > 0 ? ((size_t)1 << 20) / row + 1 : nrow;
    size_t nan = 0, negative = 0, first_nan = 0, first_negative = 0;
    double last = -INFINITY;
    int ordered = 1;
    if (step > nrow)
        step = nrow;
    double *v = spx_alloc2(step, row, sizeof *v, c->e);
    if (v == NULL) {
        c->st = SPX_EIO;
        return;
    }
    for (size_t r = 0; r < nrow; r += step) {
        size_t n = nrow - r < step ? nrow - r : step;
        spx_err err = {0};
        if (spx_h5_read_rows(c->file, path, H5T_NATIVE_DOUBLE, r, n, v, &err) != SPX_OK) {
            violation(c, path, "cannot be read");
            break;
        }
        for (size_t i = 0; i < n * row; i++) {
            if (!isfinite(v[i]) && nan++ == 0)
                first_nan = r * row + i;
            if (ndim > 1 && i % row == 0)
                last = -INFINITY;
            if (v[i] < 0 && negative++ == 0)
                first_negative = r * row + i;
            if (!(v[i] > last))
                ordered = 0;
            last = v[i];
        }
    }
    spx_free(v);
    if (it->finite && nan > 0)
        violation(c, path, "%zu values are NaN or Inf (the first is number %zu)", nan, first_nan);
    if (it->nonnegative && negative > 0)
        violation(c, path, "%zu values are negative (the first is number %zu)", negative, first_negative);
    if (it->increasing && !ordered)
        violation(c, path, "values do not increase");
}

/* Checks required attributes: attrs=NAME,NAME:a|b. */
static void check_attrs(checker *c, const char *path, const char *attrs)
{
    for (const char *p = attrs; *p != '\0';) {
        size_t n = strcspn(p, ","), len = strcspn(p, ":,");
        char name[64], value[256];
        spx_schema_put(name, sizeof name, p, len, attrs);
        spx_err err = {0};
        if (!spx_h5_has_attr(c->file, path, name))
            violation(c, path, "attribute %s is missing", name);
        else if (p[len] == ':') {
            if (spx_h5_attr_str(c->file, path, name, value, sizeof value, &err) != SPX_OK ||
                !type_allowed(p + len + 1, n - len - 1, value))
                violation(c, path, "attribute %s should be one of %.*s", name, (int)(n - len - 1), p + len + 1);
        }
        p += n + (p[n] == ',');
    }
}

/* Checks that columns without a schema have fixed sizes, so that every reader can copy rows as bytes. */
static void check_column_sizes(checker *c, const char *path, hid_t type)
{
    int n = H5Tget_nmembers(type);
    for (int i = 0; i < n; i++) {
        hid_t m = H5Tget_member_type(type, (unsigned)i);
        char *name = H5Tget_member_name(type, (unsigned)i);
        H5T_class_t class = m < 0 ? H5T_NO_CLASS : H5Tget_class(m);
        if (class == H5T_NO_CLASS || class == H5T_VLEN || class == H5T_REFERENCE ||
            (class == H5T_STRING && H5Tis_variable_str(m) > 0) || H5Tdetect_class(m, H5T_VLEN) > 0 ||
            H5Tdetect_class(m, H5T_REFERENCE) > 0)
            violation(c, path, "column %s has no fixed size", name != NULL ? name : "?");
        H5free_memory(name);
        if (m >= 0)
            (void)H5Tclose(m);
    }
}

/* Units of required columns; what came with a table from elsewhere keeps the units that it had. */
static void check_column_units(checker *c, const char *path, const char *name, const char *units)
{
    spx_table *t = NULL;
    spx_err err = {0};
    if (units[0] == '\0' || spx_table_read(c->file, path, &t, &err) != SPX_OK || t == NULL) {
        spx_table_free(t);
        return;
    }
    const char *have = spx_table_unit(t, spx_table_find(t, name));
    if (strcmp(units, have) != 0)
        violation(c, path, "column %s is in '%s', should be in %s", name, have, units);
    spx_table_free(t);
}

static void check_table_columns(checker *c, const char *path, const spx_item *it, hid_t type)
{
    for (size_t k = 0; k < it->ncolumn; k++) {
        const spx_schema_column *want = &it->column[k];
        char have[64];
        int i = H5Tget_member_index(type, want->name);
        if (i < 0 && want->required)
            violation(c, path, "column %s is missing", want->name);
        if (i >= 0) {
            hid_t m = H5Tget_member_type(type, (unsigned)i);
            type_name(m, have, sizeof have);
            if (!type_allowed(want->types, strlen(want->types), have))
                violation(c, path, "column %s is %s, should be %s", want->name, have, want->types);
            else if (want->required)
                check_column_units(c, path, want->name, want->units);
            (void)H5Tclose(m);
        }
    }
}

spx_status spx_schema_check_units(hid_t file, const char *path, spx_err *e)
{
    char have[64];
    const spx_item *it = spx_schema_find(path);
    if (it == NULL || it->units[0] == '\0' || !spx_h5_has_attr(file, path, "units"))
        return SPX_OK;
    const spx_status st = spx_h5_attr_str(file, path, "units", have, sizeof have, e);
    if (st == SPX_OK && strcmp(have, it->units) != 0)
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL, "has units '%s': should be %s", have,
                           it->units);
    return st;
}

/* Checks that a mask has names of its bits (CF conventions). */
static void check_flags(checker *c, const char *path)
{
    long n, have;
    if (!spx_h5_has_attr(c->file, path, "flag_masks") || !spx_h5_has_attr(c->file, path, "flag_meanings")) {
        violation(c, path, "attributes flag_masks and flag_meanings of a mask are missing");
        return;
    }
    spx_h5_count_flags(c->file, path, &n, &have);
    if (n != have)
        violation(c, path, "attribute flag_masks has %ld bits, but flag_meanings names %ld", n, have);
}

/* 1 when there is a dataset of one dimension. */
static int is_axis(const checker *c, const char *path)
{
    int ndim = 0;
    size_t dims[SPX_H5_MAXDIM];
    spx_err err = {0};
    return spx_h5_exists(c->file, path) && spx_h5_shape(c->file, path, &ndim, dims, &err) == SPX_OK && ndim == 1;
}

/* Checks that a dimension with an axis in the same group (a dataset that the schema calls a scale) is attached to
 * it. */
static void check_attached(checker *c, const char *path, const spx_item *it)
{
    const char *leaf = strrchr(it->path, '/');
    size_t n = (size_t)(leaf - it->path) + 1, dir = (size_t)(strrchr(path, '/') - path) + 1;
    size_t nitem;
    const spx_item *items = spx_schema_items(&nitem);
    for (size_t i = 0; i < nitem; i++) {
        const spx_item *axis = &items[i];
        char sibling[700];
        if (axis == it || !axis->scale || strncmp(axis->path, it->path, n) != 0 || strchr(axis->path + n, '/') != NULL)
            continue;
        (void)snprintf(sibling, sizeof sibling, "%.*s%s", (int)dir, path, axis->path + n);
        for (int k = 0; k < it->ndim; k++) {
            if (strcmp(it->dim[k], axis->dim[0]) != 0 || !is_axis(c, sibling))
                continue;
            hid_t d = H5Dopen2(c->file, path, H5P_DEFAULT);
            if (d < 0 || !spx_h5_has_scales(d) || H5DSget_num_scales(d, (unsigned)k) < 1)
                violation(c, path, "dimension %s is not attached to the axis %s", it->dim[k], sibling);
            if (d >= 0)
                (void)H5Dclose(d);
        }
    }
}

static void check_dataset(checker *c, const char *path, const spx_item *it)
{
    int ndim;
    size_t dims[SPX_H5_MAXDIM];
    spx_err err = {0};
    char have[64];
    if (it->kind == SPX_ITEM_GROUP) {
        violation(c, path, "is a dataset, should be a group");
        return;
    }
    if (spx_h5_shape(c->file, path, &ndim, dims, &err) != SPX_OK) {
        if (err.code == SPX_EIO)
            c->st = spx_err_pass(c->e, &err);
        violation(c, path, "cannot be opened, or keeps its data outside the file");
        return;
    }
    hid_t d = H5Dopen2(c->file, path, H5P_DEFAULT), t = H5Dget_type(d);
    type_name(t, have, sizeof have);
    if (it->kind == SPX_ITEM_TABLE) {
        if (H5Tget_class(t) != H5T_COMPOUND)
            violation(c, path, "is %s, should be a table (compound)", have);
        else
            check_column_sizes(c, path, t), check_table_columns(c, path, it, t);
    } else if (!type_allowed(it->types, strlen(it->types), have)) {
        violation(c, path, "is %s, should be %s", have, it->types);
    }
    int numbers = H5Tget_class(t) == H5T_FLOAT || H5Tget_class(t) == H5T_INTEGER;
    int whole = check_size(c, path, d, t, dims, ndim);
    (void)H5Tclose(t);
    (void)H5Dclose(d);
    int any = it->ndim == 1 && strcmp(it->dim[0], "...") == 0;
    const int more = it->per[0] != '\0' && ndim == it->ndim + 1; /* a row of values for each */
    if (!any && ndim != it->ndim + more) {
        violation(c, path, "has %d dimensions, should have %d", ndim, it->ndim);
        return;
    }
    for (int i = 0; i < ndim && !any && c->st == SPX_OK; i++)
        check_dim(c, path, !more ? it->dim[i] : i == 0 ? it->per : it->dim[i - 1], dims[i]);
    check_attrs(c, path, it->attrs);
    if (it->raw)
        return;
    if (it->units[0] != '\0') {
        char units[128];
        if (spx_h5_attr_str(c->file, path, "units", units, sizeof units, &err) != SPX_OK)
            violation(c, path, "attribute units is missing, should be %s", it->units);
        else if (strcmp(units, it->units) != 0)
            violation(c, path, "units are %s, should be %s", units, it->units);
    }
    if (it->kind == SPX_ITEM_DATASET && !spx_h5_has_attr(c->file, path, "long_name"))
        violation(c, path, "attribute long_name is missing");
    if (it->flags[0] != '\0')
        check_flags(c, path);
    if (it->scale && !more) {
        char class[64];
        if (spx_h5_attr_str(c->file, path, "CLASS", class, sizeof class, &err) != SPX_OK ||
            strcmp(class, "DIMENSION_SCALE") != 0)
            violation(c, path, "is not a dimension scale");
    }
    check_attached(c, path, it);
    if (whole && numbers && (it->finite || it->nonnegative || it->increasing))
        check_values(c, path, it, dims, ndim);
}

/* Checks that the required children of an existing group exist. */
static void check_required(checker *c, const char *group, const spx_item *g)
{
    size_t glen = strlen(g->path);
    size_t nitem;
    const spx_item *items = spx_schema_items(&nitem);
    for (size_t i = 0; i < nitem; i++) {
        const spx_item *it = &items[i];
        if (!it->required || strncmp(it->path, g->path, glen) != 0 || it->path[glen] != '/' ||
            strchr(it->path + glen + 1, '/') != NULL || it->path[glen + 1] == '<')
            continue;
        char path[700];
        (void)snprintf(path, sizeof path, "%s%s", group, it->path + glen);
        if (!spx_h5_exists(c->file, path))
            violation(c, path, "is missing");
    }
}

static void check_record(checker *c, size_t i)
{
    char path[64], value[64];
    (void)snprintf(path, sizeof path, "/provenance/%03zu", i);
    for (const char *const *field = spx_provenance_required; *field != NULL; field++) {
        spx_err err = {0};
        int has;
        if (spx_provenance_read(c->file, i, *field, value, sizeof value, &has, &err) != SPX_OK)
            return; /* its type is a violation, which check_dataset() reports; failures are pending */
        if (!has)
            violation(c, path, "has no line '%s: ...'", *field);
    }
}

static void check_group(checker *c, const char *path, const spx_item *it)
{
    spx_err err = {0};
    if (it->kind != SPX_ITEM_GROUP) {
        violation(c, path, "is a group, should be a dataset");
        return;
    }
    char version[64];
    if (spx_schema_accept(c->file, path, it->block, &err) != SPX_OK) {
        err.file[0] = err.place[0] = '\0'; /* both are said already */
        violation(c, path, "%s", spx_err_text(&err));
    } else if (spx_h5_attr_str(c->file, path, "version", version, sizeof version, &err) == SPX_OK &&
               major_of(version) < 0) {
        violation(c, path, "attribute version is '%s', should be MAJOR.MINOR", version);
    }
    check_required(c, path, it);
}

/* Checks that records are numbered from 000 without gaps; a file without any has no provenance. */
static void check_provenance(checker *c)
{
    size_t n = 0;
    char **names = NULL;
    spx_err err = {0};
    if (!spx_h5_exists(c->file, "/provenance")) {
        violation(c, "/provenance", "is missing");
        return;
    }
    if (spx_h5_list(c->file, "/provenance", &n, &names, &err) != SPX_OK) {
        violation(c, "/provenance", "cannot be listed");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        char want[32];
        (void)snprintf(want, sizeof want, "%03zu", i);
        int there = 0; /* names are in order of text: 1000 comes before 101 */
        for (size_t k = 0; k < n && !there; k++)
            there = strcmp(names[k], want) == 0;
        if (there)
            check_record(c, i);
        else
            violation(c, "/provenance", "has no record %s, but %zu records", want, n);
    }
    if (n == 0)
        violation(c, "/provenance", "has no record");
    spx_h5_names_free(n, names);
}

/* Visits links, not objects: a dataset with a second name (an image that is an HDU, too) is checked under each. */
static herr_t visit(hid_t root, const char *name, const H5L_info_t *link, void *data)
{
    checker *c = data;
    char path[512];
    H5O_info_t info;
    (void)link;
    if ((size_t)snprintf(path, sizeof path, "/%s", name) >= sizeof path) {
        violation(c, "/", "an object's name is too long");
        return 0;
    }
    const spx_item *it = spx_schema_find(path);
    if (it == NULL || !spx_h5_exists(root, path) ||
        H5Oget_info_by_name2(root, path, &info, H5O_INFO_BASIC, H5P_DEFAULT) < 0)
        return 0;
    if (info.type == H5O_TYPE_GROUP)
        check_group(c, path, it);
    else if (info.type == H5O_TYPE_DATASET)
        check_dataset(c, path, it);
    return c->st == SPX_OK ? 0 : 1;
}

spx_status spx_schema_check(hid_t file, const char *name, FILE *out, size_t *nbad, spx_err *e)
{
    checker c = {.file = file, .name = name, .out = out, .failures = spx_mem_failures(), .e = e};
    size_t n;
    (void)spx_schema_items(&n);
    static const char *const root[] = {"product", "schema_version", "creator"};
    for (size_t i = 0; i < sizeof root / sizeof *root; i++)
        if (!spx_h5_has_attr(file, "/", root[i]))
            violation(&c, "/", "attribute %s is missing", root[i]);
    spx_err err = {0};
    char product[64], version[64];
    if (spx_h5_has_attr(file, "/", "schema_version")) {
        if (spx_h5_attr_str(file, "/", "schema_version", version, sizeof version, &err) != SPX_OK ||
            major_of(version) < 0)
            violation(&c, "/", "attribute schema_version should be MAJOR.MINOR");
        else if (major_of(version) > 1)
            violation(&c, "/", "has schema version %s, which is newer than this program: use a newer specpipe",
                      version);
    }
    check_provenance(&c);
    spx_err_clear(&err);
    /* the block that attribute `product` names must exist */
    if (spx_h5_has_attr(file, "/", "product") &&
        spx_h5_attr_str(file, "/", "product", product, sizeof product, &err) == SPX_OK) {
        char path[80];
        (void)snprintf(path, sizeof path, "/%s", product);
        if (!spx_h5_exists(file, path))
            violation(&c, path, "is missing, though the file says that it is its product");
    }
    if (H5Lvisit(file, H5_INDEX_NAME, H5_ITER_INC, visit, &c) < 0 && c.st == SPX_OK)
        c.st = spx_fail_at(e, SPX_EINPUT, name, NULL, NULL, "cannot be read through: is it damaged?");
    spx_free(c.dim);
    *nbad = c.nbad;
    return out_of_memory(&c) ? c.st : SPX_OK;
}
