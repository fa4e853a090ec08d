/* Makes a product of each line of a list of inputs, @FILE or @-, the only input of a program (run/queue_lines.h);
 * outputs are a list, too, -o @FILE. For programs whose products have several inputs; those that have one image or
 * frame each are made by run/queue_run.h, which reads the next one meanwhile. */
#ifndef SPX_LIST_RUN_H
#define SPX_LIST_RUN_H

#include "app/main.h"

/* Makes the current product of the inputs name[n] up to its spx_run_output() and what goes there; spx_list_run()
 * commits it. */
typedef spx_status spx_list_make(void *ctx, size_t n, char **name, spx_err *e);

/* Makes and commits the only product, where the inputs are no list. Of a list a failure does not affect other products;
 * its error is printed, and the status is that of the first. SPX_EUSAGE where the two lists differ in length, outputs
 * are no list, or have one name twice. */
spx_status spx_list_run(spx_run *s, spx_list_make *make, void *ctx, spx_err *e);

#endif
