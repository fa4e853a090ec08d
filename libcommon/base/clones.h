/* Provides SPX_CLONES, which compiles a loop for AVX2 as well where the compiler can choose between both at run time.
 * Only for loops whose elements do not depend on each other: without contraction to FMA (Makefile) their results are
 * then the same bits on every processor. Loops with sums of real numbers, and those that time is spent in, are written
 * with kernels/simd. */
#ifndef SPX_CLONES_H
#define SPX_CLONES_H

#if defined __x86_64__ && defined __gnu_linux__ && defined __GNUC__ && !defined __clang__ &&                           \
    !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#define SPX_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define SPX_CLONES
#endif

#endif
