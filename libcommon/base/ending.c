/* Ends of a program: handlers of signals and crashes, exits that nobody meant, stacks of threads (base/ending.h). */
#include "base/ending.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/tmpfile.h"

enum {
    LEAST_STACK = 1 << 20, /* bytes: LAPACK under rvs-fit needs 0.33 MB, all else 0.07 MB */
    USUAL_STACK = 8 << 20,
    HANDLER_STACK = 1 << 15
};

static const char *name = "specpipe";
static volatile sig_atomic_t succeeded, expected, growing;
static int at_once;

/* One line, `program: text`, by system calls alone. */
static void say(const char *text)
{
    char line[512];
    const size_t n = strnlen(name, sizeof line / 4), k = strnlen(text, sizeof line / 2);
    memcpy(line, name, n);
    memcpy(line + n, ": ", 2);
    memcpy(line + n + 2, text, k);
    line[n + 2 + k] = '\n';
    if (write(STDERR_FILENO, line, n + k + 3) < 0) {
        /* nobody to tell */
    }
}

void spx_end_now(const char *text)
{
    static atomic_flag begun = ATOMIC_FLAG_INIT;
    static _Thread_local int mine;
    if (succeeded)
        _exit(SPX_OK);
    /* memory runs out for all threads at a time: one of them says so */
    while (atomic_flag_test_and_set(&begun) && !mine)
        (void)pause();
    mine = 1;
    say(text);
    spx_tmpfile_abandon();
    _exit(SPX_EIO);
}

void spx_ending_success(void)
{
    succeeded = 1;
}

void spx_ending_expected(void)
{
    expected = 1;
}

void spx_ending_at_once(void)
{
#ifdef SPX_REPLACES_LIBC
    at_once = getenv("CUDA_INJECTION64_PATH") == NULL && getenv("LD_PRELOAD") == NULL;
#endif
}

void spx_ending_now(void)
{
    if (!at_once || !succeeded)
        return;
    spx_tmpfile_abandon();
    _exit(SPX_OK);
}

/* ---- signals and crashes ---- */

static void on_signal(int sig)
{
    spx_tmpfile_abandon();
    spx_log_stopped();
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
}

#ifndef __SANITIZE_ADDRESS__ /* AddressSanitizer reports a crash itself */
/* The signal is blocked until the handler returns: a fault then happens again at its place, with the default action. */
static void on_crash(int sig)
{
    if (growing)
        spx_end_now("no memory for the stack: is the address space limited (ulimit -v)?");
    say("crashed; unfinished output was removed. Is an input file damaged (h5dump FILE)? If not, please report this");
    on_signal(sig);
}

static void own_stack(char *stack)
{
    const stack_t own = {.ss_sp = stack, .ss_size = HANDLER_STACK};
    (void)sigaltstack(&own, NULL);
}
#endif

static void handle(const int *sig, size_t n, void (*handler)(int), int flags)
{
    struct sigaction sa;
    memset(&sa, 0, sizeof sa);
    (void)sigemptyset(&sa.sa_mask);
    sa.sa_handler = handler;
    sa.sa_flags = flags;
    for (size_t i = 0; i < n; i++) {
        struct sigaction old;
        /* a signal ignored by the parent (nohup) stays ignored */
        if (sigaction(sig[i], NULL, &old) == 0 && (handler != on_signal || old.sa_handler != SIG_IGN))
            (void)sigaction(sig[i], &sa, NULL);
    }
}

void spx_text_output(void)
{
    static const int pipe[] = {SIGPIPE};
    handle(pipe, 1, SIG_DFL, 0);
}

/* ---- exits ---- */

#ifdef __GLIBC__
/* HDF5, libgomp and Fortran's library call exit() where they see no way on, with a status of their own. */
static void on_exit_of(int status, void *data)
{
    (void)status;
    (void)data;
    if (!expected)
        spx_end_now("a library ended the program: is memory short, or an input damaged?");
}
#endif

/* ---- stacks and threads ---- */

static _Thread_local int tolerated;

#ifdef SPX_REPLACES_LIBC
typedef int creator(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static creator *next;

typedef struct {
    void *(*start)(void *);
    void *data;
} beginning;

/* The handler's stack is at the far end of the thread's own: an overflow does not reach it. */
static void *begin_thread(void *p)
{
    const beginning b = *(beginning *)p;
    char stack[HANDLER_STACK];
    const stack_t none = {.ss_flags = SS_DISABLE};
    free(p);
    own_stack(stack);
    void *result = b.start(b.data);
    (void)sigaltstack(&none, NULL);
    return result;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *data)
{
    pthread_attr_t own;
    void *at = NULL;
    size_t size = 0;
    if (next == NULL && (next = (creator *)dlsym(RTLD_NEXT, "pthread_create")) == NULL)
        return EAGAIN;
    if (attributes != NULL)
        own = *attributes;
    else if (pthread_attr_init(&own) != 0)
        return ENOMEM;
    /* without a stack of the caller's, glibc counts from address 0 */
    if (pthread_attr_getstack(&own, &at, &size) == 0 && (uintptr_t)at + size == 0 &&
        pthread_attr_getstacksize(&own, &size) == 0 && size < LEAST_STACK)
        (void)pthread_attr_setstacksize(&own, LEAST_STACK);
    beginning *b = malloc(sizeof *b);
    int failed = ENOMEM;
    if (b != NULL) {
        *b = (beginning){start, data};
        failed = next(thread, &own, begin_thread, b);
    }
    if (attributes == NULL)
        (void)pthread_attr_destroy(&own);
    if (failed != 0)
        free(b);
    if (failed != 0 && tolerated == 0)
        spx_end_now("cannot start a thread: give fewer (-j N)");
    return failed;
}
#endif

int spx_thread_or_error(pthread_t *t, void *(*start)(void *), void *data)
{
    tolerated++;
    const int failed = pthread_create(t, NULL, start, data);
    tolerated--;
    return failed;
}

static void need_stack(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= USUAL_STACK)
        return;
    const rlim_t had = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max < USUAL_STACK ? limit.rlim_max : USUAL_STACK;
    if ((setrlimit(RLIMIT_STACK, &limit) != 0 ? had : limit.rlim_cur) < LEAST_STACK)
        spx_end_now("the stack is limited to less than 1 MiB: allow more (ulimit -s 8192)");
}

/* Makes the stack as large as it has to be: the kernel lets it grow when it is used, and where the address space is
 * full by then, the program crashes. */
__attribute__((noinline)) static void grow_stack(void)
{
    volatile char room[LEAST_STACK];
    const long page = sysconf(_SC_PAGESIZE);
    for (size_t i = sizeof room; i > 0; i -= i < (size_t)page ? i : (size_t)page)
        room[i - 1] = 0;
}

void spx_ending_guard(const char *program)
{
    static const int stops[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU}, ignored[] = {SIGPIPE, SIGXFSZ};
    name = program;
    handle(stops, sizeof stops / sizeof *stops, on_signal, 0);
#ifndef __SANITIZE_ADDRESS__
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    static char stack[HANDLER_STACK];
    own_stack(stack);
    handle(crashes, sizeof crashes / sizeof *crashes, on_crash, SA_ONSTACK);
#endif
    handle(ignored, sizeof ignored / sizeof *ignored, SIG_IGN, 0);
    need_stack();
    growing = 1;
    grow_stack();
    growing = 0;
#ifdef __GLIBC__
    (void)on_exit(on_exit_of, NULL);
#endif
    spx_tmpfile_guard();
}
