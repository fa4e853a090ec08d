/* Reads and writes /stack: contract of all readers and writers in products/README. */
#ifndef SPX_STACK_H5_H
#define SPX_STACK_H5_H

#include <hdf5.h>

#include "app/main.h"
#include "h5/file.h"
#include "products/stack.h"

/* Reads stacks of an earlier run, to add to: /stack/stack, with the same window as `like` (spx_free). */
spx_status spx_stack_read_earlier(spx_input *in, const spx_stack *like, void **value, spx_err *e);
spx_status spx_stack_write(hid_t file, const spx_stack *s, spx_err *e);

#endif
