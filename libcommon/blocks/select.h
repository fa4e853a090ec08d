/* Which spectra of a block are wanted, and blocks side by side. */
#ifndef SPX_SELECT_H
#define SPX_SELECT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "blocks/spectra.h"

/* Arms of `more`, which holds the same spectra in the same order, move to `to`. SPX_EINPUT when the number of spectra,
 * TARGETID or FIBER differ, or an arm is there already. */
spx_status spx_spectra_add_arms(spx_spectra *to, spx_spectra *more, spx_err *e);

/* take[nspec] = 0 for what the fibermap says is no star, as rvspecfit does: OBJTYPE SKY or BAD, or a fibre status
 * (FIBERSTATUS, or COADD_FIBERSTATUS) with another bit than 3 (restricted reach) or 20. Without a fibermap nothing is
 * changed. */
spx_status spx_spectra_drop_sky(const spx_spectra *s, char *take, spx_err *e);

/* take[nspec] = 0 where TARGETID is none of id[n]. SPX_EINPUT without a fibermap that has a TARGETID. */
spx_status spx_spectra_keep_targets(const spx_spectra *s, size_t n, const int64_t *id, char *take, spx_err *e);

#endif
