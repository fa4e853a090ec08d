/* specx-sim: simulate an exposure whose truth is known, or write a synthetic star library. */
#include <stdio.h>
#include <string.h>

#include "app/main.h"
#include "base/parse.h"
#include "convert/ccd.h"
#include "convert/spectrum/text.h"
#include "convert/starlib.h"
#include "h5/file.h"
#include "h5/table.h"
#include "products/image_h5.h"
#include "products/library_h5.h"
#include "products/psf_h5.h"
#include "products/site.h"
#include "products/spectra_h5.h"
#include "products/target.h"
#include "products/truth_h5.h"
#include "sim/sim.h"

typedef enum { BY_NAME, HDF5, FITS } output_format;

static struct {
    int arm; /* 'b', 'r', 'z' */
    const char *psf, *fibers, *models, *truth, *psf_output, *library, *wavelength;
    output_format format;
    spx_sim_ivar ivar;
    const char *teff, *logg, *feh, *alpha, *velocity, *vsini, *mag, *snr, *gap, *site;
    spx_opt_list axis;
    long sky_fibers, seed, badcolumns, saturated, nans, expid;
    double step, exptime, readnoise, fullwell, cosmics, mjd;
    int sky, noise, has_mjd;
} o = {.arm = 'r',
       .fibers = NULL,
       .format = BY_NAME,
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
       .sky = 1,
       .noise = 1};

static const spx_opt options[] = {
    SPX_HEADING("What is simulated"),
    SPX_OPTION(CHOICE, "arm", 'a', NULL, o.arm, "Built-in camera",
               .choices = SPX_CHOICES({"b", 'b'}, {"r", 'r'}, {"z", 'z'})),
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
    SPX_OPTION(INT, "sky-fibers", 0, "N", o.sky_fibers, "Fibres that see the sky only; -1: one in five", .min = -1,
               .max = 5000),
    SPX_OPTION(FLAG, "sky", 0, NULL, o.sky, "No light of the night sky. Without it, every fibre has it", .no = 1),
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
    SPX_OPTION(INT, "bad-columns", 0, "N", o.badcolumns, "Bad columns", .min = 0, .max = 1000),
    SPX_OPTION(STRING, "gap", 0, "FIRST:LAST", o.gap, "Rows of an amplifier gap, without LAST"),
    SPX_OPTION(INT, "saturated", 0, "N", o.saturated, "Saturated blocks of 8 x 24 pixels", .min = 0, .max = 1000),
    SPX_OPTION(INT, "nans", 0, "N", o.nans, "Pixels that are NaN and masked", .min = 0, .max = 1e6),
    SPX_OPTION(CHOICE, "ivar", 0, NULL, o.ivar, "Variance from the noise-free model, or from the noisy data",
               .choices = SPX_CHOICES({"model", SPX_SIM_IVAR_MODEL}, {"data", SPX_SIM_IVAR_DATA})),
    SPX_OPTION(INT, "expid", 0, "N", o.expid, "Exposure number in the header", .min = 0, .max = 99999999),
    SPX_HEADING("Output"),
    SPX_OPTION(CHOICE, "format", 0, NULL, o.format,
               "HDF5, or a DESI preproc file; auto: by the name of the output, *.fits",
               .choices = SPX_CHOICES({"auto", BY_NAME}, {"hdf5", HDF5}, {"fits", FITS})),
    SPX_OPTION(STRING, "psf-output", 0, "FILE", o.psf_output, "Write the PSF as a DESI PSF file too"),
    SPX_OPTION(STRING, "truth", 0, "FILE", o.truth, "Write what was put in (HDF5)"),
    SPX_HEADING("Star library"),
    SPX_OPTION(STRING, "library", 0, "DIR", o.library,
               "Write a library of the built-in stars in PHOENIX layout, not an exposure. It has a grid of parameters"),
    SPX_OPTION(LIST, "axis", 0, "NAME=V,V...", o.axis, "Values of teff, logg, feh or alpha of that grid; repeatable"),
    {0}};
/* ---- options ---- */

