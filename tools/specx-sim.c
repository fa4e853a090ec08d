/* specx-sim: simulate an exposure whose truth is known, or write a synthetic star library. */
#include <stdio.h>
#include <string.h>

#include "app/main.h"
#include "common/kernel_options.h"
#include "common/sim_library.h"
#include "common/sim_options.h"
#include "common/sim_raw_frame.h"
#include "common/sim_scene.h"
#include "convert/ccd.h"
#include "h5/file.h"
#include "products/image_h5.h"
#include "products/psf_h5.h"
#include "sim/sim.h"

static spx_sim_args o = {.arm = 'r',
                         .fibers = NULL,
                         .format = SPX_SIM_FORMAT_AUTO,
                         .ivar = SPX_SIM_IVAR_MODEL,
                         .teff = "4600:6900",
                         .logg = "1.2:4.8",
                         .feh = "-1.9:0.4",
                         .alpha = "0:0.4",
                         .velocity = "-300:300",
                         .vsini = "0:20",
                         .mag = "16:18",
                         .sky_fibers = -1,
                         .seed = 1,
                         .badcolumns = 1,
                         .expid = 1,
                         .step = 0.1,
                         .exptime = 900,
                         .readnoise = 3,
                         .fullwell = 2e5,
                         .cosmics = 25,
                         .spots = SPX_SIM_GAUSS_HERMITE,
                         .flag_cosmics = 1,
                         .sky = 1,
                         .noise = 1};

