/* Provides vectors of SPX_VL doubles, and of 2 SPX_VL floats: loads, stores, masks, sums over lanes. The file that
 * includes it is compiled for each instruction set and defines SPX_VL before (README). */
#ifndef SPX_SIMD_SIMD_H
#define SPX_SIMD_SIMD_H

#include <stdint.h>
#if (SPX_VL == 8 && defined(__AVX512F__)) || (SPX_VL == 4 && defined(__AVX2__))
#include <immintrin.h>
#endif

#include "simd/vector.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef SPX_VECTOR(double, 8 * SPX_VL) vec;
typedef SPX_VECTOR(int64_t, 8 * SPX_VL) ivec; /* masks, bits */
typedef SPX_VECTOR_ANY(double, 8 * SPX_VL) vec_any;
typedef SPX_VECTOR_ANY(float, 4 * SPX_VL) half_vecf_any;

/* Single precision in registers of the same size. */
typedef SPX_VECTOR(float, 8 * SPX_VL) vecf;
typedef SPX_VECTOR(int32_t, 8 * SPX_VL) ivecf;
typedef SPX_VECTOR_ANY(float, 8 * SPX_VL) vecf_any;

ALWAYS_INLINE vec load(const double *p)
{
    return *(const vec_any *)p;
}

ALWAYS_INLINE void store(double *p, vec v)
{
    *(vec_any *)p = v;
}

ALWAYS_INLINE vecf load_vecf(const float *p)
{
    return *(const vecf_any *)p;
}

ALWAYS_INLINE void store_vecf(float *p, vecf v)
{
    *(vecf_any *)p = v;
}

/* SPX_VL floats, in double precision. */
ALWAYS_INLINE vec load_float(const float *p)
{
#if SPX_VL == 8 && defined(__AVX512F__)
    return (vec)_mm512_cvtps_pd(_mm256_loadu_ps(p)); /* which GCC makes of two halves */
#else
    return __builtin_convertvector(*(const half_vecf_any *)p, vec);
#endif
}

/* The same value in all lanes: x - 0 is x, -0 and NaN included. */
ALWAYS_INLINE vec every(double v)
{
    return v - (vec){0};
}

#define EVERY_INT(v) ((ivec){0} + (int64_t)(v))

ALWAYS_INLINE vecf everyf(float v)
{
    return v - (vecf){0};
}

/* a where mask, else b. */
ALWAYS_INLINE vec choose(ivec mask, vec a, vec b)
{
    return SPX_CHOOSE(mask, a, b);
}

ALWAYS_INLINE vecf choosef(ivecf mask, vecf a, vecf b)
{
    return SPX_CHOOSE(mask, a, b);
}

ALWAYS_INLINE vec positive_or_0(vec v)
{
    return (vec)((ivec)v & (v > every(0.0)));
}

/* Always in the same order: halves are added, until one is left. */
ALWAYS_INLINE double sum_lanes(vec v)
{
#if SPX_VL == 8
    typedef SPX_VECTOR(double, 32) vec4;
    typedef SPX_VECTOR(double, 16) vec2;
    vec4 four = __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
    vec2 two = __builtin_shufflevector(four, four, 0, 1) + __builtin_shufflevector(four, four, 2, 3);
    return two[0] + two[1];
#elif SPX_VL == 4
    typedef SPX_VECTOR(double, 16) vec2;
    vec2 two = __builtin_shufflevector(v, v, 0, 1) + __builtin_shufflevector(v, v, 2, 3);
    return two[0] + two[1];
#else
    return v[0] + v[1];
#endif
}

/* Lane after lane, as a loop over the values of the vector. */
ALWAYS_INLINE double sum_in_order(vec v)
{
    double s = 0;
    for (int i = 0; i < SPX_VL; i++)
        s += v[i];
    return s;
}

ALWAYS_INLINE vec vabs(vec v)
{
    return (vec)((ivec)v & EVERY_INT(INT64_MAX));
}

ALWAYS_INLINE vec vmax(vec a, vec b)
{
    return choose(a > b, a, b);
}

/* NaN stays NaN. */
ALWAYS_INLINE vec vclamp(vec v, double low, double high)
{
    return choose(v > every(high), every(high), choose(v < every(low), every(low), v));
}

ALWAYS_INLINE vec square(vec v)
{
    return v * v;
}

/* Whether a mask holds in some lane, and in all: one instruction where there is one, else lane by lane. */
ALWAYS_INLINE int any_lane(ivec mask)
{
#if SPX_VL == 8 && defined(__AVX512F__)
    return _mm512_test_epi64_mask((__m512i)mask, (__m512i)mask) != 0;
#elif SPX_VL == 4 && defined(__AVX2__)
    return !_mm256_testz_si256((__m256i)mask, (__m256i)mask);
#else
    int64_t all = 0;
    for (int i = 0; i < SPX_VL; i++)
        all |= mask[i];
    return all != 0;
#endif
}

ALWAYS_INLINE int all_lanes(ivec mask)
{
#if SPX_VL == 8 && defined(__AVX512F__)
    return _mm512_test_epi64_mask((__m512i)mask, (__m512i)mask) == 0xff;
#elif SPX_VL == 4 && defined(__AVX2__)
    return _mm256_movemask_pd((__m256d)mask) == 0xf;
#else
    int64_t all = -1;
    for (int i = 0; i < SPX_VL; i++)
        all &= mask[i];
    return all != 0;
#endif
}

#endif
