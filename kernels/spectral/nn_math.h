/* Provides the evaluation of the interpolating network (products/templates.h, spx_nn): values and exact derivatives,
 * for host and device.
 *
 * A vector y of a layer is kept with its derivatives by some of the mapped parameters, y[n][lanes]: lane 0 is the
 * value, lane 1 + g the derivative by parameter gpar[g]. They go through the layers together: with a = W y + b, f(a)
 * and f'(a) da. */
#ifndef SPX_NN_MATH_H
#define SPX_NN_MATH_H

#include <math.h>
#include <stddef.h>

#include "hostdevice.h"
#include "products/templates.h"

/* f(a), and its derivative. */
SPX_HD double spx_nn_activate(spx_nn_activation f, double slope, double a, double *d)
{
    if (f == SPX_NN_LEAKY) {
        *d = a > 0 ? 1 : slope;
        return a > 0 ? a : slope * a;
    }
    double u = exp(-fabs(a)), s = (a > 0 ? 1 : u) / (1 + u), ds = u / ((1 + u) * (1 + u));
    *d = f == SPX_NN_SILU ? s + a * ds : ds;
    return f == SPX_NN_SILU ? a * s : s;
}

/* Widest layer, input and output included. */
SPX_HD size_t spx_nn_width(const spx_nn *nn)
{
    size_t width = 0;
    for (size_t l = 0; l <= nn->nlayer; l++)
        width = nn->size[l] > width ? nn->size[l] : width;
    return width;
}

/* Input y[size[0]][lanes] of the first layer at the mapped parameters x[size[0]]. */
SPX_HD void spx_nn_input(const spx_nn *nn, const double *x, size_t lanes, const size_t *gpar, double *y)
{
    for (size_t p = 0; p < nn->size[0]; p++) {
        y[p * lanes] = (x[p] - nn->offset[p]) * nn->scale[p];
        for (size_t g = 0; g + 1 < lanes; g++)
            y[p * lanes + 1 + g] = gpar[g] == p ? nn->scale[p] : 0;
    }
}

/* out[lanes]: one neuron with the weights w[n] and the bias b, of a layer's input y[n][lanes], lanes <= 1 +
 * SPX_MAX_PAR; `linear` in the last layer. */
SPX_HD void spx_nn_neuron(const spx_nn *nn, int linear, size_t n, const float *w, float b, const double *y,
                          size_t lanes, double *out)
{
    double a[1 + SPX_MAX_PAR] = {0}, d = 1;
    for (size_t j = 0; j < n; j++)
        for (size_t l = 0; l < lanes; l++)
            a[l] += (double)w[j] * y[j * lanes + l];
    a[0] += (double)b;
    out[0] = linear ? a[0] : spx_nn_activate(nn->activation, nn->slope, a[0], &d);
    for (size_t l = 1; l < lanes; l++)
        out[l] = d * a[l];
}

/* The whole network: coef[size[nlayer]][lanes] at the mapped parameters x[size[0]]; work[2][spx_nn_width()][lanes]. */
SPX_HD void spx_nn_evaluate(const spx_nn *nn, const double *x, size_t lanes, const size_t *gpar, double *work,
                            double *coef)
{
    size_t half = spx_nn_width(nn) * lanes;
    const float *w = nn->weight, *b = nn->bias;
    spx_nn_input(nn, x, lanes, gpar, work);
    for (size_t l = 0; l < nn->nlayer; l++) {
        size_t nin = nn->size[l], nout = nn->size[l + 1];
        int last = l + 1 == nn->nlayer;
        double *in = work + l % 2 * half, *out = last ? coef : work + (l + 1) % 2 * half;
        for (size_t i = 0; i < nout; i++)
            spx_nn_neuron(nn, last, nin, w + i * nin, b[i], in, lanes, out + i * lanes);
        w += nin * nout;
        b += nout;
    }
}

#endif
