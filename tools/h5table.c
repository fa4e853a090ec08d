/* h5table: prints the tables of a product, one of its spectra, or its provenance as text. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "app/dataset.h"
#include "app/main.h"
#include "base/parse.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/provenance.h"
#include "h5/table.h"
#include "h5/textcolumn.h"

enum { MAX_COLUMN = 1024, MAX_GROUP = 64 };

static struct {
    const char *table, *columns, *rows, *targetid;
    long spectrum;
    int provenance, spectrum_given;
    spx_textformat format;
} o;

static const spx_opt options[] = {
    SPX_OPTION(STRING, "table", 't', "PATH", o.table, "Table to print",
               .absent = "first of /rvfit/table, /truth/table, /scores, /fibermap"),
    SPX_OPTION(STRING, "columns", 'c', "NAME,NAME...", o.columns, "Columns to print, in this order",
               .absent = "all that hold one number or text a row"),
    SPX_OPTION(STRING, "rows", 'r', "FIRST:LAST", o.rows, "Rows of the table to print, counted from 0, without LAST",
               .absent = "all"),
    SPX_OPTION(
        INT, "spectrum", 's', "N", o.spectrum,
        "Print this spectrum instead of a table: the row N, counted from 0. Its columns are arm (where there are "
        "several), wavelength, flux, ivar and mask, or, of the product of rvs-fit, wavelength and model",
        .min = 0, .max = 1e9, .given = &o.spectrum_given, .no_default = 1),
    SPX_OPTION(STRING, "targetid", 0, "ID", o.targetid, "Print the spectrum of this target"),
    SPX_OPTION(FLAG, "provenance", 'p', NULL, o.provenance,
               "Print how the product was made, program by program: commands, inputs, options"),
    SPX_OPTION(FLAG, "units", 'u', NULL, o.format.units, "Print the units in a second line"),
    SPX_OPTION(FLAG, "csv", 0, NULL, o.format.csv, "Comma-separated values with all digits, not aligned columns"),
    {0}};

/* Class of what the column can be printed as, or H5T_NO_CLASS for arrays and the like; its size in *size. */
static H5T_class_t printable(const spx_table *t, int col, size_t *size)
{
    hid_t type = H5Tget_member_type(t->type, (unsigned)col);
    H5T_class_t kind = H5Tget_class(type);
    *size = H5Tget_size(type);
    (void)H5Tclose(type);
    if (kind == H5T_ENUM)
        kind = H5T_INTEGER;
    return kind == H5T_INTEGER || kind == H5T_FLOAT || kind == H5T_STRING ? kind : H5T_NO_CLASS;
}

static spx_status column_fill(const spx_table *t, int col, spx_textcolumn *c, spx_err *e)
{
    size_t size;
    spx_status st;
    c->kind = printable(t, col, &size);
    if ((c->name = spx_table_name(t, col, e)) == NULL || (c->unit = spx_strdup(spx_table_unit(t, col), e)) == NULL)
        return SPX_EIO;
    if (c->kind == H5T_STRING) {
        if ((c->s = spx_alloc2(t->nrow, SPX_TEXTCOLUMN_WIDTH, 1, e)) == NULL)
            return SPX_EIO;
        st = spx_table_get_str(t, c->name, SPX_TEXTCOLUMN_WIDTH, c->s, e);
    } else if (c->kind == H5T_INTEGER) {
        if ((c->i = spx_alloc(t->nrow, sizeof *c->i, e)) == NULL)
            return SPX_EIO;
        st = spx_table_get_i64(t, c->name, c->i, e);
    } else {
        if ((c->f = spx_alloc(t->nrow, sizeof *c->f, e)) == NULL)
            return SPX_EIO;
        c->digits = spx_textcolumn_digits(size, &o.format);
        st = spx_table_get_f64(t, c->name, c->f, e);
    }
    if (st == SPX_OK) {
        spx_textcolumn_round(c, t->nrow, &o.format);
        spx_textcolumn_measure(c, t->nrow, &o.format);
    }
    return st;
}

