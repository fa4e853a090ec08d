/* Provides the inner loops of the templates, for SPX_VL doubles a vector: included once for every instruction set
 * (template_base.c, template_avx2.c, template_avx512.c), which defines SPX_VL and SPX_KERNELS. The order of a sum does
 * not depend on the other spectra of a batch. */
#include <math.h>
#include <string.h>

#include "simd/simd.h"
#include "simd/simd_math.h"
#include "template/template_impl.h"

enum { NV = SPX_TEMPLATE_LANES / SPX_VL };

static void transpose(size_t n, size_t nlane, const float *flux, size_t stride, double *sample)
{
    enum { SQUARE = 16 }; /* samples of a square whose rows stay in the cache */
    for (size_t k0 = 0; k0 < n; k0 += SQUARE)
        for (size_t lane = 0; lane < nlane; lane++)
            for (size_t k = k0; k < n && k < k0 + SQUARE; k++)
                sample[k * SPX_TEMPLATE_LANES + lane] = (double)flux[lane * stride + k];
}

static void smooth(size_t npix, const size_t *first, const size_t *start, const double *w, size_t origin,
                   const double *sample, double *out)
{
    for (size_t k = 0; k < npix; k++) {
        const double *x = sample + (first[k] - origin) * SPX_TEMPLATE_LANES;
        vec sum[NV];
        for (size_t v = 0; v < NV; v++)
            sum[v] = every(0);
        for (size_t j = start[k]; j < start[k + 1]; j++, x += SPX_TEMPLATE_LANES)
            for (size_t v = 0; v < NV; v++)
                sum[v] += w[j] * load(x + v * SPX_VL);
        memcpy(out + k * SPX_TEMPLATE_LANES, sum, sizeof sum);
    }
}

static void logarithm(size_t n, double *x)
{
    for (size_t i = 0; i < n; i += SPX_VL)
        store(x + i, vlog(load(x + i)));
}

static void exponential(size_t n, const float *x, double *out)
{
    size_t k = 0;
    for (; k + SPX_VL <= n; k += SPX_VL)
        store(out + k, vexp(load_float(x + k)));
    for (; k < n; k++)
        out[k] = vexp(every((double)x[k]))[0];
}

static int not_finite(size_t n, const float *x)
{
    int bad = 0;
#pragma omp simd reduction(| : bad)
    for (size_t k = 0; k < n; k++)
        bad |= !(fabsf(x[k]) <= 3.40282346638528859812e38f);
    return bad;
}

static void add(size_t n, const float *x, double *sum)
{
    for (size_t k = 0; k < n; k++)
        sum[k] += (double)x[k];
}

static void centre(size_t n, const float *x, const double *mean, float *out)
{
    for (size_t k = 0; k < n; k++)
        out[k] = (float)((double)x[k] - mean[k]);
}

static double largest(size_t n, const float *x, double *sum)
{
    vec squares = every(0), most = every(0);
    size_t k = 0;
    for (; k + SPX_VL <= n; k += SPX_VL) {
        const vec v = square(load_float(x + k));
        squares += v;
        most = vmax(v, most);
    }
    double all = 0;
    for (size_t l = 0; l < SPX_VL; l++) {
        all = most[l] > all ? most[l] : all;
        *sum += squares[l];
    }
    for (; k < n; k++) {
        double v = (double)x[k] * (double)x[k];
        all = v > all ? v : all;
        *sum += v;
    }
    return sqrt(all);
}

static vecf silu_of(vecf a, vecf *slope)
{
    vecf u = 1 / (1 + vexpf(-a)), y = a * u;
    *slope = u + y * (1 - u);
    return y;
}

static void silu(size_t n, float *a, float *slope)
{
    enum { W = 2 * SPX_VL };
    vecf d;
    size_t k = 0;
    for (; k + W <= n; k += W) {
        store_vecf(a + k, silu_of(load_vecf(a + k), &d));
        if (slope)
            store_vecf(slope + k, d);
    }
    for (; k < n; k++) {
        a[k] = silu_of(everyf(a[k]), &d)[0];
        if (slope)
            slope[k] = d[0];
    }
}

static void adam(size_t n, const float *g, const spx_nn_rate *rate, float *restrict m, float *restrict v,
                 float *restrict w)
{
    const float b1 = (float)SPX_NN_BETA1, b2 = (float)SPX_NN_BETA2, tiny = (float)SPX_NN_EPSILON;
    const float size = rate->size, norm = rate->norm;
    for (size_t i = 0; i < n; i++) {
        m[i] = b1 * m[i] + (1 - b1) * g[i];
        v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
        w[i] -= size * m[i] / (sqrtf(v[i] * norm) + tiny);
    }
}

static const spx_template_kernels SPX_KERNELS = {transpose, smooth, logarithm, exponential, not_finite,
                                                 add,       centre, largest,   silu,        adam};
