/* Trains the interpolating network: minibatch Adam with a cosine decay of the step (Loshchilov & Hutter 2017,
 * arXiv:1608.03983), by the steps of a backend (nn_steps.h), and then the last layer, which is linear, by least
 * squares, where there are templates enough.
 *
 * The loss is the sum of squares over the coefficients of the components, which are orthonormal: it is the sum of
 * squares in ln flux over the pixels. Each coefficient is trained in units of its standard deviation, with that as its
 * weight, so that the last layer starts as the components themselves. A setup is trained by one thread with BLAS on one
 * thread, or by one device, and random numbers come from a counter: the result depends on the seed alone, and on what
 * computes the steps. */
#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/order.h"
#include "sim/sim_math.h"
#include "spectral/nn_math.h"
#include "template/nn_steps.h"
#include "template/template.h"
#include "template/template_impl.h"

enum {
    BATCH = 64, /* most templates of a step */
    LOOK = 10,  /* epochs between checks of the validation templates */
    MIN_TRAIN = 20,
    ENOUGH = 4 /* templates for each unknown of the last layer's least squares, against overfitting */
};
static const double STEP_FIRST = 4e-3, STEP_LAST = 1e-5;
static const double SPACING = 0.25;                      /* distance of neighbouring templates in units of the inputs */
static const double RIDGE[] = {1e-10, 1e-8, 1e-6, 1e-4}; /* ridges tried, in units of the mean diagonal */

/* Streams of random numbers. */
enum { DRAW_WEIGHT = 101, DRAW_SPLIT, DRAW_ORDER };

typedef struct {
    const spx_setup *s;
    spx_nn *nn;
    size_t ntrain, ncheck, ntest; /* numbers of templates for training, validation (stopping) and test, in this order in
                                   * rows[] */
    int32_t *rows;
    size_t nin, nout, nhidden; /* width of the last hidden layer */
    size_t nweight, nbias;     /* weights, then biases, in one array */
    float *x, *z;              /* [ntemp] inputs and scaled coefficients */
    double *sigma, *middle;    /* [nout] */
    float *best;               /* weights and biases: initial, then the best so far */
    spx_nn_problem problem;
} training;

static double random_uniform(uint64_t seed, uint32_t what, uint64_t index)
{
    uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), what, 0}, r[4];
    spx_philox(seed, c, r);
    return ((double)r[0] + 0.5) * 0x1p-32;
}

/* Fisher-Yates shuffle; `draw` counts the random numbers used. */
static void shuffle(uint64_t seed, uint32_t what, uint64_t *draw, size_t n, int32_t *v)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)(random_uniform(seed, what, (*draw)++) * (double)i);
        int32_t keep = v[i - 1];
        v[i - 1] = v[j];
        v[j] = keep;
    }
}

static void training_free(training *t)
{
    spx_free(t->rows);
    spx_free(t->x);
    spx_free(t->z);
    spx_free(t->sigma);
    spx_free(t->middle);
    spx_free(t->best);
}

/* Splits the library's own rows at random: a twentieth for validation, a twentieth for test, the rest for training. */
static spx_status split(training *t, uint64_t seed, spx_err *e)
{
    size_t n = 0;
    uint64_t draw = 0;
    if (!(t->rows = spx_alloc(t->s->ntemp, sizeof *t->rows, e)))
        return SPX_EIO;
    for (size_t i = 0; i < t->s->ntemp; i++)
        if (!t->s->filled || !t->s->filled[i])
            t->rows[n++] = (int32_t)i;
    if (n < MIN_TRAIN)
        return spx_fail(
            e, SPX_EINPUT,
            "a network cannot learn from %zu spectra: give a library of %d at least, or leave {train_nn} out", n,
            MIN_TRAIN);
    shuffle(seed, DRAW_SPLIT, &draw, n, t->rows);
    t->ncheck = t->ntest = (n + 19) / 20;
    t->ntrain = n - t->ncheck - t->ntest;
    t->problem.epoch = t->ntrain;
    t->problem.batch = t->ntrain / 16 < 4 ? 4 : (t->ntrain / 16 < BATCH ? t->ntrain / 16 : BATCH);
    t->problem.most = t->ncheck;
    return SPX_OK;
}

