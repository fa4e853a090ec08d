/* Runs the queue of exposures through the pipeline of base/pipeline.h (run/queue_run.h). */
#include "run/queue_run.h"

#include <stdio.h>
#include <string.h>

#include "app/main.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pipeline.h"
#include "base/progress.h"
#include "h5/deferred.h"
#include "h5/failure.h"
#include "h5/file.h"

/* Most threads that read the pixels of an exposure. */
enum { FEW = 8 };

typedef struct {
    spx_queue *q;
    const spx_queue_steps *steps;
    size_t total, most, n, nbad, nleft, nexist, nend, first_peak; /* nend: number of exposures that have ended */
    int broken;             /* 1: standard output accepted part of a product, or nothing */
    spx_progress *progress; /* of a queue of known length */
    spx_err no_memory;      /* error where memory is out for another exposure */
    spx_err held;           /* error of the first exposure, as long as it is the only one */
    spx_status worst;
} queue_run;

static int ready(void *ctx)
{
    return spx_queue_ready(((queue_run *)ctx)->q);
}

static size_t capacity(void *ctx)
{
    const queue_run *r = ctx;
    const size_t limit = spx_mem_limit_get(), most = atomic_load(r->steps->most), all = most > 0 ? most : r->most;
    /* the first exposure's peak of memory tells how many fit the limit: an exposure must not fail because of others */
    const size_t fit = limit == 0 ? all : r->first_peak == 0 ? 1 : limit / r->first_peak;
    return fit < all ? fit : all;
}

static const char from_pipe[] = "standard input";

/* Sets the prefix of messages about an exposure of a queue. */
static void set_label(const queue_run *r, spx_queue_item *x)
{
    if (x->number > 1 && strcmp(x->name, from_pipe) == 0) /* position among the products of standard input */
        (void)snprintf(x->label, sizeof x->label, "%s: number %03zu: ", x->name, x->number);
    else if (r->total != 1)
        (void)snprintf(x->label, sizeof x->label, "%s: ", x->name);
    if (x->product != NULL)
        spx_product_label(x->product, x->label);
}

static void *read_one(void *ctx)
{
    queue_run *r = ctx;
    int end = 0;
    spx_queue_item *x = atomic_load(r->steps->stop) ? NULL : spx_alloc(1, r->steps->size, &r->no_memory);
    if (x == NULL)
        return NULL;
    /* reads of the first ones are deferred while the workers start */
    const int later = r->total != 1 && r->n >= r->steps->nworker;
    x->st = spx_queue_next(r->q, x, later, &end, &x->e);
    if (end) {
        spx_free(x);
        return NULL;
    }
    set_label(r, x);
    if (x->st == SPX_OK)
        x->st = r->steps->read(r->steps->ctx, x, &x->e);
    x->st = spx_h5_settle(x->st, &x->e);
    if (++r->n == 2 && r->held.code != SPX_OK)
        spx_error("%s", spx_err_text(&r->held));
    spx_run_pause(spx_queue_context(r->q));
    return x;
}

static void start(void *ctx, size_t worker)
{
    const queue_run *r = ctx;
    if (r->steps->start != NULL)
        r->steps->start(r->steps->ctx, worker);
}

static void compute(void *ctx, size_t worker, void *item)
{
    const queue_run *r = ctx;
    spx_queue_item *x = item;
    x->left = x->st == SPX_OK && atomic_load(r->steps->stop);
    if (x->st == SPX_OK && !x->left && x->reads.n > 0) {
        const size_t n = r->steps->nworker, threads = ((size_t)spx_queue_context(r->q)->common.threads + n - 1) / n;
        const double begin = spx_seconds();
        x->st = spx_h5_flush_reads(&x->reads, threads < FEW ? (int)threads : FEW, &x->e);
        x->seconds = spx_seconds() - begin;
    }
    if (x->st == SPX_OK && !x->left)
        x->st = r->steps->compute(r->steps->ctx, worker, x, &x->e);
}

