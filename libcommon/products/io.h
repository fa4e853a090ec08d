/* Blocks in and out of HDF5. `file` may be a file or any group that takes the root's place.
 *
 * Readers check type and version of the block, shapes of all datasets against each other, and content where a wrong one
 * would mislead (wavelengths that do not increase); they fill a zeroed struct, which the caller frees with the block's
 * spx_..._free() also after an error. SPX_EINPUT names file, dataset and remedy. Writers add everything that
 * specpipe-schema(5) says. Layout: schemas/. */
#ifndef SPX_BLOCK_IO_H
#define SPX_BLOCK_IO_H

#include <hdf5.h>

#include "base/text.h"
#include "h5/file.h"
#include "h5/table.h"
#include "products/burgers.h"
#include "products/image.h"
#include "products/network.h"
#include "products/psf.h"
#include "products/rvfit.h"
#include "products/spectra.h"
#include "products/stack.h"
#include "products/svd.h"
#include "products/templates.h"

/* /image, and /fibermap where present. A mask is made (all 0) when the file has none. */
spx_status spx_image_read(hid_t file, spx_image *im, spx_err *e);
/* The same without the read noise, which not everybody needs. */
spx_status spx_image_read_pixels(hid_t file, spx_image *im, spx_err *e);
spx_status spx_image_write(hid_t file, const spx_image *im, spx_err *e);

/* /psf; calls spx_psf_index(). */
spx_status spx_psf_read(hid_t file, spx_psf *psf, spx_err *e);
spx_status spx_psf_write(hid_t file, const spx_psf *psf, spx_err *e);

/* /frame, /fibermap, /scores. precision: 4 or 8 bytes a value of flux, ivar, resolution, chi2pix, pixmask_fraction.
 * What is written stays as it is until the output is finished (spx_h5_write_lasting()): frames, spectra and arms alike.
 */
spx_status spx_frame_read(hid_t file, spx_frame *f, spx_err *e);
spx_status spx_frame_write(hid_t file, const spx_frame *f, int precision, spx_err *e);

/* /spectra, /fibermap, /scores, /exp_fibermap; or a /frame as spectra of one arm, called by its camera's letter.
 * with_resolution 0: resolution matrices are left unread. */
spx_status spx_spectra_read(hid_t file, int with_resolution, spx_spectra *s, spx_err *e);
spx_status spx_spectra_write(hid_t file, const spx_spectra *s, int precision, spx_err *e);
/* All but the pixels' values: arms have wavelengths, ndiag and unit; path: where each of them is. */
enum { SPX_ARM_PATH = 32 };
spx_status spx_spectra_read_head(hid_t file, spx_spectra *s, char (*path)[SPX_ARM_PATH], spx_err *e);
/* One arm at group `path` (frame and spectra share this layout). nspec 0: any, and gets the number found. */
spx_status spx_arm_read_head(hid_t file, const char *path, size_t *nspec, spx_arm *a, spx_err *e);
spx_status spx_arm_read(hid_t file, const char *path, size_t *nspec, int with_resolution, spx_arm *a, spx_err *e);
spx_status spx_arm_write(hid_t file, const char *path, size_t nspec, const spx_arm *a, int precision, spx_err *e);
/* Rows that were chosen, in this order; everything that has a row a spectrum is taken along. */
spx_status spx_spectra_take(const spx_spectra *s, size_t n, const size_t *row, spx_spectra *out, spx_err *e);

/* A network in group `path`, nn/ of a setup or /network: from npar parameters to nout numbers. What is
 * computed with it is finite if the parameters are. Free with spx_nn_free(), also after an error. Writing refuses
 * numbers that are not finite (SPX_EINPUT). */
spx_status spx_nn_read(hid_t file, const char *path, size_t npar, size_t nout, spx_nn *nn, spx_err *e);
spx_status spx_nn_write(hid_t file, const char *path, const spx_nn *nn, spx_err *e);

/* /network. */
spx_status spx_network_read(hid_t file, spx_network *n, spx_err *e);
spx_status spx_network_write(hid_t file, const spx_network *n, spx_err *e);

/* /templates. The templates themselves, which are most of the file, only with `all`, or where a setup has no components
 * to make them of: lnflux is NULL without. */
