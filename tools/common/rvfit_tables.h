/* Writes the tables of a fit: stars, with what a redshift file says of them, and exposures, with when they were taken.
 */
#ifndef SPX_TOOLS_RVFIT_TABLES_H
#define SPX_TOOLS_RVFIT_TABLES_H

#include <hdf5.h>

#include "common/rvfit_stars.h"

/* As spx_rvfit_write_tables(). Where velocities of exposures were measured, their table has MJD_MID, the middle of the
 * exposure (NaN: not known, with a warning), and NIGHT and EXPID where these are known. */
spx_status spx_rvfit_write_stars(hid_t file, const spx_rvfit *all, const spx_spectra_parts *p,
                                 const spx_rvfit_stars *stars, spx_err *e);

/* Frees the models of all arms. */
void spx_rvfit_drop_models(spx_rvfit *fit);

#endif
