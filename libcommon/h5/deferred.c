/* Provides deferred reads and writes (h5/deferred.h). A dataset qualifies when it is contiguous, not filtered and of
 * the type wanted in memory: then its bytes are at one offset of the file, and pread() or pwrite() move them. */
#include "h5/deferred.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clones.h"
#include "base/mem.h"
#include "h5/heaps.h"
#include "h5/internal.h"
#include "h5/inventory.h"
#include "h5/object.h"

/* ---- reads ---- */

/* spx_h5_place() of a file that is open with `access`, H5F_ACC_RDONLY or H5F_ACC_RDWR. */
static int64_t place(hid_t d, hid_t ftype, hid_t mem, size_t bytes, unsigned access, int *fd)
{
    const haddr_t at = H5Dget_offset(d);
    hid_t dcpl = H5Dget_create_plist(d), f = H5Iget_file_id(d), fapl = f < 0 ? f : H5Fget_access_plist(f);
    unsigned intent = ~access;
    void *handle = NULL;
    int plain = dcpl >= 0 && fapl >= 0 && at < (haddr_t)1 << 48 && H5Pget_layout(dcpl) == H5D_CONTIGUOUS &&
                H5Dget_storage_size(d) == bytes && H5Tequal(ftype, mem) > 0 && H5Fget_intent(f, &intent) >= 0 &&
                intent == H5F_ACC_RDONLY && (H5Pget_driver(fapl) == H5FD_SEC2 || spx_heaps_is(fapl)) &&
                H5Fget_vfd_handle(f, fapl, &handle) >= 0 && handle != NULL;
    if (plain)
        *fd = *(int *)handle;
    if (fapl >= 0)
        (void)H5Pclose(fapl);
    if (f >= 0)
        (void)H5Fclose(f);
    if (dcpl >= 0)
        (void)H5Pclose(dcpl);
    return plain ? (int64_t)at : -1;
}

int64_t spx_h5_place(hid_t d, hid_t ftype, hid_t mem, size_t bytes, int *fd)
{
    return place(d, ftype, mem, bytes, H5F_ACC_RDONLY, fd);
}

/* Takes the weight of pixels whose mask is not 0. One that is no weight, negative or not finite, stays what it is: it
 * is counted as an error of the image. */
static void take_weights(const char *part, size_t n, float *weight)
{
    enum { FEW = 64 };
    const uint32_t *mask = (const uint32_t *)(const void *)part;
    for (size_t first = 0; first < n; first += FEW) {
        const size_t end = n - first < FEW ? n : first + FEW;
        uint32_t any = 0;
#pragma omp simd reduction(| : any)
        for (size_t i = first; i < end; i++)
            any |= mask[i];
        for (size_t i = first; i < end && any != 0; i++)
            if (mask[i] != 0 && weight[i] > 0 && weight[i] <= FLT_MAX)
                weight[i] = 0;
    }
}

spx_status spx_h5_flush_reads(const spx_h5_reads *r, int nthreads, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < r->n && st == SPX_OK; i++) {
        const size_t bytes = r->array[i].bytes, part = r->array[i].piece;
        const int64_t at = r->array[i].at;
        float *weight = r->array[i].weight;
        char *const parts = weight != NULL ? spx_alloc_unset((size_t)nthreads, part, 1, e) : NULL;
        int bad = 0, differs = 0;
        if (weight != NULL && parts == NULL)
            return SPX_EIO;
#pragma omp parallel for num_threads(nthreads) schedule(dynamic) reduction(| : bad, differs)
        for (size_t k = 0; k < bytes; k += part) {
            const size_t end = bytes - k < part ? bytes : k + part;
            char *to = weight != NULL ? parts + (size_t)omp_get_thread_num() * part : r->array[i].to + k;
            for (size_t n = k; n < end && !bad;) {
                const ssize_t got = pread(r->array[i].fd, to + (n - k), end - n, (off_t)at + (off_t)n);
                if (got > 0)
                    n += (size_t)got;
                else if (got == 0 || errno != EINTR) /* end of file: HDF5, which reads zeros there, has to decide */
                    bad = 1;
            }
            /* while it is in the cache */
            if (!bad && r->array[i].inventory != NULL)
                differs |= !spx_inventory_matches(r->array[i].inventory, (uint64_t)at + k, to, end - k);
            if (!bad && weight != NULL)
                take_weights(to, (end - k) / sizeof(uint32_t), weight + k / sizeof(uint32_t));
        }
        spx_free(parts);
        if (bad)
            st = spx_fail_at(e, SPX_EINPUT, r->array[i].file, r->array[i].path, NULL,
                             "cannot be read: is the file damaged?");
        else if (differs)
            st = spx_inventory_differs(r->array[i].file, r->array[i].path, e);
    }
    return st;
}

