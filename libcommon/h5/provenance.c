/* Provides provenance records: appends, copies and prints /provenance/NNN (h5/provenance.h). */
#include "h5/provenance.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "h5/failure.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/write.h"

const char *const spx_provenance_required[] = {"program", "version", "command_line", NULL};

/* Longest line of a record, bytes; longer ones are cut when they are written. */
enum { MAX_LINE = 4096 };

static void record_path(size_t i, char *path, size_t size)
{
    (void)snprintf(path, size, "/provenance/%03zu", i);
}

size_t spx_provenance_count(hid_t file)
{
    char path[64];
    size_t n = 0;
    record_path(n, path, sizeof path);
    while (spx_h5_exists(file, path))
        record_path(++n, path, sizeof path);
    return n;
}

/* Lines of record i, MAX_LINE characters each, padded with NUL; HDF5 removes the blanks that pad them in the file. */
static spx_status read_record(hid_t file, size_t i, size_t *n, char **lines, spx_err *e)
{
    char path[64];
    record_path(i, path, sizeof path);
    *n = 0;
    return spx_h5_read_strings(file, path, MAX_LINE, n, lines, e);
}

static spx_status write_record(hid_t file, size_t i, size_t width, size_t n, const char *lines, spx_err *e)
{
    char path[64];
    record_path(i, path, sizeof path);
    return spx_h5_write_strings(file, path, width, n, lines, e);
}

/* Value of a line `field: value` of a record; of several, joined by line breaks. 0: there is none. */
static int find_field(size_t n, const char *lines, const char *field, char *out, size_t size)
{
    size_t used = 0, len = strlen(field);
    int found = 0;
    out[0] = '\0';
    for (size_t k = 0; k < n && used < size; k++) {
        const char *line = lines + k * MAX_LINE;
        if (strncmp(line, field, len) != 0 || line[len] != ':')
            continue;
        const char *value = line + len + 1;
        value += *value == ' ';
        size_t m = strnlen(value, (size_t)MAX_LINE - (size_t)(value - line));
        used += (size_t)snprintf(out + used, size - used, "%s%.*s", found ? "\n" : "", (int)m, value);
        found = 1;
    }
    return found;
}

spx_status spx_provenance_read(hid_t file, size_t i, const char *field, char *out, size_t size, int *has, spx_err *e)
{
    size_t n;
    char *lines = NULL;
    out[0] = '\0';
    const spx_status st = read_record(file, i, &n, &lines, e);
    *has = st == SPX_OK && find_field(n, lines, field, out, size);
    spx_free(lines);
    return st;
}

int spx_provenance_field(hid_t file, size_t i, const char *field, char *out, size_t size)
{
    int has;
    spx_err err = {0};
    if (spx_provenance_read(file, i, field, out, size, &has, &err) != SPX_OK)
        spx_h5_keep_damage(&err);
    return has;
}

/* Finds a record with exactly these lines among the first nto of `to`. */
static spx_status has_record(hid_t to, size_t nto, size_t n, const char *lines, int *has, spx_err *e)
{
    *has = 0;
    for (size_t i = 0; i < nto && !*has; i++) {
        size_t m;
        char *have = NULL;
        spx_status st = read_record(to, i, &m, &have, e);
        if (st != SPX_OK)
            return st;
        *has = m == n && memcmp(have, lines, n * MAX_LINE) == 0;
        spx_free(have);
    }
    return SPX_OK;
}

/* Has record i, these lines, all that it needs? */
static spx_status check_record(hid_t file, size_t i, size_t n, const char *lines, spx_err *e)
{
    char path[64], value[8];
    record_path(i, path, sizeof path);
    for (const char *const *name = spx_provenance_required; *name != NULL; name++)
        if (!find_field(n, lines, *name, value, sizeof value))
            return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, "check the file with h5check",
                               "has no line '%s: ...'", *name);
    return SPX_OK;
}

spx_status spx_provenance_copy(hid_t from, hid_t to, spx_err *e)
{
    size_t n = spx_provenance_count(from), nto = spx_provenance_count(to);
    spx_status st = SPX_OK;
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        size_t nline;
        char *lines = NULL;
        int has = 0;
        st = read_record(from, i, &nline, &lines, e);
        if (st == SPX_OK)
            st = check_record(from, i, nline, lines, e);
        if (st == SPX_OK && (st = has_record(to, nto, nline, lines, &has, e)) == SPX_OK && !has) {
            size_t width = 1;
            for (size_t k = 0; k < nline; k++) {
                size_t m = strnlen(lines + k * MAX_LINE, MAX_LINE);
                width = m > width ? m : width;
            }
            char *packed = spx_alloc2(nline, width, 1, e);
            if (packed == NULL)
                st = SPX_EIO;
            for (size_t k = 0; k < nline && packed != NULL; k++) {
                memset(packed + k * width, ' ', width);
                memcpy(packed + k * width, lines + k * MAX_LINE, strnlen(lines + k * MAX_LINE, width));
            }
            if (st == SPX_OK)
                st = write_record(to, nto++, width, nline, packed, e);
            spx_free(packed);
        }
        spx_free(lines);
    }
    return st;
}

