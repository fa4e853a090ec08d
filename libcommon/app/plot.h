/* Pictures: gnuplot draws a script into an open file. */
#ifndef SPX_PLOT_H
#define SPX_PLOT_H

#include "base/err.h"
#include "base/text.h"

/* First lines of a script: terminal by the end of the file's name (.png, .svg or .pdf). SPX_EUSAGE: another end. */
spx_status spx_plot_begin(spx_text *script, const char *name, int width, int height, spx_err *e);

/* Run gnuplot on the script, its picture into descriptor fd. SPX_EIO: gnuplot is not installed, or failed. */
spx_status spx_plot_run(const spx_text *script, int fd, spx_err *e);

#endif
