/* h5stack: shift-and-stack of the traces of an array. */
#include <string.h>

#include "app/main.h"
#include "common/device.h"
#include "common/each_input.h"
#include "common/kernel_options.h"
#include "common/stack_options.h"
#include "h5/file.h"
#include "h5/object.h"
#include "products/ccf_h5.h"
#include "products/shifts_h5.h"
#include "products/stack_h5.h"
#include "products/stations.h"
#include "products/traces_h5.h"

static struct {
    spx_stack_method method;
    const char *geometry, *slowness, *slowness_y, *velocity, *azimuth, *add;
    double rate;
    long t0, length;
    int has_t0, has_length, has_rate, has_azimuth;
} o = {.method = SPX_STACK_STACK, .azimuth = "0:355:5"};

static const spx_opt options[] = {
    SPX_OPTION(CHOICE, "method", 'm', NULL, o.method,
               "The stacks, the maximum of each over time, or the largest of all at each sample",
               .choices =
                   SPX_CHOICES({"stack", SPX_STACK_STACK}, {"max", SPX_STACK_MAX}, {"argmax", SPX_STACK_ARGMAX})),
    SPX_OPTION(INT, "t0", 0, "SAMPLE", o.t0, "First sample of the stacks",
               .absent = "the first that any shifted trace reaches", .min = -1e12, .max = 1e12, .given = &o.has_t0,
               .no_default = 1),
    SPX_OPTION(INT, "length", 0, "SAMPLES", o.length, "Length of the stacks",
               .absent = "to the last sample that any shifted trace reaches", .min = 1, .max = 1e12,
               .given = &o.has_length, .no_default = 1),
    SPX_OPTION(STRING, "add", 'a', "FILE", o.add, "Add the stacks to those of this earlier result"),
    SPX_HEADING("Shifts from the geometry of an array, instead of the block /shifts"),
    SPX_OPTION(STRING, "geometry", 'g', "FILE", o.geometry,
               "Text file with the positions of the stations. A line each, east and north in km, in the order of the "
               "traces",
               .absent = "those in /traces"),
    SPX_OPTION(STRING, "slowness", 's', "MIN:MAX:STEP", o.slowness,
               "Grid of slowness to the east, and to the north without --slowness-north, s/km"),
    SPX_OPTION(STRING, "slowness-north", 0, "MIN:MAX:STEP", o.slowness_y, "Grid of slowness to the north, s/km"),
    SPX_OPTION(STRING, "velocity", 0, "MIN:MAX:STEP", o.velocity,
               "Grid of apparent velocities, km/s, instead of slowness"),
    SPX_OPTION(STRING, "azimuth", 0, "MIN:MAX:STEP", o.azimuth,
               "For --velocity: directions that the wave travels in, degrees from north to east",
               .given = &o.has_azimuth),
    SPX_OPTION(DOUBLE, "sampling-rate", 0, "HZ", o.rate, "Samples a second", .absent = "attribute of /traces",
               .min = 1e-12, .max = 1e15, .given = &o.has_rate, .no_default = 1),
    {0}};

/* Grid of slowness as asked for: out[*n * 2]. */
static spx_status make_grid(size_t *n, double **out, spx_err *e)
{
    spx_stack_axis a, b;
    spx_status st;
    if (o.velocity != NULL) {
        st = spx_stack_axis_parse(o.velocity, "--velocity", &a, e);
        if (st == SPX_OK)
            st = spx_stack_axis_parse(o.azimuth, "--azimuth", &b, e);
        return st == SPX_OK ? spx_stack_velocity_grid(&a, &b, n, out, e) : st;
    }
    st = spx_stack_axis_parse(o.slowness, "--slowness", &a, e);
    if (st == SPX_OK)
        st = o.slowness_y != NULL ? spx_stack_axis_parse(o.slowness_y, "--slowness-north", &b, e)
                                  : spx_stack_axis_parse(o.slowness, "--slowness", &b, e);
    return st == SPX_OK ? spx_stack_slowness_grid(&a, &b, n, out, e) : st;
}

/* Shifts for plane waves across the array. */
static spx_status shifts_from_geometry(spx_run *s, spx_traces *tr, spx_shifts *sh, spx_err *e)
{
    size_t n = 0;
    double *grid = NULL;
    spx_status st = SPX_OK;
    if (o.geometry != NULL) {
        spx_free(tr->position);
        tr->position = NULL;
        if ((st = spx_run_foreign_input(s, o.geometry, e)) != SPX_OK ||
            (st = spx_stations_read(o.geometry, &n, &tr->position, e)) != SPX_OK)
            return st;
        if (n != tr->ntrace)
            return spx_fail(e, SPX_EINPUT, "%s: has %zu stations, but there are %zu traces", o.geometry, n, tr->ntrace);
    }
    if (tr->position == NULL)
        return spx_fail(e, SPX_EINPUT, "the traces have no positions: give them with --geometry FILE");
    if (o.has_rate)
        tr->sampling_rate = o.rate;
    if (tr->sampling_rate <= 0)
        return spx_fail(e, SPX_EINPUT, "the traces have no sampling rate: give it with --sampling-rate");
    st = make_grid(&n, &grid, e);
    if (st == SPX_OK)
        st = spx_stack_geometry(tr, n, grid, sh, e);
    spx_free(grid);
    return st;
}

