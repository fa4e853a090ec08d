/* h5svd: singular value decomposition or principal components of any two-dimensional dataset. */
#include <string.h>

#include "app/dataset.h"
#include "app/main.h"
#include "app/plot.h"
#include "base/parse.h"
#include "base/text.h"
#include "common/device.h"
#include "common/kernel_options.h"
#include "h5/attr.h"
#include "products/svd_h5.h"

static struct {
    long rank, oversample, power, seed;
    int center, sample_given; /* an option of the random sample */
    spx_svd_method method;
    const char *weights, *column_weights, *subtract, *rows, *plot;
} o = {.method = SPX_SVD_ECONOMIC, .oversample = 10, .power = 3};

static const spx_opt_choice methods[] = {{"economic", SPX_SVD_ECONOMIC}, {"randomised", SPX_SVD_RANDOMISED}, {0}};

static const spx_opt options[] = {
    SPX_OPTION(INT, "rank", 'k', "K", o.rank, "Keep the K leading modes; 0: all", .min = 0, .max = 1e9),
    SPX_OPTION(FLAG, "center", 'c', NULL, o.center, "Subtract the mean row first: principal components"),
    SPX_OPTION(STRING, "subtract", 0, "FILE:/DATASET", o.subtract,
               "Subtract this dataset first, such as a model from spectra. It has the same shape, or the rows that are "
               "chosen"),
    SPX_OPTION(STRING, "rows", 'r', "ROWS", o.rows,
               "Take these rows only: numbers and slices FIRST:LAST, separated by commas", .absent = "all"),
    SPX_OPTION(STRING, "weights", 'w', "FILE:/DATASET", o.weights,
               "Weight of each row, a factor of the squares of its residuals"),
    SPX_OPTION(STRING, "column-weights", 0, "FILE:/DATASET", o.column_weights, "Weight of each column"),
    SPX_OPTION(STRING, "plot", 0, "FILE", o.plot,
               "Picture of the leading vectors and the singular values: .png, .svg or .pdf. Needs gnuplot"),
    SPX_HEADING("Method"),
    SPX_OPTION(CHOICE, "method", 'm', NULL, o.method,
               "All modes by LAPACK, or the leading ones from a random sample, for large matrices", .choices = methods),
    SPX_OPTION(INT, "oversample", 0, "N", o.oversample, "Random vectors beyond K", .min = 0, .max = 1e6,
               .given = &o.sample_given),
    SPX_OPTION(INT, "power", 0, "N", o.power, "Power iterations that sharpen the sample", .min = 0, .max = 100,
               .given = &o.sample_given),
    SPX_OPTION(INT, "seed", 0, "N", o.seed, "Seed of the random vectors", .min = 0, .max = 1e15,
               .given = &o.sample_given),
    {0}};

/* Rows of a matrix that are taken: slices one after another. */
typedef struct {
    size_t n, total, *first, *count;
} row_choice;

static spx_status choose_rows(size_t nrow, row_choice *r, spx_err *e)
{
    const char *text = o.rows;
    size_t most = 1;
    for (const char *p = text; p != NULL && *p != '\0'; p++)
        most += *p == ',';
    if ((r->first = spx_alloc(most, sizeof *r->first, e)) == NULL ||
        (r->count = spx_alloc(most, sizeof *r->count, e)) == NULL)
        return SPX_EIO;
    if (text == NULL) {
        r->n = 1;
        r->total = r->count[0] = nrow;
        return SPX_OK;
    }
    for (;; text++) {
        char part[64];
        long one = 0;
        const size_t len = strcspn(text, ",");
        if (len >= sizeof part)
            return spx_fail(e, SPX_EUSAGE, "--rows: '%s' is no list of rows", o.rows);
        memcpy(part, text, len);
        part[len] = '\0';
        spx_status st;
        if (strchr(part, ':') != NULL) {
            st = spx_parse_slice(part, "--rows", nrow, &r->first[r->n], &r->count[r->n], e);
        } else if ((st = spx_parse_long(part, "--rows", &one, e)) == SPX_OK) {
            if (one < 0 || (size_t)one >= nrow)
                return spx_fail(e, SPX_EUSAGE, "--rows: there is no row %ld, but %zu of them, from 0 on", one, nrow);
            r->first[r->n] = (size_t)one;
            r->count[r->n] = 1;
        }
        if (st != SPX_OK)
            return st;
        r->total += r->count[r->n++];
        text += len;
        if (*text == '\0')
            return SPX_OK;
    }
}

static void free_rows(row_choice *r)
{
    spx_free(r->first);
    spx_free(r->count);
}

/* The chosen rows of a two-dimensional dataset. */
static spx_status read_rows(const spx_dataset *d, const row_choice *r, double **out, spx_err *e)
{
    double *to = *out = spx_alloc2(r->total, d->dims[1], sizeof *to, e);
    spx_status st = to == NULL ? SPX_EIO : SPX_OK;
    for (size_t i = 0; i < r->n && st == SPX_OK; i++) {
        const size_t start[2] = {r->first[i], 0}, count[2] = {r->count[i], d->dims[1]};
        st = spx_dataset_read(d, start, count, to, e);
        to += r->count[i] * d->dims[1];
    }
    return st;
}

/* What is subtracted: as many rows as there are to choose from, of which the same are chosen, or as many as are chosen.
 */
