/* Opens FITS files: mmap(), inflate, or read from a pipe (fits/open.h). */
#include "fits/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/infile.h"
#include "base/mem.h"

/* Replace *buf[have] by a buffer of `capacity` bytes with the same content. */
static spx_status grow(unsigned char **buf, size_t have, size_t capacity, const char *name, spx_err *e)
{
    if (spx_mem_check(name, capacity, e) != SPX_OK)
        return SPX_EIO;
    unsigned char *new = spx_alloc(capacity, 1, e);
    if (new == NULL)
        return SPX_EIO;
    if (have)
        memcpy(new, *buf, have);
    spx_free(*buf);
    *buf = new;
    return SPX_OK;
}

static spx_status read_pipe(int fd, const char *name, unsigned char **out, size_t *size, spx_err *e)
{
    unsigned char *buf = NULL;
    size_t n = 0, capacity = 0;
    for (;;) {
        if (n == capacity) {
            capacity = capacity ? 2 * capacity : (size_t)1 << 20;
            if (capacity > spx_mem_cap() && n < spx_mem_cap())
                capacity = spx_mem_cap();
            if (capacity == n || grow(&buf, n, capacity, name, e) != SPX_OK) {
                spx_free(buf);
                return spx_mem_check(name, SIZE_MAX, e);
            }
        }
        ssize_t got = read(fd, buf + n, capacity - n < (size_t)1 << 26 ? capacity - n : (size_t)1 << 26);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            spx_free(buf);
            return spx_fail_at(e, SPX_EIO, name, NULL, NULL, "cannot be read: %s", strerror(errno));
        }
        if (got == 0)
            break;
        n += (size_t)got;
    }
    *out = buf;
    *size = n;
    return SPX_OK;
}

/* Inflates all members of a gzip file. */
static spx_status inflate_all(const unsigned char *in, size_t nin, const char *name, unsigned char **out, size_t *size,
                              spx_err *e)
{
    /* ISIZE, the last four bytes, is the length modulo 2^32: used as first capacity when it is plausible. */
    const unsigned char *t = in + nin - 4;
    size_t hint = nin < 18 ? 0 : (size_t)t[0] | (size_t)t[1] << 8 | (size_t)t[2] << 16 | (size_t)t[3] << 24;
    size_t capacity = hint > nin / 2 && hint / 1032 <= nin && hint < spx_mem_cap() ? hint + 64 : 4 * nin + 4096, n = 0,
           at = 0;
    unsigned char *buf = NULL;
    z_stream z = {0};
    int rc = Z_OK;
    spx_status st = grow(&buf, 0, capacity, name, e);
    if (st == SPX_OK && inflateInit2(&z, 15 + 16) != Z_OK)
        st = spx_fail_at(e, SPX_EIO, name, NULL, NULL, "out of memory");
    if (st != SPX_OK) {
        spx_free(buf);
        return st;
    }
    while (st == SPX_OK) {
        size_t give = nin - at < (size_t)1 << 30 ? nin - at : (size_t)1 << 30;
        size_t take = capacity - n < (size_t)1 << 30 ? capacity - n : (size_t)1 << 30;
        z.next_in = (Bytef *)(uintptr_t)(in + at); /* zlib does not write there */
        z.avail_in = (uInt)give;
        z.next_out = buf + n;
        z.avail_out = (uInt)take;
        rc = inflate(&z, Z_NO_FLUSH);
        at += give - z.avail_in;
        n += take - z.avail_out;
        if (rc == Z_STREAM_END) {
            /* zeros behind the last member are tape padding; anything else but a member is damage */
            size_t pad = at;
            while (pad < nin && in[pad] == 0)
                pad++;
            if (pad == nin)
                break;
            if (inflateReset(&z) != Z_OK)
                st = spx_fail_at(e, SPX_EIO, name, NULL, NULL, "out of memory");
        } else if (rc == Z_OK || rc == Z_BUF_ERROR) {
            if (z.avail_out == 0) {
                size_t cap = spx_mem_cap(), more = capacity > cap / 2 ? cap : 2 * capacity;
                st = more == capacity ? spx_mem_check(name, SIZE_MAX, e) : grow(&buf, n, more, name, e);
                capacity = more;
            } else if (at == nin) {
                st = spx_fail_at(e, SPX_EINPUT, name, NULL, NULL,
                                 "the gzip data end early: the file is truncated; copy it again");
            }
        } else {
            st = spx_fail(e, SPX_EINPUT, "%s: the gzip data are damaged (%s): copy the file again", name,
                          z.msg != NULL ? z.msg : "unknown");
        }
    }
    inflateEnd(&z);
    if (st != SPX_OK) {
        spx_free(buf);
        return st;
    }
    *out = buf;
    *size = n;
    return SPX_OK;
}

