/* Cases of the operation `stack`, against its definition in a plain loop. Sizes: bytes of a value, traces, samples of
 * the longest, sets of shifts, method. The fourth of each four traces is empty, the third has one sample.
 *
 * Tolerance: terms are below 1, and 5 sums of 32 terms in float are rounded by 32 * 2^-24 a block at most, 2e-6 each;
 * in double by 32 * 2^-53. */
#include <math.h>

#include "op.h"
#include "stack/stack.h"
#include "stack_scene.h"

typedef struct {
    spx_traces t;
    spx_shifts s;
    spx_stack_method method;
    double tolerance;
} scene;

static const op_case cases[] = {
    {"float, 3 traces, 4 shifts", {4, 3, 50, 4, SPX_STACK_STACK}},
    {"double, 3 traces, 4 shifts", {8, 3, 50, 4, SPX_STACK_STACK}},
    {"one trace, one sample, one shift", {8, 1, 1, 1, SPX_STACK_STACK}},
    {"float, more traces than a block", {4, 70, 300, 9, SPX_STACK_STACK}},
    {"double, more samples than a chunk", {8, 5, 9000, 33, SPX_STACK_STACK}},
    {"float, maximum over samples", {4, 9, 400, 70, SPX_STACK_MAX}},
    {"double, maximum over samples, one shift", {8, 9, 5000, 1, SPX_STACK_MAX}},
    {"float, maximum over shifts", {4, 9, 400, 70, SPX_STACK_ARGMAX}},
    {"double, maximum over shifts", {8, 4, 4097, 75, SPX_STACK_ARGMAX}},
};

static void *draw(const size_t *size, uint64_t from)
{
    scene *c = need(1, sizeof *c);
    size_t *length = need(size[1], sizeof *length);
    seed = (unsigned)from;
    for (size_t j = 0; j < size[1]; j++)
        length[j] = j % 4 == 3 ? 0 : j % 4 == 2 ? 1 : size[2] - size[2] / 7 * (j % 4);
    c->t = new_traces((int)size[0], size[1], length);
    c->s = new_shifts((int)size[0], size[3], size[1]);
    c->method = (spx_stack_method)size[4];
    c->tolerance = size[0] == 4 ? 1e-5 : 1e-13;
    fill(&c->t, &c->s, -40, 40);
    op_const("data", c->t.data, c->t.nsample, size[0]);
    op_const("offset", c->t.offset, size[1], sizeof *c->t.offset);
    op_const("shift", c->s.shift, size[1] * size[3], sizeof *c->s.shift);
    op_const("weight", c->s.weight, size[1] * size[3], size[0]);
    spx_free(length);
    return c;
}

static void run(spx_backend *b, void *scene_, int threads, op_answer *a)
{
    const scene *c = scene_;
    const spx_stack_options o = {.method = c->method, .nthreads = threads};
    spx_stack *out = op_output("stack", 1, sizeof *out);
    spx_err e = {0};
    if (op_done(b->stack(b, &c->t, &c->s, &o, out, &e), &e)) {
        const size_t n = c->method == SPX_STACK_STACK ? out->nshift * out->length
                         : c->method == SPX_STACK_MAX ? out->nshift
                                                      : out->length;
        op_put(a, "window", 2, (double[]){(double)out->t0, (double)out->length}, 0);
        double *value = op_add(a, "value", n, c->tolerance, NULL);
        for (size_t i = 0; i < n; i++)
            value[i] = get(c->t.precision, out->value, i);
        double *index = op_add(a, "index", out->index != NULL ? n : 0, 0, NULL);
        for (size_t i = 0; i < n && out->index != NULL; i++)
            index[i] = (double)out->index[i];
    }
    spx_stack_free(out);
}

static void reference(void *scene_, op_answer *a)
{
    const scene *c = scene_;
    int64_t t0 = INT64_MAX, end = INT64_MIN;
    for (size_t k = 0; k < c->s.nshift; k++)
        for (size_t j = 0; j < c->t.ntrace; j++) {
            const int64_t first = (int64_t)c->t.offset[j] + c->s.shift[k * c->t.ntrace + j];
            const int64_t after = first + (int64_t)(c->t.start[j + 1] - c->t.start[j]);
            t0 = first < t0 ? first : t0;
            end = after > end ? after : end;
        }
    const size_t length = (size_t)(end - t0), ns = c->s.nshift;
    const int whole = c->method == SPX_STACK_STACK, over_shifts = c->method == SPX_STACK_ARGMAX;
    const size_t n = whole ? ns * length : over_shifts ? length : ns;
    op_put(a, "window", 2, (double[]){(double)t0, (double)length}, 0);
    double *value = op_add(a, "value", n, c->tolerance, NULL), *index = op_add(a, "index", whole ? 0 : n, 0, NULL);
    for (size_t i = 0; i < n && !whole; i++)
        value[i] = -HUGE_VAL;
    for (size_t k = 0; k < ns; k++)
        for (size_t i = 0; i < length; i++) {
            const size_t at = whole ? k * length + i : over_shifts ? i : k;
            const double sum = plain(&c->t, &c->s, k, t0 + (int64_t)i);
            /* of two maxima that rounding may exchange neither is known */
            if (!whole && fabs(sum - value[at]) < c->tolerance)
                index[at] = NAN;
            else if (!whole && sum > value[at])
                index[at] = over_shifts ? (double)k : (double)(t0 + (int64_t)i);
            value[at] = whole ? sum : fmax(value[at], sum);
        }
}

static void release(void *scene_)
{
    scene *c = scene_;
    spx_traces_free(&c->t);
    spx_shifts_free(&c->s);
    spx_free(c);
}

const op_test op_stack = {sizeof cases / sizeof *cases, cases, draw, run, reference, release};
