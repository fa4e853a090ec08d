/* Provides block `network` (products/network.h). */
#include "products/network.h"

#include "base/mem.h"

void spx_network_free(spx_network *n)
{
    spx_nn_free(&n->nn);
    spx_free(n->wavelength);
    *n = (spx_network){0};
}
