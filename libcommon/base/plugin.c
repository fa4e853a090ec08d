/* Provides paths of plug-ins, relative to the program or in $SPX_BACKENDS (base/plugin.h). */
#include "base/plugin.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

/* The program's own file; 0: nobody says. Without /proc there is the name that it was started by, which is used where
 * it does not depend on the current folder. */
static int own_file(char exe[PATH_MAX])
{
    const ssize_t n = readlink("/proc/self/exe", exe, PATH_MAX - 1);
    const char *started = (const char *)getauxval(AT_EXECFN);
    if (n > 0)
        exe[n] = '\0';
    return n > 0 || (started != NULL && started[0] == '/' && realpath(started, exe) != NULL);
}

spx_status spx_plugin_path(const char *file, char *out, size_t size, spx_err *e)
{
    char exe[PATH_MAX];
    const char *folder = getenv("SPX_BACKENDS");
    int n;
    out[0] = '\0';
    if (folder != NULL && folder[0] != '/')
        return spx_fail_remedy(e, SPX_EUSAGE, "give the full path of a folder",
                               "SPX_BACKENDS=%s: plug-ins are not looked for in the current folder", folder);
    if (folder != NULL)
        n = snprintf(out, size, "%s/%s", folder, file);
    else if (own_file(exe))
        n = snprintf(out, size, "%s/../lib/specpipe/%s", dirname(exe), file);
    else
        return spx_fail_remedy(e, SPX_EUSAGE, "set SPX_BACKENDS to its folder",
                               "%s: nothing says where this program is installed (is /proc mounted?)", file);
    return n < (int)size ? SPX_OK : spx_fail(e, SPX_EUSAGE, "%s: the path of its folder is too long", file);
}
