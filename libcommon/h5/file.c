/* Provides HDF5 files as inputs and outputs, also through pipes (h5/file.h). Facts behind the design (measured with
 * HDF5 1.10): a pipe cannot be opened by HDF5; a file image can; H5Fget_file_image() on an open file gives bad
 * checksums with new formats, the buffer that the core driver hands to image_free at the close does not; its true
 * length is the end-of-file address of the superblock. */
#include <errno.h>
#include <fcntl.h>
#include <hdf5_hl.h>
#include <omp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/infile.h"
#include "base/mem.h"
#include "base/shortage.h"
#include "base/tmpfile.h"
#include "h5/deferred.h"
#include "h5/failure.h"
#include "h5/file.h"
#include "h5/heaps.h"
#include "h5/internal.h"
#include "h5/inventory.h"

/* 1: a file was left open. Closing a discarded output would write it, perhaps to a full disk; and after a failed close
 * HDF5 keeps a half-freed file, on which H5close() crashes. Such a file stays open until the process ends. */
static int abandoned;

static const unsigned char signature[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};

enum { HEADLEN = 48 }; /* bytes of a superblock up to its end-of-file address, versions 0 ... 3 */

static uint64_t le64(const unsigned char *p)
{
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

/* Length of the file image whose first HEADLEN bytes are `h`; 0: no HDF5 file (HDF5 File Format Specification,
 * II.A). */
static uint64_t image_length(const unsigned char *h)
{
    if (memcmp(h, signature, sizeof signature) != 0)
        return 0;
    switch (h[8]) {
    case 0:
        return h[13] == 8 ? le64(h + 40) : 0;
    case 1: /* version 1 has four more bytes before the addresses; only old h5 tools with odd settings write it */
        return 0;
    case 2:
    case 3:
        return h[9] == 8 ? le64(h + 28) : 0;
    default:
        return 0;
    }
}

/* Reads up to n bytes; *got < n at the end of input. */
static spx_status read_full(int fd, char *buf, size_t n, size_t *got, const char *name, spx_err *e)
{
    *got = 0;
    while (*got < n) {
        size_t want = n - *got < ((size_t)1 << 30) ? n - *got : (size_t)1 << 30;
        ssize_t k = read(fd, buf + *got, want);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return spx_fail_at(e, SPX_EIO, name, NULL, NULL, "cannot read: %s", strerror(errno));
        if (k == 0)
            break;
        *got += (size_t)k;
    }
    return SPX_OK;
}

/* Opens files without HDF5's lock, which fails on some cluster file systems, unless HDF5_USE_FILE_LOCKING asks for it.
 * The variable itself is not set: other threads, such as the one that opens the device, may read the environment. */
static void without_lock(hid_t fapl)
{
    (void)H5Pset_file_locking(fapl, 0, 1);
}

/* Opens a file or, where `image` is not NULL, its n bytes in memory. Heaps are checked unless an inventory was, and
 * where the file is `nameless`: HDF5's own driver follows links to a name. */
static hid_t open_file(const char *path, const void *image, size_t n, const spx_inventory *v, int nameless)
{
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), file = H5I_INVALID_HID;
    without_lock(fapl);
    if (fapl >= 0 && ((v != NULL && !nameless) || !SPX_HEAPS_NEEDED || spx_heaps_set(fapl, image, n) >= 0))
        file = H5Fopen(path, H5F_ACC_RDONLY, fapl);
    (void)H5Pclose(fapl);
    return file;
}

/* Opens an image in memory, which stays until the file is closed. */
static hid_t open_image(void *image, size_t n, const spx_inventory *v)
{
    static unsigned count;
    char name[64];
    if (v != NULL || !SPX_HEAPS_NEEDED)
        return H5LTopen_file_image(image, n, H5LT_FILE_IMAGE_DONT_COPY | H5LT_FILE_IMAGE_DONT_RELEASE);
    (void)snprintf(name, sizeof name, SPX_H5_IMAGE_NAME "heaps_%u", count++);
    return open_file(name, image, n, v, 0);
}

/* Descriptor that HDF5 reads a file through; -1: none. */
static int descriptor(hid_t file)
{
    void *handle = NULL;
    hid_t fapl = H5Fget_access_plist(file);
    const int got = fapl >= 0 && H5Fget_vfd_handle(file, fapl, &handle) >= 0 && handle != NULL;
    if (fapl >= 0)
        (void)H5Pclose(fapl);
    return got ? *(int *)handle : -1;
}

