/* Provides many tries of one command in one start of it. The trunk, a run that nothing disturbs, forks before each call
 * that is to fail; the branch goes on with the failure, in a folder of its own, with copies of the files that the trunk
 * has open. So a try costs what comes after the failure only. Threads do not survive a fork: where the trunk gets one,
 * it ends, and the other branches begin before main().
 *
 * Each end is compared as judge() of lib.sh does, which is left to judge whatever is not plainly right.
 *
 *     SPX_INJECT_SWEEP=FIRST:STEP:LAST   numbers of the calls
 *
 * The current folder has right/, the products of an undisturbed run, old/, others with these names, and right.stdout.
 * The trunk runs in trunk/, branches in try/; products are written in out/ of these. The file `others` gets the numbers
 * of the tries that are not plainly right, a line each, and at the end the number of all tries. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sweep.h"

enum { MAX_PRODUCT = 16, SECONDS = 60, FAILED = 4, STOPPED = 77 };

typedef struct {
    char *byte;
    size_t n;
} content;

static struct {
    char name[256];
    content right, old;
} product[MAX_PRODUCT];
static size_t nproduct;
static content right_text;
static long step, last;
static char home[PATH_MAX]; /* with trunk/ and try/ */

/* What the trunk tells the process that started it. */
static struct {
    long next, tries;
} * shared;

long spx_sweep_next;

/* home/FOLDER/NAME. */
static const char *path_of(const char *folder, const char *name)
{
    static char path[2][PATH_MAX + 600];
    static int turn;
    char *p = path[turn ^= 1];
    (void)snprintf(p, sizeof path[0], "%.4000s/%.64s/%.400s", home, folder, name);
    return p;
}

/* To the file sweep.log: the descriptors are the program's. */
static void need(int ok, const char *what)
{
    if (!ok) {
        const int error = errno;
        FILE *f = fopen(path_of(".", "sweep.log"), "a");
        if (f != NULL)
            (void)fprintf(f, "sweep.c: %s: %s\n", what, strerror(error));
        if (f != NULL)
            (void)fclose(f);
        _exit(2);
    }
}

/* A file's content; no bytes when there is none. */
static content load(const char *folder, const char *name)
{
    content c = {NULL, 0};
    struct stat s;
    const char *path = path_of(folder, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return c;
    need(fstat(fd, &s) == 0, path);
    c.n = (size_t)s.st_size;
    c.byte = malloc(c.n + 1);
    need(c.byte != NULL && read(fd, c.byte, c.n) == (ssize_t)c.n, path);
    c.byte[c.n] = '\0';
    (void)close(fd);
    return c;
}

static void store(int fd, content c)
{
    for (size_t n = 0; n < c.n;) {
        const ssize_t done = write(fd, c.byte + n, c.n - n);
        need(done > 0, "write");
        n += (size_t)done;
    }
}

static void store_as(const char *path, content c)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    need(fd >= 0, path);
    store(fd, c);
    (void)close(fd);
}

static int equal(content a, content b)
{
    return a.byte != NULL && b.byte != NULL && a.n == b.n && memcmp(a.byte, b.byte, a.n) == 0;
}

typedef void on_file(const char *folder, const char *name, void *data);

/* Each file of home/FOLDER. */
static void each(const char *folder, on_file *f, void *data)
{
    DIR *d = opendir(path_of(folder, "."));
    need(d != NULL, folder);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            f(folder, e->d_name, data);
    (void)closedir(d);
}

static void add_product(const char *folder, const char *name, void *data)
{
    (void)data;
    need(nproduct < MAX_PRODUCT, "too many products");
    (void)snprintf(product[nproduct].name, sizeof product[0].name, "%s", name);
    product[nproduct].right = load(folder, name);
    product[nproduct++].old = load("old", name);
}

static void remove_it(const char *folder, const char *name, void *data)
{
    (void)data;
    need(unlink(path_of(folder, name)) == 0, name);
}

static void count_stranger(const char *folder, const char *name, void *data)
{
    (void)folder;
    for (size_t i = 0; i < nproduct; i++)
        if (strcmp(product[i].name, name) == 0 && strstr(folder, "/out") != NULL)
            return;
    ++*(size_t *)data;
}

