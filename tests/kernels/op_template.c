/* Cases of the operation `template`, the training of networks, against plain loops in double precision. Sizes: rows,
 * rows of an epoch, rows of a step, epochs, and the layers as numbered below.
 *
 * Tolerance: in single precision a loss is rounded to some 1e-6, 2e-5 after some steps. Weights to 2e-6, a thousandth
 * of a step of Adam (2e-3): where a gradient is nothing but rounding, Adam makes a step of any sign of it, so that only
 * weights whose gradient was more in all steps are compared; the others are given as 0. */
#include "nn_scene.h"
#include "op.h"

enum { MOST_EPOCHS = 5 };

typedef struct {
    scene s;
    size_t nepoch;
    int32_t *row;
    spx_nn_rate *rate;
    double before, after;
    double *weight; /* those that are compared; 0: not compared */
    char *clear;
} problem;

static const size_t layers[][SPX_NN_MAX_LAYER + 1] = {
    {1, 2}, {2, 24, 12}, {3, 17, 300, 5, 33}, {5, 9, 8, 7, 6, 5, 4, 3, 2}};
static const size_t nlayers[] = {1, 2, 4, 8};

static const op_case cases[] = {
    {"a layer alone", {20, 20, 64, 3, 0}},
    {"one row, one step", {1, 1, 1, 1, 0}},
    {"a hidden layer, steps of all sizes", {40, 31, 8, 3, 1}},
    {"wide and narrow layers", {60, 37, 37, 2, 2}},
    {"eight layers", {40, 31, 8, 2, 3}},
    {"steps of one row", {9, 7, 1, 2, 1}},
};

static void *draw(const size_t *size, uint64_t seed)
{
    problem *c = need(1, sizeof *c);
    random_start(seed);
    make_scene(&c->s, size[0], nlayers[size[4]], layers[size[4]], size[1], size[2]);
    const size_t nstep = spx_nn_steps(&c->s.problem), total = c->s.total;
    c->nepoch = size[3];
    c->row = need(c->nepoch * size[1], sizeof *c->row);
    c->rate = need(c->nepoch * nstep, sizeof *c->rate);
    for (size_t i = 0; i < c->nepoch * size[1]; i++)
        c->row[i] = (int32_t)(uniform() * (double)size[0]);
    for (size_t i = 0; i < c->nepoch * nstep; i++)
        c->rate[i] = rate_at(i + 1);
    /* the plain steps, which say which weights are compared */
    plain p = {need(total, 8), need(total, 8), need(total, 8), need(total, 8)};
    double most = 0;
    c->clear = need(total, 1);
    memset(c->clear, 1, total);
    for (size_t i = 0; i < total; i++)
        p.w[i] = (double)c->s.weight[i];
    c->before = plain_loss(&c->s, p.w, size[0], c->s.row, NULL);
    for (size_t k = 0; k < c->nepoch; k++)
        for (size_t step = 0; step < nstep; step++) {
            const size_t left = size[1] - step * size[2];
            plain_step(&c->s, &p, left < size[2] ? left : size[2], c->row + k * size[1] + step * size[2],
                       c->rate + k * nstep + step);
            for (size_t i = 0; i < total; i++)
                most = fmax(most, fabs(p.grad[i]));
            for (size_t i = 0; i < total; i++)
                c->clear[i] = c->clear[i] && fabs(p.grad[i]) > 1e-3 * most;
        }
    c->after = plain_loss(&c->s, p.w, size[0], c->s.row, NULL);
    c->weight = p.w;
    spx_free(p.m);
    spx_free(p.v);
    spx_free(p.grad);
    op_const("x", c->s.x, size[0] * layers[size[4]][0], sizeof *c->s.x);
    op_const("z", c->s.z, size[0] * layers[size[4]][nlayers[size[4]]], sizeof *c->s.z);
    op_const("weight", c->s.weight, total, sizeof *c->s.weight);
    op_const("row", c->row, c->nepoch * size[1], sizeof *c->row);
    return c;
}

static void put(const problem *c, double before, double after, const double *weight, op_answer *a)
{
    double *scale;
    *op_add(a, "loss before", 1, 2e-6, &scale) = before;
    scale[0] = fabs(before);
    *op_add(a, "loss after", 1, 2e-5, &scale) = after;
    scale[0] = fabs(before); /* which may have become small */
    double *to = op_add(a, "weights", c->s.total, 2e-6, NULL);
    for (size_t i = 0; i < c->s.total; i++)
        to[i] = c->clear[i] ? weight[i] : 0;
}

static void run(spx_backend *b, void *scene_, int threads, op_answer *a)
{
    problem *c = scene_;
    spx_nn_trainer l = {0};
    spx_err e = {0};
    double *sum = op_output("loss", 2, sizeof *sum);
    float *weight = op_output("learnt weights", c->s.total, sizeof *weight);
    (void)threads; /* BLAS has one, always */
    spx_status st = b->nn_open(b, &c->s.problem, &l, &e);
    if (st == SPX_OK)
        st = l.loss(&l, c->s.nrow, c->s.row, &sum[0], &e);
    if (st == SPX_OK)
        st = l.descend(&l, c->nepoch, c->row, c->rate, &e);
    if (st == SPX_OK)
        st = l.loss(&l, c->s.nrow, c->s.row, &sum[1], &e);
    if (st == SPX_OK)
        st = l.weights(&l, weight, &e);
    if (l.close != NULL)
        l.close(&l);
    if (!op_done(st, &e))
        return;
    double *w = need(c->s.total, sizeof *w);
    for (size_t i = 0; i < c->s.total; i++)
        w[i] = (double)weight[i];
    put(c, sum[0], sum[1], w, a);
    spx_free(w);
}

static void reference(void *scene_, op_answer *a)
{
    const problem *c = scene_;
    put(c, c->before, c->after, c->weight, a);
}

static void release(void *scene_)
{
    problem *c = scene_;
    free_scene(&c->s);
    spx_free(c->row);
    spx_free(c->rate);
    spx_free(c->weight);
    spx_free(c->clear);
    spx_free(c);
}

const op_test op_template = {sizeof cases / sizeof *cases, cases, draw, run, reference, release};