/* Values of an open input are verified by its inventory from now on, in the image or through HDF5's own descriptor. */
static void attach(spx_input *in)
{
    if (in->inventory != NULL && in->file >= 0)
        spx_inventory_attach(in->inventory, in->file, in->image == NULL ? descriptor(in->file) : -1, in->image);
}

/* SPX_EINPUT for a file that begins with `head` and is no HDF5; names its format where it is recognised. */
static spx_status not_hdf5(const unsigned char *head, size_t n, const char *name, spx_err *e)
{
    const char *command, *packed = spx_packed_with(head, n, &command);
    if (n >= 9 && memcmp(head, "SIMPLE  =", 9) == 0)
        return spx_fail_at(e, SPX_EINPUT, name, NULL, "convert it with fits2h5 first",
                           "is not an HDF5 file, but a FITS file");
    if (packed != NULL && strcmp(command, "gunzip -c") == 0 && strstr(name, ".fit") != NULL)
        return spx_fail_at(e, SPX_EINPUT, name, NULL, "fits2h5 reads it as it is, if it is a FITS file",
                           "is not an HDF5 file, but %s", packed);
    if (packed != NULL)
        return spx_fail_at(e, SPX_EINPUT, name, NULL, NULL, "is not an HDF5 file, but %s: unpack it: %s FILE >NEW.h5",
                           packed, command);
    return spx_fail_at(e, SPX_EINPUT, name, NULL, "give a file that a specpipe program wrote (FITS: use fits2h5)",
                       "is not an HDF5 file, or is damaged");
}

static spx_status truncated(const char *name, uint64_t have, uint64_t want, spx_err *e)
{
    return spx_fail_at(e, SPX_EINPUT, name, NULL, NULL,
                       "is truncated (%llu of %llu bytes): the program that wrote it failed or is still writing",
                       (unsigned long long)have, (unsigned long long)want);
}

static spx_status cannot_read(const char *name, int why, spx_err *e)
{
    return spx_fail_at(e, SPX_EIO, name, NULL, NULL, "cannot read: %s", strerror(why));
}

/* Next byte of a pipe or socket, which stays there: number of bytes, 0 at the end, -1 where that cannot be known. */
static ssize_t peek_stream(int fd, unsigned char *byte)
{
    int copy[2];
    ssize_t n = -1;
    if (pipe2(copy, O_CLOEXEC) == 0) {
        while ((n = tee(fd, copy[1], 1, 0)) < 0 && errno == EINTR)
            ;
        while (n == 1 && read(copy[0], byte, 1) < 0 && errno == EINTR)
            ;
        (void)close(copy[0]);
        (void)close(copy[1]);
    }
    return n < 0 ? recv(fd, byte, 1, MSG_PEEK) : n;
}

/* Next byte of a descriptor, which stays there; *next is -1 at the end, or where it cannot be known. */
static spx_status peek(int fd, const char *name, int *next, spx_err *e)
{
    unsigned char byte = 0;
    const off_t here = lseek(fd, 0, SEEK_CUR);
    const int why = here >= 0 ? spx_h5_read_at(fd, &byte, 1, (uint64_t)here) : 0;
    if (why != 0 && why != ENODATA)
        return cannot_read(name, why, e);
    *next = why == 0 && (here >= 0 || peek_stream(fd, &byte) == 1) ? byte : -1;
    return SPX_OK;
}

/* Reads the inventory that follows a file image of `length` bytes, if one does: bytes behind it stay in the pipe, for
 * another product, or for another program. */
