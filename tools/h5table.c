/* h5table: prints the tables of a product, one of its spectra, or its provenance as text. */
#include <stdio.h>
#include <string.h>

#include "app/main.h"
#include "base/json.h"
#include "base/parse.h"
#include "common/spectrum_text.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/provenance.h"
#include "h5/table.h"
#include "h5/textcolumn.h"

enum { MAX_COLUMN = 1024 };

static struct {
    const char *table, *columns, *rows, *targetid;
    long spectrum;
    int list, provenance, spectrum_given;
    spx_textformat format;
} o;

static const spx_opt options[] = {
    SPX_OPTION(STRING, "table", 't', "PATH", o.table, "Table to print",
               .absent = "first of /rvfit/table, /truth/table, /scores, /fibermap", .offers = "tables"),
    SPX_OPTION(STRING, "columns", 'c', "NAME,NAME...", o.columns, "Columns to print, in this order",
               .absent = "all that hold one number or text a row", .offers = "columns"),
    SPX_OPTION(STRING, "rows", 'r', "FIRST:LAST", o.rows, "Rows of the table to print, counted from 0, without LAST",
               .absent = "all"),
    SPX_OPTION(
        INT, "spectrum", 's', "N", o.spectrum,
        "Print this spectrum instead of a table: the row N, counted from 0. Its columns are arm (where there are "
        "several), wavelength, flux, ivar and mask, or, of the product of rvs-fit, wavelength and model",
        .min = 0, .max = 1e9, .given = &o.spectrum_given, .no_default = 1),
    SPX_OPTION(STRING, "targetid", 0, "ID", o.targetid, "Print the spectrum of this target"),
    SPX_OPTION(FLAG, "list", 'l', NULL, o.list,
               "List the tables that there are, with their rows and columns. The one that is printed without --table "
               "comes first"),
    SPX_OPTION(FLAG, "provenance", 'p', NULL, o.provenance,
               "Print how the product was made, program by program: commands, inputs, options"),
    SPX_OPTION(FLAG, "units", 'u', NULL, o.format.units, "Print the units in a second line"),
    SPX_OPTION(FLAG, "csv", 0, NULL, o.format.csv, "Comma-separated values with all digits, not aligned columns"),
    SPX_OPTION(FLAG, "json", 0, NULL, o.format.json, "JSON with all digits and the units; what is not finite is null"),
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
        spx_textcolumns_print(stdout, "table", path, c, n, first, nrow, &o.format);
    spx_textcolumns_empty(c, n);
    spx_free(c);
    return st;
}

/* ---- the program ---- */

static spx_status check_options(const spx_run *s, spx_err *e)
{
    const int spectrum = o.spectrum_given || o.targetid != NULL, other = o.provenance || o.list;
    const char *odd = o.table != NULL           ? "--table"
                      : o.columns != NULL       ? "--columns"
                      : o.rows != NULL          ? "--rows"
                      : other && o.format.csv   ? "--csv"
                      : other && o.format.units ? "--units"
                                                : NULL;
    if (s->ninput != 1)
        return spx_fail(e, SPX_EUSAGE, "one input file, not %zu", s->ninput);
    if (o.spectrum_given + (o.targetid != NULL) + o.provenance + o.list > 1)
        return spx_fail(e, SPX_EUSAGE, "--spectrum, --targetid, --provenance and --list exclude each other");
    if ((spectrum || other) && odd != NULL)
        return spx_fail(e, SPX_EUSAGE, "%s goes with a table only, not with %s", odd,
                        spectrum       ? "a spectrum"
                        : o.provenance ? "--provenance"
                                       : "--list");
    if (o.format.json && (o.format.csv || o.format.units))
        return spx_fail(e, SPX_EUSAGE, "%s: not with --json, which has %s", o.format.csv ? "--csv" : "--units",
                        o.format.csv ? "a form of its own" : "the units");
    return SPX_OK;
}

/* The table that is printed when none is named; NULL: none of the usual ones is there. */
static const char *usual_table(const spx_input *in)
{
    static const char *const usual[] = {"/rvfit/table", "/truth/table", "/scores", "/fibermap"};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (spx_h5_exists(in->file, usual[i]))
            return usual[i];
    return NULL;
}

static spx_status print_usual_table(const spx_input *in, spx_err *e)
{
    const char *path = o.table != NULL ? o.table : usual_table(in);
    spx_table *t = NULL;
    if (path == NULL)
        return spx_fail(e, SPX_EINPUT, "%s: none of the usual tables is there: name one with --table (h5table --list)",
                        in->name);
    spx_status st = spx_table_read(in->file, path, &t, e);
    if (st != SPX_OK)
        return st;
    if (t == NULL)
        return spx_fail(e, SPX_EINPUT, "%s:%s: there is no such table: h5table --list lists what there is", in->name,
                        path);
    st = print_table(t, path, e);
    if (st != SPX_OK)
        (void)spx_err_context(e, "%s", in->name);
    spx_table_free(t);
    return st;
}

/* Prints a line of --list: path, rows and columns of a table. */
static void print_entry(const spx_table_entry *t, int width, int first)
{
    if (!o.format.json) {
        printf("%-*s  %8zu  %s\n", width, t->path, t->nrow, t->columns != NULL ? t->columns : "-");
        return;
    }
    printf("%s{\"table\": ", first ? "[" : ",\n");
    spx_json_string(stdout, t->path);
    printf(", \"nrow\": %zu, \"columns\": ", t->nrow);
    for (char *p = t->columns; p != NULL && *p != '\0'; p++)
        *p = *p == ',' ? '\n' : *p;
    spx_json_lines(stdout, t->columns != NULL ? t->columns : "");
    printf("}");
}

static spx_status print_list(const spx_input *in, spx_err *e)
{
    spx_table_entry *t = NULL;
    const char *usual = usual_table(in);
    size_t n = 0;
    int width = 5, printed = 0;
    spx_status st = spx_table_list(in->file, "/", &n, &t, e);
    for (size_t i = 0; i < n; i++)
        width = (int)strlen(t[i].path) > width ? (int)strlen(t[i].path) : width;
    if (st == SPX_OK && !o.format.json)
        printf("%-*s  %8s  COLUMNS\n", width, "TABLE", "ROWS");
    for (int usual_now = 1; usual_now >= 0 && st == SPX_OK; usual_now--)
        for (size_t i = 0; i < n; i++)
            if ((usual != NULL && strcmp(t[i].path, usual) == 0) == usual_now)
                print_entry(&t[i], width, printed++ == 0);
    if (st == SPX_OK && o.format.json)
        printf("%s]\n", printed == 0 ? "[" : "");
    spx_table_list_free(n, t);
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
        st = spx_spectrum_of_target(in, o.targetid, &o.spectrum, e);
    if (st != SPX_OK)
        return st;
    st = o.provenance                             ? spx_provenance_print(in->file, o.format.json, stdout, e)
         : o.list                                 ? print_list(in, e)
         : o.spectrum_given || o.targetid != NULL ? spx_spectrum_print(in, o.spectrum, &o.format, stdout, e)
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