static const spx_opt options[] = {
    SPX_HEADING("What is simulated"),
    SPX_OPTION(CHOICE, "arm", 'a', NULL, o.arm, "Built-in camera",
               .choices = SPX_CHOICES({"b", 'b'}, {"r", 'r'}, {"z", 'z'})),
    SPX_OPTION(STRING, "camera", 0, "KEY=VALUE,...", o.camera,
               "Differences from the built-in camera: pitch and gap of fibres, dispersion, width and tail of spots, "
               "mirrored, falling; specx-sim(1), Camera"),
    SPX_OPTION(STRING, "bundles", 0, "NxM|N,N...", o.bundles,
               "M bundles of N fibres, or fibres of each bundle, of the built-in camera", .absent = "25 each"),
    SPX_OPTION(INT, "petal", 0, "N", o.petal,
               "Spectrograph: the built-in camera r is r0 to r9, and its fibres are numbered from 500 N on", .min = 0,
               .max = 9),
    SPX_OPTION(STRING, "psf", 0, "FILE", o.psf, "Camera with this PSF instead, HDF5 or a DESI PSF file"),
    SPX_OPTION(STRING, "fibers", 'n', "N|FIRST:LAST", o.fibers, "Fibres that are lit",
               .absent = "25 of a built-in camera, all of --psf, as many as SPECTRA"),
    SPX_OPTION(STRING, "wavelength", 'w', "MIN,MAX", o.wavelength, "Range, Angstrom, of a built-in camera's CCD",
               .absent = "all of the camera's"),
    SPX_OPTION(DOUBLE, "step", 0, "ANGSTROM", o.step, "Step of the wavelengths that spectra are made on", .min = 0.001,
               .max = 100),
    SPX_OPTION(INT, "seed", 's', "N", o.seed,
               "Seed of stars and noise. The same seed gives the same stars in all cameras, and the same noise in the "
               "same camera",
               .min = 0, .max = 9e18),
    SPX_OPTION(INT, "noise-seed", 0, "N", o.noise_seed,
               "Seed of noise, hits and defects of this exposure, for several exposures with one --seed", .min = 0,
               .max = 9e18, .given = &o.has_noise_seed, .no_default = 1, .absent = "--seed"),
    SPX_OPTION(INT, "instrument-seed", 0, "N", o.instrument_seed,
               "Seed of throughputs, fringes and random motion, for exposures of other stars with one instrument",
               .min = 0, .max = 9e18, .given = &o.has_instrument_seed, .no_default = 1, .absent = "--seed"),
    SPX_OPTION(STRING, "models", 'm', "FILE", o.models,
               "Draw the stars from this library, not from the built-in formula"),
    SPX_HEADING("Targets: MIN:MAX to draw from, or one value for all"),
    SPX_OPTION(STRING, "teff", 0, "K", o.teff, "Effective temperature"),
    SPX_OPTION(STRING, "logg", 0, "DEX", o.logg, "Surface gravity"),
    SPX_OPTION(STRING, "feh", 0, "DEX", o.feh, "Metallicity"),
    SPX_OPTION(STRING, "alpha", 0, "DEX", o.alpha, "Excess of alpha elements"),
    SPX_OPTION(STRING, "velocity", 0, "KM/S", o.velocity, "Radial velocity"),
    SPX_OPTION(STRING, "vsini", 0, "KM/S", o.vsini, "Rotation"),
    SPX_OPTION(STRING, "mag", 0, "MAG", o.mag, "AB magnitude at 6200 Angstrom"),
    SPX_OPTION(STRING, "snr", 0, "RATIO", o.snr,
               "Signal-to-noise ratio per Angstrom at 6200 Angstrom, instead of --mag"),
    SPX_OPTION(DOUBLE, "star-error", 0, "RMS", o.star_error,
               "Spectra differ from those of the stars' parameters by this: a tilt, a wave and noise in each Angstrom",
               .min = 0, .max = 0.2),
    SPX_OPTION(INT, "sky-fibers", 0, "N", o.sky_fibers, "Fibres that see the sky only; -1: one in five", .min = -1,
               .max = 5000),
    SPX_OPTION(INT, "standards", 0, "N", o.standards,
               "Targets that the fibermap calls standard stars (STD_BRIGHT of DESI_TARGET), the first of the exposure",
               .min = 0, .max = 5000),
    SPX_OPTION(FLAG, "sky", 0, NULL, o.sky, "No light of the night sky. Without it, every fibre has it", .no = 1),
    SPX_HEADING("Atmosphere"),
    SPX_OPTION(STRING, "sky-gradient", 0, "GX,GY", o.sky_gradient,
               "Gradient of the sky's continuum over the focal plane, a fraction in 400 mm. The fibermap then has the "
               "places FIBERASSIGN_X, FIBERASSIGN_Y, also with 0,0",
               .absent = "none"),
    SPX_OPTION(STRING, "line-gradient", 0, "GX,GY", o.line_gradient, "The same for the lines of OH", .absent = "none"),
    SPX_OPTION(STRING, "sky-lines", 0, "RMS|GROUP=FACTOR,...", o.sky_lines,
               "Strengths of the sky lines of OH, OI, Na and the rest: factors, or the rms of the logarithm of random "
               "ones (--noise-seed)",
               .absent = "1 for all"),
    SPX_OPTION(DOUBLE, "tellurics", 0, "STRENGTH", o.tellurics,
               "Bands of O2 and H2O in the light of targets; 1: as over a good site at the zenith", .min = 0, .max = 20,
               .given = &o.has_tellurics, .no_default = 1, .absent = "none"),
    SPX_HEADING("Lamps instead of targets and sky"),
    SPX_OPTION(FLAG, "flat", 0, NULL, o.flat, "Smooth lamp, for flat fields"),
    SPX_OPTION(STRING, "arc", 0, "all|LAMP,LAMP...", o.arc, "Arc lamps: Hg, Cd, Ne, Ar, Kr, Xe (all of them), He, Zn"),
    SPX_OPTION(DOUBLE, "lamp-level", 0, "ELECTRONS", o.lamp_level,
               "Electrons per Angstrom of the flat where it is brightest, or in the brightest lines of arcs", .min = 1,
               .max = 1e9, .given = &o.has_level, .no_default = 1, .absent = "6000 for a flat, 100000 for arcs"),
    SPX_HEADING("Fibres and optics"),
    SPX_OPTION(STRING, "shift", 0, "DX,DY[,WX,WY]|wave[:SIZE]|FILE", o.shift,
               "Draw the image with traces and widths that differ from the PSF that is written. Shifts in pixels, "
               "relative changes of the widths",
               .absent = "none"),
    SPX_OPTION(DOUBLE, "throughput", 0, "RMS", o.throughput,
               "Throughputs of the fibres differ by this, smoothly along the wavelength. They are the same in all "
               "exposures of a seed (--instrument-seed)",
               .min = 0, .max = 0.5),
    SPX_OPTION(DOUBLE, "fiber-scatter", 0, "RMS", o.fiber_scatter,
               "A factor for each fibre, which other exposures do not share (--noise-seed)", .min = 0, .max = 0.3),
    SPX_OPTION(DOUBLE, "fringes", 0, "AMPLITUDE", o.fringes,
               "Fringes of a thin CCD, a fraction of all light. They are the same in all exposures", .min = 0,
               .max = 0.5),
    SPX_OPTION(DOUBLE, "tails", 0, "FRACTION", o.tails,
               "Light in wings of 3 to 24 pixels, which the PSF that is written does not have", .min = 0, .max = 0.5),
    SPX_OPTION(CHOICE, "spots", 0, NULL, o.spots, "Shape of spots: that of the PSF, or others of its place and widths",
               .choices =
                   SPX_CHOICES({"psf", SPX_SIM_GAUSS_HERMITE}, {"moffat", SPX_SIM_MOFFAT}, {"disc", SPX_SIM_DISC})),
    SPX_HEADING("Exposure"),
    SPX_OPTION(DOUBLE, "exptime", 0, "S", o.exptime, "Exposure time", .min = 0.001, .max = 1e6),
    SPX_OPTION(
        DOUBLE, "mjd", 0, "MJD", o.mjd,
        "Start of the exposure, UTC. Velocities are barycentric then, and seen from the moving Earth; without it "
        "they are as seen",
        .min = 36935, .max = 88068, .given = &o.has_mjd, .no_default = 1),
    SPX_OPTION(STRING, "site", 0, "NAME|LON,LAT,HEIGHT", o.site, "Observatory, for --mjd", .absent = "kpno"),
    SPX_OPTION(FLAG, "noise", 0, NULL, o.noise, "No photon and read noise", .no = 1),
    SPX_OPTION(DOUBLE, "readnoise", 0, "E", o.readnoise, "Read noise, electrons", .min = 0.01, .max = 1e5),
    SPX_OPTION(DOUBLE, "fullwell", 0, "E", o.fullwell, "Electrons at which a pixel saturates", .min = 1, .max = 1e9),
    SPX_OPTION(DOUBLE, "cosmics", 0, "N", o.cosmics, "Cosmic-ray hits in a million pixels", .min = 0, .max = 1e5),
    SPX_OPTION(FLAG, "flag-cosmics", 0, NULL, o.flag_cosmics, "Hits are not flagged in the mask", .no = 1),
    SPX_OPTION(STRING, "amp-offsets", 0, "E,E,E,E|RMS", o.amp_offsets,
               "Electrons added to the four quadrants of the CCD, or the rms of random ones (--noise-seed)",
               .absent = "none"),
    SPX_OPTION(INT, "bad-columns", 0, "N", o.badcolumns, "Bad columns", .min = 0, .max = 1000),
    SPX_OPTION(STRING, "gap", 0, "FIRST:LAST", o.gap, "Rows of an amplifier gap, without LAST"),
    SPX_OPTION(INT, "saturated", 0, "N", o.saturated, "Saturated blocks of 8 x 24 pixels", .min = 0, .max = 1000),
    SPX_OPTION(INT, "nans", 0, "N", o.nans, "Pixels that are NaN and masked", .min = 0, .max = 1e6),
    SPX_OPTION(CHOICE, "ivar", 0, NULL, o.ivar, "Variance from the noise-free model, or from the noisy data",
               .choices = SPX_CHOICES({"model", SPX_SIM_IVAR_MODEL}, {"data", SPX_SIM_IVAR_DATA})),
    SPX_OPTION(INT, "expid", 0, "N", o.expid, "Exposure number in the header", .min = 0, .max = 99999999),
    SPX_OPTION(INT, "tile", 0, "N", o.tile, "Tile in the header, TILEID", .min = 0, .max = 999999999,
               .given = &o.has_tile, .no_default = 1, .absent = "none"),
    SPX_HEADING("Raw exposure"),
    SPX_OPTION(STRING, "raw", 0, "KEY=VALUE,...", o.raw,
               "Write the exposure as amplifiers read it out, not pre-processed: specx-sim(1), RAW EXPOSURES, has the "
               "keys",
               .absent = "a pre-processed image"),
    SPX_OPTION(FLAG, "bias", 0, NULL, o.bias, "With --raw: an exposure of no light and no time"),
    SPX_OPTION(FLAG, "dark", 0, NULL, o.dark, "With --raw: an exposure of no light"),
    SPX_HEADING("Output"),
    SPX_OPTION(CHOICE, "format", 0, NULL, o.format,
               "HDF5, or a DESI preproc file; auto: by the name of the output, *.fits",
               .choices = SPX_CHOICES({"auto", SPX_SIM_FORMAT_AUTO}, {"hdf5", SPX_SIM_FORMAT_HDF5},
                                      {"fits", SPX_SIM_FORMAT_FITS})),
    SPX_OPTION(STRING, "psf-output", 0, "FILE", o.psf_output, "Write the PSF as a DESI PSF file too"),
    SPX_OPTION(STRING, "truth", 0, "FILE", o.truth, "Write what was put in (HDF5)"),
    SPX_HEADING("Star library"),
    SPX_OPTION(STRING, "library", 0, "DIR", o.library,
               "Write a library of the built-in stars in PHOENIX layout, not an exposure. It has a grid of parameters"),
    SPX_OPTION(LIST, "axis", 0, "NAME=V,V...", o.axis, "Values of teff, logg, feh or alpha of that grid; repeatable"),
    {0}};
