/* Provides the memory of a thread that solves bundles, kept from one to the next. */
#include "base/mem.h"
#include "extract/trace/trace.h"

void spx_trace_workspace_free(spx_trace_workspace *r)
{
    for (int i = 0; i < SPX_BUFFERS; i++)
        spx_free(r->at[i]);
}

double *spx_trace_workspace_get(spx_trace_workspace *r, spx_trace_buffer id, size_t n1, size_t n2, spx_err *e)
{
    size_t n;
    if (spx_mul(n1, n2, &n, e) != SPX_OK)
        return NULL;
    if (!r->at[id] || n > r->size[id]) {
        spx_free(r->at[id]);
        r->at[id] = spx_alloc_unset(n, 1, sizeof(double), e);
        r->size[id] = r->at[id] ? n : 0;
    }
    return r->at[id];
}
