/* Provides memory: sizes checked for overflow, zeroed, counted against --max-mem, with a free list for queues. Called
 * in place of malloc() everywhere; thread-safe. */
#ifndef SPX_MEM_H
#define SPX_MEM_H

#include <stddef.h>

#include "base/err.h"

/* n1*n2 elements of `size` bytes, zeroed, aligned to 64 bytes (cache line, AVX-512). A product of 0 gives a valid
 * pointer. NULL and SPX_EIO in *e when the product overflows, the limit would be passed, or memory runs out.
 * Free with spx_free(). Thread-safe. */
void *spx_alloc2(size_t n1, size_t n2, size_t size, spx_err *e) SPX_NODISCARD;
#define spx_alloc(n, size, e) spx_alloc2((n), 1, (size), (e))

/* As spx_alloc2(), not zeroed: for arrays that are filled at once. */
void *spx_alloc_unset(size_t n1, size_t n2, size_t size, spx_err *e) SPX_NODISCARD;

/* As spx_alloc2(), for a large block that is passed through in order: where it is more than an eighth of what --max-mem
 * has left, it is an unlinked file in $TMPDIR, mapped, which does not count against the limit, because its pages can be
 * written out when memory is short. SPX_EIO also when the disk is full. */
void *spx_alloc_spill(size_t n1, size_t n2, size_t size, spx_err *e) SPX_NODISCARD;
/* Releases the pages of such a block after a pass through part of it: a mapped file need not stay in memory. */
void spx_mem_passed(const void *p);
/* Memory of malloc() that will be filled: asks for huge pages where it is large, whose first touch costs far less. */
void spx_mem_large(void *p, size_t bytes);

/* Array of at least n + add elements of `size` bytes that begins with the n of `old`, which has *capacity of them:
 * `old` itself where they fit, else a new array of twice the capacity or more, zeroed behind the n, and `old` is freed.
 * NULL and an error as of spx_alloc2(): `old` and *capacity stay. For arrays that grow by appending: old NULL, n and
 * *capacity 0 at first. */
void *spx_grow(void *old, size_t n, size_t add, size_t *capacity, size_t size, spx_err *e) SPX_NODISCARD;

/* Product a*b into *p; SPX_EINPUT when it overflows size_t. */
spx_status spx_mul(size_t a, size_t b, size_t *p, spx_err *e) SPX_NODISCARD;

/* Frees a block of spx_alloc() and its like; NULL is allowed. */
void spx_free(void *p);

/* Copy of a string, with spx_alloc(). */
char *spx_strdup(const char *s, spx_err *e) SPX_NODISCARD;

/* Sets the limit of memory from spx_alloc() and its like held at one time, bytes; 0: none. */
void spx_mem_limit(size_t bytes);
size_t spx_mem_limit_get(void);

/* Counts memory that a library allocates (not spx_alloc()) against the limit. 0 when the limit would be passed; nothing
 * is counted then. The caller takes it off when the library frees it. */
int spx_mem_claim(size_t bytes) SPX_NODISCARD;
void spx_mem_unclaim(size_t bytes);

/* 1 when a library may now allocate so much: within the limit, or within the machine's memory. */
int spx_mem_fits(size_t bytes);

/* Largest size of one input, bytes: the limit, or the machine's memory, so that a small file which claims to be huge is
 * refused instead of driving the machine out of memory. */
size_t spx_mem_cap(void);
/* SPX_EIO when `bytes` for the input `name` are more than that. */
spx_status spx_mem_check(const char *name, size_t bytes, spx_err *e);

/* keep = 1 enables a size-matched free list for blocks of 128 KiB and more, so that the items of a queue reuse pages:
 * new pages are faulted in and zeroed one by one, under one lock for all threads of a process, which takes most of an
 * item of milliseconds. Free blocks do not count as held; with those in use they stay within the limit, and within 1.5
 * times the peak in use. 0 ends what one call with 1 began; the last such call empties the list. */
void spx_mem_cache(int keep);

/* Page-locks memory for direct transfers of a device: lock(at, bytes, 1) locks pages, lock(at, bytes, 0) releases them;
 * it returns 0 on failure. All parts of a program that begin give the same function: pages that a device reads for one
 * of them stay locked when another begins or ends. The last end releases all. */
typedef int spx_mem_pagelock(void *at, size_t bytes, int on); /* thread-safe */
void spx_mem_begin_pagelock(spx_mem_pagelock *lock);
void spx_mem_end_pagelock(void);
/* 1 when the pages of a whole block (from spx_alloc() and its like) are locked. The first call tries to lock them, for
 * blocks of the free list only, because it takes long; they stay locked until they are returned to the system. */
int spx_mem_pagelocked(const void *p);

/* Number of failed allocations so far: lets callers without an spx_err (HDF5 callbacks, checks) tell a lack of memory
 * from a finding. */
size_t spx_mem_failures(void);

/* SPX_EIO with a remedy, for an allocation whose own error was lost in a thread of a parallel loop. */
spx_status spx_mem_fail(spx_err *e);

/* Peak of memory held at one time so far, bytes. */
size_t spx_mem_peak(void);

#endif
