/* The heavy loops of the velocity fit, for SPX_VL doubles a vector: included once for every instruction set
 * (simd_base.c, simd_avx2.c, simd_avx512.c), which defines SPX_VL and SPX_KERNELS. All loops have a fixed order, so
 * that a star's result does not depend on which stars are computed beside it. */
#include <math.h>
#include <string.h>
#if SPX_VL == 8
#include <immintrin.h>
#endif

#include "calib/band_lanes.h"
#include "rvfit/model/model.h"
#include "simd/simd.h"
#include "simd/simd_math.h"

enum {
    LV = SPX_RV_LANES / SPX_VL, /* vectors in a row of lanes */
    BLOCK = 256                 /* pixels whose rows stay in the cache */
};

/* ---- ln T from principal components ---- */

/* The sums of V vectors of components from number i on, all lanes, which stay in registers. */
ALWAYS_INLINE void combine_few(size_t L, size_t V, size_t n, size_t nnode, const int32_t *row, const float *weight,
                               const float *coef, size_t i, float *out)
{
    vecf sum[SPX_RV_LANES - 1][2];
    for (size_t l = 0; l < L; l++)
        sum[l][0] = sum[l][1] = everyf(0);
    for (size_t k = 0; k < nnode; k++)
        for (size_t v = 0; v < V; v++) {
            const vecf c = load_vecf(coef + (size_t)row[k] * n + i + v * 2 * SPX_VL);
            for (size_t l = 0; l < L; l++)
                sum[l][v] += weight[k * L + l] * c;
        }
    for (size_t l = 0; l < L; l++)
        for (size_t v = 0; v < V; v++)
            store_vecf(out + l * n + i + v * 2 * SPX_VL, sum[l][v]);
}

static void combine(size_t n, size_t nnode, const int32_t *row, const float *weight, size_t nlane, const float *coef,
                    float *out)
{
    enum { W = 2 * SPX_VL };
    for (size_t i = 0; i < n; i += 2 * W)
        switch (nlane) {
#define LANES(L)                                                                                                       \
    case L:                                                                                                            \
        if (i + 2 * W <= n)                                                                                            \
            combine_few(L, 2, n, nnode, row, weight, coef, i, out);                                                    \
        else                                                                                                           \
            combine_few(L, 1, n, nnode, row, weight, coef, i, out);                                                    \
        break
            LANES(1);
            LANES(2);
            LANES(3);
            LANES(4);
            LANES(5);
            LANES(6);
        default:
            LANES(7);
#undef LANES
        }
}

/* One tile of S stars, from sample i of their planes on. Values: the first `nd` components, which are large, in double
 * precision, the others in single, as all of the derivatives are. The sums of several stars stay in registers, so that
 * they do not wait for each other; each star's has its own order, whatever stars are beside it. `next`: components of
 * the next tile, which are fetched meanwhile, or NULL. */
ALWAYS_INLINE void tile_sums(size_t L, size_t S, size_t nd, size_t nc, const float *comp, const float *next,
                             const double *mean, const double *const *cd, const float *const *cf, double *const *plane,
                             float *const *slope, size_t i, size_t stride)
{
    enum { MOST = 14 }; /* S L at most */
    float rest[MOST][SPX_RV_TILE];
    for (size_t j = 0; j < SPX_RV_TILE; j += 4 * SPX_VL) {
        vecf f[MOST][2];
        for (size_t l = 0; l < S * L; l++)
            f[l][0] = f[l][1] = everyf(0);
        for (size_t k = 0; k < nd; k++) {
            vecf e0 = load_vecf(comp + k * SPX_RV_TILE + j), e1 = load_vecf(comp + k * SPX_RV_TILE + j + 2 * SPX_VL);
            for (size_t s = 0; s < S; s++)
                for (size_t l = 1; l < L; l++) {
                    f[s * L + l][0] += cf[s][k * L + l] * e0;
                    f[s * L + l][1] += cf[s][k * L + l] * e1;
                }
        }
        for (size_t k = nd; k < nc; k++) {
            vecf e0 = load_vecf(comp + k * SPX_RV_TILE + j), e1 = load_vecf(comp + k * SPX_RV_TILE + j + 2 * SPX_VL);
            if (next != NULL) {
                __builtin_prefetch(next + k * SPX_RV_TILE + j);
                __builtin_prefetch(next + k * SPX_RV_TILE + j + 2 * SPX_VL);
            }
            for (size_t s = 0; s < S; s++)
                for (size_t l = 0; l < L; l++) {
                    f[s * L + l][0] += cf[s][k * L + l] * e0;
                    f[s * L + l][1] += cf[s][k * L + l] * e1;
                }
        }
        for (size_t s = 0; s < S; s++)
            for (size_t h = 0; h < 2; h++) {
                store_vecf(rest[s] + j + h * 2 * SPX_VL, f[s * L][h]);
                for (size_t l = 1; l < L; l++)
                    store_vecf(slope[s] + (l - 1) * stride + i + j + h * 2 * SPX_VL, f[s * L + l][h]);
            }
    }
    for (size_t s = 0; s < S; s++) {
        vec d[SPX_RV_TILE / SPX_VL];
        for (size_t v = 0; v < SPX_RV_TILE / SPX_VL; v++)
            d[v] = load_float(rest[s] + v * SPX_VL);
        for (size_t k = 0; k < nd; k++)
            for (size_t v = 0; v < SPX_RV_TILE / SPX_VL; v++)
                d[v] += cd[s][k * L] * load_float(comp + k * SPX_RV_TILE + v * SPX_VL);
        for (size_t v = 0; v < SPX_RV_TILE / SPX_VL; v++)
            store(plane[s] + i + v * SPX_VL, d[v] + load(mean + v * SPX_VL));
    }
}

static void components(size_t L, size_t ntile, size_t nd, size_t nc, const float *comp, const double *mean, size_t n,
                       const double *const *cd, const float *const *cf, double *const *plane, float *const *slope)
{
    const size_t stride = ntile * SPX_RV_TILE, per = nc * SPX_RV_TILE;
    for (size_t t = 0; t < ntile; t++, comp += per, mean += SPX_RV_TILE)
        for (size_t s = 0, m; s < n; s += m) {
            const float *next = s == 0 && t + 1 < ntile ? comp + per : NULL;
#define TILE(L, S)                                                                                                     \
    case L:                                                                                                            \
        m = n - s < S ? 1 : S;                                                                                         \
        if (m == S)                                                                                                    \
            tile_sums(L, S, nd, nc, comp, next, mean, cd + s, cf + s, plane + s, slope + s, t * SPX_RV_TILE, stride);  \
        else                                                                                                           \
            tile_sums(L, 1, nd, nc, comp, next, mean, cd + s, cf + s, plane + s, slope + s, t * SPX_RV_TILE, stride);  \
        break
            switch (L) {
                TILE(1, 8);
                TILE(2, 6);
                TILE(3, 4);
                TILE(4, 2);
                TILE(5, 2);
                TILE(6, 2);
            default:
                TILE(7, 2);
            }
#undef TILE
        }
}

/* ---- templates ---- */

