/* Provides teams (kernels/team.h) of the host, for steps that are written for a device: threads with a barrier, so that
 * ThreadSanitizer sees a missing wait; memory that no step has written is NaN. */
#ifndef TEAMS_H
#define TEAMS_H

#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "team.h"

enum { TEAM_THREADS = 3 };

typedef struct {
    void (*run)(const void *g, const spx_team *t, size_t item);
    const void *g; /* the step's view */
    size_t items, bytes;
    pthread_barrier_t *barrier;
    double *sums, *shared;
    int thread;
} team_member;

static inline void team_wait(void *barrier)
{
    (void)pthread_barrier_wait(barrier);
}

static inline void *team_work(void *member)
{
    const team_member *m = member;
    const spx_team t = {m->thread, TEAM_THREADS, m->sums, m->shared, team_wait, m->barrier};
    for (size_t item = 0; item < m->items; item++) {
        if (m->thread == 0)
            memset(m->shared, 0xff, m->bytes);
        spx_team_wait(&t);
        m->run(m->g, &t, item);
        spx_team_wait(&t);
    }
    return NULL;
}

/* Runs a step for items 0 ... items - 1 with `bytes` of shared memory. */
static inline void team_run(void (*run)(const void *, const spx_team *, size_t), const void *g, size_t items,
                            size_t bytes)
{
    pthread_barrier_t barrier;
    pthread_t id[TEAM_THREADS];
    team_member m[TEAM_THREADS];
    double sums[TEAM_THREADS];
    double *shared = spx_alloc(bytes + sizeof(double), 1, NULL);
    CHECK(shared != NULL, "memory");
    pthread_barrier_init(&barrier, NULL, TEAM_THREADS);
    for (int i = 0; i < TEAM_THREADS; i++) {
        m[i] = (team_member){run, g, items, bytes, &barrier, sums, shared, i};
        pthread_create(&id[i], NULL, team_work, &m[i]);
    }
    for (int i = 0; i < TEAM_THREADS; i++)
        pthread_join(id[i], NULL);
    pthread_barrier_destroy(&barrier);
    spx_free(shared);
}

/* Memory that nobody has written to. */
static inline char *team_unset(size_t bytes)
{
    char *p = spx_alloc(bytes + 1, 1, NULL);
    CHECK(p != NULL, "memory");
    if (p != NULL)
        memset(p, 0xff, bytes);
    return p;
}

#endif