/* ---- what goes with the image ---- */

static spx_status make_header(spx_sim_scene *c, spx_err *e)
{
    spx_cards *h = &c->image.header;
    char camera[] = {c->arm, '0', '\0'};
    (void)snprintf(c->image.camera, sizeof c->image.camera, "%s", c->psf.camera[0] != '\0' ? c->psf.camera : camera);
    spx_status st = spx_cards_set_string(h, "CAMERA", c->image.camera, "camera", e);
    if (st == SPX_OK)
        st = spx_cards_set_int(h, "EXPID", o.expid, "exposure number", e);
    if (st == SPX_OK && o.has_tile)
        st = spx_cards_set_int(h, "TILEID", o.tile, "tile", e);
    if (st == SPX_OK)
        st = spx_cards_set_double(h, "EXPTIME", o.bias ? 0 : o.exptime, "[s] exposure time", e);
    if (st == SPX_OK && o.mjd > 0)
        st = spx_cards_set_double(h, "MJD-OBS", o.mjd, "[d] start of the exposure, UTC", e);
    if (st == SPX_OK && o.mjd > 0)
        st = spx_site_to_header(&c->site, h, e);
    if (st == SPX_OK)
        st = spx_cards_set_double(h, "RDNOISE", o.readnoise, "[electron] read noise", e);
    if (st == SPX_OK)
        st = spx_cards_set_string(h, "BUNIT", "electron", NULL, e);
    if (st == SPX_OK)
        st = spx_cards_set_string(h, "FLAVOR",
                                  o.bias                                 ? "bias"
                                  : o.dark                               ? "dark"
                                  : c->raw_options.uniform > 0 || o.flat ? "flat"
                                  : o.arc != NULL                        ? "arc"
                                                                         : "science",
                                  NULL, e);
    if (st == SPX_OK && (o.flat || o.arc != NULL))
        st = spx_cards_set_string(h, "OBSTYPE", o.flat ? "FLAT" : "ARC", NULL, e);
    if (st == SPX_OK && o.arc != NULL)
        st = spx_cards_set_string(h, "LAMPS", o.arc, "arc lamps", e);
    if (st == SPX_OK)
        st = spx_cards_set_int(h, "SIMSEED", o.seed, "this is a simulation, with this seed", e);
    return st;
}

