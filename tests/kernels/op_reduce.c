/* Cases of the operation `reduce`, against its definition in long double. Sizes: outer, n, inner, reduction, and 1
 * where values that are not finite are left out; the second of three outer indices or more has no other. With 0 one
 * value is NaN, which is refused.
 *
 * Tolerance: minima, maxima and medians are values of the data; sums are carried in two doubles, and rounded once. */
#include <math.h>
#include <string.h>

#include "device.h"
#include "op.h"
#include "random.h"
#include "reduce_plain.h"

typedef struct {
    size_t outer, n, inner, bad;
    spx_reduce_op op;
    int skip;
    double *data;
} scene;

static const op_case cases[] = {
    {"sum of a line", {1, 1000, 1, SPX_REDUCE_SUM, 1}},
    {"one value", {1, 1, 1, SPX_REDUCE_MEAN, 1}},
    {"minimum, rows", {5, 33, 1, SPX_REDUCE_MINIMUM, 1}},
    {"maximum, columns", {1, 17, 700, SPX_REDUCE_MAXIMUM, 1}},
    {"place of the minimum, of lines of one value", {5, 1, 9, SPX_REDUCE_ARGMIN, 1}},
    {"place of the maximum, in the middle", {4, 17, 300, SPX_REDUCE_ARGMAX, 1}},
    {"sums in the middle", {3, 300, 40, SPX_REDUCE_SUM, 1}},
    {"mean of a long line", {1, 70001, 1, SPX_REDUCE_MEAN, 1}},
    {"median, rows of odd length", {70, 33, 2, SPX_REDUCE_MEDIAN, 1}},
    {"median of many short lines", {900, 8, 1, SPX_REDUCE_MEDIAN, 1}},
    {"a value that is not finite is refused", {7, 60, 5, SPX_REDUCE_SUM, 0}},
};

static void *draw(const size_t *size, uint64_t seed)
{
    scene *c = need(1, sizeof *c);
    *c = (scene){size[0], size[1], size[2], 0, (spx_reduce_op)size[3], (int)size[4], NULL};
    const size_t n = c->outer * c->n * c->inner;
    c->data = need(n, sizeof *c->data);
    random_start(seed);
    for (size_t i = 0; i < n; i++) {
        const double kind = uniform();
        /* equal values, and large ones that a plain sum loses others beside */
        c->data[i] = kind < 0.1 ? floor(5 * uniform()) : kind < 0.2 ? 1e14 * (uniform() < 0.5 ? 1 : -1) : gauss();
        if (c->skip && (kind > 0.97 || (c->outer > 2 && i / (c->n * c->inner) == 1)))
            c->data[i] = kind > 0.99 ? HUGE_VAL : NAN;
    }
    c->bad = (size_t)((double)n * uniform());
    if (!c->skip)
        c->data[c->bad] = NAN;
    op_const("data", c->data, n, sizeof *c->data);
    return c;
}

static void run(spx_backend *b, void *scene_, int threads, op_answer *a)
{
    const scene *c = scene_;
    const size_t nout = c->outer * c->inner;
    size_t *bad = op_output("bad", 1, sizeof *bad);
    spx_err e = {0};
    spx_reduce r;
    /* its arrays between sentinels */
    if (!op_done(spx_reduce_new(c->op, c->skip, nout, &r, &e), &e))
        return;
    spx_reduce lent = r;
    lent.value = op_output("value", nout, sizeof *r.value);
    lent.rest = op_output("rest", nout, sizeof *r.rest);
    lent.index = op_output("index", nout, sizeof *r.index);
    lent.count = op_output("count", nout, sizeof *r.count);
    spx_reduce_begin(&lent, nout);
    spx_status st = b->reduce(b, c->data, c->outer, c->n, c->inner, 0, threads, &lent, bad, &e);
    if (st == SPX_OK)
        st = spx_reduce_end(&lent, &e);
    op_put(a, "status", 2, (double[]){(double)st, st == SPX_OK ? 0 : (double)*bad}, 0);
    double *scale, *value = op_add(a, "value", nout, 4e-16, &scale);
    double *place = op_add(a, "index", nout, 0, NULL), *count = op_add(a, "count", nout, 0, NULL);
    for (size_t i = 0; i < nout && st == SPX_OK; i++) {
        value[i] = lent.value[i];
        scale[i] = fabs(value[i]);
        place[i] = (double)lent.index[i];
        count[i] = (double)lent.count[i];
    }
    spx_reduce_free(&r);
}

static void reference(void *scene_, op_answer *a)
{
    const scene *c = scene_;
    const size_t nout = c->outer * c->inner;
    op_put(a, "status", 2, (double[]){c->skip ? SPX_OK : SPX_EINPUT, c->skip ? 0 : (double)c->bad}, 0);
    /* long double keeps 11 bits more than the values, and loses 1e14 * 2^-63 with each that is large */
    double *scale, *value = op_add(a, "value", nout, 4e-16, &scale);
    double *place = op_add(a, "index", nout, 0, NULL), *count = op_add(a, "count", nout, 0, NULL);
    double *line = need(c->n, sizeof *line);
    for (size_t i = 0; i < nout && c->skip; i++) {
        int64_t index;
        uint64_t counted;
        expect(c->data + i / c->inner * c->n * c->inner + i % c->inner, c->n, c->inner, c->op, line, value + i, &index,
               &counted);
        scale[i] = fabs(value[i]) + 1e14 * 0x1p-63 / 4e-16 * (double)c->n;
        place[i] = (double)index;
        count[i] = (double)counted;
    }
    spx_free(line);
}

static void release(void *scene_)
{
    scene *c = scene_;
    spx_free(c->data);
    spx_free(c);
}

const op_test op_reduce = {sizeof cases / sizeof *cases, cases, draw, run, reference, release};