static void exponential(size_t n, double *x)
{
    for (size_t i = 0; i < n; i += SPX_VL)
        store(x + i, vexp(vclamp(load(x + i), -300, 300)));
}

static void slopes(size_t n, const float *flux, const float *dln, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = flux[i] * dln[i];
}

static void scaled(size_t n, const double *x, double scale, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(scale * x[i]);
}

/* Rotation of samples j0 ... j0+m-1, with what lies beyond the ends constant. */
#define BROADEN_ENDS(T)                                                                                                \
    for (size_t j = j0; j < j0 + m; j++) {                                                                             \
        T sum = w[0] * f[j];                                                                                           \
        for (size_t k = 1; k <= reach; k++)                                                                            \
            sum += w[k] * (f[j >= k ? j - k : 0] + f[n - 1 - j >= k ? j + k : n - 1]);                                 \
        y[j] = sum;                                                                                                    \
    }

/* The same far from the ends, four vectors at a time: their sums stay in registers. */
#define BROADEN(T, V, WIDTH, LOAD, STORE)                                                                              \
    for (size_t j0 = 0, m; j0 < n; j0 += m) {                                                                          \
        m = n - j0 < 4 * WIDTH ? n - j0 : 4 * WIDTH;                                                                   \
        if (j0 < reach || j0 + 4 * WIDTH + reach > n) {                                                                \
            BROADEN_ENDS(T)                                                                                            \
            continue;                                                                                                  \
        }                                                                                                              \
        V sum[4];                                                                                                      \
        for (size_t i = 0; i < 4; i++)                                                                                 \
            sum[i] = w[0] * LOAD(f + j0 + i * WIDTH);                                                                  \
        for (size_t k = 1; k <= reach; k++)                                                                            \
            for (size_t i = 0; i < 4; i++)                                                                             \
                sum[i] += w[k] * (LOAD(f + j0 + i * WIDTH - k) + LOAD(f + j0 + i * WIDTH + k));                        \
        for (size_t i = 0; i < 4; i++)                                                                                 \
            STORE(y + j0 + i * WIDTH, sum[i]);                                                                         \
    }

static void broaden_one(size_t n, size_t reach, const double *w, const double *f, double *y)
{
    BROADEN(double, vec, SPX_VL, load, store)
}

static void broaden_float(size_t n, size_t reach, const float *w, const float *f, float *y)
{
    BROADEN(float, vecf, 2 * SPX_VL, load_vecf, store_vecf)
}

/* Lanes from number `first` on of a and b, side by side. */
#if SPX_VL == 8
#define WINDOW(a, b, i) __builtin_shufflevector(a, b, i, (i) + 1, (i) + 2, (i) + 3, (i) + 4, (i) + 5, (i) + 6, (i) + 7)
#define WINDOWF(a, b, i)                                                                                               \
    __builtin_shufflevector(a, b, i, (i) + 1, (i) + 2, (i) + 3, (i) + 4, (i) + 5, (i) + 6, (i) + 7, (i) + 8, (i) + 9,  \
                            (i) + 10, (i) + 11, (i) + 12, (i) + 13, (i) + 14, (i) + 15)
#elif SPX_VL == 4
#define WINDOW(a, b, i)  __builtin_shufflevector(a, b, i, (i) + 1, (i) + 2, (i) + 3)
#define WINDOWF(a, b, i) __builtin_shufflevector(a, b, i, (i) + 1, (i) + 2, (i) + 3, (i) + 4, (i) + 5, (i) + 6, (i) + 7)
#else
#define WINDOW(a, b, i)  __builtin_shufflevector(a, b, i, (i) + 1)
#define WINDOWF(a, b, i) __builtin_shufflevector(a, b, i, (i) + 1, (i) + 2, (i) + 3)
#endif

/* Lane i of x in all. */
#if SPX_VL == 8
#define ALL_LANES(x, i)  __builtin_shufflevector(x, x, i, i, i, i, i, i, i, i)
#define ALL_LANESF(x, i) __builtin_shufflevector(x, x, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i, i)
#elif SPX_VL == 4
#define ALL_LANES(x, i)  __builtin_shufflevector(x, x, i, i, i, i)
#define ALL_LANESF(x, i) __builtin_shufflevector(x, x, i, i, i, i, i, i, i, i)
#else
#define ALL_LANES(x, i)  __builtin_shufflevector(x, x, i, i)
#define ALL_LANESF(x, i) __builtin_shufflevector(x, x, i, i, i, i)
#endif

/* Multipliers of a spline's elimination (spx_rv_spline_factor()) far from the ends, all but rounding errors from sample
 * `ENDS` on: 2 - sqrt(3). */
#define FAR_MULTIPLIER 0.26794919243112270647
enum { ENDS = 16 };

/* Coefficients c[-1 ... n] of the natural cubic spline through y[n] by B-splines: c = y - m, with the m of
 * spx_rv_spline_factor(). Its two recursions with z = -FAR_MULTIPLIER run over vectors: within one, x_i + z x_(i-1) and
 * so on with z^2, z^4, z^8, then the last number of the vector before times a power of z. m[n] is scratch; y may be
 * c. */
#define COEFFICIENTS(T, V, WIDTH, LOAD, STORE, EVERY, WIN, ALL)                                                        \
    const T z = (T)-FAR_MULTIPLIER, z2 = z * z, z4 = z2 * z2, z8 = z4 * z4;                                            \
    const V none = EVERY(0);                                                                                           \
    V up, down; /* powers of z */                                                                                      \
    size_t i = 1;                                                                                                      \
    up[0] = down[WIDTH - 1] = z;                                                                                       \
    for (int l = 1; l < WIDTH; l++)                                                                                    \
        up[l] = down[WIDTH - 1 - l] = z * up[l - 1];                                                                   \
    m[0] = m[n - 1] = 0;                                                                                               \
    for (; i < ENDS && i + 1 < n; i++)                                                                                 \
        m[i] = ((y[i - 1] - y[i]) + (y[i + 1] - y[i]) - m[i - 1]) * (T)cprime[i];                                      \
    V last_m = EVERY(m[i - 1]);                                                                                        \
    for (; i + WIDTH < n; i += WIDTH) {                                                                                \
        const V at = LOAD(y + i);                                                                                      \
        V x = ((LOAD(y + i - 1) - at) + (LOAD(y + i + 1) - at)) * -z;                                                  \
        x += z * WIN(none, x, WIDTH - 1);                                                                              \
        x += z2 * WIN(none, x, WIDTH - 2);                                                                             \
        if (WIDTH > 4)                                                                                                 \
            x += z4 * WIN(none, x, (WIDTH > 4 ? WIDTH - 4 : 0));                                                       \
        if (WIDTH > 8)                                                                                                 \
            x += z8 * WIN(none, x, (WIDTH > 8 ? WIDTH - 8 : 0));                                                       \
        x += up * last_m;                                                                                              \
        STORE(m + i, x);                                                                                               \
        last_m = ALL(x, WIDTH - 1);                                                                                    \
    }                                                                                                                  \
    for (; i + 1 < n; i++)                                                                                             \
        m[i] = ((y[i - 1] - y[i]) + (y[i + 1] - y[i]) - m[i - 1]) * -z;                                                \
    T last = y[n - 1];                                                                                                 \
    V next_m = none;                                                                                                   \
    c[n - 1] = last;                                                                                                   \
    for (i = n - 1; i >= ENDS + WIDTH; i -= WIDTH) {                                                                   \
        V x = LOAD(m + i - WIDTH);                                                                                     \
        x += z * WIN(x, none, 1);                                                                                      \
        x += z2 * WIN(x, none, 2);                                                                                     \
        if (WIDTH > 4)                                                                                                 \
            x += z4 * WIN(x, none, (WIDTH > 4 ? 4 : 0));                                                               \
        if (WIDTH > 8)                                                                                                 \
            x += z8 * WIN(x, none, (WIDTH > 8 ? 8 : 0));                                                               \
        x += down * next_m;                                                                                            \
        next_m = ALL(x, 0);                                                                                            \
        STORE(c + i - WIDTH, LOAD(y + i - WIDTH) - x);                                                                 \
    }                                                                                                                  \
    T next = next_m[0];                                                                                                \
    for (; i-- > 0;) {                                                                                                 \
        next = i == 0 ? 0 : m[i] - (i < ENDS ? (T)cprime[i] : -z) * next;                                              \
        c[i] = y[i] - next;                                                                                            \
    }                                                                                                                  \
    c[-1] = 2 * c[0] - c[1];                                                                                           \
    c[n] = 2 * c[n - 1] - c[n - 2];

