/* Reads spectra from text: a list of files, one name a line; each file has a wavelength (Angstrom) and a flux a line;
 * further columns are ignored, # begins a comment. */
#ifndef SPX_TEXTSPEC_H
#define SPX_TEXTSPEC_H

#include "products/spectra.h"

/* Reads the files that `list` names ("-": standard input) into one arm called `arm`. Names are relative to the folder
 * of the list. All files must have the same wavelengths. SPX_EINPUT names file and line. */
spx_status spx_textspec_read(const char *list, const char *arm, spx_spectra *out, spx_err *e);

/* Reads one such file as a curve: wave[n] increasing and value[n], both to be freed; n >= 2. */
spx_status spx_textspec_curve(const char *name, size_t *n, double **wave, double **value, spx_err *e);

#endif
