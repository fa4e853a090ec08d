/* Reads and writes any dataset of numbers, named by a user as FILE:/path, in blocks (app/dataset.h). */
#include "app/dataset.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/read.h"

spx_status spx_dataset_open(spx_input *in, const char *path, spx_dataset *d, spx_err *e)
{
    memset(d, 0, sizeof *d);
    d->in = in;
    if (strlen(path) >= sizeof d->path)
        return spx_fail_at(e, SPX_EINPUT, in->name, path, NULL, "the name is too long");
    (void)snprintf(d->path, sizeof d->path, "%s", path);
    (void)snprintf(d->name, sizeof d->name, "%s:%s", in->name, path);
    spx_status st = spx_h5_shape(in->file, path, &d->ndim, d->dims, e);
    if (st != SPX_OK)
        return st;
    hid_t set = spx_h5_open(in->file, path, e), type = set < 0 ? H5I_INVALID_HID : H5Dget_type(set);
    if (type < 0) {
        if (set >= 0)
            (void)H5Dclose(set);
        return SPX_EINPUT;
    }
    H5T_class_t kind = H5Tget_class(type);
    d->is_float = kind == H5T_FLOAT;
    d->is_signed = d->is_float || H5Tget_sign(type) == H5T_SGN_2;
    d->bytes = (int)H5Tget_size(type);
    size_t bytes = H5Tget_size(type);
    d->count = 1;
    if (kind != H5T_FLOAT && kind != H5T_INTEGER)
        st = spx_fail_at(e, SPX_EINPUT, d->in->name, d->path, "name a dataset of numbers (h5ls -r shows them)",
                         "holds no numbers");
    for (int i = 0; i < d->ndim && st == SPX_OK; i++)
        if ((st = spx_mul(d->count, d->dims[i], &d->count, e)) == SPX_OK)
            st = spx_mul(bytes, d->dims[i], &bytes, e);
    if (st == SPX_OK && spx_h5_overclaims(set, bytes))
        st = spx_fail_at(e, SPX_EINPUT, d->in->name, d->path, NULL, "claims more data than the file holds");
    (void)H5Tclose(type);
    (void)H5Dclose(set);
    if (st == SPX_OK && spx_h5_has_attr(in->file, path, "units")) {
        spx_err none = {0};
        if (spx_h5_attr_str(in->file, path, "units", d->units, sizeof d->units, &none) != SPX_OK)
            d->units[0] = '\0';
    }
    return st;
}

/* SPX_EUSAGE for FILE:name without the slash, where FILE:name does not exist and FILE does. */
static spx_status want_slash(const char *arg, spx_err *e)
{
    char file[4096];
    const char *colon = strrchr(arg, ':');
    const size_t n = colon != NULL ? (size_t)(colon - arg) : 0;
    if (n == 0 || n >= sizeof file || access(arg, F_OK) == 0)
        return SPX_OK;
    memcpy(file, arg, n);
    file[n] = '\0';
    return access(file, F_OK) != 0 ? SPX_OK
                                   : spx_fail(e, SPX_EUSAGE,
                                              "%s: there is no such file; the name of a dataset of %s begins with a "
                                              "slash: %s:/%s",
                                              arg, file, file, colon + 1);
}

spx_status spx_dataset_input(spx_run *s, const char *arg, const char *const *usual, spx_dataset *d, spx_err *e)
{
    char file[4096];
    const char *path = NULL;
    spx_input *in;
    for (const char *p = strstr(arg, ":/"); p != NULL; p = strstr(p + 1, ":/"))
        path = p + 1;
    size_t n = path != NULL ? (size_t)(path - 1 - arg) : strlen(arg);
    if (n >= sizeof file)
        return spx_fail(e, SPX_EUSAGE, "%s: the name is too long", arg);
    memcpy(file, arg, n);
    file[n] = '\0';
    spx_status st = path == NULL ? want_slash(arg, e) : SPX_OK;
    if (st == SPX_OK)
        st = spx_run_extra_input(s, n > 0 ? file : "-", &in, e);
    if (st != SPX_OK)
        return st;
    for (; path == NULL && *usual != NULL; usual++)
        if (spx_h5_exists(in->file, *usual))
            path = *usual;
    if (path == NULL)
        return spx_fail_at(e, SPX_EUSAGE, in->name, NULL, NULL,
                           "name the dataset as FILE:/path (h5ls -r shows what is there)");
    return spx_dataset_open(in, path, d, e);
}

