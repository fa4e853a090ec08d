/* Writes the arrays that a hook returned into a product (specpipe-schema(5): /insitu). */
#ifndef SPX_INSITU_H
#define SPX_INSITU_H

#include <hdf5.h>

#include "base/err.h"
#include "base/hook.h"

spx_status spx_insitu_write(hid_t file, const spx_hook_results *r, spx_err *e);

#endif
