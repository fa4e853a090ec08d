#include "common/sim_scene.h"

#include <string.h>

#include "base/mem.h"
#include "common/psf_file.h"
#include "convert/spectrum/text.h"
#include "h5/file.h"
#include "products/library_h5.h"
#include "products/psf_h5.h"
#include "products/spectra_h5.h"
#include "sim/sim_lamp.h"

void spx_sim_scene_free(spx_sim_scene *c)
{
    spx_psf_free(&c->psf);
    spx_image_free(&c->image);
    spx_table_free(c->truth);
    spx_table_free(c->lines);
    spx_free(c->fiber);
    spx_free(c->target);
    spx_free(c->seen);
    spx_free(c->wavelength);
    spx_free(c->flux);
    spx_free(c->sky);
    spx_psf_free(&c->drawn);
    spx_sim_motion_free(&c->motion);
    spx_free(c->field);
    spx_free(c->sky_fiber);
    spx_free(c->transmission);
    spx_free(c->response);
    spx_free(c->amplifier);
    spx_free(c->hits);
    spx_free(c->throughput);
    spx_free(c->scatter);
    spx_free(c->shift_wave);
    spx_free(c->shift);
    spx_sim_raw_truth_free(&c->structure);
    spx_free(c->electrons);
    spx_raw_free(&c->raw);
    spx_layout_free(&c->layout);
}

/* Camera and lit fibres. `given` is the number of input spectra, 0: none. */
static spx_status make_camera(const spx_sim_args *o, spx_run *s, size_t given, spx_sim_scene *c, spx_err *e)
{
    double w[2];
    size_t last = given > 0 ? given : 25;
    spx_status st = spx_sim_args_wavelength(o, w, e);
    if (st == SPX_OK)
        st = spx_sim_args_fibers(o, &c->first, &last, e);
    if (st != SPX_OK)
        return st;
    spx_sim_camera camera;
    size_t *bundle;
    st = spx_sim_args_camera(o, &camera, &bundle, e);
    for (size_t k = 0; k < camera.nbundle && o->fibers == NULL && given == 0 && st == SPX_OK; k++)
        last = (k > 0 ? last : 0) + camera.bundle[k];
    if (st == SPX_OK && o->psf == NULL)
        st = spx_sim_psf_camera(&camera, (char)o->arm, last, w[0], w[1], &c->psf, e);
    else if (st == SPX_OK)
        st = spx_psf_file_read(s, o->psf, &c->psf, e);
    spx_free(bundle);
    if (st != SPX_OK)
        return st;
    if (o->psf == NULL)
        c->psf.camera[1] = (char)('0' + o->petal);
    if (o->psf != NULL && o->fibers == NULL && given == 0)
        last = c->psf.nspec;
    if (last > c->psf.nspec)
        return spx_fail_at(e, SPX_EUSAGE, o->psf, NULL, "use --fibers", "has %zu fibres, %zu are wanted", c->psf.nspec,
                           last);
    c->nspec = last - c->first;
    if (given > 0 && c->nspec != given)
        return spx_fail(e, SPX_EUSAGE, "%zu spectra for %zu fibres: give as many fibres with --fibers", given,
                        c->nspec);
    if (c->psf.npix_x == 0 || c->psf.npix_y == 0)
        return spx_fail_at(e, SPX_EINPUT, o->psf, "/psf", NULL, "does not say how large the CCD is");
    c->arm = c->psf.camera[0] != '\0' ? c->psf.camera[0] : (char)o->arm;
    c->fiber = spx_alloc(c->nspec, sizeof *c->fiber, e);
    c->target = spx_alloc(c->nspec, sizeof *c->target, e);
    c->seen = spx_alloc(c->nspec, sizeof *c->seen, e);
    if (c->fiber == NULL || c->target == NULL || c->seen == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < c->nspec; i++)
        c->fiber[i] = (int32_t)(c->first + i);
    return SPX_OK;
}

spx_status spx_sim_scene_psf_error(const spx_sim_args *o, spx_status st, spx_err *e)
{
    return st == SPX_EINPUT && o->psf != NULL ? spx_err_at(e, o->psf, NULL) : st;
}

/* Fine grid over what the camera sees, or the part of it that is wanted. */
static spx_status make_grid(const spx_sim_args *o, spx_sim_scene *c, spx_err *e)
{
    double w[2];
    spx_status st = spx_sim_args_wavelength(o, w, e);
    int part = o->psf != NULL && o->wavelength != NULL;
    double lo = part ? w[0] : c->psf.x.wmin, hi = part ? w[1] : c->psf.x.wmax;
    c->nwave = spx_sim_grid_size(lo, hi, o->step);
    if (st == SPX_OK && c->nwave < 2)
        st = spx_fail(e, SPX_EUSAGE, "steps of %g Angstrom are too long for %g to %g: give a smaller --step", o->step,
                      lo, hi);
    if (st != SPX_OK)
        return st;
    c->wavelength = spx_alloc(c->nwave, sizeof *c->wavelength, e);
    c->flux = spx_alloc2(c->nspec, c->nwave, sizeof *c->flux, e);
    if (c->wavelength == NULL || c->flux == NULL)
        return SPX_EIO;
    spx_sim_grid(lo, o->step, c->nwave, c->wavelength);
    return SPX_OK;
}

