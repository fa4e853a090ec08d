/* In-situ analysis: a function of the user's that a stage calls after each step or batch, with its arrays where they
 * are, in the memory of the host or of a CUDA device. A program opens what --hook names (specpipe(7), HOOKS) and hands
 * it to the stage in the stage's options; the stage calls
 *     spx_hook_step()    with its arrays, after each step
 *     spx_hook_leave()   once it has waited for its stream and before it frees arrays or stream, also after an error
 * and the program spx_hook_finish() after the last stage, which gives what the hook has to be written. From a step to
 * the spx_hook_leave() after it the hook belongs to one thread: stages with several take turns, in a fixed order.
 *
 * NULL for a hook means that there is none; everything is then allowed and does nothing. */
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

/* Bytes of one element. */
size_t spx_hook_type_size(spx_hook_type type);

/* An array of a stage: valid while the step lasts. */
typedef struct {
    const char *name;
    void *data;
    spx_hook_type type;
    int ndim;
    int writable; /* the stage can live with other values; the hook gets them writable when it asks for it */
    size_t shape[SPX_HOOK_MAXDIM];
    ptrdiff_t stride[SPX_HOOK_MAXDIM]; /* bytes; all 0: C order without gaps */
} spx_hook_array;

/* Where arrays are. */
typedef struct {
    int device;   /* -1 the host, else the number of the CUDA device */
    void *stream; /* cudaStream_t: the arrays are ready when what it holds is done; the stage's own work goes on there
                   * after the hook */
    /* Makes the stream `later` of the same device wait for what `earlier` holds now, without the host waiting; NULL on
     * the host. 0: done. */
    int (*order)(void *earlier, void *later);
} spx_hook_place;

#define SPX_HOOK_HOST ((spx_hook_place){-1, NULL, NULL})

typedef struct {
    const char *stage;    /* "burgers" */
    size_t number, total; /* this step, from 1 on, of how many; 0: the hook counts them, their number is not known */
    double time;          /* of a simulation; 0 without meaning */
    spx_hook_place at;
    size_t narray;
    const spx_hook_array *array;
} spx_hook_step_info;

/* What the hook returned: arrays in memory of the host, C order. */
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
    char file[1024]; /* what it was read from */
    int writable;    /* the hook asked to change arrays */
    size_t calls;    /* steps so far */
    spx_status (*step)(struct spx_hook *h, const spx_hook_step_info *s, spx_err *e);
    void (*leave)(struct spx_hook *h);
    spx_status (*finish)(struct spx_hook *h, spx_hook_results *r, spx_err *e);
    void (*close)(struct spx_hook *h);
    void *state;   /* the language's own */
    void *library; /* handle of the shared object; NULL: a hook in C */
} spx_hook;

/* Entry of a shared object hook-LANGUAGE.so: fill in *h for the function `function` of the program text `source`, which
 * was read from h->file. */
typedef spx_status spx_hook_entry(spx_hook *h, const char *source, const char *function, spx_err *e);
/* The number is raised when a structure of this file changes. */
#define SPX_HOOK_ENTRY "spx_hook_entry_point_3"

/* Its other entry: which Python it would use, or why there is none. */
typedef void spx_hook_describe_entry(spx_plugin_tell *tell);
#define SPX_HOOK_DESCRIBE_ENTRY "spx_hook_describe_point"
/* Whether there are hooks, and what the plug-in says itself. */
void spx_hook_describe(spx_plugin_tell *tell);

/* Open `arg`, FILE.py[:function]; without a function it is the one called hook. SPX_EUSAGE: no such file or function,
 * or this installation has no hooks; SPX_EHOOK: the file itself failed. */
spx_status spx_hook_open(spx_hook *h, const char *arg, spx_err *e);
/* SPX_EHOOK: the hook raised an exception, whose traceback is on stderr. */
spx_status spx_hook_step(spx_hook *h, const spx_hook_step_info *s, spx_err *e);
void spx_hook_leave(spx_hook *h);

/* After the last stage: what the hook returned (spx_hook_results_free()). */
spx_status spx_hook_finish(spx_hook *h, spx_hook_results *r, spx_err *e);
void spx_hook_close(spx_hook *h);
void spx_hook_results_free(spx_hook_results *r);

#endif
