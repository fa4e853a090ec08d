/* Makes the options of a start from a flat and an arc from those of specx-psf's command line, and runs it. */
#ifndef SPX_TOOLS_COLD_OPTIONS_H
#define SPX_TOOLS_COLD_OPTIONS_H

#include "app/main.h"
#include "psffit/cold.h"

/* Values of options; their help says what they are. NULL: not given. */
typedef struct {
    const char *flat, *bundles, *centre, *dispersion, *lamps;
    int from_right;
} spx_cold_args;

/* Options of the kernel but for degree, size of spots and threads. *bundle: of --bundles, which o->bundle is; free with
 * spx_free(), also after an error. SPX_EUSAGE: a text that is none of these, --centre or --dispersion is not given. */
spx_status spx_cold_args_options(const spx_cold_args *a, spx_cold_options *o, size_t **bundle,
                                 spx_err *e) SPX_NODISCARD;

/* Bits of lamps (spectral/lines.h), all where --lamps is not given. SPX_EUSAGE: no such lamp. */
spx_status spx_cold_args_lamps(const spx_cold_args *a, unsigned *lamps, spx_err *e) SPX_NODISCARD;

/* Fibres of each bundle of a text such as 25x20 or 9,12,7: *bundle[*n], freed with spx_free() also after an error.
 * SPX_EUSAGE: it makes no sense. */
spx_status spx_bundles_parse(const char *text, size_t **bundle, size_t *n, spx_err *e) SPX_NODISCARD;

/* Reads the flat of --flat, HDF5, makes the start *psf from it and arcs, and reports what was found. */
spx_status spx_cold_args_start(spx_run *s, const spx_cold_args *a, const spx_cold_options *o, size_t narc,
                               const spx_image *arc, size_t nline, const spx_arc_line *line, spx_psf *psf,
                               spx_err *e) SPX_NODISCARD;

/* Moves a PSF to the lines of arcs, and says so, where these are more than a pixel away: the fit would not find them.
 * moved: by how much in x and y, pixels; 0 where it was not. */
spx_status spx_cold_args_move(spx_run *s, size_t narc, const spx_image *arc, size_t nline, const spx_arc_line *line,
                              spx_psf *start, double moved[2], spx_err *e) SPX_NODISCARD;

#endif