static void coefficients(size_t n, const double *cprime, const double *y, double *m, double *c)
{
    COEFFICIENTS(double, vec, SPX_VL, load, store, every, WINDOW, ALL_LANES)
}

static void coefficients_float(size_t n, const double *cprime, const float *y, float *m, float *c){
    COEFFICIENTS(float, vecf, (2 * SPX_VL), load_vecf, store_vecf, everyf, WINDOWF, ALL_LANESF)}

/* Weights of the coefficients k-1 ... k+2 at k + b, and those of the derivative there. */
ALWAYS_INLINE void spline_weights(vec b, vec *w)
{
    const vec left = 1 - b;
    w[0] = left * left * left * (1. / 6);
    w[1] = 2. / 3 - 0.5 * b * b * (2 - b);
    w[2] = 2. / 3 - 0.5 * left * left * (1 + b);
    w[3] = b * b * b * (1. / 6);
}

ALWAYS_INLINE void spline_slopes(vec b, vec *d)
{
    const vec left = 1 - b;
    d[0] = -0.5 * left * left;
    d[1] = b * (1.5 * b - 2);
    d[2] = left * (2 - 1.5 * left);
    d[3] = 0.5 * b * b;
}

typedef SPX_VECTOR(int32_t, 4 * SPX_VL) half_ivec;
typedef SPX_VECTOR_ANY(int32_t, 4 * SPX_VL) half_ivec_any;

/* Where SPX_VL pixels lie on the template's grid: k + b, within its ends; returns where they lie there. Pixels from
 * number n on are as the last. */
ALWAYS_INLINE ivec grid_places(size_t n, const double *place, double shift, size_t nt, int32_t *k, vec *b)
{
    const vec last = every((double)(nt - 1)), before = every((double)(nt - 2));
    double few[SPX_VL];
    for (size_t i = 0; i < SPX_VL && n < SPX_VL; i++)
        few[i] = place[i < n ? i : n - 1];
    const vec x = load(n < SPX_VL ? few : place) + shift;
    vec at = positive_or_0(x);
    at = choose(at < last, at, last);
    const half_ivec knot = __builtin_convertvector(choose(at < before, at, before), half_ivec);
    *(half_ivec_any *)k = knot;
    *b = at - __builtin_convertvector(knot, vec);
    return at == x;
}

/* Coefficients k ... k + 3 of SPX_VL pixels, of c[n]. */
#if SPX_VL == 8
/* Mostly three vectors from the first pixel's place on have all of them, and permutations take the place of gathers. */
ALWAYS_INLINE void four_doubles(const double *c, size_t n, const int32_t *k, vec *out)
{
    enum { WIDTH = 3 * SPX_VL };
    const __m256i places = _mm256_loadu_si256((const __m256i *)k);
    const __m512i from = _mm512_cvtepi32_epi64(_mm256_sub_epi32(places, _mm256_set1_epi32(k[0])));
    if ((size_t)k[0] + WIDTH <= n && _mm512_cmp_epu64_mask(from, _mm512_set1_epi64(WIDTH - 4), _MM_CMPINT_LE) == 0xff) {
        const __m512d x = (__m512d)load(c + k[0]), y = (__m512d)load(c + k[0] + SPX_VL),
                      z = (__m512d)load(c + k[0] + 2 * SPX_VL);
        for (int i = 0; i < 4; i++) {
            const __m512i at = _mm512_add_epi64(from, _mm512_set1_epi64(i));
            const __mmask8 third = _mm512_cmp_epu64_mask(at, _mm512_set1_epi64(2 * SPX_VL), _MM_CMPINT_NLT);
            out[i] = (vec)_mm512_mask_permutexvar_pd(_mm512_permutex2var_pd(x, at, y), third, at, z);
        }
        return;
    }
    for (int i = 0; i < 4; i++)
        out[i] = (vec)_mm512_i32gather_pd(places, c + i, 8);
}
#else
ALWAYS_INLINE void four_doubles(const double *c, size_t n, const int32_t *k, vec *out)
{
    (void)n;
    for (int i = 0; i < 4; i++) {
        double x[SPX_VL];
        for (int j = 0; j < SPX_VL; j++)
            x[j] = c[k[j] + i];
        out[i] = load(x);
    }
}
#endif

/* The same in single precision, of as many pixels as a vector has. */
#if SPX_VL == 8
/* Places from that of the first pixel on. Mostly three vectors from there have all coefficients, and permutations take
 * the place of gathers; else, or where the vectors would end beyond the coefficients, these are gathered, in pairs. */
typedef struct {
    __m512i at[4];
    __mmask16 third[4]; /* in the third vector */
    int near;
} window;

ALWAYS_INLINE window window_at(const int32_t *k, size_t n)
{
    enum { WIDTH = 6 * SPX_VL };
    window w;
    const __m512i from = _mm512_sub_epi32(_mm512_loadu_si512(k), _mm512_set1_epi32(k[0]));
    w.near =
        (size_t)k[0] + WIDTH <= n && _mm512_cmp_epu32_mask(from, _mm512_set1_epi32(WIDTH - 4), _MM_CMPINT_LE) == 0xffff;
    for (int i = 0; i < 4; i++) {
        w.at[i] = _mm512_add_epi32(from, _mm512_set1_epi32(i));
        w.third[i] = _mm512_cmp_epu32_mask(w.at[i], _mm512_set1_epi32(4 * SPX_VL), _MM_CMPINT_NLT);
    }
    return w;
}

