#include "base/mem.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Each block is preceded by one cache line that holds its size, and where the memory that it is part of begins. */
enum { HEAD = 64 };

/* From this size on large pages are asked for: a first touch costs far less with them. */
#define MANY_BYTES ((size_t)8 << 20)

typedef struct {
    size_t total;
    void *base;
} head;

static atomic_size_t held, peak, limit, failures;
static atomic_int limited; /* the limit was the reason of a failure */

#define MIB 1048576.

#ifdef SPX_FAULTS
/* Fault-injection build (make asan): the SPX_FAULT_ALLOC-th allocation fails, as in SQLite's malloc tests. */
static int fault_now(void)
{
    static atomic_long count;
    static long at = -1;
    if (at < 0) {
        const char *s = getenv("SPX_FAULT_ALLOC");
        at = s != NULL ? atol(s) : 0;
    }
    return at > 0 && atomic_fetch_add(&count, 1) + 1 == at;
}
#else
static int fault_now(void)
{
    return 0;
}
#endif

spx_status spx_mul(size_t a, size_t b, size_t *p, spx_err *e)
{
    if (b != 0 && a > SIZE_MAX / b)
        return spx_fail(e, SPX_EINPUT, "size %zu x %zu overflows", a, b);
    *p = a * b;
    return SPX_OK;
}

void *spx_alloc2(size_t n1, size_t n2, size_t size, spx_err *e)
{
    size_t n = 0, bytes = 0;
    if (spx_mul(n1, n2, &n, e) != SPX_OK || spx_mul(n, size, &bytes, e) != SPX_OK)
        return NULL;
    if (bytes > SIZE_MAX / 2) {
        spx_fail(e, SPX_EINPUT, "size %zu is out of range", bytes);
        return NULL;
    }
    size_t total = HEAD + (bytes + HEAD - 1) / HEAD * HEAD + (bytes == 0 ? HEAD : 0);
    size_t now = atomic_fetch_add(&held, total) + total;
    size_t max = atomic_load(&limit);
    char *p = NULL, *base = NULL;
    if (max != 0 && now > max) {
        spx_fail(e, SPX_EIO,
                 "needs more memory than --max-mem allows (%.1f MiB of %.1f MiB held, %.1f MiB more wanted): "
                 "raise --max-mem or give smaller inputs",
                 (double)(now - total) / MIB, (double)max / MIB, (double)total / MIB);
        atomic_store(&limited, 1);
    } else if (fault_now() || (base = calloc(1, total + HEAD)) == NULL) {
        /* calloc() knows which memory is zero already: large blocks are touched first by those who fill them */
        spx_fail(e, SPX_EIO, "out of memory (%zu MiB wanted): give smaller inputs or fewer threads", total >> 20);
    }
    if (base == NULL) {
        atomic_fetch_add(&failures, 1);
        atomic_fetch_sub(&held, total);
        return NULL;
    }
    size_t top = atomic_load(&peak);
    while (now > top && !atomic_compare_exchange_weak(&peak, &top, now)) {
    }
    p = base + (HEAD - (uintptr_t)base % HEAD) % HEAD;
    if (total >= MANY_BYTES) {
        const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)p + page - 1) / page * page;
        (void)madvise((void *)from, ((uintptr_t)p + total) / page * page - from, MADV_HUGEPAGE);
    }
    const head h = {total, base};
    memcpy(p, &h, sizeof h);
    return p + HEAD;
}

void spx_free(void *p)
{
    if (p == NULL)
        return;
    head h;
    memcpy(&h, (char *)p - HEAD, sizeof h);
    atomic_fetch_sub(&held, h.total);
    free(h.base);
}

char *spx_strdup(const char *s, spx_err *e)
{
    size_t n = strlen(s) + 1;
    char *p = spx_alloc(n, 1, e);
    if (p != NULL)
        memcpy(p, s, n);
    return p;
}

void spx_mem_limit(size_t bytes)
{
    atomic_store(&limit, bytes);
}

size_t spx_mem_limit_get(void)
{
    return atomic_load(&limit);
}

size_t spx_mem_cap(void)
{
    size_t cap = spx_mem_limit_get();
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (cap == 0 && pages > 0 && page > 0)
        cap = (size_t)pages * (size_t)page;
    return cap == 0 ? SIZE_MAX / 2 : cap;
}

spx_status spx_mem_room(const char *name, size_t bytes, spx_err *e)
{
    size_t cap = spx_mem_cap();
    if (bytes <= cap)
        return SPX_OK;
    return spx_fail(e, SPX_EIO,
                    "%s: needs more than %zu MiB of memory: set --max-mem to more, or use a machine with more", name,
                    cap >> 20);
}

size_t spx_mem_failures(void)
{
    return atomic_load(&failures);
}

spx_status spx_mem_fail(spx_err *e)
{
    if (atomic_load(&limited))
        return spx_fail(e, SPX_EIO,
                        "needs more memory than --max-mem allows (%.1f MiB): raise it, or use fewer threads",
                        (double)atomic_load(&limit) / MIB);
    return spx_fail(e, SPX_EIO, "out of memory: use fewer threads, or give smaller inputs");
}

size_t spx_mem_peak(void)
{
    return atomic_load(&peak);
}
