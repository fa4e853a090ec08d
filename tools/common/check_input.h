/* Says which programs take a file, also one that another program wrote: reads its blocks as they do
 * (h5check --input). */
#ifndef SPX_TOOLS_CHECK_INPUT_H
#define SPX_TOOLS_CHECK_INPUT_H

#include <stddef.h>
#include <stdio.h>

#include "base/err.h"
#include "h5/file.h"

/* Prints to `out`, a line a block, `FILE:/block: contents: programs`, or why no program takes it. *nbad counts blocks
 * that none takes; a file without any block that programs read counts as one. */
spx_status spx_check_input(spx_input *in, FILE *out, size_t *nbad, spx_err *e);

#endif