static spx_status slurp_inventory(spx_input *in, int fd, uint64_t length, spx_err *e)
{
    enum { MOST_OVER = 1 << 16 };
    unsigned char head[SPX_INVENTORY_HEAD];
    size_t got = 0;
    int next = -1;
    spx_status st = peek(fd, in->name, &next, e);
    if (st != SPX_OK || next < 0 || next == signature[0])
        return st;
    st = spx_inventory_begins((unsigned char)next) ? read_full(fd, (char *)head, sizeof head, &got, in->name, e)
                                                   : SPX_OK;
    if (st != SPX_OK)
        return st;
    const uint64_t n = got == sizeof head ? spx_inventory_bytes(head) : 0;
    /* an inventory is smaller than the structure of its file and its checksums, one for each piece of data */
    if (n < sizeof head || n > length + MOST_OVER)
        return spx_fail_at(e, SPX_EINPUT, in->name, NULL, "make it again, or copy it again",
                           "is damaged: what follows the HDF5 file belongs to no other one");
    unsigned char *bytes = spx_alloc_unset((size_t)n, 1, 1, e);
    if (bytes == NULL)
        return SPX_EIO;
    memcpy(bytes, head, sizeof head);
    st = read_full(fd, (char *)bytes + sizeof head, (size_t)n - sizeof head, &got, in->name, e);
    if (st == SPX_OK && got < (size_t)n - sizeof head)
        st = truncated(in->name, length + sizeof head + got, length + n, e);
    if (st != SPX_OK) {
        spx_free(bytes);
        return st;
    }
    in->size += (size_t)n;
    return spx_inventory_parse(&in->inventory, bytes, (size_t)n, length, in->name, e);
}

/* Memory of a file image, or more of it; NULL: there is none. */
static void *more_memory(void *image, size_t size)
{
    void *p = spx_realloc_or_null(image, size);
    if (p != NULL)
        spx_mem_large(p, size);
    return p;
}

/* Reads exactly one file image, and its inventory, from a pipe. At the end of input *end becomes 1; an error when `end`
 * is NULL. */
static spx_status slurp(spx_input *in, int fd, int *end, spx_err *e)
{
    unsigned char head[HEADLEN];
    size_t got;
    spx_status st = read_full(fd, (char *)head, sizeof head, &got, in->name, e);
    if (st != SPX_OK)
        return st;
    if (got == 0 && end != NULL) {
        *end = 1;
        return SPX_OK;
    }
    if (got == 0)
        return spx_fail_at(e, SPX_EINPUT, in->name, NULL, NULL,
                           "is empty: the program before this one in the pipe failed (see its message)");
    uint64_t len = got == sizeof head ? image_length(head) : 0;
    if (len < sizeof head || len > ((uint64_t)1 << 48))
        return not_hdf5(head, got, in->name, e);
    const size_t max = spx_mem_limit_get();
    /* with a limit, all of it is claimed at once; without, memory is counted as bytes arrive */
    size_t claimed = max != 0 ? (size_t)len : 0;
    if (max != 0 && (len > max / 2 || !spx_mem_claim(claimed))) {
        /* larger than the limit: spilled to an unlinked temporary file */
        spx_tmpfile t;
        if ((st = spx_tmpfile_open(&t, "-", 1, e)) != SPX_OK)
            return st;
        enum { CHUNK = 1 << 20 };
        static const char SPILL[] = "temporary file in $TMPDIR";
        char *buf = spx_alloc(CHUNK, 1, e);
        uint64_t done = sizeof head;
        st = buf == NULL ? SPX_EIO : spx_write_all(t.fd, head, sizeof head, SPILL, e);
        while (st == SPX_OK && done < len) {
            size_t want = len - done < CHUNK ? (size_t)(len - done) : CHUNK;
            st = read_full(fd, buf, want, &got, in->name, e);
            if (st == SPX_OK && got < want)
                st = truncated(in->name, done + got, len, e);
            if (st == SPX_OK)
                st = spx_write_all(t.fd, buf, want, SPILL, e);
            done += want;
        }
        spx_free(buf);
        in->size = (size_t)len;
        if (st == SPX_OK)
            st = slurp_inventory(in, fd, len, e);
        if (st == SPX_OK && in->inventory != NULL)
            st = spx_inventory_check(in->inventory, t.fd, NULL, e);
        if (st == SPX_OK && (in->file = open_file(t.path, NULL, 0, in->inventory, 0)) < 0)
            st = spx_fail_at(e, SPX_EINPUT, in->name, NULL, NULL, "is damaged or no HDF5 file");
        spx_tmpfile_discard(&t);
        attach(in);
        return st;
    }
    /* memory grows with what really arrives, so that a lying header cannot take it all */
    size_t capacity = len < ((uint64_t)64 << 20) ? (size_t)len : (size_t)64 << 20, have = sizeof head;
    char *buf = more_memory(NULL, capacity);
    if (buf == NULL) {
        spx_mem_unclaim(claimed);
        return spx_fail_at(e, SPX_EIO, in->name, NULL, "give --max-mem, so that a temporary file is used",
                           "out of memory");
    }
    memcpy(buf, head, sizeof head);
    while (st == SPX_OK && have < len) {
        if (have == capacity) {
            size_t more = capacity > len / 2 ? (size_t)len : capacity * 2;
            char *p = more_memory(buf, more);
            if (p == NULL) {
                st = spx_fail_at(e, SPX_EIO, in->name, NULL, "give --max-mem, so that a temporary file is used",
                                 "out of memory");
                break;
            }
            buf = p;
            capacity = more;
        }
        st = read_full(fd, buf + have, capacity - have, &got, in->name, e);
        have += got;
        if (st == SPX_OK && have < capacity && have < len)
            st = truncated(in->name, have, len, e);
    }
    in->size = have;
    if (st == SPX_OK)
        st = slurp_inventory(in, fd, len, e);
    if (st == SPX_OK && in->inventory != NULL)
        st = spx_inventory_check(in->inventory, -1, buf, e);
    if (st == SPX_OK) {
        in->file = open_image(buf, have, in->inventory);
        if (in->file < 0)
            st = spx_fail_at(e, SPX_EINPUT, in->name, NULL, NULL, "is damaged or no HDF5 file");
    }
    if (max == 0 && spx_mem_claim(capacity))
        claimed = capacity;
    if (st != SPX_OK) {
        spx_mem_unclaim(claimed);
        free(buf);
        return st;
    }
    in->image = buf;
    in->claimed = claimed;
    attach(in);
    return SPX_OK;
}

