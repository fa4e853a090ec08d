/* rvs-template: templates of one or several instrument setups from a library of model spectra. */
#include <string.h>

#include "app/main.h"
#include "common/device.h"
#include "common/kernel_options.h"
#include "common/plausible_inputs.h"
#include "common/template_options.h"
#include "common/template_report.h"
#include "convert/spectrum/text.h"
#include "h5/file.h"
#include "h5/object.h"
#include "products/library_h5.h"
#include "products/network_h5.h"
#include "products/templates_h5.h"
#include "template/template.h"

enum {
    BATCH = 32,
    NETWORK_TEMPLATES = 100 /* that a network which gives spectra is made to give */
};

static spx_template_args o = {.pca = 1e-4,
                              .pca_max = 3e-3,
                              .hidden = "128,128,128",
                              .epochs = 2000,
                              .seed = 1,
                              .interpolator = SPX_TEMPLATE_AUTO,
                              .norm = SPX_NORM_LINEAR,
                              .resolution = "R=100000",
                              .logpar = "teff",
                              .vsini = "0,100",
                              .ccf = 1};

static const spx_opt options[] = {
    SPX_OPTION(
        LIST, "setup", 's', "NAME:MIN:MAX:STEP:R=EXPR[:air]", o.setup,
        "Make templates for this range and step, Angstrom, and resolving power R or FWHM=EXPR; repeatable. EXPR is "
        "a number, an expression of the wavelength x, or @FILE, a table; FWHM is in Angstrom"),
    SPX_OPTION(CHOICE, "norm", 0, NULL, o.norm,
               "Divide templates by nothing, their median, or also a straight line in ln(flux)",
               .choices =
                   SPX_CHOICES({"none", SPX_NORM_NONE}, {"median", SPX_NORM_MEDIAN}, {"linear", SPX_NORM_LINEAR}),
               .given = &o.library_given),
    SPX_OPTION(STRING, "library-resolution", 0, "R=EXPR", o.resolution,
               "Resolution that the library has already, or FWHM=EXPR, or none. It is subtracted in quadrature"),
    SPX_OPTION(FLAG, "straight-lines", 0, NULL, o.straight,
               "Take spectra as straight lines between the library's samples, as rvspecfit does. They widen lines"),
    SPX_OPTION(STRING, "log-param", 0, "NAME,...", o.logpar, "Parameters to interpolate in their logarithm, or none",
               .given = &o.logpar_given),
    SPX_OPTION(
        CHOICE, "interpolator", 0, NULL, o.interpolator,
        "Interpolate in a regular grid, or in simplices of a triangulation. auto takes a grid if the library is one",
        .choices =
            SPX_CHOICES({"auto", SPX_TEMPLATE_AUTO}, {"grid", SPX_TEMPLATE_GRID}, {"simplex", SPX_TEMPLATE_SIMPLEX}),
        .given = &o.library_given),
    SPX_OPTION(DOUBLE, "pca", 0, "ERROR", o.pca,
               "Error of the principal components, rms in ln(flux); 0: no components. As many are kept as this takes",
               .min = 0, .max = 1, .given = &o.library_given),
    SPX_OPTION(DOUBLE, "pca-max", 0, "ERROR", o.pca_max, "The same for every pixel of every template; 0: no limit",
               .min = 0, .max = 10, .given = &o.library_given),
    SPX_HEADING("Network"),
    SPX_OPTION(FLAG, "train-nn", 0, NULL, o.train,
               "Train a network for rvs-fit --interpolator nn, and report its error"),
    SPX_OPTION(STRING, "nn-hidden", 0, "N,...", o.hidden, "Neurons of the network's hidden layers",
               .given = &o.nn_given),
    SPX_OPTION(INT, "nn-epochs", 0, "N", o.epochs, "Passes through the library, at most", .min = 1, .max = 1e7,
               .given = &o.nn_given),
    SPX_OPTION(INT, "nn-seed", 0, "N", o.seed, "Seed of the training's random numbers", .min = 0, .max = 1e15,
               .given = &o.nn_given),
    SPX_HEADING("Cross-correlation set"),
    SPX_OPTION(FLAG, "ccf", 0, NULL, o.ccf, "Leave out the set from which rvs-fit starts its search", .no = 1),
    SPX_OPTION(INT, "ccf-every", 0, "N", o.every, "Take every N-th template into the set; 0: about 100 of all",
               .min = 0, .max = 1e9, .given = &o.library_given),
    SPX_OPTION(STRING, "ccf-vsini", 0, "KM/S,...", o.vsini, "Rotation velocities to broaden them with",
               .given = &o.vsini_given),
    {0}};

