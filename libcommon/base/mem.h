/* Memory: sizes checked for overflow, zeroed, counted against --max-mem; for queues, kept from item to item. */
#ifndef SPX_MEM_H
#define SPX_MEM_H

#include <stddef.h>

#include "base/err.h"

/* n1*n2 elements of `size` bytes, zeroed, aligned to 64 bytes (cache line, AVX-512). A product of 0 gives a valid
 * pointer. NULL and SPX_EIO in *e when the product overflows, the limit would be passed, or memory runs out.
 * Free with spx_free(). Thread-safe. */
void *spx_alloc2(size_t n1, size_t n2, size_t size, spx_err *e) SPX_NODISCARD;
#define spx_alloc(n, size, e) spx_alloc2((n), 1, (size), (e))

/* The same, but with anything in it: for what is filled at once. */
void *spx_alloc_unset(size_t n1, size_t n2, size_t size, spx_err *e) SPX_NODISCARD;

/* The same as spx_alloc2(), for a large block that is passed through in order: where it is more than an eighth of what
 * --max-mem has left, it is a file in $TMPDIR without a name, mapped, which is not counted: its pages go there when
 * memory is short. SPX_EIO also where there is no room. */
void *spx_alloc_spill(size_t n1, size_t n2, size_t size, spx_err *e) SPX_NODISCARD;
/* A part of such a block was passed through: if it is a file, none of it needs to be in memory now. */
void spx_mem_passed(const void *p);

/* Array of at least n + add elements of `size` bytes that begins with the n of `old`, which has *capacity of them:
 * `old` itself where they fit, else a new array of twice the capacity or more, zeroed behind the n, and `old` is freed.
 * NULL and an error as of spx_alloc2(): `old` and *capacity stay. For arrays that grow by appending: old NULL, n and
 * *capacity 0 at first. */
void *spx_grow(void *old, size_t n, size_t add, size_t *capacity, size_t size, spx_err *e) SPX_NODISCARD;

/* Product a*b into *p; SPX_EINPUT when it overflows size_t. */
spx_status spx_mul(size_t a, size_t b, size_t *p, spx_err *e) SPX_NODISCARD;

/* Free what spx_alloc() gave; NULL is allowed. */
void spx_free(void *p);

/* Copy of a string, with spx_alloc(). */
char *spx_strdup(const char *s, spx_err *e) SPX_NODISCARD;

/* Limit of all memory taken through spx_alloc() at one time, bytes; 0: none. */
void spx_mem_limit(size_t bytes);
size_t spx_mem_limit_get(void);

/* Memory that others take, counted as held: 0 when the limit would be passed by it, and nothing is counted then. What
 * was counted is to be taken off when it is given back. */
int spx_mem_claim(size_t bytes) SPX_NODISCARD;
void spx_mem_unclaim(size_t bytes);

/* Most that one input may take: the limit, or what the machine has, so that a small file which claims to be huge is
 * refused instead of driving the machine out of memory. */
size_t spx_mem_cap(void);
/* SPX_EIO when `bytes` for the input `name` are more than that. */
spx_status spx_mem_check(const char *name, size_t bytes, spx_err *e);

/* With keep = 1: blocks of 1 MiB and more that are freed stay for others of their size, for items of a queue that
 * follow each other. New memory comes page by page, zeroed, and for all threads of a process through one lock: where an
 * item takes milliseconds, that is most of it. Those that wait are not counted as held; with
 * what is in use they stay within the limit, and within half as much again as was in use at one time. 0 gives them
 * back. */
void spx_mem_keep(int keep);

/* Page-locked memory, which a device reads and writes by itself: lock(at, bytes, 1) locks pages, lock(at, bytes, 0)
 * releases them; 0: it could not. NULL releases all; nobody may be asking meanwhile. */
typedef int spx_mem_lock(void *at, size_t bytes, int on); /* thread-safe */
void spx_mem_locker(spx_mem_lock *lock);
/* 1 when the pages of a whole block (from spx_alloc() and its like) are locked, which is tried at the first call:
 * blocks that are kept only, as it takes long. They stay so until they are given back. */
int spx_mem_locked(const void *p);

/* Number of allocations that failed so far: for callers that look at answers, not at errors. */
size_t spx_mem_failures(void);

/* SPX_EIO, and what to do, after an allocation whose own error was lost: in a thread of a parallel loop. */
spx_status spx_mem_fail(spx_err *e);

/* Highest sum of memory held at one time so far, bytes. */
size_t spx_mem_peak(void);

#endif
