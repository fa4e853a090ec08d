/* specx-shift: measure how far the traces of an exposure have moved, and move its PSF. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "common/device_queue.h"
#include "common/extract_options.h"
#include "common/kernel_options.h"
#include "common/plausible_inputs.h"
#include "common/shift_options.h"
#include "common/shift_report.h"
#include "common/sky_options.h"
#include "h5/file.h"
#include "h5/object.h"
#include "products/frame.h"
#include "products/frame_h5.h"
#include "products/hand_on_h5.h"
#include "products/psf_h5.h"
#include "products/shift_h5.h"

static spx_shift_args o = {.windows = 6, .window = 60, .bundle_size = 25};

static const spx_opt options[] = {
    SPX_OPTION(STRING, "wavelength", 'w', "MIN,MAX,STEP", o.wavelength,
               "Wavelengths to measure, Angstrom in vacuum, in bins of STEP",
               .absent = "those of /frame; without it, all that every trace has on the CCD, in steps of 0.8, or, where "
                         "these are above 1.25 or below 0.8 sigma of the spots along the traces, of 1.1 sigma"),
    SPX_OPTION(FLAG, "lamp", 0, NULL, o.lamp,
               "All fibres see the same lamp, not a sky: an arc, or any light with lines"),
    SPX_OPTION(
        STRING, "lines", 0, "sky|arc|none|FILE", o.lines,
        "Lines for the zero point of the wavelengths: of the night sky, of Hg, Cd, Ne, Ar, Kr and Xe, none, or a "
        "text file with vacuum wavelength and strength",
        .absent = "sky; with --lamp, arc"),
    SPX_OPTION(STRING, "sky-fibers", 0, "LIST", o.sky_fibers,
               "Fibres that see nothing but sky, such as 3,7,20:25, counted from 0, without the last of a range",
               .absent = "OBJTYPE SKY in the fibermap"),
    SPX_OPTION(FLAG, "no-width", 0, NULL, o.no_width, "Leave the widths of the spots as they are"),
    SPX_OPTION(FLAG, "psf-only", 0, NULL, o.psf_only, "Write the PSF and the shifts, without the image"),
    SPX_OPTION(FLAG, "skip-existing", 0, NULL, o.skip_existing,
               "Keep outputs that exist, and make the others. Without it, one that exists is an error of its exposure"),
    SPX_OPTION_ALLOW(o.allow),
    SPX_HEADING_LAST("Method"),
    SPX_OPTION(STRING, "terms-x", 0, "WAVELENGTH,FIBER", o.terms_x,
               "Degrees of the smooth functions for shifts and widths across the traces",
               .absent = "3, and what the number of fibres bears, at most 7"),
    SPX_OPTION(STRING, "terms-y", 0, "WAVELENGTH,FIBER", o.terms_y,
               "The same along the traces: of each fibre, and of the prior that fibres have in common, as far as the "
               "fibres show them",
               .absent = "3,4; of lamps, which all fibres see, 3,6"),
    SPX_OPTION(INT, "windows", 0, "N", o.windows, "Windows of each fibre in which the image is looked at", .min = 1,
               .max = 64),
    SPX_OPTION(DOUBLE, "window-length", 0, "ANGSTROM", o.window, "Length of a window, at least: large spots need more",
               .min = 5, .max = 10000, .given = &o.window_given,
               .absent = "60, or 75 sigma of the spots along the traces, where 60 are below 30"),
    SPX_OPTION(INT, "bundle-size", 0, "N", o.bundle_size,
               "Fibres in a bundle, where it is given or the PSF does not name its bundles. Bundles share no light",
               .min = 1, .max = 256, .given = &o.bundle_size_given),
    SPX_OPTION(BYTES, "max-device-mem", 0, "SIZE", o.max_device_mem,
               "Memory of a GPU that the extraction of an exposure takes, such as 4G. One that needs more is worked on "
               "in parts",
               .min = 16 << 20, .absent = "what is free"),
    {0}};

/* Exposures that are measured at a time on a device: much of one is found on the host. More are faster in memory
 * (bench_shift), but not where files must be read, nor in a night, of which other processes share the device. */
enum { WORKERS = 2 };