/* The columns asked for, or all that can be printed. */
static spx_status columns_find(const spx_table *t, const char *path, spx_textcolumn *c, size_t *n, spx_err *e)
{
    spx_status st = SPX_OK;
    size_t size;
    if (o.columns == NULL) {
        for (int col = 0; col < (int)spx_table_ncol(t) && *n < MAX_COLUMN && st == SPX_OK; col++)
            if (printable(t, col, &size) != H5T_NO_CLASS)
                st = column_fill(t, col, &c[(*n)++], e);
        return st;
    }
    for (const char *p = o.columns; st == SPX_OK; p++) {
        char name[256];
        size_t len = strcspn(p, ",");
        if (len == 0 || len >= sizeof name || *n == MAX_COLUMN)
            return spx_fail(e, SPX_EUSAGE, "--columns: '%s' should be names separated by commas", o.columns);
        memcpy(name, p, len);
        name[len] = '\0';
        int col = spx_table_find(t, name);
        if (col < 0)
            return spx_fail(e, SPX_EINPUT, "%s: there is no column %s: leave --columns out to see all", path, name);
        if (printable(t, col, &size) == H5T_NO_CLASS)
            return spx_fail(e, SPX_EINPUT, "%s: column %s holds arrays: h5dump -d %s shows it", path, name, path);
        st = column_fill(t, col, &c[(*n)++], e);
        p += len;
        if (*p == '\0')
            break;
    }
    return st;
}

static spx_status print_table(const spx_table *t, const char *path, spx_err *e)
{
    size_t n = 0, first = 0, nrow = t->nrow;
    spx_textcolumn *c = spx_alloc(MAX_COLUMN, sizeof *c, e);
    if (c == NULL)
        return SPX_EIO;
    spx_status st = columns_find(t, path, c, &n, e);
    if (st == SPX_OK && o.rows != NULL)
        st = spx_parse_slice(o.rows, "--rows", t->nrow, &first, &nrow, e);
    if (st == SPX_OK)
        spx_textcolumns_print(stdout, c, n, first, nrow, &o.format);
    spx_textcolumns_empty(c, n);
    spx_free(c);
    return st;
}

/* ---- one spectrum ---- */

/* Groups that hold spectra: arms of /spectra, else /frame, else the models of the arms of /rvfit. */
static spx_status find_groups(const spx_input *in, char (*group)[SPX_TEXTCOLUMN_WIDTH], size_t *n, spx_err *e)
{
    static const char *const roots[] = {"/spectra", "/frame", "/rvfit"};
    spx_status st = SPX_OK;
    for (size_t i = 0; i < sizeof roots / sizeof *roots && *n == 0 && st == SPX_OK; i++) {
        char path[2 * SPX_TEXTCOLUMN_WIDTH], **name = NULL;
        size_t nname = 0;
        if (!spx_h5_exists(in->file, roots[i]))
            continue;
        (void)snprintf(path, sizeof path, "%s/wavelength", roots[i]);
        if (spx_h5_exists(in->file, path))
            (void)snprintf(group[(*n)++], SPX_TEXTCOLUMN_WIDTH, "%s", roots[i]);
        st = spx_h5_list(in->file, roots[i], &nname, &name, e);
        for (size_t k = 0; k < nname && *n < MAX_GROUP && strlen(name[k]) < SPX_TEXTCOLUMN_WIDTH / 2; k++) {
            (void)snprintf(path, sizeof path, "%s/%s/wavelength", roots[i], name[k]);
            if (spx_h5_exists(in->file, path))
                (void)snprintf(group[(*n)++], SPX_TEXTCOLUMN_WIDTH, "%s/%s", roots[i], name[k]);
        }
        spx_h5_names_free(nname, name);
    }
    if (st == SPX_OK && *n == 0)
        st = spx_fail(e, SPX_EINPUT, "%s: holds no spectra (/spectra, /frame or /rvfit)", in->name);
    return st;
}

