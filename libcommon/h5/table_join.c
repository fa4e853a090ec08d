/* Provides whole tables: rows selected, tables appended, columns joined and filled in from another table. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "h5/table_internal.h"

static spx_status copy_units(const spx_table *t, char ***out, spx_err *e)
{
    if (t->unit != NULL)
        *out = spx_table_units(spx_table_ncol(t), (const char *const *)t->unit, e);
    return e->code;
}

/* 1 when the columns of a and b, as many, have the same units, or one of the tables has none. */
static int same_units(const spx_table *a, const spx_table *b)
{
    int same = 1;
    for (int i = 0; a->unit != NULL && b->unit != NULL && same && (size_t)i < spx_table_ncol(a); ++i)
        same = strcmp(spx_table_unit(a, i), spx_table_unit(b, i)) == 0;
    return same;
}

spx_table *spx_table_subset(const spx_table *t, size_t n, const size_t *row, spx_err *e)
{
    spx_table *s = spx_table_new(n, e);
    if (s == NULL)
        return NULL;
    s->rowsize = t->rowsize;
    s->type = t->type < 0 ? H5I_INVALID_HID : H5Tcopy(t->type);
    if (t->type >= 0 && s->type < 0)
        spx_fail(e, SPX_EIO, "row type cannot be copied: out of memory");
    else if (copy_units(t, &s->unit, e) == SPX_OK)
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

spx_table *spx_table_subset_common(const spx_table *t, size_t ngroup, const size_t *first, const size_t *row,
                                   spx_text *varying, spx_err *e)
{
    size_t *head = spx_alloc(ngroup, sizeof *head, e);
    for (size_t g = 0; g < ngroup && head != NULL; ++g)
        head[g] = row[first[g]];
    spx_table *all = head == NULL ? NULL : spx_table_subset(t, ngroup, head, e);
    spx_table *common = all == NULL ? NULL : spx_table_new(ngroup, e);
    for (size_t i = 0; common != NULL && e->code == SPX_OK && i < spx_table_ncol(t); ++i) {
        const size_t off = H5Tget_member_offset(t->type, (unsigned)i);
        hid_t member = H5Tget_member_type(t->type, (unsigned)i);
        const size_t size = member < 0 ? 0 : H5Tget_size(member);
        int same = 1;
        for (size_t g = 0; g < ngroup && same; ++g)
            for (size_t k = first[g] + 1; k < first[g + 1] && same; ++k)
                same = memcmp(t->rows + head[g] * t->rowsize + off, t->rows + row[k] * t->rowsize + off, size) == 0;
        char *name = spx_table_name(t, (int)i, e);
        if (name != NULL && same)
            (void)spx_table_copy_column(common, name, all, (int)i, e);
        else if (name != NULL)
            (void)spx_text_add(varying, e, "%s%s", varying->n > 0 ? ", " : "", name);
        spx_free(name);
        if (member >= 0)
            (void)H5Tclose(member);
    }
    spx_table_free(all);
    spx_free(head);
    if (e->code != SPX_OK) {
        spx_table_free(common);
        common = NULL;
    }
    return common;
}

spx_table *spx_table_without(const spx_table *t, const char *const *names, spx_err *e)
{
    spx_table *rest = spx_table_new(t->nrow, e);
    for (size_t i = 0; rest != NULL && e->code == SPX_OK && i < spx_table_ncol(t); ++i) {
        char *name = spx_table_name(t, (int)i, e);
        int keep = name != NULL;
        for (size_t k = 0; names[k] != NULL && keep; ++k)
            keep = strcasecmp(names[k], name) != 0;
        if (keep)
            (void)spx_table_copy_column(rest, name, t, (int)i, e);
        spx_free(name);
    }
    if (e->code != SPX_OK) {
        spx_table_free(rest);
        rest = NULL;
    }
    return rest;
}

/* Element type that can hold every value of a and b; negative when there is none. */
static hid_t common_base(hid_t a, hid_t b)
{
    H5T_class_t ca = H5Tget_class(a), cb = H5Tget_class(b);
    size_t sa = H5Tget_size(a), sb = H5Tget_size(b);
    if (H5Tequal(a, b) > 0)
        return H5Tcopy(a);
    if (ca == H5T_STRING && cb == H5T_STRING) {
        /* a terminator takes a character that a padded string of the same size may use */
        int second =
            sb > sa || (sb == sa && H5Tget_strpad(a) == H5T_STR_NULLTERM && H5Tget_strpad(b) != H5T_STR_NULLTERM);
        return H5Tget_cset(a) == H5Tget_cset(b) ? H5Tcopy(second ? b : a) : H5I_INVALID_HID;
    }
    if (ca == H5T_INTEGER && cb == H5T_INTEGER) {
        if (H5Tget_sign(a) == H5Tget_sign(b))
            return H5Tcopy(sb > sa ? b : a);
        hid_t is = H5Tget_sign(a) == H5T_SGN_2 ? a : b; /* the signed type of the two: wide enough for the other? */
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

/* Converts column `src` of t to `nelem` elements of base type `to` a row, into rows of `dst`. */
static spx_status convert_into(const spx_table *t, unsigned src, hid_t to, size_t nelem, char *dst, size_t stride,
                               spx_err *e)
{
    hid_t member = H5Tget_member_type(t->type, src);
    size_t n0 = 0;
    hid_t from = member < 0 ? H5I_INVALID_HID : spx_table_type_base(member, &n0);
    char *buf = NULL;
    if (from < 0 || n0 != nelem) {
        spx_fail(e, SPX_EBUG, "table column changed its shape");
    } else {
        size_t sf = H5Tget_size(from), st = H5Tget_size(to), off = H5Tget_member_offset(t->type, src);
        /* gathered without gaps, then converted in place */
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

/* Appends column `col` of `a` (and the column of that name of `b`) to the new table s. */
static spx_status append_column(spx_table *s, const spx_table *a, const spx_table *b, unsigned col, spx_err *e)
{
    char *name = spx_table_name(a, (int)col, e);
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
    ba = ma < 0 ? ma : spx_table_type_base(ma, &nelem);
    bb = mb < 0 ? mb : spx_table_type_base(mb, &nb);
    if (ba >= 0 && bb >= 0 && spx_table_same_array_shape(ma, mb) && nelem == nb)
        base = common_base(ba, bb);
    if (base < 0) {
        spx_fail(e, SPX_EINPUT, "column %s has another type or shape in the other table", name);
        goto end;
    }
    const char *ua = spx_table_unit(a, (int)col), *ub = spx_table_unit(b, other);
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
    return e->code;
}

/* Appends rows byte by byte: NULL and SPX_OK where types or units differ. */
static spx_table *append_rows(const spx_table *a, const spx_table *b, spx_err *e)
{
    size_t na = spx_table_ncol(a);
    if (na == 0 || na != spx_table_ncol(b) || !same_units(a, b) || H5Tequal(a->type, b->type) <= 0)
        return NULL;
    spx_table *s = spx_table_new(a->nrow + b->nrow, e);
    if (s == NULL)
        return NULL;
    s->type = H5Tcopy(a->type);
    s->rowsize = a->rowsize;
    s->rows = spx_alloc2(s->nrow, s->rowsize, 1, e);
    if (s->rows == NULL || copy_units(a->unit != NULL ? a : b, &s->unit, e) != SPX_OK) {
        spx_table_free(s);
        return NULL;
    }
    memcpy(s->rows, a->rows, a->nrow * a->rowsize);
    memcpy(s->rows + a->nrow * a->rowsize, b->rows, b->nrow * b->rowsize);
    return s;
}

/* Adds the names of b's columns that a has not to `dropped`; SPX_EINPUT where that is NULL and there is one. */
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

/* Adds column `col` of a to `dropped`, because it cannot be joined with b's for reason `why`; an error where `dropped`
 * is NULL. */
static spx_status drop_column(const spx_table *a, unsigned col, const spx_err *why, spx_text *dropped, spx_err *e)
{
    if (dropped == NULL || why->code != SPX_EINPUT)
        return spx_err_pass(e, why);
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
        if (spx_table_ncol(s) == before) /* refused before anything was written */
            (void)drop_column(a, (unsigned)i, &why, dropped, e);
        else
            spx_err_pass(e, &why);
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

/* Copies b's values of a column into rows that only b has. */
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
    spx_table_column *c = spx_alloc(nb, sizeof *c, e);
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
        c[n].unit = spx_table_unit(b, (int)i);
        c[n].data = b->nrow == 0 ? NULL : b->rows + H5Tget_member_offset(b->type, (unsigned)i);
        c[n].stride = b->rowsize;
        ++n;
    }
    if (name != NULL && e->code == SPX_OK && spx_table_extend(a, n, c, e) == SPX_OK)
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
