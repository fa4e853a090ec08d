/* Provides exp, log and erf of vectors of SPX_VL doubles, exp of 2 SPX_VL floats. Their stated accuracy is in
 * accuracy.h; README has what was measured. Values outside of the ranges that the functions name mean nothing: callers
 * clamp. */
#ifndef SPX_SIMD_SIMD_MATH_H
#define SPX_SIMD_SIMD_MATH_H

#include "simd/accuracy.h"
#include "simd/simd.h"

/* Vectors that are worked on side by side: each term of a series waits for the one before, and takes as long as one of
 * some other vectors. */
enum { SPX_MATH_TOGETHER = 4 };

/* exp(x), SPX_EXP_LOW <= x <= SPX_EXP_HIGH; NaN stays NaN: 2^n exp(r), |r| <= ln(2)/2, Taylor series; the first term
 * that is left out is r^14/14! < 5e-18. Of `count` <= SPX_MATH_TOGETHER vectors, a constant. */
ALWAYS_INLINE void vexps(int count, const vec *x, vec *exp_x)
{
    static const double c[] = {
        1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
        1.0 / 720,        1.0 / 120,       1.0 / 24,       1.0 / 6,       0.5,          1,           1};
    const double magic = 6755399441055744.0; /* 1.5 2^52: the sum ends in the integer nearest to the argument */
    vec t[SPX_MATH_TOGETHER], r[SPX_MATH_TOGETHER], p[SPX_MATH_TOGETHER];
    for (int v = 0; v < count; v++) {
        t[v] = x[v] * 1.44269504088896340736 + magic;
        const vec n = t[v] - magic;
        /* ln 2 in two parts (Cody & Waite 1980), the first of 33 bits, so that n times it is exact */
        r[v] = (x[v] - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
        p[v] = every(c[0]);
    }
    for (int i = 1; i < (int)(sizeof c / sizeof *c); i++)
        for (int v = 0; v < count; v++)
            p[v] = p[v] * r[v] + c[i];
    for (int v = 0; v < count; v++)
        exp_x[v] = p[v] * (vec)(((ivec)t[v] << 52) + EVERY_INT(0x3ff0000000000000));
}

ALWAYS_INLINE vec vexp(vec x)
{
    vec exp_x;
    vexps(1, &x, &exp_x);
    return exp_x;
}

/* exp(x) in single precision, x beyond -87 ... 87 as at these ends: as vexp(); the first term of the series that is
 * left out is r^8/8! < 6e-9. */
ALWAYS_INLINE vecf vexpf(vecf x)
{
    const vecf most = everyf(87), magic = everyf(0x1.8p23f);
    x = choosef(x > most, most, x);
    x = choosef(x < -most, -most, x);
    vecf t = x * 1.44269504f + magic, n = t - magic;
    vecf r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vecf p = r * (1.f / 5040) + 1.f / 720;
    p = p * r + 1.f / 120;
    p = p * r + 1.f / 24;
    p = p * r + 1.f / 6;
    p = p * r + 0.5f;
    p = p * r + 1;
    p = p * r + 1;
    return (vecf)((ivecf)p + (((ivecf)t - (ivecf)magic) << 23));
}

/* ln x of positive normal x = 2^e (1 + f), 1 + f in sqrt(1/2) ... sqrt(2). With s = f/(2 + f)
 *     ln(1 + f) = 2 atanh(s) = f - f^2/2 + s (f^2/2 + R(s^2)),
 * R minimax to 2^-58; coefficients and parts of ln 2 are those of e_log.c in FDLIBM (Sun Microsystems 1993). */
ALWAYS_INLINE vec vlog(vec x)
{
    static const double c[] = {1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
                               2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
                               6.666666666666735130e-01};
    /* exponent as an integer in the low bits of a double near 2^52: there is no conversion of it before AVX-512 */
    ivec e = (((ivec)x - EVERY_INT(0x3FE6A09E667F3BCD)) >> 52) + 1024; /* sqrt(1/2) */
    vec exponent = (vec)(e | 0x4330000000000000) - every(0x1p52 + 1024);
    vec f = (vec)((ivec)x - ((e - 1024) << 52)) - 1, s = f / (f + 2), q = s * s, half = 0.5 * f * f, p = every(c[0]);
    for (int i = 1; i < (int)(sizeof c / sizeof *c); i++)
        p = p * q + c[i];
    vec low = s * (half + p * q) + exponent * 1.90821492927058770002e-10;
    return exponent * 6.93147180369123816490e-01 - ((half - low) - f);
}

/* erf(e/sqrt 2)/2 and exp(-e^2/2). (1 + 2 z) exp(z^2) erfc(z) is a polynomial in (z - 4)/(z + 4) for all z >= 0, to
 * 3e-15 (Shepherd & Laframboise 1981, Math. Comp. 36, 249; coefficients: Chebyshev series of order 22). Of `count`
 * vectors, as vexps(). */
ALWAYS_INLINE void half_erfs(int count, const vec *e, vec *erf2, vec *gauss)
{
    static const double c[23] = {
        1.23299511862555256e+00,  -1.39621116840569215e-01, 1.53796521026158643e-02,  6.80970542547575108e-02,
        -1.01039066035322977e-01, 9.37328350030032786e-02,  -6.63303658391336676e-02, 3.71675154395842353e-02,
        -1.61977337706605343e-02, 5.03197080349366416e-03,  -7.57774894395879528e-04, -1.99260525562294788e-04,
        1.50626990644013874e-04,  -2.43883127586741474e-05, -1.12330004048999404e-05, 5.68984840356279205e-06,
        3.08078597299754620e-07,  -8.02031863713636982e-07, 6.33019953966140736e-08,  9.28732333704829190e-08,
        -1.29430554807186135e-08, -6.96396455168724063e-09, 9.31322574615478516e-10};
    vec z[SPX_MATH_TOGETHER], g[SPX_MATH_TOGETHER], t[SPX_MATH_TOGETHER], p[SPX_MATH_TOGETHER];
    for (int v = 0; v < count; v++) {
        z[v] = vabs(e[v]) * every(0.70710678118654752440);
        const vec power = every(-0.5) * e[v] * e[v];
        g[v] = vmax(power, every(-700.0));
    }
    vexps(count, g, gauss);
    for (int v = 0; v < count; v++) {
        t[v] = (z[v] - every(4.0)) / (z[v] + every(4.0));
        p[v] = every(c[22]);
    }
    for (int i = 21; i >= 11; i--) /* in two loops, each of which compilers unroll */
        for (int v = 0; v < count; v++)
            p[v] = p[v] * t[v] + every(c[i]);
    for (int i = 10; i >= 0; i--)
        for (int v = 0; v < count; v++)
            p[v] = p[v] * t[v] + every(c[i]);
    for (int v = 0; v < count; v++) {
        const vec half = every(0.5) - every(0.5) * gauss[v] * p[v] / (every(1.0) + every(2.0) * z[v]);
        erf2[v] = (vec)((ivec)half | ((ivec)e[v] & EVERY_INT(INT64_MIN)));
    }
}

ALWAYS_INLINE void half_erf(vec e, vec *erf2, vec *gauss)
{
    half_erfs(1, &e, erf2, gauss);
}

#endif
