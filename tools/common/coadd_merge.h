/* Runs h5merge --coadd: targets in chunks, so that memory grows neither with their number nor with that of the files.
 */
#ifndef SPX_TOOLS_COADD_MERGE_H
#define SPX_TOOLS_COADD_MERGE_H

#include "app/main.h"
#include "coadd/coadd.h"

/* Values of h5merge's options; its help says what they are. */
typedef struct {
    spx_coadd_method method;
    double reject;
    int scale, allow_topocentric;
    long diagonals;      /* of the coadds' R; 0: spx_coadd_diagonals() */
    const char *targets; /* text of the TARGETIDs to coadd, one a line; NULL: all */
    const char *absent;  /* names of inputs that were not there, which the product keeps; NULL: none */
} spx_coadd_args;

/* Reads the inputs of the run, coadds them on the device that it asks for, writes and commits the product. */
spx_status spx_coadd_merge(const spx_coadd_args *a, spx_run *run, spx_err *e);

#endif
