/* specx-preproc: raw exposures of any amplifier layout to pre-processed images, and master calibrations. */
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "common/kernel_options.h"
#include "common/plausible_inputs.h"
#include "common/preproc_inputs.h"
#include "common/preproc_masters.h"
#include "h5/file.h"
#include "h5/object.h"
#include "products/frame.h"
#include "products/hand_on_h5.h"
#include "products/image_h5.h"
#include "products/psf_h5.h"
#include "products/raw_h5.h"
#include "run/queue_run.h"

static struct {
    const char *layout;
    spx_preproc_files files;
    spx_overscan_model overscan;
    long window, grow;
    int smooth, skip_existing, kind;
    double reject, hot;
    long lamp;
    int reject_given, hot_given, lamp_given;
} o = {
    .kind = SPX_MASTERS, .reject = 5, .lamp = 51, .overscan = SPX_OVERSCAN_AUTO, .smooth = 1, .window = 51, .grow = 1};

static const spx_opt options[] = {
    SPX_OPTION(STRING, "layout", 'l', "FILE", o.layout,
               "Text that describes the amplifiers: where their pixels and overscan are, gain, read noise, saturation, "
               "linearity, cross-talk",
               .absent = "the header's keywords"),
    SPX_OPTION(STRING, "bias", 'b', "FILE", o.files.name[SPX_MASTER_BIAS], "Subtract this master bias"),
    SPX_OPTION(STRING, "dark", 'd', "FILE", o.files.name[SPX_MASTER_DARK],
               "Subtract this master dark, times the exposure time"),
    SPX_OPTION(STRING, "flat", 0, "FILE", o.files.name[SPX_MASTER_FLAT], "Divide by this pixel flat"),
    SPX_OPTION(STRING, "bad", 0, "FILE", o.files.bad_name,
               "Flag these pixels: a text with a section [x1:x2,y1:y2] of the image a line, counted from 1"),
    SPX_OPTION(CHOICE, "overscan", 0, NULL, o.overscan,
               "Level of the overscan: one for all rows, a smooth one, each row (line) its own, none is used, or the "
               "simplest that fits",
               .choices = SPX_CHOICES({"auto", SPX_OVERSCAN_AUTO}, {"constant", SPX_OVERSCAN_CONSTANT},
                                      {"smooth", SPX_OVERSCAN_SMOOTH}, {"line", SPX_OVERSCAN_LINE},
                                      {"none", SPX_OVERSCAN_NONE})),
    SPX_OPTION(INT, "window", 0, "ROWS", o.window, "Rows that a smooth level is fitted in", .min = 3, .max = 1e5),
    SPX_OPTION(CHOICE, "variance", 0, NULL, o.smooth,
               "Light that the variance of a pixel is made of: that of its neighbours along the trace too, where they "
               "agree within the noise, or its own",
               .choices = SPX_CHOICES({"smooth", 1}, {"pixel", 0})),
    SPX_OPTION(INT, "grow", 0, "N", o.grow, "Flag as many pixels beside saturated ones, too, along columns", .min = 0,
               .max = 1000),
    SPX_OPTION(FLAG, "skip-existing", 0, NULL, o.skip_existing,
               "Keep outputs that exist, and make the others. Without it, one that exists is an error of its exposure"),
    SPX_HEADING_LAST("Masters of many exposures"),
    SPX_OPTION(CHOICE, "combine", 'c', NULL, o.kind, "Make a master of all exposures, instead of an image of each",
               .choices = SPX_CHOICES({"none", SPX_MASTERS}, {"bias", SPX_MASTER_BIAS}, {"dark", SPX_MASTER_DARK},
                                      {"flat", SPX_MASTER_FLAT})),
    SPX_OPTION(DOUBLE, "reject", 0, "SIGMA", o.reject, "Leave out values further than this from the mean of the others",
               .min = 2, .max = 1e6, .given = &o.reject_given),
    SPX_OPTION(DOUBLE, "hot", 0, "E/S", o.hot, "Of a dark: flag pixels with more dark current, electron/s; 0: none",
               .min = 0, .max = 1e9, .given = &o.hot_given),
    SPX_OPTION(INT, "smooth", 0, "PIXELS", o.lamp, "Of a flat: the light of the lamp is smooth over so many pixels",
               .min = 5, .max = 10000, .given = &o.lamp_given),
    {0}};

