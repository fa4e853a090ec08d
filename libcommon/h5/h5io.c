#include "h5/h5io.h"

#include <errno.h>
#include <float.h>
#include <hdf5_hl.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/tmpfile.h"
#include "h5/schema.h"

/* From so many values on threads are worth their start. */
enum { MANY_VALUES = 1 << 17 };

/* Fresh memory is given page by page, at the first touch: several threads have it sooner than one that reads into it.
 */
static void touch(char *p, size_t bytes)
{
    enum { PAGE = 4096 };
#pragma omp parallel for if (bytes > 8 * (size_t)MANY_VALUES)
    for (size_t k = 0; k < bytes; k += PAGE)
        p[k] = 0;
}

/* A hostile file must not make us open others: external links are refused where they are met. */
static herr_t refuse_external(const char *pf, const char *po, const char *cf, const char *co, unsigned *flags,
                              hid_t fapl, void *data)
{
    (void)pf, (void)po, (void)cf, (void)co, (void)flags, (void)fapl, (void)data;
    return -1;
}

static hid_t access_list(hid_t class)
{
    hid_t list = H5Pcreate(class);
    if (list >= 0 && H5Pset_elink_cb(list, refuse_external, NULL) < 0) {
        (void)H5Pclose(list);
        list = H5I_INVALID_HID;
    }
    return list;
}

const char *spx_h5_filename(hid_t loc)
{
    static _Thread_local char name[1024];
    if (H5Fget_name(loc, name, sizeof name) < 0)
        return "HDF5 file";
    return strncmp(name, "file_image_", 11) == 0 ? "standard input" : spx_tmpfile_shown(name);
}

/* Absolute path of `path` below `loc`. */
static void absolute(hid_t loc, const char *path, char *out, size_t size)
{
    char base[512] = "";
    if (path[0] == '/' || H5Iget_name(loc, base, sizeof base) < 0)
        base[0] = '\0';
    if (strcmp(path, ".") == 0 || path[0] == '\0')
        (void)snprintf(out, size, "%s", base[0] != '\0' ? base : "/");
    else
        (void)snprintf(out, size, "%s%s%s", base,
                       path[0] == '/' || (base[0] != '\0' && base[strlen(base) - 1] == '/') ? "" : "/", path);
}

static spx_status fail_at(hid_t loc, const char *path, spx_status code, const char *what, spx_err *e)
{
    char abs[600];
    absolute(loc, path, abs, sizeof abs);
    return spx_fail(e, code, "%s:%s: %s", spx_h5_filename(loc), abs, what);
}

int spx_h5_exists(hid_t loc, const char *path)
{
    char part[600];
    size_t n = strlen(path);
    if (strcmp(path, "/") == 0 || strcmp(path, ".") == 0)
        return 1;
    if (n == 0 || n >= sizeof part)
        return 0;
    hid_t lapl = access_list(H5P_LINK_ACCESS);
    int found = lapl >= 0;
    for (size_t i = 1; i <= n && found; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        found = H5Lexists(loc, part, lapl) > 0 && H5Oexists_by_name(loc, part, lapl) > 0;
    }
    if (lapl >= 0)
        (void)H5Pclose(lapl);
    return found;
}

hid_t spx_h5_open(hid_t loc, const char *path, spx_err *e)
{
    if (!spx_h5_exists(loc, path)) {
        fail_at(loc, path, SPX_EINPUT, "dataset is missing: is this the right kind of file? (h5check tells)", e);
        return H5I_INVALID_HID;
    }
    hid_t dapl = access_list(H5P_DATASET_ACCESS);
    hid_t d = H5Dopen2(loc, path, dapl);
    (void)H5Pclose(dapl);
    if (d < 0) {
        fail_at(loc, path, SPX_EINPUT, "is not a dataset", e);
        return d;
    }
    /* data outside the file would let a hostile file read other files */
    hid_t dcpl = H5Dget_create_plist(d);
    int outside = dcpl < 0 || H5Pget_external_count(dcpl) != 0 || H5Pget_layout(dcpl) == H5D_VIRTUAL;
    if (dcpl >= 0)
        (void)H5Pclose(dcpl);
    if (outside) {
        fail_at(loc, path, SPX_EINPUT, "keeps its data in other files, which is not accepted: h5repack it first", e);
        (void)H5Dclose(d);
        return H5I_INVALID_HID;
    }
    return d;
}

