/* specx-flat: flat field of the fibres from exposures of a lamp, and its application to frames. */
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "common/device.h"
#include "common/flat_inputs.h"
#include "common/flat_report.h"
#include "common/kernel_options.h"
#include "h5/file.h"
#include "products/flat_h5.h"
#include "products/frame_h5.h"
#include "products/hand_on_h5.h"
#include "run/queue_run.h"

static struct {
    const char *apply;
    double knots, reject, floor;
    int native, one_lamp, bytes, skip_existing;
    int knots_given, reject_given, floor_given, lamps_given;
} o = {.knots = 60, .reject = 5, .floor = 0.001, .bytes = sizeof(float)};

static const spx_opt options[] = {
    SPX_OPTION(STRING, "apply", 'a', "FILE", o.apply, "Divide frames by this flat field, instead of making one"),
    SPX_OPTION(CHOICE, "precision", 0, NULL, o.bytes, "Floating-point type of the output",
               .choices = SPX_CHOICES({"float", sizeof(float)}, {"double", sizeof(double)})),
    SPX_OPTION(FLAG, "skip-existing", 0, NULL, o.skip_existing,
               "With --apply: keep outputs that exist, and make the others. Without it, one that exists is an error of "
               "its frame"),
    SPX_HEADING_LAST("How a flat field is made"),
    SPX_OPTION(DOUBLE, "knots", 'k', "ANGSTROM", o.knots,
               "Spacing of the knots of the splines. 15 to 20 where there are fringes", .min = 1, .max = 1e5,
               .given = &o.knots_given),
    SPX_OPTION(FLAG, "native", 0, NULL, o.native,
               "Let the flat follow single bins that differ by more than 4 errors, in all exposures alike"),
    SPX_OPTION(DOUBLE, "floor", 0, "FRACTION", o.floor, "Smallest relative error of the flat, added in quadrature",
               .min = 0, .max = 1, .given = &o.floor_given),
    SPX_OPTION(DOUBLE, "reject", 0, "SIGMA", o.reject, "Leave out bins that are further from the model", .min = 2,
               .max = 1e6, .given = &o.reject_given),
    SPX_OPTION(CHOICE, "lamps", 0, NULL, o.one_lamp,
               "Each exposure has a lamp spectrum of its own, or all have one but for a factor",
               .choices = SPX_CHOICES({"own", 0}, {"one", 1}), .given = &o.lamps_given),
    {0}};

/* ---- making a flat ---- */

static spx_status make_flat(spx_run *s, spx_err *e)
{
    spx_flat_frames frames = {0};
    spx_flat_input in = {0};
    spx_flat flat = {0};
    spx_flat_counts counts = {0};
    spx_backend backend = {0};
    spx_flat_options fo = {.knots = o.knots,
                           .reject = o.reject,
                           .floor = o.floor,
                           .converge = SPX_FLAT_CONVERGE,
                           .native = o.native,
                           .one_lamp = o.one_lamp,
                           .nthreads = (int)s->common.threads};
    spx_device_opening opening = {.s = s, .op = SPX_OP_FLAT, .b = &backend};
    hid_t file;

    spx_open_device_begin(&opening);
    spx_run_step(s, "read");
    spx_status st = spx_flat_frames_read(s, &frames, e), opened = spx_open_device_end(&opening, e);
    st = st == SPX_OK ? opened : st;
    if (st == SPX_OK)
        st = spx_flat_frames_input(&frames, &in, e);

    spx_run_step(s, "flat");
    if (st == SPX_OK) {
        fo.progress = spx_progress_start(s->common.progress, "flat", "passes", SPX_FLAT_PASSES);
        st = backend.flat(&backend, &in, &fo, &flat, &counts, e);
        spx_progress_end(fo.progress);
        if (counts.device_seconds > 0)
            spx_run_seconds(s, "flat.device", counts.device_seconds);
    }

    spx_run_step(s, "write");
    if (st == SPX_OK) {
        spx_flat_inherit(&flat, &frames);
        st = spx_run_output(s, "flat", &file, e);
    }
    if (st == SPX_OK)
        st = spx_flat_write(file, &flat, o.bytes, e);
    if (st == SPX_OK)
        st = spx_flat_report(s, &flat, &frames, &counts, e);
    if (st == SPX_OK)
        st = spx_run_commit(s, e);

    spx_backend_close(&backend);
    spx_flat_free(&flat);
    spx_flat_frames_free(&frames);
    return st;
}