/* ---- output ---- */

static int ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

static spx_status write_all(spx_run *s, spx_sim_scene *c, spx_err *e)
{
    const char *out = s->common.output;
    const int fits = o.format == SPX_SIM_FORMAT_FITS || (o.format == SPX_SIM_FORMAT_AUTO && ends_with(out, ".fits"));
    spx_tmpfile *tmp;
    hid_t file;
    spx_status st = SPX_OK;
    if (o.truth != NULL) {
        st = spx_run_side_output(s, o.truth, "truth", &file, e);
        if (st == SPX_OK)
            st = spx_sim_scene_write_truth(file, c, e);
    }
    if (st == SPX_OK && o.psf_output != NULL && (st = spx_run_tmpfile(s, o.psf_output, &tmp, e)) == SPX_OK) {
        spx_fits_out f = {.fd = tmp->fd, .name = o.psf_output};
        st = spx_psf_write_fits(&f, &c->psf, e);
    }
    if (st == SPX_OK && fits && (st = spx_run_tmpfile(s, NULL, &tmp, e)) == SPX_OK) {
        spx_fits_out f = {.fd = tmp->fd, .name = strcmp(out, "-") == 0 ? "standard output" : out};
        st = o.raw != NULL ? spx_sim_raw_write_fits(&o, c, &f, e) : spx_image_write_fits(&f, &c->image, e);
    } else if (st == SPX_OK && (st = spx_run_output(s, o.raw != NULL ? "raw" : "image", &file, e)) == SPX_OK) {
        st = o.raw != NULL ? spx_sim_raw_write(&o, c, file, e) : spx_image_write(file, &c->image, e);
        if (st == SPX_OK)
            st = spx_psf_write(file, &c->psf, e);
    }
    return st == SPX_OK ? spx_run_commit(s, e) : st;
}