static spx_status range(const char *text, const char *what, double out[2], spx_err *e)
{
    size_t n;
    spx_status st = spx_parse_doubles(text, ':', what, "a number or MIN:MAX", 2, out, &n, e);
    if (st == SPX_OK && n == 1)
        out[1] = out[0];
    return st;
}

/* FIRST:LAST, or one number that is LAST; whole numbers from 0 on. */
static spx_status interval(const char *text, const char *what, size_t *first, size_t *last, spx_err *e)
{
    double v[2];
    size_t n;
    spx_status st = spx_parse_doubles(text, ':', what, "FIRST:LAST", 2, v, &n, e);
    if (st != SPX_OK)
        return st;
    double a = n == 1 ? 0 : v[0], b = v[n - 1];
    if (!(a >= 0 && b > a && b < 1e9) || a != (double)(size_t)a || b != (double)(size_t)b)
        return spx_fail(e, SPX_EUSAGE, "%s: '%s' should be FIRST:LAST, whole numbers, FIRST below LAST", what, text);
    *first = (size_t)a;
    *last = (size_t)b;
    return SPX_OK;
}

/* MIN,MAX; both 0 without the option. */
static spx_status wavelength_range(double w[2], spx_err *e)
{
    size_t n = 2;
    w[0] = w[1] = 0;
    spx_status st =
        o.wavelength == NULL ? SPX_OK : spx_parse_doubles(o.wavelength, ',', "--wavelength", "MIN,MAX", 2, w, &n, e);
    if (st == SPX_OK && (n != 2 || (o.wavelength != NULL && !(w[0] > 0 && w[1] > w[0]))))
        st = spx_fail(e, SPX_EUSAGE, "--wavelength: '%s' should be MIN,MAX with MIN below MAX", o.wavelength);
    return st;
}

static spx_status target_ranges(size_t nspec, spx_sim_ranges *r, spx_err *e)
{
    double snr[2];
    const struct {
        const char *text, *what;
        double *out;
    } all[] = {{o.teff, "--teff", r->teff},    {o.logg, "--logg", r->logg},      {o.feh, "--feh", r->feh},
               {o.alpha, "--alpha", r->alpha}, {o.velocity, "--velocity", r->v}, {o.vsini, "--vsini", r->vsini},
               {o.mag, "--mag", r->mag}};
    r->seed = (uint64_t)o.seed;
    r->nsky = o.sky_fibers < 0 ? nspec / 5 : (size_t)o.sky_fibers;
    spx_status st = SPX_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && st == SPX_OK; i++)
        st = range(all[i].text, all[i].what, all[i].out, e);
    if (st == SPX_OK && o.snr != NULL && (st = range(o.snr, "--snr", snr, e)) == SPX_OK)
        for (int i = 0; i < 2 && st == SPX_OK; i++) /* bright is small */
            st = spx_sim_magnitude(snr[1 - i], o.exptime, o.readnoise, o.sky, &r->mag[i], e);
    return st;
}

/* ---- the scene: what falls on the CCD ---- */

typedef struct {
    spx_psf psf;
    char arm;
    size_t first, nspec, nwave; /* lit rows of the PSF; samples */
    int32_t *fiber;
    spx_target *target, *seen; /* true, and as seen from the moving Earth */
    spx_site site;
    int drawn; /* targets are stars whose parameters are known */
    double *wavelength, *flux, *sky;
    spx_table *truth;
    spx_image image;
} scene;

static void scene_free(scene *c)
{
    spx_psf_free(&c->psf);
    spx_image_free(&c->image);
    spx_table_free(c->truth);
    spx_free(c->fiber);
    spx_free(c->target);
    spx_free(c->seen);
    spx_free(c->wavelength);
    spx_free(c->flux);
    spx_free(c->sky);
}