ALWAYS_INLINE void take_four(const window *w, const float *c, const int32_t *at, vecf *out)
{
    if (w->near) {
        const __m512 x = (__m512)load_vecf(c + at[0]), y = (__m512)load_vecf(c + at[0] + 2 * SPX_VL),
                     z = (__m512)load_vecf(c + at[0] + 4 * SPX_VL);
        for (int i = 0; i < 4; i++)
            out[i] = (vecf)_mm512_mask_permutexvar_ps(_mm512_permutex2var_ps(x, w->at[i], y), w->third[i], w->at[i], z);
        return;
    }
    const __m512i k = _mm512_loadu_si512(at);
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __m256i low = _mm512_castsi512_si256(k), high = _mm512_extracti64x4_epi64(k, 1);
    for (int i = 0; i < 4; i += 2) {
        const __m512 a = (__m512)_mm512_i32gather_epi64(low, c + i, 4);
        const __m512 b = (__m512)_mm512_i32gather_epi64(high, c + i, 4);
        out[i] = (vecf)_mm512_permutex2var_ps(a, even, b);
        out[i + 1] = (vecf)_mm512_permutex2var_ps(a, odd, b);
    }
}
#else
typedef int window;

ALWAYS_INLINE window window_at(const int32_t *k, size_t n)
{
    (void)k, (void)n;
    return 0;
}

ALWAYS_INLINE void take_four(const window *w, const float *c, const int32_t *k, vecf *out)
{
    (void)w;
    for (int i = 0; i < 4; i++) {
        float x[2 * SPX_VL];
        for (int j = 0; j < 2 * SPX_VL; j++)
            x[j] = c[k[j] + i];
        out[i] = load_vecf(x);
    }
}
#endif

/* t[nout][stride]: the value, with `slope` its derivative by v, then the nlane derivatives, at the pixels; c[-1 ... nt]
 * and s[nlane][sstride], from -1 on too, are coefficients of their splines. */
static void sample(size_t n, const double *place, double shift, double dshift, size_t nt, const double *c,
                   const float *s, size_t sstride, size_t nlane, int slope, double *t, size_t stride)
{
    enum { W = 2 * SPX_VL };
    for (size_t i0 = 0; i0 < n; i0 += W) {
        const size_t m = n - i0 < W ? n - i0 : W;
        double out[SPX_MAX_FIT + 1][W];
        int32_t k[W];
        float single[4][W];
        for (size_t h = 0; h < 2; h++) {
            const size_t first = h * SPX_VL < m ? h * SPX_VL : m - 1;
            vec at;
            const ivec inside = grid_places(m - first, place + i0 + first, shift, nt, k + h * SPX_VL, &at);
            const vec in = choose(inside, every(dshift), every(0));
            vec w[4], d[4], v[4];
            spline_weights(at, w);
            spline_slopes(at, d);
            four_doubles(c - 1, nt + 2, k + h * SPX_VL, v);
            store(out[0] + h * SPX_VL, w[0] * v[0] + w[1] * v[1] + w[2] * v[2] + w[3] * v[3]);
            store(out[1] + h * SPX_VL, (d[0] * v[0] + d[1] * v[1] + d[2] * v[2] + d[3] * v[3]) * in);
            for (int i = 0; i < 4; i++)
                *(half_vecf_any *)(single[i] + h * SPX_VL) = __builtin_convertvector(w[i], half_vecf_any);
        }
        vecf wf[4];
        const window places = window_at(k, nt + 2);
        for (int i = 0; i < 4; i++)
            wf[i] = load_vecf(single[i]);
        for (size_t l = 0; l < nlane; l++) {
            vecf four[4];
            take_four(&places, s + l * sstride - 1, k, four);
            store_vecf(single[0], wf[0] * four[0] + wf[1] * four[1] + wf[2] * four[2] + wf[3] * four[3]);
            for (size_t h = 0; h < 2; h++)
                store(out[1 + (slope != 0) + l] + h * SPX_VL, load_float(single[0] + h * SPX_VL));
        }
        for (size_t l = 0; l < 1 + (slope != 0) + nlane; l++) {
            if (m == W) {
                store(t + l * stride + i0, load(out[l]));
                store(t + l * stride + i0 + SPX_VL, load(out[l] + SPX_VL));
            } else {
                memcpy(t + l * stride + i0, out[l], m * sizeof **out);
            }
        }
    }
}

/* The value alone. */
static void sample_one(size_t n, const double *place, double shift, size_t nt, const double *c, double *t)
{
    for (size_t i = 0; i < n; i += SPX_VL) {
        int32_t k[SPX_VL];
        vec b, w[4], v[4];
        (void)grid_places(n - i, place + i, shift, nt, k, &b);
        spline_weights(b, w);
        four_doubles(c - 1, nt + 2, k, v);
        const vec at = w[0] * v[0] + w[1] * v[1] + w[2] * v[2] + w[3] * v[3];
        if (n - i >= SPX_VL) {
            store(t + i, at);
        } else {
            double few[SPX_VL];
            store(few, at);
            memcpy(t + i, few, (n - i) * sizeof *t);
        }
    }
}

/* ---- sums over pixels ---- */

enum { WIDEST = 6 }; /* functions of a span whose sums have registers */
enum { TX = 4, TY = SPX_VL == 8 ? 6 : 3, MAX_X = (SPX_RVFIT_MAX_POLY + 1 + SPX_MAX_FIT + TX) / TX };
enum { MAX_Y = (SPX_RVFIT_MAX_POLY + 1 + TY) / TY };
enum { COMMON_X = (SPX_MAX_FIT + TX) / TX, COMMON_Y = (SPX_MAX_FIT + TY - 1) / TY };

/* sum[x][y] += x_i y_i over a block, for TX rows of x and N of y, N <= TY: as many as have registers. */
ALWAYS_INLINE void products_of(size_t N, size_t n, const double *x, const double *y, size_t stride, vec *sum)
{
    vec s[TX][TY];
    for (size_t a = 0; a < TX; a++)
        for (size_t b = 0; b < N; b++)
            s[a][b] = sum[a * TY + b];
    for (size_t i = 0; i < n; i += SPX_VL) {
        vec yi[TY];
        for (size_t b = 0; b < N; b++)
            yi[b] = load(y + b * stride + i);
        for (size_t a = 0; a < TX; a++) {
            const vec xa = load(x + a * BLOCK + i);
            for (size_t b = 0; b < N; b++)
                s[a][b] += xa * yi[b];
        }
    }
    for (size_t a = 0; a < TX; a++)
        for (size_t b = 0; b < N; b++)
            sum[a * TY + b] = s[a][b];
}

/* The same for the first ny rows of y, of which there may be more than TY. */
static void products(size_t n, const double *x, const double *y, size_t stride, size_t ny, vec *sum)
{
    switch (ny) {
#define ROWS(N)                                                                                                        \
    case N:                                                                                                            \
        products_of(N, n, x, y, stride, sum);                                                                          \
        break
        ROWS(1);
        ROWS(2);
#if SPX_VL == 8
        ROWS(3);
        ROWS(4);
        ROWS(5);
#endif
    default:
        products_of(TY, n, x, y, stride, sum);
#undef ROWS
    }
}

/* Sets rows w ... n-1 of x to 0 for m pixels: what products() takes beyond the last row. */
static inline void clear_rows(double (*x)[BLOCK], size_t w, size_t n, size_t m)
{
    for (; w < n; w++)
        memset(x[w], 0, m * sizeof(double));
}