/* One exposure on its way through the program. */
typedef struct {
    spx_queue_item x;
    spx_psf psf; /* moved */
    spx_extract_options extract;
    spx_shift_options o;
    spx_frame frame;
    spx_shift shift;
    spx_extract_border border;
    uint32_t *odd;                  /* traces that cannot be right; NULL: none */
    double *valid_range;            /* swap_ranges() */
    spx_line_places places;         /* of lines in the sky, or lamp, that fibres share */
    spx_fallback left;              /* bundles, in windows and whole, and those that a device left to the CPU */
    double seconds, device_seconds; /* all, and of the device's kernels */
} job;

typedef struct {
    spx_device_queue d; /* first */
    spx_shift_options o;
    spx_sky_terms terms;
    size_t degree;
    spx_shift_lines lines;
    unsigned allowed; /* rules of plausibility that only warn */
    spx_extract_tails *tails[WORKERS];
} work;

/* A job with what computes it: context of the engine. */
typedef struct {
    work *w;
    job *j;
} task;

/* Adds what an operation's kernels took. Another worker's may be noted meanwhile: they are alike. */
static void add_device_seconds(task *t)
{
    double seconds;
    __atomic_load(&t->w->d.backend.device_seconds, &seconds, __ATOMIC_RELAXED);
    t->j->device_seconds += seconds;
}

static spx_status measure(void *ctx, const spx_image *image, const spx_psf *psf, const spx_motion_options *m,
                          spx_motion_row *row, spx_motion_fit *fit, spx_err *e)
{
    task *t = ctx;
    spx_backend *b = &t->w->d.backend;
    spx_fallback left;
    const spx_status st = b->motion(b, image, psf, m, row, fit, &left, e);
    spx_fallback_add(&t->j->left, &left);
    add_device_seconds(t);
    return st;
}

static spx_status extract(void *ctx, const spx_image *image, const spx_psf *psf, spx_frame *frame, spx_err *e)
{
    task *t = ctx;
    spx_extract_counts counts;
    spx_status st = spx_frame_inherit(frame, image, psf, t->j->extract.first, t->j->extract.nspec, e);
    if (st == SPX_OK)
        st = t->w->d.backend.extract(&t->w->d.backend, image, psf, &t->j->extract, frame, &counts, e);
    if (st == SPX_OK) {
        spx_fallback_add(&t->j->left, &counts.fallback);
        t->j->device_seconds += counts.device_seconds;
    }
    return st;
}

static spx_status zero_point(void *ctx, const spx_image *image, const spx_psf *psf, const spx_shift_common *in,
                             const spx_shift_lines *lines, spx_shift_zero *zero, spx_err *e)
{
    task *t = ctx;
    spx_backend *b = &t->w->d.backend;
    const spx_status st = b->zero_point(b, image, psf, in, lines, zero, e);
    add_device_seconds(t);
    return st;
}

/* The sky of a frame, by its sky fibres, or the lamp of all. */
static spx_status find_sky(void *ctx, const spx_frame *frame, const double *usual, const double *moved, spx_sky *sky,
                           int *found, spx_err *e)
{
    task *t = ctx;
    const spx_sky_args args = {.sky_fibers = o.sky_fibers != NULL ? o.sky_fibers : o.lamp ? "0:" : NULL};
    spx_sky_options so = spx_sky_defaults();
    spx_sky_scene scene = {0};
    double together[SPX_SKY_MOST] = {0};
    so.terms = t->w->terms;
    so.degree = t->w->degree;
    memcpy(together + so.terms.nt, usual, so.terms.nd * sizeof *usual);
    so.together = together; /* the slit */
    so.quantities = 1;
    so.nthreads = t->w->o.nthreads;
    if (o.lamp) /* lines so bright that any misfit of the grid is many errors */
        so.reject = 0;
    *found = args.sky_fibers != NULL || frame->fibermap != NULL;
    if (!*found)
        return SPX_OK;
    spx_status st = spx_sky_scene_make(&args, t->j->x.label, frame, NULL, &scene, e);
    size_t nsky = 0;
    for (size_t i = 0; i < frame->nspec && st == SPX_OK; i++)
        nsky += scene.role[i] == SPX_SKY_FIBRE;
    *found = nsky > 1;
    if (st == SPX_OK && !*found)
        spx_warn("%s%zu sky fibres: two or more are needed for shifts along the traces; give --sky-fibers, or --lamp "
                 "where all fibres see the same light",
                 t->j->x.label, nsky);
    if (st == SPX_OK && *found && o.lamp)
        spx_shift_lamp_variance(frame->nspec, frame->arm.nwave, frame->arm.flux, scene.ivar);
    scene.in.moved = moved;
    if (st == SPX_OK && *found)
        st = t->w->d.backend.sky(&t->w->d.backend, &scene.in, &so, sky, e);
    if (st == SPX_OK && *found)
        add_device_seconds(t);
    if (st == SPX_OK && *found && !sky->converged && sky->change > SPX_SKY_UNSETTLED) {
        *found = 0;
        spx_warn("%sthe sky of %zu fibres has not converged: no shifts along the traces", t->j->x.label, sky->nsky);
    }
    if (st == SPX_OK && *found)
        st = spx_find_line_places(&t->j->psf, frame->arm.nwave, frame->arm.wavelength, sky->s, sky->bad, &t->w->lines,
                                  &t->j->places, e);
    spx_sky_scene_free(&scene);
    return st;
}

