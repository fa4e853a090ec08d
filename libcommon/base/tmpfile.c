/* Provides atomic output files and their removal on signals (base/tmpfile.h). */
#include "base/tmpfile.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

/* Names that the signal handler unlinks: it may use only async-signal-safe calls, hence a plain array. A queue on many
 * devices has two products a device, which may all wait for a slow disk. */
enum { NSLOT = 64, PATHLEN = 4096 };
static struct {
    volatile sig_atomic_t used;
    char path[PATHLEN], target[PATHLEN];
} slots[NSLOT];
/* Outputs are opened in one thread and may be committed in another. */
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;

/* The umask can only be read by setting it, while another thread (a hook, say) may make a file: it is read once, at the
 * start. */
static pthread_once_t mask_once = PTHREAD_ONCE_INIT;
static mode_t mask;

static void read_mask(void)
{
    mask = umask(0);
    (void)umask(mask);
}

mode_t spx_tmpfile_mode(mode_t mode)
{
    (void)pthread_once(&mask_once, read_mask);
    return mode & ~mask;
}

static void remove_all(void)
{
    for (int i = 0; i < NSLOT; i++)
        if (slots[i].used) {
            slots[i].used = 0;
            (void)unlink(slots[i].path);
        }
}

/* Files that are made but not yet in a slot, and whether a signal ends the program. A thread that makes a file blocks
 * signals, but another one may get them meanwhile. */
static atomic_int opening, stopping;

void spx_tmpfile_abandon(void)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    atomic_store(&stopping, 1);
    for (int i = 0; i < 1000 && atomic_load(&opening) > 0; i++)
        (void)nanosleep(&moment, NULL);
    remove_all();
}

void spx_tmpfile_guard(void)
{
    (void)atexit(remove_all);
    (void)spx_tmpfile_mode(0);
}

static const char *shown(const spx_tmpfile *t)
{
    return t->target != NULL ? t->target : "standard output";
}

const char *spx_tmpfile_shown(const char *path)
{
    const char *found = path;
    (void)pthread_mutex_lock(&slots_lock);
    for (int i = 0; i < NSLOT && found == path; i++)
        if (slots[i].used && strcmp(slots[i].path, path) == 0)
            found = slots[i].target;
    (void)pthread_mutex_unlock(&slots_lock);
    return found;
}

static void free_slot(spx_tmpfile *t)
{
    (void)pthread_mutex_lock(&slots_lock);
    slots[t->slot].used = 0;
    (void)pthread_mutex_unlock(&slots_lock);
    t->slot = -1;
}

/* Splits a target into folder and name. */
static void split(const char *target, const char **dir, size_t *dirlen, const char **base)
{
    const char *slash = strrchr(target, '/');
    *dir = slash != NULL ? target : ".";
    *dirlen = slash == NULL || slash == target ? 1 : (size_t)(slash - target);
    *base = slash != NULL ? slash + 1 : target;
}

spx_status spx_tmpfile_check(const char *target, int force, spx_err *e)
{
    struct stat sb;
    char folder[PATHLEN];
    const char *dir, *base;
    size_t dirlen;
    if (strcmp(target, "-") == 0)
        return SPX_OK;
    split(target, &dir, &dirlen, &base);
    if (stat(target, &sb) == 0) {
        if (S_ISDIR(sb.st_mode))
            return spx_fail_at(e, SPX_EIO, target, NULL, "give a file name", "is a directory");
        if (S_ISREG(sb.st_mode) && !force)
            return spx_fail_at(e, SPX_EIO, target, NULL, "give -f to replace it", "exists already");
        if (!S_ISREG(sb.st_mode))
            return SPX_OK;
    } else if (*base == '\0') {
        return spx_fail_at(e, SPX_EIO, target, NULL, "give a file name", "is a directory");
    }
    (void)snprintf(folder, sizeof folder, "%.*s/.", (int)dirlen, dir);
    if (access(folder, W_OK | X_OK) != 0)
        return spx_fail_at(e, SPX_EIO, target, NULL, NULL, "cannot write in directory %.*s: %s", (int)dirlen, dir,
                           strerror(errno));
    return SPX_OK;
}

spx_status spx_tmpfile_open(spx_tmpfile *t, const char *target, int force, spx_err *e)
{
    memset(t, 0, sizeof *t);
    t->fd = -1;
    t->slot = -1;
    t->force = force;
    const char *dir = getenv("TMPDIR"), *base = "specpipe";
    if (dir == NULL || *dir == '\0')
        dir = "/tmp";
    size_t dirlen = strlen(dir);
    if (strcmp(target, "-") != 0) {
        struct stat sb;
        spx_status st = spx_tmpfile_check(target, force, e);
        if (st != SPX_OK)
            return st;
        /* renaming over /dev/full or a named pipe would replace the device: they are written like a pipe */
        if (stat(target, &sb) == 0 && !S_ISREG(sb.st_mode))
            goto named;
        split(target, &dir, &dirlen, &base);
    named:
        if ((t->target = spx_strdup(target, e)) == NULL)
            return SPX_EIO;
    }
    size_t size = dirlen + strlen(base) + 16;
    if (size > PATHLEN) {
        spx_tmpfile_discard(t);
        return spx_fail_at(e, SPX_EIO, target, NULL, NULL, "name is too long");
    }
    if ((t->path = spx_alloc(size, 1, e)) == NULL) {
        spx_tmpfile_discard(t);
        return SPX_EIO;
    }
    (void)snprintf(t->path, size, "%.*s/.%s.XXXXXX", (int)dirlen, dir, base);
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &old);
    atomic_fetch_add(&opening, 1);
    if (atomic_load(&stopping)) { /* the program ends, in another thread */
        atomic_fetch_sub(&opening, 1);
        for (;;)
            (void)pause();
    }
    t->fd = mkostemp(t->path, O_CLOEXEC);
    int err = errno;
    (void)pthread_mutex_lock(&slots_lock);
    if (t->fd >= 0)
        for (int i = 0; i < NSLOT && t->slot < 0; i++)
            if (!slots[i].used) {
                memcpy(slots[i].path, t->path, strlen(t->path) + 1);
                (void)snprintf(slots[i].target, PATHLEN, "%s", shown(t));
                slots[i].used = 1;
                t->slot = i;
            }
    if (t->fd >= 0 && t->slot < 0) { /* more temporary files open at once than slots */
        (void)unlink(t->path);
        (void)close(t->fd);
        t->fd = -1;
        err = EMFILE;
    }
    (void)pthread_mutex_unlock(&slots_lock);
    atomic_fetch_sub(&opening, 1);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (t->fd < 0) {
        spx_fail_at(e, SPX_EIO, shown(t), NULL, NULL, "cannot write in directory %.*s: %s", (int)dirlen, dir,
                    strerror(err));
        spx_tmpfile_discard(t);
        return SPX_EIO;
    }
    return SPX_OK;
}

