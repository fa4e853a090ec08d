/* Provides provenance, /provenance/NNN: one record a run of a program, appended, as samtools' @PG lines. A record is a
 * list of text lines `field: value` (h5dump -g /provenance shows them as they stand); a field with several lines is
 * repeated. */
#ifndef SPX_PROVENANCE_H
#define SPX_PROVENANCE_H

#include <hdf5.h>
#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

typedef struct {
    const char *program, *version;
    const char *command_line;
    const char *options; /* name=value lines */
    const char *device;  /* NULL when no kernel ran */
    const char *inputs;  /* one line an input: name, size, time of last change */
    const char *started; /* UTC, ISO 8601; NULL with --reproducible, as is the rest */
    const char *host;
    const char *step_seconds; /* "read 0.12\nextract 3.4" */
} spx_provenance;

/* Lines that each record has; NULL ends them. */
extern const char *const spx_provenance_required[];

/* Copies all records of the n files `from` to `to`, which has none, in their order; one that is there already (the same
 * run, through another branch of the pipeline) is left out. SPX_EINPUT: one lacks a line that each has. */
spx_status spx_provenance_copy(size_t n, const hid_t *from, hid_t to, spx_err *e);
spx_status spx_provenance_append(hid_t file, const spx_provenance *p, spx_err *e);

/* Prints all records as text, a paragraph each, in lines of less than 80 columns where words allow it, or as JSON: an
 * array of objects with the fields of spx_provenance_field(), those that may have several lines as arrays. SPX_EINPUT
 * where there is none. */
spx_status spx_provenance_print(hid_t file, int json, FILE *out, spx_err *e);

/* Number of records. */
size_t spx_provenance_count(hid_t file);
/* Value of a field ("program", "version", "command_line", "option", "device", "input", "started", "host",
 * "step_seconds") of record i: its lines, '\n' between them. *has: 0, and empty text, when there is none. Cut at
 * `size`. SPX_EINPUT: the record is no text; SPX_EIO: it cannot be read. */
spx_status spx_provenance_read(hid_t file, size_t i, const char *field, char *out, size_t size, int *has, spx_err *e);
/* The same; 0: there is none. A record that cannot be read is kept as damage, with which no program ends with success
 * (h5/failure.h). */
int spx_provenance_field(hid_t file, size_t i, const char *field, char *out, size_t size);
/* Value of the last `name=value` line among the options of all runs; 0: there is none. */
int spx_provenance_option(hid_t file, const char *name, char *value, size_t size);

#endif
