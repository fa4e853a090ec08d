/* Items that are read, computed and written one after another, where reading, computing and writing overlap.
 *
 * The caller's thread reads and writes in turn, so that a library which is not thread-safe (HDF5) is used by one thread
 * alone. `nworker` threads compute; `nstore` threads store what needs no such library. One more publishes what was
 * written (syncs and renames it, or sends it). An item is published and ended before those that were read after it,
 * whatever the others do. */
#ifndef SPX_PIPELINE_H
#define SPX_PIPELINE_H

#include <pthread.h>
#include <stddef.h>

#include "base/err.h"

typedef struct {
    void *ctx;      /* first argument of all that follows */
    size_t nworker; /* threads that compute, at least 1 */
    size_t nstore;  /* threads that store; 0: there is nothing to store */
    size_t most;    /* items that are in work at one time at most, at least 1 */
    /* Caller's thread: the next item; NULL: there is none any more. */
    void *(*read)(void *ctx);
    /* Caller's thread: 1 when read() would not wait for somebody else, who may be slow; NULL: it never does. */
    int (*ready)(void *ctx);
    /* Caller's thread: how many items may be in work now; below 1 counts as 1. NULL: `most`. */
    size_t (*capacity)(void *ctx);
    /* Once in each worker, before its first item; NULL: nothing to do. */
    void (*start)(void *ctx, size_t worker);
    /* A worker. */
    void (*compute)(void *ctx, size_t worker, void *item);
    /* Caller's thread, in the order of reading. */
    void (*write)(void *ctx, void *item);
    /* A storing thread, after write(), beside others. */
    void (*store)(void *ctx, void *item);
    /* The publishing thread, in the order of reading, after store(). */
    void (*publish)(void *ctx, void *item);
    /* Caller's thread, in the same order: the item is done with. */
    void (*end)(void *ctx, void *item);
} spx_pipeline;

/* A thread that leaves signals from outside to the caller's, whose handler removes temporary files. 0: it cannot be
 * started. */
int spx_thread_begin(pthread_t *t, void *(*f)(void *), void *arg);

/* Returns when all items have ended. What goes wrong with an item is kept in the item; SPX_EIO: memory or threads. */
spx_status spx_pipeline_run(const spx_pipeline *p, spx_err *e);

#endif