/* Range of the input for parameter p: SPACING between neighbours, so that the network, which at the start turns over
 * about 1, is smooth between them. A parameter of two values in -1 ... 1 would be free to do anything in between. */
static spx_status width(const training *t, size_t p, double *range, spx_err *e)
{
    size_t n = t->s->ntemp, distinct = 1;
    double *v = spx_alloc(n, sizeof *v, e);
    if (!v)
        return SPX_EIO;
    for (size_t i = 0; i < n; i++)
        v[i] = t->s->params[i * t->nin + p];
    qsort(v, n, sizeof *v, spx_by_f64);
    for (size_t i = 1; i < n; i++)
        distinct += v[i] - v[i - 1] > 1e-4 * (v[n - 1] - v[0]);
    *range = fmin(2, SPACING * (double)(distinct - 1));
    spx_free(v);
    return SPX_OK;
}

/* Scales inputs to at most -1 ... 1 over the range of all templates, coefficients to mean 0 and standard deviation
 * 1. */
static spx_status scale(training *t, spx_err *e)
{
    const spx_setup *s = t->s;
    spx_nn *nn = t->nn;
    size_t n = s->ntemp, np = t->nin, nc = t->nout;
    if (!(t->x = spx_alloc2(n, np, sizeof *t->x, e)) || !(t->z = spx_alloc2(n, nc, sizeof *t->z, e)) ||
        !(t->sigma = spx_alloc(nc, sizeof *t->sigma, e)) || !(t->middle = spx_alloc(nc, sizeof *t->middle, e)))
        return SPX_EIO;
    for (size_t p = 0; p < np; p++) {
        nn->lo[p] = HUGE_VAL;
        nn->hi[p] = -HUGE_VAL;
        for (size_t i = 0; i < n; i++) {
            double v = s->params[i * np + p];
            v = s->parlog[p] ? log10(v) : v;
            nn->lo[p] = fmin(nn->lo[p], v);
            nn->hi[p] = fmax(nn->hi[p], v);
        }
        nn->offset[p] = 0.5 * (nn->lo[p] + nn->hi[p]);
        double range;
        if (width(t, p, &range, e) != SPX_OK)
            return SPX_EIO;
        nn->scale[p] = nn->hi[p] > nn->lo[p] ? range / (nn->hi[p] - nn->lo[p]) : 0;
        for (size_t i = 0; i < n; i++) {
            double v = s->params[i * np + p];
            t->x[i * np + p] = (float)(((s->parlog[p] ? log10(v) : v) - nn->offset[p]) * nn->scale[p]);
        }
    }
    for (size_t k = 0; k < nc; k++) {
        double sum = 0, sum2 = 0;
        for (size_t i = 0; i < n; i++)
            sum += s->pca.coef[i * nc + k];
        t->middle[k] = sum / (double)n;
        for (size_t i = 0; i < n; i++) {
            double d = s->pca.coef[i * nc + k] - t->middle[k];
            sum2 += d * d;
        }
        t->sigma[k] = sum2 > 0 ? sqrt(sum2 / (double)n) : 1;
        for (size_t i = 0; i < n; i++)
            t->z[i * nc + k] = (float)((s->pca.coef[i * nc + k] - t->middle[k]) / t->sigma[k]);
    }
    return SPX_OK;
}