spx_status spx_dataset_read(const spx_dataset *d, const size_t *start, const size_t *count, double *out, spx_err *e)
{
    hsize_t from[SPX_H5_MAXDIM], many[SPX_H5_MAXDIM], total = 1;
    for (int i = 0; i < d->ndim; i++) {
        from[i] = start[i];
        many[i] = count[i];
        total *= count[i];
    }
    if (total == 0)
        return SPX_OK;
    hid_t set = spx_h5_open(d->in->file, d->path, e);
    if (set < 0)
        return e->code;
    hid_t fs = H5Dget_space(set), ms = H5Screate_simple(1, &total, NULL);
    spx_status st = SPX_OK;
    if (fs < 0 || ms < 0 || (d->ndim > 0 && H5Sselect_hyperslab(fs, H5S_SELECT_SET, from, NULL, many, NULL) < 0))
        st = spx_fail_at(e, SPX_EINPUT, d->in->name, d->path, NULL, "cannot be read: is the file damaged?");
    else
        st = spx_h5_get(set, H5T_NATIVE_DOUBLE, ms, fs, out, e);
    for (hsize_t i = 0; st == SPX_OK && !d->is_float && d->bytes > 6 && i < total; i++)
        if (fabs(out[i]) > 0x1p53)
            st = spx_fail_at(e, SPX_EINPUT, d->in->name, d->path, NULL,
                             "%.17g is a whole number beyond 2^53, which float64 does not hold", out[i]);
    if (ms >= 0)
        (void)H5Sclose(ms);
    if (fs >= 0)
        (void)H5Sclose(fs);
    (void)H5Dclose(set);
    return st;
}

void spx_dataset_cut(const spx_dataset *d, int axis, size_t most, size_t *step)
{
    size_t left = most > 0 ? most : 1;
    int cut = 0;
    /* dimensions in the order in which they stay whole: the axis, then the last ones */
    for (int k = axis >= 0 ? d->ndim : d->ndim - 1; k >= 0; k--) {
        const int i = k == d->ndim ? axis : k;
        if (k == axis && k != d->ndim)
            continue;
        step[i] = cut ? 1 : d->dims[i] < left ? d->dims[i] : left;
        if (step[i] == 0)
            step[i] = 1;
        cut |= step[i] < d->dims[i];
        left /= step[i];
        if (left == 0)
            left = 1;
    }
}

void spx_dataset_block(const spx_dataset *d, const size_t *step, const size_t *start, size_t *count)
{
    for (int i = 0; i < d->ndim; i++)
        count[i] = d->dims[i] - start[i] < step[i] ? d->dims[i] - start[i] : step[i];
}

int spx_dataset_next(const spx_dataset *d, int axis, const size_t *step, size_t *start)
{
    for (int k = axis >= 0 ? d->ndim : d->ndim - 1; k >= 0; k--) {
        const int i = k == d->ndim ? axis : k;
        if (k == axis && k != d->ndim)
            continue;
        start[i] += step[i];
        if (start[i] < d->dims[i])
            return 1;
        start[i] = 0;
    }
    return 0;
}

spx_status spx_dataset_write(hid_t file, const char *path, hid_t memtype, int ndim, const size_t *start,
                             const size_t *count, const void *data, spx_err *e)
{
    hsize_t from[SPX_H5_MAXDIM], many[SPX_H5_MAXDIM], total = 1;
    for (int i = 0; i < ndim; i++) {
        from[i] = start[i];
        many[i] = count[i];
        total *= count[i];
    }
    hid_t set = spx_h5_open(file, path, e), fs = H5I_INVALID_HID, ms = H5I_INVALID_HID;
    if (set < 0)
        return SPX_EBUG;
    fs = H5Dget_space(set);
    ms = H5Screate_simple(1, &total, NULL);
    int bad = fs < 0 || ms < 0 || (ndim > 0 && H5Sselect_hyperslab(fs, H5S_SELECT_SET, from, NULL, many, NULL) < 0) ||
              (total > 0 && H5Dwrite(set, memtype, ms, fs, H5P_DEFAULT, data) < 0);
    if (ms >= 0)
        (void)H5Sclose(ms);
    if (fs >= 0)
        (void)H5Sclose(fs);
    bad |= H5Dclose(set) < 0;
    return bad ? spx_fail(e, SPX_EIO, "%s:%s: cannot be written: %s", spx_h5_filename(file), path, spx_h5_no_memory())
               : SPX_OK;
}
