/* Makes the configuration of the templates from the options of rvs-template's command line. */
#ifndef SPX_TOOLS_TEMPLATE_OPTIONS_H
#define SPX_TOOLS_TEMPLATE_OPTIONS_H

#include "app/opt.h"
#include "products/library.h"
#include "template/template.h"

enum { SPX_TEMPLATE_MAX_VSINI = 16 };

/* Values of rvs-template's option table; its help says what they are. */
typedef struct {
    spx_opt_list setup;
    spx_template_interpolator interpolator;
    spx_norm norm;
    const char *resolution, *logpar, *vsini;
    int straight, ccf, vsini_given, logpar_given,
        library_given; /* the last: an option that makes sense for libraries only */
    long every;
    double pca, pca_max;
    int train, nn_given;
    const char *hidden;
    long epochs, seed;
} spx_template_args;

/* All but tables, logarithms and threads. request[o->setup.n] and vsini[] are what *cfg points to. SPX_EUSAGE: an
 * option makes no sense, or another one is missing. */
spx_status spx_template_args_config(const spx_template_args *o, spx_template_request *request,
                                    double vsini[SPX_TEMPLATE_MAX_VSINI], spx_template_config *cfg, spx_err *e);

/* Marks the parameters that --log-param names. A library without teff is no mistake unless teff was asked for. */
spx_status spx_template_args_log(const spx_template_args *o, const spx_library *lib, spx_template_config *cfg,
                                 spx_err *e);

#endif
