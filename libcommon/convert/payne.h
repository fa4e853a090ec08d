/* Reads networks in the files of The Payne (Ting et al. 2019, ApJ 879, 69): arrays w_array_0, b_array_0, w_array_1, ...
 * of the layers, w outputs times inputs, and the range x_min, x_max of the inputs, which are scaled to -1/2 ... 1/2. */
#ifndef SPX_PAYNE_H
#define SPX_PAYNE_H

#include "convert/npz.h"
#include "products/network.h"

typedef struct {
    char name[32];
    double unit;  /* unit of the network's input: 1000 for temperatures in 1000 K */
    double fixed; /* fixed value of the parameter; NaN: free */
} spx_payne_label;

/* Sets parameters, weights, scaling and nwave of *net, nothing else. Fixed inputs are absorbed into the biases of the
 * first layer. SPX_EINPUT: no such network, or other than nlabel inputs; SPX_EUSAGE: no input is free, or more than
 * SPX_MAX_PAR. `path` for messages. */
spx_status spx_payne_network(const spx_npz *z, const char *path, size_t nlabel, const spx_payne_label *l,
                             spx_network *net, spx_err *e);

#endif
