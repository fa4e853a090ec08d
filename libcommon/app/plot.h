/* Draws pictures: runs gnuplot on a script, into an open file, or into one committed with a product. */
#ifndef SPX_PLOT_H
#define SPX_PLOT_H

#include <stddef.h>

#include "app/main.h"
#include "base/err.h"
#include "base/text.h"

typedef enum { SPX_PLOT_PNG, SPX_PLOT_SVG, SPX_PLOT_PDF } spx_plot_format;

/* Format by the suffix of a file's name: .png, .svg or .pdf. SPX_EUSAGE: another suffix. */
spx_status spx_plot_format_of(const char *name, spx_plot_format *format, spx_err *e);
/* Begins a script: terminal and style that all pictures share. width, height: pixels of 1/96 inch; zoom: pixels of a
 * PNG for each of these. */
spx_status spx_plot_start(spx_text *script, spx_plot_format format, double width, double height, double zoom,
                          spx_err *e);
/* Both, with a zoom of 1. */
spx_status spx_plot_begin(spx_text *script, const char *name, int width, int height, spx_err *e);

/* Runs gnuplot on the script, with its picture into descriptor fd, and without the user's ~/.gnuplot. SPX_EIO: gnuplot
 * is not installed, or failed. */
spx_status spx_plot_run(const spx_text *script, int fd, spx_err *e);
/* As spx_plot_run(), into file `name`, which is committed with the product. */
spx_status spx_plot_output(spx_run *stage, const char *name, const spx_text *script, spx_err *e);

/* Adds two panels to a script for a singular value decomposition: the leading ones of the right singular vectors
 * v[nmode*ncol] over x[ncol] (NULL: number of the column), and the singular values s[nmode] with their
 * energy[nmode]. */
spx_status spx_plot_svd(spx_text *t, size_t nmode, size_t ncol, const double *s, const double *energy, const double *v,
                        const double *x, const char *xlabel, spx_err *e);

#endif
