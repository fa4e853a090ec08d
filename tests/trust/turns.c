/* Provides threads that take turns: all of a process's are one thread of the system, which goes from one to the next
 * where it would wait, for a condition, a mutex or an end. So calls come in the same order in every run, and all
 * threads survive a fork. For programs whose threads wait by pthread_cond_wait(), pthread_mutex_lock() and
 * pthread_join(); OpenMP's do not, and have to be off (OMP_NUM_THREADS=1). */
#include "turns.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { MOST = 64, MOST_LOCKS = 256, STACK = 8 << 20 };

typedef struct {
    ucontext_t at;
    stack_t handler; /* of signals: each thread's own */
    void *(*start)(void *);
    void *data, *result;
    int ended, timed;
    const pthread_cond_t *condition; /* what it waits for: one of these three, or none */
    const pthread_mutex_t *mutex;
    int joins; /* a thread; -1: none */
} thread;

int spx_turns;
static thread all[MOST] = {{.joins = -1}};
static int n = 1, now;
static struct {
    const pthread_mutex_t *mutex;
    int owner, times;
} locks[MOST_LOCKS];

static int lock_of(const pthread_mutex_t *m)
{
    for (int i = 0; i < MOST_LOCKS; i++)
        if (locks[i].times > 0 && locks[i].mutex == m)
            return i;
    return -1;
}

static int can_go_on(const thread *t)
{
    return !t->ended && t->condition == NULL && (t->mutex == NULL || lock_of(t->mutex) < 0) &&
           (t->joins < 0 || all[t->joins].ended);
}

/* Goes on with the next thread that can, which may be this one; where none can, a wait with a time limit ends. */
static void next_turn(void)
{
    const int from = now;
    int to = -1;
    for (int i = 1; i <= n && to < 0; i++)
        if (can_go_on(&all[(from + i) % n]))
            to = (from + i) % n;
    for (int i = 1; i <= n && to < 0; i++)
        if (all[(from + i) % n].timed && !all[(from + i) % n].ended) {
            to = (from + i) % n;
            all[to].condition = NULL;
            all[to].timed = -1;
        }
    if (to < 0)
        abort(); /* a deadlock */
    if (to == from)
        return;
    (void)sigaltstack(NULL, &all[from].handler);
    now = to;
    (void)sigaltstack(&all[to].handler, NULL);
    (void)swapcontext(&all[from].at, &all[to].at);
}

static void begin(void)
{
    all[now].result = all[now].start(all[now].data);
    all[now].ended = 1;
    next_turn();
}

int spx_turns_create(pthread_t *to, void *(*start)(void *), void *data)
{
    /* not by mmap(), whose failures are counted */
    char *stack = (char *)syscall(SYS_mmap, NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (n == MOST || stack == MAP_FAILED || getcontext(&all[n].at) != 0)
        return EAGAIN;
    (void)mprotect(stack, 4096, PROT_NONE);
    all[n].at.uc_stack = (stack_t){.ss_sp = stack, .ss_size = STACK};
    all[n].handler = (stack_t){.ss_flags = SS_DISABLE};
    all[n].start = start;
    all[n].data = data;
    all[n].joins = -1;
    makecontext(&all[n].at, begin, 0);
    *to = (pthread_t)n++;
    return 0;
}

#define NEXT(name)                                                                                                     \
    static __typeof__(&name) real;                                                                                     \
    if (real == NULL)                                                                                                  \
    real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

int pthread_join(pthread_t t, void **result)
{
    NEXT(pthread_join);
    if (!spx_turns)
        return real(t, result);
    all[now].joins = (int)t;
    while (!all[(int)t].ended)
        next_turn();
    all[now].joins = -1;
    if (result != NULL)
        *result = all[(int)t].result;
    return 0;
}

int pthread_mutex_lock(pthread_mutex_t *m)
{
    NEXT(pthread_mutex_lock);
    if (!spx_turns)
        return real(m);
    int i = lock_of(m);
    if (i >= 0 && locks[i].owner == now) {
        locks[i].times++;
        return 0;
    }
    all[now].mutex = m;
    while (lock_of(m) >= 0)
        next_turn();
    all[now].mutex = NULL;
    for (i = 0; i < MOST_LOCKS && locks[i].times > 0;)
        i++;
    if (i == MOST_LOCKS)
        abort();
    locks[i].mutex = m;
    locks[i].owner = now;
    locks[i].times = 1;
    return 0;
}

int pthread_mutex_trylock(pthread_mutex_t *m)
{
    NEXT(pthread_mutex_trylock);
    if (!spx_turns)
        return real(m);
    const int i = lock_of(m);
    return i >= 0 && locks[i].owner != now ? EBUSY : pthread_mutex_lock(m);
}

int pthread_mutex_unlock(pthread_mutex_t *m)
{
    NEXT(pthread_mutex_unlock);
    if (!spx_turns)
        return real(m);
    const int i = lock_of(m);
    if (i >= 0)
        locks[i].times--;
    return 0;
}

static int wait_for(pthread_cond_t *c, pthread_mutex_t *m, int timed)
{
    (void)pthread_mutex_unlock(m);
    all[now].condition = c;
    all[now].timed = timed;
    next_turn();
    const int late = all[now].timed < 0;
    all[now].timed = 0;
    (void)pthread_mutex_lock(m);
    return late ? ETIMEDOUT : 0;
}

int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    NEXT(pthread_cond_wait);
    return spx_turns ? wait_for(c, m, 0) : real(c, m);
}

int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until)
{
    NEXT(pthread_cond_timedwait);
    return spx_turns ? wait_for(c, m, 1) : real(c, m, until);
}

int pthread_cond_signal(pthread_cond_t *c)
{
    NEXT(pthread_cond_signal);
    if (!spx_turns)
        return real(c);
    for (int i = 0; i < n; i++)
        if (all[i].condition == c) {
            all[i].condition = NULL;
            break;
        }
    return 0;
}

int pthread_cond_broadcast(pthread_cond_t *c)
{
    NEXT(pthread_cond_broadcast);
    if (!spx_turns)
        return real(c);
    for (int i = 0; i < n; i++)
        if (all[i].condition == c)
            all[i].condition = NULL;
    return 0;
}