/* Traces and shifts from whatever inputs hold them. Curves of cross-correlations (*ccf has stars then) need no shifts.
 */
static spx_status read_inputs(spx_run *s, const spx_inputs *all, int geometry, spx_traces *tr, spx_shifts *sh,
                              spx_ccf_stars *ccf, spx_err *e)
{
    spx_input *with_traces = NULL, *with_shifts = NULL;
    spx_status st = SPX_OK;
    for (size_t i = 0; i < all->n; i++) {
        spx_input *in = all->in[i];
        int traces = spx_h5_exists(in->file, "/traces") || spx_h5_exists(in->file, "/ccf");
        int shifts = spx_h5_exists(in->file, "/shifts");
        if (!traces && !shifts)
            return spx_fail(e, SPX_EINPUT, "%s: holds neither traces nor shifts (nor /ccf, which rvs-fit --ccf writes)",
                            in->name);
        if ((traces && with_traces != NULL) || (shifts && with_shifts != NULL))
            return spx_fail(e, SPX_EUSAGE, "%s: holds %s again: give them once", in->name,
                            traces && with_traces != NULL ? "traces" : "shifts");
        with_traces = traces ? in : with_traces;
        with_shifts = shifts ? in : with_shifts;
    }
    if (with_traces == NULL)
        return spx_fail(e, SPX_EINPUT, "%s: no traces: give the file that holds /traces too", all->name[all->n - 1]);
    if (!spx_h5_exists(with_traces->file, "/traces")) {
        if (geometry)
            return spx_fail(e, SPX_EUSAGE, "%s: cross-correlations are of no array: give no --slowness or --velocity",
                            with_traces->name);
        st = spx_ccf_read(with_traces, tr, ccf, e);
        return st == SPX_OK && with_shifts != NULL ? spx_shifts_read(with_shifts, tr->precision, sh, e) : st;
    }
    if (with_shifts == NULL && !geometry)
        return spx_fail(e, SPX_EINPUT,
                        "%s: no shifts: give the file that holds /shifts too, or --slowness or "
                        "--velocity",
                        all->name[all->n - 1]);
    st = spx_traces_read(with_traces, tr, e);
    if (st == SPX_OK && geometry)
        return shifts_from_geometry(s, tr, sh, e);
    return st == SPX_OK ? spx_shifts_read(with_shifts, tr->precision, sh, e) : st;
}

/* The earlier result that --add names. */
static spx_status read_earlier(spx_run *s, const spx_traces *tr, const spx_shifts *sh, spx_stack_options *so,
                               void **earlier, spx_err *e)
{
    static char name[SPX_STACK_NAME];
    spx_stack like = {.precision = tr->precision, .nshift = sh->nshift};
    spx_input *in;
    if (so->method != SPX_STACK_STACK)
        return spx_fail(e, SPX_EUSAGE, "--add: goes with --method stack only: maxima do not add up");
    spx_status st = spx_stack_window(tr, sh, so, &like.t0, &like.length, e);
    if (st == SPX_OK)
        st = spx_run_extra_input(s, o.add, &in, e);
    if (st == SPX_OK)
        st = spx_stack_read_earlier(in, &like, earlier, e);
    if (st == SPX_OK)
        (void)snprintf(name, sizeof name, "%s:/stack/stack", in->name);
    so->earlier = *earlier;
    so->earlier_name = name;
    return st;
}

enum { STARS_AT_ONCE = 16 };