spx_status spx_templates_read(hid_t file, int all, spx_templates *t, spx_err *e);
spx_status spx_templates_write(hid_t file, const spx_templates *t, spx_err *e);

/* Starts for a fit from the table of a former one: start[nrow][2+npar] for rows row[nrow] of the spectra, in the order
 * and units of spx_rvfit_input, NaN where the table has nothing. Rows are found by TARGETID, and EXPID where both have
 * it (-1 in the table is any); without a TARGETID there must be one for each spectrum. */
spx_status spx_rvfit_read_start(hid_t file, const spx_spectra *s, const spx_setup *setup, size_t nrow,
                                const size_t *row, double *start, spx_err *e);

/* A result is written in parts, of which each has all of any number of stars. First the datasets of models and curves
 * that `part` has, for nrow spectra in all; `s` are all spectra, of which no pixel is needed. joint: stars may have
 * several exposures; the models are those of exposures then. */
spx_status spx_rvfit_create(hid_t file, const spx_rvfit *part, const spx_spectra *s, size_t nrow, int joint,
                            spx_err *e);
/* Models and curves of a part whose first spectrum is number `first`. */
spx_status spx_rvfit_write_rows(hid_t file, const spx_rvfit *part, size_t first, int joint, spx_err *e);
/* What is left, for all stars together: /rvfit/table (with the columns of `more`, a row a star; NULL: none),
 * /rvfit/exposures when joint, header, fibermap and scores. Columns that identify a star are copied from the spectra's
 * fibermap where it has them; r->row are rows of `s`. */
spx_status spx_rvfit_write_tables(hid_t file, const spx_rvfit *r, const spx_spectra *s, int joint,
                                  const spx_table *more, spx_err *e);

/* /traces. SPX_EINPUT also where a type is another one than the schema's: shifts of half a sample are a mistake. */
spx_status spx_traces_read(spx_input *in, spx_traces *t, spx_err *e);
spx_status spx_traces_write(hid_t file, const spx_traces *t, spx_err *e);
/* /ccf, whose curves become the traces; stars by the column NEXP of /rvfit/table, where it has one. */
spx_status spx_ccf_read(spx_input *in, spx_traces *t, spx_ccf_stars *c, spx_err *e);
/* Velocities of the samples of a stack of such curves, or of its maxima. */
spx_status spx_stack_write_velocity(hid_t file, const spx_stack *s, const spx_ccf_stars *c, spx_err *e);
/* /shifts, for traces of this precision; weights are 1 where the file has none. */
spx_status spx_shifts_read(spx_input *in, int precision, spx_shifts *s, spx_err *e);
spx_status spx_shifts_write(hid_t file, const spx_shifts *s, spx_err *e);
/* Stacks of an earlier run, for adding to: /stack/stack, which has to have the window of `like` (spx_free). */
spx_status spx_stack_read_earlier(spx_input *in, const spx_stack *like, void **value, spx_err *e);
spx_status spx_stack_write(hid_t file, const spx_stack *s, spx_err *e);
/* Positions of stations from text: east and north in km, one station a line; # begins a comment. [n * 2], spx_free. */
spx_status spx_stations_read(const char *name, size_t *n, double **position, spx_err *e);

/* /svd. units: of what was decomposed. */
spx_status spx_svd_write(hid_t file, const spx_svd *d, const char *units, spx_err *e);
/* Two panels of a gnuplot script: the leading right singular vectors over x[ncol] (NULL: number of the column), and the
 * singular values with their energy. */
spx_status spx_svd_plot(spx_text *t, const spx_svd *d, const double *x, const char *xlabel, spx_err *e);

/* /burgers. */
spx_status spx_burgers_write(hid_t file, const spx_burgers *b, spx_err *e);
/* Two panels of a gnuplot script: the solution over x and t, and profiles at five times. */
spx_status spx_burgers_plot(spx_text *t, const spx_burgers *b, spx_err *e);

/* Cards at `path` (absent: none). */
spx_status spx_cards_read(hid_t file, const char *path, spx_cards *h, spx_err *e);
spx_status spx_cards_write(hid_t file, const char *path, const spx_cards *h, spx_err *e);

#endif
