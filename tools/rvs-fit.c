/* rvs-fit: radial velocities, rotation and parameters of stars, from templates and spectra. */
#include <stdio.h>
#include <string.h>

#include "common/device.h"
#include "common/kernel_options.h"
#include "common/rvfit_air.h"
#include "common/rvfit_arms.h"
#include "common/rvfit_grids.h"
#include "common/rvfit_kept.h"
#include "common/rvfit_options.h"
#include "common/rvfit_report.h"
#include "common/rvfit_stars.h"
#include "common/rvfit_tables.h"
#include "common/rvfit_widths.h"
#include "common/rvfit_zero.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/table.h"
#include "products/rvfit_h5.h"
#include "products/spectra.h"
#include "products/templates_cut.h"
#include "products/transmission_h5.h"
#include "products/zeropoint_h5.h"
#include "run/catalogue_run.h"
#include "run/list_run.h"
#include "rvfit/grids.h"

static spx_rvfit_args o = {.continuum = SPX_CONTINUUM_SPLINE,
                           .interpolator = SPX_INTERPOLATE_AUTO,
                           .joint = SPX_JOINT_NO,
                           .reject_sigma = 5,
                           .components = 1,
                           .telluric_stars = 60,
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
    SPX_OPTION(
        LIST, "leave-out", 0, "MIN,MAX|FILE|telluric", o.leave_out,
        "Leave out these wavelengths, Angstrom at the telescope: the bands of oxygen and water, a band, or those of "
        "a text, two wavelengths a line, and their unit if another; repeatable"),
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
               .choices = SPX_CHOICES({"no", SPX_JOINT_NO}, {"target", SPX_JOINT_TARGET}, {"all", SPX_JOINT_ALL})),
    SPX_OPTION(FLAG, "epochs", 0, NULL, o.epochs,
               "Also measure the velocity of each exposure of a star, and whether it is constant; with --joint"),
    SPX_OPTION(
        STRING, "zero-points", 0, "FILE", o.zero_points,
        "Subtract these zero points from velocities, by arm, spectrograph, fibre and night: a product of rvs-zero"),
    SPX_HEADING("Model"),
    SPX_OPTION(STRING, "vrange", 0, "MIN,MAX", o.vrange, "Velocities to search, km/s", .absent = "-1000,1000"),
    SPX_OPTION(STRING, "vsini-range", 0, "MIN,MAX", o.vsini_range, "Rotation velocities to search, km/s",
               .absent = "0,500"),
    SPX_OPTION(FLAG, "rotation", 0, NULL, o.rotation, "Fit no rotation", .no = 1),
    SPX_OPTION(LIST, "fix", 0, "NAME=VALUE", o.fix,
               "Hold v, vsini, or a parameter of the templates at a value; repeatable"),
    SPX_OPTION(LIST, "prior", 0, "NAME=MEAN,SIGMA", o.prior,
               "Gaussian prior on v, vsini, or a parameter of the templates; repeatable"),
    SPX_OPTION(INT, "components", 0, "1|2", o.components,
               "2: also seek a second component with another velocity, as double-lined stars have", .min = 1, .max = 2),
    SPX_OPTION(INT, "npoly", 0, "N", o.npoly, "Functions of the continuum of each arm", .min = 1,
               .max = SPX_RVFIT_MAX_POLY, .given = &o.npoly_given, .no_default = 1, .absent = "by the arm's range"),
    SPX_OPTION(
        CHOICE, "continuum", 0, NULL, o.continuum,
        "Form of the continuum: splines that follow steep ends of an arm, a parabola with Gaussians, or polynomials",
        .choices = SPX_CHOICES({"spline", SPX_CONTINUUM_SPLINE}, {"rbf", SPX_CONTINUUM_RBF},
                               {"chebyshev", SPX_CONTINUUM_CHEBYSHEV})),
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
               "Sigma of the templates' line-spread function, where they do not say it", .min = 0, .max = 100,
               .given = &o.lsf_given, .no_default = 1),
    SPX_OPTION(
        STRING, "tellurics", 0, "FILE", o.tellurics,
        "Fit the atmosphere too, whose lines rvs-telluric has put into this file: it multiplies the star's light",
        .absent = "none"),
    SPX_OPTION(INT, "telluric-stars", 0, "N", o.telluric_stars,
               "Fit the atmosphere to the N brightest stars of an exposure", .min = 1, .max = 100000,
               .given = &o.telluric_stars_given),
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
    SPX_OPTION(FLAG, "scale-errors", 0, NULL, o.scale_errors,
               "Widen errors by the root of chi2 a degree of freedom, where that is above 1"),
    SPX_OPTION(
        LIST, "jitter", 0, "[ARM:]J|fit", o.jitter,
        "Add a variance of (J flux)^2 to all pixels, of all arms or of one, or fit J for each star: for misfit of "
        "the templates. Errors then allow for misfit that neighbouring pixels share; repeatable",
        .absent = "none"),
    SPX_OPTION(FLAG, "model", 0, NULL, o.model, "Leave the best models out of the output", .no = 1),
    SPX_OPTION(FLAG, "with-template", 0, NULL, o.with_template,
               "Also write the template of each star at its velocity, with its own continuum and without line-spread "
               "function: specx-flux calibrates with it. Needs templates of rvs-template --norm median"),
    SPX_OPTION(FLAG, "ccf", 0, NULL, o.ccf, "Write the curves of the cross-correlation, one a spectrum and arm"),
    SPX_OPTION(BYTES, "max-device-mem", 0, "SIZE", o.max_device_mem, "Memory to use on each GPU, such as 4G",
               .min = 16 << 20, .absent = "what is free"),
    {0}};

