/* Provides the numbers of the bricks of the DESI Legacy Imaging Surveys, by which DESI's readers name places on the
 * sky. */
#ifndef SPX_BRICKS_H
#define SPX_BRICKS_H

#include "base/err.h"

struct spx_table;

/* Adds the column BRICKID, 1 to 662174, or 0 where a target has no place, to a fibermap (may be NULL) that has
 * TARGET_RA and TARGET_DEC (degrees), but no BRICKID. */
spx_status spx_fibermap_add_bricks(struct spx_table *fibermap, spx_err *e);

#endif