/* Opens a regular file, whose descriptor is fd. *replaced: `path` led to another file when HDF5 opened it. One without
 * a name is to the rest of the program what a pipe is. */
static spx_status open_regular(spx_input *in, const char *path, int fd, const struct stat *sb,
                               const unsigned char *head, uint64_t len, int *replaced, spx_err *e)
{
    const int nameless = sb->st_nlink == 0;
    in->size = (size_t)sb->st_size;
    if (!nameless) {
        in->mtime = (int64_t)sb->st_mtime;
        in->dev = (uint64_t)sb->st_dev;
        in->ino = (uint64_t)sb->st_ino;
    }
    if (sb->st_size == 0)
        return spx_fail_at(e, SPX_EINPUT, in->name, NULL, NULL,
                           "is empty: the program that should have written it failed");
    if (len > (uint64_t)sb->st_size)
        return truncated(in->name, (uint64_t)sb->st_size, len, e);
    spx_status st = spx_inventory_find(&in->inventory, fd, (uint64_t)sb->st_size, len, in->name, e);
    if (st == SPX_OK && in->inventory != NULL)
        st = spx_inventory_check(in->inventory, fd, NULL, e);
    if (st != SPX_OK)
        return st;
    if ((in->file = open_file(path, NULL, 0, in->inventory, nameless)) < 0)
        return not_hdf5(head, in->size < HEADLEN ? in->size : HEADLEN, in->name, e);
    struct stat now;
    const int own = descriptor(in->file);
    if (own >= 0 && fstat(own, &now) == 0 && (now.st_dev != sb->st_dev || now.st_ino != sb->st_ino))
        *replaced = 1;
    attach(in);
    return SPX_OK;
}

/* *more: a regular file holds another product behind the first, whose HDF5 file has `length` bytes. */
static spx_status look_behind(int fd, const char *name, uint64_t length, uint64_t size, int *more, spx_err *e)
{
    unsigned char head[SPX_INVENTORY_HEAD];
    *more = 0;
    if (length == 0 || length >= size)
        return SPX_OK;
    const int why = spx_h5_read_at(fd, head, sizeof head, length);
    if (why != 0 && why != ENODATA)
        return cannot_read(name, why, e);
    const uint64_t end = length + (why == 0 ? spx_inventory_bytes(head) : 0);
    if (end > size - sizeof signature || spx_h5_read_at(fd, head, sizeof signature, end) != 0)
        return SPX_OK;
    *more = memcmp(head, signature, sizeof signature) == 0;
    return SPX_OK;
}

/* Does another product begin where a pipe or file has been read up to? As far as that is known without waiting. */
static int begins_behind(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int next = -1;
    return poll(&p, 1, 0) > 0 && (p.revents & POLLIN) != 0 && peek(fd, "", &next, NULL) == SPX_OK &&
           next == signature[0];
}

