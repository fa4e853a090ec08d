/* Puts spectra on pixels of the same grid into one arm. */
#ifndef SPX_SPECTRUM_GRID_H
#define SPX_SPECTRUM_GRID_H

#include "convert/spectrum/load.h"
#include "convert/spectrum/spectrum.h"

typedef struct {
    spx_spectra s;
    char base[SPX_MAX_ARM][16];
    size_t common[SPX_MAX_ARM];        /* length of the first grid of an arm, which is its `wavelength` */
    size_t nloaded, nplaced, capacity; /* all are loaded before the first is placed */
    spx_loaded *l;
} spx_grid;

/* Sets arm and offset of a spectrum. Spectra on parts of one grid share it. Of different targets, others share an arm
 * with a grid for each row; where a row has the arm, or its target another grid in it, a new one is made. target[row]:
 * of each row of the block. */
spx_status spx_grid_place(spx_grid *b, const char *file, const int64_t *target, spx_loaded *l, spx_err *e);

/* Allocates and fills the arrays of all arms from the placed spectra. */
spx_status spx_grid_fill(spx_grid *b, spx_err *e);

#endif
