/* Provides provenance records: appends, copies and prints /provenance/NNN (h5/provenance.h). */
#include "h5/provenance.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
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

/* n lines of `width` characters each, padded with NUL; HDF5 removes the blanks that pad them in the file. */
typedef struct {
    size_t n, width;
    char *lines;
} record;

static spx_status read_record(hid_t file, size_t i, record *r, spx_err *e)
{
    char path[64];
    record_path(i, path, sizeof path);
    memset(r, 0, sizeof *r);
    return spx_h5_read_lines(file, path, MAX_LINE, &r->width, &r->n, &r->lines, e);
}

static spx_status write_record(hid_t file, size_t i, size_t width, size_t n, const char *lines, spx_err *e)
{
    char path[64];
    record_path(i, path, sizeof path);
    return spx_h5_write_strings(file, path, width, n, lines, e);
}

/* Value of a line `field: value` of a record; of several, joined by line breaks. 0: there is none. */
static int find_field(const record *r, const char *field, char *out, size_t size)
{
    size_t used = 0, len = strlen(field);
    int found = 0;
    out[0] = '\0';
    for (size_t k = 0; k < r->n && used < size; k++) {
        const char *line = r->lines + k * r->width, *end = line + strnlen(line, r->width);
        if ((size_t)(end - line) <= len || strncmp(line, field, len) != 0 || line[len] != ':')
            continue;
        const char *value = line + len + 1;
        value += value < end && *value == ' ';
        used += (size_t)snprintf(out + used, size - used, "%s%.*s", found ? "\n" : "", (int)(end - value), value);
        found = 1;
    }
    return found;
}

spx_status spx_provenance_read(hid_t file, size_t i, const char *field, char *out, size_t size, int *has, spx_err *e)
{
    record r;
    out[0] = '\0';
    const spx_status st = read_record(file, i, &r, e);
    *has = st == SPX_OK && find_field(&r, field, out, size);
    spx_free(r.lines);
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

int spx_provenance_option(hid_t file, const char *name, char *value, size_t size)
{
    enum { MOST = 16384 };
    const size_t len = strlen(name);
    int found = 0;
    spx_err e = {0};
    char *text = spx_alloc(MOST, 1, &e);
    for (size_t i = spx_provenance_count(file); text != NULL && !found && i-- > 0;)
        if (spx_provenance_field(file, i, "option", text, MOST))
            for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
                if (strncmp(line, name, len) == 0 && line[len] == '=' && line[len + 1]) {
                    (void)snprintf(value, size, "%s", line + len + 1);
                    found = 1;
                }
    spx_free(text);
    return found;
}

/* Has record i all lines that it needs? */
static spx_status check_record(hid_t file, size_t i, const record *r, spx_err *e)
{
    char path[64], value[8];
    record_path(i, path, sizeof path);
    for (const char *const *name = spx_provenance_required; *name != NULL; name++)
        if (!find_field(r, *name, value, sizeof value))
            return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, "check the file with h5check",
                               "has no line '%s: ...'", *name);
    return SPX_OK;
}

/* ---- copying ---- */

/* Records of a product by their hashes: products of many exposures have thousands, which are not read again for each
 * other. Open addressing; a place that is 0 is free. */
typedef struct {
    size_t nplace, n;
    struct {
        uint64_t hash;
        size_t record; /* its number + 1 */
    } * place;
} record_set;

static uint64_t hash_of(const record *r)
{
    uint64_t h = SPX_FNV1A;
    for (size_t k = 0; k < r->n; k++) {
        const char *line = r->lines + k * r->width;
        h = spx_fnv1a(spx_fnv1a(h, line, strnlen(line, r->width)), "\n", 1);
    }
    return h;
}

static int same_lines(const record *a, const record *b)
{
    int same = a->n == b->n;
    for (size_t k = 0; k < a->n && same; k++) {
        const char *x = a->lines + k * a->width, *y = b->lines + k * b->width;
        const size_t n = strnlen(x, a->width);
        same = n == strnlen(y, b->width) && memcmp(x, y, n) == 0;
    }
    return same;
}

/* Enters record `number`, which is not there, where there is place. */
static void enter(record_set *s, uint64_t hash, size_t number)
{
    size_t k = hash % s->nplace;
    while (s->place[k].record != 0)
        k = (k + 1) % s->nplace;
    s->place[k].hash = hash;
    s->place[k].record = number + 1;
    s->n++;
}

static spx_status grow_set(record_set *s, spx_err *e)
{
    record_set more = {.nplace = 2 * s->nplace + 61};
    if (2 * s->n < s->nplace)
        return SPX_OK;
    if ((more.place = spx_alloc(more.nplace, sizeof *more.place, e)) == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < s->nplace; k++)
        if (s->place[k].record != 0)
            enter(&more, s->place[k].hash, s->place[k].record - 1);
    spx_free(s->place);
    *s = more;
    return SPX_OK;
}