/* --psf FILE: HDF5 or FITS. */
static spx_status read_psf(spx_run *s, spx_psf *psf, spx_err *e)
{
    spx_input *in;
    spx_err no_hdf5 = {0};
    spx_status st = spx_run_extra_input(s, o.psf, &in, &no_hdf5);
    if (st == SPX_OK)
        return spx_psf_read(in->file, psf, e);
    if (st != SPX_EINPUT || strcmp(o.psf, "-") == 0)
        return spx_fail(e, st, "%s", no_hdf5.msg);
    st = spx_run_foreign_input(s, o.psf, e);
    return st == SPX_OK ? spx_psf_read_fits(o.psf, psf, e) : st;
}

/* Camera and lit fibres. `given` is the number of input spectra, 0: none. */
static spx_status make_camera(spx_run *s, size_t given, scene *c, spx_err *e)
{
    double w[2];
    size_t last = given > 0 ? given : 25;
    spx_status st = wavelength_range(w, e);
    if (st == SPX_OK && o.fibers != NULL)
        st = interval(o.fibers, "--fibers", &c->first, &last, e);
    if (st != SPX_OK)
        return st;
    if (o.psf == NULL)
        st = spx_sim_psf((char)o.arm, last, w[0], w[1], &c->psf, e);
    else
        st = read_psf(s, &c->psf, e);
    if (st != SPX_OK)
        return st;
    if (o.psf != NULL && o.fibers == NULL && given == 0)
        last = c->psf.nspec;
    if (last > c->psf.nspec)
        return spx_fail(e, SPX_EUSAGE, "%zu fibres are wanted, the PSF has %zu: use --fibers", last, c->psf.nspec);
    c->nspec = last - c->first;
    if (given > 0 && c->nspec != given)
        return spx_fail(e, SPX_EUSAGE, "%zu spectra for %zu fibres: give as many fibres with --fibers", given,
                        c->nspec);
    if (c->psf.npix_x == 0 || c->psf.npix_y == 0)
        return spx_fail(e, SPX_EINPUT, "%s: does not say how large the CCD is", o.psf);
    c->arm = c->psf.camera[0] != '\0' ? c->psf.camera[0] : (char)o.arm;
    c->fiber = spx_alloc(c->nspec, sizeof *c->fiber, e);
    c->target = spx_alloc(c->nspec, sizeof *c->target, e);
    c->seen = spx_alloc(c->nspec, sizeof *c->seen, e);
    if (c->fiber == NULL || c->target == NULL || c->seen == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < c->nspec; i++)
        c->fiber[i] = (int32_t)(c->first + i);
    return SPX_OK;
}

/* Fine grid over what the camera sees, or the part of it that is wanted. */
static spx_status make_grid(scene *c, spx_err *e)
{
    double w[2];
    spx_status st = wavelength_range(w, e);
    int part = o.psf != NULL && o.wavelength != NULL;
    double lo = part ? w[0] : c->psf.x.wmin, hi = part ? w[1] : c->psf.x.wmax;
    c->nwave = spx_sim_grid_size(lo, hi, o.step);
    if (st == SPX_OK && c->nwave < 2)
        st = spx_fail(e, SPX_EUSAGE, "steps of %g Angstrom are too long for %g to %g: give a smaller --step", o.step,
                      lo, hi);
    if (st != SPX_OK)
        return st;
    c->wavelength = spx_alloc(c->nwave, sizeof *c->wavelength, e);
    c->flux = spx_alloc2(c->nspec, c->nwave, sizeof *c->flux, e);
    if (c->wavelength == NULL || c->flux == NULL)
        return SPX_EIO;
    spx_sim_grid(lo, o.step, c->nwave, c->wavelength);
    return SPX_OK;
}

/* Targets as they are seen. */
static spx_status see(scene *c, spx_err *e)
{
    return spx_target_seen(c->nspec, c->target, o.mjd > 0 ? &c->site : NULL, o.mjd, o.exptime, c->seen, e);
}

