/* rvs-fit: radial velocities, rotation and parameters of stars, from templates and spectra. */
#include <string.h>

#include "backend.h"
#include "blocks/io.h"
#include "blocks/select.h"
#include "h5/stage.h"
#include "rvfit/rvfit.h"

enum { NAME_ROOM = 64 };

static const char *opt_templates, *opt_arms, *opt_vrange, *opt_vsini_range, *opt_rows, *opt_continuum = "rbf",
                                                                                       *opt_start;
static const char *opt_interpolator = "auto";
static spx_opt_list opt_map, opt_fix, opt_prior, opt_targetid;
static long opt_npoly = 10, opt_reject;
static double opt_lsf_sigma = 0.5, opt_reject_sigma = 5;
static int opt_rotation = 1, opt_dichroic = 1, opt_resolution, opt_all_fibers, opt_model = 1, lsf_given,
           reject_sigma_given;

static const spx_opt options[] = {
    {.kind = SPX_OPT_STRING,
     .name = "templates",
     .letter = 't',
     .arg = "FILE",
     .value = &opt_templates,
     .help = "Templates, as rvs-template makes them"},
    {.kind = SPX_OPT_LIST,
     .name = "map",
     .arg = "ARM=SETUP",
     .value = &opt_map,
     .help = "Fit this arm of the spectra with this setup of the templates; without it, with the setup of the same "
             "name, or a single arm with a single setup; may be given several times"},
    {.kind = SPX_OPT_HEADING, .name = "Stars"},
    {.kind = SPX_OPT_STRING, .name = "arms", .arg = "ARM,...", .value = &opt_arms, .help = "Fit these arms only"},
    {.kind = SPX_OPT_STRING,
     .name = "rows",
     .letter = 'r',
     .arg = "FIRST:LAST",
     .value = &opt_rows,
     .help = "Fit these spectra only, counted from 0, LAST not included"},
    {.kind = SPX_OPT_LIST,
     .name = "targetid",
     .arg = "ID",
     .value = &opt_targetid,
     .help = "Fit this target only; may be given several times"},
    {.kind = SPX_OPT_FLAG,
     .name = "all-fibers",
     .value = &opt_all_fibers,
     .help = "Fit fibres too that the fibermap calls SKY or BAD or that have a bad status"},
    {.kind = SPX_OPT_HEADING, .name = "Model"},
    {.kind = SPX_OPT_STRING,
     .name = "vrange",
     .arg = "MIN,MAX",
     .value = &opt_vrange,
     .help = "Velocities to search, km/s; without it, -1000,1000"},
    {.kind = SPX_OPT_STRING,
     .name = "vsini-range",
     .arg = "MIN,MAX",
     .value = &opt_vsini_range,
     .help = "Rotation velocities to search, km/s; without it, 0,500"},
    {.kind = SPX_OPT_FLAG,
     .name = "rotation",
     .value = &opt_rotation,
     .help = "Fit the rotation; on by default, --no-rotation fits stars at rest"},
    {.kind = SPX_OPT_LIST,
     .name = "fix",
     .arg = "NAME=VALUE",
     .value = &opt_fix,
     .help = "Hold v, vsini, or a parameter of the templates at this value; may be given several times"},
    {.kind = SPX_OPT_LIST,
     .name = "prior",
     .arg = "NAME=MEAN,SIGMA",
     .value = &opt_prior,
     .help = "Gaussian prior on v, vsini, or a parameter of the templates; may be given several times"},
    {.kind = SPX_OPT_INT,
     .name = "npoly",
     .arg = "N",
     .value = &opt_npoly,
     .min = 1,
     .max = SPX_RVFIT_MAX_POLY,
     .help = "Functions that the continuum is made of"},
    {.kind = SPX_OPT_CHOICE,
     .name = "continuum",
     .value = &opt_continuum,
     .choices = "rbf|chebyshev",
     .help = "A parabola with Gaussians, or polynomials"},
    {.kind = SPX_OPT_CHOICE,
     .name = "interpolator",
     .value = &opt_interpolator,
     .choices = "auto|grid|cubic|simplex|nn",
     .help =
         "Between the nodes of a regular grid multilinear, or cubic and smooth; in the simplices of a triangulation; "
         "by a trained network; auto: cubic if there is a grid, then simplices"},
    {.kind = SPX_OPT_FLAG,
     .name = "dichroic",
     .value = &opt_dichroic,
     .help = "Leave out 4300-4450 Angstrom, where DESI's dichroic is; on by default, --no-dichroic uses them"},
    {.kind = SPX_OPT_FLAG,
     .name = "resolution-matrix",
     .value = &opt_resolution,
     .help = "Multiply the model with each spectrum's own resolution matrix; the templates have a narrow "
             "line-spread function then"},
    {.kind = SPX_OPT_DOUBLE,
     .name = "lsf-sigma",
     .arg = "ANGSTROM",
     .value = &opt_lsf_sigma,
     .max = 100,
     .given = &lsf_given,
     .help = "Sigma of that line-spread function, taken out of the resolution matrix"},
    {.kind = SPX_OPT_HEADING, .name = "Search"},
    {.kind = SPX_OPT_STRING,
     .name = "start",
     .arg = "FILE",
     .value = &opt_start,
     .help = "Start from the velocities and parameters of a former fit, for spectra that it has, in place of the "
             "cross-correlation"},
    {.kind = SPX_OPT_INT,
     .name = "reject",
     .arg = "N",
     .value = &opt_reject,
     .max = 20,
     .help = "Up to N times, mask pixels that are far from the model, and fit again"},
    {.kind = SPX_OPT_DOUBLE,
     .name = "reject-sigma",
     .arg = "S",
     .value = &opt_reject_sigma,
     .min = 1,
     .max = 1e6,
     .given = &reject_sigma_given,
     .help = "How far, in errors"},
    {.kind = SPX_OPT_FLAG,
     .name = "model",
     .value = &opt_model,
     .help = "Write the best models; on by default, --no-model leaves them out"},
    {0}};