static spx_status distinct_outputs(const spx_run *s, spx_err *e)
{
    const char *name[] = {s->common.output, o.truth, o.psf_output};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < i; k++)
            if (name[i] != NULL && name[k] != NULL && strcmp(name[i], name[k]) == 0)
                return spx_fail(e, SPX_EUSAGE, "%s: is named as two outputs: give two names", name[i]);
    return SPX_OK;
}

static spx_status run_exposure(spx_run *s, spx_err *e)
{
    spx_sim_scene c = {0};
    spx_status st = spx_run_need_output(s, e);
    if (st == SPX_OK)
        st = distinct_outputs(s, e);
    if (st == SPX_OK && o.site != NULL && !o.has_mjd)
        st = spx_fail(e, SPX_EUSAGE, "--site goes with --mjd only");
    if (st == SPX_OK && o.mjd > 0)
        st = spx_site_parse(o.site != NULL ? o.site : "kpno", &c.site, e);
    if (st == SPX_OK && o.raw == NULL && (o.bias || o.dark))
        st = spx_fail(e, SPX_EUSAGE, "--%s goes with --raw only", o.bias ? "bias" : "dark");
    if (st == SPX_OK && o.axis.n > 0)
        st = spx_fail(e, SPX_EUSAGE, "--axis is for --library: stars of an exposure are drawn from --teff MIN:MAX ...");
    spx_run_step(s, "read");
    if (st == SPX_OK)
        st = o.flat || o.arc != NULL ? spx_sim_scene_lamp(&o, s, &c, e)
             : s->ninput > 0         ? spx_sim_scene_read(&o, s, &c, e)
                                     : spx_sim_scene_draw(&o, s, &c, e);
    if (st == SPX_OK)
        st = spx_sim_scene_light(&o, s, &c, e);
    if (st == SPX_OK)
        st = spx_sim_scene_expose(&o, s, &c, e);
    if (st == SPX_OK)
        st = make_header(&c, e);
    if (st == SPX_OK)
        st = spx_target_fibermap(c.nspec, c.target, c.first, c.psf.nspec, &c.image.fibermap, e);
    if (st == SPX_OK)
        st = spx_target_truth(c.nspec, c.target, c.first, c.targets_drawn, c.targets_drawn && o.models != NULL,
                              &c.truth, e);
    if (st == SPX_OK)
        st = spx_sim_scene_tables(&o, &c, e);
    spx_run_step(s, "write");
    if (st == SPX_OK)
        st = write_all(s, &c, e);
    spx_sim_scene_free(&c);
    return st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    return o.library != NULL ? spx_sim_library(&o, s, e) : run_exposure(s, e);
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "specx-sim",
                                        .summary = "simulate an exposure whose truth is known, or a star library",
                                        .usage = "[OPTION...] [SPECTRA]",
                                        .example = "specx-sim --fibers 8 --truth truth.h5 -o image.h5",
                                        .options = options,
                                        .flags = SPX_IN_OPTIONAL | SPX_OUT_LATE,
                                        .run = run};
    spx_err_options(spx_kernel_options);
    return spx_main(&program, argc, argv);
}
