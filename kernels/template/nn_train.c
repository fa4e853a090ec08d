/* Training of the network that interpolates: minibatch Adam (Kingma & Ba 2015, arXiv:1412.6980) with a cosine decay of
 * the step (Loshchilov & Hutter 2017, arXiv:1608.03983), and then the last layer, which is linear, by least squares,
 * where there are templates enough.
 *
 * The loss is the sum of squares over the coefficients of the components, which are orthonormal: it is the sum of
 * squares in ln flux over the pixels. Each coefficient is trained in units of its standard deviation, with that as its
 * weight, so that the last layer starts as the components themselves. A setup is trained by one thread with BLAS on one
 * thread, and random numbers come from a counter: the result depends on the seed alone. */
#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sim/sim_math.h"
#include "template/nn_math.h"
#include "template/template.h"

enum {
    BATCH = 64, /* templates of a step, at most */
    LOOK = 10,  /* epochs between looks at the held-out templates */
    MIN_TRAIN = 20,
    ENOUGH = 4 /* templates for each unknown of the last layer's least squares; with fewer they would fit anything */
};
static const double STEP_FIRST = 4e-3, STEP_LAST = 1e-5, BETA1 = 0.9, BETA2 = 0.999, EPSILON = 1e-8;
static const double SPACING = 0.25;                      /* of neighbours, as inputs */
static const double RIDGE[] = {1e-10, 1e-8, 1e-6, 1e-4}; /* tried, in units of the mean diagonal */

/* Which random number. */
enum { DRAW_WEIGHT = 101, DRAW_SPLIT, DRAW_ORDER };

typedef struct {
    const spx_setup *s;
    spx_nn *nn;
    size_t ntrain, ncheck, ntest; /* rows[] has the templates to learn from, to stop by, and to report on */
    size_t batch;                 /* templates of a step: a sixteenth, within limits */
    size_t *rows, *order;
    size_t nin, nout, nhidden; /* width of the last hidden layer */
    size_t nweight, nbias;     /* weights, then biases, in one array */
    float *x, *z;              /* [ntemp] inputs and scaled coefficients */
    double *sigma, *middle;    /* [nout] */
    float *w, *grad, *m, *v, *best;
    float *y[SPX_NN_MAX_LAYER + 1], *d[SPX_NN_MAX_LAYER + 1]; /* [rows][size] layers and derivatives */
    float *back[2];
} trainer;

static double random_uniform(uint64_t seed, uint32_t what, uint64_t index)
{
    uint32_t c[4] = {(uint32_t)index, (uint32_t)(index >> 32), what, 0}, r[4];
    spx_philox(seed, c, r);
    return ((double)r[0] + 0.5) * 0x1p-32;
}

/* Fisher-Yates; `draw` counts the numbers that were used. */
static void shuffle(uint64_t seed, uint32_t what, uint64_t *draw, size_t n, size_t *v)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)(random_uniform(seed, what, (*draw)++) * (double)i), keep = v[i - 1];
        v[i - 1] = v[j];
        v[j] = keep;
    }
}

static void trainer_free(trainer *t)
{
    spx_free(t->rows);
    spx_free(t->order);
    spx_free(t->x);
    spx_free(t->z);
    spx_free(t->sigma);
    spx_free(t->middle);
    spx_free(t->w);
    spx_free(t->grad);
    spx_free(t->m);
    spx_free(t->v);
    spx_free(t->best);
    for (size_t l = 0; l <= SPX_NN_MAX_LAYER; l++) {
        spx_free(t->y[l]);
        spx_free(t->d[l]);
    }
    spx_free(t->back[0]);
    spx_free(t->back[1]);
}