static spx_status dataset_dims(hid_t d, int *ndim, size_t dims[SPX_H5_MAXDIM])
{
    hsize_t h[H5S_MAX_RANK];
    hid_t s = H5Dget_space(d);
    int n = s < 0 ? -1 : H5Sget_simple_extent_dims(s, h, NULL);
    if (s >= 0)
        (void)H5Sclose(s);
    if (n < 0 || n > SPX_H5_MAXDIM)
        return SPX_EINPUT;
    for (int i = 0; i < n; i++)
        dims[i] = (size_t)h[i];
    *ndim = n;
    return SPX_OK;
}

spx_status spx_h5_shape(hid_t loc, const char *path, int *ndim, size_t dims[SPX_H5_MAXDIM], spx_err *e)
{
    hid_t d = spx_h5_open(loc, path, e);
    if (d < 0)
        return SPX_EINPUT;
    spx_status st = dataset_dims(d, ndim, dims);
    if (st != SPX_OK)
        fail_at(loc, path, st, "has too many dimensions", e);
    (void)H5Dclose(d);
    return st;
}

typedef struct {
    size_t n, room;
    char **names;
    spx_err *e;
} name_list;

static herr_t add_name(hid_t g, const char *name, const H5L_info_t *info, void *data)
{
    (void)g, (void)info;
    name_list *l = data;
    if (l->n == l->room || (l->names[l->n] = spx_strdup(name, l->e)) == NULL)
        return -1;
    l->n++;
    return 0;
}

spx_status spx_h5_list(hid_t loc, const char *path, size_t *n, char ***names, spx_err *e)
{
    spx_err err = {0};
    name_list l = {0, 0, NULL, &err};
    H5G_info_t info;
    *n = 0;
    *names = NULL;
    if (!spx_h5_exists(loc, path) || H5Gget_info_by_name(loc, path, &info, H5P_DEFAULT) < 0)
        return fail_at(loc, path, SPX_EINPUT, "group is missing", e);
    l.room = (size_t)info.nlinks;
    if ((l.names = spx_alloc(l.room, sizeof *l.names, e)) == NULL)
        return SPX_EIO;
    hsize_t idx = 0;
    if (H5Literate_by_name(loc, path, H5_INDEX_NAME, H5_ITER_INC, &idx, add_name, &l, H5P_DEFAULT) < 0) {
        spx_h5_names_free(l.n, l.names);
        if (err.code != SPX_OK) /* memory */
            return spx_fail(e, err.code, "%s", err.msg);
        return fail_at(loc, path, SPX_EINPUT, "cannot list the group: is the file damaged?", e);
    }
    *n = l.n;
    *names = l.names;
    return SPX_OK;
}

void spx_h5_names_free(size_t n, char **names)
{
    for (size_t i = 0; names != NULL && i < n; i++)
        spx_free(names[i]);
    spx_free(names);
}

/* ---- reading ---- */

/* Does the file type's class go into memory type `mem` without changing what a value means? */
static int class_fits(hid_t ftype, hid_t mem)
{
    H5T_class_t f = H5Tget_class(ftype), m = H5Tget_class(mem);
    if (m == H5T_FLOAT)
        return f == H5T_FLOAT || f == H5T_INTEGER;
    if (m == H5T_INTEGER)
        return f == H5T_INTEGER || f == H5T_ENUM;
    return f == m;
}

/* HDF5 clips negative numbers when it makes them unsigned; the bits of a mask must survive. */
static hid_t memory_type(hid_t ftype, hid_t mem)
{
    return H5Tequal(mem, H5T_NATIVE_UINT32) > 0 && H5Tget_size(ftype) == 4 && H5Tget_class(ftype) == H5T_INTEGER &&
                   H5Tget_sign(ftype) == H5T_SGN_2
               ? H5T_NATIVE_INT32
               : mem;
}

int spx_h5_overclaims(hid_t d, size_t bytes)
{
    /* gzip packs at most 1:1032; and what is stored cannot be larger than the file, whatever the header says */
    hsize_t stored = H5Dget_storage_size(d), size = 0;
    hid_t f = H5Iget_file_id(d);
    if (f < 0 || H5Fget_filesize(f, &size) < 0)
        size = 0;
    if (f >= 0)
        (void)H5Fclose(f);
    return bytes > ((size_t)1 << 20) && bytes / 2048 > (stored < size ? stored : size);
}

