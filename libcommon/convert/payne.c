/* Reads networks of The Payne from .npz archives (convert/payne.h). */
#include "convert/payne.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static const spx_npz_array *find_array(const spx_npz *z, const char *name)
{
    for (size_t i = 0; i < z->n; i++)
        if (strcmp(z->array[i].name, name) == 0)
            return &z->array[i];
    return NULL;
}

/* Finds the layers' arrays w_array_0, w_array_1, ... and their sizes. */
static spx_status find_layers(const spx_npz *z, const char *path, size_t nlabel, const spx_npz_array **w,
                              const spx_npz_array **b, size_t *nlayer, spx_err *e)
{
    size_t in = nlabel;
    *nlayer = 0;
    for (;;) {
        char name[32];
        size_t dims[2] = {0, 0};
        (void)snprintf(name, sizeof name, "w_array_%zu", *nlayer);
        if (find_array(z, name) == NULL)
            break;
        if (*nlayer == SPX_NN_MAX_LAYER)
            return spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "more than %d layers", SPX_NN_MAX_LAYER);
        if ((w[*nlayer] = spx_npz_find(z, path, name, 2, dims, e)) == NULL)
            return SPX_EINPUT;
        if (dims[1] != in)
            return spx_fail_at(
                e, SPX_EINPUT, path, NULL,
                dims[0] == in && dims[1] != in ? "if these are inputs times neurons, transpose it"
                : *nlayer == 0                 ? "name each with --labels"
                                               : NULL,
                "%s is for %zu inputs, but there are %zu%s: its shape, neurons times inputs, is (%zu, %zu)", name,
                dims[1], in, *nlayer == 0 ? "" : " neurons in the layer before", dims[0], dims[1]);
        (void)snprintf(name, sizeof name, "b_array_%zu", *nlayer);
        if ((b[*nlayer] = spx_npz_find(z, path, name, 1, dims, e)) == NULL)
            return SPX_EINPUT;
        in = dims[0];
        ++*nlayer;
    }
    if (*nlayer < 2) {
        char list[600];
        spx_npz_list(z, sizeof list, list);
        return spx_fail_at(
            e, SPX_EINPUT, path, NULL, "npz2h5(1) has the names and shapes",
            "there is no array w_array_%zu, the weights of a layer, neurons times inputs, or pixels times "
            "these: %s",
            *nlayer, list);
    }
    for (size_t l = 0; l + 1 < *nlayer; l++)
        if (w[l]->dims[0] > SPX_NN_MAX_WIDTH)
            return spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "layer %zu has %zu neurons; up to %d are possible", l,
                               w[l]->dims[0], SPX_NN_MAX_WIDTH);
    return w[*nlayer - 1]->dims[0] <= INT32_MAX ? SPX_OK : spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "is too wide");
}

/* Finds the range of the inputs, and checks it and that some of them, not too many, are free. */
static spx_status find_range(const spx_npz *z, const char *path, size_t nlabel, const spx_payne_label *l,
                             const double **lo, const double **hi, spx_err *e)
{
    size_t one = nlabel, nfree = 0;
    const spx_npz_array *first = spx_npz_find(z, path, "x_min", 1, &one, e), *last = NULL;
    if (first == NULL || (last = spx_npz_find(z, path, "x_max", 1, &one, e)) == NULL)
        return SPX_EINPUT;
    *lo = first->value;
    *hi = last->value;
    for (size_t p = 0; p < nlabel; p++) {
        const double from = (*lo)[p] * l[p].unit, to = (*hi)[p] * l[p].unit;
        if (!((*hi)[p] > (*lo)[p] && isfinite((*hi)[p] - (*lo)[p])))
            return spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "x_min and x_max of input %zu (%s) are no range", p,
                               l[p].name);
        if (!isnan(l[p].fixed) && !(l[p].fixed >= from && l[p].fixed <= to))
            return spx_fail(e, SPX_EUSAGE, "--fix %s=%g: %s was trained for %g to %g", l[p].name, l[p].fixed, path,
                            from, to);
        nfree += isnan(l[p].fixed) != 0;
    }
    if (nfree > SPX_MAX_PAR)
        return spx_fail(e, SPX_EUSAGE,
                        "%zu inputs of the network are free, %d can be: hold others with --fix NAME=VALUE", nfree,
                        SPX_MAX_PAR);
    return nfree > 0 ? SPX_OK : spx_fail(e, SPX_EUSAGE, "all inputs of the network are held: nothing is left to vary");
}

