/* Reads and writes /templates: contract of all readers and writers in products/README. */
#ifndef SPX_TEMPLATES_H5_H
#define SPX_TEMPLATES_H5_H

#include <hdf5.h>

#include "products/templates.h"

/* /templates. The templates themselves, which are most of the file, only with `all`, or where a setup has no components
 * to make them of: lnflux is NULL without. */
spx_status spx_templates_read(hid_t file, int all, spx_templates *t, spx_err *e);
spx_status spx_templates_write(hid_t file, const spx_templates *t, spx_err *e);

#endif
