/* specx-psf: traces, wavelengths and PSF of a camera from exposures of arc lamps. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/parse.h"
#include "common/arc_list.h"
#include "common/cold_options.h"
#include "common/device.h"
#include "common/each_input.h"
#include "common/kernel_options.h"
#include "common/psf_file.h"
#include "common/psf_report.h"
#include "common/psf_suspect.h"
#include "h5/file.h"
#include "products/image_h5.h"
#include "products/psf_h5.h"
#include "products/psffit_h5.h"
#include "psffit/psffit.h"

enum { FIX_NONE, FIX_SHAPE };
enum { TAIL_NONE, TAIL_FIT, TAIL_START };

static struct {
    const char *start, *lines, *model, *hsize, *shape_degree, *bundle_range;
    long trace_degree, hermite_degree, bundle_size, max_iterations;
    double hermite_width;
    int fix, tail, medium, exposure_shifts;
    int trace_given, shape_given, degrees_given, medium_given;
    spx_cold_args cold;
} o = {.hsize = "8,5",
       .shape_degree = "1,2",
       .trace_degree = 6,
       .hermite_degree = 6,
       .hermite_width = 1,
       .max_iterations = 60,
       .exposure_shifts = 1};

static const spx_opt options[] = {
    SPX_OPTION(STRING, "start", 's', "PSF", o.start,
               "Traces and PSF to begin with, HDF5 or a DESI PSF file: those of another night, good to 1.5 pixels"),
    SPX_OPTION(STRING, "flat", 0, "FILE", o.cold.flat,
               "Begin without a PSF: find the traces in this exposure of a flat, and the wavelengths in the arcs"),
    SPX_OPTION(STRING, "lines", 'l', "FILE", o.lines,
               "Wavelengths of the lamps' lines: text, an element and a wavelength a line",
               .absent = "those of Hg, Cd, Ne, Ar, Kr, Xe, He and Zn that are known"),
    SPX_OPTION(CHOICE, "medium", 0, NULL, o.medium, "Medium of the wavelengths in --lines",
               .choices = SPX_CHOICES({"vacuum", SPX_VACUUM}, {"air", SPX_AIR}), .given = &o.medium_given),
    SPX_OPTION(CHOICE, "fix", 0, NULL, o.fix,
               "Leave the shape of spots as --start has it, and measure traces alone: fast, for every day",
               .choices = SPX_CHOICES({"none", FIX_NONE}, {"shape", FIX_SHAPE})),
    SPX_OPTION(CHOICE, "tail", 0, NULL, o.tail,
               "Tail of spots: there is none; measured beyond the lines; or that of --start. It is taken off the arcs, "
               "and the PSF has it",
               .choices = SPX_CHOICES({"none", TAIL_NONE}, {"fit", TAIL_FIT}, {"start", TAIL_START})),
    SPX_OPTION(STRING, "model", 0, "FILE", o.model,
               "Write the model of the arcs, and residuals in units of the error, "
               "to this HDF5 file"),
    SPX_HEADING("Start from a flat"),
    SPX_OPTION(STRING, "centre", 0, "WAVE[,RANGE]", o.cold.centre,
               "Wavelength of the middle row, Angstrom, and by how much it may be off (200)"),
    SPX_OPTION(STRING, "dispersion", 0, "VALUE[,PERCENT]", o.cold.dispersion,
               "Angstrom a row, and by how much it may be off (8 %). With a sign, + or -, wavelengths are known to "
               "rise or fall with the row"),
    SPX_OPTION(STRING, "bundles", 0, "NxM|N,N...", o.cold.bundles,
               "M bundles of N fibres, or fibres of each bundle: tells which fibres have no light",
               .absent = "all traces of the flat"),
    SPX_OPTION(CHOICE, "first-fiber", 0, NULL, o.cold.from_right, "Side of the CCD at which fibre 0 is",
               .choices = SPX_CHOICES({"left", 0}, {"right", 1})),
    SPX_OPTION(STRING, "lamps", 0, "LAMP,LAMP...", o.cold.lamps, "Lamps of the arcs: Hg, Cd, Ne, Ar, Kr, Xe, He, Zn",
               .absent = "all of them"),
    SPX_HEADING("Traces and spots"),
    SPX_OPTION(INT, "trace-degree", 0, "N", o.trace_degree, "Degree of the traces in wavelength", .min = 1, .max = 15),
    SPX_OPTION(INT, "hermite-degree", 0, "N", o.hermite_degree,
               "Highest Gauss-Hermite order in x and in y; 0: Gaussian", .min = 0, .max = 10, .given = &o.shape_given),
    SPX_OPTION(DOUBLE, "hermite-width", 0, "FACTOR", o.hermite_width,
               "Width of these functions by that of spots, held: below 1 for spots with edges; 1: free", .min = 0.5,
               .max = 1, .given = &o.shape_given),
    SPX_OPTION(STRING, "shape-degree", 0, "FIBER,WAVE", o.shape_degree,
               "Degrees of the shape along the fibres of a bundle, at most 3, and along wavelengths, at most 5",
               .given = &o.degrees_given),
    SPX_OPTION(STRING, "hsize", 0, "X,Y", o.hsize, "Half size of spots, pixels"),
    SPX_OPTION(INT, "bundle-size", 0, "N", o.bundle_size, "Fibres of a bundle, which share the shape of their spots",
               .min = 1, .max = 1000, .no_default = 1, .absent = "those of --bundles or --start, or 25"),
    SPX_OPTION(STRING, "bundle-range", 0, "FIRST:LAST", o.bundle_range,
               "Fit these bundles only, counted from 0, without LAST; the others stay as they were", .absent = "all"),
    SPX_OPTION(FLAG, "exposure-shifts", 0, NULL, o.exposure_shifts,
               "Several arcs have the same traces. Without it each may have moved", .no = 1),
    SPX_OPTION(INT, "max-iterations", 0, "N", o.max_iterations, "Most iterations of a bundle", .min = 1, .max = 10000),
    {0}};

typedef struct {
    size_t n;
    spx_image *image;
    spx_inputs from;
} exposures;

static spx_status parse_pair(const char *text, const char *option, const char *form, int *first, int *second,
                             spx_err *e)
{
    double v[2];
    size_t n = 0;
    spx_status st = spx_parse_doubles(text, ',', option, form, 2, v, &n, e);
    if (st == SPX_OK &&
        (n != 2 || v[0] != floor(v[0]) || v[1] != floor(v[1]) || fabs(v[0]) > 1000 || fabs(v[1]) > 1000))
        st = spx_fail(e, SPX_EUSAGE, "%s %s: should be %s, two whole numbers", option, text, form);
    *first = st == SPX_OK ? (int)v[0] : 0;
    *second = st == SPX_OK ? (int)v[1] : 0;
    return st;
}

static spx_status kernel_options(const spx_run *s, const spx_psf *start, spx_psffit_options *to, spx_err *e)
{
    *to = spx_psffit_defaults();
    to->trace_degree = (int)o.trace_degree;
    to->hermite_degree = (int)o.hermite_degree;
    to->hermite_width = o.hermite_width;
    to->bundle_size = (size_t)o.bundle_size;
    to->fix_shape = o.fix == FIX_SHAPE;
    to->shift_exposures = o.exposure_shifts;
    to->max_iterations = (int)o.max_iterations;
    to->want_model = o.model != NULL;
    to->nthreads = (int)s->common.threads;
    spx_status st =
        parse_pair(o.shape_degree, "--shape-degree", "FIBER,WAVE", &to->shape_degree_fibre, &to->shape_degree_wave, e);
    if (st == SPX_OK)
        st = parse_pair(o.hsize, "--hsize", "X,Y", &to->hsizex, &to->hsizey, e);
    size_t count = 0;
    if (st == SPX_OK && o.bundle_range != NULL) {
        st = spx_parse_slice(o.bundle_range, "--bundle-range", spx_psffit_bundles(start, to), &to->bundle_first, &count,
                             e);
        to->bundle_last = to->bundle_first + count;
    }
    return st;
}

/* Lines of --lines, or those that are known and good enough to be measured. */
static spx_status read_lines(spx_run *s, spx_arc_line **line, size_t *n, spx_err *e)
{
    unsigned lamps;
    spx_status st = spx_cold_args_lamps(&o.cold, &lamps, e);
    if (st == SPX_OK && o.lines != NULL)
        st = spx_run_foreign_input(s, o.lines, e);
    if (st == SPX_OK)
        st = o.lines != NULL ? spx_arc_list_read(o.lines, (spx_medium)o.medium, line, n, e)
                             : spx_arc_lines(lamps, line, n, e);
    if (st == SPX_OK && o.lines != NULL)
        st = spx_psf_record_medium(s, o.lines, o.medium, o.medium_given, *n, *line, e);
    size_t kept = 0;
    for (size_t k = 0; k < *n && st == SPX_OK; k++)
        if ((*line)[k].quality < SPX_ARC_FAINT)
            (*line)[kept++] = (*line)[k];
    *n = kept;
    return st;
}

