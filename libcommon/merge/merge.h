/* Joins products: fibre subsets of one camera, cameras of one exposure, rows of several files.
 *
 * A merge is planned (all that decides whether the inputs fit together is checked, nothing is written), then written
 * dataset by dataset in blocks of rows: memory does not grow with the size of the inputs. Which datasets have a row a
 * spectrum is read from the schema; values are copied as they are, in the widest precision that an input has. */
#ifndef SPX_MERGE_H
#define SPX_MERGE_H

#include <hdf5.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/progress.h"

typedef enum {
    SPX_MERGE_AUTO,    /* recognised from the content */
    SPX_MERGE_FIBERS,  /* frames of one camera and exposure with different fibres -> one frame, ordered by fibre */
    SPX_MERGE_CAMERAS, /* frames (or spectra) with different arms of the same targets -> spectra with all arms */
    SPX_MERGE_ROWS     /* the same blocks and arms in every input -> one input's rows after the other's */
} spx_merge_by;

typedef struct {
    hid_t file;
    const char *name;  /* for messages; must outlive the merge */
    uint64_t dev, ino; /* identity of a regular file; 0: not known */
} spx_merge_part;

typedef struct {
    spx_merge_by by;
    /* 1: fibres or arms that an input lacks become rows without information (flux 0, ivar 0, mask NODATA, resolution 0,
     * pixmask_fraction 1), and fibermap's column MISSING_ARMS names the arms; 0: they are an error. */
    int allow_missing;
    /* SPX_MERGE_FIBERS: range of fibres [first, last) of the product; last 0: from the lowest to the highest in the
     * inputs. */
    long first, last;
    int allow_repeated; /* 1: files, and rows of the same target and light, may be there several times; 0: an error */
} spx_merge_options;

typedef struct spx_merge spx_merge;

/* Plans a merge. SPX_EINPUT, naming file and dataset, when the inputs do not fit together; SPX_EUSAGE when the kind of
 * join is ambiguous. The files must stay open until spx_merge_free(). */
spx_status spx_merge_plan(size_t n, const spx_merge_part *part, const spx_merge_options *opt, spx_merge **out,
                          spx_err *e);
void spx_merge_free(spx_merge *m);

spx_merge_by spx_merge_kind(const spx_merge *m);
/* Main block of the product: frame, spectra or rvfit. */
const char *spx_merge_product(const spx_merge *m);
size_t spx_merge_nrow(const spx_merge *m);
/* Number of rows that lack an arm. */
size_t spx_merge_nmissing(const spx_merge *m);
/* Objects of the inputs that are not copied, one a line (`file:/object`); NULL: none. */
const char *spx_merge_left_out(const spx_merge *m);

/* Values that were not finite, or a negative ivar, which became 0: in flux or ivar, both did, and the mask is NODATA.
 */
typedef struct {
    size_t nvalue;   /* number of them */
    char first[512]; /* dataset of the first of them, with its file */
} spx_merge_repairs;

/* Writes all but the provenance. Progress counts datasets (spx_merge_steps() of them). SPX_EINPUT: a row is there
 * twice. */
size_t spx_merge_steps(const spx_merge *m);
spx_status spx_merge_write(const spx_merge *m, hid_t out, spx_progress *progress, spx_merge_repairs *repairs,
                           spx_err *e);

#endif
