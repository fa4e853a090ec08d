/* Provides atomic output files and their removal on signals (base/tmpfile.h). */
#include "base/tmpfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"

/* Files that the signal handler unlinks: it may use only async-signal-safe calls, hence a plain array. A queue on many
 * devices has two products a device, which may all wait for a slow disk. */
enum { NSLOT = 64, PATHLEN = 4096 };
static struct {
    volatile sig_atomic_t used;
    int folder;
    char name[NAME_MAX + 1], path[PATHLEN], target[PATHLEN];
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
            (void)unlinkat(slots[i].folder, slots[i].name, 0);
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
    const char *found = strcmp(path, SPX_STDOUT_PATH) == 0 ? "standard output" : path;
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

/* What is called `target` now: *device = 1 for a pipe, a terminal or a device, which are written where they are. */
static spx_status look(const char *target, int force, int *device, spx_err *e)
{
    struct stat sb, link;
    *device = 0;
    if (stat(target, &sb) == 0) {
        if (S_ISDIR(sb.st_mode))
            return spx_fail_at(e, SPX_EIO, target, NULL, "give a file name", "is a directory");
        *device = !S_ISREG(sb.st_mode);
        if (S_ISREG(sb.st_mode) && !force)
            return spx_fail_at(e, SPX_EIO, target, NULL, "give -f to replace it", "exists already");
        return SPX_OK;
    }
    const int why = errno;
    const char *slash = strrchr(target, '/');
    if (why == ENAMETOOLONG)
        return spx_fail_at(e, SPX_EIO, target, NULL, "give a shorter one", "the name is too long");
    if ((slash != NULL ? slash[1] : *target) == '\0')
        return spx_fail_at(e, SPX_EIO, target, NULL, "give a file name", "is a directory");
    if (!force && lstat(target, &link) == 0 && S_ISLNK(link.st_mode))
        return spx_fail_at(e, SPX_EIO, target, NULL, "give -f to replace the link",
                           "is a symbolic link that leads to no file");
    return SPX_OK;
}

static spx_status cannot_write_in(const char *target, const char *dir, size_t dirlen, int why, spx_err *e)
{
    return spx_fail_at(e, SPX_EIO, target, NULL, NULL, "cannot write in directory %.*s: %s", (int)dirlen, dir,
                       strerror(why));
}

spx_status spx_tmpfile_check(const char *target, int force, spx_err *e)
{
    char folder[PATHLEN];
    const char *dir, *base;
    size_t dirlen;
    int device;
    if (strcmp(target, "-") == 0)
        return SPX_OK;
    spx_status st = look(target, force, &device, e);
    if (st != SPX_OK || device)
        return st;
    split(target, &dir, &dirlen, &base);
    (void)snprintf(folder, sizeof folder, "%.*s/.", (int)dirlen, dir);
    return access(folder, W_OK | X_OK) == 0 ? SPX_OK : cannot_write_in(target, dir, dirlen, errno, e);
}

/* ---- names ---- */

static const char MARK[] = ".specpipe-";
enum { NRANDOM = 6 };

/* Hash of the machine's name (FNV-1a): a process can be looked for on its own machine only. */
static uint32_t host(void)
{
    char name[256] = "";
    uint32_t h = 2166136261u;
    (void)gethostname(name, sizeof name - 1);
    for (const char *c = name; *c != '\0'; c++)
        h = (h ^ (unsigned char)*c) * 16777619u;
    return h;
}

void spx_tmpfile_name(const char *base, size_t most, char *name)
{
    static const char letter[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    unsigned char byte[NRANDOM];
    char tail[64], random[NRANDOM + 1];
    if (getrandom(byte, sizeof byte, GRND_NONBLOCK) != (ssize_t)sizeof byte) {
        static atomic_uint_least64_t count;
        struct timespec now;
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t x = (uint64_t)now.tv_nsec * 6364136223846793005u + atomic_fetch_add(&count, 1) * 1442695040888963407u;
        for (int i = 0; i < NRANDOM; i++, x >>= 8)
            byte[i] = (unsigned char)(x >> 16);
    }
    for (int i = 0; i < NRANDOM; i++)
        random[i] = letter[byte[i] % (sizeof letter - 1)];
    random[NRANDOM] = '\0';
    const int n = snprintf(tail, sizeof tail, "%s%08x-%ld-%s", MARK, host(), (long)getpid(), random);
    const size_t room = most - (size_t)n - 1, k = strlen(base);
    (void)snprintf(name, NAME_MAX + 1, ".%.*s%s", (int)(k < room ? k : room), base, tail);
}

/* Takes a name apart; 0: it is not of spx_tmpfile_name(). */
static int parse_name(const char *name, uint32_t *of_host, long *pid)
{
    const char *at = NULL;
    for (const char *next = name; name[0] == '.' && (next = strstr(next, MARK)) != NULL; next++)
        at = next;
    char *end;
    if (at == NULL || strspn(at += sizeof MARK - 1, "0123456789abcdef") != 8 || at[8] != '-')
        return 0;
    *of_host = (uint32_t)strtoul(at, NULL, 16);
    *pid = strtol(at + 9, &end, 10);
    return *pid > 0 && *end == '-' && strlen(end + 1) == NRANDOM;
}

/* Removes a file, or a folder of files (a library of specx-sim). */
static int remove_entry(int folder, const char *name)
{
    if (unlinkat(folder, name, 0) == 0)
        return 0;
    const int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (d == NULL) {
        const int why = errno;
        if (fd >= 0)
            (void)close(fd);
        errno = why;
        return -1;
    }
    for (const struct dirent *f; (f = readdir(d)) != NULL;)
        if (strcmp(f->d_name, ".") != 0 && strcmp(f->d_name, "..") != 0)
            (void)unlinkat(fd, f->d_name, 0);
    (void)closedir(d);
    return unlinkat(folder, name, AT_REMOVEDIR);
}

spx_status spx_tmpfile_clean(const char *folder, void (*tell)(const char *name, const char *what), spx_err *e)
{
    DIR *d = opendir(folder);
    if (d == NULL)
        return spx_fail_at(e, SPX_EIO, folder, NULL, NULL, "cannot be read: %s", strerror(errno));
    const uint32_t here = host();
    spx_status st = SPX_OK;
    for (const struct dirent *f; (f = readdir(d)) != NULL;) {
        uint32_t of_host;
        long pid;
        if (!parse_name(f->d_name, &of_host, &pid))
            continue;
        if (of_host != here)
            tell(f->d_name, "kept: of another machine, which alone knows whether its process runs");
        else if (kill((pid_t)pid, 0) == 0 || errno != ESRCH)
            tell(f->d_name, "kept: its process runs");
        else if (remove_entry(dirfd(d), f->d_name) == 0)
            tell(f->d_name, "removed");
        else if (st == SPX_OK)
            st = spx_fail_at(e, SPX_EIO, folder, NULL, NULL, "%s cannot be removed: %s", f->d_name, strerror(errno));
    }
    (void)closedir(d);
    return st;
}

/* ---- opening ---- */

static int open_folder(const char *dir, size_t dirlen)
{
    char path[PATHLEN];
    if (snprintf(path, sizeof path, "%.*s", (int)dirlen, dir) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* one that may be written but not listed */
    return fd < 0 && errno == EACCES ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) : fd;
}

/* Makes the file in t->folder, under a name that only this call has; errno says why not. O_EXCL does not follow links.
 */
static void make(spx_tmpfile *t, const char *base, char *name)
{
    size_t most = NAME_MAX;
    for (int i = 0; i < 100; i++) {
        spx_tmpfile_name(base, most, name);
        t->fd = openat(t->folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (t->fd < 0 && errno == ENAMETOOLONG && *base != '\0') /* file systems that allow less */
            base = "";
        else if (t->fd >= 0 || errno != EEXIST)
            return;
    }
}

/* A name under which a library opens the very same file again, whatever happens to its name meanwhile; its full name
 * where there is no /proc. */
static spx_status name_again(spx_tmpfile *t, const char *dir, size_t dirlen, const char *name, spx_err *e)
{
    struct stat by_name, by_fd;
    const size_t size = dirlen + strlen(name) + 32;
    if ((t->path = spx_alloc(size, 1, e)) == NULL)
        return SPX_EIO;
    (void)snprintf(t->path, size, "/proc/self/fd/%d", t->fd);
    if (stat(t->path, &by_name) != 0 || fstat(t->fd, &by_fd) != 0 || by_name.st_dev != by_fd.st_dev ||
        by_name.st_ino != by_fd.st_ino)
        (void)snprintf(t->path, size, "%.*s/%s", (int)dirlen, dir, name);
    return SPX_OK;
}

/* Notes what a signal has to remove, and the target for messages. 0: more temporary files are open than slots. */
static int take_slot(spx_tmpfile *t, const char *name)
{
    (void)pthread_mutex_lock(&slots_lock);
    for (int i = 0; i < NSLOT && t->slot < 0; i++)
        if (!slots[i].used) {
            slots[i].folder = t->folder;
            (void)snprintf(slots[i].name, sizeof slots[i].name, "%s", name);
            (void)snprintf(slots[i].target, PATHLEN, "%s", shown(t));
            slots[i].path[0] = '\0';
            slots[i].used = 1;
            t->slot = i;
        }
    (void)pthread_mutex_unlock(&slots_lock);
    return t->slot >= 0;
}

/* Makes the file in a folder, with no signal between its making and its slot. */
static spx_status open_in(spx_tmpfile *t, const char *dir, size_t dirlen, const char *base, spx_err *e)
{
    char name[NAME_MAX + 1] = "";
    sigset_t all, old;
    if ((t->folder = open_folder(dir, dirlen)) < 0)
        return cannot_write_in(shown(t), dir, dirlen, errno, e);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &old);
    atomic_fetch_add(&opening, 1);
    if (atomic_load(&stopping)) { /* the program ends, in another thread */
        atomic_fetch_sub(&opening, 1);
        for (;;)
            (void)pause();
    }
    make(t, base, name);
    int why = errno;
    if (t->fd >= 0 && !take_slot(t, name)) {
        (void)unlinkat(t->folder, name, 0);
        (void)close(t->fd);
        t->fd = -1;
        why = EMFILE;
    }
    atomic_fetch_sub(&opening, 1);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (t->fd < 0)
        return cannot_write_in(shown(t), dir, dirlen, why, e);
    spx_status st = name_again(t, dir, dirlen, name, e);
    if (st == SPX_OK) {
        (void)pthread_mutex_lock(&slots_lock);
        (void)snprintf(slots[t->slot].path, PATHLEN, "%s", t->path);
        (void)pthread_mutex_unlock(&slots_lock);
    }
    return st;
}

spx_status spx_tmpfile_open(spx_tmpfile *t, const char *target, int force, spx_err *e)
{
    memset(t, 0, sizeof *t);
    t->fd = t->folder = t->slot = -1;
    t->force = force;
    spx_status st = SPX_OK;
    if (strcmp(target, "-") != 0) {
        if ((st = look(target, force, &t->device, e)) != SPX_OK)
            return st;
        if ((t->target = spx_strdup(target, e)) == NULL)
            return SPX_EIO;
    }
    const char *dir = getenv("TMPDIR"), *base = "output";
    if (dir == NULL || *dir == '\0')
        dir = "/tmp";
    size_t dirlen = strlen(dir);
    if (t->target != NULL && !t->device)
        split(t->target, &dir, &dirlen, &base);
    st = open_in(t, dir, dirlen, base, e);
    if (st != SPX_OK)
        spx_tmpfile_discard(t);
    return st;
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
        return spx_fail_at(e, SPX_EIO, shown(t), NULL, NULL, "cannot rewind: %s", strerror(errno));
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
        st = k < 0 ? spx_fail_at(e, SPX_EIO, shown(t), NULL, NULL, "cannot read back: %s", strerror(errno))
                   : spx_write_all(out, buf, (size_t)k, shown(t), e);
    }
    spx_free(buf);
    return st;
}

/* Without -f, link() refuses a target that somebody made in the meantime; rename() would replace it. */
static spx_status give_name(const spx_tmpfile *t, const char *base, spx_err *e)
{
    const char *name = slots[t->slot].name;
    if (!t->force && linkat(t->folder, name, t->folder, base, 0) == 0) {
        (void)unlinkat(t->folder, name, 0);
        return SPX_OK;
    }
    if (!t->force && errno == EEXIST)
        return spx_fail_at(e, SPX_EIO, t->target, NULL, "give -f to replace it",
                           "was made by somebody else in the meantime");
    if (renameat(t->folder, name, t->folder, base) != 0)
        return spx_fail_at(e, SPX_EIO, t->target, NULL, NULL, "cannot rename the finished file: %s", strerror(errno));
    return SPX_OK;
}

static spx_status sync_and_rename(spx_tmpfile *t, spx_err *e)
{
    struct stat sb;
    const char *dir, *base;
    size_t dirlen;
    split(t->target, &dir, &dirlen, &base);
    /* the file has mode 0600 so far; the output gets the mode that open() would have given, or that of the file it
     * replaces */
    mode_t mode = fstatat(t->folder, base, &sb, 0) == 0 ? sb.st_mode & 0777 : spx_tmpfile_mode(0666);
    if (fchmod(t->fd, mode) != 0 || fsync(t->fd) != 0)
        return spx_fail_at(e, SPX_EIO, t->target, NULL, NULL, "cannot write: %s", strerror(errno));
    int fd = t->fd;
    t->fd = -1;
    if (close(fd) != 0)
        return spx_fail_at(e, SPX_EIO, t->target, NULL, NULL, "cannot write: %s", strerror(errno));
    spx_status st = give_name(t, base, e);
    if (st != SPX_OK)
        return st;
    free_slot(t);
    /* the name has to survive a power failure, too; file systems and folders that cannot be synced say so otherwise */
    if (fsync(t->folder) != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT || errno == ESTALE))
        return spx_fail_at(e, SPX_EIO, t->target, NULL, NULL,
                           "is written, but its folder cannot be synced to the disk: %s", strerror(errno));
    return SPX_OK;
}