static spx_status read_subtracted(spx_run *s, const spx_dataset *d, const row_choice *r, double **out, spx_err *e)
{
    static const char *const none[] = {NULL};
    size_t first = 0, count = r->total;
    const row_choice all = {1, count, &first, &count};
    spx_dataset less;
    spx_status st = spx_dataset_input(s, o.subtract, none, &less, e);
    if (st != SPX_OK)
        return st;
    if (less.ndim != 2 || less.dims[1] != d->dims[1] || (less.dims[0] != r->total && less.dims[0] != d->dims[0]))
        return spx_fail(e, SPX_EINPUT, "%s: is %zu x %zu, but %zu x %zu is wanted", less.name, less.dims[0],
                        less.ndim == 2 ? less.dims[1] : 1, r->total, d->dims[1]);
    return read_rows(&less, less.dims[0] == d->dims[0] ? r : &all, out, e);
}

static spx_status read_weights(spx_run *s, const char *name, const char *what, size_t n, double **out, spx_err *e)
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
    st = spx_dataset_read(&d, start, d.dims, *out, e);
    if (st == SPX_OK && (st = spx_svd_check_weights(*out, n, what, e)) != SPX_OK)
        st = spx_err_context(e, "%s", d.name);
    return st;
}

/* What a run works with. */
typedef struct {
    spx_dataset d;
    size_t nrow;
    double *a, *less, *rows, *columns;
} inputs;

static spx_status read_inputs(spx_run *s, inputs *in, spx_err *e)
{
    static const char *const usual[] = {"/burgers/snapshot", "/stack/stack", "/library/flux", "/frame/flux", NULL};
    row_choice r = {0};
    spx_status st = spx_dataset_input(s, s->input[0], usual, &in->d, e);
    if (st == SPX_OK && in->d.ndim != 2)
        st = spx_fail(e, SPX_EINPUT, "%s: has %d dimensions: a matrix has two", in->d.name, in->d.ndim);
    if (st == SPX_OK)
        st = choose_rows(in->d.dims[0], &r, e);
    in->nrow = r.total;
    if (st == SPX_OK)
        st = read_rows(&in->d, &r, &in->a, e);
    if (st == SPX_OK && o.subtract != NULL)
        st = read_subtracted(s, &in->d, &r, &in->less, e);
    if (st == SPX_OK)
        st = read_weights(s, o.weights, "rows", in->nrow, &in->rows, e);
    if (st == SPX_OK)
        st = read_weights(s, o.column_weights, "columns", in->d.dims[1], &in->columns, e);
    free_rows(&r);
    return st;
}

static spx_status draw(spx_run *s, const spx_svd *d, spx_err *e)
{
    spx_text script = {0};
    spx_status st = spx_plot_begin(&script, o.plot, 1000, 800, e);
    if (st == SPX_OK)
        st = spx_text_add(&script, e, "set multiplot layout 2,1\n");
    if (st == SPX_OK)
        st = spx_plot_svd(&script, d->nmode, d->ncol, d->s, d->energy, d->v, NULL, "column", e);
    if (st == SPX_OK)
        st = spx_plot_output(s, o.plot, &script, e);
    spx_text_free(&script);
    return st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_backend backend = {0};
    inputs in = {0};
    spx_svd out = {0};
    hid_t file;
    spx_svd_options so = {.method = o.method,
                          .rank = (size_t)o.rank,
                          .center = o.center,
                          .oversample = (size_t)o.oversample,
                          .power = (size_t)o.power,
                          .seed = (uint64_t)o.seed};
    if (s->ninput != 1)
        return spx_fail(e, SPX_EUSAGE, "one dataset, not %zu", s->ninput);
    if (so.method == SPX_SVD_RANDOMISED && o.rank == 0)
        return spx_fail(e, SPX_EUSAGE, "--method randomised: say how many modes with --rank");
    if (so.method != SPX_SVD_RANDOMISED && o.sample_given)
        return spx_fail(e, SPX_EUSAGE, "--oversample, --power and --seed go with --method randomised only");

    spx_status st = spx_open_device(s, SPX_OP_SVD, &backend, e);

    spx_run_step(s, "read");
    if (st == SPX_OK)
        st = read_inputs(s, &in, e);

    spx_run_step(s, "svd");
    if (st == SPX_OK) {
        so.row_weight = in.rows;
        so.column_weight = in.columns;
        if (in.less != NULL)
            spx_svd_subtract(in.a, in.less, in.nrow * in.d.dims[1]);
        st = backend.svd(&backend, in.a, in.nrow, in.d.dims[1], &so, &out, e);
        if (st == SPX_EINPUT)
            spx_err_context(e, "%s", in.d.name);
    }

    spx_run_step(s, "write");
    if (st == SPX_OK)
        st = spx_run_output(s, "svd", &file, e);
    if (st == SPX_OK)
        st = spx_svd_write(file, &out, in.d.units, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/svd", "dataset", in.d.path, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/svd", "method", spx_opt_word(methods, (int)o.method), e);
    if (st == SPX_OK && o.plot != NULL)
        st = draw(s, &out, e);
    if (st == SPX_OK)
        st = spx_run_record(s, "energy", e, "%.9g", out.energy[out.nmode - 1]);
    if (st == SPX_OK)
        st = spx_run_commit(s, e);

    spx_backend_close(&backend);
    spx_free(in.a);
    spx_free(in.less);
    spx_free(in.rows);
    spx_free(in.columns);
    spx_svd_free(&out);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {.name = "h5svd",
                                        .summary = "singular value decomposition of a two-dimensional dataset",
                                        .usage = "[OPTION...] FILE:/DATASET",
                                        .options = options,
                                        .example = "h5svd -k 10 -o modes.h5 frame.h5:/frame/flux",
                                        .flags = SPX_USES_DEVICE | SPX_USES_BLAS,
                                        .run = run};
    spx_err_options(spx_kernel_options);
    return spx_main(&program, argc, argv);
}
