/* Runs a computation over groups of spectra (stars or targets with their exposures) in chunks: one is read and one is
 * written while another is computed, so that memory does not grow with their number, and the processor does not wait
 * for files. */
#ifndef SPX_GROUPS_H
#define SPX_GROUPS_H

#include <stddef.h>

#include "app/main.h"
#include "products/spectra.h"
#include "run/catalogue_parts.h"

/* Groups group ... group+ngroup-1, which are rows row ... row+nrow-1 of the list, and these rows of the spectra. */
typedef struct {
    size_t group, ngroup, row, nrow;
    size_t *first; /* [ngroup+1]: first row of each group, counted from the chunk's */
    spx_spectra spectra;
    void *result; /* of the caller's type: result_size bytes, 0 at first */
    spx_err err;
} spx_group_chunk;

typedef struct {
    spx_run *stage;
    const char *step; /* name of the computation, whose seconds are recorded beside those of read and write */
    const spx_spectra_parts *spectra;
    /* Group k has rows first[k] ... first[k+1]-1 of row[], which are rows of the spectra. first NULL: each is a group.
     */
    size_t ngroup;
    const size_t *row, *first;
    /* Memory of a chunk's spectra: most_bytes, or less on small machines, or half of its share of --max-mem: the other
     * half is for the computation. row_bytes: what a row takes beside its spectra. */
    size_t most_bytes, row_bytes, result_size;
    /* Computes a chunk, in a thread of its own, one chunk at a time; may free its spectra. */
    spx_status (*compute)(void *ctx, spx_group_chunk *c, spx_err *e);
    /* Writes a chunk, in the caller's thread and in order; not called after the first error. */
    spx_status (*write)(void *ctx, spx_group_chunk *c, spx_err *e);
    void (*clear)(void *ctx, void *result);
    void *ctx;
} spx_groups;

/* Returns the first error of reading, computing or writing. */
spx_status spx_groups_run(const spx_groups *g, spx_err *e) SPX_NODISCARD;

#endif
