/* Takes the inputs of a program one after another, where many become one product. */
#ifndef SPX_TOOLS_EACH_INPUT_H
#define SPX_TOOLS_EACH_INPUT_H

#include "app/main.h"
#include "fits/cards.h"

/* Calls use() for every input of the run, in order: for a file once, for standard input with each of the products that
 * it holds. Ends with the first error. */
spx_status spx_each_input(spx_run *s, spx_status (*use)(void *ctx, spx_input *in, spx_err *e), void *ctx, spx_err *e);

/* Warns where the header says that the exposure was taken for something else (OBSTYPE, FLAVOR, IMAGETYP without any of
 * `words`, ended by NULL); `what` for the message: "a flat". */
void spx_warn_of_purpose(const spx_cards *header, const char *name, const char *const *words, const char *what);

#endif
