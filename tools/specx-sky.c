/* specx-sky: subtract the sky from frames, with its error. */
#include <string.h>

#include "base/clock.h"
#include "common/device_queue.h"
#include "common/kernel_options.h"
#include "common/plausible_inputs.h"
#include "common/shift_options.h"
#include "common/sky_options.h"
#include "common/sky_report.h"
#include "h5/file.h"
#include "h5/object.h"
#include "products/flat_h5.h"
#include "products/frame_h5.h"
#include "products/hand_on_h5.h"
#include "products/psf_h5.h"
#include "products/sky_h5.h"

static spx_sky_args o = {.terms = "1,2,1", .bytes = sizeof(float), .reject = 4.5};

static const spx_opt options[] = {
    SPX_OPTION(STRING, "flat", 0, "FILE", o.flat, "Divide by this flat field first",
               .absent = "the flat before the frame among the inputs, or the frame's own /flat, if any"),
    SPX_OPTION(STRING, "sky-fibers", 0, "LIST", o.sky_fibers,
               "Spectra that see nothing but sky, such as 3,7,20:25, counted from 0, without the last of a range",
               .absent = "OBJTYPE SKY in the fibermap"),
    SPX_OPTION(INT, "hold-out", 0, "N", o.hold_out,
               "Treat N of the sky fibres as targets. The chi2 of what is left in them is a test of the subtraction",
               .min = 0, .max = 5000),
    SPX_OPTION(STRING, "terms", 0, "T,DELTA,KAPPA", o.terms,
               "Terms of scale, shift and width of each fibre, along the arm. 0 leaves one out"),
    SPX_OPTION(CHOICE, "scale", 0, NULL, o.scale, "Light that the scale of a fibre multiplies",
               .choices = SPX_CHOICES({"all", SPX_SKY_SCALE_ALL}, {"lines", SPX_SKY_SCALE_LINES},
                                      {"none", SPX_SKY_SCALE_NONE})),
    SPX_OPTION(CHOICE, "gradient", 0, NULL, o.gradient, "Let the sky vary smoothly over the focal plane",
               .choices = SPX_CHOICES({"none", SPX_GRADIENT_NONE}, {"x", SPX_GRADIENT_X}, {"y", SPX_GRADIENT_Y},
                                      {"xy", SPX_GRADIENT_XY})),
    SPX_OPTION(FLAG, "sectors", 0, NULL, o.sectors, "Subtract offsets of the CCD's amplifiers"),
    SPX_OPTION(DOUBLE, "reject", 0, "SIGMA", o.reject,
               "Leave out bins of sky fibres that are further off. 0: none, and no fibre", .min = 0, .max = 1e6),
    SPX_OPTION(DOUBLE, "knots", 0, "ANGSTROM", o.knots, "Knots of the continuum of targets", .min = 2, .max = 1e4,
               .absent = "25, or 30 sigma of a line in the frame, where that is more"),
    SPX_OPTION(FLAG, "keep-sky", 0, NULL, o.keep_sky, "Leave the sky in the frame, and only add the block sky"),
    SPX_OPTION(CHOICE, "precision", 0, NULL, o.bytes, "Floating-point type of the output",
               .choices = SPX_CHOICES({"float", sizeof(float)}, {"double", sizeof(double)})),
    SPX_OPTION(FLAG, "skip-existing", 0, NULL, o.skip_existing,
               "Keep outputs that exist, and make the others. Without it, one that exists is an error of its frame"),
    {0}};

/* One frame on its way through the program. */
typedef struct {
    spx_queue_item x;
    spx_frame frame;
    spx_psf psf;
    spx_sky_scene scene;
    spx_sky sky;
    spx_line_places places; /* of lines in the sky */
    size_t nlost;
    double seconds, device_seconds;
} job;

typedef struct {
    spx_device_queue d; /* first */
    spx_sky_options options;
    spx_shift_lines lines; /* of the night sky */
    spx_input *flat_file;  /* of --flat, and what it holds */
    spx_flat flat;
} work;

/* Divides by the flat of --flat or among the inputs, or by that which came with the frame, unless it was divided by it
 * before. */
static spx_status apply_flat(const work *w, job *j, spx_err *e)
{
    spx_flat own = {0};
    const spx_flat *given = o.flat != NULL ? &w->flat : j->x.flat;
    const int has_own = given == NULL && spx_h5_exists(j->x.in->file, "/flat") && !j->frame.flat_applied;
    if (given == NULL && !has_own)
        return SPX_OK;
    if (o.flat != NULL && j->x.flat != NULL)
        return spx_fail(e, SPX_EUSAGE, "--flat %s: there is a flat among the inputs, too: give one of them", o.flat);
    spx_status st = has_own ? spx_flat_read(j->x.in->file, &own, e) : SPX_OK;
    if (st == SPX_OK)
        st = spx_flat_apply(has_own ? &own : given, &j->frame, (int)w->d.s->common.threads, &j->nlost, e);
    if (st == SPX_OK && j->nlost > 0)
        spx_note("%s%zu bins have no flat field: ivar 0 there", j->x.label, j->nlost);
    spx_flat_free(&own);
    return st;
}

/* ---- the steps of a frame: see run/queue_run.h for the threads that they run in ---- */

