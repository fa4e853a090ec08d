/* Provides traces, the shifts to stack them with, and stacks (products/stack.h). */
#include "products/stack.h"

#include <string.h>

#include "base/mem.h"

void spx_traces_free(spx_traces *t)
{
    spx_free(t->start);
    spx_free(t->offset);
    spx_free(t->data);
    spx_free(t->position);
    memset(t, 0, sizeof *t);
}

void spx_shifts_free(spx_shifts *s)
{
    spx_free(s->shift);
    spx_free(s->weight);
    spx_free(s->grid);
    memset(s, 0, sizeof *s);
}

void spx_stack_free(spx_stack *s)
{
    spx_free(s->value);
    spx_free(s->index);
    memset(s, 0, sizeof *s);
}

void spx_ccf_stars_free(spx_ccf_stars *c)
{
    spx_free(c->first);
    memset(c, 0, sizeof *c);
}