static spx_status check_shape(hid_t loc, const char *path, hid_t d, int ndim, size_t *dims, spx_err *e)
{
    int n = 0;
    size_t have[SPX_H5_MAXDIM];
    if (dataset_dims(d, &n, have) != SPX_OK || n != ndim) {
        char what[128];
        (void)snprintf(what, sizeof what, "has %d dimensions, %d expected", n, ndim);
        return fail_at(loc, path, SPX_EINPUT, what, e);
    }
    for (int i = 0; i < n; i++) {
        if (dims[i] != 0 && dims[i] != have[i]) {
            char what[128];
            (void)snprintf(what, sizeof what, "dimension %d is %zu, %zu expected from the other datasets", i, have[i],
                           dims[i]);
            return fail_at(loc, path, SPX_EINPUT, what, e);
        }
        dims[i] = have[i];
    }
    return SPX_OK;
}

/* Where in its file, whose descriptor *fd is, a dataset lies in one piece of `bytes` bytes of type `mem`; -1: nowhere,
 * or the file is not one that is only read. */
static off_t place_in_file(hid_t d, hid_t ftype, hid_t mem, size_t bytes, int *fd)
{
    const haddr_t at = H5Dget_offset(d);
    hid_t dcpl = H5Dget_create_plist(d), f = H5Iget_file_id(d), fapl = f < 0 ? f : H5Fget_access_plist(f);
    unsigned intent = H5F_ACC_RDWR;
    void *handle = NULL;
    int plain = dcpl >= 0 && fapl >= 0 && at < (haddr_t)1 << 48 && H5Pget_layout(dcpl) == H5D_CONTIGUOUS &&
                H5Dget_storage_size(d) == bytes && H5Tequal(ftype, mem) > 0 && H5Fget_intent(f, &intent) >= 0 &&
                intent == H5F_ACC_RDONLY && H5Pget_driver(fapl) == H5FD_SEC2 &&
                H5Fget_vfd_handle(f, fapl, &handle) >= 0 && handle != NULL;
    if (plain)
        *fd = *(int *)handle;
    if (fapl >= 0)
        (void)H5Pclose(fapl);
    if (f >= 0)
        (void)H5Fclose(f);
    if (dcpl >= 0)
        (void)H5Pclose(dcpl);
    return plain ? (off_t)at : -1;
}

/* ---- values that are read without HDF5 ---- */

static spx_h5_unread *unread;

void spx_h5_leave(spx_h5_unread *u)
{
    unread = u;
}

spx_status spx_h5_read_parts(const spx_h5_unread *u, int nthreads, spx_err *e)
{
    enum { PART = 1 << 20 };
    spx_status st = SPX_OK;
    for (size_t i = 0; i < u->n && st == SPX_OK; i++) {
        const size_t bytes = u->part[i].bytes;
        int bad = 0;
#pragma omp parallel for num_threads(nthreads) schedule(dynamic) reduction(| : bad)
        for (size_t k = 0; k < bytes; k += PART) {
            const size_t end = bytes - k < PART ? bytes : k + PART;
            for (size_t n = k; n < end && !bad;) {
                const ssize_t got = pread(u->part[i].fd, u->part[i].to + n, end - n, (off_t)u->part[i].at + (off_t)n);
                if (got > 0)
                    n += (size_t)got;
                else if (got == 0 || errno != EINTR) /* beyond the end of the file HDF5 would see zeros */
                    bad = 1;
            }
        }
        if (bad)
            st = spx_fail(e, SPX_EINPUT, "%s: cannot be read: is the file damaged?", u->part[i].name);
    }
    return st;
}

/* Large arrays of numbers that lie in the file as they are wanted in memory: read by several threads, which HDF5 cannot
 * be used by, and who fetch the pages of fresh memory side by side; or left for later. *done: 0, HDF5 has to read. */
static spx_status read_directly(hid_t loc, const char *path, hid_t d, hid_t ftype, hid_t mem, size_t bytes, char *out,
                                int *done, spx_err *e)
{
    enum { LARGE = 4 << 20, FEW = 8 };
    char abs[600];
    int fd = -1;
    const off_t at = bytes < LARGE || H5Tget_class(mem) == H5T_STRING ? -1 : place_in_file(d, ftype, mem, bytes, &fd);
    const int most = omp_get_max_threads();
    *done = at >= 0;
    if (!*done)
        return SPX_OK;
    spx_h5_unread now = {0}, *u = unread != NULL && unread->n < SPX_H5_PARTS ? unread : &now;
    const size_t k = u->n++;
    absolute(loc, path, abs, sizeof abs);
    (void)snprintf(u->part[k].name, sizeof u->part[k].name, "%s:%s", spx_h5_filename(loc), abs);
    u->part[k].fd = fd;
    u->part[k].at = (int64_t)at;
    u->part[k].bytes = bytes;
    u->part[k].to = out;
    return u == &now ? spx_h5_read_parts(u, most < FEW ? most : FEW, e) : SPX_OK;
}

