/* Reads and writes /templates (products/templates_h5.h). */
#include "products/templates_h5.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "h5/attr.h"
#include "h5/object.h"
#include "h5/read.h"
#include "h5/schema.h"
#include "h5/write.h"
#include "products/nn_h5.h"
#include "products/spectra.h"
#include "products/wavelength_h5.h"

static const char *const norms[] = {"none", "median", "linear"};

static void at(char *out, size_t size, const spx_setup *s, const char *name)
{
    (void)snprintf(out, size, "/templates/%s%s%s", s->setup, name[0] != '\0' ? "/" : "", name);
}

/* ---- reading ---- */

static const char again[] = "make the templates again (rvs-template)";

/* Value i of a dataset is finite, and at least `least`. */
static spx_status check_value(hid_t file, const char *path, size_t i, double x, double least, spx_err *e)
{
    if (!isfinite(x))
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, again, "element %zu is not finite", i);
    if (x < least)
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, again, "element %zu is negative", i);
    return SPX_OK;
}

static spx_status check_values(hid_t file, const char *path, size_t n, const double *v, double least, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < n && st == SPX_OK; i++)
        st = check_value(file, path, i, v[i], least, e);
    return st;
}

static spx_status check_floats(hid_t file, const char *path, size_t n, const float *v, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < n && st == SPX_OK; i++)
        st = check_value(file, path, i, (double)v[i], -INFINITY, e);
    return st;
}

static spx_status read_names(hid_t file, spx_setup *s, spx_err *e)
{
    char p[160], *names = NULL;
    size_t n = 0;
    at(p, sizeof p, s, "parname");
    spx_status st = spx_h5_read_strings(file, p, sizeof s->parname[0], &n, &names, e);
    if (st == SPX_OK && (n == 0 || n > SPX_MAX_PAR))
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), p, NULL, "%zu parameters; 1 to %d are possible", n,
                         SPX_MAX_PAR);
    if (st == SPX_OK) {
        s->npar = n;
        memcpy(s->parname, names, n * sizeof s->parname[0]);
        for (size_t i = 0; i < n; i++)
            for (size_t k = sizeof s->parname[0]; k-- > 0;) {
                if (s->parname[i][k] != ' ' && s->parname[i][k] != '\0' && k + 1 < sizeof s->parname[0])
                    break;
                s->parname[i][k] = '\0';
            }
    }
    spx_free(names);
    return st;
}

static spx_status read_grid(hid_t file, spx_setup *s, spx_err *e)
{
    char p[160];
    int32_t *naxis = NULL;
    double *axes = NULL;
    size_t total = 0, nnode = 1, np = s->npar;
    at(p, sizeof p, s, "grid/naxis");
    spx_status st = spx_h5_read_i32(file, p, 1, &np, &naxis, e);
    for (size_t i = 0; i < s->npar && st == SPX_OK; i++) {
        if (naxis[i] < 1)
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), p, NULL, "an axis has no nodes");
        else {
            s->naxis[i] = (size_t)naxis[i];
            total += s->naxis[i];
            if (spx_mul(nnode, s->naxis[i], &nnode, NULL) != SPX_OK)
                st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), p, again, "has too many nodes");
        }
    }
    spx_free(naxis);
    if (st != SPX_OK)
        return st;
    at(p, sizeof p, s, "grid/axes");
    st = spx_h5_read_f64(file, p, 1, &total, &axes, e);
    size_t k = 0;
    for (size_t i = 0; i < s->npar && st == SPX_OK; i++) {
        if ((s->axis[i] = spx_alloc(s->naxis[i], sizeof(double), e)) == NULL) {
            st = SPX_EIO;
            break;
        }
        memcpy(s->axis[i], axes + k, s->naxis[i] * sizeof(double));
        k += s->naxis[i];
        for (size_t j = 0; j < s->naxis[i] && st == SPX_OK; j++)
            if (!isfinite(s->axis[i][j]) || (j > 0 && !(s->axis[i][j] > s->axis[i][j - 1])))
                st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), p, NULL, "nodes of %s do not increase",
                                 s->parname[i]);
    }
    spx_free(axes);
    if (st != SPX_OK)
        return st;
    at(p, sizeof p, s, "grid/node");
    if ((st = spx_h5_read_i32(file, p, 1, &nnode, &s->node, e)) != SPX_OK)
        return st;
    for (size_t i = 0; i < nnode; i++)
        if (s->node[i] < 0 || (size_t)s->node[i] >= s->ntemp)
            return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), p, NULL, "element %zu names template %d of %zu", i,
                               (int)s->node[i], s->ntemp);
    return SPX_OK;
}

