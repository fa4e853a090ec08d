/* Shared objects that are loaded at run time: backends (kernels/backend.h) and languages of hooks (base/hook.h). */
#ifndef SPX_PLUGIN_H
#define SPX_PLUGIN_H

#include <stddef.h>

#include "base/err.h"

/* Path of the plug-in `file` ("backend-cuda.so"): in the folder SPX_BACKENDS, or in ../lib/specpipe seen from the
 * program, which is true in the build folder and where it is installed. */
void spx_plugin_path(const char *file, char *out, size_t size);

/* One line `key: value` of what a plug-in says of itself (specpipe-info). */
typedef void spx_plugin_tell(const char *key, const char *fmt, ...) SPX_PRINTF(2, 3);

#endif
