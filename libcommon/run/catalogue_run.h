/* Runs a fit of any number of spectra in chunks: one is read and one is written while another is fitted, so that memory
 * does not grow with their number, and the processor does not wait for files. */
#ifndef SPX_RVFIT_PARTS_H
#define SPX_RVFIT_PARTS_H

#include <hdf5.h>

#include "app/main.h"
#include "products/rvfit.h"
#include "run/catalogue_parts.h"

typedef struct {
    spx_run *stage;
    const spx_spectra_parts *spectra;
    /* Star k has exposures first[k] ... first[k+1]-1 of row[nrow], rows of the spectra. first NULL: each row is a
     * star. */
    size_t nstar, nrow;
    const size_t *row, *first;
    size_t nthread;      /* that fit at one time; 0: a GPU does */
    size_t result_bytes; /* size of a row of models and curves */
    /* Fits stars star ... star+nstar-1, which are the rows of s, as first[nstar+1] says (NULL as above). Called in a
     * thread of its own, one chunk at a time. */
    spx_status (*fit)(void *ctx, const spx_spectra *s, size_t star, size_t nstar, const size_t *first, spx_rvfit *out,
                      spx_err *e);
    void *ctx;
} spx_rvfit_parts;

/* Creates the output, fits all chunks and writes models and curves; the caller writes tables, from *all, which holds
 * everything else and is freed with spx_rvfit_free(). A chunk has whole stars, 256 MB of spectra or, with many
 * threads, up to a gigabyte (less on small machines), or what --max-mem leaves. Seconds of the steps read, fit, write
 * are recorded. */
spx_status spx_rvfit_parts_run(const spx_rvfit_parts *p, hid_t *file, spx_rvfit *all, spx_err *e);

#endif