static void write_one(void *ctx, void *item)
{
    const queue_run *r = ctx;
    spx_queue_item *x = item;
    const int go_on = x->st == SPX_OK && !x->left;
    if (go_on) {
        spx_run_switch_product(spx_queue_context(r->q), x->product);
        spx_run_seconds(spx_queue_context(r->q), "read", x->seconds);
        spx_run_step(spx_queue_context(r->q), "write");
        x->st = r->steps->write(r->steps->ctx, x, &x->e);
    }
    if (go_on && x->st == SPX_OK)
        x->st = spx_run_close_product(spx_queue_context(r->q), &x->e);
    spx_image_free(&x->image);
}

static void store(void *ctx, void *item)
{
    const queue_run *r = ctx;
    spx_queue_item *x = item;
    /* in a queue two threads: one converts while the other has the file's lock, and other frames have the processors */
    const long threads = spx_queue_context(r->q)->common.threads, most = r->total == 1 ? 8 : 2;
    if (x->st == SPX_OK && !x->left)
        x->st = spx_product_flush(x->product, (int)(threads < most ? threads : most), &x->e);
}

static void publish(void *ctx, void *item)
{
    queue_run *r = ctx;
    spx_queue_item *x = item;
    x->left |= x->st == SPX_OK && r->broken;
    if (x->st != SPX_OK || x->left)
        return;
    x->st = spx_product_publish(x->product, &x->e);
    if (x->st != SPX_OK && spx_queue_to_stdout(r->q)) {
        r->broken = 1;
        atomic_store(r->steps->stop, 1);
    }
}

/* Does the error say which input it is from, or has it nothing to do with the input? */
static int is_named(const queue_run *r, const spx_queue_item *x)
{
    const spx_run *s = spx_queue_context(r->q);
    int named = strcmp(x->e.file, x->name) == 0 || (r->total == 1 && x->st != SPX_EINPUT && x->st != SPX_ENO);
    for (size_t i = 0; i < s->ninput && r->total == 1 && !named; i++)
        named = strcmp(x->e.file, s->input[i]) == 0;
    return named;
}

/* Prints an error at once where there are several exposures; else the program returns it. */
static void report_error(queue_run *r, const spx_queue_item *x)
{
    spx_err e = x->e;
    e.code = x->st;
    if (spx_err_text(&e)[0] == '\0')
        return;
    if (strcmp(x->name, from_pipe) == 0 && r->n > 1) { /* which of the products there */
        char number[32];
        (void)snprintf(number, sizeof number, "number %03zu", x->number);
        if (strcmp(e.file, from_pipe) == 0)
            e.file[0] = '\0';
        (void)spx_err_at(&e, from_pipe, number);
    } else if (!is_named(r, x)) {
        (void)spx_err_at(&e, x->name, NULL);
    }
    if (r->n > 1 || r->total > 1)
        spx_error("%s", spx_err_text(&e));
    else
        r->held = e;
}

/* Prepares the note on a queue's progress for a signal. */
static void tell_if_stopped(const queue_run *r)
{
    char of[32] = "";
    if (r->total > 0)
        (void)snprintf(of, sizeof of, " of %zu", r->total);
    if (r->total != 1 && !spx_queue_to_stdout(r->q))
        spx_note_if_stopped("stopped with %zu%s frames done: repeat it with --skip-existing to make the others",
                            r->nend - r->nbad - r->nleft, of);
}

static void end_one(void *ctx, void *item)
{
    queue_run *r = ctx;
    spx_queue_item *x = item;
    r->nleft += x->st == SPX_OK && x->left;
    r->nexist += (size_t)x->exists;
    if (x->st != SPX_OK) {
        r->worst = r->nbad++ == 0 ? x->st : r->worst;
        report_error(r, x);
    }
    if (r->first_peak == 0)
        r->first_peak = spx_mem_peak();
    r->nend++;
    tell_if_stopped(r);
    spx_progress_step(r->progress, 1);
    r->steps->clear(r->steps->ctx, x);
    spx_run_end_product(spx_queue_context(r->q), x->product);
    spx_image_free(&x->image);
    spx_psf_source_release(x->source);
    spx_free(x->target);
    spx_free(x->line);
    spx_free(x);
}

