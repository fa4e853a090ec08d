/* h5table: the tables of a product as text. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "app/main.h"
#include "h5/file.h"
#include "h5/object.h"
#include "h5/table.h"

enum { MAX_COLUMN = 1024, TEXT_WIDTH = 64 };

static const char *opt_table, *opt_columns;
static int opt_csv, opt_units;

static const spx_opt options[] = {
    SPX_OPTION(STRING, "table", 't', "PATH", opt_table, "Table to print",
               .absent = "first of /rvfit/table, /truth/table, /scores, /fibermap"),
    SPX_OPTION(STRING, "columns", 'c', "NAME,NAME...", opt_columns, "Columns to print, in this order",
               .absent = "all that hold one number or text a row"),
    SPX_OPTION(FLAG, "units", 'u', NULL, opt_units, "Print the units in a second line"),
    SPX_OPTION(FLAG, "csv", 0, NULL, opt_csv, "Comma-separated values with all digits, not aligned columns"),
    {0}};

/* One column as text: how its values are held, and how wide they are on paper. */
typedef struct {
    char *name, *unit;
    H5T_class_t kind; /* H5T_INTEGER, H5T_FLOAT or H5T_STRING */
    int digits;       /* of a floating-point number */
    int64_t *i;
    double *f;
    char *s; /* rows of TEXT_WIDTH bytes */
    int width;
} column;

static void columns_free(column *c, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        spx_free(c[k].name);
        spx_free(c[k].unit);
        spx_free(c[k].i);
        spx_free(c[k].f);
        spx_free(c[k].s);
    }
    spx_free(c);
}

/* How one value stands in a table of text; never longer than `size`. */
static void value_text(const column *c, size_t row, char *out, size_t size)
{
    if (c->kind == H5T_STRING)
        (void)snprintf(out, size, "%s", c->s + row * TEXT_WIDTH);
    else if (c->kind == H5T_INTEGER)
        (void)snprintf(out, size, "%" PRId64, c->i[row]);
    else
        (void)snprintf(out, size, "%.*g", c->digits, c->f[row]);
}

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

static spx_status column_fill(const spx_table *t, int col, column *c, spx_err *e)
{
    size_t size;
    spx_status st;
    c->kind = printable(t, col, &size);
    if ((c->name = spx_table_name(t, col, e)) == NULL || (c->unit = spx_table_unit(t, col, e)) == NULL)
        return SPX_EIO;
    if (c->kind == H5T_STRING) {
        if ((c->s = spx_alloc2(t->nrow, TEXT_WIDTH, 1, e)) == NULL)
            return SPX_EIO;
        st = spx_table_get_str(t, c->name, TEXT_WIDTH, c->s, e);
    } else if (c->kind == H5T_INTEGER) {
        if ((c->i = spx_alloc(t->nrow, sizeof *c->i, e)) == NULL)
            return SPX_EIO;
        st = spx_table_get_i64(t, c->name, c->i, e);
    } else {
        if ((c->f = spx_alloc(t->nrow, sizeof *c->f, e)) == NULL)
            return SPX_EIO;
        /* all digits that tell two values of this size apart, or as many as a person reads */
        c->digits = opt_csv ? (size > 4 ? 17 : 9) : (size > 4 ? 10 : 7);
        st = spx_table_get_f64(t, c->name, c->f, e);
    }
    c->width = (int)strlen(c->name);
    if (opt_units && (int)strlen(c->unit) > c->width)
        c->width = (int)strlen(c->unit);
    for (size_t r = 0; r < t->nrow && st == SPX_OK; r++) {
        char text[TEXT_WIDTH];
        value_text(c, r, text, sizeof text);
        if ((int)strlen(text) > c->width)
            c->width = (int)strlen(text);
    }
    return st;
}

