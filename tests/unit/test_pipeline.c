/* Checks base/pipeline: every item goes through all steps once and in order, in the threads that are promised, no more
 * are in work than are allowed, with any number of workers and items; a slow source does not hold up what is finished,
 * and is asked again while others are at work, whatever is done to the clock. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/pipeline.h"
#include "check.h"

enum { MOST_ITEMS = 40 };

typedef struct {
    size_t number;
    int step; /* 1 read, 2 computed, 3 written, 4 stored, 5 published */
    size_t worker;
} item;

typedef struct {
    item it[MOST_ITEMS];
    size_t n, most, ahead, capacity, nread, nwritten, npublished, nended;
    atomic_size_t ntaken, in_compute, most_in_compute, nstarted, in_store, most_in_store;
    size_t nworker, nstore;
    size_t most_in_work;
    pthread_t caller, publisher;
    unsigned delay; /* seed of what the steps wait */
    int slow;       /* the source has an item only when the former one has ended */
    atomic_int asked;
    int patient; /* to compute the first item takes until the source was asked again */
} job;

/* Stands in for the C library's: the time of day may be set back or forth, so nothing may wait by it. */
int clock_gettime(clockid_t id, struct timespec *t)
{
    CHECK(id != CLOCK_REALTIME);
    return (int)syscall(SYS_clock_gettime, id, t);
}

static void wait_a_bit(const job *j, size_t k, unsigned step)
{
    (void)usleep((useconds_t)((k * 7919 + step * 104729 + j->delay * 31) % 5 * 100));
}

static void *do_read(void *ctx)
{
    job *j = ctx;
    CHECK(pthread_equal(pthread_self(), j->caller));
    CHECK(!j->slow || j->nended == j->nread);
    if (j->nread == j->n)
        return NULL;
    item *x = &j->it[j->nread];
    x->number = j->nread++;
    x->step = 1;
    const size_t in_work = j->nread - j->nended;
    j->most_in_work = in_work > j->most_in_work ? in_work : j->most_in_work;
    CHECK(in_work <= j->most && in_work <= j->capacity);
    /* a worker that has taken an item may not have said so yet: nworker more */
    CHECK(j->ahead == 0 || j->nread <= atomic_load(&j->ntaken) + j->nworker + j->ahead);
    wait_a_bit(j, x->number, 1);
    return x;
}

static int is_ready(void *ctx)
{
    job *j = ctx;
    atomic_fetch_add(&j->asked, 1);
    return !j->slow || j->nended == j->nread;
}

static size_t capacity(void *ctx)
{
    return ((job *)ctx)->capacity;
}

static void start(void *ctx, size_t worker)
{
    (void)worker;
    atomic_fetch_add(&((job *)ctx)->nstarted, 1);
}

static void compute(void *ctx, size_t worker, void *arg)
{
    job *j = ctx;
    item *x = arg;
    atomic_fetch_add(&j->ntaken, 1);
    const size_t now = atomic_fetch_add(&j->in_compute, 1) + 1;
    size_t top = atomic_load(&j->most_in_compute);
    while (now > top && !atomic_compare_exchange_weak(&j->most_in_compute, &top, now)) {
    }
    CHECK(x->step == 1);
    CHECK(!pthread_equal(pthread_self(), j->caller));
    wait_a_bit(j, x->number, 2);
    for (const int before = atomic_load(&j->asked);
         j->patient && x->number == 0 && atomic_load(&j->asked) < before + 2;)
        (void)usleep(100);
    x->worker = worker;
    x->step = 2;
    atomic_fetch_sub(&j->in_compute, 1);
}

static void do_write(void *ctx, void *arg)
{
    job *j = ctx;
    item *x = arg;
    CHECK(pthread_equal(pthread_self(), j->caller));
    CHECK(x->step == 2 && x->number == j->nwritten);
    j->nwritten++;
    wait_a_bit(j, x->number, 3);
    x->step = 3;
}

static void store(void *ctx, void *arg)
{
    job *j = ctx;
    item *x = arg;
    const size_t now = atomic_fetch_add(&j->in_store, 1) + 1;
    size_t top = atomic_load(&j->most_in_store);
    while (now > top && !atomic_compare_exchange_weak(&j->most_in_store, &top, now)) {
    }
    CHECK(x->step == 3 && !pthread_equal(pthread_self(), j->caller));
    wait_a_bit(j, x->number, 5);
    x->step = 4;
    atomic_fetch_sub(&j->in_store, 1);
}

static void publish(void *ctx, void *arg)
{
    job *j = ctx;
    item *x = arg;
    if (x->number == 0)
        j->publisher = pthread_self();
    CHECK(pthread_equal(pthread_self(), j->publisher) && !pthread_equal(pthread_self(), j->caller));
    CHECK(x->step == (j->nstore > 0 ? 4 : 3) && x->number == j->npublished);
    j->npublished++;
    wait_a_bit(j, x->number, 4);
    x->step = 5;
}

static void end(void *ctx, void *arg)
{
    job *j = ctx;
    const item *x = arg;
    CHECK(pthread_equal(pthread_self(), j->caller));
    CHECK(x->step == 5 && x->number == j->nended);
    j->nended++;
}

static void try(size_t n, size_t nworker, size_t nstore, size_t most, size_t ahead, size_t at_once, int slow,
                unsigned delay)
{
    static job j;
    memset(&j, 0, sizeof j);
    j.n = n;
    j.most = most;
    j.ahead = ahead;
    j.nworker = nworker;
    j.capacity = at_once > 0 ? at_once : most;
    j.caller = pthread_self();
    j.delay = delay;
    j.slow = slow;
    j.patient = slow;
    j.nstore = nstore;
    const spx_pipeline p = {.ctx = &j,
                            .nworker = nworker,
                            .nstore = nstore,
                            .most = most,
                            .ahead = ahead,
                            .read = do_read,
                            .ready = slow ? is_ready : NULL,
                            .capacity = at_once > 0 ? capacity : NULL,
                            .start = start,
                            .compute = compute,
                            .write = do_write,
                            .store = nstore > 0 ? store : NULL,
                            .publish = publish,
                            .end = end};
    CHECK(spx_pipeline_run(&p, &e) == SPX_OK);
    CHECK(j.nended == n && j.npublished == n && j.nwritten == n && j.nread == n);
    CHECK(j.nstarted == nworker && j.most_in_compute <= nworker && j.most_in_store <= nstore);
    for (size_t k = 0; k < n; k++)
        CHECK(j.it[k].step == 5 && j.it[k].worker < nworker);
    CHECK(!slow || n == 0 || j.asked > 0);
}

int main(void)
{
    for (unsigned delay = 0; delay < 3; delay++)
        for (size_t nworker = 1; nworker <= 3; nworker++)
            for (size_t nstore = 0; nstore <= 2; nstore++) {
                try(MOST_ITEMS, nworker, nstore, nworker + 2, 0, 0, 0, delay);
                for (size_t ahead = 1; ahead <= 2; ahead++)
                    try(MOST_ITEMS, nworker, nstore, 12, ahead, 0, 0, delay);
                try(1, nworker, nstore, 1, 1, 0, 0, delay);
                try(0, nworker, nstore, 2, 0, 0, 0, delay);
                try(7, nworker, nstore, 1, 1, 0, 0, delay);
                try(MOST_ITEMS, nworker, nstore, 6, 0, 2, 0, delay);
                try(5, nworker, nstore, 6, 1, 0, 1, delay);
            }
    return 0;
}
