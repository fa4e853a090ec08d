#include "common/template_options.h"

#include <math.h>
#include <string.h>

#include "base/parse.h"
#include "common/setup_options.h"

static spx_status network(const spx_template_args *o, spx_template_config *cfg, spx_err *e)
{
    double hidden[SPX_NN_MAX_LAYER - 1];
    size_t n = 0;
    if (!o->train)
        return o->nn_given ? spx_fail(e, SPX_EUSAGE, "--nn-hidden, --nn-epochs and --nn-seed need --train-nn") : SPX_OK;
    spx_status st = spx_parse_doubles(o->hidden, ',', "--nn-hidden", "N,N...", SPX_NN_MAX_LAYER - 1, hidden, &n, e);
    for (size_t i = 0; i < n && st == SPX_OK; i++) {
        if (!(hidden[i] >= 1 && hidden[i] <= SPX_NN_MAX_WIDTH && hidden[i] == floor(hidden[i])))
            st = spx_fail(e, SPX_EUSAGE, "--nn-hidden: %g neurons are not possible: 1 to %d are", hidden[i],
                          SPX_NN_MAX_WIDTH);
        else
            cfg->nn.hidden[i] = (size_t)hidden[i];
    }
    cfg->nn.nhidden = n;
    cfg->nn.epochs = (size_t)o->epochs;
    cfg->nn.seed = (uint64_t)o->seed;
    return st;
}

spx_status spx_template_args_config(const spx_template_args *o, spx_template_request *request,
                                    double vsini[SPX_TEMPLATE_MAX_VSINI], spx_template_config *cfg, spx_err *e)
{
    spx_status st = SPX_OK;
    if (!o->ccf && (o->every > 0 || o->vsini_given))
        st = spx_fail(e, SPX_EUSAGE, "--no-ccf leaves out the set that --ccf-every and --ccf-vsini are for");
    for (size_t i = 0; i < o->setup.n && st == SPX_OK; i++)
        st = spx_template_parse_setup(o->setup.value[i], &request[i], e);
    if (st == SPX_OK)
        st = spx_parse_doubles(o->vsini, ',', "--ccf-vsini", "V,V...", SPX_TEMPLATE_MAX_VSINI, vsini, &cfg->nccf_vsini,
                               e);
    if (st == SPX_OK && strlen(o->resolution) >= sizeof cfg->library_resolution)
        st = spx_fail(e, SPX_EUSAGE, "--library-resolution: is longer than %zu characters",
                      sizeof cfg->library_resolution - 1);
    if (st != SPX_OK)
        return st;
    if (strcmp(o->resolution, "none") != 0)
        strcpy(cfg->library_resolution, o->resolution);
    cfg->nsetup = o->setup.n;
    cfg->setup = request;
    cfg->norm = o->norm;
    cfg->straight = o->straight;
    cfg->ccf = o->ccf;
    cfg->ccf_every = (size_t)o->every;
    cfg->ccf_vsini = vsini;
    cfg->interpolator = o->interpolator;
    cfg->pca_error = o->pca;
    cfg->pca_max = o->pca_max;
    return network(o, cfg, e);
}

spx_status spx_template_args_log(const spx_template_args *o, const spx_library *lib, spx_template_config *cfg,
                                 spx_err *e)
{
    if (strcmp(o->logpar, "none") == 0)
        return SPX_OK;
    for (const char *p = o->logpar; *p != '\0';) {
        size_t n = strcspn(p, ","), k = 0;
        while (k < lib->npar && (strlen(lib->parname[k]) != n || strncmp(lib->parname[k], p, n) != 0))
            k++;
        if (k < lib->npar)
            cfg->parlog[k] = 1;
        else if (o->logpar_given)
            return spx_fail(e, SPX_EUSAGE, "--log-param: the library has no parameter '%.*s'", n > 60 ? 60 : (int)n, p);
        p += n + (p[n] == ',');
    }
    return SPX_OK;
}