static spx_status read_frame(void *ctx, spx_queue_item *x, spx_err *e)
{
    const work *w = ctx;
    job *j = (job *)x;
    spx_frame *f = &j->frame;
    if (spx_sky_is_subtracted(x->in->file))
        return spx_fail_at(e, SPX_EINPUT, x->in->name, "/sky", "give the frame as specx-extract has made it",
                           "the sky was subtracted from the frame before");
    spx_status st = w->flat_file != NULL ? spx_run_use_input(w->d.s, w->flat_file, 0, e) : SPX_OK;
    if (st == SPX_OK)
        st = spx_frame_read(x->in->file, f, e);
    if (st == SPX_OK && f->arm.mask == NULL &&
        (f->arm.mask = spx_alloc2(f->nspec, f->arm.nwave, sizeof *f->arm.mask, e)) == NULL)
        st = SPX_EIO;
    if (st == SPX_OK)
        st = apply_flat(w, j, e);
    if (st == SPX_OK && o.sectors && spx_h5_exists(x->in->file, "/psf"))
        st = spx_psf_read(x->in->file, &j->psf, e);
    if (st == SPX_OK)
        st = spx_sky_scene_make(&o, x->label, f, j->psf.nspec > 0 ? &j->psf : NULL, &j->scene, e);
    return st;
}

static spx_status compute(void *ctx, size_t worker, spx_queue_item *x, spx_err *e)
{
    work *w = ctx;
    job *j = (job *)x;
    (void)worker;
    const double begin = spx_seconds();
    const spx_status st = w->d.backend.sky(&w->d.backend, &j->scene.in, &w->options, &j->sky, e);
    j->device_seconds = w->d.backend.device_seconds;
    if (st == SPX_OK && !o.keep_sky)
        spx_sky_subtract(&j->sky, SPX_BADSKY, w->options.nthreads, j->frame.arm.flux, j->frame.arm.ivar,
                         j->frame.arm.mask);
    j->seconds = spx_seconds() - begin;
    return st == SPX_OK && j->frame.arm.medium == SPX_VACUUM
               ? spx_find_line_places(NULL, j->sky.nwave, j->sky.wavelength, j->sky.s, j->sky.bad, &w->lines,
                                      &j->places, e)
               : st;
}

static spx_status write_frame(void *ctx, spx_queue_item *x, spx_err *e)
{
    const work *w = ctx;
    job *j = (job *)x;
    hid_t file;
    spx_run_seconds(w->d.s, "sky", j->seconds);
    if (j->device_seconds > 0)
        spx_run_seconds(w->d.s, "sky.device", j->device_seconds);
    spx_status st = spx_sky_report(w->d.s, j->x.label, &j->sky, j->frame.flat_applied, e);
    if (st == SPX_OK)
        st = spx_plausible_bins(w->d.s, j->x.label, &j->frame, &j->scene.in, e);
    if (st == SPX_OK)
        st = spx_plausible_sky(w->d.s, j->x.label, &j->frame, &j->sky, e);
    if (st == SPX_OK)
        st = spx_run_output(w->d.s, "frame", &file, e);
    if (st == SPX_OK)
        st = spx_frame_write(file, &j->frame, o.bytes, spx_run_writes(w->d.s), e);
    if (st == SPX_OK)
        st = spx_sky_write(file, &j->sky, j->frame.arm.medium, o.bytes, spx_run_writes(w->d.s), e);
    if (st == SPX_OK)
        st = spx_plausible_flag(w->d.s, file, "/sky",
                                spx_plausible_lines(x->label, &j->places, "bins", j->sky.wavelength[j->sky.nwave / 2]),
                                e);
    return st == SPX_OK ? spx_blocks_hand_on(x->in->file, file, e) : st;
}

static void clear(void *ctx, spx_queue_item *x)
{
    job *j = (job *)x;
    (void)ctx;
    spx_sky_free(&j->sky);
    spx_sky_scene_free(&j->scene);
    spx_frame_free(&j->frame);
    spx_psf_free(&j->psf);
}

static spx_status read_flat(work *w, spx_err *e)
{
    if (o.flat == NULL)
        return SPX_OK;
    const spx_status st = spx_run_extra_input(w->d.s, o.flat, &w->flat_file, e);
    return st == SPX_OK ? spx_flat_read(w->flat_file->file, &w->flat, e) : st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_queue *queue = NULL;
    work w = {.d = {.s = s, .op = SPX_OP_SKY}};
    spx_backend_restrict(s->common.device);
    spx_status st = spx_sky_args_options(&o, (int)s->common.threads, &w.options, e);
    if (st == SPX_OK)
        st = spx_shift_args_lines(&(spx_shift_args){0}, &w.lines, e);
    if (st == SPX_OK)
        st = spx_queue_open(s, SPX_QUEUE_FLAT_FRAMES, o.skip_existing, &queue, e);
    if (st == SPX_OK)
        st = read_flat(&w, e);
    if (st == SPX_OK)
        st = spx_device_queue_run(queue,
                                  (spx_queue_steps){.ctx = &w,
                                                    .size = sizeof(job),
                                                    .what = "sky",
                                                    .read = read_frame,
                                                    .compute = compute,
                                                    .write = write_frame,
                                                    .clear = clear},
                                  e);
    spx_flat_free(&w.flat);
    spx_free(w.lines.line);
    spx_queue_close(queue);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "specx-sky",
                                        .summary = "subtract the sky from frames",
                                        .usage = "[OPTION...] [FILE...]",
                                        .example = "specx-sky --flat flat.h5 -o sframe.h5 frame.h5",
                                        .options = options,
                                        .flags = SPX_USES_DEVICE,
                                        .run = run};
    spx_err_options(spx_kernel_options);
    return spx_main(&program, argc, argv);
}
