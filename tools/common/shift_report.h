/* Tells and records what was found of the traces of an exposure. */
#ifndef SPX_TOOLS_SHIFT_REPORT_H
#define SPX_TOOLS_SHIFT_REPORT_H

#include "app/main.h"
#include "products/shift.h"

/* A line for the user, warnings, and the figures in the product's provenance. */
spx_status spx_shift_report(spx_run *r, const char *label, const spx_shift *s, spx_err *e);

#endif