/* Puts an array on the list, or, without one, reads it now; to: where it goes, or weight: of which it is the mask. */
static spx_status read_it(spx_h5_reads *reads, hid_t loc, const char *path, hid_t d, hid_t ftype, hid_t mem,
                          size_t bytes, char *to, float *weight, int *done, spx_err *e)
{
    enum { LARGE = 4 << 20, PART = 1 << 20, FEW = 8 };
    int fd = -1;
    const int64_t at = bytes < LARGE || H5Tget_class(mem) == H5T_STRING ? -1 : spx_h5_place(d, ftype, mem, bytes, &fd);
    const int most = omp_get_max_threads();
    const spx_inventory *v = at >= 0 ? spx_inventory_of(d) : NULL;
    const size_t piece = v != NULL ? spx_inventory_piece(v, (uint64_t)at, bytes) : 0;
    const int full = reads != NULL && reads->n == SPX_H5_DEFERRED; /* weights may be on it: a mask cannot come before */
    *done = at >= 0 && (weight == NULL || (piece % sizeof *weight == 0 && !full));
    if (!*done)
        return SPX_OK;
    spx_h5_reads now = {0}, *r = reads != NULL && reads->n < SPX_H5_DEFERRED ? reads : &now;
    const size_t k = r->n++;
    (void)snprintf(r->array[k].file, sizeof r->array[k].file, "%s", spx_h5_filename(loc));
    spx_h5_absolute(loc, path, r->array[k].path, sizeof r->array[k].path);
    r->array[k].inventory = piece != 0 ? v : NULL;
    r->array[k].piece = piece != 0 ? piece : PART;
    r->array[k].fd = fd;
    r->array[k].at = at;
    r->array[k].bytes = bytes;
    r->array[k].to = to;
    r->array[k].weight = weight;
    return r == &now ? spx_h5_flush_reads(r, most < FEW ? most : FEW, e) : SPX_OK;
}

/* Large arrays of numbers that lie in the file as they are wanted in memory: put on the list, or, without one, read now
 * by several threads, which HDF5 does not allow and which touch the pages of fresh memory side by side. *done: 0, HDF5
 * has to read. */
spx_status spx_h5_read_directly(spx_h5_reads *reads, hid_t loc, const char *path, hid_t d, hid_t ftype, hid_t mem,
                                size_t bytes, char *out, int *done, spx_err *e)
{
    return read_it(reads, loc, path, d, ftype, mem, bytes, out, NULL, done, e);
}

spx_status spx_h5_mask_directly(spx_h5_reads *reads, hid_t loc, const char *path, hid_t d, hid_t ftype, size_t bytes,
                                float *weight, int *done, spx_err *e)
{
    return read_it(reads, loc, path, d, ftype, H5T_NATIVE_UINT32, bytes, NULL, weight, done, e);
}

/* ---- writes ---- */

/* Writes a piece; returns errno. */
static int write_at(int fd, const char *from, size_t n, int64_t at)
{
    for (size_t done = 0; done < n;) {
        const ssize_t got = pwrite(fd, from + done, n - done, (off_t)at + (off_t)done);
        if (got >= 0)
            done += (size_t)got;
        else if (errno != EINTR)
            return errno;
    }
    return 0;
}

spx_status spx_h5_write_directly(hid_t loc, const char *path, hid_t d, hid_t mem, size_t first, size_t n,
                                 const void *data, int *done, spx_err *e)
{
    enum { LARGE = 1 << 17, PART = 1 << 20, FEW = 8 };
    const size_t value = H5Tget_size(mem);
    size_t dims[SPX_H5_MAXDIM], row = value, all = 0;
    int ndim = 0, fd = -1, failed = 0; /* failed: errno */
    int64_t at = -1;
    *done = 0;
    if (spx_h5_dataset_dims(d, &ndim, dims) != SPX_OK || ndim < 1 || first > dims[0] || n > dims[0] - first)
        return SPX_OK;
    for (int i = 1; i < ndim; i++)
        row *= dims[i];
    const size_t bytes = n * row;
    if (bytes >= LARGE && spx_mul(dims[0], row, &all, e) == SPX_OK) {
        const hid_t ftype = H5Dget_type(d);
        at = place(d, ftype, mem, all, H5F_ACC_RDWR, &fd);
        (void)H5Tclose(ftype);
    }
    *done = at >= 0;
    const size_t end = *done ? bytes : 0, parts = (end + PART - 1) / PART, all_threads = (size_t)omp_get_max_threads();
    const size_t most = all_threads < FEW ? all_threads : FEW;
    const int nthread = (int)(parts == 0 ? 1 : parts < most ? parts : most);
#pragma omp parallel for num_threads(nthread) schedule(dynamic) reduction(max : failed)
    for (size_t k = 0; k < end; k += PART) {
        const int why =
            write_at(fd, (const char *)data + k, bytes - k < PART ? bytes - k : PART, at + (int64_t)(first * row + k));
        failed = why > failed ? why : failed;
    }
    return failed > 0
               ? spx_fail_at(e, SPX_EIO, spx_h5_filename(loc), path, NULL, "cannot be written: %s", strerror(failed))
               : SPX_OK;
}

