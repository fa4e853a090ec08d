/* Networks as The Payne keeps them (Ting et al. 2019, ApJ 879, 69): arrays w_array_0, b_array_0, w_array_1, ... of the
 * layers, w outputs times inputs, and the range x_min, x_max of the inputs, which are scaled to -1/2 ... 1/2. */
#ifndef SPX_PAYNE_H
#define SPX_PAYNE_H

#include "convert/npz.h"
#include "products/network.h"

typedef struct {
    char name[32];
    double unit;  /* the input is the parameter over this: 1000 for temperatures in 1000 K */
    double fixed; /* value of the parameter where it is held; NaN: it is free */
} spx_payne_label;

/* Sets parameters, weights and scaling of *net, and its nwave; nothing else of it. Inputs that are held go into the
 * biases of the first layer. SPX_EINPUT: no such network, or other than nlabel inputs; SPX_EUSAGE: no input is free, or
 * more than SPX_MAX_PAR. `path` for messages. */
spx_status spx_payne_network(const spx_npz *z, const char *path, size_t nlabel, const spx_payne_label *l,
                             spx_network *net, spx_err *e);

#endif
