/* Replaces malloc() and its kin (base/shortage.h): the program's own functions come before glibc's for all libraries.
 */
#include "base/shortage.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/ending.h"

#ifdef SPX_REPLACES_LIBC
#include <dlfcn.h>

static int guarded;
static _Thread_local int tolerated;

/* glibc's own, for what dlsym() allocates while it looks for the next ones (of a library that counts allocations, say).
 */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t align, size_t size);

static struct {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*memalign)(size_t, size_t);
} next;

static void *next_of(const char *symbol, void *own)
{
    void *found = dlsym(RTLD_NEXT, symbol);
    return found != NULL ? found : own;
}

void spx_shortage_guard(void)
{
    next.malloc = (void *(*)(size_t))next_of("malloc", (void *)__libc_malloc);
    next.calloc = (void *(*)(size_t, size_t))next_of("calloc", (void *)__libc_calloc);
    next.realloc = (void *(*)(void *, size_t))next_of("realloc", (void *)__libc_realloc);
    next.memalign = (void *(*)(size_t, size_t))next_of("memalign", (void *)__libc_memalign);
    guarded = 1;
}

static void *or_end(void *p, size_t n)
{
    if (p == NULL && n > 0 && guarded && tolerated == 0)
        spx_end_now("out of memory: give smaller inputs or fewer threads");
    return p;
}

void *malloc(size_t n)
{
    return !guarded ? __libc_malloc(n) : or_end(next.malloc(n), n);
}

void *calloc(size_t n, size_t size)
{
    return !guarded ? __libc_calloc(n, size) : or_end(next.calloc(n, size), n > 0 ? size : 0);
}

void *realloc(void *p, size_t size)
{
    return !guarded ? __libc_realloc(p, size) : or_end(next.realloc(p, size), size);
}

void *memalign(size_t align, size_t size);
void *memalign(size_t align, size_t size)
{
    return !guarded ? __libc_memalign(align, size) : or_end(next.memalign(align, size), size);
}

void *aligned_alloc(size_t align, size_t size)
{
    return memalign(align, size);
}

int posix_memalign(void **p, size_t align, size_t size)
{
    void *q = memalign(align, size);
    if (q == NULL && size > 0)
        return ENOMEM;
    *p = q;
    return 0;
}

void *spx_calloc_or_null(size_t n, size_t size)
{
    tolerated++;
    void *p = calloc(n, size);
    tolerated--;
    return p;
}

void *spx_realloc_or_null(void *p, size_t size)
{
    tolerated++;
    void *q = realloc(p, size);
    tolerated--;
    return q;
}

#else

void spx_shortage_guard(void)
{
}

void *spx_calloc_or_null(size_t n, size_t size)
{
    return calloc(n, size);
}

void *spx_realloc_or_null(void *p, size_t size)
{
    return realloc(p, size);
}

#endif
