/* Provides the list of spectra found in a file, with names of arms, medium and frame. */
#ifndef SPX_SPECTRUM_LIST_H
#define SPX_SPECTRUM_LIST_H

#include "convert/spectrum/spectrum.h"
#include "convert/spectrum/surveys.h"

enum {
    SPX_LEAST_PIXELS = 16 /* fewest pixels of a spectrum */,
    SPX_MOST_ROWS = 6 /* most rows of an image whose rows are flux, error, mask */
};

/* Values in a row of an image; hdu -1: SPX_NO_VALUES. */
spx_fits_values spx_values_of_row(int hdu, size_t row);

/* Makes the name of an arm from any text: letters and digits in lower case, without final digits where a number may
 * follow; `otherwise` where nothing is left. */
void spx_arm_name_from(char arm[16], const char *text, const char *otherwise);

/* Default name of an arm of this file: by survey or instrument. */
void spx_arm_name_default(const spx_fits *f, const spx_survey *fam, char arm[16]);

/* Sets medium and frame from a header's keywords, else from the survey. */
void spx_spectrum_axis(const spx_fits *f, int hdu, const spx_survey *fam, spx_fits_spectrum *s);

/* Appends a spectrum; NULL: no memory. */
spx_fits_spectrum *spx_spectra_list_add(spx_fits_spectra *l, spx_err *e);

/* Removes all spectra. */
void spx_spectra_list_clear(spx_fits_spectra *l);

#endif