/* ---- what to fit ---- */

/* All inputs as one block: each further one brings arms of the same spectra. */
static spx_status read_spectra(spx_stage *s, spx_spectra *out, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < s->ninput && st == SPX_OK; i++) {
        spx_input *in;
        spx_spectra more = {0};
        if ((st = spx_stage_input(s, i, &in, e)) != SPX_OK)
            return st;
        st = spx_spectra_read(in->file, opt_resolution, i == 0 ? out : &more, e);
        if (i > 0 && st == SPX_OK && (st = spx_spectra_add_arms(out, &more, e)) != SPX_OK)
            spx_err_context(e, "%s", in->name);
        spx_spectra_free(&more);
    }
    return st;
}

static const spx_setup *find_setup(const spx_templates *t, const char *name)
{
    for (size_t i = 0; i < t->nsetup; i++)
        if (strcmp(t->setup[i].setup, name) == 0)
            return &t->setup[i];
    return NULL;
}

/* Is `name` one of the comma-separated words of `list`? */
static int in_list(const char *list, const char *name)
{
    size_t len = strlen(name);
    for (const char *p = list; *p != '\0'; p += *p == ',') {
        size_t n = strcspn(p, ",");
        if (n == len && strncmp(p, name, n) == 0)
            return 1;
        p += n;
    }
    return 0;
}

/* Splits NAME=REST; name[NAME_ROOM]. */
static spx_status split(const char *text, const char *option, char *name, const char **rest, spx_err *e)
{
    const char *eq = strchr(text, '=');
    if (eq == NULL || eq == text || eq[1] == '\0' || eq - text >= NAME_ROOM)
        return spx_fail(e, SPX_EUSAGE, "--%s: '%s' is not NAME=VALUE", option, text);
    (void)snprintf(name, NAME_ROOM, "%.*s", (int)(eq - text), text);
    *rest = eq + 1;
    return SPX_OK;
}

static spx_status choose_setups(const spx_spectra *s, const spx_templates *t, spx_rvfit_input *in, spx_err *e)
{
    char name[NAME_ROOM];
    const char *setup;
    for (size_t a = 0; a < s->narm; a++) {
        in->setup[a] = find_setup(t, s->arm[a].name);
        if (in->setup[a] == NULL && s->narm == 1 && t->nsetup == 1)
            in->setup[a] = &t->setup[0];
    }
    for (size_t i = 0; i < opt_map.n; i++) {
        spx_status st = split(opt_map.value[i], "map", name, &setup, e);
        if (st != SPX_OK)
            return st;
        size_t a = 0;
        while (a < s->narm && strcmp(s->arm[a].name, name) != 0)
            a++;
        if (a == s->narm)
            return spx_fail(e, SPX_EUSAGE, "--map %s: the spectra have no arm '%s'", opt_map.value[i], name);
        if ((in->setup[a] = find_setup(t, setup)) == NULL)
            return spx_fail(e, SPX_EUSAGE, "--map %s: the templates have no setup '%s'", opt_map.value[i], setup);
    }
    for (size_t a = 0; a < s->narm; a++) {
        if (opt_arms != NULL && !in_list(opt_arms, s->arm[a].name))
            in->setup[a] = NULL;
        else if (in->setup[a] == NULL)
            spx_warn("arm '%s' is left out: the templates have no setup of that name (--map %s=SETUP)", s->arm[a].name,
                     s->arm[a].name);
    }
    return SPX_OK;
}