#if SPX_VL == 8
/* Sums of a span of w functions, with as many registers as they take: those of S'S by rows, then S'D. */
ALWAYS_INLINE void span_sums(size_t w, const spx_rv_basis *basis, const spx_rv_span *p, const double *t,
                             const double *ie, const double *flux, double *out)
{
    const double *value = basis->value + p->first * basis->stride;
    vec sum[WIDEST * (WIDEST + 1) / 2], data[WIDEST], s[WIDEST];
    for (size_t k = 0; k < w * (w + 1) / 2; k++)
        sum[k] = every(0);
    for (size_t k = 0; k < w; k++)
        data[k] = every(0);
    for (size_t i = p->begin; i < p->end; i += SPX_VL) {
        const vec e = load(ie + i), te = load(t + i) * e, d = load(flux + i) * e;
        for (size_t k = 0; k < w; k++) {
            s[k] = load(value + k * basis->stride + i) * te;
            data[k] += s[k] * d;
            for (size_t l = 0; l <= k; l++)
                sum[k * (k + 1) / 2 + l] += s[k] * s[l];
        }
    }
    for (size_t k = 0; k < w * (w + 1) / 2; k++)
        out[k] = sum_lanes(sum[k]);
    for (size_t k = 0; k < w; k++)
        out[w * (w + 1) / 2 + k] = sum_lanes(data[k]);
}

/* Adds a span of few functions to S'S and S'D; 0: they are too many. */
static int narrow_span(const spx_rv_basis *basis, const spx_rv_span *p, const double *t, const double *ie,
                       const double *flux, double *gram, double *right)
{
    const size_t np = basis->n, w = p->n;
    double sum[WIDEST * (WIDEST + 1) / 2 + WIDEST];
#define FUNCTIONS(N)                                                                                                   \
    case N:                                                                                                            \
        span_sums(N, basis, p, t, ie, flux, sum);                                                                      \
        break
    switch (w) {
        FUNCTIONS(1);
        FUNCTIONS(2);
        FUNCTIONS(3);
        FUNCTIONS(4);
        FUNCTIONS(5);
        FUNCTIONS(6);
    default:
        return 0;
    }
#undef FUNCTIONS
    for (size_t k = 0; k < w; k++) {
        for (size_t l = k > basis->band ? k - basis->band : 0; l <= k; l++)
            gram[(k - l) * np + p->first + l] += sum[k * (k + 1) / 2 + l];
        right[p->first + k] += sum[w * (w + 1) / 2 + k];
    }
    return 1;
}
#else
/* Without 32 registers the sums go through the cache. */
static int narrow_span(const spx_rv_basis *basis, const spx_rv_span *p, const double *t, const double *ie,
                       const double *flux, double *gram, double *right)
{
    (void)basis, (void)p, (void)t, (void)ie, (void)flux, (void)gram, (void)right;
    return 0;
}
#endif

/* S'S by diagonals, and S'D. */
static void normal(const spx_rv_basis *basis, const double *t, const double *ie, const double *flux, double *gram,
                   double *right)
{
    const size_t np = basis->n;
    double s[MAX_X * TX + TY][BLOCK];
    vec sum[MAX_X][MAX_Y][TX * TY];
    memset(gram, 0, (basis->band + 1) * np * sizeof *gram);
    memset(right, 0, np * sizeof *right);
    for (size_t j = 0; j < basis->nspan; j++) {
        const spx_rv_span *p = &basis->span[j];
        if (narrow_span(basis, p, t, ie, flux, gram, right))
            continue;
        const double *value = basis->value + p->first * basis->stride;
        const size_t w = p->n, nx = (w + 1 + TX - 1) / TX, ny = (w + TY - 1) / TY;
        for (size_t a = 0; a < nx; a++)
            memset(sum[a], 0, ny * sizeof sum[0][0]);
        for (size_t i0 = p->begin; i0 < p->end; i0 += BLOCK) {
            const size_t m = p->end - i0 < BLOCK ? p->end - i0 : BLOCK;
            for (size_t i = 0; i < m; i += SPX_VL) {
                vec e = load(ie + i0 + i), te = load(t + i0 + i) * e;
                for (size_t k = 0; k < w; k++)
                    store(&s[k][i], load(value + k * basis->stride + i0 + i) * te);
                store(&s[w][i], load(flux + i0 + i) * e);
            }
            clear_rows(s, w + 1, nx * TX + TY, m);
            for (size_t a = 0; a < nx; a++)
                for (size_t b = 0; b * TY < (a + 1) * TX && b * TY < w; b++)
                    products(m, s[a * TX], s[b * TY], BLOCK, TY, sum[a][b]);
        }
        for (size_t k = 0; k <= w; k++)
            for (size_t l = k < w && k > basis->band ? k - basis->band : 0; l <= k && l < w; l++) {
                const double v = sum_in_order(sum[k / TX][l / TY][k % TX * TY + l % TY]);
                if (k < w)
                    gram[(k - l) * np + p->first + l] += v;
                else
                    right[p->first + l] += v;
            }
    }
}

static double residual(const spx_rv_basis *basis, const double *coef, const double *t, const double *ie,
                       const double *flux, double *cont)
{
    vec chisq = every(0);
    for (size_t j = 0; j < basis->nspan; j++) {
        const spx_rv_span *p = &basis->span[j];
        const double *value = basis->value + p->first * basis->stride, *a = coef + p->first;
        for (size_t i = p->begin; i < p->end; i += SPX_VL) {
            vec q = every(0);
            for (size_t k = 0; k < p->n; k++)
                q += a[k] * load(value + k * basis->stride + i);
            store(cont + i, q);
            vec r = (load(flux + i) - q * load(t + i)) * load(ie + i);
            chisq += r * r;
        }
    }
    return sum_in_order(chisq);
}

/* B_i'(S'S)^-1 B_i at the pixels from i on, of the w functions of a span whose first is number `first`. */
ALWAYS_INLINE vec leverage(const spx_rv_basis *basis, const double *inverse, size_t first, size_t w,
                           const double *value, size_t i, vec *b)
{
    vec lever = every(0);
    for (size_t k = 0; k < w; k++) {
        b[k] = load(value + k * basis->stride + i);
        vec s = every(0);
        for (size_t l = k > basis->band ? k - basis->band : 0; l < k; l++)
            s += inverse[(k - l) * basis->n + first + l] * b[l];
        lever += b[k] * (s + s + inverse[first + k] * b[k]);
    }
    return lever;
}

/* Rows of a block of m pixels from i0 on, which are multiplied with the derivatives: x[0] residuals and leverage, then
 * derivatives, then the w functions of the span. */
ALWAYS_INLINE void block_rows(size_t w, const spx_rv_basis *basis, const spx_rv_span *p, size_t i0, size_t m, size_t nf,
                              const double *inverse, const double *cont, const double *t, const double *ie,
                              const double *flux, double (*x)[BLOCK])
{
    const double *value = basis->value + p->first * basis->stride;
    for (size_t i = 0; i < m; i += SPX_VL) {
        const size_t j = i0 + i;
        vec e = load(ie + j), q = load(cont + j), t0 = load(t + j), qe = q * e, te = t0 * e, b[SPX_RVFIT_MAX_POLY];
        vec r = (load(flux + j) - q * t0) * e, lever = leverage(basis, inverse, p->first, w, value, j, b);
        store(&x[0][i], lever * te * e - r * qe);
        for (size_t l = 0; l < nf; l++)
            store(&x[1 + l][i], qe * qe * load(t + (1 + l) * basis->stride + j));
        for (size_t k = 0; k < w; k++)
            store(&x[1 + nf + k][i], b[k] * te * qe);
    }
}