/* Targets as they are seen. */
static spx_status see(const spx_sim_args *o, spx_sim_scene *c, spx_err *e)
{
    return spx_target_observe(c->nspec, c->target, o->mjd > 0 ? &c->site : NULL, o->mjd, o->exptime, c->seen, e);
}

/* Draw from the members of a library: only rows that are drawn are read. */
static spx_status library_flux(const spx_sim_args *o, spx_run *s, spx_sim_ranges *r, spx_sim_scene *c, double *norm,
                               spx_err *e)
{
    spx_library lib = {0};
    spx_input *in;
    float *rows = NULL;
    spx_status st = spx_run_extra_input(s, o->models, &in, e);
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
        st = see(o, c, e);
    if (st == SPX_OK) {
        spx_progress *p = spx_progress_start(s->common.progress, "stars", "spectra", c->nspec);
        st = spx_sim_members(c->nspec, c->seen, lib.nwave, lib.wavelength, lib.medium == SPX_AIR, rows, c->nwave,
                             c->wavelength, c->flux, norm, p, e);
        spx_progress_end(p);
    }
    spx_free(rows);
    spx_library_free(&lib);
    return st == SPX_OK ? st : spx_err_context(e, "%s", o->models);
}

spx_status spx_sim_scene_draw(const spx_sim_args *o, spx_run *s, spx_sim_scene *c, spx_err *e)
{
    spx_sim_ranges r = {0};
    double *norm = NULL;
    spx_status st = make_camera(o, s, 0, c, e);
    if (st == SPX_OK)
        st = make_grid(o, c, e);
    if (st == SPX_OK)
        st = spx_sim_args_ranges(o, c->nspec, &r, e);
    if (st == SPX_OK && (norm = spx_alloc(c->nspec, sizeof *norm, e)) == NULL)
        st = SPX_EIO;
    spx_run_step(s, "stars");
    if (st == SPX_OK && o->models != NULL) {
        st = library_flux(o, s, &r, c, norm, e);
    } else if (st == SPX_OK && (st = spx_sim_draw(&r, c->nspec, c->target, e)) == SPX_OK &&
               (st = see(o, c, e)) == SPX_OK) {
        spx_progress *p = spx_progress_start(s->common.progress, "stars", "spectra", c->nspec);
        st = spx_sim_stars(c->nspec, c->seen, c->nwave, c->wavelength, c->flux, norm, p, e);
        spx_progress_end(p);
    }
    if (st == SPX_OK)
        st = spx_sim_electrons(c->nspec, c->target, norm, c->arm, o->exptime, c->nwave, c->wavelength, c->flux, e);
    c->targets_drawn = 1;
    spx_free(norm);
    return st;
}

/* Table of the lines of arc lamps. */
static spx_status make_lines(size_t n, const spx_sim_arc_line *line, spx_table **out, spx_err *e)
{
    enum { WIDTH = 3 };
    spx_table *t = *out = spx_table_new(n, e);
    double *wave = spx_alloc2(2, n, sizeof *wave, e), *electrons = wave + n;
    char *species = spx_alloc(n, WIDTH, e);
    spx_status st = t == NULL || wave == NULL || species == NULL ? SPX_EIO : SPX_OK;
    for (size_t k = 0; k < n && st == SPX_OK; k++) {
        wave[k] = line[k].wavelength;
        electrons[k] = line[k].electrons;
        memcpy(species + WIDTH * k, line[k].species, WIDTH);
    }
    if (st == SPX_OK)
        st = spx_table_add(t, "WAVELENGTH", H5T_NATIVE_DOUBLE, "Angstrom", wave, e);
    if (st == SPX_OK)
        st = spx_table_add(t, "ELECTRONS", H5T_NATIVE_DOUBLE, "electron", electrons, e);
    if (st == SPX_OK)
        st = spx_table_add_strings(t, "SPECIES", WIDTH, species, e);
    spx_free(wave);
    spx_free(species);
    return st;
}

