/* Provides the pipeline of base/pipeline.h: a ring of `most` slots with one counter for each stage (read, taken,
 * written, storing, published, ended), guarded by one lock, with a condition variable for each kind of thread. */
#include "base/pipeline.h"

#include <signal.h>
#include <time.h>

#include "base/ending.h"
#include "base/mem.h"

/* Polling interval of ready() while workers are busy, nanoseconds. */
enum { ASK_AGAIN = 20000000 };

typedef struct {
    void *item;
    int computed, stored;
} slot;

/* State of a run. Items are numbered in the order of reading; item k is in slot k % most. */
typedef struct {
    const spx_pipeline *p;
    slot *slot;
    /* invariants: ended <= published <= storing <= written <= read, taken <= read */
    size_t read, taken, written, storing, published, ended;
    int over; /* 1: end of input */
    pthread_mutex_t lock;
    pthread_cond_t main, work, store, out; /* signalled to the caller's thread, workers, storing threads, the publishing
                                            * thread */
} run;

typedef struct {
    run *r;
    size_t number;
} worker;

static void *worker_main(void *arg)
{
    const worker *w = arg;
    run *r = w->r;
    if (r->p->start != NULL)
        r->p->start(r->p->ctx, w->number);
    (void)pthread_mutex_lock(&r->lock);
    for (;;) {
        while (r->taken == r->read && !r->over)
            (void)pthread_cond_wait(&r->work, &r->lock);
        if (r->taken == r->read)
            break;
        slot *s = &r->slot[r->taken++ % r->p->most];
        if (r->p->ahead > 0) /* another one may be read */
            (void)pthread_cond_signal(&r->main);
        (void)pthread_mutex_unlock(&r->lock);
        r->p->compute(r->p->ctx, w->number, s->item);
        (void)pthread_mutex_lock(&r->lock);
        s->computed = 1;
        (void)pthread_cond_signal(&r->main);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return NULL;
}

static void *store(void *arg)
{
    run *r = arg;
    (void)pthread_mutex_lock(&r->lock);
    for (;;) {
        while (r->storing == r->written && !(r->over && r->written == r->read))
            (void)pthread_cond_wait(&r->store, &r->lock);
        if (r->storing == r->written)
            break;
        slot *s = &r->slot[r->storing++ % r->p->most];
        (void)pthread_mutex_unlock(&r->lock);
        r->p->store(r->p->ctx, s->item);
        (void)pthread_mutex_lock(&r->lock);
        s->stored = 1;
        (void)pthread_cond_signal(&r->out);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return NULL;
}

static void *publish(void *arg)
{
    run *r = arg;
    (void)pthread_mutex_lock(&r->lock);
    for (;;) {
        slot *s = &r->slot[r->published % r->p->most];
        const int any = r->published < r->written;
        if (!any && r->over && r->written == r->read)
            break;
        if (!any || !s->stored) {
            (void)pthread_cond_wait(&r->out, &r->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&r->lock);
        r->p->publish(r->p->ctx, s->item);
        (void)pthread_mutex_lock(&r->lock);
        r->published++;
        (void)pthread_cond_signal(&r->main);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* Waits for a change of state; `briefly`: with a time limit, ASK_AGAIN. */
static void wait_main(run *r, int briefly)
{
    if (!briefly) {
        (void)pthread_cond_wait(&r->main, &r->lock);
        return;
    }
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += ASK_AGAIN;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&r->main, &r->lock, &t);
}

/* Sets end of input: threads without work end. The lock is held. */
static void all_read(run *r)
{
    r->over = 1;
    (void)pthread_cond_broadcast(&r->work);
    (void)pthread_cond_broadcast(&r->store);
    (void)pthread_cond_signal(&r->out);
}

/* Loop of the caller's thread: reads and writes until all items have ended. The lock is held except in callbacks. */
static void serve(run *r)
{
    const spx_pipeline *p = r->p;
    (void)pthread_mutex_lock(&r->lock);
    while (!r->over || r->ended < r->read) {
        if (r->ended < r->published) {
            void *item = r->slot[r->ended % p->most].item;
            (void)pthread_mutex_unlock(&r->lock);
            p->end(p->ctx, item);
            (void)pthread_mutex_lock(&r->lock);
            r->ended++;
            continue;
        }
        const size_t at_once = p->capacity != NULL ? p->capacity(p->ctx) : p->most, busy = r->read - r->ended;
        const int space = !r->over && busy < p->most && (busy == 0 || busy < at_once) &&
                          (p->ahead == 0 || r->read - r->taken < p->ahead);
        const int ready = space && (p->ready == NULL || busy == 0 || p->ready(p->ctx));
        const int can_write = r->written < r->read && r->slot[r->written % p->most].computed;
        /* reading comes before writing while workers are idle */
        if (ready && (r->read - r->taken < p->nworker || !can_write)) {
            (void)pthread_mutex_unlock(&r->lock);
            void *item = p->read(p->ctx);
            (void)pthread_mutex_lock(&r->lock);
            if (item != NULL) {
                r->slot[r->read++ % p->most] = (slot){.item = item, .stored = p->nstore == 0};
                (void)pthread_cond_signal(&r->work);
            } else {
                all_read(r);
            }
        } else if (can_write) {
            void *item = r->slot[r->written % p->most].item;
            (void)pthread_mutex_unlock(&r->lock);
            p->write(p->ctx, item);
            (void)pthread_mutex_lock(&r->lock);
            r->written++;
            if (p->nstore > 0)
                (void)pthread_cond_broadcast(&r->store); /* the last item: all storing threads end */
            (void)pthread_cond_signal(&r->out);
        } else {
            wait_main(r, space && !ready);
        }
    }
    (void)pthread_mutex_unlock(&r->lock);
}

int spx_thread_begin(pthread_t *t, void *(*f)(void *), void *arg)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    sigset_t most, old;
    (void)sigfillset(&most);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        (void)sigdelset(&most, own[i]);
    (void)pthread_sigmask(SIG_BLOCK, &most, &old);
    const int failed = spx_thread_or_error(t, f, arg);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed == 0;
}

/* Starts up to n threads, *begun of them; 0: one cannot be started. */
static int begin_all(pthread_t *t, size_t n, size_t *begun, void *(*f)(void *), void *arg, size_t each)
{
    for (; *begun < n; ++*begun)
        if (!spx_thread_begin(&t[*begun], f, (char *)arg + *begun * each))
            return 0;
    return 1;
}

spx_status spx_pipeline_run(const spx_pipeline *p, spx_err *e)
{
    run r = {.p = p};
    spx_status st = SPX_EIO;
    size_t working = 0, storing = 0, publishing = 0;
    pthread_t publisher, *workers = spx_alloc(p->nworker, sizeof *workers, e);
    pthread_t *storers = spx_alloc(p->nstore, sizeof *storers, e);
    worker *w = spx_alloc(p->nworker, sizeof *w, e);
    r.slot = spx_alloc(p->most, sizeof *r.slot, e);
    (void)pthread_mutex_init(&r.lock, NULL);
    /* timed waits use this condition only: its clock is monotonic, no change of the system's time affects it */
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&r.main, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    (void)pthread_cond_init(&r.work, NULL);
    (void)pthread_cond_init(&r.store, NULL);
    (void)pthread_cond_init(&r.out, NULL);
    if (workers != NULL && storers != NULL && w != NULL && r.slot != NULL) {
        for (size_t i = 0; i < p->nworker; i++)
            w[i] = (worker){&r, i};
        if (begin_all(&publisher, 1, &publishing, publish, &r, 0) &&
            begin_all(storers, p->nstore, &storing, store, &r, 0) &&
            begin_all(workers, p->nworker, &working, worker_main, w, sizeof *w)) {
            serve(&r);
            st = SPX_OK;
        } else {
            st = spx_fail(e, SPX_EIO, "threads cannot be started: no memory for them, or too many processes?");
        }
        (void)pthread_mutex_lock(&r.lock);
        all_read(&r);
        (void)pthread_mutex_unlock(&r.lock);
        for (size_t i = 0; i < working; i++)
            (void)pthread_join(workers[i], NULL);
        for (size_t i = 0; i < storing; i++)
            (void)pthread_join(storers[i], NULL);
        if (publishing > 0)
            (void)pthread_join(publisher, NULL);
    }
    (void)pthread_cond_destroy(&r.out);
    (void)pthread_cond_destroy(&r.store);
    (void)pthread_cond_destroy(&r.work);
    (void)pthread_cond_destroy(&r.main);
    (void)pthread_mutex_destroy(&r.lock);
    spx_free(r.slot);
    spx_free(w);
    spx_free(storers);
    spx_free(workers);
    return st;
}