typedef struct {
    spx_run *run;
    spx_backend *backend;
    size_t ninput;
    char **input;
    spx_rvfit_kept *kept;
    spx_spectra_parts spectra;
    spx_bands bands;     /* that are left out of them */
    spx_rvfit_airs airs; /* with --tellurics */
    const spx_setup *setup[SPX_MAX_ARM];
    spx_setup cut[SPX_MAX_ARM]; /* parts of setups, for arms that share one */
    spx_arm bins[SPX_MAX_ARM];  /* wavelengths of the arms, before parts of them are chosen; for templates */
    int grids;                  /* 1: spectra have wavelength grids of their own, and each of these a plan */
    spx_rvfit_stars stars;
    spx_zeropoints zero;
    size_t nq;
    double *start; /* [nstar][nq]; NULL: from the cross-correlation */
    hid_t out;
    spx_rvfit all; /* all stars, without models and curves */
    spx_progress *progress;
} fit_run;

static spx_rvfit_input input_of(const fit_run *r, const spx_spectra *s)
{
    spx_rvfit_input in = {.spectra = s, .nrow = s->nspec};
    memcpy(in.setup, r->setup, sizeof in.setup);
    return in;
}

/* Everything before the fit. */
static spx_status prepare(fit_run *r, spx_err *e)
{
    spx_run *s = r->run;
    spx_rvfit_options now, *fit = &now;
    const spx_templates *templates = &r->kept->templates;
    spx_input *in;
    memset(&now, 0, sizeof now);
    spx_status st = spx_rvfit_read_inputs(&o, s, r->ninput, r->input, &r->spectra, e);
    if (st == SPX_OK)
        st = spx_rvfit_take_templates(&o, s, r->backend, r->kept, e);
    if (st == SPX_OK && o.zero_points != NULL && (st = spx_run_extra_input(s, o.zero_points, &in, e)) == SPX_OK)
        st = spx_zeropoints_read(in->file, &r->zero, e);
    if (st == SPX_OK)
        st = spx_rvfit_choose_setups(&o, templates, &r->spectra, r->setup, e);
    for (size_t a = 0; a < r->spectra.all.narm && o.with_template && st == SPX_OK; a++)
        st = spx_arm_copy_bins(&r->spectra.all.arm[a], &r->bins[a], e);
    for (size_t a = 0; a < SPX_MAX_ARM && r->nq == 0 && st == SPX_OK; a++)
        r->nq = r->setup[a] != NULL ? 2 + r->setup[a]->npar : 0;
    if (st == SPX_OK)
        st = spx_rvfit_choose_wavelengths(&o, templates, &r->spectra, r->setup, e);
    if (st == SPX_OK)
        st = spx_rvfit_leave_out(&o, s, &r->spectra, &r->bands, e);
    if (st == SPX_OK)
        st = spx_rvfit_args_options(&o, &templates->setup[0], fit, e);
    if (st == SPX_OK)
        st = spx_rvfit_choose_jitter(&o, templates, &r->spectra, fit, e);
    if (st == SPX_OK)
        st = spx_run_hook(s, &fit->hook, e);
    fit->keep_model = o.model || s->common.hook != NULL;
    fit->threads = (int)s->common.threads;
    const spx_rvfit_input all = input_of(r, &r->spectra.all);
    r->grids = spx_rvfit_has_grids(&all);
    if (st == SPX_OK && !r->grids) /* else each grid needs a part of its own */
        st = spx_setups_cut(r->spectra.all.narm, r->spectra.all.arm, fit->vmin, fit->vmax, fit->vsinimax, r->setup,
                            r->cut, e);
    if (st == SPX_OK)
        st = spx_rvfit_choose_stars(&o, s, &r->spectra, r->setup, &r->stars, e);
    if (st == SPX_OK)
        spx_rvfit_say_widths(&o, &r->spectra, r->setup, &r->stars);
    if (st == SPX_OK && o.tellurics != NULL)
        st = spx_rvfit_read_air(o.tellurics, s, &r->spectra, r->setup, &r->airs, e);
    fit->transmission = r->airs.table.nwave > 0 ? &r->airs.table : NULL;
    if (st == SPX_OK)
        st = spx_rvfit_take_plan(r->backend, fit, &r->spectra, r->setup, r->kept, e);
    return st == SPX_OK && o.start != NULL && !r->kept->options.brute
               ? spx_rvfit_read_starts(&o, s, &r->spectra, r->setup, &r->stars, r->nq, &r->start, e)
               : st;
}