static spx_status read_any(hid_t loc, const char *path, hid_t mem, int ndim, size_t *dims, void **out, spx_err *e)
{
    *out = NULL;
    hid_t d = spx_h5_open(loc, path, e);
    if (d < 0)
        return SPX_EINPUT;
    hid_t ftype = H5Dget_type(d), use = memory_type(ftype, mem);
    spx_status st = check_shape(loc, path, d, ndim, dims, e);
    if (st == SPX_OK && !class_fits(ftype, mem))
        st = fail_at(loc, path, SPX_EINPUT, "has another kind of values than expected (numbers, whole numbers or text)",
                     e);
    size_t n = 1;
    for (int i = 0; i < ndim && st == SPX_OK; i++)
        st = spx_mul(n, dims[i], &n, e);
    if (st == SPX_OK && spx_h5_overclaims(d, n * H5Tget_size(ftype)))
        st = fail_at(loc, path, SPX_EINPUT, "claims more data than the file holds", e);
    const size_t bytes = n * H5Tget_size(mem);
    if (st == SPX_OK && (*out = spx_alloc_unset(n, H5Tget_size(mem), 1, e)) == NULL)
        st = SPX_EIO;
    int done = 0;
    if (st == SPX_OK)
        st = read_directly(loc, path, d, ftype, use, bytes, *out, &done, e);
    if (st == SPX_OK && !done) {
        touch(*out, bytes);
        if (n > 0 && H5Dread(d, use, H5S_ALL, H5S_ALL, H5P_DEFAULT, *out) < 0)
            st = fail_at(loc, path, SPX_EINPUT, "cannot be read: is the file damaged?", e);
    }
    if (st != SPX_OK) {
        spx_free(*out);
        *out = NULL;
    }
    (void)H5Tclose(ftype);
    (void)H5Dclose(d);
    return st;
}

#define READER(suffix, ctype, h5type)                                                                                  \
    spx_status spx_h5_read_##suffix(hid_t loc, const char *path, int ndim, size_t *dims, ctype **out, spx_err *e)      \
    {                                                                                                                  \
        void *p = NULL;                                                                                                \
        spx_status st = read_any(loc, path, h5type, ndim, dims, &p, e);                                                \
        *out = p;                                                                                                      \
        return st;                                                                                                     \
    }
READER(f64, double, H5T_NATIVE_DOUBLE)
READER(f32, float, H5T_NATIVE_FLOAT)
READER(i32, int32_t, H5T_NATIVE_INT32)
READER(u32, uint32_t, H5T_NATIVE_UINT32)
READER(u8, uint8_t, H5T_NATIVE_UINT8)

/* Memory and file spaces that select rows [first, first+n). */
static spx_status row_spaces(hid_t d, size_t first, size_t n, hid_t *fspace, hid_t *mspace)
{
    hsize_t dims[H5S_MAX_RANK], start[H5S_MAX_RANK] = {0};
    *mspace = H5I_INVALID_HID;
    *fspace = H5Dget_space(d);
    int nd = *fspace < 0 ? -1 : H5Sget_simple_extent_dims(*fspace, dims, NULL);
    if (nd == 0 && first == 0 && n == 1) { /* a single value is a row */
        *mspace = H5Screate(H5S_SCALAR);
        return *mspace < 0 ? SPX_EIO : SPX_OK;
    }
    if (nd < 1 || first > dims[0] || n > dims[0] - first)
        return SPX_EINPUT;
    start[0] = first;
    dims[0] = n;
    if (n == 0 ? H5Sselect_none(*fspace) < 0
               : H5Sselect_hyperslab(*fspace, H5S_SELECT_SET, start, NULL, dims, NULL) < 0)
        return SPX_EINPUT;
    *mspace = H5Screate_simple(nd, dims, NULL);
    return *mspace < 0 ? SPX_EIO : SPX_OK;
}

spx_status spx_h5_read_rows(hid_t loc, const char *path, hid_t mem, size_t first, size_t n, void *out, spx_err *e)
{
    hid_t d = spx_h5_open(loc, path, e), fs = H5I_INVALID_HID, ms = H5I_INVALID_HID;
    if (d < 0)
        return SPX_EINPUT;
    hid_t ftype = H5Dget_type(d);
    spx_status st = SPX_OK;
    if (!class_fits(ftype, mem))
        st = fail_at(loc, path, SPX_EINPUT, "has another kind of values than expected", e);
    else if (row_spaces(d, first, n, &fs, &ms) != SPX_OK)
        st = fail_at(loc, path, SPX_EINPUT, "has fewer rows than expected", e);
    else if (n > 0 && H5Dread(d, memory_type(ftype, mem), ms, fs, H5P_DEFAULT, out) < 0)
        st = fail_at(loc, path, SPX_EINPUT, "cannot be read: is the file damaged?", e);
    if (ms >= 0)
        (void)H5Sclose(ms);
    if (fs >= 0)
        (void)H5Sclose(fs);
    (void)H5Tclose(ftype);
    (void)H5Dclose(d);
    return st;
}

