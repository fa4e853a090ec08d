/* Prints columns as text: aligned, comma-separated, or JSON (h5/textcolumn.h). */
#include "h5/textcolumn.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

void spx_textcolumns_empty(spx_textcolumn *c, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        spx_free(c[k].name);
        spx_free(c[k].unit);
        spx_free(c[k].i);
        spx_free(c[k].f);
        spx_free(c[k].s);
        c[k] = (spx_textcolumn){0};
    }
}

/* Text of one value; never longer than `size`. */
static void value_text(const spx_textcolumn *c, size_t row, char *out, size_t size)
{
    if (c->kind == H5T_STRING)
        (void)snprintf(out, size, "%s", c->s + row * SPX_TEXTCOLUMN_WIDTH);
    else if (c->kind == H5T_INTEGER)
        (void)snprintf(out, size, "%" PRId64, c->i[row]);
    else if (c->decimals >= 0)
        (void)snprintf(out, size, "%.*f", c->decimals, c->f[row]);
    else
        (void)snprintf(out, size, "%.*g", c->digits, c->f[row]);
}

void spx_textcolumn_round(spx_textcolumn *c, size_t nrow, const spx_textformat *f)
{
    enum { MOST = 4 };
    const int angle_or_date = strncmp(c->unit, "deg", 3) == 0 || c->unit[0] == 'd';
    double largest = 0;
    int needed = 0;
    c->decimals = -1;
    if (f->csv || f->json || c->kind != H5T_FLOAT || angle_or_date)
        return;
    for (size_t r = 0; r < nrow; r++) {
        char text[SPX_TEXTCOLUMN_WIDTH];
        if (!isfinite(c->f[r]) || fabs(c->f[r]) >= 1e9)
            continue;
        largest = fmax(largest, fabs(c->f[r]));
        int decimals = MOST;
        (void)snprintf(text, sizeof text, "%.*f", MOST, c->f[r]);
        for (size_t n = strlen(text); decimals > 0 && text[n - 1] == '0'; n--)
            decimals--;
        needed = decimals > needed ? decimals : needed;
    }
    if (largest >= 0.1)
        c->decimals = needed;
    else
        c->digits = MOST + 1;
}

void spx_textcolumn_measure(spx_textcolumn *c, size_t nrow, const spx_textformat *f)
{
    c->width = (int)strlen(c->name);
    if (f->units && (int)strlen(c->unit) > c->width)
        c->width = (int)strlen(c->unit);
    for (size_t r = 0; r < nrow; r++) {
        char text[SPX_TEXTCOLUMN_WIDTH];
        value_text(c, r, text, sizeof text);
        if ((int)strlen(text) > c->width)
            c->width = (int)strlen(text);
    }
}

int spx_textcolumn_digits(size_t bytes, const spx_textformat *f)
{
    return f->csv || f->json ? (bytes > 4 ? 17 : 9) : (bytes > 4 ? 10 : 7);
}

static void print_cell(FILE *out, const spx_textcolumn *c, const char *text, int first, int last, int csv)
{
    if (csv && strpbrk(text, ",\"\n") != NULL) {
        fprintf(out, "%s\"", first ? "" : ",");
        for (; *text != '\0'; text++)
            fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
        fputc('"', out);
    } else if (csv)
        fprintf(out, "%s%s", first ? "" : ",", text);
    else if (c->kind == H5T_STRING)
        fprintf(out, "%s%-*s", first ? "" : "  ", last ? 0 : c->width, *text != '\0' ? text : "-");
    else
        fprintf(out, "%s%*s", first ? "" : "  ", c->width, *text != '\0' ? text : "-");
    if (last)
        fputc('\n', out);
}

static void print_json(FILE *out, const char *kind, const char *name, const spx_textcolumn *c, size_t n, size_t first,
                       size_t nrow)
{
    fprintf(out, "{\"%s\": ", kind);
    if (name[0] >= '0' && name[0] <= '9')
        fputs(name, out);
    else
        spx_json_string(out, name);
    fputs(",\n\"units\": {", out);
    for (size_t k = 0, printed = 0; k < n; k++) {
        if (c[k].unit[0] == '\0')
            continue;
        fputs(printed++ > 0 ? ", " : "", out);
        spx_json_string(out, c[k].name);
        fputs(": ", out);
        spx_json_string(out, c[k].unit);
    }
    fputs("},\n\"rows\": [", out);
    for (size_t r = first; r < first + nrow; r++) {
        fputs(r > first ? ",\n{" : "\n{", out);
        for (size_t k = 0; k < n; k++) {
            fputs(k > 0 ? ", " : "", out);
            spx_json_string(out, c[k].name);
            fputs(": ", out);
            if (c[k].kind == H5T_STRING)
                spx_json_string(out, c[k].s + r * SPX_TEXTCOLUMN_WIDTH);
            else if (c[k].kind == H5T_INTEGER)
                fprintf(out, "%" PRId64, c[k].i[r]);
            else
                spx_json_number(out, c[k].f[r], c[k].digits);
        }
        fputc('}', out);
    }
    fputs("\n]}\n", out);
}

void spx_textcolumns_print(FILE *out, const char *kind, const char *name, const spx_textcolumn *c, size_t n,
                           size_t first, size_t nrow, const spx_textformat *f)
{
    if (f->json) {
        print_json(out, kind, name, c, n, first, nrow);
        return;
    }
    for (size_t k = 0; k < n; k++)
        print_cell(out, &c[k], c[k].name, k == 0, k + 1 == n, f->csv);
    for (size_t k = 0; k < n && f->units; k++)
        print_cell(out, &c[k], c[k].unit, k == 0, k + 1 == n, f->csv);
    for (size_t r = first; r < first + nrow; r++)
        for (size_t k = 0; k < n; k++) {
            char text[SPX_TEXTCOLUMN_WIDTH];
            value_text(&c[k], r, text, sizeof text);
            print_cell(out, &c[k], text, k == 0, k + 1 == n, f->csv);
        }
}
