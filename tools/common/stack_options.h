/* Reads the text of an axis of slowness, velocity or azimuth, as h5stack's options take it. */
#ifndef SPX_TOOLS_STACK_OPTIONS_H
#define SPX_TOOLS_STACK_OPTIONS_H

#include "stack/stack.h"

/* MIN:MAX:STEP, both ends included, or one number. `what` names the option. SPX_EUSAGE says
 * what is wrong. */
spx_status spx_stack_axis_parse(const char *text, const char *what, spx_stack_axis *a, spx_err *e);

#endif