/* Row of the target of --targetid. */
static spx_status find_target(const spx_input *in, long *row, spx_err *e)
{
    spx_table *t = NULL;
    int64_t *id = NULL;
    long wanted = 0;
    size_t found = 0;
    spx_status st = spx_parse_long(o.targetid, "--targetid", &wanted, e);
    if (st == SPX_OK)
        st = spx_table_read(in->file, "/fibermap", &t, e);
    if (st == SPX_OK && t != NULL)
        st = spx_table_find_i64(t, "TARGETID", &id, e);
    for (size_t r = 0; st == SPX_OK && id != NULL && r < t->nrow; r++)
        if (id[r] == wanted && found++ == 0)
            *row = (long)r;
    if (st == SPX_OK && found == 0)
        st = spx_fail(e, SPX_EINPUT, "%s:/fibermap: no spectrum has TARGETID %ld", in->name, wanted);
    if (st == SPX_OK && found > 1)
        st = spx_fail(e, SPX_EINPUT, "%s:/fibermap: %zu spectra have TARGETID %ld: choose one with --spectrum",
                      in->name, found, wanted);
    spx_free(id);
    spx_table_free(t);
    return st;
}

/* Values of row `row` of a dataset of spectra, or of the wavelengths, into column c from `first` on. */
static spx_status add_values(spx_input *in, const char *path, long row, size_t nwave, spx_textcolumn *c, size_t first,
                             spx_err *e)
{
    spx_dataset d;
    spx_status st = spx_dataset_open(in, path, &d, e);
    if (st != SPX_OK)
        return st;
    const int flat = d.ndim == 1;
    const size_t start[2] = {flat ? 0 : (size_t)row, 0}, count[2] = {flat ? nwave : 1, nwave};
    if (d.ndim > 2 || d.dims[d.ndim - 1] != nwave)
        return spx_fail(e, SPX_EINPUT, "%s: has not a value a wavelength", d.name);
    if (!flat && (size_t)row >= d.dims[0])
        return spx_fail(e, SPX_EUSAGE, "--spectrum: %s has the spectra 0 to %zu, not %ld", in->name, d.dims[0] - 1,
                        row);
    c->kind = d.is_float ? H5T_FLOAT : H5T_INTEGER;
    c->digits = o.format.csv ? spx_textcolumn_digits((size_t)d.bytes, &o.format) : 6;
    c->decimals = -1;
    spx_free(c->unit);
    if ((c->unit = spx_strdup(d.units, e)) == NULL)
        return SPX_EIO;
    st = spx_dataset_read(&d, start, count, c->f + first, e);
    for (size_t k = 0; k < nwave && st == SPX_OK; k++)
        c->i[first + k] = d.is_float ? 0 : (int64_t)c->f[first + k];
    return st;
}

/* Columns of the spectrum in row `row`: arm, wavelength, and those of `quantity` that there are. Arms that lack one of
 * these have NaN, or 0, there. */
static spx_status print_spectrum(spx_input *in, long row, spx_err *e)
{
    static const char *const quantity[] = {"arm", "wavelength", "flux", "ivar", "mask", "model"};
    enum { ARM, WAVELENGTH, N = sizeof quantity / sizeof *quantity };
    char group[MAX_GROUP][SPX_TEXTCOLUMN_WIDTH], path[2 * SPX_TEXTCOLUMN_WIDTH];
    size_t ngroup = 0, nwave[MAX_GROUP], nrow = 0, n = 0;
    spx_textcolumn c[N] = {{0}};
    spx_status st = find_groups(in, group, &ngroup, e);
    for (size_t g = 0; g < ngroup && st == SPX_OK; g++) {
        int ndim;
        size_t dims[SPX_H5_MAXDIM];
        (void)snprintf(path, sizeof path, "%s/wavelength", group[g]);
        st = spx_h5_shape(in->file, path, &ndim, dims, e);
        nwave[g] = st == SPX_OK ? dims[0] : 0;
        nrow += nwave[g];
    }
    for (size_t q = 0; q < N && st == SPX_OK; q++) {
        int there = q == ARM && ngroup > 1;
        size_t first = 0;
        if ((c[n].name = spx_strdup(quantity[q], e)) == NULL || (c[n].unit = spx_strdup("", e)) == NULL ||
            (c[n].s = spx_alloc2(q == ARM ? nrow : 1, SPX_TEXTCOLUMN_WIDTH, 1, e)) == NULL ||
            (c[n].i = spx_alloc(nrow, sizeof *c[n].i, e)) == NULL ||
            (c[n].f = spx_alloc(nrow, sizeof *c[n].f, e)) == NULL)
            st = SPX_EIO;
        c[n].kind = H5T_STRING;
        for (size_t g = 0; g < ngroup && st == SPX_OK; first += nwave[g++]) {
            for (size_t k = first; k < first + nwave[g]; k++) {
                c[n].f[k] = NAN;
                if (q == ARM)
                    (void)snprintf(c[n].s + k * SPX_TEXTCOLUMN_WIDTH, SPX_TEXTCOLUMN_WIDTH, "%s",
                                   strrchr(group[g], '/') + 1);
            }
            (void)snprintf(path, sizeof path, "%s/%s", group[g], quantity[q]);
            /* the model of a frame is an image */
            if (q == ARM || !spx_h5_exists(in->file, path) || strcmp(path, "/frame/model") == 0)
                continue;
            st = add_values(in, path, row, nwave[g], &c[n], first, e);
            there = 1;
        }
        if (!there) {
            spx_textcolumns_empty(&c[n], 1);
            continue;
        }
        if (strcmp(c[n].name, "wavelength") == 0)
            spx_textcolumn_round(&c[n], nrow, &o.format);
        spx_textcolumn_measure(&c[n++], nrow, &o.format);
    }
    if (st == SPX_OK)
        spx_textcolumns_print(stdout, c, n, 0, nrow, &o.format);
    spx_textcolumns_empty(c, N);
    return st;
}

