/* Makes setups from a network that was trained elsewhere and gives whole spectra (template.h,
 * spx_template_import()). */
#include <cblas.h>
#include <lapacke.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "num/blas.h"
#include "spectral/nn_math.h"
#include "template/template.h"
#include "template/template_impl.h"

static const double LEAST_FLUX = 1e-10, MAX_LNFLUX = 80, LEAST_VALUE = 1e-14;

/* Resamples the last layer as a library: spectrum 0 is its biases, spectrum 1 + j the weights of input j; in the
 * setups' pixels. */
static spx_status last_layer(const spx_network *net, const spx_template_config *cfg, spx_templates *out,
                             spx_template_report *report, spx_err *e)
{
    const spx_nn *nn = &net->nn;
    size_t h = nn->size[nn->nlayer - 1], nw = net->nwave, first, n, nweight = 0, nbias = 0;
    spx_template_config raw = {.nsetup = cfg->nsetup, .setup = cfg->setup, .raw = 1, .nthreads = cfg->nthreads};
    memcpy(raw.library_resolution, cfg->library_resolution, sizeof raw.library_resolution);
    raw.library_table = cfg->library_table;
    raw.straight = cfg->straight;
    for (size_t l = 0; l + 1 < nn->nlayer; l++) {
        nweight += nn->size[l] * nn->size[l + 1];
        nbias += nn->size[l + 1];
    }
    spx_template_job *job = NULL;
    double *number = spx_alloc(h + 1, sizeof *number, e);
    float *row = spx_alloc(nw, sizeof *row, e);
    spx_status st = number && row ? SPX_OK : SPX_EIO;
    for (size_t j = 0; j <= h && st == SPX_OK; j++)
        number[j] = (double)j;
    spx_template_library lib = {.nwave = nw,
                                .wavelength = net->wavelength,
                                .medium = net->medium,
                                .ntemp = h + 1,
                                .npar = 1,
                                .params = number,
                                .parname = {"row"}};
    if (st == SPX_OK)
        st = spx_template_begin(&lib, &raw, &job, e);
    if (st == SPX_OK)
        spx_template_range(job, &first, &n);
    for (size_t j = 0; j <= h && st == SPX_OK; j++) {
        for (size_t k = 0; k < nw; k++)
            row[k] = j == 0 ? nn->bias[nbias + k] : nn->weight[nweight + k * h + j - 1];
        st = spx_template_add(job, j, 1, row + first, nw, e);
    }
    if (st == SPX_OK)
        st = spx_template_finish(job, out, report, e);
    spx_template_free(job);
    spx_free(number);
    spx_free(row);
    return st;
}

/* Checks that the LSF of a setup is not wider than the network's own, for a network of ln flux: convolving its
 * exponential is not linear. */
static spx_status check_lnflux(const spx_setup *s, const spx_template_request *r, const spx_template_config *cfg,
                               spx_err *e)
{
    spx_status st = SPX_OK;
    double *sigma = spx_alloc(s->nwave, sizeof *sigma, e);
    if (!sigma)
        return SPX_EIO;
    st = spx_template_sigma(s, r, cfg, sigma, e);
    for (size_t k = 0; k < s->nwave && st == SPX_OK; k++)
        if (sigma[k] > 0.05 * s->step)
            st = spx_fail(e, SPX_EUSAGE,
                          "setup '%s': a network of ln(flux) cannot be blurred: give the setup the network's own "
                          "resolution, and {library_resolution} the same",
                          s->setup);
    spx_free(sigma);
    return st;
}

/* Orthonormalises the columns layer[1 ... h][nwave] into components, and sets the last layer of the new network, from
 * the h values to their coefficients; layer[0] is the mean. */
