/* Preloaded into a program (LD_PRELOAD), makes calls of the system fail: tests/trust/calls.bash.
 *
 *     SPX_INJECT=CLASS:N[:on][:short][:ERROR]   the N-th call of the class after the start of main() fails, with `on`
 *                                               all later ones, too. ERROR (EIO, ENOSPC, EINTR ...) is errno, in place
 *                                               of the class's own; `short`: half of the bytes are read or written
 *     SPX_INJECT_COUNT=FILE                     number of calls of each class, a line each, at the end
 *     SPX_INJECT_SWEEP=FIRST:STEP:LAST          in place of N, all of these, each in a process of its own (sweep.c)
 *
 * With OMP_NUM_THREADS=1, threads take turns (turns.c), so that the N-th call is the same in every run. A close that
 * fails has closed, as on Linux. A failed allocation has no other ERROR than ENOMEM. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "sweep.h"
#include "turns.h"

enum {
    ALLOC,
    READ,
    PREAD,
    WRITE,
    PWRITE,
    TRUNCATE,
    SYNC,
    CLOSE,
    OPEN,
    CREATE,
    STAT,
    SEEK,
    MAP,
    MODE,
    RENAME,
    LINK,
    UNLINK,
    FREAD,
    FWRITE,
    FOPEN,
    FCLOSE,
    FFLUSH,
    FSEEK,
    THREAD,
    NCLASS
};
static const struct {
    const char *name;
    int error;
} class_of[NCLASS] = {{"alloc", ENOMEM}, {"read", EIO},      {"pread", EIO},  {"write", ENOSPC},  {"pwrite", ENOSPC},
                      {"truncate", EIO}, {"sync", EIO},      {"close", EIO},  {"open", EMFILE},   {"create", ENOSPC},
                      {"stat", EIO},     {"seek", EIO},      {"map", ENOMEM}, {"mode", EPERM},    {"rename", EIO},
                      {"link", EIO},     {"unlink", EIO},    {"fread", EIO},  {"fwrite", ENOSPC}, {"fopen", EMFILE},
                      {"fclose", EIO},   {"fflush", ENOSPC}, {"fseek", EIO},  {"thread", EAGAIN}};
static const struct {
    const char *name;
    int number;
} errors[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EINTR", EINTR}, {"EMFILE", EMFILE},
              {"EACCES", EACCES}, {"EDQUOT", EDQUOT}, {"EROFS", EROFS}, {"ESTALE", ESTALE}};

static atomic_long count[NCLASS];
static atomic_int active;
static int class = -1, later, part, error;
static long at;
static const char *count_file;

/* Does this call fail? Sets errno then. */
static int fails(int c)
{
    if (!atomic_load(&active))
        return 0;
    const long n = atomic_fetch_add(&count[c], 1) + 1;
    if (c != class)
        return 0;
    if (n == spx_sweep_next) {
        atomic_store(&active, 0);
        if (spx_sweep_branch())
            at = n;
        atomic_store(&active, 1);
    }
    if (!(n == at || (later && n > at)))
        return 0;
    errno = error;
    return 1;
}

/* At the end. Only system calls. */
static void report(void)
{
    char text[1024];
    int n = 0;
    if (count_file == NULL)
        return;
    for (int c = 0; c < NCLASS; c++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s %ld\n", class_of[c].name, atomic_load(&count[c]));
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, count_file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd >= 0) {
        if (syscall(SYS_write, fd, text, n) < 0) {
            /* the test sees that the file is empty */
        }
        (void)syscall(SYS_close, fd);
    }
}

/* The function that would have been called; NULL only where glibc lacks it. */
static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

