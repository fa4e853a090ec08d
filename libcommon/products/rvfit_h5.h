/* Reads and writes /rvfit: contract of all readers and writers in products/README. */
#ifndef SPX_RVFIT_H5_H
#define SPX_RVFIT_H5_H

#include <hdf5.h>

#include "h5/table.h"
#include "products/rvfit.h"

/* Reads start values from the table of an earlier fit: start[nrow][2+npar] for rows row[nrow] of the spectra, in the
 * order and units of spx_rvfit_input, NaN where the table has no value. Rows are matched by TARGETID, and EXPID where
 * both have it (-1 in the table matches any); without TARGETID the table must have one row for each spectrum. */
spx_status spx_rvfit_read_start(hid_t file, const spx_spectra *s, const spx_setup *setup, size_t nrow,
                                const size_t *row, double *start, spx_err *e);

/* Creates the datasets of models and curves for a result that is written in chunks of whole stars: those that chunk
 * `part` has, for nrow spectra in all. `s`: all spectra; pixels are not needed. joint: stars may have several
 * exposures; models are then those of exposures. */
spx_status spx_rvfit_create(hid_t file, const spx_rvfit *part, const spx_spectra *s, size_t nrow, int joint,
                            spx_err *e);
/* Writes models and curves of a chunk whose first spectrum is number `first`. */
spx_status spx_rvfit_write_rows(hid_t file, const spx_rvfit *part, size_t first, int joint, spx_err *e);
/* Writes the tables, for all stars together: /rvfit/table (with the columns of `more`, a row a star; NULL: none),
 * /rvfit/exposures when joint (with those of `epochs`, a row a spectrum), header, fibermap and scores. Columns that
 * identify a star are copied from the spectra's fibermap where it has them; r->row are rows of `s`. */
spx_status spx_rvfit_write_tables(hid_t file, const spx_rvfit *r, const spx_spectra *s, int joint,
                                  const spx_table *more, const spx_table *epochs, spx_err *e);

#endif
