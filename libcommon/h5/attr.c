/* Provides scalar attributes of HDF5 objects (h5/attr.h); text is stored with one type a file, committed as /text. */
#include "h5/attr.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/failure.h"
#include "h5/heaps.h"
#include "h5/internal.h"
#include "h5/object.h"

int spx_h5_attribute_open(hid_t object, const char *name, spx_h5_attribute *a)
{
    a->id = H5Aopen(object, name, H5P_DEFAULT);
    a->type = a->id >= 0 ? H5Aget_type(a->id) : H5I_INVALID_HID;
    a->space = a->id >= 0 ? H5Aget_space(a->id) : H5I_INVALID_HID;
    return a->type >= 0 && a->space >= 0;
}

void spx_h5_attribute_close(const spx_h5_attribute *a)
{
    if (a->space >= 0)
        (void)H5Sclose(a->space);
    if (a->type >= 0)
        (void)H5Tclose(a->type);
    if (a->id >= 0)
        (void)H5Aclose(a->id);
}

/* ---- reading ---- */

int spx_h5_has_attr(hid_t loc, const char *path, const char *name)
{
    const htri_t found = spx_h5_exists(loc, path) ? H5Aexists_by_name(loc, path, name, H5P_DEFAULT) : 0;
    if (found < 0)
        spx_h5_lookup_failed(loc, path);
    return found > 0;
}

static hid_t open_attr(hid_t loc, const char *path, const char *name, spx_err *e)
{
    char what[200];
    hid_t a =
        spx_h5_has_attr(loc, path, name) ? H5Aopen_by_name(loc, path, name, H5P_DEFAULT, H5P_DEFAULT) : H5I_INVALID_HID;
    if (a < 0) {
        (void)snprintf(what, sizeof what, "attribute '%s' is missing", name);
        spx_h5_fail_at(loc, path, SPX_EINPUT, what, e);
        return a;
    }
    hid_t s = H5Aget_space(a);
    hssize_t n = H5Sget_simple_extent_npoints(s);
    (void)H5Sclose(s);
    if (n != 1) {
        (void)snprintf(what, sizeof what, "attribute '%s' is not a single value", name);
        spx_h5_fail_at(loc, path, SPX_EINPUT, what, e);
        (void)H5Aclose(a);
        return H5I_INVALID_HID;
    }
    return a;
}

static spx_status attr_number(hid_t loc, const char *path, const char *name, hid_t mem, void *out, spx_err *e)
{
    hid_t a = open_attr(loc, path, name, e);
    if (a < 0)
        return SPX_EINPUT;
    hid_t t = H5Aget_type(a);
    spx_status st = SPX_OK;
    if (!spx_h5_class_fits(t, mem) || H5Aread(a, mem, out) < 0) {
        char what[200];
        (void)snprintf(what, sizeof what, "attribute '%s' is not a number of the expected kind", name);
        st = spx_h5_fail_at(loc, path, SPX_EINPUT, what, e);
    }
    (void)H5Tclose(t);
    (void)H5Aclose(a);
    return st;
}

spx_status spx_h5_attr_f64(hid_t loc, const char *path, const char *name, double *out, spx_err *e)
{
    return attr_number(loc, path, name, H5T_NATIVE_DOUBLE, out, e);
}

spx_status spx_h5_attr_i64(hid_t loc, const char *path, const char *name, int64_t *out, spx_err *e)
{
    return attr_number(loc, path, name, H5T_NATIVE_INT64, out, e);
}

