/* h5svd: singular value decomposition or principal components of any two-dimensional dataset. */
#include <string.h>

#include "base/plot.h"
#include "blocks/io.h"
#include "device.h"
#include "h5/dataset.h"
#include "h5/stage.h"

static struct {
    long rank, oversample, power, seed;
    int center;
    const char *method, *weights, *column_weights, *subtract, *plot;
} o = {.method = "economic", .oversample = 10, .power = 3};

static const spx_opt options[] = {
    {.kind = SPX_OPT_INT,
     .name = "rank",
     .letter = 'k',
     .arg = "K",
     .value = &o.rank,
     .max = 1e9,
     .help = "Keep the K leading modes; 0: all"},
    {.kind = SPX_OPT_FLAG,
     .name = "center",
     .letter = 'c',
     .value = &o.center,
     .help = "Subtract the mean row first: principal components"},
    {.kind = SPX_OPT_STRING,
     .name = "subtract",
     .arg = "FILE:/DATASET",
     .value = &o.subtract,
     .help = "Subtract this dataset of the same shape first, a model from spectra for example"},
    {.kind = SPX_OPT_STRING,
     .name = "weights",
     .letter = 'w',
     .arg = "FILE:/DATASET",
     .value = &o.weights,
     .help = "Weight of each row: the squares of its residuals are multiplied by it"},
    {.kind = SPX_OPT_STRING,
     .name = "column-weights",
     .arg = "FILE:/DATASET",
     .value = &o.column_weights,
     .help = "Weight of each column"},
    {.kind = SPX_OPT_STRING,
     .name = "plot",
     .arg = "FILE",
     .value = &o.plot,
     .help = "Picture of the leading vectors and the singular values: .png, .svg or .pdf; needs gnuplot"},
    {.kind = SPX_OPT_HEADING, .name = "Method"},
    {.kind = SPX_OPT_CHOICE,
     .name = "method",
     .letter = 'm',
     .value = &o.method,
     .choices = "economic|randomised",
     .help = "All modes by LAPACK, or only the leading ones from a random sample, for large matrices"},
    {.kind = SPX_OPT_INT,
     .name = "oversample",
     .arg = "N",
     .value = &o.oversample,
     .max = 1e6,
     .help = "Random vectors beyond K"},
    {.kind = SPX_OPT_INT,
     .name = "power",
     .arg = "N",
     .value = &o.power,
     .max = 100,
     .help = "Power iterations that sharpen the sample"},
    {.kind = SPX_OPT_INT, .name = "seed", .arg = "N", .value = &o.seed, .max = 1e15, .help = "Of the random vectors"},
    {0}};

/* A two-dimensional dataset of nrow x ncol (0: any). */
static spx_status read_matrix(const spx_dataset *d, size_t nrow, size_t ncol, double **out, spx_err *e)
{
    const size_t start[2] = {0, 0};
    if (d->ndim != 2)
        return spx_fail(e, SPX_EINPUT, "%s: has %d dimensions: a matrix has two", d->name, d->ndim);
    if (nrow != 0 && (d->dims[0] != nrow || d->dims[1] != ncol))
        return spx_fail(e, SPX_EINPUT, "%s: is %zu x %zu, but %zu x %zu is wanted", d->name, d->dims[0], d->dims[1],
                        nrow, ncol);
    if ((*out = spx_alloc(d->count, sizeof **out, e)) == NULL)
        return SPX_EIO;
    return spx_dataset_read(d, start, d->dims, *out, e);
}

static spx_status read_weights(spx_stage *s, const char *name, const char *what, size_t n, double **out, spx_err *e)
{
    static const char *const none[] = {NULL};
    const size_t start[1] = {0};
    spx_dataset d;
    if (name == NULL)
        return SPX_OK;
    spx_status st = spx_dataset_input(s, name, none, &d, e);
    if (st != SPX_OK)
        return st;
    if (d.ndim != 1 || d.count != n)
        return spx_fail(e, SPX_EINPUT, "%s: should be one-dimensional, with the weight of each of %zu %s", d.name, n,
                        what);
    if ((*out = spx_alloc(n, sizeof **out, e)) == NULL)
        return SPX_EIO;
    return spx_dataset_read(&d, start, d.dims, *out, e);
}

