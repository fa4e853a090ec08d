/* Reads redshift files and matches them to targets (run/redshifts.h). */
#include "run/redshifts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/object.h"

spx_status spx_fibermap_need_i64(const spx_table *t, const char *name, int64_t **out, spx_err *e)
{
    spx_status st = spx_table_find_i64(t, name, out, e);
    if (st == SPX_OK && *out == NULL)
        st = spx_fail(e, SPX_EINPUT, "the spectra have no fibermap with %s: choose rows by their number", name);
    return st;
}

/* Path of the redshift table among the HDUs of a file; 0: none. */
static int find_redshifts(hid_t file, char *path, size_t size)
{
    size_t nfile = 0, nhdu = 0;
    char **name = NULL, **hdu = NULL, group[256], ext[64];
    spx_err ignored = {0};
    int found = 0;
    if (spx_h5_exists(file, "/fits") && spx_h5_list(file, "/fits", &nfile, &name, &ignored) != SPX_OK)
        nfile = 0;
    for (size_t i = 0; i < nfile && !found; i++) {
        (void)snprintf(group, sizeof group, "/fits/%s", name[i]);
        if (spx_h5_list(file, group, &nhdu, &hdu, &ignored) != SPX_OK)
            continue;
        for (size_t k = 0; k < nhdu && !found; k++) {
            (void)snprintf(path, size, "%s/%s", group, hdu[k]);
            if (!spx_h5_has_attr(file, path, "extname") ||
                spx_h5_attr_str(file, path, "extname", ext, sizeof ext, &ignored) != SPX_OK ||
                (strcmp(ext, "REDSHIFTS") != 0 && strcmp(ext, "ZBEST") != 0))
                continue;
            (void)snprintf(path, size, "%s/%s/data", group, hdu[k]);
            found = spx_h5_exists(file, path);
        }
        spx_h5_names_free(nhdu, hdu);
    }
    spx_h5_names_free(nfile, name);
    return found;
}

int spx_redshifts_there(hid_t file)
{
    char path[512];
    return find_redshifts(file, path, sizeof path);
}

typedef struct {
    int64_t target;
    size_t row;
} target_row;

static int by_target(const void *a, const void *b)
{
    const target_row *x = a, *y = b;
    return x->target != y->target ? (x->target > y->target) - (x->target < y->target)
                                  : (x->row > y->row) - (x->row < y->row);
}

static spx_status take_redshifts(const spx_table *t, spx_redshifts *r, spx_err *e)
{
    size_t n = t->nrow;
    target_row *order = spx_alloc(n, sizeof *order, e);
    double *z = spx_alloc(n, sizeof *z, e);
    int64_t *target = spx_alloc(n, sizeof *target, e);
    char(*type)[16] = spx_alloc(n, sizeof *type, e), (*sub)[32] = spx_alloc(n, sizeof *sub, e);
    r->target = spx_alloc(n, sizeof *r->target, e);
    r->z = spx_alloc(n, sizeof *r->z, e);
    r->spectype = spx_alloc(n, sizeof *r->spectype, e);
    r->subtype = spx_alloc(n, sizeof *r->subtype, e);
    spx_status st = SPX_EIO;
    if (order != NULL && z != NULL && target != NULL && type != NULL && sub != NULL && r->target != NULL &&
        r->z != NULL && r->spectype != NULL && r->subtype != NULL)
        st = spx_table_get_i64(t, "TARGETID", target, e);
    if (st == SPX_OK)
        st = spx_table_get_f64(t, "Z", z, e);
    if (st == SPX_OK)
        st = spx_table_get_str(t, "SPECTYPE", sizeof *type, type[0], e);
    if (st == SPX_OK && spx_table_find(t, "SUBTYPE") >= 0)
        st = spx_table_get_str(t, "SUBTYPE", sizeof *sub, sub[0], e);
    for (size_t i = 0; i < n && st == SPX_OK; i++)
        order[i] = (target_row){target[i], i};
    if (st == SPX_OK)
        qsort(order, n, sizeof *order, by_target);
    r->n = st == SPX_OK ? n : 0;
    for (size_t i = 0; i < r->n; i++) {
        size_t from = order[i].row;
        r->target[i] = target[from];
        r->z[i] = z[from];
        memcpy(r->spectype[i], type[from], sizeof *type);
        memcpy(r->subtype[i], sub[from], sizeof *sub);
    }
    spx_free(order);
    spx_free(z);
    spx_free(target);
    spx_free(type);
    spx_free(sub);
    return st;
}

spx_status spx_redshifts_read(hid_t file, spx_redshifts *r, spx_err *e)
{
    char path[512];
    spx_table *t = NULL;
    memset(r, 0, sizeof *r);
    if (!find_redshifts(file, path, sizeof path))
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), NULL, "give redrock's file through fits2h5",
                           "has no table REDSHIFTS or ZBEST");
    spx_status st = spx_table_read(file, path, &t, e);
    if (st == SPX_OK && t == NULL)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL, "is no table");
    if (st == SPX_OK && (st = take_redshifts(t, r, e)) != SPX_OK)
        spx_err_at(e, spx_h5_filename(file), path);
    spx_table_free(t);
    return st;
}

size_t spx_targets_lower(size_t n, const int64_t *target, int64_t wanted)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (target[mid] < wanted)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

size_t spx_redshifts_find(const spx_redshifts *r, int64_t target)
{
    size_t i = spx_targets_lower(r->n, r->target, target);
    return i < r->n && r->target[i] == target ? i : SPX_NO_ROW;
}

spx_status spx_redshifts_columns(const spx_redshifts *r, const spx_spectra *s, size_t n, const size_t *row,
                                 spx_table **out, spx_err *e)
{
    enum { TYPE = sizeof r->spectype[0], SUB = sizeof r->subtype[0] };
    int64_t *id = NULL;
    spx_table *t = spx_table_new(n, e);
    double *z = spx_alloc(n, sizeof *z, e);
    char *type = spx_alloc2(n, TYPE, 1, e), *sub = spx_alloc2(n, SUB, 1, e);
    spx_status st = spx_fibermap_need_i64(s->fibermap, "TARGETID", &id, e);
    if (t == NULL || z == NULL || type == NULL || sub == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        size_t k = spx_redshifts_find(r, id[row[i]]);
        z[i] = k != SPX_NO_ROW && isfinite(r->z[k]) ? r->z[k] : NAN;
        if (k != SPX_NO_ROW) {
            memcpy(type + i * TYPE, r->spectype[k], TYPE);
            memcpy(sub + i * SUB, r->subtype[k], SUB);
        }
    }
    if (st == SPX_OK)
        st = spx_table_add(t, "RR_Z", H5T_NATIVE_DOUBLE, "", z, e);
    if (st == SPX_OK)
        st = spx_table_add_strings(t, "RR_SPECTYPE", TYPE, type, e);
    if (st == SPX_OK)
        st = spx_table_add_strings(t, "RR_SUBTYPE", SUB, sub, e);
    spx_free(id);
    spx_free(z);
    spx_free(type);
    spx_free(sub);
    *out = st == SPX_OK ? t : NULL;
    if (st != SPX_OK)
        spx_table_free(t);
    return st;
}

void spx_redshifts_free(spx_redshifts *r)
{
    spx_free(r->target);
    spx_free(r->z);
    spx_free(r->spectype);
    spx_free(r->subtype);
    memset(r, 0, sizeof *r);
}