static void curvature(const spx_rv_basis *basis, size_t nf, const double *inverse, const double *cont, const double *t,
                      const double *ie, const double *flux, double *out)
{
    /* rows: what all spans add to, then those of a span's functions */
    const size_t np = basis->n, ny = (nf + TY - 1) / TY, common = (1 + nf + TX - 1) / TX;
    double x[(MAX_X + 1) * TX][BLOCK];
    vec sum[MAX_X + 1][MAX_Y][TX * TY], all[COMMON_X][COMMON_Y][TX * TY];
    for (size_t a = 0; a < common; a++)
        memset(all[a], 0, ny * sizeof all[0][0]);
    memset(out, 0, np * nf * sizeof *out);
    for (size_t j = 0; j < basis->nspan; j++) {
        const spx_rv_span *p = &basis->span[j];
        const size_t w = p->n, nx = (1 + nf + w + TX - 1) / TX;
        for (size_t a = 0; a < nx; a++)
            memset(sum[a], 0, ny * sizeof sum[0][0]);
        for (size_t i0 = p->begin; i0 < p->end; i0 += BLOCK) {
            const size_t m = p->end - i0 < BLOCK ? p->end - i0 : BLOCK;
            switch (w <= WIDEST && w <= basis->band + 1 ? w : 0) { /* loops over few functions are unrolled */
#define FUNCTIONS(N, W)                                                                                                \
    case N:                                                                                                            \
        block_rows(W, basis, p, i0, m, nf, inverse, cont, t, ie, flux, x);                                             \
        break
                FUNCTIONS(4, 4);
                FUNCTIONS(5, 5);
                FUNCTIONS(6, 6);
            default:
                FUNCTIONS(0, w);
#undef FUNCTIONS
            }
            clear_rows(x, 1 + nf + w, nx * TX, m);
            for (size_t a = 0; a < nx; a++)
                for (size_t b = 0; b < ny; b++)
                    products(m, x[a * TX], t + (1 + b * TY) * basis->stride + i0, basis->stride, nf - b * TY,
                             sum[a][b]);
        }
        for (size_t a = 0; a < common; a++)
            for (size_t b = 0; b < ny; b++)
                for (size_t k = 0; k < TX * TY; k++)
                    all[a][b][k] += sum[a][b][k];
        for (size_t k = 0; k < w; k++)
            for (size_t l = 0, row = 1 + nf + k; l < nf; l++)
                out[(p->first + k) * nf + l] += sum_lanes(sum[row / TX][l / TY][row % TX * TY + l % TY]);
    }
    for (size_t k = 0; k < 1 + nf; k++)
        for (size_t l = 0; l < nf; l++)
            out[(np + k) * nf + l] = sum_in_order(all[k / TX][l / TY][k % TX * TY + l % TY]);
}

/* ---- velocity scan ---- */

/* Adds a pixel, where the templates of SPX_RV_LANES velocities are t, to the moments of its block. */
ALWAYS_INLINE void add_moments(const double *w, const vec *t, vec (*sum)[LV])
{
    for (size_t v = 0; v < LV; v++) {
        const vec square = t[v] * t[v];
        for (size_t i = 0; i < 3; i++)
            sum[i][v] += square * w[i];
        for (size_t i = 3; i < 5; i++)
            sum[i][v] += t[v] * w[i];
    }
}

/* Places of SPX_RV_LANES velocities on the templates' grid: whole pixels, and the rest. */
typedef struct {
    int32_t first[SPX_RV_LANES];
    float fraction[SPX_RV_LANES];
#if SPX_VL == 8
    int32_t lowest, width; /* the lowest of them, and how far beyond it the highest is */
    __m512i from;          /* from the lowest one on, and 16 more for a second pixel */
    __m512 fractions;      /* twice */
#endif
} velocities;

static inline velocities velocities_at(const double *shift)
{
    enum { L = SPX_RV_LANES };
    velocities m = {.first = {0}};
    for (size_t v = 0; v < L; v++) {
        m.first[v] = (int32_t)floor(shift[v]);
        m.fraction[v] = (float)(shift[v] - floor(shift[v]));
    }
#if SPX_VL == 8
    m.lowest = m.first[0];
    for (size_t v = 0; v < L; v++)
        m.lowest = m.first[v] < m.lowest ? m.first[v] : m.lowest;
    for (size_t v = 0; v < L; v++)
        m.width = m.first[v] - m.lowest > m.width ? m.first[v] - m.lowest : m.width;
    m.from = _mm512_add_epi32(_mm512_sub_epi32(_mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)m.first)),
                                               _mm512_set1_epi32(m.lowest)),
                              _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi32(2 * SPX_VL), 1));
    m.fractions = _mm512_broadcast_f32x8(_mm256_loadu_ps(m.fraction));
#endif
    return m;
}

/* The templates at the place of a pixel, which is its own and a velocity's: from a template's pixel k to the next a
 * polynomial of `degree`, curve[i][1+k] (x - k)^i, and constant beyond the ends. */
ALWAYS_INLINE void template_at(size_t degree, const spx_rv_scan_pixel *p, const float *const *curve, int32_t nt,
                               const velocities *m, vec *t)
{
    double at[SPX_RV_LANES];
    for (int v = 0; v < SPX_RV_LANES; v++) {
        float u = m->fraction[v] + p->u;
        const int over = u >= 1;
        int32_t k = m->first[v] + p->k + 1 + over;
        u -= (float)over;
        k = k > 0 ? k : 0;
        k = k < nt ? k : nt;
        float y = curve[degree][k];
        for (size_t i = degree; i-- > 0;)
            y = curve[i][k] + u * y;
        at[v] = (double)y;
    }
    for (size_t v = 0; v < LV; v++)
        t[v] = load(at + v * SPX_VL);
}

/* The same of two pixels, where the places of the velocities from the lowest one on are within a vector each. Returns 0
 * where they are not, or beyond the template's ends. */
