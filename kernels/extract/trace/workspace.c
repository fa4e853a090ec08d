/* Provides the memory of threads that solve bundles, kept from one to the next. */
#include <omp.h>

#include "base/clock.h"
#include "base/mem.h"
#include "extract/trace/trace.h"

/* Bundles differ by a few percent: a buffer that has to become larger gets 1/SLACK more, so that it seldom has to
 * again, for the system clears all of its pages anew. */
enum { SLACK = 8 };

spx_trace_workspace *spx_trace_workspaces_make(int nthreads, spx_err *e)
{
    const size_t n = (size_t)nthreads;
    spx_trace_workspace *list = spx_alloc2(n, 2, sizeof *list, e);
    for (size_t t = 0; list != NULL && t < n; t++) {
        list[t].of_tasks = list + n;
        list[t].thread = list[n + t].thread = (int)t;
    }
    return list;
}

spx_trace_workspace *spx_trace_task_begin(const spx_trace_workspace *r)
{
    spx_trace_workspace *own = r->of_tasks + omp_get_thread_num();
    if (own->thread != r->thread)
        own->begun = spx_thread_seconds();
    return own;
}

void spx_trace_task_end(const spx_trace_workspace *r, spx_trace_workspace *own, int step)
{
    if (own->thread != r->thread)
        own->seconds[step] += spx_thread_seconds() - own->begun;
}

void spx_trace_workspaces_free(spx_trace_workspace *list, int nthreads)
{
    for (size_t t = 0; list != NULL && t < 2 * (size_t)nthreads; t++)
        for (int i = 0; i < SPX_BUFFERS; i++)
            spx_free(list[t].at[i]);
    spx_free(list);
}

double *spx_trace_workspace_get(spx_trace_workspace *r, spx_trace_buffer id, size_t n1, size_t n2, spx_err *e)
{
    size_t n;
    if (spx_mul(n1, n2, &n, e) != SPX_OK)
        return NULL;
    if (!r->at[id] || n > r->size[id]) {
        n += n / SLACK;
        spx_free(r->at[id]);
        r->at[id] = spx_alloc_unset(n, 1, sizeof(double), e);
        r->size[id] = r->at[id] ? n : 0;
    }
    return r->at[id];
}
