/* Makes a library of spectra from a network for each pixel, which has no layers that a fit could share among pixels. */
#ifndef SPX_TOOLS_PAYNE_LIBRARY_H
#define SPX_TOOLS_PAYNE_LIBRARY_H

#include <hdf5.h>

#include "convert/payne.h"

/* Writes /library: spectra at all combinations of nodes. net: wavelengths, medium, activation, slope and of_flux;
 * axis[naxis]: NAME=V,V,..., in the parameter's own unit, increasing; free inputs without one have six nodes over their
 * range. `progress`: show it. SPX_EUSAGE: an axis makes no sense, or there are too many nodes; SPX_EINPUT: a flux is
 * beyond single precision. */
spx_status spx_payne_library(hid_t file, const spx_payne_pixels *p, size_t nlabel, const spx_payne_label *l,
                             size_t naxis, const char *const *axis, const spx_network *net, int progress, spx_err *e);

#endif
