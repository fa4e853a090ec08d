/* Provides counted memory: a header of one cache line before each block, a free list of large blocks (spx_mem_cache()),
 * page-locking, and blocks that are mapped files (spx_alloc_spill()); see base/mem.h. */
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/shortage.h"

/* Size of a block's header: one cache line, which keeps the block aligned. */
enum { HEAD = 64 };

/* Size from which transparent huge pages are asked for: first touch costs far less with them. */
#define MANY_BYTES ((size_t)4 << 20)

typedef struct head {
    size_t total;       /* size of the block with its header, bytes */
    void *base;         /* start of the mapping or allocation that the block is in */
    struct head *older; /* free list: next older block */
    struct head *next;  /* list of page-locked blocks */
    int kept;           /* mapped by itself; goes to the free list when it is freed */
    int spilt;          /* mapped file (spx_alloc_spill()) */
    enum { UNLOCKED, LOCKING, LOCKED, REFUSED } lock;
} head;
_Static_assert(sizeof(head) <= HEAD, "a block's line");

static atomic_size_t held, peak, limit, failures;
static atomic_int limited; /* 1: an allocation failed because of --max-mem */

#define MIB 1048576.

/* Blocks that wait for others of their size, the newest first. In place of this list, mallopt(M_MMAP_THRESHOLD,
 * M_TRIM_THRESHOLD) leaves freed memory in the heap: a queue of 8 frames of 25 fibres x 500 Angstrom on two cores
 * (specx-extract -j 2, medians of 15 rounds in turn) took 1.77 core-seconds and 13e3 page faults with the list, 2.08
 * and 63e3 with malloc() and calloc() alone, 1.98 and 53e3 with both thresholds at glibc's maximum, 1.84 and 14e3 with
 * one arena besides. That maximum is 32 MiB, less than an image of a whole CCD; and pages that a device locks have to
 * stay mapped, which a heap does not promise. Where these alone cost less than 2 % more, and no device locks pages:
 * delete the list. */
#define KEPT_BYTES ((size_t)1 << 17)
#define LARGE_PAGE ((size_t)2 << 20)
/* Step of the sizes of blocks that are less than half a large page. */
#define SMALL_STEP ((size_t)1 << 16)
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int keeping; /* how many ask for it */
static head *waiting, *locked;
static size_t waiting_bytes;
static spx_mem_pagelock *locker;
static int lockers; /* how many have begun to lock pages */

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

/* ---- free list; the lock is held ---- */

/* Bound of bytes in use and on the free list: 1.5 times the peak in use, because blocks of one size wait while most
 * blocks of another are in use. */
static size_t most_bytes(void)
{
    const size_t top = atomic_load(&peak), most = top + top / 2, max = atomic_load(&limit);
    return max != 0 && max < most ? max : most;
}

static void unlock(head *h)
{
    if (h->lock == LOCKED) {
        head **at = &locked;
        while (*at != h)
            at = &(*at)->next;
        *at = h->next;
        (void)locker(h->base, h->total, 0);
    }
    h->lock = UNLOCKED;
}

/* Returns the oldest block of the free list to the system. */
static void drop_oldest(void)
{
    head **at = &waiting;
    while ((*at)->older != NULL)
        at = &(*at)->older;
    head *h = *at;
    *at = NULL;
    waiting_bytes -= h->total;
    unlock(h);
    (void)munmap(h->base, h->total);
}

/* Block of `total` bytes from the free list, or a new one; NULL: out of memory. *fresh: 1 where it is zeroed. */
static head *take_kept(size_t total, int *fresh)
{
    for (head **at = &waiting; *at != NULL; at = &(*at)->older)
        if ((*at)->total == total) {
            head *h = *at;
            *at = h->older;
            waiting_bytes -= total;
            *fresh = 0;
            return h;
        }
    while (waiting != NULL && atomic_load(&held) + waiting_bytes > most_bytes())
        drop_oldest();
    void *p = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    while (p == MAP_FAILED && waiting != NULL) {
        drop_oldest();
        p = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (p == MAP_FAILED)
        return NULL;
    head *h = p;
    (void)madvise(p, total, MADV_HUGEPAGE);
    *h = (head){.total = total, .base = p, .kept = 1};
    *fresh = 1;
    return h;
}

/* ---- all blocks ---- */

void spx_mem_large(void *p, size_t bytes)
{
    /* whole pages, those at the ends too: a mapping of which a part is advised becomes two, which realloc() cannot
     * extend */
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)p / page * page;
    if (bytes >= MANY_BYTES)
        (void)madvise((void *)from, ((uintptr_t)p + bytes + page - 1) / page * page - from, MADV_HUGEPAGE);
}

