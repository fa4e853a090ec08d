/* Reads what specx-preproc takes besides exposures, and makes of its results what products hold. */
#ifndef SPX_TOOLS_PREPROC_INPUTS_H
#define SPX_TOOLS_PREPROC_INPUTS_H

#include "app/main.h"
#include "h5/table.h"
#include "preproc/preproc.h"

/* Master calibrations of one run, and bad pixels; those without a name are empty. */
typedef struct {
    const char *name[SPX_MASTERS]; /* files of bias, dark, flat; NULL: none */
    const char *bad_name;          /* file of bad pixels; NULL: none */
    spx_input *in[SPX_MASTERS];
    spx_master master[SPX_MASTERS];
    spx_section *bad; /* sections of bad pixels */
    size_t nbad, capacity;
} spx_preproc_files;

/* Reads all of them, as inputs of the run. SPX_EINPUT: a master is one of another kind; a line of bad pixels is no
 * section. */
spx_status spx_preproc_files_read(spx_run *s, spx_preproc_files *f, spx_err *e);
void spx_preproc_files_free(spx_preproc_files *f);

/* Masters and bad pixels for an exposure of this layout; m->bad is to be freed. SPX_EINPUT: a master has another size,
 * camera, gain, or other amplifiers; a dark is there and the exposure has no exposure time; bad pixels lie outside. */
spx_status spx_preproc_files_for(const spx_preproc_files *f, const spx_layout *l, const char *camera, double exptime,
                                 spx_preproc_masters *m, spx_err *e);

/* Header of an image: all cards of the exposure that are still true of it. */
spx_status spx_preproc_header(const spx_raw *raw, spx_cards *h, spx_err *e);

/* Table of amplifiers for /image. */
spx_status spx_preproc_table(const spx_layout *l, const spx_overscan *over, spx_table **t, spx_err *e);

/* Says what stands out in the overscan of an exposure: charge of the pixels, a noise that the header does not have
 * (rule `readnoise`), many saturated pixels. *broken: rules, a sum of 1 << rule. */
void spx_preproc_report(const char *label, const spx_layout *l, const spx_overscan *over, unsigned *broken);

#endif