/* One exposure on its way through the program. */
typedef struct {
    spx_queue_item x;
    spx_raw raw;
    spx_layout layout;
    spx_preproc_masters masters;
    spx_preproc_options o;
    spx_image image;
    spx_overscan *over;
    double seconds;
} job;

typedef struct {
    spx_run *s;
    const spx_layout_file *layout;
    atomic_size_t most;
    atomic_int stop;
} work;

static spx_preproc_options preproc_options(const spx_run *s, double exptime)
{
    return (spx_preproc_options){.overscan = o.overscan,
                                 .window = (size_t)o.window,
                                 .smooth = o.smooth,
                                 .grow = (size_t)o.grow,
                                 .exptime = exptime,
                                 .nthreads = (int)s->common.threads};
}

/* A PSF is handed on with the fibermap: programs have to be able to read it, and rows to be those of its fibres. */
static spx_status try_psf(const spx_queue_item *x, spx_table *fibermap, spx_err *e)
{
    const spx_image image = {.fibermap = fibermap};
    spx_psf psf = {0};
    size_t *row = NULL, without = 0;
    spx_status st = spx_h5_exists(x->in->file, "/psf") ? spx_psf_read(x->in->file, &psf, e) : SPX_OK;
    if (st == SPX_OK && fibermap != NULL && psf.nspec > 0) {
        row = spx_alloc(psf.nspec, sizeof *row, e);
        st = row != NULL ? spx_frame_fibre_rows(&image, &psf, row, e) : SPX_EIO;
        for (size_t i = 0; i < psf.nspec && st == SPX_OK; i++)
            without += row[i] == SPX_NO_ROW;
    }
    if (st == SPX_OK && without > 0)
        spx_warn("%sthe fibermap has no row for %zu of the PSF's %zu fibres", x->label, without, psf.nspec);
    spx_free(row);
    spx_psf_free(&psf);
    return st;
}

static spx_status read_raw(void *ctx, spx_queue_item *x, spx_err *e)
{
    const work *w = ctx;
    job *j = (job *)x;
    spx_status st = SPX_OK;
    for (int k = 0; k < SPX_MASTERS && st == SPX_OK; k++)
        if (o.files.in[k] != NULL)
            st = spx_run_use_input(w->s, o.files.in[k], 0, e);
    if (st == SPX_OK)
        st = spx_raw_read(x->in->file, NULL, &j->raw, e);
    if (st == SPX_OK) /* it is handed on: one that no program reads is better named now */
        st = try_psf(x, j->raw.fibermap, e);
    if (st == SPX_OK)
        st = spx_layout_make(&j->raw, w->layout, o.overscan != SPX_OVERSCAN_NONE, &j->layout, e);
    if (st == SPX_OK) {
        j->o = preproc_options(w->s, spx_raw_exptime(&j->raw, 0));
        st = spx_preproc_files_for(&o.files, &j->layout, j->raw.camera, j->o.exptime, &j->masters, e);
    }
    if (st == SPX_OK && (j->over = spx_alloc(j->layout.namp, sizeof *j->over, e)) == NULL)
        st = SPX_EIO;
    return st == SPX_OK ? SPX_OK : spx_err_at(e, x->name, NULL);
}

static spx_status compute(void *ctx, size_t worker, spx_queue_item *x, spx_err *e)
{
    job *j = (job *)x;
    (void)ctx;
    (void)worker;
    const double begin = spx_seconds();
    const spx_status st = spx_preproc_cpu(&j->raw, &j->layout, &j->masters, &j->o, &j->image, j->over, e);
    j->seconds = spx_seconds() - begin;
    return st == SPX_OK ? SPX_OK : spx_err_at(e, x->name, NULL);
}

static spx_status write_image(void *ctx, spx_queue_item *x, spx_err *e)
{
    const work *w = ctx;
    job *j = (job *)x;
    spx_table *t = NULL;
    hid_t file;
    unsigned broken = 0;
    spx_run_seconds(w->s, "preproc", j->seconds);
    spx_preproc_report(x->label, &j->layout, j->over, &broken);
    memcpy(j->image.camera, j->raw.camera, sizeof j->image.camera);
    j->image.fibermap = j->raw.fibermap;
    j->raw.fibermap = NULL;
    spx_status st = spx_preproc_header(&j->raw, &j->image.header, e);
    if (st == SPX_OK)
        st = spx_preproc_table(&j->layout, j->over, &t, e);
    if (st == SPX_OK)
        st = spx_run_output(w->s, "image", &file, e);
    if (st == SPX_OK)
        st = spx_image_write(file, &j->image, e);
    if (st == SPX_OK)
        st = spx_table_write(file, "/image/amplifiers", t, e);
    if (st == SPX_OK)
        st = spx_plausible_flag(w->s, file, "/image", broken, e);
    if (st == SPX_OK)
        st = spx_blocks_hand_on(x->in->file, file, e);
    spx_table_free(t);
    return st;
}

