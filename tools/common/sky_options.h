/* Makes the options and the input of the sky subtraction from those of specx-sky's command line. */
#ifndef SPX_TOOLS_SKY_OPTIONS_H
#define SPX_TOOLS_SKY_OPTIONS_H

#include "products/psf.h"
#include "products/spectra.h"
#include "sky/sky.h"

typedef enum { SPX_GRADIENT_NONE, SPX_GRADIENT_X, SPX_GRADIENT_Y, SPX_GRADIENT_XY } spx_sky_gradient;

/* Values of specx-sky's option table; its help says what they are. */
typedef struct {
    const char *flat, *terms, *sky_fibers;
    spx_sky_gradient gradient;
    spx_sky_scale scale;
    long hold_out;
    double reject, knots;
    int sectors, keep_sky, bytes, skip_existing;
} spx_sky_args;

/* Arrays that an input of the kernel points to. */
typedef struct {
    spx_sky_input in;
    uint8_t *role;
    double *place, *velocity, *coordinate, *side;
    double *ivar; /* 0 where the mask has a bit */
} spx_sky_scene;

/* SPX_EUSAGE: --terms is no list of three. */
spx_status spx_sky_args_options(const spx_sky_args *o, int nthreads, spx_sky_options *so, spx_err *e);

/* Sky fibres, places, coordinates and velocities of a frame. Sky fibres: --sky-fibers, else rows of the fibermap with
 * OBJTYPE SKY. psf: of the same file, NULL: none. `label`: before notes. SPX_EINPUT: the frame does not say which
 * fibres are sky; SPX_EUSAGE: --sky-fibers or --hold-out do not fit it. */
spx_status spx_sky_scene_make(const spx_sky_args *o, const char *label, const spx_frame *f, const spx_psf *psf,
                              spx_sky_scene *s, spx_err *e);
void spx_sky_scene_free(spx_sky_scene *s);

#endif
