/* Reads and writes a network in any group (products/nn_h5.h). */
#include "products/nn_h5.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/write.h"

enum { PATH = 176 };
static const char *const activations[] = {"silu", "sigmoid", "leaky"}; /* in the order of spx_nn_activation */

static const char *at(char out[PATH], const char *group, const char *name)
{
    (void)snprintf(out, PATH, "%s/%s", group, name);
    return out;
}

static spx_status read_sizes(hid_t file, const char *group, size_t npar, size_t nout, spx_nn *nn, spx_err *e)
{
    char p[PATH];
    int32_t *size = NULL;
    size_t n = 0;
    spx_status st = spx_h5_read_i32(file, at(p, group, "size"), 1, &n, &size, e);
    if (st != SPX_OK)
        return st;
    int bad = n < 2 || n > SPX_NN_MAX_LAYER + 1;
    for (size_t i = 0; i < n && !bad; i++) {
        bad = size[i] < 1 || (i + 1 < n && size[i] > SPX_NN_MAX_WIDTH);
        nn->size[i] = bad ? 0 : (size_t)size[i];
    }
    spx_free(size);
    if (bad || nn->size[0] != npar || nn->size[n - 1] != nout)
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), p, NULL,
                           "no network from %zu parameters to %zu numbers, of up to %d layers and %d neurons", npar,
                           nout, SPX_NN_MAX_LAYER, SPX_NN_MAX_WIDTH);
    nn->nlayer = n - 1;
    return SPX_OK;
}

static spx_status read_numbers(hid_t file, const char *path, size_t n, float **out, spx_err *e)
{
    spx_status st = spx_h5_read_f32(file, path, 1, &n, out, e);
    for (size_t i = 0; st == SPX_OK && i < n; i++)
        if (!isfinite((*out)[i]))
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL, "element %zu is not finite", i);
    return st;
}

spx_status spx_nn_read(hid_t file, const char *path, size_t npar, size_t nout, spx_nn *nn, spx_err *e)
{
    char p[PATH], word[32] = "";
    spx_status st;
    if ((st = spx_h5_attr_str(file, path, "activation", word, sizeof word, e)) != SPX_OK ||
        (st = spx_h5_attr_f64(file, path, "slope", &nn->slope, e)) != SPX_OK)
        return st;
    size_t which = 0, nweight, nbias;
    while (which < sizeof activations / sizeof *activations && strcmp(word, activations[which]) != 0)
        which++;
    if (which == sizeof activations / sizeof *activations || !isfinite(nn->slope))
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL,
                           "activation '%s' is not known, or its slope no number", word);
    nn->activation = (spx_nn_activation)which;
    if ((st = read_sizes(file, path, npar, nout, nn, e)) != SPX_OK)
        return st;
    struct {
        const char *name;
        double *to;
    } scaling[] = {{"offset", nn->offset}, {"scale", nn->scale}, {"lo", nn->lo}, {"hi", nn->hi}};
    for (size_t k = 0; k < sizeof scaling / sizeof *scaling; k++) {
        double *v = NULL;
        st = spx_h5_read_f64(file, at(p, path, scaling[k].name), 1, &npar, &v, e);
        for (size_t i = 0; st == SPX_OK && i < npar; i++)
            if (!isfinite(scaling[k].to[i] = v[i]))
                st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), p, NULL, "element %zu is not finite", i);
        spx_free(v);
        if (st != SPX_OK)
            return st;
    }
    for (size_t i = 0; i < npar; i++)
        if (!(nn->hi[i] >= nn->lo[i]))
            return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, NULL, "the range of parameter %zu is empty",
                               i);
    spx_nn_count(nn, &nweight, &nbias);
    if ((st = read_numbers(file, at(p, path, "weight"), nweight, &nn->weight, e)) != SPX_OK)
        return st;
    return read_numbers(file, at(p, path, "bias"), nbias, &nn->bias, e);
}

/* Checks that a network is finite in single precision: weights trained elsewhere, ranges and fixed inputs that a user
 * gives. SPX_EINPUT names the dataset under `path`. */
static spx_status check_finite(const char *path, const spx_nn *nn, size_t nweight, size_t nbias, spx_err *e)
{
    const char *bad = NULL;
    for (size_t p = 0; p < nn->size[0]; p++)
        if (!isfinite(nn->lo[p]) || !isfinite(nn->hi[p]) || !isfinite(nn->offset[p]) || !isfinite(nn->scale[p]))
            bad = !isfinite(nn->lo[p]) ? "lo" : !isfinite(nn->hi[p]) ? "hi" : "scale";
    for (size_t i = 0; i < nweight && bad == NULL; i++)
        bad = isfinite(nn->weight[i]) ? NULL : "weight";
    for (size_t i = 0; i < nbias && bad == NULL; i++)
        bad = isfinite(nn->bias[i]) ? NULL : "bias";
    return bad == NULL ? SPX_OK
                       : spx_fail(e, SPX_EINPUT, "%s/%s: the network's numbers are too large to be written", path, bad);
}

spx_status spx_nn_write(hid_t file, const char *path, const spx_nn *nn, spx_err *e)
{
    char p[PATH];
    int32_t size[SPX_NN_MAX_LAYER + 1];
    size_t n = nn->nlayer + 1, nweight, nbias;
    for (size_t i = 0; i < n; i++)
        size[i] = (int32_t)nn->size[i];
    spx_nn_count(nn, &nweight, &nbias);
    spx_status st = check_finite(path, nn, nweight, nbias, e);
    if (st == SPX_OK)
        st = spx_h5_write(file, at(p, path, "size"), H5T_NATIVE_INT32, 1, &n, size, e);
    struct {
        const char *name;
        const double *from;
    } scaling[] = {{"offset", nn->offset}, {"scale", nn->scale}, {"lo", nn->lo}, {"hi", nn->hi}};
    for (size_t k = 0; k < sizeof scaling / sizeof *scaling && st == SPX_OK; k++)
        st = spx_h5_write_real(file, at(p, path, scaling[k].name), 8, 1, &nn->size[0], scaling[k].from, e);
    if (st == SPX_OK)
        st = spx_h5_write(file, at(p, path, "weight"), H5T_NATIVE_FLOAT, 1, &nweight, nn->weight, e);
    if (st == SPX_OK)
        st = spx_h5_write(file, at(p, path, "bias"), H5T_NATIVE_FLOAT, 1, &nbias, nn->bias, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, path, "activation", activations[nn->activation], e);
    return st == SPX_OK ? spx_h5_set_f64(file, path, "slope", nn->slope, e) : st;
}