/* ---- the steps of an exposure: see run/queue_run.h for the threads that they run in ---- */

/* The PSF's ranges of wavelengths, in which traces that cannot be right are used nowhere, and its own again. */
static void swap_ranges(job *j)
{
    double *const other = j->valid_range;
    j->valid_range = j->psf.valid_range;
    j->psf.valid_range = other;
}

static spx_status read_exposure(void *ctx, spx_queue_item *x, spx_err *e)
{
    const work *w = ctx;
    job *j = (job *)x;
    const spx_extract_args args = {.wavelength = o.wavelength,
                                   .method = SPX_METHOD_TRACE,
                                   .bundle_size = o.bundle_size,
                                   .bundle_size_given = o.bundle_size_given,
                                   .wave_step = 50,
                                   .wave_pad = 40,
                                   .pix_pad_frac = 0.9,
                                   .widest = SPX_SHIFT_WIDEST,
                                   .sigmas = SPX_SHIFT_BIN,
                                   .max_device_mem = o.max_device_mem,
                                   .tolerance = SPX_SHIFT_TOLERANCE};
    spx_status st = spx_plausible_pair(&x->image, x->psf, w->allowed, x->label, &j->odd, e);
    if (st == SPX_OK)
        st = spx_shift_psf_copy(x->psf, &j->psf, e);
    if (st == SPX_OK && j->odd != NULL && (st = spx_plausible_ranges(&j->psf, j->odd, &j->valid_range, e)) == SPX_OK)
        swap_ranges(j);
    const int has_frame = o.wavelength == NULL && spx_h5_exists(x->in->file, "/frame");
    if (st == SPX_OK && has_frame)
        st = spx_frame_read(x->in->file, &j->frame, e);
    if (st == SPX_OK)
        st = spx_extract_args_options(&args, w->o.nthreads, &x->image, x->psf, &j->extract, e);
    if (st == SPX_OK)
        st = spx_extract_borders(x->psf, &j->extract, &j->border, e);
    if (st == SPX_OK && has_frame)
        st = spx_shift_args_frame(x->label, x->name, x->psf, &j->frame, &j->extract, e);
    j->o = w->o;
    j->o.wmin = j->extract.wmin;
    j->o.wmax = j->extract.wmax;
    j->o.dw = j->extract.dw;
    j->o.window = spx_shift_args_window(&o, x->psf);
    j->o.bundle_size = j->extract.bundle_size;
    j->o.psf_bundles = j->extract.psf_bundles;
    if (st == SPX_OK)
        spx_shift_say_given(&o, &w->lines, x->psf, &j->o, x->label);
    return st;
}