/* Text of an attribute, whole, to be freed. */
static spx_status attr_text(hid_t loc, const char *path, const char *name, char **text, spx_err *e)
{
    *text = NULL;
    hid_t a = open_attr(loc, path, name, e);
    if (a < 0)
        return SPX_EINPUT;
    hid_t t = H5Aget_type(a);
    spx_status st = SPX_EINPUT;
    int there = 1;
    if (H5Tget_class(t) == H5T_STRING && H5Tis_variable_str(t) > 0) {
        char *s = NULL;
        hid_t mem = H5Tcopy(H5T_C_S1);
        (void)H5Tset_size(mem, H5T_VARIABLE);
        (void)H5Tset_cset(mem, H5Tget_cset(t));
        there = spx_heaps_attribute(a, t, 1);
        if (there && H5Aread(a, mem, &s) >= 0) {
            const size_t n = s != NULL ? strlen(s) : 0;
            st = (*text = spx_alloc(n + 1, 1, e)) != NULL ? SPX_OK : SPX_EIO;
            if (st == SPX_OK && n > 0)
                memcpy(*text, s, n);
            (void)H5free_memory(s);
        }
        (void)H5Tclose(mem);
    } else if (H5Tget_class(t) == H5T_STRING) {
        if ((*text = spx_alloc(H5Tget_size(t) + 1, 1, e)) == NULL)
            st = SPX_EIO;
        else if (H5Aread(a, t, *text) >= 0)
            st = SPX_OK;
    }
    if (st == SPX_EINPUT) {
        char what[200];
        (void)snprintf(what, sizeof what,
                       there ? "attribute '%.100s' is not text"
                             : "attribute '%.100s' refers to a text that is not there: is the file damaged?",
                       name);
        spx_h5_fail_at(loc, path, st, what, e);
    }
    if (st != SPX_OK) {
        spx_free(*text);
        *text = NULL;
    }
    (void)H5Tclose(t);
    (void)H5Aclose(a);
    return st;
}

spx_status spx_h5_attr_str(hid_t loc, const char *path, const char *name, char *out, size_t size, spx_err *e)
{
    char *text;
    const spx_status st = attr_text(loc, path, name, &text, e);
    if (st == SPX_OK)
        (void)snprintf(out, size, "%s", text);
    spx_free(text);
    return st;
}

/* ---- writing ---- */

