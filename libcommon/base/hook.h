/* Provides hooks, for in-situ analysis: a user's function that a stage calls after each step or batch, with its arrays
 * in place, in host memory or on a CUDA device. A program opens what --hook names (specpipe(7), HOOKS) and hands it to
 * the stage in the stage's options; the stage calls
 *     spx_hook_step()    with its arrays, after each step
 *     spx_hook_release()   once it has waited for its stream and before it frees arrays or stream, also after an error
 * and the program spx_hook_finish() after the last stage, which gives what the hook has to be written. From a step to
 * the spx_hook_release() after it the hook belongs to one thread: stages with several take turns, in a fixed order.
 *
 * A hook of NULL means that there is none: all functions accept it, and do nothing. */
#ifndef SPX_HOOK_H
#define SPX_HOOK_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/plugin.h"

enum { SPX_HOOK_MAXDIM = 8 };

typedef enum {
    SPX_HOOK_INT8,
    SPX_HOOK_UINT8,
    SPX_HOOK_INT16,
    SPX_HOOK_UINT16,
    SPX_HOOK_INT32,
    SPX_HOOK_UINT32,
    SPX_HOOK_INT64,
    SPX_HOOK_UINT64,
    SPX_HOOK_FLOAT32,
    SPX_HOOK_FLOAT64
} spx_hook_type;

/* Size of one element, bytes. */
size_t spx_hook_type_size(spx_hook_type type);

/* Array of a stage; valid while the step lasts. */
typedef struct {
    const char *name;
    void *data;
    spx_hook_type type;
    int ndim;
    int writable; /* 1: the stage accepts changed values; a hook that asks for it gets the array writable */
    size_t shape[SPX_HOOK_MAXDIM];
    ptrdiff_t stride[SPX_HOOK_MAXDIM]; /* bytes; all 0: C order without gaps */
} spx_hook_array;

/* Memory space and stream of the arrays of a step. */
typedef struct {
    int device;   /* -1 the host, else the number of the CUDA device */
    void *stream; /* cudaStream_t: arrays are ready when the work queued on it is done; the stage queues its next work
                   * there */
    /* Orders streams of one device: `later` waits for all work queued on `earlier`, the host does not wait. NULL on the
     * host. Returns 0 on success. */
    int (*order)(void *earlier, void *later);
} spx_hook_space;

#define SPX_HOOK_HOST ((spx_hook_space){-1, NULL, NULL})

typedef struct {
    const char *stage;    /* "burgers" */
    size_t number, total; /* number of this step, from 1, and of all; 0: the hook counts steps, and their total is
                           * unknown */
    double time;          /* time of the simulation; 0 where there is none */
    spx_hook_space at;
    size_t narray;
    const spx_hook_array *array;
} spx_hook_step_info;

/* Arrays that the hook returned, in host memory, C order. */
typedef struct {
    char name[64];
    spx_hook_type type;
    int ndim;
    size_t shape[SPX_HOOK_MAXDIM];
    void *data;
} spx_hook_result;

typedef struct {
    size_t n;
    spx_hook_result *result;
} spx_hook_results;

typedef struct spx_hook {
    char file[1024]; /* file of the hook's source */
    int writable;    /* 1: the hook asked to change arrays */
    size_t calls;    /* steps so far */
    spx_status (*step)(struct spx_hook *h, const spx_hook_step_info *s, spx_err *e);
    void (*leave)(struct spx_hook *h);
    spx_status (*finish)(struct spx_hook *h, spx_hook_results *r, spx_err *e);
    void (*close)(struct spx_hook *h);
    void *state;   /* state of the language's interpreter */
    void *library; /* handle of the shared object; NULL: a hook in C */
} spx_hook;

/* Type of the entry point of a shared object hook-LANGUAGE.so. Fills *h for the function `function` of the program text
 * `source`, which was read from h->file. */
typedef spx_status spx_hook_entry(spx_hook *h, const char *source, const char *function, spx_err *e);
/* Versioned name of the entry point; its number is raised when a structure of this file changes. */
#define SPX_HOOK_ENTRY "spx_hook_entry_point_3"

/* Type of the second entry point: tells which Python would be used, or why there is none. */
typedef void spx_hook_describe_entry(spx_plugin_tell *tell);
#define SPX_HOOK_DESCRIBE_ENTRY "spx_hook_describe_point"
/* Tells (specpipe-info) whether hooks are installed, and what the plug-in reports. */
void spx_hook_describe(spx_plugin_tell *tell);

/* Opens `arg`, FILE.py[:function]; the default function is `hook`. SPX_EUSAGE: no such file or function, or an
 * installation without hooks; SPX_EHOOK: running the file raised an exception. */
spx_status spx_hook_open(spx_hook *h, const char *arg, spx_err *e);
/* Calls the hook for one step. SPX_EHOOK: it raised an exception, whose traceback is on stderr. */
spx_status spx_hook_step(spx_hook *h, const spx_hook_step_info *s, spx_err *e);
void spx_hook_release(spx_hook *h);

/* Ends the hook after the last stage, and takes over the arrays that it returned (spx_hook_results_free()). */
spx_status spx_hook_finish(spx_hook *h, spx_hook_results *r, spx_err *e);
void spx_hook_close(spx_hook *h);
void spx_hook_results_free(spx_hook_results *r);

#endif
