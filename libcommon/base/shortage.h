/* Ends a program where a library runs out of memory.
 *
 * HDF5, FFTW, libgomp and the BLAS do not stand a failed allocation: they crash, call exit() with a status of their
 * own, or go on with something missing. malloc() and its kin are therefore replaced in programs (glibc; not under
 * sanitizers): where they fail, the program says so in one line, removes its temporary files and exits with SPX_EIO, as
 * it does where memory of its own (base/mem.h) runs out, which is an error like any other. Nothing is recovered. */
#ifndef SPX_SHORTAGE_H
#define SPX_SHORTAGE_H

#include <stddef.h>

/* From now on; after spx_ending_guard() (base/ending.h). */
void spx_shortage_guard(void);

/* calloc(), and realloc() of memory that a library frees, for callers that deal with NULL. */
void *spx_calloc_or_null(size_t n, size_t size);
void *spx_realloc_or_null(void *p, size_t size);

#endif