/* The columns asked for, or all that can be printed. */
static spx_status columns_find(const spx_table *t, const char *path, column *c, size_t *n, spx_err *e)
{
    spx_status st = SPX_OK;
    size_t size;
    if (opt_columns == NULL) {
        for (int col = 0; col < (int)spx_table_ncol(t) && *n < MAX_COLUMN && st == SPX_OK; col++)
            if (printable(t, col, &size) != H5T_NO_CLASS)
                st = column_fill(t, col, &c[(*n)++], e);
        return st;
    }
    for (const char *p = opt_columns; st == SPX_OK; p++) {
        char name[256];
        size_t len = strcspn(p, ",");
        if (len == 0 || len >= sizeof name || *n == MAX_COLUMN)
            return spx_fail(e, SPX_EUSAGE, "--columns: '%s' should be names separated by commas", opt_columns);
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

static void print_cell(const column *c, const char *text, int first, int last)
{
    if (opt_csv && strpbrk(text, ",\"\n") != NULL) {
        printf("%s\"", first ? "" : ",");
        for (; *text != '\0'; text++)
            printf(*text == '"' ? "\"\"" : "%c", *text);
        putchar('"');
    } else if (opt_csv)
        printf("%s%s", first ? "" : ",", text);
    else if (c->kind == H5T_STRING)
        printf("%s%-*s", first ? "" : "  ", last ? 0 : c->width, *text != '\0' ? text : "-");
    else
        printf("%s%*s", first ? "" : "  ", c->width, *text != '\0' ? text : "-");
    if (last)
        putchar('\n');
}

static spx_status print_table(const spx_table *t, const char *path, spx_err *e)
{
    size_t n = 0;
    column *c = spx_alloc(MAX_COLUMN, sizeof *c, e);
    if (c == NULL)
        return SPX_EIO;
    spx_status st = columns_find(t, path, c, &n, e);
    for (size_t k = 0; k < n && st == SPX_OK; k++)
        print_cell(&c[k], c[k].name, k == 0, k + 1 == n);
    for (size_t k = 0; k < n && opt_units && st == SPX_OK; k++)
        print_cell(&c[k], c[k].unit, k == 0, k + 1 == n);
    for (size_t r = 0; r < t->nrow && st == SPX_OK; r++)
        for (size_t k = 0; k < n; k++) {
            char text[TEXT_WIDTH];
            value_text(&c[k], r, text, sizeof text);
            print_cell(&c[k], text, k == 0, k + 1 == n);
        }
    columns_free(c, n);
    if (st == SPX_OK && (fflush(stdout) != 0 || ferror(stdout)))
        st = spx_fail(e, SPX_EIO, "standard output: writing failed: is the disk full?");
    return st;
}

static spx_status run(spx_run *s, spx_err *e)
{
    static const char *const usual[] = {"/rvfit/table", "/truth/table", "/scores", "/fibermap", NULL};
    const char *path = opt_table;
    spx_input *in;
    spx_table *t = NULL;
    if (s->ninput != 1)
        return spx_fail(e, SPX_EUSAGE, "one input file, not %zu", s->ninput);
    spx_status st = spx_run_input(s, 0, &in, e);
    if (st != SPX_OK)
        return st;
    for (size_t i = 0; path == NULL && usual[i] != NULL; i++)
        if (spx_h5_exists(in->file, usual[i]))
            path = usual[i];
    if (path == NULL)
        return spx_fail(e, SPX_EINPUT, "%s: none of the usual tables is there: name one with --table (h5dump -n %s)",
                        in->name, in->name);
    if ((st = spx_table_read(in->file, path, &t, e)) != SPX_OK)
        return st;
    if (t == NULL)
        return spx_fail(e, SPX_EINPUT, "%s:%s: there is no such table: h5dump -n lists what there is", in->name, path);
    st = print_table(t, path, e);
    if (st != SPX_OK)
        (void)spx_err_context(e, "%s", in->name);
    spx_table_free(t);
    return st;
}

int main(int argc, char **argv)
{
    static const spx_program program = {
        "h5table", "print a table of a product as text",     "[OPTION...] [FILE]", options, SPX_OUT_NONE,
        run,       "h5table -c TARGETID,VRAD,VRAD_ERR rv.h5"};
    return spx_main(&program, argc, argv);
}
