/* rvs-fit: radial velocities, rotation and parameters of stars, from templates and spectra. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/device.h"
#include "common/rvfit_options.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/table.h"
#include "products/rvfit_h5.h"
#include "products/spectra.h"
#include "products/templates_cut.h"
#include "products/templates_h5.h"
#include "run/catalogue_run.h"
#include "run/select.h"

/* Spectra that are fitted together. */
typedef enum { SINGLE, OF_TARGET, ALL } joint_spectra;

static struct {
    const char *templates, *arms, *vrange, *vsini_range, *rows, *targetid_file, *objtypes, *zbest, *start;
    spx_continuum continuum;
    spx_interpolator interpolator;
    joint_spectra joint;
    spx_opt_list map, fix, prior, targetid, wavelength;
    size_t max_device_mem;
    long npoly, reject, minexpid, maxexpid;
    double lsf_sigma, reject_sigma, minsn;
    int rotation, dichroic, resolution, all_fibers, model, ccf, zbest_select;
    int lsf_given, reject_sigma_given, minsn_given, minexpid_given, maxexpid_given;
} o = {.continuum = SPX_CONTINUUM_RBF,
       .interpolator = SPX_INTERPOLATE_AUTO,
       .joint = SINGLE,
       .npoly = 10,
       .lsf_sigma = 0.5,
       .reject_sigma = 5,
       .rotation = 1,
       .dichroic = 1,
       .model = 1};

