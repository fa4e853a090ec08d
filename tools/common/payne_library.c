/* Makes a library of spectra from a network for each pixel (common/payne_library.h). */
#include "common/payne_library.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/progress.h"
#include "h5/attr.h"
#include "h5/write.h"
#include "spectral/nn_math.h"

enum { MOST_NODES = 64, NODES = 6, MOST_SPECTRA = 100000 };

typedef struct {
    size_t label, n;
    double node[MOST_NODES]; /* in the parameter's own unit */
} payne_axis;

static spx_status parse_axis(const char *text, const spx_payne_label *l, size_t n, payne_axis *axis, spx_err *e)
{
    const char *equals = strchr(text, '=');
    const size_t length = equals != NULL ? (size_t)(equals - text) : 0;
    for (size_t k = 0; k < n; k++) {
        payne_axis *a = &axis[k];
        const char *name = l[a->label].name;
        if (strlen(name) != length || strncmp(name, text, length) != 0)
            continue;
        spx_status st = spx_parse_doubles(equals + 1, ',', "--axis", "NAME=V,V,...", MOST_NODES, a->node, &a->n, e);
        for (size_t i = 1; i < a->n && st == SPX_OK; i++)
            if (!(a->node[i] > a->node[i - 1]))
                st = spx_fail(e, SPX_EUSAGE, "--axis %s: the nodes do not increase", text);
        return st;
    }
    return spx_fail(e, SPX_EUSAGE, "--axis %s: NAME=V,V,... with an input that is not held is wanted", text);
}

/* Axes of the free inputs; *total: their nodes. */
static spx_status find_axes(const spx_payne_pixels *p, size_t nlabel, const spx_payne_label *l, size_t ntext,
                            const char *const *text, size_t *n, payne_axis axis[SPX_MAX_PAR], size_t *total, spx_err *e)
{
    spx_status st = SPX_OK;
    *n = 0;
    *total = 1;
    for (size_t i = 0; i < nlabel; i++) {
        if (!isnan(l[i].fixed))
            continue;
        payne_axis *a = &axis[(*n)++];
        *a = (payne_axis){.label = i, .n = NODES};
        for (size_t k = 0; k < NODES; k++)
            a->node[k] = l[i].unit * (p->lo[i] + (p->hi[i] - p->lo[i]) * (double)k / (NODES - 1));
    }
    for (size_t i = 0; i < ntext && st == SPX_OK; i++)
        st = parse_axis(text[i], l, *n, axis, e);
    for (size_t k = 0; k < *n && st == SPX_OK; k++) {
        const payne_axis *a = &axis[k];
        const double lo = p->lo[a->label] * l[a->label].unit, hi = p->hi[a->label] * l[a->label].unit,
                     rounded = 1e-9 * (hi - lo);
        if (a->node[0] < lo - rounded || a->node[a->n - 1] > hi + rounded)
            st = spx_fail(e, SPX_EUSAGE, "--axis %s: the network was trained for %g to %g", l[a->label].name, lo, hi);
        *total *= a->n;
        if (st == SPX_OK && *total > MOST_SPECTRA)
            st = spx_fail_remedy(e, SPX_EUSAGE, "hold inputs with --fix, or give fewer nodes with --axis",
                                 "more than %d spectra", MOST_SPECTRA);
    }
    return st;
}

/* Flux of one pixel at the scaled inputs x. */
static double pixel_flux(const spx_payne_pixels *p, const spx_network *net, size_t k, const double *x, double *from,
                         double *to)
{
    double unused;
    memcpy(from, x, p->size[0] * sizeof *from);
    for (size_t i = 0; i < p->nlayer; i++) {
        const size_t in = p->size[i], out = p->size[i + 1];
        for (size_t j = 0; j < out; j++) {
            const double *w = p->w[i] + (k * out + j) * in;
            double sum = p->b[i][k * out + j];
            for (size_t q = 0; q < in; q++)
                sum += w[q] * from[q];
            to[j] = i + 1 < p->nlayer ? spx_nn_activate(net->nn.activation, net->nn.slope, sum, &unused) : sum;
        }
        memcpy(from, to, out * sizeof *from);
    }
    return net->of_flux ? from[0] : exp(from[0]);
}

