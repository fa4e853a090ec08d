/* Checks base/mem: the free list reuses blocks of equal size, zeroed where promised, and is bounded by the peak in use;
 * pages are locked once, and unlocked before they are returned to the system. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "check.h"

enum { MIB = 1 << 20, MOST = 16, THREADS = 4, ROUNDS = 60 };

static struct {
    char *at;
    size_t bytes;
} page_locked[MOST];
static int nlocked, nreleased, refuse;

static int lock_pages(void *at, size_t bytes, int on)
{
    int k = 0;
    while (k < nlocked && page_locked[k].at != at)
        k++;
    if (on) {
        CHECK(k == nlocked && nlocked < MOST);
        if (refuse)
            return 0;
        page_locked[nlocked].at = at;
        page_locked[nlocked++].bytes = bytes;
    } else {
        CHECK(k < nlocked && page_locked[k].bytes == bytes);
        page_locked[k] = page_locked[--nlocked];
        nreleased++;
    }
    return 1;
}

static int all_are(const unsigned char *p, size_t n, int v)
{
    size_t same = 0;
    while (same < n && p[same] == v)
        same++;
    return same == n;
}

/* Blocks of different sizes, each filled with a thread's own byte. */
static void *churn(void *arg)
{
    const int own = 1 + (int)(intptr_t)arg;
    unsigned seed = (unsigned)own;
    for (int i = 0; i < ROUNDS; i++) {
        const size_t n = (size_t)(1 + rand_r(&seed) % 3) * MIB;
        unsigned char *p = spx_alloc(n, 1, NULL);
        CHECK(p != NULL && all_are(p, 4096, 0) && all_are(p + n - 4096, 4096, 0));
        memset(p, own, n);
        CHECK(all_are(p, n, own));
        spx_free(p);
    }
    return NULL;
}

/* An array that grows holds what was in it, and zeros behind; where it cannot grow, all stays. */
static void grow(void)
{
    enum { N = 1000 };
    size_t capacity = 0, n = 0, moved = 0;
    int *v = NULL;
    for (; n < N; n++) {
        int *more = spx_grow(v, n, 1, &capacity, sizeof *more, &e);
        CHECK(more != NULL && capacity > n && capacity < 2 * N + 16);
        moved += more != v;
        v = more;
        for (size_t i = n; i < capacity; i++)
            CHECK(v[i] == 0);
        v[n] = (int)n + 1;
    }
    CHECK(moved < 12);
    for (size_t i = 0; i < N; i++)
        CHECK(v[i] == (int)i + 1);
    const size_t before = capacity;
    CHECK(spx_grow(v, n, SIZE_MAX - 1, &capacity, sizeof *v, &e) == NULL && e.code == SPX_EINPUT);
    spx_err_clear(&e);
    CHECK(spx_grow(v, n, SIZE_MAX / 6, &capacity, sizeof *v, &e) == NULL && e.code == SPX_EINPUT);
    CHECK(capacity == before && v[N - 1] == N);
    spx_err_clear(&e);
    int *more = spx_grow(v, n, 3 * before, &capacity, sizeof *more, &e);
    CHECK(more != NULL && capacity == n + 3 * before && more[0] == 1 && more[N - 1] == N && more[n] == 0);
    spx_free(more);
}

int main(void)
{
    grow();
    /* as always without it */
    void *plain = spx_alloc_unset(4, MIB, 1, &e);
    spx_mem_begin_pagelock(lock_pages);
    CHECK(plain != NULL && !spx_mem_pagelocked(plain));
    spx_free(plain);

    spx_mem_cache(1);
    unsigned char *a = spx_alloc(3 * MIB, 1, &e), *b = spx_alloc(3 * MIB, 1, &e);
    CHECK(a != NULL && b != NULL && (uintptr_t)a % 64 == 0 && all_are(a, 3 * MIB, 0));
    memset(a, 1, 3 * MIB);
    memset(b, 2, 3 * MIB);
    CHECK(spx_mem_pagelocked(a) && spx_mem_pagelocked(a) && nlocked == 1);
    CHECK(page_locked[0].at <= (char *)a && page_locked[0].at + page_locked[0].bytes >= (char *)a + 3 * MIB);
    spx_free(a);
    CHECK(nlocked == 1);
    unsigned char *again = spx_alloc_unset(3 * MIB, 1, 1, &e);
    CHECK(again == a && all_are(again, 3 * MIB, 1) && spx_mem_pagelocked(again) && nlocked == 1);
    spx_free(again);
    again = spx_alloc(3 * MIB, 1, &e);
    CHECK(again == a && all_are(again, 3 * MIB, 0) && all_are(b, 3 * MIB, 2));

    /* the peak is that of two blocks: a larger one drives the one out that has waited longest, with its locked pages */
    const size_t peak = spx_mem_peak();
    spx_free(again);
    spx_free(b);
    CHECK(nlocked == 1);
    void *large = spx_alloc(6 * MIB, 1, &e);
    CHECK(large != NULL && nlocked == 0 && spx_mem_peak() == peak);
    spx_free(large);

    /* within a limit blocks that wait give way */
    spx_mem_limit(peak);
    a = spx_alloc(4 * MIB, 1, &e);
    CHECK(a != NULL && spx_alloc(6 * MIB, 1, NULL) == NULL);
    spx_free(a);
    large = spx_alloc(6 * MIB, 1, &e);
    CHECK(large != NULL);
    spx_mem_limit(0);

    /* pages that cannot be locked are not asked for again; without a locker nothing is locked any more */
    refuse = 1;
    CHECK(!spx_mem_pagelocked(large) && !spx_mem_pagelocked(large));
    refuse = 0;
    a = spx_alloc(MIB, 1, &e);
    b = spx_alloc(16, 1, &e);
    CHECK(a != NULL && b != NULL && spx_mem_pagelocked(a) && nlocked == 1 && !spx_mem_pagelocked(b));
    spx_mem_end_pagelock();
    CHECK(nlocked == 0 && !spx_mem_pagelocked(a));
    spx_mem_begin_pagelock(lock_pages);
    CHECK(spx_mem_pagelocked(a) && nlocked == 1);

    /* a device may read what is locked while another part of the program begins or ends */
    nreleased = 0;
    spx_mem_begin_pagelock(lock_pages);
    CHECK(nreleased == 0 && spx_mem_pagelocked(a) && nlocked == 1);
    spx_mem_end_pagelock();
    CHECK(nreleased == 0 && spx_mem_pagelocked(a) && nlocked == 1);
    spx_free(a);
    CHECK(nlocked == 1);
    spx_mem_cache(0);
    CHECK(nlocked == 0);
    a = spx_alloc(MIB, 1, &e); /* after the end: kept blocks that are still in use go back when they are freed */
    CHECK(a != NULL && !spx_mem_pagelocked(a));
    spx_free(a);
    spx_free(b);
    spx_free(large);

    /* one within another, as chunks of a product within a list of products; small blocks, too */
    spx_mem_cache(1);
    spx_mem_cache(1);
    a = spx_alloc_unset(200 << 10, 1, 1, &e);
    CHECK(a != NULL);
    memset(a, 3, 200 << 10);
    spx_free(a);
    spx_mem_cache(0);
    b = spx_alloc_unset(210 << 10, 1, 1, &e); /* of the same size to the next 64 KiB */
    CHECK(b != NULL && b == a && all_are(b, 200 << 10, 3));
    spx_free(b);
    spx_mem_cache(0);

    spx_mem_cache(1);
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&t[i], NULL, churn, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < THREADS; i++)
        (void)pthread_join(t[i], NULL);
    spx_mem_cache(0);
    return 0;
}
