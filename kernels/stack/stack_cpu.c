/* Provides shift-and-stack on the CPU: divides samples into chunks and shifts into blocks, among threads; the inner
 * loops are in stack_tile.h. */
#include <omp.h>
#include <string.h>

#include "base/mem.h"
#include "simd/vector.h"
#include "stack/stack.h"
#include "stack/stack_math.h"

/* CHUNK: samples computed together; ROWS: stacks whose tiles share a workspace; others: division of the shifts. Fixed,
 * so that results do not depend on the number of threads. */
enum { CHUNK = 4096, ROWS = 16, LONGEST_TILE = 128, SPAN = 512, MOST_BLOCKS = 64, FEWEST_SHIFTS = 32, VECTOR = 64 };

/* Number of terms below which threads cost more than they gain. */
#define FEW_TERMS 1e6

/* Trace with at least LONGEST_TILE zeros on both sides. */
typedef struct {
    const void *data;
    int64_t first, length; /* sample t of the window is data[t - first - shift] */
    size_t j;              /* index of the trace */
} trace;

/* A call: input, and its division among threads. */
typedef struct {
    const spx_traces *tr;
    const spx_shifts *sh;
    const spx_stack_options *o;
    spx_stack *out;
    size_t item; /* bytes of a value */
    char *padded;
    int is_short;                          /* 1: traces are shorter than a tile */
    size_t span;                           /* for short traces: samples summed together, up to SPAN */
    size_t nchunk, shifts_at_once, nblock; /* number of chunks of samples; shifts of a block, and number of blocks */
    int32_t *low, *high;                   /* [nblock, ntrace]: smallest and largest shift of each trace in a block */
    size_t npart, nlane;                   /* partial maxima of one value: their number, and lanes of each */
    char *best;                            /* partial maxima. MAX: [nchunk, nshift, nlane]; ARGMAX: [nblock, length] */
    char *which;                           /* indices of the partial maxima: integers of the size of a value */
} job;

#define PASTE_(a, b) a##_##b
#define PASTE(a, b)  PASTE_(a, b)
#define NAME(x)      PASTE(x, VARIANT)

#define TARGET
#define VARIANT f32
#define T       float
#define I       int32_t
#include "stack/stack_tile.h"
#undef VARIANT
#undef T
#undef I
#define VARIANT f64
#define T       double
#define I       int64_t
#include "stack/stack_tile.h"
#undef VARIANT
#undef T
#undef I
#undef TARGET

#ifdef __x86_64__
#define TARGET  __attribute__((target("avx2")))
#define VARIANT f32_avx2
#define T       float
#define I       int32_t
#include "stack/stack_tile.h"
#undef VARIANT
#undef T
#undef I
#define VARIANT f64_avx2
#define T       double
#define I       int64_t
#include "stack/stack_tile.h"
#undef VARIANT
#undef T
#undef I
#undef TARGET

#define TARGET  __attribute__((target("avx512f")))
#define VARIANT f32_avx512
#define T       float
#define I       int32_t
#include "stack/stack_tile.h"
#undef VARIANT
#undef T
#undef I
#define VARIANT f64_avx512
#define T       double
#define I       int64_t
#include "stack/stack_tile.h"
#undef VARIANT
#undef T
#undef I
#undef TARGET
#endif

/* Functions of an instruction set. */
typedef struct {
    int (*item)(const job *w, const trace *tr, size_t ntrace, size_t b, size_t c, double *sum, void *scratch);
    void (*merge)(const job *w);
} loops_of;

static loops_of choose_loops(int precision)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        return precision == 4 ? (loops_of){item_f32_avx512, merge_f32_avx512}
                              : (loops_of){item_f64_avx512, merge_f64_avx512};
    if (__builtin_cpu_supports("avx2"))
        return precision == 4 ? (loops_of){item_f32_avx2, merge_f32_avx2} : (loops_of){item_f64_avx2, merge_f64_avx2};
#endif
    return precision == 4 ? (loops_of){item_f32, merge_f32} : (loops_of){item_f64, merge_f64};
}

/* Workspace of one thread. */
typedef struct {
    trace *reach;
    double *sum;
    char *row;
} scratch;

static void scratch_free(scratch *s, int nthreads)
{
    for (int i = 0; s != NULL && i < nthreads; i++) {
        spx_free(s[i].reach);
        spx_free(s[i].sum);
        spx_free(s[i].row);
    }
    spx_free(s);
}

static scratch *scratch_new(int nthreads, const job *w, spx_err *e)
{
    const size_t rows = ROWS * ((w->is_short ? w->span : (size_t)LONGEST_TILE) * w->item + 2 * VECTOR);
    const size_t ntrace = w->tr->ntrace;
    const size_t nsum = ntrace > SPX_STACK_BLOCK || w->o->earlier != NULL ? ROWS * SPAN : 0;
    scratch *s = spx_alloc((size_t)nthreads, sizeof *s, e);
    for (int i = 0; s != NULL && i < nthreads; i++)
        if ((s[i].reach = spx_alloc_unset(ntrace, 1, sizeof *s->reach, e)) == NULL ||
            (s[i].sum = spx_alloc_unset(nsum, 1, sizeof *s->sum, e)) == NULL ||
            (s[i].row = spx_alloc_unset(rows, 1, 1, e)) == NULL) {
            scratch_free(s, nthreads);
            return NULL;
        }
    return s;
}

