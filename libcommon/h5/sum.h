/* Provides the checksum of an inventory's pieces: XXH3 of 64 bits. */
#ifndef SPX_H5_SUM_H
#define SPX_H5_SUM_H

#include <stddef.h>
#include <stdint.h>

/* XXH3 sums in lanes, which gives the same number with any instruction set. SPX_SUM_AVX2: it is compiled for AVX2 as
 * well, and chosen at run time. */
#if defined __x86_64__ && defined __gnu_linux__ && defined __GNUC__ && !defined __clang__ &&                           \
    !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
#define SPX_SUM_AVX2
#endif

/* `make check-cuda` is for machines that may lack the library: files have no inventory then, and none is read. */
#if !defined SPX_BARE || __has_include(<xxhash.h>)
enum { SPX_SUMS = 1 };
#else
enum { SPX_SUMS = 0 };
#endif

/* Of n bytes; 0 where SPX_SUMS is 0. */
uint64_t spx_sum(const void *p, size_t n);
uint64_t spx_sum_avx2(const void *p, size_t n);

#endif
