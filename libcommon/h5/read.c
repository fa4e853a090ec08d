/* Reads datasets into typed memory, through HDF5 or directly (h5/read.h). */
#include "h5/read.h"

#include <omp.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"
#include "h5/deferred.h"
#include "h5/gather.h"
#include "h5/heaps.h"
#include "h5/internal.h"
#include "h5/inventory.h"
#include "h5/object.h"

/* Touches fresh memory with several threads: page faults at the first touch would take longer in the one thread that
 * reads into it. */
static void touch(char *p, size_t bytes)
{
    enum {
        PAGE = 4096,
        SHARE = 1 << 20 /* bytes of a thread, at least: it takes time to wake, and spins afterwards */
    };
    const size_t shares = bytes / SHARE + 1, most = (size_t)omp_get_max_threads();
#pragma omp parallel for num_threads((int)(shares < most ? shares : most)) if (bytes > 8 * (size_t)SPX_H5_MANY_VALUES)
    for (size_t k = 0; k < bytes; k += PAGE)
        p[k] = 0;
}

spx_status spx_h5_get(hid_t d, hid_t mem, hid_t mspace, hid_t fspace, void *out, spx_err *e)
{
    spx_status st = spx_inventory_verify(d, fspace, e);
    if (st == SPX_OK && !spx_heaps_values(d, mem, mspace, fspace))
        st = spx_h5_fail_at(d, ".", SPX_EINPUT, "refers to what is not there: is the file damaged?", e);
    if (st == SPX_OK && H5Dread(d, mem, mspace, fspace, H5P_DEFAULT, out) < 0)
        st = spx_h5_fail_at(d, ".", SPX_EINPUT,
                            "cannot be read: is the file damaged, or packed with a filter that is missing here?", e);
    return st;
}

/* 1 when converting the file type to memory type `mem` keeps the class of values: numbers, strings. */
int spx_h5_class_fits(hid_t ftype, hid_t mem)
{
    H5T_class_t f = H5Tget_class(ftype), m = H5Tget_class(mem);
    if (m == H5T_FLOAT)
        return f == H5T_FLOAT || f == H5T_INTEGER;
    if (m == H5T_INTEGER)
        return f == H5T_INTEGER || f == H5T_ENUM;
    return f == m;
}

/* Memory type for masks: HDF5 clips negative numbers when it converts them to unsigned, and bits would be lost; they
 * are read as signed. */
static hid_t memory_type(hid_t ftype, hid_t mem)
{
    return H5Tequal(mem, H5T_NATIVE_UINT32) > 0 && H5Tget_size(ftype) == 4 && H5Tget_class(ftype) == H5T_INTEGER &&
                   H5Tget_sign(ftype) == H5T_SGN_2
               ? H5T_NATIVE_INT32
               : mem;
}

static spx_status check_shape(hid_t loc, const char *path, hid_t d, int ndim, size_t *dims, spx_err *e)
{
    int n = 0;
    size_t have[SPX_H5_MAXDIM];
    if (spx_h5_dataset_dims(d, &n, have) != SPX_OK || n != ndim) {
        char what[128];
        (void)snprintf(what, sizeof what, "has %d dimensions, %d expected", n, ndim);
        return spx_h5_fail_at(loc, path, SPX_EINPUT, what, e);
    }
    for (int i = 0; i < n; i++) {
        if (dims[i] != 0 && dims[i] != have[i]) {
            char what[128];
            (void)snprintf(what, sizeof what, "dimension %d is %zu, %zu expected from the other datasets", i, have[i],
                           dims[i]);
            return spx_h5_fail_at(loc, path, SPX_EINPUT, what, e);
        }
        dims[i] = have[i];
    }
    return SPX_OK;
}

spx_status spx_h5_check_shape(hid_t loc, const char *path, int ndim, size_t *dims, spx_err *e)
{
    const hid_t d = spx_h5_open(loc, path, e);
    if (d < 0)
        return e->code;
    const spx_status st = check_shape(loc, path, d, ndim, dims, e);
    (void)H5Dclose(d);
    return st;
}

/* All rows of float32 as doubles: each piece of the file is read, compared and widened once. *done: 0, they are of
 * another type, or few. */
