/* Chunks of whole groups in the pipeline of base/pipeline.h (run/groups.h). */
#include "run/groups.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/pipeline.h"

enum { CHUNKS = 3 }; /* in the pipeline at one time */

enum { READ, COMPUTE, WRITE, STEPS };

typedef struct {
    const spx_groups *g;
    size_t next, most_rows; /* first group of the next chunk; most rows of a chunk */
    double seconds[STEPS];
    spx_err err; /* first error */
} work;

static void keep_error(work *w, const spx_err *e)
{
    if (w->err.code == SPX_OK)
        w->err = *e;
}

/* First row of group k in the list; of group ngroup: the number of rows. */
static size_t first_row(const spx_groups *g, size_t k)
{
    return g->first != NULL ? g->first[k] : k;
}

static void end_chunk(void *ctx, void *item)
{
    const work *w = ctx;
    spx_group_chunk *c = item;
    if (c->result != NULL)
        w->g->clear(w->g->ctx, c->result);
    spx_spectra_free(&c->spectra);
    spx_free(c->result);
    spx_free(c->first);
    spx_free(c);
}

/* Reads a chunk: as many groups as have most_rows rows, at least one. */
static void *read_chunk(void *ctx)
{
    work *w = ctx;
    const spx_groups *g = w->g;
    spx_err e = {0};
    const double begin = spx_seconds();
    if (w->next == g->ngroup || w->err.code != SPX_OK)
        return NULL;
    spx_group_chunk *c = spx_alloc(1, sizeof *c, &e);
    if (c != NULL) {
        c->group = w->next;
        c->row = first_row(g, w->next);
        do
            w->next++;
        while (w->next < g->ngroup && first_row(g, w->next + 1) - c->row <= w->most_rows);
        c->ngroup = w->next - c->group;
        c->nrow = first_row(g, w->next) - c->row;
        c->result = spx_alloc(1, g->result_size, &e);
        c->first = spx_alloc(c->ngroup + 1, sizeof *c->first, &e);
        for (size_t k = 0; k <= c->ngroup && c->first != NULL; k++)
            c->first[k] = first_row(g, c->group + k) - c->row;
        if (c->result == NULL || c->first == NULL ||
            spx_spectra_parts_read(g->spectra, c->nrow, g->row + c->row, &c->spectra, &e) != SPX_OK) {
            end_chunk(w, c);
            c = NULL;
        }
    }
    if (c == NULL)
        keep_error(w, &e);
    w->seconds[READ] += spx_seconds() - begin;
    return c;
}

static void compute_chunk(void *ctx, size_t worker, void *item)
{
    work *w = ctx;
    spx_group_chunk *c = item;
    const double begin = spx_seconds();
    (void)worker;
    (void)w->g->compute(w->g->ctx, c, &c->err);
    w->seconds[COMPUTE] += spx_seconds() - begin;
}

static void write_chunk(void *ctx, void *item)
{
    work *w = ctx;
    spx_group_chunk *c = item;
    const double begin = spx_seconds();
    spx_err e = c->err;
    if (e.code != SPX_OK || (w->err.code == SPX_OK && w->g->write(w->g->ctx, c, &e) != SPX_OK))
        keep_error(w, &e);
    w->seconds[WRITE] += spx_seconds() - begin;
}

static void publish_chunk(void *ctx, void *item)
{
    (void)ctx;
    (void)item; /* nothing to publish: all chunks go into one file, which is not complete yet */
}

/* Most rows of a chunk. */
static size_t rows_of_chunk(const spx_groups *g)
{
    const size_t row = spx_spectra_parts_row_bytes(g->spectra) + g->row_bytes, limit = spx_mem_limit_get();
    const size_t held = spx_mem_peak();
    size_t bytes = spx_mem_cap() / (4 * CHUNKS); /* of the machine's memory, without a limit */
    if (limit > 0)
        bytes = limit > held ? (limit - held) / (2 * CHUNKS) : 0;
    bytes = bytes < g->most_bytes ? bytes : g->most_bytes;
    return bytes / row > 0 ? bytes / row : 1;
}

spx_status spx_groups_run(const spx_groups *g, spx_err *e)
{
    work w = {.g = g, .most_rows = rows_of_chunk(g)};
    const spx_pipeline line = {.ctx = &w,
                               .nworker = 1,
                               .most = CHUNKS,
                               .read = read_chunk,
                               .compute = compute_chunk,
                               .write = write_chunk,
                               .publish = publish_chunk,
                               .end = end_chunk};
    const spx_status st = spx_pipeline_run(&line, e);
    spx_run_seconds(g->stage, "read", w.seconds[READ]);
    spx_run_seconds(g->stage, g->step, w.seconds[COMPUTE]);
    spx_run_seconds(g->stage, "write", w.seconds[WRITE]);
    return st == SPX_OK && w.err.code != SPX_OK ? spx_err_pass(e, &w.err) : st;
}
