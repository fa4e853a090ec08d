/* specx-flux: calibrate the fluxes of frames with standard stars. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "common/device_queue.h"
#include "common/flux_options.h"
#include "common/flux_report.h"
#include "common/kernel_options.h"
#include "h5/file.h"
#include "h5/object.h"
#include "products/flux_h5.h"
#include "products/frame_h5.h"
#include "products/hand_on_h5.h"

static spx_flux_args o = {.floor = 0.003, .bytes = sizeof(float)};

static const spx_opt options[] = {
    SPX_OPTION(STRING, "fit", 0, "FILE", o.fit,
               "Fit of the standard stars with their templates, as rvs-fit --with-template writes it",
               .absent = "the one before the frame among the inputs"),
    SPX_OPTION(STRING, "apply", 0, "FILE", o.apply,
               "Find no response, and calibrate with the one of this frame or file (/flux)"),
    SPX_OPTION(STRING, "stars", 0, "LIST", o.stars,
               "Spectra that are standards, such as 3,7,20:25, counted from 0, without the last of a range",
               .absent = "those that the fibermap calls standards, else all good fits"),
    SPX_OPTION(
        STRING, "bands", 0, "FILE|none", o.bands,
        "Telluric bands, within which the response may be rough: two wavelengths a line, Angstrom, or with their unit",
        .absent = "those of O2 and H2O"),
    SPX_OPTION(DOUBLE, "smooth", 0, "WEIGHT", o.smooth,
               "Weight of smoothness outside of these bands, against that of the data in a bin", .min = 1e-4,
               .max = 1e12, .absent = "what the stars say is most likely"),
    SPX_OPTION(DOUBLE, "floor", 0, "FRACTION", o.floor,
               "Smallest relative error of the response, added in quadrature to those of the spectra", .min = 0,
               .max = 0.3),
    SPX_OPTION(CHOICE, "precision", 0, NULL, o.bytes, "Floating-point type of the output",
               .choices = SPX_CHOICES({"float", sizeof(float)}, {"double", sizeof(double)})),
    SPX_OPTION(FLAG, "skip-existing", 0, NULL, o.skip_existing,
               "Keep outputs that exist, and make the others. Without it, one that exists is an error of its frame"),
    {0}};

/* One frame on its way through the program. */
typedef struct {
    spx_queue_item x;
    spx_frame frame;
    spx_star_templates templates; /* of a fit among the inputs */
    spx_flux_standards stars;
    spx_flux flux; /* found */
    double factor; /* of the response that is applied */
    size_t nbad;
    double seconds;
} job;

typedef struct {
    spx_device_queue d; /* first */
    spx_flux_options options;
    spx_bands bands;
    int touched;                  /* by frames: 1, -1: there were frames, and none did */
    spx_input *in;                /* --fit or --apply: an input of each product */
    spx_star_templates templates; /* of --fit */
    spx_flux given;               /* of --apply */
} work;

/* ---- the steps of a frame: see run/queue_run.h for the threads that they run in ---- */

/* SPX_EINPUT when the frame cannot be calibrated. */
static spx_status check_frame(const work *w, const job *j, spx_err *e)
{
    const spx_frame *f = &j->frame;
    if (spx_h5_exists(j->x.in->file, "/flux") || strstr(f->arm.unit, "electron") == NULL)
        return spx_fail_at(e, SPX_EINPUT, NULL, "/frame/flux", "give the frame before calibration",
                           "is in units of '%s'%s, not electrons", f->arm.unit,
                           spx_h5_exists(j->x.in->file, "/flux") ? ", and calibrated already" : "");
    if (o.apply != NULL && strcmp(f->camera, w->given.camera) != 0)
        return spx_fail_at(e, SPX_EINPUT, NULL, "/frame", "give the response of this camera",
                           "is of camera '%s', the response of '%s'", f->camera, w->given.camera);
    return SPX_OK;
}

/* Is there a bin with an error? */
static int has_information(const spx_arm *a, size_t nspec)
{
    size_t i = 0;
    while (i < nspec * a->nwave && !(a->ivar[i] > 0))
        i++;
    return i < nspec * a->nwave;
}