static const spx_opt options[] = {
    SPX_OPTION(STRING, "templates", 't', "FILE", o.templates, "Templates, as rvs-template makes them"),
    SPX_OPTION(
        LIST, "map", 0, "ARM=SETUP", o.map,
        "Fit an arm of the spectra with this setup of the templates; repeatable. Without it, an arm is fitted with "
        "the setup of the same name, or a single arm with a single setup"),
    SPX_HEADING("Stars"),
    SPX_OPTION(STRING, "arms", 0, "ARM,...", o.arms, "Fit these arms only", .absent = "all"),
    SPX_OPTION(LIST, "wavelength", 'w', "[ARM:]MIN,MAX", o.wavelength,
               "Fit these wavelengths only, Angstrom, of all arms or of one; repeatable"),
    SPX_OPTION(STRING, "rows", 'r', "FIRST:LAST", o.rows, "Fit these spectra only, counted from 0, without LAST",
               .absent = "all"),
    SPX_OPTION(LIST, "targetid", 0, "ID", o.targetid, "Fit this target only; repeatable"),
    SPX_OPTION(STRING, "targetid-file", 0, "FILE", o.targetid_file,
               "Fit the targets of this text only, a TARGETID a line"),
    SPX_OPTION(DOUBLE, "minsn", 0, "S", o.minsn, "Fit spectra with a signal-to-noise ratio above this in some arm only",
               .given = &o.minsn_given, .no_default = 1),
    SPX_OPTION(INT, "minexpid", 0, "ID", o.minexpid, "Fit spectra of this and later exposures only",
               .given = &o.minexpid_given, .no_default = 1),
    SPX_OPTION(INT, "maxexpid", 0, "ID", o.maxexpid, "Fit spectra of this and earlier exposures only",
               .given = &o.maxexpid_given, .no_default = 1),
    SPX_OPTION(STRING, "objtypes", 0, "NAME,...", o.objtypes,
               "Fit spectra of these DESI_TARGET classes only, such as MWS. Each is a regular expression that the name "
               "of a bit "
               "begins with"),
    SPX_OPTION(
        STRING, "zbest", 0, "FILE", o.zbest,
        "Copy redshifts and types of this redshift file into the table. Redrock's file goes through fits2h5 first"),
    SPX_OPTION(
        FLAG, "zbest-select", 0, NULL, o.zbest_select,
        "Fit only what the redshift file calls a star, or slower than 1500 km/s. The file is that of --zbest, or in "
        "one with the spectra"),
    SPX_OPTION(FLAG, "all-fibers", 0, NULL, o.all_fibers,
               "Also fit fibres that the fibermap calls SKY or BAD, or of bad status"),
    SPX_OPTION(CHOICE, "joint", 0, NULL, o.joint,
               "Fit the spectra of a target, or all, together as exposures of one star",
               .choices = SPX_CHOICES({"no", SINGLE}, {"target", OF_TARGET}, {"all", ALL})),
    SPX_HEADING("Model"),
    SPX_OPTION(STRING, "vrange", 0, "MIN,MAX", o.vrange, "Velocities to search, km/s", .absent = "-1000,1000"),
    SPX_OPTION(STRING, "vsini-range", 0, "MIN,MAX", o.vsini_range, "Rotation velocities to search, km/s",
               .absent = "0,500"),
    SPX_OPTION(FLAG, "rotation", 0, NULL, o.rotation, "Fit no rotation", .no = 1),
    SPX_OPTION(LIST, "fix", 0, "NAME=VALUE", o.fix,
               "Hold v, vsini, or a parameter of the templates at a value; repeatable"),
    SPX_OPTION(LIST, "prior", 0, "NAME=MEAN,SIGMA", o.prior,
               "Gaussian prior on v, vsini, or a parameter of the templates; repeatable"),
    SPX_OPTION(INT, "npoly", 0, "N", o.npoly,
               "Functions of the continuum. Fewer suit a short range: 10 are made for a whole arm", .min = 1,
               .max = SPX_RVFIT_MAX_POLY),
    SPX_OPTION(CHOICE, "continuum", 0, NULL, o.continuum,
               "Form of the continuum: a parabola with Gaussians, or polynomials",
               .choices = SPX_CHOICES({"rbf", SPX_CONTINUUM_RBF}, {"chebyshev", SPX_CONTINUUM_CHEBYSHEV})),
    SPX_OPTION(CHOICE, "interpolator", 0, NULL, o.interpolator,
               "How to interpolate templates. In a regular grid, grid is multilinear and cubic smooth; simplex suits "
               "irregular "
               "libraries; nn is a trained network; auto takes cubic if there is a grid, else simplex",
               .choices = SPX_CHOICES({"auto", SPX_INTERPOLATE_AUTO}, {"grid", SPX_INTERPOLATE_GRID},
                                      {"cubic", SPX_INTERPOLATE_CUBIC}, {"simplex", SPX_INTERPOLATE_SIMPLEX},
                                      {"nn", SPX_INTERPOLATE_NN})),
    SPX_OPTION(FLAG, "dichroic", 0, NULL, o.dichroic, "Fit 4300-4450 Angstrom too, where DESI's dichroic is", .no = 1),
    SPX_OPTION(FLAG, "resolution-matrix", 0, NULL, o.resolution,
               "Multiply the model with each spectrum's own resolution matrix. Use templates with a narrow line-spread "
               "function then"),
    SPX_OPTION(DOUBLE, "lsf-sigma", 0, "ANGSTROM", o.lsf_sigma,
               "Sigma of the templates' line-spread function, taken out of that matrix", .min = 0, .max = 100,
               .given = &o.lsf_given),
    SPX_HEADING("Search"),
    SPX_OPTION(
        STRING, "start", 0, "FILE|grid", o.start,
        "Start from a former fit, or a grid of velocities and templates. Spectra that the former fit lacks start from "
        "the cross-correlation",
        .absent = "cross-correlation"),
    SPX_OPTION(INT, "reject", 0, "N", o.reject, "Mask pixels far from the model and fit again, up to N times", .min = 0,
               .max = 20),
    SPX_OPTION(DOUBLE, "reject-sigma", 0, "S", o.reject_sigma,
               "Pixels are far from the model beyond S times their error", .min = 1, .max = 1e6,
               .given = &o.reject_sigma_given),
    SPX_OPTION(FLAG, "model", 0, NULL, o.model, "Leave the best models out of the output", .no = 1),
    SPX_OPTION(FLAG, "ccf", 0, NULL, o.ccf, "Write the curves of the cross-correlation, one a spectrum and arm"),
    SPX_OPTION(BYTES, "max-device-mem", 0, "SIZE", o.max_device_mem, "Memory to use on each GPU, such as 4G",
               .absent = "what is free"),
    {0}};

/* ---- what to fit ---- */

/* All that a run works with. Stars are exposures first[k] ... first[k+1]-1 of row[], which are rows of the spectra. */
typedef struct {
    spx_run *stage;
    spx_backend backend;
    spx_templates templates;
    spx_spectra_parts spectra;
    const spx_setup *setup[SPX_MAX_ARM];
    spx_setup cut[SPX_MAX_ARM]; /* parts of setups, for arms that share one */
    spx_rvfit_options options;
    spx_rvfit_plan *plan; /* of all parts: */
    int planned;          /* by the backend, with the first of them */
    spx_redshifts redshifts;
    int joint;
    size_t nstar, nrow, *row, *first;
    size_t nq;
    double *start; /* [nstar][nq]; NULL: from the cross-correlation */
    hid_t out;
    spx_rvfit all; /* all stars, without models and curves */
    spx_progress *progress;
} fit_run;

