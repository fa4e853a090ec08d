/* Makes the input of the flux calibration from specx-flux's command line: telluric bands, and which fitted stars of a
 * frame are its standards. */
#ifndef SPX_TOOLS_FLUX_OPTIONS_H
#define SPX_TOOLS_FLUX_OPTIONS_H

#include "app/main.h"
#include "common/bands.h"
#include "flux/flux.h"
#include "products/rvfit_templates_h5.h"
#include "products/spectra.h"

/* Values of specx-flux's option table; its help says what they are. */
typedef struct {
    const char *fit, *apply, *bands, *stars;
    double smooth, floor;
    int bytes, skip_existing;
    int fit_options; /* one that belongs to the fit of a response was given */
} spx_flux_args;

/* Standard stars of a frame, and arrays that the kernel's input points to. */
typedef struct {
    spx_flux_stars in;
    size_t *row;
    int64_t *targetid; /* [nstar]; 0: not known */
    double *model;
    const char *how; /* how they were chosen, for messages */
    char unit[64];   /* of the calibrated flux */
} spx_flux_standards;

/* Telluric bands of a text file (common/bands.h). NULL: the kernel's own; "none": none. */
spx_status spx_flux_read_bands(spx_run *s, const char *name, spx_bands *b, spx_err *e);

/* The stars of --stars, else those that the fibermap calls standards, else all with a good fit and a signal-to-noise
 * ratio of 10; with models scaled by magnitudes of the fibermap, else by the stars' brightness in one of the fitted
 * arms. SPX_EUSAGE: --stars does not fit the frame; SPX_EINPUT: no star, or not of this arm. */
spx_status spx_flux_choose_stars(const spx_flux_args *o, const spx_star_templates *t, const spx_frame *f,
                                 spx_flux_standards *s, spx_err *e);
void spx_flux_standards_free(spx_flux_standards *s);

#endif
