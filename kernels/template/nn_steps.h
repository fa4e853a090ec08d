/* Provides the interface of a network's training steps, which a backend supplies to spx_template_train(): forward
 * through the layers, the gradient back through them, and Adam (Kingma & Ba 2015, arXiv:1412.6980) on the weights.
 * nn_train.c chooses training set, order and stopping for all backends, so all begin with the same weights and see the
 * same batches. Precision is single: rounding differs between backends, and after some thousand steps so do the
 * networks, which are equally good. */
#ifndef SPX_NN_STEPS_H
#define SPX_NN_STEPS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "products/templates.h"

/* Training problem. Owned by the caller; must outlive the trainer. */
typedef struct {
    const spx_nn *nn; /* only sizes are used: hidden layers are SPX_NN_SILU, the last is linear */
    size_t nrow;
    const float *x;      /* [nrow][size[0]] inputs */
    const float *z;      /* [nrow][size[nlayer]] target outputs */
    const double *sigma; /* [size[nlayer]] the loss of a row is sum_k (sigma_k (y_k - z_k))^2 */
    size_t epoch, batch; /* rows of an epoch, and of a step; the last step of an epoch has the remainder */
    size_t most;         /* most rows in a call of loss() */
    const float *weight; /* initial weights, then biases, in the order of spx_nn */
    size_t number;       /* number of the setup: several devices divide the setups */
} spx_nn_problem;

/* Step of Adam, with the gradient g of half the mean loss of its rows over sum sigma^2: m = b1 m + (1 - b1) g, v = b2 v
 * + (1 - b2) g^2, and each weight decreases by size m / (sqrt(norm v) + epsilon). */
#define SPX_NN_BETA1   0.9
#define SPX_NN_BETA2   0.999
#define SPX_NN_EPSILON 1e-8
typedef struct {
    float size, norm;
} spx_nn_rate;

/* Open trainer: functions of a backend, and its state. Errors: SPX_EIO memory, SPX_EDEVICE. */
typedef struct spx_nn_trainer {
    void *state;
    /* runs `nepoch` epochs; row[nepoch][epoch]: order of the rows, rate[nepoch][steps of an epoch] */
    spx_status (*descend)(struct spx_nn_trainer *l, size_t nepoch, const int32_t *row, const spx_nn_rate *rate,
                          spx_err *e);
    /* sums the loss of `n` rows, n <= most */
    spx_status (*loss)(struct spx_nn_trainer *l, size_t n, const int32_t *row, double *sum, spx_err *e);
    /* copies the present weights */
    spx_status (*weights)(struct spx_nn_trainer *l, float *weight, spx_err *e);
    void (*close)(struct spx_nn_trainer *l); /* frees the state, also after an error; NULL: nothing to free */
} spx_nn_trainer;

/* Opens a trainer on a backend (kernels/backend.h; the CPU's takes none); *l must be zero. */
struct spx_backend;
typedef spx_status spx_nn_open(struct spx_backend *b, const spx_nn_problem *problem, spx_nn_trainer *l, spx_err *e);

/* Opens a trainer on the CPU. Calls BLAS: with one thread the result depends on the problem alone. */
spx_nn_open spx_nn_open_cpu;

/* Number of steps of an epoch. */
size_t spx_nn_steps(const spx_nn_problem *problem);

#endif
