/* Sets the scene of a simulated exposure: the camera, its lit fibres, their targets, and the spectra of these on the
 * CCD's fine grid of wavelengths. */
#ifndef SPX_TOOLS_SIM_SCENE_H
#define SPX_TOOLS_SIM_SCENE_H

#include "app/main.h"
#include "common/sim_options.h"
#include "h5/table.h"
#include "products/image.h"
#include "products/psf.h"
#include "products/site.h"
#include "products/target.h"
#include "sim/sim_motion.h"

typedef struct {
    spx_psf psf;
    char arm;
    size_t first, nspec, nwave; /* lit rows of the PSF; samples */
    int32_t *fiber;
    spx_target *target, *seen; /* true, and as seen from the moving Earth */
    spx_site site;
    int targets_drawn; /* they are stars whose parameters are known */
    double *wavelength, *flux, *sky;
    spx_psf drawn;              /* the PSF that the image is drawn through, moved by `motion`; empty: `psf` */
    spx_sim_motion motion;      /* its coefficients are NULL without --shift */
    double *throughput;         /* [nspec][nwave]; NULL: 1 */
    double *scatter;            /* [nspec]: grey factors, which it contains */
    size_t nshift;              /* truth of the motion */
    double *shift_wave, *shift; /* [nshift], [4][nspec][nshift] */
    spx_table *truth, *lines;   /* lines of arc lamps; NULL */
    spx_image image;
} spx_sim_scene;

/* Of stars that are drawn, from the built-in formula or from the library of --models; `site` is set before. Ends step
 * `read` and begins step `stars`. */
spx_status spx_sim_scene_draw(const spx_sim_args *o, spx_run *s, spx_sim_scene *c, spx_err *e);

/* Of the spectra of the input: a spectra or frame block, or a list of text files. */
spx_status spx_sim_scene_read(const spx_sim_args *o, spx_run *s, spx_sim_scene *c, spx_err *e);

/* Of a calibration lamp, --flat or --arc, in all fibres. */
spx_status spx_sim_scene_lamp(const spx_sim_args *o, spx_run *s, spx_sim_scene *c, spx_err *e);

/* Moves the PSF and makes the throughput of the fibres, as the options say. */
spx_status spx_sim_scene_instrument(const spx_sim_args *o, spx_run *s, spx_sim_scene *c, spx_err *e);

/* Adds what the options put in besides the targets to the truth table. */
spx_status spx_sim_scene_truth(spx_sim_scene *c, spx_err *e);

void spx_sim_scene_free(spx_sim_scene *c);

#endif
