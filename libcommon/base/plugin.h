/* Provides paths of shared objects loaded at run time: backends (kernels/backend.h) and languages of hooks
 * (base/hook.h). */
#ifndef SPX_PLUGIN_H
#define SPX_PLUGIN_H

#include <stddef.h>

#include "base/err.h"

/* Path of the plug-in `file` ("backend-cuda.so"): in the folder $SPX_BACKENDS, else in ../lib/specpipe relative to the
 * program, which holds in the build folder and where it is installed. Never relative to the current folder, which
 * others may write: SPX_EUSAGE for a relative SPX_BACKENDS, and where nothing says which file the program is; then *out
 * is empty. */
spx_status spx_plugin_path(const char *file, char *out, size_t size, spx_err *e);

/* Receives one line `key: value` of a plug-in's description (specpipe-info). */
typedef void spx_plugin_tell(const char *key, const char *fmt, ...) SPX_PRINTF(2, 3);

#endif