static spx_status components(spx_setup *s, const float *layer, size_t h, float *last, spx_err *e)
{
    size_t nw = s->nwave;
    spx_pca *p = &s->pca;
    spx_status st = SPX_EIO;
    double *x = spx_alloc2(h, nw, sizeof *x, e), *gram = spx_alloc2(h, h, sizeof *gram, e);
    double *value = spx_alloc(h, sizeof *value, e), *comp = spx_alloc2(h, nw, sizeof *comp, e);
    p->mean = spx_alloc(nw, sizeof *p->mean, e);
    if (!x || !gram || !value || !comp || !p->mean)
        goto end;
    for (size_t k = 0; k < nw; k++)
        p->mean[k] = (double)layer[k];
    for (size_t i = 0; i < h * nw; i++)
        x[i] = (double)layer[nw + i];
    cblas_dsyrk(CblasRowMajor, CblasLower, CblasNoTrans, (int)h, (int)nw, 1, x, (int)nw, 0, gram, (int)h);
    if (LAPACKE_dsyevd(LAPACK_ROW_MAJOR, 'V', 'L', (int)h, gram, (int)h, value) != 0 || !(value[h - 1] > 0)) {
        st = spx_fail(e, SPX_EINPUT, "setup '%s': the network's output does not depend on its input", s->setup);
        goto end;
    }
    /* eigenvalues increase; component c belongs to number h-1-c */
    while (p->ncomp < h && value[h - 1 - p->ncomp] > LEAST_VALUE * value[h - 1])
        p->ncomp++;
    if (!(p->comp = spx_alloc2(p->ncomp, nw, sizeof *p->comp, e)))
        goto end;
    for (size_t c = 0; c < p->ncomp; c++) {
        double root = sqrt(value[h - 1 - c]);
        for (size_t j = 0; j < h; j++) { /* x = vector' sqrt(value) comp */
            double v = gram[j * h + h - 1 - c];
            last[c * h + j] = (float)(v * root);
            cblas_daxpy((int)nw, v / root, x + j * nw, 1, comp + c * nw, 1);
        }
    }
    for (size_t i = 0; i < p->ncomp * nw; i++)
        p->comp[i] = (float)comp[i];
    st = SPX_OK;
end:
    spx_free(x);
    spx_free(gram);
    spx_free(value);
    spx_free(comp);
    return st;
}

/* Element i of the van der Corput sequence in base `base`: coordinates of Halton points. */
static double halton(size_t i, unsigned base)
{
    double v = 0, f = 1;
    for (i++; i > 0; i /= base) {
        f /= base;
        v += f * (double)(i % base);
    }
    return v;
}

/* Evaluates templates at Halton points over the whole range. */
static spx_status sample(spx_setup *s, size_t ntemp, spx_err *e)
{
    static const unsigned base[SPX_MAX_PAR] = {2, 3, 5, 7, 11, 13};
    static const size_t none[1] = {0};
    size_t nw = s->nwave, nc = s->pca.ncomp;
    spx_status st = SPX_EIO;
    double *work = spx_alloc2(2, spx_nn_width(&s->nn), sizeof *work, e), *v = spx_alloc(nw, sizeof *v, e);
    s->ntemp = ntemp;
    s->params = spx_alloc2(ntemp, s->npar, sizeof *s->params, e);
    s->lnflux = spx_alloc2(ntemp, nw, sizeof *s->lnflux, e);
    s->lnnorm = spx_alloc(ntemp, sizeof *s->lnnorm, e);
    s->filled = spx_alloc(ntemp, sizeof *s->filled, e);
    s->pca.coef = spx_alloc2(ntemp, nc, sizeof *s->pca.coef, e);
    if (!work || !v || !s->params || !s->lnflux || !s->lnnorm || !s->filled || !s->pca.coef)
        goto end;
    for (size_t i = 0; i < ntemp; i++) {
        double *x = s->params + i * s->npar, *coef = s->pca.coef + i * nc;
        for (size_t p = 0; p < s->npar; p++)
            x[p] = s->nn.lo[p] + halton(i, base[p]) * (s->nn.hi[p] - s->nn.lo[p]);
        spx_nn_evaluate(&s->nn, x, 1, none, work, coef);
        memcpy(v, s->pca.mean, nw * sizeof *v);
        for (size_t c = 0; c < nc; c++)
            for (size_t k = 0; k < nw; k++)
                v[k] += coef[c] * (double)s->pca.comp[c * nw + k];
        for (size_t k = 0; k < nw; k++) {
            double ln = s->pca.of_flux ? log(fmax(v[k], LEAST_FLUX)) : v[k];
            s->lnflux[i * nw + k] = (float)fmax(-MAX_LNFLUX, fmin(MAX_LNFLUX, ln));
        }
    }
    st = SPX_OK;
end:
    spx_free(work);
    spx_free(v);
    return st;
}

