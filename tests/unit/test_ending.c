/* Checks base/ending: a crash of a thread, a stack that overflows, an exit() of a library and a thread that cannot be
 * started end with one line and the status that is promised, and the temporary file is gone. Each ends a child. */
#include "base/ending.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/tmpfile.h"
#include "check.h"

static char folder[] = "/tmp/test_ending.XXXXXX";

/* Recursion without end, which the compiler cannot make a loop of. */
static int overflow(volatile int *depth)
{
    volatile int more[256];
    more[*depth & 255] = *depth;
    ++*depth;
    return *depth < 0 ? 0 : overflow(depth) + more[(*depth - 1) & 255];
}

static void *overflow_thread(void *data)
{
    volatile int depth = 0;
    (void)data;
    return overflow(&depth) == 1 ? NULL : folder;
}

static void *nothing(void *data)
{
    return data;
}

static void fault(void)
{
    (void)raise(SIGSEGV);
}

static void overflow_here(void)
{
    (void)overflow_thread(NULL);
}

static void overflow_there(void)
{
    pthread_t t;
    pthread_attr_t small;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 1 << 14) == 0);
    CHECK(pthread_create(&t, &small, overflow_thread, NULL) == 0 && pthread_join(t, NULL) == 0);
}

static void aborts(void)
{
    abort();
}

static void exits(void)
{
    exit(1);
}

static void exits_after_success(void)
{
    spx_ending_success();
    exit(1);
}

static void handler(void)
{
    (void)fputs("handler\n", stderr);
}

/* Main's end: what libraries do at exit() is left out after success alone, and where nothing reports then. */
static void ends_now(int success)
{
    (void)atexit(handler);
    spx_ending_at_once();
    if (success)
        spx_ending_success();
    spx_ending_expected();
    spx_ending_now();
    exit(5);
}

static void ends_at_once(void)
{
    (void)unsetenv("LD_PRELOAD");
    (void)unsetenv("CUDA_INJECTION64_PATH");
    ends_now(1);
}

static void ends_at_once_in_vain(void)
{
    (void)unsetenv("LD_PRELOAD");
    (void)unsetenv("CUDA_INJECTION64_PATH");
    ends_now(0);
}

static void ends_under_a_tool(void)
{
    (void)setenv("CUDA_INJECTION64_PATH", "tool.so", 1);
    ends_now(1);
}

/* More address space than there is: a thread has no stack. */
static void no_thread(void)
{
    const struct rlimit none = {1, 1};
    pthread_t t;
    CHECK(setrlimit(RLIMIT_AS, &none) == 0);
    CHECK(spx_thread_or_error(&t, nothing, NULL) != 0); /* its caller deals with it */
    (void)pthread_create(&t, NULL, nothing, NULL);
}

static void *ends_it(void *data)
{
    spx_end_now("no memory");
    return data;
}

/* Several threads see at the same time that there is no way on. */
static void together(void)
{
    pthread_t t[8];
    for (int k = 0; k < 8; k++)
        CHECK(pthread_create(&t[k], NULL, ends_it, NULL) == 0);
    for (int k = 0; k < 8; k++)
        (void)pthread_join(t[k], NULL);
}

/* Runs f() in a child that has a temporary file; its status as of a shell, and its messages. */
static int child(void (*f)(void), char *text, size_t size)
{
    int end[2], status;
    CHECK(pipe(end) == 0);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        static spx_tmpfile t;
        char target[64];
        const struct rlimit no_core = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &no_core);
        CHECK(dup2(end[1], STDERR_FILENO) == STDERR_FILENO && close(end[0]) == 0 && close(end[1]) == 0);
        spx_ending_guard("prog");
        (void)snprintf(target, sizeof target, "%s/product", folder);
        CHECK(spx_tmpfile_open(&t, target, 0, &e) == SPX_OK);
        f();
        _exit(99);
    }
    CHECK(close(end[1]) == 0);
    size_t n = 0;
    for (ssize_t k; (k = read(end[0], text + n, size - 1 - n)) > 0;)
        n += (size_t)k;
    text[n] = '\0';
    CHECK(close(end[0]) == 0 && waitpid(pid, &status, 0) == pid);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void ends(const char *what, void (*f)(void), int status, const char *line)
{
    char text[2048];
    const int got = child(f, text, sizeof text);
    if (got != status || strncmp(text, line, strlen(line)) != 0 ||
        (*line != '\0' && strchr(text, '\n') != strrchr(text, '\n'))) {
        printf("%s: status %d, not %d: %s\n", what, got, status, text);
        exit(1);
    }
    DIR *d = opendir(folder);
    CHECK(d != NULL);
    for (const struct dirent *f1; (f1 = readdir(d)) != NULL;)
        if (strcmp(f1->d_name, ".") != 0 && strcmp(f1->d_name, "..") != 0) {
            printf("%s: left %s\n", what, f1->d_name);
            exit(1);
        }
    (void)closedir(d);
}

int main(void)
{
    CHECK(mkdtemp(folder) != NULL);
#ifdef SPX_REPLACES_LIBC
    ends("a fault", fault, 128 + SIGSEGV, "prog: crashed;");
    ends("a stack that overflows", overflow_here, 128 + SIGSEGV, "prog: crashed;");
    ends("a thread's stack that overflows", overflow_there, 128 + SIGSEGV, "prog: crashed;");
    ends("abort()", aborts, 128 + SIGABRT, "prog: crashed;");
    ends("the end of a run on a device", ends_at_once, SPX_OK, "");
    ends("the end of one that failed", ends_at_once_in_vain, 5, "handler");
    ends("the end of one under a tool", ends_under_a_tool, 5, "handler");
    ends("a thread that cannot be started", no_thread, SPX_EIO, "prog: cannot start a thread");
#endif
    for (int k = 0; k < 200; k++)
        ends("an end that many threads come to", together, SPX_EIO, "prog: no memory");
    ends("exit() of a library", exits, SPX_EIO, "prog: a library ended the program");
    ends("exit() after success", exits_after_success, SPX_OK, "");
    CHECK(rmdir(folder) == 0);
    return 0;
}
