/* Reads the text of a setup of templates, as --setup takes it. */
#ifndef SPX_TOOLS_SETUP_OPTIONS_H
#define SPX_TOOLS_SETUP_OPTIONS_H

#include "template/template.h"

/* NAME:MIN:MAX:STEP:R=EXPR[:air|:vacuum], or FWHM=EXPR in place of R=EXPR. SPX_EUSAGE says what is wrong. */
spx_status spx_template_parse_setup(const char *text, spx_template_request *r, spx_err *e);

#endif
