/* Makes a master calibration of the exposures of a run: specx-preproc --combine. */
#ifndef SPX_TOOLS_PREPROC_MASTERS_H
#define SPX_TOOLS_PREPROC_MASTERS_H

#include "common/preproc_inputs.h"

typedef struct {
    const spx_layout_file *layout; /* NULL: keywords */
    spx_preproc_files *files;      /* calibrations of the exposures */
    spx_preproc_options preproc;   /* exptime is that of each exposure */
    spx_combine_options combine;
} spx_preproc_master_task;

/* Reads and pre-processes all inputs, combines them and writes /master. SPX_EINPUT: an input is no raw exposure, or one
 * of another camera, size, layout or gain than the first; SPX_EUSAGE: a calibration that this kind does not take. */
spx_status spx_preproc_make_master(spx_run *s, const spx_preproc_master_task *t, spx_err *e);

#endif