/* Is a record with exactly these lines in `to`? One with its hash is compared line by line. */
static spx_status has_record(const record_set *s, hid_t to, uint64_t hash, const record *r, int *has, spx_err *e)
{
    spx_status st = SPX_OK;
    *has = 0;
    if (s->nplace == 0)
        return SPX_OK;
    for (size_t k = hash % s->nplace; s->place[k].record != 0 && !*has && st == SPX_OK; k = (k + 1) % s->nplace) {
        record have;
        if (s->place[k].hash != hash)
            continue;
        st = read_record(to, s->place[k].record - 1, &have, e);
        *has = st == SPX_OK && same_lines(&have, r);
        spx_free(have.lines);
    }
    return st;
}

static spx_status copy_record(const record *r, hid_t to, size_t number, spx_err *e)
{
    size_t width = 1;
    for (size_t k = 0; k < r->n; k++) {
        const size_t m = strnlen(r->lines + k * r->width, r->width);
        width = m > width ? m : width;
    }
    char *packed = spx_alloc2(r->n, width, 1, e);
    if (packed == NULL)
        return SPX_EIO;
    for (size_t k = 0; k < r->n; k++) {
        const char *line = r->lines + k * r->width;
        memset(packed + k * width, ' ', width);
        memcpy(packed + k * width, line, strnlen(line, r->width));
    }
    const spx_status st = write_record(to, number, width, r->n, packed, e);
    spx_free(packed);
    return st;
}

/* Adds the record to `to` and its set, if it is not there. */
static spx_status add_record(record_set *s, const record *r, hid_t to, spx_err *e)
{
    const uint64_t hash = hash_of(r);
    int has = 0;
    spx_status st = has_record(s, to, hash, r, &has, e);
    if (st != SPX_OK || has)
        return st;
    if ((st = grow_set(s, e)) == SPX_OK && (st = copy_record(r, to, s->n, e)) == SPX_OK)
        enter(s, hash, s->n);
    return st;
}

spx_status spx_provenance_copy(size_t nfrom, const hid_t *from, hid_t to, spx_err *e)
{
    record_set set = {0};
    spx_status st = SPX_OK;
    for (size_t k = 0; k < nfrom && st == SPX_OK; k++) {
        const size_t n = spx_provenance_count(from[k]);
        for (size_t i = 0; i < n && st == SPX_OK; i++) {
            record r;
            st = read_record(from[k], i, &r, e);
            if (st == SPX_OK)
                st = check_record(from[k], i, &r, e);
            if (st == SPX_OK)
                st = add_record(&set, &r, to, e);
            spx_free(r.lines);
        }
    }
    spx_free(set.place);
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

/* Fields as they are printed; those with a label as text, and those with several lines as arrays of JSON. */
static const struct {
    const char *field, *label;
    int several, joined;
} printed[] = {{"program", NULL, 0, 0},    {"version", NULL, 0, 0},      {"command_line", "command", 0, 0},
               {"input", "inputs", 1, 0},  {"started", "started", 0, 0}, {"host", "host", 0, 0},
               {"device", "device", 0, 0}, {"option", "options", 1, 1},  {"step_seconds", "seconds", 1, 1}};

enum { NPRINTED = sizeof printed / sizeof *printed, LONGEST_FIELD = 1 << 16 };

/* text[LONGEST_FIELD] is a workspace. */
static void print_json(FILE *out, const record *r, char *text)
{
    fputc('{', out);
    for (size_t k = 0, n = 0; k < NPRINTED; k++) {
        if (!find_field(r, printed[k].field, text, LONGEST_FIELD))
            continue;
        fprintf(out, "%s\"%s\": ", n++ > 0 ? ",\n " : "", printed[k].field);
        if (printed[k].several)
            spx_json_lines(out, text);
        else
            spx_json_string(out, text);
    }
    fputc('}', out);
}

static void print_text(FILE *out, const record *r, size_t number, char *text)
{
    (void)find_field(r, "program", text, LONGEST_FIELD);
    fprintf(out, "%s%zu. %s", number > 1 ? "\n" : "", number, text);
    (void)find_field(r, "version", text, LONGEST_FIELD);
    fprintf(out, " %s\n", text);
    for (size_t k = 0; k < NPRINTED; k++)
        if (printed[k].label != NULL && find_field(r, printed[k].field, text, LONGEST_FIELD))
            print_field(out, printed[k].label, text, printed[k].joined);
}

spx_status spx_provenance_print(hid_t file, int json, FILE *out, spx_err *e)
{
    const size_t n = spx_provenance_count(file);
    char *text = spx_alloc(LONGEST_FIELD, 1, e);
    if (text == NULL)
        return SPX_EIO;
    if (n == 0) {
        spx_free(text);
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/provenance", NULL,
                           "is missing: no specpipe program wrote this file");
    }
    for (size_t i = 0; i < n; i++) {
        record r;
        spx_err err = {0};
        if (read_record(file, i, &r, &err) != SPX_OK)
            spx_h5_keep_damage(&err);
        if (json)
            fputs(i > 0 ? ",\n" : "[", out);
        if (json)
            print_json(out, &r, text);
        else
            print_text(out, &r, i + 1, text);
        spx_free(r.lines);
    }
    if (json)
        fputs("]\n", out);
    spx_free(text);
    return SPX_OK;
}
