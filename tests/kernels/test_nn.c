/* Network that interpolates: values against plain loops, derivatives against differences. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"
#include "template/nn_math.h"

static const uint64_t seed = 20261120;
static uint64_t state;

static double uniform(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) / 9007199254740992.0;
}

/* ---- arithmetic ---- */

static void random_network(spx_nn *nn, spx_nn_activation f, size_t nlayer, const size_t *size)
{
    size_t nweight = 0, nbias = 0;
    *nn = (spx_nn){.nlayer = nlayer, .activation = f, .slope = 0.01};
    memcpy(nn->size, size, (nlayer + 1) * sizeof *size);
    for (size_t l = 0; l < nlayer; l++) {
        nweight += size[l] * size[l + 1];
        nbias += size[l + 1];
    }
    nn->weight = spx_alloc(nweight, sizeof *nn->weight, NULL);
    nn->bias = spx_alloc(nbias, sizeof *nn->bias, NULL);
    if (!nn->weight || !nn->bias)
        exit(1);
    for (size_t i = 0; i < nweight; i++)
        nn->weight[i] = (float)(uniform() - 0.5);
    for (size_t i = 0; i < nbias; i++)
        nn->bias[i] = (float)(uniform() - 0.5);
    for (size_t p = 0; p < size[0]; p++) {
        nn->offset[p] = 10 * uniform();
        nn->scale[p] = 0.1 + uniform();
    }
}

/* The same by the formula, in long double. */
static void plain(const spx_nn *nn, const double *x, double *out)
{
    long double y[32], next[32];
    const float *w = nn->weight, *b = nn->bias;
    for (size_t p = 0; p < nn->size[0]; p++)
        y[p] = ((long double)x[p] - nn->offset[p]) * nn->scale[p];
    for (size_t l = 0; l < nn->nlayer; l++) {
        for (size_t i = 0; i < nn->size[l + 1]; i++) {
            long double a = *b++;
            for (size_t j = 0; j < nn->size[l]; j++)
                a += *w++ * y[j];
            if (l + 1 < nn->nlayer)
                a = nn->activation == SPX_NN_LEAKY     ? (a > 0 ? a : nn->slope * a)
                    : nn->activation == SPX_NN_SIGMOID ? 1 / (1 + expl(-a))
                                                       : a / (1 + expl(-a));
            next[i] = a;
        }
        memcpy(y, next, sizeof y);
    }
    for (size_t i = 0; i < nn->size[nn->nlayer]; i++)
        out[i] = (double)y[i];
}

static void arithmetic(void)
{
    static const spx_nn_activation all[] = {SPX_NN_SILU, SPX_NN_SIGMOID, SPX_NN_LEAKY};
    static const size_t deep[] = {4, 20, 17, 9}, flat[] = {1, 3};
    static const size_t gpar[] = {0, 1, 3}; /* parameter 2 has one value only */
    for (size_t k = 0; k < 4; k++) {
        spx_nn nn;
        random_network(&nn, all[k % 3], k < 3 ? 3 : 1, k < 3 ? deep : flat);
        size_t lanes = k < 3 ? 4 : 2, nout = nn.size[nn.nlayer], width = spx_nn_width(&nn);
        CHECK(width == (k < 3 ? 20 : 3), "width %zu", width);
        double x[4], coef[9 * 4], alone[9], want[9], up[9], down[9], work[2 * 20 * 4];
        for (size_t p = 0; p < 4; p++)
            x[p] = 10 * uniform();
        spx_nn_evaluate(&nn, x, lanes, gpar, work, coef);
        spx_nn_evaluate(&nn, x, 1, gpar, work, alone);
        plain(&nn, x, want);
        for (size_t i = 0; i < nout; i++)
            CHECK(fabs(coef[i * lanes] - want[i]) < 1e-13 && coef[i * lanes] == alone[i],
                  "network %zu: output %zu is %.17g, alone %.17g, want %.17g", k, i, coef[i * lanes], alone[i],
                  want[i]);
        for (size_t g = 0; g + 1 < lanes; g++) {
            double h = 1e-6, keep = x[gpar[g]];
            x[gpar[g]] = keep + h;
            plain(&nn, x, up);
            x[gpar[g]] = keep - h;
            plain(&nn, x, down);
            x[gpar[g]] = keep;
            for (size_t i = 0; i < nout; i++) {
                double d = (up[i] - down[i]) / (2 * h);
                CHECK(fabs(coef[i * lanes + 1 + g] - d) < 1e-7,
                      "network %zu: derivative %zu of output %zu is %g, want %g", k, g, i, coef[i * lanes + 1 + g], d);
            }
        }
        spx_free(nn.weight);
        spx_free(nn.bias);
    }
    /* far out nothing overflows */
    double d;
    CHECK(spx_nn_activate(SPX_NN_SILU, 0, -1e6, &d) == 0 && d == 0, "silu of -1e6");
    CHECK(spx_nn_activate(SPX_NN_SILU, 0, 1e6, &d) == 1e6 && d == 1, "silu of 1e6");
    CHECK(spx_nn_activate(SPX_NN_SIGMOID, 0, -1e6, &d) == 0 && d == 0, "sigmoid of -1e6");
}

int main(void)
{
    state = seed;
    arithmetic();
    if (failures)
        printf("seed %llu\n", (unsigned long long)seed);
    return failures != 0;
}