/* Setups of the arms, by the names that these have in their files. */
static spx_status choose_setups(fit_run *r, spx_err *e)
{
    const spx_spectra *s = &r->spectra.all;
    const char *name[SPX_MAX_ARM];
    int left_out[SPX_MAX_ARM];
    for (size_t a = 0; a < s->narm; a++)
        name[a] = r->spectra.base[a];
    spx_status st =
        spx_rvfit_choose_setups(&r->templates, s->narm, name, o.map.n, o.map.value, o.arms, r->setup, left_out, e);
    for (size_t a = 0; a < s->narm && st == SPX_OK; a++) {
        if (r->setup[a] == NULL && !left_out[a])
            spx_warn("arm '%s' is left out: the templates have no setup of that name (--map %s=SETUP)", name[a],
                     name[a]);
        if (o.resolution && r->setup[a] != NULL && s->arm[a].ndiag == 0)
            st = spx_fail(e, SPX_EINPUT,
                          "arm '%s' of the spectra has no resolution matrix: fit without --resolution-matrix, or "
                          "without the arm (--arms)",
                          s->arm[a].name);
        if (r->nq == 0 && r->setup[a] != NULL)
            r->nq = 2 + r->setup[a]->npar;
    }
    return st;
}

/* Of the arms what --wavelength says; those that have nothing of what it says of all are left out. */
static spx_status choose_wavelengths(fit_run *r, spx_err *e)
{
    const spx_spectra *s = &r->spectra.all;
    const char *name[SPX_MAX_ARM];
    double range[SPX_MAX_ARM][2];
    spx_range_of chosen[SPX_MAX_ARM];
    size_t left_out = 0, fitted = 0;
    for (size_t a = 0; a < s->narm; a++)
        name[a] = r->spectra.base[a];
    spx_status st = spx_rvfit_choose_ranges(o.wavelength.n, o.wavelength.value, s->narm, name, range, chosen, e);
    for (size_t a = 0; a < s->narm && st == SPX_OK; a++) {
        const spx_arm *arm = &s->arm[a];
        const double first = arm->wavelength[0], last = arm->wavelength[arm->nwave - 1];
        const int fit = r->setup[a] != NULL;
        if (!fit && chosen[a] == SPX_RANGE_OF_ARM)
            return spx_fail(e, SPX_EUSAGE, "--wavelength: arm '%s' is not fitted", arm->name);
        if (fit && chosen[a] != SPX_RANGE_NONE &&
            spx_spectra_parts_cut(&r->spectra, a, range[a][0], range[a][1]) == 0) {
            if (chosen[a] == SPX_RANGE_OF_ARM)
                return spx_fail(e, SPX_EUSAGE, "--wavelength: arm '%s' has %.1f-%.1f Angstrom, nothing of %g-%g",
                                arm->name, first, last, range[a][0], range[a][1]);
            spx_note("arm '%s' is left out: it has %.1f-%.1f Angstrom, nothing of %g-%g", arm->name, first, last,
                     range[a][0], range[a][1]);
            r->setup[a] = NULL;
            left_out++;
        }
        fitted += r->setup[a] != NULL;
    }
    if (st == SPX_OK && left_out > 0 && fitted == 0)
        return spx_fail(e, SPX_EUSAGE, "--wavelength leaves nothing to fit");
    return st;
}

static spx_status read_redshifts(fit_run *r, spx_err *e)
{
    spx_input *in;
    if (o.zbest != NULL) {
        spx_status st = spx_run_extra_input(r->stage, o.zbest, &in, e);
        return st == SPX_OK ? spx_redshifts_read(in->file, &r->redshifts, e) : st;
    }
    for (size_t i = 0; i < r->spectra.npart; i++)
        if (spx_redshifts_there(r->spectra.part[i].file))
            return spx_redshifts_read(r->spectra.part[i].file, &r->redshifts, e);
    return spx_fail(e, SPX_EUSAGE,
                    "--zbest-select: the file of the spectra holds no redshifts: name the redshift file with --zbest");
}