/* Rows that are the library's own, in random order: a twentieth to stop by, another to report on, the rest to learn. */
static spx_status split(trainer *t, uint64_t seed, spx_err *e)
{
    size_t n = 0;
    uint64_t draw = 0;
    if (!(t->rows = spx_alloc(t->s->ntemp, sizeof *t->rows, e)) ||
        !(t->order = spx_alloc(t->s->ntemp, sizeof *t->order, e)))
        return SPX_EIO;
    for (size_t i = 0; i < t->s->ntemp; i++)
        if (!t->s->filled || !t->s->filled[i])
            t->rows[n++] = i;
    if (n < MIN_TRAIN)
        return spx_fail(e, SPX_EINPUT, "a network cannot learn from %zu spectra: %d are the least", n, MIN_TRAIN);
    shuffle(seed, DRAW_SPLIT, &draw, n, t->rows);
    t->ncheck = t->ntest = (n + 19) / 20;
    t->ntrain = n - t->ncheck - t->ntest;
    t->batch = t->ntrain / 16 < 4 ? 4 : (t->ntrain / 16 < BATCH ? t->ntrain / 16 : BATCH);
    for (size_t i = 0; i < t->ntrain; i++)
        t->order[i] = i;
    return SPX_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Range of the input for parameter p: SPACING between neighbours, so that the network, which at the start turns over
 * about 1, is smooth between them. A parameter of two values in -1 ... 1 would be free to do anything in between. */
static spx_status width(const trainer *t, size_t p, double *range, spx_err *e)
{
    size_t n = t->s->ntemp, distinct = 1;
    double *v = spx_alloc(n, sizeof *v, e);
    if (!v)
        return SPX_EIO;
    for (size_t i = 0; i < n; i++)
        v[i] = t->s->params[i * t->nin + p];
    qsort(v, n, sizeof *v, by_value);
    for (size_t i = 1; i < n; i++)
        distinct += v[i] - v[i - 1] > 1e-4 * (v[n - 1] - v[0]);
    *range = fmin(2, SPACING * (double)(distinct - 1));
    spx_free(v);
    return SPX_OK;
}

/* Inputs to at most -1 ... 1 over the range of all templates, coefficients to mean 0 and standard deviation 1. */
static spx_status scale(trainer *t, spx_err *e)
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

/* Weights: uniform, of variance 1 / inputs; kinks of the first layer all over the range. */
static spx_status begin(trainer *t, uint64_t seed, spx_err *e)
{
    const spx_nn *nn = t->nn;
    size_t total = t->nweight + t->nbias, width = spx_nn_width(nn);
    size_t most = t->ntrain > t->ncheck + t->ntest ? t->ntrain : t->ncheck + t->ntest;
    int ok = (t->w = spx_alloc(total, sizeof *t->w, e)) && (t->grad = spx_alloc(total, sizeof *t->grad, e)) &&
             (t->m = spx_alloc(total, sizeof *t->m, e)) && (t->v = spx_alloc(total, sizeof *t->v, e)) &&
             (t->best = spx_alloc(total, sizeof *t->best, e)) &&
             (t->back[0] = spx_alloc2(BATCH, width, sizeof *t->back[0], e)) &&
             (t->back[1] = spx_alloc2(BATCH, width, sizeof *t->back[1], e));
    most = most > BATCH ? most : BATCH;
    for (size_t l = 0; l <= nn->nlayer && ok; l++)
        ok = (t->y[l] = spx_alloc2(most, nn->size[l], sizeof *t->y[l], e)) &&
             (t->d[l] = spx_alloc2(most, nn->size[l], sizeof *t->d[l], e));
    if (!ok)
        return SPX_EIO;
    float *w = t->w, *b = t->w + t->nweight;
    uint64_t draw = 0;
    for (size_t l = 0; l < nn->nlayer; l++) {
        size_t nin = nn->size[l], nout = nn->size[l + 1];
        double range = l == 0 ? 1.5 : sqrt(3.0 / (double)nin);
        for (size_t i = 0; i < nin * nout; i++)
            *w++ = (float)(range * (2 * random_uniform(seed, DRAW_WEIGHT, draw++) - 1));
        for (size_t i = 0; i < nout; i++, b++)
            *b = l == 0 ? (float)(2 * random_uniform(seed, DRAW_WEIGHT, draw++) - 1) : 0;
    }
    return SPX_OK;
}

/* Layers 1 ... last of n rows from y[0]; with `slopes` also the derivatives of the activations. */
static void forward(trainer *t, size_t n, size_t last, int slopes)
{
    const spx_nn *nn = t->nn;
    const float *w = t->w, *b = t->w + t->nweight;
    for (size_t l = 0; l < last; l++) {
        size_t nin = nn->size[l], nout = nn->size[l + 1];
        float *y = t->y[l + 1], *d = t->d[l + 1];
        for (size_t i = 0; i < n; i++)
            memcpy(y + i * nout, b, nout * sizeof *y);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)n, (int)nout, (int)nin, 1, t->y[l], (int)nin, w,
                    (int)nin, 1, y, (int)nout);
        for (size_t i = 0; i < n * nout && l + 1 < nn->nlayer; i++) {
            float a = y[i], u = 1 / (1 + expf(-a));
            y[i] = a * u;
            if (slopes)
                d[i] = u + y[i] * (1 - u);
        }
        w += nin * nout;
        b += nout;
    }
}

