/* The heavy loops of the templates, for SPX_VL doubles a vector: included once for every instruction set
 * (template_base.c, template_avx2.c, template_avx512.c), which defines SPX_VL and SPX_KERNELS. A sum has the same order
 * in whatever company its spectrum is. */
#include <math.h>
#include <string.h>

#include "template/template_impl.h"

typedef double vd __attribute__((vector_size(8 * SPX_VL)));
typedef long long vi __attribute__((vector_size(8 * SPX_VL)));
typedef float vf __attribute__((vector_size(8 * SPX_VL)));
typedef int vn __attribute__((vector_size(8 * SPX_VL)));

enum { NV = SPX_TEMPLATE_LANES / SPX_VL };

static void transpose(size_t n, size_t nlane, const float *flux, size_t stride, double *sample)
{
    enum { SQUARE = 16 }; /* samples whose rows stay in the cache */
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
        vd sum[NV];
        for (size_t v = 0; v < NV; v++)
            sum[v] = (vd){0};
        for (size_t j = start[k]; j < start[k + 1]; j++, x += SPX_TEMPLATE_LANES)
            for (size_t v = 0; v < NV; v++) {
                vd here;
                memcpy(&here, x + v * SPX_VL, sizeof here);
                sum[v] += w[j] * here;
            }
        memcpy(out + k * SPX_TEMPLATE_LANES, sum, sizeof sum);
    }
}

/* ln x = e ln 2 + 2 atanh(s), s = (m-1)/(m+1), x = m 2^e, m in sqrt(1/2) ... sqrt(2); the first term that is left out
 * is 2 s^19/19 < 3e-16. */
static void logarithm(size_t n, double *x)
{
    for (size_t i = 0; i < n; i += SPX_VL) {
        vd m, two52 = (vd){0} + 0x1p52;
        vi bits, shift = (vi){0} + 0x3FE6A09E667F3BCDll; /* sqrt(1/2) */
        memcpy(&m, x + i, sizeof m);
        memcpy(&bits, &m, sizeof bits);
        /* exponent as an integer in the low bits of a double near 2^52: there is no conversion of it before AVX-512 */
        vi e = ((bits - shift) >> 52) + 1024;
        bits -= (e - 1024) << 52;
        memcpy(&m, &bits, sizeof m);
        vi magic = e | 0x4330000000000000ll;
        vd exponent;
        memcpy(&exponent, &magic, sizeof exponent);
        exponent -= two52 + 1024;
        vd s = (m - 1) / (m + 1), q = s * s;
        vd p = 2.0 / 17 * q + 2.0 / 15;
        p = p * q + 2.0 / 13;
        p = p * q + 2.0 / 11;
        p = p * q + 2.0 / 9;
        p = p * q + 2.0 / 7;
        p = p * q + 2.0 / 5;
        p = p * q + 2.0 / 3;
        p = p * q + 2;
        m = exponent * 0.69314718055994530942 + s * p;
        memcpy(x + i, &m, sizeof m);
    }
}

/* e^x = 2^k e^r, r = x - k ln 2 in -0.35 ... 0.35; the first term of the series that is left out is r^14/14! < 5e-18.
 */
static vd exponential_of(vd x)
{
    const vd zero = {0}, magic = zero + 0x1.8p52; /* a sum with it is an integer in the low bits */
    vd shifted = magic + x * 1.44269504088896340736, k = shifted - magic;
    vd r = x - k * 0.693147180369123816490 - k * 1.90821492927058770002e-10;
    vd p = r * (1.0 / 6227020800) + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1;
    p = p * r + 1;
    return (vd)((vi)p + (((vi)shifted - (vi)magic) << 52));
}

static void exponential(size_t n, const float *x, double *out)
{
    for (size_t k = 0; k < n; k += SPX_VL) {
        const size_t m = n - k < SPX_VL ? n - k : SPX_VL;
        vd v = {0};
        for (size_t l = 0; l < SPX_VL; l++)
            v[l] = l < m ? (double)x[k + l] : 0;
        v = exponential_of(v);
        if (m == SPX_VL)
            memcpy(out + k, &v, sizeof v);
        else
            memcpy(out + k, &v, m * sizeof *out);
    }
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
    vd square = {0}, most = {0};
    size_t k = 0;
    for (; k + SPX_VL <= n; k += SPX_VL) {
        vd v;
        for (size_t l = 0; l < SPX_VL; l++)
            v[l] = (double)x[k + l];
        v *= v;
        square += v;
        vi more = v > most;
        most = (vd)(((vi)v & more) | ((vi)most & ~more));
    }
    double all = 0;
    for (size_t l = 0; l < SPX_VL; l++) {
        all = most[l] > all ? most[l] : all;
        *sum += square[l];
    }
    for (; k < n; k++) {
        double v = (double)x[k] * (double)x[k];
        all = v > all ? v : all;
        *sum += v;
    }
    return sqrt(all);
}

/* exp(-a), finite for any a: e^r 2^k with r = -a - k ln 2 in -0.35 ... 0.35, and the first term of the series that is
 * left out is r^8/8! < 6e-9. */
static vf exponential_of_minus(vf a)
{
    const vf zero = {0}, most = zero + 87;
    const vf magic = zero + 0x1.8p23f; /* a sum with it is an integer in the low bits */
    vn above = a > most, below = a < -most;
    a = (vf)(((vn)most & above) | ((vn)a & ~above));
    a = (vf)(((vn)-most & below) | ((vn)a & ~below));
    vf shifted = magic - a * 1.44269504f, k = shifted - magic;
    vf r = -a - k * 0.693359375f + k * 2.12194440e-4f;
    vf p = r * (1.f / 5040) + 1.f / 720;
    p = p * r + 1.f / 120;
    p = p * r + 1.f / 24;
    p = p * r + 1.f / 6;
    p = p * r + 0.5f;
    p = p * r + 1;
    p = p * r + 1;
    return (vf)((vn)p + (((vn)shifted - (vn)magic) << 23));
}

static vf silu_of(vf a, vf *slope)
{
    vf u = 1 / (1 + exponential_of_minus(a)), y = a * u;
    *slope = u + y * (1 - u);
    return y;
}

static void silu(size_t n, float *a, float *slope)
{
    enum { W = 2 * SPX_VL };
    vf x, d;
    size_t k = 0;
    for (; k + W <= n; k += W) {
        memcpy(&x, a + k, sizeof x);
        x = silu_of(x, &d);
        memcpy(a + k, &x, sizeof x);
        if (slope)
            memcpy(slope + k, &d, sizeof d);
    }
    for (; k < n; k++) {
        x = silu_of((vf){0} + a[k], &d);
        a[k] = x[0];
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
