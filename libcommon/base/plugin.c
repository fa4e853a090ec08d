/* Provides paths of plug-ins, relative to the program or in $SPX_BACKENDS (base/plugin.h). */
#include "base/plugin.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void spx_plugin_path(const char *file, char *out, size_t size)
{
    char exe[PATH_MAX];
    const char *folder = getenv("SPX_BACKENDS");
    if (folder != NULL) {
        (void)snprintf(out, size, "%s/%s", folder, file);
        return;
    }
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    (void)snprintf(out, size, "%s/../lib/specpipe/%s", dirname(exe), file);
}