/* Rows of nodes/error. */
enum { ERROR, BIAS, SPREAD, KNOWN, NROW };

static spx_status read_nodes(hid_t file, spx_setup *s, spx_err *e)
{
    char g[160], p[160];
    double *v = NULL;
    spx_node_error *n = &s->nodes;
    const size_t np = s->npar;
    size_t dims[2] = {NROW, np};
    at(g, sizeof g, s, "nodes");
    at(p, sizeof p, s, "nodes/error");
    spx_status st = spx_h5_read_f64(file, p, 2, dims, &v, e);
    if (st == SPX_OK)
        st = spx_h5_attr_f64(file, g, "sn", &n->sn, e);
    if (st == SPX_OK && !(n->sn >= 0 && n->sn < INFINITY))
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), g, again,
                         "the attribute 'sn' is %g, no signal-to-noise ratio", n->sn);
    for (size_t i = 0; i < np && st == SPX_OK; i++) {
        n->error[i] = v[ERROR * np + i];
        n->bias[i] = v[BIAS * np + i];
        n->spread[i] = v[SPREAD * np + i];
        n->known[i] = v[KNOWN * np + i] != 0;
        if (!isfinite(n->error[i] + n->bias[i] + n->spread[i]) || n->error[i] < 0 || n->spread[i] < 0)
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), p, again, "errors of %s are not finite or negative",
                             s->parname[i]);
    }
    spx_free(v);
    return st;
}

static spx_status read_simplex(hid_t file, spx_setup *s, spx_err *e)
{
    char p[160];
    size_t dims[2] = {0, 0};
    at(p, sizeof p, s, "simplex/corner");
    spx_status st = spx_h5_read_i32(file, p, 2, dims, &s->simplex, e);
    if (st != SPX_OK)
        return st;
    s->nsimplex = dims[0];
    s->ncorner = dims[1];
    if (s->ncorner < 2 || s->ncorner > s->npar + 1 || s->nsimplex < 1)
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), p, NULL,
                           "%zu simplices of %zu corners are of no use for %zu parameters", s->nsimplex, s->ncorner,
                           s->npar);
    for (size_t i = 0; i < s->nsimplex * s->ncorner; i++)
        if (s->simplex[i] < 0 || (size_t)s->simplex[i] >= s->ntemp)
            return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), p, NULL, "element %zu names template %d of %zu", i,
                               (int)s->simplex[i], s->ntemp);
    return SPX_OK;
}

