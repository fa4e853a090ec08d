/* A file driver of HDF5 that checks global heaps (h5/heaps.h). Its interface is that of HDF5's own drivers (H5FDsec2.c,
 * H5FDcore.c); "file" in a message of the error stack leads to the status (h5/failure.h). */
#include "h5/heaps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/tmpfile.h"
#include "h5/failure.h"
#include "h5/internal.h"

#if SPX_HEAPS_NEEDED

/* Image in memory; a NULL pointer: a file. */
typedef struct {
    const unsigned char *image;
    size_t n;
} source;

typedef struct {
    H5FD_t public; /* HDF5's own part */
    source from;
    int fd;
    dev_t dev;
    ino_t ino;
    haddr_t end, eoa;
    unsigned lengths; /* bytes of a length in this file */
    char name[1024];
} driver;

/* -1, with an entry on the error stack. */
#define FAIL(major, minor, ...)                                                                                        \
    ((void)H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, major, minor, __VA_ARGS__), -1)

static H5FD_t *heaps_open(const char *name, unsigned flags, hid_t fapl, haddr_t max)
{
    (void)max;
    const source *from = H5Pget_driver_info(fapl);
    struct stat sb;
    if (from == NULL || (flags & (H5F_ACC_RDWR | H5F_ACC_TRUNC | H5F_ACC_CREAT)) != 0) {
        (void)FAIL(H5E_FILE, H5E_CANTOPENFILE, "this driver only reads");
        return NULL;
    }
    driver *f = calloc(1, sizeof *f);
    if (f == NULL) {
        (void)FAIL(H5E_RESOURCE, H5E_NOSPACE, "unable to allocate file struct");
        return NULL;
    }
    f->from = *from;
    f->fd = -1;
    f->end = from->n;
    f->lengths = 8;
    (void)snprintf(f->name, sizeof f->name, "%s", name);
    if (from->image == NULL && ((f->fd = open(name, O_RDONLY | O_CLOEXEC)) < 0 || fstat(f->fd, &sb) != 0)) {
        (void)FAIL(H5E_FILE, H5E_CANTOPENFILE, "unable to open file: filename = '%s', errno = %d", name, errno);
        if (f->fd >= 0)
            (void)close(f->fd);
        free(f);
        return NULL;
    }
    if (from->image == NULL) {
        f->end = (haddr_t)sb.st_size;
        f->dev = sb.st_dev;
        f->ino = sb.st_ino;
    }
    return &f->public;
}

static herr_t heaps_close(H5FD_t *file)
{
    driver *f = (driver *)file;
    if (f->fd >= 0 && close(f->fd) != 0)
        return FAIL(H5E_IO, H5E_CANTCLOSEFILE, "unable to close file: filename = '%s', errno = %d", f->name, errno);
    free(f);
    return 0;
}

/* Order of two open files; 0: they are the same. */
static int heaps_cmp(const H5FD_t *one, const H5FD_t *two)
{
    const driver *a = (const driver *)one, *b = (const driver *)two;
    if (a->from.image != b->from.image)
        return a->from.image < b->from.image ? -1 : 1;
    if (a->dev != b->dev)
        return a->dev < b->dev ? -1 : 1;
    return a->ino < b->ino ? -1 : a->ino > b->ino;
}

static herr_t heaps_query(const H5FD_t *file, unsigned long *flags)
{
    const driver *f = (const driver *)file;
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
             H5FD_FEAT_AGGREGATE_SMALLDATA;
    if (f != NULL && f->fd >= 0)
        *flags |= H5FD_FEAT_POSIX_COMPAT_HANDLE;
    return 0;
}

static haddr_t heaps_get_eoa(const H5FD_t *file, H5FD_mem_t type)
{
    (void)type;
    return ((const driver *)file)->eoa;
}

static herr_t heaps_set_eoa(H5FD_t *file, H5FD_mem_t type, haddr_t at)
{
    (void)type;
    ((driver *)file)->eoa = at;
    return 0;
}

static haddr_t heaps_get_eof(const H5FD_t *file, H5FD_mem_t type)
{
    (void)type;
    return ((const driver *)file)->end;
}

static herr_t heaps_handle(H5FD_t *file, hid_t fapl, void **handle)
{
    driver *f = (driver *)file;
    (void)fapl;
    if (f->fd < 0)
        return -1;
    *handle = &f->fd;
    return 0;
}

/* Bytes of the file; zeros behind its end, as of HDF5's drivers. */
static herr_t fetch(driver *f, haddr_t at, size_t n, unsigned char *to)
{
    const size_t there = at >= f->end ? 0 : n < f->end - at ? n : (size_t)(f->end - at);
    int why = 0;
    memset(to + there, 0, n - there);
    if (f->from.image != NULL)
        memcpy(to, f->from.image + at, there);
    else if (there > 0)
        why = spx_h5_read_at(f->fd, to, there, at);
    if (why == ENODATA) /* it became shorter */
        why = EIO;
    if (why != 0)
        return FAIL(H5E_IO, H5E_READERROR, "file read failed: filename = '%s', errno = %d", f->name, why);
    return 0;
}

static uint64_t little(const unsigned char *p, unsigned n)
{
    uint64_t v = 0;
    while (n-- > 0)
        v = v << 8 | p[n];
    return v;
}