/* The stars of --fit, or of the fit among the inputs. */
static spx_status choose_stars(const work *w, job *j, spx_err *e)
{
    const spx_input *in = spx_queue_fit(&j->x);
    spx_flux_args own = o;
    if ((o.fit != NULL) == (in != NULL))
        return spx_fail(e, SPX_EUSAGE, "give %s--fit FILE, stars that rvs-fit fitted, or --apply FILE, a response",
                        in != NULL ? "a fit among the inputs or " : "");
    if (in == NULL)
        return spx_flux_choose_stars(&o, &w->templates, &j->frame, &j->stars, e);
    own.fit = in->name;
    const spx_status st = spx_star_templates_read(in->file, &j->templates, e);
    return st == SPX_OK ? spx_flux_choose_stars(&own, &j->templates, &j->frame, &j->stars, e) : st;
}

static spx_status read_frame(void *ctx, spx_queue_item *x, spx_err *e)
{
    work *w = ctx;
    job *j = (job *)x;
    spx_frame *f = &j->frame;
    double exptime = 0;
    spx_status st = w->in != NULL ? spx_run_use_input(w->d.s, w->in, 0, e) : SPX_OK;
    if (st == SPX_OK)
        st = spx_frame_read(x->in->file, f, e);
    if (st == SPX_OK && f->arm.mask == NULL &&
        (f->arm.mask = spx_alloc2(f->nspec, f->arm.nwave, sizeof *f->arm.mask, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = check_frame(w, j, e);
    if (st == SPX_OK && w->touched <= 0)
        w->touched = spx_bands_touch(&w->bands, 0, &f->arm) ? 1 : -1;
    const int timed = st == SPX_OK && spx_cards_double(&f->header, "EXPTIME", &exptime) && exptime > 0;
    j->flux.exptime = timed ? exptime : 0;
    j->factor = 1;
    if (st == SPX_OK && o.apply != NULL && timed && w->given.exptime > 0)
        j->factor = exptime / w->given.exptime;
    else if (st == SPX_OK && o.apply != NULL)
        spx_note("%sno exposure time (EXPTIME) in the %s: the response is applied as it is", x->label,
                 timed ? "response" : "frame");
    if (st == SPX_OK && o.apply == NULL)
        st = choose_stars(w, j, e);
    return st == SPX_OK ? SPX_OK : spx_err_at(e, x->name, NULL);
}

static spx_status compute(void *ctx, size_t worker, spx_queue_item *x, spx_err *e)
{
    work *w = ctx;
    job *j = (job *)x;
    spx_frame *f = &j->frame;
    (void)worker;
    const double begin = spx_seconds(), exptime = j->flux.exptime;
    spx_status st = SPX_OK;
    if (o.apply == NULL) {
        st = w->d.backend.flux_solve(&w->d.backend, &f->arm, &j->stars.in, &w->options, &j->flux, e);
        j->flux.exptime = exptime;
        j->flux.floor = o.floor;
        memcpy(j->flux.camera, f->camera, sizeof f->camera);
        memcpy(j->flux.unit, j->stars.unit, sizeof j->flux.unit);
        if (st == SPX_OK && (j->flux.band = spx_alloc2(w->options.nband, 2, sizeof(double), e)) == NULL)
            st = SPX_EIO;
        j->flux.nband = st == SPX_OK ? w->options.nband : 0;
        for (size_t i = 0; i < 2 * j->flux.nband; i++)
            j->flux.band[i] = w->bands.band[i];
        for (size_t i = 0; i < j->flux.nstar; i++)
            j->flux.star[i].targetid = j->stars.targetid[i];
    }
    const spx_flux *used = o.apply != NULL ? &w->given : &j->flux;
    if (st == SPX_OK)
        st = w->d.backend.flux_apply(&w->d.backend, used, j->factor, w->options.nthreads, f->nspec, &f->arm, &j->nbad,
                                     e);
    if (st == SPX_OK && o.apply == NULL && !has_information(&f->arm, f->nspec))
        st = spx_fail(e, SPX_EINPUT, "no wavelength has a response: the standard stars have no light here");
    (void)snprintf(f->arm.unit, sizeof f->arm.unit, "%s", used->unit);
    j->seconds = spx_seconds() - begin;
    return st == SPX_OK ? SPX_OK : spx_err_at(e, x->name, NULL);
}

static spx_status write_frame(void *ctx, spx_queue_item *x, spx_err *e)
{
    const work *w = ctx;
    job *j = (job *)x;
    const spx_flux *used = o.apply != NULL ? &w->given : &j->flux;
    hid_t file;
    spx_run_seconds(w->d.s, "flux", j->seconds);
    spx_status st =
        spx_flux_report(w->d.s, j->x.label, used, o.apply == NULL ? j->stars.how : NULL, j->factor, j->nbad, e);
    if (st == SPX_OK)
        st = spx_run_output(w->d.s, "frame", &file, e);
    if (st == SPX_OK)
        st = spx_frame_write(file, &j->frame, o.bytes, spx_run_writes(w->d.s), e);
    if (st == SPX_OK)
        st = spx_flux_write(file, used, e);
    return st == SPX_OK ? spx_blocks_hand_on(x->in->file, file, e) : st;
}

static void clear(void *ctx, spx_queue_item *x)
{
    job *j = (job *)x;
    (void)ctx;
    spx_flux_free(&j->flux);
    spx_flux_standards_free(&j->stars);
    spx_star_templates_free(&j->templates);
    spx_frame_free(&j->frame);
}

/* The fit, or the response, and options of the kernel. */
static spx_status prepare(work *w, spx_err *e)
{
    spx_flux_options_init(&w->options);
    w->options.smooth = o.smooth;
    w->options.nthreads = (int)w->d.s->common.threads;
    if (o.fit != NULL && o.apply != NULL)
        return spx_fail(e, SPX_EUSAGE,
                        "give only one of --fit FILE, stars that rvs-fit fitted, or --apply FILE, a response");
    if (o.apply != NULL && (o.stars != NULL || o.bands != NULL))
        return spx_fail(e, SPX_EUSAGE,
                        "--stars and --bands are for a response that is to be found: leave them out with "
                        "--apply");
    spx_status st = spx_flux_read_bands(w->d.s, o.bands, &w->bands, e);
    w->options.nband = w->bands.n;
    w->options.band = w->bands.band;
    if (o.fit == NULL && o.apply == NULL)
        return st;
    if (st == SPX_OK)
        st = spx_run_extra_input(w->d.s, o.fit != NULL ? o.fit : o.apply, &w->in, e);
    if (st == SPX_OK && o.apply != NULL && !spx_h5_exists(w->in->file, "/flux"))
        return spx_fail_at(e, SPX_EINPUT, w->in->name, "/flux", "give a frame that specx-flux calibrated",
                           "is missing: there is no response");
    if (st == SPX_OK)
        st = o.fit != NULL ? spx_star_templates_read(w->in->file, &w->templates, e)
                           : spx_flux_read(w->in->file, &w->given, e);
    return st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_queue *queue = NULL;
    work w = {.d = {.s = s, .op = SPX_OP_FLUX}};
    spx_status st = prepare(&w, e);
    if (st == SPX_OK)
        st = spx_queue_open(s, SPX_QUEUE_FIT_FRAMES, o.skip_existing, &queue, e);
    if (st == SPX_OK)
        st = spx_device_queue_run(queue,
                                  (spx_queue_steps){.ctx = &w,
                                                    .size = sizeof(job),
                                                    .what = "flux",
                                                    .read = read_frame,
                                                    .compute = compute,
                                                    .write = write_frame,
                                                    .clear = clear},
                                  e);
    spx_star_templates_free(&w.templates);
    spx_flux_free(&w.given);
    if (st == SPX_OK && o.bands != NULL && w.touched < 0)
        spx_bands_warn(&w.bands, 0, "--bands", o.bands);
    spx_free(w.bands.band);
    spx_queue_close(queue);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "specx-flux",
                                        .summary = "calibrate the fluxes of frames with standard stars",
                                        .usage = "--fit FILE [OPTION...] [FILE...]",
                                        .example = "specx-flux --fit rv.h5 -o cframe.h5 sframe.h5",
                                        .options = options,
                                        .flags = SPX_USES_DEVICE,
                                        .run = run};
    spx_err_options(spx_kernel_options);
    return spx_main(&program, argc, argv);
}