/* ---- the program ---- */

static spx_status check_options(const spx_run *s, spx_err *e)
{
    const int spectrum = o.spectrum_given || o.targetid != NULL;
    const char *odd = o.table != NULL                  ? "--table"
                      : o.columns != NULL              ? "--columns"
                      : o.rows != NULL                 ? "--rows"
                      : o.provenance && o.format.csv   ? "--csv"
                      : o.provenance && o.format.units ? "--units"
                                                       : NULL;
    if (s->ninput != 1)
        return spx_fail(e, SPX_EUSAGE, "one input file, not %zu", s->ninput);
    if ((o.spectrum_given && o.targetid != NULL) || (spectrum && o.provenance))
        return spx_fail(e, SPX_EUSAGE, "--spectrum, --targetid and --provenance exclude each other");
    if ((spectrum || o.provenance) && odd != NULL)
        return spx_fail(e, SPX_EUSAGE, "%s goes with a table only, not with %s", odd,
                        spectrum ? "a spectrum" : "--provenance");
    return SPX_OK;
}

static spx_status print_usual_table(const spx_input *in, spx_err *e)
{
    static const char *const usual[] = {"/rvfit/table", "/truth/table", "/scores", "/fibermap", NULL};
    const char *path = o.table;
    spx_table *t = NULL;
    for (size_t i = 0; path == NULL && usual[i] != NULL; i++)
        if (spx_h5_exists(in->file, usual[i]))
            path = usual[i];
    if (path == NULL)
        return spx_fail(e, SPX_EINPUT, "%s: none of the usual tables is there: name one with --table (h5dump -n %s)",
                        in->name, in->name);
    spx_status st = spx_table_read(in->file, path, &t, e);
    if (st != SPX_OK)
        return st;
    if (t == NULL)
        return spx_fail(e, SPX_EINPUT, "%s:%s: there is no such table: h5dump -n lists what there is", in->name, path);
    st = print_table(t, path, e);
    if (st != SPX_OK)
        (void)spx_err_context(e, "%s", in->name);
    spx_table_free(t);
    return st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    spx_input *in;
    spx_status st = check_options(s, e);
    if (st == SPX_OK)
        st = spx_run_input(s, 0, &in, e);
    if (st != SPX_OK)
        return st;
    if (o.targetid != NULL)
        st = find_target(in, &o.spectrum, e);
    if (st != SPX_OK)
        return st;
    st = o.provenance                             ? spx_provenance_print(in->file, stdout, e)
         : o.spectrum_given || o.targetid != NULL ? print_spectrum(in, o.spectrum, e)
                                                  : print_usual_table(in, e);
    if (st == SPX_OK && (fflush(stdout) != 0 || ferror(stdout)))
        st = spx_fail(e, SPX_EIO, "standard output: writing failed: is the disk full?");
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {"h5table",
                                        "print tables, a spectrum or the provenance of a product",
                                        "[OPTION...] [FILE]",
                                        options,
                                        SPX_OUT_NONE,
                                        run,
                                        "h5table -c TARGETID,VRAD,VRAD_ERR rv.h5"};
    return spx_main(&program, argc, argv);
}