/* The table that a resolution names, R=@FILE, into *t; its numbers belong to the caller. */
static spx_status table(spx_run *s, const char *resolution, spx_lsf_table *t, double **wave, double **value, spx_err *e)
{
    const char *name = strchr(resolution, '@');
    if (name == NULL || name[1] == '\0')
        return SPX_OK;
    spx_status st = spx_run_foreign_input(s, name + 1, e);
    if (st == SPX_OK)
        st = spx_textspec_curve(name + 1, &t->n, wave, value, e);
    t->wave = *wave;
    t->value = *value;
    return st;
}

/* All of them, numbers [n+1]: those of the setups, and the library's. */
static spx_status tables(spx_run *s, spx_template_request *request, spx_template_config *cfg, double **wave,
                         double **value, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < cfg->nsetup && st == SPX_OK; i++)
        st = table(s, request[i].resolution, &request[i].table, &wave[i], &value[i], e);
    if (st == SPX_OK)
        st = table(s, cfg->library_resolution, &cfg->library_table, &wave[cfg->nsetup], &value[cfg->nsetup], e);
    return st;
}

/* All rows of the library through the stage. */
static spx_status stream(const spx_input *in, const spx_library *lib, spx_template_job *job, spx_err *e)
{
    size_t first, n;
    float *flux = spx_alloc2(BATCH, lib->nwave, sizeof *flux, e);
    if (flux == NULL)
        return SPX_EIO;
    spx_template_range(job, &first, &n);
    spx_status st = SPX_OK;
    for (size_t row = 0; row < lib->ntemp && st == SPX_OK; row += BATCH) {
        size_t nrow = lib->ntemp - row < BATCH ? lib->ntemp - row : BATCH;
        st = spx_library_read_flux(in->file, lib, row, nrow, flux, e);
        if (st == SPX_OK && (st = spx_template_add(job, row, nrow, flux + first, lib->nwave, e)) == SPX_EINPUT)
            spx_err_context(e, "%s:/library", in->name);
    }
    spx_free(flux);
    return st;
}

static spx_status make(const spx_run *s, spx_input *in, const spx_library *lib, spx_template_config *cfg,
                       spx_templates *t, spx_template_report *report, spx_err *e)
{
    spx_template_library what = {.nwave = lib->nwave,
                                 .wavelength = lib->wavelength,
                                 .medium = lib->medium,
                                 .ntemp = lib->ntemp,
                                 .npar = lib->npar,
                                 .params = lib->params};
    memcpy(what.parname, lib->parname, sizeof what.parname);
    spx_template_job *job;
    spx_status st = spx_template_begin(&what, cfg, &job, e);
    if (st != SPX_OK)
        return st == SPX_EINPUT ? spx_err_context(e, "%s:/library", in->name) : st;
    spx_progress *progress = spx_progress_start(s->common.progress, "templates", "spectra", spx_template_units(job));
    spx_template_watch(job, progress);
    st = stream(in, lib, job, e);
    if (st == SPX_OK && (st = spx_template_finish(job, t, report, e)) == SPX_EINPUT)
        spx_err_context(e, "%s:/library", in->name);
    spx_progress_end(progress);
    spx_template_free(job);
    return st;
}

