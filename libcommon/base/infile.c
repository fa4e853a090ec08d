/* Opens input files, and provides messages about unusable ones: missing files, patterns without a match, compressed
 * files (base/infile.h). */
#include "base/infile.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Is it the name's fault, and not the machine's? */
static int of_the_name(int err)
{
    return err == EACCES || err == EPERM || err == EISDIR || err == ENOTDIR || err == ENAMETOOLONG || err == ELOOP ||
           err == ENXIO || err == EINVAL;
}

spx_status spx_fail_open(const char *name, int err, spx_err *e)
{
    const char *bracket = strrchr(name, '[');
    const size_t len = strlen(name), stem = bracket != NULL ? (size_t)(bracket - name) : 0;
    char file[1024];
    if (err != ENOENT)
        return spx_fail_at(e, of_the_name(err) ? SPX_EINPUT : SPX_EIO, name, NULL, NULL, "cannot open: %s",
                           strerror(err));
    if (stem > 0 && stem < sizeof file && name[len - 1] == ']') {
        memcpy(file, name, stem);
        file[stem] = '\0';
        if (access(file, F_OK) == 0)
            return spx_fail_at(e, SPX_EINPUT, name, NULL, NULL,
                               "cannot open: no HDU is chosen in brackets here: give %s", file);
    }
    if (strpbrk(name, "*?[") != NULL)
        return spx_fail_at(e, SPX_EINPUT, name, NULL, NULL, "cannot open: no file matches this pattern");
    return spx_fail_at(e, SPX_EINPUT, name, NULL, NULL, "cannot open: no such file: check the name");
}

spx_status spx_infile_open(const char *name, FILE **file, spx_err *e)
{
    struct stat sb;
    *file = fopen(name, "rb");
    if (*file == NULL)
        return spx_fail_open(name, errno, e);
    if (fstat(fileno(*file), &sb) != 0 || !S_ISDIR(sb.st_mode))
        return SPX_OK;
    (void)fclose(*file);
    *file = NULL;
    return spx_fail_at(e, SPX_EINPUT, name, NULL, "give a file", "is a directory");
}

const char *spx_packed_with(const unsigned char *head, size_t n, const char **command)
{
    static const struct {
        const char *magic;
        size_t n;
        const char *what, *command;
    } kind[] = {
        {"\x1f\x8b", 2, "packed with gzip", "gunzip -c"},
        {"BZh", 3, "packed with bzip2", "bunzip2 -c"},
        {"\xfd"
         "7zXZ",
         5, "packed with xz", "xz -dc"},
        {"\x1f\x9d", 2, "packed with compress", "gzip -dc"},
        {"\x28\xb5\x2f\xfd", 4, "packed with zstd", "zstd -dc"},
        {"PK\x03\x04", 4, "a zip archive", "unzip -p"},
    };
    for (size_t i = 0; i < sizeof kind / sizeof *kind; i++)
        if (n >= kind[i].n && memcmp(head, kind[i].magic, kind[i].n) == 0) {
            *command = kind[i].command;
            return kind[i].what;
        }
    return NULL;
}
