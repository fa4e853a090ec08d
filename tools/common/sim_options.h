/* Makes what the simulation takes of the texts and numbers of specx-sim's command line. */
#ifndef SPX_TOOLS_SIM_OPTIONS_H
#define SPX_TOOLS_SIM_OPTIONS_H

#include "app/opt.h"
#include "sim/sim.h"
#include "sim/sim_raw.h"

/* Of the image: AUTO is by the name of the output. */
typedef enum { SPX_SIM_FORMAT_AUTO, SPX_SIM_FORMAT_HDF5, SPX_SIM_FORMAT_FITS } spx_sim_format;

/* Values of specx-sim's option table; its help says what they are. */
typedef struct {
    int arm; /* 'b', 'r', 'z' */
    const char *camera, *bundles;
    const char *psf, *fibers, *models, *truth, *psf_output, *library, *wavelength;
    spx_sim_format format;
    spx_sim_ivar ivar;
    const char *teff, *logg, *feh, *alpha, *velocity, *vsini, *mag, *snr, *gap, *site;
    spx_opt_list axis;
    long sky_fibers, standards, seed, badcolumns, saturated, nans, expid, petal, tile;
    double step, exptime, readnoise, fullwell, cosmics, mjd;
    int sky, noise, has_mjd;
    const char *shift, *arc;
    int flat, has_level;
    double lamp_level;
    const char *sky_gradient, *line_gradient, *sky_lines, *amp_offsets;
    double fringes, tails, tellurics, star_error;
    int has_tellurics, flag_cosmics;
    spx_sim_family spots;
    double throughput, fiber_scatter;
    long noise_seed, instrument_seed;
    const char *raw; /* a raw exposure; NULL: a pre-processed image */
    int bias, dark;  /* of no light and no time; of no light */
    int has_noise_seed, has_instrument_seed, has_tile;
} spx_sim_args;

/* Seed of what differs from exposure to exposure. */
uint64_t spx_sim_args_noise_seed(const spx_sim_args *o);

/* Seed of the fibres' throughput, the fringes and the random motion of traces. */
uint64_t spx_sim_args_instrument_seed(const spx_sim_args *o);

/* --fibers: rows first ... last-1 of the PSF; both stay as they are without it. SPX_EUSAGE of these functions: a text
 * makes no sense. */
spx_status spx_sim_args_fibers(const spx_sim_args *o, size_t *first, size_t *last, spx_err *e);

/* --wavelength: MIN and MAX, Angstrom; both 0 without it. */
spx_status spx_sim_args_wavelength(const spx_sim_args *o, double w[2], spx_err *e);

/* One key of an option KEY=VALUE,...: its value, and the range of that. */
typedef struct {
    const char *name;
    double *value, least, most;
} spx_sim_key;

/* Sets the values of key[n] that `text` of `option` names. */
spx_status spx_sim_args_keys(const char *text, const char *option, size_t n, const spx_sim_key *key, spx_err *e);

/* --camera and --bundles; *bundle, which camera->bundle points to, is freed with spx_free(). */
spx_status spx_sim_args_camera(const spx_sim_args *o, spx_sim_camera *camera, size_t **bundle, spx_err *e);

/* Gases of --arc, bits (sim/sim_lamp.h); 0 without it. */
spx_status spx_sim_args_lamps(const spx_sim_args *o, unsigned *lamps, spx_err *e);

/* Factors on the parts of the sky, --sky-lines: what is random in them depends on the noise's seed. */
spx_status spx_sim_args_sky(const spx_sim_args *o, double factor[SPX_SIM_NSKY], spx_err *e);

/* GX,GY of `text`, an option's; 0,0 without. */
spx_status spx_sim_args_gradient(const char *text, const char *option, double g[2], spx_err *e);

/* Ranges of the parameters that the targets of nspec fibres are drawn from. */
spx_status spx_sim_args_ranges(const spx_sim_args *o, size_t nspec, spx_sim_ranges *r, spx_err *e);

/* Noise and defects of a CCD of ny rows. */
spx_status spx_sim_args_noise(const spx_sim_args *o, char camera, size_t ny, spx_sim_noise *n, spx_err *e);

/* Axes of the grid of --library, of --axis or by default. */
spx_status spx_sim_args_axes(const spx_sim_args *o, spx_sim_axis axis[SPX_SIM_NAXIS], spx_err *e);

#endif
