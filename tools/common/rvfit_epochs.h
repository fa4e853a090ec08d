/* Tells when the exposures of stars were taken. */
#ifndef SPX_TOOLS_RVFIT_EPOCHS_H
#define SPX_TOOLS_RVFIT_EPOCHS_H

#include "common/rvfit_stars.h"
#include "h5/table.h"

/* Columns of exposures, a row for each spectrum of `stars`, to be freed: MJD_MID, the middle of the exposure (NaN: not
 * known), and NIGHT and EXPID where these are known. Warns where the time is not. */
spx_status spx_rvfit_epoch_columns(const spx_spectra_parts *p, const spx_rvfit_stars *stars, spx_table **out,
                                   spx_err *e);

#endif
