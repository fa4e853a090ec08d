/* Collects notes to the user on files of spectra; chooses unit and precision of their fluxes. */
#ifndef SPX_SPECTRUM_NOTES_H
#define SPX_SPECTRUM_NOTES_H

#include "convert/note_list.h"
#include "convert/spectrum/grid.h"
#include "convert/spectrum/spectrum.h"

typedef struct {
    size_t count[4]; /* numbers of files without errors, without medium, without frame; not barycentric */
    const char *first[4];
    const char *blank;   /* name of a file with orders left out */
    size_t nblank;       /* number of orders left out, over all files */
    char correction[64]; /* of the first file that is not barycentric: the header's correction, or empty */
} spx_notes;

/* Counts a file in count[k] if `is`. */
void spx_notes_hear(spx_notes *said, const char *file, size_t k, int is);

/* Text of the barycentric correction in a header, which is not applied. */
void spx_notes_correction(const spx_fits *f, char *text, size_t size);

/* All of it, a line each. */
spx_status spx_notes_say(const spx_notes *said, spx_note_list *notes, spx_err *e);

/* Unit of the fluxes, from header or column. */
void spx_unit_of_flux(const spx_spectrum_file *file, const spx_fits_spectrum *s, char unit[64]);

/* Bytes of a value: 8 where 4 are not enough, for doubles and for inverse variances of fluxes in cgs units. */
int spx_precision_of(const spx_grid *b, size_t n, const spx_spectrum_file *file);

#endif