static spx_status read_exposures(spx_run *s, exposures *x, spx_err *e)
{
    spx_status st = spx_all_inputs_once(s, s->ninput, s->input, &x->from, e);
    if (st == SPX_OK && (x->image = spx_alloc(x->from.n, sizeof *x->image, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < x->from.n && st == SPX_OK; i++)
        st = spx_image_read(x->from.in[i]->file, &x->image[x->n++], e);
    return st;
}

/* Masks what is saturated and not flagged, and says so. */
static spx_status mask_saturated(spx_run *s, exposures *x, spx_err *e)
{
    size_t n = 0;
    spx_status st = SPX_OK;
    for (size_t i = 0; i < x->n && st == SPX_OK; i++) {
        spx_psffit_saturation found;
        st = spx_psffit_saturated(&x->image[i], &found, e);
        if (st == SPX_OK && found.npix > 0)
            spx_warn("%s:/image/mask: %zu pixels at a ceiling of %.0f electrons, as saturated ones are, have no flag: "
                     "left out: take shorter exposures, or flag them",
                     x->from.name[i], found.npix, found.level);
        n += st == SPX_OK ? found.npix : 0;
    }
    return st == SPX_OK && n > 0 ? spx_run_record(s, "saturated_pixels", e, "%zu", n) : st;
}

/* PSF to begin with: that of --start, moved to where the lines are, or of --flat. */
static spx_status make_start(spx_run *s, const exposures *x, size_t nline, const spx_arc_line *line, spx_psf *start,
                             double moved[2], spx_err *e)
{
    if (o.start != NULL) {
        const spx_status found = spx_psf_file_start(s, o.start, o.fix == FIX_SHAPE, start, e);
        return found == SPX_OK ? spx_cold_args_move(s, x->n, x->image, nline, line, start, moved, e) : found;
    }
    spx_cold_options co;
    size_t *bundle = NULL;
    int hsizex, hsizey;
    spx_status st = spx_cold_args_options(&o.cold, &co, &bundle, e);
    if (st == SPX_OK)
        st = parse_pair(o.hsize, "--hsize", "X,Y", &hsizex, &hsizey, e);
    if (st == SPX_OK) {
        co.trace_degree = (int)o.trace_degree;
        co.hsizex = hsizex;
        co.hsizey = hsizey;
        co.nthreads = (int)s->common.threads;
        st = spx_cold_args_start(s, &o.cold, &co, x->n, x->image, nline, line, start, e);
    }
    spx_free(bundle);
    return st;
}

static spx_status check_options(spx_err *e)
{
    const spx_cold_args *c = &o.cold;
    if (o.start == NULL && c->flat == NULL)
        return spx_fail(e, SPX_EUSAGE,
                        "--start PSF is needed, traces and PSF to begin with, such as those of another night; or "
                        "--flat FILE, an exposure of a flat to find the traces in");
    if (o.start != NULL && c->flat != NULL)
        return spx_fail(e, SPX_EUSAGE, "--start and --flat contradict each other");
    if (c->flat == NULL && (c->centre != NULL || c->dispersion != NULL || c->bundles != NULL || c->from_right))
        return spx_fail(e, SPX_EUSAGE, "--centre, --dispersion, --bundles and --first-fiber need --flat");
    if (o.lines != NULL && c->lamps != NULL)
        return spx_fail(e, SPX_EUSAGE, "--lines and --lamps contradict each other");
    if (o.fix == FIX_SHAPE && (o.shape_given || c->flat != NULL))
        return spx_fail(e, SPX_EUSAGE, "--fix shape and %s contradict each other",
                        o.shape_given ? "--hermite-degree or --hermite-width" : "--flat");
    if (o.tail == TAIL_START && o.start == NULL)
        return spx_fail(e, SPX_EUSAGE, "--tail start needs --start, a PSF with a tail");
    return SPX_OK;
}

/* Pixels that are not numbers, and not masked. */
static size_t count_nans(const exposures *x)
{
    size_t n = 0;
    for (size_t i = 0; i < x->n; i++)
        for (size_t k = 0; k < x->image[i].ny * x->image[i].nx; k++)
            n += x->image[i].mask[k] == 0 && !(isfinite(x->image[i].data[k]) && isfinite(x->image[i].ivar[k]));
    return n;
}

static spx_status write(spx_run *s, const spx_psf *psf, const spx_psffit *fit, size_t nan, const spx_psffit_tail *tail,
                        spx_err *e)
{
    hid_t file, side;
    spx_status st = spx_run_output(s, "psf", &file, e);
    if (st == SPX_OK)
        st = spx_psf_write(file, psf, e);
    if (st == SPX_OK)
        st = spx_psffit_write(file, fit, e);
    if (st == SPX_OK && o.model != NULL) {
        st = spx_run_side_output(s, o.model, "psffit", &side, e);
        if (st == SPX_OK)
            st = spx_psffit_write_model(side, fit, e);
    }
    if (st == SPX_OK)
        st = spx_psf_report(s, fit, o.bundle_range != NULL, nan, o.tail != TAIL_NONE ? tail : NULL, e);
    return st == SPX_OK ? spx_run_commit(s, e) : st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    exposures x = {0};
    spx_psf start = {0}, psf = {0};
    spx_psffit fit = {0};
    spx_arc_line *line = NULL;
    spx_psffit_options ko;
    size_t nline = 0, nan = 0;
    spx_psffit_tail tail = {.fit = o.tail == TAIL_FIT, .core = 1};
    double moved[2] = {0, 0};
    spx_backend backend = {0};
    spx_device_opening opening = {.s = s, .op = SPX_OP_PSFFIT, .b = &backend};
    spx_run_step(s, "read");
    spx_status st = check_options(e);
    const int opens = st == SPX_OK;
    if (opens)
        spx_open_device_begin(&opening);
    if (st == SPX_OK)
        st = read_lines(s, &line, &nline, e);
    if (st == SPX_OK)
        st = read_exposures(s, &x, e);
    if (st == SPX_OK)
        st = mask_saturated(s, &x, e);
    spx_run_step(s, "start");
    if (st == SPX_OK)
        st = make_start(s, &x, nline, line, &start, moved, e);
    if (st == SPX_OK)
        st = kernel_options(s, &start, &ko, e);
    if (opens) {
        spx_err other = {0};
        const spx_status opened = spx_open_device_end(&opening, st == SPX_OK ? e : &other);
        st = st == SPX_OK ? opened : st;
    }
    spx_run_step(s, "fit");
    /* bundles use the memory of those before: the many threads that a device has wait for each other where the system
     * clears new pages */
    const int keeps = backend.library != NULL;
    if (keeps)
        spx_mem_cache(1);
    if (st == SPX_OK) {
        const spx_psffit_input in = {x.n, x.image, x.from.name, &start, {moved[0], moved[1]}, nline, line};
        nan = count_nans(&x);
        const size_t rounds = o.tail != TAIL_NONE ? 1 + SPX_PSFFIT_TAIL_ROUNDS : 1;
        ko.progress =
            spx_progress_start(s->common.progress, "fit", "bundles", rounds * 2 * spx_psffit_bundles(&start, &ko));
        st = backend.psffit(&backend, &in, &ko, o.tail != TAIL_NONE ? &tail : NULL, &psf, &fit, e);
        spx_progress_end(ko.progress);
        if (st == SPX_OK && !o.shape_given && !o.degrees_given && o.fix != FIX_SHAPE && o.tail == TAIL_NONE)
            st = spx_psf_choose_degrees(&backend, &in, &ko, &psf, &fit, e);
        if (st == SPX_OK && ko.shape_degree_fibre > 0 && o.fix != FIX_SHAPE)
            st = spx_psf_doubt_places(&backend, &in, &ko, o.tail != TAIL_NONE ? &tail : NULL, &psf, &fit, e);
        if (st == SPX_OK)
            st = spx_run_record(s, "degrees", e, "%d; %d,%d; width %g", ko.hermite_degree, ko.shape_degree_fibre,
                                ko.shape_degree_wave, ko.hermite_width);
    }
    if (keeps)
        spx_mem_cache(0);
    if (st == SPX_OK && o.cold.flat != NULL && o.bundle_range == NULL)
        st = spx_psf_check_fitted(&fit, o.cold.flat, s->input[0], e);
    if (st == SPX_OK && o.start != NULL && o.lines != NULL)
        spx_psf_suspect_air(&start, &fit, o.lines, o.medium);
    if (st == SPX_OK)
        spx_psf_suspect_saturation(x.n, x.image, x.from.name, &psf, &fit);
    if (st == SPX_OK)
        spx_psf_suspect_ghost(&psf, &fit);
    spx_run_step(s, "write");
    if (st == SPX_OK)
        st = write(s, &psf, &fit, nan, &tail, e);
    for (size_t i = 0; i < x.n; i++)
        spx_image_free(&x.image[i]);
    spx_free(x.image);
    spx_inputs_free(&x.from);
    spx_free(line);
    spx_psf_free(&start);
    spx_psf_free(&psf);
    spx_psffit_free(&fit);
    spx_backend_close(&backend);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "specx-psf",
                                        .summary = "traces, wavelengths and PSF of a camera, from arcs",
                                        .usage = "[OPTION...] [FILE...]",
                                        .example = "specx-psf --start psf.h5 -o psf-new.h5 arc-1.h5 arc-2.h5",
                                        .options = options,
                                        .flags = SPX_USES_DEVICE | SPX_USES_BLAS,
                                        .run = run};
    spx_err_options(spx_kernel_options);
    return spx_main(&program, argc, argv);
}
