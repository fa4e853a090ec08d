/* h5reduce: minimum, maximum, sum, mean or median of any dataset along one of its axes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/dataset.h"
#include "app/main.h"
#include "base/parse.h"
#include "common/device.h"
#include "common/kernel_options.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/write.h"

/* Values that are read at a time, at most. */
enum { MOST_AT_ONCE = 1 << 23 };

static struct {
    spx_reduce_op operation;
    const char *axis;
    int skip;
} o = {.operation = SPX_REDUCE_MEAN, .axis = "-1"};

static const spx_opt_choice operations[] = {{"minimum", SPX_REDUCE_MINIMUM}, {"maximum", SPX_REDUCE_MAXIMUM},
                                            {"argmin", SPX_REDUCE_ARGMIN},   {"argmax", SPX_REDUCE_ARGMAX},
                                            {"sum", SPX_REDUCE_SUM},         {"mean", SPX_REDUCE_MEAN},
                                            {"median", SPX_REDUCE_MEDIAN},   {0}};

static const spx_opt options[] = {
    SPX_OPTION(CHOICE, "operation", 'p', NULL, o.operation, "What to compute along the axis", .choices = operations),
    SPX_OPTION(STRING, "axis", 'a', "N", o.axis,
               "Axis to reduce, from 0; -1 is the last, all takes all values at once"),
    SPX_OPTION(FLAG, "skip-nan", 0, NULL, o.skip, "Leave out NaN and infinite values, which are refused without it"),
    {0}};

static spx_status find_axis(const spx_dataset *d, int *axis, spx_err *e)
{
    long n;
    *axis = -1;
    spx_status st = strcmp(o.axis, "all") == 0 ? SPX_OK : spx_parse_long(o.axis, "--axis", &n, e);
    if (st != SPX_OK || strcmp(o.axis, "all") == 0)
        return st;
    if (n < -d->ndim || n >= d->ndim)
        return spx_fail(e, SPX_EUSAGE, "--axis %ld: %s has %d dimensions", n, d->name, d->ndim);
    *axis = (int)(n < 0 ? n + d->ndim : n);
    return SPX_OK;
}

/* A dataset that is being reduced, and how it is cut into blocks. */
typedef struct {
    spx_backend *backend;
    const spx_dataset *d;
    int axis, nthreads;
    size_t step[SPX_H5_MAXDIM], most; /* values of a block */
    double *data;
    spx_reduce r;
    spx_reduce_select select;
    int selects; /* lines are longer than a block, and their median is wanted */
} job;

/* Is the block at start[] the last of the values that become its results? */
static int ends(const job *w, const size_t *start, const size_t *count)
{
    int last = 1;
    for (int i = 0; i < w->d->ndim; i++)
        last &= (w->axis >= 0 && i != w->axis) || start[i] + count[i] == w->d->dims[i];
    return last;
}

/* Message with the place of a value that is not allowed. */
static spx_status name_place(const job *w, const size_t *start, const size_t *count, size_t bad, spx_err *e)
{
    char place[256] = "";
    size_t below = 1, used = 0;
    for (int i = 0; i < w->d->ndim; i++)
        below *= count[i];
    for (int i = 0; i < w->d->ndim; i++) {
        below /= count[i];
        used += (size_t)snprintf(place + used, sizeof place - used, "%s%zu", i > 0 ? "," : "",
                                 start[i] + bad / below % count[i]);
    }
    return spx_err_context(e, "%s[%s]", w->d->name, place);
}

/* One block into the results. *along counts elements along the axis. */
static spx_status add_block(job *w, const size_t *start, const size_t *count, size_t *along, spx_err *e)
{
    size_t outer = 1, n = 1, inner = 1, bad = SIZE_MAX;
    for (int i = 0; i < w->d->ndim; i++)
        *(w->axis < 0 || i == w->axis ? &n : i < w->axis ? &outer : &inner) *= count[i];
    spx_status st = spx_dataset_read(w->d, start, count, w->data, e);
    if (st != SPX_OK)
        return st;
    if (*along == 0 && !w->selects)
        spx_reduce_begin(&w->r, outer * inner);
    st = w->selects ? spx_reduce_select_add(&w->select, w->data, n, w->r.skip, &bad, e)
                    : w->backend->reduce(w->backend, w->data, outer, n, inner, *along, w->nthreads, &w->r, &bad, e);
    *along += n;
    return st != SPX_OK && bad != SIZE_MAX ? name_place(w, start, count, bad, e) : st;
}