#if SPX_VL == 8
ALWAYS_INLINE int templates_at(size_t degree, const spx_rv_scan_pixel *p, const float *const *curve, int32_t nt,
                               const velocities *m, vec (*t)[LV])
{
    const int32_t a = p[0].k + m->lowest + 1, b = p[1].k + m->lowest + 1, width = m->width;
    if (width + 1 >= 2 * SPX_VL || a < 0 || b < 0 || a + width + 1 > nt || b + width + 1 > nt)
        return 0;
    __m512 u = _mm512_insertf32x8(_mm512_set1_ps(p[0].u), _mm256_set1_ps(p[1].u), 1);
    u = _mm512_add_ps(u, m->fractions);
    const __mmask16 over = _mm512_cmp_ps_mask(u, _mm512_set1_ps(1), _CMP_GE_OQ);
    u = _mm512_mask_sub_ps(u, over, u, _mm512_set1_ps(1));
    const __m512i k = _mm512_mask_add_epi32(m->from, over, m->from, _mm512_set1_epi32(1));
    __m512 at = _mm512_setzero_ps();
    for (size_t i = degree + 1; i-- > 0;) {
        const __m512 c = _mm512_permutex2var_ps((__m512)load_vecf(curve[i] + a), k, (__m512)load_vecf(curve[i] + b));
        at = i == degree ? c : _mm512_fmadd_ps(u, at, c);
    }
    t[0][0] = (vec)_mm512_cvtps_pd(_mm512_castps512_ps256(at));
    t[1][0] = (vec)_mm512_cvtps_pd(_mm512_extractf32x8_ps(at, 1));
    return 1;
}
#else
ALWAYS_INLINE int templates_at(size_t degree, const spx_rv_scan_pixel *p, const float *const *curve, int32_t nt,
                               const velocities *m, vec (*t)[LV])
{
    (void)degree, (void)p, (void)curve, (void)nt, (void)m, (void)t;
    return 0;
}
#endif

enum { MOVED = 64 }; /* pixels whose templates stay in the cache while the band is applied to them */

/* Templates out[SPX_RV_LANES] of SPX_VL pixels, whose sums do not wait for each other, or of one: rows of a band of a
 * matrix, row[k n + pixel], times those at the pixels around, t[pixel + k]. A template is loaded once for all rows that
 * it is in, and each sum has the order of its row. */
ALWAYS_INLINE void resolve_lanes(size_t pixels, size_t n, size_t ndiag, const double *row, const double *t, double *out)
{
    enum { L = SPX_RV_LANES };
    vec sum[SPX_VL][LV];
    for (size_t i = 0; i < pixels; i++)
        for (size_t v = 0; v < LV; v++)
            sum[i][v] = every(0);
    for (size_t j = 0; j + 1 < ndiag + pixels; j++) {
        const int all = j + 1 >= pixels && j < ndiag;
        vec x[LV];
        for (size_t v = 0; v < LV; v++)
            x[v] = load(t + j * L + v * SPX_VL);
        if (all) {
            for (size_t i = 0; i < pixels; i++)
                for (size_t v = 0; v < LV; v++)
                    sum[i][v] += row[(j - i) * n + i] * x[v];
        } else {
            for (size_t i = 0; i < pixels; i++)
                for (size_t v = 0; v < LV && i <= j && j - i < ndiag; v++)
                    sum[i][v] += row[(j - i) * n + i] * x[v];
        }
    }
    for (size_t i = 0; i < pixels; i++)
        for (size_t v = 0; v < LV; v++)
            store(out + i * L + v * SPX_VL, sum[i][v]);
}

static void moved(size_t npix, const spx_rv_scan_pixel *pixel, const float *const *curve, size_t nt,
                  const double *shift, size_t ndiag, const double *band, double *out)
{
    enum { L = SPX_RV_LANES };
    const size_t before = ndiag / 2, behind = ndiag - 1 - before;
    const velocities m = velocities_at(shift);
    double t[(MOVED + SPX_MAX_NDIAG) * L]; /* of pixels i0 - before ... i0 + MOVED + behind - 1 */
    memset(t, 0, before * L * sizeof *t);
    for (size_t i0 = 0, from = 0; i0 < npix; i0 += MOVED) {
        const size_t n = npix - i0 < MOVED ? npix - i0 : MOVED, wanted = i0 + n + behind,
                     end = wanted < npix ? wanted : npix;
        double *to = t + (from + before - i0) * L;
        for (vec at[2][LV]; from < end;) {
            const size_t some = from + 1 < end && templates_at(3, pixel + from, curve, (int32_t)nt, &m, at) ? 2 : 1;
            if (some == 1)
                template_at(3, pixel + from, curve, (int32_t)nt, &m, at[0]);
            for (size_t i = 0; i < some; i++, from++, to += L)
                for (size_t v = 0; v < LV; v++)
                    store(to + v * SPX_VL, at[i][v]);
        }
        memset(to, 0, (wanted - end) * L * sizeof *to);
        size_t i = 0;
        for (; i + SPX_VL <= n; i += SPX_VL)
            resolve_lanes(SPX_VL, npix, ndiag, band + i0 + i, t + i * L, out + (i0 + i) * L);
        for (; i < n; i++)
            resolve_lanes(1, npix, ndiag, band + i0 + i, t + i * L, out + (i0 + i) * L);
        memmove(t, t + n * L, (ndiag - 1) * L * sizeof *t);
    }
}

/* The objective of a piece at SPX_RV_LANES velocities, with a continuum that is linear in each block of pixels, but for
 * what does not depend on v, out of the equations: rows of the band as calib/band_lanes.h has them, of which the first
 * `band` are 0, and S'D. HUGE_VAL where they cannot be solved. */
static void scan_values(const spx_rv_lines *lines, double *gram, double *right, double *f)
{
    enum { L = SPX_RV_LANES };
    const size_t np = lines->functions, m = lines->band, row = (m + 1) * L;
    double diag[2 * SPX_RVFIT_MAX_POLY * SPX_VL] = {0};
    vec u[SPX_LANES_BLOCK * (SPX_RVFIT_MAX_POLY + 1)];
    for (size_t v = 0; v < L; v += SPX_VL) {
        double *l = gram + m * row + v, *d = diag + m * SPX_VL;
        const ivec bad = factor(np, (int)m, l, row, L, every(0), l, row, L, d, u);
        vec sum = every(0);
        for (size_t j = 0; j < np; j++) {
            vec y = load(right + j * L + v);
            for (size_t t = 1; t <= m && t <= j; t++)
                y -= load(l + (j - t) * row + t * L) * load(right + (j - t) * L + v);
            store(right + j * L + v, y);
            sum += vlog(load(d + j * SPX_VL)) - y * y * load(l + j * row);
        }
        store(f + v, choose(bad, every(HUGE_VAL), sum));
    }
}

/* f[SPX_RV_LANES] as scan_values() has it, at velocities that move the templates by shift[SPX_RV_LANES] of their
 * pixels; or with the templates t[npix][SPX_RV_LANES] themselves. */