/* Curves of each star, of a few stars at a time, summed as they are: one stack a star. */
static spx_status stack_stars(spx_backend *b, const spx_traces *tr, const spx_ccf_stars *ccf, spx_stack_options *so,
                              spx_stack *out, spx_err *e)
{
    size_t nlag = tr->ntrace > 0 ? (size_t)tr->start[1] : 0;
    spx_status st = SPX_OK;
    if (so->method == SPX_STACK_ARGMAX)
        return spx_fail(e, SPX_EUSAGE, "--method argmax: stacks of different stars cannot be compared: give shifts");
    if (so->has_t0 || so->has_length)
        return spx_fail(e, SPX_EUSAGE, "stacks of stars have all velocities: no --t0 or --length");
    *out = (spx_stack){.method = so->method, .precision = 4, .nshift = ccf->nstar, .length = nlag};
    (void)snprintf(out->units, sizeof out->units, "%s", tr->units);
    int max = so->method == SPX_STACK_MAX;
    float *value = spx_alloc2(ccf->nstar, max ? 1 : nlag, sizeof *value, e);
    out->value = value;
    if (value == NULL || (max && (out->index = spx_alloc(ccf->nstar, sizeof *out->index, e)) == NULL))
        return SPX_EIO;
    for (size_t k = 0; k < ccf->nstar && st == SPX_OK; k += STARS_AT_ONCE) {
        size_t n = ccf->nstar - k < STARS_AT_ONCE ? ccf->nstar - k : STARS_AT_ONCE, first = ccf->first[k];
        size_t ntrace = ccf->first[k + n] - first;
        spx_traces part = *tr;
        spx_shifts sh = {.nshift = n, .ntrace = ntrace, .precision = 4};
        spx_stack sum = {0};
        part.ntrace = ntrace;
        part.nsample = ntrace * nlag;
        part.data = (float *)tr->data + first * nlag;
        float *weight = spx_alloc2(n, ntrace, sizeof *weight, e);
        sh.weight = weight;
        sh.shift = spx_alloc2(n, ntrace, sizeof *sh.shift, e);
        st = weight == NULL || sh.shift == NULL ? SPX_EIO : SPX_OK;
        for (size_t i = 0; i < n && st == SPX_OK; i++)
            for (size_t j = ccf->first[k + i] - first; j < ccf->first[k + i + 1] - first; j++)
                weight[i * ntrace + j] = 1;
        if (st == SPX_OK)
            st = b->stack(b, &part, &sh, so, &sum, e);
        if (st == SPX_OK)
            memcpy(value + k * (max ? 1 : nlag), sum.value, n * (max ? 1 : nlag) * sizeof *value);
        if (st == SPX_OK && max)
            memcpy(out->index + k, sum.index, n * sizeof *out->index);
        spx_stack_free(&sum);
        spx_shifts_free(&sh);
    }
    return st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_backend backend = {0};
    spx_traces tr = {0};
    spx_shifts sh = {0};
    spx_stack out = {0};
    spx_ccf_stars ccf = {0};
    spx_inputs all = {0};
    void *earlier = NULL;
    hid_t file;
    spx_stack_options so = {.method = o.method,
                            .has_t0 = o.has_t0,
                            .t0 = o.t0,
                            .has_length = o.has_length,
                            .length = (size_t)o.length,
                            .nthreads = (int)s->common.threads};
    int geometry = o.slowness != NULL || o.velocity != NULL;
    if (o.slowness != NULL && o.velocity != NULL)
        return spx_fail(e, SPX_EUSAGE, "--slowness and --velocity are two ways to say the same: give one");
    if (!geometry && (o.geometry != NULL || o.slowness_y != NULL || o.has_azimuth || o.has_rate))
        return spx_fail(e, SPX_EUSAGE, "shifts from a geometry need a grid: give --slowness or --velocity");
    if (geometry && (o.velocity != NULL ? o.slowness_y != NULL : o.has_azimuth))
        return spx_fail(e, SPX_EUSAGE, "--slowness-north goes with --slowness, --azimuth with --velocity");

    spx_status st = spx_open_device(s, SPX_OP_STACK, &backend, e);

    spx_run_step(s, "read");
    if (st == SPX_OK)
        st = spx_all_inputs(s, s->ninput, s->input, &all, e);
    if (st == SPX_OK)
        st = read_inputs(s, &all, geometry, &tr, &sh, &ccf, e);
    int stars = ccf.nstar > 0 && sh.shift == NULL;
    if (st == SPX_OK && stars && o.add != NULL)
        st = spx_fail(e, SPX_EUSAGE, "--add: goes with shifts only");
    if (st == SPX_OK && o.add != NULL)
        st = read_earlier(s, &tr, &sh, &so, &earlier, e);

    spx_run_step(s, "stack");
    if (st == SPX_OK) {
        size_t nstack = stars ? ccf.nstar : sh.nshift;
        spx_detail("%zu traces, %zu stacks", tr.ntrace, nstack);
        so.progress = spx_progress_start(s->common.progress, "stack", "stacks", nstack);
        st = stars ? stack_stars(&backend, &tr, &ccf, &so, &out, e) : backend.stack(&backend, &tr, &sh, &so, &out, e);
        spx_progress_end(so.progress);
    }

    spx_run_step(s, "write");
    if (st == SPX_OK)
        st = spx_run_output(s, "stack", &file, e);
    if (st == SPX_OK)
        st = spx_stack_write(file, &out, e);
    if (st == SPX_OK && geometry)
        st = spx_shifts_write(file, &sh, e);
    if (st == SPX_OK && ccf.nstar > 0)
        st = spx_stack_write_velocity(file, &out, &ccf, e);
    if (st == SPX_OK)
        st = spx_run_record(s, "traces", e, "%zu", tr.ntrace);
    if (st == SPX_OK)
        st = spx_run_record(s, stars ? "stars" : "shifts", e, "%zu", out.nshift);
    if (st == SPX_OK)
        st = spx_run_commit(s, e);

    spx_backend_close(&backend);
    spx_free(earlier);
    spx_inputs_free(&all);
    spx_traces_free(&tr);
    spx_shifts_free(&sh);
    spx_stack_free(&out);
    spx_ccf_stars_free(&ccf);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "h5stack",
                                        .summary = "shift and stack the traces of an array",
                                        .usage = "[OPTION...] [FILE...]",
                                        .options = options,
                                        .example = "h5stack -o stacks.h5 traces.h5",
                                        .flags = SPX_USES_DEVICE,
                                        .run = run};
    spx_err_options(spx_kernel_options);
    return spx_main(&program, argc, argv);
}