/* The same from a network in place of a library. */
static spx_status make_of_network(spx_input *in, const spx_template_config *cfg, spx_templates *t,
                                  spx_template_report *report, spx_err *e)
{
    spx_network net = {0};
    if (o.train)
        return spx_fail(e, SPX_EUSAGE, "%s holds a network: there is nothing to train (--train-nn)", in->name);
    if (o.library_given || o.logpar_given)
        return spx_fail(e, SPX_EUSAGE,
                        "%s holds a network: --norm, --log-param, --interpolator, --pca, --pca-max and --ccf-every are "
                        "for libraries",
                        in->name);
    spx_status st = spx_network_read(in->file, &net, e);
    if (st == SPX_OK && (st = spx_template_import(&net, cfg, NETWORK_TEMPLATES, t, report, e)) == SPX_EINPUT)
        spx_err_context(e, "%s:/network", in->name);
    if (st == SPX_OK)
        spx_note("%s gives the spectra: a network of %zu layers, %zu parameters", in->name, net.nn.nlayer, net.npar);
    spx_network_free(&net);
    return st;
}

/* What the user and the provenance should know of the templates of one setup. */
static spx_status tell_setup(spx_run *s, const spx_setup *setup, spx_err *e)
{
    char name[96];
    spx_note("setup '%s': %zu principal components, accurate to %.2g %% of the flux rms, %.2g %% at most", setup->setup,
             setup->pca.ncomp, 100 * setup->pca.rms, 100 * setup->pca.max);
    if (setup->pca.rms > o.pca || (o.pca_max > 0 && setup->pca.max > o.pca_max))
        spx_warn("setup '%s': that is more than --pca and --pca-max allow: there are no more components", setup->setup);
    if (setup->nn.nlayer > 0)
        spx_note(
            "setup '%s': the network is off by %.2g rms, %.2g at most, in ln(flux) of spectra that it has not seen",
            setup->setup, setup->nn.rms, setup->nn.max);
    (void)snprintf(name, sizeof name, "components_%s", setup->setup);
    return spx_run_record(s, name, e, "%zu", setup->pca.ncomp);
}

/* The same of all that was made, of `nlibrary` spectra or of a network. */
static spx_status tell(spx_run *s, const spx_templates *t, const spx_template_report *report, size_t nlibrary,
                       int network_in, spx_err *e)
{
    if (report->nfilled > 0)
        spx_note("%zu of %zu nodes of the grid are not in the library and were filled in", report->nfilled,
                 report->nfilled + nlibrary);
    if (t->setup[0].simplex != NULL)
        spx_note("%s: %zu spectra in %zu simplices",
                 o.interpolator == SPX_TEMPLATE_AUTO ? "the library is no regular grid" : "the library is triangulated",
                 nlibrary, t->setup[0].nsimplex);
    if (report->nmissing > 0)
        spx_note("%zu pixels of the 1000 km/s beyond the setups are not in the library: rvs-fit will need a narrower "
                 "--vrange, or templates of a library that reaches farther",
                 report->nmissing);
    if (report->nraised > 0)
        spx_warn("%zu samples without flux were raised to 1e-10 of their template's median", report->nraised);
    spx_status st = spx_run_record(s, "filled_nodes", e, "%zu", report->nfilled);
    if (st == SPX_OK)
        st = spx_run_record(s, "raised_samples", e, "%zu", report->nraised);
    for (size_t i = 0; i < t->nsetup && st == SPX_OK; i++)
        if (t->setup[i].pca.mean != NULL && !network_in)
            st = tell_setup(s, &t->setup[i], e);
    return st;
}

