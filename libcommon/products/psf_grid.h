/* Provides over-sampled spots of a PSF (SPX_PSF_SPOTGRID): memory, checks, and sums that make spots of them quickly. */
#ifndef SPX_PSF_GRID_H
#define SPX_PSF_GRID_H

#include "base/err.h"
#include "products/psf.h"

void spx_psf_grid_free(spx_psf_grid *g);

/* Copy of n values of `size` bytes into the pointer at `to`; NULL stays NULL. SPX_EIO: memory; NULL then, too. */
spx_status spx_psf_copy_array(const void *from, size_t n, size_t size, void *to, spx_err *e) SPX_NODISCARD;

/* Deep copy of a grid of nspec traces; *to is overwritten. SPX_EIO: memory; free *to then, too. */
spx_status spx_psf_grid_copy(const spx_psf_grid *from, size_t nspec, spx_psf_grid *to, spx_err *e) SPX_NODISCARD;

/* Sets sum and centre of psf->grid. SPX_EINPUT: values that are not finite, positions or wavelengths that do not
 * increase, a spot whose light is not above 0 or whose trace is outside of its array, sizes out of range. */
spx_status spx_psf_grid_index(spx_psf *psf, spx_err *e) SPX_NODISCARD;

/* Half sizes of spots that hold all light of all arrays wherever they lie within a pixel, pixels. The grid is indexed.
 */
void spx_psf_grid_size(const spx_psf_grid *g, int *hsizex, int *hsizey);

/* Half of the width that holds 68.27 % of the light of one spot, pixels: sigma of a Gaussian. The grid is indexed. */
void spx_psf_grid_sigma(const spx_psf_grid *g, size_t pos, size_t wave, double *sigma_x, double *sigma_y);

#endif