/* Rows and stars. SPX_ENO when none is left. */
static spx_status choose_rows(fit_run *r, spx_err *e)
{
    uint8_t arm[SPX_MAX_ARM];
    int64_t *target = NULL;
    spx_selection s = {.rows = o.rows,
                       .all_fibers = o.all_fibers,
                       .has_expid = o.minexpid_given || o.maxexpid_given,
                       .expid_min = o.minexpid_given ? o.minexpid : INT64_MIN,
                       .expid_max = o.maxexpid_given ? o.maxexpid : INT64_MAX,
                       .has_minsn = o.minsn_given,
                       .minsn = o.minsn,
                       .sn_arm = arm,
                       .objtypes = o.objtypes};
    for (size_t a = 0; a < SPX_MAX_ARM; a++)
        arm[a] = r->setup[a] != NULL;
    spx_status st = o.zbest != NULL || o.zbest_select ? read_redshifts(r, e) : SPX_OK;
    s.stars = o.zbest_select ? &r->redshifts : NULL;
    if (st == SPX_OK && o.targetid_file != NULL)
        st = spx_run_foreign_input(r->stage, o.targetid_file, e);
    if (st == SPX_OK)
        st = spx_targets_collect(o.targetid.n, o.targetid.value, o.targetid_file, &s.ntarget, &target, e);
    s.target = target;
    if (st == SPX_OK)
        st = spx_spectra_select(&r->spectra, &s, &r->row, &r->nrow, e);
    spx_free(target);
    if (st == SPX_OK && r->nrow == 0)
        return spx_fail(e, SPX_ENO, "none of the %zu spectra is a star to fit: choose others, or give --all-fibers",
                        r->spectra.all.nspec);
    r->nstar = r->nrow;
    return st == SPX_OK && r->joint
               ? spx_spectra_group(&r->spectra, o.joint == ALL, r->nrow, r->row, &r->nstar, &r->first, e)
               : st;
}

static size_t first_of(const fit_run *r, size_t star)
{
    return r->joint ? r->first[star] : star;
}

/* ---- how to fit ---- */

static spx_status configure(fit_run *r, spx_err *e)
{
    spx_rvfit_options *fit = &r->options;
    const spx_setup *setup = &r->templates.setup[0];
    spx_rvfit_options_init(fit);
    fit->npoly = (size_t)o.npoly;
    fit->continuum = o.continuum;
    fit->interpolator = o.interpolator;
    fit->dichroic = o.dichroic;
    fit->resolution = o.resolution;
    fit->lsf_sigma = o.lsf_sigma;
    fit->reject = (int)o.reject;
    fit->reject_sigma = o.reject_sigma;
    fit->brute = o.start != NULL && strcmp(o.start, "grid") == 0;
    fit->keep_model = o.model || r->stage->common.hook != NULL;
    fit->keep_ccf = o.ccf;
    fit->max_device_mem = o.max_device_mem;
    fit->threads = (int)r->stage->common.threads;
    spx_status st = SPX_OK;
    if (o.lsf_given && !o.resolution)
        st = spx_fail(e, SPX_EUSAGE, "--lsf-sigma goes with --resolution-matrix only");
    if (st == SPX_OK && o.reject_sigma_given && o.reject == 0)
        st = spx_fail(e, SPX_EUSAGE, "--reject-sigma goes with --reject only");
    if (st == SPX_OK && !o.rotation && o.vsini_range != NULL)
        st = spx_fail(e, SPX_EUSAGE, "--vsini-range and --no-rotation exclude each other");
    if (st == SPX_OK && o.vrange != NULL)
        st = spx_rvfit_parse_pair(o.vrange, "--vrange", "MIN,MAX", &fit->vmin, &fit->vmax, e);
    if (st == SPX_OK && o.vsini_range != NULL)
        st = spx_rvfit_parse_pair(o.vsini_range, "--vsini-range", "MIN,MAX", &fit->vsinimin, &fit->vsinimax, e);
    if (!o.rotation)
        fit->vsinimin = fit->vsinimax = 0;
    for (size_t i = 0; i < o.fix.n && st == SPX_OK; i++)
        st = spx_rvfit_parse_fix(o.fix.value[i], setup, fit, e);
    for (size_t i = 0; i < o.prior.n && st == SPX_OK; i++)
        st = spx_rvfit_parse_prior(o.prior.value[i], setup, fit, e);
    return st;
}