static spx_status keep_targets(const spx_spectra *s, char *take, spx_err *e)
{
    int64_t *id = spx_alloc(opt_targetid.n, sizeof *id, e);
    spx_status st = id == NULL ? SPX_EIO : SPX_OK;
    for (size_t i = 0; i < opt_targetid.n && st == SPX_OK; i++) {
        long value = 0;
        st = spx_parse_long(opt_targetid.value[i], "--targetid", &value, e);
        if (st == SPX_OK)
            id[i] = value;
    }
    if (st == SPX_OK)
        st = spx_spectra_keep_targets(s, opt_targetid.n, id, take, e);
    spx_free(id);
    return st;
}

/* Rows to fit: row[*n], to be freed. SPX_ENO when none is left. */
static spx_status choose_rows(const spx_spectra *s, size_t **row, size_t *n, spx_err *e)
{
    size_t first = 0, count = s->nspec;
    char *take = spx_alloc(s->nspec, 1, e);
    *row = spx_alloc(s->nspec, sizeof **row, e);
    spx_status st = take == NULL || *row == NULL ? SPX_EIO : SPX_OK;
    if (st == SPX_OK && opt_rows != NULL)
        st = spx_parse_slice(opt_rows, "--rows", s->nspec, &first, &count, e);
    for (size_t i = 0; i < count && st == SPX_OK; i++)
        take[first + i] = 1;
    if (st == SPX_OK && !opt_all_fibers)
        st = spx_spectra_drop_sky(s, take, e);
    if (st == SPX_OK && opt_targetid.n > 0)
        st = keep_targets(s, take, e);
    *n = 0;
    for (size_t i = 0; i < s->nspec && st == SPX_OK; i++)
        if (take[i])
            (*row)[(*n)++] = i;
    spx_free(take);
    if (st == SPX_OK && *n == 0)
        st = spx_fail(e, SPX_ENO, "none of the %zu spectra is a star to fit: choose others, or give --all-fibers",
                      s->nspec);
    return st;
}

/* ---- how to fit ---- */

static spx_status parse_pair(const char *text, const char *what, char sep, double *a, double *b, spx_err *e)
{
    double v[2];
    size_t n;
    spx_status st = spx_parse_doubles(text, sep, what, 2, v, &n, e);
    if (st != SPX_OK)
        return st;
    if (n != 2)
        return spx_fail(e, SPX_EUSAGE, "%s: '%s' is not two numbers with a '%c' between", what, text, sep);
    *a = v[0];
    *b = v[1];
    return SPX_OK;
}

/* Number of the quantity called `name`; SPX_MAX_FIT when there is none. */
static size_t quantity(const spx_setup *s, const char *name)
{
    if (strcmp(name, "v") == 0 || strcmp(name, "vrad") == 0)
        return 0;
    if (strcmp(name, "vsini") == 0)
        return 1;
    for (size_t p = 0; p < s->npar; p++)
        if (strcmp(s->parname[p], name) == 0)
            return 2 + p;
    return SPX_MAX_FIT;
}

static spx_status fixed_and_priors(const spx_setup *setup, spx_rvfit_options *o, spx_err *e)
{
    for (size_t i = 0; i < opt_fix.n + opt_prior.n; i++) {
        int fix = i < opt_fix.n;
        const char *text = fix ? opt_fix.value[i] : opt_prior.value[i - opt_fix.n], *rest;
        char name[NAME_ROOM];
        spx_status st = split(text, fix ? "fix" : "prior", name, &rest, e);
        if (st != SPX_OK)
            return st;
        size_t q = quantity(setup, name);
        if (q == SPX_MAX_FIT)
            return spx_fail(e, SPX_EUSAGE, "--%s %s: the templates have no parameter '%s'", fix ? "fix" : "prior", text,
                            name);
        if (fix) {
            st = spx_parse_double(rest, "--fix", &o->value[q], e);
            o->fixed[q] = 1;
        } else {
            st = parse_pair(rest, "--prior", ',', &o->prior_mean[q], &o->prior_sigma[q], e);
            if (st == SPX_OK && !(o->prior_sigma[q] > 0))
                st = spx_fail(e, SPX_EUSAGE, "--prior %s: sigma must be positive", text);
        }
        if (st != SPX_OK)
            return st;
    }
    return SPX_OK;
}

