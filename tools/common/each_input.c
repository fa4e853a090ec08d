#include "common/each_input.h"

#include <string.h>

#include "base/log.h"
#include "base/mem.h"

typedef spx_status use_input(void *ctx, spx_input *in, spx_err *e);

/* All products that standard input holds. */
static spx_status each_of_pipe(spx_run *s, use_input *use, void *ctx, spx_err *e)
{
    int end = 0;
    spx_status st = SPX_OK;
    for (size_t nth = 1; st == SPX_OK; nth++) {
        spx_input *in = spx_alloc(1, sizeof *in, e);
        if (in == NULL)
            return SPX_EIO;
        in->file = H5I_INVALID_HID;
        st = spx_input_next(in, nth, &end, e);
        if (st == SPX_OK && !end)
            st = spx_run_use_input(s, in, 1, e);
        if (st != SPX_OK || end) {
            spx_run_close_input(in);
            return st;
        }
        st = use(ctx, in, e);
    }
    return st;
}

static spx_status each_of(spx_run *s, size_t n, char *const *name, use_input *use, void *ctx, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        spx_input *in;
        if (strcmp(name[i], "-") == 0)
            st = each_of_pipe(s, use, ctx, e);
        else if ((st = spx_run_extra_input(s, name[i], &in, e)) == SPX_OK)
            st = use(ctx, in, e);
    }
    return st;
}

spx_status spx_each_input(spx_run *s, spx_status (*use)(void *ctx, spx_input *in, spx_err *e), void *ctx, spx_err *e)
{
    return each_of(s, s->ninput, s->input, use, ctx, e);
}

spx_status spx_each_in_turn(size_t n, char *const *name, use_input *use, void *ctx, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        const int pipe = strcmp(name[i], "-") == 0;
        int end = 0;
        for (size_t nth = 1; st == SPX_OK && !end && (nth == 1 || pipe); nth++) {
            spx_input in = {.file = H5I_INVALID_HID};
            st = pipe ? spx_input_next(&in, nth, &end, e) : spx_input_open(&in, name[i], e);
            if (st == SPX_OK && !end)
                st = use(ctx, &in, e);
            if (in.file >= 0)
                spx_input_close(&in);
        }
    }
    return st;
}

typedef struct {
    spx_inputs *all;
    size_t capacity;
} collected;

static spx_status collect(void *ctx, spx_input *in, spx_err *e)
{
    collected *c = ctx;
    void *more = spx_grow(c->all->in, c->all->n, 1, &c->capacity, sizeof(spx_input *), e);
    if (more == NULL)
        return SPX_EIO;
    c->all->in = more;
    c->all->in[c->all->n++] = in;
    return SPX_OK;
}

spx_status spx_all_inputs(spx_run *s, size_t n, char *const *name, spx_inputs *all, spx_err *e)
{
    collected c = {.all = all};
    *all = (spx_inputs){0};
    const spx_status st = each_of(s, n, name, collect, &c, e);
    if (st != SPX_OK)
        return st;
    if ((all->name = spx_alloc(all->n, sizeof *all->name, e)) == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < all->n; i++)
        all->name[i] = all->in[i]->name;
    return SPX_OK;
}

spx_status spx_all_inputs_once(spx_run *s, size_t n, char *const *name, spx_inputs *all, spx_err *e)
{
    const spx_status st = spx_all_inputs(s, n, name, all, e);
    for (size_t i = 0; i < all->n && st == SPX_OK; i++)
        for (size_t k = 0; k < i; k++)
            if (all->in[i]->ino != 0 && all->in[i]->ino == all->in[k]->ino && all->in[i]->dev == all->in[k]->dev)
                return spx_fail(e, SPX_EINPUT, "%s: is an input twice: it would count twice", all->in[i]->name);
    return st;
}

int spx_warn_of_repeated(const void *light, const void *before, size_t n, const char *name)
{
    const int same = memcmp(light, before, n) == 0;
    if (same)
        spx_warn(
            "%s: has the light of an input before it, to the last digit: the exposure counts twice, and errors are "
            "too small",
            name);
    return same;
}

void spx_inputs_free(spx_inputs *all)
{
    spx_free(all->in);
    spx_free(all->name);
    *all = (spx_inputs){0};
}
