/* Provides the principal components in which spectra are correlated with all entries of a set at a time
 * (products/templates.h). */
#ifndef SPX_CCF_PCA_H
#define SPX_CCF_PCA_H

#include "base/err.h"
#include "products/templates.h"

/* Components of the transforms of the entries and of their squares together, cut to frequencies below nshort/2: the
 * right singular vectors of the entries, as many as leave out less than 0.04 of their rms. `setup` is its name, for
 * messages; free *out with spx_ccf_pca_free(). Calls BLAS. SPX_EINPUT: transforms that are not numbers; SPX_EIO:
 * memory.
 */
spx_status spx_ccf_pca_make(const spx_ccf_set *set, const char *setup, spx_ccf_pca *out, spx_err *e);

#endif