/* Arms that share a setup, of which each needs little, get a part of it each. */
static spx_status cut_setups(fit_run *r, spx_err *e)
{
    const spx_rvfit_options *fit = &r->options;
    const spx_setup *whole[SPX_MAX_ARM];
    spx_status st = SPX_OK;
    memcpy(whole, r->setup, sizeof whole);
    for (size_t a = 0; a < r->spectra.all.narm && st == SPX_OK; a++) {
        size_t sharing = 0;
        for (size_t b = 0; b < r->spectra.all.narm; b++)
            sharing += whole[b] == whole[a];
        if (whole[a] == NULL || sharing < 2)
            continue;
        st = spx_setup_cut(whole[a], &r->spectra.all.arm[a], fit->vmin, fit->vmax, fit->vsinimax, &r->cut[a], e);
        r->setup[a] = r->cut[a].nwave > 0 ? &r->cut[a] : whole[a];
    }
    return st;
}

/* Starts of all stars from the file of --start. */
static spx_status read_start(fit_run *r, spx_err *e)
{
    spx_input *file;
    const spx_setup *setup = NULL;
    size_t missing = 0, *row = spx_alloc(r->nstar, sizeof *row, e);
    for (size_t a = 0; a < SPX_MAX_ARM; a++)
        setup = setup == NULL ? r->setup[a] : setup;
    if (row == NULL || setup == NULL) { /* no arm to fit: the stage says so */
        spx_free(row);
        return row == NULL ? SPX_EIO : SPX_OK;
    }
    for (size_t k = 0; k < r->nstar; k++)
        row[k] = r->row[first_of(r, k)];
    r->start = spx_alloc2(r->nstar, r->nq, sizeof *r->start, e);
    spx_status st = r->start == NULL ? SPX_EIO : spx_run_extra_input(r->stage, o.start, &file, e);
    if (st == SPX_OK)
        st = spx_rvfit_read_start(file->file, &r->spectra.all, setup, r->nstar, row, r->start, e);
    for (size_t i = 0; i < r->nstar && st == SPX_OK; i++)
        missing += !isfinite(r->start[i * r->nq]);
    if (st == SPX_OK && missing > 0)
        spx_note("%zu of %zu spectra start from the cross-correlation: %s has no velocity of them", missing, r->nstar,
                 o.start);
    spx_free(row);
    return st;
}

/* The spectra could not be read: perhaps since they and the templates changed places. */
static spx_status explain_swap(const spx_input *spectra, spx_err *e)
{
    spx_input t;
    spx_status st = e->code;
    if (st != SPX_EINPUT || !spx_h5_exists(spectra->file, "/templates") || strcmp(o.templates, "-") == 0 ||
        spx_input_open(&t, o.templates, NULL) != SPX_OK)
        return st;
    const char *kind = spx_h5_exists(t.file, "/frame")     ? "a frame"
                       : spx_h5_exists(t.file, "/spectra") ? "spectra"
                                                           : NULL;
    spx_input_close(&t);
    if (kind == NULL)
        return st;
    spx_err_clear(e);
    return spx_fail(e, SPX_EUSAGE, "--templates %s: is %s, and %s holds templates: give them the other way round",
                    o.templates, kind, spectra->name);
}

/* Everything before the fit. */
static spx_status prepare(fit_run *r, spx_err *e)
{
    spx_run *s = r->stage;
    spx_input *in;
    spx_status st = SPX_OK;
    r->joint = o.joint != SINGLE;
    r->spectra.with_resolution = o.resolution;
    for (size_t i = 0; i < s->ninput && st == SPX_OK; i++)
        if ((st = spx_run_input(s, i, &in, e)) == SPX_OK &&
            (st = spx_spectra_parts_add(&r->spectra, in->file, r->joint, e)) != SPX_OK)
            st = explain_swap(in, e);
    if (st == SPX_OK && r->spectra.dropped.n > 0)
        spx_note("columns of the fibermaps that not all inputs have alike are left out: %s", r->spectra.dropped.s);
    if (st == SPX_OK)
        st = spx_run_extra_input(s, o.templates, &in, e);
    if (st == SPX_OK && !spx_h5_exists(in->file, "/templates"))
        st = spx_fail(e, SPX_EINPUT, "--templates %s: holds no templates (/templates): rvs-template makes them",
                      in->name);
    if (st == SPX_OK)
        st = spx_templates_read(in->file, o.interpolator == SPX_INTERPOLATE_GRID, &r->templates, e);
    if (st == SPX_OK)
        st = choose_setups(r, e);
    if (st == SPX_OK)
        st = choose_wavelengths(r, e);
    if (st == SPX_OK)
        st = configure(r, e);
    if (st == SPX_OK)
        st = spx_run_hook(s, &r->options.hook, e);
    if (st == SPX_OK)
        st = cut_setups(r, e);
    if (st == SPX_OK)
        st = choose_rows(r, e);
    return st == SPX_OK && o.start != NULL && !r->options.brute ? read_start(r, e) : st;
}

