/* specx-extract: CCD image and PSF to spectra with inverse variance and resolution matrix. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "common/device.h"
#include "common/extract_devices.h"
#include "common/extract_options.h"
#include "common/extract_report.h"
#include "common/kernel_options.h"
#include "common/plausible_inputs.h"
#include "products/frame.h"
#include "products/frame_barycentre.h"
#include "products/frame_h5.h"
#include "products/hand_on_h5.h"
#include "products/image.h"
#include "products/psf.h"
#include "products/site.h"
#include "products/spectra.h"
#include "psf/psf.h"
#include "run/queue_run.h"

/* Frames in work on the CPU besides those that are computed: one is read, one written. */
enum { BESIDES = 2 };

static spx_extract_args o = {.bytes = sizeof(float),
                             .method = SPX_METHOD_TRACE,
                             .bundle_size = 25,
                             .sub_bundles = 5,
                             .wave_step = 50,
                             .widest = 1.6,
                             .sigmas = 1.4,
                             .round_step = 1,
                             .tolerance = 1e-8};

static const spx_opt options[] = {
    SPX_OPTION(STRING, "wavelength", 'w', "MIN,MAX,STEP", o.wavelength, "Wavelengths to extract, Angstrom in vacuum",
               .absent =
                   "all that every trace has on the CCD, in steps of 0.8, or, where these are above 1.6 or below 0.8 "
                   "sigma of the spots along the traces, of a round number from 1.1 to 1.4 sigma"),
    SPX_OPTION(STRING, "spectra", 's', "FIRST:LAST", o.spectra, "Fibres to extract, counted from 0, without LAST",
               .absent = "all"),
    SPX_OPTION(FLAG, "barycentric", 0, NULL, o.barycentric,
               "Make wavelengths barycentric, for each fibre by its own position. The velocities go into the fibermap"),
    SPX_OPTION(STRING, "site", 0, "NAME|LON,LAT,HEIGHT", o.site,
               "Observatory, for --barycentric: degrees east, degrees, metres", .absent = "that of the image's header"),
    SPX_OPTION(FLAG, "model", 'm', NULL, o.model, "Add the model of the image to the output"),
    SPX_OPTION(CHOICE, "precision", 0, NULL, o.bytes, "Floating-point type of the output",
               .choices = SPX_CHOICES({"float", sizeof(float)}, {"double", sizeof(double)})),
    SPX_OPTION(
        DOUBLE, "reject", 0, "N", o.reject,
        "Find cosmic-ray hits, and leave out pixels more than N errors above the model; 5 is a good value. 0: none",
        .min = 0, .max = 1e6),
    SPX_OPTION(CHOICE, "variance", 0, NULL, o.variance,
               "Variance of the pixels: the image's, or read noise and photons of the smoothed model",
               .choices = SPX_CHOICES({"data", SPX_VARIANCE_DATA}, {"model", SPX_VARIANCE_MODEL})),
    SPX_OPTION(
        CHOICE, "tail", 0, NULL, o.tail,
        "Tail of the PSF, where it has one: taken off the image; within the spots alone, and light beyond stays; "
        "or not at all",
        .choices = SPX_CHOICES({"psf", SPX_TAIL_ALL}, {"near", SPX_TAIL_NEAR}, {"none", SPX_TAIL_NONE})),
    SPX_OPTION(DOUBLE, "background", 0, "N", o.background,
               "Fit smooth light between and beneath the spectra, in cells of N pixels, and take it off; 512 is a good "
               "value. 0: there is none",
               .min = 0, .max = 1e6),
    SPX_OPTION(STRING, "sky-lines", 0, "oi|W,W,...", o.sky_lines,
               "Sky lines whose place between bins matters: bright ones of oxygen, or wavelengths", .absent = "none"),
    SPX_OPTION(STRING, "psf-error", 0, "FRACTION", o.psf_error,
               "Error of the PSF model, a fraction, in the chi2 of the fit", .absent = "the PSF's own"),
    SPX_OPTION(FLAG, "strict", 0, NULL, o.strict,
               "Write nothing when any trace or patch has no solution. Without it, they are flagged"),
    SPX_OPTION(FLAG, "skip-existing", 0, NULL, o.skip_existing,
               "Keep outputs that exist, and make the others. Without it, one that exists is an error of its frame"),
    SPX_OPTION_ALLOW(o.allow),
    SPX_HEADING_LAST("Method"),
    SPX_OPTION(CHOICE, "method", 0, NULL, o.method,
               "Solve whole traces with banded algebra, or patch by patch with dense algebra",
               .choices = SPX_CHOICES({"trace", SPX_METHOD_TRACE}, {"patch", SPX_METHOD_PATCH})),
    SPX_OPTION(
        DOUBLE, "tolerance", 0, "T", o.tolerance,
        "Accuracy of traces, in units of the flux error. Of errors and resolution it is a fraction. Spots of two "
        "cores have 1e-4 without this option",
        .min = 1e-13, .max = 1e-2, .given = &o.tolerance_given),
    SPX_OPTION(INT, "bundle-size", 0, "N", o.bundle_size,
               "Fibres in a bundle, where it is given or the PSF does not name its bundles. Bundles share no light",
               .min = 1, .max = 1e6, .given = &o.bundle_size_given),
    SPX_OPTION(INT, "sub-bundles", 0, "N", o.sub_bundles,
               "For patches: groups that the fibres of a bundle are solved in", .min = 1, .max = 1e6,
               .given = &o.sub_bundles_given),
    SPX_OPTION(
        INT, "wave-step", 0, "N", o.wave_step,
        "Bins that are kept of a patch; for traces, half-width of the regularisation window. The largest weight in "
        "this window around a bin sets the threshold below which the bin is regularised",
        .min = 1, .max = 30000),
    SPX_OPTION(INT, "wave-pad", 0, "N", o.wave_pad, "Bins that are solved beyond those that are kept, at both ends",
               .absent = "40 for traces, 12 for patches", .min = 0, .max = 30000, .given = &o.wave_pad_given,
               .no_default = 1),
    SPX_OPTION(DOUBLE, "pix-pad-frac", 0, "FRACTION", o.pix_pad_frac,
               "Fraction used of the pixel rows that only this padding reaches",
               .absent = "0.9 for traces, 0.8 for patches", .min = 0, .max = 1, .given = &o.pix_pad_frac_given,
               .no_default = 1),
    SPX_OPTION(BYTES, "max-device-mem", 0, "SIZE", o.max_device_mem,
               "Memory to use on each GPU, such as 4G. A frame that needs more is worked on in parts", .min = 16 << 20,
               .absent = "what is free"),
    SPX_OPTION(DOUBLE, "regularize", 0, "ALPHA", o.regularize,
               "Pull the deconvolved flux to 0 with weight ALPHA squared", .min = 0, .max = 1e6),
    {0}};

