/* Reads redshift files (redrock's), and matches them to targets. */
#ifndef SPX_REDSHIFTS_H
#define SPX_REDSHIFTS_H

#include <hdf5.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "h5/table.h"
#include "products/spectra.h"

/* Redshift file (redrock's): a row a target, ordered by TARGETID. */
typedef struct {
    size_t n;
    int64_t *target;
    double *z;
    char (*spectype)[16], (*subtype)[32];
} spx_redshifts;

/* Reads HDU REDSHIFTS, or ZBEST, of a file converted by fits2h5. SPX_EINPUT: there is none. */
spx_status spx_redshifts_read(hid_t file, spx_redshifts *r, spx_err *e);
int spx_redshifts_there(hid_t file);

/* Row of a target; SPX_NO_ROW: none. */
size_t spx_redshifts_find(const spx_redshifts *r, int64_t target);
/* Columns RR_Z, RR_SPECTYPE, RR_SUBTYPE for rows row[n] of the spectra: NaN and empty for targets not in the file, NaN
 * for redshifts that are not finite; *out is to be freed. */
spx_status spx_redshifts_columns(const spx_redshifts *r, const spx_spectra *s, size_t n, const size_t *row,
                                 struct spx_table **out, spx_err *e);
void spx_redshifts_free(spx_redshifts *r);

/* Index of the first of target[n], ascending, that is not below `wanted`. */
size_t spx_targets_lower(size_t n, const int64_t *target, int64_t wanted);
/* Reads a required integer column of a fibermap into new memory. SPX_EINPUT: no such column, or no fibermap. */
spx_status spx_fibermap_need_i64(const spx_table *t, const char *name, int64_t **out, spx_err *e);

#endif