static void copy_to_try(const char *folder, const char *name, void *data)
{
    content c = load(folder, name);
    store_as(path_of(data, name), c);
    free(c.byte);
}

static void empty_try(void)
{
    each("try/out", remove_it, NULL);
    each("try/tmp", remove_it, NULL);
}

/* One line that begins with the program's name. */
static int is_message(content text)
{
    const size_t n = strlen(program_invocation_short_name);
    return text.n > n + 2 && strncmp(text.byte, program_invocation_short_name, n) == 0 &&
           strncmp(text.byte + n, ": ", 2) == 0 && strchr(text.byte, '\n') == text.byte + text.n - 1;
}

typedef enum { OTHER, RIGHT, SOFT } end;

/* RIGHT: status 0 and what an undisturbed run gives, or status 4, a message, and an old output. SOFT: status 4 and a
 * message after the whole output. */
static end end_of(const char *where, int status)
{
    char folder[32];
    size_t nnew = 0, nold = 0, strangers = 0;
    (void)snprintf(folder, sizeof folder, "%.20s/out", where);
    each(folder, count_stranger, &strangers);
    for (size_t i = 0; i < nproduct; i++) {
        content now = load(folder, product[i].name);
        nnew += (size_t)equal(now, product[i].right);
        nold += (size_t)equal(now, product[i].old);
        free(now.byte);
    }
    (void)snprintf(folder, sizeof folder, "%.20s/tmp", where);
    each(folder, count_stranger, &strangers);
    if (!WIFEXITED(status) || strangers > 0)
        return OTHER;
    const int fine = WEXITSTATUS(status) == 0, failed = WEXITSTATUS(status) == FAILED;
    content text = load(where, fine ? "stdout" : "stderr");
    end is = OTHER;
    if (fine && nnew == nproduct && equal(text, right_text))
        is = RIGHT;
    else if (failed && nnew + nold == nproduct && is_message(text))
        is = nold > 0 || nproduct == 0 ? RIGHT : SOFT;
    free(text.byte);
    return is;
}

/* In a branch: descriptor fd, a file, becomes one of its own, in the branch's folder where the trunk's is in the
 * trunk's. */
static void own_descriptor(int fd)
{
    char link[64], target[PATH_MAX + 16];
    struct stat s;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, target, sizeof target - 1);
    if (n <= 0 || fstat(fd, &s) != 0 || !(S_ISREG(s.st_mode) || S_ISDIR(s.st_mode)))
        return;
    target[n] = '\0';
    /* descriptors of who runs the tests may be of links that are not to be followed */
    const int flags = fcntl(fd, F_GETFL) & ~(O_CREAT | O_EXCL | O_TRUNC | O_NOFOLLOW), kept = fcntl(fd, F_GETFD);
    const off_t at = lseek(fd, 0, SEEK_CUR);
    const char *trunk = path_of("trunk", "");
    const size_t inside = strncmp(target, trunk, strlen(trunk)) == 0 ? strlen(trunk) : 0;
    int mine;
    if (inside > 0 && s.st_nlink == 0) {
        content c = {malloc((size_t)s.st_size + 1), (size_t)s.st_size};
        need(c.byte != NULL && pread(fd, c.byte, c.n, 0) == (ssize_t)c.n, target);
        mine = open(path_of("try", "tmp"), O_TMPFILE | O_RDWR, 0600);
        need(mine >= 0, target);
        store(mine, c);
        free(c.byte);
    } else
        mine = open(inside > 0 ? path_of("try", target + inside) : link, flags);
    need(mine >= 0 && (S_ISDIR(s.st_mode) || lseek(mine, at, SEEK_SET) == at) && dup2(mine, fd) == fd &&
             fcntl(fd, F_SETFD, kept) == 0 && close(mine) == 0,
         target);
}

/* In a branch: from the trunk's folder, with what is there, to its own. */
static void move_to_try(void)
{
    copy_to_try("trunk", "stdout", "try");
    copy_to_try("trunk", "stderr", "try");
    each("trunk/out", copy_to_try, "try/out");
    each("trunk/tmp", copy_to_try, "try/tmp");
    for (int fd = 0; fd < 256; fd++)
        own_descriptor(fd);
    need(chdir(path_of("try", "")) == 0, "try");
}