/* Refuses lamps without a line, or whose brightest one brings less than an electron: the image would be dark. */
static spx_status see_lines(const spx_sim_args *o, const spx_sim_scene *c, size_t n, const spx_sim_arc_line *line,
                            spx_err *e)
{
    static const char remedy[] = "name lamps with lines there, or give other wavelengths ({wavelength})";
    const double lo = c->wavelength[0], hi = c->wavelength[c->nwave - 1];
    size_t best = 0;
    for (size_t k = 1; k < n; k++)
        best = line[k].electrons > line[best].electrons ? k : best;
    if (n == 0)
        return spx_fail_remedy(e, SPX_EUSAGE, remedy, "--arc %s: these lamps have no line between %g and %g Angstrom",
                               o->arc, lo, hi);
    if (line[best].electrons < 1)
        return spx_fail_remedy(
            e, SPX_EUSAGE, remedy,
            "--arc %s: arm %c sees no line of these lamps between %g and %g Angstrom: the brightest, "
            "%s %.3f, brings %.2g electrons",
            o->arc, c->arm, lo, hi, line[best].species, line[best].wavelength, line[best].electrons);
    return SPX_OK;
}

spx_status spx_sim_scene_lamp(const spx_sim_args *o, spx_run *s, spx_sim_scene *c, spx_err *e)
{
    unsigned lamps = 0;
    size_t nline = 0;
    spx_sim_arc_line *line = NULL;
    if (o->flat && o->arc != NULL)
        return spx_fail(e, SPX_EUSAGE, "--flat and --arc are two exposures: give one of them");
    if (s->ninput > 0 || o->models != NULL)
        return spx_fail(e, SPX_EUSAGE, "%s: a lamp takes no spectra of targets",
                        s->ninput > 0 ? s->input[0] : o->models);
    spx_status st = spx_sim_args_lamps(o, &lamps, e);
    if (st == SPX_OK)
        st = make_camera(o, s, 0, c, e);
    if (st == SPX_OK)
        st = make_grid(o, c, e);
    if (st != SPX_OK)
        return st;
    const double level = o->has_level ? o->lamp_level : o->flat ? 6000 : 1e5;
    if (o->flat)
        spx_sim_flat(c->arm, level, c->nwave, c->wavelength, c->flux);
    else
        st = spx_sim_arc(lamps, c->arm, level, spx_sim_args_noise_seed(o), c->nwave, c->wavelength, c->flux, &line,
                         &nline, e);
    if (st == SPX_OK && line != NULL)
        st = see_lines(o, c, nline, line, e);
    if (st == SPX_OK && line != NULL)
        st = make_lines(nline, line, &c->lines, e);
    for (size_t i = 0; i < c->nspec && st == SPX_OK; i++) {
        c->target[i] = (spx_target){.targetid = -1};
        memcpy(c->target[i].objtype, o->flat ? "FLT" : "ARC", sizeof c->target[i].objtype);
        if (i > 0)
            memcpy(c->flux + i * c->nwave, c->flux, c->nwave * sizeof *c->flux);
    }
    spx_free(line);
    return st;
}

spx_status spx_sim_scene_read(const spx_sim_args *o, spx_run *s, spx_sim_scene *c, spx_err *e)
{
    spx_spectra in = {0};
    spx_input *file;
    spx_err no_hdf5 = {0};
    const char name[] = {(char)o->arm, '\0'};
    char wanted[SPX_ARM_NAME];
    size_t arm = 0;
    spx_status st;
    if (s->ninput > 1)
        return spx_fail(e, SPX_EUSAGE, "%s: one file of spectra at most: make a list of several", s->input[1]);
    if (spx_run_input(s, 0, &file, &no_hdf5) == SPX_OK)
        st = spx_spectra_read(file->file, 0, &in, e);
    else if (no_hdf5.code != SPX_EINPUT || strcmp(s->input[0], "-") == 0)
        st = spx_err_pass(e, &no_hdf5);
    else if ((st = spx_run_foreign_input(s, s->input[0], e)) == SPX_OK)
        st = spx_textspec_read(s->input[0], name, &in, e);
    if (st == SPX_OK)
        st = make_camera(o, s, in.nspec, c, e);
    if (st == SPX_OK)
        spx_arm_of_camera(c->psf.camera[0] != '\0' ? c->psf.camera : name, wanted);
    for (char its[SPX_ARM_NAME]; st == SPX_OK && arm < in.narm; arm++) { /* arms may have numbers: b2 is b, too */
        spx_arm_of_camera(in.arm[arm].name, its);
        if (strcmp(its, wanted) == 0)
            break;
    }
    if (st == SPX_OK && arm == in.narm && in.narm > 1)
        st = spx_fail(e, SPX_EINPUT, "%s: has no arm %s", s->input[0], wanted);
    const spx_sim_ranges plain = {.seed = (uint64_t)o->seed, .teff = {5000, 5000}};
    if (st == SPX_OK)
        st = spx_sim_draw(&plain, c->nspec, c->target, e);
    if (st == SPX_OK && in.fibermap != NULL)
        st = spx_target_from_fibermap(in.fibermap, c->nspec, c->target, e);
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