static void take(trainer *t, size_t n, const size_t *row)
{
    for (size_t i = 0; i < n; i++)
        memcpy(t->y[0] + i * t->nin, t->x + row[i] * t->nin, t->nin * sizeof *t->x);
}

/* Gradient of the loss of n templates, over the sum of the weights. */
static void gradient(trainer *t, size_t n, const size_t *row, double total)
{
    const spx_nn *nn = t->nn;
    size_t nc = t->nout;
    take(t, n, row);
    forward(t, n, nn->nlayer, 1);
    float *delta = t->back[0], *next = t->back[1];
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < nc; k++)
            delta[i * nc + k] = (float)(t->sigma[k] * t->sigma[k] / total / (double)n) *
                                (t->y[nn->nlayer][i * nc + k] - t->z[row[i] * nc + k]);
    size_t at = t->nweight, bias = t->nweight + t->nbias;
    for (size_t l = nn->nlayer; l-- > 0;) {
        size_t nin = nn->size[l], nout = nn->size[l + 1];
        at -= nin * nout;
        bias -= nout;
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)nout, (int)nin, (int)n, 1, delta, (int)nout, t->y[l],
                    (int)nin, 0, t->grad + at, (int)nin);
        memset(t->grad + bias, 0, nout * sizeof *t->grad);
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k < nout; k++)
                t->grad[bias + k] += delta[i * nout + k];
        if (l == 0)
            break;
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)n, (int)nin, (int)nout, 1, delta, (int)nout,
                    t->w + at, (int)nin, 0, next, (int)nin);
        for (size_t i = 0; i < n * nin; i++)
            next[i] *= t->d[l][i];
        float *swap = delta;
        delta = next;
        next = swap;
    }
}

static void adam(trainer *t, size_t count, double step)
{
    float b1 = (float)BETA1, b2 = (float)BETA2, tiny = (float)EPSILON;
    float size = (float)(step / (1 - pow(BETA1, (double)count)));
    float norm = (float)(1 / (1 - pow(BETA2, (double)count)));
    for (size_t i = 0; i < t->nweight + t->nbias; i++) {
        float g = t->grad[i];
        t->m[i] = b1 * t->m[i] + (1 - b1) * g;
        t->v[i] = b2 * t->v[i] + (1 - b2) * g * g;
        t->w[i] -= size * t->m[i] / (sqrtf(t->v[i] * norm) + tiny);
    }
}

/* Sum over n templates of the squared error in ln flux, within the components. */
static double loss(trainer *t, size_t n, const size_t *row)
{
    double sum = 0;
    take(t, n, row);
    forward(t, n, t->nn->nlayer, 0);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < t->nout; k++) {
            double d = t->sigma[k] * (double)(t->y[t->nn->nlayer][i * t->nout + k] - t->z[row[i] * t->nout + k]);
            sum += d * d;
        }
    return sum;
}