/* ---- the fit ---- */

static spx_rvfit_input input_of(const fit_run *r, const spx_spectra *s)
{
    spx_rvfit_input in = {.spectra = s, .nrow = s->nspec};
    memcpy(in.setup, r->setup, sizeof in.setup);
    return in;
}

/* What the plan needs no device for, while that is being opened. Of spectra with resolution matrices their parts alone
 * have these. */
static spx_status begin_plan(fit_run *r, spx_err *e)
{
    spx_rvfit_input in = input_of(r, &r->spectra.all);
    if (o.resolution)
        return SPX_OK;
    spx_status st = spx_rvfit_open_cpu(&in, &r->options, &r->plan, e);
    return st == SPX_EINPUT ? spx_err_context(e, "%s", o.templates) : st;
}

static spx_status fit_stars(void *ctx, const spx_spectra *s, size_t star, size_t nstar, const size_t *first,
                            spx_rvfit *out, spx_err *e)
{
    fit_run *r = ctx;
    spx_rvfit_input in = input_of(r, s);
    in.nstar = nstar;
    in.first = first;
    in.start = r->start != NULL ? r->start + star * r->nq : NULL;
    spx_status st = r->planned ? SPX_OK : r->backend.rvfit_open(&r->backend, &in, &r->options, &r->plan, e);
    r->planned = st == SPX_OK;
    in.plan = r->plan;
    if (st == SPX_OK)
        st = r->backend.rvfit(&r->backend, &in, &r->options, r->progress, out, e);
    if (st == SPX_EINPUT)
        spx_err_context(e, "%s", o.templates);
    for (size_t a = 0; a < SPX_MAX_ARM && !o.model; a++) { /* they were for the hook */
        spx_free(out->arm[a].model);
        out->arm[a].model = NULL;
    }
    return st;
}

static spx_status fit_all(fit_run *r, spx_err *e)
{
    spx_rvfit_parts p = {.stage = r->stage,
                         .spectra = &r->spectra,
                         .nstar = r->nstar,
                         .nrow = r->nrow,
                         .row = r->row,
                         .first = r->first,
                         .fit = fit_stars,
                         .ctx = r};
    for (size_t a = 0; a < r->spectra.all.narm; a++)
        if (r->setup[a] != NULL && r->options.keep_model) /* for a hook, residuals too */
            p.result_bytes += r->spectra.all.arm[a].nwave * sizeof(float) * (r->options.hook != NULL ? 2 : 1);
    r->progress = spx_progress_start(r->stage->common.progress, "fit", "stars", r->nstar);
    spx_status st = spx_rvfit_parts_run(&p, &r->out, &r->all, e);
    spx_progress_end(r->progress);
    return st;
}

/* ---- the program ---- */

