/* Writes groups and datasets with the attributes of the schema (h5/write.h). */
#include "h5/write.h"

#include <hdf5_hl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/deferred.h"
#include "h5/file.h"
#include "h5/internal.h"
#include "h5/inventory.h"
#include "h5/object.h"
#include "h5/schema.h"

spx_status spx_h5_write_failed(hid_t loc, const char *path, spx_err *e)
{
    char abs[600];
    spx_h5_absolute(loc, path, abs, sizeof abs);
    return spx_fail_at(e, SPX_EIO, spx_h5_filename(loc), abs, NULL, "cannot be written: %s", spx_h5_no_memory());
}

/* Adds the attributes that the schema has for an object. */
static spx_status describe(hid_t loc, const char *path, spx_err *e)
{
    char abs[600];
    spx_h5_absolute(loc, path, abs, sizeof abs);
    const spx_item *it = spx_schema_find(abs);
    spx_status st = SPX_OK;
    if (it == NULL)
        return SPX_OK;
    /* h5dump -H prints comments, but no values of attributes: the comment repeats unit and meaning */
    char comment[640];
    (void)snprintf(comment, sizeof comment, "%s%s%s%s", it->meaning, it->units[0] != '\0' ? " [" : "", it->units,
                   it->units[0] != '\0' ? "]" : "");
    if (H5Oset_comment_by_name(loc, path, comment, H5P_DEFAULT) < 0)
        return spx_h5_write_failed(loc, path, e);
    if (it->kind == SPX_ITEM_GROUP) {
        st = spx_h5_set_str(loc, path, "type", it->block, e);
        if (st == SPX_OK)
            st = spx_h5_set_str(loc, path, "version", it->version, e);
        if (st == SPX_OK && it->meaning[0] != '\0')
            st = spx_h5_set_str(loc, path, "long_name", it->meaning, e);
        return st;
    }
    if (it->units[0] != '\0')
        st = spx_h5_set_str(loc, path, "units", it->units, e);
    if (st == SPX_OK && it->meaning[0] != '\0')
        st = spx_h5_set_str(loc, path, "long_name", it->meaning, e);
    if (st != SPX_OK || it->flags[0] == '\0')
        return st;
    /* CF conventions: flag_masks (numbers), flag_meanings (words separated by blanks) */
    uint32_t bits[32];
    char words[512] = "";
    hsize_t n = 0;
    for (const char *p = it->flags; *p != '\0' && n < 32; n++) {
        size_t w = strcspn(p, ":");
        size_t used = strlen(words);
        (void)snprintf(words + used, sizeof words - used, "%s%.*s", n > 0 ? " " : "", (int)w, p);
        bits[n] = p[w] == ':' ? (uint32_t)strtoul(p + w + 1, NULL, 10) : 0;
        p += strcspn(p, ",");
        p += *p == ',';
    }
    hid_t s = H5Screate_simple(1, &n, NULL);
    st = spx_h5_put_attr(loc, path, "flag_masks", H5T_STD_U32LE, H5T_NATIVE_UINT32, s, bits, e);
    (void)H5Sclose(s);
    return st == SPX_OK ? spx_h5_set_str(loc, path, "flag_meanings", words, e) : st;
}

spx_status spx_h5_group(hid_t loc, const char *path, spx_err *e)
{
    char part[600];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof part)
        return spx_h5_fail_at(loc, path, SPX_EBUG, "group name is too long", e);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (strcmp(part, "/") == 0 || H5Lexists(loc, part, H5P_DEFAULT) > 0)
            continue;
        hid_t g = H5Gcreate2(loc, part, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        if (g < 0 || H5Gclose(g) < 0)
            return spx_h5_write_failed(loc, part, e);
        spx_status st = describe(loc, part, e);
        if (st != SPX_OK)
            return st;
    }
    return SPX_OK;
}

/* Makes the groups above `path`. */
static spx_status make_parents(hid_t loc, const char *path, spx_err *e)
{
    const char *slash = strrchr(path, '/');
    char up[600];
    if (slash == NULL || slash == path)
        return SPX_OK;
    size_t n = (size_t)(slash - path);
    if (n >= sizeof up)
        return spx_h5_fail_at(loc, path, SPX_EBUG, "name is too long", e);
    memcpy(up, path, n);
    up[n] = '\0';
    return spx_h5_group(loc, up, e);
}