static spx_status configure(const spx_stage *s, const spx_templates *t, spx_rvfit_options *o, spx_err *e)
{
    spx_rvfit_options_init(o);
    o->npoly = (size_t)opt_npoly;
    o->continuum = strcmp(opt_continuum, "rbf") == 0 ? SPX_CONTINUUM_RBF : SPX_CONTINUUM_CHEBYSHEV;
    o->interpolator = opt_interpolator[0] == 'a'   ? SPX_INTERPOLATE_AUTO
                      : opt_interpolator[0] == 'g' ? SPX_INTERPOLATE_GRID
                      : opt_interpolator[0] == 'c' ? SPX_INTERPOLATE_CUBIC
                      : opt_interpolator[0] == 'n' ? SPX_INTERPOLATE_NN
                                                   : SPX_INTERPOLATE_SIMPLEX;
    o->dichroic = opt_dichroic;
    o->resolution = opt_resolution;
    o->lsf_sigma = opt_lsf_sigma;
    o->reject = (int)opt_reject;
    o->reject_sigma = opt_reject_sigma;
    o->keep_model = opt_model;
    o->threads = (int)s->common.threads;
    spx_status st = SPX_OK;
    if (lsf_given && !opt_resolution)
        st = spx_fail(e, SPX_EUSAGE, "--lsf-sigma goes with --resolution-matrix only");
    if (st == SPX_OK && reject_sigma_given && opt_reject == 0)
        st = spx_fail(e, SPX_EUSAGE, "--reject-sigma goes with --reject only");
    if (st == SPX_OK && !opt_rotation && opt_vsini_range != NULL)
        st = spx_fail(e, SPX_EUSAGE, "--vsini-range and --no-rotation exclude each other");
    if (st == SPX_OK && opt_vrange != NULL)
        st = parse_pair(opt_vrange, "--vrange", ',', &o->vmin, &o->vmax, e);
    if (st == SPX_OK && opt_vsini_range != NULL)
        st = parse_pair(opt_vsini_range, "--vsini-range", ',', &o->vsinimin, &o->vsinimax, e);
    if (!opt_rotation)
        o->vsinimin = o->vsinimax = 0;
    return st == SPX_OK ? fixed_and_priors(&t->setup[0], o, e) : st;
}

/* Starts of all rows from the file of --start; *start is to be freed. */
static spx_status read_start(spx_stage *s, const spx_spectra *spectra, spx_rvfit_input *in, const size_t *row,
                             double **start, spx_err *e)
{
    spx_input *file;
    const spx_setup *setup = NULL;
    size_t missing = 0;
    for (size_t a = 0; a < spectra->narm; a++)
        setup = setup == NULL ? in->setup[a] : setup;
    if (setup == NULL)
        return SPX_OK; /* no arm to fit: the stage says so */
    size_t nq = 2 + setup->npar;
    if ((*start = spx_alloc2(in->nrow, nq, sizeof **start, e)) == NULL)
        return SPX_EIO;
    spx_status st = spx_stage_extra_input(s, opt_start, &file, e);
    if (st == SPX_OK)
        st = spx_rvfit_read_start(file->file, spectra, setup, in->nrow, row, *start, e);
    for (size_t i = 0; i < in->nrow && st == SPX_OK; i++)
        missing += !((*start)[i * nq] - (*start)[i * nq] == 0);
    if (st == SPX_OK && missing > 0)
        spx_note("%zu of %zu spectra start from the cross-correlation: %s has no velocity of them", missing, in->nrow,
                 opt_start);
    in->start = *start;
    return st;
}

/* ---- the program ---- */