static spx_status read_pca(hid_t file, spx_setup *s, spx_err *e)
{
    char g[160], p[160];
    spx_pca *c = &s->pca;
    size_t nw = s->nwave, dc[2] = {0, s->nwave}, dt[2] = {s->ntemp, 0};
    char of[16] = "";
    at(g, sizeof g, s, "pca");
    spx_status st;
    if (spx_h5_has_attr(file, g, "of") && (st = spx_h5_attr_str(file, g, "of", of, sizeof of, e)) != SPX_OK)
        return st;
    c->of_flux = strcmp(of, "flux") == 0;
    if ((st = spx_h5_attr_f64(file, g, "rms", &c->rms, e)) != SPX_OK ||
        (st = spx_h5_attr_f64(file, g, "max", &c->max, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "pca/component");
    if ((st = spx_h5_read_f32(file, p, 2, dc, &c->comp, e)) != SPX_OK)
        return st;
    if ((st = check_floats(file, p, dc[0] * nw, c->comp, e)) != SPX_OK)
        return st;
    dt[1] = c->ncomp = dc[0];
    at(p, sizeof p, s, "pca/coefficient");
    if ((st = spx_h5_read_f64(file, p, 2, dt, &c->coef, e)) != SPX_OK)
        return st;
    if ((st = check_values(file, p, s->ntemp * c->ncomp, c->coef, -INFINITY, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "pca/mean");
    if ((st = spx_h5_read_f64(file, p, 1, &nw, &c->mean, e)) != SPX_OK)
        return st;
    if ((st = check_values(file, p, nw, c->mean, -INFINITY, e)) != SPX_OK)
        return st;
    return SPX_OK;
}

static spx_status read_nn(hid_t file, spx_setup *s, spx_err *e)
{
    char g[160];
    at(g, sizeof g, s, "nn");
    spx_status st;
    if ((st = spx_h5_attr_f64(file, g, "rms", &s->nn.rms, e)) != SPX_OK ||
        (st = spx_h5_attr_f64(file, g, "max", &s->nn.max, e)) != SPX_OK)
        return st;
    return spx_nn_read(file, g, s->npar, s->pca.ncomp, &s->nn, e);
}

static spx_status read_ccf_pca(hid_t file, spx_setup *s, spx_err *e)
{
    char p[160];
    spx_ccf_set *c = &s->ccf;
    size_t dk[4] = {0, 2, 0, 2}, dt[2] = {c->ntemp, 0};
    at(p, sizeof p, s, "ccf/pca/component");
    spx_status st = spx_h5_read_f32(file, p, 4, dk, &c->pca.comp, e);
    if (st != SPX_OK)
        return st;
    c->pca.ncomp = dt[1] = dk[0];
    c->pca.nshort = 2 * (dk[2] - 1);
    if (dk[0] == 0 || dk[2] < 2 || c->pca.nshort > c->nwave || c->nwave % c->pca.nshort != 0)
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), p, again,
                           "%zu components of %zu frequencies are of no use for %zu samples", dk[0], dk[2], c->nwave);
    if ((st = check_floats(file, p, dk[0] * dk[2] * 4, c->pca.comp, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "ccf/pca/coefficient");
    if ((st = spx_h5_read_f32(file, p, 2, dt, &c->pca.coef, e)) != SPX_OK)
        return st;
    if ((st = check_floats(file, p, dt[0] * dt[1], c->pca.coef, e)) != SPX_OK)
        return st;
    return SPX_OK;
}

/* all = 0: without the entries themselves, where their components are there. */
static spx_status read_ccf(hid_t file, int all, spx_setup *s, spx_err *e)
{
    char g[160], p[160];
    spx_ccf_set *c = &s->ccf;
    size_t dims[3] = {0, s->npar, 0};
    at(g, sizeof g, s, "ccf");
    spx_status st;
    if ((st = spx_h5_attr_f64(file, g, "lnwave0", &c->lnwave0, e)) != SPX_OK ||
        (st = spx_h5_attr_f64(file, g, "dlnwave", &c->dlnwave, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "ccf/params");
    if ((st = spx_h5_read_f64(file, p, 2, dims, &c->params, e)) != SPX_OK ||
        (st = check_values(file, p, dims[0] * dims[1], c->params, -INFINITY, e)) != SPX_OK)
        return st;
    c->ntemp = dims[0];
    at(p, sizeof p, s, "ccf/vsini");
    if ((st = spx_h5_read_f64(file, p, 1, dims, &c->vsini, e)) != SPX_OK ||
        (st = check_values(file, p, c->ntemp, c->vsini, 0, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "ccf/pca");
    const int components = spx_h5_exists(file, p), entries = all || !components;
    int ndim = 2;
    size_t shape[SPX_H5_MAXDIM] = {0};
    at(p, sizeof p, s, "ccf/flux");
    if ((st = spx_h5_shape(file, p, &ndim, shape, e)) != SPX_OK)
        return st;
    if (ndim != 2 || shape[0] != c->ntemp)
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), p, NULL, "is not of %zu entries", c->ntemp);
    c->nwave = dims[1] = shape[1];
    if (entries && ((st = spx_h5_read_f32(file, p, 2, dims, &c->flux, e)) != SPX_OK ||
                    (st = check_floats(file, p, c->ntemp * c->nwave, c->flux, e)) != SPX_OK))
        return st;
    if (c->nwave < 2 || (c->nwave & (c->nwave - 1)) != 0 || !(c->dlnwave > 0) || !isfinite(c->lnwave0))
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), p, NULL,
                           "length %zu is not a power of two, or the step is not positive", c->nwave);
    if (components && (st = read_ccf_pca(file, s, e)) != SPX_OK)
        return st;
    if (!entries)
        return SPX_OK;
    dims[1] = c->nwave / 2 + 1;
    dims[2] = 2;
    at(p, sizeof p, s, "ccf/fft");
    if ((st = spx_h5_read_f32(file, p, 3, dims, &c->fft, e)) != SPX_OK ||
        (st = check_floats(file, p, dims[0] * dims[1] * dims[2], c->fft, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "ccf/fft2");
    if ((st = spx_h5_read_f32(file, p, 3, dims, &c->fft2, e)) != SPX_OK)
        return st;
    return check_floats(file, p, dims[0] * dims[1] * dims[2], c->fft2, e);
}

static spx_status read_lnflux(hid_t file, const char *path, spx_setup *s, spx_err *e)
{
    size_t dims[2] = {s->ntemp, s->nwave};
    spx_status st = spx_h5_read_f32(file, path, 2, dims, &s->lnflux, e);
    for (size_t i = 0; st == SPX_OK && i < s->ntemp; i++) {
        const float *f = s->lnflux + i * s->nwave;
        int bad = 0;
#pragma omp simd reduction(| : bad)
        for (size_t k = 0; k < s->nwave; k++)
            bad |= !(f[k] - f[k] == 0);
        for (size_t k = 0; bad && st == SPX_OK; k++)
            if (!isfinite(f[k]))
                st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path,
                                 "make the templates again with rvs-template", "element %zu is not finite",
                                 i * s->nwave + k);
    }
    return st;
}

/* The fits take wavelengths from the attributes, people from the dataset: the two have to say the same, to 0.1 km/s. */
static spx_status check_axis(hid_t file, const char *path, const spx_setup *s, spx_err *e)
{
    enum { SAME = 3333333 }; /* 1 / 3e-7 */
    double *wave = NULL;
    size_t n = s->nwave;
    spx_status st = spx_wavelength_read(file, path, &n, &wave, e);
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        const double is = exp(s->lnwave0 + (double)i * s->dlnwave);
        if (!(fabs(wave[i] - is) * SAME < is))
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), path, again,
                             "element %zu is %.4f Angstrom, the attributes lnwave0 and dlnwave say %.4f", i, wave[i],
                             is);
    }
    spx_free(wave);
    return st;
}

static spx_status read_setup(hid_t file, int all, spx_setup *s, spx_err *e)
{
    char g[160], p[160], word[32];
    int32_t *parlog = NULL;
    size_t dims[SPX_H5_MAXDIM] = {0};
    int ndim = 0;
    at(g, sizeof g, s, "");
    spx_status st;
    if ((st = spx_h5_attr_f64(file, g, "wmin", &s->wmin, e)) != SPX_OK ||
        (st = spx_h5_attr_f64(file, g, "wmax", &s->wmax, e)) != SPX_OK ||
        (st = spx_h5_attr_f64(file, g, "step", &s->step, e)) != SPX_OK ||
        (st = spx_h5_attr_str(file, g, "resolution", s->resolution, sizeof s->resolution, e)) != SPX_OK ||
        (st = spx_h5_attr_str(file, g, "norm", word, sizeof word, e)) != SPX_OK)
        return st;
    s->norm = SPX_NORM_NONE;
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        if (strcmp(word, norms[i]) == 0)
            s->norm = (spx_norm)i;
    at(p, sizeof p, s, "wavelength");
    if ((st = spx_h5_attr_f64(file, p, "lnwave0", &s->lnwave0, e)) != SPX_OK ||
        (st = spx_h5_attr_f64(file, p, "dlnwave", &s->dlnwave, e)) != SPX_OK ||
        (st = spx_wavelength_read_words(file, p, &s->medium, NULL, NULL, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "lnflux");
    if ((st = spx_h5_shape(file, p, &ndim, dims, e)) != SPX_OK)
        return st;
    s->ntemp = dims[0];
    s->nwave = dims[1];
    if (ndim != 2 || s->ntemp == 0 || s->nwave < 4 || !(s->dlnwave > 0) || s->dlnwave > 0.1 || !isfinite(s->lnwave0))
        return spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), p, NULL,
                           "no templates, or a wavelength step that is not positive");
    char components[160];
    at(p, sizeof p, s, "wavelength");
    if ((st = check_axis(file, p, s, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "lnflux");
    at(components, sizeof components, s, "pca/component");
    if ((all || !spx_h5_exists(file, components)) && (st = read_lnflux(file, p, s, e)) != SPX_OK)
        return st;
    if ((st = read_names(file, s, e)) != SPX_OK)
        return st;
    dims[1] = s->npar;
    at(p, sizeof p, s, "params");
    if ((st = spx_h5_read_f64(file, p, 2, dims, &s->params, e)) != SPX_OK ||
        (st = check_values(file, p, s->ntemp * s->npar, s->params, -INFINITY, e)) != SPX_OK)
        return st;
    size_t np = s->npar;
    at(p, sizeof p, s, "parlog");
    if ((st = spx_h5_read_i32(file, p, 1, &np, &parlog, e)) != SPX_OK)
        return st;
    for (size_t i = 0; i < s->npar; i++)
        s->parlog[i] = parlog[i] != 0;
    spx_free(parlog);
    at(p, sizeof p, s, "lnnorm");
    if (spx_h5_exists(file, p) && ((st = spx_h5_read_f64(file, p, 1, dims, &s->lnnorm, e)) != SPX_OK ||
                                   (st = check_values(file, p, s->ntemp, s->lnnorm, -INFINITY, e)) != SPX_OK))
        return st;
    at(p, sizeof p, s, "filled");
    if (spx_h5_exists(file, p) && (st = spx_h5_read_u8(file, p, 1, dims, &s->filled, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "grid");
    if (spx_h5_exists(file, p) && (st = read_grid(file, s, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "nodes");
    if (spx_h5_exists(file, p) && (st = read_nodes(file, s, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "simplex");
    if (spx_h5_exists(file, p) && (st = read_simplex(file, s, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "pca");
    if (spx_h5_exists(file, p) && (st = read_pca(file, s, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "nn");
    if (spx_h5_exists(file, p) && (st = read_nn(file, s, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "ccf");
    return spx_h5_exists(file, p) ? read_ccf(file, all, s, e) : SPX_OK;
}

spx_status spx_templates_read(hid_t file, int all, spx_templates *t, spx_err *e)
{
    size_t n = 0;
    char **names = NULL;
    memset(t, 0, sizeof *t);
    spx_status st = spx_schema_accept(file, "/templates", "templates", e);
    if (st != SPX_OK || (st = spx_h5_list(file, "/templates", &n, &names, e)) != SPX_OK)
        return st;
    if ((t->setup = spx_alloc(n, sizeof *t->setup, e)) == NULL)
        st = SPX_EIO;
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        spx_setup *s = &t->setup[t->nsetup++];
        if (strlen(names[i]) >= sizeof s->setup)
            st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/templates", NULL, "a setup's name is too long");
        else {
            (void)snprintf(s->setup, sizeof s->setup, "%s", names[i]);
            st = read_setup(file, all, s, e);
        }
    }
    spx_h5_names_free(n, names);
    if (st == SPX_OK && t->nsetup == 0)
        st = spx_fail_at(e, SPX_EINPUT, spx_h5_filename(file), "/templates", "make one with rvs-template",
                         "has no setup at all");
    if (st == SPX_OK && spx_h5_has_attr(file, "/templates", "library"))
        st = spx_h5_attr_str(file, "/templates", "library", t->library, sizeof t->library, e);
    return st;
}

/* ---- writing ---- */

static spx_status write_grid(hid_t file, const spx_setup *s, spx_err *e)
{
    char p[160];
    int32_t naxis[SPX_MAX_PAR];
    size_t total = 0, nnode = 1, k = 0;
    for (size_t i = 0; i < s->npar; i++) {
        naxis[i] = (int32_t)s->naxis[i];
        total += s->naxis[i];
        nnode *= s->naxis[i];
    }
    double *axes = spx_alloc(total, sizeof *axes, e);
    if (axes == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < s->npar; k += s->naxis[i], i++)
        memcpy(axes + k, s->axis[i], s->naxis[i] * sizeof *axes);
    at(p, sizeof p, s, "grid/naxis");
    spx_status st = spx_h5_write(file, p, H5T_NATIVE_INT32, 1, &s->npar, naxis, e);
    at(p, sizeof p, s, "grid/axes");
    if (st == SPX_OK)
        st = spx_h5_write_real(file, p, 8, 1, &total, axes, e);
    at(p, sizeof p, s, "grid/node");
    if (st == SPX_OK)
        st = spx_h5_write(file, p, H5T_NATIVE_INT32, 1, &nnode, s->node, e);
    spx_free(axes);
    return st;
}

static spx_status write_pca(hid_t file, const spx_setup *s, spx_err *e)
{
    char p[160];
    const spx_pca *c = &s->pca;
    size_t dc[2] = {c->ncomp, s->nwave}, dt[2] = {s->ntemp, c->ncomp};
    at(p, sizeof p, s, "pca/mean");
    spx_status st = spx_h5_write_real(file, p, 8, 1, &s->nwave, c->mean, e);
    at(p, sizeof p, s, "pca/component");
    if (st == SPX_OK)
        st = spx_h5_write(file, p, H5T_NATIVE_FLOAT, 2, dc, c->comp, e);
    at(p, sizeof p, s, "pca/coefficient");
    if (st == SPX_OK)
        st = spx_h5_write_real(file, p, 8, 2, dt, c->coef, e);
    at(p, sizeof p, s, "pca");
    if (st == SPX_OK)
        st = spx_h5_set_f64(file, p, "rms", c->rms, e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, p, "of", c->of_flux ? "flux" : "lnflux", e);
    return st == SPX_OK ? spx_h5_set_f64(file, p, "max", c->max, e) : st;
}

static spx_status write_nn(hid_t file, const spx_setup *s, spx_err *e)
{
    char g[160];
    at(g, sizeof g, s, "nn");
    spx_status st = spx_nn_write(file, g, &s->nn, e);
    if (st == SPX_OK)
        st = spx_h5_set_f64(file, g, "rms", s->nn.rms, e);
    return st == SPX_OK ? spx_h5_set_f64(file, g, "max", s->nn.max, e) : st;
}

static spx_status write_ccf(hid_t file, const spx_setup *s, spx_err *e)
{
    char p[160];
    const spx_ccf_set *c = &s->ccf;
    size_t dp[2] = {c->ntemp, s->npar}, df[2] = {c->ntemp, c->nwave}, dt[3] = {c->ntemp, c->nwave / 2 + 1, 2};
    at(p, sizeof p, s, "ccf/params");
    spx_status st = spx_h5_write_real(file, p, 8, 2, dp, c->params, e);
    at(p, sizeof p, s, "ccf/vsini");
    if (st == SPX_OK)
        st = spx_h5_write_real(file, p, 8, 1, &c->ntemp, c->vsini, e);
    at(p, sizeof p, s, "ccf/flux");
    if (st == SPX_OK)
        st = spx_h5_write(file, p, H5T_NATIVE_FLOAT, 2, df, c->flux, e);
    at(p, sizeof p, s, "ccf/fft");
    if (st == SPX_OK)
        st = spx_h5_write(file, p, H5T_NATIVE_FLOAT, 3, dt, c->fft, e);
    at(p, sizeof p, s, "ccf/fft2");
    if (st == SPX_OK)
        st = spx_h5_write(file, p, H5T_NATIVE_FLOAT, 3, dt, c->fft2, e);
    if (st == SPX_OK && c->pca.comp != NULL) {
        const size_t dk[4] = {c->pca.ncomp, 2, c->pca.nshort / 2 + 1, 2}, dq[2] = {c->ntemp, c->pca.ncomp};
        at(p, sizeof p, s, "ccf/pca/component");
        st = spx_h5_write(file, p, H5T_NATIVE_FLOAT, 4, dk, c->pca.comp, e);
        at(p, sizeof p, s, "ccf/pca/coefficient");
        if (st == SPX_OK)
            st = spx_h5_write(file, p, H5T_NATIVE_FLOAT, 2, dq, c->pca.coef, e);
    }
    at(p, sizeof p, s, "ccf");
    if (st == SPX_OK)
        st = spx_h5_set_f64(file, p, "lnwave0", c->lnwave0, e);
    return st == SPX_OK ? spx_h5_set_f64(file, p, "dlnwave", c->dlnwave, e) : st;
}

/* Writes lnflux in chunks: it may be a mapped file (spx_alloc_spill()). */
static spx_status write_lnflux(hid_t file, const char *path, const spx_setup *s, spx_err *e)
{
    const size_t dims[2] = {s->ntemp, s->nwave}, part = ((size_t)1 << 24) / (s->nwave * sizeof *s->lnflux) + 1;
    spx_status st = spx_h5_create(file, path, H5T_NATIVE_FLOAT, 2, dims, e);
    for (size_t row = 0; row < s->ntemp && st == SPX_OK; row += part) {
        const size_t n = s->ntemp - row < part ? s->ntemp - row : part;
        st = spx_h5_write_rows(file, path, H5T_NATIVE_FLOAT, row, n, s->lnflux + row * s->nwave, e);
        spx_mem_passed(s->lnflux);
    }
    return st;
}

static spx_status write_setup(hid_t file, const spx_setup *s, spx_err *e)
{
    char w[160], p[160];
    int32_t parlog[SPX_MAX_PAR];
    size_t dp[2] = {s->ntemp, s->npar};
    const char *medium = s->medium == SPX_AIR ? "air" : "vacuum";
    double *wave = spx_alloc(s->nwave, sizeof *wave, e);
    if (wave == NULL)
        return SPX_EIO;
    for (size_t i = 0; i < s->nwave; i++)
        wave[i] = exp(s->lnwave0 + (double)i * s->dlnwave);
    for (size_t i = 0; i < s->npar; i++)
        parlog[i] = s->parlog[i];
    at(w, sizeof w, s, "wavelength");
    spx_status st = spx_h5_write_real(file, w, 8, 1, &s->nwave, wave, e);
    spx_free(wave);
    if (st != SPX_OK || (st = spx_h5_set_str(file, w, "medium", medium, e)) != SPX_OK ||
        (st = spx_h5_set_f64(file, w, "lnwave0", s->lnwave0, e)) != SPX_OK ||
        (st = spx_h5_set_f64(file, w, "dlnwave", s->dlnwave, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "lnflux");
    if ((st = write_lnflux(file, p, s, e)) != SPX_OK ||
        (st = spx_h5_attach_scale(file, p, 1, w, "wavelength", e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "params");
    if ((st = spx_h5_write_real(file, p, 8, 2, dp, s->params, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "parname");
    if ((st = spx_h5_write_strings(file, p, sizeof s->parname[0], s->npar, s->parname[0], e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "parlog");
    if ((st = spx_h5_write(file, p, H5T_NATIVE_INT32, 1, &s->npar, parlog, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "lnnorm");
    if (s->lnnorm != NULL && (st = spx_h5_write_real(file, p, 8, 1, &s->ntemp, s->lnnorm, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "filled");
    if (s->filled != NULL && (st = spx_h5_write(file, p, H5T_NATIVE_UINT8, 1, &s->ntemp, s->filled, e)) != SPX_OK)
        return st;
    at(p, sizeof p, s, "");
    if ((st = spx_h5_set_f64(file, p, "wmin", s->wmin, e)) != SPX_OK ||
        (st = spx_h5_set_f64(file, p, "wmax", s->wmax, e)) != SPX_OK ||
        (st = spx_h5_set_f64(file, p, "step", s->step, e)) != SPX_OK ||
        (st = spx_h5_set_str(file, p, "resolution", s->resolution, e)) != SPX_OK ||
        (st = spx_h5_set_str(file, p, "medium", medium, e)) != SPX_OK ||
        (st = spx_h5_set_str(file, p, "norm", norms[s->norm], e)) != SPX_OK)
        return st;
    if (s->node != NULL && (st = write_grid(file, s, e)) != SPX_OK)
        return st;
    if (s->simplex != NULL) {
        size_t dims[2] = {s->nsimplex, s->ncorner};
        at(p, sizeof p, s, "simplex/corner");
        if ((st = spx_h5_write(file, p, H5T_NATIVE_INT32, 2, dims, s->simplex, e)) != SPX_OK)
            return st;
    }
    if (s->pca.ncomp > 0 && (st = write_pca(file, s, e)) != SPX_OK)
        return st;
    if (s->nn.nlayer > 0 && (st = write_nn(file, s, e)) != SPX_OK)
        return st;
    return s->ccf.ntemp > 0 ? write_ccf(file, s, e) : SPX_OK;
}

spx_status spx_templates_write(hid_t file, const spx_templates *t, spx_err *e)
{
    spx_status st = spx_h5_group(file, "/templates", e);
    if (st == SPX_OK)
        st = spx_h5_set_str(file, "/templates", "library", t->library, e);
    for (size_t i = 0; i < t->nsetup && st == SPX_OK; i++)
        st = write_setup(file, &t->setup[i], e);
    return st;
}

spx_status spx_templates_write_nodes(hid_t file, const spx_templates *t, spx_err *e)
{
    spx_status st = SPX_OK;
    for (size_t i = 0; i < t->nsetup && st == SPX_OK; i++) {
        const spx_setup *s = &t->setup[i];
        const spx_node_error *n = &s->nodes;
        const size_t np = s->npar, dims[2] = {NROW, np};
        double v[NROW * SPX_MAX_PAR];
        char g[160], p[160];
        if (n->sn == 0)
            continue;
        for (size_t k = 0; k < np; k++) {
            v[ERROR * np + k] = n->error[k];
            v[BIAS * np + k] = n->bias[k];
            v[SPREAD * np + k] = n->spread[k];
            v[KNOWN * np + k] = n->known[k];
        }
        at(g, sizeof g, s, "nodes");
        at(p, sizeof p, s, "nodes/error");
        st = spx_h5_write_real(file, p, 8, 2, dims, v, e);
        if (st == SPX_OK)
            st = spx_h5_set_f64(file, g, "sn", n->sn, e);
    }
    return st;
}
