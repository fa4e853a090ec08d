/* Provides training steps on the CPU: matrix products by BLAS, other loops for the processor's vectors
 * (template_lanes.h). */
#include <cblas.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "num/blas.h"
#include "template/nn_steps.h"
#include "template/template_impl.h"

enum { PIECE = 256 }; /* rows at a time in a forward pass without a step */

typedef struct {
    const spx_nn_problem *problem;
    const spx_nn *nn;
    const spx_template_kernels *kernels;
    size_t nweight, nbias;
    float *w, *grad, *m, *v;                                  /* [nweight + nbias] */
    float *y[SPX_NN_MAX_LAYER + 1], *d[SPX_NN_MAX_LAYER + 1]; /* [rows][size] layers and derivatives */
    float *back[2];                                           /* [batch][widest] back-propagated derivatives */
    float *scale[2]; /* [outputs] sigma^2 over its sum and the rows of a step: full steps, an epoch's last */
} trainer;

size_t spx_nn_steps(const spx_nn_problem *problem)
{
    return (problem->epoch + problem->batch - 1) / problem->batch;
}

static void close_cpu(spx_nn_trainer *l)
{
    trainer *t = l->state;
    if (!t)
        return;
    spx_free(t->w);
    spx_free(t->grad);
    spx_free(t->m);
    spx_free(t->v);
    for (size_t k = 0; k <= SPX_NN_MAX_LAYER; k++) {
        spx_free(t->y[k]);
        spx_free(t->d[k]);
    }
    spx_free(t->back[0]);
    spx_free(t->back[1]);
    spx_free(t->scale[0]);
    spx_free(t->scale[1]);
    spx_free(t);
    l->state = NULL;
}

/* Forward pass: layers 1 ... last of n rows from y[0]; with `slopes` also the derivatives of the activations. */
static void forward(trainer *t, size_t n, size_t last, int slopes)
{
    const spx_nn *nn = t->nn;
    const float *w = t->w, *b = t->w + t->nweight;
    for (size_t l = 0; l < last; l++) {
        size_t nin = nn->size[l], nout = nn->size[l + 1];
        float *y = t->y[l + 1];
        for (size_t i = 0; i < n; i++)
            memcpy(y + i * nout, b, nout * sizeof *y);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)nout, (int)nin, 1, t->y[l], (int)nin, w,
                    (int)nin, 1, y, (int)nout);
        if (l + 1 < nn->nlayer)
            t->kernels->silu(n * nout, y, slopes ? t->d[l + 1] : NULL);
        w += nin * nout;
        b += nout;
    }
}

static void load_batch(trainer *t, size_t n, const int32_t *row)
{
    const size_t nin = t->nn->size[0];
    for (size_t i = 0; i < n; i++)
        memcpy(t->y[0] + i * nin, t->problem->x + (size_t)row[i] * nin, nin * sizeof *t->y[0]);
}

/* Gradient of half the mean loss of n rows over sum sigma^2, by back-propagation. */
static void gradient(trainer *t, size_t n, const int32_t *row)
{
    const spx_nn *nn = t->nn;
    const float *scale = t->scale[n < t->problem->batch];
    size_t nc = nn->size[nn->nlayer];
    load_batch(t, n, row);
    forward(t, n, nn->nlayer, 1);
    float *delta = t->back[0], *next = t->back[1];
    for (size_t i = 0; i < n; i++) {
        const float *y = t->y[nn->nlayer] + i * nc, *z = t->problem->z + (size_t)row[i] * nc;
#pragma omp simd
        for (size_t k = 0; k < nc; k++)
            delta[i * nc + k] = scale[k] * (y[k] - z[k]);
    }
    size_t at = t->nweight, bias = t->nweight + t->nbias;
    for (size_t l = nn->nlayer; l-- > 0;) {
        size_t nin = nn->size[l], nout = nn->size[l + 1];
        at -= nin * nout;
        bias -= nout;
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)nout, (int)nin, (int)n, 1, delta, (int)nout, t->y[l],
                    (int)nin, 0, t->grad + at, (int)nin);
        float *grad = t->grad + bias;
        memset(grad, 0, nout * sizeof *grad);
        for (size_t i = 0; i < n; i++)
#pragma omp simd
            for (size_t k = 0; k < nout; k++)
                grad[k] += delta[i * nout + k];
        if (l == 0)
            break;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, (int)nin, (int)nout, 1, delta, (int)nout,
                    t->w + at, (int)nin, 0, next, (int)nin);
        const float *slope = t->d[l];
#pragma omp simd
        for (size_t i = 0; i < n * nin; i++)
            next[i] *= slope[i];
        float *swap = delta;
        delta = next;
        next = swap;
    }
}

