/* Provides a pipeline of items: reading, computing and writing of different items overlap.
 *
 * The caller's thread reads and writes in turn, so that a library which is not thread-safe (HDF5) is used by one thread
 * alone. `nworker` threads compute; `nstore` threads flush values that are written without that library. One more
 * thread publishes outputs (syncs and renames them, or sends them). Items are published and ended in the order of
 * reading. */
#ifndef SPX_PIPELINE_H
#define SPX_PIPELINE_H

#include <pthread.h>
#include <stddef.h>

#include "base/err.h"

typedef struct {
    void *ctx;      /* first argument of all callbacks */
    size_t nworker; /* worker threads, at least 1 */
    size_t nstore;  /* storing threads; 0: store() is not called */
    size_t most;    /* capacity: items between read() and end() at one time, at least 1 */
    size_t ahead; /* most items that are read and wait for a worker; 0: as many as the capacity allows. Memory of items
                   * that have ended is used again the sooner */
    /* Caller's thread: reads the next item; NULL: end of input. */
    void *(*read)(void *ctx);
    /* Caller's thread: 1 when read() would not block on a slow producer (a pipe); NULL: it never blocks. */
    int (*ready)(void *ctx);
    /* Caller's thread: how many items may be in work now; below 1 counts as 1. NULL: `most`. */
    size_t (*capacity)(void *ctx);
    /* Once in each worker, before its first item; NULL: nothing to do. */
    void (*start)(void *ctx, size_t worker);
    /* Worker thread: computes one item. */
    void (*compute)(void *ctx, size_t worker, void *item);
    /* Caller's thread, in the order of reading: writes one item. */
    void (*write)(void *ctx, void *item);
    /* Storing thread, after write(), concurrently with other items. */
    void (*store)(void *ctx, void *item);
    /* Publishing thread, in the order of reading, after store(). */
    void (*publish)(void *ctx, void *item);
    /* Caller's thread, in the order of reading: frees the item. */
    void (*end)(void *ctx, void *item);
} spx_pipeline;

/* Starts a thread with signals blocked: the main thread's handler gets them, and removes temporary files. 0: it cannot
 * be started. */
int spx_thread_begin(pthread_t *t, void *(*f)(void *), void *arg);

/* Runs the pipeline; returns when all items have ended. Errors of an item are kept in the item; SPX_EIO: memory or
 * threads. */
spx_status spx_pipeline_run(const spx_pipeline *p, spx_err *e);

#endif