/* Appends each line of `value` as a line `field: ...`. */
static spx_status add_lines(spx_text *t, const char *field, const char *value, spx_err *e)
{
    spx_status st = SPX_OK;
    for (const char *p = value; p != NULL && *p != '\0' && st == SPX_OK;) {
        size_t n = strcspn(p, "\n");
        st = spx_text_add(t, e, "%s: %.*s\n", field, (int)(n < 4000 ? n : 4000), p);
        p += n + (p[n] == '\n');
    }
    return st;
}

spx_status spx_provenance_append(hid_t file, const spx_provenance *p, spx_err *e)
{
    const struct {
        const char *field, *value;
    } f[] = {{"program", p->program}, {"version", p->version}, {"command_line", p->command_line},
             {"option", p->options},  {"device", p->device},   {"input", p->inputs},
             {"started", p->started}, {"host", p->host},       {"step_seconds", p->step_seconds}};
    spx_text t = {0};
    spx_status st = SPX_OK;
    for (size_t i = 0; i < sizeof f / sizeof *f && st == SPX_OK; i++)
        st = add_lines(&t, f[i].field, f[i].value, e);
    size_t width = 1, n = 0;
    for (const char *q = t.s; q != NULL && *q != '\0'; n++) {
        size_t m = strcspn(q, "\n");
        width = m > width ? m : width;
        q += m + 1;
    }
    char *lines = st == SPX_OK ? spx_alloc2(n, width, 1, e) : NULL;
    if (lines == NULL)
        st = st == SPX_OK ? SPX_EIO : st;
    const char *q = t.s;
    for (size_t k = 0; k < n && lines != NULL; k++) {
        size_t m = strcspn(q, "\n");
        memset(lines + k * width, ' ', width);
        memcpy(lines + k * width, q, m);
        q += m + 1;
    }
    if (st == SPX_OK)
        st = write_record(file, spx_provenance_count(file), width, n, lines, e);
    spx_free(lines);
    spx_text_free(&t);
    return st;
}

/* Prints the lines of a field behind `label`: one under the other, or with `joined` filled, with blanks between. */
static void print_field(FILE *out, const char *label, const char *text, int joined)
{
    enum { WIDTH = 79, INDENT = 13 };
    size_t at = INDENT;
    if (text[0] == '\0')
        return;
    fprintf(out, "    %-*s", INDENT - 4, label);
    for (const char *p = text; *p != '\0'; p += *p == '\n') {
        const size_t n = strcspn(p, "\n");
        if (p > text && (!joined || at + 1 + n > WIDTH)) {
            fprintf(out, "\n%*s", INDENT, "");
            at = INDENT;
        } else if (p > text) {
            fputc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", (int)n, p);
        at += n;
        p += n;
    }
    fputc('\n', out);
}

/* Prints the fields of record i as an object of JSON; text[size] is a workspace. */
static void print_record(FILE *out, hid_t file, size_t i, char *text, size_t size)
{
    static const struct {
        const char *field;
        int several;
    } line[] = {{"program", 0}, {"version", 0}, {"command_line", 0}, {"input", 1},       {"started", 0},
                {"host", 0},    {"device", 0},  {"option", 1},       {"step_seconds", 1}};
    fputc('{', out);
    for (size_t k = 0, printed = 0; k < sizeof line / sizeof *line; k++) {
        if (!spx_provenance_field(file, i, line[k].field, text, size))
            continue;
        fprintf(out, "%s\"%s\": ", printed++ > 0 ? ",\n " : "", line[k].field);
        if (line[k].several)
            spx_json_lines(out, text);
        else
            spx_json_string(out, text);
    }
    fputc('}', out);
}

spx_status spx_provenance_print(hid_t file, int json, FILE *out, spx_err *e)
{
    enum { ROOM = 1 << 16 };
    static const struct {
        const char *field, *label;
        int joined;
    } line[] = {
        {"command_line", "command", 0}, {"input", "inputs", 0},   {"started", "started", 0},     {"host", "host", 0},
        {"device", "device", 0},        {"option", "options", 1}, {"step_seconds", "seconds", 1}};
    const size_t n = spx_provenance_count(file);
    char *text = spx_alloc(ROOM, 1, e);
    if (text == NULL)
        return SPX_EIO;
    if (n == 0) {
        spx_free(text);
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/provenance", NULL,
                           "is missing: no specpipe program wrote this file");
    }
    for (size_t i = 0; json && i < n; i++) {
        fputs(i > 0 ? ",\n" : "[", out);
        print_record(out, file, i, text, ROOM);
    }
    if (json)
        fputs("]\n", out);
    for (size_t i = 0; !json && i < n; i++) {
        (void)spx_provenance_field(file, i, "program", text, ROOM);
        fprintf(out, "%s%zu. %s", i > 0 ? "\n" : "", i + 1, text);
        (void)spx_provenance_field(file, i, "version", text, ROOM);
        fprintf(out, " %s\n", text);
        for (size_t k = 0; k < sizeof line / sizeof *line; k++)
            if (spx_provenance_field(file, i, line[k].field, text, ROOM))
                print_field(out, line[k].label, text, line[k].joined);
    }
    spx_free(text);
    return SPX_OK;
}