static spx_status descend_cpu(spx_nn_trainer *l, size_t nepoch, const int32_t *row, const spx_nn_rate *rate, spx_err *e)
{
    (void)e;
    trainer *t = l->state;
    const spx_nn_problem *s = t->problem;
    for (size_t epoch = 0; epoch < nepoch; epoch++, row += s->epoch)
        for (size_t first = 0; first < s->epoch; first += s->batch, rate++) {
            gradient(t, s->epoch - first < s->batch ? s->epoch - first : s->batch, row + first);
            t->kernels->adam(t->nweight + t->nbias, t->grad, rate, t->m, t->v, t->w);
        }
    return SPX_OK;
}

static spx_status loss_cpu(spx_nn_trainer *l, size_t n, const int32_t *row, double *sum, spx_err *e)
{
    (void)e;
    trainer *t = l->state;
    const size_t nc = t->nn->size[t->nn->nlayer];
    *sum = 0;
    for (size_t first = 0; first < n; first += PIECE) {
        const size_t m = n - first < PIECE ? n - first : PIECE;
        load_batch(t, m, row + first);
        forward(t, m, t->nn->nlayer, 0);
        for (size_t i = 0; i < m; i++)
            for (size_t k = 0; k < nc; k++) {
                double d = t->problem->sigma[k] *
                           (double)(t->y[t->nn->nlayer][i * nc + k] - t->problem->z[(size_t)row[first + i] * nc + k]);
                *sum += d * d;
            }
    }
    return SPX_OK;
}

void spx_nn_hidden_cpu(spx_nn_trainer *l, size_t n, const int32_t *row, float *hidden)
{
    trainer *t = l->state;
    const size_t last = t->nn->nlayer - 1, h = t->nn->size[last];
    for (size_t first = 0; first < n; first += PIECE) {
        const size_t m = n - first < PIECE ? n - first : PIECE;
        load_batch(t, m, row + first);
        forward(t, m, last, 0);
        memcpy(hidden + first * h, t->y[last], m * h * sizeof *hidden);
    }
}

static spx_status weights_cpu(spx_nn_trainer *l, float *weight, spx_err *e)
{
    (void)e;
    const trainer *t = l->state;
    memcpy(weight, t->w, (t->nweight + t->nbias) * sizeof *weight);
    return SPX_OK;
}

void spx_nn_put_cpu(spx_nn_trainer *l, const float *weight)
{
    trainer *t = l->state;
    memcpy(t->w, weight, (t->nweight + t->nbias) * sizeof *weight);
}

spx_status spx_nn_open_cpu(struct spx_backend *b, const spx_nn_problem *problem, spx_nn_trainer *l, spx_err *e)
{
    (void)b;
    trainer *t = spx_blas_open(e) == SPX_OK ? spx_alloc(1, sizeof *t, e) : NULL;
    *l = (spx_nn_trainer){t, descend_cpu, loss_cpu, weights_cpu, close_cpu};
    if (!t)
        return SPX_EIO;
    const spx_nn *nn = t->nn = problem->nn;
    t->problem = problem;
    t->kernels = spx_template_kernels_find();
    spx_nn_count(nn, &t->nweight, &t->nbias);
    const size_t total = t->nweight + t->nbias, nc = nn->size[nn->nlayer];
    const size_t most = problem->batch > PIECE ? problem->batch : PIECE;
    const size_t left = problem->epoch - (spx_nn_steps(problem) - 1) * problem->batch;
    double sum = 0;
    size_t width = 0;
    int ok = (t->w = spx_alloc(total, sizeof *t->w, e)) && (t->grad = spx_alloc(total, sizeof *t->grad, e)) &&
             (t->m = spx_alloc(total, sizeof *t->m, e)) && (t->v = spx_alloc(total, sizeof *t->v, e));
    for (size_t k = 0; k <= nn->nlayer && ok; k++) {
        width = nn->size[k] > width ? nn->size[k] : width;
        ok = (t->y[k] = spx_alloc2(most, nn->size[k], sizeof *t->y[k], e)) &&
             (t->d[k] = spx_alloc2(problem->batch, nn->size[k], sizeof *t->d[k], e));
    }
    ok = ok && (t->back[0] = spx_alloc2(problem->batch, width, sizeof *t->back[0], e)) &&
         (t->back[1] = spx_alloc2(problem->batch, width, sizeof *t->back[1], e)) &&
         (t->scale[0] = spx_alloc(nc, sizeof *t->scale[0], e)) && (t->scale[1] = spx_alloc(nc, sizeof *t->scale[1], e));
    if (!ok)
        return SPX_EIO;
    memcpy(t->w, problem->weight, total * sizeof *t->w);
    for (size_t k = 0; k < nc; k++)
        sum += problem->sigma[k] * problem->sigma[k];
    for (size_t k = 0; k < nc; k++) {
        t->scale[0][k] = (float)(problem->sigma[k] * problem->sigma[k] / sum / (double)problem->batch);
        t->scale[1][k] = (float)(problem->sigma[k] * problem->sigma[k] / sum / (double)left);
    }
    return SPX_OK;
}
