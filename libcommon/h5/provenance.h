/* /provenance/NNN: one record a stage, appended, as samtools' @PG lines. */
#ifndef SPX_PROVENANCE_H
#define SPX_PROVENANCE_H

#include <hdf5.h>

#include "base/err.h"

typedef struct {
    const char *program, *version;
    const char *command_line;
    const char *options; /* name=value lines */
    const char *device;  /* "" when no kernel ran */
    const char *inputs;  /* one line an input: name, size, time of last change */
    const char *started; /* UTC, ISO 8601; NULL with --reproducible, as is the rest */
    const char *host;
    const char *step_seconds; /* "read 0.12\nextract 3.4" */
} spx_provenance;

/* Copy all records of `from` behind those of `to`; records that `to` has already (the same run, through another branch
 * of the pipeline) are left out. */
spx_status spx_provenance_copy(hid_t from, hid_t to, spx_err *e);
spx_status spx_provenance_append(hid_t file, const spx_provenance *p, spx_err *e);

#endif