static void scan(size_t npix, const spx_rv_lines *lines, const spx_rv_scan_pixel *pixel, const float *knot,
                 const float *rise, size_t nt, const double *shift, const double *t, double *f)
{
    enum { M = SPX_RVFIT_MAX_POLY, L = SPX_RV_LANES };
    const size_t np = lines->functions, m = lines->band, per = lines->per;
    const double *line = lines->line;
    double gram[2 * M * M * L], right[M * L];
    const float *const curve[2] = {knot, rise};
    const double nowhere[L] = {0};
    const velocities moves = velocities_at(t == NULL ? shift : nowhere);
    memset(gram, 0, (np + m) * (m + 1) * L * sizeof *gram);
    memset(right, 0, np * L * sizeof *right);
    for (size_t b = 0, i = 0; b < lines->n; b++, line += 2 * M) {
        const size_t end = npix - i < per ? npix : i + per, k0 = lines->range[b][0], k1 = k0 + lines->range[b][1];
        vec s[5][LV], at[2][LV];
        memset(s, 0, sizeof s);
        for (; i < end && t != NULL; i++) {
            for (size_t v = 0; v < LV; v++)
                at[0][v] = load(t + i * L + v * SPX_VL);
            add_moments(pixel[i].weight, at[0], s);
        }
        for (; i + 1 < end && templates_at(1, pixel + i, curve, (int32_t)nt, &moves, at); i += 2) {
            add_moments(pixel[i].weight, at[0], s);
            add_moments(pixel[i + 1].weight, at[1], s);
        }
        for (; i < end; i++) {
            template_at(1, pixel + i, curve, (int32_t)nt, &moves, at[0]);
            add_moments(pixel[i].weight, at[0], s);
        }
        for (size_t k = k0; k < k1; k++) {
            const double value = line[k], slope = line[M + k];
            for (size_t v = 0; v < LV; v++) {
                const vec g0 = s[0][v] * value + s[1][v] * slope, g1 = s[1][v] * value + s[2][v] * slope;
                double *r = right + k * L + v * SPX_VL;
                store(r, load(r) + s[3][v] * value + s[4][v] * slope);
                for (size_t l = k0; l <= k; l++) {
                    double *g = gram + ((m + l) * (m + 1) + k - l) * L + v * SPX_VL;
                    store(g, load(g) + g0 * line[l] + g1 * line[M + l]);
                }
            }
        }
    }
    scan_values(lines, gram, right, f);
}

/* ---- resolution matrices ---- */

static void resolve(size_t n, size_t ndiag, const double *band, size_t nrow, size_t stride, const double *in,
                    double *out)
{
    enum { V = 4 }; /* vectors whose sums do not wait for each other */
    const size_t h = ndiag / 2, step = V * SPX_VL;
    for (size_t i = 0, m; i < n; i += m) {
        const int inside = i >= h && i + step + h <= n;
        m = inside ? step : 1;
        for (size_t l = 0; l < nrow; l++) {
            double *to = out + l * stride + i;
            if (inside) {
                const double *from = in + l * stride + i - h;
                vec sum[V] = {every(0), every(0), every(0), every(0)};
                for (size_t k = 0; k < ndiag; k++)
                    for (size_t v = 0; v < V; v++)
                        sum[v] += load(band + k * n + i + v * SPX_VL) * load(from + k + v * SPX_VL);
                for (size_t v = 0; v < V; v++)
                    store(to + v * SPX_VL, sum[v]);
            } else {
                double sum = 0;
                for (size_t k = i < h ? h - i : 0; k < ndiag && i + k - h < n; k++)
                    sum += band[k * n + i] * in[l * stride + i + k - h];
                *to = sum;
            }
        }
    }
}

/* SPX_VL columns of rows[ndiag][stride]. */
static void match_few(size_t ndiag, size_t stride, const double *M, const double *N, vec t, double *rows)
{
    vec x[SPX_MAX_NDIAG];
    for (size_t k = 0; k < ndiag; k++)
        x[k] = load(rows + k * stride);
    for (size_t k = 0; k < ndiag; k++, M += ndiag, N += N != NULL ? ndiag : 0) {
        vec sum = every(0), next = every(0);
        for (size_t j = 0; j < ndiag; j++)
            sum += M[j] * x[j];
        for (size_t j = 0; j < ndiag && N != NULL; j++)
            next += N[j] * x[j];
        store(rows + k * stride, N != NULL ? (1 - t) * sum + t * next : sum);
    }
}

static void match(size_t ndiag, size_t n, size_t m, const double *M, const double *N, const double *t, double *rows)
{
    size_t i = 0;
    for (; i + SPX_VL <= m; i += SPX_VL)
        match_few(ndiag, n, M, N, load(t + i), rows + i);
    if (i == m)
        return;
    double few[SPX_MAX_NDIAG * SPX_VL], part[SPX_VL] = {0};
    memset(few, 0, ndiag * SPX_VL * sizeof *few);
    memcpy(part, t + i, (m - i) * sizeof *part);
    for (size_t k = 0; k < ndiag; k++)
        memcpy(few + k * SPX_VL, rows + k * n + i, (m - i) * sizeof *few);
    match_few(ndiag, SPX_VL, M, N, load(part), few);
    for (size_t k = 0; k < ndiag; k++)
        memcpy(rows + k * n + i, few + k * SPX_VL, (m - i) * sizeof *few);
}

/* ---- cross-correlation ---- */

/* Real and imaginary parts of complex numbers, each twice. */
#if SPX_VL == 8
#define REAL_PARTS(z) __builtin_shufflevector(z, z, 0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14)
#define IMAG_PARTS(z) __builtin_shufflevector(z, z, 1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11, 11, 13, 13, 15, 15)
#elif SPX_VL == 4
#define REAL_PARTS(z) __builtin_shufflevector(z, z, 0, 0, 2, 2, 4, 4, 6, 6)
#define IMAG_PARTS(z) __builtin_shufflevector(z, z, 1, 1, 3, 3, 5, 5, 7, 7)
#else
#define REAL_PARTS(z) __builtin_shufflevector(z, z, 0, 0, 2, 2)
#define IMAG_PARTS(z) __builtin_shufflevector(z, z, 1, 1, 3, 3)
#endif

static void correlate(size_t n, size_t per, const float *tap, const float (*s)[2], const float (*si)[2],
                      const float (*v)[2], const float (*vi)[2], const float (*f)[2], const float (*f2)[2],
                      float (*out)[2])
{
    for (size_t b = 0; b < n; b += SPX_VL) {
        vecf sum[SPX_RV_TAPS];
        for (size_t t = 0; t < SPX_RV_TAPS; t++)
            sum[t] = everyf(0);
        for (size_t r = 0; r < per; r++) {
            const size_t i = r * n + b;
            const vecf z = load_vecf(f[i]), z2 = load_vecf(f2[i]);
            vecf p = load_vecf(s[i]) * REAL_PARTS(z);
            p += load_vecf(si[i]) * IMAG_PARTS(z);
            p += load_vecf(v[i]) * REAL_PARTS(z2);
            p += load_vecf(vi[i]) * IMAG_PARTS(z2);
            for (size_t t = 0; t < SPX_RV_TAPS; t++)
                sum[t] += tap[r * SPX_RV_TAPS + t] * p;
        }
        for (size_t t = 0; t < SPX_RV_TAPS; t++)
            store_vecf(out[t * n + b], sum[t]);
    }
}

static const spx_rv_kernels SPX_KERNELS = {.combine = combine,
                                           .components = components,
                                           .exponential = exponential,
                                           .slopes = slopes,
                                           .scaled = scaled,
                                           .broaden_one = broaden_one,
                                           .broaden_float = broaden_float,
                                           .coefficients = coefficients,
                                           .coefficients_float = coefficients_float,
                                           .sample = sample,
                                           .sample_one = sample_one,
                                           .moved = moved,
                                           .scan = scan,
                                           .normal = normal,
                                           .residual = residual,
                                           .curvature = curvature,
                                           .resolve = resolve,
                                           .match = match,
                                           .correlate = correlate};
