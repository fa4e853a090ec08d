/* Reads networks of The Payne from .npz archives (convert/payne.h). */
#include "convert/payne.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Finds the layers' arrays w_array_0, w_array_1, ... and their sizes. */
static spx_status find_layers(const spx_npz *z, const char *path, size_t nlabel, const spx_npz_array **w,
                              const spx_npz_array **b, size_t *nlayer, spx_err *e)
{
    size_t in = nlabel;
    *nlayer = 0;
    for (;;) {
        char name[32];
        size_t dims[2] = {0, 0}, found = 0;
        (void)snprintf(name, sizeof name, "w_array_%zu", *nlayer);
        for (size_t i = 0; i < z->n; i++) {
            const spx_npz_array *a = &z->array[i];
            found += strcmp(a->name, name) == 0;
            if (*nlayer == 0 && strcmp(a->name, name) == 0 && a->ndim == 3)
                return spx_fail_at(
                    e, SPX_EINPUT, path, NULL,
                    "compute spectra with it on a grid of parameters, and give these as a library",
                    "%s has the shape (%zu, %zu, %zu), pixels by neurons by inputs: a network for each pixel, the "
                    "first form of The Payne, has no layers in common",
                    name, a->dims[0], a->dims[1], a->dims[2]);
        }
        if (found == 0)
            break;
        if (*nlayer == SPX_NN_MAX_LAYER)
            return spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "more than %d layers", SPX_NN_MAX_LAYER);
        if ((w[*nlayer] = spx_npz_find(z, path, name, 2, dims, e)) == NULL)
            return SPX_EINPUT;
        if (dims[1] != in)
            return spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "%s is for %zu inputs, but there are %zu%s", name,
                               dims[1], in,
                               *nlayer == 0 ? ": name each with --labels" : " neurons in the layer before");
        (void)snprintf(name, sizeof name, "b_array_%zu", *nlayer);
        if ((b[*nlayer] = spx_npz_find(z, path, name, 1, dims, e)) == NULL)
            return SPX_EINPUT;
        in = dims[0];
        ++*nlayer;
    }
    if (*nlayer < 2)
        return spx_fail_at(e, SPX_EINPUT, path, NULL, NULL,
                           "has no arrays w_array_0, w_array_1, ...: it is no network of that kind");
    for (size_t l = 0; l + 1 < *nlayer; l++)
        if (w[l]->dims[0] > SPX_NN_MAX_WIDTH)
            return spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "layer %zu has %zu neurons; up to %d are possible", l,
                               w[l]->dims[0], SPX_NN_MAX_WIDTH);
    return w[*nlayer - 1]->dims[0] <= INT32_MAX ? SPX_OK : spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "is too wide");
}

spx_status spx_payne_network(const spx_npz *z, const char *path, size_t nlabel, const spx_payne_label *l,
                             spx_network *net, spx_err *e)
{
    const spx_npz_array *w[SPX_NN_MAX_LAYER], *b[SPX_NN_MAX_LAYER], *lo, *hi;
    size_t nweight = 0, nbias = 0, one = nlabel, nfree = 0;
    for (size_t p = 0; p < nlabel; p++)
        nfree += isnan(l[p].fixed) != 0;
    spx_nn *nn = &net->nn;
    spx_status st = find_layers(z, path, nlabel, w, b, &nn->nlayer, e);
    if (st != SPX_OK)
        return st;
    if ((lo = spx_npz_find(z, path, "x_min", 1, &one, e)) == NULL ||
        (hi = spx_npz_find(z, path, "x_max", 1, &one, e)) == NULL)
        return SPX_EINPUT;
    for (size_t p = 0; p < nlabel; p++) {
        if (!(hi->value[p] > lo->value[p]))
            return spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "x_min and x_max of input %zu (%s) are no range", p,
                               l[p].name);
        if (!isnan(l[p].fixed) && !(l[p].fixed >= lo->value[p] * l[p].unit && l[p].fixed <= hi->value[p] * l[p].unit))
            return spx_fail(e, SPX_EUSAGE, "--fix %s=%g: %s was trained for %g to %g", l[p].name, l[p].fixed, path,
                            lo->value[p] * l[p].unit, hi->value[p] * l[p].unit);
        if (!isnan(l[p].fixed))
            continue;
        if (net->npar == SPX_MAX_PAR)
            return spx_fail(e, SPX_EUSAGE,
                            "%zu inputs of the network are free, %d can be: hold others with --fix NAME="
                            "VALUE",
                            nfree, SPX_MAX_PAR);
        size_t k = net->npar++;
        memcpy(net->parname[k], l[p].name, sizeof net->parname[k]);
        nn->lo[k] = lo->value[p] * l[p].unit;
        nn->hi[k] = hi->value[p] * l[p].unit;
        nn->offset[k] = 0.5 * (nn->lo[k] + nn->hi[k]);
        nn->scale[k] = 1 / (nn->hi[k] - nn->lo[k]);
    }
    if (net->npar == 0)
        return spx_fail(e, SPX_EUSAGE, "all inputs of the network are held: nothing is left to vary");
    nn->size[0] = net->npar;
    for (size_t i = 0; i < nn->nlayer; i++) {
        nn->size[i + 1] = w[i]->dims[0];
        nweight += nn->size[i] * nn->size[i + 1];
        nbias += nn->size[i + 1];
    }
    net->nwave = nn->size[nn->nlayer];
    if ((nn->weight = spx_alloc(nweight, sizeof *nn->weight, e)) == NULL ||
        (nn->bias = spx_alloc(nbias, sizeof *nn->bias, e)) == NULL)
        return SPX_EIO;
    float *to = nn->weight, *bias = nn->bias;
    for (size_t i = 0; i < nn->nlayer; i++)
        for (size_t j = 0; j < nn->size[i + 1]; j++) {
            double sum = b[i]->value[j];
            for (size_t p = 0; p < w[i]->dims[1]; p++) {
                double v = w[i]->value[j * w[i]->dims[1] + p];
                if (i == 0 && !isnan(l[p].fixed))
                    sum += v * ((l[p].fixed / l[p].unit - lo->value[p]) / (hi->value[p] - lo->value[p]) - 0.5);
                else if (isfinite(*to = (float)v))
                    to++;
                else
                    return spx_fail_at(e, SPX_EINPUT, path, NULL, NULL,
                                       "element %zu of w_array_%zu, %g, is beyond single precision",
                                       j * w[i]->dims[1] + p, i, v);
            }
            if (!isfinite(*bias++ = (float)sum))
                return spx_fail_at(
                    e, SPX_EINPUT, path, NULL, NULL,
                    "element %zu of b_array_%zu, %g with the inputs that are held, is beyond single precision", j, i,
                    sum);
        }
    return SPX_OK;
}