static spx_status spectrum(const spx_payne_pixels *p, const spx_payne_label *l, size_t n, const payne_axis *axis,
                           const spx_network *net, size_t number, double *params, double *work, float *flux, spx_err *e)
{
    double *x = work, *from = work + SPX_NN_MAX_WIDTH, *to = from + SPX_NN_MAX_WIDTH;
    for (size_t i = 0; i < p->size[0]; i++)
        x[i] = (l[i].fixed / l[i].unit - p->lo[i]) / (p->hi[i] - p->lo[i]) - 0.5;
    for (size_t k = n; k-- > 0;) { /* the last axis varies fastest */
        const size_t i = axis[k].label;
        params[k] = axis[k].node[number % axis[k].n];
        number /= axis[k].n;
        x[i] = (params[k] / l[i].unit - p->lo[i]) / (p->hi[i] - p->lo[i]) - 0.5;
    }
    for (size_t k = 0; k < p->npix; k++) {
        flux[k] = (float)pixel_flux(p, net, k, x, from, to);
        if (!isfinite(flux[k]))
            return spx_fail(e, SPX_EINPUT, "the network of pixel %zu gives a flux beyond single precision", k);
    }
    return SPX_OK;
}

static spx_status write_axes(hid_t file, const spx_payne_label *l, size_t n, const payne_axis *axis, size_t total,
                             const spx_network *net, const double *params, spx_err *e)
{
    char name[SPX_MAX_PAR][32];
    const size_t npix = net->nwave, dims[2] = {total, n};
    for (size_t k = 0; k < n; k++)
        memcpy(name[k], l[axis[k].label].name, sizeof name[k]);
    spx_status st = spx_h5_write(file, "/library/params", H5T_NATIVE_DOUBLE, 2, dims, params, e);
    if (st == SPX_OK)
        st = spx_h5_write_strings(file, "/library/parname", sizeof name[0], n, name[0], e);
    if (st == SPX_OK)
        st = spx_h5_write(file, "/library/wavelength", H5T_NATIVE_DOUBLE, 1, &npix, net->wavelength, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/library/wavelength", "medium", net->medium == SPX_AIR ? "air" : "vacuum", e);
    return st == SPX_OK ? spx_h5_attach_scale(file, "/library/flux", 1, "/library/wavelength", "wavelength", e) : st;
}

spx_status spx_payne_library(hid_t file, const spx_payne_pixels *p, size_t nlabel, const spx_payne_label *l,
                             size_t naxis, const char *const *text, const spx_network *net, int progress, spx_err *e)
{
    payne_axis axis[SPX_MAX_PAR];
    size_t n, total;
    spx_status st = find_axes(p, nlabel, l, naxis, text, &n, axis, &total, e);
    if (st != SPX_OK)
        return st;
    const size_t dims[2] = {total, p->npix};
    spx_progress *shown = spx_progress_start(progress, "library", "spectra", total);
    double *params = spx_alloc2(total, n, sizeof *params, e);
    double *work = spx_alloc(3 * SPX_NN_MAX_WIDTH, sizeof *work, e);
    float *flux = spx_alloc(p->npix, sizeof *flux, e);
    st = params != NULL && work != NULL && flux != NULL ? spx_h5_group(file, "/library", e) : SPX_EIO;
    if (st == SPX_OK)
        st = spx_h5_create(file, "/library/flux", H5T_NATIVE_FLOAT, 2, dims, e);
    for (size_t i = 0; i < total && st == SPX_OK; i++) {
        st = spectrum(p, l, n, axis, net, i, params + i * n, work, flux, e);
        if (st == SPX_OK)
            st = spx_h5_write_rows(file, "/library/flux", H5T_NATIVE_FLOAT, i, 1, flux, e);
        spx_progress_step(shown, 1);
    }
    if (st == SPX_OK)
        st = write_axes(file, l, n, axis, total, net, params, e);
    spx_progress_end(shown);
    if (st == SPX_OK)
        spx_note("%zu spectra of a network for each pixel, as a library", total);
    spx_free(params);
    spx_free(work);
    spx_free(flux);
    return st;
}
