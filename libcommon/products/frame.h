/* Provides the parts of a frame that come from its image (header, fibermap rows), and its scores. */
#ifndef SPX_BLOCK_FRAME_H
#define SPX_BLOCK_FRAME_H

#include "base/err.h"
#include "products/image.h"
#include "products/psf.h"
#include "products/spectra.h"

/* Matches the image's fibermap (required) to the fibres of the PSF: row[nfibre], SPX_NO_ROW where a fibre has none. By
 * the numbers of the fibres in the instrument, psf->fibre, where FIBER are these. Else a fibermap with one row for each
 * fibre is matched by row; another one by its column FIBER modulo nfibre (surveys number
 * fibres through all spectrographs), or by row without that column. SPX_EINPUT when a fibre has two, when rows are of
 * several spectrographs, or when there are more rows than fibres and no FIBER. */
spx_status spx_frame_fibre_rows(const spx_image *im, const spx_psf *psf, size_t *row, spx_err *e);

/* Copies the image's header, and the fibermap rows of fibres first ... first+nspec-1 of the PSF, into a frame that has
 * neither. SPX_EINPUT when a fibre has no row, or two. */
spx_status spx_frame_inherit(spx_frame *f, const spx_image *im, const spx_psf *psf, size_t first, size_t nspec,
                             spx_err *e);

/* Adds the table of scores: TARGETID (where the fibermap has it), SUM_RAW_COUNT_X (electron), MEDIAN_RAW_COUNT_X
 * (electron/Angstrom), MEDIAN_RAW_SNR_X, where X is the arm in upper case; [nspec] values each. */
spx_status spx_frame_set_scores(spx_frame *f, const char *arm, const double *sum, const double *median,
                                const double *snr, spx_err *e);

#endif
