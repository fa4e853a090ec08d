/* Provides block `network`: a network trained elsewhere (The Payne: Ting et al. 2019, ApJ 879, 69) that maps parameters
 * directly to the flux, or its logarithm, of all pixels. */
#ifndef SPX_NETWORK_H
#define SPX_NETWORK_H

#include "base/err.h"
#include "products/templates.h"

typedef struct {
    spx_nn nn; /* its last layer has nwave outputs; nn.lo, nn.hi, nn.offset and nn.scale refer to the parameters */
    size_t npar, nwave;
    char parname[SPX_MAX_PAR][32];
    double *wavelength; /* [nwave] Angstrom, increasing */
    spx_medium medium;
    int of_flux; /* 1: the output is flux, per unit wavelength or normalised; 0: its natural logarithm */
} spx_network;

void spx_network_free(spx_network *n);

#endif