/* Only training computes on a device. */
static spx_status check_device(const spx_run *s, spx_err *e)
{
    const char *device = s->common.device;
    return o.train || strcmp(device, "auto") == 0 || strcmp(device, "cpu") == 0
               ? SPX_OK
               : spx_fail(e, SPX_EDEVICE,
                          "--device %s: this program runs on the CPU only, but for --train-nn: use cpu or auto",
                          device);
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_input *in = NULL;
    spx_library lib = {0};
    spx_templates t = {0};
    spx_template_report report = {0};
    spx_template_config cfg = {0};
    double vsini[SPX_TEMPLATE_MAX_VSINI];
    hid_t file;
    unsigned broken = 0; /* rules of plausibility */
    spx_backend backend = {0};
    spx_device_opening opening = {.s = s, .op = SPX_OP_TEMPLATE, .b = &backend};

    if (s->ninput != 1)
        return spx_fail(e, SPX_EUSAGE, "one input file, not %zu", s->ninput);
    if (o.setup.n == 0)
        return spx_fail(e, SPX_EUSAGE, "no setup: give --setup NAME:MIN:MAX:STEP:R=EXPRESSION");
    spx_template_request *request = spx_alloc(o.setup.n, sizeof *request, e);
    if (request == NULL)
        return SPX_EIO;
    double **wave = spx_alloc(o.setup.n + 1, sizeof *wave, e), **value = spx_alloc(o.setup.n + 1, sizeof *value, e);
    spx_status st = wave != NULL && value != NULL ? spx_template_args_config(&o, request, vsini, &cfg, e) : SPX_EIO;
    cfg.nthreads = (int)s->common.threads;
    if (st == SPX_OK)
        st = check_device(s, e);
    const int opened = st == SPX_OK && o.train;
    if (opened)
        spx_open_device_begin(&opening);

    spx_run_step(s, "read");
    if (st == SPX_OK)
        st = tables(s, request, &cfg, wave, value, e);
    if (st == SPX_OK)
        st = spx_run_input(s, 0, &in, e);
    int network_in = st == SPX_OK && spx_h5_exists(in->file, "/network");
    if (st == SPX_OK && !network_in)
        st = spx_library_read(in->file, &lib, e);
    if (st == SPX_OK && !network_in)
        st = spx_plausible_library(in, &lib, &broken, e);
    if (st == SPX_OK && !network_in)
        st = spx_template_args_log(&o, &lib, &cfg, e);
    if (opened) {
        spx_err why = {0};
        if (spx_open_device_end(&opening, &why) != SPX_OK && st == SPX_OK)
            st = spx_err_pass(e, &why);
        cfg.nn.open = backend.nn_open;
        cfg.nn.device = &backend;
    }

    spx_run_step(s, "template");
    if (st == SPX_OK)
        st = network_in ? make_of_network(in, &cfg, &t, &report, e) : make(s, in, &lib, &cfg, &t, &report, e);
    if (st == SPX_OK)
        st = tell(s, &t, &report, lib.ntemp, network_in, e);

    spx_run_step(s, "write");
    if (st == SPX_OK) {
        const char *slash = strrchr(in->name, '/');
        (void)snprintf(t.library, sizeof t.library, "%.255s", slash != NULL ? slash + 1 : in->name);
        st = spx_run_output(s, "templates", &file, e);
    }
    if (st == SPX_OK)
        st = spx_templates_write(file, &t, e);
    if (st == SPX_OK)
        st = spx_template_tell_nodes(s, file, &t, e);
    if (st == SPX_OK)
        st = spx_plausible_flag(s, file, "/templates", broken, e);
    if (st == SPX_OK)
        st = spx_run_commit(s, e);

    for (size_t i = 0; i <= o.setup.n && wave != NULL && value != NULL; i++) {
        spx_free(wave[i]);
        spx_free(value[i]);
    }
    spx_backend_close(&backend);
    spx_free(wave);
    spx_free(value);
    spx_free(request);
    spx_library_free(&lib);
    spx_templates_free(&t);
    return st;
}

int main(int argc, char **argv)
{
    spx_err_options(spx_kernel_options);
    static const spx_program program = {.name = "rvs-template",
                                        .summary = "templates for an instrument from a library of model spectra",
                                        .usage = "--setup SETUP [OPTION...] [FILE]",
                                        .example =
                                            "rvs-template -s r:5900:6900:0.4:FWHM=1.5 -o templates.h5 library.h5",
                                        .options = options,
                                        .flags = SPX_USES_DEVICE | SPX_USES_BLAS,
                                        .run = run};
    return spx_main(&program, argc, argv);
}