static int stdin_taken;

int spx_input_more(void)
{
    return stdin_taken && begins_behind(STDIN_FILENO);
}

static spx_status refuse_several(const char *name, spx_err *e)
{
    return spx_fail_at(e, SPX_EINPUT, name, NULL, "give each a file of its own, or this one as standard input",
                       "holds several products, one after another");
}

/* Opens one input. `queue`: product number `nth` of several on standard input, where *end may be set. */
static spx_status open_input(spx_input *in, const char *path, int queue, size_t nth, int *end, int *replaced,
                             spx_err *e)
{
    struct stat sb;
    int pipe_in = strcmp(path, "-") == 0, fd = STDIN_FILENO;
    memset(in, 0, sizeof *in);
    in->file = H5I_INVALID_HID;
    if (nth > 1)
        (void)snprintf(in->name, sizeof in->name, "standard input, product %zu", nth);
    else
        (void)snprintf(in->name, sizeof in->name, "%s", pipe_in ? "standard input" : path);
    if (!pipe_in && (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return spx_fail_open(path, errno, e);
    spx_status st = SPX_OK;
    if (fstat(fd, &sb) != 0) {
        st = spx_fail_at(e, SPX_EIO, in->name, NULL, NULL, "cannot stat: %s", strerror(errno));
    } else if (S_ISDIR(sb.st_mode)) {
        st = spx_fail_at(e, SPX_EINPUT, in->name, NULL, "give a file; fits2h5 makes one of a folder of FITS files",
                         "is a directory");
    } else {
        unsigned char head[HEADLEN] = {0};
        const int regular =
            S_ISREG(sb.st_mode) && (sb.st_nlink > 0 || SPX_HEAPS_NEEDED) && (!pipe_in || lseek(fd, 0, SEEK_CUR) == 0);
        const uint64_t len =
            regular && pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head ? image_length(head) : 0;
        int more = 0;
        if (regular)
            st = look_behind(fd, in->name, len, (uint64_t)sb.st_size, &more, e);
        stdin_taken |= pipe_in;
        if (st == SPX_OK && more && !pipe_in)
            st = refuse_several(in->name, e);
        if (st != SPX_OK) {
            /* the message is there */
        } else if (regular && !more) {
            st = open_regular(in, pipe_in ? "/dev/stdin" : path, fd, &sb, head, len, replaced, e);
            if (st == SPX_OK && queue && lseek(fd, 0, SEEK_END) < 0) /* else it would be read again */
                st = spx_fail_at(e, SPX_EIO, in->name, NULL, NULL, "cannot seek: %s", strerror(errno));
        } else {
            st = isatty(fd) ? spx_fail(e, SPX_EUSAGE,
                                       "standard input is a terminal: give a file, or put this program in a pipe")
                            : slurp(in, fd, end, e);
            if (st == SPX_OK && !pipe_in && begins_behind(fd))
                st = refuse_several(in->name, e);
        }
    }
    if (!pipe_in)
        (void)close(fd);
    if (st != SPX_OK || *replaced)
        spx_input_close(in);
    return st;
}

spx_status spx_input_open(spx_input *in, const char *path, spx_err *e)
{
    enum { MOST_TRIES = 10 };
    spx_status st = SPX_OK;
    int replaced = 1;
    for (int tries = 0; tries < MOST_TRIES && replaced && st == SPX_OK; tries++) {
        replaced = 0;
        st = open_input(in, path, 0, 1, NULL, &replaced, e);
    }
    if (st == SPX_OK && replaced)
        st = spx_fail_at(e, SPX_EIO, path, NULL, NULL, "is replaced again and again while it is opened");
    return st;
}

spx_status spx_input_next(spx_input *in, size_t nth, int *end, spx_err *e)
{
    *end = 0;
    int replaced = 0;
    return open_input(in, "-", 1, nth, nth == 1 ? NULL : end, &replaced, e);
}

void spx_input_close(spx_input *in)
{
    spx_inventory_free(in->inventory);
    in->inventory = NULL;
    if (in->file >= 0 && H5Fclose(in->file) < 0) {
        abandoned = 1;
        spx_h5_name_failure(in->name);
    }
    free(in->image);
    spx_mem_unclaim(in->claimed);
    in->image = NULL;
    in->claimed = 0;
    in->file = H5I_INVALID_HID;
}

/* ---- output ---- */

struct spx_output {
    hid_t file;
    int to_stdout; /* by an image in memory */
    /* Standard output is a file without a name, tmp.fd, which gets it as a named target does. */
    enum { NOT_IN_PLACE, IN_PLACE, KEPT } in_place;
    spx_tmpfile tmp; /* a named target */
    spx_h5_writes writes;
    spx_inventory *inventory; /* from the close to the flush */
    unsigned char *trailer;   /* standard output: the inventory, which is sent behind the image */
    size_t ntrailer;
    int flushed;
    void *image;           /* standard output: buffer of the core driver, kept when HDF5 frees it */
    size_t size, capacity; /* what HDF5 has of it, and what there is */
    int spilt;             /* it comes from spx_alloc_spill() */
};

/* Reason why the last file image could not grow, which HDF5 does not report; images are written by one thread. */
static const char DISK_FULL[] = "is the disk full?";
static spx_err no_memory;

const char *spx_h5_no_memory(void)
{
    return no_memory.code != SPX_OK ? spx_err_text(&no_memory) : DISK_FULL;
}

/* Resizes an image that is a mapped file in $TMPDIR, because --max-mem has little left. HDF5 grows it by a few MiB at a
 * time. */
static void *resize_spilt(spx_output *o, void *p, size_t size)
{
    const size_t capacity = size < 2 * o->capacity ? 2 * o->capacity : size;
    void *q = size <= o->capacity ? p : spx_alloc_spill(capacity, 1, 1, &no_memory);
    if (q != NULL && q != p) {
        if (p != NULL)
            memcpy(q, p, o->size);
        spx_free(p);
        o->capacity = capacity;
    }
    return q;
}

/* Resizes an image in plain memory, for a run without limit: realloc() extends it in place (mremap). */
static void *resize_plain(spx_output *o, void *p, size_t size)
{
    void *q = more_memory(p, size);
    if (q == NULL) {
        spx_fail(&no_memory, SPX_EIO, "out of memory: give --max-mem, so that a temporary file is used");
        return NULL;
    }
    spx_mem_unclaim(o->capacity);
    o->capacity = spx_mem_claim(size) ? size : 0; /* there is no limit that it could pass */
    return q;
}

static void *image_realloc(void *p, size_t size, H5FD_file_image_op_t op, void *udata)
{
    (void)op;
    spx_output *o = udata;
    void *q = o->spilt ? resize_spilt(o, p, size) : resize_plain(o, p, size);
    if (q != NULL)
        o->size = size;
    return q;
}

static void *image_malloc(size_t size, H5FD_file_image_op_t op, void *udata)
{
    return image_realloc(NULL, size, op, udata);
}

static void free_image(spx_output *o, void *p)
{
    if (o->spilt) {
        spx_free(p);
    } else {
        free(p);
        spx_mem_unclaim(o->capacity);
    }
    o->capacity = 0;
}

static herr_t image_free(void *p, H5FD_file_image_op_t op, void *udata)
{
    spx_output *o = udata;
    if (op == H5FD_FILE_IMAGE_OP_FILE_CLOSE)
        o->image = p;
    else
        free_image(o, p);
    return 0;
}

static void *udata_copy(void *udata)
{
    return udata;
}

static herr_t udata_free(void *udata)
{
    (void)udata;
    return 0;
}

/* Descriptor of standard output where that is an empty file that has no name, which nobody can find half-written; else
 * -1. An image in memory of 260 MB takes 0.25 s of a processor more. */
static int nameless_stdout(void)
{
    struct stat sb;
    const int nameless = fstat(STDOUT_FILENO, &sb) == 0 && S_ISREG(sb.st_mode) && sb.st_nlink == 0 && sb.st_size == 0 &&
                         lseek(STDOUT_FILENO, 0, SEEK_CUR) == 0;
    return nameless ? open(SPX_STDOUT_PATH, O_RDWR | O_CLOEXEC) : -1;
}

spx_status spx_output_open(spx_output **out, const char *target, int force, spx_err *e)
{
    spx_output *o = spx_alloc(1, sizeof *o, e);
    *out = NULL;
    if (o == NULL)
        return SPX_EIO;
    o->file = H5I_INVALID_HID;
    o->to_stdout = strcmp(target, "-") == 0;
    const int place = o->to_stdout ? nameless_stdout() : -1;
    if (place >= 0) {
        o->to_stdout = 0;
        o->in_place = IN_PLACE;
        o->tmp.fd = place;
    }
    o->spilt = spx_mem_limit_get() != 0;
    spx_err_clear(&no_memory);
    hid_t fapl = H5Pcreate(H5P_FILE_ACCESS), fcpl = H5Pcreate(H5P_FILE_CREATE);
    spx_status st = SPX_OK;
    if (o->to_stdout) {
        H5FD_file_image_callbacks_t cb = {image_malloc, NULL, image_realloc, image_free, udata_copy, udata_free, o};
        if (H5Pset_fapl_core(fapl, (size_t)16 << 20, 0) < 0 || H5Pset_file_image_callbacks(fapl, &cb) < 0)
            st = spx_fail(e, SPX_EBUG, "standard output: HDF5 refuses file images");
    } else if (o->in_place) { /* the usual driver has to know a name */
        if (H5Pset_fapl_stdio(fapl) < 0)
            st = spx_fail(e, SPX_EBUG, "standard output: HDF5 refuses the driver");
    } else {
        st = spx_tmpfile_open(&o->tmp, target, force, e);
    }
    without_lock(fapl);
    const char *path = o->to_stdout ? "standard output" : o->in_place ? SPX_STDOUT_PATH : o->tmp.path;
    if (st == SPX_OK && (o->file = H5Fcreate(path, H5F_ACC_TRUNC, fcpl, fapl)) < 0)
        st = spx_fail(e, SPX_EIO, "%s: cannot be begun: %s", strcmp(target, "-") == 0 ? "standard output" : target,
                      spx_h5_no_memory());
    (void)H5Pclose(fapl);
    (void)H5Pclose(fcpl);
    if (st != SPX_OK) {
        spx_output_discard(o);
        return st;
    }
    if ((st = spx_inventory_watch(o->file, e)) != SPX_OK) {
        spx_output_discard(o);
        return st;
    }
    *out = o;
    return SPX_OK;
}

hid_t spx_output_file(const spx_output *o)
{
    return o->file;
}

static const char *shown(const spx_output *o)
{
    return o->to_stdout || o->in_place ? "standard output" : o->tmp.target;
}

/* Bytes of the HDF5 file of a closed output. */
static spx_status output_length(const spx_output *o, uint64_t *len, spx_err *e)
{
    unsigned char head[HEADLEN];
    const unsigned char *h = o->image;
    const int why = o->to_stdout ? 0 : spx_h5_read_at(o->tmp.fd, head, sizeof head, 0);
    if (why != 0 && why != ENODATA)
        return cannot_read(shown(o), why, e);
    if (!o->to_stdout)
        h = why == 0 ? head : NULL;
    *len = h != NULL && (!o->to_stdout || o->size >= HEADLEN) ? image_length(h) : 0;
    if (*len == 0 || (o->to_stdout && *len > o->size))
        return spx_fail(e, SPX_EIO, "%s: HDF5 could not finish the file: out of memory?", shown(o));
    return SPX_OK;
}

static spx_status send_image(spx_output *o, spx_err *e)
{
    uint64_t len;
    spx_status st = output_length(o, &len, e);
    if (st == SPX_OK)
        st = spx_write_all(STDOUT_FILENO, o->image, (size_t)len, "standard output", e);
    return st == SPX_OK ? spx_write_all(STDOUT_FILENO, o->trailer, o->ntrailer, "standard output", e) : st;
}

/* Makes the inventory of what is not entered yet, and puts it behind the HDF5 file. */
static spx_status add_inventory(spx_output *o, uint64_t len, int nthreads, spx_err *e)
{
    spx_status st = spx_inventory_fill(o->inventory, o->tmp.fd, o->to_stdout ? o->image : NULL, nthreads, shown(o), e);
    if (st == SPX_OK)
        st = spx_inventory_write(o->inventory, &o->trailer, &o->ntrailer, e);
    if (st == SPX_OK && !o->to_stdout)
        st = lseek(o->tmp.fd, (off_t)len, SEEK_SET) < 0
                 ? spx_fail(e, SPX_EIO, "%s: cannot write: %s", shown(o), strerror(errno))
                 : spx_write_all(o->tmp.fd, o->trailer, o->ntrailer, shown(o), e);
    return st;
}

spx_status spx_output_end_stdout(spx_err *e)
{
    if (close(STDOUT_FILENO) != 0)
        return spx_fail(e, SPX_EIO, "standard output: cannot write: %s", strerror(errno));
    return SPX_OK;
}

spx_h5_writes *spx_output_writes(spx_output *o)
{
    o->writes.file = o->file;
    return o->to_stdout ? NULL : &o->writes;
}

spx_status spx_output_flush(spx_output *o, int nthreads, spx_err *e)
{
    uint64_t len = 0;
    spx_status st = SPX_OK;
    if (o->inventory != NULL && (st = output_length(o, &len, e)) == SPX_OK)
        st = spx_inventory_extend(o->inventory, len, e);
    if (st == SPX_OK)
        st = spx_h5_flush_writes(&o->writes, o->tmp.fd, nthreads, o->inventory, shown(o), e);
    if (st == SPX_OK && o->inventory != NULL)
        st = add_inventory(o, len, nthreads, e);
    o->flushed = 1;
    /* the sync before the renaming finds little left to do */
    if (st == SPX_OK && o->writes.n > 0 && !o->in_place && fdatasync(o->tmp.fd) != 0)
        st = spx_fail(e, SPX_EIO, "%s: cannot write: %s", o->tmp.target, strerror(errno));
    return st;
}

spx_status spx_output_close(spx_output *o, spx_err *e)
{
    spx_status st = SPX_OK;
    /* an object left open would keep the file open after H5Fclose() */
    if (H5Fget_obj_count(o->file, H5F_OBJ_ALL | H5F_OBJ_LOCAL) != 1)
        st = spx_fail(e, SPX_EBUG, "an HDF5 object of the output was left open: please report this");
    if (st == SPX_OK)
        st = spx_inventory_begin(&o->inventory, o->file, e);
    if (st == SPX_OK) {
        int bad = H5Fflush(o->file, H5F_SCOPE_LOCAL) < 0;
        if (!bad) {
            bad = H5Fclose(o->file) < 0;
            o->file = H5I_INVALID_HID;
            abandoned |= bad;
        }
        if (bad)
            st = spx_fail(e, SPX_EIO, "%s: cannot be finished: %s", shown(o), spx_h5_no_memory());
    }
    return st;
}

spx_status spx_output_publish(spx_output *o, spx_err *e)
{
    spx_status st = o->flushed ? SPX_OK : spx_output_flush(o, 1, e);
    if (st == SPX_OK && o->in_place) { /* what comes next comes behind it */
        if (lseek(STDOUT_FILENO, 0, SEEK_END) < 0)
            st = spx_fail(e, SPX_EIO, "standard output: cannot write: %s", strerror(errno));
        o->in_place = st == SPX_OK ? KEPT : o->in_place;
    } else if (st == SPX_OK) {
        st = o->to_stdout ? send_image(o, e) : spx_tmpfile_commit(&o->tmp, e);
    }
    spx_output_discard(o);
    return st;
}

spx_status spx_output_commit(spx_output *o, spx_err *e)
{
    const int to_stdout = o->to_stdout || o->in_place;
    spx_status st = spx_output_close(o, e);
    if (st != SPX_OK) {
        spx_output_discard(o);
        return st;
    }
    st = spx_output_flush(o, omp_get_max_threads(), e);
    if (st == SPX_OK)
        st = spx_output_publish(o, e);
    else
        spx_output_discard(o);
    return st == SPX_OK && to_stdout ? spx_output_end_stdout(e) : st;
}

void spx_output_discard(spx_output *o)
{
    if (o == NULL)
        return;
    spx_inventory_unwatch(o->file);
    if (o->file >= 0 && o->to_stdout)
        (void)H5Fclose(o->file);
    else if (o->file >= 0)
        abandoned = 1;
    if (o->in_place) {
        if (o->in_place != KEPT)
            (void)ftruncate(o->tmp.fd, 0);
        (void)close(o->tmp.fd);
        o->tmp = (spx_tmpfile){0};
    }
    spx_tmpfile_discard(&o->tmp);
    spx_inventory_free(o->inventory);
    spx_free(o->trailer);
    free_image(o, o->image);
    spx_free(o);
}

int spx_output_abandoned(void)
{
    return abandoned;
}