spx_status spx_tmpfile_commit(spx_tmpfile *t, spx_err *e)
{
    spx_status st;
    if (t->target == NULL) {
        st = copy_out(t, STDOUT_FILENO, e);
        if (st == SPX_OK && close(STDOUT_FILENO) != 0)
            st = spx_fail(e, SPX_EIO, "standard output: cannot write: %s", strerror(errno));
    } else if (t->device) {
        int fd = open(t->target, O_WRONLY | O_CLOEXEC);
        st = fd < 0 ? spx_fail_at(e, SPX_EIO, t->target, NULL, NULL, "cannot open: %s", strerror(errno))
                    : copy_out(t, fd, e);
        if (fd >= 0 && close(fd) != 0 && st == SPX_OK)
            st = spx_fail_at(e, SPX_EIO, t->target, NULL, NULL, "cannot write: %s", strerror(errno));
    } else {
        st = sync_and_rename(t, e);
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
    if (t->slot >= 0 && (unlinkat(t->folder, slots[t->slot].name, 0) == 0 || errno == ENOENT))
        free_slot(t);
    if (t->folder >= 0 && t->slot < 0) /* else the end of the program tries again */
        (void)close(t->folder);
    spx_free(t->path);
    spx_free(t->target);
    memset(t, 0, sizeof *t);
    t->fd = t->folder = t->slot = -1;
}