int spx_h5_defer_values(spx_h5_writes *w, hid_t loc, const char *path, hid_t d, const void *data, size_t bytes,
                        spx_h5_values values)
{
    const haddr_t at = H5Dget_offset(d);
    if (w == NULL || loc != w->file || w->n == SPX_H5_DEFERRED || bytes < 4 * (size_t)SPX_H5_MANY_VALUES ||
        at >= (haddr_t)1 << 48 || H5Dget_storage_size(d) != bytes)
        return 0;
    const size_t k = w->n++;
    (void)snprintf(w->array[k].path, sizeof w->array[k].path, "%s", path);
    w->array[k].from = data;
    w->array[k].bytes = bytes;
    w->array[k].values = values;
    w->array[k].at = (int64_t)at;
    return 1;
}

/* Converts doubles to float32; 1 when one became no finite float. */
SPX_CLONES
static int narrow(const double *from, size_t n, float *to)
{
    uint32_t over = 0;
#pragma omp simd reduction(| : over)
    for (size_t i = 0; i < n; i++) {
        const float f = (float)from[i];
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        over |= (bits & 0x7f800000u) == 0x7f800000u;
        to[i] = f;
    }
    return over != 0;
}

/* Checks that n doubles are finite, and converts them to float32 in `to` unless that is NULL. 0: one is not finite,
 * which no product may hold. */
int spx_h5_check_values(const double *from, size_t n, float *to)
{
    int bad = 0;
    if (to != NULL && !narrow(from, n, to))
        return 1;
    for (size_t i = 0; i < n; i++) {
        bad |= !isfinite(from[i]);
        if (to != NULL)
            to[i] = from[i] > (double)FLT_MAX ? FLT_MAX : from[i] < -(double)FLT_MAX ? -FLT_MAX : (float)from[i];
    }
    return !bad;
}

spx_status spx_h5_flush_writes(const spx_h5_writes *w, int fd, int nthreads, spx_inventory *inventory, const char *name,
                               spx_err *e)
{
    _Static_assert(SPX_H5_PIECE * sizeof(float) == SPX_INVENTORY_PIECE, "pieces of writing are those of the inventory");
    spx_status st = SPX_OK;
    for (size_t k = 0; k < w->n && st == SPX_OK; k++) {
        const spx_h5_values values = w->array[k].values;
        const size_t n = w->array[k].bytes, step = SPX_H5_PIECE * sizeof(float);
        /* the kernel lets one thread write to a file at a time, and others would spin there */
        pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
        int failed = 0, bad = 0; /* failed: errno */
#pragma omp parallel for num_threads(nthreads) schedule(dynamic) reduction(| : bad) reduction(max : failed)
        for (size_t at = 0; at < n; at += step) {
            float piece[SPX_H5_PIECE];
            const size_t part = n - at < step ? n - at : step;
            const char *from = (const char *)w->array[k].from + at;
            if (values == SPX_H5_DOUBLE) {
                bad |= !spx_h5_check_values((const double *)w->array[k].from + at / sizeof(double),
                                            part / sizeof(double), NULL);
            } else if (values == SPX_H5_NARROW) {
                bad |= !spx_h5_check_values((const double *)w->array[k].from + at / sizeof *piece, part / sizeof *piece,
                                            piece);
                from = (const char *)piece;
            }
            if (inventory != NULL)
                spx_inventory_enter(inventory, (uint64_t)w->array[k].at + at, from, part);
            (void)pthread_mutex_lock(&writing);
            const int why = write_at(fd, from, part, w->array[k].at + (int64_t)at);
            (void)pthread_mutex_unlock(&writing);
            failed = why > failed ? why : failed;
        }
        if (bad)
            st = spx_fail(e, SPX_EBUG, "%s:%s: a value is not finite: please report this", name, w->array[k].path);
        else if (failed != 0)
            st = spx_fail(e, SPX_EIO, "%s:%s: cannot be written: %s", name, w->array[k].path, strerror(failed));
    }
    return st;
}