/* SPX_EINPUT for formats that a user may take for FITS, recognised by their first bytes. */
static spx_status refuse_other(const unsigned char *b, size_t n, const char *name, spx_err *e)
{
    const char *command, *packed = spx_packed_with(b, n, &command);
    if (packed != NULL)
        return spx_fail_at(e, SPX_EINPUT, name, NULL, NULL, "is %s, not FITS: unpack it: %s FILE | fits2h5 -", packed,
                           command);
    if (n >= 6 && memcmp(b, "\x89HDF\r\n", 6) == 0)
        return spx_fail_at(e, SPX_EINPUT, name, NULL,
                           "products of specpipe need no conversion; specpipe-schema(5) says how other programs write "
                           "what they hold, such as /spectra",
                           "is an HDF5 file, not FITS");
    return SPX_OK;
}

spx_status spx_fits_open(spx_fits *f, const char *path, spx_err *e)
{
    int is_stdin = strcmp(path, "-") == 0;
    struct stat sb;
    char name[sizeof f->name];
    memset(f, 0, sizeof *f);
    snprintf(name, sizeof name, "%s", is_stdin ? "standard input" : path);
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &sb) != 0) {
        spx_status st = spx_fail_open(name, errno, e);
        if (fd > STDERR_FILENO)
            close(fd);
        return st;
    }
    spx_status st = SPX_OK;
    const unsigned char *bytes = NULL;
    size_t size = 0;
    unsigned char *owned = NULL;
    if (S_ISDIR(sb.st_mode)) {
        st = spx_fail_at(e, SPX_EINPUT, name, NULL, NULL, "is a directory: a FITS file is wanted here");
    } else if (S_ISREG(sb.st_mode) && !(is_stdin && lseek(fd, 0, SEEK_CUR) != 0)) {
        size = (size_t)sb.st_size;
        if (size > 0) {
            f->mapped = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
            if (f->mapped == MAP_FAILED) {
                f->mapped = NULL;
                st = spx_fail_at(e, SPX_EIO, name, NULL, NULL, "cannot be read: %s", strerror(errno));
            }
            f->nmapped = size;
            bytes = f->mapped;
        }
    } else {
        st = read_pipe(fd, name, &owned, &size, e);
        bytes = owned;
    }
    if (!is_stdin)
        close(fd);
    if (st == SPX_OK && size == 0)
        st = spx_fail_at(e, SPX_EINPUT, name, NULL, NULL, "is empty: %s",
                         is_stdin ? "the program before this one failed" : "copy it again");
    if (st == SPX_OK && size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b) {
        unsigned char *plain = NULL;
        st = inflate_all(bytes, size, name, &plain, &size, e);
        spx_free(owned);
        bytes = owned = plain;
        if (f->mapped != NULL)
            munmap(f->mapped, f->nmapped);
        f->mapped = NULL;
    }
    void *mapped = f->mapped;
    size_t nmapped = f->nmapped;
    if (st == SPX_OK)
        st = refuse_other(bytes, size, name, e);
    if (st == SPX_OK)
        st = spx_fits_parse(f, name, bytes, size, e);
    f->owned = owned;
    f->mapped = mapped;
    f->nmapped = nmapped;
    if (st != SPX_OK)
        spx_fits_close(f);
    return st;
}
