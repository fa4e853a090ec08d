/* Reads networks in the files of The Payne (Ting et al. 2019, ApJ 879, 69): arrays w_array_0, b_array_0, w_array_1, ...
 * of the layers, w outputs times inputs, and the range x_min, x_max of the inputs, which are scaled to -1/2 ... 1/2. In
 * the first form (Ting et al. 2018, ApJ 860, 159) each pixel has a network of its own: w_array_0 is pixels times
 * neurons times inputs, and so on; a layer with one neuron, such as the last, is pixels times inputs. */
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

/* Networks of the first form; pointers into the archive. */
typedef struct {
    size_t npix, nlayer, size[SPX_NN_MAX_LAYER + 1]; /* neurons of each layer; size[0]: inputs, the last one: 1 */
    const double *w[SPX_NN_MAX_LAYER];               /* [npix][size[i+1]][size[i]] */
    const double *b[SPX_NN_MAX_LAYER];               /* [npix][size[i+1]] */
    const double *lo, *hi;                           /* [size[0]] range of the inputs, in the network's units */
} spx_payne_pixels;

/* Does the archive hold a network for each pixel? */
int spx_payne_is_of_pixels(const spx_npz *z);
/* SPX_EINPUT: arrays that do not fit together, or other than nlabel inputs. */
spx_status spx_payne_find_pixels(const spx_npz *z, const char *path, size_t nlabel, const spx_payne_label *l,
                                 spx_payne_pixels *p, spx_err *e);

#endif