static head *new_block(size_t total, int kept, int *fresh)
{
    if (fault_now())
        return NULL;
    if (kept) {
        (void)pthread_mutex_lock(&kept_lock);
        head *h = take_kept(total, fresh);
        (void)pthread_mutex_unlock(&kept_lock);
        return h;
    }
    /* calloc() does not touch fresh pages: large blocks are first touched by the threads that fill them */
    char *base = spx_calloc_or_null(1, total + HEAD);
    *fresh = 1;
    if (base == NULL)
        return NULL;
    head *h = (head *)(void *)(base + (HEAD - (uintptr_t)base % HEAD) % HEAD);
    spx_mem_large(h, total);
    *h = (head){.total = total, .base = base};
    return h;
}

static void note_peak(size_t now)
{
    size_t top = atomic_load(&peak);
    while (now > top && !atomic_compare_exchange_weak(&peak, &top, now)) {
    }
}

static size_t round_up(size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

static void *alloc_block(size_t n1, size_t n2, size_t size, int zeroed, spx_err *e)
{
    size_t n = 0, bytes = 0;
    if (spx_mul(n1, n2, &n, e) != SPX_OK || spx_mul(n, size, &bytes, e) != SPX_OK)
        return NULL;
    if (bytes > SIZE_MAX / 2) {
        spx_fail(e, SPX_EINPUT, "size %zu is out of range", bytes);
        return NULL;
    }
    size_t total = HEAD + (bytes + HEAD - 1) / HEAD * HEAD + (bytes == 0 ? HEAD : 0);
    const int kept = atomic_load(&keeping) && total >= KEPT_BYTES;
    if (kept)
        total = round_up(total, total < LARGE_PAGE / 2 ? SMALL_STEP : LARGE_PAGE);
    size_t now = atomic_fetch_add(&held, total) + total;
    size_t max = atomic_load(&limit);
    int fresh = 0;
    head *h = NULL;
    if (max != 0 && now > max) {
        const double unit = (double)max < 10 * MIB ? 1024 : MIB;
        const char *name = unit < MIB ? "KiB" : "MiB";
        spx_fail(e, SPX_EIO,
                 "needs more memory than --max-mem allows (%.1f %s of %.1f %s held, %.1f %s more wanted): raise "
                 "--max-mem or give smaller inputs",
                 (double)(now - total) / unit, name, (double)max / unit, name, (double)total / unit, name);
        atomic_store(&limited, 1);
    } else if ((h = new_block(total, kept, &fresh)) == NULL) {
        spx_fail(e, SPX_EIO, "out of memory (%zu MiB wanted): give smaller inputs or fewer threads", total >> 20);
    }
    if (h == NULL) {
        atomic_fetch_add(&failures, 1);
        atomic_fetch_sub(&held, total);
        return NULL;
    }
    note_peak(now);
    char *p = (char *)h + HEAD;
    if (zeroed && !fresh)
        memset(p, 0, total - HEAD);
    return p;
}

void *spx_alloc2(size_t n1, size_t n2, size_t size, spx_err *e)
{
    return alloc_block(n1, n2, size, 1, e);
}

void *spx_alloc_unset(size_t n1, size_t n2, size_t size, spx_err *e)
{
    return alloc_block(n1, n2, size, 0, e);
}

void *spx_grow(void *old, size_t n, size_t add, size_t *capacity, size_t size, spx_err *e)
{
    enum { LEAST = 16 };
    if (add <= *capacity - n)
        return old;
    if (add > SIZE_MAX / 2 - n || *capacity > SIZE_MAX / 4) {
        spx_fail(e, SPX_EINPUT, "size %zu + %zu is out of range", n, add);
        return NULL;
    }
    size_t more = *capacity > 0 ? 2 * *capacity : LEAST;
    more = more < n + add ? n + add : more;
    void *new = spx_alloc(more, size, e);
    if (new == NULL)
        return NULL;
    if (n > 0)
        memcpy(new, old, n * size);
    spx_free(old);
    *capacity = more;
    return new;
}

/* A file that has no name, or none any more; -1: errno says why. */
static int nameless_file(const char *dir)
{
    char path[PATH_MAX];
    int fd = fault_now() ? -1 : open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    if (snprintf(path, sizeof path, "%s/specpipe.XXXXXX", dir) >= (int)sizeof path)
        return -1;
    if ((fd = mkostemp(path, O_CLOEXEC)) >= 0)
        (void)unlink(path);
    return fd;
}

/* Zeroed block in a mapped file, whose disk space is allocated at once: writing a page of it cannot fail later. */
static head *take_file(size_t total, spx_err *e)
{
    const char *dir = getenv("TMPDIR");
    void *p = MAP_FAILED;
    dir = dir != NULL && dir[0] != '\0' ? dir : "/tmp";
    int fd = nameless_file(dir), why = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)total);
    if (why == 0 && (p = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
        why = errno;
    if (fd >= 0)
        (void)close(fd);
    if (p == MAP_FAILED) {
        spx_fail_at(e, SPX_EIO, dir, NULL, NULL, "no room for %.1f MiB that --max-mem leaves no memory for: %s",
                    (double)total / MIB, strerror(why));
        return NULL;
    }
    head *h = p;
    *h = (head){.total = total, .base = p, .spilt = 1};
    return h;
}

void *spx_alloc_spill(size_t n1, size_t n2, size_t size, spx_err *e)
{
    size_t n = 0, bytes = 0;
    const size_t max = atomic_load(&limit), now = atomic_load(&held);
    if (spx_mul(n1, n2, &n, e) != SPX_OK || spx_mul(n, size, &bytes, e) != SPX_OK)
        return NULL;
    if (max == 0 || bytes < MANY_BYTES || (now < max && bytes < (max - now) / 8))
        return alloc_block(n1, n2, size, 1, e);
    if (bytes > SIZE_MAX / 2) {
        spx_fail(e, SPX_EINPUT, "size %zu is out of range", bytes);
        return NULL;
    }
    head *h = take_file(HEAD + bytes, e);
    if (h == NULL)
        atomic_fetch_add(&failures, 1);
    return h != NULL ? (char *)h + HEAD : NULL;
}

static head *head_of(const void *p)
{
    return (head *)((uintptr_t)p - HEAD);
}

void spx_mem_passed(const void *p)
{
    head *h = head_of(p);
    if (h->spilt)
        (void)madvise(h->base, h->total, MADV_DONTNEED); /* shared mapping: pages leave memory, their content stays in
                                                          * the file */
}

void spx_free(void *p)
{
    if (p == NULL)
        return;
    head *h = head_of(p);
    if (h->spilt) {
        (void)munmap(h->base, h->total);
        return;
    }
    atomic_fetch_sub(&held, h->total);
    if (!h->kept) {
        free(h->base);
        return;
    }
    (void)pthread_mutex_lock(&kept_lock);
    h->older = waiting;
    waiting = h;
    waiting_bytes += h->total;
    while (waiting != NULL && (!atomic_load(&keeping) || atomic_load(&held) + waiting_bytes > most_bytes()))
        drop_oldest();
    (void)pthread_mutex_unlock(&kept_lock);
}

void spx_mem_cache(int keep)
{
    (void)pthread_mutex_lock(&kept_lock);
    const int users = atomic_fetch_add(&keeping, keep ? 1 : -1) + (keep ? 1 : -1);
    while (users == 0 && waiting != NULL)
        drop_oldest();
    (void)pthread_mutex_unlock(&kept_lock);
}

void spx_mem_begin_pagelock(spx_mem_pagelock *lock)
{
    (void)pthread_mutex_lock(&kept_lock);
    locker = lock;
    lockers++;
    (void)pthread_mutex_unlock(&kept_lock);
}

void spx_mem_end_pagelock(void)
{
    (void)pthread_mutex_lock(&kept_lock);
    if (--lockers == 0) {
        while (locked != NULL)
            unlock(locked);
        locker = NULL;
    }
    (void)pthread_mutex_unlock(&kept_lock);
}

int spx_mem_pagelocked(const void *p)
{
    head *h = head_of(p);
    if (!atomic_load(&keeping) || !h->kept)
        return 0;
    (void)pthread_mutex_lock(&kept_lock);
    if (h->lock == UNLOCKED && locker != NULL) { /* page-locking takes long: other threads allocate meanwhile */
        h->lock = LOCKING;
        (void)pthread_mutex_unlock(&kept_lock);
        const int done = locker(h->base, h->total, 1);
        (void)pthread_mutex_lock(&kept_lock);
        h->lock = done ? LOCKED : REFUSED;
        if (done) {
            h->next = locked;
            locked = h;
        }
    }
    const int is = h->lock == LOCKED;
    (void)pthread_mutex_unlock(&kept_lock);
    return is;
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

int spx_mem_claim(size_t bytes)
{
    const size_t now = atomic_fetch_add(&held, bytes) + bytes, max = atomic_load(&limit);
    if (max != 0 && (now > max || now < bytes)) {
        atomic_fetch_sub(&held, bytes);
        return 0;
    }
    note_peak(now);
    return 1;
}

void spx_mem_unclaim(size_t bytes)
{
    atomic_fetch_sub(&held, bytes);
}

int spx_mem_fits(size_t bytes)
{
    const size_t max = atomic_load(&limit), now = atomic_load(&held);
    return max == 0 ? bytes <= spx_mem_cap() : now <= max && bytes <= max - now;
}

size_t spx_mem_cap(void)
{
    size_t cap = spx_mem_limit_get();
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (cap == 0 && pages > 0 && page > 0)
        cap = (size_t)pages * (size_t)page;
    return cap == 0 ? SIZE_MAX / 2 : cap;
}

spx_status spx_mem_check(const char *name, size_t bytes, spx_err *e)
{
    size_t cap = spx_mem_cap();
    if (bytes <= cap)
        return SPX_OK;
    return spx_fail_at(e, SPX_EIO, name, NULL, "set --max-mem to more, or use a machine with more",
                       "needs more than %zu MiB of memory", cap >> 20);
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
