/* Tells the user, the provenance and the file how far off fits are because templates are interpolated between nodes. */
#ifndef SPX_TOOLS_TEMPLATE_REPORT_H
#define SPX_TOOLS_TEMPLATE_REPORT_H

#include <hdf5.h>

#include "app/main.h"
#include "products/templates.h"

/* Of templates that are written to `file`: they change, to those of the fit, and lose lnflux. Nothing where there is no
 * grid, or no components. */
spx_status spx_template_tell_nodes(spx_run *s, hid_t file, spx_templates *t, spx_err *e);

#endif