/* Epochs until nothing more is gained; the weights that do best on the templates to stop by are left in t->w. */
static void descend(trainer *t, const spx_nn_training *how)
{
    size_t per_epoch = (t->ntrain + t->batch - 1) / t->batch, count = 0, chosen = 0;
    double total = 0, best = HUGE_VAL;
    uint64_t draw = 0;
    for (size_t k = 0; k < t->nout; k++)
        total += t->sigma[k] * t->sigma[k];
    for (size_t epoch = 0; epoch < how->epochs && epoch <= chosen + how->epochs / 4 + LOOK; epoch++) {
        size_t row[BATCH];
        shuffle(how->seed, DRAW_ORDER, &draw, t->ntrain, t->order);
        for (size_t first = 0; first < t->ntrain; first += t->batch) {
            size_t n = t->ntrain - first < t->batch ? t->ntrain - first : t->batch;
            double phase = (double)count / (double)(how->epochs * per_epoch);
            for (size_t i = 0; i < n; i++)
                row[i] = t->rows[t->order[first + i]];
            gradient(t, n, row, total);
            adam(t, ++count, STEP_LAST + 0.5 * (STEP_FIRST - STEP_LAST) * (1 + cos(M_PI * phase)));
        }
        if ((epoch + 1) % LOOK != 0 && epoch + 1 != how->epochs)
            continue;
        double now = loss(t, t->ncheck, t->rows + t->ntrain);
        if (now < best) {
            best = now;
            chosen = epoch;
            memcpy(t->best, t->w, (t->nweight + t->nbias) * sizeof *t->w);
        }
    }
    memcpy(t->w, t->best, (t->nweight + t->nbias) * sizeof *t->w);
}

/* Last layer by least squares with a ridge, in double precision; the best of several ridges, if any is better than what
 * Adam found. SPX_EIO: memory. */
static spx_status solve_last(trainer *t, spx_err *e)
{
    const spx_nn *nn = t->nn;
    size_t h = t->nhidden, m = h + 1, nc = t->nout, at = t->nweight - h * nc, bias = t->nweight + t->nbias - nc;
    spx_status st = SPX_EIO;
    double *y = spx_alloc2(t->ntrain, m, sizeof *y, e), *z = spx_alloc2(t->ntrain, nc, sizeof *z, e);
    double *normal = spx_alloc2(m, m, sizeof *normal, e), *a = spx_alloc2(m, m, sizeof *a, e);
    double *rhs = spx_alloc2(m, nc, sizeof *rhs, e), *b = spx_alloc2(m, nc, sizeof *b, e), diag = 0;
    if (!y || !z || !normal || !a || !rhs || !b)
        goto end;
    take(t, t->ntrain, t->rows);
    forward(t, t->ntrain, nn->nlayer - 1, 0);
    for (size_t i = 0; i < t->ntrain; i++) {
        for (size_t j = 0; j < h; j++)
            y[i * m + j] = (double)t->y[nn->nlayer - 1][i * h + j];
        y[i * m + h] = 1;
        for (size_t k = 0; k < nc; k++)
            z[i * nc + k] = (double)t->z[t->rows[i] * nc + k];
    }
    cblas_dsyrk(CblasRowMajor, CblasLower, CblasTrans, (int)m, (int)t->ntrain, 1, y, (int)m, 0, normal, (int)m);
    cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)m, (int)nc, (int)t->ntrain, 1, y, (int)m, z, (int)nc, 0,
                rhs, (int)nc);
    for (size_t j = 0; j < m; j++)
        diag += normal[j * m + j] / (double)m;
    double best = loss(t, t->ncheck, t->rows + t->ntrain);
    for (size_t r = 0; r < sizeof RIDGE / sizeof *RIDGE; r++) {
        memcpy(a, normal, m * m * sizeof *a);
        memcpy(b, rhs, m * nc * sizeof *b);
        for (size_t j = 0; j < m; j++)
            a[j * m + j] += RIDGE[r] * diag;
        if (LAPACKE_dposv(LAPACK_ROW_MAJOR, 'L', (int)m, (int)nc, a, (int)m, b, (int)nc) != 0)
            continue;
        for (size_t k = 0; k < nc; k++) {
            for (size_t j = 0; j < h; j++)
                t->w[at + k * h + j] = (float)b[j * nc + k];
            t->w[bias + k] = (float)b[h * nc + k];
        }
        double now = loss(t, t->ncheck, t->rows + t->ntrain);
        if (now < best) {
            best = now;
            memcpy(t->best, t->w, (t->nweight + t->nbias) * sizeof *t->w);
        }
    }
    memcpy(t->w, t->best, (t->nweight + t->nbias) * sizeof *t->w);
    st = SPX_OK;