/* Finish the results of the block at start[] and write them. */
static spx_status write_results(job *w, hid_t file, const size_t *start, const size_t *count, size_t *empty, spx_err *e)
{
    size_t from[SPX_H5_MAXDIM], many[SPX_H5_MAXDIM];
    int ndim = 0;
    for (int i = 0; i < w->d->ndim && w->axis >= 0; i++)
        if (i != w->axis) {
            from[ndim] = start[i];
            many[ndim++] = count[i];
        }
    spx_status st = spx_reduce_end(&w->r, e);
    if (st != SPX_OK)
        return spx_err_context(e, "%s", w->d->name);
    for (size_t i = 0; i < w->r.nout; i++)
        *empty += w->r.count[i] == 0;
    st = spx_dataset_write(file, "/reduce/value", H5T_NATIVE_DOUBLE, ndim, from, many, w->r.value, e);
    if (st == SPX_OK)
        st = spx_dataset_write(file, "/reduce/count", H5T_NATIVE_UINT64, ndim, from, many, w->r.count, e);
    if (st == SPX_OK && (w->r.op == SPX_REDUCE_ARGMIN || w->r.op == SPX_REDUCE_ARGMAX))
        st = spx_dataset_write(file, "/reduce/index", H5T_NATIVE_INT64, ndim, from, many, w->r.index, e);
    return st;
}

/* The values that become the results of the block at start[], which goes to the last of their blocks; its size in
 * count[]. */
static spx_status reduce_line(job *w, size_t *start, size_t *count, spx_progress *progress, spx_err *e)
{
    size_t at[SPX_H5_MAXDIM];
    spx_status st = SPX_OK;
    if (w->selects) {
        spx_reduce_begin(&w->r, 1);
        spx_reduce_select_begin(&w->select);
    }
    for (int pass = 0; pass < (w->selects ? SPX_SELECT_PASSES : 1) && st == SPX_OK; pass++) {
        size_t along = 0;
        memcpy(at, start, sizeof at);
        for (int more = 1; more && st == SPX_OK;) {
            spx_dataset_block(w->d, w->step, at, count);
            st = add_block(w, at, count, &along, e);
            spx_progress_step(progress, 1);
            more = !ends(w, at, count) && spx_dataset_next(w->d, w->axis, w->step, at);
        }
        if (w->selects)
            spx_reduce_select_next(&w->select, &w->r);
    }
    memcpy(start, at, sizeof at);
    return st;
}

/* Shape of the results, and how many blocks of values there are. */
static size_t plan(job *w, int *ndim, size_t *dims)
{
    size_t blocks = 1, line = 1;
    *ndim = 0;
    spx_dataset_cut(w->d, w->axis, w->most, w->step);
    for (int i = 0; i < w->d->ndim; i++) {
        const size_t n = (w->d->dims[i] + w->step[i] - 1) / w->step[i];
        blocks *= n;
        line *= w->axis < 0 || i == w->axis ? n : 1;
        if (w->axis >= 0 && i != w->axis)
            dims[(*ndim)++] = w->d->dims[i];
    }
    w->selects = w->r.op == SPX_REDUCE_MEDIAN && line > 1;
    return w->selects ? SPX_SELECT_PASSES * blocks : blocks;
}