/* What the user and the provenance should know. SPX_ENO when no star was fitted. */
static spx_status report(const fit_run *r, spx_err *e)
{
    size_t bad = 0, flagged = 0, failed = 0;
    for (size_t i = 0; i < r->nstar; i++) {
        const spx_rvfit_star *star = &r->all.star[i];
        bad += (star->warn & SPX_RVS_BAD) != 0;
        flagged += star->warn != 0 && !(star->warn & SPX_RVS_BAD);
        failed += !star->success && !(star->warn & SPX_RVS_BAD);
    }
    const char *what = r->joint ? "stars" : "spectra";
    if (bad == r->nstar)
        return spx_fail(e, SPX_ENO, "none of %zu %s could be fitted: no flux, or no good pixels; nothing is written",
                        r->nstar, what);
    if (bad > 0)
        spx_warn("%zu of %zu %s could not be fitted (RVS_WARN 32)", bad, r->nstar, what);
    if (failed > 0)
        spx_warn("%zu of %zu fits did not converge (SUCCESS 0)", failed, r->nstar);
    if (r->joint)
        spx_note("%zu stars of %zu spectra fitted, %zu with a warning (RVS_WARN)", r->nstar - bad, r->nrow, flagged);
    else
        spx_note("%zu of %zu spectra fitted, %zu with a warning (RVS_WARN)", r->nstar - bad, r->spectra.all.nspec,
                 flagged);
    spx_status st = spx_run_record(r->stage, "stars", e, "%zu", r->nstar);
    if (st == SPX_OK && r->joint)
        st = spx_run_record(r->stage, "exposures", e, "%zu", r->nrow);
    if (st == SPX_OK && r->spectra.dropped.n > 0)
        st = spx_run_record(r->stage, "columns_left_out", e, "%s", r->spectra.dropped.s);
    if (st == SPX_OK)
        st = spx_run_record(r->stage, "stars_bad", e, "%zu", bad);
    if (st == SPX_OK)
        st = spx_run_record(r->stage, "stars_not_converged", e, "%zu", failed);
    for (size_t a = 0; a < r->spectra.all.narm && st == SPX_OK; a++) {
        char name[32];
        (void)snprintf(name, sizeof name, "setup_%s", r->spectra.all.arm[a].name);
        if (r->setup[a] != NULL)
            st = spx_run_record(r->stage, name, e, "%s", r->setup[a]->setup);
    }
    return st;
}

static spx_status write_tables(fit_run *r, spx_err *e)
{
    spx_table *redshifts = NULL;
    size_t *row = spx_alloc(r->nstar, sizeof *row, e);
    spx_status st = row == NULL ? SPX_EIO : SPX_OK;
    for (size_t k = 0; k < r->nstar && st == SPX_OK; k++)
        row[k] = r->row[first_of(r, k)];
    if (st == SPX_OK && r->redshifts.n > 0)
        st = spx_redshifts_columns(&r->redshifts, &r->spectra.all, r->nstar, row, &redshifts, e);
    if (st == SPX_OK)
        st = spx_rvfit_write_tables(r->out, &r->all, &r->spectra.all, r->joint, redshifts, e);
    spx_table_free(redshifts);
    spx_free(row);
    return st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    fit_run r = {.stage = s};
    if (o.templates == NULL)
        return spx_fail(e, SPX_EUSAGE, "no templates: give --templates FILE (rvs-template makes them)");
    if (s->ninput == 0)
        return spx_fail(e, SPX_EUSAGE, "no input file");
    spx_device_opening device = {.s = s, .stage = SPX_OP_RVFIT, .b = &r.backend};
    spx_err no_device = {0};
    spx_open_device_begin(&device);
    spx_run_step(s, "read");
    spx_status st = prepare(&r, e);
    spx_run_step(s, "fit");
    if (st == SPX_OK)
        st = begin_plan(&r, e);
    spx_run_pause(s);
    if (spx_open_device_end(&device, &no_device) != SPX_OK && st == SPX_OK)
        st = spx_fail(e, no_device.code, "%s", no_device.msg);
    if (st == SPX_OK)
        st = fit_all(&r, e);
    if (st == SPX_OK)
        st = report(&r, e);
    spx_run_step(s, "write");
    if (st == SPX_OK)
        st = write_tables(&r, e);
    if (st == SPX_OK)
        st = spx_run_commit(s, e);

    if (r.planned)
        r.backend.rvfit_close(&r.backend, r.plan);
    else
        spx_rvfit_close_cpu(r.plan);
    spx_backend_close(&r.backend);
    spx_rvfit_free(&r.all);
    spx_free(r.row);
    spx_free(r.first);
    spx_free(r.start);
    spx_redshifts_free(&r.redshifts);
    for (size_t a = 0; a < SPX_MAX_ARM; a++)
        spx_setup_cut_free(&r.cut[a]);
    spx_templates_free(&r.templates);
    spx_spectra_parts_free(&r.spectra);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "rvs-fit",
                                        .summary = "radial velocities and parameters of stars",
                                        .usage = "--templates FILE [OPTION...] [FILE...]",
                                        .example = "rvs-fit -t templates.h5 -o rv.h5 frame.h5",
                                        .options = options,
                                        .flags = SPX_USES_DEVICE | SPX_USES_HOOK | SPX_USES_BLAS,
                                        .run = run};
    return spx_main(&program, argc, argv);
}