static spx_status read_wider(hid_t loc, const char *path, hid_t ftype, hid_t mem, size_t nrow, size_t n, void *out,
                             int *done, int *finite, spx_err *e)
{
    *done = 0;
    if (nrow < 2 || n < SPX_H5_MANY_VALUES || H5Tequal(mem, H5T_NATIVE_DOUBLE) <= 0 ||
        H5Tequal(ftype, H5T_NATIVE_FLOAT) <= 0)
        return SPX_OK;
    const spx_h5_row row = {1, n / nrow, 0, n / nrow};
    spx_h5_move *m = spx_alloc_unset(nrow, 1, sizeof *m, e);
    for (size_t i = 0; m != NULL && i < nrow; i++)
        m[i] = (spx_h5_move){i, i};
    const spx_status st = m != NULL ? spx_h5_gather(loc, path, mem, &row, nrow, m, out, done, finite, e) : SPX_EIO;
    spx_free(m);
    return st;
}

static spx_status read_any(spx_h5_reads *reads, hid_t loc, const char *path, hid_t mem, int ndim, size_t *dims,
                           void **out, int *finite, spx_err *e)
{
    *out = NULL;
    hid_t d = spx_h5_open(loc, path, e);
    if (d < 0)
        return e->code;
    hid_t ftype = H5Dget_type(d), use = memory_type(ftype, mem);
    spx_status st = check_shape(loc, path, d, ndim, dims, e);
    if (st == SPX_OK && !spx_h5_class_fits(ftype, mem))
        st = spx_h5_fail_at(loc, path, SPX_EINPUT,
                            "has another kind of values than expected (numbers, whole numbers or text)", e);
    size_t n = 1;
    for (int i = 0; i < ndim && st == SPX_OK; i++)
        st = spx_mul(n, dims[i], &n, e);
    if (st == SPX_OK && spx_h5_overclaims(d, n * H5Tget_size(ftype)))
        st = spx_h5_fail_at(loc, path, SPX_EINPUT, "claims more data than the file holds", e);
    const size_t bytes = n * H5Tget_size(mem);
    if (st == SPX_OK && (*out = spx_alloc_unset(n, H5Tget_size(mem), 1, e)) == NULL)
        st = SPX_EIO;
    int done = 0;
    if (st == SPX_OK)
        st = spx_h5_read_directly(reads, loc, path, d, ftype, use, bytes, *out, &done, e);
    if (st == SPX_OK && !done && ndim > 0)
        st = read_wider(loc, path, ftype, use, dims[0], n, *out, &done, finite, e);
    if (st == SPX_OK && !done) {
        touch(*out, bytes);
        if (n > 0)
            st = spx_h5_get(d, use, H5S_ALL, H5S_ALL, *out, e);
    }
    if (st != SPX_OK) {
        spx_free(*out);
        *out = NULL;
    }
    (void)H5Tclose(ftype);
    (void)H5Dclose(d);
    return st;
}

#define READER(name, ctype, h5type, reads, ...)                                                                        \
    spx_status name(__VA_ARGS__ hid_t loc, const char *path, int ndim, size_t *dims, ctype **out, spx_err *e)          \
    {                                                                                                                  \
        void *p = NULL;                                                                                                \
        spx_status st = read_any(reads, loc, path, h5type, ndim, dims, &p, NULL, e);                                   \
        *out = p;                                                                                                      \
        return st;                                                                                                     \
    }
#define ONTO_LIST spx_h5_reads *reads,
READER(spx_h5_read_f64, double, H5T_NATIVE_DOUBLE, NULL)
READER(spx_h5_read_f32, float, H5T_NATIVE_FLOAT, NULL)
READER(spx_h5_read_i32, int32_t, H5T_NATIVE_INT32, NULL)
READER(spx_h5_read_u32, uint32_t, H5T_NATIVE_UINT32, NULL)
READER(spx_h5_read_u8, uint8_t, H5T_NATIVE_UINT8, NULL)
READER(spx_h5_defer_f32, float, H5T_NATIVE_FLOAT, reads, ONTO_LIST)