/* glibc's: inject.c has one that ends the trunk. */
static pid_t fork_itself(void)
{
    static pid_t (*real)(void);
    if (real == NULL)
        real = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
    const pid_t child = real();
    need(child >= 0, "fork");
    return child;
}

static int wait_for(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) != child)
        need(errno == EINTR, "waitpid");
    return status;
}

/* A line for the file `others`. */
static void note(const char *format, long n)
{
    char line[64];
    const int size = snprintf(line, sizeof line, format, n);
    const int fd = open(path_of(".", "others"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    need(fd >= 0 && write(fd, line, (size_t)size) == size, "others");
    (void)close(fd);
}

int spx_sweep_branch(void)
{
    const int error = errno;
    const pid_t child = fork_itself();
    if (child == 0) {
        spx_sweep_next = 0;
        (void)signal(SIGALRM, SIG_DFL); /* GNU Parallel ignores it */
        (void)alarm(SECONDS);
        move_to_try();
        errno = error;
        return 1;
    }
    const int status = wait_for(child);
    const end is = end_of("try", status);
    if (is != RIGHT)
        note(is == SOFT ? "soft %ld\n" : "%ld\n", spx_sweep_next);
    empty_try();
    shared->tries++;
    shared->next = spx_sweep_next += step;
    if (spx_sweep_next > last)
        spx_sweep_next = 0;
    errno = error;
    return 0;
}

void spx_sweep_stop(void)
{
    if (spx_sweep_next != 0)
        _exit(STOPPED);
}

/* Folders of a run, with the old output. */
static void make_folders(const char *name)
{
    char folder[32];
    (void)snprintf(folder, sizeof folder, "%.20s/out", name);
    need(mkdir(path_of(".", name), 0777) == 0 && mkdir(path_of(name, "out"), 0777) == 0 &&
             mkdir(path_of(name, "tmp"), 0777) == 0,
         name);
    for (size_t i = 0; i < nproduct && strcmp(name, "trunk") == 0; i++)
        store_as(path_of(folder, product[i].name), product[i].old);
}

static void to_file(const char *name, int as)
{
    const int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    need(fd >= 0 && dup2(fd, as) == as && close(fd) == 0, name);
}

long spx_sweep(const char *numbers)
{
    long first;
    need(sscanf(numbers, "%ld:%ld:%ld", &first, &step, &last) == 3 && first > 0 && step > 0 && first <= last &&
             getcwd(home, sizeof home) != NULL,
         "SPX_INJECT_SWEEP");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(shared != MAP_FAILED, "mmap");
    each("right", add_product, NULL);
    right_text = load(".", "right.stdout");
    make_folders("trunk");
    make_folders("try");
    need(chdir("trunk") == 0 && setenv("TMPDIR", "tmp", 1) == 0, "trunk");
    to_file("stdout", STDOUT_FILENO);
    to_file("stderr", STDERR_FILENO);
    shared->next = spx_sweep_next = first;
    const pid_t trunk = fork_itself();
    if (trunk == 0)
        return 0;
    const int status = wait_for(trunk);
    if (WIFEXITED(status) && WEXITSTATUS(status) == STOPPED) {
        each("trunk/out", remove_it, NULL);
        each("trunk/tmp", remove_it, NULL);
        for (size_t i = 0; i < nproduct; i++)
            store_as(path_of("trunk/out", product[i].name), product[i].old);
        to_file("stdout", STDOUT_FILENO);
        to_file("stderr", STDERR_FILENO);
        (void)lseek(STDIN_FILENO, 0, SEEK_SET);
        for (spx_sweep_next = shared->next; spx_sweep_next != 0 && spx_sweep_next <= last;)
            if (spx_sweep_branch())
                return shared->next;
    } else
        need(end_of("trunk", status) == RIGHT && WEXITSTATUS(status) == 0, "the trunk's end is not right");
    note("end %ld\n", shared->tries);
    _exit(0);
}
