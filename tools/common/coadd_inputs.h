/* Reads what h5merge --coadd needs to know of its inputs before any flux: which rows are exposures of which target, and
 * the tables of the product. */
#ifndef SPX_TOOLS_COADD_INPUTS_H
#define SPX_TOOLS_COADD_INPUTS_H

#include "app/main.h"
#include "coadd/coadd.h"
#include "h5/table.h"
#include "run/catalogue_parts.h"

/* Exposures first[t] ... first[t+1]-1 of row[nrow], which are rows of the spectra, are of target t. */
typedef struct {
    spx_spectra_parts spectra;
    char (*name)[128];                 /* [npart] file, without its folder */
    spx_cards header;                  /* cards that all inputs have */
    size_t ntarget, nrow, nleft, nbad; /* left out: rows without a target, and of bad status (run/select.h) */
    size_t *row, *first;
    int64_t *expid; /* [spectra.all.nspec], -1: not known */
    int precision;  /* bytes of a number of the product: 4, or 8 where an input has 8 */
} spx_coadd_inputs;

/* Opens all inputs of a run; `targets` is a text of the TARGETIDs to take, NULL: all. SPX_EINPUT: an input holds no
 * spectra, or is there twice; arms of one name have other wavelengths; targets cannot be told, or none is wanted; an
 * exposure is there twice; several exposures with `topocentric` 0 on topocentric wavelengths. To be freed also after an
 * error. */
spx_status spx_coadd_inputs_read(spx_run *run, int topocentric, const char *targets, spx_coadd_inputs *in, spx_err *e);
void spx_coadd_inputs_free(spx_coadd_inputs *in);

/* Writes /fibermap, /exp_fibermap and the header; coadd[narm] has the counts of all exposures and targets. */
spx_status spx_coadd_inputs_write(const spx_coadd_inputs *in, const spx_coadd *coadd, hid_t file, spx_err *e);

#endif