/* Do the objects of a collection of n bytes, whose lengths have so many bytes, lie in it? */
static int whole(const unsigned char *p, size_t n, unsigned lengths)
{
    const size_t head = (8 + (size_t)lengths + 7) / 8 * 8; /* of the collection, and of an object */
    size_t at = head;
    while (at < n && n - at >= head) { /* what is shorter than a head is free */
        const uint64_t index = little(p + at, 2), bytes = little(p + at + 8, lengths);
        const size_t rest = n - at;
        if (index == 0 ? bytes < head || bytes > rest : bytes > rest - head || (bytes + 7) / 8 * 8 > rest - head)
            return 0;
        at += index == 0 ? (size_t)bytes : head + (size_t)(bytes + 7) / 8 * 8;
    }
    return 1;
}

/* Checks the collection at `at`, of which the n bytes `p` are the first. */
static herr_t check_heap(driver *f, haddr_t at, const unsigned char *p, size_t n)
{
    const uint64_t size = n >= 16 ? little(p + 8, f->lengths) : 0;
    unsigned char *all = NULL;
    int good = size >= 16 && size <= f->end - at;
    herr_t status = 0;
    if (good && size > n) {
        if ((all = malloc((size_t)size)) == NULL)
            return FAIL(H5E_RESOURCE, H5E_NOSPACE, "unable to allocate a heap");
        status = fetch(f, at, (size_t)size, all);
        p = all;
    }
    good = good && (status < 0 || whole(p, (size_t)size, f->lengths));
    free(all);
    if (!good) {
        spx_err damage = {0};
        (void)spx_fail_at(&damage, SPX_EINPUT, spx_h5_shown(f->name), NULL, NULL,
                          "is damaged: its heap of texts at byte %llu", (unsigned long long)at);
        spx_h5_keep_damage(&damage);
        return FAIL(H5E_HEAP, H5E_BADVALUE, "damaged global heap");
    }
    return status;
}

static herr_t heaps_read(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t at, size_t n, void *to)
{
    static const unsigned char superblock[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'}, heap[5] = "GCOL\1";
    driver *f = (driver *)file;
    unsigned char *p = to;
    (void)type, (void)dxpl; /* H5F_block_read() calls heaps raw data */
    if (fetch(f, at, n, p) < 0)
        return -1;
    if (n > 14 && memcmp(p, superblock, sizeof superblock) == 0) {
        const unsigned lengths = p[p[8] < 2 ? 14 : 10];
        f->lengths = lengths == 2 || lengths == 4 ? lengths : 8; /* HDF5 refuses others */
    }
    return n > sizeof heap && memcmp(p, heap, sizeof heap) == 0 ? check_heap(f, at, p, n) : 0;
}

static herr_t heaps_write(H5FD_t *file, H5FD_mem_t type, hid_t dxpl, haddr_t at, size_t n, const void *from)
{
    (void)file, (void)type, (void)dxpl, (void)at, (void)n, (void)from;
    return -1;
}

/* For HDF5_USE_FILE_LOCKING. */
static herr_t heaps_lock(H5FD_t *file, hbool_t rw)
{
    const driver *f = (const driver *)file;
    if (f->fd < 0 || flock(f->fd, (rw ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0 || errno == ENOSYS)
        return 0;
    return FAIL(H5E_VFL, H5E_CANTLOCKFILE, "unable to lock file: filename = '%s', errno = %d", f->name, errno);
}

static herr_t heaps_unlock(H5FD_t *file)
{
    const driver *f = (const driver *)file;
    return f->fd < 0 || flock(f->fd, LOCK_UN) == 0 || errno == ENOSYS ? 0 : -1;
}

static const H5FD_class_t class = {
    .name = "specpipe heaps",
    .maxaddr = ((haddr_t)1 << 63) - 1,
    .fc_degree = H5F_CLOSE_WEAK,
    .fapl_size = sizeof(source),
    .open = heaps_open,
    .close = heaps_close,
    .cmp = heaps_cmp,
    .query = heaps_query,
    .get_eoa = heaps_get_eoa,
    .set_eoa = heaps_set_eoa,
    .get_eof = heaps_get_eof,
    .get_handle = heaps_handle,
    .read = heaps_read,
    .write = heaps_write,
    .lock = heaps_lock,
    .unlock = heaps_unlock,
    .fl_map = H5FD_FLMAP_DICHOTOMY,
};

/* HDF5 is called by one thread. */
static hid_t registered = H5I_INVALID_HID;

herr_t spx_heaps_set(hid_t fapl, const void *image, size_t n)
{
    const source from = {image, n};
    if (H5Iis_valid(registered) <= 0)
        registered = H5FDregister(&class);
    return registered < 0 ? -1 : H5Pset_driver(fapl, registered, &from);
}

int spx_heaps_is(hid_t fapl)
{
    return registered >= 0 && H5Pget_driver(fapl) == registered;
}

#else

herr_t spx_heaps_set(hid_t fapl, const void *image, size_t n)
{
    (void)fapl, (void)image, (void)n;
    return -1;
}

int spx_heaps_is(hid_t fapl)
{
    (void)fapl;
    return 0;
}

#endif