/* One exposure on its way through the program. */
typedef struct {
    spx_queue_item x;
    const spx_psf *psf; /* the exposure's, or one of the next two */
    spx_psf bare;       /* with --tail none: without its tail; shares its arrays */
    spx_psf stretched;  /* with --barycentric: on barycentric wavelengths */
    double *factor;     /* of the PSF's fibres, with --barycentric; else NULL */
    spx_extract_options o;
    spx_extract_counts counts;
    spx_frame frame;
    spx_frame_quality quality;
    spx_extract_border border;
    uint32_t *odd; /* traces that cannot be right; NULL: none */
    double *scores, seconds;
    spx_hook_results insitu;
    char arm[SPX_ARM_NAME];
} job;

/* What computes. */
typedef struct {
    spx_run *s;
    unsigned allowed; /* rules of plausibility that only warn */
    size_t nworker, total;
    spx_extract_devices devices;
    spx_hook *hook;
    int opened;
    pthread_mutex_t opening; /* held by the worker that opens */
    spx_err failed;          /* the backend could not be opened */
    atomic_size_t most;      /* frames in work; see run/queue_run.h */
    atomic_int stop;
} work;

/* With --barycentric: the PSF on barycentric wavelengths in place of the PSF, and the factor of each of its fibres. */
static spx_status to_barycentre(job *j, unsigned allowed, spx_err *e)
{
    spx_site site;
    spx_directions where = {0};
    if (!o.barycentric)
        return o.site == NULL ? SPX_OK : spx_fail(e, SPX_EUSAGE, "--site goes with --barycentric only");
    spx_status st = o.site != NULL ? spx_site_parse(o.site, &site, e) : SPX_OK;
    if (st == SPX_OK && (j->factor = spx_alloc(j->psf->nspec, sizeof *j->factor, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = spx_image_barycentric(&j->x.image, j->psf, o.site != NULL ? &site : NULL, j->factor, &where, e);
    if (st == SPX_OK)
        st = spx_plausible_directions(&where, allowed, j->x.label, e);
    if (st == SPX_OK)
        st = spx_psf_to_barycentre(j->psf, j->factor, &j->stretched, e);
    if (st == SPX_OK && where.nowhere > 0)
        spx_note("%s%zu of %zu fibres have no position: they get the velocity of the others' mean direction",
                 j->x.label, where.nowhere, j->psf->nspec);
    if (st == SPX_OK)
        j->psf = &j->stretched;
    return st;
}

/* ---- the steps of a frame: see run/queue_run.h for the threads that they run in ---- */

static spx_status read_frame(void *ctx, spx_queue_item *x, spx_err *e)
{
    work *w = ctx;
    job *j = (job *)x;
    j->psf = x->psf;
    spx_status st = spx_plausible_pair(&x->image, j->psf, w->allowed, x->label, &j->odd, e);
    if (o.tail == SPX_TAIL_NONE && spx_psf_has_tail(j->psf)) {
        j->bare = *j->psf;
        spx_psf_drop_tail(&j->bare);
        j->psf = &j->bare;
    }
    if (st == SPX_OK)
        st = to_barycentre(j, w->allowed, e);
    if (st == SPX_OK)
        st = spx_extract_args_options(&o, (int)w->s->common.threads, &x->image, j->psf, &j->o, e);
    j->o.line_factor = j->factor;
    if (st == SPX_EUSAGE) /* of all frames */
        atomic_store(&w->stop, 1);
    if (st == SPX_OK)
        st = spx_extract_borders(j->psf, &j->o, &j->border, e);
    return st == SPX_OK ? spx_frame_inherit(&j->frame, &x->image, j->psf, j->o.first, j->o.nspec, e) : st;
}

/* The backend is opened while the first image is read, by the worker that comes first; the others wait for it. */
static void start(void *ctx, size_t worker)
{
    work *w = ctx;
    (void)worker;
    (void)pthread_mutex_lock(&w->opening);
    if (!w->opened) {
        const double begin = spx_seconds();
        if (spx_open_device(w->s, SPX_OP_EXTRACT, &w->devices.backend, &w->failed) != SPX_OK)
            atomic_store(&w->stop, 1);
        else if (spx_extract_on_cpu(&w->devices, w->nworker, (size_t)w->s->common.threads)) /* perhaps by auto */
            atomic_store(&w->most, w->devices.at_once + BESIDES);
        spx_detail("open %s: %.3f s", w->s->common.device, spx_seconds() - begin);
        w->opened = 1;
    }
    (void)pthread_mutex_unlock(&w->opening);
}

static spx_status compute(void *ctx, size_t worker, spx_queue_item *x, spx_err *e)
{
    work *w = ctx;
    job *j = (job *)x;
    spx_score_range range;
    if (w->failed.code != SPX_OK)
        return w->failed.code; /* said once, at the end */
    const double begin = spx_seconds();
    if (w->total == 1)
        j->o.progress =
            spx_progress_start(w->s->common.progress, "extract", j->o.method == SPX_METHOD_TRACE ? "traces" : "patches",
                               spx_extract_units(j->psf, &j->o));
    j->o.hook = w->hook;
    /* frames share the devices, and a frame has them all when it is alone */
    j->o.device = -1;
    j->o.queued = w->nworker > 1;
    if (w->nworker > 1) /* half of them wait for the device */
        j->o.nthreads = (int)((2 * (size_t)j->o.nthreads + w->nworker - 1) / w->nworker);
    spx_extract_devices *d = &w->devices;
    spx_status st = w->total != 1 ? spx_extract_on_one(d, worker, &x->image, j->psf, &j->o, &j->frame, &j->counts, e)
                                  : d->backend.extract(&d->backend, &x->image, j->psf, &j->o, &j->frame, &j->counts, e);
    spx_progress_end(j->o.progress);
    spx_image_drop_pixels(&x->image);
    if (st == SPX_OK)
        st = spx_hook_finish(w->hook, &j->insitu, e);
    if (w->total == 1)
        spx_close_device_begin(&w->devices.backend, &w->devices.closing);
    if (st == SPX_EHOOK)
        atomic_store(&w->stop, 1);
    if (st == SPX_OK && (j->scores = spx_alloc2(3, j->frame.nspec, sizeof *j->scores, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK) {
        const size_t n = j->frame.nspec;
        st = spx_extract_scores(&j->frame, j->o.nthreads, j->scores, j->scores + n, j->scores + 2 * n, &range, e);
        memcpy(j->arm, range.arm, sizeof j->arm);
    }
    if (st == SPX_OK)
        st = spx_extract_quality(&j->frame, j->o.psf_error < 0 ? j->psf->psferr : j->o.psf_error, j->o.nthreads,
                                 &j->quality, e);
    j->seconds = spx_seconds() - begin;
    return st;
}

static spx_status write_frame(void *ctx, spx_queue_item *x, spx_err *e)
{
    const work *w = ctx;
    job *j = (job *)x;
    const size_t n = j->frame.nspec;
    hid_t file;
    spx_extract_record_seconds(w->s, j->x.label, j->seconds, &j->counts);
    spx_run_insitu(w->s, &j->insitu);
    spx_status st = j->factor != NULL ? spx_frame_set_barycentric(&j->frame, j->factor, e) : SPX_OK;
    if (st == SPX_OK)
        st = spx_frame_set_scores(&j->frame, j->arm, j->scores, j->scores + n, j->scores + 2 * n, e);
    if (st == SPX_OK)
        st = spx_extract_report(w->s, j->x.label, &j->o, &j->counts, &j->frame, j->psf, o.strict, e);
    if (st == SPX_OK)
        st = spx_plausible_frame(w->s, j->x.label, &j->frame, &j->quality, &j->border, j->odd, w->allowed, e);
    if (st == SPX_OK)
        st = spx_run_output(w->s, "frame", &file, e);
    if (st == SPX_OK)
        st = spx_frame_write(file, &j->frame, o.bytes, spx_run_writes(w->s), e);
    return st == SPX_OK ? spx_traces_hand_on(spx_queue_psf_file(x), file, e) : st;
}

static void clear(void *ctx, spx_queue_item *x)
{
    job *j = (job *)x;
    (void)ctx;
    spx_psf_free(&j->stretched);
    spx_frame_free(&j->frame);
    spx_hook_results_free(&j->insitu);
    spx_free(j->scores);
    spx_free(j->factor);
    spx_free(j->odd);
    j->scores = j->factor = NULL;
    j->odd = NULL;
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_queue *queue = NULL;
    work w = {.s = s, .opening = PTHREAD_MUTEX_INITIALIZER};
    spx_status st = spx_extract_args_complete(&o, e);
    spx_backend_restrict(s->common.device);
    if (st == SPX_OK)
        st = spx_rules_allow("specx-extract", &o.allow, &w.allowed, e);
    if (st == SPX_OK)
        st = spx_queue_open(s, SPX_QUEUE_IMAGES, o.skip_existing, &queue, e);
    if (st == SPX_OK && o.variance == SPX_VARIANCE_MODEL)
        spx_queue_need_noise(queue);
    if (st == SPX_OK) {
        w.total = spx_queue_total(queue);
        if (w.total == 1) /* as fast with one, and each takes 13 ms to be made */
            spx_device_queues(1);
        /* a hook sees one frame after another */
        w.nworker = spx_extract_workers(s->common.device, w.total, s->common.hook != NULL, (size_t)s->common.threads,
                                        &w.devices.n);
        st = spx_extract_args_device(&o, &s->common.device, e);
    }
    if (st == SPX_OK && (w.devices.lost = spx_alloc(w.devices.n, sizeof *w.devices.lost, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = spx_run_hook(s, &w.hook, e);
    if (st == SPX_OK) {
        const spx_queue_steps steps = {.ctx = &w,
                                       .size = sizeof(job),
                                       .nworker = w.nworker,
                                       .what = "extract",
                                       .start = start,
                                       .read = read_frame,
                                       .compute = compute,
                                       .write = write_frame,
                                       .clear = clear,
                                       .most = &w.most,
                                       .stop = &w.stop};
        st = spx_queue_run(queue, &steps, e);
    }
    if (w.failed.code != SPX_OK)
        st = spx_err_pass(e, &w.failed);
    spx_close_device(&w.devices.backend, &w.devices.closing);
    spx_queue_close(queue);
    spx_free(w.devices.lost);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "specx-extract",
                                        .summary = "extract spectra from a CCD image",
                                        .usage = "[OPTION...] [FILE...]",
                                        .example = "specx-extract -o frame.h5 image.h5 psf.h5",
                                        .options = options,
                                        .flags = SPX_USES_DEVICE | SPX_USES_HOOK | SPX_USES_BLAS,
                                        .run = run};
    spx_err_options(spx_kernel_options);
    return spx_main(&program, argc, argv);
}
