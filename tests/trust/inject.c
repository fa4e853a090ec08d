/* Preloaded into a program (LD_PRELOAD), makes one call of the system fail: tests/trust.bats.
 *
 *     SPX_INJECT=CLASS:N[:on]   the N-th call of the class after the start of main() fails; with `on` all later ones,
 * too SPX_INJECT_COUNT=FILE     number of calls of each class, a line each, at the end
 *
 * Classes: alloc (malloc and its kin: no memory), pread (EIO), open (EMFILE). */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum { ALLOC, PREAD, OPEN, NCLASS };
static const char *const name[NCLASS] = {"alloc", "pread", "open"};

static atomic_long count[NCLASS];
static atomic_int active;
static int class = -1, later;
static long at;
static const char *count_file;

static int fails(int c)
{
    if (!atomic_load(&active))
        return 0;
    const long n = atomic_fetch_add(&count[c], 1) + 1;
    return c == class && (n == at || (later && n > at));
}

/* At the end, also by _exit(). Only system calls. */
static void report(void)
{
    char text[256];
    int n = 0;
    if (count_file == NULL)
        return;
    for (int c = 0; c < NCLASS; c++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s %ld\n", name[c], atomic_load(&count[c]));
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, count_file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd >= 0) {
        if (syscall(SYS_write, fd, text, n) < 0) {
            /* the test sees that the file is empty */
        }
        (void)syscall(SYS_close, fd);
    }
}

typedef int main_function(int, char **, char **);
static main_function *real_main;

static int begin(int argc, char **argv, char **environment)
{
    const char *what = getenv("SPX_INJECT");
    count_file = getenv("SPX_INJECT_COUNT");
    for (int c = 0; c < NCLASS && what != NULL; c++) {
        const size_t n = strlen(name[c]);
        if (strncmp(what, name[c], n) == 0 && what[n] == ':') {
            class = c;
            at = atol(what + n + 1);
            later = strstr(what, ":on") != NULL;
        }
    }
    (void)unsetenv("LD_PRELOAD");
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
    start_function *start = (start_function *)dlsym(RTLD_NEXT, "__libc_start_main");
    real_main = m;
    return start(begin, argc, argv, init, fini, rtld_fini, stack);
}

/* ---- memory ---- */

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t align, size_t size);
void *memalign(size_t align, size_t size);

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

void *malloc(size_t n)
{
    return fails(ALLOC) ? no_memory() : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return fails(ALLOC) ? no_memory() : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    return size > 0 && fails(ALLOC) ? no_memory() : __libc_realloc(p, size);
}

void *memalign(size_t align, size_t size)
{
    return fails(ALLOC) ? no_memory() : __libc_memalign(align, size);
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

/* ---- files ---- */

ssize_t pread(int fd, void *to, size_t n, off_t offset)
{
    if (fails(PREAD)) {
        errno = EIO;
        return -1;
    }
    return (ssize_t)syscall(SYS_pread64, fd, to, n, offset);
}

ssize_t pread64(int fd, void *to, size_t n, off_t offset);
ssize_t pread64(int fd, void *to, size_t n, off_t offset)
{
    return pread(fd, to, n, offset);
}

int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const int mode = va_arg(more, int);
    va_end(more);
    if (fails(OPEN)) {
        errno = EMFILE;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...);
int open64(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    const int mode = va_arg(more, int);
    va_end(more);
    return open(path, flags, mode);
}