static spx_status create(hid_t loc, const char *path, hid_t type, int ndim, const size_t *dims, hid_t *out, spx_err *e)
{
    hsize_t h[SPX_H5_MAXDIM];
    *out = H5I_INVALID_HID;
    if (ndim < 0 || ndim > SPX_H5_MAXDIM)
        return spx_h5_fail_at(loc, path, SPX_EBUG, "too many dimensions", e);
    for (int i = 0; i < ndim; i++)
        h[i] = dims[i];
    spx_status st = make_parents(loc, path, e);
    if (st != SPX_OK)
        return st;
    hid_t s = ndim == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(ndim, h, NULL);
    /* early allocation, so that a full disk shows now; no fill values, since all is written */
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    (void)H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER);
    (void)H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY);
    (void)H5Pset_obj_track_times(dcpl, 0); /* no times, so that the same input gives the same bytes */
    *out = H5Dcreate2(loc, path, type, s, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    (void)H5Pclose(dcpl);
    (void)H5Sclose(s);
    if (*out < 0)
        return spx_h5_write_failed(loc, path, e);
    return SPX_OK;
}

static spx_status close_dataset(hid_t loc, const char *path, hid_t d, spx_status st, spx_err *e)
{
    if (d >= 0 && H5Dclose(d) < 0 && st == SPX_OK)
        st = spx_h5_write_failed(loc, path, e);
    return st == SPX_OK ? describe(loc, path, e) : st;
}

spx_status spx_h5_create(hid_t loc, const char *path, hid_t filetype, int ndim, const size_t *dims, spx_err *e)
{
    hid_t d;
    spx_status st = create(loc, path, filetype, ndim, dims, &d, e);
    return close_dataset(loc, path, d, st, e);
}

static size_t count(int ndim, const size_t *dims)
{
    size_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= dims[i];
    return n;
}