spx_status spx_h5_read_strings(hid_t loc, const char *path, size_t size, size_t *n, char **out, spx_err *e)
{
    hid_t d = spx_h5_open(loc, path, e);
    if (d < 0)
        return SPX_EINPUT;
    hid_t ftype = H5Dget_type(d);
    int fixed = H5Tget_class(ftype) == H5T_STRING && H5Tis_variable_str(ftype) == 0;
    size_t have = H5Tget_size(ftype);
    (void)H5Tclose(ftype);
    (void)H5Dclose(d);
    if (!fixed || have > size)
        return fail_at(loc, path, SPX_EINPUT, fixed ? "holds longer text than expected" : "is not fixed-length text",
                       e);
    hid_t mem = H5Tcopy(H5T_C_S1);
    (void)H5Tset_size(mem, size);
    (void)H5Tset_strpad(mem, H5T_STR_NULLPAD);
    void *p = NULL;
    *n = 0;
    spx_status st = read_any(loc, path, mem, 1, n, &p, e);
    (void)H5Tclose(mem);
    *out = p;
    return st;
}

int spx_h5_has_attr(hid_t loc, const char *path, const char *name)
{
    return spx_h5_exists(loc, path) && H5Aexists_by_name(loc, path, name, H5P_DEFAULT) > 0;
}

