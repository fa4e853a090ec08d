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
    double *field;              /* [2][nspec]: x, y on the focal plane, mm; NULL: not asked for */
    double *sky_fiber;          /* [nspec][nwave]; NULL: all see `sky` */
    double *transmission;       /* [nwave], of the atmosphere, with `response`; NULL: 1 */
    double *response;           /* [nwave], electrons per photon */
    double *amplifier;          /* [4], electrons; NULL: none */
    float *hits;                /* electrons of unflagged cosmic rays, of `image`'s size; NULL */
    double *throughput;         /* [nspec][nwave]; NULL: 1 */
    double *scatter;            /* [nspec]: grey factors, which it contains */
    size_t nshift;              /* truth of the motion */
    double *shift_wave, *shift; /* [nshift], [4][nspec][nshift] */
    spx_table *truth, *lines;   /* lines of arc lamps; NULL */
    spx_image image;
    spx_sim_raw_options raw_options; /* of --raw: the exposure as it is read out, and its truth */
    spx_sim_raw_truth structure;
    float *electrons; /* of light, without noise, of `image`'s size; NULL */
    spx_raw raw;
    spx_layout layout;
} spx_sim_scene;

/* Of stars that are drawn, from the built-in formula or from the library of --models; `site` is set before. Ends step
 * `read` and begins step `stars`. */
spx_status spx_sim_scene_draw(const spx_sim_args *o, spx_run *s, spx_sim_scene *c, spx_err *e);

/* Of the spectra of the input: a spectra or frame block, or a list of text files. */
spx_status spx_sim_scene_read(const spx_sim_args *o, spx_run *s, spx_sim_scene *c, spx_err *e);

/* Of a calibration lamp, --flat or --arc, in all fibres. */
spx_status spx_sim_scene_lamp(const spx_sim_args *o, spx_run *s, spx_sim_scene *c, spx_err *e);

/* Makes of the light of targets or lamps that which reaches the CCD: atmosphere, sky, throughput of the fibres; and
 * moves the PSF, as the options say. */
spx_status spx_sim_scene_light(const spx_sim_args *o, spx_run *s, spx_sim_scene *c, spx_err *e);

/* Makes the image of it. */
spx_status spx_sim_scene_expose(const spx_sim_args *o, spx_run *s, spx_sim_scene *c, spx_err *e);

/* Adds numbers of fibres, standards, and what the options put in besides the targets to fibermap and truth table. */
spx_status spx_sim_scene_tables(const spx_sim_args *o, spx_sim_scene *c, spx_err *e);

/* Writes /truth, and the PSF that the image was drawn through. */
spx_status spx_sim_scene_write_truth(hid_t file, const spx_sim_scene *c, spx_err *e);

/* Says of an error about the PSF that it is of the file of --psf, where there is one. Returns st. */
spx_status spx_sim_scene_psf_error(const spx_sim_args *o, spx_status st, spx_err *e);

void spx_sim_scene_free(spx_sim_scene *c);

#endif