int spx_payne_is_of_pixels(const spx_npz *z)
{
    const spx_npz_array *a = find_array(z, "w_array_0");
    return a != NULL && a->ndim == 3;
}

/* Number of neurons of the array of a layer with `in` inputs: weights pixels times neurons times inputs, biases (in =
 * 0) pixels times neurons; one neuron may have no dimension, nor one input. 0: it has another shape. */
static size_t neurons(const spx_npz_array *a, size_t npix, size_t in)
{
    const int whole = in > 0 ? 3 : 2;
    if (a->value == NULL || a->ndim < 1 || a->dims[0] != npix)
        return 0;
    if (a->ndim == whole)
        return in == 0 || a->dims[2] == in ? a->dims[1] : 0;
    if (a->ndim == whole - 1)
        return in == 0 || a->dims[1] == in;
    return a->ndim == 1 && in == 1;
}

spx_status spx_payne_find_pixels(const spx_npz *z, const char *path, size_t nlabel, const spx_payne_label *l,
                                 spx_payne_pixels *p, spx_err *e)
{
    const spx_npz_array *a = find_array(z, "w_array_0"), *b;
    char name[32];
    *p = (spx_payne_pixels){.npix = a->dims[0], .size = {nlabel}};
    for (;; p->nlayer++) {
        const size_t in = p->size[p->nlayer];
        (void)snprintf(name, sizeof name, "w_array_%zu", p->nlayer);
        if ((a = find_array(z, name)) == NULL)
            break;
        if (p->nlayer == SPX_NN_MAX_LAYER)
            return spx_fail_at(e, SPX_EINPUT, path, NULL, NULL, "more than %d layers", SPX_NN_MAX_LAYER);
        if (p->nlayer == 0 && a->dims[2] != nlabel)
            return spx_fail_at(e, SPX_EINPUT, path, NULL, "name each with --labels",
                               "%s is for %zu inputs, but there are %zu", name, a->dims[2], nlabel);
        const size_t n = neurons(a, p->npix, in);
        p->w[p->nlayer] = a->value;
        (void)snprintf(name, sizeof name, "b_array_%zu", p->nlayer);
        b = find_array(z, name);
        if (n == 0 || n > SPX_NN_MAX_WIDTH || b == NULL || neurons(b, p->npix, 0) != n) {
            char weights[160], biases[160] = "absent";
            spx_npz_shape(a, sizeof weights, weights);
            if (b != NULL)
                spx_npz_shape(b, sizeof biases, biases);
            return spx_fail_at(e, SPX_EINPUT, path, NULL, NULL,
                               "w_array_%zu is %s and b_array_%zu %s: networks of %zu pixels with %zu inputs want the "
                               "shapes (%zu, neurons, %zu) and (%zu, neurons), with up to %d neurons",
                               p->nlayer, weights, p->nlayer, biases, p->npix, in, p->npix, in, p->npix,
                               SPX_NN_MAX_WIDTH);
        }
        p->b[p->nlayer] = b->value;
        p->size[p->nlayer + 1] = n;
    }
    if (p->nlayer < 2 || p->size[p->nlayer] != 1)
        return spx_fail_at(e, SPX_EINPUT, path, NULL, NULL,
                           "the networks of the pixels end with no layer of one neuron");
    return find_range(z, path, nlabel, l, &p->lo, &p->hi, e);
}

spx_status spx_payne_network(const spx_npz *z, const char *path, size_t nlabel, const spx_payne_label *l,
                             spx_network *net, spx_err *e)
{
    const spx_npz_array *w[SPX_NN_MAX_LAYER], *b[SPX_NN_MAX_LAYER];
    const double *lo, *hi;
    size_t nweight = 0, nbias = 0;
    spx_nn *nn = &net->nn;
    spx_status st = find_layers(z, path, nlabel, w, b, &nn->nlayer, e);
    if (st != SPX_OK)
        return st;
    if ((st = find_range(z, path, nlabel, l, &lo, &hi, e)) != SPX_OK)
        return st;
    for (size_t p = 0; p < nlabel; p++) {
        if (!isnan(l[p].fixed))
            continue;
        size_t k = net->npar++;
        memcpy(net->parname[k], l[p].name, sizeof net->parname[k]);
        nn->lo[k] = lo[p] * l[p].unit;
        nn->hi[k] = hi[p] * l[p].unit;
        nn->offset[k] = 0.5 * (nn->lo[k] + nn->hi[k]);
        nn->scale[k] = 1 / (nn->hi[k] - nn->lo[k]);
    }
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
                    sum += v * ((l[p].fixed / l[p].unit - lo[p]) / (hi[p] - lo[p]) - 0.5);
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
