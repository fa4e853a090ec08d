/* Checks the hook of an operation: its arguments, that nothing is copied to the host for it, changes that it may make,
 * and that its failure stops the operation; on the CPU or on the device $SPX_TEST_DEVICE. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "device.h"

enum { CELLS = 300, STEPS = 250 };

static spx_backend backend;

/* What a hook in C notes. */
typedef struct {
    size_t calls, left, fail_at, copied; /* copied: bytes to the host before the stage began */
    const void *address[2];              /* the state alternates between two places */
    double row[CELLS];                   /* on the CPU: the state in the last call */
    int change;
} notes;

static spx_status note(struct spx_hook *h, const spx_hook_step_info *s, spx_err *e)
{
    notes *n = h->state;
    const spx_hook_array *a = s->array;
    const int cuda = getenv("SPX_TEST_DEVICE") != NULL;
    n->calls++;
    CHECK(s->number == n->calls && s->total == STEPS, "step %zu of %zu in call %zu", s->number, s->total, n->calls);
    CHECK(strcmp(s->stage, "burgers") == 0 && s->time > 0.00099 * (double)s->number, "stage %s, time %g", s->stage,
          s->time);
    CHECK(s->narray == 1 && strcmp(a->name, "u") == 0 && a->type == SPX_HOOK_FLOAT64 && a->ndim == 1 &&
              a->shape[0] == CELLS && a->stride[0] == 0 && a->writable,
          "array");
    CHECK((s->at.device >= 0) == cuda && (s->at.stream != NULL) == cuda && (s->at.order != NULL) == cuda, "device %d",
          s->at.device);
    /* where they are: the same two places in every step, and not one byte came to the host */
    const void **place = &n->address[n->calls % 2];
    if (*place == NULL)
        *place = a->data;
    CHECK(*place == a->data, "step %zu: the state is at %p, was at %p", s->number, a->data, *place);
    CHECK(copied_so_far(&backend).to_host == n->copied, "step %zu: %zu bytes came to the host", s->number,
          copied_so_far(&backend).to_host - n->copied);
    if (s->at.order != NULL)
        CHECK(s->at.order(s->at.stream, s->at.stream) == 0, "order");
    if (!cuda) {
        memcpy(n->row, a->data, sizeof n->row);
        for (size_t i = 0; i < CELLS && n->change; i++)
            ((double *)a->data)[i] = 0.25;
    }
    return n->calls == n->fail_at ? spx_fail(e, SPX_EHOOK, "on purpose") : SPX_OK;
}

static void leave(struct spx_hook *h)
{
    ((notes *)h->state)->left++;
}

/* A run with a hook; the status. */
static spx_status solve(notes *n, spx_hook *h, size_t every, spx_burgers *out)
{
    spx_err e = {0};
    *h = (spx_hook){.step = note, .leave = leave, .state = n, .writable = n->change};
    n->copied = copied_so_far(&backend).to_host;
    const spx_burgers_options o = {.nx = CELLS,
                                   .viscosity = 0.01,
                                   .dt = 0.001,
                                   .nstep = STEPS,
                                   .every = every,
                                   .nthreads = 2,
                                   .hook = n->calls == (size_t)-1 ? NULL : h};
    return backend.burgers(&backend, &o, out, &e);
}

int main(void)
{
    open_device(&backend, SPX_OP_BURGERS);
    spx_hook h;
    spx_burgers plain = {0}, hooked = {0}, stopped = {0}, changed = {0};
    notes none = {.calls = (size_t)-1}, n = {0}, bad = {.fail_at = 7}, writes = {.change = 1};
    CHECK(solve(&none, &h, 10, &plain) == SPX_OK, "without a hook");
    CHECK(solve(&n, &h, 10, &hooked) == SPX_OK, "with a hook");
    CHECK(n.calls == STEPS && n.left == 1, "%zu calls, left %zu times", n.calls, n.left);
    CHECK(n.address[0] != n.address[1], "two places");
    const size_t bytes = hooked.nsnapshot * CELLS * sizeof(double);
    CHECK(memcmp(plain.snapshot, hooked.snapshot, bytes) == 0, "a hook that only looks changes the result");
    if (backend.copied != NULL)
        CHECK(copied_so_far(&backend).to_host - n.copied == bytes, "%zu bytes came to the host, not %zu",
              copied_so_far(&backend).to_host - n.copied, bytes);
    else
        CHECK(memcmp(n.row, hooked.snapshot + (hooked.nsnapshot - 1) * CELLS, sizeof n.row) == 0, "the last state");
    CHECK(solve(&bad, &h, 10, &stopped) == SPX_EHOOK, "a hook that fails");
    CHECK(bad.calls == 7 && bad.left == 1, "%zu calls, left %zu times", bad.calls, bad.left);
    CHECK(solve(&writes, &h, 1, &changed) == SPX_OK, "a hook that writes");
    if (backend.copied == NULL)
        for (size_t i = 0; i < STEPS * CELLS; i++)
            CHECK(changed.snapshot[i] == 0.25, "value %zu is %g", i, changed.snapshot[i]);
    spx_burgers_free(&plain);
    spx_burgers_free(&hooked);
    spx_burgers_free(&stopped);
    spx_burgers_free(&changed);
    spx_backend_close(&backend);
    return failures != 0;
}
