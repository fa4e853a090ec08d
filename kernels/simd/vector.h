/* Provides vector types of any element and size (extensions of gcc and clang), and selection by a mask.
 *
 *     typedef SPX_VECTOR(double, 32) vec;         as it lies in a register
 *     typedef SPX_VECTOR_ANY(double, 32) any;     as it lies anywhere in an array of doubles: for loads and stores
 *
 * A comparison of vectors gives a mask: integers of the elements' size, -1 where it holds, else 0. A vector that is
 * longer than a register is split by the compiler. */
#ifndef SPX_SIMD_VECTOR_H
#define SPX_SIMD_VECTOR_H

#define SPX_VECTOR(T, bytes)     T __attribute__((vector_size(bytes)))
#define SPX_VECTOR_ANY(T, bytes) T __attribute__((vector_size(bytes), aligned(sizeof(T)), may_alias))

/* a where the mask holds, else b, vectors of one type; the mask is evaluated twice. A macro, since functions that pass
 * vectors on need the instruction set of their caller. */
#define SPX_CHOOSE(mask, a, b)                                                                                         \
    ((__typeof__(+(a)))(((__typeof__(+(mask)))(a) & (mask)) | ((__typeof__(+(mask)))(b) & ~(mask))))

#endif
