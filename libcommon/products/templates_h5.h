/* Reads and writes /templates: contract of all readers and writers in products/README. */
#ifndef SPX_TEMPLATES_H5_H
#define SPX_TEMPLATES_H5_H

#include <hdf5.h>

#include "products/templates.h"

/* Reads or writes /templates. The templates themselves, most of the file, are read only with `all`, or where a setup
 * has no components to make them from; else lnflux is NULL. */
spx_status spx_templates_read(hid_t file, int all, spx_templates *t, spx_err *e);
spx_status spx_templates_write(hid_t file, const spx_templates *t, spx_err *e);
/* Writes setup[].nodes alone, for templates that are written. */
spx_status spx_templates_write_nodes(hid_t file, const spx_templates *t, spx_err *e);

#endif
