/* Provides the block `flat`: throughput of the fibres of a camera, and its application to frames. */
#ifndef SPX_BLOCK_FLAT_H
#define SPX_BLOCK_FLAT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "products/spectra.h"

typedef struct {
    size_t nspec, nwave, nlamp, nknot;
    double *wavelength; /* [nwave], Angstrom */
    spx_medium medium;
    double *flat;   /* [nspec][nwave]; mean over fibres 1 */
    double *ivar;   /* [nspec][nwave]; 0: flat unknown, and 1 */
    uint32_t *mask; /* [nspec][nwave] */
    double *lamp;   /* [nlamp][nwave]: deconvolved spectrum of the lamp in each exposure, electron/Angstrom */
    double *mean;   /* [nlamp][nwave]: the same with the fibres' mean resolution */
    double *chi2;   /* [nspec]: per degree of freedom, of all exposures */
    double *knot;   /* [nknot], Angstrom */
    double floor;   /* relative error that is part of ivar */
    int native;     /* flat follows single bins: it is applied to the resolution, too */
    char camera[16], unit[64];  /* unit of lamp and mean */
    int32_t *fiber;             /* [nspec] index in the PSF, or NULL */
    struct spx_table *fibermap; /* nspec rows, or NULL */
} spx_flat;

void spx_flat_free(spx_flat *flat);

/* Rows of the flat for the fibres of a frame, row[f->nspec]. Fibres are matched by their index in the PSF, or row by
 * row where one of the two has none and their numbers are equal. SPX_EINPUT: another camera, other wavelengths,
 * barycentric ones without the fibres' velocities, a fibre that the flat has not, a frame that was divided
 * by a flat before. */
spx_status spx_flat_match(const spx_flat *flat, const spx_frame *f, size_t *row, spx_err *e);

/* Divides a frame by the flat: D/F, 1/ivar = 1/(w F^2) + D^2 var(F)/F^4. Barycentric bins get the flat of
 * where they are on the ground, by BARYCENTRIC_VELOCITY of the fibermap. Where the flat is unknown ivar becomes 0 and
 * the flat's mask is added. A flat of single bins makes R' = F^-1 R F; a smooth one leaves R as it is: its change is
 * below 1e-3. *nlost: bins that lost their information. Errors of spx_flat_match(). */
spx_status spx_flat_apply(const spx_flat *flat, spx_frame *f, int nthreads, size_t *nlost, spx_err *e);

#endif
