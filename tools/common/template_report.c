#include "common/template_report.h"

#include <stdio.h>

#include "base/mem.h"
#include "products/templates_h5.h"
#include "rvfit/rvfit.h"

spx_status spx_template_tell_nodes(spx_run *s, hid_t file, spx_templates *t, spx_err *e)
{
    spx_node_error all;
    const char *bent;
    for (size_t i = 0; i < t->nsetup; i++) { /* components do */
        spx_setup *setup = &t->setup[i];
        if (setup->pca.mean == NULL)
            return SPX_OK;
        spx_free(setup->lnflux);
        setup->lnflux = NULL;
    }
    spx_status st = spx_rvfit_bend(t, &bent, e);
    if (st == SPX_OK)
        st = spx_rvfit_node_errors(t, (int)s->common.threads, &all, e);
    if (st == SPX_OK)
        st = spx_templates_write_nodes(file, t, e);
    if (st != SPX_OK || all.sn == 0)
        return st;
    const spx_setup *first = &t->setup[0];
    char text[512] = "", untold[512] = "", name[64];
    int at = 0, more = 0;
    for (size_t p = 0; p < first->npar && st == SPX_OK && at < (int)sizeof text; p++) {
        if (all.error[p] == 0)
            continue;
        if (!all.known[p]) {
            more += more < (int)sizeof untold ? snprintf(untold + more, sizeof untold - (size_t)more, "%s%.31s",
                                                         more > 0 ? ", " : "", first->parname[p])
                                              : 0;
            continue;
        }
        at += snprintf(text + at, sizeof text - (size_t)at, "%s %.31s %+.2f +- %.2f", at > 0 ? "," : "",
                       first->parname[p], all.bias[p], all.spread[p]);
        (void)snprintf(name, sizeof name, "node_bias_%.31s", first->parname[p]);
        st = spx_run_record(s, name, e, "%.3f", all.bias[p]);
    }
    if (at > 0)
        spx_note("interpolation between nodes: fits%s at a signal-to-noise ratio of %.0f, in bins of two steps of the "
                 "templates, will be off by this many of their errors (median +- scatter):%s",
                 t->nsetup > 1 ? " of all setups together" : "", all.sn, text);
    if (more > 0)
        spx_warn(
            "templates are linear in %s, with two nodes in the library: how far that is off cannot be told; a third "
            "node would tell, and mend it",
            untold);
    return st;
}