/* Finds the traces that any set of shifts of block b brings into chunk c. */
static size_t find_traces(const job *w, size_t b, size_t c, trace *out)
{
    const spx_traces *tr = w->tr;
    const int64_t begin = (int64_t)(c * CHUNK), end = begin + CHUNK;
    size_t n = 0;
    for (size_t j = 0; j < tr->ntrace; j++) {
        int64_t first = spx_stack_first(tr->offset[j], 0, w->out->t0);
        int64_t length = (int64_t)(tr->start[j + 1] - tr->start[j]);
        if (first + w->low[b * tr->ntrace + j] >= end || first + w->high[b * tr->ntrace + j] + length <= begin)
            continue;
        out[n++] =
            (trace){w->padded + w->item * (tr->start[j] - tr->start[0] + (j + 1) * LONGEST_TILE), first, length, j};
    }
    return n;
}

/* Copies the traces, with LONGEST_TILE zeros before, between and behind them. */
static spx_status pad(job *w, spx_err *e)
{
    const spx_traces *tr = w->tr;
    size_t gaps;
    if (spx_mul(tr->ntrace + 1, LONGEST_TILE, &gaps, e) != SPX_OK ||
        (w->padded = spx_alloc(tr->nsample + gaps, w->item, e)) == NULL)
        return SPX_EIO;
    for (size_t j = 0; j < tr->ntrace; j++)
        memcpy(w->padded + w->item * (tr->start[j] - tr->start[0] + (j + 1) * LONGEST_TILE),
               (const char *)tr->data + w->item * tr->start[j], w->item * (tr->start[j + 1] - tr->start[j]));
    return SPX_OK;
}

static spx_status prepare(job *w, spx_err *e)
{
    const size_t ntrace = w->tr->ntrace, nshift = w->sh->nshift;
    spx_stack *out = w->out;
    w->is_short = w->tr->nsample < ntrace * LONGEST_TILE;
    w->span = out->length < SPAN ? (out->length + VECTOR - 1) / VECTOR * VECTOR : SPAN;
    w->nchunk = (out->length + CHUNK - 1) / CHUNK;
    w->shifts_at_once = (nshift + MOST_BLOCKS - 1) / MOST_BLOCKS;
    if (w->shifts_at_once < FEWEST_SHIFTS)
        w->shifts_at_once = FEWEST_SHIFTS;
    w->nblock = (nshift + w->shifts_at_once - 1) / w->shifts_at_once;
    spx_status st = pad(w, e);
    if (st != SPX_OK || (w->low = spx_alloc2(w->nblock, ntrace, sizeof *w->low, e)) == NULL ||
        (w->high = spx_alloc2(w->nblock, ntrace, sizeof *w->high, e)) == NULL)
        return SPX_EIO;
    for (size_t b = 0; b < w->nblock; b++) {
        const size_t k = b * w->shifts_at_once;
        const size_t n = nshift - k < w->shifts_at_once ? nshift - k : w->shifts_at_once;
        spx_stack_range(w->sh->shift + k * ntrace, n, ntrace, ntrace, w->low + b * ntrace, w->high + b * ntrace);
    }
    if (out->method == SPX_STACK_STACK)
        return SPX_OK;
    const int over_time = out->method == SPX_STACK_MAX;
    w->npart = over_time ? w->nchunk : w->nblock;
    w->nlane = over_time ? VECTOR / w->item : 1;
    size_t n = w->npart * w->nlane;
    if ((w->best = spx_alloc2(n, over_time ? nshift : out->length, w->item, e)) == NULL ||
        (w->which = spx_alloc2(n, over_time ? nshift : out->length, w->item, e)) == NULL)
        return SPX_EIO;
    return SPX_OK;
}

spx_status spx_stack_cpu(const spx_traces *tr, const spx_shifts *sh, const spx_stack_options *o, spx_stack *out,
                         spx_err *e)
{
    spx_status st = spx_stack_begin(tr, sh, o, out, e);
    if (st != SPX_OK)
        return st;
    job w = {.tr = tr, .sh = sh, .o = o, .out = out, .item = (size_t)out->precision};
    const double terms = (double)sh->nshift * (double)sh->ntrace * (double)out->length;
    const int nthreads = o->nthreads > 1 && terms > FEW_TERMS ? o->nthreads : 1;
    const loops_of loops = choose_loops(out->precision);
    scratch *s = NULL;
    st = prepare(&w, e);
    if (st == SPX_OK && (s = scratch_new(nthreads, &w, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK) {
        int finite = 1;
#pragma omp parallel for num_threads(nthreads) schedule(dynamic) reduction(& : finite)
        for (size_t i = 0; i < w.nblock * w.nchunk; i++) {
            const size_t b = i / w.nchunk, c = i % w.nchunk, k0 = b * w.shifts_at_once;
            const scratch *mine = &s[omp_get_thread_num()];
            const size_t n = find_traces(&w, b, c, mine->reach);
            finite &= loops.item(&w, mine->reach, n, b, c, mine->sum, mine->row);
            if (c == 0)
                spx_progress_step(o->progress, sh->nshift - k0 < w.shifts_at_once ? sh->nshift - k0 : w.shifts_at_once);
        }
        if (!finite)
            st = spx_stack_overflow(out->precision, e);
    }
    if (st == SPX_OK && out->method != SPX_STACK_STACK)
        loops.merge(&w);
    scratch_free(s, nthreads);
    spx_free(w.padded);
    spx_free(w.low);
    spx_free(w.high);
    spx_free(w.best);
    spx_free(w.which);
    return st;
}