spx_status spx_write_all(int fd, const void *buf, size_t n, const char *name, spx_err *e)
{
    const char *p = buf;
    while (n > 0) {
        ssize_t k = write(fd, p, n < ((size_t)1 << 30) ? n : (size_t)1 << 30);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && errno == EPIPE)
            return spx_fail_at(e, SPX_EIO, name, NULL, "see its message", "the program that reads this pipe stopped");
        if (k < 0)
            return spx_fail_at(e, SPX_EIO, name, NULL, NULL, "cannot write: %s", strerror(errno));
        p += k;
        n -= (size_t)k;
    }
    return SPX_OK;
}

/* Copies the temporary file to a pipe, terminal or device. */
static spx_status copy_out(const spx_tmpfile *t, int out, spx_err *e)
{
    enum { CHUNK = 1 << 20 };
    if (lseek(t->fd, 0, SEEK_SET) < 0)
        return spx_fail_at(e, SPX_EIO, t->path, NULL, NULL, "cannot rewind: %s", strerror(errno));
    char *buf = spx_alloc(CHUNK, 1, e);
    if (buf == NULL)
        return SPX_EIO;
    spx_status st = SPX_OK;
    while (st == SPX_OK) {
        ssize_t k = read(t->fd, buf, CHUNK);
        if (k == 0)
            break;
        if (k < 0 && errno == EINTR)
            continue;
        st = k < 0 ? spx_fail_at(e, SPX_EIO, t->path, NULL, NULL, "cannot read back: %s", strerror(errno))
                   : spx_write_all(out, buf, (size_t)k, shown(t), e);
    }
    spx_free(buf);
    return st;
}

static spx_status sync_and_rename(spx_tmpfile *t, spx_err *e)
{
    struct stat sb;
    /* mkstemp() makes mode 0600; the output gets the mode that open() would have given, or that of the file it
     * replaces */
    mode_t mode = stat(t->target, &sb) == 0 ? sb.st_mode & 0777 : spx_tmpfile_mode(0666);
    if (fchmod(t->fd, mode) != 0 || fsync(t->fd) != 0)
        return spx_fail_at(e, SPX_EIO, t->target, NULL, NULL, "cannot write: %s", strerror(errno));
    int fd = t->fd;
    t->fd = -1;
    if (close(fd) != 0)
        return spx_fail_at(e, SPX_EIO, t->target, NULL, NULL, "cannot write: %s", strerror(errno));
    /* without -f, link() refuses a target that somebody made in the meantime; rename() would replace it */
    if (!t->force && link(t->path, t->target) == 0) {
        (void)unlink(t->path);
        return SPX_OK;
    }
    if (!t->force && errno == EEXIST)
        return spx_fail_at(e, SPX_EIO, t->target, NULL, "give -f to replace it",
                           "was made by somebody else in the meantime");
    if (rename(t->path, t->target) != 0)
        return spx_fail_at(e, SPX_EIO, t->target, NULL, NULL, "cannot rename the finished file: %s", strerror(errno));
    return SPX_OK;
}

spx_status spx_tmpfile_commit(spx_tmpfile *t, spx_err *e)
{
    struct stat sb;
    spx_status st;
    if (t->target == NULL) {
        st = copy_out(t, STDOUT_FILENO, e);
        if (st == SPX_OK && close(STDOUT_FILENO) != 0)
            st = spx_fail(e, SPX_EIO, "standard output: cannot write: %s", strerror(errno));
    } else if (stat(t->target, &sb) == 0 && !S_ISREG(sb.st_mode)) {
        int fd = open(t->target, O_WRONLY | O_CLOEXEC);
        st = fd < 0 ? spx_fail_at(e, SPX_EIO, t->target, NULL, NULL, "cannot open: %s", strerror(errno))
                    : copy_out(t, fd, e);
        if (fd >= 0 && close(fd) != 0 && st == SPX_OK)
            st = spx_fail_at(e, SPX_EIO, t->target, NULL, NULL, "cannot write: %s", strerror(errno));
    } else {
        st = sync_and_rename(t, e);
        if (st == SPX_OK && t->slot >= 0)
            free_slot(t);
    }
    spx_tmpfile_discard(t);
    return st;
}

void spx_tmpfile_discard(spx_tmpfile *t)
{
    if (t->path == NULL && t->target == NULL)
        return;
    if (t->fd >= 0)
        (void)close(t->fd);
    if (t->slot >= 0) {
        (void)unlink(t->path);
        free_slot(t);
    }
    spx_free(t->path);
    spx_free(t->target);
    memset(t, 0, sizeof *t);
    t->fd = -1;
    t->slot = -1;
}