/* Initial weights: uniform, of variance 1 / inputs; kinks of the first layer all over the range. */
static spx_status init_weights(training *t, uint64_t seed, spx_err *e)
{
    const spx_nn *nn = t->nn;
    if (!(t->best = spx_alloc(t->nweight + t->nbias, sizeof *t->best, e)))
        return SPX_EIO;
    float *w = t->best, *b = t->best + t->nweight;
    uint64_t draw = 0;
    for (size_t l = 0; l < nn->nlayer; l++) {
        size_t nin = nn->size[l], nout = nn->size[l + 1];
        double range = l == 0 ? 1.5 : sqrt(3.0 / (double)nin);
        for (size_t i = 0; i < nin * nout; i++)
            *w++ = (float)(range * (2 * random_uniform(seed, DRAW_WEIGHT, draw++) - 1));
        for (size_t i = 0; i < nout; i++, b++)
            *b = l == 0 ? (float)(2 * random_uniform(seed, DRAW_WEIGHT, draw++) - 1) : 0;
    }
    t->problem.nn = nn;
    t->problem.nrow = t->s->ntemp;
    t->problem.x = t->x;
    t->problem.z = t->z;
    t->problem.sigma = t->sigma;
    t->problem.weight = t->best;
    return SPX_OK;
}

/* Size of step `count`, counted from 1, of `all`. */
static spx_nn_rate rate_of(size_t count, size_t all)
{
    double phase = (double)(count - 1) / (double)all;
    double step = STEP_LAST + 0.5 * (STEP_FIRST - STEP_LAST) * (1 + cos(M_PI * phase));
    return (spx_nn_rate){(float)(step / (1 - pow(SPX_NN_BETA1, (double)count))),
                         (float)(1 / (1 - pow(SPX_NN_BETA2, (double)count)))};
}

/* Runs epochs until the validation loss no longer decreases; the best weights are left in t->best. */
static spx_status descend(training *t, const spx_nn_training *how, spx_err *e)
{
    const size_t nstep = spx_nn_steps(&t->problem), n = t->ntrain;
    size_t count = 0, chosen = 0;
    double best = HUGE_VAL, now;
    uint64_t draw = 0;
    spx_nn_trainer trainer = {0};
    int32_t *order = spx_alloc2(LOOK + 1, n, sizeof *order, e); /* order of rows in each epoch, and in the one before */
    spx_nn_rate *rate = spx_alloc2(LOOK, nstep, sizeof *rate, e);
    spx_status st = order && rate ? SPX_OK : SPX_EIO;
    if (st == SPX_OK)
        st = (how->open ? how->open : spx_nn_open_cpu)(how->device, &t->problem, &trainer, e);
    if (st == SPX_OK)
        memcpy(order + LOOK * n, t->rows, n * sizeof *order);
    for (size_t epoch = 0; st == SPX_OK && epoch < how->epochs && epoch <= chosen + how->epochs / 4 + LOOK;) {
        size_t some = how->epochs - epoch < LOOK ? how->epochs - epoch : LOOK;
        for (size_t k = 0; k < some; k++) {
            shuffle(how->seed, DRAW_ORDER, &draw, n, order + LOOK * n);
            memcpy(order + k * n, order + LOOK * n, n * sizeof *order);
        }
        for (size_t k = 0; k < some * nstep; k++)
            rate[k] = rate_of(++count, how->epochs * nstep);
        st = trainer.descend(&trainer, some, order, rate, e);
        epoch += some;
        if (st == SPX_OK)
            st = trainer.loss(&trainer, t->ncheck, t->rows + n, &now, e);
        if (st == SPX_OK && now < best) {
            best = now;
            chosen = epoch;
            st = trainer.weights(&trainer, t->best, e);
        }
    }
    if (trainer.close)
        trainer.close(&trainer);
    spx_free(order);
    spx_free(rate);
    return st;
}

/* Solves the last layer by ridge regression in double precision, for several ridges, and keeps the best if it improves
 * on Adam's. SPX_EIO: memory. */