static spx_status write_typed(spx_h5_writes *writes, hid_t loc, const char *path, hid_t type, int ndim,
                              const size_t *dims, const void *data, spx_err *e)
{
    hid_t d;
    const size_t n = count(ndim, dims);
    spx_status st = create(loc, path, type, ndim, dims, &d, e);
    const size_t bytes = st == SPX_OK ? n * H5Tget_size(type) : 0;
    if (bytes > 0 && !spx_h5_defer_values(writes, loc, path, d, data, bytes, SPX_H5_AS_THEY_ARE)) {
        if (H5Dwrite(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
            st = spx_h5_write_failed(loc, path, e);
        else
            spx_inventory_note(d, 0, data, bytes);
    }
    return close_dataset(loc, path, d, st, e);
}

spx_status spx_h5_write(hid_t loc, const char *path, hid_t mem, int ndim, const size_t *dims, const void *data,
                        spx_err *e)
{
    return write_typed(NULL, loc, path, mem, ndim, dims, data, e);
}

spx_status spx_h5_defer_write(spx_h5_writes *writes, hid_t loc, const char *path, hid_t mem, int ndim,
                              const size_t *dims, const void *data, spx_err *e)
{
    return write_typed(writes, loc, path, mem, ndim, dims, data, e);
}

spx_status spx_h5_narrow(hid_t loc, const char *path, const double *data, size_t n, float *to, spx_err *e)
{
    int bad = 0;
#pragma omp parallel for reduction(| : bad) if (n > SPX_H5_MANY_VALUES)
    for (size_t i = 0; i < n; i += SPX_H5_PIECE)
        bad |= !spx_h5_check_values(data + i, n - i < SPX_H5_PIECE ? n - i : SPX_H5_PIECE, to != NULL ? to + i : NULL);
    return bad ? spx_h5_fail_at(loc, path, SPX_EBUG, "a value is not finite: please report this", e) : SPX_OK;
}

/* Writes all of an array now, with a buffer where it becomes float32. */
static spx_status write_values(hid_t loc, const char *path, hid_t d, int narrow, const double *data, size_t n,
                               spx_err *e)
{
    float *f = narrow ? spx_alloc_unset(n, 1, sizeof *f, e) : NULL;
    if (narrow && f == NULL)
        return SPX_EIO;
    spx_status st = spx_h5_narrow(loc, path, data, n, f, e);
    if (st == SPX_OK && n > 0 &&
        H5Dwrite(d, narrow ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                 narrow ? (const void *)f : data) < 0)
        st = spx_h5_write_failed(loc, path, e);
    if (st == SPX_OK)
        spx_inventory_note(d, 0, narrow ? (const void *)f : data, n * (narrow ? sizeof *f : sizeof *data));
    spx_free(f);
    return st;
}

static spx_status write_real(spx_h5_writes *writes, hid_t loc, const char *path, int precision, int ndim,
                             const size_t *dims, const double *data, spx_err *e)
{
    hid_t d;
    const int narrow = precision != 8;
    const size_t n = count(ndim, dims), bytes = n * (narrow ? sizeof(float) : sizeof(double));
    spx_status st = create(loc, path, narrow ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE, ndim, dims, &d, e);
    if (st == SPX_OK && !spx_h5_defer_values(writes, loc, path, d, data, bytes, narrow ? SPX_H5_NARROW : SPX_H5_DOUBLE))
        st = write_values(loc, path, d, narrow, data, n, e);
    return close_dataset(loc, path, d, st, e);
}

spx_status spx_h5_write_real(hid_t loc, const char *path, int precision, int ndim, const size_t *dims,
                             const double *data, spx_err *e)
{
    return write_real(NULL, loc, path, precision, ndim, dims, data, e);
}

spx_status spx_h5_defer_write_real(spx_h5_writes *writes, hid_t loc, const char *path, int precision, int ndim,
                                   const size_t *dims, const double *data, spx_err *e)
{
    return write_real(writes, loc, path, precision, ndim, dims, data, e);
}

spx_status spx_h5_write_strings(hid_t loc, const char *path, size_t size, size_t n, const char *data, spx_err *e)
{
    hid_t t = H5Tcopy(H5T_C_S1);
    (void)H5Tset_size(t, size);
    (void)H5Tset_strpad(t, H5T_STR_SPACEPAD);
    spx_status st = spx_h5_write(loc, path, t, 1, &n, data, e);
    (void)H5Tclose(t);
    return st;
}

/* Notes rows that were written, unless HDF5 has converted them. */
static void note_rows(hid_t d, hid_t mem, size_t first, size_t n, const void *data)
{
    size_t dims[SPX_H5_MAXDIM];
    int ndim = 0;
    const hid_t type = H5Dget_type(d);
    size_t row = H5Tget_size(type);
    if (spx_h5_dataset_dims(d, &ndim, dims) == SPX_OK) {
        for (int i = 1; i < ndim; i++)
            row *= dims[i];
        spx_inventory_note(d, first * row, H5Tequal(type, mem) > 0 ? data : NULL, n * row);
    }
    (void)H5Tclose(type);
}

spx_status spx_h5_write_rows(hid_t loc, const char *path, hid_t mem, size_t first, size_t n, const void *data,
                             spx_err *e)
{
    hid_t d = spx_h5_open(loc, path, e), fs = H5I_INVALID_HID, ms = H5I_INVALID_HID;
    int done;
    if (d < 0)
        return SPX_EBUG;
    spx_status st = spx_h5_write_directly(loc, path, d, mem, first, n, data, &done, e);
    if (st == SPX_OK && !done && spx_h5_row_spaces(d, first, n, &fs, &ms) != SPX_OK)
        st = spx_h5_fail_at(loc, path, SPX_EBUG, "row is outside", e);
    if (st == SPX_OK && !done && n > 0 && H5Dwrite(d, mem, ms, fs, H5P_DEFAULT, data) < 0)
        st = spx_h5_write_failed(loc, path, e);
    if (st == SPX_OK)
        note_rows(d, mem, first, n, data);
    if (ms >= 0)
        (void)H5Sclose(ms);
    if (fs >= 0)
        (void)H5Sclose(fs);
    if (H5Dclose(d) < 0 && st == SPX_OK)
        st = spx_h5_write_failed(loc, path, e);
    return st;
}

spx_status spx_h5_attach_scale(hid_t loc, const char *data, unsigned dim, const char *scale, const char *dimname,
                               spx_err *e)
{
    hid_t d = spx_h5_open(loc, data, e), s = spx_h5_open(loc, scale, e);
    spx_status st = d < 0 || s < 0 ? SPX_EBUG : SPX_OK;
    if (st == SPX_OK && ((H5DSis_scale(s) <= 0 && H5DSset_scale(s, dimname) < 0) || H5DSattach_scale(d, s, dim) < 0))
        st = spx_h5_write_failed(loc, data, e);
    if (d >= 0)
        (void)H5Dclose(d);
    if (s >= 0)
        (void)H5Dclose(s);
    return st;
}

spx_status spx_h5_link(hid_t loc, const char *target, const char *name, spx_err *e)
{
    spx_status st = make_parents(loc, name, e);
    if (st == SPX_OK && H5Lcreate_hard(loc, target, loc, name, H5P_DEFAULT, H5P_DEFAULT) < 0)
        st = spx_h5_write_failed(loc, name, e);
    return st;
}