/* ---- applying it: see run/queue_run.h for the threads that the steps run in ---- */

typedef struct {
    spx_queue_item x;
    spx_frame frame;
    size_t nlost;
    double seconds;
} job;

typedef struct {
    spx_run *s;
    spx_input *flat_file; /* of --apply, and what it holds */
    spx_flat flat;
    atomic_size_t most;
    atomic_int stop;
} work;

static spx_status read_frame(void *ctx, spx_queue_item *x, spx_err *e)
{
    const work *w = ctx;
    job *j = (job *)x;
    spx_status st = spx_run_use_input(w->s, w->flat_file, 0, e);
    if (st == SPX_OK)
        st = spx_frame_read(x->in->file, &j->frame, e);
    return st == SPX_OK ? SPX_OK : spx_err_at(e, x->name, NULL);
}

static spx_status divide(void *ctx, size_t worker, spx_queue_item *x, spx_err *e)
{
    const work *w = ctx;
    job *j = (job *)x;
    (void)worker;
    const double begin = spx_seconds();
    const spx_status st = spx_flat_apply(&w->flat, &j->frame, (int)w->s->common.threads, &j->nlost, e);
    j->seconds = spx_seconds() - begin;
    return st == SPX_OK ? SPX_OK : spx_err_at(e, x->name, NULL);
}

static spx_status write_frame(void *ctx, spx_queue_item *x, spx_err *e)
{
    const work *w = ctx;
    job *j = (job *)x;
    hid_t file;
    spx_run_seconds(w->s, "divide", j->seconds);
    if (j->nlost > 0)
        spx_note("%s%zu bins have no flat field: ivar 0 there", x->label, j->nlost);
    spx_status st = spx_run_output(w->s, "frame", &file, e);
    if (st == SPX_OK)
        st = spx_frame_write(file, &j->frame, o.bytes, spx_run_writes(w->s), e);
    if (st == SPX_OK)
        st = spx_blocks_hand_on(x->in->file, file, e);
    return st == SPX_OK ? spx_run_record(w->s, "bins_without_flat", e, "%zu", j->nlost) : st;
}

static void clear(void *ctx, spx_queue_item *x)
{
    (void)ctx;
    spx_frame_free(&((job *)x)->frame);
}

static spx_status apply_flat(spx_run *s, spx_err *e)
{
    spx_queue *queue = NULL;
    work w = {.s = s};
    spx_status st = spx_run_extra_input(s, o.apply, &w.flat_file, e);
    if (st == SPX_OK)
        st = spx_flat_read(w.flat_file->file, &w.flat, e);
    if (st == SPX_OK)
        st = spx_queue_open(s, SPX_QUEUE_FRAMES, o.skip_existing, &queue, e);
    if (st == SPX_OK) {
        const spx_queue_steps steps = {.ctx = &w,
                                       .size = sizeof(job),
                                       .nworker = 1,
                                       .what = "flat",
                                       .read = read_frame,
                                       .compute = divide,
                                       .write = write_frame,
                                       .clear = clear,
                                       .most = &w.most,
                                       .stop = &w.stop};
        st = spx_queue_run(queue, &steps, e);
    }
    spx_flat_free(&w.flat);
    spx_queue_close(queue);
    return st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    if (o.apply == NULL)
        return o.skip_existing ? spx_fail(e, SPX_EUSAGE, "--skip-existing goes with --apply only") : make_flat(s, e);
    if (o.knots_given || o.reject_given || o.floor_given || o.lamps_given || o.native)
        return spx_fail(e, SPX_EUSAGE,
                        "--knots, --native, --floor, --reject and --lamps say how a flat is made: give them without "
                        "--apply");
    return apply_flat(s, e);
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "specx-flat",
                                        .summary = "flat field of the fibres, from exposures of a lamp",
                                        .usage = "[OPTION...] [FILE...]",
                                        .example = "specx-flat -o flat.h5 flat-1.h5 flat-2.h5 flat-3.h5",
                                        .options = options,
                                        .flags = SPX_USES_DEVICE,
                                        .run = run};
    spx_err_options(spx_kernel_options);
    return spx_main(&program, argc, argv);
}