static spx_status read_inputs(spx_stage *s, spx_dataset *d, double **a, double **less, double **rows, double **columns,
                              spx_err *e)
{
    static const char *const usual[] = {"/burgers/snapshot", "/stack/stack", "/library/flux", "/frame/flux", NULL};
    spx_dataset other;
    spx_status st = spx_dataset_input(s, s->input[0], usual, d, e);
    if (st == SPX_OK)
        st = read_matrix(d, 0, 0, a, e);
    if (st == SPX_OK && o.subtract != NULL && (st = spx_dataset_input(s, o.subtract, usual, &other, e)) == SPX_OK)
        st = read_matrix(&other, d->dims[0], d->dims[1], less, e);
    if (st == SPX_OK)
        st = read_weights(s, o.weights, "rows", d->dims[0], rows, e);
    if (st == SPX_OK)
        st = read_weights(s, o.column_weights, "columns", d->dims[1], columns, e);
    return st;
}

static spx_status draw(spx_stage *s, const spx_svd *d, spx_err *e)
{
    spx_text script = {0};
    spx_tmpfile *picture;
    spx_status st = spx_plot_begin(&script, o.plot, 1000, 800, e);
    if (st == SPX_OK)
        st = spx_text_add(&script, e, "set multiplot layout 2,1\n");
    if (st == SPX_OK)
        st = spx_svd_plot(&script, d, NULL, "column", e);
    if (st == SPX_OK)
        st = spx_stage_tmpfile(s, o.plot, &picture, e);
    if (st == SPX_OK)
        st = spx_plot_run(&script, picture->fd, e);
    spx_text_free(&script);
    return st;
}

static spx_status run(spx_stage *s, spx_err *e)
{
    spx_backend backend = {0};
    spx_dataset d;
    spx_svd out = {0};
    double *a = NULL, *less = NULL, *rows = NULL, *columns = NULL;
    hid_t file;
    spx_svd_options so = {.method = o.method[0] == 'e' ? SPX_SVD_ECONOMIC : SPX_SVD_RANDOMISED,
                          .rank = (size_t)o.rank,
                          .center = o.center,
                          .oversample = (size_t)o.oversample,
                          .power = (size_t)o.power,
                          .seed = (uint64_t)o.seed};
    if (s->ninput != 1)
        return spx_fail(e, SPX_EUSAGE, "one dataset, not %zu", s->ninput);
    if (so.method == SPX_SVD_RANDOMISED && o.rank == 0)
        return spx_fail(e, SPX_EUSAGE, "--method randomised: say how many modes with --rank");

    spx_status st = open_device(s, SPX_STAGE_SVD, &backend, e);

    spx_stage_step(s, "read");
    if (st == SPX_OK)
        st = read_inputs(s, &d, &a, &less, &rows, &columns, e);

    spx_stage_step(s, "svd");
    if (st == SPX_OK) {
        so.row_weight = rows;
        so.column_weight = columns;
        if (less != NULL)
            spx_svd_subtract(a, less, d.count);
        st = backend.svd(&backend, a, d.dims[0], d.dims[1], &so, &out, e);
        if (st == SPX_EINPUT)
            spx_err_context(e, "%s", d.name);
    }

    spx_stage_step(s, "write");
    if (st == SPX_OK)
        st = spx_stage_output(s, "svd", &file, e);
    if (st == SPX_OK)
        st = spx_svd_write(file, &out, d.units, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/svd", "dataset", d.path, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/svd", "method", o.method, e);
    if (st == SPX_OK && o.plot != NULL)
        st = draw(s, &out, e);
    if (st == SPX_OK)
        st = spx_stage_record(s, "energy", e, "%.9g", out.energy[out.nmode - 1]);
    if (st == SPX_OK)
        st = spx_stage_commit(s, e);

    spx_backend_close(&backend);
    spx_free(a);
    spx_free(less);
    spx_free(rows);
    spx_free(columns);
    spx_svd_free(&out);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "h5svd",
                                        .summary = "singular value decomposition of a two-dimensional dataset",
                                        .usage = "[OPTION...] FILE:/DATASET",
                                        .options = options,
                                        .flags = SPX_USES_DEVICE | SPX_USES_BLAS,
                                        .run = run};
    return spx_main(&program, argc, argv);
}
