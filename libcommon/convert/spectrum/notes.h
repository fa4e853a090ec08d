/* What a user should hear of the files, and units and precision of their fluxes. */
#ifndef SPX_SPECTRUM_NOTES_H
#define SPX_SPECTRUM_NOTES_H

#include "convert/note_list.h"
#include "convert/spectrum/grid.h"
#include "convert/spectrum/spectrum.h"

typedef struct {
    size_t count[4]; /* files without errors, medium, frame; not barycentric */
    const char *first[4];
    const char *blank;   /* file with orders that were left out */
    size_t nblank;       /* so many of them, in all files */
    char correction[64]; /* of the first that is not barycentric: what its header says, or empty */
} spx_notes;

/* Count what a user should hear of a file: k as in count[], where `is`. */
void spx_notes_hear(spx_notes *said, const char *file, size_t k, int is);

/* The correction that the header of a file knows, which nobody applies here. */
void spx_notes_correction(const spx_fits *f, char *text, size_t size);

/* All of it, a line each. */
spx_status spx_notes_say(const spx_notes *said, spx_note_list *notes, spx_err *e);

/* Unit of the fluxes, as header or column say. */
void spx_unit_of_flux(const spx_spectrum_file *file, const spx_fits_spectrum *s, char unit[64]);

/* 8 bytes a value where 4 are not enough: for doubles, and for inverse variances of fluxes in cgs units. */
int spx_precision_of(const spx_grid *b, size_t n, const spx_spectrum_file *file);

#endif