static void clear(void *ctx, spx_queue_item *x)
{
    job *j = (job *)x;
    (void)ctx;
    for (size_t k = 0; k < j->layout.namp && j->over != NULL; k++)
        spx_overscan_free(&j->over[k]);
    spx_free(j->over);
    spx_free((void *)j->masters.bad);
    spx_image_free(&j->image);
    spx_layout_free(&j->layout);
    spx_raw_free(&j->raw);
}

static spx_status preprocess(spx_run *s, const spx_layout_file *layout, spx_err *e)
{
    spx_queue *queue = NULL;
    work w = {.s = s, .layout = layout};
    spx_status st = spx_preproc_files_read(s, &o.files, e);
    if (st == SPX_OK)
        st = spx_queue_open(s, SPX_QUEUE_RAW, o.skip_existing, &queue, e);
    if (st == SPX_OK) {
        const spx_queue_steps steps = {.ctx = &w,
                                       .size = sizeof(job),
                                       .nworker = 1,
                                       .what = "preproc",
                                       .read = read_raw,
                                       .compute = compute,
                                       .write = write_image,
                                       .clear = clear,
                                       .most = &w.most,
                                       .stop = &w.stop};
        st = spx_queue_run(queue, &steps, e);
    }
    spx_preproc_files_free(&o.files);
    spx_queue_close(queue);
    return st;
}

static spx_status make_master(spx_run *s, const spx_layout_file *layout, spx_err *e)
{
    const spx_preproc_master_task t = {.layout = layout,
                                       .files = &o.files,
                                       .preproc = preproc_options(s, 0),
                                       .combine = {.kind = (spx_master_kind)o.kind,
                                                   .reject = o.reject,
                                                   .smooth = (size_t)o.lamp,
                                                   .hot = o.hot,
                                                   .nthreads = (int)s->common.threads}};
    if (o.skip_existing)
        return spx_fail(e, SPX_EUSAGE, "--skip-existing goes without --combine only");
    return spx_preproc_make_master(s, &t, e);
}

static spx_status check_options(spx_err *e)
{
    if (o.kind == SPX_MASTERS && (o.reject_given || o.hot_given || o.lamp_given))
        return spx_fail(e, SPX_EUSAGE, "--reject, --hot and --smooth go with --combine only");
    if (o.hot_given && o.kind != SPX_MASTER_DARK)
        return spx_fail(e, SPX_EUSAGE, "--hot goes with --combine dark only");
    if (o.lamp_given && o.kind != SPX_MASTER_FLAT)
        return spx_fail(e, SPX_EUSAGE, "--smooth goes with --combine flat only");
    return SPX_OK;
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_layout_file layout = {0};
    spx_status st = check_options(e);
    if (strncmp(s->common.device, "cuda", 4) == 0)
        spx_note("--device %s: there is no CUDA version of it, the CPU computes", s->common.device);
    spx_run_device(s, "cpu");
    if (st == SPX_OK && o.layout != NULL && (st = spx_run_foreign_input(s, o.layout, e)) == SPX_OK)
        st = spx_layout_file_read(o.layout, &layout, e);
    if (st == SPX_OK)
        st = (o.kind == SPX_MASTERS ? preprocess : make_master)(s, o.layout != NULL ? &layout : NULL, e);
    spx_layout_file_free(&layout);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "specx-preproc",
                                        .summary = "raw CCD exposures to images for extraction, and masters",
                                        .usage = "[OPTION...] [FILE...]",
                                        .example = "specx-preproc --bias bias.h5 -o image.h5 raw.h5",
                                        .options = options,
                                        .flags = SPX_USES_DEVICE,
                                        .run = run};
    spx_err_options(spx_kernel_options);
    return spx_main(&program, argc, argv);
}
