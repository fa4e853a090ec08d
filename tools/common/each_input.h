/* Takes the inputs of a program, where many become one product: standard input stands for all products that it holds.
 */
#ifndef SPX_TOOLS_EACH_INPUT_H
#define SPX_TOOLS_EACH_INPUT_H

#include "app/main.h"

/* Calls use() for every input of the run, in order: for a file once, for standard input with each of the products that
 * it holds. Ends with the first error. */
spx_status spx_each_input(spx_run *s, spx_status (*use)(void *ctx, spx_input *in, spx_err *e), void *ctx, spx_err *e);

/* The same of `name`, with one of them open at a time: for any number of files. They are not noted as inputs of the
 * product. */
spx_status spx_each_in_turn(size_t n, char *const *name, spx_status (*use)(void *ctx, spx_input *in, spx_err *e),
                            void *ctx, spx_err *e);

/* Open inputs, owned by the product; name[k] is in[k]->name. */
typedef struct {
    size_t n;
    spx_input **in;
    char **name;
} spx_inputs;

/* Opens the inputs `name` likewise, all of them. Free *all in any case. */
spx_status spx_all_inputs(spx_run *s, size_t n, char *const *name, spx_inputs *all, spx_err *e);
/* The same of inputs whose light is added: SPX_EINPUT where a file is there twice. */
spx_status spx_all_inputs_once(spx_run *s, size_t n, char *const *name, spx_inputs *all, spx_err *e);
void spx_inputs_free(spx_inputs *all);

/* Warns where the light of an exposure, n bytes, is that of one `before`, which noise never gives: 1, else 0. */
int spx_warn_of_repeated(const void *light, const void *before, size_t n, const char *name);

#endif