static hid_t open_attr(hid_t loc, const char *path, const char *name, spx_err *e)
{
    char what[200];
    hid_t a =
        spx_h5_has_attr(loc, path, name) ? H5Aopen_by_name(loc, path, name, H5P_DEFAULT, H5P_DEFAULT) : H5I_INVALID_HID;
    if (a < 0) {
        (void)snprintf(what, sizeof what, "attribute '%s' is missing", name);
        fail_at(loc, path, SPX_EINPUT, what, e);
        return a;
    }
    hid_t s = H5Aget_space(a);
    hssize_t n = H5Sget_simple_extent_npoints(s);
    (void)H5Sclose(s);
    if (n != 1) {
        (void)snprintf(what, sizeof what, "attribute '%s' is not a single value", name);
        fail_at(loc, path, SPX_EINPUT, what, e);
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
    if (!class_fits(t, mem) || H5Aread(a, mem, out) < 0) {
        char what[200];
        (void)snprintf(what, sizeof what, "attribute '%s' is not a number of the expected kind", name);
        st = fail_at(loc, path, SPX_EINPUT, what, e);
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

spx_status spx_h5_attr_str(hid_t loc, const char *path, const char *name, char *out, size_t size, spx_err *e)
{
    hid_t a = open_attr(loc, path, name, e);
    if (a < 0)
        return SPX_EINPUT;
    hid_t t = H5Aget_type(a);
    spx_status st = SPX_EINPUT;
    if (H5Tget_class(t) == H5T_STRING && H5Tis_variable_str(t) > 0) {
        char *s = NULL;
        hid_t mem = H5Tcopy(H5T_C_S1);
        (void)H5Tset_size(mem, H5T_VARIABLE);
        (void)H5Tset_cset(mem, H5Tget_cset(t));
        if (H5Aread(a, mem, &s) >= 0) {
            (void)snprintf(out, size, "%s", s != NULL ? s : "");
            (void)H5free_memory(s);
            st = SPX_OK;
        }
        (void)H5Tclose(mem);
    } else if (H5Tget_class(t) == H5T_STRING) {
        size_t n = H5Tget_size(t);
        char *s = spx_alloc(n + 1, 1, e);
        if (s != NULL && H5Aread(a, t, s) >= 0) {
            (void)snprintf(out, size, "%s", s);
            st = SPX_OK;
        }
        spx_free(s);
    }
    if (st != SPX_OK) {
        char what[200];
        (void)snprintf(what, sizeof what, "attribute '%s' is not text", name);
        fail_at(loc, path, st, what, e);
    }
    (void)H5Tclose(t);
    (void)H5Aclose(a);
    return st;
}

/* ---- writing ---- */

static spx_status write_failed(hid_t loc, const char *path, spx_err *e)
{
    char what[sizeof e->msg + 32];
    (void)snprintf(what, sizeof what, "cannot be written: %s", spx_h5_no_room());
    return fail_at(loc, path, SPX_EIO, what, e);
}

static spx_status put_attr(hid_t loc, const char *path, const char *name, hid_t filetype, hid_t mem, hid_t space,
                           const void *value, spx_err *e)
{
    if (H5Aexists_by_name(loc, path, name, H5P_DEFAULT) > 0)
        (void)H5Adelete_by_name(loc, path, name, H5P_DEFAULT);
    hid_t a = H5Acreate_by_name(loc, path, name, filetype, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    int bad = a < 0 || H5Awrite(a, mem, value) < 0;
    if (a >= 0 && H5Aclose(a) < 0)
        bad = 1;
    return bad ? write_failed(loc, path, e) : SPX_OK;
}

static spx_status put_scalar(hid_t loc, const char *path, const char *name, hid_t filetype, hid_t mem,
                             const void *value, spx_err *e)
{
    hid_t s = H5Screate(H5S_SCALAR);
    spx_status st = put_attr(loc, path, name, filetype, mem, s, value, e);
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
        return write_failed(loc, path, e);
    spx_status st = put_scalar(loc, path, name, t, t, &v, e);
    (void)H5Tclose(t);
    return st;
}

/* Attributes that the schema gives to an object. */
static spx_status describe(hid_t loc, const char *path, spx_err *e)
{
    char abs[600];
    absolute(loc, path, abs, sizeof abs);
    const spx_item *it = spx_schema_find(abs);
    spx_status st = SPX_OK;
    if (it == NULL)
        return SPX_OK;
    /* h5dump -H shows no attribute's value, but comments: so that it explains the file */
    char comment[640];
    (void)snprintf(comment, sizeof comment, "%s%s%s%s", it->meaning, it->units[0] != '\0' ? " [" : "", it->units,
                   it->units[0] != '\0' ? "]" : "");
    if (H5Oset_comment_by_name(loc, path, comment, H5P_DEFAULT) < 0)
        return write_failed(loc, path, e);
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
    st = put_attr(loc, path, "flag_masks", H5T_STD_U32LE, H5T_NATIVE_UINT32, s, bits, e);
    (void)H5Sclose(s);
    return st == SPX_OK ? spx_h5_set_str(loc, path, "flag_meanings", words, e) : st;
}

spx_status spx_h5_group(hid_t loc, const char *path, spx_err *e)
{
    char part[600];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof part)
        return fail_at(loc, path, SPX_EBUG, "group name is too long", e);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (strcmp(part, "/") == 0 || H5Lexists(loc, part, H5P_DEFAULT) > 0)
            continue;
        hid_t g = H5Gcreate2(loc, part, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        if (g < 0 || H5Gclose(g) < 0)
            return write_failed(loc, part, e);
        spx_status st = describe(loc, part, e);
        if (st != SPX_OK)
            return st;
    }
    return SPX_OK;
}

/* Groups above `path`. */
static spx_status make_parents(hid_t loc, const char *path, spx_err *e)
{
    const char *slash = strrchr(path, '/');
    char up[600];
    if (slash == NULL || slash == path)
        return SPX_OK;
    size_t n = (size_t)(slash - path);
    if (n >= sizeof up)
        return fail_at(loc, path, SPX_EBUG, "name is too long", e);
    memcpy(up, path, n);
    up[n] = '\0';
    return spx_h5_group(loc, up, e);
}

static spx_status create(hid_t loc, const char *path, hid_t type, int ndim, const size_t *dims, hid_t *out, spx_err *e)
{
    hsize_t h[SPX_H5_MAXDIM];
    *out = H5I_INVALID_HID;
    if (ndim < 0 || ndim > SPX_H5_MAXDIM)
        return fail_at(loc, path, SPX_EBUG, "too many dimensions", e);
    for (int i = 0; i < ndim; i++)
        h[i] = dims[i];
    spx_status st = make_parents(loc, path, e);
    if (st != SPX_OK)
        return st;
    hid_t s = ndim == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(ndim, h, NULL);
    /* space is allocated now, so that a full disk shows early; nothing is filled twice */
    hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    (void)H5Pset_fill_time(dcpl, H5D_FILL_TIME_NEVER);
    (void)H5Pset_alloc_time(dcpl, H5D_ALLOC_TIME_EARLY);
    (void)H5Pset_obj_track_times(dcpl, 0); /* same input, same bytes */
    *out = H5Dcreate2(loc, path, type, s, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    (void)H5Pclose(dcpl);
    (void)H5Sclose(s);
    if (*out < 0)
        return write_failed(loc, path, e);
    return SPX_OK;
}

static spx_status close_dataset(hid_t loc, const char *path, hid_t d, spx_status st, spx_err *e)
{
    if (d >= 0 && H5Dclose(d) < 0 && st == SPX_OK)
        st = write_failed(loc, path, e);
    return st == SPX_OK ? describe(loc, path, e) : st;
}

spx_status spx_h5_create(hid_t loc, const char *path, hid_t filetype, int ndim, const size_t *dims, spx_err *e)
{
    hid_t d;
    spx_status st = create(loc, path, filetype, ndim, dims, &d, e);
    return close_dataset(loc, path, d, st, e);
}

/* ---- values that are written later ---- */

static spx_h5_later *later;

void spx_h5_put_off(spx_h5_later *l)
{
    later = l;
}

/* Whether such an array is put off; the dataset is there, its values take `bytes` in the file. */
static int put_off(hid_t loc, const char *path, hid_t d, const void *data, size_t bytes, spx_h5_values values)
{
    const haddr_t at = H5Dget_offset(d);
    if (later == NULL || loc != later->file || later->n == SPX_H5_PARTS || bytes < 4 * (size_t)MANY_VALUES ||
        at >= (haddr_t)1 << 48 || H5Dget_storage_size(d) != bytes)
        return 0;
    const size_t k = later->n++;
    (void)snprintf(later->part[k].path, sizeof later->part[k].path, "%s", path);
    later->part[k].from = data;
    later->part[k].bytes = bytes;
    later->part[k].values = values;
    later->part[k].at = (int64_t)at;
    return 1;
}

/* n values of doubles, as float32 in `to` unless that is NULL; 0: one of them is not finite, which no product holds. */
static int check_values(const double *from, size_t n, float *to)
{
    int bad = 0;
    for (size_t i = 0; i < n; i++) {
        bad |= !isfinite(from[i]);
        if (to != NULL)
            to[i] = from[i] > (double)FLT_MAX ? FLT_MAX : from[i] < -(double)FLT_MAX ? -FLT_MAX : (float)from[i];
    }
    return !bad;
}

/* Part of an array: what a thread checks, converts and writes at a time. */
enum { PIECE = 1 << 15 };

spx_status spx_h5_write_parts(const spx_h5_later *l, int fd, int nthreads, const char *name, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t k = 0; k < l->n && st == SPX_OK; k++) {
        const spx_h5_values values = l->part[k].values;
        const size_t n = l->part[k].bytes, step = PIECE * sizeof(float);
        int failed = 0, bad = 0; /* failed: errno */
#pragma omp parallel for num_threads(nthreads) schedule(dynamic) reduction(| : bad) reduction(max : failed)
        for (size_t at = 0; at < n; at += step) {
            float piece[PIECE];
            const size_t part = n - at < step ? n - at : step;
            const char *from = (const char *)l->part[k].from + at;
            if (values == SPX_H5_DOUBLE) {
                bad |=
                    !check_values((const double *)l->part[k].from + at / sizeof(double), part / sizeof(double), NULL);
            } else if (values == SPX_H5_NARROW) {
                bad |= !check_values((const double *)l->part[k].from + at / sizeof *piece, part / sizeof *piece, piece);
                from = (const char *)piece;
            }
            int why = 0;
            for (size_t done = 0; done < part && why == 0;) {
                const ssize_t got = pwrite(fd, from + done, part - done, l->part[k].at + (off_t)(at + done));
                if (got >= 0)
                    done += (size_t)got;
                else if (errno != EINTR)
                    why = errno;
            }
            failed = why > failed ? why : failed;
        }
        if (bad)
            st = spx_fail(e, SPX_EBUG, "%s:%s: a value is not finite: please report this", name, l->part[k].path);
        else if (failed != 0)
            st = spx_fail(e, SPX_EIO, "%s:%s: cannot be written: %s", name, l->part[k].path, strerror(failed));
    }
    return st;
}

/* ---- arrays ---- */

static size_t count(int ndim, const size_t *dims)
{
    size_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= dims[i];
    return n;
}

static spx_status write_typed(hid_t loc, const char *path, hid_t type, int ndim, const size_t *dims, const void *data,
                              int lasting, spx_err *e)
{
    hid_t d;
    const size_t n = count(ndim, dims);
    spx_status st = create(loc, path, type, ndim, dims, &d, e);
    if (st == SPX_OK && n > 0 && !(lasting && put_off(loc, path, d, data, n * H5Tget_size(type), SPX_H5_AS_THEY_ARE)) &&
        H5Dwrite(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        st = write_failed(loc, path, e);
    return close_dataset(loc, path, d, st, e);
}

spx_status spx_h5_write(hid_t loc, const char *path, hid_t mem, int ndim, const size_t *dims, const void *data,
                        spx_err *e)
{
    return write_typed(loc, path, mem, ndim, dims, data, 0, e);
}

spx_status spx_h5_write_lasting(hid_t loc, const char *path, hid_t mem, int ndim, const size_t *dims, const void *data,
                                spx_err *e)
{
    return write_typed(loc, path, mem, ndim, dims, data, 1, e);
}

/* All of an array now, through memory of its own where it becomes float32. */
static spx_status write_values(hid_t loc, const char *path, hid_t d, int narrow, const double *data, size_t n,
                               spx_err *e)
{
    float *f = narrow ? spx_alloc_unset(n, 1, sizeof *f, e) : NULL;
    if (narrow && f == NULL)
        return SPX_EIO;
    int bad = 0;
#pragma omp parallel for reduction(| : bad) if (n > MANY_VALUES)
    for (size_t i = 0; i < n; i += PIECE)
        bad |= !check_values(data + i, n - i < PIECE ? n - i : PIECE, f != NULL ? f + i : NULL);
    spx_status st = SPX_OK;
    if (bad)
        st = fail_at(loc, path, SPX_EBUG, "a value is not finite: please report this", e);
    else if (n > 0 && H5Dwrite(d, narrow ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                               narrow ? (const void *)f : data) < 0)
        st = write_failed(loc, path, e);
    spx_free(f);
    return st;
}

static spx_status write_real(hid_t loc, const char *path, int precision, int ndim, const size_t *dims,
                             const double *data, int lasting, spx_err *e)
{
    hid_t d;
    const int narrow = precision != 8;
    const size_t n = count(ndim, dims), bytes = n * (narrow ? sizeof(float) : sizeof(double));
    spx_status st = create(loc, path, narrow ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE, ndim, dims, &d, e);
    if (st == SPX_OK && !(lasting && put_off(loc, path, d, data, bytes, narrow ? SPX_H5_NARROW : SPX_H5_DOUBLE)))
        st = write_values(loc, path, d, narrow, data, n, e);
    return close_dataset(loc, path, d, st, e);
}

spx_status spx_h5_write_real(hid_t loc, const char *path, int precision, int ndim, const size_t *dims,
                             const double *data, spx_err *e)
{
    return write_real(loc, path, precision, ndim, dims, data, 0, e);
}

spx_status spx_h5_write_real_lasting(hid_t loc, const char *path, int precision, int ndim, const size_t *dims,
                                     const double *data, spx_err *e)
{
    return write_real(loc, path, precision, ndim, dims, data, 1, e);
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

spx_status spx_h5_write_rows(hid_t loc, const char *path, hid_t mem, size_t first, size_t n, const void *data,
                             spx_err *e)
{
    hid_t d = spx_h5_open(loc, path, e), fs = H5I_INVALID_HID, ms = H5I_INVALID_HID;
    if (d < 0)
        return SPX_EBUG;
    spx_status st = row_spaces(d, first, n, &fs, &ms) != SPX_OK ? fail_at(loc, path, SPX_EBUG, "row is outside", e)
                    : n > 0 && H5Dwrite(d, mem, ms, fs, H5P_DEFAULT, data) < 0 ? write_failed(loc, path, e)
                                                                               : SPX_OK;
    if (ms >= 0)
        (void)H5Sclose(ms);
    if (fs >= 0)
        (void)H5Sclose(fs);
    if (H5Dclose(d) < 0 && st == SPX_OK)
        st = write_failed(loc, path, e);
    return st;
}

spx_status spx_h5_attach_scale(hid_t loc, const char *data, unsigned dim, const char *scale, const char *dimname,
                               spx_err *e)
{
    hid_t d = spx_h5_open(loc, data, e), s = spx_h5_open(loc, scale, e);
    spx_status st = d < 0 || s < 0 ? SPX_EBUG : SPX_OK;
    if (st == SPX_OK && ((H5DSis_scale(s) <= 0 && H5DSset_scale(s, dimname) < 0) || H5DSattach_scale(d, s, dim) < 0))
        st = write_failed(loc, data, e);
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
        st = write_failed(loc, name, e);
    return st;
}
