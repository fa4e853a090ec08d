/* The spectra that were found in a file, one after another: what they are called, medium and frame. */
#ifndef SPX_SPECTRUM_LIST_H
#define SPX_SPECTRUM_LIST_H

#include "convert/spectrum/spectrum.h"
#include "convert/spectrum/surveys.h"

enum {
    SPX_LEAST_PIXELS = 16 /* pixels of a spectrum */,
    SPX_MOST_ROWS = 6 /* of an image whose rows are flux, error, mask */
};

/* Row of an image; hdu -1: SPX_NO_VALUES. */
spx_fits_values spx_values_of_row(int hdu, size_t row);

/* A name of an arm from any text: letters and digits in lower case, none at the end of what a number may follow. */
void spx_arm_name_from(char arm[16], const char *text, const char *otherwise);

/* What an arm of this file is called where nothing else says: by its survey or instrument. */
void spx_arm_name_default(const spx_fits *f, const spx_survey *fam, char arm[16]);

/* Medium and frame: a header's keywords, else the survey. */
void spx_spectrum_axis(const spx_fits *f, int hdu, const spx_survey *fam, spx_fits_spectrum *s);

/* One more spectrum; NULL: no memory. */
spx_fits_spectrum *spx_spectra_list_add(spx_fits_spectra *l, spx_err *e);

/* None of them, after all. */
void spx_spectra_list_clear(spx_fits_spectra *l);

#endif
