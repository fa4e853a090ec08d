/* The steps of a network's training, which a backend supplies to spx_template_train(): forward through the layers, the
 * gradient back through them, and Adam (Kingma & Ba 2015, arXiv:1412.6980) on the weights. What is learnt, in which
 * order and when to stop is decided by nn_train.c, once for all backends; so do all begin with the same weights and see
 * the same batches. In single precision: two backends differ in rounding, of which some thousand steps make another
 * network, as good as the first. */
#ifndef SPX_NN_STEPS_H
#define SPX_NN_STEPS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "products/templates.h"

/* What there is to learn. It belongs to the caller, and stays while a learner is open. */
typedef struct {
    const spx_nn *nn; /* sizes alone: hidden layers are of SPX_NN_SILU, the last is linear */
    size_t nrow;
    const float *x;      /* [nrow][size[0]] inputs */
    const float *z;      /* [nrow][size[nlayer]] wanted outputs */
    const double *sigma; /* [size[nlayer]] the loss of a row is sum_k (sigma_k (y_k - z_k))^2 */
    size_t epoch, batch; /* rows of an epoch, and of a step; the last step of an epoch has what is left */
    size_t most;         /* rows whose loss is asked for, at most */
    const float *weight; /* to begin with: spx_nn's weights, then its biases, as they are stored there */
    size_t number;       /* of the setup: several devices share the setups */
} spx_nn_lesson;

/* A step of Adam: with the gradient g of half the mean loss of its rows over sum sigma^2, m = b1 m + (1 - b1) g, v = b2
 * v
 * + (1 - b2) g^2, and each weight less size m / (sqrt(norm v) + epsilon). */
#define SPX_NN_BETA1   0.9
#define SPX_NN_BETA2   0.999
#define SPX_NN_EPSILON 1e-8
typedef struct {
    float size, norm;
} spx_nn_rate;

/* An open lesson: functions of a backend, and what they work on. Errors: SPX_EIO memory, SPX_EDEVICE. */
typedef struct spx_nn_learner {
    void *state;
    /* `nepoch` epochs; row[nepoch][epoch] numbers the rows in their order, rate[nepoch][steps of an epoch] */
    spx_status (*descend)(struct spx_nn_learner *l, size_t nepoch, const int32_t *row, const spx_nn_rate *rate,
                          spx_err *e);
    /* sum of the loss of `n` rows, n <= most */
    spx_status (*loss)(struct spx_nn_learner *l, size_t n, const int32_t *row, double *sum, spx_err *e);
    /* the weights as they are */
    spx_status (*weights)(struct spx_nn_learner *l, float *weight, spx_err *e);
    void (*close)(struct spx_nn_learner *l); /* also after an error; NULL where there is nothing to close */
} spx_nn_learner;

/* Opens a lesson on a backend (kernels/backend.h; the CPU's takes none); *l was zero. */
struct spx_backend;
typedef spx_status spx_nn_open(struct spx_backend *b, const spx_nn_lesson *lesson, spx_nn_learner *l, spx_err *e);

/* The CPU's. Calls BLAS: on one thread the result depends on nothing but the lesson. */
spx_nn_open spx_nn_open_cpu;

/* Steps of an epoch. */
size_t spx_nn_steps(const spx_nn_lesson *lesson);

#endif
