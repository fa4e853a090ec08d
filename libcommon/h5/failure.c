/* Failures inside HDF5 (h5/failure.h). */
#include "h5/failure.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/tmpfile.h"
#include "h5/internal.h"
#include "h5/object.h"

static spx_err pending;

static const char UNNAMED[] = "HDF5 file"; /* a driver did not say which */

/* Is this the name's fault, and not the machine's? */
static int of_a_name(int number)
{
    return number == ENOENT || number == EACCES || number == EPERM || number == EISDIR || number == ENOTDIR ||
           number == EEXIST || number == ENAMETOOLONG || number == ELOOP || number == EINVAL;
}

/* One entry of the error stack. Drivers put the file's name and errno into the text. */
static herr_t look(unsigned n, const H5E_error2_t *entry, void *data)
{
    spx_err *found = data;
    const char *text = entry->desc != NULL ? entry->desc : "", *at = strstr(text, "errno = ");
    int number = 0;
    (void)n;
    if (found->code != SPX_OK)
        return 0;
    if (at != NULL && sscanf(at, "errno = %d", &number) == 1 && number != 0 && !of_a_name(number)) {
        char name[1024];
        const char *from = strstr(text, "filename = '"), *end = from != NULL ? strchr(from + 12, '\'') : NULL;
        const char *call = strstr(text, "write") != NULL   ? "writing"
                           : strstr(text, "close") != NULL ? "closing"
                                                           : "reading";
        (void)snprintf(name, sizeof name, "%s", UNNAMED);
        if (end != NULL && (size_t)(end - from - 12) < sizeof name)
            (void)snprintf(name, sizeof name, "%.*s", (int)(end - from - 12), from + 12);
        (void)spx_fail_at(found, SPX_EIO, spx_tmpfile_shown(name), NULL, NULL, "%s failed: %s", call, strerror(number));
    } else if (entry->maj_num == H5E_RESOURCE && (entry->min_num == H5E_NOSPACE || entry->min_num == H5E_CANTALLOC)) {
        (void)spx_fail(found, SPX_EIO, "out of memory within HDF5");
    }
    return 0;
}

static herr_t notice(hid_t stack, void *data)
{
    (void)data;
    if (pending.code != SPX_EIO) {
        spx_err found = {0};
        (void)H5Ewalk2(stack, H5E_WALK_UPWARD, look, &found);
        if (found.code != SPX_OK)
            pending = found;
    }
    return 0;
}

void spx_h5_watch(void)
{
    (void)H5Eset_auto2(H5E_DEFAULT, notice, NULL);
}

spx_status spx_h5_pending(spx_err *e)
{
    spx_err found = pending;
    pending = (spx_err){0};
    return found.code == SPX_OK ? SPX_OK : spx_err_pass(e, &found);
}

void spx_h5_lookup_failed(hid_t loc, const char *path)
{
    if (pending.code == SPX_OK)
        (void)spx_h5_fail_at(loc, path, SPX_EINPUT, "cannot be looked up: is the file damaged?", &pending);
}

void spx_h5_keep_damage(const spx_err *found)
{
    if (pending.code == SPX_OK)
        pending = *found;
}

void spx_h5_name_failure(const char *name)
{
    if (pending.code != SPX_OK && strcmp(pending.file, UNNAMED) == 0)
        (void)snprintf(pending.file, sizeof pending.file, "%s", name);
}

spx_status spx_h5_settle(spx_status st, spx_err *e)
{
    spx_err found = {0};
    const spx_status worse = spx_h5_pending(&found);
    if (worse == SPX_OK || st == SPX_EIO || (worse == SPX_EINPUT && st != SPX_OK && st != SPX_ENO))
        return st;
    *e = (spx_err){0};
    return spx_err_pass(e, &found);
}
