/* Provides the stated accuracy of simd_math.h, which tests/kernels/test_simd.c holds it to on every instruction set. */
#ifndef SPX_SIMD_ACCURACY_H
#define SPX_SIMD_ACCURACY_H

/* vexp(): range; error, and difference of two instruction sets, in units in the last place */
#define SPX_EXP_LOW      (-708.0)
#define SPX_EXP_HIGH     709.0
#define SPX_EXP_ULP      1.2
#define SPX_EXP_SETS_ULP 2.0

/* vlog(), of positive normal numbers */
#define SPX_LOG_ULP      0.9
#define SPX_LOG_SETS_ULP 1.0

/* vexpf(), relative, -87 <= x <= 87 */
#define SPX_EXPF_ERROR 1.5e-7

/* half_erf(): absolute error of erf(e/sqrt 2)/2; error of exp(-e^2/2), relative, is this times 1 + e^2/2 */
#define SPX_HALF_ERF_ERROR 2e-15
#define SPX_GAUSS_ERROR    2.5e-16

#endif
