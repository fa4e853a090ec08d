/* Makes the raw exposure of specx-sim --raw, and writes it. */
#ifndef SPX_TOOLS_SIM_RAW_FRAME_H
#define SPX_TOOLS_SIM_RAW_FRAME_H

#include "common/sim_scene.h"
#include "fits/write.h"

/* --raw KEY=VALUE,...: numbers of *r, which begins with the defaults. SPX_EUSAGE: no such key. */
spx_status spx_sim_args_raw(const spx_sim_args *o, spx_sim_raw_options *r, spx_err *e);

/* Structure of the camera, and the light that reaches its pixels with the dark current: model[ny][nx], electrons. The
 * light alone stays in c->electrons. */
spx_status spx_sim_raw_light(const spx_sim_args *o, spx_sim_scene *c, double *model, spx_err *e);
/* Reads c->image out into c->raw. */
spx_status spx_sim_raw_expose(const spx_sim_args *o, spx_sim_scene *c, spx_err *e);

/* Writes it with the headers of c->image: as a FITS file, or as /raw and /psf. */
spx_status spx_sim_raw_write_fits(const spx_sim_args *o, spx_sim_scene *c, spx_fits_out *out, spx_err *e);
spx_status spx_sim_raw_write(const spx_sim_args *o, spx_sim_scene *c, hid_t file, spx_err *e);

#endif