static spx_status solve_last(training *t, spx_err *e)
{
    size_t h = t->nhidden, m = h + 1, nc = t->nout, at = t->nweight - h * nc, bias = t->nweight + t->nbias - nc;
    size_t total = t->nweight + t->nbias;
    spx_nn_trainer trainer = {0};
    float *w = spx_alloc(total, sizeof *w, e), *hidden = spx_alloc2(t->ntrain, h, sizeof *hidden, e);
    double *y = spx_alloc2(t->ntrain, m, sizeof *y, e), *z = spx_alloc2(t->ntrain, nc, sizeof *z, e);
    double *normal = spx_alloc2(m, m, sizeof *normal, e), *a = spx_alloc2(m, m, sizeof *a, e);
    double *rhs = spx_alloc2(m, nc, sizeof *rhs, e), *b = spx_alloc2(m, nc, sizeof *b, e), diag = 0, best, now;
    spx_status st = w && hidden && y && z && normal && a && rhs && b ? SPX_OK : SPX_EIO;
    if (st == SPX_OK)
        st = spx_nn_open_cpu(NULL, &t->problem, &trainer, e);
    if (st == SPX_OK)
        st = trainer.loss(&trainer, t->ncheck, t->rows + t->ntrain, &best, e);
    if (st != SPX_OK)
        goto end;
    memcpy(w, t->best, total * sizeof *w);
    spx_nn_hidden_cpu(&trainer, t->ntrain, t->rows, hidden);
    for (size_t i = 0; i < t->ntrain; i++) {
        for (size_t j = 0; j < h; j++)
            y[i * m + j] = (double)hidden[i * h + j];
        y[i * m + h] = 1;
        for (size_t k = 0; k < nc; k++)
            z[i * nc + k] = (double)t->z[(size_t)t->rows[i] * nc + k];
    }
    cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, (int)m, (int)t->ntrain, 1, y, (int)m, 0, normal, (int)m);
    cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)m, (int)nc, (int)t->ntrain, 1, y, (int)m, z, (int)nc, 0,
                rhs, (int)nc);
    for (size_t j = 0; j < m; j++)
        diag += normal[j * m + j] / (double)m;
    for (size_t r = 0; r < sizeof RIDGE / sizeof *RIDGE && st == SPX_OK; r++) {
        memcpy(a, normal, m * m * sizeof *a);
        memcpy(b, rhs, m * nc * sizeof *b);
        for (size_t j = 0; j < m; j++)
            a[j * m + j] += RIDGE[r] * diag;
        if (LAPACKE_dposv(LAPACK_ROW_MAJOR, 'L', (int)m, (int)nc, a, (int)m, b, (int)nc) != 0)
            continue;
        for (size_t k = 0; k < nc; k++) {
            for (size_t j = 0; j < h; j++)
                w[at + k * h + j] = (float)b[j * nc + k];
            w[bias + k] = (float)b[h * nc + k];
        }
        spx_nn_put_cpu(&trainer, w);
        st = trainer.loss(&trainer, t->ncheck, t->rows + t->ntrain, &now, e);
        if (st == SPX_OK && now < best) {
            best = now;
            memcpy(t->best, w, total * sizeof *w);
        }
    }
end:
    if (trainer.close)
        trainer.close(&trainer);
    spx_free(w);
    spx_free(hidden);
    spx_free(y);
    spx_free(z);
    spx_free(normal);
    spx_free(a);
    spx_free(rhs);
    spx_free(b);
    return st;
}

/* Stores the weights in the network, in units of the coefficients. */
static void store(training *t)
{
    size_t h = t->nhidden, nc = t->nout, at = t->nweight - h * nc, bias = t->nbias - nc;
    memcpy(t->nn->weight, t->best, t->nweight * sizeof *t->best);
    memcpy(t->nn->bias, t->best + t->nweight, t->nbias * sizeof *t->best);
    for (size_t k = 0; k < nc; k++) {
        for (size_t j = 0; j < h; j++)
            t->nn->weight[at + k * h + j] = (float)(t->sigma[k] * (double)t->nn->weight[at + k * h + j]);
        t->nn->bias[bias + k] = (float)(t->sigma[k] * (double)t->nn->bias[bias + k] + t->middle[k]);
    }
}

