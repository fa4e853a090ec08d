/* Reads the frames that specx-flat makes a flat field of. */
#ifndef SPX_TOOLS_FLAT_INPUTS_H
#define SPX_TOOLS_FLAT_INPUTS_H

#include "app/main.h"
#include "flat/flat.h"
#include "products/spectra.h"

typedef struct {
    size_t n, capacity;
    spx_frame *frame; /* [n], without what no flat needs: chi2pix, pixmask_fraction, model, scores */
    char (*name)[256];
    size_t name_capacity;
    const double **array; /* of the kernel's input: [3][n] */
    const uint32_t **mask;
} spx_flat_frames;

/* All frames of the inputs; standard input may hold any number. SPX_EINPUT: an input is no frame, or the frames are of
 * different cameras, fibres or wavelengths, have no resolution or were divided by a flat. Free also after an error. */
spx_status spx_flat_frames_read(spx_run *s, spx_flat_frames *f, spx_err *e);
/* The kernel's input, which points into *f. */
spx_status spx_flat_frames_input(spx_flat_frames *f, spx_flat_input *in, spx_err *e);
void spx_flat_frames_free(spx_flat_frames *f);

/* Fields of the flat that the kernel leaves to its caller: camera, medium, unit, fibres, fibermap; taken from the first
 * frame, which then is without them. */
void spx_flat_inherit(spx_flat *flat, spx_flat_frames *f);

#endif