#define NEXT(name)                                                                                                     \
    static __typeof__(&name) real;                                                                                     \
    if (real == NULL)                                                                                                  \
    real = (__typeof__(&name))next(#name)

typedef int main_function(int, char **, char **);
static main_function *real_main;

static int begin(int argc, char **argv, char **environment)
{
    const char *what = getenv("SPX_INJECT");
    count_file = getenv("SPX_INJECT_COUNT");
    for (int c = 0; c < NCLASS && what != NULL; c++) {
        const size_t n = strlen(class_of[c].name);
        if (strncmp(what, class_of[c].name, n) == 0 && what[n] == ':') {
            class = c;
            at = atol(what + n + 1);
            later = strstr(what, ":on") != NULL;
            part = strstr(what, ":short") != NULL;
            error = class_of[c].error;
            for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
                if (strstr(what, errors[i].name) != NULL)
                    error = errors[i].number;
        }
    }
    (void)unsetenv("LD_PRELOAD");
    const char *threads = getenv("OMP_NUM_THREADS"), *numbers = getenv("SPX_INJECT_SWEEP");
    spx_turns = threads != NULL && strcmp(threads, "1") == 0;
    if (numbers != NULL && (at = spx_sweep(numbers)) == 0)
        at = LONG_MAX;
    (void)atexit(report);
    atomic_store(&active, 1);
    return real_main(argc, argv, environment);
}

typedef int start_function(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
int __libc_start_main(main_function *m, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack);
int __libc_start_main(main_function *m, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack)
{
    start_function *start = (start_function *)next("__libc_start_main");
    real_main = m;
    return start(begin, argc, argv, init, fini, rtld_fini, stack);
}

/* ---- memory and threads ---- */

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
void *memalign(size_t align, size_t size);

void *malloc(size_t n)
{
    return fails(ALLOC) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return fails(ALLOC) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    return size > 0 && fails(ALLOC) ? NULL : __libc_realloc(p, size);
}

void *memalign(size_t align, size_t size)
{
    return fails(ALLOC) ? NULL : __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    return memalign(align, size);
}

int posix_memalign(void **p, size_t align, size_t size)
{
    *p = memalign(align, size);
    return *p != NULL ? 0 : ENOMEM;
}

void *mmap(void *address, size_t n, int protection, int flags, int fd, off_t offset)
{
    return fails(MAP) ? MAP_FAILED : (void *)syscall(SYS_mmap, address, n, protection, flags, fd, offset);
}

void *mmap64(void *address, size_t n, int protection, int flags, int fd, off_t offset)
{
    return mmap(address, n, protection, flags, fd, offset);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *data)
{
    NEXT(pthread_create);
    if (atomic_load(&active) && !spx_turns)
        spx_sweep_stop();
    if (fails(THREAD))
        return EAGAIN;
    return spx_turns ? spx_turns_create(thread, start, data) : real(thread, attributes, start, data);
}

pid_t fork(void)
{
    NEXT(fork);
    if (atomic_load(&active))
        spx_sweep_stop();
    return real();
}

/* ---- descriptors ---- */

#define READS(c, n)                                                                                                    \
    if (fails(c)) {                                                                                                    \
        if (!part || (n) < 2)                                                                                          \
            return -1;                                                                                                 \
        (n) /= 2;                                                                                                      \
    }

ssize_t read(int fd, void *to, size_t n)
{
    READS(READ, n)
    return (ssize_t)syscall(SYS_read, fd, to, n);
}

ssize_t pread(int fd, void *to, size_t n, off_t offset)
{
    READS(PREAD, n)
    return (ssize_t)syscall(SYS_pread64, fd, to, n, offset);
}

ssize_t pread64(int fd, void *to, size_t n, off_t offset)
{
    return pread(fd, to, n, offset);
}

ssize_t write(int fd, const void *from, size_t n)
{
    if (fd != STDERR_FILENO)
        READS(WRITE, n)
    return (ssize_t)syscall(SYS_write, fd, from, n);
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t offset)
{
    READS(PWRITE, n)
    return (ssize_t)syscall(SYS_pwrite64, fd, from, n, offset);
}

ssize_t pwrite64(int fd, const void *from, size_t n, off_t offset)
{
    return pwrite(fd, from, n, offset);
}

int ftruncate(int fd, off_t n)
{
    return fails(TRUNCATE) ? -1 : (int)syscall(SYS_ftruncate, fd, n);
}

int ftruncate64(int fd, off_t n)
{
    return ftruncate(fd, n);
}

int posix_fallocate(int fd, off_t from, off_t n)
{
    NEXT(posix_fallocate);
    return fails(TRUNCATE) ? error : real(fd, from, n);
}

int posix_fallocate64(int fd, off_t from, off_t n)
{
    return posix_fallocate(fd, from, n);
}

int fsync(int fd)
{
    return fails(SYNC) ? -1 : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return fails(SYNC) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int close(int fd)
{
    const int done = (int)syscall(SYS_close, fd);
    return done == 0 && fails(CLOSE) ? -1 : done;
}

off_t lseek(int fd, off_t offset, int from)
{
    return fails(SEEK) ? -1 : (off_t)syscall(SYS_lseek, fd, offset, from);
}

off_t lseek64(int fd, off_t offset, int from)
{
    return lseek(fd, offset, from);
}

int fchmod(int fd, mode_t mode)
{
    return fails(MODE) ? -1 : (int)syscall(SYS_fchmod, fd, mode);
}

int fstat(int fd, struct stat *to)
{
    NEXT(fstat);
    return fails(STAT) ? -1 : real(fd, to);
}

int fstat64(int fd, struct stat64 *to)
{
    NEXT(fstat64);
    return fails(STAT) ? -1 : real(fd, to);
}

/* ---- names ---- */

/* Files that are made count apart from those that are read. */
static int open_at(int folder, const char *path, int flags, int mode)
{
    return fails((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? CREATE : OPEN)
               ? -1
               : (int)syscall(SYS_openat, folder, path, flags, mode);
}

#define MODE_OF(last)                                                                                                  \
    va_list more;                                                                                                      \
    va_start(more, last);                                                                                              \
    const int mode = va_arg(more, int);                                                                                \
    va_end(more)

int open(const char *path, int flags, ...)
{
    MODE_OF(flags);
    return open_at(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE_OF(flags);
    return open_at(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    MODE_OF(flags);
    return open_at(folder, path, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...)
{
    MODE_OF(flags);
    return open_at(folder, path, flags, mode);
}

int mkostemp(char *path, int flags)
{
    NEXT(mkostemp);
    return fails(CREATE) ? -1 : real(path, flags);
}

int mkostemp64(char *path, int flags)
{
    return mkostemp(path, flags);
}

int stat(const char *path, struct stat *to)
{
    NEXT(stat);
    return fails(STAT) ? -1 : real(path, to);
}

int stat64(const char *path, struct stat64 *to)
{
    NEXT(stat64);
    return fails(STAT) ? -1 : real(path, to);
}

int fstatat(int folder, const char *path, struct stat *to, int flags)
{
    NEXT(fstatat);
    return fails(STAT) ? -1 : real(folder, path, to, flags);
}

int rename(const char *from, const char *to)
{
    return fails(RENAME) ? -1 : (int)syscall(SYS_rename, from, to);
}

int renameat(int f, const char *from, int t, const char *to)
{
    return fails(RENAME) ? -1 : (int)syscall(SYS_renameat, f, from, t, to);
}

int link(const char *from, const char *to)
{
    return fails(LINK) ? -1 : (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int linkat(int f, const char *from, int t, const char *to, int flags)
{
    return fails(LINK) ? -1 : (int)syscall(SYS_linkat, f, from, t, to, flags);
}

int unlink(const char *path)
{
    return fails(UNLINK) ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int unlinkat(int folder, const char *path, int flags)
{
    return fails(UNLINK) ? -1 : (int)syscall(SYS_unlinkat, folder, path, flags);
}

/* ---- streams ---- */

size_t fread(void *to, size_t size, size_t n, FILE *f)
{
    NEXT(fread);
    return fails(FREAD) ? 0 : real(to, size, n, f);
}

size_t fwrite(const void *from, size_t size, size_t n, FILE *f)
{
    NEXT(fwrite);
    return f != stderr && fails(FWRITE) ? 0 : real(from, size, n, f);
}

FILE *fopen(const char *path, const char *mode)
{
    NEXT(fopen);
    return fails(FOPEN) ? NULL : real(path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    return fopen(path, mode);
}

int fclose(FILE *f)
{
    NEXT(fclose);
    const int done = real(f);
    return fails(FCLOSE) ? EOF : done;
}

int fflush(FILE *f)
{
    NEXT(fflush);
    return f != NULL && f != stderr && fails(FFLUSH) ? EOF : real(f);
}

int fseeko(FILE *f, off_t offset, int from)
{
    NEXT(fseeko);
    return fails(FSEEK) ? -1 : real(f, offset, from);
}

int fseeko64(FILE *f, off_t offset, int from)
{
    return fseeko(f, offset, from);
}