end:
    spx_free(y);
    spx_free(z);
    spx_free(normal);
    spx_free(a);
    spx_free(rhs);
    spx_free(b);
    return st;
}

/* Weights to the network, in units of the coefficients. */
static void store(trainer *t)
{
    size_t h = t->nhidden, nc = t->nout, at = t->nweight - h * nc, bias = t->nbias - nc;
    memcpy(t->nn->weight, t->w, t->nweight * sizeof *t->w);
    memcpy(t->nn->bias, t->w + t->nweight, t->nbias * sizeof *t->w);
    for (size_t k = 0; k < nc; k++) {
        for (size_t j = 0; j < h; j++)
            t->nn->weight[at + k * h + j] = (float)(t->sigma[k] * (double)t->nn->weight[at + k * h + j]);
        t->nn->bias[bias + k] = (float)(t->sigma[k] * (double)t->nn->bias[bias + k] + t->middle[k]);
    }
}

/* Error of the stored network in the ln flux of the templates to report on, all pixels. */
static spx_status report(const trainer *t, spx_err *e)
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
        return spx_fail(e, SPX_EINPUT, "there are no principal components for a network to learn");
    if (how->nhidden < 1 || how->nhidden >= SPX_NN_MAX_LAYER || how->epochs < 1)
        return spx_fail(e, SPX_EUSAGE, "a network of %zu hidden layers, trained for %zu epochs, is not possible",
                        how->nhidden, how->epochs);
    *nn = (spx_nn){.activation = SPX_NN_SILU, .nlayer = how->nhidden + 1};
    trainer t = {.s = s, .nn = nn, .nin = s->npar, .nout = s->pca.ncomp, .nhidden = how->hidden[how->nhidden - 1]};
    nn->size[0] = s->npar;
    for (size_t l = 0; l < how->nhidden; l++) {
        nn->size[l + 1] = how->hidden[l];
        if (how->hidden[l] < 1 || how->hidden[l] > SPX_NN_MAX_WIDTH)
            return spx_fail(e, SPX_EUSAGE, "a layer of %zu neurons is not possible", how->hidden[l]);
    }
    nn->size[nn->nlayer] = s->pca.ncomp;
    for (size_t l = 0; l < nn->nlayer; l++) {
        t.nweight += nn->size[l] * nn->size[l + 1];
        t.nbias += nn->size[l + 1];
    }
    spx_status st = split(&t, how->seed, e);
    if (st == SPX_OK)
        st = scale(&t, e);
    if (st == SPX_OK)
        st = begin(&t, how->seed, e);
    if (st == SPX_OK && (!(nn->weight = spx_alloc(t.nweight, sizeof *nn->weight, e)) ||
                         !(nn->bias = spx_alloc(t.nbias, sizeof *nn->bias, e))))
        st = SPX_EIO;
    if (st == SPX_OK) {
        descend(&t, how);
        if (t.ntrain >= ENOUGH * (t.nhidden + 1))
            st = solve_last(&t, e);
    }
    if (st == SPX_OK) {
        store(&t);
        st = report(&t, e);
    }
    trainer_free(&t);
    return st;
}
