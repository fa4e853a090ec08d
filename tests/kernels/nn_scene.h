/* Provides lessons for tests of the training of networks, and its steps in plain loops in double precision. */
#ifndef NN_SCENE_H
#define NN_SCENE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "device.h"
#include "random.h"
#include "template/nn_steps.h"

enum { MOST_ROWS = 700 };

/* A problem of its own: outputs that depend smoothly on the inputs. */
typedef struct {
    spx_nn nn;
    spx_nn_problem problem;
    size_t total, nrow;
    float *x, *z, *weight;
    double *sigma;
    int32_t row[MOST_ROWS];
} scene;

static inline void make_scene(scene *s, size_t nrow, size_t nlayer, const size_t *size, size_t epoch, size_t batch)
{
    size_t nweight, nbias, nin = size[0], nout = size[nlayer];
    *s = (scene){.nn = {.nlayer = nlayer}, .nrow = nrow};
    memcpy(s->nn.size, size, (nlayer + 1) * sizeof *size);
    spx_nn_count(&s->nn, &nweight, &nbias);
    s->total = nweight + nbias;
    s->x = need(nrow * nin, sizeof *s->x);
    s->z = need(nrow * nout, sizeof *s->z);
    s->weight = need(s->total, sizeof *s->weight);
    s->sigma = need(nout, sizeof *s->sigma);
    for (size_t i = 0; i < nrow; i++) {
        for (size_t p = 0; p < nin; p++)
            s->x[i * nin + p] = (float)(2 * uniform() - 1);
        for (size_t k = 0; k < nout; k++)
            s->z[i * nout + k] = (float)sin((double)(k % 7) * (double)s->x[i * nin] + (double)k +
                                            (double)(k % 3) * (double)s->x[i * nin + nin - 1]);
    }
    for (size_t k = 0; k < nout; k++)
        s->sigma[k] = 1 / (1 + 0.3 * (double)k);
    float *w = s->weight;
    for (size_t l = 0; l < nlayer; l++)
        for (size_t i = 0; i < size[l] * size[l + 1]; i++)
            *w++ = (float)((2 * uniform() - 1) * sqrt(3.0 / (double)size[l]));
    for (size_t i = 0; i < nbias; i++)
        *w++ = (float)(uniform() - 0.5);
    for (size_t i = 0; i < nrow; i++) /* some in an order that is not theirs */
        s->row[i] = (int32_t)((i * 13 + 5) % nrow);
    s->problem = (spx_nn_problem){.nn = &s->nn,
                                  .nrow = nrow,
                                  .x = s->x,
                                  .z = s->z,
                                  .sigma = s->sigma,
                                  .epoch = epoch,
                                  .batch = batch,
                                  .most = nrow,
                                  .weight = s->weight};
}

static inline void free_scene(scene *s)
{
    spx_free(s->x);
    spx_free(s->z);
    spx_free(s->weight);
    spx_free(s->sigma);
}

/* ---- in plain loops ---- */

enum { WIDEST = 640 };

/* Sum of the loss of n rows; with `grad` also the gradient of half its mean over sum sigma^2. */
static inline double plain_loss(const scene *s, const double *weight, size_t n, const int32_t *row, double *grad)
{
    const size_t nl = s->nn.nlayer, *size = s->nn.size;
    static double y[SPX_NN_MAX_LAYER + 1][WIDEST], slope[SPX_NN_MAX_LAYER + 1][WIDEST], d[2][WIDEST];
    double sum = 0, total = 0;
    size_t nweight, nbias;
    spx_nn_count(&s->nn, &nweight, &nbias);
    for (size_t k = 0; k < size[nl]; k++)
        total += s->sigma[k] * s->sigma[k];
    if (grad)
        memset(grad, 0, s->total * sizeof *grad);
    for (size_t i = 0; i < n; i++) {
        const double *w = weight, *b = weight + nweight;
        for (size_t p = 0; p < size[0]; p++)
            y[0][p] = (double)s->x[(size_t)row[i] * size[0] + p];
        for (size_t l = 0; l < nl; l++) {
            for (size_t o = 0; o < size[l + 1]; o++) {
                double a = *b++;
                for (size_t j = 0; j < size[l]; j++)
                    a += *w++ * y[l][j];
                const double u = 1 / (1 + exp(-a));
                y[l + 1][o] = l + 1 < nl ? a * u : a;
                slope[l + 1][o] = l + 1 < nl ? u + a * u * (1 - u) : 1;
            }
        }
        for (size_t k = 0; k < size[nl]; k++) {
            const double off = y[nl][k] - (double)s->z[(size_t)row[i] * size[nl] + k];
            sum += s->sigma[k] * s->sigma[k] * off * off;
            d[nl % 2][k] = s->sigma[k] * s->sigma[k] * off / total / (double)n;
        }
        for (size_t l = nl; l-- > 0 && grad;) {
            const double *out = d[(l + 1) % 2];
            double *in = d[l % 2];
            w -= size[l] * size[l + 1];
            b -= size[l + 1];
            memset(in, 0, size[l] * sizeof *in);
            for (size_t o = 0; o < size[l + 1]; o++) {
                grad[b - weight + (ptrdiff_t)o] += out[o];
                for (size_t j = 0; j < size[l]; j++) {
                    grad[w - weight + (ptrdiff_t)(o * size[l] + j)] += out[o] * y[l][j];
                    in[j] += out[o] * w[o * size[l] + j] * (l > 0 ? slope[l][j] : 1);
                }
            }
        }
    }
    return sum;
}

typedef struct {
    double *w, *m, *v, *grad;
} plain;

static inline void plain_step(const scene *s, plain *p, size_t n, const int32_t *row, const spx_nn_rate *rate)
{
    (void)plain_loss(s, p->w, n, row, p->grad);
    for (size_t i = 0; i < s->total; i++) {
        p->m[i] = 0.9 * p->m[i] + 0.1 * p->grad[i];
        p->v[i] = 0.999 * p->v[i] + 0.001 * p->grad[i] * p->grad[i];
        p->w[i] -= (double)rate->size * p->m[i] / (sqrt((double)rate->norm * p->v[i]) + 1e-8);
    }
}

static inline spx_nn_rate rate_at(size_t count)
{
    return (spx_nn_rate){(float)(2e-3 / (1 - pow(0.9, (double)count))), (float)(1 / (1 - pow(0.999, (double)count)))};
}

#endif
