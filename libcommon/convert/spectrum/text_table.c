/* Reads a spectrum from a text table (convert/spectrum/text_table.h). */
#include "convert/spectrum/text_table.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lines.h"
#include "base/mem.h"

typedef struct {
    size_t n, capacity[3];
    double *v[3];
} columns;

static spx_status add_row(columns *c, const double *v, spx_err *e)
{
    for (int k = 0; k < 3; k++) {
        double *more = spx_grow(c->v[k], c->n, 1, &c->capacity[k], sizeof *more, e);
        if (more == NULL)
            return SPX_EIO;
        c->v[k] = more;
        more[c->n] = v[k];
    }
    c->n++;
    return SPX_OK;
}

/* Parses numbers of a line, separated by blanks, commas or semicolons, into v[3]; returns how many, -1: other text,
 * too. "nan" is a number. */
static int line_numbers(const char *p, double *v)
{
    int n = 0;
    for (;;) {
        char *end;
        p += strspn(p, " \t,;\r\n");
        if (*p == '\0')
            return n;
        double x = strtod(p, &end);
        if (end == p || strchr(" \t,;\r\n", *end) == NULL)
            return -1;
        if (n < 3)
            v[n] = x;
        n++;
        p = end;
    }
}

/* Kind of the third column by the line of names: inverse variance or error. */
static spx_fits_noise kind_by_name(const char *line)
{
    char lower[256];
    size_t n = 0;
    for (; line[n] && n + 1 < sizeof lower; n++)
        lower[n] = (char)tolower((unsigned char)line[n]);
    lower[n] = 0;
    return strstr(lower, "ivar") != NULL || strstr(lower, "invvar") != NULL ? SPX_NOISE_IVAR : SPX_NOISE_SIGMA;
}

spx_status spx_text_spectrum_find(const char *name, spx_fits_spectra *out, spx_err *e)
{
    *out = (spx_fits_spectra){0};
    FILE *f = fopen(name, "r");
    if (f == NULL)
        return SPX_OK;
    columns c = {0};
    spx_lines lines = {.name = name, .file = f};
    char *line;
    size_t len;
    int ncol = 0, named = 0, text = 1;
    spx_fits_noise kind = SPX_NOISE_SIGMA;
    spx_status st = SPX_OK;
    while (st == SPX_OK && text && (line = spx_lines_raw(&lines, &len)) != NULL) {
        double v[3] = {0, 0, 0};
        if (strlen(line) != len) { /* NUL bytes: not a text file */
            text = 0;
            break;
        }
        if (line[0] == '#' && ncol == 0)
            kind = kind_by_name(line);
        line[strcspn(line, "#")] = '\0';
        int n = line_numbers(line, v);
        if (n == 0)
            continue;
        if (n < 2 || (ncol > 0 && n != ncol)) {
            if (ncol == 0 && !named) { /* line of column names */
                named = 1;
                kind = kind_by_name(line);
                continue;
            }
            text = 0;
            if (c.n >= 2) /* damaged: the lines before were a table */
                st = spx_fail(e, SPX_EINPUT, "%s:%zu: is not a line of %d numbers as those before", name, lines.number,
                              ncol);
            break;
        }
        ncol = n;
        st = add_row(&c, v, e);
    }
    if (lines.too_long) {
        text = 0;
        lines.too_long = 0;
    }
    st = spx_lines_close(&lines, st, e);
    spx_fits_spectrum *s = NULL;
    if (st == SPX_OK && text && c.n >= 2 && (s = spx_alloc(1, sizeof *s, e)) == NULL)
        st = SPX_EIO;
    if (s == NULL) {
        for (int k = 0; k < 3; k++)
            spx_free(c.v[k]);
        return st;
    }
    *s = (spx_fits_spectrum){.arm = "spectrum",
                             .n = c.n,
                             .flux = SPX_NO_VALUES,
                             .noise = SPX_NO_VALUES,
                             .mask = SPX_NO_VALUES,
                             .wave = SPX_NO_VALUES,
                             .kind = ncol > 2 ? kind : SPX_NOISE_NONE,
                             .medium = -1,
                             .barycentric = -1,
                             .unit = 0};
    for (int k = 0; k < 3; k++)
        s->given[k] = c.v[k];
    *out = (spx_fits_spectra){.format = "text", .n = 1, .capacity = 1, .s = s};
    return SPX_OK;
}
