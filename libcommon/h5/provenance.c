#include "h5/provenance.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/h5io.h"

static const char *const fields[] = {"program", "version", "command_line", "options",     "device",
                                     "inputs",  "started", "host",         "step_seconds"};
enum { NFIELD = sizeof fields / sizeof *fields, TEXTLEN = 16384 };

static size_t count(hid_t file)
{
    size_t n = 0;
    char **names = NULL;
    spx_err err = {0};
    if (spx_h5_exists(file, "/provenance") && spx_h5_list(file, "/provenance", &n, &names, &err) == SPX_OK)
        spx_h5_names_free(n, names);
    return n;
}

/* Text of a field of record `path`; empty when it has none. */
static void field_text(hid_t file, const char *path, const char *name, char *out)
{
    spx_err err = {0};
    if (!spx_h5_has_attr(file, path, name) || spx_h5_attr_str(file, path, name, out, TEXTLEN, &err) != SPX_OK)
        out[0] = '\0';
}

static int same_record(hid_t a, const char *pa, hid_t b, const char *pb, char *ta, char *tb)
{
    for (size_t i = 0; i < NFIELD; i++) {
        field_text(a, pa, fields[i], ta);
        field_text(b, pb, fields[i], tb);
        if (strcmp(ta, tb) != 0)
            return 0;
    }
    return 1;
}

static int has_record(hid_t to, size_t nto, hid_t from, const char *path, char *ta, char *tb)
{
    for (size_t i = 0; i < nto; i++) {
        char have[64];
        (void)snprintf(have, sizeof have, "/provenance/%03zu", i);
        if (spx_h5_exists(to, have) && same_record(to, have, from, path, ta, tb))
            return 1;
    }
    return 0;
}

spx_status spx_provenance_copy(hid_t from, hid_t to, spx_err *e)
{
    size_t n = 0, nto = count(to);
    char **names = NULL, *ta = NULL, *tb = NULL;
    if (!spx_h5_exists(from, "/provenance"))
        return SPX_OK;
    spx_status st = spx_h5_list(from, "/provenance", &n, &names, e);
    if (st == SPX_OK && ((ta = spx_alloc(TEXTLEN, 1, e)) == NULL || (tb = spx_alloc(TEXTLEN, 1, e)) == NULL))
        st = SPX_EIO;
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        char path[300], topath[64];
        (void)snprintf(path, sizeof path, "/provenance/%s", names[i]);
        if (has_record(to, nto, from, path, ta, tb))
            continue;
        /* field by field: what a hostile file hangs below a record does not travel */
        (void)snprintf(topath, sizeof topath, "/provenance/%03zu", nto++);
        st = spx_h5_group(to, topath, e);
        for (size_t k = 0; k < NFIELD && st == SPX_OK; k++) {
            field_text(from, path, fields[k], ta);
            if (ta[0] != '\0')
                st = spx_h5_set_str(to, topath, fields[k], ta, e);
        }
    }
    spx_free(ta);
    spx_free(tb);
    spx_h5_names_free(n, names);
    return st;
}

spx_status spx_provenance_append(hid_t file, const spx_provenance *p, spx_err *e)
{
    const char *value[NFIELD] = {p->program, p->version, p->command_line, p->options,     p->device,
                                 p->inputs,  p->started, p->host,         p->step_seconds};
    char path[64];
    (void)snprintf(path, sizeof path, "/provenance/%03zu", count(file));
    spx_status st = spx_h5_group(file, path, e);
    for (size_t i = 0; i < NFIELD && st == SPX_OK; i++)
        if (value[i] != NULL)
            st = spx_h5_set_str(file, path, fields[i], value[i], e);
    return st;
}