static spx_status reduce(spx_run *s, job *w, hid_t *file, size_t *empty, spx_err *e)
{
    size_t start[SPX_H5_MAXDIM] = {0}, count[SPX_H5_MAXDIM] = {0}, dims[SPX_H5_MAXDIM];
    int ndim;
    const size_t blocks = plan(w, &ndim, dims);
    spx_status st = spx_reduce_new(o.operation, o.skip, w->most, &w->r, e);
    if (st == SPX_OK && (w->data = spx_alloc(w->most, sizeof *w->data, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK && w->selects)
        st = spx_reduce_select_new(&w->select, e);
    if (st == SPX_OK)
        st = spx_run_output(s, "reduce", file, e);
    if (st == SPX_OK)
        st = spx_h5_create(*file, "/reduce/value", H5T_NATIVE_DOUBLE, ndim, dims, e);
    if (st == SPX_OK)
        st = spx_h5_create(*file, "/reduce/count", H5T_NATIVE_UINT64, ndim, dims, e);
    if (st == SPX_OK && (w->r.op == SPX_REDUCE_ARGMIN || w->r.op == SPX_REDUCE_ARGMAX))
        st = spx_h5_create(*file, "/reduce/index", H5T_NATIVE_INT64, ndim, dims, e);
    spx_progress *progress = spx_progress_start(s->common.progress, "reduce", "blocks", blocks);
    int more = st == SPX_OK && blocks > 0;
    while (more) {
        st = reduce_line(w, start, count, progress, e);
        if (st == SPX_OK)
            st = write_results(w, *file, start, count, empty, e);
        more = st == SPX_OK && spx_dataset_next(w->d, w->axis, w->step, start);
    }
    spx_progress_end(progress);
    return st;
}

static spx_status describe(spx_run *s, const job *w, hid_t file, size_t empty, spx_err *e)
{
    if (empty > 0)
        spx_warn("%zu results have no finite value to be made of: they are 0, and so is their count", empty);
    spx_status st = spx_h5_set_str(file, "/reduce/value", "units", w->d->units, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/reduce", "operation", spx_opt_word(operations, (int)o.operation), e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/reduce", "dataset", w->d->path, e);
    if (st == SPX_OK)
        st = spx_h5_set_i64(file, "/reduce", "axis", w->axis, e);
    return st == SPX_OK ? spx_run_record(s, "empty_results", e, "%zu", empty) : st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    static const char *const usual[] = {"/stack/stack", "/burgers/snapshot", NULL};
    spx_backend backend = {0};
    spx_dataset d;
    job w = {.backend = &backend, .d = &d, .nthreads = (int)s->common.threads};
    size_t empty = 0;
    hid_t file;

    if (s->ninput != 1)
        return spx_fail(e, SPX_EUSAGE, "one dataset, not %zu", s->ninput);
    spx_status st = spx_open_device(s, SPX_OP_REDUCE, &backend, e);
    if (st == SPX_OK)
        st = spx_dataset_input(s, s->input[0], usual, &d, e);
    if (st == SPX_OK)
        st = find_axis(&d, &w.axis, e);
    if (st == SPX_OK && d.count == 0)
        st = spx_fail(e, SPX_EINPUT, "%s: is empty", d.name);

    spx_run_step(s, "reduce");
    if (st == SPX_OK) {
        /* a block, its results, and what the median needs */
        const size_t fits = spx_mem_limit_get() / (12 * sizeof(double));
        w.most = d.count < MOST_AT_ONCE ? d.count : MOST_AT_ONCE;
        w.most = fits > 0 && fits < w.most ? fits : w.most;
        w.r.op = o.operation;
        st = reduce(s, &w, &file, &empty, e);
    }
    spx_run_step(s, "write");
    if (st == SPX_OK)
        st = describe(s, &w, file, empty, e);
    if (st == SPX_OK)
        st = spx_run_commit(s, e);

    spx_backend_close(&backend);
    spx_free(w.data);
    spx_reduce_free(&w.r);
    spx_reduce_select_free(&w.select);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "h5reduce",
                                        .summary = "reduce a dataset along one of its axes",
                                        .usage = "[OPTION...] FILE:/DATASET",
                                        .options = options,
                                        .example = "h5reduce -p median -o median.h5 frame.h5:/frame/flux",
                                        .flags = SPX_USES_DEVICE,
                                        .run = run};
    spx_err_options(spx_kernel_options);
    return spx_main(&program, argc, argv);
}