static spx_status fit_stars(void *ctx, const spx_spectra *s, size_t star, size_t nstar, const size_t *first,
                            spx_rvfit *out, spx_err *e)
{
    fit_run *r = ctx;
    spx_rvfit_input in = input_of(r, s);
    in.nstar = nstar;
    in.first = first;
    in.air = spx_rvfit_air_rows(&r->airs, r->stars.joint ? r->stars.first[star] : star);
    in.start = r->start != NULL ? r->start + star * r->nq : NULL;
    spx_status st = spx_rvfit_fit_part(r->backend, r->grids, &in, &r->kept->options, o.with_template ? r->bins : NULL,
                                       &r->kept->plan, &r->kept->planned, r->progress, out, e);
    if (st == SPX_EINPUT)
        spx_err_context(e, "%s", o.templates);
    if (!o.model) /* they were for the hook */
        spx_rvfit_drop_models(out);
    return st;
}

static spx_status fit_all(fit_run *r, spx_err *e)
{
    spx_rvfit_parts p = {.stage = r->run,
                         .nthread = r->backend->library != NULL ? 0 : (size_t)r->kept->options.threads,
                         .spectra = &r->spectra,
                         .nstar = r->stars.nstar,
                         .nrow = r->stars.nrow,
                         .row = r->stars.row,
                         .first = r->stars.first,
                         .fit = fit_stars,
                         .ctx = r};
    for (size_t a = 0; a < r->spectra.all.narm; a++)
        if (r->setup[a] != NULL && r->kept->options.keep_model) /* for a hook, residuals too */
            p.result_bytes += r->spectra.all.arm[a].nwave * sizeof(float) *
                              (1 + (size_t)(r->kept->options.hook != NULL) + (size_t)o.with_template);
    r->progress = spx_progress_start(r->run->common.progress, "fit", "stars", r->stars.nstar);
    spx_status st = spx_rvfit_parts_run(&p, &r->out, &r->all, e);
    spx_progress_end(r->progress);
    return st;
}