/* What the user and the provenance should know. SPX_ENO when no star was fitted. */
static spx_status report(spx_stage *s, const spx_spectra *spectra, const spx_rvfit_input *in, const spx_rvfit *r,
                         spx_err *e)
{
    size_t bad = 0, flagged = 0, failed = 0;
    for (size_t i = 0; i < r->nstar; i++) {
        bad += (r->star[i].warn & SPX_RVS_BAD) != 0;
        flagged += r->star[i].warn != 0 && !(r->star[i].warn & SPX_RVS_BAD);
        failed += !r->star[i].success && !(r->star[i].warn & SPX_RVS_BAD);
    }
    if (bad == r->nstar)
        return spx_fail(e, SPX_ENO,
                        "none of %zu spectra could be fitted: no flux, or no good pixels; nothing is written",
                        r->nstar);
    if (bad > 0)
        spx_warn("%zu of %zu spectra could not be fitted (RVS_WARN 32)", bad, r->nstar);
    if (failed > 0)
        spx_warn("%zu of %zu fits did not converge (SUCCESS 0)", failed, r->nstar);
    spx_note("%zu of %zu spectra fitted, %zu with a warning (RVS_WARN)", r->nstar - bad, spectra->nspec, flagged);
    spx_status st = spx_stage_record(s, "stars", e, "%zu", r->nstar);
    if (st == SPX_OK)
        st = spx_stage_record(s, "stars_bad", e, "%zu", bad);
    if (st == SPX_OK)
        st = spx_stage_record(s, "stars_not_converged", e, "%zu", failed);
    for (size_t a = 0; a < spectra->narm && st == SPX_OK; a++) {
        char name[32];
        (void)snprintf(name, sizeof name, "setup_%s", spectra->arm[a].name);
        if (in->setup[a] != NULL)
            st = spx_stage_record(s, name, e, "%s", in->setup[a]->setup);
    }
    return st;
}

static spx_status run(spx_stage *s, spx_err *e)
{
    spx_input *in;
    spx_spectra spectra = {0};
    spx_templates templates = {0};
    spx_rvfit fit = {0};
    spx_rvfit_options o;
    spx_rvfit_input what = {.spectra = &spectra};
    size_t *row = NULL;
    double *start = NULL;
    spx_backend backend = {0};
    spx_err why = {0};
    hid_t file;

    if (opt_templates == NULL)
        return spx_fail(e, SPX_EUSAGE, "no templates: give --templates FILE (rvs-template makes them)");
    if (s->ninput == 0)
        return spx_fail(e, SPX_EUSAGE, "no input file");
    spx_status st = spx_backend_open(&backend, s->common.device, SPX_STAGE_RVFIT, &why, e);
    if (st == SPX_OK)
        spx_stage_device(s, backend.device);
    if (st == SPX_OK && why.code != SPX_OK)
        spx_detail("computes on the CPU: %s", why.msg);

    spx_stage_step(s, "read");
    if (st == SPX_OK)
        st = read_spectra(s, &spectra, e);
    if (st == SPX_OK)
        st = spx_stage_extra_input(s, opt_templates, &in, e);
    if (st == SPX_OK)
        st = spx_templates_read(in->file, NULL, &templates, e);
    if (st == SPX_OK)
        st = choose_setups(&spectra, &templates, &what, e);
    if (st == SPX_OK)
        st = configure(s, &templates, &o, e);
    if (st == SPX_OK)
        st = choose_rows(&spectra, &row, &what.nrow, e);

    if (st == SPX_OK && opt_start != NULL)
        st = read_start(s, &spectra, &what, row, &start, e);

    spx_stage_step(s, "fit");
    if (st == SPX_OK) {
        what.row = row;
        spx_progress *p = spx_progress_start(s->common.progress, "fit", "stars", what.nrow);
        st = backend.rvfit(&backend, &what, &o, p, &fit, e);
        spx_progress_end(p);
        if (st == SPX_EINPUT)
            spx_err_context(e, "%s", opt_templates);
    }
    if (st == SPX_OK)
        st = report(s, &spectra, &what, &fit, e);

    spx_stage_step(s, "write");
    if (st == SPX_OK)
        st = spx_stage_output(s, "rvfit", &file, e);
    if (st == SPX_OK)
        st = spx_rvfit_write(file, &fit, &spectra, e);
    if (st == SPX_OK)
        st = spx_stage_commit(s, e);

    spx_backend_close(&backend);
    spx_free(row);
    spx_free(start);
    spx_rvfit_free(&fit);
    spx_templates_free(&templates);
    spx_spectra_free(&spectra);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "rvs-fit",
                                        .summary = "radial velocities and parameters of stars",
                                        .usage = "--templates FILE [OPTION...] [FILE...]",
                                        .options = options,
                                        .flags = SPX_USES_DEVICE,
                                        .run = run};
    return spx_main(&program, argc, argv);
}