spx_status spx_h5_defer_mask(spx_h5_reads *reads, hid_t loc, const char *path, int ndim, size_t *dims, float *weight,
                             int *done, spx_err *e)
{
    size_t n = 1;
    *done = 0;
    const hid_t d = spx_h5_open(loc, path, e);
    if (d < 0)
        return e->code;
    const hid_t ftype = H5Dget_type(d);
    spx_status st = check_shape(loc, path, d, ndim, dims, e);
    for (int i = 0; i < ndim && st == SPX_OK; i++)
        st = spx_mul(n, dims[i], &n, e);
    if (st == SPX_OK && n <= SIZE_MAX / sizeof(uint32_t))
        st = spx_h5_mask_directly(reads, loc, path, d, ftype, n * sizeof(uint32_t), weight, done, e);
    (void)H5Tclose(ftype);
    (void)H5Dclose(d);
    return st;
}

spx_status spx_h5_read_checked(hid_t loc, const char *path, int ndim, size_t *dims, double **out, int *finite,
                               spx_err *e)
{
    void *p = NULL;
    *finite = 0;
    const spx_status st = read_any(NULL, loc, path, H5T_NATIVE_DOUBLE, ndim, dims, &p, finite, e);
    *out = p;
    return st;
}

/* Makes memory and file spaces that select rows [first, first+n). */
spx_status spx_h5_row_spaces(hid_t d, size_t first, size_t n, hid_t *fspace, hid_t *mspace)
{
    hsize_t dims[H5S_MAX_RANK], start[H5S_MAX_RANK] = {0};
    *mspace = H5I_INVALID_HID;
    *fspace = H5Dget_space(d);
    int nd = *fspace < 0 ? -1 : H5Sget_simple_extent_dims(*fspace, dims, NULL);
    if (nd == 0 && first == 0 && n == 1) { /* a scalar is one row */
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
        return e->code;
    hid_t ftype = H5Dget_type(d);
    spx_status st = SPX_OK;
    if (!spx_h5_class_fits(ftype, mem))
        st = spx_h5_fail_at(loc, path, SPX_EINPUT, "has another kind of values than expected", e);
    else if (spx_h5_row_spaces(d, first, n, &fs, &ms) != SPX_OK)
        st = spx_h5_fail_at(loc, path, SPX_EINPUT, "has fewer rows than expected", e);
    else if (n > 0)
        st = spx_h5_get(d, memory_type(ftype, mem), ms, fs, out, e);
    if (ms >= 0)
        (void)H5Sclose(ms);
    if (fs >= 0)
        (void)H5Sclose(fs);
    (void)H5Tclose(ftype);
    (void)H5Dclose(d);
    return st;
}

/* Blocks of *width characters; 0: as long as they are in the file, which is at most `most`. */
static spx_status read_text(hid_t loc, const char *path, size_t most, size_t *width, size_t *n, char **out, spx_err *e)
{
    hid_t d = spx_h5_open(loc, path, e);
    if (d < 0)
        return e->code;
    hid_t ftype = H5Dget_type(d);
    int fixed = H5Tget_class(ftype) == H5T_STRING && H5Tis_variable_str(ftype) == 0;
    size_t have = H5Tget_size(ftype);
    (void)H5Tclose(ftype);
    (void)H5Dclose(d);
    if (!fixed || have > most)
        return spx_h5_fail_at(loc, path, SPX_EINPUT,
                              fixed ? "holds longer text than expected" : "is not fixed-length text", e);
    if (*width == 0)
        *width = have;
    hid_t mem = H5Tcopy(H5T_C_S1);
    (void)H5Tset_size(mem, *width);
    (void)H5Tset_strpad(mem, H5T_STR_NULLPAD);
    void *p = NULL;
    *n = 0;
    spx_status st = read_any(NULL, loc, path, mem, 1, n, &p, NULL, e);
    (void)H5Tclose(mem);
    *out = p;
    if (st != SPX_OK) /* none that somebody could look at before the failure is passed on */
        *n = 0;
    return st;
}

spx_status spx_h5_read_strings(hid_t loc, const char *path, size_t size, size_t *n, char **out, spx_err *e)
{
    return read_text(loc, path, size, &size, n, out, e);
}

spx_status spx_h5_read_lines(hid_t loc, const char *path, size_t most, size_t *width, size_t *n, char **out, spx_err *e)
{
    *width = 0;
    return read_text(loc, path, most, width, n, out, e);
}