static spx_status compute(void *ctx, size_t worker, spx_queue_item *x, spx_err *e)
{
    work *w = ctx;
    job *j = (job *)x;
    task t = {w, j};
    const spx_shift_engine g = {&t, measure, extract, find_sky, zero_point};
    const double begin = spx_seconds();
    /* tails of other fibres would make spots wider; what spots have within their pixels stays */
    spx_status st = spx_extract_take_tails(&x->image, &j->psf, &j->extract, &w->tails[worker], e);
    j->extract.tail_corrections = 0;
    if (st == SPX_OK)
        st = spx_shift_traces(&g, &x->image, &j->frame, &w->lines, &j->o, &j->psf, &j->shift, e);
    spx_image_drop_pixels(&x->image);
    j->seconds = spx_seconds() - begin;
    return st;
}

static spx_status write_psf(void *ctx, spx_queue_item *x, spx_err *e)
{
    const work *w = ctx;
    job *j = (job *)x;
    hid_t file;
    spx_run_seconds(w->d.s, "shift", j->seconds);
    if (j->device_seconds > 0)
        spx_run_seconds(w->d.s, "shift.device", j->device_seconds);
    spx_status st = spx_run_fallback(w->d.s, x->label, &j->left, e);
    if (st == SPX_OK)
        st = spx_shift_report(w->d.s, x->label, &j->shift, e);
    unsigned broken = 0;
    if (st == SPX_OK)
        broken = (j->odd != NULL ? 1u << SPX_RULE_FIBRES : 0) | spx_plausible_bundles(x->label, &j->border) |
                 spx_plausible_moved(x->label, &j->shift) |
                 spx_plausible_lines(x->label, &j->places, "rows", 0.5 * (j->o.wmin + j->o.wmax));
    if (st == SPX_OK)
        st = spx_run_output(w->d.s, "psf", &file, e);
    if (j->odd != NULL)
        swap_ranges(j);
    if (st == SPX_OK)
        st = spx_psf_write(file, &j->psf, e);
    if (st == SPX_OK)
        st = spx_shift_write(file, &j->shift, e);
    if (st == SPX_OK)
        st = spx_plausible_flag(w->d.s, file, "/shift", broken, e);
    if (st == SPX_OK && !o.psf_only)
        st = spx_exposure_hand_on(x->in->file, file, e);
    return st;
}

static void clear(void *ctx, spx_queue_item *x)
{
    job *j = (job *)x;
    (void)ctx;
    spx_psf_free(&j->psf);
    spx_frame_free(&j->frame);
    spx_shift_free(&j->shift);
    spx_free(j->odd);
    spx_free(j->valid_range);
    j->odd = NULL;
    j->valid_range = NULL;
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_queue *queue = NULL;
    work w = {.d = {.s = s, .op = SPX_OP_SHIFT, .nworker = WORKERS}};
    spx_backend_restrict(s->common.device);
    spx_status st = spx_rules_allow("specx-shift", &o.allow, &w.allowed, e);
    if (st == SPX_OK)
        st = spx_shift_args_options(&o, (int)s->common.threads, &w.o, &w.terms, &w.degree, e);
    if (st == SPX_OK && o.lamp && o.sky_fibers != NULL)
        st = spx_fail(e, SPX_EUSAGE, "--lamp and --sky-fibers contradict each other");
    if (st == SPX_OK)
        st = spx_shift_args_lines(&o, &w.lines, e);
    if (st == SPX_OK)
        st = spx_queue_open(s, SPX_QUEUE_IMAGES, o.skip_existing, &queue, e);
    if (st == SPX_OK)
        st = spx_device_queue_run(queue,
                                  (spx_queue_steps){.ctx = &w,
                                                    .size = sizeof(job),
                                                    .what = "shift",
                                                    .read = read_exposure,
                                                    .compute = compute,
                                                    .write = write_psf,
                                                    .clear = clear},
                                  e);
    spx_queue_close(queue);
    for (int i = 0; i < WORKERS; i++)
        spx_extract_tails_free(w.tails[i]);
    spx_free(w.lines.line);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "specx-shift",
                                        .summary = "measure how far traces have moved, and move the PSF",
                                        .usage = "[OPTION...] [FILE...]",
                                        .example = "specx-shift -o shifted.h5 image.h5 psf.h5",
                                        .options = options,
                                        .flags = SPX_USES_DEVICE | SPX_USES_BLAS,
                                        .run = run};
    spx_err_options(spx_kernel_options);
    return spx_main(&program, argc, argv);
}
