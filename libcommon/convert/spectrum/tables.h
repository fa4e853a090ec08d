/* Finds spectra in tables: one pixel a row, or vectors in a row. */
#ifndef SPX_SPECTRUM_TABLES_H
#define SPX_SPECTRUM_TABLES_H

#include "convert/spectrum/columns.h"
#include "convert/spectrum/spectrum.h"
#include "convert/spectrum/surveys.h"

/* Number of elements of a column in one row. */
size_t spx_column_elements(const spx_fits_column *c);

/* Assigns roles to columns by their names. */
void spx_table_roles(const spx_fits_hdu *h, spx_column_roles *c);

/* *same: 1 when all rows have the wavelengths of row 0. */
spx_status spx_same_wavelengths(spx_fits *f, const spx_fits_values *wave, size_t n, int *same, spx_err *e);

/* Range of rows that --orders selects, first ... first+count-1 of n. Echelle orders are arms; other rows are
 * spectra. */
spx_status spx_orders_of(const spx_fits_spectrum_options *o, size_t n, size_t *first, size_t *count, spx_err *e);

/* Finder (images.h). */
spx_status spx_find_tables(spx_fits *f, const spx_survey *fam, const spx_fits_spectrum_options *o,
                           spx_fits_spectra *out, spx_err *e);

#endif