static spx_status say_failures(const queue_run *r, spx_err *e)
{
    const size_t n = r->n, failed = r->nbad - r->nexist;
    if (failed == 0)
        return spx_fail(e, r->worst,
                        "%zu of %zu frames exist already and stay as they are: give --skip-existing if that is right, "
                        "or -f to replace them",
                        r->nexist, n);
    if (r->nexist > 0)
        return spx_fail(e, r->worst, "%zu of %zu frames failed, %zu exist already: see above", failed, n, r->nexist);
    return spx_fail(e, r->worst, "%zu of %zu frames failed: see above", failed, n);
}

static int nothing_kept(const queue_run *r)
{
    size_t kept = 0;
    (void)spx_queue_todo(r->q, &kept);
    return kept == 0;
}

/* Runs the pipeline, where there is anything to do. */
static spx_status run_pipeline(queue_run *r, const spx_pipeline *p, spx_err *e)
{
    spx_status st = SPX_OK;
    size_t kept = 0;
    if (spx_queue_todo(r->q, &kept)) {
        if (r->total != 1)
            spx_mem_cache(1);
        tell_if_stopped(r);
        st = spx_pipeline_run(p, e);
        if (r->total != 1)
            spx_mem_cache(0);
        (void)spx_queue_todo(r->q, &kept);
    }
    if (kept > 0)
        spx_note("%zu of %zu frames exist already: kept", kept, kept + r->n);
    return st;
}

spx_status spx_queue_run(spx_queue *q, const spx_queue_steps *steps, spx_err *e)
{
    queue_run r = {.q = q, .steps = steps, .total = spx_queue_total(q)};
    /* Storing waits for the disk in part: several outputs at a time where there are processors for them. Capacity:
     * exposures in the workers, in storing threads, and as many again, so that workers need not wait. */
    const size_t half = (steps->nworker + 1) / 2, least = spx_queue_context(q)->common.threads > 3 ? 3 : 1,
                 nstore = half > least ? half : least;
    r.most = r.total == 1 ? 1 : steps->nworker + 2 * nstore + (steps->nworker > 1);
    if (r.total > 1)
        r.progress = spx_progress_start(spx_queue_context(q)->common.progress, steps->what, "exposures", r.total);
    const spx_pipeline p = {.ctx = &r,
                            .nworker = steps->nworker,
                            .nstore = nstore,
                            .most = r.most,
                            .ahead = steps->nworker,
                            .read = read_one,
                            .ready = ready,
                            .capacity = capacity,
                            .start = start,
                            .compute = compute,
                            .write = write_one,
                            .store = store,
                            .publish = publish,
                            .end = end_one};
    spx_status st = run_pipeline(&r, &p, e);
    spx_progress_end(r.progress);
    if (st == SPX_OK && r.no_memory.code != SPX_OK) {
        *e = r.no_memory;
        st = e->code;
    } else if (st == SPX_OK && r.nbad > 0 && r.n == 1) {
        *e = r.held;
        st = r.worst;
    } else if (st == SPX_OK && r.nbad > 0 && atomic_load(steps->stop)) {
        st = spx_fail(e, r.worst, "stopped with %zu frames done: see above", r.n - r.nbad - r.nleft);
    } else if (st == SPX_OK && r.nbad > 0) {
        st = say_failures(&r, e);
    } else if (st == SPX_OK && r.n == 0 && nothing_kept(&r) &&
               !atomic_load(steps->stop)) { /* the total of standard input is known at its end only */
        st = spx_queue_without(q, from_pipe, e);
    } else if (st == SPX_OK && r.nleft == 0 && spx_queue_to_stdout(q)) {
        st = spx_output_end_stdout(e);
    }
    return st;
}