/* Draw from the members of a library: only rows that are drawn are read. */
static spx_status library_flux(spx_run *s, spx_sim_ranges *r, scene *c, double *norm, spx_err *e)
{
    spx_library lib = {0};
    spx_input *in;
    float *rows = NULL;
    spx_status st = spx_run_extra_input(s, o.models, &in, e);
    if (st == SPX_OK)
        st = spx_library_read(in->file, &lib, e);
    r->nlibrary = lib.ntemp;
    if (st == SPX_OK)
        st = spx_sim_draw(r, c->nspec, c->target, e);
    if (st == SPX_OK && (rows = spx_alloc2(c->nspec, lib.nwave, sizeof *rows, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < c->nspec && st == SPX_OK; i++) {
        spx_target *t = c->target + i;
        if (t->sky)
            continue;
        st = spx_library_read_flux(in->file, &lib, t->member, 1, rows + i * lib.nwave, e);
        const struct {
            const char *name;
            double *value;
        } par[] = {{"teff", &t->teff}, {"logg", &t->logg}, {"feh", &t->feh}, {"alpha", &t->alpha}};
        for (size_t k = 0; k < sizeof par / sizeof *par; k++) {
            *par[k].value = 0;
            for (size_t j = 0; j < lib.npar; j++)
                if (strcmp(lib.parname[j], par[k].name) == 0)
                    *par[k].value = lib.params[t->member * lib.npar + j];
        }
    }
    if (st == SPX_OK)
        st = see(c, e);
    if (st == SPX_OK) {
        spx_progress *p = spx_progress_start(s->common.progress, "stars", "spectra", c->nspec);
        st = spx_sim_members(c->nspec, c->seen, lib.nwave, lib.wavelength, lib.medium == SPX_AIR, rows, c->nwave,
                             c->wavelength, c->flux, norm, p, e);
        spx_progress_end(p);
    }
    spx_free(rows);
    spx_library_free(&lib);
    return st == SPX_OK ? st : spx_err_context(e, "%s", o.models);
}

static spx_status draw_stars(spx_run *s, scene *c, spx_err *e)
{
    spx_sim_ranges r = {0};
    double *norm = NULL;
    spx_status st = make_camera(s, 0, c, e);
    if (st == SPX_OK)
        st = make_grid(c, e);
    if (st == SPX_OK)
        st = target_ranges(c->nspec, &r, e);
    if (st == SPX_OK && (norm = spx_alloc(c->nspec, sizeof *norm, e)) == NULL)
        st = SPX_EIO;
    spx_run_step(s, "stars");
    if (st == SPX_OK && o.models != NULL) {
        st = library_flux(s, &r, c, norm, e);
    } else if (st == SPX_OK && (st = spx_sim_draw(&r, c->nspec, c->target, e)) == SPX_OK &&
               (st = see(c, e)) == SPX_OK) {
        spx_progress *p = spx_progress_start(s->common.progress, "stars", "spectra", c->nspec);
        st = spx_sim_stars(c->nspec, c->seen, c->nwave, c->wavelength, c->flux, norm, p, e);
        spx_progress_end(p);
    }
    if (st == SPX_OK)
        st = spx_sim_electrons(c->nspec, c->target, norm, c->arm, o.exptime, c->nwave, c->wavelength, c->flux, e);
    c->drawn = 1;
    spx_free(norm);
    return st;
}

/* Spectra of the input: a spectra or frame block, or a list of text files. */
static spx_status take_spectra(spx_run *s, scene *c, spx_err *e)
{
    spx_spectra in = {0};
    spx_input *file;
    spx_err no_hdf5 = {0};
    const char name[] = {(char)o.arm, '\0'};
    size_t arm = 0;
    spx_status st;
    if (s->ninput > 1)
        return spx_fail(e, SPX_EUSAGE, "%s: one file of spectra at most: make a list of several", s->input[1]);
    if (spx_run_input(s, 0, &file, &no_hdf5) == SPX_OK)
        st = spx_spectra_read(file->file, 0, &in, e);
    else if (no_hdf5.code != SPX_EINPUT || strcmp(s->input[0], "-") == 0)
        st = spx_fail(e, no_hdf5.code, "%s", no_hdf5.msg);
    else if ((st = spx_run_foreign_input(s, s->input[0], e)) == SPX_OK)
        st = spx_textspec_read(s->input[0], name, &in, e);
    if (st == SPX_OK)
        st = make_camera(s, in.nspec, c, e);
    while (st == SPX_OK && arm < in.narm && in.arm[arm].name[0] != c->arm)
        arm++;
    if (st == SPX_OK && arm == in.narm && in.narm > 1)
        st = spx_fail(e, SPX_EINPUT, "%s: has no arm %c", s->input[0], c->arm);
    const spx_sim_ranges plain = {.seed = (uint64_t)o.seed, .teff = {5000, 5000}};
    if (st == SPX_OK)
        st = spx_sim_draw(&plain, c->nspec, c->target, e);
    if (st == SPX_OK && in.fibermap != NULL)
        st = spx_target_take(in.fibermap, c->nspec, c->target, e);
    if (st == SPX_OK) { /* the arrays change hands */
        spx_arm *a = &in.arm[arm < in.narm ? arm : 0];
        c->nwave = a->nwave;
        c->wavelength = a->wavelength;
        c->flux = a->flux;
        a->wavelength = a->flux = NULL;
    }
    spx_spectra_free(&in);
    return st;
}

static spx_status expose(spx_run *s, scene *c, spx_err *e)
{
    spx_sim_noise n = {.seed = (uint64_t)o.seed,
                       .camera = c->arm,
                       .photon_noise = o.noise,
                       .readnoise = o.readnoise,
                       .fullwell = o.fullwell,
                       .cosmics = o.cosmics,
                       .badcolumns = (size_t)o.badcolumns,
                       .blocks = (size_t)o.saturated,
                       .nans = (size_t)o.nans,
                       .ivar = o.ivar};
    size_t ny = c->psf.npix_y, nx = c->psf.npix_x, end;
    spx_status st = o.gap == NULL ? SPX_OK : interval(o.gap, "--gap", &n.gap_row, &end, e);
    if (st == SPX_OK && o.gap != NULL && n.gap_row >= ny)
        st = spx_fail(e, SPX_EUSAGE, "--gap: the CCD has rows 0 to %zu only, not %zu", ny - 1, n.gap_row);
    if (st == SPX_OK && o.gap != NULL)
        n.gap = end - n.gap_row;
    if (st == SPX_OK && o.sky) {
        if ((c->sky = spx_alloc(c->nwave, sizeof *c->sky, e)) == NULL)
            st = SPX_EIO;
        else if ((st = spx_sim_sky(c->arm, o.exptime, c->nwave, c->wavelength, c->sky, e)) == SPX_OK)
            spx_sim_add_sky(c->nspec, c->nwave, c->sky, c->flux);
    }
    double *model = st == SPX_OK ? spx_alloc2(ny, nx, sizeof *model, e) : NULL;
    if (st == SPX_OK && model == NULL)
        st = SPX_EIO;
    spx_run_step(s, "project");
    if (st == SPX_OK) {
        spx_progress *p = spx_progress_start(s->common.progress, "project", "rows", ny);
        st = spx_sim_project(&c->psf, c->nspec, c->fiber, c->nwave, c->wavelength, c->flux, ny, nx, model, p, e);
        spx_progress_end(p);
    }
    spx_run_step(s, "expose");
    if (st == SPX_OK)
        st = spx_sim_expose(ny, nx, model, &n, &c->image, e);
    spx_free(model);
    return st;
}

/* ---- what goes with the image ---- */

static spx_status make_header(scene *c, spx_err *e)
{
    spx_cards *h = &c->image.header;
    char camera[] = {c->arm, '0', '\0'};
    (void)snprintf(c->image.camera, sizeof c->image.camera, "%s", c->psf.camera[0] != '\0' ? c->psf.camera : camera);
    spx_status st = spx_cards_set_string(h, "CAMERA", c->image.camera, "camera", e);
    if (st == SPX_OK)
        st = spx_cards_set_int(h, "EXPID", o.expid, "exposure number", e);
    if (st == SPX_OK)
        st = spx_cards_set_double(h, "EXPTIME", o.exptime, "[s] exposure time", e);
    if (st == SPX_OK && o.mjd > 0)
        st = spx_cards_set_double(h, "MJD-OBS", o.mjd, "[d] start of the exposure, UTC", e);
    if (st == SPX_OK && o.mjd > 0)
        st = spx_site_to_header(&c->site, h, e);
    if (st == SPX_OK)
        st = spx_cards_set_double(h, "RDNOISE", o.readnoise, "[electron] read noise", e);
    if (st == SPX_OK)
        st = spx_cards_set_string(h, "BUNIT", "electron", NULL, e);
    if (st == SPX_OK)
        st = spx_cards_set_string(h, "FLAVOR", "science", NULL, e);
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

static spx_status write_all(spx_run *s, const scene *c, spx_err *e)
{
    const char *out = s->common.output;
    const int fits = o.format == FITS || (o.format == BY_NAME && ends_with(out, ".fits"));
    const spx_truth truth = {c->nspec, c->nwave, c->wavelength, c->flux, c->sky, c->truth};
    spx_tmpfile *tmp;
    hid_t file;
    spx_status st = SPX_OK;
    if (o.truth != NULL) {
        st = spx_run_side_output(s, o.truth, "truth", &file, e);
        if (st == SPX_OK)
            st = spx_truth_write(file, &truth, e);
    }
    if (st == SPX_OK && o.psf_output != NULL && (st = spx_run_tmpfile(s, o.psf_output, &tmp, e)) == SPX_OK) {
        spx_fits_out f = {.fd = tmp->fd, .name = o.psf_output};
        st = spx_psf_write_fits(&f, &c->psf, e);
    }
    if (st == SPX_OK && fits && (st = spx_run_tmpfile(s, NULL, &tmp, e)) == SPX_OK) {
        spx_fits_out f = {.fd = tmp->fd, .name = strcmp(out, "-") == 0 ? "standard output" : out};
        st = spx_image_write_fits(&f, &c->image, e);
    } else if (st == SPX_OK && (st = spx_run_output(s, "image", &file, e)) == SPX_OK) {
        st = spx_image_write(file, &c->image, e);
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
    scene c = {0};
    spx_status st = spx_run_need_output(s, e);
    if (st == SPX_OK)
        st = distinct_outputs(s, e);
    if (st == SPX_OK && o.site != NULL && !o.has_mjd)
        st = spx_fail(e, SPX_EUSAGE, "--site goes with --mjd only");
    if (st == SPX_OK && o.mjd > 0)
        st = spx_site_parse(o.site != NULL ? o.site : "kpno", &c.site, e);
    if (st == SPX_OK && o.axis.n > 0)
        st = spx_fail(e, SPX_EUSAGE, "--axis is for --library: stars of an exposure are drawn from --teff MIN:MAX ...");
    spx_run_step(s, "read");
    if (st == SPX_OK)
        st = s->ninput > 0 ? take_spectra(s, &c, e) : draw_stars(s, &c, e);
    if (st == SPX_OK)
        st = expose(s, &c, e);
    if (st == SPX_OK)
        st = make_header(&c, e);
    if (st == SPX_OK)
        st = spx_target_fibermap(c.nspec, c.target, c.first, c.psf.nspec, &c.image.fibermap, e);
    if (st == SPX_OK)
        st = spx_target_truth(c.nspec, c.target, c.first, c.drawn, c.drawn && o.models != NULL, &c.truth, e);
    spx_run_step(s, "write");
    if (st == SPX_OK)
        st = write_all(s, &c, e);
    scene_free(&c);
    return st;
}

/* ---- star library ---- */

enum { NAXIS = 4, MAX_NODE = 200, BATCH = 32 };

typedef struct {
    const char *name;
    size_t n;
    double v[MAX_NODE];
} axis;

static spx_status read_axes(axis a[NAXIS], spx_err *e)
{
    for (size_t i = 0; i < o.axis.n; i++) {
        const char *text = o.axis.value[i], *eq = strchr(text, '=');
        int k = 0;
        while (k < NAXIS && (eq == NULL || strlen(a[k].name) != (size_t)(eq - text) ||
                             strncmp(a[k].name, text, (size_t)(eq - text)) != 0))
            k++;
        if (k == NAXIS)
            return spx_fail(e, SPX_EUSAGE, "--axis: '%s' should be teff=, logg=, feh= or alpha= and values", text);
        spx_status st = spx_parse_doubles(eq + 1, ',', "--axis", "NAME=V,V...", MAX_NODE, a[k].v, &a[k].n, e);
        if (st != SPX_OK)
            return st;
    }
    return SPX_OK;
}

static spx_status run_library(spx_run *s, spx_err *e)
{
    axis a[NAXIS] = {{"teff", 6, {4500, 5000, 5500, 6000, 6500, 7000}},
                     {"logg", 5, {1, 2, 3, 4, 5}},
                     {"feh", 6, {-2, -1.5, -1, -0.5, 0, 0.5}},
                     {"alpha", 2, {0, 0.4}}};
    double w[2];
    spx_starlib lib = {0};
    spx_target star[BATCH] = {{0}};
    spx_status st = s->ninput == 0 && s->common.output == NULL
                        ? wavelength_range(w, e)
                        : spx_fail(e, SPX_EUSAGE, "--library takes no input and no -o: the folder is its value");
    if (st == SPX_OK)
        st = read_axes(a, e);
    if (o.wavelength == NULL) {
        w[0] = 3500; /* the arms, with room for 1000 km/s and a line-spread function */
        w[1] = 9950;
    }
    size_t total = a[0].n * a[1].n * a[2].n * a[3].n, n = spx_sim_grid_size(w[0], w[1], o.step);
    if (st == SPX_OK && n < 2)
        st = spx_fail(e, SPX_EUSAGE, "steps of %g Angstrom do not fit into %g to %g", o.step, w[0], w[1]);
    if (st == SPX_OK)
        st = spx_starlib_open(&lib, o.library, s->common.force, e);
    double *wave = st == SPX_OK ? spx_alloc(n, sizeof *wave, e) : NULL;
    double *flux = st == SPX_OK ? spx_alloc2(BATCH, n, sizeof *flux, e) : NULL;
    float *row = st == SPX_OK ? spx_alloc(n, sizeof *row, e) : NULL;
    if (st == SPX_OK && (wave == NULL || flux == NULL || row == NULL))
        st = SPX_EIO;
    if (st == SPX_OK) {
        spx_sim_grid(w[0], o.step, n, wave);
        st = spx_starlib_wavelength(&lib, n, wave, e);
    }
    spx_progress *p = spx_progress_start(s->common.progress, "library", "spectra", total);
    for (size_t i = 0; i < total && st == SPX_OK; i += BATCH) {
        size_t batch = total - i < BATCH ? total - i : BATCH;
        for (size_t k = 0; k < batch; k++) {
            size_t j = i + k;
            star[k].alpha = a[3].v[j % a[3].n];
            star[k].feh = a[2].v[(j /= a[3].n) % a[2].n];
            star[k].logg = a[1].v[(j /= a[2].n) % a[1].n];
            star[k].teff = a[0].v[j / a[1].n];
        }
        st = spx_sim_stars(batch, star, n, wave, flux, NULL, p, e);
        for (size_t k = 0; k < batch && st == SPX_OK; k++) {
            for (size_t j = 0; j < n; j++)
                row[j] = (float)flux[k * n + j];
            st = spx_starlib_add(&lib, star[k].teff, star[k].logg, star[k].feh, star[k].alpha, n, row, e);
        }
    }
    spx_progress_end(p);
    if (st == SPX_OK)
        st = spx_starlib_commit(&lib, e);
    if (st == SPX_OK)
        spx_note("%s: %zu spectra of %zu samples", o.library, lib.n, n);
    spx_starlib_discard(&lib);
    spx_free(wave);
    spx_free(flux);
    spx_free(row);
    return st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    return o.library != NULL ? run_library(s, e) : run_exposure(s, e);
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
    return spx_main(&program, argc, argv);
}