typedef struct {
    spx_device_opening device;
    spx_rvfit_kept kept;
} fit_list;

/* Fits the stars of some inputs, up to what goes into the output. */
static spx_status fit_inputs(void *ctx, size_t n, char **input, spx_err *e)
{
    fit_list *list = ctx;
    spx_device_opening *device = &list->device;
    spx_run *s = device->s;
    fit_run r = {.run = s, .backend = device->b, .ninput = n, .input = input, .kept = &list->kept, .spectra.rows = 1};
    spx_err no_device = {0};
    spx_run_step(s, "read");
    spx_status st = prepare(&r, e);
    spx_run_step(s, "fit");
    const spx_rvfit_input all = input_of(&r, &r.spectra.all);
    if (st == SPX_OK && !o.resolution && !r.grids) /* their parts alone have resolution matrices and grids */
        st = spx_rvfit_begin_plan(&o, &all, r.kept, e);
    spx_run_pause(s);
    if (spx_open_device_end(device, &no_device) != SPX_OK && st == SPX_OK)
        st = spx_err_pass(e, &no_device);
    if (st == SPX_OK && r.backend->library != NULL && r.kept->options.components > 1)
        spx_note("%s: second components are fitted on the CPU", r.backend->device);
    if (st == SPX_OK && o.tellurics != NULL)
        st = spx_rvfit_fit_airs(s, &r.spectra, r.setup, &r.kept->options, &r.stars, (size_t)o.telluric_stars, &r.airs,
                                e);
    if (st == SPX_OK)
        st = fit_all(&r, e);
    if (st == SPX_OK && o.zero_points != NULL)
        st = spx_rvfit_apply_zero(s, &r.zero, &r.spectra, &r.all, e);
    if (st == SPX_OK)
        st = spx_rvfit_report(s, &r.stars, &r.spectra, r.setup, &r.all, e);
    spx_run_step(s, "write");
    if (st == SPX_OK)
        st = spx_rvfit_write_stars(r.out, &r.all, &r.spectra, &r.stars, e);
    if (st == SPX_OK && r.airs.n > 0)
        st = spx_tellurics_write(r.out, &r.airs.table, r.airs.n, r.airs.exposure, e);
    if (st != SPX_OK || r.grids || r.airs.n > 0 || !spx_rvfit_may_keep(r.kept, r.cut))
        spx_rvfit_drop_plan(r.backend, r.kept);
    spx_rvfit_free(&r.all);
    spx_rvfit_stars_free(&r.stars);
    spx_zeropoints_free(&r.zero);
    spx_free(r.start);
    for (size_t a = 0; a < SPX_MAX_ARM; a++) {
        spx_setup_cut_free(&r.cut[a]);
        spx_arm_free(&r.bins[a]);
    }
    spx_rvfit_airs_free(&r.airs);
    spx_spectra_parts_free(&r.spectra);
    spx_free(r.bands.band);
    return st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    if (o.templates == NULL)
        return spx_fail(e, SPX_EUSAGE, "no templates: give --templates FILE (rvs-template makes them)");
    spx_rvfit_air_device(s, o.tellurics);
    spx_backend backend = {0};
    fit_list list = {.device = {.s = s, .op = SPX_OP_RVFIT, .b = &backend}};
    spx_open_device_begin(&list.device);
    const spx_status st = spx_list_run(s, fit_inputs, &list, e);
    (void)spx_open_device_end(&list.device, &(spx_err){0});
    spx_rvfit_drop_kept(&backend, &list.kept);
    spx_backend_close(&backend);
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
    spx_err_options(spx_kernel_options);
    return spx_main(&program, argc, argv);
}