/* Measures the error of the stored network on the test templates, in ln flux over all pixels. */
static spx_status report(const training *t, spx_err *e)
{
    const spx_setup *s = t->s;
    spx_nn *nn = t->nn;
    size_t nw = s->nwave, nc = t->nout;
    double *work = spx_alloc2(2, spx_nn_width(nn), sizeof *work, e), *coef = spx_alloc(nc, sizeof *coef, e);
    double *x = spx_alloc(nw, sizeof *x, e), par[SPX_MAX_PAR], sum = 0;
    spx_status st = work && coef && x ? SPX_OK : SPX_EIO;
    nn->max = 0;
    for (size_t i = 0; i < t->ntest && st == SPX_OK; i++) {
        size_t row = t->rows[t->ntrain + t->ncheck + i];
        for (size_t p = 0; p < s->npar; p++) {
            par[p] = s->params[row * s->npar + p];
            par[p] = s->parlog[p] ? log10(par[p]) : par[p];
        }
        spx_nn_evaluate(nn, par, 1, NULL, work, coef);
        for (size_t k = 0; k < nw; k++)
            x[k] = (double)s->lnflux[row * nw + k] - s->pca.mean[k];
        for (size_t c = 0; c < nc; c++)
            for (size_t k = 0; k < nw; k++)
                x[k] -= coef[c] * (double)s->pca.comp[c * nw + k];
        for (size_t k = 0; k < nw; k++) {
            sum += x[k] * x[k];
            nn->max = fmax(nn->max, fabs(x[k]));
        }
    }
    nn->rms = sqrt(sum / (double)t->ntest / (double)nw);
    spx_free(work);
    spx_free(coef);
    spx_free(x);
    return st;
}

spx_status spx_template_train(spx_setup *s, const spx_nn_training *how, spx_err *e)
{
    spx_nn *nn = &s->nn;
    if (s->pca.ncomp < 1)
        return spx_fail_remedy(e, SPX_EINPUT, "lower {pca} and {pca_max}, or leave {train_nn} out",
                               "all templates are alike within the limits of {pca}, which needs no component: there is "
                               "nothing for a network to learn");
    if (how->nhidden < 1 || how->nhidden >= SPX_NN_MAX_LAYER || how->epochs < 1)
        return spx_fail(e, SPX_EUSAGE, "a network of %zu hidden layers, trained for %zu epochs, is not possible",
                        how->nhidden, how->epochs);
    *nn = (spx_nn){.activation = SPX_NN_SILU, .nlayer = how->nhidden + 1};
    training t = {.s = s, .nn = nn, .nin = s->npar, .nout = s->pca.ncomp, .nhidden = how->hidden[how->nhidden - 1]};
    nn->size[0] = s->npar;
    for (size_t l = 0; l < how->nhidden; l++) {
        nn->size[l + 1] = how->hidden[l];
        if (how->hidden[l] < 1 || how->hidden[l] > SPX_NN_MAX_WIDTH)
            return spx_fail(e, SPX_EUSAGE, "a layer of %zu neurons is not possible", how->hidden[l]);
    }
    nn->size[nn->nlayer] = s->pca.ncomp;
    spx_nn_count(nn, &t.nweight, &t.nbias);
    t.problem.number = how->number;
    spx_status st = split(&t, how->seed, e);
    if (st == SPX_OK)
        st = scale(&t, e);
    if (st == SPX_OK)
        st = init_weights(&t, how->seed, e);
    if (st == SPX_OK && (!(nn->weight = spx_alloc(t.nweight, sizeof *nn->weight, e)) ||
                         !(nn->bias = spx_alloc(t.nbias, sizeof *nn->bias, e))))
        st = SPX_EIO;
    if (st == SPX_OK)
        st = descend(&t, how, e);
    if (st == SPX_OK && t.ntrain >= ENOUGH * (t.nhidden + 1))
        st = solve_last(&t, e);
    if (st == SPX_OK) {
        store(&t);
        st = report(&t, e);
    }
    training_free(&t);
    return st;
}