spx_status spx_h5_put_attr(hid_t loc, const char *path, const char *name, hid_t filetype, hid_t mem, hid_t space,
                           const void *value, spx_err *e)
{
    if (H5Aexists_by_name(loc, path, name, H5P_DEFAULT) > 0)
        (void)H5Adelete_by_name(loc, path, name, H5P_DEFAULT);
    hid_t a = H5Acreate_by_name(loc, path, name, filetype, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    int bad = a < 0 || H5Awrite(a, mem, value) < 0;
    if (a >= 0 && H5Aclose(a) < 0)
        bad = 1;
    return bad ? spx_h5_write_failed(loc, path, e) : SPX_OK;
}

static spx_status put_scalar(hid_t loc, const char *path, const char *name, hid_t filetype, hid_t mem,
                             const void *value, spx_err *e)
{
    hid_t s = H5Screate(H5S_SCALAR);
    spx_status st = spx_h5_put_attr(loc, path, name, filetype, mem, s, value, e);
    (void)H5Sclose(s);
    return st;
}

spx_status spx_h5_set_f64(hid_t loc, const char *path, const char *name, double v, spx_err *e)
{
    return put_scalar(loc, path, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &v, e);
}

spx_status spx_h5_set_i64(hid_t loc, const char *path, const char *name, int64_t v, spx_err *e)
{
    return put_scalar(loc, path, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &v, e);
}

/* Type of text attributes: variable-length UTF-8, which h5py gives as str (fixed-length text as bytes). It is committed
 * as /text, once a file: h5dump -H then names it instead of writing six lines for every attribute. */
static hid_t text_type(hid_t loc)
{
    if (H5Lexists(loc, "/text", H5P_DEFAULT) > 0)
        return H5Topen2(loc, "/text", H5P_DEFAULT);
    hid_t t = H5Tcopy(H5T_C_S1);
    if (H5Tset_size(t, H5T_VARIABLE) < 0 || H5Tset_cset(t, H5T_CSET_UTF8) < 0 ||
        H5Tcommit2(loc, "/text", t, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) < 0) {
        (void)H5Tclose(t);
        return H5I_INVALID_HID;
    }
    return t;
}

spx_status spx_h5_set_str(hid_t loc, const char *path, const char *name, const char *v, spx_err *e)
{
    hid_t t = text_type(loc);
    if (t < 0)
        return spx_h5_write_failed(loc, path, e);
    spx_status st = put_scalar(loc, path, name, t, t, &v, e);
    (void)H5Tclose(t);
    return st;
}

void spx_h5_count_flags(hid_t loc, const char *path, long *bits, long *names)
{
    char words[2048];
    spx_err err = {0};
    hid_t a = spx_h5_has_attr(loc, path, "flag_masks")
                  ? H5Aopen_by_name(loc, path, "flag_masks", H5P_DEFAULT, H5P_DEFAULT)
                  : H5I_INVALID_HID;
    hid_t s = a < 0 ? H5I_INVALID_HID : H5Aget_space(a);
    *bits = s < 0 ? -1 : (long)H5Sget_simple_extent_npoints(s);
    if (s >= 0)
        (void)H5Sclose(s);
    if (a >= 0)
        (void)H5Aclose(a);
    *names = -1;
    if (!spx_h5_has_attr(loc, path, "flag_meanings") ||
        spx_h5_attr_str(loc, path, "flag_meanings", words, sizeof words, &err) != SPX_OK)
        return;
    *names = 0;
    for (const char *p = words + strspn(words, " "); *p != '\0'; p += strcspn(p, " "), p += strspn(p, " "))
        (*names)++;
}

/* ---- copies ---- */

typedef struct {
    hid_t from, to;
    const char *frompath, *topath;
    const char *const *except;
    spx_err *e;
    spx_status st;
} attr_copy;

static int is_left_out(const char *name, const char *const *except)
{
    static const char *const of_scales[] = {"DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME", NULL};
    for (const char *const *own = of_scales; *own != NULL; own++)
        if (strcmp(name, *own) == 0)
            return 1;
    for (; except != NULL && *except != NULL; except++)
        if (strcmp(name, *except) == 0)
            return 1;
    return 0;
}

static herr_t copy_attr(hid_t object, const char *name, const H5A_info_t *info, void *ctx)
{
    attr_copy *c = ctx;
    (void)info;
    if (is_left_out(name, c->except))
        return 0;
    spx_h5_attribute a;
    size_t bytes;
    const int open = spx_h5_attribute_open(object, name, &a);
    const hssize_t n = open ? H5Sget_simple_extent_npoints(a.space) : -1;
    const size_t size = open ? H5Tget_size(a.type) : 0;
    if (n < 0 || size == 0 || spx_mul((size_t)n, size, &bytes, c->e) != SPX_OK) {
        c->st = spx_fail_at(c->e, SPX_EINPUT, spx_h5_filename(c->from), c->frompath, NULL,
                            "attribute '%s' cannot be read", name);
    } else if (H5Tget_class(a.type) == H5T_STRING && n == 1) {
        char *text;
        c->st = attr_text(c->from, c->frompath, name, &text, c->e);
        if (c->st == SPX_OK)
            c->st = spx_h5_set_str(c->to, c->topath, name, text, c->e);
        spx_free(text);
    } else if (H5Tdetect_class(a.type, H5T_REFERENCE) <= 0 && H5Tdetect_class(a.type, H5T_VLEN) <= 0) {
        void *value = spx_alloc(bytes, 1, c->e);
        if (value == NULL)
            c->st = SPX_EIO;
        else if (H5Aread(a.id, a.type, value) < 0)
            c->st = spx_fail_at(c->e, SPX_EIO, spx_h5_filename(c->from), c->frompath, NULL,
                                "attribute '%s' cannot be read", name);
        else
            c->st = spx_h5_put_attr(c->to, c->topath, name, a.type, a.type, a.space, value, c->e);
        spx_free(value);
    }
    spx_h5_attribute_close(&a);
    return c->st != SPX_OK;
}

spx_status spx_h5_copy_attrs(hid_t from, const char *frompath, hid_t to, const char *topath, const char *const *except,
                             spx_err *e)
{
    attr_copy c = {from, to, frompath, topath, except, e, SPX_OK};
    hsize_t at = 0;
    if (H5Aiterate_by_name(from, frompath, H5_INDEX_NAME, H5_ITER_INC, &at, copy_attr, &c, H5P_DEFAULT) < 0 &&
        c.st == SPX_OK)
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(from), frompath, NULL, "its attributes cannot be read");
    return c.st;
}
