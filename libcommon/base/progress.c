/* Provides the progress line of base/progress.h; steps are counted atomically, and printed by the thread that counts
 * one. */
#include "base/progress.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

struct spx_progress {
    const char *what, *unit;
    size_t total;
    atomic_size_t done;
    atomic_flag busy;
    double shown, begun; /* by spx_seconds() */
};

spx_progress *spx_progress_start(int on, const char *what, const char *unit, size_t total)
{
    spx_progress *p = on ? calloc(1, sizeof *p) : NULL;
    if (p == NULL)
        return NULL;
    p->what = what;
    p->unit = unit;
    p->total = total;
    atomic_init(&p->done, 0);
    atomic_flag_clear(&p->busy);
    p->begun = spx_seconds();
    return p;
}

static void print_line(spx_progress *p)
{
    fprintf(stderr, "\r%s: %zu/%zu %s, %.1f s ", p->what, atomic_load(&p->done), p->total, p->unit,
            spx_seconds() - p->begun);
    (void)fflush(stderr);
}

void spx_progress_step(spx_progress *p, size_t n)
{
    if (p == NULL)
        return;
    atomic_fetch_add(&p->done, n);
    if (atomic_flag_test_and_set(&p->busy))
        return;
    if (spx_seconds() - p->shown > 0.1) {
        print_line(p);
        p->shown = spx_seconds();
    }
    atomic_flag_clear(&p->busy);
}

void spx_progress_end(spx_progress *p)
{
    if (p == NULL)
        return;
    print_line(p);
    fputc('\n', stderr);
    free(p);
}