/* Converts a setup with the rows of the last layer as templates to a setup of the network. */
static spx_status make_setup(const spx_network *net, size_t ntemp, spx_setup *s, spx_err *e)
{
    const spx_nn *from = &net->nn;
    spx_nn *nn = &s->nn;
    size_t h = from->size[from->nlayer - 1], nweight = 0, nbias = 0;
    float *layer = s->lnflux, *last = spx_alloc2(h, h, sizeof *last, e);
    s->lnflux = NULL;
    spx_free(s->params);
    spx_free(s->lnnorm);
    spx_free(s->filled);
    spx_free(s->node);
    spx_free(s->axis[0]);
    s->params = s->lnnorm = s->axis[0] = NULL;
    s->filled = NULL;
    s->node = NULL;
    s->naxis[0] = 0;
    s->norm = SPX_NORM_NONE;
    s->npar = net->npar;
    s->ntemp = 0;
    memcpy(s->parname, net->parname, sizeof s->parname);
    spx_status st = last ? components(s, layer, h, last, e) : SPX_EIO;
    s->pca.of_flux = net->of_flux;
    *nn = *from;
    nn->weight = nn->bias = NULL;
    nn->size[nn->nlayer] = s->pca.ncomp;
    for (size_t l = 0; l + 1 < nn->nlayer; l++) {
        nweight += nn->size[l] * nn->size[l + 1];
        nbias += nn->size[l + 1];
    }
    if (st == SPX_OK) {
        nn->weight = spx_alloc(nweight + s->pca.ncomp * h, sizeof *nn->weight, e);
        nn->bias = spx_alloc(nbias + s->pca.ncomp, sizeof *nn->bias, e);
        st = nn->weight && nn->bias ? SPX_OK : SPX_EIO;
    }
    if (st == SPX_OK) {
        memcpy(nn->weight, from->weight, nweight * sizeof *nn->weight);
        memcpy(nn->bias, from->bias, nbias * sizeof *nn->bias);
        memcpy(nn->weight + nweight, last, s->pca.ncomp * h * sizeof *last);
        st = sample(s, ntemp, e);
    }
    spx_free(layer);
    spx_free(last);
    return st;
}

spx_status spx_template_import(const spx_network *net, const spx_template_config *cfg, size_t ntemp, spx_templates *out,
                               spx_template_report *report, spx_err *e)
{
    if (net->nn.nlayer < 2 || ntemp < 1)
        return spx_fail(e, SPX_EINPUT, "the network has no hidden layer");
    size_t *ccf_row = spx_alloc(ntemp, sizeof *ccf_row, e);
    if (!ccf_row)
        return SPX_EIO;
    for (size_t i = 0; i < ntemp; i++)
        ccf_row[i] = i;
    spx_status st = spx_blas_open(e);
    if (st == SPX_OK)
        st = last_layer(net, cfg, out, report, e);
    for (size_t i = 0; i < out->nsetup && st == SPX_OK; i++) {
        spx_setup *s = &out->setup[i];
        if (!net->of_flux)
            st = check_lnflux(s, &cfg->setup[i], cfg, e);
        if (st == SPX_OK)
            st = make_setup(net, ntemp, s, e);
        if (st == SPX_OK && cfg->ccf && cfg->nccf_vsini > 0)
            st = spx_template_ccf(s, ntemp, ccf_row, cfg->nccf_vsini, cfg->ccf_vsini, cfg->nthreads, NULL, e);
        report->nccf = s->ccf.ntemp;
    }
    spx_free(ccf_row);
    return st;
}
